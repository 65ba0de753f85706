"""How to add an extra to this installation: with the installer that was used."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mailboxd.errors import ConfigError

EXTRAS = {
    "gateway": ("cryptography", "wsproto"),
    "hub": ("cryptography", "nats", "nkeys"),
    "mcp": ("mcp",),
    "metrics": ("prometheus_client", "opentelemetry"),
    "signing": ("cryptography",),
    "tui": ("textual",),
    "web": ("starlette", "uvicorn"),
}
"""The packages of each extra that commands need."""
_NAME = "mailboxd"
_WITH_EXTRAS = re.compile(r"(?P<source>[^\[\]]+)(?:\[(?P<extras>[^\[\]]*)\])?")


def is_installed(extra: str) -> bool:
    return all(find_spec(name) is not None for name in EXTRAS[extra])


def require(extra: str) -> None:
    """Raises ConfigError unless the extra is installed."""
    if not is_installed(extra):
        raise ConfigError(f"the extra {extra} is missing: run `{to_add(extra)}`")


def to_add(extra: str, prefix: Path | None = None) -> str:
    """The command that adds `extra`, for the environment at `prefix` (default: the one that this runs in).

    Environments of pipx and uv have no pip of their own. Both record what they installed and with which extras, and
    reinstall with --force. Raises nothing.
    """
    prefix = prefix or Path(sys.prefix)
    for program, read in (("pipx install", _of_pipx), ("uv tool install", _of_uv)):
        try:
            source, extras = read(prefix)
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            continue  # not installed by this one, or in an unknown format
        return f"{program} --force {shlex.quote(_named(source, {*extras, extra}))}"
    return f"pip install {_of_pip(prefix, extra)}"


def _of_pip(prefix: Path, extra: str) -> str:
    """The requirement for pip: the place from which it was installed, which pip records unless it was an index."""
    named = _named(_NAME, {extra})
    for note in prefix.glob(f"lib/python*/site-packages/{_NAME}-*.dist-info/direct_url.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(note.read_text(encoding="utf-8"))
            if said.get("dir_info", {}).get("editable"):
                return f"-e {shlex.quote(_named(unquote(urlsplit(said['url']).path), {extra}))}"
            return shlex.quote(f"{named} @ {said['url']}")
    return shlex.quote(named)


def _named(source: str, extras: set[str]) -> str:
    return f"{source}[{','.join(sorted(extras))}]"


def _of_pipx(prefix: Path) -> tuple[str, list[str]]:
    said = json.loads((prefix / "pipx_metadata.json").read_text(encoding="utf-8"))
    found = _WITH_EXTRAS.fullmatch(said["main_package"]["package_or_url"])
    if found is None:
        return _NAME, []
    return found["source"], [name.strip() for name in (found["extras"] or "").split(",") if name.strip()]


def _of_uv(prefix: Path) -> tuple[str, list[str]]:
    import tomllib

    said = tomllib.loads((prefix / "uv-receipt.toml").read_text(encoding="utf-8"))
    own = next(row for row in said["tool"]["requirements"] if row["name"] == _NAME)
    return str(next((own[key] for key in ("path", "directory") if key in own), _NAME)), list(own.get("extras", []))
