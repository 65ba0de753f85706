"""Ed25519 keys, and the signatures of messages.

Keys are in `$XDG_STATE_HOME/mailboxd/keys/` (default ~/.local/state), mode 0700:

    operator.key            the operator's private key, for all workspaces of this user
    <workspace>.key         the private key of one workspace's agent
    <workspace>.trusted     the public keys that this workspace trusts, a JSON object

`<workspace>` is a prefix of the SHA-256 of its real path; every file has mode 0600. No key is kept in a workspace: an
agent that OpenClaw confines to its workspace must not be able to read a key or to add a trusted one.

A signature proves who wrote a message and that it is unchanged. It does not prove that the message is new: a replay is
recognized by its `message_id` or its bytes, as for unsigned messages. The extra `signing` is needed once there is a
key (docs/security.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mailboxd.core.vocabulary import OPERATORS
from mailboxd.errors import ConfigError, MessageError, Refused, UnavailableError, WorldError
from mailboxd.formats.mailbox.files import Stamp, publish, refusal
from mailboxd.formats.protocol.front_matter import MAX_FILE, canonical, with_signature
from mailboxd.formats.user.state import UserState
from mailboxd.host.pip_extras import to_add
from mailboxd.host.system import system

if TYPE_CHECKING:
    from mailboxd.formats.protocol.messages import Message

# Text formats:
#
#     ed25519:<43 characters, base64url>              public key
#     ed25519-private:<43 characters, base64url>      private key, only in its owner's file
#     ed25519:<32 hex>:<86 characters, base64url>     signature, with the fingerprint of its key
#
# The fingerprint is the first half of the SHA-256 of the public key's 32 bytes, in hexadecimal.

_PUBLIC, _PRIVATE = "ed25519:", "ed25519-private:"
_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_SIGNATURE = re.compile(r"ed25519:([0-9a-f]{32}):([A-Za-z0-9_-]{86})")


def require_extra() -> None:
    """Raises ConfigError if the library for signatures is not installed."""
    if find_spec("cryptography") is None:
        raise ConfigError(f"signatures need the package cryptography: run `{to_add('signing')}`")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: 32 bytes."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Raises ValueError if `text` is not a public key."""
        return cls(_key_bytes(text, _PUBLIC))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()[:32]

    def __str__(self) -> str:
        return _PUBLIC + _to_base64url(self.raw)

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Whether `signature` is this key's signature of exactly these bytes."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, signed)
        except (InvalidSignature, ValueError):  # ValueError: the 32 bytes are not a point on the curve
            return False
        return True

    def has_signed(self, content: bytes, text: str) -> bool:
        """Whether the text is this key's signature of the content."""
        try:
            fingerprint, signature = parse_signature(text)
        except ValueError:
            return False
        return fingerprint == self.fingerprint and self.verifies(signature, content)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key: 32 bytes, which never appear in a message, log line or `repr`."""

    seed: bytes = field(repr=False)

    @classmethod
    def new(cls) -> PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """Raises ValueError, without quoting `text`."""
        return cls(_key_bytes(text, _PRIVATE))

    @property
    def public(self) -> PublicKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return PublicKey(Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    def file_text(self) -> str:
        """The content of this key's file."""
        return _PRIVATE + _to_base64url(self.seed) + "\n"

    def sign(self, content: bytes) -> str:
        """The signature of `content`, in the form used in headers."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(content)
        return f"{_PUBLIC}{self.public.fingerprint}:{_to_base64url(signature)}"


def parse_signature(text: str) -> tuple[str, bytes]:
    """The key's fingerprint and the signature itself. Raises ValueError."""
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        raise ValueError("it is not a signature")
    return found[1], _from_base64url(found[2])


def _key_bytes(text: str, begins: str) -> bytes:
    text = text.strip()
    if not text.startswith(begins) or not _KEY.fullmatch(text, len(begins)):
        raise ValueError(f"this is not a key: a key is `{begins}` followed by 43 characters")
    return _from_base64url(text[len(begins) :])


