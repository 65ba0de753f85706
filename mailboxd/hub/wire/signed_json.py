"""JSON that one host says to others, with its signature."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mailboxd.formats.keys import PrivateKey, PublicKey


def signed_json(key: PrivateKey, content: Mapping[str, object]) -> bytes:
    """The content, signed."""
    text = json.dumps(content)
    return json.dumps({"text": text, "signature": key.sign(text.encode())}).encode()


def verified_json(raw: bytes, key: PublicKey) -> dict[str, Any] | None:
    """The content, if it was signed with this key."""
    try:
        outer = json.loads(raw)
        if not key.has_signed(outer["text"].encode(), outer["signature"]):
            return None
        content = json.loads(outer["text"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
