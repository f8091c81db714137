"""An owner's part of counting with owners of other groups: what it sends them in a round, and reads.

Everything here is a function of the plan, sums, the pinned records, and of seed and key that were stored
before: a process that dies makes the same bytes again.
"""

import hmac
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from common.arrays import Int64Array, TokenArray
from common.canonical import digest
from common.errors import IntegrityError, ProtocolError
from common.files import atomic_writer, file_digest, read_chunks
from common.model.rounds import N_ZEROS, Parcel, ParcelKind
from common.model.together import to_codes
from common.progress import Progress
from common.synthesis.binning import Attributes
from common.synthesis.counters import largest_parcel
from common.trust.signing import Domain
from common.workspace import processors
from owner_node.linking.places import placed_columns, read_places
from owner_node.linking.tokens import ReleaseKey
from owner_node.release.opened_round import OpenedRound
from owner_node.release.product import Prepared
from owner_node.release.production import selection_sizes
from owner_node.state.answers import ForeignParcelError, ParcelAnswer, SignedParcel, digests_of, parcel_of
from owner_node.synthesis.crossed import (
    PERSONS_AT_ONCE,
    Member,
    Sums,
    add_rows,
    encrypted_rows,
    held_tables,
    noisy_counts,
    noisy_sums,
    processes,
)
from owner_node.synthesis.paillier import PrivateKey, check_different
from owner_node.synthesis.roles import MessageContext, Roles, Shared, fault_of_tables
from owner_node.synthesis.sealed import SEALING_KEY_BYTES, sealed, unsealed

_SIZE_BYTES = 8


