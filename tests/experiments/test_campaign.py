"""The campaign: its judge sees planted faults, and some dozens of its cases are clean."""

from __future__ import annotations

import copy
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipesat.heuristics import BASELINES
from tests.oracle.exact import optimum
from tests.oracle.generator import of_family
from tests.support.paths import ROOT

CAMPAIGN = ROOT / "bench" / "campaign"

# Two devices, two microbatches, no split: device 0 F0 F1 . BW0 BW1, device 1 . F0 BW0 F1 BW1 with
# F = 1, BW = 2. F0 ends at 1, device 1 works from 1 to 7; BW1 of device 0 starts at 7, ends at 9.
DOCUMENT: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{"memory": 5, "static": 1}, {}],
    "stages": [
        {"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 2, "backward": "fused"}
        for d in (0, 1)
    ],
}
ROWS = [
    [["0F0", 0, 1], ["0F1", 1, 2], ["0BW0", 4, 6], ["0BW1", 7, 9]],
    [["1F0", 1, 2], ["1BW0", 2, 4], ["1F1", 4, 5], ["1BW1", 5, 7]],
]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports one of the campaign's modules."""
    monkeypatch.syspath_prepend(str(CAMPAIGN.parent))
    return lambda name: importlib.import_module(f"campaign.{name}")


def schedule(judge: Any, document: dict[str, Any] = DOCUMENT) -> dict[str, Any]:
    digest = judge("judge.reading").digest(document)
    return {
        "format": "pipesat.schedule/1",
        "problem_sha256": digest,
        "devices": copy.deepcopy(ROWS),
    }


def broken(judge: Any, found: dict[str, Any], document: dict[str, Any] = DOCUMENT) -> set[str]:
    """First words of the broken rules."""
    reading = judge("judge.reading")
    pipe, digest = reading.pipe_of(document), reading.digest(document)
    rules = judge("judge.rules").broken_rules(pipe, digest, found)
    return {rule.partition(":")[0] for rule in rules}


def test_the_judge_imports_nothing_of_pipesat() -> None:
    for path in [*CAMPAIGN.glob("judge/*.py"), *CAMPAIGN.glob("problems/*.py")]:
        assert "import pipesat" not in path.read_text()
        assert "from pipesat" not in path.read_text()


def test_every_hand_written_schedule_is_tried(judge: Any) -> None:
    assert set(judge("commands.baseline").NAMES) == set(BASELINES)


def test_a_schedule_by_hand_has_its_figures(judge: Any) -> None:
    found, values = schedule(judge), judge("judge.values")
    assert broken(judge, found) == set()
    pipe = judge("judge.reading").pipe_of(DOCUMENT)
    timed, _ = judge("judge.timed").read_timed(found, 2)
    assert (values.makespan(timed), values.span(timed)) == (9, 9)
    assert [float(share) for share in values.bubbles(pipe, timed).values()] == pytest.approx(
        [1 - 12 / 18, 1 - 6 / 9]
    )
    assert values.peaks(pipe, timed) == [5, 2]


@pytest.mark.parametrize(
    ("rule", "device", "position", "entry"),
    [
        ("form", 0, 0, ["0F00", 0, 1]),
        ("form", 0, 0, ["0F0", 0.0, 1]),
        ("start", 0, 0, ["0F0", -1, 0]),
        ("duration", 0, 0, ["0F0", 0, 2]),
        ("missing", 0, 0, ["0F1", 0, 1]),
        ("backward", 0, 2, ["0B0", 4, 5]),
        ("overlap", 0, 1, ["0F1", 0, 1]),
        ("listing", 0, 3, ["0BW1", 2, 4]),
        ("input", 0, 2, ["0BW0", 3, 5]),
        ("pair", 0, 2, ["(0F1+0BW0)", 4, 6]),
    ],
)
def test_a_broken_rule_is_seen(
    judge: Any, rule: str, device: int, position: int, entry: list[Any]
) -> None:
    found = schedule(judge)
    found["devices"][device][position] = entry
    if rule == "pair":
        del found["devices"][0][1]
    assert rule in broken(judge, found)


def test_an_op_on_another_device_is_seen(judge: Any) -> None:
    found = schedule(judge)
    found["devices"][1].insert(0, found["devices"][0].pop(0))
    assert "device" in broken(judge, found)


