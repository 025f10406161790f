"""Problems from costs in the usual placements, and one chain's layers in all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesat
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.settings import Placement
from pipesat.problem.costs import Costs, activations_of_1f1b, cut
from pipesat.problem.geometry import PLACEMENTS, Geometry, one_route_placement_of, ranks_of
from pipesat.problem.making import built
from pipesat.problem.other_placements import same_layers_elsewhere
from pipesat.problem.problem import Link, Overlap, Problem
from pipesat.problem.problem_file import parse_problem
from tests.support.problems import chain, document
from tests.support.problems import vee as small_vee

UNIT = {"F": 1, "B": 1, "W": 1}


# From costs


def test_layers_are_joined_to_stages() -> None:
    # 5 layers on 2 devices: 3 and 2, the remainder first
    layers = [Costs(n, 2 * n, 1, held_after_F=n, held_after_B=1) for n in (1, 2, 3, 4, 5)]
    first, second = cut(layers, 2)
    assert first == Costs(6, 12, 3, held_after_F=6, held_after_B=3)
    assert second == Costs(9, 18, 2, held_after_F=9, held_after_B=2)


def test_joined_stages_have_a_fused_time_where_a_layer_has_one() -> None:
    # 3 of the first layer, B + W = 4 of the second
    assert cut([Costs(1, 2, 2, BW=3), Costs(1, 2, 2)], 1) == [Costs(2, 4, 4, BW=7)]


def test_balanced_stages_make_the_longest_shortest() -> None:
    # whole layers take 8, 2, 2, 2, 2: evenly 12 and 4; the best cut is after the first, 8 and 8
    layers = [Costs(4, 2, 2), *[Costs(1, 1, 0)] * 4]
    assert [stage.whole for stage in cut(layers, 2)] == [12, 4]
    assert [stage.whole for stage in cut(layers, 2, "balanced")] == [8, 8]


@pytest.mark.parametrize("name", PLACEMENTS)
@settings(max_examples=20, deadline=None)
@given(p=st.integers(1, 5), m=st.integers(2, 6), chunks=st.integers(1, 3), more=st.integers(0, 7))
def test_no_layer_is_lost(name: Placement, p: int, m: int, chunks: int, more: int) -> None:
    stages = Geometry(name, p, chunks).parts
    numbers = [*range(stages + more)]
    costs = {"F": [n + 1 for n in numbers], "B": numbers, "W": 1, "held_after_F": numbers}
    shape = {"placement": name, "devices": p, "chunks": chunks if name == "loop" else None}
    problem = built(shape | {"microbatches": m} | costs)
    replicas = len(problem.routes)
    assert len(problem.stages) == stages * replicas
    assert sum(s.F for s in problem.stages) == replicas * sum(n + 1 for n in numbers)
    assert sum(s.held_after_F for s in problem.stages) == replicas * sum(numbers)
    assert sum(route.microbatches for route in problem.routes) == m
    assert {len(stages) for stages in problem.stages_on} == {stages * replicas // p}
    assert ranks_of(problem, name).device == tuple(range(p))


def test_activations_of_1f1b() -> None:
    # p - d in flight: 3 * 4, 2 * 7, 1 * 5; with two microbatches 2 * 4, 2 * 7, 1 * 5
    assert activations_of_1f1b(Problem.chain(3, 8, **UNIT, held_after_F=[4, 7, 5])) == 14
    assert activations_of_1f1b(Problem.chain(3, 8, **UNIT, held_after_F=5)) == 15
    assert activations_of_1f1b(Problem.chain(3, 2, **UNIT, held_after_F=5)) == 10
    # stages of a loop are joined to one per device: 2 * (4 + 7) and 5 + 1
    assert activations_of_1f1b(Problem.loop(2, 8, **UNIT, held_after_F=[4, 7, 5, 1])) == 22
    # what a backward holds above that, once: 3 * 4 + 5, 2 * 7, 1 * 5
    chain = Problem.chain(3, 8, **UNIT, held_after_F=[4, 7, 5], held_in_backward=[9, 6, 5])
    assert activations_of_1f1b(chain) == 17


@pytest.mark.parametrize("more", [0, 1, 5])
def test_1f1b_runs_in_its_own_memory_and_not_in_less(more: int) -> None:
    own = Problem.chain(
        2, 3, **UNIT, held_after_F=[2, 1], held_in_backward=[2 + more, 1], memory="1f1b"
    )
    (capacity, _) = (device.memory for device in own.devices)
    assert capacity is not None
    assert pipesat.check(own, pipesat.schedule_of(own, "1f1b")) == []
    less = own.with_memory(capacity - 1)
    assert pipesat.check(less, pipesat.schedule_of(less, "1f1b")) != []


@pytest.mark.parametrize(
    ("placement", "p", "chunks", "name"),
    [
        ("chain", 3, 1, "chain"),
        ("vee", 3, 2, "vee"),
        ("loop", 3, 2, "loop"),
        ("loop", 2, 1, "chain"),
        ("loop", 1, 2, "vee"),
        ("loop", 1, 3, "loop"),
    ],
)
def test_a_placement_has_a_name(placement: Placement, p: int, chunks: int, name: str) -> None:
    """The simplest name where several are true of it."""
    shape = {
        "placement": placement,
        "devices": p,
        "chunks": chunks if placement == "loop" else None,
    }
    made = built(shape | {"microbatches": 2} | UNIT)
    assert one_route_placement_of(made) == name


# One chain elsewhere

UNEVEN = parse_problem(
    document(
        chain(2, 5),
        name="n",
        devices=[{"name": "a", "memory": 50, "static": 7}, {"memory": 60, "static": 4}],
        stages=[
            {"device": 1, "F": 5, "B": 4, "W": 3, "BW": 6, "held_after_F": 7, "held_after_B": 1},
            {"device": 0, "F": 2, "B": 2, "W": 2, "backward": "fused"},
        ],
        comm={"default": 9, "edges": [{"src": 0, "dst": 1, "F": 3, "B": 2}]},
        overlap={"FB": [3, 4]},
    )
)


def test_a_stage_is_cut_in_two() -> None:
    placed = same_layers_elsewhere(UNEVEN, [2])
    assert list(placed) == ["chain", "loop of 2", "vee", "bidirectional"]
    assert placed["chain"] is UNEVEN
    loop = placed["loop of 2"]
    parts = [(s.device, s.F, s.B, s.W, s.BW, s.held_after_F, s.held_after_B) for s in loop.stages]
    # the first stage lies on device 1: ranks 0 and 1 are devices 1 and 0; odd units go first
    assert parts == [
        (1, 3, 2, 2, 3, 4, 1),
        (0, 2, 2, 1, 3, 3, 0),
        (1, 1, 1, 1, 2, 0, 0),
        (0, 1, 1, 1, 2, 0, 0),
    ]
    assert [s.backward for s in loop.stages] == ["either", "either", "fused", "fused"]
    assert (loop.microbatches[0], loop.overlap, loop.name) == (5, Overlap((3, 4)), "n, loop of 2")
    # static 4 of the first stage's device becomes 2 + 2, the other's 7 becomes 4 + 3:
    # device 1 has parts 0 and 2, device 0 parts 1 and 3
    assert [(d.name, d.memory, d.static) for d in loop.devices] == [("a", 50, 5), ("", 60, 6)]


def test_links_are_those_of_the_chain() -> None:
    placed = same_layers_elsewhere(UNEVEN, [2])
    there = Link(3, 2)
    for hops, name in (([(0, 1), (1, 2), (2, 3)], "loop of 2"), ([(0, 1), (2, 3)], "vee")):
        assert dict(placed[name].links) == dict.fromkeys(hops, there)
    assert dict(placed["bidirectional"].links) == {(0, 1): there, (2, 3): there}


def test_the_way_back_round_takes_the_slowest_links_delay() -> None:
    edges = [{"src": 0, "dst": 1, "F": 1, "B": 5}, {"src": 1, "dst": 2, "F": 4, "B": 2}]
    problem = parse_problem(document(chain(3, 2), comm={"default": 99, "edges": edges}))
    placed = same_layers_elsewhere(problem, [2])
    loop = placed["loop of 2"].links  # 2 -> 3 goes from the last device to the first
    assert [both_ways(loop[s, s + 1]) for s in range(5)] == [(1, 5), (4, 2), (4, 5), (1, 5), (4, 2)]
    back = placed["vee"].links  # the V's way back passes the same links
    assert {hop: both_ways(link) for hop, link in back.items()} == {
        (0, 1): (1, 5),
        (1, 2): (4, 2),
        (3, 4): (4, 2),
        (4, 5): (1, 5),
    }


def both_ways(link: Link) -> tuple[int, int]:
    return link.F, link.B


def test_two_directions_hold_both_replicas() -> None:
    both = same_layers_elsewhere(UNEVEN, [2])["bidirectional"]
    assert [s.device for s in both.stages] == [1, 0, 0, 1]
    assert [s.F for s in both.stages] == [5, 2, 5, 2]
    assert [d.static for d in both.devices] == [11, 11]
    assert [(r.stages, r.microbatches) for r in both.routes] == [((0, 1), 3), ((2, 3), 2)]


@settings(max_examples=30, deadline=None)
@given(p=st.integers(2, 5), m=st.integers(2, 4), F=st.integers(0, 9), a=st.integers(0, 9))
def test_work_and_memory_stay_the_same(p: int, m: int, F: int, a: int) -> None:
    problem = chain(p, m, F=F, held=(a, 1), cap=7)
    for name, there in same_layers_elsewhere(problem, [2]).items():
        replicas = len(there.routes)
        work = sum(s.F * n for s, n in zip(there.stages, there.microbatches, strict=True))
        assert work == p * m * F
        assert sum(s.held_after_F for s in there.stages) == replicas * p * a
        assert [device.memory for device in there.devices] == [7] * p
        ranks_of(there, name.partition(" ")[0])  # type: ignore[arg-type]


def test_what_has_no_other_placement() -> None:
    assert list(same_layers_elsewhere(chain(1, 4))) == ["chain"]
    assert list(same_layers_elsewhere(chain(2, 1), [2])) == ["chain", "loop of 2", "vee"]
    with pytest.raises(NotApplicable, match="one stage per device"):
        same_layers_elsewhere(small_vee(2, 2))


def test_stages_are_cut_only_where_somebody_says_that_they_divide() -> None:
    with pytest.raises(BadInput, match="pipesat plan LAYERS --placement any"):
        same_layers_elsewhere(chain(2, 2))
    whole = same_layers_elsewhere(chain(2, 2), wanted=("chain", "bidirectional"))
    assert list(whole) == ["chain", "bidirectional"]  # these cut nothing
    with pytest.raises(BadInput, match="stage 1 of the route cannot be cut in two"):
        same_layers_elsewhere(chain(2, 2), [4, 1])
    with pytest.raises(BadInput, match="3 numbers, expected 2"):
        same_layers_elsewhere(chain(2, 2), [2, 2, 2])


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_of_an_odd_number_of_layers_devices_have_equally_many(p: int) -> None:
    """Stages of 3 layers with F 6, B 3, W 9, static 12: parts of 2 and 1, 3 layers on a device."""
    problem = chain(p, 2, F=6, B=3, W=9, held=(3, 3))
    devices = [{"memory": 99, "static": 12}] * p
    problem = parse_problem(document(problem, devices=devices))
    placed = same_layers_elsewhere(problem, [3])
    for name in ("loop of 2", "vee"):
        for device, stages in enumerate(placed[name].stages_on):
            parts = [placed[name].stages[s] for s in stages]
            assert sorted((s.F, s.B, s.W, s.held_after_F) for s in parts) == [
                (2, 1, 3, 1),
                (4, 2, 6, 2),
            ]
            assert placed[name].devices[device].static == 12
        pairs = zip(placed[name].stages[::2], placed[name].stages[1::2], strict=True)
        assert all(one.F + other.F == 6 for one, other in pairs)  # each stage is cut in two


def test_layers_per_stage_may_differ() -> None:
    """Stages of 4 and 2 layers with F 8 and 2: parts of 4, 4 and 1, 1."""
    stages = [{"device": 0, "F": 8, "B": 0, "W": 0}, {"device": 1, "F": 2, "B": 0, "W": 0}]
    problem = parse_problem(document(chain(2, 2), stages=stages))
    loop = same_layers_elsewhere(problem, [4, 2])["loop of 2"]
    assert [stage.F for stage in loop.stages] == [4, 4, 1, 1]
