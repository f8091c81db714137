"""The set-ups of the paper on fragmented data, as folders that real daemons run from.

    python -m tests.papers.prepare --data DIR --out DIR --setup wine-vertical [--seed N] [--order frequency]

Writes each owner's records, configurations, certificates and, where owners hold the same records, linkage
keys. Domains are public knowledge about the data sets, never their extremes in an owner's part; categories
are in the order of the data sets' documentation.

References:
    Del Vasto-Terrientes et al. 2025, §5.1.2 (horizontal) and §5.1.3 (vertical).
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from common.errors import ConfigurationError, ExitCode, TesseraError
from deploy.local_setup import dataset, make_setup, section, share_linkage_key

DATASET = "records"
"""Name of every owner's data set."""
IDENTIFIER = "record_id"
DESCRIPTION = "setup.json"
"""File that says which set-up a folder holds."""
_LARGEST_SEED = 2**63 - 1

_ADULT_CATEGORIES = {
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
    "Never-worked",
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, "
    "12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "marital_status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
    "Married-spouse-absent, Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
    "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, "
    "Priv-house-serv, Protective-serv, Armed-Forces",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "native_country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, "
    "Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, "
    "Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, "
    "Trinadad&Tobago, Peru, Hong, Holand-Netherlands",
}
_ADULT_NUMBERS = {"age": 120, "hours_per_week": 100}
ADULT = (
    *("age", "workclass", "education", "marital_status", "occupation"),
    *("relationship", "race", "sex", "hours_per_week", "native_country"),
)
"""The ten attributes of Adult, in the paper's order."""

# Upper end and decimal places. The domain is limited to twice the largest value (§5.1.2).
_WINE = {
    "fixed_acidity": ("31.8", 2),
    "volatile_acidity": ("3.16", 3),
    "citric_acid": ("3.32", 2),
    "residual_sugar": ("131.6", 2),
    "chlorides": ("1.222", 3),
    "free_sulfur_dioxide": ("578", 1),
    "total_sulfur_dioxide": ("880", 1),
    "density": ("2.07796", 5),
    "ph": ("8.02", 2),
    "sulphates": ("4", 2),
    "alcohol": ("29.8", 2),
}
WINE = tuple(_WINE)
"""The eleven attributes of Wine Quality, in the paper's order."""

Declared = dict[str, dict[str, object]]


def read_adult(data: Path) -> pd.DataFrame:
    """Return Adult's 45,222 complete records as the texts of the file."""
    table = _read(data / "adult.csv", ADULT)
    return table[~(table == "?").any(axis=1)][list(ADULT)]


def read_wine(data: Path) -> pd.DataFrame:
    """Return the 6,497 records of Wine Quality as the texts of the file."""
    return _read(data / "wine_quality.csv", WINE)[list(WINE)]


def _read(path: Path, attributes: Sequence[str]) -> pd.DataFrame:
    if not path.is_file():
        raise ConfigurationError(f"{path} is not there", hint="name the folder of the data sets with --data")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if not set(attributes) <= set(table.columns):
        raise ConfigurationError(f"{path} lacks columns", hint=f"needed: {', '.join(attributes)}")
    return table


def declare_adult(order: str) -> Declared:
    """Return Adult's attributes as owner.toml declares them."""
    numbers: Declared = {
        name: {"type": "integer", "min": 0, "max": largest} for name, largest in _ADULT_NUMBERS.items()
    }
    labels: Declared = {
        name: {"type": "category", "categories": text.split(", "), "order": order}
        for name, text in _ADULT_CATEGORIES.items()
    }
    return numbers | labels


def declare_wine(_order: str) -> Declared:
    """Return Wine Quality's attributes as owner.toml declares them."""
    return {
        name: {"type": "number", "min": "0", "max": largest, "decimals": decimals}
        for name, (largest, decimals) in _WINE.items()
    }


@dataclass(frozen=True, slots=True)
class Setup:
    """How a data set is divided among owners: by records (horizontal) or by attributes (vertical)."""

    read: Callable[[Path], pd.DataFrame]
    """Reads the data set from the folder of all."""
    declare: Callable[[str], Declared]
    """Its attributes for an order of categories."""
    records: tuple[int, ...] = ()
    """Records of each owner; empty where all hold the same."""
    attributes: tuple[tuple[str, ...], ...] = ()
    """Attributes of each owner; empty where all hold the same."""

    @property
    def layout(self) -> str:
        """The layout of its releases."""
        return "horizontal" if self.records else "vertical"


