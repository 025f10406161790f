"""The goals that the project set itself, one object each; page.py holds the rows against them.

All seconds count from the start of the process, Python's start-up included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rows import cap, gap_of, group_of, proven, reached, sizes
from runner import Row

Reference = dict[str, Any]
"""What reference.json says of one problem; empty where there is nothing."""

EXTRA = "uneven-6.2B-s3-p8-m1024-cap0.75"
FREE = "class-tail-chain-p8-m32-free"
GIB_4 = 4096
SLACK = 1e-12  # of a gap that is exactly at its goal


@dataclass(frozen=True)
class Goal:
    """``passes(row, reference)`` for every problem whose name ``covers``."""

    group: str
    text: str
    covers: Callable[[str], bool]
    passes: Callable[[Row, Reference], bool]
    objective: str = "makespan"


def within(gap: float) -> Callable[[Row, Reference], bool]:
    """At most this gap."""
    return lambda row, _: gap_of(row) <= gap + SLACK


def proven_in(seconds: float) -> Callable[[Row, Reference], bool]:
    """Proven optimal within this time."""
    return lambda row, _: proven(row) and row["proof_s"] <= seconds


def table5(problem: str, memory: float) -> bool:
    """Table 5 of the Zero Bubble paper at one of its two caps."""
    return group_of(problem) == "table5" and cap(problem) == memory


def line(problem: str, kind: str) -> bool:
    """A line of the groups that share goals: ``small`` (m <= 16), ``m32``, ``p16`` or ``lowcap``.

    The last is the benchmark's lines of 8 devices and 32 microbatches that are short of memory.
    """
    if group_of(problem) not in ("lowcap", "uneven", "head", "midcap") or problem == EXTRA:
        return False
    p, m = sizes(problem)
    if (group_of(problem), p, m) == ("lowcap", 8, 32):
        return kind == "lowcap"
    return kind == ("p16" if p > 8 else "small" if m <= 16 else "m32")


def vee(problem: str, kind: str) -> bool:
    """A V of 4 devices (``p4``), of 8 with 16 microbatches and caps from 0.625 on, or another.

    ``low`` is the one of 16 devices with the least memory.
    """
    if group_of(problem) != "vee":
        return False
    p, m = sizes(problem)
    if (p, cap(problem)) == (16, 0.375):
        return kind == "low"
    good = (p, m) == (8, 16) and cap(problem) >= 0.625
    return kind == ("p4" if p == 4 else "main" if good else "other")


def beats_peers(row: Row, reference: Reference) -> bool:
    """Not worse than the best valid peer, and better unless that peer is at the best bound."""
    peers = [peer["makespan"] for peer in reference.get("peers", {}).values() if _fits(peer)]
    if row.get("value") is None:
        return False
    if not peers:
        return True
    best = min(peers)
    bound = max(row["bound"] or 0, reference.get("best_bound_makespan") or 0)
    return bool(row["value"] < best or row["value"] == best == bound)


def _fits(peer: dict[str, Any]) -> bool:
    return bool(peer.get("within_cap"))


def not_behind(row: Row, reference: Reference) -> bool:
    """Never longer than a public tool's own answer."""
    tools = [peer["makespan"] for peer in reference["peers"].values()]
    return row.get("value") is not None and bool(row["value"] <= min(tools))


def large(problem: str, shape: str) -> bool:
    """One of the two largest problems: ``line`` or ``vee``."""
    return group_of(problem) == "large" and shape == ("vee" if "-vee-" in problem else "line")


def in_a_minute(gap: float) -> Callable[[Row, Reference], bool]:
    """This gap within 60 s and 4 GiB."""
    return lambda row, _: reached(row, gap + SLACK) <= 60 and row["peak_mib"] <= GIB_4


def is_44(row: Row, _: Reference) -> bool:
    """Tessel's V on 4 devices with 8 microbatches: (p - 1) (F + BW) + m (F + BW) = 44."""
    return proven(row) and row["value"] == 44


def in_groups(*groups: str) -> Callable[[str], bool]:
    """Problems of these groups."""
    return lambda problem: group_of(problem) in groups


