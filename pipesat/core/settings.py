"""What a search may be told, and ranges of arguments: once for Python and the command line.

An alias states a range as an annotation. :func:`pipesat.core.arguments.public` refuses what is out
of it, and the command line (``cli/derived.py``) shows its metavar. :func:`keyed` reads several
settings of one text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pipesat.core.errors import BadInput
from pipesat.core.names import hint, spelled

MOST_AMOUNT: Final = 10**12
"""Of a problem file's times and memory."""
MOST_SECONDS: Final = 10**7


@dataclass(frozen=True, slots=True)
class Within:
    """A range with both ends, or without its lower one where ``above``."""

    least: int
    most: int
    metavar: str = "N"
    above: bool = False
    hint: str = ""

    def takes(self, value: float) -> bool:
        """Whether a number is within."""
        return self.least <= value <= self.most and not (self.above and value == self.least)

    def __str__(self) -> str:
        """Return the range in words, as they follow "a number" or "an integer"."""
        if self.above:
            return f"above {self.least}, at most {self.most}"
        most = "10^12" if self.most == MOST_AMOUNT else self.most
        return f"from {self.least} to {most}{self.hint}"


PICTURES: Final = ("png", "svg", "pdf")
"""Formats of pictures."""
OneRoutePlacement: TypeAlias = Literal["chain", "loop", "vee"]
Placement: TypeAlias = Literal[OneRoutePlacement, "bidirectional"]
"""What users type."""
MicrobatchOrder: TypeAlias = Literal["given", "same", "free"]
Slicing: TypeAlias = Literal["tokens", "time"]
ModeChoice: TypeAlias = Literal["microbatch", "stage"]
Seconds: TypeAlias = Annotated[float, Within(0, MOST_SECONDS, "S", above=True)]
Workers: TypeAlias = Annotated[int, Within(1, 1024)]
Seed: TypeAlias = Annotated[int, Within(0, 2**31 - 1)]
Devices: TypeAlias = Annotated[int, Within(1, 4096, "P")]
Microbatches: TypeAlias = Annotated[int, Within(1, 2_000_000, "M")]
"""Of the 4,000,000 ops that a problem may have, every microbatch has two."""
Chunks: TypeAlias = Annotated[int, Within(1, 16384, "V")]
Amount: TypeAlias = Annotated[int, Within(0, MOST_AMOUNT, hint=" (no fractions: a smaller unit)")]
Cost: TypeAlias = Annotated[float, Within(0, MOST_AMOUNT)]
"""A time as somebody types it, also with decimals."""
Count: TypeAlias = Annotated[int, Within(1, 10**6)]
Steps: TypeAlias = Annotated[int, Within(0, 10**6)]
RunSteps: TypeAlias = Annotated[int, Within(1, 10_000)]
"""Of a measured run, and microbatches of a profile."""
Ratio: TypeAlias = Annotated[float, Within(1, 10**6, "RATIO")]
Tokens: TypeAlias = Annotated[int, Within(1, 10**9)]
Reference: TypeAlias = Annotated[float, Within(1, 10**9)]
"""A length in tokens, maybe a mean of several."""
Part: TypeAlias = Annotated[float, Within(0, 1, "X", above=True)]
"""Of a whole."""
OnTorch: TypeAlias = Literal["torch", "torchtitan", "automodel"]
"""Runtimes that read torch's CSV and run torch's pipeline runtime."""
Target: TypeAlias = Literal[OnTorch, "primus", "d9d", "jaxpp", "elf", "olmo-core"]
"""Runtimes that run an order that they are given: ``runtimes/__init__.py`` says what of it."""
Runtime: TypeAlias = Literal[Target, "megatron"]
RuleName: TypeAlias = Literal["pair-fifo", "edge-fifo", "group", "rendezvous", "graph"]
"""How a communicator runs sends and receives: see ``RULES`` of ``runtimes/hangs/``."""
RuleChoice: TypeAlias = Literal[RuleName, OnTorch]
"""A rule, or a runtime that has it."""
RecomputeChoice: TypeAlias = Literal["never", "always", "where-needed", "choose"]
"""Which stages recompute: none, all that can, those that 1F1B would not fit on, or any."""

