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

from common.canonical import canonical
from common.errors import IntegrityError
from common.model.rounds import ParcelKind
from common.model.schema import Attribute, AttributeType
from common.synthesis import counters
from common.synthesis.counters import largest_parcel, traffic
from common.synthesis.schedule import Design, OneWay, attributes_of, next_round, split
from owner_node.synthesis import crossed
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.crossed import (
    PERSONS_AT_ONCE,
    Member,
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
from owner_node.synthesis.paillier import PrivateKey
from owner_node.synthesis.roles import Roles
from tests.fakes.small_keys import CIPHERTEXT_BYTES, small_keys
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


def design(n, owner_groups=(0, 1, 0, 1), delta="0", owners=(), pairs=()):
    """A release; groups' attributes alternate."""
    colluding = int(max(owners, default=1) > 1)
    return Design(
        ATTRIBUTES,
        n,
        Decimal(20),
        Decimal(delta),
        owners,
        colluding,
        named_pairs=pairs,
        owner_groups=owner_groups,
    )


def columns_of(n, seed=1):
    """Records with skewed and related attributes."""
    draw = np.random.default_rng(seed)
    base = draw.beta(1, 3, n)
    shares = [np.clip(base + draw.normal(0, 0.1, n), 0, 0.999) for _ in ATTRIBUTES]
    return [(share * each.n_values).astype(np.int64) for share, each in zip(shares, ATTRIBUTES, strict=True)]


@dataclass
class Pair:
    """Two owners up to the round of tables, and what they send each other."""

    design: Design
    columns: list
    owners: list[GroupOwner]
    roles: Roles
    holder: int
    adder: int

    @classmethod
    def of(cls, n, *, columns=None, owner_groups=(0, 1, 0, 1), owners=(), pairs=(), seed=1):
        """Make owners of so many persons; one-way counts are exact here."""
        made = design(n, owner_groups, owners=owners, pairs=pairs)
        columns = columns_of(n) if columns is None else columns
        sums, asked = [], next_round(made, [])
        while isinstance(asked, tuple) and isinstance(asked[0], OneWay):
            sums.append(exact_answer(asked, columns))
            asked = next_round(made, sums)
        assert isinstance(asked, tuple)
        roles = Roles(TERMS, made, asked, OPENING)
        holder, adder = (made.members(group)[-1] for group in made.order)
        return cls(made, columns, group_owners(made, columns, seed), roles, holder, adder)

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

    def answer(self, sums, **changes):
        """The adder's message."""
        owner = replace(self.owners[self.adder], **changes)
        return noisy_sums(self.roles, self.holder, self.adder, owner.shared, sums, owner.seed)

    def counts(self, message, **changes):
        """What the holder decrypts."""
        owner = replace(self.owners[self.holder], **changes)
        key = PrivateKey(owner.key)
        return noisy_counts(self.roles, self.holder, self.adder, owner.shared, message, key)

    def opened(self, opening):
        """The same in a round that another document opened."""
        return replace(self, roles=replace(self.roles, opening=opening))

    def noise(self, basis=""):
        """The adder's noise."""
        return table_noise(self.roles, self.tables, basis, self.holder, self.owners[self.adder].seed)

    def held(self, counts):
        """The holder's part, with its noise."""
        group = self.design.group_of(self.adder)
        return held_tables(self.roles, self.tables, [counts], group, self.owners[self.holder].seed)

    @property
    def tables(self):
        """The tables of both groups."""
        return self.roles.tables(*(self.design.group_of(each) for each in (self.holder, self.adder)))


@pytest.fixture(scope="module", autouse=True)
def _small_keys():
    """Keys of the size that these tests need."""
    with pytest.MonkeyPatch.context() as patch:
        small_keys(patch)
        yield


@pytest.fixture(scope="module")
def pair():
    """Two owners of 300 persons, with the rows of one of them."""
    made = Pair.of(300)
    message = made.rows()
    return made, message, made.added(message)


@pytest.mark.parametrize("pairs", [(), ((0, 1), (0, 2), (1, 2), (2, 3))])
def test_rows_are_no_more_than_public_numbers_say(pairs):
    """A plan states their size before anything is counted."""
    made = Pair.of(300, pairs=pairs)
    expected = 300 * CIPHERTEXT_BYTES * packing_of(made.roles, made.holder).n_numbers
    assert expected <= len(made.rows()) - 300 < expected + 2**16
    assert expected <= traffic(made.design).n_bytes <= 2 * expected


@pytest.mark.parametrize("owner_groups", [(0, 1, 0, 1), (0, 1, 1, 1), (1, 0, 0, 0)])
def test_parcels_are_no_larger_than_public_numbers_say(owner_groups):
    """Of every group, also of many persons: rows have a byte for each group and their seal, both a header."""
    made = Pair.of(300, owner_groups=owner_groups)
    rows = made.rows()
    for size, owner, kind in (
        (len(rows), made.holder, ParcelKind.ROWS),
        (len(made.answer(made.added(rows))), made.adder, ParcelKind.SUMS),
    ):
        most = largest_parcel(made.design, made.design.group_of(owner), kind, 300)
        assert size <= most <= 2 * size + 2**17
    many = replace(made.design, n_records=2**22, epsilon=Decimal(1))
    group = many.group_of(made.holder)
    assert largest_parcel(many, group, ParcelKind.ROWS, 2**22) <= traffic(many).n_bytes + 2 * 2**22 + 2**17


# --- tables ---------------------------------------------------------------------------------------------

NAMED = (0, 1), (0, 2), (1, 2), (2, 3)


@pytest.mark.parametrize(
    ("n", "owner_groups", "owners", "pairs", "capacity", "n_numbers"),
    [
        (1, (0, 1, 0, 1), (), (), None, 1),
        (37, (1, 1, 0, 1), (), (), None, 1),
        (37, (1, 0, 0, 0), (), (), None, 1),
        (37, (0, 1, 0, 1), (), (), 130, 2),
        (37, (0, 1, 0, 1), (2, 3), (), None, 1),
        # The last owners of both groups have no person in common.
        (5, (0, 1, 0, 1), (2, 3), (), None, 1),
        # One attribute is counted with one of the other group, another one with both.
        (37, (0, 1, 0, 1), (), NAMED, None, 2),
        (37, (0, 1, 0, 1), (2, 3), NAMED, None, 2),
    ],
)
def test_tables_are_those_of_a_joined_table_with_noise(
    n, owner_groups, owners, pairs, capacity, n_numbers, monkeypatch
):
    """Attributes in any order, persons of one number or several, bins without persons, all persons of two
    owners or some, all pairs or named ones: the counts of a joined table and the adder's noise.
    """
    if capacity:
        monkeypatch.setattr(counters, "CAPACITY", capacity)
    made = Pair.of(n, owner_groups=owner_groups, owners=owners, pairs=pairs)
    assert packing_of(made.roles, made.holder).n_numbers == n_numbers
    sums = made.added(made.rows())
    decrypted = made.counts(made.answer(sums))
    joined = shared_columns(made.roles, made.owners, made.holder, made.adder)
    assert {each.pair for each in made.tables} == set(filter(made.design.is_across, made.design.pairs))
    for table, counts, seen, noise in zip(
        made.tables, made.held(decrypted), decrypted, made.noise(sums.basis), strict=True
    ):
        assert seen.tolist() == (exact_answer([table], joined) + noise).tolist()
        assert counts.size == seen.size


@pytest.mark.parametrize(
    ("owner_groups", "owners", "pairs"),
    [
        ((0, 1, 0, 1), (), ()),
        ((0, 1, 2, 2), (), ()),
        ((0, 1, 0, 2), (1, 2, 1), ()),
        ((0, 1, 0, 1), (1, 2), NAMED),
        # The first group has no named pair with another one, or none with the last one.
        ((0, 1, 0, 2), (1, 2, 1), ((0, 2), (1, 3))),
        ((0, 1, 2, 2), (), ((0, 1), (1, 2), (2, 3))),
        # Nobody counts with another group.
        ((0, 1, 0, 1), (), ((0, 2),)),
    ],
)
def test_without_noise_counts_are_those_of_numpy(owner_groups, owners, pairs, monkeypatch):
    """Two groups, three, and groups of several owners; all pairs and named ones."""
    monkeypatch.setattr(crossed, "noise_share", lambda size, *_: np.zeros(size, dtype=np.int64))
    monkeypatch.setattr(crossed, "noisy_answer", lambda asked, columns, _: exact_answer(asked, columns))
    made, columns = design(100, owner_groups, owners=owners, pairs=pairs), columns_of(100)
    measured = synthesise_across(TERMS, made, group_owners(made, columns, 1)).measured
    assert [table.pair for table, _ in measured.tables] == list(made.pairs)
    for table, counts in measured.tables:
        sizes = [each.n_bins for each in table.binnings]
        bins = [each.bins(columns[place]) for place, each in zip(table.pair, table.binnings, strict=True)]
        expected = np.bincount(np.ravel_multi_index(bins, sizes), minlength=sizes[0] * sizes[1])
        assert counts.tolist() == expected.tolist()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("owner_groups", "owners", "delta"),
    [
        ((0, 1, 0, 1), (), "0"),
        ((0, 1, 0, 2), (1, 2, 1), "0.00001"),
    ],
)
def test_a_release_is_the_same_with_plain_integers(owner_groups, owners, delta, monkeypatch):
    """Groups of one owner and of several, both accountings: what experiments do without encryption is what it
    does, but for noise that depends on ciphertexts, which experiments do not have.
    """
    monkeypatch.setattr(Sums, "basis", "")
    made, columns = design(60, owner_groups, delta, owners), columns_of(60)
    owners = group_owners(made, columns, 3)
    encrypted, plain = (
        synthesise_across(TERMS, made, owners, counting) for counting in (encrypted_counting, plain_counting)
    )
    assert [each.tolist() for each in encrypted.codes] == [each.tolist() for each in plain.codes]
    for one, other in zip(encrypted.measured.sums, plain.measured.sums, strict=True):
        assert one.tolist() == other.tolist()
    # The noise of the owners is in it: other seeds give other tables.
    again = synthesise_across(TERMS, made, group_owners(made, columns, 4), plain_counting)
    assert again.measured.sums[-1].tolist() != plain.measured.sums[-1].tolist()


