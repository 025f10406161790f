"""The page's server: on this machine alone, for the page that it gave out itself.

A request has to name this machine as host, so that no other name leads here; a browser says
from where a request comes, and another page's is refused; and every question has this run's token,
which stands in the address that was printed and in no page.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from werkzeug.exceptions import Forbidden, NotFound
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from pipesat.compare.explore.answers import QUESTIONS, Answers, guarded
from pipesat.core.errors import BadInput
from pipesat.core.strict_json import parse_json

HOST: Final = "127.0.0.1"
_LARGEST: Final = 16 << 20  # bytes of a question
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@contextmanager
def served(html: bytes, answers: Answers, port: int) -> Iterator[str]:
    """Serve a page until the end of the context; yields its address. Port 0: any free one.

    Raises
    ------
    BadInput
        If the port is taken.
    """
    try:
        opened = socket.create_server((HOST, port))
    except OSError as error:
        raise BadInput(
            f"cannot listen: {os.strerror(error.errno or 0)}. Expected a free port, or 0 for any",
            where="port",
            value=port,
        ) from None
    with opened:
        host, token = f"{HOST}:{opened.getsockname()[1]}", secrets.token_urlsafe(24)
        respond = Request.application(partial(_respond, html, answers, host, token))
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line per request
        server = make_server(HOST, port, respond, threaded=True, fd=opened.fileno())
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield f"http://{host}/#token={token}"
        finally:
            server.shutdown()
            server.server_close()


def _respond(html: bytes, answers: Answers, host: str, token: str, request: Request) -> Response:
    """Answer a request, or refuse it."""
    request.max_content_length = _LARGEST
    given, answered = request.headers, partial(Response, headers=_HEADERS)
    named = given.get("Host", "")
    same = given.get("Origin", f"http://{named}") == f"http://{named}"
    if not same or named.replace("localhost:", f"{HOST}:") != host:
        raise Forbidden("Only the page of this machine may ask.")
    if request.path == "/" and request.method in ("GET", "HEAD"):
        return answered(html, mimetype="text/html")
    question = request.path.removeprefix("/ask/")
    if question not in QUESTIONS or request.method != "POST":
        raise NotFound
    known = secrets.compare_digest(given.get("X-Pipesat-Token", "").encode(), token.encode())
    if not known or given.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise Forbidden("Another run, or another page, asks.")
    text = request.get_data(as_text=True)
    answer = guarded(lambda: answers.answer(question, parse_json(text, "the page")))
    if isinstance(answer, dict):
        return answered(json.dumps(answer), mimetype="application/json")
    return answered(answer, mimetype="application/x-ndjson")
