"""Message and task.md files <-> front matter and body, with python-frontmatter; what is signed of a message.

python-frontmatter finds, reads and writes the front matter through `FrontMatter`, its handler. Two things are done
here, because the library would change a message (docs/decisions/0003): size, encoding and fences are checked first,
on the whole file, and the body is taken from the file, because the library strips it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import frontmatter
from frontmatter.default_handlers import BaseHandler

from mailboxd.core.sanitize import excerpt
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.markdown import fenced, trim
from mailboxd.formats.protocol.strict_yaml import (
    HARD_SPACE,
    PLAIN,
    Loaded,
    Path,
    Yaml,
    flow,
    load,
    repaired,
    scalar,
    value_text,
)

MAX_FILE = 1 << 20
"""Largest message file in bytes, unless the configuration sets another limit."""
MAX_HEADER = 64 << 10
"""Largest front matter in bytes."""
DECLARATIONS = ("bytes", "sha256")
"""Headers that describe the bytes of the body. They are checked and then left out of `header`."""

_BLANK = " \t\r\n"
_JSON = re.compile(r"\{[ \t\r\n]*+(?:[\"}]|\Z)")
_JSON_OPENS = re.compile(r"[ \t\r\n]*+---[ \t]*json[ \t]*\r?\n", re.IGNORECASE)
_SEMICOLONS = re.compile(r";{3,}[ \t]*\r?\n")
_WRAP = re.compile(r"(`{3,}|~{3,})[ \t]*(?:markdown|md|text|txt|message|yaml|yml)?[ \t]*", re.IGNORECASE)
_KEY = re.compile(r"([^\W\d_][\w-]{0,40})[ \u00a0]?[:：][ \t]*(.{0,300})")
_BEFORE_MAIL = re.compile(r"(?m:^)>?From [^\s:]+ [^\n]*\n|(?<!-)-{2,}+[^\n-]{3,60}-{2,}+[ \t]*\r?\n(?:[ \t]*\r?\n)*")
"""The line before a mail in a file of mails (RFC 4155), and before one that was forwarded."""
_MAIL_WORDS = {
    **dict.fromkeys(("von", "de", "da", "van", "od", "от", "发件人", "差出人"), "from"),
    **dict.fromkeys(("betreff", "objet", "asunto", "assunto", "oggetto", "onderwerp", "temat", "тема"), "subject"),
    **dict.fromkeys(("主题", "件名"), "subject"),
    **dict.fromkeys(("gesendet", "envoyé", "enviado", "inviato", "verzonden", "wysłano", "отправлено", "date"), "sent"),
}
"""Headers of a mail as programs in other languages write them."""
_QUOTES_MAIL = re.compile(
    r"(?:On|Am|Le|El|Il|Em|Op)\b.{6,200}\b(?:wrote|schrieb|écrit|escribió|scritto|escreveu|schreef)\b.{0,100}:"
)
"""The line above a mail that is quoted."""
_LOOKED_AT = 400
"""Lines of a text in which a message of somebody else is looked for."""
_MOST_KEYS = 40
_DECIMAL = re.compile(r"[0-9]{1,12}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    """A file, split. `header` is empty without front matter; `lines` and `nulls` are those of `strict_yaml.Loaded`.

    `body` is the text after the closing fence (or the whole text) with LF line ends; `body_line` is its first line.
    """

    header: dict[str, Yaml]
    lines: Mapping[Path, int]
    nulls: frozenset[Path]
    body: str
    has_header: bool
    body_line: int


class FrontMatter(BaseHandler):
    """python-frontmatter's handler for messages: strict YAML between two lines `---`, values as text.

    `path` and `first_line` (of the YAML) are used in errors; `loaded` is the result of the last `load`.
    """

    FM_BOUNDARY = re.compile(r"^---[ \t]*+\r?(?:\n|\Z)", re.MULTILINE)
    OPENING = re.compile(r"^---[ \t]*+(?:ya?ml[ \t]*+)?\r?(?:\n|\Z)", re.MULTILINE)
    START_DELIMITER = END_DELIMITER = "---"

    def __init__(self, path: str = "", first_line: int = 2) -> None:
        super().__init__()
        self.path = path
        self.first_line = first_line
        self.loaded = Loaded("", {}, frozenset())

    def split(self, text: str) -> tuple[str, str]:
        """The YAML and the body of `text`. Raises ValueError without front matter, so that the library returns the
        text unchanged, and MessageError if the front matter is not closed."""
        opening, closing = fences(text, self.path)
        return text[opening.end() : closing.start()], text[closing.end() :]

    def load(self, fm: str) -> dict[str, Yaml]:
        """Parse the YAML mapping `fm`; scalars stay text. Raises MessageError."""
        try:
            self.loaded = self._mapping(fm)
        except MessageError as error:
            self.loaded = self._repaired(fm, error)
        return self.loaded.value if isinstance(self.loaded.value, dict) else {}

    def _mapping(self, fm: str) -> Loaded:
        loaded = load(fm, path=self.path, first_line=self.first_line)
        if isinstance(loaded.value, dict) or () in loaded.nulls:
            return loaded
        problem = "the front matter is not a mapping"
        raise MessageError("bad-yaml", problem, "Write `key: value` lines.", self.path, self.first_line)

    def _repaired(self, fm: str, error: MessageError) -> Loaded:
        """The front matter with every repair that leaves one reading. Raises `error`, with its cause, if none helps."""
        text = repaired(fm.replace("\r\n", "\n"))
        if error.rule == "bad-yaml" and text != fm:
            try:
                return self._mapping(text)
            except MessageError:
                pass
        if error.rule == "bad-yaml" and error.line is not None:
            number = error.line - self.first_line
            lines = fm.split("\n")
            error.hint = _cause(lines[number].rstrip("\r") if 0 <= number < len(lines) else "") or error.hint
        raise error

    def export(self, metadata: Mapping[str, object], **_: object) -> str:
        """One line per header. Text that a YAML reader could take for another type is quoted."""
        return "\n".join(
            [
                f"{_name(key)}: {value if isinstance(value, str) and PLAIN.fullmatch(value) else value_text(value)}"
                for key, value in metadata.items()
            ]
        )

    def format(self, post: frontmatter.Post, **_: object) -> str:
        """The whole file. Unlike the library's own `format`, it does not strip the body."""
        body = f"\n{post.content}" if post.content else ""
        return f"---\n{self.export(post.metadata)}\n---\n{body}"


