"""Plans of synthetic releases: what they state, what they need, and which cannot be made."""

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from aggregator.cli.plan_text import brief
from common.canonical import canonical
from common.cli.brief import LINES
from common.errors import RefusedError, TesseraError, UsageError, VersionError
from common.model.compatibility import HERE, check_features, features_of
from common.model.fragment import Consent
from common.model.plan import Layout, Plan
from common.model.products import Product
from common.model.schema import Attribute, AttributeType, IdentifierRules, Limits, Schema, excesses
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.planning.arguments import ReleaseArguments, parse_arguments, parse_audit
from common.planning.limits import check_limits
from common.planning.planner import make_plan
from common.planning.synthetic import check_synthetic, design_of
from common.planning.synthetic_noise import (
    WARNED,
    epsilon_against_all,
    epsilon_needed,
    expected_errors,
    noise_share,
    records_needed,
)
from common.synthesis.accounting import Budget, zcdp_rho
from common.synthesis.counters import traffic
from common.synthesis.schedule import Design
from common.words.essentials import essentials, questions
from common.words.guarantee import composition, invariants, promises, trusted, worth_of
from common.words.synthetic import collusion, expected_noise
from owner_node.config.policy import PolicyConfig
from owner_node.synthesis.own_table import own_design


def schema(n_attributes=4, n_values=50, records=30_000, **changes):
    """Return an owner's schema of alike attributes."""
    named = tuple(
        Attribute(f"a{number}", AttributeType.INTEGER, 0, n_values - 1) for number in range(n_attributes)
    )
    return Schema(named, records_rounded=records, **changes)


def made(asked, schemas):
    """Return the plan of what was asked for, of owners with these schemas."""
    created = "2026-01-02T03:04:05+00:00"
    return make_plan(asked, schemas, aggregator="spiffe://t/aggregator/hub", created=created, version="1.0")


def in_groups(layout, schemas, groups, epsilon="1", delta="0", **asked):
    """Return the plan of a synthetic release of groups of owners."""
    arguments = ReleaseArguments(
        dataset="patients", layout=layout, epsilon=Decimal(epsilon), groups=groups, release="r1",
        product=Product.SYNTHETIC, delta=Decimal(delta), **asked,
    )  # fmt: skip
    return made(arguments, schemas)


def planned(owners=("north", "south", "west"), described=None, **asked):
    """Return the plan of a synthetic release of owners with equal schemas."""
    schemas = dict.fromkeys(owners, described or schema())
    return in_groups(Layout.HORIZONTAL, schemas, (tuple(owners),), **asked)


def mixed(groups=(("a", "b"), ("c", "d")), layout=Layout.MIXED, records=10_000, identifier=None, **asked):
    """Return the plan of groups of owners, each group with an attribute of its own."""
    described = {
        owner: Schema(
            tuple(
                Attribute(f"of{group}", AttributeType.INTEGER, 0, 49)
                for group, owners in enumerate(groups)
                if owner in owners
            ),
            records_rounded=records,
            identifier=identifier or IdentifierRules(),
        )
        for owner in {owner for owners in groups for owner in owners}
    }
    return in_groups(layout, described, groups, **asked)


def across(**asked):
    """Return the plan of two owners with different attributes."""
    return mixed((("north",), ("south",)), Layout.VERTICAL, 20_000, **asked)


def test_every_owner_is_charged_the_whole_epsilon():
    """A person's record is at one owner, and is protected as a whole there."""
    plan = planned()
    assert plan.product is Product.SYNTHETIC
    assert all(each.epsilon == each.epsilon_joint == plan.epsilon for each in plan.assignments.values())
    assert all(each.names == ("a0", "a1", "a2", "a3") for each in plan.assignments.values())
    assert all(not each.attributes and each.rank_loss == 0 for each in plan.assignments.values())
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_a_plan_with_other_features_is_refused():
    """An owner that is asked for what it does not know says so."""
    document = planned().to_document() | {"features": ["other", "synthetic-determined"]}
    with pytest.raises(VersionError, match="features that are not known here: other"):
        Plan.from_bytes(canonical(document))


def test_policies_say_early_what_may_be_made():
    """The products that owners allow travel with the schema."""
    masked = Limits(products=("masked",))
    assert "products" not in Limits().to_document()
    assert Limits.from_document(masked.to_document()) == masked


