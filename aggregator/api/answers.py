"""Converts owners' answers to events, after checking everything in them."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from aggregator.api.statements import Statements
from aggregator.drive.stages import product_of
from aggregator.protocol.events import (
    Acknowledged,
    Consented,
    Described,
    Linked,
    Measured,
    OwnerEvent,
    Passed,
    PassedRows,
    PassedSums,
    Sealed,
    Waiting,
)
from aggregator.protocol.release import Release, apply
from aggregator.store.intake import Blob, BlobKind, Intake
from aggregator.store.journal import Journal
from aggregator.store.ledger_heads import StoredHead
from common.canonical import digest
from common.errors import ConflictError, ProtocolError
from common.model.fragment import Consent, FragmentStatement, KeyProof
from common.model.plan import Plan
from common.model.rounds import KEY_BYTES, NUMBER_BYTES, PROOF_BYTES, Parcel, ParcelKind, SumKey, chained
from common.model.schema import Schema, excesses, most_records
from common.model.task import Assignment
from common.trust.signing import Domain
from common.wire.software import read_software
from common.wire.v1 import owner_pb2 as wire

TOKEN_BYTES = 16
_MORE_COMPLETE = 100
_MOST_UNPLANNED = 2**28
"""Most records of an owner that brings more than its schema counts: they fill the disk unasked."""
_COMPATIBLE = "the owner node must run a compatible version"


class Answers:
    """Turns answers into events."""

    def __init__(
        self, statements: Statements, intake: Intake, journal: Journal, releases: Callable[[str], Release]
    ) -> None:
        self._statements = statements
        self._intake = intake
        self._journal = journal
        self._releases = releases
        self._reading = asyncio.Lock()

    async def event(self, release: Release, owner: str, request: wire.AnswerRequest, at: int) -> OwnerEvent:
        """Return the event of an answer, any but a failure.

        Raises:
            ConflictError: If it answers another plan.
            ProtocolError, IntegrityError, IdentityError: If it is malformed or not signed by this owner.
        """
        kind = request.WhichOneof("answer")
        if kind == "described":
            schema = await self._schema(release, owner, request.described.schema)
            software = read_software(request.described.software)
            return Described(at=at, owner=owner, schema=schema, software=software)
        if kind == "acknowledged":
            return Acknowledged(at=at, owner=owner, keeps=request.acknowledged.keeps)
        check_plan(release, request.plan_digest)
        if kind == "waiting":
            return Waiting(at=at, owner=owner)
        if kind == "consented":
            return self._read_consented(release, owner, request.consented, at)
        if kind == "linked":
            return await self._read_linked(release, owner, request.linked, at)
        if kind == "sealed":
            return await self._read_sealed(release, owner, request.sealed, at)
        if kind == "passed":
            return await self._read_passed(release, owner, request.passed, at)
        if kind == "measured":
            return await self._read_measured(release, owner, request.measured, at)
        raise ProtocolError("the answer is empty or of an unknown kind", _COMPATIBLE)

    async def _schema(self, release: Release, owner: str, data: bytes) -> str:
        """Return the text of a schema. Reading takes long: one at a time, and only an owner's first."""
        async with self._reading:
            known = self._releases(release.id).progress[owner].described
            if known is not None:
                return data.decode("utf-8", "replace")
            return await asyncio.to_thread(read_schema, data)

    def _read_consented(self, release: Release, owner: str, answer: wire.Consented, at: int) -> Consented:
        plan = release.the_plan()
        if plan.linking.tokens and not answer.key_check:
            raise ProtocolError("the consent lacks the key-check value of the linkage key", _COMPATIBLE)
        if not plan.linking.tokens and answer.key_check:
            raise ProtocolError("the consent has a key-check value, the plan has no identifier", _COMPATIBLE)
        try:
            consent = Consent.accepting(plan, owner, answer.key_check, answer.key_generation)
        except ValueError:
            raise ProtocolError("the key-check value or its generation is none", _COMPATIBLE) from None
        signed = self._statements.ledger_head(answer.ledger_head, owner)
        chain = self._statements.check(
            owner, Domain.CONSENT, consent, answer.signature,
            answer.certificate or answer.ledger_head.certificate,
        )  # fmt: skip
        event = Consented(
            at=at,
            owner=owner,
            key_check=answer.key_check,
            signature=answer.signature.hex(),
            certificate=chain,
            key_generation=answer.key_generation,
        )
        self._keep(signed, release, event)
        return event

    async def _read_linked(self, release: Release, owner: str, answer: wire.Linked, at: int) -> Linked:
        plan = release.the_plan()
        planned = most_linked(plan.assignment_of(owner))
        if not 0 < answer.n_records <= planned:
            raise ProtocolError(
                f"{answer.n_records} records were linked, the plan was made for 1 to {planned}", _COMPATIBLE
            )
        if bool(answer.tokens_digest) != plan.linking.tokens:
            raise ProtocolError("tokens are sent if the plan wants them, and only then", _COMPATIBLE)
        key, chain = self._sum_key(release, owner, answer)
        _check_proof(plan, owner, key, answer.key_proof)
        event = Linked(
            at=at,
            owner=owner,
            records=answer.n_records,
            tokens_digest=answer.tokens_digest,
            sum_key=key,
            signature=answer.signature.hex() if key else "",
            certificate=chain,
            key_proof=answer.key_proof.decode(),
        )
        known = release.progress[owner].linked
        if plan.linking.tokens and known is None:
            size = answer.tokens_size if plan.passes else TOKEN_BYTES * answer.n_records
            blob = Blob(release.id, owner, BlobKind.TOKENS, answer.tokens_digest, size)
            if not await asyncio.to_thread(self._intake.verify, blob):
                raise ProtocolError("the token list has not arrived", "upload it, then answer")
        return event

    def _sum_key(self, release: Release, owner: str, answer: wire.Linked) -> tuple[str, str]:
        """Return an owner's key for sums, and who signed it; empty where none is needed."""
        plan = release.the_plan()
        if bool(answer.sum_key) is not plan.product.rules.in_rounds:
            raise ProtocolError("a key for sums is sent for synthetic releases, and only then", _COMPATIBLE)
        if not answer.sum_key:
            return "", ""
        if len(answer.sum_key) != KEY_BYTES:
            raise ProtocolError(f"a key for sums of {len(answer.sum_key)} bytes is none", _COMPATIBLE)
        key = SumKey(release.id, owner, plan.digest, answer.sum_key.hex())
        since = datetime.fromisoformat(plan.created)
        chain = self._statements.check(
            owner, Domain.SUM_KEY, key, answer.signature, answer.certificate, since
        )
        return key.key, chain

    async def _read_passed(self, release: Release, owner: str, answer: wire.Passed, at: int) -> Passed:
        """Take note of what an owner sent others; its bytes are here."""
        if not release.is_open(answer.round):
            raise ProtocolError(f"round {answer.round} of release {release.id} is not open")
        try:
            stated = Parcel.from_bytes(answer.parcel.statement)
        except ValueError as problem:
            raise ProtocolError(str(problem), _COMPATIBLE) from None
        signed = self._statements.ledger_head(answer.ledger_head, owner)
        kind = PassedRows if stated.kind is ParcelKind.ROWS else PassedSums
        expected = (release.id, owner, release.plan_digest, digest(release.rounds[-1].document.encode()))
        if (stated.release, stated.owner, stated.plan_digest, stated.opening) != expected:
            raise ProtocolError("an owner states something else than it was asked for", _COMPATIBLE)
        chain = self._statements.check(
            owner, Domain.PARCEL, stated, answer.parcel.signature, answer.parcel.certificate,
            datetime.fromisoformat(release.the_plan().created),
        )  # fmt: skip
        blob = Blob(release.id, owner, BlobKind(stated.kind), stated.parcel_digest, stated.size)
        if not await asyncio.to_thread(self._intake.verify, blob):
            raise ProtocolError("what others need has not arrived", "upload it, then answer")
        event = kind(
            at=at,
            owner=owner,
            round=answer.round,
            statement=stated.to_bytes().decode(),
            signature=answer.parcel.signature.hex(),
            certificate=chain,
        )
        self._keep(signed, release, event)
        return event

    async def _read_measured(self, release: Release, owner: str, answer: wire.Measured, at: int) -> Measured:
        if not 1 <= answer.round <= len(release.rounds):
            raise ProtocolError(f"round {answer.round} of release {release.id} is not open")
        number, plan, progress = answer.round, release.the_plan(), release.progress[owner]
        opened = release.rounds[:number]
        if len(answer.answer) != NUMBER_BYTES * opened[-1].numbers:
            raise ProtocolError(
                f"owner {owner} answered round {number} with {len(answer.answer)} bytes, "
                f"{opened[-1].numbers} numbers have {NUMBER_BYTES * opened[-1].numbers}",
                _COMPATIBLE,
            )
        if len(answer.key_proof) != (PROOF_BYTES if plan.linking.key_proofs else 0):
            raise ProtocolError("the proof of an answer has another length", _COMPATIBLE)
        if release.addendum is None or not release.is_open(number):
            # It was added up, and the answer to its message was lost: nothing of it is stored again.
            return Measured(at=at, owner=owner, round=number, statement="", signature="", certificate="")
        statement = FragmentStatement(
            release.id,
            owner,
            plan.digest,
            digest(opened[-1].document.encode()),
            chained(progress.counted, answer.answer),
            NUMBER_BYTES * sum(opening.numbers for opening in opened),
            release.addendum.records[owner],
        )
        signed = self._statements.ledger_head(answer.ledger_head, owner)
        chain = self._statements.check(
            owner, Domain.FRAGMENT, statement, answer.signature, answer.certificate,
            datetime.fromisoformat(plan.created),
        )  # fmt: skip
        event = Measured(
            at=at,
            owner=owner,
            round=number,
            statement=statement.to_bytes().decode(),
            signature=answer.signature.hex(),
            certificate=chain,
            key_proof=answer.key_proof.hex(),
        )
        self._keep(signed, release, event)
        if progress.measured is None:
            # On disk before it is recorded, and only once: another answer was refused above.
            await self._intake.keep_answer(release.id, owner, number, bytes(answer.answer))
        return event

    async def _read_sealed(self, release: Release, owner: str, answer: wire.Sealed, at: int) -> Sealed:
        plan, addendum = release.the_plan(), release.addendum
        if addendum is None:
            raise ProtocolError(f"release {release.id} is {release.state}: nothing is to be sealed yet")
        if answer.n_records != addendum.records[owner]:
            raise ProtocolError(
                f"owner {owner} sealed {answer.n_records} records, it linked {addendum.records[owner]}",
                _COMPATIBLE,
            )
        assignment = plan.assignment_of(owner)
        if answer.size > await asyncio.to_thread(product_of(plan).most_bytes, assignment, answer.n_records):
            raise ProtocolError(
                f"a fragment of {answer.size} bytes is too large for its records", _COMPATIBLE
            )
        try:
            statement = FragmentStatement(
                release.id,
                owner,
                plan.digest,
                addendum.digest,
                answer.fragment_digest,
                answer.size,
                answer.n_records,
            )
        except ValueError:
            raise ProtocolError("the fragment's digest is none", _COMPATIBLE) from None
        signed = self._statements.ledger_head(answer.ledger_head, owner)
        chain = self._statements.check(
            owner, Domain.FRAGMENT, statement, answer.signature, answer.certificate,
            datetime.fromisoformat(plan.created),
        )  # fmt: skip
        event = Sealed(
            at=at,
            owner=owner,
            statement=statement.to_bytes().decode(),
            signature=answer.signature.hex(),
            certificate=chain,
        )
        self._keep(signed, release, event)
        return event

    def _keep(self, signed: StoredHead, release: Release, event: OwnerEvent) -> None:
        """Store a ledger head that comes with a new answer, not those of repeated answers."""
        self._journal.heads.compare(signed.head, event.at, release.id)
        if apply(release, event) is not release:
            self._journal.heads.keep(signed, event.at, release.id)


