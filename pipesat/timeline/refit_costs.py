"""What measured times make of a stage's costs and of the links, for a problem document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind
from pipesat.core.problem import Problem, Stage
from pipesat.files.values import MOST


def costs_of(
    name: str, stage: Stage, seen: Mapping[Kind, float], notes: list[str]
) -> dict[str, int]:
    """Return F, B, W and BW of a stage, in whole units; ``seen`` are those that ran.

    Of a backward that did not run in both forms, the other form changes in proportion.
    """
    new: dict[Kind, float] = {"F": stage.F, "B": stage.B, "W": stage.W, "BW": stage.BW, **seen}
    if "BW" not in seen and stage.B + stage.W:
        new["BW"] = stage.BW * (new["B"] + new["W"]) / (stage.B + stage.W)
    if "B" not in seen:
        ratio = new["BW"] / stage.BW if stage.BW else 1.0
        new["B"], new["W"] = stage.B * ratio, stage.W * ratio
        if stage.may_split:
            notes.append(f"{name} ran no B and W apart: scaled like its BW")
    elif "BW" not in seen and stage.may_fuse:
        notes.append(f"{name} ran no BW: scaled like its B + W")
    return {kind: units(value, f"{name}: {kind}") for kind, value in new.items()}


def edges_of(
    problem: Problem, delays: Mapping[tuple[int, int], float], notes: list[str]
) -> dict[str, Any]:
    """Return ``comm`` with new delays, by sending and receiving stage; others stay."""
    edges, unseen = [], []
    for (a, b), link in problem.links.items():
        edge: dict[str, int] = {"src": a, "dst": b, "F": link.F, "B": link.B}
        for name, hop in (("F", (a, b)), ("B", (b, a))):
            if hop in delays:
                edge[name] = units(delays[hop], f"comm {hop[0]} -> {hop[1]}")
            else:
                unseen.append(f"{hop[0]} -> {hop[1]}")
        edges.append(edge)
    if unseen:
        notes.append(f"no op waited for {', '.join(unseen)}: delays as they were")
    default = dict(problem.document.get("comm", {})).get("default", 0)
    return {"default": default, "edges": edges}


def units(value: float, where: str) -> int:
    """Round a time to whole units.

    Raises
    ------
    BadInput
        If it does not fit into a problem file.
    """
    if value > MOST:
        raise BadInput("more than 10^12 time units", where=where, value=value)
    return round(value)