_WRITER = FrontMatter()
"""Writing leaves nothing in it."""
_name = lru_cache(256)(scalar)
"""The name of a header as it is written: there are few, and each stands in every message."""
_LONGEST_SHOWN = 200
"""Characters of a line that a hint writes out anew."""


def _cause(line: str) -> str:
    """What is wrong with a line that is no YAML, and the line to write; empty if that cannot be told."""
    if len(line) > _LONGEST_SHOWN:
        return ""
    shown = excerpt(line.strip())
    key, _, value = line.partition(":")
    better = f"{key.strip()}: {json.dumps(value.strip().strip(chr(34) + chr(39)), ensure_ascii=False)}"
    if not better.isprintable():
        return ""
    if "{{" in line or "<%" in line:
        return f"{shown} holds an unfilled place of a template: put the value there."
    if line.startswith("\t"):
        return f"{shown} is indented by a tab: write spaces."
    if "\t" in line:
        return f"{shown} holds a tab: write a space."
    if HARD_SPACE.search(line):
        return f"{shown} holds a hard space, which only looks like a space: write a space."
    if re.search("[\u2018\u2019\u201c\u201d\u201e\u201a]", line) and value.strip()[:1] in "\u2018\u201c\u201e\u201a":
        return f"{shown} has typographic quotes: write `{better}`."
    if not _KEY.match(line.strip()) and not line.strip().startswith("-"):
        return f"{shown} is neither `key: value` nor an item `- ...` of a list."
    if value.strip().startswith(("'", '"')) or value.count("'") == 1:
        return f"{shown} has an apostrophe or a quote that does not end: write `{better}`."
    if ": " in value or value.rstrip().endswith(":"):
        return f"{shown} has a second colon: write `{better}`."
    if line[:1] == " ":
        return f"{shown} is indented: begin it where the line above begins, or quote the value above."
    if value.strip()[:1] in "[]{}&*!|>%@`#":
        return f"{shown} begins with a mark of YAML: write `{better}`."
    return ""


