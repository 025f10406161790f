"""The text of ``pipesat plan``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipesat.cli.exits import one_line
from pipesat.cli.table import Column, print_table, wrapped
from pipesat.core.claims import Standing, percent
from pipesat.core.showing import number

if TYPE_CHECKING:
    from pipesat.plan.answer import Plan
    from pipesat.plan.comparison import Cell

_LIKE = {
    "loop": "in a loop, interleaved-1f1b and interleaved-zb stand for 1F1B and ZB-H1",
    "vee": "in a V, zb-v stands for ZB-H1",
}


def print_plan(plan: Plan, folder: Path | None) -> None:
    """Print the stages, what is proven, and the comparison."""
    from pipesat.cli.console import stdout
    from pipesat.plan.conclusion import require_consistent

    require_consistent(plan)
    width = stdout().width
    if plan.chosen is not None:
        print_table(*_stages(plan))
        typer.echo("")
    for text in _summary(plan):
        typer.echo(wrapped(one_line(text), width))
    if plan.rows:
        typer.echo("")
        _print_comparison(plan, width)
    if folder is not None:
        typer.echo("\n" + one_line(f"written to {folder}"))


def _stages(plan: Plan) -> tuple[list[Column], list[list[str]]]:
    from pipesat.plan.answer import devices_of, stages_of

    stages, devices = stages_of(plan), devices_of(plan)
    most = max([device["load"] for device in devices], default=0)
    some_again = any(stage["recompute"] for stage in stages)
    several = len(stages) > len(devices)
    columns = [
        Column("stage"),
        Column("device"),
        Column("layers", number=False),
        Column("recom-\npute", number=False),
        Column("F"),
        Column("B"),
        Column("W"),
        Column("load", spare=2),
        Column("static", spare=3),
        Column("activa-\ntions", spare=4),
        Column("peak"),
        Column("cap", spare=1),
        Column("of cap", spare=1),
    ]
    shown: set[int] = set()
    rows = []
    for stage in stages:
        device = devices[stage["device"]]
        cells = [str(stage["stage"]), str(stage["device"]), _layers_text(stage)]
        cells += ["yes" if stage["recompute"] else "", *(str(stage[kind]) for kind in "FBW")]
        again = stage["device"] in shown
        shown.add(stage["device"])
        rows.append([*cells, *([""] * 6 if again else _of_device(device, most))])
    needed = [True, several, True, some_again] + [True] * (len(columns) - 4)
    return [*compress(columns, needed)], [[*compress(row, needed)] for row in rows]


def _of_device(device: dict[str, Any], most: int) -> list[str]:
    cap = device["memory"]
    return [
        percent(device["load"] / most if most else 0.0, 0),
        str(device["static"]),
        str(device["activations"]),
        str(device["peak"]),
        "-" if cap is None else str(cap),
        "-" if not cap else percent(device["peak"] / cap, 0),
    ]


def _layers_text(stage: dict[str, Any]) -> str:
    names, first = stage["layers"], stage["first_layer"]
    if not names:
        return "none"
    where = f"{first}" if len(names) == 1 else f"{first}-{first + len(names) - 1}"
    ends = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
    if ends == f"layer {where}":
        return where
    longest = 26
    return f"{where}  {ends if len(ends) <= longest else ends[: longest - 1] + '…'}"


def _summary(plan: Plan) -> Iterator[str]:
    from pipesat.plan.answer import layout_text
    from pipesat.plan.shapes import shape_name

    known, question, chosen = plan.known, plan.question, plan.chosen
    unit = f" {question.layers.time_unit}" if question.layers.time_unit else ""
    if chosen is None or plan.result is None:
        yield "no plan was found in time; none is proven impossible"
    else:
        yield (
            f"{question.objective:<16}{plan.value}{unit} in a {shape_name(chosen.shape)} on "
            f"{chosen.shape.devices} devices; partition: {chosen.proposed_by}, order: "
            f"{chosen.schedules[0].source}"
        )
        own = plan.result.lower_bound
        if plan.status != "optimal" and own is not None:
            yield _proof("this partition", plan.value, own.value, own.source)
    if plan.bound is not None:
        yield _proof("all partitions", plan.value, plan.bound.value, plan.bound.source)
    if plan.status != "optimal" and not plan.complete:
        yield (
            "                some partitions are only known by the bound of a simpler question: "
            "too many, or too many ways to recompute, or not reached in time"
        )
    names = [shape_name(state.shape) for state in known.states if not state.why_not]
    yield (
        f"looked at       {len(known.candidates)} partitions of {', '.join(names)}; "
        f"{known.solves} solves, {plan.seconds:.1f} s"
    )
    for state in known.states:
        if state.why_not:
            yield f"left out        {shape_name(state.shape)}: {state.why_not}"
    for name, why in plan.left_out:
        yield f"left out        {name}: {why}"
    text = layout_text(plan)
    if text is not None:
        yield f"layout          {text}"
    for remark in plan.remarks:
        yield f"remark          {remark}"


def _proof(of: str, value: int | None, bound: int, source: str) -> str:
    standing = Standing(value, bound, of=of)
    if standing.proven:
        return f"{of:<16}proven optimal ({source})"
    return f"{of:<16}at least {bound}, gap {standing.gap_text()} ({source})"


def _print_comparison(plan: Plan, width: int) -> None:
    objective = plan.question.objective
    heads = list(dict.fromkeys(name for row in plan.rows for name in row.cells))
    columns = [
        Column("split", number=False),
        *(Column(head) for head in heads),
        Column("best order\nfound"),
        Column("bound of\nthis split", spare=2),
    ]
    longest, notes = 30, []
    lines = []
    beyond = False
    for row in plan.rows:
        name = row.name if len(row.name) <= longest else row.name[: longest - 1] + "…"
        cells = [_cell(row.cells.get(head)) for head in heads]
        beyond = beyond or any(cell.startswith("(") for cell in cells)
        bound = row.bound(objective)
        least = None if bound is None else bound.value
        lines.append([name, *cells, number(row.best(objective)), number(least)])
        if row.why_not:
            notes.append(f"{row.name}: {row.why_not}")
    print_table(columns, lines)
    typer.echo("")
    if beyond:
        typer.echo(wrapped("(in parentheses: needs more memory than there is)", width))
    if plan.chosen is not None and plan.chosen.shape.placement in _LIKE:
        notes.append(_LIKE[plan.chosen.shape.placement])
    if plan.question.space.free:
        notes.append(
            "the splits above the plan recompute on the stages that 1F1B would not fit on; their "
            "bounds are for that choice"
        )
    for text in [*notes, *plan.gains]:
        typer.echo(wrapped(one_line(text), width))


def _cell(cell: Cell | None) -> str:
    if cell is None or cell.value is None:
        return "-"
    return str(cell.value) if cell.fits else f"({cell.value})"
