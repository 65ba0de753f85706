"""`mailboxd rebuild` on what real daemons left, and what they do with the database that it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.acting import ALONE, acting, approve, asked, effect, happened, rows
from tests.e2e.conftest import Found, found
from tests.e2e.support import Agent, Company, eventually, reply, task
from tests.rebuild.compare import differences

pytestmark = pytest.mark.slow

__all__ = ["found"]

WORK = {"default": {"reply": "Result of {title}."}}
SLOW = {"default": {"hang": 15, "reply": "Too late."}}
PLAN = {
    "figures": {"agent": "beta", "description": "Get the figures"},
    "text": {"agent": "self", "description": "Write it", "depends_on": ["figures"]},
}


def database(alpha: Agent) -> Path:
    return alpha.root / ".mailboxd" / "mailboxd.db"


def rebuilt(alpha: Agent, *words: str) -> dict[str, Any]:
    done = alpha.call("rebuild", "--json", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def lose(alpha: Agent) -> None:
    for path in database(alpha).parent.glob("mailboxd.db*"):
        path.unlink()


def turns(company: Company) -> int:
    return len(company.executions())


def test_a_lost_database_is_made_again_and_work_goes_on(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK, "beta": WORK, "boss": WORK})
    alpha = company["alpha"]
    alpha.drop("one.md", task("one"))
    alpha.drop("two.md", task("two", sender="boss", plan=PLAN))
    alpha.drop("bad.md", "---\ntype: zonk\n---\n")
    alpha.run()
    kept = tmp_path / "kept.db"
    assert alpha.call("backup", str(kept)).returncode == 0
    before = turns(company)
    lose(alpha)

    first = rebuilt(alpha, "--into", str(tmp_path / "first.db"))
    second = rebuilt(alpha, "--replace")
    assert first["fingerprint"] == second["fingerprint"]
    assert differences(kept, database(alpha)) == []
    assert (first["differences"], first["problems"], first["open"]) == ([], [], 0)
    assert alpha.call("audit", "verify").returncode == 0

    alpha.drop("again.md", task("two", sender="boss", plan=PLAN, note="repeated"))
    alpha.drop("new.md", task("new"))
    alpha.run()
    assert alpha.phase("new") == "completed"
    assert turns(company) == before + 2, "the new work, and the reply that was asked for again"
    assert alpha.call("audit", "verify").returncode == 0


def test_an_action_that_was_decided_about_is_not_asked_for_again(found: Found, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    listed = yaml.safe_dump([effect(witness, f"echo x > {tmp_path}/ran")])
    declares = {
        "match": {"task": "own"},
        "reply": f"## Results\n\nIt is made.\n\n## Planned Actions\n\n```yaml\n{listed}```\n",
    }
    company = found({"alpha": {"rules": [declares], **WORK}}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    for number, name in enumerate(("done", "no", "own"), 1):
        alpha.drop(f"{name}.md", task("own") if name == "own" else acting(name, [effect(witness)]))
        (*_, request) = asked(alpha, number)
        if name == "no":
            assert alpha.call("reject", request, "--note", "no").returncode == 0
        else:
            approve(alpha, request)
        alpha.until(name, "failed" if name == "no" else "completed")
    company.at_rest()
    before = alpha.phases()
    assert happened(witness) == 2

    lose(alpha)
    said = rebuilt(alpha, "--replace")
    assert (said["differences"], said["problems"], said["open"]) == ([], [], 0)
    alpha.run()
    assert alpha.phases() == before
    assert rows(alpha) == []
    assert happened(witness) == 2


def test_a_message_that_lacks_a_signature_is_named(found: Found) -> None:
    """Where the database is lost, nothing but its signature tells a message from one that was put into the archive."""
    company = found({"alpha": WORK}, signing={"require": ["operator"]})
    company.env["XDG_STATE_HOME"] = str(company.root / "state")
    alpha = company["alpha"]
    assert alpha.call("keys", "create", "--operator").returncode == 0
    assert alpha.call("send", "Do it", "--task-id", "real").returncode == 0
    alpha.run()
    assert alpha.phases() == {"real": "completed"}
    (day,) = (alpha.root / "mailbox" / "archive").iterdir()
    (day / "forged.md").write_text(task("forged"))
    lose(alpha)
    done = alpha.call("rebuild", "--json", "--replace")
    assert done.returncode == 1
    said = f"mailbox/archive/{day.name}/forged.md: taken as it lies there, but messages from operator must be signed"
    (difference,) = json.loads(done.stdout)["differences"]
    assert difference.startswith(said)


@pytest.mark.parametrize("agent", ["self", "beta"])
def test_what_was_done_and_begun_before_a_file_showed_it_is_asked_about_and_not_done_again(
    found: Found, agent: str
) -> None:
    slowly = {"rules": [{"match": {"task": "two.text"}, "delay": 1.5, "reply": "The text."}], **WORK}
    company = found({"alpha": slowly, "beta": slowly}, tasks={"render_seconds": 60})
    alpha = company["alpha"]
    plan = {
        "figures": {"agent": agent, "description": "Get the figures"},
        "text": {"agent": agent, "description": "Write it", "depends_on": ["figures"]},
    }
    alpha.drop("two.md", task("two", plan=plan))
    alpha.start()
    eventually(lambda: turns(company) == 2)
    alpha.kill()
    assert "completed" not in (alpha.root / "tasks" / "two" / "task.md").read_text()
    lose(alpha)
    assert rebuilt(alpha, "--replace")["differences"] == []
    alpha.start()
    alpha.until("two")
    assert alpha.phases() == dict.fromkeys(("two", "two.figures", "two.text"), "completed")
    assert turns(company) == 3, "two children and the synthesis"
    assert alpha.call("audit", "verify").returncode == 0


def test_a_reply_is_newer_than_a_file_that_still_shows_the_work(found: Found) -> None:
    company = found({"alpha": WORK}, tasks={"render_seconds": 60})
    alpha = company["alpha"]
    alpha.drop("one.md", task("one"))
    alpha.start()
    eventually(lambda: alpha.sent("reply"))
    alpha.kill()
    assert "status: done" not in (alpha.root / "tasks" / "one" / "task.md").read_text()
    lose(alpha)
    assert rebuilt(alpha, "--replace")["differences"] == []
    assert alpha.phase("one") == "completed"
    alpha.run()
    assert turns(company) == len(alpha.sent("reply")) == 1


@pytest.mark.parametrize("delay", [0.1, 3.0], ids=["it ends meanwhile", "it still runs"])
@pytest.mark.parametrize("agent", ["self", "beta"])
def test_a_synthesis_that_was_begun_before_a_file_showed_its_children_is_not_begun_again(
    found: Found, agent: str, delay: float
) -> None:
    slowly = {"rules": [{"match": {"kind": "synthesis"}, "delay": delay, "reply": "All of it."}], **WORK}
    company = found({"alpha": slowly, "beta": WORK}, tasks={"render_seconds": 60})
    alpha = company["alpha"]
    plan = {"figures": {"agent": agent, "description": "Get the figures"}}
    alpha.drop("two.md", task("two", plan=plan))
    alpha.start()
    eventually(lambda: turns(company) == 2)
    alpha.kill()
    assert "status: done" not in (alpha.root / "tasks" / "two" / "task.md").read_text()
    lose(alpha)
    rebuilt(alpha, "--replace")
    alpha.start()
    alpha.until("two")
    assert turns(company) == 2, "the child and the synthesis"
    assert "All of it." in alpha.task("two")["result"]
    assert alpha.call("audit", "verify").returncode == 0


def test_what_a_peer_has_is_waited_for_and_not_given_out_twice(found: Found) -> None:
    company = found({"alpha": WORK, "beta": SLOW})
    alpha = company["alpha"]
    alpha.drop("two.md", task("two", plan=PLAN))
    alpha.start()
    eventually(lambda: alpha.sent("task") and alpha.mail(direction="out"))
    shown = alpha.root / "tasks" / "two" / "task.md"
    eventually(lambda: shown.exists() and "dispatched" in shown.read_text())
    alpha.kill()
    lose(alpha)
    said = rebuilt(alpha, "--replace")
    assert said["open"] == 3
    (attempt,) = alpha.attempts("two.figures")
    assert (attempt["status"], attempt["waiting_for"]) == ("running", "lookup")
    (sent,) = alpha.sent("task")
    assert attempt["id"] in sent
    assert attempt["reply_token"] in sent
    pending = {row["kind"] for row in alpha.query("SELECT kind FROM outbox WHERE state = 'pending'")}
    assert pending == {"look_up"}

    alpha.start()
    text = reply("two", "figures", "beta", "42", attempt_id=attempt["id"], reply_token=attempt["reply_token"])
    alpha.drop("reply.md", text)
    alpha.until("two")
    assert alpha.stop() == 0
    assert len(alpha.sent("task")) == 1, "it was not given out again"
    assert alpha.task("two.figures")["result"] == "42"
    assert alpha.call("history", "--verify").returncode == 0


def test_own_work_under_way_is_looked_up_by_its_call(found: Found) -> None:
    company = found({"alpha": SLOW})
    alpha = company["alpha"]
    alpha.drop("one.md", task("one"))
    alpha.start()
    eventually(company.entries)
    shown = alpha.root / "tasks" / "one" / "task.md"
    eventually(lambda: shown.exists() and "in-progress" in shown.read_text())
    alpha.kill()
    lose(alpha)
    rebuilt(alpha, "--replace")
    (attempt,) = alpha.attempts("one")
    assert (alpha.phase("one"), attempt["waiting_for"]) == ("executing", "lookup")

    for path in (alpha.root / ".mailboxd" / "turns").iterdir():
        path.rename(alpha.root / path.name)
    rebuilt(alpha, "--replace")
    assert alpha.phase("one") == "circuit_open", "nobody knows which session to ask about: a person decides"


@pytest.mark.parametrize("begun", [1, 3, 6, 9])
def test_killed_and_robbed_of_its_database_it_does_nothing_twice(found: Found, begun: int) -> None:
    work = {"default": {"reply": "Result of {title}.", "delay": 0.2}}
    company = found({"alpha": work, "beta": work})
    alpha = company["alpha"]
    plan = PLAN | {"table": {"agent": "self", "description": "Make the table"}}
    for number in range(3):
        alpha.drop(f"m{number}.md", task(f"t{number}", plan=plan))
    alpha.start()
    eventually(lambda: len(company.executions()) >= begun)
    alpha.kill()
    lose(alpha)
    rebuilt(alpha, "--replace")
    alpha.start()

    def unknown() -> list[str]:
        """What ended in the instant before the kill, when no file said so yet: that is a person's to decide."""
        return [name for name, phase in alpha.phases().items() if phase == "circuit_open"]

    def is_settled(tree: str) -> bool:
        return alpha.phase(tree) == "completed" or any(name.startswith(f"{tree}.") for name in unknown())

    eventually(lambda: all(is_settled(f"t{number}") for number in range(3)), 30, alpha.last_words)
    eventually(alpha.has_nothing_to_do)
    assert alpha.stop() == 0
    held = {name.partition(".")[0] for name in unknown()}
    assert len(unknown()) <= 1, "one at a time runs for each agent"
    assert len(company.executions()) == 12 - len(held), "three trees of three children, and their syntheses"
    assert alpha.call("audit", "verify").returncode == 0