def split(raw: bytes, path: str, *, max_bytes: int = MAX_FILE) -> Document:
    """Split the bytes of the file `path` into front matter and body.

    Raises MessageError: `too-large`, `empty`, `not-utf8`, `no-frontmatter` (JSON, TOML or bare CR line ends),
    `unterminated`, `control-char`, `nul-in-body`, `length-mismatch`, and those of `strict_yaml.load`.
    """
    if len(raw) > max_bytes:
        hint = "Put the content into a file and name it."
        raise MessageError("too-large", f"the file has {len(raw)} bytes; the limit is {max_bytes}", hint, path)
    text = unwrapped(_decode(raw, path))
    try:
        if (json_head := _JSON_OPENS.match(text)) is not None:
            return _json_document(text, json_head, path)
        opening, closing = fences(text, path)
    except ValueError:
        _refuse_other_formats(text, path)
        return Document({}, {}, frozenset(), _body(text, 0, 1, path), has_header=False, body_line=1)
    first_line = text.count("\n", 0, opening.end()) + 1
    size = len(text[opening.end() : closing.start()].encode())
    if size > MAX_HEADER:
        problem = f"the front matter has {size} bytes; the limit is {MAX_HEADER}"
        raise MessageError("too-large", problem, "Move long text into the body.", path, first_line)
    handler = FrontMatter(path, first_line)
    # `parse`, not `loads`: `loads` fails on headers named `content` or `handler`, which its Post takes as arguments.
    metadata, _ = frontmatter.parse(text[opening.start() : closing.end()], handler=handler)
    header = cast("dict[str, Yaml]", metadata)
    body_line = text.count("\n", 0, closing.end()) + 1
    body = _body(text, closing.end(), body_line, path)
    if any(name in header for name in DECLARATIONS):
        _check_declared(header, handler.loaded.lines, text[closing.end() :].encode(), path)
        header = {key: value for key, value in header.items() if key not in DECLARATIONS}
    return Document(header, handler.loaded.lines, handler.loaded.nulls, body, has_header=True, body_line=body_line)


def join(header: Mapping[str, object], body: str) -> bytes:
    """The file with this front matter and this body. For the types of values see `strict_yaml.value_text`."""
    post = frontmatter.Post(body, _WRITER)
    # Assigned, because Post(**metadata) cannot take headers named `content` or `handler`.
    post.metadata = dict(header)
    return frontmatter.dumps(post).encode()


def fences(text: str, path: str) -> tuple[re.Match[str], re.Match[str]]:
    """The opening and the closing fence of the front matter of `text`.

    Raises ValueError if the first line that is not blank is not a fence, MessageError (`empty`, `unterminated`).
    """
    start = len(text) - len(text.lstrip(_BLANK))
    if start == len(text):
        raise MessageError("empty", "the file is empty", "The writer may have crashed; send it again.", path)
    opening = FrontMatter.OPENING.match(text, start)
    if opening is None:
        raise ValueError("no front matter")
    closing = FrontMatter.FM_BOUNDARY.search(text, opening.end())
    if closing is None:
        hint = "Close it with a line `---`; the file may have been cut off while it was written."
        line = text.count("\n", 0, start) + 1
        raise MessageError("unterminated", "the front matter is never closed", hint, path, line)
    return opening, closing


def unwrapped(text: str) -> str:
    """The message in `text` if that is one fenced block around it, on the same lines; else `text` itself."""
    lines = text.strip(_BLANK).split("\n")
    fence = _WRAP.fullmatch(lines[0].rstrip("\r"))
    if fence is None or len(lines) < 4 or lines[-1].strip() != fence[1]:
        return text
    inside = next((line.strip() for line in lines[1:] if line.strip()), "")
    if inside != "---":
        return text
    depth = 1
    for line in lines[1:-1]:
        mark = line.strip()
        if mark.startswith(fence[1]):
            depth += -1 if mark == fence[1] and depth else 1
        if not depth:
            return text  # the block ends before the end of the file
    first = text.count("\n", 0, len(text) - len(text.lstrip(_BLANK)))
    return "\n" * (first + 1) + "\n".join(lines[1:-1]) + "\n" if depth == 1 else text


def _json_document(text: str, opening: re.Match[str], path: str) -> Document:
    """A file whose front matter is JSON between `---json` and `---`, as queues of messages for agents write it."""
    closing = FrontMatter.FM_BOUNDARY.search(text, opening.end())
    hint = "Write it as YAML between two lines `---`."
    line = text.count("\n", 0, opening.end()) + 1
    if closing is None:
        raise MessageError("unterminated", "the front matter is never closed", "Close it with `---`.", path, line)
    head = text[opening.end() : closing.start()]
    if len(head.encode()) > MAX_HEADER:
        raise MessageError("too-large", "the front matter is too large", "Move long text into the body.", path, line)
    try:
        value = json.loads(head, object_pairs_hook=_once, parse_constant=str, parse_float=str, parse_int=str)
        loaded = load(flow(_untyped(value)), path=path, first_line=line)
    except (ValueError, RecursionError) as error:
        problem = f"the front matter is no valid JSON: {excerpt(str(error))[1:-1]}"
        raise MessageError("no-frontmatter", problem, hint, path, line) from None
    if not isinstance(loaded.value, dict):
        raise MessageError("no-frontmatter", "the front matter is not a JSON object", hint, path, line)
    body_line = text.count("\n", 0, closing.end()) + 1
    lines = dict.fromkeys(loaded.lines, line)
    body = _body(text, closing.end(), body_line, path)
    return Document(loaded.value, lines, loaded.nulls, body, has_header=True, body_line=body_line)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name} occurs twice")
        found[name] = value
    return found


