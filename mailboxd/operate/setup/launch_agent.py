"""The launchd agent of a workspace, on macOS: a property list in ~/Library/LaunchAgents (launchd.plist(5)).

Written after what `openclaw gateway install` does there, and not tried on a Mac: a stand-in for launchctl tests it.
"""

from __future__ import annotations

import hashlib
import os
import plistlib
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import UnavailableError
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import SystemClock
from mailboxd.operate.setup.service import ServiceState, WorkspaceService, command, error_text, read, show
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.process import NotStarted

_SECONDS = 30.0
_STOP_SECONDS = 90
"""Longer than shutdown.drain_seconds + shutdown.grace_seconds (60 + 5 by default)."""
_START_SECONDS = 120.0
_AGAIN = 0.5
_NOT_LOADED = re.compile(r"could not find service|no such process", re.IGNORECASE)
_STILL_ENDING = re.compile(r"\b5: input/output error", re.IGNORECASE)
"""What `bootstrap` says until launchd has let go of the job before it."""
_ALREADY = re.compile(r"already in progress|already exists in domain|already bootstrapped", re.IGNORECASE)
_NUMBER = re.compile(r"^\s*(pid|last exit code) = (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """What `launchctl print` says of a job that is loaded. `pid`: None if it does not run."""

    pid: int | None
    exit_status: int | None


@dataclass(frozen=True, slots=True)
class LaunchAgent(WorkspaceService):
    """The service of one workspace under launchd."""

    ws: Workspace
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        """The label: the name of the workspace, and what tells it from others with that name."""
        plain = re.sub(r"[^A-Za-z0-9-]+", "-", self.ws.root.name).strip("-") or "workspace"
        return f"mailboxd.{plain}.{hashlib.sha256(os.fsencode(self.ws.root)).hexdigest()[:8]}"

    @property
    def path(self) -> Path:
        return self._home / "Library" / "LaunchAgents" / f"{self.name}.plist"

    @property
    def log(self) -> Path:
        return self._home / "Library" / "Logs" / f"{self.name}.log"

    @property
    def _home(self) -> Path:
        return Path(self.environ.get("HOME") or Path.home())

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{self.name}"

    def missing(self) -> str:
        if shutil.which("launchctl", path=self.environ.get("PATH")) is None:
            return "there is no launchctl on this machine"
        try:
            answer = self._ask("print", self._domain)
        except UnavailableError as problem:
            return str(problem)
        return "" if answer.rc == 0 else f"this user has no session for launchd ({error_text(answer)})"

    def content(self) -> dict[Path, bytes]:
        agent = {
            "Label": self.name,
            "ProgramArguments": list(command()),
            "WorkingDirectory": str(self.ws.root),
            "EnvironmentVariables": self.variables(),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": _STOP_SECONDS,
            # turns that outlive the daemon are found again by the next one, so only the daemon itself is signalled
            "AbandonProcessGroup": True,
            "Umask": 0o077,
            "SoftResourceLimits": {"NumberOfFiles": 8192},  # launchd's default is 256
            "StandardOutPath": str(self.log),
            "StandardErrorPath": str(self.log),
        }
        return {self.path: plistlib.dumps(agent, sort_keys=False)}

    def state(self) -> ServiceState:
        missing, installed = self.missing(), read(self.path) is not None
        if missing:
            return ServiceState(self.name, str(self.path), False, installed, False, False, None, "", missing)
        job = self._job()
        pid = None if job is None else job.pid
        if not installed:
            problem = "it is not installed"
        elif not self.is_installed():
            problem = "it was installed by another mailboxd, or for another program"
        elif pid is None:
            problem = "it is stopped" if job is None else f"it does not run (last exit status {job.exit_status})"
        else:
            problem = ""
        return ServiceState(self.name, str(self.path), True, installed, installed, pid is not None, pid, "", problem)

    def install(self, *, start: bool) -> list[Path]:
        if start:
            self.require_manager()
            self.require_free()
        written = self.write()
        if start:
            if written:
                self.stop()  # launchd reads a changed file only when it loads it again
            self.start()
        return written

    def start(self) -> None:
        self._run("enable", self._target)
        job = self._job()
        if job is not None and job.pid is None:
            self._run("kickstart", self._target)
        elif job is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._until(self._is_bootstrapped, _STOP_SECONDS, "launchd does not load it")
        self._until(self._is_ready, _START_SECONDS, "the daemon has not started")

    def stop(self) -> None:
        answer = self._ask("bootout", self._target)
        if answer.rc != 0 and _NOT_LOADED.search(error_text(answer)) is None and self._job() is not None:
            raise UnavailableError(f"`launchctl bootout {self._target}` failed: {error_text(answer)}")
        self._until(lambda: self._job() is None, _STOP_SECONDS + _SECONDS, "launchd does not stop it")

    def uninstall(self) -> list[Path]:
        if read(self.path) is None:
            return []
        if not self.missing():
            self.stop()
        with world_errors(f"remove {self.path}"):
            self.path.unlink(missing_ok=True)
            self.log.unlink(missing_ok=True)
        return [self.path]

    def show_log(self, lines: int, *, follow: bool) -> int:
        argv = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(self.log)]
        return show(argv, self.environ)

    def _job(self) -> LoadedJob | None:
        """The job; None if it is not loaded. Raises UnavailableError."""
        answer = self._ask("print", self._target)
        if answer.rc == 0:
            said = {name: int(number) for name, number in _NUMBER.findall(answer.stdout.decode("utf-8", "replace"))}
            return LoadedJob(said.get("pid"), said.get("last exit code"))
        if _NOT_LOADED.search(error_text(answer)):
            return None
        raise UnavailableError(f"`launchctl print {self._target}` failed: {error_text(answer)}")

    def _is_ready(self) -> bool:
        if lock.holder(self.ws) is not None:
            return True
        job = self._job()
        if job is not None and job.pid is None and job.exit_status:
            raise UnavailableError(
                f"the daemon ended with exit status {job.exit_status}; see `mailboxd -w {self.ws.root} connect service "
                "logs`"
            )
        return False

    def _is_bootstrapped(self) -> bool:
        answer = self._ask("bootstrap", self._domain, str(self.path))
        said = error_text(answer)
        if answer.rc == 0 or _ALREADY.search(said):
            return True
        if _STILL_ENDING.search(said):
            return False
        raise UnavailableError(f"`launchctl bootstrap {self._domain} {self.path}` failed: {said}")

    def _until(self, holds: Callable[[], bool], seconds: float, problem: str) -> None:
        clock = SystemClock()
        end = clock.monotonic() + seconds
        while not holds():
            if clock.monotonic() >= end:
                raise UnavailableError(
                    f"{problem} ({seconds:.0f} s); see `mailboxd -w {self.ws.root} connect service logs`"
                )
            threading.Event().wait(_AGAIN)

    def _run(self, *words: str) -> None:
        answer = self._ask(*words)
        if answer.rc != 0:
            raise UnavailableError(f"`launchctl {' '.join(words)}` failed: {error_text(answer)}")

    def _ask(self, *words: str) -> Exit:
        try:
            return ask(("launchctl", *words), self.environ, _SECONDS)
        except NotStarted as problem:
            raise UnavailableError(str(problem)) from problem
