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
from functools import partial
from typing import Any, Final

from pipesat.core.errors import NotApplicable
from pipesat.core.torch_releases import NEWEST, RELEASES
from pipesat.problem.problem import Problem
from pipesat.runtimes.options import (
    Cut,
    Options,
    cut_of,
    module_names,
    rendered,
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
        raise NotApplicable(
            f"torchtitan cannot run a stage without modules: stage {layers.index(0, 1)}"
        )
    return name, layers


_TOML: Final = """\
# From pipesat, problem {{ digest }}. Read the .hazards.txt beside it.
# For torchtitan {{ toml_version }}; the .py beside it is for {{ python_version }}.
# It {{ toml_torch }}.
{% for line in comments %}
{{ line }}
{% endfor %}

[parallelism]
pipeline_parallel_degree = {{ ranks }}
pipeline_parallel_schedule = {{ name | text }}  # gives the placement
pipeline_parallel_schedule_csv = {{ csv | text }}  # {{ order }}
pipeline_parallel_microbatch_size = {{ batch }}
{% if tensor_parallel > 1 %}
tensor_parallel_degree = {{ tensor_parallel }}
{% endif %}
{% if split.any %}
fsdp_reshard_after_forward = "never"  # else split backwards lose gradients
{% endif %}
{% if parts %}
# {{ told }}
# module names are those of torchtitan's Llama 3 in that version
module_fqns_per_model_part = [
{% for stage in parts %}
  [{{ stage | map("text") | join(", ") }}],
{% endfor %}
]
{% endif %}

[training]
local_batch_size = {{ m * batch }}  # {{ m }} times the microbatch size
{% if checkpointing %}

{% if split.any %}
# The order splits backwards: checkpointing or compiling would multiply their cost.
{% endif %}
[activation_checkpoint]
mode = {{ checkpointing | text }}
{% endif %}
{% if split.any %}

[compile]
enable = false
{% endif %}
"""
_PYTHON: Final = '''\
"""From pipesat, problem {{ digest }}. Read the .hazards.txt beside it.

For torchtitan {{ python_version }}: call it in your configuration. Versions that name these
options otherwise end in an AttributeError here.
It {{ python_torch }}.
"""
{% for line in comments %}
{{ "\n" if loop.first }}{{ line }}
{% endfor %}


def with_pipeline_schedule(config):
    """Set the schedule in a ``Trainer.Config`` and return it."""
    config.parallelism.pipeline_parallel_degree = {{ ranks }}
    config.parallelism.pipeline_parallel_schedule = {{ name | repr }}  # gives the placement
    # {{ order }}
    config.parallelism.pipeline_parallel_schedule_csv = {{ csv | repr }}
    config.parallelism.pipeline_parallel_microbatch_size = {{ batch }}
    config.training.local_batch_size = {{ m * batch }}  # {{ m }} times the microbatch size
{% if tensor_parallel > 1 %}
    config.parallelism.tensor_parallel_degree = {{ tensor_parallel }}
{% endif %}
{% if parts %}
    # {{ told }}
    # module names are those of torchtitan's decoders in that version
    config.parallelism.module_fqns_per_model_part = [
{% for stage in parts %}
        {{ stage | repr }},
{% endfor %}
    ]
{% endif %}
    config.training.disable_cuda_graphs = True  # they refuse pipelines
{% if split.any %}
    # The order splits backwards: checkpointing or compiling multiplies their cost.
    config.compile.enable = False
    # Of weights that FSDP reshards after a forward, they lose the gradients.
    config.parallelism.fsdp_reshard_after_forward = 'never'
{% endif %}
{% if split.last %}
    # A chunked loss reshards the final norm, which the last stage's split backward
    # would then never train. The loss inside of it is the same number.
    config.loss = getattr(config.loss, 'loss_fn', config.loss)
{% endif %}
{% if checkpointing == "none" %}
    config.activation_checkpoint = None
{% elif checkpointing == "full" %}
    from torchtitan.distributed.activation_checkpoint import FullAC

    config.activation_checkpoint = FullAC.Config()
{% endif %}
    return config
'''


def torchtitan_files(
    problem: Problem, options: Options, split: SplitBackwards
) -> tuple[dict[str, str], list[str]]:
    """Return the fragments, ``.toml`` and ``.py``, for an order that splits these backwards.

    And the versions that they are for.
    """
    told = (
        f"the .py is written for torchtitan {PYTHON_VERSION}, which {PYTHON_TORCH}; the TOML file "
        f"for {TOML_VERSION}, which {TOML_TORCH}"
    )
    write = partial(_filled, problem, options, split, torchtitan_cut(problem, options))
    names = {"first": ["tok_embeddings"], "layer": "layers", "every": []}
    toml = write(_TOML, **names, last=["norm", "output"])
    return {".toml": toml, ".py": write(_PYTHON, **names, last=["norm", "lm_head"])}, [told]


def _filled(
    problem: Problem, options: Options, split: SplitBackwards, cut: Cut, template: str, **names: Any
) -> str:
    """Return a template filled; ``names`` are those of modules, for :func:`module_names`."""
    name, layers = cut
    return rendered(
        template,
        filters={"text": _text, "repr": repr},
        digest=problem.sha256[:12],
        ranks=len(problem.devices),
        m=problem.routes[0].microbatches,
        batch=options.batch,
        tensor_parallel=options.tensor_parallel,
        name=name,
        csv=options.csv,
        comments=options.comments,
        checkpointing=options.checkpointing_for(splits=split.any),
        split=split,
        parts=layers and module_names(layers, **names),
        told=layers and told_of(layers),
        order=_ORDER,
        toml_version=TOML_VERSION,
        toml_torch=TOML_TORCH,
        python_version=PYTHON_VERSION,
        python_torch=PYTHON_TORCH,
    )


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


_YAML: Final = """\
# From pipesat, problem {{ digest }}. Read the .hazards.txt beside it.
# For NeMo AutoModel {{ version }}. It {{ toml_torch }}.
{% for line in comments %}
{{ line }}
{% endfor %}
# Recipes set pp_batch_size themselves, to step_scheduler.local_batch_size: make that
# {{ m }} times pp_microbatch_size too.
distributed:
  strategy: "fsdp2"
  pp_size: {{ ranks }}
{% if tensor_parallel > 1 %}
  tp_size: {{ tensor_parallel }}
{% endif %}
{% if split.any %}
  # The order splits backwards: checkpointing would multiply their cost, and so would
  # compiling: leave compile off too. Of weights that FSDP reshards after a forward,
  # they lose the gradients.
  reshard_after_forward: false
{% endif %}
{% if checkpointing %}
  activation_checkpointing: {{ (checkpointing == "full") | text }}
{% endif %}
  pipeline:
    pp_schedule: {{ name | text }}
    # {{ order }}
    pp_schedule_csv: {{ csv | text }}
    pp_microbatch_size: {{ batch }}
    pp_batch_size: {{ m * batch }}
    scale_grads_in_schedule: false
{% if parts %}
    # {{ told }}
    # module names are those of Hugging Face's Llama
    module_fqns_per_model_part:
{% for stage in parts %}
      - [{{ stage | map("text") | join(", ") }}]
{% endfor %}
{% endif %}
"""


def automodel_files(
    problem: Problem, options: Options, split: SplitBackwards
) -> tuple[dict[str, str], list[str]]:
    """Return the fragment, ``.yaml``, for an order that splits these backwards.

    And the version that it is for, and the recipes' guard that stops the run, if any.
    """
    ranks, m = len(problem.devices), problem.routes[0].microbatches
    told = [f"written for NeMo AutoModel {AUTOMODEL_VERSION}, which {AUTOMODEL_TORCH}"]
    if m < ranks:
        told.append(
            f"WARNING: its recipes want at least {ranks} microbatches, one per rank, here are {m}"
        )
    text = _filled(
        problem,
        options,
        split,
        automodel_cut(problem, options),
        _YAML.replace("{{ version }}", AUTOMODEL_VERSION),
        first=["model.embed_tokens"],
        layer="model.layers",
        last=["model.norm", "lm_head"],
        every=["model.rotary_emb"],
    )
    return {".yaml": text}, told


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
