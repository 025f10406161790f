#!/usr/bin/env bash
# Finding: if one thread closes a multiprocessing connection while another one is in the middle of send(), that send raises
#   TypeError: 'NoneType' object cannot be interpreted as an integer. A send that begins later raises OSError.
# Package: Python's multiprocessing.connection (3.6.15 to 3.13.0, Linux), messages above 16 KiB, sent in two writes.
# Guess of a good engineer: whatever the moment, sending on a closed connection is an OSError, so `except OSError` is enough.
# Who is hurt: who sends from a thread and closes from another at the end. Now and then, on a busy machine, a traceback of
#   the thread is printed beside a right result. `except TypeError` alone would also hide what cannot be pickled.
# Run: bash findings/multiprocessing_send_on_a_closed_connection_is_a_typeerror.sh   (nothing to download, a second)
set -euo pipefail
python3 - <<'PY'
import multiprocessing
import os
import sys
import threading
import time

reader, writer = multiprocessing.Pipe(duplex=False)
size = os.fpathconf(writer.fileno(), "PC_PIPE_BUF") * 16  # a pipe has 16 pages
writer.send_bytes(b"0" * (size - 4))  # with its length in front it fills the pipe
seen = []


def send():
    try:
        writer.send_bytes(b"1" * 100_000)  # waits for room for its length
    except Exception as error:
        seen.append(error)


thread = threading.Thread(target=send)
thread.start()
time.sleep(0.5)
writer.close()
reader.recv_bytes()  # makes room
thread.join(10)
try:
    writer.send_bytes(b"2")
except Exception as error:
    seen.append(error)
print(f"Python {sys.version.split()[0]}: within a send {seen[0]!r}\nafter it {seen[1]!r}")
assert [type(error) for error in seen] == [TypeError, OSError], seen
print("seen: the same mistake is a TypeError or an OSError, by its moment")
PY