def test_beside_a_daemon_it_is_refused(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    before = database(alpha).stat().st_ino
    assert alpha.call("rebuild", "--replace").returncode == 73
    assert alpha.call("rebuild", "--into", "x.db").returncode == 73
    assert database(alpha).stat().st_ino == before
    assert alpha.call("rebuild").returncode == 2


def test_the_one_before_is_kept_even_when_it_is_damaged(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.drop("one.md", task("one"))
    alpha.run()
    raw = database(alpha).read_bytes()
    database(alpha).write_bytes(raw[:4096] + b"\xff" * 8192 + raw[12288:])
    said = rebuilt(alpha, "--replace")
    assert Path(said["kept"]).name.startswith("mailboxd.db.replaced-")
    assert Path(said["kept"]).stat().st_size >= 12288
    assert alpha.phase("one") == "completed"
    assert list(database(alpha).parent.glob("heads.jsonl.replaced-*"))
    alpha.run()
    assert alpha.call("audit", "verify").returncode == 0


def test_what_was_put_away_stays_away(found: Found) -> None:
    alpha = found({"alpha": WORK}, tasks={"keep_days": 0})["alpha"]
    alpha.drop("one.md", task("one"))
    alpha.run()
    alpha.run()
    away = alpha.root / "tasks" / ".archive"
    assert [path.name for path in away.iterdir()] == ["one"]
    lose(alpha)
    rebuilt(alpha, "--replace")
    alpha.run()
    assert alpha.phase("one") == "completed"
    assert [path.name for path in away.iterdir()] == ["one"]
    assert not (alpha.root / "tasks" / "one").exists()
