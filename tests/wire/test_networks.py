"""Networks that lose connections without a word: releases go on."""

import subprocess
import sys

import pytest

from deploy.wheel_environment import PROJECT

RELEASES = ("whole", "forgotten", "renamed", "moved", "lossy")


@pytest.mark.needs("nftables")
def test_releases_go_on_in_a_broken_network(tmp_path):
    """Releases are published after a firewall has forgotten all connections, the aggregator's name leads to
    another address, owners come from another address, and while one packet in twenty is lost.
    """
    command = [
        "unshare",
        "--net",
        "--mount",
        sys.executable,
        "-m",
        "tests.wire.broken_network",
        str(tmp_path),
    ]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert ended.stdout.splitlines() == [f"{name} published" for name in RELEASES], ended.stderr[-5000:]
