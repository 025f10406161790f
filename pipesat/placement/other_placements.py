"""The layers of a chain in other placements, so that placements can be compared on equal terms.

Equal are the layers, the devices and their memory, the link delays and the microbatches. A loop and
a V need every stage cut in two, and only between layers: a problem does not say where these are, so
whoever asks says of how many equal layers every stage is made. Of an odd number one part has a
layer more, the first or the second, so that devices share them evenly. A part takes its layers'
share of every amount (where that is no whole number, the first part takes what is over), and of the
static memory. A hop between neighbours takes their link's delay, whichever way it goes; the hop
from the last device to the first takes the slowest link's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.plain_problems import require_plain
from pipesat.core.problem import Link, Problem
from pipesat.core.stage import COSTS
from pipesat.files.problem_file import parse_problem
from pipesat.placement.documents import TEXTS, Document, problem_document
from pipesat.placement.geometry import PLACEMENTS, Geometry, Placement


def same_layers_elsewhere(
    problem: Problem, layers: Sequence[int] = (), wanted: Collection[Placement] = PLACEMENTS
) -> dict[str, Problem]:
    """Return the problem itself, ``chain``, and its ``loop v=2``, ``vee`` and ``bidirectional``.

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
        If a loop or a V is wanted, and nobody says that stages divide, or they do not.
    """
    require_plain(problem, "placing the same layers elsewhere")
    if not problem.one_stage_per_device:
        raise NotApplicable("other placements are made from one stage per device on one route")
    if problem.overlap is not None and problem.overlap.listed:
        raise NotApplicable(
            "`overlap.pairs` is of this placement's stages. Other placements would need pairs of "
            "their own"
        )
    p, m = len(problem.devices), problem.routes[0].microbatches
    chain = [problem.stages[number] for number in problem.routes[0].stages]
    whole = [
        {key: getattr(stage, key) for key in (*COSTS, "backward")}
        | {"static": problem.devices[stage.device].static}
        for stage in chain
    ]
    found: dict[str, Problem] = {}
    for geometry in (Geometry(name, p) for name in PLACEMENTS if name in wanted):
        if geometry.name == "chain":
            found[geometry.label] = problem
        elif p > 1 and len(geometry.routes) == 1:
            counts = _counts(layers, p)
            firsts = _firsts(counts, [s.F + s.B + s.W for s in chain], geometry.homes)
            found[geometry.label] = _placed(problem, geometry, _parts(whole, firsts, counts))
        elif p > 1 and m > 1:
            found[geometry.label] = _placed(problem, geometry, whole * 2)
    return found


def _counts(layers: Sequence[int], stages: int) -> list[int]:
    """Layers of every stage, at least two each."""
    if not layers:
        raise BadInput(
            "a loop and a V cut every stage in two, and a problem does not say that its stages "
            "divide. State how many equal layers each has (layers), or give the costs of "
            "real layers to `pipesat plan LAYERS --placement any`",
            where="placements",
        )
    counts = [*layers] * stages if len(layers) == 1 else [*layers]
    if len(counts) != stages:
        raise BadInput(
            f"{len(counts)} numbers, expected {stages}, one per stage, or one for all",
            where="layers_per_stage",
        )
    for stage, count in enumerate(counts):
        if count < 2:
            raise BadInput(
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


def _parts(
    wholes: Sequence[Document], firsts: Sequence[int], counts: Sequence[int]
) -> list[Document]:
    """Two parts of every stage, in layer order: each takes its layers' share of every amount."""
    found = []
    for whole, first, count in zip(wholes, firsts, counts, strict=True):
        begin = {k: -(-v * first // count) for k, v in whole.items() if isinstance(v, int)}
        rest = {key: whole[key] - amount for key, amount in begin.items()}
        found += [whole | begin, whole | rest]
    return found


def _placed(problem: Problem, geometry: Geometry, stages: Sequence[Document]) -> Problem:
    """The problem of stages in a placement, each with its part of the static memory."""
    ranks = [problem.stages[number].device for number in problem.routes[0].stages]
    devices = []
    for number, device in enumerate(problem.devices):
        own = geometry.stages_on[ranks.index(number)]
        static = sum(stages[stage]["static"] for stage in own)
        devices.append({"name": device.name, "memory": device.memory, "static": static})
    label = geometry.label
    texts = {key: getattr(problem, key) for key in TEXTS}
    texts["name"] = f"{problem.name}, {label}" if problem.name else label
    document = problem_document(
        geometry,
        problem.routes[0].microbatches,
        devices=devices,
        stages=[{key: stage[key] for key in (*COSTS, "backward")} for stage in stages],
        comm={"edges": [*_edges(problem, geometry)]},
        overlap=problem.document.get("overlap"),
        **texts,
    )
    for stage in document["stages"]:
        stage["device"] = ranks[stage["device"]]
    return parse_problem(document)


def _edges(problem: Problem, geometry: Geometry) -> Iterator[Document]:
    """Links between consecutive stages of every route."""
    links = [problem.links[hop] for hop in pairwise(problem.routes[0].stages)]
    slowest = Link(max(link.F for link in links), max(link.B for link in links))
    for route in geometry.routes:
        for src, dst in pairwise(route):
            a, b = geometry.homes[src], geometry.homes[dst]
            if a != b:
                link = links[min(a, b)] if abs(a - b) == 1 else slowest
                yield {"src": src, "dst": dst, "F": link.F, "B": link.B}
