#!/usr/bin/env bash
# Finding: torch's pipeline(), which cuts a model at split points, unties what is tied. Where the embedding and the head of a
#   model are one parameter, its stages have one each, and each is trained on its own part of the gradient. After one step of
#   SGD they differ. Nothing is raised.
# Package: torch 2.13.0 (torch.distributed.pipelining.pipeline, SplitPoint).
# Seen in its code: a parameter that several stages use is replicated. A comment promises "an additional gradient accumulation
#   before the optimizer step"; there is none.
# Guess of a good engineer: cutting keeps the model's function and its gradients, or complains about a weight on two stages.
# Who is hurt: who pipelines GPT-2-like models with tied embeddings. The first forward is that of the model, the loss falls, and
#   another model, with one matrix more, is trained. Add up both gradients before each optimizer step.
# Run: bash findings/torch_traced_stages_untie_weights.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import logging
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline

WORDS, WIDTH, RATE = 10, 8, 0.5


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.middle = torch.nn.Linear(WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.middle(self.embedding(tokens)))


def loss(logits, wanted):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def one_rank(rank, folder):
    logging.disable()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Tied()
    tokens, wanted = torch.randint(WORDS, (4, 6)), torch.randint(WORDS, (4, 6))
    loss(model(tokens), wanted).backward()
    tied = model.embedding.weight.grad
    pipe = pipeline(model, (tokens[:2],), split_spec={"head": SplitPoint.BEGINNING})
    stage = pipe.build_stage(rank, torch.device("cpu"))
    copy = stage.submod.embedding.weight if rank == 0 else stage.submod.head.weight
    start = copy.detach().clone()
    optimizer = torch.optim.SGD(stage.submod.parameters(), RATE)
    optimizer.zero_grad()
    given, target = ((tokens,), {}) if rank == 0 else ((), {"target": wanted})
    Schedule1F1B(stage, 2, loss_fn=loss).step(*given, **target)
    optimizer.step()
    both = [None, None]
    dist.all_gather_object(both, (start, copy.grad, copy.detach()))
    (start, one, first), (same, other, last) = both
    if rank == 0:
        assert torch.equal(start, same)
        assert torch.allclose(one + other, tied, atol=1e-6)
        assert min(float((part - tied).norm() / tied.norm()) for part in (one, other)) > 0.05
        apart = float((first - last).norm() / last.norm())
        assert apart > 0.01
        print("the copies begin alike, and their gradients add up to that of the tied weight")
        print(f"seen: after one step, embedding and head, tied in the model, differ by {apart:.0%}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(one_rank, (sys.argv[1],), 2)
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work"
