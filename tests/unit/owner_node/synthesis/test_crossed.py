"""Two owners count together: exact tables, the same bytes again, and nothing but noisy counts for anyone."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from decimal import Decimal
from multiprocessing import parent_process

import numpy as np
import pytest
from gmpy2 import invert, mpz, powmod

from common.canonical import canonical, digest
from common.errors import IntegrityError
from common.model.rounds import CIPHERTEXT_BYTES
from common.model.schema import Attribute, AttributeType
from common.synthesis.counters import GUARD_BITS, traffic
from common.synthesis.course import (
    CoarseTable,
    Design,
    Measured,
    OneWay,
    Score,
    Table,
    attributes_of,
    next_round,
)
from common.synthesis.roles import Roles
from owner_node.synthesis import crossed, packing
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.crossed import (
    PERSONS_AT_ONCE,
    Sums,
    add_rows,
    encrypted_rows,
    group_answer,
    held_tables,
    noisy_counts,
    noisy_sums,
    packing_of,
    processes,
    table_noise,
    work_through,
)
from owner_node.synthesis.paillier import PrivateKey, PublicKey
from tests.fakes.synthetic_owners import (
    OPENING,
    TERMS,
    GroupOwner,
    encrypted_counting,
    group_owners,
    paillier_key,
    plain_counting,
    shared_columns,
    synthesise_across,
)

ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 50),
    Attribute("sex", AttributeType.BOOLEAN, 0, 1),
    Attribute("pay", AttributeType.INTEGER, 0, 2_000),
    Attribute("job", AttributeType.CATEGORY, 0, 4, categories=tuple("abcde")),
)


def design(n, homes=(0, 1, 0, 1), delta="0", owners=()):
    """A release; groups' attributes alternate."""
    colluding = int(max(owners, default=1) > 1)
    return Design(ATTRIBUTES, n, Decimal(20), Decimal(delta), owners, colluding, homes=homes)


def columns_of(n, seed=1):
    """Records with skewed and related attributes."""
    draw = np.random.default_rng(seed)
    base = draw.beta(1, 3, n)
    shares = [np.clip(base + draw.normal(0, 0.1, n), 0, 0.999) for _ in ATTRIBUTES]
    return [(share * each.n_values).astype(np.int64) for share, each in zip(shares, ATTRIBUTES, strict=True)]


@dataclass
class Pair:
    """Two owners up to the round of coarse tables, and what they send each other."""

    design: Design
    columns: list
    owners: list[GroupOwner]
    sums: list
    roles: Roles
    holder: int
    adder: int

    @classmethod
    def of(cls, n, *, columns=None, homes=(0, 1, 0, 1), owners=(), seed=1):
        """Make owners of so many persons; one-way counts are exact here."""
        made, columns = design(n, homes, owners=owners), columns_of(n) if columns is None else columns
        sums, asked = [], next_round(made, [])
        while isinstance(asked, tuple) and isinstance(asked[0], OneWay):
            sums.append(exact_answer(asked, columns))
            asked = next_round(made, sums)
        assert isinstance(asked, tuple)
        roles = Roles(TERMS, made, asked, OPENING)
        holder, adder = (made.members(group)[-1] for group in made.order)
        return cls(made, columns, group_owners(made, columns, seed), sums, roles, holder, adder)

    def rows(self, pool=None, **changes):
        """The holder's message."""
        owner = replace(self.owners[self.holder], **changes)
        return b"".join(
            encrypted_rows(self.roles, self.holder, owner.columns, owner.shared, owner.key, owner.seed, pool)
        )

    def added(self, message, pool=None, size=10**6):
        """The adder's sums."""
        pieces = (message[start : start + size] for start in range(0, len(message), size))
        owner = self.owners[self.adder]
        return add_rows(self.roles, self.holder, self.adder, owner.columns, owner.shared, pieces, pool)

    def answer(self, sums, asked, opening=OPENING, **changes):
        """The adder's message."""
        owner = replace(self.owners[self.adder], **changes)
        return noisy_sums(self.roles, self.holder, self.adder, owner.shared, sums, asked, opening, owner.seed)

    def counts(self, message, asked, opening=OPENING, **changes):
        """What the holder decrypts."""
        owner = replace(self.owners[self.holder], **changes)
        key = PrivateKey(owner.key)
        return noisy_counts(self.roles, self.holder, self.adder, owner.shared, message, asked, opening, key)

    def noise(self, tables, basis=""):
        """The adder's noise."""
        return table_noise(self.roles, tables, basis, self.holder, self.owners[self.adder].seed)

    def held(self, tables, counts):
        """The holder's part, with its noise."""
        group = self.design.group_of(self.adder)
        return held_tables(self.roles, tables, [counts], group, self.owners[self.holder].seed)

    def tables(self, asked):
        """The tables that both are asked for."""
        groups = (self.design.group_of(each) for each in (self.holder, self.adder))
        return self.roles.tables(asked, *groups)

    def last_round(self):
        """The tables of the chosen pairs, after a choice from exact coarse tables."""
        asked = next_round(self.design, [*self.sums, exact_answer(self.roles.asked, self.columns)])
        assert isinstance(asked, tuple)
        assert isinstance(asked[-1], Table)
        return asked


