"""Parties that deviate in releases of several owners, through real daemons: all are refused."""

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.api.statements import Statements
from aggregator.drive import rounds, stages
from common.canonical import canonical, digest
from common.errors import IntegrityError
from common.files import write_atomic
from common.model.fragment import Addendum, FragmentStatement, KeyProof
from common.model.rounds import NUMBER_BYTES, RoundDocument, SignedAnswer, SignedAnswers, chained, read_round
from common.release.verification import verify_release
from common.synthesis import sums
from common.trust.signing import Domain, Signer
from deploy.development_ca import DevelopmentCa
from owner_node.config import KnownAggregator, OwnerConfig, PolicyConfig
from owner_node.connection.client import AggregatorClient
from owner_node.connection.worker import Worker
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.linking.tokens import TOKEN_SIZE, ReleaseKey, key_check, release_key
from owner_node.release import opened_round, production
from owner_node.release.work import ReleaseWork
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.synthesis import paillier
from owner_node.synthesis.masks import Masks, public_key
from owner_node.synthesis.packing import Packing
from tests.fakes.small_keys import small_keys
from tests.fakes.synthetic_owners import paillier_key
from tests.wire.conftest import TRUST_DOMAIN
from tests.wire.test_owner_daemon import Heard, ended, heard, running, share_key
from tests.wire.test_synthetic import begin, cohort, releasing, relist, rounds_of, spent
from tests.wire.test_synthetic_across import RECORDS, begin_mixed, part, parts, refusals

__all__ = ["heard"]

NO_KEY = "does not show that it has the linkage key of this release"
DISCLOSING = {"sent", "answered", "spent", "sealed", "uploaded"}
"""Events of a history after which something that depends on values may have left."""


@pytest.fixture(autouse=True)
def _made_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every owner's key is another small one, made once for all tests."""
    small_keys(monkeypatch)
    numbers = iter(range(30, 99))
    monkeypatch.setattr(paillier, "new_key", lambda: paillier_key(next(numbers)))


Parties = Callable[[str, str], Coroutine[Any, Any, tuple[Any, list[OwnerConfig]]]]


@pytest.fixture
def parties(launch: Callable[..., Any], tmp_path: Path, certificates: Path) -> Parties:
    """A function that starts an aggregator, and configures owners that have one linkage key."""

    async def make(names: str, layout: str) -> tuple[Any, list[OwnerConfig]]:
        aggregator, owner = await launch(), part if layout == "vertical" else cohort
        configs = [owner(tmp_path, each, aggregator.daemon.address, certificates) for each in names]
        share_key(configs)
        return aggregator, configs

    return make


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Who sent something that depends on values: answers, parcels and fragments, by name."""
    found: list[tuple[str, str]] = []
    answer, parcel, fragment = (
        AggregatorClient.answer, AggregatorClient.upload_parcel, AggregatorClient.upload_fragment,
    )  # fmt: skip

    async def answered(self: Any, request: Any) -> None:
        kind = request.WhichOneof("answer")
        found.extend([(self._owner, kind)] if kind in ("measured", "sealed", "passed") else [])
        await answer(self, request)

    async def passed(self: Any, *arguments: Any) -> None:
        found.append((self._owner, "parcel"))
        await parcel(self, *arguments)

    async def uploaded(self: Any, *arguments: Any) -> Any:
        found.append((self._owner, "fragment"))
        return await fragment(self, *arguments)

    monkeypatch.setattr(AggregatorClient, "answer", answered)
    monkeypatch.setattr(AggregatorClient, "upload_parcel", passed)
    monkeypatch.setattr(AggregatorClient, "upload_fragment", uploaded)
    return found


def events_of(config: OwnerConfig) -> set[str]:
    """Return which events an owner's history has."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return set(History(db, lambda: datetime.now(UTC)).events())


