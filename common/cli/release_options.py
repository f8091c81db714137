"""Options that describe a release, and arguments that name one, worded once for all commands that take them.

The options are texts here: `common.planning.arguments` reads them, with the defaults that are shown.
"""

from pathlib import Path
from typing import Annotated

import typer

from common.model.mechanisms import AUTO, REQUESTABLE

Dataset = Annotated[str, typer.Option("--dataset", help="Name of the data set, the same at every owner.")]
LayoutName = Annotated[
    str, typer.Option("--layout", help="How owners hold the data: horizontal, vertical or mixed.")
]
Owners = Annotated[
    str,
    typer.Option("--owners", help="Ids of the owners that take part.", metavar="A,B,C", show_default=False),
]
Groups = Annotated[
    str,
    typer.Option(
        "--groups", help="Ids of the owners by group of attributes.", metavar="'A,B;C,D'", show_default=False
    ),
]
Epsilon = Annotated[
    str,
    typer.Option(
        "--epsilon", help="Privacy budget for all attributes together, a decimal.", show_default=False
    ),
]
K = Annotated[
    str,
    typer.Option(
        "--k",
        help="Minimum cluster size; auto chooses it for every attribute.",
        metavar="auto|N",
        show_default="auto",
    ),
]
MechanismId = Annotated[
    str,
    typer.Option(
        "--mechanism",
        help=f"How values are masked: {', '.join((AUTO, *REQUESTABLE))}.",
        metavar="ID",
        show_default="auto",
    ),
]
RankNoise = Annotated[
    str,
    typer.Option(
        "--rank-noise",
        help="Noise on the ranks of records, as a share of all ranks.",
        metavar="W|A=W,B=W",
        show_default="0.03",
    ),
]
Attributes = Annotated[
    str,
    typer.Option(
        "--attributes",
        help="Release only these attributes, in this order.",
        metavar="A,B",
        show_default=False,
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        "--weights",
        help="Weight of every attribute in the split of ε.",
        metavar="A=2,B=1",
        show_default=False,
    ),
]
Purpose = Annotated[
    str, typer.Option("--purpose", help="Purpose of the release, one line.", show_default=False)
]
MaxOverlap = Annotated[
    str,
    typer.Option(
        "--max-overlap",
        help="Most owners of a group that may hold the same person.",
        metavar="M",
        show_default="1",
    ),
]
OnMismatch = Annotated[
    str,
    typer.Option(
        "--on-mismatch",
        help="If groups hold different persons: stop, or mask only the common ones.",
        metavar="stop|intersect",
        show_default="stop",
    ),
]

ReleaseId = Annotated[str, typer.Argument(metavar="ID", help="Release id.", show_default=False)]
ReleaseFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Release folder.", show_default=False)]
KeyPins = Annotated[
    list[str] | None,
    typer.Option(
        "--owner", help="Fingerprint that an owner's key must have; repeatable.",
        metavar="ID=FINGERPRINT", show_default=False,
    ),
]  # fmt: skip
