"""Runs one after another on real processes; a cluster serves several, and is kept once one has failed."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from common.errors import TesseraError
from owner_node.config.engine import EngineKind
from tests.chaos.barrier import Watch
from tests.chaos.invariants import problems
from tests.chaos.parties import aggregator_state, set_engines
from tests.chaos.play import Course, Player
from tests.chaos.schedule import Schedule, draw
from tests.chaos.surroundings import Surroundings, surroundings
from tests.needs import PROBES

RUNS_PER_CLUSTER = 16
"""Few enough for the linkings without a charge: after ten of them an owner links nothing more."""


@dataclass(slots=True)
class Result:
    """What came of many runs."""

    runs: int = 0
    """How many were made."""
    ends: Counter[str] = field(default_factory=Counter)
    """How the releases ended."""
    died_in: Counter[str] = field(default_factory=Counter)
    """Which processes were killed in which state."""
    failed: Counter[str] = field(default_factory=Counter)
    """What failed under which party."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What could not be done on this machine, and why."""
    failures: dict[int, list[str]] = field(default_factory=dict)
    """What did not hold, by seed."""


def run(around: Surroundings, drawn: Schedule, result: Result) -> list[str]:
    """Make one run; returns what did not hold.

    Args:
        around: The processes, all running; they run again afterwards.
        drawn: What happens.
        result: Is added to.
    """
    seed = drawn.seed
    cluster, schedule, release = around.cluster, _possible(drawn, result), f"chaos-{seed}"
    logs = {path: path.stat().st_size for path in (cluster.folder / "logs").iterdir()}
    set_engines(cluster, schedule)
    player = Player(around, schedule, release)
    try:
        with Watch(aggregator_state(cluster) / "incoming" / release) as watch:
            player.play()
        found = problems(cluster, schedule, player.course, watch, logs)
    except (TesseraError, OSError) as error:
        # The next run gets a cluster of its own.
        found = [f"could not be carried out or looked at: {type(error).__name__}: {error}"]
    course = player.course
    result.runs += 1
    result.ends[_end(course)] += 1
    result.died_in.update(course.died_in)
    result.failed.update(course.failed)
    result.skipped.update(course.skipped)
    if found:
        result.failures[seed] = found
        told = {"seed": seed, "schedule": asdict(schedule), "died_in": course.died_in}
        told |= {"failed": course.failed, "problems": found}
        around.kept = True
        (cluster.folder / "failed.json").write_text(json.dumps(told, indent=2))
    return found


def campaign(
    folder: Path,
    seed: int,
    runs: int,
    say: Callable[[str], object],
    result: Result,
) -> None:
    """Make runs with the seeds from `seed` on.

    Args:
        folder: Where clusters get their folders; those in which a run failed stay.
        seed: The first seed.
        runs: How many.
        say: Is told about every run.
        result: Is added to.
    """
    seeds = iter(range(seed, seed + runs))
    following, found = next(seeds, None), list[str]()
    while following is not None:
        place = folder / f"from-{following}"
        with ExitStack() as stack:
            around = stack.enter_context(surroundings(place))
            for _ in range(RUNS_PER_CLUSTER):
                found = run(around, draw(following), result)
                say(_line(following, result, found, place))
                following = next(seeds, None)
                if found or following is None:
                    break
        if not found:
            shutil.rmtree(place)


def _possible(schedule: Schedule, result: Result) -> Schedule:
    """Return a schedule with engines that this machine has: disk stands in for Spark."""
    lacking = PROBES["spark"]() if EngineKind.SPARK in schedule.engines.values() else None
    if lacking is None:
        return schedule
    result.skipped[f"spark: {lacking}"] += 1
    others = {EngineKind.SPARK: EngineKind.DISK}
    return replace(schedule, engines={o: others.get(each, each) for o, each in schedule.engines.items()})


def _end(course: Course) -> str:
    release = course.release
    if release is None:
        return "never stored"
    return f"{release.state} ({release.ending.code})" if release.ending else str(release.state)


def _line(seed: int, result: Result, found: list[str], place: Path) -> str:
    if not found:
        return f"seed {seed}: holds ({result.runs} runs)"
    told = "\n".join(f"    {each}" for each in found)
    return f"seed {seed}: DOES NOT HOLD, see {place}\n{told}\n    again: make chaos SEED={seed} RUNS=1"
