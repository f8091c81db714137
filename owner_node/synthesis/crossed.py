"""Tables of attributes that two groups of owners hold of the same persons, without a joined table anywhere.

Every owner of one group, a holder, has a key of Paillier's cryptosystem. Those of the other group are adders.
Each holder counts with each adder the persons that both have.

1. The holder encrypts the bins of every person (`encrypted_rows`). It sends all adders the
   same rows, and with each the number of the owner that has the person in each of their groups.
2. The adder multiplies the ciphertexts of its own persons in each of its bins (`add_rows`).
3. The adder adds its whole noise to every counter, blinds the sums and sends them (`noisy_sums`).
4. The holder decrypts noisy counts (`noisy_counts`). It adds up those of all adders of a group, and adds its
   share of the noise (`held_tables`). The sums of all holders are the tables.

So the holder sees counts with the adder's noise, and uniform numbers. The adder sees ciphertexts, and so does
anyone who sees the messages in between. Everybody else sees the sums of all holders, with all noise
(`common.synthesis.accounting`).

Every message is a function of the plan, of the sums of earlier rounds, of the owner's pinned records and of
what it sealed: its seed, and its key. So a message that is asked for again is the same, byte for byte, and an
auditor who has both can compute it again.

What this does not protect from: a holder that encrypts other rows than its own, with other than one 1 in each
group. It would read a person's bin at the adder through the noise. The adder cannot see that. The audit can.

A message is its header, canonical JSON after its length in four bytes, and ciphertexts of 768 bytes. It is
sealed under a key of its kind, owners, round, plan and release (`owner_node.synthesis.sealed`): the header
does not state these.
"""

import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from gmpy2 import mpz

from common.arrays import Int64Array
from common.canonical import canonical, digest, document_digest, parse_json
from common.model.rounds import CIPHERTEXT_BYTES
from common.synthesis.binning import Attributes
from common.synthesis.counters import MOST_PERSONS, counted_with, width_of
from common.synthesis.schedule import Design, Question, Table, attributes_of, question_digest, split
from owner_node.masking.arrays import KEY_BYTES, BitSource
from owner_node.synthesis.counts import noisy_answer
from owner_node.synthesis.packing import Packing
from owner_node.synthesis.paillier import WIDE_BYTES, Encryption, PrivateKey, PublicKey, to_bytes
from owner_node.synthesis.roles import MessageContext, Roles, Shared
from owner_node.synthesis.sealed import Incoming
from owner_node.synthesis.shares import noise_share

PERSONS_AT_ONCE = 256
"""Of a piece of work: a quarter of a second for a processor, and 200 kB for each number of a person."""
_LENGTH_BYTES = 4
_LARGEST_HEADER = 2**16
_AHEAD = 8
"""Pieces of work that are under way."""
_MOST_PROCESSES = 4
"""Each of them takes 100 MB."""
_LEAST_PERSONS = 10_000
"""With fewer, one process is done before others have started."""

_NUMBER = re.compile(r"[1-9][0-9]{0,6}")
_Piece = TypeVar("_Piece")
_Done = TypeVar("_Done")


def stream(seed: bytes, terms: MessageContext, use: str, about: str, partner: int | None = None) -> BitSource:
    """Return the random bits of one use, from an owner's seed.

    Bits follow from all that the number depends on that they hide. Whoever got an owner to answer a round
    twice, since its state was put back, gets the same noise for the same question and the same rows: there is
    no second draw to average. After other rows, or to another question, all noise is another: no difference
    of two answers shows exact counts.

    Where there is one group, nothing that a message says beside the question is in it: another number of
    records, another signature of a key, the sums that other questions follow from bring no second draw. The
    number of the round is: a partition that is counted in two rounds has two draws.

    Args:
        seed: 32 random bytes of this release alone, kept like the data.
        about: Digests of what is hidden, hexadecimal.
        partner: The other owner; None where there is none.
    """
    salt, info = None, canonical({**terms.document(), "use": use, "about": about, "partner": partner})
    if not terms.persons:
        salt, info = terms.release.encode(), f"noise|{terms.round}|{about}".encode()
    return BitSource(bytearray(HKDF(hashes.SHA256(), KEY_BYTES, salt=salt, info=info).derive(seed)))


