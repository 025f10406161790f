"""torch's CSV: lint, adaptation, loaders, and reading back. Nothing here needs torch itself."""

from __future__ import annotations

from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from pipesat.check.checker import check
from pipesat.compare.solve import solve
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Op, members
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.runtimes import EXPORTERS, problem_for
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.csv_file import read_torch_csv, rows_of_csv, torch_csv
from pipesat.runtimes.torch.hazards import hazards_text, makespan_in_turn
from pipesat.runtimes.torch.lint import lint, lint_waits, parse_cell
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.support.orders import order_of
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain, document, vee

Save = Callable[..., Path]

# Two ranks, two stages, two microbatches; every cell is where a rule can be broken.
GOOD = "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1\n"


def complaints(text: str, stages: int = 2, microbatches: int = 2) -> list[str]:
    return [str(c) for c in lint(rows_of_csv(text, "file"), stages, microbatches)]


@pytest.mark.parametrize("text", ["0F0junk", "f0F0", "0f0", "00F1", "0F", "(0F1)", "0BW0", "-1F0"])
def test_junk_is_refused_though_torch_takes_some_of_it(text: str) -> None:
    with pytest.raises(ValueError, match="no action"):
        parse_cell(text)


@pytest.mark.parametrize(
    "text",
    ["", "0SEND_F1", "3RECV_B0", "1UNSHARD", "0REDUCE_GRAD", "2WAIT_SEND_B1", "0WAIT_REDUCE_GRAD"],
)
def test_idle_cells_and_communication_compute_nothing(text: str) -> None:
    assert parse_cell(text) is None


@pytest.mark.parametrize(
    ("row", "expected"),
    [  # as torch 2.15 says it: _validate_send_waits, _prepare_schedule_with_comms
        ("0SEND_F0,0WAIT_SEND_F0,0REDUCE_GRAD,1SEND_B0,0WAIT_REDUCE_GRAD,1WAIT_SEND_B0", None),
        ("0SEND_F0,0REDUCE_GRAD", None),  # 2.13 knows no waits
        ("0SEND_F0,1SEND_B0,0WAIT_SEND_F0", "cell 2: nothing waits for 1SEND_B0, as torch wants"),
        ("0WAIT_SEND_F0,0SEND_F0", "cell 1: 0WAIT_SEND_F0 waits for no 0SEND_F0 before it"),
        ("0SEND_F0,0SEND_F0,0WAIT_SEND_F0", "cell 2: 0SEND_F0 begins before 0SEND_F0 is waited"),
        ("0REDUCE_GRAD,1REDUCE_GRAD,1WAIT_REDUCE_GRAD", "cell 2: 1REDUCE_GRAD begins before 0RE"),
        ("0REDUCE_GRAD,1SEND_F0,1WAIT_SEND_F0", "cell 1: nothing waits for 0REDUCE_GRAD"),
    ],
)
def test_a_dump_is_judged_by_the_release_whose_actions_it_has(
    row: str, expected: str | None
) -> None:
    found = next((str(one) for one in lint_waits([row.split(",")])), None)
    assert found is None if expected is None else str(found).startswith(f"row 1, {expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0F0,0F1,0F0,0B0,0B1\n" + GOOD.split("\n")[1], "row 1, cell 3: 0F0 stands twice, first"),
        ("0F0,0F1,0B0\n" + GOOD.split("\n")[1], "row 1: 0B1 is missing"),
        ("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1B1\n", "row 2: 1W0 is missing"),
        ("0F0,0F1,0F2,0B0,0B1\n" + GOOD.split("\n")[1], "row 1, cell 3: 0F2 names microbatch 2"),
        ("0F0,0F1,0B0,0B1,2F0\n" + GOOD.split("\n")[1], "row 1, cell 5: 2F0 names stage 2 of 2"),
        ("0F0,0F1,0B0,0B1\n1F0,1W0,1I0,1F1,1B1\n", "row 2, cell 2: 1W0 stands before 1I0 (cell 3"),
        ("0B0,0F0,0F1,0B1\n1F0,1I0,1W0,1F1,1B1\n", "row 1, cell 1: 0B0 stands before 0F0 (cell 2"),
        ("0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1B0,1F1,1B1\n", "row 2, cell 2: 1I0, but 1B0 is the whol"),
        ("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n", "row 2, cell 1: 1F1: the last stage must run its"),
        ("0F0,0B1,0F1,0B0\n1F0,1I0,1W0,1F1,1B1\n", "row 1, cell 2: 0B1 stands before 0F1"),
        ("0F0,0F1,0B0,0B1\n\n", "row 2: this rank has no action"),
        ("0F0,0F1,0B0,0B1\n0F0\n", "the file: 1F0 is missing"),
    ],
)
def test_each_broken_rule_names_its_cell(text: str, expected: str) -> None:
    found = complaints(text)
    assert any(c.startswith(expected) for c in found), found


