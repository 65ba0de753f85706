"""What OpenClaw keeps in its configuration of a plugin that was removed, and taking that out as well.

`openclaw plugins uninstall` leaves `plugins.entries.mailboxd.enabled: false`, by which it remembers that it was
removed. An undo leaves the section `plugins` as it was: what was not there before, and holds nothing else now, goes.
Once the section is there OpenClaw shows the defaults of its own plugins in it, and not which of that stands in the
file. So what it shows beside ours is noted right after the installation: if it is the same at the undo, nobody has
written anything since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mailboxd.agents.ask import ask
from mailboxd.agents.jsonout import cli_error, parse_object
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.errors import UnavailableError
from mailboxd.integration.plugin import PLUGIN, SECONDS

_UNSET = "Config path is valid but unset"
PATHS = ("plugins", "plugins.entries", f"plugins.entries.{PLUGIN}")
"""What an installation makes where it is missing, outermost first."""


def note(openclaw: OpenClaw, environment: Mapping[str, str]) -> str:
    """Which of these objects are there before the installation, for `remove`. Raises UnavailableError."""
    section = _section(openclaw, environment)
    return json.dumps({"there": [path for path in PATHS if _at(section, path) is not None]})


def completed(before: str, openclaw: OpenClaw, environment: Mapping[str, str]) -> str:
    """The note, with what is shown beside ours right after the installation. Raises UnavailableError."""
    return json.dumps(json.loads(before) | {"others": others(_section(openclaw, environment))})


def remove(openclaw: OpenClaw, environment: Mapping[str, str], before: str) -> list[str]:
    """Take out what was not there according to `before` and is nobody else's; the paths of that.

    Raises UnavailableError.
    """
    target = outermost(_section(openclaw, environment), json.loads(before))
    if not target:
        return []
    answer = ask((*openclaw.command, "config", "unset", target), environment, SECONDS)
    if answer.rc != 0:
        raise UnavailableError(f"`openclaw config unset {target}` failed: {cli_error(answer) or answer.rc}")
    return [target]


def outermost(section: Mapping[str, Any] | None, noted: Mapping[str, Any]) -> str:
    """The outermost path that was not there before and holds nothing but ours now; empty if there is none."""
    made = [path for path in PATHS if path not in noted["there"]]
    if not made or _at(section, PATHS[-1]) is None:
        return ""
    return made[0] if others(section) == noted.get("others") else PATHS[-1] if PATHS[-1] in made else ""


def others(section: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the section holds beside our entry."""
    said = dict(section or {})
    entries = said.get("entries")
    rest = {name: value for name, value in entries.items() if name != PLUGIN} if isinstance(entries, dict) else {}
    return {name: value for name, value in said.items() if name != "entries"} | {"entries": rest}


def _section(openclaw: OpenClaw, environment: Mapping[str, str]) -> Mapping[str, Any] | None:
    answer = ask(openclaw.config_get_argv("plugins"), environment, SECONDS)
    if (cli_error(answer) or "").startswith(_UNSET):
        return None
    section = parse_object(answer)
    if answer.rc != 0 or section is None:
        raise UnavailableError(f"OpenClaw's configuration cannot be read: {cli_error(answer) or answer.rc}")
    return section


def _at(section: Mapping[str, Any] | None, path: str) -> Any:
    value: Any = section
    for name in path.split(".")[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None
