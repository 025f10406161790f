"""What the range of an estimate does to the table, and that files of an estimate say so."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pipesat
from pipesat.advise.ends import ends_of, ends_text
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


def test_rows_at_both_ends() -> None:
    """Half and twice the times of two stages of F 20, BW 40; their link takes 7 at both ends."""
    advice = pipesat.advise(LAYERS, 2, 4, latency=7, time_limit=2, workers=1)
    rows = [row for row in advice.shown if row.name == "1f1b" and row.split == "even"]
    for end in ends_of(advice):
        (time,) = (time for row, time in end.rows if row in rows)
        assert time == of_1f1b(end.share)
    said = advice.document()["at_the_ends"]
    assert [end["share"] for end in said] == [0.5, 2.0]
    assert advice.chosen is not None
    assert "both ends" in ends_text(advice) or "depends on the estimate" in ends_text(advice)
    measured = replace(LAYERS, estimate="", estimate_range=None)
    assert not ends_text(pipesat.advise(measured, 2, 4, time_limit=1, workers=1))


def of_1f1b(share: Fraction) -> int:
    """1F1B's makespan on a problem that is written down anew."""
    F, B = int(20 * share), int(20 * share)
    problem = pipesat.Problem.chain(2, 4, F=F, B=B, W=B, BW=2 * B, comm=7)
    return pipesat.baseline("1f1b", problem).makespan


def test_files_of_an_estimate_say_so(cli: Run, tmp_path: Path) -> None:
    shape = Pipeline(devices=2, microbatches=2)
    problem = problem_of_split(LAYERS, (range(2), range(2, 4)), shape)
    path = tmp_path / "problem.json"
    problem.write(path)
    assert problem.document["estimate"] == "a guess"
    outcome = cli("solve", path, "--time-limit", 1, "-o", tmp_path / "out")
    assert outcome.err.startswith("pipesat: all times and memory are an estimate: a guess")
    assert "of all times and memory: a guess" in outcome.out
    for words in (["check", path, tmp_path / "out" / "schedule.json"], ["compare", path]):
        assert "are an estimate: a guess" in cli(*words).err
    assert '"estimate": "a guess"' in (tmp_path / "out" / "result.json").read_text()
    cli("report", tmp_path / "out", "-o", tmp_path / "report.html")
    assert "are an estimate: a guess" in (tmp_path / "report.html").read_text()
