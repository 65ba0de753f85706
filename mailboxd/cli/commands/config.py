"""`mailboxd config [KEY]`: how the workspace is configured."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_CONFIG

if TYPE_CHECKING:
    from mailboxd.config import Config


@verb(
    "config",
    "config",
    "config --all",
    "config limits.turns",
    "config --path",
    exits={EXIT_CONFIG: "the configuration is wrong"},
)
@click.argument("key", required=False)
@click.option("--all", "everything", is_flag=True, help="Every key, also those that have their default.")
@click.option("--path", is_flag=True, help="Where the configuration stands.")
def command(session: Session, key: str | None, everything: bool, path: bool) -> None:
    """Print what the configuration changes, or the value of KEY (a key, or a group such as `limits`).

    The configuration is checked, and everything that is wrong with it is named.
    """
    from mailboxd import config

    ws = session.workspace()
    if path:
        say(to_json({"path": str(ws.config)}) if session.as_json else plain(str(ws.config)))
        return
    settings = config.load(ws.config)
    changed = {"agent": settings.agent, **config.differences(settings)}
    found = _values(settings) if everything or key is not None else changed
    if key is not None:
        found = _below(found, key)
    if session.as_json:
        say(to_json(found))
    elif key in found:
        say(_shown(found[key]))
    else:
        for name, value in found.items():
            say(f"{name}: {_shown(value)}")


def _values(settings: Config) -> dict[str, Any]:
    """Every key as `group.key`."""
    flat: dict[str, Any] = {}
    for name, value in settings.model_dump(mode="json").items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _below(values: dict[str, Any], key: str) -> dict[str, Any]:
    found = {name: value for name, value in values.items() if name == key or name.startswith(f"{key}.")}
    if not found:
        near = difflib.get_close_matches(key, values, 1)
        raise click.UsageError(
            f"there is no key {key!r}" + (f"; did you mean {near[0]}?" if near else "; `mailboxd config --all`")
        )
    return found


def _shown(value: Any) -> str:
    return plain(value) if isinstance(value, str) else to_json(value, indent=None)
