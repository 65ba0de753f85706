"""A database that is older than the rest of the workspace, or whose log was changed, is not served (exit 78)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import takewhile
from pathlib import Path

import pytest

from tests.e2e import acting
from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Agent, eventually, reply, task

WORK = {"default": {"reply": "Result of {title}."}}
CONFIG = 78

pytestmark = pytest.mark.slow


def database(alpha: Agent, ending: str = "") -> Path:
    return alpha.root / ".mailboxd" / f"mailboxd.db{ending}"


def put_back(alpha: Agent, copy: Path) -> None:
    """As a person restores a copy: the file, and nothing beside it."""
    for ending in ("-wal", "-shm"):
        database(alpha, ending).unlink(missing_ok=True)
    shutil.copyfile(copy, database(alpha))


def refused(alpha: Agent, *words: str) -> str:
    """What the daemon says that does not start; twice, as a supervisor has it that knows no better."""
    before = alpha.query("SELECT max(seq) FROM v_events")
    for _ in range(2):
        done = alpha.call("run", "--until-idle")
        assert done.returncode == CONFIG, f"{done.returncode}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        for word in ("rebuild --replace", *words):
            assert word in done.stderr
    assert alpha.call("status").returncode == 1
    assert alpha.query("SELECT max(seq) FROM v_events") == before
    return done.stderr


def finished(alpha: Agent, *names: str) -> None:
    for name in names:
        alpha.drop(f"{name}.md", task(name))
        alpha.until(name)
    eventually(alpha.has_nothing_to_do)


def tampered(alpha: Agent, statement: str) -> None:
    with closing(sqlite3.connect(database(alpha))) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(statement)
        for _, sql in triggers:
            db.execute(sql)
        db.commit()


# ---------------------------------------------------------------- what shows that it is older


def without_the_wal(alpha: Agent, copy: Path) -> None:
    """Killed; the main file stands as it stood before the tasks, and its log is gone."""
    alpha.kill()
    put_back(alpha, copy)


def without_the_wal_and_the_seal(alpha: Agent, copy: Path) -> None:
    without_the_wal(alpha, copy)
    database(alpha, ".seal").unlink()


def an_older_copy(alpha: Agent, copy: Path) -> None:
    alpha.stop()
    put_back(alpha, copy)


def an_older_copy_beside_files_that_know_more(alpha: Agent, copy: Path) -> None:
    """The whole of .mailboxd/ was restored: only archive/ and outbox/ tell."""
    alpha.stop()
    put_back(alpha, copy)
    database(alpha, ".seal").unlink()
    without_journal(alpha)


def without_journal(alpha: Agent) -> None:
    shutil.rmtree(alpha.root / "mailbox" / "archive" / "events")


def an_older_copy_beside_an_older_journal(alpha: Agent, copy: Path) -> None:
    """A whole workspace was restored over a newer one, and nothing was deleted there: as by rsync."""
    alpha.stop()
    put_back(alpha, copy)
    database(alpha, ".seal").unlink()
    with closing(sqlite3.connect(copy)) as db:
        (last,) = db.execute("SELECT max(seq) FROM v_events").fetchone()
    (file,) = (alpha.root / "mailbox" / "archive" / "events").iterdir()
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(takewhile(lambda line: json.loads(line).get("seq", 0) <= last, lines)))


def an_older_copy_beside_an_archive_that_knows_more(alpha: Agent, copy: Path) -> None:
    an_older_copy_beside_files_that_know_more(alpha, copy)
    for path in (alpha.root / "mailbox" / "outbox").glob("*/*"):
        path.unlink()


def an_older_copy_beside_an_outbox_that_knows_more(alpha: Agent, copy: Path) -> None:
    an_older_copy_beside_files_that_know_more(alpha, copy)
    shutil.rmtree(next((alpha.root / "mailbox" / "archive").glob("2*")))


ATTACKS = (
    without_the_wal,
    without_the_wal_and_the_seal,
    an_older_copy,
    an_older_copy_beside_files_that_know_more,
    an_older_copy_beside_an_older_journal,
    an_older_copy_beside_an_archive_that_knows_more,
    an_older_copy_beside_an_outbox_that_knows_more,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_database_that_is_older_is_not_served(
    found: Found, tmp_path: Path, attack: Callable[[Agent, Path], None]
) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    finished(alpha, "first")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    finished(alpha, "second")
    attack(alpha, tmp_path / "copy.db")
    alpha.drop("again.md", task("second"))
    refused(alpha, "db", "accept-older")
    assert (alpha.inbox / "again.md").exists()
    assert len(company.executions()) == 2


def test_a_log_that_never_came_into_the_main_file_is_missed(found: Found) -> None:
    """The first five tasks of a workspace, killed before any checkpoint: the main file is all but empty."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    main = database(alpha).read_bytes()
    finished(alpha, "job")
    alpha.kill()
    database(alpha).write_bytes(main)
    for ending in ("-wal", "-shm"):
        database(alpha, ending).unlink()
    alpha.drop("again.md", task("job"))
    refused(alpha, "db", "accept-older")
    assert len(company.executions()) == 1


