"""A schedule's value where links queue and times vary, compared with the best baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pipesat.core.amounts import share, time_text
from pipesat.core.arguments import public
from pipesat.core.claims import difference, percent
from pipesat.core.errors import BadInput
from pipesat.core.schedule import Objective
from pipesat.core.settings import Seed, Within
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.risk.links import Links
from pipesat.workflows.hand_written import best_orders
from pipesat.workflows.schedules import valid_schedule

if TYPE_CHECKING:
    from pipesat.core.ops import Phase
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order, Schedule
    from pipesat.profile.file import Profile
    from pipesat.risk.links import Queued
    from pipesat.risk.robustness import Gain, Noise, Spread
    from pipesat.workflows.result import Result

OURS: Final = "schedule"
NOISE: Final = "5%"
Samples: TypeAlias = Annotated[int, Within(1, 100_000)]
Baselines: TypeAlias = Annotated[int, Within(0, 1000)]


@dataclass(frozen=True)
class LinksRow:
    """Values of one order under each kind of links, in time units.

    ``most_waiting`` is the pair of ranks whose transfers wait longest under ``pair``, if any do.
    """

    name: str
    independent: int
    pair: int
    rank: int
    most_waiting: Queued | None

    def lost(self, value: int) -> float:
        """What queues make it longer, as a share."""
        return float(difference(value, self.independent) or 0.0)

    def document(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        most = self.most_waiting
        return asdict(self) | {"most_waiting": None if most is None else most._asdict()}


@dataclass(frozen=True)
class NoiseRow:
    """Spread of one order's values; of a baseline also what the first order gains over it."""

    name: str
    spread: Spread
    gain: Gain | None


def links_risk(
    problem: Problem, orders: Mapping[str, Order], objective: Objective = "makespan"
) -> list[LinksRow]:
    """Value every order under independent, pair-serialised and rank-serialised links.

    Raises
    ------
    Deadlock, ValueError
        As :func:`pipesat.core.timing.time_order`.
    """
    from pipesat.risk.links import network_of, queued
    from pipesat.risk.robustness import value_without_noise

    rows = []
    for name, order in orders.items():
        networks = {
            links: network_of(problem, order, links) for links in ("independent", "pair", "rank")
        }
        values = {x: value_without_noise(network, objective) for x, network in networks.items()}
        waiting = [entry for entry in queued(networks["pair"]) if entry.waiting]
        rows.append(LinksRow(name, **values, most_waiting=next(iter(waiting), None)))
    return rows


def noise_risk(
    problem: Problem,
    orders: Mapping[str, Order],
    noise: Noise,
    *,
    samples: int = 200,
    seed: int = 0,
    objective: Objective = "makespan",
    links: Links = "independent",
) -> list[NoiseRow]:
    """Value all orders under the same samples; gains are those of the first over each other.

    Raises
    ------
    BadInput, Deadlock, ValueError
        As :func:`pipesat.risk.robustness.sample_orders`.
    """
    from pipesat.risk.links import network_of
    from pipesat.risk.robustness import gain_of, sample_orders, spread_of, value_without_noise

    told: Any = {"samples": samples, "seed": seed, "objective": objective, "links": links}
    values = sample_orders(problem, [*orders.values()], noise, **told)
    nominal = [
        value_without_noise(network_of(problem, order, links), objective)
        for order in orders.values()
    ]
    return [
        NoiseRow(
            name,
            spread_of(nominal[i], values[i]),
            gain_of(nominal[0], values[0], nominal[i], values[i]) if i else None,
        )
        for i, name in enumerate(orders)
    ]


