"""The YAML reader and writer of mailboxd: mappings, lists and text, never other types.

Reading builds the tree from PyYAML's event stream. PyYAML's loaders resolve types (`0123` is 83, `no` is False), expand
aliases (236 bytes become megabytes) and compose recursively: `[` thirty thousand times kills the process inside the C
composer. The C *parser* below them is a state machine with its stack on the heap. It returns one event at a time, so
hostile input is refused before anything of its size is built: 60 KB of `[` after 17 events, in under a millisecond. A
plan of 10,000 nodes with 8 fields each takes 0.5 s.

Most headers are a few lines `key: word`. They are matched by a regular expression, in a sixth of the time; everything
else goes to the parser, and only the parser refuses.

Rules of refusal: `alias` (anchors too), `merge-key`, `tag`, `duplicate-key`, `too-deep`, `too-large`, `multi-doc` (also
`...` and directives), `control-char`, `bad-yaml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring as _quoted
from typing import NoReturn

import yaml

from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.errors import MessageError

Yaml = str | list["Yaml"] | dict[str, "Yaml"]
Path = tuple[str | int, ...]

_LOADER = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
# Invisible characters that YAML forbids or takes for a line break: `id: a<U+2028>from: human` is two keys.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SIMPLE = re.compile(
    r"([A-Za-z_][A-Za-z0-9_-]{0,99}): "
    r"(?:([A-Za-z0-9](?:[A-Za-z0-9_./+-]|:(?=[A-Za-z0-9])| (?=[A-Za-z0-9]))*)"
    r'|"([A-Za-z0-9_./+:;,?!@(){}\[\]-]+)")'
)
_ON_ONE_LINE = frozenset(
    {"title", "subject", "name", "task", "summary", "goal", "description", "context", "details", "prompt"}
    | {"instructions", "expected_output"}
)
_TEXTS = _ON_ONE_LINE | {"steps", "acceptance_criteria", "criteria", "constraints"}
"""Keys of text for people; `_ON_ONE_LINE` are those whose text may hold a colon."""
_NUMBER_SIGN = re.compile(r"[ \t]*#[^\s#](?:(?![ \t]#[ \t])[^\n])*")
MAX_KEY = 128
_MAX_SIMPLE_TEXT = 4096
_MAX_SIMPLE_LINES = 64


@dataclass(frozen=True, slots=True)
class Loaded:
    """A YAML document.

    `value` holds scalars as they are written. `lines` maps every path of keys and list positions to its line in the
    file; `()` is the root. `nulls` are the paths of plain scalars that are empty, `~` or `null`; their value is `""`,
    like that of a quoted empty string, which is not in `nulls`. `plain` are the paths of unquoted scalars.
    """

    value: Yaml
    lines: dict[Path, int]
    nulls: frozenset[Path]
    plain: frozenset[Path] = frozenset()


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been read; `key` is the key whose value comes next."""

    node: dict[str, Yaml] | list[Yaml]
    path: Path
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    path: str
    first_line: int
    max_depth: int
    text: str = ""
    root: Yaml = ""
    documents: int = 0
    stack: list[_Open] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    nulls: set[Path] = field(default_factory=lambda: {()})
    plain: set[Path] = field(default_factory=set)

    def take(self, event: yaml.Event) -> None:
        """Add one event to the tree."""
        if isinstance(event, yaml.ScalarEvent):
            if event.anchor is not None or event.tag is not None:
                self._refuse_node(event)
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if event.anchor is not None or event.tag is not None:
                self._refuse_node(event)
            self._start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            self._refuse_alias(event, event.anchor)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if event.version or event.tags or self.documents > 1:
                self._refuse(event, "multi-doc", "there is a directive or a second document", _ONE_DOCUMENT)
        elif isinstance(event, yaml.DocumentEndEvent) and event.explicit:
            self._refuse(event, "multi-doc", "`...` marks the end of a document", _ONE_DOCUMENT)

    def _refuse_node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> NoReturn:
        if event.anchor is not None:
            self._refuse_alias(event, event.anchor)
        hint = "Remove it; mailboxd knows the type of each field."
        self._refuse(event, "tag", f"the tag {excerpt(event.tag or '')} is not accepted", hint)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text: str = event.value
        if event.style == '"' and (found := UNSTORABLE.search(text)):
            self._refuse(event, "control-char", f"there is an escape for U+{ord(found[0]):04X}", "Remove it.")
        if self.stack and isinstance(self.stack[-1].node, dict) and self.stack[-1].key is None:
            self._key(self.stack[-1], event)
            return
        if not event.style and event.end_mark is not None:
            if (found := _NUMBER_SIGN.match(self.text, event.end_mark.index)) is not None:
                text = f"{text}{self._number_sign(found[0])}"
            text = text.lstrip()
        null = not event.style and text in _NULL
        path = self._place("" if null else text, event)
        if null:
            self.nulls.add(path)
        if not event.style:
            self.plain.add(path)

    def _number_sign(self, found: str) -> str:
        """`#12` behind text for people, which YAML takes for a comment: `title: Fix #12` would lose its number."""
        if not self.stack:
            return ""
        top = self.stack[-1]
        key = (
            top.key if isinstance(top.node, dict) else next((one for one in top.path[::-1] if isinstance(one, str)), "")
        )
        return f" {found.strip()}" if key is not None and key.lower().replace("-", "_") in _TEXTS else ""

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        if self.stack and isinstance(self.stack[-1].node, dict) and self.stack[-1].key is None:
            self._refuse(event, "bad-yaml", "a key is a mapping or a list", "Write `key: value` lines.")
        if len(self.stack) >= self.max_depth:
            self._refuse(event, "too-deep", f"nested more than {self.max_depth} levels deep", "Flatten it.")
        node: dict[str, Yaml] | list[Yaml] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._place(node, event)
        self.stack.append(_Open(node, path))

    def _key(self, top: _Open, event: yaml.ScalarEvent) -> None:
        key: str = event.value
        if key == "<<" and not event.style:
            self._refuse(event, "merge-key", "the merge key `<<` is not accepted", "Write the keys out.")
        if not key:
            self._refuse(event, "bad-yaml", "a key is empty", "Give it a name, or remove the line.")
        if len(key) > MAX_KEY:
            self._refuse(event, "field-range", f"a key is longer than {MAX_KEY} characters", "Shorten it.", key)
        path = (*top.path, key)
        line = self._line(event)
        if path in self.lines:
            problem = f"the key {excerpt(key)} occurs twice, in lines {self.lines[path]} and {line}"
            self._refuse(event, "duplicate-key", problem, "Keep one of them.", key)
        self.lines[path] = line
        top.key = key

    def _place(self, value: Yaml, event: yaml.Event) -> Path:
        """Add `value` to the innermost open collection and return its path."""
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
        hint = "Write the value out, or quote text that begins with & or *."
        self._refuse(event, "alias", f"the anchor or alias {excerpt(name or '')} is not accepted", hint)

    def _refuse(self, event: yaml.Event, rule: str, problem: str, hint: str, key: str | None = None) -> NoReturn:
        line = self._line(event)
        raise MessageError(rule, problem, hint, self.path, line, None if key is None else storable_line(key[:80]))