def test_no_command_writes_into_a_database_that_is_older(found: Found, tmp_path: Path) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    finished(alpha, "first")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    finished(alpha, "second")
    an_older_copy(alpha, tmp_path / "copy.db")
    done = alpha.call("retry", "first")
    assert done.returncode == CONFIG, done.stderr
    refused(alpha, "db", "accept-older")


# ---------------------------------------------------------------- a log that was changed


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(Agent.stop, marks=pytest.mark.soak, id="stopped"),
        pytest.param(Agent.kill, marks=pytest.mark.soak, id="killed"),
        pytest.param(None, id="running"),
    ],
)
def test_a_log_that_was_changed_is_not_served(found: Found, end: Callable[[Agent], object] | None) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    finished(alpha, "first", "second")
    if end is not None:
        end(alpha)
    tampered(alpha, "UPDATE events SET actor = 'mallory' WHERE seq = 3")
    alpha.drop("next.md", task("next"))
    if end is None:
        assert alpha.ended(40) == CONFIG
        assert "event 3 is not what was recorded" in alpha.last_words()
    assert "event 3 is not what was recorded" in refused(alpha)
    assert (alpha.inbox / "next.md").exists()
    assert alpha.call("db", "rebuild", "--replace").returncode == 0
    alpha.run()
    assert alpha.phase("next") == "completed"


def test_bytes_that_are_written_into_the_file_while_the_daemon_runs_are_noticed_at_the_next_start(found: Found) -> None:
    """Past SQLite, which does not notice: it is at rest, and everything stands in the main file."""
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    finished(alpha, "first")
    eventually(lambda: database(alpha, "-wal").stat().st_size == 0)
    digest = alpha.query("SELECT hash FROM v_events WHERE seq = 3")[0]["hash"].encode()
    with database(alpha).open("r+b") as file:
        file.seek(file.read().index(digest))
        file.write(b"0" * 8)
    finished(alpha, "second")
    assert alpha.stop() == 0
    alpha.drop("next.md", task("next"))
    assert "event 3 is not what was recorded" in refused(alpha)


