"""Overlapped pairs through everything that handles schedules. Contract, section 2, `overlap`."""

from __future__ import annotations

import json
import re
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.check.checker import check
from pipesat.core.errors import BadInput, Deadlock, NotApplicable
from pipesat.draw.device_rows import rows_of
from pipesat.draw.text import text_grid
from pipesat.problem.ops import KINDS, Item, Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.problem.rules import in_order, pair_time
from pipesat.runtimes import EXPORTERS
from pipesat.runtimes.hangs.verdict import verdict
from pipesat.runtimes.steps import steps_of
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.csv_file import read_torch_csv, rows_of_csv, torch_csv
from pipesat.runtimes.torch.hazards import hazards_text
from pipesat.runtimes.torch.lint import lint
from pipesat.schedule.metrics import bubbles, measure, memory_profiles, pair_counts, peak_memory
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import read_schedule, write_schedule
from pipesat.schedule.timing import critical_path, time_order
from tests.support.greedy import by_each_policy
from tests.support.orders import order_of
from tests.support.problems import chain, document, problems


def with_overlap(problem: Problem, num: int, den: int) -> Problem:
    return parse_problem(document(problem, overlap={"FB": [num, den]}))


# One device, F = 4, BW = 6; the pair lasts max(4, 6, ceil(10 * 3 / 4)) = 8: 0-4, 4-12, 12-18.
ALONE = with_overlap(chain(1, 2, F=4, B=3, W=3, held=(5, 2)), 3, 4)
ALONE_ORDER = order_of("0F0 (0F1+0BW0) 0BW1")
ALONE_TIMED = time_order(ALONE, ALONE_ORDER)


def crossing() -> tuple[Problem, Schedule]:
    """A pair that waits for both members of one pair, over links of different delays.

    Route 0 goes 0 -> 1, route 1 goes 2 -> 3, back over the same devices; stage 4 is a route of its
    own on device 1. F 1, BW 2, pairs 3; stage 4: F 4, BW 4. Device 1 runs 2F0 0-1, 4F0 1-5, 4BW0
    5-9; device 0 runs 3F0 1-2 and its pair 2-5. The activation arrives at 5 + 10, the gradient at
    5 + 3: device 1's pair runs 15-18, 1BW0 18-20, 0BW0 20-22.
    """
    one = {"F": 1, "B": 1, "W": 1}
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": [{"device": d} | one for d in (0, 1, 1, 0)]
            + [{"device": 1, "F": 4, "B": 2, "W": 2}],
            "routes": [{"stages": stages, "microbatches": 1} for stages in ([0, 1], [2, 3], [4])],
            "comm": {"edges": [{"src": 0, "dst": 1, "F": 10}, {"src": 2, "dst": 3, "B": 3}]},
            "overlap": {"FB": [1, 1]},
        }
    )
    order = order_of("3F0 (0F0+3BW0) 0BW0", "2F0 4F0 4BW0 (1F0+2BW0) 1BW0")
    return problem, time_order(problem, order)