def reserved(config: OwnerConfig) -> Decimal:
    """Return what an owner's budget holds for open releases."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return Ledger(db, lambda: datetime.now(UTC)).balance("cohort", Decimal(10)).reserved


async def is_refused(
    aggregator: Any, heard: Heard, said: str, configs: list[OwnerConfig], release: str = "r1"
) -> None:
    """Check that a release fails with words at an honest owner, charges nobody and publishes nothing."""
    assert await ended(aggregator, release, seconds=120) == "failed", (await aggregator.show(release)).error
    await heard.wait_for("concluded", times=len(configs))
    view = await aggregator.show(release)
    assert said in "; ".join([view.error.message, *refusals(configs)])
    assert not (aggregator.config.aggregator.release_dir / release).exists()
    assert [spent(each) for each in configs] == [0] * len(configs)
    # Others conclude the release, too, and one of them may be the first.
    while any(reserved(each) for each in configs):
        await heard.wait_for("concluded")


# --- an owner without the linkage key --------------------------------------------------------------------


def _tokens(data: bytes) -> list[bytes]:
    return [data[i : i + TOKEN_SIZE] for i in range(0, len(data), TOKEN_SIZE)]


@pytest.fixture
def impostor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let an owner without the linkage key show copies of what the aggregator has of another one."""

    def invent(config: OwnerConfig, honest: OwnerConfig, *others: str, copies_tokens: bool) -> None:
        linkage_key.new(config.owner.state_dir)
        find, answer = ReleaseWork.release_key, production._link_answer
        copied, linked, names = dict[str, bytes](), threading.Event(), {honest.owner.id, *others}

        class Copied(ReleaseKey):
            """Another key, under the value that compares the honest owners' keys."""

            about: tuple[str, str]

            @property
            def check(self) -> str:
                return key_check(release_key(linkage_key.load(honest.owner.state_dir).key, *self.about))

        def key(self: ReleaseWork) -> ReleaseKey | None:
            if (found := find(self)) is None or self.owner.id != config.owner.id:
                return found
            other = Copied(found.key, found.generation)
            object.__setattr__(other, "about", (self.plan.release, self.plan.digest))
            return other

        def links(work: ReleaseWork, n_records: int, tokens: Any, secrets: Any) -> Any:
            if work.owner.id in names:
                copied[work.owner.id] = tokens if isinstance(tokens, bytes) else tokens.read_bytes()
                if copied.keys() == names:
                    linked.set()
            elif copies_tokens:
                assert linked.wait(60)
                theirs = {each for other in others for each in _tokens(copied[other])}
                tokens = b"".join(each for each in _tokens(copied[honest.owner.id]) if each not in theirs)
            return answer(work, n_records, tokens, secrets)

        def checks(work: ReleaseWork, addendum: Addendum) -> None:
            if work.owner.id != config.owner.id:
                check(work, addendum)

        check = production._check_proofs
        monkeypatch.setattr(production, "_check_proofs", checks)
        monkeypatch.setattr(ReleaseWork, "release_key", key)
        monkeypatch.setattr(production, "_link_answer", links)

    return invent


@pytest.mark.parametrize("named", [False, True], ids=["invented", "stand-in"])
@pytest.mark.parametrize(
    ("layout", "product"),
    [("vertical", "synthetic"), ("horizontal", "synthetic"), ("vertical", ""), ("horizontal", "")],
)
async def test_an_owner_without_the_linkage_key(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    impostor: Callable[..., None],
    sent: list[tuple[str, str]],
    layout: str,
    product: str,
    named: bool,
) -> None:
    """Its certificate, copied tokens and a copied key check are no proof, also if it is named by its id."""
    aggregator = await launch()
    make = part if layout == "vertical" else cohort
    honest, invented = (make(tmp_path, each, aggregator.daemon.address, certificates) for each in "ab")
    if named:
        honest = replace(honest, policy=PolicyConfig(co_owners=("b",)))
    linkage_key.new(honest.owner.state_dir)
    impostor(invented, honest, copies_tokens=layout == "vertical")
    async with running(honest, invented):
        await heard.wait_for("connected", times=2)
        if product:
            await begin(aggregator, "a", "b", layout=layout)
        else:
            await aggregator.start("a", "b", layout=layout)
        await is_refused(aggregator, heard, f"'b' {NO_KEY}", [honest])
    assert f"'b' {NO_KEY}" in refusals([honest])[0]
    error = (await aggregator.show()).error
    assert error.message.endswith("; it objects to what came in the name of owner b")
    assert json.loads(error.details)["objects_to"] == "b"
    assert "a" not in dict(sent)
    assert not events_of(honest) & DISCLOSING
    assert not rounds_of(honest)


