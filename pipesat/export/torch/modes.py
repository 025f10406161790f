"""Which (stage, microbatch) runs in which memory mode: the file beside an order for torch.

Everything is in torch's words: stages by position on the route, ops as ``2F3`` or ``0B1``,
copies as ``2O3`` (out) and ``2L3`` (back). A line per (stage, microbatch) that is not kept:

``out_turn``, ``load_turn``
    Places of its copies on the rank's channels, empty where it is recomputed. Where out and back
    share a channel they count together, else each from 0.
``out_before``
    The op that may not start before the copy out has ended.
``load_with``, ``load_after``
    The op that must have started, and the ops and copies that must have ended (separated by
    blanks), before the copy back starts.

A runtime that keeps these never holds more than the schedule does, whatever its times are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.ops import Item, Op, members
from pipesat.core.problem import Problem
from pipesat.core.rules import offload_of
from pipesat.core.schedule import Schedule
from pipesat.core.timing import sequence_of
from pipesat.export.torch.lint import LETTER_OF

SUFFIX: Final = ".modes.csv"
HEAD: Final = (
    "stage",
    "microbatch",
    "mode",
    "out_turn",
    "out_before",
    "load_turn",
    "load_with",
    "load_after",
)
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_OP = re.compile(f"{_NUMBER}[FIWB]{_NUMBER}")
_OP_OR_COPY = re.compile(f"{_NUMBER}[FIWBOL]{_NUMBER}")


class ModeRow(NamedTuple):
    """One line of the file; turns are -1 where the microbatch is not offloaded."""

    stage: int
    microbatch: int
    mode: str
    out_turn: int = -1
    out_before: str = ""
    load_turn: int = -1
    load_with: str = ""
    load_after: tuple[str, ...] = ()

    @property
    def offloads(self) -> bool:
        """Whether its activations are copied out and back; else they are recomputed."""
        return self.out_turn >= 0


def modes_csv(problem: Problem, schedule: Schedule) -> str:
    """Return the file of a schedule that is fit for torch; ``""`` if everything is kept."""
    return rows_text([*mode_rows(problem, schedule)])


def rows_text(rows: Sequence[ModeRow]) -> str:
    """Return the file of some lines; ``""`` if there is none."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for row in rows:
        shown = ["" if cell == -1 else cell for cell in row[:-1]]
        writer.writerow([*shown, " ".join(row.load_after)])
    return text.getvalue()


def mode_rows(problem: Problem, schedule: Schedule) -> Iterator[ModeRow]:
    """Yield the lines of a schedule's file, by stage and microbatch."""
    modes = schedule.modes
    _require_whole_recomputation(problem, schedule)
    copied = _Copied(problem, schedule) if any(schedule.copies) else None
    for (stage, microbatch), mode in sorted(modes.items()):
        row = ModeRow(
            problem.place_of[stage], microbatch, problem.stages[stage].modes[mode - 1].name
        )
        if copied is not None and (stage, microbatch) in copied.turns["O"]:
            row = copied.completed(row, stage)
        yield row


def _require_whole_recomputation(problem: Problem, schedule: Schedule) -> None:
    for row in schedule.order:
        for op in (op for item in row for op in members(item)):
            if op.mode and op.kind == "B" and offload_of(problem, op) is None:
                raise NotApplicable(
                    f"{op} recomputes its forward and splits its backward: torch would recompute "
                    'in both halves. Give the mode "backward": "fused"'
                )


class _Copied:
    """What the copies of a schedule wait for, and what waits for them, in torch's words."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem = problem
        self.sequence = sequence_of(problem, schedule)
        if not self.sequence.copies:
            raise NotApplicable(
                "its copies and ops of length zero wait for each other at one instant, which no "
                "runtime can keep"
            )
        self.number = {(c.kind, c.stage, c.microbatch): n for n, c in self.sequence.copies.items()}
        self.turns: dict[str, dict[tuple[int, int], int]] = {"O": {}, "L": {}}
        for device, row in enumerate(schedule.copies):
            shared = problem.devices[device].copy_channels == 1
            counts = {"O": 0, "L": 0}
            for copy, _, _ in row:
                assert not isinstance(copy, str)  # noqa: S101  checked schedules are readable
                channel = "O" if shared else copy.kind  # type: ignore[union-attr]
                self.turns[copy.kind][copy[::2]] = counts[channel]  # type: ignore[union-attr, index]
                counts[channel] += 1
        self.first_waiting = self._first_waiting()

    def _first_waiting(self) -> dict[int, Item]:
        """The first item that waits for each O; those after it on the device wait for it, too."""
        found: dict[int, Item] = {}
        for number, (item, inputs) in enumerate(
            zip(self.sequence.item, self.sequence.inputs, strict=True)
        ):
            if number in self.sequence.copies:
                continue
            for source, _ in inputs:
                copy = self.sequence.copies.get(source)
                if copy is not None and copy.kind == "O":
                    found.setdefault(source, item)
        return found

    def completed(self, row: ModeRow, stage: int) -> ModeRow:
        """Return an offloaded microbatch's line with everything about its copies."""
        key = (stage, row.microbatch)
        first = self.first_waiting.get(self.number["O", *key])
        load = self.number["L", *key]
        started, ended = "", []
        for source, delay in self.sequence.inputs[load]:
            length = self.sequence.duration[source]
            if source in self.sequence.copies:
                copy = self.sequence.copies[source]
                text = f"{self.problem.place_of[copy.stage]}{copy.kind}{copy.microbatch}"
                if source != self.number["O", *key] and text not in ended:
                    ended.append(text)
            elif delay == -length and length:
                started = self._action(members(self.sequence.item[source])[0])
            else:
                ended.append(self._action(members(self.sequence.item[source])[-1]))
        return row._replace(
            out_turn=self.turns["O"][key],
            out_before="" if first is None else self._action(members(first)[0]),
            load_turn=self.turns["L"][key],
            load_with="" if started in ended else started,
            load_after=tuple(ended),
        )

    def _action(self, op: Op) -> str:
        return f"{self.problem.place_of[op.stage]}{LETTER_OF[op.kind]}{op.microbatch}"


