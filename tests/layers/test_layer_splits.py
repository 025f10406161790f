"""Splits of layers, against every possible cut of small models."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.layers import devices
from pipesat.layers.devices import smallest_largest
from pipesat.layers.layer import FORMAT, Layers
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.linear_costs import makespan_lines
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b, link_delay
from pipesat.layers.rules import check_partition
from pipesat.layers.stages import problem_of_split, static_of_devices
from pipesat.problem.partition import partition_of
from pipesat.problem.split import FORBIDDEN, balanced, best_split


def layers_of(entries: Sequence[dict[str, Any]], **more: Any) -> Layers:
    filled = [{"F": 0, "B": 0, "W": 0} | entry for entry in entries]
    return parse_layers({"format": FORMAT, "layers": filled} | more)


def all_partitions(layers: int, stages: int) -> Iterator[tuple[range, ...]]:
    for inner in combinations(range(1, layers), stages - 1):
        yield partition_of((0, *inner, layers))


def keeps_rules(layers: Layers, parts: Sequence[range], pipeline: Pipeline) -> bool:
    try:
        check_partition(layers, parts, pipeline.homes)
    except BadInput:
        return False
    return True


def needs(
    layers: Layers,
    parts: Sequence[range],
    pipeline: Pipeline,
    flying: Sequence[int],
    again: Sequence[bool] = (),
) -> list[int]:
    """Memory of every device, from the stages' own numbers."""
    taken = [*static_of_devices(layers, parts, pipeline)]
    for stage, (part, home) in enumerate(zip(parts, pipeline.homes, strict=True)):
        flag = bool(again) and again[stage]
        held = sum(layers.layers[k].amount("held_after_F", recompute=flag) for k in part)
        taken[home] += flying[stage] * held
    return taken


def work(
    layers: Layers, parts: Sequence[range], pipeline: Pipeline, again: Sequence[bool] = ()
) -> int:
    """Largest F + BW of a device."""
    load = [0] * pipeline.devices
    for stage, (part, home) in enumerate(zip(parts, pipeline.homes, strict=True)):
        flag = bool(again) and again[stage]
        for kind in ("F", "BW"):
            load[home] += sum(layers.layers[k].amount(kind, recompute=flag) for k in part)
    return max(load)


def best_by_hand(layers: Layers, pipeline: Pipeline, flying: Sequence[int]) -> int | None:
    """Least of the largest loads, over all partitions; ``None`` if none is allowed."""
    values = []
    for parts in all_partitions(len(layers), pipeline.stages):
        memory = needs(layers, parts, pipeline, flying)
        fits = all(c is None or n <= c for n, c in zip(memory, pipeline.capacities, strict=True))
        if fits and keeps_rules(layers, parts, pipeline):
            values.append(work(layers, parts, pipeline))
    return min(values, default=None)


@st.composite
def cases(draw: st.DrawFn, placements: Sequence[str]) -> tuple[Layers, Pipeline, tuple[int, ...]]:
    """A few layers with flags, ties and memory, a pipeline, and microbatches in flight."""
    placement = draw(st.sampled_from(placements))
    p = draw(st.integers(1, 3))
    chunks = draw(st.integers(2, 3)) if placement == "loop3" else 2
    name = "loop" if placement.startswith("loop") else placement
    m = draw(st.integers(1, 4))
    slack = draw(st.none() | st.integers(0, 30))
    pipeline = Pipeline(
        devices=p,
        microbatches=m,
        placement=name,
        chunks=chunks,
        memory=slack,  # type: ignore[arg-type]
    )
    count = draw(st.integers(pipeline.stages, max(pipeline.stages, 8)))
    amount = st.integers(0, 6)
    entries: list[dict[str, Any]] = [
        {
            "name": f"x{i}",
            "F": draw(amount),
            "B": draw(amount),
            "W": 0,
            "held_after_F": draw(st.integers(0, 3)),
            "weights": draw(st.integers(0, 3)),
        }
        for i in range(count)
    ]
    for entry in entries[:-1]:
        entry["with_next"] = draw(st.integers(0, 9)) == 0
    if draw(st.booleans()):
        entries[0]["first"] = entries[-1]["last"] = count > 1
    if count > 2 and draw(st.integers(0, 3)) == 0:
        one, other = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
        entries[other]["tied_to"] = f"x{one}"
    flying = tuple(draw(st.integers(1, 3)) for _ in range(pipeline.stages))
    return layers_of(entries), pipeline, flying


# The generic programme


