"""Conflicts of every kind between what owners declare, told together."""

from dataclasses import replace
from time import process_time

import pytest

from aggregator.release.conflicts import conflict_error, conflicts
from common.model.products import Product
from common.model.schema import Attribute, AttributeType, CategoryOrder, IdentifierRules
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.planning.planner import make_plan
from tests.fakes.protocol_peers import category, request, schema, vertical

MADE = {"aggregator": "spiffe://d/aggregator/a", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}


def test_all_conflicts_together():
    """Every difference between owners is told at once, each with owner, attribute and a way out."""
    x = Attribute("x", AttributeType.INTEGER, 0, 100)
    mine = schema(attributes=(x, Attribute("y", AttributeType.BOOLEAN, 0, 1), category("u", "v")))
    theirs = schema(
        attributes=(replace(x, upper=90, outside="clamp"), category("u", "w"), Attribute("q", x.type, 0, 1)),
        identifier=False,
    )
    found = conflicts(request("a", "b"), {"a": mine, "b": theirs})
    assert {(each.owner, each.attribute, each.what.split()[0]) for each in found} == {
        ("b", "x", "max"),
        ("b", "x", "outside"),
        ("b", "y", "is"),
        ("a", "q", "is"),
        ("b", "c", "categories"),
        ("b", "", "no"),
    }
    fixes = [each.fix for each in found if each.attribute]
    assert not any("--attributes" in fix for fix in fixes)
    error = conflict_error(found)
    assert len(error.details["conflicts"]) == 7
    assert all(each.fix for each in found)
    assert all(str(each) in error.message for each in found)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"type": AttributeType.DATE}, "type"),
        ({"lower": -1}, "min"),
        ({"upper": 5}, "max"),
        ({"outside": "clamp"}, "outside"),
        ({"spikes": (0, 9)}, "spikes are 0, 9, none"),
        ({"step": 5, "upper": 20}, "step is 5, 1 at a"),
        ({"is_logarithmic": True}, 'scale = "log" is declared, but not at a'),
    ],
)
def test_each_setting_counts(changed, word):
    """Owners of a group have to agree on every setting of an attribute."""
    x = Attribute("x", AttributeType.INTEGER, 0, 100)
    other = replace(x, **changed)
    found = conflicts(request("a", "b"), {"a": schema(attributes=(x,)), "b": schema(attributes=(other,))})
    assert [(each.owner, each.attribute) for each in found] == [("b", "x")]
    assert found[0].what.startswith(word)


def test_number_decimals_and_category_order_count():
    """Resolution, order of labels, `ordered` and frequency order are settings like any other."""
    number = Attribute("x", AttributeType.NUMBER, 0, 100, decimals=1)
    pairs = [
        (number, replace(number, decimals=2, upper=1000)),
        (category("u", "v"), category("v", "u")),
        (category("u", "v"), replace(category("u", "v"), ordered=True)),
        (category("u", "v"), category("u", "v", order=CategoryOrder.FREQUENCY)),
    ]
    for one, other in pairs:
        schemas = {"a": schema(attributes=(one,)), "b": schema(attributes=(other,))}
        assert len(conflicts(request("a", "b"), schemas)) == 1


def test_what_looks_the_same_is_written_with_its_code_points():
    """Composed and decomposed accents differ; a conflict that prints them alike would help nobody."""
    ours, theirs = (
        category("caf\u00e9", "na\u00efve", "t\u00e9a"),
        category("cafe\u0301", "nai\u0308ve", "tea"),
    )
    schemas = {"a": schema(attributes=(ours,)), "b": schema(attributes=(theirs,))}
    assert [each.what for each in conflicts(request("a", "b"), schemas)] == [
        r"categories 'cafe\u0301', 'nai\u0308ve' look the same, and are 'caf\xe9', 'na\xefve' at a",
        "categories 'téa' are not declared, but at a",
        "categories 'tea' are declared, but not at a",
    ]
    schemas = {"a": schema("caf\u00e9", "x"), "b": schema("cafe\u0301", "x")}
    found = {(each.owner, each.what) for each in conflicts(request("a", "b"), schemas)}
    assert found == {
        ("b", r"is 'cafe\u0301', which looks the same as 'caf\xe9' at a"),
        ("a", r"is 'caf\xe9', which looks the same as 'cafe\u0301' at b"),
    }
    (unknown,) = conflicts(request("a", attributes=("cafe\u0301",)), {"a": schema("caf\u00e9")})
    assert r"did you mean 'caf\xe9', which is 'cafe\u0301' here?" in unknown.fix


