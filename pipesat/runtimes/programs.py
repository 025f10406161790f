"""The file of an order for a runtime in Python: data and an adapter, read back as data alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from pydantic import Field

from pipesat.core.amounts import time_text
from pipesat.core.claims import against
from pipesat.core.complaint import validated
from pipesat.core.errors import BadInput, Deadlock, require, require_applicable
from pipesat.core.settings import Target
from pipesat.core.strict_json import LARGEST_ORDER, Count, StrictModel, decoded, read_text
from pipesat.problem.ops import Item, Pair, members, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order, pair_time
from pipesat.runtimes.as_run import as_run, by_place, is_split
from pipesat.runtimes.options import Options, loader_for, rendered
from pipesat.runtimes.reading import Meaning, rows_of
from pipesat.runtimes.runtime import Runtime
from pipesat.runtimes.torch.companions import ModeRow, modes_of
from pipesat.schedule.schedule import Exported, Schedule, pairs_in
from pipesat.schedule.schedule_file import ModeEntries, Modes
from pipesat.schedule.timing import time_order

if TYPE_CHECKING:
    from pipesat.runtimes.runtime import Write

FORMAT: Final = "pipesat.order/1"
NAME: Final = "ORDER"
_IN_LINE: Final = 12  # ops per line


class OrderModel(StrictModel):
    """What ``ORDER`` says: stages by place on the route, the device of each, a row per rank.

    ``modes`` are those of all (stage, microbatch) that are not kept.
    """

    format: Literal["pipesat.order/1"]
    runtime: str
    problem: str
    stages: Count
    microbatches: Count
    placement: list[Annotated[int, Field(ge=0)]]
    modes: ModeEntries = []
    rows: list[str]


_FILE: Final = '''\
"""{{ header }}"""

{{ name }} = {
    "format": "{{ format }}",
    "runtime": "{{ runtime }}",
    "problem": "{{ problem }}",
    "stages": {{ placement | length }},
    "microbatches": {{ microbatches }},
    "placement": {{ placement }},
{% if modes %}
    "modes": [
{% for entry in modes %}
        {{ entry }},
{% endfor %}
    ],
{% endif %}
    "rows": [
{% for row in rows %}
        """
{% for line in row | batch(in_line) %}
{{ line | join(" ") }}
{% endfor %}
""",
{% endfor %}
    ],
}

{{ adapter }}
'''


def program_text(
    problem: Problem, schedule: Schedule, runtime: Runtime, header: str, adapter: str
) -> str:
    """Return the file: its header, the order as data, and what hands it to the runtime."""
    (route,) = problem.routes
    modes = [
        (problem.place_of[stage], microbatch, problem.stages[stage].modes[mode - 1].name)
        for (stage, microbatch), mode in schedule.modes.items()
    ]
    return rendered(
        _FILE,
        header=header,
        name=NAME,
        format=FORMAT,
        runtime=runtime.name,
        problem=problem.sha256,
        microbatches=route.microbatches,
        placement=[problem.stages[stage].device for stage in route.stages],
        modes=modes,
        rows=by_place(problem, schedule.order),
        in_line=_IN_LINE,
        adapter=adapter.strip("\n"),
    )


def read_program(path: Path, problem: Problem) -> Schedule:
    """Read an order of a problem from such a file, as data, and time it as early as possible.

    Nothing in the file is executed: of all its statements only the one that assigns ``ORDER`` is
    looked at, and only as a literal.
    """
    source = str(path)
    model = order_in(read_text(path, LARGEST_ORDER), source)
    return _scheduled(problem, model, source, f"{model.runtime} {path.name}")


def _scheduled(problem: Problem, model: OrderModel, source: str, name: str = "") -> Schedule:
    _require_of(problem, model, source)
    rows = [ModeRow(*entry) for entry in model.modes]
    modes = modes_of(problem, rows, range(model.microbatches), source)
    try:
        order = tuple(
            tuple(_own(problem, modes, parse_item(word)) for word in row.split())
            for row in model.rows
        )
        return time_order(problem, order, source=name)
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
        require(len(found) == 1, expected, source=source)
        document = ast.literal_eval(found[0])
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise BadInput(f"{expected}, a literal", source=source) from None
    model = validated(document, OrderModel, source)
    require(
        model.runtime in get_args(Target),
        f"expected one of {', '.join(get_args(Target))}",
        source=source,
        where="runtime",
        value=model.runtime,
    )
    return model


def _require_of(problem: Problem, model: OrderModel, source: str) -> None:
    """Pass if the data are of a pipeline as the problem's."""
    require(
        len(problem.routes) == 1,
        f"this order is of one route, the problem has {len(problem.routes)}",
        source=source,
    )
    route = problem.routes[0]
    wanted = {
        "stages": len(route.stages),
        "microbatches": route.microbatches,
        "placement": [problem.stages[stage].device for stage in route.stages],
    }
    for key, value in wanted.items():
        require(
            getattr(model, key) == value,
            f"the problem has {value}",
            source=source,
            where=key,
            value=getattr(model, key),
        )
    require(
        len(model.rows) == len(problem.devices),
        f"expected {len(problem.devices)} rows, one per rank",
        source=source,
        where="rows",
        value=len(model.rows),
    )
    for entry in model.modes:
        stage, microbatch, _ = entry
        if not (0 <= stage < model.stages and 0 <= microbatch < model.microbatches):
            raise BadInput("no such microbatch", source=source, where="modes", value=[*entry])


