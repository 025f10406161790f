"""Step lists with communication: they finish with blocking sends and receives, in order of time."""

from __future__ import annotations

import pytest

from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration
from pipesat.runtimes.steps import Steps, steps_of
from pipesat.schedule.timing import time_order
from tests.support.orders import order_of
from tests.support.problems import chain, vee


def texts(steps: Steps) -> list[list[str]]:
    return [[str(step) for step in row] for row in steps]


def test_two_ranks_by_hand() -> None:
    # F 1, BW 2. Rank 0: F0 0-1, F1 1-2, BW0 4-6 (1BW0 ends at 4), BW1 7-9.
    # Rank 1: F0 1-2, BW0 2-4, F1 4-5, BW1 5-7.
    # 0F0 crosses at 1. 0F1 is there from 2 and needed at 4; at 4 both ranks are between two ops,
    # and so it crosses there, as does the gradient of microbatch 0; that of 1 crosses at 7.
    # At 4 the activation goes first: the item that made it (0F1) precedes 1BW0 in the one sequence,
    # in which device 0 runs as far as it can before device 1 starts.
    problem = chain(2, 2)
    schedule = time_order(problem, order_of("0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"))
    assert texts(steps_of(problem, schedule)) == [
        [
            "Forward 0F0",
            "SendActivations 0F0",
            "Forward 0F1",
            "SendActivations 0F1",
            "RecvGradient 0BW0",
            "Backward 0BW0",
            "RecvGradient 0BW1",
            "Backward 0BW1",
        ],
        [
            "RecvActivations 1F0",
            "Forward 1F0",
            "Backward 1BW0",
            "RecvActivations 1F1",
            "SendGradient 1BW0",
            "Forward 1F1",
            "Backward 1BW1",
            "SendGradient 1BW1",
        ],
    ]


def test_stages_on_one_device_hand_over_without_communication() -> None:
    # a V on two devices: stages 1 and 2 share device 1, so only 0 -> 1 and 2 -> 3 cross, and back
    problem = vee(2, 1)
    schedule = time_order(problem, order_of("0F0 3F0 3B0 3W0 0B0 0W0", "1F0 2F0 2B0 2W0 1B0 1W0"))
    first, second = texts(steps_of(problem, schedule))
    assert [step for step in second if "F" not in step.split()[1] or "Recv" in step] == [
        "RecvActivations 1F0",
        "RecvGradient 2B0",
        "Backward 2B0",
        "Weight 2W0",
        "Backward 1B0",
        "SendGradient 1B0",
        "Weight 1W0",
    ]
    assert [step for step in first if step.startswith(("Send", "Recv"))] == [
        "SendActivations 0F0",
        "RecvActivations 3F0",
        "SendGradient 3B0",
        "RecvGradient 0B0",
    ]


def end_of(problem: Problem, steps: Steps) -> int:
    """When the last rank ends; both sides of a transfer, which takes no time, wait for each other.

    That lists finish and carry what is needed, tests/runtimes/hangs holds against its simulator.
    """
    clock, left = [0] * len(steps), [[*row] for row in steps]
    while any(left):
        for rank, row in enumerate(left):
            if row and row[0].peer is None:
                clock[rank] += duration(problem, row.pop(0).item)
            elif row and row[0].kind.startswith("Send"):
                peer = row[0].peer or 0
                other = left[peer][0]
                if other.peer == rank and other.kind.startswith("Recv"):
                    clock[rank] = clock[peer] = max(clock[rank], clock[peer])
                    row.pop(0)
                    left[peer].pop(0)
    return max(clock)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("p", [2, 4, 7])
def test_blocking_costs_a_uniform_chain_without_delays_nothing(name: str, p: int) -> None:
    """F = B = W: all ops start at multiples of 1, so some instant is always free on both sides."""
    problem = chain(p, 2 * p)
    schedule = BASELINES[name](problem)
    assert end_of(problem, steps_of(problem, schedule)) == schedule.makespan


# The command
