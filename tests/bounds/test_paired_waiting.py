"""What microbatches wait with pairs: by hand, and never above the optimum by an oracle."""

from __future__ import annotations

from pipesat.bounds.paired_waiting import Course, Waiting
from pipesat.problem.problem_file import parse_problem
from tests.support.problems import document, vee

VEE = parse_problem(
    document(
        vee(2, 4, cap=12, F=2, B=3, W=1, held=(2, 1)),
        overlap={"pairs": [{"ops": ["1F", "2BW"], "time": 4}]},
    )
)
"""First backward of device 1: 4 F, B of stage 3, so 11; of device 0: 8. After the last F of stage 2
come F 3 and B 3, 2, 1, then B and W of stage 0: 11 + 4; after that of stage 3 4 B: 12 (and a W)."""

COURSE = Course(
    begin=(0, 2, 4, 6), home=(0, 4, 7, 10), first_backward=(8, 11), after_last_forward=(12, 15)
)


def test_a_turn_takes_both_forwards_of_one_microbatch_after_the_other() -> None:
    # device 1 runs 4 for each, from 2 on; a F of stage 2 in a pair starts at 11, 4 after F 0
    assert Waiting(VEE, COURSE).while_filling(0, 4).by_rank == (0, 4, 7, 7)


def test_a_stage_behind_the_turn_takes_what_the_turn_lets_through() -> None:
    # F 3 starts at 6 at the earliest, then every 4; or after a pair of F 2, which starts at 11
    assert Waiting(VEE, COURSE).while_filling(3, 3).by_rank == (6, 10, 11)


def test_backwards_come_home_through_the_turn_one_after_the_other() -> None:
    # B 2, B 1, B 0, W 0 of the last: 1 is left after B 0; 6 more for each before it; a pair of
    # stage 2 ends 15 before the end, B 1 and B 0 of these are its way
    waits = Waiting(VEE, COURSE).while_emptying(0, 4)
    assert waits.by_rank == (1, 7, 9, 9)
    assert waits.on_way == (0, 1, 2)  # whose BW takes 1 longer than B


def test_lines_lie_nowhere_above_the_sum() -> None:
    waits = Waiting(VEE, COURSE).while_filling(0, 4)
    for slope, constant in waits.tangents([1, 2, 4]):
        for n in range(5):
            assert slope * n + constant <= sum(waits.by_rank[:n])
