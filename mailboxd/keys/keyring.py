"""Where keys lie: `$XDG_STATE_HOME/mailboxd/keys/` (by default below ~/.local/state), 0700, every file 0600.

    operator.key            the operator's private key, for all workspaces of this user
    <workspace>.key         the private key of the agent of one workspace
    <workspace>.trusted     the public keys that this workspace trusts, a JSON object

`<workspace>` is the beginning of the SHA-256 of its real path. Nothing of it lies in the workspace: an agent that
OpenClaw confines to its workspace must be able neither to read a key nor to make us trust another one.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from mailboxd.core.vocabulary import OPERATORS
from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.host.pip_extras import to_add
from mailboxd.mailbox.files import Stamp, directory, look, open_regular, publish, read_up_to, replace, world_errors

# ---------------------------------------------------------------------------------------------------------------------
# One key: as text, by its fingerprint, and what it is for.
#
#     ed25519:<43 characters, base64url>              the public half, as it is handed to others
#     ed25519-private:<43 characters, base64url>      the private half, in a file of its owner
#     ed25519:<32 hex>:<86 characters, base64url>     a signature, with the fingerprint of its key
#
# The fingerprint is the beginning of the SHA-256 of the 32 bytes of the public key, as 32 hexadecimal digits.

_PUBLIC, _PRIVATE = "ed25519:", "ed25519-private:"
_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_SIGNATURE = re.compile(r"ed25519:([0-9a-f]{32}):([A-Za-z0-9_-]{86})")


def require_extra() -> None:
    """Raises ConfigError if the library for signatures is not installed."""
    if find_spec("cryptography") is None:
        raise ConfigError(f"signatures need the package cryptography: run `{to_add('signing')}`")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half: 32 bytes."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Raises ValueError if `text` is no public key."""
        return cls(_key_bytes(text, _PUBLIC))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()[:32]

    def __str__(self) -> str:
        return _PUBLIC + _to_base64url(self.raw)

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Whether this key has signed exactly these bytes."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, signed)
        except (InvalidSignature, ValueError):  # ValueError: 32 bytes that are no point of the curve
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The private half: 32 bytes, which no message, log line or `repr` ever shows."""

    seed: bytes = field(repr=False)

    @classmethod
    def new(cls) -> PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """Raises ValueError, which does not quote `text`."""
        return cls(_key_bytes(text, _PRIVATE))

    @property
    def public(self) -> PublicKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return PublicKey(Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    def file_text(self) -> str:
        """What stands in the file of this key."""
        return _PRIVATE + _to_base64url(self.seed) + "\n"

    def sign(self, said: bytes) -> str:
        """The signature of `said`, as it stands in a header."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(said)
        return f"{_PUBLIC}{self.public.fingerprint}:{_to_base64url(signature)}"


def parse_signature(text: str) -> tuple[str, bytes]:
    """The fingerprint of the key, and the signature itself. Raises ValueError."""
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        raise ValueError("this is no signature")
    return found[1], _from_base64url(found[2])


def _key_bytes(text: str, begins: str) -> bytes:
    text = text.strip()
    if not text.startswith(begins) or not _KEY.fullmatch(text, len(begins)):
        raise ValueError(f"this is no key: it must be `{begins}` and 43 characters")
    return _from_base64url(text[len(begins) :])


