"""Tables of attributes that two owners hold of the same persons, without a joined table anywhere.

One of both owners, the holder, has a key of Paillier's cryptosystem, the other one is the adder.

1. The holder encrypts the bins of every person (`encrypted_rows`), once in a release. A holder of tables with
   several owners sends all of them the same rows.
2. The adder multiplies the ciphertexts of the persons of each of its bins (`add_rows`).
3. In a round the adder adds its whole noise to the counters that are asked for, hides the others, blinds the
   sums and sends them (`noisy_sums`).
4. The holder decrypts noisy counts, adds its own whole noise, and has the tables (`open_sums`).

So the holder sees counts with the adder's noise, and uniform numbers. The adder sees ciphertexts, and whoever
sees the messages in between sees ciphertexts. Everybody else sees the tables with both noises.

Every message is a function of the plan, of the sums of earlier rounds, of the owner's pinned records and of
what it sealed: its seed, and its key. So a message that is asked for again is the same, byte for byte, and an
auditor who has both can compute it again.

What this does not protect from: a holder that encrypts other rows than its own, with other than one 1 in each
group. It would read a person's bin at the adder through the noise. The adder cannot see that. The audit can.

A message is its header, canonical JSON after its length in four bytes, and ciphertexts of 768 bytes.
"""

import json
import os
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
from common.canonical import canonical, digest, document_digest
from common.errors import IntegrityError
from common.model.rounds import CIPHERTEXT_BYTES
from common.synthesis.counters import width_of
from common.synthesis.course import CoarseTable, Design, OneWay, Question, question_digest
from common.synthesis.model import Attributes
from common.synthesis.roles import CrossTable, Group, Roles, Terms
from common.synthesis.rounds import Coding
from owner_node.masking.arrays import KEY_BYTES, BitSource
from owner_node.synthesis.counts import noisy_answer
from owner_node.synthesis.packing import Packing
from owner_node.synthesis.paillier import (
    WIDE_BYTES,
    Encryption,
    PrivateKey,
    PublicKey,
    to_bytes,
)
from owner_node.synthesis.shares import noise_share

SEED_BYTES = 32
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

_Piece = TypeVar("_Piece")
_Done = TypeVar("_Done")


def stream(seed: bytes, terms: Terms, use: str, about: str, partner: int | None = None) -> BitSource:
    """Return the random bits of one use, from an owner's seed.

    Bits follow from all that the number depends on that they hide. Whoever got an owner to answer a round
    twice, since its state was put back, gets the same noise for the same question and the same rows: there is
    no second draw to average. After other rows, or to another question, all noise is another: no difference
    of two answers shows exact counts.

    Args:
        seed: 32 random bytes of this release alone, kept like the data.
        terms: The release.
        use: What for.
        about: Digests of what is hidden, hexadecimal.
        partner: The other owner; None where there is none.
    """
    info = canonical({**terms.document(), "use": use, "about": about, "partner": partner})
    return BitSource(bytearray(HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(seed)))


def packing_of(roles: Roles, holder: int) -> Packing:
    """Return where the counters of an owner's persons are.

    Raises:
        UsageError: If there are too many persons.
    """
    design = roles.design
    counters = {
        group: coding.n_bins
        for group, coding in roles.codings.items()
        if design.holders[group.attribute] == holder
    }
    return Packing.of(counters, width_of(design))


