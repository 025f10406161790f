"""Configuration fragments: what they say, what torch makes of it, and what is refused and why."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipesat.compare.solve import solve
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.layers.megatron import group_sizes, refusal
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.runtimes import (
    EXPORTERS,
    Exported,
)
from pipesat.runtimes.options import Options
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import schedule_bytes
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.support.yaml_subset import yaml

Save = Callable[..., Path]


def placed(devices: list[int], ranks: int, m: int = 8, **stage: Any) -> Problem:
    stages = [{"device": d, "F": 1, "B": 1, "W": 1} | stage for d in devices]
    return parse_problem(
        {"format": FORMAT, "devices": [{}] * ranks, "stages": stages, "microbatches": m}
    )


CHAIN = placed([0, 1, 2, 3], 4)
LOOP = placed([0, 1, 2, 3] * 2, 4)
VEE = placed([0, 1, 2, 3, 3, 2, 1, 0], 4)
BLOCKS = placed([0, 0, 1, 1], 2)
THREE = placed([0, 1] * 3, 2)
TWO_ROUTES = parse_problem(
    {
        "format": FORMAT,
        "devices": [{}, {}],
        "stages": [{"device": d, "F": 1, "B": 1, "W": 1} for d in (0, 1, 1, 0)],
        "routes": [{"stages": [0, 1], "microbatches": 2}, {"stages": [2, 3], "microbatches": 2}],
    }
)

export_torchtitan, export_nemo_automodel, export_megatron_layout = (
    EXPORTERS[name] for name in ("torchtitan", "automodel", "megatron")
)
Export = Callable[[Problem, Schedule, Options], Exported]
FRAMEWORKS: list[Export] = [export_torchtitan, export_nemo_automodel, export_megatron_layout]


def made(problem: Problem, export: Export, name: str = "list-scheduling", **options: Any) -> Any:
    chosen = Options(Path("out/run.x"), **options)
    return export(problem, BASELINES[name](problem), chosen)


def toml(exported: Exported) -> Any:
    return tomllib.loads(exported.data.decode())


def applied(exported: Exported, loss: Any = None) -> SimpleNamespace:
    """Run the Python fragment on a configuration that has nothing set."""
    names: dict[str, Any] = {}
    exec(exported.beside[".py"], names)  # our own file
    config = SimpleNamespace(
        parallelism=SimpleNamespace(),
        training=SimpleNamespace(),
        compile=SimpleNamespace(),
        loss=loss,
    )
    result = names["with_pipeline_schedule"](config)
    assert result is config
    return config


# torchtitan


def test_torchtitan_s_toml_and_python_say_the_same() -> None:
    exported = made(VEE, export_torchtitan, layers=(1, 2, 2, 2, 2, 2, 2, 1))
    document, config = toml(exported), applied(exported)
    parallelism = document["parallelism"]
    assert parallelism["pipeline_parallel_degree"] == 4
    assert parallelism["pipeline_parallel_schedule"] == "ZBVZeroBubble"
    assert parallelism["pipeline_parallel_schedule_csv"] == "run.csv"  # beside it
    microbatches = (
        document["training"]["local_batch_size"] // parallelism["pipeline_parallel_microbatch_size"]
    )
    assert microbatches == config.training.local_batch_size == 8
    assert config.parallelism.pipeline_parallel_microbatch_size == 1
    for key in ("degree", "schedule", "schedule_csv"):
        name = f"pipeline_parallel_{key}"
        assert getattr(config.parallelism, name) == parallelism[name]
    assert config.training.disable_cuda_graphs is True
    old, new = parallelism["module_fqns_per_model_part"], config.parallelism
    assert old[0] == ["tok_embeddings", "layers.0"]
    assert old[1] == ["layers.1", "layers.2"]
    assert old[7] == ["layers.13", "norm", "output"]
    assert new.module_fqns_per_model_part == [*old[:7], ["layers.13", "norm", "lm_head"]]


def test_split_backwards_switch_checkpointing_off_and_whole_ones_do_not() -> None:
    split = made(CHAIN, export_torchtitan, "zb-h1")
    whole = made(CHAIN, export_torchtitan, "1f1b")
    assert toml(split)["activation_checkpoint"] == {"mode": "none"}
    assert toml(split)["compile"] == {"enable": False}
    assert applied(split).activation_checkpoint is None
    assert applied(split).compile.enable is False
    assert toml(whole).keys() == {"parallelism", "training"}
    assert not hasattr(applied(whole), "activation_checkpoint")
    assert not hasattr(applied(whole).compile, "enable")
    assert "checkpoint" in made(CHAIN, export_nemo_automodel, "zb-h1").data.decode()
    assert "checkpoint" not in made(CHAIN, export_nemo_automodel, "1f1b").data.decode()


def test_split_backwards_find_the_weights_that_they_train() -> None:
    """FSDP reshards nothing after a forward, and no chunked loss the last stage's norm."""
    rows = (  # the last stage's backward whole, the one before it split; 1 is the middle
        "0F0 0F1 0BW0 0BW1",
        "1F0 1F1 1B0 1B1 1W0 1W1",
        "2F0 2BW0 2F1 2BW1",
    )
    problem = placed([0, 1, 2], 3, m=2)
    order = time_order(problem, tuple(tuple(map(parse_item, row.split())) for row in rows))
    middle = EXPORTERS["torchtitan"](problem, order, Options(exact=True))
    all_split = made(CHAIN, export_torchtitan, "zb-h1")
    whole = made(CHAIN, export_torchtitan, "1f1b")
    chunked = SimpleNamespace(loss_fn="inner", num_chunks=8)
    for exported, resharding, inner in (
        (all_split, {"never"}, True),
        (middle, {"never"}, False),
        (whole, set(), False),
    ):
        config = applied(exported, chunked)
        set_there = vars(config.parallelism).get("fsdp_reshard_after_forward")
        in_toml = toml(exported)["parallelism"].get("fsdp_reshard_after_forward")
        assert {set_there, in_toml} - {None} == resharding
        assert config.loss == ("inner" if inner else chunked)
        assert applied(exported, "plain").loss == "plain"
        hazards = exported.beside[".hazards.txt"].decode()
        assert ("loses the gradients" in hazards) is bool(resharding)
        assert ("ChunkedLossWrapper" in hazards) is inner
    for name, said in (("zb-h1", False), ("1f1b", None)):
        section = yaml(made(CHAIN, export_nemo_automodel, name).data.decode())["distributed"]
        assert section.get("reshard_after_forward") is said


