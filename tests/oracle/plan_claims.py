"""Random small cases of ``pipesat plan``, and every claim of its answer held against the oracle."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.oracle.plans import Case, Choice, Shape

PLACEMENTS = ("chain", "vee", "loop", "any")
RECOMPUTE = ("never", "always", "where-needed", "choose")
_STAGES = {"chain": 1, "vee": 2, "loop": 2, "any": 1}
_MOST_PROBLEMS = 40  # that one case is made of


def random_case(seed: int, placement: str, recompute: str) -> Case:
    """A case small enough for the oracle; the same one for the same seed."""
    while True:
        draw = random.Random(f"{seed} {placement} {recompute}")
        case = _drawn(draw, placement, recompute)
        if sum(1 for shape in case.shapes for _ in case.choices(shape)) <= _MOST_PROBLEMS:
            return case
        seed += 1_000_003


def _drawn(draw: random.Random, placement: str, recompute: str) -> Case:
    devices = draw.choice((1, 2, 2, 3)) if placement == "chain" else draw.choice((1, 2, 2, 2))
    least = _STAGES[placement] * devices
    count = draw.randint(least, max(least, 5 if placement == "chain" else 4 + draw.randint(0, 1)))
    microbatches = draw.randint(1, 3 if placement == "chain" else 2)
    layers = [_layer(draw, k, zero=draw.random() < 0.25) for k in range(count)]
    if recompute != "never" and not any("recompute" in layer for layer in layers):
        layers[0]["recompute"] = _again(draw, layers[0])
    _flags(draw, layers)
    document: dict[str, Any] = {"format": "pipesat.layers/1", "layers": layers}
    if draw.random() < 0.2:
        document["reserve"] = draw.randint(1, 3)
    case = Case(
        document,
        devices,
        microbatches,
        placement,
        recompute,
        objective=draw.choice(("makespan", "makespan", "span")),
        latency=draw.choice((0, 0, 1, 2)),
        bandwidth=draw.choice((None, None, Fraction(1), Fraction(1, 2))),
    )
    case.capacities = _capacities(draw, case)
    return case


def _layer(draw: random.Random, number: int, *, zero: bool) -> dict[str, Any]:
    least = 0 if zero else 1
    layer: dict[str, Any] = {"name": f"layer {number}"}
    layer |= {kind: draw.randint(least, 6 - 2 * (kind == "W")) for kind in ("F", "B", "W")}
    layer |= {"held_after_F": draw.randint(0, 4), "held_after_B": draw.randint(0, 3)}
    layer |= {"weights": draw.randint(0, 3), "output": draw.randint(0, 2)}
    if draw.random() < 0.1:
        layer |= dict.fromkeys("FBW", 0)
    elif draw.random() < 0.2:
        layer["BW"] = max(0, layer["B"] + layer["W"] + draw.choice((-2, -1, 1)))
    if draw.random() < 0.6:
        layer["recompute"] = _again(draw, layer)
    return layer


def _again(draw: random.Random, layer: dict[str, Any]) -> dict[str, Any]:
    """Usually longer and smaller; sometimes whatever a file may say."""
    if draw.random() < 0.2:
        return {kind: draw.randint(0, 5) for kind in ("F", "B", "W", "held_after_F")}
    held = draw.randint(0, layer["held_after_F"])
    return {
        "F": layer["F"],
        "B": layer["B"] + draw.randint(0, 3),
        "W": layer["W"],
        "held_after_F": held,
        "held_after_B": min(held, layer["held_after_B"]),
    }


def _flags(draw: random.Random, layers: list[dict[str, Any]]) -> None:
    for layer in layers:
        layer["fused"] = draw.random() < 0.15
    if len(layers) > 2:
        layers[0]["first"] = draw.random() < 0.2
        layers[-1]["last"] = draw.random() < 0.2
        layers[draw.randrange(len(layers) - 1)]["with_next"] = draw.random() < 0.15
        if draw.random() < 0.25:
            one, other = draw.sample(range(len(layers)), 2)
            layers[one] |= {"tied_to": layers[other]["name"], "weights": 2, "tied_weights": 1}
            layers[one]["tie"] = draw.choice(("copies", "same_device"))
            layers[other]["weights"] = max(1, layers[other]["weights"])


def _capacities(draw: random.Random, case: Case) -> list[int | None]:
    """Around what some partition needs for some microbatches in flight, or no limit."""
    if draw.random() < 0.25:
        return [None] * case.devices
    held = sum(layer["held_after_F"] + layer["weights"] for layer in case.layers)
    least = max(1, -(-held // case.devices))
    low, high = max(1, least - 2), least + held // 2 + 3
    if draw.random() < 0.3:
        return [draw.choice((None, draw.randint(low, high))) for _ in range(case.devices)]
    return [draw.randint(low, high)] * case.devices


# The command


def arguments(case: Case, path: Path, split: list[int] | None) -> list[str]:
    """The case as a command line."""
    words = f"plan {path} --devices {case.devices} --microbatches {case.microbatches} --json "
    words += f"--placement {case.placement} --recompute {case.recompute} --workers 1 "
    words += f"--objective {case.objective} --link-delay {case.latency} --time-limit 60"
    found = words.split()
    if case.bandwidth is not None:
        found += ["--link-delay", f"bandwidth={case.bandwidth}"]
    largest = 10**12  # as good as unlimited, where devices differ
    if any(cap is not None for cap in case.capacities):
        found += ["--memory", ",".join(str(largest if c is None else c) for c in case.capacities)]
    return found if split is None else [*found, "--layout", layout(split)]


def layout(split: list[int]) -> str:
    """A split into stages of so many blocks as Megatron-LM's string."""
    return f"E{'|'.join('t' * count for count in split)}L"