def check_plan(release: Release, digest: str) -> None:
    """Check that an answer or an upload is about this release's plan.

    Raises:
        ProtocolError: If there is none yet.
        ConflictError: If it is about another one.
    """
    if release.plan is None:
        raise ProtocolError(f"release {release.id} is {release.state}: it has no plan yet")
    if digest != release.plan_digest:
        raise ConflictError(
            f"release {release.id} has another plan than the one that is answered",
            "answer the plan that the aggregator sent for this release",
            {"release": release.id, "plan_digest": release.plan_digest},
        )


def read_schema(data: bytes) -> str:
    """Return the text of a schema, which is untrusted input.

    Raises:
        ProtocolError: If it is not the canonical form of a schema, or is unreasonably large.
    """
    try:
        schema = Schema.from_bytes(data)
    except ValueError as problem:
        raise ProtocolError(str(problem), _COMPATIBLE) from None
    for fault, hint in excesses(schema):
        raise ProtocolError(fault, f"at the owner: {hint}")
    return data.decode()


def most_linked(assignment: Assignment) -> int:
    """Return the most records that an owner may link: the number that its joint bounds hold for.

    Where these do not depend on the number, an owner that leaves out records without a value may have more
    records for a choice of its attributes than its schema counts: up to `_MORE_COMPLETE` times as many, if
    they are no more than `_MOST_UNPLANNED`.
    """
    most, planned = assignment.most_records, most_records(assignment.records_rounded)
    return max(min(_MORE_COMPLETE * planned, _MOST_UNPLANNED), planned) if most is None else most


def _check_proof(plan: Plan, owner: str, sum_key: str, proof: bytes) -> None:
    """Check the form of what shows other owners that this one has the linkage key; only they can check it."""
    if not plan.linking.key_proofs and not proof:
        return
    try:
        stated = KeyProof.from_bytes(proof)
    except ValueError:
        raise ProtocolError("the proof of the linkage key is malformed", _COMPATIBLE) from None
    if not plan.linking.key_proofs or (stated.owner, stated.sum_key) != (owner, sum_key):
        raise ProtocolError("the proof of the linkage key is that of another owner or key", _COMPATIBLE)
