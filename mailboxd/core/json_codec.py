"""Frozen dataclasses <-> plain JSON values, by their type hints, for events and the store.

Covers what the core uses: dataclasses, enums, dicts, tuples, frozensets (written sorted), optional values, scalars.
Defaults are not written, which keeps the log short and older logs readable. The reader of a type is built once.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any) -> Any:
    """The JSON form of a value of the core."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {name: item if type(item) in _PLAIN else to_json(item) for name, item in value.items()}
    if kind is tuple:
        return [item if type(item) in _PLAIN else to_json(item) for item in value]
    if kind is frozenset:
        return sorted(to_json(item) for item in value)
    if isinstance(value, Enum):
        return value._value_  # `value` is three calls in Python
    if is_dataclass(kind):
        return {
            name: item if type(item) in _PLAIN else to_json(item)
            for name, default in _defaults(kind)
            if (item := getattr(value, name)) is not default and item != default  # comparing records is slow
        }
    return value


def from_json(kind: Callable[..., T], data: Mapping[str, Any]) -> T:
    """The dataclass `kind` from its JSON form. Raises KeyError or ValueError for other data."""
    readers = _readers(kind)
    return kind(**{name: reader(value) if (reader := readers[name]) else value for name, value in data.items()})


def read_field(kind: Callable[..., Any], name: str, value: Any) -> Any:
    """One field of `kind` from its JSON form."""
    reader = _readers(kind)[name]
    return reader(value) if reader else value


_Reader = Callable[[Any], Any] | None
"""None: the JSON value is the value."""


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    # in the order of their names, as in the log, so that a replay gives the same bytes
    return tuple(sorted(((field.name, field.default) for field in fields(kind)), key=itemgetter(0)))


@cache
def _readers(kind: Callable[..., Any]) -> dict[str, _Reader]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> _Reader:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        arm = _reader(next(arm for arm in get_args(hint) if arm is not type(None)))
        return arm and (lambda value: None if value is None else arm(value))
    if origin in (tuple, frozenset):
        return _sequence_reader(origin, get_args(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: from_json(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum_reader(hint)
    return None


def _enum_reader(kind: type[Enum]) -> Callable[[Any], Any]:
    """`kind(value)` by a dict look-up, which is faster: every task row has six."""
    members = {member.value: member for member in kind}
    return lambda value: members[value] if value in members else kind(value)


def _sequence_reader(make: Callable[[Any], Any], items: tuple[Any, ...]) -> _Reader:
    if make is tuple and items[-1] is not Ellipsis:
        each = [_reader(item) for item in items]
        return lambda value: tuple(reader(part) if reader else part for reader, part in zip(each, value, strict=True))
    reader = _reader(items[0])
    return make if reader is None else lambda value: make(reader(item) for item in value)
