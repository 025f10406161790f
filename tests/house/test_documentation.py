"""README.md and docs/: every command runs, every snippet does, every name and link is real.

Each page is read from top to bottom in a folder of its own, as a reader would follow it. Commands
run with less time and fewer samples. What cannot run here stands in one of the tables below, with
the reason; a command or block that is neither run nor listed fails its test, and so does an entry
that no page needs any more. Blocks of language `text` are output.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from pipesat.cli.app import app
from pipesat.compare.schedules import schedule_of
from pipesat.core.errors import BadInput
from pipesat.layers.layers_file import parse_layers
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.runtimes.timeline import DeviceRun, Ran, Timeline, TrainingStep
from pipesat.schedule.schedule_file import ScheduleModel
from tests.conftest import Run
from tests.support.paths import ROOT
from tests.support.timelines import TRACES
from tests.support.traced import made_up, torch_traces

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PROFILE = ROOT / "experiments" / "predicted-and-measured" / "profile.json"

# What makes commands fast: appended wherever a command has the option.
FASTER = {"--time-limit": "0.3", "--noise": "samples=5"}
FEWER = (r"time_limit=\d+", "time_limit=0.3")  # the same for Python

# Commands of pipesat that are read, and their options and values checked, but that do not run.
ONLY_READ = {
    "explore": "serves a page until its terminal ends: tests/compare/explore",
    "profile": "measures a model for minutes: tests/layers/profile/test_profile.py",
    "run": "starts a process per rank: tests/measure/processes/test_run.py, test_parity.py",
    "timeline import": "of files: needs those of a training job; a folder of them is here",
}

# Words that stand for the reader's own files.
STANDS_FOR = {
    "PROBLEM": "examples/zb-6.2B-p8-m24-cap1.json",
    "SCHEDULE": "given/schedule.json",
    "NAME": "1f1b",
    "FILE": "made.json",
}

# The problem.json of a reader who has one: four stages with the costs of a 6.2B model.
OWN_PROBLEM = {
    "format": "pipesat.problem/1",
    "time_unit": "us",
    "microbatches": 6,
    "devices": [{"memory": 40_000}] * 4,
    "stages": [
        {"device": d, "F": 29802, "B": 29428, "W": 19530}
        | {"held_after_F": 10_000, "held_after_B": 4324}
        for d in range(4)
    ],
    "comm": {"default": 577},
}

# What a page's keys of a problem file are part of: eight stages on one device.
PART_OF = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{}],
    "stages": [{"device": 0, "F": 1, "B": 1, "W": 1}] * 8,
}

# What else a page takes as given at a command that begins so.
GIVEN = {
    ("docs/runtimes.md", "pipesat show PROBLEM order.csv"): (
        "pipesat export PROBLEM NAME --to torch -o order.csv",
    ),
}

# Programs other than pipesat, and why they do not run.
NOT_RUN = {
    "bash": "installs from a registry: CI runs scripts/test; here: the script is there and parses",
    "pip": "installs from a registry; here: the extra is there",
    "source": "acts on the reader's shell",
    "torchrun": "starts a process per rank: tests/measure/processes/test_run.py; here: it is there",
}

RUN_ELSEWHERE = {
    (
        "docs/memory.md",
        "from pipesat.measure.processes.memory_modes import",
    ): "in a rank: tests/measure/processes/test_memory_modes.py",
    (
        "docs/python.md",
        "import pipesat\nfrom pipesat.measure.timeline.refit",
    ): "starts processes: tests/measure/processes/test_python_page.py",
    (
        "docs/python.md",
        "pipesat.explore(",
    ): "serves a page until its terminal ends: tests/compare/explore",
    (
        "docs/runtimes.md",
        "from torch.distributed.pipelining",
    ): "in a rank: tests/runtimes/test_torch_itself.py",
}


# Reading a page


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


class Code(NamedTuple):
    """A code span, with its line breaks as spaces."""

    text: str


def parts(page: str) -> Iterator[Block | Code]:
    """Fenced blocks and code spans in the order in which they stand on a page."""
    pattern = re.compile(r"^```(\w*)\n(.*?)^```$|`([^`]+)`", re.DOTALL | re.MULTILINE)
    for match in pattern.finditer((ROOT / page).read_text()):
        if match[3] is None:
            yield Block(match[1], match[2])
        else:
            yield Code(" ".join(match[3].split()))


def blocks(page: str) -> list[Block]:
    return [part for part in parts(page) if isinstance(part, Block)]


def listed(table: dict[tuple[str, str], str], page: str, text: str) -> bool:
    """Whether a block is in the table, by its page and how it begins."""
    return any(page == where and text.lstrip().startswith(begin) for where, begin in table)


def shell_lines(text: str) -> list[list[str]]:
    """The words of each command, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [words for words in commands if words]


