#!/usr/bin/env bash
# Finding: HiGHS has one pool of threads per process. A second solver with another number of `threads` accepts the option
#   and then does not solve: run() returns kError, the status is "Not Set", the objective 0. Nothing is raised.
# Package: highspy 1.16.0.
# Guess of a good engineer: threads is an option of each Highs(), and an error in Python is an exception.
# Who is hurt: who compares 1 with 2 threads in one process, or uses two libraries that each set it. With output off
#   nothing is printed either. Highs.resetGlobalScheduler(True) between the two helps.
# Run: bash findings/highs_threads_of_the_first_solver.sh   (some 25 MB of downloads, ten seconds)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q highspy==1.16.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import highspy


def solved(threads):
    """The most of x, which is 7."""
    highs = highspy.Highs()
    highs.silent()
    assert highs.setOptionValue("threads", threads) == highspy.HighsStatus.kOk
    x = highs.addVariable(ub=7.5, type=highspy.HighsVarType.kInteger)
    status = highs.maximize(x)
    found = highs.getInfo().objective_function_value
    said = highs.modelStatusToString(highs.getModelStatus())
    print(f"threads {threads}: {status}, {said}, objective {found}")
    return status, found


first, second, third = solved(1), solved(2), solved(1)
highspy.Highs.resetGlobalScheduler(True)
after = solved(2)
assert first == third == after == (highspy.HighsStatus.kOk, 7.0), (first, third, after)
assert second == (highspy.HighsStatus.kError, 0.0), second
print("seen: the second number of threads was accepted, and nothing was solved or raised")
PY
"$work/venv/bin/python" "$work/look.py"
