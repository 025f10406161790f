"""Files for other programs, read by those programs' rules as we know them; nothing is executed.

Every reader returns an order: lists of slots, a slot one op or two that run together, an op
(place on the route, kind, microbatch); or raises :class:`Refused` as the program would.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

Op = tuple[int, str, int]
Order = list[list[tuple[Op, ...]]]

_TORCH = re.compile(r"(\d+)([FIWB])(\d+)", re.ASCII)
_TORCH_PAIR = re.compile(r"\(([^();]+);([^();]+)\)OVERLAP_F_B", re.ASCII)
_OWN = re.compile(r"(\d+)(F|BW|B|W)(\d+)", re.ASCII)
GROUP_SIZE = "--microbatch-group-size-per-virtual-pipeline-stage"
_OF_TORCH = {"F": "F", "I": "B", "W": "W", "B": "BW"}


class Refused(ValueError):
    """What the program would say of the file, or do without saying."""


def need(holds: bool, why: str) -> None:
    if not holds:
        raise Refused(why)


def torch_csv(text: str) -> Order:
    """torch's compute_only CSV: a row per rank, cells such as 0F0, 0I0, 0W0, 0B0; empty is idle."""
    need(text.endswith("\n") and "\n\n" not in text and '"' not in text, "a blank or quoted row")
    order: Order = []
    for line in text.splitlines():
        row = []
        for cell in filter(None, line.split(",")):
            pair = _TORCH_PAIR.fullmatch(cell)
            row.append(tuple(_of_torch(word) for word in (pair.groups() if pair else [cell])))
        need(bool(row), "a rank without ops")
        order.append(row)
    return order


def _of_torch(word: str) -> Op:
    found = _TORCH.fullmatch(word)
    need(found is not None, f"{word!r} is no action of torch")
    assert found is not None
    return int(found[1]), _OF_TORCH[found[2]], int(found[3])


def losses_in_order(order: Order, stages: int) -> None:
    """torch keeps losses in the order in which the last stage runs its forwards, unchecked."""
    last = [op[2] for row in order for slot in row for op in slot if op[:2] == (stages - 1, "F")]
    need(last == sorted(last), f"the last stage's forwards run as {last}: losses get mixed up")


def complete(order: Order, stages: int, microbatches: int) -> None:
    """Every (stage, microbatch) has F and either BW or B and W, each once, on one rank."""
    found: dict[tuple[int, int], list[str]] = {}
    homes: dict[int, set[int]] = {}
    for rank, row in enumerate(order):
        for stage, kind, m in (op for slot in row for op in slot):
            found.setdefault((stage, m), []).append(kind)
            homes.setdefault(stage, set()).add(rank)
    wanted = {(stage, m) for stage in range(stages) for m in range(microbatches)}
    need(found.keys() == wanted, f"(stage, microbatch) {sorted(found.keys() ^ wanted)[:3]}")
    for place, kinds in found.items():
        need(kinds in (["F", "BW"], ["F", "B", "W"]), f"{place} runs {kinds}")
    need(all(len(ranks) == 1 for ranks in homes.values()), "a stage on two ranks")


