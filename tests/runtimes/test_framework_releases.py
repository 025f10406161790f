"""Fragments against the released packages that they name, installed without their dependencies.

Their configuration classes and pure functions are taken out of the files; nothing else of them
runs. ``bash scripts/releases`` installs the packages and runs this; without them it is skipped.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import inspect
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias, get_args, get_type_hints
from unittest.mock import Mock

import pytest

from pipesat.compare.hand_written import baseline
from pipesat.heuristics import BASELINES
from pipesat.layers import megatron
from pipesat.problem.ops import members, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes import EXPORTERS, Exported, frameworks
from pipesat.runtimes.options import Options
from pipesat.schedule.timing import time_order
from tests.support.problems import chain, loop
from tests.support.releases import release
from tests.support.yaml_subset import yaml

Load: TypeAlias = Callable[[Path], ModuleType]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


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


def function(path: Path, name: str, **names: Any) -> Callable[..., Any]:
    """A function of a file that needs nothing but its arguments and these names."""
    found = definition(path, name)
    found.returns = None
    for argument in ast.walk(found.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    module = ast.Module([found], type_ignores=[])
    names |= {"MULTIMODAL_SUFFIXES": ()}
    exec(compile(module, str(path), "exec"), names)
    made: Callable[..., Any] = names[name]
    return made


def fields(path: Path, *names: str) -> set[str]:
    """Annotated names of a class."""
    body = definition(path, *names).body
    return {node.target.id for node in body if isinstance(node, ast.AnnAssign)}


def exported(problem: Problem, to: str, name: str, layers: int = 2) -> Exported:
    options = Options(Path("run.x"), (layers,) * len(problem.stages))
    return EXPORTERS[to](problem, BASELINES[name](problem), options)


CHUNKED = SimpleNamespace(loss_fn=SimpleNamespace(name="cross entropy"))
CASES = [(chain(4, 8), "zb-h1"), (chain(4, 8), "1f1b"), (loop(4, 2, 8), "interleaved-1f1b")]


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_torchtitans_python_classes(problem: Problem, name: str, load: Load) -> None:
    """They have slots, so that a name they do not have is an error."""
    folder = release("torchtitan", frameworks.PYTHON_VERSION) / "torchtitan"
    configs = load(folder / "config" / "configs.py")
    config = SimpleNamespace(
        parallelism=configs.ParallelismConfig(),
        training=configs.TrainingConfig(),
        compile=configs.CompileConfig(enable=True),
        activation_checkpoint="selective",
        loss=CHUNKED,
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
    loss = folder / "components" / "loss.py"
    assert "loss_fn" in fields(loss, "ChunkedLossWrapper", "Config")
    assert "loss_fn" not in fields(loss, "BaseLoss", "Config") | fields(
        loss, "CrossEntropyLoss", "Config"
    )
    assert config.loss is (CHUNKED.loss_fn if name == "zb-h1" else CHUNKED)
    policy = function(folder / "distributed" / "fsdp.py", "get_fsdp_reshard_after_forward_policy")
    assert policy(parallelism.fsdp_reshard_after_forward, True) is False
    stages = len(problem.stages)
    cut = function(
        folder / "distributed" / "pipeline_parallel.py", "_generate_llm_fqn_per_model_part"
    )
    assert parallelism.module_fqns_per_model_part == cut(stages, 2 * stages, 0, 0)


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_torchtitans_toml_classes(problem: Problem, name: str, load: Load) -> None:
    folder = release("torchtitan", frameworks.TOML_VERSION) / "torchtitan"
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
    folder = release("nemo-automodel", frameworks.AUTOMODEL_VERSION) / "nemo_automodel"
    pipelining = folder / "components" / "distributed" / "pipelining"
    section = yaml(exported(problem, "automodel", name).data.decode())["distributed"]
    config = load(pipelining / "config.py").PipelineConfig(**section.pop("pipeline"))
    assert config.pp_batch_size // config.pp_microbatch_size == 8
    stages = len(problem.stages)
    cut = function(pipelining / "functional.py", "generate_hf_model_fqn_per_model_part")
    assert config.module_fqns_per_model_part == cut(stages, 2 * stages)
    # the rest is popped by name from the section, what is left goes to the strategy's class
    parser = ast.unparse(definition(folder / "recipes" / "_dist_utils.py"))
    strategy = fields(folder / "components" / "distributed" / "config.py", "FSDP2Config")
    assert section.keys() - strategy <= {"strategy", "pp_size", "activation_checkpointing"}
    assert all(f"'{key}'" in parser for key in section.keys() - strategy)
    assert ("reshard_after_forward" in section) is (name == "zb-h1")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """This process as the only rank of a group."""
    from torch import distributed

    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def built_by(name: str, version: str, csv: Path, stages: list[Any], loss: Any) -> Any:
    """A release's own builder called with our order, as its trainer calls it."""
    from torch.distributed.pipelining import schedules

    there: dict[str, Any] = vars(schedules) | {"os": os, "logger": Mock(), "overlap_callback": None}
    folder = release(name, version)
    if name == "nemo-automodel":
        path = folder / "nemo_automodel/components/distributed/pipelining/functional.py"
        build = function(path, "build_pipeline_schedule", **there)
        return build(str(csv), "PipelineScheduleMulti", 1, 2, stages, loss)
    parallelism = SimpleNamespace(
        pipeline_parallel_schedule="PipelineScheduleMulti",
        pipeline_parallel_schedule_csv=str(csv),
        pipeline_parallel_microbatch_size=1,
        pipeline_parallel_degree=1,
        pipeline_parallel_expert_parallel_overlap=False,
    )
    path = folder / "torchtitan/distributed/pipeline_parallel.py"
    if version == frameworks.PYTHON_VERSION:
        build = function(path, "_build_pipeline_schedule", **there)
        given = {"parallelism": parallelism, "local_batch_size": 2, "stages": stages}
        return build(**given, loss_fn=lambda *x, **more: (loss(*x, **more), {}))
    config = SimpleNamespace(parallelism=parallelism, training=SimpleNamespace(local_batch_size=2))
    return function(path, "build_pipeline_schedule", **there)(config, stages, loss)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torchtitan", frameworks.TOML_VERSION),
        ("torchtitan", frameworks.PYTHON_VERSION),
        ("nemo-automodel", frameworks.AUTOMODEL_VERSION),
    ],
)
def test_its_builder_runs_our_order_in_this_torch(name: str, version: str, tmp_path: Path) -> None:
    """One step of two stages on one rank, backwards split: gradients as of plain autograd."""
    import torch
    from torch.distributed.pipelining import PipelineStage

    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 2,
            "devices": [{}],
            "stages": [{"device": 0, "F": 1, "B": 1, "W": 1}] * 2,
        }
    )
    row = "0F0 1F0 0F1 1F1 1B0 1B1 1W0 1W1 0BW0 0BW1"
    order = time_order(problem, (tuple(map(parse_item, row.split())),))
    csv = tmp_path / "order.csv"
    csv.write_bytes(EXPORTERS["torch"](problem, order, Options(exact=True)).data)

    torch.manual_seed(0)
    modules = [torch.nn.Linear(4, 4) for _ in range(2)]
    x, target = torch.randn(2, 2, 4)

    def loss(output: Any, wanted: Any) -> Any:
        return (output - wanted).square().sum()

    loss(modules[1](modules[0](x)), target).backward()
    expected = [p.grad for module in modules for p in module.parameters()]
    for module in modules:
        module.zero_grad()
    stages = [PipelineStage(m, number, 2, torch.device("cpu")) for number, m in enumerate(modules)]
    schedule = built_by(name, version, csv, stages, loss)
    if (name, version) == ("torchtitan", frameworks.PYTHON_VERSION):
        if "arg_mbs" not in inspect.signature(schedule.step).parameters:
            pytest.skip(
                f"torchtitan {version} {frameworks.PYTHON_TORCH}, here is {torch.__version__}"
            )
        halves, wanted = [(half,) for half in x.chunk(2)], list(target.chunk(2))
        schedule.step(arg_mbs=halves, kwarg_mbs=[{}, {}], target_mbs=wanted, losses=[])
    else:
        schedule.step(x, target=target, losses=[])
    found = [p.grad for module in modules for p in module.parameters()]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_full_checkpointing_in_all_three(load: Load) -> None:
    """A mode of 0.2.2, a class of 0.3.0, a value that AutoModel takes for full checkpointing."""
    problem, options = chain(4, 8), Options(Path("run.x"), checkpointing="full")
    schedule = BASELINES["1f1b"](problem)
    made = EXPORTERS["torchtitan"](problem, schedule, options)
    folder = release("torchtitan", frameworks.TOML_VERSION) / "torchtitan"
    section = load(folder / "config" / "job_config.py").ActivationCheckpoint
    (mode,) = tomllib.loads(made.data.decode())["activation_checkpoint"].values()
    assert mode in get_args(get_type_hints(section)["mode"])
    folder = release("torchtitan", frameworks.PYTHON_VERSION) / "torchtitan"
    definition(folder / "distributed" / "activation_checkpoint.py", "FullAC", "Config")
    assert b"torchtitan.distributed.activation_checkpoint import FullAC" in made.beside[".py"]
    folder = release("nemo-automodel", frameworks.AUTOMODEL_VERSION) / "nemo_automodel"
    text = EXPORTERS["automodel"](problem, schedule, options).data.decode()
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
                assert megatron.group_sizes(p, m)[0] == fitting[0]
    assert seen == {True, False}


def _config(options: Sequence[str]) -> dict[str, Any]:
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
    "experts recomputed": {"recompute_modules": ["moe"]},
    "two MTP layers": {"mtp_num_layers": 2},
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
        "moe_flex_dispatcher_backend": None,
        "recompute_modules": ["core_attn"],
    }
    pipeline = {
        "pipeline_model_parallel_size": 4,
        "virtual_pipeline_model_parallel_size": 2,
        "recompute_granularity": None,
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    ours = _config(megatron.OVERLAP)
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
            schedule = baseline("interleaved-overlapped", loop(p, v, m), group=group)
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
