"""What a run is asked: the order, how often it runs, and on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

from pipesat.core.errors import require
from pipesat.core.settings import Keys, keyed
from pipesat.runtimes.torch.companions import ModeRow, read_mode_rows, require_rows_of
from pipesat.runtimes.torch.csv_file import rows_of_csv
from pipesat.runtimes.torch.lint import Action

MOST_RANKS = 16  # processes on one machine


@dataclass(frozen=True)
class TorchOrder:
    """One order for torch's runtime.

    ``rows[r]`` are rank r's actions, ``stages_on[r]`` its stages in ascending order, as torch wants
    them. ``modes`` are the (stage, microbatch) that are not kept.
    """

    rows: tuple[tuple[Action, ...], ...]
    stages_on: tuple[tuple[int, ...], ...]
    microbatches: int
    modes: tuple[ModeRow, ...] = ()

    @property
    def stages(self) -> int:
        """Number of stages of the pipeline."""
        return sum(map(len, self.stages_on))

    @property
    def weight_turns(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, its microbatches in the order in which their weight gradients are added."""
        ends = [action for row in self.rows for action in row if action.letter in "BW"]
        return tuple(
            tuple(action.microbatch for action in ends if action.stage == stage)
            for stage in range(self.stages)
        )


def order_of_csv(text: str, modes: str = "") -> TorchOrder:
    """Read an order in torch's ``compute_only`` CSV; whether torch can run it is for torch to say.

    ``modes`` is the file of memory modes beside it, empty if everything is kept.
    """
    source = "torch csv"
    cells = rows_of_csv(text, source)
    rows = tuple(tuple(action for cell in row for action in cell) for row in cells)
    require(
        1 <= len(rows) <= MOST_RANKS,
        f"this starts one local process per rank, for 1 to {MOST_RANKS} ranks",
        source=source,
        where="ranks",
        value=len(rows),
    )
    for rank, row in enumerate(rows):
        require(row, f"rank {rank} has no stage, torch needs one at least", source=source)
    stages_on = tuple(tuple(sorted({action.stage for action in row})) for row in rows)
    placed = sorted(stage for stages in stages_on for stage in stages)
    require(
        placed == list(range(len(placed))),
        "expected every stage from 0 on one rank",
        source=source,
        where="stages",
        value=stages_on,
    )
    listed = read_mode_rows(modes, "memory modes") if modes else ()
    require_rows_of(listed, (action for row in rows for action in row), "memory modes")
    microbatches = 1 + max(action.microbatch for row in rows for action in row)
    return TorchOrder(rows, stages_on, microbatches, listed)


DTYPES: Final = ("bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Shape:
    """Size of the built-in transformer; the defaults are as small as parity needs.

    ``blocks`` has the number of transformer blocks of every stage, or one number for all;
    ``batch`` sequences of ``length`` tokens are one microbatch.
    """

    vocabulary: int = 11
    width: int = 16
    heads: int = 2
    length: int = 6
    batch: int = 2
    blocks: tuple[int, ...] = (1,)
    dtype: str = "float64"

    def require(self, stages: int) -> None:
        """Pass if the shape can be built for so many stages."""
        require(
            len(self.blocks) in {1, stages},
            f"{len(self.blocks)} numbers of blocks, expected {stages}, one per stage, or one "
            "for all",
            where="shape",
        )
        require(
            sum(self.blocks), "expected at least one of the blocks", where="shape", value="blocks=0"
        )
        require(
            self.width % self.heads == 0,
            f"expected a multiple of the {self.heads} heads",
            where="shape",
            value=f"width={self.width}",
        )


def measured_shape(given: str | Mapping[str, Any] | None) -> Shape:
    """Return the shape whose run is measured: larger than parity's, with what is given."""
    keys: Keys = {field.name: _KEYS.get(field.name, int) for field in fields(Shape)}
    return Shape(**_MEASURED | keyed("shape", given, keys))


_KEYS: Final[Keys] = {"blocks": list, "dtype": DTYPES}
_MEASURED: Final[dict[str, Any]] = {
    "vocabulary": 256,
    "width": 128,
    "heads": 4,
    "length": 128,
    "batch": 1,
    "dtype": "float32",
}


@dataclass(frozen=True)
class Job:
    """A measured run.

    Attributes
    ----------
    csv
        The order, in torch's ``compute_only`` CSV.
    steps, warm_up
        Steps that are measured, and those before them that are not.
    shape, module
        The built-in transformer, or a profile, function or module as
        :func:`pipesat.measure.processes.models.load_model` takes it.
    folder
        Where relative paths and imports of ``module`` are looked for.
    split
        How a profile's layers are cut into stages.
    check
        Whether losses and gradients are compared with one process.
    device
        ``cpu`` (gloo) or ``cuda`` (nccl).
    modes
        The file of memory modes beside the order; empty if everything is kept.
    memory
        Whether one more step is run whose peak of memory is measured.
    predicted
        What that peak is to be on every device, in the problem's unit.
    numbers
        The problem's own number of each of torch's microbatches; empty where they are the same.
    """

    csv: str
    steps: int
    warm_up: int
    shape: Shape = field(default_factory=Shape)
    module: str = ""
    folder: str = ""
    split: str = "even"
    check: bool = False
    device: str = "cpu"
    modes: str = ""
    memory: bool = False
    predicted: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()

    @property
    def toy(self) -> bool:
        """Whether the built-in transformer runs, whatever model the problem's costs are of."""
        return not self.module

    @cached_property
    def order(self) -> TorchOrder:
        """The order with its memory modes, read."""
        return order_of_csv(self.csv, self.modes)
