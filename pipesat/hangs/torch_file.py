"""Sends and receives that a CSV of torch's has itself (``compute_comms``), as they stand there."""

from __future__ import annotations

import csv
import re
from itertools import chain
from typing import TYPE_CHECKING, Final

from pipesat.core.errors import BadInput
from pipesat.core.ops import members
from pipesat.export.steps import RankStep, Steps, compute_kind
from pipesat.export.torch.companions import Companions, OwnWords
from pipesat.export.torch.read import LARGEST_FILE
from pipesat.export.torch.tokens import parse_cell
from pipesat.files.source import read_text
from pipesat.hangs.posting import WORDS, faults, late

if TYPE_CHECKING:
    from pathlib import Path

    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order

_POSTS: Final = re.compile(r"\d+(SEND|RECV)_[FB]\d+")


def posted_in(path: Path, problem: Problem, order: Order) -> Steps | None:
    """Return the step lists of a CSV that was read as this order; ``None``: it posts nothing.

    Raises
    ------
    BadInput
        If its sends and receives are not those of the order.
    """
    if path.suffix != ".csv" or not _POSTS.search(text := read_text(path, LARGEST_FILE)):
        return None
    own = OwnWords(problem, Companions(Companions.of(path).order, None), ()).numbers
    number = {mine: theirs for theirs, mine in enumerate(own)}
    known = {
        f"{problem.place_of[op.stage]}{WORDS[step.kind]}{number[op.microbatch]}": step
        for step in chain(*late(problem, order))
        for op in members(step.item)[: step.kind in WORDS]
    }
    lists = []
    for row, cells in zip(order, csv.reader(text.splitlines()), strict=True):
        items, steps = iter(row), list[RankStep]()
        for cell in (cell.replace(" ", "") for cell in cells):
            if cell in known:
                steps.append(known[cell])
                continue
            if _POSTS.fullmatch(cell):
                raise BadInput(f"{cell} carries nothing of this order", source=str(path))
            left = len(parse_cell(cell) or ())
            while left:  # an overlapped cell is a pair, or ops in turn
                item = next(items)
                steps.append(RankStep(compute_kind(item), item))
                left -= len(members(item))
        lists.append(tuple(steps))
    if wrong := faults(problem, order, tuple(lists)):
        raise BadInput(f"its sends and receives do not fit: {wrong[0]}", source=str(path))
    return tuple(lists)
