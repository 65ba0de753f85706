"""The last tool that a running turn has used: one small file in the call's directory, which is overwritten.

Only OpenClaw's gateway tells of tools while a turn runs (`openclaw.transport: gateway`). It is for a person who looks:
it is in no event and not durable, and goes with the call's directory. An agent may write there, so it is untrusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mailboxd.core.sanitize import first_line
from mailboxd.core.times import to_epoch
from mailboxd.perform.agents.call_dir import TOOL, put, read_capped

_MOST = 512
"""Bytes of the file."""
_MOST_NAME = 60
MOST_READ = 50
"""Calls that are looked at for one view."""


def leave(directory: str, name: str, now: str) -> None:
    """Note that the call in this directory uses a tool now. Raises OSError."""
    fresh = f"{directory}/{TOOL}.new"
    put(fresh, json.dumps({"name": first_line(name, _MOST_NAME), "at": now}).encode())
    os.replace(fresh, f"{directory}/{TOOL}")  # noqa: PTH105 - as in call_dir: no Path for each


def used(directory: Path | str, now: str) -> tuple[str, str] | None:
    """The name of the last tool of the call in this directory, and when it began; None if nobody has told.

    Raises nothing.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        raw, more = read_capped(f"{directory}/{TOOL}", _MOST)
        said = json.loads(raw) if raw and not more else {}
        name, at = first_line(said["name"], _MOST_NAME), said["at"]
        if name and to_epoch(at) <= to_epoch(now):
            return name, at
    return None


def of_calls(turns: Path, calls: Iterable[str], now: str) -> dict[str, tuple[str, str]]:
    """The last tools of these calls, by their ids; `turns` is the directory of all. Raises nothing."""
    found = {}
    for call in list(calls)[:MOST_READ]:
        if (tool := used(turns / call, now)) is not None:
            found[call] = tool
    return found
