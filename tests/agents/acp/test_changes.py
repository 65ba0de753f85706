"""Which files changed while a harness worked, and how."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from mailboxd.perform.agents.acp import program


def git(root: Path, *words: str) -> None:
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True)


def changed(root: Path, before: program.Snapshot, said: tuple[tuple[str, str, str], ...] = ()) -> tuple[list[str], str]:
    names = program.changed_files(str(root), before, program.snapshot(str(root)), [path for path, _, _ in said])
    return names, program.diff(str(root), names, before, said)


def test_the_old_content_is_that_of_git(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "gone.txt").write_text("bye\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    before = program.snapshot(str(tmp_path / "sub")), program.snapshot(str(tmp_path))
    (tmp_path / "sub" / "a.txt").write_text("one\n2\n")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "new.txt").write_text("hello")
    names, diff = changed(tmp_path, before[1])
    assert names == ["gone.txt", "new.txt", "sub/a.txt"]
    assert "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n" in diff
    assert "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file\n" in diff
    assert "@@ -1,2 +1,2 @@\n one\n-two\n+2\n" in diff
    assert "a.txt" in changed(tmp_path / "sub", before[0])[1]  # also from below the root of the work tree


def test_no_program_of_the_directory_is_run_to_compare(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    before = program.snapshot(str(tmp_path))
    trap = f"touch {tmp_path}/trapped; cat"
    for key in (
        "filter.t.clean",
        "filter.t.smudge",
        "diff.external",
        "diff.t.textconv",
        "core.fsmonitor",
        "core.pager",
    ):
        git(tmp_path, "config", key, trap)
    (tmp_path / ".gitattributes").write_text("* filter=t diff=t\n")
    (tmp_path / "a.txt").write_text("two\n")
    _, diff = changed(tmp_path, before)
    assert "-one\n+two\n" in diff
    assert not (tmp_path / "trapped").exists()


def test_without_git_the_old_content_is_that_reported_by_the_harness(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("x\n")
    before = program.snapshot(str(tmp_path))
    (tmp_path / "a.txt").write_text("three\n")
    (tmp_path / "b.txt").write_text("yyy\n")
    names, diff = changed(tmp_path, before, ((str(tmp_path / "a.txt"), "one\n", "three\n"), ("/etc/passwd", "", "")))
    assert names == ["a.txt", "b.txt"]
    assert "-one\n+three\n" in diff
    assert "b.txt changed; its earlier content is unknown" in diff


def test_links_large_files_and_binaries_are_not_shown(tmp_path: Path) -> None:
    before = program.snapshot(str(tmp_path))
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "large").write_bytes(b"x" * 500_000)
    (tmp_path / "binary").write_bytes(b"\x00\xff")
    os.mkfifo(tmp_path / "pipe")
    names, diff = changed(tmp_path, before, (("link", "", ""),))
    assert "root:" not in diff
    assert {"large", "binary"} <= set(names)
    assert "Binary file large differs" in diff


def test_mailbox_and_tasks_do_not_count_as_changed(tmp_path: Path) -> None:
    for name in ("mailbox", "tasks", "src"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").touch()
    assert set(program.snapshot(str(tmp_path))) == {"mailbox/a.md", "tasks/a.md", "src/a.md"}
    (tmp_path / ".mailboxd").mkdir()
    assert set(program.snapshot(str(tmp_path))) == {"src/a.md"}


def test_a_long_diff_is_cut(tmp_path: Path) -> None:
    before = program.snapshot(str(tmp_path))
    for number in range(4):
        (tmp_path / f"{number}").write_text("x\n" * 100_000)
    assert "(truncated at " in changed(tmp_path, before)[1]