@pytest.fixture(scope="module")
def pair():
    """Two owners of 300 persons, with the rows of one of them."""
    made = Pair.of(300)
    message = made.rows()
    return made, message, made.added(message)


def test_rows_are_no_more_than_public_numbers_say(pair):
    """A plan states their size before anything is counted."""
    made, message, _ = pair
    assert len(message) - 2**16 < traffic(made.design).n_bytes


# --- tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "homes", "owners", "capacity", "n_numbers"),
    [
        (1, (0, 1, 0, 1), (), None, 1),
        (37, (1, 1, 0, 1), (), None, 1),
        (37, (1, 0, 0, 0), (), None, 1),
        (37, (0, 1, 0, 1), (), 310, 2),
        (37, (0, 1, 0, 1), (2, 3), None, 1),
        # The last owners of both groups have no person in common.
        (5, (0, 1, 0, 1), (2, 3), None, 1),
    ],
)
def test_tables_are_those_of_a_joined_table_with_noise(n, homes, owners, capacity, n_numbers, monkeypatch):
    """Coarse tables and chosen ones, attributes in any order, persons of one number or several, bins without
    persons, all persons of two owners or some: the counts of a joined table and the adder's noise, and then
    the holder's.
    """
    if capacity:
        monkeypatch.setattr(packing, "CAPACITY", capacity)
    made = Pair.of(n, homes=homes, owners=owners)
    assert packing_of(made.roles, made.holder).n_numbers == n_numbers
    sums = made.added(made.rows())
    for opening, asked in (("34" * 32, made.roles.asked), ("56" * 32, made.last_round())):
        tables = made.tables(asked)
        assert tables or isinstance(asked[0], Table)
        message = made.answer(sums, asked, opening)
        decrypted = made.counts(message, asked, opening)
        joined = shared_columns(made.roles, made.owners, made.holder, made.adder)
        noises = made.noise(tables, sums.basis)
        for table, counts, seen, theirs in zip(
            tables, made.held(tables, decrypted), decrypted, noises, strict=True
        ):
            exact = exact_answer([table], joined)
            assert seen.tolist() == (exact + theirs).tolist()
            assert counts.size == seen.size


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("homes", "owners", "delta"),
    [
        ((0, 1, 0, 1), (), "0"),
        ((0, 1, 0, 2), (1, 2, 1), "0.00001"),
    ],
)
def test_a_release_is_the_same_with_plain_integers(homes, owners, delta, monkeypatch):
    """Groups of one owner and of several, both accountings: what experiments do without encryption is what it
    does, but for noise that depends on ciphertexts, which experiments do not have.
    """
    monkeypatch.setattr(Sums, "basis", "")
    made, columns = design(60, homes, delta, owners), columns_of(60)
    owners = group_owners(made, columns, 3)
    encrypted, plain = (
        synthesise_across(TERMS, made, owners, counting) for counting in (encrypted_counting, plain_counting)
    )
    assert [each.tolist() for each in encrypted.codes] == [each.tolist() for each in plain.codes]
    for one, other in zip(encrypted.measured.measurements, plain.measured.measurements, strict=True):
        assert one.counts.tolist() == other.counts.tolist()
    # The noise of the owners is in it: other seeds give other tables.
    again = synthesise_across(TERMS, made, group_owners(made, columns, 4), plain_counting)
    assert again.measured.measurements[-1].counts.tolist() != plain.measured.measurements[-1].counts.tolist()


