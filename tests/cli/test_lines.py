"""Options and what follows them, a line or two per command; a schedule in all its forms."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import pipesat
from tests.conftest import Run
from tests.support.outcomes import listing, one_bad_line
from tests.support.problems import chain, document, two_routes
from tests.support.profiles import document as measured_profile

SHORT = "--time-limit 1 --workers 1"
LEARNT = "--devices 2 --microbatches 2 --time-limit 1 --json"
AGAIN = {"name": "again", "backward": "fused", "BW": 7, "held_after_F": 1}

# Two devices, three microbatches, F = 2, B = 2, W = 1, delay 1. 1F1B by hand: 0F0 0-2, 1F0 3-5,
# 1BW0 5-8, 0BW0 9-12, 0F2 12-14, 1F2 15-17, 1BW2 17-20, 0BW2 21-24.
LINES = (
    ("export p.json 1f1b --to schedule -o new.json", "12 ops, makespan 24, span 24"),
    ("export l.json '1f1b, both-ends' --to schedule -o new.json", "12 ops"),
    ("export loop.json 'interleaved-1f1b, groups of 4' --to schedule -o new.json", "32 ops"),
    ("export p.json order.csv --to schedule -o new.json", "12 ops, makespan 24, span 24"),
    ("show p.json 1f1b --steps", r"SendActivations +0F0 +1\n"),
    ("show p.json 1f1b --png new.png", "new.png"),
    ("show out --html new.html,baselines=no", "Written to +new.html"),
    ("show out --png new.png", "Written to +new.png"),
    ("show layers.json", r"0 to 3 +l0 to l3 +2 +2 +1 +3"),
    ("problem from-profile profile.json --layers -o new.json", r"Layers +\d+"),
    (
        "problem from-profile profile.json --devices 2 --microbatches 2 --placement loop,chunks=1 "
        "--memory 1GiB,reserve=1MiB --modes none,copy_channels=1 "
        "--backward auto,split_limit=2 -o new.json",
        "2 devices, 2 stages, 2 microbatches",
    ),
    # 32 blocks, the embedding and the head
    ("problem estimate --config llama3-8b --gpu h100 -o new.json", r"Layers +34\n"),
    (
        "problem estimate --config tiny --gpu h100,products=0.5,attention=0.3,traffic=0.6 "
        "--shape length=64,batch=2 -o new.json",
        r"Layers +\d+",
    ),
    ("balance l.json --schedule 1f1b --time-limit 0.2 -o new", r"Take +1f1b: \d+"),
    (
        "balance p.json --lengths n.json --reference 4 --quadratic 10% --objective span "
        "--time-limit 0.2 --json",
        '"objective": "span"',
    ),
    (f"frontier m.json --by-mode {SHORT} --json", '"again"'),
    (f"frontier p.json --within 5% {SHORT} -o new", "Written"),
    (f"frontier p.json --within 5% --capacity-of p.json {SHORT} --json", '"memory": "file"'),
    (f"frontier p.json --caps points=2 --for torch {SHORT} --json", '"cap"'),
    (
        "compare p.json 1f1b --skew 2% --links pair --noise samples=3,baselines=1 --seed 1 --json",
        '"skew": "2%"',
    ),
    (
        "problem new --devices 2 --microbatches 2 --times F=2,B=2,W=1,BW=4 "
        "--placement loop,chunks=3,cut=even --memory 40,static=1,held_after_F=4,held_after_B=1 "
        "--link-delay 3 --units time=ms,memory=MiB",
        r'(?s)"time_unit": "ms".*"static": 1.*"device": 1,.*"BW": 4.*"held_after_B": 1.*t": 3',
    ),
    (
        "problem new --devices 2 --times F=2,B=2,W=1 --lengths n.json,order=same --reference 4",
        '"order": "same"',
    ),
    (
        "plan layers.json --placement loop,chunks=2 --memory 60,reserve=4 "
        f"--link-delay 3,bandwidth=1/2 {LEARNT}",
        '"value"',
    ),
    (
        "advise tiny --gpu h100 --shape length=64,batch=2,tensor_parallel=1 "
        f"--memory 60GiB,reserve=4GiB,copy_bandwidth=20GiB {LEARNT}",
        '"for": "torch"',
    ),
    (f"plan profile.json {LEARNT}", '"value"'),
    (
        "export p.json 1f1b --to torchtitan,layers=1,1,remark=a,b,checkpointing=none -o new.toml",
        "Written to +new.toml, for torchtitan",
    ),
    ("profile --list", r"\ntiny "),
    ("compare --list", r"\n1f1b "),
    ("problem examples new", "begin with README.md"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind."""
    folder = tmp_path_factory.mktemp("world")
    plain = document(chain(2, 3, F=2, B=2, W=1, comm=1, held=(4, 1)))
    classes = [{"name": "long", "count": 1, "time": [2, 1]}, {"name": "short", "count": 2}]
    stages = [{"device": stage % 2, "F": 2, "B": 2, "W": 1} for stage in range(4)]
    layer = {"name": "l0", "F": 2, "B": 2, "W": 1, "held_after_F": 4, "output": 1}
    files: dict[str, Any] = {
        "p.json": plain,
        "l.json": plain | {"microbatches": classes},
        "profile.json": measured_profile(),
        "layers.json": {
            "format": "pipesat.layers/1",
            "layers": [layer | {"name": f"l{k}"} for k in range(4)],
        },
        "n.json": [4, 2, 6],
        "m.json": plain | {"stages": [one | {"modes": [AGAIN]} for one in plain["stages"]]},
        "loop.json": plain | {"microbatches": 4, "stages": stages},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    problem = pipesat.Problem.read(folder / "p.json")
    pipesat.solve(problem, time_limit=2, workers=1).save(folder / "out")
    pipesat.export(problem, "1f1b", "torch-csv", folder / "order.csv")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("line", "says"), LINES)
