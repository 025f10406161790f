"""Mutated files for every command that reads any, and what a command may answer to them.

The test draws a few hundred of them.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import gzip
import io
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from pipesat.cli import main

Path_ = tuple[str | int, ...]

MANY_DIGITS = "9" * 400
TOO_MANY_DIGITS = "9" * 5000
"""More than Python turns into an integer."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 255, 10**12, 10**12 + 1, 10**13, 10**15, 10**19,
    -(10**19), 2**63, int(MANY_DIGITS), 0.0, -0.0, 0.5, 1.0, 1.5, -2.5, 1e-320, 1e-20, 1e15, 1e16,
    1e300, 1.7e308, -1e308, float("inf"), float("-inf"), float("nan"), "", " ", "0", "1", "x",
    "0F0", "PP:0F0", "PP:9F9", "1.5", "1e400", "1f1b*0.5", "40GiB", "999999999999999TiB", "chain",
    "loop", "float32", "no/such/file", "a\0b", "\n\x1b[31m", "\ud800", "é" * 300, MANY_DIGITS,
    [], [0], [-1], [1, 2], [None], [[]], [[[]]], ["0F0"], ["x"], [1e308], {}, {"": 0}, {"rank": -1},
    {"rank": 10**19}, {"rank": True}, {"F": 1}, {"x": {"y": []}},
)  # fmt: skip


class Command(NamedTuple):
    """A command line; words in braces are files of the world, ``{new}`` is one to write."""

    words: tuple[str, ...]

    @property
    def reads(self) -> list[str]:
        """Names of the files that it reads."""
        words = (name for word in self.words for name in _NAMED.findall(word))
        return [word for word in words if word != "new"]


