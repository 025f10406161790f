"""Published lengths of zero bubble schedules on uniform chains with a delay per hop."""

from __future__ import annotations


def zb_h1_span(p: int, m: int, F: int, B: int, W: int, delay: int = 0) -> int:
    """Span of ZB-H1 (Qi et al., ICLR 2024, section 2.1), exact for W <= F and 2 delay <= W.

    From m = p on, with delays from m = 2 p - 1 on.
    """
    return m * (F + B + W) + (p - 1) * (F + B - W + 4 * delay)


def zb_h2_span(p: int, m: int, F: int, B: int, W: int, delay: int = 0) -> int:
    """Span of ZB-H2 (section 2.2), for W <= F, 2 W <= F + B, 2 delay <= F + B, m >= 2 p - 1."""
    return m * (F + B + W) + (p - 1) * (F + B - 2 * W + 2 * delay)
