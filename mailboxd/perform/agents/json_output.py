"""Parse a program's JSON output strictly (one value, no extensions, no duplicate keys), and read typed values."""

from __future__ import annotations

import json
import re
from typing import Any

from mailboxd.core.vocabulary import MODEL
from mailboxd.perform.agents.call_dir import Exit

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_ERROR_LENGTH = 2000


def parse(exit_: Exit) -> Any:
    """The single JSON value that stdout consists of; None if invalid (or `null`). Never raises."""
    return None if exit_.truncated else parse_text(exit_.stdout)


def parse_text(text: str | bytes) -> Any:
    """The JSON value in a text; None if invalid. Never raises."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def parse_object(exit_: Exit) -> dict[str, Any] | None:
    """Like `parse`, for objects only."""
    value = parse(exit_)
    return value if isinstance(value, dict) else None


def cli_error(exit_: Exit) -> str | None:
    """The message of OpenClaw's error envelope (`ok` is false, rc 1), else None."""
    value = parse_object(exit_)
    if exit_.rc != 1 or value is None or value.get("ok") is not False:
        return None
    message = at(value, "error", "message")
    return message if isinstance(message, str) else None


def complaint(exit_: Exit) -> str:
    """The error of a failed program: the message of its JSON error, else its output or exit status."""
    if message := _message(exit_.stdout) or _message(exit_.stderr):
        return brief(message)
    said = exit_.stderr.strip() or (exit_.stdout if parse(exit_) is None else b"")
    return brief(said.decode("utf-8", "replace")) or f"exit status {exit_.rc}"


def _message(raw: bytes) -> str:
    error = at(parse_text(raw), "error")
    return (error if isinstance(error, str) else text_at(error, "message")).strip()


def at(value: object, *path: str) -> Any:
    """The value under nested keys, None if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text_at(value: object, *path: str) -> str:
    """`text` under nested keys."""
    return text(at(value, *path))


def text(found: object) -> str:
    """A text without NUL and lone surrogates; empty if it is none."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", found) if isinstance(found, str) else ""


def reference(found: object) -> str | None:
    """A run or session id; None unless it is safe as a command argument."""
    return found if isinstance(found, str) and _REFERENCE.fullmatch(found) else None


def model_in(value: object) -> str | None:
    """The model under `provider` and `model`, as provider/model; None if there is none, or it can be no name."""
    if not isinstance(value, dict):
        return None
    provider, model = text(value.get("provider")), text(value.get("model"))
    name = f"{provider}/{model}" if provider else model
    return name if model and MODEL.fullmatch(name) else None


def count(found: object) -> int | None:
    """A whole number from 0 to 10^15, else None."""
    return found if type(found) is int and 0 <= found <= 10**15 else None


def amount(found: object) -> float | None:
    """An amount of money: finite, from 0 to 10^9, else None."""
    if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found <= 10**9:
        return float(found)
    return None


def brief(text: str) -> str:
    """Untrusted text for an error message: at most 2,000 characters, control characters escaped."""
    shown = _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text.strip())
    return shown if len(shown) <= _ERROR_LENGTH else shown[: _ERROR_LENGTH - 1] + "…"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate key")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)  # `loads` would create one per call
