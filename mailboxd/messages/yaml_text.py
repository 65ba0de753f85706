"""Strings, lists and mappings as YAML text that every YAML reader takes for the same strings.

Hand-written, because PyYAML's emitter needs seconds for a plan of 10,000 children. Nothing is ever typed: what a
YAML 1.1 or 1.2 reader could take for a number, a time, a boolean or null is quoted (`"1e3"`, `"no"`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Value = str | Sequence["Value"] | Mapping[str, "Value"]

_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./() -]*[A-Za-z0-9_./()-])?")
_TYPED = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_quoted = json.JSONEncoder(ensure_ascii=False).encode  # `dumps` would make one for each header
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NOT_IN_BLOCK = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010fffd]")


def scalar(text: str) -> str:
    """`text` on one line: plain where that is safe in block and flow context, else in double quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _TYPED:
        return text
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", _quoted(text))


def flow(value: Value) -> str:
    """Any structure of strings on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{scalar(key)}: {flow(item)}" for key, item in value.items()]) + "}"
    return "[" + ", ".join([flow(item) for item in value]) + "]"


def block(text: str, indent: str) -> str:
    """`text` as a literal block (`|-`) indented by `indent` when it has several lines and a block can hold it exactly.

    Blocks lose what stands at their edges (leading white space, final newlines); such text is quoted instead.
    """
    if "\n" not in text or text[0].isspace() or text[-1].isspace() or _NOT_IN_BLOCK.search(text):
        return scalar(text)
    return "|-\n" + "\n".join(indent + line if line else "" for line in text.split("\n"))
