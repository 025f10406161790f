"""What waiting, recomputing and offloading cost in a chain with less memory than 1F1B needs.

    python -m experiments.memory-levers.run [--scale 1] [--work DIR]

One thread and 144 cases of 4, 6 or 17 seconds for 4, 8 or 16 devices: 20 minutes, times --scale.
Each case starts from the schedules of those that allow less. What DIR has is not solved again.
Writes results.json, levers.png and the table of README.md. A value there is the least, a bound the
largest that any case implies, those of earlier runs in results.json included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pipesat
from bench.pages import measured, put, table
from pipesat.problem.ops import Item, Op
from pipesat.schedule.schedule_file import read_schedule, write_schedule
from pipesat.schedule.timing import time_order

HERE = Path(__file__).resolve().parent
RESULTS, PICTURE = HERE / "results.json", HERE / "levers.png"
SECONDS = {4: 4, 8: 6, 16: 17}
"""Of a case, by number of devices."""

SHARES = (Fraction(1, 4), Fraction(3, 8), Fraction(1, 2), Fraction(3, 4))
COPY_TIMES = (Fraction(14, 10), Fraction(1), Fraction(1, 2))  # what fits first fits later, too
LEVERS = {"wait": "#555555", "recompute": "#d55e00", "offload": "#0072b2", "both": "#009e73"}
F, B, W, LINK = 29802, 29428, 19530, 577  # Zero Bubble (2024), Table 9, 6.2B; microseconds
UNIT = 10_000  # held after F; after B the share of Table 9


@dataclass(frozen=True)
class Case:
    """``copies``: out and back over F + B + W; ``None`` where nothing is copied."""

    p: int
    share: Fraction
    lever: str
    copies: Fraction | None = None
    channels: int = 2

    @property
    def name(self) -> str:
        """Key in the results."""
        copies = "" if self.copies is None else f"-k{float(self.copies):g}"
        one = "-one" if self.channels == 1 else ""
        return f"p{self.p}-{self.lever}{copies}{one}-{float(self.share):g}"

    def problem(self) -> pipesat.Problem:
        """Return the problem: 2 p microbatches, one stage per device."""
        stage: dict[str, Any] = {"F": F, "B": B, "W": W, "held_after_F": UNIT, "held_after_B": 4324}
        work = F + B + W
        modes: list[dict[str, Any]] = []
        if self.lever in ("recompute", "both"):
            recompute: dict[str, Any] = {"name": "recompute", "backward": "fused", "BW": work}
            modes.append(recompute | {"held_after_F": UNIT // 10, "held_in_backward": 3500})
        if self.copies is not None:
            copy = int(work * self.copies / 2)
            offload = {"out": copy, "in": copy, "held": UNIT // 10}
            modes.append({"name": "offload", "offload": offload})
        device: dict[str, Any] = {"memory": int(self.share * self.p * UNIT)}
        if modes:
            stage["modes"], device["copy_channels"] = modes, self.channels
        document = {
            "format": "pipesat.problem/1",
            "name": self.name,
            "time_unit": "us",
            "microbatches": 2 * self.p,
            "devices": [device] * self.p,
            "stages": [{"device": d} | stage for d in range(self.p)],
            "comm": {"default": LINK},
        }
        return pipesat.Problem.from_document(document)


def levers(p: int) -> Iterator[tuple[str, Fraction | None, int]]:
    """Yield lever, copy time and channels: whoever comes later may do what those before may."""
    yield "wait", None, 2
    yield "recompute", None, 2
    if p == 8:  # one channel is asked about in the middle case alone
        yield from (("offload", k, 1) for k in COPY_TIMES)
    for lever in ("offload", "both"):
        yield from ((lever, k, 2) for k in COPY_TIMES)


def cases() -> Iterator[Case]:
    """Yield all cases, and first of each p what keep takes at 1F1B's memory."""
    for p in SECONDS:
        yield Case(p, Fraction(1), "wait")
        for lever, copies, channels in levers(p):
            for share in SHARES:
                yield Case(p, share, lever, copies, channels)


def implies(one: Case, other: Case) -> bool:
    """Whether every schedule of one case is, copies shortened, one of the other."""
    return (
        one.p == other.p
        and one.share <= other.share
        and one.lever in ("wait", other.lever, *(LEVERS if other.lever == "both" else ()))
        and (one.copies is None or (other.copies is not None and one.copies >= other.copies))
        and (one.copies is None or one.channels <= other.channels)
    )


