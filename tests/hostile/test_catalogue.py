"""Every hostile file at once in the inbox of one real daemon, between good mail that must not notice.

What can be no file at all (links, pipes, devices, names), slow writers and full disks are in tests/e2e/test_files.py
and tests/mailbox; who may say what about whose work is in tests/e2e/test_identity.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import Agent, Company, eventually
from tests.hostile.catalogue import CASES, GOOD, Case

pytestmark = pytest.mark.slow

GOOD_ONES = [f"good-{n}" for n in range(1, 6)]
MOST_MEMORY = 40 << 10
"""KiB that the daemon may need more for all of it together; a file is read into at most 1 MiB."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    alpha: Agent
    rows: dict[str, dict[str, Any]]
    events: list[dict[str, Any]]
    peak: int
    before: int


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    company = Company(tmp_path_factory.mktemp("hostile"), {"alpha": {"default": {"reply": "Text."}}})
    alpha = company["alpha"]
    alpha.settle_in({"synthesis": "concat", "limits": {"turns": 4, "turns_per_agent": 4}})
    try:
        daemon = alpha.start()
        before = memory(daemon.pid)
        for number, case in enumerate(CASES):
            alpha.drop(case.file, case.raw)
            if number % (len(CASES) // len(GOOD_ONES)) == 0 and number // (len(CASES) // len(GOOD_ONES)) < len(
                GOOD_ONES
            ):
                name = GOOD_ONES[number // (len(CASES) // len(GOOD_ONES))]
                alpha.drop(f"{name}.md", GOOD.replace("{name}", name))
        total = len(CASES) + len(GOOD_ONES)
        eventually(lambda: len(alpha.mail()) >= total, 60, lambda: f"{len(alpha.mail())}\n{alpha.last_words()}")
        running = "SELECT 1 FROM v_tasks WHERE phase NOT IN ('completed', 'failed', 'cancelled', 'circuit_open')"
        eventually(lambda: not alpha.query(running), 60, lambda: f"{alpha.phases()}\n{alpha.last_words()}")
        peak = memory(daemon.pid)
        company.at_rest()
        yield Aftermath(
            alpha, {row["name"]: row for row in alpha.mail()}, alpha.query("SELECT * FROM v_events"), peak, before
        )
    finally:
        company.close()


def memory(pid: int) -> int:
    """The most that a process has had in memory, in KiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_file_has_its_verdict_and_its_bytes(after: Aftermath, case: Case) -> None:
    row = after.rows[case.file]
    reason = json.loads(row["reason"]) if row["reason"] else {}
    assert (reason.get("rule") or row["verdict"]) == case.outcome, reason
    place = after.alpha.root / "mailbox" / row["path"]
    assert row["path"].startswith("rejected/" if case.is_rejected else "archive/")
    if row["sha256"] is not None:  # what was too large was moved unread
        assert row["sha256"] == hashlib.sha256(case.raw).hexdigest()
    assert hashlib.sha256(place.read_bytes()).digest() == hashlib.sha256(case.raw).digest()
    mine = [e for e in after.events if json.loads(e["data"]).get("message", {}).get("id") == row["id"]]
    assert [event["kind"] for event in mine] == ["message.rejected" if case.is_rejected else "message.received"]
    if case.is_rejected:
        beside = place.with_name(f"{place.name}.reason.json").read_text(encoding="utf-8")
        assert len(beside.encode()) <= 2048
        said = json.loads(beside)
        assert said["problem"].isprintable()
        assert said["hint"].isprintable()
        assert (said.get("field") or "").isprintable()


def test_the_names_of_the_cases_are_theirs_alone() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_good_mail_between_them_did_not_notice(after: Aftermath) -> None:
    assert {name: after.alpha.phase(f"{name}.x") for name in GOOD_ONES} == dict.fromkeys(GOOD_ONES, "completed")


def test_what_is_accepted_is_work_like_any_other(after: Aftermath) -> None:
    phases = after.alpha.phases()
    assert set(phases.values()) == {"completed"}
    tasks = [case for case in CASES if case.outcome == "accepted"]
    assert len(phases) == len(tasks) + len(GOOD_ONES)


def test_every_rejected_task_that_says_whose_it_is_was_answered_once(after: Aftermath) -> None:
    """At most one notice for each, and none to somebody who is only named by a file that cannot be read."""
    bounced = [row for row in after.alpha.mail(direction="out") if row["task"] is None]
    known = [row for row in after.rows.values() if row["verdict"] == "rejected" and row["type"] == "task"]
    assert len(bounced) == len(known)


def test_nothing_was_executed_written_elsewhere_or_shown_in_a_traceback(after: Aftermath) -> None:
    root = after.alpha.root
    assert list(root.rglob("pwned")) == []
    assert list(root.parent.parent.glob("**/etc")) == []
    assert {path.name for path in (root / "tasks").iterdir() if not path.name.startswith(".")} == set(
        after.alpha.phases()
    )
    log = after.alpha.log.read_text(encoding="utf-8")
    assert "Traceback" not in log
    assert "bug" not in log
    assert "\x1b" not in log


def test_all_of_it_together_costs_little_memory(after: Aftermath) -> None:
    assert after.peak - after.before < MOST_MEMORY
