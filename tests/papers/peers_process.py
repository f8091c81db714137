"""A program that runs in build/peers (`make peers`), whose libraries do not go with ours: AIM, MST, metrics.

    python peers_process.py make|judge FOLDER

FOLDER/task.json says what is wanted. Tables are .npy files of codes from 0, `(n_records, n_attributes)`.
`make` draws records like the originals with AIM or MST. `judge` measures released ones with Anonymeter and
SDMetrics, beside others that were not released. Both write into the same folder.

References:
    McKenna, Mullins, Sheldon, Miklau 2022, "AIM: an adaptive and iterative mechanism".
    McKenna, Miklau, Sheldon 2021, "Winning the NIST contest" (MST).
    Giomi, Boenisch, Wehmeyer, Tasnádi 2023, "A unified framework for quantifying privacy risk in synthetic
    data" (Anonymeter).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

BINNING = 0.1
"""Share of ε with which the library chooses bins of numbers, as by default."""
MOST_VALUES = 128
"""Of a number that is counted value by value."""
N_ATTACKS = 300
"""Attacks of each kind, on persons in the release and on others."""


def frame(codes: np.ndarray, labels: Sequence[bool]) -> pd.DataFrame:
    """Return codes as a table: labels are texts."""
    columns = {f"a{place}": column for place, column in enumerate(codes.T)}
    kinds = zip(columns.items(), labels, strict=True)
    return pd.DataFrame({name: column.astype(str) if label else column for (name, column), label in kinds})


def make(task: Mapping[str, Any], folder: Path) -> None:
    """Draw as many records as there are with AIM or MST."""
    from dpmm.pipelines import AIMPipeline, MSTPipeline

    counted = [
        label or size <= MOST_VALUES for label, size in zip(task["labels"], task["sizes"], strict=True)
    ]
    original = frame(np.load(folder / "original.npy"), counted)
    domain = {
        name: {"categories": [str(code) for code in range(size)]} if each else {"lower": 0, "upper": size - 1}
        for name, each, size in zip(original.columns, counted, task["sizes"], strict=True)
    }
    share = 0 if all(counted) else BINNING
    own = {"rounds": task["rounds"]} if task["method"] == "AIM" else {}
    pipeline = {"AIM": AIMPipeline, "MST": MSTPipeline}[task["method"]](
        epsilon=task["epsilon"] * (1 - share), delta=task["delta"], proc_epsilon=task["epsilon"] * share,
        n_bins=task["bins"], max_model_size=task["megabytes"], n_jobs=1,
        gen_kwargs={"n_iters": task["iterations"], **own},
    )  # fmt: skip
    pipeline.fit(original, domain=domain, random_state=task["seed"])
    drawn = pipeline.generate(n_records=len(original), random_state=task["seed"] + 1)[original.columns]
    limits = np.array(task["sizes"]) - 1
    np.save(folder / "released.npy", drawn.astype(float).to_numpy().round().astype(np.int64).clip(0, limits))


def judge(task: Mapping[str, Any], folder: Path) -> None:
    """Write the metrics of released records into metrics.json."""
    from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator
    from sdmetrics.reports import SingleTableQualityReport as QualityReport

    original, released, others = (
        frame(np.load(folder / f"{name}.npy"), task["labels"]) for name in ("original", "released", "others")
    )
    names, seed = list(original.columns), task["seed"]
    np.random.seed(seed)  # noqa: NPY002 -- Anonymeter's own source of randomness
    metadata = {
        "columns": {
            name: {"sdtype": "categorical" if label else "numerical"}
            for name, label in zip(names, task["labels"], strict=True)
        }
    }
    report = QualityReport()
    report.generate(original, released, metadata, verbose=False)
    attacked = {"n_attacks": min(N_ATTACKS, len(original), len(others)), "control": others}
    singled = SinglingOutEvaluator(original, released, max_attempts=100_000, seed=seed, **attacked).evaluate()
    parts = names[::2], names[1::2]
    linked = LinkabilityEvaluator(original, released, parts, **attacked).evaluate(n_jobs=1)
    inferred = [
        InferenceEvaluator(
            original, released, [each for each in names if each != secret], secret, regression=not label,
            **attacked,
        ).evaluate(n_jobs=1)
        for secret, label in zip(names, task["labels"], strict=True)
    ]  # fmt: skip
    metrics = {
        "quality": report.get_score(),
        "singling out": singled.risk().value,
        "linkability": linked.risk().value,
        "inference": float(np.mean([each.risk().value for each in inferred])),
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))


if __name__ == "__main__":
    where = Path(sys.argv[2])
    {"make": make, "judge": judge}[sys.argv[1]](json.loads((where / "task.json").read_text()), where)
