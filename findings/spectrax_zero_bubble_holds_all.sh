#!/usr/bin/env bash
# Finding: spectrax's ZeroBubbleH1 says that a stage holds at most p microbatches, and its own grid holds all m: every
#   weight-gradient op comes after the last input-gradient op, or in a slot that was idle before.
# Package: spectrax-lib 0.1.4 (spectrax.runtime.schedules).
# Seen in its code: build() takes 1F1B's grid and puts each W into the first empty slot of its stage. In the steady state
#   there is none. peak_activations() returns 1F1B's number.
# Guess of a good engineer: ZB-H1, whose point is zero bubble at 1F1B's memory, as its docstring says: "Per-stage peak
#   activation memory is the same as 1F1B".
# Who is hurt: who sizes memory by peak_activations(), or trusts the name. With 4 stages and 64 microbatches a stage holds
#   64 for the 4 that were promised. What W needs cannot be freed before W.
# Run: bash findings/spectrax_zero_bubble_holds_all.sh   (some 200 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q spectrax-lib==0.1.4
cat > "$work/look.py" <<'PY'
from spectrax.runtime.schedules import ZeroBubbleH1
from spectrax.runtime.schedules.base import Phase

STAGES = 4
for microbatches in (12, 64):
    schedule = ZeroBubbleH1(microbatches)
    found = []
    for stage in range(STAGES):
        held = most = 0
        for row in schedule.build(STAGES):
            if row[stage] is not None:
                held += row[stage].phase == Phase.FWD
                most = max(most, held)
                held -= row[stage].phase == Phase.BWD_W
        assert held == 0
        found.append(most)
    said = schedule.peak_activations(STAGES)
    print(f"{microbatches} microbatches: in flight by stage {found}, promised {said}")
    assert said == STAGES
    assert found == [microbatches] * STAGES, found
print("seen: every stage holds all microbatches at once")
PY
"$work/venv/bin/python" "$work/look.py"
