"""A real OpenClaw gateway of one's own: home, state, temporary files, port and token below one directory.

Every process that is started with its environment, by us or by it, is found again by that environment (the state
directory is named in it), so `close()` leaves none behind, however it came to be.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.e2e.support import MAILBOXD, Settings, environment, eventually
from tests.live.install import Installation, standard

READY_SECONDS = 180.0


class Gateway:
    """One gateway with its configuration. `agents`: id -> what else its entry says (`subagents`, `tools`, ...).

    Each agent has the workspace `ws/<id>` below `root` and a model of its own name. Everybody may give work to
    everybody unless its entry has `subagents`. `listed`: the configuration in its form before 2026.8.1 (`agents.list`).
    """

    def __init__(
        self, root: Path, model_url: str, agents: Mapping[str, Settings], *, listed: bool = False,
        installation: Installation | None = None, **more: Any,
    ) -> None:  # fmt: skip
        self.root = root
        self.installation = installation or standard()
        self.log = root / "gateway.log"
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.token = secrets.token_hex(16)
        for name in ("home", "state", "tmp", *(f"ws/{agent}" for agent in agents)):
            (root / name).mkdir(parents=True, exist_ok=True)
        # Node compiles OpenClaw once for all tests: a fifth of a gateway's start, a third of a command
        (root / "tmp" / "node-compile-cache").symlink_to(self.installation.compiled, target_is_directory=True)
        self.config = root / "state" / "openclaw.json"
        self.config.write_text(json.dumps(self._configuration(model_url, agents, listed) | more, indent=2))
        self.config.chmod(0o600)

    @property
    def env(self) -> dict[str, str]:
        """The environment in which `openclaw` is the real one and talks to this gateway."""
        return environment(self.exports)

    @property
    def exports(self) -> dict[str, str]:
        """What of `env` is not the caller's own."""
        return {
            "PATH": f"{self.installation.path}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "OPENCLAW_STATE_DIR": str(self.root / "state"),
            "OPENCLAW_CONFIG_PATH": str(self.config),
            "OPENCLAW_NO_RESPAWN": "1",
        }

    def workspace(self, agent: str) -> Path:
        return self.root / "ws" / agent

    # ------------------------------------------------------------ its life

    def start(self) -> Gateway:
        """Start it and wait until it is ready."""
        assert self.process is None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["openclaw", "gateway", "run", "--port", str(self.port)],
                cwd=self.root, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                executable=str(self.installation.openclaw),
            )  # fmt: skip
        eventually(self._has_answered, READY_SECONDS, self.last_words)
        assert self.process.poll() is None, f"the gateway ended with {self.process.returncode}\n{self.last_words()}"
        return self

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False

    def kill(self) -> None:
        """SIGKILL: it dies where it stands, in the middle of whatever turn."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)
        self.process = None

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)
        self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill everything that runs in this gateway's environment."""
        if self.process is not None:
            self.kill()
        for _ in range(10):  # one that is killed may have started another the moment before
            if not (left := list(self.processes())):
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def processes(self) -> Iterator[int]:
        """All processes of this machine that were started in this gateway's environment."""
        mark = f"OPENCLAW_STATE_DIR={self.root / 'state'}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        yield int(entry.name)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    # ------------------------------------------------------------ asking it

    def openclaw(self, *words: str, seconds: float = 90.0) -> subprocess.CompletedProcess[str]:
        """One command of the real `openclaw`."""
        return subprocess.run(
            ["openclaw", *words], executable=str(self.installation.openclaw), env=self.env, cwd=self.root,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip

    def install_plugin(self) -> None:
        """mailboxd's plugin, as an operator installs it; before the start."""
        argv = [*MAILBOXD, "connect", "plugin", "install"]
        done = subprocess.run(argv, env=self.env, cwd=self.root, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    # ------------------------------------------------------------ inside

    def _has_answered(self) -> bool:
        return self.is_ready() or self.process is None or self.process.poll() is not None

    def _configuration(self, model_url: str, agents: Mapping[str, Settings], listed: bool) -> Settings:
        entries = {
            name: {
                "workspace": str(self.workspace(name)),
                "model": {"primary": f"scripted/{name}"},
                "subagents": {"allowAgents": ["*"]},
                **settings,
            }
            for name, settings in agents.items()
        }
        # one agent marked as the default is what makes OpenClaw leave the old form as it is
        marked = [{"default": number == 0, "id": name, **entry} for number, (name, entry) in enumerate(entries.items())]
        chosen: Settings = {"list": marked} if listed else {"ownership": "explicit", "entries": entries}
        defaults = {"skipBootstrap": True, "heartbeat": {"every": "0m"}}
        models = [
            {
                "id": name, "name": name, "contextWindow": 2_000_000, "maxTokens": 8_192, "input": ["text"],
                "reasoning": False, "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
            }
            for name in agents
        ]  # fmt: skip
        provider = {"baseUrl": model_url, "apiKey": "none", "api": "openai-completions", "models": models}
        auth = {"mode": "token", "token": self.token}
        return {
            "gateway": {"mode": "local", "port": self.port, "bind": "loopback", "auth": auth},
            "models": {"providers": {"scripted": provider}},
            "agents": {"defaults": defaults, **chosen},
            "update": {"checkOnStart": False},
        }


def run_of(agents: Sequence[str]) -> dict[str, Settings]:
    """Agents of whom nothing special is said."""
    return {name: {} for name in agents}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
