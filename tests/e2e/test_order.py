"""Dropped files that follow each other, with a daemon that is killed in between."""

from __future__ import annotations

import shlex

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
FAILS = {"match": {"task": "write"}, "times": 1, "fail": {"kind": "permanent", "error": "no ink"}}
BREAKS = {"rules": [FAILS], **WORK}


def note(name: str, *follows: str) -> str:
    return f"---\ntask_id: {name}\ndepends_on: [{', '.join(follows)}]\n---\n\n# {name.title()} it\n\nBy noon.\n"


def held(alpha: Agent, name: str) -> str:
    return str(alpha.task(name).get("held", ""))


def test_they_are_done_in_their_order_whichever_came_first_and_whatever_dies(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("fold.md", note("fold", "print"))
    alpha.drop("print.md", note("print", "write"))
    eventually(lambda: set(alpha.phases()) == {"fold", "print"}, 30, alpha.last_words)
    alpha.kill()
    alpha.start()
    assert set(alpha.phases().values()) == {"execution_ready"}
    alpha.drop("write.md", note("write"))
    alpha.until("fold")
    ended = alpha.query("SELECT local_id FROM v_tasks ORDER BY completed_at")
    assert [row["local_id"] for row in ended] == ["write", "print", "fold"]
    assert alpha.call("db", "verify").returncode == 0
    assert alpha.json("inbox") == []
    company.at_rest()


def test_what_waits_in_vain_is_on_hold_over_a_crash_and_the_command_that_is_shown_lets_it_begin(found: Found) -> None:
    company = found({"alpha": BREAKS})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("write.md", note("write"))
    alpha.drop("print.md", note("print", "write"))
    alpha.until("write", "failed")
    eventually(lambda: "write, which has failed" in held(alpha, "print"), 30, alpha.last_words)
    alpha.kill()
    alpha.start()
    (item,) = [item for item in alpha.json("inbox") if item["kind"] == "hold"]
    assert item["text"] == "stopped because it is to follow write, which has failed"
    program, *words = shlex.split(item["command"])
    assert program == "mailboxd"
    assert alpha.call(*words).returncode == 0
    alpha.until("print")
    assert alpha.call("db", "verify").returncode == 0


def test_what_is_done_again_is_followed_again(found: Found) -> None:
    company = found({"alpha": BREAKS})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("write.md", note("write"))
    alpha.until("write", "failed")
    alpha.drop("print.md", note("print", "write"))
    eventually(lambda: bool(held(alpha, "print")), 30, alpha.last_words)
    assert alpha.call("retry", "write").returncode == 0
    alpha.until("print")
    assert held(alpha, "print") == ""
    company.at_rest()