def answered(case: Case, folder: Path, split: list[int] | None = None) -> tuple[int, Any, str]:
    """Exit code, JSON document and messages of the command, run in this process."""
    from pipesat.cli import main

    path = folder / "layers.json"
    path.write_text(json.dumps(case.document))
    words = ["pipesat", *arguments(case, path, split)]
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    text = out.getvalue()
    return code, json.loads(text) if text else None, err.getvalue()


# The verdict


def violations(case: Case, code: int, found: Any, messages: str) -> Iterator[str]:
    """Every claim that does not hold."""
    possible = [shape for shape in case.shapes if any(True for _ in case.cuts(shape))]
    if not possible:
        if code != 2:
            yield f"exit {code}, but flags and ties leave no partition: {messages}"
        return
    optima = {shape: case.best(shape) for shape in possible}
    values = [value for value in optima.values() if value is not None]
    if not values:
        if code != 3:
            yield f"exit {code}, but nothing fits: {messages}"
        return
    if code != 0 or found is None:
        yield f"exit {code}, but {min(values)} is possible: {messages}"
        return
    yield from _overall(case, found, min(values))
    yield from _stages(case, found)
    yield from _shapes(found, optima)
    yield from _rows(case, found)


def _overall(case: Case, found: Any, best: int) -> Iterator[str]:
    value, bound, gap = found["value"], found["lower_bound"], found["gap"]
    if value is None or (value < best and not case.left_open):
        yield f"value {value}, the optimum is {best}"
    if bound is None or bound > best:
        yield f"bound {bound} over all partitions, the optimum is {best}"
    if (found["status"] == "optimal") != (value == bound):
        yield f"{found['status']} with value {value} and bound {bound}"
    if value is not None and bound is not None:
        if value < bound:
            yield f"value {value} below bound {bound}"
        if gap is None or abs(gap - ((value - bound) / value if value else 0)) > 1e-9:
            yield f"gap {gap} of value {value} and bound {bound}"


def _stages(case: Case, found: Any) -> Iterator[str]:
    """The plan's own stages: flags, amounts, static memory, value and bound of the partition."""
    choice = _choice(
        case,
        found["shape"]["placement"],
        [len(s["layers"]) for s in found["stages"]],
        [s["recompute"] for s in found["stages"]],
    )
    if choice.counts not in [*case.cuts(choice.shape)]:
        yield f"the plan's partition {choice.counts} breaks a rule"
        return
    if choice.flags not in [*case.flags(choice.shape, choice.counts)]:
        yield f"--recompute {case.recompute}, but the plan recomputes {choice.flags}"
    for stage, true in zip(found["stages"], case.stage_amounts(choice), strict=True):
        wrong = {k: stage[k] for k in true if k != "fused" and stage[k] != true[k]}
        if wrong:
            yield f"stage {stage['stage']} has {wrong}, expected {true}"
    static = case.static(choice.shape, choice.counts)
    if [device["static"] for device in found["devices"]] != static:
        yield f"static memory {found['devices']}, expected {static}"
    own, result = case.optimum(choice), found["result"]
    yield from _claim("the plan's partition", own, found["value"], result["lower_bound"])
    if (result["status"] == "optimal") != (result["value"] == result["lower_bound"]):
        yield f"partition {result['status']} at {result['value']} of {result['lower_bound']}"
    for device, cap in zip(found["devices"], case.capacities, strict=True):
        if cap is not None and device["peak"] > cap:
            yield f"peak {device['peak']} on device {device['device']}, capacity {cap}"


