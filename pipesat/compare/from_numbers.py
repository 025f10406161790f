"""A problem from costs of stages or layers, as somebody types them; lengths of microbatches too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

from pipesat.core.amounts import exactly, factor, share, whole_times
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, require
from pipesat.core.settings import (
    Amount,
    Chunks,
    Cost,
    Count,
    Devices,
    Microbatches,
    Placement,
    Slicing,
)
from pipesat.problem.building import Split, StageBackward
from pipesat.problem.geometry import Geometry, chunks_of
from pipesat.problem.lengths import microbatches_from_lengths, read_lengths, slices_from_lengths
from pipesat.problem.making import made
from pipesat.problem.ops import KINDS, Kind
from pipesat.problem.problem import Problem
from pipesat.problem.stated import warned

_PAIR_TIME: Final = re.compile(
    r"(?:(F|BW|B|W)\+(F|BW|B|W)=)?([0-9]{1,18}(?:\.[0-9]{1,9}|/[0-9]{1,18})?)"
)


_TIMES: Final = ("F", "B", "W", "BW", "link_delay")


@public
def problem_from_numbers(
    *,
    devices: Devices,
    F: Cost | Sequence[Cost],
    B: Cost | Sequence[Cost],
    W: Cost | Sequence[Cost],
    microbatches: Microbatches | None = None,
    lengths: Sequence[int] | Path | None = None,
    reference: Amount | None = None,
    quadratic: float | str = 0,
    tolerance: float | str = 0,
    order: Literal["given", "same", "free"] | None = None,
    slices: Count | None = None,
    slicing: Slicing = "tokens",
    BW: Cost | Sequence[Cost] | None = None,
    held_after_F: int | str | Sequence[int | str] = 0,
    held_after_B: int | str | Sequence[int | str] = 0,
    layers: Count | None = None,
    split: Split = "even",
    placement: Placement = "chain",
    chunks: Chunks | None = None,
    link_delay: Cost = 0,
    memory: int | str | Sequence[int | str] | None = None,
    static: int | str | Sequence[int | str] = 0,
    backward: StageBackward = "either",
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
    F
        Forward time.
    B
        Time of the backward for the input gradient.
    W
        Time of the backward for the weight gradient.
    microbatches
        How many, of both directions together; ``None``: of ``lengths``.
    lengths
        Microbatches that differ, a length each, none waits for another. A file has a JSON list or
        one per line.
    reference
        Length that the costs are of.
    quadratic
        Share of the time that grows with the square of the length, as attention's.
    tolerance
        Lengths whose factors differ by less become one class.
    order
        Order of microbatches that differ: as given, the same on every stage, or free.
    slices
        How many microbatches are one sequence. ``lengths`` are of whole sequences then.
    slicing
        Whether the slices of a length have equally many tokens, or take equally long.
    BW
        Time of both backwards in one op; ``None``: B + W.
    held_after_F
        Memory from F to the end of B.
    held_after_B
        Memory from B to the end of W.
    layers
        Costs are those of so many layers.
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
    time_unit
        Of all times: us, ms, s. With decimals, the file has the next finer one that has none.
    memory_unit
        Of all memory amounts: MiB, GiB. Amounts as 2.4GiB need none.
    """
    given = dict(locals())
    listed = _listed(lengths, reference, quadratic, tolerance, order, microbatches, slices, slicing)
    require(
        not listed or placement != "bidirectional",
        "not with a bidirectional `placement`",
        where="lengths",
    )
    laps = chunks_of(placement, chunks)
    pairs = _pairs(pair_time, Geometry(placement, devices, laps).homes)
    several = {key: given[key] for key in _TIMES if given[key] is not None}
    times = {
        key: [*map(exactly, value if isinstance(value, Iterable) else [value])]
        for key, value in several.items()
    }
    times["pair_time"] = [one["time"] for one in pairs if "time" in one]
    scale, given["time_unit"] = whole_times(times, time_unit)
    for key, value in several.items():
        found = [int(scale * one) for one in times[key]]
        given[key] = found if isinstance(value, Iterable) else found[0]
    pairs = [one | {"time": int(scale * one["time"])} if "time" in one else one for one in pairs]
    pairing: dict[str, Any] = {} if overlap is None else {"FB": factor("overlap", overlap)}
    pairing |= {"pairs": pairs} if pairs else {}
    given |= {"microbatches": listed or microbatches, "comm": given["link_delay"]}
    given |= {"overlap": pairing or None}
    return warned(made(given))


def _listed(
    lengths: Sequence[int] | Path | None,
    reference: int | None,
    quadratic: float | str,
    tolerance: float | str,
    order: str | None,
    microbatches: int | None,
    slices: int | None,
    slicing: Slicing,
) -> list[dict[str, Any]]:
    """Return the list of microbatches that lengths make; empty without any."""
    if (lengths is None) == (microbatches is None):
        both = "" if lengths is None else ", not both"
        raise BadInput(f"expected it, or `lengths`{both}", where="microbatches")
    q, slack = share("quadratic", quadratic), share("tolerance", tolerance, 1000)
    require(
        lengths is not None or (reference is None and order is None and not q and not slack),
        "`reference`, `quadratic`, `tolerance` and `order` go with it",
        where="lengths",
    )
    require(
        slicing == "tokens" or (lengths is not None and slices is not None),
        "only with `slices` of `lengths`",
        where="slicing",
        value=slicing,
    )
    if lengths is None:
        return []
    if reference is None:
        raise BadInput("expected the length that the costs are of", where="reference")
    source = str(lengths) if isinstance(lengths, Path) else "lengths"
    values = read_lengths(lengths) if isinstance(lengths, Path) else lengths
    if slices is not None:
        require(not slack, "slices are classes of their own", where="tolerance", value=tolerance)
        return slices_from_lengths(values, reference, q, slices, slicing, source)
    return microbatches_from_lengths(values, reference, q, slack, source)


def _pairs(texts: Sequence[str], homes: Sequence[int]) -> list[dict[str, Any]]:
    """Read ``F+BW=129``, or ``129`` for these two kinds: an entry for every two stages of a device.

    ``F+BW=3/4`` is a factor of what the two take alone. A stage is combined with itself, too.
    """
    found: dict[tuple[Kind, Kind], dict[str, Any]] = {}
    for text in texts:
        match = _PAIR_TIME.fullmatch(text)
        if match is None:
            raise BadInput(
                "expected KIND+KIND=TIME or =NUM/DEN, kinds of F, B, W and BW, as in F+BW=129",
                where="pair_time",
                value=text,
            )
        named = [kind for kind in KINDS if kind in (match[1] or "F", match[2] or "BW")]
        kinds = named[0], named[-1]
        require(
            kinds not in found,
            f"expected each combination once, but {kinds[0]}+{kinds[1]} is there already",
            where="pair_time",
            value=text,
        )
        num, slash, den = match[3].partition("/")
        found[kinds] = {"factor": [int(num), int(den)]} if slash else {"time": Fraction(num)}
    return [
        {"ops": [f"{stage}{one}", f"{other}{two}"]} | said
        for (one, two), said in found.items()
        for stage, other in product(range(len(homes)), repeat=2)
        if homes[stage] == homes[other] and (one != two or stage <= other)
    ]
