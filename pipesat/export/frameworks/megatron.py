"""The placement alone, as Megatron-LM takes it: ``--pipeline-model-parallel-layout``.

Megatron-LM runs orders of its own, 1F1B or interleaved 1F1B; it has no way to load another one. Its
layout lists what every stage holds, stage by stage along the model, parted by ``|``: ``E`` the
embedding, ``t`` a transformer layer, ``L`` the loss. Stage s lies on rank s mod p.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesat.core.errors import NotApplicable
from pipesat.core.least import require_no_modes
from pipesat.core.problem import Problem
from pipesat.export.frameworks.options import Options
from pipesat.export.torch.loaders import loader_for
from pipesat.layers.layout import MegatronLayout
from pipesat.layers.megatron import CORE_VERSION, refusal


def megatron_notes(problem: Problem) -> Iterator[str]:
    """Yield what is not carried over, and the guard of Megatron-LM's that stops the run, if any."""
    p, m = len(problem.devices), problem.routes[0].microbatches
    refused = refusal(p, len(problem.stages) // p, m)
    yield (
        "Only the placement is carried over, NOT the order: Megatron-LM runs its own 1F1B "
        "(interleaved with several stages per rank) with whole backwards. The schedule's makespan "
        "does not hold there"
        + ("." if refused else f"; `pipesat show PROBLEM {_own(problem)}` says what does.")
    )
    yield (
        f"The number of microbatches, {m}, is not carried over either: it follows from "
        "--global-batch-size and --micro-batch-size. In a shell, quote the layout."
    )
    if refused:
        yield f"WARNING: {refused} (megatron-core {CORE_VERSION})."


def _own(problem: Problem) -> str:
    return "1f1b" if len(problem.stages) == len(problem.devices) else "interleaved-1f1b"


def megatron_arguments(problem: Problem, options: Options) -> str:
    """Return the command line arguments, one per line.

    Raises
    ------
    NotApplicable
        If there are several routes, the placement is no loop, or the layers are not known.
    BadInput
        If the layers do not fit the stages.
    """
    require_no_modes(problem, "this export")
    if len(problem.routes) > 1:
        raise NotApplicable(f"Megatron-LM runs one route, this problem has {len(problem.routes)}")
    loader = loader_for(problem)
    if loader.schedule_name not in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
        raise NotApplicable(
            "Megatron-LM places stages in a loop (stage s on rank s mod p, equally many per rank), "
            "this problem does not"
        )
    if len(problem.devices) == 1 < len(problem.stages):
        raise NotApplicable("Megatron-LM runs several stages per rank on two ranks or more only")
    layers = options.layers_of(problem)
    if layers is None:
        raise NotApplicable(
            "the layout says how many layers each stage has: give `layers`, or let pipesat advise "
            "--for megatron choose them"
        )
    stages = ["t" * count for count in layers]
    stages[0] = "E" + stages[0]
    stages[-1] += "L"
    layout = MegatronLayout(tuple(stages)).text
    return (
        f"--pipeline-model-parallel-size={len(problem.devices)}\n"
        f"--pipeline-model-parallel-layout={layout}\n"
    )