@pytest.mark.parametrize(("owners", "delta"), [((1, 3), "0"), ((2, 2), "0"), ((2, 2), "0.00001")])
def test_all_noise_together_has_the_stated_variance(owners, delta):
    """Of tables within groups and across them, of all owners; exact counts are those of all persons."""
    made, columns = design(300, owners=owners, delta=delta), columns_of(300)
    apart: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(8):
        released = synthesise_across(TERMS, made, group_owners(made, columns, seed), plain_counting)
        for asked, sums in zip(released.measured.rounds, released.measured.sums, strict=True):
            ends = np.cumsum([each.n_numbers for each in asked])[:-1]
            for question, numbers in zip(asked, np.split(sums, ends), strict=True):
                if not isinstance(question, Score):
                    off = numbers - exact_answer([question], columns)
                    attributes = attributes_of(question)
                    scale = made.variance(question.noise, attributes) ** 0.5
                    apart[made.is_across(attributes)] += (off / scale).tolist()
    for of_kind in apart.values():
        assert np.var(of_kind) == pytest.approx(1, rel=0.1)


# --- the same bytes -------------------------------------------------------------------------------------


def test_messages_are_the_same_bytes_again(pair):
    """Whatever processes do the work, and in whatever pieces a message arrives."""
    made, message, sums = pair
    with processes(10_000, 2) as pool:
        assert pool is not None
        assert made.rows(pool) == message
        again = made.added(message, pool, 1_009)
    assert again.products == sums.products
    asked = made.roles.asked
    assert made.answer(again, asked) == made.answer(sums, asked)


def test_few_persons_and_one_processor_need_no_processes(monkeypatch):
    """Processes are started where they save more time than that takes, and where there can be any."""

    def refused(*_):
        raise PermissionError(13, "no shared memory")

    for few in ((9_999, 2), (10_000, 1)):
        with processes(*few) as pool:
            assert pool is None
    monkeypatch.setattr(crossed, "ProcessPoolExecutor", refused)
    with processes(10_000, 2) as pool:
        assert pool is None


