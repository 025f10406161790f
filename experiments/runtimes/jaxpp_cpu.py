"""Run orders in JaxPP on CPU devices of one process: losses and gradients against plain JAX.

``python jaxpp_cpu.py CHECKOUT FILE...``: CHECKOUT is one of JaxPP, FILE an order for it, or the
name of a schedule of its own as ``Std1F1B:3:3:6`` (ranks, stages, microbatches). Needs jax 0.9.2.
Every stage is a product with an 8 x 8 matrix and a tanh, in float32. One process per line of the
table, as devices are set when JAX starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any


def sizes_of(text: str) -> tuple[int, int, int]:
    """Ranks, stages and microbatches of a file or a name."""
    import ast

    if not text.endswith(".py"):
        ranks, stages, microbatches = map(int, text.split(":")[1:])
        return ranks, stages, microbatches
    (data,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(Path(text).read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER"
    )
    return len(data["rows"]), data["stages"], data["microbatches"]


def one(checkout: str, text: str) -> None:
    """Run one and print its row."""
    ranks, stages, microbatches = sizes_of(text)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    sys.path.insert(0, str(Path(checkout) / "src"))
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jaxpp import api

    devices = np.array(jax.devices()).reshape(ranks, 1, 1)
    mesh = api.MpmdMesh(jax.sharding.Mesh(devices, ("stages", "data", "model")), "stages")

    def loss_of(params: Any, x: Any, *, mark: bool) -> Any:
        h = x
        for weights in params:
            h = jnp.tanh(h @ weights)
            h = api.mark_stage_end(h) if mark else h
        return jnp.mean((h - x) ** 2)

    if text.endswith(".py"):
        made = ModuleType("pipesat_order")
        sys.modules[made.__name__] = made
        exec(compile(Path(text).read_text(), text, "exec"), vars(made))
        schedule = made.Pipesat()
    else:
        kind = getattr(api, text.partition(":")[0])
        more = {"mpmd_dim": ranks} if stages != ranks else {}
        schedule = kind(num_stages=stages, **more)

    @partial(api.mpmd_jit_with_loop, mpmd_mesh=mesh)
    def step(params: Any, batch: Any) -> Any:
        return api.treduce(
            partial(jax.value_and_grad(partial(loss_of, mark=True)), params),
            batch,
            schedule=schedule,
        )

    key = jax.random.PRNGKey(0)
    params = [jax.random.normal(jax.random.fold_in(key, s), (8, 8)) for s in range(stages)]
    batch = jax.random.normal(key, (microbatches, 3, 8))
    each = [jax.value_and_grad(partial(loss_of, mark=False))(params, x) for x in batch]
    losses, grads = step(params, batch)
    here = [np.array(array.to_mpmd_local_array) for array in (losses, *grads)]
    wanted = [np.array([loss for loss, _ in each])]
    wanted += [np.sum([grad[s] for _, grad in each], axis=0) for s in range(stages)]
    off = [np.abs(a - b).max() for a, b in zip(here, wanted, strict=True)]
    print(f"| {Path(text).stem} | {off[0]:.1e} | {max(off[1:]):.1e} |", flush=True)


def main() -> None:
    checkout, *texts = sys.argv[1:]
    if len(texts) == 1:
        one(checkout, texts[0])
        return
    print("| order | losses differ by | gradients differ by |\n|---|---|---|", flush=True)
    for text in texts:
        run = subprocess.run(
            [sys.executable, __file__, checkout, text], check=False, capture_output=True, text=True
        )
        print(run.stdout.strip() or f"| {Path(text).stem} | FAILED: {run.stderr[-300:]!r} | |")


if __name__ == "__main__":
    main()
