"""``pipesat timeline``: compare, refit, import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesat.cli.asked import read_problem, states
from pipesat.cli.commands import Group, command
from pipesat.cli.derived import file_option, settings
from pipesat.cli.exits import note
from pipesat.core.claims import percent
from pipesat.core.errors import BadInput, require
from pipesat.core.settings import PICTURES
from pipesat.core.showing import Displayed, Facts, Said, Table, table_of

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.measure.timeline.against_prediction import AgainstPrediction
    from pipesat.measure.timeline.refit import Refit
    from pipesat.measure.trace_answer import TraceAnswer
    from pipesat.problem.problem import Problem


app = Group(
    "timeline",
    "Explain measured times: compare, refit, import.",
    {
        "Commands": {
            "compare": "timeline",
            "refit": "timeline",
            "import": "timeline:import_",
        }
    },
)


@command(
    "measure.traces:compare_timeline",
    example="pipesat timeline compare problem.json timeline.json --png both.png",
    extra=[
        file_option(f"--{kind}", f"Draw both timelines into a {kind.upper()} file.")
        for kind in PICTURES
    ],
)
def compare(asked: Asked) -> None:
    """Compare measured times with the prediction.

    Ops, devices and links have a row each, with both.
    """
    from pipesat.core.atomic import write_file
    from pipesat.measure.timeline.against_prediction import comparison_picture

    comparison: AgainstPrediction = asked.answer()
    problem, measured = asked.read["problem"], asked.read["timeline"]
    files = {kind: asked[kind] for kind in PICTURES if asked[kind]}
    ran = measured.shortest if asked["shortest"] else measured
    for kind, path in files.items():
        write_file(path, comparison_picture(problem, ran, comparison, kind))
    picture = [("Picture", ", ".join(map(str, files.values())))]
    asked.show(TimelineComparison(problem, comparison), comparison.document, picture)


@command(
    "measure.timeline.refit:refit",
    example="pipesat timeline refit problem.json timeline.json -o again.json",
    output="FILE",
)
def refit(asked: Asked) -> None:
    """Write the problem again with measured costs."""
    from pipesat.cli.problem import write_problem

    new: Refit = asked.answer()
    for line in new.notes:
        note(line)
    write_problem(asked, new.problem)


@command(
    "measure.traces:import_trace",
    example="pipesat timeline import pp_data -o imported",
    metavars={"paths": "TRACE"},
    follow={
        "memory": ("static", "held"),
        "shape": ("chunks", "microbatches", "replica", "skip"),
    },
    extra=(settings("shape", "What the files do not say."),),
    output="DIR",
)
def import_(asked: Asked) -> int:
    """Say what traces of a real run tell, and make a problem of them.

    Reads torch's profiler, Primus dump_pp_data, NDTimeline, Megatron's timers and what
    pipesat.record wrote: files of one run, or its folder.

    Writes problem.json with the costs seen, schedule.json, the order that ran, timeline.json and
    best.json, the best order found, into DIR. What more memory gains lies in DIR/more-memory.

    After a problem file, traces of that problem's run become one timeline: -o is then its file.
    """
    if states(asked["paths"][0], "problem"):
        return _import_of(asked)
    found: TraceAnswer = asked.answer(lambda answer, folder, _: answer.save(folder))
    asked.show(found, found.document)
    return asked.end(found.result)


def _import_of(asked: Asked) -> int:
    """Import traces of a problem that is given."""
    from pipesat.core.atomic import require_writable
    from pipesat.core.strict_json import LARGEST_RUN, read_json
    from pipesat.measure.timeline.trace import import_traces

    problem, *paths = asked["paths"]
    require(paths, "traces of its run are missing: give them after it", source=str(problem))
    if asked.output is None:
        raise BadInput("expected a file to write", where="--output")
    others = (asked.given.keys() & asked.parameters.keys()) - {"paths", "skip"}
    asked.refuse([*others], "this is for traces without a problem file")
    require_writable(asked.output)
    imported = import_traces(read_problem(problem), paths, skip=asked["skip"])
    imported.timeline.write(asked.output)
    for text in imported.notes:
        note(text)
    document = read_json(asked.output, LARGEST_RUN)
    asked.show(Said([("Steps", str(len(imported.timeline.steps)))]), document)
    return 0


_LARGE = 0.15  # error of the makespan from which users are told what to do
_SHARED = 0.8  # of their time that ops run on a core, below which cores are shared
_NEXT = "take the measured costs: pipesat timeline refit, then pipesat solve"
_TOY = (
    "a small transformer ran, not the model that the costs are of (--model takes that one). The "
    "costs are scaled to its compute, so that only shapes are compared"
)


@dataclass(frozen=True, repr=False)
class TimelineComparison(Displayed):
    """Predicted against measured."""

    problem: Problem
    said: AgainstPrediction

    def tables(self) -> Iterator[Table]:
        """Yield the op kinds, devices and links."""
        document = self.said.document()
        for rows in (document[name] for name in ("kinds", "devices", "links")):
            for row in rows:
                if "device" in row:
                    row["device"] = self.problem.device_name(row["device"])
            yield table_of(rows, notes=["times in us"])

    def facts(self) -> Facts:
        """Return both makespans, and what to do if they differ; of a toy model, shapes alone."""
        c = self.said
        if c.toy_model:
            compute = sum(row.busy for row in c.devices) / len(c.devices) or 1.0
            shapes = (
                f"makespan / mean compute of a device: predicted {c.predicted / compute:.2f}, "
                f"measured {c.measured / compute:.2f} (median of {c.steps} steps)"
            )
            return [("Toy model", _TOY), ("Shape", shapes)]
        makespans = (
            f"predicted {_ms(c.predicted)}, measured {_ms(c.measured)} (median of {c.steps} steps, "
            f"{_ms(c.shortest)} to {_ms(c.longest)}), error {percent(c.error, 1, sign=True)}"
        )
        next_step = _NEXT
        if c.on_core is not None and c.on_core < _SHARED:
            next_step = (
                f"ops were on a core for {percent(c.on_core, 0)} of their time. Run again with an "
                "idle core per rank, times as these are of the machine's other work"
            )
        return [
            ("Makespan", makespans),
            ("Link delay", "fitted to measured steps: this error is no prediction's" * c.fitted),
            ("Next", next_step if abs(c.error) > _LARGE else ""),
        ]


def _ms(us: float) -> str:
    return f"{us / 1000:,.2f} ms"
