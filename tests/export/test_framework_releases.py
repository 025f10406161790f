"""Fragments against the released packages that they name, installed without their dependencies.

Their configuration classes and pure functions are taken out of the files; nothing else of them
runs. ``bash scripts/releases`` installs the packages and runs this; without them it is skipped.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias, get_args, get_type_hints

import pytest

import pipesat
from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.export import EXPORTERS, Exported
from pipesat.export.frameworks import automodel, torchtitan
from pipesat.export.frameworks.options import Options
from pipesat.heuristics import BASELINES
from pipesat.layers import megatron
from tests.support.loops import loop
from tests.support.paths import ROOT
from tests.support.problems import chain
from tests.support.yaml_subset import yaml

RELEASES = Path(os.environ.get("PIPESAT_RELEASES", ROOT / ".releases"))
Load: TypeAlias = Callable[[Path], ModuleType]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def release(name: str, version: str) -> Path:
    """Where a release lies; skip the test without it."""
    pytest.importorskip("torch", reason="needs the extra `torch`")
    folder = RELEASES / f"{name}-{version}"
    if not folder.is_dir():
        pytest.skip(f"needs {name} {version} in {folder}: bash scripts/releases")
    return folder


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import one file of a package alone: the package's own start would want its dependencies."""
    logging = ModuleType("torchtitan.tools.logging")
    logging.__dict__["logger"] = None
    monkeypatch.setitem(sys.modules, "torchtitan.tools.logging", logging)

    def load_file(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"released_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there
        spec.loader.exec_module(module)
        return module

    return load_file


def definition(path: Path, *names: str) -> Any:
    """The class or function at names in a file, as a syntax tree."""
    node: Any = ast.parse(path.read_text())
    for name in names:
        (node,) = [child for child in node.body if getattr(child, "name", None) == name]
    return node


def function(path: Path, name: str) -> Callable[..., Any]:
    """A function of a file that needs nothing but its arguments."""
    module = ast.Module([definition(path, name)], type_ignores=[])
    names: dict[str, Any] = {"MULTIMODAL_SUFFIXES": ()}
    exec(compile(module, str(path), "exec"), names)
    found: Callable[..., Any] = names[name]
    return found


def fields(path: Path, *names: str) -> set[str]:
    """Annotated names of a class."""
    body = definition(path, *names).body
    return {node.target.id for node in body if isinstance(node, ast.AnnAssign)}


def exported(problem: Problem, to: str, name: str, layers: int = 2) -> Exported:
    options = Options(Path("run.x"), (layers,))
    return EXPORTERS[to](problem, BASELINES[name](problem), options)


CASES = [(chain(4, 8), "zb-h1"), (chain(4, 8), "1f1b"), (loop(4, 2, 8), "interleaved-1f1b")]


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_torchtitans_python_classes(problem: Problem, name: str, load: Load) -> None:
    """They have slots, so that a name they do not have is an error."""
    folder = release("torchtitan", torchtitan.PYTHON_VERSION) / "torchtitan"
    configs = load(folder / "config" / "configs.py")
    config = SimpleNamespace(
        parallelism=configs.ParallelismConfig(),
        training=configs.TrainingConfig(),
        compile=configs.CompileConfig(enable=True),
        activation_checkpoint="selective",
    )
    assert vars(config).keys() <= fields(folder / "trainer.py", "Trainer", "Config")
    result = exported(problem, "torchtitan", name)
    names: dict[str, Any] = {}
    exec(result.beside[".py"], names)  # our own file
    names["with_pipeline_schedule"](config)

    parallelism = config.parallelism
    batch, size = config.training.local_batch_size, parallelism.pipeline_parallel_microbatch_size
    assert batch // size == 8  # as its trainer counts
    assert parallelism.pipeline_parallel_degree == 4
    assert parallelism.pipeline_parallel_schedule_csv == "run.csv"
    assert config.training.disable_cuda_graphs is True
    assert config.compile.enable is (name != "zb-h1")
    assert (config.activation_checkpoint is None) is (name == "zb-h1")
    stages = len(problem.stages)
    cut = function(
        folder / "distributed" / "pipeline_parallel.py", "_generate_llm_fqn_per_model_part"
    )
    assert parallelism.module_fqns_per_model_part == cut(stages, 2 * stages, 0, 0)


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_torchtitans_toml_classes(problem: Problem, name: str, load: Load) -> None:
    folder = release("torchtitan", torchtitan.TOML_VERSION) / "torchtitan"
    default = load(folder / "config" / "job_config.py").JobConfig()
    document = tomllib.loads(exported(problem, "torchtitan", name).data.decode())
    for section, values in document.items():
        # replace() refuses names that the class does not have
        dataclasses.replace(getattr(default, section), **values)
    parallelism = document["parallelism"]
    batch = document["training"]["local_batch_size"]
    assert batch // parallelism["pipeline_parallel_microbatch_size"] == 8
    stages = len(problem.stages)
    cut = function(
        folder / "distributed" / "pipeline_parallel.py", "generate_llm_fqn_per_model_part"
    )
    assert parallelism["module_fqns_per_model_part"] == cut(stages, 2 * stages, 0, 0)


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_automodels_classes(problem: Problem, name: str, load: Load) -> None:
    folder = release("nemo-automodel", automodel.VERSION) / "nemo_automodel"
    pipelining = folder / "components" / "distributed" / "pipelining"
    section = yaml(exported(problem, "nemo-automodel", name).data.decode())["distributed"]
    config = load(pipelining / "config.py").PipelineConfig(**section.pop("pipeline"))
    assert config.pp_batch_size // config.pp_microbatch_size == 8
    stages = len(problem.stages)
    cut = function(pipelining / "functional.py", "generate_hf_model_fqn_per_model_part")
    assert config.module_fqns_per_model_part == cut(stages, 2 * stages)
    # the rest is popped by name from the section, what is left goes to the strategy's class
    parser = ast.unparse(definition(folder / "recipes" / "_dist_utils.py"))
    assert section.keys() <= {"strategy", "pp_size", "activation_checkpointing"}
    assert all(f"'{key}'" in parser for key in section)


def test_full_checkpointing_in_all_three(load: Load) -> None:
    """A mode of 0.2.2, a class of 0.3.0, a value that AutoModel takes for full checkpointing."""
    problem, options = chain(4, 8), Options(Path("run.x"), checkpointing="full")
    schedule = BASELINES["1f1b"](problem)
    made = EXPORTERS["torchtitan"](problem, schedule, options)
    folder = release("torchtitan", torchtitan.TOML_VERSION) / "torchtitan"
    section = load(folder / "config" / "job_config.py").ActivationCheckpoint
    (mode,) = tomllib.loads(made.data.decode())["activation_checkpoint"].values()
    assert mode in get_args(get_type_hints(section)["mode"])
    folder = release("torchtitan", torchtitan.PYTHON_VERSION) / "torchtitan"
    definition(folder / "distributed" / "activation_checkpoint.py", "FullAC", "Config")
    assert b"torchtitan.distributed.activation_checkpoint import FullAC" in made.beside[".py"]
    folder = release("nemo-automodel", automodel.VERSION) / "nemo_automodel"
    text = EXPORTERS["nemo-automodel"](problem, schedule, options).data.decode()
    value = yaml(text)["distributed"]["activation_checkpointing"]
    path = folder / "recipes" / "_dist_utils.py"
    assert function(path, "_normalize_activation_checkpointing")(value) is True


def test_megatrons_guards() -> None:
    """Its two guards, run on a grid, against ours."""
    folder = release("megatron-core", megatron.CORE_VERSION) / "megatron" / "core"
    schedules = folder / "pipeline_parallel" / "schedules.py"
    interleaving = definition(schedules, "forward_backward_pipelining_with_interleaving")
    guards = [node for node in interleaving.body if _is_guard(ast.unparse(node))]
    assert len(guards) == 3
    code = compile(ast.Module(guards, []), "guards", "exec")

    def refused(p: int, m: int, group: int) -> bool:
        config = SimpleNamespace(microbatch_group_size_per_vp_stage=group)
        names = {"config": config, "num_microbatches": m, "pipeline_parallel_size": p}
        try:
            exec(code, names)
        except (ValueError, RuntimeError):
            return True
        return False

    seen = set()
    for p in range(2, 7):
        for m in range(1, 25):
            answer = megatron.refusal(p, 2, m)
            seen.add(refused(p, m, p))
            assert refused(p, m, p) == (answer is not None)
            if m >= p:
                fitting = [g for g in range(1, m + 1) if not refused(p, m, g)]
                assert megatron.group_sizes(p, m) == fitting
                assert megatron.least_group(p, m) == fitting[0]
    assert seen == {True, False}


def _config(options: list[str]) -> dict[str, Any]:
    """Options as the configuration's fields: switches are true."""
    found: dict[str, Any] = {}
    for option in options:
        name, _, value = option.removeprefix("--").replace("-", "_").partition("=")
        found[name] = int(value) if value.isdigit() else value or True
    return found


CHANGED: dict[str, dict[str, Any]] = {
    "ours": {},
    "one stage per rank": {"virtual_pipeline_model_parallel_size": None},
    "all recomputed": _config(megatron.recompute_options()),
    "some recomputed": _config(megatron.recompute_options(2)),
    "no experts": {"expert_model_parallel_size": 1},
}


@pytest.mark.parametrize("changed", CHANGED)
def test_megatrons_guards_of_overlap(changed: str) -> None:
    """Our options pass the guards of its configuration; without what they ask for, they do not."""
    folder = release("megatron-core", megatron.CORE_VERSION) / "megatron" / "core"
    path = folder / "transformer" / "transformer_config.py"
    guards = [
        node
        for node in definition(path, "TransformerConfig", "__post_init__").body
        if ast.unparse(node).startswith(
            ("if self.overlap_moe_expert_parallel_comm", "if self.delay_wgrad_compute")
        )
    ]
    assert len(guards) == 2
    model = {
        "expert_model_parallel_size": 8,
        "moe_token_dispatcher_type": "alltoall",
        "bf16": True,
        "fp16": False,
        "moe_shared_expert_overlap": False,
        "moe_use_legacy_grouped_gemm": False,
        "mtp_num_layers": None,
        "cuda_graph_impl": "none",
    }
    pipeline = {
        "pipeline_model_parallel_size": 4,
        "virtual_pipeline_model_parallel_size": 2,
        "recompute_granularity": None,
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    ours = _config(megatron.overlap_options())
    assert ours.keys() <= fields(folder / "model_parallel_config.py", "ModelParallelConfig")
    config = SimpleNamespace(**model | pipeline | ours | CHANGED[changed])
    names = {"self": config, "is_torch_min_version": lambda version: version == "2.6.0"}
    code = compile(ast.Module(guards, []), "guards", "exec")
    with contextlib.nullcontext() if not CHANGED[changed] else pytest.raises(AssertionError):
        exec(code, names)


def test_megatrons_warm_up_of_overlap() -> None:
    """The forwards that it runs alone, rank by rank, and those of our order."""
    folder = release("megatron-core", megatron.CORE_VERSION) / "megatron" / "core"
    warm_up = definition(
        folder / "pipeline_parallel" / "schedules.py", "get_pp_rank_microbatches"
    ).body
    code = compile(ast.Module([n for n in warm_up if _counts(n)], []), "warm-up", "exec")
    seen = 0
    for p, v, m in ((2, 2, 5), (4, 2, 8), (3, 3, 7), (4, 3, 12)):
        for group in megatron.group_sizes(p, m):
            schedule = pipesat.baseline("interleaved-overlapped", loop(p, v, m), group=group)
            for rank, row in enumerate(schedule.devices):
                names = {
                    "pipeline_parallel_size": p,
                    "virtual_pipeline_parallel_size": v,
                    "pipeline_parallel_rank": rank,
                    "microbatch_group_size_per_vp_stage": group,
                    "num_model_chunks": v,
                    "num_microbatches": m,
                    "total_num_microbatches": m * v,
                    "forward_only": False,
                    "overlap_moe_expert_parallel_comm": True,
                }
                exec(code, names)
                kinds = [op.kind for timed in row for op in members(timed.item)]
                first = kinds.index("BW")
                # the forward of the first step that has both runs before its backward
                alone = names["num_warmup_microbatches"]
                assert first == alone + (alone < m * v)
                seen += 1
    assert seen > 20


def _counts(node: ast.stmt) -> bool:
    text = ast.unparse(node)
    return "num_warmup_microbatches" in text and not text.startswith("return")


def _is_guard(text: str) -> bool:
    """Whether a statement refuses a group size, or works out the last group's."""
    of_group = "raise" in text and text.startswith(("if config.microbatch_group", "if 0 < final"))
    return of_group or text.startswith("final_microbatch_group_size =")