class Crossing(OpenedRound):
    """A round at one owner: its own counts, and its part of those with owners of other groups.

    In a release of one group nobody is asked to count with others.
    """

    @cached_property
    def prepared(self) -> Prepared:
        """The records that this owner counts, which a round that is answered does not need."""
        if self.work.plan.linking.unites:
            return self._original_data.prepared(self.work)
        selection = self._stored_selection[0]
        return self._original_data.counted(self.work, self.addendum.records[self.work.owner.id], selection)

    @cached_property
    def _stored_selection(self) -> tuple[bytes, bytes]:
        """This owner's selection, and the owners that have its persons, too; empty: all, nobody."""
        stored = self.work.owner.records.rounds.selection(*self.work.key[:2])
        n_selection, n_partners = selection_sizes(self.work, self.addendum)
        if len(stored) != n_selection + n_partners:
            raise ProtocolError("this owner does not know any more what linking found of its records")
        return stored[:n_selection], stored[n_selection:]

    @cached_property
    def number(self) -> int:
        """This owner's number."""
        return self.owners.index(self.work.owner.id)

    @cached_property
    def group(self) -> int:
        """This owner's group."""
        return self.design.group_of(self.number)

    @cached_property
    def owners(self) -> list[str]:
        """The owners by number, group by group."""
        return [owner for group in self.work.plan.groups for owner in group]

    @cached_property
    def tokens(self) -> TokenArray:
        """Tokens of this owner's persons, sorted, `(n_persons, 16)`."""
        tokens = self.prepared.pinned.token_list()
        data = (
            np.fromfile(tokens, dtype=np.uint8)
            if isinstance(tokens, Path)
            else np.frombuffer(tokens, np.uint8)
        )
        return data.reshape(self.prepared.n_records, -1)

    @cached_property
    def terms(self) -> MessageContext:
        """What this owner's messages and noise are about."""
        plan = self.work.plan
        if plan.n_groups == 1:
            return MessageContext(plan.release, plan.digest, round=self.document.round)
        if plan.linking.unites:
            # The addendum has the digests of all owners' places: other places, other noise.
            return MessageContext(plan.release, plan.digest, self._digest_of(b""))
        return MessageContext(plan.release, plan.digest, self._digest_of(self.tokens.tobytes()))

    @cached_property
    def shared(self) -> Shared:
        """Which of this owner's persons the owners of other groups have."""
        plan, n_persons = self.work.plan, self.addendum.records[self.work.owner.id]
        if not plan.has_partners:
            return Shared.everybody(n_persons, plan.n_groups, self.terms.persons)
        data = self._stored_selection[1]
        partners = np.frombuffer(data, dtype=np.uint8).reshape(n_persons, plan.n_groups)
        digests = {
            other: self._digest_of(self.tokens[partners[:, group] == place].tobytes())
            for group in range(plan.n_groups)
            for place, other in enumerate(self.design.members(group))
            if group != self.group
        }
        return Shared(partners, digests)

    @cached_property
    def roles(self) -> Roles:
        """Who encrypts and who adds."""
        if not self.is_across:
            raise ProtocolError("nothing is counted across owners in this round")
        return Roles(self.terms, self.design, self.questions, self.document.digest, self.owners)

    @cached_property
    def columns(self) -> dict[int, Int64Array]:
        """Codes of this owner's persons by attribute, `(n_persons,)`.

        Among groups in the order of tokens, or of everybody's places: those whom it lacks are absent.
        """
        plan, records, pinned = self.work.plan, self.prepared.records, self.prepared.pinned
        held = records.sample(records.n_records).columns
        order = slice(None) if plan.n_groups == 1 else pinned.token_order()
        if plan.linking.unites:
            places = read_places(self._stored_selection[0], self.shared.n_persons)
            return placed_columns(
                {
                    number: held[each.name][order] - each.lower
                    for number, each in enumerate(plan.attributes)
                    if self.design.home(number) == self.group
                },
                self.design,
                self.group,
                places,
            )
        own = {
            number: each
            for number, each in enumerate(plan.modelled)
            if self.design.home(number) == self.group
        }
        codes = to_codes(list(own.values()), held)
        return {number: each[order] for number, each in zip(own, codes, strict=True)}

    @property
    def pair_key(self) -> bytes:
        """This owner's key for the tables with other groups."""
        if not self.secrets.pair_key:
            raise ProtocolError("this owner has no key for the tables of this release any more")
        return self.secrets.pair_key

    @cached_property
    def _release_key(self) -> ReleaseKey:
        key = self.work.release_key()
        if key is None:
            raise ProtocolError("owners of different attributes have a linkage key")
        return key

    def _sealing_key(self, kind: ParcelKind, sender: str, receiver: str = "") -> bytes:
        """Return the key of a message of this round; without a receiver it is for all."""
        about = {"sender": sender, "receiver": receiver, "opening": self.document.digest}
        return self._release_key.derived(kind, SEALING_KEY_BYTES, **about)

    def _digest_of(self, tokens: bytes) -> str:
        """Return a digest of persons that says nothing without the linkage key.

        Numbers and places of persons are what the addendum's digests say they are: others, other noise.
        """
        plan, key = self.work.plan, self._release_key.derived("persons")
        numbered = plan.numbers_persons or plan.linking.unites
        return hmac.digest(key, self.addendum.digest.encode() * numbered + tokens, "sha256").hex()

    def senders(self, kind: ParcelKind) -> list[str]:
        """Return the owners whose parcels of a kind this owner needs."""
        find = self.roles.holders if kind is ParcelKind.ROWS else self.roles.adders
        return [self.owners[number] for number in find(self.number)]

    def kept(self, kind: ParcelKind) -> ParcelAnswer | None:
        """Return what was written for others before; None if nothing was."""
        path = self.path(kind)
        return self._stated(path, kind) if path.exists() else None

    def encrypt(self) -> ParcelAnswer:
        """Write encrypted rows for all adders."""
        path, rows = self.path(ParcelKind.ROWS), self.encrypted(self.work.progress)
        made = sha256()
        with closing(rows), atomic_writer(path) as stream_:
            for piece in rows:
                stream_.write(piece)
                made.update(piece)
            self._note(ParcelKind.ROWS, made.hexdigest())
        return self._stated(path, ParcelKind.ROWS)

    def encrypted(self, progress: Progress) -> Generator[bytes]:
        """Yield encrypted rows for all adders, sealed, in pieces."""
        return sealed(self._rows(progress), self._sealing_key(ParcelKind.ROWS, self.work.owner.id))

    def _rows(self, progress: Progress) -> Generator[bytes]:
        n_persons = self.shared.n_persons
        progress.begin("encrypting", n_persons)
        with processes(n_persons, processors()) as pool:
            rows = encrypted_rows(
                self.roles, self.number, self.columns, self.shared, self.pair_key, self.secrets.seed, pool
            )
            # The key comes first, then all persons.
            yield next(rows)
            for piece in rows:
                yield piece
                progress.advance(PERSONS_AT_ONCE)

    def add(self, rows: Mapping[str, Parcel]) -> ParcelAnswer:
        """Write noisy sums of the rows of all holders.

        Args:
            rows: Of the holders, as `needed` returned them; the files are there.
        """
        path = self.path(ParcelKind.SUMS)
        with atomic_writer(path) as stream_:
            sums = self.added(rows, self.work.progress)
            stream_.write(sums)
            self._note(ParcelKind.SUMS, digest(sums), rows)
        return self._stated(path, ParcelKind.SUMS)

    def added(self, rows: Mapping[str, Parcel], progress: Progress) -> bytes:
        """Return noisy sums of the rows of all holders, each after its size."""
        summed = dict[str, Sums]()
        progress.begin("adding", sum(rows[holder].size for holder in self.senders(ParcelKind.ROWS)))
        for holder in self.senders(ParcelKind.ROWS):
            pieces = unsealed(
                _pieces(self._file(rows, holder), progress),
                self._sealing_key(ParcelKind.ROWS, holder),
                f"owner {holder}",
            )
            number = self.owners.index(holder)
            try:
                with processes(self.shared.n_persons, processors()) as pool:
                    summed[holder] = add_rows(
                        self.roles, number, self.number, self.columns, self.shared, pieces, pool
                    )
            except IntegrityError as error:
                raise _foreign(holder, error.message) from None
        keys = {holder: sums.key for holder, sums in summed.items()}
        try:
            check_different(keys, PrivateKey(self.pair_key).public)
        except IntegrityError as error:
            raise _foreign(str(error.details["owner"]), error.message) from None
        messages = []
        for holder, sums in summed.items():
            number = self.owners.index(holder)
            made = noisy_sums(self.roles, number, self.number, self.shared, sums, self.secrets.seed)
            key = self._sealing_key(ParcelKind.SUMS, self.work.owner.id, holder)
            message = b"".join(sealed([made], key))
            messages += [len(message).to_bytes(_SIZE_BYTES), message]
        return b"".join(messages)

    def answer(self, sums: Mapping[str, Parcel]) -> bytes:
        """Return this owner's answer to the round, under masks; the charge was spent before.

        Args:
            sums: Of the adders, as `needed` returned them; the files are there.
        """
        vector = np.zeros(0 if self.is_last else N_ZEROS, dtype=np.int64)
        if self.questions:
            member = Member(self.design, self.group, self.columns, self.terms, self.secrets.seed)
            vector = self.work.product.answer(self.questions, member, self._held(sums))
        return self.masks.answer(vector, self.document.digest)

    def _held(self, sums: Mapping[str, Parcel]) -> dict[Attributes, Int64Array]:
        """Return this owner's part of the tables that it is a holder of, by their attributes."""
        across: dict[Attributes, Int64Array] = {}
        for group in self.roles.adding(self.number) if self.is_across else ():
            counts = [self._counts(adder, sums) for adder in self.design.members(group)]
            tables = self.roles.tables(self.group, group)
            held = held_tables(self.roles, tables, counts, group, self.secrets.seed)
            across.update({table.pair: part for table, part in zip(tables, held, strict=True)})
        return across

    def _counts(self, adder: int, sums: Mapping[str, Parcel]) -> list[Int64Array]:
        """Return the counts of tables with an adder, with its noise."""
        name, place = self.owners[adder], self.roles.holders(adder).index(self.number)
        message = _message_of(self._file(sums, name).read_bytes(), place, name)
        key, own = PrivateKey(self.pair_key), self.work.owner.id
        try:
            opened = unsealed([message], self._sealing_key(ParcelKind.SUMS, name, own), f"owner {name}")
            message = b"".join(opened)
            counts = noisy_counts(self.roles, self.number, adder, self.shared, message, key)
        except IntegrityError as error:
            raise _foreign(name, error.message) from None
        if fault := fault_of_tables(self.roles, self.number, adder, self.shared, counts, self.sums):
            raise _foreign(name, fault)
        return counts

    def needed(self, kind: ParcelKind, sent: Iterable[SignedParcel]) -> dict[str, Parcel]:
        """Return what this owner needs of what others sent, by owner.

        Raises:
            ProtocolError: If something is missing.
            IntegrityError: If something is not signed by its owner, or is of another round.
        """
        senders, parcels = self.senders(kind), dict[str, Parcel]()
        for signed in sent:
            parcel = parcel_of(signed)
            if parcel.owner in senders and parcel.kind is kind:
                self._check(parcel, signed)
                parcels[parcel.owner] = parcel
        if missing := set(senders) - parcels.keys():
            raise ProtocolError(f"the {kind} of {', '.join(sorted(missing))} are missing")
        return parcels

    def stored(self, kind: ParcelKind) -> dict[str, Parcel]:
        """Return what was received of a kind, by owner, as it lies on this owner's disk.

        Raises:
            FileNotFoundError: If it is there no more.
        """
        plan, parcels = self.work.plan, dict[str, Parcel]()
        for owner in self.senders(kind):
            parcel = Parcel(plan.release, owner, plan.digest, self.document.digest, kind, "", 0)
            path = self.received(parcel)
            parcels[owner] = replace(parcel, parcel_digest=file_digest(path), size=path.stat().st_size)
        return parcels

    def received(self, parcel: Parcel) -> Path:
        """Return where to write what another owner sent, as `needed` returned it."""
        outbox, opening = self.work.owner.records.outbox, parcel.opening[:16]
        return outbox.parcel(*self.work.key[:2], f"{parcel.kind}-{opening}-{self.owners.index(parcel.owner)}")

    def path(self, kind: ParcelKind) -> Path:
        """Return where this owner's own parcel of a kind is, or will be."""
        return self.work.owner.records.outbox.parcel(
            *self.work.key[:2], f"{kind}-{self.document.digest[:16]}"
        )

    def _note(self, kind: ParcelKind, made: str, of: Mapping[str, Parcel] | None = None) -> None:
        """Record, once, what will be sent, and what of others it was made of: an auditor compares."""
        with self.work.transaction() as tx:
            self.work.note(tx, "sent", **{str(kind): made}, **digests_of(of or {}))

    def _stated(self, path: Path, kind: ParcelKind) -> ParcelAnswer:
        plan, signer = self.work.plan, self.work.owner.signer.current_signer()
        size = path.stat().st_size
        owner = self.work.owner.id
        parcel = Parcel(plan.release, owner, plan.digest, self.document.digest, kind, file_digest(path), size)
        signature = signer.sign(Domain.PARCEL, parcel.to_bytes())
        return ParcelAnswer(path, parcel, signature, signer.chain_pem.encode())

    def _check(self, parcel: Parcel, signed: SignedParcel) -> None:
        """Check that a parcel is what its owner sends in this round.

        Raises:
            IntegrityError: If it is not.
        """
        work, owner = self.work, parcel.owner
        proof = (signed.statement, signed.signature, signed.certificate)
        if objection := work.objection_to(owner, Domain.PARCEL, *proof):
            raise _foreign(owner, objection)
        stated = (parcel.release, parcel.plan_digest, parcel.opening)
        if stated != (work.plan.release, work.plan.digest, self.document.digest):
            raise _foreign(owner, "it is of another round or release")
        group = self.design.group_of(self.owners.index(owner))
        if not 0 < parcel.size <= largest_parcel(self.design, group, parcel.kind, self.design.n_records):
            raise _foreign(owner, f"it cannot have {parcel.size} bytes")

    def _file(self, parcels: Mapping[str, Parcel], owner: str) -> Path:
        """Return the file of what an owner sent.

        Raises:
            IntegrityError: If the aggregator passed something else on.
        """
        path = self.received(parcels[owner])
        if file_digest(path) != parcels[owner].parcel_digest:
            path.unlink()
            raise _foreign(owner, "it is not what its owner signed")
        return path


def _pieces(path: Path, progress: Progress) -> Iterator[bytes]:
    """Yield what is in a file, and show how far that is."""
    for piece in read_chunks(path):
        yield bytes(piece)
        progress.advance(len(piece))


def _message_of(data: bytes, place: int, adder: str) -> bytes:
    """Return the message at a place among those of an adder to its holders, which are untrusted input."""
    at, message = 0, b""
    for _ in range(place + 1):
        size = int.from_bytes(data[at : at + _SIZE_BYTES])
        message, at = data[at + _SIZE_BYTES : at + _SIZE_BYTES + size], at + _SIZE_BYTES + size
        if len(message) != size:
            raise _foreign(adder, "it is truncated")
    return message


def _foreign(owner: str, reason: str) -> ForeignParcelError:
    return ForeignParcelError(
        f"what owner {owner} sent for tables of both cannot be used: {reason}",
        "nothing was published; ask that owner's administrator, and the aggregator's operator",
        {"owner": owner},
    )
