"""Linkage tokens of a million identifiers, against bare HMAC calls over messages that are there already."""

import hmac
import os
from collections.abc import Iterator

import pyarrow as pa

from owner_node.linking.tokens import tokens
from owner_node.values.normal_forms import NormalForm, normalise
from tests.benchmarks.result import Result, medians

N_RECORDS = 1_000_000
REPETITIONS = 3


def run() -> Iterator[Result]:
    """Measure normalising and hashing together."""
    texts = [f"P{number:09d}" for number in range(N_RECORDS)]
    column, key = pa.array(texts), os.urandom(32)
    messages = [len(text).to_bytes(8, "big") + text.encode() for text in texts]

    def bare() -> None:
        for message in messages:
            hmac.digest(key, message, "sha256")

    def ours() -> None:
        tokens(normalise([column], [NormalForm(("nfkc", "trim", "casefold"))]), key)

    seconds, reference = medians(REPETITIONS, ours, bare)
    detail = f"{N_RECORDS:,} identifiers in {seconds:.2f} s, bare HMAC {reference:.2f} s"
    yield Result("linkage tokens / bare HMAC", seconds / reference, 1.0, detail)
