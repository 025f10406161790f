"""Traces of runs made up here: what is found in them, in every format, and what is refused."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pipesat import Problem, compare, solve
from pipesat.check.checker import check
from pipesat.core.claims import percent
from pipesat.core.errors import BadInput
from pipesat.heuristics import BASELINES
from pipesat.measure.timeline.readers import read_trace
from pipesat.measure.timeline.readers.rows import TraceStatement
from pipesat.measure.timeline.steps import steps_of
from pipesat.measure.timeline.trace import import_traces
from pipesat.measure.timeline.trace_costs import TraceCosts
from pipesat.measure.timeline.trace_problem import predict
from pipesat.measure.trace_answer import TraceAnswer
from pipesat.measure.traces import compare_timeline, import_trace
from pipesat.problem.ops import members
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.schedule_file import read_schedule
from tests.conftest import Run
from tests.support import traced
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain
from tests.support.traced import Traced, made_up


def read(*paths: str | Path, time_limit: float = 0.2, **told: object) -> TraceAnswer:
    return import_trace([*paths], time_limit=time_limit, workers=1, **told)  # type: ignore[arg-type]


def saved(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def torch_files(folder: Path, documents: Sequence[object]) -> Path:
    folder.mkdir()
    for number, document in enumerate(documents):
        saved(folder / f"rank{number}.json", document)
    return folder


def merged(documents: Sequence[dict[str, object]], key: str = "pid") -> dict[str, object]:
    """All ranks in one file, told by their process or thread."""
    events: list[dict[str, object]] = []
    for rank, one in enumerate(documents):
        place = {"pid": 7, "tid": 7} | {key: 2 * rank + 9}  # 9 before 11, which as texts it is not
        events += [event | place for event in one["traceEvents"]]  # type: ignore[attr-defined]
    return {"traceEvents": events}


Write = Callable[[Path, list[Traced]], Path]
FORMATS: dict[str, tuple[str, Write]] = {
    "primus": ("Primus dump_pp_data", traced.primus),
    "ndtimeline": ("NDTimeline", lambda path, run: saved(path, traced.ndtimeline(run))),
    "torch": ("torch profiler", lambda path, run: torch_files(path, traced.torch_traces(run))),
    "no prefix": (
        "torch profiler",
        lambda path, run: torch_files(path, traced.torch_traces(run, "")),
    ),
    "torch, all ranks in one file": (
        "torch profiler",
        lambda path, run: saved(path, merged(traced.torch_traces(run))),
    ),
    "recorded": ("pipesat timeline", lambda path, run: saved(path, traced.recorded(run))),
}


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_made_up_is_found(kind: str, chunks: int, tmp_path: Path) -> None:
    """Stage s takes 20 + s ms forward, 40 + s backward; 2 ms a hop between ranks."""

    def length(stage: int, kind: str, microbatch: int, step: int) -> float:
        return (20.0 if kind == "F" else 40.0) + stage

    run = made_up(4, 8, chunks, length=length, delay=2.0)
    name, write = FORMATS[kind]
    found = read(write(tmp_path / "trace", run))
    document = found.document()
    assert document["format"] == name
    assert (document["devices"], document["stages"]) == (4, 4 * chunks)
    assert document["placement"] == ("chain" if chunks == 1 else "loop")
    assert (document["microbatches"], document["steps"], document["warm_ups"]) == (8, 3, {})
    assert document["schedule"] == ("1f1b" if chunks == 1 else "interleaved-1f1b")
    for number, stage in enumerate(found.problem.stages):
        costs = [20_000 + 1000 * number, 40_000 + 1000 * number]
        assert costs == [stage.F, stage.BW]
        assert stage.device == number % 4
    measured = max(op.end for op in run if op.step == 0) - 100
    assert document["measured"] == pytest.approx(1000 * measured, rel=1e-4)
    assert document["link_delay"] == pytest.approx(2000, rel=0.02)
    assert document["link_delay_seen"] == pytest.approx(2000, rel=0.02)
    assert found.schedule.makespan == pytest.approx(1000 * measured, rel=1e-3)
    assert check(found.problem, found.schedule) == []
    assert document["stalls"] == []


REAL = {
    "gpipe": {"F": [20.62, 20.63], "BW": [30.61, 32.20]},
    "interleaved": {"F": [21.13, 20.57, 21.74, 20.78], "BW": [30.51, 32.03, 32.05, 30.94]},
}


@pytest.mark.parametrize("kind", REAL)
def test_costs_of_a_run_of_torch_hold_no_waiting(kind: str, tmp_path: Path) -> None:
    """Every stage slept 20 ms forward, 30 ms backward, two ranks on a busy machine; 4 MB messages.

    What is expected is counted by hand: an op lasts from the end of the ``gloo:recv`` that ends
    within its range, if any, to the ``c10d::send`` there, if any, else as its range. The forwards
    of GPipe's stage 1 took 20.60, 22.42, 25.32, 20.67, 20.54 and 20.54 ms: 20.63 in the median.
    """
    documents = json.loads(Path(__file__).with_name(f"torch-2.13-gloo-{kind}.json").read_text())
    found = read(torch_files(tmp_path / "t", documents))
    for name, costs in REAL[kind].items():
        ms = [getattr(stage, name) / 1000 for stage in found.problem.stages]
        assert ms == pytest.approx(costs, abs=0.01)
        assert max(costs) < 1.07 * min(costs)  # stages are alike
    assert found.document()["waiting_inside"] == {}
    assert found.name == {"gpipe": "gpipe", "interleaved": "interleaved-1f1b"}[kind]
    for key in ("pid", "tid"):
        assert read(saved(tmp_path / "one.json", merged(documents, key))).problem == found.problem


def test_without_receives_no_cost_is_given(tmp_path: Path) -> None:
    """Rank 1 turns to its first and third F before their input is sent, rank 0 to its backwards.

    As early as possible, rank 1 runs F0 at 22 ms, BW0 at 42, F1 at 82, BW1 at 102, F2 at 146, BW2
    at 166 and F3 at 206. Rank 0 sends their inputs at 20, 40, 144 and 204.
    """
    run = made_up(2, 4, delay=2.0)
    found = read(torch_files(tmp_path / "t", traced.torch_traces(run, receives=False)))
    document = found.document()
    assert document["waiting_inside"] == {"F": [1], "BW": [0]}
    assert [(row["F"], row["BW"]) for row in document["by_stage"]] == [
        (20_000, None),
        (None, 40_000),
    ]
    claims = ("best", "lower_bound", "gain", "gain_at_most")
    assert [document[name] for name in claims] == [None] * 4
    assert document["with_more_memory"]["best"] is None
    assert found.verdict == "cannot be told: no cost is known of F of stage 1 and BW of stage 0"
    assert "no cost is measured" in dict(found.facts())["Not in the trace"]


def test_a_host_that_runs_ahead_of_its_gpu_is_said(tmp_path: Path) -> None:
    """NCCL's receives return at once on the host, so that they tell nothing of the input."""
    documents = traced.torch_traces(made_up(2, 4))
    text = json.dumps(documents).replace("gloo:recv", "nccl:recv 0<-1")
    found = read(torch_files(tmp_path / "t", json.loads(text)))
    assert "times of the host" in dict(found.facts())["Not in the trace"]