def _own(problem: Problem, modes: Modes, item: Item) -> Item:
    """Return an item in the problem's own stages; one that it does not have stays as it is."""
    route, ops = problem.routes[0], members(item)
    stages = dict(enumerate(route.stages))
    own = [op._replace(stage=stages.get(op.stage, op.stage)) for op in ops]
    own = [op._replace(mode=modes.get((op.stage, op.microbatch), 0)) for op in own]
    if len(own) == 1:
        return own[0]
    known = all(op.stage in stages and op.microbatch < route.microbatches for op in ops)
    pair = Pair(*own)
    return in_order(problem, pair) if known and pair_time(problem, *own) is not None else pair


def program(header: str, adapter: str, note: str) -> Write:
    """Return what writes the Python file of an order for a runtime."""

    def write(runtime: Runtime, problem: Problem, schedule: Schedule, options: Options) -> Exported:
        made, changes = as_run(problem, schedule, runtime)
        require_applicable(
            not options.exact or not changes,
            f"{runtime.title} cannot run it as it is. Unless it is to be exact, this is "
            f"changed: {'; '.join(changes)}",
        )
        words = _words(problem, made, options)
        title = f"From pipesat, for {runtime.title} {runtime.release}."
        head = "\n".join([title, "", *(f"{c}\n" for c in options.comments), filled(header, words)])
        text = program_text(problem, made, runtime, head, filled(adapter, words))
        pairs = pairs_in(made.order)
        overlap = f", if its {pairs} pairs take what the problem says" if pairs else ""
        now, own = (time_text(one.makespan, problem.time_unit) for one in (made, schedule))
        other = against(made.makespan, schedule.makespan, "the schedule")
        told = f"makespan as {runtime.title} runs it {now}, of this schedule {own}{overlap}"
        changed = (
            f"the order as {runtime.title} runs it takes {now}, {other}: "
            f'solve with target="{runtime.name}" (--for {runtime.name}) for '
            "the best of the orders that it runs"
        )
        changed = "" if made.makespan == schedule.makespan else changed
        means = {"runtime": runtime.name, "order": rows_of(made.order)}
        shapes = ", as they are" if runtime.shapes == "own" else ""
        lists = (f"microbatches differ: hand them over in the problem's order{shapes}",)
        notes = *changes, told, *(lists if problem.has_lists else ()), note
        return Exported(text.encode(), {}, notes, changed, means=means)

    return write


def read_back(runtime: Runtime, problem: Problem, exported: Exported, _: Options) -> Meaning:
    """Read the file of an order; what the runtime cannot run as it is, is refused."""
    model = order_in(text := decoded(exported.data, runtime.file), runtime.file)
    compile(text, runtime.file, "exec")  # not run: what only a compiler refuses
    schedule = _scheduled(problem, model, runtime.file)
    if changes := as_run(problem, schedule, runtime).changes:
        raise BadInput(f"it would run otherwise: {'; '.join(changes)}", source=runtime.file)
    return {"runtime": model.runtime, "order": rows_of(schedule.order)}


def filled(text: str, words: Mapping[str, object]) -> str:
    """Return a text with each ``{word}`` replaced."""
    for key, value in words.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


def _words(problem: Problem, schedule: Schedule, options: Options) -> dict[str, object]:
    (route,) = problem.routes
    chunks, v_shape = (
        len(problem.stages) // len(problem.devices),
        loader_for(problem).schedule_name == "ZBVZeroBubble",
    )
    chain = "zero-bubble" if is_split(schedule.order) else "1f1b"
    return {
        "ranks": len(problem.devices),
        "chunks": chunks,
        "stages": len(route.stages),
        "placement": ", ".join(str(problem.stages[stage].device) for stage in route.stages),
        "microbatches": route.microbatches,
        "style": "v" if v_shape else "loop",
        "base": "CustomSchedule1F1BV" if v_shape else "CustomScheduleInterleaved1F1B",
        "schedule": "custom_1F1B_V" if v_shape else "custom_interleaved_1F1B",
        "algorithm": "zbv-formatted" if v_shape else chain if chunks == 1 else "1f1b-interleaved",
        "combined": str(pairs_in(schedule.order) > 0).lower(),
        "stem": options.output.stem,
    }
