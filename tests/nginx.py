"""A real nginx with configurations of the documentation."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import STREAM_MODULE


def documented(page: Path, block: str) -> str:
    """Return the first configuration of a page that begins with a block of this name."""
    (found,) = (
        each.split("```")[0]
        for each in page.read_text(encoding="utf-8").split("```nginx\n")[1:]
        if each.startswith(f"{block} {{")
    )
    return found


@contextmanager
def nginx(folder: Path, configuration: str, most: int = 512) -> Iterator[None]:
    """Run nginx in a folder, as one process without privileges, until the block ends.

    Args:
        folder: Its folder.
        configuration: Its blocks `http` or `stream`.
        most: Connections that it holds at a time, those to the other side included.
    """
    module = (
        f"load_module {STREAM_MODULE};\n" if "stream {" in configuration and STREAM_MODULE.exists() else ""
    )
    (folder / "nginx.conf").write_text(
        f"{module}daemon off; master_process off; pid {folder}/pid; error_log stderr notice;\n"
        f"worker_rlimit_nofile {2 * most}; events {{ worker_connections {most}; }}\n{configuration}"
    )
    said = folder / "nginx.log"
    with said.open("w") as log:
        process = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stderr=log)
    try:
        # It listens before it says how it waits for events.
        while "event method" not in said.read_text():
            assert process.poll() is None, said.read_text()
        yield
    finally:
        process.terminate()
        process.wait()
