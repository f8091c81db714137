"""Rank noise as it is asked for, planned and told: in arguments, documents and words."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.errors import UsageError
from common.model.mechanisms import MECHANISMS, MOST_HISTOGRAM_VALUES, PublicNumbers, most_counted_values
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, CategoryOrder, IdentifierRules, Schema
from common.planning.arguments import (
    DEFAULT,
    NONE,
    RankNoise,
    ReleaseArguments,
    parse_arguments,
    parse_own_arguments,
    parse_rank_noise,
)
from common.planning.planner import make_plan
from common.words.guarantee import invariants, promises
from common.words.numbers import rounded_up
from tests.fakes.protocol_peers import request, schema

MADE = {"aggregator": "spiffe://d/aggregator/a", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
WIDE = Attribute("wide", AttributeType.INTEGER, 0, 10**6)
FEW = Attribute("few", AttributeType.BOOLEAN, 0, 1)
BY_FREQUENCY = Attribute(
    "c", AttributeType.CATEGORY, 0, 1, categories=("u", "v"), order=CategoryOrder.FREQUENCY
)
USUAL = RankNoise()
THIRD = Decimal("66.666666666667")


def planned(noise: RankNoise = USUAL, records: int = 1000, **changes) -> Plan:
    """A plan of one owner with an attribute of many values and one of two."""
    own = schema(attributes=(WIDE, FEW), records=records)
    return make_plan(request("a", k=None, rank_noise=noise, **changes), {"a": own}, **MADE)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], RankNoise()),
        (["0"], NONE),
        (["0.10"], RankNoise(Decimal("0.1"))),
        (["age=0.1", "ward=0"], RankNoise(None, (("age", Decimal("0.1")), ("ward", Decimal(0))))),
        ([" age = 0.1 ", "0.2"], RankNoise(Decimal("0.2"), (("age", Decimal("0.1")),))),
    ],
)
def test_rank_noise_is_read(texts, expected):
    """For all, for some, or not said at all; and what is written down reads as the same."""
    assert parse_rank_noise(texts) == expected
    assert parse_rank_noise(expected.to_texts()) == expected


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["x"], "no rank noise"),
        (["-0.1"], "no rank noise"),
        (["1.01"], "no rank noise"),
        (["nan"], "no rank noise"),
        (["0.0000000000001"], "no rank noise"),
        (["=0.1"], "names no attribute"),
        (["0.1", "0.2"], "all attributes is given twice"),
        (["a=0.1", "a=0.2"], "rank noise of a is given twice"),
    ],
)
def test_what_is_no_rank_noise_is_refused(texts, words):
    """With the way to write it."""
    with pytest.raises(UsageError, match=words) as caught:
        parse_rank_noise(texts)
    assert "--rank-noise" in caught.value.hint


@pytest.mark.parametrize("mechanism", ["dp", "idp"])
def test_mechanisms_without_a_list_take_none(mechanism):
    """Asked for by name it is refused; 0 and the default are no rank noise there."""

    def asked(*texts: str) -> RankNoise:
        own = parse_own_arguments("north", "m1", "d", epsilon="1", mechanism=mechanism, rank_noise=texts)
        return own.rank_noise

    for text in ("0.03", "age=0.1"):
        with pytest.raises(UsageError, match="takes no rank noise"):
            asked(text)
    for texts in ((), ("0",)):
        assert asked(*texts).of("age", mechanism) == 0


def test_the_default_carries_few_values_by_counts_and_has_rank_noise():
    """What nobody asked for otherwise: the better carrier of each attribute, and rank noise for both."""
    wide, few = planned().tasks[0].attributes
    assert (wide.mechanism, few.mechanism) == ("idp-quantiles", "dp-hist")
    assert (few.k, few.epsilon_joint) == (None, few.epsilon)
    assert wide.rank_noise == few.rank_noise == DEFAULT
    assert wide.rank_loss == few.rank_loss == THIRD
    assert wide.epsilon_table == Decimal("0.5") + THIRD


def test_named_mechanism_and_no_rank_noise_are_the_papers():
    """Nothing of rank noise is left in the plan's document: plans of the papers are as they were."""
    plan = planned(NONE, mechanism="idp-joint")
    assert {each.mechanism for each in plan.tasks[0].attributes} == {"idp-joint"}
    assert "rank" not in plan.to_bytes().decode()
    assert "epsilon_table" not in plan.to_bytes().decode()
    assert plan.epsilon_table is None
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_naming_a_mechanism_keeps_the_default_rank_noise():
    """Who chooses a mechanism has not given up the protection of who is who."""
    assert {each.rank_noise for each in planned(mechanism="idp-ls").tasks[0].attributes} == {DEFAULT}