def test_a_cycle_across_ranks_is_named() -> None:
    # rank 0 waits for the gradient of microbatch 0 before it sends the activation of 1, which
    # rank 1 wants before it starts that backward
    (found,) = complaints("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")
    for member in ("0B0 (row 1, cell 2)", "0F1 (row 1, cell 3)", "1F1 (row 2, cell 2)"):
        assert member in found
    assert "these wait for each other" in found


@pytest.mark.parametrize("seed", range(60))
def test_an_order_is_refused_exactly_where_some_of_it_waits_in_a_cycle(seed: int) -> None:
    """Three ranks, each with the F's in turn and each BW anywhere after its own F; by graphlib."""
    rng, m = Random(seed), 3
    rows = []
    for rank in range(3):
        row = [f"{rank}F{number}" for number in range(m)]
        for number in rng.sample(range(m), m):
            row.insert(rng.randint(row.index(f"{rank}F{number}") + 1, len(row)), f"{rank}B{number}")
        rows.append(row)
    waits = TopologicalSorter[str]()
    for rank, row in enumerate(rows):
        for before, after in pairwise(row):
            waits.add(after, before)
        for number in range(m):
            if rank:
                waits.add(f"{rank}F{number}", f"{rank - 1}F{number}")
                waits.add(f"{rank - 1}B{number}", f"{rank}B{number}")
    try:
        waits.prepare()
        stuck = False
    except CycleError:
        stuck = True
    found = complaints("".join(f"{','.join(row)}\n" for row in rows), stages=3, microbatches=m)
    assert ["these wait for each other" in text for text in found] == [True] * stuck


def test_the_last_stage_s_forwards_are_put_in_order_by_relabelling() -> None:
    problem = chain(2, 2)
    order = order_of("0F1 0F0 0B1 0W1 0B0 0W0", "1F1 1B1 1W1 1F0 1B0 1W0")
    adapted = adapt(problem, time_order(problem, order))
    # 1B1 ends at 6 and 0BW1 at 8; fused with its W it would end at 7, so stage 1 stays split
    expected = "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n"
    assert torch_csv(problem, adapted.schedule) == expected
    assert adapted.changes[0].startswith("microbatches relabelled")


def test_the_first_stage_s_backward_is_written_whole() -> None:
    problem = chain(2, 1)
    schedule = time_order(problem, order_of("0F0 0B0 0W0", "1F0 1B0 1W0"))
    adapted = adapt(problem, schedule)
    assert torch_csv(problem, adapted.schedule).splitlines()[0] == "0F0,0B0"
    # where it must be split, torch gets I and W as they are, and the hazards say so
    split = chain(2, 1, backward="split")
    same = adapt(split, time_order(split, schedule.order))
    assert torch_csv(split, same.schedule).splitlines()[0] == "0F0,0I0,0W0"
    assert "torch does nothing in that I" in hazards_text(split, same.schedule)


def test_adjacent_b_and_w_are_fused_only_where_that_costs_nothing() -> None:
    # Stage 1 is last: fused, its gradient leaves W = 1 later, and stage 0's backward waits for it.
    problem = chain(2, 1)
    schedule = time_order(problem, order_of("0F0 0BW0", "1F0 1B0 1W0"))
    assert torch_csv(problem, adapt(problem, schedule).schedule).splitlines()[1] == "1F0,1I0,1W0"
    # With BW = B, fusing costs nothing.
    cheap = chain(2, 1, BW=1)
    schedule = time_order(cheap, order_of("0F0 0BW0", "1F0 1B0 1W0"))
    assert torch_csv(cheap, adapt(cheap, schedule).schedule).splitlines()[1] == "1F0,1B0"


