"""The database of a running workspace: damaged, missing, replaced, of another version, locked. Never recreated."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mailboxd.ledger.store import Store
from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Agent, cpu_ticks, environment, eventually, reply, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
TRY_AGAIN = 75

LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def database(agent: Agent) -> Path:
    return agent.root / ".mailboxd" / "mailboxd.db"


def worked(found: Found) -> Agent:
    """An agent that has done some work and whose daemon has ended well."""
    alpha = found({"alpha": WORK})["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    return alpha


def bad_page(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096 * 3 : 4096 * 6] = b"\xa5" * (4096 * 3)
    path.write_bytes(raw)


def deleted(path: Path) -> None:
    """As by `rm .mailboxd/mailboxd.db*`: with its mark, so that only the journal says that there was one."""
    for beside in path.parent.glob(f"{path.name}*"):
        beside.unlink()


def made_anew(path: Path) -> None:
    """Deleted, and a new one is in its place that nothing was recorded in: as a refused command once left it."""
    deleted(path)
    Store.open(path, "2026-01-01T00:00:00.000Z").close()


@pytest.mark.parametrize("hurt", [bad_page, Path.unlink, deleted, made_anew])
def test_a_database_that_is_damaged_or_gone_is_neither_used_nor_replaced(
    found: Found, hurt: Callable[[Path], None]
) -> None:
    """More kinds of damage are in tests/ledger/test_opening.py."""
    alpha = worked(found)
    path = database(alpha)
    hurt(path)
    before = path.read_bytes() if path.exists() else None
    alpha.drop("next.md", task("next"))
    for _ in range(2):
        done = alpha.call("run")
        assert done.returncode == TRY_AGAIN
        assert "Traceback" not in done.stderr
        for words in ("mailboxd db backup", "rebuild --replace", "db verify", str(path)):
            assert words in done.stderr
        assert (path.read_bytes() if path.exists() else None) == before
    copies = list(path.parent.glob("mailboxd.db.damaged-*"))
    assert [copy.read_bytes() for copy in copies] == ([before] if hurt is bad_page else [])
    assert (alpha.inbox / "next.md").exists()
    status = alpha.call("status")
    assert status.returncode == 1
    assert "red" in status.stdout


@pytest.mark.parametrize("lose", [Path.unlink, deleted])
@pytest.mark.parametrize("words", [("cancel", "job"), ("answer", "job", "Yes."), ("init", "--agent", "alpha")])
def test_no_command_makes_a_new_database_in_the_place_of_one_that_is_gone(
    found: Found, words: tuple[str, ...], lose: Callable[[Path], None]
) -> None:
    alpha = worked(found)
    lose(database(alpha))
    done = alpha.call(*words)
    assert done.returncode == TRY_AGAIN, done.stderr
    assert not database(alpha).exists()


@pytest.mark.parametrize("lose", [deleted, made_anew])
def test_where_only_the_journal_says_that_there_was_a_database_every_view_says_so(
    found: Found, lose: Callable[[Path], None]
) -> None:
    alpha = worked(found)
    last = alpha.query("SELECT max(seq) AS seq FROM v_events")[0]["seq"]
    lose(database(alpha))
    alpha.drop("next.md", task("next"))
    views = ((), ("inbox",), ("ls", "--all"), ("status",), ("why", "job"), ("search", "job"), ("doctor",), ("run",))
    for words in (*views, ("db", "backup", str(alpha.root.parent / "copy.db"))):
        done = alpha.call(*words)
        assert done.returncode, words
        said = done.stdout + done.stderr
        assert f"ends with event {last}" in said.replace("\n", " "), f"{words}: {said}"
        assert "db rebuild --replace" in said, f"{words}: {said}"
        assert "intact" not in said
    assert alpha.call("db", "rebuild", "--replace").returncode == 0
    assert not any("gave up" in line["text"] for line in alpha.json("inbox"))
    assert "gave up" not in alpha.call("status").stdout
    assert "the latest start failed" not in alpha.call("doctor").stdout
    alpha.run()
    assert (alpha.phase("job"), alpha.phase("next")) == ("completed", "completed")


def test_a_deleted_database_can_be_given_up_for_what_the_mailbox_shows(found: Found) -> None:
    alpha = worked(found)
    deleted(database(alpha))
    assert alpha.call("run").returncode == TRY_AGAIN
    assert alpha.call("db", "accept-older").returncode == 0
    assert "gave up" not in alpha.call("inbox").stdout
    alpha.drop("next.md", task("next"))
    alpha.run()
    assert alpha.phase("next") == "completed"


def test_a_backup_is_put_back_and_a_rebuilt_database_is_taken(found: Found, tmp_path: Path) -> None:
    """The procedure that a damaged database is answered with leads somewhere."""
    alpha = worked(found)
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    bad_page(database(alpha))
    assert alpha.call("run", "--until-idle").returncode == TRY_AGAIN
    shutil.copyfile(tmp_path / "copy.db", database(alpha))
    alpha.run()
    assert alpha.phase("job") == "completed"
    database(alpha).unlink()
    done = alpha.call("db", "rebuild", "--replace")
    assert done.returncode == 0, done.stderr
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert alpha.call("db", "verify").returncode == 0


def test_what_a_copy_knows_as_under_way_is_asked_about_and_not_done_again(found: Found, tmp_path: Path) -> None:
    """The copy was made during a turn; when it is put back, the turn has long ended, and nothing here shows it."""
    company = found({"alpha": {"default": {"reply": "Text.", "delay": 3}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: company.entries())
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    eventually(lambda: alpha.phase("job") == "completed")
    alpha.stop()
    shutil.copyfile(tmp_path / "copy.db", database(alpha))
    for ending in ("-wal", "-shm"):
        database(alpha).with_name(database(alpha).name + ending).unlink(missing_ok=True)
    assert alpha.phase("job") == "executing"
    assert alpha.json("db", "accept-older")["waiting"] == ["job"]
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert len(company.executions()) == 1


def test_another_workspaces_database_is_refused(found: Found) -> None:
    alpha = worked(found)
    other = worked(found)
    shutil.copyfile(database(other), database(alpha))
    done = alpha.call("run", "--until-idle")
    assert done.returncode == TRY_AGAIN
    assert "another workspace" in done.stderr


@pytest.mark.parametrize("gone", [("-wal",), ("", "-wal", "-shm")])
def test_a_database_that_is_deleted_under_a_running_daemon_is_saved_by_it(found: Found, gone: tuple[str, ...]) -> None:
    """SQLite goes on writing into a file without a name: what was accepted meanwhile would be lost with the process."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    for ending in gone:
        Path(f"{database(alpha)}{ending}").unlink()
    alpha.drop("2.md", task("two"))
    assert alpha.ended(20) == TRY_AGAIN, alpha.last_words()
    assert "while it was in use" in alpha.last_words()
    assert alpha.phase("one") == "completed"
    alpha.start()
    alpha.until("two")
    company.at_rest()


