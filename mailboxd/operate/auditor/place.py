"""Where something stands in what was handed in."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A line of a file, which is named relative to what was handed in."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file} line {self.line}" if self.line else self.file


NOWHERE = Place("", 0)
