"""The compose demonstrations on a real Docker engine, from `up` to a verified release on the host."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deploy.demo_data import DEPARTMENTS, HOSPITALS, N_PEOPLE
from tests.system.container_engine import (
    IMAGES,
    Demonstration,
    brought_up,
    checkout,
    lines_of,
    makes_base,
    newer_compose,
    older_compose,
    prepare_base,
    run,
)

# The first test also waits for the images to be built, on a machine that has other things to do.
pytestmark = [pytest.mark.needs("docker"), pytest.mark.timeout(1200)]
DEMONSTRATIONS = ("horizontal", "vertical", "real-data")
PATIENT_SECONDS = "100"
"""After which the engine kills, on a machine that has other things to do; in earnest it is 10 s."""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """What the compose files read from the environment on this machine."""
    return prepare_base()


@pytest.fixture(scope="module")
def top(environment, tmp_path_factory) -> Iterator[Path]:
    """A checkout of its own, wheels included."""
    folder = tmp_path_factory.mktemp("checkout")
    yield checkout(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def hospitals(top, environment) -> Iterator[Demonstration]:
    """The horizontal demonstration, by the older docker-compose where there is one."""
    command = older_compose() or newer_compose()
    owners = tuple(HOSPITALS)
    with brought_up(
        Demonstration(command, top, "horizontal", owners, environment, watched=owners[-1])
    ) as made:
        yield made


@pytest.fixture(scope="module")
def departments(top, environment) -> Iterator[Demonstration]:
    """The vertical demonstration, by Compose v2 where there is one."""
    command = newer_compose() or older_compose()
    with brought_up(Demonstration(command, top, "vertical", tuple(DEPARTMENTS), environment)) as made:
        yield made


def answers(demonstration: Demonstration) -> bool:
    """Tell whether the aggregator's daemon runs."""
    asked = demonstration.execute("aggregator", "aggregator", "status", "--check", check=False)
    return asked.returncode == 0


def start_release(demonstration: Demonstration, release: str, *options: str) -> None:
    """Start a release where an operator has it: the walk-through's command waits for all owners."""
    asked = ("aggregator", "release", "--owners", ",".join(demonstration.owners), "--id", release, *options)
    demonstration.execute("aggregator", *asked, "--yes", "--anyway", "--detach")


def states(demonstration: Demonstration, release: str) -> dict[str, str]:
    """Return where a release and its owners are."""
    shown = json.loads(demonstration.execute("aggregator", "aggregator", "show", release, "--json").stdout)
    return {"release": shown["state"]} | {owner["id"]: owner["state"] for owner in shown["owners"]}


def spends(demonstration: Demonstration, owner: str, release: str) -> int:
    """Return how often an owner was charged for a release."""
    ledger = json.loads(demonstration.execute(owner, "owner-node", "ledger", "--json").stdout)
    return [(entry["release"], entry["kind"]) for entry in ledger["entries"]].count((release, "spend"))


def check_removed(demonstration: Demonstration) -> None:
    """Remove a demonstration as the documentation says; its release is still there."""
    assert len(demonstration.left()) == 5 + 4 + 4
    demonstration.compose("down", "-v")
    assert demonstration.left() == []
    assert (demonstration.folder / "releases" / "first" / "manifest.json").is_file()


@pytest.mark.parametrize("name", DEMONSTRATIONS)
def test_valid_for_both(top, environment, name):
    """Each compose file is taken by docker-compose 1.29 and by Compose v2, as the same services."""
    commands = [command for command in (older_compose(), newer_compose()) if command]
    assert len(commands) == 2 or not makes_base()
    found = []
    for command in commands:
        ended = run(*command, "-f", top / "deploy" / name / "compose.yaml", "config", "--services")
        found.append(set(ended.stdout.split()) - {"release"})
        assert "WARN" not in ended.stderr.upper()
    assert {"init", "aggregator"} < found[0]
    assert found == [found[0]] * len(commands)


def test_horizontal_release(hospitals):
    """One command makes a release of all hospitals that verifies on the host, also in a container that has
    nothing else, and belongs to its user.
    """
    folder = hospitals.verified()
    alone = ("docker", "run", "--rm", "--network", "none", "-v", f"{folder}:/release:ro")
    assert "hold" in run(*alone, f"{IMAGES}/aggregator", "verify", "/release").stdout
    assert pq.read_table(folder / "data.parquet").num_rows == N_PEOPLE
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["release"], manifest["layout"]) == ("first", "horizontal")
    assert (folder.stat().st_uid, folder.stat().st_gid) == (
        hospitals.folder.joinpath("releases").stat().st_uid,
        hospitals.folder.joinpath("releases").stat().st_gid,
    )


