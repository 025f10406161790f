"""Times of ops and pairs put into a problem that has everything else."""

from __future__ import annotations

from pipesat.core.errors import BadInput
from pipesat.core.problem import Problem
from pipesat.files.changed import changed_problem
from pipesat.parts.answer import PairTimes
from pipesat.parts.parts import Parts


def require_same_stages(parts: Parts, problem: Problem) -> None:
    """Pass if a problem has the stages of the parts, on the same devices.

    Raises
    ------
    BadInput
        If the problem has other stages, or another time unit.
    """
    if len(problem.stages) != len(parts.stages):
        raise BadInput(
            f"{len(problem.stages)} stages, expected {len(parts.stages)}, as {parts.source} has",
            where="stages",
        )
    for number, (stage, device) in enumerate(zip(problem.stages, parts.devices, strict=True)):
        if stage.device != device:
            raise BadInput(
                f"expected {device}, as {parts.source} has",
                where=f"stages[{number}].device",
                value=stage.device,
            )
    if problem.time_unit and parts.time_unit and problem.time_unit != parts.time_unit:
        raise BadInput(
            f'expected "{parts.time_unit}", as {parts.source} has',
            where="time_unit",
            value=problem.time_unit,
        )


def into_problem(found: PairTimes, problem: Problem) -> Problem:
    """Return a problem with F, B, W, BW and ``overlap`` as the parts have them.

    All else stays: memory, links, microbatches, names. A factor ``FB`` that the problem had goes:
    it would let ops pair that the parts do not show to save anything. The stages are the parts'
    (:func:`require_same_stages`).

    Raises
    ------
    BadInput
        If a time is more than a problem file may have, or the problem has what does not go with
        listed pairs.
    """
    times = found.document()
    return changed_problem(
        problem,
        f"problem with the times of {found.parts.source}",
        stages=times["stages"],
        time_unit=found.parts.time_unit or problem.document.get("time_unit"),
        overlap=times["overlap"] if times["overlap"]["pairs"] else None,
    )
