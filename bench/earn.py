"""What does each argument of a bound earn? Closed forms without one of them at a time.

    python bench/earn.py --rows FILE [--gone NAME ...] [--only PROBLEMS] [--part PARTS]
    python bench/earn.py --rows FILE --table

The problems are those of bench/, ``DRAWN`` drawn ones of usual sizes (:func:`drawn`, by seed), and
the bound over all :func:`cuts` of the examples' layers, for makespan and span. A row has one of
these, with the bound of all parts that are not ``gone``, and without each of them. No search: what
is proven by models is measured by ``bench/ablate.py``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from pipesat import Problem
from pipesat.advise import bounds as of_cuts
from pipesat.bounds import (
    closed_form,
    counting,
    device_terms,
    given_order,
    memory_counts,
    modes,
    paired,
    paired_device,
    paired_memory,
    paired_ranks,
    paired_waiting,
    passing,
)
from pipesat.bounds.closed_form import closed_forms
from pipesat.bounds.device_terms import DeviceTerms
from pipesat.bounds.feasibility import preflight
from pipesat.bounds.period import has_period, steady_bounds
from pipesat.core.claims import Bound
from pipesat.core.errors import Infeasible
from pipesat.layers.layers_file import read_layers
from pipesat.layers.pipeline import Pipeline, link_delay

HERE = Path(__file__).resolve().parent
FOLDERS = ("beyond", "mixed", "graphs", "peers", "more", "plain")
LEAST = 0.05  # a move in % that counts
DRAWN = 120
KINDS: tuple[str, ...] = (
    "plain",
    "factor",
    "plain",
    "list",
    "plain",
    "recompute",
    "table",
    "list",
    "plain",
    "list",
)
KINDS = (*KINDS, "offload", "plain") * 5
KINDS += ("list factor", "list recompute", "list factor", "recompute factor", "list table") * 2
KINDS += ("list offload", "recompute table")
KINDS += (
    "plain late",
    "plain short",
    "factor late",
    "plain late short",
    "table late",
    "plain late",
) * 4
KINDS += ("list late", "list late short", "table short", "recompute late") * 6
"""Of a drawn problem, by its seed."""
SHARES = (0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.25, 1.5)


def _pairs(draw: Random, shape: str, devices: int, stages: int) -> dict[str, Any]:
    """Every F with every B and BW of its device, by a factor each."""
    number = stages * (2 if shape == "two_routes" else 1)
    home = [min(s, number - 1 - s) for s in range(number)]
    if shape in ("chain", "loop"):
        home = [s % devices for s in range(number)]
    pairs = [
        {"ops": [f"{a}F", f"{z}{kind}"], "factor": [draw.randint(60, 95), 100]}
        for a in range(number)
        for z in range(number)
        for kind in ("BW", "B")
        if home[a] == home[z]
    ]
    return {"pairs": pairs}


def _mode(kind: Sequence[str], draw: Random, busy: int) -> dict[str, Any]:
    copied = int(busy * draw.choice((0.5, 1.0)))
    if "offload" in kind:
        return {"name": "offload", "offload": {"out": copied, "in": copied, "held": 2}}
    whole = {"backward": "fused", "BW": 3 * busy // 2 + 20}
    return {"name": "recompute", "held_after_F": 2} | whole


def drawn(seed: int) -> Problem:
    """Draw a problem: 4 to 16 devices, 2 to 8 microbatches for each, 0.4 to 1.5 of 1F1B's memory.

    Of lists, as much memory as that for so many microbatches of the mean.
    """
    draw, kind = Random(seed), KINDS[seed].split()
    devices = draw.choice((4, 4, 6, 8, 8, 12, 16))
    count = draw.choice((2, 3, 4, 8)) * devices
    shape = draw.choice(("chain", "chain", "loop", "vee", "two_routes"))
    if "list" in kind and shape == "two_routes":
        shape = "chain"
    stages = devices * (1 if shape in ("chain", "two_routes") else 2)
    even = draw.random() < 0.3
    times = [[draw.randint(70, 130) for _ in range(stages)] for _ in "FBW"]
    f, b, w = (row[:1] * stages if even else row for row in times)
    stated: dict[str, Any] = {"F": f, "B": b, "W": [x * 2 // 3 for x in w], "held_after_F": 20}
    stated |= {"held_after_B": draw.choice((6, 10, 12)), "comm": draw.choice((0, 2, 10))}
    if "late" in kind:
        stated["held_after_B"] = 20
    if "short" in kind:
        share = draw.randint(80, 99)
        stated["BW"] = [(x + y) * share // 100 for x, y in zip(b, stated["W"], strict=True)]
    if "factor" in kind:
        stated["overlap"] = (draw.randint(70, 95), 100)
    if "table" in kind:
        stated["overlap"] = _pairs(draw, shape, devices, stages)
    microbatches: Any = count
    if "list" in kind:
        for key in {"F", "B", "W", "BW"} & {*stated}:
            stated[key] = [x * 100 for x in stated[key]]
        stated |= {"held_after_F": 2000, "held_after_B": 100 * stated["held_after_B"]}
        lengths = [
            min(400, int(100 * draw.lognormvariate(0, 0.6)) + 10)
            for _ in range(draw.choice((24, 48, 64, 96)))
        ]
        microbatches = [
            {"name": f"mb{n}", "count": 1, "time": [x, 100], "held": [x, 100]}
            for n, x in enumerate(lengths)
        ]
    if {"recompute", "offload"} & {*kind}:
        stated["modes"] = [_mode(kind, draw, stated["F"][0] * 2)]
        if "offload" in kind:
            stated["copy_channels"] = draw.choice((1, 2))
        stated["mode_choice"] = draw.choice(("microbatch", "stage"))
    return _within(draw, seed, getattr(Problem, shape), (devices, count), microbatches, stated)


def _within(
    draw: Random,
    seed: int,
    make: Callable[..., Problem],
    size: tuple[int, int],
    microbatches: Any,
    stated: dict[str, Any],
) -> Problem:
    """Within the least share of memory, from one that is drawn on, in which it fits."""
    least, listed = draw.choice(SHARES), not isinstance(microbatches, int)
    order = {"order": draw.choice(("given", "same", "free"))} if listed else {}
    for share in (share for share in (*SHARES, 3, 6) if share >= least):
        memory: Any = f"1f1b*{share}"
        if listed:
            alike = make(*size, memory=memory, **stated)
            memory = [int(one.memory or 0) for one in alike.devices]
        name = f"drawn-{seed}"
        problem = make(size[0], microbatches, memory=memory, name=name, **stated, **order)
        with suppress(Infeasible):
            preflight(problem)
            return problem
    raise AssertionError(seed)


def cuts() -> Iterator[tuple[str, Any, Pipeline]]:
    """Yield layers and shapes whose cuts advise bounds all at once."""
    for file in sorted((HERE.parent / "examples").glob("layers-*.json")):
        layers = read_layers(file)
        held, weights = sum(layers.amounts("held_after_F")), sum(layers.static)
        for p, each, share in ((4, 2, 0.75), (4, 8, 1.5), (8, 4, 1.0), (8, 2, 0.5)):
            memory = int(1.2 * weights / p + share * held)
            for placement in ("chain", "vee", "loop"):
                kind: Any = placement
                shape = Pipeline(
                    devices=p,
                    microbatches=each * p,
                    placement=kind,
                    memory=memory,
                    delay=link_delay(1),
                )
                yield f"{file.stem}-{placement}-p{p}-m{each * p}-{share}", layers, shape


class Part(NamedTuple):
    """An argument: how its bounds are named, or what is another way without it.

    ``within`` says which bounds of a family its patches may lower.
    """

    sources: str = ""
    keys: tuple[str, ...] = ()
    patches: tuple[tuple[Any, str, Any], ...] = ()
    family: str = "devices"
    within: str = ""


def nothing(*_: Any, **__: Any) -> tuple[()]:
    """Return no bound, no row."""
    return ()


def zero(*_: Any, **__: Any) -> int:
    """Return a bound of nothing."""
    return 0


def same(first: Any, *_: Any, **__: Any) -> Any:
    """Return what was given."""
    return first


_of_devices = closed_form._of_devices
_rows = passing._Passing._pass


def _unpaired_devices(problem: Problem, objective: Any) -> Any:
    return () if problem.overlap is not None else _of_devices(problem, objective)


def _no_overtaking(self: Any, *given: Any) -> None:
    kept, self.in_turn = self.in_turn, True
    _rows(self, *given)
    self.in_turn = kept


_one_kind = memory_counts._of_one_kind


def _of_no_table(options: Any, count: Any, slack: Any) -> Any:
    return None if memory_counts.is_table(slack) else _one_kind(options, count, slack)


def _of_tables_alone(options: Any, count: Any, slack: Any) -> Any:
    return _one_kind(options, count, slack) if memory_counts.is_table(slack) else None


PARTS = {
    "warm-ups of a chain": Part("warm-ups"),
    "area": Part(keys=("area",)),
    "area by shares of sizes": Part(
        patches=((device_terms, "shares", nothing),), within="area", family="devices"
    ),
    "pass": Part(keys=("pass",)),
    "route's pass": Part(keys=("route's pass",)),
    "load": Part(keys=("load",)),
    "head + load": Part(keys=("head + load",)),
    "head + load + tail": Part(keys=("head + load + tail",)),
    "load + end": Part(keys=("load + end",)),
    "head + load + end": Part(keys=("head + load + end",)),
    "load + route's tail": Part(keys=("load + route's tail",)),
    "head + load + route's tail": Part(keys=("head + load + route's tail",)),
    "load around one microbatch": Part(
        keys=("load around one microbatch", "load around one microbatch + end")
    ),
    "W's that fill the way home": Part(
        patches=((DeviceTerms, "end", lambda self, **_: self._idle_end),),
        within="end",
        family="devices",
    ),
    "room as far as sums fill it": Part(
        patches=((device_terms, "in_use", same), (modes, "in_use", same)), family="devices modes"
    ),
    "pairs by factor: devices": Part(
        patches=((closed_form, "_of_devices", _unpaired_devices),), family="devices"
    ),
    "heads and tails": Part("heads and tails of"),
    "heads and tails where alike": Part(
        patches=((given_order, "_memory_slows_down", zero),), family="given"
    ),
    "heads and tails: memory frees in time": Part(
        patches=((given_order._Line, "_least_time_to_free", zero),), family="given"
    ),
    "heads and tails: freed before": Part(
        patches=((given_order._Line, "_freed_before", lambda self, _: [0] * self.count),),
        family="given",
    ),
    "whole microbatches of one kind": Part(
        patches=((memory_counts, "_of_one_kind", _of_tables_alone),)
    ),
    "whole microbatches of one kind, in tables": Part(
        patches=((memory_counts, "_of_one_kind", _of_no_table),), family="devices"
    ),
    "two stages over all cuts": Part(
        patches=((of_cuts, "two_stages_bound", lambda *known: known[-1]),), family="devices"
    ),
    "one stage over all cuts": Part(
        patches=((of_cuts, "best_split", lambda *_, **__: None),), family="devices"
    ),
    "heads and tails: tails": Part(
        patches=((given_order._Line, "find_tails", nothing),), family="given"
    ),
    "own heads and tails": Part("own heads and tails"),
    "around one microbatch": Part("one microbatch and those around it"),
    "counts around one": Part("counts around one of"),
    "counts around one: memory": Part(
        patches=((passing._Passing, "_fit", nothing),), family="passing"
    ),
    "counts around one: overtaking": Part(
        patches=((passing._Passing, "_pass", _no_overtaking),), family="passing"
    ),
    "modes counted": Part("modes counted"),
    "modes counted: unused": Part(patches=((modes.Counts, "unused", 0),), family="modes"),
    "modes counted: emptying": Part(
        patches=((modes.Counts, "_emptying", lambda *_: (0, 0)),), family="modes"
    ),
    "modes counted: one mode per stage": Part(
        patches=((modes, "_choices", lambda _: iter((None,))),), family="modes"
    ),
    "modes counted: what the last holds": Part(
        patches=((modes.Counted, "last", 0),), family="modes"
    ),
    "modes counted: copies": Part(patches=((modes._Rows, "_add_copies", nothing),), family="modes"),
    "modes counted: tail": Part(patches=((modes.Counts, "tail", 0),), family="modes"),
    "modes counted: end": Part(patches=((modes.Counts, "end", 0),), family="modes"),
    "pairs: load": Part("load with pairs of"),
    "pairs: ranks": Part("load with pairs by rank"),
    "pairs: memory of all": Part("load and memory with pairs"),
    "pairs: waiting": Part(
        patches=((paired, "_course", lambda *_: None),), within="memory", family="pairs"
    ),
    "pairs: waiting while filling": Part(
        patches=((paired_waiting.WaitingRows, "while_filling", nothing),),
        within="memory",
        family="pairs",
    ),
    "pairs: waiting while emptying": Part(
        patches=((paired_waiting.WaitingRows, "while_emptying", nothing),),
        within="memory",
        family="pairs",
    ),
    "pairs: waiting of W": Part(
        patches=((paired_waiting.WaitingRows, "of_weights", nothing),),
        within="memory",
        family="pairs",
    ),
    "pairs: whole microbatches": Part(
        patches=((paired_memory, "in_whole_microbatches", nothing),),
        within="memory",
        family="pairs",
    ),
    "pairs: room as far as sums fill it": Part(
        patches=((paired, "with_slacks_in_use", same),), family="pairs"
    ),
    "pairs: by class": Part(
        patches=((paired, "_MOST_CLASSES", 0),), within="load with pairs of", family="pairs"
    ),
    "pairs: stages alike counted together": Part(
        patches=((paired, "PairedDevice", partial(paired_device.PairedDevice, alike=False)),),
        family="pairs",
    ),
    "pairs: way within a device": Part(
        patches=((paired_device.Count, "_keep_to_the_way", nothing),), family="pairs"
    ),
    "pairs: only so many": Part(
        patches=((paired_device.Count, "_pair_only_so_many", nothing),), family="pairs"
    ),
    "pairs: partners on the way out": Part(
        patches=((paired, "until_first_backward", paired.with_least_times),), family="pairs"
    ),
    "pairs: partners on the way home": Part(
        patches=((paired, "after_last_forward", paired.with_least_times),), family="pairs"
    ),
    "pairs: unused until the first backward": Part(
        patches=((paired_memory.AreaRow, "_until_backward", lambda _: ({}, 0)),),
        within="memory",
        family="pairs",
    ),
    "pairs: unused after the last forward": Part(
        patches=(
            (paired_memory.AreaRow, "_after_forward", lambda _: [(counting.WeightedSum(), 0)]),
        ),
        within="memory",
        family="pairs",
    ),
    "pairs: one waits for another": Part(
        patches=((counting.Programme, "of_two", lambda self, *_: self.variable(0, 0)),),
        within="memory",
        family="pairs",
    ),
    "pairs: ranks, both members": Part(
        patches=((paired_ranks, "_fit_both_members", nothing),), family="pairs"
    ),
    "programmes: branching": Part(
        patches=((counting, "_NODES", 0),),
        within="pairs of|modes",
        family="modes pairs passing",
    ),
    "programmes: the best of some splits": Part(
        patches=((counting, "_TRIED", 1),), within="pairs of|modes", family="modes pairs passing"
    ),
    "programmes: sums of a phase": Part(
        patches=((counting.Programme, "total", nothing),), family="modes pairs passing"
    ),
    "period: load and area": Part("in the long run"),
    "period: so many at once": Part("at once on"),
    "graphs: paths": Part(
        patches=((closed_form, "graph_bounds", nothing),), family="graphs devices"
    ),
    "graphs: a chain": Part(
        patches=((closed_form, "chain_of", lambda _: None),), family="graphs devices"
    ),
}

FAMILIES = {
    "devices": "_of_devices",
    "own": "bounds_of_own_ways",
    "given": "bounds_of_given_order",
    "passing": "passing_bounds",
    "pairs": "paired_bounds",
    "modes": "counted_bounds",
    "graphs": "graph_bounds",
    "period": "",
}
"""Where :mod:`pipesat.bounds.closed_form` has the bounds of each kind."""


def named(part: Part, source: str) -> bool:
    """Whether a bound is the argument's own."""
    keys = [f"closed form: {key} of " for key in part.keys]
    return bool(part.sources and re.search(part.sources, source)) or source.startswith(tuple(keys))


