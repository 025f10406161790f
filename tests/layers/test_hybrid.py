"""Hybrid models: Megatron-LM's pattern of a split, and a split of a pattern."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.layers.layer import FORMAT, Layers
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.megatron import cut_pattern, layout_option, partition_of_pattern
from tests.conftest import Run
from tests.support.outcomes import one_bad_line

COSTS = {"F": 2, "B": 2, "W": 2}


def hybrid(blocks: str, *, mtp: tuple[str, ...] = ()) -> Layers:
    """An embedding, a block per word, MTP layers and a head."""
    entries: list[dict[str, Any]] = [{"name": "embedding", "role": "embedding"}]
    entries += [{"hybrid": symbols} for symbols in blocks.split()]
    entries += [{"hybrid": symbols, "role": "mtp"} for symbols in mtp]
    entries.append({"name": "head", "role": "head"})
    return parse_layers({"format": FORMAT, "layers": [COSTS | entry for entry in entries]})


@pytest.mark.parametrize(
    ("blocks", "mtp", "cuts", "pattern"),
    [  # by hand: embedding is layer 0, so a cut before layer k is one after k - 1 blocks
        ("M M * M", (), (3,), "MM|*M"),
        ("M- M- * M", (), (2, 4), "M-|M-*|M"),
        ("G E + E", ("+E", "+E"), (3,), "GE|+E/+E/+E"),
        ("D D D D", (), (1, 2, 3), "|D|D|DD"),
        ("M M", (), (3,), "MM|"),
    ],
)
def test_a_split_and_its_pattern(
    blocks: str, mtp: tuple[str, ...], cuts: tuple[int, ...], pattern: str
) -> None:
    layers = hybrid(blocks, mtp=mtp)
    ends = [0, *cuts, len(layers)]
    partition = tuple(range(a, b) for a, b in pairwise(ends))
    option = layout_option(layers, partition, 1)
    assert shlex.split(option) == [f"--hybrid-layer-pattern={pattern}"]
    assert partition_of_pattern(pattern, layers) == partition
    assert parse_layers(layers.document()) == layers


def test_mtp_layers_lie_on_the_last_stage_and_are_alike() -> None:
    layers = hybrid("M M", mtp=("M",))
    with pytest.raises(NotApplicable, match="MTP layers on the last stage alone"):
        layout_option(layers, (range(4), range(4, 5)), 2)
    with pytest.raises(NotApplicable, match="all alike"):
        layout_option(hybrid("M M", mtp=("M", "*")), (range(6),), 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("M-|*M", "expected the layers M-M-, parted by"),
        ("M|-M-", "stands inside a layer, after symbol 1"),
        ("Mx|M-", "expected M G"),
        ("M-|M-/E/M", "equal MTP layers"),
        ("M-|M-/", "expected M G"),
        ("M-|*D", "Megatron-LM has no model with both"),  # megatron-core 0.19.2 refuses it
    ],
)
def test_a_wrong_pattern_is_refused_in_a_line(text: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected.replace("|", r"\|")) as error:
        partition_of_pattern(text, hybrid("M- M-"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("entries", "value"),
    [
        ([{"hybrid": "M"}, {}], "expected symbols of every block and mtp layer"),
        ([{"hybrid": "M"}, {"hybrid": "M", "role": "head"}], "and of no other one"),
        ([{"hybrid": "M|"}], "got 'M|', expected symbols of Megatron-LM's hybrid layers"),
    ],
)
def test_symbols_are_of_all_layers_or_none(entries: list[dict[str, Any]], value: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_layers({"format": FORMAT, "layers": [COSTS | entry for entry in entries]})
    assert value in str(error.value)


def test_a_pattern_cut_by_symbols_per_stage() -> None:
    assert cut_pattern("MM*M", 2, (1, 3)) == "M|M*M"
    assert cut_pattern("MM*M/M/M", 2, (3, 1)) == "MM*|M/M/M"
    assert cut_pattern("M|M*M", 2, None) == "M|M*M"
    for wrong, counts in (("MM", None), ("MM*M", (1, 1)), ("M|M|M", (1, 2))):
        with pytest.raises(BadInput, match="pattern"):
            cut_pattern(wrong, 2, counts)


@pytest.mark.slow
def test_plan_and_advise_say_the_pattern(cli: Run, tmp_path: Path, monkeypatch: Any) -> None:
    """Six equal blocks on two devices: three and three, whatever they are of."""
    monkeypatch.chdir(tmp_path)
    hybrid("M E M * E M").write("layers.json")
    words = ("layers.json", "--devices", 2, "--microbatches", 2, "--time-limit", 0.5)
    given = cli("plan", *words, "--layout", "ME|M*EM", "-o", "plan")
    assert (given.code, "layout ME|M*EM" in given.out) == (0, True)
    assert Path("plan/layout.txt").read_text() == "MEM|*EM\n"
    one_bad_line(cli("plan", *words, "--layout", "ME|MEM"), "expected the layers MEM*EM")
    assert cli("advise", *words, "--memory", 9, "--for", "megatron", "-o", "advice").code == 0
    said = Path("advice/megatron.txt").read_text()
    found = re.search(r"--hybrid-layer-pattern='(.*)'", said)
    assert found is not None
    assert found[1].replace("|", "") == "MEM*EM"
    assert "pipeline-model-parallel-layout" not in said
