"""Whom a plan may name, through a running daemon: asked of OpenClaw, asked again when its configuration changes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import SCRIPTED, eventually, task

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"default": {"reply": "Text."}}
DISCOVERS = {"discovery": "true"}


def gives_to(agent: str) -> dict[str, Any]:
    return {"x": {"agent": agent, "description": "X", "expected_output": "One line."}}


def test_an_agent_that_is_added_to_openclaw_is_known_without_a_restart(found: Found) -> None:
    company = found({"alpha": WORK}, openclaw=DISCOVERS, synthesis="concat", inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("before", plan=gives_to("beta")))
    eventually(lambda: alpha.rejections() == {"1.md": "unknown-agent"}, why=alpha.last_words)
    company.rewrite({"alpha": WORK, "beta": WORK})
    alpha.drop("2.md", task("after", plan=gives_to("beta")))
    alpha.until("after")
    assert b"has changed" in alpha.log.read_bytes()
    company.rewrite({"alpha": {**WORK, "allow": []}, "beta": WORK})
    alpha.drop("3.md", task("revoked", plan=gives_to("beta")))
    eventually(lambda: alpha.rejections().get("3.md") == "unknown-agent", why=alpha.last_words)
    company.at_rest()
    assert len(company.executions(agent="beta")) == 1


def test_work_for_an_agent_that_is_no_more_waits_for_a_person_and_goes_on_when_it_is_there_again(found: Found) -> None:
    plan = {**gives_to("beta"), "y": {"agent": "beta", "description": "Y", "depends_on": ["x"]}}
    slow = {"default": {"reply": "Text.", "delay": 4}}
    company = found({"alpha": WORK, "beta": slow}, openclaw=DISCOVERS, synthesis="concat", inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=plan))
    eventually(lambda: company.executions(agent="beta"), why=alpha.last_words)
    company.rewrite({"alpha": WORK})
    eventually(lambda: "there is no agent beta" in alpha.call("why", "job.y").stdout, why=alpha.last_words)
    assert alpha.phase("job.y") == "execution_ready"
    assert alpha.attempts("job.y") == []
    assert [(item["task"], item["kind"]) for item in alpha.json("inbox")] == [("job.y", "agent")]
    assert alpha.log.read_bytes().count(b"work waits for the agent beta") == 1
    company.rewrite({"alpha": WORK, "beta": WORK})
    alpha.until("job")
    company.at_rest()


def test_an_own_agent_that_openclaw_does_not_know_is_one_red_item_and_nothing_runs(found: Found) -> None:
    company = found({"alpha": WORK}, openclaw=DISCOVERS, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    company.rewrite({"other": WORK})
    alpha.start()
    for number in range(3):
        alpha.drop(f"{number}.md", task(f"job{number}"))
    (item,) = eventually(lambda: alpha.json("inbox"), why=alpha.last_words)
    assert "OpenClaw has no agent alpha, only other" in item["text"]
    assert item["kind"] == "health"
    doctor = alpha.call(*shlex.split(item["command"])[1:]).stdout
    assert "agents add alpha --workspace" in doctor
    eventually(lambda: alpha.phases() == {f"job{number}": "execution_ready" for number in range(3)})
    assert "health     red" in alpha.call("status").stdout
    assert len(alpha.json("inbox")) == 1
    assert "OpenClaw has no agent alpha" in alpha.call("why", "job0").stdout
    company.rewrite({"alpha": WORK})
    for number in range(3):
        alpha.until(f"job{number}")
    assert alpha.json("inbox") == []
    assert [len(alpha.attempts(f"job{number}")) for number in range(3)] == [1, 1, 1]
    company.at_rest()


def test_several_tasks_that_wait_for_one_agent_are_one_item(found: Found) -> None:
    plan = {key: {"agent": "beta", "description": key, "depends_on": ["x"]} for key in ("y", "z")} | gives_to("beta")
    slow = {"default": {"reply": "Text.", "delay": 4}}
    company = found({"alpha": WORK, "beta": slow}, openclaw=DISCOVERS, synthesis="concat", inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=plan))
    eventually(lambda: company.executions(agent="beta"), why=alpha.last_words)
    company.rewrite({"alpha": WORK})
    eventually(lambda: alpha.json("inbox"), why=alpha.last_words)
    eventually(lambda: "2 tasks wait for an agent: there is no agent beta" in alpha.json("inbox")[0]["text"])
    assert len(alpha.json("inbox")) == 1
    listed = alpha.call(*shlex.split(alpha.json("inbox")[0]["command"])[1:]).stdout
    assert all(name in listed for name in ("job.y", "job.z"))
    company.rewrite({"alpha": WORK, "beta": WORK})
    alpha.until("job")
    company.at_rest()


def test_init_says_that_openclaw_has_no_such_agent(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.config.write_text(alpha.config.read_text().replace("agent: alpha", "agent: zeta"))
    made = alpha.call("init", str(alpha.root), "--agent", "zeta")
    assert made.returncode == 0
    assert "OpenClaw has no agent zeta, only alpha" in made.stdout
    assert f"agents add zeta --workspace {alpha.root}" in made.stdout
    alpha.config.write_text(alpha.config.read_text().replace("agent: zeta", "agent: alpha"))
    assert "has no agent" not in alpha.call("init", str(alpha.root), "--agent", "alpha").stdout


def test_an_agent_that_plans_for_somebody_out_of_reach_hears_whom_it_may_reach(found: Found) -> None:
    """The refusal is told in the same session, and everybody can read it."""
    mended = {
        "match": {"kind": "work", "text": "to whom you may give work"},
        "plan": gives_to("beta"),
    }
    rules = [mended, {"match": {"kind": "work", "task": "job"}, "plan": gives_to("gamma")}]
    alpha_acts = {**WORK, "allow": ["beta"], "rules": rules}
    company = found({"alpha": alpha_acts, "beta": WORK, "gamma": WORK}, openclaw=DISCOVERS, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    (attempt,) = alpha.attempts("job")
    assert attempt["status"] == "succeeded"
    (asked,) = alpha.events("answer.unclear")
    assert "there is no agent 'gamma' to whom you may give work" in asked["data"]["problems"][0]
    assert "There are alpha, beta, self" in asked["data"]["problems"][0]
    assert "'gamma' to whom you may give work" in alpha.call("log", "job").stdout
    company.at_rest()
    assert company.executions(agent="gamma") == []


def test_why_says_whom_the_plan_of_a_task_that_pauses_may_not_name(found: Found) -> None:
    rules = [{"match": {"kind": "work", "task": "job"}, "plan": gives_to("gamma")}]
    company = found(
        {"alpha": {**WORK, "allow": [], "rules": rules}, "gamma": WORK},
        openclaw=DISCOVERS,
        retry={"backoff_seconds": 300, "backoff_max_seconds": 300},
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: alpha.task("job").get("failures"), why=alpha.last_words)
    (cause,) = alpha.json("why", "job")["because"]
    assert cause["kind"] == "backoff"
    assert "does not let alpha give work to gamma; it may reach nobody" in cause["text"]
    assert alpha.call("cancel", "job", "--now").returncode == 0
    company.at_rest()


def test_a_planner_is_told_what_its_peers_are_for(found: Found) -> None:
    rules = [
        {"match": {"kind": "work", "text": r"beta: Bea; writes short reports\n<<<end"}, "reply": "It knows."},
        {"match": {"kind": "work"}, "reply": "It does not."},
    ]
    beta = {**WORK, "name": "Bea"}
    company = found({"alpha": {"rules": rules}, "beta": beta}, openclaw=DISCOVERS)
    company["beta"].root.mkdir(parents=True)
    (company["beta"].root / "IDENTITY.md").write_text(
        "# Who am I?\n\n- **Name:** Bea\n- **Theme:** writes short reports\n"
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.task("job")["result"] == "It knows."
    company.at_rest()


def test_an_identity_that_is_a_link_a_pipe_or_too_long_is_not_read(found: Found) -> None:
    rules = [{"match": {"kind": "work", "text": "secret"}, "reply": "It leaks."}]
    company = found({"alpha": {**WORK, "rules": rules}, "beta": WORK, "gamma": WORK, "delta": WORK}, openclaw=DISCOVERS)
    for name in ("beta", "gamma", "delta"):
        company[name].root.mkdir(parents=True)
    (company.root / "elsewhere").write_text("- Theme: secret\n")
    (company["beta"].root / "IDENTITY.md").symlink_to(company.root / "elsewhere")
    os.mkfifo(company["gamma"].root / "IDENTITY.md")
    (company["delta"].root / "IDENTITY.md").write_text("x" * 9000 + "\n- Theme: secret\n")
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.task("job")["result"] == "Text."
    company.at_rest()


def test_an_agent_that_is_called_like_a_person_is_given_nothing(found: Found) -> None:
    """`from: operator` means a person: what an agent of that name sends must not be able to count as that."""
    company = found({"alpha": WORK, "operator": WORK}, openclaw=DISCOVERS)
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=gives_to("operator")))
    alpha.run()
    assert alpha.rejections() == {"go.md": "unknown-agent"}
    assert b"the agent operator has a name reserved for operators" in alpha.log.read_bytes()
    alpha.config.write_text(alpha.config.read_text().replace("agent: alpha", "agent: Operator"))
    refused = alpha.call("run", "--until-idle")
    assert refused.returncode == 78
    assert "rename the agent" in refused.stderr


def test_until_openclaw_has_said_whom_it_may_reach_nobody_else_is_given_work(found: Found, tmp_path: Path) -> None:
    """`openclaw agent` would refuse nobody, so an answer that fails must not open the door."""
    broken = tmp_path / "openclaw"
    refuses = 'case "$*" in *"config get agents"*) echo config is invalid >&2; exit 1;; esac'
    broken.write_text(f'#!/bin/sh\n{refuses}\nexec {SCRIPTED} "$@"\n')
    broken.chmod(0o755)
    command = [str(broken), "--script", str(tmp_path / "company0" / "script.yaml")]
    company = found({"alpha": WORK, "beta": WORK}, openclaw={**DISCOVERS, "command": command})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("own.md", task("own"))
    alpha.drop("given.md", task("given", plan=gives_to("beta")))
    alpha.until("own")
    eventually(lambda: alpha.rejections() == {"given.md": "unknown-agent"}, why=alpha.last_words)
    assert "it is not known yet" in str(alpha.mail("rejected")[0]["reason"])
    company.at_rest()
    assert company.executions(agent="beta") == []


def test_an_openclaw_that_is_too_old_is_given_nothing(found: Found, tmp_path: Path) -> None:
    old = tmp_path / "openclaw"
    old.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "OpenClaw 2026.1.2" && exit\nexec {SCRIPTED} "$@"\n')
    old.chmod(0o700)
    company = found({"alpha": WORK}, openclaw={"discovery": "true", "command": [str(old)]})
    alpha = company["alpha"]
    alpha.drop("1.md", task("job"))
    done = alpha.call("run", "--until-idle")
    assert done.returncode == 78, done.stderr
    assert "OpenClaw 2026.1.2 is too old" in done.stderr
    assert company.executions() == []
    assert alpha.unread()
