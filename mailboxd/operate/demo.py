"""The example company at work: four scripted agents, a daemon each, and one task file that is dropped into an inbox.

`Company` copies the example into a directory of its own, starts the daemons there, and tells what they log. What the
agents of the example answer stands in its company.yaml; `mailboxd-scripted-openclaw` reads it in the place of OpenClaw.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.errors import LockedError, UnavailableError, WorldError
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import Clock
from mailboxd.host.package_data import package_data

AGENTS = ("analyst", "extractor", "writer", "reviewer")
TASK = "q3"
"""The task that is dropped; the analyst plans it, and the writer plans its part `q3.report`."""

OWN = ("XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""The variables that say where mailboxd keeps what belongs to a user: a demo has a directory of its own."""

_PATIENCE, _PATIENCE_KILLING = 60.0, 240.0
"""Seconds until the answer; a turn whose outcome is unknown is looked up for up to 45 seconds."""
_LOOK = 0.05
_KILLS = 20
_STOPPING = 5.0
_STATE = ".state"
_MARK = ".mailboxd-demo"
"""Only a directory with this file is replaced."""


def own_environment(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the demo's programs: what mailboxd keeps for a user is kept in the demo's directory, and
    nothing of the shell changes what the agents do.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(("MAILBOXD", "OPENCLAW"))}
    here = {name: str(root / _STATE) for name in OWN}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
    return {**kept, **here, "PATH": path}


