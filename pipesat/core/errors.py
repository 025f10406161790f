"""The errors that pipesat raises.

::

    PipesatError
    ├── BadInput        a file, a value or an option is wrong          (exit code 2)
    ├── NotApplicable   a hand-written schedule does not fit a problem
    ├── NotValid        the checker refuses a schedule, with all violations (exit code 1)
    ├── Deadlock        the ops of an order wait for each other
    ├── RunFailed       local ranks failed, hung or were stopped
    ├── Infeasible      no schedule can exist, with the reason          (exit code 3)
    └── Fault           parts of pipesat disagree: please report  (exit code 1)
        └── Contradiction   a claim that would be false: it is not made
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_MISSING = object()
_LONGEST_VALUE = 80


class PipesatError(Exception):
    """Base of every error that pipesat raises on purpose."""


class BadInput(PipesatError):
    """One wrong value: which file, where in it, what stands there and what would be right."""

    def __init__(
        self, expected: str, *, source: str = "", where: str = "", value: object = _MISSING
    ) -> None:
        self.expected = expected
        self.source = source
        self.where = where
        self.value = value
        got = "" if value is _MISSING else f"got {shorten(value)}, "
        super().__init__(": ".join(part for part in (source, where, got + expected) if part))

    def of(self, source: str) -> BadInput:
        """Return the same complaint about a value of ``source``."""
        return BadInput(self.expected, source=source, where=self.where, value=self.value)


@contextmanager
def said_of(source: str) -> Iterator[None]:
    """Name the source, a file say, in complaints about its values that do not name one."""
    try:
        yield
    except BadInput as error:
        raise error if error.source else error.of(source) from None


def require(
    holds: object, expected: str, *, source: str = "", where: str = "", value: object = _MISSING
) -> None:
    """Pass if something holds of a value; else complain, as :class:`BadInput` says it."""
    if not holds:
        raise BadInput(expected, source=source, where=where, value=value)


def first_of(found: Sequence[object]) -> str:
    """Say the first of some complaints, and how many more there are."""
    return f"{found[0]} (and {len(found) - 1} more)" if len(found) > 1 else str(found[0])


class NotApplicable(PipesatError):
    """A hand-written schedule cannot be built for this problem; the message is the reason."""


def require_applicable(holds: object, reason: str) -> None:
    """Pass if something holds of a problem; else a hand-written schedule is not applicable."""
    if not holds:
        raise NotApplicable(reason)


class Note(UserWarning):
    """What is to be known of an answer that stands: the command line prints it on stderr."""


class ProblemWarning(Note):
    """What a problem states and perhaps does not mean: its ``remarks``, where it is read or made.

    ``warnings.simplefilter("ignore", pipesat.ProblemWarning)`` silences it.
    """


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    ``rule`` is a short word (``missing``, ``doubled``, ``text``, ``name``, ``device``, ``time``,
    ``length``, ``kind``, ``mode``, ``overlap``, ``order``, ``input``, ``memory``), ``device`` the
    device's number, ``time`` where on the time axis, in time units; ``None`` where that has no
    meaning.
    """

    rule: str
    message: str
    device: int | None = None
    time: int | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


class NotValid(PipesatError):
    """A schedule breaks rules of its problem.

    Attributes
    ----------
    violations
        All of them, as :func:`pipesat.check` lists them.
    """

    def __init__(self, message: str, violations: Sequence[object]) -> None:
        super().__init__(f"{message}: {first_of(violations)}" if violations else message)
        self.message = message
        self.violations = tuple(violations)


class Deadlock(PipesatError):
    """The ops of an order wait for each other.

    Attributes
    ----------
    cycle
        The op texts of one circle of waiting, in order; empty when an op waits for one that the
        order does not have at all.
    """

    def __init__(self, message: str, cycle: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.cycle = tuple(cycle)


class Infeasible(PipesatError):
    """No schedule can satisfy the memory capacities; the message proves it."""


class RunFailed(PipesatError):
    """A process of a local run failed, the time was over, or the run was stopped.

    Attributes
    ----------
    log
        The last lines of the failed process's traceback or output, or where each process was.
    """

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = tuple(log)


class Fault(PipesatError):
    """Two parts of pipesat disagree (a bound above a checked schedule, say): a bug."""


class Contradiction(Fault):
    """A claim contradicts what is known (a proof a checked schedule, say), so it is not made.

    Attributes
    ----------
    kept
        The folder or file that has what was found, as far as it is not the claim; empty if none.
    """

    def __init__(self, message: str, kept: str = "") -> None:
        super().__init__(message)
        self.kept = kept


def shorten(value: object) -> str:
    """Show a value on one line, at most 80 characters long."""
    try:
        text = repr(value) if not isinstance(value, float) else str(value)
    except ValueError:  # Python's limit on the digits of one integer
        text = "a number of thousands of digits"
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