def packing_of(roles: Roles, holder: int) -> Packing:
    """Return where the counters of an owner's persons are.

    Raises:
        UsageError: If there are too many persons.
    """
    partners = counted_with(roles.design, roles.design.group_of(holder))
    n_counters = {place: roles.binnings[place].n_bins for place in partners}
    return Packing.of(n_counters, partners, width_of(roles.design))


def work_through(
    pool: Executor | None, function: Callable[[_Piece], _Done], pieces: Iterable[_Piece]
) -> Iterator[_Done]:
    """Yield the results of pieces of work in their order; few of them are under way at any time.

    Args:
        pool: Processes that do the work; None for this one. Threads would take turns: numbers are multiplied
            in microseconds, under Python's lock.
        function: A function of a module.
    """
    if pool is None:
        yield from map(function, pieces)
        return
    under_way: deque[tuple[_Piece, Future[_Done] | None]] = deque()
    for piece in pieces:
        under_way.append((piece, _submit(pool, function, piece)))
        if len(under_way) >= _AHEAD:
            yield _result(function, *under_way.popleft())
    while under_way:
        yield _result(function, *under_way.popleft())


def _submit(pool: Executor, function: Callable[[_Piece], _Done], piece: _Piece) -> Future[_Done] | None:
    """Give a piece to a process, which may be started now; None if none can be, or if one was killed."""
    with suppress(OSError, BrokenExecutor):
        return pool.submit(function, piece)
    return None


def _result(function: Callable[[_Piece], _Done], piece: _Piece, done: Future[_Done] | None) -> _Done:
    """Wait for a piece, or work it through here: what a killed process had done comes out the same."""
    if done is not None:
        with suppress(BrokenExecutor):
            return done.result()
    return function(piece)