def work_through(
    pool: Executor | None, function: Callable[[_Piece], _Done], pieces: Iterable[_Piece]
) -> Iterator[_Done]:
    """Yield the results of pieces of work in their order; few of them are under way at any time.

    Args:
        pool: Processes that do the work; None for this one. Threads would take turns: numbers are multiplied
            in microseconds, under Python's lock.
        function: A function of a module.
        pieces: Its arguments.
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
    number, pool = min(n_processors, _MOST_PROCESSES), None
    if number > 1 and n_persons >= _LEAST_PERSONS:
        # Where processes cannot share locks, as without /dev/shm, this one does all.
        with suppress(OSError, ImportError, NotImplementedError):
            pool = ProcessPoolExecutor(number, get_context("spawn"), _begin_process)
    try:
        yield pool
    finally:
        if pool is not None:
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
    bins: Mapping[Group, Int64Array] = field(repr=False)


@lru_cache(1)
def _encryption(key: bytes, base: bytes) -> Encryption:
    """Return the tables of a key, which take a fifth of a second to make."""
    return Encryption(PrivateKey(key), BitSource(bytearray(base)))


def _encrypt(work: _Encrypting) -> bytes:
    first = work.first * work.packing.n_numbers * (WIDE_BYTES // 8)
    bits = BitSource(bytearray(work.blinds), first=first)
    return to_bytes(_encryption(work.key, work.base).encrypt(work.packing.numbers(work.bins), bits))


def encrypted_rows(
    roles: Roles,
    holder: int,
    columns: Mapping[int, Int64Array],
    key: bytes,
    seed: bytes,
    pool: Executor | None = None,
) -> Iterator[bytes]:
    """Yield the message of a holder in pieces: its key, and the encrypted bins of its persons.

    Args:
        roles: The roles in the release.
        holder: This owner.
        columns: Codes of its persons in the order of their tokens, `(n_persons,)` by attribute.
        key: As `paillier.new_key` made it, for this release alone.
        seed: 32 random bytes for this release alone.
        pool: Processes for the work.
    """
    packing = packing_of(roles, holder)
    yield _rows_header(roles, holder, packing, PrivateKey(key))
    bins = roles.bins(holder, columns, coarse=True)
    base, blinds = (stream(seed, roles.terms, use, roles.opening).copy_key() for use in ("base", "rows"))
    pieces = (
        _Encrypting(
            key, base, blinds, packing, first,
            {group: each[first : first + PERSONS_AT_ONCE] for group, each in bins.items()},
        )
        for first in range(0, roles.design.n_records, PERSONS_AT_ONCE)
    )  # fmt: skip
    try:
        yield from work_through(pool, _encrypt, pieces)
    finally:
        _encryption.cache_clear()


def _rows_header(roles: Roles, holder: int, packing: Packing, key: PrivateKey) -> bytes:
    document = {
        **_rows_document(roles, holder, packing),
        "modulus": key.public.to_bytes().hex(),
        "roots": [each.hex() for each in key.roots()],
    }
    return _prefixed(canonical(document))


def _rows_document(roles: Roles, holder: int, packing: Packing) -> dict[str, Any]:
    return {
        **roles.document(),
        "message": "rows",
        "holder": holder,
        "packing": _packing_digest(packing),
    }


def _packing_digest(packing: Packing) -> str:
    places = [[*map(int, group), *place] for group, place in packing.places.items()]
    return document_digest({"width": packing.width, "places": places})


def _prefixed(header: bytes) -> bytes:
    return len(header).to_bytes(_LENGTH_BYTES) + header


class _Incoming:
    """A message that arrives in pieces of any size.

    Args:
        pieces: The pieces.
        owner: Who sent it, in words.
    """

    def __init__(self, pieces: Iterable[bytes], owner: str) -> None:
        self._pieces, self._owner, self._held = iter(pieces), owner, bytearray()

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            IntegrityError: If the message ends before.
        """
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                raise self.wrong("ends too early")
            self._held += piece
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def end(self) -> None:
        """Check that nothing follows.

        Raises:
            IntegrityError: If something does.
        """
        if self._held or any(self._pieces):
            raise self.wrong("goes on after its end")

    def header(self, expected: Mapping[str, Any], free: Sequence[str] = ()) -> dict[str, Any]:
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
            document = json.loads(data)
        except ValueError:
            raise self.wrong("has no header") from None
        known = json.loads(canonical(expected))
        if not isinstance(document, dict) or document.keys() != {*known, *free}:
            raise self.wrong("has another header")
        for name, value in known.items():
            if document[name] != value:
                raise self.wrong(f"is for another {name.replace('_', ' ')}")
        if canonical(document) != data:
            raise self.wrong("has a header that is not canonical")
        return document

    def wrong(self, fault: str) -> IntegrityError:
        """Return an error about the message."""
        return IntegrityError(
            f"the message for counts of {self._owner} {fault}",
            "nothing was published; both sides must run compatible versions on the same persons",
        )


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
    message: Iterable[bytes],
    pool: Executor | None = None,
) -> Sums:
    """Add a holder's rows up, by the bins of an adder's persons.

    Args:
        roles: The roles in the release.
        holder: Who sent the rows.
        adder: This owner.
        columns: Codes of its persons in the order of their tokens, `(n_persons,)` by attribute.
        message: The rows, in pieces of any size.
        pool: Processes for the work.

    Raises:
        IntegrityError: If the message is not that of these owners, persons and rounds, or its key or one of
            its ciphertexts is unusable.
    """
    packing = packing_of(roles, holder)
    incoming = _Incoming(message, f"owner {roles.name(holder)}")
    header = incoming.header(_rows_document(roles, holder, packing), ("modulus", "roots"))
    key = _key_of(header, roles.name(holder), incoming)
    bins = {group.attribute: each for group, each in roles.bins(adder, columns, coarse=False).items()}
    n_bins = {each: roles.codings[Group(each, coarse=False)].n_bins for each in bins}
    modulus = key.to_bytes()

    def pieces() -> Iterator[_Adding]:
        for first in range(0, roles.design.n_records, PERSONS_AT_ONCE):
            of_piece = {each: of_all[first : first + PERSONS_AT_ONCE] for each, of_all in bins.items()}
            n_persons = min(PERSONS_AT_ONCE, roles.design.n_records - first)
            data = incoming.take(n_persons * packing.n_numbers * CIPHERTEXT_BYTES)
            yield _Adding(modulus, data, packing.n_numbers, of_piece, n_bins)

    products = {each: [[mpz(1)] * packing.n_numbers for _ in range(n_bins[each])] for each in bins}
    for part in work_through(pool, _add, pieces()):
        for attribute, of_attribute in part.items():
            for product, more in zip(products[attribute], of_attribute, strict=True):
                product[:] = [a * b % key.square for a, b in zip(product, more, strict=True)]
    incoming.end()
    # Every ciphertext is a factor of the products of each attribute.
    key.check_units([each for product in next(iter(products.values()), ()) for each in product])
    return Sums(key, products)


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
    """Whose ciphertexts the answer to a round has, and in what order; both owners compute it."""

    roles: Roles
    packing: Packing
    tables: Sequence[CrossTable]
    holder: int

    @cached_property
    def wanted(self) -> dict[int, list[Group]]:
        """The holder's groups that are asked for, by attribute of the adder, both ascending."""
        found: dict[int, list[Group]] = {}
        for table in self.tables:
            own, other = self.attributes(table)
            found.setdefault(other, []).append(Group(own, isinstance(table, CoarseTable)))
        return {other: sorted(found[other]) for other in sorted(found)}

    def attributes(self, table: CrossTable) -> tuple[int, int]:
        """Return the holder's attribute of a table, and the adder's."""
        i, j = table.pair
        return (i, j) if self.roles.design.holders[i] == self.holder else (j, i)

    def coding(self, other: int) -> Coding:
        """Return the adder's bins that are asked for of one of its attributes."""
        return self.roles.codings[Group(other, self.wanted[other][0].coarse)]

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield attribute and bin of the adder, and number of the packing, of every ciphertext."""
        for other, groups in self.wanted.items():
            for bin_ in range(self.coding(other).n_bins):
                for number in self.packing.needed(groups):
                    yield other, bin_, number


def _sums_document(roles: Roles, holder: int, adder: int, opening: str, key: PublicKey) -> dict[str, Any]:
    return {
        **roles.document(),
        "message": "sums",
        "holder": holder,
        "adder": adder,
        "opening": opening,
        "key": digest(key.to_bytes()),
    }


def noisy_sums(
    roles: Roles,
    holder: int,
    adder: int,
    sums: Sums,
    asked: Sequence[Question],
    opening: str,
    seed: bytes,
) -> bytes:
    """Return an adder's message in a round: sums with its whole noise, blinded.

    Args:
        roles: The roles in the release.
        holder: Who can decrypt it.
        adder: This owner.
        sums: As `add_rows` returned them.
        asked: The round.
        opening: SHA-256 of what opened it, hexadecimal.
        seed: 32 random bytes for this release alone. Another seed means other noise, so a round is answered
            under one.
    """
    # With the same bits, sums of other rows would show the difference of both, hidden counters included.
    packing = packing_of(roles, holder)
    cells = _Cells(roles, packing, roles.tables(asked, holder, adder), holder)
    noise = table_noise(roles, cells.tables, sums.basis, holder, seed)
    by_bin: dict[int, dict[Group, Int64Array]] = {other: {} for other in cells.wanted}
    for table, added in zip(cells.tables, noise, strict=True):
        own, other = cells.attributes(table)
        grid = added.reshape([each.n_bins for each in table.codings])
        # By the adder's bins, then the holder's counters.
        by_bin[other][Group(own, isinstance(table, CoarseTable))] = grid.T if own < other else grid
    bits = stream(seed, roles.terms, "blinds", opening + sums.basis, holder)
    found = []
    for other, bin_, number in cells:
        product = mpz(1)
        for fine in _fine_bins(roles, other, bin_, coarse=cells.wanted[other][0].coarse):
            product = product * sums.products[other][fine][number] % sums.key.square
        added = packing.addend(number, {group: each[bin_] for group, each in by_bin[other].items()}, bits)
        found.append(sums.key.blinded(product, added, sums.key.uniform_unit(bits)))
    header = canonical(_sums_document(roles, holder, adder, opening, sums.key))
    return _prefixed(header) + to_bytes(found)


def _fine_bins(roles: Roles, attribute: int, bin_: int, *, coarse: bool) -> list[int]:
    """Return the bins that a bin is made of."""
    if not coarse:
        return [bin_]
    fine, merged = (roles.codings[Group(attribute, coarse=each)] for each in (False, True))
    return [int(each) for each in np.unique(fine.labels[merged.labels == bin_])]


def table_noise(
    roles: Roles, tables: Sequence[CrossTable], basis: str, partner: int, seed: bytes
) -> list[Int64Array]:
    """Return an owner's whole noise on the tables with another one in a round, `(n_numbers,)` each.

    Args:
        roles: The roles in the release.
        tables: The tables.
        basis: Digest of what came from the other owner: `Sums.basis`, or `counts_basis`.
        partner: The other owner.
        seed: 32 random bytes for this release alone.
    """
    return [
        noise_share(
            each.n_numbers,
            each.noise,
            stream(seed, roles.terms, "noise", question_digest(each) + basis, partner),
        )
        for each in tables
    ]


def counts_basis(counts: Sequence[Int64Array]) -> str:
    """Return the SHA-256 of decrypted counts, hexadecimal; blinding them anew makes no difference."""
    return digest(b"".join(each.astype("<i8").tobytes() for each in counts))


def open_sums(
    roles: Roles,
    holder: int,
    adder: int,
    message: bytes,
    asked: Sequence[Question],
    opening: str,
    key: PrivateKey,
    seed: bytes,
) -> list[Int64Array]:
    """Decrypt an adder's message and add the holder's whole noise.

    Args:
        roles: The roles in the release.
        holder: This owner.
        adder: Who sent the message.
        message: As `noisy_sums` made it.
        asked: The round.
        opening: SHA-256 of what opened it, hexadecimal.
        key: The holder's.
        seed: 32 random bytes for this release alone.

    Returns:
        The tables of the two owners in the order of the round, `(n_numbers,)` each.

    Raises:
        IntegrityError: If the message is not that of these owners, persons and this round, or was not made
            of this holder's rows.
    """
    counts = noisy_counts(roles, holder, adder, message, asked, opening, key)
    tables = roles.tables(asked, holder, adder)
    noise = table_noise(roles, tables, counts_basis(counts), adder, seed)
    return [count + added for count, added in zip(counts, noise, strict=True)]


def noisy_counts(
    roles: Roles,
    holder: int,
    adder: int,
    message: bytes,
    asked: Sequence[Question],
    opening: str,
    key: PrivateKey,
) -> list[Int64Array]:
    """Decrypt an adder's message: the counts with its noise, which stay with the holder; see `open_sums`."""
    packing = packing_of(roles, holder)
    cells = _Cells(roles, packing, roles.tables(asked, holder, adder), holder)
    incoming = _Incoming([message], f"owner {roles.name(adder)}")
    incoming.header(_sums_document(roles, holder, adder, opening, key.public))
    places = list(cells)
    ciphertexts = key.public.parse(incoming.take(len(places) * CIPHERTEXT_BYTES))
    incoming.end()
    key.public.check_units(ciphertexts)
    by_bin: dict[tuple[int, Group], list[Int64Array]] = {}
    for (other, _, number), ciphertext in zip(places, ciphertexts, strict=True):
        value = key.decrypt(ciphertext)
        if not packing.fits(number, value):
            raise incoming.wrong("is not made of the rows of this owner")
        for group, counters in packing.read(number, value, cells.wanted[other]).items():
            by_bin.setdefault((other, group), []).append(counters)
    found = []
    for table in cells.tables:
        own, other = cells.attributes(table)
        grid = np.stack(by_bin[other, Group(own, isinstance(table, CoarseTable))])
        found.append((grid.T if own < other else grid).ravel())
    return found


def vertical_answer(
    design: Design,
    owner: int,
    asked: Sequence[Question],
    columns: Mapping[int, Int64Array],
    across: Mapping[Attributes, Int64Array],
    terms: Terms,
    seed: bytes,
) -> Int64Array:
    """Return an owner's answer to a round: 0 for everything that others answer, `(n_numbers,)`.

    Args:
        design: The release.
        owner: This owner.
        asked: The round.
        columns: Codes of its persons, `(n_persons,)` by attribute.
        across: Tables that it is the holder of, as `open_sums` returned them, by their attributes.
        terms: The release.
        seed: 32 random bytes for this release alone, for the noise of all its other answers.
    """
    found = []
    for question in asked:
        attributes = (question.attribute,) if isinstance(question, OneWay) else question.pair
        if {design.holders[each] for each in attributes} == {owner}:
            bits = stream(seed, terms, "own", question_digest(question))
            found.append(noisy_answer([question], columns, bits))
        else:
            found.append(across.get(attributes, np.zeros(question.n_numbers, dtype=np.int64)))
    return np.concatenate(found)
