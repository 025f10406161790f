"""Record when forwards and backwards ran, as pipesat.timeline/1. A file to copy: needs torch."""

import json
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary


def record(path: str, *functions: Any, skip: int = 5, steps: int = 10, **more: Any) -> None:
    """Time functions in so many steps after those to skip; called on every rank, rank 0 writes.

    A function is (owner, name, op), Megatron's if none is given. Op is F, BW, B, W, ``step`` (a
    training step ends with it), or makes ``0F3`` of the arguments. F is of the next microbatch of
    stage chunk * ranks + rank, modules among its arguments being chunks in order of first use. A
    backward is of the last F that returned one of its arguments. ``group()`` has one pipeline's
    ranks; more goes into the file, as ``problem_sha256``, ``us_per_time_unit``, ``clock_error``.
    Times are of CUDA events (the host waits for the device twice a step), else of the host's clock.
    """
    if not functions:
        core = import_module("megatron.core.pipeline_parallel.schedules")
        functions = (core, "forward_step", "F"), (core, "backward_step", "BW")
        whole = [name for name in vars(core) if name.startswith("forward_backward_")]
        functions += tuple((core, name, "step") for name in whole)
        state = import_module("megatron.core.parallel_state")
        more = {"group": state.get_pipeline_model_parallel_group} | more
    group = more.pop("group", lambda: None)
    ops, done, chunks = list[Any](), list[Any](), dict[int, int]()
    made = WeakTensorKeyDictionary()  # by which F: its number, stage, microbatch

    def name_of(op: str, given: list[Any], result: Any) -> str:
        if op != "F":
            known = [made[x] for x in given if torch.is_tensor(x) and x in made]
            if not known:
                raise LookupError(f"{op} was given nothing that an F returned: name ops yourself")
            return f"{max(known)[1]}{op}{max(known)[2]}"
        module = next((id(x) for x in given if isinstance(x, torch.nn.Module)), 0)
        stage = chunks.setdefault(module, len(chunks))
        if distributed.is_initialized():
            stage = stage * distributed.get_world_size(group()) + distributed.get_rank(group())
        microbatch = sum(text.startswith(f"{stage}F") for text, *_ in ops)
        for tensor in filter(torch.is_tensor, tree_leaves(result)):
            made[tensor] = len(ops), stage, microbatch
        return f"{stage}F{microbatch}"

    def timed(function: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        given = tree_leaves((args, kwargs))  # before they are changed
        start, clock = _now(idle=not ops), time.time() * 1e6
        result = function(*args, **kwargs)
        if op != "step":
            text = op(*args, **kwargs) if callable(op) else name_of(op, given, result)
            ops.append((text, start, _now(), ops[-1][2] if ops else start, clock))
            return result
        if any("F" not in text for text, *_ in ops):  # else it is an evaluation
            _now(idle=True)
            _, zero, *_, us = ops[0]
            at = (lambda x: us + 1e3 * zero.elapsed_time(x)) if torch.cuda.is_available() else float
            done.append([(text, *map(at, stamps)) for text, *stamps, _ in ops])
            if len(done) == skip + steps:
                for place in before:
                    setattr(*place)
                _write(Path(path), done[skip:], group, more)
        ops.clear()
        return result

    before = [(owner, name, getattr(owner, name)) for owner, name, _ in functions]
    for (owner, name, function), (*_, op) in zip(before, functions, strict=True):
        setattr(owner, name, partial(timed, function, op))


def _now(*, idle: bool = False) -> Any:
    if not torch.cuda.is_available():
        return time.time() * 1e6
    if idle:
        torch.cuda.synchronize()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _write(path: Path, mine: list[Any], group: Any, more: dict[str, Any]) -> None:
    ranks, together = [mine], distributed.is_initialized()
    if together:
        ranks *= distributed.get_world_size(group())
        distributed.all_gather_object(ranks, mine, group())
    steps = []
    for rows in zip(*ranks, strict=True):  # what lies between two ops is a wait
        zero = min(row[0][1] for row in rows)
        ops = [[(op, a - zero, b - zero, max(0, a - c), None) for op, a, b, c in r] for r in rows]
        steps.append({"devices": [{"ops": row} for row in ops]})
    head = {"format": "pipesat.timeline/1", "problem_sha256": "", "us_per_time_unit": 1} | more
    if not together or distributed.get_rank() == 0:
        path.write_text(json.dumps(head | {"steps": steps}))
