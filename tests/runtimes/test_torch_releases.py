"""torch's releases: which one is meant, what follows it, and that every answer names it."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pytest

from pipesat.advise.plan_and_advise import advise, plan
from pipesat.compare.compare import compare
from pipesat.compare.exports import export
from pipesat.compare.frontier.memory import frontier, min_memory
from pipesat.compare.hand_written import baseline
from pipesat.compare.schedules import check
from pipesat.compare.solve import solve
from pipesat.core.errors import BadInput
from pipesat.core.torch_releases import (
    NEWEST,
    RELEASES,
    Release,
    Version,
    release_for,
    release_named,
)
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.linear_costs import slacks
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.stages import static_of_devices, with_buffers
from pipesat.problem.costs import Costs
from pipesat.runtimes import released
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.paths import ROOT
from tests.support.problems import chain, vee

OLD, NEW = RELEASES


def test_versions_and_patches_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [release.version for release in RELEASES] == [*get_args(Version)]
    assert release_named() is NEWEST is NEW
    assert release_named("2.13") is release_named("2.13.1+cpu") is OLD
    monkeypatch.setattr(metadata, "version", lambda _: "2.15.0+cu132")
    assert release_named("installed") is NEW
    assert release_for("d9d", None) is release_for(None, None) is None


@pytest.mark.parametrize("version", ["2.14", "2.1", "2", "", "2.150", "newest", "installed"])
def test_a_version_that_nobody_knows(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(BadInput, match=r"expected torch 2\.13, 2\.15 or installed"):
        release_named(version)
    with pytest.raises(BadInput, match="torch, torchtitan, automodel alone"):
        release_for("d9d", version)


@pytest.mark.parametrize(
    "command",
    [
        ("solve", "p.json", "--for"),
        ("compare", "p.json", "--for"),
        ("frontier", "p.json", "--for"),
        ("frontier", "p.json", "--within", "5%", "--for"),
        ("plan", "l.json", "--devices", 2, "--microbatches", 4, "--for"),
        ("advise", "l.json", "--devices", 2, "--microbatches", 4, "--for"),
        ("check", "p.json", "1f1b", "--runtime"),
        ("export", "p.json", "1f1b", "-o", "o.csv", "--to"),
    ],
    ids=lambda words: "-".join(words[:1]),
)
def test_every_command_refuses_it_in_one_line(
    command: tuple[Any, ...],
    cli: Run,
    save: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(chain(2, 4), "p.json")
    save((ROOT / "examples" / "layers-moe.json").read_text(), "l.json")
    outcome = cli(*command, "torch,version=2.14")
    one_bad_line(outcome, "2.14", "2.13, 2.15 or installed")
    assert not Path("o.csv").exists()


def test_answers_name_the_release(tmp_path: Path) -> None:
    problem = chain(2, 3)
    quick: Any = {"time_limit": 0.2, "workers": 1}
    found = solve(problem, target="torchtitan", version="2.13", **quick)
    assert "torchtitan on torch 2.13" in str(found)
    assert found.document()["release"] == found.release == "torchtitan on torch 2.13"
    found.save(tmp_path / "out")
    assert "torch 2.13" in (tmp_path / "out" / "schedule.hazards.txt").read_text()
    assert solve(problem, target="d9d", **quick).release == "d9d 0.24.0"
    assert solve(problem, **quick).release is None
    table = compare(problem, target="torch", **quick)
    assert ("For", "torch 2.15") in table.facts()
    curve: Any = frontier(problem, target="torch", caps=[10], **quick)
    least: Any = min_memory(problem, target="torch", version="2.13", **quick)
    assert (curve.document()["release"], least.document()["release"]) == (
        "torch 2.15",
        "torch 2.13",
    )
    assert [("For", one.about["release"]) in one.facts() for one in (curve, least)] == [True] * 2


def test_plans_and_advice_name_it_and_hold_its_buffers() -> None:
    layers = layers_of(4)
    quick: Any = {"time_limit": 1, "workers": 1}
    old = plan(layers, 2, 4, target="torch", version="2.13", memory="1GiB", **quick)
    new = plan(layers, 2, 4, target="torch", memory="1GiB", **quick)
    assert (old.document()["release"], new.document()["release"]) == ("torch 2.13", "torch 2.15")
    # one end, 2 x 4 microbatches of 3 MiB: an input and its gradient, or an output and its
    held = [[d.static for d in one.result.problem.devices] for one in (old, new)]  # type: ignore[union-attr]
    assert [a - b for a, b in zip(*held, strict=True)] == [2 * 4 * 3] * 2
    found = advise(layers, 2, 4, version="2.13", memory="1GiB", **quick)
    assert found.document()["release"] == "torch 2.13"


def layers_of(count: int) -> Layers:
    """Equal layers that pass on 3 MiB."""
    costs = Costs(F=4, B=4, W=4, BW=8, held_after_F=5, held_after_B=5)
    layer = Layer(name="", costs=costs, weights=7, output=3 << 20)
    units = {"time_unit": "us", "memory_unit": "MiB", "size_unit": "B"}
    return Layers((layer,) * count, **units)


@pytest.mark.parametrize(("placement", "chunks"), [("chain", 1), ("loop", 2), ("vee", 2)])
def test_no_partition_has_more_room_than_the_bound_allows(placement: Any, chunks: int) -> None:
    layers = layers_of(8)
    plain = Pipeline(devices=2, microbatches=4, placement=placement, chunks=chunks, memory=1000)
    shape = with_buffers(plain, layers, OLD)
    assert shape.buffers == Fraction(8, 1 << 20)
    assert with_buffers(plain, layers, NEW) is plain is with_buffers(plain, layers, None)
    assert with_buffers(plain, replace(layers, size_unit=""), OLD) is plain
    each = len(layers) // shape.stages
    parts = [range(each * k, each * k + each) for k in range(shape.stages)]
    static, before = (static_of_devices(layers, parts, one) for one in (shape, plain))
    taken = [a - b for a, b in zip(static, before, strict=True)]
    assert [1000 - slack for slack in slacks(layers, shape)] == taken  # equal outputs: exactly
    assert sum(taken) == 24 * 2 * (shape.stages - 1)


def hazards(release: Release, problem: Any, name: str, tmp_path: Path) -> str:
    export(problem, baseline(name, problem), "torch", tmp_path / "o.csv", version=release.version)
    return (tmp_path / "o.hazards.txt").read_text()


def test_hazards_are_those_of_the_release(tmp_path: Path) -> None:
    """Evaluation, as it ran in both."""
    line, turned = chain(2, 4), vee(2, 4)
    assert "divides every gradient" in hazards(OLD, line, "1f1b", tmp_path)
    assert "eval()" not in hazards(NEW, line, "1f1b", tmp_path)
    for release in RELEASES:
        assert "two neighbouring stages" in hazards(release, turned, "zb-v", tmp_path)
        assert hazards(release, turned, "zb-v", tmp_path).startswith(f"- This is for {release}")


def test_hazards_name_what_a_split_backward_leaves_out(tmp_path: Path) -> None:
    """What findings/torch_split_backward_skips_*.sh show is said of orders that split, alone."""
    line = chain(2, 4)
    for said in ("one behind them trains nothing", "register_post_accumulate_grad_hook"):
        for release in RELEASES:
            assert said in hazards(release, line, "zb-h1", tmp_path)
            assert said not in hazards(release, line, "1f1b", tmp_path)


def test_the_rule_of_directed_groups_is_judged_where_there_are_some() -> None:
    problem = chain(4, 8)
    new = check(problem, baseline("1f1b", problem), "torch")
    old = check(problem, baseline("1f1b", problem), "torch", "2.13")
    assert (new.release, old.release) == ("torch 2.15", "torch 2.13")
    late = check(problem, baseline("1f1b", problem), "pair-fifo")
    assert (new.safe, old.safe, late.safe) == (True, True, False)
    assert new.opt_in.startswith("safe under edge-fifo")
    assert f"{NEW.per_edge}=1" in new.opt_in
    assert old.opt_in == "" == late.opt_in
    with pytest.raises(BadInput, match="torch, torchtitan, automodel alone"):
        check(problem, baseline("1f1b", problem), "pair-fifo", "2.13")


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "runtimes.md").read_text()
    rows = [re.split(r" *\| *", line)[1:-1] for line in page.splitlines() if line.startswith("|")]
    (heads,) = [row for row in rows if row[1:] == [f"torch {x}" for x in get_args(Version)]]
    cells = {row[0]: row[1:] for row in rows if len(row) == len(heads)}
    yes = {True: "yes", False: "no"}
    for head, wanted in {
        "receive buffers of every microbatch": "keeps_buffers",
        "`WAIT_...` in `compute_comms`": "waits",
        "`eval()` divides gradients that are there": "eval_divides",
        "`eval()` fails on a rank with two neighbouring stages": "eval_fails",
        "`max_active_stages` is an argument": "active_stages",
    }.items():
        assert cells[head] == [yes[getattr(one, wanted)] for one in RELEASES]
    groups = [f"`{one.per_edge}=1`" if one.per_edge else "no" for one in RELEASES]
    assert cells["a communicator per directed pair of ranks"] == groups


def test_other_runtimes_have_one_release() -> None:
    assert [*map(released, ("d9d", "torch", None))] == ["d9d 0.24.0", "torch 2.15", None]
