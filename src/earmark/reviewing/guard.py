"""Access control: checks of every request before the application receives it, and headers of every response.

The address of a review contains a random token, which grants permission to read the recordings and to judge them.
Requests to other host names are rejected, so that no other site can reach the server through a name that it controls
(DNS rebinding), and so are requests that other sites make a browser send.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from earmark.files import json_text

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 2 << 20
"""Size of a request."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """Wraps an application: checks the token, host and origin of requests, and adds headers to responses.

    `token` is the first part of every path; with None, no token is required. `host` is the name or address that the
    server listens on.
    """

    def __init__(self, app: Application, *, token: str | None, host: str, port: int) -> None:
        self.app, self.token, self.host, self.port = app, token, host, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        problem = self._problem(scope, headers)
        if problem is not None:
            await _refuse(send, *problem)
            return
        path = scope["path"]
        if self.token is not None:
            path = path[len(self.token) + 1 :] or "/"
        limited = _limited(receive)

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self.app({**scope, "path": path, "raw_path": path.encode()}, limited, with_headers)

    def _problem(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and message of a refusal; None if the request is fine."""
        host = headers.get("host", "")
        if not self._is_this_server(host):
            return 403, f"host {host!r:.80} is not this server; open the address that earmark review printed"
        if self.token is not None:
            first = scope["path"].split("/")[1] if "/" in scope["path"] else ""
            if not secrets.compare_digest(first.encode(), self.token.encode()):
                return 403, "this address lacks the token; open the address that earmark review printed"
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return 403, "requests from other sites are refused"
        is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":  # a link in a message or notebook may be opened
            return 403, "requests from other sites are refused"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, f"method {scope['method']!r:.20} is not supported"
        if scope["method"] == "POST":
            if headers.get("content-type", "").split(";")[0].strip() != "application/json":
                return 415, "expected a JSON document (content-type: application/json)"
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                return 413, f"expected at most {MOST_BYTES >> 20} MiB with a content-length"
        return None

    def _is_this_server(self, value: str) -> bool:
        """Whether a Host header names this server."""
        name, _, port = value.rpartition(":")
        if not port.isdecimal() or value.endswith("]"):
            name, port = value, "80"
        if port != str(self.port):
            return False
        name = name.strip("[]").lower()
        if name in ("localhost", self.host.lower()):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return not is_loopback(self.host) and name == socket.gethostname().lower()
        return address.is_loopback or not is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _limited(receive: Receive) -> Receive:
    """The same request, cut off with an error if its body is longer than `MOST_BYTES`."""
    total = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        return {"type": "http.disconnect"} if total > MOST_BYTES else message

    return limited


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json_text({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
