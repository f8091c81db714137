"""A real aggregator with an owner that lies about match keys: refused, or the release ends and names it."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from common.arrays import sortable
from common.matching.lists import PassList, encode_lists, largest_blob
from common.model.schema import IdentifierRules, MatchPass
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.releases import by_token
from tests.fakes.scripted_owner import ScriptedOwner, all_until
from tests.wire.test_hostile_owner import ended
from tests.wire.test_operations import refused

PASSES = (MatchPass("name", ("name:fold",)), MatchPass("sound", ("name:soundex",)))
N = 30
"""Records of each owner."""


class MatchingOwner(ScriptedOwner):
    """An owner whose persons have a token in each of two passes; handles are places of its records."""

    def __init__(self, owner: str, aggregator: Any, tokens: np.ndarray) -> None:
        super().__init__(owner, aggregator.daemon.address, aggregator.certificates, ["age", "income"], tokens)
        self.schema = replace(self.schema, identifier=IdentifierRules(0, passes=PASSES))
        self.sent = [self._list(tokens), self._list(tokens ^ 0xFF)]

    @staticmethod
    def _list(tokens: np.ndarray) -> PassList:
        order = by_token(tokens)
        return PassList(sortable(tokens[order]), order.astype(np.uint32), len(tokens), 0)

    def token_blob(self) -> bytes:
        """Return the lists of both passes."""
        return encode_lists(self.sent)


@pytest.fixture
async def pair(launch, records) -> AsyncIterator[tuple[Any, list[MatchingOwner]]]:
    """An aggregator and two connected owners of other persons; an honest release works afterwards."""
    aggregator = await launch()
    owners = [
        MatchingOwner(name, aggregator, part) for name, part in zip("ab", np.split(records, 2), strict=True)
    ]
    for owner in owners:
        aggregator.stack.push_async_callback(owner.close)
        await owner.connect()
    honest = [list(owner.sent) for owner in owners]
    yield aggregator, owners
    for owner, sent in zip(owners, honest, strict=True):
        owner.sent = sent
    await aggregator.start("a", "b", release="good")
    assert await ended(owners) == ["published", "published"]


def _first(**changes: Any) -> Callable[[list[PassList]], bytes]:
    """Return what encodes lists of which the first is changed."""
    return lambda sent: encode_lists([replace(sent[0], **changes), sent[1]])


_HANDLES = np.arange(N, dtype=np.uint32)
LISTS: dict[str, tuple[str, Callable[[list[PassList]], bytes]]] = {
    "repeated handles": ("repeat a handle", _first(handles=_HANDLES // 2)),
    "handles of nobody": ("out of range", _first(handles=_HANDLES + 1)),
    "a repeated token": (
        "repeat a token",
        lambda sent: encode_lists(
            [replace(sent[0], tokens=np.sort(np.repeat(sent[0].tokens[:1], N))), sent[1]]
        ),
    ),
    "unsorted tokens": (
        "not sorted",
        lambda sent: encode_lists([replace(sent[0], tokens=sent[0].tokens[::-1]), sent[1]]),
    ),
    "more persons than records": ("impossible", _first(complete=N + 1)),
    "more twins than persons": ("impossible", _first(twice=1)),
    "counts that overflow": ("impossible", lambda sent: b"\xff" * 24 + encode_lists(sent)[24:]),
    "one pass of two": ("", lambda sent: encode_lists(sent[:1])),
    "a pass too many": ("another size", lambda sent: encode_lists([*sent, sent[0]])),
    "half": ("another size", lambda sent: encode_lists(sent)[: largest_blob(2, N) // 2]),
    "no counts": ("cut off", lambda sent: b"\0" * 47),
}


async def test_lists_that_are_none(pair) -> None:
    """Lists that no owner's data can give end the release before anybody spends, and name the owner."""
    aggregator, owners = pair
    a, b = owners
    for number, (complaint, make) in enumerate(LISTS.values()):
        release = f"r{number}"
        await aggregator.start("a", "b", release=release)
        works = await all_until(owners, "link")
        blob = make(a.sent)
        await a.upload(a.key(works[0], wire.BLOB_KIND_TOKENS, blob), blob)
        await a.calls.Answer(_linked(a, works[0], blob))
        await b.answer(works[1])
        assert await ended(owners) == ["failed", "failed"], list(LISTS)[number]
        view = await aggregator.show(release)
        assert view.error.code == "protocol", list(LISTS)[number]
        assert "token lists of a" in view.error.message
        assert complaint in view.error.message, list(LISTS)[number]
        assert not view.linking


