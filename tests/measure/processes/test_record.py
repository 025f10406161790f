"""The recorder that users copy: which op a call was, which steps count, and what the file says."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipesat.core.errors import BadInput
from pipesat.measure.timeline.refit import refit
from pipesat.runtimes.timeline_file import read_timeline
from tests.support.paths import ROOT
from tests.support.problems import chain

torch = pytest.importorskip("torch", reason="needs torch: pip install 'pipesat[torch]'")


class Clock:
    """Seconds since 1970 that pass only when the pipeline computes."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    import pipesat.record

    clock = Clock()
    monkeypatch.setattr(pipesat.record, "time", clock)
    return clock


class Pipeline:
    """Two chunks on one rank, 1 ms a forward, 2 ms a backward, 0.5 ms between; torn lists, too."""

    def __init__(self, clock: Clock, chunks: int = 2) -> None:
        self.clock, self.chunks = clock, [torch.nn.Linear(2, 2) for _ in range(chunks)]

    def forward(self, batch: Any, model: Any) -> list[Any]:
        self.clock.now += 1e-3
        return [model(batch)]

    def backward(self, made: list[Any]) -> None:
        self.clock.now += 2e-3
        made.pop()  # as Megatron does with lists that it was handed

    def run(self, *, training: bool = True) -> str:
        alive = []
        for microbatch in range(2):
            batch = torch.full((1, 2), float(microbatch))
            for model in self.chunks:
                alive.append(self.forward(batch, model))
                batch = alive[-1][0]
        while training and alive:
            self.clock.now += 0.5e-3
            self.backward(alive.pop(0 if len(alive) == 4 else -1))
        return "done"


def recorded(pipeline: Pipeline, path: Path, **options: Any) -> None:
    from pipesat.record import record

    functions = [("forward", "F"), ("backward", "BW"), ("run", "step")]
    record(str(path), *((pipeline, name, op) for name, op in functions), **options)


def test_ops_are_known_by_their_tensors_and_evaluations_are_no_steps(
    tmp_path: Path, clock: Clock
) -> None:
    pipeline, path = Pipeline(clock), tmp_path / "timeline.json"
    recorded(pipeline, path, skip=1, steps=2, clock_error=0)
    for training in (True, False, True, False):
        assert pipeline.run(training=training) == "done"
    assert not path.exists()
    pipeline.run()
    assert pipeline.forward == Pipeline.forward.__get__(pipeline)  # as it was
    document = json.loads(path.read_text())
    assert len(document["steps"]) == 2
    (row,) = document["steps"][1]["devices"]
    # two forwards of each of two microbatches, then the oldest backward and the rest from the top
    assert [op[0] for op in row["ops"]] == [
        *("0F0", "1F0", "0F1", "1F1"),
        *("0BW0", "1BW1", "0BW1", "1BW0"),
    ]
    starts = [0, 1000, 2000, 3000, 4500, 7000, 9500, 12000]
    lengths, waits = [1000] * 4 + [2000] * 4, [0] * 4 + [500] * 4
    for (_, start, end, waited, cpu), *expected in zip(
        row["ops"], starts, lengths, waits, strict=True
    ):
        assert [start, end - start, waited] == pytest.approx(expected, abs=1)  # floats of us
        assert cpu is None


def test_the_file_is_a_timeline_of_the_problem_that_is_named(tmp_path: Path, clock: Clock) -> None:
    problem, path = chain(1, 2, F=7, B=7, W=7), tmp_path / "timeline.json"
    pipeline = Pipeline(clock, chunks=1)
    head = {"problem_sha256": problem.sha256, "us_per_time_unit": 10}
    recorded(pipeline, path, skip=0, steps=1, **head)
    pipeline.run()
    timeline = read_timeline(path, problem)
    assert timeline.clock_error is None  # nobody said that the clocks agree
    stage = refit(problem, timeline).problem.stages[0]
    assert (stage.F, stage.BW) == (100, 200)  # 1 and 2 ms, in units of 10 us
    with pytest.raises(BadInput, match="0F2 on device 0 is missing"):
        read_timeline(path, chain(1, 3))


def test_a_backward_of_nothing_that_was_recorded_is_refused(tmp_path: Path, clock: Clock) -> None:
    pipeline = Pipeline(clock)
    recorded(pipeline, tmp_path / "timeline.json")
    with pytest.raises(LookupError, match="BW was given nothing that an F returned"):
        pipeline.backward([torch.ones(1)])


