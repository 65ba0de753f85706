"""Records the configuration that decides what is allowed, when a daemon starts or sees a change, and when a command,
the page or a tool decides about an approval under another one.

It consists of the workspace's configuration as it counts for this process, the keys that the workspace trusts, this
host's part in the hub and its list of hosts, and the caps of the machine. All but the first is of the user, counts for
the daemon alone, and is read by it alone: who runs a command may be another user, or have another environment, and what
they do not see has not been removed. What may hold a secret is compared by a digest with a key that never leaves
`.mailboxd/`: without it the digest of a short secret could be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mailboxd.core import policy
from mailboxd.core.events import Event, Kind
from mailboxd.core.policy import RecordedPolicy
from mailboxd.core.times import to_epoch
from mailboxd.engine import spending
from mailboxd.engine.engine import Engine
from mailboxd.errors import ConfigError, UnavailableError, WorldError
from mailboxd.formats.config.file import CAPS, fingerprint, load_owned, load_section
from mailboxd.formats.config.model import Config, HostCaps, Section
from mailboxd.formats.config.recorded import Recorded, recorded
from mailboxd.formats.keys import Keyring
from mailboxd.formats.mailbox.files import directory, publish, read_file, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.process import owner
from mailboxd.hub.files.membership import HOSTS, Membership
from mailboxd.hub.files.view import SETTINGS

_OF_USER = ("host.", "trusted.", "hub.")
"""The fields that the daemon alone reads."""
KEY = "policy.key"
"""Below `.mailboxd/`."""
_KEY_LENGTH = 64
_UNREADABLE = "cannot be read"


@dataclass(slots=True)
class PolicyRecord:
    """The policy of one process. `by` is who reads it: `daemon`, `command`, `page`, `tool`.

    `lives`: the process goes on with the configuration that it was given, and takes the caps of a day from the file
    whenever that changes.
    """

    engine: Engine
    ws: Workspace
    config: Config
    environ: Mapping[str, str]
    by: str
    lives: bool = False
    _seen: tuple[object, ...] | None = None
    _seq: int = 0
    _counts: RecordedPolicy | None = None
    """The policy of that event."""
    _at: str = ""
    """The time of the batch in which it was found or recorded."""
    _is_kept: bool = False
    """It was there in a later batch: what is committed is not looked for again."""
    _live: Config | None = None
    """The file as it was when it was last valid."""

    def __call__(self) -> int:
        """The number of the event with the policy that counts for this process now; recorded if it was not.

        Inside a batch. Raises WorldError.
        """
        policies = self.engine.store.policies
        seen = tuple(_stamp(path) for path in self._files())
        if seen == self._seen and (self._is_kept or policies.has(self._seq)):
            self._is_kept = self._is_kept or self.engine.now != self._at
            return self._seq
        said = self._file()
        before, now = policies.latest(), RecordedPolicy(*self._fields())
        if not self.lives:
            now = _with_others(now, before[1])
        if now == self._counts and policies.has(self._seq):  # what others have read does not count here
            self._seen = seen
            return self._seq
        data = policy.recorded(before[1], now)
        if data is not None:
            self.engine.record(Event(Kind.CONFIG_CHANGED, None, self._told(before[0], data, said)))
        self._seen, self._seq, self._counts = seen, policies.latest()[0], now
        self._at, self._is_kept = self.engine.now, False
        return self._seq

    def _told(self, before: int, data: Mapping[str, Any], uid: int | None) -> dict[str, Any]:
        told = {"at": self.engine.now, "by": self.by, "first": not before, **data}
        if uid is not None:
            told["owner"] = asdict(owner(uid, to_epoch(self.engine.now)))
        return told

    # what it consists of

    def _files(self) -> Iterator[Path]:
        yield self.ws.config
        if self.lives:
            keyring, hub = Keyring.of(self.ws.root, self.environ), Membership.of(self.environ).folder
            yield from (spending.host_file(self.environ), keyring.folder / keyring.trusted_file)
            yield from (hub / SETTINGS, hub / HOSTS)

    def _file(self) -> int | None:
        """Read the configuration again; the owner of its file, if that is what counts here."""
        try:
            found, uid = load_owned(self.ws.config)
        except (ConfigError, WorldError):
            return None
        self._live = found
        return uid if fingerprint(found) == fingerprint(self.config) else None

    def _fields(self) -> tuple[dict[str, Any], dict[str, str], str]:
        key = self._key()
        fields: dict[str, Any] = {}
        digests: dict[str, str] = {}
        for one in self._parts():
            fields[one.path] = one.shown
            if one.secret is not None and key:
                digests[one.path] = hmac.new(key, f"{one.path}\0{one.secret}".encode(), hashlib.sha256).hexdigest()[:32]
        return fields, digests, hashlib.sha256(key).hexdigest()[:16] if key else ""

    def _parts(self) -> Iterator[Recorded]:
        yield from recorded(self._counting())
        holds = spending.of_agent((self._live or self.config) if self.lives else self.config).holds
        yield Recorded("limits.day_caps_hold", holds)
        if self.lives:
            yield from self._of_user()

    def _of_user(self) -> Iterator[Recorded]:
        yield from self._of_section("host", spending.host_file(self.environ), HostCaps)
        yield from self._trusted()
        yield from self._hub()

    def _counting(self) -> Config:
        """The configuration as it counts: the caps of a day are taken from the file while the daemon runs."""
        if not self.lives or self._live is None:
            return self.config
        names = [key.removeprefix("limits.") for key in CAPS if key.startswith("limits.")]
        limits = self.config.limits.model_copy(update={name: getattr(self._live.limits, name) for name in names})
        return self.config.model_copy(update={"caps": self._live.caps, "limits": limits})

    def _of_section(self, name: str, path: Path, kind: type[Section]) -> Iterator[Recorded]:
        if path.exists():
            try:
                yield from list(recorded(load_section(path, kind), name))
            except (ConfigError, WorldError):
                yield Recorded(f"{name}.file", _UNREADABLE)

    def _trusted(self) -> Iterator[Recorded]:
        try:
            rows = Keyring.of(self.ws.root, self.environ).trusted()
        except (ConfigError, WorldError):
            yield Recorded("trusted.file", _UNREADABLE)
            return
        for name in sorted({row.name for row in rows}):
            yield Recorded(f"trusted.{name}", sorted(row.public.fingerprint for row in rows if row.name == name))

    def _hub(self) -> Iterator[Recorded]:
        hub = Membership.of(self.environ)
        try:
            settings = hub.settings()
            members = hub.members(settings.founder)
        except UnavailableError:
            return
        except (ConfigError, WorldError):
            yield Recorded("hub.file", _UNREADABLE)
            return
        yield from recorded(settings, "hub")
        for name in sorted(members.hosts):
            yield Recorded(f"hub.hosts.{name}", str(members.key(name)))
            yield Recorded(f"hub.serves.{name}", sorted(members.pools(name)))

    def _key(self) -> bytes:
        """The key of the digests, made if there is none; empty where none can be kept: then none is recorded."""
        with suppress(OSError, WorldError), directory(self.ws.root, self.ws.state.name) as state:
            if (raw := read_file(state, KEY, _KEY_LENGTH + 1)) is None or len(raw) != _KEY_LENGTH:
                with suppress(FileExistsError), world_errors(f"write {KEY}"):
                    publish(state, KEY, secrets.token_hex(_KEY_LENGTH // 2).encode())
                raw = read_file(state, KEY, _KEY_LENGTH + 1)
            return raw or b""
        return b""


def _with_others(read: RecordedPolicy, latest: RecordedPolicy) -> RecordedPolicy:
    """What a process read that is no daemon, with the fields that it does not read as they were recorded last."""
    fields = {path: value for path, value in latest.fields.items() if path.startswith(_OF_USER)}
    known = latest.digests.items() if latest.key == read.key else ()
    digests = {path: digest for path, digest in known if path in fields}
    return RecordedPolicy({**read.fields, **fields}, {**read.digests, **digests}, read.key)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_ctime_ns
    return None
