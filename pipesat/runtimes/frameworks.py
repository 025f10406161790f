"""Frameworks that run torch's CSV: a TOML file and a Python function, and a recipe in YAML.

Both take any order from the CSV (``_PipelineScheduleRuntime``, ``scale_grads=False``), but the
placement from the schedule's name, which torch must know, and stages from a list of module names.
torchtitan 0.2.2 reads TOML files; 0.3.0 is configured in Python, and refuses CUDA graphs, which are
on by default, with pipelines. NeMo AutoModel's ``PipelineConfig`` is the ``distributed`` section of
a recipe; its number of microbatches is ``pp_batch_size / pp_microbatch_size``.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipesat.core.errors import NotApplicable
from pipesat.core.torch_releases import NEWEST, RELEASES
from pipesat.problem.problem import Problem
from pipesat.runtimes.options import (
    Cut,
    Options,
    cut_of,
    module_names,
    told_of,
)
from pipesat.runtimes.torch.hazards import SplitBackwards
from pipesat.runtimes.torch.target import Fragment, framework
from pipesat.schedule.schedule import Exported

_ORDER: Final = "gives the order: its path from the folder in which the job starts"
TOML_VERSION: Final = "0.2.2"
PYTHON_VERSION: Final = "0.3.0"
_TRIED: Final = "its schedule builder was tried there"
TOML_TORCH: Final = f"runs with {RELEASES[0]}: {_TRIED}"
PYTHON_TORCH: Final = f"runs with {NEWEST}: {_TRIED}"
"""``step`` takes microbatches since pytorch's pull request 188500, ``set_timeout`` is as new."""


def torchtitan_cut(problem: Problem, options: Options) -> Cut:
    """Return the name of the placement, and each stage's layers if they are given.

    Raises
    ------
    NotApplicable
        If torchtitan runs no order of the problem so.
    """
    name, layers = cut_of(problem, options, "torchtitan")
    if layers is not None and 0 in layers[1:-1]:
        empty = layers.index(0, 1)
        raise NotApplicable(f"torchtitan cannot run a stage without modules: stage {empty}")
    return name, layers


def torchtitan_files(
    problem: Problem, options: Options, split: SplitBackwards
) -> tuple[dict[str, str], list[str]]:
    """Return the fragments, ``.toml`` and ``.py``, for an order that splits these backwards.

    And the versions that they are for.
    """
    name, layers = torchtitan_cut(problem, options)
    told = (
        f"the .py is written for torchtitan {PYTHON_VERSION}, which {PYTHON_TORCH}; the TOML file "
        f"for {TOML_VERSION}, which {TOML_TORCH}"
    )
    given = (problem, name, options, layers, split)
    return {".toml": _toml(*given), ".py": _python(*given)}, [told]


def _names(layers: tuple[int, ...], head: str) -> list[list[str]]:
    last = ["norm", head]
    return module_names(layers, first=["tok_embeddings"], layer="layers", last=last, every=[])


def _toml(
    problem: Problem,
    name: str,
    options: Options,
    layers: tuple[int, ...] | None,
    split: SplitBackwards,
) -> str:
    m = problem.routes[0].microbatches
    lines = [
        f"# From pipesat, problem {problem.sha256[:12]}. Read the .hazards.txt beside it.",
        f"# For torchtitan {TOML_VERSION}; the .py beside it is for {PYTHON_VERSION}.",
        f"# It {TOML_TORCH}.",
        *options.comments,
        "",
        "[parallelism]",
        f"pipeline_parallel_degree = {len(problem.devices)}",
        f"pipeline_parallel_schedule = {_text(name)}  # gives the placement",
        f"pipeline_parallel_schedule_csv = {_text(options.csv)}  # {_ORDER}",
        "pipeline_parallel_microbatch_size = 1",
    ]
    if split.any:
        lines.append('fsdp_reshard_after_forward = "never"  # else split backwards lose gradients')
    if layers is not None:
        lines.append(f"# {told_of(layers)}")
        lines.append("# module names are those of torchtitan's Llama 3 in that version")
        parts = ",\n".join(
            f"  [{', '.join(map(_text, stage))}]" for stage in _names(layers, "output")
        )
        lines.append(f"module_fqns_per_model_part = [\n{parts},\n]")
    lines += ["", "[training]", f"local_batch_size = {m}  # {m} times the microbatch size"]
    if split.any:
        lines += [
            "",
            "# The order splits backwards: checkpointing or compiling would multiply their cost.",
        ]
    checkpointing = options.checkpointing_for(splits=split.any)
    if checkpointing is not None:
        lines += [*([] if split.any else [""]), "[activation_checkpoint]"]
        lines.append(f"mode = {_text(checkpointing)}")
    if split.any:
        lines += ["", "[compile]", "enable = false"]
    return "\n".join(lines) + "\n"