@pytest.mark.parametrize("service", ["aggregator", "valley"])
def test_least_privilege(hospitals, service):
    """A container runs as an ordinary user without any capability, writes only to its volume and /tmp, and
    holds neither compiler nor installer.
    """
    script = "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/1/status | tr -s '\\t' ' '"
    lines = hospitals.execute(service, "sh", "-c", script).stdout.splitlines()
    assert lines == ["10001", "CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1"]
    for place in ("/", "/opt/tessera/bin", "/etc"):
        refused = hospitals.execute(service, "touch", f"{place}/new", check=False)
        assert "Read-only file system" in refused.stderr
    hospitals.execute(service, "touch", "/tmp/new", "/var/lib/tessera/new")
    for program in ("cc", "gcc", "g++", "make", "/opt/tessera/bin/pip"):
        assert hospitals.execute(service, "sh", "-c", f"command -v {program}", check=False).returncode


@pytest.mark.parametrize("image", ["aggregator", "owner-node"])
def test_any_user_of_group_0_and_its_limits(hospitals, image):
    """A platform may choose the user: it can write its state, and counts with the memory that it gives."""
    program = (
        "from pathlib import Path; from common.files import private_directory; "
        "from common.workspace import machine_memory; "
        "private_directory(Path('/var/lib/tessera/state')); print(machine_memory())"
    )
    chosen = (
        "--rm",
        "--user",
        "1234567:0",
        "--cap-drop",
        "ALL",
        "--memory",
        "128m",
        "--entrypoint",
        "python",
    )
    memory = run("docker", "run", *chosen, f"{IMAGES}/{image}", "-c", program).stdout
    assert int(memory) == 128 * 2**20


def test_only_the_aggregator_is_published(hospitals):
    """Owner nodes open no port towards anybody; the aggregator opens its one."""
    ports = {
        service: hospitals.inspect(service)["NetworkSettings"]["Ports"]
        for service in ("aggregator", *hospitals.owners)
    }
    assert all(ports.pop("aggregator")["8443/tcp"])
    assert not any(any(each.values()) for each in ports.values())


def test_volumes_apart(hospitals):
    """A volume is mounted in its party's container only, so an owner finds nothing of another's there."""
    mounted = {
        service: {
            mount["Name"].removeprefix(f"{hospitals.project}_")
            for mount in hospitals.inspect(service)["Mounts"]
        }
        for service in ("aggregator", *hospitals.owners)
    }
    assert mounted == {service: {service} for service in ("aggregator", *hospitals.owners)}
    # Folders that this user may not enter end the search with 1.
    seen = hospitals.execute(
        "north", "find", "/", "-name", "patients.csv", "-o", "-name", "own.key", check=False
    )
    assert sorted(seen.stdout.split()) == ["/var/lib/tessera/patients.csv", "/var/lib/tessera/tls/own.key"]


LISTEN = """
import signal, socket
signal.alarm(60)
with socket.create_server(("", 9000)) as server:
    print("listening", flush=True)
    while True:
        server.accept()[0].close()
"""


def test_networks_apart(hospitals):
    """An owner reaches the aggregator and nobody else: no other owner, not even by address, nor the world."""
    assert hospitals.reaches("north", "aggregator", 8443)
    address = hospitals.address("valley")
    # Somebody listens there, so that only the network can be what stands between the two.
    with lines_of(("docker", "exec", hospitals.container("valley"), "python", "-c", LISTEN)) as lines:
        assert lines.get(timeout=60) == "listening\n"
        assert hospitals.reaches("valley", address, 9000)
        assert not hospitals.reaches("north", address, 9000)
    assert not hospitals.reaches("north", "1.1.1.1", 443)
    assert hospitals.execute("aggregator", "cat", "/proc/sys/net/ipv4/ip_forward").stdout.strip() == "0"


def test_interrupted_release(hospitals):
    """An owner cut off, another killed, and the aggregator restarted, all in the middle of one release: it
    goes on by itself when they are back, and every owner is charged once. The engine sees by itself that
    the owner which is cut off lost its aggregator, and that it has it again.
    """
    hospitals.wait_health("healthy")
    network = f"{hospitals.project}_valley"
    run("docker", "network", "disconnect", network, hospitals.container("valley"))
    hospitals.wait_health("unhealthy")
    start_release(
        hospitals, "rough", "--dataset", "patients", "--layout", "horizontal", "--epsilon", "1", "--k", "100"
    )
    assert states(hospitals, "rough")["release"] == "inviting"
    run("docker", "kill", hospitals.container("north"))
    run("docker", "restart", hospitals.container("aggregator"))
    run("docker", "start", hospitals.container("north"))
    hospitals.wait_until("the aggregator is back", lambda: answers(hospitals))
    assert states(hospitals, "rough")["release"] == "inviting"
    run("docker", "network", "connect", network, hospitals.container("valley"))
    published = {"published"}
    hospitals.wait_until(
        "the release is published", lambda: set(states(hospitals, "rough").values()) == published
    )
    assert [spends(hospitals, owner, "rough") for owner in hospitals.owners] == [1, 1, 1]
    hospitals.wait_health("healthy")


