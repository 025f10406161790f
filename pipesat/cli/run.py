"""``pipesat run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, TypedDict

import typer

from pipesat.cli.arguments import (
    AsJson,
    DeviceName,
    ProblemFile,
    ScheduleFile,
    SplitName,
    Timeout,
    writable,
)
from pipesat.cli.exits import CHECK_FAILED, end_of_run, note, one_line, print_failure

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.runtime.answers import Check
    from pipesat.runtime.job import Shape
    from pipesat.runtime.parity import ParityReport
    from pipesat.runtime.run import Measured


_TRANSFORMER = ("blocks", "width", "heads", "length", "sequences", "vocabulary", "dtype")
_AT_LEAST_ONE = {"min": 1, "max": 1 << 20}


def run(
    context: typer.Context,
    problem: ProblemFile,
    schedule: ScheduleFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="When every op really ran; --verify alone may do without.",
            show_default=False,
            callback=writable,
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, max=10_000, help="Measured steps.")] = 5,
    warm_up: Annotated[
        int, typer.Option("--warm-up", min=1, max=10_000, help="Steps before them that are not.")
    ] = 2,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare losses and gradients with one process; without -o and --model, of one "
            "step of a small float64 transformer.",
        ),
    ] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Waits of the problem's times instead of compute.")
    ] = False,
    scale: Annotated[
        float,
        typer.Option("--scale", min=1e-9, max=1e9, help="Stretch the problem's times (--virtual)."),
    ] = 1.0,
    memory: Annotated[
        bool, typer.Option("--measure-memory", help="Measure each rank's peak, in one more step.")
    ] = False,
    without_modes: Annotated[
        bool,
        typer.Option("--without-modes", help="Keep every microbatch, whatever its memory mode."),
    ] = False,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="A profile (.json), package.module:function as for pipesat profile, or a module "
            "or .py file with build_stage, whole_batch and loss_of; a transformer if not given.",
        ),
    ] = "",
    split: Annotated[
        SplitName, typer.Option("--cut", help="How a profile's layers are cut into stages.")
    ] = SplitName.even,
    blocks: Annotated[
        str, typer.Option("--blocks", help="Transformer blocks per stage: 2, or 2,3,3,2.")
    ] = "1",
    width: Annotated[int, typer.Option("--width", help="Its width.", **_AT_LEAST_ONE)] = 128,
    heads: Annotated[int, typer.Option("--heads", help="Its heads.", **_AT_LEAST_ONE)] = 4,
    length: Annotated[
        int, typer.Option("--length", help="Tokens per sequence.", **_AT_LEAST_ONE)
    ] = 128,
    sequences: Annotated[
        int, typer.Option("--batch", help="Sequences per microbatch.", **_AT_LEAST_ONE)
    ] = 1,
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", help="Its words.", **_AT_LEAST_ONE)
    ] = 256,
    dtype: Annotated[
        str, typer.Option("--dtype", help="bfloat16, float32 or float64.")
    ] = "float32",
    device: Annotated[
        DeviceName, typer.Option("--device", help="cuda only under torchrun.")
    ] = DeviceName.cpu,
    timeout: Timeout = 600.0,
    as_json: AsJson = False,
) -> None:
    r"""Run a schedule in torch; write when every op really ran.

    With --verify alone: does it compute the same as one process? Starts one local gloo process
    per rank; or, under torchrun, is one rank:
    torchrun --nproc-per-node 4 -m pipesat run PROBLEM SCHEDULE -o FILE.
    Needs the extra: pip install 'pipesat[torch]'.
    """
    from pipesat.cli.naming import naming
    from pipesat.cli.reading import read_problem
    from pipesat.core.errors import BadInput
    from pipesat.runtime.job import Shape
    from pipesat.runtime.torchrun import under_torchrun

    _refuse_unused(context, virtual=virtual, model=model)
    data = read_problem(problem)
    if output is None:
        _verify(context, data, problem, schedule, timeout, as_json=as_json)
    shape = Shape(vocabulary, width, heads, length, sequences, _blocks(blocks), dtype)
    if device == DeviceName.cuda and not under_torchrun():
        raise BadInput(
            "local ranks run on the CPU: start it with torchrun, one GPU per rank",
            where="--device",
            value=device.value,
        )
    if virtual and under_torchrun():
        raise BadInput("local ranks only: run it without torchrun", where="--virtual")
    options: _Options = {
        "model": model or None,
        "shape": shape,
        "steps": steps,
        "warm_up": warm_up,
        "check": verify,
        "memory": memory,
        "without_modes": without_modes,
        "split": split.value,
        "timeout": timeout,
        "note": note,
    }
    with naming(problem):
        if under_torchrun():
            measured = _run_rank(data, schedule, device, options)
        else:
            measured = _run(data, schedule, scale if virtual else None, options)
    if measured is not None:
        _report(data, measured, output, as_json=as_json)


def _refuse_unused(context: typer.Context, *, virtual: bool, model: str) -> None:
    from pipesat.cli.options import refuse_given

    if virtual:
        refuse_given(context, ["model"], "expected --virtual or a model, not both")
        refuse_given(context, [*_TRANSFORMER, "split"], "virtual devices wait, they have no model")
    else:
        refuse_given(context, ["scale"], "only times of --virtual can be stretched")
    if model:
        refuse_given(context, _TRANSFORMER, "this is of the built-in transformer, not of --model")
    if not model.endswith(".json"):
        refuse_given(context, ["split"], "only a profile is cut here: --model FILE.json")


def _verify(
    context: typer.Context,
    problem: Problem,
    path: Path,
    schedule: Path,
    timeout: float,
    *,
    as_json: bool,
) -> NoReturn:
    """Hold one step of a small transformer against one process, and end with 1 if it differs."""
    from pipesat.cli.console import print_json
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.options import refuse_given
    from pipesat.core.errors import BadInput, RunFailed
    from pipesat.workflows.torch_runs import parity

    if not context.params["verify"]:
        raise BadInput("expected a file to write, or --verify", where="--output")
    others = {"problem", "schedule", "verify", "timeout", "as_json", "output"}
    names = [name for name in context.params if name not in others]
    refuse_given(context, names, "expected -o FILE with it: --verify alone runs a step of its own")
    with Interrupts() as interrupts, naming(path):
        try:
            report = parity(problem, schedule, timeout=timeout, note=note, stop=interrupts.stop)
        except RunFailed as error:
            end_of_run(error, interrupts.exit_code)
    if as_json:
        print_json(report.document())
    else:
        _print_parity(problem, report)
    raise typer.Exit(0 if report.passed else CHECK_FAILED)


def _blocks(text: str) -> tuple[int, ...]:
    from pipesat.cli.costs import numbers
    from pipesat.core.errors import BadInput

    values = numbers("--blocks", text)
    blocks = (values,) if isinstance(values, int) else tuple(values)
    if sum(blocks) == 0:
        raise BadInput("expected a block at least", where="--blocks", value=text)
    return blocks


class _Options(TypedDict):
    """What local ranks and torchrun's are told alike."""

    model: str | None
    shape: Shape
    steps: int
    warm_up: int
    check: bool
    memory: bool
    without_modes: bool
    split: Literal["even", "balanced"]
    timeout: float
    note: Callable[[str], None]


