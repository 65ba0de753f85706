"""Planned actions with a real daemon: nothing happens before a person's yes, and then once (docs/side-effects.md)."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

import pytest
import yaml

from tests.e2e.acting import (
    ALONE,
    WORK,
    acting,
    approve,
    approved,
    asked,
    effect,
    happened,
    row,
    rows,
    runner,
    runner_pids,
    until_state,
)
from tests.e2e.conftest import Found
from tests.e2e.support import PATIENCE, eventually, spawned, task

pytestmark = pytest.mark.slow
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "witness"


# ---------------------------------------------------------------- a person's word


def test_nothing_happens_before_a_yes_and_then_all_of_it_in_order(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE, actions={"environment": ["SECRET"]})
    alpha = company["alpha"]
    conf = witness.parent / "conf"
    actions = [
        effect(witness, "echo $SECRET", env=["SECRET"]),
        {"id": "conf", "kind": "file", "path": str(conf), "source": "tasks/conf"},
    ]
    (alpha.root / "tasks" / "conf").write_text("as shown\n")
    alpha.start(env={"SECRET": "hunter2"})
    alpha.drop("job.md", acting("job", actions))
    ids = asked(alpha, 2)
    (alpha.root / "tasks" / "conf").write_text("swapped\n")
    alpha.until("job", "awaiting_approval")
    assert happened(witness) == 0
    assert not conf.exists()
    approve(alpha, *ids)
    alpha.until("job")
    assert happened(witness) == 1
    assert conf.read_text() == "as shown\n"
    first, second = (next(found for found in rows(alpha) if found["action"].count(kind)) for kind in ("argv", "conf"))
    assert first["state"] == second["state"] == "done"
    assert first["finished_at"] <= second["started_at"], "in the order they were declared in"
    report = alpha.query("SELECT body FROM v_artifacts WHERE id = ?", first["artifact"])[0]["body"]
    assert report == "${SECRET}\n"
    said = (alpha.root / ".mailboxd" / "mailboxd.db").read_bytes() + alpha.log.read_bytes()
    assert b"hunter2" not in said
    company.at_rest()
    assert list((alpha.root / ".mailboxd" / "gates").iterdir()) == []


@pytest.mark.soak
def test_an_approver_who_was_removed_has_no_power_over_what_has_not_begun(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals={**ALONE, "approvers": [ME]})
    alpha = company["alpha"]
    name = approved(company, [effect(witness)])
    with_me = yaml.safe_load(alpha.config.read_text())
    without = with_me["approvals"] | {"approvers": ["somebody-else"]}
    alpha.config.write_text(yaml.safe_dump(with_me | {"approvals": without}))
    said, errors = runner(alpha, name).communicate(timeout=60 * PATIENCE)
    assert f"{ME}, who approved it, is no longer among approvals.approvers" in said, errors
    alpha.start()
    first, second = eventually(lambda: rows(alpha) if len(rows(alpha)) == 2 else [], 20, alpha.last_words)
    assert (first["status"], second["status"]) == ("expired", "pending")
    why = f"asked again: {ME}, who approved it, is no longer among approvals.approvers"
    assert why in alpha.call("approve").stdout
    assert happened(witness) == 0
    assert "(not-an-approver)" in alpha.call("approve", second["id"]).stderr
    alpha.stop()
    alpha.config.write_text(yaml.safe_dump(with_me))
    alpha.start()
    approve(alpha, second["id"])
    alpha.until("job")
    assert happened(witness) == 1
    company.at_rest()


@pytest.mark.parametrize(
    ("verb", "phase"), [("reject --note no", "failed"), ("cancel", "cancelled")], ids=["no", "cancelled"]
)
def test_after_a_no_nothing_happens(found: Found, witness: Path, verb: str, phase: str) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness)]))
    [name] = asked(alpha)
    assert alpha.call(*verb.split(), "job" if verb == "cancel" else name, "--now").returncode == 0
    alpha.until("job", phase)
    refused = runner(alpha, name)
    assert refused.wait(20) == 1
    assert happened(witness) == 0
    eventually(lambda: not list((alpha.root / ".mailboxd" / "gates").iterdir()), 5)
    company.at_rest()


def test_requests_live_through_a_restart(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.drop("job.md", acting("job", [effect(witness)]))
    alpha.start()
    [name] = asked(alpha)
    alpha.kill()
    approve(alpha, name)
    assert happened(witness) == 0
    alpha.start()
    alpha.until("job")
    assert happened(witness) == 1
    company.at_rest()


def test_what_the_machine_refuses_for_now_is_tried_again_and_is_no_verdict(found: Found, witness: Path) -> None:
    """A program that somebody writes at this moment (ETXTBSY) is refused as it is without descriptors or memory."""
    program = witness.parent / "publish"
    program.write_text(f"#!/bin/sh\necho happened >> {witness}\n")
    program.chmod(0o755)
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.drop("job.md", acting("job", [{"id": "act", "kind": "command", "argv": [str(program)]}]))
    alpha.start()
    with program.open("ab"):
        approve(alpha, *asked(alpha))
        eventually(lambda: "busy" in row(alpha)["summary"], 20, alpha.last_words)
        eventually(lambda: "waits: exit status 75" in alpha.last_words(), 20, alpha.last_words)
        assert (row(alpha)["state"], row(alpha)["tries"]) == ("", 0)
        assert alpha.phase("job") == "ready_to_resume"
    alpha.until("job")
    assert happened(witness) == 1
    company.at_rest()


@pytest.mark.soak
def test_lobster_that_is_not_installed_is_said_and_the_gate_is_ours(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals={"lobster": ["no-such-lobster"]})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness)]))
    approve(alpha, *asked(alpha))
    alpha.until("job")
    assert row(alpha)["gate"] == "builtin: no-such-lobster is not installed"
    assert happened(witness) == 1


def test_what_cannot_be_performed_as_declared_is_never_asked(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [{"id": "f", "kind": "file", "path": "/no/such/place", "content": "x"}]))
    task = alpha.until("job", "circuit_open")
    assert "/no/such cannot be opened" in task["reason"]
    assert rows(alpha) == []
    assert list((alpha.root / ".mailboxd" / "gates").iterdir()) == []


# ---------------------------------------------------------------- once


def test_six_runners_at_once_are_one_effect(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    name = approved(company, [effect(witness, "sleep 0.3")])
    runners = [runner(alpha, name) for _ in range(6)]
    ends = sorted(process.wait(30) for process in runners)
    assert ends == [0, 1, 1, 1, 1, 1]
    assert happened(witness) == 1
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert happened(witness) == 1


@pytest.mark.parametrize("inside", [True, False])
def test_a_runner_that_an_agent_starts_runs_nothing(found: Found, witness: Path, inside: bool) -> None:
    """It may find the verb, and the id; without a person's yes there is nothing to run, and in its shell never."""
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    if inside:
        name = approved(company, [effect(witness)])
        process = runner(alpha, name, OPENCLAW_SHELL="exec")
    else:
        alpha.drop("job.md", acting("job", [effect(witness)]))
        alpha.run()
        process = runner(alpha, row(alpha)["id"])
    assert process.wait(20) == 1
    assert happened(witness) == 0
    assert row(alpha)["state"] == ""


