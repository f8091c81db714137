"""The data of a release: loaded once, when it is linked, and before that if a person decides.

A person decides by a forecast, which is made here. Linking pins the data, and masking uses them. They stay in
memory for a few releases only, and not while a release waits for a person. Data that were dropped are loaded
again, and must be the same.
"""

import logging
from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from common.errors import DataChangedError, DataError, RefusedError, UnusableDataError
from common.log import on_one_line
from owner_node.linking.tokens import ReleaseKey
from owner_node.masking.foreseen import Forecast
from owner_node.release.work import Owner, ReleaseWork
from owner_node.state.session import SessionState

if TYPE_CHECKING:
    from owner_node.release.product import Prepared

MOST_KEPT = 2
"""Releases of one aggregator whose original data are kept in memory at a time."""
_log = logging.getLogger(__name__)


class Appraisal:
    """Loads and examines the data of one aggregator's releases."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._kept: OrderedDict[str, tuple[str, Prepared]] = OrderedDict()
        self._lock = Lock()

    def appraise(self, work: ReleaseWork, key: ReleaseKey | None) -> dict[str, Any]:
        """Load the data of an undecided release, and forecast the effect of masking them, for a person.

        The forecast is drawn once: the same data under the same plan get the stored one. Data that cannot be
        used, or that were charged to another budget, have none. No answer depends on that: a person is asked
        all the same, and sees the reason when the plan is tried (`owner_node.views.plan`).

        Returns:
            The fields that `Sessions.foresee` stores.
        """
        session = work.session
        try:
            prepared = self._load(work, key)
            work.check_budget(prepared.known_by)
        except (DataError, UnusableDataError, RefusedError) as error:
            self.forget(session.release)
            _log.warning(
                "the data cannot be used as planned: %s",
                on_one_line(error.message),
                extra={"release": session.release},
            )
            return {"source_digest": "", "n_records": None, "forecast": ""}
        pinned, text = self._owner.records.own_keys.pin(prepared.source_digest), session.forecast
        if not text or session.source_digest != pinned:
            forecast = work.product.forecast(prepared, self._owner.config.policy)
            text = "" if forecast is None else forecast.to_text()
        if text:
            _warn(session.release, Forecast.from_text(text))
        return {"source_digest": pinned, "n_records": prepared.n_records, "forecast": text}

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

    def forget(self, release: str) -> None:
        """Drop the original data of a release from memory."""
        with self._lock:
            kept = self._kept.pop(release, None)
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


def _warn(release: str, forecast: Forecast) -> None:
    """Log the names of attributes no more accurate than their means; the history has the numbers."""
    extra = {"release": release, "attributes": list(forecast.no_better_than_means)}
    if forecast.worth_less_than_means:
        _log.warning("the fragment is expected to be worth less than its means", extra=extra)
    elif forecast.no_better_than_means:
        _log.warning("attributes are expected to be worth no more than their means", extra=extra)
