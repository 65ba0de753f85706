"""Notices of one cause are one message, quiet hours let people sleep, and the digest says once what there is."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.effects import Notify
from mailboxd.core.inputs import OpenCircuit
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Notice
from mailboxd.formats.config.model import NotifySection
from mailboxd.formats.user import registry
from mailboxd.perform.notifier import NoticeMessage, chat_text
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import NOW, Stage, make
from tests.e2e.support import eventually
from tests.perform.bell import PAUSES, Bell

SECRET = "hunter2"
DAY = 86_400.0


@pytest.fixture
def bell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bell]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # a digest is of all that is registered there
    stage = make(tmp_path / "alpha", "notify:\n  command: [somebody]\n  digest: daily at 08:00\nzone: UTC\n")
    with selectors.DefaultSelector() as selector:
        bell = Bell.beside(stage, selector)
        bell.together, bell.page = True, "http://127.0.0.1:8787"
        bell.ways = ways(tmp_path)
        yield bell
        for call in bell.calls.running.values():
            call.child.kill()
        eventually(lambda: list(bell.calls.ended()) is not None and not bell.calls.running)


def ways(tmp_path: Path, **more: Any) -> NotifySection:
    keep = tmp_path / "keep"
    keep.write_text(f'#!/bin/sh\ncat "$1" >> {tmp_path}/told; echo , >> {tmp_path}/told\n')
    keep.chmod(0o700)
    return NotifySection(command=(str(keep),), **more)


def told(bell: Bell) -> list[Any]:
    """All messages so far."""
    file = bell.stage.ws.root.parent / "told"
    return json.loads(f"[{file.read_text().rstrip().rstrip(',')}]") if file.exists() else []


def wait(bell: Bell, seconds: float) -> None:
    bell.stage.clock.advance(seconds)


def stop(stage: Stage, *names: str, why: str = "the gateway is away") -> None:
    for name in names:
        stage.create(name)
        stage.start()
        stage.handle(name, OpenCircuit(f"{why}: {name}"))


def test_tasks_that_stopped_are_one_message(bell: Bell) -> None:
    stop(bell.stage, *(f"job{number}" for number in range(4)))
    assert bell.ring() == 4
    assert told(bell) == [], "others may follow"
    assert bell.ring() == 0
    wait(bell, 3)
    bell.ring()
    (said,) = told(bell)
    assert said["text"] == "4 tasks stopped: job0, job1, job2, job3"
    assert said["command"] == f"mailboxd -w {bell.stage.ws.root} inbox"
    assert said["link"] == f"http://127.0.0.1:8787/w/{bell.stage.ws.key}"
    assert [one["task"] for one in said["notices"]] == [f"job{number}" for number in range(4)]
    assert said["notices"][0]["link"].endswith("/t/job0")
    assert bell.states() == ["done"] * 4
    assert len(bell.said("notice.sent")) == 4, "the log of each task has it"
    rows = [row for one in said["notices"] for row in bell.stage.json("show", one["task"])["told"]]
    sent = json.dumps(said, ensure_ascii=False, indent=2).encode()
    assert {row["sha256"] for row in rows} == {sha256(sent).hexdigest()}
    assert [row["together_with"] for row in rows] == [None] + [said["id"]] * 3
    assert bell.ring() == 0


def test_one_alone_is_told_as_it_is(bell: Bell) -> None:
    stop(bell.stage, "job")
    bell.ring()
    wait(bell, 3)
    bell.ring()
    (said,) = told(bell)
    assert (said["task"], said["notices"], said["kind"]) == ("job", [], "circuit")
    assert said["link"] == f"http://127.0.0.1:8787/w/{bell.stage.ws.key}/t/job"


def test_many_requests_are_one_message_that_has_nothing_of_what_would_happen(bell: Bell) -> None:
    action = replace(PUBLISH, action=SECRET, argv=("make", SECRET))
    asked = [ask(bell.stage, f"job{number}", action, preview=SECRET)[0] for number in range(3)]
    bell.ring()
    wait(bell, 3)
    bell.ring()
    (said,) = told(bell)
    message = NoticeMessage(**said | {"kind": Notice(said["kind"]), "notices": ()})
    chat = chat_text(message)
    assert "3 requests wait for your approval: " in chat
    assert all(one[-6:].lower() in chat for one in asked)
    assert SECRET not in chat
    assert chat.endswith(f"mailboxd -w {bell.stage.ws.root} approve\nhttp://127.0.0.1:8787/w/{bell.stage.ws.key}")
    assert [one["approval"]["id"] for one in said["notices"]] == asked


def test_what_fails_is_tried_again_together(bell: Bell, tmp_path: Path) -> None:
    good = bell.ways
    bell.ways = NotifySection(command=("false",))
    stop(bell.stage, "one", "two")
    bell.ring()
    wait(bell, 3)
    bell.ring()
    assert bell.states() == ["pending", "pending"]
    bell.ways = good
    wait(bell, 6)
    bell.sending.clear()  # a daemon that has died, too, and knows nothing of what it had folded
    bell.ring()
    assert [said["text"] for said in told(bell)] == ["2 tasks stopped: one, two"]
    assert bell.states() == ["done", "done"]


def night(bell: Bell, tmp_path: Path) -> None:
    """It is 23:00 of the quiet hours from 22:00 to 07:00."""
    bell.ways = ways(tmp_path, quiet="22:00-07:00")
    wait(bell, 11 * 3600.0)


def test_in_quiet_hours_notices_wait_and_come_as_one(bell: Bell, tmp_path: Path) -> None:
    night(bell, tmp_path)
    stop(bell.stage, "one", "two", "three")
    bell.ring()
    wait(bell, 3600)
    stop(bell.stage, "four")
    bell.ring()
    assert (told(bell), bell.ring()) == ([], 0)
    wait(bell, 7 * 3600.0)
    bell.ring()
    assert [said["text"] for said in told(bell)] == ["4 tasks stopped: one, two, three, four"]


def test_what_would_be_decided_without_the_person_is_told_in_quiet_hours(bell: Bell, tmp_path: Path) -> None:
    night(bell, tmp_path)
    (one,) = ask(bell.stage, "job", PUBLISH, at=bell.stage.clock.now())
    (other,) = ask(bell.stage, "other", PUBLISH, at=bell.stage.clock.now())
    with bell.opened() as engine, engine.batch():
        for name, hours in ((one, 1), (other, 20)):
            expires = plus(bell.stage.clock.now(), hours * 3600.0)
            engine.store.db.execute("UPDATE approvals SET expires_at = ? WHERE id = ?", (expires, name))
    bell.ring()
    wait(bell, 3)
    bell.ring()
    assert [said["approval"]["id"] for said in told(bell)] == [one]
    wait(bell, 8 * 3600.0)
    bell.ring()
    assert [said["approval"]["id"] for said in told(bell)] == [one, other]


def test_the_digest_comes_once_however_long_the_daemon_was_asleep(bell: Bell, tmp_path: Path) -> None:
    bell.ways = ways(tmp_path, digest="daily at 08:00")
    bell.order_digest()
    bell.order_digest()
    assert bell.ordered() == [], "the first is that of tomorrow"
    stop(bell.stage, "job")
    bell.together = False
    bell.ring()
    wait(bell, 5 * DAY)
    bell.order_digest()
    bell.order_digest()
    assert bell.ring() == 1
    said = told(bell)[-1]
    assert said["kind"] == "digest"
    assert said["text"].startswith("2 need you; nothing runs")
    assert "Decide\n- no daemon is running" in said["body"]
    assert said["command"] == f"mailboxd -w {bell.stage.ws.root} status"
    assert said["link"] == "http://127.0.0.1:8787/", "the overview"
    wait(bell, 3600)
    bell.order_digest()
    assert bell.ordered() == []
    wait(bell, DAY)
    bell.order_digest()
    assert len(bell.ordered()) == 1


def test_the_digest_tells_of_all_workspaces_of_the_user(bell: Bell, tmp_path: Path) -> None:
    other, damaged = make(tmp_path / "beta"), tmp_path / "gamma"
    other.ws.config.write_text(other.ws.config.read_text().replace('agent: "alpha"', 'agent: "beta"'))
    make(damaged).ws.database.write_bytes(b"no database")
    for root in (other.ws.root, damaged):
        assert registry.register(root, os.environ)
    bell.ways = ways(tmp_path, digest="daily at 08:00")
    bell.order_digest()
    stop(other, "report", why="the site is down")
    wait(bell, DAY)
    bell.order_digest()
    assert bell.ring() == 1
    said = told(bell)[-1]
    assert "- beta: report: " in said["body"]
    assert "the site is down" in said["body"]
    assert "gamma" in said["body"], "one that cannot be read is named"
    assert said["command"] == "mailboxd status --host"


def test_when_the_next_digest_is_due_survives_a_rebuild_of_the_database(bell: Bell, tmp_path: Path) -> None:
    bell.ways = ways(tmp_path, digest="daily at 08:00")
    stop(bell.stage, "job")
    bell.order_digest()
    with bell.opened() as engine:
        before = engine.store.meta.digest()
    assert before[2] == "2026-11-22T08:00:00.000Z"
    assert bell.stage.run("db", "rebuild", "--replace").exit_code == 0
    with bell.opened() as engine:
        assert engine.store.meta.digest() == before


def test_a_digest_with_nothing_to_say_is_not_sent_unless_it_is_wanted(bell: Bell, tmp_path: Path) -> None:
    for always in (False, True):
        bell.ways = ways(tmp_path, digest="daily at 08:00", digest_always=always)
        bell.order_digest()
        wait(bell, DAY)
        bell.order_digest()
        assert bell.ring() == 1
        assert [said["text"] for said in told(bell)] == ["nothing needs you; nothing runs"] * always
    assert bell.states() == ["done", "done"]


def test_another_rule_begins_anew(bell: Bell, tmp_path: Path) -> None:
    bell.ways = ways(tmp_path, digest="daily at 08:00")
    bell.order_digest()
    bell.ways = ways(tmp_path, digest="every 2 h")
    bell.order_digest()
    with bell.opened() as engine:
        assert engine.store.meta.digest()[2] == plus(NOW, 7200)


@pytest.mark.parametrize(
    ("notify", "says"),
    [
        ("digest: daily at 08:00", "digest has nobody to tell"),
        ("quiet: 22:00-07:00", "quiet has nobody to tell"),
        ("{command: [x], digest: daily}", "does not say at what time of the day"),
        ("{command: [x], quiet: late}", "write the hours as 22:00-07:00"),
        ("{command: [x], link: example}", "write an address like"),
    ],
)
def test_what_cannot_work_is_named_by_status_and_doctor(tmp_path: Path, notify: str, says: str) -> None:
    stage = make(tmp_path / "alpha", f"notify:\n  {notify}\n")
    assert says in stage.run("status", env={"COLUMNS": None}).stdout
    assert says.replace(" ", "") in "".join(stage.run("doctor", "--quick").stdout.split())


def test_an_order_of_an_earlier_version_is_read(bell: Bell) -> None:
    with bell.opened() as engine, engine.batch():
        engine.store.outbox.add("trn_1", "", Notify(), NOW)
        assert [order.id for order in engine.store.outbox.notices(Notice.APPROVAL)] == ["trn_1"]


def test_who_asked_is_answered_in_quiet_hours_and_the_others_after_them(bell: Bell, tmp_path: Path) -> None:
    bell.stage.ws.config.write_text("agent: alpha\nnotify:\n  command: [x]\n  reply_to: ['telegram:@ann']\n")
    openclaw = tmp_path / "openclaw"
    openclaw.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/said\n')
    openclaw.chmod(0o700)
    bell.openclaw = (str(openclaw),)
    night(bell, tmp_path)
    assert bell.stage.run("send", "--task-id", "w", "--reply-to", "telegram:@ann", "Weather?").exit_code == 0
    assert bell.stage.receive() == "accepted"
    bell.stage.start()
    bell.stage.end_turn("w", "It is warm.")
    assert bell.ring() == 1
    assert "It is warm." in (tmp_path / "said").read_text()
    assert (told(bell), bell.ring()) == ([], 0)
    wait(bell, 8 * 3600.0)
    assert bell.ring() == 1
    assert [said["task"] for said in told(bell)] == ["w"]
    assert (tmp_path / "said").read_text().count("It is warm.") == 1
    assert bell.states() == ["done", "done"]


def test_what_waits_for_the_morning_survives_a_rebuild_of_the_database(bell: Bell, tmp_path: Path) -> None:
    night(bell, tmp_path)
    stop(bell.stage, "one", "two")
    bell.ring()
    assert bell.stage.run("db", "rebuild", "--replace").exit_code == 0
    assert bell.ring() == 0
    wait(bell, 8 * 3600.0)
    bell.ring()
    assert [said["text"] for said in told(bell)] == ["2 tasks stopped: one, two"]


def down(bell: Bell, tmp_path: Path, **more: Any) -> Path:
    """The command fails while the file exists that is returned."""
    bell.ways, mark = ways(tmp_path, **more), tmp_path / "down"
    keep = Path(bell.ways.command[0])
    keep.write_text(keep.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n[ -e {mark} ] && exit 1\n"))
    mark.touch()
    return mark


@pytest.mark.slow
def test_what_is_new_is_not_given_up_with_what_failed_for_a_day(bell: Bell, tmp_path: Path) -> None:
    mark = down(bell, tmp_path)
    stop(bell.stage, "old")
    bell.ring()
    for pause in (3.0, *PAUSES[:-1]):
        wait(bell, pause)
        bell.ring()
    wait(bell, PAUSES[-1])
    stop(bell.stage, "new", why="another")
    bell.ring()
    assert bell.states() == ["failed", "pending"]
    mark.unlink()
    wait(bell, PAUSES[0])
    bell.ring()
    assert [said["task"] for said in told(bell)] == ["new"]
    assert bell.states() == ["failed", "done"]


@pytest.mark.slow
def test_what_has_failed_for_long_does_not_use_up_its_tries_by_what_is_new(bell: Bell, tmp_path: Path) -> None:
    mark = down(bell, tmp_path)
    stop(bell.stage, "old")
    bell.ring()
    for pause in (3.0, *PAUSES[:5]):
        wait(bell, pause)
        bell.ring()
    bell.sending.clear()  # a daemon that began anew
    stop(bell.stage, "new", why="another")
    bell.ring()
    for pause in (3.0, *PAUSES[:3]):
        wait(bell, pause)
        bell.ring()
    assert bell.states() == ["pending", "pending"]
    mark.unlink()
    wait(bell, PAUSES[3])
    bell.ring()
    assert bell.states() == ["done", "done"]


def test_a_digest_that_failed_by_day_is_not_sent_at_night_nor_twice(bell: Bell, tmp_path: Path) -> None:
    mark = down(bell, tmp_path, digest="every 6 h", digest_always=True, quiet="22:00-07:00")
    bell.order_digest()
    for _ in range(4):  # until noon of the next day
        wait(bell, 6 * 3600.0)
        bell.order_digest()
        bell.ring()
    assert len(bell.states()) <= 2
    wait(bell, 11 * 3600.0)  # 23:00
    mark.unlink()
    for _ in range(7):
        bell.ring()
        wait(bell, 3600)
    assert told(bell) == []
    wait(bell, 2 * 3600.0)
    bell.ring()
    assert len(told(bell)) == 1


def test_what_waits_for_others_is_told_when_the_clock_was_set_back(bell: Bell) -> None:
    stop(bell.stage, "one")
    bell.ring()
    wait(bell, -7200)
    bell.start()
    bell.ring()
    assert [said["task"] for said in told(bell)] == ["one"]


def test_what_was_sent_before_the_quiet_hours_is_not_sent_again_after_them(bell: Bell, tmp_path: Path) -> None:
    bell.openclaw = ("false",)
    bell.ways = ways(tmp_path, quiet="12:01-13:00", channel="telegram", target="@ann")
    stop(bell.stage, "one")
    bell.ring()
    for pause in (3.0, *PAUSES[:3]):
        wait(bell, pause)
        bell.ring()
    wait(bell, 3600)
    bell.ring()
    assert len(told(bell)) == 1
