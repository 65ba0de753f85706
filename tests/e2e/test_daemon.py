"""The daemon as a process: one per workspace, signals, idleness, configuration, and commands beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, SCRIPTED, cpu_ticks, environment, eventually, message, task

WORK = {"default": {"reply": "Result of {title}."}}
LOCKED, CONFIG = 73, 78


@pytest.mark.slow
def test_a_second_daemon_is_refused_and_told_who_is_there(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    first = alpha.start()
    second = alpha.call("run")
    assert second.returncode == LOCKED
    assert str(first.pid) in second.stderr
    link = company.root / "link"
    link.symlink_to(alpha.root)
    third = subprocess.run([*MAILBOXD, "run"], cwd=link, capture_output=True, text=True, env=environment())
    assert third.returncode == LOCKED
    company.at_rest()


@pytest.mark.slow
def test_a_lock_file_that_is_deleted_lets_nobody_in(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    (alpha.root / ".mailboxd" / "daemon.json").unlink(missing_ok=True)
    assert alpha.call("run").returncode == LOCKED
    company.at_rest()


@pytest.mark.slow
def test_an_idle_daemon_uses_no_measurable_cpu(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    eventually(lambda: not alpha.query("SELECT 1 FROM v_unfinished WHERE kind = 'task.md'"))
    pause = threading.Event()
    pause.wait(0.5)
    before = cpu_ticks(process.pid)
    pause.wait(4)
    assert cpu_ticks(process.pid) - before <= 2  # two ticks of 10 ms in four seconds
    company.at_rest()


@pytest.mark.slow
def test_a_daemon_that_only_waits_for_people_and_peers_is_as_idle(found: Found) -> None:
    """An open question, an acknowledged dispatch, an open circuit, an edited file that cannot be read."""
    company = found(
        {
            "alpha": {
                "rules": [{"match": {"task": "ask"}, "question": "Which?"}],
                "default": {"fail": {"error": "no"}},
            },
            "beta": {"mailbox": "true"},
        }
    )
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("1.md", task("ask"))
    alpha.drop("2.md", task("give", plan={"x": {"agent": "beta", "description": "X"}}))
    alpha.drop("3.md", task("break"))
    alpha.until("break", "circuit_open")
    eventually(lambda: alpha.attempts("ask") and alpha.attempts("ask")[0]["waiting_for"] == "answer")
    eventually(lambda: alpha.attempts("give.x") and alpha.attempts("give.x")[0]["waiting_for"] == "reply")
    os.mkfifo(alpha.root / "tasks" / "fifo")
    (alpha.root / "tasks" / "odd").mkdir()
    os.mkfifo(alpha.root / "tasks" / "odd" / "task.md")
    process.send_signal(signal.SIGSTOP)  # else the file is there again before anything else can be
    (alpha.root / "tasks" / "break" / "task.md").unlink()
    (alpha.root / "tasks" / "break" / "task.md").mkdir()
    process.send_signal(signal.SIGCONT)
    pause = threading.Event()
    pause.wait(2)
    before = cpu_ticks(process.pid)
    pause.wait(2)
    assert cpu_ticks(process.pid) - before <= 6, alpha.last_words()


@pytest.mark.slow
def test_sigterm_drains_running_turns_are_waited_for_and_recorded(found: Found) -> None:
    company = found({"alpha": {"default": {"delay": 1, "reply": "Text."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(company.executions)
    alpha.drop("next.md", task("next"))
    assert alpha.stop() == 0
    assert alpha.phase("job") == "completed"
    assert len(company.executions()) == 1  # nothing new was begun
    alpha.run()
    assert alpha.phase("next") == "completed"
    company.at_rest()


@pytest.mark.slow
def test_while_it_waits_for_a_turn_to_end_it_takes_mail_and_orders_and_every_surface_says_so(found: Found) -> None:
    company = found({"alpha": {"default": {"delay": 60, "reply": "Text."}}}, shutdown={"drain_seconds": 600})
    company.env["XDG_STATE_HOME"] = str(company.root / "state")
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("long.md", task("long"))
    eventually(company.executions)
    process.send_signal(signal.SIGTERM)
    eventually(lambda: "stopping: waiting for one running call" in alpha.last_words())
    alpha.drop("next.md", task("next"))
    eventually(lambda: "next" in alpha.phases(), 10, alpha.last_words)

    stops = alpha.json("status")["health"]
    assert (stops["grade"], stops["troubles"][0]["where"]) == ("amber", "daemon")
    said = stops["troubles"][0]["why"]
    assert said.startswith("it has been stopping since ")
    assert "waits for the turn of long, at most until " in said
    assert f"`kill {process.pid}`" in said
    assert said in " ".join(alpha.call("status").stdout.split())
    assert said in alpha.json("fleet", str(alpha.root))[0]["troubles"][0]
    checked = {one["id"]: one for one in json.loads(alpha.call("doctor", "--json").stdout)["findings"]}
    assert (checked["daemon"]["level"], "waits for the turn of long" in checked["daemon"]["text"]) == ("warning", True)
    cause = alpha.json("why", "next")["because"][0]
    assert (cause["kind"], "stopping since" in cause["text"]) == ("daemon", True)

    assert alpha.call("cancel", "long", "--now").returncode == 0
    assert alpha.ended(20) == 0, alpha.last_words()
    assert alpha.phases() == {"long": "cancelled", "next": "execution_ready"}
    assert len(company.executions()) == 1
    env = environment({**company.env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    again = subprocess.Popen(cause["hint"], shell=True, cwd="/", env=env, start_new_session=True)
    try:
        eventually(lambda: len(company.executions()) == 2)
    finally:
        os.killpg(again.pid, signal.SIGKILL)
        again.wait()


@pytest.mark.slow
def test_a_second_sigterm_ends_it_at_once_and_the_next_daemon_takes_the_result(found: Found) -> None:
    company = found({"alpha": {"default": {"hang": 2, "reply": "Worth waiting for."}}})
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(company.executions)
    process.send_signal(signal.SIGTERM)
    eventually(lambda: alpha.log.read_bytes() != b"")
    pause = threading.Event()
    pause.wait(0.3)  # two signals that come together are one
    process.send_signal(signal.SIGINT)
    assert alpha.ended(1.5) == 0, alpha.last_words()
    assert not [entry for entry in company.entries() if entry["event"] == "end"]
    alpha.start()
    assert alpha.until("job")["result"] == "Worth waiting for."
    assert len(company.executions()) == 1
    company.at_rest()


@pytest.mark.slow
def test_other_signals_do_no_harm(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    process = alpha.start()
    for _ in range(5):
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGCONT)
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    assert "Traceback" not in alpha.last_words()
    company.at_rest()


@pytest.mark.soak
def test_a_running_daemon_says_that_it_could_not_start_again_with_its_configuration(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.until_ready()
    config = alpha.root / ".mailboxd" / "config.yaml"
    before = config.read_text()
    config.write_text(before + "limitz:\n  turns: 3\n")
    eventually(lambda: "the configuration is invalid: " in alpha.last_words(), 40, alpha.last_words)
    config.write_text(before)
    eventually(lambda: "the configuration is valid again" in alpha.last_words(), 40, alpha.last_words)
    assert alpha.last_words().count("the configuration is invalid") == 1


def test_an_unknown_key_in_the_configuration_is_refused_with_a_suggestion(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.config.write_text(alpha.config.read_text() + "reply_within_second: 5\n")
    done = alpha.call("run", "--until-idle")
    assert done.returncode == CONFIG
    assert "reply_within_seconds" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_inside_an_agents_shell_the_daemon_refuses_to_run(found: Found) -> None:
    company = found({"alpha": WORK})
    done = company["alpha"].call("run", "--until-idle", env={"OPENCLAW_SHELL": "exec"})
    assert done.returncode == CONFIG
    assert "OPENCLAW_SHELL" in done.stderr


@pytest.mark.slow
def test_a_database_that_is_garbage_is_never_replaced(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    path = alpha.root / ".mailboxd" / "mailboxd.db"
    path.write_bytes(b"garbage " * 1000)
    done = alpha.call("run", "--until-idle")
    assert done.returncode == 75
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == b"garbage " * 1000


@pytest.mark.slow
def test_commands_work_while_the_daemon_is_down_and_while_it_runs(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.run()
    assert alpha.call("send", "--task-id", "one", "--title", "One", "Do one.").returncode == 0
    assert alpha.json("status")["messages"]["pending"] == 1
    alpha.start()
    alpha.until("one")
    assert alpha.call("send", "--task-id", "two", "--title", "Two", "Do two.").returncode == 0
    alpha.until("two")
    company.at_rest()


@pytest.mark.slow
def test_what_the_commands_show_agrees_with_the_files_and_the_database(found: Found) -> None:
    plan = {
        "x": {"agent": "beta", "description": "X"},
        "y": {"agent": "self", "description": "Y", "depends_on": ["x"]},
    }
    company = found({"alpha": WORK, "beta": WORK}, synthesis="concat")
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", "The job", plan=plan))
    alpha.drop("rubbish.md", b"---\nrubbish\n---\n")
    alpha.run()
    shown = alpha.json("show", "job")
    row = alpha.task("job")
    for name in ("task_id", "local_id", "title", "mode", "phase"):
        assert shown[name] == row[name]
    assert (shown["status"], shown["from"], shown["results"]) == ("done", "operator", row["result"])
    assert shown["spec"]["goal"] == "The job"
    assert [child["key"] for child in shown["children"]] == ["x", "y"]
    for child in shown["children"]:
        stored = alpha.task(f"job.{child['key']}")
        assert (child["phase"], child["agent"]) == (stored["phase"], stored["executor"])
        assert child["result_summary"] == stored["result_summary"]
        assert child["status"] == "done"
    assert shown["children"][1]["depends_on"] == ["x"]
    assert [attempt["ordinal"] for attempt in shown["attempts"]] == [1]
    status = alpha.json("status")
    assert status["tasks"]["completed"] == 3
    assert status["messages"]["received"] == 2
    assert status["messages"]["archived"] == status["messages"]["rejected"] == 1
    assert status["messages"]["pending"] == 0
    assert status["daemon"]["running"] is False
    events = alpha.query("SELECT seq, kind, hash FROM v_events ORDER BY seq")
    assert [(e["seq"], e["kind"], e["hash"]) for e in alpha.json("log")] == [tuple(e.values()) for e in events]
    assert alpha.call("db", "verify").returncode == 0
    text = (alpha.root / "tasks" / "job" / "task.md").read_text()
    assert "status: done" in text
    assert "Result of X." in text
    company.at_rest()


@pytest.mark.slow
def test_a_log_that_was_tampered_with_is_found_out(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    script = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.execute('DROP TRIGGER events_are_never_changed')\n"
        "db.execute(\"UPDATE events SET actor = 'somebody' WHERE seq = 3\")\ndb.commit()\n"
    )
    path = alpha.root / ".mailboxd" / "mailboxd.db"
    subprocess.run(["python3", "-c", script, str(path)], check=True)
    done = alpha.call("db", "verify")
    assert done.returncode == 1
    assert "3" in done.stderr + done.stdout


@pytest.mark.slow
def test_cancel_retry_and_unblock_are_orders_to_a_daemon_that_runs(found: Found) -> None:
    rules = [
        {"match": {"task": "broken"}, "times": 3, "fail": {"error": "no"}},
        {"match": {"task": "long"}, "hang": 30},
    ]
    company = found({"alpha": {"rules": rules, **WORK}}, limits={"turns_per_agent": 2})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("broken"))
    alpha.drop("2.md", task("long"))
    alpha.until("broken", "circuit_open")
    done = alpha.call("retry", "broken")
    assert done.returncode == 0, done.stderr
    alpha.until("broken")
    eventually(lambda: alpha.phase("long") == "executing")
    assert alpha.call("cancel", "long", "--now").returncode == 0
    alpha.until("long", "cancelled")
    assert alpha.call("cancel", "long", "--now").returncode == 1
    company.at_rest()


@pytest.mark.slow
def test_an_order_that_was_given_while_the_daemon_was_down_is_carried_out(found: Found) -> None:
    company = found({"alpha": {"default": {"hang": 20, "reply": "Never."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(company.executions)
    alpha.kill()
    assert alpha.call("cancel", "job", "--now").returncode == 0
    alpha.start()
    eventually(lambda: [entry["status"] for entry in company.entries() if entry["event"] == "end"] == ["cancelled"])
    assert alpha.phase("job") == "cancelled"
    company.at_rest()


@pytest.mark.slow
def test_secrets_of_a_prompt_are_in_no_argument_list_and_no_file_that_others_can_read(found: Found) -> None:
    company = found({"alpha": {"default": {"hang": 1, "reply": "Text."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", message("task", "job", "# Task: The password is tulip\n\n## Instructions\n\nUse tulip."))
    (turn,) = eventually(company.executions)
    command = Path(f"/proc/{turn['pid']}/cmdline").read_bytes()
    assert SCRIPTED.encode() in command
    assert b"tulip" not in command
    for path in (alpha.root / ".mailboxd").rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0 or b"tulip" not in path.read_bytes(), path
    alpha.until("job")
    company.at_rest()


@pytest.mark.slow
def test_a_peer_without_a_daemon_is_said_while_its_reply_is_waited_for(found: Found) -> None:
    company = found(
        {"alpha": {"mailbox": "true"}, "beta": {"mailbox": "true", "default": {"reply": "Text."}}},
        daemons=["alpha", "beta"], openclaw={"discovery": "true"}, synthesis="concat",
    )  # fmt: skip
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    alpha.drop("go.md", task("job", plan={"part": {"agent": "beta", "description": "Do it."}}))
    eventually(lambda: [a for a in alpha.attempts("job.part") if a["waiting_for"] == "reply"], why=alpha.last_words)
    (cause, *_) = alpha.json("why", "job.part")["because"]
    assert "delivered to the mailbox of beta" in cause["text"]

    def away() -> bool:
        return beta.name in str(alpha.query("SELECT value FROM v_meta WHERE name = 'away'"))

    def troubles() -> list[str]:
        return [trouble["slug"] for trouble in alpha.json("status")["health"]["troubles"]]

    eventually(away, 40, why=alpha.last_words)
    eventually(lambda: troubles() == ["peers"], why=alpha.last_words)
    (cause, *_) = alpha.json("why", "job.part")["because"]
    assert f"`mailboxd -w {beta.root} run`" in cause["text"]
    beta.start()
    alpha.until("job")
    eventually(lambda: not away(), 40, why=alpha.last_words)
    eventually(lambda: not troubles(), why=alpha.last_words)
    company.at_rest()
