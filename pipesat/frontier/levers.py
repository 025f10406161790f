"""What memory buys depends on what a schedule may do to save it: a curve for each lever.

A lever is a choice of memory modes that microbatches may run in, besides keep: none of them, each
on its own, all. A schedule of fewer modes is one of more, so later curves are never worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipesat.core.amounts import rounded_up
from pipesat.core.claims import Standing, against, require_best
from pipesat.core.errors import BadInput
from pipesat.core.ops import Item, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed
from pipesat.core.stage import KEEP
from pipesat.files.folder import changed_problem
from pipesat.frontier.caps import least_feasible_cap, scale_of
from pipesat.frontier.curve import Curve
from pipesat.frontier.trace import Frontier


class Lever(str):
    """Name of a curve: the modes that are allowed besides keep, or ``keep``."""

    __slots__ = ()


def with_levers(problem: Problem) -> dict[str | None, Problem]:
    """Return the problem once per lever: keep alone, each mode by name, all modes.

    Raises
    ------
    BadInput
        If it has no modes.
    """
    names = list(dict.fromkeys(mode.name for stage in problem.stages for mode in stage.modes))
    if not names:
        text = "the problem has no memory modes; pipesat profile --measure modes measures them"
        raise BadInput(text, where="by_mode")
    choices = [(), *((name,) for name in names)] + ([tuple(names)] if len(names) > 1 else [])
    return {Lever(" or ".join(kept) or KEEP): _allowing(problem, kept) for kept in choices}


def _allowing(problem: Problem, names: tuple[str, ...]) -> Problem:
    modes = [
        [mode for mode in entry.get("modes", ()) if mode["name"] in names]
        for entry in problem.document["stages"]
    ]
    return changed_problem(
        problem,
        stages=[{"modes": own or None} for own in modes],
        mode_choice=problem.document.get("mode_choice") if names else None,
    )


def taken_over(curve: Curve, problem: Problem) -> Iterator[Schedule]:
    """Yield a curve's schedules whose modes another problem of the same stages has, too."""
    for known in curve.schedules:
        try:
            yield _renumbered(known.schedule, curve.problem, problem)
        except ValueError:  # it has no mode of that name
            continue


def _renumbered(schedule: Schedule, old: Problem, new: Problem) -> Schedule:
    def op_of(op: Op) -> Op:
        if not op.mode:
            return op
        names = [mode.name for mode in new.stages[op.stage].modes]
        return op._replace(mode=1 + names.index(old.stages[op.stage].modes[op.mode - 1].name))

    def item_of(item: Item) -> Item:
        return Pair(*map(op_of, item)) if isinstance(item, Pair) else op_of(item)

    rows = tuple(
        tuple(Timed(item_of(timed.item), timed.start, timed.end) for timed in row)  # type: ignore[arg-type]
        for row in schedule.devices
    )
    return Schedule(rows, schedule.source, schedule.copies)


_SHARES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))  # of 1F1B's activations
_WAITING = f"waiting ({KEEP})"


@dataclass(frozen=True)
class Compared:
    """What is proven of each lever's best value at one capacity.

    ``own`` if it is the capacity that the problem itself gives to every device.
    """

    cap: int
    share: float | None
    own: bool
    standings: Mapping[str, Standing]

    @property
    def best(self) -> str | None:
        """The lever of the least value; of several, the one of fewest modes."""
        known = {name: s.value for name, s in self.standings.items() if s.value is not None}
        return min(known, key=lambda name: known[name], default=None)

    def document(self) -> dict[str, Any]:
        """Return it as an entry of ``frontier.json``."""
        levers = {
            name: {
                "status": standing.status,
                "value": standing.value,
                "lower_bound": standing.bound,
                "gap": standing.gap,
            }
            for name, standing in self.standings.items()
        }
        return {
            "cap": self.cap,
            "share_of_1f1b": self.share,
            "best": self.best,
            "levers": levers,
        }


