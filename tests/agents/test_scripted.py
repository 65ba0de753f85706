"""The stand-in keeps the contract of the real OpenClaw: whatever reads the one can read the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.outcomes import Aborted, Failed, Permanence, Succeeded, Unknown
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw import (
    AGENTS_LIST,
    Allowed,
    OpenClaw,
    Peer,
    config_get,
    messaging,
    parse_agents,
    parse_rules,
    parse_section,
    parse_version,
)
from mailboxd.perform.agents.openclaw_runs import (
    FetchReply,
    LostTurn,
    ReplySource,
    RunStatus,
    parse_reply,
    parse_run,
    resolve,
)
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.scripted.script import Ledger, Message, runs

REPOSITORY = Path(__file__).parents[2]
STAND_IN = (sys.executable, "-m", "mailboxd.perform.agents.scripted")
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
KEY = "agent:alpha:mailboxd:t1-1-00"
WORK = "[mailboxd] work turn · task t1.a · attempt 2\n\n# Write it\n\n## Context\n\nthe context\n"
DISPATCH = """---
type: task
task_id: "t1"
subtask_id: a
from: alpha
message_id: msg_1
attempt: 2
attempt_id: att_9
reply_token: tok
---

# Task: Write it

## Context

the context
"""

SCRIPT = r"""
agents:
  alpha:
    workspace: ws/alpha
    name: The first
    allow: [beta]
    rules:
      - {match: {kind: plan}, plan: {one: {agent: beta, description: "do {title}"}}}
      - {match: {kind: work, task: 't1\.a', attempt: "2"}, reply: "{local_id} {attempt} {title} {context} {absent} {"}
      - {match: twice, times: 2, reply: counted}
      - {match: twice, reply: later}
      - {match: unclear, question: "which {title}?"}
      - {match: lose, lose_reply: true, reply: did it, writes: {out/a.md: "{title}"}}
      - {match: escape, writes: {../b.md: x}}
      - {match: garbage, garbage: "Welcome!"}
      - {match: hang, hang: 100}
      - {match: down, fail: {kind: not_started}}
      - {match: no, fail: {kind: permanent, error: no}}
      - {match: busy, fail: {kind: rate_limit}}
      - {match: broken, fail: {error: broken, kind: transient}}
      - {match: crash, fail: {kind: transient, rc: 3}}
  beta:
    workspace: ws/beta
    mailbox: true
  gamma:
    workspace: ws/gamma
    rules:
      - {match: {from: alpha}, late_reply: {after: 0, reply: "late {title}"}}
"""

Call = Callable[..., Exit]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Run the stand-in with the script above."""
    (tmp_path / "s.yaml").write_text(SCRIPT)
    openclaw = OpenClaw((*STAND_IN, "--script", str(tmp_path / "s.yaml")))

    def called(question: str, *arguments: Any, **environ: str) -> Exit:
        if question == "turn":
            agent, text = arguments
            (tmp_path / "prompt.md").write_text(text, encoding="utf-8")
            argv = openclaw.turn_argv(agent, KEY.replace("alpha", agent), tmp_path / "prompt.md", 1)
        else:
            known = {"version": ("--version",), "agents_list": AGENTS_LIST}
            known |= {"config_agents": config_get("agents"), "tools": config_get("tools")}
            words = known.get(question)
            argv = openclaw.argv(*words) if words else getattr(openclaw, f"{question}_argv")(*arguments)
        done = subprocess.run(argv, env={**ENVIRONMENT, **environ}, capture_output=True, check=False)
        return Exit(done.returncode, done.stdout, done.stderr)

    return called


def ledger(tmp_path: Path) -> list[dict[str, Any]]:
    return Ledger(tmp_path / "s.yaml.ledger.jsonl").entries()


def said(exit_: Exit) -> str:
    outcome = classify(exit_)
    assert isinstance(outcome, Succeeded), outcome
    return outcome.text


def test_the_version_says_that_it_is_a_stand_in(call: Call) -> None:
    exit_ = call("version")
    assert parse_version(exit_) == (2026, 9, 6)
    assert b"stand-in" in exit_.stdout
    assert b"stand-in" in call("turn", "alpha", WORK).stderr