_ONE_DOCUMENT = "Write a single YAML document without directives."


def load(text: str, *, path: str, first_line: int = 1, max_events: int = 2000, max_depth: int = 16) -> Loaded:
    """Read one YAML document whose first line is line `first_line` of the file `path`.

    An empty document is an empty scalar. `#` and a letter or digit belong to the text of a title or a description;
    `#` and a space begin a comment there too. `max_events` counts keys, values, and starts and ends of collections;
    `max_depth` counts nested collections, including the root. Raises MessageError with the rules above.
    """
    text = text.replace("\r\n", "\n")
    simple = _simple(text, first_line) if len(text) < _MAX_SIMPLE_TEXT else None
    if simple is not None:
        return simple
    _check_characters(text, path, first_line)
    builder = _Builder(path, first_line, max_depth, text)
    try:
        for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if count >= max_events:
                line = first_line + (event.start_mark.line if event.start_mark else 0)
                problem = f"the YAML has more than {max_events} keys, values and brackets"
                raise MessageError("too-large", problem, "Shorten it.", path, line)
            builder.take(event)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the Python parser's chr() of "\U00110000"
        raise _syntax_error(error, text, path, first_line) from None
    return Loaded(builder.root, builder.lines, frozenset(builder.nulls), frozenset(builder.plain))