WORKING = """
import os
from owner_node.synthesis.crossed import processes

with processes(10_000, 2) as pool:
    print(*{pool.submit(os.getpid).result() for _ in range(20)}, flush=True)
    input()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes of others are watched on Linux alone")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    """A daemon that is killed leaves no process behind that holds its key and records."""
    program = tmp_path / "working.py"
    program.write_text(f"if __name__ == '__main__':\n{textwrap.indent(WORKING, '    ')}")
    with subprocess.Popen(
        [sys.executable, program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        assert started.stdout is not None
        watched = [os.pidfd_open(int(each)) for each in started.stdout.readline().split()]
        started.kill()
    assert watched
    for each in watched:
        assert select.select([each], [], [], 60)[0]
        os.close(each)


def test_messages_of_other_seeds_rounds_and_releases_have_nothing_in_common(pair):
    """No ciphertext is ever the same, and no noise."""
    made, message, sums = pair
    asked = made.roles.asked
    tables = made.tables(asked)
    answers = [
        made.answer(sums, asked), made.answer(sums, asked, "34" * 32),
        made.answer(sums, asked, seed=bytes(32)),
    ]  # fmt: skip
    pieces = [ciphertexts_of(each) for each in answers]
    assert len({each for of_answer in pieces for each in of_answer}) == 3 * len(pieces[0])
    noises = [made.noise(tables, basis)[0].tolist() for basis in ("", "34" * 32)]
    assert noises[0] != noises[1]
    other = table_noise(made.roles, tables, "", made.adder, made.owners[made.adder].seed)
    assert made.noise(tables)[0].tolist() != other[0].tolist()
    # Rows of other bins, too: ciphertexts with the same blinds would show the difference of their rows.
    for changes in ({"terms": replace(TERMS, release="other")}, {"opening": "34" * 32}):
        other = replace(made, roles=replace(made.roles, **changes))
        assert not set(encrypted(other.rows())) & set(encrypted(message))
    assert len(set(encrypted(message))) == 300


def test_what_is_asked_again_has_the_same_noise(pair):
    """An owner whose state was put back forgets what it sent. Another opening of the same question brings no
    second draw, of the adder or of the holder, nor does the same message blinded anew.
    """
    made, _, sums = pair
    asked, tables = made.roles.asked, made.tables(made.roles.asked)
    messages = {opening: made.answer(sums, asked, opening) for opening in (OPENING, "34" * 32)}
    seen = [made.counts(message, asked, opening) for opening, message in messages.items()]
    opened = [made.held(tables, counts) for counts in seen]
    for one, other in (seen, opened):
        assert [each.tolist() for each in one] == [each.tolist() for each in other]
    alone = [
        group_answer(made.design, 0, first, made.owners[0].columns, {}, TERMS, bytes(32))
        for first in (next_round(made.design, []), next_round(replace(made.design, n_records=301), []))
        if isinstance(first, tuple)
    ]
    assert alone[0].tolist() == alone[1].tolist()


def test_other_rows_have_other_noise(pair):
    """A holder that encrypts other rows once its adder's state was put back sees no exact difference, of what
    it asked for or of what is hidden. With the same bits one person's bin would be the difference.
    """
    made, _, sums = pair
    asked, holder = made.roles.asked, made.owners[made.holder]
    columns = {each: codes.copy() for each, codes in holder.columns.items()}
    for codes in columns.values():
        codes[0] = 0 if codes[0] else 1
    other = made.added(made.rows(columns=columns))
    assert other.basis != sums.basis
    counts = [np.concatenate(made.counts(made.answer(each, asked), asked)) for each in (sums, other)]
    assert np.count_nonzero(counts[0] - counts[1]) > counts[0].size / 2
    tables = made.tables(asked)
    split = [np.split(each, np.cumsum([table.n_numbers for table in tables])[:-1]) for each in counts]
    noises = [np.concatenate(made.held(tables, each)) - np.concatenate(each) for each in split]
    assert noises[0].tolist() != noises[1].tolist()
    key = PrivateKey(holder.key)
    last = made.last_round()
    values = [
        [key.decrypt(mpz.from_bytes(each)) for each in ciphertexts_of(made.answer(each_sums, last))]
        for each_sums in (sums, other)
    ]
    # Guards of hidden runs are filled with random bits: one person would not reach them.
    assert all(hidden_bits(made, abs(one - two)) > 60 for one, two in zip(*values, strict=True))


def encrypted(rows):
    """The ciphertexts of rows of persons with one number, without who else has these."""
    size = 4 + int.from_bytes(rows[:4])
    pieces = [rows[size + start :] for start in range(0, len(rows) - size, PERSONS_AT_ONCE * 769)]
    n_persons = (len(rows) - size) // 769
    found = []
    for number, piece in enumerate(pieces):
        of_piece = min(PERSONS_AT_ONCE, n_persons - number * PERSONS_AT_ONCE)
        found += ciphertexts_of(bytes(4) + piece[of_piece : of_piece * 769])
    return found


def ciphertexts_of(message):
    """The ciphertexts of a message."""
    body = message[4 + int.from_bytes(message[:4]) :]
    return [body[start : start + CIPHERTEXT_BYTES] for start in range(0, len(body), CIPHERTEXT_BYTES)]


# --- what is seen ---------------------------------------------------------------------------------------


def test_sums_are_blinded_anew(pair):
    """A holder that guessed bins and noise could not confirm it: each ciphertext that it is sent has its own
    blind, an N-th residue. A message without blinds would be caught here.
    """
    made, _, sums = pair
    key = PrivateKey(made.owners[made.holder].key)
    asked = made.last_round()
    blinds = []
    for product_, ciphertext in zip(
        all_products(made, sums, asked), ciphertexts_of(made.answer(sums, asked)), strict=True
    ):
        sent = mpz.from_bytes(ciphertext)
        added = key.decrypt(sent) - key.decrypt(product_)
        unblinded = product_ * (1 + added * key.public.modulus) % key.public.square
        blind = sent * invert(unblinded, key.public.square) % key.public.square
        assert blind != 1
        assert powmod(blind, key.order, key.public.square) == 1
        blinds.append(blind)
    assert len(set(blinds)) == len(blinds) > 5


def all_products(made, sums, asked):
    """The products of rows that the ciphertexts of an answer start from."""
    where = packing_of(made.roles, made.holder)
    tables = made.tables(asked)
    others = sorted(
        {each for table in tables for each in table.pair if made.roles.has_attribute(made.adder, each)}
    )
    assert where.n_numbers == 1
    return [of_bin[0] for other in others for of_bin in sums.products[other]]


def test_what_is_sent_depends_on_the_noisy_counts_alone(pair, monkeypatch):
    """Another table at the adder, with the noise that leads to the same noisy counts: the holder decrypts the
    same counters, and numbers that hide the others.
    """
    made, message, sums = pair
    asked = made.last_round()
    tables = made.tables(asked)
    seen = made.counts(made.answer(sums, asked), asked)
    others = [
        each[::-1] if made.roles.has_attribute(made.adder, place) else each
        for place, each in enumerate(made.columns)
    ]
    other = Pair.of(300, columns=others)
    other.roles = made.roles
    exact = [exact_answer([table], others) for table in tables]
    assert any(
        (one != exact_answer([table], made.columns)).any() for one, table in zip(exact, tables, strict=True)
    )
    moved = [count - each for count, each in zip(seen, exact, strict=True)]
    monkeypatch.setattr(crossed, "table_noise", lambda *_: moved)
    again = other.answer(other.added(message), asked)
    assert [each.tolist() for each in other.counts(again, asked)] == [each.tolist() for each in seen]
    # Bits beyond the asked counters: guards of hidden runs are filled with random bits, in both.
    key = PrivateKey(made.owners[made.holder].key)
    for one, two in zip(ciphertexts_of(made.answer(sums, asked)), ciphertexts_of(again), strict=True):
        values = [key.decrypt(mpz.from_bytes(each)) for each in (one, two)]
        assert all(hidden_bits(made, value) > 60 for value in values)


def hidden_bits(made, value):
    """How many of the guards' 100 bits after the coarse counters the random number reaches."""
    where = packing_of(made.roles, made.holder)
    coarse = [place for group, place in where.places.items() if group.coarse]
    end = coarse[-1].start + coarse[-1].n_counters * where.width
    return int((value >> end) & ((1 << GUARD_BITS) - 1)).bit_length()


