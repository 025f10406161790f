"""``pipesat show`` of a file: what each kind of input says, as a table and labelled lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipesat.core.amounts import rounded_down, rounded_up, time_text
from pipesat.core.errors import BadInput
from pipesat.core.showing import Column, Displayed, Facts, Table

if TYPE_CHECKING:
    from pipesat.layers.layer import Layer, Layers

_LARGEST: Final = 1 << 30


def show_file(path: Path, *, as_json: bool) -> None:
    """Print what a file has, by the format that it states."""
    from pipesat.cli.terminal import print_answer, print_json
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
        print_answer(_KINDS[kind](path))


@dataclass(frozen=True, repr=False)
class _Input(Displayed):
    """What a file says: labelled lines, and at most one table."""

    said: Facts
    table: Table | None = None

    def facts(self) -> Facts:
        """Return the lines."""
        return self.said

    def tables(self) -> Iterator[Table]:
        """Yield the table."""
        if self.table is not None:
            yield self.table


def _problem(path: Path) -> Displayed:
    from pipesat.cli.terminal import read_problem
    from pipesat.core.summary import records_of_stages, units_of

    problem = read_problem(path)
    records = records_of_stages(problem)
    names = [name for name in records[0] if any(row[name] is not None for row in records)]
    columns = [
        Column(name.replace("_", "\n"), number=name not in ("device", "modes")) for name in names
    ]
    lines = [["-" if row[n] is None else str(row[n]) for n in names] for row in records]
    said = [
        ("Problem", repr(problem).strip("<>").removeprefix("Problem: ")),
        ("Units", ", ".join(units_of(problem))),
        ("Next", f"pipesat compare {path}"),
    ]
    return _Input(said, Table(columns, lines))


def _profile(path: Path) -> Displayed:
    from pipesat.cli.profile import ShownProfile
    from pipesat.profile.file import read_profile

    return ShownProfile(read_profile(path))


def _parts(path: Path) -> Displayed:
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
    columns = [*(Column(name, number=False) for name in names), Column("time")]
    repeats = ", ".join(f"{chunk.name}: {chunk.repeat}" for chunk in parts.chunks)
    said = [("Layers", repeats), ("Next", f"pipesat problem pairs {path} -o pairs.json")]
    return _Input(said, Table(columns, lines))


def _assignment(path: Path) -> Displayed:
    from pipesat.report.study import read

    return read(path)  # type: ignore[return-value]


def _timeline(path: Path) -> Displayed:
    from pipesat.files.complaint import validated
    from pipesat.files.strict_json import read_json
    from pipesat.timeline.file import TimelineModel

    found = validated(read_json(path, _LARGEST), TimelineModel, str(path))
    lines = []
    for number, step in enumerate(found.steps):
        rows = [row.ops for row in step.devices if row.ops]
        begins, ends = min(ops[0][1] for ops in rows), max(ops[-1][2] for ops in rows)
        lines.append([str(number), f"{(ends - begins) / 1000:.3f}", str(sum(map(len, rows)))])
    said = [("Source", found.source), ("Next", f"pipesat timeline compare PROBLEM {path}")]
    return _Input(said, Table([Column("step"), Column("ms"), Column("ops")], lines))


def _layers(path: Path) -> Displayed:
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
    lines = [_row(data, begin, end) for begin, end in _runs(data)]
    return _Input(_summary(data), Table(columns, lines))


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


def _summary(layers: Layers) -> Facts:
    def in_all(*kinds: str) -> str:
        each = ((kind, sum(layers.amounts(kind))) for kind in kinds)
        return " + ".join(f"{kind} {time_text(total, layers.time_unit)}" for kind, total in each)

    memory = f" {layers.memory_unit}".rstrip()
    held = f"{sum(layers.amounts('held_after_F'))}{memory}"
    static = f"weights, gradients and optimizer {sum(layers.static)}{memory}"
    estimate, recipe, weight = "", layers.recipe, ""
    if layers.estimate:
        estimate = f"times and memory are an estimate: {layers.estimate}{_range(layers)}"
    if recipe is not None:
        each = recipe.parts(1)
        weight = (
            f"{sum(each)} bytes: {each.weights} itself ({recipe.dtype}), {each.gradients} its "
            f"gradient, {each.optimizer} in {recipe.optimizer}"
        )
    return [
        ("Layers", f"{len(layers)}{': ' if layers.name else ''}{layers.name}"),
        ("Microbatch", f"{in_all('F', 'BW')}, holds {held}"),
        ("Memory", f"{static}, every device keeps {layers.reserve}{memory} besides"),
        ("Weight", weight),
        ("Doubt", estimate),
    ]


_KINDS: Final[dict[str, Callable[[Path], Displayed]]] = {
    "problem": _problem,
    "layers": _layers,
    "profile": _profile,
    "parts": _parts,
    "timeline": _timeline,
    "assignment": _assignment,
}