def _simple(text: str, first_line: int) -> Loaded | None:
    """`load` for text that consists of lines `key: word` and `key: "word"` only.

    None for everything else, including duplicate keys, empty values and null.
    """
    value: dict[str, Yaml] = {}
    plain: list[Path] = []
    rows = text.removesuffix("\n").split("\n", _MAX_SIMPLE_LINES)
    for row in rows:
        match = _SIMPLE.fullmatch(row)
        if match is None:
            return None
        key, bare, quoted = match.groups()
        if bare in _NULL or len(value) == _MAX_SIMPLE_LINES:
            return None
        value[key] = quoted if bare is None else bare
        if bare is not None:
            plain.append((key,))
    if len(value) < len(rows):
        return None
    lines: dict[Path, int] = {(): first_line}
    lines.update(((key,), first_line + number) for number, key in enumerate(value))
    return Loaded(value, lines, frozenset(), frozenset(plain))


def _check_characters(text: str, path: str, first_line: int) -> None:
    if found := _FORBIDDEN.search(text):
        line = first_line + text.count("\n", 0, found.start())
        problem = f"the character U+{ord(found[0]):04X} is not allowed in YAML"
        hint = "Remove it, or write it as an escape in double quotes."
        raise MessageError("control-char", problem, hint, path, line)


_NEVER_CLOSED = re.compile(r"flow (?:sequence|mapping): did not find expected|quoted scalar: found unexpected")


def _syntax_error(error: Exception, text: str, path: str, first_line: int) -> MessageError:
    """A MessageError for PyYAML's error, whose own text quotes the input at any length."""
    mark, begins = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    where, what = getattr(error, "context", None), getattr(error, "problem", None)
    if begins is not None and _NEVER_CLOSED.search(f"{where}: {what}"):
        mark = begins  # what is not closed is noticed at the next line that cannot belong to it, or at the end
    line = first_line if mark is None else first_line + mark.line
    if re.search(r"^%", text, re.MULTILINE):
        return MessageError("multi-doc", "a YAML directive (`%`) is not accepted", _ONE_DOCUMENT, path, line)
    column = "" if mark is None else f" at column {mark.column + 1}"
    problem = excerpt(str(what or "it cannot be read"), 160)[1:-1]
    hint = "Quote values that contain `: ` or ` #`, or begin with one of []{}&*!|>'\"%@`."
    return MessageError("bad-yaml", f"invalid YAML{column}: {problem}", hint, path, line)


# Repairs that leave one reading: of white space, of quotes, and of text with a colon in it.

_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_HARD_SPACES = re.compile(
    rf"^[ {_SPACES}-]*[{_SPACES}][ {_SPACES}-]*|(?<=[:,\[{{])[ {_SPACES}]*[{_SPACES}][ {_SPACES}]*", re.MULTILINE
)
HARD_SPACE = re.compile(rf"[{_SPACES}]")
_TAB_AS_ROOM = re.compile(r"^(?P<key>[ ]*(?:- )?[A-Za-z_][\w -]{0,60}:)[ ]*\t[ \t]*(?=\S)")
_TAB_BEFORE_ITEM = re.compile(r"^\t(?=-[ ]+\S)")
_TYPOGRAPHIC = re.compile(
    r"(?P<before>^[ -]*|[:,\[{][ ]*)(?:[“”„](?P<inside>[^“”„\"\\\n]*)[“”]|[‘‚](?P<single>[^‘’‚\"\\\n]*)[’‘])"
    r"(?=[ ]*(?:[:,\]}]|$))",
    re.MULTILINE,
)
_PROSE = re.compile(
    rf"(?P<key>[ ]*(?:- )?(?:{'|'.join(sorted(_ON_ONE_LINE))}):[ ]+)"
    r"(?P<text>[^\s\"'|>\[{&*!%@`#?,\]}-][^\n]*)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(?P<key>[A-Za-z_][\w -]{0,60}:[ ]+)(?P<text>[^\s\"'|>\[{&*!%@`#?,\]}-][^\n]*)")
