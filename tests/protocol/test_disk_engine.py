"""An owner node whose records are pinned in scratch: from consent to the sealed fragment, and cancelled."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from common.canonical import digest
from common.errors import (
    CancelledError,
    ConfigurationError,
    DataChangedError,
    DataError,
    InternalError,
    TesseraError,
    UsageError,
)
from common.model.fragment import Addendum
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, Schema
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from common.progress import Progress, StepStoppedError
from common.trust.identity import Party, PartyKind
from common.wire.decoding import decode
from owner_node.config import PolicyConfig
from owner_node.config.engine import EngineKind, OwnerEngineSection
from owner_node.connection.worker import PASSING
from owner_node.state.answers import SpentError
from owner_node.state.session import SessionState
from tests.fakes.offering import DOMAIN, N_RECORDS, Offering

SECTION = OwnerEngineSection(memory_limit=256 * 10**6, threads=2, kind=EngineKind.DISK)


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node that pins its records in scratch, and its aggregator."""
    made = Offering(tmp_path, PolicyConfig(allow_intersect=True))
    made.config = replace(made.config, engine=SECTION)
    made.restart()
    yield made
    made.records.db.close()


def agreed(offering: Offering, layout: str, release: str = "r1", **bounds: Any) -> Plan:
    """Bring a release of owners a and b to its consent; in the vertical layout b has another attribute."""
    own = Schema.from_document(json.loads(offering.node.invitations.describe(release, "cohort")))
    other = replace(own, attributes=(Attribute("ward", AttributeType.INTEGER, 0, 9),))
    groups: list[tuple[str, ...]] = [("a", "b")] if layout == "horizontal" else [("a",), ("b",)]
    request = parse_arguments(
        release=release, dataset="cohort", layout=layout, groups=groups, k="5", **{"epsilon": "1"} | bounds
    )
    plan = make_plan(
        request, {"a": own, "b": own if layout == "horizontal" else other},
        aggregator=Party(PartyKind.AGGREGATOR, "hub", DOMAIN).uri, created="2026-01-01T00:00:00Z",
        version="0.1.0",
    )  # fmt: skip
    assert offering.node.invitations.consent(release, plan.digest, offering.offer(plan)) is not None
    return plan


def scratch(offering: Offering) -> list[Path]:
    """Return what lies in scratch."""
    folder = offering.config.workspace.scratch
    return list(folder.iterdir()) if folder.exists() else []


def disjoint(plan: Plan) -> Addendum:
    """Return that a and b share nobody."""
    return Addendum("r1", plan.digest, "disjoint", dict.fromkeys(("a", "b"), N_RECORDS))


def test_common_records_are_masked_from_scratch(offering: Offering) -> None:
    """Tokens in order, the selected records alone, nothing left in scratch once the fragment is sealed."""
    plan = agreed(offering, "vertical", on_mismatch="intersect")
    linked = offering.node.production.link("r1", plan.digest)
    assert isinstance(linked.tokens, Path)
    tokens = np.frombuffer(linked.tokens.read_bytes(), dtype="S16")
    assert tokens.size == N_RECORDS == linked.n_records
    assert np.all(tokens[1:] > tokens[:-1])
    chosen = np.arange(N_RECORDS) % 3 != 0
    bits = np.packbits(chosen).tobytes()
    kept = int(chosen.sum())
    addendum = Addendum(
        "r1", plan.digest, "intersected", dict.fromkeys(("a", "b"), kept), common=kept,
        selections=dict.fromkeys(("a", "b"), digest(bits)),
    )  # fmt: skip
    sealed = offering.node.production.mask("r1", plan.digest, *offering.signed(addendum), b"", bits)
    path = offering.node.production.fragment("r1", plan.digest).path
    table = decode(path, plan, plan.assignment_of("a"), kept)
    found = np.array([each.as_py() for each in table.column("token")], dtype="S16")
    assert sealed.n_records == kept
    assert np.array_equal(found, tokens[chosen])
    assert not scratch(offering)


