"""Uploads over a line of 100 Mbit/s with a delay of 100 ms that loses one packet in a hundred, as root.

The parties are processes in two network namespaces. An upload is the owner node's, from the first call to the
signed receipt, of two fragments: one with columns as masked values have them, one that zstd makes no smaller.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from deploy.development_ca import DevelopmentCa
from tests.benchmarks.line import SECOND, line
from tests.benchmarks.result import Result, party
from tests.benchmarks.upload_parties import FRAGMENT, TRUST_DOMAIN, write_fragment

MEGABITS, DELAY, LOSS = 100.0, 0.1, 0.01
LEAST_USE = 0.85
"""Share of the line that an upload has to use."""
FRAGMENTS = {
    "fragment": (("int32",) * 6 + ("uint16",) * 2 + ("uint8", "int64"), 100),
    "incompressible fragment": (("uint16",) * 10, 300),
}
"""Encodings of the columns and number of batches: 268 and 398 MB."""
_MODULE = "tests.benchmarks.upload_parties"
_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def run() -> Iterator[Result]:
    """Measure an upload of each fragment."""
    for name, (columns, n_batches) in FRAGMENTS.items():
        with (
            line(MEGABITS, DELAY, LOSS) as (owners, hub),
            tempfile.TemporaryDirectory(prefix="network-") as place,
            ExitStack() as stack,
        ):
            folder = Path(place)
            size = _prepare(folder, columns, n_batches)
            arguments = ("aggregator", str(folder), f"{SECOND}:0")
            _, address, _ = stack.enter_context(party(_MODULE, *arguments, namespace=hub))
            arguments = ("owner", str(folder), address)
            ask, _, _ = stack.enter_context(party(_MODULE, *arguments, namespace=owners))
            seconds = ask("r0")["seconds"]
            least = size * 8 / (LEAST_USE * MEGABITS * 1e6)
            detail = (
                f"{size / 1e6:.0f} MB in {seconds:.1f} s, {size * 8 / seconds / 1e6:.0f} Mbit/s "
                f"with {_CONTROL.read_text().strip()}"
            )
            yield Result(f"upload of {name} / at {LEAST_USE:.0%} of the line", seconds / least, 1.0, detail)


def _prepare(folder: Path, columns: tuple[str, ...], n_batches: int) -> int:
    """Write certificates and a fragment; returns its size in bytes."""
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    ca.aggregator("hub", [SECOND]).write(folder, "aggregator")
    for owner in ("a", "b"):
        ca.owner(owner).write(folder, f"owner-{owner}")
    write_fragment(folder / FRAGMENT, columns, n_batches)
    return (folder / FRAGMENT).stat().st_size
