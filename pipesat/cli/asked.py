"""What a command was asked, and its life: read, call, save, show, end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pipesat.cli.derived import AS_JSON, function_of, with_members
from pipesat.cli.exits import INFEASIBLE, note, prepared, refuse_contradictions
from pipesat.cli.process import Interrupts
from pipesat.core.arguments import wanted_of
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.cli.progress import Progress
    from pipesat.compare.result import Result
    from pipesat.core.showing import Displayed, Facts
    from pipesat.problem.problem import Problem


class Asked:
    """The arguments that a user gave for a function, and how they are answered.

    ``given`` has them by parameter, ``output`` is where files go, ``lines`` is the progress so far,
    ``read`` what the function was called with, ``written`` what saving returned.
    """

    def __init__(
        self, function: Callable[..., Any], context: click.Context, switch: str = ""
    ) -> None:
        self.function, self.switch = function, switch
        self.context = context
        self.given = {
            name: value
            for name, value in context.params.items()
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        }
        self.parameters = inspect.signature(function).parameters
        self.output: Path | None = context.params.get("output")
        self.limit: float = context.params.get("time_limit") or 0.0
        self.interrupts = Interrupts()
        self.about: Path | None = None
        self.lines: list[str] = []
        self.written: Any = None
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return the value of an argument or option, given or not."""
        return self.context.params[name]

    def answer(
        self, save: Callable[..., Any] | None = None, *, watched: bool = True, **more: Any
    ) -> Any:
        """Call the function with what was given, and with ``more``; return its answer.

        Files are read first. A function that has ``listener`` is watched; one that has ``stop`` is
        ended early by a signal. ``save(answer, folder, lines)`` is called if there is a folder.
        Without ``watched`` there is no progress line.
        """
        self._refuse_others()
        with ExitStack() as around:
            if "stop" in self.parameters and "stop" not in more:
                more = {"stop": around.enter_context(self.interrupts).stop} | more
            around.enter_context(prepared(self.output if save else None))
            values = self.read = self._values(more) | more
            heard = {"listener", "note", "stop"} & self.parameters.keys()
            if watched and heard and "listener" not in more:
                progress = around.enter_context(self.progress())
                told = {"listener": progress, "note": progress.note}
                values |= {name: told[name] for name in told.keys() & self.parameters.keys()}
            answer = self.function(**values)
            if save is not None and self.output is not None:
                from pipesat.core.progress import doing

                with doing("writing files"):
                    self.written = save(answer, self.output, self.lines)
        return answer

    def instead(self, switch: str) -> Asked:
        """Return the same question, put to the function that something given asks for."""
        found = Asked(function_of(self._also[switch]), self.context, switch)
        found.interrupts = self.interrupts
        return found

    @property
    def _also(self) -> Mapping[str, str]:
        return self.context.command.also  # type: ignore[attr-defined, no-any-return]

    def _refuse_others(self) -> None:
        """Refuse what another of the command's functions takes, and this one does not."""
        if self.switch:
            params = with_members(self.context.command.params)
            options = [one for one in params if isinstance(one, click.Option)]
            others = [one.name or "" for one in options if self.switch.split()[0] not in one.opts]
            self.refuse({*others} - self.parameters.keys() - {"output"}, f"not with {self.switch}")
        for switch, name in self._also.items() if not self.switch else ():
            theirs = inspect.signature(function_of(name)).parameters.keys()
            self.refuse(theirs - self.parameters.keys(), f"only with {switch}")

    def refuse(self, names: Collection[str], why: str) -> None:
        """Refuse what the user gave of these parameters: it would say nothing here."""
        for param in with_members(self.context.command.params):
            if param.name in names and param.name in self.given:
                value = self.given[param.name]
                names = param.secondary_opts if value is False else param.opts
                given = value if isinstance(value, list | tuple) else (value,)
                text = value if isinstance(value, int | float) else ",".join(map(str, given))
                told: dict[str, Any] = {} if isinstance(value, bool) else {"value": text}
                raise BadInput(why, where=max(names, key=len), **told)

    def show(self, answer: Displayed, document: Any, more: Facts = ()) -> None:
        """Print the answer: as a document with ``--json``, else its lines and ``more``.

        The document may be a function that makes it. Remarks on the problem stand in both. A list
        has no place for them: then they are on stderr.
        """
        from pipesat.cli.terminal import print_answer, print_json
        from pipesat.problem.remarks import documents_of, text_of

        problem: Problem | None = self.read.get("problem")
        remarks = () if problem is None else problem.remarks
        if not self["as_json"]:
            if remarks and "Remark" not in dict(answer.facts()):
                more = [*more, ("Remark", text_of(remarks))]
            print_answer(answer, [*more, *self._written()], verbose=self["verbose"])
            return
        found = document() if callable(document) else document
        if isinstance(found, dict) and problem is not None:
            found = found if "remarks" in found else found | {"remarks": documents_of(remarks)}
        elif remarks:
            note(f"pipesat: remark: {text_of(remarks)}")
        print_json(found)

    def _written(self) -> Facts:
        """Where files are, and which of them is to be read before a run."""
        if self.output is None:
            return []
        warnings = sorted(path.name for path in self.output.glob("*.hazards.txt"))
        first = f". Read {', '.join(warnings)} before a run" if warnings else ""
        return [("Written to", f"{self.output}{first}")]

    def end(self, *results: Result, contradictions: Sequence[str] = ()) -> int:
        """Return the exit code: 3 with the reason if the first is infeasible, 128 + signal, or 0.

        Say what solves had to drop.
        """
        for warning in [text for result in results for text in result.warnings]:
            note(f"pipesat: warning: {warning}")
        refuted = [text for result in results for text in result.contradictions]
        refuse_contradictions([*refuted, *contradictions])
        if results and results[0].status == "infeasible":
            told = len(results) == 1 and not self["as_json"]  # it stands in the answer
            why = "no schedule exists" if told else results[0].explanation
            note(f"pipesat: infeasible: {why}")
            return INFEASIBLE
        return self.interrupts.exit_code

    def progress(self) -> Progress:
        """Return the progress line of a search, whose lines are kept in ``lines``."""
        from pipesat.cli.progress import Progress
        from pipesat.cli.terminal import console

        # a deterministic search counts solver time, not the seconds that are shown
        limit = None if self.context.params.get("deterministic") else self.limit or None
        found = Progress(console(err=True), quiet=self["quiet"], limit=limit)
        self.lines = found.lines
        return found

    @property
    def file(self) -> Path | None:
        """The file that complaints are about: the first argument, unless ``about`` is another."""
        if self.about is not None:
            return self.about
        names = [one.name for one in self.context.command.params if isinstance(one, click.Argument)]
        found = (self.context.params[name] for name in names if name)
        return next((one for one in found if isinstance(one, Path)), None)

    def _values(self, known: Collection[str]) -> dict[str, Any]:
        """What was given and is not known yet, files read unless the function reads them itself."""
        wanted = wanted_of(self.function)
        values: dict[str, Any] = {}
        for name in self.parameters:
            if name in self.given and name not in known:
                value = self.given[name]
                kinds = wanted[name].kinds
                read = isinstance(value, Path) and ("Path" not in kinds or "Timeline" in kinds)
                values[name] = _read(value, kinds, values) if read else value
        return values