@dataclass
class Company:
    """The four workspaces in `root` and their daemons. `tell` gets what happens, line by line."""

    root: Path
    clock: Clock
    pause: Callable[[float], None]
    tell: Callable[[str], None]
    environment: dict[str, str] = field(init=False)
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _told: dict[str, int] = field(default_factory=dict)
    """How many bytes of each log have been told."""

    def __post_init__(self) -> None:
        self.environment = own_environment(self.root, os.environ)

    @property
    def state(self) -> Path:
        """The directory in the place of the user's own (`OWN`)."""
        return self.root / _STATE

    @property
    def runs(self) -> bool:
        """Whether a daemon of it runs."""
        return any(daemon.poll() is None for daemon in self._daemons.values())

    def workspace(self, agent: str) -> Workspace:
        return Workspace(self.root / agent)

    def make(self, dialect: str, seed: int) -> None:
        """Copy the example into `root`, in the place of an earlier demo.

        Raises UnavailableError if something else is there, LockedError if daemons of an earlier demo still run, and
        WorldError.
        """
        running = list[str]()
        for agent in AGENTS:
            if (self.root / agent).is_dir() and (pid := lock.holder(self.workspace(agent))) is not None:
                running.append(str(pid))
        if running:
            problem = f"daemons of an earlier demo still work in {self.root}"
            raise LockedError(f"{problem}: end it with Ctrl-C where it runs, or `kill {' '.join(running)}`")
        with world_errors(f"write {self.root}"):
            if self.root.exists() and not (self.root / _MARK).is_file() and any(self.root.iterdir()):
                problem = f"{self.root} is not empty and was not made by an earlier demo"
                raise UnavailableError(f"{problem}: name another directory, `mailboxd demo DIRECTORY`")
            shutil.rmtree(self.root, ignore_errors=True)
            try:
                self._copy(dialect, seed)
            except shutil.Error as error:  # of several files: each with its source, its target and why
                raise WorldError(f"cannot write {self.root}: {error.args[0][0][2]}") from error
        for agent in AGENTS:
            self.call("init", str(self.root / agent), "--agent", agent)

    def _copy(self, dialect: str, seed: int) -> None:
        """Write the example into `root`. Raises OSError."""
        self.root.mkdir(parents=True, exist_ok=True)
        # first, so that the next demo may replace what an interrupted one leaves
        (self.root / _MARK).write_text("mailboxd demo made this directory, and the next one replaces it.\n")
        # of a checkout, only what belongs to the example
        ours = shutil.ignore_patterns("mailbox", "tasks", "mailboxd.db*")
        shutil.copytree(package_data("workspace-example"), self.root, ignore=ours, dirs_exist_ok=True)
        (self.root / "logs").mkdir()
        script = self.root / "company.yaml"
        if dialect:
            said = f"dialect: {json.dumps(dialect)}\nseed: {seed}\n"
            script.write_text(script.read_text(encoding="utf-8") + said, encoding="utf-8")
        stand_in = json.dumps([sys.executable, "-m", "mailboxd.perform.agents.scripted", "--script", str(script)])
        for agent in AGENTS:
            config = self.workspace(agent).config
            text = config.read_text(encoding="utf-8").replace("[mailboxd-scripted-openclaw]", stand_in)
            config.write_text(text, encoding="utf-8")
            config.parent.chmod(0o700)

    def call(self, *arguments: str, agent: str = "") -> str:
        """What a command of mailboxd prints about the workspace of `agent`. Raises UnavailableError if it fails."""
        where = ["-w", str(self.root / agent)] if agent else []
        done = subprocess.run(
            [sys.executable, "-m", "mailboxd.cli", *where, *arguments], env=self.environment, cwd=self.root,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise UnavailableError(f"`mailboxd {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout

    def count_work(self) -> str:
        """What the scripted agents did, counted from their own ledger by the example's count_work.py.

        Raises UnavailableError if anything was done twice.
        """
        done = subprocess.run(
            [sys.executable, "count_work.py", "ledger.jsonl"], cwd=self.root, env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise UnavailableError(f"work was done twice, which is a bug in mailboxd:\n{done.stdout}{done.stderr}")
        return done.stdout

    # Daemons

    def start(self, agent: str) -> None:
        """Start the daemon of `agent`. Ctrl-C in the terminal does not reach it: `stop` ends it."""
        with self._log(agent).open("ab") as log:
            self._daemons[agent] = subprocess.Popen(
                [sys.executable, "-m", "mailboxd.cli", "run", "--workspace", str(self.root / agent)],
                env=self.environment, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def start_all(self) -> None:
        """Start all four and wait until they are ready. Raises UnavailableError."""
        for agent in AGENTS:
            self.start(agent)
        self.wait(lambda: all(": ready: " in self._log(agent).read_text(errors="replace") for agent in AGENTS))
        for agent in AGENTS:
            self._told[agent] = self._log(agent).stat().st_size

    def stop(self) -> None:
        """Stop all daemons; running turns are stopped by a second signal. Returns when none is left."""
        daemons, self._daemons = list(self._daemons.values()), {}
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            for daemon in daemons:
                if daemon.poll() is None:
                    daemon.send_signal(number)
            until = self.clock.monotonic() + _STOPPING
            while any(daemon.poll() is None for daemon in daemons) and self.clock.monotonic() < until:
                self.pause(_LOOK)
        for daemon in daemons:
            daemon.wait()

    # The story

    def drop(self, name: str) -> None:
        """Drop a file of the example into the analyst's inbox, as `cp` does."""
        shutil.copyfile(self.root / name, self.workspace("analyst").inbox / name)

    def answer(self) -> Path | None:
        """The file with the answer to `TASK`; None before it is there."""
        task = self.workspace("analyst").root / "tasks" / TASK / "task.md"
        if not task.is_file() or "\nstatus: done" not in task.read_text(encoding="utf-8"):
            return None
        return next(iter(self.workspace("analyst").outbox.glob(f"*/*.reply.*.{TASK}.*.md")), None)

    def watch(self, *, killing: bool) -> tuple[Path, int]:
        """Tell what happens until the answer is there; with `killing`, kill daemons at random moments meanwhile.

        Returns the file with the answer, and how many were killed. Raises UnavailableError if it does not come.
        """
        kills, next_kill = 0, self.clock.monotonic() + 0.3

        def is_answered() -> bool:
            nonlocal kills, next_kill
            self._narrate()
            if killing and kills < _KILLS and self.clock.monotonic() >= next_kill:
                agent = random.choice(AGENTS)  # noqa: S311 - no secret
                self.tell(f"{agent:<9} kill -9 {self._daemons[agent].pid}, and started again")
                self._daemons[agent].kill()
                self._daemons[agent].wait()
                self.start(agent)
                kills, next_kill = kills + 1, self.clock.monotonic() + random.uniform(0.2, 0.9)  # noqa: S311
            return self.answer() is not None

        self.wait(is_answered, _PATIENCE_KILLING if killing else _PATIENCE)
        self.pause(6 * _LOOK)  # for the sentence about the reply
        self._narrate()
        found = self.answer()
        assert found is not None
        return found, kills

    def wait(self, is_so: Callable[[], bool], seconds: float = _PATIENCE) -> None:
        """Wait until something is so. Raises UnavailableError if a daemon ends before, or after `seconds`."""
        until = self.clock.monotonic() + seconds
        while not is_so():
            ended = [agent for agent, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or self.clock.monotonic() > until:
                what = f"the daemon of {ended[0]} ended" if ended else f"nothing came within {seconds:.0f} seconds"
                ends = "\n".join(f"---- {self._log(agent)}\n{self._end_of_log(agent)}" for agent in ended or AGENTS)
                raise UnavailableError(f"the demo has failed: {what}\n{ends}")
            self.pause(_LOOK)

    def _log(self, agent: str) -> Path:
        return self.root / "logs" / f"{agent}.log"

    def _end_of_log(self, agent: str) -> str:
        return "\n".join(self._log(agent).read_text(errors="replace").splitlines()[-10:])

    def _narrate(self) -> None:
        """Tell the lines that the daemons have logged since the last call."""
        for agent in AGENTS:
            with self._log(agent).open("rb") as log:
                log.seek(self._told.get(agent, 0))
                whole, newline, _ = log.read().rpartition(b"\n")
            self._told[agent] = self._told.get(agent, 0) + len(whole) + len(newline)
            for line in whole.decode(errors="replace").splitlines():
                self.tell(f"{agent:<9} {line}") if (line := _sentence(line)) else None


def _sentence(line: str) -> str:
    """What a line of a daemon's log says: its time of day and its text; empty if it is none."""
    at, _, rest = line.partition(" ")
    level, _, said = rest.partition(" ")
    _, colon, text = said.partition(": ")
    if not colon or level not in ("INFO", "WARNING", "ERROR") or "T" not in at:
        return ""
    return text.partition(" [task=")[0] if level == "INFO" else f"{level}: {text.partition(' [task=')[0]}"


def body(message: str) -> Iterator[str]:
    """The lines of a reply below its heading `## Results`."""
    _, _, results = message.partition("\n## Results\n")
    yield from results.strip().splitlines()
