"""A peer that has run wild: what is too much waits or is refused, and nobody else notices."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Text."}}


def _has_judged(agent: Agent, count: int) -> bool:
    return len(agent.mail()) == count


def test_more_messages_than_allowed_wait_in_the_inbox_and_others_pass_them(found: Found) -> None:
    company = found({"alpha": WORK}, limits={"sender_messages": 3, "turns": 4, "turns_per_agent": 4})
    alpha = company["alpha"]
    for number in range(20):
        alpha.drop(f"wild-{number:02}.md", task(f"wild-{number:02}", sender="beta", subtask_id="x"))
    alpha.start()
    alpha.drop("calm.md", task("calm", sender="gamma", subtask_id="x"))
    alpha.until("calm.x")
    # a test may begin at the end of a minute
    eventually(lambda: len(alpha.mail("accepted")) in (4, 7) and alpha.has_nothing_to_do())
    assert len(os.listdir(alpha.inbox)) >= 20 - 6
    assert alpha.mail("rejected") == []
    for path in alpha.inbox.iterdir():
        path.unlink()  # it would be an hour until the last of them is taken
    company.at_rest()


def test_a_task_that_is_rejected_again_and_again_is_answered_once(found: Found) -> None:
    """Each answer is a message, and where the sender has no mailbox a turn that somebody pays for."""
    company = found({"alpha": WORK, "beta": WORK})
    alpha = company["alpha"]
    alpha.start()
    waits_for_itself = {"a": {"agent": "self", "description": "A", "depends_on": ["a"]}}
    text = task("job", sender="beta", subtask_id="x", plan=waits_for_itself)
    for number in range(30):
        alpha.drop(f"{number}.md", text)
    eventually(lambda: not alpha.unread() and alpha.has_nothing_to_do())
    alpha.stop()
    alpha.drop("after-a-restart.md", text)
    alpha.run()
    assert len(alpha.rejections()) == 31
    assert set(alpha.rejections().values()) == {"cycle"}
    assert len(alpha.sent("reply")) == 1
    company.at_rest()


def test_more_open_tasks_than_allowed_are_refused_and_their_sender_is_told(found: Found) -> None:
    slow = {"default": {"delay": 5, "reply": "Text."}}
    company = found({"alpha": slow, "beta": {"mailbox": "true"}}, limits={"sender_open_tasks": 2})
    alpha = company["alpha"]
    alpha.start()
    for number, sender in enumerate(("beta", "Beta", "beta", "gamma")):
        alpha.drop(f"{number}.md", task(f"t{number}", sender=sender, subtask_id="x"))
        eventually(partial(_has_judged, alpha, number + 1))
    assert alpha.rejections() == {"2.md": "too-many-open"}
    eventually(lambda: any("too-many-open" in text for text in alpha.sent("reply")))
