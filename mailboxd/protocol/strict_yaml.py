"""YAML gives structure, never types: a tree of mappings, lists and strings, built from PyYAML's event stream.

Why events. PyYAML's loaders resolve (`0123` is 83, `no` is False), expand aliases (236 bytes become megabytes) and
compose by recursion: `[` thirty thousand times kills the process inside the C composer. The C *parser* below it is a
state machine whose stack lives on the heap; it hands out one event at a time, so whatever is hostile is met, and
refused, before anything of its size has been built. Measured: 60 KB of `[` are refused after 17 events in under a
millisecond, with a look-ahead of at most 1,024 characters; a plan of 10,000 nodes with 8 fields each takes 0.5 s.

Most headers are a few lines `key: word`. Those are read by a pattern, in a sixth of the time; whatever the pattern does
not know, and be it a space too many, is left to the parser, which alone refuses.

What is refused, by rule: `alias` (anchors too), `merge-key`, `tag`, `duplicate-key`, `too-deep`, `too-large`,
`multi-doc` (also `...` and directives), `control-char`, `bad-yaml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import yaml

from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.errors import MessageError

Yaml = str | list["Yaml"] | dict[str, "Yaml"]
Path = tuple[str | int, ...]

_LOADER = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
# What YAML takes for a line break or forbids although it looks like nothing: `id: a<U+2028>from: human` is two keys.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SIMPLE = re.compile(
    r"([A-Za-z_][A-Za-z0-9_-]{0,99}): "
    r"(?:([A-Za-z0-9](?:[A-Za-z0-9_./+-]|:(?=[A-Za-z0-9])| (?=[A-Za-z0-9]))*)"
    r'|"([A-Za-z0-9_./+:;,?!@(){}\[\]-]+)")'
)
_LONG = 4096
_MOST_SIMPLE = 64
"""Characters and lines of what is read without a parser."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A YAML document as structure.

    `value` holds scalars exactly as they stand. `lines` gives for every path of keys and list positions its line in
    the file; `()` is the root. `nulls` are the paths whose scalar is plain and empty, `~` or `null`: their value is
    `""`, as is that of a quoted empty string, which is not among them. `plain` are the paths of scalars that stand
    there without quotes.
    """

    value: Yaml
    lines: dict[Path, int]
    nulls: frozenset[Path]
    plain: frozenset[Path] = frozenset()


@dataclass(slots=True)
class _Open:
    """A mapping or list that has begun; `key` is the key that waits for its value."""

    node: dict[str, Yaml] | list[Yaml]
    path: Path
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    path: str
    first_line: int
    max_depth: int
    root: Yaml = ""
    documents: int = 0
    stack: list[_Open] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    nulls: set[Path] = field(default_factory=lambda: {()})
    plain: set[Path] = field(default_factory=set)

    def take(self, event: yaml.Event) -> None:
        """Adds one event to the tree."""
        if isinstance(event, yaml.ScalarEvent):
            self._check_node(event)
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._check_node(event)
            self._start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            self._refuse_alias(event, event.anchor)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if event.version or event.tags or self.documents > 1:
                self._refuse(event, "multi-doc", "a directive or a second document", _ONE_DOCUMENT)
        elif isinstance(event, yaml.DocumentEndEvent) and event.explicit:
            self._refuse(event, "multi-doc", "`...` ends the document", _ONE_DOCUMENT)

    def _check_node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.anchor is not None:
            self._refuse_alias(event, event.anchor)
        if event.tag is not None:
            hint = "Write plain values; mailboxd knows the type of each field."
            self._refuse(event, "tag", f"the tag {excerpt(event.tag)} is not accepted", hint)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text: str = event.value
        if event.style == '"' and (found := UNSTORABLE.search(text)):
            self._refuse(event, "control-char", f"an escape for U+{ord(found[0]):04X} stands here", "Remove it.")
        if self.stack and isinstance(self.stack[-1].node, dict) and self.stack[-1].key is None:
            self._key(self.stack[-1], event)
            return
        null = not event.style and text in _NULL
        path = self._place("" if null else text, event)
        if null:
            self.nulls.add(path)
        if not event.style:
            self.plain.add(path)

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        if self.stack and isinstance(self.stack[-1].node, dict) and self.stack[-1].key is None:
            self._refuse(event, "bad-yaml", "a key is a mapping or a list", "Keys are plain words.")
        if len(self.stack) >= self.max_depth:
            hint = "Flatten it, or put long matter into the body."
            self._refuse(event, "too-deep", f"nested more than {self.max_depth} levels deep", hint)
        node: dict[str, Yaml] | list[Yaml] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._place(node, event)
        self.stack.append(_Open(node, path))

    def _key(self, top: _Open, event: yaml.ScalarEvent) -> None:
        key: str = event.value
        if key == "<<" and not event.style:
            self._refuse(event, "merge-key", "the merge key `<<` is not accepted", "Write the fields out.")
        if not key:
            self._refuse(event, "bad-yaml", "a key is empty", "Give it a name, or remove the line.")
        path = (*top.path, key)
        line = self._line(event)
        if path in self.lines:
            problem = f"the key {excerpt(key)} stands twice, in lines {self.lines[path]} and {line}"
            self._refuse(event, "duplicate-key", problem, "Keep one of them.", key)
        self.lines[path] = line
        top.key = key

    def _place(self, value: Yaml, event: yaml.Event) -> Path:
        """Puts `value` where the tree is open and says where that is."""
        if not self.stack:
            self.root = value
            self.lines[()] = self._line(event)
            self.nulls.clear()
            return ()
        top = self.stack[-1]
        if isinstance(top.node, list):
            path = (*top.path, len(top.node))
            self.lines[path] = self._line(event)
            top.node.append(value)
            return path
        assert top.key is not None  # a key always comes before its value
        path = (*top.path, top.key)
        top.node[top.key] = value
        top.key = None
        return path

    def _line(self, event: yaml.Event) -> int:
        return self.first_line + (event.start_mark.line if event.start_mark else 0)

    def _refuse_alias(self, event: yaml.Event, name: str | None) -> NoReturn:
        hint = "Write the value out; a text that begins with & or * needs quotes."
        self._refuse(event, "alias", f"the anchor or alias {excerpt(name or '')} is not accepted", hint)

    def _refuse(self, event: yaml.Event, rule: str, problem: str, hint: str, key: str | None = None) -> NoReturn:
        line = self._line(event)
        raise MessageError(rule, problem, hint, self.path, line, None if key is None else storable_line(key[:80]))


_ONE_DOCUMENT = "There is one YAML document and nothing beside it."


def load(text: str, *, path: str, first_line: int = 1, max_events: int = 2000, max_depth: int = 16) -> Loaded:
    """Reads one YAML document whose first line is line `first_line` of the file `path`.

    No document at all is an empty scalar. `max_events` counts keys, values, and starts and ends of collections;
    `max_depth` counts collections inside each other, the root included. Raises MessageError with the rules above.
    """
    text = text.replace("\r\n", "\n")
    simple = _simple(text, first_line) if len(text) < _LONG else None
    if simple is not None:
        return simple
    _check_characters(text, path, first_line)
    builder = _Builder(path, first_line, max_depth)
    try:
        for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if count >= max_events:
                line = first_line + (event.start_mark.line if event.start_mark else 0)
                hint = "Long matter belongs into the body."
                raise MessageError("too-large", f"more than {max_events} YAML events", hint, path, line)
            builder.take(event)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the Python parser's chr() of "\U00110000"
        raise _syntax_error(error, text, path, first_line) from None
    return Loaded(builder.root, builder.lines, frozenset(builder.nulls), frozenset(builder.plain))


def _simple(text: str, first_line: int) -> Loaded | None:
    """What `load` makes of lines that mean the same to every reader of YAML: `key: word`, or `key: "word"`.

    None for everything else, also for what looks simple and is not: a key that stands twice, an empty value, null.
    """
    value: dict[str, Yaml] = {}
    plain: list[Path] = []
    rows = text.removesuffix("\n").split("\n", _MOST_SIMPLE)
    for row in rows:
        found = _SIMPLE.fullmatch(row)
        if found is None:
            return None
        key, bare, quoted = found.groups()
        if bare in _NULL or len(value) == _MOST_SIMPLE:
            return None
        value[key] = quoted if bare is None else bare
        if bare is not None:
            plain.append((key,))
    if len(value) < len(rows):
        return None
    lines: dict[Path, int] = {(): first_line}
    lines.update(((key,), first_line + place) for place, key in enumerate(value))
    return Loaded(value, lines, frozenset(), frozenset(plain))


def _check_characters(text: str, path: str, first_line: int) -> None:
    if found := _FORBIDDEN.search(text):
        line = first_line + text.count("\n", 0, found.start())
        problem = f"the character U+{ord(found[0]):04X} may not stand in YAML here"
        hint = "Remove it; inside double quotes it can be written as an escape."
        raise MessageError("control-char", problem, hint, path, line)


def _syntax_error(error: Exception, text: str, path: str, first_line: int) -> MessageError:
    """PyYAML's complaint in our words: its own quotes the input and may be as long as that."""
    mark = getattr(error, "problem_mark", None)
    line = first_line if mark is None else first_line + mark.line
    if re.search(r"^%", text, re.MULTILINE):
        return MessageError("multi-doc", "a YAML directive (`%`) is not accepted", _ONE_DOCUMENT, path, line)
    problem = excerpt(str(getattr(error, "problem", None) or "it cannot be read"), 160)
    hint = "A value that contains `: ` or ` #`, or begins with one of []{}&*!|>'\"%@`, needs quotes."
    return MessageError("bad-yaml", f"this is not YAML: {problem}", hint, path, line)


# ---------------------------------------------------------------------------------------------------------------------
# Strings, lists and mappings as YAML text that every YAML reader takes for the same strings.
#
# Hand-written, because PyYAML's emitter needs seconds for a plan of 10,000 children. Nothing is ever typed: what a
# YAML 1.1 or 1.2 reader could take for a number, a time, a boolean or null is quoted (`"1e3"`, `"no"`).

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


class YamlText(str):
    """Text that is YAML already: `value_text` returns it unchanged."""

    __slots__ = ()


def value_text(value: object) -> str:
    """A header's value (text, bool, int, float, list, tuple or mapping of text) as YAML on one line."""
    if isinstance(value, str):
        return value if isinstance(value, YamlText) else scalar(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    assert isinstance(value, (list, tuple, dict))  # the models hold nothing else
    return flow(value)