def test_the_first_matching_rule_answers_with_values_of_the_message(call: Call) -> None:
    outcome = classify(call("turn", "alpha", WORK))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "t1.a 2 Write it the context {absent} {"
    assert outcome.run_id
    assert outcome.session_ref
    assert outcome.usage.cost_usd


def test_without_a_rule_it_answers_all_the_same(call: Call) -> None:
    assert said(call("turn", "alpha", "# Something")) == "[scripted] Something: done."


@pytest.mark.slow
def test_a_rule_applies_so_many_times_and_then_the_next_one(call: Call) -> None:
    assert [said(call("turn", "alpha", "twice")) for _ in range(3)] == ["counted", "counted", "later"]


def test_a_plan_and_a_question_are_messages(call: Call) -> None:
    plan = Message(said(call("turn", "alpha", WORK.replace("work", "plan"))))
    assert (plan.kind, plan.task_id) == ("plan", "t1.a")
    assert "subtasks:\n  one:\n    agent: beta\n    description: do Write it\n" in plan.text
    question = Message(said(call("turn", "alpha", "# Task: It\n\nunclear")))
    assert question.kind == "question"
    assert "which It?" in question.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "started", "permanence"),
    [
        ("down", False, Permanence.TRANSIENT),
        ("no", True, Permanence.PERMANENT),
        ("busy", True, Permanence.TRANSIENT),
        ("broken", True, Permanence.TRANSIENT),
    ],
)
def test_failures_are_classified_like_real_ones(call: Call, text: str, started: bool, permanence: Permanence) -> None:
    outcome = classify(call("turn", "alpha", text))
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (started, permanence)
    status = RunStatus.FAILED if started else RunStatus.NOT_FOUND
    assert parse_run(call("tasks_show", KEY)).status is status


@pytest.mark.parametrize("text", ["garbage", "crash"])
def test_garbage_and_strange_exits_are_unknown(call: Call, text: str) -> None:
    assert isinstance(classify(call("turn", "alpha", text)), Unknown)


def test_a_turn_that_hangs_times_out(call: Call) -> None:
    outcome = classify(call("turn", "alpha", "hang"))
    assert isinstance(outcome, Failed)
    assert "timed out" in outcome.error
    assert parse_run(call("tasks_show", KEY)).status is RunStatus.TIMED_OUT


@pytest.mark.slow
def test_a_lost_reply_is_unknown_then_found_by_looking_it_up(call: Call, tmp_path: Path) -> None:
    outcome = classify(call("turn", "alpha", "# Title\n\nlose"))
    assert isinstance(outcome, Unknown)
    assert (tmp_path / "ws/alpha/out/a.md").read_text() == "Title"
    openclaw, lost = OpenClaw(()), LostTurn(KEY, outcome.run_id, waited=0, patience=60)
    answer = parse_run(call("tasks_show", KEY))
    assert (answer.run_id, answer.tool_use_count) == (outcome.run_id, 1)
    step = resolve(openclaw, lost, answer)
    assert isinstance(step, FetchReply)
    fetched = parse_reply(step.source, call("history", KEY), step.run_id)
    assert resolve(openclaw, lost, answer, fetched) == Succeeded("did it", run_id=outcome.run_id)
    assert parse_reply(ReplySource.WAIT, call("wait", outcome.run_id), outcome.run_id).text == "did it"
    assert [run.status for run in runs(ledger(tmp_path))] == ["succeeded"]


@pytest.mark.slow
def test_a_session_that_never_was_is_empty_and_has_no_row(call: Call) -> None:
    assert parse_run(call("tasks_show", "agent:alpha:none")).status is RunStatus.NOT_FOUND
    assert parse_reply(ReplySource.HISTORY, call("history", "agent:alpha:none"), None).empty
    assert parse_reply(ReplySource.WAIT, call("wait", "none"), None).text is None


def test_an_agent_writes_only_into_its_workspace(call: Call, tmp_path: Path) -> None:
    assert isinstance(classify(call("turn", "alpha", "escape")), Unknown)
    assert not (tmp_path / "ws/b.md").exists()


