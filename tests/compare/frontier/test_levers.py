"""Curves of value against memory for each lever, held against the plain model of an oracle."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.compare.frontier.by_mode import caps_to_compare, with_choices
from pipesat.compare.frontier.capacities import at_cap, attainable, least_feasible_cap
from pipesat.compare.frontier.memory import frontier, min_memory
from pipesat.core.errors import BadInput
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.result import Improvement
from pipesat.schedule.schedule_file import read_schedule
from pipesat.schedule.timing import time_order
from tests.oracle.exact import optimum
from tests.oracle.generator import ONE_ROUTE
from tests.support.orders import random_order
from tests.support.problems import of

_RECOMPUTE = {"name": "recompute", "backward": "fused", "BW": 5, "held_after_F": 1}
_OFFLOAD = {"name": "offload", "offload": {"out": 2, "in": 2, "held": 1}}


def two_devices() -> dict[str, Any]:
    """Keep needs 8 to have two microbatches at once on device 0; with modes 5 will do."""
    stage = {"F": 2, "B": 2, "W": 1, "held_after_F": 4, "backward": "fused"}
    modes = [_RECOMPUTE | {"held_in_backward": 4}, _OFFLOAD]
    return {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{}, {}],
        "stages": [stage | {"device": device, "modes": modes} for device in range(2)],
    }


def test_levers_are_the_modes_one_by_one_and_together() -> None:
    document = two_devices()
    document["stages"][1]["modes"] = [_OFFLOAD]
    found = with_choices(parse_problem(document))
    assert list(found) == ["keep", "recompute", "offload", "recompute or offload"]
    names = {
        lever: [[mode.name for mode in stage.modes] for stage in problem.stages]
        for lever, problem in found.items()
    }
    assert names == {
        "keep": [[], []],
        "recompute": [["recompute"], []],
        "offload": [["offload"], ["offload"]],
        "recompute or offload": [["recompute", "offload"], ["offload"]],
    }


def test_curves_agree_with_the_oracle_and_more_modes_are_never_worse(tmp_path: Path) -> None:
    problem = parse_problem(two_devices())
    found = frontier(problem, by_mode=True, caps=[4, 5, 8], time_limit=4, workers=1)
    values = {}
    for lever, curve in found.curves.items():
        for row in curve.rows[:-1]:
            document = dict(at_cap(curve.curve.problem, row.cap).document)
            assert row.known is not None
            assert row.bound is not None
            best = optimum(document, at_most=row.known.value)
            assert best is not None
            assert row.bound.value <= best <= row.known.value
            if row.standing.status == "optimal":
                assert row.known.value == best
            values[lever, row.cap] = row.known.value
    for cap in (4, 5, 8):
        assert values["recompute or offload", cap] <= values["recompute", cap]
        assert values["recompute or offload", cap] <= values["offload", cap]
        assert values["recompute", cap] <= values["keep", cap]
    found.save(tmp_path)
    home = tmp_path / "recompute-or-offload" / "caps" / "5"
    saved = parse_problem(json.loads((home / "problem.json").read_text()))
    assert not check(saved, read_schedule(home / "schedule.json", saved))
    curves = json.loads((tmp_path / "frontier.json").read_text())["curves"]
    assert [curve["lever"] for curve in curves] == list(found.curves)
    assert [bool(curve["published"]) for curve in curves] == [True, False, False, False]


@pytest.mark.slow
def test_levers_beside_each_other() -> None:
    problem = parse_problem(two_devices() | {"devices": [{"memory": 5}, {"memory": 5}]})
    assert caps_to_compare(problem) == [4, 5, 6]  # 1F1B holds 2 * 4: its half, the own, 3/4
    told: list[Improvement] = []
    found = frontier(problem, by_mode=True, time_limit=30, workers=1, listener=told.append)
    rows = {row.cap: row for row in found.compared()}
    assert list(rows) == [4, 5, 6]
    for cap, row in rows.items():
        for lever, standing in row.standings.items():
            document = dict(at_cap(with_choices(problem)[lever], cap).document)
            best = optimum(document, at_most=standing.value)
            assert standing.bound is not None
            assert best is not None
            assert standing.bound <= best
    keep, best = rows[5].standings["keep"], rows[5].standings[rows[5].best or ""]
    assert keep.value is not None
    assert best.value is not None
    assert best.value < keep.value
    label, text = found.facts()[0]
    assert label == "Take"
    assert text.startswith(f"at 5 (0.625 x 1F1B): {rows[5].best} {best.value} (")
    assert "shorter than waiting (keep). " in text
    assert f"Waiting (keep): {keep.value} (" in text
    entry = found.document()["compared"][1]
    assert (entry["cap"], entry["best"]) == (5, rows[5].best)
    assert entry["levers"]["keep"]["value"] == keep.value
    assert {one.source.partition(", ")[0] for one in told} <= set(found.curves)
    seconds = [one.seconds for one in told]
    assert seconds == sorted(seconds)  # one clock


def test_every_peak_is_attainable() -> None:
    """Of memory modes, and of microbatches that differ."""
    seen = 0
    for seed in range(70):
        chance = Random(seed)
        more = {"lists": ("", "free"), "memory": ("none",), "shapes": ONE_ROUTE}
        problem = of("modes", seed, **more)
        schedule = time_order(problem, random_order(problem, chance))
        peaks = peak_memory(problem, schedule)
        assert set(peaks) <= set(attainable(problem, max(peaks)))
        seen += any(schedule.copies)
    assert seen > 5


def test_the_smallest_cap_with_modes() -> None:
    problem = parse_problem(two_devices())
    best = optimum(dict(at_cap(problem, None).document))
    assert best is not None
    least = least_feasible_cap(problem)
    caps = range(least, 9)
    enough = [
        cap for cap in caps if optimum(dict(at_cap(problem, cap).document), at_most=best) == best
    ]
    found = min_memory(problem, within=0, time_limit=1.5, workers=1)
    assert found.cap is not None
    assert found.cap >= min(enough)
    cap = found.interval
    assert cap is not None
    if cap.proven:
        assert found.cap == min(enough)
    if cap.too_little is not None:
        assert cap.too_little < min(enough)


def test_what_is_refused() -> None:
    document = two_devices()
    problem = parse_problem(document)
    with pytest.raises(BadInput, match="expected placements or by_mode, not both"):
        frontier(problem, by_mode=True, placements=["chain"])
    for stage in document["stages"]:
        del stage["modes"]
    with pytest.raises(BadInput, match="no memory modes"):
        frontier(parse_problem(document), by_mode=True)