def test_an_adapted_order_over_the_capacity_is_refused() -> None:
    # Room for one activation of stage 0 (2) beside one part that waits for its W (1): fused,
    # 0BW0 can stand at B's place only after 0F1 started, at W's place it holds 2 + 2.
    problem = chain(2, 2, cap=3, held=(2, 1))
    tight = parse_problem(document(problem, devices=[{"memory": 3}, {"memory": 9}]))
    order = order_of("0F0 0B0 0F1 0W0 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1")
    schedule = time_order(tight, order)
    assert check(tight, schedule) == []
    assert check(tight, adapt(tight, schedule).schedule) == []
    late = order_of("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1")
    with pytest.raises(NotApplicable, match="torch's order of this schedule is not valid: memory"):
        adapt(tight, time_order(tight, late))


def test_torch_runs_one_route_and_needs_a_stage_on_every_rank() -> None:
    problem = chain(2, 1, device=0)
    schedule = BASELINES["list-scheduling"](problem)
    with pytest.raises(NotApplicable, match="device 1 has none"):
        adapt(problem, schedule)
    one = {"F": 1, "B": 1, "W": 1}
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": [{"device": 0} | one, {"device": 1} | one],
            "routes": [{"stages": [s], "microbatches": 1} for s in (0, 1)],
        }
    )
    schedule = BASELINES["list-scheduling"](problem)
    with pytest.raises(NotApplicable, match="one route of stages, this problem has 2"):
        adapt(problem, schedule)


def test_an_exact_export_gives_back_the_imported_file(cli: Run, save: Save, tmp_path: Path) -> None:
    """Split where it could be whole, in a folder of its own; else it would be fused."""
    path, problem = tmp_path / "order.csv", save(chain(2, 2))
    path.write_text("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n")
    cli("export", problem, path, "--to", "schedule", "-o", tmp_path / "s.json")
    words = ["export", problem, tmp_path / "s.json", "--to", "torch-csv", "-o", f"{tmp_path}/out/"]
    assert cli(*words, "--to", "exact").code == 0
    assert (tmp_path / "out" / "schedule.csv").read_text() == path.read_text()
    assert cli(*words).code == 0
    assert "0B0" in (tmp_path / "out" / "schedule.csv").read_text()
    words[4] = "trace"
    one_bad_line(cli(*words, "--to", "exact"), "--to exact: trace has no place for it")


def test_an_exact_export_refuses_what_torch_cannot_run() -> None:
    problem = chain(2, 2)
    swapped = order_of("0F1 0F0 0BW1 0BW0", "1F1 1BW1 1F0 1BW0")
    with pytest.raises(NotApplicable, match=r"microbatch 1 where torch needs 0.*Unless it is to"):
        adapt(problem, time_order(problem, swapped), exact=True)


def test_what_an_import_changes_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    path.write_text(
        "0UNSHARD,0F0,(0F1;0B0)OVERLAP_F_B,(0B1;0F2)OVERLAP_F_B,(0F3;0I2)OVERLAP_F_B, 0W2,,0B3,"
        "0REDUCE_GRAD\n"
    )
    problem = chain(1, 4)
    plain = read_torch_csv(path, problem)
    in_turn, skipped = plain.notes
    assert in_turn.startswith("overlapped cells put in turn: 3. A pair is one F and one B")
    assert skipped.startswith("left out actions that compute nothing, 2 of them")
    assert plain.schedule.order == order_of("0F0 0F1 0BW0 0BW1 0F2 0F3 0B2 0W2 0BW3")
    paired = parse_problem(document(problem, overlap={"FB": [3, 4]}))
    other, turned, *rest = read_torch_csv(path, paired).notes
    assert other.startswith("overlapped cells put in turn: 1.")
    assert turned.startswith("overlapped cells written backward first: 1")
    assert rest == [skipped]
    path.write_text("0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n")
    assert read_torch_csv(path, problem).notes == ()


