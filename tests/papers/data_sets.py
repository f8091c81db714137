"""The papers' data sets as columns of integers in resolution units, with the domains that the papers state.

References:
    Del Vasto-Terrientes et al. 2025, §5.1 (Adult, Wine Quality).
    Soria-Comas et al. 2025, §4 (Census, white wine).
    Sánchez et al. 2016, §4.1 (Census, Adult).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Int64Array
from common.errors import ConfigurationError
from common.model.schema import Attribute, AttributeType, CategoryOrder, to_units
from tests.papers.prepare import ADULT, WINE, declare_adult, declare_wine, read_adult, read_wine

CENSUS = ("AFNLWGT", "AGI", "EMCONTRB", "FEDTAX", "STATETAX", "TAXINC", "POTHVAL", "INTVAL", "FICA")
"""The nine attributes of Census that Soria-Comas et al. 2025 protect."""
CENSUS_CLASS, CENSUS_LIMIT = "ERNVAL", 30_000
WINE_CLASS, WINE_LIMIT = "quality", 6


@dataclass(frozen=True, slots=True)
class DataSet:
    """Some records with declared domains."""

    name: str
    """What it is called in tables."""
    attributes: tuple[Attribute, ...]
    """Its attributes."""
    columns: Mapping[str, Int64Array]
    """Values by attribute, `(n_records,)` each, in resolution units."""
    above: Int64Array | None = None
    """Class of each record, `(n_records,)`: 1 if its class attribute lies above the papers' limit."""

    @property
    def n_records(self) -> int:
        """Number of records."""
        return next(iter(self.columns.values())).size


def adult(data: Path, order: str) -> DataSet:
    """Return Adult's 45,222 complete records.

    Args:
        data: Folder of the published files.
        order: Order of categories, "declared" or "frequency".
    """
    return _declared("adult", read_adult(data), declare_adult(order), ADULT)


def wine(data: Path) -> DataSet:
    """Return Wine Quality, red and white, with domains of twice the largest values."""
    return _declared("wine", read_wine(data), declare_wine(""), WINE)


def white_wine(data: Path, alpha: str) -> DataSet:
    """Return the 4,898 white wines, with domains of α times the largest values."""
    table = read_wine(data).assign(quality=_text(data / "wine_quality.csv")["quality"])
    table = table[_text(data / "wine_quality.csv")["colour"] == "white"]
    decimals = {name: int(str(each.get("decimals", 0))) for name, each in declare_wine("").items()}
    return _stretched("white wine", table, WINE, decimals, alpha, WINE_CLASS, WINE_LIMIT)


def census(data: Path, alpha: str, names: Sequence[str] = CENSUS) -> DataSet:
    """Return the 1,080 records of Census, with domains of α times the largest values."""
    table = _text(data / "census_casc.csv")
    return _stretched("census", table, names, dict.fromkeys(names, 0), alpha, CENSUS_CLASS, CENSUS_LIMIT)


def health_insurance() -> tuple[tuple[Attribute, ...], list[Int64Array]]:
    """Return the RAND Health Insurance Experiment's 20,190 person-years, from `pip install statsmodels`.

    References:
        Newhouse and the Insurance Experiment Group 1993, Free for All?
    """
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise ConfigurationError(
            "the RAND Health Insurance Experiment is not there", hint="pip install statsmodels, which has it"
        ) from None
    table, number, boolean = randhie.load_pandas().data, AttributeType.NUMBER, AttributeType.BOOLEAN
    columns = {
        Attribute("visits", AttributeType.INTEGER, 0, 100): table["mdvis"],
        Attribute("coinsurance", number, 0, 500, decimals=2): table["lncoins"],
        Attribute("deductible", boolean, 0, 1): table["idp"],
        Attribute("incentive", number, 0, 800, decimals=2): table["lpi"],
        Attribute("expenditure", number, 0, 900, decimals=2): table["fmde"],
        Attribute("limited", number, 0, 100, decimals=2): table["physlm"],
        Attribute("diseases", number, 0, 600, decimals=1): table["disea"],
        Attribute("good", boolean, 0, 1): table["hlthg"],
        Attribute("fair", boolean, 0, 1): table["hlthf"],
        Attribute("poor", boolean, 0, 1): table["hlthp"],
    }
    return tuple(columns), [_units(column, each) for each, column in columns.items()]


def _text(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise ConfigurationError(f"{path} is not there", hint="name the folder of the data sets with --data")
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _declared(
    name: str, table: pd.DataFrame, declared: Mapping[str, Mapping[str, object]], names: Sequence[str]
) -> DataSet:
    attributes = tuple(_attribute(each, declared[each]) for each in names)
    return DataSet(name, attributes, {each.name: _units(table[each.name], each) for each in attributes})


def _attribute(name: str, says: Mapping[str, object]) -> Attribute:
    kind = AttributeType(str(says["type"]))
    if kind is AttributeType.CATEGORY:
        categories = says["categories"]
        assert isinstance(categories, list)
        order = CategoryOrder(str(says["order"]))
        return Attribute(name, kind, 0, len(categories) - 1, categories=tuple(categories), order=order)
    decimals = int(str(says.get("decimals", 0)))
    lower, upper = (to_units(kind, str(says[end]), decimals) for end in ("min", "max"))
    return Attribute(name, kind, lower, upper, decimals=decimals)


def _units(column: "pd.Series[str]", attribute: Attribute) -> Int64Array:
    if attribute.categories:
        places = {label: i for i, label in enumerate(attribute.categories)}
        return np.asarray(column.map(places), dtype=np.int64)
    return np.rint(column.astype(float).to_numpy() * 10**attribute.decimals).astype(np.int64)


def _stretched(
    name: str,
    table: pd.DataFrame,
    names: Sequence[str],
    decimals: Mapping[str, int],
    alpha: str,
    class_attribute: str,
    limit: int,
) -> DataSet:
    """Declare [0, α × largest value] for every attribute."""
    attributes, columns = [], {}
    for each in names:
        wide = Attribute(each, AttributeType.NUMBER, 0, 2**40, decimals=decimals[each])
        columns[each] = _units(table[each], wide)
        upper = ceil(Decimal(alpha) * int(columns[each].max()))
        attributes.append(Attribute(each, AttributeType.NUMBER, 0, upper, decimals=decimals[each]))
    above = (table[class_attribute].astype(float).to_numpy() > limit).astype(np.int64)
    return DataSet(name, tuple(attributes), columns, above)
