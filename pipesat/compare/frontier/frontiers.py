"""What memory buys, as Python, the command line and files show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pipesat.compare.frontier.by_mode import (
    Compared,
    Curves,
    answers,
    compared,
    comparison,
    own_cap,
)
from pipesat.compare.frontier.capacities import Cap, at_cap, in_1f1b
from pipesat.compare.frontier.points import CapRow, Frontier
from pipesat.compare.frontier.staircases import frontier_figure, staircases
from pipesat.core.amounts import memory_text, rounded, time_text
from pipesat.core.claims import excess, percent
from pipesat.core.folder import json_file, write_folder
from pipesat.core.showing import Displayed, Facts, Table, csv_of, frame_of, table_of
from pipesat.schedule.schedule_file import schedule_bytes
from pipesat.schedule.summary import statement_of, units_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.compare.frontier.curve import Curve

FORMAT: Final = "pipesat.frontier/1"
_CLOSE = Fraction(1, 20)  # of the best value: what a user may accept for less memory
_COLUMNS: Final = (
    "placement", "lever", "kind", "name", "cap", "share_of_1f1b", "value", "lower_bound", "gap",
    "status", "source", "largest_peak", "baseline", "baseline_value", "seconds",
)  # fmt: skip


@dataclass(frozen=True, repr=False, slots=True)
class Frontiers(Displayed):
    """Curves of value against memory, by placement or modes; ``None`` for the problem as it is.

    ``about`` has what the document says besides: seed, workers, versions, the layers stated.
    ``compared_at`` has the capacities at which choices of modes are held beside each other.
    """

    curves: Curves
    about: Mapping[str, Any] = field(default_factory=dict)
    by_mode: bool = False
    compared_at: Sequence[int] = ()
    answer_first: ClassVar[bool] = True

    def __getitem__(self, placement: str | None) -> Frontier:
        return self.curves[placement]

    @property
    def _first(self) -> Frontier:
        return next(iter(self.curves.values()))

    @property
    def contradictions(self) -> list[str]:
        """Proofs that checked schedules have refuted, and that were dropped."""
        return [text for one in self.curves.values() for text in one.curve.contradictions]

    def facts(self) -> Facts:
        """Return what each curve spans and what modes buy; of one curve, its best and least."""
        release = "For", self.about.get("release", "")
        if len(self.curves) == 1:
            return [*_of_one(self._first), release]
        said = answers(self.curves, self.compared()) if self.by_mode else self.details()
        lines = [*said, release]
        if "layers" in self.about:
            stated = statement_of(self.about["layers"])
            lines.append(("Basis", f"{stated}. A loop and a V cut each in two between layers"))
        return lines

    def details(self) -> Facts:
        """Return what each curve spans."""
        return [(str(name or "Curve"), _span(frontier)) for name, frontier in self.curves.items()]

    def tables(self) -> Iterator[Table]:
        """Yield what modes reach at the same capacities, then each curve."""
        if self.compared_at:
            yield comparison(self.compared(), self._first.curve.problem)
        for name, frontier in self.curves.items():
            yield _table(name, frontier)
            if frontier.published:
                yield _published_table(frontier)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per cap, curve by curve; the cap of unlimited memory is ``None``."""
        return [
            self._named(name) | _cells(frontier, row)
            for name, frontier in self.curves.items()
            for row in frontier.rows
        ]

    def published(self) -> list[dict[str, Any]]:
        """Return a row per hand-written schedule, curve by curve: value, peak, the curve there."""
        return [
            self._named(name) | schedule | {"largest_peak": max(schedule["peak_memory"])}
            for name, frontier in self.curves.items()
            for schedule in _published(frontier)
        ]

    def to_frame(self, *, published: bool = False) -> Any:
        """Return the rows per cap as a pandas ``DataFrame``, or the hand-written schedules.

        The cap of unlimited memory is NaN. All columns but names hold numbers alone.

        Raises
        ------
        BadInput
            If pandas is not installed.
        """
        hand_written = [
            {key: cell for key, cell in row.items() if key != "peak_memory"}
            for row in self.published()
        ]
        return frame_of(hand_written if published else self.records())

    def csv(self) -> bytes:
        """Return caps and hand-written schedules, named by ``kind``, as one CSV file."""
        caps = [
            {"kind": "cap"} | row | {"cap": "unlimited" if row["cap"] is None else row["cap"]}
            for row in self.records()
        ]
        rows = [*caps, *({"kind": "published"} | row for row in self.published())]
        return csv_of([{name: row.get(name) for name in _COLUMNS} for row in rows])

    def plot(self, title: str | None = None) -> Figure:
        """Draw the curves; return a matplotlib figure, with ``title=""`` one for a paper."""
        first = self._first
        problem, objective = first.curve.problem, first.curve.objective
        title = f"{problem.name or 'problem'}: what memory buys" if title is None else title
        return frontier_figure(problem, objective, staircases(self.curves), first.scale, title)

    def document(self, folder: Path | None = None) -> dict[str, Any]:
        """Return everything as one JSON document; paths are those within ``folder``."""
        first = self._first.curve
        rows = [row.document() for row in self.compared()]
        return {
            "format": FORMAT,
            "problem": first.problem.name,
            "objective": first.objective,
            "time_unit": first.problem.time_unit,
            "memory_unit": first.problem.memory_unit,
            "curves": [
                {
                    **self._named(name),
                    "scale": None if frontier.scale is None else vars(frontier.scale),
                    "points": [
                        _point(frontier, row, folder and folder / _home(name, row.cap))
                        for row in frontier.rows
                    ],
                    "published": [*_published(frontier)],
                    "wall_s": round(frontier.wall_s, 3),
                }
                for name, frontier in self.curves.items()
            ],
            **self.about,
            **({"compared": rows} if rows else {}),
        }

    def save(self, folder: str | Path) -> None:
        """Write what ``pipesat frontier -o`` writes.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        Contradiction
            If the claims contradict themselves; then problems and schedules are written all the
            same.
        """
        folder = Path(folder)
        files: dict[str, bytes] = {}
        for name, frontier in self.curves.items():
            for row in frontier.rows:
                home, at = _home(name, row.cap), at_cap(frontier.curve.problem, row.cap)
                files[str(home / "problem.json")] = json_file(at.document)
                if row.known is not None:
                    files[str(home / "schedule.json")] = schedule_bytes(at, row.known.schedule)
        write_folder(
            folder,
            files,
            claims=lambda: {
                "frontier.json": json_file(self.document(folder)),
                "frontier.csv": self.csv(),
            },
            pictures=self.pictures,
        )

    def pictures(self) -> dict[str, bytes]:
        """Return the picture's files by name."""
        from pipesat.draw.figures import files_of

        return files_of(self.plot(), "frontier")

    def compared(self) -> list[Compared]:
        """Return what each choice of modes reaches at the same few capacities."""
        return [compared(self.curves, cap) for cap in self.compared_at]

    def _named(self, name: str | None) -> dict[str, str | None]:
        """A curve's name under what it stands for."""
        placement, choice = (None, name) if self.by_mode else (name, None)
        return {"placement": placement, "lever": choice}


