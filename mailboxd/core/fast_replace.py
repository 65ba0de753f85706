"""Making and copying the large records in one step, where dataclasses go field by field.

Every transition makes a new task of fifty fields and a new view, and every row that is read is one. A frozen `__init__`
sets each field through `object.__setattr__`: 6 us for a task, and 8 us with `replace`. Here a record's dictionary is
filled at once: 1 and 2.6 us. So these records have no slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def changed(record: T, **changes: Any) -> T:
    """A copy of the dataclass instance with other values in these fields. Raises KeyError for a field it has not."""
    copy = object.__new__(type(record))
    values = copy.__dict__
    values.update(record.__dict__)
    if not changes.keys() <= values.keys():
        raise KeyError(f"{type(record).__name__} has no {sorted(changes.keys() - values.keys())}")
    values.update(changes)
    return copy


def made(kind: type[T], names: Sequence[str], values: Iterable[Any]) -> T:
    """The dataclass out of the values of all its fields, in the order of `names`."""
    record = object.__new__(kind)
    record.__dict__.update(zip(names, values, strict=True))
    return record
