"""The installed program as a process: the daemon, signals, pipes, another process beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.cli.stage import Stage, make

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
PROGRAM = str(BIN / "mailboxd")
SCRIPT = """
agents:
  alpha:
    workspace: alpha
    rules:
      - match: {kind: work, task: job}
        times: 1
        plan:
          a: {agent: beta, description: Extract}
          b: {agent: self, description: Write, depends_on: [a]}
      - match: {kind: work, task: hang}
        hang: 60
      - reply: "Done: {title}"
  beta:
    workspace: beta
    default: {reply: "Twelve figures"}
"""


@pytest.fixture
def company(tmp_path: Path) -> Stage:
    """The workspace of alpha, whose agents follow the script above."""
    (tmp_path / "script.yaml").write_text(SCRIPT)
    command = f"[{BIN / 'mailboxd-scripted-openclaw'}, --script, {tmp_path / 'script.yaml'}]"
    return make(tmp_path / "alpha", f"openclaw:\n  command: {command}\nshutdown:\n  drain_seconds: 0\n")


def call(stage: Stage, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    """`mailboxd ...` in the workspace, to its end."""
    environment = {**os.environ, **options}
    argv = [PROGRAM, *arguments]
    return subprocess.run(
        argv, cwd=stage.ws.root, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@contextmanager
def running(stage: Stage, *arguments: str, pipe: str = "stdout") -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """`mailboxd ...` while it runs, with one of its outputs."""
    wanted, other = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        cwd=stage.ws.root,
        text=True,
        stdout=wanted if pipe == "stdout" else other,
        stderr=wanted if pipe == "stderr" else other,
    )
    stream = process.stdout or process.stderr
    assert stream is not None
    try:
        yield process, stream
    finally:
        process.kill()
        process.wait()
        stream.close()


def lines_until(stream: IO[str], wanted: str) -> list[str]:
    """Lines up to the first that contains `wanted`; the test's time limit is the deadline."""
    lines = []
    for line in stream:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"{wanted!r} never came: {lines}")


def test_a_task_is_sent_carried_out_and_shown(company: Stage) -> None:
    sent = json.loads(call(company, "send", "--task-id", "job", "Report the figures", "--json").stdout)
    done = call(company, "run", "--until-idle", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["level"] for line in done.stderr.splitlines())
    found = json.loads(call(company, "show", "job", "--json").stdout)
    assert (found["phase"], found["status"], found["results"]) == ("completed", "done", "Done: Report the figures")
    assert [(c["key"], c["agent"], c["status"]) for c in found["children"]] == [
        ("a", "beta", "done"),
        ("b", "alpha", "done"),
    ]
    archived, reply = found["messages"][0], found["messages"][-1]
    assert not Path(sent["file"]).exists()
    assert (company.ws.mailbox / archived["path"]).is_file()
    assert (reply["direction"], reply["type"], reply["to"]) == ("out", "reply", "operator")
    status = json.loads(call(company, "status", "--json").stdout)
    assert status["messages"]["received"] == status["messages"]["archived"] == 1
    assert status["messages"]["sent"] == len(list(company.ws.outbox.glob("*/*")))
    assert call(company, "db", "verify").returncode == 0


def test_send_wait_sees_the_work_of_a_running_daemon(company: Stage) -> None:
    with running(company, "run", pipe="stderr") as (_, log):
        lines_until(log, "ready")
        done = call(company, "send", "--wait", "--wait-timeout", "30", "Greet")
    assert (done.returncode, done.stdout) == (0, "Done: Greet\n")
    assert "attempt 1 succeeded" in done.stderr


@pytest.mark.soak
def test_only_one_daemon_runs_and_commands_work_meanwhile(company: Stage) -> None:
    with running(company, "run", pipe="stderr") as (daemon, log):
        lines_until(log, "ready")
        second = call(company, "run")
        assert second.returncode == 73
        assert f"pid {daemon.pid}" in second.stderr
        assert json.loads(call(company, "status", "--json").stdout)["daemon"] == {"running": True, "pid": daemon.pid}
        call(company, "send", "--task-id", "hang", "hang")
        lines_until(log, "attempt 1 started")
        cancelled = call(company, "cancel", "hang", "--now", "--json")
        assert json.loads(cancelled.stdout)["daemon"] == {"running": True}
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=300) == 0
    assert company.phase("hang") == "cancelled"


def test_run_without_a_configuration_says_how_to_get_one(stage: Stage) -> None:
    stage.ws.config.unlink()
    done = call(stage, "run", "--until-idle")
    assert done.returncode == 78
    assert "mailboxd init" in done.stderr


def test_run_inside_an_agents_turn_is_refused(stage: Stage) -> None:
    done = call(stage, "run", "--until-idle", OPENCLAW_SHELL="exec")
    assert done.returncode == 78
    assert "OPENCLAW_SHELL" in done.stderr


def test_following_the_log_sees_another_process_and_ends_well_with_ctrl_c(stage: Stage) -> None:
    stage.create("old")
    with running(stage, "log", "--follow") as (process, output):
        lines_until(output, "old: created")
        stage.create("new")
        lines_until(output, "new: created")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 0