def placement_by_name(name: str, ranks: int, stages: int) -> list[int]:
    """Where torchtitan and NeMo AutoModel put stages by a schedule's name."""
    if name in ("ZBVZeroBubble", "DualPipeV"):
        need(stages == 2 * ranks, f"{name} with {stages} stages on {ranks} ranks")
        return [*range(ranks), *reversed(range(ranks))]
    need(name in ("PipelineScheduleSingle", "PipelineScheduleMulti"), f"unknown name {name}")
    need(stages % ranks == 0, f"{stages} stages on {ranks} ranks")
    single = name == "PipelineScheduleSingle"
    need((stages == ranks) == single, f"{name} with {stages} stages on {ranks} ranks")
    return [*range(ranks)] * (stages // ranks)


def layers_of_names(parts: list[list[str]]) -> list[int]:
    """Layers per stage of module names: numbered on, embedding first, head last, each once."""
    numbers = [
        [int(n.rpartition("layers.")[2]) for n in names if "layers." in n] for names in parts
    ]
    flat = [number for part in numbers for number in part]
    need(flat == list(range(len(flat))), f"layers are numbered {flat[:9]}")
    for word, place in (("embed", 0), ("norm", -1), ("output|lm_head", -1)):
        holding = [k for k, names in enumerate(parts) if any(re.search(word, n) for n in names)]
        need(holding == [range(len(parts))[place]], f"{word} on stages {holding}")
    return [len(part) for part in numbers]


def titan_toml(text: str) -> dict[str, Any]:
    import tomllib

    found = tomllib.loads(text)
    own = found["parallelism"]
    parts = own.get("module_fqns_per_model_part", found.get("module_fqns_per_model_part"))
    return {
        "ranks": own["pipeline_parallel_degree"],
        "name": own["pipeline_parallel_schedule"],
        "csv": own["pipeline_parallel_schedule_csv"],
        "microbatches": found["training"]["local_batch_size"]
        // own["pipeline_parallel_microbatch_size"],
        "parts": parts,
        "checkpointing": found.get("activation_checkpoint", {}).get("mode"),
        "compile": found.get("compile", {}).get("enable"),
    }


def titan_python(text: str) -> dict[str, Any]:
    """The values that the function of a torchtitan .py assigns, as literals."""
    values = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            try:
                values[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
            except ValueError:
                continue
    own = {key.rpartition(".")[2]: value for key, value in values.items()}
    return {
        "ranks": own["pipeline_parallel_degree"],
        "name": own["pipeline_parallel_schedule"],
        "csv": own["pipeline_parallel_schedule_csv"],
        "microbatches": own["local_batch_size"] // own["pipeline_parallel_microbatch_size"],
        "parts": own.get("module_fqns_per_model_part"),
        "checkpointing": "none" if "activation_checkpoint" in own else None,
        "compile": values.get("config.compile.enable"),
    }


def automodel_yaml(text: str) -> dict[str, Any]:
    """The keys of a fragment of NeMo AutoModel's; its values are written as JSON."""
    own, parts = {}, []
    for line in text.splitlines():
        key, _, value = line.strip().partition(": ")
        if line.strip().startswith("- ["):
            parts.append(json.loads(line.strip()[2:]))
        elif value and not line.strip().startswith("#"):
            own[key] = json.loads(value)
    need(own["scale_grads_in_schedule"] is False, "torch scales gradients")
    checkpointing = own.get("activation_checkpointing")
    return {
        "ranks": own["pp_size"],
        "name": own["pp_schedule"],
        "csv": own["pp_schedule_csv"],
        "microbatches": own["pp_batch_size"] // own["pp_microbatch_size"],
        "parts": parts or None,
        "checkpointing": None if checkpointing is None else ["none", "full"][checkpointing],
        "compile": None,
    }


CONFIGURATIONS = {
    "torchtitan": {".toml": titan_toml, ".py": titan_python},
    "automodel": {".yaml": automodel_yaml},
}


def python_order(text: str) -> dict[str, Any]:
    """The literal ORDER of a Python file for Primus, d9d or JaxPP, with its order as slots."""
    (node,) = [
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER"
    ]
    found: dict[str, Any] = ast.literal_eval(node)
    order: Order = []
    for line in found["rows"]:
        row = []
        for word in line.split():
            ops = [_OWN.fullmatch(op) for op in word.strip("()").split("+")]
            need(None not in ops, f"{word!r} is no op")
            row.append(tuple((int(op[1]), op[2], int(op[3])) for op in ops if op is not None))
        order.append(row)
    return found | {"order": order}


def jaxpp_rules(order: Order) -> None:
    """All backwards are whole or all are split; the first stage's W follows its B at once."""
    ops = [op for row in order for slot in row for op in slot]
    kinds = {kind for stage, kind, _ in ops if kind != "F" and stage}
    need(kinds in (set(), {"BW"}, {"B", "W"}), f"backwards as {sorted(kinds)}: all or none split")
    for row in order:
        flat = [op for slot in row for op in slot]
        for now, following in zip(flat, [*flat[1:], None], strict=True):
            if now[:2] == (0, "B"):
                need(following == (0, "W", now[2]), f"W of {now} does not follow it at once")


def megatron_flags(text: str) -> dict[str, str]:
    """Megatron-LM's arguments, a flag once."""
    found: dict[str, str] = {}
    for word in shlex.split(text):
        key, _, value = word.partition("=")
        need(key.startswith("--") and key not in found, f"argument {word!r}")
        found[key] = value
    return found


def megatron_layout(text: str, ranks: int) -> list[str]:
    """Layers of every stage of a layout, as megatron-core 0.19.2 expands it.

    Commas mean nothing; ``(...)*n``, then ``x*n`` repeat, n may be 0; ``|`` ends a stage. E and L
    place nothing there: an L elsewhere than on the last stage is another pipeline than it says.
    """
    flat = text.replace(",", "")
    flat = re.sub(r"\(([^()]+)\)\*(\d+)", lambda one: one[1] * int(one[2]), flat)
    flat = re.sub(r"(.)\*(\d+)", lambda one: one[1] * int(one[2]), flat)
    need(re.fullmatch("[EtmL|]*", flat) is not None, f"characters of {flat!r}")
    stages = flat.split("|")
    need(len(stages) % ranks == 0, f"{len(stages)} stages on {ranks} ranks")
    need("".join(stages).count("E") == 1 and stages[0].startswith("E"), "E is not first")
    need("".join(stages).count("L") == 1 and stages[-1].endswith("L"), "L is not last")
    holding = [k for k, stage in enumerate(stages) if "m" in stage]
    need(len(holding) < 2 and all(k >= len(stages) - ranks for k in holding), "MTP layers")
    need(re.fullmatch("Et*m*L", "".join(stages)) is not None, "layers out of order")
    return stages


def trace_order(text: str) -> list[list[tuple[str, int, int]]]:
    """Ops of every process of a trace, by start: (name, start, length)."""
    events = json.loads(text)["traceEvents"]
    rows: dict[int, list[tuple[str, int, int]]] = {
        event["pid"]: [] for event in events if event.get("name") == "process_name"
    }
    for event in events:
        if event["ph"] == "X" and re.fullmatch(r"\(?\d+(F|BW|B|W)\d+.*", event["name"]):
            rows[event["pid"]].append((event["name"], event["ts"], event["dur"]))
    return [rows[pid] for pid in sorted(rows)]


def hybrid_pattern(text: str) -> list[str]:
    """Symbols of every stage of a hybrid pattern; what follows a / are MTP layers."""
    main = text.partition("/")[0]
    need(re.fullmatch(r"[MGD*+E|-]+", main) is not None, f"symbols of {main!r}")
    return main.split("|")
