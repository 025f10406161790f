import json
import re
import struct
import subprocess
import sys
from functools import cache
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from pipesat.core.memory import memory_profiles
from pipesat.core.ops import KINDS, Op, members, parse_item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem, read_problem
from pipesat.heuristics import BASELINES
from pipesat.picture.axis import round_step
from pipesat.picture.boxes import LOWER, UPPER, boxes_of
from pipesat.picture.classes import TINTS, class_tints, fill, fill_text
from pipesat.picture.gantt import gantt_png, gantt_svg
from pipesat.picture.grid import text_grid
from pipesat.picture.labels import choose_labels
from pipesat.picture.layout import TALLEST, WIDEST, lay_out
from pipesat.picture.legend import entries_of
from pipesat.picture.lettering import fitted, text_width
from pipesat.picture.paint import highest_per_column, paint_ops
from pipesat.picture.style import FILL, rgb
from tests.support.paths import ROOT
from tests.support.problems import chain

BENCH = ROOT / "experiments" / "bench" / "problems"


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


@pytest.mark.parametrize(
    "make", [paired, lambda: bench("vee-unit-p4-m4-cap0.75", "list-scheduling")]
)
def test_there_is_one_box_per_op(make):
    pipeline, schedule = make()
    drawn = [
        (device, f"{stage}{KINDS[kind]}{microbatch}", start, end)
        for device, boxes in enumerate(boxes_of(pipeline, schedule))
        for stage, kind, microbatch, start, end in zip(
            boxes.stage, boxes.kind, boxes.microbatch, boxes.start, boxes.end, strict=True
        )
    ]
    wanted = [(d, str(op), t.start, t.end) for d, t in schedule for op in members(t.item)]
    assert drawn == wanted


def test_pairs_are_halves():
    boxes = boxes_of(*paired())[0]
    assert sorted(boxes.part[boxes.kind == KINDS.index("F")]) == [0, 0, UPPER, UPPER]
    assert sorted(boxes.part[boxes.kind == KINDS.index("BW")]) == [0, 0, LOWER, LOWER]


def test_the_picture_is_a_png_within_bounds_and_always_the_same():
    pipeline, schedule = bench("lowcap-6.2B-p8-m16-cap0.75", "1f1b")
    png = gantt_png(pipeline, schedule, title="a title\nand more")
    width, height = size_of(png)
    assert 1000 < width <= WIDEST
    assert 500 < height <= TALLEST
    assert png == gantt_png(pipeline, schedule, title="a title\nand more")


@pytest.mark.parametrize(
    "devices",
    [1, 64, pytest.param(250, marks=pytest.mark.slow), pytest.param(4096, marks=pytest.mark.slow)],
)
def test_the_picture_stays_within_bounds_for_any_number_of_devices(devices):
    stage = {"F": 10**12, "B": 1, "W": 1, "held_after_F": 10**12}
    pipeline = problem(
        devices=[{"memory": 10**12, "name": "long " * 99}] * devices,
        stages=[{"device": d, **stage} for d in range(devices)],
    )
    empty = Schedule(((),) * devices)
    layout = lay_out(pipeline, empty, memory_profiles(pipeline, empty))
    assert layout.width <= WIDEST
    assert layout.height + 15 * layout.font <= TALLEST  # 15: three lines each of title and legend
    assert layout.lane_top(devices - 1) + layout.lane + layout.gap + layout.track <= layout.bottom


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
    for title in ("", "$\\notmath 题 " * 100):
        size_of(gantt_png(pipeline, schedule, title=title))


def test_a_pixel_has_the_mixture_of_what_runs_during_its_time():
    # 4 ops of 1 time unit on 2 pixels: the first is half F, half BW, the second half F, half idle
    boxes = boxes_of(problem(), timed("0F0@0-1 0BW0@1-2 0F1@2-3 0F2@4-4"))[0]
    lane = np.zeros((3, 2, 3), dtype=np.uint8)
    paint_ops(lane, boxes, pixels_per_time=0.5, shade=None)
    f, bw, idle = np.array([rgb(FILL["F"]), rgb(FILL["BW"]), (1, 1, 1)]) * 255
    expected = np.array([(f + bw) / 2, (f + idle) / 2])
    outlined = 0.35 * expected[1]  # the op of length 0 stands at the right end, as a line
    assert lane[1] == pytest.approx(np.array([expected[0], outlined]), abs=1)


def test_the_memory_track_is_the_memory_profile():
    pipeline, schedule = problem(), timed(*SMALL)
    for profile in memory_profiles(pipeline, schedule):
        now = np.searchsorted(profile.times, np.arange(schedule.makespan), side="right") - 1
        columns = highest_per_column(profile, schedule.makespan, schedule.makespan)
        assert columns.tolist() == profile.held[now].tolist()
        assert highest_per_column(profile, schedule.makespan, 1) == [profile.held.max()]


def test_the_makespans_number_has_room_without_a_memory_track():
    pipeline = chain(2, 2, F=1_000_000_000, held=(0, 0))
    schedule = BASELINES["1f1b"](pipeline)
    layout = lay_out(pipeline, schedule, memory_profiles(pipeline, schedule))
    assert layout.track == 0
    half = text_width(f"{schedule.makespan:,}", 0.9 * layout.font, bold=True) / 2
    assert layout.right + half < layout.width


