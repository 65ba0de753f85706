"""config.yaml <-> `Config`: loading with an error for everything that is wrong, the commented default, the reference.

An agent can write to the workspace, so the file is read like a message: bounded, with the strict YAML reader.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError, MessageError
from mailboxd.formats.config.model import Config, Section
from mailboxd.formats.protocol import strict_yaml
from mailboxd.formats.protocol.strict_yaml import Loaded, Yaml

_LARGEST = 65_536
_DEEPEST = 5
"""Groups and lists inside each other: the file, `acp`, `harnesses`, a harness, its `argv`."""
_MAX_PROBLEMS = 10

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

CAPS = ("caps", "limits.day_usd", "limits.day_tokens", "limits.day_turns")
"""The keys that the daemon reads again while it runs."""
_Section = TypeVar("_Section", bound=Section)
KeyPath = tuple[str | int, ...]
"""A key by its groups, like `("limits", "turns")`; in a list, the last part is a position."""


def load(path: Path) -> Config:
    """The configuration in the file. A key without a value has its default.

    Raises ConfigError, naming file, line, key and remedy of everything that is wrong.
    """
    return load_section(path, Config)


def load_owned(path: Path) -> tuple[Config, int]:
    """`load`, and the uid of the owner of the file that was read."""
    raw, uid = _read_owned(path)
    return _parsed(path, raw, Config), uid


def load_section(path: Path, kind: type[_Section]) -> _Section:
    """Any file of that form: its keys are those of `kind`. Raises as `load`."""
    return _parsed(path, _read(path), kind)


def _parsed(path: Path, raw: bytes, kind: type[_Section]) -> _Section:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    try:
        loaded = strict_yaml.load(text, path=str(path), max_events=_LARGEST, max_depth=_DEEPEST)
    except MessageError as error:
        raise ConfigError(f"{path}:{error.line}: {error.problem}. {error.hint}") from None
    tree = _mapping(loaded, path)
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        found = sorted((_line(loaded.lines, one["loc"]), f"{_dotted(one['loc'])}: {_problem(one)}") for one in errors)
        problems = [f"{path}:{line}: {problem}" for line, problem in found]
        if len(problems) > _MAX_PROBLEMS:
            problems[_MAX_PROBLEMS:] = [f"{path}: and {len(problems) - _MAX_PROBLEMS} more"]
        raise ConfigError("\n".join(problems)) from error


def _read(path: Path) -> bytes:
    return _read_owned(path)[0]


def _read_owned(path: Path) -> tuple[bytes, int]:
    try:
        # a FIFO in its place must not hold up the start
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `mailboxd init` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be opened: {error.strerror}", _access(path)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path}: is not a regular file; put one in its place")
        if status.st_mode & stat.S_IWOTH:
            raise ConfigError(
                f"{path}: every user may change it, and it names a program to run; chmod 600 it",
                f"chmod 600 {shlex.quote(str(path))}",
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(raw) > _LARGEST:
        raise ConfigError(f"{path}: is larger than {_LARGEST} bytes; remove what does not belong there")
    return raw, status.st_uid


def _access(path: Path) -> str:
    """The command that makes an existing file readable; empty if that is not what it lacks."""
    try:
        owner, name = path.stat().st_uid, shlex.quote(str(path))
    except OSError:
        return ""
    return f"chmod 600 {name}" if owner == os.geteuid() else f'sudo chown "$(id -un)" {name}'


def _mapping(loaded: Loaded, path: Path) -> dict[str, Any]:
    """The keys of the file that have a value."""
    if () in loaded.nulls:
        return {}
    if not isinstance(loaded.value, dict):
        raise ConfigError(f"{path}:1: the file is not a mapping; write `key: value` lines")
    return {key: _given(value, (key,), loaded) for key, value in loaded.value.items() if (key,) not in loaded.nulls}


def _given(value: Yaml, key_path: KeyPath, loaded: Loaded) -> Any:
    if isinstance(value, dict):
        inner = {key: (*key_path, key) for key in value}
        return {key: _given(value[key], at, loaded) for key, at in inner.items() if at not in loaded.nulls}
    return value


def _line(lines: dict[KeyPath, int], key_path: KeyPath) -> int:
    """The line of a key, or of the group around it if the key is missing."""
    return next((lines[key_path[:length]] for length in range(len(key_path), 0, -1) if key_path[:length] in lines), 1)


def _dotted(key_path: KeyPath) -> str:
    text = ".".join(str(part) for part in key_path)
    return text if text.isprintable() and len(text) <= 80 else repr(text)[:80]


def _problem(details: ErrorDetails) -> str:
    """The error, and what to write instead. Values from the file are escaped and shortened."""
    kind, value, key_path = details["type"], details["input"], details["loc"]
    if kind == "extra_forbidden":
        return f"no such key{_suggestion(key_path)}"
    if kind == "missing":
        example = "like `agent: main`" if key_path == ("agent",) else "see `mailboxd config --all`"
        return f"is missing; add it, {example}"
    if kind in {"greater_than_equal", "less_than_equal"}:
        low, high = bounds(_dotted(key_path))
        return f"write a number from {low:.15g} to {high:.15g}, found {value!r}"
    context = details.get("ctx", {})
    remedy = context.get("error") or _REMEDIES.get(kind, details["msg"]).format(**context)
    return f"{remedy}" if isinstance(value, dict) else f"{remedy}, found {repr(value)[:60]}"


def _suggestion(key_path: KeyPath) -> str:
    named = str(key_path[2]) if len(key_path) > 3 else "NAME"
    known = [key.replace(".NAME.", f".{named}.") for key, _ in keys()]
    wanted = ".".join(str(part) for part in key_path)
    sections = {key.partition(".")[0] for key in known}
    import difflib

    close = difflib.get_close_matches(wanted[:200], [*known, *sorted(sections)], n=1, cutoff=0.7)
    # the right word in the wrong section
    close = close or [key for key in known if key.rpartition(".")[2] == str(key_path[-1])][:1]
    return f"; did you mean {close[0]}?" if close else "; remove it (`mailboxd config --all` lists all keys)"


# The default file and the reference, both made from the fields of `Config`.

_WIDTH = 110

_HEAD = """\
# mailboxd's configuration. Only `agent` is required. A line like #key: shows the default of that key; to change it,
# remove the # (also the one before its group) and write another value.
"""


def keys() -> Iterator[tuple[str, FieldInfo]]:
    """Every key as `group.key` with its field, in the order of the file."""
    for name, field in Config.model_fields.items():
        group = _group(field)
        if group is None:
            yield name, field
        else:
            for inner, declared in group.model_fields.items():
                yield f"{name}.{inner}", declared
                if entry := _entry(declared):
                    yield from ((f"{name}.{inner}.NAME.{key}", nested) for key, nested in entry.model_fields.items())


def default_of(key: str) -> Any:
    """The default of a key. Raises KeyError for an unknown one."""
    return dict(keys())[key].default


def bounds(key: str) -> tuple[float, float]:
    """The smallest and the largest value of a key that is a number. Raises KeyError for any other key."""
    return _ends(dict(keys())[key])


def default_text(agent: str, given: Mapping[str, Any] = MappingProxyType({})) -> str:
    """A config.yaml that sets `agent` and the keys in `given`, like `mcp.port`, and shows every other in comments.

    Raises ConfigError for an invalid id.
    """
    if not is_id(agent):
        raise ConfigError(f"agent: {agent[:60]!r} is not an agent id; write 1 to 128 of A-Z a-z 0-9 . _ -")
    lines, given = [_HEAD], {"agent": agent, **given}

    def line(key: str, field: FieldInfo, indent: str = "") -> str:
        name = indent + key.rpartition(".")[2]
        # as JSON, so that every YAML reader takes text for text: an agent may be called 007 or no
        return f"{name}: {json.dumps(given[key])}" if key in given else f"#{name}: {_yaml(field.default)}"

    for name, field in Config.model_fields.items():
        group = _group(field)
        if group is None:
            lines += [*_comment(field, ""), line(name, field), ""]
            continue
        is_set = any(key.startswith(f"{name}.") for key in given)
        lines += [f"# {group.__doc__}", f"{name}:" if is_set else f"#{name}:"]
        for inner, declared in group.model_fields.items():
            lines += [*_comment(declared, "  "), line(f"{name}.{inner}", declared, "  ")]
        lines.append("")
    return "\n".join(lines)


def with_values(path: Path, given: Mapping[str, Any], kind: type[Section] = Config) -> str:
    """The text of the file with these keys, like `limits.day_usd`, set to these values; the rest stays as it is.

    Raises ConfigError if it is invalid, or not written with a line for each key.
    """
    load_section(path, kind)
    text = _read(path).decode("utf-8-sig")
    lines = text.splitlines()
    for key, value in reversed([*given.items()]):
        group, _, name = key.rpartition(".")
        first, last = _place_of(lines, group)
        own = re.compile(rf"#?\s*{name}\s*:")
        # the line that counts comes before a comment that shows the default
        found = sorted((lines[at].startswith("#"), at) for at in range(first, last) if own.match(lines[at]))
        indent = next((re.split(r"\S", line)[0] for line in lines[first:last] if line[:1].isspace()), "  ")
        said = f"{indent if group else ''}{name}: {value}"
        if found:
            lines[found[0][1]] = said
        else:
            lines.insert(first if group else last, said)
    changed = "\n".join(lines) + "\n"
    by_hand = ConfigError(f"{path}: write there yourself: {', '.join(f'{key}: {one}' for key, one in given.items())}")
    try:
        loaded = strict_yaml.load(changed, path=str(path), max_events=_LARGEST, max_depth=_DEEPEST)
    except MessageError:
        raise by_hand from None
    for key, value in given.items():
        at: Any = loaded.value
        for part in key.split("."):
            at = at.get(part) if isinstance(at, dict) else None
        if at != str(value):
            raise by_hand
    return changed


def _place_of(lines: list[str], group: str) -> tuple[int, int]:
    """Where the lines of a group begin and end; its heading is made, or made to count, if there is none."""
    if not group:
        return 0, len(lines)
    heading = re.compile(rf"{group}\s*:\s*(#.*)?$")
    at = next((at for at, line in enumerate(lines) if heading.match(line)), None)
    if at is None and f"#{group}:" in lines:
        at = lines.index(f"#{group}:")
        lines[at] = f"{group}:"
    if at is None:
        lines.append(f"{group}:")
        at = len(lines) - 1
    end = next((end for end in range(at + 1, len(lines)) if re.match(r"[^\s#]|#[^\s]", lines[end])), len(lines))
    return at + 1, end


def reference() -> str:
    """A Markdown table of all keys: default, unit and range, meaning."""
    rows = ["| key | default | unit, range | meaning |", "| --- | --- | --- | --- |"]
    for key, field in keys():
        default = "(required)" if field.is_required() else f"`{_yaml(field.default)}`"
        rows.append(f"| `{key}` | {default} | {_extent(field)} | {field.description} |")
    return "\n".join(rows) + "\n"


def by_key(config: Config, *, everything: bool = False) -> dict[str, Any]:
    """The keys that differ from their defaults, or all, like `{"limits.turns": 8}`, with JSON values."""
    changed = config.model_dump(mode="json", exclude_defaults=not everything, exclude={"agent"})
    flat: dict[str, Any] = {}
    for name, value in changed.items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def fingerprint(config: Config) -> str:
    """The same for configurations that say the same, however they are written.

    Without the caps of a day: the daemon takes those without a restart.
    """
    said = {"agent": config.agent, **{key: value for key, value in by_key(config).items() if key not in CAPS}}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _group(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _entry(field: FieldInfo) -> type[Section] | None:
    """The type of the entries of a key that holds entries by name."""
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
