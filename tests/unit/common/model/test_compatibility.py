"""Which versions work together, and which documents of later versions are read."""

import json
from dataclasses import replace

import pytest

from common.canonical import canonical, digest
from common.errors import VersionError
from common.model.compatibility import FEATURES, HERE, Software, check_features, common_protocol, features_of
from common.model.plan import Plan
from common.wire.answers import signed_answer
from common.wire.software import software_here
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.releases import make_plan

PLAN = make_plan([(["age"], ["a", "b"])])


def speaking(oldest: int, newest: int, version: str = "7.0") -> Software:
    """Return what somebody runs."""
    return Software(version, oldest, newest, ())


def test_the_newest_common_protocol():
    """Everybody speaks it, and nobody has a newer one that everybody speaks."""
    here = speaking(2, 3)
    assert common_protocol("side", {"a": speaking(1, 2), "b": speaking(2, 4)}, here) == 2
    assert common_protocol("side", {"a": speaking(3, 4), "b": speaking(2, 4)}, here) == 3
    assert common_protocol("side", {}) == HERE.newest


def test_who_has_to_be_upgraded():
    """Those that are behind are named, this side included, and nobody else."""
    with pytest.raises(
        VersionError, match=r"protocol 2 is needed, and 1 is the newest of owner a \(version 0\.9\)$"
    ) as one:
        common_protocol("side", {"owner a": speaking(1, 1, "0.9"), "owner b": speaking(2, 3)}, speaking(2, 3))
    assert one.value.hint == "upgrade owner a (version 0.9)"
    with pytest.raises(VersionError) as own:
        common_protocol("side", {"owner b": speaking(2, 3)}, speaking(1, 1, "0.8"))
    assert own.value.hint == "upgrade side (version 0.8)"


def test_owners_that_lack_a_feature():
    """Each is named with its version, what it lacks, and which version has that."""
    check_features(["rank-noise"], {"a": HERE})
    with pytest.raises(
        VersionError, match=r"b \(version 0\.0\.9\): rank-noise, known since 0\.1\.0$"
    ) as caught:
        check_features(
            ["rank-noise"], {"a": HERE, "b": replace(HERE, version="0.0.9", features=("taxonomy",))}
        )
    assert caught.value.details == {"owners": {"b": ["rank-noise"]}}


def test_features_follow_from_the_plan():
    """A plan states what it uses; one that states less, or more, is not read."""
    plan = replace(PLAN, owner_column=True)
    assert features_of(PLAN) == ()
    assert features_of(plan) == ("owner-column",)
    assert list(HERE.features) == sorted(FEATURES)
    for stated in ([], ["owner-column", "overlap"]):
        with pytest.raises(ValueError, match="canonical form of a Plan"):
            Plan.from_bytes(canonical(plan.to_document() | {"features": stated}))


def test_fields_of_later_versions_stay_in_the_bytes():
    """They are ignored at any depth; the digest, which is signed, is that of the bytes received."""
    document = json.loads(PLAN.to_bytes())
    document["colour"] = "green"
    document["tasks"][0]["attributes"][0]["depth"] = {"metres": "3"}
    data = canonical(document)
    read = Plan.from_bytes(data)
    assert read == PLAN
    assert read.to_bytes() == data
    assert read.digest == digest(data) != PLAN.digest
    assert replace(read, purpose="other").to_bytes() == replace(PLAN, purpose="other").to_bytes()


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("", "owner_column", False),
        ("", "epsilon_table", "1"),
        ("", "min", "0"),
        ("linking", "min_match_quality", "0"),
        ("", "Evil\n", "x"),
        ("", "number", 5),
    ],
)
def test_a_known_name_is_no_field_of_a_later_version(place, name, value):
    """What this version would write otherwise, or elsewhere, is not canonical; nor is a bare number."""
    document = json.loads(PLAN.to_bytes())
    (document[place] if place else document)[name] = value
    data = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(ValueError, match="Plan"):
        Plan.from_bytes(data)


@pytest.mark.parametrize(
    "document",
    [
        {"features": "all"},
        {"features": [f"f{number}" for number in range(257)]},
        {"protocol": "x"},
        {"protocol": "9" * 4000},
        {"protocol": "\u0661"},
        {"protocol": None},
        {"version": None},
    ],
)
def test_a_plan_that_does_not_say_what_it_needs(document):
    """It is malformed, not of a later version; what an error would list is short."""
    with pytest.raises(ValueError, match="Plan"):
        Plan.from_bytes(canonical(PLAN.to_document() | document))


def test_an_answer_with_fields_of_a_later_version_verifies():
    """The signature of a connection covers fields that this version does not know."""
    answer = wire.ConnectResponse(software=software_here())
    later = answer.SerializeToString(deterministic=True) + b"\x2a\x05later"
    read = wire.ConnectResponse.FromString(later)
    read.signature = b"s"
    expected = canonical({"owner": "a", "nonce": "6e", "kind": "ConnectResponse", "answer": digest(later)})
    assert signed_answer("a", b"n", read) == expected
