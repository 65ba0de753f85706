"""Frozen dataclasses <-> plain JSON values, by their type hints, for events and the store.

Covers what the core uses: dataclasses, enums, dicts, tuples, frozensets (written sorted), optional values, scalars.
Defaults are not written, which keeps the log short and older logs readable. Reader and writer of a type are built once.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_Writer = Callable[[Any], Any] | None
"""None: the value is its JSON form."""


def to_json(value: Any) -> Any:
    """The JSON form of a value of the core."""
    write = _WRITERS[type(value)]
    return value if write is None else write(value)


class _Writers(dict[type, _Writer]):
    """How the values of each type are written."""

    def __missing__(self, kind: type) -> _Writer:
        self[kind] = writer = _writer(kind)
        return writer


_WRITERS = _Writers()


def _writer(kind: type) -> _Writer:
    if kind is dict:
        return fields_to_json
    if kind is tuple:
        return _write_tuple
    if kind is frozenset:
        return lambda value: sorted(_write_tuple(value))
    if issubclass(kind, Enum):
        return attrgetter("_value_")  # `value` is three calls in Python
    return partial(_write_record, _defaults(kind)) if is_dataclass(kind) else None


def fields_to_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form of fields by their names."""
    return {name: item if (write := _WRITERS[type(item)]) is None else write(item) for name, item in value.items()}


def _write_tuple(value: Iterable[Any]) -> list[Any]:
    return [item if (write := _WRITERS[type(item)]) is None else write(item) for item in value]


def _write_record(defaults: tuple[tuple[str, Any], ...], value: Any) -> dict[str, Any]:
    return {
        name: item if (write := _WRITERS[type(item)]) is None else write(item)
        for name, default in defaults
        if (item := getattr(value, name)) is not default and (default is MISSING or item != default)
    }


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
