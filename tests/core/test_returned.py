"""A file that comes again: an operator's without an id is later work of its own; a message is answered again."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.effects import Resend
from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import Remedy, Unblock
from mailboxd.core.returned import AT_ONCE, SAME_SECONDS, Before, Return, judge
from mailboxd.core.times import plus, to_epoch, to_text
from mailboxd.engine import operator_commands
from mailboxd.engine.intake import repetitions
from mailboxd.engine.intake.archive import InboxFile
from mailboxd.engine.intake.arrivals import Arrivals
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError
from mailboxd.formats.keys import Keyring, PrivateKey, Trust, signed
from mailboxd.formats.mailbox.inbox import Inbox
from mailboxd.formats.mailbox.layout import Workspace
from tests.core.desk import Desk

TEXT = b"Export the figures of yesterday.\n"
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
NOW = "2026-11-28T12:00:00.000Z"


def drop(
    desk: Desk, name: str = "export.md", raw: bytes = TEXT, *, mtime_ns: int | None = None, trust: Trust | None = None
) -> str:
    """A file is dropped and moved away: the verdict. Without `mtime_ns` it is written now."""
    written = int(desk.clock.monotonic() * 1e9) if mtime_ns is None else mtime_ns
    stamp = {"dev": 1, "ino": desk.last_event() + 1, "size": len(raw), "mtime_ns": written}
    with desk.engine.batch():
        intake = Intake(desk.engine, trust=trust)
        file = InboxFile(name, raw, hashlib.sha256(raw).hexdigest(), len(raw), stamp)
        parsed = intake.parse(file)
        assert not isinstance(parsed, MessageError), parsed
        verdict = intake.receive(file, parsed)
    desk.start()
    return verdict


def filed(desk: Desk) -> None:
    """What was taken is moved out of the inbox."""
    for (message,) in desk.sql("SELECT id FROM v_messages WHERE direction = 'in' AND path IS NULL"):
        with desk.engine.batch():
            data = {"at": desk.engine.now, "id": message, "path": f"archive/{message}"}
            desk.engine.record(Event(Kind.MESSAGE_FILED, None, data))


def tasks(desk: Desk) -> list[str]:
    return [name for (name,) in desk.sql("SELECT local_id FROM v_tasks ORDER BY seq")]


def nightly() -> tuple[Desk, str]:
    """A desk whose file was done once."""
    desk = Desk()
    assert drop(desk) == "accepted"
    filed(desk)
    (name,) = tasks(desk)
    desk.done(name)
    return desk, name


def notice(desk: Desk) -> str:
    ((text,),) = desk.sql("SELECT notice FROM v_messages WHERE notice IS NOT NULL ORDER BY id DESC LIMIT 1")
    return str(text)


def test_what_cron_copies_in_each_night_is_done_each_night() -> None:
    desk, name = nightly()
    for night in range(2, 60):
        desk.clock.advance(DAY)
        assert drop(desk) == "accepted"
        filed(desk)
        assert tasks(desk)[-1] == f"{name}-{night}"
        desk.done(f"{name}-{night}")
    assert len(tasks(desk)) == 59
    desk.verify()


def test_while_the_work_is_open_a_copy_is_the_same_work() -> None:
    desk = Desk()
    drop(desk)
    filed(desk)
    (name,) = tasks(desk)
    desk.clock.advance(DAY)
    assert drop(desk) == "duplicate"
    assert tasks(desk) == [name]
    assert "because that task had not ended then" in notice(desk)
    assert f"`mailboxd retry {name}`" in notice(desk)


def test_copies_that_come_night_after_night_are_one_item_until_it_is_dismissed() -> None:
    desk = Desk()
    drop(desk)
    filed(desk)
    for _ in range(5):
        desk.clock.advance(DAY)
        assert drop(desk) == "duplicate"
        filed(desk)
    told = "SELECT id FROM v_messages WHERE notice IS NOT NULL AND dismissed IS NULL"
    ((first,),) = desk.sql(told)
    with desk.engine.batch():
        operator_commands.dismiss(desk.engine, [first], "ann")
    assert desk.sql(told) == []
    desk.clock.advance(DAY)
    drop(desk)
    assert len(desk.sql(told)) == 1


@pytest.mark.parametrize(("minutes", "verdict"), [(0.0, "duplicate"), (9.9, "duplicate"), (10.0, "accepted")])
def test_until_ten_minutes_after_its_end_too(minutes: float, verdict: str) -> None:
    desk, _ = nightly()
    desk.clock.advance(minutes * MINUTE)
    assert drop(desk) == verdict


def test_a_copy_under_another_name_counts_as_well() -> None:
    desk, _ = nightly()
    desk.clock.advance(MINUTE)
    assert drop(desk, "export (1).md") == "duplicate"
    desk.clock.advance(DAY)
    filed(desk)
    assert drop(desk, "figures.md") == "accepted"
    assert tasks(desk)[-1].startswith("figures-")
    assert tasks(desk)[-1].endswith("-2")


def test_a_file_that_a_synchronized_folder_has_put_back_is_the_same_work() -> None:
    desk = Desk()
    drop(desk, mtime_ns=1_700_000_000_123_456_789)
    filed(desk)
    desk.done(*tasks(desk))
    desk.clock.advance(DAY)
    assert drop(desk, mtime_ns=1_700_000_000_123_456_789) == "duplicate"
    assert drop(desk, mtime_ns=1_700_000_000_000_000_000) == "duplicate", "the program keeps whole seconds only"
    assert "a program that synchronizes may have put it back" in notice(desk)
    filed(desk)
    assert drop(desk, mtime_ns=1_700_000_001_123_456_789) == "accepted"


def test_one_whose_first_taking_is_unfinished_is_the_same_work() -> None:
    desk = Desk()
    drop(desk)
    desk.done(*tasks(desk))
    desk.clock.advance(DAY)
    assert drop(desk) == "duplicate"
    assert len(tasks(desk)) == 1


def test_the_third_return_within_an_hour_is_held_until_a_person_lets_it_go() -> None:
    desk, name = nightly()
    for number in (2, 3):
        desk.clock.advance(15 * MINUTE)
        assert drop(desk) == "accepted"
        filed(desk)
        desk.done(f"{name}-{number}")
    desk.clock.advance(15 * MINUTE)
    assert drop(desk) == "accepted"
    filed(desk)
    fourth = f"{name}-4"
    assert desk.phase(fourth) == "execution_ready"
    (cause,) = desk.causes(fourth)
    assert "the same file has returned 3 times within an hour" in cause.text
    assert cause.hint.startswith(f"mailboxd retry {fourth}")
    desk.clock.advance(15 * MINUTE)
    assert drop(desk) == "duplicate", "it is open"
    filed(desk)
    desk.command(fourth, Unblock(Remedy.RETRY))
    desk.start()
    assert desk.phase(fourth) == "executing"
    desk.done(fourth)
    desk.clock.advance(3 * HOUR)
    assert drop(desk) == "accepted"
    assert desk.phase(f"{name}-5") == "executing"
    desk.verify()


def test_it_is_found_by_the_name_of_its_file_whatever_its_number() -> None:
    desk, name = nightly()
    desk.clock.advance(DAY)
    drop(desk)
    found = desk.store.tasks.root_called("export")
    assert found is not None
    assert found.local_id == f"{name}-2"


def test_a_text_with_an_id_is_the_same_work_for_ever() -> None:
    desk = Desk()
    raw = b"---\ntask_id: yearly\n---\nExport the figures.\n"
    assert drop(desk, raw=raw) == "accepted"
    filed(desk)
    desk.done("yearly")
    desk.clock.advance(365 * DAY)
    assert drop(desk, raw=raw) == "duplicate"
    assert tasks(desk) == ["yearly"]


def test_a_file_that_repeats_is_the_same_work_while_it_repeats_and_new_work_after_its_end() -> None:
    desk, raw = Desk(), b"---\nrepeat: daily at 07:00\n---\nWater the plants.\n"
    assert drop(desk, raw=raw, mtime_ns=1_000_000_000_000_000_001) == "accepted"
    filed(desk)
    desk.clock.advance(DAY)
    assert drop(desk, raw=raw) == "duplicate"
    filed(desk)
    (one,) = desk.store.repetitions.going_on()
    with desk.engine.batch():
        repetitions.end(desk.engine, one, "", "ann")
    assert drop(desk, raw=raw, mtime_ns=1_000_000_000_000_000_001) == "duplicate", "it was put back"
    filed(desk)
    desk.clock.advance(MINUTE)
    assert drop(desk, raw=raw) == "accepted"
    assert len(desk.store.repetitions.going_on()) == 1
    desk.verify()


# ---------------------------------------------------------------- a message with an id


def message(**headers: object) -> bytes:
    lines = "".join(f"{name}: {value}\n" for name, value in headers.items())
    return (
        f"---\ntype: task\ntask_id: t\nfrom: boss\n{lines}---\n# Task: Paint\n\n## Instructions\n\nPaint.\n"
        "\n## Expected Output\n\nA door.\n"
    ).encode()


@pytest.mark.parametrize("raw", [message(), message(message_id="m-1")])
def test_for_work_that_is_done_the_reply_is_sent_again_also_for_identical_bytes(raw: bytes) -> None:
    desk = Desk()
    assert drop(desk, raw=raw) == "accepted"
    assert drop(desk, raw=raw) == "duplicate"
    assert desk.orders(Resend) == [], "it is under way"
    desk.done("t")
    for _ in range(3):
        assert drop(desk, "again.md", raw) == "duplicate"
    assert len(desk.pending(Resend, "t")) == 1, "one answer serves all copies"
    desk.finish(*desk.pending(Resend, "t"))
    assert drop(desk, raw=raw) == "duplicate"
    assert len(desk.pending(Resend, "t")) == 1
    assert tasks(desk) == ["t"]


def test_the_message_of_an_older_attempt_is_not_answered_for_the_newer_one() -> None:
    desk = Desk()
    first, second = message(attempt=1, attempt_id="a1"), message(attempt=2, attempt_id="a2")
    drop(desk, raw=first)
    desk.done("t")
    assert drop(desk, raw=second) == "accepted"
    desk.done("t")
    assert drop(desk, raw=first) == "duplicate"
    assert desk.orders(Resend) == []
    assert drop(desk, raw=second) == "duplicate"
    assert len(desk.orders(Resend)) == 1


def test_a_redelivery_by_the_hub_is_answered_by_its_receipt_only(tmp_path: Path) -> None:
    desk, key = Desk(), PrivateKey.new()
    trust = Trust(Keyring.of(tmp_path, {"XDG_STATE_HOME": str(tmp_path)}), "main")
    trust.host, trust.host_key = lambda: "here", lambda host: key.public if host == "north" else None
    raw = signed(message(message_id="m-1", to="here.main").replace(b"from: boss", b"from: north.boss"), key)
    assert drop(desk, raw=raw, trust=trust) == "accepted"
    desk.done("t")
    assert drop(desk, raw=raw, trust=trust) == "duplicate"
    assert desk.orders(Resend) == []


# ---------------------------------------------------------------- the decision

befores = st.builds(
    Before,
    unfinished=st.booleans(),
    put_back=st.booleans(),
    is_open=st.booleans(),
    ended_at=st.floats(0, 2 * SAME_SECONDS).map(lambda past: plus(NOW, -past)),
    returns=st.integers(0, 5),
)


@given(befores)
def test_nothing_runs_twice_by_a_crash_a_folder_or_a_slip_of_the_hand(before: Before) -> None:
    what = judge(before, NOW)
    if before.unfinished or before.put_back or before.is_open:
        assert what.is_same
    if not what.is_same:
        assert before.ended_at
        assert plus(before.ended_at, SAME_SECONDS) <= NOW
        assert (what is Return.HELD) == (before.returns >= AT_ONCE)


def test_a_clock_that_was_set_back_makes_no_work_new_for_ever() -> None:
    later = to_text(4_000_000_000.0)
    assert judge(Before(ended_at=later), NOW) is Return.NEW


# ---------------------------------------------------------------- a daemon that dies


class Killed(BaseException):
    """The process ends here."""


def arrivals(desk: Desk, ws: Workspace) -> Arrivals:
    return Arrivals(desk.engine, Intake(desk.engine), Inbox(ws, settle_seconds=0.0), 1.0)


def take(desk: Desk, ws: Workspace, *, dies: bool = False) -> None:
    """A daemon that has just begun takes what is in the inbox; with `dies`, it is killed before the commit."""
    taking, now = arrivals(desk, ws), to_epoch(desk.clock.now())
    mail = taking.read(now)
    with suppress(Killed), desk.engine.batch():
        taking.take(mail)
        if dies:
            raise Killed


@pytest.mark.parametrize("nights", [0, 1])
@pytest.mark.parametrize("overwritten", [False, True])
def test_a_daemon_that_dies_at_any_step_of_taking_makes_one_task(
    tmp_path: Path, nights: int, overwritten: bool
) -> None:
    ws, desk = Workspace(tmp_path), Desk()
    ws.inbox.mkdir(parents=True)
    for _ in range(nights):
        drop(desk)
        filed(desk)
        desk.start()
        desk.done(*tasks(desk))
        desk.clock.advance(DAY)
    file = ws.inbox / "export.md"
    file.write_bytes(TEXT)
    take(desk, ws, dies=True)
    assert len(tasks(desk)) == nights, "nothing was recorded"
    take(desk, ws)
    assert len(tasks(desk)) == nights + 1
    if overwritten:  # by whoever drops it, before the next daemon
        file.unlink()
        file.write_bytes(TEXT)
    desk.start()
    desk.done(tasks(desk)[-1])
    desk.clock.advance(DAY)
    take(desk, ws)
    assert len(tasks(desk)) == nights + 1, "what was taken and not moved away is no other work"
    desk.verify()