@pytest.mark.parametrize("wanted", ["full", "none"])
def test_checkpointing_of_all_layers_is_written_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, wanted: Any
) -> None:
    """As it lies: without, torchtitan checkpoints by its own default, AutoModel does not."""
    there = ModuleType("torchtitan.distributed.activation_checkpoint")
    there.__dict__["FullAC"] = SimpleNamespace(Config=lambda: "a FullAC.Config")
    monkeypatch.setitem(sys.modules, there.__name__, there)
    exported = made(CHAIN, export_torchtitan, "1f1b", checkpointing=wanted)
    assert toml(exported)["activation_checkpoint"] == {"mode": wanted}
    config = applied(exported)
    assert config.activation_checkpoint == {"full": "a FullAC.Config", "none": None}[wanted]
    assert not hasattr(config.compile, "enable")
    recipe = made(CHAIN, export_nemo_automodel, "1f1b", checkpointing=wanted)
    section = yaml(recipe.data.decode())["distributed"]
    assert section["activation_checkpointing"] is (wanted == "full")
    split = made(CHAIN, export_torchtitan, "zb-h1", checkpointing="none")
    assert toml(split) == toml(made(CHAIN, export_torchtitan, "zb-h1"))


@pytest.mark.parametrize("to", sorted(EXPORTERS))
def test_checkpointing_is_refused_where_it_means_nothing(to: str) -> None:
    """Split backwards are never checkpointed; formats without a configuration cannot say it."""
    name = "zb-h1" if to in ("torchtitan", "automodel") else "1f1b"
    with pytest.raises(BadInput, match=r"^checkpointing: "):
        made(CHAIN, EXPORTERS[to], name, checkpointing="full")
    with pytest.raises(BadInput, match="checkpointing: got 'some', expected none or full"):
        Options(checkpointing="some")  # type: ignore[arg-type]


