"""Slot grids and their replay against the oracle that looks every op up in the rules."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pipesat.heuristics.shared.slot_grid import SlotGrid
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from tests.oracle.kernels import slots as oracle
from tests.support.problems import document, of, vee


def long_v(chance: Random) -> Problem:
    """A V of up to 20 microbatches, at one chunk less than it asks for up to unlimited memory."""
    devices, cap = chance.randint(2, 3), chance.choice([None, 4, 5, 7])
    problem = vee(devices, chance.randint(4, 20), cap=cap, F=4, B=5, W=2)
    most = chance.randint(6, 9)
    pairs = [
        {"ops": [f"{a}F", f"{b}{kind}"], "time": chance.randint(most, most + 3)}
        for stages in problem.stages_on
        for a in stages
        for b in stages
        for kind in ("B", "BW")
    ]
    return parse_problem(document(problem, overlap={"pairs": pairs}))


def problem_of(seed: int) -> Problem:
    """Pairs by time of any kinds, long Vs, or pairs beside lists and modes, by turns."""
    chance = Random(seed)
    if seed % 3 == 0:
        return of("pairs", seed, pairs=("time",), zeros=(0.0, 0.3))
    if seed % 3 == 1:
        return long_v(chance)
    while True:
        problem = of("mixtures", chance.random())
        if problem.overlap is not None:
            return problem


@pytest.mark.parametrize("seed", range(45))
def test_entries_makespan_and_order_are_those_of_the_oracle(seed: int) -> None:
    problem, chance = problem_of(seed), Random(seed)
    grid, facts = SlotGrid(problem), oracle.Facts(problem)
    for number in range(4):
        stops = oracle.no_stops(problem)
        if number % 2:
            stops = [[chance.choice([0, 0, 1, 3]) for _ in own] for own in stops]
        theirs = oracle.SlotGrid(problem, stops)
        entering = [*theirs.entering]
        assert grid.entering.tolist() == [[*one] for one in entering]
        if number > 1:
            chance.shuffle(entering)
        gaps = [chance.choice([1, 1, 2, 5]) for _ in entering]
        padded = grid.no_stops.copy()
        for route, own in enumerate(stops):
            padded[route, : len(own)] = own
        shapes = grid.shapes(padded)
        entries = theirs.entries(gaps, entering)
        assert shapes.fits == (entries is not None)
        if entries is None:
            return
        cells, found = grid.placed(shapes, gaps, np.array(entering))
        assert found.tolist() == entries
        alone, opened = grid.all_together.copy(), {}
        for stage, count in enumerate(problem.microbatches):
            for microbatch in range(count):
                for backward in (False, True):
                    if number and chance.random() < 0.3:
                        sooner = opened[stage, microbatch, backward] = chance.random() < 0.5
                        cell = grid.first_cell[stage] + microbatch
                        alone[cell, int(backward)] = 1 if sooner else -1
        for wait in (1.0, 0.7, 0.0):
            replay = oracle.SlotReplay(theirs, facts, wait=wait, alone=opened, note=True)
            value = replay.run(entries, entering)
            run = grid.run(cells, wait, alone)
            assert run.value == value
            assert grid.order_of(run) == replay.order