def test_noise_has_the_scale_of_the_round(pair):
    """On every cell, from both owners, whatever the round; half of it would be caught."""
    made, *_ = pair
    for asked in (made.roles.asked, made.last_round()):
        tables = made.tables(asked)
        none = [np.zeros(each.n_numbers, dtype=np.int64) for each in tables]
        expected = tables[0].noise.variance(1)
        theirs = [made.noise(tables, f"{number:064}") for number in range(60)]
        # Other counts have other noise.
        own = [made.held(tables, [each + number for each in none]) for number in range(60)]
        for number, of_round in enumerate(own):
            own[number] = [each - number for each in of_round]
        for drawn in (theirs, own):
            cells = np.concatenate([each for of_round in drawn for each in of_round])
            assert cells.var() == pytest.approx(expected, rel=0.15)
        assert made.design.variance(tables[0].noise, tables[0].pair) == 2 * expected


# --- bad input ------------------------------------------------------------------------------------------


def changed(message, /, **fields):
    """A message with other fields in its header; None takes one out."""
    size = int.from_bytes(message[:4])
    document = json.loads(message[4 : 4 + size]) | fields
    header = canonical({name: value for name, value in document.items() if value is not None})
    return len(header).to_bytes(4) + header + message[4 + size :]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"release": "other"}, "is for another release"),
        ({"plan_digest": "ef" * 32}, "is for another plan digest"),
        ({"persons": {"1": "ef" * 32}}, "is for other persons"),
        ({"persons": {"2": "cd" * 32}}, "is for other persons"),
        ({"persons": "cd" * 32}, "is for other persons"),
        ({"roles": "ef" * 32}, "is for another roles"),
        ({"number_of_persons": ["300"]}, "has no number of persons"),
        ({"number_of_persons": "0"}, "has no number of persons"),
        ({"number_of_persons": str(2**22 + 1)}, "has no number of persons"),
        ({"number_of_persons": "299"}, "is out of range|is for other persons"),
        ({"holder": "2"}, "is for another holder"),
        ({"message": "sums"}, "is for another message"),
        ({"packing": "ef" * 32}, "is for another packing"),
        ({"more": "1"}, "has another header"),
        ({"roots": None}, "has another header"),
        ({"modulus": "no number"}, "has no key"),
        ({"roots": "ab"}, "has no key"),
        ({"roots": ["ab"]}, "does not come with the proof"),
        ({"modulus": "ff" * 256}, "has 2,048 bits, not 3,072"),
    ],
)
def test_rows_of_another_form_are_refused(pair, fields, fault):
    """Of another release, plan, set of persons, owner; without a key, with a weak one or another's proof."""
    made, message, _ = pair
    with pytest.raises(IntegrityError, match=fault):
        made.added(changed(message, **fields))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda m: m[:-1], "ends too early"),
        (lambda m: m[:-CIPHERTEXT_BYTES], "ends too early"),
        (lambda m: m + b"0", "goes on after its end"),
        (lambda m: m + m[-CIPHERTEXT_BYTES:], "goes on after its end"),
        (lambda m: m[:3], "ends too early"),
        (lambda m: b"\xff" + m[1:], "has no header"),
        (lambda m: m[:4] + b"[" + m[5:], "has no header"),
        (lambda m: (len(m) - 4).to_bytes(4) + m[4:], "has no header"),
        (lambda m: m[:-CIPHERTEXT_BYTES] + bytes(CIPHERTEXT_BYTES), "out of range"),
        (lambda m: m[:-CIPHERTEXT_BYTES] + b"\xff" * CIPHERTEXT_BYTES, "out of range"),
    ],
)
def test_broken_rows_are_refused(pair, change, fault):
    """Too short, too long, no header, and numbers that are no ciphertexts."""
    made, message, _ = pair
    with pytest.raises(IntegrityError, match=fault):
        made.added(change(message))


