"""The report in a real headless Chromium (tests/support/chromium.py)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.compare.result import Result
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Order
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.timing import time_order
from tests.support.chromium import needs_chromium, opened_browser
from tests.support.problems import chain, document

pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
pytestmark = needs_chromium

HOSTILE = "</script><img src=x onerror=document.title='broken'>"
SHOWN = ("1f1b", "gpipe", "zb-h1", "zb-h2")

# 32 ranks, 128 microbatches, F = 3, B = 2, W = 1, links 1, and 1F1B's memory: 12,288 ops
LARGE = parse_problem(
    document(
        chain(32, 128, F=3, B=2, W=1, cap=32, comm=1),
        name=HOSTILE,
        time_unit="us",
        memory_unit="MiB",
        devices=[{"name": "rank <b>0", "memory": 32}, *[{"memory": 32} for _ in range(31)]],
    )
)
#  device 0   0F0 0F1  .  0B0 0W0 0B1 0W1      times 0 1 2 3 4 5 6 7
#  device 1    .  1F0 1B0 1F1 1B1 1W0 1W1
SMALL = chain(2, 2, cap=2)


# 0F0 0F1 0BW1 0BW0; microbatch 0, of the class long, is offloaded: 0O0 from 4 to 6
OFFLOADED = parse_problem(
    document(
        chain(1, 2, F=2, B=2, W=0, cap=9, held=(3, 0)),
        stages=[
            {"device": 0, "F": 2, "B": 2, "W": 0, "held_after_F": 3}
            | {"modes": [{"name": "host", "offload": {"out": 2, "in": 2, "held": 1}}]}
        ],
        microbatches=[{"name": "long", "count": 1, "time": [2, 1]}, {"name": "short", "count": 1}],
        order="free",
    )
)
OFFLOADED_ORDER = ((Op(0, "F", 0, 1), Op(0, "F", 1), Op(0, "BW", 1), Op(0, "BW", 0, 1)),)


def report(folder: Path, problem: Problem, baseline: str | Order) -> Path:
    """The report of a baseline or an order as if the solver had found it, beside a few others."""
    from pipesat.cli import main

    bound = closed_form_bound(problem, "makespan")
    if isinstance(baseline, str):
        schedule = BASELINES[baseline](problem)
    else:
        schedule = time_order(problem, baseline)
    status = "optimal" if bound.value == schedule.makespan else "feasible"
    result = Result(problem, status, "makespan", schedule, bound, None, 1, 0, 1)
    folder.mkdir()
    for name, content in (("problem", dict(problem.document)), ("result", result.document())):
        (folder / f"{name}.json").write_text(json.dumps(content))
    write_schedule(folder / "schedule.json", problem, schedule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipesat.heuristics.BASELINES", {n: BASELINES[n] for n in SHOWN})
        patch.setattr(
            sys, "argv", ["pipesat", "show", str(folder), "--html", str(folder / "report.html")]
        )
        with pytest.raises(SystemExit) as exit_info:
            main()
    assert not exit_info.value.code
    return folder / "report.html"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("reports")
    return {
        "large": report(place / "large", LARGE, "zb-h1"),
        "small": report(place / "small", SMALL, "zb-h1"),
        "offloaded": report(place / "offloaded", OFFLOADED, OFFLOADED_ORDER),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from opened_browser(tmp_path_factory.mktemp("profile"))


class Opened:
    """A page, what went wrong on it, and what it asked for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page()
        self.page.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        before = time.perf_counter()
        self.page.goto(path.as_uri())
        self.drawn()
        self.seconds = time.perf_counter() - before
        self.viewport = self.page.locator(".viewport").first
        self.viewport.scroll_into_view_if_needed()

    def drawn(self) -> None:
        """Wait until everything asked for has been drawn."""
        self.page.wait_for_function(
            "() => { const t = document.querySelector('.case').timeline;"
            " return t && !t.waiting && t.panels[0].size; }"
        )

    def ask(self, expression: str) -> Any:
        return self.page.evaluate(f"""() => {{
            const timeline = document.querySelector('.case').timeline, panel = timeline.panels[0];
            return {expression}; }}""")

    def view(self) -> tuple[float, float]:
        self.drawn()
        view = self.ask("timeline.view")
        return view["from"], view["to"]

    def hover(self, device: int, index: int, *, below: bool = False) -> str:
        """Point at an op, or at the memory below it, and return the tooltip's text."""
        box = self.ask(f"panel.boxOf({{device: {device}, index: {index}}})")
        base = self.viewport.bounding_box()
        down = self.ask("timeline.rowParts.trackAt") + 3 if below else box["height"] / 2
        at = (base["x"] + box["x"] + box["width"] / 2, base["y"] + box["y"] + down)
        self.page.mouse.move(*at)
        return str(self.page.locator(".tooltip").inner_text())

    def colour_of(self, device: int, index: int) -> list[int]:
        """The colour at the upper left of an op."""
        x, y = self.ask(
            f"(({{x, y}}) => [x + 3, y + 2])(panel.boxOf({{device: {device}, index: {index}}}))"
        )
        return self.colour_at(x, y)

    def colour_at(self, x: float, y: float) -> list[int]:
        """The colour at a point of the canvas."""
        colour = self.ask(f"""(() => {{
            const ratio = panel.size.ratio;
            const copy = new OffscreenCanvas(1, 1).getContext("2d", {{willReadFrequently: true}});
            copy.drawImage(panel.base, -Math.floor({x} * ratio), -Math.floor({y} * ratio));
            return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3); }})()""")
        return list(colour)


