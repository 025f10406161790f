"""How users make problems in Python: ``Problem.chain`` and its like, and what ``with_`` changes.

:mod:`pipesat.problem.making` has the values that they give; checks and messages are those of
a file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeAlias, cast

from pipesat.core.arguments import public
from pipesat.core.names import hint
from pipesat.core.settings import (
    Amount,
    Chunks,
    Count,
    Devices,
    MicrobatchOrder,
    ModeChoice,
    Placement,
)

if TYPE_CHECKING:
    from pipesat.problem.problem import Problem

Backward: TypeAlias = Literal["split", "fused", "either"]
StageBackward: TypeAlias = Literal["split", "fused", "either", "none"]
Split: TypeAlias = Literal["even", "balanced"]
# Texts, for `public` to read what they are made of
Numbers: TypeAlias = "Amount | Sequence[Amount]"
"""One number for all, or one each; numpy's arrays and numbers do too."""
Amounts: TypeAlias = "Amount | str | Sequence[Amount | str]"
"""The same of memory, also as ``"40GiB"``, where the memory unit is one of bytes."""
Memory: TypeAlias = "int | str | Fraction | Sequence[int | str | None] | None"
"""Unlimited, one capacity for all, one each; ``"1f1b*0.75"``: that share of 1F1B's peak."""
Microbatches: TypeAlias = "int | Sequence[Any]"
"""How many; or the list of a problem file, for microbatches that differ."""
Comm: TypeAlias = "Amount | Sequence[Amount] | Mapping[str, Any]"
"""One delay, one per link between neighbouring devices, or ``comm`` of a problem file."""
OverlapGiven: TypeAlias = tuple[int, int] | Mapping[str, Any] | None
"""The factor of an overlapped pair of F and BW, or ``overlap`` of a problem file."""

P = ParamSpec("P")


@public
def make(
    placement: Placement,
    devices: Devices,
    microbatches: Microbatches,
    *,
    F: Numbers,
    B: Numbers,
    W: Numbers,
    BW: Numbers | None = None,
    held_after_F: Amounts = 0,
    held_after_B: Amounts = 0,
    held_in_backward: Amounts = 0,
    backward: StageBackward | Sequence[StageBackward] = "either",
    modes: Sequence[Any] = (),
    mode_choice: ModeChoice | None = None,
    memory: Memory = None,
    static: Amounts = 0,
    copy_channels: Literal[1, 2] | Sequence[Literal[1, 2]] | None = None,
    comm: Comm = 0,
    overlap: OverlapGiven = None,
    order: MicrobatchOrder | None = None,
    slices: Count | None = None,
    chunks: Chunks | None = None,
    layers: Count | None = None,
    split: Split = "even",
    name: str = "",
    time_unit: str = "",
    memory_unit: str = "",
) -> Problem:
    """Make a problem in a placement: what ``Problem.chain`` and its like do.

    Parameters
    ----------
    devices
        Number of pipeline ranks.
    microbatches
        How many, of both directions together; or the list of a problem file, for microbatches
        that differ.
    chunks
        Stages per device of a loop; ``None``: 2. Nothing else has a choice.
    F, B, W
        Times of the forward, the backward for the input gradient and that for the weight
        gradient, in time units: one integer for all stages, or one per stage. Longer sequences
        are of layers, which are cut into contiguous stages.
    BW
        Time of the full backward, B and W in one op; B + W if not given.
    held_after_F
        Memory that a microbatch holds from the start of F to the end of its backward, in memory
        units.
    held_after_B
        Memory that it holds from the end of B to the end of W.
    held_in_backward
        Memory that it holds at least while B or BW runs.
    backward
        ``"split"``: B and W alone; ``"fused"``: BW alone; ``"either"``: free choice; ``"none"``:
        F alone, as in a log-prob pass or inference. One for all stages, or one per stage.
    modes
        Memory modes of every stage, as in a problem file; or a list of them per stage.
    mode_choice
        ``"microbatch"`` or ``"stage"``: who chooses between modes.
    memory
        Capacity of a device, ``static`` included; ``None``: unlimited. One for all devices, one
        each, or a share of what 1F1B holds, ``"1f1b*0.75"``, on top of ``static``.
    static
        Memory that is always taken: weights, optimizer and so on. One for all, or one each.
    copy_channels
        1 or 2: how many copies of offloaded activations a device makes at a time.
    comm
        Delay between the end of an op and its consumer on another device: one integer, one per
        link between neighbours, or ``comm`` of a problem file.
    overlap
        ``(num, den)``: pairs of F and BW may run as one op, which takes
        ``max(F, BW, ceil((F + BW) * num / den))``; or ``overlap`` of a problem file.
    order
        ``"given"``, ``"same"`` or ``"free"``: the order of microbatches that differ.
    slices
        How many microbatches that follow each other are the slices of one sequence: F of a slice
        waits for that of the slice before it, its backward for that of the slice after it.
    layers
        How many layers the numbers are of, where each is one for all.
    split
        How layers are cut: ``"even"``, equally many; ``"balanced"``, so that the longest stage
        is shortest and, of such cuts, the most even one.
    name, time_unit, memory_unit
        For tables and pictures.

    Raises
    ------
    BadInput
        As for a problem file: which value, and what would be right.
    """
    from pipesat.problem.making import built

    return built(locals())


def placed(
    made: Callable[Concatenate[Placement, P], Problem], placement: Placement
) -> Callable[[Callable[..., Any]], Callable[Concatenate[Any, P], Problem]]:
    """Give a constructor the parameters of :func:`make`, and what its docstring says of them."""

    def constructor(named: Callable[..., Any]) -> Callable[Concatenate[Any, P], Problem]:
        told, own = inspect.signature(made), inspect.signature(named)

        @wraps(named)
        def of_class(_: Any, *args: P.args, **given: P.kwargs) -> Problem:
            for key in given.keys() - told.parameters.keys():
                near = hint(key, told.parameters)
                near = "; recomputation is one of the `modes`" if "comput" in key else near
                raise TypeError(f"Problem.{named.__name__} has no argument {key!r}{near}")
            return made(placement, *args, **given)

        kept = [one for key, one in told.parameters.items() if key != "placement"]
        said = told.replace(parameters=[*own.parameters.values(), *kept])
        of_class.__signature__ = said  # type: ignore[attr-defined]
        if named.__doc__ and made.__doc__:  # python -OO has none
            head, text = inspect.cleandoc(named.__doc__), made.__doc__
            of_class.__doc__ = f"{head}\n\n{text[text.index('Parameters') :]}"
        return cast("Callable[Concatenate[Any, P], Problem]", of_class)

    return constructor
