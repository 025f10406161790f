"""Links on which transfers queue: torch's program order, hand-worked times, never shorter."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.check.checker import check
from pipesat.compare.risk.queues import Links, network_of
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.runtimes.steps import Transfer
from pipesat.schedule.linear_order import LinearOrder
from pipesat.schedule.schedule import Order, Schedule, Timed
from pipesat.schedule.timing import earliest_ends, time_order
from tests.support.orders import order_of
from tests.support.problems import chain, problems


def timed(problem: Problem, order: Order, links: Links) -> Schedule:
    """Every op at its earliest."""
    network = network_of(problem, order, links)
    ends = earliest_ends(network, [0])
    rows: list[list[Timed]] = [[] for _ in problem.devices]
    for item, device, length, end in zip(
        network.item, network.device, network.duration, ends, strict=True
    ):
        if device >= 0:
            rows[device].append(Timed(item, end - length, end))
    return Schedule(tuple(map(tuple, rows)))


def starts(problem: Problem, order: Order, links: str) -> list[list[int]]:
    schedule = timed(problem, order, links)  # type: ignore[arg-type]
    return [[timed.start for timed in row] for row in schedule.devices]


def communication(network: LinearOrder, ranks: int) -> list[list[str]]:
    """Every rank's list as torch's lowering writes it: SEND_F, RECV_F, SEND_B, RECV_B."""
    letters = {"F": "F", "B": "I", "W": "W", "BW": "B"}
    rows: list[list[str]] = [[] for _ in range(ranks)]
    for node, device in zip(network.item, network.device, strict=True):
        if isinstance(node, Transfer):
            way = "F" if node.gives.kind == "F" else "B"
            rows[node.sender].append(f"{node.gives.stage}SEND_{way}{node.gives.microbatch}")
            (needs,) = members(node.receive.item)
            rows[node.receiver].append(f"{needs.stage}RECV_{way}{needs.microbatch}")
        elif isinstance(node, Pair):
            inside = ";".join(f"{o.stage}{letters[o.kind]}{o.microbatch}" for o in node)
            rows[device].append(f"({inside})OVERLAP_F_B")
        else:
            rows[device].append(f"{node.stage}{letters[node.kind]}{node.microbatch}")
    return rows


# Hand-worked: 2 ranks, 1F1B of 2 microbatches, F = 2, BW = 4, delay 4.

TWO = chain(2, 2, F=2, B=2, W=2, comm=4)
ONE_F_ONE_B = order_of("0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1")


def test_independent_links_by_hand() -> None:
    """0F0 ends 2, arrives 6; 0F1 ends 4, arrives 8; 1BW0 runs 8 to 12, arrives 16, and so on."""
    assert starts(TWO, ONE_F_ONE_B, "independent") == [[0, 2, 16, 22], [6, 8, 12, 14]]
    assert timed(TWO, ONE_F_ONE_B, "independent").makespan == 26


def test_a_pair_of_ranks_by_hand() -> None:
    """Rounds of the lowering: (0F0, 1F0), (0F1, 1BW0), (0BW0, 1F1), (-, 1BW1), (0BW1).

    Lists: rank 0 has 0F0 s 0F1 s r 0BW0 r 0BW1, rank 1 has r 1F0 r 1BW0 s 1F1 1BW1 s. Transfers, in
    order: 0F0's from 2 to 6; 0F1's after 1F0, which ends at 8: 8 to 12; 1BW0's after it, 12 to 16;
    1BW1's, ready at 18, after 0BW0 (16 to 20): 20 to 24. So 0BW1 runs 24 to 28: two later.
    """
    assert starts(TWO, ONE_F_ONE_B, "pair") == [[0, 2, 16, 24], [6, 8, 12, 14]]
    assert timed(TWO, ONE_F_ONE_B, "pair").makespan == 28
    assert starts(TWO, ONE_F_ONE_B, "rank") == starts(TWO, ONE_F_ONE_B, "pair")


def test_a_rank_s_transfers_to_different_ranks_by_hand() -> None:
    """3 ranks, 2 microbatches, F = 1, delay 5; all F first, then the backwards.

    Independent: 0F0 0-1, 0F1 1-2; 1F0 6-7, 1F1 7-8; 2F0 12-13, 2F1 13-14.
    Pair: 0F0's transfer 1-6; 0F1's waits for 1F0 (6-7): 7-12; 1F1 12-13. On the other pair 1F0's
    goes 7-12, 2F0 12-13, and 1F1's waits for 2F0: 13-18, 2F1 18-19.
    Rank: the lowering has 0F0, 1F0, 2F0 in round 0, so rank 1's transfers are 0F0's (1-6), 1F0's
    (7-12), 0F1's (12-17), 1F1's (18-23): 1F1 17-18, 2F1 23-24.
    """
    problem = chain(3, 2, F=1, B=1, W=1, comm=5)
    order = order_of("0F0 0F1 0BW0 0BW1", "1F0 1F1 1BW0 1BW1", "2F0 2F1 2BW0 2BW1")
    forwards = {x: [row[:2] for row in starts(problem, order, x)] for x in ("pair", "rank")}
    independent = [row[:2] for row in starts(problem, order, "independent")]
    assert independent == [[0, 1], [6, 7], [12, 13]]
    assert forwards["pair"] == [[0, 1], [6, 12], [12, 18]]
    assert forwards["rank"] == [[0, 1], [6, 17], [12, 23]]


# Properties


def some_orders(problem: Problem) -> list[Order]:
    return [BASELINES["list-scheduling"](problem).order]


@pytest.mark.slow
@settings(max_examples=25)
@given(problems(least_time=0))
def test_queues_only_delay(problem: Problem) -> None:
    """Item by item: independent <= per pair <= per rank; each is a valid schedule of the order."""
    for order in some_orders(problem):
        free = timed(problem, order, "independent")
        assert free.devices == time_order(problem, order).devices
        before = free
        for links in ("pair", "rank"):
            later = timed(problem, order, links)  # type: ignore[arg-type]
            assert check(problem, later) == []
            assert later.order == order
            pairs = zip(before, later, strict=True)
            assert all(a.start <= b.start for (_, a), (_, b) in pairs)
            before = later


def oracle(problem: Problem, lists: list[list[str]], links: str) -> list[list[int]]:
    """Ends of the ops of per-rank lists of steps, by relaxing until nothing moves.

    Streams: compute of a rank in list order; a transfer after all compute that stands before it in
    both lists, and after the transfer before it on the pair's stream (``pair``) or on either
    rank's (``rank``).
    """
    length = {"F": "F", "I": "B", "W": "W", "B": "BW"}
    home: dict[str, list[int]] = {}  # of a transfer's send and receive
    for rank, row in enumerate(lists):
        for text in row:
            if (message := message_of(text)) is not None:
                home.setdefault(message, []).append(rank)
    ends: dict[str, int] = {}
    while True:
        before = dict(ends)
        for rank, row in enumerate(lists):
            computed = 0
            streams: dict[tuple[int, ...], int] = {}
            arrived: dict[str, int] = {}
            for text in row:
                message = message_of(text)
                if message is None:
                    op = parse_torch(text)
                    needs = f"{op.stage}{'F' if text[len(str(op.stage))] == 'F' else 'B'}"
                    there = arrived.get(f"{needs}{op.microbatch}", 0)
                    time = getattr(problem.stages[op.stage], length[op.kind])
                    computed = max(computed, there) + time
                    ends[text] = max(ends.get(text, 0), computed)
                    continue
                stage, way, microbatch, delay = unpack(problem, message)
                key = tuple(sorted(home[message])) if links == "pair" else (rank,)
                end = max(computed, streams.get(key, 0)) + delay
                streams[key] = ends[message] = max(ends.get(message, 0), end)
                if "RECV" in text:
                    target = stage + 1 if way == "F" else stage - 1
                    arrived[f"{target}{way}{microbatch}"] = streams[key]
        if ends == before:
            return [[ends[text] for text in row if "_" not in text] for row in lists]


class Torch(NamedTuple):
    stage: int
    kind: str
    microbatch: int


def parse_torch(text: str) -> Torch:
    stage, kind, microbatch = re.split(r"([A-Z])", text)
    return Torch(int(stage), kind, int(microbatch))


def message_of(text: str) -> str | None:
    """Name a transfer by its sender: a receive on stage 3 of a forward is stage 2's send."""
    match = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)", text)
    if match is None:
        return None
    stage, side, way, microbatch = match.groups()
    sender = int(stage) - (side == "RECV") * (1 if way == "F" else -1)
    return f"{sender} {way} {microbatch}"