def _run(problem: Problem, schedule: Path, scale: float | None, options: _Options) -> Measured:
    """Start local ranks; with a scale, they wait the problem's times, stretched by it."""
    from pipesat.cli.interrupts import Interrupts
    from pipesat.core.errors import RunFailed
    from pipesat.workflows.torch_runs import run

    with Interrupts() as interrupts:
        try:
            return run(
                problem,
                schedule,
                virtual=scale is not None,
                scale=1.0 if scale is None else scale,
                stop=interrupts.stop,
                **options,
            )
        except RunFailed as error:
            end_of_run(error, interrupts.exit_code)


def _run_rank(
    problem: Problem, schedule: Path, device: DeviceName, options: _Options
) -> Measured | None:
    """Be one of torchrun's ranks; ``None`` on those other than 0."""
    from pipesat.core.errors import RunFailed
    from pipesat.runtime.torchrun import leave
    from pipesat.workflows.torch_runs import run_rank

    try:
        return run_rank(problem, schedule, device=device.value, **options)
    except RunFailed as error:
        print_failure(error)
        leave(CHECK_FAILED)


def _report(problem: Problem, measured: Measured, output: Path, *, as_json: bool) -> None:
    from pipesat.cli.console import print_json
    from pipesat.cli.timeline_report import print_peaks, print_summary
    from pipesat.timeline.compare import compare
    from pipesat.timeline.file import write_timeline

    write_timeline(output, measured.timeline)
    comparison = compare(problem, measured.timeline)
    check = measured.check
    if as_json:
        document = comparison.document() | {"timeline": str(output)}
        peaks = measured.peaks and [peak.document() for peak in measured.peaks]
        document |= {"check": None if check is None else check.document(), "memory": peaks}
        print_json(document)
    else:
        if check is not None:
            _print_check(check)
        print_summary(comparison)
        if measured.peaks is not None:
            print_peaks(problem, measured.peaks)
        typer.echo(f"timeline written to {one_line(str(output))}")
    raise typer.Exit(0 if check is None or check.passed else CHECK_FAILED)


def _print_parity(problem: Problem, report: ParityReport) -> None:
    worst = report.check.worst
    typer.echo(
        f"{'passed' if report.passed else 'failed'}: largest relative error "
        f"{worst.relative_error:.1e} ({worst.name}), limit {report.check.tolerance:.0e}"
    )
    for text in report.check.complaints:
        typer.echo(one_line(text))
    typer.echo(
        f"compared {len(report.losses)} losses and the gradients of {report.gradients} parameters "
        f"({report.numbers} numbers)"
    )
    for rank, count in enumerate(report.counts):
        planned = report.planned[rank] == report.executed[rank]
        letters = ", ".join(f"{number} {letter}" for letter, number in count.items() if number)
        remark = "in the order of the schedule" if planned else "NOT the order of the schedule"
        typer.echo(one_line(f"{problem.device_name(rank)} ran {letters}, {remark}"))


def _print_check(check: Check) -> None:
    typer.echo(
        f"check {'passed' if check.passed else 'failed'}: largest relative error "
        f"{check.worst.relative_error:.1e} ({check.worst.name}) of {check.compared} losses and "
        f"gradients, limit {check.tolerance:.0e}"
    )
    for text in check.complaints:
        typer.echo(one_line(text))
