"""Orders for runtimes in Python: what each runs, op by op in stand-ins, and back as data."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.check.checker import check
from pipesat.compare.compare import compare
from pipesat.compare.exports import export, import_order
from pipesat.compare.frontier.memory import frontier
from pipesat.compare.hand_written import baseline
from pipesat.compare.solve import solve
from pipesat.core.errors import BadInput, NotApplicable, NotValid
from pipesat.core.settings import Target
from pipesat.problem.ops import Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes import EXPORTERS, FILE_NAMES, OLD_NAMES, RUNTIMES, problems_for
from pipesat.runtimes.as_run import as_run
from pipesat.runtimes.options import Options
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.oracle.exact import optimum
from tests.support.greedy import by_each_policy
from tests.support.orders import order_of
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain, loop, problems, two_routes, vee, vees
from tests.support.releases import release
from tests.support.runtime_orders import orders
from tests.support.runtime_stand_ins import loaded, stand_ins

TO = [name for name, runtime in RUNTIMES.items() if runtime.in_python]
TEN = orders()


def takes(to: str, problem: Problem) -> bool:
    return RUNTIMES[to].why_not(problem, Options()) is None


EACH = [(to, name) for to in TO for name in TEN if takes(to, TEN[name][0])]


pytestmark = pytest.mark.filterwarnings("ignore:the order as:UserWarning")


def written(problem: Problem, schedule: Schedule, to: str, folder: Path) -> Path:
    path = export(problem, schedule, to, folder / f"{to}.py").path
    assert path is not None
    return path


def run_by(to: str, problem: Problem, schedule: Schedule) -> Order:
    """What the runtime runs, in its own stages: here they are numbered along the route."""
    return as_run(problem, schedule, RUNTIMES[to]).schedule.order


def test_names_are_one_list() -> None:
    known = [name for name, runtime in RUNTIMES.items() if runtime.any_order]
    assert sorted(get_args(Target)) == sorted(known)
    assert RUNTIMES.keys() <= EXPORTERS.keys() == FILE_NAMES.keys()
    assert {*OLD_NAMES.values()} <= RUNTIMES.keys()


@pytest.mark.parametrize(("to", "name"), EACH)
def test_an_order_comes_back_as_it_was_written(to: str, name: str, tmp_path: Path) -> None:
    problem, schedule = TEN[name]
    path = written(problem, schedule, to, tmp_path)
    back = import_order(path, problem).schedule
    assert back.order == run_by(to, problem, schedule)
    if all(op.kind in ("F", "BW") for row in schedule.order for i in row for op in members(i)):
        whole = not any(isinstance(item, Pair) for row in schedule.order for item in row)
        assert (back.order == schedule.order) == whole
    assert not check(problem, back)
    assert not {"primus", "d9d", "jaxpp", "elf", "olmo_core"} & sys.modules.keys()


def test_a_first_stage_that_only_splits_runs_w_after_b(tmp_path: Path) -> None:
    """d9d runs it whole: what is written so is not changed again when it is read."""
    document = json.loads(json.dumps(vee(2, 4).document)) | {"overlap": {"FB": [3, 4]}}
    document["stages"][0]["backward"] = "split"
    problem = parse_problem(document)
    schedule = baseline("dualpipev", problem)
    path = written(problem, schedule, "d9d", tmp_path)
    rows = import_order(path, problem).schedule.order
    first = [str(item) for item in rows[0] if item.stage == 0]  # pairs are in turn there
    assert all(first[first.index(f"0B{m}") + 1] == f"0W{m}" for m in range(4))


@pytest.mark.parametrize("name", TEN)
def test_what_d9d_is_handed(name: str, tmp_path: Path) -> None:
    problem, schedule = TEN[name]
    with stand_ins():
        made = loaded(written(problem, schedule, "d9d", tmp_path))
        (build,) = made.PIPELINE_PROGRAM_REGISTRY.programs.values()
        program = build(made.PipesatSchedule())
        ranks, m = len(problem.devices), problem.routes[0].microbatches
        rows = program.compose(num_microbatches=m, pp_size=ranks)
        assert program.num_stages_per_rank == len(problem.stages) // ranks
        with pytest.raises(ValueError, match="expected microbatches, ranks"):
            program.compose(num_microbatches=m + 1, pp_size=ranks)
        both = build(made.PipesatSchedule(made.ORDER | {"microbatches": m + 1}))  # a step of more
        assert both.compose(m, ranks) == both.compose(m + 1, ranks) == rows

    def text(action: Any) -> str:
        kind = type(action).__name__
        letter = "W" if "Weight" in kind else "F" if "Forward" in kind else "B"
        whole = "W" if getattr(action, "full_backward", False) else ""
        return f"{action.stage_idx}{letter}{whole}{action.microbatch_idx}"

    order = run_by("d9d", problem, schedule)
    assert [[*map(text, rows[rank])] for rank in range(ranks)] == [[*map(str, r)] for r in order]


def test_microbatches_that_differ_keep_their_numbers(tmp_path: Path) -> None:
    """d9d takes each in its own shape; of others it is said that they are padded."""
    lists = {"name": "long", "count": 1, "time": [3, 1]}, {"name": "short", "count": 3}
    document = chain(2, 4).document | {"microbatches": [*lists], "order": "free"}
    problem = parse_problem(document)
    row = [f"{d}F{m} {d}BW{m}" for d in (1, 0) for m in (2, 0, 3, 1)]
    schedule = time_order(problem, order_of(" ".join(row[4:]), " ".join(row[:4])))
    made = export(problem, schedule, "d9d", tmp_path / "o.py")
    assert import_order(tmp_path / "o.py", problem).schedule.order == schedule.order
    assert "hand them over in the problem's order, as they are" in " ".join(made.notes)
    ordered = parse_problem(document | {"order": "given"})
    alone = baseline("1f1b", ordered)
    assert "padded to one shape" in " ".join(export(ordered, alone, "jaxpp").notes)


@pytest.mark.parametrize("name", TEN)
def test_what_jaxpp_is_handed(name: str, tmp_path: Path) -> None:
    """Pairs fused, all backwards split or none, stage 0's W after its B, Ws by number."""
    problem, schedule = TEN[name]
    with stand_ins():
        made = loaded(written(problem, schedule, "jaxpp", tmp_path)).Pipesat()
        rows = made.tasks(problem.routes[0].microbatches)
        with pytest.raises(ValueError, match="expected"):
            made.tasks(99)
    for rank, (row, order) in enumerate(zip(rows, run_by("jaxpp", problem, schedule), strict=True)):
        fused = [one for one in row if isinstance(one, tuple)]
        assert len(fused) == sum(isinstance(item, Pair) for item in order)
        flat = [task for one in row for task in (one if isinstance(one, tuple) else [one])]
        kinds = {task.fwd_or_bwd.name for task in flat}
        assert kinds == {"FWD", *(("BWD_I", "BWD_W") if made.is_partial_bwd else ("BWD",))}
        for task, after in zip(flat, flat[1:] + flat[:1], strict=True):
            assert made.get_mpmd_idx(task.stage_id) == rank
            if task.stage_id == 0 and task.fwd_or_bwd.name == "BWD_I":
                assert (after.stage_id, after.fwd_or_bwd.name) == (0, "BWD_W")
                assert after.mubatch_idx == task.mubatch_idx
        numbers = defaultdict[Any, list[int]](list)
        for task in flat:
            numbers[task.stage_id, task.fwd_or_bwd].append(task.mubatch_idx)
        assert all(n == [*range(problem.routes[0].microbatches)] for n in numbers.values())
        letter = {"FWD": "F", "BWD": "B", "BWD_I": "B", "BWD_W": "W"}
        ops = [f"{t.stage_id}{letter[t.fwd_or_bwd.name]}{t.mubatch_idx}" for t in flat]
        halves = [
            f"{op.stage}{kind}{op.microbatch}"
            for item in order
            for op in members(item)
            for kind in (op.kind if made.is_partial_bwd else op.kind[0])
        ]
        assert ops == halves


