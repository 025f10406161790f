"""Problems from profiles: every expected number is a sum or a product of the profile's own."""

from __future__ import annotations

import copy

import pytest

from pipesat.core.amounts import amount
from pipesat.core.errors import BadInput
from pipesat.layers.profile.costs_file import samples_document
from pipesat.layers.profile.cut import layers_of_stages
from pipesat.layers.profile.profile_file import (
    LINKS_FORMAT,
    LinksModel,
    delay_of,
    parse_profile,
    read_profile,
    write_document,
)
from pipesat.layers.profile.stages_of import problem_of_profile
from pipesat.layers.profile.static import Training
from tests.support.profiles import ACTIVATION, MIB, TOKENS, costs, document, tensor, times, weights


def derived(profile=None, **options):
    old = Training(receive="2.13")  # receive buffers of all microbatches
    options = {"devices": 2, "microbatches": 4, "training": old} | options
    return problem_of_profile(parse_profile(profile or document()), **options)


def stage_of(number, profile=None, **options):
    return derived(profile, **options).problem.document["stages"][number]


# Times and held memory


def test_a_chain_of_sums() -> None:
    # stage 0: embedding and a block; its backward is torch's W alone. Stage 1: a block and the head
    assert derived(comm=7).problem.document == {
        "format": "pipesat.problem/1",
        "name": "by hand",
        "time_unit": "us",
        "memory_unit": "MiB",
        "microbatches": 4,
        "devices": [{"static": static_of_chain(0)}, {"static": static_of_chain(1)}],
        "stages": [
            {
                "device": 0,
                "F": 3000,
                "B": 0,
                "W": 6800,
                "BW": 6800,
                "held_after_F": 1100,
                "held_after_B": 0,
                "backward": "fused",
            },
            {
                "device": 1,
                "F": 6000,
                "B": 5500,
                "W": 3500,
                "BW": 8400,
                "held_after_F": 1300,
                "held_after_B": 1400,
            },
        ],
        "comm": {"default": 7},
    }


def static_of_chain(device):
    """MiB: weights, gradients and two states of AdamW; buffers of 4 microbatches; a transient."""
    if device == 0:  # 140 MiB of weights; output sent and its gradient back; BW of the block: 30
        return 4 * 140 + 4 * (1 + 2 * 256) + 30
    # 150 MiB of weights; input, input gradient (B runs alone) and targets; B of the head: 90
    return 4 * 150 + 4 * (256 + 256 + 1) + 90


def test_a_stage_that_was_measured_as_a_whole_counts_as_measured() -> None:
    whole = costs(5000.0, 5000.0, 3000.0, 8000.0, 1200, 1300, 150)
    profile = document(stages=[{"layers": [2, 4], "costs": whole}])
    assert stage_of(1, profile)["F"] == 5000
    assert stage_of(0, profile)["F"] == 3000  # that slice was not measured
    assert derived(profile).remarks[0].startswith("1 of 2 stages are sums of their layers")
    assert stage_of(2, profile, devices=4)["F"] == 2000  # neither is a layer the slice


def with_modes():
    """Every layer keeps 256 MiB in both modes; the head's loss keeps 4 MiB more when recomputed."""
    profile = document(options={"samples": 1, "warmup": 0, "modes": True})
    for kind, bw, peak in (("embedding", 3500, 310), ("block", 5000, 840), ("head", 8000, 570)):
        layer = profile["kinds"][kind]
        held = 256 + 4 * (kind == "head")
        layer["recompute"] = {
            "BW": times(bw),
            "held_after_F": held * MIB,
            "peak_in_backward": peak * MIB,
        }
        layer["offload"] = {"bytes": layer["held_after_F"] - 256 * MIB, "held": 256 * MIB}
    return profile


def test_modes_are_sums_of_layers() -> None:
    # stage 0: embedding and block save 1100, of which the block's 256 stay. The largest transient
    # of the device is 30, the block's in BW. In recompute the backward holds all 1100 again, and
    # up to 30 on top of it, which static memory has already.
    made = derived(with_modes(), copy_bandwidth=422 * MIB)
    assert made.problem.document["stages"][0]["modes"] == [
        {
            "name": "recompute",
            "backward": "fused",
            "BW": 8500,
            "held_after_F": 256,
            "held_in_backward": 1100,
        },
        {"name": "offload", "offload": {"out": 2_000_000, "in": 2_000_000, "held": 256}},
    ]
    # stage 1: block and head save 1300; static memory has the head's 90 of a split backward, its
    # largest transient in BW is 60
    recompute, offload = made.problem.document["stages"][1]["modes"]
    assert (recompute["held_after_F"], recompute["held_in_backward"]) == (260, 1300 + 60 - 90)
    assert offload["offload"]["held"] == 256
    assert [device.copy_channels for device in made.problem.devices] == [2, 2]


