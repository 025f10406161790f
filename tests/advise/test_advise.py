"""``pipesat advise``: rows by formula, what is asserted of them, Megatron's rules, the folder."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import pipesat
from pipesat.advise import hand_written_rows, model_source
from pipesat.advise.advice import _gains, _proof, _searched, of_order
from pipesat.advise.advice_table import megatron_flags, shown_rows
from pipesat.advise.candidates import Candidate
from pipesat.advise.files import Advice, result_of
from pipesat.advise.hand_written_rows import Setting, Trials, settings_of
from pipesat.advise.question import Question
from pipesat.advise.splits import balanced_partition, even_partition
from pipesat.advise.table_rows import (
    OURS,
    SEARCHED,
    Row,
    advised_of,
    credited,
    leaner_of,
    marked,
    options_of,
    published_in,
    row_of,
)
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.from_numbers import problem_from_numbers
from pipesat.compare.from_profile import estimate_layers
from pipesat.compare.hand_written import baseline, hand_written
from pipesat.compare.model_costs import given
from pipesat.compare.schedules import schedule_of
from pipesat.core.claims import Bound, Standing, Tried
from pipesat.core.errors import BadInput, Contradiction, Infeasible, NotApplicable
from pipesat.core.folder import FILES, FOLDERS, LIST
from pipesat.core.settings import Runtime, Target
from pipesat.heuristics import BASELINES
from pipesat.layers.layer import Layers
from pipesat.layers.layout import parse_layout, partition_of_layout
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.partition import partition_of
from pipesat.problem.problem_file import read_problem
from pipesat.runtimes import EXPORTERS
from pipesat.schedule.result import Improvement
from pipesat.schedule.schedule import Timed
from pipesat.schedule.solving import Deadline
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.paths import ROOT
from tests.support.plans import entry, layers_of

AGAIN = {"recompute": {"F": 1, "B": 2, "W": 1, "held_after_F": 1}}
FOUR = replace(layers_of([entry(1, 1, 1, 4) | AGAIN for _ in range(4)]), time_unit="ms")


def asked(layers: Layers = FOUR, **options: Any) -> Advice:
    options = {"devices": 2, "microbatches": 4, "time_limit": 20.0, "workers": 1} | options
    return pipesat.advise(layers, **options)


@pytest.fixture(scope="module")
def plain() -> Advice:
    return asked(tokens=300)


@pytest.fixture(scope="module")
def megatron() -> Advice:
    return asked(microbatches=5, target="megatron")


def tried(question: Question) -> Trials:
    """Every setting of every family."""
    trials = Trials(question, Deadline(1000.0))
    trials.run()
    return trials


def rows_of(advice: Advice, name: str) -> Iterator[Row]:
    yield from (row for row in advice.rows if row.name == name)


def test_the_baseline_of_the_advice_is_one_that_its_runtime_runs(megatron: Advice) -> None:
    """Of Megatron-LM's problem any order is valid, and shorter ones are known than its own."""
    question, row = megatron.question, next(rows_of(megatron, "1f1b"))
    own = question.in_any_order(row.candidate)
    shorter = marked(
        question, Row("zb-h1", "even", own, BASELINES["zb-h1"](own.problem), fits=True)
    )
    assert (shorter.runs, shorter.makespan < row.makespan) == (False, True)
    found = result_of(replace(megatron, rows=(row, shorter)), replace(row, candidate=own))
    assert found.baseline is None


def test_the_baseline_of_the_advice_is_the_best_valid_one(megatron: Advice) -> None:
    """A row that another one of the same problem beats, by however little, is no answer."""
    row = next(rows_of(megatron, "1f1b"))
    schedule = row.schedule

    def timed(factor: int) -> Row:
        devices = tuple(
            tuple(Timed(t.item, factor * t.start, factor * t.end) for t in own)
            for own in schedule.devices
        )
        return replace(row, schedule=replace(schedule, devices=devices))

    best, within = map(timed, (2000, 2001))
    known = replace(megatron, rows=(within, best))
    assert result_of(known, best).baseline == ("1f1b", best.makespan)
    with pytest.raises(Contradiction):
        result_of(known, within)


def test_rows_by_formula(plain: Advice) -> None:
    """Two stages of two layers: F 2, BW 4; 1F1B takes (m + p - 1)(F + BW) = 30 of 24 at least."""
    (even,) = rows_of(plain, "1f1b")  # the balanced split is the same
    assert (even.split, even.makespan) == ("even", 30)
    assert plain.question.work == 12
    assert even.share_of_ideal(plain.question) == 0.8
    assert even.tokens_per_second(plain.question) == 4 * 300 / 0.030
    assert max(even.peaks) == 2 * 2 * 4  # two microbatches of two layers
    assert {row.name for row in plain.rows} >= {"1f1b", "interleaved-1f1b", "zb-h1"}
    assert {"zb-v", "dualpipev"} <= {row.name for row in plain.rows}


def test_every_row_is_a_checked_schedule_and_ours_is_the_best(plain: Advice) -> None:
    assert plain.chosen is not None
    for row in plain.rows:
        assert check(row.problem, row.schedule) == []
        assert row.runs
        assert row.makespan >= plain.chosen.makespan
    assert plain.bound is not None
    assert plain.bound.value <= plain.chosen.makespan
    table = plain.records()
    assert [row["makespan"] for row in table] == sorted(row["makespan"] for row in table)
    assert table[0]["makespan"] == plain.chosen.makespan


@pytest.mark.slow
def test_what_is_shipped_has_a_row_of_its_own(megatron: Advice) -> None:
    """The even split, groups of one microbatch per rank; the best setting is another row."""
    row = next(row for row in megatron.rows if row.runs and not row.by_hand)
    shipped = replace(row, name="interleaved-1f1b", split="even", group=None, shipped=True)
    best = replace(shipped, split="balanced", group=2, shipped=False)
    assert shown_rows([best, shipped]) == [best, shipped]


