"""Exit codes, the one-line errors that go with them, and what these name: an option, or a file."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NoReturn

import click

from pipesat.core.errors import (
    BadInput,
    Contradiction,
    Deadlock,
    Fault,
    Infeasible,
    NotApplicable,
    Note,
    NotValid,
    PipesatError,
    RunFailed,
)

CHECK_FAILED = 1
BAD_INPUT = 2
INFEASIBLE = 3

INTERNAL_ERROR = "internal error"
TRACEBACK = "PIPESAT_TRACEBACK"
"""Set in the environment, a bug ends in Python's traceback instead of one line."""

_LONGEST = 800

_SCARCE: Final = {
    getattr(errno, name) for name in ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "ENOSPC", "EDQUOT")
}
"""Whatever a command was about to do, there were no more open files, processes, memory or disk.

So says an error without a file's name, too: what users name is read and written with BadInput."""

_HEAVY: Final = {"matplotlib", "networkx", "ortools"}
"""Reading, checking and exporting work without these, as in a small image for training."""

_CODES: dict[type[PipesatError], int] = {
    BadInput: BAD_INPUT,
    NotApplicable: BAD_INPUT,
    Deadlock: CHECK_FAILED,
    RunFailed: CHECK_FAILED,
    Infeasible: INFEASIBLE,
}


def exit_code_of(error: Exception) -> int | None:
    """Print an error that users can act on and return its exit code; ``None`` for a bug."""
    if isinstance(error, MemoryError):
        print_error("error", "out of memory")
        return CHECK_FAILED
    if isinstance(error, OSError) and (error.errno in _SCARCE or error.filename is None):
        print_error("error", f"the operating system refused: {error}")
        return CHECK_FAILED
    if isinstance(error, click.UsageError):
        return _end_of_usage(error)
    if isinstance(error, NotValid):
        for line in (f"pipesat: {error.message}", *map(str, error.violations)):
            print(one_line(line), file=sys.stderr)  # noqa: T201
        return CHECK_FAILED
    code = _CODES.get(type(error)) if isinstance(error, PipesatError) else None
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        text = f"this needs {package}, which is not installed: pip install {package}"
        code = BAD_INPUT if package in _HEAVY else None
    if code is not None:
        print_error("error", text)
    return code


def _end_of_usage(error: click.UsageError) -> int:
    """Say in one line what is wrong with the command line; help, where nothing else was given."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_INPUT
    text = " ".join(error.format_message().split()).rstrip(".")
    where = "" if error.ctx is None else f"; {error.ctx.command_path} --help says more"
    print_error("error", text[:1].lower() + text[1:] + where)
    return BAD_INPUT


def print_bug(error: Exception) -> int:
    """Say on one line that this is a bug of ours, which, and where files are; return the code."""
    text = str(error)
    if isinstance(error, Contradiction) and error.kept:
        text += f"; what was found is in {error.kept}"
    elif not isinstance(error, Fault):  # nobody foresaw it: say what and where
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        text = f"{type(error).__name__}: {error} ({where}); {TRACEBACK}=1 shows more"
    print_error(f"{INTERNAL_ERROR}, please report it", text)
    return CHECK_FAILED


def print_error(kind: str, text: str) -> None:
    """Say on stderr, on one line, why a command ends."""
    if len(text) > _LONGEST:  # names from files can be any length
        text = f"{text[: _LONGEST - 100]} … {text[-90:]}"
    print(f"pipesat: {kind}: {one_line(text)}", file=sys.stderr)  # noqa: T201


def print_warning(message: Warning | str) -> None:
    """Say a warning on stderr, on one line."""
    if isinstance(message, Note):
        note(f"pipesat: {message}")
    else:
        print_error("warning", str(message))


@contextlib.contextmanager
def keeping(folder: Path | None) -> Iterator[None]:
    """Let a contradiction say that files are in a folder: what was found is written by now."""
    try:
        yield
    except Contradiction as error:
        if folder is not None and not error.kept:
            error.kept = str(folder)
        raise


@contextlib.contextmanager
def prepared(folder: Path | None) -> Iterator[None]:
    """Make the folder for results; what was made goes again if nothing came of it."""
    if folder is None:
        yield
        return
    from pipesat.files.atomic import remove_empty
    from pipesat.files.folder import prepare_result_folder

    made = prepare_result_folder(folder)
    try:
        yield
    except BaseException:
        remove_empty(made)
        raise


def refuse_contradictions(found: Sequence[str], folder: Path | None) -> None:
    """End with 1 if checked schedules have refuted proofs, which were dropped."""
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise Contradiction(f"{found[0]}{more}", "" if folder is None else str(folder))


def note(text: str) -> None:
    """Say one line on stderr."""
    click.echo(one_line(text), err=True)


def print_failure(error: RunFailed) -> None:
    """Print why a run failed and the last lines of the process that did."""
    note(f"pipesat: error: {error}")
    for line in error.log:
        note(f"  {line}")


def end_of_run(error: RunFailed, interrupted: int) -> NoReturn:
    """End a command whose run failed, with 1 or 128 + signal."""
    print_failure(error)
    raise click.exceptions.Exit(interrupted or CHECK_FAILED) from None


def one_line(text: str) -> str:
    """Keep a message on one line and free of control characters, whatever a file put into it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


_OPTIONS: Final[ContextVar[dict[str, str]]] = ContextVar("options")
"""Of the command that runs: its options by the names of their parameters."""


@contextmanager
def options_named(params: Sequence[click.Parameter]) -> Iterator[None]:
    """Name the option in complaints about a parameter, for as long as its command runs."""
    options = (one for one in params if one.param_type_name == "option")
    _OPTIONS.set({one.name or "": max(one.opts, key=len) for one in options})
    try:
        yield
    except BadInput as error:
        if (named := _with_option(error)) is None:
            raise
        raise named from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what is raised about the problem that was read from it."""
    try:
        yield
    except NotApplicable as error:
        raise NotApplicable(f"{path}: {with_options(str(error))}") from None
    except BadInput as error:
        if error.source or not error.where or error.where.startswith("-"):
            raise
        text = with_options(error.expected)
        named = BadInput(text, source=str(path), where=error.where, value=error.value)
        raise (_with_option(error) or named) from None


def with_options(text: str) -> str:
    """Return a text in which each parameter in backquotes that is an option is named as one."""
    options = _OPTIONS.get({})
    return re.sub(r"`([A-Za-z_]+)`", lambda name: f"`{options.get(name[1], name[1])}`", text)


def _with_option(error: BadInput) -> BadInput | None:
    """Return a complaint about a parameter as one about its option; ``None`` if there is none.

    A repeated option has the singular of the parameter's name.
    """
    found = re.match(r"[A-Za-z_]+", error.where)
    if found is None or error.source:
        return None
    options = _OPTIONS.get({})
    option = options.get(found[0]) or options.get(found[0].removesuffix("s"))
    return (
        None
        if option is None
        else BadInput(with_options(error.expected), where=option, value=error.value)
    )
