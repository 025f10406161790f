"""Part of the checker: what one microbatch takes and holds, by the contract's words alone.

It restates classes and modes from what a problem states; nothing here comes from
:meth:`pipesat.core.problem.Problem.amounts`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pipesat.core.ops import Op
from pipesat.core.problem import MicrobatchClass, Problem, Stage
from pipesat.core.stage import Mode


class Amounts(NamedTuple):
    """What a (stage, microbatch) takes and holds."""

    F: int
    B: int
    W: int
    BW: int
    held_after_F: int
    held_after_B: int
    held_in_backward: int
    backward: str


class CopyAmounts(NamedTuple):
    """Lengths of both copies, and what is not held between them."""

    out: int
    back: int
    away: int


def mode_of(problem: Problem, op: Op) -> Mode | None:
    """The mode that an op names; ``None`` for keep, and for one that its stage has not."""
    modes = problem.stages[op.stage].modes
    return modes[op.mode - 1] if 0 < op.mode <= len(modes) else None


def restated(problem: Problem, op: Op) -> Stage | Amounts:
    """Return the amounts of an op's microbatch in the op's mode.

    The stage's own, or what the mode states; then scaled by its class, or stated by it.
    """
    stage = problem.stages[op.stage]
    kind, mode = _class(problem, op.stage, op.microbatch), mode_of(problem, op)
    if kind is None and mode is None:
        return stage
    own = {key: getattr(stage, key) for key in Amounts._fields if key != "backward"}
    backward, is_sum = stage.backward, stage.sums
    if mode is not None:
        stated = dict(mode.stated)
        own |= stated
        is_sum = "BW" not in stated and (is_sum or "B" in stated or "W" in stated)
        backward = mode.backward or backward
    if kind is not None:
        outright = dict(next((amounts for s, amounts in kind.outright if s == op.stage), ()))
        for key, amount in own.items():
            factor = kind.held if key.startswith("held") else kind.time
            own[key] = outright.get(key, _rounded_up(amount, factor))
        is_sum = is_sum and "BW" not in outright
    if is_sum:
        own["BW"] = own["B"] + own["W"]
    return Amounts(**own, backward=backward)


def restated_copies(problem: Problem, op: Op) -> CopyAmounts | None:
    """Return what an op's mode copies; ``None`` where it does not offload."""
    mode = mode_of(problem, op)
    if mode is None or mode.offload is None:
        return None
    kind = _class(problem, op.stage, op.microbatch)
    out, back, rest = mode.offload.time_out, mode.offload.time_in, mode.offload.held
    if kind is not None:
        out, back, rest = (_rounded_up(amount, kind.held) for amount in (out, back, rest))
    return CopyAmounts(out, back, restated(problem, op).held_after_F - rest)


def restated_delay(
    problem: Problem, hop: tuple[int, int], direction: Literal["F", "B"], microbatch: int
) -> int:
    """Return the delay of a microbatch between two stages, scaled by its class."""
    if hop not in problem.links:
        return 0
    delay: int = getattr(problem.links[hop], direction)
    kind = _class(problem, hop[0], microbatch)
    for stage, stated in () if kind is None else kind.delays:
        if stage == hop[0]:
            return stated["FB".index(direction)]
    return delay if kind is None else _rounded_up(delay, kind.comm)


def _class(problem: Problem, stage: int, microbatch: int) -> MicrobatchClass | None:
    route = problem.routes[problem.route_of[stage]]
    return None if route.classes is None else route.definitions[route.classes[microbatch]]


def _rounded_up(amount: int, factor: tuple[int, int]) -> int:
    num, den = factor
    return (amount * num + den - 1) // den
