"""Mail that came while nobody read it, more than one look takes: it counts before any clock does."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from itertools import count, islice

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Settings, eventually, message, reply, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
ONE = {"x": {"agent": "beta", "description": "X", "idempotent": True}}
MANY = 1200
"""More than two looks take."""
FOR_ALL: Settings = {"reply_within_seconds": 2, "synthesis": "concat", "inbox": {"rescan_seconds": 1}}


def pile_up(alpha: Agent, last: str) -> None:
    """A pile of replies to nobody, and behind it, in its order, the one that matters."""
    for number in range(MANY):
        alpha.drop(f"{number:05}.md", reply("nobody", f"n{number}", "beta"))
    alpha.drop("zzz.md", last)


def lease_is_over(alpha: Agent) -> bool:
    return str(alpha.task("job.x")["due"]) < datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_reply_behind_ten_thousand_others_is_read_before_its_lease_is_judged(found: Found) -> None:
    """The daemon was down, the reply came in time, the time is over: the work is done, and not given out again."""
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}}, **FOR_ALL)
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=ONE))
    alpha.run()
    assert alpha.attempts("job.x")[0]["waiting_for"] == "reply"
    pile_up(alpha, reply("job", "x", "beta", "Done in time."))
    eventually(lambda: lease_is_over(alpha))
    alpha.start()
    assert "Done in time." in alpha.until("job")["result"]
    assert len(alpha.attempts("job.x")) == 1
    assert len(alpha.sent("task")) == 1
    company.at_rest()


def test_a_cancel_behind_ten_thousand_others_is_read_before_anything_is_begun(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("0.md", task("unwanted"))
    pile_up(alpha, message("cancel", "unwanted", "Not any more."))
    alpha.start()
    eventually(lambda: alpha.phase("unwanted") == "cancelled" and not alpha.unread(), 60)
    assert not company.executions()
    company.at_rest()


def test_mail_that_never_ends_does_not_stop_the_work(found: Found) -> None:
    """What comes after the start is not waited for, or a flood would keep everything from being begun."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    pile_up(alpha, task("wanted"))
    alpha.start()
    numbers = count()

    def has_begun() -> bool:
        for number in islice(numbers, 20):
            alpha.drop(f"a{number:05}.md", reply("nobody", f"a{number}", "beta"))
        return bool(company.executions())

    eventually(has_begun, 30, lambda: str(len(alpha.unread())))
    alpha.until("wanted")
    eventually(lambda: not alpha.unread(), 120)
    company.at_rest()


def test_a_daemon_that_was_stopped_reads_its_mail_before_it_looks_at_the_clock(found: Found) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}}, **FOR_ALL)
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: [row for row in alpha.attempts("job.x") if row["waiting_for"] == "reply"])
    process.send_signal(signal.SIGSTOP)
    pile_up(alpha, reply("job", "x", "beta", "Done in time."))
    eventually(lambda: lease_is_over(alpha))
    process.send_signal(signal.SIGCONT)
    assert "Done in time." in alpha.until("job")["result"]
    assert len(alpha.attempts("job.x")) == 1
    assert len(alpha.sent("task")) == 1
    company.at_rest()


def test_nobody_is_too_late_whose_reply_lies_in_an_inbox_that_cannot_be_emptied(found: Found) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}}, **FOR_ALL)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: [row for row in alpha.attempts("job.x") if row["waiting_for"] == "reply"])
    eventually(alpha.has_nothing_to_do)
    archive = alpha.root / "mailbox" / "archive"
    archive.rename(archive.with_name("elsewhere"))
    alpha.drop("r.md", reply("job", "x", "beta", "Done in time."))
    eventually(lambda: lease_is_over(alpha))
    eventually(lambda: "mailbox/archive" in alpha.last_words())
    assert alpha.phase("job.x") == "executing"
    archive.with_name("elsewhere").rename(archive)
    assert "Done in time." in alpha.until("job")["result"]
    assert len(alpha.attempts("job.x")) == 1
    company.at_rest()
