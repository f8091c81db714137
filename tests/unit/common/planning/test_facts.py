"""Facts across owners: read from a file, resolved against schemas, and part of the plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator.control.facts_file import facts_document
from common.canonical import canonical
from common.errors import ConfigurationError, UsageError
from common.model.compatibility import features_of
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, Derivation, IdentifierRules, Schema
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.planning.arguments import ReleaseArguments, parse_arguments
from common.planning.facts import NO_FACTS, parse_facts
from common.planning.planner import make_plan
from common.planning.synthetic import design_of
from common.words.essentials import essentials
from common.words.guarantee import promises

AGE = Attribute("age", AttributeType.INTEGER, 0, 90)
PAY = Attribute("pay", AttributeType.NUMBER, 0, 99_999, 2)
JOB = Attribute("job", AttributeType.CATEGORY, 0, 2, categories=("none", "nurse", "surgeon"))
GRADE = Attribute("grade", AttributeType.CATEGORY, 0, 1, categories=("low", "high"))
BED = Attribute("bed", AttributeType.BOOLEAN, 0, 1)
LEVEL = Attribute(
    "level", AttributeType.INTEGER, 0, 9, derivation=Derivation("grade", (("low", "1"), ("high", "2")))
)
ADULTS = StructuralZero((ExcludedValues("age", (("0", "15"),)), ExcludedValues("job", (("nurse", "nurse"),))))
IDENTIFIER = IdentifierRules(1, ("trim",))
SCHEMAS = {
    "a": Schema((AGE, JOB), IDENTIFIER, records_rounded=5000, structural_zeros=(ADULTS,)),
    "b": Schema((PAY, GRADE, BED), IDENTIFIER, records_rounded=5000),
}
RULE = 'structural_zeros = [{ job = ["none"], pay = { min = 0.01 } }]\n'


def rules(*written: str) -> str:
    """Return a file of rules."""
    return f"structural_zeros = [{', '.join(written)}]\n"


def table(name: str, follows: str, values: str) -> str:
    """Return the table of an attribute that follows another one."""
    return f'[attributes.{name}]\nfollows = "{follows}"\nvalues = {{ {values} }}\n'


TABLE = table("grade", "job", 'none = "low", nurse = "low", surgeon = "high"')


def asked(facts: str = RULE + TABLE, **changes) -> ReleaseArguments:
    """Return arguments with facts, read as the daemon reads them."""
    return parse_arguments(**{
        "dataset": "patients", "layout": "vertical", "epsilon": "1", "groups": [["a"], ["b"]],
        "release": "r1", "product": "synthetic", "facts": facts_document(facts) if facts else "",
    } | changes)  # fmt: skip


def planned(facts: str = RULE + TABLE, schemas=SCHEMAS, **changes) -> Plan:
    """Return the plan of a vertical release."""
    return make_plan(
        asked(facts, **changes), schemas, aggregator="spiffe://t/aggregator/hub",
        created="2026-01-02T03:04:05+00:00", version="1.0",
    )  # fmt: skip


def test_facts_are_part_of_the_plan_and_of_its_digest():
    """Rules of owners stay apart from those of the operator; what follows is not counted anywhere."""
    plan, without = planned(), planned("")
    synthesis, declared = plan.synthesis, without.synthesis
    assert synthesis is not None
    assert declared is not None
    assert synthesis.structural_zeros == declared.structural_zeros == (ADULTS,)
    assert [str(each) for each in synthesis.stated_zeros] == ["job none with pay 0.01 to 999.99"]
    assert synthesis.stated_following == ("grade",)
    assert [each.name for each in plan.attributes] == ["age", "job", "pay", "bed"]
    assert plan.assignment_of("b").names == ("pay", "bed")
    assert [each.name for each in plan.released] == ["age", "job", "grade", "pay", "bed"]
    assert len(design_of(plan).rules) == 2
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert plan.digest != without.digest
    assert b"stated" not in without.to_bytes()
    # Owners that know what carries them know them.
    assert features_of(plan) == ("following", "key-proof", "synthetic-determined")


def test_owners_are_shown_facts_as_the_operators():
    """On one page and in full; each rule says whose it is."""
    for lines in (promises(planned()), essentials(planned())):
        shown = "\n".join(lines)
        assert "Declared rules hold in every record. None has: age 0 to 15 with job nurse." in shown
        assert "Rules that the operator states hold in every record. None has: job none with pay" in shown
        assert "grade follows job: its released values are derived from those of job, by a" in shown
        assert "no owner counts its own values" in shown


def test_facts_are_arguments_of_the_release():
    """They are compared by what they say, and the journal keeps them."""
    arguments = asked()
    again = ReleaseArguments.from_document(json.loads(json.dumps(arguments.to_document())))
    assert again == arguments == asked(f"# a comment\n{RULE}\n{TABLE}")
    assert arguments != asked(RULE)
    assert "facts" not in asked("").to_document()
    with pytest.raises(UsageError, match="--facts: only with --product synthetic"):
        asked(product="masked")


def test_a_group_of_owners_can_have_a_derived_attribute():
    """None of them counts it."""
    schemas = dict.fromkeys("ab", SCHEMAS["b"])
    facts = table("grade", "bed", 'true = "low", false = "high"')
    plan = planned(facts, schemas, layout="horizontal", groups=[["a", "b"]])
    assert [each.names for each in plan.tasks] == [("pay", "bed")] * 2


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (rules('{ jobb = ["none"] }'), r"\[1\]: the release has no attribute 'jobb'; did you mean 'job'"),
        (rules('{ job = ["nun"] }'), r"structural_zeros\[1\]: job: 'nun' is not a value"),
        (rules("{ job = { max = 3 } }"), "job: labels have no range"),
        (rules("{ age = { min = 91 } }"), "age: 91 is outside the domain"),
        (rules("{ pay = [0.001] }"), r"pay: '0\.001' has more than 2 decimals"),
        (rules("{ age = { min = 5, max = 4 } }"), "age: '5' to '4' is no range"),
        (rules("{ age = [1] }", "{ age = [1] }"), r"\[2\]: is the same as structural_zeros\[1\]"),
        (rules('{ job = ["nurse"], age = { max = 15 } }'), "owner a declares the same rule"),
        (rules('{ grade = ["low"] }') + TABLE, "grade follows job: state the fact about that"),
        (rules('{ job = ["none", "nurse", "surgeon"] }'), "leave no possible record"),
        (rules(*(f"{{ age = [1], pay = [{i}] }}" for i in range(100))), "101 rules"),
        (TABLE.replace("grade", "grad"), r"attributes\.grad: the release has no attribute 'grad'"),
        (TABLE.replace('"job"', '"jobs"'), r"attributes\.grade: the release has no attribute 'jobs'"),
        (TABLE.replace('"job"', '"grade"'), r"attributes\.grade: grade follows grade"),
        (TABLE.replace("none =", "nobody ="), "'nobody' is not a value of 'job'"),
        (TABLE.replace('"high"', '"higher"'), "'higher' is not a value of 'grade'"),
        (TABLE.replace('none = "low", ', ""), "nothing follows from 'none' of 'job'"),
        (TABLE + table("bed", "grade", "low = true"), "bed: grade follows job: state"),
        (table("job", "bed", 'true = "none", false = "nurse"'), 'owner a declares the rule "age'),
    ],
)  # fmt: skip
def test_facts_that_cannot_be_used(facts, said):
    """Each is named with what is wrong, before any owner is asked."""
    with pytest.raises(UsageError, match=said):
        planned(facts)


def test_every_fault_is_named():
    """One answer for the whole file."""
    with pytest.raises(UsageError) as caught:
        planned(rules('{ x = ["1"] }', '{ y = ["1"] }'))
    assert len(caught.value.details["facts"]) == 2


def test_what_owners_declare_is_not_lost():
    """What follows a derived attribute at its owner could not be derived; a group keeps some to count."""
    b = replace(SCHEMAS["b"], following=(LEVEL,))
    with pytest.raises(UsageError, match="level follows it as its owner declares"):
        planned(schemas=SCHEMAS | {"b": b})
    # It is not requested, so it is not lost.
    planned(TABLE, SCHEMAS | {"b": b}, attributes=["age", "job", "grade", "pay"])
    with pytest.raises(UsageError, match="level follows grade: state the fact about that attribute"):
        planned(table("level", "job", "none = 1, nurse = 2, surgeon = 3"), SCHEMAS | {"b": b})
    with pytest.raises(UsageError, match="facts derive every attribute of b"):
        planned(TABLE, attributes=["age", "job", "grade"])
    with pytest.raises(UsageError, match="the release has no attribute 'grade'"):
        planned(attributes=["age", "job", "pay"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no fact is stated"),
        ("structural_zeros = [{ }]", "structural_zeros[1]: names no attribute"),
        ("structural_zero = []", "structural_zero: unknown key; did you mean 'structural_zeros'?"),
        ('[attributes.grade]\nfollow = "job"', "grade.follow: unknown key; did you mean 'follows'?"),
        ('[attributes.grade]\nfollows = "job"', "attributes.grade.values: missing; such as"),
        ("structural_zeros = [{ age = 3 }]", "structural_zeros[1].age = 3: expected values, such as"),
        ("structural_zeros =", "Invalid value"),
    ],
)  # fmt: skip
def test_files_that_state_no_facts(tmp_path: Path, text: str, said: str):
    """The command says what is wrong in which file, and asks nobody."""
    place = tmp_path / "facts.toml"
    place.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        facts_document(place)
    assert said in str(caught.value)
    assert str(place) in str(caught.value)


def test_a_request_with_other_facts_than_this_version_reads():
    """It is refused instead of guessed."""
    assert parse_facts("") == parse_facts("{}") == NO_FACTS
    for text in ("[]", "x", '{"structural_zeros": [1]}', '{"following": [{"name": "x"}]}', '{"later": "1"}'):
        with pytest.raises(UsageError, match="does not state facts"):
            parse_facts(text)


def test_a_plan_states_facts_about_itself():
    """Each derived attribute is released, and values are written as their attributes write them."""
    document = planned().to_document()
    for changes in (
        {"stated_following": ["age"]},
        {"stated_following": ["grade", "grade"]},
        {"stated_zeros": [{"values": [{"attribute": "age", "ranges": [["05", "9"]]}]}]},
        {"stated_zeros": [{"values": [{"attribute": "grade", "ranges": [["low", "low"]]}]}]},
        {"stated_zeros": document["synthesis"]["structural_zeros"]},
    ):
        changed = document | {"synthesis": document["synthesis"] | changes}
        with pytest.raises(ValueError, match="not a valid Plan"):
            Plan.from_bytes(canonical(changed))
