"""Routes as graphs, slices and stages of F alone: the oracle's rules and optima, by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.oracle.exact import Undecided, optimum, solve
from tests.oracle.generator import GRAPHS, of_family
from tests.oracle.reading import Document, Pipe
from tests.oracle.rules import Timed, broken_rules
from tests.oracle.trying import Trying
from tests.support.paths import ROOT

PROBLEMS = ROOT / "bench" / "graphs" / "problems"


def stage(device: int, *times: int, **more: Any) -> Document:
    """F and BW; with F alone, a stage without a backward."""
    f, b = (*times, 0)[:2]
    backward = "fused" if len(times) == 2 else "none"
    return {"device": device, "F": f, "B": b, "W": 0, "backward": backward} | more


def piped(stages: list[Document], route: Document, **more: Any) -> Document:
    devices: list[Document] = [{} for _ in {stage["device"] for stage in stages}]
    route = {"stages": [*range(len(stages))], "microbatches": 1} | route
    return {"devices": devices, "stages": stages, "routes": [route], **more}


def edge(src: int, dst: int, f: int, b: int = 0) -> Document:
    return {"src": src, "dst": dst, "F": f, "B": b}


def wrong(document: Document, rows: Sequence[str]) -> set[str]:
    """Names of the rules that rows of ops break, each op as soon as its device is free."""
    pipe, timed = Pipe(document), []
    for row in rows:
        timed.append([])
        for text in row.split():
            (slot,) = Timed(pipe, [[(text, 0, 0)]]).rows[0]
            alone = [pipe.modes[op[::2]]["keep"] for op in slot.ops]
            own = alone[0].time[slot.ops[0].kind]
            length = pipe.together(*slot.ops, *alone) if len(alone) == 2 else own
            begin = timed[-1][-1][2] if timed[-1] else 0
            timed[-1].append((text, begin, begin + (length or 0)))
    return {what.partition(":")[0] for what in broken_rules(Timed(pipe, timed))}


def test_a_stage_waits_for_all_that_feed_it_and_all_that_it_feeds() -> None:
    """Encoders of 2 and 3, ways of 1 and 4, then 1 + 1: the F at 7, the end at 9, the span 3.

    A skip connection of a line of three: the last F at 1 + 5, its backward ends at 8, that of the
    first begins 7 later. With two last stages, each one's backward waits for its own F alone.
    """
    ways = {"edges": [edge(0, 2, 1), edge(1, 2, 4)]}
    encoders = [stage(0, 2), stage(1, 3), stage(2, 1, 1)]
    fed = piped(encoders, {"edges": [[0, 2], [1, 2]]}, comm=ways)
    assert (optimum(fed), optimum(fed, "span")) == (9, 3)
    line = [stage(device, 1, 1) for device in range(3)]
    ways = {"edges": [edge(0, 2, 5, 7)]}
    skip = piped(line, {"edges": [[0, 1], [1, 2], [0, 2]]}, comm=ways)
    assert optimum(skip) == 16
    forked = piped([stage(0, 1, 1), stage(1, 1, 1), stage(2, 5, 3)], {"edges": [[0, 1], [0, 2]]})
    assert optimum(forked) == 1 + 5 + 3 + 1
    rows = ["0F0 0BW0", "1F0 1BW0", "2F0 2BW0"]
    assert wrong(forked, rows) == {"input"}
    timed = [[("0F0", 0, 1), ("0BW0", 9, 10)], [("1F0", 1, 2), ("1BW0", 2, 3)]]
    timed.append([("2F0", 1, 6), ("2BW0", 6, 9)])
    assert broken_rules(Timed(Pipe(forked), timed)) == []
    timed[0][1] = ("0BW0", 3, 4)
    assert len(broken_rules(Timed(Pipe(forked), timed))) == 1


def test_edges_may_cross_and_devices_may_not_wait_in_a_circle() -> None:
    """All at one instant: 3 before 0, 1 before 2, and 1 waits for 0, 3 for 2."""
    stages = [stage(device, 0) for device in (0, 1, 1, 0)]
    document = piped(stages, {"edges": [[0, 1], [2, 3], [1, 3]]})
    assert wrong(document, ["3F0 0F0", "1F0 2F0"]) == {"circle"}
    assert wrong(document, ["0F0 3F0", "1F0 2F0"]) == set()
    assert optimum(document) == 0


def test_a_stage_without_a_backward_holds_its_memory_while_it_runs() -> None:
    """Two stages of one device that hold 2 and 1, room for 2: in turn; 2 + 2 + 3 + 3."""
    stages = [stage(0, 2, held_after_F=2), stage(0, 3, held_after_F=1)]
    document = piped(stages, {"microbatches": 2})
    document["devices"] = [{"memory": 2}]
    assert optimum(document) == optimum(document, "span") == 10
    rows = ["0F0 0F1 1F0 1F1"]
    assert wrong(document, rows) == set()
    assert wrong(document, ["0F0 0F1 0BW0 1F0 1F1"]) == {"count"}
    document["devices"] = [{"memory": 1}]
    assert optimum(document) is None
    assert wrong(document, rows) == {"memory"}
    trained = piped([stage(0, 2), stage(1, 2, 1)], {"microbatches": 2})
    assert optimum(trained) == 2 + 2 + 1 + 2 + 1
    assert optimum(trained, "span") == 2 + 1 + 2 + 1


def four(order: str, **more: Any) -> Document:
    """Two sequences of two slices on one stage; F 1, BW 2."""
    kinds = [{"name": "a", "count": 4}]
    overlap = {"pairs": [{"ops": ["0F", "0F"], "factor": [1, 1]},
                         {"ops": ["0F", "0BW"], "factor": [1, 1]}]}  # fmt: skip
    route = {"microbatches": kinds, "slices": 2}
    return piped([stage(0, 1, 2, **more)], route, order=order, overlap=overlap)


@pytest.mark.parametrize(
    ("row", "broken"),  # under given, same, free; "o": order, "x": waits
    [
        ("0F0 0F1 0F2 0F3 0BW1 0BW0 0BW3 0BW2", "- - -"),
        ("0F2 0F3 0F0 0F1 0BW3 0BW2 0BW1 0BW0", "o - -"),
        ("0F0 0F1 0F2 0F3 0BW3 0BW2 0BW1 0BW0", "o o -"),
        ("0F0 0F2 0F1 0F3 0BW1 0BW0 0BW3 0BW2", "o o -"),
        ("0F0 0F1 0F2 0F3 0BW1 0BW3 0BW0 0BW2", "o o -"),
        ("0F0 0F1 0BW1 0F2 0F3 0BW0 0BW3 0BW2", "- - -"),
        ("0F1 0F0 0F2 0F3 0BW1 0BW0 0BW3 0BW2", "x x x"),
        ("0F0 0F1 0F2 0F3 0BW0 0BW1 0BW3 0BW2", "x x x"),
        ("0F0 0BW0 0F1 0BW1 0F2 0F3 0BW3 0BW2", "x x x"),
        ("0F0 (0F1+0F2) 0F3 0BW1 0BW0 0BW3 0BW2", "- - -"),
        ("(0F0+0F2) 0F1 0F3 0BW1 0BW0 0BW3 0BW2", "o o -"),
        ("(0F0+0F1) 0F2 0F3 0BW1 0BW0 0BW3 0BW2", "x x x"),
        ("0F0 0F1 0F2 (0F3+0BW1) 0BW0 0BW3 0BW2", "- - -"),
        ("0F0 0F1 0F2 (0BW1+0F3) 0BW0 0BW3 0BW2", "- - -"),
        ("0F0 0F1 (0F2+0BW0) 0BW1 0F3 0BW3 0BW2", "x x x"),
        ("0F0 (0F1+0BW0) 0BW1 0F2 0F3 0BW3 0BW2", "x x x"),
    ],
)
def test_sequences_stay_together_and_slices_come_in_turn(row: str, broken: str) -> None:
    """F's ascend in a sequence, backwards descend; a pair counts as in either order."""
    names = {"o": {"order"}, "x": {"input", "circle"}, "-": set()}
    for order, expected in zip(("given", "same", "free"), broken.split(), strict=True):
        assert wrong(four(order), [row]) == names[expected]
    number = four("free")
    del number["order"]
    number["routes"][0]["microbatches"] = 4
    assert bool(wrong(number, [row])) == bool(wrong(four("free"), [row]))


