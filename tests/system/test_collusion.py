"""What parties can do with tokens, alone and together: the dictionary attack of docs/threat-model.md, made.

Owners a and b hold persons of a register that anybody may have. The aggregator keeps everything that reaches
it. Linking and publication of real processes are held back for a moment, so that its files can be copied.
"""

import hashlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from common.files import private_directory
from common.matching.lists import TOKEN_BYTES, decode_lists
from common.model.plan import Plan
from common.release.verification import verify_release
from common.wire.decoding import decode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.linking.linkage_key import load
from owner_node.linking.match_tokens import pass_key
from owner_node.linking.tokens import hash_messages, key_check, release_key, tokens
from owner_node.values.match_keys import SUGGESTED, KeyColumns, parse_key
from tests.fakes.misspelt import COLUMNS, population
from tests.system.small_owners import answer_of, declared, policy, start_release, state_dir, write

REGISTER = population(2000, seed=1)
HELD = {"a": REGISTER[:550], "b": REGISTER[50:600]}
N_COMMON = 500
MATCH = [{"name": name, "keys": list(keys)} for name, keys in SUGGESTED.items()]
NUMBER = {"type": "integer", "min": 0, "max": 5000}
DIGITS = 5
"""Of the identifiers: all that there can be are tried."""


@dataclass(frozen=True)
class Kept:
    """What an aggregator that keeps everything has of a release."""

    plan: Plan
    records: Mapping[str, int]
    blobs: Mapping[str, bytes]
    """Uploads and selections, by the names that they have in its folder."""
    folder: Path
    """The published release."""

    def lists(self, owner: str) -> list[set[bytes]]:
        """Return the tokens that an owner sent, pass by pass."""
        data = np.frombuffer(self.blobs[f"{owner}.tokens"], dtype=np.uint8)
        if not self.plan.passes:
            return [texts(data)]
        sent = decode_lists(data, len(self.plan.passes), self.records[owner], owner)
        return [texts(each.tokens) for each in sent]

    def persons(self, owner: str) -> list[dict[bytes, int]]:
        """Return the number of the person of every token that matched, pass by pass."""
        data = np.frombuffer(self.blobs[f"{owner}.tokens"], dtype=np.uint8)
        numbers = np.frombuffer(self.blobs[f"{owner}.selection"], dtype=">u4")
        sent = decode_lists(data, len(self.plan.passes), self.records[owner], owner)
        return [
            dict(zip(in_order(each.tokens), numbers[each.handles].tolist(), strict=True)) for each in sent
        ]

    def masked(self, owner: str, tmp: Path) -> dict[bytes, int]:
        """Return the masked value of every token of an owner's fragment."""
        path = tmp / f"{owner}.fragment"
        path.write_bytes(self.blobs[path.name])
        table = decode(path, self.plan, self.plan.assignment_of(owner), N_COMMON)
        (name,) = (each for each in table.column_names if each.startswith("number"))
        return dict(zip(table["token"].to_pylist(), table[name].to_pylist(), strict=True))


def in_order(array: np.ndarray) -> list[bytes]:
    """Return tokens as texts of sixteen bytes."""
    data = array.tobytes()
    return [data[start : start + TOKEN_BYTES] for start in range(0, len(data), TOKEN_BYTES)]