def caps_to_compare(problem: Problem) -> list[int]:
    """Return the problem's own capacity, if one for all, and 1/4, 1/2, 3/4 of 1F1B's memory."""
    scale, own = scale_of(problem), own_cap(problem)
    caps = set() if own is None else {own}
    if scale is not None:
        caps |= {scale.cap(share) for share in _SHARES}
    least = least_feasible_cap(problem)
    return sorted(cap for cap in caps if cap >= least)


def own_cap(problem: Problem) -> int | None:
    """The capacity that every device has in the problem; ``None`` if they differ or have none."""
    caps = {device.memory for device in problem.devices}
    return caps.pop() if len(caps) == 1 else None


def compared(curves: Mapping[str | None, Frontier], caps: Sequence[int]) -> list[Compared]:
    """Return what each lever's curve says at some capacities.

    Raises
    ------
    Contradiction
        If all modes together are worse than some of them.
    """
    levers = {name: frontier for name, frontier in curves.items() if isinstance(name, Lever)}
    if not levers:
        return []
    largest = list(levers.values())[-1]
    own, scale = own_cap(largest.curve.problem), largest.scale
    found = []
    for cap in caps:
        standings = {str(name): _standing(frontier, cap) for name, frontier in levers.items()}
        *fewer, (most, all_modes) = standings.items()
        if " or " in most:
            require_best(most, all_modes.value, [(name, s.value) for name, s in fewer])
        share = None if scale is None else scale.share(cap)
        found.append(Compared(cap, share, cap == own, standings))
    return found


def _standing(frontier: Frontier, cap: int) -> Standing:
    if cap < least_feasible_cap(frontier.curve.problem):
        return Standing(None, None, infeasible=True, of=f"cap {cap}")
    return frontier.curve.standing(cap)


def answers(
    curves: Mapping[str | None, Frontier], rows: Sequence[Compared]
) -> Iterator[tuple[str, str]]:
    """Say what the levers buy where it matters most, and from where on memory does not matter."""
    if rows:
        yield "Take", _at(_focus(rows))
    known = {
        name: (best, frontier)
        for name, frontier in curves.items()
        if isinstance(name, Lever) and (best := frontier.curve.best(None)) is not None
    }
    if not known:
        return
    least = min(best.value for best, _ in known.values())
    ends = []
    for name, (best, frontier) in known.items():
        if best.value == least:
            scale = frontier.scale
            share = "" if scale is None else f" ({rounded_up(scale.share(best.peak), 3)} x 1F1B)"
            ends.append(f"{name} from {best.peak}{share} on")
    verdict = list(known.values())[-1][1].curve.standing(None).verdict
    yield (
        "Ample",
        f"with ample memory: {least} ({verdict}), reached by {', by '.join(ends)}. These are the "
        "least capacities found, smaller ones may do",
    )


def _focus(rows: Sequence[Compared]) -> Compared:
    """The problem's own capacity, or what is nearest to half of 1F1B's memory, or the first."""
    return min(rows, key=lambda row: (not row.own, abs((row.share or 0) - 0.5), row.cap))


def _at(row: Compared) -> str:
    where = f"at {row.cap}" + ("" if row.share is None else f" ({rounded_up(row.share, 3)} x 1F1B)")
    name = row.best
    if name is None:
        return f"{where}: no schedule found"
    said = {lever: _said(standing) for lever, standing in row.standings.items()}
    keep, best = row.standings.get(KEEP), row.standings[name]
    if keep is None or best.value is None:
        text = f"{where}: {name} {said[name]}"
    elif name == KEEP:
        text = f"{where}: {_WAITING} {said[name]}. No mode was found to be shorter"
    elif keep.value is None:
        text = f"{where}: {name} {said[name]}. {_WAITING}: {keep.verdict}"
    else:
        shorter = against(best.value, keep.value, _WAITING)
        text = f"{where}: {name} {said[name]}, {shorter}, {said[KEEP]}"
    others = [f"{lever} {said[lever]}" for lever in said if lever not in (name, KEEP)]
    return f"{text}. Others: {', '.join(others)}" if others else text


def _said(standing: Standing) -> str:
    if standing.value is None:
        return standing.verdict
    return f"{standing.value} ({standing.verdict})"