def test_a_delta_is_public_and_told_beside_epsilon():
    """It is a number of the plan, less noise follows from it, and an owner that allows none is not asked."""
    small = Limits(total_delta=Decimal("0.000001"))
    plan, without = planned(delta="0.000001"), planned()
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert "delta" not in without.to_document()["synthesis"]
    assert design_of(plan).pair_variance < design_of(without).pair_variance / 2
    assert "ε = 1, δ = 0.000001: if all attributes" in promises(plan)[0]
    assert any("ε 1, δ 0.000001 for the whole record" in line for line in essentials(plan))
    assert "(0.177 % with a δ of 0.000001, where policies allow it)" in essentials(without)[-2]
    check_limits(plan, dict.fromkeys(plan.owners, schema(limits=small)))
    with pytest.raises(RefusedError, match=r"policy\.total_delta = 0, the release would have δ 0\.000001"):
        check_limits(plan, dict.fromkeys(plan.owners, schema()))


def test_owners_may_ask_that_more_may_collude():
    """The noise of fewer owners is whole then; a policy asks for it, or the operator does."""
    plans = {each: planned(colluding=each) for each in (1, 2)}
    assert planned() == plans[1]
    assert [each.synthesis.colluding for each in plans.values()] == [1, 2]
    careful = schema(limits=Limits(min_colluding=5))
    check_limits(plans[2], dict.fromkeys(plans[2].owners, careful))
    with pytest.raises(
        RefusedError, match=r"min_colluding = 5, the noise of the plan allows 1 of 2 co-owners"
    ):
        check_limits(plans[1], dict.fromkeys(plans[1].owners, careful))
    alone = planned(owners=("north",))
    check_limits(alone, {"north": careful})
    for owners, hint in (("abc", "choose from 1 to 2"), ("ab", "choose 1"), ("a", "choose 0")):
        n = len(owners)
        with pytest.raises(UsageError, match=f"{n} of {n} owners cannot collude") as caught:
            planned(owners, colluding=n)
        assert caught.value.hint == hint
    # Every owner gets the sums, and can take its own noise off them.
    with pytest.raises(UsageError, match="every owner gets the sums and knows its own share of their noise"):
        planned(colluding=0)


def test_a_delta_that_allows_showing_records_is_refused():
    """With the largest one that does not."""
    with pytest.raises(UsageError, match=r"delta 0\.00001 is too large for 90,000 records") as caught:
        planned(delta="0.00001")
    assert caught.value.hint.endswith("such as 0.000001")


def test_a_release_never_fails_for_more_records_than_were_stated():
    """Four owners of 29,999 state 20,000 each: with 119,996 records δ is smaller."""
    plan = planned("abcd", described=schema(records=20_000), delta="0.000001")
    assert design_of(plan).delta == Decimal("0.000001")
    assert design_of(plan, 100_000).delta == Decimal("0.000001")
    assert design_of(plan, 119_996).delta == Decimal("0.0000008")
    more, fewer = (design_of(plan, n).pair_variance for n in (119_996, 100_000))
    assert more > fewer
    vertical = mixed((("a",), ("b",)), Layout.VERTICAL, 100_000, delta="0.000001")
    assert design_of(vertical, 100_000).delta == Decimal("0.000001")


def test_a_delta_is_recommended_where_it_helps():
    """Two attributes of 3,000 records have more noise with one."""
    few, many = (design_of(planned(described=schema(number, 5, records=1_000))) for number in (2, 8))
    for design, helps in ((few, False), (many, True)):
        share = noise_share(replace(design, delta=Decimal("0.000001")))
        assert (share < noise_share(design)) is helps
        assert ("with a δ of 0.000001" in expected_noise(design)) is helps


def of_labels(name, n_labels):
    """Return a category of so many labels."""
    labels = tuple(map(str, range(n_labels)))
    return Attribute(name, AttributeType.CATEGORY, 0, n_labels - 1, categories=labels)


@pytest.mark.parametrize(
    ("owners", "described", "epsilon", "said"),
    [
        ("a", schema(31), "1", "31 attributes, a synthetic release has at most 30"),
        ("a", schema(max_records_per_person=2), "1", "a person has one record"),
        ("ab", schema(records=3_000_000), "1", "6,000,000 records, a synthetic release has at most"),
        ("a", schema(), "0.00000001", "the noise of this budget would have a size of"),
        (tuple(f"o{number}" for number in range(41)), schema(), "1", "41 owners of the same attributes"),
        ("a", Schema((of_labels("a", 140_000),)), "1", "140,000 values of attributes would be counted"),
    ],
)
def test_what_cannot_be_made_is_refused_with_its_limit(owners, described, epsilon, said):
    """Everything that no counting could do is said before any owner is asked."""
    with pytest.raises(UsageError, match=said):
        planned(owners, described, epsilon=epsilon)