async def test_an_invented_owner_in_a_group(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    impostor: Callable[..., None],
    sent: list[tuple[str, str]],
) -> None:
    """Also beside an honest owner of the same attributes, with the tokens of all others' common persons."""
    aggregator = await launch()
    *honest, invented = parts(tmp_path, aggregator.daemon.address, certificates, "a", "bc")
    share_key(honest)
    impostor(invented, honest[0], "b", copies_tokens=True)
    async with running(*honest, invented):
        await heard.wait_for("connected", times=3)
        await begin_mixed(aggregator, "a", "bc")
        await is_refused(aggregator, heard, f"'c' {NO_KEY}", honest)
    assert not {"a", "b"} & dict(sent).keys()


# --- proofs and keys that the aggregator changes ----------------------------------------------------------


@pytest.fixture
def linking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Addendum], Addendum]], None]:
    """Let the aggregator sign another result of linking than it found."""

    def lie(change: Callable[[Addendum], Addendum]) -> None:
        monkeypatch.setattr(stages, "Addendum", lambda *found: change(Addendum(*found)))

    return lie


def _only(found: Addendum, owner: str, **changes: str) -> Addendum:
    """Return what linking found with a changed proof of one owner."""
    proofs = (replace(each, **changes) if each.owner == owner else each for each in found.key_proofs)
    return replace(found, key_proofs=tuple(proofs))


def _renamed(found: Addendum) -> Addendum:
    """Return what linking found with the proofs of two owners under each other's names."""
    other = {"a": "b", "b": "a"}
    return replace(
        found, key_proofs=tuple(replace(each, owner=other[each.owner]) for each in found.key_proofs)
    )


def _swapped(found: Addendum) -> Addendum:
    """Return what linking found with each owner's key for sums in the proof of the other."""
    one, two = (each.sum_key for each in found.key_proofs)
    return _only(_only(found, "a", sum_key=two), "b", sum_key=one)


LIES: dict[str, Callable[[Addendum], Addendum]] = {
    "none": lambda found: replace(found, key_proofs=()),
    "none of one": lambda found: replace(found, key_proofs=found.key_proofs[:1]),
    "one twice": lambda found: replace(found, key_proofs=(found.key_proofs[0],) * 2),
    "its own": lambda found: _only(found, "b", proof="ab" * 32),
    "after the right one": lambda found: replace(
        found, key_proofs=(*found.key_proofs, replace(found.key_proofs[1], proof="ab" * 32))
    ),
    "of the other": _renamed,
    "of other keys for sums": _swapped,
    "of a key for sums of its own": lambda found: _only(found, "b", sum_key=public_key(bytes(32)).hex()),
    "of another certificate": lambda found: _only(found, "b", fingerprint="ab" * 32),
}


@pytest.mark.parametrize("layout", ["vertical", "horizontal"])
@pytest.mark.parametrize("lie", LIES)
async def test_proofs_that_the_aggregator_changes(
    parties: Parties,
    heard: Heard,
    linking: Callable[..., None],
    sent: list[tuple[str, str]],
    layout: str,
    lie: str,
) -> None:
    """Proofs that are stripped, made up, renamed, or of other keys end the release before anything leaves."""
    aggregator, configs = await parties("ab", layout)
    linking(LIES[lie])
    async with releasing(heard, aggregator, configs, layout=layout):
        await is_refused(aggregator, heard, NO_KEY, configs)
    assert not sent
    assert not any(rounds_of(each) for each in configs)


