"""`mailboxd db rebuild` on what real daemons left, and what they do with the database that it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.acting import ALONE, acting, approve, asked, effect, happened, rows
from tests.e2e.conftest import Found, found
from tests.e2e.support import Agent, Company, eventually, reply, task
from tests.rebuild.test_histories import rows as rows_of

pytestmark = pytest.mark.slow

__all__ = ["found"]

WORK = {"default": {"reply": "Result of {title}."}}
PLAN = {
    "figures": {"agent": "beta", "description": "Get the figures"},
    "text": {"agent": "self", "description": "Write it", "depends_on": ["figures"]},
}


def database(alpha: Agent) -> Path:
    return alpha.root / ".mailboxd" / "mailboxd.db"


def rebuilt(alpha: Agent, *words: str) -> dict[str, Any]:
    done = alpha.call("db", "rebuild", "--json", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def lose(alpha: Agent) -> None:
    for path in database(alpha).parent.glob("mailboxd.db*"):
        path.unlink()


def journaled(alpha: Agent) -> bool:
    """Whether the journal has the last event: its line is written after the commit that a test can see."""
    last = alpha.query("SELECT hash FROM v_events ORDER BY seq DESC LIMIT 1")[0]["hash"]
    return str(last) in max((alpha.root / "mailbox" / "archive" / "events").glob("*.jsonl")).read_text()


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
    assert alpha.call("db", "backup", str(kept)).returncode == 0
    before = turns(company)
    lose(alpha)

    first = rebuilt(alpha, "--into", str(tmp_path / "first.db"))
    rebuilt(alpha, "--replace")
    assert rows_of(kept) == rows_of(tmp_path / "first.db") == rows_of(database(alpha))
    assert (first["taken_in"], first["problems"], first["open"]) == (None, [], 0)
    assert alpha.call("db", "verify").returncode == 0

    alpha.drop("again.md", task("two", sender="boss", plan=PLAN, note="repeated"))
    alpha.drop("new.md", task("new"))
    alpha.run()
    assert alpha.phase("new") == "completed"
    assert turns(company) == before + 2, "the new work, and the reply that was asked for again"
    assert alpha.call("db", "verify").returncode == 0


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
    before, decided = alpha.phases(), rows(alpha)
    assert happened(witness) == 2

    lose(alpha)
    said = rebuilt(alpha, "--replace")
    assert (said["taken_in"], said["problems"], said["open"]) == (None, [], 0)
    alpha.run()
    assert alpha.phases() == before
    assert rows(alpha) == decided
    assert happened(witness) == 2


def test_a_message_that_was_put_into_the_archive_is_news_and_not_history(found: Found) -> None:
    company = found({"alpha": WORK}, signing={"require": ["operator"]})
    company.env["XDG_STATE_HOME"] = str(company.root / "state")
    alpha = company["alpha"]
    assert alpha.call("connect", "keys", "create", "--operator").returncode == 0
    assert alpha.call("send", "Do it", "--task-id", "real").returncode == 0
    alpha.run()
    assert alpha.phases() == {"real": "completed"}
    day = next(path for path in (alpha.root / "mailbox" / "archive").iterdir() if path.name != "events")
    (day / "forged.md").write_text(task("forged"))
    lose(alpha)
    assert rebuilt(alpha, "--replace")["taken_in"] == {"messages": 1, "waiting": []}
    assert alpha.phases() == {"real": "completed"}, "it is not signed, so it is on record and no work"


def test_what_a_peer_has_is_waited_for_and_not_given_out_twice(found: Found) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}})
    alpha = company["alpha"]
    alpha.drop("two.md", task("two", plan=PLAN))
    alpha.start()
    eventually(lambda: [row for row in alpha.attempts("two.figures") if row["waiting_for"] == "reply"])
    eventually(lambda: journaled(alpha))
    alpha.kill()
    before = rows_of(database(alpha))
    lose(alpha)
    assert rebuilt(alpha, "--replace")["open"] == 3
    assert rows_of(database(alpha)) == before
    (attempt,) = alpha.attempts("two.figures")
    alpha.start()
    text = reply("two", "figures", "beta", "42", attempt_id=attempt["id"], reply_token=attempt["reply_token"])
    alpha.drop("reply.md", text)
    alpha.until("two")
    assert alpha.stop() == 0
    assert len(alpha.sent("task")) == 1, "it was not given out again"
    assert alpha.task("two.figures")["result"] == "42"
    assert alpha.call("db", "verify").returncode == 0


@pytest.mark.parametrize(("delay", "agent"), [(0.1, "beta"), (3.0, "self")], ids=["it ends meanwhile", "it still runs"])
def test_a_call_that_ran_when_the_database_was_lost_is_found_and_not_made_again(
    found: Found, delay: float, agent: str
) -> None:
    slowly = {"rules": [{"match": {"kind": "synthesis"}, "delay": delay, "reply": "All of it."}], **WORK}
    company = found({"alpha": slowly, "beta": WORK}, tasks={"render_seconds": 60})
    alpha = company["alpha"]
    plan = {"figures": {"agent": agent, "description": "Get the figures"}}
    alpha.drop("two.md", task("two", plan=plan))
    alpha.start()
    eventually(lambda: turns(company) == 2)
    alpha.kill()
    lose(alpha)
    rebuilt(alpha, "--replace")
    alpha.start()
    alpha.until("two")
    assert turns(company) == 2, "the child and the synthesis"
    assert "All of it." in alpha.task("two")["result"]
    assert alpha.call("db", "verify").returncode == 0


@pytest.mark.parametrize("begun", [3, *(pytest.param(begun, marks=pytest.mark.soak) for begun in (1, 6, 9))])
def test_killed_and_robbed_of_its_database_it_does_everything_once(found: Found, begun: int) -> None:
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
    for number in range(3):
        alpha.until(f"t{number}")
    eventually(alpha.has_nothing_to_do)
    assert alpha.stop() == 0
    assert len(company.executions()) == 12, "three trees of three children, and their syntheses"
    assert alpha.call("db", "verify").returncode == 0


def test_beside_a_daemon_it_is_refused(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    before = database(alpha).stat().st_ino
    assert alpha.call("db", "rebuild", "--replace").returncode == 73
    assert alpha.call("db", "rebuild", "--into", "x.db").returncode == 73
    assert database(alpha).stat().st_ino == before
    assert alpha.call("db", "rebuild").returncode == 2


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
    alpha.run()
    assert alpha.call("db", "verify").returncode == 0


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
