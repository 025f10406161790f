"""What is tried, a module per command; a new capability adds one and its line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from campaign.case import Case
from campaign.commands import (
    advise,
    advise_cut,
    advise_pairs,
    baseline,
    check,
    compare,
    files,
    folders,
    gain,
    lanes,
    limits,
    memory,
    order,
    placements,
    plan,
    read_back,
    readers,
    relations,
    remarks,
    solve,
    train,
)
from campaign.problems import PROBLEMS

EVERY = tuple(PROBLEMS)
DIFFERING = (
    "classes",
    "routes-classes",
    "modes",
    "classes-modes",
    "mixture",
    "lengths",
    "tight-modes",
)
LISTS = ("classes", "routes-classes", "classes-modes", "lengths")
PAIRED = ("overlap", "pairs")
HELD = ("held-zero", "held-zero-modes", "zero-modes")
FEW = ("chain", "chunks", "zero", "zero-chunks", "uneven", *PAIRED, *HELD, *DIFFERING)

COMMANDS: dict[str, tuple[Callable[[Case], None], tuple[str, ...]]] = {
    "solve": (solve.case, EVERY),
    "lanes": (lanes.case, lanes.FAMILIES),
    "compare": (compare.case, EVERY),
    "baseline": (baseline.case, EVERY),
    "check": (check.case, EVERY),
    "relations": (relations.case, EVERY),
    "plan": (plan.case, tuple(plan.SHAPES)),
    "advise": (advise.case, advise.RUNTIMES),
    "advise-cut": (advise_cut.case, advise.RUNTIMES),
    "advise-pairs": (advise_pairs.case, advise.RUNTIMES),
    "gain": (gain.case, gain.FAMILIES),
    "placements": (placements.case, ("",)),
    "frontier": (memory.frontier, FEW),
    "min-memory": (memory.min_memory, FEW),
    "limits": (limits.case, limits.FAMILIES),
    "round-trip": (files.round_trip, FEW),
    "report": (files.report, FEW),
    "sweep": (files.sweep, FEW),
    "streams": (folders.streams, FEW),
    "twice": (folders.twice, FEW),
    "kill": (folders.kill, FEW),
    "order": (order.case, (*LISTS, *order.LENGTHS)),
    "read-back": (read_back.case, read_back.FAMILIES),
    "remarks": (remarks.case, remarks.FAMILIES),
    "readers": (readers.case, ("",)),
    "train": (train.case, tuple(train.FAMILIES) if find_spec("torch") else ()),
}
"""Command -> what a case of it does, and the families of problems that it takes."""

KINDS: dict[str, Callable[[Case], None]] = {
    f"{command}/{family}" if family else command: work
    for command, (work, families) in COMMANDS.items()
    for family in families
}