@contextmanager
def processes(n_persons: int, n_processors: int) -> Iterator[Executor | None]:
    """Open the processes for `work_through`, one for each processor; None where one would be as fast."""
    number = min(n_processors, _MOST_PROCESSES)
    if number == 1 or n_persons < _LEAST_PERSONS:
        yield None
        return
    try:
        pool = ProcessPoolExecutor(number, get_context("spawn"), _begin_process)
    except OSError as error:
        raise OSError(error.errno, f"processes share semaphores in /dev/shm: {error.strerror}") from None
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    """Let this process end with the one that started it, however that ends; Ctrl-C is for that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


# --- rows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Encrypting:
    """A piece of work of the holder."""

    key: bytes = field(repr=False)
    base: bytes = field(repr=False)
    """Key of the bits of h."""
    blinds: bytes = field(repr=False)
    """Key of the bits of exponents."""
    packing: Packing
    first: int
    """Number of the first person."""
    bins: Mapping[int, Int64Array] = field(repr=False)
    n_persons: int
    """Of all pieces."""


@lru_cache(1)
def _encryption(key: bytes, base: bytes, n_numbers: int) -> Encryption:
    """Return the tables of a key, which for many numbers take half a second to make."""
    return Encryption(PrivateKey(key), BitSource(bytearray(base)), n_numbers)


def _encrypt(work: _Encrypting) -> bytes:
    numbers = work.packing.numbers(work.bins)
    if not numbers:
        # No named pair has an attribute of this owner and one of an adder.
        return b""
    first = work.first * work.packing.n_numbers * (WIDE_BYTES // 8)
    bits = BitSource(bytearray(work.blinds), first=first)
    encryption = _encryption(work.key, work.base, work.n_persons * work.packing.n_numbers)
    return to_bytes(encryption.encrypt(numbers, bits))


def encrypted_rows(
    roles: Roles,
    holder: int,
    columns: Mapping[int, Int64Array],
    shared: Shared,
    key: bytes,
    seed: bytes,
    pool: Executor | None = None,
) -> Iterator[bytes]:
    """Yield the message of a holder in pieces: its key, and the encrypted bins of its persons.

    A piece begins with one byte for each person and group of adders: who of them has that person.

    Args:
        holder: This owner.
        columns: Codes of its persons in the order of their tokens, `(n_persons,)` by attribute.
        shared: Which of them adders have.
        key: As `paillier.new_key` made it, for this release alone.
        seed: 32 random bytes for this release alone.
    """
    packing = packing_of(roles, holder)
    persons = {roles.name(adder): shared.digests[adder] for adder in roles.adders(holder)}
    yield _rows_header(packing, PrivateKey(key), shared.n_persons, persons)
    binned = roles.bins(holder, columns, shared.n_persons)
    bins = {attribute: binned[attribute] for attribute in packing.places}
    # All that the numbers follow from: with the same bits, two ciphertexts show how their numbers differ.
    # The digest of the opening is left out: an adder that gets the same rows again adds the same noise.
    questions = [question_digest(each) for each in roles.asked]
    about = document_digest({"questions": questions, "packing": _packing_digest(packing), "persons": persons})
    base, blinds = (stream(seed, roles.terms, use, about).copy_key() for use in ("base", "rows"))
    firsts = range(0, shared.n_persons, PERSONS_AT_ONCE)
    pieces = (
        _Encrypting(
            key, base, blinds, packing, first,
            {attribute: each[first : first + PERSONS_AT_ONCE] for attribute, each in bins.items()},
            shared.n_persons,
        )
        for first in firsts
    )  # fmt: skip
    partners = shared.partners[:, roles.adding(holder)]
    try:
        for first, rows in zip(firsts, work_through(pool, _encrypt, pieces), strict=True):
            yield partners[first : first + PERSONS_AT_ONCE].tobytes() + rows
    finally:
        _encryption.cache_clear()


def _rows_header(packing: Packing, key: PrivateKey, n_persons: int, persons: Mapping[str, str]) -> bytes:
    document = {
        "packing": _packing_digest(packing),
        "modulus": key.public.to_bytes().hex(),
        "roots": [each.hex() for each in key.roots()],
        "number_of_persons": n_persons,
        "persons": persons,
    }
    return _prefixed(canonical(document))


def _packing_digest(packing: Packing) -> str:
    places = [[attribute, *place] for attribute, place in packing.places.items()]
    return document_digest({"width": packing.width, "places": places})


def _prefixed(header: bytes) -> bytes:
    return len(header).to_bytes(_LENGTH_BYTES) + header


class _Incoming(Incoming):
    """A message with a header."""

    def header(self, expected: Mapping[str, str], free: Sequence[str] = ()) -> dict[str, Any]:
        """Return the header.

        Args:
            expected: The fields whose values are known.
            free: Names of all the others.

        Raises:
            IntegrityError: If the header is not canonical, or has other fields or values.
        """
        size = int.from_bytes(self.take(_LENGTH_BYTES))
        if size > _LARGEST_HEADER:
            raise self.wrong("has no header")
        data = self.take(size)
        try:
            document = parse_json(data)
            is_canonical = isinstance(document, dict) and canonical(document) == data
        except (ValueError, TypeError):
            raise self.wrong("has no header") from None
        if not isinstance(document, dict) or document.keys() != {*expected, *free}:
            raise self.wrong("has another header")
        for name, value in expected.items():
            if document[name] != value:
                raise self.wrong(f"is for another {name}")
        if not is_canonical:
            raise self.wrong("has a header that is not canonical")
        return document


# --- sums -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sums:
    """The sums of a holder's rows over the persons of each bin of an adder; they stay with the adder."""

    key: PublicKey
    """The holder's."""
    products: Mapping[int, Sequence[Sequence[mpz]]]
    """By the adder's attribute, bin and number of the packing."""

    @cached_property
    def basis(self) -> str:
        """SHA-256 of the products: of the rows that came, hexadecimal."""
        found = [each for bins in self.products.values() for product in bins for each in product]
        return digest(to_bytes(found))


