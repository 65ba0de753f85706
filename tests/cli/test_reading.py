"""The reading commands agree with the database and the files, without a daemon or a configuration."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.model import Policy, Usage
from mailboxd.core.outcomes import Failed, Permanence, PromptDigest, Unknown
from mailboxd.core.vocabulary import NOT_KNOWN_YET, Gate
from mailboxd.daemon.health_writer import Health
from mailboxd.formats.mailbox import lock
from mailboxd.formats.user import registry
from mailboxd.host.sdnotify import Notifier
from mailboxd.ledger.database import mark_of
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import NOW, Stage, child
from tests.cli.test_inbox import put
from tests.ledger.crowd import multiply

QUESTION = "---\ntype: question\n---\n\nWhich figures?\n"
RESULT = "# Twelve figures\n\n\x1b[31mred\x1b[0m"


@pytest.fixture
def plan(stage: Stage) -> Stage:
    """`job` with three children: a is completed, b runs, c waits for both; and `other`, ready without a slot."""
    stage.create("job", child("a"), child("b", "gamma"), child("c", "alpha", ("a", "b")))
    stage.create("other")
    stage.start()
    stage.end_turn("job.a", RESULT)
    return stage


def broken(stage: Stage, sql: str) -> None:
    with closing(sqlite3.connect(stage.ws.database)) as db, db:
        db.execute(sql)


# Status


def test_an_empty_workspace_has_a_status(stage: Stage) -> None:
    found = stage.json("status")
    assert found["workspace"] == str(stage.ws.root)
    assert found["agent"] == "alpha"
    assert found["daemon"] == {"running": False, "stopping": False, "pid": None}
    assert (found["tasks"], found["open"], found["attention"], found["next"]) == ({}, 0, [], None)
    assert found["messages"] == {"received": 0, "archived": 0, "rejected": 0, "pending": 0, "sent": 0}


def test_status_counts_open_tasks_and_shows_what_happens_next(plan: Stage) -> None:
    found = plan.json("status")
    assert found["tasks"] == {"completed": 1, "execution_ready": 1, "executing": 3}
    assert found["open"] == 4
    assert [row["local_id"] for row in found["open_tasks"]] == ["job", "other"]
    assert found["open_tasks_count"] == 2
    assert found["next"]["task"] in ("job.b", "other")


def test_status_names_the_daemon_that_runs(stage: Stage) -> None:
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha"):
        found = stage.json("status")["daemon"]
        text = stage.run("status", "--all").stdout
    assert found["running"]
    assert f"running, pid {found['pid']}" in text


def test_every_file_that_came_in_is_accounted_for(stage: Stage) -> None:
    for name in ("one.md", "two.md", ".hidden.md", "half.md.tmp"):
        (stage.ws.inbox / name).write_text("do it")
    found = stage.json("status")
    assert found["messages"] == {"received": 2, "archived": 0, "rejected": 0, "pending": 2, "sent": 0}
    assert found["next"] == {"at": None, "task": None, "what": "2 in the inbox are read"}
    assert "once a daemon runs: 2 in the inbox are read" in stage.run("status", "--all").stdout


def test_status_lists_blocked_tasks_with_hints(stage: Stage) -> None:
    stage.create("asks")
    stage.start()
    stage.end_turn("asks", QUESTION)
    stage.create("lost", policy=Policy(max_attempts=3))
    stage.start()
    stage.end_turn("lost", Unknown("the gateway went away", "run_9", looked_up=True))
    stage.create("unreviewed", policy=Policy(gates=frozenset({Gate.SPEC_REVIEW})))
    items = {item["task"]: item for item in stage.json("status")["attention"]}
    assert (items["asks"]["kind"], items["asks"]["text"]) == ("question", "asks operator: Which figures?")
    assert items["lost"]["kind"] == "circuit"
    assert "no reviewer" in items["unreviewed"]["text"]
    assert f"-> mailboxd -w {stage.ws.root} retry lost\n" in stage.run("status").stdout


def test_the_reason_of_a_task_is_why_it_waits_wherever_that_is_listed(stage: Stage) -> None:
    put(stage, "---\ntask_id: print\nafter: write\n---\n\n# Print the programme\n\n20 copies.\n")
    stage.clock.advance(61)
    stage.tick()
    (approval,) = ask(stage, "publishes", PUBLISH)
    stage.create("orphan")
    stage.lacks(alpha="there is no agent alpha\nwith details")
    reasons = {
        "print": "it is to follow write, which is not known here",
        "publishes": f"waits for approval {approval[-6:].lower()}: run make publish",
        "orphan": "waits for an agent: there is no agent alpha",
    }
    for listed in (stage.json("status")["open_tasks"], stage.json("ls")):
        assert {row["local_id"]: row["reason"] for row in listed} == reasons
    for name, reason in reasons.items():
        assert stage.json("show", name)["reason"] == stage.json("show", "--tree", name)["reason"] == reason
        assert reason in stage.run("show", "--tree", name, env={"COLUMNS": "200"}).stdout


def test_work_for_an_agent_that_is_no_more_is_blocked_wherever_that_is_counted(stage: Stage) -> None:
    stage.create("job")
    stage.lacks(alpha="there is no agent alpha")
    assert stage.item("agent")["task"] == "job"
    (row,) = json.loads(stage.run("fleet", str(stage.ws.root), "--json").stdout)
    assert row["attention"][-1]["text"] == "waits for an agent: there is no agent alpha"
    stage.lacks()
    assert [item["kind"] for item in stage.json("inbox")] == ["daemon"]


def test_work_for_a_host_that_was_never_heard_from_asks_nobody(stage: Stage) -> None:
    stage.create("job")
    why = f"{NOT_KNOWN_YET}which agents the host beta has"
    stage.lacks(alpha=why)
    assert [item["kind"] for item in stage.json("inbox")] == ["daemon"]
    said = stage.run("why", "job").stdout
    assert f"waits for alpha: {why}" in said
    assert "restore" not in said
    assert "it begins once that host was heard" in said


@pytest.mark.parametrize(("version", "remedy"), [(5, " run` migrates it"), (99, "install a newer mailboxd")])
def test_a_database_of_another_mailboxd_is_not_called_unreadable(stage: Stage, version: int, remedy: str) -> None:
    broken(stage, "DROP INDEX tasks_open")
    broken(stage, f"PRAGMA user_version = {version}")
    result = stage.run("status")
    assert result.exit_code == 75
    assert f"the database has schema version {version}, this mailboxd knows" in result.stderr
    assert remedy in result.stderr


@pytest.mark.parametrize("line", ["agent: beta\n", "agent: 'beta'\r\n", "{agent: beta}\n", '"agent": "beta" # it\n'])
def test_the_agent_is_read_however_it_is_written(stage: Stage, line: str) -> None:
    stage.ws.config.write_text(line)
    assert stage.json("status")["agent"] == "beta"


def test_status_works_without_a_configuration(stage: Stage) -> None:
    stage.ws.config.unlink()
    result = stage.run("status", "--json")
    assert (result.exit_code, json.loads(result.stdout)["agent"]) == (1, None), "no daemon can start"


# Ls, tree


def test_ls_lists_root_tasks_and_the_children_if_asked(plan: Stage) -> None:
    assert {row["local_id"] for row in plan.json("ls")} == {"job", "other"}
    rows = {row["local_id"]: row for row in plan.json("ls", "--children")}
    assert set(rows) == {"job", "job.a", "job.b", "job.c", "other"}
    assert (rows["job"]["children_total"], rows["job"]["children_completed"]) == (3, 1)
    assert [row["local_id"] for row in plan.json("ls", "--children", "--agent", "gamma")] == ["job.b"]
    assert [row["local_id"] for row in plan.json("ls", "--children", "--phase", "completed")] == ["job.a"]
    assert "✓ done" in plan.run("ls", "--children").stdout


def test_ls_lists_only_the_latest_ended_tasks(stage: Stage) -> None:
    for number in range(12):
        stage.create(f"t{number:02}")
        stage.clock.advance(1)
        assert stage.run("cancel", f"t{number:02}").exit_code == 0
    stage.create("live")
    assert [row["local_id"] for row in stage.json("ls")] == ["live", *(f"t{n:02}" for n in range(11, 1, -1))]
    assert len(stage.json("ls", "--all")) == 13


def test_a_tree_shows_every_level_with_words_and_symbols(stage: Stage) -> None:
    stage.create("job", child("a", "beta", (), child("x"), child("y", "beta", ("x",))), child("b", "alpha", ("a",)))
    found = stage.json("show", "--tree", "job")
    assert [node["key"] for node in found["children"]] == ["a", "b"]
    assert [node["key"] for node in found["children"][0]["children"]] == ["x", "y"]
    assert found["children"][1]["depends_on"] == ["a"]
    lines = stage.run("show", "--tree", "job", env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line[: line.index("○")] for line in lines] == ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ "]
    assert lines[3] == "│  └─ ○ waiting  y (beta)  after x: Do y"
    assert len(stage.json("show", "--tree", "job.a")["children"]) == 2


def test_a_tree_fits_on_80_columns_and_is_plain_without_a_terminal(stage: Stage) -> None:
    stage.create("job", *(child(f"k{'e' * 30}{n}") for n in range(5)))
    output = stage.run("show", "--tree", "job", env={"COLUMNS": "80"}).stdout
    assert all(len(line) <= 80 for line in output.splitlines())
    assert "\x1b" not in output


# Show


def test_show_has_all_that_is_on_record(plan: Stage) -> None:
    found = plan.json("show", "job")
    assert (found["task_id"], found["local_id"], found["title"], found["mode"]) == (
        "job",
        "job",
        "Do job",
        "coordinating",
    )
    assert (found["phase"], found["status"], found["from"], found["agent"]) == (
        "executing",
        "executing",
        "operator",
        "alpha",
    )
    assert found["spec"]["expected_output"] == "One line"
    assert found["spec"]["risks"] == ""
    assert found["policy"]["max_attempts"] == 3
    attempt = found["attempts"][0]
    assert (attempt["ordinal"], attempt["executor"], attempt["status"]) == (1, "alpha", "running")
    assert attempt["waiting_for"] == "children"
    assert set(attempt["usage"]) == {"input_tokens", "output_tokens", "cost_usd"}
    a, b, c = found["children"]
    assert (a["key"], a["agent"], a["phase"], a["status"], a["local_id"]) == ("a", "beta", "completed", "done", "job.a")
    assert a["result_summary"] == "red"
    assert (b["status"], c["status"], c["depends_on"]) == ("dispatched", "pending", ["a", "b"])


@pytest.mark.parametrize(
    ("usage", "said"), [(Usage(17, None, None), ""), (Usage(), ""), (Usage(17, 3, 0.5), "0.5 USD")]
)
def test_show_has_turns_whose_cost_nobody_reported(stage: Stage, usage: Usage, said: str) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", RESULT, usage)
    shown = stage.run("show", "job")
    assert shown.exit_code == 0, shown.stderr
    (turn,) = re.findall(r"^  1 +work .*$", shown.stdout, re.MULTILINE)
    assert ("USD" in turn) is bool(said)
    assert said in turn


def test_show_of_a_child_names_its_place_and_its_results(plan: Stage) -> None:
    found = plan.json("show", "job.a")
    assert (found["parent"], found["root"], found["key"], found["results"]) == ("job", "job", "a", RESULT)
    assert found["artifacts"][0]["kind"] == "primary_output"
    assert plan.json("show", "job.c")["dependencies"] == [
        {"key": "a", "local_id": "job.a", "phase": "completed", "need": None, "state": "done"},
        {"key": "b", "local_id": "job.b", "phase": "executing", "need": None, "state": "running"},
    ]


def test_show_keeps_secrets_and_terminal_codes_to_itself(plan: Stage) -> None:
    assert plan.attempt("job.b").reply_token not in plan.run("show", "job.b", "--json").stdout
    text = plan.run("show", "job.a").stdout
    assert "\\x1b[31mred" in text
    assert "\x1b" not in text


def test_a_task_is_found_by_any_unique_beginning(plan: Stage) -> None:
    task_id = plan.json("show", "job.b")["id"]
    assert plan.json("show", task_id)["local_id"] == "job.b"
    assert plan.json("show", "jo")["local_id"] == "job"
    assert plan.json("show", "ot")["local_id"] == "other"
    plan.create("jolly")
    refused = plan.run("show", "jo")
    assert refused.exit_code == 69
    assert "jo fits several tasks: job, " in refused.stderr


@pytest.mark.parametrize("name", ["nope", "", "%", "tsk_", "job.", "\udcff", "a" * 100_000])
def test_an_unknown_task_is_not_reported_as_a_bug(plan: Stage, name: str) -> None:
    result = plan.run("show", "--", name)
    assert result.exit_code in (0, 69), result.output
    assert "Traceback" not in result.stderr


# History, logs


def test_history_is_one_sentence_per_event_and_agrees_with_the_table(plan: Stage) -> None:
    events = plan.json("log")
    with closing(sqlite3.connect(plan.ws.database)) as db:
        rows = db.execute("SELECT seq, at, kind, role, actor, data, hash FROM v_events ORDER BY seq").fetchall()
    told = [tuple(e[name] for name in ("seq", "at", "kind", "role", "actor")) for e in events]
    assert told == [row[:5] for row in rows]
    hidden = [re.sub(r'"reply_token":"[^"]*"', '"reply_token":"(hidden)"', row[5]) for row in rows]
    assert [(e["data"], e["hash"]) for e in events] == [
        (json.loads(data), row[6]) for data, row in zip(hidden, rows, strict=True)
    ]
    lines = plan.run("log").stdout.splitlines()
    assert len(lines) == len(rows)
    when = f"{NOW[:10]} {NOW[11:19]}Z"
    assert lines[0].split(maxsplit=3) == ["1", *when.split(), "job: created for operator: Do job"]
    lines = plan.run("log", "--verbose").stdout.splitlines()
    created = "job: created for operator: Do job; spec draft -> spec review -> to be run"
    passed = f"{created} (the spec is complete; the spec_review is off)"
    assert lines[0].split(maxsplit=3) == ["1", *when.split(), passed]


def test_history_of_a_task_is_its_own_or_that_of_all_below_it(plan: Stage) -> None:
    assert {event["task"] for event in plan.json("log", "job")} == {"job"}
    below = plan.json("log", "job", "--tree")
    assert {event["task"] for event in below} == {"job", "job.a", "job.b", "job.c"}
    last = below[-1]["seq"]
    assert plan.json("log", "job", "--tree", "--since", str(last)) == []
    assert plan.json("log", "--since", "2000-01-01") == plan.json("log")
    assert plan.json("log", "--since", "2100-01-01") == []
    assert "'yesterday' is not a time" in plan.run("log", "--since", "yesterday").stderr
    assert plan.json("log", "job", "--tree", "--since", str(last - 1)) == [below[-1]]


def test_a_history_that_holds_is_verified(plan: Stage) -> None:
    found = plan.json("db", "verify")
    assert found["holds"]
    assert found["checked"]["events"] == len(plan.json("log"))
    assert "everything matches the record" in plan.run("db", "verify").stdout


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE tasks SET title = 'forged'", "tasks:"),
        ("DROP TRIGGER events_are_never_removed", ""),
    ],
)
def test_a_history_that_was_tampered_with_is_found_out(plan: Stage, sql: str, says: str) -> None:
    broken(plan, sql)
    if not says:
        broken(plan, "DELETE FROM events WHERE seq = 3")
        says = "event 3: it is missing"
    result = plan.run("db", "verify")
    assert result.exit_code == 1
    assert says in result.stderr
    assert json.loads(plan.run("db", "verify", "--json").stdout)["holds"] is False


def test_following_prints_new_events_until_ctrl_c(stage: Stage) -> None:
    names = iter(["new", "newer"])

    def meanwhile(_seconds: float) -> None:
        name = next(names, None)
        if name is None:
            raise KeyboardInterrupt
        stage.create(name)

    stage.create("old")
    stage.pause = meanwhile
    result = stage.run("log", "--follow")
    assert result.exit_code == 0
    assert "newer: created for operator" in result.stdout
    assert result.stdout.splitlines() == stage.run("log").stdout.splitlines()


def test_logs_begin_with_the_latest_lines(plan: Stage) -> None:
    events = plan.json("log")
    lines = plan.run("log", "-n", "2").stdout.splitlines()
    assert lines == plan.run("log").stdout.splitlines()[-2:]
    assert plan.json("log", "-n", "2") == events[-2:]
    assert plan.json("log", "job", "-n", "1") == plan.json("log", "job")[-1:]
    assert plan.json("log", "job", "-n", "99") == plan.json("log", "job")
    assert plan.json("log", "-n", "0") == []


# Why


def because(stage: Stage, name: str) -> list[tuple[int, str, str]]:
    found = stage.json("why", name)
    return [(line["depth"], line["task"], line["kind"]) for line in found["because"] if line["kind"] != "daemon"]


def test_why_follows_the_chain_to_its_root(plan: Stage) -> None:
    assert because(plan, "job.c") == [(0, "job.c", "dependency"), (1, "job.b", "turn")]
    assert because(plan, "job") == [(0, "job", "children"), (1, "job.b", "turn"), (1, "job", "more")]
    assert because(plan, "other") == [(0, "other", "turn")]
    text = plan.run("why", "job.c").stdout
    assert "waits until job.b is completed" in text
    assert "no daemon is running in this workspace" in text
    assert "last activity:" in text


def test_why_a_task_pauses_and_until_when(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", Failed("overloaded", Permanence.TRANSIENT))
    line = stage.json("why", "job")["because"][-1]
    assert line["kind"] == "backoff"
    assert line["at"] > NOW
    assert stage.json("why", "job")["next"]["what"] == "attempt 2 by alpha starts"


def test_why_speaks_of_states_and_of_how_long_ago(stage: Stage) -> None:
    stage.create("job", policy=Policy(reply_within=3600), sender="boss")
    stage.start()
    stage.end_turn("job", "---\ntype: question\n---\nWhich airport?")
    stage.clock.advance(600)
    assert stage.run("why", "job").output.splitlines()[:5] == [
        "job  ▶ running",
        "  job: no daemon is running in this workspace: nothing happens until one is",
        f"    -> {stage.program} run",
        "  job: asks boss: Which airport?",
        "    in 50m00s: the operator is asked",
    ]
    stage.clock.advance(3000)
    stage.tick()
    said = stage.run("why", "job").output
    assert said.startswith("job  ‖ needs you\n")
    assert "last activity: 0.0 s ago: " in said
    assert NOW[:10] not in said


def test_why_a_task_waits_for_a_slot(stage: Stage) -> None:
    with stage.ws.config.open("a") as file:
        file.write("limits:\n  turns_per_agent: 1\n")
    for name in ("one", "two"):
        stage.create(name)
    stage.start()
    line = stage.json("why", "two")["because"][-1]
    assert (line["kind"], line["text"]) == ("slot", "waits for a slot; busy: alpha with one since 21 Nov 12:00 UTC")


def test_show_lists_openclaw_ids_and_usage_of_attempts(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    used = Usage(10, 5, 0.25)
    stage.end_turn("job", Failed("overloaded", usage=used, run_id="run_9", session_ref="ses_9"))
    (attempt,) = stage.json("show", "job")["attempts"]
    assert (attempt["run_id"], attempt["session_ref"]) == ("run_9", "ses_9")
    assert attempt["usage"] == {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
    shown = stage.run("show", "job").output
    assert "In OpenClaw" in shown
    assert "run_9" in shown


def begun(stage: Stage, raw: bytes, most: int = 1000) -> PromptDigest:
    """Record what the turn that is ordered is asked, as it begins."""
    with stage.engine() as engine:
        prompt = engine.store.prompts.keep(raw, most, is_message=False)
        (order,) = engine.store.outbox.pending("9999", 2)
        engine.store.outbox.begin(order.id, "boot", prompt)
    return prompt


def test_show_says_what_each_turn_was_asked_and_by_what(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    prompt = begun(stage, "Caf\u00e9\n".encode())
    (turn,) = stage.json("show", "job")["turns"]
    assert (turn["number"], turn["outcome"], turn["prompt"]["sha256"]) == (1, None, prompt.sha256)
    stage.end_turn("job", Failed("overloaded", run_id="run_9", session_ref="ses_9", model="stub/stub-1"))
    (turn,) = stage.json("show", "job")["turns"]
    assert (turn["outcome"], turn["model"], turn["run"], turn["session"]) == ("failed", "stub/stub-1", "run_9", "ses_9")
    shown = stage.run("show", "job").output
    assert "stub/stub-1" in shown
    assert prompt.sha256[:16] in shown


def test_the_exact_text_of_a_prompt_is_printed(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    prompt = begun(stage, "Caf\u00e9\n".encode())
    raw = stage.run("show", "job", "--prompt", "1").stdout_bytes
    assert sha256(raw).hexdigest() == prompt.sha256
    assert stage.json("show", "job", "--prompt", "1")["text"] == "Caf\u00e9\n"
    assert "has no turn 2" in stage.run("show", "job", "--prompt", "2").output


@pytest.mark.parametrize(("most", "why"), [(0, "archive.prompts"), (3, "archive.prompt_bytes")])
def test_a_text_that_was_not_kept_is_said_not_to_be(stage: Stage, most: int, why: str) -> None:
    stage.create("job")
    stage.start()
    prompt = begun(stage, b"Count the ships.", most)
    done = stage.run("show", "job", "--prompt", "1")
    assert done.exit_code != 0
    assert why in done.output
    assert prompt.sha256 in done.output


def test_what_no_runtime_reports_is_said_not_to_be_reported(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", Failed("overloaded"))
    assert "not reported" in stage.run("show", "job").output


def test_why_an_outcome_is_unknown(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", Unknown("the gateway went away", "run_9"))
    line = stage.json("why", "job")["because"][-1]
    assert line["kind"] == "lookup"
    assert "run run_9" in line["text"]
    assert line["hint"].startswith("openclaw tasks show agent:alpha:mailboxd:job")


def test_why_a_gate_waits_for_the_reviewers_of_this_round(stage: Stage) -> None:
    policy = Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("critic", "judge"))
    stage.create("job", policy=policy)
    stage.start()
    stage.end_turn("job", "The result itself.")
    assert stage.json("why", "job")["because"][-1]["text"] == "the quality gate waits for critic, judge"
    stage.end_turn("job", "---\ntype: review\nverdict: approved\n---\n\nGood.\n")
    assert stage.json("why", "job")["because"][-1]["text"] == "the quality gate waits for judge"


@pytest.mark.slow
def test_a_large_plan_is_explained_in_a_few_lines(stage: Stage) -> None:
    stage.create("job", *(child(f"n{number}", needs=(f"n{number - 1}",) if number else ()) for number in range(300)))
    stage.start()
    lines = because(stage, "job")
    assert lines[:2] == [(0, "job", "children"), (1, "job.n0", "turn")]
    assert len(lines) == 3
    chain = because(stage, "job.n299")
    assert (len(chain), chain[-1]) == (300, (299, "job.n0", "turn"))
    text = stage.run("why", "job.n299").stdout
    assert "job.n0: beta has been working on it" in text
    assert len(text.splitlines()) < 20


# Trouble


def test_without_a_database_it_is_said_how_to_get_one(stage: Stage) -> None:
    stage.ws.database.unlink()
    mark_of(stage.ws.database).unlink()
    for verb in (["status"], ["ls"], ["show", "x"], ["show", "--tree", "x"], ["log"], ["why", "x"]):
        result = stage.run(*verb)
        assert result.exit_code == 69, verb
        assert "there is no database yet" in result.stderr


def cut(database: Path) -> None:
    os.truncate(database, 8192)


def garbage(database: Path) -> None:
    database.write_bytes(b"not a database, but long enough to be read as one" * 100)


@pytest.mark.parametrize("hurt", [cut, garbage, Path.unlink])
def test_a_database_that_is_damaged_or_gone_is_named_with_the_command_that_helps(
    stage: Stage, hurt: Callable[[Path], None]
) -> None:
    stage.create("job")
    hurt(stage.ws.database)
    for verb in (["inbox"], ["ls"], ["show", "job"], ["log"], ["why", "job"]):
        result = stage.run(*verb)
        assert result.exit_code == 75, verb
        assert f"mailboxd -w {stage.ws.root} db rebuild --replace" in result.stderr
    assert stage.run("db", "rebuild", "--replace").exit_code == 0
    assert stage.run("show", "job").exit_code == 0


def test_reading_changes_nothing(plan: Stage) -> None:
    def all_of_it() -> Any:
        with closing(sqlite3.connect(plan.ws.database)) as db:
            return list(db.iterdump())

    before = all_of_it()
    for verb in (["status"], ["ls"], ["show", "job"], ["show", "--tree", "job"], ["log"], ["why", "job"]):
        assert plan.run(*verb).exit_code == 0
    assert all_of_it() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [["status"], ["ls"], ["show", "job"], ["show", "--tree", "job"], ["log"], ["why", "job"], ["fleet"]]
)
def test_reading_imports_nothing_heavy(plan: Stage, verb: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from mailboxd.cli.program import program\n"
        "program.main(sys.argv[1:], standalone_mode=False)\n"
        "heavy = {'pydantic', 'yaml', 'jinja2', 'rich', 'watchdog', 'frontmatter', 'subprocess', 'logging'}\n"
        "assert not heavy & set(sys.modules), sorted(heavy & set(sys.modules))\n"
    )
    argv = [sys.executable, "-c", code, *verb]
    alone = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    registry.register(plan.ws.root.resolve(), alone)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=plan.ws.root, env=alone)
    assert done.returncode == 0, done.stderr


# Recipes


def test_recipes_are_listed_in_full_and_one_that_cannot_be_read_with_its_reason(stage: Stage) -> None:
    own = stage.ws.templates / "recipes"
    own.mkdir()
    (own / "mine.yaml").write_text("about: [x")
    lines = stage.run("recipe", "ls", env={"COLUMNS": "60"}).stdout
    assert "rounds, each knowing" in " ".join(lines.split())
    assert "…" not in lines
    assert "mine              cannot be used: " in lines
    assert {"name", "problem"} in [set(one) for one in json.loads(stage.run("recipe", "ls", "--json").stdout)]


# Output that nobody looks at, and trees that are long


def test_piped_output_is_not_cut(stage: Stage) -> None:
    name = "job-" + "x" * 90
    stage.create(name, child("a"))
    for words in (["ls"], ["status", "--all"], ["show", "--tree", name]):
        assert f"Do {name}" in stage.run(*words, env={"COLUMNS": None}).stdout, words
        assert f"Do {name}" not in stage.run(*words, env={"COLUMNS": "80"}).stdout, words


def test_a_long_tree_is_folded_with_a_count_unless_all_is_wanted(stage: Stage) -> None:
    stage.create("wide", *(child(f"k{number:03}") for number in range(150)))
    lines = stage.run("show", "--tree", "wide").stdout.splitlines()
    assert len(lines) == 43
    assert "… 110 more: " in lines[-2]
    assert lines[-1] == f"… 109 more lines: `{stage.program} show wide --tree --all`"
    assert len(stage.run("show", "--tree", "wide", "--all").stdout.splitlines()) == 151
    assert len(stage.json("show", "--tree", "wide")["children"]) == 150


def test_show_tells_times_in_words_and_counts_the_subtasks_that_it_leaves_out(plan: Stage) -> None:
    shown = plan.run("show", "job").stdout
    assert "2026-11-21T" not in shown
    assert "ago (21 Nov 12:00 UTC)" in shown
    with closing(sqlite3.connect(plan.ws.database)) as db, db:
        multiply(db, plan.json("show", "job")["children"][0]["local_id"], 100, {"failed": 2})
    lines = plan.run("show", "job").stdout.splitlines()
    assert len([line for line in lines if "✓ done" in line or "✗ done: failed" in line]) < 50
    assert any("✗ done: failed" in line for line in lines)
    assert any(
        line.startswith("  … ") and "more: " in line and f"`{plan.program} show job --tree --all`" in line
        for line in lines
    )
    assert len(plan.json("show", "job")["children"]) > 100
    lines = plan.run("show", "job", "--timeline").stdout.splitlines()
    assert len(lines) < 110
