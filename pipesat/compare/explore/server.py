"""The page's server: on this machine alone, for the page that it gave out itself.

Whoever asks has to name this machine as host, so that no other name leads here; a browser says
from where a request comes, and another page's is refused; and every question has this run's token,
which stands in the address that was printed and in no page.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, MethodNotAllowed, NotFound
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from pipesat.compare.explore.answers import Answers, guarded
from pipesat.core.errors import BadInput
from pipesat.core.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HOST: Final = "127.0.0.1"
_LARGEST: Final = 16 << 20  # bytes of a question
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_QUESTIONS: Final[dict[str, Callable[[Answers, Any], Any]]] = {
    "start": Answers.start,
    "schedules": Answers.schedules,
    "curve": Answers.curve,
    "solve": Answers.solve,
    "frontier": Answers.frontier,
    "halt": Answers.halt,
    "export": Answers.export,
}


class Page:
    """The WSGI application: the page, and the questions that it asks."""

    def __init__(self, html: bytes, answers: Answers, port: int) -> None:
        self.html, self.answers = html, answers
        self.token = secrets.token_urlsafe(24)
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.address = f"http://{HOST}:{port}/#token={self.token}"

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        request = Request(environ)
        request.max_content_length = _LARGEST
        response: Any
        try:
            response = self._answer(request)
        except HTTPException as refused:
            response = Response(refused.description, refused.code, mimetype="text/plain")
        response.headers.update(_HEADERS)
        found: Iterable[bytes] = response(environ, start)
        return found

    def _answer(self, request: Request) -> Response:
        host, origin = request.headers.get("Host"), request.headers.get("Origin")
        if host not in self.hosts or origin not in (None, f"http://{host}"):
            raise Forbidden("Only the page of this machine may ask.")
        if request.path == "/":
            if request.method not in ("GET", "HEAD"):
                raise MethodNotAllowed(["GET", "HEAD"])
            return Response(self.html, mimetype="text/html")
        question = _QUESTIONS.get(request.path.removeprefix("/ask/"))
        if question is None:
            raise NotFound
        if request.method != "POST":
            raise MethodNotAllowed(["POST"])
        token = request.headers.get("X-Pipesat-Token", "")
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        if site != "same-origin" or not secrets.compare_digest(token.encode(), self.token.encode()):
            raise Forbidden("This page belongs to another run. Open the address it has printed.")
        if request.mimetype != "application/json":
            raise BadRequest("Expected JSON.")
        text = request.get_data(as_text=True)
        answer = guarded(partial(self._asked, question, text))
        if isinstance(answer, Iterator):
            return Response(answer, mimetype="application/x-ndjson")
        return Response(json.dumps(answer), mimetype="application/json")

    def _asked(self, question: Callable[[Answers, Any], Any], text: str) -> Any:
        stated = parse_json(text, "the page")
        if not isinstance(stated, dict):
            raise BadInput("expected an object", source="the page")
        return question(self.answers, stated)


class _Quiet(WSGIRequestHandler):
    """Writes no line per request."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Tell errors alone."""
        if type == "error":
            super().log(type, message, *args)


@contextmanager
def served(html: bytes, answers: Answers, port: int) -> Iterator[str]:
    """Serve a page until the end of the context; yields its address. Port 0: any free one.

    Raises
    ------
    BadInput
        If the port is taken.
    """
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((HOST, port))
            opened.listen(128)
        except OSError as error:
            raise BadInput(f"cannot listen: {error.strerror}", where="port", value=port) from None
        page = Page(html, answers, opened.getsockname()[1])
        server = make_server(
            HOST, port, page, threaded=True, request_handler=_Quiet, fd=opened.fileno()
        )
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield page.address
        finally:
            with suppress(OSError):
                server.shutdown()
                server.server_close()
