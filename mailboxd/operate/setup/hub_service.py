"""The user services of the hub: its process, and on the host that founded it the server.

~/.config/systemd/user/mailboxd-hub.service, mailboxd-hub-server.service
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import UnavailableError
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.host.systemd_units import user_units
from mailboxd.operate.setup.service import command, write_file
from mailboxd.operate.setup.service_unit import UserManager, exec_start, packaged_unit, variable

HUB, SERVER = "mailboxd-hub.service", "mailboxd-hub-server.service"


@dataclass(frozen=True, slots=True)
class HubServices:
    """The services of one user. `server` is the server's configuration, if it runs on this host."""

    environ: Mapping[str, str]
    server: Path | None = None

    @property
    def folder(self) -> Path:
        return user_units(self.environ)

    def install(self) -> list[Path]:
        """Write the units, enable and start the services. Raises UnavailableError without systemd or nats-server."""
        manager = UserManager(self.environ)
        if missing := manager.missing():
            raise UnavailableError(f"{missing}. Run the commands under another supervisor instead")
        contents = {self.folder / name: text.encode() for name, text in self.contents().items()}
        for path, raw in contents.items():
            write_file(path, raw)
        manager.run("daemon-reload")
        for path in contents:
            manager.run("enable", path.name)
            manager.run("restart", path.name)
        return list(contents)

    def contents(self) -> dict[str, str]:
        """The units by their names, in the order of their start. Raises UnavailableError."""
        texts = {}
        if self.server is not None:
            program = shutil.which("nats-server", path=self.environ.get("PATH"))
            if program is None:
                raise UnavailableError("there is no nats-server on the PATH: install it (https://nats.io/download)")
            texts[SERVER] = self._unit(SERVER, program, "-c", str(self.server))
        texts[HUB] = self._unit(HUB, *command("hub", "run"))
        return texts

    def uninstall(self) -> list[Path]:
        """Stop and disable the services and remove their units. Raises UnavailableError, WorldError."""
        found = [path for path in (self.folder / HUB, self.folder / SERVER) if path.exists()]
        manager = UserManager(self.environ)
        if found and not manager.missing():
            for path in found:
                manager.run("disable", path.name)
                manager.run("stop", path.name)
        for path in found:
            with world_errors(f"remove {path}"):
                path.unlink(missing_ok=True)
        return found

    def _unit(self, name: str, *argv: str) -> str:
        """The packaged unit with the program, and the state directory, of this installation."""
        lines = [exec_start(argv)]
        if state := self.environ.get("XDG_STATE_HOME"):
            lines.append(variable("XDG_STATE_HOME", state))
        kept = packaged_unit(name).decode().splitlines()
        at = next(number for number, line in enumerate(kept) if line.startswith("ExecStart="))
        return "\n".join([*kept[:at], *lines, *kept[at + 1 :], ""])
