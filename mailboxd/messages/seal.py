"""A line in what we render, by which it is known again as ours: nobody has edited it since. Pure."""

from __future__ import annotations

import hashlib
import re

_SEAL = re.compile(rb"\nrendered: ([0-9a-f]{16})(?=\n)")


def sealed(raw: bytes) -> bytes:
    """A rendering of ours, with a line in its front matter by which it is known again: nobody has edited it since."""
    head, fence, body = raw.partition(b"\n---\n")
    return head + b"\nrendered: " + _digest(raw) + fence + body


def is_sealed(raw: bytes) -> bool:
    found = _SEAL.search(raw)
    return found is not None and _digest(unsealed(raw)) == found[1]


def unsealed(raw: bytes) -> bytes:
    return _SEAL.sub(b"", raw, count=1)


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest()[:16].encode()