@pytest.mark.parametrize("g", [1, 2])
def test_counts_carry_up_to_eight_roots(g):
    """V <= 8 sqrt(n ε/g), exactly, from public numbers."""
    limit = most_counted_values(PublicNumbers(1000, 1, Decimal("0.5"), g))
    assert limit == {1: 178, 2: 126}[g]
    for n_values, expected in ((limit, "dp-hist"), (limit + 1, "idp-quantiles")):
        one = Attribute("one", AttributeType.INTEGER, 1, n_values)
        own = replace(schema(attributes=(one, WIDE), records=1000), max_records_per_person=g)
        plan = make_plan(request("a", k=None), {"a": own}, **MADE)
        assert plan.tasks[0].attributes[0].mechanism == expected


@pytest.mark.parametrize(
    ("sizes", "n_values", "expected"),
    [
        ((10**6, 100), 80, "dp-hist"),
        ((10**6, 100), 81, "idp-quantiles"),
        ((10**6, 400_000), 10**6, "idp-quantiles"),
        ((10**6, 500_000), 10**6, "dp-quantiles"),
        ((10**6, 10_000), 350, "dp-hist"),
    ],
)
def test_an_attribute_has_one_carrier_for_the_whole_release(sizes, n_values, expected):
    """The owner with the fewest records decides: what carries it for one carries it for all."""
    one = Attribute("one", AttributeType.INTEGER, 1, n_values)
    own = {
        name: schema(attributes=(one,), records=records) for name, records in zip("ab", sizes, strict=True)
    }
    for groups in ("ab", "ba"):
        plan = make_plan(request(*groups, k=None, epsilon=Decimal(1)), own, **MADE)
        assert [task.attributes[0].mechanism for task in plan.tasks] == [expected, expected]


LABELS = tuple(f"label {number}" for number in range(500))
UNORDERED = Attribute("c", AttributeType.CATEGORY, 0, 499, categories=LABELS)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (UNORDERED, "dp-hist"),
        (replace(UNORDERED, order=CategoryOrder.FREQUENCY), "dp-hist"),
        (replace(UNORDERED, ordered=True), "idp-quantiles"),
        (replace(UNORDERED, taxonomy=64 * "0"), "idp-quantiles"),
        (FEW, "dp-hist"),
    ],
)
def test_labels_without_an_order_are_counted_however_many_there_are(attribute, expected):
    """Averages of labels mean nothing; a declared order or a taxonomy gives them a meaning."""
    own = schema(attributes=(attribute,), records=20)
    plan = make_plan(request("a", k=None, epsilon=Decimal("0.1")), {"a": own}, **MADE)
    assert plan.tasks[0].attributes[0].mechanism == expected


@pytest.mark.parametrize(
    ("mechanism", "warned"), [("idp-joint", True), ("dp", True), ("dp-hist", False), ("auto", False)]
)
@pytest.mark.parametrize("order", [CategoryOrder.DECLARED, CategoryOrder.FREQUENCY])
def test_a_named_mechanism_that_averages_labels_says_so(mechanism, warned, order):
    """In the plan's table and among the promises, which report and manifest repeat."""
    own = schema(attributes=(replace(UNORDERED, order=order), WIDE), records=1000)
    plan = make_plan(request("a", k=None, mechanism=mechanism, rank_noise=NONE), {"a": own}, **MADE)
    labels, numbers = plan.tasks[0].attributes
    assert ("averages over an arbitrary order" in plan.carrier_reason(labels)) is warned
    assert "arbitrary order" not in plan.carrier_reason(numbers)
    assert any("values of c are averages over an arbitrary" in line for line in promises(plan)) is warned


