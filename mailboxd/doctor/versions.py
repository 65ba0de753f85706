"""Three-part versions and npm's version ranges: `>=24.16.0 <25 || >=26.1.0`.

Hand-written: node-semver would be a 900-line runtime dependency of every installation, for the one range that is read
(`engines.node` in OpenClaw's package.json).
"""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~|)\s*v?(\d{1,9})(?:\.(\d{1,9}|[xX*]))?(?:\.(\d{1,9}|[xX*]))?\s*")
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?![\d.])")


def parse(text: str) -> Version | None:
    """The version that `text` begins with (`v24.19.0`)."""
    found = _VERSION.match(text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def to_text(version: Version) -> str:
    return ".".join(map(str, version))


def satisfies(version: Version, wanted: str) -> bool | None:
    """Whether `version` is in the range `wanted`; None if the range cannot be parsed."""
    alternatives = [_matches_all(version, part) for part in wanted.split("||")]
    if any(alternatives):
        return True
    return None if None in alternatives else False


def newest_major(wanted: str) -> str:
    """The major version that the range's last alternative begins with; empty if it names none."""
    found = _COMPARATOR.search(wanted.rpartition("||")[2])
    return found[2] if found else ""


def _matches_all(version: Version, part: str) -> bool | None:
    text = part.strip()
    if text in ("", "*"):
        return True
    at, result = 0, True
    while at < len(text):
        found = _COMPARATOR.match(text, at)
        if found is None:
            return None
        result = result and _matches(version, found[1], [found[2], found[3], found[4]])
        at = found.end()
    return result


def _matches(version: Version, operator: str, parts: list[str | None]) -> bool:
    numbers = [int(part) for part in parts if part is not None and part.isdecimal()]
    lowest = (*numbers, 0, 0)[:3]
    match operator:
        case ">=":
            return version >= lowest
        case "<":
            return version < lowest
        case ">":
            return version >= _next(numbers)
        case "<=":
            return version < _next(numbers)
        case "^":
            return lowest <= version < _next(numbers[:1])
        case "~":
            return lowest <= version < _next(numbers[:2])
        case _:
            return lowest <= version < _next(numbers)


def _next(numbers: list[int]) -> tuple[int, ...]:
    """The first version above all that begin with `numbers`."""
    return (*numbers[:-1], numbers[-1] + 1, 0, 0)[:3]