def test_listed_pairs_are_judged(judge: Any) -> None:
    # 0F1 joins 0BW0 at 4, for 1 in all: less than BW alone; 1F1 follows 1BW0 as before
    pairs = [{"ops": ["0BW", "0F"], "time": 1}, {"ops": ["0F", "0F"], "time": 2}]
    listed = DOCUMENT | {"overlap": {"pairs": pairs}}
    found = schedule(judge, listed)
    found["devices"] = [
        [["0F0", 0, 1], ["(0BW0+0F1)", 4, 5], ["0BW1", 8, 10]],
        [["1F0", 1, 2], ["1BW0", 2, 4], ["1F1", 5, 6], ["1BW1", 6, 8]],
    ]
    assert broken(judge, found, listed) == set()
    timed, _ = judge("judge.timed").read_timed(found, 2)
    assert judge("judge.values").pair_counts(timed) == {"F+BW": 1}
    # one longer, 1F1 starts before its input is there
    for text, end, rules in (
        ("(0F1+0BW0)", 5, {"members"}),
        ("(0BW0+0F1)", 6, {"duration", "input"}),
    ):
        other = copy.deepcopy(found)
        other["devices"][0][1] = [text, 4, end]
        assert broken(judge, other, listed) == rules
    only_forwards = DOCUMENT | {"overlap": {"pairs": pairs[1:]}}
    found["problem_sha256"] = judge("judge.reading").digest(only_forwards)
    assert broken(judge, found, only_forwards) == {"pair"}


def test_modes_and_copies_are_judged(judge: Any) -> None:
    host = {"name": "host", "offload": {"out": 2, "in": 2, "held": 1}}
    stage = {"device": 0, "F": 2, "B": 1, "W": 1, "held_after_F": 4, "backward": "fused"}
    document = {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{"memory": 5, "copy_channels": 1}],
        "stages": [stage | {"modes": [host]}],
    }
    # 0F0 holds 4 to the end of its copy out and 1 from there on, so 0F1 fits at 4; once it is gone
    # the copy back takes 3 at 8
    found = {
        "format": "pipesat.schedule/1",
        "problem_sha256": judge("judge.reading").digest(document),
        "devices": [[["0F0", 0, 2], ["0F1", 4, 6], ["0BW1", 6, 8], ["0BW0", 10, 12]]],
        "modes": [[0, 0, "host"]],
        "copies": [[["0O0", 2, 4], ["0L0", 8, 10]]],
    }
    assert broken(judge, found, document) == set()
    values, pipe = judge("judge.values"), judge("judge.reading").pipe_of(document)
    timed, _ = judge("judge.timed").read_timed(found, 1)
    assert values.peaks(pipe, timed) == [5]
    assert values.mode_counts(pipe, timed) == {"keep": 1, "host": 1}
    for change, rules in (
        ({"copies": [[["0O0", 2, 4], ["0L0", 6, 8]]]}, {"memory"}),
        ({"copies": [[["0O0", 1, 3], ["0L0", 8, 10]]]}, {"copy"}),
        ({"copies": [[["0O0", 2, 4], ["0L0", 9, 11]]]}, {"copy"}),
        ({"copies": [[["0O0", 2, 4]]]}, {"copy"}),
        ({"copies": [[["0O0", 2, 4], ["0L0", 8, 9]]]}, {"duration"}),
        ({"modes": [], "copies": [[]]}, {"memory"}),
        ({"modes": [[0, 0, "keep"]], "copies": [[]]}, {"mode"}),
    ):
        assert broken(judge, found | change, document) == rules
    alike = document | {"mode_choice": "stage"}
    of_alike = found | {"problem_sha256": judge("judge.reading").digest(alike)}
    assert broken(judge, of_alike, alike) == {"mode"}