def unpack(problem: Problem, message: str) -> tuple[int, str, int, int]:
    stage, way, microbatch = message.split()
    first = int(stage) if way == "F" else int(stage) - 1
    link = problem.links[first, first + 1]
    return int(stage), way, int(microbatch), link.F if way == "F" else link.B


@pytest.mark.slow
@settings(max_examples=25)
@given(problems(4, 6, 5), st.sampled_from(["pair", "rank"]))
def test_the_replay_is_that_of_streams(problem: Problem, links: str) -> None:
    if len(problem.routes) > 1:  # the oracle numbers neighbours along one route
        return
    for order in some_orders(problem):
        network = network_of(problem, order, links)  # type: ignore[arg-type]
        lists = communication(network, len(problem.devices))
        schedule = timed(problem, order, links)  # type: ignore[arg-type]
        ends = [[timed.end for timed in row] for row in schedule.devices]
        assert oracle(problem, lists, links) == ends


# torch's own lowering


def placed(devices: list[int], ranks: int, m: int, **more: object) -> Problem:
    stages = [{"device": d, "F": 2, "B": 2, "W": 1} for d in devices]
    return parse_problem(
        {"format": FORMAT, "devices": [{}] * ranks, "stages": stages, "microbatches": m} | more
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize(
    ("problem", "baseline"),
    [
        (placed([0, 1, 2, 3], 4, 8), "1f1b"),
        (placed([0, 1, 2, 3], 4, 8), "list-scheduling"),
        (placed([0, 1, 2, 3] * 2, 4, 8), "interleaved-1f1b"),
        (placed([0, 1, 2, 3, 3, 2, 1, 0], 4, 8), "zb-v"),
        (placed([0, 1, 2, 3, 3, 2, 1, 0], 4, 10, overlap={"FB": [3, 4]}), "dualpipev"),
        (placed([2, 0, 1, 0, 2], 3, 5), "list-scheduling"),
    ],
)
def test_the_program_order_is_that_of_torch(problem: Problem, baseline: str) -> None:
    pytest.importorskip("torch", reason="needs the extra `torch`")
    from torch.distributed.pipelining import schedules

    order = BASELINES[baseline](problem).order
    ranks = len(problem.devices)
    lists = communication(network_of(problem, order, "pair"), ranks)
    compute = {
        rank: [
            schedules._Action.from_str(text)
            for text in row
            if "SEND" not in text and "RECV" not in text
        ]
        for rank, row in enumerate(lists)
    }
    lowered = schedules._add_send_recv(
        compute, lambda stage: problem.stages[stage].device, len(problem.stages)
    )
    assert lists == [[str(action) for action in lowered[rank]] for rank in range(ranks)]
