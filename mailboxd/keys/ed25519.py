"""One key: as text, by its fingerprint, and what it is for.

    ed25519:<43 characters, base64url>              the public half, as it is handed to others
    ed25519-private:<43 characters, base64url>      the private half, in a file of its owner
    ed25519:<32 hex>:<86 characters, base64url>     a signature, with the fingerprint of its key

The fingerprint is the beginning of the SHA-256 of the 32 bytes of the public key, as 32 hexadecimal digits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from importlib.util import find_spec

from mailboxd.errors import ConfigError
from mailboxd.host.extras import to_add

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
