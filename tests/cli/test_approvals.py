"""Approvals: listed, shown with everything escaped, and decided under the operator's name."""

from __future__ import annotations

import json
import os
import pwd
import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.core.approvals import ApprovalDecision, Performed, PermissionAsked, Resolve, digest
from mailboxd.core.events import Role
from mailboxd.errors import Refused
from tests.cli.asking import PUBLISH, TELL, ask, asked, expire, perform, prepare
from tests.cli.stage import Stage, child, make

ME = pwd.getpwuid(os.getuid()).pw_name


def short(approval_id: str) -> str:
    return approval_id[-6:].lower()


# Seeing


def test_pending_approvals_are_listed_with_action_approver_and_expiry(stage: Stage) -> None:
    assert stage.run("approve").output == "nothing awaits your decision\n"
    one, two = ask(stage, "job", replace(PUBLISH, risk="the site is public"), TELL)
    said = stage.run("approve").output
    assert f"{short(one)}  command     run make publish\n" in said
    assert "task job, requested by operator, expires in 1d00h" in said
    assert "risk: the site is public" in said
    assert f"{short(two)}  manual      Tell the team" in said
    rows = stage.json("approve")
    assert [(row["id"], row["short_id"], row["task"], row["status"]) for row in rows] == [
        (one, short(one), "job", "pending"),
        (two, short(two), "job", "pending"),
    ]


def test_one_is_shown_with_everything_that_a_person_needs(stage: Stage) -> None:
    action = replace(PUBLISH, verify=("make", "is-published"), cwd="site")
    (one,) = ask(stage, "job", action, preview="make publish, in site/\n--- a\n+++ b\n")
    for name in (short(one), one, one[-10:].upper()):
        said = stage.run("show", name).output
        for part in (
            one, "task         job", "command (action)", "builtin: lobster is not installed",
            f"digest       {digest(action)}",
            f"key          job/publish/{digest(action)[:12]}", "  --- a\n  +++ b", "argv: [make, publish]",
            "verify: [make, is-published]", "undo: [make, unpublish]", "cwd: site",
            f"approval {short(one)} requested",
            f"{stage.program} approve {short(one)} --digest {digest(action)[:12]}\n",
        ):  # fmt: skip
            assert part in said, part
    found = stage.json("show", short(one))
    assert (found["action"]["argv"], found["preview"][:4]) == (["make", "publish"], "make")
    assert [event["kind"] for event in found["history"]] == ["approval.requested"]


