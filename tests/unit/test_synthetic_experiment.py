"""The experiment with synthetic releases can be made: `make test-long` makes it of a few records."""

from math import isnan

import numpy as np

from common.model.schema import Attribute, AttributeType
from tests.papers.synthetic import ACCOUNTINGS, FORMS, MASKED, Records, compared


def test_every_release_of_the_experiment():
    """A table has a row of every release, and each keeps more than shuffled attributes do."""
    draw, n_records = np.random.default_rng(1), 3000
    first = draw.integers(0, 4, n_records)
    columns = [first, *(np.clip(first + draw.integers(-1, 2, n_records), 0, 3) for _ in range(2))]
    classes = (first > 1).astype(np.int64)
    records = Records(
        (
            *(Attribute(name, AttributeType.INTEGER, 0, 3) for name in "abc"),
            Attribute("class", AttributeType.BOOLEAN, 0, 1),
        ),
        (*columns, classes),
    )
    forms = {name: form for name, form in FORMS.items() if len(form.owners) <= len(records.attributes)}
    table = compared(records, forms, 1, 1)
    made = [f"{name}, {accounting}" for name in forms for accounting in ACCOUNTINGS]
    beside = [*MASKED, "originals drawn with replacement", "every attribute by itself, no noise"]
    numbers = dict(table.rows)
    assert list(numbers) == ["original", *made, *beside]
    _, _, unrelated, _, _, unlearned = numbers[beside[-1]]
    for name in (*made, *MASKED):
        one_way, _, two_way, foreseen, three_way, f = numbers[name]
        assert 0 < one_way <= two_way < unrelated
        assert two_way <= three_way < 1
        assert unlearned < f <= 1
        assert isnan(foreseen) == (name in MASKED)
