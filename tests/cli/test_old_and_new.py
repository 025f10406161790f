"""Every command line that was, and the one that does it now; old names are refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pipesat
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.paths import ROOT
from tests.support.problems import chain, document
from tests.support.profiles import document as measured_profile


class Row(NamedTuple):
    """An old line, the new one, a pattern of what it prints, and a key of the file it writes."""

    old: str
    new: str
    says: str
    writes: str = ""


SHORT = "--time-limit 1 --workers 1"
AGAIN = {"name": "again", "backward": "fused", "BW": 7, "held_after_F": 1}

# Two devices, three microbatches, F = 2, B = 2, W = 1, delay 1. 1F1B by hand: 0F0 0-2, 1F0 3-5,
# 1BW0 5-8, 0BW0 9-12, 0F2 12-14, 1F2 15-17, 1BW2 17-20, 0BW2 21-24.
ROWS = (
    Row("baseline --list", "compare --list", r"\n1f1b +chain +no +no +Narayanan"),
    Row(
        "baseline 1f1b p.json -o new.json",
        "export p.json 1f1b --to schedule -o new.json",
        "12 ops, makespan 24, span 24",
        "devices",
    ),
    Row(
        "baseline 1f1b l.json --microbatches both-ends -o new.json",
        "export l.json '1f1b, both-ends' --to schedule -o new.json",
        "12 ops",
        "devices",
    ),
    Row(
        "baseline interleaved-1f1b loop.json --group 4 -o new.json",
        "export loop.json 'interleaved-1f1b, groups of 4' --to schedule -o new.json",
        "32 ops",
        "devices",
    ),
    Row(
        "import torch-csv order.csv p.json -o new.json",
        "export p.json order.csv --to schedule -o new.json",
        "12 ops, makespan 24, span 24",
        "devices",
    ),
    Row("check p.json out/schedule.json", "check p.json out", "Valid "),
    Row("show p.json s.json", "show p.json 1f1b", r"Makespan +24 "),
    Row("steps p.json s.json", "show p.json 1f1b --steps", r"SendActivations +0F0 +1\n"),
    Row("steps p.json s.json --json", "show p.json 1f1b --steps --json", '"SendActivations"'),
    Row("report out", "show out --html new.html", "Written to +new.html"),
    Row("report out --png a.png", "show out --png new.png", "Written to +new.png"),
    Row("export p.json s.json --to png -o a.png", "show p.json 1f1b --png new.png", "new.png"),
    Row(
        "export p.json s.json --to trace -o t", "export p.json out --to trace -o new.json", "trace"
    ),
    Row("doctor", "--doctor", "pipesat works here"),
    Row("doctor --json", "--doctor --json", '"ok": true'),
    Row("layers show layers.json", "show layers.json", r"0 to 3 +l0 to l3 +2 +2 +1 +3"),
    Row(
        "layers from-profile profile.json -o new.json",
        "problem from-profile profile.json --layers -o new.json",
        r"Layers +\d+",
        "layers",
    ),
    Row(
        "problem from-profile profile.json --devices 2 --microbatches 2 -o new.json",
        "problem from-profile profile.json --devices 2 --microbatches 2 -o new.json",
        "2 devices, 2 stages, 2 microbatches",
        "stages",
    ),
    Row(
        "layers estimate --config llama3-8b --gpu h100 -o new.json",
        "problem estimate --config llama3-8b --gpu h100 -o new.json",
        "Layers +34\n",  # 32 blocks, the embedding and the head
        "layers",
    ),
    Row(
        "pairs parts.json -o new.json",
        "problem pairs parts.json --time-limit 5 -o new.json",
        "combinations take less together than in turn",
        "stages",
    ),
    Row(
        "order l.json --baseline 1f1b -o new.json",
        "balance l.json --schedule 1f1b --time-limit 0.2 -o new",
        r"Take +1f1b: \d+",
        "new/assignment.json: replicas",
    ),
    Row(
        "order p.json --lengths n.json --reference 4 --quadratic 10% --objective span --json",
        "balance p.json --lengths n.json --reference 4 --quadratic 10% --objective span "
        "--time-limit 0.2 --json",
        '"objective": "span"',
    ),
    Row("frontier m.json --levers", f"frontier m.json --by-mode {SHORT} --json", '"again"'),
    Row("min-memory p.json --within 5%", f"frontier p.json --within 5% {SHORT} -o new", "Written"),
    Row(
        "min-memory p.json --of file",
        f"frontier p.json --within 5% --capacity-of p.json {SHORT} --json",
        '"memory": "file"',
    ),
    Row(
        "(only solve and plan had --for)",
        f"frontier p.json --caps points=2 --for torch {SHORT} --json",
        '"cap"',
    ),
    Row("risk p.json s.json", "compare p.json 1f1b --noise 5%", "Drawn +noise 5.00 %, skew 0 %"),
    Row(
        "risk p.json s.json --skew 2% --links pair --samples 3 --baselines 1 --seed 1 --json",
        "compare p.json 1f1b --skew 2% --links pair --noise samples=3,baselines=1 --seed 1 --json",
        '"skew": "2%"',
    ),
    Row(
        "(only solve and plan had --for)",
        f"compare p.json 1f1b --for torch {SHORT} --json",
        '"name": "solver"',
    ),
    Row(
        "problem new --devices 2 --microbatches 2 --F 2 --B 2 --W 1 --comm 3 --split even",
        "problem new --devices 2 --microbatches 2 --times F=2,B=2,W=1 --link-delay 3 "
        "--placement chain,cut=even",
        '"default": 3',
    ),
    Row(
        "plan layers.json --devices 2 --microbatches 2 --latency 3",
        "plan layers.json --devices 2 --microbatches 2 --link-delay 3 --time-limit 1 --json",
        '"value"',
    ),
    Row(
        "problem new ... --F 2 --BW 4 --held-after-F 4 --chunks 3 --static 1 --time-unit ms",
        "problem new --devices 2 --microbatches 2 --times F=2,B=2,W=1,BW=4 "
        "--placement loop,chunks=3 --memory 40,static=1,held_after_F=4,held_after_B=1 "
        "--units time=ms,memory=MiB",
        r'(?s)"time_unit": "ms".*"static": 1.*"device": 1,.*"BW": 4.*"held_after_B": 1',
    ),
    Row(
        "problem new ... --lengths n.json --order same",
        "problem new --devices 2 --times F=2,B=2,W=1 --lengths n.json,order=same --reference 4",
        '"order": "same"',
    ),
    Row(
        "plan layers.json ... --chunks 2 --memory 60 --reserve 4 --latency 3 --bandwidth 1/2",
        "plan layers.json --devices 2 --microbatches 2 --placement loop,chunks=2 "
        "--memory 60,reserve=4 --link-delay 3,bandwidth=1/2 --time-limit 1 --json",
        '"value"',
    ),
    Row(
        "advise tiny --gpu h100 --length 64 --batch 2 --tensor-parallel 1 --quick",
        "advise tiny --gpu h100 --shape length=64,batch=2,tensor_parallel=1 --devices 2 "
        "--microbatches 2 --memory 60GiB,reserve=4GiB,copy_bandwidth=20GiB --time-limit 1 --json",
        '"for": "torch"',
    ),
    Row(
        "problem estimate ... --length 64 --batch 2 --products 0.5 --attention 0.3 --traffic 0.6",
        "problem estimate --config tiny --gpu h100,products=0.5,attention=0.3,traffic=0.6 "
        "--shape length=64,batch=2 -o new.json",
        r"Layers +\d+",
        "layers",
    ),
    Row(
        "problem from-profile ... --chunks 1 --reserve 1 --split-limit 2",
        "problem from-profile profile.json --devices 2 --microbatches 2 --placement loop,chunks=1 "
        "--memory 1GiB,reserve=1MiB --modes none,copy_channels=1 "
        "--backward auto,split_limit=2 -o new.json",
        "2 devices, 2 stages, 2 microbatches",
        "stages",
    ),
    Row(
        "show p.json 1f1b --critical-path",
        "show p.json 1f1b -v",
        "the chain that sets",
    ),
    Row(
        "show out --html r.html --no-baselines",
        "show out --html new.html,baselines=no",
        "Written to +new.html",
    ),
    Row(
        "export p.json 1f1b --to torchtitan --layers 1,1 --remark words --checkpointing none",
        "export p.json 1f1b --to torchtitan,layers=1,1,remark=a,b,checkpointing=none -o new.toml",
        "Written to +new.toml, for torchtitan",
    ),
    Row("profile --list-configs", "profile --list", r"\ntiny "),
    Row("cp -r CHECKOUT/examples new", "problem examples new", "begin with README.md"),
    Row(
        "layers from-profile profile.json -o l.json && plan l.json --devices 2 --microbatches 2",
        "plan profile.json --devices 2 --microbatches 2 --time-limit 1 --json",
        '"value"',
    ),
)
TORCH = (
    Row("parity p.json s.json", "run p.json 1f1b --verify", "largest relative error"),
    Row(
        "run p.json s.json --check -o t",
        "run p.json 1f1b --verify -o new.json",
        "check +passed",
        "steps",
    ),
    Row(
        "run p.json s.json --virtual -o t",
        "run p.json 1f1b --virtual -o new.json",
        "Makespan +predicted",
        "steps",
    ),
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
        "parts.json": json.loads((ROOT / "examples" / "parts-deepseek-like.json").read_text()),
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
    problem.solve(time_limit=2, workers=1).save(folder / "out")
    pipesat.export(problem, "1f1b", "torch-csv", folder / "order.csv")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.old)
def test_what_the_old_line_did(row: Row, cli: Run, world: Path) -> None:
    ran = cli(*shlex.split(row.new))
    assert ran.code == 0, ran.err
    assert re.search(row.says, "\n" + ran.out)
    if row.writes:
        name, _, key = row.writes.rpartition(": ")
        assert key in json.loads((world / (name or row.new.split()[-1])).read_text())


@pytest.mark.slow
@pytest.mark.parametrize("row", TORCH, ids=lambda row: row.old)
def test_what_the_old_line_did_in_torch(row: Row, cli: Run, world: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra `torch`")
    test_what_the_old_line_did(row, cli, world)


OLD = (
    "baseline",
    "doctor",
    "import",
    "layers",
    "min-memory",
    "order",
    "pairs",
    "parity",
    "report",
    "risk",
    "steps",
)


@pytest.mark.parametrize("name", OLD)
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