def test_the_order_of_a_list_is_judged(judge: Any) -> None:
    kinds = [{"name": "long", "count": 1, "time": [3, 2]}, {"name": "short", "count": 1}]
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "backward": "fused"}
    document = {
        "format": "pipesat.problem/1",
        "microbatches": kinds,
        "order": "same",
        "devices": [{}],
        "stages": [stage],
    }
    # of the long one F takes 3/2, so 2, B and W 2 each, and BW their sum
    row = [["0F1", 0, 1], ["0F0", 1, 3], ["0BW1", 3, 5], ["0BW0", 5, 9]]
    turned = [["0F1", 0, 1], ["0F0", 1, 3], ["0BW0", 3, 7], ["0BW1", 7, 9]]
    for order, rows, rules in (
        ("same", row, set()),
        ("same", turned, {"order"}),
        ("given", row, {"order"}),
        ("free", turned, set()),
    ):
        problem = document | {"order": order}
        digest = judge("judge.reading").digest(problem)
        found = {"format": "pipesat.schedule/1", "problem_sha256": digest, "devices": [rows]}
        assert broken(judge, found, problem) == rules


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_exact_oracle_agrees_with_those_of_the_suite(judge: Any, seed: int) -> None:
    exact, pipe_of = judge("judge.exact").exact, judge("judge.reading").pipe_of
    modes, classes = of_family("modes", seed), of_family("lists", seed)
    for objective in ("makespan", "span"):
        truth = exact(pipe_of(modes), objective, 60)
        assert truth.exact
        assert truth.upper == optimum(modes, objective)
        truth = exact(pipe_of(classes), objective, 60)
        assert truth.exact
        assert truth.upper == optimum(classes, objective)


def test_memory_digest_and_ties_are_seen(judge: Any) -> None:
    less = copy.deepcopy(DOCUMENT)
    less["devices"][0]["memory"] = 4
    assert broken(judge, schedule(judge, less), less) == {"memory"}
    assert broken(judge, schedule(judge), less) == {"digest"}
    # a chain of ops of length 0 on one device, listed against its order
    zero = {
        "format": "pipesat.problem/1",
        "microbatches": 1,
        "devices": [{}],
        "stages": [{"device": 0, "F": 0, "B": 0, "W": 0, "backward": "fused"}],
    }
    row = [["0F0", 0, 0], ["0BW0", 0, 0]]
    for rows, rule in ((row, set()), (row[::-1], {"listing"})):
        found = schedule(judge, zero) | {"devices": [rows]}
        assert broken(judge, found, zero) == rule


def test_planted_false_claims_are_seen(judge: Any) -> None:
    claims = judge("judge.claims")
    truth = judge("judge.exact").exact(judge("judge.reading").pipe_of(DOCUMENT), "makespan")
    assert (truth.lower, truth.upper) == (9, 9)  # 9: the way of a microbatch and what waits for it
    true = {
        "status": "optimal",
        "objective": "makespan",
        "value": 9,
        "makespan": 9,
        "span": 9,
        "lower_bound": 9,
        "lower_bound_source": "",
        "gap": 0.0,
        "bubble": {"makespan": 1 / 3, "span": 1 / 3},
        "peak_memory": [5, 2],
        "baseline": {"name": "1f1b", "value": 9},
        "schedule": None,
        "wall_s": 0.1,
        "seed": 0,
        "workers": 1,
        "versions": {},
    }

    def false(change: dict[str, Any], code: int = 0, known: Any = truth) -> list[str]:
        judged = claims.Judged(DOCUMENT, "makespan", known)
        return list(claims.false_claims(judged, true | change, schedule(judge), code))

    assert false({}) == []
    planted: list[dict[str, Any]] = [
        {"value": 8},
        {"makespan": 10},
        {"span": 8},
        {"lower_bound": 10},
        {"gap": 0.1},
        {"status": "feasible"},
        {"lower_bound": 8, "gap": 1 / 9},
        {"objective": "span"},
        {"peak_memory": [4, 2]},
        {"bubble": {"makespan": 0.3, "span": 1 / 3}},
        {"baseline": {"name": "1f1b", "value": 8}},
        {"status": "infeasible"},
        {"status": "unknown"},
        {"value": None},
    ]
    for change in planted:
        assert false(change), change
    assert false({}, code=3)
    none = claims.Truth(9, feasible=False)
    assert any("no schedule exists" in claim for claim in false({}, known=none))
    lower = claims.Truth(10)
    assert any("none is below 10" in claim for claim in false({}, known=lower))


