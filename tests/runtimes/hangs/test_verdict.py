"""Will it hang? By hand, against an exhaustive simulator, from the command line."""

from __future__ import annotations

import json
from random import Random

import pytest

import pipesat
from pipesat.compare.schedules import schedule_of
from pipesat.core.errors import NotApplicable
from pipesat.problem.ops import Copy
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.hangs.step_lists import RULES, with_waits, word
from pipesat.runtimes.hangs.verdict import Verdict, verdict
from pipesat.runtimes.steps import late_steps
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.oracle.hang_claims import judged
from tests.oracle.hangs import posted_late, programs, random_order, random_problem, simulate
from tests.support.orders import order_of
from tests.support.problems import chain, document, loop, two_routes, vee
from tests.support.timed_modes import ORDER, TIMES, problem_with_modes

ALL = ("pair-fifo", "edge-fifo", "group", "rendezvous", "graph")
ONE_QUEUE = ("pair-fifo", "group", "rendezvous")
TWO_RANKS = ("0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1")


def asked(problem: pipesat.Problem, rule: str, *rows: str) -> Verdict:
    schedule = time_order(problem, order_of(*rows))
    return pipesat.check(problem, schedule, runtime=rule)  # type: ignore[arg-type,return-value]


def lists(steps: object) -> list[list[str]]:
    return [[str(step) for step in row] for row in steps]  # type: ignore[attr-defined]


# Where sends and receives stand


def test_receives_stand_directly_before_sends_directly_after() -> None:
    problem = parse_problem(document(chain(3, 2, F=1, B=1, W=1), overlap={"FB": [1, 1]}))
    order = order_of("0F0 0F1 0BW0 0BW1", "1F0 (1F1+1BW0) 1B1 1W1", "2F0 2B0 2W0 2F1 2BW1")
    assert lists(late_steps(problem, order))[1] == [
        "RecvActivations 1F0",
        "Forward 1F0",
        "SendActivations 1F0",
        "RecvActivations 1F1",
        "RecvGradient 1BW0",
        "ForwardAndBackward (1F1+1BW0)",
        "SendActivations 1F1",
        "SendGradient 1BW0",
        "RecvGradient 1B1",
        "Backward 1B1",
        "SendGradient 1B1",
        "Weight 1W1",
    ]


def test_a_wait_stands_before_the_op_that_takes_the_buffer_again() -> None:
    order = order_of("0F0 0F1 0F2 0BW0 0BW1 0BW2", "1F0 1F1 1F2 1BW0 1BW1 1BW2")
    steps = late_steps(chain(2, 3), order)
    first = [text for text in lists(with_waits(steps))[0] if "F" in text]
    assert first == [
        "Forward 0F0",
        "SendActivations 0F0",
        "WaitSendActivations 0F0",
        "Forward 0F1",
        "SendActivations 0F1",
        "WaitSendActivations 0F1",
        "Forward 0F2",
        "SendActivations 0F2",
    ]
    two = [[text for text in row if "Wait" in text] for row in lists(with_waits(steps, 2))]
    assert two == [["WaitSendActivations 0F0"], ["WaitSendGradient 1BW0"]]
    assert with_waits(steps, 3) == steps


# By hand


@pytest.mark.parametrize("rule", ONE_QUEUE)
def test_1f1b_hangs_where_one_queue_holds_both_directions(rule: str) -> None:
    # rank 0: 0F0 S, 0F1 S, then R 0BW0; rank 1: R 1F0 1BW0 S, then R 1F1. The second send of rank 0
    # meets the first one of rank 1
    found = asked(chain(2, 2), rule, *TWO_RANKS)
    assert not found.safe
    assert found.crossed == ()
    assert [tuple(wait) for wait in found.cycle] == [
        (0, "SEND_F 0F1", 1, "RECV_F 1F1"),
        (1, "SEND_B 1BW0", 0, "RECV_B 0BW0"),
    ]
    assert found.cyclic_wait == (
        "rank 0 waits in SEND_F 0F1 for rank 1 (RECV_F 1F1), "
        "which waits in SEND_B 1BW0 for rank 0 (RECV_B 0BW0)"
    )


