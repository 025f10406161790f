"""Long ops: the best order of a few layers, again and again, is a good order of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipesat.core.ops import Kind
from pipesat.parts.parts import Chunk
from pipesat.parts.shop import Plan, Shop, shop_of, timed

MOST_JOBS = 48
"""Of a block: of so many, the best order is mostly proven within a second."""


def blocks_of(ops: Sequence[tuple[Chunk, Kind]], jobs: int) -> list[tuple[Chunk, Kind]] | None:
    """Return the ops with so few layers that they are a small shop; ``None`` if they are already.

    Parameters
    ----------
    jobs
        Of the shop of all layers.
    """
    count = -(-jobs // MOST_JOBS)
    small = [(replace(chunk, repeat=-(-chunk.repeat // count)), kind) for chunk, kind in ops]
    return None if small == list(ops) else small


def repeated(shop: Shop, small: Sequence[tuple[Chunk, Kind]], plan: Plan) -> Iterator[Plan]:
    """Yield the plan of all layers in which every block of layers runs in the order of a plan.

    A last block may have fewer layers than the plan has: it runs in what is left of its order.
    """
    number = {
        (job.member, job.kind, job.place, job.part): n
        for n, job in enumerate(shop_of(shop.streams, small).jobs)
    }
    layers = [chunk.repeat for chunk, _ in small]
    place_in_row = {n: k for row in plan.rows for k, n in enumerate(row)}

    def key(n: int) -> tuple[int, int]:
        job = shop.jobs[n]
        block, place = divmod(job.place, layers[job.member])
        return block, place_in_row[number[job.member, job.kind, place, job.part]]

    rows: list[list[int]] = [[] for _ in range(shop.streams)]
    for n, job in enumerate(shop.jobs):
        rows[job.stream].append(n)
    if (found := timed(shop, tuple(tuple(sorted(row, key=key)) for row in rows))) is not None:
        yield found