@pytest.mark.parametrize(
    "end", [pytest.param(Agent.kill, marks=pytest.mark.soak, id="killed"), pytest.param(None, id="running")]
)
def test_another_workspaces_database_is_refused_also_beside_the_log_of_ours(
    found: Found, end: Callable[[Agent], object] | None
) -> None:
    """SQLite would lay the -wal that is left over whatever database stands there, page by page, and ask nothing."""
    company = found({"alpha": WORK, "beta": WORK}, daemons=["alpha", "beta"])
    alpha, beta = company["alpha"], company["beta"]
    beta.drop("theirs.md", task("theirs"))
    beta.run()
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    eventually(alpha.has_nothing_to_do)
    if end is not None:
        end(alpha)
        shutil.copy(database(alpha), alpha.root / "ours.db")
    shutil.copy(database(beta), alpha.root / "theirs.db")
    (alpha.root / "theirs.db").rename(database(alpha))
    alpha.drop("2.md", task("two"))
    if end is None:
        assert alpha.ended(20) == TRY_AGAIN, alpha.last_words()
        assert "decide which of the two is right" in alpha.last_words()
        assert not Path(f"{database(alpha)}-wal").exists()
    for _ in range(2):
        done = alpha.call("run", "--until-idle")
        assert (done.returncode, "another workspace" in done.stderr) == (TRY_AGAIN, True), done.stderr
    assert (alpha.inbox / "2.md").exists()
    ours = database(alpha).with_name("mailboxd.db.rescued") if end is None else alpha.root / "ours.db"
    ours.rename(database(alpha))
    alpha.start()
    alpha.until("two")
    assert alpha.phases() == {"one": "completed", "two": "completed"}
    company.at_rest()


def cut(path: Path, _copy: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path, _copy: Path) -> None:
    os.truncate(path, 0)


def copied_over(path: Path, copy: Path) -> None:
    shutil.copyfile(copy, path)


def scribbled(path: Path, _copy: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"not a database at all, but some text that a program wrote to the wrong place" * 20)