# ---------------------------------------------------------------- begun, and nobody saw its end


def test_a_runner_that_dies_leaves_its_effect_alive_and_nobody_runs_it_again(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    go = witness.with_name("go")
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness, "echo began", wait)]))
    [name] = asked(alpha)
    approve(alpha, name)
    [pid] = eventually(lambda: runner_pids(alpha, name), 20)
    until_state(alpha, "started")
    eventually(lambda: spawned(alpha.root / ".mailboxd" / "gates" / name / "effect"), 10)
    os.kill(pid, signal.SIGKILL)
    alpha.kill()
    alpha.start()
    eventually(lambda: alpha.query("SELECT 1 FROM v_outbox WHERE kind = 'perform' AND tries > 1"), 20, alpha.last_words)
    assert row(alpha)["state"] == "started", "it may still happen: nothing is said yet"
    assert alpha.phase("job") == "ready_to_resume"
    go.touch()
    alpha.until("job", "circuit_open")
    found_ = row(alpha)
    assert found_["state"] == "unknown"
    assert happened(witness) == 1
    report = alpha.query("SELECT body FROM v_artifacts WHERE id = ?", found_["artifact"])[0]["body"]
    assert report == "began\n"


@pytest.mark.parametrize(
    ("verify", "did", "state", "phase"),
    [
        (["/usr/bin/test", "-s"], True, "done", "completed"),
        (["/usr/bin/test", "-s"], False, "failed", "circuit_open"),
        (["/bin/sh", "-c", "exit 7"], True, "unknown", "circuit_open"),
        (["/no/such/program"], True, "unknown", "circuit_open"),
    ],
    ids=["it-did", "it-did-not", "it-cannot-say", "it-is-not-there"],
)
def test_verify_settles_what_nobody_saw(
    found: Found, witness: Path, verify: list[str], did: bool, state: str, phase: str
) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    act = effect(witness, verify=[*verify, str(witness)])
    act["argv"][2] = f"{act['argv'][2]}; kill -9 $$" if did else "kill -9 $$"
    alpha.start()
    alpha.drop("job.md", acting("job", [act]))
    approve(alpha, *asked(alpha))
    alpha.until("job", phase)
    assert row(alpha)["state"] == state
    assert len(alpha.events("action.ended")) == 2
    assert happened(witness) == did