async def test_a_flood_is_refused_before_it_is_kept(pair) -> None:
    """More tokens than passes and records allow, more records than were planned for, and no honest size."""
    aggregator, owners = pair
    a, b = owners
    await aggregator.start("a", "b")
    works = await all_until(owners, "link")
    too_long = a.key(works[0], wire.BLOB_KIND_TOKENS, b"flood")
    too_long.size = 1 << 50
    assert (await refused(a.calls.UploadState(wire.UploadStateRequest(blob=too_long)))).code == "protocol"
    blob = a.token_blob()
    await a.upload(a.key(works[0], wire.BLOB_KIND_TOKENS, blob), blob)
    for changes in ({"n_records": 1 << 62}, {"tokens_size": 1 << 62}, {"tokens_size": 0}):
        assert (await refused(a.calls.Answer(_linked(a, works[0], blob, **changes)))).code == "protocol", (
            changes
        )
    await a.calls.Answer(_linked(a, works[0], blob))
    await b.answer(works[1])
    assert await ended(owners) == ["published", "published"]


@pytest.mark.parametrize("swapped", [False, True])
async def test_tokens_of_another_pass_link_nobody(pair, swapped: bool) -> None:
    """An owner that repeats another's tokens shares its persons; in the wrong pass it shares none by them."""
    aggregator, owners = pair
    a, b = owners
    a.sent = [replace(each, handles=_HANDLES) for each in (b.sent[::-1] if swapped else b.sent)]
    await aggregator.start("a", "b")
    state = "published" if swapped else "conflict"
    assert await ended(owners) == [state] * 2
    if not swapped:
        assert f"share {N} persons" in (await aggregator.show()).error.message


async def test_links_that_are_not_good_enough_end_the_release(pair) -> None:
    """Persons of both owners look alike in pairs, so that chance explains the few links: nobody spends."""
    aggregator, owners = pair
    for owner in owners:
        limits = replace(owner.schema.limits, min_match_quality=Decimal("0.9"))
        owner.schema = replace(owner.schema, limits=limits)
        await owner.connect()
    _, b = owners
    shared = b.sent[0].tokens[:4]
    for owner in owners:
        tokens = np.unique(np.concatenate([shared, owner.sent[0].tokens[:12]]))
        first = PassList(tokens, _HANDLES[: len(tokens)], N, (N - len(tokens)) // 2)
        owner.sent = [first, owner.sent[1]]
    await aggregator.start("a", "b", release="poor")
    assert await ended(owners) == ["conflict", "conflict"]
    error = (await aggregator.show("poor")).error
    assert "not good enough" in error.message
    assert json.loads(error.details)["min_match_quality"] == "0.9"
    for owner in owners:
        owner.schema = replace(
            owner.schema, limits=replace(owner.schema.limits, min_match_quality=Decimal(0))
        )
        await owner.connect()


def _linked(
    owner: ScriptedOwner, work: wire.Work, blob: bytes, n_records: int = N, tokens_size: int | None = None
) -> wire.AnswerRequest:
    """Return the statement that a blob has the tokens of so many records."""
    size = len(blob) if tokens_size is None else tokens_size
    name = hashlib.sha256(blob).hexdigest()
    linked = wire.Linked(n_records=n_records, tokens_digest=name, tokens_size=size, key_proof=owner.key_proof)
    return wire.AnswerRequest(release=work.release, plan_digest=work.plan_digest, linked=linked)
