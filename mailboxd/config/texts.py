"""What is written about the configuration is made from the configuration: comments, reference page, differences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from mailboxd.config.fields import Section
from mailboxd.config.model import Config
from mailboxd.core.terms import is_id
from mailboxd.errors import ConfigError

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