def _home(name: str | None, cap: Cap) -> Path:
    """Where a cap's problem and schedule lie: ``caps/40000``, ``vee/caps/unlimited``."""
    home = Path() if name is None else Path(name.replace(" ", "-").replace("=", ""))
    return home / "caps" / ("unlimited" if cap is None else str(cap))


def _point(frontier: Frontier, row: CapRow, home: Path | None) -> dict[str, Any]:
    """A cap's entry in the document."""
    known, bound, scale = row.known, row.bound, frontier.scale
    return {
        "cap": row.cap,
        "share_of_1f1b": None if row.cap is None or scale is None else scale.share(row.cap),
        "status": row.standing.status,
        "value": row.standing.value,
        "lower_bound": row.standing.bound,
        "lower_bound_source": None if bound is None else bound.source,
        "gap": row.standing.gap,
        "source": None if known is None else known.schedule.source,
        "peak_memory": None if known is None else list(known.peaks),
        "baseline": None if row.baseline is None else row.baseline._asdict(),
        "seconds": round(row.seconds, 3),
        "problem": None if home is None else str(home / "problem.json"),
        "schedule": None if home is None or known is None else str(home / "schedule.json"),
    }


def _cells(frontier: Frontier, row: CapRow) -> dict[str, Any]:
    """A cap's cells in the CSV: its entry without what a cell cannot hold."""
    point = _point(frontier, row, None)
    baseline, value = row.baseline or (None, None)
    return {key: cell for key, cell in point.items() if key in _COLUMNS} | {
        "largest_peak": None if row.known is None else row.known.peak,
        "baseline": baseline,
        "baseline_value": value,
    }


def _published(frontier: Frontier) -> Iterator[dict[str, Any]]:
    """Yield hand-written schedules, each with the curve at its peak: never above it."""
    for name, known in frontier.published.items():
        there = frontier.curve.standing(known.peak)
        yield {
            "name": name,
            "value": known.value,
            "peak_memory": list(known.peaks),
            "value_at_its_peak": there.value,
            "lower_bound_at_its_peak": there.bound,
        }


