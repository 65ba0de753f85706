"""Signed messages between real daemons: what is signed, what is checked, what is required."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, message, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Text."}}


def key_of(agent: Agent) -> str:
    return str(agent.json("connect", "keys", "create")["key"])


def test_daemons_with_keys_sign_and_know_each_other(found: Found, tmp_path: Path) -> None:
    """Both sides require each other's signature: the work is done, and every row says whose message it was."""
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}}, daemons=["alpha"], signing={"require": ["beta"]})
    company.env.update(env)
    alpha, beta = company["alpha"], company["beta"]
    beta.settle_in({})
    alpha.call("connect", "keys", "trust", "beta", key_of(beta))
    own = key_of(alpha)
    alpha.call("connect", "keys", "trust", "alpha", own)

    path = beta.root / "go.md"
    path.write_text(task("job", sender="beta", subtask_id="x", to="alpha", message_id="m1"))
    assert beta.call("connect", "keys", "sign", str(path)).returncode == 0
    signed = path.read_text()
    alpha.drop("unsigned.md", task("job", sender="beta", subtask_id="y"))
    alpha.drop("changed.md", signed.replace("One line.", "Two lines.").replace("m1", "m2"))
    alpha.drop("plain.md", task("other"))
    alpha.drop("good.md", signed)
    alpha.run()
    assert alpha.rejections() == {"unsigned.md": "unsigned", "changed.md": "bad-signature"}
    assert alpha.phases() == {"job.x": "completed", "other": "completed"}
    rows = {row["name"]: row["verified"] for row in alpha.mail()}
    assert rows == {"unsigned.md": "unsigned", "changed.md": "no", "plain.md": "unsigned", "good.md": "yes"}
    (event,) = [e for e in alpha.events("message.received") if e["data"]["message"]["name"] == "good.md"]
    assert (event["data"]["message"]["verified"], len(event["data"]["message"]["signer"])) == ("yes", 32)

    # once more, under another name: a signature is no licence to repeat
    alpha.drop("again.md", signed)
    alpha.run()
    assert [row["verdict"] for row in alpha.mail() if row["name"] == "again.md"] == ["duplicate"]

    replies = sorted((alpha.root / "mailbox" / "outbox").glob("*/*.reply.*"))
    assert replies
    for reply in replies:
        assert 'signature: "ed25519:' in reply.read_text()
    (about,) = [reply for reply in replies if "job.x" in reply.name]
    beta.call("connect", "keys", "trust", "alpha", own)
    assert beta.json("connect", "keys", "verify", str(about))["verified"] == "yes"
    company.at_rest()


def test_a_wrong_signature_is_recorded_where_none_is_required(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}})
    company.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    alpha = company["alpha"]
    wrong = f"ed25519:{'0' * 32}:{'A' * 86}"
    alpha.drop("go.md", task("job", sender="beta", subtask_id="x", signature=wrong))
    alpha.run()
    (row,) = alpha.mail()
    assert (row["verdict"], row["verified"]) == ("accepted", "no")
    (event,) = alpha.events("message.received")
    assert "not trusted here" in " ".join(event["data"]["warnings"])
    company.at_rest()


def test_an_operator_who_requires_signatures_gets_no_unsigned_order(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK}, signing={"require": ["operator"]})
    company.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    alpha = company["alpha"]
    assert alpha.call("connect", "keys", "create", "--operator").returncode == 0
    alpha.drop("plain.md", "# Do something\n\nAnything.\n")
    alpha.drop("task.md", task("forged"))
    alpha.drop("cancel.md", message("cancel", "x", sender="human"))
    assert alpha.call("send", "--task-id", "mine", "Do it").returncode == 0
    alpha.run()
    assert alpha.rejections() == dict.fromkeys(("plain.md", "task.md", "cancel.md"), "unsigned")
    assert alpha.phases() == {"mine": "completed"}
    company.at_rest()


def test_keys_that_others_can_read_stop_the_daemon_before_it_starts(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK})
    company.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    alpha = company["alpha"]
    key_of(alpha)
    (path,) = (tmp_path / "state").rglob("*.key")
    path.chmod(0o644)
    done: Any = alpha.call("run", "--until-idle")
    assert (done.returncode, f"chmod 600 {path}" in done.stderr) == (78, True)