@dataclass(frozen=True, slots=True)
class _Adding:
    """A piece of work of the adder."""

    modulus: bytes
    data: bytes = field(repr=False)
    n_numbers: int
    bins: Mapping[int, Int64Array] = field(repr=False)
    n_bins: Mapping[int, int]


def _add(work: _Adding) -> dict[int, list[list[mpz]]]:
    key = PublicKey(mpz.from_bytes(work.modulus))
    ciphertexts, n_numbers, square = key.parse(work.data), work.n_numbers, key.square
    found = {}
    for attribute, bins in work.bins.items():
        products = [[mpz(1)] * n_numbers for _ in range(work.n_bins[attribute])]
        for person, of_person in enumerate(bins.tolist()):
            product = products[of_person]
            for number in range(n_numbers):
                product[number] = product[number] * ciphertexts[person * n_numbers + number] % square
        found[attribute] = products
    return found


def add_rows(
    roles: Roles,
    holder: int,
    adder: int,
    columns: Mapping[int, Int64Array],
    shared: Shared,
    message: Iterable[bytes],
    pool: Executor | None = None,
) -> Sums:
    """Add the rows of a holder's persons that an adder has up, by the adder's bins.

    Args:
        holder: Who sent the rows.
        adder: This owner.
        columns: Codes of its persons in the order of their tokens, `(n_persons,)` by attribute.
        shared: Which of them holders have.
        message: The rows, in pieces of any size.

    Raises:
        IntegrityError: If the message is not that of these owners, persons and rounds, or its key or one of
            its ciphertexts is unusable.
    """
    packing = packing_of(roles, holder)
    incoming = _Incoming(message, f"owner {roles.name(holder)}")
    free = ("modulus", "roots", "number_of_persons", "persons")
    header = incoming.header({"packing": _packing_digest(packing)}, free)
    key = _key_of(header, roles.name(holder), incoming)
    n_persons = _n_persons_of(header, roles.name(adder), shared.digests[holder], incoming)
    positions = roles.positions(adder, shared, holder)
    counted = _cells_of(roles, holder, adder).wanted
    of_all = roles.bins(adder, columns, shared.n_persons)
    bins = {attribute: of_all[attribute][positions] for attribute in counted}
    n_bins = {attribute: roles.binnings[attribute].n_bins for attribute in bins}
    modulus, groups = key.to_bytes(), roles.adding(holder)
    own, place = groups.index(roles.design.group_of(adder)), roles.place(adder)

    def pieces() -> Iterator[_Adding]:
        taken = 0
        for first in range(0, n_persons, PERSONS_AT_ONCE):
            size = min(PERSONS_AT_ONCE, n_persons - first)
            partners = np.frombuffer(incoming.take(size * len(groups)), dtype=np.uint8).reshape(size, -1)
            data = np.frombuffer(incoming.take(size * packing.n_numbers * CIPHERTEXT_BYTES), dtype=np.uint8)
            mine = data.reshape(size, -1)[partners[:, own] == place]
            if taken + len(mine) > positions.size:
                raise incoming.wrong("is for other persons")
            of_piece = {each: of_all[taken : taken + len(mine)] for each, of_all in bins.items()}
            taken += len(mine)
            yield _Adding(modulus, mine.tobytes(), packing.n_numbers, of_piece, n_bins)
        if taken < positions.size:
            raise incoming.wrong("is for other persons")

    products = {each: [[mpz(1)] * packing.n_numbers for _ in range(n_bins[each])] for each in bins}
    for part in work_through(pool, _add, pieces()):
        for attribute, of_attribute in part.items():
            for product, more in zip(products[attribute], of_attribute, strict=True):
                product[:] = [a * b % key.square for a, b in zip(product, more, strict=True)]
    incoming.end()
    # Every ciphertext is a factor of the products of each attribute.
    key.check_units([each for product in next(iter(products.values()), ()) for each in product])
    return Sums(key, products)


