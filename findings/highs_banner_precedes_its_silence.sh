#!/usr/bin/env bash
# Finding: the first Highs() of a process prints two lines on standard output. It does so while it is made, so no option can
#   keep it quiet: silent() and output_flag come after.
# Package: highspy 1.16.0.
# Guess of a good engineer: with output_flag off, or after silent(), a solver prints nothing.
# Who is hurt: a program whose standard output is JSON or CSV. Its reader fails at "Running HiGHS", and only for the first
#   solver of a process, so a test with a second one passes.
# Run: bash findings/highs_banner_precedes_its_silence.sh   (some 25 MB of downloads, ten seconds)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q highspy==1.16.0 numpy==2.4.6
cat > "$work/quiet.py" <<'PY'
import highspy

for _ in range(2):
    highs = highspy.Highs()
    highs.silent()
    highs.maximize(highs.addVariable(ub=1.0))
    print("{}", flush=True)
PY
"$work/venv/bin/python" "$work/quiet.py" > "$work/out"
cat "$work/out"
python3 - "$work/out" <<'PY'
import sys

with open(sys.argv[1]) as file:
    lines = file.read().splitlines()
assert lines[0].startswith("Running HiGHS"), lines
assert lines[2:] == ["{}", "{}"], lines
print(f"seen: {len(lines) - 2} lines on standard output before the first answer of a silent solver")
PY
