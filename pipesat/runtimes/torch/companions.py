"""The files beside an order for torch: whose numbers it has, and what is not kept.

``.order.json``: the microbatches' own numbers, one per number of torch's.

``.modes.json``: ``{"recompute": [[stage, microbatch, mode], ...], "offload": [...]}``, in torch's
words: stages by position on the route, microbatches by torch's numbers. When copies are made is not
in it: torch's runtime copies within ops, and read back, copies are timed as those of any order.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ConfigDict

from pipesat.core.complaint import InFile, validated
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.strict_json import LARGEST_ORDER, StrictModel, parse_json, read_text
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.rules import offload_of
from pipesat.runtimes.torch.lint import Action, Cell
from pipesat.schedule.schedule import Schedule, ops_in
from pipesat.schedule.schedule_file import ModeEntries

ORDER_SUFFIX: Final = ".order.json"
MODES_SUFFIX: Final = ".modes.json"
SUFFIXES: Final = (ORDER_SUFFIX, MODES_SUFFIX)


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
    for op in ops_in(schedule.order):
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


def require_rows_of(rows: Sequence[ModeRow], actions: Iterable[Action], source: str) -> None:
    """Pass if an order of these actions runs what is listed."""
    known = set(actions)
    for row in rows:
        if Action(row.stage, "F", row.microbatch) not in known:
            raise _wrong("the order has no such forward", row, source)
        if not row.offloads and Action(row.stage, "I", row.microbatch) in known:
            raise _wrong(
                "its backward is split, so torch would recompute its forward in both halves",
                row,
                source,
            )


def _wrong(text: str, row: ModeRow, source: str) -> BadInput:
    return BadInput(text, source=source, where=f"stage {row.stage}, microbatch {row.microbatch}")


@dataclass(frozen=True)
class Companions:
    """What the files beside an order say; ``None`` where there is no such file."""

    order: Path | None
    modes: Path | None

    @classmethod
    def of(cls, path: Path, order: Path | None = None, modes: Path | None = None) -> Companions:
        """Return those that are named, else those that lie beside ``path``."""

        def beside(suffix: str) -> Path | None:
            if not path.name:  # a folder such as `.`: reading it says so
                return None
            file = path.with_suffix(suffix)
            return file if os.path.exists(file) else None

        return cls(order or beside(ORDER_SUFFIX), modes or beside(MODES_SUFFIX))


@dataclass(frozen=True)
class OwnWords:
    """torch's words of an order in the problem's own: its stages, numbers and memory modes."""

    problem: Problem
    numbers: Sequence[int]
    modes: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def op(self, action: Action) -> Op:
        """Return an action as an op."""
        stage = self.problem.routes[0].stages[action.stage]
        microbatch = self.numbers[action.microbatch]
        return Op(stage, action.kind, microbatch, self.modes.get((stage, microbatch), 0))


def own_words(problem: Problem, companions: Companions, rows: Sequence[Sequence[Cell]]) -> OwnWords:
    """Return what files say of an order, whose cells break no rule of torch's."""
    order, modes = (
        None if file is None else read_text(file, LARGEST_ORDER)
        for file in (companions.order, companions.modes)
    )
    sources = str(companions.order), str(companions.modes)
    return words_of_texts(problem, order, modes, rows, *sources)


def words_of_texts(
    problem: Problem,
    order: str | None,
    modes: str | None,
    rows: Sequence[Sequence[Cell]],
    order_source: str = ORDER_SUFFIX,
    source: str = MODES_SUFFIX,
) -> OwnWords:
    """Return what the texts of the files say; ``None`` where there is none."""
    m = problem.routes[0].microbatches
    numbers: Sequence[int] = range(m)
    if order is not None:
        numbers = _numbers(parse_json(order, order_source), m, order_source)
    if modes is None:
        return OwnWords(problem, numbers)
    listed = read_mode_rows(modes, source)
    require_rows_of(listed, (action for row in rows for cell in row for action in cell), source)
    return OwnWords(problem, numbers, modes_of(problem, listed, numbers, source))


def modes_of(
    problem: Problem, rows: Iterable[ModeRow], numbers: Sequence[int], source: str
) -> dict[tuple[int, int], int]:
    """Return the mode of every (stage, microbatch) that is not kept, in the problem's words."""
    found = {}
    for row in rows:
        stage = problem.routes[0].stages[row.stage]
        modes = problem.stages[stage].modes
        names = [mode.name for mode in modes if (mode.offload is not None) == row.offloads]
        if row.mode not in names:
            does = "offloads" if row.offloads else "recomputes"
            raise _wrong(
                f"{row.mode!r} is no mode of the problem that {does}, expected one of "
                f"{', '.join(names) or 'none'}",
                row,
                source,
            )
        place = [mode.name for mode in modes].index(row.mode)
        found[stage, numbers[row.microbatch]] = 1 + place
    return found


def assumptions(problem: Problem, companions: Companions, path: Path) -> Iterator[str]:
    """Yield what is assumed because a file is not there."""
    if problem.has_lists and companions.order is None:
        yield (
            f"no {path.with_suffix(ORDER_SUFFIX).name} beside it: its microbatch numbers are taken "
            "for the problem's own"
        )
    if problem.has_modes and companions.modes is None:
        yield f"no {path.with_suffix(MODES_SUFFIX).name} beside it: every microbatch is kept"


def _numbers(listed: object, m: int, source: str) -> tuple[int, ...]:
    """Return the microbatches' own numbers, checked."""
    wanted = f"expected a list with each microbatch of the problem, 0 to {m - 1}, once"
    if not isinstance(listed, list) or len(listed) != m:
        raise BadInput(wanted, source=source, value=InFile(listed))
    left = {*range(m)}
    for place, number in enumerate(listed):
        if type(number) is not int or number not in left:
            raise BadInput(wanted, source=source, where=f"[{place}]", value=InFile(number))
        left.remove(number)
    return tuple(listed)