def test_a_side_effect_is_approved_by_a_file_that_the_operator_signed_and_by_no_other(
    found: Found, tmp_path: Path
) -> None:
    published = tmp_path / "published.md"
    answer = (
        "---\ntype: reply\nstatus: done\n---\n\n## Results\n\nReady.\n\n## Planned Actions\n\n```yaml\n"
        f"- id: publish\n  kind: file\n  path: {published}\n  content: Hello\n```\n"
    )
    company = found({"alpha": {"default": {"reply": answer}}})
    company.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    alpha = company["alpha"]
    fingerprint = alpha.json("connect", "keys", "create", "--operator")["fingerprint"]
    alpha.call("connect", "keys", "trust", "alpha", key_of(alpha))
    alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job", "awaiting_approval")
    (asked,) = eventually(lambda: alpha.query("SELECT * FROM v_approvals WHERE status = 'pending'"))

    def approval(name: str, decision: str = "approved", sender: str = "operator") -> Path:
        path = alpha.root / name
        path.write_text(
            f"---\ntype: approval\nfrom: {sender}\napproval_id: {asked['id']}\ndecision: {decision}\n---\n\nFine.\n"
        )
        return path

    def signed(path: Path) -> str:
        done = alpha.call("connect", "keys", "sign", str(path))
        assert done.returncode == 0, done.stderr
        return path.read_text()

    yes = signed(approval("yes.md"))
    alpha.drop("unsigned.md", approval("unsigned").read_text())
    alpha.drop("by-an-agent.md", signed(approval("agent", sender="alpha")))
    alpha.drop(
        "agents-signature.md", signed(approval("agent", sender="alpha")).replace("from: alpha", "from: operator")
    )
    alpha.drop("turned-around.md", signed(approval("no", "rejected")).replace("rejected", "approved"))
    eventually(lambda: len(alpha.mail("rejected")) == 4)
    assert alpha.phase("job") == "awaiting_approval"
    assert not published.exists()

    alpha.drop("yes.md", yes)
    alpha.until("job")
    assert published.read_text().strip() == "Hello"
    alpha.drop("no.md", signed(approval("no", "rejected")))
    alpha.drop("yes-again.md", yes)
    eventually(lambda: len(alpha.mail()) == 8)
    assert alpha.rejections() == {
        "unsigned.md": "unsigned-approval",
        "by-an-agent.md": "permission-denied",
        "agents-signature.md": "bad-signature",
        "turned-around.md": "bad-signature",
        "no.md": "already-decided",
    }
    assert [row["verdict"] for row in alpha.mail() if row["name"] == "yes-again.md"] == ["duplicate"]
    (row,) = alpha.query("SELECT * FROM v_approvals")
    assert (row["status"], row["resolved_by"], row["note"]) == ("approved", f"key:{fingerprint}", "Fine.")
    company.at_rest()


def test_two_daemons_that_require_each_others_signature_work_together(found: Found, tmp_path: Path) -> None:
    """A dispatch and its reply, over the way that messages go: neither is taken without its signature."""
    rules = {"mailbox": True, "default": {"reply": "Result of {title}."}}
    company = found({"alpha": rules, "beta": rules}, daemons=[], synthesis="concat")
    company.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    alpha, beta = company["alpha"], company["beta"]
    alpha.settle_in({"synthesis": "concat", "signing": {"require": ["beta"]}})
    beta.settle_in({"signing": {"require": ["alpha"]}})
    for agent, peer in ((alpha, beta), (beta, alpha)):
        assert peer.call("connect", "keys", "trust", agent.name, key_of(agent)).returncode == 0
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan={"x": {"agent": "beta", "description": "X"}}))
    alpha.until("job")
    for agent in (alpha, beta):
        proofs = {row["sender"]: row["verified"] for row in agent.mail() if row["sender"] != "operator"}
        assert proofs == {"beta" if agent is alpha else "alpha": "yes"}
    company.at_rest()


def test_a_signed_approval_of_what_was_not_asked_yet_approves_nothing(found: Found, tmp_path: Path) -> None:
    answer = "---\ntype: reply\nstatus: done\n---\n\n## Results\n\nReady.\n\n## Planned Actions\n\n- by hand\n"
    company = found({"alpha": {"default": {"reply": answer}}})
    company.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    alpha = company["alpha"]
    alpha.json("connect", "keys", "create", "--operator")
    early = alpha.root / "early.md"
    early.write_text(
        "---\ntype: approval\nfrom: operator\napproval_id: apr_01M81RNKSGZYSQT4X8G2XHDWXJ\ndecision: approved\n---\n"
    )
    assert alpha.call("connect", "keys", "sign", str(early)).returncode == 0
    alpha.drop("early.md", early.read_text())
    alpha.drop("go.md", task("job"))
    alpha.start()
    alpha.until("job", "awaiting_approval")
    eventually(alpha.has_nothing_to_do)
    assert [row["verdict"] for row in alpha.mail() if row["name"] == "early.md"] == ["orphan"]
    assert [row["status"] for row in alpha.query("SELECT status FROM v_approvals")] == ["pending"]
    company.at_rest()
