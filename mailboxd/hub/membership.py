"""The members of the hub, and this host's settings. In `$XDG_STATE_HOME/mailboxd/hub/`:

    hub.yaml      this host's name, the server's address, and whom agents may give work to and take it from
    host.key      this host's private key: it signs mail and receipts, and is the NKey by which the server knows it
    hosts.json    the hosts and their public keys, signed by the host that founded the hub
    server.pem    the server's certificate, the only one that is trusted
    server/       on the host that runs the server: its configuration, key and store
    status.json   how it stood with the hub when the hub process was last seen alive
    jobs.json     the jobs of pools that this host holds
    refused/      what arrived and was refused, each with its reason

The founder's key is pinned in hub.yaml. Only the founder invites and revokes; every other host takes a newer list from
its cards, and never an older one.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from mailboxd.config.file import load_section
from mailboxd.config.model import Section, Shown, Whole, number
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.hub.protocol import Address, is_host, role_of
from mailboxd.hub.spool import HEARD, PEERS, SETTINGS
from mailboxd.keys import PrivateKey, PublicKey
from mailboxd.mailbox.files import Stamp
from mailboxd.user_state import UserState

KEY, HOSTS, CERTIFICATE, SERVER = "host.key", "hosts.json", "server.pem", "server"
STATUS, HELD_JOBS = "status.json", "jobs.json"
_INVITATION = "mailboxd-hub-1."  # what a token begins with
MOST_TOKEN = 65_536


# hub.yaml


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        fine = parts.scheme == "tls" and parts.hostname is not None and parts.username is None and parts.path == ""
        fine = fine and parts.port is not None
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("write the server's address, like tls://hub.example.org:4222")
    return value


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and 0 < int(port) < 65_536):
        raise ValueError("write an address and a port, like 0.0.0.0:4222")
    return value


def _host(value: str) -> str:
    if not is_host(value):
        raise ValueError("write a host's name: 1 to 63 of a-z 0-9 -, neither first nor last a hyphen")
    return value


def _host_or_all(value: str) -> str:
    return value if value == "*" else _host(value)


def _founder(value: str) -> str:
    PublicKey.parse(value)
    return value


def _pattern(value: str) -> str:
    named = value.replace("*", "x")
    if value != "*" and Address.parse(named) is None and not role_of(named):
        raise ValueError("write an agent of a host, like beta.writer, a pool, like pool:reviewer, or beta.* or *")
    return value


def _id(value: str) -> str:
    if not is_id(value):
        raise ValueError("write an id: 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without ..")
    return value


def _role(value: str) -> str:
    return _id(value).lower()


def _sequence(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Patterns = Annotated[
    tuple[Annotated[str, AfterValidator(_pattern)], ...],
    BeforeValidator(_sequence),
    Field(max_length=1_000),
    Shown.VALUE,
]
Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_host_or_all)], ...],
    BeforeValidator(_sequence),
    Field(max_length=1_000),
    Shown.VALUE,
]
Servers = Annotated[
    tuple[Annotated[str, AfterValidator(_url)], ...],
    BeforeValidator(_sequence),
    Field(min_length=1, max_length=9),
    Shown.HIDDEN,
]


class PoolSettings(Section):
    """This host's part in a pool."""

    agent: Annotated[str, AfterValidator(_id), Shown.VALUE] = Field(description="The agent here that does the work.")
    slots: Whole = number(1, "jobs", 1, 1_000, "Jobs that it takes at a time.")


class HubSettings(Section):
    """This host's part in a hub: hub.yaml."""

    host: Annotated[str, AfterValidator(_host), Shown.VALUE] = Field(description="This host's name in the hub.")
    servers: Servers = Field(description="Addresses of the server, or of the servers of a cluster.")
    founder: Annotated[str, AfterValidator(_founder), Shown.VALUE] = Field(
        description="Public key of the host that founded it."
    )
    send: Patterns = Field((), description="Agents of other hosts to which agents here may give work.")
    accept: Patterns = Field((), description="Agents of other hosts whose work agents here take.")
    pools: Annotated[dict[Annotated[str, AfterValidator(_role)], PoolSettings], Field(max_length=100)] = Field(
        {}, description="Pools that this host serves, by role."
    )
    show: Hosts = Field((), description="Hosts that may see what waits for a person here, and search.")
    decide: Hosts = Field((), description="Hosts from which a person may approve, answer and cancel here.")

    listen: Annotated[str, AfterValidator(_listen), Shown.HIDDEN] = Field(
        "", description="Where this host's server listens, if any."
    )
    replicas: Whole = number(1, "servers", 1, 5, "Servers that hold each message; the founder's counts.")

    def text(self) -> str:
        """The file, with its comments."""
        names = ("servers", "send", "accept", "show", "decide")
        lists = {name: "[" + ", ".join(f'"{one}"' for one in getattr(self, name)) + "]" for name in names}
        pools = {role: pool.model_dump() for role, pool in self.pools.items()}
        server = f"listen: {self.listen}\nreplicas: {self.replicas}\n" if self.listen else ""
        return (
            "# This host's part in the hub; `mailboxd hub run` reads it again when it has changed.\n"
            f"host: {self.host}\nservers: {lists['servers']}\nfounder: {self.founder}\n{server}\n"
            '# To whom agents here may give work, and whose work they take: [beta.writer], [beta.*], ["*"].\n'
            f"send: {lists['send']}\naccept: {lists['accept']}\n\n"
            "# Pools whose work an agent here does, so many jobs at a time: {reviewer: {agent: rev, slots: 2}}.\n"
            f"pools: {json.dumps(pools)}\n\n"
            "# Hosts that may see what waits for a person here and search, and hosts from which a person may decide.\n"
            f"show: {lists['show']}\ndecide: {lists['decide']}\n"
        )


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


