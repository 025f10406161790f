"""What a trace says, in a few lines: measured and predicted, stalls, and what an order gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from pipesat.compare.result import Result
from pipesat.core.amounts import rounded_down
from pipesat.core.claims import at_most, percent, plural
from pipesat.core.folder import MORE, write_folder
from pipesat.core.grouping import grouped
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.measure.timeline.steps import WholeSteps
from pipesat.measure.timeline.trace_problem import COUNTED, Prediction
from pipesat.problem.ops import KINDS, Kind
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import problem_text
from pipesat.runtimes.timeline import Timeline
from pipesat.schedule.metrics import bubbles, peak_memory
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import schedule_bytes

_NOTHING: Final = 0.01
"""Of the step: what cannot be gained is nothing from here on."""


_SHORT, _LONG = 1e4, 1e6
"""Times in us: shorter ones are shown as ms with three digits, longer ones with none."""


def _digits(us: float) -> int:
    return 3 if us < _SHORT else int(us < _LONG)


def _ms(us: float) -> str:
    return f"{us / 1000:,.{_digits(us)}f} ms"


def _count(number: int, word: str) -> str:
    return f"{number} {plural(number, word)}"


def _sign(error: float) -> str:
    return percent(error, 1, sign=True)


@dataclass(frozen=True, repr=False)
class TraceAnswer(Displayed):
    """What a trace says.

    Attributes
    ----------
    steps
        What ran: the whole steps without warm-up.
    problem, schedule, timeline
        The problem of its typical step, the order that ran as predicted, and what was measured;
        ``timeline`` is ``None`` where the trace has no times.
    result
        The best order on these costs within the problem's memory, with its bound.
    more
        The best one with any memory, where nothing but the activations of the order that ran says
        how much there is.
    name
        The schedule that ran; ``None``: none of the hand-written ones.
    prediction
        Predicted against measured.
    given_delay
        The link delay that was given, in us; ``None``: the one that explains the rest is taken.
    number
        Which of the steps is the typical one.
    split
        The part of a whole backward that B is assumed to take; ``None``: whole ones stay whole.
    if_seen
        What ``result`` and ``more`` save if hops take the delay that was seen, where the fitted one
        is far above; else empty.
    """

    steps: WholeSteps
    problem: Problem
    schedule: Schedule
    timeline: Timeline | None
    result: Result
    more: Result | None
    name: str | None
    prediction: Prediction
    given_delay: float | None
    number: int
    split: float | None = None
    if_seen: tuple[float, ...] = ()
    answer_first = True

    @property
    def gain(self) -> float:
        """What the best order found saves, as a part of the one that ran."""
        return self._gain(self.result)

    @property
    def most(self) -> float | None:
        """What no order can save more of; ``None``: no bound is known."""
        return self._most(self.result)

    @property
    def _ran(self) -> int:
        return self.schedule.makespan or 1

    def _gain(self, result: Result) -> float:
        return 1 - (result.value or self._ran) / self._ran

    def _most(self, result: Result) -> float | None:
        return None if result.lower_bound is None else 1 - result.lower_bound / self._ran

    @property
    def waiting(self) -> str:
        """Which times are no costs, as they hold the wait for input; empty: none."""
        found = (
            f"{kind} of {plural(len(own), 'stage')} {', '.join(map(str, own))}"
            for kind, own in self.steps.waiting.items()
        )
        return " and ".join(found)

    @property
    def verdict(self) -> str:
        """Whether there is anything to gain, and whether such a prediction can tell."""
        if self.waiting:
            return f"cannot be told: no cost is known of {self.waiting}"
        most = None if self.more is None else self._most(self.more)
        if most is not None and most <= _NOTHING:
            return self._verdict(self.more or self.result, " with any memory")
        return self._verdict(self.result, self._within)

    @property
    def _within(self) -> str:
        return (
            self.problem.within_memory
            if self.more is None
            else " with no more activations on any rank"
        )

    def _verdict(self, result: Result, within: str = "") -> str:
        gain, most, err = self._gain(result), self._most(result), self.prediction.resolves
        kind = "order with whole backwards" if self.whole else "order"
        if most is not None and most <= _NOTHING:
            shorter = f"more than {at_most(most)} shorter" if most else "shorter"
            return f"nothing to gain{within}: no {kind} is {shorter} on these costs{self._at}"
        if gain <= 0:
            return (
                f"no shorter {kind} was found{within}, at most {at_most(most)} is "
                f"possible{self._at}"
            )
        if not self.steps.trace.measured:
            text = "nothing says how far to trust what was not measured"
        elif err is None:
            text = "but no error could be measured: every step went into the costs"
        else:
            above = "above" if gain > err else "not above"
            text = f"{above} the {at_most(err, 1)} by which predictions of other steps err here"
        return f"{percent(gain, 1)} shorter{within}, {text}{self._rests_on(result)}"

    @property
    def _at(self) -> str:
        """Which delay a limit holds at, where another one was seen."""
        far = "with the fitted link delay, more than twice the delay that was seen"
        return f". This holds {far}" * bool(self.if_seen)

    def _rests_on(self, result: Result) -> str:
        """What a gain is left with on the delay that was seen, and what it assumes."""
        text = ""
        if self.if_seen:
            gain = self.if_seen[result is self.more]
            left = f"{percent(gain, 1)} shorter" if gain > 0 else "no shorter"
            text = f". With the link delay that was seen, this order is {left}"
        return text + ". Parts of backwards are assumed" * (self.split is not None)

    @property
    def whole(self) -> list[int]:
        """Stages whose backwards are whole, as they ran."""
        return [n for n, stage in enumerate(self.problem.stages) if stage.backward == "fused"]

    def _backwards(self) -> str:
        """Whether B and W ran apart; what is assumed of them."""
        if self.split is not None:
            return (
                f"B takes {percent(self.split, 0)} of a whole one, W the rest, and both hold what "
                "the forward left: assumed, not measured"
            )
        ran = "whole" if len(self.whole) == len(self.problem.stages) else "whole on some stages"
        told = f"{ran}. Zero bubble was not tried: --split 0.5 assumes that B and W take half each"
        return told * bool(self.whole)

    @property
    def added(self) -> list[int]:
        """Activations that the best order with any memory holds more, by device."""
        if self.more is None or self.more.schedule is None:
            return []
        both = (peak_memory(self.more.problem, one) for one in (self.more.schedule, self.schedule))
        return [max(0, more - ran) for more, ran in zip(*both, strict=True)]

    def _best(self, result: Result, within: str = "") -> str:
        """Return a value and its bound, which is rounded down."""
        value = "none found" if result.value is None else _ms(result.value)
        if result.lower_bound is None:
            return f"{value}, no bound is known"
        proven = result.value == result.lower_bound
        digits = _digits(result.lower_bound)
        bound = float(rounded_down(result.lower_bound / 1000, digits))
        least = "" if proven else f" than {bound:,.{digits}f} ms"
        return f"{value}, none takes less{least}{within}"

    def _with_more(self) -> str:
        """What more memory than the order that ran had would give."""
        more = self.more
        if more is None or self.waiting:
            return ""
        if not self._saves_more:
            return f"no shorter order was found: {self._best(more)}"
        found, best = more.value or self._ran, self.result.value or self._ran
        if self._gain(more) - self.gain <= _NOTHING:
            return f"{self._best(more)}: {percent(1 - found / best)} less than the best order"
        needs = grouped((extra, str(device)) for device, extra in enumerate(self.added))
        places = [
            f"{extra} on {plural(len(on), 'rank')} {', '.join(on)}"
            for extra, on in sorted(needs.items())
            if extra
        ]
        return f"{self._best(more)}. {self._verdict(more)}. Activations added: {'; '.join(places)}"

    def _next(self) -> str:
        """What to do with the files."""
        told = ["best.json takes as long as the order that ran: there is nothing to export"]
        if self.gain > 0 or self.waiting:
            told = [f"best.json is the best order{self._within}: export it with problem.json"]
        told += [f"{MORE}/ has the order with more memory, and its problem"] * self._saves_more
        lost = "pipesat timeline compare problem.json timeline.json shows when ranks compute"
        return ". ".join([*told, *[lost] * (self.timeline is not None)])

    @property
    def _saves_more(self) -> bool:
        """Whether more memory gives a shorter order."""
        if self.more is None or self.waiting:
            return False
        return (self.more.value or self._ran) < (self.result.value or self._ran)

    def facts(self) -> Facts:
        """Return the answer."""
        found, p = self.steps, self.prediction
        name = self.name or "none of the hand-written ones"
        counted = self.problem.memory_unit == COUNTED
        unknown = [
            *["memory (activations are counted, --memory held=1GiB gives it)"] * counted,
            *["links (--link-delay)"] * (self.given_delay is None),
            *found.notes,
            *[f"receives: {self.waiting} may hold waiting, and no cost is measured"]
            * bool(self.waiting),
        ]
        chosen, slowest = found.steps[self.number].replica, p.slowest or 0
        replicas = f"{len(found.replicas)}, the slowest takes {slowest:.2f} times the mean"
        fitted = self.given_delay is None and p.delay
        took = f"{_ms(self._ran)} {'with the fitted link delay' if fitted else 'predicted'}"
        return [
            ("Trace", self._what()),
            *(self._measured() if found.trace.measured else []),
            ("Replicas", f"{replicas}. Costs are of replica {chosen}" if slowest else ""),
            ("Schedule", f"{name}, {took}"),
            ("Bubble", "" if self.waiting else self._bubbles()),
            ("Backwards", self._backwards()),
            ("Best order", "" if self.waiting else self._best(self.result, self._within)),
            ("Gain", self.verdict),
            ("More memory", self._with_more()),
            ("Not in the trace", "; ".join(unknown)),
            ("Next", self._next()),
        ]

    def _bubbles(self) -> str:
        """The bubble of the order that ran, and of the best one."""
        orders = (self.schedule, self.result.schedule or self.schedule)
        ran, best = (percent(bubbles(self.problem, order)[0]) for order in orders)
        return f"{ran} of the makespan, {best} in the best order"

    def _what(self) -> str:
        found = self.steps
        kept = len({step.iteration for step in found.steps})
        ratios = ", ".join(f"{ratio:.1f}" for ratio in found.warm_ups.values())
        parts = [
            f"{found.trace.name}: {_count(len(found.homes), 'stage')} on {found.devices} ranks",
            found.placement,
            f"{found.microbatches} microbatches",
            *[f"{_count(kept, 'step')}"] * found.trace.measured,
            *[f"without {len(found.warm_ups)} of warm-up ({ratios} times as long)"] * bool(ratios),
            *[f"{found.partial} incomplete left out"] * bool(found.partial),
        ]
        return ", ".join(parts)

    def _measured(self) -> Facts:
        """What a trace with times says of them."""
        p, times = self.prediction, self.prediction.measured
        by_class = size = ""
        if p.classes is not None:
            classes = f"{p.classes.count} classes"
            size = f"they differ: {classes}, fitted on the one step, and judged by none"
        if p.classes is not None and p.by_class is not None:
            by_class = f"{_sign(p.by_class.median)} from {classes} of microbatches, "
            size = f"they differ: {classes}, fitted on half of the steps and judged by the others"
        seen = ". Clocks of ranks differ, so that no delay was seen"
        seen *= all(step.shifted for step in self.steps.steps)
        if p.seen_delay is not None:
            seen = f". Ops that waited came {_ms(p.seen_delay)} after their input"
        if p.seen_alone is not None:
            seen += f", so {_ms(p.delay - p.seen_alone)} of it were not seen"
        fitted = f"{_ms(p.delay)} a hop explains the rest" if p.delay else "none needed"
        given = self.given_delay
        return [
            (
                "Measured step",
                f"{_ms(median(times))}, median of {len(times)}, {_ms(min(times))} to "
                f"{_ms(max(times))}",
            ),
            (
                "Predicted",
                f"{_sign(p.medians.median)} from medians by stage of the same steps, {by_class}"
                f"{_sign(p.own.median)} from the ops' own times, without link delay",
            ),
            ("Microbatches", size),
            (
                "Link delay",
                fitted + seen if given is None else f"{_ms(given)} a hop, as given",
            ),
            ("Stalls", self._stalls()),
        ]

    def _stalls(self) -> str:
        stalls, lost = self.prediction.stalls, self.prediction.lost
        if not stalls:
            return "none"
        longest = max(stalls, key=lambda stall: stall.excess)
        hurt = [us for us in lost.values() if us > _NOTHING * median(self.prediction.measured)]
        return (
            f"{_count(len(stalls), 'op')} in {_count(len(lost), 'step')}, the longest {longest.op} "
            f"of step {longest.iteration} by {_ms(longest.excess)}. "
            f"They lengthened {_count(len(hurt), 'step')}"
            + (f", up to {_ms(max(hurt))}" if hurt else "")
        )

    def details(self) -> Facts:
        """Return every stall."""
        lost = self.prediction.lost
        return [
            (
                f"Stall of {s.op}",
                f"{_ms(s.excess)} in step {s.iteration} of replica {s.replica}, "
                f"which lost {_ms(lost[s.replica, s.iteration])}",
            )
            for s in self.prediction.stalls[:50]
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per stage: its rank, costs in us and noise of the kinds that ran.

        A cost is ``None`` if the times of its ops hold the wait for input.
        """
        noise, waits = self.prediction.noise, self.steps.waiting
        rows: list[dict[str, Any]] = []
        for number, stage in enumerate(self.problem.stages):
            ran: list[Kind] = [kind for kind in KINDS if (number, kind) in noise]
            known = {kind: number not in waits.get(kind, ()) for kind in ran}
            rows.append(
                {"stage": number, "rank": stage.device}
                | {kind: getattr(stage, kind) if known[kind] else None for kind in ran}
                | {f"noise of {k}": noise[number, k] if known[k] else None for k in ran}
            )
        return rows

    def tables(self) -> Iterator[Table]:
        """Yield costs and noise by stage."""
        rows = self.records()
        kinds = [kind for kind in KINDS if any(kind in row for row in rows)]
        keys = [name for kind in kinds for name in (kind, f"noise of {kind}")]
        shown = [
            {"stage": row["stage"], "rank": row["rank"]}
            | {key.replace(" ", "_"): row.get(key) for key in keys}
            for row in rows
        ]
        yield table_of(shown, units=dict.fromkeys(kinds, "us"))

    def document(self) -> dict[str, Any]:
        """Return everything for ``--json``, times in us; what is unknown is null."""
        found, p, timed = self.steps, self.prediction, self.steps.trace.measured
        errors = {
            name: None if error is None or not timed else error._asdict()
            for name, error in {
                "medians": p.medians,
                "own_times": p.own,
                "classes": p.by_class,
            }.items()
        }
        return {
            "format": found.trace.name,
            "devices": found.devices,
            "stages": len(found.homes),
            "placement": found.placement,
            "microbatches": found.microbatches,
            "steps": len({step.iteration for step in found.steps}),
            "warm_ups": {str(number): ratio for number, ratio in found.warm_ups.items()},
            "incomplete_steps": found.partial,
            "replicas": len(found.replicas),
            "replica": found.steps[self.number].replica,
            "slowest_over_mean": p.slowest,
            "measured": median(p.measured) if timed else None,
            "shortest": min(p.measured) if timed else None,
            "longest": max(p.measured) if timed else None,
            "predicted": self._ran,
            "errors": errors,
            "classes": None if p.classes is None else p.classes.count,
            "link_delay": p.delay if timed else None,
            "link_delay_seen": p.seen_delay,
            "split": self.split,
            "whole_backwards": self.whole,
            "resolution": p.resolves if timed else None,
            "stalls": [
                {"op": str(s.op), "step": s.iteration, "replica": s.replica, "excess": s.excess}
                for s in p.stalls
            ],
            "lost_to_stalls": [
                {"step": step, "replica": replica, "lost": us}
                for (replica, step), us in p.lost.items()
            ],
            "by_stage": self.records(),
            "schedule": self.name,
            **self._claims(self.result),
            "verdict": self.verdict,
            "with_more_memory": None
            if self.more is None
            else self._claims(self.more) | {"added": self.added},
            "waiting_inside": {kind: [*own] for kind, own in found.waiting.items()},
            "notes": list(found.notes),
        }

    def _claims(self, result: Result) -> dict[str, Any]:
        """Return what is claimed of an order; nothing if some cost is not known."""
        claims = {
            "best": result.value,
            "lower_bound": result.lower_bound,
            "lower_bound_source": result.lower_bound_source,
            "status": result.status,
            "gain": self._gain(result),
            "gain_at_most": self._most(result),
            "gain_with_delay_seen": self.if_seen[result is self.more] if self.if_seen else None,
        }
        return dict.fromkeys(claims) if self.waiting else claims

    def save(self, folder: str | Path) -> None:
        """Write ``problem.json``, ``schedule.json``, ``best.json`` and ``timeline.json``.

        An order that is shorter with more memory lies in ``more-memory``, with its problem.
        """
        files = {
            "problem.json": problem_text(self.problem.document).encode(),
            "schedule.json": schedule_bytes(self.problem, self.schedule),
        }
        if self.result.schedule is not None:
            files["best.json"] = schedule_bytes(self.problem, self.result.schedule)
        if self.more is not None and self.more.schedule is not None and self._saves_more:
            free = self.more.problem
            files[f"{MORE}/problem.json"] = problem_text(free.document).encode()
            files[f"{MORE}/best.json"] = schedule_bytes(free, self.more.schedule)
        if self.timeline is not None:
            files["timeline.json"] = self.timeline.file()
        write_folder(Path(folder), files)
