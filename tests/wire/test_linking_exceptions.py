"""Selections over real TLS: each owner gets its own, when it is due, the same again; lies about tokens."""

import asyncio
import hashlib
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np

from aggregator.drive.stages import signed_addendum
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.releases import by_token
from tests.fakes.scripted_owner import ScriptedOwner, all_until
from tests.wire.test_hostile_owner import ended
from tests.wire.test_operations import refused
from tests.wire.test_owner_daemon import ended as over


async def started(
    aggregator: Any, parts: dict[str, tuple[list[str], np.ndarray]], **options: Any
) -> list[Any]:
    """Return connected owners of a release that has been started."""
    owners = [aggregator.owner(name, names, tokens) for name, (names, tokens) in parts.items()]
    for owner in owners:
        await owner.connect()
    await aggregator.start(*parts, **options)
    return owners


def selected(owner: ScriptedOwner, bits: bytes) -> set[bytes]:
    """Return the tokens that a selection selects."""
    chosen = np.unpackbits(np.frombuffer(bits, np.uint8))[: len(owner.tokens)].astype(np.bool_)
    return {each.tobytes() for each in owner.tokens[by_token(owner.tokens)][chosen]}


async def test_every_owner_gets_its_own_selection(launch, records) -> None:
    """It selects the common records, in the order of the owner's tokens, and is gone once all have sealed."""
    aggregator = await launch()
    parts = {"a": (["age"], records[:40]), "b": (["income"], records[20:])}
    owners = await started(aggregator, parts, layout="vertical", on_mismatch="intersect", min_common="20")
    await all_until(owners, "link")
    early = wire.SelectRequest(release="r1", plan_digest=owners[0].plan.digest)
    assert (await refused(owners[0].calls.Select(early).read())).code == "protocol"
    works = await all_until(owners, "mask")
    common = {each.tobytes() for each in records[20:40]}
    for owner, work in zip(owners, works, strict=True):
        bits = await owner.selection(work)
        assert bits == await owner.selection(work)
        addendum = owner.addendum(work)
        assert addendum.selections[owner.owner] == hashlib.sha256(bits).hexdigest()
        assert (addendum.linking, addendum.common, addendum.records) == (
            "intersected",
            20,
            {"a": 20, "b": 20},
        )
        assert selected(owner, bits) == common
    stranger = aggregator.owner("stranger", ["age"], records[:5])
    await stranger.connect()
    assert (await refused(stranger.calls.Select(early).read())).code == "not_connected"
    other = wire.SelectRequest(release="r1", plan_digest="ab" * 32)
    assert (await refused(owners[0].calls.Select(other).read())).code == "conflict"
    assert await ended(owners) == ["published", "published"]
    assert (await refused(owners[0].calls.Select(early).read())).code == "protocol"


async def test_a_release_that_goes_on_keeps_selections(launch, pass_deadline, records) -> None:
    """What one owner sealed is not lost if the other had not masked yet when the deadline passed."""
    aggregator = await launch()
    parts = {"a": (["age"], records[:40]), "b": (["income"], records[20:])}
    options = {"layout": "vertical", "on_mismatch": "intersect"}
    owners = await started(aggregator, parts, **options)
    sealed, late = await all_until(owners, "mask")
    before = await owners[1].selection(late)
    await owners[0].answer(sealed)
    pass_deadline()
    assert await over(aggregator) == "expired"
    assert (await aggregator.show()).resumable
    await aggregator.start(*parts, **options)
    assert await owners[1].selection(await owners[1].until("mask")) == before
    assert await ended(owners) == ["published", "published"]


async def test_a_release_that_goes_on_has_the_time_that_is_configured_then(
    launch, pass_deadline, records
) -> None:
    """A deadline that was too short is no end: the operator sets a longer one, and goes on."""
    aggregator = await launch()
    parts = {"a": (["age"], records[:30]), "b": (["age"], records[30:])}
    await all_until(await started(aggregator, parts), "mask")
    pass_deadline()
    assert await over(aggregator) == "expired"
    await aggregator.daemon.stop()
    again = await launch(mask=timedelta(days=1))
    view = await again.start(*parts)
    assert (view.state, view.deadline - time.time() > 80_000) == ("masking", True)
    await again.daemon.stop()
    restarted = await launch(mask=timedelta(seconds=1))
    assert (await restarted.show()).deadline == view.deadline


