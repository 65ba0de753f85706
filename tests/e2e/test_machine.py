"""The machine says no: no descriptors, no inotify, a disk that fails; and a daemon that is stopped or restarted."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Agent, environment, eventually, reply, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
TRY_AGAIN = 75


def grade(agent: Agent) -> tuple[str, str]:
    """How it is, and all that is said about that."""
    done = agent.call("status", "--json")
    return json.loads(done.stdout)["health"]["grade"], done.stdout


def begin(agent: Agent, *before: str) -> None:
    """Start the daemon behind another command."""
    with agent.log.open("ab") as log:
        agent.process = subprocess.Popen([*before, *MAILBOXD, "run"], cwd=agent.root, env=environment(), stderr=log)
    agent.until_ready()


# ---------------------------------------------------------------- descriptors


def test_without_descriptors_it_waits_says_so_and_goes_on(found: Found) -> None:
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    eventually(alpha.has_nothing_to_do)
    open_now = len(os.listdir(f"/proc/{process.pid}/fd"))
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_now - 4, hard))
    alpha.drop("2.md", task("two"))
    eventually(lambda: "ulimit -n" in alpha.last_words(), 20, alpha.last_words)
    said, why = grade(alpha)
    assert said == "amber", why
    assert "ulimit -n" in why
    eventually(lambda: len(alpha.mail()) == 2)  # taken with what was held in reserve
    assert process.poll() is None
    assert len(company.executions()) == 1
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    alpha.until("two")
    eventually(lambda: grade(alpha)[0] == "green", 20, alpha.last_words)
    assert "Traceback" not in alpha.last_words()
    assert len(company.executions()) == 2
    company.at_rest()


@pytest.mark.parametrize("most", [5, 15, 22, *(pytest.param(most, marks=pytest.mark.soak) for most in (10, 20, 24))])
def test_started_with_next_to_no_descriptors_it_says_so_and_nothing_is_lost(found: Found, most: int) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("1.md", task("one"))
    shell = ["sh", "-c", f'ulimit -Sn {most} && exec "$@"', "-"]
    with subprocess.Popen(
        [*shell, *MAILBOXD, "run", "--until-idle"],
        cwd=alpha.root, env=environment(), stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        first = process.stderr.readline()
        while "Too many open files" not in first:
            first = process.stderr.readline()
        if "no call is begun" in first or not alpha.unread():
            process.kill()  # it waits for descriptors
        said = first + process.stderr.read()
    assert "Traceback" not in said
    assert process.returncode in (TRY_AGAIN, -signal.SIGKILL), said
    alpha.run()
    assert alpha.phase("one") == "completed"
    assert len(company.executions()) == 1
    company.at_rest()


# ---------------------------------------------------------------- inotify


def test_without_inotify_it_scans_and_says_what_to_type(found: Found) -> None:
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 2})
    alpha = company["alpha"]
    shell = 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", shell, "-"]
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs user namespaces with limits of their own")
    begin(alpha, *words)
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    said, why = grade(alpha)
    assert said == "amber", why
    assert "fs.inotify.max_user_instances" in why
    assert "fs.inotify.max_user_instances" in alpha.last_words()
    company.at_rest()


# ---------------------------------------------------------------- a failing disk


def failing(what: str) -> list[str]:
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-qq", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs strace that may trace")
    return [strace, "-D", "-f", "-qq", "-o", "/dev/null", "-e", what]


@pytest.mark.parametrize(("call", "nth"), [("fsync", 1), ("fdatasync", 9)])
def test_a_failed_fsync_ends_the_process_at_once_and_the_next_one_recovers(found: Found, call: str, nth: int) -> None:
    """What a second fsync says proves nothing (the kernel has dropped the pages): it is never asked again."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("1.md", task("one"))
    words = failing(f"inject={call}:error=EIO:when={nth}+")
    done = subprocess.run(
        [*words, *MAILBOXD, "run", "--until-idle"],
        cwd=alpha.root, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == TRY_AGAIN, done.stderr
    assert alpha.call("status").returncode != 0
    alpha.start()
    eventually(lambda: alpha.phase("one") in ("completed", "circuit_open"), 60, alpha.last_words)
    assert len(company.executions()) <= 1
    company.at_rest()


# ---------------------------------------------------------------- programs and readers that get stuck


def test_a_turn_that_prints_without_end_is_stopped_and_its_output_is_gone(found: Found) -> None:
    """Nothing else happens that would wake the loop, and it ignores SIGTERM."""
    endless = "trap '' TERM; while :; do head -c 1000000 /dev/zero; sleep 0.05; done"
    program = f'case "$1" in agent) {endless};; *) exit 1;; esac'
    company = found(
        {"alpha": WORK},
        openclaw={"command": ["sh", "-c", program, "openclaw"]},
        limits={"output_bytes": 1 << 20},
        shutdown={"grace_seconds": 2},
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))
    most = 0

    def has_ended() -> bool:
        nonlocal most
        files = [path for path in (alpha.root / ".mailboxd" / "turns").rglob("*") if path.is_file()]
        most = max(most, sum(path.stat().st_blocks * 512 for path in files))
        return "the outcome of its work turn by" in alpha.last_words()

    eventually(has_ended, 5, alpha.last_words)
    assert 1 << 20 < most < 50 << 20
    has_ended()
    left = [path for path in (alpha.root / ".mailboxd" / "turns").rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in left) < 200_000, left
    assert alpha.stop() == 0


