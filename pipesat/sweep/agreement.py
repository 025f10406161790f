"""Whether the rows of a sweep agree with themselves and with each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pipesat.core.claims import Standing, require_best
from pipesat.sweep.rows import FAILURES, SweepRow

REFUTED: Final = "proof refuted: "
"""Beginning of a row's ``why`` where a checked schedule refuted a proof, which was dropped."""


def standing_of(row: SweepRow) -> Standing:
    """What a row says of its value.

    Raises
    ------
    Contradiction
        If its value is below its bound.
    """
    result: Mapping[str, Any] = row["result"] or {}
    infeasible = row["status"] == "infeasible"
    of = f"case {row['key'][:12]}"
    return Standing(result.get("value"), result.get("lower_bound"), infeasible, of)


def require_agreement(rows: Iterable[SweepRow]) -> None:
    """Check every row, and all rows of one problem against each other.

    Raises
    ------
    Contradiction
        If status, value, bound and baseline of a row do not agree, or a value of another row of the
        same problem is below a bound.
    """
    bounds: dict[object, Standing] = {}
    values: dict[object, list[Standing]] = {}
    for row in rows:
        if row["result"] is None or row["status"] in FAILURES:
            continue
        standing, result = standing_of(row), row["result"]
        standing.require_status(row["status"])
        if baseline := result.get("baseline"):
            require_best(standing.of, standing.value, [(baseline["name"], baseline["value"])])
        problem = row.get("problem_sha256"), result.get("objective"), result.get("for")
        known = bounds.get(problem)
        if standing.bound is not None and (known is None or standing.bound > (known.bound or 0)):
            bounds[problem] = standing
        values.setdefault(problem, []).append(standing)
    for same, highest in bounds.items():
        for standing in values[same]:
            Standing(standing.value, highest.bound, of=f"{highest.of} and {standing.of}")
