"""Files outside the workspace: whole, only over what was seen, never through a link."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailboxd.core.approvals import Performed
from mailboxd.errors import WorldError
from mailboxd.perform.actions.gate import sha256
from mailboxd.perform.actions.result import Impossible, NotNow
from tests.actions.workspace_with_gate import Workbench, action

DONE, FAILED = Performed.DONE, Performed.FAILED


def test_a_new_file_and_a_changed_one(at: Workbench) -> None:
    target = at.outside / "conf"
    end = at.do(action("file", path=str(target), content="one\n"))
    assert end.state is DONE
    assert target.read_text() == "one\n"
    target.chmod(0o640)
    at.gate.create()
    shown = at.show(action("file", path=str(target), content="two\n"))
    assert shown.target_sha256 == sha256(b"one\n")
    assert "| -one" in shown.text.splitlines()
    assert "| +two" in shown.text.splitlines()
    assert at.perform(action("file", path=str(target), content="two\n"), shown.target_sha256).state is DONE
    assert target.read_text() == "two\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(at.outside) == ["conf"]


def test_the_previewed_content_is_written_even_if_the_source_changes(at: Workbench) -> None:
    source, target = at.root / "out.txt", at.outside / "conf"
    source.write_text("as shown")
    act = action("file", path=str(target), source="out.txt")
    shown = at.show(act)
    assert shown.content_sha256 == sha256(b"as shown")
    source.write_text("swapped")
    assert at.perform(act).state is DONE
    assert target.read_text() == "as shown"


@pytest.mark.parametrize("now", ["changed", None])
def test_a_target_that_changed_since_it_was_shown_is_left_alone(at: Workbench, now: str | None) -> None:
    target = at.outside / "conf"
    target.write_text("old")
    act = action("file", path=str(target), content="new")
    seen = at.show(act).target_sha256
    target.unlink()
    if now is not None:
        target.write_text(now)
    end = at.perform(act, seen)
    assert end.state is FAILED
    assert "changed since it was approved" in end.summary
    assert (target.read_text() if target.exists() else None) == now


def test_a_target_that_came_since_it_was_shown_is_left_alone(at: Workbench) -> None:
    target = at.outside / "conf"
    act = action("file", path=str(target), content="new")
    seen = at.show(act).target_sha256
    target.write_text("somebody else's")
    assert at.perform(act, seen).state is FAILED
    assert target.read_text() == "somebody else's"


def test_a_target_that_has_the_content_already_is_done(at: Workbench) -> None:
    target = at.outside / "conf"
    act = action("file", path=str(target), content="new")
    seen = at.show(act).target_sha256
    target.write_text("new")
    before = target.stat()
    end = at.perform(act, seen)
    assert (end.state, end.summary) == (DONE, f"{target} already has that content")
    assert target.stat().st_ino == before.st_ino


def test_a_leftover_temporary_file_does_not_prevent_writing(at: Workbench) -> None:
    """It may even be a link."""
    target, precious = at.outside / "conf", at.outside / "precious"
    precious.write_text("precious")
    hidden = at.outside / f".{sha256(b'conf')[:16]}.mailboxd.tmp"
    hidden.symlink_to(precious)
    assert at.do(action("file", path=str(target), content="new")).state is DONE
    assert precious.read_text() == "precious"
    assert not hidden.exists()


def _link(at: Workbench) -> str:
    (at.outside / "real").mkdir()
    (at.outside / "link").symlink_to(at.outside / "real")
    return str(at.outside / "link" / "conf")


def _file_link(at: Workbench) -> str:
    (at.outside / "conf").symlink_to(at.outside / "elsewhere")
    return str(at.outside / "conf")


def _directory(at: Workbench) -> str:
    (at.outside / "conf").mkdir()
    return str(at.outside / "conf")


def _fifo(at: Workbench) -> str:
    os.mkfifo(at.outside / "conf")
    return str(at.outside / "conf")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (_link, "without following links"),
        (_file_link, "not a regular file"),
        (_directory, "not a regular file"),
        (_fifo, "not a regular file"),
        (lambda at: str(at.outside / "no" / "such" / "conf"), "cannot be opened"),
        (lambda at: f"{at.outside}/../ws/x", "without . and .."),
        (lambda at: f"{at.outside}/conf/", "not the absolute path"),
        (lambda _: "relative", "not the absolute path"),
        (lambda at: str(at.root / ".mailboxd" / "mailboxd.db"), "mailboxd's own directory"),
        (lambda at: f"{at.root}//.mailboxd/config.yaml", "mailboxd's own directory"),
    ],
    ids=["link", "file-link", "directory", "fifo", "missing", "dots", "slash", "relative", "ours", "ours-too"],
)
def test_an_unusual_path_is_refused(at: Workbench, path, why: str) -> None:  # type: ignore[no-untyped-def]
    act = action("file", path=path(at), content="new")
    with pytest.raises(Impossible, match=why):
        at.show(act)
    at.gate.create()
    at.gate.write("payload", b"new")
    assert at.perform(act).state is FAILED
    assert not (at.outside / "elsewhere").exists()


@pytest.mark.parametrize("source", ["missing", "../outside/secret", "link", "dir", "linked/x", ".."])
def test_a_source_that_leads_out_of_the_workspace_is_refused(at: Workbench, source: str) -> None:
    (at.outside / "secret").write_text("secret")
    (at.outside / "x").write_text("secret")
    (at.root / "link").symlink_to(at.outside / "secret")
    (at.root / "linked").symlink_to(at.outside)
    (at.root / "dir").mkdir()
    with pytest.raises(Impossible):
        at.show(action("file", path=str(at.outside / "conf"), source=source))


def test_a_disk_that_refuses_is_a_failure_and_leaves_nothing(at: Workbench) -> None:
    folder = at.outside / "ro"
    folder.mkdir()
    act = action("file", path=str(folder / "conf"), content="new")
    at.show(act)
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    folder.chmod(0o500)
    assert at.perform(act).state is FAILED


def test_without_the_payload_nothing_is_written(at: Workbench) -> None:
    act = action("file", path=str(at.outside / "conf"), content="new")
    at.show(act)
    (at.gate.path / "payload").unlink()
    assert at.perform(act).state is FAILED
    assert not (at.outside / "conf").exists()


def test_a_directory_in_the_place_of_the_workspace_link_is_written_by_its_real_name(
    at: Workbench, tmp_path: Path
) -> None:
    """`/proc/self/cwd` and the like are links too."""
    with pytest.raises(Impossible, match="without following links"):
        at.show(action("file", path=f"/proc/self/cwd{at.outside}/conf", content="x"))


# A machine without descriptors


@contextmanager
def no_descriptors() -> Iterator[None]:
    """In it this process is given none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", ["command", "file", "http"])
def test_without_descriptors_nothing_happens_and_no_action_fails(at: Workbench, kind: str) -> None:
    act = {
        "command": action("command", argv=("true",)),
        "file": action("file", path=f"{at.outside}/conf", content="new"),
        "http": action("http", method="GET", url="http://127.0.0.1:9/"),
    }[kind]
    target = at.show(act).target_sha256
    with no_descriptors(), pytest.raises(NotNow, match="Too many open files"):
        at.perform(act, target)


@pytest.mark.parametrize("kind", ["command", "file"])
def test_nothing_is_shown_to_a_person_that_could_not_be_looked_at(at: Workbench, kind: str) -> None:
    """Else the approval would be bound to less than what is there."""
    (at.root / "publish").write_text("#!/bin/sh\n")
    act = {
        "command": action("command", argv=("./publish",)),
        "file": action("file", path=f"{at.outside}/conf", content="new"),
    }[kind]
    with no_descriptors(), pytest.raises(WorldError, match="Too many open files"):
        at.show(act)