@pytest.mark.parametrize("name", TEN)
def test_what_primus_is_handed(name: str, tmp_path: Path) -> None:
    """Every op once; sends after what they send, receives before who needs it, both ends alike."""
    problem, schedule = TEN[name]
    ranks, m = len(problem.devices), problem.routes[0].microbatches
    chunks = len(problem.stages) // ranks
    with stand_ins():
        made = loaded(written(problem, schedule, "primus", tmp_path))
        (algorithm,) = made.schedule_table_factory.pp_algorithm_map
        table = made.Pipesat(ranks, chunks, m, combined_forward_backward=False)
        assert table.last_pp_stage_rank() == problem.stages[-1].device
        rows = table.generate_schedule_table()
        for wrong in ((ranks + 1, chunks, m), (ranks, chunks, m + 1)):
            with pytest.raises(ValueError, match="no offload"):
                made.Pipesat(*wrong)
    vees = {"zb-v", "v-half", "dualpipev", "dualpipev, halves"}
    chain_name = "zero-bubble" if name.startswith("zb") else "1f1b"
    loop_name = "1f1b-interleaved" if name.startswith("interleaved") else chain_name
    assert algorithm == ("zbv-formatted" if name in vees else loop_name)
    stages = [
        [s for s, stage in enumerate(problem.stages) if stage.device == r] for r in range(ranks)
    ]
    order = run_by("primus", problem, schedule)
    ends: dict[str, dict[tuple[int, int], list[Any]]] = {
        "S": defaultdict(list),
        "R": defaultdict(list),
    }
    for rank, row in enumerate(rows):
        seen: dict[str, int] = {}
        groups = []
        for place, node in enumerate(row):
            what, stage = node.func_type.name, stages[rank][node.chunk]
            if what[0] not in "SR":
                seen[f"{stage}{what}{node.mini_batch}"] = place
                if "combined_group" in node.args:
                    groups.append(node.args["combined_group"])
                continue
            seen[f"{stage}{what}{node.mini_batch}"] = place
            pair = node.args["from_pp_rank"], node.args["to_pp_rank"]
            ends[what[0]][pair].append((what[1], node.mini_batch, node.args["time_step"]))
        ops = [op for item in order[rank] for op in members(item)]
        compute = [text for text in seen if not set(text) & set("SR")]
        assert compute == [str(op) for op in ops]
        for op in ops:
            back = f"{op.stage}BW{op.microbatch}" in seen
            last = len(problem.stages) - 1
            if op.kind == "F":
                assert (f"{op.stage}RF{op.microbatch}" in seen) == (op.stage > 0)
                assert op.stage == 0 or seen[f"{op.stage}RF{op.microbatch}"] < seen[str(op)]
                assert op.stage == last or seen[f"{op.stage}SF{op.microbatch}"] > seen[str(op)]
            elif op.kind != "W":
                assert (op.kind == "BW") == back
                assert op.stage == last or seen[f"{op.stage}RB{op.microbatch}"] < seen[str(op)]
                assert op.stage == 0 or seen[f"{op.stage}SB{op.microbatch}"] > seen[str(op)]
        assert len(groups) == 2 * sum(isinstance(item, Pair) for item in order[rank])
        assert all(group[0][1] == "F" and group[1][1:3] == "B|" for group in groups)
    assert ends["S"] == ends["R"]