def test_modes_with_inputs_that_are_held_as_needed() -> None:
    held = {"training": Training(receive="held"), "copy_bandwidth": 422 * MIB}
    first, second = derived(with_modes(), **held).problem.document["stages"]
    assert first["modes"][0]["held_after_F"] == 256  # tokens are there anyway
    # the block's input, 256 MiB, stays in every mode
    recompute, offload = second["modes"]
    assert recompute["held_after_F"] == 260 + 256
    assert offload["offload"]["held"] == 256 + 256


def test_offload_needs_a_bandwidth() -> None:
    made = derived(with_modes())
    assert [mode["name"] for mode in made.problem.document["stages"][0]["modes"]] == ["recompute"]
    assert "copy_channels" not in made.problem.document["devices"][0]
    assert any("no offload mode" in remark for remark in made.remarks)
    measured = with_modes() | {
        "copies": {"bytes": 422 * MIB, "out": times(1e6), "back": times(2e6)}
    }
    offload = derived(measured, copy_channels=1).problem.document["stages"][0]["modes"][1][
        "offload"
    ]
    assert (offload["out"], offload["in"]) == (2_000_000, 4_000_000)
    assert derived(measured, copy_channels=1).problem.document["devices"][0]["copy_channels"] == 1
    given = derived(measured, copy_bandwidth=844 * MIB).problem.document["stages"][0]["modes"][1]
    assert given["offload"]["out"] == 1_000_000


def test_modes_that_are_wanted() -> None:
    bandwidth = {"copy_bandwidth": 422 * MIB}
    assert "modes" not in stage_of(0, with_modes(), modes=(), **bandwidth)
    (only,) = stage_of(0, with_modes(), modes=("offload",), **bandwidth)["modes"]
    assert only["name"] == "offload"
    with pytest.raises(BadInput, match="the profile has no memory modes"):
        derived(modes=("recompute",))


def test_modes_that_recompute_between_b_and_w() -> None:
    """W longer by F, or by F and B; what is left, and static memory for what W then takes."""
    profile = with_modes()
    for kind, gradients in (("block", 500), ("head", 100)):
        profile["kinds"][kind]["recompute"]["gradients"] = gradients * MIB
    wanted = {"modes": ("recompute", "drop after B", "keep the input only")}
    held = derived(profile, **wanted, training=Training(receive="held"))
    first, second = held.problem.document["stages"]
    assert [mode["name"] for mode in first["modes"]] == ["recompute"]  # it cannot be split
    recompute, drop, keep = second["modes"]
    assert drop == {
        "name": "drop after B",
        "backward": "split",
        "W": 3500 + 6000,
        "held_after_B": 500 + 100 + 256,  # gradients and the stage's input
    }
    assert keep == {
        "name": "keep the input only",
        "backward": "split",
        "W": 3500 + 6000 + 5500,
        "held_after_B": 256,  # the last stage's output has no gradient from elsewhere
    }
    # F and B again: 1400 after B, and up to 90 within it; so the recomputed backward's peak is less
    assert (held.static[0].transient, held.static[1].transient) == (30 * MIB, 1490 * MIB)
    assert recompute["held_in_backward"] == 260 + 256
    for receive, of_input in (("2.13", 0), ("2.15", 256)):
        given = {"training": Training(receive=receive), "modes": ("drop after B",)}
        (only,) = derived(profile, **given).problem.document["stages"][1]["modes"]
        assert only["held_after_B"] == 500 + 100 + of_input
    assert "modes" not in stage_of(1, with_modes(), modes=("drop after B",))  # not measured so
    assert "drop after B" not in str(derived(profile).problem.document)


def test_the_statistic() -> None:
    assert [stage_of(1, statistic=s)["F"] for s in ("low", "median", "high")] == [3000, 6000, 12000]


def test_placements() -> None:
    homes = {
        placement: [
            s["device"]
            for s in derived(document(6), placement=placement).problem.document["stages"]
        ]
        for placement in ("chain", "loop", "vee")
    }
    assert homes == {"chain": [0, 1], "loop": [0, 1, 0, 1], "vee": [0, 1, 1, 0]}
    assert len(derived(document(6), placement="loop", chunks=4).problem.document["stages"]) == 8


