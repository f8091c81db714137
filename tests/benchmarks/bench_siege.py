"""A release while strangers hold connections to the aggregator's port, against the same release alone.

Daemons are processes of their own. The strangers come from forty addresses, show no certificate, and connect
again whenever they are closed: to the port itself, and to the proxy of docs/operations.md where nginx has its
module `stream`.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from deploy.local_cluster import LocalCluster
from deploy.local_setup import free_port, make_setup, share_linkage_key
from deploy.wheel_environment import PROJECT
from tests.benchmarks.result import Result
from tests.flood import ADDRESSES, flood
from tests.needs import missing_nginx_stream
from tests.nginx import documented, nginx
from tests.system.small_owners import declared, identifiers, people, policy, released, write

LIMIT = 2.0
TURNS = 5
CONNECTIONS = 2000
SIZE = 200


def run() -> Iterator[Result]:
    """Measure releases alone and under a flood, without a proxy and with it."""
    yield _measured("the port", proxy=False)
    if missing_nginx_stream() is None:
        yield _measured("a proxy before the port", proxy=True)


def _measured(what: str, *, proxy: bool) -> Result:
    with tempfile.TemporaryDirectory(prefix="siege-") as name, ExitStack() as stack:
        folder = Path(name)
        for position, owner in enumerate("ab"):
            write(folder, owner, "patients", people(identifiers(SIZE * position, SIZE), seed=position))
        port = free_port()
        says = policy() + declared("patients", total_epsilon="1000")
        make_setup(folder, dict.fromkeys("ab", says), port=port)
        share_linkage_key(folder, "ab")
        if proxy:
            _put_before(port, folder, stack)
        cluster = stack.enter_context(LocalCluster(folder))
        cluster.start()
        alone, beside, opened = [], [], 0
        # In turns, so that a busy moment of the machine meets both. The first release loads libraries.
        _seconds(cluster, "first")
        for turn in range(TURNS):
            alone.append(_seconds(cluster, f"alone-{turn}"))
            with flood([port], CONNECTIONS) as strangers:
                strangers.reached.wait(60)
                beside.append(_seconds(cluster, f"beside-{turn}"))
                opened += strangers.opened
        pair = f"{median(beside):.2f} s against {median(alone):.2f} s"
        detail = f"{pair}, {CONNECTIONS} connections from {ADDRESSES} addresses, {opened / TURNS:,.0f} opened"
        return Result(
            f"release beside a flood of {what} / alone", median(beside) / median(alone), LIMIT, detail
        )


def _put_before(port: int, folder: Path, stack: ExitStack) -> None:
    """Let the proxy listen at the port that owners know, and the aggregator at another one."""
    config, behind = folder / "aggregator" / "aggregator.toml", f"127.0.0.1:{free_port()}"
    config.write_text(config.read_text().replace(f"127.0.0.1:{port}", behind))
    text = documented(PROJECT / "docs" / "operations.md", "stream")
    text = text.replace("listen 8443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8444", behind)
    place = folder / "nginx"
    place.mkdir()
    stack.enter_context(nginx(place, text, 4 * CONNECTIONS))


def _seconds(cluster: LocalCluster, release: str) -> float:
    start = time.perf_counter()
    code, document = released(cluster, release)
    if code:
        raise RuntimeError(f"a release ended with exit code {code}: {document}")
    return time.perf_counter() - start