def _claim(name: str, own: int | None, value: int | None, bound: int | None) -> Iterator[str]:
    if value is not None and (own is None or value < own):
        yield f"{name}: value {value}, its optimum is {own}"
    if own is not None and bound is not None and bound > own:
        yield f"{name}: bound {bound}, its optimum is {own}"


def _shapes(found: Any, optima: dict[Shape, int | None]) -> Iterator[str]:
    for entry in found["considered"]:
        placement = entry["shape"].split()[0]
        ours = [value for shape, value in optima.items() if shape.placement == placement]
        best = min((value for value in ours if value is not None), default=None)
        if best is not None and entry["why_not"]:
            yield f"{entry['shape']} left out ({entry['why_not']}), but {best} is possible"
        # a shape's bound may end at the best value of all: nothing beyond was looked at
        if best is not None and (entry["lower_bound"] or 0) > max(best, found["value"] or 0):
            yield f"{entry['shape']}: bound {entry['lower_bound']}, its optimum is {best}"


def _rows(case: Case, found: Any) -> Iterator[str]:
    for row in found["comparison"]:
        if row["layers_per_stage"] is None:
            continue
        choice = _choice(
            case, row["placement"].split()[0], row["layers_per_stage"], row["recompute"]
        )
        if choice.flags not in [*case.flags(choice.shape, choice.counts)]:
            yield f"--recompute {case.recompute}, but {row['name']} recomputes {choice.flags}"
        own = case.optimum(choice)
        fitting = [c["value"] for c in row["schedules"].values() if c["fits"]]
        for value in (row["best_order"], *fitting):
            yield from _claim(row["name"], own, value, row["lower_bound"])
            if value is not None and row["lower_bound"] > value:
                yield f"{row['name']}: bound {row['lower_bound']} above value {value}"
        searched = choice.shape in case.shapes and all(choice.counts)
        if searched and (row["best_order"] or found["value"]) < found["value"]:
            yield f"{row['name']} at {row['best_order']} is better than the plan"


def _choice(case: Case, placement: str, counts: list[int], flags: list[bool]) -> Choice:
    p = case.devices
    there = (*range(p),)
    homes = {"chain": there, "vee": (*there, *there[::-1]), "loop": (*there, *there)}[placement]
    return Choice(Shape(placement, homes), tuple(counts), tuple(flags))


def judged(seed: int, placement: str, recompute: str, folder: Path) -> tuple[str, list[str]]:
    """Run and judge one case; its outcome in a word, and what is wrong."""
    case = random_case(seed, placement, recompute)
    code, found, messages = answered(case, folder, _split(random.Random(seed), case))
    outcome = found["status"] if code == 0 and found else f"exit {code}"
    return outcome, [*violations(case, code, found, messages)]


def _split(draw: random.Random, case: Case) -> list[int] | None:
    """Sometimes a split by hand that keeps the rules: a chain or a loop, stages may be empty."""
    if draw.random() < 0.5:
        return None
    rounds = draw.choice((1, 1, 2))
    shape = Shape("loop" if rounds == 2 else "chain", (*range(case.devices),) * rounds)
    for _ in range(20):
        cuts = [draw.randint(0, len(case.layers)) for _ in shape.homes[1:]]
        bounds = [0, *sorted(cuts), len(case.layers)]
        split = [b - a for a, b in pairwise(bounds)]
        if case.keeps_rules(shape, tuple(split)):
            return split
    return None


def wrong_of_seed(seed: int) -> list[str]:
    """Judge the case of a seed; placements and choices of recomputation take turns."""
    kinds = [*product(PLACEMENTS, RECOMPUTE)]
    with TemporaryDirectory() as folder:
        return judged(seed, *kinds[seed % len(kinds)], Path(folder))[1]
