"""What lies in inbox/ and tasks/ and is never read is named once, with a command that helps as it is printed."""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailboxd.engine.intake.archive import InboxFile
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.unread import unread
from tests.cli.known import Known
from tests.cli.stage import Stage
from tests.cli.test_refused_files import daemon

TEXT = "# Trip\n\n## Instructions\n\nGo.\n"


def files(stage: Stage) -> list[Any]:
    return [item for item in stage.json("inbox") if item["kind"] == "file"]


def pasted(stage: Stage) -> None:
    for item in files(stage):
        if item["command"].startswith(stage.program):
            assert stage.run(*shlex.split(item["command"].removeprefix(stage.program))).exit_code == 0
        else:
            subprocess.run(item["command"], shell=True, check=True)


@pytest.mark.parametrize("name", ["TASK.md", "Task.md", "task.MD", "tasks.md", "task.txt"])
def test_a_task_file_under_another_name_is_read_after_the_command(stage: Stage, name: str) -> None:
    (stage.ws.tasks / "trip").mkdir()
    (stage.ws.tasks / "trip" / name).write_text(TEXT)
    (item,) = files(stage)
    assert item["text"] == f"tasks/trip/{name} is not read: the file is called task.md"
    pasted(stage)
    daemon(stage)
    assert files(stage) == []
    assert stage.json("show", "trip")["title"] == "Trip"


@pytest.mark.parametrize("place", ["a/b", "a/b/c", "a b/c"])
def test_a_task_inside_another_is_moved_out(stage: Stage, place: str) -> None:
    (stage.ws.tasks / place).mkdir(parents=True)
    (stage.ws.tasks / place / "task.md").write_text(TEXT)
    for _ in range(2):  # a directory with a name that is no id comes first
        pasted(stage)
    daemon(stage)
    assert files(stage) == []
    assert [row["title"] for row in stage.json("ls")] == ["Trip"]


def test_one_inside_a_live_task_is_named_and_nothing_is_overwritten(stage: Stage) -> None:
    stage.create("a")
    stage.create("b")
    daemon(stage)
    (stage.ws.tasks / "a" / "b").mkdir()
    (stage.ws.tasks / "a" / "b" / "task.md").write_text(TEXT)
    (item,) = files(stage)
    assert shlex.split(item["command"])[-1] == str(stage.ws.tasks / "b-2")
    stage.run("cancel", "a")
    assert files(stage) == [], "what lies beside a task that has ended is its own affair"


def test_one_beside_the_task_file_of_a_live_task_is_named(stage: Stage) -> None:
    stage.create("a")
    daemon(stage)
    (stage.ws.tasks / "a" / "TASK.md").write_text(TEXT)
    (item,) = files(stage)
    assert item["text"] == "tasks/a/TASK.md is not read: the file is called task.md, and there is one"
    pasted(stage)


def test_directories_without_a_task_are_named_unless_they_are_empty(stage: Stage) -> None:
    (stage.ws.tasks / "empty").mkdir()
    full = stage.ws.tasks / "full"
    full.mkdir()
    for name in ("one.md", "two.md"):
        (full / name).write_text(TEXT)
    (item,) = files(stage)
    assert item["text"].startswith("tasks/full is not read: it is no task of mailboxd, which leaves it alone")
    stage.run("inbox", "--dismiss", "tasks/full")
    assert files(stage) == []


def test_what_a_workspace_had_in_tasks_before_is_one_item_that_can_be_put_away(stage: Stage) -> None:
    for name in ("QUEUE", "CONTACTS", "INCIDENTS", "TICKETS"):
        (stage.ws.tasks / f"{name}.md").write_text(f"# {name}\n")
    (stage.ws.tasks / "notes").mkdir()
    (stage.ws.tasks / "notes" / "notes.md").write_text("# Notes\n")
    (item,) = files(stage)
    assert item["text"] == (
        "tasks/ is not read: CONTACTS.md, INCIDENTS.md, QUEUE.md and 2 more are no task of mailboxd, which leaves them"
        " alone: a task is a file in mailbox/inbox/, or tasks/ID/task.md"
    )
    assert item["command"] == f"{stage.program} inbox --dismiss tasks/"
    pasted(stage)
    assert files(stage) == []
    assert stage.run("inbox", "--dismiss", "all").exit_code == 0
    (stage.ws.tasks / "MORE.md").write_text("# More\n")
    assert len(files(stage)) == 1, "something new is named again"