@pytest.mark.parametrize("name", TEN)
def test_what_elf_is_handed(name: str, tmp_path: Path) -> None:
    """Whole backwards as B and W; one group for both ends of two neighbours, none in a rank."""
    problem, schedule = TEN[name]
    placement = [stage.device for stage in problem.stages]
    with stand_ins():
        made = loaded(written(problem, schedule, "elf", tmp_path))
        pipe = made.Pipeline(["part"], comm_scheduler="topo")
        ops = pipe.options["scheduler"](placement, problem.routes[0].microbatches)
        replica = [rank + 8 for rank in placement]
        assert len(made.schedule(replica, problem.routes[0].microbatches)) == len(ops)
        for wrong in ((placement[::-1], 99), (placement, 99)):
            with pytest.raises(ValueError, match="expected placement, microbatches"):
                made.schedule(*wrong)
    assert pipe.model == ["part"]
    assert (pipe.options["partitioner"], pipe.options["comm_scheduler"]) == (False, "topo")
    for stage, two in enumerate(pairwise(placement)):
        (receives, sends), (from_before, to_before) = pipe.groups[stage], pipe.groups[stage + 1]
        group = None if len({*two}) == 1 else two
        assert sends["fwd"].get(stage + 1) == from_before["fwd"].get(stage) == group
        assert to_before["bwd"].get(stage) == receives["bwd"].get(stage + 1) == group
    assert not any(op.options for op in ops)
    for rank, row in enumerate(run_by("elf", problem, schedule)):
        halves = [
            f"{op.stage}{half}{op.microbatch}"
            for item in row
            for op in members(item)
            for half in op.kind
        ]
        mine = [f"{op.block_id}{op.kind.upper()}{op.mb_id}" for op in ops if op.rank == rank]
        assert mine == halves


ELF_MODES = parse_problem(
    {
        "format": "pipesat.problem/1",
        "microbatches": 3,
        "devices": [{"memory": 30}, {}],
        "stages": [
            {"device": device, "F": 4, "B": 5, "W": 3, "held_after_F": 10, "held_after_B": 6}
            | {"backward": "split", "modes": modes}
            for device, modes in enumerate(
                [
                    [{"name": "drop after B", "W": 7, "held_after_B": 4}],
                    [
                        {"name": "keep the input only", "W": 12, "held_after_B": 2},
                        {"name": "recompute", "B": 9, "held_after_F": 2, "held_in_backward": 10},
                    ],
                ]
            )
        ],
    }
)


def test_elf_runs_each_microbatch_in_its_mode(tmp_path: Path, cli: Run) -> None:
    rows = "0F0 0F1 0B0 0F2 0W0 0B1 0W1 0B2 0W2", "1F0 1B0 1F1 1B1 1W1 1F2 1B2 1W0 1W2"
    modes = {(0, 1): 1, (1, 0): 1, (1, 2): 2}
    order = tuple(
        tuple(op._replace(mode=modes.get((op.stage, op.microbatch), 0)) for op in row)  # type: ignore[union-attr]
        for row in order_of(*rows)
    )
    schedule = time_order(ELF_MODES, order)
    path = written(ELF_MODES, schedule, "elf", tmp_path)
    back = import_order(path, ELF_MODES).schedule
    assert (back.order, back.makespan) == (order, schedule.makespan)
    with stand_ins():
        ops = loaded(path).schedule([0, 1], 3)
    told = [f"{op.kind} {op.block_id} {op.mb_id}" for op in ops if " " in op.kind]
    assert told == ["recompute f 0 1", "recompute f 1 0", "recompute b 1 0"]
    assert [f"{op.block_id}{op.kind}{op.mb_id}" for op in ops if op.options] == [
        "0b1",
        "1b0",
        "1f2",
    ]
    places = {(op.kind, op.block_id, op.mb_id): place for place, op in enumerate(ops)}
    assert places["w", 1, 0] - places["recompute b", 1, 0] == 1
    for entry, said in [
        ("(0, 1, 'drop after B')", "(0, 1, 'recompute')"),
        ("(0, 1, 'drop after B')", "(0, 3, 'drop after B')"),
    ]:
        wrong = tmp_path / "wrong.py"
        wrong.write_text(path.read_text().replace(entry, said))
        with pytest.raises(BadInput, match=r"is no mode of the problem|no such microbatch"):
            import_order(wrong, ELF_MODES)


