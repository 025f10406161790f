"""What a problem states and perhaps does not mean: remarks on it, and the warning that has them."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import Final

from pipesat.core.amounts import exact_text
from pipesat.core.claims import percent
from pipesat.core.errors import ProblemWarning
from pipesat.problem.ops import OpKind
from pipesat.problem.problem import Problem, Route
from pipesat.problem.remarks import (
    Found,
    Remark,
    of_amounts,
    of_limit,
    of_variant,
    remarks_at,
    text_of,
)
from pipesat.problem.stage import AMOUNTS, HELD, Mode, Stage, resulting_amounts

_ROUNDED: Final = Fraction(101, 100)


def warned(problem: Problem) -> Problem:
    """Return a problem that a user has read or made; warn of its remarks at that line of theirs."""
    if problem.remarks:
        level, frame = 1, sys._getframe()
        while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "pipesat":
            level, frame = level + 1, frame.f_back
        warnings.warn(ProblemWarning(f"remark: {text_of(problem.remarks)}"), stacklevel=level)
    return problem


def remarks_of(problem: Problem) -> tuple[Remark, ...]:
    """Return what a problem states and perhaps does not mean, stage by stage."""
    found: list[Remark] = [*_of_devices(problem)]
    units = problem.time_unit, problem.memory_unit
    for number, stage in enumerate(problem.stages):
        path = f"stages[{number}]"
        own = _stated(stage)
        if stage.may_ever_split:
            own -= {"held_after_B"}  # some mode holds it
        found += remarks_at(number, path, of_amounts(stage, own, units))
        for place, mode in enumerate(stage.modes):
            here = f"{path}.modes[{place}]"
            amounts = resulting_amounts(stage, mode, None, number)
            kinds = [*_of_mode(stage, mode, amounts, problem.memory_unit)]
            kinds += of_amounts(amounts, {key for key, _ in mode.stated}, units)
            found += remarks_at(number, here, kinds, within=f"mode {mode.name}")
    for route, given in enumerate(problem.routes):
        found += _of_classes(problem, route, given)
        found += _of_rounding(problem, route, given)
        found += _without_backward(problem, given)
    return (*found, *_of_pairs(problem))


def _stated(stage: Stage) -> set[str]:
    return {*AMOUNTS} - ({"BW"} if stage.sums else set())


def _of_mode(stage: Stage, mode: Mode, amounts: Stage, unit: str) -> Iterator[Found]:
    if mode.offload is None:
        for fact, means in of_variant(stage, amounts, "this mode"):
            yield "name", mode.name, fact, "", means
    elif mode.offload.held == stage.held_after_F > 0:
        held = mode.offload.held
        fact = "offload.held is all of held_after_F"
        yield "offload.held", held, fact, exact_text(held, unit), "The copies free nothing"


def _of_classes(problem: Problem, route: int, given: Route) -> Iterator[Remark]:
    """Yield remarks on amounts that a class states of single stages."""
    if not any(of_class.outright for of_class in given.definitions):
        return
    places, units = problem.places_of(route), (problem.time_unit, problem.memory_unit)
    for of_class in given.definitions:
        for number, stated in of_class.outright:
            amounts = resulting_amounts(problem.stages[number], None, of_class, number)
            here = f"{places[of_class.name]}.stages['{number}']"
            kinds = of_amounts(amounts, {key for key, _ in stated}, units)
            yield from remarks_at(number, here, kinds, within=f"class {of_class.name}")


def _of_rounding(problem: Problem, route: int, given: Route) -> Iterator[Remark]:
    """Yield a remark if rounding up makes work, or what is held, larger by a hundredth."""
    limited = ("held_after_F",) if problem.within_memory else ()
    for what, keys, by in (("times", ("F", "B", "W"), "time"), ("amounts held", limited, "held")):
        whole, exact = 0, Fraction(0)
        for number, count in Counter(given.classes or ()).items():
            of_class = given.definitions[number]
            for place in given.stages:
                stage = problem.stages[place]
                amounts = resulting_amounts(stage, None, of_class, place)
                if not any(place == own for own, _ in of_class.outright):
                    whole += count * sum(getattr(amounts, key) for key in keys)
                    exact += (
                        count
                        * sum(getattr(stage, key) for key in keys)
                        * Fraction(*getattr(of_class, by))
                    )
        if whole > exact * _ROUNDED:
            yield Remark(
                f"routes[{route}].microbatches" if "routes" in problem.document else "microbatches",
                None,
                f"scaled {what} are rounded up to whole units",
                f"all become {percent(whole / exact - 1)} larger",
                f"State {what} in a smaller unit, 1000 times as many of it for example",
                "route",
                route if len(problem.routes) > 1 else None,
            )


def _without_backward(problem: Problem, route: Route) -> Iterator[Remark]:
    """Yield the first stages of a route whose backwards take no time: they are frozen, or all."""
    for number in route.stages if len(route.stages) > 1 else ():
        if not problem.stages[number].has_backward:
            continue
        if _ever(problem, number, ("B", "W", "BW")) or not _ever(problem, number, "F"):
            return
        yield Remark(
            f"stages[{number}].B",
            0,
            "B, W and BW are 0, and such a backward still runs",
            "",
            "It waits for the next stage's backward. Span, delays and held_after_F last until then."
            " If it has no backward, state backward as none",
            number=number,
        )


def _ever(problem: Problem, number: int, keys: Collection[str]) -> bool:
    """Whether a stage has more than 0 of some amount, in any class or mode."""
    stage, route = problem.stages[number], problem.route(number)
    stated = [*(mode.stated for mode in stage.modes)]
    stated += [dict(one.outright).get(number, ()) for one in route.definitions]
    return any(getattr(stage, key) for key in keys) or any(
        amount for one in stated for key, amount in one if key in keys
    )


def _of_devices(problem: Problem) -> Iterator[Remark]:
    for number, stages in enumerate(problem.stages_on):
        if not stages:
            yield Remark(
                f"devices[{number}]",
                None,
                "no stage lies there",
                "",
                "It idles all the time, which the bubble counts",
                "device",
                number,
            )
    if any(_ever(problem, stage, HELD) for stage in range(len(problem.stages))):
        return
    for number, device in enumerate(problem.devices):
        if device.memory is not None:
            yield of_limit(f"devices[{number}].memory", device.memory, problem.memory_unit)
            return


def _of_pairs(problem: Problem) -> Iterator[Remark]:
    """Yield a remark if no two ops save time as a pair."""
    overlap = problem.overlap
    if overlap is None:
        return

    def alone(kind: OpKind) -> int:
        return int(getattr(problem.stages[kind[0]], kind[1]))

    gains = overlap.factor is not None and overlap.factor[0] < overlap.factor[1]
    gains |= any(num < den for num, den in overlap.factors.values())
    gains |= any(time < alone(a) + alone(b) for (a, b), time in overlap.times.items())
    if not gains:
        factors = [*overlap.factors.values(), overlap.factor or (1, 1)]
        value = next(iter(overlap.times.values()), factors[0])
        yield Remark(
            "overlap.FB" if not overlap.listed else "overlap.pairs[0]",
            value if isinstance(value, int) else "{}/{}".format(*value),
            "no pair is shorter than its two ops in turn",
            "",
            "So pairs save no time. A factor below 1, or shorter times, let them",
            what="",
        )