def test_static_memory_of_a_vee_is_of_both_stages() -> None:
    static = derived(placement="vee").static[0]  # embedding and head
    assert static.weights == static.gradients == 90 * MIB
    assert static.optimizer == 180 * MIB
    assert static.transient == 90 * MIB  # the larger one, not both
    # embedding: tokens, output and its gradient; head: input, its gradient, targets
    assert static.receive == 4 * (TOKENS + 2 * ACTIVATION + 2 * ACTIVATION + TOKENS)


def test_balanced_cuts_are_those_of_the_partition() -> None:
    # F + BW: 4000, 5800, 5800 and, with a longer head, 18600; the best cut is 15600 | 18600
    profile = document()
    profile["kinds"]["head"]["F"] = times(14000.0)
    assert layers_of_stages(parse_profile(profile), 2, "balanced") == (range(3), range(3, 4))
    assert stage_of(0, profile, split="balanced")["F"] == 5000
    assert stage_of(0, profile)["F"] == 3000


# Fused or not


def block_with(**changed):
    profile = document(4)
    for kind, value in changed.items():
        profile["kinds"]["block"][kind] = times(value)
    return profile


@pytest.mark.parametrize(
    ("changed", "fused"),
    [
        ({"B": 2500.0, "W": 1500.0, "BW": 3800.0}, ""),
        ({"B": 2500.0, "W": 3201.0, "BW": 3800.0}, "B + W takes 1.50 times as long as BW"),
        ({"B": 2500.0, "W": 3199.0, "BW": 3800.0}, ""),
        ({"B": 3610.0, "W": 1.0, "BW": 3800.0}, "B takes 0.95 of BW"),
        ({"B": 3609.0, "W": 1.0, "BW": 3800.0}, ""),
    ],
)
def test_fused_where_splitting_does_not_pay(changed, fused) -> None:
    result = derived(block_with(**changed), devices=6)
    assert result.fused[1].startswith(fused)
    assert bool(result.fused[1]) == bool(fused)
    assert result.problem.document["stages"][1].get("backward", "either") == (
        "fused" if fused else "either"
    )


def test_the_limit_and_the_choice() -> None:
    slow = block_with(W=5000.0)
    assert "backward" not in stage_of(1, slow, devices=6, split_limit=2.0)
    assert stage_of(1, slow, devices=6)["backward"] == "fused"
    assert "backward" not in stage_of(1, slow, devices=6, backward="either")
    assert stage_of(1, slow, devices=6, backward="split")["backward"] == "split"
    assert stage_of(1, devices=4, backward="fused")["backward"] == "fused"
    assert stage_of(0, devices=4, backward="split")["backward"] == "fused"  # torch cannot


# Static memory


@pytest.mark.parametrize(
    ("training", "gradients", "optimizer"),
    [
        ({"optimizer": "none"}, 150, 0),
        ({"optimizer": "sgd"}, 150, 0),
        ({"optimizer": "sgd-momentum"}, 150, 150),
        ({"optimizer": "adamw-amsgrad"}, 150, 450),
        ({"optimizer": "adamw", "grad_dtype": "bfloat16"}, 75, 300),
        ({"optimizer": "adamw", "state_dtype": "bfloat16"}, 150, 150),
        ({"optimizer": "adamw", "master_dtype": "float64"}, 150, 600),
    ],
)
def test_gradients_and_optimizer(training, gradients, optimizer) -> None:
    static = derived(training=Training(**training)).static[1]
    assert (static.gradients, static.optimizer) == (gradients * MIB, optimizer * MIB)
    assert static.weights == 150 * MIB


def test_frozen_weights_have_neither_gradients_nor_states() -> None:
    profile = document()
    profile["kinds"]["block"]["parameters"] = [weights(60, trainable=False), weights(40)]
    static = derived(profile).static[1]
    assert (static.weights, static.gradients, static.optimizer) == (150 * MIB, 90 * MIB, 180 * MIB)


def test_buffers_that_are_held_as_needed() -> None:
    result = derived(training=Training(receive="held", reserve=3 * MIB))
    first, last = result.problem.document["stages"]
    # the first stage's input is part of the batch; the last one's is held from F to its backward
    assert (first["held_after_F"], last["held_after_F"], last["held_after_B"]) == (
        1100,
        1300 + 256,
        1400 + 256,
    )
    assert [static.receive for static in result.static] == [4 * TOKENS + ACTIVATION, 4 * TOKENS]
    assert [static.reserve for static in result.static] == [3 * MIB] * 2


