"""Every schema that planning accepts is published, with its report, whatever values are released."""

import json
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.api.answers import read_schema
from aggregator.release.conflicts import conflicts
from common.arrays import Int64Array
from common.canonical import canonical
from common.model.plan import Plan
from common.model.schema import RESERVED_NAMES, Attribute, AttributeType, Schema, fault_of_cell, to_units
from common.planning.planner import make_plan
from common.release.report import LEFT_OUT
from common.release.verification import REPORT_FILE, verify_release
from tests.fakes.protocol_peers import RECORDS, request, schema, vertical
from tests.fakes.published import make_release, read_units
from tests.fakes.releases import AGGREGATOR

LOWEST, HIGHEST = -(2**63), 2**63 - 1
FIRST_DAY, LAST_DAY = (to_units(AttributeType.DATE, day.isoformat()) for day in (date.min, date.max))
NAMES = st.text(
    st.characters(exclude_categories=["Cs"]).filter(str.isprintable), min_size=1, max_size=20
).filter(lambda name: name not in RESERVED_NAMES and not fault_of_cell(name))
LABELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda label: not fault_of_cell(label)
)


def domains(lowest: int, highest: int) -> st.SearchStrategy[tuple[int, int]]:
    """Return domains that reach to an end of a type, to both, or to none; some have one value."""
    ends = st.one_of(st.sampled_from([lowest, highest]), st.integers(lowest, highest), st.integers(-9, 9))
    near = st.integers(0, 400).flatmap(lambda off: st.sampled_from([lowest + off, highest - off]))
    return st.tuples(ends | near, ends | near).map(lambda pair: (min(pair), max(pair)))


@st.composite
def attributes(draw: st.DrawFn, name: str) -> Attribute:
    """Any attribute of any type."""
    kind = draw(st.sampled_from(list(AttributeType)))
    match kind:
        case AttributeType.CATEGORY:
            labels = tuple(draw(st.lists(LABELS, min_size=1, max_size=40, unique=True)))
            ordered = draw(st.booleans())
            return Attribute(name, kind, 0, len(labels) - 1, categories=labels, ordered=ordered)
        case AttributeType.BOOLEAN:
            return Attribute(name, kind, 0, 1)
        case AttributeType.DATE:
            return Attribute(name, kind, *draw(domains(FIRST_DAY, LAST_DAY)))
        case _:
            decimals = draw(st.integers(0, 18)) if kind is AttributeType.NUMBER else 0
            return Attribute(name, kind, *draw(domains(LOWEST, HIGHEST)), decimals=decimals)


@st.composite
def values(draw: st.DrawFn, attribute: Attribute, n_records: int) -> Int64Array:
    """Released values: both ends of the domain, how often either is drawn, too, and some between."""
    between = draw(st.lists(st.integers(attribute.lower, attribute.upper), max_size=3))
    n_upper = draw(st.integers(1, n_records - 1 - len(between)))
    n_lower = n_records - n_upper - len(between)
    found = [*[attribute.lower] * n_lower, *[attribute.upper] * n_upper, *between]
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(np.array(found, dtype=np.int64))


@st.composite
def released(draw: st.DrawFn) -> tuple[Plan, Mapping[str, Int64Array]]:
    """A plan of two owners, and what they release: one below the other, or side by side."""
    side_by_side = draw(st.booleans())
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    declared = tuple(draw(attributes(name)) for name in names)
    if side_by_side:
        asked = vertical("a", "b")
        schemas = {"a": schema(attributes=declared[:1]), "b": schema(attributes=declared[1:])}
    else:
        asked, schemas = request("a", "b"), dict.fromkeys("ab", schema(attributes=declared))
    sent = {owner: canonical(each.to_document()) for owner, each in schemas.items()}
    read = {owner: Schema.from_document(json.loads(read_schema(each))) for owner, each in sent.items()}
    assert not conflicts(asked, read)
    plan = make_plan(asked, read, aggregator=AGGREGATOR, created="2026-03-01T12:00:00+00:00", version="0.1.0")
    n_records = RECORDS if side_by_side else 2 * RECORDS
    return plan, {each.name: draw(values(each, n_records)) for each in plan.attributes}


@settings(max_examples=60, deadline=None)
@given(made=released())
def test_what_planning_accepts_is_published(made):
    """Owners have spent when a release is published: no domain and no value may be in the way, neither of the
    data in both formats nor of any figure.
    """
    plan, columns = made
    with tempfile.TemporaryDirectory() as directory:
        folder = make_release(
            Path(directory), plan=plan, columns=columns, n_records=len(columns[plan.attributes[0].name])
        ).folder
        assert verify_release(folder).files == ("data.csv", "data.parquet", REPORT_FILE)
        assert LEFT_OUT not in (folder / REPORT_FILE).read_text()
        for name in ("data.csv", "data.parquet"):
            found = read_units(folder / name, plan, list(columns))
            for each, expected in columns.items():
                assert np.array_equal(np.sort(found.column(each)), np.sort(expected))
