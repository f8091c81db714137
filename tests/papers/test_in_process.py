"""Runs in one process against masking record by record."""

from decimal import Decimal

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking.arrays import SystemBits
from owner_node.masking.tasks import AttributeTask, frequency_order
from tests.fakes.records import mask_attribute
from tests.papers.data_sets import DataSet
from tests.papers.in_process import NOISELESS, Setting, central, horizontal, task_of, vertical

NUMBER = Attribute("income", AttributeType.NUMBER, 0, 100_000, decimals=2)
LABELS = tuple("abcdefgh")
TOWN = Attribute("town", AttributeType.CATEGORY, 0, 7, categories=LABELS, order=CategoryOrder.FREQUENCY)


def table(n_records=403):
    """A number and a category in frequency order."""
    draw = np.random.default_rng(8)
    income = np.minimum(draw.geometric(1 / 20_000, n_records), NUMBER.upper).astype(np.int64)
    town = np.minimum(draw.geometric(0.3, n_records) - 1, 7).astype(np.int64)
    return DataSet("small", (NUMBER, TOWN), {"income": income, "town": town})


def places(attribute, values, everything):
    """Values as they are compared."""
    return frequency_order(everything, 8).place_of[values] if attribute is TOWN else values


def error(data, masked):
    """Mean SSE by its definition."""
    total = 0.0
    for attribute in data.attributes:
        before = data.columns[attribute.name]
        x, z = (places(attribute, v, before).astype(float) for v in (before, masked[attribute.name]))
        total += float(np.square(z - x).mean() / np.var(x, ddof=1))
    return total / len(data.attributes) ** 2


def test_without_noise_it_is_plain_individual_ranking():
    """Clusters of k in order, each value replaced by its cluster's rounded mean."""
    data, k, masked = table(), 7, {}
    for attribute in data.attributes:
        values = data.columns[attribute.name]
        x = places(attribute, values, values)
        order, released = np.argsort(x, kind="stable"), np.empty_like(x)
        for part in np.split(order, np.arange(1, x.size // k) * k):
            released[part] = np.rint(x[part].mean())
        masked[attribute.name] = (
            released if attribute is NUMBER else frequency_order(values, 8).category_at[released]
        )
    setting = Setting(NOISELESS, Decimal(1), k)
    (found,) = central(data, [setting], 2)
    assert found.mean == pytest.approx(error(data, masked))
    assert found.high - found.low < 1e-9
    assert vertical(data, [["income"], ["town"]], [setting], 1)[0].mean == pytest.approx(found.mean)


@pytest.mark.parametrize("mechanism", ["idp-ls", "idp-joint", "dp-ir", "idp"])
def test_runs_are_worth_what_releases_are(mechanism):
    """Means over many draws agree with masking the table as a release does, owner by owner."""
    data, runs = table(), 120
    setting = Setting(mechanism, Decimal(4), None if mechanism == "idp" else 25)
    parts = np.split(np.arange(data.n_records), [150])
    (one,) = central(data, [setting], runs)
    (several,) = horizontal(data, (150, 253), [setting], runs, np.random.default_rng(1))
    for found, owners in ((one, [np.arange(data.n_records)]), (several, parts)):
        expected = []
        for run in range(runs):
            order = np.random.default_rng(run).permutation(data.n_records)
            masked = {each.name: np.empty(data.n_records, dtype=np.int64) for each in data.attributes}
            for each in data.attributes:
                for part in owners:
                    own = data.columns[each.name][order[part]]
                    task = task_of(each, setting, Decimal(2), own.size)
                    masked[each.name][order[part]] = mask_attribute(own, task, SystemBits()).by_record()
            expected.append(error(data, masked))
        spread = np.std(expected) / runs**0.5 + (found.high - found.low) / 4
        assert abs(found.mean - np.mean(expected)) < 5 * spread


def test_shares_of_vertical_owners():
    """An owner with one attribute of two owners gets half of ε for it, one with both a quarter for each."""
    data, setting = table(), Setting("dp-ir", Decimal(2), 25)
    alone = vertical(data, [["income"], ["town"]], [setting], 200)[0]
    together = central(data, [setting], 200)[0]
    halved = vertical(data, [["income", "town"]], [Setting("dp-ir", Decimal(1), 25)], 200)[0]
    spread = (alone.high - alone.low + together.high - together.low) / 4
    assert abs(alone.mean - together.mean) < 5 * spread
    assert halved.low > together.high + 2 * spread


def test_k_is_chosen_as_in_a_release():
    """Without a k the rounded number of records decides, and mechanisms without clusters get none."""
    chosen = task_of(NUMBER, Setting("dp-ir", Decimal(1), None), Decimal(1), 499)
    assert chosen == AttributeTask(NUMBER, Decimal(1), int(2.2 * 400**0.5), "dp-ir")
    assert task_of(NUMBER, Setting("idp", Decimal(1), None), Decimal(1), 499).k is None
