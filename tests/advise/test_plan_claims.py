"""Every claim of ``pipesat plan`` against an oracle that shares no code with it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from pipesat.advise.plan import concluded
from pipesat.advise.plan_search import Search
from pipesat.check.checker import check
from pipesat.core.claims import Bound
from pipesat.core.errors import BadInput, Infeasible
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.partition import partition_of
from tests.oracle.plan_claims import PLACEMENTS, RECOMPUTE, judged, violations
from tests.oracle.plans import Case, Choice, Shape
from tests.support.plans import entry, layers_of, planned, searched

KINDS = [*product(PLACEMENTS, RECOMPUTE)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize(("placement", "recompute"), KINDS)
def test_no_claim_is_false(placement: str, recompute: str, seed: int, tmp_path: Path) -> None:
    number = KINDS.index((placement, recompute)) + seed
    assert judged(number, placement, recompute, tmp_path)[1] == []


def test_the_oracle_by_hand() -> None:
    """Two stages of F 2, B 3, W 1 that hold 2 where 2 fit: F B W, then the next, 11 each (m = 2).

    A microbatch is on the first device for F 2, then 5 on the second, then B 3 and W 1; with room
    for one, W has to run before the next F.
    """
    layers = [{"F": 2, "B": 3, "W": 1, "held_after_F": 2, "held_after_B": 1}] * 2
    case = Case({"layers": layers}, devices=2, microbatches=2, capacities=[2, 2])
    (choice,) = case.choices(case.shapes[0])
    assert case.optimum(choice) == 22
    case = Case({"layers": layers}, devices=2, microbatches=2, capacities=[1, 2])
    assert case.optimum(choice) is None


def test_the_oracle_notices_what_is_false() -> None:
    layers = [{"F": 2, "B": 3, "W": 1, "recompute": {"F": 1, "B": 1, "W": 1}}] * 2
    case = Case({"layers": layers}, devices=1, microbatches=1, capacities=[None])
    best = case.optimum(Choice(Shape("chain", (0,)), (2,), (False,)))
    assert best == 2 * (2 + 3 + 1)
    false = "value 6, the optimum is 12"
    found = {
        "value": 6,
        "lower_bound": 6,
        "gap": 0.0,
        "status": "optimal",
        "considered": [],
        "shape": {"placement": "chain"},
        "comparison": [],
        "devices": [{"static": 0}],
        "stages": [
            {
                "stage": 0,
                "layers": [0, 1],
                "recompute": True,
                "F": 2,
                "B": 2,
                "W": 2,
                "BW": 4,
                "held_after_F": 0,
                "held_after_B": 0,
            }
        ],
        "result": {"status": "optimal", "value": 6, "lower_bound": 6},
    }
    told = [*violations(case, 0, found, "")]
    assert told[0] == false
    assert "--recompute never, but the plan recomputes (True,)" in told


# The choice of recomputation

BETTER_AGAIN = {"recompute": {"F": 1, "B": 1, "W": 1, "held_after_F": 0}}
TEMPTING = [entry(2, 3, 1, 4) | BETTER_AGAIN for _ in range(4)]  # shorter and smaller


@pytest.mark.parametrize("choice", ["never", "always", "where-needed", "choose"])
def test_a_candidate_has_the_flags_that_the_choice_allows(choice: str) -> None:
    """Three layers, the middle one without a variant, alone on a stage; 1F1B's first stage is full.

    It holds 3 microbatches of 4 in a room of 8, the others 2 and 1.
    """
    entries = [TEMPTING[0], entry(2, 3, 1, 4), TEMPTING[0]]
    shape = Pipeline(devices=3, microbatches=3, memory=8)
    question = searched(layers_of(entries), [shape], recompute=choice).question
    parts = partition_of((0, 1, 2, 3))
    wanted = product((False, True), repeat=3)
    settled = {question.settled(shape, parts, some) for some in wanted}
    flags = {question.candidate(shape, parts, some).flags for some in settled}
    assert (
        flags
        == {
            "never": {(False, False, False)},
            "always": {(True, False, True)},
            "where-needed": {(True, False, False)},
            "choose": {(one, False, last) for one in (False, True) for last in (False, True)},
        }[choice]
    )


def test_what_recomputes_is_a_memory_mode_of_its_stage() -> None:
    """Two stages of a layer or two that keep 4 or 1 per layer and microbatch, in a room of 5.

    The bound is of the problem with the choice, so it may not exceed the best of any choice.
    """
    again = {"F": 2, "B": 5, "W": 1, "held_after_F": 1}
    entries = [entry(2, 3, 1, 4) | {"recompute": again} for _ in range(3)]
    shape = Pipeline(devices=2, microbatches=3, memory=5)
    plan = planned(layers_of(entries), [shape], recompute="choose")
    assert plan.chosen is not None
    assert plan.result is not None
    assert plan.result.schedule is not None
    problem, schedule = plan.result.problem, plan.result.schedule
    assert problem.mode_choice == "stage"
    for stage, part in zip(problem.stages, plan.chosen.partition, strict=True):
        n = len(part)
        assert (stage.F, stage.B, stage.W, stage.held_after_F) == (2 * n, 3 * n, n, 4 * n)
        (mode,) = stage.modes
        stated = {"F": 2 * n, "B": 5 * n, "W": n, "BW": 6 * n, "held_after_F": n}
        assert dict(mode.stated) == stated | {"held_after_B": 0}
    flags = plan.chosen.flags
    assert any(flags)
    assert schedule.modes == {(s, m): 1 for s, flag in enumerate(flags) if flag for m in range(3)}
    assert check(problem, schedule) == []
    assert plan.result.value == plan.value
    case = Case({"layers": entries}, 2, 3, recompute="choose", capacities=[5, 5])
    every = {c: case.optimum(c) for s in case.shapes for c in case.choices(s)}
    counts = tuple(map(len, plan.chosen.partition))
    best = min(v for c, v in every.items() if v is not None and c.counts == counts)
    assert plan.result.lower_bound is not None
    assert plan.result.lower_bound <= best <= plan.value  # type: ignore[operator]


# What cannot be stated or does not hold


def test_partitions_that_no_problem_can_state_keep_the_bound_low() -> None:
    """Held amounts of 4e11 on four layers: a stage of three is beyond 10^12, unlike two of two.

    One stage of 9 and one of 3 microbatch forwards would be better than 10 and 2, so the plan may
    not call 10 and 2 the best of all partitions.
    """
    entries = [entry(F, 0, 0, 4 * 10**11) for F in (9, 1, 1, 1)]
    plan = planned(layers_of(entries), [Pipeline(devices=2, microbatches=3)], time_limit=5.0)
    assert plan.chosen is not None
    assert [len(part) for part in plan.chosen.partition] == [2, 2]
    assert plan.value == 3 * 10 + 2
    small = layers_of([entry(F, 0, 0, 4) for F in (9, 1, 1, 1)])
    best = planned(small, [Pipeline(devices=2, microbatches=3)])
    assert best.value == 3 * 9 + 3
    assert plan.status == "feasible"
    assert plan.bound is not None
    assert plan.bound.value <= best.value
    assert not plan.complete


def test_layers_that_take_no_time_may_hold_nothing() -> None:
    """The second layer would hold 5 of 4, for an interval of length zero; the first takes 2 x 6."""
    layers = layers_of([entry(2, 3, 1, 1), entry(0, 0, 0, 5)])
    plan = planned(layers, [Pipeline(devices=2, microbatches=2, memory=4)])
    assert (plan.status, plan.value) == ("optimal", 12)


def test_nothing_fits_though_arithmetic_on_layers_does_not_see_it() -> None:
    """A layer without time holds while the one after it runs: all partitions have to be seen."""
    layers = layers_of([entry(0, 0, 0, 5), entry(2, 3, 1, 1)])
    with pytest.raises(Infeasible, match="every one was looked at"):
        planned(layers, [Pipeline(devices=2, microbatches=2, memory=4)])


@pytest.mark.parametrize("placement", ["chain", "vee"])
def test_flags_that_leave_no_partition_are_bad_input(placement: str) -> None:
    entries = [entry(1, 1, 1, name="a"), *[entry(1, 1, 1) for _ in range(3)]]
    entries[1] |= {"tied_to": "a", "weights": 1}
    shape = Pipeline(devices=2, microbatches=1, placement=placement)  # type: ignore[arg-type]
    if placement == "chain":
        entries[3] |= {"tied_to": "a", "weights": 1}
    with pytest.raises(BadInput, match="leave"):
        planned(layers_of(entries), [shape])


def searched_through() -> Search:
    search = searched(layers_of(TEMPTING), [Pipeline(devices=2, microbatches=3)])
    search.bound_shapes()
    search.propose(0.25)
    return search


def test_a_refuted_proof_is_dropped_and_the_schedule_kept() -> None:
    search = searched_through()
    assert search.best is not None
    assert search.value is not None
    search.best.bound = Bound(search.value + 1, "a wrong argument")
    plan = concluded(search)
    assert plan.status == "feasible"
    assert plan.bound is None
    assert plan.standing.gap is None
    assert plan.result is not None
    assert plan.result.lower_bound is None
    assert plan.result.schedule is not None
    (text,) = plan.contradictions
    assert f"a wrong argument says at least {search.value + 1}" in text
    assert any("no bound is claimed" in remark for remark in plan.doubts)


def test_a_candidate_of_rows_alone_is_never_the_plan() -> None:
    """Its first microbatches recompute, or it offloads: the search's own has the same key."""
    layers, shape = layers_of(TEMPTING), Pipeline(devices=2, microbatches=2)
    search = searched(layers, [shape])
    partition = partition_of((0, 2, 4))
    own = search.consider(shape, partition, (False, False), "")
    assert own is not None
    other = search.question.candidate(shape, partition, first=1)
    assert (other.key, other is own) == (own.key, False)
    search.offer(other, list_scheduling(other.problem))
    assert other.value is not None
    assert search.best is None
    search.offer(own, list_scheduling(own.problem))
    assert search.best is own
