"""Uploading 1 GiB of fragment over TLS, against a bare gRPC stream of the same chunks; memory of both sides.

Each of the four parties is a process of its own. An upload is timed from the call to the signed receipt:
received, on disk, digest and every batch checked. The bare stream does nothing with what it receives.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from deploy.development_ca import DevelopmentCa
from tests.benchmarks.result import Result, party
from tests.benchmarks.upload_parties import FRAGMENT, TRUST_DOMAIN, write_fragment

TIME_LIMIT = 1.25
MEMORY_LIMIT = 400e6
TURNS = 5
_MODULE = "tests.benchmarks.upload_parties"


def run() -> Iterator[Result]:
    """Measure uploads and bare streams in turns, and the memory that the uploads took."""
    with tempfile.TemporaryDirectory(prefix="upload-") as name, ExitStack() as stack:
        folder = Path(name)
        _prepare(folder)
        ask_aggregator, address, _ = stack.enter_context(party(_MODULE, "aggregator", str(folder)))
        ask_owner, _, _ = stack.enter_context(party(_MODULE, "owner", str(folder), address))
        _, address, _ = stack.enter_context(party(_MODULE, "bare-server", str(folder)))
        ask_client, _, _ = stack.enter_context(party(_MODULE, "bare-client", str(folder), address))
        uploads, streams = [], []
        for turn in range(TURNS + 1):
            uploads.append(ask_owner(f"r{turn}"))
            streams.append(ask_client(f"r{turn}"))
        size = (folder / FRAGMENT).stat().st_size
        # The first turn of each is not counted: connections are made and libraries loaded.
        ours = statistics.median(each["seconds"] for each in uploads[1:])
        bare = statistics.median(streams[1:])
        detail = f"{size / 1e6:,.0f} MB in {ours:.2f} s against {bare:.2f} s"
        yield Result("upload with receipt / bare gRPC stream", ours / bare, TIME_LIMIT, detail)
        for side, above in (
            ("the owner", max(each["above_idle"] for each in uploads)),
            ("the aggregator", ask_aggregator("peak")),
        ):
            detail = f"{above / 1e6:.0f} MB above idle"
            yield Result(f"peak memory of {side} / 400 MB", above / MEMORY_LIMIT, 1.0, detail)


def _prepare(folder: Path) -> None:
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    ca.aggregator("hub", ["127.0.0.1"]).write(folder, "aggregator")
    for owner in ("a", "b"):
        ca.owner(owner).write(folder, f"owner-{owner}")
    write_fragment(folder / FRAGMENT)
