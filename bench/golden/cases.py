"""What is asked: every command on the examples and on the corpus, closed forms, heuristics.

A case is a folder with files and what is asked there, one after the other; its name begins with its
part. ``held`` says how an answer is compared: ``exact``; ``within`` (a search by the clock: status,
value and bound may only become better); ``code`` (its exit code, and which files are there).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
PROBLEMS = {"bench": "plain", "bench-next": "beyond", "2026-11-21-benchmark": "more"}
"""Folders of problems, by how the record names them."""

MOST_OPS = 600
"""Of problems whose hand-written schedules are made."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """A command line, or ``=`` and what is asked of Python; ``needs`` a file to be asked at all."""

    words: str
    held: str = "exact"
    label: str = ""
    needs: str = "."

    @property
    def name(self) -> str:
        return self.label or self.words.partition(" ")[0]


@dataclass(frozen=True)
class Case:
    """A folder's files, as documents, texts or paths to copy, and what is asked there."""

    name: str
    files: dict[str, Any]
    asks: list[Ask]


def cases() -> Iterator[Case]:
    """Yield every case; names are stable, whatever is added."""
    corpus: dict[str, dict[str, Document]] = {"problem": {}, "layers": {}, "file": {}}
    for line in (HERE / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        corpus[entry["kind"]][entry["name"]] = entry["document"]
    problems = {
        f"example-{path.stem}": path
        for path in sorted(EXAMPLES.glob("*.json"))
        if '"pipesat.problem/1"' in path.read_text(encoding="utf-8")
    }
    problems |= corpus["problem"]
    bench = {
        f"{known}-{path.stem}": path
        for known, folder in PROBLEMS.items()
        for path in sorted((HERE.parent / folder / "problems").glob("*.json"))
    }
    for name, found in (problems | bench).items():
        document = _document(found)
        yield Case(f"closed-forms/{name}", {"p.json": found}, [Ask("=closed-forms")])
        if _ops(document) <= MOST_OPS:
            yield Case(f"heuristics/{name}", {"p.json": found}, [Ask("=heuristics")])
        if name in problems:
            yield from _of_problem(name, found, document)
    for name in ("gemma", "deepseek"):
        corpus["layers"][f"example-{name}"] = _document(EXAMPLES / f"layers-{name}-like.json")
    for name, document in corpus["layers"].items():
        yield from _of_layers(name, document)
    yield from _of_files(corpus["file"])
    yield from _advice()
    yield _torch()


def _document(found: Document | Path) -> Document:
    return found if isinstance(found, dict) else json.loads(found.read_text(encoding="utf-8"))


def _ops(document: Document) -> int:
    counts = [route["microbatches"] for route in document.get("routes", [document])]
    each = sum(n if isinstance(n, int) else sum(e["count"] for e in n) for n in counts)
    return 3 * len(document["stages"]) * each


def _turn(name: str, every: int) -> bool:
    """Whether it is a name's turn, one of ``every``, whatever other names there are."""
    return crc32(name.encode()) % every == 0


def _of_problem(name: str, found: Any, document: Document) -> Iterator[Case]:
    files, held = {"p.json": found}, "within"
    yield Case(f"commands/read/{name}", files, [*_reading(name)])
    clock = "p.json --workers 1 --json -o out"
    if _turn(f"compare {name}", 6):
        asks = [Ask(f"compare {clock} --time-limit 0.5", held)]
        yield Case(f"commands/compare/{name}", files, asks)
    if _turn(f"memory {name}", 12):
        levers = " --by-mode" if any(stage.get("modes") for stage in document["stages"]) else ""
        asks = [Ask(f"frontier {clock} --caps points=3 --time-limit 1{levers}", held)]
        words = "frontier p.json --workers 1 --json --within 10% --time-limit 1"
        asks.append(Ask(words, held, "min-memory"))
        yield Case(f"commands/memory/{name}", files, asks)
    lists = any(isinstance(r["microbatches"], list) for r in document.get("routes", [document]))
    if lists and _turn(f"order {name}", 2):
        asks = [Ask("balance p.json --time-limit 0.3 --json -o out", held, "order")]
        yield Case(f"commands/order/{name}", files, asks)
    if _turn(f"sweep {name}", 40):
        spec = 'format = "pipesat.sweep/1"\n[run]\ndeterministic = true\n[grid]\n'
        spec += 'problem = "p.json"\nobjective = ["makespan", "span"]\ntime_limit = 0.1\n'
        asks = [Ask("sweep s.toml --processes 1 --csv rows.csv --json -o rows")]
        yield Case(f"commands/sweep/{name}", files | {"s.toml": spec}, asks)


def _reading(name: str) -> Iterator[Ask]:
    """Solve half of them by deterministic time, then everything that reads a schedule."""
    solve = "solve p.json --deterministic --json --time-limit 0.05"
    solved = _turn(f"solve {name}", 2)
    there = "out/schedule.json" if solved else "s.json"
    if solved:
        yield Ask(f"{solve} -o out{' --objective span' if _turn(name, 3) else ''}")
    else:
        words = "export p.json list-scheduling --to schedule -o s.json"
        yield Ask(words, label="baseline")
    if _turn(name, 8):
        yield Ask(f"{solve} --for torch", label="solve for torch")
    both = f"p.json {there}"
    yield Ask("=spoil", needs=there)
    yield Ask("check p.json spoilt.json --json", label="check spoilt", needs=there)
    yield Ask(f"check {both} --json", needs=there)
    yield Ask(f"show {both} --steps --json", label="steps", needs=there)
    if _turn(name, 4):
        words = "--noise 5%,samples=3,baselines=1 --json --seed 1"
        yield Ask(f"compare {both} {words}", label="risk", needs=there)
    exported = {
        "torch-csv": "order.csv",
        "trace": "x.json",
        "order": "o.json",
        "torchtitan": "x.toml",
        "nemo-automodel": "x.yaml",
        "megatron-layout": "l.txt --to layers=5040",
    }
    for format_, out in exported.items():
        yield Ask(f"export {both} --to {format_} -o {out}", label=f"export {format_}", needs=there)
    words = "export p.json order.csv --to schedule -o back.json"
    yield Ask(words, label="import", needs="order.csv")
    yield Ask(f"show {both}", "code", needs=there)
    if _turn(name, 8):
        yield Ask(f"show {both} -v", "code", "show critical", there)
        yield Ask("show out --html r.html", "code", "report", "out/schedule.json")


def _of_layers(name: str, document: Document) -> Iterator[Case]:
    if not (_turn(name, 2) or name.startswith("example")):
        return
    chance = Random(f"golden {name}")
    held = sum(entry.get("held_after_F", 0) for entry in document["layers"])
    weights = sum(entry.get("weights", 0) for entry in document["layers"])
    memory = weights // 2 + document.get("reserve", 0) + chance.randint(1, max(2, 2 * held))
    asked = f"--devices 2 --microbatches {chance.randint(1, 4)} --workers 1 --json -o out"
    asked += f" --link-delay {chance.choice([0, 0, 1, 2])}"
    asked += f" --memory {memory}" if chance.random() < 0.6 else ""
    plan = f"plan l.json {asked} --placement {chance.choice(['chain', 'vee', 'loop', 'any'])}"
    if any("recompute" in entry for entry in document["layers"]):
        plan += f" --recompute {chance.choice(['never', 'where-needed', 'choose'])}"
    plan += f" --objective {chance.choice(['makespan', 'span'])} --time-limit 1"
    plan += (
        f" --link-delay bandwidth={chance.choice(['2', '1/3'])}" if chance.random() < 0.3 else ""
    )
    asks = [Ask("show l.json", "code", "layers"), Ask(plan, "within")]
    yield Case(f"commands/plan/{name}", {"l.json": document}, asks)
    if _turn(f"advise {name}", 3):
        units = {"time_unit": "ms", "memory_unit": "MiB"}
        runtime = chance.choice(["torch", "torchtitan", "automodel", "megatron"])
        asks = [Ask(f"advise l.json {asked} --for {runtime} --time-limit 2", "within")]
        yield Case(f"commands/advise/{name}", {"l.json": units | document}, asks)


def _of_files(world: dict[str, Document]) -> Iterator[Case]:
    """What makes files from files."""
    each = "--times F=4,B=5,W=3 --memory held_after_F=10,held_after_B=4"
    new = {
        "chain": f"{each} --devices 4 --microbatches 8 --link-delay 1 --memory 1f1b*0.75",
        "loop": f"{each} --devices 2 --microbatches 4 --placement loop,chunks=3 --times BW=7",
        "vee": f"{each} --devices 4 --microbatches 8 --placement vee --overlap 3/4",
        "two": f"{each} --devices 4 --microbatches 8 --placement bidirectional --memory 30",
        "by-length": f"{each} --devices 2 --lengths lengths.json,order=same --reference 1024 "
        "--quadratic 0.2",
        "joined": f"{each} --devices 2 --lengths lengths.json --reference 1024 --tolerance 0.4",
        "layers": f"{each} --devices 4 --microbatches 8 --times layers=12 --placement cut=balanced",
        "fused": f"{each} --devices 3 --microbatches 2 --backward fused --memory 40,static=7",
        "pair-time": f"{each} --devices 2 --microbatches 4 --overlap pair=11,pair=F+F=7",
        "uneven": "--times F=4,5,6,B=5,5,8,W=3 --devices 3 --microbatches 4",
        "bad": f"{each} --devices 2 --microbatches 0",
    }
    asks = [Ask(f"problem new {words} -o {name}.json", label=name) for name, words in new.items()]
    yield Case("commands/new", {"lengths.json": EXAMPLES / "lengths.json"}, asks)
    profiles = {
        "chain": "",
        "vee": "--placement vee --memory 9GiB --link-delay file=links.json",
        "high": "--cost high --training optimizer=sgd,receive=held --memory reserve=1GiB",
        "no-modes": "--modes offload,copy_bandwidth=20GiB,copy_channels=1",
        "balanced": "--placement cut=balanced --backward either --link-delay 50",
    }
    sized = "profile.json --devices 2 --microbatches 4"
    asks = [
        Ask(f"problem from-profile {sized} {words} -o {name}.json", label=name)
        for name, words in profiles.items()
    ]
    asks += [
        Ask("problem from-profile profile.json --layers -o l.json", label="layers"),
        Ask(f"advise {sized} --time-limit 2 --workers 1 --json -o out", "within"),
    ]
    yield Case("commands/profile", world, asks)
    both = "problem.json timeline.json"
    traces = "trace-0.json trace-1.json"
    asks = [
        Ask(f"timeline import problem.json {traces} -o timeline.json", label="import"),
        Ask(f"timeline compare {both} --json", label="compare"),
        Ask(f"timeline compare {both} --shortest --json", label="shortest"),
        Ask(f"timeline refit {both} -o again.json", label="refit"),
    ]
    yield Case("commands/timeline", world, asks)
    asks = [
        Ask(
            f"problem estimate --config {config} --gpu {gpu} --shape length=4096 -o l.json",
            label=label,
        )
        for label, config, gpu in (("h100", "llama3-8b", "h100"), ("unknown", "x", "a100"))
    ]
    asks.append(Ask("--doctor --json", "code", "doctor"))
    asks.append(Ask("sweep sweep.toml --dry-run --json"))
    asks.append(
        Ask(
            "advise l.json --overlap 53/100 --devices 4 --microbatches 8 --time-limit 3 "
            "--workers 1 --json -o out",
            "within",
        )
    )
    files = {
        "sweep.toml": EXAMPLES / "sweep.toml",
        "l.json": EXAMPLES / "layers-moe.json",
    }
    yield Case("commands/others", files, list(reversed(asks)))


def _advice() -> Iterator[Case]:
    """The advice on whole models, as docs/advise.md asks for it."""
    model = "llama3-8b --gpu h100 --devices 8 --microbatches 32 --memory 40GiB --link-delay 10"
    moe = "l.json --overlap 53/100 --devices 4 --microbatches 16 --link-delay 500"
    words = "--time-limit 15 --workers 1 --json -o out"
    asks = [
        Ask(f"advise {asked} --for {runtime} {words}", "within", f"{label} {runtime}")
        for label, asked, runtime in (
            ("llama", model, "torchtitan"),
            ("llama", model, "megatron"),
            ("moe", moe, "megatron"),
        )
    ]
    yield Case("commands/advice", {"l.json": EXAMPLES / "layers-moe.json"}, asks)


def _torch() -> Case:
    """What starts torch: measured, so only that it works and what it writes; last, it is heavy."""
    stages = [{"device": device, "F": 2, "B": 2, "W": 1, "held_after_F": 1} for device in (0, 1)]
    document = {"format": "pipesat.problem/1", "microbatches": 2, "stages": stages}
    document["devices"] = [{}, {}]
    size = "--shape style=llama,layers=1,width=16,heads=2,length=8,vocabulary=16"
    asks = [
        Ask("export p.json 1f1b --to schedule -o s.json", label="baseline"),
        Ask("run p.json s.json --verify --json", "code", "parity"),
        Ask("run p.json s.json --shape width=8 --steps 1,warm_up=1 -o t.json", "code"),
        Ask(f"profile {size} --samples 1,warm_up=0 -o profile.json", "code"),
    ]
    return Case("commands/torch", {"p.json": document}, asks)
