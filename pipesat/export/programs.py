"""The file of an order for a runtime in Python: data and an adapter, read back as data alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

from pydantic import Field

from pipesat.core.amounts import time_text
from pipesat.core.errors import BadInput, Deadlock, Fault, NotApplicable
from pipesat.core.ops import Item, Pair, members, parse_item
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order, pair_time
from pipesat.core.schedule import Exported, Schedule
from pipesat.core.settings import Target
from pipesat.core.timing import time_order
from pipesat.export.as_run import AsRun, as_run, by_place, is_split
from pipesat.export.options import Options
from pipesat.export.runtime import Runtime, is_vee
from pipesat.files.complaint import validated
from pipesat.files.strict_json import Count, StrictModel, read_text

if TYPE_CHECKING:
    from pipesat.export.runtime import Write

FORMAT: Final = "pipesat.order/1"
NAME: Final = "ORDER"
LARGEST_FILE: Final = 1 << 28
_IN_LINE: Final = 12  # ops per line


class OrderModel(StrictModel):
    """What ``ORDER`` says: stages by place on the route, the device of each, a row per rank."""

    format: Literal["pipesat.order/1"]
    runtime: str
    problem: str
    stages: Count
    microbatches: Count
    placement: list[Annotated[int, Field(ge=0)]]
    rows: list[str]


def program_text(
    problem: Problem, schedule: Schedule, runtime: Runtime, header: str, adapter: str
) -> str:
    """Return the file: its header, the order as data, and what hands it to the runtime."""
    (route,) = problem.routes
    placement = [problem.stages[stage].device for stage in route.stages]
    lines = [
        f'"""{header}"""',
        "",
        f"{NAME} = {{",
        f'    "format": "{FORMAT}",',
        f'    "runtime": "{runtime.name}",',
        f'    "problem": "{problem.sha256}",',
        f'    "stages": {len(route.stages)},',
        f'    "microbatches": {route.microbatches},',
        f'    "placement": {placement},',
        '    "rows": [',
    ]
    for row in by_place(problem, schedule.order):
        lines.append('        """')
        lines += [" ".join(map(str, some)) for some in _in_lines(row)]
        lines.append('""",')
    return "\n".join([*lines, "    ],", "}", "", adapter.strip("\n"), ""])


def _in_lines(row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    return (row[i : i + _IN_LINE] for i in range(0, len(row), _IN_LINE))


def read_program(path: Path, problem: Problem) -> Schedule:
    """Read an order of a problem from such a file, as data, and time it as early as possible.

    Nothing in the file is executed: of all its statements only the one that assigns ``ORDER`` is
    looked at, and only as a literal.
    """
    source = str(path)
    model = order_in(read_text(path, LARGEST_FILE), source)
    _require_of(problem, model, source)
    try:
        order = tuple(
            tuple(_own(problem, parse_item(word)) for word in row.split()) for row in model.rows
        )
        return time_order(problem, order, source=f"{model.runtime} {path.name}")
    except (Deadlock, ValueError) as error:
        raise BadInput(str(error), source=source) from None


def order_in(text: str, source: str) -> OrderModel:
    """Return the data of a file's text."""
    expected = f"expected a Python file that `pipesat export` has written, with {NAME} = {{...}}"
    try:
        found = [
            node.value
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign)
            and [ast.unparse(target) for target in node.targets] == [NAME]
        ]
        if len(found) != 1:
            raise BadInput(expected, source=source)
        document = ast.literal_eval(found[0])
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise BadInput(f"{expected}, a literal", source=source) from None
    model = validated(document, OrderModel, source)
    if model.runtime not in get_args(Target):
        expected = f"expected one of {', '.join(get_args(Target))}"
        raise BadInput(expected, source=source, where="runtime", value=model.runtime)
    return model


def _require_of(problem: Problem, model: OrderModel, source: str) -> None:
    """Pass if the data are of a pipeline as the problem's."""
    if len(problem.routes) > 1:
        expected = f"this order is of one route, the problem has {len(problem.routes)}"
        raise BadInput(expected, source=source)
    route = problem.routes[0]
    wanted = {
        "stages": len(route.stages),
        "microbatches": route.microbatches,
        "placement": [problem.stages[stage].device for stage in route.stages],
    }
    for key, value in wanted.items():
        if getattr(model, key) != value:
            raise BadInput(
                f"the problem has {value}", source=source, where=key, value=getattr(model, key)
            )
    if len(model.rows) != len(problem.devices):
        expected = f"expected {len(problem.devices)} rows, one per rank"
        raise BadInput(expected, source=source, where="rows", value=len(model.rows))


