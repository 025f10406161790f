"""The report's data, its page and the command; what a browser makes of it is tested elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from pipesat.compare.best_known import Comparison, comparison_of
from pipesat.compare.hand_written import ScheduleRow, row_of
from pipesat.compare.report.data import case_data, schedule_data
from pipesat.compare.report.page import page
from pipesat.compare.report.result_file import read_result
from pipesat.compare.report.tables import ordered, plain, script_json
from pipesat.compare.result import Result
from pipesat.compare.result_folder import write_result_folder
from pipesat.core.claims import Bound
from pipesat.core.errors import BadInput
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Op, members
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.support.orders import order_of
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain, document, problems

Save = Callable[..., Path]
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\"'&<!--"


def result_of(problem: Problem, schedule: Schedule | None, **changes: Any) -> Result:
    values: dict[str, Any] = {
        "problem": problem,
        "status": "feasible",
        "objective": "makespan",
        "schedule": schedule,
        "bound": None,
        "baseline": None,
        "wall_s": 1.5,
        "seed": 7,
        "workers": 1,
        "versions": {"pipesat": "0.1.0"},
    }
    return Result(**values | changes)


def case_of(name: str, result: Result, rows: list[ScheduleRow]) -> Comparison:
    return comparison_of(result, name or None, made=rows)


def shown_of(name: str, problem: Problem) -> ScheduleRow:
    schedule = BASELINES[name](problem)
    return row_of(name, problem, schedule)


SMALL = chain(2, 2)
#  device 0   0F0 0F1  .  0B0 0W0 0B1 0W1      times 0 1 2 3 4 5 6 7
#  device 1    .  1F0 1B0 1F1 1B1 1W0 1W1
SMALL_SCHEDULE = time_order(
    SMALL, order_of("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1"), source="by hand"
)


def paired() -> tuple[Problem, Schedule]:
    """Two routes in opposite directions, with overlapped pairs."""
    stages = [{"device": d, "F": 10, "B": 10, "W": 10, "backward": "fused"} for d in (0, 1, 1, 0)]
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": stages,
            "routes": [{"stages": [a, a + 1], "microbatches": 2} for a in (0, 2)],
            "overlap": {"FB": [4, 5]},
        }
    )
    rows = ("0F0 3F0 (0F1+3BW0) (3F1+0BW0) 3BW1 0BW1", "2F0 1F0 (2F1+1BW0) (1F1+2BW0) 1BW1 2BW1")
    return problem, time_order(problem, order_of(*rows))


# The data


def test_the_data_of_a_schedule_worked_out_by_hand() -> None:
    data = schedule_data(SMALL, SMALL_SCHEDULE)
    assert data["devices"] == [
        {
            "kinds": "FFBWBW",
            "microbatches": [0, 1, 0, 0, 1, 1],
            "gaps": [0, 0, 1, 0, 0, 0],
            "stage": 0,
        },
        {
            "kinds": "FBFBWW",
            "microbatches": [0, 0, 1, 1, 0, 1],
            "gaps": [1, 0, 0, 0, 0, 0],
            "stage": 1,
        },
    ]
    # busy, warm-up, no input, no memory, unforced, cool-down
    assert data["idle"] == [[6, 0, 1, 0, 0, 0], [6, 1, 0, 0, 0, 0]]
    assert data["peaks"] == [2, 2]  # 0F0 and 0F1; then 1W0 is kept while 1F1 and 1B1 run
    assert data["path"][0] == [0, 0, "s"]
    assert len(data["path"]) == SMALL_SCHEDULE.makespan  # without delays: one unit op after another


def decoded(problem: Problem, data: dict[str, Any]) -> list[list[tuple[str, int, int]]]:
    """Read the data as its format says: (op, start, end) per device."""
    kinds = {"F": "F", "B": "B", "W": "W", "X": "BW"}
    rows = []
    for row in data["devices"]:
        free_at, pairs, ops = 0, iter(row.get("pairs", ())), []
        length, second = 0, False
        for i, letter in enumerate(row["kinds"]):
            stage = row["stages"][i] if "stages" in row else row["stage"]
            kind = kinds[letter.upper()]
            if letter.isupper():
                length = getattr(problem.stages[stage], kind)
            elif not second:
                length = next(pairs)
            second = letter.islower() and not second
            start = free_at + row["gaps"][i]
            free_at = start + length
            ops.append((f"{stage}{kind}{row['microbatches'][i]}", start, free_at))
        rows.append(ops)
    return rows


def written(schedule: Schedule) -> list[list[tuple[str, int, int]]]:
    return [
        [
            (str(op), start, end)
            for item, start, end in row
            for op in members(item)  # type: ignore[arg-type]
        ]
        for row in schedule.devices
    ]


@pytest.mark.slow
@settings(max_examples=15)
@given(problems())
def test_every_op_is_in_the_data(problem: Problem) -> None:
    schedule = BASELINES["list-scheduling"](problem)
    data = json.loads(script_json(schedule_data(problem, schedule)))
    assert decoded(problem, data) == written(schedule)
    for device, index, _ in data["path"]:
        assert index < len(data["devices"][device]["kinds"])
    assert [sum(parts) for parts in data["idle"]] == [schedule.makespan] * len(problem.devices)


def test_pairs_are_two_entries_of_one_time_and_the_path_counts_them() -> None:
    problem, schedule = paired()
    data = schedule_data(problem, schedule)
    assert decoded(problem, data) == written(schedule)
    ops = decoded(problem, data)
    steps = [ops[device][index] for device, index, _ in data["path"]]
    assert steps[0][1] == 0
    assert steps[-1][2] == schedule.makespan
    assert all(after[1] >= before[2] for before, after in pairwise(steps))  # none is a second half


def test_waits_and_memory_changes_are_the_models() -> None:
    problem = chain(2, 1, held=(5, 3), comm=4)
    data = case_data(case_of("", result_of(problem, None, status="unknown"), []))
    first, last = data["stages"]
    assert first["waits"] == {"F": None, "B": [1, "B"], "BW": [1, "B"], "W": [0, "B"]}
    assert last["waits"] == {"F": [0, "F"], "B": [1, "F"], "BW": [1, "F"], "W": [1, "B"]}
    (((one,),), ((other,),)) = (
        [[data["amounts"][place] for place in row] for row in stage["amounts"]]
        for stage in (first, last)
    )
    assert one["delay"] == {"F": 0, "B": 4, "BW": 4, "W": 0}
    assert other["delay"] == {"F": 4, "B": 0, "BW": 0, "W": 0}
    assert one["memory"] == {"F": [5, 0], "B": [0, -2], "W": [0, -3], "BW": [0, -5]}


def classes_and_modes() -> tuple[Problem, Schedule]:
    """Two classes, one three times as long as the other, and a mode of each kind."""
    modes = [
        {"name": "again", "backward": "fused", "BW": 7, "held_after_F": 1},
        {"name": "host <b>", "offload": {"out": 2, "in": 1, "held": 1}},
    ]
    stage = {"device": 0, "F": 2, "B": 2, "W": 1, "held_after_F": 4, "modes": modes}
    short, long = (
        {"name": "short", "count": 2},
        {"name": "long <b>", "count": 1, "time": [3, 1], "held": [2, 1]},
    )
    problem = parse_problem(
        {"format": FORMAT, "devices": [{}], "stages": [stage], "microbatches": [short, long]}
        | {"order": "same"}
    )
    ops = [("F", 0, 2), ("F", 1, 1), ("F", 2, 0), ("BW", 0, 2), ("BW", 1, 1), ("BW", 2, 0)]
    row = tuple(Op(0, kind, m, mode) for kind, m, mode in ops)  # type: ignore[arg-type]
    return problem, time_order(problem, (row,), source="by hand")


def test_the_data_knows_classes_modes_and_copies() -> None:
    problem, schedule = classes_and_modes()
    data = case_data(case_of("", result_of(problem, schedule), []))
    assert data["stages"][0]["modes"] == ["keep", "again", "host <b>"]
    assert data["routes"] == [
        {"names": ["short", "long <b>"], "tints": [7, 0], "classes": (0, 0, 1)}
    ]
    keep, again, host = (
        [data["amounts"][place] for place in row] for row in data["stages"][0]["amounts"]
    )
    # a factor of 3 on times and of 2 on what is held; BW is B + W but where it is stated
    assert [entry["length"]["BW"] for entry in (*keep, *again, *host)] == [3, 9, 7, 21, 3, 9]
    assert [entry["length"]["F"] for entry in (*keep, *again, *host)] == [2, 6] * 3
    assert [e["memory"]["F"][0] for e in (*keep, *again, *host)] == [4, 8, 1, 2, 4, 8]
    assert [e["copied"] for e in (*keep, *again, *host)] == [0, 0, 0, 0, 3, 6]
    (row,) = data["schedules"][0]["devices"]
    assert row["modes"] == [2, 1, 0, 2, 1, 0]
    # 0F0 ends at 2; its backward is at 10, so the copies are from 2 to 4 and within 4 to 10
    (out, back) = row["copies"]
    assert out == [1, 0, 0, 2, 4]
    assert back[:3] == [0, 0, 0]
    assert 4 <= back[3] == back[4] - 1 < back[4] <= 10


def test_the_page_names_classes_and_modes_in_legend_assumptions_and_costs() -> None:
    problem, schedule = classes_and_modes()
    text = page([case_of("", result_of(problem, schedule), [])], "out").decode()
    legend = text[text.index('aria-label="legend"') :].partition("</ul>")[0]
    for name in ("class long &lt;b&gt;", "class short", "mode again", "mode host &lt;b&gt;"):
        assert name in legend
    assert "O copy out" in legend
    bare = re.sub(r"<[^>]*>", "|", text)
    said = ("short (2), long &lt;b&gt; (1)", "and their backwards in one order, which is chosen")
    for text in (*said, "keep, again, host &lt;b&gt;, chosen per microbatch", "2 of a rank"):
        assert f"{text}|" in bare
    costs = [cell for cell in bare[bare.index("Costs per stage and") :].split("|") if cell.strip()]
    at = costs.index("host &lt;b&gt;", costs.index("long &lt;b&gt;"))
    # F, B, W, BW, backward, held after F and B, copy out, copy back, held between
    assert costs[at + 1 : at + 11] == ["6", "6", "3", "9", "either", "8", "0", "4", "2", "2"]


def test_equal_schedules_stand_there_once_and_what_finds_no_room_is_left_out() -> None:
    result = result_of(SMALL, BASELINES["zb-h1"](SMALL))
    case = case_of("", result, [shown_of(name, SMALL) for name in ("gpipe", "1f1b", "zb-h1")])
    entries = {entry["name"]: entry for entry in case_data(case)["schedules"]}
    assert entries["zb-h1"]["sameAs"] == "solver"
    assert "devices" in entries["gpipe"]
    kept = [entry["name"] for entry in case_data(case, left=0)["schedules"]]
    assert kept == ["solver", "zb-h1"]  # the latter needs no room


def test_the_best_that_fit_come_first_then_those_over_the_cap() -> None:
    problem = chain(4, 8, cap=4)
    names = ["gpipe", "1f1b", "zb-h1", "zb-h2", "v-half"]
    shown = [shown_of(name, problem) for name in names[:4]]
    case = case_of("", result_of(problem, BASELINES["zb-h1"](problem)), shown)
    order_of = {row.name: row for row in ordered(case) if row.schedule is not None}
    assert list(order_of) == ["solver", "zb-h1", "1f1b", "zb-h2", "gpipe"]
    # unit costs: 1F1B takes (m + p - 1) (F + B + W) = 33, ZB-H1 m 3 + (p - 1) = 27
    assert (order_of["1f1b"].makespan, order_of["zb-h1"].makespan) == (33, 27)
    assert order_of["1f1b"].ratio_to_best == 33 / 27
    over = {e["name"]: e["over"] for e in case_data(case)["schedules"]}
    assert over["gpipe"] == [0, 1, 2, 3]  # all eight microbatches on every rank
    assert over["1f1b"] == over["solver"] == []


# Text from files


def test_json_in_a_script_element_has_no_character_that_could_end_it() -> None:
    text = script_json({"name": HOSTILE, HOSTILE: [1, None]})
    assert not set("<>&\u2028") & set(text)
    assert text.isascii()
    assert json.loads(text) == {"name": HOSTILE, HOSTILE: [1, None]}


def test_plain_text_is_one_line_of_bounded_length_with_both_ends() -> None:
    assert plain("a\x00b\nc\u202ed") == "a\\x00b\\nc\\u202ed"
    cut = plain("begin" + "x" * 10**6 + "end", 50)
    assert len(cut) == 50
    assert cut.startswith("begin")
    assert cut.endswith("end")


class Parsed(HTMLParser):
    """Elements, their attributes and the text of a page, as a browser's parser sees them."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self.open = ""
        self.feed(data.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        self.inside.setdefault(self.open, []).append(data)

    def attributes(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def hostile_page() -> bytes:
    names = {"name": HOSTILE, "time_unit": HOSTILE, "memory_unit": HOSTILE}
    devices = [{"name": HOSTILE, "memory": 1}, {"memory": 9}]
    problem = parse_problem(document(SMALL, devices=devices, **names))
    schedule = time_order(problem, SMALL_SCHEDULE.order, source=HOSTILE)
    result = result_of(
        problem,
        schedule,
        bound=Bound(1, HOSTILE),
        explanation=HOSTILE,
        target=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )
    shown = [shown_of(name, problem) for name in ("1f1b", "gpipe")]
    return page([case_of(HOSTILE, result, shown), case_of("b", result, [])], HOSTILE)


def test_names_from_files_are_text_in_the_page() -> None:
    data = hostile_page()
    parsed = Parsed(data)
    assert not parsed.attributes("img")
    scripts = parsed.attributes("script")
    assert [s.get("type") for s in scripts] == ["application/json", "application/json", None]
    for _, attributes in parsed.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert "style" not in attributes
    shown = HOSTILE.replace("\u2028", "\\u2028")
    assert "".join(parsed.inside["h1"]) == shown
    first = json.loads(parsed.inside["script"][0])
    assert first["devices"][0]["name"] == shown
    assert b"\xe2\x80\xa8" not in data


def test_the_page_loads_nothing_and_its_policy_allows_only_its_own_script() -> None:
    parsed = Parsed(page([case_of("", result_of(SMALL, SMALL_SCHEDULE), [])], "out"))
    links = [
        value
        for _, attributes in parsed.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset")
    ]
    assert all(link.startswith(("#", "data:")) for link in links if link is not None)
    (policy,) = [a["content"] for a in parsed.attributes("meta") if "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    (style,), script = parsed.inside["style"], parsed.inside["script"][-1]
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"innerHTML|insertAdjacentHTML|\beval\b|document\.write|https?:", script)


# Reading a result


def folder_of(path: Path, result: Result) -> Path:
    path.mkdir(exist_ok=True)
    write_result_folder(path, result, [])
    return path


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a solve writes it, pictures included: made once, tests change copies."""
    result = result_of(SMALL, SMALL_SCHEDULE, bound=Bound(6, "x"))
    return folder_of(tmp_path_factory.mktemp("solved") / "out", result)


@pytest.fixture
def folder(solved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(solved, tmp_path / "out")


def edit(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text())
    path.write_text(
        json.dumps({k: v for k, v in (document | changes).items() if v is not Ellipsis})
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": 8}, "value: got 8, expected the schedule's makespan: schedule.json has 7"),
        ({"value": None}, "value: got null, expected the schedule's makespan"),
        ({"objective": "speed"}, "objective: got 'speed', expected"),
        ({"lower_bound": 8}, "lower_bound: got 8, expected at most the value 7"),
        ({"lower_bound": 6.5}, "lower_bound: got 6.5, expected"),
        ({"status": "optimal"}, "status: got 'optimal', expected feasible, as value"),
        ({"status": "unknown"}, "status: got 'unknown', expected feasible, as value"),
        ({"status": ...}, "status: this key is required and missing"),
        ({"wall_s": float("inf")}, "wall_s: got Infinity, expected a number"),
        ({"versions": {"pipesat": 1}}, "versions.pipesat: got 1, expected a string"),
    ],
)
def test_a_result_that_contradicts_itself(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    edit(folder / "result.json", **changes)
    with pytest.raises(BadInput, match=re.escape(f"result.json: {message}")):
        read_result(folder / "result.json", SMALL, SMALL_SCHEDULE)


def test_a_result_without_the_optional_keys_is_read(folder: Path) -> None:
    edit(folder / "result.json", explanation=..., more=1, **{"for": ...})
    result = read_result(folder / "result.json", SMALL, SMALL_SCHEDULE)
    assert (result.value, result.bound, result.target) == (7, Bound(6, "x"), None)


# The command


def test_report_writes_one_file_with_every_schedule(cli: Run, folder: Path) -> None:
    outcome = cli("show", folder, "--html", folder / "report.html")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"Written to  {folder / 'report.html'} (")
    parsed = Parsed((folder / "report.html").read_bytes())
    shown = {a["data-show"] for a in parsed.attributes("button") if "data-show" in a}
    assert {"solver", "1f1b", "gpipe", "zb-h1", "list-scheduling"} <= shown
    text = "".join(part for parts in parsed.inside.values() for part in parts)
    assert f"pipesat solve {folder / 'problem.json'} -o again --objective makespan" in text
    assert "needs two stages per device in a V" in text


def test_a_folder_without_a_schedule_says_why(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = chain(2, 2, cap=0)
    why = "device 0 needs <1> & more"
    result = result_of(problem, None, status="infeasible", explanation=why)
    place = folder_of(tmp_path / "none", result)
    assert cli("show", place, "--html", place / "report.html").code == 0
    page_text = (place / "report.html").read_text()
    assert "proven infeasible" in page_text
    assert "device 0 needs &lt;1&gt; &amp; more" in page_text
    monkeypatch.chdir(tmp_path)
    outcome = cli("show", place, "--png", "a.png")  # short, so that none of it is cut
    assert (outcome.code, outcome.err) == (
        2,
        "pipesat: error: --png: got 'a.png', there is no schedule to draw\n",
    )


def test_the_placements_of_compare_are_one_report(cli: Run, folder: Path) -> None:
    place = folder.parent
    folder_of(place / "chain", result_of(SMALL, SMALL_SCHEDULE))
    outcome = cli("show", place, "--html", place / "all.html", "--html", "baselines=no")
    assert outcome.code == 0
    parsed = Parsed((place / "all.html").read_bytes())
    sections = [a["aria-label"] for a in parsed.attributes("section")]
    assert sections == ["chain", "out"]
    outcome = cli("show", place, "--svg", place / "a.svg")
    assert outcome.code == 2
    assert "give one of DIR's folders (chain, out)" in outcome.err


def test_folders_that_are_none(cli: Run, folder: Path, tmp_path: Path, save: Save) -> None:
    for place in (tmp_path / "missing", save("", "file")):
        outcome = cli("show", place, "--html", tmp_path / "report.html")
        assert (outcome.code, outcome.out) == (2, "")
        assert "expected a folder that solve or compare wrote" in outcome.err
    (tmp_path / "empty").mkdir()
    one_bad_line(cli("show", tmp_path / "empty"), f"{tmp_path}/empty: no problem.json here")
    (folder / "result.json").unlink()
    assert (
        "result.json: cannot read: No such file"
        in cli("show", folder, "--html", folder / "report.html").err
    )
    assert not (folder / "report.html").exists()


def test_a_schedule_of_another_problem_and_one_that_is_not_valid(cli: Run, folder: Path) -> None:
    edit(folder / "schedule.json", problem_sha256="0" * 64)
    outcome = cli("show", folder, "--html", folder / "report.html")
    assert outcome.code == 2
    assert "a schedule of another problem" in outcome.err
    moved = [[["0F0", 0, 1]], []]
    edit(folder / "schedule.json", problem_sha256=SMALL.sha256, devices=moved)
    outcome = cli("show", folder, "--html", folder / "report.html")
    assert outcome.code == 1
    assert "is not a valid schedule" in outcome.err


def test_outputs_that_cannot_be_written(cli: Run, folder: Path, tmp_path: Path) -> None:
    before = (folder / "problem.json").read_bytes()
    outcome = cli("show", folder, "--html", "baselines=no", "--html", folder / "problem.json")
    assert (outcome.code, (folder / "problem.json").read_bytes()) == (2, before)
    outcome = cli("show", folder, "--html", "baselines=no", "--html", tmp_path / "no" / "a.html")
    assert outcome.code == 2
    assert "a.html: cannot write: No such file or directory" in outcome.err


@pytest.mark.parametrize(
    ("time_unit", "memory_unit", "makespan", "costs", "peak"),
    [
        ("us", "MiB", "0.007 ms", "0.001 ms", "2 MiB"),
        ("ns", "B", "0.000007 ms", "0.000001 ms", "2 B"),
        ("ms", "GB", "7 ms", "1 ms", "1.86 GiB"),
        ("s", "1e-2 stage activation", "7,000.0 ms", "1,000.0 ms", "0.02 stage activations"),
        ("slot", "", "7 slot", "1 slot", "2"),
    ],
)
def test_tables_say_times_and_memory_in_units_that_people_know(
    time_unit: str, memory_unit: str, makespan: str, costs: str, peak: str
) -> None:
    """7 units and ops of 1; a rank holds 2 and has 2, of GB 2 * 10^9 / 2^30 = 1.863 GiB."""
    problem = parse_problem(
        document(chain(2, 2, cap=2), time_unit=time_unit, memory_unit=memory_unit)
    )
    schedule = time_order(problem, SMALL_SCHEDULE.order)
    text = page([case_of("", result_of(problem, schedule), [])], "x").decode()
    for shown in (makespan, costs, peak):
        assert f'class="number">{shown}</td>' in text
    assert f"<dt>Capacity</dt><dd>{peak}</dd>" in text
