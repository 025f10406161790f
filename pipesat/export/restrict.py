"""A problem reduced to what a runtime can run, so that its optimum is optimal for what will run."""

from __future__ import annotations

from pipesat.core.errors import NotApplicable
from pipesat.core.least import require_no_modes
from pipesat.core.ops import parse_kind
from pipesat.core.problem import Problem
from pipesat.export.runtimes import Runtime
from pipesat.files.changed import changed_problem


def restricted(problem: Problem, runtime: Runtime) -> Problem:
    """Return the problem with what a runtime cannot run ruled out.

    Every schedule of the result is one of the problem, and is exported without a loss (for the
    order of microbatches that are alike, docs/proofs/model.md).

    Raises
    ------
    NotApplicable
        If it cannot run such a pipeline, or the problem forbids what it does.
    """
    require_no_modes(problem, f"the target {runtime.name}")
    runtime.require(problem)
    first = problem.routes[0].stages[0]
    if runtime.first_whole and not problem.stages[first].may_fuse:
        raise NotApplicable(
            f'stage {first} says "backward": "split", but {runtime.title} runs the first stage\'s '
            'backward whole: say "either" or "fused"'
        )
    if runtime.number_order and not problem.alike and problem.order == "free":
        raise NotApplicable(
            f"{runtime.title} runs microbatches in one order, and these differ: say "
            '"order": "same" or "given"'
        )
    if runtime.all_or_none:
        _require_one_way(problem, first, runtime)
    own = {"backward": "fused"} if runtime.first_whole else {}
    stages = [own if s == first else {} for s in range(len(problem.stages))]
    return with_pairs_of(changed_problem(problem, stages=stages), runtime)


def with_pairs_of(problem: Problem, runtime: Runtime) -> Problem:
    """Return the problem with those pairs alone that a runtime runs as one."""
    overlap = problem.document.get("overlap")
    if overlap is None or runtime.pairs is None:
        return problem
    if "FB" in overlap and not runtime.runs_pair("BW", "F"):
        overlap = {key: value for key, value in overlap.items() if key != "FB"}
    if "pairs" in overlap:
        kept = [
            entry
            for entry in overlap["pairs"]
            if runtime.runs_pair(*(parse_kind(text)[1] for text in entry["ops"]))
        ]
        overlap = {**overlap, "pairs": kept}
    return changed_problem(problem, overlap=overlap or None)


def _require_one_way(problem: Problem, first: int, runtime: Runtime) -> None:
    """Pass if all other backwards are split, or whole, or splitting a whole one costs nothing."""
    others = [stage for s, stage in enumerate(problem.stages) if s != first]
    if not any(stage.may_split for stage in others) or not any(stage.may_fuse for stage in others):
        return
    free = problem.plain and all(
        stage.may_split
        and stage.may_fuse
        and stage.BW >= stage.B + stage.W
        and stage.held_after_B <= stage.held_after_F
        for stage in others
    )
    if not free:
        raise NotApplicable(
            f"{runtime.title} splits all backwards or none, and here neither is always better: say "
            '"backward": "split" or "backward": "fused" in every stage but the first, and solve '
            "both"
        )
