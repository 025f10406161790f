"""Lengths that vary, recomputation and a limit: what a notebook says of them agrees with itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesat
import pipesat.solver.search
from pipesat import Stage
from pipesat.bounds.counting import Programme, least_of
from pipesat.compare.hand_written import hand_written
from pipesat.core.errors import BadInput, NotApplicable, ProblemWarning
from pipesat.problem.lengths import microbatches_from_lengths
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from tests.oracle.generator import FAMILIES, of_family

LENGTHS = [2002, 14000, 4096, 2500, 9000, 3100, 2048, 7900, 2700, 12000]
TIMES: dict[str, Any] = {
    "F": [100, 100, 100, 130],
    "B": [100, 100, 100, 130],
    "W": [100, 100, 100, 120],
}
HELD: dict[str, Any] = {
    "held_after_F": 1000,
    "held_after_B": 600,
    "time_unit": "ms",
    "memory_unit": "MiB",
}


def varying(memory: int | None = 5000, **more: Any) -> Problem:
    """Return the notebook's chain: 4 devices, a limit below 1F1B's need, lengths that vary."""
    listed = microbatches_from_lengths(LENGTHS, reference=6000, quadratic=0.2)
    own: dict[str, Any] = {"order": "same"} | TIMES | HELD | more
    return Problem.chain(devices=4, microbatches=listed, memory=memory, comm=2, **own)


def recomputing(memory: int = 5000, **more: Any) -> Problem:
    """Return the same with a mode that recomputes on every stage."""
    kept = {"name": "recompute", "backward": "fused", "held_after_F": 50, "held_in_backward": 1000}
    modes = [[kept | {"BW": time}] for time in (300, 300, 300, 380)]
    return varying(memory, modes=modes, **more)


@pytest.mark.parametrize("family", [*FAMILIES])
def test_starts_alone_are_as_good_as_every_hand_written_schedule_that_fits(family: str) -> None:
    for seed in range(2):
        document = of_family(family, f"starts {seed}", microbatches=(2, 6), ops=36)
        problem = parse_problem(document)
        rows = [row for row in hand_written(problem, "makespan") if row.valid]
        found = pipesat.solve(problem, time_limit=0.001, deterministic=True)
        best = min((row.makespan for row in rows if row.makespan is not None), default=None)
        assert best is None or (found.value is not None and found.value <= best)
        assert found.baseline is None or found.baselines_left_out or found.baseline.value == best


def test_one_name_has_one_value_in_compare_and_in_solve() -> None:
    problem = recomputing()
    rows = pipesat.compare(problem, search=False)
    found = pipesat.solve(problem, time_limit=0.3, deterministic=True)
    assert rows.best is not None
    assert found.baseline == (rows.best.name, rows.best.makespan)
    assert found.value is not None
    keeping = pipesat.solve(varying(), time_limit=0.3, deterministic=True)
    assert keeping.value is not None
    assert found.value <= keeping.value


def test_what_is_proven_before_all_were_made_is_compared_with_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipesat.solver.search, "_STARTS", 0.0)  # ends with the first that fits
    problem = Problem.chain(devices=2, microbatches=3, F=2, B=2, W=1, memory=9, held_after_F=3)
    found = pipesat.solve(problem, time_limit=20, workers=1)
    assert found.status == "optimal"
    assert found.baselines_left_out is (found.baseline is None or found.baseline[1] != found.value)


def test_counting_modes_ends_with_the_first_count_that_proves_nothing_new() -> None:
    """One variable x of cost 1 with x >= 3: nothing above 3 can come of any further programme."""
    made = []

    def programmes() -> Any:
        for least in (3, 5, 7):
            programme = Programme()
            programme.at_least({programme.variable(1, 9): 1}, least)
            made.append(least)
            yield programme

    assert least_of(programmes(), beyond=4) <= 4
    assert made == [3]
    assert least_of(programmes(), beyond=2) == 3


def test_torch_is_solved_for_where_recomputing_backwards_are_whole(tmp_path: Path) -> None:
    problem = recomputing(3000, backward="either")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is solved for torch is exported as it is
        found = pipesat.solve(problem, target="torch", time_limit=0.1, deterministic=True)
        made = found.export("torch", tmp_path / "schedule.csv")
    assert found.schedule is not None
    ops = [op for row in found.schedule.order for op in row if op.mode]
    assert {op.kind for op in ops} == {"F", "BW"}
    said = (tmp_path / "schedule.hazards.txt").read_text()
    assert ("The .modes.json beside it" in said) is ("It splits backwards" in said)
    assert "d9d (--for d9d)" in dict(found.facts())["Shapes"]
    assert any("padded to one shape" in note for note in made.notes)
    again = pipesat.schedule_of(problem, tmp_path / "schedule.csv")
    assert again.makespan == found.value


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ({"name": "host", "offload": {"out": 5, "in": 5, "held": 1}}, "torch offloads within"),
        ({"name": "again", "B": 300, "backward": "split", "held_after_F": 50}, "recompute twice"),
    ],
)
def test_torch_is_not_solved_for_with_modes_whose_times_it_changes(
    mode: dict[str, Any], expected: str
) -> None:
    with pytest.raises(NotApplicable, match=expected):
        pipesat.solve(varying(modes=[mode]), target="torch", time_limit=0.05)


def test_a_runtime_that_takes_every_shape_has_no_note_of_padding() -> None:
    found = pipesat.solve(varying(), target="d9d", time_limit=0.05, deterministic=True)
    assert not dict(found.facts())["Shapes"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_deal_has_the_problem_of_each_replica_to_solve(packed: bool) -> None:
    replica = Problem.chain(devices=4, microbatches=3 if packed else 5, **TIMES | HELD)
    about: dict[str, Any] = {"reference": 6000, "quadratic": 0.2, "replicas": 2, "time_limit": 0.2}
    if packed:
        about["tokens"] = 30000
    dealt = pipesat.balance(replica, lengths=LENGTHS, **about)
    for problem, makespan in zip(dealt.problems, dealt.makespans, strict=True):
        assert pipesat.schedule_of(problem, "1f1b").makespan == makespan
        assert Problem.from_document(problem.document) == problem
        assert problem.order == "same"
    said = dict(dealt.facts())["Sequences"]
    assert said.startswith(
        "replica 0: " + " ".join("+".join(map(str, m)) for m in dealt.replicas[0])
    )
    with pytest.raises(BadInput, match="no picture"):
        dealt.plot()
    assert dealt._repr_html_()


PACKED: dict[str, Any] = {
    "lengths": [2048] * 6,
    "reference": 6144,
    "quadratic": Fraction(1, 3),
    "replicas": 1,
    "time_limit": 0.1,
}


def test_a_microbatch_of_several_sequences_has_the_sum_of_their_integers() -> None:
    """Each a third as long: of 1 it takes, holds and is late by 1."""
    replica = Problem.chain(devices=2, microbatches=2, F=1, B=1, W=10**4, held_after_F=1, comm=1)
    (problem,) = pipesat.balance(replica, **PACKED).problems
    own, link = problem.resulting(0), problem.link_of_class(0, 0)
    third = -(-(10**4 * 7) // 27)  # 2 / 3 of 1 / 3, and 1 / 3 of its square, as n / 10^4
    assert (own.F, own.B, own.W, own.held_after_F) == (3, 3, 3 * third, 3)
    assert link is not None
    assert (link.F, link.B) == (3, 3)
    assert Problem.from_document(problem.document) == problem


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"modes": [{"name": "again", "B": 2, "held_after_F": 0}]}, "stage 0.*with modes"),
        ({"comm": [1, 1000]}, "no factor gives the delays of a microbatch of several"),
    ],
)
def test_problems_of_a_deal_that_no_file_states_are_refused(
    more: dict[str, Any], expected: str
) -> None:
    replica = Problem.chain(
        devices=3, microbatches=2, **dict.fromkeys("FBW", 1) | {"held_after_F": 1} | more
    )
    dealt = pipesat.balance(replica, **PACKED)
    with pytest.raises(BadInput, match=expected):
        dealt.problems  # noqa: B018


def test_a_list_is_dealt_into_problems_of_its_own_classes() -> None:
    dealt = pipesat.balance(varying(None), replicas=2, time_limit=0.2)
    values = [pipesat.schedule_of(problem, "1f1b").makespan for problem in dealt.problems]
    assert values == [*dealt.makespans]


def test_a_deal_that_does_not_fit_says_what_to_do() -> None:
    """On device 0 the longest lies beside three others: 2334 and 334 + 342 + 417 at least."""
    tight = pipesat.balance(varying(3400), replicas=2, time_limit=0.1)
    assert "within memory" in dict(tight.facts())["Step"]
    assert "with_memory(None)" in dict(tight.facts())["Instead"]
    with pytest.raises(BadInput, match="no assignment was found that fits under 1f1b within mem"):
        tight.problems  # noqa: B018
    dealt = pipesat.balance(varying(None), replicas=2, time_limit=0.1)
    one = dealt.problems[0].with_memory(3400)
    assert pipesat.solve(one, time_limit=0.05, deterministic=True).value


def test_what_does_not_fit_is_said_of_the_order_given() -> None:
    found = pipesat.solve(varying(4000), time_limit=0.01, deterministic=True)
    said = "1F1B in the order given does not fit into memory"
    assert dict(found.facts())["Gain"].endswith(said)
    ample = pipesat.solve(varying(None), time_limit=0.01, deterministic=True)
    assert " than 1F1B in the order given (" in dict(ample.facts())["Gain"]


def test_a_comparison_is_printed_as_a_table_with_all_that_is_over_capacity() -> None:
    printed = repr(pipesat.compare(varying(4000, order="given"), search=False))
    lines = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert lines["1f1b"].endswith("over capacity")
    assert not lines["list-scheduling"].endswith("over capacity")
    assert "memory in MiB" not in printed  # each cell has its unit


def test_memory_that_is_rounded_up_is_remarked() -> None:
    """Lengths of 0.33 to 2.33 times the reference: an amount of 1 becomes 1, 2 or 3."""
    with pytest.warns(ProblemWarning, match="scaled amounts held are rounded up"):
        coarse = varying(5, held_after_F=1, held_after_B=1)
    assert len(coarse.remarks) == 1
    assert not varying().remarks
    assert not varying(None, held_after_F=1, held_after_B=1).remarks


AGAIN = {"name": "recompute", "backward": "fused", "BW": 300, "held_after_F": 50}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: varying(modes=["recompute"]), r"modes: got 'recompute', .*docs/memory.md"),
        (lambda: varying().with_microbatches(LENGTHS), "microbatches_from_lengths"),
        (lambda: varying(recompute=True), "Problem.chain has no argument 'recompute'; .*`modes`"),
        (lambda: varying(held_after_f=1), "'held_after_f'; the nearest is held_after_F"),
        (lambda: varying(backward=["fused", "either"]), "backward: 2 values, expected 4"),
        (lambda: microbatches_from_lengths(LENGTHS, float("nan")), "reference: got "),
        (
            lambda: pipesat.balance(varying(), lengths=LENGTHS, reference=6000, replicas=2),
            r"how many a replica has, as with_microbatches\(10\)",
        ),
    ],
)
def test_a_slip_is_answered_by_what_is_meant(call: Callable[[], Any], expected: str) -> None:
    with pytest.raises((BadInput, TypeError), match=expected):
        call()


def test_what_everybody_passes_is_taken() -> None:
    exact = microbatches_from_lengths(LENGTHS, 6000, 0.2)
    assert microbatches_from_lengths(LENGTHS, 6000.4, "20%") == exact
    mean = pipesat.balance(
        varying(), lengths=LENGTHS, reference=6000.4, schedules=["1f1b"], time_limit=0.1
    )
    assert mean.about["lengths"]["reference"] == 6000
    stages = [
        Stage(device=0, F=100, B=100, W=100, held_after_F=1000, modes=(AGAIN,))  # type: ignore[arg-type]
    ]
    made = Problem.from_stages(stages, microbatches=2)
    assert made.stages[0].modes[0].name == "recompute"
    per_stage = varying(backward=["fused", "either", "either", "split"])
    assert [stage.backward for stage in per_stage.stages] == ["fused", "either", "either", "split"]
    assert not pipesat.check(varying(), "list-scheduling, ascending")
    assert pipesat.check(varying(4000), "1f1b")
