"""What an intruder finds in synthetic tables of Adult: who was among the records, and what they are.

*Membership*: the nearer the nearest released record, the more likely a person was among the originals. The
AUC of that guess, over persons who were and others; one half is chance.

*Inference*: the intruder knows all of a person but one attribute, and takes it from the nearest released
record. How much oftener that is right for persons among the originals than for others, as a share of what
could be learned: 0 is nothing about single persons.

References:
    Giomi, Boenisch, Wehmeyer, Tasnádi 2023, "A unified framework for quantifying privacy risk in synthetic
    data" (Anonymeter: the risk beyond that of persons who are not in the data).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from common.arrays import Float64Array, Int64Array
from common.model.schema import Attribute
from owner_node.masking.arrays import SystemBits
from tests.fakes.synthetic_owners import synthetic_release
from tests.papers.synthetic import ACCOUNTINGS, EPSILON, READERS, Records
from tests.papers.tables import Numbers

N_PERSONS = 2000
"""Of each kind, among the originals and not."""
HEADS = ("release", "membership AUC", "inference")


def placed(attributes: Sequence[Attribute], columns: Sequence[Int64Array]) -> Float64Array:
    """Return records as points: numbers as shares of their domain, labels one apart, `(n_records, d)`."""
    parts = []
    for attribute, column in zip(attributes, columns, strict=True):
        codes = column - attribute.lower
        if attribute.is_categorical:
            parts.append(np.eye(attribute.n_values)[codes] / 2)
        else:
            parts.append(codes[:, None] / (attribute.n_values - 1))
    return np.hstack(parts)


def found(records: Records, released: Sequence[Int64Array], seed: int) -> tuple[float, float]:
    """Return membership AUC and inference of released records.

    Args:
        records: Originals, of which the first `n_released` were released.
        released: Values, `(n_released,)` by attribute.
        seed: Of the choice of persons.
    """
    draw = np.random.default_rng(seed)
    n_released, n_all = records.n_released, records.columns[0].size
    members = draw.choice(n_released, N_PERSONS, replace=False)
    others = n_released + draw.choice(n_all - n_released, min(N_PERSONS, n_all - n_released), replace=False)
    persons = [each[np.concatenate([members, others])] for each in records.columns]
    is_member = np.arange(persons[0].size) < N_PERSONS
    distances, _ = nearest(placed(records.attributes, released), placed(records.attributes, persons))
    auc = float(roc_auc_score(is_member, -distances))
    gained = []
    for secret in range(len(released)):
        known = [each for each in range(len(released)) if each != secret]
        attributes = [records.attributes[each] for each in known]
        _, which = nearest(
            placed(attributes, [released[each] for each in known]),
            placed(attributes, [persons[each] for each in known]),
        )
        right = released[secret][which] == persons[secret]
        of_others = right[~is_member].mean()
        gained.append((right[is_member].mean() - of_others) / max(1 - of_others, 1e-9))
    return auc, float(np.mean(gained))


def nearest(released: Float64Array, persons: Float64Array) -> tuple[Float64Array, Int64Array]:
    """Return distance and place of the released record that is nearest to each person, `(n_persons,)`."""
    search = NearestNeighbors(n_neighbors=1, metric="manhattan", algorithm="brute").fit(released)
    distances, places = search.kneighbors(persons)
    return distances[:, 0], places[:, 0]


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/synthetic.md."""
    records = READERS["adult"](data)
    original = records.released
    lower = [each.lower for each in records.attributes]
    rows: list[tuple[str, tuple[float, ...]]] = []
    rows.append(("the original records", tuple(np.mean([found(records, original, seed)], axis=0).tolist())))
    for accounting, delta in ACCOUNTINGS.items():
        measured = []
        for number in range(runs):
            codes = [each - low for each, low in zip(original, lower, strict=True)]
            made = synthetic_release(records.attributes, [codes], EPSILON, delta, [SystemBits()])
            released = [each + low for each, low in zip(made.codes, lower, strict=True)]
            measured.append(found(records, released, seed + number))
        rows.append((f"synthetic, {accounting}", tuple(np.mean(measured, axis=0).tolist())))
    table = Numbers(HEADS, tuple(rows))
    table.write(out / "intruders.csv")
    return {"synthetic intruders": table.markdown()}
