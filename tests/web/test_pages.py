"""The page over a company that works: what it shows, and what a person does there, recorded in the person's name."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import ALONE, acting, effect, happened
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, task
from tests.web.serve import Answer, Browser

pytestmark = pytest.mark.slow

ME = pwd.getpwuid(os.getuid()).pw_name
Opened = Callable[..., Browser]


def asked(agent: Agent) -> dict[str, Any]:
    """The request that waits, as soon as there is one."""
    found: list[dict[str, Any]] = eventually(lambda: agent.json("approve"), 20, agent.last_words)
    return found[0]


def waiting(found: Found, witness: Path) -> tuple[Company, dict[str, Any]]:
    company = found({"alpha": {"default": {"reply": "The outcome."}}}, approvals=ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("job.md", acting("job", [effect(witness, risk="it may hurt")]))
    return company, asked(alpha)


def test_an_approval_on_the_page_is_performed_once_under_the_users_name(
    found: Found, opened: Opened, tmp_path: Path
) -> None:
    company, row = waiting(found, tmp_path / "witness")
    page = opened(company)
    key = page.key()
    overview = page.get("/").words
    assert "Needs you 1" in overview
    assert "green" in overview
    path = f"/w/{key}/a/{row['short_id']}"
    shown = page.get(path)
    assert row["digest"] in shown.text
    assert "it may hurt" in shown.words
    assert str(tmp_path / "witness") in shown.words  # the exact action
    answer = page.form(path, decision="approved", note="seen")
    assert answer.status == 303
    assert answer.headers["location"].endswith("?done=approved")
    company["alpha"].until("job")
    assert happened(tmp_path / "witness") == 1
    (recorded,) = company["alpha"].query("SELECT resolved_by, note FROM v_approvals")
    assert recorded == {"resolved_by": ME, "note": "seen"}
    assert f"Decided {ME}" in page.get(path).words
    assert "<form method" not in page.get(path).text.partition("<footer")[0]
    company.at_rest()


def test_an_approval_is_bound_to_the_shown_digest(found: Found, opened: Opened, tmp_path: Path) -> None:
    company, row = waiting(found, tmp_path / "witness")
    page = opened(company)
    path = f"/w/{page.key()}/a/{row['short_id']}"
    for digest in ("", "0" * 64, row["digest"][:12], row["digest"].upper(), "x"):
        answer = page.form(path, decision="approved", digest=digest)
        assert answer.status == 409
        assert "Nothing was changed" in answer.words
    for decision, note in (("rejected", ""), ("request_changes", " "), ("maybe", "x"), ("", "x")):
        assert page.form(path, decision=decision, note=note).status == 409
    assert asked(company["alpha"])["status"] == "pending"
    assert page.form(path, decision="rejected", note="not today").headers["location"] == f"{path}?done=held"
    assert asked(company["alpha"])["status"] == "pending", "nothing is stopped yet"
    assert "Undo" in page.get("/").words
    company["alpha"].until("job", "failed")
    (recorded,) = company["alpha"].query("SELECT status, resolved_by, note FROM v_approvals")
    assert recorded == {"status": "rejected", "resolved_by": ME, "note": "not today"}
    assert not happened(tmp_path / "witness")


def test_what_is_refused_on_the_overview_keeps_what_was_written(found: Found, opened: Opened, tmp_path: Path) -> None:
    company, row = waiting(found, tmp_path / "witness")
    page = opened(company)
    answer = page.form("/", decision="rejected", note=" ")
    assert answer.status == 409
    assert answer.text.count("note is required unless you approve") == 2  # above, and in place
    answer = page.form("/", decision="approved", note="Take <b>care</b>", digest="0" * 64)
    assert answer.status == 409
    assert "Take &lt;b&gt;care&lt;/b&gt;</textarea>" in answer.text
    assert f'aria-describedby="problem-{row["id"]}"' in answer.text
    assert page.form("/", decision="rejected", note="not today").headers["location"] == "/?done=held"
    assert page.form("/", undo="job").headers["location"] == "/?done=undone"
    assert asked(company["alpha"])["status"] == "pending"


def test_changes_are_requested_and_a_second_word_is_refused(found: Found, opened: Opened, tmp_path: Path) -> None:
    company, row = waiting(found, tmp_path / "witness")
    company["alpha"].stop()  # what is decided is recorded without a daemon
    page = opened(company)
    path = f"/w/{page.key()}/a/{row['id']}"
    form = page.get(path).text
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form.partition("<footer")[0]))
    assert page.post(path, {**hidden, "decision": "request_changes", "note": "smaller"}).status == 303
    answer = page.post(path, {**hidden, "decision": "approved"})
    assert answer.status == 409
    assert [row["status"] for row in company["alpha"].query("SELECT status FROM v_approvals")] == ["request_changes"]


_OVER = {"failed", "circuit_open"}


def test_orders_are_those_of_the_command_line(found: Found, opened: Opened) -> None:
    rules = [
        {"match": {"task": "asks"}, "times": "1", "question": "Which figures?"},
        {"match": {"task": "breaks"}, "times": "1", "fail": "the site is away"},
        {"match": {"task": "stuck"}, "fail": "the site is away"},
        {"match": {"task": "lasts"}, "delay": 600},
    ]
    company = found(
        {"alpha": {"rules": rules, "default": {"reply": "The outcome."}}}, limits={"turns": 6, "turns_per_agent": 6},
        retry={"max_attempts": 1, "backoff_seconds": 0.05, "backoff_max_seconds": 0.2},
    )  # fmt: skip
    alpha = company["alpha"]
    alpha.start()
    for name in ("asks", "breaks", "stuck", "lasts"):
        alpha.drop(f"{name}.md", task(name))
    page = opened(company)
    key = page.key()
    eventually(lambda: "Which figures?" in page.get(f"/w/{key}/t/asks").words, 30, alpha.last_words)
    assert page.form(f"/w/{key}/t/asks", order="answer", text="").status == 409
    assert page.form(f"/w/{key}/t/asks", order="answer", text="The audited ones.").status == 303
    alpha.until("asks")
    eventually(lambda: {alpha.phase("breaks"), alpha.phase("stuck")} <= _OVER, 30, alpha.last_words)
    for name in ("breaks", "stuck"):
        order = "unblock-retry" if alpha.phase(name) == "circuit_open" else "retry"
        assert page.form(f"/w/{key}/t/{name}", order=order, note="it is up again").status == 303
    alpha.until("breaks")
    eventually(lambda: alpha.phase("stuck") in _OVER, 30, alpha.last_words)
    if alpha.phase("stuck") == "circuit_open":
        assert page.form(f"/w/{key}/t/stuck", order="unblock-fail").status == 303
        alpha.until("stuck", "failed")
    eventually(lambda: alpha.phase("lasts") == "executing", 30, alpha.last_words)
    assert page.form(f"/w/{key}/t/lasts", order="cancel", reason="not wanted").status == 303
    assert alpha.phase("lasts") == "executing", "it is held"
    assert page.form(f"/w/{key}/t/lasts", undo="lasts").headers["location"].endswith("?done=undone")
    assert page.form(f"/w/{key}/t/lasts", order="cancel", reason="not wanted").status == 303
    alpha.until("lasts", "cancelled")
    refused = page.post(f"/w/{key}/t/lasts", _hidden(page, f"/w/{key}/t/stuck") | {"order": "cancel"})
    assert refused.status == 409
    assert "Not done" in refused.words
    people = {row["actor"] for row in alpha.query("SELECT DISTINCT actor FROM v_events WHERE role = 'operator'")}
    assert ME in people


def _hidden(page: Browser, path: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(form)" value="([^"]*)">', page.get(path).text)[:1])


def test_a_rejected_file_is_read_and_dismissed_on_the_page(found: Found, opened: Opened) -> None:
    company = found({"alpha": {"default": {"reply": "The outcome."}}})
    alpha = company["alpha"]
    alpha.drop("bad.md", "---\ntype: reply\nstatus: perhaps\n---\n")
    alpha.run()
    page = opened(company)
    key = page.key()
    assert "Rejected bad.md, line" in page.get("/").words
    link = re.search(rf'<a class="button" href="(/w/{key}/m/[^"]+)">', page.get("/").text)
    assert link
    assert "status: perhaps" in page.get(link[1]).words
    assert "From not readable To alpha" in page.get(link[1]).words
    assert page.form("/", dismiss="x").status == 409
    assert page.form("/", dismiss=link[1].rpartition("/")[2]).headers["location"] == "/?done=dismissed"
    assert "Nothing waits for you" in page.get("/").words


def test_failures_doubts_and_refused_files_are_on_the_page_until_they_are_seen(found: Found, opened: Opened) -> None:
    broken = {"rules": [{"fail": {"kind": "permanent", "error": "no credit"}}]}
    company = found({"alpha": broken})
    alpha = company["alpha"]
    (alpha.root / "tasks" / "trip").mkdir()
    (alpha.root / "tasks" / "trip" / "task.md").write_text("---\nfrom: a\nfrom: b\n---\n\n# Trip\n")
    alpha.drop("1.md", task("one", prority=5))
    alpha.drop("2.md", task("two"))
    alpha.run()
    page = opened(company)
    shown = page.get("/").words
    assert shown.count("Has failed for good: ⚠️ scripted/stand-in request failed (no credit, HTTP 400)") == 2
    assert "A new task is not taken: tasks/trip/task.md:3" in shown
    assert "unknown header &#39;prority&#39;" in page.get("/").text
    record = page.get(f"/w/{page.key()}/t/one").words
    assert "In doubt: 1.md: unknown header" in record
    assert "mailboxd doctor --canary # first mend the model's access" in record
    assert page.get("/").words.count("Has failed for good") == 1, "the page of one was opened"
    for _ in range(3):
        button = re.search(r'name="dismiss" value="([^"]+)"', page.get("/").text)
        assert button
        assert page.form("/", dismiss=button[1]).headers["location"] == "/?done=dismissed"
    assert "Nothing waits for you" in page.get("/").words


def test_tasks_that_wait_for_a_person_are_told_apart(found: Found, opened: Opened, tmp_path: Path) -> None:
    company, _ = waiting(found, tmp_path / "witness")
    company["alpha"].drop("plain.md", task("plain"))
    company["alpha"].until("plain")
    page = opened(company)
    key = page.key()
    assert "needs you job" in page.get(f"/w/{key}/t/job").words.replace("‖ ", "")
    rows = page.get(f"/w/{key}?state=needs%20you").text.count("data-row href")
    assert rows == 1


def test_a_task_is_sent_from_the_page(found: Found, opened: Opened) -> None:
    company = found({"alpha": {"default": {"reply": "The outcome."}}})
    page = opened(company)
    key = page.key()
    refused = page.form("/new", send="task", workspace=key, title="Empty", instructions=" ")
    assert refused.status == 409
    assert 'value="Empty"' in refused.text
    assert "A task needs instructions" in refused.words
    unclear = page.form("/new", send="task", workspace=key, instructions="Count", not_before="11/12/2027")
    assert (unclear.status, "11 December or 12 November" in unclear.text) == (409, True)
    sent = page.form("/new", send="task", workspace=key, title="", instructions="Count <b>all</b>\nof them")
    assert sent.headers["location"].startswith(f"/w/{key}?done=left&sent=msg_")
    company["alpha"].run()
    (row,) = company["alpha"].query("SELECT title, phase, sender, local_id FROM v_tasks")
    assert (row["title"], row["phase"], row["sender"]) == ("Count <b>all</b>", "completed", "operator")
    assert row["local_id"].startswith("count-b-all-b-")
    assert "Count <b>all</b>" in page.get(f"/w/{key}").words


def test_work_that_repeats_is_sent_from_the_page_and_looked_after_there(found: Found, opened: Opened) -> None:
    company = found({"alpha": {"default": {"reply": "Watered."}}})
    page = opened(company)
    key = page.key()
    untimed = page.form("/new", send="task", workspace=key, instructions="Water", repeat="daily")
    assert (untimed.status, "at what time of the day" in untimed.text) == (409, True)
    page.form("/new", send="task", workspace=key, instructions="Water", repeat="daily at 07:00")
    company["alpha"].run()
    assert "daily at 07:00, next" in page.get(f"/w/{key}").words
    assert "Later 1" in page.get("/").words
    assert "· daily at 07:00" in page.get("/").words
    (row,) = company["alpha"].query("SELECT name FROM v_repetitions")
    for order, says in (("pause", "paused by"), ("resume", "daily at 07:00, next"), ("run", f"{row['name']}-1")):
        done = page.form(f"/w/{key}", repetition=row["name"], repeat=order)
        assert done.headers["location"].endswith(f"?done=repeat-{order}")
        assert says in page.get(f"/w/{key}").words
    page.form(f"/w/{key}", repetition=row["name"], repeat="end")
    assert "daily at 07:00" not in page.get(f"/w/{key}").words.partition("Latest events")[0]


def test_a_recipe_is_started_from_the_page(found: Found, opened: Opened) -> None:
    company = found({"alpha": {"default": {"reply": "Now."}}})
    page = opened(company)
    key = page.key()
    assert f'href="/new?w={key}&amp;recipe=debate"' in page.get(f"/new?w={key}").text
    path = f"/new?w={key}&recipe=debate"

    def start(**values: str) -> Answer:
        said = {"question": "Now?", "judge": "self", **values}
        return page.form(
            path, None, send="recipe", workspace=key, **{f"with-{name}": text for name, text in said.items()}
        )

    refused = start()
    assert refused.status == 409
    assert "Debate needs debaters. Fill it in." in refused.words
    assert ">\nNow?</textarea>" in refused.text
    refused = start(debaters="alpha\nalpha", rounds="")
    assert refused.status == 409  # the agents of a broadcast differ
    assert ">\nalpha\nalpha</textarea>" in refused.text
    sent = start(debaters="self", rounds="1")
    assert sent.headers["location"].startswith(f"/w/{key}?done=left&sent=msg_")
    company["alpha"].run()
    (row,) = company["alpha"].query("SELECT title, phase FROM v_tasks WHERE parent IS NULL")
    assert row == {"title": "Now?", "phase": "completed"}
    assert page.get("/new?recipe=nothing").status == 409


def test_a_task_shows_all_that_is_on_record(found: Found, opened: Opened) -> None:
    rules = [
        {"match": {"task": "q.two", "attempt": "1"}, "reply": "one\ntwo\nthree\n"},
        {"match": {"task": "q.two"}, "reply": "one\n2\nthree\n"},
    ]
    company = found({"alpha": {"rules": rules, "default": {"reply": "Result of {title}."}}})
    alpha = company["alpha"]
    plan = {
        "one": {"agent": "self", "description": "one"},
        "two": {"agent": "self", "description": "two", "depends_on": ["one"]},
    }
    alpha.drop("q.md", task("q", plan=plan, labels="[finance]"))
    alpha.run()
    assert alpha.call("retry", "q.two", "--note", "in digits").returncode == 0
    alpha.run()
    page = opened(company)
    key = page.key()
    words = page.get(f"/w/{key}/t/q.two").words
    for part in ("one 2 three", "-two", "+2", "Attempt 1 to 2", "Spec", "Timeline"):
        assert part in words
    assert "q.two: attempt 2 succeeded" in page.get(f"/w/{key}/t/q.two/log").words
    tree = page.get(f"/w/{key}/t/q").text
    assert f'href="/w/{key}/t/q.one"' in tree
    assert tree.count('class="node good"') == 3
    assert "attempt" in page.get(f"/w/{key}/t/q").words
    link = re.findall(rf'href="(/w/{key}/m/[^"]+)">archive/', page.get(f"/w/{key}/t/q").text)[0]
    raw = page.get(link)
    assert "type: task" in raw.text
    assert "subtasks:" in raw.text
    assert "q.md" in page.get(f"/w/{key}/messages").words
    hits = re.findall(r'<a data-row href="/w/[^"]*/t/([^"]*)">', page.get("/search?q=Result").text)
    assert sorted(hits) == ["q", "q.one"]  # each once, however often the word stands in it
    assert page.get("/search?q=%22%22").status == 409  # no word in it
    assert page.get(f"/w/{key}?q=two").text.count("data-row") == 1
    assert page.get(f"/w/{key}?label=finance").text.count("data-row href") == 3
    assert page.get(f"/w/{key}?label=other").words.count("No matching tasks") == 1
    assert f'href="/w/{key}?label=finance"' in page.get(f"/w/{key}/t/q").text
    assert page.get(f"/w/{key}?state=done:+failed").words.count("No matching tasks") == 1


def test_no_reply_token_is_ever_shown(found: Found, opened: Opened) -> None:
    company = found({"alpha": {}, "beta": {"default": {"reply": "The outcome."}}}, daemons=["alpha", "beta"])
    alpha = company["alpha"]
    for name in ("alpha", "beta"):
        company[name].start()
    alpha.drop("q.md", task("q", plan={"one": {"agent": "beta", "description": "one"}}))
    alpha.until("q")
    tokens = {row["reply_token"] for row in alpha.query("SELECT reply_token FROM v_attempts WHERE reply_token <> ''")}
    assert tokens
    page = opened(company)
    for name in ("alpha", "beta"):
        key = page.key(name)
        paths = [
            f"/w/{key}/messages",
            f"/w/{key}",
            *re.findall(rf"/w/{key}/m/[^\"]+", page.get(f"/w/{key}/messages").text),
        ]
        paths += re.findall(rf'/w/{key}/t/[^"/]+', page.get(f"/w/{key}?children=1").text)
        for path in paths:
            answer = page.get(path)
            assert answer.status == 200
            assert not [token for token in tokens if token in answer.text]


def test_several_workspaces_are_shown_even_if_one_is_damaged_or_removed(found: Found, opened: Opened) -> None:
    company = found({name: {} for name in ("alpha", "beta", "gamma")}, daemons=["alpha", "beta", "gamma"])
    for name in ("alpha", "beta", "gamma"):
        company[name].drop("t.md", task("t"))
        company[name].run()
    page = opened(company)
    assert [page.key(name)[:-9] for name in ("alpha", "beta", "gamma")] == ["alpha", "beta", "gamma"]
    gone = page.key("gamma")
    shutil.rmtree(company["gamma"].root)
    (company["beta"].root / ".mailboxd" / "mailboxd.db").write_bytes(b"no database at all" * 500)
    words = page.get("/").words
    assert "gamma" not in words
    assert "Finished since you looked 1 " in words
    assert "beta" in words
    assert page.get(f"/w/{gone}").status == 404
    assert page.get(f"/w/{page.key('beta')}").status == 200
    assert page.get(f"/w/{page.key('beta')}/t/t").status == 503
    assert page.get(f"/changed?w={page.key('beta')}").text.endswith(":none")
    del company.agents["beta"], company.agents["gamma"]


def test_named_workspaces_are_shown_and_no_others(found: Found, opened: Opened) -> None:
    company = found({"alpha": {}, "beta": {}}, daemons=["alpha", "beta"])
    for name in ("alpha", "beta"):
        company[name].drop("t.md", task("t"))
        company[name].run()
    page = opened(company, "alpha", str(company["beta"].root))
    shown = page.get("/").text
    assert "/ws/beta" in shown
    assert "/ws/alpha" not in shown


def test_a_page_is_told_when_something_was_recorded(found: Found, opened: Opened) -> None:
    company = found({"alpha": {}})
    alpha = company["alpha"]
    alpha.start()
    page = opened(company)
    address = f"/changed?w={page.key()}"
    assert f'data-changed="{address}"' in page.get(f"/w/{page.key()}").text
    first = page.get(address).text
    assert first.endswith(":green")
    alpha.drop("t.md", task("t"))
    alpha.until("t")
    eventually(lambda: page.get(address).text != first)


def test_the_daemon_serves_the_page_if_configured(found: Found) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    company = found({"alpha": {}}, web={"port": port})
    alpha = company["alpha"]
    alpha.start()
    page = Browser(port, "")

    def answers() -> bool:
        try:
            return page.get("/").status == 401
        except OSError:
            return False

    eventually(answers, 30, alpha.last_words)
    page.link = alpha.call("web", "--link").stdout.strip()
    assert page.enter().status == 303
    assert "green" in page.get("/").words
    alpha.kill()

    def is_gone() -> bool:
        try:
            page.get("/")
        except OSError:
            return True
        return False

    eventually(is_gone, 30)
