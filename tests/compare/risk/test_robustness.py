"""Fixed orders under sampled costs: without noise the replay, common and reproducible samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import pipesat
from pipesat.compare.risk.answer import PHASES, Noise
from pipesat.compare.risk.noise import (
    gain_of,
    sample_values,
    spread_of,
    value_of,
    value_without_noise,
)
from pipesat.compare.risk.queues import Links, network_of
from pipesat.core.errors import BadInput
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Order
from pipesat.schedule.schedule_file import schedule_bytes
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.support.problems import chain, problems

Save = Callable[..., Path]

ONE_F_ONE_B = tuple(
    tuple(parse_item(text) for text in row.split())
    for row in ("0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1")
)


def all_ops(share: float, skew: float = 0.0) -> Noise:
    return Noise(dict.fromkeys(PHASES, share), skew)


def sample_orders(
    problem: Problem,
    orders: Sequence[Order],
    noise: Noise,
    *,
    links: Links = "independent",
    **told: Any,
) -> Any:
    """A row of values per order."""
    networks = [network_of(problem, order, links) for order in orders]
    return sample_values(problem, networks, noise, **told)


@pytest.mark.slow
@settings(max_examples=25)
@given(problems(least_time=0))
def test_without_noise_every_sample_is_the_replay(problem: Problem) -> None:
    order = BASELINES["list-scheduling"](problem).order
    makespan = time_order(problem, order).makespan
    span = time_order(problem, order, "span").span
    (values,) = sample_orders(problem, [order], Noise({}), samples=3)
    assert values.tolist() == [makespan] * 3
    (values,) = sample_orders(problem, [order], Noise({}), samples=2, objective="span")
    assert [math.ceil(value) for value in values] == [span] * 2
    network = network_of(problem, order, "independent")
    assert value_without_noise(network, "makespan") == makespan
    assert value_without_noise(network, "span") == span
    (values,) = sample_orders(problem, [order], Noise({}), samples=2, links="pair")
    queued = value_without_noise(network_of(problem, order, "pair"), "makespan")
    assert values.tolist() == [queued] * 2


def test_without_noise_pairs_take_their_own_time() -> None:
    """max(F, BW, ceil((F + BW) 4/5)) = max(2, 4, ceil(24/5)) = 5, not 4.8."""
    base = chain(1, 2, F=2, B=2, W=2)
    problem = parse_problem(dict(base.document) | {"overlap": {"FB": [4, 5]}})
    order = (tuple(parse_item(x) for x in ("0F0", "(0F1+0BW0)", "0BW1")),)
    (values,) = sample_orders(problem, [order], Noise({}), samples=2)
    assert values.tolist() == [2 + 5 + 4] * 2


def test_spans_of_sampled_times_by_hand() -> None:
    """1F1B of 2 ranks and 2 microbatches, F = 1, BW = 2; then with all of rank 1 halved.

    Longest paths: L[0,0] = 0F0 1F0 1BW0 1F1 1BW1 0BW1 = 1+1+2+1+2+2 = 9, L[1,1] = 6, L[0,1] = 7,
    L[1,0] = 1F0 1BW0 1F1 1BW1 0BW1 = 8: means of cycles 9, 6 and (7 + 8)/2.
    Halved: L[0,0] = 0F0 1F0 1BW0 0BW0 0BW1 = 1+.5+1+2+2 = 6.5, L[1,1] = 3, and less each way.
    """
    problem = chain(2, 2)
    network = network_of(problem, ONE_F_ONE_B, "independent")
    times = network.arrays.duration.astype(float)
    assert value_of(network, times, "span") == 9
    assert value_of(network, np.where(network.arrays.device == 1, times / 2, times), "span") == 6.5


def test_one_device_s_makespan_is_the_sum_of_lognormal_times() -> None:
    """400 ops of 1000: mean 400,000, standard deviation 1000 c sqrt(400) = 2000 for c = 0.1.

    The mean of 400 samples has a standard error of 2000 / 20 = 100; skew adds c itself.
    """
    problem = chain(1, 200, F=1000, B=500, W=500)
    order = (tuple(Op(0, kind, k) for kind in ("F", "BW") for k in range(200)),)  # type: ignore[arg-type]
    (values,) = sample_orders(problem, [order], all_ops(0.1), samples=400)
    assert abs(values.mean() - 400_000) < 5 * 100
    assert values.std() == pytest.approx(2000, rel=0.2)
    (skewed,) = sample_orders(problem, [order], all_ops(0.0, 0.1), samples=400)
    assert skewed.std() / skewed.mean() == pytest.approx(0.1, rel=0.2)
    assert (skewed > 0).all()


def test_skew_slows_all_of_a_device() -> None:
    """Without noise per op, a device's times share one factor, whatever it runs."""
    problem = chain(1, 3, F=10, B=10, W=10)
    order = (tuple(Op(0, kind, k) for k in range(3) for kind in ("F", "BW")),)  # type: ignore[arg-type]
    single = chain(1, 1, F=10, B=10, W=10)
    first = (tuple(Op(0, kind, 0) for kind in ("F", "BW")),)  # type: ignore[arg-type]
    (three,) = sample_orders(problem, [order], all_ops(0, 0.2), samples=5)
    (one,) = sample_orders(single, [first], all_ops(0, 0.2), samples=5)
    assert three == pytest.approx(3 * one)


