"""One HTTP request: no redirect is followed, no proxy is asked, and what was sent without an answer is unknown."""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from mailboxd.actions.result import REPORT, End, Impossible, require_possible
from mailboxd.core.approvals import Action, Performed
from mailboxd.core.sanitize import first_line

KEY_HEADER = "Idempotency-Key"
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect", KEY_HEADER.lower()})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLAIN_URL = re.compile(r"[\x21-\x7e]+")


def checked(action: Action) -> None:
    """Raise Impossible for a request that cannot be sent as it is declared; its variables are another's to check."""
    try:
        url = urlsplit(action.url)
        port_fits = url.port is None or url.port > 0
    except ValueError as error:
        raise Impossible(f"{action.url} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.hostname or not port_fits or not _PLAIN_URL.fullmatch(action.url):
        raise Impossible(f"{action.url} is no http or https URL in plain ASCII")
    if url.username is not None or url.password is not None:
        raise Impossible(
            f"the URL has a name or password in it; put `${{NAME}}` into a header instead ({url.hostname})"
        )
    if not _TOKEN.fullmatch(action.method) or action.method.upper() == "CONNECT":
        raise Impossible(f"{action.method!r} is no method")
    for name, value in action.headers:
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Impossible(f"the header {name!r} is not one line of plain characters")
        if name.lower() in _OURS:
            raise Impossible(f"the header {name} is not for the action to set")


def request(action: Action, key: str, secrets: Mapping[str, str], seconds: float) -> End:
    """Send it once. `seconds` is for each wait for the other side; whoever calls bounds the whole.

    Raises Impossible: then nothing was sent.
    """
    checked(action)
    url = urlsplit(action.url)
    body = action.body.encode()
    headers = {name: _filled(name, value, secrets) for name, value in action.headers}
    headers |= {KEY_HEADER: key, "Content-Length": str(len(body)), "Connection": "close"}
    if not body and action.method.upper() in ("GET", "HEAD", "DELETE", "OPTIONS", "TRACE"):
        del headers["Content-Length"]
    place = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = url.hostname or ""
    try:
        connection = (
            http.client.HTTPSConnection(host, url.port, timeout=seconds, context=ssl.create_default_context())
            if url.scheme == "https"
            else http.client.HTTPConnection(host, url.port, timeout=seconds)
        )
        connection.connect()
    except (OSError, ValueError) as error:  # ValueError: a name that is no host
        _require_descriptors(host)  # who looks up a name without any says that there is no such host
        return End(
            Performed.FAILED, f"no connection, nothing was sent: {first_line(str(error)) or type(error).__name__}"
        )
    try:
        return _sent(connection, action.method, place, body, headers)
    finally:
        connection.close()


def _require_descriptors(host: str) -> None:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        require_possible(host, problem)


def _sent(
    connection: http.client.HTTPConnection, method: str, place: str, body: bytes, headers: Mapping[str, str]
) -> End:
    """From the first byte on: without a whole status line and headers nobody knows."""
    try:
        connection.request(method, place, body or None, dict(headers))
        response = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        why = first_line(str(error)) or type(error).__name__
        return End(Performed.UNKNOWN, f"sent, or a part of it, and no answer came: {why}")
    status = response.status
    said = f"{status} {first_line(response.reason, 80)}".strip()
    report = f"HTTP {said}\n{_beginning(response)}"
    if 200 <= status < 300:
        return End(Performed.DONE, said, report)
    if 400 <= status < 500:
        return End(Performed.FAILED, f"refused: {said}", report)
    if 300 <= status < 400:
        where = first_line(response.getheader("Location") or "nowhere")
        return End(Performed.UNKNOWN, f"{said}: it points to {where}, and redirects are not followed", report)
    return End(Performed.UNKNOWN, f"the server failed: {said}", report)


def _beginning(response: http.client.HTTPResponse) -> str:
    """What of the body can be had; the status is known already."""
    try:
        return response.read(REPORT).decode("utf-8", "replace").replace("\0", "")
    except (OSError, http.client.HTTPException) as error:
        return f"(its body could not be read: {type(error).__name__})"


def _filled(name: str, value: str, secrets: Mapping[str, str]) -> str:
    filled = _NAMED.sub(lambda found: secrets[found[1]], value)
    if not _VALUE.fullmatch(filled):
        raise Impossible(f"the header {name} would not be one line of plain characters, with its variables filled in")
    return filled
