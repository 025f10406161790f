"""The oracle against itself: the exact model, trying everything, the rules, and figures by hand."""

from __future__ import annotations

import copy
from itertools import combinations, pairwise
from typing import Any

import pytest

from tests.oracle.claims import CLAIMS, OBJECTIVES, wrong_of_checker
from tests.oracle.exact import optimum, solve
from tests.oracle.generator import FAMILIES, GRAPHS, of_family
from tests.oracle.reading import Document, Pipe
from tests.oracle.rules import Timed, broken_rules
from tests.oracle.trying import Trying
from tests.support.paths import ROOT

PRODUCT = ("claims", "hang_claims", "period_claims", "plan_claims", "test_oracle")
"""Modules that hold pipesat against the oracle; ``kernels`` has engines over its rules."""


def test_the_oracle_imports_nothing_of_pipesat() -> None:
    for path in (ROOT / "tests" / "oracle").glob("*.py"):
        words = path.read_text(encoding="utf-8").split()
        imported = {b.partition(".")[0] for a, b in pairwise(words)
                    if a in ("from", "import")}  # fmt: skip
        assert "pipesat" not in imported or path.stem in PRODUCT


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_feasible_and_infeasible_problems(name: str) -> None:
    """The same for the same seed; whatever the rules say of an optimal schedule, it is valid."""
    found = []
    for seed in range(2 if name in GRAPHS else 4):
        document = of_family(name, seed)
        assert document == of_family(name, seed)
        best = solve(document, effort=1.0)
        found.append(best is not None)
        if best is not None:
            timed = Timed(Pipe(document), best.devices, best.copies, best.modes)
            assert broken_rules(timed) == []
            assert timed.makespan == best.value
    assert any(found)


@pytest.mark.parametrize("seed", range(12))
def test_the_exact_model_agrees_with_trying_everything(seed: int) -> None:
    more: dict[str, Any] = {"ops": 9, "memory": ("any", "none", "tight"), "held": 0.3}
    more["lists"] = ("", "given", "same", "free")
    plain = of_family("plain", seed, **more)
    assert optimum(plain, "span") == Trying(plain).optimum("span")
    paired = of_family("pairs", seed, **more | {"zeros": (0.0,), "ops": 9})
    assert optimum(paired) == Trying(paired).optimum()


def test_pairs_by_hand() -> None:
    """One device, F and BW of 2 microbatches: 3 + 4 alone, F with BW 5, F with F 4, BW with BW 6.

    (F0 + F1), (BW0 + BW1) takes 10, F0, (F1 + BW0), BW1 takes 12, all alone 14; with room for one
    microbatch only the last is left.
    """
    stage = {"device": 0, "F": 3, "B": 2, "W": 2, "held_after_F": 1, "backward": "fused"}
    entries = {("0F", "0BW"): 5, ("0F", "0F"): 4, ("0BW", "0BW"): 6}
    for count in range(4):
        for chosen in combinations(entries, count):
            pairs = [{"ops": list(ops), "time": entries[ops]} for ops in chosen]
            raw: Document = {"microbatches": 2, "devices": [{}], "stages": [stage]}
            raw |= {"overlap": {"pairs": pairs}}
            forwards = 4 if ("0F", "0F") in chosen else 6
            backwards = 6 if ("0BW", "0BW") in chosen else 8
            mixed = 12 if ("0F", "0BW") in chosen else 14
            assert optimum(raw) == min(forwards + backwards, mixed)
            assert optimum(raw | {"devices": [{"memory": 1}]}) == 14


# 0F0 holds 4 to the end of its copy out and 1 from there on, so 0F1 fits at 4; once it is gone, the
# copy back takes 3 at 8
HOST: Document = {
    "microbatches": 2,
    "devices": [{"memory": 5, "copy_channels": 1}],
    "stages": [
        {"device": 0, "F": 2, "B": 1, "W": 1, "held_after_F": 4, "backward": "fused"}
        | {"modes": [{"name": "host", "offload": {"out": 2, "in": 2, "held": 1}}]}
    ],
}
ROW = [("0F0", 0, 2), ("0F1", 4, 6), ("0BW1", 6, 8), ("0BW0", 10, 12)]
COPIES = [("0O0", 2, 4), ("0L0", 8, 10)]


@pytest.mark.parametrize(
    ("rule", "at", "entry"),
    [
        ("", 0, ROW[0]),
        ("length", 0, ("0F0", 0, 1)),
        ("length", 0, ("0F0", -1, 1)),
        ("count", 0, ("0F1", 0, 2)),
        ("backward", 2, ("0B1", 6, 7)),
        ("overlap", 1, ("0F1", 1, 3)),
        ("listing", 1, ("0F1", 7, 9)),
        ("input", 2, ("0BW1", 5, 7)),
        ("pair", 2, ("(0BW1+0F0)", 6, 8)),
        ("mode", 0, "keep too"),
        ("memory", 4, ("0O0", 3, 5)),
        ("input", 5, ("0L0", 9, 11)),
        ("overlap", 5, ("0L0", 3, 5)),
        ("count", 5, ("0L1", 8, 10)),
    ],
)
def test_each_broken_rule_is_named(rule: str, at: int, entry: Any) -> None:
    document, modes = copy.deepcopy(HOST), {(0, 0): "host"}
    row, copies = [*ROW], [*COPIES]
    if rule == "pair":
        del row[0]
        at -= 1
    if rule == "mode":
        document["mode_choice"] = "stage"
    elif at < 4:
        row[at] = entry
    else:
        copies[at - 4] = entry
    wrong = broken_rules(Timed(Pipe(document), [row], [copies], modes))
    assert {what.partition(":")[0] for what in wrong} >= ({rule} if rule else set())
    assert bool(wrong) == bool(rule)


def test_the_order_of_a_list_is_judged() -> None:
    # of the long one F takes 3/2, so 2, B and W 2 each, and BW their sum
    kinds = [{"name": "long", "count": 1, "time": [3, 2]}, {"name": "short", "count": 1}]
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "backward": "fused"}
    document = {"microbatches": kinds, "devices": [{}], "stages": [stage]}
    row = [("0F1", 0, 1), ("0F0", 1, 3), ("0BW1", 3, 5), ("0BW0", 5, 9)]
    turned = [*row[:2], ("0BW0", 3, 7), ("0BW1", 7, 9)]
    for order, rows, right in (
        ("same", row, True),
        ("same", turned, False),
        ("given", row, False),
        ("free", turned, True),
    ):
        assert (broken_rules(Timed(Pipe(document | {"order": order}), [rows])) == []) is right


@pytest.mark.parametrize("name", FAMILIES)
def test_the_checker_says_of_each_schedule_what_the_rules_say(name: str) -> None:
    """Of optimal ones, and of these with one op or copy elsewhere."""
    for seed in range(2 if name in GRAPHS else 4):
        document = of_family(name, seed)
        assert [*wrong_of_checker(document, OBJECTIVES[seed % 2])] == [], seed


def test_a_false_claim_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    document = of_family("plain", 0)
    monkeypatch.setattr("tests.oracle.claims.closed_form_bounds", lambda *_: [_Bound(10**4)])
    assert [*CLAIMS["bounds"](document, "makespan")]
    monkeypatch.setattr("tests.oracle.claims.check", lambda *_: [])
    assert [*CLAIMS["checker"](document, "makespan")]


class _Bound:
    def __init__(self, value: int) -> None:
        self.value = value
