"""Starting ranks, ending them, and what parity says of torch: all of it without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

from pipesat.core.errors import BadInput, RunFailed
from pipesat.heuristics import BASELINES
from pipesat.measure.processes.answers import Check, relative_error
from pipesat.measure.processes.forks import Call, Outcome, first_failed
from pipesat.measure.processes.job import order_of_csv
from pipesat.measure.processes.launch import load_torch_api, run_processes
from pipesat.measure.processes.run import ParityReport, check_parity
from pipesat.schedule.schedule_file import write_schedule
from tests.support.paths import ROOT
from tests.support.problems import chain

ORDER = "0F0,0B0\n1F0,1I0,1W0\n"

# Starting and ending processes


def run(folder, *codes, timeout=600.0, stop=None):
    """Run Python code in one process each: rank 0, rank 1, ..."""
    function = "tests.support.rank_code:run_code"
    calls = {
        f"rank {rank}": Call(function, (folder, f"import time\n{code}"))
        for rank, code in enumerate(codes)
    }
    try:
        run_processes(calls, load="os:getpid", timeout=timeout, stop=stop)
    finally:
        for pid in folder.glob("*.pid"):
            wait_for(lambda pid=pid: not alive(int(pid.stem)))  # killed, but perhaps not gone yet


SLEEP = "open(f'{os.getpid()}.pid', 'w').close()\ntime.sleep(600)"

SLEEP_BEFORE = SLEEP.partition("\n")[0] + "\n"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_for(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_processes_that_end_well(tmp_path):
    run(tmp_path, "open('a', 'w')", "open('b', 'w'); sys.exit(0)")
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("code", "said", "last"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero"),
        ("print('x\\n' * 99, flush=True); sys.exit(3)", "exit code 3", "x"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL", None),
        (f"{SLEEP_BEFORE}os.kill(host, 9); time.sleep(600)", "killed by SIGKILL", None),
    ],
)
@pytest.mark.slow
def test_one_that_fails_ends_all_with_its_last_words(tmp_path, code, said, last):
    with pytest.raises(
        RunFailed, match=rf"rank 0 failed \(before its first action\): {said}"
    ) as error:
        run(tmp_path, code, SLEEP)
    assert (error.value.log or [None])[-1] == last
    assert len(error.value.log) <= 12


def test_bad_input_is_passed_on(tmp_path):
    code = "from pipesat.core.errors import BadInput; raise BadInput('better', where='w', value=3)"
    with pytest.raises(BadInput, match=r"^w: got 3, better$") as error:
        run(tmp_path, code, SLEEP)
    assert error.value.where == "w"


LATE, EARLY = (Outcome(1, error=RunFailed("lost"), moment=moment) for moment in (6.0, 5.0))


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (EARLY, [LATE]),
        (Outcome(-signal.SIGKILL), [EARLY]),  # it could say nothing; the others lost it
        (EARLY, [Outcome(-signal.SIGABRT)]),  # to which a lost connection can lead
        (Outcome(1, error=BadInput("better"), moment=9.0), [EARLY, Outcome(-signal.SIGKILL)]),
        (None, [Outcome(0)]),
    ],
)
def test_the_first_failure_counts(first, others):
    found = dict(enumerate([Outcome(0), *others]))
    assert first_failed(found | ({7: first} if first else {})) == (7 if first else None)


def test_the_time_limit_ends_all_and_says_where_they_were(tmp_path, monkeypatch):
    """The clock strikes when the ranks are where they should be, however long that takes."""

    def monotonic():
        return time.monotonic() + (1000.0 if (tmp_path / "there").exists() else 0.0)

    clock = types.SimpleNamespace(monotonic=monotonic)
    monkeypatch.setattr("pipesat.measure.processes.launch.time", clock)
    there = "(folder / 'rank 0.progress').write_text('0F0\\n2F0\\n'); open('there', 'w')"
    with pytest.raises(RunFailed, match=r"not finished after 500 s") as error:
        run(tmp_path, f"{there}; time.sleep(600)", SLEEP, timeout=500.0)
    assert error.value.log == ("rank 0: in 2F0, its action 2", "rank 1: before its first action")


@pytest.mark.slow
def test_stop_ends_all(tmp_path):
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(RunFailed, match="stopped"):
        run(tmp_path, SLEEP, SLEEP, stop=stop)


@pytest.mark.slow
def test_an_interrupt_ends_all(tmp_path):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # CP-SAT leaves the default: death
    threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, SLEEP, SLEEP)


# Orders


def test_a_plan_says_who_holds_what():
    plan = order_of_csv("0F0,2F0,2B0,,0B0\n1F0,(1F1;1B0)OVERLAP_F_B\n")
    assert [" ".join(map(str, row)) for row in plan.rows] == ["0F0 2F0 2B0 0B0", "1F0 1F1 1B0"]
    assert (plan.stages_on, plan.stages, plan.microbatches) == (((0, 2), (1,)), 3, 2)


@pytest.mark.parametrize(
    ("csv", "message"),
    [
        ("".join(f"{r}F0,{r}B0\n" for r in range(17)), "for 1 to 16 ranks"),
        ("", "for 1 to 16 ranks"),
        ("0F0,0B0\n,\n", "rank 1 has no stage"),
        ("0F0,0B0\n0F1,0B1\n", "every stage from 0 on one rank"),
        ("0F0,0B0\n2F0,2B0\n", "every stage from 0 on one rank"),
        ("0F0junk\n", "junk"),
    ],
)
def test_orders_that_cannot_be_run_are_refused(csv, message):
    with pytest.raises(BadInput, match=message):
        order_of_csv(csv)


def test_orders_for_different_numbers_of_ranks_are_refused(fake_torch):
    fake_torch("")
    with pytest.raises(BadInput, match="one number of ranks"):
        check_parity(["0F0,0B0\n", ORDER])


# The comparison


@pytest.mark.parametrize(
    ("expected", "got", "error"),
    [
        ([4.0, -2.0], [4.0, -2.0], 0.0),
        ([4.0, -2.0], [4.0, -1.0], 0.25),  # of the largest: 1 / 4
        ([4.0], [0.0], 1.0),
        ([0.0, 0.0], [0.0, 0.0], np.inf),  # says nothing
        ([4.0], [np.nan], np.inf),
        ([np.nan], [np.nan], np.inf),
        ([np.inf], [np.inf], np.inf),
        ([4.0], [4.0, 4.0], np.inf),
        ([4.0], None, np.inf),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_relative_error(expected, got, error):
    assert relative_error(np.array(expected), None if got is None else np.array(got)) == error


AS_PLANNED = (("0F0", "0B0"), ("1F0", "1I0", "1W0"))


def report(error, executed=AS_PLANNED, untrained=(), unused=()):
    check = Check("gradient of x", error, 4, 1e-10, untrained, unused, losses=(2.5,), numbers=40)
    return ParityReport(check, AS_PLANNED, executed)


@pytest.mark.parametrize(
    ("result", "code", "text"),
    [
        (report(1e-15), 0, "passed: largest relative error 1.0e-15 (gradient of x) of 4"),
        (report(1e-10), 1, "failed: largest relative error 1.0e-10"),
        (report(np.inf), 1, "failed: largest relative error inf"),
        (report(0.0, (("0F0", "0B0"), ("1F0", "1B0"))), 1, "NOT as planned"),
        (report(0.0), 0, "limit 1e-10 in float64"),
        (
            report(0.0, untrained=("stage 1's w",)),
            1,
            "stage 1's w: one process has them, torch loses them",
        ),
        (
            report(0.0, untrained=("stage 0's v", "stage 1's w"), unused=("stage 1's w",)),
            1,
            "stage 1's w: not in one process either",
        ),
    ],
)
def test_what_the_command_prints(cli, save, monkeypatch, tmp_path, result, code, text):
    monkeypatch.setattr("pipesat.measure.processes.run.check_parity", lambda *a, **k: [result])
    problem = chain(2, 1)
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, problem, BASELINES["zb-h1"](problem))
    outcome = cli("run", "--verify", save(problem), schedule)
    assert outcome.code == code
    assert text in " ".join(outcome.out.split())
    outcome = cli("run", "--verify", save(problem), schedule, "--json")
    assert outcome.code == code
    assert outcome.json["passed"] == (code == 0)
    assert len(outcome.json["executed"]) == 2


# torch missing, unknown, hanging


@pytest.fixture
def fake_torch(tmp_path, monkeypatch):
    """Put a package named torch, with the given code, before the real one if there is one."""

    def install(code):
        folder = tmp_path / "fake"
        (folder / "torch").mkdir(parents=True)
        (folder / "torch/__init__.py").write_text(code)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        monkeypatch.delitem(sys.modules, "torch", raising=False)

    return install


@pytest.fixture
def files(save, tmp_path):
    """Problem and schedule file of a chain on two ranks."""
    problem = chain(2, 2)
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, problem, BASELINES["1f1b"](problem))
    return [save(problem), schedule]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, which has to be empty afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []


def test_torch_is_not_there(cli, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = cli("run", "--verify", *files)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == (
        "pipesat: error: this needs PyTorch: pip install 'torch>=2.13'"
    )


def test_an_unknown_torch_is_named_with_what_it_lacks(cli, files, fake_torch, temporary):
    fake_torch("__version__ = '9.1'")
    folder = temporary.parent / "fake/torch"
    (folder / "distributed.py").write_text("def is_available(): return False")
    outcome = cli("run", "--verify", *files)
    assert outcome.code == 2
    assert "torch 9.1 has no torch.distributed with gloo" in outcome.err
    assert "Traceback" not in outcome.err


def modules(**changes):
    """Modules that look like torch's, as far as parity looks."""

    class PipelineStage:
        def __init__(self, submodule, stage_index, num_stages, device): ...
        def forward_one_chunk(self, chunk): ...
        def backward_one_chunk(self, chunk, full_backward=True): ...
        def backward_weight_one_chunk(self, chunk): ...

    class _PipelineScheduleRuntime:
        def step(self, target, losses, return_outputs): ...
        def _load_csv(self, path): ...

    for name, value in changes.items():
        owner, _, attribute = name.partition("__in__")
        delete = value is None
        target = {"Stage": PipelineStage, "Runtime": _PipelineScheduleRuntime}[attribute]
        if delete:
            delattr(target, owner)
        else:
            setattr(target, owner, value)
    pipelining = types.SimpleNamespace(PipelineStage=PipelineStage)
    return {
        "torch": types.SimpleNamespace(__version__="3.0", __spec__=object()),
        "torch.distributed": types.SimpleNamespace(
            is_available=lambda: True, is_gloo_available=lambda: True
        ),
        "torch.distributed.pipelining": pipelining,
        "torch.distributed.pipelining.schedules": types.SimpleNamespace(
            _PipelineScheduleRuntime=_PipelineScheduleRuntime
        ),
    }