@pytest.mark.parametrize(
    "name", ["notes.md.bak", "plan.sync-conflict-20261126-1010-AB.md", "plan (conflicted copy).md"]
)
def test_a_backup_stays_where_it_is_and_is_named_until_it_is_put_away(stage: Stage, name: str) -> None:
    (stage.ws.inbox / name).write_text(TEXT)
    (stage.ws.inbox / "desktop.ini").write_text("[.ShellClassInfo]")
    daemon(stage)
    (item,) = stage.json("inbox")
    assert item["text"].startswith(f"mailbox/inbox/{name} is not read: by its name it is a ")
    pasted(stage)
    assert stage.json("inbox") == []
    assert (stage.ws.inbox / name).read_text() == TEXT


@pytest.mark.parametrize("name", ["notes.md.bak", "plan (conflicted copy).md"])
def test_a_pipe_or_a_link_called_like_a_backup_holds_nobody_up(stage: Stage, name: str) -> None:
    os.mkfifo(stage.ws.inbox / name)
    (stage.ws.inbox / f"link-{name}").symlink_to("/dev/zero")
    for command in ((), ("inbox",), ("status",), ("doctor",)):
        looked = subprocess.run(
            [sys.executable, "-m", "mailboxd.cli", "-w", stage.ws.root, *command], capture_output=True, timeout=30
        )
        assert b"Traceback" not in looked.stderr
    assert {Path(item["text"].partition(" is not read")[0]).name for item in files(stage)} == {name, f"link-{name}"}


def test_a_pipe_in_the_place_of_the_configuration_holds_nobody_up(stage: Stage) -> None:
    stage.ws.config.unlink(missing_ok=True)
    os.mkfifo(stage.ws.config)
    for command in ((), ("status",), ("fleet",)):
        subprocess.run(
            [sys.executable, "-m", "mailboxd.cli", "-w", stage.ws.root, *command], capture_output=True, timeout=30
        )


def test_what_is_neither_file_nor_directory_goes(stage: Stage) -> None:
    os.mkfifo(stage.ws.tasks / "pipe")
    (stage.ws.tasks / "dangling").symlink_to("/nowhere")
    (stage.ws.tasks / "link").symlink_to("/etc")
    with socket.socket(socket.AF_UNIX) as plug:
        here = Path.cwd()
        os.chdir(stage.ws.tasks)  # the path of a socket is short
        plug.bind("plug")
        os.chdir(here)
    assert len(files(stage)) == 4
    assert not any("/etc" in item["command"] for item in files(stage)), "an agent may have made the link"
    pasted(stage)
    assert files(stage) == []


def test_a_file_that_has_been_unfinished_for_long_is_named(stage: Stage) -> None:
    for name in ("report.md.part", "note.tmp", ".hidden.tmp", "fresh.tmp"):
        (stage.ws.inbox / name).write_text("Do it.")
    for name in ("report.md.part", "note.tmp", ".hidden.tmp"):
        os.utime(stage.ws.inbox / name, (1_700_000_000, 1_700_000_000))
    assert [item["text"].partition(" ")[0] for item in files(stage)] == [
        "mailbox/inbox/note.tmp",
        "mailbox/inbox/report.md.part",
    ]
    pasted(stage)
    assert sorted(path.name for path in stage.ws.inbox.iterdir()) == [
        ".hidden.tmp",
        "fresh.tmp",
        "note.md",
        "report.md",
    ]