@pytest.mark.parametrize("described", [schema(1), schema(2, n_values=1), schema(2, n_values=2**40)])
def test_narrow_and_wide_attributes_can_be_counted(described):
    """One attribute, one value and a domain of 2^40 values are no faults."""
    check_synthetic(planned(("a", "b"), described=described))


def test_epsilon_is_not_divided_among_owners_of_different_attributes():
    """A person's record is at all of them, has one epsilon, and every owner is charged all of it."""
    plan = across()
    assert [each.epsilon for each in plan.assignments.values()] == [1, 1]
    assert plan.epsilon_of_person((1, 1)) == plan.epsilon_joint == 1
    # Each adds the whole noise: a policy that asks for colluding owners has them all.
    check_limits(plan, dict.fromkeys(plan.owners, schema(limits=Limits(min_colluding=1))))
    assert [each.names for each in plan.assignments.values()] == [("of0",), ("of1",)]
    design = design_of(plan)
    assert (design.owner_groups, design.n_owners, design.colluding) == ((0, 1), (1, 1), 0)
    assert design.n_records == 20_000
    assert "counted under encryption" in collusion(plan)


def test_groups_of_owners_share_noise_within_and_count_across():
    """A mixed plan: the whole ε at every owner, a share of the noise in each group, words that say both."""
    plan = mixed((("a", "b", "c"), ("d", "e")))
    assert plan.has_partners
    assert [each.epsilon for each in plan.assignments.values()] == [1] * 5
    design = design_of(plan)
    assert (design.owner_groups, design.n_owners, design.colluding) == ((0, 1), (3, 2), 1)
    assert [design.n_honest(group) for group in (0, 1)] == [2, 1]
    assert design.n_records == 20_000
    said = " ".join(promises(plan))
    for each in (
        "the shares of any 2 of 3 owners and the shares of any 1 of 2 owners make up all of it",
        "by every two of their owners, of which one adds the whole noise",
        "unless more owners collude than the noise allows for, as long as owners follow the protocol",
        "own owner keeps ε = 3",
    ):
        assert each in said
    assert any("Which owner of another group has a person" in each for each in invariants(plan))
    with pytest.raises(RefusedError, match="min_colluding = 2"):
        check_limits(plan, dict.fromkeys(plan.owners, schema(limits=Limits(min_colluding=2))))
    assert not across().has_partners


def test_an_audit_that_the_plan_asks_for():
    """Plan, consent and words have it, older owners are named, and a policy can ask for more."""
    plan = across(audit=30)
    assert Plan.from_bytes(plan.to_bytes()).audit_days == 30
    assert b"audit" not in across().to_bytes() + Consent.accepting(across(), "north", "ab", 1).to_bytes()
    assert Consent.accepting(plan, "north", "ab", 1).audit_days == 30
    assert trusted(plan)[:-1] == trusted(across())
    assert trusted(plan)[-1].startswith("For 30 days after publication every owner keeps its messages")
    assert trusted(across(audit=1))[-1].startswith("For 1 day after")
    older = replace(HERE, version="0.1.9", features=("synthetic-determined",))
    with pytest.raises(VersionError, match=r"south \(version 0\.1\.9\): audit, known since"):
        check_features(features_of(plan), {"south": older})
    policy = dict.fromkeys(plan.owners, schema(limits=PolicyConfig(require_audit=timedelta(30)).limits))
    check_limits(plan, policy)
    for days, said in ((29, "one for 29 days"), (0, "none")):
        with pytest.raises(RefusedError, match=f'policy.require_audit = "30d", the plan asks for {said}'):
            check_limits(across(audit=days), policy)


@pytest.mark.parametrize("text", ["30", "0d", "3651d", "1.5d", "24h", "-1d", "audit"])
def test_an_audit_is_asked_for_in_days(text):
    """Nothing else is read as a time."""
    assert parse_audit("30d") == 30
    assert parse_audit("") == 0
    with pytest.raises(UsageError, match="an audit cannot be asked for"):
        parse_audit(text)


@pytest.mark.parametrize(
    ("plan", "owner", "said"),
    [
        (planned(), "", []),
        (across(), "north", [("south", "it", "of0")]),
        (across(), "", [("north", "it", "of1"), ("south", "it", "of0")]),
        (mixed((("a", "b"), ("c",))), "a", [("c", "it", "of0")]),
        (mixed((("a", "b"), ("c",))), "c", [("a, b", "one of them", "of1")]),
    ],
)
def test_who_is_trusted_with_what(plan, owner, said):
    """Owners of other attributes, and nobody else; each reads of it what only its program keeps it from."""
    lines = tuple(
        f"This release trusts {owners} to follow the protocol. If {it} does not, it can read which values of "
        f"{names} single persons have."
        for owners, it, names in said
    )
    assert trusted(plan, owner) == lines
    assert {*lines} <= {*essentials(plan, owner)}
    assert {*trusted(plan)} <= {*promises(plan)}


