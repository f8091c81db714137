"""A release beside another aggregator that sends 32 plans of 2 MB, against the same release alone.

The owner's daemon and both aggregators are processes of their own. The plans are refused by the owner's
policy, wait for a person, or are accepted.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from deploy.development_ca import DevelopmentCa
from deploy.local_process import LocalDaemon
from deploy.local_setup import dataset, section
from owner_node.linking import linkage_key
from tests.benchmarks.result import Result, party
from tests.wire.conftest import TRUST_DOMAIN

LIMIT = 2.0
ALONE = 5
BESIDE = 3
RECORDS = 40
_MODULE = "tests.benchmarks.flood_party"
KINDS = {"refused": "2", "waiting": "1", "accepted": "0.2"}
"""ε of the plans, of which the owner is charged half, by what its policy makes of them."""
POLICY = {"max_epsilon_per_release": "0.8", "manual_above_epsilon": "0.4"}


def run() -> Iterator[Result]:
    """Measure releases alone, and while plans of the other aggregator are examined."""
    with tempfile.TemporaryDirectory(prefix="flood-") as name, ExitStack() as stack:
        folder = Path(name)
        _certificates(folder)
        ask, address, _ = stack.enter_context(party(_MODULE, "hub", name))
        flood, others, _ = stack.enter_context(party(_MODULE, "other", name))
        daemon = LocalDaemon("owner-node", "a", _owner(folder, address, others), folder / "log")
        stack.callback(daemon.stop)
        daemon.start()
        for aggregator in ("hub", "other"):
            daemon.wait_for("connected", aggregator=aggregator)
        # The first release loads libraries.
        alone = [ask(f"alone-{turn}") for turn in range(ALONE + 1)][1:]
        for kind, epsilon in KINDS.items():
            plans = flood(f"open {epsilon}")
            size = flood("send")
            beside = [ask(f"{kind}-{turn}") for turn in range(BESIDE)]
            left = plans - flood("count")
            pair = f"{median(beside):.2f} s against {median(alone):.2f} s"
            detail = f"{pair}, {left} of {plans} plans of {size / 1e6:.1f} MB left"
            yield Result(
                f"release beside a flood of plans ({kind}) / alone",
                median(beside) / median(alone),
                LIMIT,
                detail,
            )
            if not left:
                raise RuntimeError("the flood ended before the releases")
            flood("end")


def _certificates(folder: Path) -> None:
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    for name in ("hub", "other"):
        ca.aggregator(name, ["127.0.0.1"]).write(folder, name)
    ca.owner("a").write(folder, "owner-a")


def _owner(folder: Path, *addresses: str) -> Path:
    """Write an owner's configuration and records; return the path of owner.toml."""
    ages = np.random.default_rng(1).integers(0, 120, RECORDS).tolist()
    (folder / "cohort.csv").write_text(
        "person,age\n" + "".join(f"p{i},{age}\n" for i, age in enumerate(ages))
    )
    known = [
        section("[[aggregator]]", {"name": name, "address": address})
        for name, address in zip(("hub", "other"), addresses, strict=True)
    ]
    text = [
        section("[owner]", {"id": "a", "trust_domain": TRUST_DOMAIN, "state_dir": "state"}),
        *known,
        section("[tls]", {"ca": "ca.pem", "cert": "owner-a.pem", "key": "owner-a.key"}),
        section("[policy]", POLICY),
        dataset(
            {"name": "cohort", "source": "cohort.csv", "total_epsilon": "10", "identifier": "person"},
            {"age": {"type": "integer", "min": 0, "max": 120}},
        ),
    ]
    config = folder / "owner.toml"
    config.write_text("\n".join(text))
    linkage_key.new(folder / "state")
    return config