def test_each_number_of_stages_that_ships_is_beside_the_advice() -> None:
    """Whoever runs VPP 2 today finds what it takes, not the best of all VPPs alone."""
    advice = asked(target="megatron", time_limit=1.0)
    shipped = [row for row in advice.rows if row.shipped]
    said = [text for label, text in advice.details() if label == "as shipped"]
    assert {row.placement for row in shipped} == {"chain", "loop of 2"}
    for row, text in zip(shipped, said, strict=True):
        time = advice.question.time(row.makespan)
        place = "chain" if row.name == "1f1b" else f"VPP {row.shape.stages // 2}"
        assert text.startswith(f"{row.name}, {place}: {time}, ")
    assert "loop of" not in str(advice.document()["advice"])
    assert advice.document()["details"] == [line for line in advice.details() if line[1]]


def test_the_fastest_is_taken_and_what_an_estimate_cannot_tell_from_it_is_named(
    megatron: Advice,
) -> None:
    """Beside 1000, 1001 is named if it needs less memory; 1002 is not, nor with measured costs."""
    some = next(row for row in megatron.rows if row.runs)
    candidate = some.candidate
    rough = replace(candidate, problem=replace(some.problem, estimate="a guess"))

    def row(own: Candidate, takes: int, holds: int, group: int) -> Row:
        made = replace(some, candidate=own, group=group)
        made.__dict__["peaks"] = [holds]
        return replace_time(made, takes)

    def replace_time(made: Row, takes: int) -> Row:
        op = some.schedule.devices[0][0]
        timed = replace(some.schedule, devices=((op._replace(start=0, end=takes),),))
        again = replace(made, schedule=timed)
        again.__dict__["peaks"] = made.peaks
        return again

    for own, takes, named in (
        (rough, 1001, True),
        (rough, 1002, False),
        (some.candidate, 1001, False),
    ):
        rows = [row(own, 1000, 50, 11), row(own, takes, 40, 8)]
        best = advised_of(rows)
        assert best is rows[0]
        assert leaner_of(rows, best) is (rows[1] if named else None)
    rows = [row(some.candidate, 1000, 50, 13), row(some.candidate, 1000, 40, 16)]
    even = advised_of(rows)
    assert even is not None
    assert even.group == 16  # as long to the unit: memory decides, estimate or not
    assert "this is the best" in " ".join(_gains(replace(megatron, rows=tuple(rows)), even))


def test_progress_of_megatron_has_no_value_that_it_cannot_run(megatron: Advice) -> None:
    heard: list[Improvement] = []
    trials = Trials(megatron.question, Deadline(100.0), heard.append)
    trials.hear(Improvement(0.0, 5, 3, "an order of ours, loop of 2", "ms"))
    trials.add("1f1b", "even", megatron.question.shape("chain"), (range(2), range(2, 4)))
    trials.hear(Improvement(0.0, 5, 4, "an order of ours", "ms"))
    least = next(row.makespan for row in trials.rows if row.runs)
    assert [(one.value, one.bound) for one in heard] == [(None, 3), (least, 3), (least, 4)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "carry 315 GB/s and add 0 ms, as within a machine. Between machines they are slower"),
        ({"bandwidth": 50_000, "latency": 20}, "carry 50 GB/s and add 0.02 ms"),
        (
            {"tensor_parallel": 8},
            "slower, and 8 GPUs of a layer fill most machines: give link ",
        ),
    ],
)
def test_links_are_said_as_they_are_taken(options: dict[str, Any], text: str) -> None:
    sizes = {"length": 64, "batch": 1, "tensor_parallel": 1}
    shared = {key: options.pop(key) for key in [*options] if key in sizes}
    known = given("llama3-8b", "h100", sizes | shared)
    if "bandwidth" in options:
        known = known._replace(bandwidth=Fraction(options["bandwidth"]), within=False)
    question = model_source.asked(
        known, 2, 4, None, options.get("latency", 0), None, "megatron", None
    )
    assert text in question.links
    assert ("within a machine" in question.links) == ("bandwidth" not in options)


def test_megatron_ships_equal_stages(megatron: Advice) -> None:
    """Of its 16 blocks on two ranks, loops of 2, 4 and 8 are cut evenly without a layout."""
    blocks = sum(layer.role == "block" for layer in megatron.question.layers.layers)
    shipped = {row.shape.stages for row in megatron.rows if row.shipped}
    assert shipped
    assert all(blocks % stages == 0 for stages in shipped)


def test_no_bound_of_the_progress_is_above_the_answers() -> None:
    """For torchtitan recomputing nowhere or everywhere is searched too, with higher bounds."""
    heard: list[int | None] = []
    told = lambda one: heard.append(one.bound)  # noqa: E731
    advice = asked(UNEVEN, memory=20, reserve=0, target="torchtitan", time_limit=3, listener=told)
    known = [bound for bound in heard if bound is not None]
    assert advice.bound is not None
    assert max(known) <= advice.bound.value
    assert None not in heard[heard.index(known[0]) :]
    assert known == sorted(known)


