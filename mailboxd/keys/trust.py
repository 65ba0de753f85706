"""Verifies signatures of incoming messages and signs outgoing ones.

A signature proves who wrote a message and that it is unchanged. It does not prove that the message is new: a replay is
recognized by its `message_id` or its bytes, as for unsigned messages.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mailboxd.core.vocabulary import OPERATORS
from mailboxd.errors import ConfigError, MessageError, Refused, WorldError
from mailboxd.keys.keyring import Keyring, PrivateKey, PublicKey, known_as, parse_signature, require_extra
from mailboxd.mailbox.files import Stamp
from mailboxd.protocol.front_matter import MAX_FILE, canonical, with_signature
from mailboxd.protocol.messages import Message

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

    def verify(self, raw: bytes, message: Message) -> Proof:
        """Verify the signature of a message. Raises WorldError if the keys cannot be read."""
        if message.signature is None:
            return Proof()
        try:
            self._load()
        except ConfigError as error:  # the file was valid at start: stop, and let the next start report it
            raise WorldError(str(error)) from error
        try:
            fingerprint, signature = parse_signature(message.signature)
        except ValueError as error:
            return Proof(NO, None, f"the signature is malformed: {error}")
        problem = self._problem(fingerprint, signature, raw, message)
        return Proof(NO if problem else YES, fingerprint, problem)

    def admit(self, proof: Proof, sender: str) -> None:
        """Raises MessageError if the configuration requires a signature and there is no valid one."""
        if known_as(sender) not in self.required or proof.verified == YES:
            return
        if proof.verified == UNSIGNED:
            hint = f"signing.require names {sender}; its daemon signs as soon as it has a key (`mailboxd keys create`)."
            raise MessageError("unsigned", f"messages from {sender} must be signed, but this one is not", hint)
        raise MessageError("bad-signature", proof.problem, "Trust the right key, or ask the sender to send it again.")

    def _problem(self, fingerprint: str, signature: bytes, raw: bytes, message: Message) -> str:
        owner, key = self._keys.get(fingerprint, ("", None))
        if key is None:
            return f"it is signed with the key {fingerprint}, which is not trusted here"
        if owner != known_as(message.from_):
            return f"it is signed with the key of {owner}, but claims to be from {message.from_}"
        if message.to is not None and known_as(message.to) != known_as(self.agent):
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


def require_operator(proof: Proof, sender: str) -> str:
    """The actor behind an order that only a person may give. Raises Refused."""
    if proof.verified == UNSIGNED:
        raise Refused(
            "unsigned-approval",
            "an approval by file needs the operator's signature, since any agent of this user could write the file",
            "Sign it (`mailboxd keys sign FILE`), or use `mailboxd approve`.",
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
    path = str(keyring.folder / keyring.own_file)
    known: tuple[Stamp | None, PrivateKey | None] = (None, None)

    def sign(raw: bytes) -> bytes:
        nonlocal known
        if _is_unchanged(known[0], path):
            return raw if known[1] is None else signed(raw, known[1])
        try:
            stamp = keyring.stamp(keyring.own_file)
            if stamp != known[0]:
                known = (stamp, keyring.private(keyring.own_file))
        except ConfigError as error:
            raise WorldError(str(error)) from error
        return raw if known[1] is None else signed(raw, known[1])

    return sign


def _is_unchanged(seen: Stamp | None, path: str) -> bool:
    """A cheap check for each message: False means that the file must be opened again, with all precautions."""
    try:
        return Stamp.of(os.lstat(path)) == seen
    except FileNotFoundError:
        return seen is None
    except OSError:
        return False


def signed(raw: bytes, key: PrivateKey) -> bytes:
    """The message signed with `key`, or unchanged if the signature would make it too large: delivery comes first.

    Raises MessageError if it is not a message or cannot be signed.
    """
    with_it = with_signature(raw, key.sign(canonical(raw)))
    if len(with_it) > MAX_FILE >= len(raw):
        _log.warning("a message of %d bytes has no room for a signature; it is sent unsigned", len(raw))
        return raw
    return with_it
