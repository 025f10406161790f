"""Whether an order can hang, as one answer; sends and receives that a CSV of torch's has itself."""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pipesat.core.claims import plural
from pipesat.core.errors import BadInput, require_applicable
from pipesat.core.settings import RuleChoice, RuleName
from pipesat.core.showing import Displayed, Facts
from pipesat.core.strict_json import LARGEST_ORDER, read_text
from pipesat.core.torch_releases import release_for
from pipesat.problem.ops import Event, members
from pipesat.problem.problem import Problem
from pipesat.runtimes.hangs.step_lists import (
    RULE_OF,
    RULES,
    WORDS,
    BlockedStep,
    Crossed,
    crossed_of,
    crossing,
    cycle_of,
    message,
    wait_for,
    with_waits,
    word,
)
from pipesat.runtimes.steps import RankStep, Steps, computed, late_steps, lowered_steps, steps_of
from pipesat.runtimes.torch.companions import Companions, own_words
from pipesat.runtimes.torch.lint import WAIT, parse_cell
from pipesat.schedule.schedule import Order, Schedule

_DROPPED: Final = (
    "it comes after the backward of that microbatch, in which torch drops the activation: sending "
    "it raises KeyError"
)
_POSTS: Final = re.compile(r"\d+(SEND|RECV|WAIT_SEND)_[FB]\d+")


def posted_in(path: Path, problem: Problem, order: Order) -> Steps | None:
    """Return the step lists of a CSV that was read as this order; ``None``: it posts nothing."""
    if path.suffix != ".csv" or not _POSTS.search(text := read_text(path, LARGEST_ORDER)):
        return None
    own = own_words(problem, Companions(Companions.of(path).order, None), ()).numbers
    number = {mine: theirs for theirs, mine in enumerate(own)}
    lists = []
    rows = zip(order, late_steps(problem, order), csv.reader(text.splitlines()), strict=True)
    for rank, (row, late, cells) in enumerate(rows, 1):
        posts = {
            f"{problem.place_of[op.stage]}{WORDS[step.kind]}{number[op.microbatch]}": step
            for late_step in late
            for step in (late_step, *wait_for(late_step)[: WAIT in text])
            for op in members(step.item)[: step.kind in WORDS]
        }
        items, steps = iter(row), list[RankStep]()
        for cell in (cell.replace(" ", "") for cell in cells):
            if not _POSTS.fullmatch(cell):
                ops = len(parse_cell(cell) or ())
                while ops:  # an overlapped cell is a pair, or ops in turn
                    steps.append(computed(next(items)))
                    ops -= len(members(steps[-1].item))
            elif cell in posts:
                steps.append(posts.pop(cell))
            else:
                raise BadInput(
                    "it carries nothing of this order, or does so twice",
                    source=str(path),
                    where=f"row {rank}",
                    value=cell,
                )
        for cell in posts:
            raise BadInput(f"{cell} is missing", source=str(path), where=f"row {rank}")
        for step, said in _out_of_turn(problem, steps):
            raise BadInput(said, source=str(path), where=f"row {rank}", value=word(step))
        lists.append(tuple(steps))
    return tuple(lists)


def _out_of_turn(problem: Problem, steps: list[RankStep]) -> Iterator[tuple[RankStep, str]]:
    """Yield the steps that use what their rank does not have yet, or has no more."""
    there, dropped = set[Event | None](), set[Event]()
    for step in steps:
        ops = members(step.item)
        if step.kind.startswith("Recv"):
            there.add(message(problem, step))
        elif step.kind.startswith("Wait"):
            continue  # read already: it comes after its send
        elif step.peer is not None and ops[0].event in dropped:
            yield step, _DROPPED
        elif step.peer is not None and ops[0].event not in there:
            yield step, "it comes before its data"
        elif step.peer is None:
            if {need for op in ops if (need := crossing(problem, op))} - there:
                yield step, "it comes before its data"
            there |= {op.event for op in ops}
            dropped |= {op._replace(kind="F").event for op in ops if op.kind != "F"}


_LATE: Final = "each receive directly before the op that needs it, each send directly after its op"
_GIVEN: Final = "the sends and receives of the file, as they stand there"
_LOWERED: Final = "as torch posts them: each send directly after its op, its receive at that moment"
_EARLY: Final = "as `pipesat show PROBLEM SCHEDULE --steps`: all ranks in one common sequence"
_AT_ONCE: Final = "each send directly after its op, its receive at that moment of one sequence"
_UNTOLD: Final = (
    "collectives on the same communicator, sends and receives that a runtime puts into one batch, "
    "communicators made at first use, shapes sent ahead"
)


@dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """Whether an order can hang, or mix up messages, under the rule of a communicator.

    ``cycle`` is who waits for whom, each rank for the next and the last for the first; ``crossed``
    are messages that are received as others. Both are empty where it is ``safe``. ``steps`` is an
    order of sends and receives that is safe: what was judged, if it is, else pipesat's own.
    ``buffers`` is the least number of buffers per stage and direction with which what was judged
    does not hang (rule ``graph``); 1 is judged. ``safe_buffers``: those of ``steps``, more than 1
    where two ops of a pair send from one stage in one direction, so that no order does with 1.
    ``judged``: where sends and receives stand. ``release``: torch's, whose rule it is; ``opt_in``:
    what is said of the rule that an environment variable sets there.
    """

    rule: RuleName
    cycle: tuple[BlockedStep, ...]
    crossed: tuple[Crossed, ...]
    steps: Steps
    buffers: int | None = None
    judged: str = _LATE
    safe_buffers: int = 1
    release: str | None = None
    opt_in: str = ""

    @property
    def safe(self) -> bool:
        """Whether it neither hangs nor mixes up messages."""
        return not self.cycle and not self.crossed

    def facts(self) -> Facts:
        """Return the verdict, the cyclic wait, the first crossed message and a safe order."""
        safe = "what was judged" if self.safe else _AT_ONCE if self.rule == "graph" else _EARLY
        safe += f", with {self.safe_buffers} buffers" if self.safe_buffers > 1 else ""
        return [
            ("Verdict", self.said),
            ("For", self.release or ""),
            ("Opt-in", self.opt_in),
            ("Cyclic wait", self.cyclic_wait),
            ("Crossed", self.mixed_up),
            ("Buffers", self._buffers()),
            ("Judged", self.judged),
            ("Safe order", safe if self.safe else f"{safe} (-v and --json list it)"),
            ("Not judged", _UNTOLD),
        ]

    @property
    def said(self) -> str:
        """Say what was found, and under which rule."""
        found = "can hang" if self.cycle else "mixes up messages" if self.crossed else "safe"
        return f"{found} under {self.rule}: {RULES[self.rule].text}"

    def details(self) -> Facts:
        """Return the safe order, rank by rank."""
        rows = (", ".join(map(word, row)) for row in self.steps)
        return [(f"Rank {rank}", text) for rank, text in enumerate(rows)]

    def records(self) -> list[dict[str, Any]]:
        """Return the ranks that wait for each other."""
        return [wait._asdict() for wait in self.cycle]

    def document(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "rule": self.rule,
            "release": self.release,
            "opt_in": self.opt_in or None,
            "judged": self.judged,
            "safe": self.safe,
            "hangs": bool(self.cycle),
            "cycle": self.records(),
            "crossed": [one._asdict() for one in self.crossed],
            "buffers": self.buffers,
            "safe_buffers": self.safe_buffers,
            "safe_steps": [
                [{"step": WORDS.get(s.kind, "run"), "op": str(s.item), "peer": s.peer} for s in row]
                for row in self.steps
            ],
        }

    @property
    def cyclic_wait(self) -> str:
        """Say who waits for whom."""
        texts = [f"waits in {one.step} for rank {one.peer} ({one.needs})" for one in self.cycle]
        return f"rank {self.cycle[0].rank} {', which '.join(texts)}" if texts else "none"

    @property
    def mixed_up(self) -> str:
        """Say how many messages are received as others, and which is the first."""
        if not self.crossed:
            return "none"
        one = self.crossed[0]
        count = f"{len(self.crossed)} {plural(len(self.crossed), 'message')}"
        return (
            f"{count}, first number {one.number} from rank {one.sender} to rank {one.receiver}: "
            f"{one.sent} arrives in {one.received}, without an error where shapes are equal"
        )

    def _buffers(self) -> str:
        if self.rule != "graph":
            return ""
        more = "" if self.buffers is None else f", {self.buffers} would not hang"
        return f"one per stage and direction{more if self.cycle else ''}"


def verdict(
    problem: Problem,
    schedule: Schedule,
    asked: RuleChoice,
    posted: Steps | None = None,
    version: str | None = None,
) -> Verdict:
    """Judge a valid schedule's order, or its step lists in ``posted``. O(n log n) for n ops.

    A runtime on torch posts what torch's lowering makes of the order. Raises NotApplicable where it
    runs no order of such a problem.
    """
    require_applicable(
        all(route.graph is None for route in problem.routes),
        "whether sends and receives can hang is known of chains, here routes are graphs",
    )
    rule, release = RULE_OF[asked], release_for(asked, version)
    judged = _GIVEN if posted else _LATE if release is None else _LOWERED
    if posted is None:
        if release is not None:
            from pipesat.runtimes import RUNTIMES

            RUNTIMES[asked].require(problem)
        posted = (late_steps if release is None else lowered_steps)(problem, schedule.order)
    found = replace(_judged(problem, posted, rule), judged=judged)
    if release is not None:
        found = replace(found, release=str(release))
    if release is not None and release.per_edge:
        said = f"{_judged(problem, posted, 'edge-fifo').said}, with {release.per_edge}=1"
        found = replace(found, opt_in=said)
    if found.safe:
        return found
    own = steps_of(problem, schedule, at_once=rule == "graph")
    if rule != "graph":
        return replace(found, steps=own)
    enough = _least_buffers(problem, own) or 1
    return replace(
        found,
        steps=with_waits(own, enough),
        safe_buffers=enough,
        buffers=_least_buffers(problem, posted) if found.cycle else None,
    )


def _judged(problem: Problem, steps: Steps, rule: RuleName) -> Verdict:
    steps = with_waits(steps) if RULES[rule].waits else steps
    cycle, crossed = cycle_of(problem, steps, RULES[rule]), crossed_of(problem, steps)
    return Verdict(rule, tuple(cycle), tuple(crossed), steps)


def _least_buffers(problem: Problem, posted: Steps) -> int | None:
    """More of them never hurt, and with one per microbatch nothing is used again."""
    most = max(problem.microbatches)
    least = bisect_left(
        range(most + 1),
        True,
        lo=1,
        key=lambda buffers: not cycle_of(problem, with_waits(posted, buffers), RULES["graph"]),
    )
    return least if least <= most else None