# This host


@dataclass(frozen=True, slots=True)
class Membership:
    """This host's files in the user's state directory."""

    state: UserState

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Membership:
        return cls(UserState.of(environ, "hub"))

    @property
    def folder(self) -> Path:
        return self.state.folder

    def exists(self) -> bool:
        return (self.folder / SETTINGS).exists()

    def settings(self) -> HubSettings:
        """Raises UnavailableError if this host belongs to no hub, ConfigError, WorldError."""
        if not self.exists():
            how = "see `mailboxd hub init --help` to found one, `mailboxd hub join --help` to join one"
            raise UnavailableError(f"this host belongs to no hub; {how}")
        return load_section(self.folder / SETTINGS, HubSettings)

    def key(self) -> PrivateKey:
        """Raises ConfigError if it is missing, damaged or readable by others, WorldError."""
        raw = self.state.read(KEY)
        try:
            return PrivateKey.parse((raw or b"").decode("ascii"))
        except ValueError as error:
            path = self.folder / KEY
            raise ConfigError(
                f"{path} is missing or damaged; restore it, or leave the hub and join it again"
            ) from error

    def certificate(self) -> str:
        return (self.state.read(CERTIFICATE, secret=False) or b"").decode()

    def members(self, founder: str) -> Members:
        """Raises ConfigError if the list is damaged or not the founder's, WorldError."""
        raw = self.state.read(HOSTS, secret=False) or b"null"
        found: object = None
        with suppress(ValueError):
            found = json.loads(raw)
        members = Members.verified(found, PublicKey.parse(founder))
        if members is None:
            raise ConfigError(f"{self.folder / HOSTS} is not signed by the hub's founder; restore it, or join again")
        return members

    def join(self, invitation: Invitation, allowed: Mapping[str, tuple[str, ...]], listen: str = "") -> HubSettings:
        """Write this host's files; `allowed` are the lists of hub.yaml.

        Raises Refused if it belongs to a hub already, ConfigError, WorldError.
        """
        if self.exists():
            hint = "Run `mailboxd hub leave` first."
            raise Refused("hub-exists", f"this host belongs to a hub already: {self.folder}", hint)
        try:
            named = {"host": invitation.host, "founder": invitation.founder, "servers": tuple(invitation.servers)}
            settings = HubSettings.model_validate({**named, **allowed, "listen": listen})
            key = PrivateKey.parse(invitation.key)
        except ValueError as error:
            raise ConfigError(f"the token is damaged: {error}") from error
        members = Members.verified(dict(invitation.members), PublicKey.parse(settings.founder))
        if members is None or members.key(settings.host) != key.public:
            raise ConfigError("the token is damaged: its list of hosts does not have its key")
        with self.state.writing() as folder:
            self.state.write(folder, KEY, key.file_text().encode())
            self.state.write(folder, CERTIFICATE, invitation.certificate.encode())
            self.state.write(folder, HOSTS, json.dumps(asdict(members)).encode())
            self.state.write(folder, SETTINGS, settings.text().encode())  # last: with it, the host belongs to the hub
        return settings

    def update(self, members: Members) -> None:
        """Keep a newer list of hosts. Raises WorldError."""
        with self.state.writing() as folder:
            self.state.write(folder, HOSTS, json.dumps(asdict(members)).encode())

    def leave(self) -> list[Path]:
        """Remove this host's files; returns them. A server's store is kept. Raises WorldError."""
        names = (SETTINGS, KEY, HOSTS, CERTIFICATE, PEERS, HEARD, STATUS, HELD_JOBS)
        gone = [self.folder / name for name in names if (self.folder / name).exists()]
        with self.state.writing() as folder:
            for path in gone:
                os.unlink(path.name, dir_fd=folder)
        return gone

    def change_hosts(self, host: str, key: PublicKey | None) -> Members:
        """Add or, with None, remove a host. Only the founder can. Raises Refused, ConfigError, WorldError."""
        settings, own = self.settings(), self.key()
        if str(own.public) != settings.founder:
            raise Refused("not-founder", f"only the host that founded this hub can do that, not {settings.host}")
        members = self.members(settings.founder)
        hosts = {name: text for name, text in members.hosts.items() if name != host}
        if key is not None:
            hosts[host] = str(key)
        changed = Members(members.version + 1, hosts).signed(own)
        self.update(changed)
        return changed


@dataclass(slots=True)
class HostKeys:
    """The public keys of the hub's hosts, read again whenever the list has changed; none without a hub."""

    membership: Membership
    _members: Members = field(default_factory=Members)
    _stamp: Stamp | None = None

    def __call__(self, host: str) -> PublicKey | None:
        """Raises ConfigError, WorldError."""
        return self.members().key(host)

    def members(self) -> Members:
        """Raises ConfigError, WorldError."""
        stamp = None
        with suppress(OSError):
            stamp = Stamp.of((self.membership.folder / HOSTS).lstat())
        if stamp != self._stamp:
            self._members = self.membership.members(self.membership.settings().founder) if stamp else Members()
            self._stamp = stamp
        return self._members


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