@pytest.mark.parametrize("overwrite", [cut, emptied, copied_over, scribbled])
def test_a_file_that_is_overwritten_under_a_running_daemon_is_noticed_before_anything_else_is_done(
    found: Found, tmp_path: Path, overwrite: Callable[[Path, Path], None]
) -> None:
    """The file is still the same one, so SQLite goes on with the pages that it has; all is in the journal."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    alpha.drop("2.md", task("two"))
    alpha.until("two")
    eventually(alpha.has_nothing_to_do)
    eventually(lambda: Path(f"{database(alpha)}-wal").stat().st_size == 0)
    overwrite(database(alpha), tmp_path / "copy.db")
    alpha.drop("3.md", task("three"))
    assert alpha.ended(40) == TRY_AGAIN, alpha.last_words()
    assert "while it was in use" in alpha.last_words()
    assert "bug" not in alpha.last_words()
    assert (alpha.inbox / "3.md").exists()
    rescued = database(alpha).with_name("mailboxd.db.rescued")
    if rescued.exists():
        with closing(sqlite3.connect(rescued)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("SELECT count(*) FROM v_tasks").fetchone() == (2,)
    done = alpha.call("db", "rebuild", "--replace")
    assert done.returncode == 0, done.stderr
    alpha.start()
    alpha.until("three")
    assert alpha.phases() == {"one": "completed", "two": "completed", "three": "completed"}
    company.at_rest()
    assert len(company.executions()) == 3


def test_a_log_whose_database_is_gone_is_not_laid_over_the_rebuilt_one(found: Found) -> None:
    """SQLite applies a -wal to whatever database stands beside it."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    for number in range(3):
        alpha.drop(f"{number}.md", task(f"job{number}"))
        alpha.until(f"job{number}")
    alpha.kill()
    wal = Path(f"{database(alpha)}-wal")
    left = wal.read_bytes()
    assert left
    database(alpha).unlink()
    done = alpha.call("db", "rebuild", "--replace")
    assert done.returncode == 0, done.stderr
    assert not wal.exists() or not wal.stat().st_size
    (kept,) = database(alpha).parent.glob("mailboxd.db.replaced-*-wal")
    assert kept.read_bytes() == left
    assert str(kept) in done.stdout
    assert alpha.call("db", "verify").returncode == 0
    alpha.start()
    alpha.drop("more.md", task("more"))
    alpha.until("more")
    company.at_rest()
    assert len(company.executions()) == 4


def test_a_copy_that_is_put_beside_the_log_of_a_newer_database_loses_and_repeats_nothing(
    found: Found, tmp_path: Path
) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    alpha.drop("2.md", task("two"))
    alpha.until("two")
    alpha.kill()
    shutil.move(tmp_path / "copy.db", database(alpha))
    alpha.drop("3.md", task("three"))
    if alpha.call("run", "--until-idle").returncode:
        assert alpha.call("db", "rebuild", "--replace").returncode == 0
    alpha.start()
    alpha.until("three")
    assert alpha.phases() == {"one": "completed", "two": "completed", "three": "completed"}
    company.at_rest()
    assert len(company.executions()) == 3


def test_the_journal_of_another_workspace_says_nothing_about_this_one(found: Found) -> None:
    company = found({"alpha": WORK, "beta": WORK}, daemons=["alpha", "beta"])
    alpha, beta = company["alpha"], company["beta"]
    for agent in (alpha, beta):
        for number in range(3 if agent is beta else 1):
            agent.drop(f"{number}.md", task(f"{agent.name}{number}"))
        agent.run()
    ours, theirs = (agent.root / "mailbox" / "archive" / "events" for agent in (alpha, beta))
    shutil.move(ours, alpha.root / "ours")
    shutil.copytree(theirs, ours)
    for words in (("run", "--until-idle"), ("db", "rebuild", "--replace")):
        done = alpha.call(*words)
        assert done.returncode == 78, done.stderr
        assert "the journal of another database" in done.stderr
    done = alpha.call("db", "verify")
    assert done.returncode == 1
    assert "the journal of another database" in done.stdout + done.stderr
    command = done.stdout + done.stderr
    subprocess.run(re.findall(r"`(mv [^`]+)`", command)[0], shell=True, check=True)
    alpha.run()
    assert alpha.phases() == {"alpha0": "completed"}
    assert "matches the record" in alpha.call("db", "verify").stdout
    assert len(company.executions(agent="alpha")) == 1


def test_a_directory_in_the_place_of_a_journal_day_is_named(found: Found) -> None:
    alpha = worked(found)
    (alpha.root / "mailbox" / "archive" / "events" / "2020-01-01.jsonl").mkdir()
    for words in (("db", "verify"), ("db", "rebuild", "--into", str(alpha.root / "again.db"))):
        done = alpha.call(*words)
        assert done.returncode in (1, TRY_AGAIN), done
        assert "2020-01-01.jsonl is not a regular file" in done.stdout + done.stderr


def test_a_newer_database_is_refused_and_left_as_it_is(found: Found) -> None:
    alpha = worked(found)
    with closing(sqlite3.connect(database(alpha))) as db:
        db.execute("PRAGMA user_version = 99")
    before = database(alpha).read_bytes()
    done = alpha.call("run", "--until-idle")
    assert done.returncode == TRY_AGAIN
    assert "install a newer mailboxd" in done.stderr
    assert database(alpha).read_bytes() == before


