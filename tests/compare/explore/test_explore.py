"""The page's server without a browser: who may ask, what is answered, what is written."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pipesat
from pipesat.core.errors import BadInput
from pipesat.problem.problem import Problem
from tests.conftest import Run
from tests.support.paths import ROOT
from tests.support.problems import chain, document

pytest.importorskip("werkzeug", reason="needs the extra `explore`")

from pipesat.compare.explore.answers import Answers
from pipesat.compare.explore.known import Known
from pipesat.compare.explore.server import HOST, served
from pipesat.compare.explore.stated import MOST_OPS_ON_THE_PAGE, NUMBERS, problem_of, stated_by

HTML = b"<p>the page</p>"
SMALL = {"devices": 2, "microbatches": 3, "layers": 2, "F": 2, "B": 3, "W": 1, "comm": 0}
# The second device begins at 2 and runs three F and B before its last B ends, at 2 + 3 (2 + 3) = 17
# or later. Then the first one still runs a B and a W: no schedule is shorter than 17 + 3 + 1 = 21,
# and 1F1B with W's where it waits takes that.
OPTIMUM = 21
STATED: dict[str, Any] = {"base": None, "settings": SMALL | {"memory": None}}


class Server(NamedTuple):
    answers: Any  # of this process
    port: int
    token: str

    def request(
        self, path: str, body: Any = None, method: str = "POST", **headers: str | None
    ) -> tuple[int, bytes]:
        """Ask as the page does, but for these headers; ``None``: without it."""
        told: dict[str, str | None] = {
            "Host": f"{HOST}:{self.port}",
            "Origin": f"http://{HOST}:{self.port}",
            "X-Pipesat-Token": self.token,
        }
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        for name, value in (told | {"Content-Length": str(len(data))}).items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(data)
        response = connection.getresponse()
        found = response.status, response.read()
        connection.close()
        return found

    def ask(self, question: str, **body: Any) -> Any:
        status, data = self.request(f"/ask/{question}", STATED | body)
        assert status == 200, data
        return json.loads(data)

    def lines(self, question: str, **body: Any) -> list[Any]:
        status, data = self.request(f"/ask/{question}", STATED | body)
        assert status == 200, data
        return [json.loads(line) for line in data.splitlines()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    answers = Answers(STATED, tmp_path / "out")
    with served(HTML, answers, 0) as address:
        origin, token = address.split("/#token=")
        yield Server(answers, int(origin.rpartition(":")[2]), token)


# Who may ask


def test_the_page_itself_needs_no_token_and_says_nothing(server: Server) -> None:
    assert server.request("/", method="GET", X_Pipesat_Token=None, Origin=None) == (200, HTML)
    assert server.request("/", method="POST")[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "pipesat.example:80"},  # another name that leads to this machine
        {"Host": "127.0.0.1"},  # another port
        {"Host": None},
        {"Origin": "http://pipesat.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"X_Pipesat_Token": None},
        {"X_Pipesat_Token": "of-another-run"},
        {"X_Pipesat_Token": "\xe4"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},  # another port of this machine
    ],
)
def test_others_are_refused(server: Server, headers: dict[str, str | None]) -> None:
    status, data = server.request("/ask/schedules", STATED, **headers)
    assert status == 403
    assert b"shown" not in data
    assert server.token.encode() not in data
    if "Sec_Fetch_Site" not in headers and "X_Pipesat_Token" not in headers:
        assert server.request("/", method="GET", **headers)[0] == 403


def test_who_names_this_machine_and_has_the_token_is_answered(server: Server) -> None:
    local = f"localhost:{server.port}"
    for headers in ({}, {"Origin": None}, {"Host": local, "Origin": f"http://{local}"}):
        assert server.request("/ask/start", {}, **headers)[0] == 200
    mixed = {"Host": local, "Origin": f"http://{HOST}:{server.port}"}
    assert server.request("/ask/start", {}, **mixed)[0] == 403


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/ask/nothing", "POST", {}, 404),
        ("/ask/schedules", "GET", None, 404),
        ("/../etc/passwd", "GET", None, 404),
        ("/ask/schedules", "POST", b" " * (17 << 20), 413),
    ],
)
def test_what_the_page_does_not_ask(
    server: Server, path: str, method: str, body: Any, status: int
) -> None:
    assert server.request(path, body, method)[0] == status


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", server.port))  # as any other address of this machine


def test_a_taken_port_is_said(server: Server) -> None:
    taken = served(HTML, server.answers, server.port)
    with pytest.raises(BadInput, match="cannot listen: Address already in use"), taken:
        pass


# What is stated


def test_plain_numbers_are_the_problem_that_python_makes() -> None:
    numbers = dict(NUMBERS) | {"placement": "loop", "chunks": 2}
    placed = {name: value for name, value in numbers.items() if name != "placement"}
    assert problem_of({"settings": numbers}).document == Problem.loop(**placed).document
    assert (
        problem_of({"base": None, "settings": {}}).document
        == problem_of(stated_by(None, None)).document
    )


def test_a_file_keeps_its_costs_and_takes_microbatches_and_memory(tmp_path: Path) -> None:
    given = chain(2, 4, F=3, cap=9)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document(given)))
    stated = stated_by(path, None)
    assert problem_of(stated).document == given.document
    changed = problem_of(stated | {"settings": {"microbatches": 5, "memory": 7}})
    assert changed.document == given.with_microbatches(5).with_memory(7).document


def test_a_model_is_cut_as_the_settings_say() -> None:
    stated = stated_by("llama3-8b", "h100")
    one = problem_of(stated)
    two = problem_of(stated | {"settings": stated["settings"] | {"placement": "vee", "devices": 4}})
    assert [len(one.stages), len(two.stages)] == [8, 8]
    assert len(two.devices) == 4
    assert sum(s.F for s in one.stages) == sum(s.F for s in two.stages)  # the same layers


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({}, "and settings of"),
        ({"settings": []}, "and settings of"),
        ({"settings": {"devices": 2, "eval": 1}}, "and settings of"),
        ({"base": [], "settings": {}}, "and settings of"),
        ({"base": {"format": "pipesat.timeline/1"}, "settings": {}}, "and settings of"),
        ({"base": {"format": "pipesat.problem/1"}, "settings": {}}, "devices"),
        ({"settings": {"devices": "2"}}, "devices"),
        ({"settings": {"devices": 2.5}}, "devices"),
        ({"settings": {"devices": True}}, "devices"),
        ({"settings": {"F": -1}}, "F"),
        ({"settings": {"placement": "ring"}}, "placement"),
        ({"settings": {"microbatches": 3_000}}, f"at most {MOST_OPS_ON_THE_PAGE:,}"),
        ({"settings": {"microbatches": 10**9}}, "ops"),
        ({"settings": {"memory": "much"}}, "memory"),
    ],
)
def test_what_is_stated_wrongly_is_named(stated: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        problem_of(stated)


def test_a_wrong_question_is_answered_in_a_line(server: Server) -> None:
    assert "devices" in server.ask("schedules", settings={"devices": 0})["error"]
    assert "the page" in json.loads(server.request("/ask/schedules", b"{")[1])["error"]
    assert "expected an object" in json.loads(server.request("/ask/schedules", b"[1]")[1])["error"]
    for objective in ("least", ["span"]):
        assert "objective" in server.ask("schedules", objective=objective)["error"]


# What is answered


def test_every_hand_written_schedule_is_ranked_and_drawn(server: Server) -> None:
    found = server.ask("schedules")
    expected = pipesat.compare(problem_of(STATED), search=False)
    rows = {row["name"]: row["value"] for row in found["rows"] if row["name"] != "solver"}
    assert rows == {row.name: row.makespan for row in expected if row.schedule is not None}
    assert found["value"] == min(rows.values())
    assert rows[found["finder"]] == found["value"]
    assert {one["name"] for one in found["data"]["schedules"]} == {*rows, "solver"}
    assert found["bound"] <= found["value"]
    assert not found["searched"]


def test_a_search_tells_lines_and_its_answer_stays(server: Server) -> None:
    *events, last = server.lines("solve", seconds=5)
    done = last["done"]
    assert (done["value"], done["bound"], done["proven"]) == (OPTIMUM, OPTIMUM, True)
    assert done["searched"]
    told = [event for event in events if event.get("value") is not None]
    assert all(event["bound"] <= OPTIMUM <= event["value"] for event in told)
    again = server.ask("schedules")
    assert (again["searched"], again["value"], again["proven"]) == (True, OPTIMUM, True)


@pytest.mark.slow
def test_a_search_ends_when_it_is_told_to_or_another_begins(server: Server) -> None:
    large = STATED | {"settings": SMALL | {"devices": 4, "microbatches": 24, "layers": 4}}
    found: dict[str, list[Any]] = {}

    def search(name: str, **body: Any) -> None:
        found[name] = server.lines("solve", **large, seconds=500, **body)

    threads = [threading.Thread(target=partial(search, name)) for name in ("first", "second")]
    threads[0].start()
    while not server.answers.searching.locked():
        time.sleep(0.01)
    threads[1].start()
    threads[0].join(60)
    server.ask("halt")
    threads[1].join(60)
    assert not any(thread.is_alive() for thread in threads)
    values = [lines[-1]["done"]["value"] for lines in found.values()]
    assert all(values)


@pytest.mark.parametrize("question", ["solve", "schedules"])
def test_a_bug_is_an_answer_too(
    server: Server, question: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Known, "_solved", broken)
    last = server.lines(question, seconds=5)[-1]
    assert "internal error, please report it: RuntimeError" in last.get("done", last)["error"]
    assert "Traceback" in capsys.readouterr().err


def test_less_memory_never_helps_along_the_curve(server: Server) -> None:
    stated = {"settings": {**NUMBERS, "devices": 3, "microbatches": 4, "layers": 3}}
    server.ask("schedules", **stated)
    while not (found := server.ask("curve", **stated)["curve"])["complete"]:
        pass
    peaks, values = zip(*((peak, value) for peak, value, _ in found["steps"]), strict=True)
    assert [*peaks] == sorted(peaks)
    assert [*values] == sorted(values, reverse=True)
    assert found["least"] <= peaks[0]
    # every bound holds for what needs no more than its memory
    for cap, bound in found["bounds"]:
        fitting = [value for peak, value, _ in found["steps"] if peak <= cap]
        assert not fitting or bound <= min(fitting)
    # 1F1B holds three microbatches of 300 on the first device
    assert found["own"] == 900 == sum(found["scale"])


def test_what_was_found_with_less_memory_counts_with_more(server: Server) -> None:
    tight = STATED | {"settings": SMALL | {"held_after_F": 1, "held_after_B": 1, "memory": 2}}
    server.lines("solve", **tight, seconds=5)
    less = server.ask("schedules", **tight)
    loose = server.ask("schedules", **tight | {"settings": tight["settings"] | {"memory": 3}})
    assert loose["value"] <= less["value"]


# What is written


@pytest.mark.slow
def test_exports_are_those_of_the_commands(server: Server, tmp_path: Path, cli: Run) -> None:
    folder = server.answers.output
    assert folder is not None
    server.lines("solve", seconds=5)
    found = server.ask("export", to="solve")
    problem = tmp_path / "p.json"
    problem.write_text(json.dumps(problem_of(STATED).document))
    assert cli("solve", str(problem), "-o", str(tmp_path / "solved")).code == 0
    solved = folder / "solve"
    written = sorted(os.listdir(solved))
    assert written == sorted(os.listdir(tmp_path / "solved"))
    assert found["files"] == written
    assert json.loads((solved / "result.json").read_text())["value"] == OPTIMUM
    assert (solved / "problem.json").read_bytes() == (tmp_path / "solved/problem.json").read_bytes()
    before = {path: path.read_bytes() for path in solved.iterdir()}
    told = server.ask("export", to="torch", schedule="1f1b")
    assert told["folder"] == str(folder / "torch")
    assert {path: path.read_bytes() for path in solved.iterdir()} == before  # of another order
    alone = tmp_path / "1f1b.csv"
    assert cli("export", str(problem), "1f1b", "--to", "torch", "-o", str(alone)).code == 0
    assert (folder / "torch" / "schedule.csv").read_bytes() == alone.read_bytes()


@pytest.mark.slow
def test_the_curve_is_exported_once_it_was_searched(server: Server) -> None:
    folder = server.answers.output
    assert folder is not None
    assert "error" in server.ask("export", to="frontier")
    server.lines("frontier", seconds=0.5)
    assert "frontier.json" in server.ask("export", to="frontier")["files"]
    document = json.loads((folder / "frontier" / "frontier.json").read_text())
    assert document["format"] == "pipesat.frontier/1"


@pytest.mark.parametrize("to", ["../torch", "/tmp/x", "nothing", None, ["torch"]])
def test_nothing_else_is_written(server: Server, tmp_path: Path, to: Any) -> None:
    assert "error" in server.ask("export", to=to, schedule="1f1b")
    assert "error" in server.ask("export", to="torch", schedule="../../etc")
    assert [*tmp_path.iterdir()] == []


def test_without_a_folder_nothing_is_written(server: Server, tmp_path: Path) -> None:
    server.answers.output = None
    assert "-o DIR" in server.ask("export", to="solve")["error"]
    assert [*tmp_path.iterdir()] == []


# The command


def test_explore_serves_until_it_is_stopped(tmp_path: Path) -> None:
    stop = threading.Event()
    seen: list[tuple[int, bytes]] = []

    def ready(address: str) -> None:
        origin, token = address.split("/#token=")
        seen.append(Server(None, int(origin.rpartition(":")[2]), token).request("/", method="GET"))
        stop.set()

    pipesat.explore(folder=tmp_path / "new", port=0, browser=False, ready=ready, stop=stop)
    ((status, html),) = seen
    assert status == 200
    assert b"connect-src &#39;self&#39;" in html
    assert b"eval(" not in html
    assert not (tmp_path / "new").exists()  # nothing was exported


def test_a_link_goes_on_with_its_problem() -> None:
    stop = threading.Event()
    seen: list[str] = []

    def ready(address: str) -> None:
        seen.append(address)
        stop.set()

    link = "http://127.0.0.1:8642/#problem=q1YqS8wpTVWyMtRRKkksyUhVsjLQUUpJLElUsjLWUSrJLElNVaoFAA"
    pipesat.explore(link, port=0, browser=False, ready=ready, stop=stop)
    assert seen[0].endswith("&" + link.partition("#")[2])


def test_without_the_extra_one_line_names_it(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[pipesat.explore.__module__], "find_spec", lambda name: None)
    done = cli("explore", "--no-browser")
    assert done.code == 2
    assert done.err == (
        "pipesat: error: the page needs Werkzeug, the extra `explore`: "
        "pip install 'werkzeug>=3.0'\n"
    )


def test_what_cannot_be_shown_is_said_before_anything_is_served(cli: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"format": "pipesat.problem/1"}')
    for words, said in [
        ((str(wrong),), "devices"),
        (("no-such-model",), "no-such-model"),
        (("llama3-8b",), "--gpu"),
        (("--port", "70000"), "--port"),
    ]:
        done = cli("explore", *words, "--no-browser")
        assert done.code == 2, words
        assert said in done.err


@pytest.mark.slow
@pytest.mark.parametrize("end", ["SIGHUP", "input"])
def test_it_dies_with_its_terminal_and_so_does_a_search(end: str) -> None:
    heard = ["env", "--default-signal=HUP"]  # also under nohup
    words = [sys.executable, "-m", "pipesat", "explore", "--json", "--no-browser", "--port", "0"]
    path = os.pathsep.join([str(ROOT), *sys.path])
    process = subprocess.Popen(
        [*heard, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines = ""
        while not lines.endswith("}\n"):
            lines += process.stdout.readline()
        origin, token = json.loads(lines)["page"].split("/#token=")
        server = Server(None, int(origin.rpartition(":")[2]), token)
        body = {"base": None, "settings": {"placement": "vee"}, "seconds": 500}

        def search() -> None:
            with suppress(http.client.HTTPException, OSError):  # its server dies
                server.request("/ask/solve", body)

        searching = threading.Thread(target=search, daemon=True)
        searching.start()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        started = Path(f"/proc/{process.pid}/task")
        while searching.is_alive() and len([*started.iterdir()]) < 5:
            time.sleep(0.05)
        lanes = children.read_text().split()
        if end == "input":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGHUP)
        code = process.wait(60)
        assert code == {"SIGHUP": -signal.SIGHUP, "input": 0}[end]
        gone = time.monotonic() + 30
        while any(Path(f"/proc/{lane}").exists() for lane in lanes):
            assert time.monotonic() < gone
            time.sleep(0.05)