def test_what_an_ended_turn_left_running_prints_without_end_and_is_killed(found: Found) -> None:
    """It has a session of its own, so that no signal to the turn reaches it, and the turn itself is over."""
    endless = "trap '' TERM; while :; do head -c 1000000 /dev/zero; sleep 0.05; done"
    program = f'case "$1" in agent) setsid sh -c "{endless}" left-running & sleep 0.2;; *) exit 1;; esac'
    company = found(
        {"alpha": WORK}, openclaw={"command": ["sh", "-c", program, "openclaw"]}, limits={"output_bytes": 1 << 20}
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))

    def writers() -> list[int]:
        """Processes that hold a file of a turn."""
        turns = str(alpha.root / ".mailboxd" / "turns")
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _holds_below(pid, turns)]

    eventually(lambda: "the outcome of its work turn by" in alpha.last_words(), 5, alpha.last_words)
    try:
        eventually(lambda: not writers(), 5, lambda: f"still writing: {writers()}")
    finally:
        for pid in writers():
            os.kill(pid, signal.SIGKILL)
    files = [path for path in (alpha.root / ".mailboxd" / "turns").rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in files) < 200_000, files
    assert alpha.stop() == 0


def test_a_reader_of_the_log_that_reads_nothing_stops_neither_work_nor_signals(found: Found) -> None:
    """`mailboxd run 2>&1 | less`, or a log shipper that hangs: the pipe fills up."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    try:
        process = subprocess.Popen([*MAILBOXD, "run"], cwd=alpha.root, env=environment(), stderr=writing)
        alpha.process = process
        for number in range(12):
            alpha.drop(f"{number}.md", task(f"t{number}"))
        for number in range(12):
            alpha.until(f"t{number}")
        os.set_blocking(reading, False)
        said = b""

        def has_caught_up() -> bool:
            nonlocal said
            with suppress(BlockingIOError):
                said += os.read(reading, 4096)
            return bool(re.search(rb"t11: .*; completed", said))

        eventually(
            has_caught_up, why=lambda: said.decode()
        )  # what was queued comes in its order, and nothing of it is missing
        assert said.index(b"ready: agent alpha") < said.index(b"t0: ") < said.index(b"t11: ")
        for number in range(12, 24):
            alpha.drop(f"{number}.md", task(f"t{number}"))
        for number in range(12, 24):
            alpha.until(f"t{number}")
        process.send_signal(signal.SIGTERM)
        assert alpha.ended() == 0, "one signal is enough, and the exit waits for the reader no longer than a moment"
    finally:
        os.close(reading)
        os.close(writing)
    company.at_rest()


# ---------------------------------------------------------------- stopped and restarted


def test_a_daemon_that_was_stopped_takes_what_ended_meanwhile(found: Found) -> None:
    """SIGSTOP, as a debugger or a frozen container does it. That it is red after 45 s is in tests/test_health.py."""
    company = found({"alpha": {"default": {"delay": 1, "reply": "Text."}}})
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("1.md", task("one"))
    eventually(company.executions)
    process.send_signal(signal.SIGSTOP)
    for number in range(2, 5):
        alpha.drop(f"{number}.md", task(f"t{number}"))
    eventually(lambda: [entry for entry in company.entries() if entry["event"] == "end"])
    process.send_signal(signal.SIGCONT)
    for name in ("one", "t2", "t3", "t4"):
        alpha.until(name)
    eventually(lambda: grade(alpha)[0] == "green")
    assert len(company.executions()) == 4
    company.at_rest()


@pytest.mark.soak
def test_twenty_seconds_of_standing_still_make_nothing_late_that_ended_in_time(found: Found) -> None:
    """Both clocks go on meanwhile: a deadline and a lease pass, a turn ends before, and a peer never says a word."""
    plan = {"x": {"agent": "beta", "description": "X"}}
    company = found(
        {"alpha": {"default": {"delay": 1, "reply": "In time."}}, "beta": {"mailbox": "true"}}, reply_within_seconds=8
    )
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("1.md", task("job", plan=plan))
    eventually(lambda: [row for row in alpha.attempts("job.x") if row["waiting_for"] == "reply"])
    soon = datetime.now(UTC) + timedelta(seconds=12)
    alpha.drop("2.md", task("short", deadline=f"{soon:%Y-%m-%dT%H:%M:%SZ}"))
    eventually(lambda: company.executions(local_id="short"))
    process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 20
    eventually(lambda: [entry for entry in company.entries() if entry["event"] == "end"], 10)
    assert datetime.now(UTC) < soon
    eventually(lambda: time.monotonic() > end, 25)
    process.send_signal(signal.SIGCONT)
    assert alpha.until("short")["result"] == "In time."
    alpha.until("job.x", "circuit_open")
    assert len(alpha.sent("task")) == 1
    assert len(company.executions()) == 1
    assert not alpha.events("alarm")
    eventually(lambda: grade(alpha)[0] == "green", 20, lambda: grade(alpha)[1])
    company.at_rest()


def test_a_daemon_that_was_killed_is_red_and_one_that_was_stopped_well_is_off(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    assert grade(alpha)[0] == "green"
    alpha.kill()
    said, why = grade(alpha)
    assert said == "red"
    assert "died without a report" in why
    alpha.start()
    assert alpha.stop() == 0
    assert grade(alpha)[0] == "off"
    company.at_rest()


def test_starts_that_fail_are_spaced_out_whoever_repeats_them(found: Found) -> None:
    """By a supervisor without a pause of its own: `while :; do mailboxd run; done`."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.run()
    database = alpha.root / ".mailboxd" / "mailboxd.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database" * 1000)
    took = []
    for _ in range(4):
        begin_at = time.monotonic()
        done = alpha.call("run")
        took.append(time.monotonic() - begin_at)
        assert done.returncode == TRY_AGAIN, done.stderr
    assert "3 starts in a row have failed" in done.stderr
    assert "damaged" in done.stderr
    assert sum(took[1:]) > 4, "1 + 2 + 4, each counted from the end of the one before"
    note = alpha.root / ".mailboxd" / "health.json"
    said = {**json.loads(note.read_text()), "starts": 9, "monotonic": time.monotonic()}
    note.write_text(json.dumps(said))  # as if it had gone on like this: 30 s to wait
    process = alpha.start(wait=False)
    eventually(lambda: "9 starts in a row have failed" in alpha.last_words())
    process.send_signal(signal.SIGTERM)
    assert alpha.ended() == 0, "a pause is no reason to stay"
    database.write_bytes(whole)
    alpha.start()
    assert "10 starts" not in alpha.last_words(), "one that was asked to end did not fail"
    company.at_rest()


