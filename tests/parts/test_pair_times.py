"""Times of ops and pairs from parts: by hand, and against every order tried."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from random import Random

import pytest

import pipesat
from pipesat.core.errors import BadInput
from pipesat.files.problem_file import parse_problem
from pipesat.parts.answer import ChunkOp, factor_of, into_problem, require_same_stages
from pipesat.parts.bounds import one_stream_bound, quick_plans
from pipesat.parts.file import parse_parts, read_parts
from pipesat.parts.parts import Plan, fault_of, shop_of, timed
from pipesat.solver.job_shop import blocks_of, repeated
from pipesat.workflows.pair_times import pair_times
from tests.support.parts import BY_HAND, least_by_trying, random_parts
from tests.support.paths import ROOT


def found_of(document, **options):
    return pair_times(parse_parts(document), deterministic=True, time_limit=20, **options)


def times_of(found):
    """Every time with its ops' names and kinds."""
    name = {number: chunk.name for number, chunk in enumerate(found.parts.chunks)}
    every = [((op,), least) for op, least in found.alone.items()] + [*found.together.items()]
    return [([(name[op.chunk], op.kind) for op in ops], least) for ops, least in every]


def with_chunk(**changes):
    document = copy.deepcopy(BY_HAND)
    document["chunks"][0] |= changes
    return document


# By hand


def test_one_op_alone() -> None:
    found = found_of(BY_HAND)
    alone = {op.kind: least.plan.length for op, least in found.alone.items()}
    # F: 3 + 5. B: 6 + 4 + 1. W: 2. BW: B takes 11; W runs beside its dispatch, from 10 to 12.
    assert alone == {"F": 8, "B": 11, "W": 2, "BW": 12}
    assert found.unproven == []


def test_two_ops_together() -> None:
    found = found_of(BY_HAND)
    moe = {kind: ChunkOp(0, kind) for kind in ("F", "B", "W", "BW")}

    def together(one, other):
        return found.together[moe[one], moe[other]].plan.length

    # comm has 6 + 5 + 1 = 12: combine until 6, F's dispatch until 11, B's until 12; main runs attn
    # until 3, mlp from 6 to 10 and W from 10 to 12
    assert together("F", "BW") == 12
    assert together("F", "W") == 8  # W runs beside F's dispatch
    # two F: comm waits 3 for the first attn, then runs 5 + 5
    assert together("F", "F") == 13
    assert together("W", "W") == 4  # one stream: nothing is saved


def test_layers_run_in_a_row_and_backwards_from_the_last() -> None:
    parts = parse_parts(with_chunk(repeat=3))
    jobs = shop_of(2, [(parts.chunks[0], "F"), (parts.chunks[0], "BW")]).jobs
    assert [job.layer for job in jobs if job.kind == "F"] == [0, 0, 1, 1, 2, 2]
    assert [job.layer for job in jobs if job.kind == "B"] == [2, 2, 2, 1, 1, 1, 0, 0, 0]
    for job in jobs:
        if job.kind == "W":  # of the same layer
            (before,) = job.before
            assert (jobs[before].name, jobs[before].layer) == ("mlp", job.layer)
    assert found_of(with_chunk(repeat=3)).alone[ChunkOp(0, "F")].plan.length == 24


def test_the_document_lists_what_saves_time_on_one_device() -> None:
    document = found_of(BY_HAND).document()
    assert document["stages"] == [{"device": 0, "F": 8, "B": 11, "W": 2, "BW": 12}] * 2
    listed = {tuple(entry["ops"]): entry["time"] for entry in document["overlap"]["pairs"]}
    assert listed["0F", "1BW"] == listed["1F", "0BW"] == listed["0F", "0BW"] == 12
    assert ("0W", "1W") not in listed  # 4, as in turn
    assert len(listed) == len({frozenset(ops) for ops in listed})
    alone = BY_HAND | {"stages": ["moe", "moe"], "devices": [0, 1]}
    ops = [entry["ops"] for entry in found_of(alone).document()["overlap"]["pairs"]]
    assert {a[0] + b[0] for a, b in ops} == {"00", "11"}


