"""Every engine gives the same fragment, byte for byte, under the same key and from the same source.

Batches of a few records have their borders inside clusters, inside ties and inside persons.
"""

import io
from contextlib import closing
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import TesseraError
from common.model.schema import Attribute, AttributeType, CategoryOrder, TaxonomyMethod
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import PinnedData, pin
from owner_node.masking.mask import mask_with
from owner_node.masking.tasks import AttributeTask
from owner_node.values.taxonomy import read_hierarchy, taxonomy_of
from tests.fakes.bits import SeededBits
from tests.fakes.releases import make_plan

MEMORY = 256 * 10**6
RELEASE_KEY, SOURCE_KEY = b"r" * 32, b"s" * 32
COLOURS = ("red", "green", "blue", "violet")
TAXONOMY = taxonomy_of(
    read_hierarchy("red;warm;any\ngreen;cold;any\nblue;cold;any\nviolet;cold;any\n"), COLOURS
)
AGE = Attribute("age", AttributeType.INTEGER, -3, 9)
PAY = Attribute("pay", AttributeType.NUMBER, 0, 10**9, 2, spikes=(0, 50_000))
FAR = Attribute("far", AttributeType.INTEGER, -(2**40), 2**40)
BORN = Attribute("born", AttributeType.DATE, 0, 20000)
LAB = Attribute("lab", AttributeType.NUMBER, 0, 400, 1, keeps_missing=True)
COLOUR = Attribute("colour", AttributeType.CATEGORY, 0, 3, categories=COLOURS)
OFTEN = Attribute("often", AttributeType.CATEGORY, 0, 3, categories=COLOURS, order=CategoryOrder.FREQUENCY)
DRAWN = Attribute(
    "drawn",
    AttributeType.CATEGORY,
    0,
    3,
    categories=COLOURS,
    taxonomy=TAXONOMY.digest,
    method=TaxonomyMethod.EXPONENTIAL,
)  # fmt: skip
ATTRIBUTES = (AGE, PAY, FAR, BORN, LAB, COLOUR, OFTEN, DRAWN)
NAMES = [attribute.name for attribute in ATTRIBUTES]
PLAN = make_plan([(NAMES, ["north"])], attributes=ATTRIBUTES)
CLUSTERED = ("dp-ir", "idp-ls", "idp-cbls", "idp-joint", "idp-quantiles", "dp-quantiles")
BY_RECORD = ("dp", "idp")

RECORDS = st.tuples(
    st.integers(-3, 9),
    st.decimals(0, 10**7, places=2) | st.sampled_from((Decimal(0), Decimal(500))),
    st.integers(-(2**40), 2**40),
    st.dates(min_value=date(1970, 1, 1), max_value=date(2020, 1, 1)),
    st.sampled_from(("", "0", "7.5", "40")),
    st.sampled_from(COLOURS),
    st.sampled_from(("red", "red", "blue")),
    st.sampled_from((*COLOURS, "")),
)


@st.composite
def tables(draw: Any) -> tuple[DatasetConfig, str]:
    """The text of a CSV file, and how it is declared: missing values drop, some persons have many records."""
    rows = draw(st.lists(RECORDS, min_size=1, max_size=60))
    if draw(st.booleans()):
        people = draw(st.permutations(range(len(rows))))
    else:
        people = draw(st.lists(st.integers(0, 8), min_size=len(rows), max_size=len(rows)))
    most = max(map(people.count, people))
    lines = [",".join(map(str, (f"p{person}", *row))) for person, row in zip(people, rows, strict=True)]
    dataset = DatasetConfig(
        name="cohort", source="", budget="people", total_epsilon=Decimal(3), identifier=("id",),
        normalise=("trim",), max_records_per_person=most, attributes=ATTRIBUTES, missing="drop",
        missing_in={"lab": "category"}, taxonomies={"drawn": TAXONOMY},
    )  # fmt: skip
    return dataset, "\n".join([",".join(("id", *NAMES)), *lines, ""])


@st.composite
def tasks(draw: Any) -> tuple[AttributeTask, ...]:
    """How each attribute is masked."""
    found = []
    for attribute in ATTRIBUTES:
        mechanisms: tuple[str, ...] = (*CLUSTERED, *BY_RECORD)
        if attribute.name == "drawn":
            mechanisms = ("exponential",)
        elif attribute.keeps_missing:
            mechanisms = ("dp-hist",)
        elif attribute.name not in ("pay", "far"):
            mechanisms = (*mechanisms, "dp-hist")
        mechanism = draw(st.sampled_from(mechanisms))
        clustered = mechanism in (*CLUSTERED, "exponential")
        listed = mechanism not in BY_RECORD
        found.append(
            AttributeTask(
                attribute,
                Decimal(draw(st.sampled_from(("0.1", "1", "20")))),
                draw(st.integers(3, 12)) if clustered else None,
                mechanism,
                taxonomy=TAXONOMY if attribute.name == "drawn" else None,
                rank_noise=Decimal(draw(st.sampled_from(("0", "0.01", "0.5")))) if listed else Decimal(0),
                epsilon_spikes=Decimal("0.01")
                if attribute.spikes and mechanism.endswith("-quantiles")
                else Decimal(0),
            )
        )
    return tuple(found)


def fragment(data: PinnedData, chosen: tuple[AttributeTask, ...], seed: int, *, aligned: bool) -> bytes:
    """Mask and encode under keys that follow from a number."""
    records = data.records.engine
    records.check(chosen)
    masked = {
        task.attribute.name: mask_with(records, task, SeededBits(seed + number))
        for number, task in enumerate(chosen)
    }
    stream = io.BytesIO()
    assignment = PLAN.assignment_of("north")
    data.records.write_fragment(stream, assignment, masked, None if aligned else SeededBits(seed - 1))
    return stream.getvalue()


def outcome(action: Any) -> Any:
    """Return the result, or the error that a user would see."""
    try:
        return action()
    except TesseraError as error:
        return type(error), error.message, error.hint


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), tasks(), st.integers(1, 2**32), st.integers(1, 9))
def test_engines_give_the_same_fragment_byte_for_byte(table, chosen, seed, batch_records):
    """Digests, tokens and fragments are equal, for every mechanism, with rank noise or not."""
    dataset, text = table
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cohort.csv"
        path.write_text(text)
        dataset = replace(dataset, source=str(path))
        workspace = Workspace(MEMORY, Path(folder) / "scratch", 2)

        def pinned(kind: EngineKind) -> PinnedData:
            return pin(dataset, NAMES, kind, workspace, RELEASE_KEY, SOURCE_KEY, batch_records)

        memory = outcome(lambda: pinned(EngineKind.MEMORY))
        streamed = outcome(lambda: pinned(EngineKind.DISK))
        if isinstance(memory, tuple):
            assert streamed == memory
            return
        with closing(streamed.records):
            assert (streamed.digest, streamed.known_by, streamed.counts) == (
                memory.digest, memory.known_by, memory.counts
            )  # fmt: skip
            assert streamed.records.token_list().read_bytes() == memory.records.token_list()
            aligned = dataset.max_records_per_person == 1
            expected = outcome(lambda: fragment(memory, chosen, seed, aligned=aligned))
            assert outcome(lambda: fragment(streamed, chosen, seed, aligned=aligned)) == expected
        assert not list((Path(folder) / "scratch").iterdir())
