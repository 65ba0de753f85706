"""Message files <-> typed records. Law: `parse(render(m), path).message == m` for every message.

`parse` trusts nothing: it returns or raises MessageError with rule, path, line, field and hint. What it accepts
although it is not quite right it names in `warnings`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from mailboxd.core.model import Finding
from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MessageError
from mailboxd.protocol.front_matter import MAX_FILE, Document, join, split
from mailboxd.protocol.headers import CONVERTERS, PROTOCOL, Source, findings
from mailboxd.protocol.markdown import Body, Section, join_body, split_body, trim
from mailboxd.protocol.messages import MESSAGE_TYPES, AnyMessage, Message, ReviewMessage, TaskMessage, shadow
from mailboxd.protocol.spec import SPEC_SECTIONS, action_header, actions_of
from mailboxd.protocol.strict_yaml import Yaml, load

PROTOCOL_VERSION = 2
_MAX_NEAR = 20
_MAX_NEAR_LENGTH = 40
_MAX_PLAIN_TITLE = 200
_MAX_FIRST_LINE = 2000
_UNDER_EVERY_LIMIT = 4000
"""Bytes: a shorter file has neither 2,000 YAML events nor 5,000 marks, for each takes two bytes."""
_YAML_OPENS = re.compile(r"^(?:```|~~~)[ \t]*+(?:ya?ml)?[ \t]*+\n", re.MULTILINE)
_YAML_CLOSES = re.compile(r"^(?:```|~~~)[ \t]*+$", re.MULTILINE)


@dataclass(frozen=True)
class Parsed:
    """A file, read. `sha256` is that of its bytes; `plain` says that it had no front matter."""

    message: AnyMessage
    warnings: tuple[str, ...]
    sha256: str
    plain: bool = False


def parse(raw: bytes, path: str, *, max_bytes: int = MAX_FILE, sha256: str | None = None) -> Parsed:
    """Reads the bytes of the message file `path` (protocol section 2), of which there may be `max_bytes`.

    `sha256` is that of the bytes, from who knows it.
    A file without front matter is a task from the operator. Raises MessageError: the rules of `front_matter.split`,
    `sections.split_body` and `headers`, and `newer-protocol`, `unknown-type`, `unknown-field`, `missing-field`.
    """
    document = split(raw, path, max_bytes=max_bytes)
    digest = sha256 or hashlib.sha256(raw).hexdigest()
    if not document.has_header:
        return Parsed(_plain_task(document.body, path, digest), (), digest, plain=True)
    reader = _Reader(document, path)
    message = reader.message()
    return Parsed(message, reader.warnings, digest)


def render(message: Message) -> bytes:
    """The file of `message`. Raises MessageError when it is over a limit that `parse` has."""
    title = f"Task: {message.title}" if isinstance(message, TaskMessage) and message.title else message.title
    return _file(message, join_body(title, message.preamble, message.sections))


def render_with(message: Message, body: str) -> bytes:
    """The file of `message` with a body that is text already, in place of its own: what a template has made.

    It is not taken apart and put together again: `parse` reads the same from it as from the parts.
    Raises MessageError as `render`.
    """
    text = trim(body)
    return _file(message, f"{text}\n" if text else "")


def _file(message: Message, body: str) -> bytes:
    header: dict[str, object] = {}
    said = vars(message)
    for name, field in type(message).header_fields().items():
        value = said[field]
        if field == "findings":
            value = None if value == _section_findings(message.sections) else [_finding_header(item) for item in value]
        elif field == "planned_actions":
            value = [action_header(action) for action in value] or None
        if value not in (None, ""):
            header[name] = value
    header |= message.unknown_headers()
    raw = join(header, body)
    if len(raw) < _UNDER_EVERY_LIMIT:
        return raw
    # What a receiver would refuse for its size must not be sent.
    path = f"{message.type} to {message.to or 'its receiver'}"
    split_body(split(raw, path).body, path=path)
    return raw


class _Reader:
    """The front matter and body of one file on their way to a message."""

    def __init__(self, document: Document, path: str) -> None:
        self._document = document
        self._path = path
        self._warnings: list[str] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    def message(self) -> AnyMessage:
        header = self._document.header
        said = {key for key in header if (key,) not in self._document.nulls}
        self._check_version(header.get("protocol", ""))
        kind = self._kind(header, said)
        known = kind.header_fields()
        near = self._near_misses(header, known, said)
        self._check_present(kind, said, near)
        values: dict[str, Any] = {known[name]: self._convert(name, header[name]) for name in known if name in said}
        values |= {shadow(name): value for name, value in header.items() if name not in known}
        body = split_body(self._document.body, path=self._path, first_line=self._document.body_line)
        values |= _body_values(body)
        if issubclass(kind, ReviewMessage) and "findings" not in values:
            values["findings"] = _section_findings(body.sections, self._warn)
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            raise self._model_error(error) from None

    def _check_version(self, version: Yaml) -> None:
        if isinstance(version, str) and PROTOCOL.fullmatch(version):
            major, _, minor = version.partition(".")
            if (int(major), int(minor or 0)) > (PROTOCOL_VERSION, 0):
                problem = f"this is protocol version {version}, mailboxd speaks {PROTOCOL_VERSION}"
                raise self._error("newer-protocol", problem, "Upgrade mailboxd and drop it again.", "protocol")

    def _kind(self, header: dict[str, Yaml], said: set[str]) -> type[AnyMessage]:
        if "type" not in said:
            self._check_present(None, said, {})
        word = header["type"]
        kind = MESSAGE_TYPES.get(word) if isinstance(word, str) else None
        if kind is None:
            problem = f"{excerpt(str(word))} is no type of message"
            raise self._error("unknown-type", problem, "Known: " + ", ".join(MESSAGE_TYPES) + ".", "type")
        for key in header:
            if key.strip().casefold() == "approved":
                hint = "An approval is a message of its own, by a person."
                raise self._error("unknown-field", "a message cannot approve itself", hint, key)
        return kind

    def _near_misses(self, header: dict[str, Yaml], known: Mapping[str, str], said: set[str]) -> dict[str, str]:
        """The headers that are probably misspelt: known header -> what stands there. Each is a warning."""
        # Bounded: difflib takes some 50 us for a pair of words, and a header may have a thousand keys.
        unknown = [key for key in header if key not in known and len(key) <= _MAX_NEAR_LENGTH][:_MAX_NEAR]
        absent = [name for name in known if name not in said] if unknown else []
        near = {}
        for key in unknown:
            for match in difflib.get_close_matches(key.casefold(), absent, n=1, cutoff=0.75):
                self._warn(f"unknown header {excerpt(key)}; did you mean {match}?")
                near[match] = key
        return near

    def _check_present(self, kind: type[AnyMessage] | None, said: set[str], near: dict[str, str]) -> None:
        required = ("type", *Message.required) if kind is None else kind.required
        expected = () if kind is None else kind.expected
        late = [name for name in expected if name not in said]
        if missing := [name for name in required if name not in said]:
            hints = [f"Did you mean {name} by {excerpt(near[name])}?" for name in missing if name in near]
            problem = "required headers are missing: " + ", ".join(missing)
            problem += f"; expected as well: {', '.join(late)}" if late else ""
            raise self._error("missing-field", problem, " ".join(hints), missing[0])
        self._warnings += [f"the header {name} is missing" for name in late]

    def _convert(self, name: str, value: Yaml) -> Any:
        if name == "type":
            return value
        try:
            if name == "planned_actions":
                return actions_of(Source(self._path, 1, self._document.lines), value, (name,))
            return CONVERTERS[name](value, lambda text: self._warn(f"{name}: {text}"))
        except MessageError as error:
            raise self._error(error.rule, error.problem, error.hint, name) from None

    def _model_error(self, error: ValidationError) -> MessageError:
        """What only the finished model can check: the title, and the shape of unknown headers."""
        first = error.errors(include_url=False, include_input=False)[0]
        field = first.get("ctx", {}).get("field") or (str(first["loc"][0]) if first["loc"] else None)
        rule = first["type"] if "-" in first["type"] else "field-range"
        return self._error(rule, first["msg"], "", field)

    def _error(self, rule: str, problem: str, hint: str, field: str | None) -> MessageError:
        line = self._document.lines.get((field or "",), self._document.lines.get(()))
        return MessageError(rule, problem, hint, self._path, line, None if field is None else excerpt(field)[1:-1])

    def _warn(self, text: str) -> None:
        self._warnings.append(text)


def _body_values(body: Body) -> dict[str, Any]:
    return {"title": body.title, "preamble": body.preamble, "sections": body.sections}


def _plain_task(text: str, path: str, digest: str) -> TaskMessage:
    """The task that a file without front matter is (protocol section 2).

    The whole text is the instructions; spec sections in it count as well. A text with a section `## Instructions`
    is laid out like the body of a task and is read as one. The id contains the hash: other bytes are other work.
    """
    stem = PurePath(path).stem
    task_id = f"{stem[:119] if is_id(stem) else 'task'}-{digest[:8]}"
    body = split_body(text, path=path)
    heading = body.title or (body.sections[0].heading if body.sections else "")
    title = heading or storable_line(body.preamble[:_MAX_FIRST_LINE].partition("\n")[0].lstrip("#"))
    if len(title) > _MAX_PLAIN_TITLE:
        title = title[: _MAX_PLAIN_TITLE - 1] + "…"
    if any(section.is_called("Instructions") for section in body.sections):
        return TaskMessage(
            task_id=task_id, from_="operator", title=title, preamble=body.preamble, sections=body.sections
        )
    stated = [section for section in body.sections if any(map(section.is_called, SPEC_SECTIONS))]
    whole = Section("Instructions", text)
    return TaskMessage(task_id=task_id, from_="operator", title=title, sections=(whole, *stated))


def _section_findings(sections: tuple[Section, ...], warn: Callable[[str], None] | None = None) -> tuple[Finding, ...]:
    """The findings in the first YAML block of `## Findings`. A block that cannot be read is prose, with a warning."""
    warn = warn or (lambda _: None)
    for section in sections:
        opening = _YAML_OPENS.search(section.text) if section.is_called("Findings") else None
        closing = _YAML_CLOSES.search(section.text, opening.end()) if opening else None
        if opening is None or closing is None:
            continue
        try:
            loaded = load(section.text[opening.end() : closing.start()], path="", first_line=section.line)
            return findings(loaded.value, warn)
        except MessageError as error:
            warn(f"the findings cannot be read as YAML: {error.problem}")
    return ()


def _finding_header(finding: Finding) -> dict[str, str]:
    values = {
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.file,
        "line": None if finding.line is None else str(finding.line),
        "artifact_uri": finding.artifact_uri,
    }
    return {name: value for name, value in values.items() if value is not None}
