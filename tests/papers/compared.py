"""The mean SSE of four mechanisms on Census and white wine, over k, for two widths of domains.

References:
    Soria-Comas et al. 2025, §4.1, Figures 3 and 4.
"""

from decimal import Decimal
from pathlib import Path

from tests.papers import data_sets
from tests.papers.data_sets import DataSet
from tests.papers.figures import curves
from tests.papers.in_process import Setting, central
from tests.papers.tables import Line, line, markdown, write_csv

EPSILONS = tuple(map(Decimal, ("0.01", "0.1", "1")))
ALPHAS = ("1.5", "3")
KS = {
    "census": (3, 5, 10, 15, 25, 50, 75, 100),
    "white wine": (3, 5, 10, 15, 25, 50, 100, 200, 300, 400),
}
CLUSTERED = ("dp-ir", "idp-ls", "idp-cbls", "idp-joint")
"""The paper's DP-UM, iDP-LS and iDP-CBLS, and ours."""


def measured(data: DataSet, alpha: str, runs: int) -> list[Line]:
    """Return the mean SSE of every mechanism, ε and k."""
    every = [
        *(Setting("dp", epsilon, None) for epsilon in EPSILONS),
        *(Setting(each, epsilon, k) for each in CLUSTERED for epsilon in EPSILONS for k in KS[data.name]),
        *(Setting("idp-joint", epsilon, None) for epsilon in EPSILONS),
    ]
    return [
        line("000 Fig. 3-4", f"{data.name}, α = {alpha}", "central", setting, "mean SSE", runs, each)
        for setting, each in zip(every, central(data, every, runs), strict=True)
    ]


def run(data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    tables = {}
    for name, read in (("census", data_sets.census), ("white wine", data_sets.white_wine)):
        lines = [each for alpha in ALPHAS for each in measured(read(data, alpha), alpha, runs)]
        file = name.replace(" ", "_")
        write_csv(out / f"{file}_sse.csv", lines)
        for alpha in ALPHAS:
            own = [each for each in lines if each.data.endswith(f"= {alpha}")]
            panels = [
                (f"ε = {epsilon}", [each for each in own if each.epsilon == f"{epsilon}"])
                for epsilon in EPSILONS
            ]
            curves(out / f"{file}_sse_alpha_{alpha}.png", panels, logarithmic=True, label="mean SSE")
        tables[f"{name} sse"] = markdown(lines, "k", ["data", "mechanism", "epsilon"])
    return tables