def test_a_factor_is_never_shorter_than_the_time() -> None:
    found = found_of(BY_HAND)
    times = {tuple(e["ops"]): e["time"] for e in found.document()["overlap"]["pairs"]}
    listed = replace(found, by="factor").document()["overlap"]["pairs"]
    alone = {"F": 8, "B": 11, "W": 2, "BW": 12}
    for entry in listed:
        both = sum(alone[text[1:]] for text in entry["ops"])
        num, den = entry["factor"]  # sums this small have exact factors
        assert num * both == times[tuple(entry["ops"])] * den
    assert len(listed) == len(times)
    assert factor_of(2, 4) == [1, 2]
    for time, both in ((10**9 + 7, 2 * 10**9 + 1), (1, 10**12), (10**12 - 2, 10**12 - 1)):
        num, den = factor_of(time, both)
        assert 1 <= num <= den <= 10**6
        assert time <= both * num / den <= time + both / 10**6


# Against every order


@pytest.mark.parametrize("seed", range(15))
def test_every_time_is_the_least_of_all_orders(seed: int) -> None:
    document = random_parts(Random(seed))
    found = found_of(document)
    for ops, least in times_of(found):
        assert least.plan.length == least.bound.value == least_by_trying(document, ops), ops


@pytest.mark.parametrize("seed", range(100, 115))
def test_what_holds_without_a_proof(seed: int) -> None:
    """Stopped before any search: plans and bounds are honest, if not equal."""
    document = random_parts(Random(seed))
    for chunk in document["chunks"]:
        chunk["repeat"] = 6
    stop = threading.Event()
    stop.set()
    found = found_of(document, stop=stop)
    for ops, least in times_of(found):
        assert fault_of(least.shop, least.plan) == ""
        loads = least.shop.loads()
        assert max(loads) <= least.bound.value <= least.plan.length <= sum(loads), ops
    for two, least in found.together.items():
        members = [found.alone[op] for op in two]
        assert least.plan.length <= sum(member.plan.length for member in members)
        assert least.bound.value >= max(member.bound.value for member in members)
        proven = least.plan.length == least.bound.value
        assert (least.standing.verdict == "proven optimal") == proven
    statuses = {claim["status"] for claim in found.claims()}
    assert statuses <= {"optimal", "feasible"}
    assert (statuses == {"optimal"}) == (found.unproven == [])


@pytest.mark.parametrize("seed", range(200, 215))
def test_a_streams_bound_is_below_every_order(seed: int) -> None:
    document = random_parts(Random(seed))
    parts = parse_parts(document)
    for one in parts.chunks:
        shop = shop_of(len(parts.streams), [(one, "BW"), (parts.chunks[0], "F")])
        least = least_by_trying(document, [(one.name, "BW"), (parts.chunks[0].name, "F")])
        assert one_stream_bound(shop) <= least <= min(p.length for p in quick_plans(shop))


def test_times_beyond_what_cp_sat_bears_are_scaled() -> None:
    """Scaled by k, the least time is scaled by k."""
    times = [1, 2, 4, 3, 2, 1]
    least = {}
    for scale in (1, 10**11):
        parts = [
            {"name": f"p{n}", "stream": ("main", "comm")[n % 2], "time": time * scale}
            for n, time in enumerate(times)
        ]
        chunk = {"name": "a", "F": parts[:3], "B": parts[3:], "repeat": 1}
        found = found_of(BY_HAND | {"chunks": [chunk], "stages": ["a"], "devices": [0]})
        least[scale] = [x.plan.length for _, x in times_of(found)]
        assert found.unproven == []
    assert least[10**11] == [10**11 * time for time in least[1]]


def test_a_rounded_model_says_nothing_false() -> None:
    rng = Random(5)
    for _ in range(5):
        document = random_parts(rng)
        for chunk in document["chunks"]:
            for kind in ("F", "B", "W"):
                for part in chunk[kind]:
                    part["time"] = rng.randrange(1, 10**11)
        for ops, least in times_of(found_of(document)):
            true = least_by_trying(document, ops, 10**13)
            assert least.bound.value <= true <= least.plan.length