def texts(array: np.ndarray) -> set[bytes]:
    """Return different tokens."""
    return set(in_order(array))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Owners a and b, with 500 persons in common, who are linked by match keys (names) or numbers (ids)."""
    folder = tmp_path_factory.mktemp("collusion")
    says = dict.fromkeys("ab", policy(allow_intersect=True))
    for owner, table in HELD.items():
        column = f"number_{owner}"
        own = table.assign(person=[f"{number(each):05d}" for each in table["truth"]])
        own[column] = own["truth"]
        for name, how in (
            ("names", {"identifier": [], "normalise": [], "match": MATCH}),
            ("ids", {"normalise": ["trim"]}),
        ):
            write(folder, owner, name, own[[*COLUMNS, "person", column]].sample(frac=1, random_state=3))
            says[owner] += declared(
                name, attributes={column: NUMBER}, total_epsilon="1000", budget="people", **how
            )
    make_setup(folder, says)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


def number(person: int) -> int:
    """Return the identifier of a person of the register."""
    return (person * 7919 + 12_345) % 10**DIGITS


def kept(cluster: LocalCluster, release: str, dataset: str) -> Kept:
    """Make a vertical release, and copy what reaches the aggregator."""
    incoming = cluster.folder / "aggregator" / "state" / "incoming" / release
    blobs: dict[str, bytes] = {}

    def copy() -> None:
        blobs.update({path.name: path.read_bytes() for path in incoming.iterdir() if path.is_file()})

    releases, aside = cluster.folder / "releases", cluster.folder / "releases-aside"
    # A folder stands where the result of linking belongs, and then a file where releases do.
    in_the_way = private_directory(incoming / "b.selection")
    try:
        command = start_release(
            cluster, release, dataset=dataset, layout="vertical", on_mismatch="intersect", epsilon="200",
            k="5", mechanism="idp-joint", rank_noise="0",
        )  # fmt: skip
        cluster.aggregator.wait_for("step waits", release=release, timeout=100)
        copy()
        n_before = len(cluster.aggregator.entries)
        releases.rename(aside)
        releases.touch()
        # What linking selects is there until all have masked it.
        cluster.owner("b").signal(signal.SIGSTOP)
    finally:
        in_the_way.rmdir()
    try:
        cluster.aggregator.wait_for("addended", release=release, timeout=100)
        copy()
        cluster.owner("b").signal(signal.SIGCONT)
        cluster.aggregator.wait_for("step waits", release=release, after=n_before, timeout=100)
        copy()
    finally:
        releases.unlink()
        aside.rename(releases)
    code, document = answer_of(command)
    assert code == 0, document
    assert blobs.keys() >= {f"{owner}.{kind}" for owner in "ab" for kind in ("tokens", "fragment")}
    folder = releases / release
    n_records = {owner: len(table) for owner, table in HELD.items()}
    return Kept(verify_release(folder).plan, n_records, blobs, folder)


@pytest.fixture(scope="module")
def by_names(cluster: LocalCluster) -> Kept:
    """A release of persons that match keys link."""
    return kept(cluster, "names", "names")


@pytest.fixture(scope="module")
def by_numbers(cluster: LocalCluster) -> Kept:
    """A release of persons that an identifier links."""
    return kept(cluster, "numbers", "ids")


def name_tokens(key: bytes, plan: Plan) -> list[list[bytes]]:
    """Return the tokens of everybody in the register under a release key, pass by pass."""
    columns = KeyColumns({name: pa.array(REGISTER[name]) for name in COLUMNS})
    found = []
    for place, each in enumerate(plan.passes):
        keys = [columns.key(parse_key(name)) for name in each.keys]
        joined = pc.binary_join_element_wise(*keys, pa.scalar(b"", pa.large_binary()))
        found.append(
            in_order(hash_messages(joined.to_numpy(zero_copy_only=False), pass_key(key, place, each)))
        )
    return found


def number_tokens(key: bytes) -> list[bytes]:
    """Return the tokens of all identifiers that there can be."""
    return in_order(tokens([pa.array([f"{each:05d}" for each in range(10**DIGITS)])], key))


def key_of_owner(cluster: LocalCluster, owner: str, plan: Plan) -> bytes:
    """Return what an owner derives from its linkage key and what the aggregator knows of a release."""
    return release_key(load(state_dir(cluster, owner)).key, plan.release, plan.digest)


def keys_without_linkage_key(made: Kept) -> list[bytes]:
    """Return keys that an aggregator, or a user of the release, can make of everything public."""
    digest, name = made.plan.digest, made.plan.release
    checks = {found.consent.key_check for found in verify_release(made.folder).owners.values()}
    public = [
        bytes(32),
        bytes.fromhex(digest),
        *map(bytes.fromhex, checks),
        hashlib.sha256(made.plan.to_bytes()).digest(),
        hashlib.sha256(name.encode()).digest(),
        *(
            hashlib.sha256((made.folder / each).read_bytes()).digest()
            for each in ("manifest.json", "manifest.sig")
        ),
    ]
    assert not {key_check(each) for each in public} & checks
    return [*public, *(release_key(each, name, digest) for each in public)]


def test_an_owner_and_the_aggregator_find_everybody_by_names(cluster, by_names, tmp_path):
    """With b's linkage key and a's tokens, a register of names says who is at a, with which masked values."""
    guesses = name_tokens(key_of_owner(cluster, "b", by_names.plan), by_names.plan)
    sent, persons = by_names.lists("a"), by_names.persons("a")
    values = by_names.masked("a", tmp_path)
    at_a: set[int] = set()
    of_person: dict[int, int | None] = {}
    for guessed, listed, numbers in zip(guesses, sent, persons, strict=True):
        for person, token in enumerate(guessed):
            if token in listed:
                at_a.add(person)
                of_person.setdefault(person, values.get(numbers[token].to_bytes(TOKEN_BYTES)))
    assert at_a >= set(HELD["a"]["truth"])
    # Others resemble a person of a in a pass of few different values.
    assert len(at_a) < len(HELD["a"]) + 50
    known = {person: value for person, value in of_person.items() if value is not None}
    common = set(HELD["a"]["truth"]) & set(HELD["b"]["truth"])
    assert known.keys() >= common
    assert max(abs(known[person] - person) for person in common) < 60


def test_an_owner_and_the_aggregator_find_everybody_by_numbers(cluster, by_numbers, tmp_path):
    """No list of people is needed where all identifiers can be tried; their owner need not take part."""
    guesses = number_tokens(key_of_owner(cluster, "b", by_numbers.plan))
    (sent,) = by_numbers.lists("a")
    assert {guess for guess, token in enumerate(guesses) if token in sent} == {
        number(person) for person in HELD["a"]["truth"]
    }
    values = by_numbers.masked("a", tmp_path)
    for person in set(HELD["a"]["truth"]) & set(HELD["b"]["truth"]):
        assert abs(values[guesses[number(person)]] - person) < 60


def test_without_the_linkage_key_the_same_lists_find_nobody(by_names, by_numbers):
    """The aggregator and users of a release lack nothing but the key: no guess is a token."""
    for key in keys_without_linkage_key(by_names):
        for guessed, *listed in zip(
            name_tokens(key, by_names.plan), by_names.lists("a"), by_names.lists("b"), strict=True
        ):
            assert not set().union(*listed).intersection(guessed)
    for key in keys_without_linkage_key(by_numbers):
        assert not (by_numbers.lists("a")[0] | by_numbers.lists("b")[0]).intersection(number_tokens(key))
    lists = [*by_names.lists("a"), *by_numbers.lists("a")]
    assert len(set().union(*lists)) == sum(map(len, lists))


def test_one_release_says_nothing_about_tokens_of_another(cluster, by_names, by_numbers):
    """Whoever has the key of one release alone, from a stolen owner.db, opens no other."""
    other = key_of_owner(cluster, "b", by_names.plan)
    assert not by_numbers.lists("a")[0].intersection(number_tokens(other))


@pytest.mark.parametrize("release", ["by_names", "by_numbers"])
def test_nobody_but_the_aggregator_gets_tokens_of_others(cluster, release, request):
    """An owner with the key, and a user, have nothing to compare with: no token of a is in b's folder or in
    the release. Nor is one left at the aggregator.
    """
    made = request.getfixturevalue(release)
    only_at_a = set().union(*made.lists("a")) - set().union(*made.lists("b"))
    assert only_at_a
    places = (
        cluster.owner("b").config.parent,
        made.folder,
        cluster.folder / "aggregator",
        cluster.folder / "logs",
    )
    files = [path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()]
    assert len(files) > 10
    for data in files:
        assert not any(token in data or token.hex().encode() in data for token in only_at_a)
