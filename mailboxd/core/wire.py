"""Frozen dataclasses <-> plain JSON values, by their type hints. What `events` carry and `store` keeps.

Covers what the core uses and no more: dataclasses, enums, tuples, frozensets (written sorted), optional values,
scalars. Defaults are left out when writing, so that a log stays short and an older log stays readable.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """The JSON form of a value of the core."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_json(item)
            for f in fields(value)
            if (item := getattr(value, f.name)) != _default(type(value), f.name)
        }
    if isinstance(value, frozenset):
        return sorted(to_json(item) for item in value)
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Callable[..., T], data: Mapping[str, Any]) -> T:
    """The dataclass `kind` out of its JSON form. Raises KeyError or ValueError when the data is not of that form."""
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], value) for name, value in data.items()})


def read_field(kind: Callable[..., Any], name: str, value: Any) -> Any:
    """One field of `kind` out of its JSON form."""
    return _read(_hints(kind)[name], value)


@cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _defaults(kind: type) -> dict[str, Any]:
    return {f.name: f.default for f in fields(kind)}


def _default(kind: type, name: str) -> Any:
    return _defaults(kind).get(name, MISSING)


def _read(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _read(next(arm for arm in get_args(hint) if arm is not type(None)), value)
    if origin in (tuple, frozenset):
        item = get_args(hint)[0]
        fixed = origin is tuple and get_args(hint)[-1] is not Ellipsis
        items = (
            (_read(h, v) for h, v in zip(get_args(hint), value, strict=True))
            if fixed
            else (_read(item, v) for v in value)
        )
        return origin(items)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_json(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return value