def test_a_k_goes_to_the_clusters_only():
    """An explicit k with the automatic choice: counts take none."""
    own = schema(attributes=(WIDE, FEW), records=1000)
    plan = make_plan(request("a", k=17), {"a": own}, **MADE)
    assert [each.k for each in plan.tasks[0].attributes] == [17, None]
    with pytest.raises(UsageError, match="takes k of at least 7 with 2 records per person"):
        make_plan(request("a", k=4), {"a": replace(own, max_records_per_person=2)}, **MADE)


def by_frequency(mechanism: str, **changes) -> Plan:
    """A plan of one owner with categories in the order of their frequency, and an attribute of numbers."""
    own = schema(attributes=(BY_FREQUENCY, WIDE), records=1000)
    return make_plan(request("a", k=None, mechanism=mechanism, **changes), {"a": own}, **MADE)


def test_frequency_order_is_bounded_with_counts():
    """Counts are the same in any order, so the order of the data is not used, and no bound is lost."""
    own = {"a": schema(attributes=(BY_FREQUENCY,), records=1000)}
    plan = make_plan(request("a", k=None), own, **MADE)
    assert plan.epsilon_joint == 1
    assert plan.tasks[0].rank_loss == THIRD
    assert "no bound" not in " ".join(promises(plan))
    assert "not bounded" not in " ".join(promises(plan))


@pytest.mark.parametrize("mechanism", ["idp-ls", "idp-joint", "idp-cbls", "dp-ir"])
def test_rank_noise_on_an_order_of_the_data_has_no_bound(mechanism):
    """One record can swap two categories, and move every record that has either: no number is stated."""
    plan = by_frequency(mechanism)
    ordered, wide = plan.tasks[0].attributes
    assert (ordered.rank_noise, ordered.rank_loss, ordered.assignment_loss) == (DEFAULT, None, None)
    assert wide.rank_loss == THIRD
    assert plan.tasks[0].rank_loss is plan.assignment_of("a").rank_loss_at([2]) is plan.epsilon_table is None
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert ordered.to_document()["rank_loss"] is None


def test_protection_by_distance_is_promised_of_public_orders_only():
    """The words leave out what has an order of the data, and say that nothing bounds it."""
    noise = RankNoise(DEFAULT, (("c", Decimal("0.05")),))
    told = promises(by_frequency("idp-ls", rank_noise=noise))
    assert [line[:45] for line in told if line.startswith("Protection by distance, with")] == [
        "Protection by distance, with rank noise 0.03:"
    ]
    (unbounded,) = (line for line in told if line.startswith("Protection by distance of"))
    assert unbounded.startswith("Protection by distance of c: not bounded, the order depends on the data. ")
    assert "there is no bound (c: the order depends on the data)." in " ".join(told)
    shares = "rank noise 0.03 of the number of records for wide; 0.05 of the number of records for c."
    assert shares in " ".join(told)


def test_too_many_values_for_counts():
    """Refused when planned, before any owner is asked."""
    many = Attribute("many", AttributeType.INTEGER, 0, MOST_HISTOGRAM_VALUES)
    with pytest.raises(UsageError, match="too many for it"):
        make_plan(request("a", k=None, mechanism="dp-hist"), {"a": schema(attributes=(many,))}, **MADE)


@pytest.mark.parametrize(
    ("texts", "owners", "expected"),
    [
        ([], None, (DEFAULT, DEFAULT)),
        ([], "0.01", (Decimal("0.01"),) * 2),
        ([], "0.2", (Decimal("0.2"),) * 2),
        (["0.1"], "0.2", (Decimal("0.2"),) * 2),
        (["0.1", "few=0.3"], "0.2", (Decimal("0.2"), Decimal("0.3"))),
        (["0"], "0.05", (Decimal("0.05"),) * 2),
    ],
)
def test_the_larger_of_the_operators_and_the_owners(texts, owners, expected):
    """By attribute; without either the default. The other owner of the release keeps its own."""
    own = schema(attributes=(WIDE, FEW), records=1000)
    stating = replace(own, rank_noise=None if owners is None else Decimal(owners))
    asked = request("a", "b", k=None, rank_noise=parse_rank_noise(texts))
    plan = make_plan(asked, {"a": stating, "b": own}, **MADE)
    first, second = (tuple(each.rank_noise for each in task.attributes) for task in plan.tasks)
    assert first == expected
    assert second == tuple(parse_rank_noise(texts).of(each.name, "idp-joint") for each in (WIDE, FEW))
    assert Schema.from_document(stating.to_document()) == stating
    assert "rank_noise" not in own.to_document()


