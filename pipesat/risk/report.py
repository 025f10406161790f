"""What a schedule's value assumes and a real run may not grant: free links, times without noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesat.core.schedule import Objective, Order
from pipesat.risk.links import Links, Queued, network_of, queued
from pipesat.risk.robustness import (
    Gain,
    Noise,
    Spread,
    gain_of,
    sample_orders,
    spread_of,
    value_without_noise,
)

if TYPE_CHECKING:
    from pipesat.core.problem import Problem


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
    rows = []
    for name, order in orders.items():
        networks = {
            links: network_of(problem, order, links) for links in ("independent", "pair", "rank")
        }
        values = {x: value_without_noise(network, objective) for x, network in networks.items()}
        waiting = [entry for entry in queued(networks["pair"]) if entry.waiting][:1]
        rows.append(LinksRow(name, **values, most_waiting=waiting[0] if waiting else None))
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
    values = sample_orders(
        problem,
        list(orders.values()),
        noise,
        samples=samples,
        seed=seed,
        objective=objective,
        links=links,
    )
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
