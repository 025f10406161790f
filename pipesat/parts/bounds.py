"""What no plan of a shop can be shorter than, and plans that cost nothing to make."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from pipesat.parts.parts import Plan, Rows, Shop, rows_by_start, timed


def heads_and_tails(shop: Shop) -> tuple[list[int], list[int]]:
    """Per job, the longest chain before it, and after it without itself."""
    heads, tails = [0] * len(shop.jobs), [0] * len(shop.jobs)
    for number, job in enumerate(shop.jobs):
        for other in job.before:
            heads[number] = max(heads[number], heads[other] + shop.jobs[other].time)
    for number in range(len(shop.jobs) - 1, -1, -1):
        job = shop.jobs[number]
        for other in job.before:
            tails[other] = max(tails[other], tails[number] + job.time)
    return heads, tails


def one_stream_bound(shop: Shop) -> int:
    """Return the largest of the streams' bounds, each stream looked at by itself.

    A job is there once the longest chain before it has run, and after it the longest chain must
    follow. If jobs could be interrupted, the least time of one stream would be that of running at
    every instant the job with the longest chain behind it (Jackson 1955; Carlier 1982).
    """
    heads, tails = heads_and_tails(shop)
    bound = max(
        (h + j.time + t for h, j, t in zip(heads, shop.jobs, tails, strict=True)), default=0
    )
    for stream in range(shop.streams):
        on = [n for n, job in enumerate(shop.jobs) if job.stream == stream]
        if on:
            bound = max(bound, _with_interruptions(shop, on, heads, tails))
    return bound


def _with_interruptions(
    shop: Shop, on: Sequence[int], heads: Sequence[int], tails: Sequence[int]
) -> int:
    arriving = sorted(on, key=lambda n: heads[n])
    ready: list[list[int]] = []  # (minus tail, time left)
    now = longest = place = 0
    while ready or place < len(arriving):
        if not ready:
            now = max(now, heads[arriving[place]])
        while place < len(arriving) and heads[arriving[place]] <= now:
            number = arriving[place]
            heapq.heappush(ready, [-tails[number], shop.jobs[number].time])
            place += 1
        tail, left = ready[0]
        run = left if place == len(arriving) else min(left, heads[arriving[place]] - now)
        now += run
        ready[0][1] -= run
        if run == left:
            heapq.heappop(ready)
            longest = max(longest, now - tail)
    return longest


def quick_plans(shop: Shop) -> Iterator[Plan]:
    """Yield plans of a few rules of preference, in none of which a part could start earlier.

    After Giffler and Thompson (1960): of the parts that could end first, and those that compete
    with it for its stream, take the one that the rule prefers.
    """
    _, tails = heads_and_tails(shop)
    rules: list[Callable[[int], tuple[int, ...]]] = [
        lambda n: (-tails[n] - shop.jobs[n].time, n),
        lambda n: (shop.jobs[n].kind == "W", shop.jobs[n].member, n),
        lambda n: (shop.jobs[n].kind == "W", -shop.jobs[n].member, n),
        lambda n: (shop.jobs[n].kind == "W", -tails[n] - shop.jobs[n].time, n),
    ]
    for rule in rules:
        plan = timed(shop, _active(shop, rule))
        if plan is not None:
            yield plan


def _active(shop: Shop, rule: Callable[[int], tuple[int, ...]]) -> Rows:
    count = len(shop.jobs)
    waits = [len(job.before) for job in shop.jobs]
    then: list[list[int]] = [[] for _ in range(count)]
    for number, job in enumerate(shop.jobs):
        for other in job.before:
            then[other].append(number)
    free, starts, possible = [0] * shop.streams, [0] * count, [0] * count
    ready = [number for number in range(count) if not waits[number]]
    while ready:
        begins = {n: max(possible[n], free[shop.jobs[n].stream]) for n in ready}
        first = min(ready, key=lambda n: (begins[n] + shop.jobs[n].time, n))
        stream, end = shop.jobs[first].stream, begins[first] + shop.jobs[first].time
        rivals = [n for n in ready if shop.jobs[n].stream == stream and begins[n] < end]
        chosen = min(rivals or [first], key=rule)
        ready.remove(chosen)
        starts[chosen] = begins[chosen]
        free[stream] = begins[chosen] + shop.jobs[chosen].time
        for other in then[chosen]:
            possible[other] = max(possible[other], free[stream])
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    return rows_by_start(shop, starts)