_BLOCK_MARK = re.compile(r"[|>][+-]?[1-9]?[+-]?")
_OPEN_QUOTE = re.compile(r":[ ]+(?:\"(?:[^\"\\\n]|\\.)*|'[^'\n]*)$", re.MULTILINE)
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def repaired(text: str, *, of_headers: bool = False) -> str:
    """`text`, which is not valid, with what can have been meant in one way only; unchanged if there is nothing of it.

    `of_headers`: its lines are the headers of an answer, whose values stand on one line, whatever the key.

    Hard spaces between the words of YAML become spaces, and so does a tab behind a key or before an item of a list;
    typographic quotes around a whole value become quotes, and a text in one line with `: ` in it is quoted. Block
    scalars stay as they are, and nothing is closed or left out.
    """
    if text.lstrip().startswith(("{", "[")):
        text = _PAIR.sub(lambda pair: str(json.loads(f'"{pair[0]}"')), text)
    if _OPEN_QUOTE.search(text):
        return text  # text in quotes over several lines may hold anything
    lines, inside = [], -1
    for line in text.split("\n"):
        plain = HARD_SPACE.sub(" ", line)
        indent = len(plain) - len(plain.lstrip(" "))
        if inside >= 0 and (not plain.strip() or indent > inside):
            lines.append(line)
            continue
        inside = indent if _opens_block(plain) else -1
        lines.append(_repaired_line(line, of_headers))
    return "\n".join(lines)


def _opens_block(line: str) -> bool:
    """Whether a block scalar begins at the end of the line: `|` or `>` alone, behind a key, or as an item of a list."""
    before, _, mark = line.rstrip(" ").rpartition(" ")
    if not _BLOCK_MARK.fullmatch(mark):
        return False
    return before.rstrip(" ").endswith(":") or set(before.split(" ")) <= {"", "-"}


def _repaired_line(line: str, of_headers: bool) -> str:
    line = _TAB_BEFORE_ITEM.sub("  ", _TAB_AS_ROOM.sub(r"\g<key> ", line, 1), 1) if "\t" in line else line
    line = _HARD_SPACES.sub(lambda gap: HARD_SPACE.sub(" ", gap[0]), line)
    line = _TYPOGRAPHIC.sub(lambda found: f'{found["before"]}"{found["inside"] or found["single"] or ""}"', line)
    prose = (_HEADER if of_headers else _PROSE).fullmatch(line.rstrip())
    if prose is None or " #" in prose["text"] or not (": " in prose["text"] or prose["text"].endswith(":")):
        return line
    return prose["key"] + _quoted(prose["text"])


# Writing. Not with PyYAML's emitter, which needs seconds for a plan of 10,000 children. Text that a YAML 1.1 or 1.2
# reader could take for a number, a time, a boolean or null is quoted (`"1e3"`, `"no"`).

Value = str | Sequence["Value"] | Mapping[str, "Value"]

PLAIN = re.compile(r"(?!(?i:y|n|yes|no|on|off|true|false|null)\Z)[A-Za-z](?:[A-Za-z0-9_./() -]*[A-Za-z0-9_./()-])?")
"""Text that needs no quotes, in block and in flow context."""
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NOT_IN_BLOCK = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010fffd]")


def scalar(text: str) -> str:
    """`text` on one line: plain where that is safe in both block and flow context, otherwise in double quotes."""
    if PLAIN.fullmatch(text):
        return text
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", _quoted(text))


def flow(value: Value) -> str:
    """A structure of text on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{scalar(key)}: {flow(item)}" for key, item in value.items()]) + "}"
    return "[" + ", ".join([scalar(item) if isinstance(item, str) else flow(item) for item in value]) + "]"


def block(text: str, indent: str) -> str:
    """`text` as a literal block (`|-`) indented by `indent`, if it has several lines and a block preserves it.

    A block loses leading white space and final newlines; such text is quoted instead.
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
