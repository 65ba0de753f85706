"""Becoming, and being, a device of the gateway: what `mailboxd gateway` does."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mailboxd.agents.gateway import pairing
from mailboxd.agents.gateway.address import checked
from mailboxd.agents.gateway.client import Client, NotAdmitted
from mailboxd.agents.gateway.connection import NotConnected
from mailboxd.agents.gateway.pairing import Device, Pairing
from mailboxd.agents.jsonout import at, text_at
from mailboxd.clock import Clock
from mailboxd.errors import ConfigError, UnavailableError

_PAIRING_REQUIRED = "PAIRING_REQUIRED"
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class Standing:
    """What the gateway lets this device do."""

    pairing: Pairing
    version: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A person has to approve the device: `openclaw devices approve <request>`, on the gateway's host."""

    pairing: Pairing
    request: str


def enrol(path: Path, url: str, agent: str, secret: str, clock: Clock) -> Standing | Waiting:
    """Make this workspace a device of the gateway at `url`, or ask for it; `secret` is the gateway's own token.

    A gateway approves devices on its own machine by itself, unless it is configured not to. The key stays the same
    when this is repeated, so that a request which waits for approval remains the same one. Raises ConfigError when the
    gateway refuses, UnavailableError when it is not there, WorldError.
    """
    address = checked(url)
    before = pairing.read(path)
    device = before.device if before is not None else Device.new()
    kept = before.token if before is not None and before.url == url else None
    asking = Pairing(url, f"mailboxd {agent} {device.id[:8]}", device, kept)
    if before is None:  # a pairing that works stays until there is another one
        pairing.write(path, asking)
    try:
        with Client(address, asking, secret or kept or "", clock) as client:
            token = text_at(client.hello, "auth", "deviceToken")
    except NotAdmitted as error:
        if error.problem.detail == _PAIRING_REQUIRED and _REQUEST.fullmatch(error.problem.request_id):
            return Waiting(asking, error.problem.request_id)
        hint = "give the gateway's token with --token-file FILE or in OPENCLAW_GATEWAY_TOKEN"
        raise ConfigError(f"{url}: {error.problem.message}; {hint}") from error
    except NotConnected as error:
        raise UnavailableError(f"there is no gateway at {url}: {error}") from error
    if not token:
        raise ConfigError(f"{url}: the gateway took the device but gave it no token: pairing does not work there")
    paired = replace(asking, token=token)
    pairing.write(path, paired)
    return standing(paired, clock)


def standing(paired: Pairing, clock: Clock) -> Standing:
    """Connect as a turn does. Raises ConfigError when the gateway refuses, UnavailableError when it is not there."""
    try:
        with Client(checked(paired.url), paired, paired.token or "", clock) as client:
            return Standing(paired, text_at(client.hello, "server", "version"), _scopes(client.hello))
    except NotAdmitted as error:
        raise ConfigError(f"{paired.url}: {error.problem.message}; pair again with `mailboxd gateway pair`") from error
    except NotConnected as error:
        raise UnavailableError(f"there is no gateway at {paired.url}: {error}") from error


def _scopes(hello: dict[str, Any]) -> tuple[str, ...]:
    found = at(hello, "auth", "scopes")
    return tuple(scope for scope in found if isinstance(scope, str)) if isinstance(found, list) else ()