def test_a_gain_has_its_memory(tmp_path: Path) -> None:
    """F 1 ms, BW 2 ms, 0.4 ms a hop, 3 microbatches. 1F1B holds 2 on rank 0 and takes 13.6 ms.

    With a third, rank 1 never waits: its 9 ms begin at 1.4, and rank 0 ends 2.4 later: 12.8 ms.
    """
    run = made_up(
        2, 3, steps=1, delay=0.4, length=lambda stage, kind, *_: 1.0 if kind == "F" else 2.0
    )
    trace = saved(tmp_path / "t.json", traced.ndtimeline(run))
    found = read(trace)
    document = found.document()
    assert (document["best"], document["lower_bound"]) == (13_600, 13_600)
    assert (
        "nothing to gain with no more activations on any rank: no order with whole backwards is "
        "shorter on these costs" in found.verdict
    )
    more = document["with_more_memory"]
    assert (more["best"], more["lower_bound"], more["added"]) == (12_800, 12_800, [1, 0])
    assert more["gain"] == pytest.approx(0.8 / 13.6)
    # one step: it gave the costs, so it cannot judge them
    assert document["resolution"] is None
    said = dict(found.facts())["More memory"]
    assert "5.9 % shorter, but no error could be measured" in said
    assert "1 on rank 0" in said
    then = dict(found.facts())["Next"]  # the order in the file is not that of the line before it
    assert "takes as long as the order that ran: there is nothing to export" in then
    assert "more-memory/ has the order" in then
    found.save(tmp_path / "out")
    free = read_problem(tmp_path / "out" / "more-memory" / "problem.json")
    order = read_schedule(tmp_path / "out" / "more-memory" / "best.json", free)
    assert (order.makespan, check(free, order)) == (12_800, [])
    given = read(trace, memory="3MiB", held="1MiB")
    assert (given.result.value, given.more) == (12_800, None)
    assert "5.9 % shorter within memory" in given.verdict


