"""`mailboxd demo` as a newcomer runs it: with killed daemons and Ctrl-C, and with the page on a terminal."""

import csv
import http.cookiejar
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "workspace-example"
AGENTS = ("analyst", "extractor", "writer", "reviewer")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def demo(directory: Path, *options: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAILBOXD", "OPENCLAW"))}
    return subprocess.Popen(
        [sys.executable, "-m", "mailboxd.cli", "demo", str(directory), *options],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def daemons(directory: Path) -> list[str]:
    """The processes whose command line names a workspace of this demo."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if "mailboxd.cli run" in command and str(directory) in command:
            found.append(command)
    return found


def test_the_demo_answers_over_two_levels_and_four_daemons(tmp_path: Path) -> None:
    directory = tmp_path / "company"
    process = demo(directory)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed[-3000:]
    assert "q3: a plan with 4 subtasks: extract-emea, extract-apac, analysis, report" in printed
    assert "q3.report: a plan with 3 subtasks: draft, check, final" in printed
    assert "Revenue in Q3 2026 was EUR 20.1 million" in printed
    assert "status: done" in (directory / "writer/tasks/q3.report/task.md").read_text(encoding="utf-8")
    assert all(list((directory / agent / "mailbox/archive").rglob("*.md")) for agent in AGENTS)
    assert not list((directory / "analyst/mailbox/inbox").iterdir())
    assert in_parallel(directory / "ledger.jsonl", "extractor")
    assert daemons(directory) == []


@pytest.mark.soak
def test_agents_that_answer_in_dialects_come_to_the_same_answer(tmp_path: Path) -> None:
    """Seed 3 refuses, thinks without an answer, is silent, and writes forms in fences, JSON and other words."""
    directory = tmp_path / "company"
    process = demo(directory, "--dialect", "any", "--seed", "3")
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed[-3000:]
    assert "Revenue in Q3 2026 was EUR 20.1 million" in printed
    assert "10 turns, 4 dispatches, 4 replies" in printed
    assert re.search(r"^[1-9][0-9]* answers were asked for again, in their sessions$", printed, re.MULTILINE)
    assert "attempt 2" not in printed, "asking again costs no attempt"


def in_parallel(ledger: Path, agent: str) -> bool:
    """Whether the two turns of an agent overlapped."""
    entries = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    ends = {entry["run_id"]: entry["at"] for entry in entries if entry["event"] == "end"}
    begun = [entry for entry in entries if entry.get("agent") == agent and entry.get("kind") == "work"]
    (first, first_end), (second, second_end) = [(entry["at"], ends[entry["run_id"]]) for entry in begun]
    return bool(first < second_end and second < first_end)


def test_the_figures_that_the_agents_report_are_those_of_the_ledgers() -> None:
    company = (EXAMPLE / "company.yaml").read_text(encoding="utf-8")
    for region in ("emea", "apac"):
        with (EXAMPLE / f"extractor/data/q3-{region}.csv").open(encoding="utf-8") as file:
            total = sum(int(row["revenue_eur"]) for row in csv.DictReader(file))
        assert f"Q3: {total:,}." in company


@pytest.mark.soak
def test_daemons_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    process = demo(tmp_path / "company", "--kill")
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed[-3000:]
    assert re.search(r"^[1-9][0-9]* kills, and the same answer$", printed, re.MULTILINE)
    assert re.search(r"^10 turns, 4 dispatches, 4 replies", printed, re.MULTILINE)


def test_ctrl_c_stops_every_daemon(tmp_path: Path) -> None:
    directory = tmp_path / "company"
    process = demo(directory)
    assert process.stdout is not None
    for line in process.stdout:
        if "a plan with 4 subtasks" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 130, printed[-2000:]
    assert daemons(directory) == []


def test_a_second_demo_does_not_disturb_one_that_works(tmp_path: Path) -> None:
    directory = tmp_path / "company"
    first = demo(directory)
    assert first.stdout is not None
    next(line for line in first.stdout if "a task file is dropped" in line)
    second = demo(directory)
    printed, _ = second.communicate(timeout=600)
    assert second.returncode == 73
    assert "daemons of an earlier demo still work in" in printed
    rest, _ = first.communicate(timeout=600)
    assert first.returncode == 0, rest[-3000:]


def test_on_a_terminal_it_ends_on_the_page_with_the_answer(tmp_path: Path) -> None:
    """A person follows the link, finds the answer, and a request that waits; Ctrl-C stops the page and the daemons."""
    directory, (fd, terminal) = tmp_path / "company", pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mailboxd.cli", "demo", str(directory)],
        env={name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")},
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    written = b""
    while not (link := re.search(rb"http://127[.0-9:]+/enter\S+", written)):
        written += os.read(fd, 65_536)
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with browser.open(link[0].decode(), timeout=60) as page:
        assert "Revenue in Q3 2026 was EUR 20.1 million" in page.read().decode()
    with browser.open(page.url.partition("/w/")[0], timeout=60) as page:
        assert "notice board" in page.read().decode()
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # it has closed the terminal
        while piece := os.read(fd, 65_536):
            written += piece
    os.close(fd)
    assert process.wait(timeout=60) == 0, written[-2000:].decode(errors="replace")
    assert daemons(directory) == []


def test_a_directory_that_is_no_demo_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("precious", encoding="utf-8")
    (tmp_path / "company.yaml").write_text("agents: {}\n", encoding="utf-8")  # as the how-tos have one
    process = demo(tmp_path)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 69
    assert "was not made by an earlier demo" in printed
    assert (tmp_path / "letter.txt").read_text(encoding="utf-8") == "precious"


def test_the_witness_sees_work_that_was_done_twice(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    turn = {
        "event": "begin",
        "agent": "a",
        "kind": "work",
        "local_id": "t",
        "rule": 0,
        "attempt_id": "",
        "message_id": "",
    }
    lines = [{**turn, "run_id": run} for run in "12"] + [
        {"event": "end", "run_id": run, "status": "succeeded"} for run in "12"
    ]
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    counted = subprocess.run(
        [sys.executable, str(EXAMPLE / "count_work.py"), str(ledger)], capture_output=True, text=True, check=False
    )
    assert counted.returncode == 1
    assert "done twice: a work t" in counted.stdout
