"""Options that describe a release, worded once for all commands that take them.

They are texts here: `common.planning.arguments` reads them, with the defaults that are shown.
"""

from typing import Annotated

import typer

Dataset = Annotated[str, typer.Option("--dataset", help="Name of the data set, the same at every owner.")]
LayoutName = Annotated[str, typer.Option("--layout", help="horizontal, vertical or mixed.")]
Owners = Annotated[str, typer.Option("--owners", help="Owner ids.", metavar="A,B,C", show_default=False)]
Groups = Annotated[
    str, typer.Option("--groups", help="Owner ids by group.", metavar="'A,B;C,D'", show_default=False)
]
Epsilon = Annotated[
    str, typer.Option("--epsilon", help="Budget for all attributes together, a decimal.", show_default=False)
]
K = Annotated[
    str,
    typer.Option(
        "--k", help="Minimum cluster size, or auto for each attribute.", metavar="auto|N", show_default="auto"
    ),
]
MechanismId = Annotated[
    str,
    typer.Option(
        "--mechanism",
        help="auto, dp-hist, idp-joint, idp-cbls, idp-ls, idp, dp-ir or dp.",
        metavar="ID",
        show_default="auto",
    ),
]
RankNoise = Annotated[
    str,
    typer.Option(
        "--rank-noise",
        help="Noise on who gets which value, as a share of the ranks.",
        metavar="W|A=W,B=W",
        show_default="0.03",
    ),
]
Attributes = Annotated[
    str, typer.Option("--attributes", help="Only these, in this order.", metavar="A,B", show_default=False)
]
Weights = Annotated[
    str,
    typer.Option(
        "--weights", help="Weight of every attribute in dividing ε.", metavar="A=2,B=1", show_default=False
    ),
]
Purpose = Annotated[str, typer.Option("--purpose", help="What the release is for.", show_default=False)]
MaxOverlap = Annotated[
    str,
    typer.Option(
        "--max-overlap",
        help="Owners of a group that may hold the same person.",
        metavar="M",
        show_default="1",
    ),
]
OnMismatch = Annotated[
    str,
    typer.Option(
        "--on-mismatch",
        help="If groups hold different persons: stop, or mask the common ones.",
        metavar="stop|intersect",
        show_default="stop",
    ),
]
