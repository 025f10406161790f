"""``pipesat show`` of a file: what each kind of input says, as a table and labelled lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipesat.cli.exits import one_line
from pipesat.cli.terminal import Column, print_facts, print_table, wrapped
from pipesat.core.amounts import rounded_down, rounded_up
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.layers.layer import Layer, Layers

_LARGEST: Final = 1 << 30


def show_file(path: Path, *, as_json: bool) -> None:
    """Print what a file has, by the format that it states.

    Raises
    ------
    BadInput
        If it is wrong, or is not shown by itself.
    """
    from pipesat.cli.terminal import print_json
    from pipesat.files.strict_json import read_json

    document = read_json(path, _LARGEST)
    stated = document.get("format") if isinstance(document, dict) else None
    kind = str(stated).partition("/")[0].removeprefix("pipesat.")
    if kind == "schedule":
        raise BadInput("expected its problem first: pipesat show PROBLEM FILE", source=str(path))
    if kind not in _KINDS:
        kinds = ", ".join(f'"pipesat.{name}/1"' for name in _KINDS)
        raise BadInput(
            f"expected one of {kinds}, or a folder", source=str(path), where="format", value=stated
        )
    if as_json:
        print_json(document)
    else:
        _KINDS[kind](path)


def _show_problem(path: Path) -> None:
    from pipesat.cli.terminal import read_problem
    from pipesat.core.summary import records_of_stages

    problem = read_problem(path)
    records = records_of_stages(problem)
    names = [name for name in records[0] if any(row[name] is not None for row in records)]
    columns = [
        Column(name.replace("_", "\n"), number=name not in ("device", "modes")) for name in names
    ]
    lines = [["-" if row[n] is None else str(row[n]) for n in names] for row in records]
    print_table(columns, lines)
    click.echo("")
    print_facts(
        [
            ("problem", repr(problem).strip("<>")),
            ("units", ", ".join(filter(None, (problem.time_unit, problem.memory_unit)))),
            ("next", f"pipesat compare {path}"),
        ]
    )


def _show_profile(path: Path) -> None:
    from pipesat.cli.profile import print_profile
    from pipesat.profile.file import read_profile

    print_profile(read_profile(path))


def _show_parts(path: Path) -> None:
    from pipesat.parts.file import read_parts
    from pipesat.parts.parts import PART_KINDS

    parts = read_parts(path)
    lines = [
        [chunk.name, kind, part.name, parts.streams[part.stream], str(part.time)]
        for chunk in parts.chunks
        for kind in PART_KINDS
        for part in chunk.of_kind(kind)
    ]
    names = ("chunk", "of", "part", "stream")
    print_table([*(Column(name, number=False) for name in names), Column("time")], lines)
    click.echo("")
    repeats = ", ".join(f"{chunk.name}: {chunk.repeat}" for chunk in parts.chunks)
    print_facts([("layers", repeats), ("next", f"pipesat problem pairs {path} -o pairs.json")])


def _show_assignment(path: Path) -> None:
    from pipesat.cli.terminal import print_answer
    from pipesat.report.study import read

    print_answer(read(path), verbose=False)  # type: ignore[arg-type]


def _show_timeline(path: Path) -> None:
    from pipesat.files.complaint import validated
    from pipesat.files.strict_json import read_json
    from pipesat.timeline.file import TimelineModel

    found = validated(read_json(path, _LARGEST), TimelineModel, str(path))
    lines = []
    for number, step in enumerate(found.steps):
        rows = [row.ops for row in step.devices if row.ops]
        begins, ends = min(ops[0][1] for ops in rows), max(ops[-1][2] for ops in rows)
        lines.append([str(number), f"{(ends - begins) / 1000:.3f}", str(sum(map(len, rows)))])
    print_table([Column("step"), Column("ms"), Column("ops")], lines)
    click.echo("")
    next_ = f"pipesat timeline compare PROBLEM {path}"
    print_facts([("source", found.source), ("next", next_)])


def _show_layers(path: Path) -> None:
    from pipesat.cli.terminal import stdout
    from pipesat.layers.file import read_layers

    data = read_layers(path)
    heads = ("F", "B", "W", "BW", "held\nafter F", "held\nafter B", "static", "output")
    columns = [
        Column("layers", number=False),
        Column("", number=False),
        Column("role", number=False, spare=2),
        *(Column(head, spare={"output": 4, "held\nafter B": 3}.get(head, 0)) for head in heads),
        Column("flags", number=False, spare=1),
    ]
    print_table(columns, [_row(data, begin, end) for begin, end in _runs(data)])
    click.echo("")
    for line in _summary(data):
        click.echo(wrapped(one_line(line), stdout().width))


def _runs(layers: Layers) -> list[tuple[int, int]]:
    """Layers (begin, end) that differ in their names alone, and are not tied."""
    runs: list[tuple[int, int]] = []
    for number, layer in enumerate(layers.layers):
        if runs and not layer.tied_to and _nameless(layer) == _nameless(layers.layers[number - 1]):
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _nameless(layer: Layer) -> Layer:
    return replace(layer, name="")


def _row(layers: Layers, begin: int, end: int) -> list[str]:
    layer = layers.layers[begin]
    last = f" to {layers.layers[end - 1].name}" if end - begin > 1 else ""
    flags = [flag for flag in ("first", "last", "with_next", "fused") if getattr(layer, flag)]
    if layer.tied_to:
        flags.append(f"tied to {layer.tied_to}, {layer.tie.replace('_', ' ')}")
    if layer.recomputed is not None:
        flags.append("recompute")
    times = (str(layer.amount(kind)) for kind in ("F", "B", "W", "BW"))
    held = (str(layer.amount(kind)) for kind in ("held_after_F", "held_after_B"))
    where = f"{begin} to {end - 1}" if last else str(begin)
    weights = str(layers.static[begin])
    name, output = layer.name + last, str(layer.output)
    return [where, name, layer.role, *times, *held, weights, output, ", ".join(flags)]


def _range(layers: Layers) -> str:
    if layers.estimate_range is None:
        return ""
    least, most = (share / 1000 for share in layers.estimate_range)
    return f"; times may be {rounded_down(least, 2)} to {rounded_up(most, 2)} of these"


def _summary(layers: Layers) -> list[str]:
    def total(kind: str) -> int:
        return sum(layers.amounts(kind))

    def unit(text: str) -> str:
        return f" {text}" if text else ""

    held, static = total("held_after_F"), sum(layers.static)
    memory = unit(layers.memory_unit)
    lines = [
        f"{len(layers)} layers{': ' if layers.name else ''}{layers.name}; a microbatch takes "
        f"F {total('F')} + BW {total('BW')}{unit(layers.time_unit)} in all and holds "
        f"{held}{memory}; weights, gradients and optimizer take {static}{memory}, every device "
        f"keeps {layers.reserve}{memory} besides"
    ]
    if layers.estimate:
        lines.append(f"times and memory are an estimate: {layers.estimate}{_range(layers)}")
    if layers.recipe is not None:
        recipe = layers.recipe
        per_weight = recipe.parts(1)
        lines.append(
            f"one weight takes {sum(per_weight)} bytes: {per_weight.weights} itself "
            f"({recipe.dtype}), {per_weight.gradients} its gradient, {per_weight.optimizer} in "
            f"{recipe.optimizer}"
        )
    return lines


_KINDS: Final[dict[str, Callable[[Path], None]]] = {
    "problem": _show_problem,
    "layers": _show_layers,
    "profile": _show_profile,
    "parts": _show_parts,
    "timeline": _show_timeline,
    "assignment": _show_assignment,
}