def test_every_step_ends_where_it_said_it_would(offering: Offering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate of what is left counts all that a step does, and nothing else."""
    ended: list[tuple[str, float]] = []

    def noted(self: Progress, what: str, total: float = 0.0) -> None:
        if self.what:
            ended.append((self.what, self.done / self.total))
        begin(self, what, total)

    begin = Progress.begin
    monkeypatch.setattr(Progress, "begin", noted)
    progress = offering.node.progress("r1")
    plan = agreed(offering, "vertical", on_mismatch="intersect", rank_noise=["0.1"])
    offering.node.production.link("r1", plan.digest)
    chosen = np.arange(N_RECORDS) % 3 != 0
    kept, bits = int(chosen.sum()), np.packbits(chosen).tobytes()
    addendum = Addendum(
        "r1", plan.digest, "intersected", dict.fromkeys(("a", "b"), kept), common=kept,
        selections=dict.fromkeys(("a", "b"), digest(bits)),
    )  # fmt: skip
    offering.node.production.mask("r1", plan.digest, *offering.signed(addendum), b"", bits)
    progress.end()
    steps = ["counting records", "loading", "pinning", "selecting records", "masking", "sealing"]
    assert [what for what, _ in ended] == steps
    # The number of lines of a CSV file is guessed, and a short column of identifiers is sampled as a whole.
    assert dict(ended) == {what: pytest.approx(1, rel=0.15) for what, _ in ended}


def test_a_cancelled_release_leaves_nothing_in_scratch(offering: Offering) -> None:
    """The reservation is returned, and the records go."""
    plan = agreed(offering, "horizontal")
    offering.node.production.link("r1", plan.digest)
    assert scratch(offering)
    offering.node.close("r1", "cancelled", "", "")
    assert not scratch(offering)


def test_cancelling_ends_a_query_that_runs(offering: Offering, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes hours does not keep a cancelled release from its end, nor original data in scratch."""
    begun = Event()

    def endless(_: object) -> Iterator[Any]:
        while True:
            begun.set()
            yield 0, np.zeros(1000, dtype=np.int64)

    plan = agreed(offering, "horizontal")
    offering.node.production.link("r1", plan.digest)
    monkeypatch.setattr("owner_node.engines.streamed.numbered", endless)
    with ThreadPoolExecutor(1) as thread:
        masking = thread.submit(
            offering.node.production.mask, "r1", plan.digest, *offering.signed(disjoint(plan))
        )
        assert begun.wait(30)
        offering.node.interrupt("r1")
        with pytest.raises((StepStoppedError, CancelledError, OSError)):
            masking.result(30)
    offering.node.close("r1", "cancelled", "", "")
    assert offering.kinds() == ["reserve", "spend"]
    assert not scratch(offering)


def test_a_source_that_changes_while_it_is_pinned(offering: Offering) -> None:
    """What was linked is masked, whatever becomes of the source: masking does not read it."""
    plan = agreed(offering, "horizontal")
    offering.node.production.link("r1", plan.digest)
    offering.source.unlink()
    sealed = offering.node.production.mask("r1", plan.digest, *offering.signed(disjoint(plan)))
    assert sealed.n_records == N_RECORDS


def test_a_source_that_changes_stops_before_anything_is_spent(offering: Offering) -> None:
    """After a restart the source is read again; another content is noticed, and its copy is removed."""
    plan = agreed(offering, "horizontal")
    offering.node.production.link("r1", plan.digest)
    offering.restart()
    offering.config.workspace.clear()
    offering.write_source(seed=2)
    with pytest.raises(DataChangedError):
        offering.node.production.mask("r1", plan.digest, *offering.signed(disjoint(plan)))
    assert offering.kinds() == ["reserve"]
    assert not scratch(offering)


def test_a_process_that_dies_while_it_masks_goes_on_with_one_charge(
    offering: Offering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise is drawn anew from a new copy of the source; the charge stays single."""
    plan, message = spent(offering, monkeypatch)
    sealed = offering.node.production.mask("r1", plan.digest, *message)
    assert sealed.n_records == N_RECORDS
    assert offering.kinds() == ["reserve", "spend"]
    assert not scratch(offering)


def test_a_scratch_that_is_not_mounted_after_the_spend(
    offering: Offering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty mount point is waited for: the session keeps its charge, and is sealed under it."""
    plan, message = spent(offering, monkeypatch)
    folder = offering.config.workspace.scratch
    folder.chmod(0o755)
    with pytest.raises(PASSING, match="open to other users"):
        offering.node.production.mask("r1", plan.digest, *message)
    assert state(offering) is SessionState.SPENT
    folder.chmod(0o700)
    assert offering.node.production.mask("r1", plan.digest, *message).n_records == N_RECORDS
    assert offering.kinds() == ["reserve", "spend"]


def test_a_source_that_is_away_after_the_spend(offering: Offering, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that cannot be read now; a plan that the memory no longer allows is the same case."""
    plan, message = spent(offering, monkeypatch)
    away = offering.source.rename(offering.source.with_suffix(".away"))
    with pytest.raises(DataError) as missing:
        offering.node.production.mask("r1", plan.digest, *message)
    with pytest.raises(SpentError):
        offering.node.fail("r1", missing.value)
    away.rename(offering.source)
    with monkeypatch.context() as smaller:
        smaller.setattr("owner_node.engines.streamed._statistics_bytes", lambda *_: 10**12)
        with pytest.raises(DataError, match="memory") as narrow:
            offering.node.production.mask("r1", plan.digest, *message)
        with pytest.raises(SpentError):
            offering.node.fail("r1", narrow.value)
    assert state(offering) is SessionState.SPENT
    assert offering.node.production.mask("r1", plan.digest, *message).n_records == N_RECORDS
    assert offering.kinds() == ["reserve", "spend"]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (ConfigurationError("Spark cannot be started"), True),
        (UsageError("there is no such data set"), True),
        (InternalError("an internal fault, see the log"), True),
        (DataError("there is no such file"), True),
        (DataChangedError("the source changed"), False),
    ],
    ids=lambda case: getattr(case, "code", case),
)
def test_what_ends_a_release_that_is_spent(
    offering: Offering, monkeypatch: pytest.MonkeyPatch, error: TesseraError, waits: bool
) -> None:
    """Only other data do; before the spend everything does, and the charge is returned."""
    agreed(offering, "horizontal", release="r0")
    assert offering.node.fail("r0", error).code
    assert offering.kinds() == ["reserve", "return"]
    spent(offering, monkeypatch)
    with pytest.raises(SpentError) if waits else nullcontext():
        offering.node.fail("r1", error)
    assert state(offering) is (SessionState.SPENT if waits else SessionState.ENDED)


def spent(offering: Offering, patch: pytest.MonkeyPatch) -> tuple[Plan, tuple[bytes, bytes]]:
    """Let a process die between spending and sealing, and start another; return the plan and the addendum."""
    plan = agreed(offering, "horizontal")
    offering.node.production.link("r1", plan.digest)
    message = offering.signed(disjoint(plan))
    with patch.context() as broken:
        broken.setattr("owner_node.engines.snapshot.encode_batches", _dies)
        with pytest.raises(KeyboardInterrupt):
            offering.node.production.mask("r1", plan.digest, *message)
    offering.restart()
    offering.config.workspace.clear()
    assert state(offering) is SessionState.SPENT
    return plan, message


def state(offering: Offering) -> SessionState:
    """Return the state of the release."""
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    return session.state


def _dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
