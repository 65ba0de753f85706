"""The outside of a message: which bytes are front matter, which are body.

The splitting is ours and works on the raw bytes, because python-frontmatter 1.3 is silent where we must not be: with
a BOM, CR line ends or an unterminated fence it gives empty metadata, it takes a `---` block in the middle of prose
for the envelope, and it strips the body. What it does well is kept: its handler is the seam between text and
metadata (`EnvelopeHandler`), and its Post and dumps write the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import frontmatter
from frontmatter.default_handlers import YAMLHandler

from mailboxd.core.sanitize import excerpt
from mailboxd.errors import MessageError
from mailboxd.protocol.markdown import trim
from mailboxd.protocol.strict_yaml import Loaded, Path, Yaml, flow, load, scalar

MAX_FILE = 1 << 20
"""Bytes a message file may have unless the configuration says otherwise; what is sent has no more."""
MAX_HEADER = 64 << 10
"""Bytes its front matter may have."""
BOM = b"\xef\xbb\xbf"
"""What some editors put before UTF-8. It is no part of a message."""

_FENCE = re.compile(rb"^---[ \t]*+\r?(?:\n|\Z)", re.MULTILINE)
_JSON = re.compile(rb"\{[ \t\r\n]*+(?:[\"}]|\Z)")
_DECIMAL = re.compile(r"[0-9]{1,12}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_CR_HINT = "Its line ends are bare carriage returns; end lines with LF or CRLF."
DECLARATIONS = ("bytes", "sha256")
"""Headers that speak of the body's bytes, not of the message. They are checked and then left out of `header`."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A file, split. `header` is empty without front matter; `lines` and `nulls` are those of `yaml_events.Loaded`.

    `body` is what follows the closing fence (or the whole text), line ends as LF; `body_line` is its first line.
    """

    header: dict[str, Yaml]
    lines: Mapping[Path, int]
    nulls: frozenset[Path]
    body: str
    has_header: bool
    body_line: int


class EnvelopeHandler(YAMLHandler):
    """python-frontmatter's seam, strict: it reads with our loader and writes what every YAML reader reads as we do.

    `path` and `first_line` (of the YAML) are for error messages; `loaded` is what `load` read last.
    """

    def __init__(self, path: str = "", first_line: int = 2) -> None:
        super().__init__()
        self.path = path
        self.first_line = first_line
        self.loaded = Loaded("", {}, frozenset())

    def split(self, text: str) -> tuple[str, str]:
        """Front matter and body of `text`. Raises ValueError without front matter, MessageError for a bad one."""
        raw = text.encode()
        fences = _fences(raw, self.path)
        if fences is None:
            raise ValueError("no front matter")
        return raw[fences[0].end() : fences[1].start()].decode(), raw[fences[1].end() :].decode()

    def load(self, fm: str, **_: object) -> dict[str, Yaml]:
        """The mapping that `fm` is, scalars as text. Raises MessageError."""
        self.loaded = load(fm, path=self.path, first_line=self.first_line)
        if isinstance(self.loaded.value, dict):
            return self.loaded.value
        if () in self.loaded.nulls:
            return {}
        problem = "the front matter is not a mapping"
        raise MessageError("bad-yaml", problem, "Write `key: value` lines.", self.path, self.first_line)

    def export(self, metadata: Mapping[str, object], **_: object) -> str:
        """One line per header. Texts that some reader could take for something else are quoted."""
        return "\n".join([f"{scalar(key)}: {_value(value)}" for key, value in metadata.items()])

    def format(self, post: frontmatter.Post, **_: object) -> str:
        """The file. Unlike the library's, it leaves the body as it is."""
        body = f"\n{post.content}" if post.content else ""
        return f"---\n{self.export(post.metadata)}\n---\n{body}"


def split(raw: bytes, path: str, *, max_bytes: int = MAX_FILE) -> Envelope:
    """Splits the bytes of the file `path`.

    Raises MessageError: `too-large`, `empty`, `not-utf8`, `no-frontmatter` (JSON, TOML or bare CR line ends),
    `unterminated`, `control-char`, `nul-in-body`, `length-mismatch`, and those of `yaml_events.load`.
    """
    if len(raw) > max_bytes:
        hint = "Put the matter into a file and name the file."
        raise MessageError("too-large", f"the file has {len(raw)} bytes, {max_bytes} are allowed", hint, path)
    _check_utf8(raw, path)
    raw = raw.removeprefix(BOM)
    fences = _fences(raw, path)
    if fences is None:
        _refuse_foreign(raw, path)
        return Envelope({}, {}, frozenset(), _body(raw, 0, 1, path), has_header=False, body_line=1)
    opening, closing = fences
    first_line = raw.count(b"\n", 0, opening.end()) + 1
    header_raw = raw[opening.end() : closing.start()]
    if len(header_raw) > MAX_HEADER:
        problem = f"the front matter has {len(header_raw)} bytes, {MAX_HEADER} are allowed"
        raise MessageError("too-large", problem, "Long matter belongs into the body.", path, first_line)
    handler = EnvelopeHandler(path, first_line)
    header = handler.load(header_raw.decode())
    body_line = raw.count(b"\n", 0, closing.end()) + 1
    body = _body(raw, closing.end(), body_line, path)
    _check_declared(header, handler.loaded.lines, raw[closing.end() :], path)
    kept = {key: value for key, value in header.items() if key not in DECLARATIONS}
    return Envelope(kept, handler.loaded.lines, handler.loaded.nulls, body, has_header=True, body_line=body_line)