@pytest.mark.slow
def test_seven_cases(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(CAMPAIGN / "run.py"),
        "--cases",
        "7",
        "--seed",
        "7",
        "--output",
        str(tmp_path),
        "--quick",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    last = done.stdout.splitlines()[-1].split("|")
    assert last[1].strip() == "**all**"
    assert [last[-5].strip(), last[-2].strip()] == ["7", "0"]  # cases, violations


def test_a_false_case_leaves_a_folder_and_a_replay(judge: Any, tmp_path: Path) -> None:
    pool, commands = judge("pool"), judge("commands")

    def lies(case: Any) -> None:
        case.expect(False, "2 is 3")

    commands.KINDS["lies"] = lies
    try:
        (outcome,) = pool.run_all(iter([("lies", 4)]), tmp_path, 1)
    finally:
        del commands.KINDS["lies"]
    assert outcome.violations == ["2 is 3"]
    saved = json.loads((tmp_path / "lies-4" / "case.json").read_text())
    assert saved["replay"] == "python bench/campaign/run.py --case lies:4"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("twice", "pipesat.core.folder._read", r"leaves \["),
        (
            "kill",
            "pipesat.core.strict_json.finish",
            "no result.json|schedule|digest|none of those",
        ),
        ("streams", "pipesat.cli.process.keep_streams", "exit code|a fault"),
    ],
)
def test_what_is_lost_in_a_folder_is_seen(
    judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, said: str
) -> None:
    """Without the list, without the readers that finish moves, without streams that are kept."""
    pool = judge("pool")
    judge("process").load()
    monkeypatch.setattr(name, lambda *_: {})
    for module in ("atomic", "folder") if kind == "kill" else ():
        monkeypatch.setattr(f"pipesat.core.{module}.finish", lambda _: None)
    cases = iter([(f"{kind}/chain", seed) for seed in range(12)])
    texts = (
        text for case in pool.run_all(cases, tmp_path, 2, quick=True) for text in case.violations
    )
    assert any(re.search(said, text) for text in texts)


def test_group_sizes_and_orders_are_megatrons(judge: Any) -> None:
    # schedules of Narayanan et al.: p = 2, m = 5, v = 2, groups of 3 run 0 1 2 0 1 2 3 4 3 4
    known = judge("judge.known")
    row = known.in_turns(2, 2, 5, 3)[0]
    forwards = [known.split_op(op)[2] for op in row if "F" in op]
    assert forwards == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert row.index("2BW0") == 6  # 2 (p - 1) + (v - 1) g forwards, and one of the steady state
    assert [known.in_turns(2, 1, 2, 2)[d] for d in (0, 1)] == [[e[0] for e in r] for r in ROWS]
    assert known.built(DOCUMENT, known.in_turns(2, 1, 2, 2)) == (9, [5, 2])
    assert known.built(DOCUMENT, [["0F0"], ["1F0"]]) is None
    for devices, microbatches, size, takes in (
        (4, 16, 8, True),
        (4, 8, 5, False),  # a last group of 3
        (4, 4, 8, False),
        (4, 10, 5, True),
        (4, 10, 4, False),
        (4, 16, 3, False),
    ):
        assert known.takes_group(devices, microbatches, size) == takes


def test_false_gains_are_seen(judge: Any, tmp_path: Path) -> None:
    """Two blocks alike on two ranks, 1F1B alone: as the schedule by hand, 9; then lies of it."""
    gain, plans = judge("commands.gain"), judge("judge.plans")
    layer = {"role": "block", "F": 1, "B": 1, "W": 1, "held_after_F": 2, "fused": True}
    question = plans.Question([layer] * 4, 2, 2, [8, 8], (), "never")
    row = {"schedule": "1f1b", "placement": "chain", "split": "even", "group": None}
    row |= {"layers_per_stage": [2, 2], "recompute": [], "recompute_first": None}
    row |= {"makespan": 18, "peak_memory": 8, "fits": True, "runs": True, "why_not": None}
    looped = row | {"schedule": "interleaved-1f1b", "placement": "loop of 2"}
    # F of 1, BW of 2, no warm-up that waits long: 2 + 12 + 1 of rank 1, found by hand: 15
    looped |= {"layers_per_stage": [1, 1, 1, 1], "makespan": 15}
    text = "16.6 % shorter than the best 1F1B (18)"
    table = {"lines": [["interleaved-1f1b", "even"], ["1f1b", "even"]]}
    answer = {"rows": [looped, row], "chosen": looped, "table": table, "advice": {"Gain": text}}
    answer |= {"not_tried": [], "left_out": []}

    def false(**change: Any) -> list[str]:
        case = judge("case").Case("gain/torch", 0, tmp_path)
        return list(gain.false_gains(case, question, "torch", copy.deepcopy(answer | change)))

    assert false() == []
    for change, said in (
        ({"rows": [looped, row | {"peak_memory": 9}]}, "called fitting"),
        ({"rows": [looped, row | {"makespan": 17}]}, "ours"),
        ({"rows": [looped, row | {"layers_per_stage": [3, 1]}]}, "blocks per stage"),
        ({"chosen": row}, "its own table has 15"),
        ({"table": {"lines": table["lines"][1:]}}, "has no row"),
        ({"advice": {"Gain": "9 % shorter than the best 1F1B (18)"}}, "with 15 against 18"),
        ({"advice": {"Gain": text.replace("18", "19")}}, "is said to take 19"),
        ({"rows": [looped, row | {"split": "balanced"}]}, "chain: no even row"),
    ):
        assert any(said in one for one in false(**change)), (change, false(**change))
    # of two rows of a name the worse one is called the best; or how many were tried is said
    worse = row | {"makespan": 24, "split": "ours", "layers_per_stage": [1, 3]}
    claim = "37.5 % shorter than the best 1F1B (24)"
    lie = false(rows=[looped, row, worse], advice={"Gain": claim})
    assert any("its own table has 18" in one for one in lie)


