"""A schema file that the aggregator offers and owners fetch, over real TLS."""

import asyncio
from pathlib import Path

import pytest

import aggregator.cli
from common.cli import console
from common.errors import UsageError
from owner_node import config
from owner_node.cli import application
from owner_node.config import OwnerConfig
from owner_node.config.shared_schema import read_schema
from owner_node.connection.client import AggregatorClient
from tests.fakes.parties import Parties
from tests.wire.test_owner_daemon import owner
from tests.wire.test_renewal import serving

SCHEMA = 'name = "cohort"\n\n[attributes.age]\ntype = "integer"\nmin = 0\nmax = 120\n'


async def test_owners_fetch_what_the_operator_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes arrive as they were offered, by data set; nothing else of the state directory does."""
    parties = Parties(tmp_path / "tls", a={})
    settings = parties.aggregator(tmp_path, holds_ca_key=False)
    monkeypatch.setattr("aggregator.cli.schema.load", lambda _: settings)
    file = tmp_path / "cohort.toml"
    file.write_text(SCHEMA)

    def offer(name: str) -> int:
        command = ["schema", str(file), "--dataset", name, "--json"]
        return console.run(aggregator.cli.application(), "aggregator", command)

    async with serving(parties, tmp_path, holds_ca_key=False) as daemon:
        found = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        async with AggregatorClient(daemon.address, found.tls) as client:
            with pytest.raises(UsageError, match="no schema is offered for data set 'cohort'"):
                await client.schema("cohort")
            assert offer("patients") == 2
            assert offer("cohort") == 0
            assert await client.schema("cohort") == SCHEMA.encode()
            for name in ("../aggregator", "", "x" * 65, "a/b"):
                with pytest.raises(UsageError, match="no name of a data set"):
                    await client.schema(name)
        await fetched_by_command(found, tmp_path, monkeypatch)


async def fetched_by_command(found: OwnerConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch by the owner's command, in a thread of its own, as its process would."""
    monkeypatch.setattr(config, "load", lambda _: found)
    out = folder / "fetched.toml"
    command = ["schema", "fetch", str(out), "--dataset", "cohort", "--json"]
    program = application()
    assert await asyncio.to_thread(lambda: console.run(program, "owner-node", command)) == 0
    assert read_schema(out)["attributes"]["age"]["max"] == 120
    assert await asyncio.to_thread(lambda: console.run(program, "owner-node", command)) == 2
