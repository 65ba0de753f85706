"""Which service manager this system has."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.operate.setup.launch_agent import LaunchAgent
from mailboxd.operate.setup.service import Service
from mailboxd.operate.setup.service_unit import Unit


def service_of(ws: Workspace, environ: Mapping[str, str]) -> Service:
    """The service under this system's manager: launchd on macOS, else systemd."""
    is_macos = shutil.which("launchctl", path=environ.get("PATH")) is not None
    return LaunchAgent(ws, environ) if is_macos else Unit(ws, environ)