async def test_proofs_of_another_release(
    parties: Parties,
    heard: Heard,
    linking: Callable[..., None],
    sent: list[tuple[str, str]],
) -> None:
    """What an owner proved for one release is no proof for the next one of the same parties."""
    aggregator, configs = await parties("ab", "vertical")
    shown: list[KeyProof] = []

    def replay(found: Addendum) -> Addendum:
        right, before = list(found.key_proofs), list(shown)
        shown[:] = right
        if not before:
            return replace(found, key_proofs=())
        return replace(found, key_proofs=(right[0], replace(before[1], sum_key=right[1].sum_key)))

    linking(replay)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        for release in ("r1", "r2"):
            await begin(aggregator, "a", "b", layout="vertical", release=release)
            await is_refused(aggregator, heard, NO_KEY, configs, release)
    assert not sent


async def test_keys_for_sums_of_two_owners_in_each_others_place(
    parties: Parties,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[tuple[str, str]],
) -> None:
    """A document with two keys swapped, or one without its signature, gets no answer."""
    aggregator, configs = await parties("abc", "horizontal")
    find = rounds._keys

    def swapped(release: Any) -> Any:
        own, one, two = find(release)
        return own, replace(one, key=two.key), replace(two, key=one.key)

    monkeypatch.setattr(rounds, "_keys", swapped)
    async with releasing(heard, aggregator, configs, layout="horizontal"):
        await is_refused(aggregator, heard, "for sums is not its own", configs)
    assert not sent


# --- sums that the aggregator changes ---------------------------------------------------------------------


def _read(shown: bytes) -> tuple[SignedAnswers, list[bytes]]:
    """Return what is in the file of all answers to a round."""
    head, _, rest = shown.partition(b"\n")
    signed = SignedAnswers.from_bytes(head)
    size = len(rest) // len(signed.answers)
    return signed, [rest[i * size :][:size] for i in range(len(signed.answers))]


def _file(signed: SignedAnswers, answers: list[bytes]) -> bytes:
    return b"".join([signed.head(), *answers])


def _raised(answer: bytes) -> bytes:
    numbers = np.frombuffer(answer, dtype="<u8").copy()
    numbers[0] += 1
    return numbers.tobytes()


Shown = tuple[Any, bytes]


def _states_more(total: Any, shown: bytes) -> Shown:
    total[0] += 1
    return total, shown


def _changes_one(total: Any, shown: bytes) -> Shown:
    signed, (first, *others) = _read(shown)
    total[0] += 1
    return total, _file(signed, [_raised(first), *others])


def _drops_one(total: Any, shown: bytes) -> Shown:
    signed, answers = _read(shown)
    total += -np.frombuffer(answers[-1], dtype="<i8")
    return total, _file(SignedAnswers(signed.answers[:-1]), answers[:-1])


def _doubles_one(total: Any, shown: bytes) -> Shown:
    signed, answers = _read(shown)
    return total, _file(SignedAnswers((*signed.answers, signed.answers[0])), [*answers, answers[0]])


def _repeats_one(total: Any, shown: bytes) -> Shown:
    signed, answers = _read(shown)
    return total, _file(SignedAnswers((signed.answers[0],) * len(answers)), [answers[0]] * len(answers))


def _swaps_two(total: Any, shown: bytes) -> Shown:
    signed, answers = _read(shown)
    return total, _file(signed, answers[::-1])


def _ends_early(total: Any, shown: bytes) -> Shown:
    return total, shown[:-NUMBER_BYTES]


