"""The table at the end: cases by kind, violations."""

from __future__ import annotations

from collections.abc import Sequence

from campaign.pool import Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Return Markdown: a row per command and family of problems, and the totals."""
    lines = [
        "| kind | cases | of known optimum | commands run | violations |",
        "|---|---:|---:|---:|---:|",
    ]
    kinds = sorted({outcome.kind for outcome in outcomes})
    lines += [_line(kind, [o for o in outcomes if o.kind == kind]) for kind in kinds]
    lines.append(_line("**all**", outcomes))
    return "\n".join(lines)


def _line(name: str, outcomes: Sequence[Outcome]) -> str:
    cells = [
        name,
        len(outcomes),
        sum(outcome.exact for outcome in outcomes),
        sum(len(outcome.commands) for outcome in outcomes),
        sum(len(outcome.violations) for outcome in outcomes),
    ]
    return f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in cells)} |"