SHARED: Final = {
    "problem": "The problem (a JSON file).",
    "schedule": "A schedule, the result that has it, or the path of a schedule file.",
    "devices": "Pipeline ranks.",
    "name": "For tables and pictures.",
    "target": "Only what this runtime can run; ``None``: any. See :func:`pipesat.solve`.",
    "version": "Release of torch, as 2.13, or installed: the one here; ``None``: the newest "
    "that pipesat knows. Said of torch and of runtimes on it.",
    "placement": "Where the stages lie.",
    "chunks": "Stages per device of a loop; ``None``: 2.",
    "split": "Layers per stage: equally many, or so that times balance.",
    "timeout": "Seconds for everything. Then all processes are ended.",
    "objective": "``makespan``, or ``span``: the longest that a device takes from its first op to "
    "its last.",
    "time_limit": "Seconds for the search. It ends earlier if nothing better can exist.",
    "workers": "Lanes of the search, the first in this process, each other one in its own; "
    "``None``: the cores it may use.",
    "seed": "Seed of the search.",
    "deterministic": "One result for one seed, whatever the load: one lane, limits in solver time "
    "(about seconds of processor time). Loading, closed forms and hand-written schedules are not "
    "counted. With memory modes a solve may take five times as much.",
    "listener": "Called with every improvement.",
    "stop": "Ends the search when set, with the best answer so far.",
    "to": f"The format: {', '.join(f'``{name}``' for name in get_args(Target))}, ``megatron`` (the "
    "placement alone), ``order`` (of the microbatches, for a data loader), ``schedule`` (a "
    "schedule file), or ``trace`` for Perfetto.",
}
"""What these parameters are, where a function's docstring does not say."""


Keys: TypeAlias = Mapping[str, type | tuple[str, ...]]
"""What each key takes: ``int``, ``list`` of them (one number for all, or several), or one of."""
MOST: Final = 1 << 20
_NUMBER: Final = re.compile(r"[0-9]{1,7}")


def keyed(where: str, given: str | Mapping[str, Any] | None, keys: Keys) -> dict[str, Any]:
    """Return settings by key, from a text or from what Python has; ``None``: none of them.

    Raises
    ------
    BadInput
        Naming the key, and what it takes.
    """
    if given is None:
        return {}
    pairs = _pairs(where, given) if isinstance(given, str) else [*given.items()]
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = spelled(key, keys)
        if name is None or name in found:
            once = "once each" if name else f"not {key}{hint(key, keys)}"
            raise BadInput(
                f"expected KEY=VALUE of {', '.join(keys)}, {once}", where=where, value=given
            )
        found[name] = _value(where, name, value, keys[name])
    return found


def _pairs(where: str, text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for word in text.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if equals:
            pairs.append((key, value))
        elif pairs:
            pairs[-1] = pairs[-1][0], f"{pairs[-1][1]},{key}"
        else:
            raise BadInput("expected KEY=VALUE, as width=64", where=where, value=text)
    return pairs


def _value(where: str, key: str, given: Any, wanted: type | tuple[str, ...]) -> Any:
    several = isinstance(given, list | tuple)
    words = [str(one) for one in given] if several else str(given).split(",")
    if isinstance(wanted, tuple):
        if given in wanted:
            return given
        raise BadInput(f"expected {key} to be one of {', '.join(wanted)}", where=where, value=given)
    good = all(_NUMBER.fullmatch(word) and int(word) <= MOST for word in words)
    least = 1 if wanted is int else 0  # of a list, one stage may have none
    if not good or (wanted is int and len(words) > 1) or min(map(int, words)) < least:
        count = "a whole number" if wanted is int else "whole numbers, one or several,"
        raise BadInput(
            f"expected {key} to be {count} from {least} to {MOST}", where=where, value=given
        )
    return int(words[0]) if wanted is int else tuple(map(int, words))
