"""Rows of hand-written schedules, written down by hand from their papers' rules."""

from __future__ import annotations

import pytest

from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from tests.support.problems import chain, document, loop, two_routes, vee


def paired(problem: Problem) -> Problem:
    return parse_problem(document(problem, overlap={"FB": [3, 4]}))


THREE = chain(3, 4)
TWO = chain(2, 4)
CHAINS = [
    (chain(2, 3), "gpipe", 0, "0F0 0F1 0F2 0BW0 0BW1 0BW2"),
    # Narayanan et al. 2021, figure 4 (top): p - 1 - d forwards before the first F, BW pair
    (THREE, "1f1b", 0, "0F0 0F1 0F2 0BW0 0F3 0BW1 0BW2 0BW3"),
    (THREE, "1f1b", 1, "1F0 1F1 1BW0 1F2 1BW1 1F3 1BW2 1BW3"),
    (THREE, "1f1b", 2, "2F0 2BW0 2F1 2BW1 2F2 2BW2 2F3 2BW3"),
    # W is delayed by the rank
    (THREE, "zb-h1", 0, "0F0 0F1 0F2 0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3"),
    (THREE, "zb-h1", 2, "2F0 2B0 2F1 2B1 2F2 2B2 2W0 2F3 2B3 2W1 2W2 2W3"),
    # 2 (p - 1 - d) warm-up forwards: 2 on rank 0, none on the last
    (TWO, "eager-1f1b", 0, "0F0 0F1 0F2 0BW0 0F3 0BW1 0BW2 0BW3"),
    (TWO, "eager-1f1b", 1, "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3"),
    # one more, then pairs; without pairs their members run in turn
    (paired(chain(2, 5)), "1f1b-overlapped", 0, "0F0 0F1 0F2 (0F3+0BW0) (0F4+0BW1) 0BW2 0BW3 0BW4"),
    (
        paired(chain(2, 5)),
        "1f1b-overlapped",
        1,
        "1F0 (1F1+1BW0) (1F2+1BW1) (1F3+1BW2) (1F4+1BW3) 1BW4",
    ),
    (chain(2, 5), "1f1b-overlapped", 0, "0F0 0F1 0F2 0F3 0BW0 0F4 0BW1 0BW2 0BW3 0BW4"),
    (paired(chain(1, 2, backward="split")), "1f1b-overlapped", 0, "0F0 0F1 0B0 0W0 0B1 0W1"),
    # 2 (p - d) - 1 forwards before the first B (3, 1), and 2 d Ws moved to the end (0, 2)
    (TWO, "zb-h2", 0, "0F0 0F1 0F2 0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3"),
    (TWO, "zb-h2", 1, "1F0 1B0 1F1 1B1 1F2 1B2 1W0 1F3 1B3 1W1 1W2 1W3"),
    # rank 1 of 3: F1 is the 2nd forward, no W; F2 the 3rd: W0, then (4 forwards, 1 W): W1
    (THREE, "zb-1p", 1, "1F0 1F1 1B0 1F2 1B1 1W0 1F3 1B2 1W1 1B3 1W2 1W3"),
    # 2 microbatches on rank 1 of 4: no steady state, so every B is followed by a W at once
    (chain(4, 2), "zb-1p", 1, "1F0 1F1 1B0 1W0 1B1 1W1"),
    (chain(4, 2), "zb-h1", 1, "1F0 1F1 1B0 1B1 1W0 1W1"),
    # the stages decide whether a backward is split
    (chain(1, 1, backward="split"), "1f1b", 0, "0F0 0B0 0W0"),
    (chain(1, 1, backward="fused"), "zb-h1", 0, "0F0 0BW0"),
]
FOUR, FEW = loop(2, 2, 4), loop(2, 2, 2)
PAIRED = loop(2, 2, 2, overlap=(3, 4))
LOOPS = [
    # warm-up: one group of 2, and 2 per rank that follows
    (
        FOUR,
        "interleaved-1f1b",
        0,
        "0F0 0F1 2F0 2F1 0F2 2BW0 0F3 2BW1 2F2 0BW0 2F3 0BW1 2BW2 2BW3 0BW2 0BW3",
    ),
    (
        FOUR,
        "interleaved-1f1b",
        1,
        "1F0 1F1 3F0 3BW0 3F1 3BW1 1F2 1BW0 1F3 1BW1 3F2 3BW2 3F3 3BW3 1BW2 1BW3",
    ),
    # one less per rank
    (FEW, "gis", 0, "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1"),
    (FEW, "gis", 1, "1F0 1F1 3F0 3BW0 3F1 3BW1 1BW0 1BW1"),
    # g = 1: every microbatch passes both chunks before the next one
    (FEW, "gis-h", 0, "0F0 2F0 0F1 2BW0 2F1 0BW0 2BW1 0BW1"),
    (PAIRED, "interleaved-overlapped", 0, "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1"),  # all warm-up
    (PAIRED, "interleaved-overlapped", 1, "1F0 1F1 3F0 (3F1+3BW0) 3BW1 1BW0 1BW1"),
    (FEW, "interleaved-overlapped", 1, "1F0 1F1 3F0 3F1 3BW0 3BW1 1BW0 1BW1"),
    (FEW, "interleaved-zb", 0, "0F0 0F1 2F0 2F1 2B0 2W0 2B1 2W1 0B0 0W0 0B1 0W1"),
    (FEW, "interleaved-zb", 1, "1F0 1F1 3F0 3B0 3F1 3B1 3W0 1B0 3W1 1B1 1W0 1W1"),
    (FEW, "looped-bfs", 0, "0F0 0F1 2F0 2F1 2BW1 2BW0 0BW1 0BW0"),
]
UNIT = two_routes(4, (2, 2))
OTHERS = [
    # DualPipe, h = 1, r = 0, two microbatches per route: steps 2, 4 (once: 2 - 2 + 0 + 1), 6 and 8
    (
        two_routes(2, (2, 2), overlap=(1, 1)),
        "dualpipe",
        0,
        "0F0 3F0 0F1 3BW0 (3F1+0BW0) 3BW1 0B1 0W1",
    ),
    (
        two_routes(2, (2, 2), overlap=(1, 1)),
        "dualpipe",
        1,
        "2F0 1F0 2F1 1BW0 (1F1+2BW0) 1BW1 2B1 2W1",
    ),
    # slots s + 2j and 2p - 1 - s + 2j of p = 4, written out; SC 2021, figure 3's merged pipelines
    (UNIT, "chimera", 0, "0F0 0F1 7F0 7BW0 7F1 7BW1 0BW0 0BW1"),
    (UNIT, "chimera", 1, "1F0 6F0 1F1 6F1 6BW0 1BW0 6BW1 1BW1"),
    (UNIT, "chimera", 3, "4F0 4F1 3F0 3BW0 3F1 3BW1 4BW0 4BW1"),
    # ICLR 2024, section 6, figure 7's pattern by hand for p = 2, m = 3 = 2p - 1
    (
        vee(2, 3),
        "zb-v",
        0,
        "0F0 0F1 0F2 3F0 3B0 3W0 3F1 3B1 3W1 0B0 0W0 3F2 3B2 3W2 0B1 0W1 0B2 0W2",
    ),
    (
        vee(2, 3),
        "zb-v",
        1,
        "1F0 2F0 1F1 2F1 2B0 2W0 1F2 1B0 1W0 2F2 2B1 2W1 1B1 2B2 1B2 1W1 2W2 1W2",
    ),
    # without overlap the members of a pair run in turn
    (vee(1, 3), "dualpipev", 0, "0F0 1F0 0F1 1BW0 1F1 0BW0 0F2 1BW1 1F2 0BW1 1BW2 0B2 0W2"),
    (
        paired(vee(1, 3)),
        "dualpipev",
        0,
        "0F0 1F0 0F1 1BW0 (1F1+0BW0) (0F2+1BW1) (1F2+0BW1) 1BW2 0B2 0W2",
    ),
]


@pytest.mark.parametrize(("problem", "name", "device", "row"), [*CHAINS, *LOOPS, *OTHERS])
def test_rows(problem: Problem, name: str, device: int, row: str) -> None:
    assert " ".join(str(t.item) for t in BASELINES[name](problem).devices[device]) == row


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_zb_1p_is_zb_h1_unless_microbatches_are_very_few(p: int) -> None:
    """W of j follows F of j + p - 1 and B of j + d: the same place while forwards last."""
    for m in range(max(1, p - 1), 3 * p):
        problem = chain(p, m)
        assert BASELINES["zb-1p"](problem).order == BASELINES["zb-h1"](problem).order


def test_stages_may_lie_on_devices_in_any_order() -> None:
    stages = [s | {"device": d} for s, d in zip(THREE.document["stages"], (2, 0, 1), strict=True)]
    moved = parse_problem(document(THREE, stages=stages))
    assert BASELINES["1f1b"](moved).order[2] == BASELINES["1f1b"](THREE).order[0]
