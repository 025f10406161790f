"""A problem reduced to what torch can run, so that its optimum is optimal for what will run."""

from __future__ import annotations

from pipesat.core.errors import NotApplicable
from pipesat.core.least import require_no_modes
from pipesat.core.ops import parse_kind
from pipesat.core.problem import Problem
from pipesat.export.torch.adapt import require_torch_pipeline
from pipesat.files.changed import changed_problem


def restricted_to_torch(problem: Problem) -> Problem:
    """Return the problem with the first stage's backward fused, and pairs of F and BW alone.

    Every schedule of the result is one of the problem, and is exported without a loss (microbatch
    order costs nothing: docs/model.md).

    Raises
    ------
    NotApplicable
        If torch cannot run such a pipeline, or the problem forbids what torch does.
    """
    require_no_modes(problem, "the target torch")
    require_torch_pipeline(problem)
    first = problem.routes[0].stages[0]
    if not problem.stages[first].may_fuse:
        raise NotApplicable(
            f'stage {first} says "backward": "split", but torch runs the first stage\'s backward '
            'whole: say "either" or "fused"'
        )
    stages = [{"backward": "fused"} if s == first else {} for s in range(len(problem.stages))]
    overlap = problem.document.get("overlap")
    if overlap is not None and "pairs" in overlap:
        kept = [entry for entry in overlap["pairs"] if _torch_has(entry["ops"])]
        overlap = {**overlap, "pairs": kept}
    return changed_problem(problem, stages=stages, overlap=overlap)


def _torch_has(kinds: list[str]) -> bool:
    return sorted(parse_kind(text)[1] for text in kinds) == ["BW", "F"]