def test_rank_noise_of_an_attribute_that_is_not_released():
    """A misspelt name would leave an attribute with other rank noise than was meant."""
    with pytest.raises(UsageError, match="not released: wid"):
        planned(RankNoise(DEFAULT, (("wid", Decimal(0)),)))


def test_requests_keep_their_rank_noise_and_old_ones_had_none():
    """The journal is read back to the same request, also one of before there was rank noise."""
    asked = parse_arguments(
        release="r1", dataset="d", layout="horizontal", groups=[["a"]], epsilon="1", rank_noise=["x=0.1"]
    )
    document = asked.to_document()
    assert ReleaseArguments.from_document(document) == asked
    del document["rank_noise"]
    assert ReleaseArguments.from_document(document).rank_noise == NONE


def test_plans_that_state_no_rank_noise_in_another_way_are_no_plans():
    """One canonical form: 0 is never written."""
    text = planned(NONE).to_bytes()
    written = text.replace(b'"rank_noise"', b'"x"')
    assert written == text
    with pytest.raises(ValueError, match="canonical"):
        Plan.from_bytes(text.replace(b'"name":"wide",', b'"name":"wide","rank_loss":"0","rank_noise":"0",'))


def test_the_document_has_the_bound_for_the_whole_table():
    """Plan, task and attribute state it, and a plan that states another is none."""
    plan = planned()
    document = plan.to_document()
    assert document["epsilon_table"] == plan.epsilon_table == 1 + 2 * THIRD
    assert document["tasks"][0]["rank_loss"] == 2 * THIRD
    with pytest.raises(ValueError, match="canonical"):
        Plan.from_bytes(plan.to_bytes().replace(b'"epsilon_table":"134.', b'"epsilon_table":"1.'))


@pytest.mark.parametrize(("noise", "error"), [("0", "0.0001"), ("0.03", "0.0214692"), ("1", "1.84625")])
def test_expected_error_grows_with_rank_noise_up_to_a_random_order(noise, error):
    """(k/n)² + 24 w², at most what values put at random would come to."""
    found = MECHANISMS["idp-joint"].expected_error(
        10, PublicNumbers(1000, 100, Decimal(10**6)), Decimal(noise)
    )
    assert abs(found - Decimal(error)) < Decimal("1e-6")


def test_expected_error_of_counts():
    """Falls with the square of n·ε where boundaries move by several values, linearly below; one value: 0."""

    def of_counts(n, v, epsilon):
        return MECHANISMS["dp-hist"].expected_error(None, PublicNumbers(n, v, epsilon))

    few = [of_counts(n, 2, Decimal(1)) for n in (1000, 10_000)]
    many = [of_counts(n, 100_000, Decimal("0.1")) for n in (10**6, 10**7)]
    assert 9 < few[0] / few[1] < 11
    assert 90 < many[0] / many[1] < 110
    assert of_counts(1000, 1, Decimal(1)) == 0
    assert of_counts(1, 2, Decimal("0.001")) <= 2


def test_why_an_attribute_is_carried_so():
    """Both carriers say which public numbers decided, and whether somebody decided otherwise."""

    def reasons(**changes):
        plan = planned(**changes)
        return [plan.carrier_reason(each) for each in plan.tasks[0].attributes]

    individual, whole = "individual differential privacy", "differential privacy"
    assert reasons() == [
        f"quantiles ({individual}): 1000001 possible values, counts are better up to 178",
        f"counts ({whole}): its categories have no order",
    ]  # fmt: skip
    asked = reasons(mechanism="dp-quantiles")[0]
    assert asked == f"quantiles ({whole}), as asked for: 1000001 possible values, counts are better up to 178"
    assert reasons(mechanism="dp") == [f"every record by itself ({whole})"] * 2


# --- words ----------------------------------------------------------------------------------------------