def test_twelve_restarts_leave_no_trace_in_the_log(found: Found) -> None:
    """Half of them kills, beside work that waits: an attempt that is under way, an open circuit."""
    rules = [{"match": {"task": "broken"}, "fail": {"error": "no"}}, {"match": {"task": "long"}, "hang": 600}]
    company = found({"alpha": {"rules": rules, **WORK}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("broken"))
    alpha.until("broken", "circuit_open")
    alpha.drop("2.md", task("long"))
    eventually(lambda: company.executions(local_id="long"))
    alpha.kill()

    def events() -> int:
        return len(alpha.query("SELECT seq FROM v_events"))

    before = events()
    for number in range(12):
        alpha.start(wait=number % 3 != 0)
        alpha.kill()
    assert events() - before <= 12
    alpha.start()
    assert alpha.call("cancel", "long", "--now").returncode == 0
    alpha.until("long", "cancelled")
    assert len(company.executions(local_id="long")) == 1
    assert len(list(Path(alpha.root / ".mailboxd").iterdir())) < 20
    company.at_rest()


def test_an_overflow_of_the_kernels_queue_loses_no_message(found: Found) -> None:
    """More files than the kernel keeps events for, while nobody reads them."""
    company = found({"alpha": WORK}, limits={"sender_messages": 1_000_000, "sender_bytes": 1_000_000_000})
    alpha = company["alpha"]
    process = alpha.start()
    process.send_signal(signal.SIGSTOP)
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    count = queue // 2 + 500  # each is made, closed and renamed
    body = task("same", "Same")
    for number in range(count):
        alpha.drop(f"{number:06}.md", body)  # one id: the first is a task, all others are known
    alpha.drop("last.md", task("last"))
    process.send_signal(signal.SIGCONT)
    eventually(lambda: not os.listdir(alpha.inbox), 100, alpha.last_words)
    alpha.until("last")
    peak = _memory(process.pid, "VmHWM")
    assert peak < 300 << 20
    archived = (alpha.root / "mailbox" / "archive").rglob("*.md")
    assert sum(path.name != "INDEX.md" for path in archived) == count + 1
    assert len(company.executions()) == 2
    company.at_rest()


@pytest.mark.soak
def test_what_it_holds_does_not_grow_with_what_it_has_done(found: Found) -> None:
    """Descriptors, threads, children, memory and the log of the database: after a while as much as at the beginning."""
    company = found({"alpha": WORK}, limits={"turns": 4, "turns_per_agent": 4})
    alpha = company["alpha"]
    process = alpha.start()

    def work(name: str, turns: int, letters: int) -> dict[str, int]:
        for number in range(letters):
            alpha.drop(f"{name}{number}.md", reply("nobody", f"{name}{number}", "beta"))
        for number in range(turns):
            alpha.drop(f"{name}-t{number}.md", task(f"{name}{number}"))
        eventually(lambda: len([p for p in alpha.phases().values() if p == "completed"]) % turns == 0, 60)
        eventually(lambda: alpha.phase(f"{name}{turns - 1}") == "completed", 60)
        eventually(lambda: alpha.has_nothing_to_do() and not alpha.unread(), 60)
        proc = Path(f"/proc/{process.pid}")
        return {
            "descriptors": len(os.listdir(proc / "fd")),
            "threads": len(os.listdir(proc / "task")),
            "children": len((proc / "task" / str(process.pid) / "children").read_text().split()),
            "memory": _memory(process.pid, "VmRSS"),
            "wal": (alpha.root / ".mailboxd" / "mailboxd.db-wal").stat().st_size,
        }

    work("warm", 10, 800)
    before = work("first", 10, 800)
    after = work("second", 20, 1600)
    assert after["memory"] - before["memory"] < 8 << 20, (before, after)
    assert after["wal"] < 64 << 20
    assert {**after, "memory": 0, "wal": 0} == {**before, "memory": 0, "wal": 0}
    kept = (alpha.root / ".mailboxd" / "turns").rglob("*")  # for later calls, and nothing is in them
    assert not [path for path in kept if path.is_file() and path.stat().st_size]
    company.at_rest()


def _memory(pid: int, name: str) -> int:
    """A line of the process's status, in bytes: `VmHWM` is the most memory that it has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def _holds_below(pid: int, directory: str) -> bool:
    """Whether the process has a file below that directory open."""
    with suppress(OSError):
        return any(os.readlink(entry).startswith(directory) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False
