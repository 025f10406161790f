"""Golden sees what has changed, and lets a search by the clock become better."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pipesat.compare.hand_written import baseline
from tests.support.paths import ROOT

DOCUMENT = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{}, {}],
    "stages": [{"device": d, "F": 2, "B": 2, "W": 1, "held_after_F": 1} for d in (0, 1)],
}
ASKED = ("=heuristics", "=closed-forms", "baseline 1f1b p.json -o s.json", "check p.json s.json")


@pytest.fixture
def golden(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports one of golden's modules."""
    monkeypatch.setattr(sys, "argv", ["pipesat"])
    for hook in ("excepthook", "unraisablehook"):  # a command line sets them for its own process
        monkeypatch.setattr(sys, hook, getattr(sys, hook))
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return lambda name: importlib.import_module(f"golden.{name}")


@pytest.fixture
def asked(golden: Any, tmp_path: Path) -> Any:
    """A case, and the function that puts it to the product."""
    asks = [golden("cases").Ask(words) for words in ASKED]
    case = golden("cases").Case("heuristics/two", {"p.json": DOCUMENT}, asks)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield case, lambda: golden("answer").answer(case, tmp_path)
    for number, handler in before.items():
        signal.signal(number, handler)


def compared(golden: Any, case: Any, before: Any, now: Any, again: Any = None) -> list[str]:
    found = golden("record").compare({case.name: before}, {case.name: now}, [case], again)
    return list(found)


def test_the_same_product_gives_the_same_answers(golden: Any, asked: Any) -> None:
    case, answer = asked
    first = answer()
    # 1F1B of 2 stages and 2 microbatches: 2 + 1 (warm-up) forwards and backwards of 2 and 3 units
    assert first["=heuristics"]["1f1b"].startswith("15 ")
    assert first["check"] == {}  # exit code 0, nothing written
    assert compared(golden, case, first, answer()) == []


@pytest.mark.parametrize("part", ["baseline", "closed_form_bounds", "command_line"])
def test_a_planted_difference_is_found(
    golden: Any, asked: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    case, answer = asked
    before, module = answer(), golden("answer")
    if part == "baseline":  # one schedule is made by another function
        other = lambda name, problem, **more: baseline("gpipe", problem, **more)  # noqa: E731
        monkeypatch.setattr(module, "baseline", other)
        seen = "=heuristics"
    elif part == "closed_form_bounds":  # a bound is lost
        bounds = module.closed_form_bounds
        monkeypatch.setattr(module, part, lambda *words: bounds(*words)[1:])
        seen = "=closed-forms"
    else:  # a command fails at once
        monkeypatch.setattr(module, part, lambda: 1 / 0)
        seen = "check p.json s.json"
    differing = compared(golden, case, before, answer())
    assert any(text.startswith(f"heuristics/two: {seen}") for text in differing)


@pytest.mark.parametrize(
    ("key", "now", "differs"),
    [
        ("value", 9, False),
        ("value", 11, True),
        ("value", None, True),
        ("lower_bound", 9, False),
        ("lower_bound", 7, True),
        ("status", "optimal", False),
        ("status", "unknown", True),
        ("makespan", 9, True),
    ],
)
def test_a_search_by_the_clock_may_only_become_better(
    golden: Any, key: str, now: Any, differs: bool
) -> None:
    before = {"status": "feasible", "value": 10, "lower_bound": 8, "makespan": 10}
    found = list(
        golden("look").differences({"said": before}, {"said": before | {key: now}}, "within")
    )
    assert bool(found) is differs
    assert list(golden("look").differences(before, before | {key: now}, "exact"))


def test_a_search_that_does_worse_gets_more_time(golden: Any) -> None:
    cases = golden("cases")
    ask = cases.Ask("frontier p.json", "within")
    case, before, times = cases.Case("commands/f", {}, [ask]), {"frontier": {"value": 5}}, []

    def again(case: Any, more: float) -> Any:
        times.append(more)
        return {"frontier": {"value": 5 if more > 3 else 6}}

    assert compared(golden, case, before, {"frontier": {"value": 6}}, again) == []
    assert times == [3.0, 9.0]


def test_every_case_has_a_name_of_its_own(golden: Any) -> None:
    cases = list(golden("cases").cases())
    assert len({case.name for case in cases}) == len(cases) > 1000
    for case in cases:
        assert len({ask.name for ask in case.asks}) == len(case.asks), case.name
