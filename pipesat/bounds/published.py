"""Closed forms of the published schedules on uniform pipelines: bubbles, peaks, microbatches.

p ranks, m microbatches, v chunks per rank, rank d from 0; F, B, W (and BW = B + W) are the times of
one rank's whole share of a microbatch. A *bubble* is the idle fraction of every rank's time: of the
makespan, or where a function says so of the span (``1 - load / span``). A *peak* counts the
microbatches (chunks of them, where ranks hold several) between F and the end of the backward; W
still to run hold what :func:`zb_h1_peak_memory` adds. Without a word on delays there are none.

Every function raises :class:`pipesat.core.errors.BadInput` for a value outside its range, and
where the formula is not exact. Fractions are exact: ``float(...)`` them to print.
"""

from __future__ import annotations

from fractions import Fraction

from pipesat.core.errors import BadInput


def gpipe_bubble(p: int, m: int) -> Fraction:
    """``(p - 1) / (m + p - 1)`` (Huang et al., NeurIPS 2019, section 2.3)."""
    _check(p=p, m=m)
    return Fraction(p - 1, m + p - 1)


def one_f_one_b_bubble(p: int, m: int) -> Fraction:
    """``(p - 1) / (m + p - 1)``, as GPipe's (Narayanan et al., SC 2021, section 2.2.1)."""
    return gpipe_bubble(p, m)


def interleaved_bubble(p: int, m: int, v: int) -> Fraction:
    """``(p - 1) / (m v + p - 1)`` (Narayanan et al., SC 2021, section 2.2.2).

    p must divide m, as that schedule requires; v = 1 is 1F1B's bubble for every m.
    """
    _check(p=p, m=m, v=v)
    if v > 1 and m % p:
        raise BadInput(f"expected a multiple of p = {p}", where="m", value=m)
    return Fraction(p - 1, m * v + p - 1)


def gis_bubble(p: int, m: int, v: int, group: int) -> Fraction:
    """``b / (m v + b)`` with ``b = p - 1 + (p - g)(v - 1)`` (Wan et al., PipeOffload, 2025).

    GIS in groups of g microbatches, ``p / 2 <= g <= p``, which must divide m. From m = p on it is
    exact where ``(p - g) max(F, BW) <= g min(F, BW)``, so at ``g = p / 2`` only where F = BW.
    """
    _check(p=p, m=m, v=v, group=group)
    if not p <= 2 * group <= 2 * p:
        raise BadInput(f"expected from {(p + 1) // 2} to p = {p}", where="group", value=group)
    if m % group:
        raise BadInput(f"expected a multiple of group = {group}", where="m", value=m)
    idle = p - 1 + (p - group) * (v - 1)
    return Fraction(idle, m * v + idle)


def interleaved_gain(p: int, m: int, v: int) -> Fraction:
    """How many times shorter than 1F1B's the makespan of interleaved 1F1B is.

    ``(m + p - 1) / (m + (p - 1) / v)``: the bubble's time is divided by v, and v times as many
    messages are sent. p must divide m.
    """
    return (1 - interleaved_bubble(p, m, v)) / (1 - one_f_one_b_bubble(p, m))


def zb_h1_span(p: int, m: int, F: int, B: int, W: int, delay: int = 0) -> int:
    """``m (F + B + W) + (p - 1)(F + B - W + 4 c)`` in time units, with a delay c per hop.

    (Qi et al., ICLR 2024, section 2.1; with delays it gives the 12 rates printed in Table 5.)
    Exact for ``W <= F`` and ``2 c <= W``, from m = p on, with delays from m = 2 p - 1 on.
    """
    _check(p=p, m=m)
    _check_times(F=F, B=B, W=W, delay=delay)
    _require(F >= W, f"expected at most F = {F}", "W", W)
    _require(2 * delay <= W, f"expected at most W / 2 = {W / 2}", "delay", delay)
    least = 2 * p - 1 if delay else p
    _require(m >= least, f"expected at least {least}", "m", m)
    return m * (F + B + W) + (p - 1) * (F + B - W + 4 * delay)


def zb_h1_bubble(p: int, m: int, F: int, B: int, W: int, delay: int = 0) -> Fraction:
    """Bubble of the span: ``1 - m (F + B + W) / span``, see :func:`zb_h1_span`."""
    return _bubble_of_span(m * (F + B + W), zb_h1_span(p, m, F, B, W, delay))