def _from_base64url(text: str) -> bytes:
    """Decode strictly, so that the same bytes have exactly one text: the unused bits of the last character are 0."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("it is not base64url") from None
    if _to_base64url(raw) != text:
        raise ValueError("it is not canonical base64url")
    return raw


def _to_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Trusted:
    """A key that this workspace accepts as the key of `name`, an agent or `operator`. `added_at` is in UTC."""

    name: str
    key: str
    added_at: str

    @property
    def public(self) -> PublicKey:
        return PublicKey.parse(self.key)


@dataclass(frozen=True, slots=True)
class Keyring:
    """The current user's keys for one workspace."""

    state: UserState
    workspace: Path

    @classmethod
    def of(cls, workspace: Path, environ: Mapping[str, str]) -> Keyring:
        """`workspace` is its real path."""
        return cls(UserState.of(environ, "keys"), workspace)

    @property
    def folder(self) -> Path:
        return self.state.folder

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

    def private(self, file: str) -> PrivateKey | None:
        """The private key in one of the files above, or None.

        Raises ConfigError if other users can read or write the file or it is damaged, WorldError.
        """
        raw = self.state.read(file)
        if raw is None:
            return None
        try:
            return PrivateKey.parse(raw.decode("ascii"))
        except ValueError as error:
            raise ConfigError(
                f"{self.folder / file} is damaged; restore it, or remove it and create a new key"
            ) from error

    def create(self, file: str) -> PrivateKey:
        """Create a private key and sync it to disk. Raises Refused if there already is one, WorldError."""
        key = PrivateKey.new()
        with self.state.writing() as folder:
            try:
                publish(folder, file, key.file_text().encode("ascii"))
            except FileExistsError:
                hint = "Remove that file first; all who trust the old key must then trust the new one."
                raise Refused("key-exists", f"there already is a key: {self.folder / file}", hint) from None
            system.sync(folder)
        return key

    def stamp(self, file: str) -> Stamp | None:
        """A value that changes whenever the file changes; None if there is no file. Raises WorldError."""
        path = f"{self.folder}/{file}"  # for each message that is sent: pathlib costs more than the call
        try:
            return Stamp.of(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise refusal(f"read {path}", error) from error

    def trusted(self) -> tuple[Trusted, ...]:
        """Raises ConfigError if other users can write the file or it is damaged, WorldError."""
        raw = self.state.read(self.trusted_file, secret=False)
        if raw is None:
            return ()
        try:
            rows = [Trusted(row["name"], row["key"], row["added_at"]) for row in json.loads(raw)["trusted"]]
            for row in rows:
                PublicKey.parse(row.key)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            path = self.folder / self.trusted_file
            raise ConfigError(
                f"{path} is damaged; remove it, then trust the keys again (`mailboxd connect keys trust`)"
            ) from error
        return tuple(rows)

    def trust(self, name: str, key: PublicKey, now: str) -> bool:
        """Trust `key` as the key of `name`; False if it already was.

        Raises Refused if the key is trusted under another name (its signatures would be ambiguous), ConfigError,
        WorldError.
        """
        name = known_as(name)
        with self.state.writing() as folder:
            rows = self.trusted()
            for row in rows:
                if row.key == str(key):
                    if row.name == name:
                        return False
                    hint = f"Untrust {row.name} first."
                    raise Refused("key-in-use", f"the key {key.fingerprint} is trusted as the key of {row.name}", hint)
            self._write(folder, (*rows, Trusted(name, str(key), now)))
        return True

    def untrust(self, name: str) -> tuple[Trusted, ...]:
        """Stop trusting every key of `name` and return them. Raises UnavailableError, ConfigError, WorldError."""
        name = known_as(name)
        with self.state.writing() as folder:
            rows = self.trusted()
            gone = tuple(row for row in rows if row.name == name)
            if not gone:
                raise UnavailableError(f"no key of {name} is trusted here")
            self._write(folder, tuple(row for row in rows if row.name != name))
        return gone

    def _write(self, folder: int, rows: tuple[Trusted, ...]) -> None:
        workspace = os.fsencode(self.workspace).decode("utf-8", "backslashreplace")
        text = json.dumps({"workspace": workspace, "trusted": [asdict(row) for row in rows]}, indent=2)
        self.state.write(folder, self.trusted_file, text.encode() + b"\n")


def known_as(sender: str) -> str:
    """The name under which a sender's keys are trusted: every person is the operator, agent ids ignore case."""
    return OPERATOR if sender.lower() in OPERATORS else sender.lower()


@contextmanager
def _stopping() -> Iterator[None]:
    """Stop with a WorldError for a ConfigError: the keys were valid at the start, and the next start reports it."""
    try:
        yield
    except ConfigError as error:
        raise WorldError(str(error)) from error


YES, NO, UNSIGNED = "yes", "no", "unsigned"
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of verifying a message.

    `verified` is "yes" (unchanged, addressed to this agent, and signed with a key trusted as the sender's), "no"
    (`problem` says what is wrong with the signature) or "unsigned".
    """

    verified: str = UNSIGNED
    signer: str | None = None
    """The fingerprint named by the signature; proven only if `verified` is "yes"."""
    problem: str = ""


@dataclass(slots=True)
class Trust:
    """The keys that one workspace trusts, reloaded whenever their file changes.

    `agent` owns the mailbox; messages from the senders in `required` need a valid signature.
    """

    keyring: Keyring
    agent: str
    required: frozenset[str] = frozenset()
    host_key: Callable[[str], PublicKey | None] = lambda _host: None
    """The key of a host of the hub: the signature of its agents' messages, which is required."""
    host: Callable[[], str] = lambda: ""
    """This host's name in the hub."""
    decides: Callable[[str], bool] = lambda _host: False
    """Whether a person on that host may decide here."""
    serves: Callable[[str], bool] = lambda _pool: False
    """Whether the mailbox's agent serves a pool."""
    _keys: dict[str, tuple[str, PublicKey]] = field(default_factory=dict)
    """Owner and key by fingerprint."""
    _seen: Stamp | None = None

    @classmethod
    def of(cls, keyring: Keyring, agent: str, required: Iterable[str]) -> Trust:
        """Raises ConfigError if signatures cannot be verified or the key file is unsafe, WorldError."""
        trust = cls(keyring, agent, frozenset(map(known_as, required)))
        trust._load()
        if trust._keys or trust.required:
            require_extra()
        return trust

    def is_own(self, agent: str) -> bool:
        """Whether a message to `agent` is for this mailbox: by its id here, its name in the hub, or as a pool."""
        return self.serves(agent) or known_as(agent) in (known_as(self.agent), known_as(f"{self.host()}.{self.agent}"))

    def _key_of_host(self, sender: str) -> PublicKey | None:
        host, dot, _ = sender.lower().partition(".")
        if not dot or not self.host():
            return None
        with _stopping():
            return self.host_key(host)

    def is_of_host(self, sender: str) -> bool:
        """Whether the sender is on another host, so that the hub delivered what it sent."""
        return self._key_of_host(sender) is not None

    def person(self, proof: Proof, sender: str) -> str:
        """The person on another host who is proven to have sent a message and may decide here; empty for any other."""
        host, _, name = sender.lower().partition(".")
        if name != OPERATOR or proof.verified != YES or self._key_of_host(sender) is None:
            return ""
        with _stopping():
            return sender.lower() if self.decides(host) else ""

    def verify(self, raw: bytes, message: Message) -> Proof:
        """Verify the signature of a message. Raises WorldError if the keys cannot be read."""
        if message.signature is None:
            return Proof()
        with _stopping():
            self._load()
        try:
            fingerprint, signature = parse_signature(message.signature)
        except ValueError as error:
            return Proof(NO, None, f"the signature is malformed: {error}")
        problem = self._problem(fingerprint, signature, raw, message)
        return Proof(NO if problem else YES, fingerprint, problem)

    def may_vouch(self, proof: Proof, sender: str, agent: str) -> bool:
        """Whether this message may tell what `agent`, as it is known here, has said to its sender.

        Not for one whose own signature is required: that stands on its own messages only. Otherwise it has to be signed
        if the sender is known to sign.
        """
        if known_as(agent) in self.required:
            return False
        signs = any(name == known_as(sender) for name, _ in self._keys.values())
        return proof.verified == YES or (proof.verified == UNSIGNED and not signs)

    def admit(self, proof: Proof, sender: str) -> None:
        """Raises MessageError if the configuration requires a signature and there is no valid one."""
        from_host = self._key_of_host(sender) is not None
        if (known_as(sender) not in self.required and not from_host) or proof.verified == YES:
            return
        if from_host:
            hint = "The hub delivers what that host has signed; nothing else counts as from there."
            raise MessageError("unsigned", f"{sender} is on another host, which has not signed this for here", hint)
        if proof.verified == UNSIGNED:
            hint = (
                f"signing.require names {sender}; its daemon signs once it has a key (`mailboxd connect keys create`)."
            )
            raise MessageError("unsigned", f"messages from {sender} must be signed, but this one is not", hint)
        raise MessageError("bad-signature", proof.problem, "Trust the right key, or ask the sender to send it again.")

    def _problem(self, fingerprint: str, signature: bytes, raw: bytes, message: Message) -> str:
        owner, key = self._keys.get(fingerprint, ("", None))
        host = self._key_of_host(message.from_)
        if host is not None and host.fingerprint == fingerprint:
            owner, key = known_as(message.from_), host
        if key is None:
            return f"it is signed with the key {fingerprint}, which is not trusted here"
        if owner != known_as(message.from_):
            return f"it is signed with the key of {owner}, but claims to be from {message.from_}"
        if message.to is not None and not self.is_own(message.to):
            return f"it was signed for {message.to}, not for {self.agent}"
        if not key.verifies(signature, canonical(raw)):
            return "it was changed after it was signed"
        return ""

    def _load(self) -> None:
        stamp = self.keyring.stamp(self.keyring.trusted_file)
        if stamp != self._seen:
            rows = [(row.name, row.public) for row in self.keyring.trusted()]
            self._keys = {key.fingerprint: (name, key) for name, key in rows}
            self._seen = stamp


def name_here(sender: str, agent: str) -> str:
    """The name here of what `sender` calls `agent`: a host names its own agents, and cannot name others."""
    host, dot, _ = sender.partition(".")
    return f"{host}.{agent}" if dot else agent


def require_operator(proof: Proof, sender: str) -> str:
    """The actor behind an order that only a person may give. Raises Refused."""
    if proof.verified == UNSIGNED:
        raise Refused(
            "unsigned-approval",
            "an approval by file needs the operator's signature, since any agent of this user could write the file",
            "Sign it (`mailboxd connect keys sign FILE`), or use `mailboxd approve`.",
        )
    if proof.verified != YES:
        raise Refused("bad-signature", proof.problem, "Sign it with the operator's key, which must be trusted here.")
    if sender.lower() not in OPERATORS:
        raise Refused("permission-denied", f"{sender} is an agent, but only a person may approve")
    return f"key:{proof.signer}"


def signer(keyring: Keyring) -> Callable[[bytes], bytes]:
    """A function that signs the workspace's messages; without a key it returns them unchanged.

    Raises ConfigError if there is a key that cannot be used, WorldError.
    """
    if keyring.private(keyring.own_file) is not None:
        require_extra()
    known: tuple[Stamp | None, PrivateKey | None] = (None, None)
    file = keyring.own_file

    def sign(raw: bytes) -> bytes:
        nonlocal known
        if (stamp := keyring.stamp(file)) != known[0]:
            with _stopping():
                known = (stamp, keyring.private(file))
        return raw if known[1] is None else signed(raw, known[1])

    return sign


def signed(raw: bytes, key: PrivateKey) -> bytes:
    """The message signed with `key`, or unchanged if the signature would make it too large: delivery comes first.

    Raises MessageError if it is not a message or cannot be signed.
    """
    with_it = with_signature(raw, key.sign(canonical(raw)))
    if len(with_it) > MAX_FILE >= len(raw):
        _log.warning("a message of %d bytes has no room for a signature; it is sent unsigned", len(raw))
        return raw
    return with_it