def test_whole_backwards_are_split_if_that_is_assumed(tmp_path: Path) -> None:
    """F 1 ms, BW 2 ms, 2 ranks, 2 microbatches. 1F1B takes (2 + 1) x 3 = 9 ms.

    With B and W of 1 ms each, rank 1, which holds one activation, runs F0, B0, W0, F1, B1 from 1 to
    6. Rank 0 then runs B1 and W1: 8 ms. With two, it runs F0, B0, F1, B1 to 5: 7 ms.
    """
    run = made_up(2, 2, steps=1, length=lambda stage, kind, *_: 1.0 if kind == "F" else 2.0)
    trace = saved(tmp_path / "t.json", traced.ndtimeline(run))
    whole, split = read(trace), read(trace, split=0.5, time_limit=20)  # it ends by its proof
    half = {"B": 1000, "W": 1000, "backward": "fused"}
    for stage in whole.problem.document["stages"]:
        assert half.items() <= stage.items()  # split by hand, it does not have a B for nothing
    assert "no order with whole backwards is shorter" in whole.verdict
    assert "--split 0.5 assumes" in dict(whole.facts())["Backwards"]
    assert (whole.result.value, split.result.value) == (9000, 8000)
    assert split.more is not None
    assert split.more.value == 7000
    assert split.verdict.endswith("Parts of backwards are assumed")
    assert "B takes 50 % of a whole one" in dict(split.facts())["Backwards"]
    uneven = read(trace, split=0.25).problem.stages
    assert [(s.B, s.W, s.BW, s.backward) for s in uneven] == [(500, 1500, 2000, "either")] * 2


def test_a_gain_from_a_delay_that_was_not_seen_is_told(cli, tmp_path: Path) -> None:
    """Ops of 20 ms but for an F of rank 1 in each step, of 60: no median has its 40 ms.

    No hop takes any time, and yet the fitted delay of all hops on the step's way is these 40 ms.
    """

    def length(stage: int, kind: str, microbatch: int, step: int) -> float:
        return 60.0 if (stage, kind, microbatch) == (1, "F", step % 3) else 20.0

    trace = saved(tmp_path / "t.json", traced.ndtimeline(made_up(2, 3, length=length)))
    found = read(trace)
    assert found.document()["link_delay"] > 10_000
    assert found.document()["link_delay_seen"] == pytest.approx(0, abs=1)
    said = dict(found.facts())
    assert "of it were not seen" in said["Link delay"]
    assert said["Schedule"].endswith("with the fitted link delay")
    of_ran, of_best = found.schedule.makespan, found.result.value
    work = 6 * 20 * 2 * 1000  # both ranks together, in us
    shares = (percent(1 - work / (2 * makespan)) for makespan in (of_ran, of_best))
    assert said["Bubble"] == "{} of the makespan, {} in the best order".format(*shares)
    more = found.document()["with_more_memory"]
    assert more["gain"] > 0.05 > more["gain_with_delay_seen"]
    assert "With the link delay that was seen, this order is no shorter" in said["More memory"]
    seen = "This holds with the fitted link delay, more than twice the delay that was seen"
    assert said["Gain"].startswith("nothing to gain")
    assert said["Gain"].endswith(seen)
    found.save(tmp_path / "out")
    files = (tmp_path / "out" / name for name in ("problem.json", "timeline.json"))
    problem, timeline = files
    assert "fitted to measured steps" in cli("timeline", "compare", problem, timeline).out
    renamed = compare_timeline(read_problem(problem).with_name("mine"), timeline)
    assert renamed.fitted
    other = read_problem(problem).with_comm(7).with_name("with this link delay fitted")
    assert not compare_timeline(other, timeline).fitted
    assert read(trace, link_delay="0").if_seen == ()


