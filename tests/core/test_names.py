"""Names as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipesat.core.errors import BadInput
from pipesat.core.names import hint, named, spelled
from pipesat.heuristics import BASELINES
from pipesat.layers.profile.published import GPUS, SHAPES
from pipesat.runtimes import EXPORTERS
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.paths import ROOT
from tests.support.problems import chain


@pytest.mark.parametrize("known", [BASELINES, GPUS, SHAPES, EXPORTERS], ids=["a", "b", "c", "d"])
def test_case_and_hyphens_do_not_matter(known: dict[str, object]) -> None:
    for name in known:
        for typed in (name, name.upper(), name.replace("-", "_"), name.replace("-", " ")):
            assert named("x", typed, known) == name


def test_what_may_be_two_is_refused() -> None:
    assert spelled("a_b", ["a-b", "A b"]) is None
    assert spelled("A b", ["a-b", "A b"]) == "A b"
    assert hint("zb_w", ["gpipe", "zb-v"]) == "; the nearest is zb-v"
    assert not hint("tensorflow", ["gpipe", "zb-v"])
    with pytest.raises(BadInput, match="x: got 'gpip', expected one of gpipe; the near"):
        named("x", "gpip", ["gpipe"])


def test_names_and_keys_on_the_command_line(cli: Run, save, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(chain(2, 2), "p.json")
    assert cli("check", path, "1F1B", "--runtime", "Torch").code in (0, 1)
    assert cli("export", path, "ZB_H1", "--to", "torch-titan", "-o", "o.toml").code == 0
    one_bad_line(cli("solve", path, "--for", "torchtitn"), "; the nearest is torchtitan")
    estimate = ("problem", "estimate", "--gpu", "H-100", "-o", "l.json", "--config", "GPT2")
    assert cli(*estimate, "--shape", "Tensor-Parallel=4").code == 0
    for shape in ("tensor_parallel=4,sequence=4096", "sequence=4096"):
        outcome = cli(*estimate, "--shape", shape)
        one_bad_line(outcome, "--shape: got 'sequence=4096', expected KEY=VALUE of style, layers")
    one_bad_line(
        cli(*estimate, "--shape", "lenght=8"), "unknown key: got 'lenght', expected one of"
    )
    words = ("plan", "l.json", "--devices", 2, "--microbatches", 2)
    one_bad_line(cli(*words, "--memory", "9GiB,reserv=1GiB"), "'reserv', expected one of reserve;")


def test_no_device_is_listed_twice(cli: Run, save) -> None:
    outcome = cli("solve", save(chain(3, 2, cap=1, held=(2, 2))))
    assert outcome.code == 3
    said = " ".join(f"{outcome.out} {outcome.err}".split())
    assert said.count("device 1 has a capacity of 1 but needs 2") == 1


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("llama3-70b --gpu h100 --tp 8", "--shape tensor_parallel=N"),
        ("llama3-70b --gpu h100 --length 8", "--shape length=N"),
        ("llama3-8b --gpu h100 --reserve 8GiB", "--memory CAP,reserve=AMOUNT"),
    ],
)
def test_an_option_that_follows_another_is_shown_there(cli: Run, words: str, instead: str) -> None:
    outcome = cli("advise", *words.split(), "--devices", 8, "--microbatches", 8)
    option = words.split()[-2]
    one_bad_line(outcome, f"no such option '{option}': say {instead}; pipesat advise")


def test_what_a_problem_states_is_no_option_beside_it(cli: Run, save) -> None:
    outcome = cli("solve", save(chain(3, 2)), "--memory", "40GiB")
    one_bad_line(outcome, "'--memory': the problem file states it, as problem new --memory")


@pytest.mark.parametrize("command", ["solve", "plan"])
def test_why_megatron_takes_no_order_is_said(cli: Run, command: str) -> None:
    file = (
        ROOT
        / "examples"
        / {"solve": "zb-1.5B-p8-m24-cap0.75.json", "plan": "layers-moe.json"}[command]
    )
    words = ["--devices", 2, "--microbatches", 4] if command == "plan" else []
    outcome = cli(command, file, *words, "--for", "megatron")
    one_bad_line(outcome, "Megatron-LM runs orders of its own: pipesat advise finds its settings")
