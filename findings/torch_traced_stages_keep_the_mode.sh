#!/usr/bin/env bash
# Finding: a stage that torch's pipeline() cut out of a model in training mode stays in it. eval() sets .training and changes
#   nothing else: dropout still drops, batch norm still learns from what it is shown. A model cut in eval() never drops again.
# Package: torch 2.13.0 (torch.distributed.pipelining.pipeline).
# Seen in its code: the model is traced by torch.export, which writes the mode into the graph. A module of torch.export's own
#   raises in eval(); the stages take the call.
# Guess of a good engineer: stage modules are modules, and train() and eval() switch them.
# Who is hurt: who validates with the stages that train: losses are too high and vary, and running averages take the validation
#   data in. Who loads a model for inference, cuts it and fine-tunes it has lost its dropout.
# Run: bash findings/torch_traced_stages_keep_the_mode.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import torch
from torch.distributed.pipelining import SplitPoint, pipeline


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(8, 64)
        self.drop = torch.nn.Dropout(0.5)
        self.norm = torch.nn.BatchNorm1d(64)
        self.last = torch.nn.Linear(64, 8)

    def forward(self, x):
        return self.last(self.norm(self.drop(self.wide(x))))


def behaviour(module, training):
    """Whether it drops at random, and whether its running averages move, in this mode."""
    assert module.train(training).training == training
    averages = module.norm.running_mean.clone()
    with torch.no_grad():
        drops = not torch.equal(module(x), module(x))
    return drops, not torch.equal(averages, module.norm.running_mean)


torch.manual_seed(0)
x = torch.randn(32, 8)
assert [behaviour(Net(), mode) for mode in (True, False)] == [(True, True), (False, False)]
for traced in (True, False):
    model = Net().train(traced)
    first = pipeline(model, (x,), split_spec={"last": SplitPoint.BEGINNING}).get_stage_module(0)
    found = [behaviour(first, mode) for mode in (True, False)]
    named = "train()" if traced else "eval()"
    print(f"cut in {named}: (drops, averages move) is {found[0]} in train(), {found[1]} in eval()")
    assert found == [(traced, traced)] * 2, found
print("seen: a stage does as its model did when it was cut, whatever mode it says it is in")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
