"""A schedule's value where links queue and times vary, compared with the best baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pipesat.compare.hand_written import best_orders
from pipesat.compare.result import Result
from pipesat.compare.risk.queues import LINKS, Links, network_of
from pipesat.compare.schedules import valid_schedule
from pipesat.core.amounts import share, time_text
from pipesat.core.arguments import public
from pipesat.core.claims import difference, percent
from pipesat.core.errors import BadInput
from pipesat.core.settings import Seed, Within
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.problem.ops import PHASES, Phase
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective, Order, Schedule

OURS: Final = "schedule"
"""Name of one that is given as a value, not by its file or name."""
NOISE: Final = "5%"
Samples: TypeAlias = Annotated[int, Within(1, 100_000)]
Baselines: TypeAlias = Annotated[int, Within(0, 1000)]


class Noise(NamedTuple):
    """How much times vary, as coefficients of variation (standard deviation / mean).

    ``ops`` has that of every op on its own, by phase: ``B`` is also BW's, and what is not named
    does not vary. ``skew`` is that of devices.
    """

    ops: Mapping[Phase, float]
    skew: float = 0.0


class Spread(NamedTuple):
    """What an order takes: with the problem's own costs, and the quantiles of its samples."""

    nominal: float
    p05: float
    p50: float
    p95: float


class NoisyGain(NamedTuple):
    """What an order saves of a baseline's time, sample by sample: ``1 - ours / baseline's``.

    ``ahead`` is the share of samples in which it is strictly faster.
    """

    nominal: float
    p05: float
    p50: float
    ahead: float


@dataclass(frozen=True)
class RiskRow:
    """One order's values: by kind of links, without noise, and their spread with noise.

    Of a baseline, ``gain`` is what the first order saves of its time.
    """

    name: str
    links: Mapping[Links, int]
    spread: Spread
    gain: NoisyGain | None

    def lost(self, links: Links) -> float:
        """What queues make it longer, as a share."""
        return float(difference(self.links[links], self.links["independent"]) or 0.0)

    def record(self) -> dict[str, Any]:
        """Return all figures by name."""
        gain: dict[str, Any] = {} if self.gain is None else self.gain._asdict()
        figures: dict[str, Any] = {"name": self.name} | dict(self.links) | self.spread._asdict()
        return figures | {f"gain_{key}": x for key, x in gain.items()}


def rows_of(
    problem: Problem,
    orders: Mapping[str, Order],
    noise: Noise,
    *,
    samples: int = 200,
    seed: int = 0,
    objective: Objective = "makespan",
    links: Links = "independent",
) -> list[RiskRow]:
    """Value all orders where links queue, and under the same samples of noise.

    Raises
    ------
    BadInput
        If times are too long for floating point (from 2^53 units on).
    Deadlock, ValueError
        As :func:`pipesat.schedule.timing.time_order`.
    """
    from pipesat.compare.risk.noise import gain_of, sample_values, spread_of, value_without_noise

    networks = {
        name: {kind: network_of(problem, order, kind) for kind in LINKS}
        for name, order in orders.items()
    }
    replayed = [found[links] for found in networks.values()]
    drawn = sample_values(problem, replayed, noise, samples=samples, seed=seed, objective=objective)
    rows: list[RiskRow] = []
    for (name, found), own in zip(networks.items(), drawn, strict=True):
        values = {kind: value_without_noise(one, objective) for kind, one in found.items()}
        first = rows[0].spread.nominal if rows else 0
        rows.append(
            RiskRow(
                name,
                values,
                spread_of(values[links], own),
                gain_of(first, drawn[0], values[links], own) if rows else None,
            )
        )
    return rows


