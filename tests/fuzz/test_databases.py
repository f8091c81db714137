"""Damage to the databases of both sides: every command works, or says that the file is damaged."""

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from aggregator.ca.enrolment import Enrolment
from aggregator.protocol.release import apply, begin
from aggregator.protocol.work import work_for
from aggregator.store.database import FILE_NAME
from aggregator.store.journal import Journal, KnownOwner
from aggregator.store.ledger_heads import StoredHead
from aggregator.store.operator_log import Action
from common.cli import console
from common.clock import utc_now
from common.errors import ExitCode, TesseraError
from common.model.fragment import LedgerHead
from owner_node.cli import application as owner_node
from tests.fakes.offering import Offering
from tests.fakes.protocol_peers import aggregator_step, answer_to, started
from tests.fuzz.mutations import N_MUTATIONS

N_DAMAGES = max(60, N_MUTATIONS // 20)
PAGE = 4096
OWNER = """
[owner]
id = "a"
trust_domain = "release.test"
state_dir = "state"

[tls]
ca = "ca.pem"
cert = "owner.pem"
key = "owner.key"

[[aggregator]]
name = "hub"
address = "localhost:1"

[[dataset]]
name = "cohort"
source = "cohort.csv"
budget = "cohort"
total_epsilon = "3"
identifier = "person"

[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""
COMMANDS = (
    ["status"], ["history"], ["ledger"], ["requests", "--all"],
    ["show", "r1"], ["show", "r2"],
)  # fmt: skip


def damaged(data: bytes, seed: int) -> bytes:
    """Return a file that a disk, or somebody, has damaged in one way."""
    draw, changed = random.Random(seed), bytearray(data)
    way, page = seed % 10, draw.randrange(len(data) // PAGE) * PAGE
    place = page + draw.randrange(PAGE)
    if way == 0:
        changed[page : page + PAGE] = bytes(PAGE)
    elif way == 1:
        other = draw.randrange(len(data) // PAGE) * PAGE
        changed[page : page + PAGE] = data[other : other + PAGE]
    elif way == 2:
        del changed[place:]
    elif way == 3:
        changed[draw.randrange(100)] ^= 1 << draw.randrange(8)
    elif way == 4:
        changed[page : page + 64] = draw.randbytes(64)
    elif way == 5:
        changed[100:PAGE] = data[100:PAGE].replace(b"CREATE TABLE", b"CREATE TABLF", 1 + draw.randrange(5))
    elif way == 6:
        changed += draw.randbytes(PAGE)
    else:
        filled = [at for at in range(len(data)) if data[at]]
        for _ in range(1 if way == 7 else 20):
            changed[draw.choice(filled)] ^= 1 << draw.randrange(8)
    return bytes(changed)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of an owner with a release that is masked and one that is accepted."""
    made = Offering(tmp_path_factory.mktemp("owner"))
    for release in ("r1", "r2"):
        plan = made.plan(made.node.invitations.describe(release, "cohort"), release=release)
        made.node.invitations.consent(release, plan.digest, made.offer(plan))
    plan = made.plan(made.node.invitations.describe("r1", "cohort"), release="r1")
    made.node.production.link("r1", plan.digest, [])
    made.node.production.mask("r1", plan.digest, *made.addendum(plan))
    made.node.invitations.describe("r3", "cohort")
    made.records.db.close()
    (made.folder / "owner.toml").write_text(OWNER)
    return made.folder


@pytest.mark.parametrize("seed", range(N_DAMAGES))
def test_a_damaged_database_of_an_owner(
    owner: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command ends with an internal fault."""
    shutil.copytree(owner, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "state" / "owner.db"
    file.write_bytes(damaged(file.read_bytes(), seed))
    monkeypatch.chdir(tmp_path)
    faults = {}
    for command in (COMMANDS[0], COMMANDS[1 + seed % (len(COMMANDS) - 1)]):
        code = console.run(owner_node(), "owner-node", [*command, "--json"])
        if code == ExitCode.INTERNAL:
            faults[" ".join(command)] = code
    assert faults == {}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of an aggregator with owners, ledger heads, operators' actions and a release."""
    file = tmp_path_factory.mktemp("aggregator") / FILE_NAME
    journal = Journal(file)
    release = begin(first := started("a", "b"))
    journal.append("r1", first, Action(7, "alice", "release", "r1", {"epsilon": "1"}))
    while not release.ended:
        events = [aggregator_step(release)] if aggregator_step(release) else []
        due = {owner: work_for(release, owner) for owner in ("a", "b")}
        events += [answer_to(release, owner, work) for owner, work in due.items() if work and not events]
        for event in filter(None, events):
            release = apply(release, event)
            journal.append("r1", event)
    for number in range(5):
        owner = f"o{number}"
        journal.seen(KnownOwner(owner, 5, 6, "1.0", ("cohort", "trial"), "f" * 64, 99))
        journal.heads.keep(StoredHead(LedgerHead(owner, 3, "ab" * 32), b"x" * 70, b"PEM" * 99), 7)
    journal.close()
    return file


@pytest.mark.parametrize("seed", range(N_DAMAGES))
def test_a_damaged_database_of_an_aggregator(kept: Path, tmp_path: Path, seed: int) -> None:
    """Whatever is read of it is read, or is an error of the configuration."""
    file = tmp_path / FILE_NAME
    file.write_bytes(damaged(kept.read_bytes(), seed))
    try:
        journal = Journal(file)
    except TesseraError as error:
        assert error.code != "internal", error.message  # noqa: PT017
        return
    with closing(journal):
        reads = (
            journal.replay, journal.owners, lambda: journal.events("r1"), journal.operators.actions,
            lambda: journal.heads.newest("o1"), lambda: journal.heads.places("o1"),
            lambda: Enrolment(journal.db, journal.operators, utc_now).revoked_keys(),
        )  # fmt: skip
        for read in reads:
            try:
                read()
            except TesseraError as error:
                assert error.code != "internal", error.message  # noqa: PT017
