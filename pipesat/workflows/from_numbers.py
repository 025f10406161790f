"""A problem from costs of stages or layers, as somebody types them; lengths of microbatches too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pipesat.core.amounts import share
from pipesat.core.arguments import public
from pipesat.core.building import Backward
from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind
from pipesat.core.problem import Problem
from pipesat.core.settings import Amount, Chunks, Count, Devices, Microbatches
from pipesat.placement.documents import CapacityChoice, Setting, Split, TimeOrFactor, placed
from pipesat.placement.from_numbers import (
    costs_of,
    in_memory_units,
    share_of_1f1b,
    stages_of,
)
from pipesat.placement.geometry import CHUNKS, Placement
from pipesat.placement.lengths import microbatches_from_lengths, read_lengths

_PAIR_TIME: Final = re.compile(r"(?:(F|BW|B|W)\+(F|BW|B|W)=)?([0-9]{1,18})(?:/([0-9]{1,18}))?")
_RATIO: Final = re.compile(r"([0-9]{1,13})/([0-9]{1,13})")


@public
def problem_from_numbers(
    *,
    devices: Devices,
    F: Amount | Sequence[Amount],
    B: Amount | Sequence[Amount],
    W: Amount | Sequence[Amount],
    microbatches: Microbatches | None = None,
    lengths: Sequence[int] | Path | None = None,
    reference: Amount | None = None,
    quadratic: float | str = 0,
    tolerance: float | str = 0,
    order: Literal["given", "same", "free"] | None = None,
    BW: Amount | Sequence[Amount] | None = None,
    held_after_F: int | str | Sequence[int | str] = 0,
    held_after_B: int | str | Sequence[int | str] = 0,
    layers: Count | None = None,
    split: Split = "even",
    placement: Placement = "chain",
    chunks: Chunks | None = None,
    link_delay: Amount = 0,
    memory: int | str | Sequence[int | str] | None = None,
    static: int | str | Sequence[int | str] = 0,
    backward: Backward = "either",
    overlap: str | None = None,
    pair_time: Sequence[str] = (),
    name: str = "",
    time_unit: str = "",
    memory_unit: str = "",
) -> Problem:
    """Make a problem of costs of stages, or of layers.

    A cost is one number for every stage (with ``layers``: for every layer), or a list with one
    each. Lists that are longer than there are stages are of layers.

    Parameters
    ----------
    devices
        Pipeline ranks.
    F
        Forward time.
    B
        Time of the backward for the input gradient.
    W
        Time of the backward for the weight gradient.
    microbatches
        How many, of both directions together; ``None``: of ``lengths``.
    lengths
        Microbatches that differ: a length each. A file has a JSON list or one per line.
    reference
        Length that the costs are of.
    quadratic
        Share of the time that grows with the square of the length, as attention's.
    tolerance
        Lengths whose factors differ by less become one class.
    order
        Order of microbatches that differ: as given, the same on every stage, or free.
    BW
        Time of both backwards in one op; ``None``: B + W.
    held_after_F
        Memory from F to the end of B.
    held_after_B
        Memory from B to the end of W.
    layers
        Costs are those of so many layers.
    split
        Layers per stage: equally many, or so that times balance.
    placement
        Where the stages lie.
    chunks
        Stages per device of a loop; ``None``: 2.
    link_delay
        Delay of every link.
    memory
        Capacity, one for all devices or one each. 1f1b*0.75 is that share of 1F1B's peak; ``None``:
        unlimited.
    static
        Memory that is always taken, as ``memory``.
    backward
        Which backwards may run.
    overlap
        Allow pairs of F and BW, which take NUM/DEN of both.
    pair_time
        Time of a pair of two kinds on one device, F+BW unless named, or NUM/DEN of what they take
        alone.
    name
        For tables and pictures.
    time_unit
        Of all times: us, ms, s.
    memory_unit
        Of all memory amounts: MiB, GiB.
    """
    from pipesat.files.problem_file import parse_problem

    listed = _listed(lengths, reference, quadratic, tolerance, order, microbatches)
    if listed and (placement == "bidirectional" or str(memory).lower().startswith("1f1b")):
        what = "a bidirectional placement" if placement == "bidirectional" else "a share of 1F1B's"
        raise BadInput(f"{what} needs microbatches that are alike", where="lengths")
    if chunks is not None and placement != "loop":
        raise BadInput("only a loop has a choice: `placement` loop", where="chunks", value=chunks)
    costs = {"F": F, "B": B, "W": W} | ({} if BW is None else {"BW": BW})
    held = {"held_after_F": held_after_F, "held_after_B": held_after_B}
    amounts = in_memory_units(held | {"static": static, "memory": memory}, memory_unit)
    setting = Setting(
        devices=devices,
        microbatches=microbatches or sum(entry["count"] for entry in listed),
        comm=link_delay,
        memory=_capacity(amounts["memory"]),
        static=amounts["static"],
        backward=backward,
        overlap=None if overlap is None else _ratio(overlap),
        pair_times=_pair_times(pair_time),
        name=name,
        time_unit=time_unit,
        memory_unit=memory_unit,
    )
    laps = chunks or CHUNKS
    stages = stages_of(placement, devices, laps)
    each = costs_of(costs | {key: amounts[key] for key in held}, layers, stages)
    if len(each) < stages:
        text = f"expected a number for all {stages} stages, {stages}, or more, one per layer"
        where = next((key for key in costs if isinstance(costs[key], Sequence)), "layers")
        raise BadInput(text, where="layers" if layers else where, value=len(each))
    document = placed(each, setting, placement, laps, split)
    if listed:
        document["microbatches"] = listed
    if order is not None:
        document["order"] = order
    return parse_problem(document, "problem new")


def _listed(
    lengths: Sequence[int] | Path | None,
    reference: int | None,
    quadratic: float | str,
    tolerance: float | str,
    order: str | None,
    microbatches: int | None,
) -> list[dict[str, Any]]:
    """Return the list of microbatches that lengths make; empty without any."""
    if (lengths is None) == (microbatches is None):
        both = "" if lengths is None else ", not both"
        raise BadInput(f"expected it, or `lengths`{both}", where="microbatches")
    q, slack = share("quadratic", quadratic), share("tolerance", tolerance, 1000)
    if lengths is None:
        if reference is not None or order is not None or q or slack:
            text = "`reference`, `quadratic`, `tolerance` and `order` go with it"
            raise BadInput(text, where="lengths")
        return []
    if reference is None:
        raise BadInput("expected the length that the costs are of", where="reference")
    source = str(lengths) if isinstance(lengths, Path) else "lengths"
    values = read_lengths(lengths) if isinstance(lengths, Path) else lengths
    return microbatches_from_lengths(values, reference, q, slack, source)


def _capacity(given: Any) -> CapacityChoice:
    capacity: CapacityChoice = share_of_1f1b(given) if isinstance(given, str) else given
    return capacity


def _ratio(text: str) -> tuple[int, int]:
    """Read ``3/4``."""
    match = _RATIO.fullmatch(text)
    if match is None:
        raise BadInput("expected NUM/DEN, as in 3/4", where="overlap", value=text)
    return int(match[1]), int(match[2])


def _pair_times(texts: Sequence[str]) -> dict[tuple[Kind, Kind], TimeOrFactor]:
    """Read ``F+BW=129``, or ``129`` for these two kinds, each two kinds at most once.

    ``F+BW=3/4`` is a factor of what the two take alone.
    """
    found: dict[tuple[Kind, Kind], TimeOrFactor] = {}
    for text in texts:
        match = _PAIR_TIME.fullmatch(text)
        if match is None:
            expected = (
                "expected KIND+KIND=TIME or =NUM/DEN, kinds of F, B, W and BW, as in F+BW=129"
            )
            raise BadInput(expected, where="pair_time", value=text)
        named = [kind for kind in KINDS if kind in (match[1] or "F", match[2] or "BW")]
        kinds = named[0], named[-1]
        if kinds in found:
            expected = f"expected each combination once; {kinds[0]}+{kinds[1]} is there already"
            raise BadInput(expected, where="pair_time", value=text)
        found[kinds] = int(match[3]) if match[4] is None else (int(match[3]), int(match[4]))
    return found