def _dropping(window: str, keys: set[str]) -> Callable[..., Any]:
    whole = getattr(DeviceTerms, window)

    def fewer(self: DeviceTerms, *, absolute: bool) -> dict[str, Any]:
        found = whole(self, absolute=absolute)
        return {key: value for key, value in found.items() if key not in keys} or {"none": 0}

    return fewer


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Bounds as they are without some parts, but for those that are told by their names."""
    parts = [PARTS[name] for name in names]
    keys = {key for part in parts for key in part.keys}
    with ExitStack() as stack:
        for part in parts:
            for home, name, instead in part.patches:
                stack.enter_context(patch.object(home, name, instead))
        for window in ("own_window", "route_window") if keys else ():
            stack.enter_context(patch.object(DeviceTerms, window, _dropping(window, keys)))
        yield


def found(problem: Problem, objective: Any, family: str) -> list[tuple[int, str]]:
    """All bounds of a problem of one family."""
    bounds: list[Bound] = []
    with ExitStack() as stack:
        for other, name in FAMILIES.items():
            if name and other != family:
                stack.enter_context(patch.object(closed_form, name, nothing))
        bounds += closed_forms(problem, objective) if family != "period" else ()
        if family == "period" and has_period(problem):
            count = problem.microbatches[0]
            bounds += [one.of_run(count) for one in steady_bounds(problem, objective)]
    return [(b.value, b.source) for b in bounds]


def measured(
    problem: Problem, objective: Any, gone: Sequence[str], known: int | None
) -> Iterator[tuple[str, int]]:
    """Yield the bound without each part on its own; first with all that are left."""
    with without(name for name in gone if PARTS[name].patches):
        every = {family: found(problem, objective, family) for family in FAMILIES}
    parts = [PARTS[name] for name in gone]
    bounds = [
        (value, source, family)
        for family, of_family in every.items()
        for value, source in of_family
        if not any(named(part, source) for part in parts)
    ]
    best = max(bounds, default=(0, ""))[0]
    yield "", best
    for name, part in PARTS.items():
        families = part.family.split() if part.patches else []

        def lower(source: str, family: str, part: Part = part, touched: Any = families) -> bool:
            return named(part, source) or (
                family in touched and bool(re.search(part.within, source))
            )

        left = max((value for value, own, of in bounds if not lower(own, of)), default=0)
        if name in gone or left == best:
            continue
        if families and (
            left < (1 - LEAST / 100) * best or best == known
        ):  # what is left without all that it touches says that it may matter
            with without(one for one in (*gone, name) if PARTS[one].patches):
                again = [b for family in families for b in found(problem, objective, family)]
            kept = (value for value, source in again if not any(named(p, source) for p in parts))
            left = max([left, *kept])
        yield name, left


def measured_cuts(
    layers: Any, shape: Pipeline, objective: Any, gone: Sequence[str], _: int | None
) -> Iterator[tuple[str, int]]:
    """Yield the same of all cuts; none where nothing fits."""
    of_devices = ("area", "pass", "load", "head", "W's", "room", "cuts", "tables")
    names = [name for name in PARTS if any(w in name for w in of_devices)]
    for name in (
        "",
        *(n for n in names if n not in gone and PARTS[n].family.startswith("devices")),
    ):
        with without([*gone, *[name] * bool(name)]), suppress(Infeasible):
            yield name, of_cuts.shape_bound(layers, shape, objective).value


def cases() -> Iterator[tuple[str, Callable[..., Iterator[tuple[str, int]]]]]:
    """Yield what is bounded."""
    for folder in FOLDERS:
        for where in ("problems", "others"):
            for file in sorted((HERE / folder / where).glob("*.json")):
                if file.stem != "reference":
                    yield file.stem, partial(measured, Problem.read(file))
    for seed in range(DRAWN):
        yield f"drawn-{seed}", partial(measured, drawn(seed))
    for name, layers, shape in cuts():
        yield name, partial(measured_cuts, layers, shape)


def best_known() -> dict[tuple[str, str], int]:
    """Return the best values of the benchmark."""
    best: dict[tuple[str, str], int] = {}
    for line in (HERE / "results" / "solve.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("value"):
            key = row["problem"], row["objective"]
            best[key] = min(row["value"], best.get(key, row["value"]))
    return best


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Per part the largest move, where, on how many problems, and proofs lost."""
    best, lines = (
        best_known(),
        ["| part | largest move, % | moved | proofs lost | of |", "|---|--:|--:|--:|---|"],
    )
    moves: dict[str, list[tuple[float, str]]] = {}
    lost: dict[str, list[str]] = {}
    for row in rows:
        where = f"{row['problem']} {row['objective']}"
        value = row["bounds"].get("", 0)
        proven = row.get("best") or best.get((row["problem"], row["objective"]))
        for name, less in row["bounds"].items():
            if name and less < value:
                moves.setdefault(name, []).append((100 * (value - less) / value, where))
                lost.setdefault(name, []).extend([where] * (proven == value))
    for name in PARTS:
        own = moves.get(name, [(0.0, "-")])
        move, where = max(own)
        moved, proofs = sum(m >= LEAST for m, _ in own), len(lost.get(name, []))
        lines.append(f"| {name} | {move:.3f} | {moved} | {proofs} | {where} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not in the file yet, or print the table of what is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--gone", nargs="*", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    rows = (
        [json.loads(x) for x in options.rows.read_text().splitlines()]
        if options.rows.exists()
        else []
    )
    rows = [row for row in rows if row["gone"] == options.gone]
    if options.table:
        print(table(rows))
        return
    done = {(row["problem"], row["objective"]) for row in rows}
    for name in [name for name in PARTS if not re.search(options.part, name)]:
        del PARTS[name]
    known = best_known()
    for name, bounds in cases():
        for objective in ("makespan", "span") if re.search(options.only, name) else ():
            if (name, objective) in done:
                continue
            row = {"problem": name, "objective": objective, "gone": options.gone}
            row["bounds"] = dict(bounds(objective, options.gone, known.get((name, objective))))
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