def test_long_chunks_repeat_the_order_of_a_few_layers() -> None:
    parts = read_parts(ROOT / "examples" / "parts-deepseek-like.json")
    chunk = replace(parts.chunks[0], repeat=12)
    ops = [(chunk, "F"), (chunk, "BW")]
    shop = shop_of(2, ops)
    small = blocks_of(ops, len(shop.jobs))
    assert small is not None
    layers = {chunk.repeat for chunk, _ in small}
    assert layers == {4}  # 120 parts in three blocks of 40
    block = min(quick_plans(shop_of(2, small)), key=lambda plan: plan.length)
    (plan,) = repeated(shop, small, block)
    assert fault_of(shop, plan) == ""
    assert plan.length <= 3 * block.length


# Plans


def test_timing_and_its_faults() -> None:
    parts = parse_parts(BY_HAND)
    shop = shop_of(2, [(parts.chunks[0], "F")])
    plan = timed(shop, ((0,), (1,)))
    assert plan == Plan(((0,), (1,)), (0, 3), 8)
    assert fault_of(shop, plan) == ""
    assert "before" in fault_of(shop, Plan(plan.rows, (0, 2), 7))
    assert "length" in fault_of(shop, Plan(plan.rows, (0, 3), 7))
    assert "start" in fault_of(shop, Plan(plan.rows, (0,), 8))
    both = shop_of(2, [(parts.chunks[0], "F"), (parts.chunks[0], "F")])
    assert "overlap" in fault_of(both, Plan((), (0, 3, 2, 8), 13))
    assert timed(both, ((0, 2), (3, 1))) is not None
    back = shop_of(2, [(parts.chunks[0], "B")])
    assert timed(back, ((1,), (2, 0))) is None  # dispatch before combine: they wait for each other


# Into a problem


ONES = {"F": 1, "B": 1, "W": 1}
PROBLEM = {
    "format": "pipesat.problem/1",
    "name": "kept",
    "microbatches": 3,
    "devices": [{"memory": 9, "static": 1}],
    "stages": [{"device": 0, "held_after_F": 2} | ONES] * 2,
    "overlap": {"FB": [1, 2]},
}


def test_a_problem_gets_the_times_and_keeps_the_rest() -> None:
    found = found_of(BY_HAND)
    problem = into_problem(found, parse_problem(PROBLEM))
    document = problem.document
    assert document["devices"] == PROBLEM["devices"]
    assert (problem.name, problem.time_unit) == ("kept", "us")
    stage = problem.stages[1]
    assert (stage.F, stage.B, stage.W, stage.BW, stage.held_after_F) == (8, 11, 2, 12, 2)
    assert document["overlap"] == found.document()["overlap"]  # and FB is gone
    assert pipesat.check(problem, problem.schedule("list-scheduling")) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": PROBLEM["stages"][:1]}, "stages: 1 stages, expected 2, as parts has"),
        ({"time_unit": "ms"}, "time_unit: got 'ms', expected \"us\", as parts has"),
        (
            {
                "devices": [{}, {}],
                "stages": [{"device": d, "F": 1, "B": 1, "W": 1} for d in (0, 1)],
            },
            "stages[1].device: got 1, expected 0, as parts has",
        ),
    ],
)
def test_a_problem_with_other_stages_is_refused(change, message) -> None:
    with pytest.raises(BadInput) as error:
        require_same_stages(parse_parts(BY_HAND), parse_problem(PROBLEM | change))
    assert str(error.value) == message


def test_times_that_no_problem_file_may_have_are_refused() -> None:
    part = {"name": "x", "stream": "main", "time": 10**12}
    document = BY_HAND | {"chunks": [{"name": "a", "repeat": 2, "F": [part], "B": []}]}
    found = found_of(document | {"stages": ["a"], "devices": [0]})
    with pytest.raises(BadInput, match=r"chunks\[0\]: a F takes 2000000000000, expected at most"):
        found.document()