UNEVEN = replace(
    layers_of([entry(1 + k % 3, 1 + k % 2, 1, 4) | AGAIN for k in range(7)]), time_unit="ms"
)
MEGATRONS = ("1f1b", "interleaved-1f1b")
NAMES = {
    "chain": ("1f1b", "zb-h1"),
    "loop of 2": ("interleaved-1f1b", "interleaved-zb"),
    "loop of 3": ("interleaved-1f1b", "interleaved-zb"),
    "vee": ("zb-v", "dualpipev"),
}


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["torchtitan", "megatron"])
def test_no_hand_written_schedule_is_better_than_what_the_table_says(runtime: str) -> None:
    """What they make of the problems that the folder has in ``rows/``, and all of the advice's."""
    advice = asked(UNEVEN, memory=20, reserve=0, target=runtime, time_limit=30.0)
    tried = 0
    for row in advice.shown:
        for name in NAMES.get(row.placement, ()):
            if runtime == "megatron" and (row.name == "ours" or name not in MEGATRONS):
                continue  # an order or a problem that Megatron-LM does not have
            schedule = schedule_of(row.problem, name)
            if not check(row.problem, schedule):
                best = min(x.makespan for x in rows_of(advice, name) if x.fits)
                assert schedule.makespan >= best, (name, row.name, row.split)
                tried += 1
    assert tried > 2
    assert advice.chosen is not None
    own = advice.question.in_any_order(advice.chosen.candidate)
    made = [
        one.makespan
        for one in pipesat.compare(own.problem, search=False).rows
        if one.valid and one.makespan is not None and published_in(one.name)
    ]
    assert min(made) >= min(x.makespan for x in advice.rows if x.candidate.stages == own.stages)
    ours = [row for row in advice.shown if row.name == "ours"]
    assert all(x.makespan > row.makespan for row in ours for x in advice.shown if easier(x, row))


def easier(other: Row, row: Row) -> bool:
    """Another row that asks no more of its user and runs where the row does."""
    return other is not row and other.runs >= row.runs and bool(other.by_hand) <= bool(row.by_hand)