@pytest.fixture
def small(browser: Any, reports: dict[str, Path]) -> Iterator[Opened]:
    yield from opened(browser, reports["small"])


@pytest.fixture
def large(browser: Any, reports: dict[str, Path]) -> Iterator[Opened]:
    yield from opened(browser, reports["large"])


def opened(browser: Any, path: Path) -> Iterator[Opened]:
    it = Opened(browser, path)
    yield it
    it.page.close()
    assert it.complaints == []
    assert it.requests == [path.as_uri()]  # the file itself, and nothing else


def test_a_large_report_is_small_and_opens(large: Opened, reports: dict[str, Path]) -> None:
    size = reports["large"].stat().st_size
    assert size < 5_000_000
    seen = f"{size / 1e6:.2f} MB, {len(SHOWN) + 1} schedules, drawn in {large.seconds:.2f} s"
    print(f"\n{seen}")  # noqa: T201
    assert large.ask("panel.schedule.lanes.reduce((n, lane) => n + lane.count, 0)") == 32 * 128 * 3
    assert large.ask("panel.schedule.makespan") == BASELINES["zb-h1"](LARGE).makespan


def test_names_are_text(large: Opened) -> None:
    assert large.page.locator("h1").inner_text() == HOSTILE
    assert large.page.title() == HOSTILE
    assert large.page.locator("img").count() == 0
    name = large.page.locator("[data-role=idle] tbody th").first
    assert name.inner_text() == "rank <b>0"


def test_what_an_op_waited_for(small: Opened) -> None:
    # ZB-H1 of two ranks and two microbatches is the schedule drawn above
    assert small.ask("panel.schedule.lanes.map((l) => [...l.end])") == [
        [1, 2, 4, 5, 6, 7],
        [2, 3, 4, 5, 6, 7],
    ]
    critical = small.ask("panel.schedule.lanes[0].critical[2]")
    text = small.hover(0, 2)
    assert text.splitlines() == [
        "0B0",
        "device 0: stage 0, input gradient, microbatch 0",
        "start 3, end 4, lasts 1",
        "waited for input 1B0 on device 1: ended 3 = there at 3",
        "not for its rank, busy with 0F1 until 2",
        *(["on the critical path"] if critical else []),
    ]
    assert "waited for nothing: the first op of its rank" in small.hover(0, 0)


def test_idle_time_and_memory_have_tooltips_too(small: Opened) -> None:
    text = small.hover(0, 1, below=True)
    assert text.splitlines()[0] == "memory of device 0"
    assert "2 held at" in text
    assert "cap 2" in text
    # between 0F1 (ends at 2) and 0B0 (starts at 3)
    box = small.ask("[panel.x(2.5), panel.rowTop(0) + 4]")
    base = small.viewport.bounding_box()
    small.page.mouse.move(base["x"] + box[0], base["y"] + box[1])
    text = small.page.locator(".tooltip").inner_text()
    assert text.startswith("idle on device 0\n2 to 3: 1\nnext: 0B0\nwaited for input 1B0")


def test_wheel_keys_drag_and_buttons_zoom_and_move(large: Opened) -> None:
    page = large.page
    whole = large.view()
    assert whole == (0, BASELINES["zb-h1"](LARGE).makespan)
    box = large.viewport.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.wheel(0, -300)  # without the focus, the wheel scrolls the page
    assert large.view() == whole
    large.viewport.scroll_into_view_if_needed()
    box = large.viewport.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    at = large.ask("panel.time(600)")
    page.mouse.click(box["x"] + 600, box["y"] + 100)
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"document.querySelector('.case').timeline.view.to < {whole[1] * 0.9}")
    closer = large.view()
    assert closer[0] < at < closer[1]
    assert large.ask("panel.time(600)") == pytest.approx(at)  # what is pointed at stays
    page.keyboard.press("+")
    assert large.view()[1] - large.view()[0] == pytest.approx((closer[1] - closer[0]) / 1.5)
    before = large.view()
    page.keyboard.press("ArrowRight")
    assert large.view()[0] == pytest.approx(before[0] + 0.15 * (before[1] - before[0]))
    before = large.view()
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100, steps=3)
    page.mouse.up()
    moved = 100 * (before[1] - before[0]) / large.ask("panel.size.plot")
    assert large.view()[0] == pytest.approx(before[0] + moved)
    page.keyboard.press("0")
    assert large.view() == whole
    page.get_by_role("button", name="zoom in").click()
    assert large.view()[1] == pytest.approx(whole[1] * (0.5 + 1 / 3))
    page.get_by_role("button", name="whole").click()
    assert large.view() == whole