@pytest.mark.parametrize(
    ("changes", "missing", "message"),
    [
        ({}, "torch.distributed.pipelining", "torch.distributed.pipelining.PipelineStage"),
        ({}, "torch.distributed.pipelining.schedules", "schedules._PipelineScheduleRuntime"),
        ({"_load_csv__in__Runtime": None}, "", "_PipelineScheduleRuntime._load_csv"),
        ({"forward_one_chunk__in__Stage": None}, "", "PipelineStage.forward_one_chunk"),
        (
            {"step__in__Runtime": lambda self, target, losses: None},
            "",
            "the argument return_outputs of _PipelineScheduleRuntime.step",
        ),
        (
            {"backward_one_chunk__in__Stage": lambda self, chunk, weights: None},
            "",
            "the argument full_backward of PipelineStage.backward_one_chunk",
        ),
    ],
)
def test_every_private_name_is_looked_for(monkeypatch, changes, missing, message):
    for name, module in modules(**changes).items():
        monkeypatch.setitem(sys.modules, name, None if name == missing else module)
    with pytest.raises(BadInput) as error:
        load_torch_api()
    assert str(error.value).startswith("torch 3.0 has no ")
    assert message in str(error.value)


def test_a_package_that_torch_needs_is_named(monkeypatch, tmp_path):
    (tmp_path / "lacking.py").write_text("import no_such_package.inside")
    monkeypatch.syspath_prepend(tmp_path)
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("pipesat.measure.processes.launch._PIPELINING", "lacking")
    with pytest.raises(BadInput, match=r"^torch 3\.0 cannot load lacking, .*needs no_such_package"):
        load_torch_api()


