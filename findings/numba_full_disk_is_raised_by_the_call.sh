#!/usr/bin/env bash
# Finding: if numba cannot write its cache (disk full, quota), the first call of a function with cache=True raises OSError
#   after compiling it, and does not run it. A folder that is not writable is handled, a full one is not.
# Package: numba 0.68.1 with numpy 2.4.6.
# Guess of a good engineer: a cache that cannot be written costs time and perhaps a warning, not the answer.
# Who is hurt: who ships compiled loops. On a full home directory the program dies with "No space left on device" in the
#   middle of a computation that writes nothing. The second call works: the compiled code is in memory by then.
# Run: bash findings/numba_full_disk_is_raised_by_the_call.sh   (some 60 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q numba==0.68.1 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import resource

import numba


@numba.njit(cache=True)
def twice(x):
    return 2 * x


# a full disk for everybody: no file may be longer than 10 bytes
without = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, without[1]))
answers = []
for _ in range(2):
    try:
        answers.append(twice(21))
    except OSError as error:
        answers.append(error)
resource.setrlimit(resource.RLIMIT_FSIZE, without)
print(f"first call: {answers[0]!r}\nsecond call: {answers[1]!r}")
assert isinstance(answers[0], OSError), answers
assert answers[1] == 42, answers
print("seen: the call raises what writing the cache raised; the same call again has the answer")
PY
NUMBA_CACHE_DIR="$work/cache" "$work/venv/bin/python" "$work/look.py"