def test_a_sequence_is_held_whole() -> None:
    """Each slice holds 1 from F to BW: a sequence needs 2, whatever the order of its ops."""
    for memory, value in ((1, None), (2, 12)):
        document = four("free", held_after_F=1)
        del document["overlap"]
        document["devices"] = [{"memory": memory}]
        assert optimum(document) == value


def slices(stages: list[Document], factors: Sequence[int], **route: Any) -> Document:
    """Two sequences of two slices, each slice with a factor of its own."""
    kinds = [
        {"name": name, "count": 1, "time": [n, 1]} for name, n in zip("abcd", factors, strict=True)
    ]
    return piped(stages, {"microbatches": kinds, "slices": 2, **route})


LINE = slices([stage(0, 1, 1), stage(1, 1, 2)], (1, 3, 1, 1))
HELD = slices([stage(0, 1, 3, held_after_F=1), stage(1, 3, 3, held_after_F=1)], (1, 1, 2, 1))
HELD["devices"] = [{"memory": 3}, {"memory": 3}]
FED = slices(
    [stage(0, 1), stage(1, 2), stage(2, 3, 1)], (1, 3, 1, 2), edges=[[0, 2], [1, 2]]
)  # fmt: skip


@pytest.mark.parametrize(
    ("document", "values"),
    [(LINE, (22, 21, 20)), (HELD, (37, 35, 34)), (FED, (33, 31, 30))],
    ids=["line", "held", "fed"],
)
def test_given_same_and_free_differ(document: Document, values: tuple[int, ...]) -> None:
    """That of the line is 1 + 18 + 1 under free: before, on and after its last device."""
    found = [solve(document | {"order": order}) for order in ("given", "same", "free")]
    for order, best in zip(("given", "same", "free"), found, strict=True):
        assert best is not None
        assert broken_rules(Timed(Pipe(document | {"order": order}), best.devices)) == []
    assert tuple(best.value for best in found if best) == values