@pytest.mark.parametrize(
    ("name", "baseline", "whole"),
    [
        ("lowcap-6.2B-p8-m16-cap0.75", "zb-h1", False),
        ("bidir-6.2B-p4-m8", "list-scheduling", True),
        ("table5-14.6B-p16-m48-cap1", "zb-h1", False),
    ],
)
def test_labels_lie_within_their_boxes(name, baseline, whole):
    pipeline, schedule = bench(name, baseline)
    layout = lay_out(pipeline, schedule, memory_profiles(pipeline, schedule))
    labels = choose_labels(boxes_of(pipeline, schedule), layout, schedule.makespan, strips=whole)
    assert labels is not None
    scale = (layout.right - layout.left) / schedule.makespan
    boxes = {}
    for device, t in schedule:
        for op in members(t.item):
            text = str(op) if whole else str(op.microbatch)
            row = round(layout.lane_top(device) - layout.top)
            boxes[round((t.start + t.end) / 2 * scale, 6), row, text] = (t.end - t.start) * scale
    assert labels.lettering.whole_ops == whole
    assert len(labels.texts) >= 0.9 * len(boxes)
    size = labels.lettering.size
    for text, (x, y) in zip(labels.texts, labels.centres, strict=True):
        row = next(top for top in map(layout.lane_top, range(99)) if top <= y < top + layout.lane)
        needed = 0.75 * size if labels.lettering.turned else text_width(text, size)
        assert needed <= boxes[round(x, 6), row, text]


def test_long_texts_lose_their_middle():
    text = "problem " * 40 + "gap 1 %"
    short = fitted(text, 300, 20)
    assert text_width(short, 20) <= 300
    assert short.startswith("problem")
    assert "…" in short
    assert short.endswith("gap 1 %")
    assert fitted("two\n lines", 300, 20) == "two lines"
    assert fitted("", 0, 20) == ""


def test_ticks_stand_at_round_times():
    assert [round_step(100, most) for most in (100, 99, 50, 20, 10, 9, 1)] == [
        1,
        2,
        2,
        5,
        10,
        20,
        100,
    ]


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
    assert blocks[1:3] == ["device 0  F0 F1 ..", "device 1  .. F0 B0"]
    assert blocks[3] == ""
    assert blocks[5:] == ["device 0  B0 W0 B1 W1", "device 1  F1 B1 W0 W1"]
    uneven = timed("0F0@0-1 0F1@1-1000 0B0@2000-2500", "")
    assert text_grid(problem(), uneven, 60).split("\n") == [
        "us        ops in execution order; [n]: idle for n",
        "device 0  F0 F1 [1000] B0",
        "device 1  [2500]",
    ]


@pytest.mark.parametrize("width", [40, 80, 120, 300])
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


def test_importing_the_package_does_not_import_matplotlib():
    code = (
        "import sys, json, pipesat.picture.gantt, pipesat.picture.grid, pipesat.export;"
        "print(json.dumps([name for name in ('matplotlib', 'numpy') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []


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
    texts = gantt_svg(problem, schedule, title="copies").decode()
    assert texts.count("#8c564b") > 1  # the bar beside the legend's sample
    plain = gantt_svg(problem, Schedule(schedule.devices), title="copies").decode()
    for word in ("mode to the host", "O copy out", "L copy back"):
        assert word in texts
    assert "O copy out" not in plain


def classes_of(*work: tuple[str, int]) -> Problem:
    """One stage of F 1, B 1, W 0, and one microbatch of each class, so many times as long."""
    classes = [{"name": name, "count": 1, "time": [times, 1]} for name, times in work]
    stage = {"device": 0, "F": 1, "B": 1, "W": 0}
    document = {"format": FORMAT, "devices": [{}], "stages": [stage], "microbatches": classes}
    return parse_problem(document)


def test_the_class_of_most_work_has_the_full_colours_and_less_is_lighter() -> None:
    tints = class_tints(classes_of(("b", 2), ("long", 9), ("a", 2), ("tiny", 1)))
    assert tints is not None
    # three amounts of work, so the shades are 0, the middle (3.5, to even) and the last
    assert tints.of_class == ((4, 0, 4, 7),)
    assert tints.names == {0: ["long"], 4: ["b", "a"], 7: ["tiny"]}
    assert fill_text("F", 0) == FILL["F"]
    brightness = [sum(fill("W", tint)) for tint in range(TINTS)]
    assert brightness == sorted(brightness)
    assert class_tints(problem()) is None


def test_classes_are_in_the_legend_and_shown_where_the_mouse_points_in_an_svg() -> None:
    pipeline = classes_of(("long", 2), ("a<b\x00", 1))
    schedule = BASELINES["list-scheduling"](pipeline)
    (boxes,) = boxes_of(pipeline, schedule)
    assert boxes.tint.tolist() == [(0, 7)[m] for m in boxes.microbatch.tolist()]
    layout = lay_out(pipeline, schedule, memory_profiles(pipeline, schedule))
    entries = [entry.text for entry in entries_of(pipeline, [boxes], layout, None)]
    assert [text for text in entries if "class" in text] == ["class long", "class a<b\x00"]
    drawn = ET.fromstring(gantt_svg(pipeline, schedule, title="classes"))
    titles = {title.text for title in drawn.iter("{http://www.w3.org/2000/svg}title")}
    assert {"F forward, class long", "F forward, class a<b?"} <= titles
