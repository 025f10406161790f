"""A stage's amounts: its own, those of a memory mode, and those of a class of microbatches."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from typing import Any, Final, TypeAlias

from pipesat.problem.building import Backward, StageBackward

Factor: TypeAlias = tuple[int, int]
"""Numerator and denominator; what is multiplied by it is rounded up."""

KEEP: Final = "keep"
"""Name of mode 0: a stage's own amounts."""

ONE: Final[Factor] = (1, 1)
FACTORS: Final = ("time", "held", "comm")
"""What a class of microbatches scales: all times, all held amounts, all delays."""

Keys: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts that are stated: each key with its value."""

_TIME: Final = {"factor": "time"}
_MEMORY: Final = {"factor": "held"}
_ALONE: Final = {"factor": "held", "alone": "of stages, and of no layer"}


@dataclass(frozen=True, slots=True)
class Offload:
    """What a mode copies to the host and back: times of both copies, and what stays on the device.

    ``time_in`` and ``time_out`` are in time units, ``held`` in memory units.
    """

    time_out: int
    time_in: int
    held: int


@dataclass(frozen=True, slots=True)
class Mode:
    """Another way to run a stage: ``stated`` are the keys that differ, ``offload`` its copies."""

    name: str
    stated: Keys = ()
    backward: Backward | None = None
    offload: Offload | None = None

    @property
    def entry(self) -> dict[str, object]:
        """The mode as an entry of ``modes`` of a problem file."""
        entry: dict[str, object] = {"name": self.name, **dict(self.stated)}
        if self.backward is not None:
            entry["backward"] = self.backward
        if self.offload is not None:
            out, back, held = self.offload.time_out, self.offload.time_in, self.offload.held
            entry["offload"] = {"out": out, "in": back, "held": held}
        return entry


@dataclass(frozen=True, slots=True)
class MicrobatchClass:
    """Microbatches that are alike.

    Factors on all times, all held amounts and all delays; ``outright`` are ``(stage, amounts)``
    that are stated instead of scaled, ``delays`` likewise ``(stage, (F, B))`` of the links behind
    stages (no file states these: a microbatch of several sequences has the sum of theirs). ``idle``
    are those amounts of stages that say nothing, as :class:`Stage` has them.
    """

    name: str
    time: Factor = ONE
    held: Factor = ONE
    comm: Factor = ONE
    outright: tuple[tuple[int, Keys], ...] = ()
    delays: tuple[tuple[int, tuple[int, int]], ...] = ()
    idle: tuple[tuple[int, Keys], ...] = field(default=(), compare=False, repr=False)

    @property
    def entry(self) -> dict[str, Any]:
        """What the first entry of a list in a problem file says of it, without ``count``."""
        factors = {key: [*factor] for key in FACTORS if (factor := getattr(self, key)) != ONE}
        idle = dict(self.idle)
        stages = {str(s): dict(keys) | dict(idle.get(s, ())) for s, keys in self.outright}
        return {"name": self.name} | factors | ({"stages": stages} if stages else {})

    @property
    def effect(self) -> object:
        """All but the name: equal for two classes whose amounts are the same everywhere."""
        return self.time, self.held, self.comm, self.outright, self.delays


@dataclass(frozen=True, slots=True)
class Stage:
    """A contiguous slice of the model: times in time units, held amounts in memory units.

    ``BW`` is B + W unless given; ``sums`` says that no one gave it. ``offload`` is there in the
    amounts of a microbatch that runs in such a mode, never in a stage's own. ``idle`` are amounts
    that were stated and say nothing: a file has them, no schedule depends on them.
    """

    device: int
    F: int = field(metadata=_TIME)
    B: int = field(metadata=_TIME)
    W: int = field(metadata=_TIME)
    BW: int = field(default=None, metadata=_TIME)  # type: ignore[assignment]  # summed below
    held_after_F: int = field(default=0, metadata=_MEMORY)
    held_after_B: int = field(default=0, metadata=_MEMORY)
    backward: StageBackward = "either"
    held_in_backward: int = field(default=0, metadata=_ALONE)
    modes: tuple[Mode, ...] = ()
    offload: Offload | None = None
    idle: Keys = field(default=(), compare=False, repr=False)
    sums: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        total = self.B + self.W
        object.__setattr__(self, "sums", self.BW is None or (self.sums and total == self.BW))
        if self.BW is None:
            object.__setattr__(self, "BW", total)

    @property
    def more(self) -> list[str]:
        """Which of :data:`MORE` it states."""
        return [key for key in MORE if getattr(self, key)]

    @property
    def entry(self) -> dict[str, Any]:
        """The stage as an entry of ``stages`` of a problem file, without what is by default."""
        entry: dict[str, Any] = {"device": self.device}
        entry |= {key: getattr(self, key) for key in COSTS}
        if self.sums:
            del entry["BW"]
        if not (self.held_after_F or self.held_after_B):
            del entry["held_after_F"], entry["held_after_B"]
        if self.backward != "either":
            entry["backward"] = self.backward
        entry |= {key: getattr(self, key) for key in self.more} | dict(self.idle)
        modes = [getattr(mode, "entry", mode) for mode in self.modes]  # or as in a file
        return entry | ({"modes": modes} if modes else {})

    @property
    def has_backward(self) -> bool:
        """Whether it runs more than F."""
        return self.backward != "none"

    @property
    def may_split(self) -> bool:
        """Whether B and W may run apart."""
        return self.backward in ("split", "either")

    @property
    def may_ever_split(self) -> bool:
        """Whether B and W may run apart in some mode."""
        modes = (mode.backward in ("split", "either") for mode in self.modes)
        return self.may_split or (self.has_backward and any(modes))

    @property
    def may_fuse(self) -> bool:
        """Whether the classic full backward BW may run."""
        return self.backward in ("fused", "either")

    @property
    def fusing_may_pay(self) -> bool:
        """Whether BW can ever be the better choice.

        Where ``BW >= B + W`` and ``held_after_B <= held_after_F``, a split backward dominates: B
        and W in a row take no longer and hold no more.
        """
        return self.may_fuse and (
            not self.may_split or self.BW < self.B + self.W or self.held_after_B > self.held_after_F
        )

    @property
    def shortest_backward(self) -> int:
        """Least time from the start of the backward to the input gradient."""
        return self._least(self.B, self.BW)

    @property
    def least_backward_work(self) -> int:
        """Least compute time that the whole backward of a microbatch takes."""
        return self._least(self.B + self.W, self.BW)

    def _least(self, split: int, fused: int) -> int:
        if not self.has_backward:
            return 0
        if not self.may_fuse:
            return split
        return min(split, fused) if self.may_split else fused


_FIELDS: Final = [one for one in fields(Stage) if one.metadata]
COSTS: Final = {one.name: one.metadata["factor"] for one in _FIELDS if "alone" not in one.metadata}
"""What a layer costs, and a stage the sum of its layers; which factor of a class scales each."""
MORE: Final = {one.name: one.metadata["factor"] for one in _FIELDS if "alone" in one.metadata}
"""Amounts that are of stages alone, and 0 in a plain problem and in the least one."""
AMOUNTS: Final[dict[str, str]] = COSTS | MORE
"""All amounts of a stage: those of its fields that say which factor scales them."""
HELD: Final = tuple(key for key, factor in AMOUNTS.items() if factor == "held")
"""Those that are memory, in memory units; the others are times."""


def scaled(amount: int, factor: Factor) -> int:
    """Return ``amount * num / den``, rounded up."""
    return -(-amount * factor[0] // factor[1])


def stated_amounts(stage: Stage, mode: Mode | None) -> dict[str, Any]:
    """Return what a stage and a mode of it state, unscaled.

    BW is missing where it is a sum: where neither states it, or the mode states B or W alone.
    """
    stated = {key: getattr(stage, key) for key in AMOUNTS}
    if stage.sums:
        del stated["BW"]
    if mode is not None:
        own = dict(mode.stated)
        if "B" in own or "W" in own:
            stated.pop("BW", None)
        stated |= own
    return stated


def resulting_amounts(
    stage: Stage, mode: Mode | None, of_class: MicrobatchClass | None, number: int
) -> Stage:
    """Return a stage's amounts in one mode for one class of microbatches.

    Parameters
    ----------
    mode
        ``None``: keep.
    of_class
        ``None``: microbatches that do not differ.
    number
        The stage's number: which of the class's outright amounts are its own.
    """
    stated = stated_amounts(stage, mode)
    offload = None if mode is None else mode.offload
    if of_class is not None:
        stated = {key: scaled(stated[key], getattr(of_class, AMOUNTS[key])) for key in stated}
        stated |= dict(dict(of_class.outright).get(number, ()))
        if offload is not None:
            offload = Offload(*(scaled(part, of_class.held) for part in astuple(offload)))
    backward = stage.backward
    if mode is not None and mode.backward is not None and stage.has_backward:
        backward = mode.backward
    return Stage(device=stage.device, backward=backward, offload=offload, **stated)