def _is_none(total: Any, _: bytes) -> Shown:
    return total, b"{}\n"


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    "lie",
    [_states_more, _changes_one, _drops_one, _doubles_one, _repeats_one, _swaps_two, _ends_early, _is_none],
)
async def test_sums_that_are_not_those_of_the_answers(
    parties: Parties,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[Any, bytes], Shown],
    number: int,
) -> None:
    """Other zeros, sums or answers: no owner answers the next document, or signs the last one."""
    aggregator, configs = await parties("ab", "vertical")
    add_up, found = rounds._add_up, list[str]()

    def other(release: Any, intake: Any) -> Shown:
        total, shown = add_up(release, intake)
        if release.round == number:
            total, shown = lie(total.copy(), shown)
            write_atomic(intake.answers(release.id, release.round), shown)
            found.append(digest(shown))
        return total, shown

    monkeypatch.setattr(rounds, "_add_up", other)
    monkeypatch.setattr("common.synthesis.plausible.fault_of_sums", lambda *_: "")
    monkeypatch.setattr(opened_round, "fault_of_sums", lambda *_: "")
    async with releasing(heard, aggregator, configs, layout="vertical"):
        assert await ended(aggregator, seconds=120) == "failed", (await aggregator.show()).error
        await heard.wait_for("concluded", times=2)
    assert found
    assert not (aggregator.config.aggregator.release_dir / "r1").exists()
    assert refusals(configs)
    assert [len(rounds_of(each)) for each in configs] == [number] * 2
    assert [spent(each) for each in configs] == [int(number > 1)] * 2
    assert [reserved(each) for each in configs] == [0, 0]


# --- masks that do not cancel, and owners who are told different things -----------------------------------


def _other_generation(self: Masks, vector: Any, document: str, answer: Callable[..., bytes]) -> bytes:
    return answer(replace(self, release_key=b"of another generation of the linkage key"), vector, document)


def _other_version(self: Masks, vector: Any, document: str, answer: Callable[..., bytes]) -> bytes:
    return answer(replace(self, release=f"{self.release}/2"), vector, document)


def _no_zeros(self: Masks, vector: Any, document: str, answer: Callable[..., bytes]) -> bytes:
    return answer(self, vector + 1, document)


@pytest.mark.parametrize("aggregator_checks", [True, False])
@pytest.mark.parametrize("layout", ["vertical", "horizontal"])
@pytest.mark.parametrize("differs", [_other_generation, _other_version, _no_zeros])
async def test_masks_that_do_not_cancel_cost_nobody_anything(
    parties: Parties,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    differs: Callable[..., bytes],
    layout: str,
    aggregator_checks: bool,
) -> None:
    """Owners find it in the round of zeros, also where the aggregator looks away."""
    aggregator, configs = await parties("abc", layout)
    right = Masks.answer

    def answer(self: Masks, vector: Any, document: str) -> bytes:
        return differs(self, vector, document, right) if self.owner == "b" else right(self, vector, document)

    monkeypatch.setattr(Masks, "answer", answer)
    if not aggregator_checks:
        monkeypatch.setattr(sums, "check_sums", lambda *_: None)
        monkeypatch.setattr("common.synthesis.plausible.fault_of_sums", lambda *_: "")
    async with releasing(heard, aggregator, configs, layout=layout):
        small = aggregator_checks or differs is _no_zeros
        said = "masks of the owners do not cancel" if small else "sums of a round are out of bounds"
        await is_refused(aggregator, heard, said, configs)
    assert bool(refusals(configs)) is not aggregator_checks
    assert [len(rounds_of(each)) for each in configs] == [1, 1, 1]


def _other_records(document: RoundDocument, attached: bytes) -> tuple[RoundDocument, bytes]:
    found = Addendum.from_bytes(attached)
    other = replace(found, records={**found.records, "b": found.records["b"] + 1})
    return replace(document, addendum_digest=other.digest), other.to_bytes()


def _other_proofs(document: RoundDocument, attached: bytes) -> tuple[RoundDocument, bytes]:
    found = Addendum.from_bytes(attached)
    other = replace(found, key_proofs=found.key_proofs[::-1])
    return replace(document, addendum_digest=other.digest), other.to_bytes()


def _fewer_keys(document: RoundDocument, attached: bytes) -> tuple[RoundDocument, bytes]:
    return replace(document, keys=document.keys[1:]), attached


