"""Options that say how measured layers are trained, and which of their times count."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class StatisticName(StrEnum):
    """Which of an op's measured times counts."""

    low = "low"
    median = "median"
    high = "high"


ProfileFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="PROFILE", help="Profile file (JSON).", show_default=False)
]
Optimizer: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="adamw, sgd, sgd-momentum, muon, none, ...")
]
Dtype: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TYPE", show_default="the parameters' own, as in torch")
]
MasterDtype: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TYPE", help="A second copy of the weights.", show_default="none"),
]
Reserve: TypeAlias = Annotated[
    str, typer.Option(metavar="AMOUNT", help="Memory per device for everything else.")
]
Cost: TypeAlias = Annotated[
    StatisticName, typer.Option(help="Of an op's times: 10th percentile, median or 90th.")
]
