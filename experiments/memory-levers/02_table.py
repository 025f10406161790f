"""Print what every lever costs as a table, write results.json and draw levers.png.

python 02_table.py [--work DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from cases import COPY_TIMES, DEVICES, HERE, LEVERS, RESULTS, SHARES, Case, cases, implies, levers

BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->"
PAGE = HERE / "README.md"
COLOURS = {"wait": "#555555", "recompute": "#d55e00", "offload": "#0072b2", "both": "#009e73"}
Found = dict[Case, tuple[int, int]]


def read(work: Path) -> Found:
    """Value and bound of every case, each with what the others imply.

    What results.json has from earlier runs counts: values were those of checked schedules then.
    """
    raw = {}
    earlier = json.loads(RESULTS.read_text())["cases"]
    for case in cases():
        row, known = json.loads((work / f"{case.name}.json").read_text()), earlier[case.name]
        raw[case] = min(row["value"], known["value"]), max(row["bound"], known["bound"])
        assert raw[case][1] <= raw[case][0], case.name
    return {
        case: (
            min(raw[one][0] for one in raw if implies(one, case)),
            max(raw[one][1] for one in raw if implies(case, one)),
        )
        for case in raw
    }


def cell(found: Found, case: Case) -> str:
    """Value and bound over the best at 1F1B's memory."""
    value, bound = found[case]
    full = found[Case(case.p, Fraction(1), "wait")][0]
    proven = value == bound
    return f"{value / full:.2f} " + ("proven" if proven else f"({bound / full:.2f})")


def table(found: Found) -> str:
    """The table of docs/memory.md."""
    lines = ["| devices | mode | " + " | ".join(map(str, SHARES)) + " |", "|---|---|" + "---|" * 4]
    for p in DEVICES:
        for lever, copies, channels in levers(p):
            name = lever if lever != "both" else "any of them"
            if copies is not None:
                name += f", k = {float(copies):g}" + (", one channel" if channels == 1 else "")
            cells = [cell(found, Case(p, share, lever, copies, channels)) for share in SHARES]
            lines.append(f"| {p} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(found: Found, path: Path) -> None:
    """A panel per number of devices and copy time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 9), layout="constrained")
    axes = figure.subplots(3, 3, sharex=True, sharey=True)
    for row, copies in zip(axes, sorted(COPY_TIMES), strict=True):
        for panel, p in zip(row, DEVICES, strict=True):
            full = found[Case(p, Fraction(1), "wait")][0]
            x = [float(share) for share in SHARES]
            for lever in LEVERS:
                k = copies if lever in ("offload", "both") else None
                y = [found[Case(p, share, lever, k)][0] / full for share in SHARES]
                name = "any of them" if lever == "both" else lever
                # below the others, so that their colours stay
                below = {"linewidth": 7, "zorder": 2, "alpha": 0.35}
                style = below if lever == "both" else {"marker": "o", "zorder": 3}
                panel.plot(x, y, color=COLOURS[lever], label=name, **style)
            bound = [found[Case(p, share, "both", copies)][1] / full for share in SHARES]
            panel.plot(x, bound, "k:", label="bound of any", zorder=2)
            panel.axhline(1, color="#cccccc", zorder=1)
            panel.set_xticks(x, list(map(str, SHARES)))
            panel.set_title(f"p = {p}, k = {float(copies):g}", fontsize=10)
    axes[0][0].legend(fontsize=9)
    figure.supxlabel("capacity over 1F1B's activation memory")
    figure.supylabel("makespan over the best that keeps all at 1F1B's memory")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    work = Path(tempfile.gettempdir()) / HERE.name
    parser.add_argument("--work", type=Path, default=work, help="where 01_solve.py wrote")
    found = read(work := parser.parse_args().work)
    rows: dict[str, Any] = {
        case.name: {"value": value, "bound": bound} for case, (value, bound) in found.items()
    }
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
        "seconds": max(
            json.loads((work / f"{case.name}.json").read_text())["wall_s"] for case in found
        ),
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    RESULTS.write_text(f'{json.dumps(about)[:-1]}, "cases": {{\n{lines}\n}}}}\n')
    draw(found, HERE / "levers.png")
    text = table(found)
    print(text)
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