def test_from_op_to_op_by_keyboard(small: Opened) -> None:
    small.viewport.focus()
    said = small.page.locator("[data-role=said]")
    for key, op in [
        ("Shift+ArrowRight", "0F0"),
        ("Shift+ArrowRight", "0F1"),
        ("Shift+ArrowRight", "0B0"),
        ("Shift+ArrowDown", "1F1"),
        ("Shift+ArrowLeft", "1B0"),
        ("Shift+ArrowUp", "0B0"),
    ]:
        small.page.keyboard.press(key)
        assert str(said.text_content()).startswith(f"{op}; device {op[0]}: stage {op[0]}")
    small.page.keyboard.press("Escape")
    assert not small.page.locator(".tooltip").is_visible()


def test_baselines_alone_and_beside(large: Opened) -> None:
    page = large.page
    row = page.locator("tr", has=page.locator("button[data-show=gpipe]"))
    assert "over the cap" in row.inner_text()
    row.get_by_role("button", name="beside").click()
    large.drawn()
    captions = page.locator(".panel:visible figcaption")
    # GPipe: (m + p - 1) (F + B + W) + 2 (p - 1) link delays
    gpipe = (128 + 31) * 6 + 2 * 31
    assert captions.all_inner_texts()[0].startswith("solver fits makespan ")
    assert captions.all_inner_texts()[1].startswith(
        f"gpipe over the cap makespan {gpipe / 1000} ms"
    )
    assert large.view() == (0, max(gpipe, BASELINES["zb-h1"](LARGE).makespan))  # one scale
    page.locator("[data-role=schedule]").select_option("gpipe")
    page.locator("[data-role=beside]").select_option("")
    assert captions.count() == 1
    assert large.ask("panel.schedule.name") == "gpipe"
    table = page.locator("[data-role=idle] caption")
    assert table.inner_text() == "gpipe: each rank's time by cause"


def test_critical_path_and_memory_can_be_switched(small: Opened) -> None:
    page = small.page
    off = small.ask("panel.schedule.lanes.map((lane) => lane.critical.indexOf(0))")
    device = 0 if off[0] >= 0 else 1
    plain = small.colour_of(device, off[device])
    page.get_by_label("critical path").check()
    small.drawn()
    assert small.colour_of(device, off[device]) != plain  # what is not on it fades
    assert small.ask("timeline.rowParts.track") > 0
    page.get_by_label("memory", exact=True).uncheck()
    assert small.ask("timeline.rowParts.track") == 0
    page.locator("summary", has_text="Critical path").click()
    steps = page.locator("[data-role=path-content] tbody th")
    steps.first.wait_for()  # the list is made when it has been opened
    ops = steps.all_inner_texts()
    assert len(ops) == 7  # unit ops one after the other, makespan 7
    assert ops[0] == "0F0"


def test_the_timeline_as_a_table(small: Opened) -> None:
    small.page.locator("summary", has_text="The timeline as a table").click()
    small.page.locator("[data-role=rank]").select_option("1")
    small.page.locator("[data-role=ops-content] tbody tr", has_text="1F0").first.wait_for()
    rows = small.page.locator("[data-role=ops-content] tbody tr").all_inner_texts()
    assert [row.split()[:3] for row in rows] == [
        ["1F0", "1", "2"],
        ["1B0", "2", "3"],
        ["1F1", "3", "4"],
        ["1B1", "4", "5"],
        ["1W0", "5", "6"],
        ["1W1", "6", "7"],
    ]


def test_classes_modes_and_copies_are_drawn_and_told(
    browser: Any, reports: dict[str, Path]
) -> None:
    for it in opened(browser, reports["offloaded"]):
        it.page.locator("[data-role=schedule]").select_option("solver")
        it.drawn()
        said = it.hover(0, 0)
        assert "microbatch 0, class long" in said
        assert "mode host" in said
        assert "class short" in it.hover(0, 1)
        # 0F0 takes 4, 0F1 2, 0BW1 2, so 0BW0 starts at 8, as its copy back ends
        assert "waited for its copy back 0L0: ended 8" in it.hover(0, 3)
        (out, back) = it.ask("panel.schedule.lanes[0].copies")
        assert (out["text"], out["start"], out["end"]) == ("0O0", 4, 6)
        assert (back["text"], back["start"], back["end"]) == ("0L0", 6, 8)
        middle = "panel.x(5), panel.rowTop(0) + timeline.rowParts.copiesAt + 1"
        assert it.colour_at(*it.ask(f"[{middle}]")) == [0x8C, 0x56, 0x4B]
        assert it.ask(f"panel.at({middle}).copy.text") == "0O0"
        # at 6 the copy out frees the 2 that the copy back takes
        profile = it.ask("panel.schedule.memory(0)")
        assert [*zip(profile["times"], profile["held"], strict=True)] == [
            (0, 3),
            (4, 6),
            (6, 6),
            (8, 3),
            (12, 0),
        ]