@pytest.mark.parametrize(
    ("statement", "table", "said"),
    [
        (
            "UPDATE tasks SET phase = 'execution_ready' WHERE local_id = 'first'",
            "tasks",
            "phase is 'execution_ready', by the log 'completed'",
        ),
        ("UPDATE attempts SET status = 'running', waiting_for = 'turn'", "attempts", "status is 'running', by the log"),
        ("DELETE FROM messages WHERE task_id = 'first'", "messages", "is missing"),
    ],
)
@pytest.mark.parametrize("is_running", [False, True])
def test_a_table_that_was_changed_is_not_served(
    found: Found, statement: str, table: str, said: str, is_running: bool
) -> None:
    """Completed work would run again, and what follows from that would be recorded as if it were right."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    finished(alpha, "first", "second")
    if not is_running:
        assert alpha.stop() == 0
    tampered(alpha, statement)
    if is_running:
        alpha.drop("next.md", task("next"))
        assert alpha.ended(40) == CONFIG
        assert said in alpha.last_words()
        assert "another program" in alpha.call("status").stdout
        (alpha.inbox / "next.md").unlink()
    why = refused(alpha, "another program changed what was recorded")
    assert f"{table}: " in why
    assert said in why
    assert len(company.executions()) == 2
    waits = json.loads(alpha.call("--json", "inbox").stdout)[0]
    assert (waits["kind"], waits["command"].endswith(" doctor")) == ("daemon", True), "another start would give up, too"
    doctor = alpha.call("doctor").stdout
    assert "the latest start failed" in doctor
    assert "db rebuild --replace  # from mailbox/archive/events/" in doctor
    assert alpha.call("db", "rebuild", "--replace").returncode == 0
    alpha.run()
    assert alpha.phases() == {"first": "completed", "second": "completed"}
    assert len(company.executions()) == 2


# ---------------------------------------------------------------- going on from it


def test_going_on_from_an_older_database_runs_nothing_unasked(found: Found, tmp_path: Path) -> None:
    """`blocker` runs and `queued` waits when the copy is made; then both end, `later` comes and ends, `lost` comes."""
    script = {"rules": [{"match": {"task": "blocker"}, "reply": "Text.", "delay": 3}], "default": {"reply": "Text."}}
    company = found({"alpha": script}, limits={"turns": 1, "turns_per_agent": 1})
    alpha = company["alpha"]
    alpha.start()
    finished(alpha, "first")
    alpha.drop("blocker.md", task("blocker"))
    eventually(lambda: alpha.phase("blocker") == "executing")
    alpha.drop("queued.md", task("queued"))
    eventually(lambda: alpha.phase("queued") == "execution_ready")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    for name in ("blocker", "queued"):
        alpha.until(name)
    finished(alpha, "later")
    alpha.stop()
    put_back(alpha, tmp_path / "copy.db")
    refused(alpha, "db", "accept-older")
    ran = len(company.executions())
    assert ran == 4

    said = alpha.json("db", "accept-older")
    assert set(said["waiting"]) == {"blocker", "queued"}
    assert said["messages"] >= 3
    alpha.drop("later-again.md", task("later"))
    alpha.drop("later-other.md", task("later", "later, in other words"))
    alpha.drop("fresh.md", task("fresh"))
    alpha.run()
    assert alpha.phase("fresh") == "completed"
    assert len(company.executions()) == ran + 1, company.executions()
    assert alpha.phase("blocker") == "completed", "it was begun: OpenClaw was asked what became of it"
    assert alpha.phase("queued") == "execution_ready"
    assert "older than the mailbox" in alpha.call("why", "queued").stdout
    assert {"later-again.md": "duplicate", "later-other.md": "accepted"}.items() <= {
        row["name"]: row["verdict"] for row in alpha.mail()
    }.items()
    waiting = {row["local_id"] for row in alpha.query("SELECT local_id FROM v_tasks WHERE held <> ''")}
    assert {"queued", "later"} == waiting
    assert alpha.call("db", "verify").returncode == 0, alpha.call("db", "verify").stderr
    assert alpha.call("db", "accept-older").returncode == 1, "it is not older any more"

    assert alpha.call("retry", "queued").returncode == 0
    alpha.run()
    assert alpha.phase("queued") == "completed"
    assert len(company.executions()) == ran + 2


def test_going_on_takes_what_came_and_asks_before_what_may_have_happened(found: Found, tmp_path: Path) -> None:
    """The copy knows an action that awaits its approval, and a child that beta has; both have ended since."""
    plan = {"child": {"agent": "beta", "description": "Do it"}}
    late = {"rules": [{"late_reply": {"after": 8, "reply": "Beta is done."}}]}
    company = found({"alpha": WORK, "beta": late}, approvals=acting.ALONE)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("acts.md", acting.acting("acts", [acting.effect(tmp_path / "ran")]))
    alpha.until("acts", "awaiting_approval")
    asked = acting.asked(alpha)
    alpha.drop("tree.md", task("tree", plan=plan))  # last: the reply must not come before the copy is made
    eventually(lambda: [row["acknowledged"] for row in alpha.attempts("tree.child")] == [1], 15, alpha.last_words)
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    acting.approve(alpha, *asked)
    alpha.until("acts")
    alpha.until("tree")
    alpha.stop()
    ran = len(company.entries())
    put_back(alpha, tmp_path / "copy.db")
    said = alpha.json("db", "accept-older")
    assert set(said["waiting"]) == {"tree", "acts"}
    assert alpha.phase("acts") == "circuit_open"
    assert alpha.phase("tree.child") == "completed", "its reply lies in archive/"
    alpha.run()
    assert alpha.phase("tree") == "executing", "its synthesis would be a turn"
    assert acting.happened(tmp_path / "ran") == 1
    assert len(company.entries()) == ran
    assert alpha.call("db", "verify").returncode == 0, alpha.call("db", "verify").stderr


# ---------------------------------------------------------------- what is refused wrongly


def test_a_message_that_somebody_copied_into_the_archive_stops_nobody(found: Found) -> None:
    """Nobody but mailboxd has written to the database since: it is the newest one, whatever lies in archive/."""
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    finished(alpha, "first")
    alpha.kill()
    day = next((alpha.root / "mailbox" / "archive").glob("2*"))
    (day / "copied.md").write_text(task("copied"))
    alpha.run()
    tampered(alpha, "INSERT INTO meta (name, value) VALUES ('by-hand', '')")
    shutil.copy(day / "first.md", day / "first copy.md")
    (day / "copied.md").unlink()
    alpha.run()


def test_what_was_judged_and_moved_before_a_kill_is_no_sign_of_an_older_database(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.run()
    alpha.drop("first.md", task("first"))
    for commit in range(1, 12):
        company.program = acting.killed_at(f"commit:{commit}")
        alpha.call("run", "--until-idle")
        if [*(alpha.root / "mailbox" / "archive").glob("2*/first.md")]:
            break
    assert [row["path"] for row in alpha.mail()] == [None]
    database(alpha, ".seal").unlink()
    company.program = MAILBOXD
    alpha.run()
    assert alpha.phase("first") == "completed"


def test_a_workspace_without_journal_and_seal_is_served(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    finished(alpha, "first")
    alpha.stop()
    database(alpha, ".seal").unlink()
    without_journal(alpha)
    alpha.start()
    finished(alpha, "second")


def test_kills_in_the_middle_of_work_are_never_taken_for_an_older_database(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    for number in range(8):
        alpha.start()
        for name in range(4):
            alpha.drop(f"{number}-{name}.md", task(f"job-{number}-{name}"))
        alpha.drop(f"{number}.md", reply("nowhere", f"x{number}", "beta", "x" * 100_000))
        eventually(lambda: alpha.phase(f"job-{number}-{number % 4}") == "completed")  # noqa: B023
        alpha.kill()
    alpha.run()
    assert set(alpha.phases().values()) == {"completed"}
