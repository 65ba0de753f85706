"""A company of agents in real directories: their script, their workspaces, their daemons as real processes.

Nothing of mailboxd is imported: what is tested here is what was installed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.e2e import witness

BIN = Path(sys.executable).parent
MAILBOXD = (str(BIN / "mailboxd"),)
SCRIPTED = str(BIN / "mailboxd-scripted-openclaw")

PATIENCE = 4
"""How much longer than on a quiet machine anything may take: a limit is there to end a test, not to time it."""

_LOCKED_OUT = "its gateway refuses every turn"
T = TypeVar("T")
Settings = dict[str, Any]

_FAST: Settings = {
    "openclaw": {"discovery": "false", "turn_timeout_seconds": 300},
    "retry": {"backoff_seconds": 0.05, "backoff_max_seconds": 0.2},
    "inbox": {"settle_seconds": 0.05, "incomplete_seconds": 1},
    "tasks": {"render_seconds": 0.05},
    "breaker": {"open_seconds": 0.2, "open_max_seconds": 1},
    "shutdown": {"drain_seconds": 10, "grace_seconds": 1},
    "limits": {"turns_per_agent": 1},  # one after the other, so that their order can be told
}


def eventually(condition: Callable[[], T], seconds: float = 20.0, why: Callable[[], str] | None = None) -> T:
    """What `condition` returns as soon as that is true, asked again and again for `seconds` of a quiet machine."""
    end = time.monotonic() + seconds * PATIENCE
    pause = threading.Event()
    began = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        assert now < end, f"not within {PATIENCE} times {seconds} s: {why() if why else condition}"
        pause.wait(max(0.03, 2 * (now - began)))  # who runs a program to ask leaves the machine to what is waited for
        began = time.monotonic()
    return value


def spawned(call: Path) -> Any:
    """What the directory of a call says of the process that it has started, with its `argv`; None before that."""
    with suppress(FileNotFoundError, ValueError):  # not yet, or only half of it
        argv, *record = map(json.loads, (call / "call").read_text().splitlines())
        return {"argv": argv, **record[0]} if record else None
    return None


def message(kind: str, task_id: str, body: str = "", **headers: Any) -> str:
    """A message as anybody would write it; `sender=` is the header `from`."""
    headers = {"from": headers.pop("sender", "operator"), **headers}
    lines = [f"type: {kind}", f"task_id: {task_id}", *(f"{name}: {value}" for name, value in headers.items())]
    return "---\n" + "\n".join(lines) + f"\n---\n\n{body}\n"


def task(task_id: str, title: str = "", *, plan: Mapping[str, Any] | None = None, **headers: Any) -> str:
    """A `task` message; with `plan`, a section `## DAG` of these children."""
    body = (
        f"# Task: {title or task_id}\n\n## Instructions\n\nDo {title or task_id}.\n\n## Expected Output\n\nOne line.\n"
    )
    if plan is not None:
        body += f"\n## DAG\n\n```yaml\n{yaml.safe_dump({'subtasks': dict(plan)}, sort_keys=False)}```\n"
    return message("task", task_id, body, **headers)


def reply(task_id: str, subtask_id: str, sender: str, text: str = "Text.", **headers: Any) -> str:
    headers = {"sender": sender, "subtask_id": subtask_id, "status": "done", **headers}
    return message("reply", task_id, f"## Results\n\n{text}\n", completed_at="2026-11-21T02:07:53Z", **headers)


class Agent:
    """One agent's workspace, and the daemon beside it when there is one."""

    def __init__(self, company: Company, name: str) -> None:
        self.company = company
        self.name = name
        self.root = company.root / "ws" / name
        self.inbox = self.root / "mailbox" / "inbox"
        self.log = self.root / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    def settle_in(self, settings: Settings) -> None:
        """Make the workspace and its configuration."""
        for path in ("mailbox/inbox", "mailbox/outbox", "mailbox/archive", "mailbox/rejected", "tasks"):
            (self.root / path).mkdir(parents=True, mode=0o700)
        for path in ("turns", "templates"):
            (self.root / ".mailboxd" / path).mkdir(parents=True, mode=0o700)
        merged = _merged({"agent": self.name, **_FAST}, settings)
        merged["openclaw"].setdefault("command", [SCRIPTED, "--script", str(self.company.script)])
        self.config.write_text(yaml.safe_dump(merged), encoding="utf-8")

    @property
    def config(self) -> Path:
        return self.root / ".mailboxd" / "config.yaml"

    # ------------------------------------------------------------ mail

    def drop(self, name: str, text: str | bytes) -> Path:
        """Put a file into the inbox as a careful writer does: whole, by renaming it in."""
        raw = text.encode() if isinstance(text, str) else text
        hidden = self.inbox / f".{name}.tmp"
        hidden.write_bytes(raw)
        hidden.rename(self.inbox / name)
        return self.inbox / name

    def mail(self, verdict: str | None = None, direction: str = "in") -> list[dict[str, Any]]:
        rows = self.query("SELECT * FROM v_messages WHERE direction = ? ORDER BY id", direction)
        return [row for row in rows if verdict in (None, row["verdict"])]

    def rejections(self) -> dict[str, str]:
        """The rule by which each rejected file was rejected, by the name it was dropped under."""
        return {row["name"]: json.loads(row["reason"])["rule"] for row in self.mail("rejected")}

    def sent(self, kind: str) -> list[str]:
        """The messages of one type in outbox/, oldest first. Those of dispatches are written within about a second."""
        if self.process is not None and self.process.poll() is None:
            recorded = "SELECT path FROM v_messages WHERE direction = 'out' AND type = ?"
            paths = [self.root / "mailbox" / row["path"] for row in self.query(recorded, kind)]
            eventually(lambda: all(path.exists() for path in paths))
        return [path.read_text() for path in sorted((self.root / "mailbox" / "outbox").glob(f"*/*.{kind}.*"))]

    # ------------------------------------------------------------ what the database says

    def query(self, sql: str, *args: object) -> list[dict[str, Any]]:
        path = self.root / ".mailboxd" / "mailboxd.db"
        if not path.exists():
            return []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as db:
            db.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in db.execute(sql, args)]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []  # the daemon is making it this moment
                raise

    def task(self, local_id: str) -> dict[str, Any]:
        """The row of a task; empty while there is none."""
        return next(iter(self.query("SELECT * FROM v_tasks WHERE local_id = ?", local_id)), {})

    def phase(self, local_id: str) -> str:
        return str(self.task(local_id).get("phase", ""))

    def phases(self) -> dict[str, str]:
        return {row["local_id"]: row["phase"] for row in self.query("SELECT local_id, phase FROM v_tasks")}

    def attempts(self, local_id: str) -> list[dict[str, Any]]:
        return self.query(
            "SELECT a.* FROM v_attempts a JOIN v_tasks t ON t.id = a.task WHERE t.local_id = ? ORDER BY ordinal",
            local_id,
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        rows = self.query("SELECT * FROM v_events WHERE kind = ? ORDER BY seq", kind)
        return [{**row, "data": json.loads(row["data"])} for row in rows]

    def turns(self) -> list[dict[str, Any]]:
        """The turns that have ended, oldest first."""
        rows = self.query("SELECT json_extract(data, '$.turn') AS turn FROM v_events ORDER BY seq")
        return [json.loads(row["turn"]) for row in rows if row["turn"]]

    def until(self, local_id: str, phase: str = "completed", seconds: float | None = None) -> dict[str, Any]:
        """Wait until a task is in a phase; it must not end in another one."""

        def reached() -> bool:
            now = self.phase(local_id)
            ended = now in ("completed", "failed", "cancelled", "circuit_open") and now != phase
            assert not ended, f"{local_id} is {now}: {self.task(local_id)['reason']}\n{self.last_words()}"
            died = self.process is not None and self.process.poll() is not None
            assert not died, f"{self.name}'s daemon has ended; {local_id} is {now}\n{self.last_words()}"
            assert now == phase or not (shut := self.locked_out()), f"{local_id} is {now} and stays so: {shut}"
            return now == phase

        limit = seconds or self.company.patience
        eventually(reached, limit, lambda: f"{local_id} is not {phase}, but {self.phases()}\n{self.last_words()}")
        return self.task(local_id)

    def has_nothing_to_do(self) -> bool:
        """Nothing is ordered, to be filed or to be rendered: what is left waits for somebody else."""
        return not self.query("SELECT 1 FROM v_unfinished LIMIT 1")

    def unread(self) -> list[Path]:
        """The messages in the inbox. What begins with a dot is no message yet."""
        return [path for path in self.inbox.glob("*.md") if not path.name.startswith(".")]

    # ------------------------------------------------------------ the daemon

    def start(self, *, wait: bool = True, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start the daemon; with `wait`, until it says that it is ready."""
        with self.log.open("ab") as log:
            self._said_before = log.tell()
            self.process = subprocess.Popen(
                [*self.company.program, "run"],
                cwd=self.root,
                stderr=log,
                stdout=log,
                env=self._env(env),
                start_new_session=True,
            )
        if wait:
            self.until_ready()
        return self.process

    def locked_out(self) -> str:
        """Which agents only a restart of the gateway helps, where nobody in the company restarts it."""
        if not self.company.gives_up_locked_out or not (self.root / ".mailboxd" / "mailboxd.db").exists():
            return ""
        rows = self.query("SELECT agent, reason FROM v_breakers WHERE state <> 'closed'")
        return "; ".join(f"{row['agent']}: {row['reason']}" for row in rows if row["reason"].startswith(_LOCKED_OUT))

    def until_ready(self) -> None:
        """Wait until the daemon says that it is ready, or has ended."""

        def is_ready() -> bool:
            said = self.log.read_bytes()[self._said_before :]
            return b"ready" in said or self.process is None or self.process.poll() is not None

        eventually(is_ready, self.company.patience, self.last_words)

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        assert self.process is not None
        self.until_ready()  # before that it dies of the signal, as any program does
        self.process.terminate()
        return self.ended()

    def kill(self) -> None:
        """SIGKILL: the daemon dies where it stands. What it has started goes on."""
        assert self.process is not None
        self.process.kill()
        self.ended()

    def ended(self, seconds: float = 30.0) -> int:
        """Wait for the end of the daemon; its exit status."""
        assert self.process is not None
        status = self.process.wait(seconds)
        self.process = None
        return status

    def run(self, *, seconds: float = 180.0, env: Mapping[str, str] | None = None) -> None:
        """`mailboxd run --until-idle`, to its end."""
        done = self.call("run", "--until-idle", seconds=seconds, env=env)
        with self.log.open("a") as log:
            log.write(done.stderr)
        assert done.returncode == 0, done.stderr[-4000:]

    def call(
        self, *words: str, seconds: float = 180.0, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One command of the installed program in this workspace."""
        return subprocess.run(
            [*self.company.program, *words],
            cwd=self.root,
            env=self._env(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def _env(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return environment({**self.company.env, **(more or {})})

    def json(self, *words: str) -> Any:
        """What a command with `--json` prints."""
        done = self.call(*words, "--json")
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"


class Company:
    """Several agents under one script, below one directory."""

    patience = 30.0
    """How long a task may take, in seconds."""
    gives_up_locked_out: bool = False
    """Whether to wait for a task ends as soon as OpenClaw's gateway has locked an agent out."""
    program: tuple[str, ...] = MAILBOXD
    """How a command begins."""
    gateway_port: int | None = None
    """The port that the script names as the gateway's, from the next `rewrite` on."""
    dialect: str = os.environ.get("DIALECT", "")
    """How the agents write their answers, from the next `rewrite` on."""
    seed: str = os.environ.get("SEED", "1")
    """What the dialect `any` draws."""

    def __init__(self, root: Path, agents: Mapping[str, Settings], env: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.env = dict(env or {})
        self.script = root / "script.yaml"
        self.ledger = root / "ledger.jsonl"
        self.agents = {name: Agent(self, name) for name in agents}
        self.rewrite(agents)

    def __getitem__(self, name: str) -> Agent:
        return self.agents[name]

    def rewrite(self, agents: Mapping[str, Settings]) -> None:
        """Write the script: what each agent does from now on. Keys `workspace` are added."""
        full = {name: {"workspace": f"ws/{name}", **settings} for name, settings in agents.items()}
        gateway = {} if self.gateway_port is None else {"gateway": {"port": self.gateway_port}}
        spoken = {"dialect": self.dialect, "seed": self.seed} if self.dialect else {}
        script = {"ledger": "ledger.jsonl", **gateway, **spoken, "agents": full}
        plain = json.loads(json.dumps(script))  # scripts have no aliases
        text = yaml.safe_dump(plain, sort_keys=False)
        hidden = self.root / ".script.tmp"
        hidden.write_text(text, encoding="utf-8")
        hidden.rename(self.script)

    def entries(self) -> list[dict[str, Any]]:
        return witness.parse_run(self.ledger)

    def executions(self, **like: str) -> list[dict[str, Any]]:
        """The turns that were worked in, those whose fields are as given; not what followed an evasion."""
        found = [entry for entry in witness.executions(self.entries()) if entry["rule"] != -3]
        return [entry for entry in found if all(entry[name] == value for name, value in like.items())]

    def homes(self) -> list[Path]:
        """The workspaces that a daemon has ever served."""
        roots = [agent.root for agent in self.agents.values()]
        return [root for root in roots if (root / ".mailboxd" / "mailboxd.db").exists()]

    def is_quiet(self) -> bool:
        """No daemon that runs has anything to do or to read: asked of all together, since they write to each other."""
        running = [agent for agent in self.agents.values() if agent.process is not None]

        def look() -> list[Any]:
            return [agent.query("SELECT max(seq) FROM v_events") for agent in running]

        before = look()
        quiet = all(agent.has_nothing_to_do() and not agent.unread() for agent in running)
        return quiet and look() == before

    def at_rest(self) -> None:
        """End the daemons that run, and have the witness look at everything."""
        eventually(self.is_quiet, 15, lambda: "\n".join(agent.last_words() for agent in self.agents.values()))
        for agent in self.agents.values():
            if agent.process is not None:
                status = agent.stop()
                assert status == 0, f"{agent.name} ended with {status}\n{agent.last_words()}"
        complaints = witness.complaints(self.homes(), self.ledger)
        assert not complaints, "\n".join(complaints)

    def close(self) -> None:
        """End every process that is left: daemons, and turns that still hang."""
        for agent in self.agents.values():
            if agent.process is not None:
                agent.kill()
        ended = {entry.get("run_id") for entry in self.entries() if entry["event"] == "end"}
        for entry in self.entries():
            if entry["event"] == "begin" and entry["run_id"] not in ended and _is_same(entry):
                with suppress(ProcessLookupError):
                    os.kill(entry["pid"], signal.SIGKILL)


def cpu_ticks(pid: int) -> int:
    """How much CPU a process has used, user and system, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without what would tell a program that it runs in somebody's service or agent, or on a terminal."""
    foreign = ("OPENCLAW_", "MAILBOXD_", "NOTIFY_", "WATCHDOG_", "COLUMNS")  # a worker of pytest-xdist has COLUMNS
    plain = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    if "HOME" in (extra or {}):
        plain.pop("XDG_CONFIG_HOME", None)  # it is that of another home
    return {**plain, **(extra or {})}


def _merged(base: Settings, over: Settings) -> Settings:
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in base.items()}
    for name, value in over.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return merged


def _is_same(entry: Mapping[str, Any]) -> bool:
    try:
        text = Path(f"/proc/{entry['pid']}/stat").read_text(errors="replace")
    except OSError:
        return False
    return int(text.rpartition(")")[2].split()[19]) == entry.get("pid_start")