@dataclass(frozen=True, repr=False, slots=True)
class Risk(Displayed):
    """Values of a schedule, the first row, and of baselines: with queued links, and with noise.

    ``settings`` say how the noise was drawn.
    """

    rows: list[RiskRow]
    objective: Objective
    problem: Problem
    settings: Mapping[str, Any]
    drawn: str = ""

    def facts(self) -> Facts:
        """Return what the schedule has in each case."""
        ours, unit = self.rows[0], self.problem.time_unit

        def lost(links: Links) -> str:
            return f"{time_text(ours.links[links], unit)} ({percent(ours.lost(links), sign=True)})"

        free = time_text(ours.links["independent"], unit)
        half, late = (time_text(round(value), unit) for value in (ours.spread.p50, ours.spread.p95))
        return [
            ("Links", f"{self.objective} {free} if they are free"),
            ("Per pair", f"{lost('pair')} if a pair of ranks sends one at a time (NCCL)"),
            ("Per rank", f"{lost('rank')} if a rank does (with device_id)"),
            ("Noise", f"{half} in half of all steps, {late} in 95 %"),
            ("Drawn", self.drawn),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield a table of links and one of noise, each with all orders."""
        queues = [
            {"name": row.name, "independent": row.links["independent"]}
            | {"per_pair": row.links["pair"], "lost_per_pair": row.lost("pair")}
            | {"per_rank": row.links["rank"], "lost_per_rank": row.lost("rank")}
            for row in self.rows
        ]
        noise = [
            {"name": name, "no_noise": spread.nominal, "p50": spread.p50, "p95": spread.p95}
            | {f"gain_{key}": getattr(gain, key, None) for key in ("nominal", "p50", "p05")}
            | {"ahead_in": gain and gain.ahead}
            for name, spread, gain in ((row.name, row.spread, row.gain) for row in self.rows)
        ]
        times = ("independent", "per_pair", "per_rank", "no_noise", "p50", "p95")
        units = dict.fromkeys(times, self.problem.time_unit)
        yield table_of(queues, units=units)
        notes = [f"gain: what {self.rows[0].name} saves of a baseline's time"]
        yield table_of(noise, notes=notes, units=units)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per order; the baselines' ``gain`` is what the schedule saves of theirs."""
        return [row.record() for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return everything for ``--json``."""
        links = [{"name": row.name, **row.links} for row in self.rows]
        noise = [
            {"name": row.name, "spread": row.spread._asdict()}
            | {"gain": row.gain and row.gain._asdict()}
            for row in self.rows
        ]
        return {
            "objective": self.objective,
            "links": links,
            "noise": {**self.settings, "rows": noise},
        }


@public
def risk(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    noise: float | str | Mapping[Phase, float] = NOISE,
    skew: float | str = "0%",
    links: Links = "independent",
    samples: Samples = 200,
    seed: Seed = 0,
    baselines: Baselines = 3,
    objective: Objective = "makespan",
) -> Risk:
    """Value a schedule where links queue, and where times vary, and the best baselines with it.

    Parameters
    ----------
    noise
        No search: value where each op's time varies by this share (standard deviation / mean), as
        5%, or F=3%,B=5%,W=4%.
    skew
        The same, varying between devices for a whole step.
    links
        The same, and how transfers queue while times vary: ``independent``, ``pair`` (one at a time
        between two ranks, as NCCL runs torch's) or ``rank``.
    samples
        How often times are drawn.
    seed
        The samples' seed.
    baselines
        Compare with so many hand-written schedules, the best that fit.
    objective
        ``makespan`` or ``span``.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    BadInput
        If a share is out of range.
    """
    told = {"noise": noise, "skew": skew, "samples": samples, "seed": seed, "links": links}
    between = float(share("skew", skew))
    drawn, words = _noise(noise, between)
    ours = str(schedule) if isinstance(schedule, str | Path) else OURS
    given = {ours: valid_schedule(problem, schedule).order}
    # a hand-written one of its name does not take its place
    orders = given | best_orders(problem, objective, baselines) | given
    sampling: Any = {"samples": samples, "seed": seed, "links": links}
    return Risk(
        rows_of(problem, orders, drawn, objective=objective, **sampling),
        objective,
        problem,
        told,
        f"noise {words}, skew {percent(between)}, links {links}, {samples} samples, seed {seed}",
    )


def _noise(given: float | str | Mapping[Phase, float], skew: float) -> tuple[Noise, str]:
    """Return the noise of each op, and what is said of it."""
    shares = _by_phase(given) if isinstance(given, str) and "=" in given else given
    if not isinstance(shares, Mapping):
        alone = float(share("noise", shares))
        return Noise(dict.fromkeys(PHASES, alone), skew), percent(alone)
    found = {phase: float(share("noise", part)) for phase, part in shares.items()}
    words = ", ".join(f"{phase} {percent(part)}" for phase, part in found.items())
    return Noise(found, skew), words


def _by_phase(text: str) -> dict[Phase, str]:
    """Read ``F=3%,B=5%,W=4%``."""
    phases: dict[str, Phase] = {"F": "F", "B": "B", "W": "W"}
    found: dict[Phase, str] = {}
    for part in text.split(","):
        name, _, said = part.strip().partition("=")
        phase = phases.get(name)
        if phase is None or phase in found:
            raise BadInput("expected a share, or one each of F, B and W", where="noise", value=text)
        found[phase] = said
    return found
