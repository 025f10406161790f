"""The page in a real headless Chromium (tests/support/chromium.py), served as a user has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import needs_chromium, opened_browser
from tests.support.paths import ROOT
from tests.support.problems import chain, document

pytest.importorskip("werkzeug", reason="needs the extra `explore`")
pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
pytestmark = [needs_chromium, pytest.mark.slow]

TIMELINE = "document.querySelector('.case').timeline"
LEAD = "document.querySelector('.lead').textContent"
AT = "document.querySelector('[data-role=at]')"
HOSTILE = "</script><img src=x onerror=document.title='broken'>"


class Served:
    """``pipesat explore`` as a process, and what it was started with."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.output = folder / "out"
        command = [sys.executable, "-m", "pipesat", "explore", *words, "--no-browser", "--json"]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "-o", str(self.output)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
        assert self.process.stdout is not None
        lines = ""
        while not lines.endswith("}\n"):
            lines += self.process.stdout.readline()
        self.address = json.loads(lines)["page"]
        self.origin = self.address.partition("/#")[0]

    def end(self) -> None:
        assert self.process.poll() is None
        self.process.terminate()
        assert self.process.wait(30) == 143
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from opened_browser(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    it = Served(tmp_path_factory.mktemp("numbers"))
    yield it
    it.end()


@pytest.fixture
def page(browser: Any, numbers: Served) -> Iterator[Any]:
    yield from opened(browser, numbers)


def opened(browser: Any, served: Served, address: str = "") -> Iterator[Any]:
    """The page, with all schedules there; complains of what went wrong on it."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address or served.address)
    settled(page)
    yield page
    page.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((served.origin, "data:"))] == []


def until(page: Any, seen: str) -> None:
    """Wait until something can be seen; a text would be evaluated, which the page forbids."""
    page.wait_for_function(f"() => {seen}")


def settled(page: Any) -> None:
    """Wait until what was asked for is there, and in the address."""
    page.wait_for_selector(".answers[aria-busy=false]")
    until(page, f"{AT}.textContent")


def value(page: Any) -> str:
    return str(page.locator("[data-role=value]").inner_text())


def milliseconds(page: Any) -> float:
    return float(value(page).split()[0].replace(",", ""))


def names(page: Any) -> list[str]:
    return list(page.locator(".ranking .name").all_inner_texts())


def test_all_schedules_are_ranked_and_drawn_at_once(page: Any) -> None:
    times = [
        float(text.removesuffix(" ms").replace(",", ""))
        for text in page.locator(".ranking li:not(.unfit) .time").all_inner_texts()
    ]
    assert times == sorted(times)
    assert len(times) >= 5
    assert milliseconds(page) == times[0]
    assert {"1f1b", "zb-h1", "gpipe"} <= {*names(page)}
    last = "[...document.querySelectorAll('.ranking canvas')].pop()"  # painted after all others
    image = f"{last}.getContext('2d').getImageData(0, 0, {last}.width, {last}.height)"
    until(page, f"{last}.width > 300 && {image}.data.some((v) => v)")
    assert page.evaluate(f"{TIMELINE}.panels[0].schedule.lanes.length") == 8


def test_settings_change_the_problem(page: Any) -> None:
    page.get_by_role("radio", name="V", exact=True).click()
    page.locator("#set-devices").fill("3")
    page.locator("#set-microbatches").fill("5")
    until(page, f"{LEAD}.startsWith('3 ranks, 6 stages, 5 micro')")
    settled(page)
    assert "zb-v" in names(page)
    page.get_by_role("slider", name="Microbatches, slider").focus()
    page.keyboard.press("ArrowRight")
    until(page, f"{LEAD}.includes('6 microbatches')")
    assert page.locator("#set-microbatches").input_value() == "6"
    page.locator("#set-devices").fill("30")  # 60 stages of 32 layers
    page.wait_for_selector("[role=alert]:not([hidden])")
    assert "expected 60" in page.locator("[role=alert]").inner_text()


def test_ten_clicks_while_a_search_runs(page: Any) -> None:
    button, summary = partial(page.get_by_role, "button"), partial(page.locator, "summary")
    page.locator("input[name=placement][value=vee]").dispatch_event("click")
    page.locator("#set-memory").fill("40")  # far from proven in a minute
    settled(page)
    page.locator("[data-role=seconds]").fill("300")
    button(name="Search for a better one").click()
    until(page, "document.querySelector('[data-role=progress]').textContent.includes('300 s')")
    third = "document.querySelectorAll('.ranking button')[2].dataset.name"
    ten = [
        (button(name="Dark colours"), "document.documentElement.dataset.theme === 'dark'"),
        (button(name="zoom in"), f"{TIMELINE}.view.to < {TIMELINE}.total"),
        (button(name="whole"), f"{TIMELINE}.view.to === {TIMELINE}.total"),
        (page.get_by_label("critical path"), f"{TIMELINE}.critical"),
        (page.get_by_label("memory", exact=True), f"!{TIMELINE}.memory"),
        (button(name="taller"), f"{TIMELINE}.row > 84"),
        (page.locator(".ranking button").nth(2), f"{TIMELINE}.panels[0].schedule.name === {third}"),
        (summary(has_text="do not apply"), "document.querySelector('[data-role=left-out]').open"),
        (
            summary(has_text="Where each rank"),
            "document.querySelector('[data-role=idle]').offsetHeight > 0",
        ),
        (summary(has_text="in words"), "document.querySelector('[data-role=facts]').open"),
    ]
    for clicked, seen in ten:
        clicked.click()
        until(page, seen)
    stop, again = button(name="Stop"), button(name="Go on")
    assert stop.count() == 1  # it still runs
    until(page, "!document.querySelector('[data-role=live]').hidden")
    assert "No schedule can beat" in page.locator("[data-role=bound]").inner_text()
    stop.click()
    again.wait_for()
    first = milliseconds(page)
    again.click()
    stop.click()
    again.wait_for()
    assert milliseconds(page) <= first


def test_who_found_the_value_stays_when_another_raises_the_bound(page: Any) -> None:
    told = [
        {"value": 8, "bound": bound, "source": source, "shown": ["8", f"{bound}", "some"]}
        for bound, source in ((5, "zb-auto"), (6, "CP-SAT"))
    ]
    body = "".join(f"{json.dumps(event)}\n" for event in told)
    page.route("**/solve", lambda route: route.fulfill(body=body))
    page.get_by_role("button", name="Search for a better one").click()
    until(page, "document.querySelector('[data-role=bound]').textContent.includes('beat 6')")
    assert page.locator("[data-role=value]").inner_text() == "8 by zb-auto"
    assert page.locator("[data-role=gain]").inner_text() == ""


def test_the_curve_is_dragged_and_the_address_holds_the_problem(
    page: Any, browser: Any, numbers: Served
) -> None:
    box = page.locator(".curve").bounding_box()
    before = page.locator("#set-memory").input_value()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 80, steps=4)
    page.mouse.up()
    until(page, f"document.querySelector('#set-memory').value !== '{before}'")
    settled(page)
    curve = page.get_by_role("slider", name="Time against memory")
    curve.focus()
    there = curve.get_attribute("aria-valuenow")
    page.keyboard.press("PageUp")  # the next step of the curve
    settled(page)
    assert int(curve.get_attribute("aria-valuenow")) > int(there)
    for other in opened(browser, numbers, page.url):
        assert value(other) == value(page)
        assert other.evaluate(f"{AT}.textContent") == page.evaluate(f"{AT}.textContent")


def test_an_export_writes_into_the_folder_alone(page: Any, numbers: Served) -> None:
    page.locator("[data-role=export-to]").select_option("torch")
    page.locator("[data-role=export-schedule]").select_option("1f1b")
    page.get_by_role("button", name="Export").click()
    until(page, "document.querySelector('[data-role=exported]').textContent.startsWith('Written')")
    said = page.locator("[data-role=exported]").inner_text()
    assert f"{numbers.output / 'torch'} has schedule" in said
    assert (numbers.output / "torch" / "schedule.csv").read_text().startswith("0F0,")


def test_it_fits_a_narrow_window_and_has_names_for_all(page: Any) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input:not([hidden]), select, button')].filter((e) =>
        !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim())).length"""
    )
    assert unnamed == 0


def test_a_hostile_file_is_text_and_is_drawn(browser: Any, tmp_path: Path) -> None:
    problem = document(chain(2, 3, cap=2), name=HOSTILE, devices=[{"name": HOSTILE}, {"memory": 2}])
    (tmp_path / "p.json").write_text(json.dumps(problem))
    served = Served(tmp_path, str(tmp_path / "p.json"))
    for page in opened(browser, served):
        assert page.title() == HOSTILE
        assert page.locator("h1").inner_text() == HOSTILE
        assert page.locator("img").count() == 0
        assert not page.locator("[data-setting=F]").is_visible()  # costs are the file's
    served.end()


def test_without_the_token_nothing_is_shown(browser: Any, numbers: Served) -> None:
    page = browser.new_page()
    page.goto(numbers.origin + "/")
    page.evaluate("localStorage.clear()")  # as in a browser that has not seen the address
    page.reload()
    page.wait_for_selector("[role=alert]:not([hidden])")
    assert "another run" in page.locator("[role=alert]").inner_text()
    assert page.locator(".ranking li").count() == 0
    page.close()