_NAMED = re.compile(r"\{(.*?)\}")
_PAIR = "{problem.json} {schedule.json}"
_LINES = [
    "solve {problem.json} -o {new}",
    "compare {problem.json}",
    "frontier {problem.json}",
    "compare {chain.json} --layers-per-stage 4",
    "frontier {chain.json} --placement chain,loop --layers-per-stage 4",
    "frontier {problem.json} --caps 9,1f1b*0.5",
    "frontier {problem.json} --within 5%",
    "export {problem.json} 1f1b --to schedule -o {new}",
    "export {vee.json} v-half --to schedule -o {new}",
    f"check {_PAIR}",
    f"check {_PAIR} --json",
    f"show {_PAIR} --steps",
    f"show {_PAIR} --steps --json",
    f"show {_PAIR}",
    f"export {_PAIR} --to trace -o {{new}}",
    f"export {_PAIR} --to torch-csv -o {{new}}",
    f"export {_PAIR} --to torchtitan -o {{new}}",
    f"export {_PAIR} --to nemo-automodel -o {{new}}",
    f"export {_PAIR} --to megatron-layout,layers=2,2 -o {{new}}",
    f"compare {_PAIR} --noise 5% --noise samples=2 --noise baselines=1",
    "compare {measured.json} {measured-schedule.json} --noise 5% --noise samples=2",
    f"run {_PAIR} --verify",
    f"run {_PAIR} -o {{new}}",
    "run {measured.json} {measured-schedule.json} -o {new} --model {profile.json}",
    "export {problem.json} {order.csv} --to schedule -o {new}",
    "timeline compare {problem.json} {timeline.json}",
    "timeline compare {problem.json} {timeline.json} --json --shortest",
    "timeline refit {problem.json} {timeline.json} -o {new}",
    "timeline import {problem.json} {trace-0.json} {trace-1.json} -o {new}",
    "timeline import {problem.json} {trace-0.json.gz} {trace-1.json} -o {new}",
    "show {layers.json}",
    "problem from-profile {profile.json} --layers -o {new}",
    "problem from-profile {profile.json} --devices 2 --microbatches 4 -o {new}",
    "problem from-profile {profile.json} --devices 2 --microbatches 4 "
    "--link-delay file={links.json} --placement vee --memory 9GiB -o {new}",
    "plan {layers.json} --devices 2 --microbatches 4",
    "plan {layers.json} --devices 2 --microbatches 4 --recompute choose --placement any",
    "plan {layers.json} --devices 2 --microbatches 4 --layout {modules.json}",
    "advise {layers.json} --devices 2 --microbatches 4",
    "advise {profile.json} --devices 2 --microbatches 4",
    "sweep {sweep.toml} --dry-run",
    "sweep {sweep.toml} --dry-run --json",
    "show {result} --html {new}",
    "show {result} --html {new} --html baselines=no",
]
COMMANDS = tuple(Command(tuple(line.split())) for line in _LINES)


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run_main(words: Sequence[str]) -> Outcome:
    """Run the command line inside this process, as the console script does."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["pipesat", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def _done(*_: object, **__: object) -> None:
    raise SystemExit(0)


_LONG_WORK = (
    "pipesat.solver.solve",
    "pipesat.compare.frontier.points.trace",
    "pipesat.advise.hand_written_rows.Trials.run",
    "pipesat.advise.plan_search.Search.run",
    "pipesat.compare.frontier.least_memory.least_memory",
    "pipesat.measure.processes.run.check_parity",
    "pipesat.measure.processes.run.run_order",
)


@contextlib.contextmanager
def reading_only() -> Iterator[None]:
    """Let commands that would solve, or start processes, end where all their files are read."""
    with contextlib.ExitStack() as stack:
        for name in _LONG_WORK:
            stack.enter_context(mock.patch(name, _done))
        yield


# The world: one valid file of each kind


def make_world(folder: Path) -> None:
    """Write a valid file of every kind."""
    from tests.support.profiles import document as profile_document
    from tests.support.profiles import times

    for name, document in _problems().items():
        _dump(folder / f"{name}.json", document)
    _dump(folder / "profile.json", profile_document())
    links = {
        "format": "pipesat.links/1",
        "backend": "gloo",
        "torch": "2.13",
        "device_name": "cpu",
        "sizes": [{"bytes": 1024, "delay": times(10.0)}],
    }
    _dump(folder / "links.json", links)
    _dump(folder / "layers.json", _layers())
    modules = [["tok_embeddings", "layers.0", "layers.1"], ["layers.2", "norm", "output"]]
    _dump(folder / "modules.json", modules)
    _write_traces(folder)
    (folder / "sweep.toml").write_text(_SWEEP)
    _make_files(folder)
    with reading_only():
        for command in COMMANDS:
            fine = Mutant((folder / "order.csv").read_bytes(), "nothing")
            wrong = faults(folder, command, folder / "order.csv", fine)
            assert not wrong, (command, wrong)


def _problems() -> dict[str, dict[str, Any]]:
    times = {"F": 2, "B": 3, "W": 1, "BW": 4}
    problem = {
        "format": "pipesat.problem/1",
        "name": "two",
        "time_unit": "us",
        "memory_unit": "B",
        "devices": [{"name": "a", "memory": 40, "static": 1}, {"memory": 40}],
        "stages": [
            {"device": d} | times | {"held_after_F": 5, "held_after_B": 2, "backward": "either"}
            for d in (0, 1)
        ],
        "microbatches": 2,
        "comm": {"default": 1, "edges": [{"src": 0, "dst": 1, "F": 2, "B": 1}]},
    }
    chain = {key: value for key, value in problem.items() if key != "comm"}
    vee = chain | {
        "stages": [chain["stages"][0] | {"device": d} for d in (0, 1, 1, 0)],  # type: ignore[index]
        "routes": [{"stages": [0, 1, 2, 3], "microbatches": 4}],
        "overlap": {"FB": [4, 5]},
    }
    del vee["microbatches"]
    return {"problem": problem, "chain": chain, "vee": vee}


def _make_files(folder: Path) -> None:
    """Let commands make the files that commands make."""
    made = [
        f"export {folder}/problem.json 1f1b --to schedule -o {folder}/schedule.json",
        f"export {folder}/problem.json {folder}/schedule.json --to torch-csv -o {folder}/order.csv",
        f"timeline import {folder}/problem.json {folder}/trace-0.json {folder}/trace-1.json "
        f"-o {folder}/timeline.json",
        f"solve {folder}/problem.json -o {folder}/result --deterministic",
        f"problem from-profile {folder}/profile.json --devices 2 --microbatches 2 "
        f"-o {folder}/measured.json",
        f"export {folder}/measured.json 1f1b --to schedule -o {folder}/measured-schedule.json",
    ]
    for line in made:
        outcome = run_main(line.split())
        assert outcome.code == 0, outcome.err


def _layers() -> dict[str, Any]:
    costs = {"F": 20, "B": 22, "W": 18, "held_after_F": 100, "held_after_B": 30}
    block = costs | {
        "weights": 50,
        "output": 8,
        "recompute": costs | {"B": 42, "held_after_F": 9, "BW": 60},
    }
    return {
        "format": "pipesat.layers/1",
        "name": "tiny",
        "time_unit": "us",
        "memory_unit": "MiB",
        "size_unit": "MiB",
        "reserve": 1,
        "static": {
            "unit_bytes": 1048576,
            "dtype": "bfloat16",
            "grad_dtype": "float32",
            "optimizer": "adamw",
            "state_dtype": "float32",
            "master_dtype": "float32",
        },
        "layers": [
            costs | {"name": "tok", "role": "embedding", "first": True, "weights": 70, "output": 8},
            block | {"name": "block", "repeat": 3},
            costs
            | {
                "name": "head",
                "role": "head",
                "last": True,
                "fused": True,
                "BW": 40,
                "weights": 80,
                "tied_to": "tok",
                "tie": "copies",
                "tied_weights": 70,
            },
        ],
    }


def _write_traces(folder: Path) -> None:
    orders = (
        (("0F0", 0, 2), ("0F1", 2, 2), ("0B0", 11, 4), ("0B1", 17, 4)),
        (("1F0", 4, 2), ("1B0", 6, 4), ("1F1", 10, 2), ("1B1", 12, 4)),
    )
    for rank, ops in enumerate(orders):
        events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1}]
        for name, start, length in ops:
            events.append(
                {
                    "ph": "X",
                    "cat": "user_annotation",
                    "name": f"PP:{name}",
                    "ts": 1000.0 + start,
                    "dur": length,
                    "pid": 1,
                    "tid": 2,
                }
            )
        events.append({"ph": "X", "name": "PP:0SEND_F0", "ts": 1002.5, "dur": 0.5})
        document = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": 1700000000000000000,
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2},
            "traceEvents": events,
        }
        _dump(folder / f"trace-{rank}.json", document)
        (folder / f"trace-{rank}.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))


_SWEEP = """format = "pipesat.sweep/1"
name = "all kinds"