def is_shell(block: Block) -> bool:
    programs = {"pipesat", "cat", *NOT_RUN}
    first = block.text.split(maxsplit=1)[0] if block.text.strip() else ""
    return block.language in ("", "bash", "sh") and first in programs


# Commands


def command_of(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command, its name (``timeline compare``) and its arguments."""
    command: Any = app
    name: list[str] = []
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.get_command(None, words[0])
        name.append(words[0])
        words = words[1:]
    return command, " ".join(name), words


def options_of(command: Any) -> dict[str, Any]:
    return {
        opt: param
        for param in command.get_params(click.Context(command))
        for opt in (*param.opts, *param.secondary_opts)
        if opt.startswith("-")
    }


def accepts(words: list[str]) -> bool:
    """Whether the command line would take these words: options, values and all that is needed."""
    command, name, arguments = command_of(words)
    if hasattr(command, "commands"):
        return not name and words == ["--doctor"]
    try:
        command.make_context(name, [*arguments], resilient_parsing=False)
    except click.exceptions.Exit:  # `--list` has shown its list
        return True
    except (click.ClickException, BadInput):
        return False
    return True


def faster(words: list[str]) -> list[str]:
    if "--map" in words:  # reads a trace and searches nothing
        return words
    known = options_of(command_of(words)[0])
    sampled = {"--noise", "--skew"} & {*words}
    option = "--noise" if sampled else "--time-limit"
    return [*words, option, FASTER[option]] if option in known else words


class Reader:
    """Somebody who types what a page says."""

    def __init__(self, page: str, cli: Run) -> None:
        self.page = page
        self.cli = cli
        self.ran: list[str] = []
        self.names: dict[str, Any] = {}  # of the page's Python
        self.said = ""  # by a command whose answer is the same everywhere

    def pipesat(self, words: list[str], *, given: bool = False) -> None:
        text = shlex.join(["pipesat", *words])
        if not given:
            for (page, begin), commands in GIVEN.items():
                if page == self.page and text.startswith(begin):
                    for command in commands:
                        self.pipesat(shlex.split(command)[1:], given=True)
        words = [STANDS_FOR.get(word, word) for word in words if word != "..."]
        assert accepts(words), f"{self.page}: the command line does not take: {text}"
        name = command_of(words)[1]
        here = name == "timeline import" and Path(words[2]).is_dir()
        if name in ONLY_READ and "--list" not in words and not here:
            self.leave_what_it_would(name, words)
            return
        same = "--deterministic" in words
        outcome = self.cli(*words if same else faster(words))
        self.said = outcome.out if same else ""
        assert outcome.code == 0, f"{self.page}: {text}: {outcome.code}\n{outcome.err}"
        self.ran.append(text)

    def output(self, block: Block) -> None:
        """Of a deterministic command, every line that stands here is a line of what it printed."""
        if self.said:
            lines = [line for line in block.text.splitlines() if not line.startswith("Searched")]
            assert [line for line in lines if line not in self.said.splitlines()] == []
        self.said = ""

    def leave_what_it_would(self, name: str, words: list[str]) -> None:
        """Files that later commands read; a profile lies there from the start."""
        problem = Path(words[2] if name == "timeline import" else words[1])
        if name != "profile" and "-o" in words and problem.exists():
            as_predicted(problem).write(Path(words[words.index("-o") + 1]))

    def other(self, words: list[str]) -> None:
        program, *arguments = words
        if program == "cat":
            assert [path for path in arguments if not Path(path).is_file()] == []
        elif program == "bash":
            script = str(ROOT / arguments[0])
            assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
        elif program == "pip":
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            named = [extra for word in arguments for extra in re.findall(r"\[(.*?)\]", word)]
            assert [e for e in named if e not in project["optional-dependencies"]] == []
        elif program == "torchrun":
            module, *rest = arguments[arguments.index("-m") + 1 :]
            assert importlib.util.find_spec(module) is not None
            assert module != "pipesat" or accepts(rest)
        else:
            assert program == "source", f"{self.page}: neither run nor listed: {program}"

    def shell(self, block: Block) -> None:
        for words in shell_lines(block.text):
            if words[0] == "pipesat":
                self.pipesat(words[1:])
            else:
                self.other(words)

    def python(self, block: Block) -> None:
        code = compile(re.sub(*FEWER, block.text), self.page, "exec")
        if not listed(RUN_ELSEWHERE, self.page, block.text):
            exec(code, self.names)  # our own page

    def json(self, block: Block) -> None:
        document = json.loads(block.text)
        if "format" not in document:  # keys of a problem file
            stages = [stage for route in document.get("routes", ()) for stage in route["stages"]]
            own = {"stages": PART_OF["stages"][: len(stages)]} if stages else {}
            document = PART_OF | own | document
            if stages:
                del document["microbatches"]
        kind = document["format"].partition("/")[0]
        if kind == "pipesat.schedule":
            ScheduleModel.model_validate_json(block.text)
        elif kind == "pipesat.layers":
            parse_layers(document)
        else:
            parse_problem(document)

    def span(self, text: str) -> None:
        """Run a whole command in a sentence; of the mere name of one, see that it is real."""
        if text in self.ran:
            return
        words = shlex.split(text)[1:]
        usable = [STANDS_FOR.get(word, word) for word in words]
        command, name, rest = command_of(usable)
        assert name, f"{self.page}: there is no command `{text}`"
        wrong = [word for word in rest if word[:1] == "-" and word not in options_of(command)]
        assert wrong == [], f"{self.page}: `{text}`"
        if accepts(usable) and not (rest == [] and name in ONLY_READ):
            self.pipesat(words)


def as_predicted(path: Path) -> Timeline:
    """The timeline of a run of 1F1B in which everything takes as long as the problem says."""
    problem = read_problem(path)
    order = schedule_of(problem, "1f1b")
    rows = tuple(
        DeviceRun(tuple(Ran(t.item, float(t.start), float(t.end), 0.0) for t in row), ())  # type: ignore[arg-type]
        for row in order.devices
    )
    return Timeline(problem.sha256, (TrainingStep(rows),), 1.0)


@pytest.fixture
def reader(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Reader]:
    """A folder with what a reader has: the examples, a problem, a profile, a place for files."""
    (tmp_path / "examples").mkdir()
    for file in (ROOT / "examples").iterdir():
        (tmp_path / "examples" / file.name).symlink_to(file)
    sweep = tmp_path / "examples" / "sweep.toml"
    text = sweep.read_text()
    fewer = {"[16, 24]": "16", '["chain", "loop", "vee"]': '"loop"', "[2, 3]": "2"}
    fewer['["1f1b*0.5", "1f1b*0.75", "1f1b"]'] = '"1f1b"'
    for several, one in fewer.items():
        assert several in text
        text = text.replace(several, one)
    sweep.unlink()
    sweep.write_text(text)  # one of 24 cases
    (tmp_path / "profile.json").write_bytes(PROFILE.read_bytes())
    (tmp_path / "problem.json").write_text(json.dumps(OWN_PROBLEM))
    (tmp_path / "given").mkdir()
    for rank, trace in enumerate(TRACES):
        (tmp_path / "given" / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = tmp_path / "outputs" / "profile_traces" / "iteration_10"
    traces.mkdir(parents=True)
    for rank, trace in enumerate(torch_traces(made_up(2, 8, 2))):
        (traces / f"rank{rank}_trace.json").write_text(json.dumps(trace))
    monkeypatch.chdir(tmp_path)
    return lambda page: Reader(page, cli)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_from_top_to_bottom(page: str, reader: Callable[[str], Reader]) -> None:
    person = reader(page)
    for part in parts(page):
        if isinstance(part, Code):
            if part.text.startswith("pipesat "):
                person.span(part.text)
        elif part.language == "python":
            person.python(part)
        elif part.language == "json":
            person.json(part)
        elif is_shell(part):
            person.shell(part)
        else:
            assert part.language == "text", f"{page}: neither run nor output:\n{part.text}"
            person.output(part)


def test_the_tables_have_no_idle_entries() -> None:
    """What is excused from running must still be there."""
    for entry in RUN_ELSEWHERE:
        assert any(listed({entry: ""}, entry[0], block.text) for block in blocks(entry[0]))
    text = "".join((ROOT / page).read_text() for page in PAGES)
    assert [name for name in ONLY_READ if f"pipesat {name}" not in text] == []
    for page, begin in GIVEN:
        assert begin in (ROOT / page).read_text()
    programs = {
        words[0] for p in PAGES for b in blocks(p) if is_shell(b) for words in shell_lines(b.text)
    }
    assert set(NOT_RUN) <= programs


def test_the_reader_would_notice(reader: Callable[[str], Reader]) -> None:
    person = reader("README.md")
    with pytest.raises(AssertionError, match="does not take"):
        person.pipesat(["solve", STANDS_FOR["PROBLEM"], "--no-such-option"])
    with pytest.raises(AssertionError, match="there is no command"):
        person.span("pipesat no-such-command")
    with pytest.raises(AssertionError, match="`pipesat solve --no-such-option`"):
        person.span("pipesat solve --no-such-option")
    with pytest.raises(AssertionError, match="cannot read"):
        person.shell(Block("", "pipesat check no-such.json no-such.json\n"))
    person.said = "Take       7\nSearched   1 s\n"
    person.output(Block("text", "Take       7\nSearched   2 s\n"))
    person.said = "Take       7\n"
    with pytest.raises(AssertionError):
        person.output(Block("text", "Take       8\n"))
    with pytest.raises(AssertionError, match="neither run nor listed"):
        person.other(["no-such-program"])
    with pytest.raises(AttributeError):
        person.python(Block("python", "import pipesat\npipesat.no_such_name\n"))


# Names and links


def names(page: str) -> Iterator[str]:
    """Code spans that name something of this repository."""
    yield from (part.text for part in parts(page) if isinstance(part, Code))


@pytest.mark.parametrize("page", PAGES)
def test_python_names_and_paths_are_real(page: str) -> None:
    for text in names(page):
        dotted = re.match(r"(pipesat(?:\.[a-zA-Z_]\w*)+)(?![/\w])", text)
        if dotted and "/" not in text.split("(")[0]:
            assert resolves(dotted[1].split(".")), f"{page}: `{text}`"
        path = re.fullmatch(
            r"(pipesat|solver|heuristics|tests|docs|bench|experiments|scripts|examples)/\S*", text
        )
        if path and "{" not in text:
            assert any(ROOT.glob(text.rstrip("/"))), f"{page}: `{text}`"


def resolves(path: list[str]) -> bool:
    """Whether a dotted name is a module or something in one."""
    for length in range(len(path), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(path[:length]))
        except ImportError:
            continue
        for name in path[length:]:
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        return True
    return False


@pytest.mark.parametrize(
    "page",
    [
        str(path.relative_to(ROOT))
        for of in (
            "*.md",
            "docs/**/*.md",
            "examples/*.md",
            "bench/*.md",
            "bench/*/*.md",
            "experiments/*/*.md",
        )
        for path in sorted(ROOT.glob(of))
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path.read_text()), f"{page}: {target}"


def test_the_index_of_experiments_has_each() -> None:
    index = (ROOT / "experiments" / "README.md").read_text()
    folders = [f"{path.parent.name}/" for path in ROOT.glob("experiments/*/README.md")]
    folders += [f"../bench/{path.parent.name}/" for path in ROOT.glob("bench/*/README.md")]
    assert [name for name in folders if f"({name}README.md)" not in index] == []


def test_the_site_has_every_page() -> None:
    named = re.findall(r": (docs/[\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    made = {"docs/first-steps.md", "docs/commands.md"}
    outside = {"README.md", "docs/architecture.md"}
    assert {*named} - made == {*PAGES} - outside
    assert len(named) + 1 <= 23  # and the README


def anchors(text: str) -> set[str]:
    """How GitHub names a page's headings, and the page's own anchors."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    return named | set(re.findall(r'<a id="([^"]+)">', text))


def test_python_blocks_import_what_torch_has() -> None:
    """Blocks that run inside a rank only: the names they import."""
    pytest.importorskip("torch", reason="needs the extra `torch`")
    for page, begin in RUN_ELSEWHERE:
        for block in blocks(page):
            if block.language == "python" and block.text.startswith(begin):
                imports = [
                    n for n in ast.walk(ast.parse(block.text)) if isinstance(n, ast.ImportFrom)
                ]
                for statement in imports:
                    module = importlib.import_module(str(statement.module))
                    assert all(hasattr(module, alias.name) for alias in statement.names)