def test_a_daemon_that_meets_a_lock_names_its_holder_stands_still_and_goes_on(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    eventually(alpha.has_nothing_to_do)
    words = [sys.executable, "-c", LOCKER, str(database(alpha))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
        assert locker.stdin is not None
        assert locker.stdout is not None
        locker.stdout.readline()
        alpha.drop("2.md", task("two"))
        before = cpu_ticks(process.pid)
        eventually(lambda: f"pid {locker.pid} " in alpha.last_words(), 15, alpha.last_words)
        status = alpha.call("status")
        assert status.returncode == 1, status.stdout
        assert "HALT(db-locked)" in status.stdout
        assert "mailboxd doctor db-locked" in status.stdout
        assert (alpha.inbox / "2.md").exists()
        assert cpu_ticks(process.pid) - before < 100  # a second, of more than five
        locker.stdin.close()
    alpha.until("two")
    eventually(lambda: alpha.json("status")["health"]["grade"] == "green")
    assert alpha.last_words().count("HALT(db-locked)") == 1
    company.at_rest()


def test_a_command_that_meets_a_lock_names_its_holder(found: Found) -> None:
    alpha = worked(found)
    words = [sys.executable, "-c", LOCKER, str(database(alpha))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
        assert locker.stdin is not None
        assert locker.stdout is not None
        locker.stdout.readline()
        done = alpha.call("cancel", "job", "--now")
        locker.send_signal(signal.SIGKILL)
    assert done.returncode == TRY_AGAIN
    assert f"pid {locker.pid} (python" in done.stderr


DAEMON_THAT_WRITES = """
import sys
from pathlib import Path
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.lock import acquire
held = acquire(Workspace(Path(sys.argv[2])), "2026-11-21T00:00:00.000Z")
"""


def test_a_command_waits_for_the_daemon_of_its_workspace_and_says_so(found: Found) -> None:
    """A plan of ten thousand takes it seconds, on a loaded machine more than SQLite waits."""
    company = found({"alpha": {"default": {"delay": 600}}})
    alpha = company["alpha"]
    alpha.drop("job.md", task("job", gates="spec_review", reviewers="nobody"))
    alpha.run()
    words = [sys.executable, "-c", DAEMON_THAT_WRITES + LOCKER, str(database(alpha)), str(alpha.root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        daemon.stdout.readline()
        command = [*MAILBOXD, "cancel", "--now", "job"]
        with subprocess.Popen(command, cwd=alpha.root, stderr=subprocess.PIPE, env=environment()) as waiting:
            assert waiting.stderr is not None
            assert f"the daemon (pid {daemon.pid}) is recording" in waiting.stderr.readline().decode()
            daemon.stdin.close()
            assert waiting.wait(60) == 0
    assert alpha.phase("job") == "cancelled"


def test_an_idle_daemon_has_everything_in_the_database_itself(found: Found, tmp_path: Path) -> None:
    """A plain copy of the main file is then a usable copy."""
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    for number in range(5):
        alpha.drop(f"{number}.md", task(f"job{number}"))
    eventually(lambda: list(alpha.phases().values()) == ["completed"] * 5, why=alpha.last_words)

    def is_whole() -> bool:
        shutil.copyfile(database(alpha), tmp_path / "copy.db")
        events = None
        with (
            closing(sqlite3.connect(f"file:{tmp_path / 'copy.db'}?immutable=1", uri=True)) as db,
            suppress(sqlite3.DatabaseError),  # copied while it was written
        ):
            events = db.execute("SELECT max(seq) FROM v_events").fetchone()
        return events == tuple(alpha.query("SELECT max(seq) AS seq FROM v_events")[0].values())

    eventually(is_whole, 20)
    eventually(lambda: Path(f"{database(alpha)}-wal").stat().st_size == 0, 20)  # not while somebody reads


def test_the_write_ahead_log_that_a_long_reader_let_grow_is_emptied_when_he_is_gone(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    wal = Path(f"{database(alpha)}-wal")
    alpha.drop("0.md", task("job"))
    alpha.until("job")
    with closing(sqlite3.connect(database(alpha), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM v_events").fetchone()
        for number in range(12):
            alpha.drop(f"large{number}.md", reply("nowhere", f"large{number}", "beta", "x" * 900_000))
        eventually(lambda: len(alpha.mail("orphan")) == 12 and alpha.has_nothing_to_do(), 30, alpha.last_words)
        assert wal.stat().st_size > 10_000_000
        reader.execute("COMMIT")
        eventually(lambda: wal.stat().st_size == 0, 20)
    assert alpha.stop() == 0