def test_what_is_solved_for_elf_mixes_modes() -> None:
    """Device 0 has room for an F beside what dropping leaves, and for none beside what W needs."""
    found = solve(ELF_MODES.with_memory([14, 12]), target="elf", time_limit=20, workers=1)
    assert found.status == "optimal"
    assert found.schedule is not None
    assert found.schedule.modes
    exported = export(found.problem, found, "elf", exact=True)
    assert exported.changed == ""


@pytest.mark.parametrize("name", [name for to, name in EACH if to == "olmo-core"])
def test_what_olmo_core_is_handed(name: str, tmp_path: Path) -> None:
    """Whole backwards of two slots, each op in a slot after what it waits for."""
    problem, schedule = TEN[name]
    ranks, m = len(problem.devices), problem.routes[0].microbatches
    last = len(problem.stages) - 1
    base = "CustomSchedule1F1BV" if name not in ("interleaved-1f1b",) else None
    with stand_ins():
        made = loaded(written(problem, schedule, "olmo-core", tmp_path))
        assert getattr(made.olmo, base or "CustomScheduleInterleaved1F1B") is made.Pipesat
        there = made.Pipesat(ranks, m)
        table, source = there.pipeline_order, there.pipeline_order_source
        there.reset_n_microbatches(ranks)
        assert (source, there.pipeline_order_source) == ("pipesat", "built in")
        with pytest.raises(ValueError, match="expected stages on ranks"):
            made.Pipesat(ranks + 1, m)
    assert len({len(row) for row in table.values()}) == 1
    slot = {action: at for row in table.values() for at, action in enumerate(row) if action}
    for rank, row in enumerate(run_by("olmo-core", problem, schedule)):
        mine = [f"{s}{kind}{k}" for s, kind, k in filter(None, table[rank]) if kind != "B_"]
        assert mine == [str(op).replace("BW", "B") for op in row]
    for (stage, kind, k), at in slot.items():
        if kind == "F":
            assert stage == 0 or at > slot[stage - 1, "F", k]
        elif kind == "B":
            assert slot[stage, "B_", k] == at + 1
            assert at > slot[(stage, "F", k) if stage == last else (stage + 1, "B_", k)]


@pytest.mark.parametrize("to", TO)
@settings(max_examples=15)
@given(problem=st.one_of(problems(max_microbatches=4), vees(max_devices=3, max_microbatches=4)))
def test_what_is_solved_for_a_runtime_runs_there_as_it_is(to: Target, problem: Problem) -> None:
    """Every schedule of the problem that is searched takes no longer as the runtime runs it."""
    try:
        ways = problems_for(problem, to)
    except NotApplicable:
        return
    for searched in ways:
        for schedule in islice(by_each_policy(searched), 2):
            if not check(searched, schedule):
                made = as_run(problem, schedule, RUNTIMES[to]).schedule
                assert not check(problem, made)
                assert made.makespan <= schedule.makespan


ONE = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{}],
    "stages": [{"device": 0, "F": 4, "B": 5, "W": 3}],
    "overlap": {"pairs": [{"ops": ["0F", "0BW"], "time": 9}, {"ops": ["0F", "0B"], "time": 7}]},
}
"""One device: what a pair takes, and what its members take in turn, is all there is."""


@pytest.mark.parametrize(("to", "makespan"), [("primus", 22), ("d9d", 24), ("jaxpp", 21)])
def test_a_pair_takes_what_the_runtime_makes_of_it(to: str, makespan: int, tmp_path: Path) -> None:
    """0F0 4, the pair 9, 0BW1 8: 21 in JaxPP. d9d: 4 + 4 + 8 + 8. Primus: 4 + 7 (F, B) + 3 + 8."""
    problem = parse_problem(ONE)
    schedule = time_order(problem, order_of("0F0 (0F1+0BW0) 0BW1"))
    assert schedule.makespan == 21
    exported = export(problem, schedule, to, tmp_path / "x.py")
    assert any(f"runs it {makespan}, of this schedule 21" in note for note in exported.notes)
    assert (exported.changed != "") == (makespan != 21)
    assert import_order(tmp_path / "x.py", problem).schedule.makespan == makespan
    found = solve(problem, target=to, deterministic=True, time_limit=5)  # type: ignore[arg-type]
    assert (found.status, found.value) == ("optimal", makespan)
    assert found.schedule is not None
    assert export(problem, found, to).changed == ""


@pytest.mark.parametrize("to", ["primus", "jaxpp"])
def test_microbatches_that_are_alike_run_by_number(to: str) -> None:
    """The same ops at the same times: the second microbatch enters first, and its W comes first."""
    problem = chain(2, 2, F=2, B=2, W=2)
    rows = ("0F1 0F0 0BW1 0BW0", "1F1 1B1 1F0 1B0 1W0 1W1")
    made = as_run(problem, time_order(problem, order_of(*rows)), RUNTIMES[to])
    assert made.changes == ("microbatches renumbered: each stage runs them in order",)
    assert made.schedule.order == order_of("0F0 0F1 0BW0 0BW1", "1F0 1B0 1F1 1B1 1W0 1W1")
    kept = as_run(problem, time_order(problem, order_of(*rows)), RUNTIMES["d9d"])
    assert kept.schedule.order == order_of(*rows)


