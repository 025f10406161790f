"""What is tried, a module per command; a new capability adds one and its line here."""

from __future__ import annotations

from collections.abc import Callable

from campaign.case import Case
from campaign.commands import baseline, check, compare, solve
from campaign.problems import PROBLEMS

EVERY = tuple(PROBLEMS)

COMMANDS: dict[str, tuple[Callable[[Case], None], tuple[str, ...]]] = {
    "solve": (solve.case, EVERY),
    "compare": (compare.case, EVERY),
    "baseline": (baseline.case, EVERY),
    "check": (check.case, EVERY),
}
"""Command -> what a case of it does, and the families of problems that it takes."""

KINDS: dict[str, Callable[[Case], None]] = {
    f"{command}/{family}" if family else command: work
    for command, (work, families) in COMMANDS.items()
    for family in families
}