def test_a_torch_with_everything_is_taken_whatever_its_version(monkeypatch):
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    api = load_torch_api()
    assert api.stage.__name__ == "PipelineStage"


@pytest.mark.slow
def test_a_rank_that_hangs_is_ended_in_time(cli, files, fake_torch, temporary):
    fake_torch("import time; time.sleep(600)")
    outcome = cli("run", "--verify", *files, "--steps", "timeout=1")
    assert outcome.code == 1
    assert "pipesat: error: not finished after 1 s, all processes were ended" in outcome.err
    assert "  rank 1: before its first action" in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks(files, fake_torch, tmp_path, temporary, number):
    started = tmp_path / "pid"
    text = f"open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    fake_torch(f"import os, time; {text}")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pipesat", "run", "--verify", *map(str, files)],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: started.exists() and started.read_text())
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "stopped, all processes were ended" in err
    assert not alive(int(started.read_text()))


@pytest.mark.slow
def test_ranks_end_when_their_parent_is_killed(tmp_path):
    code = f"""
from pathlib import Path
from pipesat.measure.processes.forks import Call
from pipesat.measure.processes.launch import run_processes
call = Call("tests.support.rank_code:run_code", (Path.cwd(), {f"import time{chr(10)}{SLEEP}"!r}))
run_processes({{"rank 0": call, "rank 1": call}}, load="os:getpid", timeout=600)
"""
    paths = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=paths)
    wait_for(lambda: len([*tmp_path.glob("*.pid")]) == 2)
    process.kill()
    process.wait()
    wait_for(lambda: not any(alive(int(path.stem)) for path in tmp_path.glob("*.pid")))


# What is imported


@pytest.mark.slow
def test_torch_drops_an_activation_in_its_backward(tmp_path: Path) -> None:
    """What `check --runtime` says of such a send: KeyError (pipesat/runtimes/hangs/verdict.py)."""
    import torch
    from torch import distributed
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    (order := tmp_path / "order.csv").write_text("0F0,1F0,1B0,0B0\n")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        cpu = torch.device("cpu")
        first, last = (PipelineStage(torch.nn.Linear(2, 2), n, 2, cpu) for n in range(2))
        runtime = _PipelineScheduleRuntime([first, last], 1, lambda out, _: out.sum())
        runtime._load_csv(str(order))
        backward, sent = first.backward_one_chunk, []

        def before_and_after(*args: object, **kwargs: object) -> None:
            sent.append(first.get_fwd_send_ops(0))
            backward(*args, **kwargs)
            with pytest.raises(KeyError):
                first.get_fwd_send_ops(0)

        first.backward_one_chunk = before_and_after
        runtime.step(torch.ones(1, 2), target=torch.ones(1, 2))
        assert len(sent) == 1
    finally:
        distributed.destroy_process_group()