@pytest.mark.parametrize("to", ["primus", "jaxpp"])
@pytest.mark.parametrize("order", ["same", "free"])
def test_microbatches_that_differ_are_solved_by_number(to: Any, order: str) -> None:
    """The long one is first and would run last; W, which the search may turn round, stays whole."""
    stages = [
        {"device": d, "F": f, "B": 1, "W": 1, "backward": "fused"} for d, f in ((0, 1), (1, 2))
    ]
    document = {
        "format": "pipesat.problem/1",
        "devices": [{}, {}],
        "stages": stages,
        "microbatches": [
            {"name": "long", "count": 1, "time": [4, 1]},
            {"name": "short", "count": 1},
        ],
        "order": order,
    }
    problem = parse_problem(document)
    free = solve(problem, time_limit=5, workers=1)
    found = solve(problem, target=to, time_limit=5, workers=1)
    assert (found.status, free.status) == ("optimal", "optimal")
    # the long one's own way there and back, and the short one behind it; else before it
    assert (found.value, free.value) == (4 + 8 + 8 + 8 + 2, 1 + 4 + 8 + 8 + 8)
    assert found.schedule is not None
    assert export(problem, found, to).changed == ""


def test_jaxpp_splits_all_backwards_or_none() -> None:
    """Whole and split on one stage: all are split there, at no cost where BW takes B + W."""
    problem = chain(2, 2, F=2, B=2, W=2)
    mixed = time_order(problem, order_of("0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1B1 1W1"))
    made = as_run(problem, mixed, RUNTIMES["jaxpp"])
    kinds = {op.kind for op in (o for row in made.schedule.order for i in row for o in members(i))}
    assert kinds == {"F", "BW", "B", "W"}
    assert {op.stage for row in made.schedule.order for op in row if op.kind == "BW"} == {0}  # type: ignore[union-attr]
    assert made.schedule.makespan <= mixed.makespan


def test_jaxpp_runs_ws_by_number_of_backwards_that_it_splits() -> None:
    """1BW1, whole before 1W0, becomes 1B1 and 1W1: then 1W0 comes first; unless they differ."""
    rows = ("0F0 0F1 0F2 0BW0 0BW1 0BW2", "1F0 1B0 1F1 1BW1 1W0 1F2 1BW2")
    problem = chain(2, 3, F=2, B=2, W=2)
    made = as_run(problem, time_order(problem, order_of(*rows)), RUNTIMES["jaxpp"])
    split = order_of("1F0 1B0 1F1 1B1 1W0 1W1 1F2 1B2 1W2")[0]
    assert made.schedule.order == (order_of(rows[0])[0], split)
    assert made.changes[0] == "microbatches renumbered: each stage runs them in order"
    assert export(problem, made.schedule, "jaxpp").changed == ""
    long = {"name": "long", "count": 1, "time": [2, 1]}
    lists = parse_problem(
        dict(problem.document) | {"microbatches": [long, {"name": "short", "count": 2}]}
    )
    with pytest.raises(NotApplicable, match='1W0 comes after 1W1: say "backward": "fused"'):
        export(lists, time_order(lists, order_of(*rows)), "jaxpp")


def either_way(number: int) -> dict[str, Any]:
    """A tiny problem in which neither way is surely better: a whole backward is cheaper by some."""
    draw = Random(number)
    devices = draw.choice((2, 2, 3))
    slack = draw.choice((None, 2, 3))
    stages = []
    for device in range(devices):
        b, w = draw.randint(1, 2), draw.randint(1, 2)
        costs = {"F": draw.randint(1, 2), "B": b, "W": w, "BW": b + w - draw.randint(0, 1)}
        held = {"held_after_F": 1, "held_after_B": draw.randint(0, 2)}
        stages.append({"device": device, **costs, **held})
    stages[-1]["BW"] = stages[-1]["B"] + stages[-1]["W"] - 1
    return {
        "format": "pipesat.problem/1",
        "microbatches": draw.choice((1, 2, 2, 3)) if devices == 2 else 2,
        "devices": [{} if slack is None else {"memory": slack} for _ in range(devices)],
        "stages": stages,
        "comm": {"default": draw.randint(0, 1)},
    }


def one_way(document: dict[str, Any], way: str) -> dict[str, Any]:
    """The problem with all backwards so, but the first stage's, which JaxPP runs whole."""
    first, *others = document["stages"]
    stages = [first | {"backward": "fused"}, *(stage | {"backward": way} for stage in others)]
    return document | {"stages": stages}


@cache
def both_ways(number: int) -> tuple[int | None, ...]:
    """The optimum of each way, by an oracle that shares no code."""
    document = either_way(number)
    return tuple(optimum(one_way(document, way), "makespan") for way in ("split", "fused"))


@pytest.mark.parametrize("number", range(24))
def test_the_better_of_both_ways_for_jaxpp(number: int) -> None:
    """The least of both optima; nothing above it is ever said to be proven."""
    problem = parse_problem(either_way(number))
    least = min((value for value in both_ways(number) if value is not None), default=None)
    steps: list[Any] = []
    found = solve(problem, target="jaxpp", time_limit=20, workers=1, listener=steps.append)
    assert (found.value, found.status) == (least, "infeasible" if least is None else "optimal")
    assert all(step.bound is None or step.bound <= least for step in steps)
    if least is not None:
        assert found.lower_bound == least
        assert export(problem, found, "jaxpp", exact=True).changed == ""
    hurried = solve(problem, target="jaxpp", time_limit=0.01, workers=1)
    assert least is None or (hurried.lower_bound or 0) <= least
    assert hurried.value is None or hurried.value >= least


