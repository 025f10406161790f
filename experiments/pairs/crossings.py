"""Must ops wait for each other where microbatches cross? Grids in which hardly any does.

Microbatches cross on an endless line of devices, in two directions. Two that meet on a device are a
pair, two that meet between devices change places, and these take turns. With chance q, all of one
direction run an op alone between two that they meet. On a loop, forwards go one way and backwards
the other. In a V each way has both by turns, and the two that meet on a device are of two kinds.

Run as ``python -m experiments.pairs.crossings``: a table of the rates that 8 devices could have so.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise, product

F, B, W, PAIR = 97.391, 111.611, 35.067, 129.012  # ms, of DeepSeek-V3's trace
OF_EACH, SHARES = 200, (0.1, 0.15, 0.2, 0.25, 0.3)
CHUNKS, OPS_HELD = {True: 20, False: 12}, {True: 48, False: 34}  # of device 0; loop, V


def grid(q: float, *, loop: bool) -> tuple[float, float]:
    """Return how long an op waits, and the share of time that F's, B's and pairs take."""
    chance = random.Random(0)
    alone = [[int(chance.random() < q) for _ in range(OF_EACH)] for _ in range(2)]
    free: dict[tuple[int, int, int], float] = {}  # when one may go on, by way and whom it met
    place, ran = {(0, 0): 1}, defaultdict[int, list[tuple[float, float]]](list)
    start, waited, ops = dict[tuple[int, int], float](), 0.0, 0
    inside = range(OF_EACH // 4, 3 * OF_EACH // 4)
    for i, j in product(range(OF_EACH), range(OF_EACH)):
        pair = (i + j) % 2  # a device has an even place, a link an odd one
        came = [free[0, i, j - 1]] if j else []
        came += [free[1, i - 1, j]] if i else []
        if j:
            place[i, j] = place[i, j - 1] + 2 * alone[0][j - 1] + 1
        elif i:
            place[i, j] = place[i - 1, j] - 2 * alone[1][i - 1] - 1
        begin = start[i, j] = max(came, default=0.0)
        end = begin + pair * PAIR
        if pair:
            ran[place[i, j]].append((begin, end))
        for way, kind, single in ((0, i, alone[0][j]), (1, j + 1, alone[1][i])):
            time = (B if way else F) if loop else (B if kind % 2 else F)
            free[way, i, j] = end + single * time
            if single:
                there = place[i, j] + (1 + pair) * (1 - 2 * way)
                ran[there].append((end, end + time))
        if i in inside and j in inside:
            waited += sum(begin - time for time in came)
            ops += 2 * pair + alone[0][j] + alone[1][i]
    middle, early, late = OF_EACH // 2, int(0.35 * OF_EACH), int(0.65 * OF_EACH)
    busy = whole = 0.0
    for there, items in ran.items():
        if abs(there - place[middle, middle]) < OF_EACH // 5:
            row = sorted(x for x in items if start[early, early] < x[0] < start[late, late])
            for one, other in pairwise(row):
                assert other[0] > one[1] - 1e-6, "two ops of a device at once"
                busy, whole = busy + one[1] - one[0], whole + other[0] - one[0]
    return waited / ops, busy / whole


def main() -> None:
    """Print, per placement and q, what pairs, what waits, and both rates."""
    print("placement  q     paired  an op waits  device's time  its memory  ms a microbatch")
    for loop, q in product((True, False), SHARES):
        wait, busy = grid(q, loop=loop)
        paired, held = 1 / (1 + 2 * q), OPS_HELD[loop] // 2
        in_pairs = 4 * (paired * PAIR / 2 + (1 - paired) * (F + B) / 2)
        time = max(in_pairs / busy, in_pairs + 2 * (1 - paired) * W)
        area = held * (2 * paired * PAIR + (1 - paired) * (F + B)) + 2 * held * wait
        memory = (area + (1 - paired) * W) / CHUNKS[loop]
        name = "loop" if loop else "V"
        print(f"{name:10} {q:<5} {paired:6.3f} {wait:12.1f} {time:14.1f} {memory:11.1f}")


if __name__ == "__main__":
    main()
