"""Small owners for system tests: what they hold is made here, everything that runs is real."""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR, dataset, section
from owner_node.ledger.ledger import Entry, EntryKind, Ledger
from owner_node.state.database import OwnerDatabase
from tests.postgres_server import PASSWORD, PostgresServer

Attributes = Mapping[str, Mapping[str, object]]

ATTRIBUTES: Attributes = {
    "age": {"type": "integer", "min": 0, "max": 120},
    "income": {"type": "number", "min": 0, "max": 9000, "decimals": 2},
    "admitted": {"type": "date", "min": date(2015, 1, 1), "max": date(2026, 12, 31)},
    "ward": {"type": "category", "categories": ["medicine", "surgery", "paediatrics", "eye, ear"]},
    "severity": {"type": "category", "categories": ["mild", "moderate", "severe"], "ordered": True},
    "emergency": {"type": "boolean"},
}

_SQL_TYPES = {
    "age": "smallint", "income": "numeric", "admitted": "date", "ward": "varchar", "emergency": "boolean",
}  # fmt: skip


def identifiers(first: int, count: int) -> list[str]:
    """Return texts that occur nowhere by chance: `first` and `count` number the people."""
    return [f"ID-{hashlib.sha256(b'%d' % each).hexdigest()[:12]}" for each in range(first, first + count)]


def people(names: Sequence[str], seed: int) -> pd.DataFrame:
    """Return one record per person with every attribute, and a column that nobody declares."""
    draw, n = np.random.default_rng(seed), len(names)
    age = draw.integers(0, 101, n)
    days = pd.to_timedelta(draw.integers(0, 4000, n), unit="D")
    return pd.DataFrame(
        {
            "person": names,
            "age": age,
            "income": [f"{value:.2f}" for value in age * draw.uniform(10, 80, n)],
            "admitted": (pd.Timestamp(2015, 1, 1) + days).strftime("%Y-%m-%d"),
            "ward": draw.choice(
                ["medicine", "surgery", "paediatrics", "eye, ear"], n, p=[0.5, 0.3, 0.1, 0.1]
            ),
            "severity": draw.choice(["mild", "moderate", "severe"], n, p=[0.6, 0.3, 0.1]),
            "emergency": draw.choice(["true", "false"], n),
            "note": names,
        }
    )


def declared(
    name: str, *, attributes: Attributes = ATTRIBUTES, total_epsilon: str = "100", **settings: object
) -> str:
    """Return a `[[dataset]]` over `NAME.csv` whose people are named in any case and with spaces around."""
    values: dict[str, object] = {"name": name, "source": f"{name}.csv", "total_epsilon": total_epsilon}
    values |= {"identifier": "person", "normalise": ["trim", "casefold"]}
    return dataset(values | settings, attributes)


def policy(**rules: object) -> str:
    """Return `[policy]`."""
    return section("[policy]", rules)


def write(folder: Path, owner: str, name: str, table: pd.DataFrame) -> Path:
    """Write an owner's data set; returns its file."""
    place = folder / "owners" / owner
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.csv"
    table.to_csv(path, index=False)
    return path


def stored(
    server: PostgresServer, folder: Path, owner: str, name: str, table: pd.DataFrame
) -> dict[str, str]:
    """Write an owner's data set into a database.

    Returns:
        What its `[[dataset]]` says about it.
    """
    columns = ", ".join(f"{column} {_SQL_TYPES.get(column, 'text')}" for column in table.columns)
    server.run(f"create table {name} ({columns})")
    records = [tuple(record) for record in table.astype(object).itertuples(index=False)]
    server.run(f"insert into {name} values ({', '.join(['%s'] * len(table.columns))})", *records)
    secret = folder / "owners" / owner / "secret"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.touch(0o600)
    secret.write_text(PASSWORD)
    query = f"select {', '.join(map(str, table.columns))} from {name} -- all of them"
    return {"source": server.url(), "query": query, "password_file": secret.name}


