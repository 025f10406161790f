"""Knobs of frameworks: against torch's own lowering, OLMo-core's own orders, guards by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.heuristics import BASELINES
from pipesat.heuristics.one_f_one_b_v import least_extra, pulled_ahead
from pipesat.problem.problem import Problem
from pipesat.runtimes.knobs import Knob
from pipesat.runtimes.knobs import knobs_of as knobs_so
from pipesat.runtimes.options import Options
from pipesat.schedule.metrics import peak_memory
from tests.support.problems import chain, loop, vee

SLACK, ACTIVE = "pp_recv_buffer_pool_slack", "max_active_stages"
EXTRA = "forward_pull_ahead_extra_activations"
ORDERS = [
    ("1f1b", chain(4, 9, F=2, B=2, W=1)),
    ("eager-1f1b", chain(4, 9, F=2, B=2, W=1)),
    ("gpipe", chain(3, 5, F=2, B=2, W=1)),
    ("zb-h1", chain(4, 9, F=2, B=2, W=1)),
    ("zb-h2", chain(3, 9, F=2, B=2, W=1)),
    ("interleaved-1f1b", loop(2, 4, 6, F=2, B=2, W=1)),
    ("interleaved-zb", loop(2, 2, 6, F=2, B=2, W=1)),
    ("looped-bfs", loop(2, 4, 4, F=2, B=2, W=1)),
    ("v-half", vee(4, 8, F=2, B=2, W=1)),
    ("zb-v", vee(3, 8, F=2, B=2, W=1)),
    ("dualpipev", vee(2, 6, F=2, B=2, W=1, BW=3).with_overlap([9, 10])),
]
Actions = dict[int, list[Any]]


def knobs_of(runtime: str, problem: Problem, schedule: Any, version: str | None = None) -> Any:
    return knobs_so(runtime, problem, schedule, Options(version=version))


def named(knobs: list[Knob], name: str) -> list[Knob]:
    return [knob for knob in knobs if knob.knob == name]


def actions(name: str, problem: Problem) -> Actions:
    """The exported cells, as torch reads them."""
    from torch.distributed.pipelining.schedules import _Action

    data = pipesat.export(problem, BASELINES[name](problem)).data
    rows = csv.reader(io.StringIO(data.decode()))
    return {n: [_Action.from_str(cell) for cell in row if cell] for n, row in enumerate(rows)}


def overwritten(problem: Problem, lowered: Actions, slack: int) -> bool:
    """Whether a ring of that slack receives into a buffer in use, by torch's list of actions.

    By AutoModel's words: forwards of the first stage and gradients of the last need no ring, nor
    does a stage whose ring is no smaller than the number of microbatches.
    """
    stages, m = len(problem.stages), problem.routes[0].microbatches
    homes = {a.stage_index: rank for rank, row in lowered.items() for a in row}
    for row in lowered.values():
        parts = [(at, part) for at, a in enumerate(row) for part in a.sub_actions or (a,)]
        when = {(p.computation_type.value, p.stage_index, p.microbatch_index): t for t, p in parts}
        for stage in {part.stage_index for _, part in parts}:
            size = max(2, min(m, stages - stage + slack))
            for kind, source, ops in (("F", stage - 1, "F"), ("B", stage + 1, "BI")):
                if size >= m or not 0 <= source < stages:
                    continue
                local = homes[source] == homes[stage]
                begin = {
                    i: min(when[op, source, i] for op in ops if (op, source, i) in when)
                    if local
                    else when[f"RECV_{kind}", stage, i]
                    for i in range(m)
                }
                last = ops if local else "BW"
                end = {
                    i: max(when[op, stage, i] for op in last if (op, stage, i) in when)
                    for i in range(m)
                }
                for i in range(m):
                    for j in range(i % size, m, size):
                        if i != j and begin[i] <= begin[j] < end[i]:
                            return True
    return False


@pytest.mark.parametrize(("name", "problem"), ORDERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_ring_is_the_least_that_overwrites_nothing(name: str, problem: Problem) -> None:
    pytest.importorskip("torch", reason="needs the extra `torch`")
    from torch.distributed.pipelining import schedules

    home = {place: problem.stages[s].device for place, s in enumerate(problem.routes[0].stages)}
    lowered = schedules._add_send_recv(actions(name, problem), home.__getitem__, len(home))
    knobs = named([*knobs_of("automodel", problem, BASELINES[name](problem), "2.13")], SLACK)
    slacks = range(problem.routes[0].microbatches + 1)
    least = next(slack for slack in slacks if not overwritten(problem, lowered, slack))
    assert [knob.value for knob in knobs] == ([least, least - 1] if least else [least])
    assert [knob.ours for knob in knobs] == [True, False][: len(knobs)]


@pytest.mark.parametrize(("name", "problem"), [one for one in ORDERS if one[1].stages_on[0][1:]])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_active_stages_are_the_least_without_a_gather_more(name: str, problem: Problem) -> None:
    pytest.importorskip("torch", reason="needs the extra `torch`")
    from torch.distributed.pipelining import schedules

    cells, own = actions(name, problem), len(problem.stages_on[0])

    def gathers(most: int) -> list[int]:
        lowered = (schedules._add_unshard_reshard(row, most) for row in cells.values())
        return [sum("UNSHARD" in str(a) for a in row) for row in lowered]

    least = next(n for n in range(2, own + 1) if gathers(n) == [own] * len(cells))
    ours, *others = named([*knobs_of("torch", problem, BASELINES[name](problem))], ACTIVE)
    assert (ours.value, ours.ours) == (least, True)
    for other in others:
        assert isinstance(other.value, int)
        assert other.why.startswith(f"up to {max(gathers(other.value)) - own} gathers more")
        fewer = least - other.value
        assert other.why.endswith(f"of {fewer} fewer stage{'s' * (fewer > 1)}")


def test_releases_and_placements_without_a_knob() -> None:
    problem, turned = chain(3, 4), vee(2, 4)
    order, v = BASELINES["1f1b"](problem), BASELINES["zb-v"](turned)
    assert not named([*knobs_of("torch", problem, order)], ACTIVE)  # one stage a rank
    assert not named([*knobs_of("torch", turned, v, "2.13")], ACTIVE)
    assert named([*knobs_of("torch", turned, v, "2.15")], ACTIVE)
    (ring,) = named([*knobs_of("automodel", problem, order, "2.15")], SLACK)
    assert (ring.value, "leave pp_recv_buffer_pool off" in ring.why) == (0, True)


@pytest.mark.parametrize(
    ("p", "m", "known"),
    # peaks and makespans of OLMo-core 3.0.0's own orders, F 1 and BW 2, by integer
    [
        (4, 8, {0: (6, 63), 1: (7, 63), 2: (8, 61)}),
        (8, 16, {0: (12, 129), 1: (13, 129), 2: (14, 127), 4: (16, 125), 8: (20, 121)}),
    ],
)
def test_extra_activations(p: int, m: int, known: dict[int, tuple[int, int]]) -> None:
    problem = vee(p, m, F=1, B=1, W=1, BW=2, held_after_F=1, backward="fused")
    ours, *others = named([*knobs_of("olmo-core", problem, pulled_ahead(problem, 0))], EXTRA)
    found = {str(value): takes for _, _, value, _, _, takes in others if takes}
    assert {more: found[str(more)][::-2] for more in known} == known
    assert all(bound <= makespan for makespan, bound, _ in found.values())
    assert ours.takes
    least = min(makespan for makespan, *_ in found.values())
    assert ours.takes[0] == least
    extra = least_extra(problem)
    assert ours.value == extra
    for rank, more in enumerate(extra):  # one less on any rank takes longer
        fewer = [*extra[:rank], more - 1, *extra[rank + 1 :]]
        assert not more or pulled_ahead(problem, fewer).makespan > least


def test_extra_activations_within_memory() -> None:
    problem = vee(4, 8, F=1, B=1, W=1, BW=2, held_after_F=1, backward="fused").with_memory(7)
    ours, *others = named([*knobs_of("olmo-core", problem, pulled_ahead(problem, 0))], EXTRA)
    assert ours.value == [0, 0, 0, 0]  # with 7, the integer 1 is possible, and as long as 0
    assert [knob.value for knob in others] == [0, 1]
    assert max(peak_memory(problem, pulled_ahead(problem, 1))) == 7


def test_microbatches_of_olmo() -> None:
    problem = vee(4, 9, backward="fused")
    (knob,) = named([*knobs_of("olmo-core", problem, pulled_ahead(problem, 0))], "num_microbatches")
    assert knob.value == 9
    # 9 and 11 are no multiples of 2 rounds, 13 is none of 3
    assert "for any of 1–8, 10, 12, and so on" in knob.why


def test_groups_of_megatron() -> None:
    # 4 ranks, 12 microbatches: 5 leaves a group of 2, 9 to 11 one of 1 to 3
    problem = loop(4, 2, 12, F=1, B=1, W=1, BW=2, held_after_F=1, backward="fused")
    schedule = pipesat.schedule_of(problem, "interleaved-1f1b, groups of 6")
    knobs = [*knobs_of("megatron", problem, schedule)]
    sizes = named(knobs, "--microbatch-group-size-per-virtual-pipeline-stage")
    assert [knob.value for knob in sizes if knob.ours] == [6]
    assert sorted(knob.value for knob in sizes) == [4, 6, 7, 8, 12]  # type: ignore[type-var]
    # get_pp_rank_microbatches: 2 (p - 1 - r) + (v - 1) g
    assert [k.value for k in named(knobs, "num_warmup_microbatches")] == [[12, 10, 8, 6]]
    (counts,) = named(knobs, "num_microbatches")
    assert counts.value == 12
    assert "any of 6, 10–12, 16–18, 22" in counts.why


def test_a_pass_without_backwards_of_a_v() -> None:
    problem = vee(2, 4)
    (counts,) = named([*knobs_of("torch", problem, BASELINES["zb-v"](problem))], "n_microbatches")
    assert (counts.value, "no log-prob pass" in counts.why) == (4, True)
    problem = loop(2, 2, 4)
    order = BASELINES["interleaved-1f1b"](problem)
    (counts,) = named([*knobs_of("torch", problem, order)], "n_microbatches")
    assert "no log-prob pass" not in counts.why


def test_they_lie_beside_the_order_and_go_with_it(tmp_path: Path) -> None:
    problem = vee(2, 4)
    made = pipesat.export(problem, "zb-v", "torch", tmp_path / "x.csv")
    file = tmp_path / "x.knobs.json"
    document = json.loads(file.read_bytes())
    assert document["format"] == "pipesat.knobs/1"
    assert document["problem"] == problem.sha256
    assert document["knobs"] == [*made.knobs]
    assert [knob["knob"] for knob in made.knobs if knob["ours"]] == [ACTIVE, "n_microbatches"]
