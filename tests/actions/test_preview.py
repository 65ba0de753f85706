"""Previews, and what an approval is bound to."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from mailboxd.core.approvals import Action
from mailboxd.errors import Refused, WorldError
from mailboxd.perform.actions.gate import LARGEST, content_sha256, existing_gates, is_verify_as_approved
from mailboxd.perform.actions.perform import MAX_SHOWN
from mailboxd.perform.actions.result import Impossible
from tests.actions.workspace_with_gate import APPROVAL, Workbench, action


def lines(at: Workbench, act: Action) -> list[str]:
    return at.show(act).text.split("\n")


def test_a_command_is_shown_word_by_word(at: Workbench) -> None:
    act = action(
        "command", argv=("sh", "-c", "rm -rf 'x y'"), cwd="", env=("KEY",), timeout=9, verify=("test", "-e", "x"),
        undo=("git", "revert", "HEAD"),
    )  # fmt: skip
    assert lines(at, act) == [
        'runs, without a shell: ["sh", "-c", "rm -rf \'x y\'"]',
        f"in: {at.root}",
        "environment: KEY",
        "no workspace file is bound to your approval: it uses the files as they are at that time",
        "at most: 9 s",
        'to verify that it happened: ["test", "-e", "x"]',
        'to undo it: ["git", "revert", "HEAD"]',
    ]


@pytest.mark.parametrize(
    ("act", "forged"),
    [
        (action("command", argv=("echo", "x\nin: /\n")), "in: /"),
        (action("command", argv=("echo",), cwd="/x\nat most: 1 s"), "at most: 1 s"),
        (action("message", channel="c", target="t\nto: me", text="hi\nat most: 1 s"), "to: me"),
        (action("message", channel="c", target="t", text="hi\nat most: 1 s"), "at most: 1 s"),
        (action("http", method="POST", url="http://x.org/", body="a\nno body"), "no body"),
        (action("manual", action="do it\nat most: 1 s"), "at most: 1 s"),
    ],
)  # fmt: skip
def test_untrusted_text_cannot_imitate_mailboxds_lines(at: Workbench, act: Action, forged: str) -> None:
    assert forged not in lines(at, act)


@pytest.mark.parametrize("text", ["\x1b[2J\x1b]0;x\x07", "a\rb", "\u202egnp.exe", "\u2028", "\x9b31m"])
def test_terminal_control_characters_are_shown_as_escapes(at: Workbench, text: str) -> None:
    for act in (
        action("message", channel="c", target="t", text=f"x{text}y"),
        action("command", argv=("echo", text)),
        action("file", path=str(at.outside / "f"), content=f"x{text}y"),
        action("manual", action=text),
    ):
        at.gate.create()
        assert all(char.isprintable() or char == "\n" for char in at.show(act).text)


def test_a_long_text_is_cut_and_says_so(at: Workbench) -> None:
    act = action("message", channel="c", target="t", text="x" * (MAX_SHOWN + 500))
    assert f"(cut: 500 of {MAX_SHOWN + 500} characters are not shown)" in lines(at, act)


def test_a_difference(at: Workbench) -> None:
    target = at.outside / "conf"
    target.write_text("a\nb\nc\n")
    shown = lines(at, action("file", path=str(target), content="a\nB\nc"))
    assert [line for line in shown if line.startswith("| ")] == [
        f"| --- {target} (now)", f"| +++ {target} (new)", "| @@ -1,4 +1,3 @@", "|  a", "| -b", "| +B", "|  c", "| -"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"\xff\xfe", b"text", "(binary: no diff)"),
        (b"text", b"a\0b", "(binary: no diff)"),
        (None, b"\x80", "(it is binary)"),
        (b"same", b"same", "it already has that content: nothing would change"),
        (b"a\n" * 3000, b"b\n" * 3000, "(too long for a diff; the new content:)"),
    ],
)
def test_without_a_diff_the_preview_shows_sizes_and_hashes(
    at: Workbench, old: bytes | None, new: bytes, said: str
) -> None:
    target = at.outside / "conf"
    if old is not None:
        target.write_bytes(old)
    (at.root / "new").write_bytes(new)
    shown = lines(at, action("file", path=str(target), source="new"))
    assert said in shown
    assert any(line.startswith(f"with: {len(new)} bytes, sha256 ") for line in shown)


def test_too_large_a_source_is_impossible(at: Workbench) -> None:
    with (at.root / "big").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(Impossible, match="at most"):
        at.show(action("file", path=str(at.outside / "f"), source="big"))


@pytest.mark.parametrize(
    ("argv", "cwd"),
    [
        (("./deploy.sh",), ""),
        (("sh", "deploy.sh", "now"), ""),
        (("make", "--file=deploy.sh"), ""),
        (("sh", "../deploy.sh"), "sub"),
        (("sh", "link"), ""),
    ],
)
def test_an_approval_is_bound_to_workspace_files_that_the_command_names(
    at: Workbench, argv: tuple[str, ...], cwd: str
) -> None:
    script = at.root / "deploy.sh"
    script.write_text("echo good")
    (at.root / "sub").mkdir()
    (at.root / "link").symlink_to(script)
    act = action("command", argv=argv, cwd=cwd)
    shown = at.show(act)
    assert "workspace file: " in shown.text
    assert content_sha256(act, at.gate) == shown.content_sha256
    script.write_text("echo evil")
    assert content_sha256(act, at.gate) != shown.content_sha256


def test_dots_after_a_link_are_followed_as_the_command_would(at: Workbench) -> None:
    """Or the preview would vouch for one file, and another one would run."""
    (at.root / "run.sh").write_text("echo good")
    (at.outside / "run.sh").write_text("echo good too")
    (at.outside / "deep").mkdir()
    (at.root / "bin").symlink_to(at.outside / "deep")
    act = action("command", argv=("sh", "bin/../run.sh", "run.sh"))
    shown = at.show(act)
    for changed in (at.outside / "run.sh", at.root / "run.sh"):
        before = changed.read_text()
        changed.write_text("echo evil")
        assert content_sha256(act, at.gate) != shown.content_sha256
        changed.write_text(before)


@pytest.mark.parametrize("kind", ["command", "http", "message", "file"])
def test_an_approval_is_bound_to_files_that_verify_names(at: Workbench, kind: str) -> None:
    (at.root / "is-it.sh").write_text("exit 0")
    fields: dict[str, dict[str, Any]] = {
        "command": {"argv": ("true",)},
        "http": {"method": "GET", "url": "http://127.0.0.1/"},
        "message": {"channel": "slack", "target": "#x", "text": "y"},
        "file": {"path": str(at.outside / "f"), "content": "x"},
    }
    act = action(kind, verify=("sh", "is-it.sh"), **fields[kind])
    shown = at.show(act)
    assert "verify uses the workspace file: is-it.sh, sha256 " in shown.text
    assert content_sha256(act, at.gate) == shown.content_sha256
    assert is_verify_as_approved(act, at.gate)
    (at.root / "is-it.sh").write_text("echo evil")
    assert content_sha256(act, at.gate) != shown.content_sha256
    assert not is_verify_as_approved(act, at.gate)


def test_a_file_that_appears_under_a_word_is_a_change_too(at: Workbench) -> None:
    act = action("command", argv=("sh", "later.sh"))
    shown = at.show(act)
    assert shown.content_sha256 == ""
    (at.root / "later.sh").write_text("echo evil")
    assert content_sha256(act, at.gate) != shown.content_sha256


def test_words_that_name_nothing_of_the_workspace_bind_nothing(at: Workbench) -> None:
    (at.outside / "f").write_text("x")
    os.mkfifo(at.root / "fifo")
    argv = ("cat", str(at.outside / "f"), "../outside/f", "fifo", ".", "", "a\0b", ".mailboxd/config.yaml", "x" * 5000)
    assert at.show(action("command", argv=argv)).content_sha256 == ""


def test_a_file_action_is_bound_to_its_payload(at: Workbench) -> None:
    act = action("file", path=str(at.outside / "f"), content="x")
    shown = at.show(act)
    assert content_sha256(act, at.gate) == shown.content_sha256
    (at.gate.path / "payload").write_bytes(b"evil")
    assert content_sha256(act, at.gate) != shown.content_sha256


def test_a_gate_is_only_for_its_owner(at: Workbench) -> None:
    at.show(action("file", path=str(at.outside / "f"), content="x"))
    assert at.gate.path.stat().st_mode & 0o777 == 0o700
    assert (at.gate.path / "payload").stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_place_of_the_gates_is_not_followed(at: Workbench) -> None:
    """Whatever is removed or read there is ours."""
    (at.outside / APPROVAL).mkdir()
    at.gate.remove()
    gates = at.gate.path.parent
    gates.rmdir()
    gates.symlink_to(at.outside)
    at.gate.remove()
    assert (at.outside / APPROVAL).is_dir()
    with pytest.raises(WorldError):
        existing_gates(at.root)
    with pytest.raises(WorldError):
        at.gate.create()
    assert at.gate.read("payload") is None
    with pytest.raises(Refused, match="cannot be opened"), at.gate.locked():
        pass


def test_a_gates_lock_is_exclusive(at: Workbench) -> None:
    assert existing_gates(at.root) == [APPROVAL]
    assert not at.gate.is_locked()
    with at.gate.locked():
        assert at.gate.is_locked()
        with pytest.raises(Refused, match="already being performed"), at.gate.locked():
            pass
    assert not at.gate.is_locked()


def test_without_descriptors_a_runner_is_assumed_to_be_alive(at: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what it is doing at this moment would be recorded as lost."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with at.gate.locked(), monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert at.gate.is_locked()
