"""From the bytes of config.yaml to a `Config`, or to a ConfigError that says how to mend each thing that is wrong.

The file lies in a workspace that an agent can write, so it is read like a message: bounded, as events instead of
objects, without anchors, tags or repeated keys.
"""

from __future__ import annotations

import difflib
import os
import stat
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mailboxd.config.fields import Section
from mailboxd.config.model import Config
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError

# ---------------------------------------------------------------------------------------------------------------------
# What is written about the configuration is made from the configuration: comments, reference page, differences.

_WIDTH = 110

_HEAD = """\
# mailboxd's configuration. Only `agent` has to be said. A line like #key: shows the default of that key: to change it,
# remove the # (also that of its group's name) and write another value.
"""


def keys() -> Iterator[tuple[str, FieldInfo]]:
    """Every key as `group.key`, in the order of the file, with what is declared of it."""
    for name, field in Config.model_fields.items():
        group = _group(field)
        if group is None:
            yield name, field
        else:
            for inner, declared in group.model_fields.items():
                yield f"{name}.{inner}", declared
                if entry := _entry(declared):
                    yield from ((f"{name}.{inner}.NAME.{key}", said) for key, said in entry.model_fields.items())


def bounds(key: str) -> tuple[float, float]:
    """The smallest and the largest value of a key that is a number. Raises KeyError for any other key."""
    return _ends(dict(keys())[key])


def default_text(agent: str) -> str:
    """See `mailboxd.config.default_text`."""
    if not is_id(agent):
        raise ConfigError(f"agent: {agent[:60]!r} is no agent id; write 1 to 128 of A-Z a-z 0-9 . _ -")
    lines = [_HEAD]
    for name, field in Config.model_fields.items():
        group = _group(field)
        if group is None:
            # quoted, so that every reader of YAML sees a text: an agent may be called 007 or no
            said = f'{name}: "{agent}"' if name == "agent" else f"#{name}: {_yaml(field.default)}"
            lines += [*_comment(field, ""), said, ""]
            continue
        lines += [f"# {group.__doc__}", f"#{name}:"]
        for inner, declared in group.model_fields.items():
            lines += [*_comment(declared, "  "), f"#  {inner}: {_yaml(declared.default)}"]
        lines.append("")
    return "\n".join(lines)


def reference() -> str:
    """See `mailboxd.config.reference`."""
    rows = ["| key | default | unit, range | meaning |", "| --- | --- | --- | --- |"]
    for key, field in keys():
        default = "(required)" if field.is_required() else f"`{_yaml(field.default)}`"
        rows.append(f"| `{key}` | {default} | {_extent(field)} | {field.description} |")
    return "\n".join(rows) + "\n"


def differences(config: Config) -> dict[str, Any]:
    """See `mailboxd.config.differences`."""
    changed = config.model_dump(mode="json", exclude_defaults=True, exclude={"agent"})
    flat: dict[str, Any] = {}
    for name, value in changed.items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _group(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _entry(field: FieldInfo) -> type[Section] | None:
    """What each entry of a key is made of that holds entries by name."""
    return get_args(field.annotation)[1] if get_origin(field.annotation) is dict else None


def _ends(field: FieldInfo) -> tuple[float, float]:
    found = {side: getattr(limit, side) for limit in field.metadata for side in ("ge", "le") if hasattr(limit, side)}
    return found["ge"], found["le"]


def _comment(field: FieldInfo, indent: str) -> list[str]:
    extent = _extent(field)
    text = f"{field.description} ({extent})" if extent else str(field.description)
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _extent(field: FieldInfo) -> str:
    """Unit and range of a number, the words of a choice, or the kind of anything else."""
    extra = field.json_schema_extra
    if isinstance(extra, dict):
        low, high = _ends(field)
        return f"{extra['unit']}, {low:.15g} to {high:.15g}"
    if field.annotation is bool:
        return "true or false"
    if choices := [choice for choice in get_args(field.annotation) if isinstance(choice, str)]:
        return ", ".join(choices)
    if _entry(field):
        return "entries by name"
    return "list" if get_origin(field.annotation) is tuple else "id"


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if value == "":
        return '""'
    return f"{value}"


# ---------------------------------------------------------------------------------------------------------------------
# From the bytes of config.yaml to a `Config`, or to a ConfigError that says how to mend each thing that is wrong.

_LARGEST = 65_536
_DEEPEST = 5
_MOST_PROBLEMS = 10

_REMEDIES = {
    "model_type": "is a group; write its keys below it, indented",
    "string_type": "write one word or text",
    "tuple_type": "write a list, like [one, two]",
    "int_type": "write a whole number in digits, like 4",
    "float_type": "write a number, like 5 or 0.5",
    "bool_type": "write true or false",
    "too_short": "write at least one",
    "too_long": "write at most {max_length}",
    "literal_error": "write one of {expected}",
}

Key = tuple[str | int, ...]
Lines = dict[Key, int]


def load(path: Path) -> Config:
    """See `mailboxd.config.load`."""
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    tree, lines = _Reader(text, path).document()
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        found = sorted((_line(lines, details["loc"]), _explain(details)) for details in error.errors(include_url=False))
        problems = [f"{path}:{line}: {said}" for line, said in found]
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = [f"{path}: and {len(problems) - _MOST_PROBLEMS} more"]
        raise ConfigError("\n".join(problems)) from error


def _read(path: Path) -> bytes:
    try:
        # a FIFO in its place must not hold up the start
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `mailboxd init` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path}: is not a regular file; put one in its place")
        if status.st_mode & stat.S_IWOTH:
            raise ConfigError(f"{path}: every user may change it, and it names a program to run; chmod 600 it")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(raw) > _LARGEST:
        raise ConfigError(f"{path}: is larger than {_LARGEST} bytes; remove what does not belong there")
    return raw