def test_false_gains_of_plan_are_seen(judge: Any) -> None:
    gain, plans = judge("commands.gain"), judge("judge.plans")
    layer = {"role": "block", "F": 1, "B": 1, "W": 1}
    question = plans.Question([layer] * 2, 2, 2, [None, None], (), "never")
    cell = {"1F1B": {"value": 9, "fits": True}}
    row = {"name": "even split", "placement": "chain", "layers_per_stage": [1, 1]}
    row |= {"recompute": [False, False], "schedules": cell, "best_order": 9}
    gains = ["from 1F1B to the plan: 9 to 9, as long"]

    def false(asked: str = "chain", **change: Any) -> list[str]:
        plan = {"value": 9, "comparison": [row], "gains": gains} | change
        return list(gain.false_plan(question, asked, plan))

    assert false() == []
    assert any("its own table has 9" in one for one in false(value=10))
    wrong = row | {"schedules": {"1F1B": {"value": 8, "fits": True}}, "best_order": None}
    assert any("ours 9" in one for one in false(comparison=[wrong], value=8))
    assert any("no even split in a vee" in one for one in false("vee"))
    parts = (
        "from a to the plan: 9 to 6, 33.3 % shorter: the cut 20 % shorter, the order 20 % shorter"
    )
    assert any("multiply" in one for one in false(gains=[parts]))


def test_texts_that_mislead_are_seen(judge: Any) -> None:
    said = judge("judge.said")
    assert [*said.beyond_capacity("74.6 GiB of 74.5 GiB, 900 MiB of 1 GiB")] == [
        "74.6 GiB of 74.5 GiB"
    ]
    named = "3.2 % shorter than 1F1B (9). From a to b: 2.0 % longer"
    assert [*said.nameless_gains(named)] == []
    assert [*said.nameless_gains("Partition alone: 2.0 % shorter")] != []
    assert [*said.nameless_limits("gap 2.3 %")] == ["gap 2.3 %"]
    assert [*said.nameless_limits("at most 2.3 % less is possible on any split")] == []
    one, other = ("3 % shorter than the best 1F1B (9)", "4 % shorter than the best 1F1B (10)")
    assert [*said.two_figures([one, one])] == []
    assert [*said.two_figures([one, other])] == ["the best 1F1B: ['10', '9']"]
    (gain,) = said.gains_in("5 % shorter than the best of 12 of 34 settings of 1F1B (1,040.0 ms)")
    assert (gain.count, gain.family, gain.time) == ((12, 34), "1f1b", "1,040.0")


CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CSV, ""),
        (CSV.replace("1B1", ",1I1,1W1"), ""),
        (CSV.replace("0F1", "0F1junk"), "no action"),
        (CSV.replace("1F1", "1F0"), "runs"),
        (CSV.replace("1F0,1B0,1F1", "1F1,1F0,1B0"), "losses"),
        (CSV.replace(",1B1", ""), "runs"),
        (CSV + "\n", "blank"),
    ],
)
def test_torchs_file_is_read_by_its_rules(judge: Any, text: str, said: str) -> None:
    foreign = judge("judge.foreign")

    def read() -> None:
        order = foreign.torch_csv(text)
        foreign.complete(order, 2, 2)
        foreign.losses_in_order(order, 2)

    if not said:
        return read()
    with pytest.raises(foreign.Refused, match=said):
        read()
    return None


