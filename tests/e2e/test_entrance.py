"""Who brought a file, and how: what a real daemon records of each way in."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mailboxd.host.process import name as user
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Done."}}
ME = {"owner_uid": os.geteuid(), "owner": user()}


def came(agent: Agent, name: str) -> dict[str, Any]:
    """How the message about this task came, as the log has it."""
    found = eventually(lambda: [e for e in agent.events("message.received") if e["data"]["message"]["task_id"] == name])
    row = found[0]["data"]["message"]
    return {key: row[key] for key in ("owner_uid", "owner", "came", "claimed") if key in row}


def test_every_way_into_the_inbox_is_recorded_with_what_is_known_and_what_is_claimed(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.drop("early.md", task("early"))
    alpha.start()
    assert came(alpha, "early") == {**ME, "came": "at_start"}
    alpha.drop("moved.md", task("moved"))  # renamed, by a program that claims nothing
    (alpha.inbox / "typed.md").write_text(task("typed"))
    alpha.call("send", "Sent by a command", "--task-id", "sent")
    (alpha.inbox / ".mailboxd-hub-1-2.tmp").write_text(task("forged"))
    (alpha.inbox / ".mailboxd-hub-1-2.tmp").rename(alpha.inbox / "forged.md")
    assert came(alpha, "moved") == {**ME, "came": "renamed"}
    assert came(alpha, "typed") == {**ME, "came": "in_place"}
    assert came(alpha, "sent") == {**ME, "came": "renamed", "claimed": "command"}
    assert came(alpha, "forged") == {**ME, "came": "renamed", "claimed": "hub"}
    row = next(row for row in alpha.mail() if row["task_id"] == "forged")
    assert row["verified"] == "unsigned"  # the claim proves nothing
    said = alpha.call("log", "forged").stdout
    assert f"owned by {user()} (uid {os.geteuid()}), renamed in, as its name says, by the hub" in said
    alpha.until("forged")
    (shown,) = [one for one in alpha.json("show", "typed")["messages"] if one["direction"] == "in"]
    assert {name: shown[name] for name in ("owner_uid", "owner", "came", "claimed")} == {
        **ME,
        "came": "in_place",
        "claimed": None,
    }
    assert "written in place" in alpha.call("show", "typed").stdout


def test_a_task_md_is_taken_with_the_owner_of_its_file(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    folder = alpha.root / "tasks" / "dropped"
    folder.mkdir(parents=True)
    (folder / "task.md").write_text("# Task: By hand\n\n## Instructions\n\nDo it.\n")
    alpha.start()
    alpha.until("dropped")
    (created,) = alpha.events("task.created")
    assert created["data"]["owner"] == {"uid": os.geteuid(), "name": user()}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_the_file_of_another_user_is_taken_and_named(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    for name, text in (("other", task("other")), ("broken", "---\ntype: task\n---\n")):
        (alpha.root / f"{name}.md").write_text(text)
        os.chown(alpha.root / f"{name}.md", 65534, 65534)
        (alpha.root / f"{name}.md").rename(alpha.inbox / f"{name}.md")
    assert came(alpha, "other") == {"owner_uid": 65534, "owner": "nobody", "came": "renamed"}
    (rejected,) = eventually(lambda: alpha.events("message.rejected"))
    assert rejected["data"]["message"]["reason"]["owner"] == "nobody (uid 65534)"
    assert eventually(lambda: [row for row in alpha.mail("rejected") if row["path"]])
    alpha.call("db", "verify")