def test_errors_are_of_steps_that_were_not_fitted(tmp_path: Path) -> None:
    """Ops of step 1 take 1.1 times those of step 0.

    Step 0 told from step 1 is 10 % too long, step 1 told from step 0 is 1/11 too short.
    """
    run = made_up(
        2, 4, steps=2, length=lambda s, kind, k, step: (20 + 2 * step) * (1 + (kind == "B"))
    )
    found = read(saved(tmp_path / "t.json", traced.ndtimeline(run)))
    assert found.prediction.resolves == pytest.approx((1 / 10 + 1 / 11) / 2)


@pytest.mark.parametrize(("delay", "fitted"), [(5.0, 5000), (0.001, 0)])
def test_predictions_of_other_steps_have_the_link_delay_that_was_seen(
    tmp_path: Path, delay: float, fitted: int
) -> None:
    """All steps are alike, so that with this delay each tells all others; 1 us a hop is none."""
    found = read(saved(tmp_path / "t.json", traced.ndtimeline(made_up(2, 4, delay=delay))))
    assert found.prediction.resolves == pytest.approx(0, abs=1e-9)
    assert found.document()["link_delay"] == pytest.approx(fitted, abs=1)
    assert found.prediction.seen_alone is None


def test_clocks_that_differ_tell_no_link_delay(tmp_path: Path) -> None:
    """The last rank's clock is 1 s late: its gradients seem to be sent after their use."""
    run = [
        op._replace(start=op.start + 1000, end=op.end + 1000) if op.rank else op
        for op in made_up(2, 4, delay=5.0)
    ]
    found = read(saved(tmp_path / "t.json", traced.ndtimeline(run)))
    document = found.document()
    assert document["link_delay"] == pytest.approx(5000, abs=1)
    assert document["link_delay_seen"] is None
    assert dict(found.facts())["Link delay"].endswith(
        "Clocks of ranks differ, so that no delay was seen"
    )


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_a_schedule_drawn_as_a_trace_has_an_order_and_no_times(
    cli, save, tmp_path: Path, name: str
) -> None:
    document = {"format": "pipesat.problem/1", "microbatches": 3, "devices": [{}, {}]}
    document["stages"] = [{"device": d, "F": 3, "B": 2, "W": 1} for d in (0, 1)]
    problem, picture = save(document), tmp_path / "trace.json"
    assert cli("export", problem, name, "--to", "trace", "-o", picture).code == 0
    found = cli("timeline", "import", picture, "-o", tmp_path / "out", "--json").json
    assert (found["format"], found["measured"]) == ("schedule", None)
    assert found["notes"] == ["times are predicted: pipesat wrote this trace of a schedule"]
    own = read_problem(tmp_path / "out" / "problem.json")
    assert [(stage.F, stage.BW) for stage in own.stages] == [(3, 3)] * 2
    order = read_schedule(tmp_path / "out" / "schedule.json", own).order
    assert order == BASELINES[name](read_problem(problem)).order
    folder = traced.primus(tmp_path / "pp", made_up())
    picture.rename(folder / "trace.json")  # what else lies in a folder is left alone
    assert read(folder).name == "1f1b"


ARGUMENTS = """
  pipeline_model_parallel_size .................... 2
  data_parallel_size .............................. 2
  micro_batch_size ................................ 1
  global_batch_size ............................... 16
"""


MEGATRON = Path(__file__).parents[1] / "measure" / "timeline" / "megatron-core-0.16.1-timers.log"


