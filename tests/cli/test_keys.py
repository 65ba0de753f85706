"""`mailboxd connect keys`: making, trusting, signing and verifying, and who may."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.formats.protocol.messages import parse_message
from tests.cli.stage import Stage

APPROVAL = "---\ntype: approval\nfrom: operator\napproval_id: apr_1\ndecision: approved\n---\n\nGo.\n"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def file(stage: Stage, text: str) -> Path:
    path = stage.ws.root / "message.md"
    path.write_text(text)
    return path


def test_a_key_is_made_and_shown_by_its_public_half_only(stage: Stage, own_state: Path) -> None:
    made = stage.json("connect", "keys", "create")
    assert made["name"] == "alpha"
    (path,) = own_state.rglob("*.key")
    private = path.read_text().strip()
    everything = (
        stage.run("connect", "keys", "list").output + stage.run("connect", "keys", "list", "--json").output + str(made)
    )
    assert made["key"] in everything
    assert private.partition(":")[2] not in everything
    again = stage.run("connect", "keys", "create")
    assert (again.exit_code, "key-exists" in again.output) == (1, True)


def test_the_operators_key_is_trusted_where_it_was_made(stage: Stage) -> None:
    made = stage.json("connect", "keys", "create", "--operator")
    assert [(row["name"], row["kind"], row["trusted"]) for row in stage.json("connect", "keys", "list")] == [
        ("operator", "own", True),
        ("operator", "trusted", True),
    ]
    path = file(stage, APPROVAL)
    assert stage.run("connect", "keys", "verify", str(path)).exit_code == 1
    assert stage.run("connect", "keys", "sign", str(path)).exit_code == 0
    assert stage.json("connect", "keys", "verify", str(path)) == {
        "verified": "yes",
        "from": "operator",
        "fingerprint": made["fingerprint"],
        "problem": "",
    }
    path.write_text(path.read_text().replace("Go.", "No."))
    assert stage.run("connect", "keys", "verify", str(path)).exit_code == 1


def test_signing_to_standard_output_leaves_the_file(stage: Stage) -> None:
    stage.run("connect", "keys", "create", "--operator")
    path = file(stage, APPROVAL)
    path.chmod(0o600)
    printed = stage.run("connect", "keys", "sign", "--stdout", str(path))
    assert path.read_text() == APPROVAL
    assert parse_message(printed.stdout.encode(), "x").message.signature is not None
    assert stage.run("connect", "keys", "sign", str(path)).exit_code == 0
    assert path.read_text() == printed.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_agents_key_is_taken_from_its_text_or_a_file_and_given_up_again(stage: Stage, tmp_path: Path) -> None:
    key = "ed25519:PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw"
    assert stage.json("connect", "keys", "trust", "beta", key)["new"] is True
    published = tmp_path / "beta.pub"
    published.write_text(f"{key}\n")
    assert stage.json("connect", "keys", "trust", "beta", str(published))["new"] is False
    assert stage.run("connect", "keys", "trust", "operator", key).exit_code == 1
    assert len(stage.json("connect", "keys", "untrust", "beta")["fingerprints"]) == 1
    assert stage.run("connect", "keys", "untrust", "beta").exit_code == 69


@pytest.mark.parametrize("key", ["nonsense", "ed25519:short", "/nowhere"])
def test_an_invalid_key_is_a_usage_error(stage: Stage, key: str) -> None:
    assert stage.run("connect", "keys", "trust", "beta", key).exit_code == 2
    assert stage.run("connect", "keys", "trust", "../x", key).exit_code == 2


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (APPROVAL, 69, "keys create --operator"),
        (APPROVAL.replace("operator", "alpha"), 69, "keys create"),
        (APPROVAL.replace("operator", "beta"), 69, "whose key is not here"),
        ("---\ntype: approval\n---\n", 65, "missing-field"),
    ],
)
def test_signing_that_is_not_possible_says_why(stage: Stage, text: str, status: int, said: str) -> None:
    result = stage.run("connect", "keys", "sign", str(file(stage, text)))
    assert (result.exit_code, said in result.output) == (status, True), result.output


@pytest.mark.parametrize(
    "words",
    [
        ["create"],
        ["create", "--operator"],
        ["trust", "beta", f"ed25519:{'A' * 43}"],
        ["untrust", "beta"],
        ["sign", "message.md"],
    ],
)
def test_no_agent_makes_trusts_or_uses_a_key_in_its_turn(
    stage: Stage, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.run("connect", "keys", "create", "--operator")
    file(stage, APPROVAL)
    monkeypatch.chdir(stage.ws.root)
    result = stage.run("connect", "keys", *words, env={"OPENCLAW_SHELL": "exec"})
    assert (result.exit_code, "permission-denied" in result.output) == (1, True)
    assert (stage.ws.root / "message.md").read_text() == APPROVAL


def test_the_operators_key_needs_no_workspace(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Result:
        return CliRunner().invoke(program, list(words), obj=Session(), prog_name="mailboxd")

    made = run("connect", "keys", "create", "--operator", "--json")
    assert made.exit_code == 0, made.output
    (tmp_path / "a.md").write_text(APPROVAL)
    assert run("connect", "keys", "sign", "a.md").exit_code == 0
    assert stage.run("connect", "keys", "verify", str(tmp_path / "a.md")).exit_code == 1
    assert (
        stage.run("connect", "keys", "trust", "operator", made.stdout.split('"key": "')[1].split('"')[0]).exit_code == 0
    )
    assert stage.run("connect", "keys", "verify", str(tmp_path / "a.md")).exit_code == 0


def test_the_operators_messages_are_signed_once_a_key_exists(stage: Stage) -> None:
    stage.run("send", "Before")
    stage.run("connect", "keys", "create", "--operator")
    stage.run("send", "After")
    stage.run("send", "--from", "beta", "Not mine")
    found = {}
    for path in stage.ws.inbox.iterdir():
        message = parse_message(path.read_bytes(), path.name).message
        found[message.title] = message.signature is not None
        assert stage.run("connect", "keys", "verify", str(path)).exit_code == (0 if message.signature else 1)
    assert found == {"Before": False, "After": True, "Not mine": False}