def test_what_is_proven_of_the_order_alone_is_said(plain: Advice) -> None:
    """A fifth below its time, or nothing: only where all splits are not proven anyway."""
    row = plain.chosen
    assert row is not None
    texts = []
    for value in (row.makespan * 4 // 5, row.makespan):
        own: Candidate = replace(row.candidate)
        own.bound = Bound(value, "a proof")
        texts.append(of_order(replace(row, candidate=own), "this order"))
    assert re.fullmatch(r"for this split, this order can still gain 2\d\.\d\d? % at most", texts[0])
    assert texts[1] == "this order is proven optimal for this split"


def test_a_split_of_two_names_is_one_row(plain: Advice) -> None:
    row = next(row for row in plain.rows if row.name == "1f1b")
    assert shown_rows([row, replace(row, split="another name")]) == [row]
    less = replace(row.candidate, partition=row.partition[:-1])
    other = replace(row, split="another", candidate=less)
    assert len(shown_rows([row, other])) == 2


TALL = replace(layers_of([entry(1, 1, 1, 1) for _ in range(24)]), time_unit="ms")


@pytest.mark.parametrize("runtime", get_args(Runtime))
def test_every_family_has_a_setting_before_any_has_two(runtime: Runtime) -> None:
    families = [one.family for one in settings_of(tall(runtime), {})]
    assert len({*families[: len({*families})]}) == len({*families})


def tall(runtime: Runtime) -> Question:
    return Question(TALL, Pipeline(devices=2, microbatches=8), runtime=runtime)


@pytest.mark.parametrize(("seconds", "ops"), [(0.01, 90), (1e6, 900)])
def test_settings_are_tried_by_count_and_those_shipped_whatever_the_clock_says(
    seconds: float, ops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may be so busy that all of the time is gone when the first one is built."""
    monkeypatch.setattr(Deadline, "seconds", property(lambda _: seconds))
    monkeypatch.setattr(hand_written_rows, "_OPS_PER_SECOND", {True: ops, False: ops})
    trials = Trials(tall("torch"), Deadline(40.0))
    trials.run()
    done = {one: tried for one, tried in trials.settings.items() if one.name in MEGATRONS}
    first, *_, last = done.values()
    assert (first, last) == (True, False)
    if seconds > 40:
        assert {one for one, tried in done.items() if tried} == {one for one in done if one.shipped}
    else:
        assert not all(done.values())


@pytest.mark.parametrize(
    ("layers", "memory", "slow", "value"),
    [
        ([(50, 5, 0), (60, 3, 1), (50, 1, 2), (40, 5, 1), (40, 4, 1), (20, 1, 0)], 15, 1, 1740),
        ([(30, 4, 0), (30, 5, 2), (10, 1, 2), (30, 2, 1), (60, 1, 2), (50, 5, 0)], 6, 2, 3460),
    ],
)
def test_1f1b_is_tuned_within_memory(
    layers: list[tuple[int, int, int]], memory: int, slow: int, value: int
) -> None:
    """The values are the least of all 10 cuts by all 8 choices of what recomputes, enumerated.

    Best are 1, 2, 3 layers with nothing, and 4, 1, 1 with the first stage recomputing. No single
    move leads there from the even or the balanced split.
    """
    entries = [
        entry(time, time, time, held, weights=weights)
        | {"recompute": {"F": time, "B": 2 * time, "W": time, "held_after_F": 0}}
        for time, held, weights in layers
    ]
    speed = (Fraction(1, slow),) * 3
    shape = Pipeline(devices=3, microbatches=4, memory=memory, speed=speed)
    trials = Trials(
        Question(layers_of(entries), shape, choice="choose", runtime="torch"), Deadline(1000.0)
    )
    trials.run()
    assert min(row.makespan for row in trials.rows if row.name == "1f1b" and row.fits) == value


def built(question: Question, name: str, chunks: int, group: int | None) -> Iterator[int | None]:
    """Times of a schedule that fits, on the even and the balanced split, whatever recomputes."""
    shape = question.shape("chain" if chunks == 1 else "loop", max(2, chunks))
    for cut in {even_partition(UNEVEN, shape), balanced_partition(UNEVEN, shape)}:
        ways = [question.candidate(shape, cut, first=n) for n in (None, *range(1, 7))]
        ways.append(question.candidate(shape, cut, (True,) * len(cut)))
        made = [(way.problem, baseline(name, way.problem, group=group)) for way in ways]
        yield min((s.makespan for problem, s in made if not check(problem, s)), default=None)


@pytest.mark.parametrize(("ops", "complete"), [(0, 0), (500, 1), (30_000, 2)])
def test_a_gain_is_over_every_setting_or_says_how_many(
    ops: int, complete: int, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven layers on two devices: 1F1B on two splits; interleaved in loops of 2 and 3 on two
    splits each, in groups of 2 or 4 of four microbatches. The best one's split is moved as well.
    How many are tried is counted in ops, for a machine that is not too busy: here the clock waits.
    """
    clock = count()
    monkeypatch.setattr(Deadline, "seconds", property(lambda _: 1e-5 * next(clock)))
    monkeypatch.setattr(hand_written_rows, "_OPS_PER_SECOND", {True: ops, False: ops})
    path = tmp_path / "layers.json"
    path.write_bytes(UNEVEN.file())
    options = "--devices 2 --microbatches 4 --memory 20,reserve=0 --for megatron --workers 1 --json"
    found = cli("advise", path, *options.split(), "--time-limit", 0.3).json
    question = Question(
        UNEVEN, Pipeline(devices=2, microbatches=4, memory=20), choice="choose", runtime="megatron"
    )
    counts = {one["schedule"]: (one["tried"], one["total"]) for one in found["settings"]}
    assert sum(tried == total for tried, total in counts.values()) == complete
    for name, shown, loops in (("1f1b", "1F1B", (1,)), (MEGATRONS[1], "interleaved 1F1B", (2, 3))):
        groups = (None, 4) if loops[0] > 1 else (None,)
        own = [x for v in loops for group in groups for x in built(question, name, v, group)]
        tried, total = counts[name]
        assert total == len(own) + 1
        rows = [row for row in found["rows"] if row["schedule"] == name and row["runs"]]
        gain = found["advice"].get("Gain", "")
        if tried == total:
            assert min(row["makespan"] for row in rows) <= min(filter(None, own))
            assert f"the best of all {total} settings of {shown}" in gain
            continue
        assert "of all" not in gain.partition(shown)[0].rpartition(".")[2]
        if rows:
            assert f"the best {shown} so far, with {tried} of {total} settings tried" in gain
        assert f"{total - tried} of {total} settings of {name}" in found["advice"]["Doubt"]
        left = [one for one in found["not_tried"] if f"of {name} " in one]
        assert sum(int(one.split()[0]) for one in left) == total - tried


@pytest.mark.parametrize("runtime", get_args(Target))
@pytest.mark.parametrize("devices", [1, 2])
def test_why_a_runtime_runs_no_order_is_what_its_exporter_says(
    runtime: Target, devices: int
) -> None:
    """On a single rank, in a V, in a loop, and on splits with stages that have no block."""
    ends = entry(1, 1, 1, role="embedding"), entry(1, 1, 1, role="head")
    blocks = [entry(1, 1, 1)] * 4
    layers = layers_of([ends[0], *blocks, ends[1]])
    question = Question(layers, Pipeline(devices=devices, microbatches=4), runtime=runtime)
    for shape in (question.shape("chain"), question.shape("vee"), question.shape("loop")):
        last = [(0, 1, *range(3, 3 + shape.stages - 2), 6), (0, *range(1, shape.stages), 6)]
        for cuts in last if shape.stages > 1 else [(0, 6)]:
            candidate = question.candidate(shape, partition_of(cuts))
            schedule = BASELINES["list-scheduling"](candidate.problem)
            row = row_of(question, OURS, "even", candidate, schedule)
            given = row.problem, row.schedule, options_of(question, row)
            why_not = re.escape(row.why_not) or None
            refused = pytest.raises(NotApplicable, match=why_not)
            with refused if why_not else contextlib.nullcontext():
                EXPORTERS[runtime](*given)


def test_what_was_not_tried_is_named_where_nothing_runs(plain: Advice) -> None:
    zb_v = Setting("zb-v", plain.question.shape("vee"), "even")
    none = replace(plain, rows=(), settings={zb_v: False, zb_v._replace(split="balanced"): True})
    lines = dict(none.facts())
    assert lines["Take"].endswith("can run none of these: none was built in time")
    left = "1 of 2 settings of zb-v"
    assert lines["Doubt"].endswith(f"Not tried, too many for the time limit: {left}")
    assert none.untried == ["1 of 2 settings of zb-v in a vee"]


def test_memory_that_cannot_hold_the_layers_is_known_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """24 layers that weigh 2 and hold 1 each are 72, two devices have 46: nothing is built."""
    monkeypatch.setattr(Trials, "run", lambda _: pytest.fail("schedules were built"))
    layers = [entry(1, 1, 1, 1) | {"weights": 2} for _ in range(24)]
    with pytest.raises(Infeasible, match="72 together, all devices have memory for 46"):
        asked(layers_of(layers), memory=23, reserve=0)


def asking(memory: int) -> Question:
    pipeline = Pipeline(devices=2, microbatches=6, memory=memory)
    amounts = replace(UNEVEN, reserve=1)
    return Question(amounts, pipeline, choice="choose", runtime="torchtitan", reserve=1)


def test_more_memory_never_makes_a_row_worse() -> None:
    """From what nothing fits into to what everything does, on every shape and split."""
    before: dict[tuple[str, str], int] = {}
    changed = set()
    for memory in range(6, 90, 7):
        question = asking(memory)
        best: dict[tuple[str, str], int] = {}
        for row in (row for row in tried(question).rows if row.split != SEARCHED):
            assert max(row.peaks) <= memory or not row.fits
            if row.fits:
                key = (row.name, row.split)
                best[key] = min(best.get(key, row.makespan), row.makespan)
        for key, value in before.items():
            assert best[key] <= value, (key, memory)
            if best[key] < value:
                changed.add(key[0])
        before = best
    assert changed >= {"zb-v", "dualpipev"}


def test_one_stage_recomputes_where_one_is_enough() -> None:
    """A V on two devices, four layers that hold 4 or 1; 8 microbatches, ZB-V has 4 of them at most.

    Nothing is recomputed at 16; with less, a device frees 3 a microbatch by one of its stages.
    """
    line = Pipeline(devices=2, microbatches=8, memory=15)
    question = Question(FOUR, line, choice="choose", runtime="torch")
    rows = [row for row in tried(question).rows if row.fits]
    roomy = replace(question, pipeline=replace(line, memory=40), known={})
    free = [row for row in tried(roomy).rows if row.name == "zb-v"]
    assert all(not row.again and max(row.peaks) == 16 for row in free)
    assert [len(row.again) <= 2 for row in rows if row.name == "zb-v"][:1] == [True]


@pytest.mark.slow
def test_memory_has_stages_recompute() -> None:
    """Capacity 10: 1F1B wants two microbatches of two layers, 16, on rank 0; recomputing takes 4.

    The reserve of 1 is kept free. One microbatch at a time, 8, would fit without.
    """
    advice = asked(memory=10, reserve=1, target="torchtitan")
    assert advice.chosen is not None
    assert all(max(row.peaks) <= 9 for row in advice.rows if row.fits)
    assert all(row.problem.devices[0].memory == 9 for row in advice.rows)
    for row in rows_of(advice, "1f1b"):
        # the first stage recomputes: F 2, BW 6; then a microbatch takes 6 on the other: by hand;
        # both recompute with nothing by hand
        assert row.again == ((0,) if row.by_hand else (0, 1))
        assert row.by_hand in ("checkpoint stage 0 in your own code", "")
        assert row.problem.stages[0].backward == "fused"
    found = re.search(
        r"would need (\d+) on rank \d, and there are 9", dict(advice.facts())["Limit"]
    )
    assert (found is not None) == bool(advice.chosen.again)
    assert found is None or int(found[1]) > 9


@pytest.mark.slow
@pytest.mark.parametrize("rate", [6, Fraction(3, 100)])
def test_what_offloading_would_bring(rate: Fraction) -> None:
    """Capacity 10: a microbatch of two layers holds 8, copied out 2; no runtime copies so yet."""
    advice = asked(memory=10, reserve=0, copy_bandwidth=rate, time_limit=4.0)
    rows = [row for row in advice.rows if row.candidate.offload]
    assert rows
    for row in rows:
        assert check(row.problem, row.schedule) == []
        assert max(row.peaks) <= 10
        assert not row.runs
        assert row.document(advice.question)["offloaded"] == row.offloaded
    assert advice.chosen is not None
    assert not advice.chosen.candidate.offload
    best = min(rows, key=lambda row: row.makespan)
    said = dict(advice.facts())["Offload"]
    some = f"{best.offloaded} (stage, microbatch) instead take "
    assert said.startswith(some if best.offloaded else "no shorter schedule was found that")
    least = closed_form_bound(best.problem, "makespan").value
    shorter, cannot = best.makespan < advice.chosen.makespan, least >= advice.chosen.makespan
    assert ("No runtime copies" in said, "It cannot help" in said) == (shorter, cannot)
    assert "without offloading on any split" in dict(advice.facts())["Proof"]


def test_offloading_costs_nothing_only_if_that_is_proven() -> None:
    """One device of one layer, F 1, BW 2, that holds 4, room for 5: no copy is needed at all.

    Two microbatches of 3 take 6, the load, with any memory: but 1F1B does so too, and is advised.
    """
    layer = entry(1, 1, 1, 4) | {"recompute": {"F": 1, "B": 2, "W": 1, "held_after_F": 1}}
    advice = asked(
        replace(layers_of([layer]), time_unit="ms"), devices=1, memory=5, copy_bandwidth=1
    )
    assert advice.chosen is not None
    assert advice.chosen.makespan == 4 * 3
    assert dict(advice.facts())["Offload"].endswith("It cannot help at your bandwidth")


def test_what_does_not_fit_is_shown_with_what_it_needs() -> None:
    layers = layers_of([entry(1, 1, 1, 4) for _ in range(4)])
    advice = asked(layers, memory=10, reserve=0)
    (even,) = rows_of(advice, "1f1b")
    assert (even.fits, even.why_not) == (False, "needs more memory than there is")
    assert max(even.peaks) == 16
    assert advice.chosen is not None
    assert advice.chosen.name not in ("1f1b", "zb-h1")
    assert "othing has to recompute" in dict(advice.facts())["Limit"]


def test_the_head_that_no_split_evens_out_is_named() -> None:
    layers = layers_of(
        [entry(1, 1, 1), entry(1, 1, 1), entry(9, 9, 9) | {"name": "head", "role": "head"}]
    )
    advice = asked(layers)
    limit = dict(advice.facts())["Limit"]
    # 4 microbatches of 27 in a little more
    assert limit.startswith("the bottleneck is rank 1, busy 9")
    assert "layer 2 (head) is 100 % of that. That layer alone is more than an equal share" in limit


def test_what_was_not_searched_is_said(plain: Advice) -> None:
    """Interleaved 1F1B also goes in loops of 3, of which the search and its bound say nothing."""
    six = asked(layers_of([entry(1, 1, 1) for _ in range(6)]), time_limit=4.0)
    assert plain.not_searched == []  # four layers make loops of 2 alone
    assert six.not_searched in ([], ["loop of 3"])  # there if the time was enough to build it
    for advice in (plain, six):
        said = "only known schedules were tried" in dict(advice.facts())["Proof"]
        assert said == bool(advice.not_searched)


def test_megatrons_rows_keep_its_guards(megatron: Advice) -> None:
    """2 ranks, 5 microbatches: groups of 2 and 4 leave a last one of 1; 3 and 5 do not."""
    groups = {row.group for row in rows_of(megatron, "interleaved-1f1b") if row.runs}
    assert groups <= {3, 5}
    assert groups
    for row in megatron.rows:
        if row.runs:
            assert row.name in ("1f1b", "interleaved-1f1b")
            assert row.problem.stages[0].backward == "fused"
            assert row.again in ((), tuple(range(row.shape.stages)))
    others = [row for row in megatron.rows if row.fits and not row.runs]
    assert megatron.chosen is not None
    assert megatron.bound is not None
    least = min(row.makespan for row in others)
    assert megatron.bound.value <= least <= megatron.chosen.makespan


def test_megatron_recomputes_the_first_layers_of_every_stage() -> None:
    """Two stages of two layers that hold 4 each, or 1 recomputed; 1F1B has two microbatches.

    Rank 0 holds 16, with one layer recomputed 10, with both 4. Where 10 fit, each stage has F 2,
    BW 2 + 3, so 1F1B takes (4 + 2 - 1) * 7.
    """
    advice = asked(memory=10, reserve=0, target="megatron")
    (even,) = rows_of(advice, "1f1b")
    assert (even.candidate.first, even.again, even.makespan, max(even.peaks)) == (1, (), 35, 10)
    assert even.runs
    flags = megatron_flags(advice.question, even).splitlines()
    assert flags[3:6] == [
        "--recompute-granularity=full",
        "--recompute-method=block",
        "--recompute-num-layers=1",
    ]
    assert advice.chosen is not None
    assert advice.bound is None or advice.bound.value <= advice.chosen.makespan


def test_megatrons_flags_say_what_the_row_is(megatron: Advice) -> None:
    row = min(rows_of(megatron, "interleaved-1f1b"), key=lambda row: row.makespan)
    words = shlex.split(megatron_flags(megatron.question, row), comments=True)
    flags = dict(word.removeprefix("--").split("=", 1) for word in words)
    layout = parse_layout(flags.pop("pipeline-model-parallel-layout"), devices=2)
    assert partition_of_layout(layout, FOUR) == row.partition
    assert flags == {
        "pipeline-model-parallel-size": "2",
        "microbatch-group-size-per-virtual-pipeline-stage": str(row.group),
    }
    all_again = replace(row.candidate, recompute=(True,) * row.shape.stages)
    again = replace(row, candidate=all_again)
    assert "--recompute-granularity=full\n" in megatron_flags(megatron.question, again)


@pytest.mark.slow
def test_the_folder_repeats_what_the_table_says(cli: Run, tmp_path: Path) -> None:
    """The story on a small model: every line says estimate, every row's files give its time."""
    folder = tmp_path / "out"
    words = ["advise", "tiny", "--gpu", "h100", "--devices", 2, "--microbatches", 4]
    outcome = cli(*words, "--for", "torchtitan", "--time-limit", 20, "-o", folder)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("times and memory are an estimate\n")
    assert re.search(r" a step \(estimate\) You must ", " ".join(outcome.out.split()))
    assert outcome.err.startswith("pipesat: all costs are an estimate: roofline")
    names = {path.name for path in folder.iterdir()}
    assert names - {LIST} <= FILES | FOLDERS
    assert names >= {"advice.json", "layers.json", "report.html", "schedule.csv"}
    assert names >= {"schedule.toml", "schedule.py", "schedule.hazards.txt", "plan.png"}
    document = json.loads((folder / "advice.json").read_text())
    assert "estimate" in document
    result = json.loads((folder / "result.json").read_text())
    assert (result["for"], result["release"]) == (document["for"], document["release"])
    assert max(result["peak_memory"]) == document["chosen"]["peak_memory"]  # one peak, one memory
    capacity = {one.memory for one in read_problem(folder / "problem.json").devices}
    assert capacity == {document["memory"] - document["reserve"]}
    page = (folder / "report.html").read_text()
    assert document["advice"].keys() >= {"Take", "You must", "Gain", "Limit", "Proof", "Doubt"}
    assert all(f"<dt>{label}</dt>" in page for label in document["advice"])
    assert page.index("What else is known") < page.index("<dt>as shipped</dt>")
    assert page.index("<caption>times and memory are an estimate") < page.index('class="case"')
    assert cli("check", folder / "problem.json", folder / "schedule.json").code == 0
    files = [(row["files"], row) for row in document["rows"] if row["files"] is not None]
    assert len(files) == len(document["table"]["lines"])
    for name, row in files:
        pair = folder / f"{name}.problem.json", folder / f"{name}.json"
        assert cli("check", *pair, "--json").json["makespan"] == row["makespan"]


@pytest.mark.slow
def test_the_folder_names_the_stages_to_be_checkpointed(cli: Run, tmp_path: Path) -> None:
    """Every file that is handed over does.

    Two stages of two layers; room for 9. The second holds a microbatch's 8, the first, whose two
    microbatches hold 16, recomputes: 1F1B alone is by hand, as long as no order does without.
    """
    advice = asked(memory=10, reserve=1, target="torchtitan", time_limit=1.0)
    chain = advice.question.shape("chain")
    trials = Trials(advice.question, Deadline(100.0))
    trials.add("1f1b", "even", chain, (range(2), range(2, 4)))
    known, plainest = trials.rows
    assert known.again == (0,)
    made = [row.schedule for row in hand_written(known.problem, "makespan") if row.schedule]
    order = min((s for s in made if not check(known.problem, s)), key=lambda s: s.makespan)
    own = Row(credited(order.source), known.split, known.candidate, order, fits=True)
    row = marked(advice.question, own)
    advice = replace(advice, rows=(known, plainest, row))
    advice.save(tmp_path)
    files = [tmp_path / f"schedule{suffix}" for suffix in (".toml", ".py", ".hazards.txt")]
    before = [" ".join(file.read_text().replace("#", " ").split()) for file in files]
    for text in before:
        assert "Checkpoint stage 0 in your own code" in text
        assert "without, 1f1b would need 16 on rank 0, and there are 9" in text
    compile(files[1].read_text(), "schedule.py", "exec")
    other = read_problem(tmp_path / "nothing-by-hand" / "problem.json")
    assert other.sha256 == plainest.problem.sha256
    for path, taken in (
        ("", row),
        ("nothing-by-hand", plainest),
    ):  # as it lies, nothing left to set
        words = tomllib.loads((tmp_path / path / "schedule.toml").read_text())
        all_again = bool(taken.again) and not taken.by_hand
        assert words["activation_checkpoint"]["mode"] == ("full" if all_again else "none")
    for path in ("", "nothing-by-hand/"):
        files = [tmp_path / path / name for name in ("problem.json", "schedule.json")]
        takes = (plainest if path else row).makespan
        assert cli("check", *files, "--json").json["makespan"] == takes


LAYERS_FILE = str(ROOT / "examples" / "layers-moe.json")
BAD = {
    "no costs": ([], "missing argument 'MODEL'"),
    "no GPU": (["tiny"], "a published model needs a GPU"),
    "tokens of a model": (
        ["tiny", "--gpu", "h100", "--shape", "tokens=9"],
        "--shape length` and `--shape batch",
    ),
    "a length of a file": (
        [LAYERS_FILE, "--shape", "length=9"],
        "--shape length: got 9, only a published model",
    ),
    "a model": (["my.model:build"], "pipesat profile --model my.model:build"),
    "a GPU of a file": ([LAYERS_FILE, "--gpu", "h100"], "--gpu: got 'h100', a file has its costs"),
    "no rate": (
        ["tiny", "--gpu", "h100", "--memory", "copy_bandwidth=0"],
        "--memory copy_bandwidth: got '0', expected an amount with its unit, as 40GiB",
    ),
    "no file": (["x.json"], "cannot read"),
    "a wish": (["tiny", "--gpu", "h100", "--memory", "much"], "--memory: got 'much'"),
    "no unit": (
        ["tiny", "--gpu", "h100", "--memory", "40"],
        "--memory: got '40', expected an amount with its unit, as 40GiB",
    ),
    "no unit of what is kept free": (
        ["tiny", "--gpu", "h100", "--memory", "reserve=2"],
        "--memory reserve: got '2', expected an amount with its unit, as 2GiB",
    ),
    "a runtime": (
        ["tiny", "--for", "torchtitn"],
        "--for: got 'torchtitn', expected one of torch, torchtitan, ",
    ),
    "all kept free": (
        ["tiny", "--gpu", "h100", "--memory", "1GiB", "--memory", "reserve=2GiB"],
        "--memory reserve: got 2048, expected 0 to 1024, the memory",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(cli: Run, name: str) -> None:
    words, what = BAD[name]
    outcome = cli("advise", *words, "--devices", 2, "--microbatches", 4)
    assert outcome.code == 2
    assert what in outcome.err.splitlines()[-1]


def test_python_asks_as_the_command_line_does() -> None:
    """A published model by name, its GPU, and memory as users write it: 1 GiB are 1,024 MiB."""
    notes: list[str] = []
    options = {"devices": 2, "microbatches": 4, "quick": True, "time_limit": 2.0, "workers": 1}
    advice = pipesat.advise(model="tiny", gpu="h100", memory="1GiB", note=notes.append, **options)
    question = advice.question
    assert (question.of_device, question.memory, question.reserve) == (1024, 972, 52)  # a 20th
    assert notes[0].startswith("pipesat: all costs are an estimate: roofline")
    with pytest.raises(BadInput, match="a published model needs a GPU"):
        pipesat.advise("tiny", devices=2, microbatches=4)
    with pytest.raises(BadInput, match="memory: got 'much', expected an amount as 40GiB"):
        pipesat.advise("tiny", gpu="h100", memory="much", **options)
    plan = pipesat.plan(FOUR, 2, 4, memory="40", time_limit=1, compare=False)
    assert plan.chosen is not None
    assert plan.chosen.problem.devices[0].memory == 40


def test_a_folder_that_nothing_came_into_is_taken_back(cli: Run, tmp_path: Path) -> None:
    """What fits into no memory leaves no folder behind; one that was there stays."""
    words = ["advise", "tiny", "--gpu", "h100", "--devices", 2, "--microbatches", 4]
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "new" / "out", tmp_path / "there"):
        assert cli(*words, "--memory", "10MiB", "-o", folder).code == 3
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    told = cli(*words, "--memory", "10MiB", "--json")
    assert (told.code, told.json["status"]) == (3, "infeasible")
    assert told.json["explanation"] in told.err.replace("pipesat: infeasible: ", "")


def test_a_problem_is_no_question(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    pipesat.Problem.chain(2, 4, F=1, B=1, W=1).write(path)
    words = ["advise", path, "--devices", 2, "--microbatches", 4]
    one_bad_line(cli(*words), "a problem is cut already: pipesat compare answers for it")
    with pytest.raises(BadInput, match="target: got"):
        asked(target="jax")


@pytest.mark.parametrize("least", [95, 91])
@pytest.mark.parametrize("again", [False, True])
def test_a_bound_that_is_far_off_says_what_it_leaves_out(least: int, again: bool) -> None:
    """The number is said in any case: it is the one of advice.json. Beyond 8 % it is coarse."""
    question = SimpleNamespace(
        runtime="torch",
        record=SimpleNamespace(modes=()),
        layers=SimpleNamespace(recomputable=again),
        any_order=False,
        may_offload=False,
        may_recompute=again,
        time=time_of,
    )
    advice: Any = SimpleNamespace(
        standing=Standing(100, least), not_searched=[], question=question, shapes="chain, vee"
    )
    row: Any = SimpleNamespace(candidate=SimpleNamespace(first=None))
    text, *more = _proof(advice, row)
    assert f"at most {100 - least}.00 % less is possible" in text
    assert f"takes less than {least}" in text
    assert len(more) == (1 + again if least == 91 else 0)


@pytest.mark.parametrize(
    ("name", "called"), [("torchtitan", "torchtitan"), ("olmo-core", "OLMo-core"), ("elf", "ELF")]
)
def test_a_bound_names_the_runtime_as_its_users_do(name: Runtime, called: str) -> None:
    known = given("llama3-8b", "h100", {"length": 8192, "batch": 1, "tensor_parallel": 1})
    question = model_source.asked(known, 2, 4, None, 0, None, name, None)
    row: Any = SimpleNamespace(candidate=SimpleNamespace(first=None))
    advice: Any = SimpleNamespace(question=question, shapes="chain, vee")
    assert _searched(advice, row).startswith(f"schedule that {called} runs on any split")


def time_of(value: int, _: object) -> str:
    return str(value)


@pytest.mark.slow
def test_the_story_at_70b_has_the_figures_of_the_tool() -> None:
    """What is as shipped is written by formula, so it is the same on every machine."""
    page = (ROOT / "docs" / "story-megatron-70b.md").read_text()
    known = given("llama3-70b", "h100", {"length": 8192, "batch": 1, "tensor_parallel": 8})
    asks = model_source.asked(known, 4, 32, None, 0, None, "megatron", None)
    trials = Trials(asks, Deadline(1000.0))
    shapes = {1: asks.shape("chain")} | {n: asks.shape("loop", n) for n in (2, 4, 5, 10, 20, 11)}
    for stages, shape in shapes.items():
        cut = even_partition if stages != 11 else balanced_partition
        trials.add(MEGATRONS[stages > 1], cut.__name__, shape, cut(asks.layers, shape))
    *others, last = trials.rows
    shipped, flags = [row.makespan for row in others], last.makespan
    assert f"{asks.time(flags)[:-3]}**" in page
    for time in shipped:
        gain = Tried("it", 1, 1).gain(flags, time).removesuffix(" shorter than it")
        assert f"| {asks.time(time)[:-3]} | {gain} |" in page
    costs: dict[str, Any] = {"F": 7361, "B": 8729, "W": 5062, "layers": 80, "backward": "fused"}
    costs |= {"devices": 8, "placement": "loop", "chunks": 5}
    assert ",".join(f"{key}={costs[key]}" for key in ("F", "B", "W", "layers")) in page
    rank = estimate_layers("llama3-70b", "h100", tensor_parallel=4).layers[1].costs
    assert (rank.F, rank.B, rank.W) == (7361, 8729, 5062)
    made = lambda m: problem_from_numbers(microbatches=m, **costs)  # noqa: E731
    long, half = (baseline("interleaved-1f1b", made(m)).makespan for m in (128, 64))
    assert f"| 128 | {long:,} | given | given | 20.22 s" in page
    assert f"| 64 | {half:,} | {20.22 * half / long:.2f} s | {20.22 / 2:.2f} s |" in page


@pytest.mark.parametrize("function", [pipesat.advise, pipesat.plan])
def test_more_microbatches_than_can_be_timed_are_refused_at_once(function: Any) -> None:
    layers = pipesat.read(ROOT / "examples" / "layers-gemma-like.json")
    with pytest.raises(BadInput) as raised:
        function(layers, devices=8, microbatches=10**6)
    assert str(raised.value) == (
        "microbatches: got 1000000, 24,000,000 ops in a chain of 8 devices, "
        "expected at most 500,000"
    )


def test_configurations_run_the_sequences_and_shares_that_costs_are_of(tmp_path: Path) -> None:
    layers = estimate_layers("tiny", "h100", length=64, batch=3, tensor_parallel=2)
    layers.write(tmp_path / "layers.json")  # a file carries both
    asked: dict[str, Any] = {"devices": 2, "microbatches": 4, "time_limit": 4}
    for target in ("torchtitan", "automodel"):
        answer = pipesat.advise(tmp_path / "layers.json", target=target, **asked)
        answer.save(tmp_path / target)
    toml = tomllib.loads((tmp_path / "torchtitan" / "schedule.toml").read_text())
    assert toml["parallelism"]["pipeline_parallel_microbatch_size"] == 3
    assert toml["parallelism"]["tensor_parallel_degree"] == 2
    assert toml["training"]["local_batch_size"] == 4 * 3
    python = (tmp_path / "torchtitan" / "schedule.py").read_text()
    assert "parallelism.pipeline_parallel_microbatch_size = 3\n" in python
    assert "training.local_batch_size = 12 " in python
    assert "parallelism.tensor_parallel_degree = 2\n" in python
    yaml = (tmp_path / "automodel" / "schedule.yaml").read_text()
    for line in ("  tp_size: 2\n", "    pp_microbatch_size: 3\n", "    pp_batch_size: 12\n"):
        assert line in yaml