def test_a_log_that_megatron_core_wrote_is_laid_out_by_its_order() -> None:
    """Two ranks of two chunks on gloo, 8 microbatches, 9 steps: the median of the last eight."""
    blocks = MEGATRON.read_text().split("times across ranks (ms):")[2:]
    forward = [float(block.split("rank  0: ")[1].split()[0]) for block in blocks]
    found = read(MEGATRON, microbatches=8, chunks=2)
    assert (found.name, found.document()["measured"], found.timeline) == (
        "interleaved-1f1b",
        None,
        None,
    )
    assert [stage.device for stage in found.problem.stages] == [0, 1, 0, 1]
    each = 1000 * sorted(forward)[len(forward) // 2] / 16
    assert [found.problem.stages[stage].F for stage in (0, 2)] == [round(each)] * 2


def test_a_log_of_timers_gives_averages(tmp_path: Path) -> None:
    """8 microbatches: 16 / (1 x 2). Two ranks are one pipeline rank, the first block is left."""
    warm = {"forward-compute": [999.0] * 4, "backward-compute": [999.0] * 4}
    usual = {"forward-compute": [80, 80, 96, 96], "backward-compute": [160, 160, 240, 240]}
    log = saved(tmp_path / "log.txt", traced.timer_log([warm, usual, usual], ARGUMENTS))
    found = read(log)
    assert [(s.F, s.BW) for s in found.problem.stages] == [(10_000, 20_000), (12_000, 30_000)]
    assert found.problem.microbatches == (8, 8)
    assert "averages only" in dict(found.facts())["Not in the trace"]
    bare = saved(tmp_path / "bare.txt", traced.timer_log([usual]))
    assert read(bare, microbatches=8).steps.devices == 4
    with pytest.raises(BadInput, match="how many microbatches"):
        read(bare)


def test_warm_ups_and_stalls_are_found_and_left_out(tmp_path: Path) -> None:
    """Step 0 has an op of 5 s; in step 3 an op of rank 1 takes 300 ms more, in step 4 one waits."""

    def length(stage: int, kind: str, microbatch: int, step: int) -> float:
        usual = 20.0 if kind == "F" else 40.0
        if (stage, kind, microbatch, step) == (0, "F", 0, 0):
            return 5000.0
        return usual + 300 * ((stage, kind, microbatch, step) == (1, "B", 4, 3))

    trace = traced.primus(tmp_path / "pp", made_up(steps=6, length=length))
    found = read(trace, time_limit=20)  # it ends by its proof
    document = found.document()
    # 1F1B of 4 ranks and 8 microbatches of 60 ms: (8 + 3) x 60 = 660 ms; step 0 takes 4980 more
    assert document["measured"] == pytest.approx(660_000)
    assert document["warm_ups"] == {"1": pytest.approx(5640 / 660)}
    (stall,) = document["stalls"]
    assert (stall["op"], stall["step"]) == ("1BW4", 4)
    assert stall["excess"] == pytest.approx(300_000)
    (lost,) = document["lost_to_stalls"]
    assert lost["lost"] == pytest.approx(document["longest"] - 660_000)
    assert document["gain_at_most"] == pytest.approx(0, abs=0.01)
    assert "nothing to gain" in found.verdict


def test_lengths_that_differ_become_classes(tmp_path: Path) -> None:
    """Two lengths, dealt differently to each replica and step: 1 and 3 times the usual."""

    def of(replica: int) -> traced.Length:
        def length(stage: int, kind: str, microbatch: int, step: int) -> float:
            long = (microbatch * 7 + step * 3 + replica) % 4 == 0
            return (20.0 if kind == "F" else 40.0) * (3 if long else 1) + stage

        return length

    runs = [made_up(2, 8, length=of(r)) for r in range(4)]
    found = read(saved(tmp_path / "t.json", traced.ndtimeline(*runs)), replica=1)
    document = found.document()
    assert (document["replicas"], document["replica"], document["classes"]) == (4, 1, 2)
    assert abs(document["errors"]["classes"]["median"]) < 0.002
    assert document["errors"]["medians"]["median"] < -0.1
    assert found.problem.has_lists
    assert check(found.problem, found.schedule) == []
    long = {m for m in range(8) if found.problem.class_of(0, m) != found.problem.class_of(0, 1)}
    assert len(long) == 2


def test_steps_that_are_cut_off_and_ranks_recorded_for_longer(tmp_path: Path) -> None:
    """A profiler that starts within a step, on rank 3 a step earlier, and ends within another."""
    run = made_up(4, 8, steps=6)
    middle = [(a + b) / 2 for a, b in ((100, 760), (770, 1430), (3450, 4110))]
    kept = [
        op
        for op in run
        if (op.start > middle[0] if op.rank == 3 else op.start > middle[1]) and op.end < middle[2]
    ]
    found = read(torch_files(tmp_path / "t", traced.torch_traces(kept)))
    assert found.document()["steps"] == 3  # steps 2, 3 and 4 are whole on all ranks
    assert found.name == "1f1b"


def test_a_v_is_told_from_a_loop(tmp_path: Path) -> None:
    """Two chunks, the second passed back from the last rank: 2 ranks, 1 microbatch, by hand."""
    times = [(0, 0, "F", 0), (1, 0, "F", 1), (1, 1, "F", 2), (0, 1, "F", 3)]
    times += [(r, c, "B", 8 - at) for r, c, _, at in times]
    run = [
        Traced(step, r, c, 0, kind, 0, 100.0 * step + 10 * at, 100.0 * step + 10 * at + 9)
        for step in range(2)
        for r, c, kind, at in times
    ]
    found = read(saved(tmp_path / "t.json", traced.ndtimeline(run)))
    assert found.steps.placement == "vee"
    assert found.steps.homes == (0, 1, 1, 0)


def test_a_range_of_two_ops_is_cut_in_proportion(tmp_path: Path) -> None:
    """torch's name. On the last rank, 1B0 and 1F1 have one range, of 40 + 20 ms."""
    documents = traced.torch_traces(made_up(2, 4), receives=False)
    for event in list(documents[1]["traceEvents"]):  # type: ignore[call-overload]
        if event["name"] == "PP:1B0":
            event["name"] = "PP:(1F1;1B0)OVERLAP_F_B"
            event["dur"] += 20_000
        elif event["name"] == "PP:1F1":
            documents[1]["traceEvents"].remove(event)  # type: ignore[attr-defined]
    found = read(torch_files(tmp_path / "t", documents))
    assert [(s.F, s.BW) for s in found.problem.stages] == [(20_000, 40_000)] * 2
    assert any("cut in proportion" in note for note in found.steps.notes)


def test_of_schedules_that_are_alike_the_usual_name_is_said(tmp_path: Path) -> None:
    """With 2 microbatches on 4 ranks, eager 1F1B is 1F1B."""
    assert read(traced.primus(tmp_path / "pp", made_up(4, 2))).name == "1f1b"


def test_stages_whose_rank_is_missing_are_named(tmp_path: Path) -> None:
    documents = traced.torch_traces(made_up(3, 4))
    with pytest.raises(BadInput, match=r"stages \[0, 2\] ran, and \[1\] did not"):
        read(torch_files(tmp_path / "t", [documents[0], documents[2]]))


def test_where_backwards_are_whole_what_most_runs_use_is_named_first() -> None:
    """The schedules of zero bubble are 1F1B then."""
    problem = Problem.chain(2, 4, F=1, B=1, W=1).with_backward("fused")
    found = solve(problem, time_limit=1, workers=1)
    assert (found.schedule.source, found.baseline.name) == ("1f1b", "1f1b")
    rows = compare(problem, search=False).sorted()
    assert rows[0].name == "1f1b"
    assert "zb-h1" in {row.name for row in rows[1:] if row.makespan == rows[0].makespan}


def test_replicas_of_torch_are_told_by_their_stages(tmp_path: Path) -> None:
    documents = [d for _ in range(2) for d in traced.torch_traces(made_up(2, 4))]
    for rank, document in enumerate(documents):
        document["distributedInfo"] = {"rank": rank}
    found = read(torch_files(tmp_path / "t", documents))
    assert (found.steps.devices, found.steps.replicas) == (2, [0, 1])


def test_other_files_of_a_folder_are_left_alone(tmp_path: Path) -> None:
    folder = traced.primus(tmp_path / "pp", made_up())
    saved(folder / "notes.txt", "hello")
    assert read(folder).name == "1f1b"
    with pytest.raises(BadInput, match="no known trace"):
        read(folder, folder / "notes.txt")


def test_what_is_given_replaces_what_is_not_seen(tmp_path: Path) -> None:
    folder = traced.primus(tmp_path / "pp", made_up(delay=2.0))
    found = read(folder, link_delay="0.5ms", memory="80GiB", static="20GiB", held="1GiB")
    assert {edge.F for edge in found.problem.links.values()} == {500}
    assert found.problem.memory_unit == "MiB"
    assert [device.memory for device in found.problem.devices] == [80 * 1024] * 4
    assert {stage.held_after_F for stage in found.problem.stages} == {1024}
    with pytest.raises(BadInput, match="held"):
        read(folder, memory="80GiB")
    with pytest.raises(BadInput, match="does not fit"):
        read(folder, memory="22GiB", static="20GiB", held="1GiB")  # rank 0 holds 4


def test_options_that_a_problem_answers_are_refused(cli, save, tmp_path: Path) -> None:
    problem = save({"format": "pipesat.problem/1"})
    outcome = cli(
        "timeline", "import", problem, problem, "-o", tmp_path / "t", "--memory", "held=1"
    )
    assert (outcome.code, "--memory held: got '1', this is for traces without" in outcome.err) == (
        2,
        True,
    )


def test_the_command_writes_what_solve_and_check_read(cli, tmp_path: Path) -> None:
    trace = tmp_path / "t.json.gz"
    trace.write_bytes(gzip.compress(json.dumps(traced.ndtimeline(made_up(2, 4))).encode()))
    out = tmp_path / "out"
    outcome = cli("timeline", "import", trace, "-o", out, "--time-limit", "0.2", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["schedule"] == "1f1b"
    assert cli("check", out / "problem.json", out / "schedule.json").code == 0
    assert cli("timeline", "compare", out / "problem.json", out / "timeline.json").code == 0
    assert "best.json is the best order found" in cli("show", out).out
    shown = cli("timeline", "import", trace, "--time-limit", "0.2").out
    assert "nothing to gain" in " ".join(shown.split())


# What is refused, in one line


def test_a_folder_of_folders_names_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "iteration_10").mkdir()
    with pytest.raises(BadInput, match=r"Give one folder of it, as .*iteration_10$"):
        read(tmp_path)
    with pytest.raises(BadInput, match=r"is in it$"):
        read(tmp_path / "iteration_10")


def _without_rank(run: list[Traced]) -> list[Traced]:
    return [op for op in run if op.rank == 0]


def _overlapping(run: list[Traced]) -> list[Traced]:
    return [op._replace(end=op.end + 15) if op[:6] == (1, 2, 0, 2, "F", 3) else op for op in run]


def _backward_in_time(run: list[Traced]) -> list[Traced]:
    return [op._replace(end=op.start - 1) if op.kind == "B" else op for op in run]


def _other_job(run: list[Traced]) -> list[Traced]:
    return [op for op in run if op.rank] + [
        op._replace(start=op.start + 400 * op.step + 30 * op.microbatch,
                    end=op.end + 400 * op.step + 30 * op.microbatch)
        for op in run
        if not op.rank
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_rank, "of one rank only"),
        (_overlapping, "2F3 and 2.*overlap"),
        (_backward_in_time, "negative|at least 0"),
        (_other_job, "whatever the clocks"),
        (lambda run: [op for op in run if op.kind == "F"], "has the backward of microbatch 0"),
        (lambda run: [op for op in run if (op.rank, op.microbatch) != (2, 5)], "microbatch 5"),
        (lambda run: [*run, *run], "is twice in step"),
        (
            lambda run: [*run, *(op._replace(microbatch=op.microbatch + 8) for op in run[:64])],
            "only step 0 of replica 0 has 0BW8",
        ),
    ],
)
def test_runs_that_cannot_be(spoil, message: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "t.json", traced.ndtimeline(spoil(made_up())))
    with pytest.raises(BadInput, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ('[{"ph": "X", "name": "forward-comp', "not JSON"),
        ("{}", "no known trace"),
        ("hello", "no known trace"),
        ('{"format": "pipesat.problem/1"}', "pipesat.problem/1 file"),
        ('{"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 2}]}', "pipesat.record"),
        ('{"traceEvents": [{"ph": "X", "name": "gloo:recv", "ts": 1, "dur": 2}]}', "Schedule1F1B"),
        (
            '[{"ph": "X", "cat": "computation", "name": "0F0", "ts": 0, "dur": 1}]',
            "of one rank only",
        ),
        ('{"1": {"fwd_start": [1], "fwd_end": []}}', "as many ends as starts"),
        ('{"1": {"fwd_start": [1], "fwd_end": ["x"]}}', "expected a number"),
        ("max time across ranks (ms):\n  forward-compute: 3", "--timing-log-option all"),
    ],
)
def test_files_that_are_no_traces(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        read(saved(tmp_path / "pp_rank_0.json", content))
    assert "\n" not in str(caught.value)


def test_two_jobs_are_not_one(tmp_path: Path) -> None:
    one = traced.primus(tmp_path / "one", made_up())
    two = traced.primus(tmp_path / "two", made_up(4, 4))
    with pytest.raises(BadInput, match="one job"):
        read(one, two)
    (two / "pp_rank_0.json").rename(one / "pp_rank_0.json")
    with pytest.raises(BadInput, match="whole steps"):
        read(one)
    with pytest.raises(BadInput, match="chunks: got 2, expected what fits the trace"):
        read(traced.primus(tmp_path / "three", made_up()), chunks=2)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadInput, match=r"bad\.json: not JSON"):
        read(tmp_path / "bad.json", chunks=2)
    with pytest.raises(BadInput, match="skip: got 99"):
        read(tmp_path / "three", chunks=1, skip=99)
    both = traced.ndtimeline(made_up(), made_up(4, 4), made_up())
    with pytest.raises(BadInput, match="replica 1 has no step as others"):
        read(saved(tmp_path / "both.json", both))
    with pytest.raises(BadInput, match="is of NDTimeline"):
        read(tmp_path / "one", saved(tmp_path / "t.json", traced.ndtimeline(made_up())))


