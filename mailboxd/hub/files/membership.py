"""The members of the hub, and this host's settings. In `$XDG_STATE_HOME/mailboxd/hub/`:

    hub.yaml      this host's name, the server's address, and whom agents may give work to and take it from
    host.key      this host's private key: it signs mail and receipts, and is the NKey by which the server knows it
    hosts.json    the hosts, their public keys and pools, signed by the host that founded the hub
    joining.json  the token with which this host asks to be let in, until the founder has answered
    stopped.json  that this directory is a copy, or was replaced by one, and where the host's mail goes on
    invited.json  on the host that founded the hub: its invitations, and the revoked hosts whose mail is to be removed
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

from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.formats.config.file import load_section
from mailboxd.formats.keys import PrivateKey, PublicKey
from mailboxd.formats.mailbox.files import Stamp
from mailboxd.formats.user.state import UserState
from mailboxd.hub.files.settings import HubSettings
from mailboxd.hub.files.view import HEARD, PEERS, SETTINGS
from mailboxd.hub.wire.members import EVERY, MOST_TOKEN, Invitation, Invited, Members

KEY, HOSTS, CERTIFICATE, SERVER = "host.key", "hosts.json", "server.pem", "server"
STATUS, HELD_JOBS = "status.json", "jobs.json"
JOINING, INVITED, STOPPED = "joining.json", "invited.json", "stopped.json"


# This host


@dataclass(frozen=True, slots=True)
class Stopped:
    """That another hub process runs as this host, where, and since when that is known."""

    where: str
    at: str
    replaced: bool
    """This one ran, did not answer, and the other one came."""

    def sentence(self, host: str) -> str:
        """For people, with what they can do."""
        what = "the host {} was taken over by {} at {}, because this one did not answer: its mail goes on there"
        if not self.replaced:
            what = "this is a copy of the host {}, which runs at {} (found at {}): its mail goes on there"
        return (
            f"{what.format(host, self.where, self.at)}. Run `mailboxd hub leave` here, or stop that one and run "
            "`mailboxd hub run --take-over` here"
        )


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
        """Raises ConfigError if the list is damaged or not the founder's, UnavailableError before there is one."""
        raw = self.state.read(HOSTS, secret=False)
        if raw is None and self.joining() is not None:
            raise UnavailableError(
                "the founder of the hub has yet to let this host in; `mailboxd hub status` says more"
            )
        found: object = None
        with suppress(ValueError):
            found = json.loads(raw or b"null")
        members = Members.verified(found, PublicKey.parse(founder))
        if members is None:
            raise ConfigError(f"{self.folder / HOSTS} is not signed by the hub's founder; restore it, or join again")
        return members

    def found(self, settings: HubSettings, key: PrivateKey, certificate: str) -> None:
        """Write the files of a host that founds a hub. Raises Refused if it belongs to one already, WorldError."""
        members = Members().changed(settings.host, key.public, (EVERY,)).signed(key)
        self._write({HOSTS: json.dumps(asdict(members)).encode()}, settings, key, certificate)

    def join(self, invitation: Invitation, allowed: Mapping[str, tuple[str, ...]]) -> HubSettings:
        """Write the files of a host that has yet to be let in, with a new key; `allowed` are the lists of hub.yaml.

        Raises Refused if it belongs to a hub already, ConfigError, WorldError.
        """
        named = {"host": invitation.host, "founder": invitation.founder, "servers": invitation.servers}
        try:
            settings = HubSettings.model_validate({**named, **allowed})
        except ValueError as error:
            raise ConfigError(f"the token is damaged: {error}") from error
        token = json.dumps({"token": invitation.token()}).encode()
        self._write({JOINING: token}, settings, PrivateKey.new(), invitation.certificate)
        return settings

    def _write(self, files: Mapping[str, bytes], settings: HubSettings, key: PrivateKey, certificate: str) -> None:
        if self.exists() and self.joining() is None:
            hint = "Run `mailboxd hub leave` first."
            raise Refused("hub-exists", f"this host belongs to a hub already: {self.folder}", hint)
        own = {KEY: key.file_text().encode(), CERTIFICATE: certificate.encode()}
        settled = {SETTINGS: settings.text().encode()}  # last: with it, the host belongs to the hub
        with self.state.writing() as folder:
            for stale in {HOSTS, JOINING, STOPPED} - files.keys():
                with suppress(FileNotFoundError):
                    os.unlink(stale, dir_fd=folder)
            for name, raw in {**own, **files, **settled}.items():
                self.state.write(folder, name, raw)

    def joining(self) -> Invitation | None:
        """The invitation with which this host has yet to be let in; None if it is. Raises ConfigError, WorldError."""
        raw = self.state.read(JOINING, largest=2 * MOST_TOKEN)
        if raw is None:
            return None
        with suppress(ValueError, TypeError, KeyError):
            return Invitation.parse(json.loads(raw)["token"])
        raise ConfigError(f"{self.folder / JOINING} is damaged; run `mailboxd hub leave`, and join again")

    def let_in(self, members: Members) -> None:
        """The founder has put this host onto the list. Raises WorldError."""
        with self.state.writing() as folder:
            self.state.write(folder, HOSTS, json.dumps(asdict(members)).encode())
            with suppress(FileNotFoundError):
                os.unlink(JOINING, dir_fd=folder)

    def update(self, members: Members) -> None:
        """Keep a newer list of hosts. Raises WorldError."""
        with self.state.writing() as folder:
            self.state.write(folder, HOSTS, json.dumps(asdict(members)).encode())

    def leave(self) -> list[Path]:
        """Remove this host's files; returns them. A server's store is kept. Raises WorldError."""
        names = (SETTINGS, KEY, HOSTS, CERTIFICATE, PEERS, HEARD, STATUS, HELD_JOBS, JOINING, INVITED, STOPPED)
        gone = [self.folder / name for name in names if (self.folder / name).exists()]
        with self.state.writing() as folder:
            for path in gone:
                os.unlink(path.name, dir_fd=folder)
        return gone

    def stopped(self) -> Stopped | None:
        """Why mail is carried elsewhere as this host; None if it is not. Raises ConfigError, WorldError."""
        raw = self.state.read(STOPPED)
        with suppress(ValueError, TypeError):
            return None if raw is None else Stopped(**json.loads(raw))
        raise ConfigError(f"{self.folder / STOPPED} is damaged; run `mailboxd hub run --take-over`")

    def stop(self, stopped: Stopped | None) -> None:
        """Carry no mail from now on or, with None, carry it again. Raises WorldError."""
        with self.state.writing() as folder:
            if stopped is not None:
                self.state.write(folder, STOPPED, json.dumps(asdict(stopped)).encode())
            else:
                with suppress(FileNotFoundError):
                    os.unlink(STOPPED, dir_fd=folder)

    # what only the founder does

    def change(self, host: str, key: PublicKey | None, pools: tuple[str, ...] = ()) -> Members:
        """Put a host onto the list or, without a key, remove it. Raises Refused, ConfigError, WorldError."""
        own = self._founder()
        with self.state.writing() as folder:
            changed = self.members(str(own.public)).changed(host, key, pools).signed(own)
            self.state.write(folder, HOSTS, json.dumps(asdict(changed)).encode())
        return changed

    def _founder(self) -> PrivateKey:
        settings, own = self.settings(), self.key()
        if str(own.public) != settings.founder:
            raise Refused("not-founder", f"only the host that founded this hub can do that, not {settings.host}")
        return own

    def invited(self) -> dict[str, Invited]:
        """The invitations by host. Raises ConfigError, WorldError."""
        raw = self.state.read(INVITED) or b"{}"
        try:
            found = {
                str(host): Invited(**{**one, "pools": tuple(one["pools"])}) for host, one in json.loads(raw).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"{self.folder / INVITED} is damaged; remove it, and invite again") from error
        return found

    def invite(self, host: str, invited: Invited | None) -> None:
        """Remember an invitation in place of an earlier one or, with None, forget it. Raises as `change`."""
        self._founder()
        with self.state.writing() as folder:
            known = {name: asdict(one) for name, one in self.invited().items() if name != host}
            if invited is not None:
                known[host] = asdict(invited)
            self.state.write(folder, INVITED, json.dumps(known).encode())


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
