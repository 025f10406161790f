"""What each kind of input file says, as a table and labelled lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.amounts import memory_text, rounded_down, rounded_up, time_text
from pipesat.core.complaint import unknown_format
from pipesat.core.showing import Displayed, Said, table_of
from pipesat.problem.ops import KINDS
from pipesat.problem.remarks import text_of

if TYPE_CHECKING:
    from pipesat.layers.layer import Layers


def view_of(path: Path, document: object) -> Displayed:
    """Return what is shown of a file with this content."""
    stated = document.get("format") if isinstance(document, dict) else None
    kind = str(stated).partition("/")[0].removeprefix("pipesat.")
    if kind not in _VIEWS:
        raise unknown_format(document, _VIEWS, str(path))
    return _VIEWS[kind](path)


def _problem(path: Path) -> Displayed:
    from pipesat.cli.asked import read_problem
    from pipesat.problem.stage_table import records_of_stages
    from pipesat.schedule.summary import units_of

    problem = read_problem(path)
    said = [
        ("Problem", repr(problem).strip("<>").removeprefix("Problem: ")),
        ("Units", ", ".join(units_of(problem))),
        ("Remark", text_of(problem.remarks)),
        ("Next", f"pipesat compare {path}"),
    ]
    return Said(said, [table_of(records_of_stages(problem))])


def _read(path: Path) -> Displayed:
    from pipesat.compare.report.study import read

    return read(path)  # type: ignore[return-value]


def _timeline(path: Path) -> Displayed:
    from pipesat.core.complaint import validated
    from pipesat.core.strict_json import LARGEST_RUN, read_json
    from pipesat.runtimes.timeline_file import TimelineModel

    found = validated(read_json(path, LARGEST_RUN), TimelineModel, str(path))
    rows = []
    for number, step in enumerate(found.steps):
        ops = [row.ops for row in step.devices if row.ops]
        begins, ends = min(row[0][1] for row in ops), max(row[-1][2] for row in ops)
        rows.append({"step": number, "us": ends - begins, "ops": sum(map(len, ops))})
    said = [("Source", found.source), ("Next", f"pipesat timeline compare PROBLEM {path}")]
    return Said(said, [table_of(rows)])


def _layers(path: Path) -> Displayed:
    from pipesat.layers.layers_file import read_layers

    layers = read_layers(path)
    memory, recipe = partial(memory_text, unit=layers.memory_unit), layers.recipe
    times = (
        f"{kind} {time_text(sum(layers.amounts(kind)), layers.time_unit)}" for kind in ("F", "BW")
    )
    weight, estimate = "", ""
    if recipe is not None:
        each = recipe.parts(1)
        weight = f"{sum(each)} bytes: {each.weights} itself ({recipe.dtype}), {each.gradients} its "
        weight += f"gradient, {each.optimizer} in {recipe.optimizer}"
    if layers.estimate:
        estimate = f"times and memory are an estimate: {layers.estimate}"
        if layers.estimate_range is not None:
            least, most = (share / 1000 for share in layers.estimate_range)
            around = f"{rounded_down(least, 2)} to {rounded_up(most, 2)}"
            estimate += f"; times may be {around} of these"
    static = f"weights, gradients and optimizer {memory(sum(layers.static))}"
    held = memory(sum(layers.amounts("held_after_F")))
    said = [
        ("Layers", f"{len(layers)} {layers.name}".rstrip()),
        ("Microbatch", f"{' + '.join(times)}, holds {held}"),
        ("Memory", f"{static}, every device keeps {memory(layers.reserve)} besides"),
        ("Weight", weight),
        ("Doubt", estimate),
    ]
    return Said(said, [table_of([*_layer_rows(layers)])])


def _layer_rows(layers: Layers) -> Iterator[dict[str, Any]]:
    """Yield a row per run of layers that differ in their names alone, and are not tied."""
    each, begin = layers.layers, 0
    for end in range(1, len(each) + 1):
        layer, after = each[begin], each[end] if end < len(each) else None
        if after and not after.tied_to and replace(after, name=layer.name) == layer:
            continue
        flags: list[str] = [layer.role] if layer.role else []
        flags += [flag for flag in ("first", "last", "with_next", "fused") if getattr(layer, flag)]
        if layer.tied_to:
            flags.append(f"tied to {layer.tied_to}, {layer.tie.replace('_', ' ')}")
        flags += ["recompute"] * (layer.recomputed is not None)
        yield {
            "layers": str(begin) if end - begin == 1 else f"{begin} to {end - 1}",
            "name": layer.name if end - begin == 1 else f"{layer.name} to {each[end - 1].name}",
            **{kind: layer.amount(kind) for kind in KINDS},
            "static": layers.static[begin],
            **{kind: layer.amount(kind) for kind in ("held_after_F", "held_after_B")},
            "output": layer.output,
            "flags": ", ".join(flags) or None,
        }
        begin = end


_VIEWS: Final[dict[str, Callable[[Path], Displayed]]] = {
    "problem": _problem,
    "layers": _layers,
    "profile": _read,
    "timeline": _timeline,
    "assignment": _read,
}
