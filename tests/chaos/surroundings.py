"""What the parties of a chaos run stand on, so that it can fail: disks, clocks, a database, the network."""

import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from common.files import write_atomic
from deploy.local_cluster import LocalCluster
from deploy.local_process import PROGRAMS, program_path
from tests.chaos.old_state import copy_state, put_back
from tests.chaos.parties import daemon_of, make_parties
from tests.chaos.relay import Relay
from tests.chaos.schedule import AGGREGATOR, OWNERS, PARTIES, Blow, Deed
from tests.needs import PROBES
from tests.postgres_server import PostgresServer, postgres_server
from tests.small_disk import SmallDisk

_NEEDS = {Deed.FILL: "tmpfs", Deed.STOP: "postgres"}
"""What a deed needs that a machine may lack, by its name in `tests.needs`."""
_MEGABYTES = 48
_CLOCK = "clock"
_PROGRAM = '''\
#!{python}
"""{program} with Spark, and a clock that can be set: `clock` in its folder has the seconds it is wrong by."""

import runpy
import sys
from datetime import timedelta
from pathlib import Path

import common.clock

right, wrong_by = common.clock.utc_now, Path("{clock}").resolve()


def utc_now():
    """Return the system's time, or another."""
    return right() + timedelta(seconds=float(wrong_by.read_text()) if wrong_by.exists() else 0)


common.clock.utc_now = utc_now
# Behind everything else, so that no other package is taken from it.
sys.path += {spark}
sys.argv[0] = "{path}"
runpy.run_path("{path}", run_name="__main__")
'''


def _spark() -> list[str]:
    """Return the folder that Spark is installed in; empty if it is not."""
    found = find_spec("pyspark")
    return [str(Path(found.origin).parents[1])] if found is not None and found.origin else []


def _lacking() -> dict[Deed, str]:
    """Return why deeds cannot be done on this machine, for those that cannot."""
    reasons = {deed: PROBES[thing]() for deed, thing in _NEEDS.items()}
    return {deed: reason for deed, reason in reasons.items() if reason is not None}


@dataclass(slots=True)
class Surroundings:
    """A cluster and what it stands on."""

    cluster: LocalCluster
    """The processes."""
    disks: dict[str, list[SmallDisk]]
    """The disks of each party; none where none can be mounted."""
    server: PostgresServer | None
    """Holds the records of owner a; None: they are in files."""
    relays: dict[str, Relay]
    """What each owner reaches the aggregator through."""
    lacking: dict[Deed, str]
    """Why deeds cannot be done on this machine, for those that cannot."""
    kept: bool = False
    """Whether the folder stays as it is, to be looked at."""
    _faults: dict[tuple[Deed, str], ExitStack] = field(default_factory=dict)

    def fail(self, blow: Blow, party: str) -> None:
        """Fill a party's disks, set its clock, and so on, as long as that has not been done."""
        if (blow.deed, party) in self._faults:
            return
        fault = self._faults[blow.deed, party] = ExitStack()
        if blow.deed is Deed.FILL:
            for disk in self.disks[party]:
                fault.enter_context(disk.full(blow.room))
        elif blow.deed is Deed.SET_CLOCK:
            fault.enter_context(self._clock_off(party, blow.wrong_by))
        elif blow.deed is Deed.CUT:
            fault.callback(self.relays[party].mend)
            self.relays[party].cut()
        elif blow.deed is Deed.PUT_BACK:
            copy_state(self.cluster, party)
            fault.callback(put_back, self.cluster, party)
        elif self.server is not None:
            fault.callback(self.server.start)
            self.server.stop()

    def mend(self, deed: Deed, party: str) -> None:
        """Undo what `fail` did; of a copied state, all that came since."""
        self._faults.pop((deed, party)).close()

    @contextmanager
    def _clock_off(self, party: str, seconds: float) -> Iterator[None]:
        place = daemon_of(self.cluster, party).config.parent / _CLOCK
        write_atomic(place, str(seconds).encode())
        try:
            yield
        finally:
            place.unlink()


@contextmanager
def surroundings(folder: Path) -> Iterator[Surroundings]:
    """Start the parties on disks of their own, with clocks of their own, and a database where there is one.

    Args:
        folder: The cluster's folder, which is made.
    """
    without = _lacking()
    with ExitStack() as stack:
        disks: dict[str, list[SmallDisk]] = {party: [] for party in PARTIES}
        folder.mkdir(parents=True)
        places = [(owner, folder / "owners" / owner / "state") for owner in OWNERS]
        places += [(AGGREGATOR, folder / "aggregator" / "state"), (AGGREGATOR, folder / "releases")]
        for party, place in places if Deed.FILL not in without else ():
            disks[party].append(SmallDisk(place, _MEGABYTES))
        made: list[Surroundings] = []

        def unmount(disk: SmallDisk) -> None:
            disk.unmount(keep=not made or made[0].kept)

        for disk in [disk for each in disks.values() for disk in each]:
            stack.callback(unmount, disk)
        server = stack.enter_context(postgres_server()) if Deed.STOP not in without else None
        stack.enter_context(_programs(folder / "programs"))
        cluster = stack.enter_context(make_parties(folder, server))
        relays = {owner: stack.enter_context(_relay(cluster, owner)) for owner in OWNERS}
        cluster.start()
        made.append(Surroundings(cluster, disks, server, relays, without))
        yield made[0]


def _relay(cluster: LocalCluster, owner: str) -> Relay:
    """Let an owner reach the aggregator through a relay alone."""
    listens = str(tomllib.loads(cluster.aggregator.config.read_text())["aggregator"]["listen"])
    relay, config = Relay(listens), cluster.owner(owner).config
    config.write_text(config.read_text().replace(listens, relay.address))
    return relay


@contextmanager
def _programs(folder: Path) -> Iterator[None]:
    """Let processes be started as programs whose clock can be set."""
    folder.mkdir()
    for program in ("aggregator", "owner-node"):
        path = program_path(program)
        text = _PROGRAM.format(
            python=path.with_name("python"), program=program, clock=_CLOCK, path=path, spark=_spark()
        )
        (folder / program).write_text(text)
        (folder / program).chmod(stat.S_IRWXU)
    before = os.environ.get(PROGRAMS)
    os.environ[PROGRAMS] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[PROGRAMS]
        else:
            os.environ[PROGRAMS] = before