def _doubled_key(document: RoundDocument, attached: bytes) -> tuple[RoundDocument, bytes]:
    own, other, last = document.keys
    return replace(document, keys=(own, replace(own, owner=other.owner), last)), attached


def _own_key(document: RoundDocument, attached: bytes) -> tuple[RoundDocument, bytes]:
    own, other, last = document.keys
    return replace(document, keys=(own, replace(other, key=public_key(bytes(32)).hex()), last)), attached


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (_other_records, "the masks of the owners do not cancel"),
        (_other_proofs, "the masks of the owners do not cancel"),
        (_fewer_keys, "the keys for sums are not those of the owners of the plan"),
        (_doubled_key, "comes with the certificate of another party"),
        (_own_key, "the key of owner b for sums is not its own"),
    ],
)
async def test_owners_who_are_shown_different_lists(
    certificates: Path,
    parties: Parties,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[..., tuple[RoundDocument, bytes]],
    said: str,
) -> None:
    """One owner gets other records, proofs, parties or keys than the rest: nobody is charged."""
    aggregator, configs = await parties("abc", "horizontal")
    hub, opened = Signer.load(certificates / "hub.key", certificates / "hub.pem"), Worker._opened

    async def told(self: Any, work: Any, asked: Any) -> Any:
        opening, signature, chain, answers = await opened(self, work, asked)
        document, attached = read_round(opening)
        if self._client._owner == "c" and document.round == 1:
            document, attached = lie(document, attached)
            document = replace(document, attached=digest(attached))
            opening, chain = document.with_attached(attached), hub.chain_pem.encode()
            signature = hub.sign(Domain.ROUND, document.to_bytes())
        return opening, signature, chain, answers

    def believed(self: Any, *stated: Any) -> str:
        # It knows that one owner signs for what it was shown alone.
        return hub.chain_pem if stated[:2] == ("c", Domain.FRAGMENT) else checked(self, *stated)

    checked = Statements.check
    monkeypatch.setattr(Statements, "check", believed)
    monkeypatch.setattr(Worker, "_opened", told)
    async with releasing(heard, aggregator, configs, layout="horizontal"):
        await is_refused(aggregator, heard, said, configs)
    assert all(len(rounds_of(each)) <= 1 for each in configs)


# --- a holder that encrypts more than its rows ------------------------------------------------------------


