"""Who belongs to a hub: the list that its founder signs, and the invitations by which a host gets onto it.

A host's key is made on that host and never leaves it, so it tells apart what was called by the same name before and
after: a name that is revoked and invited again has another key. A token holds a secret of its own, which is good for
one thing: to ask the founder, once, to put a key onto the list.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError
from mailboxd.formats.keys import PrivateKey, PublicKey
from mailboxd.hub.wire.names import is_host
from mailboxd.hub.wire.signed_json import signed_json, verified_json

_TOKEN, _OLDER = "mailboxd-hub-2.", "mailboxd-hub-1."  # what a token begins with
MOST_TOKEN = 65_536
EVERY = "*"
"""Every pool."""


# The list of hosts


@dataclass(frozen=True, slots=True)
class Members:
    """The hosts of a hub, their public keys and the pools that they may serve, signed by its founder.

    A higher version replaces a lower one.
    """

    version: int = 0
    hosts: Mapping[str, Any] = field(default_factory=dict)
    """`{"key": ..., "pools": [...]}` by name; in older lists only the key, of a host for all pools."""
    signature: str = ""

    def content(self) -> bytes:
        return json.dumps({"version": self.version, "hosts": dict(self.hosts)}, sort_keys=True).encode()

    def signed(self, founder: PrivateKey) -> Members:
        return replace(self, signature=founder.sign(self.content()))

    def key(self, host: str) -> PublicKey | None:
        found = self.hosts.get(host)
        return None if found is None else PublicKey.parse(found if isinstance(found, str) else found["key"])

    def pools(self, host: str) -> tuple[str, ...]:
        """The roles of the pools that a host may serve; `*` = every one."""
        found = self.hosts.get(host, {"pools": ()})
        return (EVERY,) if isinstance(found, str) else tuple(found["pools"])

    def may_serve(self, host: str, role: str) -> bool:
        return not {EVERY, role.lower()}.isdisjoint(self.pools(host))

    def serving(self, role: str) -> tuple[str, ...]:
        """The hosts that may serve a pool."""
        return tuple(host for host in sorted(self.hosts) if self.may_serve(host, role))

    def changed(self, host: str, key: PublicKey | None, pools: tuple[str, ...] = ()) -> Members:
        """The next list, unsigned: with this host, or without it if it has no key."""
        named = {one: (self.key(one), self.pools(one)) for one in self.hosts} | {host: (key, pools)}
        hosts = {one: {"key": str(its), "pools": [*roles]} for one, (its, roles) in named.items() if its is not None}
        return Members(self.version + 1, hosts)

    @classmethod
    def verified(cls, found: object, founder: PublicKey) -> Members | None:
        """The list, if the founder signed it."""
        try:
            members = cls(**found)  # type: ignore[arg-type]
            fine = founder.has_signed(members.content(), members.signature) and all(map(is_host, members.hosts))
            for host in members.hosts:
                members.key(host)
                fine = fine and all(role == EVERY or is_id(role) for role in members.pools(host))
        except (TypeError, ValueError, AttributeError, KeyError):
            return None
        return members if fine else None


def contradiction(own: Members, said: Members) -> str:
    """How the list that the founder says contradicts this one, which it has signed, too; empty if it does not."""
    if said.version > own.version or (said.version, said.content()) == (own.version, own.content()):
        return ""
    return (
        f"the founder says version {said.version} of the list of hosts, and has signed another one of version "
        f"{own.version}, which counts here: the founder's host was restored from a backup, or copied. Stop its hub "
        f"process, copy hosts.json of this host to it, start it, and invite or revoke again what is then amiss"
    )


# Invitations


@dataclass(frozen=True, slots=True)
class Invitation:
    """All that a host needs to ask the founder to be let in: what a token holds. It holds no key of a host."""

    host: str
    servers: tuple[str, ...]
    founder: str
    secret: str
    """The private key of the invitation: the server lets its holder ask, and do nothing else."""
    certificate: str

    def token(self) -> str:
        packed = zlib.compress(json.dumps(asdict(self)).encode(), 9)
        return _TOKEN + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Raises ConfigError."""
        body = "".join(text.split())
        if body.startswith(_OLDER):
            raise ConfigError(
                "this token is of an older mailboxd and no longer good; `mailboxd hub invite HOST` prints one"
            )
        try:
            if not body.startswith(_TOKEN) or len(body) > MOST_TOKEN:
                raise ValueError
            encoded = body.removeprefix(_TOKEN)
            packed = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            found = cls(**json.loads(zlib.decompressobj().decompress(packed, MOST_TOKEN)))
            PrivateKey.parse(found.secret)
            PublicKey.parse(found.founder)
        except (ValueError, TypeError, AttributeError, zlib.error, binascii.Error):
            raise ConfigError("this is not a complete token; `mailboxd hub invite HOST` prints one") from None
        return replace(found, servers=tuple(found.servers))

    def request(self, own: PrivateKey) -> bytes:
        """What a host asks with: its new key, signed with the invitation's, and a proof that it has that key."""
        content = {"host": self.host, "key": str(own.public), "proof": own.sign(_proof(self.host, self.key))}
        return signed_json(PrivateKey.parse(self.secret), content)

    @property
    def key(self) -> PublicKey:
        return PrivateKey.parse(self.secret).public

    def answer(self, raw: bytes, own: PublicKey) -> Members | str | None:
        """The list with this host, or why the founder refuses; None if the founder does not say so to this key."""
        content = verified_json(raw, PublicKey.parse(self.founder)) or {}
        if content.get("key") != str(own):
            return None
        if refused := content.get("refused"):
            return str(refused)
        members = Members.verified(content.get("members"), PublicKey.parse(self.founder))
        return members if members is not None and members.key(self.host) == own else None


def _proof(host: str, invitation: PublicKey) -> bytes:
    return f"key of {host} for the invitation {invitation}".encode()


@dataclass(frozen=True, slots=True)
class Invited:
    """An invitation as the founder remembers it. One that was used is kept as long as its host is in the hub."""

    key: str
    until: str
    """When it expires, unless it has been used."""
    pools: tuple[str, ...] = ()
    used_by: str = ""
    """The public key that it has put onto the list."""
    refused: str = ""
    """When another host asked with it last."""

    def is_over(self, now: str) -> bool:
        return not self.used_by and to_epoch(now) > to_epoch(self.until)

    def asker(self, host: str, raw: bytes) -> PublicKey | None:
        """The key with which a host asks to be let in, if it has this invitation and that key."""
        content = verified_json(raw, PublicKey.parse(self.key)) or {}
        try:
            key = PublicKey.parse(content["key"])
            fine = content["host"] == host and key.has_signed(_proof(host, PublicKey.parse(self.key)), content["proof"])
        except (KeyError, ValueError, TypeError, AttributeError):
            return None
        return key if fine else None

    def refusal(self, host: str, key: PublicKey, now: str) -> str:
        """Why this key is not let in; empty if it is, also when it asks again."""
        if self.used_by and self.used_by != str(key):
            return f"another host has joined as {host} with this token; each host needs one of its own"
        return f"the token expired at {self.until}" if self.is_over(now) else ""


def answered(founder: PrivateKey, key: PublicKey, said: Members | str) -> bytes:
    """The founder's answer to a host that asks: the list, or why it is refused."""
    told = {"refused": said} if isinstance(said, str) else {"members": asdict(said)}
    return signed_json(founder, {"key": str(key), **told})


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
