"""The data of the page on risk: whose records they are, and what each owner makes of its own.

Records are put into one random order, which owners get consecutive parts of; categories are in declared
order, so that every carrier has a joint bound and one scale. Some people are left out of the releases that
are attacked: what an attack finds out about them it finds out about anybody.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from common.model.schema import Schema, round_to_leading_digit
from common.settings import validate
from deploy.demo_data import hospitals
from owner_node.config.dataset import DatasetTable
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.loading import load
from owner_node.masking.arrays import SystemBits
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.draws import SortedAttribute
from owner_node.risk.trials import CONTROL_SHARE, Population, crowd_of
from owner_node.risk.utility import OriginalRecords
from tests.papers import data_sets
from tests.papers.data_sets import DataSet
from tests.papers.prepare import SETUPS


def adult(data: Path) -> DataSet:
    """Return Adult; its class is an income above 50,000."""
    table = pd.read_csv(data / "adult.csv", dtype=str, keep_default_na=False)
    complete = table[~(table == "?").any(axis=1)]
    above = (complete["income"] == ">50K").to_numpy().astype(np.int64)
    return replace(data_sets.adult(data, "declared"), above=above)


def wine(data: Path) -> DataSet:
    """Return Wine Quality, red and white; its class is a quality above 6."""
    table = pd.read_csv(data / "wine_quality.csv", dtype=str, keep_default_na=False)
    above = (table[data_sets.WINE_CLASS].astype(int) > data_sets.WINE_LIMIT).to_numpy().astype(np.int64)
    return replace(data_sets.wine(data), above=above)


def census(data: Path) -> DataSet:
    """Return Census with domains of 1.5 times the largest values; its class are earnings above 30,000."""
    return data_sets.census(data, "1.5")


def demo(folder: Path) -> DataSet:
    """Return the patients of the demonstration's largest hospital, loaded as its owner node loads them.

    Args:
        folder: Where the file is written.
    """
    owner = hospitals(DEMO_SEED)[0]
    owner.write(folder)
    path = folder / owner.owner / "owner.toml"
    (document,) = tomllib.loads(owner.settings)["dataset"]
    dataset = validate(DatasetTable, document, path, lambda _: ()).config()
    return DataSet("demo", dataset.attributes, load(dataset).columns)


DEMO_SEED = 1
MOST_CONTROLS = 150
"""People of all owners who are left out of the releases that are attacked."""
ADULT_OWNERS = SETUPS["adult-horizontal"].records


def shuffled(data: DataSet, random: np.random.Generator) -> DataSet:
    """Return the same records in random order."""
    order = random.permutation(data.n_records)
    columns = {name: column[order] for name, column in data.columns.items()}
    return replace(data, columns=columns, above=None if data.above is None else data.above[order])


@dataclass(frozen=True, slots=True)
class OwnerPart:
    """One owner's records, sorted once."""

    schema: Schema
    """What the owner says about them."""
    whole: OriginalRecords
    """All of them."""
    people: Population
    """Those of the releases that are attacked, and those who were left out."""
    share: float
    """Share of all owners' records."""

    def tasks(self, setting: GridSetting) -> tuple[AttributeTask, ...]:
        """Return how a plan masks each attribute under a setting."""
        cell = plan_cell(setting, self.schema, {})
        if cell.problem:
            raise ValueError(cell.problem)
        return cell.tasks


def parts_of(data: DataSet, sizes: Sequence[int], random: np.random.Generator) -> list[OwnerPart]:
    """Divide records among owners.

    Args:
        data: All records, in random order.
        sizes: Number of records of each owner.
        random: Chooses who is left out.
    """
    ends = np.cumsum(sizes)
    return [
        _part(data, slice(int(end - size), int(end)), random) for end, size in zip(ends, sizes, strict=True)
    ]


def _part(data: DataSet, own: slice, random: np.random.Generator) -> OwnerPart:
    columns = [data.columns[each.name][own] for each in data.attributes]
    n_records = columns[0].size
    share = n_records / data.n_records
    n_outside = min(n_records // CONTROL_SHARE, round(MOST_CONTROLS * share))
    left_out = np.zeros(n_records, dtype=np.bool_)
    left_out[random.choice(n_records, n_outside, replace=False)] = True
    schema = Schema(data.attributes, records_rounded=round_to_leading_digit(n_records))
    part_tasks = plan_cell(GridSetting("auto", Decimal(1), None), schema, {}).tasks

    def ready(chosen: np.ndarray) -> OriginalRecords:
        bits = SystemBits()
        pairs = zip(columns, part_tasks, strict=True)
        return OriginalRecords.of([SortedAttribute.of(column[chosen], task, bits) for column, task in pairs])

    members = ready(~left_out)
    people = Population(members, crowd_of(members, [column[left_out] for column in columns]))
    return OwnerPart(schema, ready(np.ones(n_records, dtype=np.bool_)), people, share)