async def test_selections_go_when_a_release_cannot_go_on(launch, records) -> None:
    """An owner that was told of the end has returned its reservation and masks nothing any more."""
    aggregator = await launch()
    parts = {"a": (["age"], records[:40]), "b": (["income"], records[20:])}
    owners = await started(aggregator, parts, layout="vertical", on_mismatch="intersect")
    sealed, _ = await all_until(owners, "mask")
    held = aggregator.config.aggregator.state_dir / "incoming"
    await owners[0].answer(sealed)
    failure = wire.Failure(code="internal", message="an internal fault at the owner")
    request = wire.AnswerRequest(release="r1", plan_digest=sealed.plan_digest, failure=failure)
    await owners[0].calls.Answer(request)
    assert (await aggregator.show()).resumable
    assert {path.suffix for path in held.glob("r1/*")} == {".selection"}
    await owners[1].answer(await owners[1].until("conclude"))
    assert not (await aggregator.show()).resumable
    assert not list(held.iterdir())


async def test_a_restart_keeps_selections(launch, records) -> None:
    """Whoever has to mask after the aggregator came back gets the bits that were signed."""
    aggregator = await launch()
    parts = {"a": (["age"], records[:40]), "b": (["income"], records[20:])}
    owners = await started(aggregator, parts, layout="vertical", on_mismatch="intersect")
    works = await all_until(owners, "mask")
    before = [await owner.selection(work) for owner, work in zip(owners, works, strict=True)]
    await aggregator.daemon.stop()
    again = await launch()
    back = [again.owner(name, names, tokens) for name, (names, tokens) in parts.items()]
    for owner, known in zip(back, owners, strict=True):
        owner.plan, owner.sequence = known.plan, known.sequence
        await owner.connect()
    works = await all_until(back, "mask")
    assert [await owner.selection(work) for owner, work in zip(back, works, strict=True)] == before
    assert await ended(back) == ["published", "published"]


async def test_nothing_is_selected_where_all_is_masked(launch, records) -> None:
    """Groups that are equal are masked as they are, under a plan that would have intersected them."""
    aggregator = await launch()
    parts = {"a": (["age"], records), "b": (["income"], records)}
    owners = await started(aggregator, parts, layout="vertical", on_mismatch="intersect")
    works = await all_until(owners, "mask")
    assert owners[0].addendum(works[0]).linking == "equal"
    request = wire.SelectRequest(release="r1", plan_digest=works[0].plan_digest)
    assert (await refused(owners[0].calls.Select(request).read())).code == "protocol"
    assert await ended(owners) == ["published", "published"]


async def test_the_list_of_another_owner(launch, records) -> None:
    """An owner that sends a co-owner's persons is found to share them; its group's lack is found, too."""
    aggregator = await launch()
    grid = [control.OwnerGroup(owners=owners) for owners in (["a", "b"], ["c"])]
    parts = {
        "a": (["age"], records[:30]),
        "b": (["age"], records[:30]),
        "c": (["income"], records),
    }
    owners = await started(aggregator, parts, layout="mixed", groups=grid)
    assert await ended(owners) == ["conflict"] * 3
    message = (await aggregator.show()).error.message
    assert "a and b share 30 persons" in message
    assert "a and b lack 30 records" in message


async def test_more_tokens_than_records_were_described(launch, records) -> None:
    """A list that is longer than a joint bound allows is refused before any of it is kept."""
    aggregator = await launch()
    parts = {"a": (["age"], records[:10]), "b": (["age"], records[20:30])}
    owners = await started(aggregator, parts, mechanism="idp-cbls")
    works = await all_until(owners, "link")
    blob = records[by_token(records)].tobytes()
    key = owners[0].key(works[0], wire.BLOB_KIND_TOKENS, blob)
    assert (await refused(owners[0].calls.UploadState(wire.UploadStateRequest(blob=key)))).code == "protocol"
    await asyncio.gather(*(owner.answer(work) for owner, work in zip(owners, works, strict=True)))
    assert await ended(owners) == ["published", "published"]


async def test_releases_are_linked_one_at_a_time(launch, records, monkeypatch) -> None:
    """Each may take all the memory that is allowed, so the second waits until the first is linked."""
    both, together = threading.Barrier(2), []

    def linked(*arguments: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
            together.append(arguments[0].id)
        return signed_addendum(*arguments)

    monkeypatch.setattr("aggregator.drive.conductor.signed_addendum", linked)
    aggregator = await launch()
    owners = []
    for release, names in (("r1", ("a", "b")), ("r2", ("c", "stranger"))):
        halves = zip(names, (records[:30], records[30:]), strict=True)
        parts = {name: (["age"], half) for name, half in halves}
        owners += await started(aggregator, parts, release=release)
    assert await ended(owners) == ["published"] * 4
    assert together == []
