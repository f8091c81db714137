"""The data of a release: loaded once, when it is linked.

Consent needs none of them. If a person decided, they are those that the person saw
(`owner_node.views.appraisal`); else linking pins them. Masking uses them. They stay in memory for a few
releases only. Data that were dropped are loaded again, and must be the same.
"""

from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from common.canonical import digest
from common.errors import DataChangedError, DataError, UnusableDataError
from owner_node.linking.tokens import ReleaseKey
from owner_node.release.work import Owner, ReleaseWork
from owner_node.state.session import SessionState

if TYPE_CHECKING:
    from owner_node.release.product import Prepared

MOST_KEPT = 2
"""Releases of one aggregator whose original data are kept in memory at a time."""


class OriginalData:
    """Loads the data of one aggregator's releases."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._kept: OrderedDict[str, tuple[str, Prepared]] = OrderedDict()
        self._counted: tuple[Prepared, bytes, Prepared] | None = None
        self._lock = Lock()

    def prepared(self, work: ReleaseWork) -> "Prepared":
        """Return the data of an accepted release, which the session's digest pins once it is linked.

        Raises:
            UnusableDataError: If the source cannot be used or masked as planned, and nothing pins it yet.
            DataChangedError: If the source changed since consent, or, before the charge is spent, cannot be
                used any more.
            DataError: If the source cannot be used now, and the charge is spent: it may be there again later.
        """
        session, key = work.session, work.release_key()
        try:
            prepared = self._load(work, key)
        except (DataError, UnusableDataError) as error:
            if session.state is SessionState.SPENT:
                raise DataError(error.message, error.hint, error.details) from None
            # The cause depends on the data and on the attributes that a plan names: one code for all causes.
            kind = DataChangedError if session.source_digest else UnusableDataError
            raise kind(error.message, error.hint, error.details) from None
        pinned = self._owner.records.own_keys.pin(prepared.source_digest)
        if session.source_digest not in ("", pinned):
            self.forget(session.release)
            raise DataChangedError(
                f"the source of data set {session.dataset!r} changed after this owner consented",
                "start the release again when the source no longer changes",
                {"pinned": session.source_digest, "found": pinned},
            )
        return replace(prepared, source_digest=pinned)

    def counted(self, work: ReleaseWork, n_records: int, selection: bytes) -> "Prepared":
        """Return the data that an accepted release counts.

        Args:
            n_records: Number of records that are selected.
            selection: Which, or the numbers of their persons; empty: all.

        Raises:
            IntegrityError: If it is not the selection of so many records; else as `prepared`.
        """
        whole = self.prepared(work)
        if not selection:
            return whole
        with self._lock:
            last = self._counted
        # Of data on disk a selection is a copy: one for all rounds.
        if last is None or last[0].pinned is not whole.pinned or last[1] != selection:
            last = whole, selection, whole.selected(selection, n_records, digest(selection))
            with self._lock:
                self._counted = last
        return last[2]

    def forget(self, release: str) -> None:
        """Drop the original data of a release from memory."""
        with self._lock:
            kept = self._kept.pop(release, None)
            self._counted = None
        if kept is not None:
            kept[1].pinned.close()

    def _load(self, work: ReleaseWork, key: ReleaseKey | None) -> "Prepared":
        release, check = work.session.release, "" if key is None else key.check
        with self._lock:
            made_with, kept = self._kept.get(release, ("", None))
        if kept is not None and made_with == check:
            return kept
        config, source_key = self._owner.config, self._owner.records.own_keys.source_key()
        prepared = work.product.prepare(
            work.dataset, work.plan, work.assignment, None if key is None else key.key, source_key,
            (config.engine.kind, config.workspace), work.progress,
        )  # fmt: skip
        with self._lock:
            dropped = [self._kept.pop(release)[1]] if release in self._kept else []
            self._kept[release] = (check, prepared)
            while len(self._kept) > MOST_KEPT:
                dropped.append(self._kept.popitem(last=False)[1][1])
        for old in dropped:
            old.pinned.close()
        return prepared