@pytest.mark.soak
def test_a_verify_that_is_another_one_than_was_approved_does_not_run(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    (alpha.root / "is-it.sh").write_text("exit 0\n")
    swap = f"echo 'echo happened >> {witness}' > is-it.sh; kill -9 $$"
    act = {"id": "act", "kind": "command", "argv": ["/bin/sh", "-c", swap], "verify": ["/bin/sh", "is-it.sh"]}
    alpha.start()
    alpha.drop("job.md", acting("job", [act]))
    approve(alpha, *asked(alpha))
    task = alpha.until("job", "circuit_open")
    assert row(alpha)["state"] == "unknown"
    assert "it cannot be verified: a file that verify names has changed since it was approved" in task["reason"]
    assert happened(witness) == 0
    eventually(lambda: not list((alpha.root / ".mailboxd" / "gates").iterdir()), 5)


def test_its_time_is_over_and_its_outcome_unknown(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness, "sleep 60", timeout=1)]))
    approve(alpha, *asked(alpha))
    task = alpha.until("job", "circuit_open")
    assert "did not end within 1 s" in task["reason"]
    assert happened(witness) == 0


def test_a_cancel_does_not_stop_what_has_begun(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    go = witness.with_name("go")
    alpha.drop("job.md", acting("job", [effect(witness, f"while [ ! -e {go} ]; do sleep 0.05; done")]))
    approve(alpha, *asked(alpha))
    until_state(alpha, "started")
    assert alpha.call("cancel", "job", "--now").returncode == 0
    alpha.until("job", "cancelled")
    assert row(alpha)["state"] == "started"
    go.touch()
    assert until_state(alpha, "done", "unknown", "failed")["state"] == "done"
    assert happened(witness) == 1
    company.at_rest()


@pytest.mark.parametrize("order", ["cancel", "pause"])
def test_the_next_action_does_not_begin_while_a_cancel_is_held_or_the_task_is_paused(
    found: Found, witness: Path, order: str
) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    go = witness.with_name("go")
    first = effect(witness, f"while [ ! -e {go} ]; do sleep 0.05; done", id="first")
    alpha.drop("job.md", acting("job", [first, effect(witness, id="second")]))
    approve(alpha, *asked(alpha, 2))
    eventually(lambda: [one["state"] for one in rows(alpha)] == ["started", ""])
    assert alpha.call(order, "job").returncode == 0
    go.touch()
    eventually(lambda: [one["state"] for one in rows(alpha)] == ["done", ""])
    if order == "cancel":
        alpha.until("job", "cancelled")
    else:
        alpha.stop()
        alpha.run()  # to its end: what is paused keeps nobody
        assert "paused by" in alpha.call("why", "job").stdout
        assert happened(witness) == 1
        alpha.start()
        assert alpha.call("resume", "job").returncode == 0
        alpha.until("job")
    assert happened(witness) == (1 if order == "cancel" else 2)
    company.at_rest()


def test_what_is_approved_below_a_paused_task_waits_and_says_so(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    child = {"agent": "self", "description": "Publish", "planned_actions": [effect(witness)]}
    alpha.drop("job.md", task("job", plan={"part": child}))
    ids = asked(alpha)
    assert alpha.call("pause", "job").returncode == 0
    approve(alpha, *ids)
    alpha.until("job.part", "ready_to_resume")
    assert "job.part: performs nothing: job above it is paused" in alpha.call("why", "job.part").stdout
    assert alpha.call("resume", "job").returncode == 0
    alpha.until("job")
    assert happened(witness) == 1
    company.at_rest()


def test_a_runner_that_is_asked_to_stop_says_that_nobody_knows(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness, "sleep 60")]))
    [name] = asked(alpha)
    approve(alpha, name)
    until_state(alpha, "started")
    eventually(lambda: spawned(alpha.root / ".mailboxd" / "gates" / name / "effect"), 10)
    [pid] = runner_pids(alpha, name)
    os.kill(pid, signal.SIGTERM)
    task = alpha.until("job", "circuit_open")
    assert "told to stop" in task["reason"]
    assert happened(witness) == 0


