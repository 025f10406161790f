"""What a problem states and perhaps does not mean: where, and the value.

Remarks are due where BW is longer than B + W or shorter than B and the backward may be either;
where held_after_B is above held_after_F of a stage whose backwards are whole; where devices have a
capacity and nothing is held; where every stage's backwards take no time, in a pipeline that then
ends with them. A backward that is fused has a BW of its own: nothing is split away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]

_HELD = ("held_after_F", "held_after_B", "held_in_backward")


def place(path: str) -> Place:
    """A path such as ``stages[0].modes[1].BW``, or with dots alone, as words and numbers."""
    words = re.findall(r"[A-Za-z_]+|\d+", path)
    return tuple(int(word) if word.isdecimal() else word for word in words)


def remarkable(document: dict[str, Any]) -> dict[Place, int]:
    """Every (place, value) that one remark is due for, but for those of a whole problem."""
    found: dict[Place, int] = {}
    for where, amounts, stated in _amounts(document):
        B, W, BW = amounts["B"], amounts["W"], amounts.get("BW")
        kind = amounts.get("backward", "either")
        if "BW" in stated and kind == "either" and BW is not None and not B <= BW <= B + W:
            found[*where, "BW"] = BW
        held = amounts.get("held_after_B", 0)
        above = held > amounts.get("held_after_F", 0)
        if kind == "fused" and above and {"held_after_B", "held_after_F"} & stated:
            found[*where, "held_after_B"] = held
    return found


def _amounts(document: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any], set[str]]]:
    """Yield where amounts are stated, what is true there, and the keys stated there."""
    for number, stage in enumerate(document["stages"]):
        yield ("stages", number), stage, set(stage)
        for k, mode in enumerate(stage.get("modes", [])):
            own = stage | mode
            if "BW" not in mode and ("B" in mode or "W" in mode):
                own = own | {"BW": own["B"] + own["W"]}
            yield ("stages", number, "modes", k), own, set(mode)
    classes = document.get("microbatches", 1)
    for k, entry in enumerate([] if isinstance(classes, int) else classes):
        for number, given in entry.get("stages", {}).items():
            stage = document["stages"][int(number)]
            yield ("microbatches", k, "stages", int(number)), stage | given, set(given)


def caps_nothing(document: dict[str, Any]) -> bool:
    """Whether there is a capacity, and nothing is held anywhere."""
    capped = any(device.get("memory") is not None for device in document["devices"])
    return capped and not any(
        amounts.get(key) for _, amounts, _ in _amounts(document) for key in _HELD
    )


def ends_in_nothing(document: dict[str, Any]) -> bool | None:
    """Whether a pipeline lasts until backwards that take no time; ``None`` if some stages do.

    A single stage runs such a backward as its F ends.
    """
    kinds, stages = ("B", "W", "BW"), document["stages"]
    takes = {any(stage.get(kind, 0) for kind in kinds) for stage in stages}
    if len(takes) == 2 and len(stages) > 1:
        return None
    return takes == {False} and len(stages) > 1


def false_remarks(document: dict[str, Any], said: Any) -> Iterator[str]:
    """Hold the remarks of an answer against what is stated."""
    if not isinstance(said, list) or any(set(one) != {"path", "value", "text"} for one in said):
        yield f"remarks are {said}, expected a list of path, value, text"
        return
    due, places = remarkable(document), [(place(one["path"]), one["value"]) for one in said]
    for where, value in due.items():
        if places.count((where, value)) != 1:
            yield f"{where} is {value}: {places.count((where, value))} remarks, said {places}"
    rest = [where for where, value in places if due.get(where) != value]
    nothing, frozen = ends_in_nothing(document), "backwards that take no time"
    may = {frozen} if nothing is None else set()
    for is_due, words, name in (
        (caps_nothing(document), {"memory"}, "a capacity where nothing is held"),
        (nothing, {"B", "BW", "backward"}, frozen),
    ):
        own = [where for where in rest if where[-1] in words and where[0] in ("devices", "stages")]
        rest = [where for where in rest if where not in own]
        if name in may or is_due == bool(own):
            continue
        yield f"{name}: {'no remark' if is_due else f'a remark at {own}, though there is none'}"
    other = [where for where in rest if where[-1] in ("BW", "held_after_B")]
    yield from (f"a remark at {where}, where nothing is due" for where in other)
