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

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mailboxd.config.file import load_section
from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.hub.files.settings import HubSettings
from mailboxd.hub.files.view import HEARD, PEERS, SETTINGS
from mailboxd.hub.wire.members import Invitation, Members
from mailboxd.keys import PrivateKey, PublicKey
from mailboxd.mailbox.files import Stamp
from mailboxd.user_state import UserState

KEY, HOSTS, CERTIFICATE, SERVER = "host.key", "hosts.json", "server.pem", "server"
STATUS, HELD_JOBS = "status.json", "jobs.json"


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