@pytest.mark.parametrize("said", ["split", "fused"])
def test_a_stage_that_has_one_way_decides_for_all_for_jaxpp(said: str) -> None:
    """A mixture of whole and split backwards would be shorter, and JaxPP does not run it."""
    stages = [{"device": d, "F": 2, "B": 2, "W": 2, "BW": 3, "backward": "either"} for d in (0, 1)]
    document = dict(chain(3, 3).document)
    document |= {"stages": [*stages, stages[0] | {"device": 2, "backward": said}]}
    problem = parse_problem(document)
    found = solve(problem, target="jaxpp", time_limit=20, workers=1)
    assert export(problem, found, "jaxpp", exact=True).changed == ""
    assert found.value == optimum(one_way(document, said), "makespan")


def test_each_way_for_jaxpp_is_drawn_as_the_better_one() -> None:
    """The problems above have both kinds, or the test of the union says nothing."""
    pairs = map(both_ways, range(24))
    assert {(a > b) - (a < b) for a, b in pairs if None not in (a, b)} == {-1, 0, 1}


def test_comparisons_for_jaxpp_have_the_better_row_of_both_ways() -> None:
    """1F1B: whole, 2B1 ends at 14, 1B1 at 17, 0B1 at 20; split, 2B1 at 14, 1B1 at 16, 0BW1 at 19.

    On rank 2 they are F0 from 4, B0 from 6, F1 from 9 or, after B0 and W0, from 10.
    """
    stages = [{"device": d, "F": 2, "B": 2, "W": 2, "BW": 3} for d in range(3)]
    problem = parse_problem(dict(chain(3, 2).document) | {"stages": stages, "comm": {"default": 0}})
    rows = {row.name: row for row in compare(problem, target="jaxpp", time_limit=5).rows}
    assert rows["1f1b"].makespan == 19
    assert rows["zb-h1"].valid
    with pytest.raises(NotApplicable, match="neither is always better"):
        frontier(problem, target="jaxpp", time_limit=1)


def test_both_ways_are_not_weighed_where_whole_backwards_pair() -> None:
    """A whole backward in a pair runs beside split ones: neither way has all orders."""
    document = either_way(0) | {"overlap": {"FB": [1, 2]}}
    with pytest.raises(NotApplicable, match="and solve both"):
        solve(parse_problem(document), target="jaxpp", time_limit=1)
    document = dict(chain(3, 2).document)
    ways = ({}, {"backward": "split"}, {"backward": "fused"})
    stages = [stage | way for stage, way in zip(document["stages"], ways, strict=True)]
    with pytest.raises(NotApplicable, match="here one stage says"):
        solve(parse_problem(document | {"stages": stages}), target="jaxpp", time_limit=1)


FUSED = chain(2, 2, backward="fused")
SCATTERED = parse_problem(
    dict(vee(2, 2).document)
    | {"stages": [{"device": d, "F": 1, "B": 1, "W": 1} for d in (0, 0, 1, 1)]}
)
LISTS = parse_problem(
    {
        "format": "pipesat.problem/1",
        "microbatches": [{"name": "a", "count": 1}, {"name": "b", "count": 1, "time": [2, 1]}],
        "devices": [{}],
        "stages": [{"device": 0, "F": 1, "B": 1, "W": 1}],
    }
)
OF_TWO = parse_problem(
    dict(loop(2, 2, 2).document) | {"microbatches": LISTS.document["microbatches"]}
)
AGAIN = {"name": "again", "backward": "fused", "BW": 3}
MODES = parse_problem(
    ONE | {"stages": [ONE["stages"][0] | {"modes": [AGAIN]}], "overlap": {"FB": [1, 2]}}
)


