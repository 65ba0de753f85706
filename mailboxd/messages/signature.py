"""What of a message is signed, and where the signature stands: bytes to bytes, without any key.

What is signed is the message as it is read, not its bytes, so that a signature survives what transport does to a text
without changing it: other line ends, a byte order mark, blank space around the body, another order or quoting of the
headers. Anything else that changes, in a header that is known or in one that is not, or in the body, makes it invalid.

    mailboxd-message-1 LF JSON

JSON is a list of two: the mapping of all headers but `signature`, `bytes` and `sha256`, their values as text, lists
and mappings of text exactly as YAML gives them, untyped; and the body with LF line ends, without blank lines before
and white space after it. Keys are sorted by code point, nothing stands between the tokens, and what is not ASCII is
written as \\uXXXX (docs/messages.md has an example). The first line says what is signed: a signature of ours over
something else can never be taken for one of a message.
"""

from __future__ import annotations

import json
import re

from mailboxd.errors import MessageError
from mailboxd.messages.envelope import BOM, DECLARATIONS, fences, split
from mailboxd.messages.sections import trim

HEADER = "signature"

_CONTEXT = b"mailboxd-message-1\n"
_LINE = re.compile(rb"^signature:[ \t]*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'{\[|>&*!#][^\s]*)?[ \t]*\r?\n", re.MULTILINE)


def canonical(raw: bytes, path: str = "message") -> bytes:
    """The bytes that a signature of the message `raw` is made over. Raises MessageError as `envelope.split` does, and
    `no-frontmatter`: a file without front matter has no place for a signature."""
    envelope = split(raw, path, max_bytes=len(raw))
    if not envelope.has_header:
        hint = "Write it as a message; see docs/messages.md."
        raise MessageError("no-frontmatter", "a file without front matter cannot be signed", hint, path)
    left_out = (HEADER, *DECLARATIONS)
    headers = {name: value for name, value in envelope.header.items() if name not in left_out}
    said = json.dumps([headers, trim(envelope.body)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return _CONTEXT + said.encode("ascii")


def with_signature(raw: bytes, signature: str, path: str = "message") -> bytes:
    """The message with this signature as the last line of its front matter, in the place of an earlier one.

    Raises MessageError if the front matter is not written as lines, so that no line can be added.
    """
    before = canonical(raw, path)
    raw = raw.removeprefix(BOM)
    opening, closing = fences(raw, path)
    header = _LINE.sub(b"", raw[opening.end() : closing.start()])
    end = b"\r\n" if opening[0].endswith(b"\r\n") else b"\n"
    line = f'{HEADER}: "{signature}"'.encode() + end
    signed = raw[: opening.end()] + header + line + raw[closing.start() :]
    try:
        if canonical(signed, path) == before:
            return signed
    except MessageError:
        pass
    hint = "Write each header on a line of its own, like `type: task`."
    raise MessageError("bad-yaml", "no line can be added to this front matter", hint, path)