def zb_h2_span(p: int, m: int, F: int, B: int, W: int, delay: int = 0) -> int:
    """``m (F + B + W) + (p - 1)(F + B - 2 W + 2 c)`` in time units, with a delay c per hop.

    (Qi et al., ICLR 2024, section 2.2.) Exact for ``W <= F``, ``2 W <= F + B``,
    ``2 c <= F + B`` and from m = 2 p - 1 on.
    """
    _check(p=p, m=m)
    _check_times(F=F, B=B, W=W, delay=delay)
    most = min(F, (F + B) // 2)
    _require(most >= W, f"expected at most F and (F + B) / 2, so {most}", "W", W)
    _require(2 * delay <= F + B, f"expected at most (F + B) / 2 = {(F + B) / 2}", "delay", delay)
    _require(m >= 2 * p - 1, f"expected at least {2 * p - 1}", "m", m)
    return m * (F + B + W) + (p - 1) * (F + B - 2 * W + 2 * delay)


def zb_h2_bubble(p: int, m: int, F: int, B: int, W: int, delay: int = 0) -> Fraction:
    """Bubble of the span: ``1 - m (F + B + W) / span``, see :func:`zb_h2_span`."""
    return _bubble_of_span(m * (F + B + W), zb_h2_span(p, m, F, B, W, delay))


def gpipe_peak(p: int, rank: int, m: int) -> int:
    """``m`` on every rank (Huang et al., NeurIPS 2019)."""
    _check_rank(p, rank, m)
    return m


def one_f_one_b_peak(p: int, rank: int, m: int) -> int:
    """``min(p - d, m)`` (Narayanan et al., ICML 2021)."""
    _check_rank(p, rank, m)
    return min(p - rank, m)


def eager_1f1b_peak(p: int, rank: int, m: int) -> int:
    """``min(2 (p - d) - 1, m)`` (Zhuang et al., MLSys 2023)."""
    _check_rank(p, rank, m)
    return min(2 * (p - rank) - 1, m)


def zb_h1_peak(p: int, rank: int, m: int) -> int:
    """``min(p - d, m)``: 1F1B's (Qi et al., ICLR 2024); W still to run are not counted."""
    return one_f_one_b_peak(p, rank, m)


def zb_h1_peak_memory(p: int, rank: int, m: int, held_after_F: int, held_after_B: int) -> int:
    """Peak of ZB-H1 with the parts that wait for their W, in memory units.

    With a = held_after_F, w = held_after_B, from m = p on and for ``w <= a``:
    ``(p - d) a + d w``. In general the largest, over the microbatches j, of what rank d holds while
    B of j runs: ``min(p - d, m - j) a + min(j, d) w + max(0, w - a)``. That is concave in j, so its
    bends decide.
    """
    _check_rank(p, rank, m)
    _check_times(held_after_F=held_after_F, held_after_B=held_after_B)
    deepest = min(p - rank, m)
    bends = {0, m - deepest, min(rank, m - 1)}
    held = (min(deepest, m - j) * held_after_F + min(j, rank) * held_after_B for j in bends)
    return max(held) + max(0, held_after_B - held_after_F)


def zb_h2_peak(p: int, rank: int, m: int) -> int:
    """``min(2 (p - d) - 1, m)`` (Qi et al., ICLR 2024); W still to run are not counted."""
    return eager_1f1b_peak(p, rank, m)


def interleaved_peak(p: int, rank: int, m: int, v: int, group: int | None = None) -> int:
    """``min(2 (p - 1 - d) + (v - 1) g + 1, m v)`` chunks, in groups of g microbatches (default p).

    (Megatron-LM: the warm-up's forwards and the one that starts the steady state.) On rank 0 with
    g = p: ``(v + 1) p - 1``, that is ``1 + (p - 1) / (p v)`` times 1F1B's memory. With less than g
    microbatches in all, m stands for g.
    """
    _check_rank(p, rank, m)
    group = p if group is None else group
    _check(v=v, group=group)
    return min(2 * (p - 1 - rank) + (v - 1) * min(group, m) + 1, m * v)


def gis_peak(p: int, rank: int, m: int, v: int, group: int) -> int:
    """``min(p - d + (v - 1) g, m v)`` chunks (Wan et al., PipeOffload, 2025); m for g if less."""
    _check_rank(p, rank, m)
    _check(v=v, group=group)
    return min(p - rank + (v - 1) * min(group, m), m * v)


def dualpipe_peak(p: int) -> int:
    """``p + 1`` on every rank (DeepSeek-V3 technical report, 2024, table 2); p must be even."""
    _check(p=p)
    _require(p % 2 == 0, "expected an even number", "p", p)
    return p + 1


def dualpipev_peak(p: int) -> int:
    """``2 p + 1`` chunks on every rank, each half as large as a stage of a chain of p."""
    _check(p=p)
    return 2 * p + 1


def microbatches_for_bubble(p: int, bubble: Fraction, v: int = 1) -> int:
    """Least m with which GPipe, 1F1B or, for v > 1, interleaved 1F1B has at most this bubble.

    ``m >= (p - 1)(1 - b) / (b v)``, rounded up, for v > 1 to a multiple of p. The bubble must be
    above 0 and below 1: with p > 1 no number of microbatches makes it vanish.
    """
    _check(p=p, v=v)
    if not isinstance(bubble, Fraction) or not 0 < bubble < 1:
        expected = "expected a Fraction above 0 and below 1, such as Fraction(1, 10)"
        raise BadInput(expected, where="bubble", value=bubble)
    least = max(1, _round_up(Fraction(p - 1) * (1 - bubble) / (bubble * v)))
    return least if v == 1 else p * _round_up(Fraction(least, p))


def _bubble_of_span(load: int, span: int) -> Fraction:
    _require(span > 0, "expected a time above 0", "F + B + W", load)
    return 1 - Fraction(load, span)


def _round_up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _check_rank(p: int, rank: int, m: int) -> None:
    _check(p=p, m=m)
    _check_times(rank=rank)
    _require(rank < p, f"expected from 0 to p - 1 = {p - 1}", "rank", rank)


def _check(**counts: int) -> None:
    for name, value in counts.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(whole and value >= 1, "expected a whole number of at least 1", name, value)


def _check_times(**values: int) -> None:
    for name, value in values.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(whole and value >= 0, "expected a whole number of at least 0", name, value)


def _require(condition: bool, expected: str, where: str, value: object) -> None:
    if not condition:
        raise BadInput(expected, where=where, value=value)