def moved(work: Path, one: Case, new: pipesat.Problem) -> pipesat.Schedule:
    """Time another case's schedule anew; modes are known by their names."""
    old = one.problem()
    schedule = read_schedule(work / f"{one.name}.schedule", old)
    names = ["keep", *(mode.name for mode in new.stages[0].modes)]
    known = ["keep", *(mode.name for mode in old.stages[0].modes)]

    def renumbered(item: Item) -> Item:
        assert isinstance(item, Op)
        return item._replace(mode=names.index(known[item.mode]))

    order = tuple(tuple(map(renumbered, row)) for row in schedule.order)
    return time_order(new, order, source="a case with less freedom")


def solve(work: Path, scale: float) -> None:
    """Solve every case that the folder does not have."""
    before: list[Case] = []
    for case in cases():
        result, problem = work / f"{case.name}.json", case.problem()
        if not result.exists():
            starts = [moved(work, one, problem) for one in before if implies(one, case)]
            limit = scale * SECONDS[case.p]
            found = pipesat.solve(problem, time_limit=limit, workers=1, schedules=starts)
            assert found.schedule is not None
            write_schedule(work / f"{case.name}.schedule", problem, found.schedule)
            result.write_text(json.dumps({"value": found.value, "bound": found.lower_bound}))
            print(case.name, result.read_text(), flush=True)
        before.append(case)


def joined(work: Path) -> dict[Case, tuple[int, int]]:
    """Value and bound of every case, each with what the others and earlier runs imply."""
    raw, earlier = {}, json.loads(RESULTS.read_text())["cases"]
    for case in cases():
        path = work / f"{case.name}.json"
        known = [earlier[case.name], *([json.loads(path.read_text())] if path.exists() else [])]
        raw[case] = min(row["value"] for row in known), max(row["bound"] for row in known)
        assert raw[case][1] <= raw[case][0], case.name
    return {
        case: (
            min(raw[one][0] for one in raw if implies(one, case)),
            max(raw[one][1] for one in raw if implies(case, one)),
        )
        for case in raw
    }


def rows(found: dict[Case, tuple[int, int]]) -> Iterator[list[str]]:
    """Value and bound over the best at 1F1B's memory, a line per way to need less."""
    for p in SECONDS:
        full = found[Case(p, Fraction(1), "wait")][0]
        for lever, copies, channels in levers(p):
            name = lever if lever != "both" else "any of them"
            if copies is not None:
                name += f", k = {float(copies):g}" + (", one channel" if channels == 1 else "")
            cells = [str(p), name]
            for share in SHARES:
                value, bound = found[Case(p, share, lever, copies, channels)]
                proven = "proven" if value == bound else f"({bound / full:.2f})"
                cells.append(f"{value / full:.2f} {proven}")
            yield cells


def draw(found: dict[Case, tuple[int, int]]) -> None:
    """A panel per number of devices and copy time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 9), layout="constrained")
    axes = figure.subplots(3, 3, sharex=True, sharey=True)
    x = [float(share) for share in SHARES]
    for panels, copies in zip(axes, sorted(COPY_TIMES), strict=True):
        for panel, p in zip(panels, SECONDS, strict=True):
            full = found[Case(p, Fraction(1), "wait")][0]
            for lever, colour in LEVERS.items():
                k = copies if lever in ("offload", "both") else None
                y = [found[Case(p, share, lever, k)][0] / full for share in SHARES]
                # below the others, so that their colours stay
                below = {"linewidth": 7, "zorder": 2, "alpha": 0.35, "label": "any of them"}
                style = {"marker": "o", "zorder": 3, "label": lever}
                panel.plot(x, y, color=colour, **(below if lever == "both" else style))
            bound = [found[Case(p, share, "both", copies)][1] / full for share in SHARES]
            panel.plot(x, bound, "k:", label="bound of any", zorder=2)
            panel.axhline(1, color="#cccccc", zorder=1)
            panel.set_xticks(x, list(map(str, SHARES)))
            panel.set_title(f"p = {p}, k = {float(copies):g}", fontsize=10)
    axes[0][0].legend(fontsize=9)
    figure.supxlabel("capacity over 1F1B's activation memory")
    figure.supylabel("makespan over the best that keeps all at 1F1B's memory")
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the seconds per case; 0: none")
    work = Path(tempfile.gettempdir()) / HERE.name
    parser.add_argument("--work", type=Path, default=work, help="schedules so far")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    about = json.loads(RESULTS.read_text())["about"]
    if options.scale:
        solve(options.work, options.scale)
        about = measured("one thread")
    found = joined(options.work)
    known = {case.name: {"value": value, "bound": bound} for case, (value, bound) in found.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in known.items())
    RESULTS.write_text(f'{{"about": {json.dumps(about)}, "cases": {{\n{lines}\n}}}}\n')
    draw(found)
    put(HERE / "README.md", "table", table(("devices", "mode", *SHARES), rows(found)))


if __name__ == "__main__":
    main()