def test_primus_schedules_of_its_own_name_chunks_and_microbatches(tmp_path: Path) -> None:
    """ZB-V on 4 ranks, B and W apart: lists of minibatches and chunks, and lists of W's."""
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 8,
            "devices": [{}] * 4,
            "stages": [
                {"device": d, "F": 20, "B": 24, "W": 16, "backward": "split"}
                for d in (0, 1, 2, 3, 3, 2, 1, 0)
            ],
        }
    )
    schedule = BASELINES["zb-v"](problem)
    series = {"F": "fwd", "B": "bwd", "W": "wgrad"}
    for rank, row in enumerate(schedule.devices):
        content: dict[str, list[float]] = {}
        for item, start, end in row:
            (op,) = members(item)
            parts = {"start": start, "end": end, "minibatch": op.microbatch, "chunk": op.stage // 4}
            for part, value in parts.items():
                content.setdefault(f"{series[op.kind]}_{part}", []).append(value)
        saved(tmp_path / f"pp_rank_{rank}.json", {"1": content, "2": content, "4": content})
    found = read(tmp_path)
    assert (found.name, found.steps.placement, found.document()["steps"]) == ("zb-v", "vee", 3)
    assert {(s.F, s.B, s.W) for s in found.problem.stages} == {(20_000, 24_000, 16_000)}
    assert {s.backward for s in found.problem.stages} == {"split"}
    assert found.schedule.makespan == 1000 * (schedule.makespan or 0)


JUNK = (None, True, -1, 0, 1e300, -5.5, "x", "", [], {}, [1], {"a": 1}, 10**30, 3)


def _spoilt(content: object, draw: random.Random) -> object:
    """The same document with one value replaced, dropped or doubled."""
    copied = json.loads(json.dumps(content))
    places: list[tuple[object, object]] = []

    def walk(node: object) -> None:
        keys = node if isinstance(node, dict) else range(len(node) if isinstance(node, list) else 0)
        for key in keys:
            places.append((node, key))
            walk(node[key])  # type: ignore[index]

    walk(copied)
    node, key = draw.choice(places)
    what = draw.choice(("junk", "junk", "drop", "double"))
    if what == "drop":
        del node[key]  # type: ignore[attr-defined]
    elif what == "double" and isinstance(node, list):
        node.append(node[key])  # type: ignore[index]
    else:
        node[key] = draw.choice(JUNK)  # type: ignore[index]
    return copied


def test_spoilt_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    run = made_up(2, 2, steps=2)
    writers = (traced.ndtimeline, traced.recorded)
    draw = random.Random(0)
    said: list[str] = []
    for number in range(100):
        content = _spoilt(draw.choice(writers)(run), draw)
        try:
            predict(
                TraceCosts(
                    steps_of(read_trace([saved(tmp_path / f"{number}", content)], TraceStatement()))
                )
            )
        except BadInput as error:
            said.append(str(error))
    assert 0 < len(said) < 100
    assert [text for text in said if "\n" in text] == []


def test_no_traces_at_all_are_said_to_be_missing(
    cli: Run, save: Callable[..., Path], tmp_path: Path
) -> None:
    path = save(chain(2, 2), "p.json")
    outcome = cli("timeline", "import", path, "-o", tmp_path / "t.json")
    one_bad_line(outcome, "p.json: traces of its run are missing: give them after it")
    with pytest.raises(BadInput, match="paths: none are given: expected traces of one run"):
        import_traces(chain(2, 2), [])
