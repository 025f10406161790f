"""What the range of an estimate does to the table, and that files of an estimate say so."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pipesat
from pipesat.advise.estimate_ends import varied
from pipesat.compare.schedules import schedule_of
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.stages import problem_of_split
from tests.conftest import Run
from tests.support.plans import entry, layers_of

LAYERS = replace(
    layers_of([entry(10, 10, 10) for _ in range(4)]),
    time_unit="ms",
    estimate="a guess",
    estimate_range=(500, 2000),
)


HEAD = entry(20, 20, 20) | {"name": "head", "role": "head"}
HEADED = replace(LAYERS, layers=layers_of([*[entry(10, 10, 10)] * 4, HEAD]).layers)


def test_rows_at_both_ends() -> None:
    """Half and twice the times of two stages of F 20, BW 40; their link takes 7 at both ends."""
    advice = pipesat.advise(LAYERS, 2, 4, latency=7, time_limit=20, workers=1)
    rows = [row for row in advice.shown if row.name == "1f1b" and row.split == "even"]
    for end in advice.ends[:2]:
        (time,) = (time for row, time in end.rows if row in rows)
        assert time == of_1f1b(end.share)
    said = advice.document()["at_the_ends"]
    varied = [(end["varied"], end["share"]) for end in said]
    assert varied[:2] == [("all compute", 0.5), ("all compute", 2.0)]
    assert varied[2:] == [("W / B", 0.2), ("W / B", 0.86)]  # there is no head
    assert advice.chosen is not None
    doubt = dict(advice.facts())["Doubt"]
    assert doubt.startswith("all costs are an estimate (x 0.50 to 2.00). ")
    assert "the advice stays the shortest" in doubt or "The advice depends on it" in doubt
    cases = ["all compute x 0.50", "all compute x 2.00", "W / B x 0.20", "W / B x 0.86"]
    assert [end.case for end in advice.ends] == cases
    for tried in range(5):  # so many in time: only of these anything is said
        known = [replace(end, rows=end.rows * (n < tried)) for n, end in enumerate(advice.ends)]
        said = dict(replace(advice, ends=tuple(known)).facts())["Doubt"]
        assert ("Not tried, as time ended: " + ", ".join(cases[tried:]) in said) == (tried < 4)
        assert ("he advice " in said) == (tried > 0)
        if "stays the shortest" in said:
            assert f"With {', '.join(cases[:tried])} the advice stays the shortest" in said
    assert len([label for label, _ in advice.details() if label == "range"]) == len(advice.ends)
    measured = replace(LAYERS, estimate="", estimate_range=None)
    exact = dict(pipesat.advise(measured, 2, 4, time_limit=20, workers=1).facts())["Doubt"]
    assert exact == "costs are taken as exact. Links are taken as free"


def test_the_head_and_w_against_b_are_varied_alone() -> None:
    """On the even split: F, B, W, of 20 of two blocks; the last stage has the head's 20 besides.

    0.32 of the head's 20 is 7. W / B of 10 to 10 at 0.2 is 3 to 17: at most 2 * 10 * 0.2 / 1.2;
    of 20 to 20, 6 to 34. 1F1B runs the whole backward, which stays.
    """
    advice = pipesat.advise(HEADED, 2, 4, time_limit=20, workers=1)
    row = next(row for row in advice.rows if row.name == "1f1b" and row.split == "even")
    ends = {(end.what, float(end.share)): end for end in advice.ends}
    assert ends.keys() >= {("the head alone", 0.32), ("the head alone", 2.0)}
    stages = [{"F": 20, "B": 20, "W": 20}, {"F": 27, "B": 27, "W": 27}]
    lighter = pipesat.Problem.chain(2, 4, **{k: [s[k] for s in stages] for k in "FBW"})
    assert ends["the head alone", 0.32].of(row) == schedule_of(lighter, "1f1b").makespan
    other = varied(advice.question, "W / B", Fraction(20, 100))
    moved = other.candidate(row.shape, row.partition).problem.stages
    assert [(s.F, s.B, s.W, s.BW) for s in moved] == [(20, 34, 6, 40), (40, 68, 12, 80)]
    assert ends["W / B", 0.2].of(row) == row.makespan


def test_an_advice_that_a_lighter_head_changes_says_so() -> None:
    """Four blocks of 30, a head of 60: the best has three blocks on one device, 90 of work each.

    With a head of 21 it still takes 16 * 90 = 1440 at least; the even split has 60 and 81, on which
    1F1B takes 16 * 81 + 60 = 1356 at most.
    """
    advice = pipesat.advise(HEADED, 2, 16, time_limit=20, workers=1)
    (end, _) = (end for end in advice.ends if end.what == "the head alone")
    assert advice.chosen is not None
    assert advice.chosen.makespan < 16 * 120  # what two blocks and the head take
    assert end.of(advice.chosen) >= 1440
    assert end.least[1] <= 1356
    assert "The advice depends on it: if " in dict(advice.facts())["Doubt"]
    ends = [text for label, text in advice.details() if label == "range"]
    assert any(text.startswith("if the head alone takes 0.32 of its") for text in ends)


def of_1f1b(share: Fraction) -> int:
    """1F1B's makespan on a problem that is written down anew."""
    F, B = int(20 * share), int(20 * share)
    problem = pipesat.Problem.chain(2, 4, F=F, B=B, W=B, BW=2 * B, comm=7)
    return schedule_of(problem, "1f1b").makespan


def test_files_of_an_estimate_say_so(cli: Run, tmp_path: Path) -> None:
    shape = Pipeline(devices=2, microbatches=2)
    problem = problem_of_split(LAYERS, (range(2), range(2, 4)), shape)
    path = tmp_path / "problem.json"
    problem.write(path)
    assert problem.document["estimate"] == "a guess"
    outcome = cli("solve", path, "--time-limit", 1, "-o", tmp_path / "out")
    assert outcome.err.startswith("pipesat: all times and memory are an estimate: a guess")
    assert re.search("^Doubt +times and memory are an estimate: a guess", outcome.out, re.MULTILINE)
    for words in (["check", path, tmp_path / "out" / "schedule.json"], ["compare", path]):
        assert "are an estimate: a guess" in cli(*words).err
    assert '"estimate": "a guess"' in (tmp_path / "out" / "result.json").read_text()
    cli("show", tmp_path / "out", "--html", tmp_path / "report.html")
    assert "are an estimate: a guess" in (tmp_path / "report.html").read_text()
