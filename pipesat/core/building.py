"""How users make problems in Python: ``Problem.chain`` and its like, and what ``with_`` changes.

Every one of them writes a problem document and has it read as a file would be: the checks, the
messages and the digest are those of the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeAlias, TypeVar, cast

from pipesat.core.arguments import public
from pipesat.core.attached import attached
from pipesat.core.settings import Amount, Chunks, Count, Devices, Placement

Backward: TypeAlias = Literal["split", "fused", "either"]
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
Overlap: TypeAlias = tuple[int, int] | Mapping[str, Any] | None
"""The factor of an overlapped pair of F and BW, or ``overlap`` of a problem file."""

MadeT = TypeVar("MadeT")
P = ParamSpec("P")


@public
def make(
    kind: type[MadeT],
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
    backward: Backward = "either",
    modes: Sequence[Any] = (),
    mode_choice: str | None = None,
    memory: Memory = None,
    static: Amounts = 0,
    copy_channels: Numbers | None = None,
    comm: Comm = 0,
    overlap: Overlap = None,
    order: str | None = None,
    chunks: Chunks | None = None,
    layers: Count | None = None,
    split: Split = "even",
    name: str = "",
    time_unit: str = "",
    memory_unit: str = "",
) -> MadeT:
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
        ``"split"``: B and W alone; ``"fused"``: BW alone; ``"either"``: free choice.
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
    return cast("MadeT", attached("warned")(attached("built")(locals())))


def placed(
    made: Callable[Concatenate[type[MadeT], Placement, P], MadeT], placement: Placement
) -> Callable[[Callable[..., Any]], Callable[Concatenate[type[MadeT], P], MadeT]]:
    """Give a constructor the parameters of :func:`make`, and what its docstring says of them."""

    def constructor(named: Callable[..., Any]) -> Callable[Concatenate[type[MadeT], P], MadeT]:
        @wraps(named)
        def of_class(cls: type[MadeT], *args: P.args, **given: P.kwargs) -> MadeT:
            return made(cls, placement, *args, **given)

        told = inspect.signature(made)
        kept = [one for key, one in told.parameters.items() if key != "placement"]
        said = told.replace(parameters=kept, return_annotation="Problem")
        of_class.__signature__ = said  # type: ignore[attr-defined]
        if named.__doc__ and made.__doc__:  # python -OO has none
            text = made.__doc__
            of_class.__doc__ = (
                f"{inspect.cleandoc(named.__doc__)}\n\n{text[text.index('Parameters') :]}"
            )
        return cast("Callable[Concatenate[type[MadeT], P], MadeT]", of_class)

    return constructor


class Building:
    """Constructors of :class:`pipesat.core.problem.Problem`, and copies of it that differ."""

    __slots__ = ()

    @classmethod
    @placed(make, "chain")
    def chain(cls) -> Any:
        """Make a problem with one stage per device, in a row."""

    @classmethod
    @placed(make, "loop")
    def loop(cls) -> Any:
        """Make a problem with ``chunks`` stages per device, stage s on device s mod p: interleaved.

        Costs are per stage, of which there are ``chunks`` times as many as devices.
        """

    @classmethod
    @placed(make, "vee")
    def vee(cls) -> Any:
        """Make a problem with two stages per device, through the devices and back: ZB-V, DualPipeV.

        Costs are per stage, of which there are twice as many as devices.
        """

    @classmethod
    @placed(make, "bidirectional")
    def two_routes(cls) -> Any:
        """Make a problem with two replicas of every stage, one per direction: DualPipe, Chimera.

        Costs are per stage, of which there are as many as devices. Every device holds two stages:
        ``static`` has to say so. Of an odd number of microbatches the first direction has one more;
        two entries in a list are one per direction, each a number or the list of a problem file.
        """

    @classmethod
    @public
    def from_stages(
        cls,
        stages: Sequence[Any],
        microbatches: Microbatches | None = None,
        *,
        devices: Microbatches | None = None,
        routes: Sequence[Mapping[str, Any]] | None = None,
        comm: int | Mapping[str, Any] = 0,
        overlap: Overlap = None,
        order: str | None = None,
        mode_choice: str | None = None,
        name: str = "",
        time_unit: str = "",
        memory_unit: str = "",
    ) -> Self:
        """Make a problem of stages that lie anywhere.

        Parameters
        ----------
        stages
            Each a :class:`pipesat.Stage`, or an entry of ``stages`` of a problem file.
        microbatches
            How many, or a list; ``None`` if ``routes`` say it.
        devices
            Each a :class:`pipesat.Device`, or an entry of ``devices``; a number of them without
            limits; ``None``: as many as the stages name.
        routes
            Entries of ``routes``: ``{"stages": [0, 1], "microbatches": 8}``; ``None``: one route
            through all stages in order.
        comm
            Delay of every link, or ``comm`` of a problem file.
        overlap, order, mode_choice, name, time_unit, memory_unit
            As in :meth:`chain`.

        Raises
        ------
        BadInput
            As for a problem file.
        """
        return cast("Self", attached("warned")(attached("from_parts")(locals())))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Make a problem of the document of a problem file (what ``json.loads`` returns).

        Raises
        ------
        BadInput
            As for a problem file.
        """
        return cast("Self", attached("warned")(attached("parse_problem")(document)))

    @classmethod
    @public
    def read(cls, path: str | Path) -> Self:
        """Read a problem file.

        Raises
        ------
        BadInput
            With the file, the path of the value, the value and what would be right.
        """
        return cast("Self", attached("warned")(attached("read_problem")(path)))

    @public
    def write(self, path: str | Path) -> None:
        """Write the problem file that says this.

        Raises
        ------
        BadInput
            If the file cannot be written.
        """
        attached("write_problem")(path, self)

    def _repr_html_(self) -> str:
        return str(attached("html_of_problem")(self))

    @public
    def with_memory(self, memory: Memory) -> Self:
        """Return the same problem with other capacities, static memory included.

        Parameters
        ----------
        memory
            One for all devices or one each, also as ``"40GiB"``; ``None``: unlimited;
            ``"1f1b*0.75"``: that share of 1F1B's peak, on top of each device's static memory.
        """
        return cast("Self", attached("changed")(self, memory=memory))

    @public
    def with_static(self, static: Amounts) -> Self:
        """Return the same problem with other static memory: one for all devices or one each."""
        return cast("Self", attached("changed")(self, static=static))

    @public
    def with_microbatches(self, microbatches: Microbatches, order: str | None = None) -> Self:
        """Return the same problem with other microbatches.

        Parameters
        ----------
        microbatches
            How many, of all routes together, or the list of a problem file. On several routes, a
            list has one entry per route, each a number or a list.
        order
            ``"given"``, ``"same"`` or ``"free"``, for a list alone.
        """
        return cast("Self", attached("changed")(self, microbatches=microbatches, order=order))

    @public
    def with_comm(self, comm: Comm) -> Self:
        """Return the same problem with other delays.

        Parameters
        ----------
        comm
            One for every link, one per link between neighbouring devices (whichever way and route),
            or ``comm`` of a problem file.
        """
        return cast("Self", attached("changed")(self, comm=comm))

    @public
    def with_backward(self, backward: Backward) -> Self:
        """Return the same problem whose stages run ``"split"``, ``"fused"`` or ``"either"``."""
        return cast("Self", attached("changed")(self, backward=backward))

    def with_overlap(self, overlap: Overlap) -> Self:
        """Return the same problem with other overlapped pairs; ``None``: without any."""
        return cast("Self", attached("changed")(self, overlap=overlap))

    @public
    def with_name(self, name: str) -> Self:
        """Return the same problem under another name."""
        return cast("Self", attached("changed")(self, name=name))
