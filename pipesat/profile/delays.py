"""The delay of a message of any size, from measured sizes."""

from __future__ import annotations

from itertools import pairwise

from pipesat.profile.file import LinksModel


def delay_of(links: LinksModel, size: int) -> float:
    """Microseconds for ``size`` bytes: measured, or on the line through the two nearest sizes.

    Below the smallest size it is that one's delay; above the largest, the last two sizes' line goes
    on (one size alone: in proportion).
    """
    known = sorted({link.bytes: link.delay.median for link in links.sizes}.items())
    if size <= known[0][0]:
        return known[0][1]
    if len(known) == 1:
        (bytes_known, delay) = known[0]
        return delay * size / bytes_known if bytes_known else delay
    for (low, low_delay), (high, high_delay) in pairwise(known):
        if size <= high or high == known[-1][0]:
            share = (size - low) / (high - low)
            return max(low_delay + share * (high_delay - low_delay), 0.0)
    return known[-1][1]