def test_ops_can_be_named_by_the_caller(tmp_path: Path, clock: Clock) -> None:
    from pipesat.record import record

    work = SimpleNamespace(run=lambda kind, number: None, optimizer=lambda: None)
    path = tmp_path / "timeline.json"
    named = (work, "run", lambda kind, number: f"0{kind}{number}")
    record(str(path), named, (work, "optimizer", "step"), skip=0, steps=1)
    for op in (("F", 0), ("B", 0), ("W", 0)):
        work.run(*op)
    work.optimizer()
    timeline = read_timeline(path, chain(1, 1))
    assert [str(ran.item) for _, ran in timeline.steps[0]] == ["0F0", "0B0", "0W0"]


def test_megatrons_functions_are_taken_where_none_are_given(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megatron's names, by a stand-in; the real ones ran once, by a script at c897d5f9."""
    from pipesat.record import record

    pipeline = Pipeline(clock, chunks=1)
    schedules = SimpleNamespace(forward_step=pipeline.forward, backward_step=pipeline.backward)

    def forward_backward_no_pipelining() -> None:
        pipeline.forward, pipeline.backward = schedules.forward_step, schedules.backward_step
        pipeline.run()

    schedules.forward_backward_no_pipelining = forward_backward_no_pipelining
    state = SimpleNamespace(get_pipeline_model_parallel_group=lambda: None)
    modules = {"megatron.core.pipeline_parallel.schedules": schedules}
    for name, module in (modules | {"megatron.core.parallel_state": state}).items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    path = tmp_path / "timeline.json"
    record(str(path), skip=0, steps=1)
    schedules.forward_backward_no_pipelining()
    timeline = read_timeline(path, chain(1, 2))
    assert [str(ran.item) for _, ran in timeline.steps[0]] == ["0F0", "0F1", "0BW1", "0BW0"]


def test_ranks_are_put_together_and_their_stages_numbered(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 of two, whose other rank began 3 ms earlier; both write what rank 0 would."""
    from pipesat import record

    def gather(into: list[Any], mine: list[Any], group: Any) -> None:
        assert group == "pipeline"
        (steps,) = mine
        other = [("0F0", *(us - 3000 for us in steps[0][1:])), ("0BW0", 1.8e15, 1.8e15, 1.8e15)]
        into[:] = [[other], mine]

    fake = SimpleNamespace(
        is_initialized=lambda: True,
        get_world_size=lambda group: 2,
        get_rank=lambda group=None: 0 if group is None else 1,
        all_gather_object=gather,
    )
    monkeypatch.setattr(record, "distributed", fake)
    pipeline, path = Pipeline(clock), tmp_path / "timeline.json"
    recorded(pipeline, path, skip=0, steps=1, group=lambda: "pipeline")
    pipeline.run()
    first, second = json.loads(path.read_text())["steps"][0]["devices"]
    assert first["ops"][0][1] == 0
    assert second["ops"][0][1] == pytest.approx(3000, abs=1)
    assert {op[0][0] for op in second["ops"]} == {"1", "3"}  # chunk * 2 + 1


def test_on_cuda_events_are_tied_to_the_hosts_clock(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is a second behind the host, except where the host waits for it."""
    behind = [0.0]

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = clock.now + behind[0]
            behind[0] = 1.0

        def elapsed_time(self, later: Event) -> float:
            return (later.at - self.at) * 1e3

    cuda = SimpleNamespace(
        is_available=lambda: True, Event=Event, synchronize=lambda: behind.__setitem__(0, 0.0)
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    pipeline, path = Pipeline(clock, chunks=1), tmp_path / "timeline.json"
    recorded(pipeline, path, skip=0, steps=1)
    pipeline.run()
    (row,) = json.loads(path.read_text())["steps"][0]["devices"]
    first, second, *_ = row["ops"]
    # F0 is enqueued on an idle device at 0; its end and all of F1 come a second late
    assert [*first[1:3], *second[1:3]] == pytest.approx([0, 1.001e6, 1.001e6, 1.002e6], abs=1)


def test_it_is_one_short_file_without_pipesat() -> None:
    text = (ROOT / "pipesat" / "record.py").read_text()
    tree = list(ast.walk(ast.parse(text)))
    used = {name.name for node in tree if isinstance(node, ast.Import) for name in node.names}
    used |= {str(node.module) for node in tree if isinstance(node, ast.ImportFrom)}
    assert text.count("\n") < 100
    assert {name.split(".")[0] for name in used} - {"torch"} <= sys.stdlib_module_names
