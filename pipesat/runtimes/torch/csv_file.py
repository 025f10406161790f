"""torch's ``compute_only`` CSV and schedules, both ways.

What is read is linted, timed and checked; what is written is linted and read back before anyone
sees it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pipesat.core.claims import plural
from pipesat.core.errors import BadInput, Fault, first_of, require
from pipesat.core.showing import ranges
from pipesat.core.strict_json import LARGEST_ORDER, read_text
from pipesat.core.torch_releases import RELEASES
from pipesat.problem.ops import Item, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order, pair_time
from pipesat.runtimes.torch.adapt import require_torch_pipeline
from pipesat.runtimes.torch.companions import (
    Companions,
    OwnWords,
    assumptions,
    own_words,
    words_of_texts,
)
from pipesat.runtimes.torch.lint import (
    LETTER_OF,
    WAIT,
    Action,
    Cell,
    Texts,
    cell_text,
    communication_in,
    lint,
    lint_waits,
    never_reduced,
    parse_cell,
)
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order


class Imported(NamedTuple):
    """The schedule, and what in the file it does not have, or has otherwise."""

    schedule: Schedule
    notes: tuple[str, ...]


def read_torch_csv(path: Path, problem: Problem, companions: Companions | None = None) -> Imported:
    """Read an order of a problem from torch's CSV and time it as early as possible.

    Row i is device i, stage k the k-th of the route. Empty cells and communication are skipped: the
    files that torch dumps with ``compute_comms`` can be read too, by the rules of the release whose
    actions they have. An overlapped cell becomes a pair
    where the problem allows pairs and the cell is an F and a B of different (stage, microbatch),
    otherwise its members run in turn, as torch runs them. The notes count what was changed so.

    ``companions`` say whose numbers the file has, and what runs in which memory mode; those that
    lie beside it, if not given.
    """
    require_torch_pipeline(problem)
    source = str(path)
    text = read_text(path, LARGEST_ORDER)
    texts = texts_of_csv(text, source)
    rows = rows_of_texts(texts, source)
    require(
        len(rows) == len(problem.devices),
        f"{len(rows)} rows, expected {len(problem.devices)}, one per rank",
        source=source,
    )
    stages = problem.routes[0].stages
    _check_placement(rows, problem, source)
    complaints = lint(rows, len(stages), problem.routes[0].microbatches)
    if complaints := complaints or [*lint_waits(texts)]:
        raise BadInput(first_of(complaints), source=source)
    companions = companions or Companions.of(path)
    own = own_words(problem, companions, rows)
    items = [[tuple(items_of(cell, own)) for cell in row] for row in rows]
    order = tuple(tuple(item for found in row for item in found) for row in items)
    schedule = time_order(problem, order, source=f"torch-csv {path.name}")
    notes = (*_notes(texts, rows, items), *assumptions(problem, companions, path))
    return Imported(schedule, notes)


def order_of_texts(
    problem: Problem, csv_text: str, order: str | None, modes: str | None, source: str
) -> Order:
    """Return the order that a written CSV and the files beside it say, by torch's rules."""
    route, rows = problem.routes[0], rows_of_csv(csv_text, source)
    _check_placement(rows, problem, source)
    if complaints := lint(rows, len(route.stages), route.microbatches):
        raise BadInput(str(complaints[0]), source=source)
    own = words_of_texts(problem, order, modes, rows)
    return tuple(tuple(item for cell in row for item in items_of(cell, own)) for row in rows)


def texts_of_csv(text: str, source: str) -> list[list[str]]:
    """Return the cells of every row without blanks; a blank line is a rank, as it is for torch."""
    rows: list[list[str]] = []
    try:
        rows.extend(
            [cell.replace(" ", "") for cell in row]
            for row in csv.reader(io.StringIO(text, newline=""))
        )
    except csv.Error as error:  # a field of more than 131,072 characters, say
        raise BadInput(f"not CSV: {error}", source=source, where=f"row {len(rows) + 1}") from None
    return rows


