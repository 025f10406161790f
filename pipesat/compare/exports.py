"""Schedules in other formats, and orders of other programs as schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipesat.check.checker import check
from pipesat.compare.result import Result
from pipesat.compare.schedules import name_of, read_order, schedule_of
from pipesat.core.arguments import public
from pipesat.core.errors import NotValid
from pipesat.core.settings import Count
from pipesat.problem.problem import Problem
from pipesat.runtimes import format_of
from pipesat.runtimes.options import Checkpointing
from pipesat.runtimes.torch.csv_file import Imported
from pipesat.runtimes.written import exported, warned
from pipesat.schedule.schedule import Exported, Schedule


@public
def export(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    to: str = "torch",
    path: str | Path | None = None,
    *,
    layers: Count | Sequence[Count] | None = None,
    exact: bool = False,
    remark: str = "",
    checkpointing: Checkpointing | None = None,
    pattern: str | None = None,
    version: str | None = None,
) -> Exported:
    """Return a checked schedule in another format, and write it if there is a path.

    Parameters
    ----------
    path
        File to write; what belongs beside it is written beside it, under the same name with other
        suffixes. A folder, a text that ends in ``/``, or for a runtime a name without a suffix: a
        file there, under the format's own name.
    layers
        Transformer layers of the model in all, which stages share equally, or a number per stage:
        for a framework's cut of the model.
    exact
        Change nothing in torch's order, and refuse what torch cannot run as it is.
    remark
        What has to be done besides, one line: for the comments of a configuration, and the first
        of the hazards.
    checkpointing
        Activation checkpointing of all layers, for a framework's configuration; ``None``: none if
        backwards are split, else the framework's. With split backwards, ``full`` is refused.
    pattern
        Megatron-LM's symbols of a hybrid model's layers, as ``M*|ME``. Without ``|``, ``layers``
        has the symbols per stage.

    Returns
    -------
    Exported
        ``data`` are the file's bytes, ``beside`` those of the files beside it by suffix, ``notes``
        what their user has to know.

    Warns
    -----
    UserWarning
        If the runtime can only run another order, which takes another time.

    Raises
    ------
    NotValid
        If the checker refuses the schedule; nothing is written.
    NotApplicable
        If the runtime cannot run it.
    BadInput
        If there is no such format, or a file cannot be written.
    """
    to = format_of(to)  # a format that does not exist is said before files are read
    made = exported(
        problem,
        schedule_of(problem, schedule),
        to,
        path,
        name=name_of(schedule),
        layers=layers,
        exact=exact,
        remark=remark,
        checkpointing=checkpointing,
        pattern=pattern,
        version=version,
    )
    return warned(made, stacklevel=4)  # beyond what looks at the arguments


@public
def import_order(
    path: str | Path,
    problem: Problem,
    *,
    order: str | Path | None = None,
    modes: str | Path | None = None,
) -> Imported:
    """Read an order that a runtime runs, torch's CSV or a Python file, time it and check it.

    What :func:`export` writes comes back: the files that it writes beside the CSV are read.

    Parameters
    ----------
    path
        The CSV file: row i is rank i. Or a Python file as :func:`export` writes it for another
        runtime: its data are read, nothing in it is executed.
    problem
        The problem that it is an order of.
    order
        The microbatches' own numbers; the file beside the CSV that ends in ``.order.json``, if
        there is one, where none is named.
    modes
        What runs in which memory mode; the same with ``.modes.json``.

    Returns
    -------
    Imported
        ``schedule``, and ``notes``: what in the file it has otherwise, and what was assumed.

    Raises
    ------
    NotValid
        If the order does not fit the problem, with all violations.
    BadInput
        If a file cannot be read, breaks a rule of torch's (the first cell that does is named), or
        contradicts the CSV or the problem.
    NotApplicable
        If torch cannot run a pipeline of the problem's shape.
    """
    from pipesat.runtimes.torch.companions import Companions, assumptions

    file = Path(path)
    given = (None if named is None else Path(named) for named in (order, modes))
    companions = Companions.of(file, *given)
    imported = read_order(file, problem, companions)
    if violations := check(problem, imported.schedule):
        assumed = "; ".join(assumptions(problem, companions, file))
        told = f" ({assumed})" if assumed else ""
        raise NotValid(f"this order does not fit the problem{told}", violations)
    return imported
