"""Layout strings, both ways; every error points at the character."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.layers.layer import FORMAT, Layers
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.layout import (
    SYMBOLS,
    MegatronLayout,
    layout_of_module_names,
    layout_of_partition,
    parse_layout,
    partition_of_layout,
    partition_of_names,
)
from pipesat.layers.megatron import layout_text_of
from pipesat.problem.partition import partition_of
from pipesat.runtimes.options import module_names


def model(blocks: int, *, ends: bool = True, mtp: int = 0) -> Layers:
    def entry(role: str, **more: Any) -> dict[str, Any]:
        return {"F": 1, "B": 1, "W": 1, "role": role} | more

    entries = [entry("block", name="block", repeat=blocks)]
    if mtp:
        entries.append(entry("mtp", name="mtp", repeat=mtp))
    if ends:
        entries = [entry("embedding"), *entries, entry("head", name="head")]
    return parse_layers({"format": FORMAT, "layers": entries})


# Reading


def test_megatrons_own_example() -> None:
    # DeepSeek-V3, 61 layers and an MTP layer on 16 ranks with 2 virtual stages (its documentation)
    layout = parse_layout("Et*3|(tt|)*29,m|L", devices=16)
    assert layout.stages == ("Ettt", *["tt"] * 29, "m", "L")
    assert layout.counts == (3, *[2] * 29, 0, 0)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("EtL", ["EtL"]),
        ("E||t|L", ["E", "", "t", "L"]),
        ("E,t,t,|,t*2,L", ["Ett", "ttL"]),
        ("Et*1|t*2,L", ["Et", "ttL"]),
        ("E(t*2|)*3L", ["Ett", "tt", "tt", "L"]),
        ("E(|t)*2L", ["E", "t", "tL"]),
        ("Et|*3L", ["Et", "", "", "L"]),
        ("E(t|t)*2L", ["Et", "tt", "tL"]),
        ("Etm*2L", ["EtmmL"]),
        ("Ett*0|t(t|)*0L", ["Et", "tL"]),  # none of it, as Megatron reads it
    ],
)
def test_what_a_string_says(text: str, stages: list[str]) -> None:
    assert list(parse_layout(text).stages) == stages


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Ett|tx|L", 6),
        ("ett|tL", 1),
        ("Et |tL", 3),
        ("Et*|tL", 2),
        ("Et*x|tL", 2),
        ("Et*999999999999|tL", 2),
        ("Et*1,2L", 6),  # Megatron reads 12 here
        ("Et*2*3L", 2),
        ("*3EtL", 1),
        ("E(tt|L", 2),
        ("Ett)|L", 4),
        ("E(tt|)L", 2),
        ("E()*2L", 2),
        ("E((t|)*2t)*2L", 2),
        ("Et\u0665L", 3),
    ],
)
def test_errors_point_at_the_character(text: str, place: int) -> None:
    with pytest.raises(BadInput) as info:
        parse_layout(text)
    assert info.value.where == f"character {place} of {text!r}"
    assert info.value.value == text[place - 1]


@pytest.mark.parametrize(
    "text", ["Et|Et|L", "EtL|tL", "tE|tL", "Et|Lt", "Em|tL", "Ett|t", "", "||"]
)
def test_layers_come_in_one_order(text: str) -> None:
    with pytest.raises(BadInput, match=r"expected E .embedding. first, every t .*, E and L once"):
        parse_layout(text)


@pytest.mark.parametrize(
    ("text", "devices", "message"),
    [
        # all layers in order, and Megatron builds the head on the last stage all the same
        ("Et|tL|", None, r"expected L .loss. on the last stage: Megatron-LM builds it there"),
        ("|Et|tL", None, r"expected E .embedding. on the first stage: Megatron-LM builds it"),
        ("Et*90000t*90000L", None, "more than 100000 layers"),
        ("E(t*999|)*99999L", None, "more than 100000 layers"),
        ("Et|m|mL", None, "MTP layers on stages 1, 2, expected all on one"),
        ("Et|t|tL", 2, "3 stages, expected a multiple of 2, the ranks"),
        ("Et|m||L", 2, "MTP layers on stages 1, expected all on one, from stage 2 on"),
    ],
)
def test_what_megatron_refuses(text: str, devices: int | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_layout(text, devices=devices)


# Both ways


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(0, 4))
def test_what_is_written_reads_back(counts: list[int], mtp: int) -> None:
    stages = ["t" * count for count in counts]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp + "L"
    layout = MegatronLayout(tuple(stages))
    assert parse_layout(layout.text) == layout
    layers = model(sum(counts), mtp=mtp) if sum(counts) else None
    if layers is not None:
        parts = partition_of_layout(layout, layers)
        assert layout_of_partition(layers, parts) == layout
        assert [len(part) for part in parts] == [len(stage) for stage in stages]


def test_reading_and_writing_keeps_the_shortest_form() -> None:
    for text in ("Et*3|t*4|ttL", "E||t|L", "EtmmL", "Et*12m*3L"):
        assert parse_layout(text).text == text
    assert parse_layout("E,t,t,t|(t|)*2L").text == "Et*3|t|t|L"


def test_a_model_without_ends_of_its_own() -> None:
    # embedding and head are in the costs of the first and the last block
    parts = partition_of_layout(parse_layout("Et*3|tt|L"), model(5, ends=False))
    assert parts == (range(3), range(3, 5), range(5, 5))
    assert layout_of_partition(model(5, ends=False), parts).text == "Et*3|tt|L"
    with_ends = partition_of_layout(parse_layout("E|t*5L"), model(5))
    assert with_ends == (range(1), range(1, 7))


@pytest.mark.parametrize(
    ("layout", "has"),
    [
        (parse_layout("Ett|ttL"), r"Et\*4L"),
        (parse_layout("Et*3|t*3L"), r"Et\*6L"),
        (MegatronLayout(("tE", "t*4L")), "tEt"),
    ],
)
def test_a_layout_of_another_model_is_refused(layout: MegatronLayout, has: str) -> None:
    with pytest.raises(BadInput, match=rf"it has the layers {has}.*, the model has Et\*5L"):
        partition_of_layout(layout, model(5))


@pytest.mark.parametrize(
    ("roles", "without"),
    [  # by hand: E once and first, L once and last, m after t
        ("Ettm L", None),
        ("tt", None),
        ("ttEtL", 0),
        ("EEtL", 1),
        ("EtLL", 3),
        ("EtmtL", 3),
        ("EtLt", 3),
    ],
)
def test_a_layer_without_a_letter_is_named(roles: str, without: int | None) -> None:
    names = {symbol: role for role, symbol in SYMBOLS.items()}
    found = [
        {"F": 1, "B": 1, "W": 1, "role": names[s], "name": f"part {n}"}
        for n, s in enumerate(roles.replace(" ", ""))
    ]
    layers = parse_layers({"format": FORMAT, "layers": found})
    if without is None:
        layout_text_of(layers, (range(len(layers)),), 1)
        return
    with pytest.raises(NotApplicable, match=rf"layer {without} \(part {without}\) has no letter"):
        layout_text_of(layers, (range(len(layers)),), 1)


def test_what_megatron_would_cut_otherwise_is_not_written() -> None:
    """MTP layers apart, or not on the last virtual stage of a rank; fewer stages than ranks."""
    layers = model(2, mtp=2)  # E t t m m L
    for ends, devices, said in (
        ((0, 4, 6), 2, "MTP layers on stages 0, 1, expected all on one"),
        ((0, 5, 6, 6, 6), 2, "expected L .loss. on the last stage"),
        ((0, 3, 6), 4, "2 stages, expected a multiple of 4"),
    ):
        with pytest.raises(NotApplicable, match=rf"Megatron-LM refuses its layout: .*{said}"):
            layout_text_of(layers, partition_of(ends), devices)
    assert layout_text_of(layers, partition_of((0, 3, 6)), 2) == "Ett|mmL"


@pytest.mark.parametrize("names", [[["a.b"], ["c", "d"]], [["a.b", "c", "d"]]])
def test_the_layers_own_names_read_back(names: list[list[str]]) -> None:
    found = [{"F": 1, "B": 1, "W": 1, "name": name} for name in ("a.b", "c", "d")]
    layers = parse_layers({"format": FORMAT, "layers": found})
    assert [len(part) for part in partition_of_names(names, layers)] == [*map(len, names)]


# Other frameworks


@pytest.mark.parametrize("counts", [(2, 3, 1), (0, 4, 0), (1,)])
def test_module_names_read_back(counts: tuple[int, ...]) -> None:
    titan = module_names(
        counts, first=["tok_embeddings"], layer="layers", last=["norm", "output"], every=[]
    )
    nemo = module_names(
        counts,
        first=["model.embed_tokens"],
        layer="model.layers",
        last=["model.norm", "lm_head"],
        every=["model.rotary_emb"],
    )
    for names in (titan, nemo):
        layout = layout_of_module_names(names)
        assert layout.counts == counts
        assert layout.stages[0][0] + layout.stages[-1][-1] == "EL"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("layers.0", "expected a list of lists"),
        ([], "expected a list of lists"),
        (["layers.0"], r"\[0\]: got 'layers.0', expected a list of names"),
        (
            [["tok_embeddings", "layers.0"], ["layers.2", "output"]],
            r"\[1\]\[0\]: got 'layers.2', expected layer 1 next",
        ),
        (
            [["tok_embeddings", "layers.0"], ["layers.0", "output"]],
            r"\[1\]\[0\]: got 'layers.0', expected layer 1 next",
        ),
        (
            [["tok_embeddings", "layer.0"], ["output"]],
            r"\[0\]\[1\]: got 'layer.0', expected one of layers.N",
        ),
        ([["tok_embeddings", 7], ["output"]], r"\[0\]\[1\]: got 7, expected one of"),
        (
            [["tok_embeddings"], ["embed_tokens", "output"]],
            r"got 'E\|EL', expected E .embedding. first",
        ),
        ([["layers.0"], ["output"]], r"got 't\|L', expected E"),
        ([["tok_embeddings", "layers.0"]], "got 'Et', expected E"),
        ([["layers.0", "tok_embeddings"], ["output"]], r"got 'tE\|L', expected E"),
    ],
)
def test_module_names_that_do_not_do(names: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        layout_of_module_names(names)
