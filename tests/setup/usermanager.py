"""A real `systemd --user` of one's own, in a mount namespace: systemd wants a machine that systemd has booted.

Its units, sockets and state lie below one directory. What has to meet it is called with `call`, inside the namespace.
There is no journal: what a service writes goes nowhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.e2e.support import environment, eventually

SYSTEMD = next(
    (str(path) for path in map(Path, ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")) if path.exists()), ""
)
_SCRIPT = """\
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$0" --user --log-target=console
"""


def why_not() -> str:
    """Why none can be started here; empty if one can."""
    if os.geteuid() != 0 or not SYSTEMD or shutil.which("unshare") is None or shutil.which("systemctl") is None:
        return "needs root, systemd and unshare"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, timeout=30, check=False)
    return "" if tried.returncode == 0 else "no mount namespace can be made here"


class UserManager:
    """One manager, from now until `close`."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mbd-", dir="/tmp"))  # short: it holds sockets
        for name in ("run", "home"):
            (self.root / name).mkdir(mode=0o700)
        self.log = self.root / "systemd.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", _SCRIPT, SYSTEMD],
                env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        eventually(self._is_up, 30, lambda: self.log.read_text(errors="replace")[-2000:])

    @property
    def env(self) -> dict[str, str]:
        plain = environment({"HOME": str(self.root / "home"), "XDG_RUNTIME_DIR": str(self.root / "run")})
        return {
            name: text for name, text in plain.items() if name not in ("DBUS_SESSION_BUS_ADDRESS", "XDG_CONFIG_HOME")
        }

    def call(
        self, *argv: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """A command in the manager's namespace and environment."""
        inside: Sequence[str] = ("nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", f"--wdns={cwd or self.root}")
        return subprocess.run(
            [*inside, *argv],
            env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip

    def systemctl(self, *words: str) -> str:
        """The output of `systemctl --user`."""
        return self.call("systemctl", "--user", *words).stdout.strip()

    def relax(self, *directives: str) -> None:
        """Switch directives off for every service of mailboxd."""
        for unit in ("mailboxd@.service", "mailboxd.service"):
            folder = self.root / "home" / ".config" / "systemd" / "user" / f"{unit}.d"
            folder.mkdir(parents=True)
            (folder / "relaxed.conf").write_text("\n".join(["[Service]", *(f"{name}=no" for name in directives), ""]))

    def close(self) -> None:
        """End it and all its services."""
        with suppress(subprocess.TimeoutExpired):
            self.call("systemctl", "--user", "exit", seconds=60)
            self.process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        shutil.rmtree(self.root, ignore_errors=True)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text(errors="replace")
        return self.systemctl("is-system-running") in ("running", "degraded")