def join(header: Mapping[str, object], body: str) -> bytes:
    """The file with this front matter (text, int, bool, float, lists and mappings of text) and this body."""
    post = frontmatter.Post(body, EnvelopeHandler())
    # Assigned, because Post(**metadata) cannot take headers named `content` or `handler`.
    post.metadata = dict(header)
    return frontmatter.dumps(post).encode()


def fences(raw: bytes, path: str) -> tuple[re.Match[bytes], re.Match[bytes]]:
    """The two fences of a file that `split` finds front matter in; their positions are those in `raw`."""
    found = _fences(raw, path)
    if found is None:
        raise MessageError("no-frontmatter", "there is no front matter", "", path, 1)
    return found


def _fences(raw: bytes, path: str) -> tuple[re.Match[bytes], re.Match[bytes]] | None:
    """The opening and the closing fence; None when the first line that is not blank is no fence."""
    start = len(raw) - len(raw.lstrip(b" \t\r\n"))
    if start == len(raw):
        raise MessageError("empty", "the file is empty", "The writer may have died; send it again.", path)
    opening = _FENCE.match(raw, start)
    if opening is None:
        return None
    closing = _FENCE.search(raw, opening.end())
    if closing is None:
        line = raw.count(b"\n", 0, start) + 1
        hint = "Close it with a line `---`; the file may have been cut off while it was written."
        raise MessageError("unterminated", "the front matter is never closed", hint, path, line)
    return opening, closing


def _refuse_foreign(raw: bytes, path: str) -> None:
    """What was meant as an envelope, but is none of ours, must not become a task from the operator."""
    start = raw.lstrip(b" \t\r\n")[:4096]
    if (b"\r" in raw and b"\n" not in raw) or start.startswith(b"---\r"):
        raise MessageError("no-frontmatter", "the front matter cannot be read", _CR_HINT, path, 1)
    if start.startswith(b"+++") or _JSON.match(start):
        kind = "TOML" if start.startswith(b"+++") else "JSON"
        hint = "Write it as YAML between two lines `---`."
        raise MessageError("no-frontmatter", f"the front matter is {kind}", hint, path, 1)


def _check_utf8(raw: bytes, path: str) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"byte {error.start} of the file is not UTF-8 ({error.reason})"
        raise MessageError("not-utf8", problem, "Save the file as UTF-8.", path, line) from None


def _body(raw: bytes, start: int, line: int, path: str) -> str:
    nul = raw.find(b"\0", start)
    if nul >= 0:
        line += raw.count(b"\n", start, nul)
        problem = "the body contains a NUL byte"
        raise MessageError("nul-in-body", problem, "A message is text; name binary matter as a file.", path, line)
    return raw[start:].replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode()


def _check_declared(header: Mapping[str, Yaml], lines: Mapping[Path, int], body: bytes, path: str) -> None:
    """Compares `bytes:` and `sha256:`, if they stand there, with the body as it stands in the file."""
    for name, (pattern, spelling, measure) in _DECLARED.items():
        if name not in header:
            continue
        said, line, found = header[name], lines.get((name,)), measure(body)
        if not isinstance(said, str) or not pattern.fullmatch(said):
            raise MessageError("wrong-type", f"{excerpt(str(said))} is not {spelling}", "", path, line, name)
        if said.lower().lstrip("0") != found.lstrip("0"):
            problem = f"the body is not the one that was declared: {name} is {found}, not {said}"
            hint = "The file may have been cut off; send it again."
            raise MessageError("length-mismatch", problem, hint, path, line, name)


_DECLARED: dict[str, tuple[re.Pattern[str], str, Callable[[bytes], str]]] = {
    "bytes": (_DECIMAL, "a number of bytes", lambda body: str(len(body))),
    "sha256": (_SHA256, "64 hexadecimal digits", lambda body: hashlib.sha256(body).hexdigest()),
}


def _value(value: object) -> str:
    if isinstance(value, str):  # as most are
        return scalar(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    assert isinstance(value, (list, tuple, dict))  # the models hold nothing else
    return flow(value)


# ---------------------------------------------------------------------------------------------------------------------
# What of a message is signed, and where the signature stands: bytes to bytes, without any key.
#
# What is signed is the message as it is read, not its bytes, so that a signature survives what transport does to a
# text without changing it: other line ends, a byte order mark, blank space around the body, another order or quoting
# of the headers. Anything else that changes, in a header that is known or in one that is not, or in the body, makes it
# invalid.
#
#     mailboxd-message-1 LF JSON
#
# JSON is a list of two: the mapping of all headers but `signature`, `bytes` and `sha256`, their values as text, lists
# and mappings of text exactly as YAML gives them, untyped; and the body with LF line ends, without blank lines before
# and white space after it. Keys are sorted by code point, nothing stands between the tokens, and what is not ASCII is
# written as \uXXXX (docs/messages.md has an example). The first line says what is signed: a signature of ours over
# something else can never be taken for one of a message.

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
