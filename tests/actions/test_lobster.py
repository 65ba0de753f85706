"""The workflow, the words and the answers of Lobster; the real one is asked in tests/live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from mailboxd.perform.actions import gate
from mailboxd.perform.actions.gate import LobsterAnswer

APPROVAL = "apr_01J9ZK2T0V8W5N3QXYZ4ABCDEF"
EFFECT = ("/opt/py thon/bin/python", "-P", "-m", "mailboxd.cli", "effect", "run", APPROVAL, "--workspace", "/w/it's")


def test_the_workflow_asks_before_the_runner_runs() -> None:
    raw = gate.workflow(APPROVAL, Path("/w/it's/preview.txt"), EFFECT)
    assert raw is not None
    made = yaml.safe_load(raw)
    preview, confirm, effect = made["steps"]
    assert preview["run"] == """cat -- '/w/it'"'"'s/preview.txt'"""
    assert "run" not in confirm, "an approval on a step that runs something runs it first"
    assert APPROVAL in confirm["approval"]
    assert effect["when"] == "$confirm.approved"
    assert effect["run"] == (
        "'/opt/py thon/bin/python' -P -m mailboxd.cli effect run " + APPROVAL + """ --workspace '/w/it'"'"'s'"""
    )


def test_the_same_approval_has_the_same_workflow() -> None:
    assert gate.workflow(APPROVAL, Path("/p"), EFFECT) == gate.workflow(APPROVAL, Path("/p"), EFFECT)
    assert gate.workflow(APPROVAL, Path("/p"), EFFECT) != gate.workflow(APPROVAL, Path("/q"), EFFECT)


@pytest.mark.parametrize("path", ["/w/${HOME}/p", "/w/a\nb/p", "/w/\x1b/p"])
def test_a_path_that_lobster_would_change_has_no_workflow(path: str) -> None:
    assert gate.workflow(APPROVAL, Path(path), EFFECT) is None


def test_a_template_of_the_workspace_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    templates = tmp_path / ".mailboxd" / "templates"
    templates.mkdir(parents=True)
    (templates / "approval-recovery.lobster.yaml").write_text("evil")
    monkeypatch.chdir(tmp_path)
    raw = gate.workflow(APPROVAL, Path("/p"), EFFECT)
    assert raw is not None
    assert b"evil" not in raw


def test_the_words_hold_no_token() -> None:
    assert gate.run_argv(("lobster",), Path("/g/w.yaml")) == (
        "lobster", "run", "--mode", "tool", "--file", "/g/w.yaml"
    )  # fmt: skip
    yes = gate.resume_argv(("node", "lobster.js"), "728f3400", approve=True)
    assert yes == ("node", "lobster.js", "resume", "--id", "728f3400", "--approve", "yes")
    assert gate.resume_argv(("lobster",), "728f3400", approve=False)[-1] == "no"


def test_its_environment_is_small() -> None:
    environ = {"PATH": "/bin", "HOME": "/h", "KEY": "secret", "OPENCLAW_TOKEN": "secret", "TZ": ""}
    assert gate.lobster_environment(environ, Path("/g/state")) == {
        "PATH": "/bin", "HOME": "/h", "LOBSTER_STATE_DIR": "/g/state"
    }  # fmt: skip


NO_ID = LobsterAnswer("", error="its gate has an invalid id")


def envelope(**changes: object) -> bytes:
    asked = {"type": "approval_request", "resumeToken": "eyJ", "approvalId": "728f3400"}
    said = {"protocolVersion": 1, "ok": True, "status": "needs_approval", "output": [], "requiresApproval": asked}
    return json.dumps({**said, **changes}).encode()


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (envelope(), LobsterAnswer("needs_approval", id="728f3400")),
        (envelope(status="ok", requiresApproval=None), LobsterAnswer("ok")),
        (envelope(status="cancelled", requiresApproval=None), LobsterAnswer("cancelled")),
        (envelope(ok=False, error={"type": "runtime_error", "message": "gone"}), LobsterAnswer("", error="gone")),
        (envelope(protocolVersion=2), LobsterAnswer("", error="its protocol is version 2, not 1")),
        (envelope(requiresApproval={"approvalId": "--approve"}), NO_ID),
        (envelope(requiresApproval={"approvalId": "../../x"}), NO_ID),
        (envelope(requiresApproval={"approvalId": 7}), NO_ID),
        (envelope(requiresApproval={}), LobsterAnswer("", error="its answer cannot be parsed")),
        (envelope(ok=False), LobsterAnswer("", error="its answer cannot be parsed")),
        (b"", LobsterAnswer("", error="its answer cannot be parsed")),
        (b"[]", LobsterAnswer("", error="its answer cannot be parsed")),
        (b"[" * 100_000, LobsterAnswer("", error="its answer cannot be parsed")),
    ],
)
def test_its_answers(raw: bytes, found: LobsterAnswer) -> None:
    assert gate.parse_answer(raw) == found