@pytest.mark.parametrize("blinded", [True, False])
@pytest.mark.parametrize("where", ["above", "below"])
async def test_bits_of_persons_beside_the_counters(
    parties: Parties,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    blinded: bool,
) -> None:
    """A bit for each person comes back as a fair one; without the adder's random numbers it would be read."""
    aggregator, configs = await parties("ab", "vertical")
    numbers, addend, read = Packing.numbers, Packing.addend, Packing.read
    found: list[list[int]] = []

    def first(packing: Packing, number: int) -> int:
        return packing.span(number)[1] if where == "above" else 0

    def weighted(self: Packing, bins: Any) -> Any:
        rows, n = numbers(self, bins), self.n_numbers
        return [each + (1 << (first(self, i % n) + i // n)) for i, each in enumerate(rows)]

    def added(self: Packing, number: int, noise: Any, modulus: Any, bits: Any) -> Any:
        low, high = self.span(number)
        made = addend(self, number, noise, modulus, bits)
        if blinded:
            return made
        return (made % (modulus // (modulus >> high)) >> low) << low

    def seen(self: Packing, number: int, value: Any, modulus: Any) -> Any:
        start = first(self, number)
        found.append([int(value >> (start + person)) & 1 for person in range(RECORDS)])
        return read(self, number, value, modulus)

    for name, function in (("numbers", weighted), ("addend", added), ("read", seen)):
        monkeypatch.setattr(Packing, name, function)
    async with releasing(heard, aggregator, configs, layout="vertical"):
        assert await ended(aggregator, seconds=120) == "published", (await aggregator.show()).error
    bits = np.array(found)
    # Every person is in one bin of each attribute of the adder.
    of_persons = set(bits.sum(axis=0).tolist())
    assert (len(of_persons) == 1) is not blinded
    if blinded:
        assert abs(bits.mean() - 0.5) < 6 * 0.5 / bits.size**0.5


# --- what `verify` finds ----------------------------------------------------------------------------------


Manifest = dict[str, Any]


def _restated(part_: Manifest, document: bytes, domain: Domain, signer: Signer) -> None:
    """Put another document into a part of a manifest, signed by somebody."""
    part_.update(
        document=json.loads(document), digest=digest(document), certificates=signer.chain_pem,
        signature=b64encode(signer.sign(domain, document)).decode(),
    )  # fmt: skip


def _statement(manifest: Manifest, owner: int, **changes: Any) -> bytes:
    stated = FragmentStatement.from_bytes(canonical(manifest["owners"][owner]["fragment"]["document"]))
    return replace(stated, **changes).to_bytes()


def _closing_of_the_round_before(manifest: Manifest, signers: Any) -> None:
    before = manifest["rounds"][-2]["digest"]
    stated = _statement(manifest, 1, addendum_digest=before)
    _restated(manifest["owners"][1]["fragment"], stated, Domain.FRAGMENT, signers("owner-b"))


def _signed_by_another_owner(manifest: Manifest, signers: Any) -> None:
    _restated(manifest["owners"][1]["fragment"], _statement(manifest, 1), Domain.FRAGMENT, signers("owner-a"))


def _statement_of_another_owner(manifest: Manifest, _: Any) -> None:
    manifest["owners"][1]["fragment"] = manifest["owners"][0]["fragment"]


def _other_sums(manifest: Manifest, signers: Any) -> None:
    last = RoundDocument.from_bytes(canonical(manifest["rounds"][-1]["document"]))
    _restated(
        manifest["rounds"][-1], replace(last, attached="ab" * 32).to_bytes(), Domain.ROUND, signers("hub")
    )


def _no_last_document(manifest: Manifest, _: Any) -> None:
    del manifest["rounds"][-1]


def _no_zeros_counted(manifest: Manifest, _: Any) -> None:
    del manifest["rounds"][1]


def _other_sums_signed_by_all(manifest: Manifest, signers: Any) -> None:
    _other_sums(manifest, signers)
    for number, name in enumerate(("owner-a", "owner-b")):
        stated = _statement(manifest, number, addendum_digest=manifest["rounds"][-1]["digest"])
        _restated(manifest["owners"][number]["fragment"], stated, Domain.FRAGMENT, signers(name))


async def test_what_was_not_signed_by_all_is_no_release(
    certificates: Path, parties: Parties, heard: Heard
) -> None:
    """A folder whose sums some owner did not sign, or whose counts are others than all signed, is refused."""
    aggregator, configs = await parties("ab", "vertical")
    async with releasing(heard, aggregator, configs, layout="vertical", formats=["csv"]):
        assert await ended(aggregator, seconds=120) == "published", (await aggregator.show()).error
    folder, ca = aggregator.config.aggregator.release_dir / "r1", certificates / "ca.pem"
    verify_release(folder, ca)
    right = (folder / "manifest.json").read_bytes()
    for lie, said in (
        (_closing_of_the_round_before, "statement of b does not hold: it is for another plan"),
        (_signed_by_another_owner, "statement of b does not hold: the certificate is "),
        (_statement_of_another_owner, "statement of b does not hold: "),
        (_other_sums, "statement of a does not hold: it is for another plan"),
        (_no_last_document, "statement of a does not hold: it is for another plan"),
        (_no_zeros_counted, "round 2 does not follow the one before"),
        (_other_sums_signed_by_all, "what the aggregator signed is not what counts.parquet has"),
    ):
        manifest = json.loads(right)
        lie(manifest, lambda name: Signer.load(certificates / f"{name}.key", certificates / f"{name}.pem"))
        (folder / "manifest.json").write_text(json.dumps(manifest))
        relist(folder, certificates)
        with pytest.raises(IntegrityError, match=said):
            verify_release(folder, ca)


# --- an aggregator that runs the certificate authority ----------------------------------------------------


@pytest.fixture
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of an aggregator and owners, and of an owner b with a key that the aggregator made."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    for each in ("hub", "other"):
        ca.aggregator(each, ["localhost", "127.0.0.1"]).write(folder, each)
    for each in "abc":
        ca.owner(each).write(folder, f"owner-{each}")
    ca.owner("b").write(folder, "false-b")
    return folder


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_answers_in_the_name_of_an_owner(
    certificates: Path,
    parties: Parties,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Under another key than the one that proved the linkage key, an answer is nobody's."""
    aggregator, configs = await parties("ab", "horizontal")
    false = Signer.load(certificates / "false-b.key", certificates / "false-b.pem")
    add_up, opened, over = rounds._add_up, Worker._opened, asyncio.Event()

    def invented(release: Any, intake: Any) -> Shown:
        total, shown = add_up(release, intake)
        if release.round != number:
            return total, shown
        signed, (own, other) = _read(shown)
        # Zeros follow from the answer of a: the real b only has to have linked.
        forged, more = (other, 0) if number == 1 else (_raised(other), 1)
        total = total + more * (np.arange(total.size) == 0)
        size = NUMBER_BYTES * sum(each.numbers for each in release.rounds)
        stated = FragmentStatement(
            release.id, "b", release.the_plan().digest, digest(release.rounds[-1].document.encode()),
            chained(signed.answers[1].before, forged), size, release.addendum.records["b"],
        )  # fmt: skip
        by = false.sign(Domain.FRAGMENT, stated.to_bytes()).hex(), false.chain_pem
        signed = SignedAnswers((signed.answers[0], SignedAnswer("b", signed.answers[1].before, *by)))
        shown = _file(signed, [own, forged])
        write_atomic(intake.answers(release.id, release.round), shown)
        return total, shown

    async def late(self: Any, *arguments: Any) -> Any:
        found = await opened(self, *arguments)
        if self._client._owner == "b" and read_round(found[0])[0].round == number + 1:
            with suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await over.wait()
        return found

    answer = AggregatorClient.answer

    async def answered(self: Any, request: Any) -> None:
        await answer(self, request)
        if self._owner == "a" and (request.measured.round > number or request.HasField("failure")):
            over.set()

    monkeypatch.setattr(AggregatorClient, "answer", answered)
    monkeypatch.setattr(rounds, "_add_up", invented)
    monkeypatch.setattr(Worker, "_opened", late)
    async with releasing(heard, aggregator, configs, layout="horizontal"):
        assert await ended(aggregator, seconds=120) == "failed"
        await heard.wait_for("concluded", times=2)
    assert refusals(configs[:1])
    assert len(rounds_of(configs[0])) == number
    assert spent(configs[0]) == int(number > 1)


# --- charges ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("both_at", ["hub", "two aggregators"])
async def test_one_budget_pays_for_both_products(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, both_at: str
) -> None:
    """A synthetic and a masked release at once, also of one name at two aggregators: one of them is paid."""
    hub = await launch()
    other = hub if both_at == "hub" else await launch("other")
    known = (KnownAggregator("hub", hub.daemon.address), KnownAggregator("other", other.daemon.address))
    configs = [
        replace(cohort(tmp_path, each, "", certificates), aggregators=known[: 1 + (other is not hub)])
        for each in "ab"
    ]
    share_key(configs)
    second = "r2" if other is hub else "r1"
    async with running(*configs):
        await heard.wait_for("connected", times=2 * len(configs[0].aggregators))
        await begin(hub, "a", "b", epsilon="6")
        await other.start("a", "b", epsilon="6", release=second)
        ends = {await ended(hub, "r1", seconds=120), await ended(other, second, seconds=120)}
        await heard.wait_for("concluded", times=2)
    assert "published" in ends or ends == {"refused"}
    assert len(ends) == 2 or ends == {"refused"}
    charges = [spent(each) for each in configs]
    assert charges == [6 if "published" in ends else 0] * 2