def test_an_adder_is_trusted_with_all_that_its_holders_encrypt():
    """It can return sums of other attributes than were asked for; a holder reads what is counted with its."""
    described = {
        owner: Schema(
            tuple(Attribute(f"{owner}{i}", AttributeType.INTEGER, 0, n_values) for i in range(2)),
            records_rounded=20_000,
            identifier=IdentifierRules(),
        )
        for owner, n_values in (("a", 1), ("b", 9), ("c", 99))
    }
    pairs = (("a0", "b0"), ("a1", "c0"), ("b1", "c1"))
    plan = in_groups(Layout.VERTICAL, described, (("a",), ("b",), ("c",)), pairs=pairs)
    read = "can read which values of {} single persons have"
    assert [read.format("a0, a1") in each for each in trusted(plan, "a")] == [True]
    assert "trusts b, c to" in trusted(plan, "a")[0]
    for owner, expected in (
        ("b", {"a": "b0", "c": "b0, b1"}),
        ("c", {"a": "c0", "b": "c1"}),
    ):
        for line, (other, names) in zip(trusted(plan, owner), expected.items(), strict=True):
            assert f"trusts {other} to" in line
            assert read.format(names) in line


@pytest.mark.parametrize(
    ("groups", "asked", "said"),
    [
        ((("a", "b"), ("b", "c")), {}, "owner b is in several groups"),
        ((("a", "b"), ("c",)), {"max_overlap": 2}, "counts each person at one owner of a group"),
        ((("a", "b"), ("c",)), {"colluding": 2}, "2 of 2 owners cannot collude"),
        ((("a", "b"), ("c",)), {"colluding": 0}, "each would meet less than the whole noise"),
    ],
)
def test_mixed_plans_that_are_not_possible(groups, asked, said):
    """In words, before anybody is asked."""
    with pytest.raises(UsageError, match=said):
        mixed(groups, **asked)


def test_a_plan_says_what_owners_of_different_attributes_send_each_other():
    """The owner with the most bins sends no rows; each of the others sends them to those that have more."""
    design = design_of(across())
    cost = traffic(design)
    assert (cost.n_bytes, cost.passed_on) == (768 * 20_000, 768 * 20_000)
    assert "up to 23 MB of encrypted bins, 768 bytes or more a person; it sends on 23 MB" in questions(
        across()
    )
    attributes = tuple(replace(design.attributes[0], name=name) for name in "abcd")
    four = traffic(replace(design, attributes=attributes, owners=(), owner_groups=(0, 1, 2, 3)))
    assert (four.n_bytes, four.passed_on) == (3 * 768 * 20_000, 6 * 768 * 20_000)
    many = tuple(replace(design.attributes[0], name=f"a{each}") for each in range(30))
    halves = replace(
        design, epsilon=Decimal(1000), attributes=many, owners=(), owner_groups=(0,) * 15 + (1,) * 15
    )
    assert traffic(halves).n_bytes > cost.n_bytes


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"layout": "mixed", "groups": [["a", "b"], ["b", "c"]]}, "owner b is in several groups"),
        ({"layout": "mixed", "groups": [["a", "b"], ["c"]], "max_overlap": "2"}, "at one owner of a group"),
        ({"k": "5"}, "--k: only with --product masked"),
        ({"rank_noise": ["0.1"]}, "--rank-noise: only with"),
        ({"owner_column": True, "groups": [["a", "b"]]}, "--owner-column: only with"),
        ({"product": "both"}, "product 'both' is not known"),
        ({"product": "masked", "delta": "0.000001"}, "--delta: only with --product synthetic"),
        ({"delta": "1"}, "not a decimal from 0 to below 1"),
    ],
)
def test_arguments_that_do_not_go_together(stated, said):
    """What says how values are masked says nothing about counts."""
    asked = {"release": "r", "dataset": "d", "layout": "horizontal", "groups": [["a"]], "epsilon": "1"}
    with pytest.raises(UsageError, match=said):
        parse_arguments(**asked | {"product": "synthetic"} | stated)


def test_arguments_of_masked_releases_are_stored_as_before():
    """The version before reads them."""
    asked = parse_arguments(release="r", dataset="d", layout="horizontal", groups=[["a"]], epsilon="1")
    assert "product" not in asked.to_document()


