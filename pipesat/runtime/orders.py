"""What the ranks are asked to run, and the files through which they answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipesat.core.errors import BadInput
from pipesat.export.torch.modes import ModeRow, read_mode_rows, require_rows_of
from pipesat.export.torch.read import rows_of_csv
from pipesat.export.torch.tokens import parse_action

FOLDER_PREFIX = "pipesat-ranks-"
MOST_RANKS = 16  # processes on one machine; each takes some 200 MB and seconds to start


@dataclass(frozen=True)
class TorchOrder:
    """One order for torch's runtime.

    ``rows[r]`` are rank r's actions in torch's letters (``0F3``), ``stages_on[r]`` its stages in
    ascending order, as torch wants them. ``modes`` are the (stage, microbatch) that are not kept.
    """

    rows: tuple[tuple[str, ...], ...]
    stages_on: tuple[tuple[int, ...], ...]
    microbatches: int
    csv: str
    modes: tuple[ModeRow, ...] = ()

    @property
    def stages(self) -> int:
        """Number of stages of the pipeline."""
        return sum(map(len, self.stages_on))

    @property
    def weight_turns(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, its microbatches in the order in which their weight gradients are added."""
        actions = [parse_action(text) for row in self.rows for text in row]
        return tuple(
            tuple(a.microbatch for a in actions if a and a.stage == stage and a.letter in "BW")
            for stage in range(self.stages)
        )


def order_of_csv(text: str, modes: str = "") -> TorchOrder:
    """Read an order in torch's ``compute_only`` CSV; whether torch can run it is for torch to say.

    ``modes`` is the file of memory modes beside it, empty if everything is kept.

    Raises
    ------
    BadInput
        If it is no such CSV, has a rank without stages, or more ranks than one machine should run;
        or the modes are not of this order.
    """
    source = "torch csv"
    rows = [[action for cell in row for action in cell] for row in rows_of_csv(text, source)]
    if not 1 <= len(rows) <= MOST_RANKS:
        raise BadInput(
            f"this starts one local process per rank, for 1 to {MOST_RANKS} ranks",
            source=source,
            where="ranks",
            value=len(rows),
        )
    for rank, row in enumerate(rows):
        if not row:
            raise BadInput(f"rank {rank} has no stage, torch needs one at least", source=source)
    stages_on = tuple(tuple(sorted({action.stage for action in row})) for row in rows)
    placed = sorted(stage for stages in stages_on for stage in stages)
    if placed != list(range(len(placed))):
        raise BadInput(
            "expected every stage from 0 on one rank",
            source=source,
            where="stages",
            value=stages_on,
        )
    actions = tuple(tuple(map(str, row)) for row in rows)
    listed = read_mode_rows(modes, "memory modes") if modes else ()
    require_rows_of(listed, actions, "memory modes")
    microbatches = 1 + max(action.microbatch for row in rows for action in row)
    return TorchOrder(actions, stages_on, microbatches, text, listed)


def rank_name(rank: int) -> str:
    """Name of a rank's process, which heads its files."""
    return f"rank {rank}"


REFERENCE = "reference"


def answer_file(folder: Path, name: str, number: int) -> Path:
    """Where a process writes the losses and gradients of order ``number``."""
    return folder / f"{name}.{number}.npz"


def measured_file(folder: Path, name: str) -> Path:
    """Where a rank writes when each op of a measured run ran."""
    return folder / f"{name}.measured.json"


def progress_file(folder: Path, name: str, number: int, step: int) -> Path:
    """Where a rank writes each action of a step of order ``number`` as it starts it, one a line."""
    return folder / f"{name}.{number}.{step}.progress"


def actions_so_far(folder: Path, name: str = "*") -> list[str]:
    """Return what a rank has started of its last step, to say where it was when it failed."""
    files = sorted(folder.glob(f"{name}.*.progress"), key=lambda path: path.stat().st_mtime)
    return files[-1].read_text().split() if files else []
