"""Versions of three numbers, and the ranges that package.json uses for them: `>=24.16.0 <25 || >=26.1.0`."""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~|)\s*v?(\d{1,9})(?:\.(\d{1,9}|[xX*]))?(?:\.(\d{1,9}|[xX*]))?")
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?![\d.])")


def read(text: str) -> Version | None:
    """The version that `text` begins with (`v24.19.0`)."""
    found = _VERSION.match(text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def satisfies(version: Version, wanted: str) -> bool | None:
    """Whether `version` is in the range; None if the range is written in a way that is not understood here."""
    verdicts = [_all(version, part) for part in wanted.split("||")]
    if any(verdicts):
        return True
    return None if None in verdicts else False


def newest(wanted: str) -> str:
    """The major version that the range's last alternative begins with; empty if it names none."""
    found = _COMPARATOR.search(wanted.rpartition("||")[2])
    return found[2] if found else ""


def _all(version: Version, part: str) -> bool | None:
    text = part.strip()
    if text in ("", "*"):
        return True
    at, verdict = 0, True
    while at < len(text):
        found = _COMPARATOR.match(text, at)
        if found is None:
            return None
        verdict = verdict and _holds(version, found[1], [found[2], found[3], found[4]])
        at = found.end() + len(text[found.end() :]) - len(text[found.end() :].lstrip())
    return verdict


def _holds(version: Version, sign: str, written: list[str | None]) -> bool:
    numbers = [int(number) for number in written if number is not None and number.isdecimal()]
    floor = (*numbers, 0, 0)[:3]
    above = _next(numbers)
    match sign:
        case ">=":
            return version >= floor
        case "<":
            return version < floor
        case ">":
            return version >= above
        case "<=":
            return version < above
        case "^":
            return floor <= version < _next(numbers[:1])
        case "~":
            return floor <= version < _next(numbers[:2])
        case _:
            return floor <= version < above


def _next(numbers: list[int]) -> tuple[int, ...]:
    """The first version that is no longer meant by a version of so many numbers."""
    return (*numbers[:-1], numbers[-1] + 1, 0, 0)[:3]