def test_buffers_of_a_torch_that_makes_them_before_a_receive() -> None:
    """Held as with held; what was sent waits for the end, and losses keep the last one's inputs."""
    result = derived(training=Training(receive="2.15"))
    held = derived(training=Training(receive="held"))
    assert result.problem.document["stages"] == held.problem.document["stages"]
    assert [static.receive for static in result.static] == [
        4 * TOKENS + ACTIVATION,
        4 * TOKENS + 4 * 2 * ACTIVATION + ACTIVATION,
    ]
    assert derived(training=Training()).problem.document == result.problem.document


def test_input_gradients_are_kept_until_a_step_ends() -> None:
    # of a split backward torch keeps them; of a whole one, the sends that wait for the step's end
    split, fused = (derived(backward=b).static[1].receive for b in ("either", "fused"))
    assert split == fused == 4 * (2 * ACTIVATION + TOKENS)


TIED = [{"name": "words", "layers": [0, 3], "parameter": weights(40)}]


def test_tied_weights_on_one_device_count_once() -> None:
    untied = derived(placement="vee").static[0]
    tied = derived(document(tied=TIED), placement="vee")
    assert untied.weights - tied.static[0].weights == 40 * MIB
    assert untied.gradients - tied.static[0].gradients == 40 * MIB
    assert untied.optimizer - tied.static[0].optimizer == 80 * MIB
    assert not any("shared" in remark for remark in tied.remarks)


def test_tied_weights_on_two_devices_are_two_copies_and_said_so() -> None:
    tied, untied = derived(document(tied=TIED)), derived()
    assert tied.static == untied.static
    assert any("words is shared by layers on devices 0, 1" in remark for remark in tied.remarks)


def test_layers_that_share_a_weight_are_split_together_only_as_measured() -> None:
    shared = [TIED[0] | {"layers": [2, 3]}]
    apart, together = derived(document(tied=shared), devices=4), derived(document(tied=shared))
    assert apart.problem.stages[2].backward == derived(devices=4).problem.stages[2].backward
    assert (together.problem.stages[1].backward, derived().problem.stages[1].backward) == (
        "fused",
        "either",
    )
    assert "layers 2 and 3 share words" in together.fused[1]


# Units and capacities


def test_units_fit_the_numbers() -> None:
    small = document()
    for kind in small["kinds"].values():
        for op in ("F", "B", "W", "BW"):
            if op in kind:
                kind[op] = times(kind[op]["median"] / 100)
        for held in ("held_after_F", "held_after_B"):
            if held in kind:
                kind[held] //= 1024
    result = derived(small).problem.document
    assert (result["time_unit"], result["memory_unit"]) == ("ns", "KiB")
    assert result["stages"][1]["F"] == 60_000
    assert result["stages"][1]["held_after_F"] == 1300


def test_capacities() -> None:
    assert (
        derived(memory=5 * MIB + 1).problem.document["devices"][0]["memory"] == 5
    )  # never rounded up
    result = derived(memory=[8 << 30, None]).problem.document["devices"]
    assert [device.get("memory") for device in result] == [8192, None]
    with pytest.raises(BadInput, match="memory: 3 values, expected 2"):
        derived(memory=[1, 2, 3])


@pytest.mark.parametrize(
    ("text", "size"),
    [("40GiB", 40 << 30), ("1.5 KiB", 1536), ("2kb", 2000), ("80GB", 80 * 10**9), ("7B", 7)],
)
def test_amounts(text, size) -> None:
    assert amount("--memory", text) == size


@pytest.mark.parametrize("text", ["40", "GiB", "-1GiB", "1e3GiB", "nan GiB", ""])
def test_what_is_no_amount(text) -> None:
    with pytest.raises(BadInput, match=r"--memory: got .*, expected an amount with its unit"):
        amount("--memory", text)


# Delays


def links(*pairs):
    sizes = [{"bytes": size, "delay": times(delay)} for size, delay in pairs]
    return {
        "format": LINKS_FORMAT,
        "backend": "gloo",
        "torch": "2.13",
        "device_name": "cpu",
        "sizes": sizes,
    }


@pytest.mark.parametrize(
    ("size", "delay"),
    [(0, 10.0), (100, 10.0), (150, 15.0), (200, 20.0), (300, 50.0), (400, 80.0), (500, 110.0)],
)
def test_delays_lie_on_the_lines_between_measured_sizes(size, delay) -> None:
    model = LinksModel.model_validate(links((200, 20.0), (100, 10.0), (400, 80.0)))
    assert delay_of(model, size) == pytest.approx(delay)