@pytest.mark.parametrize(
    ("to", "problem", "name", "options", "expected"),
    [
        ("d9d", two_routes(2, (2, 2)), "list-scheduling", {}, "d9d runs one route of stages"),
        ("primus", SCATTERED, "list-scheduling", {}, "AMD Primus cannot load this placement"),
        ("d9d", SCATTERED, "list-scheduling", {}, "d9d cannot load this placement"),
        ("d9d", chain(2, 2), "zb-h1", {"exact": True}, "first stage's backward whole"),
        ("jaxpp", FUSED, "1f1b", {"layers": 2}, "layers: jaxpp has no place for it"),
        ("primus", FUSED, "1f1b", {"checkpointing": "full"}, "checkpointing: primus has no place"),
        ("primus", LISTS, None, {}, "each stage's ops of a kind by microbatch number"),
        ("elf", two_routes(2, (2, 2)), "list-scheduling", {}, "ELF runs one route of stages"),
        ("elf", LISTS, None, {}, r"comes after 0F1: solve with target=\"elf\" \(--for elf\)"),
        ("elf", chain(2, 2), "1f1b", {"layers": 2}, "layers: elf has no place for it"),
        ("olmo-core", FUSED, "1f1b", {}, "runs exactly 2 stages on every rank, here are 2 on 2"),
        (
            "olmo-core",
            loop(2, 3, 2),
            "looped-bfs",
            {},
            "exactly 2 stages on every rank, here are 6",
        ),
        ("olmo-core", vee(2, 2), "zb-v", {"exact": True}, "changed: all backwards whole"),
        ("olmo-core", SCATTERED, "list-scheduling", {}, "OLMo-core cannot load this placement"),
        ("olmo-core", OF_TWO, "list-scheduling", {}, "runs microbatches of one shape, and these"),
    ],
)
def test_what_cannot_run_is_refused_in_a_line(
    to: str, problem: Problem, name: str | None, options: dict[str, Any], expected: str
) -> None:
    order = order_of("0F1 0F0 0BW1 0BW0")
    schedule = baseline(name, problem) if name else time_order(problem, order)
    with pytest.raises((NotApplicable, BadInput), match=expected) as error:
        export(problem, schedule, to, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("to", TO)
def test_memory_modes_are_refused(to: Target) -> None:
    order = (tuple(Op(0, kind, m, 1) for m in (0, 1) for kind in ("F", "BW")),)
    again = time_order(MODES, order)
    assert not check(MODES, again)
    said = "is told no memory modes"
    if to == "elf":
        said = "runs the memory modes recompute, drop after B, keep the input only alone, not again"
    if takes(to, MODES):
        with pytest.raises(NotApplicable, match=said):
            export(MODES, again, to)
    with pytest.raises(NotApplicable, match="mode"):
        solve(MODES, target=to, time_limit=1)


@pytest.mark.parametrize("to", ["torchtitan", "automodel", "torch", "primus"])
def test_an_order_that_uses_no_mode_runs_where_none_is_told(to: Target) -> None:
    stages = [{"device": d, "F": 2, "B": 2, "W": 2, "held_after_F": 1} for d in range(2)]
    problem = parse_problem(
        dict(chain(2, 2).document) | {"stages": [one | {"modes": [AGAIN]} for one in stages]}
    )
    plain = parse_problem(dict(chain(2, 2).document) | {"stages": stages})
    said = [export(one, baseline("zb-h1", one), to).data for one in (problem, plain)]
    with_it, without = (re.sub(rb"[0-9a-f]{12,}", b"", text) for text in said)  # but for digests
    assert with_it == without
    if to != "torch":  # which has a file beside its CSV
        used = (tuple(op._replace(mode=1) for op in row) for row in baseline("1f1b", problem).order)
        with pytest.raises(NotApplicable, match="is told no memory modes"):
            export(problem, time_order(problem, tuple(used)), to)


def test_a_mode_that_offloads_is_not_known_by_its_name() -> None:
    offload = {"name": "recompute", "offload": {"out": 1, "in": 1, "held": 0}}
    stages = [{"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 1, "modes": [offload]}]
    problem = parse_problem(dict(chain(1, 1).document) | {"stages": stages})
    with pytest.raises(NotApplicable, match="alone, not recompute"):
        solve(problem, target="elf", time_limit=1)


def test_every_stage_says_that_it_may_be_whole_for_olmo_core() -> None:
    with pytest.raises(NotApplicable, match=r"stage 0 says .* runs every backward whole"):
        solve(vee(2, 2, backward="split"), target="olmo-core", time_limit=1)


@pytest.mark.parametrize(
    ("to", "file", "said"),
    [
        ("olmo-core", "olmo_core.py", "rename olmo_core.py .* hides the package olmo_core"),
        ("torchtitan", "torchtitan.toml", "rename torchtitan.py .* hides the package torchtitan"),
        ("d9d", "my-order.py", "rename my-order.py .* no import can name it"),
        ("elf", "import.py", "rename import.py .* no import can name it"),
        ("torch", "my-order.csv", ""),
        ("olmo-core", "my_order.py", ""),
    ],
)
def test_a_file_that_cannot_be_imported_is_to_be_renamed(
    to: str, file: str, said: str, tmp_path: Path
) -> None:
    problem = vee(2, 2, backward="fused")
    notes = export(problem, baseline("1f1b-v", problem), to, tmp_path / file).notes
    found = [note for note in notes if note.startswith("rename")]
    assert len(found) == bool(said)
    assert not said or re.match(said, found[0])


# back in


@pytest.fixture
def order_file(tmp_path: Path) -> tuple[Problem, Path, str]:
    problem, schedule = TEN["zb-h1"]
    path = written(problem, schedule, "primus", tmp_path)
    return problem, path, path.read_text()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("ORDER = {", "OTHER = {", "with ORDER = {...}"),
        ("ORDER = {", "ORDER = {}\nORDER = {", "with ORDER = {...}"),
        ('"stages": 4', '"stages": int(4)', "a literal"),
        ("ORDER = {", "ORDER = " + "(" * 300 + "{", "a literal"),
        ("ORDER = {", "ORDER = {\0", "a literal"),
        ('"stages": 4', '"stages": True', "stages: got true"),
        ('"stages": 4', '"stages": 5', "stages: got 5, the problem has 4"),
        ('"stages": 4', '"stage": 4', "stage"),
        ("[0, 1, 2, 3]", "[0, 1, 3, 2]", "the problem has [0, 1, 2, 3]"),
        ('"runtime": "primus"', '"runtime": "other"', "runtime: got 'other', expected one of"),
        ("0F0 0F1", "0F0 0F0", "waits for 0F1, which the order does not have"),
        ("0F0 0F1", "0F0 0F1 9F0", "9F0: there is no stage 9"),
        ("0F0 0F1", "0F0 F1", "'F1' is not an op"),
        ("0F0 0F1", "(0F0+0F1)", "this problem has no overlapped pairs"),
    ],
)
def test_a_file_that_says_something_else_is_refused_in_a_line(
    order_file: tuple[Problem, Path, str], old: str, new: str, expected: str
) -> None:
    problem, path, text = order_file
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput) as error:
        import_order(path, problem)
    assert expected in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("new", ["0B0 0F0 0F1", "0F0 0F1 1F1", "0F0 0F1 0F99"])
