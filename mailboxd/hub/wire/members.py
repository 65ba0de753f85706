"""Who belongs to a hub: the list of hosts and keys that its founder signs, and tokens that let a host join."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mailboxd.errors import ConfigError
from mailboxd.hub.wire.names import is_host
from mailboxd.keys import PrivateKey, PublicKey

_INVITATION = "mailboxd-hub-1."  # what a token begins with
MOST_TOKEN = 65_536


# The list of hosts


@dataclass(frozen=True, slots=True)
class Members:
    """The hosts of a hub and their public keys, signed by its founder. A higher version replaces a lower one."""

    version: int = 0
    hosts: Mapping[str, str] = field(default_factory=dict)
    signature: str = ""

    def content(self) -> bytes:
        return json.dumps({"version": self.version, "hosts": dict(self.hosts)}, sort_keys=True).encode()

    def signed(self, founder: PrivateKey) -> Members:
        return replace(self, signature=founder.sign(self.content()))

    def key(self, host: str) -> PublicKey | None:
        text = self.hosts.get(host)
        return None if text is None else PublicKey.parse(text)

    def may_serve(self, host: str, role: str) -> bool:
        """Whether a host may serve a pool."""
        return host in self.hosts and bool(role)

    def serving(self, role: str) -> tuple[str, ...]:
        """The hosts that may serve a pool."""
        return tuple(sorted(host for host in self.hosts if self.may_serve(host, role)))

    @classmethod
    def verified(cls, found: object, founder: PublicKey) -> Members | None:
        """The list, if the founder signed it."""
        try:
            members = cls(**found)  # type: ignore[arg-type]
            fine = founder.has_signed(members.content(), members.signature) and all(map(is_host, members.hosts))
            _ = [PublicKey.parse(key) for key in members.hosts.values()]
        except (TypeError, ValueError, AttributeError):
            return None
        return members if fine else None


# Tokens


@dataclass(frozen=True, slots=True)
class Invitation:
    """All that a host needs to join. It contains the host's private key."""

    host: str
    servers: tuple[str, ...]
    founder: str
    key: str
    certificate: str
    members: Mapping[str, Any]

    def token(self) -> str:
        packed = zlib.compress(json.dumps(asdict(self)).encode(), 9)
        return _INVITATION + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Raises ConfigError."""
        body = "".join(text.split())
        try:
            if not body.startswith(_INVITATION) or len(body) > MOST_TOKEN:
                raise ValueError
            encoded = body.removeprefix(_INVITATION)
            packed = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            return cls(**json.loads(zlib.decompressobj().decompress(packed, MOST_TOKEN)))
        except (ValueError, TypeError, zlib.error, binascii.Error):
            raise ConfigError("this is not a complete token; `mailboxd hub invite HOST` prints one") from None


# NKeys: a prefix, the key and a checksum in base32

_USER, _SEED = 20 << 3, 18 << 3


def nkey(key: PublicKey) -> str:
    """The public key as NATS writes a user's."""
    return _checked(bytes([_USER]) + key.raw)


def nkey_seed(key: PrivateKey) -> str:
    """The private key as NATS writes a user's."""
    return _checked(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + key.seed)


def _checked(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).rstrip(b"=").decode()
