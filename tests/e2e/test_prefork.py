"""`mailboxd run --all`: one real process with a real daemon for each workspace of a user."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Agent, Company, cpu_ticks, environment, eventually, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
USAGE, UNAVAILABLE, CONFIG = 2, 69, 78


class Host:
    """A user with these agents, and the process that serves them."""

    def __init__(self, company: Company, root: Path, *agents: str) -> None:
        self.company = company
        self.log = root / "all.log"
        self.env = {"XDG_STATE_HOME": str(root / "state"), "XDG_RUNTIME_DIR": str(root / "run")}
        (root / "run").mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._said_before = 0
        self.register(*agents)

    def register(self, *agents: str) -> None:
        file = Path(self.env["XDG_STATE_HOME"]) / "mailboxd" / "workspaces"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        named = json.loads(file.read_text()) if file.exists() else []
        file.write_text(json.dumps([*named, *(str(self.company[agent].root) for agent in agents)]))
        file.chmod(0o600)

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self._said_before = log.tell()
            self.process = subprocess.Popen(
                [*MAILBOXD, "run", "--all", *words],
                cwd=self.log.parent, env=environment({**self.env, **(env or {})}), stderr=log, stdout=log,
                start_new_session=True,
            )  # fmt: skip
        return self.process

    def said(self) -> str:
        return self.log.read_bytes()[self._said_before :].decode()

    def until_said(self, *patterns: str) -> None:
        """Wait for lines with these; each is searched for in what was said since the start."""
        for pattern in patterns:
            eventually(lambda one=pattern: re.search(one, self.said()), 30, lambda one=pattern: f"{one}: {self.said()}")  # type: ignore[misc]

    def pid(self, agent: str) -> int:
        """The process of the daemon that was started last."""
        return int(re.findall(rf"INFO {agent} mailboxd: started with pid (\d+) in", self.said())[-1])

    def status(self, agent: str) -> Any:
        done = subprocess.run(
            [*MAILBOXD, "status", "--json"],
            cwd=self.company[agent].root, env=environment(self.env), capture_output=True, text=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in {int(found) for found in re.findall(r"started with pid (\d+) in", self.log.read_text())}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def host(found: Found, tmp_path: Path) -> Iterator[Host]:
    """Alpha and beta; gamma has a workspace too, which is not registered."""
    company = found(dict.fromkeys(("alpha", "beta", "gamma"), WORK), daemons=["alpha", "beta", "gamma"])
    made = Host(company, tmp_path, "alpha", "beta")
    yield made
    made.close()


def work(agent: Agent, name: str) -> None:
    agent.drop(f"{name}.md", task(name))
    agent.until(name)


def test_each_agent_has_a_daemon_of_its_own_that_works(host: Host) -> None:
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    for name in ("alpha", "beta"):
        work(host.company[name], f"job-{name}")
        pid = host.pid(name)
        assert host.status(name)["daemon"]["pid"] == pid
        assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
        assert Path(f"/proc/{pid}/cwd").resolve() == host.company[name].root
        assert re.search(rf"INFO {name} \S+: .*job-{name}", host.said()), host.said()
    assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
    assert host.stop() == 0
    assert "stopped: all daemons have ended" in host.said()
    assert "starts it again" not in host.said()
    assert not list(Path(host.env["XDG_RUNTIME_DIR"]).iterdir())
    host.company.at_rest()


def test_no_daemon_has_a_file_of_another_or_of_their_parent(host: Host) -> None:
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")

    def files(pid: int) -> set[str]:
        found = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(entry))
        return {name for name in found if not name.startswith(("anon_inode", "/dev", "/proc", str(host.log)))}

    alpha, beta, parent = (files(pid) for pid in (host.pid("alpha"), host.pid("beta"), process.pid))
    assert alpha & beta == alpha & parent == beta & parent == set()


def test_one_that_is_stopped_stays_so_until_the_parent_is_told(host: Host) -> None:
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    first = host.pid("alpha")
    os.kill(first, signal.SIGTERM)
    host.until_said(rf"INFO alpha mailboxd: stopped \(exit status 0\); `kill -HUP {process.pid}` starts it again")
    work(host.company["beta"], "meanwhile")
    assert host.pid("alpha") == first
    process.send_signal(signal.SIGHUP)
    eventually(lambda: host.pid("alpha") != first, 30, host.said)
    work(host.company["alpha"], "afterwards")
    assert host.said().count("INFO beta mailboxd: started") == 1
    assert host.stop(signal.SIGINT) == 0


def test_one_that_is_told_to_run_while_it_stops_is_started_again(host: Host) -> None:
    host.company.rewrite({"alpha": {"default": {"delay": 2, "reply": "Text."}}, "beta": WORK, "gamma": WORK})
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready")
    alpha, first = host.company["alpha"], host.pid("alpha")
    alpha.drop("slow.md", task("slow"))
    eventually(host.company.executions)
    os.kill(first, signal.SIGTERM)
    host.until_said("INFO alpha mailboxd: stopping")
    process.send_signal(signal.SIGHUP)
    eventually(lambda: host.pid("alpha") != first, 30, host.said)
    alpha.until("slow")
    assert len(host.company.executions()) == 1


def test_one_that_is_killed_is_started_again(host: Host) -> None:
    host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    first = host.pid("alpha")
    os.kill(first, signal.SIGKILL)
    host.until_said(r"WARNING alpha mailboxd: ended \(SIGKILL\); started again in 5 s")
    eventually(lambda: host.pid("alpha") != first, 30, host.said)
    work(host.company["alpha"], "afterwards")


def test_one_that_hangs_is_killed_and_started_again(host: Host, tmp_path: Path) -> None:
    """After the time that systemd sets for the parent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        host.start(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "6000000"})
        host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
        first = host.pid("alpha")
        os.kill(first, signal.SIGSTOP)
        host.until_said(rf"ERROR alpha mailboxd: silent for too long: it is killed \(pid {first}\)")
        eventually(lambda: host.pid("alpha") != first, 30, host.said)
        work(host.company["alpha"], "afterwards")
        work(host.company["beta"], "job")
        assert host.said().count("INFO beta mailboxd: started") == 1
        heard = {line for _ in range(5) for line in systemd.recv(4096).decode().splitlines()}
    assert "WATCHDOG=1" in heard


