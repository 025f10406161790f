"""What is tried, a module per command; a new capability adds one and its line here."""

from __future__ import annotations

from collections.abc import Callable, Collection

from bench.campaign.case import Case
from bench.campaign.commands import (
    advise,
    balance,
    check,
    compare,
    files,
    folders,
    frontier,
    lanes,
    relations,
    remarks,
    solve,
)
from bench.campaign.problems import EVERY, SMALL

LISTS = ("lists", "tight-lists", "lengths", "plain", "uniform")

COMMANDS: dict[str, tuple[Callable[[Case], None], Collection[str]]] = {
    "solve": (solve.case, EVERY),
    "lanes": (lanes.case, EVERY),
    "compare": (compare.case, EVERY),
    "baseline": (check.baseline, EVERY),
    "check": (check.case, EVERY),
    "relations": (relations.case, EVERY),
    "remarks": (remarks.case, remarks.FAMILIES),
    "frontier": (frontier.case, SMALL),
    "min-memory": (frontier.min_memory, SMALL),
    "balance": (balance.case, LISTS),
    "advise": (advise.case, advise.RUNTIMES),
    "round-trip": (files.round_trip, SMALL),
    "streams": (folders.streams, SMALL),
    "twice": (folders.twice, SMALL),
    "kill": (folders.kill, SMALL),
}
"""Command -> what a case of it does, and the families of problems that it takes."""

KINDS: dict[str, Callable[[Case], None]] = {
    f"{command}/{family}": work
    for command, (work, families) in COMMANDS.items()
    for family in families
}