@pytest.mark.parametrize(
    ("owners", "colluding", "said"),
    [
        (("a",), 0, ""),
        (("a", "b"), 1, "the shares of any 1 of 2 owners"),
        (("a", "b", "c"), 1, "the shares of any 2 of 3 owners"),
    ],
)
def test_words_say_who_may_collude(owners, colluding, said):
    """The plan states it, and everybody reads it."""
    plan = planned(owners)
    assert plan.synthesis.colluding == design_of(plan).colluding == colluding
    assert said in " ".join(promises(plan))
    assert ("The aggregator sees sums" in " ".join(promises(plan))) is (len(owners) > 1)
    assert ("against the aggregator and 1 other owner" in " ".join(essentials(plan))) is (len(owners) > 1)
    for lines in (promises(plan), essentials(plan)):
        assert ("own owner keeps ε = 3" in " ".join(lines)) is (len(owners) == 3)
    assert ("unless more owners collude" in promises(plan)[0]) is (len(owners) == 3)
    assert composition(planned(("a",))).startswith("ε is for the whole record")


def test_what_is_left_if_all_others_collude():
    """One share of Gaussian noise, or the owner's own part of Laplace noise: the words have the ε of that."""
    assert epsilon_against_all(design_of(planned(("a", "b")))) == 1
    assert epsilon_against_all(design_of(planned())) == 3
    delta = Decimal("0.000001")
    design = design_of(planned("abcde", schema(records=10_000), delta=str(delta)))
    left = epsilon_against_all(design)
    assert 2 < left < 3
    # The share of one owner alone, of every answer.
    rho = zcdp_rho(Decimal(1), delta)
    noise = Budget.of(Decimal(1), delta).noise(1, design.n_honest(0))
    assert rho < 1 / Decimal(noise.size) <= design.n_honest(0) * rho <= zcdp_rho(left, delta)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("split", [["1"], ["0.4", "0.1", "0.5"], ["0.5", "0.6"], ["1", "0"]]),
        (
            "pairs",
            [[["a1", "a0"]], [["a1", "a2"], ["a0", "a1"]], [["a0", "a1"]] * 2, [["a0", "x"]], [["a0"]]],
        ),
    ],
)
def test_shares_and_pairs_of_a_plan_are_checked(field, values):
    """Two shares of 1; ascending pairs, for which noise is laid out: in others counts would have none."""
    document = planned().to_document()
    for value in values:
        changed = document | {"synthesis": document["synthesis"] | {field: value}}
        with pytest.raises(ValueError, match="not a valid Plan"):
            Plan.from_bytes(canonical(changed))
    with pytest.raises(ValueError, match="all owners mask"):
        Plan.from_document(document | {"synthesis": None})
    with pytest.raises(ValueError, match="ascending"):
        Design(SOME, 100, Decimal(1), named_pairs=((1, 0),))


SOME = (
    Attribute("age", AttributeType.INTEGER, 0, 99),
    Attribute("income", AttributeType.NUMBER, 0, 10**7, decimals=2),
    of_labels("ward", 6),
    Attribute("ill", AttributeType.BOOLEAN, 0, 1),
)


@pytest.mark.parametrize("delta", ["0", "0.000001"])
@pytest.mark.parametrize("n_records", [300, 3_000, 9_900, 200_000])
def test_what_would_do_does(delta, n_records):
    """With the epsilon, or the number of records, that is named, noise moves few enough records; with a
    tenth less it does not.
    """
    design = Design(SOME, n_records, Decimal("0.1"), Decimal(delta))
    assert noise_share(replace(design, n_records=records_needed(design))) <= WARNED
    if noise_share(design) <= WARNED:
        assert records_needed(design) == n_records
        return
    assert noise_share(replace(design, n_records=records_needed(design) - 200)) > WARNED
    needed = epsilon_needed(design)
    assert needed is not None
    assert noise_share(replace(design, epsilon=needed)) <= WARNED
    if not design.delta:
        assert noise_share(replace(design, epsilon=needed * Decimal("0.8"))) > WARNED


@pytest.mark.parametrize(
    ("n_records", "delta", "needed"),
    # Three owners, whose shares of Gaussian noise have a least size.
    [(900, "0.000001", None), (1_500, "0.000001", "2.6"), (1_500, "0", "3.4"), (30_000, "0", "0.17")],
)
def test_the_epsilon_that_would_do_is_found_in_few_steps(monkeypatch, n_records, delta, needed):
    """A plan says it, and each step with a delta takes long."""
    design, tried = Design(SOME, n_records, Decimal("0.5"), Decimal(delta), (3,), 1), []

    def counted(other: Design) -> float:
        tried.append(other.epsilon)
        return noise_share(other)

    monkeypatch.setattr("common.planning.synthetic_noise.noise_share", counted)
    assert epsilon_needed(design) == (None if needed is None else Decimal(needed))
    assert len(tried) < 12


