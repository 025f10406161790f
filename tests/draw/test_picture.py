import re
import struct
from fractions import Fraction
from functools import cache
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from pipesat.draw.device_rows import Fold, fold_of, rows_of
from pipesat.draw.figures import (
    LEAST,
    amount_text,
    file_of,
    label,
    unit_of_memory,
    unit_of_time,
)
from pipesat.draw.gantt import gantt_figure
from pipesat.draw.style import MEANING, fill
from pipesat.draw.text import text_grid
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import KINDS, Op, members, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem, read_problem
from pipesat.schedule.schedule import Schedule, Timed
from pipesat.schedule.timing import time_order
from tests.support.paths import ROOT

SVG = "{http://www.w3.org/2000/svg}"
BENCH = ROOT / "bench" / "plain" / "problems"


def problem(**changes):
    """Two stages of unit ops on two devices, two microbatches."""
    document = {
        "format": "pipesat.problem/1",
        "time_unit": "us",
        "memory_unit": "MiB",
        "microbatches": 2,
        "devices": [{"memory": 20}, {"memory": 20}],
        "stages": [
            {"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 4, "held_after_B": 2}
            for d in (0, 1)
        ],
    }
    return parse_problem(document | changes)


def timed(*rows):
    """Schedule from rows like ``0F0@0-1 0F1@1-2``."""
    return Schedule(
        tuple(
            tuple(
                Timed(parse_item(op), *map(int, times.split("-")))
                for op, times in (entry.split("@") for entry in row.split())
            )
            for row in rows
        )
    )


def paired():
    """Two routes in opposite directions, with overlapped pairs."""
    stages = [
        {"device": d, "F": 10, "B": 10, "W": 10, "held_after_F": 5, "backward": "fused"}
        for d in (0, 1, 1, 0)
    ]
    routes = [{"stages": [0, 1], "microbatches": 2}, {"stages": [2, 3], "microbatches": 2}]
    document = dict(problem().document) | {
        "stages": stages,
        "routes": routes,
        "overlap": {"FB": [4, 5]},
    }
    del document["microbatches"]
    pipeline = parse_problem(document)
    rows = ("0F0 3F0 (0F1+3BW0) (3F1+0BW0) 3BW1 0BW1", "2F0 1F0 (2F1+1BW0) (1F1+2BW0) 1BW1 2BW1")
    return pipeline, time_order(pipeline, tuple(tuple(map(parse_item, r.split())) for r in rows))


@cache
def bench(name, baseline):
    pipeline = read_problem(BENCH / f"{name}.json")
    return pipeline, BASELINES[baseline](pipeline)


SMALL = (
    "0F0@0-1 0F1@1-2 0B0@3-4 0W0@4-5 0B1@5-6 0W1@6-7",
    "1F0@1-2 1B0@2-3 1F1@3-4 1B1@4-5 1W0@5-6 1W1@6-7",
)


def size_of(png):
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


# the Gantt chart


def figure(pipeline, schedule, title="a title\nand more"):
    return gantt_figure(pipeline, schedule, title=title)


def shapes(drawn):
    """Left, upper, right and lower ends of what a figure draws, by name."""
    found = {}
    for shape in drawn.axes[0].collections:
        if shape.get_gid():
            corners = np.array([path.vertices for path in shape.get_paths()])
            found[shape.get_gid()] = np.column_stack([corners[:, 0], corners[:, 2]]), shape
    return found


@pytest.mark.parametrize(
    "make",
    [
        paired,
        lambda: bench("vee-unit-p4-m4-cap0.75", "list-scheduling"),
        lambda: bench("lowcap-6.2B-p8-m16-cap0.75", "1f1b"),
    ],
)
def test_every_op_is_drawn_at_its_place_in_its_colour(make):
    pipeline, schedule = make()
    drawn = shapes(figure(pipeline, schedule))
    last = max(1, max(map(len, pipeline.stages_on)) - 1)
    scale, _ = unit_of_time(pipeline.time_unit, schedule.makespan)
    wanted = {}
    for device, (item, start, end) in schedule:
        for number, op in enumerate(members(item)):
            place = pipeline.stages_on[device].index(op.stage)
            half = (0, 1) if isinstance(item, Op) else (number / 2, (number + 1) / 2)
            wanted.setdefault((op.kind, place), set()).add((device, start, end, *half))
    names = {name for name in drawn if name != "idle"}
    assert len(names) == len(wanted)
    for (kind, place), boxes in wanted.items():
        chunk = f", chunk {place}" if len(pipeline.stages) > len(pipeline.devices) else ""
        fields, patch = drawn[f"{MEANING[kind]}{chunk}"]
        assert to_hex(patch.get_facecolor()[0]) == fill(kind, place / last)
        lane = drawn["idle"][0][0, 3]  # of the first row, which begins at 0
        assert {
            (
                int(top),
                *(round(x / scale) for x in (left, right)),
                *(round((y - int(top)) / lane, 6) for y in (top, bottom)),
            )
            for left, top, right, bottom in fields.tolist()
        } == boxes


@pytest.mark.parametrize("devices", [1, 250])
def test_the_picture_stays_within_bounds_for_any_number_of_devices(devices):
    stage = {"F": 10**12, "B": 1, "W": 1, "held_after_F": 10**12}
    pipeline = problem(
        devices=[{"memory": 10**12, "name": "long " * 99}] * devices,
        stages=[{"device": d, **stage} for d in range(devices)],
    )
    width, height = figure(pipeline, Schedule(((),) * devices)).get_size_inches()
    assert (width, height) <= (24, 30)


AWKWARD = {
    "nothing": (problem(), Schedule(((), ()))),
    "pairs": paired(),
    "no memory known": (problem(devices=[{}, {}]), Schedule(((), ()))),
    "only zero-length ops": (
        problem(stages=[{"device": d, "F": 0, "B": 0, "W": 0} for d in (0, 1)]),
        timed("0F0@0-0 0F1@0-0", "1F0@0-0"),
    ),
    "names": (
        problem(
            name="$x_1$",
            time_unit="$",
            memory_unit="\\frac{",
            devices=[{"name": "$\\alpha$ \n 设备 \x00", "memory": 1}, {"name": "x" * 1000}],
        ),
        timed(*SMALL),
    ),
    "large numbers": (
        problem(stages=[{"device": d, "F": 10**12, "B": 1, "W": 10**12} for d in (0, 1)]),
        timed(f"0F0@0-{10**12} 0W0@{10**12}-{4 * 10**18}", ""),
    ),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_schedules_are_drawn_without_warnings(case):
    pipeline, schedule = AWKWARD[case]
    drawn = figure(pipeline, schedule, "$\\notmath 题 " * 100)
    size_of(file_of(drawn, "png"))
    ET.fromstring(file_of(drawn, "svg"))


def repeated(times):
    """A device that, after a start of its own, does the same so many times, and ends otherwise."""
    row = ["0F0@0-3", "0F1@4-5"]
    for n in range(times):
        row += [f"0B{n}@{6 + 4 * n}-{8 + 4 * n}", f"0F{n + 2}@{8 + 4 * n}-{9 + 4 * n}"]
    end = 6 + 4 * times
    row += [f"0B{times}@{end}-{end + 2}", f"0B{times + 1}@{end + 3}-{end + 5}"]
    return timed(" ".join(row))


def test_the_repeating_middle_is_found_and_what_is_left_out_is_what_repeats():
    pipeline = problem(
        microbatches=42, devices=[{}], stages=[{"device": 0, "F": 1, "B": 2, "W": 0}]
    )
    schedule = repeated(40)
    rows = rows_of(pipeline, {"": schedule})
    fold = fold_of(rows.boxes)
    # F1 starts at 4, B0 at 6, and so on every 4 until F41 at 164 and B40 at 166: 41 times
    assert fold == Fold(begin=4, period=4, times=41)
    kept = rows.of()[fold.shown(rows.of()["start"])]
    texts = [
        f"{KINDS[k]}{m}@{s}"
        for k, m, s in zip(kept["kind"], kept["microbatch"], fold.moved(kept["start"]), strict=True)
    ]
    assert texts == ["F0@0", "F1@4", "B0@6", "B41@9"]  # 169 - 40 x 4
    broken = [Timed(t.item, t.start, t.end + (t.start == 86)) for t in schedule.devices[0]]
    rows = rows_of(pipeline, {"": Schedule((tuple(broken),))})
    assert (
        fold_of(rows.boxes).times == 20
    )  # B20 is longer: before it F1 to F20, after it F22 to F41
    rows = rows_of(problem(), {"": timed(*SMALL)})
    assert fold_of(rows.boxes) is None


def test_a_long_schedule_is_folded_and_its_ticks_tell_true_times():
    pipeline, schedule = bench("table5-6.2B-p8-m64-cap2", "zb-h1")
    drawn = figure(pipeline, schedule)
    axes = drawn.axes[0]
    assert drawn.get_size_inches()[0] == 10
    assert any(text.get_text().startswith("× ") for text in axes.texts)
    total = sum(len(fields) for name, (fields, _) in shapes(drawn).items() if name != "idle")
    assert total < len(schedule) / 2
    shown = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    texts = [label.get_text() for place, label in shown if place <= axes.get_xlim()[1]]
    labels = [float(text.replace(",", "")) for text in texts]
    assert labels == sorted(labels)
    assert axes.get_xlim()[1] < labels[-1] < schedule.makespan * 1e-3
    whole = gantt_figure(pipeline, schedule, title="", whole=True)
    assert len(schedule) == sum(
        len(own) for name, (own, _) in shapes(whole).items() if name != "idle"
    )


def test_units_are_those_that_people_use():
    assert unit_of_time("us", 1_779_359) == (1e-3, "ms")
    assert unit_of_time("ns", 10) == (1e-3, "us")
    assert unit_of_time("cycles", 10) == (1, "cycles")
    assert unit_of_memory("1e-4 stage activation", 6) == (Fraction(1, 10_000), "stage activations")
    assert unit_of_memory("MiB", 40_960) == (Fraction(1, 1024), "GiB")
    assert unit_of_memory("", 6) == (1, "")
    # 72,478 MiB are 70.779 GiB: what fits into them is not shown as 70.8, beside 70.7
    fits, does_not = (amount_text(held, "MiB", 80_000, 72_478) for held in (72_478, 72_479))
    assert (fits, does_not) == ("70.7", "70.8")


# the text grid


def test_a_small_grid_is_drawn_to_scale():
    assert text_grid(problem(), timed(*SMALL), 80).split("\n") == [
        "us        0  1  2  3  4  5  6",
        "device 0  F0 F1 .. B0 W0 B1 W1",
        "device 1  .. F0 B0 F1 B1 W0 W1",
    ]


def test_a_narrow_grid_goes_without_spaces_then_in_blocks_then_as_lists():
    tight = text_grid(problem(), timed(*SMALL), 26).split("\n")
    assert tight[1:] == ["device 0  F0F1..B0W0B1W1", "device 1  ..F0B0F1B1W0W1"]
    blocks = text_grid(problem(), timed(*SMALL), 22).split("\n")
    assert blocks[1:3] == ["device 0  F0 F1 .. B0", "device 1  .. F0 B0 F1"]
    assert blocks[3] == ""
    assert blocks[5:] == ["device 0  W0 B1 W1", "device 1  B1 W0 W1"]
    uneven = timed("0F0@0-1 0F1@1-1000 0B0@2000-2500", "")
    assert text_grid(problem(), uneven, 60).split("\n") == [
        "us        ops in execution order; [n]: idle for n",
        "device 0  F0 F1 [1000] B0",
        "device 1  [2500]",
    ]


@pytest.mark.parametrize("width", [40, 120, 300])
@pytest.mark.parametrize(
    ("name", "baseline"),
    [
        ("lowcap-unit-p4-m8-cap0.75", "zb-h1"),
        ("lowcap-6.2B-p8-m16-cap0.75", "1f1b"),
        ("vee-6.2B-p4-m8-cap0.75", "list-scheduling"),
    ],
)
def test_a_grid_has_every_op_once_and_fits(name, baseline, width):
    pipeline, schedule = bench(name, baseline)
    lines = text_grid(pipeline, schedule, width).split("\n")
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    whole = len(pipeline.stages) > len(pipeline.devices)
    written = {device: [] for device in range(len(pipeline.devices))}
    device = None
    for line in lines:  # lists go on in lines without a name
        device = re.match(r"device (\d+)", line) or (line.startswith("   ") and device)
        if device:
            written[int(device[1])] += re.findall(r"\d*(?:BW|F|B|W)\d+", line[10:])
    for device, items in enumerate(schedule.order):
        texts = [str(op) if whole else f"{op.kind}{op.microbatch}" for op in items]
        assert written[device] == texts


def test_a_grid_shows_pairs_and_survives_any_schedule_and_width():
    pipeline, schedule = paired()
    assert "(0F1+3BW0)" in text_grid(pipeline, schedule, 80)
    for pipeline, schedule in AWKWARD.values():
        for width in (-5, 0, 1, 20, 80):
            grid = text_grid(pipeline, schedule, width)
            assert grid.count("\n") >= len(pipeline.devices)
            assert all(c.isprintable() or c == "\n" for c in grid)


def test_copies_and_modes_are_drawn_and_explained() -> None:
    document = {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{"memory": 5}],
        "stages": [
            {"device": 0, "F": 2, "B": 2, "W": 1, "held_after_F": 4, "backward": "fused"}
            | {"modes": [{"name": "to the host", "offload": {"out": 2, "in": 2, "held": 1}}]}
        ],
    }
    problem = parse_problem(document)  # as in tests/core/test_copies.py
    order = ((Op(0, "F", 0, 1), Op(0, "F", 1), Op(0, "BW", 1), Op(0, "BW", 0, 1)),)
    schedule = time_order(problem, order)
    drawn, plain = figure(problem, schedule), figure(problem, Schedule(schedule.devices))
    found = shapes(drawn)
    for name, copy in (("copy out", "O"), ("copy back", "L")):
        times = [(c.start, c.end) for c in schedule.copies[0] if c.copy.kind == copy]
        assert found[name][0][:, ::2].tolist() == [list(times[0])]
    assert len(found["mode 1"][0]) == 2
    assert not {"copy out", "copy back"} & set(shapes(plain))
    texts = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert {"mode to the host", "O copy out", "L copy back"} <= set(texts)


def classes_of(*work: tuple[str, int]) -> Problem:
    """One stage of F 1, B 1, W 0, and one microbatch of each class, so many times as long."""
    classes = [{"name": name, "count": 1, "time": [times, 1]} for name, times in work]
    stage = {"device": 0, "F": 1, "B": 1, "W": 0}
    document = {"format": FORMAT, "devices": [{}], "stages": [stage], "microbatches": classes}
    return parse_problem(document)


def test_classes_are_in_the_legend_and_named_in_an_svg() -> None:
    pipeline = classes_of(("long", 2), ("a<b\x00", 1))
    drawn = figure(pipeline, BASELINES["list-scheduling"](pipeline), "classes\n& more")
    texts = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert [text for text in texts if "class" in text] == ["class long", "class a<b?"]
    root = ET.fromstring(file_of(drawn, "svg"))
    assert {g.get("id") for g in root.iter(f"{SVG}g")} >= {"F forward, class long"}
    assert [title.text for title in root.iter(f"{SVG}title")] == ["classes & more"]


def test_every_number_that_some_lettering_fits_is_written() -> None:
    # 19 wide boxes of one colour, and one that only the smallest upright letters fit
    figure = Figure()
    axes = figure.subplots()
    numbers, centres = np.arange(10, 30), np.column_stack([np.arange(20.0), np.zeros(20)])
    space = np.tile([40.0, 20.0], (20, 1))
    space[7] = 1.0 + 0.64 * LEAST * 2, 20.0
    label(axes, numbers, "#ffffff", centres, space)
    (letters,) = axes.collections
    assert len(letters.get_paths()) == len(letters.get_offsets()) == 20
    heights = [path.get_extents().height for path in letters.get_paths()]
    assert heights[7] < min(heights[:7] + heights[8:])
    space[7] = 1.0, 1.0  # nothing fits: it stays without
    label(axes, numbers, "#ffffff", centres, space)
    assert len(axes.collections[1].get_paths()) == 19
