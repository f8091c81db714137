"""What an aggregator does with owners' ledger heads, and what it tells an owner that lost its ledger."""

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest

from common.model.fragment import Consent, FragmentStatement, LedgerHead
from common.model.plan import Plan
from common.trust.identity import load_certificates
from common.trust.signing import Domain, verify
from common.wire.status import from_rpc_error
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import ScriptedOwner, all_until


async def pair(aggregator: Any, records: np.ndarray) -> list[ScriptedOwner]:
    """Return two connected owners in a release that has been started."""
    owners = [
        aggregator.owner(name, ["age"], part) for name, part in (("a", records[:30]), ("b", records[30:]))
    ]
    for each in owners:
        await each.connect()
    await aggregator.start("a", "b")
    return owners


async def consent_of(owners: list[ScriptedOwner], release: str) -> wire.Work:
    """Describe until the first owner is asked to consent to a release; return that work."""
    busy = [wire.WorkKey(release="r1", step=step) for step in ("consent", "link")]
    async with asyncio.timeout(90):
        while True:
            for owner in owners:
                for work in await owner.poll(busy):
                    if work.WhichOneof("step") == "describe":
                        await owner.calls.Answer(owner.describe(work))
                    elif work.release == release and owner is owners[0]:
                        return work


async def test_another_copy_at_work(launch, records):
    """The newer of two heads of one place is refused; operators are told, and the first goes on."""
    hub = await launch()
    a, b = await pair(hub, records)
    work, _ = await all_until([a, b], "consent")
    first = a.consent(work)
    await a.calls.Answer(first)
    kept = first.consented.ledger_head
    await hub.start("a", "b", release="r2")
    other = await consent_of([a, b], "r2")
    copy = a.consent(other)
    forked = LedgerHead("a", kept.sequence, "f" * 64)
    signature = a.signer.sign(Domain.LEDGER_HEAD, forked.to_bytes())
    copy.consented.ledger_head.MergeFrom(
        wire.LedgerHead(sequence=forked.sequence, hash=forked.hash, signature=signature)
    )
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await a.calls.Answer(copy)
        error = from_rpc_error(caught.value)
        assert error.code == "integrity"
        assert "another copy of this state directory" in error.message
    told = await hub.calls.ListActions(control.ListActionsRequest())
    (fork,) = (each for each in told.actions if each.action == "fork")
    assert (fork.release, "state directory of a" in fork.outcome) == ("r2", True)
    assert (await a.connect()).newest_ledger_head.hash == kept.hash
    await a.calls.Answer(a.consent(other))
    assert (await hub.show("r2")).owners[0].state == "reserved"


async def test_repeated_answers_store_no_heads(launch, records):
    """One answer brings one head: an owner that repeats itself with others does not fill the database."""
    hub = await launch()
    a, b = await pair(hub, records)
    work, _ = await all_until([a, b], "consent")
    for _ in range(5):
        await a.calls.Answer(a.consent(work))
    assert a.sequence == 5
    heads, _ = [item async for item in a.calls.Recall(wire.RecallRequest())]
    assert [each.sequence for each in heads.heads] == [1]


@pytest.mark.parametrize("sequence", [2**62, 2**63, 2**64 - 1])
async def test_no_ledger_has_so_many_entries(launch, records, sequence):
    """A place that no database holds is the owner's fault, and not a fault of the aggregator."""
    hub = await launch()
    a, b = await pair(hub, records)
    work, _ = await all_until([a, b], "consent")
    consent = a.consent(work)
    consent.consented.ledger_head.sequence = sequence
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await a.calls.Answer(consent)
    assert from_rpc_error(caught.value).code == "protocol"


async def test_a_poll_shows_the_newest_head(launch, records):
    """An owner hears with its work what it signed last, so that a copy finds out before it does anything."""
    hub = await launch()
    a, b = await pair(hub, records)
    work, _ = await all_until([a, b], "consent")
    assert not (await a.calls.Poll(wire.PollRequest())).HasField("newest_ledger_head")
    consent = a.consent(work)
    await a.calls.Answer(consent)
    await b.calls.Answer(b.consent(work))
    response = await a.calls.Poll(wire.PollRequest())
    assert [each.WhichOneof("step") for each in response.work] == ["link"]
    assert response.newest_ledger_head == consent.consented.ledger_head


async def test_what_an_owner_signed_is_told_again(launch, records):
    """Heads, plan, consent and fragment come back as they were signed, to their owner and to nobody else."""
    hub = await launch()
    owners = await pair(hub, records)
    a = owners[0]
    await asyncio.gather(*(owner.run() for owner in owners))
    heads, told = [item async for item in a.calls.Recall(wire.RecallRequest())]
    assert [each.sequence for each in heads.heads] == [1]
    found = told.release
    plan = Plan.from_bytes(found.plan)
    (certificate,) = load_certificates(found.consent_certificate)[:1]
    consent = Consent("r1", "a", plan.digest, found.key_check, "accept", found.key_generation)
    verify(certificate, Domain.CONSENT, consent.to_bytes(), found.consent_signature)
    verify(certificate, Domain.FRAGMENT, found.fragment, found.fragment_signature)
    assert FragmentStatement.from_bytes(found.fragment).owner == "a"
    assert (found.release, found.masking_asked, found.settled) == ("r1", True, False)
    stranger = hub.owner("stranger", ["age"], records)
    await stranger.connect()
    items = [item async for item in stranger.calls.Recall(wire.RecallRequest())]
    assert [(list(item.heads), item.HasField("release")) for item in items] == [([], False)]


async def test_a_head_that_comes_with_a_poll(launch, records):
    """What an owner charges for itself arrives, too; not from who signs another entry, or did not look."""
    hub = await launch()
    a = hub.owner("a", ["age"], records)
    await a.connect()
    told = a.head(4)
    poll = asyncio.create_task(a.poll_with(told))
    async with asyncio.timeout(90):
        while not (shown := await a.connect()).HasField("newest_ledger_head"):
            continue
    poll.cancel()
    assert shown.newest_ledger_head == told
    forked = LedgerHead("a", 4, "f" * 64)
    copy = wire.LedgerHead(
        sequence=4, hash=forked.hash, certificate=a.signer.chain_pem.encode(),
        signature=a.signer.sign(Domain.LEDGER_HEAD, forked.to_bytes()),
    )  # fmt: skip
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await a.poll_with(copy)
    assert "another copy of this state directory" in from_rpc_error(caught.value).message
    forged = a.head(5)
    forged.hash = "f" * 64
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await a.poll_with(forged)
    assert from_rpc_error(caught.value).code == "integrity"
    assert (await a.connect()).newest_ledger_head == told
    assert (await a.poll_with(a.head(6))).newest_ledger_head == told
    assert (await a.connect()).newest_ledger_head == told
    poll = asyncio.create_task(a.poll_with(a.head(6), shown=told.hash))
    async with asyncio.timeout(90):
        while (await a.connect()).newest_ledger_head.sequence != 6:
            continue
    poll.cancel()