def torch(problem: str, p: int) -> bool:
    """Eager PyTorch's memory on p devices."""
    return group_of(problem) == "torch" and sizes(problem)[0] == p


def mixture(problem: str, *, pairs: bool) -> bool:
    """One of bench/mixed, whose ops may run in pairs or not."""
    paired = "-all-" in problem or "-pairs-" in problem
    return group_of(problem) == "mix" and paired == pairs


_CAP_1, _CAP_2 = partial(table5, memory=1), partial(table5, memory=2)
GOALS = (
    Goal("table5 cap 1", "proven in 5 s each", _CAP_1, proven_in(5)),
    Goal("table5 cap 1", "proven in 5 s each", _CAP_1, proven_in(5), "span"),
    Goal("table5 cap 2", "gap <= 0.05 %", _CAP_2, within(0.0005)),
    Goal("table5 cap 2", "gap <= 0.3 %", _CAP_2, within(0.003), "span"),
    Goal("lines, p <= 8, m <= 16", "proven in 20 s", partial(line, kind="small"), proven_in(20)),
    Goal("lowcap, p = 8, m = 32", "gap <= 1 %", partial(line, kind="lowcap"), within(0.01)),
    Goal("other lines, p <= 8, m = 32", "gap <= 0.5 %", partial(line, kind="m32"), within(0.005)),
    Goal("lines, p = 16", "gap <= 2 %", partial(line, kind="p16"), within(0.02)),
    Goal("torch p = 4", "proven", partial(torch, p=4), lambda row, _: proven(row)),
    Goal("torch p = 8", "gap <= 1.5 %", partial(torch, p=8), within(0.015)),
    Goal("vee p = 4", "proven in 30 s", partial(vee, kind="p4"), proven_in(30)),
    Goal(
        "vee p = 8, 16",
        "better than the best peer, or equal and proven",
        lambda problem: any(vee(problem, kind) for kind in ("main", "other", "low")),
        beats_peers,
    ),
    Goal("vee p = 8, m = 16, cap >= 0.625", "gap <= 1 %", partial(vee, kind="main"), within(0.01)),
    Goal("vee p = 16, cap 0.375", "gap <= 5 %", partial(vee, kind="low"), within(0.05)),
    Goal("the other vee p = 8, 16", "gap <= 3 %", partial(vee, kind="other"), within(0.03)),
    Goal("loop, bidir", "gap <= 2 %", in_groups("loop", "bidir"), within(0.02)),
    Goal("large line", "at the bound, 60 s, 4 GiB", partial(large, shape="line"), in_a_minute(0)),
    Goal("large V", "gap <= 0.3 %, 60 s, 4 GiB", partial(large, shape="vee"), in_a_minute(0.003)),
    Goal(
        "Tessel's V, p = 4",
        "44 proven",
        lambda problem: problem == "tessel-V-p4-m8-cap4",
        is_44,
    ),
    Goal("m = 1024, uneven, cap 0.75", "gap <= 2.5 %", lambda n: n == EXTRA, within(0.025)),
    Goal("public tools' problems", "not behind the tool", in_groups("peer"), not_behind),
    Goal("long tail, free order", "gap <= 3 %", lambda n: n == FREE, within(0.03)),
)


@dataclass(frozen=True)
class MeanGoal:
    """What problems together should have: at least so many proven, a mean gap of at most ``gap``.

    ``covers`` is ``None`` for the problems of bench/plain. No baseline may be ahead of
    the answer.
    """

    group: str
    gap: float
    covers: Callable[[str], bool] | None = None
    proven: int = 0
    objective: str = "makespan"


MEANS = (
    MeanGoal("all", 0.0015, proven=73),
    MeanGoal("all", 0.008, objective="span"),
    MeanGoal("pairs", 0.025, in_groups("pair")),
    MeanGoal("lists", 0.013, in_groups("class")),
    MeanGoal("memory modes", 0.025, in_groups("mode")),
    MeanGoal("mixtures without pairs", 0.048, partial(mixture, pairs=False)),
    MeanGoal("mixtures with pairs", 0.11, partial(mixture, pairs=True)),
)