def _from_base64url(text: str) -> bytes:
    """Exactly one text for the same bytes: the last character has bits that count for nothing, and must be 0."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("this is not base64url") from None
    if _to_base64url(raw) != text:
        raise ValueError("this is not how base64url writes it")
    return raw


def _to_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


# ---------------------------------------------------------------------------------------------------------------------
# Where keys lie: `$XDG_STATE_HOME/mailboxd/keys/` (by default below ~/.local/state), 0700, every file 0600.

OPERATOR = "operator"
_LARGEST = 1 << 20
_FOLDERS = ("mailboxd", "keys")


@dataclass(frozen=True, slots=True)
class Trusted:
    """A key that this workspace takes for that of `name`, an agent or `operator`. `added_at` is a time, UTC."""

    name: str
    key: str
    added_at: str

    @property
    def public(self) -> PublicKey:
        return PublicKey.parse(self.key)


@dataclass(frozen=True, slots=True)
class Ring:
    """The keys that the user who runs this has for one workspace. `state` is the user's state directory."""

    state: Path
    workspace: Path

    @classmethod
    def of(cls, workspace: Path, environ: Mapping[str, str]) -> Ring:
        """`workspace` is its real path."""
        state = environ.get("XDG_STATE_HOME", "")
        if not state.startswith("/"):
            state = str(_home(environ) / ".local" / "state")
        return cls(Path(state), workspace)

    @property
    def folder(self) -> Path:
        return self.state.joinpath(*_FOLDERS)

    @property
    def own_file(self) -> str:
        return f"{self._name}.key"

    @property
    def operator_file(self) -> str:
        return f"{OPERATOR}.key"

    @property
    def trusted_file(self) -> str:
        return f"{self._name}.trusted"

    @property
    def _name(self) -> str:
        return hashlib.sha256(os.fsencode(self.workspace)).hexdigest()[:16]

    # -------------------------------------------------------------- private keys

    def private(self, file: str) -> PrivateKey | None:
        """The private key in one of the files above; None without one.

        Raises ConfigError if others could have read or written it, or it is damaged; WorldError.
        """
        raw = self._read(file)
        if raw is None:
            return None
        try:
            return PrivateKey.parse(raw.decode("ascii"))
        except ValueError as error:
            raise ConfigError(f"{self.folder / file} is damaged; restore it, or remove it and make another") from error

    def create(self, file: str) -> PrivateKey:
        """Make a private key, durably. Raises Refused if there is one already, WorldError."""
        key = PrivateKey.new()
        with self._open_for_writing() as folder:
            try:
                publish(folder, file, key.file_text().encode("ascii"))
            except FileExistsError:
                hint = "Remove that file first; whoever trusts it must then trust the new one."
                raise Refused("key-exists", f"there is a key already, {self.folder / file}", hint) from None
            os.fsync(folder)
        return key

    # -------------------------------------------------------------- trusted keys

    def stamp(self, file: str) -> Stamp | None:
        """What changes whenever the file does; None without one. Raises WorldError."""
        with self._open() as folder:
            status = None if folder is None else look(folder, file)
        return None if status is None else Stamp.of(status)

    def trusted(self) -> tuple[Trusted, ...]:
        """Raises ConfigError if others could have written the file, or it is damaged; WorldError."""
        raw = self._read(self.trusted_file)
        if raw is None:
            return ()
        try:
            rows = [Trusted(row["name"], row["key"], row["added_at"]) for row in json.loads(raw)["trusted"]]
            for row in rows:
                PublicKey.parse(row.key)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            path = self.folder / self.trusted_file
            raise ConfigError(
                f"{path} is damaged; remove it and trust the keys again (`mailboxd keys trust`)"
            ) from error
        return tuple(rows)

    def trust(self, name: str, key: PublicKey, now: str) -> bool:
        """Take `key` for that of `name` from now on; False if it was already. Raises ConfigError, WorldError, and
        Refused if it is trusted as the key of somebody else: then a signature would not say whose it is."""
        name = known_as(name)
        with self._open_for_writing() as folder:
            rows = self.trusted()
            for row in rows:
                if row.key == str(key):
                    if row.name == name:
                        return False
                    hint = f"Untrust {row.name} first."
                    raise Refused("key-in-use", f"the key {key.fingerprint} is trusted as that of {row.name}", hint)
            self._write(folder, (*rows, Trusted(name, str(key), now)))
        return True

    def untrust(self, name: str) -> tuple[Trusted, ...]:
        """Trust no key of `name` any more; those that were. Raises UnavailableError, ConfigError, WorldError."""
        name = known_as(name)
        with self._open_for_writing() as folder:
            rows = self.trusted()
            gone = tuple(row for row in rows if row.name == name)
            if not gone:
                raise UnavailableError(f"no key of {name} is trusted here")
            self._write(folder, tuple(row for row in rows if row.name != name))
        return gone

    # -------------------------------------------------------------- inside

    def _write(self, folder: int, rows: tuple[Trusted, ...]) -> None:
        said = {"workspace": os.fsencode(self.workspace).decode("utf-8", "backslashreplace")}
        text = json.dumps({**said, "trusted": [asdict(row) for row in rows]}, indent=2)
        replace(folder, self.trusted_file, text.encode() + b"\n", lambda: True)

    def _read(self, file: str) -> bytes | None:
        with self._open() as folder:
            if folder is None or look(folder, file) is None:
                return None
            fd = open_regular(folder, file)
            if fd is None:
                raise ConfigError(f"{self.folder / file} is not a regular file; remove it")
            try:
                _require_safe(fd, self.folder / file, secret=file != self.trusted_file)
                return read_up_to(fd, _LARGEST)
            finally:
                os.close(fd)

    @contextmanager
    def _open(self) -> Iterator[int | None]:
        """The directory; None where there is none, as in most installations."""
        with world_errors(f"read {self.folder}"), ExitStack() as opened:
            try:
                folder = opened.enter_context(directory(self.state, *_FOLDERS))
            except (FileNotFoundError, NotADirectoryError):
                if self.folder.is_symlink() or self.folder.parent.is_symlink():
                    raise
                folder = None
            yield folder

    @contextmanager
    def _open_for_writing(self) -> Iterator[int]:
        """The directory, made if it is not there, and for nobody else to write in at the same time."""
        with world_errors(f"write to {self.folder}"):
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            for depth, name in enumerate(_FOLDERS):
                with directory(self.state, *_FOLDERS[:depth]) as above:
                    try:
                        os.mkdir(name, 0o700, dir_fd=above)
                    except FileExistsError:
                        continue
            with directory(self.state, *_FOLDERS) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield folder


def _home(environ: Mapping[str, str]) -> Path:
    """Some accounts have none: then there are no keys, until XDG_STATE_HOME says where."""
    try:
        return Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        return Path("/nonexistent")


def known_as(sender: str) -> str:
    """Under which name a sender's keys are trusted: people are the operator, and agents' ids ignore case."""
    return OPERATOR if sender.lower() in OPERATORS else sender.lower()


def _require_safe(fd: int, path: Path, *, secret: bool) -> None:
    """A private key is its owner's alone. Whom we trust may stand in a file of root's: not even we change that one."""
    status = os.fstat(fd)
    owners = {os.geteuid()} if secret else {os.geteuid(), 0}
    if stat.S_IMODE(status.st_mode) & (0o077 if secret else 0o022) or status.st_uid not in owners:
        may = "read or change" if secret else "change"
        raise ConfigError(f"{path} belongs to others, or they can {may} it; run `chmod 600 {path}` as its owner")