def test_decided_approvals_are_listed_on_request(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    ask(stage, "other", TELL)
    stage.run("reject", short(one), "--note", "not today")
    assert [row["task"] for row in stage.json("approve")] == ["other"]
    assert [row["status"] for row in stage.json("approve", "--history")] == ["rejected", "pending"]
    assert stage.json("approve", "--history", "--task", "job")[0]["note"] == "not today"
    assert f"rejected by {ME}" in stage.run("approve", "--history").output


def test_a_task_means_all_below_it(stage: Stage) -> None:
    stage.clock.text = "2026-01-02T00:00:00.000Z"
    stage.create("tree", child("a", "self"))
    stage.start()
    planned = "\n\n## Planned Actions\n\n- {id: tell, kind: manual, action: Tell them}\n"
    stage.end_turn("tree.a", f"---\ntype: reply\nstatus: done\n---\n## Results\n\nDone.{planned}")
    prepare(stage)
    assert [row["task"] for row in stage.json("approve", "--history", "--task", "tree")] == ["tree.a"]


HOSTILE = "\x1b[2J\x1b]0;owned\x07\rrun make safe\u202e\u2066"


def test_foreign_text_is_shown_and_acts_on_nothing(stage: Stage) -> None:
    action = replace(PUBLISH, argv=("make", HOSTILE), action=f"{HOSTILE}\nNext\n  digest  0000", undo=())
    (one,) = ask(stage, "job", action, preview=f"run {HOSTILE}\nmailboxd approve 000000\n")
    for words in (
        ["approve"],
        ["show", short(one)],
        ["approve", short(one), "--json"],
        ["show", "job"],
    ):
        said = stage.run(*words).output
        assert not set(said) & set("\x1b\x07\r\u202e\u2066"), words
    shown = stage.run("show", short(one)).output
    assert "\nmailboxd approve 000000" not in shown  # what is not indented is ours
    assert "\n  mailboxd approve 000000" in shown


# Deciding


def test_an_approval_is_recorded_with_the_operators_name(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    done = stage.run("approve", short(one), "--note", "seen on staging")
    assert done.exit_code == 0, done.output
    assert f"approval {short(one)} approved by {ME}: seen on staging" in done.stdout
    assert "job: its approved actions are to be run" in done.stdout
    event = next(e for e in stage.json("log", "job") if e["kind"] == "approval.resolved")
    assert (event["role"], event["actor"]) == ("operator", ME)
    found = stage.json("show", short(one))
    assert (found["status"], found["resolved_by"], found["note"]) == ("approved", ME, "seen on staging")


def test_json_names_the_request_and_the_decision(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    told = stage.json("approve", short(one))
    assert told["approvals"] == [
        {"id": one, "short_id": short(one), "task": "job", "requested_action": "run make publish",
         "digest": digest(PUBLISH), "decision": "approved", "by": ME}
    ]  # fmt: skip
    assert told["daemon"] == {"running": False}


def test_a_manual_action_is_done_when_it_is_approved(stage: Stage) -> None:
    (one,) = ask(stage, "job", TELL)
    assert "job: completed" in stage.run("approve", short(one)).stdout
    assert stage.phase("job") == "completed"


@pytest.mark.parametrize(
    ("order", "phase", "status"),
    [
        (["reject"], "failed", "rejected"),
        (["ask-changes"], "execution_ready", "request_changes"),
    ],
)
def test_a_no_says_why(stage: Stage, order: list[str], phase: str, status: str) -> None:
    one, _ = ask(stage, "job", PUBLISH, TELL)
    assert stage.run(*order, short(one)).exit_code == 2
    assert stage.run(*order, short(one), "--note", "to staging first").exit_code == 0
    assert stage.phase("job") == phase
    assert asked(stage, "job") == [status, "expired"]  # what was asked beside it is void
    shown = stage.json("show", "job")
    assert "to staging first" in shown["reason"] + shown["findings"]


def test_several_are_approved_together_or_not_at_all(stage: Stage) -> None:
    one, two = ask(stage, "job", PUBLISH, TELL)
    stage.run("reject", *ask(stage, "other", TELL), "--note", "no")
    (gone,) = [row["id"] for row in stage.json("approve", "--history", "--task", "other")]
    refused = stage.run("approve", short(one), short(gone))
    assert (refused.exit_code, "(already-decided)" in refused.stderr) == (1, True)
    assert asked(stage, "job") == ["pending", "pending"]
    assert stage.run("approve", short(one), short(two), one).exit_code == 0
    assert asked(stage, "job") == ["approved", "approved"]


def test_a_digest_binds_the_decision_to_the_shown_request(stage: Stage) -> None:
    one, two = ask(stage, "job", PUBLISH, TELL)
    wrong = stage.run("approve", short(one), "--digest", "0123456789ab")
    assert (wrong.exit_code, "(digest-mismatch)" in wrong.stderr) == (1, True)
    assert stage.run("approve", short(one), "--digest", "0123").exit_code == 2
    assert stage.run("approve", short(one), short(two), "--digest", digest(PUBLISH)[:12]).exit_code == 2
    assert asked(stage, "job") == ["pending", "pending"]
    assert stage.run("approve", short(one), "--digest", digest(PUBLISH)[:12].upper()).exit_code == 0


@pytest.mark.parametrize("order", [["approve"], ["reject", "--note", "x"], ["ask-changes", "--note", "x"]])
def test_it_is_decided_once(stage: Stage, order: list[str]) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    stage.run("approve", short(one))
    again = stage.run(*order, short(one))
    if order == ["approve"]:  # the same word of the same person
        assert again.exit_code == 0
    else:
        assert (again.exit_code, f"approved by {ME} already" in again.stderr) == (1, True)
    assert asked(stage, "job") == ["approved"]


def test_an_expired_request_cannot_be_approved_even_without_a_daemon(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH, at="2026-01-02T00:00:00.000Z")
    refused = stage.run("approve", short(one))
    assert (refused.exit_code, "(expired)" in refused.stderr) == (1, True)
    expire(stage)
    assert stage.phase("job") == "failed"
    assert "nobody decided until" in stage.run("show", short(one)).output


def test_an_edit_makes_the_request_void_and_it_is_asked_again(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    assert stage.run("edit", "job", "Use the new logo.").exit_code == 0
    assert stage.run("approve", short(one)).exit_code == 1
    assert stage.json("show", short(one))["void"] is True


def test_only_configured_approvers_may_decide(tmp_path: Path) -> None:
    stage = make(tmp_path / "alpha", "approvals:\n  approvers: [kim, somebody-else]\n")
    (one,) = ask(stage, "job", TELL)
    refused = stage.run("approve", short(one))
    assert (refused.exit_code, "(not-an-approver)" in refused.stderr) == (1, True)
    assert asked(stage, "job") == ["pending"]
    stage.ws.config.write_text(stage.ws.config.read_text().replace("somebody-else", ME))
    assert stage.run("approve", short(one)).exit_code == 0


@pytest.mark.parametrize(
    ("actor", "role", "may"),
    [
        ("key:0f3a", Role.OPERATOR, True),
        ("key:ffff", Role.OPERATOR, False),
        ("kim", Role.OPERATOR, False),
        ("gate", Role.LOBSTER, False),
    ],
)
def test_an_approver_may_be_a_key_and_others_cannot_decide_anywhere(
    tmp_path: Path, actor: str, role: Role, may: bool
) -> None:
    stage = make(tmp_path / "alpha", "approvals:\n  approvers: ['key:0f3a']\n")
    (one,) = ask(stage, "job", TELL)
    decided = Resolve(one, ApprovalDecision.APPROVED)
    with nullcontext() if may else pytest.raises(Refused, match="not-an-approver"):
        stage.handle("job", decided, role, actor)
    assert asked(stage, "job") == ["approved" if may else "pending"]


@pytest.mark.parametrize("mark", [{"OPENCLAW_SHELL": "acp"}, {"OPENCLAW_SUBAGENT_EXEC": "1"}, {"MAILBOXD_INSIDE": "1"}])
@pytest.mark.parametrize(
    "order",
    [
        ["approve"],
        ["reject", "--note", "x"],
        ["ask-changes", "--note", "x"],
        ["undo", "--action"],
    ],
)
def test_an_agent_in_its_turn_decides_nothing(stage: Stage, order: list[str], mark: dict[str, str | None]) -> None:
    (one,) = ask(stage, "job", TELL)
    refused = stage.run(*order, short(one), env=mark)
    assert (refused.exit_code, "(permission-denied)" in refused.stderr) == (1, True)
    assert asked(stage, "job") == ["pending"]


# Names


@pytest.mark.parametrize(
    "name", ["", "ab", "../etc", "%", "______", "a" * 41, "zzzzzz", "\udcff\udcff\udcff\udcff\udcff\udcff"]
)
@pytest.mark.parametrize("verb", [["undo", "--action"], ["approve"]])
def test_an_unknown_request_is_reported(stage: Stage, verb: list[str], name: str) -> None:
    ask(stage, "job", TELL)
    refused = stage.run(*verb, name)
    assert refused.exit_code == 69
    assert f"`{stage.program} approve" in refused.stderr


def test_a_name_that_fits_several_lists_them(stage: Stage) -> None:
    one, two = ask(stage, "job", PUBLISH, TELL)
    with stage.engine() as engine:
        twin = f"apr_{'0' * 20}{one[-6:]}"
        engine.store.db.execute("UPDATE approvals SET id = ? WHERE id = ?", (twin, two))
    refused = stage.run("approve", short(one))
    assert refused.exit_code == 69
    assert one in refused.stderr
    assert twin in refused.stderr
    assert stage.run("show", one).exit_code == 0


# Taking back


@pytest.mark.slow
def test_an_action_can_be_undone_with_another_approval(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    refused = stage.run("undo", "--action", short(one))
    assert (refused.exit_code, "(not-performed)" in refused.stderr) == (1, True)
    stage.run("approve", short(one))
    perform(stage, one)
    assert stage.phase("job") == "completed"
    told = pasted(stage, stage.run("show", short(one)).stdout, "undo")
    assert (told.exit_code, "the undo needs approval" in told.stdout) == (0, True)
    (cause,) = stage.json("why", "job")["because"][1:]
    assert (cause["kind"], cause["text"]) == ("undo", f"the undo of {short(one)} is being prepared")
    (back,) = prepare(stage, "make unpublish")
    (cause,) = stage.json("why", "job")["because"][1:]
    assert (cause["kind"], cause["text"]) == ("undo", f"waits for approval {short(back)}: undo {short(one)}")
    assert cause["hint"] == f"{stage.program} show {short(back)}"
    assert f"{short(back)}  undo        undo {short(one)}: run make unpublish" in stage.run("approve").output
    assert stage.json("show", short(one))["taken_back"][0]["id"] == back
    assert stage.run("undo", "--action", short(one)).exit_code == 1
    assert stage.run("approve", short(back)).exit_code == 0
    (cause,) = stage.json("why", "job")["because"][1:]
    assert cause["text"] == f"{short(one)} is about to be undone, as {short(back)} was approved"
    perform(stage, back)
    assert len(stage.json("why", "job")["because"]) == 1
    assert stage.json("show", short(back))["state"] == "done"
    told = stage.run("undo", "--action", short(one))
    assert (told.exit_code, "already been undone" in told.stdout) == (0, True)
    assert stage.run("approve").output.count("undo") == 0
    assert stage.phase("job") == "completed"


def test_an_action_without_undo_cannot_be_undone(stage: Stage) -> None:
    (one,) = ask(stage, "job", TELL)
    stage.run("approve", short(one))
    refused = stage.run("undo", "--action", short(one))
    assert (refused.exit_code, "(no-undo)" in refused.stderr) == (1, True)


# Elsewhere


def test_a_harness_that_asks_is_listed_and_answered(stage: Stage) -> None:
    ask(stage, "first", TELL)
    stage.create("job")
    stage.start()
    stage.handle("job", PermissionAsked("apr_01JD0000000000000000ABCDEF", "trn_1", "edit /etc/hosts", "the diff"))
    assert "abcdef  permission  edit /etc/hosts" in stage.run("approve").output
    assert stage.json("why", "job")["because"][-1]["hint"] == f"{stage.program} show abcdef"
    assert stage.run("reject", "abcdef", "--note", "no").exit_code == 0
    assert stage.phase("job") == "executing"


def test_status_and_why_show_pending_approvals_and_how_to_decide(stage: Stage) -> None:
    one, _ = ask(stage, "job", PUBLISH, TELL)
    items = [item for item in stage.json("status")["attention"] if item["kind"] == "approval"]
    assert [item["task"] for item in items] == ["job", "job"]
    assert items[0]["command"].endswith(f" show {short(one)}")
    (cause,) = [cause for cause in stage.json("why", "job")["because"] if cause["kind"] == "approval"]
    assert all(part in cause["text"] for part in (short(one), "run make publish", "1 more")), cause
    assert cause["hint"] == f"{stage.program} show {short(one)}"
    assert "expires" in cause["then"]


def test_ids_are_completed(stage: Stage) -> None:
    one, _ = ask(stage, "job", PUBLISH, TELL)
    env: dict[str, str | None] = {
        "_MAILBOXD_COMPLETE": "bash_complete", "COMP_WORDS": f"mailboxd -w {stage.ws.root} approve {short(one)[:5]}",
        "COMP_CWORD": "4",
    }  # fmt: skip
    assert short(one) in stage.run(env=env).output


def test_on_a_terminal_it_is_shown_before_it_is_approved(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    monkeypatch.setattr("mailboxd.cli.commands.approvals.is_terminal", lambda: True)
    said = stage.run("approve", short(one)).stdout
    assert said.index("What would happen") < said.index("approved by")


@pytest.mark.parametrize(
    ("words", "answer", "after"),
    [
        (("approve",), "n", "pending"),
        (("approve",), "", "pending"),
        (("approve",), "y", "approved"),
        (("approve", "--yes"), "", "approved"),
        (("reject", "--note", "no"), "n", "pending"),
        (("reject", "--note", "no", "-y"), "", "rejected"),
        (("ask-changes", "--note", "more"), "n", "pending"),
    ],
)
def test_on_a_terminal_it_asks_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], answer: str, after: str
) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    for name in ("is_terminal", "can_ask"):
        monkeypatch.setattr(f"mailboxd.cli.commands.approvals.{name}", lambda: True)
    said = stage.run(*words, short(one), text=f"{answer}\n")
    assert stage.json("show", one)["status"] == after
    assert said.exit_code == (0 if after != "pending" else 130)
    if "-y" not in words and "--yes" not in words:
        asked = said.stdout.rpartition("mailboxd ask-changes")[2]
        assert "run make publish" in asked
        assert "risk: " in asked
        assert f"digest: {stage.json('show', one)['digest']}" in asked
        assert "[y/N]" in said.output


def test_a_request_is_named_by_its_task_unless_it_has_several(stage: Stage) -> None:
    ask(stage, "job", PUBLISH)
    assert stage.run("approve", "job").exit_code == 0
    assert [one["status"] for one in stage.json("show", "job")["approvals"]] == ["approved"], "its only one"
    one, other = ask(stage, "two", PUBLISH, TELL)
    said = stage.run("approve", "two")
    assert said.exit_code == 69
    assert all(f"{short(name)} (" in said.stderr for name in (one, other))
    stage.create("quiet")
    assert "has not asked for an approval" in stage.run("approve", "quiet").stderr


def test_a_unique_beginning_names_the_task_or_the_request(stage: Stage) -> None:
    (one,) = ask(stage, "inv18-x", PUBLISH)
    (two,) = ask(stage, "other", TELL)
    assert stage.run("approve", "inv18").exit_code == 0
    assert stage.json("show", one)["status"] == "approved"
    rename(stage, one, "r5xaa6")
    rename(stage, two, "r5xzz6")
    for look in ("show", "approve"):
        refused = stage.run(look, "r5x")
        assert (refused.exit_code, "fits several approvals" in refused.stderr) == (69, True)
    assert stage.json("show", "r5xz")["task"] == "other"
    stage.create("r5xz-task")
    refused = stage.run("approve", "r5xz")
    assert (refused.exit_code, "fits the task r5xz-task and the request r5xzz6" in refused.stderr) == (69, True)
    assert stage.run("approve", "R5Xzz").exit_code == 0
    stage.create("inv19")
    refused = stage.run("approve", "inv1")
    assert (refused.exit_code, "fits several tasks" in refused.stderr) == (69, True)


def rename(stage: Stage, approval_id: str, short_id: str) -> None:
    with stage.engine() as engine:
        new = approval_id[:-6] + short_id.upper()
        engine.store.db.execute("UPDATE approvals SET id = ? WHERE id = ?", (new, approval_id))


def test_a_narrow_terminal_shows_all_of_the_action(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    action = stage.json("show", one)["requested_action"]
    for look in (("inbox",), ("show", short(one)), ("status",)):
        said = stage.run(*look, env={"COLUMNS": "40"}).stdout
        assert action in " ".join(said.split()), look


def test_the_unknown_is_named_as_such(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    stage.run("approve", short(one))
    perform(stage, one, Performed.UNKNOWN)
    assert stage.phase("job") == "circuit_open"
    assert "approved" in (said := stage.run("approve", "--history").output)
    assert "unknown" in said
    assert json.loads(stage.run("show", short(one), "--json").output)["artifact"].startswith("art_")


def test_without_an_id_it_lists_and_decides_nothing(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    assert short(one) in stage.run("approve").stdout
    for words in (["--yes"], ["--note", "fine"], ["--digest", "9c1185a5"], ["--task", "job"]):
        assert stage.run("approve", *words).exit_code == 2
    for words in (["--history"], ["--history", "--task", "job"]):
        assert stage.run("approve", short(one), *words).exit_code == 2
        assert stage.run("approve", *words).exit_code == 0
    assert stage.json("show", short(one))["status"] == "pending"


def test_show_takes_a_task_before_a_request(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    assert stage.json("show", "job")["local_id"] == "job"
    assert stage.json("show", one.lower())["id"] == one
    stage.create(short(one))
    assert stage.json("show", short(one))["local_id"] == short(one)
    assert stage.run("show", short(one)[1:] + "zz").exit_code == 69


@pytest.mark.parametrize("verb", ["approve", "reject", "ask-changes"])
def test_the_decisions_that_show_prints_run(stage: Stage, verb: str) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    said = stage.run("show", short(one)).stdout
    assert pasted(stage, said, verb).exit_code == 0
    assert stage.json("show", short(one))["status"] != "pending"


def pasted(stage: Stage, said: str, verb: str) -> Result:
    """The only command with this verb that was printed, as a person runs it outside of the workspace."""
    (line,) = [line for line in said.splitlines() if line.startswith(f"{stage.program} {verb}")]
    return CliRunner().invoke(program, shlex.split(line)[1:], obj=Session(clock=stage.clock), prog_name="mailboxd")