def test_a_script_that_was_changed_after_the_yes_is_not_run(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    script = alpha.root / "deploy.sh"
    script.write_text("true\n")
    approved(company, [{"id": "act", "kind": "command", "argv": ["/bin/sh", "deploy.sh"]}])
    script.write_text(f"echo happened >> {witness}\n")
    alpha.start()
    task = alpha.until("job", "circuit_open", 40)
    assert "could not be begun" in task["reason"]
    assert "is not what was approved" in task["reason"]
    assert happened(witness) == 0


def test_what_was_done_is_taken_back_by_a_yes_of_its_own(found: Found, witness: Path) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness, undo=["/bin/rm", str(witness)])]))
    [name] = asked(alpha)
    approve(alpha, name)
    alpha.until("job")
    assert alpha.call("undo", "--action", name).returncode == 0
    _, back = asked(alpha, 2)
    assert happened(witness) == 1
    approve(alpha, back)
    eventually(lambda: rows(alpha)[-1]["state"] == "done", 20, alpha.last_words)
    assert not witness.exists()
    assert alpha.phase("job") == "completed"
    company.at_rest()


def test_a_script_that_is_exchanged_while_it_runs_is_said_to_be_another_one_now(found: Found) -> None:
    company = found({"alpha": WORK}, approvals=ALONE)
    alpha = company["alpha"]
    (alpha.root / "run.sh").write_text("echo '# exchanged' >> run.sh\n")
    alpha.start()
    alpha.drop("job.md", acting("job", [{"id": "act", "kind": "command", "argv": ["sh", "run.sh"]}]))
    approve(alpha, *asked(alpha))
    alpha.until("job")
    assert row(alpha)["summary"].endswith("run.sh, which it runs, is not the one that was approved")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["touch", "new.txt"], ""),
        (["rm", "there.txt"], ""),
        (["mv", "there.txt", "new.txt"], ""),
        (["cp", "other.txt", "there.txt"], "changed while it ran: there.txt"),
        (["sh", "write.sh", "there.txt"], "changed while it ran: there.txt"),
    ],
)
def test_what_an_action_was_approved_to_write_is_no_alarm(found: Found, argv: list[str], says: str) -> None:
    alpha = found({"alpha": WORK}, approvals=ALONE)["alpha"]
    (alpha.root / "there.txt").write_text("old\n")
    (alpha.root / "other.txt").write_text("other\n")
    (alpha.root / "write.sh").write_text("echo new > $1\n")
    alpha.start()
    alpha.drop("job.md", acting("job", [{"id": "act", "kind": "command", "argv": argv}]))
    approve(alpha, *asked(alpha))
    alpha.until("job")
    assert row(alpha)["state"] == "done"
    assert row(alpha)["summary"].partition("; ")[2] == says