class _Reader:
    """Builds mappings, lists and texts from YAML's event stream and notes the line of every key."""

    def __init__(self, text: str, path: Path) -> None:
        self._path = path
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._lines: Lines = {}

    def document(self) -> tuple[dict[str, Any], Lines]:
        """The file's one mapping, {} if it says nothing, and the line of each key."""
        try:
            self._next()
            if isinstance(self._next(), yaml.StreamEndEvent):
                return {}, {}
            tree = self._node(self._next(), ())
            self._next()
            another = self._next()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise self._wrong(mark.line + 1 if mark else 1, f"{error.problem}; mend the YAML") from error
        except yaml.reader.ReaderError as error:
            raise ConfigError(f"{self._path}: character {error.position} is not printable; remove it") from error
        if not isinstance(another, yaml.StreamEndEvent):
            raise self._wrong(another.start_mark.line + 1, "a second document begins; remove it")
        if tree is None:
            return {}, {}
        if not isinstance(tree, dict):
            raise self._wrong(1, "the file is not a mapping; write `key: value` lines")
        return tree, self._lines

    def _next(self) -> Any:
        return next(self._events)

    def _node(self, event: Any, key: Key) -> Any:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._wrong(line, "anchors and aliases are not taken; write the value out")
        if event.tag is not None:
            raise self._wrong(line, f"the tag {event.tag[:40]!r} is not taken; remove it")
        if len(key) > _DEEPEST:
            raise self._wrong(line, "too deeply nested; see docs/configuration.md")
        if isinstance(event, yaml.ScalarEvent):
            # a key with nothing after it says nothing: its default holds
            return None if event.style is None and event.value == "" else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(key)
        return self._mapping(key)

    def _sequence(self, key: Key) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            place = (*key, len(values))
            self._lines[place] = event.start_mark.line + 1
            values.append(self._node(event, place))
        return values

    def _mapping(self, key: Key) -> dict[str, Any]:
        values: dict[str, Any] = {}
        seen: set[str] = set()
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent):
                raise self._wrong(line, "a key is not a plain word; write `key: value`")
            place = (*key, event.value)
            if event.value in seen:
                raise self._wrong(
                    line, f"{_dotted(place)} stands here again, first in line {self._lines[place]}; keep one"
                )
            seen.add(event.value)
            self._lines[place] = line
            value = self._node(self._next(), place)
            if value is not None:
                values[event.value] = value
        return values

    def _wrong(self, line: int, problem: str) -> ConfigError:
        return ConfigError(f"{self._path}:{line}: {problem}")


def _line(lines: Lines, place: Key) -> int:
    """The line of a key; of the nearest one around it, if the key itself is not there."""
    return next((lines[place[:length]] for length in range(len(place), 0, -1) if place[:length] in lines), 1)


def _explain(details: ErrorDetails) -> str:
    return f"{_dotted(details['loc'])}: {_problem(details['loc'], details)}"


def _dotted(place: Key) -> str:
    text = ".".join(str(part) for part in place)
    return text if text.isprintable() and len(text) <= 80 else repr(text)[:80]


def _problem(place: Key, details: ErrorDetails) -> str:
    """What is wrong and what to write instead. Foreign values are shown escaped and cut."""
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        return f"no such key{_suggestion(place)}"
    if kind == "missing":
        return "is missing; add it, like `agent: main`"
    if kind in {"greater_than_equal", "less_than_equal"}:
        low, high = bounds(_dotted(place))
        return f"write a number from {low:.15g} to {high:.15g}, found {value!r}"
    context = details.get("ctx", {})
    remedy = context.get("error") or _REMEDIES.get(kind, details["msg"]).format(**context)
    return f"{remedy}" if isinstance(value, dict) else f"{remedy}, found {repr(value)[:60]}"


def _suggestion(place: Key) -> str:
    known = [key for key, _ in keys()]
    wanted = ".".join(str(part) for part in place)
    sections = {key.partition(".")[0] for key in known}
    close = difflib.get_close_matches(wanted[:200], [*known, *sorted(sections)], n=1, cutoff=0.7)
    # the right word in the wrong section
    close = close or [key for key in known if key.rpartition(".")[2] == str(place[-1])][:1]
    return f"; did you mean {close[0]}?" if close else "; remove it, or see docs/configuration.md"
