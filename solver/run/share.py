"""How much of a gap is asked for at a time, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Share:
    """A share of the gap between bound and value: more after a "no", less after anything else.

    ``limit`` is in seconds per question.
    """

    share: float = 0.25
    limit: float = 4.0
    more_by: float = 1.5
    less_by: float = 0.5
    least: float = 0.02
    most: float = 1.0
    longer_by: float = 2.0
    longest: float = 60.0

    def target(self, bound: int, value: int) -> int:
        """Length to ask for: if nothing is that short, one more is a bound."""
        return min(value - 1, bound + int(self.share * (value - bound)))

    def refuted(self) -> None:
        """Ask for more: it was answered no."""
        self.share = min(self.most, self.share * self.more_by)

    def less(self) -> None:
        """Ask for less: it was possible, or not answered in time."""
        self.share = max(self.least, self.share * self.less_by)

    def unanswered(self) -> None:
        """Ask for less, or give more time where that is least already."""
        if self.share > self.least:
            self.less()
        else:
            self.longer()

    def longer(self) -> None:
        """Give more time: it was not answered."""
        self.limit = min(self.longest, self.limit * self.longer_by)