@pytest.mark.parametrize("rule", ["edge-fifo", "graph"])
def test_1f1b_is_safe_with_a_queue_per_direction(rule: str) -> None:
    found = asked(chain(2, 2), rule, *TWO_RANKS)
    assert found.safe
    assert found.cyclic_wait == found.mixed_up == "none"


def test_a_ring_hangs_in_a_shared_group_alone() -> None:
    # three ranks, two stages each, all forwards before all backwards. When rank 0 has sent
    # its third activation to rank 1, and rank 1 its second to rank 2, and rank 2 its first to
    # rank 0, each has its next receive behind that send: pytorch pull request 195760
    forward = [[f"{s}F{m}" for s in (d, d + 3) for m in range(3)] for d in range(3)]
    backward = [[f"{s}BW{m}" for s in (d + 3, d) for m in range(3)] for d in range(3)]
    rows = [" ".join(f + b) for f, b in zip(forward, backward, strict=True)]
    assert asked(loop(3, 2, 3), "pair-fifo", *rows).safe
    found = asked(loop(3, 2, 3), "group", *rows)
    assert [tuple(wait) for wait in found.cycle] == [
        (0, "SEND_F 0F2", 1, "RECV_F 1F2"),
        (1, "SEND_F 1F1", 2, "RECV_F 2F1"),
        (2, "SEND_F 2F0", 0, "RECV_F 3F0"),
    ]


def test_messages_that_cross_are_named() -> None:
    # stages 0 and 2 on rank 0, 1 on rank 1: rank 0 sends the gradient 2BW0 and then the activation
    # 0F1, rank 1 runs 1F1 first. Both ends number them otherwise
    problem = pipesat.Problem.from_document(
        document(chain(2, 2), stages=[{"device": d, "F": 1, "B": 1, "W": 1} for d in (0, 1, 0)])
    )
    rows = ("0F0 2F0 2BW0 0F1 2F1 2BW1 0BW0 0BW1", "1F0 1F1 1BW0 1BW1")
    for rule in ALL:
        found = asked(problem, rule, *rows)
        assert not found.safe
        assert [tuple(one) for one in found.crossed] == [
            (0, 1, 2, "SEND_B 2BW0", "RECV_F 1F1"),
            (0, 1, 3, "SEND_F 0F1", "RECV_B 1BW0"),
        ]
        assert found.mixed_up.startswith("2 messages, first number 2 from rank 0 to rank 1: ")


@pytest.mark.parametrize("pair", ["(1BW0+1BW1)", "(1BW1+1BW0)"])
def test_two_backwards_as_one_are_sent_as_they_are_written(save, cli: Run, tmp_path, pair) -> None:
    # rank 0 takes the gradient of 1 first, so the first message crosses unless it is of 1BW1
    overlap = {"pairs": [{"ops": ["1BW", "1BW"], "time": 2}]}
    doc = document(chain(2, 2, F=1, B=1, W=1), overlap=overlap)
    rows = ([["0F0", 0, 1], ["0F1", 1, 2], ["0BW1", 5, 7], ["0BW0", 7, 9]],)
    rows += ([["1F0", 1, 2], ["1F1", 2, 3], [pair, 3, 5]],)
    file = tmp_path / "s.json"
    head = {"format": "pipesat.schedule/1", "problem_sha256": parse_problem(doc).sha256}
    file.write_text(json.dumps(head | {"devices": rows}))
    found = cli("check", save(doc), file, "--runtime", "edge-fifo", "--json").json["runtime"]
    assert not found["hangs"]
    assert [(one["sent"], one["received"]) for one in found["crossed"]] == (
        [("SEND_B 1BW0", "RECV_B 0BW1"), ("SEND_B 1BW1", "RECV_B 0BW0")] if "(1BW0" in pair else []
    )


