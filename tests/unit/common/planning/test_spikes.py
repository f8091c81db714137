"""Declared spikes as they are planned, stated and compared: a tenth of ε where values are averaged."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.errors import ProtocolError
from common.model.compatibility import features_of
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.model.task import PlannedAttribute
from common.planning.planner import make_plan
from common.words.guarantee import promises
from tests.fakes.protocol_peers import request, schema

MADE = {"aggregator": "spiffe://d/aggregator/a", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
PAY = Attribute("pay", AttributeType.NUMBER, 0, 10**7, 2, spikes=(0, 10**7))
FEW = Attribute("few", AttributeType.INTEGER, 0, 9, spikes=(0,))


def planned(pay: Attribute = PAY, few: Attribute = FEW, mechanism: str = "auto") -> Plan:
    """A plan of one owner with an attribute of many values and one of few."""
    own = schema(attributes=(pay, few), records=1000)
    return make_plan(request("a", k=None, epsilon=Decimal(1), mechanism=mechanism), {"a": own}, **MADE)


def test_counts_of_spikes_get_a_tenth_where_values_are_averaged():
    """The charge is the same, and few values are counted anyway."""
    pay, few = planned().tasks[0].attributes
    assert (pay.mechanism, few.mechanism) == ("idp-quantiles", "dp-hist")
    assert (pay.epsilon, pay.epsilon_spikes, pay.epsilon_list) == (
        Decimal("0.5"),
        Decimal("0.05"),
        Decimal("0.45"),
    )
    assert (pay.epsilon_joint, few.epsilon_spikes) == (Decimal("0.5"), Decimal(0))
    without = planned(replace(PAY, spikes=())).tasks[0].attributes[0]
    assert pay.expected_error > without.expected_error
    assert pay.epsilon_joint == without.epsilon_joint


@pytest.mark.parametrize("mechanism", ["idp-joint", "dp-ir", "idp"])
def test_other_mechanisms_do_not_count_them(mechanism):
    """They are as in the papers, whatever is declared."""
    assert all(each.epsilon_spikes == 0 for each in planned(mechanism=mechanism).tasks[0].attributes)


def test_the_plan_states_spikes_and_needs_versions_that_know_them():
    """A plan without spikes has the same bytes as before there were any."""
    plan = planned()
    assert "spikes" in features_of(plan)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    document = plan.to_document()
    assert document["attributes"][0]["spikes"] == ["0.00", "100000.00"]
    assert document["tasks"][0]["attributes"][0]["epsilon_spikes"] == Decimal("0.05")
    without = planned(replace(PAY, spikes=()), replace(FEW, spikes=()))
    assert "spikes" not in without.to_bytes().decode()


def test_the_promise_says_what_counts_of_spikes_cost():
    """One line, with the values and the share."""
    (line,) = (each for each in promises(planned()) if "noisy counts of the records" in each)
    assert line.startswith("pay: how many released values are 0.00 and 100000.00 comes from noisy counts")
    assert "differential privacy with ε = 0.05, which is part of the ε of the attribute" in line


@pytest.mark.parametrize("share", ["0.5", "-0.1"])
def test_no_more_than_a_part_of_epsilon(share):
    """A plan is input from others."""
    document = planned().tasks[0].attributes[0].to_document() | {"epsilon_spikes": share}
    texts = {key: each if each is None else str(each) for key, each in document.items()}
    with pytest.raises((ValueError, ProtocolError)):
        PlannedAttribute.from_document(texts)