@pytest.mark.parametrize("modulus", [b"1.5", b"NaN", rb'"\ud800"', b"[" * 9_000 + b"]" * 9_000])
def test_a_header_that_is_no_document_is_its_senders_fault(pair, modulus):
    """JSON that has no canonical form, or is too deep, is no internal fault of the owner that reads it."""
    made, message, _ = pair
    message = changed(message, modulus="?")
    size = int.from_bytes(message[:4])
    header = message[4 : 4 + size].replace(b'"?"', modulus)
    with pytest.raises(IntegrityError, match="has no header"):
        made.added(len(header).to_bytes(4) + header + message[4 + size :])


def test_a_header_has_one_form(pair):
    """The same fields in other bytes are refused: digests are of bytes."""
    made, message, _ = pair
    size = int.from_bytes(message[:4])
    spaced = json.dumps(json.loads(message[4 : 4 + size]), sort_keys=True).encode()
    with pytest.raises(IntegrityError, match="not canonical"):
        made.added(len(spaced).to_bytes(4) + spaced + message[4 + size :])


def test_a_ciphertext_with_a_factor_of_the_key_is_refused(pair):
    """It would make sums that are no ciphertexts."""
    made, message, _ = pair
    factor = PrivateKey(made.owners[made.holder].key).primes[0].to_bytes(CIPHERTEXT_BYTES)
    with pytest.raises(IntegrityError, match="a factor of its key"):
        made.added(message[:-CIPHERTEXT_BYTES] + factor)


