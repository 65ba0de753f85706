"""The pairing of a workspace with a gateway: a file that only its owner can read (see `transport.pairing_file`).

    url      the gateway
    name     the name in `openclaw devices list`, unique per workspace
    key      the private Ed25519 key (32 bytes, base64url); the device's id is the SHA-256 of the public key
    token    the device's token, null until the pairing is approved
    scopes   what the device may do; absent: operator.write

Each workspace is its own device, so that each can be revoked separately (docs/decisions/0005).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailboxd.errors import ConfigError
from mailboxd.host.system import system
from mailboxd.perform.agents.call_dir import open_regular, sync, world

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCOPES = ("operator.write",)
"""The least scope that can run and abort turns (`operator.admin` could also configure OpenClaw)."""
_LARGEST = 16_384
_SEED_BYTES = 32


@dataclass(frozen=True)
class Device:
    """A key pair; the private key is never displayed."""

    seed: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Device:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @cached_property
    def id(self) -> str:
        """The device's id: 64 hexadecimal digits."""
        return hashlib.sha256(self._public).hexdigest()

    @property
    def public_key(self) -> str:
        return to_base64url(self._public)

    def sign(self, text: str) -> str:
        return to_base64url(self._key.sign(text.encode()))

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (
            Ed25519PrivateKey,  # 7 MB: not for who reads a scope
        )

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def _public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()


@dataclass(frozen=True, slots=True)
class Pairing:
    """A workspace's pairing with one gateway."""

    url: str
    name: str
    device: Device
    token: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = SCOPES


def read(path: Path) -> Pairing | None:
    """The stored pairing or None. Raises ConfigError if the file is damaged or readable by others, WorldError."""
    with world(path.parent):
        try:
            descriptor = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            raw = file.read(_LARGEST)
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid():
        raise ConfigError(f"{path} holds a private key and others can read it; run `chmod 600 {path}`")
    try:
        return _parsed(json.loads(raw))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged; remove it and run `mailboxd connect gateway pair`") from error


def write(path: Path, pairing: Pairing) -> None:
    """Store it durably, readable by its owner only. Raises WorldError."""
    content = {
        "url": pairing.url,
        "name": pairing.name,
        "key": to_base64url(pairing.device.seed),
        "token": pairing.token,
        "scopes": list(pairing.scopes),
    }
    temporary = path.with_name(f".{path.name}.tmp")
    with world(path.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            system.sync(file.fileno())
        temporary.rename(path)
        sync(path.parent)


def remove(path: Path) -> None:
    """Delete the pairing. Raises WorldError."""
    with world(path.parent):
        path.unlink(missing_ok=True)
        sync(path.parent)


def to_base64url(raw: bytes) -> str:
    """Base64url without padding, as in the protocol."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _parsed(content: Any) -> Pairing:
    seed = base64.b64decode(content["key"] + "=", altchars=b"-_", validate=True)
    url, name, token = content["url"], content["name"], content["token"]
    if len(seed) != _SEED_BYTES or not isinstance(url, str) or not isinstance(name, str):
        raise ValueError("not a pairing")
    if token is not None and not isinstance(token, str):
        raise ValueError("not a token")
    scopes = content.get("scopes", list(SCOPES))
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise ValueError("not scopes")
    return Pairing(url, name, Device(seed), token, tuple(scopes))