def test_an_order_that_does_not_fit_is_not_valid(
    order_file: tuple[Problem, Path, str], new: str
) -> None:
    problem, path, text = order_file
    path.write_text(text.replace("0F0 0F1", new, 1))
    with pytest.raises((NotValid, BadInput)) as error:
        import_order(path, problem)
    assert new.split()[-1 if new.startswith("0F") else 0] in str(error.value)


def test_nothing_in_a_file_is_executed(
    order_file: tuple[Problem, Path, str], tmp_path: Path
) -> None:
    problem, path, text = order_file
    trap = tmp_path / "trap"
    path.write_text(f"open({str(trap)!r}, 'w')\n" + text.replace("import re", "import no_such", 1))
    assert import_order(path, problem).schedule.makespan == TEN["zb-h1"][1].makespan
    assert not trap.exists()
    path.write_text(text.replace("ORDER = {", f"ORDER = open({str(trap)!r}, 'w') and {{", 1))
    with pytest.raises(BadInput, match="a literal"):
        import_order(path, problem)
    assert not trap.exists()


def test_an_order_that_waits_for_itself_is_refused(order_file: tuple[Problem, Path, str]) -> None:
    problem, path, text = order_file
    row = text.split('"""')[3]
    first, *others = row.split()
    path.write_text(text.replace(row, " ".join([*others, first])))
    with pytest.raises(BadInput, match="wait"):
        import_order(path, problem)


@pytest.mark.parametrize("to", [name for name in RUNTIMES if RUNTIMES[name].any_order])
def test_a_folder_has_the_file_of_the_runtime_that_was_solved_for(to: Any, tmp_path: Path) -> None:
    """Beside torch's, read again by its own reader; and it goes with the answer that it is of."""
    costs = {"F": 2, "B": 2, "W": 1}
    problem = loop(2, 2, 2, **costs) if RUNTIMES[to].chunks else chain(2, 3, **costs)
    result = solve(problem, target=to, time_limit=5, workers=1)
    file = tmp_path / FILE_NAMES[to]
    for target in (to, None, to):
        replace(result, target=target).save(tmp_path)
        assert file.is_file() == (to in (target, "torch"))
    order = file.with_suffix(".csv") if file.suffix in (".toml", ".yaml") else file
    if order != file:
        assert f'"{order.name}"' in file.read_text()
    assert import_order(order, problem).schedule.makespan == result.value
    assert import_order(tmp_path / "schedule.csv", problem).schedule.makespan >= (result.value or 0)


def test_a_folder_says_why_it_has_no_file_for_the_runtime(tmp_path: Path) -> None:
    """Three stages per rank, which torchtitan has to be told the layers of."""
    problem = loop(2, 3, 2)
    with pytest.warns(UserWarning, match=r"no schedule.toml: torchtitan makes two stages per rank"):
        solve(problem, target="torchtitan", time_limit=1, workers=1).save(tmp_path)
    assert (tmp_path / "schedule.csv").is_file()


def test_commands_take_a_runtimes_order(cli: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    problem, schedule = TEN["zb-v"]
    Path("p.json").write_text(json.dumps(problem.document))
    assert cli("export", "p.json", "zb-v", "--to", "d9d", "-o", "out").code == 0
    order = "out/d9d_order.py"  # a runtime is handed several files: a name without a suffix
    assert cli("check", "p.json", order).code == 0
    shown = cli("show", "p.json", order)
    assert (shown.code, shown.err) == (0, "")
    assert cli("export", "p.json", order, "--to", "schedule", "-o", "s.json").code == 0
    assert f"makespan {schedule.makespan}" in cli("check", "p.json", "s.json").out
    compared = cli("compare", "p.json", order, "--time-limit", 0.1, "--workers", 1)
    assert (compared.code, "d9d_order" in compared.out) == (0, True)
    Path(order).write_text("ORDER = print\n")
    one_bad_line(cli("check", "p.json", order), order, "a literal")


# the real classes, where they are installed


@pytest.mark.parametrize("name", TEN)
def test_d9ds_own_classes_take_it(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Its communication pass finds no deadlock, and computes what the order does, in its turn."""
    monkeypatch.syspath_prepend(release("d9d", RUNTIMES["d9d"].release))
    problem, schedule = TEN[name]
    made = loaded(written(problem, schedule, "d9d", tmp_path))
    program = made.PIPELINE_PROGRAM_REGISTRY.program_for(made.PipesatSchedule())
    rows = program.compose(problem.routes[0].microbatches, len(problem.devices))
    letter = {"F": "F", "B": "I", "BW": "B", "W": "W"}
    for rank, row in enumerate(run_by("d9d", problem, schedule)):
        compute = [str(a) for a in rows[rank] if a.work_type == "compute"]
        assert compute == [f"{op.stage}{letter[op.kind]}{op.microbatch}" for op in row]  # type: ignore[union-attr]
