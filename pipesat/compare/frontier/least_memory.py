"""How little memory is enough: the left end of the frontier, of values near the best."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pipesat.compare.frontier.capacities import (
    Cap,
    Scale1F1B,
    at_cap,
    attainable,
    in_1f1b,
    least_feasible_cap,
    scale_of,
)
from pipesat.compare.frontier.curve import Curve, Interval, KnownSchedule
from pipesat.compare.frontier.solves import Study
from pipesat.core.amounts import memory_text, time_text
from pipesat.core.claims import Bound, Standing, as_given, tenable
from pipesat.core.errors import Infeasible
from pipesat.core.folder import json_file, write_folder
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.draw.gantt import gantt
from pipesat.heuristics.registry import Build
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule_file import schedule_bytes
from pipesat.solver.options import SolveOptions

Reference: TypeAlias = Literal["unlimited", "file"]

_REFERENCE = 0.2  # of the time, for the best value
_STEP = 0.02  # of the time, for a decision in the first round
_MORE_TIME = 2.0  # from one round to the next


@dataclass(frozen=True, repr=False, slots=True)
class LeastMemory(Displayed):
    """How little memory is enough, and the schedule that shows it.

    ``best`` is what the question refers to: the best with unlimited memory, or with the capacities
    of a file. ``interval`` has the smallest cap with a schedule of at most its ``target``;
    ``None`` if no schedule was found in time.
    ``about`` has what the document says besides: seed, workers, versions.
    """

    curve: Curve
    within: Fraction
    reference: Reference
    best: Standing
    interval: Interval | None
    scale: Scale1F1B | None
    wall_s: float
    about: Mapping[str, Any]

    @property
    def cap(self) -> int | None:
        """Smallest capacity of every device that was found to be enough."""
        return None if self.interval is None else self.interval.enough

    @property
    def known(self) -> KnownSchedule | None:
        """Of the schedules that are found to be enough at that capacity, that of least peaks."""
        if self.interval is None or self.cap is None:
            return None
        fitting = self.curve.fitting(self.cap)
        enough = [known for known in fitting if known.value <= self.interval.target]
        return min(enough, key=lambda known: (sum(known.peaks), known.value))

    @property
    def contradictions(self) -> list[str]:
        """Proofs that checked schedules have refuted, and that were dropped."""
        return self.curve.contradictions

    def facts(self) -> Facts:
        """Return the least capacity, what it costs, and what is proven of each."""
        problem, cap, known = self.curve.problem, self.interval, self.known
        of = "unlimited memory" if self.reference == "unlimited" else "the file's capacities"
        if self.best.value is None or cap is None or known is None or cap.enough is None:
            return [("Take", f"nothing: no schedule found in time with {of}")]
        proof = "proven smallest" if cap.proven else "not proven smallest"
        left = "" if cap.proven else f", smaller capacities that may do: {cap.undecided}"
        value, target, best = (
            time_text(time, problem.time_unit)
            for time in (known.value, cap.target, self.best.value)
        )
        taken, held = (
            memory_text(amount, problem.memory_unit) for amount in (cap.enough, sum(known.peaks))
        )
        return [
            ("Take", f"{taken} on every device{in_1f1b(self.scale, cap.enough)}"),
            ("Proof", f"{proof}{left}"),
            ("Costs", f"{value}, found by {known.schedule.source}"),
            ("Target", f"{target}, at most {as_given(self.within)} longer than the best"),
            ("Best", f"{best} ({self.curve.objective}) with {of}, {self.best.verdict}"),
            ("For", self.about.get("release", "")),
            ("Sum of peaks", f"{held} within that capacity"),
            ("Searched", f"{self.wall_s:.1f} s"),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield the peak of every device."""
        if self.known is not None:
            yield table_of(self.records(), units={"peak": self.curve.problem.memory_unit})

    def records(self) -> list[dict[str, Any]]:
        """Return a row per device: its peak."""
        peaks = () if self.known is None else self.known.peaks
        name = self.curve.problem.device_name
        return [{"device": name(device), "peak": peak} for device, peak in enumerate(peaks)]

    def document(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the answer as one JSON document; its schedule's path is that in ``folder``.

        ``status`` is that of the cap: ``optimal`` if proven smallest.
        """
        cap, known, scale = self.interval, self.known, self.scale
        status = "unknown" if self.cap is None else "feasible"
        return {
            "format": "pipesat.least-memory/1",
            "status": "optimal" if cap is not None and cap.proven else status,
            "objective": self.curve.objective,
            "time_unit": self.curve.problem.time_unit,
            "memory_unit": self.curve.problem.memory_unit,
            "within": float(self.within),
            "best": {
                "memory": self.reference,
                "value": self.best.value,
                "lower_bound": self.best.bound,
                "status": self.best.status,
            },
            "target": None if cap is None else cap.target,
            "cap": self.cap,
            "share_of_1f1b": None if self.cap is None or scale is None else scale.share(self.cap),
            "largest_too_little": None if cap is None else cap.too_little,
            "undecided_caps": None if cap is None else cap.undecided,
            "value": None if known is None else known.value,
            "source": None if known is None else known.schedule.source,
            "peak_memory": None if known is None else list(known.peaks),
            "sum_of_peaks": None if known is None else sum(known.peaks),
            "schedule": None if folder is None or known is None else str(folder / "schedule.json"),
            "wall_s": round(self.wall_s, 3),
            **self.about,
        }

    def save(self, folder: str | Path) -> None:
        """Write what ``pipesat frontier --within -o`` writes.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        folder = Path(folder)
        files: dict[str, bytes] = {}
        drawn: Callable[[], dict[str, bytes]] | None = None
        if (known := self.known) is not None:
            at = at_cap(self.curve.problem, self.cap)
            files["problem.json"] = json_file(at.document)
            files["schedule.json"] = schedule_bytes(at, known.schedule)
            title = f"{at.name}\n{self.curve.objective} {time_text(known.value, at.time_unit)}"
            drawn = lambda: {"gantt.png": gantt(at, known.schedule, title=title)}  # noqa: E731
        files["result.json"] = json_file(self.document(folder))
        write_folder(folder, files, pictures=drawn)


def least_memory(
    problem: Problem,
    options: SolveOptions,
    *,
    within: Fraction = Fraction(1, 20),
    reference: Reference = "unlimited",
    baselines: Mapping[str, Build] | None = None,
    about: Mapping[str, Any] | None = None,
) -> LeastMemory:
    """Return the smallest uniform cap that keeps the objective within a share of the best.

    Parameters
    ----------
    options
        How each cap is solved; the time limit is for everything.
    within
        The target is ``floor((1 + within) * best)``.
    reference
        What the best is of: ``unlimited`` memory, or the problem's own capacities (``file``). The
        best is the best value found, its bound that of a share of the time.

    Raises
    ------
    Infeasible
        If nothing fits into the problem's own capacities and these are the reference.
    """
    study = Study.begun(problem, options, baselines)
    curve, deadline = study.curve, study.deadline
    own = [device.memory if reference == "file" else None for device in problem.devices]
    proven = _reference(study, own, reference, _REFERENCE * deadline.left)
    best, found = None, None
    while (value := _least_value(curve, own)) is not None and value != best:
        best, target = value, value + int(value * within)
        found = _smallest_cap(study, target)
    bound, wrong = tenable(best, proven)
    curve.contradictions += wrong
    standing = Standing(best, None if bound is None else bound.value, of="the best")
    scale, seconds = scale_of(problem), deadline.seconds
    return LeastMemory(curve, within, reference, standing, found, scale, seconds, about or {})


def _least_value(curve: Curve, capacities: Sequence[Cap]) -> int | None:
    """The best value by now: solves at caps may have found something better."""
    return min((k.value for k in curve.schedules if k.fits(capacities)), default=None)


def _reference(
    study: Study, own: Sequence[Cap], reference: Reference, seconds: float
) -> Bound | None:
    """Solve for the best value that the question refers to; return its bound."""
    curve = study.curve
    if reference == "unlimited":
        if not study.deadline.stop.is_set():
            study.work(None, seconds)
        return curve.bound(None)
    fitting = [known for known in curve.fitting(None) if known.fits(own)]
    result = study.decide(
        curve.problem, "own capacities", seconds, "all", fitting, curve.bound(None)
    )
    if result.status == "infeasible":
        raise Infeasible(result.explanation)
    return result.bound


def _smallest_cap(study: Study, target: int) -> Interval:
    """Narrow the interval round by round, each decision with more time than in the last."""
    curve, deadline = study.curve, study.deadline
    amounts = attainable(curve.problem, curve.meeting(target)[0].peak)
    amounts = amounts[bisect_left(amounts, least_feasible_cap(curve.problem)) :]
    seconds = _STEP * deadline.limit
    while True:
        found = study.narrow(amounts, target, seconds, deadline.limit)
        if found.proven or deadline.over:
            return found
        seconds *= _MORE_TIME