def test_noise_of_one_kind_alone() -> None:
    problem = chain(1, 50, F=10, B=10, W=0)
    order = (tuple(Op(0, kind, k) for k in range(50) for kind in ("F", "B", "W")),)  # type: ignore[arg-type]
    (still,) = sample_orders(problem, [order], Noise(ops={"W": 0.5}), samples=3)
    assert still.tolist() == [1000] * 3
    (moving,) = sample_orders(problem, [order], Noise(ops={"F": 0.5}), samples=3)
    assert len(set(moving.tolist())) == 3


def test_samples_are_common_and_reproducible() -> None:
    problem = chain(4, 8, F=10, B=10, W=10, comm=1)
    orders = [BASELINES[name](problem).order for name in ("1f1b", "zb-h1")]
    noise = all_ops(0.05, 0.02)
    both = sample_orders(problem, orders, noise, samples=20, seed=3)
    again = sample_orders(problem, orders[::-1], noise, samples=20, seed=3)
    other = sample_orders(problem, orders, noise, samples=20, seed=4)
    for ours, same, different in zip(both, again[::-1], other, strict=True):
        assert ours.tolist() == same.tolist()
        assert not (ours == different).any()
    twice = sample_orders(problem, [orders[0], orders[0]], noise, samples=20, seed=3)
    assert twice[0].tolist() == twice[1].tolist() == both[0].tolist()
    fewer = sample_orders(problem, orders, noise, samples=7, seed=3)
    assert [row.tolist() for row in fewer] == [row[:7].tolist() for row in both]


def test_quantiles_and_gains_by_hand() -> None:
    values = np.arange(101.0)
    spread = spread_of(7, values)
    assert (spread.nominal, spread.p05, spread.p50, spread.p95) == (7, 5, 50, 95)
    gain = gain_of(90, np.array([90.0, 95.0, 100.0]), 100, np.array([100.0, 100.0, 100.0]))
    assert gain.nominal == pytest.approx(0.1)
    assert gain.p50 == pytest.approx(0.05)
    assert gain.ahead == pytest.approx(2 / 3)
    nothing = gain_of(0, np.zeros(2), 0, np.zeros(2))
    assert (nothing.nominal, nothing.p50, nothing.ahead) == (0, 0, 0)


@pytest.mark.parametrize("values", [{"noise": -0.1}, {"noise": {"F": 1.5}}, {"skew": 1.5}])
def test_noise_out_of_range(values: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected a share from 0 to 1"):
        pipesat.risk(chain(1, 1), "gpipe", **values)


def test_times_beyond_floating_point() -> None:
    long = chain(1, 9100, F=10**12, B=0, W=0)
    order = (tuple(Op(0, kind, k) for k in range(9100) for kind in ("F", "BW")),)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"2\^53"):
        sample_orders(long, [order], Noise({}), samples=1)


# pipesat compare --noise, --skew, --links

TWO = chain(2, 2, F=2, B=2, W=2, comm=4)


def files(save: Save, problem: Problem = TWO) -> tuple[Path, Path]:
    schedule = BASELINES["1f1b"](problem)
    return save(problem), save(schedule_bytes(problem, schedule), "s.json")


def test_risk_prints_both_sections(cli: Run, save: Save) -> None:
    """The links of test_links.py: 26, and 28 where transfers queue: 7.69 % lost."""
    outcome = cli("compare", files(save)[0], "1f1b", "--noise", "5%")
    assert (outcome.code, outcome.err) == (0, "")
    line = next(x for x in outcome.out.splitlines() if x.startswith("1f1b"))
    assert line.split() == ["1f1b", "26", "28", "7.69", "%", "28", "7.69", "%"]
    assert "noise 5.00 %, skew 0 %, links independent, 200 samples, seed 0" in outcome.out


def test_risk_as_json(cli: Run, save: Save) -> None:
    options = ["--noise", "F=0%,B=0,W=0.0%,samples=5,baselines=1", "--links", "pair"]
    problem, given = files(save)
    document = cli("compare", problem, given, *options, "--json").json
    ours, best = document["links"]
    assert ours == {
        "name": str(given),
        "independent": 26,
        "pair": 28,
        "rank": 28,
    }
    rows = document["noise"]["rows"]
    assert [row["name"] for row in rows] == [str(given), best["name"]]
    assert rows[0]["spread"] == {"nominal": 28, "p05": 28, "p50": 28, "p95": 28}
    assert rows[0]["gain"] is None
    assert rows[1]["gain"]["p50"] == pytest.approx(1 - 28 / best["pair"])


def test_a_file_named_like_a_hand_written_schedule_keeps_its_own_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1F1B takes 26 here, as above, and zb-h1 less; 1F1B is in a file that is called zb-h1."""
    monkeypatch.chdir(tmp_path)
    own = Path("zb-h1")
    own.write_bytes(schedule_bytes(TWO, BASELINES["1f1b"](TWO)))
    rows = pipesat.risk(TWO, own, samples=1, baselines=9).rows
    assert BASELINES["zb-h1"](TWO).makespan < 26
    assert (rows[0].name, rows[0].links["independent"]) == ("zb-h1", 26)


@pytest.mark.parametrize("value", ["much", "-1%", "101%", "5%%", "", "F=1%,F=2%", "X=1%", "F="])
def test_risk_refuses_noise_that_is_none(cli: Run, save: Save, value: str) -> None:
    outcome = cli("compare", *files(save), f"--noise={value}")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("pipesat: error: --noise: got ")