def test_the_csv_and_its_hazards_are_those_of_torch_csv() -> None:
    schedule = BASELINES["list-scheduling"](LOOP)
    alone = EXPORTERS["torch"](LOOP, schedule)
    for export in (export_torchtitan, export_nemo_automodel):
        exported = export(LOOP, schedule, Options())
        assert exported.beside[".csv"] == alone.data
        told = exported.beside[".hazards.txt"].decode().splitlines()
        assert told[0].startswith("- This is for torch 2.13 and torch 2.15:")
        assert {*alone.beside[".hazards.txt"].decode().splitlines()[1:]} < {*told}
        assert any("schedule.eval() divides" in line for line in told)
        assert set(alone.notes) < set(exported.notes)  # and how the model is cut


def test_a_path_with_quotes_stays_a_path() -> None:
    path = Path('a "b"\\c\'/東京 {x}#.y')
    schedule = BASELINES["1f1b"](CHAIN)
    exported = export_torchtitan(CHAIN, schedule, Options(path))
    wanted = path.with_suffix(".csv").name
    assert toml(exported)["parallelism"]["pipeline_parallel_schedule_csv"] == wanted
    assert applied(exported).parallelism.pipeline_parallel_schedule_csv == wanted
    document = yaml(export_nemo_automodel(CHAIN, schedule, Options(path)).data.decode())
    assert document["distributed"]["pipeline"]["pp_schedule_csv"] == wanted


@pytest.mark.parametrize("name", ["a/b\nx", "a\x7fb", "\udc80"])
def test_a_path_that_no_file_can_hold_is_refused(name: str) -> None:
    for export in (export_torchtitan, export_nemo_automodel):
        with pytest.raises(BadInput, match=r"path: .*printable"):
            export(CHAIN, BASELINES["1f1b"](CHAIN), Options(Path(name)))


# NeMo AutoModel


def test_automodel_s_section() -> None:
    exported = made(LOOP, export_nemo_automodel, "interleaved-1f1b", layers=8)
    section = yaml(exported.data.decode())["distributed"]
    assert (section["strategy"], section["pp_size"]) == ("fsdp2", 4)
    pipeline = section["pipeline"]
    assert pipeline.keys() == {
        "pp_schedule",
        "pp_schedule_csv",
        "pp_microbatch_size",
        "pp_batch_size",
        "scale_grads_in_schedule",
        "module_fqns_per_model_part",
    }
    assert pipeline["pp_schedule"] == "PipelineScheduleMulti"
    assert pipeline["pp_batch_size"] // pipeline["pp_microbatch_size"] == 8
    assert pipeline["scale_grads_in_schedule"] is False
    names = pipeline["module_fqns_per_model_part"]
    assert len(names) == 8
    assert names[0] == ["model.embed_tokens", "model.layers.0", "model.rotary_emb"]
    assert names[7] == ["model.layers.7", "model.norm", "lm_head", "model.rotary_emb"]


# Megatron-LM


@pytest.mark.parametrize(
    ("problem", "layers", "layout"),
    [
        (CHAIN, 8, "Ett|tt|tt|ttL"),
        (CHAIN, (3, 4, 4, 3), "Et*3|t*4|t*4|t*3L"),
        (LOOP, (0, 1, 1, 1, 1, 1, 1, 0), "E|t|t|t|t|t|t|L"),
        (CHAIN, (0, 0, 1, 0), "E||t|L"),  # of Megatron's documentation: the second is empty
    ],
)
def test_megatron_s_layout(problem: Problem, layers: Any, layout: str) -> None:
    exported = made(problem, export_megatron_layout, layers=layers)
    assert exported.data.decode().splitlines() == [
        "--pipeline-model-parallel-size=4",
        f"--pipeline-model-parallel-layout='{layout}'",  # | means something to a shell
    ]
    assert [*exported.beside] == [".knobs.json"]
    assert any("NOT the order" in note for note in exported.notes)


