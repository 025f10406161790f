"""The layers of a chain in other placements, so that placements can be compared on equal terms.

Equal are the layers, the devices and their memory, the link delays and the microbatches. A loop and
a V need every stage cut in two, and only between layers: a problem does not say where these are, so
the caller says of how many equal layers every stage is made. Of an odd number one part has a
layer more, the first or the second, so that devices share them evenly. A part takes its layers'
share of every amount (where that is no whole number, the first part takes what is over), and of the
static memory. A hop between neighbours takes their link's delay, whichever way it goes; the hop
from the last device to the first takes the slowest link's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, pairwise
from typing import NamedTuple

from pipesat.core.errors import NotApplicable, require, require_applicable
from pipesat.core.settings import Placement
from pipesat.problem.geometry import PLACEMENTS, Geometry, shared
from pipesat.problem.plain_problems import what_differs
from pipesat.problem.problem import Link, Problem, Route, Stage, links_between
from pipesat.problem.problem_checks import changed
from pipesat.problem.stage import COSTS


def same_layers_elsewhere(
    problem: Problem, layers: Sequence[int] = (), wanted: Collection[Placement] = PLACEMENTS
) -> dict[str, Problem]:
    """Return the problem itself, ``chain``, and its ``loop of 2``, ``vee`` and ``bidirectional``.

    A bidirectional pipeline has two replicas of every layer: devices hold the static memory of both
    of their stages, and each direction gets half of the microbatches. It needs two of these, and
    all other placements need two devices.

    Parameters
    ----------
    layers
        Of how many equal layers every stage is made, along the route; one number stands for all.
        The problem does not know: it is the caller's statement, and a loop or a V needs it.
    wanted
        Which of the placements.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route, and if the problem lists pairs.
    BadInput
        If a loop or a V is wanted, and no one says that stages divide, or they do not.
    """
    if differs := what_differs(problem):
        raise NotApplicable(
            f"placing the same layers elsewhere cannot take {differs} into account yet"
        )
    require_applicable(
        problem.one_stage_per_device,
        "other placements are made from one stage per device on one route",
    )
    require_applicable(
        problem.overlap is None or not problem.overlap.listed,
        "`overlap.pairs` is of this placement's stages. Other placements would need pairs of "
        "their own",
    )
    p, m = len(problem.devices), problem.routes[0].microbatches
    stages = [problem.stages[number] for number in problem.routes[0].stages]
    whole = [_Part(stage, problem.devices[stage.device].static) for stage in stages]
    found: dict[str, Problem] = {}
    for geometry in (Geometry(name, p) for name in PLACEMENTS if name in wanted):
        if geometry.name == "chain":
            found[geometry.label] = problem
        elif p > 1 and len(geometry.routes) == 1:
            counts = _counts(layers, p)
            firsts = _firsts(counts, [s.F + s.B + s.W for s in stages], geometry.homes)
            parts = map(_Part.cut, whole, firsts, counts)
            found[geometry.label] = _placed(problem, geometry, [*chain.from_iterable(parts)])
        elif p > 1 and m > 1:
            found[geometry.label] = _placed(problem, geometry, whole * 2)
    return found


def _counts(layers: Sequence[int], stages: int) -> list[int]:
    """Layers of every stage, at least two each."""
    require(
        layers,
        "a loop and a V cut every stage in two, and a problem does not say that its stages "
        "divide. State how many equal layers each has (layers), or give the costs of "
        "real layers to `pipesat plan LAYERS --placement any`",
        where="placements",
    )
    counts = [*layers] * stages if len(layers) == 1 else [*layers]
    require(
        len(counts) == stages,
        f"{len(counts)} numbers, expected {stages}, one per stage, or one for all",
        where="layers_per_stage",
    )
    for stage, count in enumerate(counts):
        require(
            count >= 2,
            f"stage {stage} of the route cannot be cut in two: expected at least 2 layers. "
            "`pipesat plan LAYERS --placement any` cuts real layers wherever that is best",
            where="layers_per_stage",
            value=count,
        )
    return counts


def _firsts(counts: Sequence[int], loads: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """How many layers the first part of every stage has: half, of an odd number one more or less.

    Which part has the layer more is changed while that evens out the devices.
    """
    firsts = [-(-count // 2) for count in counts]
    share = [Fraction(load, count) for load, count in zip(loads, counts, strict=True)]
    taken = [Fraction(0)] * len(counts)
    for stage, (first, count) in enumerate(zip(firsts, counts, strict=True)):
        taken[ranks[2 * stage]] += first * share[stage]
        taken[ranks[2 * stage + 1]] += (count - first) * share[stage]
    moved = True
    while moved:
        moved = False
        for stage, count in enumerate(counts):
            one, other = ranks[2 * stage], ranks[2 * stage + 1]
            step = share[stage] * (2 * firsts[stage] - count)  # 0 of an even count
            # the sum of squares falls if and only if the difference shrinks
            if one != other and step * (taken[one] - taken[other] - step) > 0:
                firsts[stage] = count - firsts[stage]
                taken[one] -= step
                taken[other] += step
                moved = True
    return firsts


class _Part(NamedTuple):
    """A stage, or one of two parts of it, and its static memory."""

    stage: Stage
    static: int

    def cut(self, first: int, count: int) -> tuple[_Part, _Part]:
        """Two parts, in layer order: each takes its layers' share of every amount."""
        amounts = {key: getattr(self.stage, key) for key in COSTS}
        begin = {key: -(-value * first // count) for key, value in amounts.items()}
        rest = {key: value - begin[key] for key, value in amounts.items()}
        static = -(-self.static * first // count)
        one, other = (replace(self.stage, sums=False, **own) for own in (begin, rest))
        return self._replace(stage=one, static=static), self._replace(
            stage=other, static=self.static - static
        )


def _placed(problem: Problem, geometry: Geometry, parts: Sequence[_Part]) -> Problem:
    """The problem of stages in a placement, each with its part of the static memory."""
    ranks = [problem.stages[number].device for number in problem.routes[0].stages]
    devices = []
    for number, device in enumerate(problem.devices):
        own = geometry.stages_on[ranks.index(number)]
        devices.append(replace(device, static=sum(parts[stage].static for stage in own)))
    homes = (ranks[home] for home in geometry.homes)
    stages = zip(parts, homes, strict=True)
    shares = shared(problem.routes[0].microbatches, len(geometry.routes))
    routes = zip(geometry.routes, shares, strict=True)
    return changed(
        problem,
        devices=tuple(devices),
        stages=tuple(replace(part.stage, device=home) for part, home in stages),
        routes=tuple(Route((*route,), microbatches) for route, microbatches in routes),
        links=_links(problem, geometry),
        name=f"{problem.name}, {geometry.label}" if problem.name else geometry.label,
    )


def _links(problem: Problem, geometry: Geometry) -> dict[tuple[int, int], Link]:
    """Links between consecutive stages of every route."""
    links = [problem.links[hop] for hop in pairwise(problem.routes[0].stages)]
    slowest = Link(max(link.F for link in links), max(link.B for link in links))

    def link(src: int, dst: int) -> Link:
        a, b = geometry.homes[src], geometry.homes[dst]
        return links[min(a, b)] if abs(a - b) == 1 else slowest

    return links_between(geometry.homes, geometry.routes, link)


def stated_layers(
    layers: int | Sequence[int] | None, placements: object, target: str | None
) -> list[int]:
    """Return the layers of each stage as they are stated; empty if they are not.

    Raises
    ------
    BadInput
        If they are stated without placements, or placements with a target.
    """
    stated = [layers] if isinstance(layers, int) else [*(layers or ())]
    require(
        placements or not stated,
        "says how `placements` may cut the stages, which is not given",
        where="layers_per_stage",
        value=",".join(map(str, stated)),
    )
    require(
        not placements or target is None,
        "expected `placements` or `target`, not both: not every placement runs there",
        where="target",
        value=target,
    )
    return stated
