"""Which service manager this system has."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from mailboxd.errors import UnavailableError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.operate.setup.launch_agent import LaunchAgent
from mailboxd.operate.setup.service import Service
from mailboxd.operate.setup.service_unit import Unit, UnitOfAll


def service_of(ws: Workspace, environ: Mapping[str, str]) -> Service:
    """The service of a workspace under this system's manager: launchd on macOS, else systemd."""
    return LaunchAgent(ws, environ) if _is_macos(environ) else Unit(ws, environ)


def service_of_all(environ: Mapping[str, str]) -> Service:
    """The one that serves all workspaces. Raises UnavailableError on macOS."""
    if _is_macos(environ):
        raise UnavailableError("there is no launchd agent for `mailboxd run --all`: keep it running yourself")
    return UnitOfAll(environ)


def _is_macos(environ: Mapping[str, str]) -> bool:
    return shutil.which("launchctl", path=environ.get("PATH")) is not None