def test_every_option_of_a_line_is_taken(line: str, says: str, cli: Run, world: Path) -> None:
    ran = cli(*shlex.split(line))
    assert ran.code == 0, ran.err
    assert re.search(says, "\n" + ran.out)


@pytest.mark.parametrize("line", [line for line, _ in LINES if "--time-limit" not in line])
def test_json_is_one_document_whatever_else_a_line_writes(line: str, cli: Run, world: Path) -> None:
    """Also beside a picture or a page, and of a list."""
    ran = cli(*shlex.split(line), "--json")
    assert (ran.code, type(ran.json)) in {(0, dict), (0, list)}


def test_the_answer_in_a_folder_is_shown_as_the_folder(cli: Run, world: Path) -> None:
    (other := world / "other").mkdir()
    assert cli("show", "out/result.json") == cli("show", "out")
    assert cli("show", "out/result.json", "--json").json["status"] == "optimal"
    (other / "result.json").write_bytes((world / "out" / "result.json").read_bytes())
    one_bad_line(cli("show", "other/result.json"), "other", "problem.json")
    one_bad_line(cli("show", "order.csv"), "order.csv", "expected its problem first")


@pytest.mark.parametrize("name", ["baseline", "import", "min-memory", "parity", "risk", "steps"])
def test_an_old_name_is_refused(name: str, cli: Run) -> None:
    one_bad_line(cli(name), f"no such command '{name}'")


def test_solve_takes_the_problem_that_balance_writes(cli: Run, world: Path) -> None:
    """The value that balance names is reached in the order given, and solve is no worse."""
    assert cli("balance", "l.json", "--time-limit", 0.3, "-o", "new").code == 0
    said = json.loads((world / "new" / "assignment.json").read_text())
    words = ("--time-limit", 1, "--workers", 1, "--json")
    assert cli("solve", "new/problem.json", *words).json["value"] <= said["value"]
    again = cli("check", "new/problem.json", said["schedule"], "--json").json
    assert (again["valid"], again["makespan"]) == (True, said["value"])


def test_an_order_on_two_routes_is_a_folder_that_show_takes(cli: Run, world: Path) -> None:
    """It has the problem alone: no order of one route is an assignment, and nothing was solved."""
    problem = two_routes(2, (2, 2))
    long = [{"name": "long", "count": 1, "time": [2, 1]}, {"name": "short", "count": 1}]
    routes = [route | {"microbatches": long} for route in document(problem)["routes"]]
    (world / "two.json").write_text(json.dumps(document(problem, routes=routes)))
    assert cli("balance", "two.json", "--time-limit", 0.2, "-o", "new").code == 0
    shown = cli("show", "new")
    assert (shown.code, "2 + 2 microbatches" in shown.out) == (0, True)
    one_bad_line(cli("show", "new", "--html", "new.html"), "new: no result.json here")


def test_a_problem_without_modes_is_told_where_they_come_from(cli: Run, world: Path) -> None:
    one_bad_line(cli("frontier", "p.json", "--by-mode"), "pipesat profile --measure modes")


def test_a_schedule_is_a_file_a_folder_an_order_or_a_name(cli: Run, world: Path) -> None:
    """The makespan of each, whichever command reads it; what a CSV has otherwise is told."""
    made = json.loads((world / "out" / "result.json").read_text())["makespan"]
    for given, makespan in (
        ("out", made),
        ("out/schedule.json", made),
        ("order.csv", 24),
        ("1f1b", 24),
    ):
        for words in (("check", "p.json", given, "--json"), ("show", "p.json", given)):
            ran = cli(*words)
            assert ran.code == 0, ran.err
            assert re.search(rf"(?i)makespan\D*{makespan}\b", ran.out)
    compared = cli("compare", "p.json", "1f1b", "order.csv", "--time-limit", 1, "--json").json
    names = [row["name"] for row in compared]
    assert names.count("1f1b") == names.count("order.csv") == 1
    (world / "order.csv").write_text("0UNSHARD,0F0,0B0,0F1,0B1,0F2,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n")
    noted = cli("check", "p.json", "order.csv")
    assert noted.err.startswith("pipesat: left out actions that compute nothing, 1 of them")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("1f1c", ("1f1c", "no such file, and no schedule's name: expected one of")),
        ("1f1b, upwards", ("expected one of given, descending",)),
        ("1f1b, groups of 2", ("only interleaved-1f1b",)),
        ("zb-v", ("p.json: zb-v does not apply",)),
        ("gone.json", ("gone.json: cannot read: No such file",)),
        ("empty", ("empty: no schedule.json here",)),
        (".", ("no schedule.json here",)),
    ],
)
def test_what_is_no_schedule(given: str, words: tuple[str, ...], cli: Run, world: Path) -> None:
    (world / "empty").mkdir()
    for command in ("check", "show"):
        one_bad_line(cli(command, "p.json", given), *words)


@pytest.mark.parametrize(
    "line",
    [
        "export p.json 1f1b -o p.json",
        "export p.json order.csv -o ./order.csv",
        "run p.json 1f1b -o p.json",
        "show p.json 1f1b --svg p.json",
        "problem from-profile profile.json --devices 2 --microbatches 2 -o profile.json",
    ],
)
def test_no_file_that_is_read_is_written_over(line: str, cli: Run, world: Path) -> None:
    before = listing(world)
    one_bad_line(cli(*shlex.split(line)), "expected another file: this one is read")
    assert listing(world) == before
