"""Every file for another program, read back by that program's rules, or refused in one line.

``export`` is given hand-written schedules by name, with parameters and by file. What the judge
reads (:mod:`campaign.judge.foreign`) has the same order per device, stages, layers in total and
settings; an order may differ only by what the answer says that it changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.case import Case
from campaign.commands.baseline import NAMES
from campaign.commands.common import family_of, schedule_in
from campaign.judge import foreign
from campaign.judge.claims import Judged
from campaign.judge.differing import microbatch_order
from campaign.judge.exact import Truth
from campaign.judge.foreign import Order, Refused, need
from campaign.judge.known import in_turns, scheduled, split_op, takes_group
from campaign.judge.reading import load
from campaign.judge.timed import read_timed
from campaign.problems import PROBLEMS
from campaign.problems.placed import layout, lettered, placed

FILES = {
    "torch": "made.csv",
    "torchtitan": "made.toml",
    "automodel": "made.yaml",
    "primus": "made.py",
    "d9d": "made.py",
    "jaxpp": "made.py",
    "megatron": "made.txt",
    "trace": "made.json",
    "order": "made.json",
    "schedule": "made.json",
}
FAMILIES = (*FILES, "layout")
_CONFIGURED = ("torchtitan", "automodel", "megatron")
_OTHERS = ("routes", "overlap", "pairs", "classes", "modes", "two-ways")


@dataclass
class Written:
    """What was exported, and what the answer says of it; a schedule's order by place."""

    to: str
    judged: Judged
    schedule: dict[str, Any]
    path: Path
    notes: str
    layers: str | None
    name: str

    def __post_init__(self) -> None:
        self.pipe = self.judged.pipe
        self.ranks, self.stages = self.pipe.devices, len(self.pipe.stages)
        self.timed, _ = read_timed(self.schedule, self.ranks)

    @property
    def route(self) -> tuple[int, ...]:
        need(
            len(self.pipe.routes) == 1, f"written, though there are {len(self.pipe.routes)} routes"
        )
        return self.pipe.routes[0][0]

    @property
    def microbatches(self) -> int:
        return self.pipe.routes[0][1]

    @property
    def homes(self) -> list[int]:
        return [self.pipe.stages[stage].device for stage in self.route]

    @property
    def loop(self) -> bool:
        return self.homes == [*range(self.ranks)] * (self.stages // self.ranks)

    @property
    def vee(self) -> bool:
        return self.homes == [*range(self.ranks), *reversed(range(self.ranks))]

    @property
    def order(self) -> Order:
        return [
            [tuple((self.route.index(s), kind, m) for s, kind, m in slot.ops) for slot in row]
            for row in self.timed.rows
        ]

    @property
    def group(self) -> int | None:
        """Size of groups that the name asks for."""
        found = re.fullmatch("interleaved-1f1b, groups of ([0-9]+)", self.name)
        return None if found is None else int(found[1])


def case(case: Case) -> None:
    if family_of(case) == "layout":
        layouts(case)
        return
    rng, to = case.rng, family_of(case)
    document = placed(rng) if rng.random() < 0.85 else PROBLEMS[rng.choice(_OTHERS)](rng)
    case.write("problem.json", document)
    schedule = None
    for _ in range(3):
        name = _a_name(case, document)
        words = ("export", "problem.json", name, "--to", "schedule", "-o", "s.json")
        if not case.run(*words, codes=(0, 1, 2)).code:
            schedule = schedule_in(case.folder / "s.json")
            break
    if schedule is None:
        return
    judged = Judged(document, "makespan", Truth(0))
    _, broken = judged.judge(schedule)
    case.expect(not broken, f"{name}: written as a schedule, breaks {broken[:2]}")
    layers = _some_layers(case, document) if to in _CONFIGURED else None
    words = [to, *([] if layers is None else [f"layers={layers}"])]
    words += ["exact"] if rng.random() < 0.2 and to not in ("megatron", "trace", "order") else []
    given = "s.json" if rng.random() < 0.3 and to != "megatron" else name
    ran = case.run(
        *("export", "problem.json", given, "--to", ",".join(words), "-o", FILES[to], "--json"),
        codes=(0, 1, 2),
    )
    path, said = case.folder / FILES[to], f"{name} to {to}"
    if ran.code:
        lines = ran.err.strip().splitlines()
        case.expect(len(lines) == 1, f"{said}: refused in {len(lines)} lines: {lines[:2]}")
        case.expect(not path.exists(), f"{said}: refused, and written all the same")
        return
    notes = " ".join(ran.json()["notes"])
    written = Written(to, judged, schedule, path, notes, layers, name)
    try:
        _as_named(written)
        _READERS[to](case, written)
    except Refused as why:
        case.violations.append(f"{said}: {why}")


def _a_name(case: Case, document: dict[str, Any]) -> str:
    """Draw a hand-written schedule that suits the placement, with a parameter at times."""
    rng, stages, devices = case.rng, len(document["stages"]), len(document["devices"])
    if rng.random() < 0.15:
        return rng.choice(NAMES)
    if stages == devices:
        return rng.choice(["1f1b", "zb-h1", "zb-h2", "gpipe", "eager-1f1b", "zb-auto"])
    homes = [stage["device"] for stage in document["stages"]]
    if homes == [*range(devices), *reversed(range(devices))] and rng.random() < 0.8:
        return rng.choice(["zb-v", "dualpipev", "v-half", "v-min", "v-auto"])
    if rng.random() < 0.7:
        return f"interleaved-1f1b, groups of {rng.randint(devices, 3 * devices)}"
    return rng.choice(
        ["interleaved-1f1b", "interleaved-zb", "looped-bfs", "gis", "list-scheduling"]
    )


def _some_layers(case: Case, document: dict[str, Any]) -> str | None:
    """Draw layers: all in one number, or one for each stage; at times nothing."""
    rng, stages = case.rng, len(document["stages"])
    if rng.random() < 0.1:
        return None
    if rng.random() < 0.6:
        return str(stages * rng.randint(1, 5) + rng.choice([0, 0, rng.randint(0, stages)]))
    return ",".join(str(rng.randint(1, 4)) for _ in range(stages))


def _as_named(written: Written) -> None:
    """Hold 1F1B, and interleaved 1F1B in groups that are named, against ours."""
    group = written.ranks if written.name == "1f1b" else written.group
    if group is None or not written.loop:
        return
    chunks, m = written.stages // written.ranks, written.microbatches
    mine = in_turns(written.ranks, chunks, m, group if chunks == 1 else min(group, m))
    made = [[split_op(text) for text in row] for row in mine]
    own = [[(s, "BW" if kind == "B" else kind, n) for s, kind, n in row] for row in _ops(written)]
    need(own == made, f"its schedule file: {_first_other(made, own)}")


def _ops(written: Written) -> list[list[foreign.Op]]:
    """Ops without weight gradients apart, one after another."""
    return [[op for slot in row for op in slot if op[1] != "W"] for row in written.order]


def _texts(schedule: dict[str, Any]) -> list[list[str]]:
    return [[entry[0] for entry in row] for row in schedule["devices"]]


def changed(truth: Order, read: Order, notes: str) -> str | None:
    """Say what is another order than the schedule's; ``None`` if only what was said is.

    Said may be: backwards whole or split, of the first stage or where W follows at once, and
    microbatches numbered as the last stage runs them, or as each stage does.
    """
    if truth == read:
        return None
    if not re.search("whole|fused|split|number|order|in turn", notes):
        return f"the order is another one, and nothing says so: {_first_other(truth, read)}"
    by_place = "each stage runs them in order" in notes
    names = [_numbers(order, by_place=by_place) for order in (truth, read)]
    one, other = (_bare(order, own) for order, own in zip((truth, read), names, strict=True))
    both = {op for row in one for op in row} & {op for row in other for op in row}
    rows = [[[op for op in row if op[1] != "W" or op in both] for row in o] for o in (one, other)]
    return None if rows[0] == rows[1] else f"the order is another one: {_first_other(*rows)}"


def _numbers(order: Order, *, by_place: bool) -> dict[tuple[int, str, int], int]:
    """New numbers of microbatches: as the last stage's forwards run, or as each stage's ops do."""
    flat = [op for row in order for slot in row for op in slot]
    last, found, seen = max(op[0] for op in flat), {}, dict[tuple[int, str], int]()
    of_last = [op[2] for op in flat if op[:2] == (last, "F")]
    for stage, kind, m in flat:
        place = stage, "B" if kind == "BW" else kind
        seen[place] = seen.get(place, -1) + 1
        found[stage, kind, m] = seen[place] if by_place else of_last.index(m)
    return found


def _bare(order: Order, names: dict[tuple[int, str, int], int]) -> list[list[foreign.Op]]:
    """Ops in turn, F first of a pair, whole backwards as B, none of the first stage's."""
    rows = []
    for row in order:
        flat = [op for slot in row for op in sorted(slot, key=lambda op: op[1] != "F")]
        kept = [op for op in flat if op[0] or op[1] == "F"]
        rows.append([(op[0], "B" if op[1] == "BW" else op[1], names[op]) for op in kept])
    return rows


def _first_other(one: Sequence[Any], other: Sequence[Any]) -> str:
    if len(one) != len(other):
        return f"{len(one)} rows and {len(other)}"
    for rank, (a, b) in enumerate(zip(one, other, strict=True)):
        for k, (x, y) in enumerate(zip(a, b, strict=False)):
            if x != y:
                return f"rank {rank}, place {k}: {x}, in the file {y}"
        if len(a) != len(b):
            return f"rank {rank}: {len(a)} slots, in the file {len(b)}"
    return "nothing"


def _right_order(written: Written, read: Order) -> None:
    """An order as the schedule has it, but for what was said, in the time that was said."""
    need(len(read) == written.ranks, f"{len(read)} rows for {written.ranks} ranks")
    foreign.complete(read, written.stages, written.microbatches)
    false = changed(written.order, read, written.notes)
    need(false is None, false or "")
    told = re.search(r"order: makespan ([\d,]+) \(|runs it ([\d,]+), of", written.notes)
    if told is None or any(len(slot) == 2 for row in read for slot in row):
        return
    rows = [[f"{written.route[s]}{kind}{m}" for ((s, kind, m),) in row] for row in read]
    made = scheduled(written.judged.document, rows)
    need(made is not None, "its lists wait for each other")
    assert made is not None
    end = max(entry[2] for row in made["devices"] for entry in row)
    said = int((told[1] or told[2]).replace(",", ""))
    need(end == said, f"the file's order takes {end}, {said} is said")


def _torch(_: Case, written: Written, path: Path | None = None) -> Order:
    order = foreign.torch_csv((path or written.path).read_text(encoding="utf-8"))
    _right_order(written, order)
    foreign.losses_in_order(order, written.stages)
    return order


def _configured(case: Case, written: Written) -> None:
    """A framework's configuration: placement by name, layers, microbatches, the CSV it names."""
    for ending, read in foreign.CONFIGURATIONS[written.to].items():
        found = read(written.path.with_suffix(ending).read_text(encoding="utf-8"))
        for key, true in (("ranks", written.ranks), ("microbatches", written.microbatches)):
            need(found[key] == true, f"{ending}: {found[key]} {key}, there are {true}")
        homes = foreign.placement_by_name(found["name"], written.ranks, written.stages)
        need(homes == written.homes, f"{ending}: {found['name']} is another placement")
        order = _torch(case, written, case.folder / found["csv"])
        split = any(op[1] == "W" for row in order for slot in row for op in slot)
        right = found["checkpointing"] == "none" or not split
        need(right, f"{ending}: split backwards with checkpointing {found['checkpointing']}")
        need((written.layers is None) == (found["parts"] is None), f"{ending}: layers")
        if written.layers is not None:
            _right_layers(foreign.layers_of_names(found["parts"]), written)


def _right_layers(cut: list[int], written: Written) -> None:
    """One number is all layers in total, several are those per stage; the total is printed."""
    given = [int(word) for word in (written.layers or "").split(",")]
    said = f"layers={written.layers}"
    need(len(cut) == written.stages, f"{len(cut)} parts, {written.stages} stages")
    need(sum(cut) == sum(given), f"{said} writes {sum(cut)}")
    need(len(given) == 1 or cut == given, f"{said} writes {cut}")
    told = rf"\b{sum(cut)}\b[^.]*layer|layer[^.]*\b{sum(cut)}\b"
    need(re.search(told, written.notes) is not None, f"{said}: the total is not printed")


def _python(_: Case, written: Written) -> None:
    """The literal order of a Python file, and what its head says of placement."""
    text, to = written.path.read_text(encoding="utf-8"), written.to
    found = foreign.python_order(text)
    truth = {"runtime": to, "stages": written.stages, "microbatches": written.microbatches}
    truth |= {"placement": written.homes, "problem": written.judged.sha256}
    for key, value in truth.items():
        need(found[key] == value, f"{key} {found[key]}, the problem has {value}")
    _right_order(written, found["order"])
    vee = written.vee and not written.loop
    if to == "jaxpp":
        foreign.jaxpp_rules(found["order"])
    else:
        need(vee or written.loop, f"{to} has loops and V's alone")
        word = {"d9d": r"stages in a (\S+?);", "primus": r"pp_algorithm: (\S+)"}[to]
        (said,) = re.findall(word, text)
        need((said in ("v", "zbv-formatted")) == vee, f"placement as {said}")


def _megatron(_: Case, written: Written) -> None:
    """Ranks, layout, layers in total, and the size of groups that the name asks for."""
    flags = foreign.megatron_flags(written.path.read_text(encoding="utf-8"))
    ranks, m = written.ranks, written.microbatches
    need(flags.get("--pipeline-model-parallel-size") == str(ranks), "ranks")
    need(written.loop, "stages lie in no loop")
    cut = foreign.megatron_layout(flags["--pipeline-model-parallel-layout"], ranks)
    if written.stages > ranks:
        flag = flags.get(foreign.GROUP_SIZE)  # of a name without groups, those that its order has
        size = written.group or int(flag or ranks)
        need(flag == str(size) or (flag is None and size == ranks), f"group size {flag}")
        number = written.group or m
        warned = re.search(rf"(?i)(refuse|warning|wants)[^.]*\b{number}\b", written.notes)
        need(takes_group(ranks, m, size) or warned is not None, f"m={m}: Megatron-LM refuses it")
    _right_layers([stage.count("t") for stage in cut], written)


def _trace(case: Case, written: Written) -> None:
    """Ops of every device in their order, all by one unit of time; the importer takes them, too."""
    rows = foreign.trace_order(written.path.read_text(encoding="utf-8"))
    texts, document = _texts(written.schedule), written.judged.document
    need([[name for name, _, _ in row] for row in rows] == texts, "another order")
    pairs = [
        (time, true)
        for row, own in zip(rows, written.schedule["devices"], strict=True)
        for (_, at, lasts), (_, start, end) in zip(row, own, strict=True)
        for time, true in ((at, start), (lasts, end - start))
    ]
    unit = next((time / true for time, true in pairs if true), 1)
    need(all(abs(time - true * unit) < 1e-6 * max(1, time) for time, true in pairs), "times")
    own = {"overlap", "routes"} & document.keys() or len(document["devices"]) == 1
    if not own and written.pipe.plain:  # one rank alone is taken for a part of a run
        ran = case.run("timeline", "import", written.path.name, "-o", "imported", codes=(0, 2))
        made = schedule_in(case.folder / "imported" / "schedule.json")
        need(not ran.code, f"our own trace is not imported: {ran.err.strip()}")
        need(made is not None and _texts(made) == texts, "imported as another order")


def _order(_: Case, written: Written) -> None:
    wanted, found = microbatch_order(written.pipe, written.timed), load(written.path)
    need(found in (wanted, wanted[0]), f"order {found}, the schedule has {wanted}")


def _schedule(_: Case, written: Written) -> None:
    found = load(written.path)
    _, broken = written.judged.judge(found)
    need(not broken, f"breaks {broken[:2]}")
    need(_texts(found) == _texts(written.schedule), "another order")


_READERS: dict[str, Callable[[Case, Written], object]] = {
    "torch": _torch,
    **dict.fromkeys(("torchtitan", "automodel"), _configured),
    **dict.fromkeys(("primus", "d9d", "jaxpp"), _python),
    "megatron": _megatron,
    "trace": _trace,
    "order": _order,
    "schedule": _schedule,
}


def layouts(case: Case) -> None:
    """``plan``'s layouts are such as Megatron-LM takes and ``plan --layout`` reads; of random ones
    it takes what Megatron-LM takes, and nothing else.
    """
    rng = case.rng
    devices, plain = rng.randint(2, 3), rng.random() < 0.5
    document = lettered(rng, devices, plain=plain)
    case.write("layers.json", document)
    chunks = rng.choice([1, 2])
    words = ["plan", "layers.json", "--devices", devices, "--microbatches", devices]
    words += ["--workers", 1, "--time-limit", 0.3]
    words += ["--placement", "loop,chunks=2" if chunks == 2 else "chain"]
    count = {
        role: sum(x.get("repeat", 1) for x in document["layers"] if x.get("role", "block") == role)
        for role in ("block", "mtp", "head")
    }
    given = layout(rng, devices * chunks, count["block"], count["mtp"])
    try:
        stages = foreign.megatron_layout(given, devices)
        flat = "".join(stages)
        takes = (flat.count("t"), flat.count("m")) == (count["block"], count["mtp"])
        takes &= all(stages) and len(stages) == devices * chunks
    except Refused:
        stages, takes = [], False
    whole = plain and count["head"] <= 1
    ran = case.run(*words, "--layout", given, "-o", "given", codes=(0, 2))
    lines = ran.err.strip().splitlines()
    if ran.code:
        case.expect(len(lines) == 1, f"{given}: refused in {len(lines)} lines")
        case.expect(not (whole and takes), f"{given} refused: {lines[:1]}")
    else:
        case.expect(bool(stages), f"{given} is taken, which Megatron-LM refuses or reads otherwise")
    ran = case.run(*words, "-o", "out", codes=(0, 2))
    if ran.code:
        return
    plan = load(case.folder / "out" / "plan.json")
    text, path = plan["layout"], case.folder / "out" / "layout.txt"
    case.expect(path.exists() == (text is not None), f"layout.txt beside {text!r}")
    if text is None:
        case.expect("layout" in ran.out + ran.err, "no layout, and nothing says why")
        return
    try:
        cut = foreign.megatron_layout(text, devices)
        own = sum(stage.count("t") for stage in cut)
        need(own == count["block"], f"{own} layers, there are {count['block']}")
    except Refused as why:
        case.violations.append(f"plan writes {text}, which Megatron-LM refuses: {why}")
        return
    again = case.run(*words, "--layout", text, "-o", "again", codes=(0, 2))
    case.expect(not again.code, f"plan writes {text} and refuses it: {again.err.strip()}")