def test_errors_to_expect_follow_noise_and_resolution():
    """They fall with epsilon and records, are shares, and are nothing for pairs of one attribute."""
    found = [
        expected_errors(Design(SOME, n_records, Decimal(epsilon)))
        for n_records, epsilon in ((500, "0.1"), (500, "1"), (50_000, "1"), (50_000, "10"))
    ]
    assert [each.one_way for each in found] == sorted((each.one_way for each in found), reverse=True)
    assert [each.two_way for each in found] == sorted((each.two_way for each in found), reverse=True)
    assert all(0 < each.one_way < 1 > each.two_way > 0 for each in found)
    assert expected_errors(Design(SOME[:1], 500, Decimal(1))).two_way == 0
    # Two booleans: 0.4 standard deviations for each of four cells.
    pair = (SOME[3], replace(SOME[3], name="old"))
    design = Design(pair, 10_000, Decimal(1), split=(Decimal("0.9"), Decimal("0.1")))
    assert expected_errors(design).two_way == pytest.approx(1.6 * design.pair_variance**0.5 / 10_000)


TOGETHER = StructuralZero((ExcludedValues("a0", (("0", "9"),)), ExcludedValues("a1", (("49", "49"),))))
ALONE = StructuralZero((ExcludedValues("a3", (("7", "7"),)),))


def test_declared_rules_are_part_of_the_plan():
    """A plan has each rule about its attributes once; everybody computes the same codes from it."""
    plan = planned(described=schema(structural_zeros=(TOGETHER, ALONE)))
    assert plan.synthesis.structural_zeros == (TOGETHER, ALONE)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert design_of(plan).rules == ({0: [(0, 9)], 1: [(49, 49)]}, {3: [(7, 7)]})
    said = "a0 0 to 9 with a1 49; a3 7"
    assert any(said in line for line in essentials(plan))
    assert any(said in line for line in promises(plan))
    assert "structural_zeros" not in planned().to_document()["synthesis"]


def test_rules_of_attributes_that_take_no_part_are_left_out():
    """A rule says nothing about some of its attributes alone."""
    plan = planned(described=schema(structural_zeros=(TOGETHER, ALONE)), attributes=("a0", "a3"))
    assert plan.synthesis.structural_zeros == (ALONE,)


def test_rules_that_cannot_hold_are_refused_before_anybody_is_asked():
    """Together they leave no record."""
    zeros = (StructuralZero((ExcludedValues("a0", (each,)),)) for each in (("0", "9"), ("10", "49")))
    with pytest.raises(UsageError, match="no possible record"):
        planned(described=schema(structural_zeros=tuple(zeros)))


@pytest.mark.parametrize(
    "values",
    [
        (ExcludedValues("b", (("0", "9"),)),),
        (ExcludedValues("a0", (("0", "50"),)),),
        (ExcludedValues("a0", (("9", "0"),)),),
        (ExcludedValues("a0", ()),),
        (ExcludedValues("a0", (("x", "x"),)),),
    ],
)
def test_rules_of_other_values_are_found_in_schemas_and_plans(values):
    """Both come from strangers: an aggregator refuses the schema, an owner does not read the plan."""
    described = schema(structural_zeros=(StructuralZero(values),))
    assert any("structural zero 1" in fault for fault, _ in excesses(described))
    assert not list(excesses(schema(structural_zeros=(TOGETHER, ALONE))))
    document = planned(described=schema(structural_zeros=(TOGETHER,))).to_document()
    document["synthesis"]["structural_zeros"] = [described.to_document()["structural_zeros"][0]]
    with pytest.raises(ValueError, match="not a valid Plan"):
        Plan.from_bytes(canonical(document))


def test_more_records_than_are_possible_are_no_advice():
    """With so little ε nobody has records enough."""
    assert "too few records" in expected_noise(Design(SOME, 20_000, Decimal("0.1")))
    assert re.search(r"about [0-9,]+ records", expected_noise(Design(SOME, 20_000, Decimal("0.1"))))
    assert not re.search(r"about [0-9,]+ records", expected_noise(Design(SOME, 20_000, Decimal("0.0001"))))


@pytest.mark.parametrize("delta", ["0", "0.0000001"])
def test_a_plan_of_any_layout_fits_a_page(delta):
    """However long its sentences are: 25 lines, and owners below the headings of their table."""
    several = mixed((("a", "b", "c", "d"), ("e", "f")), delta=delta)
    for plan in (planned("abcdefgh", delta=delta), across(delta=delta), several):
        lines = brief(replace(plan, purpose="to know more " * 40))
        assert len(lines) <= LINES
        assert any(line.startswith(f"{plan.owners[0]} ") for line in lines)


