"""The schedule as NeMo AutoModel takes it: the ``distributed`` section of a recipe, in YAML.

Its ``PipelineConfig`` takes the order from a CSV, and the placement from the schedule's name, which
must be one that torch knows; the number of microbatches is ``pp_batch_size / pp_microbatch_size``.
Every value is written as JSON, which YAML reads as it is.
"""

from __future__ import annotations

import json
from typing import Final

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.export.options import (
    Options,
    cut_of,
    module_names,
)
from pipesat.export.torch.hazards import Split
from pipesat.export.torch.target import framework

NAME = "NeMo AutoModel"
VERSION: Final = "0.7.0"
TORCH: Final = "runs with torch 2.13: its schedule builder was tried there"


def automodel_files(
    problem: Problem, options: Options, split: Split
) -> tuple[dict[str, str], list[str]]:
    """Return the fragment, ``.yaml``, for an order that splits these backwards.

    And the version that it is for, and the recipes' guard that stops the run, if any.
    """
    name, layers = cut_of(problem, options, NAME)
    if layers is not None and 0 in layers:
        stage = layers.index(0)
        raise NotApplicable(f"{NAME} wants a transformer layer on every stage, {stage} has none")
    ranks, m = len(problem.devices), problem.routes[0].microbatches
    told = [f"written for {NAME} {VERSION}, which {TORCH}"]
    if m < ranks:
        least = f"its recipes want at least {ranks} microbatches, one per rank, here are {m}"
        told.append(f"WARNING: {least}")
    lines = [
        f"# From pipesat, problem {problem.sha256[:12]}. Read the .hazards.txt beside it.",
        f"# For {NAME} {VERSION}. It {TORCH}.",
        *options.comments,
        "# Recipes set pp_batch_size themselves, to step_scheduler.local_batch_size: make that",
        f"# {m} times pp_microbatch_size too.",
        "distributed:",
        f"  strategy: {_text('fsdp2')}",
        f"  pp_size: {ranks}",
    ]
    if split.any:
        lines += [
            "  # The order splits backwards: checkpointing would multiply their cost, and so would",
            "  # compiling: leave compile off too. Of weights that FSDP reshards after a forward,",
            "  # they lose the gradients.",
            "  reshard_after_forward: false",
        ]
    checkpointing = options.checkpointing_for(splits=split.any)
    if checkpointing is not None:
        lines.append(f"  activation_checkpointing: {_text(checkpointing == 'full')}")
    lines += [
        "  pipeline:",
        f"    pp_schedule: {_text(name)}",
        f"    pp_schedule_csv: {_text(options.csv)}",
        "    pp_microbatch_size: 1",
        f"    pp_batch_size: {m}",
        "    scale_grads_in_schedule: false",
    ]
    if layers is not None:
        names = module_names(
            layers,
            first=["model.embed_tokens"],
            layer="model.layers",
            last=["model.norm", "lm_head"],
            every=["model.rotary_emb"],
        )
        lines.append("    # module names are those of Hugging Face's Llama")
        lines.append("    module_fqns_per_model_part:")
        lines += [f"      - [{', '.join(map(_text, stage))}]" for stage in names]
    return {".yaml": "\n".join(lines) + "\n"}, told


def _text(text: str | bool) -> str:
    return json.dumps(text, ensure_ascii=False)


RUNTIME: Final = framework("automodel", NAME, VERSION, "schedule.yaml", automodel_files)
