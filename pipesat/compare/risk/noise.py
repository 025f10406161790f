"""Whether a schedule's gain survives noise: fixed orders, re-timed under sampled costs.

Every op's time is multiplied by ``n * s``: n drawn for each op on its own (``noise``), s once per
device and sample (``skew``: a slow device is slow in the whole step). Both are lognormal with mean
1 and the given coefficient of variation c,

    n = exp(sigma z - sigma^2 / 2),  sigma^2 = ln(1 + c^2),  z standard normal,

so no time is negative, and the load of a device is, on average, what the problem says. Delays stay
as they are. An order is timed as early as possible under each sample: no rank waits for a clock.

All orders of a problem are timed under the *same* samples (common random numbers): F, B and W of a
(stage, microbatch) have a factor each, BW has that of its B, and an overlapped pair the average of
its two members', weighted by their times. So differences between schedules are not those of luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from pipesat.compare.risk.answer import Noise, NoisyGain, Spread
from pipesat.core.arrays import Floats, Ints
from pipesat.core.errors import require
from pipesat.kernels.timing import last_ends
from pipesat.problem.ops import PHASE_OF, PHASES, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration
from pipesat.runtimes.steps import Transfer
from pipesat.schedule.linear_order import LinearOrder
from pipesat.schedule.schedule import Objective
from pipesat.schedule.timing import earliest_ends

_EXACT = 1 << 53


def spread_of(nominal: float, values: Floats) -> Spread:
    """Summarise an order's samples; quantiles are interpolated linearly."""
    p05, p50, p95 = (float(q) for q in np.quantile(values, (0.05, 0.5, 0.95)))
    return Spread(nominal, p05, p50, p95)


def gain_of(nominal: float, values: Floats, baseline: float, others: Floats) -> NoisyGain:
    """Compare an order's samples with those of a baseline, drawn alike; 0 where both take none."""
    ones = np.ones(len(values))
    ratios = np.divide(values, others, out=ones, where=others > 0)
    p05, p50 = (float(q) for q in np.quantile(1 - ratios, (0.05, 0.5)))
    at_rest = 1 - nominal / baseline if baseline else 0.0
    return NoisyGain(at_rest, p05, p50, float(np.mean(values < others)))


def sample_values(
    problem: Problem,
    networks: Sequence[LinearOrder],
    noise: Noise,
    *,
    samples: int = 200,
    seed: int = 0,
    objective: Objective = "makespan",
) -> Floats:
    """Makespans (or minimum spans, not rounded up) of orders under common samples.

    Returns an array of shape (orders, samples). O(ops * samples), for the span times the number of
    devices. Sample i depends on seed and i alone: more samples only add some.

    Raises
    ------
    BadInput
        If times are too long for floating point (from 2^53 units on).
    """
    for network in networks:
        longest = sum(network.duration) + sum(d for own in network.inputs for _, d in own)
        require(longest < _EXACT, "the times add up to 2^53 units or more: use a coarser unit")
    parts = [*product(range(len(problem.stages)), PHASES)]  # of ops that vary alike
    counts = np.repeat(problem.microbatches, len(PHASES))
    device = np.repeat([problem.stages[stage].device for stage, _ in parts], counts)
    sigma = np.repeat([_sigma(noise.ops.get(phase, 0.0)) for _, phase in parts], counts)
    shares = [_Shares.of(problem, network) for network in networks]
    values = np.empty((len(networks), samples))
    for number in range(samples):
        draw = np.random.default_rng((seed, number)).standard_normal
        skew = _lognormal(_sigma(noise.skew), draw(len(problem.devices)))
        factors = _lognormal(sigma, draw(len(sigma))) * skew[device]
        for row, network, share in zip(values, networks, shares, strict=True):
            row[number] = value_of(network, share.times(factors), objective)
    return values


class _Shares(NamedTuple):
    """Of every item: its time, the slots of its members, and how much of it varies with each.

    ``fixed`` is 1 where the time does not vary, else 0.
    """

    time: Floats
    fixed: Floats
    slots: Ints
    share: Floats

    @classmethod
    def of(cls, problem: Problem, network: LinearOrder) -> _Shares:
        """Return those of a sequence."""
        first = np.cumsum([0, *np.repeat(problem.microbatches, len(PHASES))])
        items = len(network.item)
        slots, share = np.zeros((2, items), np.int64), np.zeros((2, items))
        for number, node in enumerate(network.item):
            ops = () if isinstance(node, Transfer) else members(node)
            alone = [duration(problem, op) for op in ops]
            for member, op in enumerate(ops if sum(alone) else ()):
                phase = PHASES.index(PHASE_OF[op.kind])
                slots[member, number] = first[len(PHASES) * op.stage + phase] + op.microbatch
                share[member, number] = alone[member] / sum(alone)
        fixed = np.where(share.any(axis=0), 0.0, 1.0)
        return cls(np.array(network.duration, np.float64), fixed, slots, share)

    def times(self, factors: Floats) -> Floats:
        """Times of all items."""
        first, second = self.share * factors[self.slots]
        return (self.fixed + first + second) * self.time


def _sigma(variation: float) -> float:
    """Standard deviation of the logarithm of a lognormal of mean 1."""
    return math.sqrt(math.log1p(variation * variation))


def _lognormal(sigma: Floats | float, normal: Floats) -> Floats:
    return np.exp(sigma * normal - sigma * sigma / 2)


def value_of(network: LinearOrder, times: Floats, objective: Objective) -> float:
    """Makespan of items that take these times, or the minimum span, not rounded up.

    With ``L[d, e]`` the longest path from the start of device d's first item to the end of device
    e's last one, the span is the largest mean of a cycle of L (:mod:`pipesat.schedule.timing` has
    the proof), by Karp (Discrete Mathematics 23, 1978, theorem 1): ``max over v of min over k of
    (D[n, v] - D[k, v]) / (n - k)``, where ``D[k, v]`` is the longest walk of k edges that ends in
    v, from anywhere. A path joins every device's own first and last item, so walks of every length
    exist.
    """
    arrays, span = network.arrays, objective == "span"
    used = np.unique(arrays.device[arrays.device >= 0])
    delays = arrays.delay.astype(float)
    (paths,) = last_ends(arrays, times[None], delays, int(used[-1]) + 1, span)
    if not span:
        return float(paths.max())
    paths, count = paths[np.ix_(used, used)], len(used)
    walks = np.zeros((count + 1, count))
    for k in range(count):
        walks[k + 1] = (walks[k][:, None] + paths).max(axis=0)
    means = (walks[count] - walks[:count]) / np.arange(count, 0, -1)[:, None]
    return float(means.min(axis=0).max())


def value_without_noise(network: LinearOrder, objective: Objective) -> int:
    """Makespan or minimum span with the problem's own costs, in whole time units.

    Spans from 2^53 time units on are those of floating point.
    """
    if objective == "makespan":
        return max(earliest_ends(network, [0]), default=0)
    return math.ceil(value_of(network, network.arrays.duration.astype(float), objective))
