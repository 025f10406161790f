"""Every command on microbatches that differ and on memory modes: it works, or says why not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.measure.timeline.refit import refit
from pipesat.problem.ops import Op
from pipesat.problem.other_placements import same_layers_elsewhere
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.runtimes.timeline import Timeline
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain, document

Document = dict[str, Any]

AGAIN = {"name": "again", "backward": "fused", "BW": 5, "held_after_F": 1}
HOST = {"name": "host", "offload": {"out": 2, "in": 2, "held": 1}}


def classes() -> Document:
    """Two devices, one long microbatch before three short ones."""
    kinds = [{"name": "long", "count": 1, "time": [2, 1], "held": [2, 1]}]
    return document(
        chain(2, 4, F=2, B=2, W=1, cap=40, held=(4, 1)),
        microbatches=[*kinds, {"name": "short", "count": 3}],
        order="given",
    )


def modes() -> Document:
    found = document(chain(2, 4, F=2, B=2, W=1, cap=40, held=(4, 1)))
    found["stages"][0]["modes"] = [AGAIN, HOST]
    return found


def in_modes(found: Document, mode: int) -> Schedule:
    """1F1B of two devices, the first microbatch of stage 0 in a mode."""
    rows = ("0F0 0F1 0BW0 0F2 0BW1 0F3 0BW2 0BW3", "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3")
    order = tuple(
        tuple(
            Op(int(word[0]), word[1:-1], int(word[-1]), mode * (word[0] + word[-1] == "00"))  # type: ignore[arg-type]
            for word in row.split()
        )
        for row in rows
    )
    return time_order(parse_problem(found), order)


@pytest.fixture
def given(tmp_path: Path) -> Callable[[Document, int], tuple[Path, Path]]:
    """Write a problem and a schedule whose first microbatch runs in a mode."""

    def write(found: Document, mode: int = 0) -> tuple[Path, Path]:
        problem, schedule = tmp_path / "problem.json", tmp_path / "schedule.json"
        problem.write_text(json.dumps(found))
        write_schedule(schedule, read_problem(problem), in_modes(found, mode))
        return problem, schedule

    return write


Given = Callable[..., tuple[Path, Path]]


def test_steps_name_modes_and_refuse_copies(cli: Run, given: Given) -> None:
    lists = json.loads(cli("show", *given(modes(), 1), "--json", "--steps").out)
    named = [(step["op"], step["mode"]) for step in lists[0]["steps"] if "mode" in step]
    assert named == [("0F0", "again"), ("0BW0", "again")]
    shown = cli("show", *given(modes(), 1), "--steps").out
    assert re.search(r"Backward +0BW0 +- +again", shown)
    one_bad_line(
        cli("show", *given(modes(), 2), "--steps"), "steps has no copies yet: this schedule off"
    )
    assert cli("show", *given(classes()), "--steps").code == 0


def test_risk_knows_classes_and_refuses_copies(cli: Run, given: Given) -> None:
    words = ("--noise", "5%", "--noise", "samples=5", "--json")
    assert json.loads(cli("compare", *given(classes()), *words).out)["noise"] is not None
    assert cli("compare", *given(modes(), 1), *words).code == 0
    one_bad_line(cli("compare", *given(modes(), 2), *words), "risk knows no copies yet")


def test_capacities_change_but_shares_of_1f1bs_peak_are_of_equal_microbatches() -> None:
    for found in (classes(), modes()):
        other = parse_problem(found).with_memory([30, 50])
        assert [device.memory for device in other.devices] == [30, 50]
        assert {key: other.document[key] for key in found if key != "devices"} == {
            key: found[key] for key in found if key != "devices"
        }
    with pytest.raises(BadInput, match="a share of 1F1B's peak needs microbatches that are alike"):
        parse_problem(classes()).with_memory("1f1b*0.75")


def test_a_sweep_does_not_replace_a_list_by_a_number(cli: Run, tmp_path: Path) -> None:
    found = {key: value for key, value in classes().items() if key != "order"}
    (tmp_path / "problem.json").write_text(json.dumps(found))
    head = 'format = "pipesat.sweep/1"\n[run]\nworkers = 1\n[grid]\nproblem = "problem.json"\n'
    (tmp_path / "s.toml").write_text(head + "microbatches = [2]\ntime_limit = 0.1\n")
    cli("sweep", tmp_path / "s.toml", "-o", tmp_path / "rows", "--processes", "1")
    (line,) = (tmp_path / "rows" / "rows.jsonl").read_text().splitlines()
    assert json.loads(line)["status"] == "refused"
    assert "the problem's microbatches are a list" in line


@pytest.mark.parametrize(
    ("found", "what"),
    [(classes(), "microbatches that are a list"), (modes(), "memory modes")],
    ids=["classes", "modes"],
)
def test_what_is_for_equal_microbatches_alone_says_so(found: Document, what: str) -> None:
    problem = parse_problem(found)
    if problem.has_modes:
        with pytest.raises(NotApplicable, match=f"refit cannot take {what} into account yet"):
            refit(problem, Timeline.__new__(Timeline))
    with pytest.raises(NotApplicable, match=f"same layers elsewhere cannot take {what} into"):
        same_layers_elsewhere(problem, [2], ("loop",))