def rows_of_texts(texts: Texts, source: str) -> list[list[Cell]]:
    """Parse the cells; those that compute nothing are left out."""
    rows = []
    where = ""
    try:
        for r, row in enumerate(texts, 1):
            cells = []
            for c, cell in enumerate(row, 1):
                where = f"row {r}, cell {c}"
                cells.append(parse_cell(cell))
            rows.append([cell for cell in cells if cell is not None])
    except ValueError as error:
        raise BadInput(str(error), source=source, where=where) from None
    return rows


def rows_of_csv(text: str, source: str) -> list[list[Cell]]:
    """Parse the rows of a file."""
    return rows_of_texts(texts_of_csv(text, source), source)


def items_of(cell: Cell, own: OwnWords) -> list[Item]:
    """Return the pair that a cell is, or its ops in turn."""
    ops = [*map(own.op, cell)]
    if not _is_pair(cell) or pair_time(own.problem, *ops) is None:
        return list(ops)
    return [in_order(own.problem, Pair(*ops))]


def _is_pair(cell: Cell) -> bool:
    """Whether a cell is an F and a B that could overlap, in either order."""
    if sorted(action.letter for action in cell) != ["B", "F"]:
        return False
    one, other = cell  # of one microbatch, with its own loss between them, they only take turns
    return (one.stage, one.microbatch) != (other.stage, other.microbatch)


def _notes(
    texts: Texts, rows: list[list[Cell]], items: list[list[tuple[Item, ...]]]
) -> Iterator[str]:
    found = zip(chain.from_iterable(rows), chain.from_iterable(items), strict=True)
    overlapped = [(cell, len(made) == 1) for cell, made in found if len(cell) > 1]
    if turned := sum(not paired for _, paired in overlapped):
        yield (
            f"overlapped cells put in turn: {turned}. A pair is one F and one B, not both of one "
            "microbatch on one stage, for which the problem's overlap has a time"
        )
    if backward := sum(paired and cell[0].letter == "B" for cell, paired in overlapped):
        yield f"overlapped cells written backward first: {backward}. A pair has no such order"
    if skipped := communication_in(texts):
        waits = any(WAIT in text for row in texts for text in row)
        release = next(release for release in RELEASES if release.waits == waits)
        yield (
            f"left out actions that compute nothing, {skipped} of them, by the rules of "
            f"{release}: schedules have none"
        )
    if stages := never_reduced(rows, texts):
        yield (
            f"WARNING: without REDUCE_GRAD of {plural(len(stages), 'stage')} {ranges(stages)}, "
            "torch's gradients there are as many times too large as there are microbatches"
        )


def _check_placement(rows: list[list[Cell]], problem: Problem, source: str) -> None:
    stages = problem.routes[0].stages
    for r, row in enumerate(rows):
        for c, cell in enumerate(row, 1):
            for action in (a for a in cell if a.stage < len(stages)):  # else the lint says so
                home = problem.stages[stages[action.stage]].device
                if home != r:
                    text = f"{action} runs on rank {r}, but the problem places stage "
                    text += f"{stages[action.stage]} on {problem.device_name(home)}"
                    raise BadInput(text, source=source, where=f"row {r + 1}, cell {c}")


def torch_csv(problem: Problem, schedule: Schedule) -> str:
    """Return the CSV of a schedule that :func:`pipesat.runtimes.torch.adapt.adapt` has made fit.

    One row per rank, one cell per action, no header, no blank line; torch adds communication.
    """
    rows, route = cells_of(problem, schedule.order), problem.routes[0]
    text = "".join(",".join(map(cell_text, row)) + "\n" for row in rows)
    if complaints := lint(rows, len(route.stages), route.microbatches):
        raise Fault(f"the exported order breaks a rule of torch's: {complaints[0]}")
    if rows_of_csv(text, "export") != rows:
        raise Fault("the exported order does not read back as it was")
    return text


def cells_of(problem: Problem, order: Order) -> list[list[Cell]]:
    """Return an order in torch's words: its stage k is the k-th of the route."""
    position = problem.place_of
    return [
        [
            tuple(Action(position[op.stage], LETTER_OF[op.kind], op.microbatch) for op in ops)
            for ops in map(members, row)
        ]
        for row in order
    ]
