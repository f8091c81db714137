"""What is loaded when: nothing of the pages without them, and little with them until somebody opens one."""

import subprocess
import sys

import pytest

OF_PAGES = {"starlette", "uvicorn", "authlib", "requests", "joserfc", "anyio"}
HEAVY = {"numpy", "pyarrow", "pandas", "scipy", "authlib", "requests"}


def loaded(*modules: str, absent: str = "") -> tuple[set[str], str]:
    """Import modules in an interpreter of its own; returns its packages and its complaint."""
    lines = ["import sys", *([f"sys.modules[{absent!r}] = None"] if absent else [])]
    lines += [f"import {each}" for each in modules]
    lines.append("print(*{each.partition('.')[0] for each in sys.modules if sys.modules[each]})")
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60
    )
    return set(ended.stdout.split()), ended.stderr


@pytest.mark.parametrize(
    "module", ["owner_node.daemon", "aggregator.daemon", "owner_node.cli.web", "aggregator.cli.web"]
)
def test_without_pages_nothing_of_them_is_loaded(module):
    """A daemon without [console] needs no package of the extra, and neither does a command's help."""
    packages, complaint = loaded(module)
    assert "common" in packages, complaint
    assert not packages & OF_PAGES


@pytest.mark.parametrize("module", ["owner_node.console.serving", "aggregator.console.serving"])
def test_pages_that_nobody_has_opened_are_small(module):
    """What they compute with, and what asks a provider, is loaded when it is used."""
    packages, complaint = loaded(module)
    assert "starlette" in packages, complaint
    assert not packages & HEAVY


@pytest.mark.parametrize("absent", ["uvicorn", "starlette"])
def test_a_missing_package_is_named(absent):
    """Whoever configures pages without the extra learns what to install."""
    code = (
        "common.cli.console\nwith common.cli.console.web_packages():\n    import owner_node.console.serving"
    )
    _, complaint = loaded(code, absent=absent)
    assert f"the web pages need the package {absent}" in complaint
