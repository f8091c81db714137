"""Match keys on FEBRL4: recall, precision and their estimates for several sets of passes.

    make febrl
    python -m tests.papers.febrl

FEBRL4 has 5,000 persons twice, once with mistakes, made by the generator of FEBRL. Prints the table of
docs/match-keys.md.

References:
    Christen, P. (2008), Febrl: a freely available record linkage system with a graphical user interface,
    Australasian Workshop on Health Data and Knowledge Management.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from common.matching.linking import link_passes
from common.matching.quality import match_quality
from common.model.match_quality import MatchQuality
from common.model.schema import MatchPass
from owner_node.linking.match_tokens import all_passes
from owner_node.values.match_keys import SUGGESTED, KeyColumns
from tests.needs import FEBRL

FILES = ("dataset4a.csv", "dataset4b.csv")
COLUMNS = {
    "forename": "given_name",
    "surname": "surname",
    "born": "date_of_birth",
    "postcode": "postcode",
    "id": "soc_sec_id",
}
NAMES = tuple(SUGGESTED)
SETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "names and birth, exactly": {"exact": ("forename:exact", "surname:exact", "born:date")},
    "the first three": {name: SUGGESTED[name] for name in NAMES[:3]},
    "the first five": {name: SUGGESTED[name] for name in NAMES[:5]},
    "the first nine": {name: SUGGESTED[name] for name in NAMES[:9]},
    "all twelve": SUGGESTED,
    "a national id, then all twelve": {"id": ("id:digits",), **SUGGESTED},
}


@dataclass(frozen=True, slots=True)
class Persons:
    """The persons of one owner."""

    columns: KeyColumns
    """Makes their match keys."""
    truth: Sequence[object]
    """Who they are, in the order of the records."""


@dataclass(frozen=True, slots=True)
class Found:
    """What passes find."""

    recall: float
    """Share of the common persons that are linked."""
    precision: float
    """Share of the links that are of one person."""
    quality: MatchQuality
    """What is estimated without knowing who is who."""


def febrl4_tables() -> list[pd.DataFrame]:
    """Read both files of FEBRL4 in the order of the persons, whose numbers are in the column `truth`."""
    return [_read(FEBRL / name) for name in FILES]


def _read(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, dtype=str, skipinitialspace=True, keep_default_na=False)
    made = table[list(COLUMNS.values())].set_axis(list(COLUMNS), axis="columns")
    made["truth"] = [int(each.split("-")[1]) for each in table["rec_id"]]
    return made.sort_values("truth", ignore_index=True)


def persons(table: pd.DataFrame) -> Persons:
    """Return the persons of a table whose column `truth` says who they are."""
    columns = {name: pa.array(table[name].tolist()) for name in table.columns.drop("truth")}
    return Persons(KeyColumns(columns), table["truth"].tolist())


def febrl4() -> list[Persons]:
    """Read both files of FEBRL4."""
    return [persons(table) for table in febrl4_tables()]


def measured(owners: Sequence[Persons], passes: Mapping[str, Sequence[str]]) -> Found:
    """Return recall, precision and estimates of linking two owners by passes."""
    key = secrets.token_bytes(32)
    declared = [MatchPass(name, tuple(keys)) for name, keys in passes.items()]
    lists = [
        [each.sent for each in all_passes(owner.columns, declared, key, np.arange(len(owner.truth)))]
        for owner in owners
    ]
    linked = link_passes(lists, [len(owner.truth) for owner in owners])
    everybody = np.concatenate([np.asarray(owner.truth) for owner in owners])
    joined = np.flatnonzero(linked.person != np.arange(len(everybody)))
    right = int((everybody[joined] == everybody[linked.person[joined]]).sum())
    common = set.intersection(*(set(owner.truth) for owner in owners))
    quality = match_quality(list(passes), lists, linked)
    return Found(right / len(common), right / max(len(joined), 1), quality)


def main() -> None:
    """Print the table."""
    print("| passes | recall | precision | estimated precision (95 %) |\n|---|---|---|---|")
    owners = febrl4()
    for name, passes in SETS.items():
        found = measured(owners, passes)
        quality = found.quality
        estimate = f"{quality.quality:.4f} ({quality.quality_least:.4f} to {quality.quality_most:.4f})"
        print(f"| {name} | {found.recall:.3f} | {found.precision:.4f} | {estimate} |")


if __name__ == "__main__":
    main()