def test_what_an_export_changes_is_seen(judge: Any) -> None:
    foreign, changed = judge("judge.foreign"), judge("commands.read_back").changed
    order = foreign.torch_csv(CSV)
    assert changed(order, order, "") is None
    swapped = foreign.torch_csv(CSV.replace("1B0,1F1", "1F1,1B0"))
    for notes in ("", "a backward written whole"):
        assert "rank 1, place 1" in changed(order, swapped, notes)
    split = foreign.torch_csv(CSV.replace("1B1", "1I1,1W1"))
    assert changed(split, order, "") is not None
    assert changed(split, order, "each B followed by its own W fused") is None


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("Et*3|(t|)*2,t*0L", "4 stages"),  # E ttt, t, t, L
        ("Et|tL||", "L is not last"),
        ("t|EtL", "E is not first"),
        ("Ett|tLL", "L is not last"),
        ("Ett|t|L", "3 stages on 2 ranks"),
        ("Etm|tL", "MTP|order"),
        ("Ex|tL", "characters"),
    ],
)
def test_layouts_are_read_as_megatron_does(judge: Any, layout: str, said: str) -> None:
    foreign = judge("judge.foreign")
    if said == "4 stages":
        assert foreign.megatron_layout(layout, 2) == ["Ettt", "t", "t", "L"]
        return
    with pytest.raises(foreign.Refused, match=said):
        foreign.megatron_layout(layout, 2)


def test_configurations_and_python_files_are_read_as_data(judge: Any) -> None:
    foreign = judge("judge.foreign")
    parts = [["tok_embeddings", "layers.0"], ["layers.1", "layers.2", "norm", "output"]]
    assert foreign.layers_of_names(parts) == [1, 2]
    for place, name in ((0, "layers.1"), (1, "layers.1"), (2, "embed")):
        wrong = copy.deepcopy(parts)
        wrong[1 if place else 0].append(name)
        with pytest.raises(foreign.Refused):
            foreign.layers_of_names(wrong)
    assert foreign.placement_by_name("ZBVZeroBubble", 2, 4) == [0, 1, 1, 0]
    for name, stages in (("PipelineScheduleSingle", 4), ("ZBVZeroBubble", 2), ("1f1b", 2)):
        with pytest.raises(foreign.Refused):
            foreign.placement_by_name(name, 2, stages)
    found = foreign.python_order('import os\nORDER = {"rows": ["0F0 (0F1+0BW0) 0B1 1F0 0W1"]}\n')
    assert found["order"][0][1] == ((0, "F", 1), (0, "BW", 0))
    with pytest.raises(foreign.Refused, match="follow it at once"):
        foreign.jaxpp_rules(found["order"])
    with pytest.raises(foreign.Refused, match="argument"):
        foreign.megatron_flags("--a=1 --a=2")


def test_remarks_are_held_against_what_is_stated(judge: Any) -> None:
    stated = judge("judge.stated")
    stage = {"device": 0, "F": 2, "B": 2, "W": 1, "BW": 4, "held_after_F": 3}
    mode = {"name": "again", "backward": "fused", "BW": 5}  # meant: nothing is split away
    document = {"devices": [{"memory": 9}], "stages": [stage | {"modes": [mode]}, stage]}
    stages = document["stages"]

    def false(*said: tuple[str, int]) -> list[str]:
        remarks = [{"path": path, "value": value, "text": ""} for path, value in said]
        return list(stated.false_remarks(document, remarks))

    longer = (("stages[0].BW", 4), ("stages[1].BW", 4))
    assert false(*longer) == []
    for lie in ((), longer[:1], (*longer, longer[0]), (longer[0], ("stages[1].BW", 5))):
        assert false(*lie)
    assert false(*longer, ("stages[0].modes[0].BW", 5))
    assert false(*longer, ("devices[0].memory", 9))
    for one in stages:
        del one["BW"]
    assert false() == []
    stages[1] |= {"backward": "fused", "held_after_B": 4}
    assert false(("stages.1.held_after_B", 4)) == []
    for one in stages:  # nothing is held, and no backward takes any time
        one |= {"B": 0, "W": 0, "held_after_F": 0, "held_after_B": 0, "modes": []}
    both = (("devices[0].memory", 9), ("stages[0].B", 0))
    assert false(*both) == []
    assert [len(false(one)) for one in both] == [1, 1]
    assert list(stated.false_remarks(document, None))
