"""`aggregator init`: what it refuses before it makes files."""

import pytest

from aggregator.cli import application
from common.cli import console


@pytest.mark.parametrize("listen", ["nonsense", "8443", "host:", "host:99999"])
def test_an_address_that_no_command_could_use_is_refused(tmp_path, capsys, listen):
    """A configuration that was written with it would be refused by every other command."""
    folder = tmp_path / "new"
    names = ["--name", "hub", "--trust-domain", "t.example", "--host", "localhost", "--dir", str(folder)]
    assert console.run(application(), "aggregator", ["init", *names, "--listen", listen]) == 2
    assert f"--listen '{listen}': expected an address such as" in capsys.readouterr().err
    assert not folder.exists()
    assert console.run(application(), "aggregator", ["init", *names, "--listen", "[::1]:8443"]) == 0