def test_a_graph_needs_two_buffers_for_two_results_of_one_stage_at_once() -> None:
    # 0F0 and 0F1 are written together: with one buffer, 0F1 waits for a send that comes after it
    overlap = {"pairs": [{"ops": ["0F", "0F"], "time": 2}]}
    problem = parse_problem(document(chain(2, 2, F=1, B=1, W=1), overlap=overlap))
    found = asked(problem, "graph", "(0F0+0F1) 0BW0 0BW1", "1F0 1F1 1BW0 1BW1")
    assert [tuple(wait) for wait in found.cycle] == [(0, "WAIT_SEND_F 0F0", 0, "SEND_F 0F0")]
    assert (found.buffers, found.safe_buffers) == (2, 2)
    assert not any("WAIT_SEND_F" in word(step) for step in found.steps[0])
    assert dict(found.facts())["Safe order"].endswith("with 2 buffers (-v and --json list it)")


def test_a_graph_waits_for_a_buffer_that_is_not_taken() -> None:
    # rank 0 must have sent 0F2 before 0F3. Rank 1 takes it after 1BW1, which waits until rank 0 has
    # taken the gradient 1BW0, after 0F3. With two buffers 0F3 waits for 0F1, 1BW1 for none
    rows = ("0F0 0F1 0F2 0F3 0BW0 0BW1 0BW2 0BW3", "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3")
    found = asked(chain(2, 4), "graph", *rows)
    assert [tuple(wait) for wait in found.cycle] == [
        (0, "SEND_F 0F2", 1, "RECV_F 1F2"),
        (1, "SEND_B 1BW0", 0, "RECV_B 0BW0"),
    ]
    assert found.buffers == 2
    assert asked(chain(2, 4), "edge-fifo", *rows).safe
    doc = document(chain(2, 4))
    steps = posted_late(doc, [row.split() for row in rows])
    hangs = {n: simulate(programs(doc, steps, n), "graph").hangs for n in (1, 2, 3)}
    assert hangs == {1: True, 2: False, 3: False}


def test_the_safe_order_of_a_graph_sends_before_the_buffer_is_written_again() -> None:
    rows = ("0F0 0F1 0F2 0F3 0BW0 0BW1 0BW2 0BW3", "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3")
    steps = [[word(step) for step in row] for row in asked(chain(2, 4), "graph", *rows).steps]
    for rank, ops in enumerate(("0F{}", "1BW{}")):
        way = "F" if rank == 0 else "B"
        for m in range(1, 4):
            now = steps[rank].index(ops.format(m))
            sent = f"SEND_{way} {ops.format(m - 1)}"
            assert steps[rank].index(sent) < steps[rank].index(f"WAIT_{sent}") == now - 1


@pytest.mark.parametrize("rule", ALL)
def test_nothing_crosses_ranks_nothing_hangs(rule: str) -> None:
    problem = parse_problem(
        document(chain(1, 2), devices=[{}, {}], stages=[{"device": 1, "F": 1, "B": 1, "W": 1}])
    )
    assert asked(problem, rule, "", "0F0 0BW0 0F1 0BW1").safe
    one = asked(vee(2, 1), rule, "0F0 3F0 3B0 3W0 0B0 0W0", "1F0 2F0 2B0 1B0 2W0 1W0")
    assert one.safe  # one microbatch goes there and back: whoever sends, the other one waits


def test_copies_do_not_cross_ranks() -> None:
    # tests/support/timed_modes.py: 0F1 is offloaded, rank 0 runs three forwards first
    rows = [
        [Timed(item, *times) for item, times in zip(row, of, strict=True)]
        for row, of in zip(ORDER, TIMES, strict=True)
    ]
    copies = (
        (TimedCopy(Copy(0, "O", 1), 20, 35), TimedCopy(Copy(0, "L", 1), 70, 115)),
        (),
    )
    problem = problem_with_modes("ms")
    schedule = Schedule(tuple(map(tuple, rows)), copies=copies)
    found = pipesat.check(problem, schedule, runtime="rendezvous")
    assert [wait.step for wait in found.cycle] == ["SEND_F 0F1", "SEND_B 1BW0"]
    assert pipesat.check(problem, schedule, runtime="edge-fifo").safe