@pytest.mark.parametrize(("owners", "delta"), [((1, 3), "0"), ((2, 2), "0"), ((2, 2), "0.00001")])
def test_all_noise_together_has_the_stated_variance(owners, delta):
    """Of tables within groups and across them, of all owners; exact counts are those of all persons."""
    made, columns = design(300, owners=owners, delta=delta), columns_of(300)
    apart: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(24):
        released = synthesise_across(TERMS, made, group_owners(made, columns, seed), plain_counting)
        for asked, sums in zip(released.measured.rounds, released.measured.sums, strict=True):
            for question, numbers in zip(asked, split(asked, sums), strict=True):
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
    assert made.answer(again) == made.answer(sums)


def test_few_persons_and_one_processor_need_no_processes():
    """Processes are started where they save more time than that takes."""
    for few in ((9_999, 2), (10_000, 1)):
        with processes(*few) as pool:
            assert pool is None


def test_without_shared_memory_the_folder_is_named(monkeypatch):
    """An owner retries, as with any storage error, and its log says what is missing."""

    def fail(*_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(crossed, "ProcessPoolExecutor", fail)
    found = pytest.raises(FileNotFoundError, match="semaphores in /dev/shm: No such file")
    with found, processes(10**6, 2):
        pass


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
    answers = [
        made.answer(sums), made.opened("34" * 32).answer(sums), made.answer(sums, seed=bytes(32)),
    ]  # fmt: skip
    pieces = [ciphertexts_of(each) for each in answers]
    assert len({each for of_answer in pieces for each in of_answer}) == 3 * len(pieces[0])
    noises = [made.noise(basis)[0].tolist() for basis in ("", "34" * 32)]
    assert noises[0] != noises[1]
    other = table_noise(made.roles, made.tables, "", made.adder, made.owners[made.adder].seed)
    assert made.noise()[0].tolist() != other[0].tolist()
    # Rows of other bins, too: ciphertexts with the same blinds would show the difference of their rows.
    noise = replace(made.roles.asked[0].noise, size=2 * made.roles.asked[0].noise.size)
    for changes in (
        {"terms": replace(TERMS, release="other")},
        {"terms": replace(TERMS, persons="34" * 32)},
        {"asked": (replace(made.roles.asked[0], noise=noise), *made.roles.asked[1:])},
        {"design": replace(made.design, n_records=2**20)},
    ):
        other = replace(made, roles=replace(made.roles, **changes))
        assert not set(encrypted(other.rows())) & set(encrypted(message)), changes
    assert encrypted(made.opened("34" * 32).rows()) == encrypted(message)
    assert len(set(encrypted(message))) == 300


def test_what_is_asked_again_has_the_same_noise(pair):
    """An owner whose state was put back forgets what it sent. Another opening of the same question brings no
    second draw, of the adder or of the holder, nor does the same message blinded anew.
    """
    made, _, sums = pair
    rounds = [made.opened(opening) for opening in (OPENING, "34" * 32)]
    seen = [each.counts(each.answer(sums)) for each in rounds]
    opened = [each.held(counts) for each, counts in zip(rounds, seen, strict=True)]
    for one, other in (seen, opened):
        assert [each.tolist() for each in one] == [each.tolist() for each in other]
    alone = [
        group_answer(Member(made.design, 0, made.owners[0].columns, TERMS, bytes(32)), first, {})
        for first in (next_round(made.design, []), next_round(replace(made.design, n_records=301), []))
        if isinstance(first, tuple)
    ]
    assert alone[0].tolist() == alone[1].tolist()


def test_other_rows_have_other_noise(pair):
    """A holder that encrypts other rows once its adder's state was put back sees no exact difference: with
    the same bits one person's bin would be that. Nor is there one above the counters.
    """
    made, _, sums = pair
    holder = made.owners[made.holder]
    columns = {each: codes.copy() for each, codes in holder.columns.items()}
    for codes in columns.values():
        codes[0] = 0 if codes[0] else 1
    other = made.added(made.rows(columns=columns))
    assert other.basis != sums.basis
    messages = [made.answer(each) for each in (sums, other)]
    counts = [made.counts(each) for each in messages]
    cells = [np.concatenate(each) for each in counts]
    assert np.count_nonzero(cells[0] - cells[1]) > cells[0].size / 2
    noises = [np.concatenate(made.held(each)) - of_all for each, of_all in zip(counts, cells, strict=True)]
    assert noises[0].tolist() != noises[1].tolist()
    assert all(
        abs(one - two) > 2**60
        for one, two in zip(*(above_counters(made, each) for each in messages), strict=True)
    )


def above_counters(made, message):
    """What the holder decrypts above the counters of each number."""
    where, key = packing_of(made.roles, made.holder), PrivateKey(made.owners[made.holder].key)
    assert where.n_numbers == 1
    low = key.public.modulus // (key.public.modulus >> where.span(0)[1])
    return [key.decrypt(mpz.from_bytes(each)) // low for each in ciphertexts_of(message)]


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
    products = [of_bin[0] for of_attribute in sums.products.values() for of_bin in of_attribute]
    blinds = []
    for product_, ciphertext in zip(products, ciphertexts_of(made.answer(sums)), strict=True):
        sent = mpz.from_bytes(ciphertext)
        added = key.decrypt(sent) - key.decrypt(product_)
        unblinded = product_ * (1 + added * key.public.modulus) % key.public.square
        blind = sent * invert(unblinded, key.public.square) % key.public.square
        assert blind != 1
        assert powmod(blind, key.order, key.public.square) == 1
        blinds.append(blind)
    assert len(set(blinds)) == len(blinds) > 5


def test_what_is_sent_depends_on_the_noisy_counts_alone(pair, monkeypatch):
    """Another table at the adder, with noise that leads to the same noisy counts, and the same random bits:
    the holder decrypts the same numbers, what is above the counters included.
    """
    made, message, sums = pair
    first = made.answer(sums)
    seen = made.counts(first)
    others = [
        each[::-1] if made.roles.has_attribute(made.adder, place) else each
        for place, each in enumerate(made.columns)
    ]
    other = replace(Pair.of(300, columns=others), roles=made.roles)
    exact = [exact_answer([table], others) for table in made.tables]
    assert any(
        (one != exact_answer([table], made.columns)).any()
        for one, table in zip(exact, made.tables, strict=True)
    )
    moved = [count - each for count, each in zip(seen, exact, strict=True)]
    monkeypatch.setattr(crossed, "table_noise", lambda *_: moved)
    monkeypatch.setattr(Sums, "basis", sums.basis)
    again = other.answer(other.added(message))
    assert [each.tolist() for each in other.counts(again)] == [each.tolist() for each in seen]
    assert above_counters(other, again) == above_counters(made, first)
    assert min(above_counters(made, first)) > 2**60
    assert again != first


def test_noise_has_the_scale_of_the_round(pair):
    """On every cell, from both owners; half of it would be caught."""
    made, *_ = pair
    noise = made.tables[0].noise
    theirs = [made.noise(f"{number:064}") for number in range(60)]
    # Other counts have other noise.
    own = [
        [each - number for each in made.held([np.full(each.n_numbers, number) for each in made.tables])]
        for number in range(60)
    ]
    for drawn in (theirs, own):
        cells = np.concatenate([each for of_round in drawn for each in of_round])
        assert cells.var() == pytest.approx(noise.variance(1), rel=0.15)
    assert made.design.variance(noise, made.tables[0].pair) == 2 * noise.variance(1)


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
        ({"persons": {"1": "ef" * 32}}, "is for other persons"),
        ({"persons": {"2": "cd" * 32}}, "is for other persons"),
        ({"persons": "cd" * 32}, "is for other persons"),
        ({"number_of_persons": ["300"]}, "has no number of persons"),
        ({"number_of_persons": "0"}, "has no number of persons"),
        ({"number_of_persons": str(2**22 + 1)}, "has no number of persons"),
        ({"number_of_persons": "299"}, "is out of range|is for other persons"),
        ({"packing": "ef" * 32}, "is for another packing"),
        ({"more": "1"}, "has another header"),
        ({"roots": None}, "has another header"),
        ({"modulus": "no number"}, "has no key"),
        ({"roots": "ab"}, "has no key"),
        ({"roots": ["ab"]}, "does not come with the proof"),
        ({"modulus": "ff" * 64}, "has 512 bits, not 1,024"),
    ],
)
def test_rows_of_another_form_are_refused(pair, fields, fault):
    """Of other persons or numbers; without a key, with a weak one or another's proof."""
    made, message, _ = pair
    with pytest.raises(IntegrityError, match=fault):
        made.added(changed(message, **fields))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda m: m[:-1], "is truncated"),
        (lambda m: m[:-CIPHERTEXT_BYTES], "is truncated"),
        (lambda m: m + b"0", "has trailing bytes"),
        (lambda m: m + m[-CIPHERTEXT_BYTES:], "has trailing bytes"),
        (lambda m: m[:3], "is truncated"),
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
    """Of other persons or another key; too short or too long."""
    made, _, sums = pair
    answer = made.answer(sums)
    for fields, fault in (
        ({"persons": "ef" * 32}, "is for another persons"),
        ({"key": "ef" * 32}, "is for another key"),
    ):
        with pytest.raises(IntegrityError, match=fault):
            made.counts(changed(answer, **fields))
    with pytest.raises(IntegrityError, match="is for another key"):
        made.counts(answer, key=paillier_key(5))
    for wrong, fault in ((answer[:-1], "is truncated"), (answer + b"0", "has trailing bytes")):
        with pytest.raises(IntegrityError, match=fault):
            made.counts(wrong)


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
    few = Pair.of(50, owner_groups=(0, 1, 0, 0), owners=(1, 2))
    assert few.design.order == (1, 0)
    assert few.roles.adders(1) == few.roles.adders(2) == (0,)
    assert few.roles.adders(0) == few.roles.holders(1) == ()
    assert few.roles.holders(0) == (1, 2)
    counted = [each for each in made.roles.asked if made.design.is_across(attributes_of(each))]
    assert made.roles.tables(0, 1) == made.roles.tables(1, 0) == counted
    assert len(counted) == 4


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