@st.composite
def paired_schedules(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """Random problems with `overlap`, and list schedules of them with neighbours made pairs."""
    problem = draw(problems(max_devices=3, max_stages=5, max_microbatches=4))
    kinds = [
        (f"{a}{x}", f"{b}{y}")
        for stages in problem.stages_on
        for a, b in combinations_with_replacement(stages, 2)
        for x, y in product(KINDS, KINDS)
        if a != b or KINDS.index(x) <= KINDS.index(y)
    ]
    entries = st.tuples(st.sampled_from(kinds), st.integers(1, 9), st.booleans())
    listed = draw(st.lists(entries, max_size=6, unique_by=lambda entry: entry[0]))
    pairs = [{"ops": [*ops[:: -1 if turn else 1]], "time": t} for ops, t, turn in listed]
    factor = [draw(st.integers(1, 5)), draw(st.integers(1, 5))]
    problem = parse_problem(document(problem, overlap={"FB": factor, "pairs": pairs}))
    rows = [list(row) for row in draw(st.sampled_from(list(by_each_policy(problem)))).order]
    for device, row in enumerate(rows):
        index = 0
        while index + 1 < len(row):
            pair = pair_of(problem, row[index], row[index + 1])
            if pair is not None and draw(st.booleans()):
                tried = [*row[:index], pair, *row[index + 2 :]]
                if runs(problem, [*rows[:device], tried, *rows[device + 1 :]]):
                    row[:] = tried
            index += 1
    return problem, time_order(problem, tuple(map(tuple, rows)))


def pair_of(problem: Problem, a: Item, b: Item) -> Pair | None:
    if not (isinstance(a, Op) and isinstance(b, Op)) or pair_time(problem, a, b) is None:
        return None
    return in_order(problem, Pair(a, b))


def runs(problem: Problem, rows: list[list[Item]]) -> bool:
    try:
        time_order(problem, tuple(map(tuple, rows)))
    except Deadlock:
        return False
    return True


def pairs_in(schedule: Schedule) -> int:
    return sum(isinstance(item, Pair) for row in schedule.order for item in row)


# Timing, memory, metrics, checker


@pytest.mark.slow
def test_whatever_handles_schedules_takes_pairs(tmp_path: Path) -> None:
    found = []

    @settings(max_examples=50, deadline=None)
    @given(paired_schedules())
    def hold(made: tuple[Problem, Schedule]) -> None:
        found.append(pairs_in(made[1]))
        for part in (timing, memory, where_time_goes, pictures, torch, steps):
            part(*made)
        write_schedule(tmp_path / "s.json", *made)
        assert read_schedule(tmp_path / "s.json", made[0]).devices == made[1].devices

    hold()
    assert sum(map(bool, found)) >= 10


def timing(problem: Problem, schedule: Schedule) -> None:
    """Timed orders break no rule but memory."""
    for objective in ("makespan", "span"):
        timed = time_order(problem, schedule.order, objective)  # type: ignore[arg-type]
        assert {violation.rule for violation in check(problem, timed)} <= {"memory"}
        assert timed.span <= schedule.span


def memory(problem: Problem, schedule: Schedule) -> None:
    """The least capacity that the checker passes is the peak, device by device."""
    peaks = peak_memory(problem, schedule)
    for less, fits in ((0, True), (1, False)):
        devices = [
            dict(device) | {"memory": max(0, peak - less)}
            for device, peak in zip(problem.document["devices"], peaks, strict=True)
        ]
        capped = parse_problem(document(problem, devices=devices))
        over = {v.device for v in check(capped, schedule) if v.rule == "memory"}
        assert over == (set() if fits else {d for d, peak in enumerate(peaks) if peak})


def where_time_goes(problem: Problem, schedule: Schedule) -> None:
    """The parts of a device's time add up, and the critical path explains the makespan."""
    for t in measure(problem, schedule).devices:
        parts = (t.busy, t.warm_up, t.input, t.memory, t.unforced, t.cool_down)
        assert min(parts) >= 0
        assert sum(parts) == schedule.makespan
        assert t.unforced == 0  # earliest timing
    path = critical_path(problem, schedule)
    assert (path[0].timed.start, path[-1].timed.end) == (0, schedule.makespan)
    for before, after in pairwise(path):
        assert after.timed.start >= before.timed.end
        if after.through == "device":
            assert (before.device, before.timed.end) == (after.device, after.timed.start)


def pictures(problem: Problem, schedule: Schedule) -> None:
    """Pictures and traces show every member."""
    ops = [
        (device, str(op), t.start, t.end - t.start)
        for device, t in schedule
        for op in members(t.item)  # type: ignore[arg-type]
    ]
    assert len(rows_of(problem, {"": schedule}).of()) == len(ops)
    events = json.loads(EXPORTERS["trace"](problem, schedule).data)["traceEvents"]
    shown = [(e["pid"] - 1, e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert sorted(shown) == sorted(ops)
    grid = text_grid(problem, schedule, 200)
    whole = any(len(stages) > 1 for stages in problem.stages_on)
    written = re.findall(r"\d*(?:BW|F|B|W)\d+", grid.replace("device", ""))
    assert sorted(written) == sorted(
        text if whole else text.lstrip("0123456789") for _, text, *_ in ops
    )


def torch(problem: Problem, schedule: Schedule) -> None:
    """What torch can run is written for it, with its pairs."""
    if len(problem.routes) > 1 or not all(problem.stages_on) or check(problem, schedule):
        return
    if pair_counts(schedule).keys() - {"F+BW"}:
        with pytest.raises(NotApplicable, match="torch overlaps an F with a full backward"):
            adapt(problem, schedule)
        return
    adapted = adapt(problem, schedule).schedule
    assert pairs_in(adapted) == pairs_in(schedule)
    rows = rows_of_csv(torch_csv(problem, adapted), "export")
    assert sum(len(cell) == 2 for row in rows for cell in row) == pairs_in(schedule)
    assert lint(rows, len(problem.stages), problem.routes[0].microbatches) == []


def steps(problem: Problem, schedule: Schedule) -> None:
    found = steps_of(problem, schedule)
    assert verdict(problem, schedule, "rendezvous", found).safe
    kinds = [step.kind for row in found for step in row]
    assert sum("And" in kind for kind in kinds) == pairs_in(schedule)


def test_memory_of_a_pair_by_hand() -> None:
    # held_after_F 5: 0F0 takes 5 at 0, the pair 5 more at 4 and frees 0BW0's 5 at its end 12
    (profile,) = memory_profiles(ALONE, ALONE_TIMED)
    steps = list(zip(profile.times.tolist(), profile.held.tolist(), strict=True))
    assert steps == [(0, 5), (4, 10), (12, 5), (18, 0)]


def test_a_pair_is_busy_once() -> None:
    metrics = measure(ALONE, ALONE_TIMED)
    assert (metrics.makespan, metrics.devices[0].busy) == (18, 18)  # 4 + 8 + 6
    assert bubbles(ALONE, ALONE_TIMED) == (0, 0)


def test_a_gap_before_a_pair_waits_for_its_later_input() -> None:
    # the pair on device 1 has its gradient at 8 and its activation at 15; device 1 is free from 9
    problem, schedule = crossing()
    assert [(str(t.item), t.start, t.end) for t in schedule.devices[1]] == [
        ("2F0", 0, 1),
        ("4F0", 1, 5),
        ("4BW0", 5, 9),
        ("(1F0+2BW0)", 15, 18),
        ("1BW0", 18, 20),
    ]
    assert schedule.makespan == 22
    times = measure(problem, schedule).devices[1]
    assert (times.busy, times.input, times.cool_down) == (14, 6, 2)


def test_the_critical_path_takes_the_longer_delay_between_two_pairs() -> None:
    path = critical_path(*crossing())
    assert [str(step.timed.item) for step in path] == [
        "2F0",
        "3F0",
        "(0F0+3BW0)",
        "(1F0+2BW0)",
        "1BW0",
        "0BW0",
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("(0F1+0BW0) 0F0 0BW1", "waits for 0F0, which stands behind (0F1+0BW0)"),
        ("(0F0+0BW0) 0F1 0BW1", "(0F0+0BW0) on device 0 waits for (0F0+0BW0) on device 0"),
        ("(0F1+0BW0) 0BW1", "waits for 0F0, which the order does not have"),
    ],
)
def test_deadlocks_name_pairs(row: str, text: str) -> None:
    with pytest.raises(Deadlock, match=re.escape(text)):
        time_order(ALONE, order_of(row))


# torch


def split_chain() -> tuple[Problem, Schedule]:
    """Two stages, pairs on both, and one split backward on the last."""
    problem = with_overlap(chain(2, 4, F=2, B=1, W=2), 3, 4)
    order = order_of(
        "0F0 0F1 0F2 (0F3+0BW0) 0BW1 0BW2 0BW3", "1F0 (1F1+1BW0) (1F2+1BW1) (1F3+1BW2) 1B3 1W3"
    )
    return problem, time_order(problem, order)


def test_torch_gets_overlapped_cells_and_gives_them_back(tmp_path: Path) -> None:
    problem, schedule = split_chain()
    exported = EXPORTERS["torch"](problem, schedule)
    first, second = exported.data.decode().splitlines()
    assert first == "0F0,0F1,0F2,(0F3;0B0)OVERLAP_F_B,0B1,0B2,0B3"
    # 1B3 and 1W3 follow each other, and BW lasts as long: they are written whole
    assert second.startswith("1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,(1F3;1B2)OVERLAP_F_B")
    path = tmp_path / "order.csv"
    path.write_bytes(exported.data)
    back = read_torch_csv(path, problem).schedule
    assert back.devices == adapt(problem, schedule).schedule.devices
    assert pairs_in(back) == 4
    assert "OVERLAP_F_B" in exported.beside[".hazards.txt"].decode()
    assert "Overlapped pairs" in hazards_text(problem, back)


@pytest.mark.parametrize(
    ("cells", "items"),
    [
        ("0F0,(0F1;0B0)OVERLAP_F_B,0B1", "0F0 (0F1+0BW0) 0BW1"),
        ("0F0,(0B0;0F1)OVERLAP_F_B,0B1", "0F0 (0F1+0BW0) 0BW1"),
        # the loss of a microbatch stands between its own F and B: torch runs them in turn
        ("(0F0;0B0)OVERLAP_F_B,0F1,0B1", "0F0 0BW0 0F1 0BW1"),
        # an I is no whole backward, two forwards are no pair
        ("0F0,(0F1;0I0)OVERLAP_F_B,0W0,0B1", "0F0 0F1 0B0 0W0 0BW1"),
        ("(0F0;0F1)OVERLAP_F_B,0B0,0B1", "0F0 0F1 0BW0 0BW1"),
        ("0F0,(0F1;0B0;0B1)OVERLAP_F_B", "0F0 0F1 0BW0 0BW1"),
    ],
)
def test_import_of_overlapped_cells(cells: str, items: str, tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    path.write_text(cells + "\n")
    schedule = read_torch_csv(path, ALONE).schedule
    assert schedule.order == order_of(items)
    assert check(ALONE, schedule) == []


def test_a_backward_before_its_forward_in_one_cell_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    path.write_text("(0B0;0F0)OVERLAP_F_B,0F1,0B1\n")
    with pytest.raises(BadInput, match=r"row 1, cell 1: 0B0 stands before 0F0"):
        read_torch_csv(path, ALONE)


def test_lint_finds_a_circle_through_overlapped_cells() -> None:
    # rank 0's cell wants 1B0's gradient, rank 1's cell (with 1B0) wants rank 0's 0F1
    rows = rows_of_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n", "test")
    (complaint,) = lint(rows, 2, 2)
    assert "wait for each other" in complaint.message
    assert "0F1;0B0 (row 1, cell 2)" in complaint.message
    assert "1F1;1B0 (row 2, cell 2)" in complaint.message


# Steps and commands


def test_a_pair_receives_both_inputs_and_sends_both_results() -> None:
    first, second = ([str(s) for s in row] for row in steps_of(*crossing()))
    at = first.index("ForwardAndBackward (0F0+3BW0)")
    assert set(first[at + 1 : at + 3]) == {"SendActivations 0F0", "SendGradient 3BW0"}
    at = second.index("ForwardAndBackward (1F0+2BW0)")
    assert set(second[:at]) >= {"RecvActivations 1F0", "RecvGradient 2BW0"}
