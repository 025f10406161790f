#!/usr/bin/env bash
# Finding: numba tells its compiler that sums and products of int64 never overflow ("nsw" in the code it makes). One that
#   does is undefined: `x + 1 > x` is true for the largest int64, where numpy, and the same code uncompiled, say false.
# Package: numba 0.68.1 with numpy 2.4.6.
# Guess of a good engineer: int64 wraps in numba as it does in numpy, since arrays of int64 are what it is made for.
# Who is hurt: who writes a random generator or a hash over int64 into a kernel (multiply, add, let it wrap). What it
#   draws may then depend on what the loop around it was optimised to. Such a loop of ours drew one sequence in the
#   process that compiled it and another in those that loaded it from numba's cache. uint64 wraps.
# Run: bash findings/numba_int64_overflow_is_undefined.sh   (some 60 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q numba==0.68.1 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import warnings

import numba
import numpy as np


def above(x):
    return x + 1 > x


def moved(x):
    return x * 6364136223846793005 + 1442695040888963407


compiled, step = numba.njit(above), numba.njit(moved)
found = {}
for kind in (np.int64, np.uint64):
    most = kind(np.iinfo(kind).max)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found[kind] = bool(above(most)), compiled(most)
    print(f"{kind.__name__}: is the largest plus one larger? numpy {found[kind][0]}, numba {found[kind][1]}")
step(np.int64(5))
(code,) = step.inspect_llvm().values()
flagged = "mul nsw i64" in code
print("a product of int64 is", "assumed not to overflow" if flagged else "left to wrap")
assert found[np.int64] == (False, True), found
assert found[np.uint64][0] is False
assert flagged
print("seen: compiled, x + 1 > x holds for the largest int64; numpy says it does not")
PY
"$work/venv/bin/python" "$work/look.py"