@pytest.mark.parametrize(
    ("m", "said"),
    [
        (8, None),
        (3, "refuses 3 microbatches: .* use 4 or more"),
        # groups of 4, 4 and 2; of 5, 5 and 5
        (10, "a last group of 2 is too small: use a multiple of 4, or add --microbatch-group-siz"),
    ],
)
def test_megatron_s_guard_is_named(m: int, said: str | None) -> None:
    exported = made(placed([0, 1, 2, 3] * 2, 4, m=m), export_megatron_layout, layers=8)
    warnings = [note for note in exported.notes if note.startswith("WARNING")]
    assert len(warnings) == (said is not None)
    # Megatron's own order is named as a baseline only where it runs
    assert any("PROBLEM interleaved-1f1b" in note for note in exported.notes) is (said is None)
    if said is not None:
        assert re.search(said, warnings[0])


@pytest.mark.parametrize(
    ("pattern", "layers", "expected"),
    [
        ("ME|M*|E|M/M", None, "ME|M*|E|M/M"),
        ("MEM*EM", (2, 2, 1, 1), "ME|M*|E|M"),
        ("MEM*EMME", 8, "ME|M*|EM|ME"),
        ("ME|M*E", None, "expected 4 stages, parted by |"),
        ("MEM*EM", 8, "expected 8 symbols, as many as layers"),
        ("Ett|t|t|tL", None, "expected M G * D + - E"),
    ],
)
def test_a_hybrid_models_pattern(pattern: str, layers: Any, expected: str) -> None:
    if "expected" in expected:
        with pytest.raises(BadInput, match=re.escape(expected)):
            made(CHAIN, export_megatron_layout, layers=layers, pattern=pattern)
        return
    exported = made(CHAIN, export_megatron_layout, layers=layers, pattern=pattern)
    assert exported.data.decode().splitlines() == [
        "--pipeline-model-parallel-size=4",
        f"--hybrid-layer-pattern={shlex.quote(expected)}",
    ]


OFFLOADS = [
    {"name": "all", "offload": {"out": 1, "in": 1, "held": 0}},
    {"name": "half", "offload": {"out": 1, "in": 1, "held": 4}},
    {"name": "again", "backward": "fused", "BW": 3, "held_after_F": 1},
]
MIB = 1 << 20