def _python(
    problem: Problem,
    name: str,
    options: Options,
    layers: tuple[int, ...] | None,
    split: SplitBackwards,
) -> str:
    set_pp = "    config.parallelism."
    m = problem.routes[0].microbatches
    lines = [
        f'"""From pipesat, problem {problem.sha256[:12]}. Read the .hazards.txt beside it.',
        "",
        f"For torchtitan {PYTHON_VERSION}: call it in your configuration. Versions that name these",
        "options otherwise end in an AttributeError here.",
        f"It {PYTHON_TORCH}.",
        '"""',
        *(["", *options.comments] if options.remark else []),
        "",
        "",
        "def with_pipeline_schedule(config):",
        '    """Set the schedule in a ``Trainer.Config`` and return it."""',
        f"{set_pp}pipeline_parallel_degree = {len(problem.devices)}",
        f"{set_pp}pipeline_parallel_schedule = {name!r}  # gives the placement",
        f"    # {_ORDER}",
        f"{set_pp}pipeline_parallel_schedule_csv = {options.csv!r}",
        f"{set_pp}pipeline_parallel_microbatch_size = 1",
        f"    config.training.local_batch_size = {m}  # {m} times the microbatch size",
    ]
    if layers is not None:
        lines += [
            f"    # {told_of(layers)}",
            "    # module names are those of torchtitan's decoders in that version",
            f"{set_pp}module_fqns_per_model_part = [",
            *(f"        {stage!r}," for stage in _names(layers, "lm_head")),
            "    ]",
        ]
    lines.append("    config.training.disable_cuda_graphs = True  # they refuse pipelines")
    if split.any:
        lines += [
            "    # The order splits backwards: checkpointing or compiling multiplies their cost.",
            "    config.compile.enable = False",
            "    # Of weights that FSDP reshards after a forward, they lose the gradients.",
            f"{set_pp}fsdp_reshard_after_forward = 'never'",
        ]
    if split.last:
        lines += [
            "    # A chunked loss reshards the final norm, which the last stage's split backward",
            "    # would then never train. The loss inside of it is the same number.",
            "    config.loss = getattr(config.loss, 'loss_fn', config.loss)",
        ]
    checkpointing = options.checkpointing_for(splits=split.any)
    if checkpointing == "none":
        lines.append("    config.activation_checkpoint = None")
    elif checkpointing == "full":
        lines += [
            "    from torchtitan.distributed.activation_checkpoint import FullAC",
            "",
            "    config.activation_checkpoint = FullAC.Config()",
        ]
    return "\n".join([*lines, "    return config", ""])


def _text(text: str | bool) -> str:
    """Text as JSON, which YAML reads as it is, and TOML where characters are printable."""
    return json.dumps(text, ensure_ascii=False)


def _read_torchtitan(exported: Exported) -> Iterator[Fragment]:
    """Read the TOML file and, as data, what the Python file sets."""
    document = tomllib.loads(exported.data.decode())
    said = {f"{part}.{key}": value for part in document for key, value in document[part].items()}
    yield _torchtitan(said)
    tree = ast.parse(text := exported.beside[".py"].decode())
    compile(text, ".py", "exec")  # not run: what only a compiler refuses
    said = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.List):
            name = ast.unparse(node.targets[0]).removeprefix("config.")
            said[name] = ast.literal_eval(node.value)
    yield _torchtitan(said)


def _torchtitan(said: Mapping[str, Any]) -> Fragment:
    names = ("degree", "schedule", "schedule_csv", "microbatch_size")
    own = [said[f"parallelism.pipeline_parallel_{name}"] for name in names]
    parts = said.get("parallelism.module_fqns_per_model_part")
    return Fragment._make([*own, said["training.local_batch_size"], parts])


AUTOMODEL: Final = "NeMo AutoModel"
AUTOMODEL_VERSION: Final = "0.7.0"
AUTOMODEL_TORCH: Final = TOML_TORCH


def automodel_cut(problem: Problem, options: Options) -> Cut:
    """As :func:`torchtitan_cut`, of NeMo AutoModel."""
    name, layers = cut_of(problem, options, AUTOMODEL)
    if layers is not None and 0 in layers:
        raise NotApplicable(
            f"NeMo AutoModel wants a transformer layer on every stage, {layers.index(0)} has none"
        )
    return name, layers


def automodel_files(
    problem: Problem, options: Options, split: SplitBackwards
) -> tuple[dict[str, str], list[str]]:
    """Return the fragment, ``.yaml``, for an order that splits these backwards.

    And the version that it is for, and the recipes' guard that stops the run, if any.
    """
    name, layers = automodel_cut(problem, options)
    ranks, m = len(problem.devices), problem.routes[0].microbatches
    told = [f"written for NeMo AutoModel {AUTOMODEL_VERSION}, which {AUTOMODEL_TORCH}"]
    if m < ranks:
        least = f"its recipes want at least {ranks} microbatches, one per rank, here are {m}"
        told.append(f"WARNING: {least}")
    lines = [
        f"# From pipesat, problem {problem.sha256[:12]}. Read the .hazards.txt beside it.",
        f"# For NeMo AutoModel {AUTOMODEL_VERSION}. It {AUTOMODEL_TORCH}.",
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
        f"    # {_ORDER}",
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
        lines.append(f"    # {told_of(layers)}")
        lines.append("    # module names are those of Hugging Face's Llama")
        lines.append("    module_fqns_per_model_part:")
        lines += [f"      - [{', '.join(map(_text, stage))}]" for stage in names]
    return {".yaml": "\n".join(lines) + "\n"}, told


def _read_automodel(exported: Exported) -> Iterator[Fragment]:
    """Read the recipe's section; a value is JSON, which YAML reads as it is."""
    said: dict[str, Any] = {}
    parts: list[list[str]] = []
    for line in exported.data.decode().splitlines():
        key, colon, value = line.strip().partition(": ")
        if line.startswith("      - "):
            parts.append(json.loads(line.strip()[2:]))
        elif colon and not key.startswith("#"):
            said[key] = json.loads(value)
    names = ("pp_size", "pp_schedule", "pp_schedule_csv", "pp_microbatch_size", "pp_batch_size")
    yield Fragment._make([*map(said.__getitem__, names), parts or None])


RUNTIMES: Final = (
    framework(
        "torchtitan",
        "torchtitan",
        TOML_VERSION,
        "schedule.toml",
        torchtitan_files,
        _read_torchtitan,
        torchtitan_cut,
    ),
    framework(
        "automodel",
        AUTOMODEL,
        AUTOMODEL_VERSION,
        "schedule.yaml",
        automodel_files,
        _read_automodel,
        automodel_cut,
    ),
)