def test_one_measured_size_goes_on_in_proportion() -> None:
    assert delay_of(LinksModel.model_validate(links((100, 10.0))), 300) == pytest.approx(30.0)


def test_measured_delays_reach_the_problem() -> None:
    profile = document()
    profile["kinds"]["block"]["output"] = tensor(2 * ACTIVATION)
    measured = LinksModel.model_validate(links((ACTIVATION, 100.0), (2 * ACTIVATION, 180.0)))
    comm = derived(profile, devices=4, links=measured).problem.document["comm"]
    assert comm == {
        "default": 180,
        "edges": [
            {"src": 0, "dst": 1, "F": 100, "B": 100},
            {"src": 1, "dst": 2, "F": 180, "B": 180},
            {"src": 2, "dst": 3, "F": 180, "B": 180},
        ],
    }
    assert derived(links=measured).problem.document["comm"] == {"default": 100}


# Files


def test_medians_and_percentiles() -> None:
    assert samples_document([3.0, 1.0, 2.0]) == {
        "median": 2.0,
        "low": 1.0,
        "high": 3.0,
        "times": [3.0, 1.0, 2.0],
    }
    ten = samples_document([float(n) for n in range(10, 0, -1)])
    assert (ten["median"], ten["low"], ten["high"]) == (5.5, 1.0, 9.0)


def test_what_is_written_is_read_again(tmp_path) -> None:
    profile = parse_profile(document(links=links((1, 1.0)), tied=TIED))
    write_document(tmp_path / "p.json", profile)
    assert read_profile(tmp_path / "p.json") == profile


def changed(*path_and_value):
    profile = copy.deepcopy(document())
    *path, last, value = path_and_value
    target = profile
    for step in path:
        target = target[step]
    target[last] = value
    return profile


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ([], "expected a JSON object"),
        (changed("format", "problem/1"), "format: got 'problem/1'"),
        (changed("layer", 3), "layer: unknown key; the nearest known key is layers"),
        (changed("options", "warm_up", 3), r"options.warm_up: unknown key; the nearest .* warmup"),
        (changed("layers", []), "layers: 0 entries, expected at least 1"),
        (changed("layers", 1, "kind", "x"), r"layers\[1\].kind: got 'x', expected a key of kinds"),
        (
            changed("kinds", "head", "F", "median", float("nan")),
            "got NaN, expected a number from 0 to",
        ),
        (changed("kinds", "head", "F", "median", -1.0), "got -1.0, expected a number from 0 to"),
        (changed("kinds", "head", "held_after_F", 1.5), "got 1.5, expected an integer from 0"),
        (changed("kinds", "head", "F", None), "kinds.head.F: got null, expected an object"),
        (
            changed("stages", [{"layers": [2, 2], "costs": document()["kinds"]["head"]}]),
            r"stages\[0\].layers: got \[2, 2\]",
        ),
        (changed("tied", [TIED[0] | {"layers": [0, 4]}]), r"tied\[0\].layers: got \[0, 4\]"),
    ],
)
def test_profiles_that_are_refused(profile, message) -> None:
    with pytest.raises(BadInput, match=message):
        parse_profile(profile)


# The command


def test_delays_from_a_file_of_their_own(cli, save) -> None:
    path, other = save(document(), "profile.json"), save(links((1, 9.0), (2, 9.0)), "links.json")
    arguments = ["problem", "from-profile", path, "--devices", 2, "--microbatches", 4]
    assert cli(*arguments, "--link-delay", f"file={other}").json["comm"] == {"default": 9}
    assert "no delay was measured" in cli(*arguments).err
    assert cli(*arguments, "--link-delay", f"5,file={other}").code == 2
    assert cli(*arguments, "--link-delay", f"file={path}").code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", 5], "the profile has 4 layers"),
        (["--placement", "chunks=3"], "only a loop has a choice"),
        (["--memory", "40"], "expected an amount with its unit"),
        (["--memory", "1GiB,2GiB,3GiB"], "3 values, expected 2"),
        (["--training", "optimizer=x"], "--training: got 'x', expected optimizer to be one of"),
        (["--memory", "reserve=x"], "--memory reserve: got 'x'"),
    ],
)
def test_options_that_are_refused(cli, save, options, message) -> None:
    path = save(document(), "profile.json")
    given = {"--devices": 2, "--microbatches": 4} | {options[0]: options[1]}
    done = cli("problem", "from-profile", path, *[x for pair in given.items() for x in pair])
    assert (done.code, done.out) == (2, "")
    assert message in done.err