@pytest.mark.parametrize(
    ("described", "n_records", "delta", "said"),
    [
        (schema(31), 1_000, "0", "31 attributes, a synthetic release has at most 30"),
        (schema(), 2**22 + 1, "0", "4,194,305 records, a synthetic table has at most 4,194,304"),
        (schema(), 1_000, "0.001", "delta 0.001 is too large for 1,000 records"),
        (schema(n_values=2**62 + 1), 1_000, "0", "more values than can be counted"),
    ],
)
def test_a_table_that_cannot_be_made_of_own_data(described, n_records, delta, said):
    """Said before anything is counted, by `mask` and by `explore` alike."""
    with pytest.raises(TesseraError, match=said):
        own_design(described, n_records, Decimal(1), Decimal(delta))


def with_pairs(*pairs):
    """Return the plan of one owner that counts some pairs."""
    asked = parse_arguments(
        release="r", dataset="d", layout="horizontal", groups=[["a"]], epsilon="1", product="synthetic",
        pairs=pairs,
    )  # fmt: skip
    assert ReleaseArguments.from_document(asked.to_document()) == asked
    return made(asked, {"a": schema()})


def test_named_pairs_are_part_of_the_plan_and_have_less_noise():
    """They are in the order of the attributes, whatever order the operator wrote, and alone are counted."""
    plan, whole = with_pairs("a3:a1", "a0:a1"), with_pairs()
    assert plan.counted_pairs == (("a0", "a1"), ("a1", "a3"))
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert design_of(plan).pairs == ((0, 1), (1, 3))
    assert 8 < design_of(whole).pair_variance / design_of(plan).pair_variance < 10
    assert "the tables of the named 2 pairs" in questions(plan)
    assert "the tables of all 6 pairs" in questions(whole)
    assert "standard deviation of " in questions(whole)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (("a0",), "'a0' is no pair"),
        (("a0:a0",), "'a0:a0' is no pair"),
        (("a0:a1", "a1:a0"), "pair a0 and a1 is named twice"),
        (("a0:other",), "not counted: other"),
    ],
)
def test_pairs_that_cannot_be_counted(pairs, said):
    """Said in words, before anybody is asked."""
    with pytest.raises(UsageError, match=said):
        with_pairs(*pairs)


def with_together(*together, pairs=(), described=None):
    """Return the plan of one owner that counts some attributes together."""
    asked = parse_arguments(
        release="r", dataset="d", layout="horizontal", groups=[["a"]], epsilon="1", product="synthetic",
        pairs=pairs, together=together,
    )  # fmt: skip
    assert ReleaseArguments.from_document(asked.to_document()) == asked
    return made(asked, {"a": described or with_event()})


def with_event():
    """Return a schema of four attributes, the last of which is an event."""
    own = schema(3)
    return replace(own, attributes=(*own.attributes, Attribute("died", AttributeType.BOOLEAN, 0, 1)))


def test_attributes_counted_together_are_part_of_the_plan():
    """They are one attribute, so fewer tables are counted; owners see it, and old ones are not asked."""
    plan, without = with_together("a1:died"), with_together()
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert plan.to_document()["synthesis"]["together"] == [["a1", "died"]]
    assert with_together("died:a1").to_document() == plan.to_document()
    assert "together" not in without.to_document()["synthesis"]
    assert plan.digest != without.digest
    assert [each.name for each in plan.released] == ["a0", "a1", "a2", "died"]
    assert plan.counted_pairs == (("a0", "a1:died"), ("a0", "a2"), ("a1:died", "a2"))
    assert design_of(plan).pair_variance < design_of(without).pair_variance
    assert "Counted together, as one attribute with a value for each combination: a1 and died." in (
        essentials(plan)
    )
    assert "one-way counts of 3 attributes" in questions(plan)
    assert features_of(plan) == (*features_of(without), "synthetic-together")
    old = replace(HERE, version="0.1.0", features=features_of(without))
    with pytest.raises(VersionError, match=r"a \(version 0\.1\.0\): synthetic-together"):
        check_features(features_of(plan), {"a": old})
    assert with_together("a1:died", pairs=("a0:died", "a1:a0")).counted_pairs == (("a0", "a1:died"),)


