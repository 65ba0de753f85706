"""What crosses the server sealed, so that only its receivers can read it: mail, jobs of pools, files and talk.

One format for all of them:

    "mbx", version (1 byte), length of the header (4 bytes), header, piece, piece ...

The header is JSON that anybody can read: for each receiving host the fingerprint of its key, and the content's random
key, sealed for it (libsodium's sealed box, with the X25519 form of the host's Ed25519 key). The pieces are a stream of
libsodium (secretstream, XChaCha20-Poly1305): none can be changed, moved, repeated or left out unnoticed, and the last
one says that it is the last. A message is a stream of one piece. The first piece vouches for the header.

Sealing does not prove who sealed: what is inside is signed by its sender. It adds 240 bytes to what is for one host,
and about 160 for each other host of a pool.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from nacl.bindings import crypto_secretstream_xchacha20poly1305_init_pull as start_opening
from nacl.bindings import crypto_secretstream_xchacha20poly1305_init_push as start_sealing
from nacl.bindings import crypto_secretstream_xchacha20poly1305_keygen as new_key
from nacl.bindings import crypto_secretstream_xchacha20poly1305_pull as open_piece
from nacl.bindings import crypto_secretstream_xchacha20poly1305_push as seal_piece
from nacl.bindings import crypto_secretstream_xchacha20poly1305_state as Stream
from nacl.bindings import crypto_secretstream_xchacha20poly1305_TAG_FINAL as LAST
from nacl.bindings import crypto_secretstream_xchacha20poly1305_TAG_MESSAGE as MORE
from nacl.exceptions import CryptoError
from nacl.public import PublicKey as BoxKey
from nacl.public import SealedBox
from nacl.signing import SigningKey, VerifyKey

from mailboxd.errors import MailboxdError
from mailboxd.formats.keys import PrivateKey, PublicKey

VERSION = 2
_MAGIC = b"mbx"
_LENGTH = 4
_LARGEST_HEADER = 1 << 20
"""Bytes, for about 5,000 hosts."""


class SealError(MailboxdError):
    """Why something cannot be sealed or opened."""


class OlderWire(SealError):
    """It came unsealed."""


class NewerWire(SealError):
    """It is sealed in a version that this mailboxd does not know."""


class EarlierHolder(SealError):
    """It is sealed for another key than this host's, which had its name before."""


class NotForHost(SealError):
    """It is sealed for other hosts."""


class Damaged(SealError):
    """It was changed, moved or cut on its way."""


def seal(raw: bytes, receivers: Mapping[str, PublicKey]) -> bytes:
    """What only these hosts can open. Raises SealError if there is none, or if a key is none."""
    return Sealing(receivers).piece(raw, is_last=True)


def open_sealed(raw: bytes, host: str, key: PrivateKey) -> bytes:
    """What was sealed for this host. Raises SealError."""
    opening = Opening(host, key)
    content = opening.piece(raw)
    if not opening.is_over:
        raise Damaged("it was cut on its way")
    return content


@dataclass(slots=True)
class Sealing:
    """Content sealed piece by piece for these hosts, by their names."""

    receivers: Mapping[str, PublicKey]
    _stream: Stream | None = None

    def piece(self, raw: bytes, *, is_last: bool) -> bytes:
        """The next piece, sealed; the first comes with the header. Raises SealError."""
        start = b""
        if self._stream is None:
            self._stream, start = self._begun()
        return start + seal_piece(self._stream, raw, start, LAST if is_last else MORE)

    def _begun(self) -> tuple[Stream, bytes]:
        if not self.receivers:
            raise SealError("there is no host for which it could be sealed")
        stream, key = Stream(), new_key()
        said: dict[str, object] = {"stream": _text(start_sealing(stream, key))}
        said["hosts"] = {
            host: [one.fingerprint, _text(_wrapped(key, host, one))] for host, one in self.receivers.items()
        }
        header = json.dumps(said, separators=(",", ":")).encode()
        return stream, _MAGIC + bytes([VERSION]) + len(header).to_bytes(_LENGTH, "big") + header


@dataclass(slots=True)
class Opening:
    """Sealed content that this host opens piece by piece, in their order."""

    host: str
    key: PrivateKey = field(repr=False)
    is_over: bool = False
    """The last piece was opened."""
    _stream: Stream | None = field(default=None, repr=False)

    def piece(self, raw: bytes) -> bytes:
        """The content of the next piece. Raises SealError."""
        if self.is_over:
            raise Damaged("more was added to it on its way")
        start = b""
        if self._stream is None:
            start, header, raw = _divided(raw)
            self._stream = self._begun(header)
        try:
            content, tag = open_piece(self._stream, raw, start)
        except CryptoError:
            raise Damaged("it was changed on its way") from None
        self.is_over = tag == LAST
        return content

    def _begun(self, header: bytes) -> Stream:
        try:
            said = json.loads(header)
            hosts, stream = said["hosts"], Stream()
            if self.host not in hosts:
                raise NotForHost(f"it is sealed for {', '.join(sorted(hosts))[:200] or 'nobody'}, not for {self.host}")
            fingerprint, wrapped = hosts[self.host]
            if fingerprint != self.key.public.fingerprint:
                raise EarlierHolder(f"it is sealed for an earlier holder of the name {self.host}, with another key")
            box = SealedBox(SigningKey(self.key.seed).to_curve25519_private_key())
            start_opening(stream, _raw(said["stream"]), box.decrypt(_raw(wrapped)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, CryptoError):
            raise Damaged("its header was changed on its way") from None
        return stream


def _divided(raw: bytes) -> tuple[bytes, bytes, bytes]:
    """All that precedes the first piece, the header in it, and the first piece. Raises SealError."""
    at = len(_MAGIC) + 1
    if not raw.startswith(_MAGIC):
        raise OlderWire("it is not sealed: the mailboxd of its host is older than this one")
    if raw[len(_MAGIC) : at] != bytes([VERSION]):
        raise NewerWire("it is sealed in a way that this mailboxd does not know: that of its host is newer")
    length = int.from_bytes(raw[at : at + _LENGTH], "big")
    end = at + _LENGTH + length
    if length > _LARGEST_HEADER or len(raw) < end:
        raise Damaged("its header was cut on its way")
    return raw[:end], raw[at + _LENGTH : end], raw[end:]


def can_receive(key: PublicKey) -> bool:
    """Whether something can be sealed for the host with this key: not every 32 bytes are a key."""
    return _box(key.raw) is not None


def _wrapped(content_key: bytes, host: str, key: PublicKey) -> bytes:
    if (box := _box(key.raw)) is None:
        raise SealError(f"nothing can be sealed for {host}: its public key in the list of hosts is none")
    return box.encrypt(content_key)


@lru_cache(1_000)
def _box(raw: bytes) -> SealedBox[BoxKey] | None:
    try:
        return SealedBox(VerifyKey(raw).to_curve25519_public_key())
    except CryptoError:
        return None


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _raw(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("it is not base64") from error
