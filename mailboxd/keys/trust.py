"""What a signature on a message is worth in one workspace, and the signing of what the workspace sends.

A signature says who wrote a message and that it is unchanged. It does not say that it is new: a repeated message is
still known by its `message_id` or its bytes, and has no second effect.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mailboxd.core.vocabulary import OPERATORS
from mailboxd.errors import ConfigError, MessageError, Refused, WorldError
from mailboxd.keys.keyring import PrivateKey, PublicKey, Ring, known_as, parse_signature, require_extra
from mailboxd.mailbox.files import Stamp
from mailboxd.protocol.envelope import MAX_FILE, canonical, with_signature
from mailboxd.protocol.messages import Message

YES, NO, UNSIGNED = "yes", "no", "unsigned"
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Proof:
    """`verified`: yes = signed with a key that is trusted as the sender's, for us, and unchanged since;
    no = there is a signature, and `problem` says what is wrong with it; unsigned."""

    verified: str = UNSIGNED
    signer: str | None = None
    """The fingerprint that the signature names; of a trusted key only if `verified` is yes."""
    problem: str = ""


@dataclass(slots=True)
class Trust:
    """The keys that one workspace trusts, read again whenever their file has changed. `agent` is whose mailbox it is,
    `required` are the senders from whom nothing is taken without a valid signature."""

    ring: Ring
    agent: str
    required: frozenset[str] = frozenset()
    _keys: dict[str, tuple[str, PublicKey]] = field(default_factory=dict)
    """By fingerprint: whose it is, and the key."""
    _seen: Stamp | None = None

    @classmethod
    def of(cls, ring: Ring, agent: str, required: Iterable[str]) -> Trust:
        """Raises ConfigError when what is required cannot be checked, or the keys cannot be trusted; WorldError."""
        made = cls(ring, agent, frozenset(map(known_as, required)))
        made._load()
        if made._keys or made.required:
            require_extra()
        return made

    def examine(self, raw: bytes, message: Message) -> Proof:
        """Whose message this is, as far as its signature shows. Raises WorldError if the keys cannot be read now."""
        if message.signature is None:
            return Proof()
        try:
            self._load()
        except ConfigError as error:  # it was right when we started: end, and let the next start say so
            raise WorldError(str(error)) from error
        try:
            fingerprint, signature = parse_signature(message.signature)
        except ValueError as error:
            return Proof(NO, None, f"the signature cannot be read: {error}")
        problem = self._problem(fingerprint, signature, raw, message)
        return Proof(NO if problem else YES, fingerprint, problem)

    def admit(self, proof: Proof, sender: str) -> None:
        """Raises MessageError where the configuration wants a signature and there is none that is valid."""
        if known_as(sender) not in self.required or proof.verified == YES:
            return
        if proof.verified == UNSIGNED:
            hint = f"signing.require names {sender}: its daemon signs once it has a key (`mailboxd keys create`)."
            raise MessageError("unsigned", f"messages from {sender} must be signed, and this one is not", hint)
        raise MessageError("bad-signature", proof.problem, "Trust the right key, or have it sent again.")

    def _problem(self, fingerprint: str, signature: bytes, raw: bytes, message: Message) -> str:
        owner, key = self._keys.get(fingerprint, ("", None))
        if key is None:
            return f"it is signed with the key {fingerprint}, which nobody here trusts"
        if owner != known_as(message.from_):
            return f"it is signed with the key of {owner}, and says that it is from {message.from_}"
        if message.to is not None and known_as(message.to) != known_as(self.agent):
            return f"it was signed for {message.to}, not for {self.agent}"
        if not key.verifies(signature, canonical(raw)):
            return "it has been changed since it was signed"
        return ""

    def _load(self) -> None:
        stamp = self.ring.stamp(self.ring.trusted_file)
        if stamp != self._seen:
            rows = [(row.name, row.public) for row in self.ring.trusted()]
            self._keys = {key.fingerprint: (name, key) for name, key in rows}
            self._seen = stamp


def require_operator(proof: Proof, sender: str) -> str:
    """The actor that an order stands for which only a person may give. Raises Refused."""
    if proof.verified == UNSIGNED:
        raise Refused(
            "unsigned-approval",
            "an approval by file needs the operator's signature: any agent of this user could have written the file",
            "Sign it (`mailboxd keys sign FILE`), or use `mailboxd approve`.",
        )
    if proof.verified != YES:
        raise Refused("bad-signature", proof.problem, "Sign it with the operator's key, which must be trusted here.")
    if sender.lower() not in OPERATORS:
        raise Refused("permission-denied", f"{sender} is an agent, and only a person may approve")
    return f"key:{proof.signer}"


def signer(ring: Ring) -> Callable[[bytes], bytes]:
    """What signs the messages of the workspace, if it has a key; without one they stay as they are.

    Raises ConfigError if there is a key that cannot be used, WorldError.
    """
    if ring.private(ring.own_file) is not None:
        require_extra()
    path = str(ring.folder / ring.own_file)
    known: tuple[Stamp | None, PrivateKey | None] = (None, None)

    def sign(raw: bytes) -> bytes:
        nonlocal known
        if _is_still(known[0], path):
            return raw if known[1] is None else signed(raw, known[1])
        try:
            stamp = ring.stamp(ring.own_file)
            if stamp != known[0]:
                known = (stamp, ring.private(ring.own_file))
        except ConfigError as error:
            raise WorldError(str(error)) from error
        return raw if known[1] is None else signed(raw, known[1])

    return sign


def _is_still(seen: Stamp | None, path: str) -> bool:
    """Whether the file that was seen there is there, or still none; one look, for each message. If it says no, or
    something else is in the way, it is to be looked at with distrust."""
    try:
        return Stamp.of(os.lstat(path)) == seen
    except FileNotFoundError:
        return seen is None
    except OSError:
        return False


def signed(raw: bytes, key: PrivateKey) -> bytes:
    """The message with the signature of `key`. One that has no room for it goes as it is: better that than not at all.

    Raises MessageError if it is no message, or cannot be signed.
    """
    with_it = with_signature(raw, key.sign(canonical(raw)))
    if len(with_it) > MAX_FILE >= len(raw):
        _log.warning("a message of %d bytes has no room for a signature, and is sent without", len(raw))
        return raw
    return with_it
