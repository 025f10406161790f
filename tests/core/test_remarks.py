"""What is stated and not meant: one remark each, in every answer, never an error."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.layers.layers_file import parse_layers
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.problem.remarks import documents_of, text_of
from tests.conftest import Run
from tests.support.paths import EXAMPLES

PLAIN: dict[str, Any] = {"device": 0, "F": 10, "B": 10, "W": 9, "held_after_F": 4}


def problem_of(*stages: dict[str, Any], **more: Any) -> pipesat.Problem:
    entries = [PLAIN | {"device": place} | own for place, own in enumerate(stages)]
    document = {
        "format": "pipesat.problem/1",
        "devices": [{}] * len(stages),
        "stages": entries,
        "microbatches": 2,
    }
    return parse_problem(document | more)


def places(problem: pipesat.Problem) -> list[tuple[str, int | str | None]]:
    return [(one.path, one.value) for one in problem.remarks]


def mode(**stated: Any) -> dict[str, Any]:
    return {"modes": [{"name": "other"} | stated]}


CASES: dict[str, tuple[dict[str, Any], list[tuple[str, int | str | None]]]] = {
    # 20 > 10 + 9
    "BW longer": ({"BW": 20}, [("stages[1].BW", 20)]),
    "BW as long as B + W": ({"BW": 19}, []),
    "BW longer, fused: it runs": ({"BW": 20, "backward": "fused"}, []),
    "BW longer, split: it never runs": ({"BW": 20, "backward": "split"}, []),
    "BW shorter than B": ({"BW": 9, "backward": "fused"}, [("stages[1].BW", 9)]),
    "BW as long as B": ({"BW": 10}, []),
    "held after B, fused": (
        {"held_after_B": 5, "backward": "fused"},
        [("stages[1].held_after_B", 5)],
    ),
    "held after B, split": ({"held_after_B": 5}, []),
    "held after B, split in a mode": (
        {"held_after_B": 5, "backward": "fused"} | mode(backward="split", held_after_F=0),
        [],
    ),
    # recomputes in BW alone: B + W = 19 is left to a split backward
    "a mode's BW": (mode(BW=30, held_after_F=1), [("stages[1].modes[0].BW", 30)]),
    "a mode whose backward is fused": (mode(BW=30, held_after_F=1, backward="fused"), []),
    "a mode that gains nothing": (
        mode(BW=30, held_in_backward=9, backward="fused"),
        [("stages[1].modes[0].name", "other")],
    ),
    "a mode that costs nothing": (mode(held_after_F=1), [("stages[1].modes[0].name", "other")]),
    "an offload that frees nothing": (
        mode(offload={"out": 1, "in": 1, "held": 4}),
        [("stages[1].modes[0].offload.held", 4)],
    ),
    "an offload": (mode(offload={"out": 1, "in": 1, "held": 3}), []),
}


@pytest.mark.parametrize("name", CASES)
def test_each_statement_has_its_remark(name: str) -> None:
    stated, expected = CASES[name]
    assert places(problem_of({}, stated)) == expected


def test_what_holds_for_the_whole_problem() -> None:
    nothing = {"held_after_F": 0}
    limited = {"devices": [{}, {"memory": 7}]}
    assert places(problem_of(nothing, nothing, **limited)) == [("devices[1].memory", 7)]
    assert places(problem_of(nothing, {}, **limited)) == []
    none = {"B": 0, "W": 0}
    assert places(problem_of(none, none)) == [("stages[0].B", 0), ("stages[1].B", 0)]
    assert places(problem_of(none, {})) == [("stages[0].B", 0)]  # a frozen encoder
    assert places(problem_of({}, none)) == []  # the last stage's waits for nobody
    said = none | {"backward": "none"}
    assert places(problem_of(said, {})) == []
    assert places(problem_of(said, none, {})) == [("stages[1].B", 0)]
    slower = said | mode(F=11, held_after_F=4)
    assert places(problem_of(slower, {})) == [("stages[0].modes[0].name", "other")]
    assert places(problem_of({"B": 0}, {})) == []  # no input gradient, but a W
    idle = {"devices": [{}, {}, {}]}
    assert places(problem_of({}, {}, **idle)) == [("devices[2]", None)]
    # F and BW take 10 + 19 = 29 in turn
    pair = {"ops": ["0F", "0BW"]}
    assert places(problem_of({}, {}, overlap={"pairs": [pair | {"time": 28}]})) == []
    slow = {"pairs": [pair | {"time": 29}], "FB": [1, 1]}
    assert places(problem_of({}, {}, overlap=slow)) == [("overlap.pairs[0]", 29)]
    assert places(problem_of({}, {}, overlap={"FB": [5, 4]})) == [("overlap.FB", "5/4")]
    assert places(problem_of({}, {}, overlap={"FB": [4, 5]})) == []


def test_a_class_states_what_it_does_not_mean() -> None:
    """A public report: recomputation stated in BW alone is split away, in two classes."""
    classes = [
        {"name": "first", "count": 1, "stages": {"1": {"BW": 29, "held_after_F": 1}}},
        {"name": "twice", "count": 1, "time": [2, 1]},
        {"name": "last", "count": 1, "stages": {"0": {"BW": 28}, "1": {"BW": 28}}},
    ]
    problem = problem_of({}, {}, microbatches=classes)
    assert places(problem) == [
        ("microbatches[0].stages['1'].BW", 29),
        ("microbatches[2].stages['0'].BW", 28),
        ("microbatches[2].stages['1'].BW", 28),
    ]
    said = text_of(problem.remarks)
    assert said.startswith("stages 0–1 in class first, last: BW is longer than B + W (29 against")
    document = dict(problem.document)
    del document["microbatches"]
    routes = [{"stages": [0, 1], "microbatches": classes}]
    routed = parse_problem(document | {"routes": routes})
    assert routed.remarks[0].path == "routes[0].microbatches[0].stages['1'].BW"


def test_many_stages_alike_are_one_line() -> None:
    same = problem_of(*[{"BW": 20}] * 8)
    assert text_of(same.remarks).startswith("stages 0–7: BW is longer than B + W (20 against 19).")
    assert len(documents_of(same.remarks)) == 8
    differing = problem_of({"BW": 20}, {}, {"BW": 30})
    assert "stages 0, 2: BW is longer than B + W (20 against 19 on stage 0)." in text_of(
        differing.remarks
    )


def test_amounts_have_their_units() -> None:
    """25,000 and 10,000 parts of an activation are 2.5 and 1."""
    units = {"time_unit": "us", "memory_unit": "1e-4 activation"}
    held = {"held_after_F": 10_000, "held_after_B": 25_000, "backward": "fused"}
    said = text_of(problem_of({"BW": 20}, held, **units).remarks)
    assert "(20 us against 19 us)" in said
    assert "(2.5 activation against 1 activation)" in said
    offload = mode(offload={"out": 1, "in": 1, "held": 4})
    limited = {"devices": [{}, {"memory": 7}], "memory_unit": "MiB"}
    nothing = {"held_after_F": 0}
    assert "held_after_F (4 MiB)" in text_of(problem_of({}, offload, **limited).remarks)
    assert "what it holds (7 MiB)" in text_of(problem_of(nothing, nothing, **limited).remarks)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*-p*-m*.json")), ids=lambda p: p.stem)
def test_an_example_says_what_it_means(path: Path) -> None:
    assert read_problem(path).remarks == ()


def test_rounding_on_two_routes_is_said_of_routes() -> None:
    """F, B and W of 10, 10 and 9 by 1/3 are 4, 4 and 3, by 1/7 they are 2 each."""
    routes = [
        {"stages": [n], "microbatches": [{"name": "short", "count": 1, "time": [1, den]}]}
        for n, den in ((0, 3), (1, 7))
    ]
    document = {**problem_of({}, {}).document, "routes": routes}
    del document["microbatches"]
    assert text_of(parse_problem(document).remarks).startswith(
        "routes 0–1: scaled times are rounded up to whole units (all become 13.79 % larger on"
        " route 0)."  # 11 against 29/3
    )


def test_layers_have_the_same_remarks() -> None:
    layers = parse_layers(
        {
            "format": "pipesat.layers/1",
            "layers": [
                {"F": 1, "B": 1, "W": 1, "BW": 3, "repeat": 2, "name": "long"},
                {"F": 1, "B": 1, "W": 1, "recompute": {"F": 1, "B": 1, "W": 1}},
            ],
        }
    )
    found = documents_of(layers.remarks(memory=9))
    assert [(one["path"], one["value"]) for one in found] == [
        ("layers[0].BW", 3),
        ("layers[1].recompute.held_after_F", 0),
        ("memory", 9),
    ]
    assert str(found[0]["text"]).startswith("layers 0–1: BW is longer than B + W (3 against 2).")
    assert layers.remarks() == layers.remarks(memory=9)[:-1]
    plan = pipesat.plan(layers, 2, 2, memory=9, recompute="choose", time_limit=5)
    assert plan.document()["remarks"] == found
    assert dict(plan.facts())["Remark"] == text_of(layers.remarks(9))


def test_python_warns_once_at_the_line_that_made_it(tmp_path: Path) -> None:
    costs: dict[str, Any] = {"F": 10, "B": 10, "W": 9}
    with pytest.warns(pipesat.ProblemWarning, match="stages 0–3: BW is longer") as heard:
        made = pipesat.Problem.chain(4, 8, **costs, BW=20)
    assert [one.filename for one in heard] == [__file__]
    made.write(tmp_path / "problem.json")
    with pytest.warns(pipesat.ProblemWarning) as heard:
        read = pipesat.read(tmp_path / "problem.json")
    assert [one.filename for one in heard] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = read.with_memory(5)  # nothing is said twice
        answer = pipesat.solve(again, time_limit=5, target=None)
    assert "Remark" in dict(answer.facts())
    assert answer.document()["remarks"][0]["path"] == "devices[0].memory"
    page = pipesat.report(answer, baselines=False).html.decode()
    assert "<dt>Remark</dt><dd>memory is limited, and nothing states what it holds (5)." in page


@pytest.mark.parametrize(
    "command",
    [
        *("solve P --time-limit 2", "check P 1f1b", "show P 1f1b", "frontier P --time-limit 2"),
        "frontier P --within 5% --time-limit 2",
        "balance P --lengths L --reference 10 --time-limit 1",
        "balance P --lengths L --reference 10 --replicas 1 --time-limit 1",
        *("compare P --time-limit 2", "show P"),
    ],
)
def test_every_command_says_it(command: str, tmp_path: Path, cli: Run) -> None:
    problem = problem_of({"BW": 20}, {})
    problem.write(tmp_path / "p.json")
    (tmp_path / "l.json").write_text("[10, 20]")
    words = command.replace("P", str(tmp_path / "p.json"), 1)
    words = words.replace("L", str(tmp_path / "l.json"), 1)
    text = cli(*words.split()).out
    assert text.count("Remark") == 1
    assert "stage 0: BW is longer" in " ".join(text.split())
    answer = cli(*words.split(), "--json")
    found = json.loads(answer.out)
    if isinstance(found, list) or command == "show P":  # rows, or the file itself
        assert "remark: stage 0: BW is longer" in answer.err
    else:
        assert found["remarks"] == documents_of(problem.remarks)