def read_mode_rows(text: str, source: str) -> tuple[ModeRow, ...]:
    """Read such a file."""
    try:
        lines = [*csv.reader(io.StringIO(text))]
    except csv.Error as error:  # a field of more than 131,072 characters, say
        raise BadInput(f"not CSV: {error}", source=source) from None
    if not lines or lines[0] != list(HEAD):
        raise BadInput(f"expected the head {','.join(HEAD)}", source=source, where="line 1")
    rows: dict[tuple[int, int], ModeRow] = {}
    for number, cells in enumerate(lines[1:], 2):
        row = _row(cells, source, f"line {number}")
        if rows.setdefault(row[:2], row) is not row:
            raise BadInput(
                f"stage {row.stage}, microbatch {row.microbatch} appears twice",
                source=source,
                where=f"line {number}",
            )
    return tuple(rows.values())


def _row(cells: Sequence[str], source: str, where: str) -> ModeRow:
    if len(cells) != len(HEAD):
        raise BadInput(f"expected {len(HEAD)} cells", source=source, where=where, value=len(cells))
    for name, cell in zip(HEAD, cells, strict=True):
        if not _fits(name, cell):
            raise BadInput(
                f"expected {_WANTED[name]}", source=source, where=f"{where}, {name}", value=cell
            )
    stage, microbatch, mode, out_turn, out_before, load_turn, load_with, load_after = cells
    if bool(out_turn) != bool(load_turn):
        raise BadInput("expected both turns, or none", source=source, where=where, value=cells)
    turns = (int(out_turn), int(load_turn)) if out_turn else (-1, -1)
    after = tuple(load_after.split())
    return ModeRow(
        int(stage), int(microbatch), mode, turns[0], out_before, turns[1], load_with, after
    )


_WANTED: Final = {
    "stage": "a number",
    "microbatch": "a number",
    "mode": "a name",
    "out_turn": "a number or nothing",
    "out_before": "an op, as 2F3, or nothing",
    "load_turn": "a number or nothing",
    "load_with": "an op, as 2F3, or nothing",
    "load_after": "ops and copies, as 2F3 or 2O3, separated by blanks",
}


def _fits(name: str, cell: str) -> bool:
    if name == "mode":
        return bool(cell)
    if name == "load_after":
        return all(_OP_OR_COPY.fullmatch(text) for text in cell.split())
    if name in ("out_before", "load_with"):
        return not cell or _OP.fullmatch(cell) is not None
    return re.fullmatch(_NUMBER, cell) is not None or (name.endswith("turn") and not cell)


def require_rows_of(rows: Sequence[ModeRow], order: Sequence[Sequence[str]], source: str) -> None:
    """Pass if an order's ranks run everything that the lines name, each on its own rank.

    ``order`` has the actions of every rank.
    """
    copies = {f"{r.stage}{kind}{r.microbatch}" for r in rows if r.offloads for kind in "OL"}
    for row in rows:
        where = f"stage {row.stage}, microbatch {row.microbatch}"
        forward = f"{row.stage}F{row.microbatch}"
        rank = next((set(actions) for actions in order if forward in actions), None)
        if rank is None:
            raise BadInput("the order has no such forward", source=source, where=where)
        if not row.offloads and f"{row.stage}I{row.microbatch}" in rank:
            raise BadInput(
                "its backward is split, so torch would recompute its forward in both halves",
                source=source,
                where=where,
            )
        for text in filter(None, (row.out_before, row.load_with, *row.load_after)):
            if text not in rank and text not in copies:
                raise BadInput(
                    "expected an op of its rank, or a copy of the file",
                    source=source,
                    where=where,
                    value=text,
                )