def test_vertical_clashes():
    """In a vertical release an attribute belongs to one owner, and leaving it out resolves a clash."""
    schemas = {"a": schema("x", "s"), "b": schema("y", "s")}
    (clash,) = conflicts(vertical("a", "b"), schemas)
    assert (clash.owner, clash.attribute) == ("b", "s")
    assert conflicts(vertical("a", "b", attributes=("x", "y")), schemas) == ()
    assert len(conflicts(vertical("a", "b", attributes=("x", "y", "s")), schemas)) == 1
    (nothing,) = conflicts(vertical("a", "b", attributes=("x",)), schemas)
    assert (nothing.owner, nothing.what) == ("b", "none of its attributes takes part")
    (missing,) = conflicts(vertical("a", "b", attributes=("x", "zz")), schemas)
    assert (missing.attribute, missing.what) == ("zz", "no owner has it")


def test_vertical_needs_equal_identifiers():
    """Records of different groups can only be aligned where all owners declare the identifier alike."""
    other = replace(schema("y"), identifier=IdentifierRules(2, ("trim",)))
    assert len(conflicts(vertical("a", "b"), {"a": schema("x"), "b": other})) == 1
    dated = replace(schema("y"), identifier=IdentifierRules(1, ("trim",), also=(("date",),)))
    (differs,) = conflicts(vertical("a", "b"), {"a": schema("x"), "b": dated})
    assert "trim, column 1 also date (version 1)" in differs.what
    without = {"a": schema("x", identifier=False), "b": schema("y", identifier=False)}
    assert [each.owner for each in conflicts(vertical("a", "b"), without)] == ["a", "b"]


def test_horizontal_without_identifiers_is_asserted():
    """Where nobody declares an identifier, nothing is linked and the plan says so."""
    schemas = {owner: schema("x", identifier=False) for owner in "ab"}
    assert conflicts(request("a", "b"), schemas) == ()
    plan = make_plan(request("a", "b"), schemas, **MADE)
    assert (plan.linking.tokens, plan.identifier) == (False, None)


@pytest.mark.parametrize("name", ["record", "token"])
def test_reserved_names(name):
    """An attribute cannot be called like a column that a release or fragment has anyway."""
    (found,) = conflicts(request("a"), {"a": schema(name)})
    assert found.attribute == name


def test_the_plan_has_the_texts_of_identifiers_that_all_owners_know():
    """An owner of the version before makes no conflict, and decides how identifiers are written."""
    newer = IdentifierRules(1, ("trim",), texts=2)
    schemas = {"a": replace(schema("x"), identifier=newer), "b": replace(schema("x"), identifier=newer)}
    plan = make_plan(request("a", "b"), schemas, **MADE)
    assert plan.identifier is not None
    assert plan.identifier.to_document()["texts"] == 2
    schemas["b"] = schema("x")
    assert conflicts(request("a", "b"), schemas) == ()
    plan = make_plan(request("a", "b"), schemas, **MADE)
    assert plan.identifier is not None
    assert "texts" not in plan.identifier.to_document()


def test_owners_declare_the_same_structural_zeros():
    """Where records are synthetic; and only rules about attributes of the release count."""
    x, y = (Attribute(name, AttributeType.INTEGER, 0, 100) for name in "xy")
    of_x = StructuralZero((ExcludedValues("x", (("3", "3"),)),))
    of_both = StructuralZero((*of_x.values, ExcludedValues("y", (("0", "50"),))))
    alike = schema(attributes=(x, y))
    schemas = {
        "a": replace(alike, structural_zeros=(of_x,)),
        "b": replace(alike, structural_zeros=(of_both,)),
    }
    asked = replace(request("a", "b"), product=Product.SYNTHETIC)
    found = conflicts(asked, schemas)
    assert [each.owner for each in found] == ["b", "b"]
    assert [each.what for each in found] == [
        'the structural zero "x 3" is not declared, but at a',
        'the structural zero "x 3 with y 0 to 50" is declared, but not at a',
    ]
    assert not conflicts(request("a", "b"), schemas)
    assert not conflicts(replace(asked, attributes=("y",)), schemas)


def test_many_labels_and_names_are_compared_in_time():
    """A schema holds 200,000 labels or 10,000 names, and the aggregator compares them between owners."""
    n_labels, n_names = 20_000, 4_000
    labels = [schema(attributes=(category(*map(f"{word}{{}}".format, range(n_labels))),)) for word in "uv"]
    x = Attribute("x", AttributeType.INTEGER, 0, 100)
    names = [
        schema(attributes=(x, *(replace(x, name=f"{word}{each}") for each in range(n_names))))
        for word in "uv"
    ]
    begun = process_time()
    assert len(conflicts(request("a", "b"), dict(zip("ab", labels, strict=True)))) == 2
    assert len(conflicts(request("a", "b"), dict(zip("ab", names, strict=True)))) == 2 * n_names
    # It took 40 s and 8 s.
    assert process_time() - begun < 4
