"""Print what ``measure.py`` found: ``python experiments/on-a-gpu/tables.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pipesat.layers.profile.published import named_gpu, named_shape
from pipesat.layers.roofline import FAST, LIKELY, SLOW, ModelRun, estimated_layers

RESULTS = Path(__file__).resolve().parent / "results"
MIB = {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}
BATCHES = {"block": 1, "zb-1.5b": 6, "zb-6.2b": 3, "zb-14.6b": 1, "zb-28.3b": 1}


def read(name: str) -> dict[str, Any]:
    """A file of the results."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def estimates() -> None:
    """Estimated over measured, less 1, of a block and the head."""
    print("| model | layer | efficiencies | F | B | W | in all | measured, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for file, batch in BATCHES.items():
        profile = read(file)
        run = ModelRun(length=profile["model"]["length"], batch=batch)
        shape = named_shape(profile["name"]).shape
        for kind, layer in (("block", 1), ("head", -1)):
            measured = [profile["kinds"][kind][op]["median"] for op in "FBW"]
            for label, efficiency in (("slow", SLOW), ("likely", LIKELY), ("fast", FAST)):
                made = estimated_layers(shape, named_gpu("h200"), run, efficiency=efficiency)
                costs = made.layers[layer].costs
                times = [costs.F, costs.B, costs.W]
                errors = [x / y - 1 for x, y in zip(times, measured, strict=True)]
                errors.append(sum(times) / sum(measured) - 1)
                cells = " | ".join(f"{100 * error:+.0f} %" for error in errors)
                whole = f"{sum(measured) / 1000:.2f}"
                print(f"| {profile['name']} | {kind} | {label} | {cells} | {whole} |")


def splits() -> None:
    """What splitting a backward costs."""
    print("| model | block: B | W | BW | (B + W) / BW | F, 10th to 90th percentile |")
    print("|---|---|---|---|---|---|")
    for file in BATCHES:
        block = read(file)["kinds"]["block"]
        b, w, bw = (block[op]["median"] / 1000 for op in ("B", "W", "BW"))
        spread = (block["F"]["high"] - block["F"]["low"]) / block["F"]["median"]
        name = read(file)["name"]
        print(f"| {name} | {b:.2f} ms | {w:.2f} | {bw:.2f} | {(b + w) / bw:.2f} | {spread:.1%} |")


def memory() -> None:
    """Peaks, predicted and measured, without states of an optimizer, which no run makes."""
    print("| run | device | predicted | measured | error |")
    print("|---|---|---|---|---|")
    for run in ("alone.looped-bfs", "alone.interleaved-zb", "shared.1f1b", "shared.zb-h1"):
        made = (RESULTS / f"{run.partition('.')[0]}.log").read_text().partition("static\n")[2]
        amounts = [re.findall(r"(\S+) ([KMG]iB|B)\b", line) for line in made.splitlines()]
        states = [
            MIB[unit] * float(number)
            for number, unit in (row[2] for row in amounts if len(row) > 6)
        ]
        told = (RESULTS / f"{run}.log").read_text()
        for device, predicted, peak in re.findall(
            r"^device (\d+) +\d+ +(\d+) +\d+ +(\d+)", told, re.M
        ):
            expected = int(predicted) - states[int(device)]
            got = int(peak) / 2**20
            print(
                f"| {run} | {device} | {expected:.0f} MiB | {got:.0f} | {expected / got - 1:+.1%} |"
            )


def ways() -> None:
    """A block kept, recomputed in two ways, compiled, and copied to the host and back."""
    kept = read("block.modes")["kinds"]["block"]
    rows = {
        "kept": kept,
        "`--measure modes`: recompute": {"F": kept["F"]} | kept["recompute"],
        "`--device cuda,checkpoint`": read("block.checkpoint")["kinds"]["block"],
        "`--device cuda,compile=inductor`": read("block.inductor")["kinds"]["block"],
    }
    print("| block of llama3-8b | F, ms | B | W | BW | held after F, MiB |")
    print("|---|---|---|---|---|---|")
    for name, costs in rows.items():
        times = [costs.get(op) for op in ("F", "B", "W", "BW")]
        cells = " | ".join(f"{x['median'] / 1000:.2f}" if x else "-" for x in times)
        print(f"| {name} | {cells} | {costs['held_after_F'] / 2**20:.0f} |")
    copies, copied = read("block.modes")["copies"], kept["offload"]["bytes"]
    print(f"Offload leaves {kept['offload']['held'] / 2**20:.0f} MiB and copies:")
    both = 0.0
    for way in ("out", "back"):
        speed = copies["bytes"] / (copies[way]["median"] / 1e6)
        both += copied / speed
        amount = f"{copied / 2**20:.0f} MiB in {1000 * copied / speed:.1f} ms"
        print(f"{way} {speed / 2**30:.1f} GiB/s, {amount}")
    work = sum(kept[op]["median"] for op in "FBW") / 1e6
    print(f"k = {both / work:.2f}")


def tight(problem: str) -> None:
    """Peaks of one order with its modes and without."""
    print("| device | capacity, MiB | predicted | measured | error | without modes |")
    print("|---|---|---|---|---|---|")
    row = re.compile(r"^device (\d+) +(\d+) +(\d+) +[\d.]+ +(\d+)", re.M)
    told = [(RESULTS / f"{problem}.{name}.log").read_text() for name in ("with", "without")]
    for (device, most, predicted, got), (*_, kept) in zip(*map(row.findall, told), strict=True):
        peak, without = int(got) / 2**20, int(kept) / 2**20
        fits = "" if without <= int(most) else ", exceeds"
        error = int(predicted) / peak - 1
        cells = f"{peak:.0f} | {error:+.1%} | {without:.0f}{fits}"
        print(f"| {device} | {most} | {predicted} | {cells} |")


if __name__ == "__main__":
    estimates()
    splits()
    memory()
    ways()
    tight("tight")
    tight("aside")
