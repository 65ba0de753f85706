"""One HTTP request: no redirects, no proxy. Once anything was sent, a missing response means UNKNOWN.

Its method, address and headers were checked when it was declared (`protocol.spec`).
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from mailboxd.core.approvals import Action, Performed
from mailboxd.core.sanitize import first_line
from mailboxd.perform.actions.result import REPORT, ActionResult, Impossible, raise_if_transient

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def request(action: Action, key: str, secrets: Mapping[str, str], seconds: float) -> ActionResult:
    """Send it once. `seconds` limits each wait for the server; the caller limits the total.

    Raises Impossible if nothing was sent.
    """
    url = urlsplit(action.url)
    body = action.body.encode()
    headers = {name: _fill(name, value, secrets) for name, value in action.headers}
    headers |= {"Idempotency-Key": key, "Content-Length": str(len(body)), "Connection": "close"}
    if not body and action.method.upper() in ("GET", "HEAD", "DELETE", "OPTIONS", "TRACE"):
        del headers["Content-Length"]
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = url.hostname or ""
    try:
        connection = (
            http.client.HTTPSConnection(host, url.port, timeout=seconds, context=ssl.create_default_context())
            if url.scheme == "https"
            else http.client.HTTPConnection(host, url.port, timeout=seconds)
        )
        connection.connect()
    except (OSError, ValueError) as error:  # ValueError: an invalid host name
        _require_descriptors(host)  # without descriptors a lookup reports an unknown host
        return ActionResult(
            Performed.FAILED, f"no connection, nothing was sent: {first_line(str(error)) or type(error).__name__}"
        )
    try:
        return _exchange(connection, action.method, path, body, headers)
    finally:
        connection.close()


def _require_descriptors(host: str) -> None:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        raise_if_transient(host, problem)


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> ActionResult:
    """Send the request and judge the response; without complete headers the result is unknown."""
    try:
        connection.request(method, path, body or None, dict(headers))
        response = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        why = first_line(str(error)) or type(error).__name__
        return ActionResult(Performed.UNKNOWN, f"it was sent at least in part, and no response came: {why}")
    status = response.status
    line = f"{status} {first_line(response.reason, 80)}".strip()
    report = f"HTTP {line}\n{_beginning(response)}"
    if 200 <= status < 300:
        return ActionResult(Performed.DONE, line, report)
    if 400 <= status < 500:
        return ActionResult(Performed.FAILED, f"refused: {line}", report)
    if 300 <= status < 400:
        where = first_line(response.getheader("Location") or "nowhere")
        return ActionResult(Performed.UNKNOWN, f"{line}: it redirects to {where}, which is not followed", report)
    return ActionResult(Performed.UNKNOWN, f"the server failed: {line}", report)


def _beginning(response: http.client.HTTPResponse) -> str:
    """The beginning of the body; the status is already known."""
    try:
        return response.read(REPORT).decode("utf-8", "replace").replace("\0", "")
    except (OSError, http.client.HTTPException) as error:
        return f"(its body could not be read: {type(error).__name__})"


def _fill(name: str, value: str, secrets: Mapping[str, str]) -> str:
    filled = _VARIABLE.sub(lambda found: secrets[found[1]], value)
    if not _VALUE.fullmatch(filled):
        raise Impossible(f"the header {name} is not one line of plain characters once its variables are filled in")
    return filled
