"""Tables across two owners with ten attributes, in the bins that a plan with ε = 1 leads to.

What persons cost is compared with the multiplications that their rows are made of; and the whole, on two
processors that both owners share, with two minutes for a hundred thousand persons. A million persons have
more bins and several numbers each: an hour. A part of the persons is encrypted and added. Times are processor
times, of all processes: others on this machine do not count.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from decimal import Decimal
from typing import TypeVar

import numpy as np
from gmpy2 import mpz

from common.model.schema import Attribute, AttributeType
from common.synthesis.schedule import Design, OneWay, next_round
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.crossed import (
    add_rows,
    encrypted_rows,
    noisy_counts,
    noisy_sums,
    packing_of,
    processes,
)
from owner_node.synthesis.paillier import MODULUS_BYTES, Encryption, PrivateKey, new_key
from owner_node.synthesis.roles import Roles, Shared
from tests.benchmarks.result import Result
from tests.fakes.synthetic_owners import OPENING, TERMS, GroupOwner

_Done = TypeVar("_Done")
N_PERSONS = 10_000
"""Who are encrypted and added."""
N_ROWS = 500
N_ATTRIBUTES = 10
N_VALUES = 100
LIMITS = ((100_000, 120, 20), (1_000_000, 3600, 120))
"""Persons of a release, seconds, and seconds of the noisy sums, whose number grows with that of bins."""
PROCESSORS = 2
MEMORY_LIMIT = 60.0
"""Megabytes."""


def run() -> Iterator[Result]:
    """Measure unit costs, then the whole."""
    yield _encryption()
    for limits in LIMITS:
        yield from _together(*limits)


def _encryption() -> Result:
    key = PrivateKey(new_key())
    encryption, square = Encryption(key, SystemBits(), N_PERSONS), key.squares[0]
    numbers = [mpz(1) << 2000] * N_ROWS
    begun = time.process_time()
    encryption.encrypt(numbers, SystemBits())
    ours = time.process_time() - begun
    factors = [each % square for each in encryption.encrypt(numbers, SystemBits())]
    product = mpz(1)
    begun = time.process_time()
    for _ in range(MODULUS_BYTES):
        for each in factors:
            product = product * each % square
    bare = time.process_time() - begun
    detail = (
        f"{1000 * ours / N_ROWS:.2f} ms a row; {MODULUS_BYTES} multiplications {1000 * bare / N_ROWS:.2f} ms"
    )
    return Result("encrypting a row / its multiplications", ours / bare, 1.5, detail)


def _owners(n_persons: int) -> tuple[Roles, list[GroupOwner]]:
    """Return owners of some of the persons of a release."""
    draw, half = np.random.default_rng(1), N_ATTRIBUTES // 2
    attributes = tuple(
        Attribute(f"a{i}", AttributeType.INTEGER, 0, N_VALUES - 1) for i in range(N_ATTRIBUTES)
    )
    delta = Decimal(1) / (10 * n_persons)
    design = Design(attributes, n_persons, Decimal(1), delta, owner_groups=(0,) * half + (1,) * half)
    base = draw.integers(0, N_VALUES, n_persons)
    columns = [(base + draw.integers(0, 4 + i, n_persons)) % N_VALUES for i in range(N_ATTRIBUTES)]
    sums: list[np.ndarray] = []
    while isinstance(asked := next_round(design, sums), tuple) and isinstance(asked[0], OneWay):
        sums.append(exact_answer(asked, columns))
    assert isinstance(asked, tuple)
    owners = [
        GroupOwner(
            {i: columns[i][:N_PERSONS] for i in range(N_ATTRIBUTES) if design.owner_groups[i] == number},
            Shared.everybody(N_PERSONS, 2, TERMS.persons),
            os.urandom(32),
            new_key(),
        )
        for number in range(2)
    ]
    return Roles(TERMS, design, asked, OPENING), owners


def _processor_seconds() -> float:
    """Of this process, and of those that have ended."""
    own, ended = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def _in_processes(work: Callable[[Executor], _Done]) -> tuple[_Done, float]:
    """Return what work in new processes returns, and the processor seconds of all."""
    begun = _processor_seconds()
    with processes(N_PERSONS, PROCESSORS) as pool:
        assert pool is not None
        list(pool.map(abs, range(PROCESSORS)))
        done = work(pool)
    return done, _processor_seconds() - begun


def _together(n_persons: int, seconds: int, sums_seconds: int) -> Iterator[Result]:
    roles, owners = _owners(n_persons)
    holder, adder = roles.design.order
    own, other = owners[holder], owners[adder]
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, starting = _in_processes(lambda _: None)
    rows, encrypting = _in_processes(
        lambda pool: list(encrypted_rows(roles, holder, own.columns, own.shared, own.key, own.seed, pool))
    )
    sums, adding = _in_processes(
        lambda pool: add_rows(roles, holder, adder, other.columns, other.shared, rows, pool)
    )
    persons = (encrypting + adding - 2 * starting) / N_PERSONS / PROCESSORS
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest) / 1024
    begun = _processor_seconds()
    message = noisy_sums(roles, holder, adder, other.shared, sums, other.seed)
    noisy_counts(roles, holder, adder, own.shared, message, PrivateKey(own.key))
    answering = _processor_seconds() - begun
    traffic = sum(map(len, rows)) / N_PERSONS
    bins = sorted({each.n_bins for each in roles.binnings.values()})
    numbers = packing_of(roles, holder).n_numbers
    taken = persons * n_persons + 2 * starting + answering
    detail = (
        f"{taken:.0f} s on {PROCESSORS} processors, {traffic * n_persons / 1e6:.0f} MB; {bins[0]} to "
        f"{bins[-1]} bins, {numbers} numbers a person; a person is encrypted in "
        f"{1e3 * (encrypting - starting) / N_PERSONS:.2f} ms, added in "
        f"{1e3 * (adding - starting) / N_PERSONS:.3f} ms"
    )
    yield Result(f"tables of {n_persons:,} persons / {seconds} s", taken / seconds, 1.0, detail)
    detail = f"{len(roles.tables(0, 1))} tables: {answering:.1f} s, {len(message) / 1000:.0f} kB"
    yield Result(f"noisy sums / {sums_seconds} s", answering / sums_seconds, 1.0, detail)
    detail = (
        f"{megabytes:.0f} MB, the rows in it: {traffic * N_PERSONS / 1e6:.0f} MB that daemons keep on disk"
    )
    yield Result(f"memory / {MEMORY_LIMIT:.0f} MB", megabytes / MEMORY_LIMIT, 1.0, detail)
