"""The daemon as a service: under a real `systemd --user` where one can be started, and where there is none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from mailboxd.errors import ConfigError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import registry
from mailboxd.host.systemd_units import ServiceUnit, escaped, installed_for, unit_of, unit_running
from mailboxd.operate.setup.service import command
from mailboxd.operate.setup.service_unit import Unit, UnitOfAll
from mailboxd.operate.setup.service_unit import UserManager as Asked
from tests.e2e.conftest import Found
from tests.e2e.support import BIN, MAILBOXD, Agent, eventually, task
from tests.setup.usermanager import UserManager

PATHS = ["/", "/home/ann/.openclaw/workspace", "/.hidden/x", "//a//b/", "/with space/ü-x_y:z/%f", "/a\\b/-c"]


def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without systemd."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    return {"PATH": str(folder), "HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd is not installed")
@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_escaped_as_systemd_does_it(path: str) -> None:
    said = subprocess.run(["systemd-escape", "--path", path], capture_output=True, text=True, timeout=60, check=True)
    assert escaped(Path(path)) == said.stdout.strip()


def test_the_drop_in_names_this_installation_and_no_secret(tmp_path: Path) -> None:
    environ = {"HOME": "/home/ann", "PATH": "/opt/100%/bin:relative:/usr/bin", "OPENCLAW_STATE_DIR": "/srv/claw"}
    secrets = {"OPENCLAW_GATEWAY_TOKEN": "t0p-secret", "OPENAI_API_KEY": "sk-secret"}
    unit = Unit(Workspace(tmp_path), {**environ, **secrets})
    text = unit.content()[unit.drop_in].decode()
    assert f'ExecStart="{command()[0]}" "-P" "-m" "mailboxd.cli" "run"' in text
    assert f'Environment="PATH={BIN}:/opt/100%%/bin:/usr/bin"' in text
    assert 'Environment="OPENCLAW_STATE_DIR=/srv/claw"' in text
    assert 'ReadWritePaths="-/srv/claw"' in text
    assert "secret" not in text
    assert unit.drop_in == Path(f"/home/ann/.config/systemd/user/{unit_of(tmp_path)}.d/mailboxd.conf")


def test_unprintable_values_are_refused_in_the_unit_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written into a unit file"):
        Unit(Workspace(tmp_path), {"HOME": "/x", "PATH": "/a\nExecStart=/bin/evil"}).content()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_unit_and_drop_in_together(tmp_path: Path) -> None:
    home = tmp_path / "home"
    unit = Unit(Workspace(tmp_path / "ws"), {"HOME": str(home), "PATH": os.environ["PATH"], "OPENCLAW_STATE_DIR": "/x"})
    assert unit.write() == [unit.folder / "mailboxd@.service", unit.drop_in]
    assert unit.write() == []
    checked = subprocess.run(
        ["systemd-analyze", "--user", "verify", unit.name],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(home)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "mailboxd@" in line]) == (0, [])


# Where there is no systemd


@pytest.mark.slow
def test_without_systemd_an_alternative_is_suggested(found: Found, tmp_path: Path) -> None:
    alpha, env = found({"alpha": {}})["alpha"], bare(tmp_path)
    for words in (["install"], ["start"], ["stop"], ["logs"]):
        done = alpha.call("connect", "service", *words, env=env)
        assert done.returncode == 69, (words, done)
        assert "there is no systemctl" in done.stderr
        assert f"mailboxd -w {alpha.root} run" in done.stderr
    assert alpha.call("connect", "service", "status", env=env).returncode == 69
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_without_systemd_the_files_can_be_written_for_later(found: Found, tmp_path: Path) -> None:
    alpha, env = found({"alpha": {}})["alpha"], bare(tmp_path)
    done = alpha.call("connect", "service", "install", "--no-start", "--json", env=env)
    assert done.returncode == 0, done.stderr
    state = json.loads(done.stdout)["state"]
    assert (state["manager"], state["installed"], state["active"]) == (False, True, False)
    assert Path(state["path"]).is_file()
    again = alpha.call("connect", "service", "install", "--no-start", env=env)
    assert "nothing to do" in again.stdout
    assert alpha.call("connect", "service", "uninstall", env=env).returncode == 0
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == []


def test_inside_an_agents_turn_no_service_is_installed(found: Found, tmp_path: Path) -> None:
    done = found({"alpha": {}})["alpha"].call(
        "connect", "service", "install", env={**bare(tmp_path), "OPENCLAW_SHELL": "exec"}
    )
    assert done.returncode == 1
    assert "permission-denied" in done.stderr


def test_an_offline_service_manager_counts_as_missing(tmp_path: Path) -> None:
    fake = tmp_path / "systemctl"  # the protocol of the command only: what one says in a container
    fake.write_text("#!/bin/sh\necho offline\nexit 1\n")
    fake.chmod(0o755)
    assert "service manager does not respond" in Asked({"PATH": f"{tmp_path}:/bin:/usr/bin"}).missing()


# With a real one


@pytest.mark.slow
def test_a_service_from_its_installation_to_its_end(found: Found, manager: UserManager) -> None:
    alpha = found({"alpha": {"default": {"reply": "Result of {title}."}}})["alpha"]

    def service(*words: str) -> tuple[int, str]:
        done = manager.call(*MAILBOXD, "connect", "service", *words, cwd=alpha.root)
        return done.returncode, done.stdout + done.stderr

    assert service("status")[0] == 1
    status, said = service("install")
    assert status == 0, said
    first = pid_of(manager, alpha)
    assert first > 0
    status, said = service("install")
    assert (status, pid_of(manager, alpha)) == (0, first), "it was started again without need"
    assert "nothing to do" in said
    assert service("status")[0] == 0
    alpha.drop("one.md", task("one"))
    alpha.until("one", seconds=60)
    assert service("stop")[0] == 0
    assert pid_of(manager, alpha) == 0
    assert service("start")[0] == 0
    assert pid_of(manager, alpha) not in (0, first)
    assert service("uninstall")[0] == 0
    assert pid_of(manager, alpha) == 0
    left = [path.name for path in (manager.root / "home").rglob("*") if path.is_file() or path.is_symlink()]
    assert left == ["relaxed.conf", "relaxed.conf"], "nothing but what the test has put there"
    assert alpha.phase("one") == "completed"


@pytest.mark.slow
def test_a_daemon_that_was_started_by_hand_is_not_fought_with(found: Found, manager: UserManager) -> None:
    alpha = found({"alpha": {}})["alpha"]
    alpha.start()
    done = manager.call(*MAILBOXD, "connect", "service", "install", cwd=alpha.root)
    assert done.returncode == 1, done
    assert "already-running" in done.stderr
    assert alpha.stop() == 0


@pytest.mark.slow
def test_a_service_that_does_not_start_says_how_it_ended(found: Found, manager: UserManager) -> None:
    alpha = found({"alpha": {}})["alpha"]
    alpha.config.write_text("agent: alpha\nnonsense: 1\n")
    done = manager.call(*MAILBOXD, "connect", "service", "install", cwd=alpha.root)
    assert done.returncode == 69, done
    assert "Its exit status was 78" in done.stderr
    assert "service logs" in done.stderr


def pid_of(manager: UserManager, agent: Agent) -> int:
    return int(manager.systemctl("show", unit_of(agent.root), "--property", "MainPID", "--value") or 0)


@pytest.mark.slow
def test_the_restart_that_is_printed_for_a_service_runs_as_it_is_printed(found: Found, manager: UserManager) -> None:
    """In the state that prints it: the unit runs, and its configuration was changed or its daemon has ended."""
    alpha = found({"alpha": {}})["alpha"]
    assert manager.call(*MAILBOXD, "connect", "service", "install", cwd=alpha.root).returncode == 0
    first = pid_of(manager, alpha)
    alpha.config.write_text(alpha.config.read_text().replace("drain_seconds: 10", "drain_seconds: 11"))
    (item,) = json.loads(manager.call(*MAILBOXD, "inbox", "--json", cwd=alpha.root).stdout)
    assert item["command"].startswith("systemctl --user restart ")
    assert manager.call("sh", "-c", item["command"]).returncode == 0
    assert pid_of(manager, alpha) not in (0, first)
    assert json.loads(manager.call(*MAILBOXD, "inbox", "--json", cwd=alpha.root).stdout) == []


@pytest.mark.slow
def test_without_a_unit_no_command_for_one_is_printed(found: Found) -> None:
    alpha = found({"alpha": {}})["alpha"]
    alpha.start()
    alpha.config.write_text(alpha.config.read_text().replace("drain_seconds: 10", "drain_seconds: 11"))
    (item,) = alpha.json("inbox")
    assert "systemctl" not in item["command"]
    assert " doctor " in item["command"]
    assert "systemctl" not in alpha.call("doctor").stdout
    assert alpha.stop() == 0


# One service for all workspaces


def test_the_unit_of_all_serves_a_workspace_that_has_none_of_its_own(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin"}
    assert installed_for(tmp_path / "ws", environ) == ""
    of_all, own = UnitOfAll(environ), Unit(Workspace(tmp_path / "ws"), environ)
    assert of_all.write() == [
        of_all.folder / "mailboxd.service",
        of_all.folder / "mailboxd.service.d" / "mailboxd.conf",
    ]
    assert '"-m" "mailboxd.cli" "run" "--all"' in of_all.drop_in.read_text()
    assert installed_for(tmp_path / "ws", environ) == "mailboxd.service"
    own.write()
    assert installed_for(tmp_path / "ws", environ) == own.name


@pytest.mark.parametrize(
    ("unit", "pid", "command"),
    [
        ("mailboxd@a.service", None, "systemctl --user start mailboxd@a.service"),
        ("mailboxd@a.service", 7, "systemctl --user restart mailboxd@a.service"),
        ("mailboxd.service", None, "systemctl --user reload-or-restart mailboxd.service"),
        (
            "mailboxd.service", 7,
            "kill 7; while kill -0 7 2>/dev/null; do sleep 1; done; "
            "systemctl --user reload-or-restart mailboxd.service",
        ),
    ],
)  # fmt: skip
def test_a_daemon_is_started_without_stopping_others(unit: str, pid: int | None, command: str) -> None:
    assert ServiceUnit(unit).start(pid) == command


_SESSION = "0::/user.slice/user-1000.slice/user@1000.service/app.slice"


@pytest.mark.parametrize(
    ("groups", "command"),
    [
        (f"{_SESSION}/app-mailboxd.slice/mailboxd@srv-a.service", "systemctl --user restart mailboxd@srv-a.service"),
        (f"{_SESSION}/mailboxd.service/of-a", "systemctl --user reload-or-restart mailboxd.service"),
        (
            "5:memory:/system.slice/mailboxd@srv-a.service\n0::/",
            "systemctl restart mailboxd@srv-a.service",
        ),
        (f"{_SESSION}/app-gnome-terminal.slice/vte-spawn-7.scope", None),
        (f"{_SESSION}/gnome-terminal-server.service", None),
        ("0::/system.slice/ssh.service", None),
        ("0::/", None),
        (None, None),
    ],
)
def test_a_daemon_that_was_started_in_a_terminal_belongs_to_no_unit_of_ours(
    tmp_path: Path, groups: str | None, command: str | None
) -> None:
    if groups is not None:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "cgroup").write_text(f"{groups}\n")
    unit = unit_running(7, tmp_path)
    assert (unit and unit.start(0)) == command


@pytest.mark.slow
def test_one_service_serves_all_workspaces(found: Found, manager: UserManager) -> None:
    """From its installation to its end; each command that is printed about one of them runs as it is printed."""
    work = {"default": {"reply": "Result of {title}."}}
    company = found({"alpha": work, "beta": work}, daemons=["alpha", "beta"])
    alpha, beta, state = company["alpha"], company["beta"], manager.root / "state"

    def call(*words: str, cwd: Path = manager.root) -> str:
        done = manager.call(*MAILBOXD, *words, cwd=cwd, env={"XDG_STATE_HOME": str(state)})
        assert done.returncode in (0, 1), done
        return done.stdout

    def service(*words: str) -> str:
        return call("connect", "service", *words, "--all")

    def daemons() -> dict[str, int | None]:
        return {row["agent"]: row["daemon"]["pid"] for row in json.loads(call("fleet", "--json"))}

    for agent in (alpha, beta):
        assert registry.register(agent.root, {"XDG_STATE_HOME": str(state)})
    assert "mailboxd.service runs" in service("install")
    assert "2 of 2 daemons are ready" in service("status")
    first = daemons()
    for agent in (alpha, beta):
        agent.drop("one.md", task("one"))
        agent.until("one", seconds=60)
        assert "as mailboxd.service" in call("doctor", cwd=agent.root)
    # a changed configuration counts after a restart of this daemon, and of no other
    alpha.config.write_text(alpha.config.read_text().replace("drain_seconds: 10", "drain_seconds: 11"))
    (item,) = json.loads(call("inbox", "--json", cwd=alpha.root))
    assert manager.call("sh", "-c", item["command"]).returncode == 0
    eventually(lambda: (now := daemons())["alpha"] not in (None, first["alpha"]) and now["beta"] == first["beta"], 30)
    assert json.loads(call("inbox", "--json", cwd=alpha.root)) == []
    # one that is stopped alone is started by the command that the doctor prints
    pid = daemons()["beta"]
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: daemons()["beta"] is None, 30)
    said = call("doctor", cwd=beta.root)
    assert "systemctl --user reload-or-restart mailboxd.service" in said
    assert manager.call("systemctl", "--user", "reload-or-restart", "mailboxd.service").returncode == 0
    eventually(lambda: daemons()["beta"], 30)
    service("stop")
    assert daemons() == {"alpha": None, "beta": None}
    service("start")
    eventually(lambda: None not in daemons().values(), 30)
    service("uninstall")
    assert daemons() == {"alpha": None, "beta": None}
    left = [path.name for path in (manager.root / "home" / ".config").rglob("*") if path.is_file() or path.is_symlink()]
    assert left == ["relaxed.conf", "relaxed.conf"]
