#!/usr/bin/env bash
# Finding: after a CP-SAT solve the process has no handler of SIGINT any more, neither Python's nor one that you set: Ctrl-C
#   kills it at once, without KeyboardInterrupt, `except` or `finally`. signal.getsignal still names the old one.
# Package: ortools 9.15.6755 (Python).
# Source: catch_sigint_signal in sat_parameters.proto, on unless switched off. During a solve Ctrl-C then ends the search
#   as a time limit does (FEASIBLE, nothing raised). Seen by running it: afterwards there is the system's default handler.
# Guess of a good engineer: a library that borrows a signal gives it back, and Ctrl-C between two solves raises as ever.
# Who is hurt: who sweeps over problems and saves rows or tidies up in `finally`: between solves one Ctrl-C loses them. With
#   catch_sigint_signal = False all stays, and Ctrl-C raises when the solve ends.
# Run: bash findings/cpsat_takes_the_interrupt_away.sh   (some 40 MB of downloads, half a minute on Linux)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
import subprocess
import sys

CHILD = """
import os, signal, sys, time
from ortools.sat.python import cp_model

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
if sys.argv[1] != "no solve":
    model = cp_model.CpModel()
    model.maximize(model.new_int_var(0, 9, "x"))
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = sys.argv[1] == "a solve"
    assert solver.solve(model) == cp_model.OPTIMAL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(2)
except KeyboardInterrupt:
    print("raised,", end=" ")
finally:
    print("tidied up", flush=True)
"""


def after(what):
    """What a process says that is interrupted afterwards, and how it ends."""
    child = [sys.executable, "-c", CHILD, what]
    done = subprocess.run(child, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout.strip(), done.returncode


found = {what: after(what) for what in ("no solve", "a solve", "a solve that leaves SIGINT")}
print(f"an interrupt, and the exit code, after {found}")
whole = ("raised, tidied up", 0)
assert found["no solve"] == found["a solve that leaves SIGINT"] == whole, found
assert found["a solve"] == ("", -2), found
print("seen: after a solve an interrupt ends the process, and `finally` does not run")
PY
"$work/venv/bin/python" "$work/look.py"