@pytest.mark.parametrize(
    ("together", "pairs", "said"),
    [
        (("a1",), (), "'a1' is no pair"),
        (("a1:other",), (), "not counted cannot be counted together: other"),
        (("a1:died", "a2:died"), (), "'died' can be counted together with one other"),
        (("a1:a2",), (), "'a2' has 50 values"),
        (("a1:died",), ("died:a1",), "'a1' and 'died' are counted together, and are not a pair"),
    ],
)
def test_what_cannot_be_counted_together(together, pairs, said):
    """Said in words, before anybody is asked."""
    with pytest.raises(UsageError, match=said):
        with_together(*together, pairs=pairs)


@pytest.mark.parametrize("together", [("a1:died", "a2:died"), ("a1:a2",)])
def test_a_hint_about_together_helps_with_a_model(together):
    """`--for` forbids `--together`, so the hint says what a model may have."""
    with pytest.raises(UsageError) as refused:
        with_together(*together)
    assert "one other of its owner, and one of both has at most 16 values" in refused.value.hint
    assert "--for" in refused.value.hint


def test_attributes_of_absent_persons_are_not_counted_together():
    """Presence would be a value of one of both."""
    described = {
        "north": with_event(), "south": Schema((SOME[1],), records_rounded=20_000)
    }  # fmt: skip
    described = {name: replace(each, identifier=IdentifierRules()) for name, each in described.items()}
    asked = {"together": (("a1", "died"),), "epsilon": "4"}
    groups = (("north",), ("south",))
    assert in_groups(Layout.VERTICAL, described, groups, **asked).group_of["a1:died"] == 0
    with pytest.raises(UsageError, match="whom their owner may lack cannot be counted together"):
        in_groups(Layout.VERTICAL, described, groups, on_mismatch="union", **asked)


def test_a_plan_of_a_rule_about_both():
    """Rules of an attribute that is counted together are about its blocks."""
    rule = StructuralZero((ExcludedValues("a0", (("0", "3"),)), ExcludedValues("died", (("true", "true"),))))
    plan = with_together("a1:died", described=replace(with_event(), structural_zeros=(rule,)))
    assert design_of(plan).rules == ({0: [(0, 3)], 1: [(50, 99)]},)
    with pytest.raises(UsageError, match="a rule is about a0:died alone"):
        with_together("a0:died", described=replace(with_event(), structural_zeros=(rule,)))


def test_a_pair_is_never_expected_nearer_than_its_attributes():
    """10,000 labels of 5,000 records leave noise alone: the attribute and every pair of it say so."""
    wide = (SOME[0], of_labels("code", 10_000))
    errors = expected_errors(Design(wide, 5_000, Decimal(1), Decimal("0.000001")))
    assert errors.attributes["code"] > 0.4
    assert errors.pairs["age", "code"] >= errors.attributes["code"] > errors.attributes["age"]


def test_attributes_that_noise_hides_are_named():
    """One attribute of three records is worthless, and so is an attribute of more labels than records."""
    alone = planned(("a",), described=schema(1, records=3))
    assert worth_of(alone).worthless
    assert "noise leaves nothing of a0: leave it out" in worth_of(alone).text
    described = replace(schema(2), attributes=(*schema(2).attributes, of_labels("code", 100_000)))
    plan = planned(("a",), described=described)
    assert "noise leaves nothing of code" in questions(plan)
    assert not worth_of(plan).worthless


def test_delta_is_checked_by_the_least_number_of_records():
    """Who states 100,000 persons has up to 199,999: the exact number is checked after linking."""
    check_synthetic(planned(("a",), schema(records=100_000), delta="0.000001"))


def test_what_is_declared_and_not_used_is_named():
    """A taxonomy says how labels are masked; counts do not need it."""
    ward = replace(of_labels("ward", 3), taxonomy="ab" * 32)
    described = replace(schema(2), attributes=(*schema(2).attributes, ward))
    assert "Not used: the taxonomy of ward" in questions(planned(("a",), described=described))
    assert "Not used" not in questions(planned(("a",)))


def test_tables_that_could_be_too_large_are_refused_before_a_charge():
    """Ranges of rules cut bins, so many of them make tables that no answer has room for."""
    ranges = tuple((str(first), str(first)) for first in range(0, 1_998, 20))
    both = (ExcludedValues("a0", ranges), ExcludedValues("a1", ranges))
    rules = [StructuralZero((*both, ExcludedValues("a2", ((f"{n}", f"{n}"),)))) for n in range(5)]
    with pytest.raises(UsageError, match="the tables of pairs could have"):
        planned(described=schema(3, n_values=2_000, structural_zeros=tuple(rules)))


def test_one_attribute_has_the_whole_budget():
    """Without tables of pairs nothing is left for them."""
    assert [each.amount for each in Design(SOME[:1], 100, Decimal(2)).budgets] == [2]