def _n_persons_of(header: Mapping[str, Any], adder: str, digest: str, incoming: _Incoming) -> int:
    """Return the number of a holder's persons, among whom are those that an adder has, too."""
    persons, number = header["persons"], header["number_of_persons"]
    if not isinstance(persons, dict) or persons.get(adder) != digest:
        raise incoming.wrong("is for other persons")
    # Canonical documents have numbers as texts.
    if not isinstance(number, str) or not _NUMBER.fullmatch(number) or int(number) > MOST_PERSONS:
        raise incoming.wrong("has no number of persons")
    return int(number)


def _key_of(header: Mapping[str, Any], holder: str, incoming: _Incoming) -> PublicKey:
    modulus, roots = header["modulus"], header["roots"]
    if not isinstance(roots, list) or not all(isinstance(each, str) for each in (modulus, *roots)):
        raise incoming.wrong("has no key")
    try:
        return PublicKey.checked(bytes.fromhex(modulus), [bytes.fromhex(each) for each in roots], holder)
    except ValueError:
        raise incoming.wrong("has no key") from None


# --- rounds ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cells:
    """Whose ciphertexts an adder's message has, and in what order; both owners compute it."""

    roles: Roles
    packing: Packing
    tables: Sequence[Table]
    holder: int

    @cached_property
    def wanted(self) -> dict[int, list[int]]:
        """The holder's attributes that are counted, by attribute of the adder, both ascending."""
        found: dict[int, list[int]] = {}
        for table in self.tables:
            own, other = self.attributes(table)
            found.setdefault(other, []).append(own)
        return {other: sorted(found[other]) for other in sorted(found)}

    def attributes(self, table: Table) -> tuple[int, int]:
        """Return the holder's attribute of a table, and the adder's."""
        i, j = table.pair
        return (i, j) if self.roles.has_attribute(self.holder, i) else (j, i)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield attribute and bin of the adder, and number of the packing, of every ciphertext."""
        for other, own in self.wanted.items():
            numbers = sorted({self.packing.places[attribute].number for attribute in own})
            for bin_ in range(self.roles.binnings[other].n_bins):
                for number in numbers:
                    yield other, bin_, number


def _cells_of(roles: Roles, holder: int, adder: int) -> _Cells:
    tables = roles.tables(roles.design.group_of(holder), roles.design.group_of(adder))
    return _Cells(roles, packing_of(roles, holder), tables, holder)


def _sums_document(persons: str, key: PublicKey) -> dict[str, str]:
    return {"persons": persons, "key": digest(key.to_bytes())}


def noisy_sums(roles: Roles, holder: int, adder: int, shared: Shared, sums: Sums, seed: bytes) -> bytes:
    """Return an adder's message: sums with its whole noise, blinded.

    Args:
        holder: Who can decrypt it.
        adder: This owner.
        shared: Which of its persons holders have.
        sums: As `add_rows` returned them.
        seed: 32 random bytes for this release alone. Another seed means other noise, so a round is answered
            under one.
    """
    # With the same bits, sums of other rows would show the difference of both.
    cells = _cells_of(roles, holder, adder)
    noise = table_noise(roles, cells.tables, sums.basis, holder, seed)
    added: dict[int, dict[int, Int64Array]] = {other: {} for other in cells.wanted}
    for table, of_table in zip(cells.tables, noise, strict=True):
        own, other = cells.attributes(table)
        grid = of_table.reshape([each.n_bins for each in table.binnings])
        # By the adder's bins, then the holder's counters.
        added[other][own] = grid.T if own < other else grid
    bits = stream(seed, roles.terms, "blinds", roles.opening + sums.basis, holder)
    found = []
    for other, bin_, number in cells:
        of_bin = {own: each[bin_] for own, each in added[other].items()}
        addend = cells.packing.addend(number, of_bin, sums.key.modulus, bits)
        found.append(
            sums.key.blinded(sums.products[other][bin_][number], addend, sums.key.uniform_unit(bits))
        )
    header = canonical(_sums_document(shared.digests[holder], sums.key))
    return _prefixed(header) + to_bytes(found)


def table_noise(
    roles: Roles, tables: Sequence[Table], basis: str, holder: int, seed: bytes
) -> list[Int64Array]:
    """Return an adder's whole noise on its tables with a holder, `(n_numbers,)` each.

    Args:
        basis: Digest of the rows that came: `Sums.basis`.
        seed: 32 random bytes for this release alone.
    """
    return [
        noise_share(
            each.n_numbers,
            each.noise,
            stream(seed, roles.terms, "noise", question_digest(each) + basis, holder),
        )
        for each in tables
    ]


def held_tables(
    roles: Roles,
    tables: Sequence[Table],
    counts: Sequence[Sequence[Int64Array]],
    group: int,
    seed: bytes,
) -> list[Int64Array]:
    """Return a holder's part of tables: its counts with all adders of a group, and its share of the noise.

    Args:
        tables: The tables with that group.
        counts: As `noisy_counts` returned them, by adder.
        group: The adders' group.
        seed: 32 random bytes for this release alone.

    Returns:
        `(n_numbers,)` for each table.
    """
    basis = digest(b"".join(each.astype("<i8").tobytes() for of_adder in counts for each in of_adder))
    return [
        np.sum(of_table, axis=0, dtype=np.int64)
        + noise_share(
            table.n_numbers,
            roles.design.held_noise(table.noise, table.pair),
            stream(seed, roles.terms, "held", question_digest(table) + basis, group),
        )
        for table, of_table in zip(tables, zip(*counts, strict=True), strict=True)
    ]


def noisy_counts(
    roles: Roles, holder: int, adder: int, shared: Shared, message: bytes, key: PrivateKey
) -> list[Int64Array]:
    """Decrypt an adder's message: counts with its whole noise, which stay with the holder.

    Args:
        holder: This owner.
        adder: Who sent the message.
        shared: Which of this owner's persons adders have.
        message: As `noisy_sums` made it.
        key: The holder's.

    Returns:
        The tables with the adder's group in the order of the round, `(n_numbers,)` each.

    Raises:
        IntegrityError: If the message is not that of these owners, persons and this round.
    """
    cells = _cells_of(roles, holder, adder)
    incoming = _Incoming([message], f"owner {roles.name(adder)}")
    incoming.header(_sums_document(shared.digests[adder], key.public))
    places = list(cells)
    ciphertexts = key.public.parse(incoming.take(len(places) * CIPHERTEXT_BYTES))
    incoming.end()
    key.public.check_units(ciphertexts)
    by_bin: dict[tuple[int, int], list[Int64Array]] = {}
    for (other, _, number), ciphertext in zip(places, ciphertexts, strict=True):
        for own, counters in cells.packing.read(number, key.decrypt(ciphertext), key.public.modulus).items():
            by_bin.setdefault((other, own), []).append(counters)
    found = []
    for table in cells.tables:
        own, other = cells.attributes(table)
        grid = np.stack(by_bin[other, own])
        found.append((grid.T if own < other else grid).ravel())
    return found


@dataclass(frozen=True, slots=True)
class Member:
    """An owner of a group, and what it answers rounds from."""

    design: Design
    group: int
    columns: Mapping[int, Int64Array] = field(repr=False)
    """Codes of its persons, `(n_persons,)` by attribute."""
    terms: MessageContext
    seed: bytes = field(repr=False)
    """32 random bytes for this release alone, of the noise of all that it counts alone."""


def group_answer(
    member: Member, asked: Sequence[Question], across: Mapping[Attributes, Int64Array]
) -> Int64Array:
    """Return the answer to a round of an owner of one group: 0 for all that others answer, `(n_numbers,)`.

    Args:
        across: Tables that it is a holder of, as `held_tables` returned them, by their attributes.
    """

    def is_own(question: Question) -> bool:
        return {member.design.home(each) for each in attributes_of(question)} == {member.group}

    own = tuple(filter(is_own, asked))
    bits = (stream(member.seed, member.terms, "own", question_digest(each)) for each in own)
    counts = iter(split(own, noisy_answer(own, member.columns, bits)) if own else ())
    return np.concatenate([
        next(counts) if is_own(each)
        else across.get(attributes_of(each), np.zeros(each.n_numbers, dtype=np.int64))
        for each in asked
    ])  # fmt: skip
