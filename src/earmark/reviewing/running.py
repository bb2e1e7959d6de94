"""Start and stop the server of a review."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING

from earmark.audio import AnyPath
from earmark.errors import ArgumentError, DataError, MissingExtraError
from earmark.reviewing.guard import is_loopback
from earmark.reviewing.source import Source, open_source
from earmark.reviewing.state import Review

if TYPE_CHECKING:
    import uvicorn

    from earmark.reviewing.server import Session

PORT = 8377
"""The port that is tried first; if it is taken, the system chooses."""

_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True)
class Address:
    """Where a server listens, and who may use it.

    By default, only this machine can reach it, with a random token in the address. Another `host` needs a `token` of
    at least 16 letters and digits, or `allow_anyone`.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = None
    allow_anyone: bool = False

    def checked_token(self) -> str | None:
        """The token, or None if none is required."""
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ArgumentError(f"port: expected 0 to 65535, got {self.port}")
        if self.allow_anyone:
            if self.token is not None:
                raise ArgumentError("--token and --allow-anyone cannot be combined; use one of them")
            return None
        if self.token is not None and (len(self.token) < 16 or not _TOKEN.issuperset(self.token)):
            raise ArgumentError("--token: expected at least 16 letters, digits, hyphens and underscores")
        if self.token is None and not is_loopback(self.host):
            raise ArgumentError(
                f"--host {self.host}: other machines could reach this review; give --token TOKEN, or --allow-anyone"
            )
        return self.token or secrets.token_urlsafe(18)


class ReviewServer:
    """A running server of a review. Use it as a context manager, or call `stop`.

    >>> server = ReviewServer(source, Address())  # doctest: +SKIP
    >>> server.url  # doctest: +SKIP
    'http://127.0.0.1:8377/oDZz0c4tWmPnVxkY3Jb1sQaE/'
    """

    def __init__(self, source: Source, address: Address) -> None:
        token = address.checked_token()
        self.review = Review(source)
        self._socket = _listen(address)
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}/" + (f"{token}/" if token else "")
        self._session, self._server = _create(self.review, token, address.host, port)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="review", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._server.started:
            raise DataError("the server of the review could not be started")
        if self.review.number:  # the table may be older than the journal, if the last server was killed
            self._session.writer.notify()

    def __enter__(self) -> ReviewServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<ReviewServer: {self.url}>"

    def wait(self) -> None:
        """Wait until the server stops; Ctrl-C raises KeyboardInterrupt."""
        while self._thread.is_alive():
            time.sleep(0.2)  # before Python 3.13, Ctrl-C during a join makes a running thread count as ended

    def stop(self) -> None:
        """Stop the server; verdicts.csv is up to date afterwards."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._session.close()


def start_review(
    place: AnyPath,
    *,
    labels: AnyPath | None = None,
    out: AnyPath | None = None,
    address: Address | None = None,
    browser: bool = True,
) -> ReviewServer:
    """Serve a review; see `earmark.review`."""
    try:
        import fastapi
        import uvicorn

        del fastapi, uvicorn
    except ImportError as error:
        raise MissingExtraError("earmark review", "review") from error
    address = address or Address()
    address.checked_token()  # before reading recordings
    server = ReviewServer(open_source(place, labels=labels, out=out), address)
    if browser:
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    return server


def _create(review: Review, token: str | None, host: str, port: int) -> tuple[Session, uvicorn.Server]:
    import uvicorn

    from earmark.reviewing.guard import Guard
    from earmark.reviewing.labels import TableWriter
    from earmark.reviewing.server import Session, create_app
    from earmark.reviewing.tiles import TileCache

    session = Session(review, TileCache(), TableWriter(review))
    app = Guard(create_app(session), token=token, host=host, port=port)
    config = uvicorn.Config(app, log_level="critical", access_log=False, server_header=False, timeout_keep_alive=30)
    config.timeout_graceful_shutdown = 2
    return session, uvicorn.Server(config)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    ports = (PORT, 0) if address.port is None else (address.port,)
    reason = ""
    for port in ports:
        listener = socket.socket(family)
        if os.name == "posix":  # where it lets a port be used again soon; on Windows, by two servers at once
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.host, port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
    raise ArgumentError(f"cannot listen on {address.host}, port {ports[-1]}: {reason}")
