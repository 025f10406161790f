"""The table at the end: cases by kind, violations."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from campaign.pool import Outcome

BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->"


def table(outcomes: Sequence[Outcome]) -> str:
    """Return Markdown: a row per command, a column per family; a cell is cases, and what is false.

    Commands that bring their own files have no family: their cases are in the last column alone.
    """
    parts = [(outcome, *outcome.kind.partition("/")[::2]) for outcome in outcomes]
    commands = list(dict.fromkeys(sorted(command for _, command, _ in parts)))
    families = sorted({family for _, _, family in parts if family})
    lines = [["cases", *families, "all", "of known optimum", "commands run", "violations"]]
    lines.append(["---", *["---:"] * (len(families) + 4)])
    for command in commands:
        rows = [(outcome, family) for outcome, own, family in parts if own == command]
        cells = [_cell([o for o, own in rows if own == family]) for family in families]
        lines.append([command, *cells, *_totals([outcome for outcome, _ in rows])])
    cells = [_cell([o for o, _, own in parts if own == family]) for family in families]
    lines.append(["**all**", *cells, *_totals(outcomes)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(outcomes: Sequence[Outcome]) -> str:
    false = sum(bool(outcome.violations) for outcome in outcomes)
    return f"{len(outcomes) or ''}" + (f" **({false} false)**" if false else "")


def _totals(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{len(outcomes):,}",
        f"{sum(outcome.exact for outcome in outcomes):,}",
        f"{sum(len(outcome.commands) for outcome in outcomes):,}",
        f"{sum(len(outcome.violations) for outcome in outcomes):,}",
    ]


def keep(readme: Path, outcomes: Sequence[Outcome], seed: int, seconds: float) -> None:
    """Put the table into the README."""
    head, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    _, tail = rest.split(END)
    about = (
        f"{time.strftime('%Y-%m-%d')}, seed {seed}, {seconds / 60:.0f} minutes, "
        f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}:\n\n"
    )
    text = f"{head}{BEGIN}{about}{table(outcomes)}\n{END}{tail}"
    readme.write_text(text, encoding="utf-8")