def state_dir(cluster: LocalCluster, owner: str) -> Path:
    """Return an owner's state directory."""
    return cluster.owner(owner).config.parent / "state"


def fragment_path(cluster: LocalCluster, owner: str, release: str) -> Path:
    """Return an owner's sealed fragment."""
    return state_dir(cluster, owner) / "outbox" / f"{AGGREGATOR}~{release}.fragment"


def sealed_path(cluster: LocalCluster, owner: str, release: str) -> Path:
    """Return the copy of an owner's fragment that `sealed_and_released` keeps."""
    return cluster.folder / "sealed" / f"{owner}~{release}"


def sealed_and_released(cluster: LocalCluster, release: str, **options: str) -> tuple[int, dict[str, Any]]:
    """As `released`; keeps copies of all fragments as they were sealed, since owners drop their tokens.

    The release is held back while they are copied: a file lies where its folder belongs.
    """
    place = cluster.folder / "releases"
    aside = place.with_name("releases-aside")
    place.rename(aside)
    place.write_text("in the way")
    try:
        command = start_release(cluster, release, **options)
        cluster.aggregator.wait_for("step waits", release=release, timeout=100)
        for path in (cluster.folder / "owners").glob(f"*/state/outbox/{AGGREGATOR}~{release}.fragment"):
            copy = sealed_path(cluster, path.parents[2].name, release)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(path.read_bytes())
    finally:
        place.unlink()
        aside.rename(place)
    return answer_of(command)


def ask(
    cluster: LocalCluster, program: str, *arguments: str | Path, owner: str = ""
) -> tuple[int, dict[str, Any]]:
    """Run a command with `--json`; returns its exit code and its document."""
    ended = cluster.cli(program, *arguments, "--json", owner=owner)
    assert "Traceback" not in ended.stderr, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return ended.returncode, document


def released(cluster: LocalCluster, release: str, **options: str) -> tuple[int, dict[str, Any]]:
    """Ask for a release of ε = 1 and k = 20 without being asked back.

    `options` add to that, change it, or leave out what they give as an empty text.
    """
    return answer_of(start_release(cluster, release, **options))


def start_release(cluster: LocalCluster, release: str, **options: str) -> subprocess.Popen[str]:
    """Start what `released` waits for; `programs="own"` says that these are not of the version before."""
    own = options.pop("programs", "") or cluster.aggregator.programs is None
    chosen = {"epsilon": "1", "k": "20", "layout": "horizontal", "dataset": "patients", "owners": "a,b"}
    chosen |= options
    words = [
        word for name, value in chosen.items() if value for word in (f"--{name.replace('_', '-')}", value)
    ]
    # So few records make no useful result. The version before has no such option.
    anyway = ["--anyway"] if own else []
    words += ["--id", release, "--yes", *anyway, "--json"]
    return cluster.start_cli("aggregator", "release", *words)


def answer_of(command: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    """Wait for a command; returns its exit code and its document."""
    out, err = command.communicate(timeout=300)
    assert "Traceback" not in err, err
    document: dict[str, Any] = json.loads(out)
    return command.returncode, document


@contextmanager
def ledger(cluster: LocalCluster, owner: str) -> Iterator[Ledger]:
    """Open an owner's ledger beside its daemon, its chain checked."""
    with OwnerDatabase(state_dir(cluster, owner), make=False) as db:
        book = Ledger(db, lambda: datetime.now(UTC))
        book.verify()
        yield book


def spends(cluster: LocalCluster, owner: str, release: str | None = None) -> list[Entry]:
    """Return what an owner's ledger says was spent, for one release or for all."""
    with ledger(cluster, owner) as book:
        entries = [each for each in book.entries() if each.kind is EntryKind.SPEND]
    return [each for each in entries if release in (None, each.release)]


def logs(cluster: LocalCluster) -> str:
    """Return everything that all daemons have logged."""
    return "".join(path.read_text() for path in sorted((cluster.folder / "logs").iterdir()))