def _table(name: str | None, frontier: Frontier) -> Table:
    """A line per cap."""
    curve, scale, best = frontier.curve, frontier.scale, frontier.curve.value(None)
    rows = [
        {
            "cap": "unlimited" if cells["cap"] is None else cells["cap"],
            "share_of_1f1b": cells["share_of_1f1b"],
        }
        | {curve.objective: cells["value"], "gap": cells["gap"], "bound": cells["lower_bound"]}
        | {"status": cells["status"], "over_best": _above(cells["value"], best, "a cap")}
        | {name: cells[name] for name in ("largest_peak", "baseline_value", "baseline")}
        | {"seconds": cells["seconds"], "found_by": cells["source"] or ""}
        for cells in (_cells(frontier, row) for row in frontier.rows)
    ]
    label = curve.problem.name or "problem"
    label += "" if name is None or label.endswith(name) else f", {name}"
    about = [
        *units_of(curve.problem, ms=True),
        "a cap is the capacity of every device, static memory included",
    ]

    notes = []
    if scale is not None:
        unit = curve.problem.memory_unit
        held, static = (memory_text(n, unit) for n in (scale.activations, scale.static))
        text = f"share of 1f1b: of the {held} that 1F1B holds of these layers, one stage per device"
        notes.append(text + (f", beside {static} of static memory" if scale.static else ""))
    units = _units(curve, curve.objective, "bound", "baseline_value")
    return table_of(rows, f"{label}: {'; '.join(about)}", notes, units)


def _published_table(frontier: Frontier) -> Table:
    """Hand-written schedules by peak, with what the curve has at the same memory."""
    scale, curve = frontier.scale, frontier.curve
    published = sorted(frontier.published.items(), key=lambda one: (one[1].peak, one[1].value))
    rows = [
        {"hand-written": name, "peak": known.peak}
        | {"share_of_1f1b": scale and scale.share(known.peak), curve.objective: known.value}
        | {"the_curve there": there, "above_it": _above(known.value, there, name)}
        for name, known in published
        for there in [curve.value(known.peak)]
    ]
    return table_of(rows, units=_units(curve, curve.objective, "the_curve there"))


def _units(curve: Curve, *times: str) -> dict[str, str]:
    memory = dict.fromkeys(("cap", "largest_peak", "peak"), curve.problem.memory_unit)
    return memory | dict.fromkeys(times, curve.problem.time_unit)


def _above(value: int | None, best: int | None, name: str) -> float | None:
    """How far a value is above the best, as a share."""
    above = excess(value, best, name)
    return None if above is None else float(above)


def _of_one(frontier: Frontier) -> Iterator[tuple[str, str]]:
    """Yield the best of a curve, what less memory costs, and what is proven."""
    curve, problem = frontier.curve, frontier.curve.problem
    best = curve.value(None)
    found = [known for row in frontier.rows if (known := row.known) is not None]
    if best is None:
        yield "Best", "no schedule found in time"
        return
    over = [excess(known.value, best, "a cap") or Fraction(0) for known in found]
    close = next(place for place, share in enumerate(over) if share <= _CLOSE)
    places = {0: "Least", close: "Near it", len(found) - 1: "Best"}
    for place, label in sorted(places.items(), reverse=True):
        known = found[place]
        memory = memory_text(known.peak, problem.memory_unit)
        text = f"{time_text(known.value, problem.time_unit)} with {memory} per device"
        longer = (
            f"{percent(over[place], 1)} longer" if over[place] else curve.standing(None).verdict
        )
        yield label, f"{text}{in_1f1b(frontier.scale, known.peak)}, {longer}"
    own = own_cap(problem)
    if own is not None and (value := curve.value(own)) is not None:
        memory = memory_text(own, problem.memory_unit, rounded)
        text = f"{time_text(value, problem.time_unit)} with the {memory} that the problem has"
        yield "Yours", f"{text}, {curve.standing(own).verdict}"
    yield "Proof", _proof(frontier)
    yield "Searched", f"{frontier.wall_s:.1f} s"


def _span(frontier: Frontier) -> str:
    """What one curve of several spans."""
    values = [row.known.value for row in frontier.rows if row.known is not None]
    if not values:
        return "no schedule found in time"
    unit = frontier.curve.problem.time_unit
    most, least = (time_text(value, unit) for value in (max(values), min(values)))
    return f"{most} to {least}, {_proof(frontier)}"


def _proof(frontier: Frontier) -> str:
    """How many points are proven, and the largest gap."""
    standings = [row.standing for row in frontier.rows if not row.standing.infeasible]
    proven = sum(standing.proven for standing in standings)
    text = f"{proven} of {len(standings)} points proven optimal"
    gaps = [standing for standing in standings if standing.gap is not None]
    worst = max(gaps, key=lambda standing: standing.gap or 0.0, default=None)
    return text if worst is None else f"{text}, largest gap {worst.gap_text()}"