NOBODY = """
import os, sys, json
from pathlib import Path
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.unread import unread
from tests.cli.known import Known
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
found = unread(Workspace(Path(sys.argv[1])), Known("known"), 0.0)
print(json.dumps([[one.path, one.why, one.command] for one in found]))
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that others may enter. Whatever is below `tmp_path` is closed whenever another pytest begins."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("as_root", [True, False])
def test_what_the_daemons_user_may_not_read_is_named(public: Path, as_root: bool) -> None:
    import json

    uid = pwd.getpwnam("nobody").pw_uid
    ws = Workspace(public / "ws")
    Workspace.create(ws.root)
    for name in ("theirs", "closed", "sound", "known"):
        (ws.tasks / name).mkdir()
        (ws.tasks / name / "task.md").write_text(TEXT)
    subprocess.run(["chown", "-R", str(uid), ws.root], check=True)
    for name in ("theirs", "known"):
        os.chown(ws.tasks / name / "task.md", 0, 0)
        (ws.tasks / name / "task.md").chmod(0o600)
    (ws.tasks / "closed").chmod(0)
    for name in ("theirs", "closed", "sound", "both"):
        (ws.inbox / f"{name}.md").write_text(TEXT)
        os.chown(ws.inbox / f"{name}.md", *((0, 0) if name in ("theirs", "both") else (uid, uid)))
        (ws.inbox / f"{name}.md").chmod({"sound": 0o600, "theirs": 0o600}.get(name, 0))
    (ws.inbox / "folder").mkdir(mode=0o755)
    if as_root:
        found = [[one.path, one.why, one.command] for one in unread(ws, Known("known"), 0.0)]
    else:
        argv = [sys.executable, "-c", NOBODY, str(ws.root), str(uid)]
        found = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    inbox = [f"mailbox/inbox/{name}" for name in ("both.md", "closed.md", "folder", "theirs.md")]
    assert [one[0] for one in found] == ["tasks/closed", "tasks/known/task.md", "tasks/theirs/task.md", *inbox]
    assert found[5][1].startswith("it is a directory, and its user")
    assert all(f"its user ({uid}) may not read it" in one[1] for one in found)
    if as_root:
        for _, _, command in found:
            subprocess.run(command, shell=True, check=True)
        assert unread(ws, Known("known"), 0.0) == []
    else:
        assert found[1][2] == f"sudo chown -hR nobody -- {ws.tasks}/known/task.md"
        both, closed, inner, theirs = (one[2] for one in found[3:])
        assert both == f"sudo chown -hR nobody -- {ws.inbox}/both.md && chmod u+rw -- {ws.inbox}/both.md"
        assert closed == f"chmod u+rw -- {ws.inbox}/closed.md"
        assert inner == f"sudo chown -hR nobody -- {ws.inbox}/folder"
        assert theirs == f"sudo chown -hR nobody -- {ws.inbox}/theirs.md"


@pytest.fixture
def theirs(stage: Stage) -> int:
    """The daemon's user, nobody, to whom the stage's workspace belongs."""
    for folder in (stage.ws.root, *stage.ws.root.parents[:4]):
        if folder != Path(folder.root):
            folder.chmod(0o755)
    uid = pwd.getpwnam("nobody").pw_uid
    subprocess.run(["chown", "-R", str(uid), stage.ws.root], check=True)
    return uid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_may_not_be_read_in_the_inbox_is_named_at_once_and_nothing_promised(
    stage: Stage, theirs: int, kind: str
) -> None:
    path = stage.ws.inbox / "d"
    path.mkdir() if kind == "directory" else path.write_text(TEXT)
    path.chmod(0)
    os.chown(path, theirs, theirs)
    assert [item["text"].partition(" is not read: ")[0] for item in files(stage)] == ["mailbox/inbox/d"]
    assert ("it is a directory" in files(stage)[0]["text"]) is (kind == "directory")
    assert "is read" not in stage.run("status", "--all").stdout.partition("\nnext")[2]
    pasted(stage)
    assert files(stage) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_rejected_directory_that_stays_is_named_once_until_it_is_gone(stage: Stage, theirs: int) -> None:
    path = stage.ws.inbox / "d"
    path.mkdir(mode=0)
    os.chown(path, theirs, theirs)
    with stage.engine() as engine:
        error = MessageError("not-regular", "it is a directory", "Send a regular file.", "d")
        Intake(engine).reject(InboxFile("d", None, None, 0, {}), error)
    assert [item["kind"] for item in stage.json("inbox")] == ["file"]
    assert stage.json("status")["attention_count"] == 1
    stage.run("inbox", "--dismiss", "all")
    assert [item["kind"] for item in stage.json("inbox")] == ["file"]
    pasted(stage)
    assert [item["kind"] for item in stage.json("inbox")] == ["daemon"], "which now moves it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize(("mode", "foreign", "as_root"), [(0, False, False), (0, True, True), (0o600, True, True)])
def test_a_file_rejected_as_unreadable_is_sent_again_as_pasted(
    stage: Stage, theirs: int, mode: int, foreign: bool, as_root: bool
) -> None:
    path = stage.ws.mailbox / "rejected" / "m 1.md"
    path.write_text(TEXT)
    path.chmod(mode)
    if not foreign:
        os.chown(path, theirs, theirs)
    argv = [sys.executable, "-c", AGAIN, str(stage.ws.root), str(0 if as_root else theirs)]
    command = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    uid = 0 if as_root else theirs
    subprocess.run(command, shell=True, check=True, user=uid, group=uid, extra_groups=[])
    sent = (stage.ws.inbox / "m 1.md").lstat()
    assert (sent.st_uid, sent.st_mode & 0o600) == (theirs, 0o600)


AGAIN = """
import os, sys
from pathlib import Path
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.unread import sent_again
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
ws = Workspace(Path(sys.argv[1]))
print(sent_again(ws, ws.mailbox / "rejected" / "m 1.md", "m 1.md"))
"""
