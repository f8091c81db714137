"""Made-up people for the demonstrations: three scenarios, the same bytes for the same seed.

- *hospitals* (horizontal): three hospitals hold the same attributes about 10,000 patients, each at one.
- *departments* (vertical): three departments of one hospital hold different attributes of the same 10,000
  patients, each in its own order, and one of them writes the patients' numbers in small letters.
- *overlap* (vertical): a clinic and a registry hold different attributes of 5,000 people, 3,000 at both.

The generator is seeded so that runs can be compared; it has nothing to do with the noise of a release, which
comes from the operating system.
"""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deploy.local_setup import dataset, section

if TYPE_CHECKING:
    import pandas as pd

N_PEOPLE = 10_000
"""People at hospitals, and at departments."""
N_OVERLAP = 5_000
"""People whom the clinic or the registry has, or both."""
HOSPITALS = {"north": 4_200, "harbour": 3_500, "valley": 2_300}
"""Hospitals and their numbers of patients."""
DEPARTMENTS = {
    "admissions": ("age", "admitted", "insurance", "emergency"),
    "laboratory": ("creatinine", "haemoglobin", "temperature", "risk"),
    "pharmacy": ("medicines", "cost", "route", "antibiotics"),
}
"""Departments and their attributes."""
HOSPITAL_ATTRIBUTES = (
    "age",
    "admitted",
    "stay",
    "ward",
    "severity",
    "emergency",
    "creatinine",
    "temperature",
)
"""Attributes that every hospital holds about its patients."""
CLINIC = ("age", "emergency", "severity", "stay")
"""Attributes of the clinic, which lacks the last fifth of the people."""
REGISTRY = ("insurance", "risk", "medicines", "antibiotics")
"""Attributes of the registry, which lacks the first fifth."""
DATASET = {"hospitals": "patients", "departments": "stays", "overlap": "persons"}
"""Name of each scenario's data set."""
IDENTIFIER = "patient_id"

_FIRST_DAY, _LAST_DAY = date(2024, 1, 1), date(2025, 12, 31)
_WARDS = ("medicine", "surgery", "paediatrics", "maternity", "psychiatry")
_SEVERITIES = ("mild", "moderate", "severe", "critical")
_INSURANCES = ("public", "private", "none")
_RISKS = ("low", "raised", "high")
_ROUTES = ("oral", "intravenous", "inhaled", "topical")
_ID_LETTERS = np.array(list("ABCDEFGHJKLMNPQRSTUVWXYZ"))
_N_IDS = 9_999_999

_DATE = {"type": "date", "min": _FIRST_DAY, "max": _LAST_DAY}
_DECLARED: dict[str, dict[str, object]] = {
    "age": {"type": "integer", "min": 0, "max": 110},
    "admitted": _DATE,
    "stay": {"type": "integer", "min": 0, "max": 120, "outside": "clamp"},
    "ward": {"type": "category", "categories": _WARDS},
    "severity": {"type": "category", "categories": _SEVERITIES, "ordered": True},
    "emergency": {"type": "boolean"},
    "creatinine": {"type": "number", "min": "0.0", "max": "20.0", "decimals": 2, "outside": "clamp"},
    "haemoglobin": {"type": "number", "min": "3.0", "max": "22.0", "decimals": 1, "outside": "clamp"},
    "temperature": {"type": "number", "min": "34.0", "max": "43.0", "decimals": 1, "outside": "clamp"},
    "insurance": {"type": "category", "categories": _INSURANCES},
    "risk": {"type": "category", "categories": _RISKS, "ordered": True},
    "medicines": {"type": "integer", "min": 0, "max": 40, "outside": "clamp"},
    "cost": {"type": "number", "min": "0.00", "max": "2000.00", "decimals": 2, "outside": "clamp"},
    "route": {"type": "category", "categories": _ROUTES},
    "antibiotics": {"type": "boolean"},
}
_POLICY = {
    "max_epsilon_per_release": "5",
    "total_delta": "0.00001",
    "min_k": 10,
    "layouts": ("horizontal", "vertical"),
    "aggregators": ("central",),
}

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class OwnerData:
    """Data set of one owner of a scenario."""

    owner: str
    dataset: str
    """Name of its data set, and of the file without its suffix."""
    table: "pd.DataFrame"
    """Its records as texts, the identifier first."""

    @property
    def csv(self) -> bytes:
        """The records as a CSV file."""
        return self.table.to_csv(index=False, lineterminator="\n").encode()

    @property
    def settings(self) -> str:
        """The sections of its owner.toml for policy and data set."""
        attributes = {str(name): _DECLARED[str(name)] for name in self.table.columns if name != IDENTIFIER}
        about: dict[str, object] = {
            "name": self.dataset,
            "source": f"{self.dataset}.csv",
            "total_epsilon": "10",
            "identifier": IDENTIFIER,
            "normalise": ("nfkc", "trim", "casefold"),
        }
        return section("[policy]", _POLICY) + "\n" + dataset(about, attributes)

    def write(self, owners: Path) -> None:
        """Write the records into the owner's folder."""
        folder = owners / self.owner
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.dataset}.csv").write_bytes(self.csv)