[run]
workers = 1
deterministic = false

[costs.numbers]
F = [2, 3]
B = 3
W = 1
BW = 4
held_after_F = 5
held_after_B = 2
layers = 4
static = 1
overlap = [4, 5]
time_unit = "us"
memory_unit = "B"

[costs.measured]
profile = "profile.json"
links = "links.json"
optimizer = "adamw"
grad_dtype = "float32"
receive = "torch"
reserve = "1MiB"
split_limit = 1.5
cost = "median"

[[grid]]
costs = ["measured"]
devices = 2
microbatches = [2, 4]
placement = ["chain", "vee", "loop"]
chunks = 2
split = "even"
memory = ["unlimited", "9GiB", "1f1b*0.75"]
comm = 1
backward = "auto"
objective = "makespan"
target = "torch"
time_limit = 1.0
seed = 0

[[grid]]
problem = "chain.json"
microbatches = 3
memory = [40, [30, 40], "1f1b"]
"""
_SWEEP = _SWEEP.replace("F = [2, 3]\n", "F = [2, 3, 2, 2]\n")


def _dump(path: Path, document: object) -> None:
    path.write_text(json.dumps(document))


# Mutations


class Mutant(NamedTuple):
    """A file's new content, what was done, and where a value of a wrong type was put, if one was.

    ``wrong`` is its path; ``None`` where the file may still be right, or is not even JSON.
    """

    content: bytes
    done: str
    wrong: Path_ | None = None
    broken: bool = False


def mutate(name: str, content: bytes, rng: Random) -> Mutant:
    """Return a mutant of a file; it may be as valid as the file was."""
    if rng.randrange(4) == 0 or name.endswith((".csv", ".gz")):
        if name.endswith(".gz") and rng.randrange(3):
            inner = mutate(name.removesuffix(".gz"), gzip.decompress(content), rng)
            return inner._replace(content=gzip.compress(inner.content, 0))
        if name.endswith(".csv") and rng.randrange(3):
            return _mutate_csv(content, rng)
        return _mutate_bytes(content, rng)
    if name.endswith(".toml"):
        return _mutate_lines(content, rng)
    return _mutate_json(content, rng)


def _mutate_bytes(content: bytes, rng: Random) -> Mutant:
    at = rng.randrange(len(content) + 1)
    text = content.decode(errors="replace")
    deep = rng.choice((b"[", b'{"a":', b"[[{")) * 100_000
    ways: dict[str, Callable[[], bytes]] = {
        "truncated": lambda: content[:at],
        "a null byte": lambda: content[:at] + b"\0" + content[at:],
        "a byte that is no UTF-8": lambda: content[:at] + b"\xff" + content[at:],
        "a bare carriage return": lambda: content[:at] + b"\r" + content[at:],
        "UTF-16": lambda: text.encode("utf-16"),
        "UTF-32": lambda: text.encode("utf-32"),
        "latin-1": lambda: ("é" + text).encode("latin-1", "replace"),
        "a byte order mark": lambda: b"\xef\xbb\xbf" + content,
        "empty": lambda: b"",
        "blank": lambda: b" \n\t ",
        "twice": lambda: content + content,
        "nested deeply": lambda: content[:at] + deep + content[at:],
        "many digits": lambda: content[:at] + TOO_MANY_DIGITS.encode() + content[at:],
        "a large field": lambda: content[:at] + b"x" * 140_000 + content[at:],
        "a byte changed": lambda: content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
        "a piece lost": lambda: content[:at] + content[at + rng.randrange(1, 20) :],
        "a quote": lambda: content[:at] + b'"' + content[at:],
        "a packed file's head": lambda: b"\x1f\x8b" + content,
        "other JSON": lambda: json.dumps(rng.choice(VALUES)).encode(errors="surrogatepass"),
    }
    way = rng.choice([*ways])
    return Mutant(ways[way](), f"{way} at {at}")


def _mutate_csv(content: bytes, rng: Random) -> Mutant:
    rows = [*csv.reader(io.StringIO(content.decode()))]
    row = rng.choice(rows)
    cells = (
        "",
        "0F0",
        "9F9",
        "1F0",
        "0B0",
        "(0F0;1B0)OVERLAP_F_B",
        "(0F0;0B0)OVERLAP_F_B",
        "x",
        "0SEND_F0",
        "0F" + "9" * 400,
        "9" * 5000 + "F0",
        '"',
        "\r",
        "0F0junk",
        "x" * 140_000,
        "é",
        "\x1b[31m",
        "(0F0;0F1)OVERLAP_F_B",
        "()OVERLAP_F_B",
    )
    match rng.randrange(5):
        case 0:
            row.append(rng.choice(cells))
        case 1:
            rows.remove(row)
        case 2:
            rows.append(row)
        case 3:
            row.reverse()
        case _:
            row[rng.randrange(len(row))] = rng.choice(cells)
    return Mutant("\n".join(map(",".join, rows)).encode(), "a cell or row")


def _mutate_lines(content: bytes, rng: Random) -> Mutant:
    """Change a line of a TOML file: another value, no such line, twice, an unknown key."""
    lines = content.decode().splitlines()
    at = rng.choice([i for i, line in enumerate(lines) if line])
    key, equals, _ = lines[at].partition(" = ")
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines.insert(at, f"unknown{equals or ' = '}3")
        case _:
            lines[at] = f"{key} = {_toml(rng.choice(VALUES))}"
    return Mutant("\n".join(lines).encode(errors="surrogatepass"), lines[min(at, len(lines) - 1)])


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value, ensure_ascii=value is None or isinstance(value, int))


def _mutate_json(content: bytes, rng: Random) -> Mutant:
    document = json.loads(content)
    path = rng.choice([*_paths(document)])
    match rng.randrange(8):
        case 0 if path:
            return Mutant(_json_bytes(_without(document, path)), f"no {path}")
        case 1 if path and isinstance(path[-1], str):
            return Mutant(_doubled(document, path), f"twice {path}", broken=True)
        case 2:
            mark = "\x00here"
            text = _json_bytes(_with(document, path, mark))
            deep = rng.choice((b"[" * 100_000, TOO_MANY_DIGITS.encode(), b"1e999", b"{}" * 2))
            return Mutant(text.replace(json.dumps(mark).encode(), deep), f"odd text at {path}")
        case 3:
            node = _get(document, path)
            if isinstance(node, dict):
                key = rng.choice(("unknown", "", "format", "\n", "F "))
                return Mutant(_json_bytes(_with(document, path, node | {key: 1})), f"{path}+{key}")
        case 4:
            node = _get(document, path)
            if isinstance(node, list) and node:
                longer = node + node if rng.randrange(2) else node[::-1]
                return Mutant(_json_bytes(_with(document, path, longer)), f"other list {path}")
    value = rng.choice(VALUES)
    wrong = path if _alien(_get(document, path), value) and _is_read(document, path) else None
    return Mutant(_json_bytes(_with(document, path, value)), f"{path} = {str(value)[:40]!r}", wrong)


def _alien(old: object, new: object) -> bool:
    """Whether a value is of a type that no key with the other one takes."""
    kinds = {
        str: "text",
        bool: "flag",
        int: "number",
        float: "number",
        list: "list",
        dict: "object",
    }
    return new is not None and old is not None and kinds[type(old)] != kinds[type(new)]


def _is_read(document: Any, path: Path_) -> bool:
    """Whether we look at a value: of a trace, at its ranges' times, its zero and its rank."""
    if not isinstance(document, dict) or "traceEvents" not in document:
        return True
    return bool(path) and path[-1] in ("traceEvents", "ts", "dur", "baseTimeNanoseconds", "rank")