def test_a_mailbox_takes_a_protocol_message_and_acknowledges_it(call: Call, tmp_path: Path) -> None:
    ack = Message(said(call("turn", "beta", DISPATCH)))
    assert ack.headers == {
        "task_id": "t1",
        "subtask_id": "a",
        "from": "beta",
        "type": "ack",
        "attempt": "2",
        "attempt_id": "att_9",
        "reply_token": "tok",
        "in_reply_to": "msg_1",
    }
    (delivered,) = (tmp_path / "ws/beta/mailbox/inbox").iterdir()
    assert delivered.read_text() == DISPATCH
    assert said(call("turn", "beta", WORK)).startswith("[scripted]")


def test_where_mailboxd_is_set_up_the_mailbox_takes_messages_unless_the_script_says_no(
    call: Call, tmp_path: Path
) -> None:
    """The plugin of a gateway serves all workspaces. A reply that ended in a model's turn instead was lost."""
    (tmp_path / "ws/gamma/.mailboxd").mkdir(parents=True)
    assert Message(said(call("turn", "gamma", DISPATCH))).kind == "ack"
    (delivered,) = (tmp_path / "ws/gamma/mailbox/inbox").iterdir()
    assert delivered.read_text() == DISPATCH
    (tmp_path / "s.yaml").write_text(SCRIPT.replace("workspace: ws/gamma", "workspace: ws/gamma\n    mailbox: no"))
    said(call("turn", "gamma", DISPATCH))
    assert list((tmp_path / "ws/gamma/mailbox/inbox").iterdir()) == [delivered]


def test_a_late_reply_is_acknowledged_and_dropped_into_the_senders_inbox(call: Call, tmp_path: Path) -> None:
    inbox = tmp_path / "ws/alpha/mailbox/inbox"
    inbox.mkdir(parents=True)
    assert Message(said(call("turn", "gamma", DISPATCH))).kind == "ack"
    while not (arrived := [file for file in inbox.iterdir() if not file.name.startswith(".")]):
        os.sched_yield()
    reply = Message(arrived[0].read_text())
    assert (reply.kind, reply.task_id, reply.subtask_id) == ("reply", "t1", "a")
    assert (reply.headers["status"], reply.headers["reply_token"]) == ("done", "tok")
    assert reply.values()["results"] == "late Write it"


@pytest.mark.slow
def test_it_is_asked_about_its_agents_like_the_real_one(call: Call, tmp_path: Path) -> None:
    peers = parse_agents(call("agents_list"))
    assert peers is not None
    assert peers[0] == Peer("alpha", "The first", str(tmp_path / "ws/alpha"), is_default=True)
    assert [peer.id for peer in peers] == ["alpha", "beta", "gamma"]
    config = call("config_agents")
    alpha, beta = parse_rules(config, "alpha"), parse_rules(config, "beta")
    assert alpha is not None
    assert beta is not None
    assert alpha.allowed == Allowed(anyone=False, agents=frozenset({"beta"}))
    assert beta.allowed.anyone
    section = parse_section(call("tools"))
    assert section == {}
    assert messaging(section.get("agentToAgent"), (2026, 9, 6)).enabled


def test_errors_are_worded_like_openclaws(call: Call, tmp_path: Path) -> None:
    unknown = call("turn", "nobody", WORK)
    empty = call("turn", "alpha", " \n")
    for exit_ in (unknown, empty):
        outcome = classify(exit_)
        assert isinstance(outcome, Failed)
        assert (outcome.started, outcome.permanence) == (False, Permanence.PERMANENT)
    assert ledger(tmp_path) == []


ASKED_AGAIN = "[mailboxd] work turn · task t1.a · attempt 2\n\nYour last answer was not taken:\n\n- It is a refusal.\n"


@pytest.mark.slow
def test_an_agent_answers_in_its_dialect(call: Call, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "dialect: json\nagents:\n  alpha: {rules: [{reply: 'Forty chairs.', times: 1}]}\n"
        "  beta: {dialect: list, rules: [{plan: {one: {agent: self, description: It}}}]}\n"
    )
    assert json.loads(said(call("turn", "alpha", WORK))) == {
        "type": "reply",
        "status": "done",
        "results": "Forty chairs.",
    }
    assert "- id: one\n" in said(call("turn", "beta", WORK))
    assert said(call("turn", "alpha", "# Something")).startswith("[scripted]"), "no turn of mailboxd's"