def test_a_cell_in_turn_by_hand() -> None:
    """Two ranks, F = 4, BW = 6. Rank 0's cell waits at 8 for both its forward and its backward.

    Rank 1: 1F0 4-8, 1BW0 8-14, 1F1 14-18. In stock torch 0F2 runs 8-12, 0BW0 14-20, and 0F2's
    result is sent at 20: 1F2 20-24, 1BW1 24-30, 1BW2 30-36, 0BW2 36-42. With ops of their own it is
    sent at 12: 1F2 18-22, all else 2 earlier. A pair that takes 10 runs 14-24: all 4 later.
    """
    problem = parse_problem(document(chain(2, 3, F=4, B=3, W=3), overlap={"FB": [1, 1]}))
    rank_1 = "1F0 1BW0 1F1 1F2 1BW1 1BW2"
    cell = order_of("0F0 0F1 (0F2+0BW0) 0BW1 0BW2", rank_1)
    apart = order_of("0F0 0F1 0F2 0BW0 0BW1 0BW2", rank_1)
    assert makespan_in_turn(problem, cell) == 42
    assert makespan_in_turn(problem, apart) == time_order(problem, apart).makespan == 40
    assert time_order(problem, cell).makespan == 46


@pytest.mark.parametrize(("F", "B", "W", "comm"), [(1, 1, 1, 0), (20, 22, 13, 5), (7, 1, 2, 3)])
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 6), (4, 9)])
def test_in_turn_lies_between_two_replays(
    p: int, m: int, F: int, B: int, W: int, comm: int
) -> None:
    """Not before the members as ops of their own; not after pairs that take the sum of both."""
    costs = {"comm": {"default": comm}, "overlap": {"FB": [1, 1]}}
    problem = parse_problem(document(vee(p, m, F=F, B=B, W=W), **costs))
    order = BASELINES["dualpipev"](problem).order
    apart = tuple(tuple(op for item in row for op in members(item)) for row in order)
    assert apart != order
    least, most = (time_order(problem, rows).makespan for rows in (apart, order))
    assert least <= makespan_in_turn(problem, order) <= most
    assert makespan_in_turn(problem, apart) == least


def test_stages_that_are_renumbered_are_named() -> None:
    stages = [{"device": d, "F": 1, "B": 1, "W": 1} for d in (1, 0)]
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": stages,
            "routes": [{"stages": [1, 0], "microbatches": 2}],
        }
    )
    exported = EXPORTERS["torch"](problem, BASELINES["1f1b"](problem))
    assert exported.data.decode().startswith("0F0,")
    assert exported.notes == ("stages renumbered along the route: 1 is 0, 0 is 1",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0F0,0X0\n1F0\n", "row 1, cell 2: '0X0' is no action"),
        ("0F0,0B0\n", "1 rows, expected 2, one per rank"),
        ("1F0,1B0\n0F0,0B0\n", "row 1, cell 1: 1F0 runs on rank 0, but the problem places stage 1"),
        ("0F0\n1F0,1B0\n", "row 1: 0B0 is missing"),
        ("0F0,0B0,1B0\n1F0\n", "row 1, cell 3: 1B0 runs on rank 0, but the problem places stage 1"),
    ],
)
def test_bad_files_are_refused_with_their_cell(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "order.csv"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_torch_csv(path, chain(2, 1))
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)


def test_solving_for_torch_is_optimal_for_what_torch_runs() -> None:
    problem = chain(3, 5, F=2, B=2, W=2, cap=6, held=(2, 1))
    result = solve(problem, time_limit=30, workers=1, deterministic=True, target="torch")
    assert result.status == "optimal"
    assert result.schedule is not None
    assert result.problem is problem
    assert result.document()["for"] == "torch"
    assert check(problem, result.schedule) == []
    first = {t.item.kind for t in result.schedule.devices[0] if isinstance(t.item, Op)}
    assert first == {"F", "BW"}
    # what runs is what was proven: export changes nothing that costs time
    assert adapt(problem, result.schedule).schedule.makespan == result.value
    # the free problem can only be better
    free = solve(problem, time_limit=30, workers=1, deterministic=True)
    assert free.value is not None
    assert result.value is not None
    assert free.value <= result.value


def test_solving_for_torch_says_what_torch_cannot_run() -> None:
    with pytest.raises(NotApplicable, match="torch runs the first stage's backward whole"):
        problem_for(chain(2, 2, backward="split"), "torch")
    with pytest.raises(NotApplicable, match="device 1 has none"):
        problem_for(chain(2, 1, device=0), "torch")