@pytest.mark.parametrize("name", GRAPHS)
def test_the_exact_model_agrees_with_trying_everything(name: str) -> None:
    more: dict[str, Any] = {"modes": ("",), "zeros": (0.0,), "ops": 9, "pairs": ("",)}
    more |= {"memory": ("any", "none", "tight")}
    for seed in range(12):
        document = of_family(name, seed, **more)
        trying = Trying(document)
        if len(trying.ops) > 14:
            continue
        try:
            assert optimum(document, "span", effort=0.5) == trying.optimum("span"), seed
        except Undecided:
            continue


def test_edges_that_state_the_chain_say_nothing() -> None:
    for seed in range(6):
        document = of_family("lists", seed)
        routes = document.get("routes")
        if routes is None:
            routes = [{"stages": [*range(len(document["stages"]))]}]
            routes[0]["microbatches"] = document["microbatches"]
        chained = []
        for route in routes:
            two = zip(route["stages"], route["stages"][1:], strict=False)
            chained.append(route | {"edges": [[*both] for both in two]})
        stated = {key: value for key, value in document.items() if key != "microbatches"}
        assert optimum(stated | {"routes": chained}) == optimum(document)


def test_two_sequences_of_four_slices_by_the_oracle() -> None:
    """The benchmark's problem with whole backwards."""
    text = (PROBLEMS / "slices-p4-m8-n4-fused.json").read_text(encoding="utf-8")
    assert optimum(json.loads(text)) == 3900
