"""How much of the code runs beside original data and keys."""

import pytest

from tests.reach import lines, reached


@pytest.mark.parametrize(("daemon", "most"), [("owner_node.daemon", 39_156), ("aggregator.daemon", 29_592)])
def test_a_daemon_reaches_few_lines(daemon: str, most: int) -> None:
    """What a security review of a daemon has to read does not grow unnoticed."""
    assert sum(map(lines, reached(daemon))) <= most