# Against the simulator


@pytest.mark.parametrize("seed", range(24))
def test_the_simulator_finds_the_same(seed: int) -> None:
    """Chains, loops, Vs, two routes, pairs, whole and split: experiments/hangs.

    From 16 on, any two forwards or backwards may pair.
    """
    rng = Random(seed)
    _, doc = random_problem(rng, listed=seed >= 16)
    rows = random_order(doc, rng)
    found = judged(doc, rows, rng if seed % 2 else None)
    assert [(one.rule, one.wrong) for one in found if one.wrong] == []


# The command


def test_the_command_says_who_waits_for_whom(cli: Run, save) -> None:
    problem = save(chain(2, 3))
    outcome = cli("check", problem, "1f1b", "--runtime", "rendezvous")
    assert outcome.code == 1
    assert "can hang under rendezvous" in outcome.out
    assert "rank 0 waits in SEND_F 0F1 for rank 1" in " ".join(outcome.out.split())
    verbose = cli("check", problem, "1f1b", "--runtime", "rendezvous", "-v")
    assert "Rank 1 RECV_F 1F0, 1F0, " in " ".join(verbose.out.split())
    safe = cli("check", problem, "1f1b", "--runtime", "edge-fifo")
    assert (safe.code, safe.err) == (0, "")
    assert "safe under edge-fifo" in safe.out


def test_json_has_the_verdict_and_a_safe_order(cli: Run, save) -> None:
    problem = save(chain(2, 2))
    outcome = cli("check", problem, "1f1b", "--runtime", "pair-fifo", "--json")
    assert outcome.code == 1
    assert outcome.json["valid"] is True
    said = outcome.json["runtime"]
    assert (said["rule"], said["safe"], said["hangs"], said["buffers"]) == (
        "pair-fifo",
        False,
        True,
        None,
    )
    assert said["cycle"][0] == {
        "rank": 0,
        "step": "SEND_F 0F1",
        "peer": 1,
        "needs": "RECV_F 1F1",
    }
    assert said["safe_steps"][0][:3] == [
        {"step": "run", "op": "0F0", "peer": None},
        {"step": "SEND_F", "op": "0F0", "peer": 1},
        {"step": "run", "op": "0F1", "peer": None},
    ]
    assert "runtime" not in cli("check", problem, "1f1b", "--json").json


def test_an_invalid_schedule_is_refused_first(cli: Run, save, tmp_path) -> None:
    file = tmp_path / "s.json"
    cli("export", save(chain(2, 2)), "gpipe", "--to", "schedule", "-o", file)
    text = file.read_text().replace('"0F0"', '"0F1"', 1)
    file.write_text(text)
    outcome = cli("check", save(chain(2, 2)), file, "--runtime", "group")
    assert outcome.code == 1
    assert "Not valid" in outcome.out
    assert "group" not in outcome.out


def test_no_verdict_of_what_a_runtime_cannot_run() -> None:
    """torch runs one route: that it would not hang there says nothing."""
    problem = two_routes(4, (4, 4))
    timed = schedule_of(problem, "list-scheduling")
    with pytest.raises(NotApplicable, match="one route"):
        verdict(problem, timed, "torchtitan")
    assert verdict(problem, timed, "edge-fifo").rule == "edge-fifo"


def test_an_unknown_rule_is_bad_input(cli: Run, save) -> None:
    outcome = cli("check", save(chain(2, 2)), "1f1b", "--runtime", "nccl")
    assert (outcome.code, outcome.out) == (2, "")
    assert "pair-fifo" in outcome.err
    assert tuple(RULES) == ALL
    with pytest.raises(pipesat.BadInput, match="pair-fifo or edge-fifo"):
        pipesat.check(chain(2, 2), schedule_of(chain(2, 2), "1f1b"), runtime="nccl")  # type: ignore[call-overload]
