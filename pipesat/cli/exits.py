"""Exit codes, the one-line errors that go with them, and what these name: an option, or a file."""

from __future__ import annotations

import contextlib
import errno
import os.path
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from pipesat.cli.derived import Option, with_members
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
    first_of,
    require,
)
from pipesat.core.settings import PICTURES
from pipesat.core.text_tables import one_line

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
        print_error("infeasible" if code == INFEASIBLE else "error", text)
    return code


def _end_of_usage(error: click.UsageError) -> int:
    """Say in one line what is wrong with the command line; help, where nothing else was given."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_INPUT
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption) and (said := _said_by(error)):
        text = f"No such option '{error.option_name}': {said}"
    where = "" if error.ctx is None else f"; {error.ctx.command_path} --help says more"
    print_error("error", text[:1].lower() + text[1:] + where)
    return BAD_INPUT


def _said_by(error: click.NoSuchOption) -> str:
    """Return what says what an option was meant to say: an option's key, by its initials too.

    Where the command reads a problem, the problem says what an option of ``problem new`` would.
    """
    given = error.option_name.strip("-").replace("-", "_")
    if (context := error.ctx) is None:
        return ""
    params = context.command.params
    for host in (one for one in params if isinstance(one, Option)):
        for key, member in host.members.items():
            if given in (key, "".join(word[0] for word in key.split("_"))):
                value = "" if member.is_flag else f"={(member.metavar or key).upper()}"
                return f"say {max(host.opts, key=len)} {_own_value(host, context)}{key}{value}"
    root: Any = context.find_root().command
    new = root.get_command(context, "problem").get_command(context, "new")
    if params[0].name == "problem" and any(error.option_name in one.opts for one in new.params):
        return f"the problem file states it, as problem new {error.option_name} writes it"
    return ""


def _own_value(host: Option, context: click.Context) -> str:
    """Return what comes before an option's keys: its own value, if it has one."""
    own = host.make_metavar(context)
    return f"{own}," if host.expose_value and "=" not in own else ""


def print_bug(error: Exception) -> int:
    """Say on one line that this is a bug of ours, which, and where files are; return the code."""
    text = str(error)
    if isinstance(error, Contradiction) and error.kept:
        text += f"; what was found is in {error.kept}"
    elif not isinstance(error, Fault):  # no one foresaw it: say what and where
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
def prepared(folder: Path | None) -> Iterator[None]:
    """Make the folder for results; what was made goes again if nothing came of it."""
    if folder is None:
        yield
        return
    from pipesat.core.atomic import remove_empty
    from pipesat.core.folder import prepare_result_folder

    made = prepare_result_folder(folder)
    try:
        yield
    except BaseException:
        remove_empty(made)
        raise


def refuse_contradictions(found: Sequence[str]) -> None:
    """End with 1 if checked schedules have refuted proofs, which were dropped."""
    if found:
        raise Contradiction(first_of(found))


def note(text: str) -> None:
    """Say one line on stderr."""
    click.echo(one_line(text), err=True)


def print_failure(error: RunFailed) -> None:
    """Print why a run failed and the last lines of the process that did."""
    note(f"pipesat: error: {error}")
    for line in error.log:
        note(f"  {line}")


def named(error: PipesatError, file: Path | None) -> PipesatError:
    """Return a complaint about a parameter as one about its option, or else about the file."""
    if isinstance(error, NotApplicable) and file is not None:
        return NotApplicable(f"{file}: {with_options(str(error))}")
    if not isinstance(error, BadInput) or error.source or not re.match("[A-Za-z_]", error.where):
        return error
    keys = re.findall("[A-Za-z_]+", error.where)
    options, name = _options(), keys[0]
    names = [name, name.removesuffix("s"), f"{name}s"]  # repeated: the singular
    names += keys[-1:] if file is None else []  # of the file that options make
    option = next((options[one] for one in names if one in options), None)
    if option and isinstance(host := _host(option), Option):
        found = host.unknown_key(error, f"{error.value}")
        if found is not error:
            return found
    source = "" if option or file is None else str(file)
    where, text = option or error.where, with_options(error.expected)
    return BadInput(text, source=source, where=where, value=error.value)


def with_options(text: str) -> str:
    """Return a text in which each parameter in backquotes that is an option is named as one."""
    options = _options()

    def shown(found: re.Match[str]) -> str:
        option = options.get(found[2], found[2])
        if found[1] and isinstance(host := _host(option), Option) and " " in option:
            name, key = option.split()  # a key is nothing without its value
            option = f"{name} {_own_value(host, click.get_current_context())}{key}=..."
        return f"{found[1]}`{option}`"

    return re.sub(r"(\bgive (?:the export )?|)`([A-Za-z_]+)`", shown, text)


_ENDINGS: Final = {".json", ".csv", ".py", ".toml", ".gz"}


_WRITTEN: Final = ("output", "path", "html", *PICTURES)


def require_kept(context: click.Context) -> None:
    """Pass unless a file that an argument names would be written over."""
    arguments = [
        one.name or "" for one in context.command.params if isinstance(one, click.Argument)
    ]
    values = [context.params.get(name) for name in arguments]
    read = {
        os.path.realpath(path)
        for value in values
        for path in (value if isinstance(value, tuple) else (value,))
        if isinstance(path, Path) and path.is_file()
    }
    for path in filter(None, map(context.params.get, _WRITTEN)):
        require(
            os.path.realpath(path) not in read,
            "expected another file: this one is read",
            source=str(path),
        )


def require_files(context: click.Context) -> None:
    """Pass unless a file that was to be read is missing; without its ending, it may be a name."""
    for param in context.command.params:
        value = context.params.get(param.name or "")
        read = isinstance(param, click.Argument) or (param.callback is None and param.is_eager)
        for path in value if isinstance(value, tuple) else (value,):
            if (
                read
                and isinstance(path, Path)
                and path.suffix in _ENDINGS
                and not os.path.lexists(path)
            ):
                raise BadInput("cannot read: No such file or directory", source=str(path))


def _params() -> Sequence[click.Parameter]:
    """The parameters of the command that runs."""
    context = click.get_current_context(silent=True)
    return context.command.params if context else ()


def _host(option: str) -> click.Parameter | None:
    """The option of this name, and of what follows its value, in the command that runs."""
    return next((one for one in _params() if option.split(maxsplit=1)[0] in one.opts), None)


def _options() -> dict[str, str]:
    """The options of the command that runs, by the names of their parameters."""
    options = (one for one in with_members(_params()) if isinstance(one, click.Option))
    return {one.name or "": max(one.opts, key=len) for one in options}