def _json_bytes(document: object) -> bytes:
    return json.dumps(document).encode()


def _paths(node: object, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    steps: Any = ()
    if isinstance(node, dict):
        steps = node.items()
    elif isinstance(node, list):
        steps = enumerate(node)
    for step, child in steps:
        yield from _paths(child, (*path, step))


def _get(node: Any, path: Path_) -> Any:
    for step in path:
        node = node[step]
    return node


def _with(document: Any, path: Path_, value: object) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    _get(document, path[:-1])[path[-1]] = value
    return document


def _without(document: Any, path: Path_) -> Any:
    document = copy.deepcopy(document)
    del _get(document, path[:-1])[path[-1]]
    return document


def _doubled(document: Any, path: Path_) -> bytes:
    """Write the key at ``path`` twice into its object."""
    mark = "\x00here"
    key = json.dumps(path[-1])
    text = json.dumps(_with(document, path, mark))
    value = json.dumps(_get(document, path))
    return text.replace(json.dumps(mark), f"{value}, {key}: {value}").encode()


# The judgement


def files_of(world: Path, name: str) -> list[Path]:
    """The files behind a name of a command: those of a result folder, or the one."""
    path = world / name
    if path.is_dir():
        return [path / f"{inner}.json" for inner in ("problem", "schedule", "result")]
    return [path]


def choose(world: Path, rng: Random) -> tuple[Command, Path]:
    """Return a command and a file that it reads (or that a sweep's file names)."""
    command = rng.choice(COMMANDS)
    name = rng.choice(command.reads)
    files = files_of(world, name)
    if name == "sweep.toml" and rng.randrange(4) == 0:
        files = [world / named for named in ("profile.json", "links.json", "chain.json")]
    return command, rng.choice(files)


def faults(world: Path, command: Command, path: Path, mutant: Mutant) -> list[str]:
    """Run a command with a file mutated; return what is wrong with its answer."""
    kept = path.read_bytes()
    path.write_bytes(mutant.content)
    new = world / "new"
    words = [_NAMED.sub(lambda found: str(world / found[1]), word) for word in command.words]
    try:
        outcome = run_main(words)
    except BaseException as error:  # whatever it is, it is the finding
        if isinstance(error, KeyboardInterrupt):
            raise
        return [f"{type(error).__name__}: {str(error)[:200]}"]
    finally:
        path.write_bytes(kept)
        written = new.is_file()
        for made in world.glob("new*"):
            made.unlink() if made.is_file() else shutil.rmtree(made)
    return list(_faults(world, command, path, mutant, outcome, written))


def _faults(
    world: Path, command: Command, path: Path, mutant: Mutant, outcome: Outcome, written: bool
) -> Iterator[str]:
    lines = outcome.err.splitlines()
    if "internal error" in outcome.err or "Traceback" in outcome.err:
        yield f"internal error: {lines[-1] if lines else ''}"
        return
    if outcome.code not in (0, 1, 2, 3):
        yield f"exit code {outcome.code}"
    wrong = mutant.wrong or mutant.broken
    if outcome.code == 0 and wrong and not _may_be_ignored(path):
        yield "accepted"
    if outcome.code != 2:
        return
    if written:
        yield "a file was written"
    if outcome.out:
        yield f"stdout: {outcome.out[:100]!r}"
    if len(lines) != 1 or not lines[0].startswith("pipesat: error: "):
        yield f"stderr: {outcome.err[:300]!r}"
        return
    line = lines[0]
    if not line.isprintable():
        yield f"not printable: {line!r}"
    if len(line) > 1000:
        yield f"{len(line)} characters"
    if str(world) not in line and "error: --" not in line:
        yield f"names no file: {line[:300]}"
    elif mutant.wrong and not any(where in line for where in _places(mutant.wrong)):
        yield f"does not name {mutant.wrong}: {line[:300]}"


def _may_be_ignored(path: Path) -> bool:
    """Other tools' files, and results, have more keys than we read."""
    return path.name.startswith("trace-") or path.name == "result.json"


def _places(path: Path_) -> Iterator[str]:
    """The path, what is in it, and the paths of its parents, as messages write them."""
    from pipesat.core.strict_json import path_text

    if not path:
        yield "expected"
    for inside in ("[", "."):  # a list may be right, and what is in it wrong
        yield path_text(path) + inside
    for end in range(len(path), 0, -1):
        yield path_text(path[:end]) + ":"
