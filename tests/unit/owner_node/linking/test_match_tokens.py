"""Tokens of match keys: only complete and unique keys leave, under handles and keys of their own."""

import hmac
import struct
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import ConfigurationError
from common.model.schema import MatchPass
from owner_node import loading
from owner_node.linking.match_check import PassCheck
from owner_node.linking.match_tokens import all_passes, key_columns, pass_key, secret_order
from owner_node.values.match_keys import KeyColumns
from tests.system.small_owners import declared

KEY, OTHER_KEY = bytes(32), b"\1" * 32
PASSES = (MatchPass("one", ("name:fold",)), MatchPass("two", ("name:fold", "born:year")))
person = st.tuples(
    st.sampled_from(["", "Eva", "EVA", "Bo", "Li", "Jo"]),
    st.sampled_from(["", "x", "1950-01-01", "1950-02-02"]),
)


def passes_of(people, handles=None, key=KEY, passes=PASSES):
    """The tokens of people under the handles 0, 1, …, or others."""
    names, born = zip(*people, strict=True)
    columns = KeyColumns({"name": pa.array(names), "born": pa.array(born)})
    return list(all_passes(columns, passes, key, np.arange(len(people)) if handles is None else handles))


@settings(deadline=None)
@given(st.lists(person, min_size=1, max_size=12))
def test_only_complete_and_unique_keys_get_a_token(people):
    """Equal to counting by hand, the token of every person recomputed; a key of two persons never leaves."""
    first, second = passes_of(people)
    by_hand: list[list[tuple[str, ...] | None]] = [
        [(name.upper(),) if name else None for name, _ in people],
        [(name.upper(), born[:4]) if name and "-" in born else None for name, born in people],
    ]
    for number, (found, keys) in enumerate(zip((first, second), by_hand, strict=True)):
        counts = Counter(key for key in keys if key)
        expected = {
            hmac.digest(
                pass_key(KEY, number, PASSES[number]),
                b"".join(struct.pack(">Q", len(part)) + part.encode() for part in key),
                "sha256",
            )[:16].ljust(16, b"\0"): place
            for place, key in enumerate(keys)
            if key and counts[key] == 1
        }
        assert found.sent.complete == sum(counts.values())
        assert found.sent.twice == sum(count == 2 for count in counts.values())
        assert found.same == sum(count * (count - 1) // 2 for count in counts.values())
        sent = zip(
            (each.ljust(16, b"\0") for each in found.sent.tokens.tolist()), found.sent.handles, strict=True
        )
        assert dict(sent) == expected
        assert list(found.sent.tokens) == sorted(found.sent.tokens)


def test_tokens_of_another_pass_or_release_match_nothing():
    """The same key values give other tokens in every pass and release."""
    people = [("Eva", "1950-01-01"), ("Bo", "1960-01-01")]
    alike = (MatchPass("one", ("name:fold",)), MatchPass("two", ("name:fold",)))
    first, second = passes_of(people, passes=alike)
    (other, _) = passes_of(people, key=OTHER_KEY, passes=alike)
    assert not set(first.sent.tokens) & set(second.sent.tokens)
    assert not set(first.sent.tokens) & set(other.sent.tokens)


def test_handles_are_a_secret_order_that_survives_a_restart():
    """A permutation, the same again, another one for every plan and every owner."""
    plan, other = "ab" * 32, "cd" * 32
    order = secret_order(KEY, plan, 1000)
    assert sorted(order) == list(range(1000))
    assert np.array_equal(order, secret_order(KEY, plan, 1000))
    for different in (secret_order(KEY, other, 1000), secret_order(OTHER_KEY, plan, 1000), np.arange(1000)):
        assert np.count_nonzero(order == different) < 20


@pytest.mark.parametrize(
    ("complete", "apart", "same", "bits", "warning"),
    [(100, 100, 0, 12.3, ""), (40, 40, 0, 9.6, "missing"), (100, 40, 90, 6.0, "fewer than half"),
     (100, 90, 5, 10.0, "low entropy")],
)  # fmt: skip
def test_weak_passes_are_warned_about(complete, apart, same, bits, warning):
    """Keys that are mostly missing, tell few apart, or that a dictionary would break."""
    found = PassCheck("one", complete, apart, same, bits, 100).warning
    assert (warning in found) if warning else not found


def load(tmp_path, **how):
    """Load a configuration with one data set."""
    from deploy.local_setup import section
    from owner_node import config

    path = tmp_path / "owner.toml"
    about = section("[owner]", {"id": "a", "trust_domain": "x.example", "state_dir": "s"})
    about += section("[tls]", {"ca": "a", "cert": "b", "key": "c"})
    about += section("[[aggregator]]", {"name": "hub", "address": "localhost:8443"})
    attributes = {"age": {"type": "integer", "min": 0, "max": 120}}
    path.write_text(about + declared("cohort", attributes=attributes, **how))
    return config.load(path)


def test_passes_are_declared_in_the_configuration(tmp_path):
    """They are in the schema in one form; columns may have other names in this source."""
    match = [{"name": "names", "keys": ["surname:soundex", "age"]}]
    owner = load(tmp_path, identifier=[], normalise=[], match=match, match_columns={"surname": "NAME1"})
    (dataset,) = owner.datasets
    assert dataset.passes == (MatchPass("names", ("surname:soundex", "age:fold")),)
    assert dataset.person_columns == ("NAME1", "age")
    assert owner.policy.limits.min_match_quality == Decimal(0)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"match": [{"name": "n", "keys": ["a:soundx"]}]}, "soundex"),
        ({"match": [{"name": "n", "keys": []}]}, "at least one key"),
        ({"match": [{"name": "n", "keys": ["a", "a:fold"]}]}, "each once"),
        ({"match": [{"name": "n\n", "keys": ["a"]}]}, "letters, digits"),
        ({"match": [{"name": "n", "keys": ["a"]}] * 2}, "different names"),
        ({"match": [{"name": "n", "keys": ["a"]}], "match_columns": {"b": "c"}}, "no column of a match key"),
        ({"match": [{"name": "n", "keys": ["a"]}], "identifier": "person"}, "there is an identifier"),
        ({"match": [{"name": "n", "keys": ["a"]}], "max_records_per_person": 2}, "no identifier"),
    ],
)
def test_passes_that_are_none(tmp_path, how, complaint):
    """Every problem is reported with what is accepted."""
    with pytest.raises(ConfigurationError, match=complaint):
        load(tmp_path, **({"identifier": [], "normalise": []} | how))


def test_simulated_persons_of_a_trial_are_told_apart_by_every_pass(tmp_path):
    """Whatever the building blocks, a trial links simulated persons at the same place, and no others."""
    match = [{"name": "names", "keys": ["surname:soundex", "id:digits-luhn", "age"]}]
    (dataset,) = load(tmp_path, identifier=[], normalise=[], match=match).datasets
    tokens = []
    for place in (0, 0, 1):
        simulated = replace(dataset, simulated=place)
        loaded = loading.load(simulated, [])
        columns = key_columns(simulated, loaded.identifiers, loaded.n_records)
        (found,) = all_passes(columns, simulated.passes, KEY, np.arange(loaded.n_records))
        assert len(found.sent.tokens) == found.sent.complete == loaded.n_records > 0
        tokens.append(set(found.sent.tokens))
    assert tokens[0] == tokens[1]
    assert not tokens[0] & tokens[2]