def hospitals(seed: int) -> tuple[OwnerData, ...]:
    """Return the hospitals: unequal parts of 10,000 patients, each patient at one hospital."""
    people = _people(np.random.default_rng([seed, 0]))[[IDENTIFIER, *HOSPITAL_ATTRIBUTES]]
    ends = np.cumsum(list(HOSPITALS.values()))
    parts = [
        people.iloc[end - size : end] for end, size in zip(ends.tolist(), HOSPITALS.values(), strict=True)
    ]
    return tuple(
        OwnerData(name, DATASET["hospitals"], part) for name, part in zip(HOSPITALS, parts, strict=True)
    )


def departments(seed: int) -> tuple[OwnerData, ...]:
    """Return the departments: different attributes of the same 10,000 patients, in different orders."""
    random = np.random.default_rng([seed, 1])
    people = _people(random)
    made = []
    for name, attributes in DEPARTMENTS.items():
        table = people.iloc[random.permutation(N_PEOPLE)][[IDENTIFIER, *attributes]]
        if name == "laboratory":
            table = table.assign(**{IDENTIFIER: table[IDENTIFIER].str.lower()})
        made.append(OwnerData(name, DATASET["departments"], table))
    return tuple(made)


def overlap(seed: int) -> tuple[OwnerData, ...]:
    """Return a clinic and a registry: each has four fifths of the people, three fifths are at both."""
    people = _people(np.random.default_rng([seed, 2])).iloc[:N_OVERLAP]
    lacking = N_OVERLAP // 5
    parts = {
        "clinic": people[[IDENTIFIER, *CLINIC]].iloc[:-lacking],
        "registry": people[[IDENTIFIER, *REGISTRY]].iloc[lacking:],
    }
    return tuple(OwnerData(name, DATASET["overlap"], part) for name, part in parts.items())