def test_ctrl_c_before_the_command_begins_prints_no_traceback(stage: Stage, tmp_path: Path) -> None:
    """While its modules are imported: the first of them that is not ours sends the signal to itself."""
    early = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.sigtimedwait([signal.SIGUSR1], 60)\n"
    (tmp_path / "click.py").write_text(early)
    done = call(stage, "status", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", ""), "130, for a shell"


def test_where_ctrl_c_is_ignored_it_stays_ignored(stage: Stage, tmp_path: Path) -> None:
    """Under nohup, or in the background of a shell without job control."""
    (tmp_path / "sitecustomize.py").write_text("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n")
    (tmp_path / "yaml.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(3)\n")
    assert call(stage, "config", PYTHONPATH=str(tmp_path)).returncode == 3


@pytest.mark.parametrize("kib", [55_000, 70_000, 200_000])
def test_under_a_limit_of_memory_it_runs_or_says_so_in_a_line(stage: Stage, kib: int) -> None:
    words = ["sh", "-c", f'ulimit -v {kib} && exec "$@"', "-", PROGRAM, "run", "--until-idle"]
    done = subprocess.run(words, cwd=stage.ws.root, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "openclaw.command" not in line]  # it is missing here
        assert (done.returncode, len(said)) == (75, 1), done.stderr
        assert "no more memory, threads or file descriptors" in done.stderr


def test_a_reader_that_goes_away_is_no_error(stage: Stage) -> None:
    for number in range(3):
        stage.create(f"job{number}")
    for verb in ("log", "log --json", "ls"):
        read, write = os.pipe()
        os.close(read)
        process = subprocess.Popen([PROGRAM, *verb.split()], cwd=stage.ws.root, stdout=write, stderr=subprocess.PIPE)
        os.close(write)
        _, errors = process.communicate(timeout=300)
        assert errors == b"", verb
        assert process.returncode == 1


def test_output_fits_any_encoding(stage: Stage) -> None:
    stage.create("job")
    done = call(stage, "show", "--tree", "job", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert done.stdout.startswith("\\u25cb waiting  job (alpha)")


@pytest.mark.parametrize(("variable", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_that_want_it(stage: Stage, variable: dict[str, str], coloured: bool) -> None:
    stage.create("job")
    stage.start()
    master, terminal = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variable
    done = subprocess.run([PROGRAM, "ls"], cwd=stage.ws.root, env=environment, stdout=terminal, check=True, timeout=300)
    os.close(terminal)
    shown = os.read(master, 65_536)
    os.close(master)
    assert done.returncode == 0
    assert "▶ running".encode() in shown
    assert (b"\x1b[" in shown) is coloured


# Nowhere to write to


@pytest.mark.parametrize("verb", ["status", "db head", "config --json"])
def test_output_that_cannot_be_written_is_not_reported_as_a_bug(company: Stage, verb: str) -> None:
    with Path("/dev/full").open("wb") as full:
        argv = [PROGRAM, *verb.split()]
        done = subprocess.run(argv, cwd=company.ws.root, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1
    assert "cannot write the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_order_counts_whose_answer_cannot_be_written_and_says_so(company: Stage) -> None:
    with Path("/dev/full").open("wb") as full:
        argv = [PROGRAM, "send", "Do it", "--task-id", "once", "--json"]
        done = subprocess.run(argv, cwd=company.ws.root, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1, "not 75: who tries that again gives the order twice"
    assert "Any order was carried out" in done.stderr
    assert len(list(company.ws.inbox.glob("*.md"))) == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_not_a_bug_and_not_replaced_by_a_file(company: Stage, closed: str) -> None:
    """The next file that is opened would get its number, and whatever is printed would be written into it."""
    script = f"{PROGRAM} status {closed}; echo $? >status"
    subprocess.run(["sh", "-c", script], cwd=company.ws.root, capture_output=True, check=True, timeout=300)
    assert (company.ws.root / "status").read_text() == "0\n"
    program = """if True:
        import os, sys
        import mailboxd.cli
        sys.argv[1:] = ["--version"]
        try:
            mailboxd.cli.main()
        except SystemExit:
            opened = os.open(".", os.O_RDONLY)
            open("fd", "w").write(str(opened))
    """
    argv = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program]
    subprocess.run(argv, cwd=company.ws.root, capture_output=True, check=True, timeout=300)
    assert int((company.ws.root / "fd").read_text()) > 2


def test_a_working_directory_that_is_gone_is_said(company: Stage, tmp_path: Path) -> None:
    """For example after the directory was deleted and created again."""
    gone = tmp_path / "gone"
    gone.mkdir()
    elsewhere = f"{PROGRAM} -w {company.ws.root} status >/dev/null"
    script = f"cd {gone}; rmdir {gone}; {PROGRAM} status; echo $?; {elsewhere}; echo $?"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "69\n0\n"
    assert done.stderr.startswith("mailboxd: the current directory no longer exists.")
    assert "bug" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("why", b"\xff"), "is not UTF-8"),
        (("inbox", "--edit", b"\xff"), "is not UTF-8"),
        (("db", "backup", "copy " * 100), "is too long for the name of a file"),
    ],
)
def test_an_argument_that_is_no_text_or_no_name_is_not_reported_as_a_bug(
    stage: Stage, arguments: tuple[str | bytes, ...], said: str
) -> None:
    call = [sys.executable, "-m", "mailboxd.cli", "-w", str(stage.ws.root), *arguments]
    done = subprocess.run(call, capture_output=True, env={**os.environ, "EDITOR": "true"}, timeout=60)
    assert (done.returncode, said in done.stderr.decode()) == (2, True), done.stderr
