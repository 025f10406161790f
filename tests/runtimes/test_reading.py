"""Every file for another program is read back by its rules: planted faults of every writer."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.compare.exports import export
from pipesat.compare.hand_written import baseline
from pipesat.core.errors import BadInput, Fault
from pipesat.heuristics import BASELINES
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes import _OTHERS, EXPORTERS, RUNTIMES
from pipesat.runtimes.options import Options
from pipesat.runtimes.reading import require_as_meant
from pipesat.runtimes.runtime import Runtime
from pipesat.schedule.schedule import Exported
from tests.conftest import Run
from tests.support.problems import chain, loop

CHAIN = chain(2, 3)
LISTS = parse_problem(
    dict(CHAIN.document)
    | {"microbatches": [{"name": "a", "count": 2}, {"name": "b", "count": 1, "time": [2, 1]}]}
)
SIX = Options(layers=6)
ALONE = Options()

# 1F1B of three microbatches on two ranks: 0F0 0F1 0BW0 0F2 0BW1 0BW2, and 1F0 1BW0 1F1 ...
FAULTS: list[tuple[str, str, str, str]] = [  # format, suffix ("" the file itself), text, instead
    ("torch", "", "0F2", "0F1"),
    ("torch", "", "0B0,0F2", "0F2,0B0"),
    ("torch", "", "1F1", "1F1junk"),
    ("torch", ".order.json", "[0, 1, 2]", "[0, 2, 1]"),
    ("torchtitan", "", "degree = 2", "degree = 1"),
    ("torchtitan", "", "PipelineScheduleSingle", "PipelineScheduleMulti"),
    ("torchtitan", "", "local_batch_size = 3", "local_batch_size = 4"),
    ("torchtitan", "", "[parallelism]", "[parallelism"),
    ("torchtitan", "", "pipeline_parallel_degree", "pipeline_degree"),
    ("torchtitan", "", '"layers.3"', '"layers.4"'),
    ("torchtitan", ".py", "local_batch_size = 3", "local_batch_size = 6"),
    ("torchtitan", ".py", "    return config", "return config"),
    ("torchtitan", ".py", "schedule.csv", "other.csv"),
    ("torchtitan", ".py", "'layers.3'", "'layers.2'"),
    ("torchtitan", ".csv", "0B0,0F2", "0F2,0B0"),
    ("automodel", "", "pp_size: 2", "pp_size: 3"),
    ("automodel", "", "pp_batch_size: 3", "pp_batch_size: 2"),
    ("automodel", "", '"model.layers.5", ', ""),
    ("automodel", ".csv", "1B2", "1B1"),
    ("megatron", "", "size=2", "size=3"),
    ("megatron", "", "Et*3|t*3L", "Et*2|t*4L"),
    ("megatron", "", "Et*3|t*3L", "Et*3|t*3L|"),
    ("megatron", "", "--pipeline-model-parallel-layout", "--pipeline-layout"),
    ("primus", "", "0BW0 0F2", "0F2 0BW0"),
    ("primus", "", '"stages": 2', '"stages": 3'),
    ("primus", "", '"runtime": "primus"', '"runtime": "d9d"'),
    ("d9d", "", "1F2", "1F1"),
    ("d9d", "", '"placement": [0, 1]', '"placement": [1, 0]'),
    ("d9d", "", "class PipesatProgram", "class class"),
    ("jaxpp", "", "0BW2", "0B2 0W2"),
    ("jaxpp", "", '"microbatches": 3', '"microbatches": 4'),
    ("elf", "", "0BW0 0F2", "0F2 0BW0"),
    ("elf", "", '"placement": [0, 1]', '"placement": [0, 0]'),
    ("elf", "", "class Pipeline", "class class"),
    ("olmo-core", "", "3BW0", "3B0 3W0"),
    ("olmo-core", "", '"microbatches": 4', '"microbatches": 5'),
    ("olmo-core", "", "class Pipesat", "class class"),
    ("trace", "", '"microbatch":2', '"microbatch":1'),
    ("trace", "", '"ph":"f"', '"ph":"s"'),
    ("schedule", "", "0BW1", "0BW2"),
    ("schedule", "", "1,2]", "1,3]"),
    ("order", "", "[0, 1, 2]", "[0, 2, 1]"),
    ("order", "", "[0, 1, 2]", "[0, 1]"),
]


def options_for(name: str) -> Options:
    runtime = RUNTIMES.get(name)
    return SIX if runtime is not None and runtime.takes_layers else ALONE


@pytest.mark.parametrize(("name", "suffix", "text", "instead"), FAULTS)
def test_a_planted_fault_of_a_writer_is_caught(
    name: str, suffix: str, text: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = LISTS if suffix == ".order.json" else CHAIN
    schedule = BASELINES["1f1b"](problem)
    if name == "olmo-core":
        problem = loop(2, 2, 4)
        schedule = BASELINES["interleaved-1f1b"](problem)
    whole = EXPORTERS[name](problem, schedule, options_for(name))

    def wrong(*_: object) -> Exported:
        if suffix:
            data = whole.beside[suffix].decode()
            assert text in data
            changed = data.replace(text, instead, 1).encode()
            return replace(whole, beside={**whole.beside, suffix: changed})
        data = whole.data.decode()
        assert text in data
        return replace(whole, data=data.replace(text, instead, 1).encode())

    if name in RUNTIMES:
        monkeypatch.setitem(RUNTIMES, name, replace(RUNTIMES[name], write=wrong))
    else:
        monkeypatch.setitem(_OTHERS, name, _OTHERS[name]._replace(write=wrong))
    with pytest.raises(Fault) as error:
        EXPORTERS[name](problem, schedule, options_for(name))
    assert "\n" not in str(error.value)


def test_every_exporter_has_planted_faults() -> None:
    assert {name for name, *_ in FAULTS} == EXPORTERS.keys()


def test_no_exporter_is_registered_without_a_reader() -> None:
    fields = {field.name: field for field in dataclasses.fields(Runtime)}
    assert fields["read"].default is dataclasses.MISSING
    with pytest.raises(TypeError, match="read"):
        Runtime("x", "X", "1", "x.py", RUNTIMES["torch"].write)  # type: ignore[call-arg]
    with pytest.raises(Fault, match="nothing is known of what the file for x means"):
        require_as_meant("x", Exported(b""), dict)


# Megatron-LM's own orders


def groups(p: int, m: int, group: int) -> tuple[Problem, Any]:
    problem = loop(p, 2, m)
    return problem, baseline("interleaved-1f1b", problem, group=group)


@pytest.mark.parametrize(
    ("p", "m", "group", "flag"),
    [
        (4, 16, 8, 8),
        (4, 16, 4, None),  # one per rank is Megatron-LM's own default
        (4, 10, 5, 5),
        (4, 9, 5, 5),  # 5 and 4
        (2, 4, 4, 4),
    ],
)
def test_groups_that_are_asked_for_are_switched_on(
    p: int, m: int, group: int, flag: int | None
) -> None:
    problem, schedule = groups(p, m, group)
    for one in (schedule, replace(schedule, source="a search")):
        made = EXPORTERS["megatron"](problem, one, Options(layers=2 * p))
        lines = made.data.decode().splitlines()[2:]
        name = "--microbatch-group-size-per-virtual-pipeline-stage"
        assert lines == ([] if flag is None else [f"{name}={flag}"])
        assert made.notes[0].endswith(f"interleaved-1f1b, groups of {group}")


@pytest.mark.parametrize(
    ("name", "m", "said"),
    [
        ("interleaved-1f1b, groups of 5", 8, "refuses groups of 5 .* It takes groups of 4, 8"),
        ("interleaved-1f1b, groups of 8", 4, "group: got 8, expected at most 4"),
    ],
)
def test_groups_that_megatron_refuses_are_refused(
    cli: Run, save: Any, tmp_path: Any, name: str, m: int, said: str
) -> None:
    """The last of 5 and 3 has fewer microbatches than the 4 ranks; 8 are more than all."""
    out = tmp_path / "x.txt"
    outcome = cli("export", save(loop(4, 2, m)), name, "--to", "megatron,layers=8", "-o", out)
    assert outcome.code == 2
    assert not out.exists()
    assert re.search(said, " ".join(outcome.err.split()))


def test_what_other_groups_take_is_said_in_units(cli: Run, save: Any, tmp_path: Any) -> None:
    """4 ranks, groups of 4: 16 times F and BW of 1 ms each on a rank, and 3 ops each way."""
    costs = loop(4, 2, 8, F=1000, B=1000, W=0, held_after_F=512).document
    problem = parse_problem(dict(costs) | {"time_unit": "us", "memory_unit": "MiB"})
    words = ["interleaved-1f1b", "--to", "megatron,layers=8", "-o", tmp_path / "x.txt"]
    outcome = cli("export", save(problem), *words)
    assert outcome.code == 0
    assert re.search(r"value +known +\(ms\) +\(ms\) +peak", outcome.out)
    assert re.search(r"^ *4 +estimated +38 +38 +5\.5 GiB ", outcome.out, re.MULTILINE)


def test_pairs_that_megatron_runs_itself_are_switched_on() -> None:
    problem = parse_problem(dict(loop(2, 2, 4).document) | {"overlap": {"FB": [1, 2]}})
    schedule = BASELINES["interleaved-overlapped"](problem)
    made = EXPORTERS["megatron"](problem, schedule, Options(layers=4))
    wanted = ["--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"]
    assert made.data.decode().splitlines()[2:] == wanted


def test_an_order_of_microbatches_is_said_where_no_option_has_it() -> None:
    schedule = baseline("1f1b", LISTS, "descending")  # the long one, number 2, first
    notes = EXPORTERS["megatron"](LISTS, schedule, SIX).notes
    assert notes[0] == "Megatron-LM runs this order itself: 1f1b"
    assert "--to order" in notes[1]
    assert json.loads(EXPORTERS["order"](LISTS, schedule).data)[0] == 2


def test_it_is_said_where_the_1f1b_that_megatron_runs_exceeds_memory() -> None:
    """It holds min(p - d, m) = 2 on device 0 of 2; one microbatch at a time holds 1."""
    problem = chain(2, 4, cap=1)
    schedule = next(made for made in list_schedules(problem) if not check(problem, made))
    wanted = "WARNING: 1f1b does not fit into memory: 2 of 1 on device 0"
    told = EXPORTERS["megatron"](problem, schedule, Options(layers=4)).notes
    assert sum(note.startswith(wanted) for note in told) == 1
    roomy = chain(2, 4, cap=2)
    made = EXPORTERS["megatron"](roomy, schedule, Options(layers=4))
    assert not any("does not fit" in note for note in made.notes)


# One meaning of layers


@pytest.mark.parametrize("to", ["torchtitan", "automodel", "megatron"])
def test_layers_are_all_of_the_model(to: str) -> None:
    """32 on four stages are 8 each; they are said, and 12 of 5 stages are refused."""
    four, five = chain(4, 4), chain(5, 5)
    made = export(four, "1f1b", to, layers=32)
    text = made.data.decode()
    told = "32 transformer layers in all, 4 stages: 8 on each"
    assert any(note == told for note in made.notes)
    assert to == "megatron" or f"# {told}" in text
    assert to == "megatron" or "layers.31" in text
    assert to == "megatron" or "layers.32" not in text
    assert to != "megatron" or "'Et*8|t*8|t*8|t*8L'" in text
    assert export(four, "1f1b", to, layers=[8, 8, 8, 8]).data == made.data
    with pytest.raises(BadInput, match="12 layers in all, expected a multiple of 5, the stages"):
        export(five, "1f1b", to, layers=12)