def _people(random: np.random.Generator) -> "pd.DataFrame":
    """Return 10,000 people: illness depends on age, and most other attributes depend on illness."""
    import pandas as pd

    n = N_PEOPLE
    age = np.clip(np.where(random.random(n) < 0.15, random.gamma(2, 5, n), random.normal(58, 19, n)), 0, 104)
    illness = 0.02 * (age - 50) + random.normal(0, 1, n)
    emergency = random.random(n) < _logistic(illness - 0.3)
    inflammation = np.clip(random.normal(0, 1, n) + 0.5 * illness, -2, 4)
    antibiotics = random.random(n) < _logistic(1.5 * inflammation - 1.5)
    medicines = random.poisson(np.exp(1.2 + 0.35 * illness))
    creatinine = np.exp(random.normal(-0.1, 0.25, n) + 0.12 * illness + 0.003 * (age - 50))
    cost = np.exp(random.normal(3.4, 0.6, n) + 0.4 * illness + 0.06 * medicines) + 40 * antibiotics
    columns: dict[str, Any] = {
        IDENTIFIER: _identifiers(random),
        "age": _decimals(np.floor(age), 0),
        "admitted": _dates(random),
        "stay": _decimals(np.floor(np.exp(random.normal(1.1, 0.5, n) + 0.35 * illness)), 0),
        "ward": _wards(random, age),
        "severity": _grade(illness, _SEVERITIES, (0.0, 1.0, 2.0)),
        "emergency": _booleans(emergency),
        "creatinine": _decimals(creatinine, 2),
        "haemoglobin": _decimals(random.normal(13.8, 1.4, n) - 0.5 * illness, 1),
        "temperature": _decimals(36.7 + 0.5 * inflammation + random.normal(0, 0.2, n), 1),
        "insurance": _draw(random, _INSURANCES, np.tile([0.72, 0.23, 0.05], (n, 1))),
        "risk": _grade(illness + 0.5 * inflammation, _RISKS, (0.8, 2.0)),
        "medicines": _decimals(medicines.astype(np.float64), 0),
        "cost": _decimals(cost, 2),
        "route": _routes(random, illness),
        "antibiotics": _booleans(antibiotics),
    }
    return pd.DataFrame(columns)


def _identifiers(random: np.random.Generator) -> Texts:
    """Return distinct patient numbers like "P-0172946-K"."""
    numbers = random.choice(_N_IDS, size=N_PEOPLE, replace=False) + 1
    return np.char.add(np.char.mod("P-%07d-", numbers), _ID_LETTERS[numbers % len(_ID_LETTERS)])


def _dates(random: np.random.Generator) -> Texts:
    """Return days of the two years, more of them in winter."""
    n_days = (_LAST_DAY - _FIRST_DAY).days + 1
    days = np.arange(n_days)
    weight = 1 + 0.3 * np.cos(2 * np.pi * days / 365.25)
    drawn = random.choice(days, size=N_PEOPLE, p=weight / weight.sum())
    return (np.datetime64(_FIRST_DAY, "D") + drawn).astype(np.str_)


def _wards(random: np.random.Generator, age: Floats) -> Texts:
    """Return wards: children in paediatrics, the others by age."""
    child, fertile = age < 16, (age >= 18) & (age < 45)
    weights = np.stack(
        [
            np.where(child, 0.0, 0.3 + 0.006 * age),
            np.where(child, 0.1, 0.35),
            np.where(child, 0.9, 0.0),
            np.where(fertile, 0.3, 0.0),
            np.where(child, 0.0, 0.1),
        ],
        axis=1,
    )
    return _draw(random, _WARDS, weights)


def _routes(random: np.random.Generator, illness: Floats) -> Texts:
    """Return how most medicines are given: the more ill, the more often by vein."""
    vein = _logistic(illness - 1.5)
    rest = 1 - vein
    return _draw(random, _ROUTES, np.stack([0.75 * rest, vein, 0.1 * rest, 0.15 * rest], axis=1))


def _draw(random: np.random.Generator, labels: tuple[str, ...], weights: Floats) -> Texts:
    """Return a label per person, drawn with the weights of shape (n_people, n_labels)."""
    ends = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    position = (random.random((len(weights), 1)) > ends[:, :-1]).sum(axis=1)
    drawn: Texts = np.array(labels)[position]
    return drawn


def _grade(score: Floats, labels: tuple[str, ...], limits: tuple[float, ...]) -> Texts:
    return np.array(labels)[np.searchsorted(np.array(limits), score)]


def _booleans(values: NDArray[np.bool_]) -> Texts:
    return np.where(values, "true", "false")


def _decimals(values: Floats, places: int) -> Texts:
    return np.char.mod(f"%.{places}f", values)


def _logistic(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-values))