@pytest.mark.parametrize(
    ("modes", "options"),
    [  # 1F1B of 4 microbatches on 3 ranks; a digit per microbatch: 0 keep, 1 all, 2 half, 3 again
        ("0000 0000 0000", []),
        ("1111 1111 1111", ["1", "0"]),
        ("2222 2222 2222", ["0.5", "0"]),
        # rank r keeps the first r microbatches, of 8 MiB each
        ("1111 0111 0011", ["1", str(8 * MIB)]),
        ("2222 0222 0022", ["0.5", str(8 * MIB)]),
        # rank 2 keeps all, 4 * 8 MiB: by 2 ranks' 16 MiB it does
        ("1111 0011 0000", ["1", str(16 * MIB)]),
        ("1111 0000 0000", ["1", str(32 * MIB)]),
        ("1111 0111 0000", "none on rank 0, r times"),  # two of rank 2's four stay
        ("0111 0111 0111", "none on rank 0, r times"),
        ("1111 1011 1111", "none on rank 0, r times"),
        ("1111 2222 1111", "none on rank 0, r times"),
        ("1111 1111 1113", "is to be computed again"),
    ],
)
def test_what_a_schedule_offloads_in_megatrons_options(
    modes: str, options: list[str] | str
) -> None:
    stage = {"F": 1, "B": 1, "W": 1, "held_after_F": 8, "modes": OFFLOADS, "backward": "fused"}
    document = {
        "format": "pipesat.problem/1",
        "microbatches": 4,
        "memory_unit": "MiB",
        "devices": [{}] * 3,
        "stages": [{"device": device} | stage for device in range(3)],
    }
    problem = parse_problem(document)
    order = tuple(
        tuple(op._replace(mode=int(digits[op.microbatch])) for op in row)  # type: ignore[union-attr]
        for row, digits in zip(BASELINES["1f1b"](problem).order, modes.split(), strict=True)
    )
    schedule = time_order(problem, order)
    made = partial(export_megatron_layout, problem, schedule, Options(layers=3))
    slots = parse_problem(document | {"memory_unit": "slot"})
    if isinstance(options, str):
        for one in [problem] + [slots] * ("3" in modes):  # before what offloading needs
            with pytest.raises(NotApplicable, match=options):
                export_megatron_layout(one, time_order(one, order), Options(layers=3))
        return
    names = ["activation-offload-fraction", "delta-offload-bytes-across-pp-ranks"]
    wanted = [f"--{name}={value}" for name, value in zip(names, options, strict=False)]
    on = ["--fine-grained-activation-offloading"] if options else []
    assert made().data.decode().splitlines()[2:] == [*on, *wanted]
    assert any("--offload-modules names" in note for note in made().notes) == bool(options)
    if options:
        with pytest.raises(NotApplicable, match="memory is in no unit of bytes"):
            export_megatron_layout(slots, time_order(slots, order), Options(layers=3))


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_the_group_size_that_megatron_takes(p: int) -> None:
    """Groups of g: full ones, and a last one that is full or has at least p microbatches."""
    for m in range(p, 4 * p):
        groups = {g: [min(g, m - first) for first in range(0, m, g)] for g in range(p, m + 1)}
        fitting = [g for g, sizes in groups.items() if sizes[-1] == g or sizes[-1] >= p]
        assert group_sizes(p, m)[0] == fitting[0]
        answer = refusal(p, 3, m)
        assert (answer is None) is (fitting[0] == p)
        assert answer is None or f"virtual-pipeline-stage={fitting[0]}," in answer
    assert refusal(p, 1, 1) is None  # 1F1B takes any number
    assert refusal(1, 3, 9) is not None


def test_automodels_recipes_want_a_microbatch_per_rank() -> None:
    few = made(placed([0, 1, 2, 3], 4, m=3), export_nemo_automodel, "1f1b")
    assert any("at least 4 microbatches" in note for note in few.notes)
    assert not any("WARNING" in note for note in made(CHAIN, export_nemo_automodel, "1f1b").notes)


# Refused, with the reason


@pytest.mark.parametrize(
    ("problem", "export", "options", "reason"),
    [
        (BLOCKS, export_torchtitan, {}, "torchtitan cannot load .* ranks 0, 0, 1, 1"),
        (BLOCKS, export_nemo_automodel, {}, "NeMo AutoModel cannot load .* ranks 0, 0, 1, 1"),
        (BLOCKS, export_megatron_layout, {"layers": (1,)}, "in a loop"),
        (VEE, export_megatron_layout, {"layers": (1,)}, "in a loop"),
        (TWO_ROUTES, export_torchtitan, {}, "one route"),
        (TWO_ROUTES, export_nemo_automodel, {}, "one route"),
        (TWO_ROUTES, export_megatron_layout, {"layers": (1,)}, "one route"),
        (placed([0], 1), export_torchtitan, {}, "single rank"),
        (placed([0, 0], 1), export_nemo_automodel, {}, "single rank"),
        (THREE, export_torchtitan, {}, "stages per rank .* has 3: give the export `layers`"),
        (THREE, export_nemo_automodel, {}, "stages per rank .* has 3: give the export `layers`"),
        (CHAIN, export_megatron_layout, {}, "give `layers`"),
        (placed([0, 0], 1), export_megatron_layout, {"layers": (1,)}, "two ranks or more"),
        (CHAIN, export_torchtitan, {"layers": (1, 0, 1, 1)}, "without modules: stage 1"),
        (CHAIN, export_nemo_automodel, {"layers": (0, 1, 1, 1)}, "every stage, 0 has none"),
    ],
)
def test_what_a_framework_cannot_load(
    problem: Problem, export: Export, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotApplicable, match=reason):
        made(problem, export, **options)
    if reason == "single rank":  # refused before the search, too
        with pytest.raises(NotApplicable, match=reason):
            solve(problem, target="torchtitan", time_limit=1)