SETUPS: Mapping[str, Setup] = {
    "adult-horizontal": Setup(read_adult, declare_adult, records=(11_100, 15_000, 12_000, 7_122)),
    "wine-horizontal": Setup(read_wine, declare_wine, records=(500, 1_000, 4_997)),
    "wine-vertical": Setup(read_wine, declare_wine, attributes=(WINE[:3], WINE[3:7], WINE[7:])),
    "adult-vertical": Setup(read_adult, declare_adult, attributes=tuple((name,) for name in ADULT)),
}


def prepare(name: str, data: Path, folder: Path, *, seed: int = 1, order: str = "declared") -> list[str]:
    """Make a folder that `deploy.local_cluster` runs a set-up from.

    Args:
        name: One of `SETUPS`.
        data: Folder with the published CSV files.
        folder: An empty or absent folder.
        seed: Which records go to which owner, and in which order.
        order: Order of categories, "declared" or "frequency" (§5.1.1). The latter has no joint bound, so
            the owners' policies count each centroid by itself, as the paper does.

    Returns:
        The owners' ids, in the paper's order.

    Raises:
        ConfigurationError: If the data set is not there, or not as published.
        TesseraError: If a linkage key cannot be passed on.
    """
    setup, random = SETUPS[name], np.random.default_rng(seed)
    table = setup.read(data)
    expected = sum(setup.records) or len(table)
    if len(table) != expected:
        raise ConfigurationError(
            f"{name} has {expected} records, not {len(table)}", hint="take the data set as it was published"
        )
    parts = _horizontal(setup, table, random) if setup.records else _vertical(setup, table, random)
    says = {owner: _settings(setup, order, part) for owner, part in parts.items()}
    make_setup(folder, says, trust_domain="papers.example")
    for owner, part in parts.items():
        part.to_csv(folder / "owners" / owner / f"{DATASET}.csv", index=False, lineterminator="\n")
    owners = list(parts)
    if not setup.records:
        share_linkage_key(folder, owners)
    described = {"setup": name, "seed": seed, "order": order, "layout": setup.layout, "owners": owners}
    (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return owners


def _settings(setup: Setup, order: str, part: pd.DataFrame) -> str:
    """Return what an owner.toml says about policy and data set."""
    accounting = "per-centroid" if order == "frequency" else "joint"
    about: dict[str, object] = {"name": DATASET, "source": f"{DATASET}.csv", "total_epsilon": "100"}
    about |= {} if setup.records else {"identifier": IDENTIFIER}
    declared = setup.declare(order)
    attributes = {str(name): declared[str(name)] for name in part.columns if name != IDENTIFIER}
    return section("[policy]", {"accounting": accounting}) + "\n" + dataset(about, attributes)


def _horizontal(setup: Setup, table: pd.DataFrame, random: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return randomised subsets of the records, by owner."""
    shuffled = table.iloc[random.permutation(len(table))]
    ends = np.cumsum(setup.records).tolist()
    sizes = zip(ends, setup.records, strict=True)
    return {f"phi-{i}": shuffled.iloc[end - size : end] for i, (end, size) in enumerate(sizes, start=1)}


def _vertical(setup: Setup, table: pd.DataFrame, random: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return all records with an identifier and some attributes each, in an order of its own, by owner."""
    numbers = random.permutation(len(table)) + 1
    named = table.assign(**{IDENTIFIER: np.char.mod("R%06d", numbers)})
    return {
        f"phi-{i}": named.iloc[random.permutation(len(table))][[IDENTIFIER, *attributes]]
        for i, attributes in enumerate(setup.attributes, start=1)
    }


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value <= _LARGEST_SEED:
        raise ValueError(text)
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare a set-up from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers.prepare", description="Prepare a set-up.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the published CSV files")
    parser.add_argument("--out", type=Path, required=True, help="empty or absent folder")
    parser.add_argument("--setup", choices=list(SETUPS), required=True)
    parser.add_argument("--seed", type=_seed, default=1, help="which records go where (default: 1)")
    parser.add_argument("--order", choices=("declared", "frequency"), default="declared")
    options = parser.parse_args(arguments)
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty")
    try:
        owners = prepare(options.setup, options.data, options.out, seed=options.seed, order=options.order)
    except TesseraError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return int(error.exit_code)
    print(f"{options.setup}: {len(owners)} owners under {options.out}")
    print(f"to run it: python -m tests.papers.run_setup --folder {options.out} --epsilon 1 --k 100")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
