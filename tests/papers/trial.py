"""Relations of three attributes in releases of a simulated trial: a table of docs/analysis.md.

Age acts on men and women in opposite ways, and a treatment on one stage alone. Synthetic releases count both
of an interaction together. Masked ones refuse hazard ratios: the table also has what `analyse` makes of all
models, whose tables keep the relations of three that masking left.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from common.analysis.calibration import linear_fit, logistic_fit
from common.analysis.hazards import plain_cox_fit
from common.analysis.noisy_counts import NoisyCounts
from common.analysis.replicates import N_REPLICATES
from common.analysis.synthetic import SyntheticEstimates
from common.arrays import Float64Array, Int64Array
from common.model.schema import Attribute, AttributeType
from common.model.together import modelled, to_codes
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.own_table import synthesise_together
from tests.fakes.masked_releases import draws, plan_of
from tests.papers.synthetic import DELTA
from tests.papers.tables import Numbers

N_RECORDS = 8000
KINDS = ("linear, age by sex", "logistic, age by sex", "hazard ratios, arm by stage", "cells")
SYNTHETIC = ("1", "2", "4")
MASKED = (("1", "0.1"), ("4", "0.03"))
TOGETHER = (("age", "male"), ("arm", "stage"), ("months", "died"))
_REACH, _PARTS = 1.96, 10
Values: TypeAlias = Mapping[str, Float64Array]
Found: TypeAlias = dict[str, tuple[list[bool], list[float]]]
"""By kind, whether intervals held, and how many times as wide as that of sampling they were."""


def trial() -> tuple[tuple[Attribute, ...], dict[str, Int64Array]]:
    """Return the attributes, and the values in units, `(n_records,)` each."""
    draw, kinds = np.random.default_rng(4), AttributeType
    male, arm = draw.integers(0, 2, N_RECORDS), draw.choice(3, N_RECORDS, p=[0.5, 0.3, 0.2])
    age = np.clip(np.rint(draw.normal(62 + 4 * male, 11)), 40, 89)
    stage = draw.random(N_RECORDS) < np.where(arm == 2, 0.5, 0.3)
    ward = (draw.random(N_RECORDS)[:, None] > np.cumsum([0.35, 0.3, 0.2, 0.1])).sum(axis=1)
    older = age - 62
    score = 90 + 0.5 * older - 6 * male - older * male + 4 * (arm == 1) + draw.normal(0, 15, N_RECORDS)
    odds = -1.2 + 0.04 * older - 0.3 * male - 0.07 * older * male + 0.5 * (arm == 2) + 0.3 * (ward == 1)
    hazard = 0.03 * older + 0.3 * (arm == 1) + 0.4 * stage - 0.6 * (arm == 2) * stage
    dies, ends = draw.exponential(150 * np.exp(-hazard)), draw.uniform(30, 119, N_RECORDS)
    columns: dict[Attribute, Any] = {
        Attribute("age", kinds.INTEGER, 40, 89): age,
        Attribute("male", kinds.BOOLEAN, 0, 1): male,
        Attribute("arm", kinds.CATEGORY, 0, 2, categories=("a", "b", "c")): arm,
        Attribute("stage", kinds.BOOLEAN, 0, 1): stage,
        Attribute("ward", kinds.CATEGORY, 0, 4, categories=("p", "q", "r", "s", "t")): ward,
        Attribute("score", kinds.INTEGER, 0, 200): np.clip(np.rint(score), 0, 200),
        Attribute("ill", kinds.BOOLEAN, 0, 1): draw.random(N_RECORDS) < 1 / (1 + np.exp(-odds)),
        Attribute("months", kinds.INTEGER, 0, 119): np.floor(np.minimum(dies, ends)),
        Attribute("died", kinds.BOOLEAN, 0, 1): dies < ends,
    }
    return tuple(columns), {each.name: np.asarray(own).astype(np.int64) for each, own in columns.items()}


def _linear(values: Values) -> Float64Array:
    return linear_fit(_by_sex(values), values["score"], np.ones(len(values["score"])))[1:]


def _logistic(values: Values) -> Float64Array:
    return logistic_fit(_by_sex(values), values["ill"], np.ones(len(values["ill"])))[1:]


def _hazards(values: Values) -> Float64Array:
    b, c, stage = values["arm"] == 1, values["arm"] == 2, values["stage"]
    columns = np.column_stack([b, c, stage, b * stage, c * stage]).astype(np.float64)
    return plain_cox_fit(columns, values["months"], values["died"] == 1)


def _cells(values: Values) -> Float64Array:
    cells = (2 * values["ward"] + values["ill"]).astype(np.int64)
    return np.bincount(cells, minlength=10) / cells.size


def _by_sex(values: Values) -> Float64Array:
    age, male, arm = (values[name] for name in ("age", "male", "arm"))
    return np.column_stack([np.ones(len(age)), age, male, age * male, arm == 1, arm == 2]).astype(np.float64)


FITS: Mapping[str, tuple[Callable[[Values], Float64Array], list[str], Callable[[Any], pd.DataFrame]]] = {
    KINDS[0]: (
        _linear, ["score", "age", "male", "arm"], lambda of: of.regress("score", ["age*male", "arm"]),
    ),
    KINDS[1]: (_logistic, ["ill", "age", "male", "arm"], lambda of: of.logistic("ill", ["age*male", "arm"])),
    KINDS[2]: (
        _hazards, ["months", "died", "arm", "stage"], lambda of: of.cox("months", "died", ["arm*stage"]),
    ),
    KINDS[3]: (_cells, ["ward", "ill"], lambda of: of.crosstab("ward", "ill")),
}  # fmt: skip
"""By kind: what plain software says of records, the attributes that it uses, and how a release is asked."""


def run(_data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/analysis.md."""
    attributes, units = trial()
    values = {name: own.astype(np.float64) for name, own in units.items()}
    truths = {kind: _with_errors(fit, values) for kind, (fit, *_) in FITS.items()}
    lines: dict[str, Found] = {}

    def add(line: str, kind: str, table: pd.DataFrame) -> None:
        truth, errors = truths[kind]
        low, high = (table[side].to_numpy(dtype=np.float64) for side in ("low", "high"))
        held, widths = lines.setdefault(line, defaultdict(lambda: ([], [])))[kind]
        held += ((low <= truth) & (truth <= high)).tolist()
        widths += ((high - low) / (2 * _REACH * errors)).tolist()

    counted = modelled(attributes, TOGETHER)
    for epsilon in SYNTHETIC:
        for _ in range(runs):
            design = Design(counted, N_RECORDS, Decimal(epsilon), Decimal(DELTA))
            made = synthesise_together(design, [to_codes(counted, units)], [SystemBits()])
            of = SyntheticEstimates(NoisyCounts(made.measured), made.codes)
            for kind, (_, _, ask) in FITS.items():
                add(f"synthetic, ε = {epsilon}", kind, ask(of))
    for epsilon, rank_noise in MASKED:
        plan, line = (
            plan_of(attributes, N_RECORDS, epsilon, rank_noise=[rank_noise]),
            f"ε = {epsilon}, w = {rank_noise}",
        )
        with tempfile.TemporaryDirectory() as folder:
            releases = draws(Path(folder), plan, units, runs)
        for release in releases:
            for kind in (*KINDS[:2], KINDS[3]):
                add(f"masked, {line}", kind, FITS[kind][2](release.estimates))
            for kind in KINDS[:3]:
                fit, names, _ = FITS[kind]
                add(f"masked, {line}, `analyse`", kind, release.analyse(_named(fit), names, N_REPLICATES))
    rows, shown = [], [["release", *KINDS], ["---"] * (len(KINDS) + 1)]
    for line, found in lines.items():
        cells = {
            kind: (float(np.mean(held)), float(np.median(widths))) for kind, (held, widths) in found.items()
        }
        rows += [(f"{line}: {kind}", own) for kind, own in cells.items()]
        given = {kind: f"{held:.2f} · {width:.1f}" for kind, (held, width) in cells.items()}
        empty = "" if "analyse" in line else "refused"
        shown.append([line, *(given.get(kind, empty) for kind in KINDS)])
    Numbers(("release", "held", "width"), tuple(rows)).write(out / "trial.csv")
    return {"conclusions trial": "\n".join(f"| {' | '.join(each)} |" for each in shown)}


def _with_errors(fit: Callable[[Values], Float64Array], values: Values) -> tuple[Float64Array, Float64Array]:
    """Return original estimates, and their standard errors by the scatter of tenths of the records."""
    parts = np.array_split(np.random.default_rng(1).permutation(N_RECORDS), _PARTS)
    found = np.array([fit({name: own[rows] for name, own in values.items()}) for rows in parts])
    return fit(values), found.std(axis=0, ddof=1) / np.sqrt(_PARTS)


def _named(fit: Callable[[Values], Float64Array]) -> Callable[[pd.DataFrame], dict[str, float]]:
    """Return a fit as `analyse` takes it."""

    def of_frame(frame: pd.DataFrame) -> dict[str, float]:
        codes: dict[str, pd.Series[Any]] = {
            str(name): own.cat.codes if isinstance(own.dtype, pd.CategoricalDtype) else own
            for name, own in frame.items()
        }
        found = fit({name: own.to_numpy(dtype=np.float64) for name, own in codes.items()})
        return {str(number): float(each) for number, each in enumerate(found)}

    return of_frame
