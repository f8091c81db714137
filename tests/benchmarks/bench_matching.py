"""Match keys: tokens of a million persons in twelve passes, and linking three owners of a million persons."""

import hmac
import os
import resource
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from common.arrays import sortable
from common.matching.linking import link_passes
from common.matching.lists import PassList
from common.matching.quality import match_quality
from common.model.schema import MatchPass
from owner_node.linking.match_tokens import all_passes, secret_order
from owner_node.values.match_keys import SUGGESTED, KeyColumns, parse_key
from tests.benchmarks.result import Result
from tests.fakes.misspelt import population

N_PERSONS = 1_000_000
N_OWNERS = 3
SHARED = 0.8
"""Share of the persons that all owners hold, and of their tokens that agree."""


def run() -> Iterator[Result]:
    """Measure both."""
    yield _tokens()
    yield from _linking()


def _tokens() -> Result:
    people = population(N_PERSONS, seed=1)
    texts = {name: pa.array(people[name].tolist()) for name in ("forename", "surname", "born", "postcode")}
    passes = [MatchPass(name, keys) for name, keys in SUGGESTED.items()]
    key = os.urandom(32)
    begun = time.perf_counter()
    handles = secret_order(key, "ab" * 32, N_PERSONS)
    for tokens in all_passes(KeyColumns(texts), passes, key, handles):
        del tokens
    ours = time.perf_counter() - begun
    columns = KeyColumns(texts)
    bare = 0.0
    for each in passes:
        made = [columns.key(parse_key(text)).to_pylist() for text in each.keys]
        messages = [b"".join(parts) for parts in zip(*made, strict=True)]
        begun = time.perf_counter()
        for message in messages:
            hmac.digest(key, message, "sha256")
        bare += time.perf_counter() - begun
        del made, messages
    detail = f"{N_PERSONS:,} persons × {len(passes)} passes in {ours:.1f} s, bare HMAC {bare:.1f} s"
    return Result("match tokens / bare HMAC", ours / bare, 1.0, detail)


def _linking() -> Iterator[Result]:
    draw = np.random.default_rng(2)
    orders = [draw.permutation(N_PERSONS).astype(np.uint32) for _ in range(N_OWNERS)]
    lists: list[list[PassList]] = [[] for _ in range(N_OWNERS)]
    for _ in SUGGESTED:
        common = draw.integers(0, 256, (N_PERSONS, 16), dtype=np.uint8)
        for number in range(N_OWNERS):
            tokens = draw.integers(0, 256, (N_PERSONS, 16), dtype=np.uint8)
            alike = draw.random(N_PERSONS) < SHARED
            alike[int(SHARED * N_PERSONS) :] = False
            tokens[alike] = common[alike]
            order = np.argsort(sortable(tokens), kind="stable")
            handles = orders[number]
            lists[number].append(PassList(sortable(tokens[order]), handles[order], N_PERSONS, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    linked = link_passes(lists, [N_PERSONS] * N_OWNERS)
    match_quality(list(SUGGESTED), lists, linked)
    seconds = time.perf_counter() - begun
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    detail = (
        f"{N_OWNERS} owners of {N_PERSONS:,} persons, {len(SUGGESTED)} passes; {before / 1024:.0f} MB before"
    )
    yield Result("linking by match keys, seconds", seconds, 20.0, detail)
    yield Result("linking by match keys, MB at its peak, tokens included", megabytes, 2048.0, detail)
