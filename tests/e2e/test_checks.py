"""Checks that a spec declares are run by the daemon: evidence that reviewers see, and findings without any model."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Agent, environment, eventually, message, task

pytestmark = pytest.mark.slow

PYTHON = sys.executable
WORK = {"default": {"reply": "Result of {title}."}}


def checked(task_id: str, checks: str, **headers: object) -> str:
    body = (
        f"# Task: {task_id}\n\n## Instructions\n\nDo it.\n\n## Expected Output\n\nA file.\n"
        f"\n## Checks\n\n```yaml\n{checks}\n```\n"
    )
    return message("task", task_id, body, **headers)


def reports(agent: Agent, name: str) -> list[tuple[str, str]]:
    """The test reports of a task: summary and body, oldest first."""
    rows = agent.query(
        "SELECT a.summary, a.body FROM v_artifacts a JOIN v_tasks t ON t.id = a.task"
        " WHERE t.local_id = ? AND a.kind = 'test_report' ORDER BY a.id",
        name,
    )
    return [(row["summary"], row["body"]) for row in rows]


def python(code: str) -> list[str]:
    return [PYTHON, "-c", code]


def test_a_check_that_fails_is_a_finding_and_the_work_is_done_again(found: Found) -> None:
    """The first attempt leaves the file out; the finding tells the second, and no model has judged anything."""
    rules = [
        {"match": {"attempt": "1"}, "reply": "Text."},
        {"match": {"text": "the check report failed"}, "writes": {"out/report.md": "words"}, "reply": "Both texts."},
    ]
    company = found({"alpha": {"rules": rules}})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", "- id: report\n  file: out/report.md\n  min_bytes: 5"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert [entry["kind"] for entry in company.executions()] == ["work", "work"]
    assert [summary.split(":")[0] for summary, _ in reports(alpha, "job")] == ["report failed", "report passed"]
    assert alpha.task("job")["failures"] == 0
    artifact = alpha.json("show", "job")["artifacts"][-1]
    assert artifact["kind"] in ("test_report", "primary_output")
    company.at_rest()


def test_a_command_runs_in_the_workspace_without_a_shell_and_with_next_to_no_environment(found: Found) -> None:
    code = "import os, sys; print(os.getcwd()); print(sys.argv[1]); print(sorted(set(os.environ) - {'LC_CTYPE'}))"
    commands = [[PYTHON, "-c", code]]
    company = found({"alpha": {"rules": [{"writes": {"sub/x": "1"}, "reply": "Text."}]}}, checks={"commands": commands})
    alpha = company["alpha"]
    declared = f"- id: look\n  command: {[*commands[0], '$HOME; touch pwned']!r}\n  cwd: sub"
    alpha.drop("go.md", checked("job", declared.replace("\\n", "\n")))
    alpha.start(env={"SECRET_OF_THE_OPERATOR": "hunter2"})
    alpha.until("job")
    ((summary, body),) = reports(alpha, "job")
    assert summary.startswith("look passed")
    cwd, argument, names = body.splitlines()[:3]
    assert cwd == str(alpha.root / "sub")
    assert argument == "$HOME; touch pwned"
    assert "SECRET" not in names
    assert "OPENCLAW" not in names
    company.at_rest()


def test_reviewers_see_what_the_checks_said(found: Found) -> None:
    approved = "---\ntype: review\nverdict: approved\n---\n## Summary\n\nSeen.\n"
    critic = {"rules": [{"match": {"kind": "review", "text": "report: passed: out has 5 bytes"}, "reply": approved}]}
    company = found(
        {"alpha": {"rules": [{"writes": {"out": "words"}, "reply": "Text."}]}, "critic": critic},
        gates={"quality_gate": "true", "reviewers": ["critic"]},
    )
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", "- id: report\n  file: out"))
    alpha.run()
    assert alpha.phase("job") == "completed", alpha.task("job")["reason"]
    company.at_rest()


SHAPE = "{type: object, required: [n], properties: {n: {type: integer, minimum: 3}}}"


@pytest.mark.parametrize(
    ("result", "schema", "phase", "says"),
    [
        ('{"n": 5}', SHAPE, "completed", "it fits the schema"),
        ('{"n": 1}', SHAPE, "circuit_open", "$.n: 1 is less than the minimum of 3"),
    ],
)
def test_a_json_schema_judges_the_result(found: Found, result: str, schema: str, phase: str, says: str) -> None:
    company = found({"alpha": {"default": {"reply": result}}}, gates={"max_rework": 0})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", f"- id: shape\n  json_schema: {schema}\n  of: result"))
    alpha.run()
    assert alpha.phase("job") == phase
    assert says in " ".join(reports(alpha, "job")[0])
    company.at_rest()


def test_a_json_schema_in_a_file_judges_a_file(found: Found) -> None:
    writes = {"schema.json": '{"type": "array", "minItems": 2}', "data/out.json": "[1, 2]"}
    company = found({"alpha": {"rules": [{"writes": writes, "reply": "Text."}]}})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", "- {id: shape, json_schema: schema.json, of: data/out.json}"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    company.at_rest()


# ---------------------------------------------------------------- what may not run


def test_a_command_that_is_not_allowed_holds_the_task_before_anything_executes(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", "- id: tests\n  command: [make, test]"))
    alpha.run()
    assert alpha.phase("job") == "spec_draft"
    assert company.executions() == []
    why = alpha.call("why", "job").stdout
    assert "the check tests may not run here: `make test` is not among checks.commands" in why
    (question,) = alpha.sent("question")
    assert "checks.commands" in question
    # the operator allows it, and the next daemon looks again
    alpha.config.write_text(alpha.config.read_text() + "checks:\n  commands: [[make, test]]\n")
    (alpha.root / "Makefile").write_text("test:\n\techo fine\n")
    alpha.run()
    assert alpha.phase("job") == "completed"
    company.at_rest()


def test_a_link_is_not_followed(found: Found) -> None:
    company = found({"alpha": WORK}, gates={"max_rework": 0}, checks={"commands": [["true"]]})
    alpha = company["alpha"]
    outside = company.root / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text('{"key": "hunter2"}')
    (alpha.root / "dir").symlink_to(outside)
    (alpha.root / "link.json").symlink_to(outside / "secret.json")
    declared = [
        "- {id: a, file: link.json}",
        "- {id: b, file: dir/secret.json}",
        "- {id: c, command: ['true'], cwd: dir}",
        "- {id: d, json_schema: {type: string}, of: link.json}",
    ]
    alpha.drop("go.md", checked("job", "\n".join(declared)))
    alpha.run()
    assert alpha.phase("job") == "circuit_open"
    assert [summary.split(":")[0] for summary, _ in sorted(reports(alpha, "job"))] == [f"{x} failed" for x in "abcd"]
    assert "hunter2" not in str(reports(alpha, "job"))
    company.at_rest()


def test_a_program_that_is_missing_is_nothing_that_another_attempt_mends(found: Found) -> None:
    company = found({"alpha": WORK}, checks={"commands": [["no-such-program"]]})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", "- {id: a, command: [no-such-program]}"))
    alpha.run()
    assert alpha.phase("job") == "circuit_open"
    assert "could not be run" in alpha.task("job")["reason"]
    assert len(company.executions()) == 1
    assert alpha.call("resolve", "--done", "job").returncode == 0
    alpha.run()
    assert alpha.phase("job") == "completed"
    company.at_rest()


# ---------------------------------------------------------------- time, output, children


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_check_has_only_so_much_time_and_its_children_end_with_it(found: Found) -> None:
    code = "import os, time; pid = os.fork(); pid and open('pid', 'w').write(str(pid)); time.sleep(60)"
    company = found({"alpha": WORK}, checks={"commands": [python(code)]}, gates={"max_rework": 0})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", f"- id: slow\n  timeout: 1\n  command: {python(code)!r}"))
    alpha.run()
    assert alpha.phase("job") == "circuit_open"
    assert "timed out" in reports(alpha, "job")[0][0]
    pid = int((alpha.root / "pid").read_text())
    eventually(lambda: not alive(pid))
    company.at_rest()


def test_what_a_check_leaves_running_is_killed_when_it_has_ended(found: Found) -> None:
    code = "import os, time; pid = os.fork(); pid or time.sleep(60); open('pid', 'w').write(str(pid))"
    company = found({"alpha": WORK}, checks={"commands": [python(code)]})
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", f"- id: fork\n  command: {python(code)!r}"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    pid = int((alpha.root / "pid").read_text())
    eventually(lambda: not alive(pid))
    company.at_rest()


def test_a_cancel_stops_a_running_check(found: Found) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    company = found({"alpha": WORK}, checks={"commands": [python(code)]})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", checked("job", f"- id: slow\n  command: {python(code)!r}"))
    eventually((alpha.root / "pid").exists)
    assert "waits for 1 check" in alpha.call("why", "job").stdout
    assert alpha.call("cancel", "job", "--now").returncode == 0
    pid = int((alpha.root / "pid").read_text())
    eventually(lambda: not alive(pid))
    assert alpha.phase("job") == "cancelled"
    company.at_rest()


def test_the_daemon_does_not_wait_for_a_check(found: Found) -> None:
    company = found({"alpha": WORK}, checks={"commands": [["sleep"]]})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("slow.md", checked("slow", "- {id: slow, command: [sleep, '3']}"))
    eventually(lambda: alpha.phase("slow") == "spec_gate")
    alpha.drop("quick.md", task("quick"))
    alpha.until("quick")
    assert alpha.phase("slow") == "spec_gate"
    alpha.until("slow")
    company.at_rest()


@pytest.mark.parametrize("orphan", [True, False])
def test_a_check_that_a_crash_interrupted_is_run_again(found: Found, orphan: bool) -> None:
    """Also when it went on without its daemon: how that ended nobody knows."""
    code = "import os, time; open('runs', 'a').write('x'); open('pid', 'w').write(str(os.getpid())); time.sleep(1)"
    company = found({"alpha": WORK}, checks={"commands": [python(code)]})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", checked("job", f"- id: slow\n  command: {python(code)!r}"))
    eventually((alpha.root / "pid").exists)
    eventually(lambda: (alpha.root / "pid").read_text())
    alpha.kill()
    if not orphan:
        os.kill(int((alpha.root / "pid").read_text()), signal.SIGKILL)
    alpha.start()
    alpha.until("job")
    assert (alpha.root / "runs").read_text() == "xx"
    assert len(reports(alpha, "job")) == 1
    company.at_rest()


# ---------------------------------------------------------------- whose checks


def test_the_checks_of_a_child_travel_with_its_dispatch_and_run_where_the_work_is_done(found: Found) -> None:
    plan: dict[str, Any] = {
        "x": {"agent": "beta", "description": "X", "checks": [{"id": "made", "file": "made.txt", "min_bytes": "2"}]}
    }
    company = found(
        {
            "alpha": {"mailbox": "true", **WORK},
            "beta": {"mailbox": "true", "rules": [{"writes": {"made.txt": "yes"}, "reply": "Made."}]},
        },
        daemons=("alpha", "beta"),
        synthesis="concat",
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start(wait=False)
    beta.start(wait=False)
    alpha.drop("go.md", task("job", plan=plan))
    alpha.until("job")
    assert [summary.split(":")[0] for summary, _ in reports(beta, "job.x")] == ["made passed"]
    assert reports(alpha, "job.x") == []
    company.at_rest()


def test_a_script_that_is_exchanged_while_it_runs_is_on_record(found: Found) -> None:
    script = "echo judged; mv other.sh judge.sh"
    company = found(
        {"alpha": {"rules": [{"writes": {"judge.sh": script, "other.sh": "exit 1"}, "reply": "Text."}]}},
        checks={"commands": [["sh"]]},
    )
    alpha = company["alpha"]
    alpha.drop("go.md", checked("job", "- id: look\n  command: [sh, judge.sh]"))
    alpha.run()
    ((summary, body),) = reports(alpha, "job")
    assert summary == "look passed: exit status 0 (changed while it ran: judge.sh)"
    began = hashlib.sha256((alpha.root / "judge.sh").read_bytes()).hexdigest()
    assert body.splitlines() == [
        f"file of the workspace: judge.sh, sha256 {hashlib.sha256(script.encode()).hexdigest()}",
        f"changed while the check ran: judge.sh, sha256 {began}",
        "judged",
    ]
    company.at_rest()


def test_who_starts_the_daemon_cannot_make_every_exit_status_a_success(found: Found) -> None:
    """Who ignores SIGCHLD hands that on to what he starts, and the kernel then keeps no exit status of its children."""
    alpha = found({"alpha": WORK}, checks={"commands": [["false"]]}, gates={"max_rework": 1})["alpha"]
    alpha.drop("go.md", checked("job", "- id: no\n  command: ['false']"))
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [PYTHON, "-c", ignoring, *MAILBOXD, "run", "--until-idle"]
    subprocess.run(words, cwd=alpha.root, env=environment(), check=True, timeout=180, capture_output=True)
    assert [summary.split(":")[0] for summary, _ in reports(alpha, "job")] == ["no failed"] * 2