def test_a_broken_configuration_keeps_nobody_else_from_working(host: Host, tmp_path: Path) -> None:
    beta = host.company["beta"]
    sound = beta.config.read_text()
    beta.config.write_text("agent: beta\nlimits: {turns: many}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        process = host.start(env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        heard = b""
        while b"READY=1" not in heard:
            heard = systemd.recv(4096)
    assert heard.endswith(b"STATUS=1 of 2 daemons are ready; not running: beta")
    host.until_said(r"mailboxd \(beta\): .*limits\.turns", rf"ERROR beta mailboxd: given up \(exit status {CONFIG}\)")
    work(host.company["alpha"], "job")
    beta.config.write_text(sound)
    process.send_signal(signal.SIGHUP)
    work(beta, "mended")


def test_one_that_was_given_up_is_tried_again_when_its_configuration_changes(host: Host) -> None:
    beta = host.company["beta"]
    sound = beta.config.read_text()
    host.start()
    host.until_said("INFO beta mailboxd: ready")
    beta.config.write_text("agent: beta\nlimits: {turns: many}\n")
    os.kill(host.pid("beta"), signal.SIGKILL)
    host.until_said(rf"ERROR beta mailboxd: given up \(exit status {CONFIG}\): .*; a change of {beta.config} does too")
    (item,) = (one for one in host.status("beta")["attention"] if one["kind"] == "config")
    assert item["text"].endswith("; the running `run --all` starts the daemon within 15 s of a change")
    beta.config.write_text("agent: beta\nlimits: {turns: none}\n")
    eventually(lambda: host.said().count("beta mailboxd: given up") == 2, 40, host.said)
    beta.config.write_text(sound)
    work(beta, "mended")


def test_one_whose_database_was_mended_is_tried_again_and_doctor_says_how_at_once(host: Host, tmp_path: Path) -> None:
    beta, process = host.company["beta"], host.start()
    host.until_said("INFO beta mailboxd: ready")

    def call(*words: str) -> str:
        done = subprocess.run(
            [*MAILBOXD, *words], cwd=beta.root, env=environment(host.env), capture_output=True, text=True
        )
        return done.stdout

    database, older = beta.root / ".mailboxd" / "mailboxd.db", tmp_path / "older.db"
    call("db", "backup", str(older))
    work(beta, "job")
    os.kill(host.pid("beta"), signal.SIGSTOP)
    database.with_name("mailboxd.db-wal").unlink()
    shutil.copy(older, database)
    os.kill(host.pid("beta"), signal.SIGKILL)
    host.until_said(
        rf"ERROR beta mailboxd: given up \(exit status {CONFIG}\): .*; else it is tried again in 10 minutes"
    )
    assert "it gave up: " in call("inbox")
    call("db", "rebuild", "--replace")
    eventually(lambda: host.said().count("INFO beta mailboxd: ready") == 2, 40, host.said)
    assert "as a daemon of `mailboxd run --all`" in call("doctor")
    os.kill(host.pid("beta"), signal.SIGTERM)  # one that somebody has stopped is started by the command that is printed
    host.until_said("INFO beta mailboxd: stopped")
    assert f"kill -HUP {process.pid}" in call("doctor")


def test_a_new_workspace_is_not_told_to_start_a_daemon_of_its_own(host: Host, tmp_path: Path) -> None:
    def init(name: str) -> str:
        done = subprocess.run(
            [*MAILBOXD, "init", str(tmp_path / name), "--agent", name],
            env=environment(host.env), capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    assert " run`" in init("delta")
    host.start()
    host.until_said("INFO alpha mailboxd: ready")
    said = init("epsilon")
    assert " run`" not in said
    assert "the running `run --all` serves it within 15 s" in said
    host.until_said("INFO epsilon mailboxd: ready")
    assert host.stop() == 0
    assert " run`" in init("zeta")


def test_the_daemons_stop_with_their_parent_and_the_next_one_takes_over(host: Host) -> None:
    """Whatever ran goes on, and is done once. One of them is frozen until the next parent looks for it."""
    host.company.rewrite({"alpha": {"default": {"delay": 2, "reply": "Text."}}, "beta": WORK, "gamma": WORK})
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    alpha, beta = host.company["alpha"], host.company["beta"]
    alpha.drop("slow.md", task("slow"))
    eventually(host.company.executions)
    before = host.pid("alpha")
    os.kill(before, signal.SIGSTOP)
    process.kill()
    process.wait()
    host.start()
    host.until_said(
        rf"WARNING alpha mailboxd: not started yet: waiting for the daemon with pid {before}",
        "INFO beta mailboxd: ready",
    )
    os.kill(before, signal.SIGCONT)
    host.until_said("INFO alpha mailboxd: stopped", "INFO alpha mailboxd: ready")
    assert host.said().count("alpha mailboxd: not started yet") == 1
    alpha.until("slow")
    work(beta, "job")
    assert len([run for run in host.company.executions() if run["agent"] == "alpha"]) == 1
    assert host.stop() == 0


def test_a_new_workspace_is_served_within_seconds_and_nothing_else_is_started(host: Host) -> None:
    host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    os.kill(host.pid("beta"), signal.SIGTERM)
    host.until_said("INFO beta mailboxd: stopped")
    host.register("gamma")
    work(host.company["gamma"], "job")
    assert [host.said().count(f"INFO {name} mailboxd: started") for name in ("alpha", "beta", "gamma")] == [1, 1, 1]


def test_a_workspace_that_was_removed_and_made_again_is_served(host: Host, tmp_path: Path) -> None:
    host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    beta = host.company["beta"]
    beta.root.rename(tmp_path / "away")
    os.kill(host.pid("beta"), signal.SIGKILL)
    host.until_said("ERROR beta mailboxd: not started: .*; tried again every 15 s")
    (tmp_path / "away").rename(beta.root)
    work(beta, "job")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_daemon_of_a_workspace_that_is_gone_is_ended(host: Host, tmp_path: Path, is_replaced: bool) -> None:
    """Frozen, because one that has something to do ends by itself as soon as it commits."""
    beta = host.company["beta"]
    shutil.copytree(beta.root, tmp_path / "kept", symlinks=True)
    host.start()
    host.until_said("INFO alpha mailboxd: ready", "INFO beta mailboxd: ready")
    pid = host.pid("beta")
    os.kill(pid, signal.SIGSTOP)
    beta.root.rename(tmp_path / "away")
    if is_replaced:
        (tmp_path / "kept").rename(beta.root)
    host.until_said(rf"WARNING beta mailboxd: {beta.root} is gone: its daemon \(pid {pid}\) is ended")
    eventually(lambda: not Path(f"/proc/{pid}").exists(), 40, host.said)
    if not is_replaced:
        host.until_said("ERROR beta mailboxd: not started: .*; tried again every 15 s")
        (tmp_path / "kept").rename(beta.root)
    work(beta, "job")
    assert host.said().count("is gone") == 1
    assert host.said().count("INFO alpha mailboxd: started") == 1


def test_sighup_finds_a_new_workspace_at_once(host: Host) -> None:
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready")
    host.register("gamma")
    process.send_signal(signal.SIGHUP)
    work(host.company["gamma"], "job")
    assert host.said().count("started with pid") == 3


def test_a_list_of_workspaces_that_others_may_write_is_named_once(host: Host) -> None:
    host.start()
    for name in ("alpha", "beta"):  # by then its daemon has noted its workspace, and does not write the list any more
        work(host.company[name], "first")
    file = Path(host.env["XDG_STATE_HOME"]) / "mailboxd" / "workspaces"
    file.chmod(0o666)
    host.until_said("WARNING .*mailboxd: new workspaces are not found: .*workspaces")
    file.chmod(0o600)
    host.register("gamma")
    work(host.company["gamma"], "job")
    assert host.said().count("are not found") == 1


def test_a_second_signal_does_not_wait_for_turns(host: Host) -> None:
    host.company.rewrite({"alpha": {"default": {"delay": 30, "reply": "Text."}}, "beta": WORK, "gamma": WORK})
    process = host.start()
    host.until_said("INFO alpha mailboxd: ready")
    host.company["alpha"].drop("slow.md", task("slow"))
    eventually(host.company.executions)
    process.send_signal(signal.SIGTERM)
    host.until_said("INFO alpha mailboxd: stopping")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_what_waits_for_a_lock_does_not_keep_it_busy_while_it_stops(host: Host) -> None:
    host.company.rewrite({"alpha": WORK, "beta": {"default": {"delay": 6, "reply": "Text."}}, "gamma": WORK})
    host.company["alpha"].start()
    process = host.start()
    host.until_said("WARNING alpha mailboxd: not started yet", "INFO beta mailboxd: ready")
    host.company["beta"].drop("slow.md", task("slow"))
    eventually(host.company.executions)
    process.terminate()
    host.until_said("INFO beta mailboxd: stopping")
    before = cpu_ticks(process.pid)
    host.until_said("INFO beta mailboxd: stopped")
    assert cpu_ticks(process.pid) - before <= 5
    assert process.wait(60) == 0


def test_each_line_of_a_json_log_names_its_agent(host: Host) -> None:
    host.start("--log-format", "json")
    host.until_said('"agent": "alpha", .*ready', '"agent": "beta", .*ready')
    assert host.stop() == 0
    lines = [json.loads(line) for line in host.said().splitlines()]
    assert {line.get("agent") for line in lines} == {"alpha", "beta", None}
    assert {line["message"] for line in lines if "agent" not in line} == {
        "stopping: waiting for 2 daemons; a second signal stops without waiting", "stopped: all daemons have ended",
    }  # fmt: skip


def test_without_a_workspace_it_says_what_to_do(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = environment({"XDG_STATE_HOME": str(tmp_path / "state")})
        return subprocess.run(
            [*MAILBOXD, "run", "--all", *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )

    assert (run().returncode, "mailboxd setup" in run().stderr) == (UNAVAILABLE, True)
    assert run("--until-idle").returncode == USAGE
    assert run("-w", ".").returncode == USAGE
