"""Lines of our own code that each daemon reaches: what a security review of it reads.

    python -m tests.reach

Every import counts, those within functions and those for type checking included, and so do the packages that
a module is in. Code that is generated from `proto` does not.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import grimp

PROJECT = Path(__file__).parents[1]
DAEMONS = ("owner_node.daemon", "aggregator.daemon")
_GENERATED = "common.wire.v1"


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("aggregator", "common", "owner_node", cache_dir=None)


def reached(module: str) -> frozenset[str]:
    """Return the modules and packages that run, or may run, in a process of a module, itself included."""
    modules = {module, *_graph().find_upstream_modules(module)}
    for each in tuple(modules):
        parts = each.split(".")
        modules |= {".".join(parts[:n]) for n in range(1, len(parts))}
    return frozenset(each for each in modules if not each.startswith(_GENERATED))


def lines(module: str) -> int:
    """Return the number of lines of a module's file."""
    place = PROJECT.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Print what each daemon reaches, by folder."""
    for daemon in DAEMONS:
        modules = reached(daemon)
        print(f"{daemon}: {sum(map(lines, modules)):,} lines of {len(modules)} modules")
        folders: Counter[str] = Counter()
        for module in modules:
            folders[".".join(module.split(".")[:2])] += lines(module)
        for folder, n_lines in folders.most_common():
            print(f"{n_lines:8,} {folder}")


if __name__ == "__main__":
    main()