def _own(problem: Problem, item: Item) -> Item:
    """Return an item in the problem's own stages; one that it does not have stays as it is."""
    route, ops = problem.routes[0], members(item)
    stages = dict(enumerate(route.stages))
    own = [op._replace(stage=stages.get(op.stage, op.stage)) for op in ops]
    if len(own) == 1:
        return own[0]
    known = all(op.stage in stages and op.microbatch < route.microbatches for op in ops)
    pair = Pair(*own)
    return in_order(problem, pair) if known and pair_time(problem, *own) is not None else pair


class Program(NamedTuple):
    """What a runtime is handed: header and adapter of its file, notes for who hands it over."""

    header: str
    adapter: str
    notes: tuple[str, ...]


def program(header: str, adapter: str, *notes: str) -> Write:
    """Return what writes the Python file of an order for a runtime."""
    return partial(export_program, Program(header, adapter, notes))


def export_program(
    program: Program, runtime: Runtime, problem: Problem, schedule: Schedule, options: Options
) -> Exported:
    """Return the Python file of an order."""
    made = as_run(problem, schedule, runtime)
    if options.exact and made.changes:
        raise NotApplicable(
            f"{runtime.title} cannot run it as it is. Unless it is to be exact, this is changed: "
            f"{'; '.join(made.changes)}"
        )
    text = _text(problem, made.schedule, runtime, program, options)
    rows = [" ".join(map(str, row)).split() for row in by_place(problem, made.schedule.order)]
    if [row.split() for row in order_in(text, runtime.name).rows] != rows:
        raise Fault("the exported order does not read back as it was")
    return Exported(
        text.encode(),
        notes=(
            *made.changes,
            *_makespans(schedule, made, runtime, problem.time_unit),
            *program.notes,
        ),
        changed=_changed(schedule, made, runtime),
    )


def _makespans(schedule: Schedule, made: AsRun, runtime: Runtime, unit: str) -> tuple[str]:
    pairs = sum(isinstance(item, Pair) for row in made.schedule.order for item in row)
    overlap = f", if its {pairs} pairs take what the problem says" if pairs else ""
    now, own = (time_text(one.makespan, unit) for one in (made.schedule, schedule))
    return (f"makespan as {runtime.title} runs it {now}, of this schedule {own}{overlap}",)


def _changed(schedule: Schedule, made: AsRun, runtime: Runtime) -> str:
    now, own = made.schedule.makespan, schedule.makespan
    if now == own:
        return ""
    return (
        f"the order as {runtime.title} runs it takes {now}, the schedule {own}: solve with "
        f'target="{runtime.name}" (--for {runtime.name}) for the best of the orders that it runs'
    )


def _text(
    problem: Problem, schedule: Schedule, runtime: Runtime, program: Program, options: Options
) -> str:
    chunks, vee = len(problem.stages) // len(problem.devices), is_vee(problem)
    split = is_split(schedule.order)
    chain = "zero-bubble" if split else "1f1b"
    words = {
        "ranks": len(problem.devices),
        "chunks": chunks,
        "stages": len(problem.stages),
        "microbatches": problem.routes[0].microbatches,
        "style": "v" if vee else "loop",
        "algorithm": "zbv-formatted" if vee else chain if chunks == 1 else "1f1b-interleaved",
        "combined": str(any(isinstance(i, Pair) for row in schedule.order for i in row)).lower(),
        "stem": options.output.stem,
    }

    def filled(text: str) -> str:
        for key, value in words.items():
            text = text.replace(f"{{{key}}}", str(value))
        return text

    head = f"From pipesat, for {runtime.title} {runtime.release}."
    header = "\n".join([head, "", *(f"{c}\n" for c in options.comments), filled(program.header)])
    return program_text(problem, schedule, runtime, header, filled(program.adapter))