def test_sums_of_another_form_are_refused(pair):
    """Of another round, owner, or rows; too short or too long; of another key."""
    made, _, sums = pair
    asked = made.roles.asked
    answer = made.answer(sums, asked)
    for fields, fault in (
        ({"opening": "34" * 32}, "is for another opening"),
        ({"adder": "2"}, "is for another adder"),
        ({"key": "ef" * 32}, "is for another key"),
    ):
        with pytest.raises(IntegrityError, match=fault):
            made.counts(changed(answer, **fields), asked)
    with pytest.raises(IntegrityError, match="is for another opening"):
        made.counts(answer, asked, "34" * 32)
    with pytest.raises(IntegrityError, match="is for another key"):
        made.counts(answer, asked, key=paillier_key(5))
    for wrong, fault in ((answer[:-1], "ends too early"), (answer + b"0", "goes on after its end")):
        with pytest.raises(IntegrityError, match=fault):
            made.counts(wrong, asked)
    # The header of these rows, but ciphertexts of another key.
    foreign = replace(sums, key=PublicKey(PrivateKey(paillier_key(5)).public.modulus))
    answer = changed(made.answer(foreign, asked), key=digest(sums.key.to_bytes()))
    with pytest.raises(IntegrityError, match=r"is not made of the rows of this owner|out of range"):
        made.counts(answer, asked)


def test_columns_of_other_persons_are_refused(pair):
    """An owner whose own records are not as many as were linked."""
    made, message, _ = pair
    fewer = {place: each[:-1] for place, each in made.owners[made.holder].columns.items()}
    with pytest.raises(IntegrityError, match="299 records are not those of the 300 persons"):
        made.rows(columns=fewer)
    owner = made.owners[made.adder]
    own = {place: each[:1] for place, each in owner.columns.items()}
    with pytest.raises(IntegrityError, match="1 records are not those of the 300 persons"):
        add_rows(made.roles, made.holder, made.adder, own, owner.shared, [message])


def test_rows_of_more_or_fewer_common_persons_are_refused():
    """An adder counts each of its persons once, whatever a holder says about who has whom."""
    made = Pair.of(37, owners=(2, 3))
    message = made.rows()
    size = 4 + int.from_bytes(message[:4])
    place, partners = made.roles.place(made.adder), message[size : size + 18]
    for wrong in (partners.replace(bytes([place]), b"\0", 1), partners.replace(b"\0", bytes([place]), 1)):
        with pytest.raises(IntegrityError, match="is for other persons"):
            made.added(message[:size] + wrong + message[size + len(wrong) :])


def test_roles_follow_from_the_values(pair):
    """Owners that can have fewer bins encrypt, of equal ones the first group; every two have one order."""
    made, *_ = pair
    few = Pair.of(50, homes=(0, 1, 0, 0), owners=(1, 2))
    assert few.design.order == (1, 0)
    assert few.roles.adders(1) == few.roles.adders(2) == (0,)
    assert few.roles.adders(0) == few.roles.holders(1) == ()
    assert few.roles.holders(0) == (1, 2)
    counted = [each for each in made.roles.asked if isinstance(each, CoarseTable)]
    assert made.roles.tables(made.roles.asked, 0, 1) == counted
    assert not isinstance(next_round(made.design, made.sums), Measured)


def _killed_once(number):
    """Double a number; the third one kills the process that does it, unless it is this one."""
    if number == 3 and parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_what_a_killed_process_had_to_do_is_done_here():
    """A process that the system kills for its memory ends no release."""
    with processes(10**6, 2) as pool:
        assert pool is not None
        assert list(work_through(pool, _killed_once, range(12))) == list(range(0, 24, 2))
