"""Crash releases at random moments, and check after every run that nothing was lost or spent twice.

Owners hold their records in memory, or in scratch, where Spark may mask them. Processes are killed or halted,
releases are cancelled or refused, disks are full, clocks are set, a database is away, networks are cut,
second daemons are started, and old state is put back. What a machine lacks is printed (`tests.needs`).

Exit code 1 if anything did not hold; the seed is printed, and the folder of the run kept. Ctrl-C sums up what
was done until then.
"""

import argparse
import secrets
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.chaos.campaign import Result, campaign


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Crash releases at random.")
    parser.add_argument("--seed", type=int, help="seed of the first run; the next ones count on from it")
    parser.add_argument("--runs", type=int, default=200, help="how many (200)")
    parser.add_argument("--folder", type=Path, help="where folders are made; a new one unless given")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tessera-chaos-"))
    print(f"{options.runs} runs from seed {seed} on, in {folder}", flush=True)
    result = Result()
    with suppress(KeyboardInterrupt):
        campaign(folder, seed, options.runs, lambda line: print(line, flush=True), result)
    print("ends:", ", ".join(f"{count} {end}" for end, count in result.ends.most_common()))
    print("killed:", ", ".join(f"{count} {who}" for who, count in result.died_in.most_common()))
    print("failed:", ", ".join(f"{count} {what}" for what, count in result.failed.most_common()))
    for what, count in result.skipped.most_common():
        print(f"skipped: {count} times {what}")
    print(f"{result.runs - len(result.failures)} of {result.runs} runs hold")
    for failed, found in result.failures.items():
        print(f"seed {failed}: {'; '.join(found)}")
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