@dataclass(frozen=True, repr=False, slots=True)
class Risk(Displayed):
    """Values of a schedule, ``schedule``, and of baselines: with queued links, and with noise.

    ``settings`` say how the noise was drawn.
    """

    links: list[LinksRow]
    noise: list[NoiseRow]
    objective: Objective
    problem: Problem
    settings: Mapping[str, Any]
    drawn: str = ""

    def facts(self) -> Facts:
        """Return what the schedule has in each case."""
        links, spread, most = self.links[0], self.noise[0].spread, self.links[0].most_waiting
        unit = self.problem.time_unit

        def lost(value: int) -> str:
            return f"{time_text(value, unit)} ({percent(links.lost(value), sign=True)})"

        where = ""
        if most is not None:
            a, b = (self.problem.device_name(rank) for rank in most.ranks)
            where = f"{a} with {b}, {time_text(most.waiting, unit)} in sum"
        half, late = (time_text(round(value), unit) for value in (spread.p50, spread.p95))
        return [
            ("Links", f"{self.objective} {time_text(links.independent, unit)} if they are free"),
            ("Per pair", f"{lost(links.pair)} if a pair of ranks sends one at a time (NCCL)"),
            ("Per rank", f"{lost(links.rank)} if a rank does (with device_id)"),
            ("Waiting", f"most, per pair: {where}" if where else ""),
            ("Noise", f"{half} in half of all steps, {late} in 95 %"),
            ("Drawn", self.drawn),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield a table of links and one of noise, each with all orders."""
        queues = [
            {"name": row.name, "independent": row.independent}
            | {"per_pair": row.pair, "lost_per_pair": row.lost(row.pair)}
            | {"per_rank": row.rank, "lost_per_rank": row.lost(row.rank)}
            for row in self.links
        ]
        noise = [
            {"name": name, "no_noise": spread.nominal, "p50": spread.p50, "p95": spread.p95}
            | {f"gain_{key}": getattr(gain, key, None) for key in ("nominal", "p50", "p05")}
            | {"ahead_in": gain and gain.ahead}
            for name, spread, gain in ((row.name, row.spread, row.gain) for row in self.noise)
        ]
        times = ("independent", "per_pair", "per_rank", "no_noise", "p50", "p95")
        units = dict.fromkeys(times, self.problem.time_unit)
        yield table_of(queues, units=units)
        notes = ["gain: what schedule saves of a baseline's time"]
        yield table_of(noise, notes=notes, units=units)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per order; the baselines' ``gain`` is what the schedule saves of theirs."""
        return [
            {key: value for key, value in asdict(links).items() if key != "most_waiting"}
            | asdict(noise.spread)
            | {f"gain_{key}": x for key, x in (asdict(noise.gain) if noise.gain else {}).items()}
            for links, noise in zip(self.links, self.noise, strict=True)
        ]

    def document(self) -> dict[str, Any]:
        """Return everything for ``--json``."""
        return {
            "objective": self.objective,
            "links": [row.document() for row in self.links],
            "noise": {**self.settings, "rows": [asdict(row) for row in self.noise]},
        }


@public
def risk(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    noise: float | str | Mapping[Phase, float] | None = None,
    profile: Profile | str | Path | None = None,
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
        5%, F=3%,B=5%,W=4%, or as a profile (.json) has measured it; ``None``: 5%.
    profile
        The profile that the problem was made from: the noise is as measured.
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
        If noise and profile are both given, or a share is out of range.
    """
    told = {"noise": NOISE if noise is None else noise, "skew": skew, "samples": samples}
    told |= {"seed": seed, "links": links}
    if isinstance(noise, str) and noise.endswith(".json"):
        noise, profile = None, profile or noise
    between = float(share("skew", skew))
    drawn, words = _noise(problem, noise, profile, between)
    orders = {OURS: valid_schedule(problem, schedule).order}
    orders |= best_orders(problem, objective, baselines)
    sampling: Any = {"samples": samples, "seed": seed, "links": links}
    return Risk(
        links_risk(problem, orders, objective),
        noise_risk(problem, orders, drawn, objective=objective, **sampling),
        objective,
        problem,
        told,
        f"noise {words}, skew {percent(between)}, links {links}, {samples} samples, seed {seed}",
    )


def _noise(
    problem: Problem,
    given: float | str | Mapping[Phase, float] | None,
    profile: Profile | str | Path | None,
    skew: float,
) -> tuple[Noise, str]:
    """Return the noise of each op, and what is said of it."""
    from pipesat.risk.robustness import Noise

    if profile is not None:
        from pipesat.profile.file import read_profile
        from pipesat.risk.robustness import noise_of_profile

        if given is not None:
            raise BadInput("expected it, or a profile, not both", where="noise", value=given)
        source = "the profile"
        if isinstance(profile, str | Path):
            source, profile = str(profile), read_profile(profile)
        return noise_of_profile(problem, profile, skew, source), "as measured"
    shares = _by_phase(given) if isinstance(given, str) and "=" in given else given
    if not isinstance(shares, Mapping):
        alone = float(share("noise", NOISE if shares is None else shares))
        return Noise(alone, skew), percent(alone)
    stages = range(len(problem.stages))
    by_op = {(stage, phase): part for stage in stages for phase, part in shares.items()}
    words = ", ".join(f"{phase} {percent(part)}" for phase, part in shares.items())
    return Noise(0.0, skew, by_op), words


def _by_phase(text: str) -> dict[Phase, float]:
    """Read ``F=3%,B=5%,W=4%``."""
    phases: dict[str, Phase] = {"F": "F", "B": "B", "W": "W"}
    found: dict[Phase, float] = {}
    for part in text.split(","):
        name, _, said = part.strip().partition("=")
        phase = phases.get(name)
        if phase is None or phase in found:
            expected = "expected a share, or one each of F, B and W"
            raise BadInput(expected, where="noise", value=text)
        found[phase] = float(share("noise", said))
    return found
