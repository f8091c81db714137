"""Tables across two owners with ten attributes of 16 bins each: encrypted rows, their sums, and a round.

What persons cost is compared with the multiplications that their rows are made of; and the whole, on two
processors that both owners share, with two minutes for a hundred thousand persons and twenty minutes for a
million. Times are processor times, of all processes: others on this machine do not count.
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
from common.synthesis.course import Design, Measured, Round, next_round
from common.synthesis.roles import Roles, Shared
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.crossed import add_rows, encrypted_rows, noisy_counts, noisy_sums, processes
from owner_node.synthesis.paillier import MODULUS_BYTES, Encryption, PrivateKey, new_key
from tests.benchmarks.result import Result
from tests.fakes.synthetic_owners import OPENING, TERMS, GroupOwner

_Done = TypeVar("_Done")
N_PERSONS = 10_000
N_ROWS = 500
N_ATTRIBUTES = 10
ROUND_SECONDS = 20.0
PROCESSORS = 2
MEMORY_LIMIT = 60.0
"""Megabytes."""


def run() -> Iterator[Result]:
    """Measure unit costs, then the whole."""
    yield _encryption()
    yield from _together()


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


def _owners() -> tuple[Roles, list[GroupOwner], Round]:
    draw = np.random.default_rng(1)
    attributes = tuple(Attribute(f"a{i}", AttributeType.INTEGER, 0, 15) for i in range(N_ATTRIBUTES))
    half = N_ATTRIBUTES // 2
    # So much budget that every value is a bin, as with a million persons.
    design = Design(attributes, N_PERSONS, Decimal(1000), homes=(0,) * half + (1,) * half)
    base = draw.integers(0, 16, N_PERSONS)
    columns = [(base + draw.integers(0, 4 + i, N_PERSONS)) % 16 for i in range(N_ATTRIBUTES)]
    sums: list[np.ndarray] = []
    asked = next_round(design, sums)
    rounds = []
    while not isinstance(asked, Measured):
        rounds.append(asked)
        sums.append(exact_answer(asked, columns))
        asked = next_round(design, sums)
    owners = [
        GroupOwner(
            {i: columns[i] for i in range(N_ATTRIBUTES) if design.homes[i] == number},
            Shared.everybody(N_PERSONS, 2, TERMS.persons),
            os.urandom(32),
            new_key(),
        )
        for number in range(2)
    ]
    return Roles(TERMS, design, rounds[1], OPENING), owners, rounds[2]


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


def _together() -> Iterator[Result]:
    roles, owners, last = _owners()
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
    message = noisy_sums(roles, holder, adder, other.shared, sums, last, OPENING, other.seed)
    noisy_counts(roles, holder, adder, own.shared, message, last, OPENING, PrivateKey(own.key))
    rounds = _processor_seconds() - begun
    traffic = sum(map(len, rows)) / N_PERSONS
    for n_persons, seconds in ((100_000, 120), (1_000_000, 1200)):
        taken = persons * n_persons + 2 * starting + rounds
        detail = (
            f"{taken:.0f} s on {PROCESSORS} processors, {traffic * n_persons / 1e6:.0f} MB; a person is "
            f"encrypted in {1e3 * (encrypting - starting) / N_PERSONS:.2f} ms, added in "
            f"{1e3 * (adding - starting) / N_PERSONS:.3f} ms"
        )
        yield Result(f"tables of {n_persons:,} persons / {seconds} s", taken / seconds, 1.0, detail)
    detail = f"{len(roles.tables(last, holder, adder))} tables: {rounds:.1f} s, {len(message) / 1000:.0f} kB"
    yield Result(f"a round / {ROUND_SECONDS:.0f} s", rounds / ROUND_SECONDS, 1.0, detail)
    detail = (
        f"{megabytes:.0f} MB, the rows in it: {traffic * N_PERSONS / 1e6:.0f} MB that daemons keep on disk"
    )
    yield Result(f"memory / {MEMORY_LIMIT:.0f} MB", megabytes / MEMORY_LIMIT, 1.0, detail)