@pytest.mark.parametrize("export", FRAMEWORKS)
@pytest.mark.parametrize("layers", [(1, 2), (1,) * 5, (0,), (100_001,)])
def test_layers_that_do_not_fit(export: Export, layers: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"layers: .* expected"):
        made(CHAIN, export, layers=layers)


# The command


def test_export_writes_all_files(cli: Run, save: Save, tmp_path: Path) -> None:
    problem, schedule = save(VEE), save(schedule_bytes(VEE, BASELINES["zb-v"](VEE)), "s.json")
    output = tmp_path / "run.toml"
    outcome = cli("export", problem, schedule, "--to", "torchtitan", "-o", output)
    assert (outcome.code, outcome.err) == (0, "")
    files = {path.name for path in tmp_path.glob("run.*")}
    assert files == {"run.toml", "run.py", "run.csv", "run.hazards.txt", "run.knobs.json"}
    assert "without `--to layers` the framework cuts the model itself" in outcome.out
    csv = tomllib.loads(output.read_text())["parallelism"]["pipeline_parallel_schedule_csv"]
    assert (tmp_path / csv).read_bytes() == EXPORTERS["torch"](VEE, BASELINES["zb-v"](VEE)).data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "torchtitan", "-o", "x.csv"], "--output: got 'x.csv', this name is needed"),
        (
            ["--to", "trace", "-o", "x", "--to", "layers=1"],
            "--to layers: trace has no place for it",
        ),
        (["--to", "torchtitan", "-o", "x", "--to", "layers=1,"], "--to layers: got '1,'"),
        (
            ["--to", "megatron-layout", "-o", "x"],
            "layers each stage has: give `--to FORMAT,layers=...`",
        ),
        (
            ["--to", "megatron-layout", "-o", "x/"],
            "layers each stage has: give `--to FORMAT,layers=...`",
        ),
    ],
)
def test_bad_options(
    cli: Run,
    save: Save,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    problem, schedule = save(CHAIN), save(schedule_bytes(CHAIN, BASELINES["1f1b"](CHAIN)), "s.json")
    monkeypatch.chdir(tmp_path)
    outcome = cli("export", problem, schedule, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert not list(tmp_path.glob("x*"))


# As torchtitan loads it


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("problem", [CHAIN, LOOP, VEE, placed([0, 1, 2], 3, m=2), THREE])
def test_name_and_csv_give_one_placement_in_torch(problem: Problem) -> None:
    """Name -> class -> style and stages per rank -> mapping; CSV -> torch's own mapping."""
    pytest.importorskip("torch", reason="needs the extra `torch`")
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining._utils import generate_stage_to_rank_mapping

    exported = made(problem, export_torchtitan, layers=len(problem.stages))
    parallelism = toml(exported)["parallelism"]
    ranks = parallelism["pipeline_parallel_degree"]
    stages = len(parallelism["module_fqns_per_model_part"])
    schedule_class = schedules.get_schedule_class(parallelism["pipeline_parallel_schedule"])
    v_shaped = (schedules.ScheduleZBVZeroBubble, schedules.ScheduleDualPipeV)
    single = issubclass(schedule_class, schedules.PipelineScheduleSingle)
    assert stages % ranks == 0
    assert single == (stages == ranks)
    assert schedule_class not in v_shaped or stages == 2 * ranks
    style = "v" if schedule_class in v_shaped else "loop"
    mapping = generate_stage_to_rank_mapping(ranks, stages, style=style)

    rows = [line.split(",") for line in exported.beside[".csv"].decode().splitlines()]
    actions = {
        rank: [schedules._Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)
    }
    microbatches = applied(exported).training.local_batch_size
    loaded = schedules._validate_schedule(actions, ranks, stages, microbatches)
    assert loaded == mapping == {s: data.device for s, data in enumerate(problem.stages)}