@pytest.mark.slow
@given(st.data())
def test_any_cost_of_a_stage(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    stages = data.draw(st.integers(1, count))
    cells = st.one_of(st.integers(0, 50), st.just(FORBIDDEN))
    shape = (stages, count + 1, count + 1)
    flat = data.draw(st.lists(cells, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    table = np.array(flat, dtype=np.int64).reshape(shape)
    for combine, join in (("max", max), ("sum", sum)):
        options = []
        for parts in all_partitions(count, stages):
            costs = [int(table[s, part.start, part.stop]) for s, part in enumerate(parts)]
            if FORBIDDEN not in costs:
                options.append(join(costs))
        found = best_split(lambda a, b, s: table[s, a, b], count, stages, combine=combine)  # type: ignore[arg-type]
        assert (None if found is None else found.value) == min(options, default=None)
        if found is not None:
            costs = [int(table[s, p.start, p.stop]) for s, p in enumerate(found.partition)]
            assert join(costs) == found.value
            assert found.proven


def test_one_table_for_all_stages_and_masks() -> None:
    sums = np.array([0, 5, 8, 13])
    table = np.maximum(sums[None, :] - sums[:, None], 0)
    cost = lambda a, b, _: table[a, b]  # noqa: E731
    found = best_split(cost, 3, 2)
    assert found is not None
    assert found.value == 8  # 5 + 3 | 5 or 5 | 3 + 5
    masks = np.ones((3, 4), dtype=bool)
    masks[1] = [False, True, False, False]
    found = best_split(cost, 3, 2, masks=masks)
    assert found is not None
    assert found.partition == (range(1), range(1, 3))
    masks[1] = False
    assert best_split(cost, 3, 2, masks=masks) is None


# Largest loads


@given(cases(["chain", "vee", "loop", "loop3"]))
def test_exact_splits_are_those_of_exhaustive_search(
    case: tuple[Layers, Pipeline, tuple[int, ...]],
) -> None:
    compare_with_exhaustive_search(*case)


@pytest.mark.slow
@given(cases(["vee", "loop"]))
def test_so_are_those_of_two_tracks(case: tuple[Layers, Pipeline, tuple[int, ...]]) -> None:
    with mock.patch.object(devices, "EXACT_CUTS", 0):
        compare_with_exhaustive_search(*case)


def compare_with_exhaustive_search(
    layers: Layers, pipeline: Pipeline, flying: tuple[int, ...]
) -> None:
    least = best_by_hand(layers, pipeline, flying)
    try:
        found = smallest_largest(layers, pipeline, in_flight=flying)
    except (BadInput, Infeasible):
        assert least is None
        return
    assert found.value == least
    assert found.proven
    assert keeps_rules(layers, found.partition, pipeline)
    assert work(layers, found.partition, pipeline) == least
    memory = needs(layers, found.partition, pipeline, flying)
    if pipeline.memory is not None:
        assert max(memory) <= pipeline.memory  # type: ignore[operator]


def test_loops_of_three_that_are_too_many_to_look_at() -> None:
    # 4 devices with 3 stages each, 60 equal layers: 15 each is best, and can be
    layers = layers_of([{"F": 2, "held_after_F": 1}] * 60)
    pipeline = Pipeline(devices=4, microbatches=1, placement="loop", chunks=3, memory=16)
    found = smallest_largest(layers, pipeline)
    assert found.value == found.lower_bound == 30
    text = "need at least 60 together, all devices have memory for 56"
    with pytest.raises(Infeasible, match=text):
        smallest_largest(
            layers, Pipeline(devices=4, microbatches=1, placement="loop", chunks=3, memory=14)
        )


def test_a_search_that_finds_nothing_does_not_say_that_there_is_nothing() -> None:
    # 45 layers in groups of 3 that stay together: 12 + 12 + 11 + 11 are enough, but not for groups
    layers = layers_of(
        [{"weights": 1, "with_next": True}, {"weights": 1, "with_next": True}, {"weights": 1}] * 15
    )
    pipeline = Pipeline(devices=4, microbatches=1, placement="loop", chunks=3, memory=12)
    found = smallest_largest(layers, pipeline)
    assert max(needs(layers, found.partition, pipeline, [1] * 12)) <= 12
    tight = Pipeline(devices=4, microbatches=1, placement="loop", chunks=3, memory=[12, 12, 11, 11])
    with pytest.raises(NotApplicable, match="no split was found"):
        smallest_largest(layers, tight)


def test_a_thousand_layers_on_64_devices() -> None:
    draw = random.Random(4)
    costs = [draw.choice([100, 228, 626]) for _ in range(1000)]
    layers = layers_of([{"F": cost, "held_after_F": 1} for cost in costs])
    pipeline = Pipeline(devices=64, microbatches=128, memory=600)
    flying = in_flight_1f1b(pipeline)
    found = smallest_largest(layers, pipeline, in_flight=flying)
    assert max(needs(layers, found.partition, pipeline, flying)) <= 600
    # 64 microbatches are in flight on the first device: it has room for 9 layers
    assert len(found.partition[0]) <= 9
    free = max(sum(costs[part.start : part.stop]) for part in balanced(costs, 64))
    assert found.value >= free
    assert work(layers, found.partition, pipeline) == found.value


def test_large_vees_and_loops_say_what_is_not_proven() -> None:
    layers = layers_of([{"F": 7}] * 250 + [{"F": 90}])
    for placement in ("vee", "loop"):
        pipeline = Pipeline(devices=4, microbatches=1, placement=placement)  # type: ignore[arg-type]
        found = smallest_largest(layers, pipeline)
        assert found.lower_bound == -(-(250 * 7 + 90) // 4)
        assert found.lower_bound <= found.value <= found.lower_bound + 7
        assert work(layers, found.partition, pipeline) == found.value


# Recomputation


RECOMPUTED = [
    {
        "F": 2,
        "B": 2,
        "W": 2,
        "held_after_F": 10,
        "recompute": {"F": 2, "B": 4, "W": 2, "held_after_F": 1},
    }
] * 6


@pytest.mark.parametrize("placement", ["chain", "vee"])
def test_stages_recompute_where_they_must(placement: str) -> None:
    layers = layers_of(RECOMPUTED)
    pipeline = Pipeline(devices=2, microbatches=9, placement=placement, memory=60)  # type: ignore[arg-type]
    flying = (2, 1) if placement == "chain" else (2, 2, 1, 1)
    found = smallest_largest(layers, pipeline, in_flight=flying, recompute="where_needed")
    memory = needs(layers, found.partition, pipeline, flying, found.recompute)
    assert max(memory) <= 60
    assert work(layers, found.partition, pipeline, found.recompute) == found.value
    tight = Pipeline(devices=2, microbatches=9, placement=placement, memory=35)  # type: ignore[arg-type]
    again = smallest_largest(layers, tight, in_flight=flying, recompute="where_needed")
    assert any(again.recompute)
    assert max(needs(layers, again.partition, tight, flying, again.recompute)) <= 35


@given(st.integers(10, 70), st.integers(1, 3), st.integers(1, 3))
def test_a_chain_chooses_where_to_recompute_exactly(slack: int, one: int, two: int) -> None:
    layers = layers_of(RECOMPUTED)
    pipeline = Pipeline(devices=2, microbatches=9, memory=slack)
    options = [
        work(layers, parts, pipeline, again)
        for parts in all_partitions(6, 2)
        for again in product((False, True), repeat=2)
        if max(needs(layers, parts, pipeline, (one, two), again)) <= slack
    ]
    if not options:
        with pytest.raises(Infeasible):
            smallest_largest(layers, pipeline, in_flight=(one, two), recompute="where_needed")
        return
    found = smallest_largest(layers, pipeline, in_flight=(one, two), recompute="where_needed")
    assert found.value == min(options)
    assert work(layers, found.partition, pipeline, found.recompute) == found.value


# Bounds over all partitions


@pytest.mark.slow
@given(st.data())
def test_makespan_bounds_hold_for_every_partition(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 5))
    amount = st.integers(0, 6)
    entries = [
        {
            "F": data.draw(amount),
            "B": data.draw(amount),
            "W": data.draw(amount),
            "BW": data.draw(st.integers(0, 12)),
            "output": data.draw(st.integers(0, 3)),
            "fused": data.draw(st.integers(0, 5)) == 0,
        }
        for _ in range(count)
    ]
    layers = layers_of(entries)
    backward = data.draw(st.sampled_from(["either", "split", "fused"]))
    pipeline = Pipeline(
        devices=data.draw(st.integers(1, 3)),
        microbatches=data.draw(st.integers(1, 4)),
        delay=link_delay(1, 1),
        backward=backward,
    )
    least = min(
        BASELINES["list-scheduling"](problem_of_split(layers, parts, pipeline)).makespan
        for parts in all_partitions(count, pipeline.stages)
    )
    assert smallest_largest(layers, pipeline, lines=makespan_lines).lower_bound <= least


def test_the_bound_by_hand() -> None:
    # two stages of (F 1, B 2, W 3), 4 microbatches. Stage 1 begins at 1 + 5 and runs 4 * 6 = 24
    layers = layers_of([{"F": 1, "B": 2, "W": 3, "output": 5}] * 2)
    pipeline = Pipeline(devices=2, microbatches=4, delay=link_delay(0, 1))
    found = smallest_largest(layers, pipeline, lines=makespan_lines)
    assert found.value == 30
    problem = problem_of_split(layers, found.partition, pipeline)
    assert closed_form_bound(problem, "makespan").value >= 30


# Explained


def test_fewer_layers_than_stages() -> None:
    with pytest.raises(BadInput, match="4 stages, but only 3 layers"):
        smallest_largest(layers_of([{}] * 3), Pipeline(devices=4, microbatches=1))
    glued = layers_of([{"with_next": True}, {}, {"with_next": True}, {}, {}])
    with pytest.raises(BadInput, match=r"4 stages need 3 cuts, but first, .* leave 2 places"):
        smallest_largest(glued, Pipeline(devices=4, microbatches=1))


def test_a_layer_that_fits_on_no_device() -> None:
    layers = layers_of(
        [{"weights": 1}, {"name": "big", "weights": 50, "held_after_F": 20}, {"weights": 1}],
        memory_unit="MiB",
        reserve=5,
    )
    pipeline = Pipeline(devices=2, microbatches=4, memory=[60, 70])
    with pytest.raises(Infeasible) as info:
        smallest_largest(layers, pipeline, in_flight=(2, 1))
    assert str(info.value) == (
        "layer 1 (big) fits on no device: on stage 1, where least is missing, 70 MiB are needed, "
        "microbatches in flight: 1; device 1 has memory for 65 MiB: give devices more memory, or "
        "make microbatches smaller"
    )
    glued = layers_of([{"weights": 40, "with_next": True}, {"weights": 40}, {}])
    with pytest.raises(Infeasible, match=r"layer 0 to layer 1, kept together, fits on no"):
        smallest_largest(glued, Pipeline(devices=2, microbatches=1, memory=60))


def test_too_little_memory_in_all_and_on_the_best() -> None:
    layers = layers_of([{"weights": 10}] * 6, memory_unit="GiB")
    for placement in ("chain", "vee"):
        pipeline = Pipeline(devices=2, microbatches=1, placement=placement, memory=29)  # type: ignore[arg-type]
        with pytest.raises(
            Infeasible, match=r"need at least 60 GiB together, .* memory for 58 GiB"
        ):
            smallest_largest(layers, pipeline)
    odd = layers_of([{"weights": 20}] * 3, memory_unit="GiB")
    with pytest.raises(Infeasible, match="even the best lacks 5 GiB on a device"):
        smallest_largest(odd, Pipeline(devices=2, microbatches=1, memory=35))


def test_tied_layers_of_a_chain_are_explained() -> None:
    layers = layers_of([{"name": "words"}, {}, {}, {"name": "head", "tied_to": "words"}])
    with pytest.raises(
        BadInput, match=r"layer 0 \(words\) and layer 3 \(head\) share weights.*Take a V"
    ):
        smallest_largest(layers, Pipeline(devices=2, microbatches=1))
    vee = Pipeline(devices=2, microbatches=1, placement="vee")
    assert smallest_largest(layers, vee).proven
    assert smallest_largest(layers, Pipeline(devices=1, microbatches=1)).partition == (range(4),)


def test_copies_count_twice_unless_both_ends_of_a_vee() -> None:
    ends = [
        {"name": "words", "weights": 6},
        {},
        {},
        {"weights": 6, "tied_to": "words", "tie": "copies"},
    ]
    vee = Pipeline(devices=2, microbatches=1, placement="vee", memory=6)
    assert smallest_largest(layers_of(ends), vee).proven
    chain = Pipeline(devices=2, microbatches=1, memory=6)
    assert smallest_largest(layers_of(ends), chain).proven  # one copy each
    with pytest.raises(Infeasible, match="fits on no device"):
        smallest_largest(layers_of(ends), Pipeline(devices=2, microbatches=1, memory=5))


def test_amounts_that_cannot_be_added_exactly() -> None:
    layers = layers_of([{"F": 10**12, "held_after_F": 10**12}] * 4)
    with pytest.raises(BadInput, match="choose a coarser unit"):
        smallest_largest(layers, Pipeline(devices=2, microbatches=1), in_flight=(10**6, 1))
