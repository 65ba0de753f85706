"""The daemon's side: the directory, the environment, and what is made of what a turn has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.outcomes import Failed, Made, Succeeded, Unknown
from mailboxd.errors import ConfigError
from mailboxd.perform.agents.acp import transport, turn_files
from mailboxd.perform.agents.call_dir import Exit


def test_a_harness_sees_few_variables_and_the_configured_ones() -> None:
    ours = {"PATH": "/bin", "HOME": "/h", "SECRET": "x", "KEY": "k", "PYTHONPATH": "/p", "OPENCLAW_STATE_DIR": "/s"}
    assert transport.environment(ours, ["KEY", "NOT_SET"]) == {"HOME": "/h", "PATH": "/bin", "KEY": "k"}


def test_it_works_in_a_directory_of_the_workspace_or_nowhere(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "ws"
    (root / "src").mkdir(parents=True)
    (root / "file").touch()
    (root / "out").symlink_to("/etc")
    (root / "within").symlink_to("src")
    assert transport.working_directory(root, "") == str(root)
    assert transport.working_directory(root, "src") == transport.working_directory(root, "within") == str(root / "src")
    for elsewhere in ("out", "file", "missing"):
        with pytest.raises(OSError):  # noqa: PT011 - the three have different texts
            transport.working_directory(root, elsewhere)


@pytest.mark.parametrize(
    ("left", "made"),
    [
        (None, ()),
        ({"files": [], "diff": "", "refused": []}, ()),
        ({"files": ["a"], "diff": "+x\x00", "refused": []}, (Made("diff", "+x\ufffd", "1 files changed: a"),)),
        ({"files": ["a", 5, None], "diff": ""}, (Made("diff", "a\n\n", "3 files changed: a, , "),)),
        ({"refused": ["make (rejected)"]}, (Made("other", "make (rejected)", "1 permissions were refused"),)),
        ({"files": "x", "refused": {"a": 1}}, ()),
    ],
)  # fmt: skip
def test_files_left_by_a_turn_are_not_trusted(tmp_path: Path, left: Any, made: tuple[Made, ...]) -> None:
    if left is not None:
        turn_files.write(tmp_path, turn_files.CHANGES, left)
    assert transport.artifacts(tmp_path) == made


@pytest.mark.parametrize(
    ("note", "session"),
    [
        ({"session": "s", "loads": True}, "s"),
        ({"session": "s", "loads": False}, None),
        ({"session": "", "loads": True}, None),
        ({"session": 5, "loads": True}, None),
        ([], None),
    ],
)
def test_the_session_that_can_be_asked(tmp_path: Path, note: Any, session: str | None) -> None:
    (tmp_path / turn_files.SESSION).write_text(json.dumps(note))
    assert transport.resumable_session(tmp_path) == session


def said(text: str) -> Exit:
    value = {"status": "ok", "result": {"payloads": [{"text": text}], "meta": {"stopReason": "stop"}}}
    return Exit(0, json.dumps(value).encode())


def test_the_outcome_of_a_lost_turn_as_the_harness_reports_it() -> None:
    finished = transport.recovered_outcome(said("The result."), "cut off")
    assert isinstance(finished, Succeeded)
    assert finished.text == "The result."
    for words in ("NOT FINISHED\nhalf", "**NOT FINISHED**", "`NOT FINISHED`: half"):
        half = transport.recovered_outcome(said(words), "cut off")
        assert isinstance(half, Failed)
        assert half.error.startswith("cut off. The harness reports: ")
    for nothing in (Exit(1, b"{}"), Exit(-9, b""), said("")):
        assert transport.recovered_outcome(nothing, "cut off") == Unknown(
            "cut off; asked about it, the harness could not tell", looked_up=True
        )


@pytest.mark.parametrize("wrong", [b"", b"{", b"[1]", b"5", b'{"a": ' * 100_000, b"x" * (turn_files.CAP + 1)])
def test_an_invalid_file_is_read_as_none(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "n.json").write_bytes(wrong)
    assert turn_files.read_note(tmp_path, "n.json") is None


def test_a_note_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("{}")
    (tmp_path / "n.json").symlink_to("real")
    assert turn_files.read_note(tmp_path, "n.json") is None
    turn_files.write(tmp_path, "n.json", {"a": 1})
    assert (tmp_path / "real").read_text() == "{}"
    assert turn_files.read_note(tmp_path, "n.json") == {"a": 1}


def test_questions_are_found_by_their_names_alone(tmp_path: Path) -> None:
    for name in ("permission-1.json", "permission-12.json", "permission-1.answer.json", "permission-0.json", "x.json"):
        (tmp_path / name).touch()
    assert sorted(turn_files.questions(tmp_path)) == [1, 12]
    assert list(turn_files.questions(tmp_path / "permission-1.json")) == [], "a harness may put anything in its place"


def test_without_the_library_the_daemon_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    transport.require_extra()
    monkeypatch.setattr(transport, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install .*\[acp\]"):
        transport.require_extra()
