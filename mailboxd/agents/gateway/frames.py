"""The frames of OpenClaw's gateway protocol, version 4, as far as a turn needs them. Pure.

OpenClaw's docs/gateway/protocol/ says it all: a request `{type: req, id, method, params}` is answered by
`{type: res, id, ok, payload | error}`; `agent` is answered twice, first "accepted" and then with the run's end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PROTOCOL = 4
SCOPES = ("operator.write",)
"""The least that runs and aborts a turn; it includes reading. `operator.admin` could configure OpenClaw as well."""

_CLIENT = "cli"
_VERSION = "1"
"""Of this client: to ask for mailboxd's own costs as much as the rest of the start."""
_ROLE = "operator"
_CAPABILITIES = ("session-scoped-events",)
"""Asks the gateway to spare us the events of sessions that we have not subscribed to, which is all of them."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the gateway wants to see signed."""

    nonce: str
    at: int


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who connects. `token`: the device's own, the gateway's shared one when pairing, or empty."""

    device_id: str
    public_key: str
    name: str
    platform: str
    token: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the gateway refused a request."""

    code: str
    message: str
    detail: str
    """`details.code`, like PAIRING_REQUIRED; empty if there is none."""
    request_id: str
    """Of the pairing that waits for approval; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to a request of ours."""

    id: str
    payload: dict[str, Any]
    problem: Problem | None
    """None: it was done."""


def challenge_in(text: str) -> Challenge | None:
    """The challenge that a gateway begins with, if this frame is it."""
    frame = _object(text)
    payload = frame.get("payload")
    if frame.get("event") != "connect.challenge" or not isinstance(payload, dict):
        return None
    nonce, at = payload.get("nonce"), payload.get("ts")
    return Challenge(nonce, at) if isinstance(nonce, str) and nonce and type(at) is int and at >= 0 else None


def signed_text(who: Introduction, challenge: Challenge) -> str:
    """What the device signs: version 3 of the payload, with the platform and an empty device family at its end."""
    scopes = ",".join(SCOPES)
    who_and_what = (who.device_id, _CLIENT, _CLIENT, _ROLE, scopes, str(challenge.at), who.token, challenge.nonce)
    return "|".join(("v3", *who_and_what, who.platform.lower(), ""))


def connect(who: Introduction, challenge: Challenge, sign: Callable[[str], str]) -> str:
    """The first request."""
    client = {
        "id": _CLIENT,
        "mode": _CLIENT,
        "displayName": who.name,
        "version": _VERSION,
        "platform": who.platform,
    }
    device = {
        "id": who.device_id,
        "publicKey": who.public_key,
        "signature": sign(signed_text(who, challenge)),
        "signedAt": challenge.at,
        "nonce": challenge.nonce,
    }
    params: dict[str, Any] = {
        "minProtocol": PROTOCOL,
        "maxProtocol": PROTOCOL,
        "client": client,
        "role": _ROLE,
        "scopes": list(SCOPES),
        "caps": list(_CAPABILITIES),
        "device": device,
    }
    if who.token:
        params["auth"] = {"token": who.token}
    return request("connect", "connect", params)


def request(request_id: str, method: str, params: Mapping[str, object]) -> str:
    """Not escaped beyond what JSON wants, so that a message is not sent at several times its size."""
    return json.dumps({"type": "req", "id": request_id, "method": method, "params": params}, ensure_ascii=False)


def response_in(text: str) -> Response | None:
    """The response in a frame; None for events and for what we do not understand."""
    frame = _object(text)
    request_id, ok = frame.get("id"), frame.get("ok")
    if frame.get("type") != "res" or not isinstance(request_id, str) or not isinstance(ok, bool):
        return None
    payload = frame.get("payload")
    return Response(request_id, payload if isinstance(payload, dict) else {}, None if ok else _problem(frame))


def _problem(frame: Mapping[str, Any]) -> Problem:
    error = frame.get("error")
    error = error if isinstance(error, dict) else {}
    details = error.get("details")
    details = details if isinstance(details, dict) else {}
    return Problem(
        _text(error, "code"),
        _text(error, "message") or "the gateway gave no reason",
        _text(details, "code"),
        _text(details, "requestId"),
    )


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _object(text: str) -> dict[str, Any]:
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}
