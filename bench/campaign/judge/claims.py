"""A result object held against its schedule and against what is known to be true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from campaign.judge import values
from campaign.judge.differing import microbatch_order
from campaign.judge.exact import Truth
from campaign.judge.reading import Pipe, digest, pipe_of
from campaign.judge.rules import broken_rules
from campaign.judge.timed import Timed, read_timed

RESULT_KEYS = (
    "status",
    "objective",
    "value",
    "makespan",
    "span",
    "lower_bound",
    "lower_bound_source",
    "gap",
    "bubble",
    "peak_memory",
    "baseline",
    "schedule",
    "wall_s",
    "seed",
    "workers",
    "versions",
)


@dataclass
class Judged:
    """A problem with everything known about it; ``best`` is the least value of a valid schedule."""

    document: dict[str, Any]
    objective: str
    truth: Truth

    def __post_init__(self) -> None:
        self.pipe: Pipe = pipe_of(self.document)
        self.sha256 = digest(self.document)
        self.best = self.truth.upper

    def judge(self, schedule: Any) -> tuple[Timed | None, list[str]]:
        """Return a schedule, its value now known to be possible, or the rules that it breaks."""
        broken = broken_rules(self.pipe, self.sha256, schedule)
        if broken:
            return None, broken
        timed, _ = read_timed(schedule, self.pipe.devices)
        value = values.value(timed, self.objective)
        self.best = value if self.best is None else min(self.best, value)
        return timed, []

    @property
    def feasible(self) -> bool | None:
        return True if self.best is not None else self.truth.feasible


def false_claims(
    judged: Judged, result: dict[str, Any], schedule: Any, code: int, *, restricted: bool = False
) -> Iterator[str]:
    """Yield every statement of a result that is false.

    ``restricted``: value and bound are of a runtime's schedules alone, so a bound may be above the
    unrestricted optimum, and a baseline below the value.
    """
    missing = [key for key in RESULT_KEYS if key not in result]
    if missing:
        yield f"result lacks {missing}"
        return
    status, value, bound = result["status"], result["value"], result["lower_bound"]
    if status not in ("optimal", "feasible", "infeasible", "unknown"):
        yield f"status {status!r}"
    if (code == 3) != (status == "infeasible"):
        yield f"status {status} with exit code {code}"
    if result["objective"] != judged.objective:
        yield f"objective {result['objective']}, asked for {judged.objective}"
    yield from _of_schedule(judged, result, schedule)
    if judged.truth.feasible is False and status in ("optimal", "feasible"):
        yield f"status {status}, though no schedule exists"
    if status == "infeasible" and judged.feasible and not restricted:
        yield f"status infeasible, though a schedule of {judged.best} exists"
    if status in ("infeasible", "unknown") and value is not None:
        yield f"status {status} with value {value}"
    if status in ("optimal", "feasible") and value is None:
        yield f"status {status} without a value"
    yield from _of_bound(judged, status, value, bound, result["gap"], restricted=restricted)
    baseline = result["baseline"]
    if baseline is not None:
        if baseline["value"] < judged.truth.lower:
            yield f"baseline {baseline} is below the optimum, at least {judged.truth.lower}"
        if value is not None and not restricted and baseline["value"] < value:
            yield f"baseline {baseline} is better than the value {value}"


def _of_schedule(judged: Judged, result: dict[str, Any], schedule: Any) -> Iterator[str]:
    value = result["value"]
    if schedule is None:
        for key in ("makespan", "span", "peak_memory"):
            if (result[key] is None) != (value is None):
                yield f"{key} {result[key]} with value {value}"
        return
    timed, broken = judged.judge(schedule)
    if timed is None:
        yield f"its schedule is not valid: {broken[:3]}"
        return
    yield from false_figures(judged.pipe, timed, result)
    if value != result[judged.objective]:
        yield f"value {value} is not the {judged.objective} {result[judged.objective]}"


def false_figures(pipe: Pipe, timed: Timed, shown: dict[str, Any]) -> Iterator[str]:
    """Yield makespan, span, bubbles and peaks that a schedule does not have."""
    truth = {"makespan": values.makespan(timed), "span": values.span(timed)}
    for key, true in truth.items():
        if shown[key] != true:
            yield f"{key} {shown[key]}, the schedule has {true}"
    for key, share in values.bubbles(pipe, timed).items():
        said = (shown.get("bubble") or {}).get(key)
        if not _equal(said, share):
            yield f"bubble of {key} {said}, the schedule has {share}"
    if shown.get("pairs", pairs := values.pair_counts(timed)) != pairs:
        yield f"pairs {shown['pairs']}, the schedule has {pairs}"
    counts = values.mode_counts(pipe, timed)
    if shown.get("modes", counts) != counts:
        yield f"modes {shown['modes']}, the schedule has {counts}"
    order = microbatch_order(pipe, timed)
    if shown.get("microbatch_order", order) != order:
        yield f"microbatch order {shown['microbatch_order']}, the schedule has {order}"
    if shown["peak_memory"] != values.peaks(pipe, timed):
        yield f"peak memory {shown['peak_memory']}, the schedule has {values.peaks(pipe, timed)}"


def _of_bound(
    judged: Judged, status: str, value: Any, bound: Any, gap: Any, *, restricted: bool
) -> Iterator[str]:
    best, truth = judged.best, judged.truth
    if bound is not None and best is not None and bound > best and not restricted:
        yield f"lower bound {bound}, though a schedule of {best} exists"
    if value is not None and value < truth.lower:
        yield f"value {value}, though none is below {truth.lower}"
    if value is None:
        if gap is not None:
            yield f"gap {gap} without a value"
        return
    if bound is not None and bound > value:
        yield f"lower bound {bound} above the value {value}"
    if (status == "optimal") != (bound == value):
        yield f"status {status} with value {value} and bound {bound}"
    true_gap = None if bound is None else Fraction(value - bound, value) if value else Fraction(0)
    if not _equal(gap, true_gap):
        yield f"gap {gap} with value {value} and bound {bound}"
    if status == "optimal" and truth.exact and value != truth.lower and not restricted:
        yield f"value {value} called optimal, the optimum is {truth.lower}"


def _equal(said: float | None, true: Fraction | None) -> bool:
    if said is None or true is None:
        return said is None and true is None
    return abs(said - float(true)) < 1e-9
