"""The probes at the real world, as far as a test may arrange it: files, programs, a server on loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailboxd.daemon.health_writer import Health
from mailboxd.errors import UnavailableError
from mailboxd.formats.health import Component, Grade
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import SystemClock
from mailboxd.host.linux import parse_mounts
from mailboxd.host.sdnotify import Notifier
from mailboxd.host.system import system
from mailboxd.operate.doctor import diagnose
from mailboxd.operate.doctor import workspace as checks
from mailboxd.operate.doctor.openclaw import Answers, OpenClawProbes
from mailboxd.operate.doctor.target import target_at
from mailboxd.perform.agents.openclaw import OpenClaw

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 0:41 / /home/ann/my\\040disk rw shared:1 - btrfs /dev/sdb rw
32 22 0:42 / /home rw - xfs /dev/sdc rw
garbage
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def asking(*command: str, path: Path | None = None) -> OpenClawProbes:
    return OpenClawProbes(OpenClaw(command), {"PATH": f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin"}, "alpha")


@pytest.mark.parametrize(
    ("path", "kind", "mount"),
    [
        ("/srv/x", "ext4", "/"),
        ("/home/ann/alpha", "xfs", "/home"),
        ("/home/ann/my disk/alpha", "btrfs", "/home/ann/my disk"),
        ("/home/ann/my disks", "xfs", "/home"),
    ],
)
def test_the_file_system_is_the_innermost_and_of_two_the_upper_one(path: str, kind: str, mount: str) -> None:
    assert checks.mount_of(Path(path), parse_mounts(MOUNTS)) == (kind, mount)


def test_a_workspace_is_looked_at_and_left_as_it_is(tmp_path: Path) -> None:
    ws = Workspace(tmp_path / "alpha")
    Workspace.create(ws.root)
    ws.outbox.rmdir()
    ws.tasks.rmdir()
    ws.tasks.symlink_to(tmp_path)
    (ws.rejected / "a.md").touch()
    (ws.rejected / "a.md.reason.json").touch()
    (ws.inbox / "b.md").touch()
    (ws.inbox / ".b.tmp").touch()
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in ws.root.rglob("*"))
    place, filesystem = checks.probe_workspace(ws), checks.probe_filesystem(ws)
    left = checks.probe_mailbox(ws, SystemClock().now())
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in ws.root.rglob("*")) == before
    kinds = {one.path: one.kind for one in place.directories}
    assert kinds["."] == kinds["mailbox/inbox"] == "directory"
    assert (kinds["mailbox/outbox"], kinds["tasks"]) == ("missing", "a symbolic link")
    assert (left.rejected, left.waiting) == (1, 1)
    assert filesystem.free_bytes > 0


def test_a_daemon_is_found_by_its_lock(tmp_path: Path) -> None:
    ws = Workspace(tmp_path / "alpha")
    Workspace.create(ws.root)
    assert checks.probe_daemon(ws, {}, SystemClock()).pid is None
    with lock.acquire(ws, SystemClock().now()):
        assert checks.probe_daemon(ws, {}, SystemClock()).pid == os.getpid()
        with Health(ws, SystemClock(), Notifier({}), "alpha") as health:
            health.report(Component.LEFT, "cannot move inbox/x", Grade.AMBER)
            assert checks.probe_daemon(ws, {}, SystemClock()).stuck == "cannot move inbox/x"


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    assert asking("no-such-program-here").program().path is None


def test_what_openclaw_has_answered_is_not_asked_again_for_the_next_workspace(tmp_path: Path) -> None:
    asked, down = tmp_path / "asked", tmp_path / "down"
    program = executable(
        tmp_path / "openclaw",
        f'#!/bin/sh\necho "$*" >>{asked}\n[ -e {down} ] && exit 1\necho \'{{"entries": {{}}}}\'\n',
    )
    answers: Answers = {}
    down.touch()
    for agent in ("alpha", "beta", "gamma"):
        one = replace(asking(str(program)), agent=agent, answers=answers)
        if agent == "alpha":
            with pytest.raises(UnavailableError):
                one.agents()
            down.unlink()
            continue
        one.agents()
        one.tools(None)
        assert replace(one, environment={"OPENCLAW_PROFILE": agent, **one.environment}).tools(None).section == {
            "entries": {}
        }
    config = "config get agents --json", "config get tools --json"
    # again after it failed, and for each environment: another one may be another installation
    assert asked.read_text().splitlines() == [config[0], *config, config[1], config[1]]


def test_unparsable_output_is_quoted(tmp_path: Path) -> None:
    broken = executable(tmp_path / "openclaw", "#!/bin/sh\necho 'config is \x1b[31mbroken' >&2; exit 1\n")
    ask = asking(str(broken))
    for question in (ask.gateway, ask.peers, ask.agents, lambda: ask.tools(None)):
        with pytest.raises(UnavailableError, match=r"config is \\x1b\[31mbroken"):
            question()


def gather(tmp_path: Path, *command: str, environ: Mapping[str, str] | None = None) -> Any:
    target = target_at(None, "", environ or {"PATH": "/usr/bin:/bin"})
    object.__setattr__(target, "openclaw", asking(*command))
    told: list[str] = []
    return diagnose.collect(target, environ or {}, SystemClock(), told.append), told


def test_a_probe_that_fails_leaves_a_reason_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(system, "available_memory", fails)
    facts, told = gather(tmp_path, "no-such-program-here")
    assert facts.memory is None
    assert facts.program.path is None
    (failure,) = facts.failures
    assert (failure.probe, failure.reason) == ("memory", "KeyError 'surprise'")
    assert "memory" in told


def test_of_a_program_that_is_too_old_nothing_more_is_asked(tmp_path: Path) -> None:
    patched = tmp_path / "patched"
    old = executable(tmp_path / "openclaw", f'#!/bin/sh\necho "$@" >> {patched}; echo "OpenClaw 2026.7.35 (abc)"\n')
    facts, _ = gather(tmp_path, str(old))
    assert facts.release.version == (2026, 7, 35)
    assert patched.read_text() == "--version\n"


def test_at_most_three_questions_at_once(tmp_path: Path) -> None:
    running = tmp_path / "running"
    running.mkdir()
    text = f"""#!/bin/sh
test "$1" = --version && {{ echo 'OpenClaw 2026.9.6 (abc)'; exit; }}
touch {running}/$$; ls {running} | wc -l >> {tmp_path}/most; sleep 0.2; rm {running}/$$
echo nonsense; exit 1
"""
    facts, _ = gather(tmp_path, str(executable(tmp_path / "openclaw", text)))
    most = [int(line) for line in (tmp_path / "most").read_text().split()]
    assert 2 <= max(most) <= diagnose.PARALLEL_PROBES
    assert {failure.probe for failure in facts.failures} >= {"agents", "allow-lists", "tools", "gateway"}
