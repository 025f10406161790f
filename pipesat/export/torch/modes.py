"""Which (stage, microbatch) recompute, which offload: the file beside an order for torch.

``{"recompute": [[stage, microbatch, mode], ...], "offload": [...]}``, in torch's words: stages by
position on the route, microbatches by torch's numbers. When copies are made is not in it: torch's
runtime copies within ops, and read back, copies are timed as those of any other order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from pydantic import ConfigDict

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.rules import offload_of
from pipesat.core.schedule import Schedule
from pipesat.files.complaint import validated
from pipesat.files.schedule_file import ModeEntries
from pipesat.files.strict_json import StrictModel, parse_json

SUFFIX: Final = ".modes.json"


class ModesModel(StrictModel):
    """The whole document."""

    model_config = ConfigDict(strict=False)  # entries are tuples; each part is strict

    recompute: ModeEntries
    offload: ModeEntries


class ModeRow(NamedTuple):
    """One (stage, microbatch) that is not kept: its mode, and whether that offloads."""

    stage: int
    microbatch: int
    mode: str
    offloads: bool = False


def modes_text(problem: Problem, schedule: Schedule) -> str:
    """Return the file of a schedule that is fit for torch; ``""`` if everything is kept.

    A backward that is split after a forward that is to be recomputed is refused: each half would
    recompute it.
    """
    for op in (op for row in schedule.order for item in row for op in members(item)):
        if op.mode and op.kind == "B" and offload_of(problem, op) is None:
            raise NotApplicable(
                f"{op} recomputes its forward and splits its backward: torch would recompute "
                'in both halves. Give the mode "backward": "fused"'
            )
    found: dict[str, list[list[object]]] = {"recompute": [], "offload": []}
    for (stage, microbatch), number in sorted(schedule.modes.items()):
        mode = problem.stages[stage].modes[number - 1]
        kind = "recompute" if mode.offload is None else "offload"
        found[kind].append([problem.place_of[stage], microbatch, mode.name])
    return json.dumps(found) + "\n" if schedule.modes else ""


def read_mode_rows(text: str, source: str) -> tuple[ModeRow, ...]:
    """Read such a file."""
    model = validated(parse_json(text, source), ModesModel, source)
    rows = [ModeRow(*entry) for entry in model.recompute]
    rows += [ModeRow(*entry, offloads=True) for entry in model.offload]
    seen: set[tuple[int, int]] = set()
    for row in rows:
        if row[:2] in seen:
            raise _wrong("appears twice", row, source)
        seen.add(row[:2])
    return tuple(rows)


def require_rows_of(rows: Sequence[ModeRow], order: Sequence[Sequence[str]], source: str) -> None:
    """Pass if an order's ranks, of which these are the actions, run what is listed."""
    actions = {action for row in order for action in row}
    for row in rows:
        if f"{row.stage}F{row.microbatch}" not in actions:
            raise _wrong("the order has no such forward", row, source)
        if not row.offloads and f"{row.stage}I{row.microbatch}" in actions:
            raise _wrong(
                "its backward is split, so torch would recompute its forward in both halves",
                row,
                source,
            )


def _wrong(text: str, row: ModeRow, source: str) -> BadInput:
    return BadInput(text, source=source, where=f"stage {row.stage}, microbatch {row.microbatch}")
