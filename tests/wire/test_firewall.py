"""The firewall rules of docs/operations.md, in a network of their own: they limit connections per address."""

import re
import subprocess
import sys

import pytest

from deploy.wheel_environment import PROJECT

_CLIENT = """
import socket
server = socket.create_server(("127.0.0.1", 8443), backlog=200)
taken = []
for _ in range(30):
    client = socket.socket()
    try:
        client.connect(("127.0.0.1", 8443))
    except ConnectionRefusedError:
        continue
    taken.append(client)
print(len(taken))
taken.pop().close()
"""


@pytest.mark.needs("nftables")
def test_connections_per_address_are_limited(tmp_path):
    """Of thirty connections from one address sixteen are taken, and the others are refused at once."""
    page = (PROJECT / "docs" / "operations.md").read_text()
    (rules,) = re.findall(r"```nft\n(.*?)```", page, re.DOTALL)
    (tmp_path / "rules").write_text(rules)
    (tmp_path / "client.py").write_text(_CLIENT)
    script = f"ip link set lo up && nft -f rules && exec {sys.executable} client.py"
    ended = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "16"), ended.stderr
