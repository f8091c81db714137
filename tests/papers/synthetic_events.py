"""Two tables, of persons and of their events, beside persons alone at half the ε: docs/person-tables.md.

100,000 simulated persons with five attributes and up to ten events: wards, of which each makes some others
more likely, and days between, which depend on the ward. Frail and old persons have more events.
"""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import mean

import numpy as np

from common.arrays import Int64Array
from common.model.events import EventTable, number_attribute, slots_of
from common.model.schema import Attribute, AttributeType
from common.release.events import unfold
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.risk.total_variation import Distributions
from owner_node.synthesis.own_table import synthesise_together
from tests.papers.tables import Numbers

N_PERSONS, AT_MOST, DELTA = 100_000, 10, Decimal("0.000001")
WARDS = ("emergency", "medicine", "surgery", "intensive", "rehabilitation", "home")
LONGEST = 365
HEADS = (
    "release", "number of events", "events by number and person", "transitions", "days between",
    "two-way TV of persons",
)  # fmt: skip


def _category(name: str, labels: Sequence[str]) -> Attribute:
    return Attribute(name, AttributeType.CATEGORY, 0, len(labels) - 1, categories=tuple(labels))


def simulated(n_persons: int, seed: int) -> tuple[tuple[Attribute, ...], list[Int64Array]]:
    """Return attributes, those of events last, and values in units, `(n_persons,)` by attribute."""
    draw = np.random.default_rng(seed)
    age = np.clip(draw.normal(52, 20, n_persons), 0, 99).astype(np.int64)
    female = draw.integers(0, 2, n_persons)
    region = np.minimum(draw.geometric(0.3, n_persons) - 1, 7)
    frail = (draw.random(n_persons) < 0.05 + age / 200).astype(np.int64)
    weight = np.clip(draw.normal(84 - 12 * female - age / 20, 12), 30, 199).astype(np.int64)
    number = np.minimum(draw.poisson(0.6 + age / 40 + 2.5 * frail), AT_MOST)
    transitions = np.full((len(WARDS), len(WARDS)), 0.05)
    transitions[np.arange(len(WARDS)), (np.arange(len(WARDS)) + 1) % len(WARDS)] += 0.5
    transitions += np.eye(len(WARDS)) * 0.2
    up_to = np.cumsum(transitions / transitions.sum(axis=1, keepdims=True), axis=1)
    wards, days = [], []
    ward = np.where(draw.random(n_persons) < 0.3 + 0.4 * frail, 0, draw.integers(1, 6, n_persons))
    for event in range(AT_MOST):
        there = event < number
        wards.append(np.where(there, ward, len(WARDS)))
        gap = np.minimum(draw.exponential(5 + 25 * ward), LONGEST).astype(np.int64)
        ward = np.minimum((draw.random((n_persons, 1)) > up_to[ward]).sum(axis=1), len(WARDS) - 1)
        days.append(np.where(event + 1 < number, gap, LONGEST + 1))
    integer = AttributeType.INTEGER
    persons = {
        Attribute("age", integer, 0, 99): age,
        Attribute("female", AttributeType.BOOLEAN, 0, 1): female,
        _category("region", [f"region {each}" for each in range(8)]): region,
        Attribute("frail", AttributeType.BOOLEAN, 0, 1): frail,
        Attribute("weight", integer, 30, 199): weight,
        number_attribute("events", AT_MOST): number,
    }
    slots = (
        *slots_of(_category("ward", WARDS), 1, AT_MOST),
        *slots_of(Attribute("days", integer, 0, LONGEST), 2, AT_MOST),
    )
    return (*persons, *slots), [*persons.values(), *wards, *days[:-1]]


def _variation(one: Int64Array, other: Int64Array) -> float:
    size = int(max(one.max(), other.max())) + 1
    shares = [np.bincount(each, minlength=size) / each.size for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _of_events(attributes: Sequence[Attribute], units: Sequence[Int64Array]) -> tuple[Int64Array, ...]:
    """Return number, number by frailty and age, transitions and days between events, as codes."""
    events = EventTable.of(attributes)
    if events is None:
        raise ValueError("no attribute is a slot")
    by_name = {each.name: column for each, column in zip(attributes, units, strict=True)}
    table = unfold(events, by_name)
    follows = np.flatnonzero(table["record"][1:] == table["record"][:-1])
    steps = table["ward"][follows] * len(WARDS) + table["ward"][follows + 1]
    person = by_name["frail"] * 10 + by_name["age"] // 10
    return by_name["events"], by_name["events"] * 20 + person, steps, table["days"][follows + 1] // 14


def run(_data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the table.

    Args:
        out: Where CSV files go.
        runs: Releases of every setting.
    """
    attributes, columns = simulated(N_PERSONS, 1)
    alone, n_persons = attributes[:5], 5
    near = Distributions.of(alone, dict(zip((each.name for each in alone), columns, strict=False)))
    codes = [column - each.lower for each, column in zip(attributes, columns, strict=True)]
    expected, rows = _of_events(attributes, columns), []
    for label, epsilon, asked in (
        ("persons alone, ε = 1", "1", alone), ("persons alone, ε = 2", "2", alone),
        ("persons and events, ε = 1", "1", attributes), ("persons and events, ε = 2", "2", attributes),
    ):  # fmt: skip
        found = []
        for _ in range(runs):
            design = Design(asked, N_PERSONS, Decimal(epsilon), DELTA)
            made = synthesise_together(design, [codes[: len(asked)]], [SystemBits()]).codes
            units = [code + each.lower for each, code in zip(asked, made, strict=True)]
            of_events = [float("nan")] * len(expected)
            if len(asked) > n_persons:
                pairs = zip(expected, _of_events(attributes, units), strict=True)
                of_events = [_variation(*pair) for pair in pairs]
            found.append((*of_events, near.total_variation(units[:n_persons])[1]))
        rows.append((f"{label}, δ = 10^-6", tuple(map(mean, zip(*found, strict=True)))))
    table = Numbers(HEADS, tuple(rows))
    table.write(out / "events.csv")
    return {"synthetic events": table.markdown()}