@pytest.mark.slow
def test_after_an_evasion_it_answers_in_the_form_whatever_its_rules_say(call: Call, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "dialect: refusal\nagents: {alpha: {rules: [{times: 1, reply: 'For {title}'}, {reply: other}]}}"
    )
    assert said(call("turn", "alpha", WORK)).startswith("I'm sorry")
    assert said(call("turn", "alpha", ASKED_AGAIN)) == "For Write it"
    assert [entry["rule"] for entry in ledger(tmp_path) if entry["event"] == "begin"] == [0, -3]
    assert [run.meant for run in runs(ledger(tmp_path))] == ["For Write it", None]


@pytest.mark.slow
def test_an_answer_that_its_script_makes_unclear_is_left_to_the_script(call: Call, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "{dialect: any, agents: {alpha: {rules: "
        "[{match: {text: refusal}, reply: Forty chairs.}, {reply: I cannot help.}]}}}"
    )
    assert said(call("turn", "alpha", WORK)) == "I cannot help."
    assert said(call("turn", "alpha", ASKED_AGAIN)) == "Forty chairs."


@pytest.mark.slow
def test_a_vote_is_one_only_if_it_is_asked_for(call: Call, tmp_path: Path) -> None:
    form = "---\ntype: reply\nstatus: done\nanswer: yes\n---\n## Results\n\nBoth doors were tested.\n"
    script = {"dialect": "prose", "agents": {"alpha": {"default": {"reply": form}}}}
    (tmp_path / "s.yaml").write_text(json.dumps(script))
    decides = "**Result.** Declare your answer: what follows depends on whether it is yes or no."
    for asks in (f"{WORK}\n\n{decides}\n", DISPATCH.replace("attempt:", "answers: [yes, no]\nattempt:")):
        assert "status" not in said(call("turn", "alpha", asks))
    assert said(call("turn", "alpha", WORK)) == form


@pytest.mark.parametrize(
    "script",
    [
        "agents: {alpha: {dialect: martian}}",
        "",
        *(
            pytest.param(script, marks=pytest.mark.slow)
            for script in (
                "{dialect: martian, agents: {alpha: }}",
                "agents: {a: {rules: [{replay: x}]}}",
                "agents: {alpha: {rules: [{match: '['}]}}",
                "{ledger: absent/x, agents: {alpha: }}",
            )
        ),
    ],
)
def test_a_bad_script_is_named(call: Call, tmp_path: Path, script: str) -> None:
    (tmp_path / "s.yaml").write_text(script)
    exit_ = call("turn", "alpha", WORK)
    assert isinstance(classify(exit_), Unknown)
    assert "mailboxd-scripted-openclaw" in json.loads(exit_.stdout)["error"]["message"]


@pytest.mark.parametrize(("number", "rc"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_aborts_with_no_output(tmp_path: Path, number: signal.Signals, rc: int) -> None:
    os.mkfifo(tmp_path / "prompt.md")
    (tmp_path / "s.yaml").write_text("agents: {alpha: {rules: [{hang: 100}]}}")
    ledger_file = tmp_path / "s.yaml.ledger.jsonl"
    openclaw = OpenClaw(STAND_IN)
    process = subprocess.Popen(
        openclaw.turn_argv("alpha", KEY, tmp_path / "prompt.md", 200),
        env={**ENVIRONMENT, "MAILBOXD_SCRIPT": str(tmp_path / "s.yaml")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    (tmp_path / "prompt.md").write_text("x")
    while not Ledger(ledger_file).entries():
        os.sched_yield()
    (running,) = runs(Ledger(ledger_file).entries())
    assert running.status == "running"
    process.send_signal(number)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout, stderr) == (rc, b"", b"")
    assert isinstance(classify(Exit(rc, stdout, stderr)), Aborted)
    assert runs(Ledger(ledger_file).entries())[0].status == "cancelled"


def test_a_witness_can_count_executions_after_any_kill(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    book = Ledger(path)
    book.begin(lambda: {"run_id": "r1", "accepted": True, "session_key": "k"})
    path.write_bytes(path.read_bytes().replace(f'"pid": {os.getpid()}'.encode(), b'"pid": 999999999') + b'{"event": "e')
    book.append("end", run_id="r2", status="succeeded")
    assert [entry["event"] for entry in book.entries()] == ["begin", "end"]
    assert [run.status for run in runs(book.entries())] == ["lost"]