def _untyped(value: object) -> Yaml:
    if isinstance(value, dict):
        return {str(name): _untyped(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_untyped(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _refuse_other_senders(text: str, path: str) -> None:
    """Refuse a text without front matter that names a sender in the words of a message or of a mail.

    It must not become an order of the operator because its marks are missing, or stand elsewhere.
    """
    lines = _BEFORE_MAIL.sub("", text.lstrip(_BLANK), 1).replace("\r\n", "\n").split("\n")[:_LOOKED_AT]
    hint = "Write its headers between two lines `---` at the very start, or what is to be done in your own words."
    said, *quoted = [line.strip() for line in lines if line.strip()] or [""]
    if quoted and _QUOTES_MAIL.fullmatch(said) and all(line.startswith(">") for line in quoted):
        raise MessageError("no-frontmatter", f"this is a mail that was quoted: {excerpt(said)}", hint, path, 1)
    head = _keys(lines)
    if _names_sender(head):
        what = "a mail" if _is_mail(head) else "a message without its lines `---`"
        raise MessageError("no-frontmatter", f"this is {what}, from {excerpt(head['from'])}", hint, path, 1)
    inside, _ = fenced(lines)
    for number, line in enumerate(lines):
        is_block = inside[number] and line.lstrip().startswith(("```", "~~~"))
        if line.strip() != "---" and not is_block:
            continue
        below = lines[number + 1 :]
        if is_block and (not below or below[0].strip() != "---" or not _is_wrapping(lines, inside)):
            continue
        block = _keys(below[1:] if is_block else below)
        if _names_sender(block) and (is_block or not inside[number]):
            problem = f"the front matter of a message from {excerpt(block['from'])} does not stand at the start"
            raise MessageError("no-frontmatter", problem, hint, path, number + 1)


def _is_wrapping(lines: list[str], inside: list[bool]) -> bool:
    """Whether what stands outside of code only introduces it: a line or two without a heading."""
    outside = [line for line, code in zip(lines, inside, strict=True) if not code and line.strip()]
    return len(outside) <= 2 and not any(line.lstrip().startswith("#") for line in outside)


def _keys(lines: list[str]) -> dict[str, str]:
    """The lines `Key: value` that a text begins with, keys in lower case."""
    found: dict[str, str] = {}
    for line in lines[:_MOST_KEYS]:
        key = _KEY.match(line)
        if key is None:
            if line[:1] in " \t-" and found and line.strip() != "---":
                continue
            break
        name = key[1].lower().replace("-", "_")
        found.setdefault(_MAIL_WORDS.get(name, name), key[2].strip())
    return found


def _names_sender(keys: Mapping[str, str]) -> bool:
    others = ("type", "task_id", "message_id", "subject", "thread_id", "return_path", "received", "sent")
    return bool(keys.get("from")) and ("@" in keys["from"] or any(name in keys for name in others))


def _is_mail(keys: Mapping[str, str]) -> bool:
    return not keys.keys().isdisjoint(("subject", "sent")) or "@" in keys["from"]


def _refuse_other_formats(text: str, path: str) -> None:
    """Refuse a file whose front matter is in another format: it must not become a task from the operator."""
    start = text.lstrip(_BLANK)[:4096]
    if ("\r" in text and "\n" not in text) or start.startswith("---\r"):
        hint = "Its lines end with bare carriage returns; end lines with LF or CRLF."
        raise MessageError("no-frontmatter", "the front matter cannot be read", hint, path, 1)
    semicolons = _SEMICOLONS.match(start)
    if start.startswith(("+++", "---toml")) or semicolons or _JSON.match(start):
        kind = "TOML" if start.startswith(("+++", "---toml")) else "JSON"
        kind += f" between lines {semicolons[0].strip()}" if semicolons else ""
        hint = "Write it as YAML between two lines `---`."
        raise MessageError("no-frontmatter", f"the front matter is {kind}", hint, path, 1)
    _refuse_other_senders(text, path)


_OTHER_FILES = (
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP file, as documents of Word and Excel are"),
    (b"\xd0\xcf\x11\xe0", "a document of an old version of Word or Excel"),
    (b"\x1f\x8b", "a compressed file (gzip)"),
)
"""How files that people drop begin, and what they are."""


def _decode(raw: bytes, path: str) -> str:
    """The text of the file without a byte order mark."""
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if kind := next((kind for opening, kind in _OTHER_FILES if raw.startswith(opening)), ""):
            hint = "Put the file into the workspace, and name it in the text of a task."
            raise MessageError("not-utf8", f"this is {kind}, not a text", hint, path) from None
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise MessageError("not-utf8", "the file is UTF-16", "Save the file as UTF-8.", path) from None
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"byte {error.start} of the file is not UTF-8 ({error.reason})"
        raise MessageError("not-utf8", problem, "Save the file as UTF-8.", path, line) from None


def _body(text: str, start: int, line: int, path: str) -> str:
    nul = text.find("\0", start)
    if nul >= 0:
        line += text.count("\n", start, nul)
        hint = "A message is text; put binary data into a file and refer to it by name."
        raise MessageError("nul-in-body", "the body contains a NUL byte", hint, path, line)
    return text[start:].replace("\r\n", "\n").replace("\r", "\n")


def _check_declared(header: Mapping[str, Yaml], lines: Mapping[Path, int], body: bytes, path: str) -> None:
    """Compare the headers `bytes:` and `sha256:` with the bytes of the body in the file."""
    for name, (pattern, spelling, measure) in _DECLARED.items():
        if name not in header:
            continue
        declared, line, found = header[name], lines.get((name,)), measure(body)
        if not isinstance(declared, str) or not pattern.fullmatch(declared):
            raise MessageError("wrong-type", f"{excerpt(str(declared))} is not {spelling}", "", path, line, name)
        if declared.lower().lstrip("0") != found.lstrip("0"):
            problem = f"the body does not match its header: {name} is {found}, not {declared}"
            hint = "The file may have been cut off; send it again."
            raise MessageError("length-mismatch", problem, hint, path, line, name)


_DECLARED: dict[str, tuple[re.Pattern[str], str, Callable[[bytes], str]]] = {
    "bytes": (_DECIMAL, "a number of bytes", lambda body: str(len(body))),
    "sha256": (_SHA256, "64 hexadecimal digits", lambda body: hashlib.sha256(body).hexdigest()),
}


# Signatures: which bytes of a message are signed, and where the signature goes. Keys are handled in formats/keys.py.
#
# A signature covers the message as it is parsed, not its bytes. It survives whatever transport does without changing
# the content: other line ends, a byte order mark, blank space around the body, another order or quoting of headers. Any
# other change, in a known or unknown header or in the body, invalidates it.
#
#     mailboxd-message-1 LF JSON
#
# JSON is a list of two: the mapping of all headers except `signature`, `bytes` and `sha256`, their values untyped, as
# text, lists and mappings of text; and the body with LF line ends, without blank lines before and white space after it.
# Keys are sorted by code point, there is no space between tokens, and non-ASCII characters are written as \uXXXX
# (docs/messages.md has an example). The first line separates domains: no other signature is valid for a message.

HEADER = "signature"

_CONTEXT = b"mailboxd-message-1\n"
_LINE = re.compile(
    r"^signature:[ \t]*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'{\[|>&*!#][^\s]*)?[ \t]*\r?\n", re.MULTILINE | re.ASCII
)


def canonical(raw: bytes) -> bytes:
    """The bytes that are signed for the message `raw`.

    Raises MessageError as `split` does, and `no-frontmatter`: a file without front matter cannot hold a signature.
    """
    document = split(raw, "message", max_bytes=len(raw))
    if not document.has_header:
        hint = "Write it as a message, as `mailboxd export message` does."
        raise MessageError("no-frontmatter", "a file without front matter cannot be signed", hint, "message")
    headers = {name: value for name, value in document.header.items() if name != HEADER}
    content = json.dumps([headers, trim(document.body)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return _CONTEXT + content.encode("ascii")


def with_signature(raw: bytes, signature: str) -> bytes:
    """The message with this signature as the last line of its front matter, replacing an earlier one.

    Raises MessageError if the front matter is not written one header per line, so that no line can be added.
    """
    before = canonical(raw)
    text = raw.decode().removeprefix("\ufeff")
    opening, closing = fences(text, "message")
    header = _LINE.sub("", text[opening.end() : closing.start()])
    end = "\r\n" if opening[0].endswith("\r\n") else "\n"
    line = f'{HEADER}: "{signature}"{end}'
    signed = (text[: opening.end()] + header + line + text[closing.start() :]).encode()
    try:
        if canonical(signed) == before:
            return signed
    except MessageError:
        pass
    hint = "Write each header on its own line, like `type: task`."
    raise MessageError("bad-yaml", "no line can be added to this front matter", hint, "message")
