"""What changed from one attempt's result to the next, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from itertools import pairwise
from typing import Any

_LINES = 1_500
"""Of a text that is compared: difflib takes the square of it at worst."""
_SHOWN = 400
_KINDS = {"+": "added", "-": "removed", "@": "place"}


def comparisons(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each result but the first, how it differs from the one before: `lines` of (kind, text)."""
    return [_compare(before, after) for before, after in pairwise(results)]


def _compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    one, other = before["body"].splitlines(), after["body"].splitlines()
    long = max(len(one), len(other)) > _LINES
    changes = list(unified_diff(one[:_LINES], other[:_LINES], lineterm="", n=2))[2:]
    lines = [(_KINDS.get(line[:1], "same"), line) for line in changes[:_SHOWN]]
    return {
        "before": before, "after": after, "lines": lines, "same": not changes and not long,
        "cut": long or len(changes) > _SHOWN,
    }  # fmt: skip