def test_words_say_whose_rank_noise_differs():
    """Owners can have their own; it is said where an attribute has several, none among them."""
    schemas = {
        name: replace(schema(attributes=(WIDE, FEW)), rank_noise=own)
        for name, own in (("a", Decimal("0.1")), ("b", None), ("c", Decimal("0.2")))
    }
    noise = RankNoise(Decimal(0), (("few", Decimal("0.2")),))
    plan = make_plan(request("a", "b", "c", k=None, rank_noise=noise), schemas, **MADE)
    told = " ".join(promises(plan))
    records = "of the number of records for"
    assert f"rank noise 0.1 {records} wide of a; 0.2 {records} few; 0.2 {records} wide of c. " in told


def test_words_say_the_distance_and_the_bound():
    """A data protection officer reads what a small change, a large one and any change can do."""
    told = " ".join(promises(planned(RankNoise(Decimal("0.03"), (("few", Decimal("0.1")),)))))
    assert "0.03 of the number of records for wide; 0.1 of the number of records for few" in told
    assert "1 % of the ranks away, no result becomes more than 1.95 times, exp(0.6667)," in told
    assert "at 10 % exp(6.6667) times; whatever it is replaced by, exp(66.6667) times" in told
    assert "more than 1.23 times, exp(0.2)," in told
    assert "at 10 % 7.39 times, exp(2); whatever it is replaced by, exp(20) times. So" in told
    table = Decimal(1) + THIRD + 20
    assert (
        f"who has which value included: individual differential privacy with ε = {rounded_up(table):f},"
        in told
    )


@pytest.mark.parametrize(("share", "hardly"), [("0.03", True), ("0.02", True), ("0.019", False)])
def test_words_do_not_praise_little_rank_noise(share, hardly):
    """Neighbours are called hardly told apart only where 1 % of the ranks changes a probability less than
    threefold.
    """
    told = " ".join(promises(planned(RankNoise(Decimal(share)))))
    assert ("hardly distinguishes a record from those near it in rank" in told) is hardly
    assert (
        "With so little rank noise the release can distinguish a value even from one" in told
    ) is not hardly


def test_words_say_how_well_few_values_are_told_apart():
    """The factor of the attribute's own number of values; none where the next value is near in ranks."""
    sex, grade, age = (
        Attribute(name, AttributeType.CATEGORY, 0, n - 1, categories=tuple(map(str, range(n))))
        for name, n in (("sex", 2), ("grade", 5), ("age", 90))
    )
    told = " ".join(
        promises(make_plan(request("a", k=None), {"a": schema(attributes=(sex, grade, age))}, **MADE))
    )
    assert "has the next one: 32 for sex (2 values), 12 for grade (5 values). With" in told
    assert "on average: 2.9 % with 0.03." in told
    noise = RankNoise(Decimal(1))
    plan = make_plan(request("a", k=None, rank_noise=noise), {"a": schema(attributes=(sex,))}, **MADE)
    assert "has the next one" not in " ".join(promises(plan))
    assert "on average: 28 % with 1." in " ".join(promises(plan))


def test_words_of_what_rank_noise_does_not_hide():
    """With rank noise it is not said that nothing limits the pattern, nor that nobody can be found."""
    told = " ".join(invariants(planned()))
    assert "can still re-identify records. How many depends on the data" in told
    assert "not of the attachment" not in told
    partly = planned(RankNoise(DEFAULT, (("few", Decimal(0)),)))
    assert "not of the attachment" in " ".join(invariants(partly))
    assert "there is no bound (few: no rank noise)" in " ".join(promises(partly))


def test_words_without_rank_noise_say_nothing_of_it():
    """Plans of the papers keep their words."""
    told = " ".join([*promises(planned(NONE)), *invariants(planned(NONE))])
    assert "rank noise" not in told
    assert "not of the attachment" in told


def test_words_for_several_records_of_a_person():
    """The distance is that of all records of a person together: twice the loss for two."""
    own = Schema((WIDE,), IdentifierRules(1, ("trim",)), 2, 1000)
    told = " ".join(promises(make_plan(request("a", k=None), {"a": own}, **MADE)))
    assert "up to 2 records of a person are replaced" in told
    assert "3.80 times, exp(1.3334)," in told
    assert "exp(133.3334)" in told
