"""The compose file for one's own data: a CSV file of the user's, and a query on a PostgreSQL database."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.container_engine import (
    BASE,
    IMAGES,
    Demonstration,
    brought_up,
    checkout,
    makes_base,
    newer_compose,
    older_compose,
    prepare_base,
    run,
)

# The first test also waits for the images to be built, on a machine that has other things to do.
pytestmark = [pytest.mark.needs("docker"), pytest.mark.timeout(1200)]
PASSWORD = "a-password-of-the-test"
POSTGRES = Path(__file__).parent / "postgres_image"
CLOSED_VISITS = 450
"""Records of the example's database that its query returns."""


@pytest.fixture(scope="module")
def parties(tmp_path_factory) -> Iterator[Demonstration]:
    """The demonstration, with a CSV file of one's own that only a group of this machine may read."""
    top = tmp_path_factory.mktemp("checkout")
    environment = prepare_base() | {"DATABASE_PASSWORD": PASSWORD}
    if makes_base():
        image = f"{IMAGES}/postgres"
        run(
            "docker", "build", "--build-arg", f"BASE={BASE}", "--tag", image, POSTGRES,
            env=os.environ | {"DOCKER_BUILDKIT": "0"},
        )  # fmt: skip
        environment |= {"POSTGRES_IMAGE": image}
    command = newer_compose() or older_compose()
    made = Demonstration(command, checkout(top), "real-data", ("clinic", "registry"), environment)
    own = made.folder / "clinic" / "visits.csv"
    lines = own.read_text().splitlines(keepends=True)
    own.write_text("".join(lines[:201]))
    own.chmod(0o640)
    if os.getuid() == 0:
        os.chown(own, 12_345, 12_345)
    made.environment["DATA_GROUP"] = str(own.stat().st_gid)
    with brought_up(made):
        yield made
    shutil.rmtree(top)


def test_release(parties):
    """The user's file and the database's query give one release that verifies on the host, over records of
    which no person is counted twice.
    """
    manifest = json.loads((parties.verified() / "manifest.json").read_text())
    records = {owner["id"]: int(owner["records"]) for owner in manifest["owners"]}
    assert records == {"clinic": 200, "registry": CLOSED_VISITS}
    assert manifest["addendum"]["document"]["linking"] == "disjoint"


def test_database_apart(parties):
    """Only the registry's owner node reaches the database, and it may do nothing there but read one table."""
    address = parties.address("database")
    assert parties.reaches("registry", "database", 5432)
    assert not parties.reaches("clinic", address, 5432)
    assert not parties.reaches("aggregator", address, 5432)
    reader = (f"postgresql://reader:{PASSWORD}@127.0.0.1/registry", "--tuples-only", "--command")
    assert parties.execute("database", "psql", *reader, "select count(*) from visits").stdout.strip() == "500"
    refused = parties.execute("database", "psql", *reader, "delete from visits", check=False)
    assert "permission denied" in refused.stderr


def test_password_is_nowhere(parties):
    """The database's password is in no log, no output of a command and no file of the owner."""
    checked = parties.execute("registry", "owner-node", "check", "--json")
    status = parties.execute("registry", "owner-node", "status", "--json")
    logs = parties.compose("logs")
    for ended in (checked, status, logs):
        assert PASSWORD not in ended.stdout + ended.stderr
    assert json.loads(checked.stdout)["datasets"][0]["source"] == "postgresql://database:5432/registry"
    found = parties.execute(
        "registry", "grep", "-rl", PASSWORD, "/var/lib/tessera", "/etc/tessera", check=False
    )
    assert (found.returncode, found.stdout) == (1, "")


def test_a_changed_configuration(parties):
    """What a user edits beside the compose file is in force after a restart, without touching the volume."""
    config = parties.folder / "clinic" / "owner.toml"
    config.write_text(
        config.read_text().replace("max_epsilon_per_release = 1\n", 'max_epsilon_per_release = "0.1"\n')
    )
    parties.compose("restart", "clinic")
    parties.wait_connected()
    refused = parties.release("--id", "second", "--epsilon", "0.5", check=False)
    assert refused.returncode == 4
    balance = json.loads(parties.execute("clinic", "owner-node", "ledger", "--json").stdout)
    assert {entry["release"] for entry in balance["entries"]} == {"first"}