def test_a_user_that_the_cluster_assigns(hospitals: Demonstration) -> None:
    """OpenShift runs an image as some user of the group root, who makes and serves a party like any other."""
    restricted = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "1000670000:0")
    name = f"{hospitals.project}-assigned"
    made = ("init", "--name", "central", "--trust-domain", "example.org", "--host", "localhost")
    script = f"""
        aggregator {" ".join(made)} --listen 127.0.0.1:8443 --dir /var/lib/tessera
        aggregator serve & daemon=$!
        until aggregator status --check; do sleep 0.2; done
        kill $daemon && wait $daemon"""
    ended = run(
        *("docker", "run", "--rm", "--name", name, *restricted, "--entrypoint", "sh"),
        *(f"{IMAGES}/aggregator", "-ec", script),
    )
    assert '"event": "stopped"' in ended.stderr


def test_no_hospital_is_left(hospitals):
    """`down -v` removes every container, volume and network; what was released stays on the host."""
    check_removed(hospitals)


def test_vertical_release(departments):
    """The departments' attributes are joined by tokens; the release verifies on the host, and options can
    follow the command that makes one.
    """
    table = pq.read_table(departments.verified() / "data.parquet")
    names = [name for each in DEPARTMENTS.values() for name in each]
    assert (table.num_rows, set(table.column_names)) == (N_PEOPLE, {"record", *names})
    said = departments.release("--id", "second", "--epsilon", "0.5", "--k", "auto").stdout
    assert "on this host: deploy/vertical/releases/second" in said


ASK_A_PERSON = """
from pathlib import Path
config = Path("owner.toml")
config.write_text(config.read_text().replace("[policy]", "[policy]\\nmanual_above_epsilon = 0.5"))
"""


def test_interrupted_between_steps(departments):
    """One owner waits for a person, so that the others have reserved: one of these is killed, the aggregator
    restarted, and another is cut off while all are to link. Each goes on from what it had written down.
    """
    departments.execute("pharmacy", "python", "-c", ASK_A_PERSON)
    departments.compose("restart", "pharmacy")
    departments.wait_connected()
    start_release(
        departments, "long", "--dataset", "stays", "--layout", "vertical", "--epsilon", "3", "--k", "100"
    )

    def wait_for(release: str, **owners: str) -> None:
        expected = {"release": release} | owners
        departments.wait_until(str(expected), lambda: states(departments, "long") == expected)

    wait_for("consenting", admissions="reserved", laboratory="reserved", pharmacy="awaiting_approval")
    run("docker", "kill", departments.container("admissions"))
    run("docker", "restart", departments.container("aggregator"))
    departments.wait_until("the aggregator is back", lambda: answers(departments))
    wait_for("consenting", admissions="reserved", laboratory="reserved", pharmacy="awaiting_approval")
    run("docker", "start", departments.container("admissions"))
    network = f"{departments.project}_laboratory"
    run("docker", "network", "disconnect", network, departments.container("laboratory"))
    departments.execute("pharmacy", "owner-node", "approve", "long", "--yes", "--anyway")
    wait_for("linking", admissions="linked", laboratory="reserved", pharmacy="linked")
    assert [spends(departments, owner, "long") for owner in departments.owners] == [0, 0, 0]
    run("docker", "network", "connect", network, departments.container("laboratory"))
    wait_for("published", admissions="published", laboratory="published", pharmacy="published")
    assert [spends(departments, owner, "long") for owner in departments.owners] == [1, 1, 1]
    departments.execute("aggregator", "aggregator", "verify", "releases/long", "--ca", "tls/ca.pem")
    departments.execute("laboratory", "owner-node", "download", "long", "--out", "/tmp/long")
    departments.execute("laboratory", "owner-node", "verify", "/tmp/long")


def test_stopped(departments):
    """`docker stop` ends every container in order, without a kill, and `start` is enough to have all back."""
    for service in ("pharmacy", "aggregator"):
        container = departments.container(service)
        run("docker", "stop", "--time", PATIENT_SECONDS, container)
        state = json.loads(run("docker", "inspect", container).stdout)[0]["State"]
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    departments.compose("start", "aggregator", "pharmacy")
    departments.wait_connected()
    departments.execute("pharmacy", "owner-node", "ledger", "--verify")


def test_no_department_is_left(departments):
    """The same for the other demonstration, and the other compose."""
    check_removed(departments)


def test_built_by_the_newer(top, environment):
    """Compose v2 builds the same Dockerfile by BuildKit: once a week, since that takes as long again."""
    if not newer_compose():
        pytest.skip("there is no Compose v2")
    Demonstration(newer_compose(), top, "vertical", tuple(DEPARTMENTS), environment).build(newer_compose())
    for program in ("aggregator", "owner-node"):
        assert run("docker", "run", "--rm", f"{IMAGES}/{program}", "--version").stdout.startswith(program)