def listing(
    name: str, text: str, rows: Callable[[], list[dict[str, Any]]], *notes: str
) -> click.Option:
    """Return a flag that prints rows and ends the command, whatever else but --json is given."""

    def shown(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from pipesat.cli.terminal import print_answer, print_json
            from pipesat.core.showing import Said, table_of

            if ctx.meta[AS_JSON]:
                print_json(rows())
            else:
                print_answer(Said(shown=[table_of(rows(), notes=notes)]))
            ctx.exit()

    return click.Option(
        [name], is_flag=True, callback=shown, is_eager=True, expose_value=False, help=text
    )


def read_problem(path: Path, classes: int | None = None) -> Problem:
    """Read a problem; say so on stderr if its costs are an estimate."""
    from pipesat.problem import problem_file
    from pipesat.problem.microbatch_list import MOST_CLASSES

    problem = problem_file.read_problem(path, classes or MOST_CLASSES)
    if problem.estimate:
        note(f"pipesat: all times and memory are an estimate: {problem.estimate}")
    return problem


def states(path: Path, kind: str) -> bool:
    """Whether a file states the format of a kind; one that cannot be read, its reader refuses."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        return f'"pipesat.{kind}/'.encode() in file.read(64 << 20)
    return False


def _read(path: Path, kinds: Any, values: dict[str, Any]) -> Any:
    if "Problem" in kinds:
        return read_problem(path)
    if "Schedule" in kinds:
        from pipesat.compare.schedules import schedule_of

        return schedule_of(values["problem"], path)
    from pipesat.runtimes.timeline_file import read_timeline

    measured = read_timeline(path, values["problem"])
    if measured.problem_sha256 != values["problem"].sha256:
        note("this was measured with another problem of the same shape")
    return measured
