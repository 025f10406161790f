#!/usr/bin/env bash
# Finding: in numba, a uint64 to which a loop's index is added becomes a float64, and so does the variable it is stored in. A
#   hash of five steps returns 2.6e+26, where the same code uncompiled returns an exact uint64.
# Package: numba 0.68.1 with numpy 2.4.6.
# Guess of a good engineer: h * uint64(31) + i stays a uint64, as it does in Python, where numpy takes a plain int as weak.
#   range gives int64 in numba, and int64 with uint64 is float64.
# Who is hurt: who moves a hash or a random generator to uint64, since int64 must not overflow there. No error: above 2**53 low
#   bits are lost, and different keys get one hash. range(np.uint64(n)) and np.uint64(i) keep it whole.
# Run: bash findings/numba_uint64_and_an_index_make_a_float.sh   (some 60 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q numba==0.68.1 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import numba
import numpy as np


def plain(steps):
    number = np.uint64(1 << 63)
    for index in range(steps):
        number = number * np.uint64(31) + index
    return number


def careful(steps):
    number = np.uint64(1 << 63)
    for index in range(steps):
        number = number * np.uint64(31) + np.uint64(index)
    return number


with np.errstate(over="ignore"):
    wanted = int(plain(5))
found, kept = numba.njit(plain)(5), numba.njit(careful)(5)
print(f"uncompiled {wanted}; compiled {found!r}; with np.uint64(index) {int(kept)}")
assert isinstance(found, float) and found > 1e26 and int(kept) == wanted, (found, kept)
print(f"seen: a hash over uint64 returns {found:.3g}")
PY
"$work/venv/bin/python" "$work/look.py"
