"""One record is one line, whatever is in it."""

import errno
import fcntl
import io
import json
import logging
import os
import re
import resource
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.sanitize import for_log
from mailboxd.host import log
from mailboxd.host.log import JsonFormatter, TextFormatter

FORGED = "done\n2026-11-21T02:07:53.120Z INFO engine: approved\r\x1b[2J\u2028\u202e\x00\x9b"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream to log to; the root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message: str, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "mailboxd.engine", "levelname": "INFO", "levelno": 20, "msg": message, "created": 1795226873.12}
        | extra
    )


def test_a_line_says_when_how_bad_where_what_and_about_which_task() -> None:
    line = TextFormatter().format(record("task accepted", task="alpha", attempt=2))
    assert line == "2026-11-21T02:07:53.120Z INFO engine: task accepted [task=alpha attempt=2]"


def test_the_same_as_json() -> None:
    assert json.loads(JsonFormatter().format(record("task accepted", task="alpha", attempt=2))) == {
        "time": "2026-11-21T02:07:53.120Z",
        "level": "info",
        "source": "engine",
        "message": "task accepted",
        "task": "alpha",
        "attempt": "2",
    }


def test_where_agents_share_a_log_each_line_names_its_own() -> None:
    line = TextFormatter("ann").format(record("task accepted", task="alpha"))
    assert line == "2026-11-21T02:07:53.120Z INFO ann engine: task accepted [task=alpha]"
    assert json.loads(JsonFormatter("ann").format(record("task accepted")))["agent"] == "ann"
    assert " INFO bob engine: " in TextFormatter().format(record("started", agent="bob")), "one that speaks of several"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_foreign_text_cannot_forge_a_line_or_move_the_cursor(formatter: logging.Formatter) -> None:
    line = formatter.format(record(FORGED, task=FORGED))
    assert line.isprintable()


@given(st.text(alphabet=st.characters(codec=None)))
def test_no_text_at_all_breaks_a_line(text: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record("%s", args=(text,), attempt=text))
        assert len(line.splitlines()) == 1
        line.encode("utf-8")


@pytest.mark.parametrize("form", ["text", "json"])
def test_several_things_in_one_go_are_as_many_lines_as_one_by_one(form: str, stream: io.StringIO) -> None:
    said: list[log.Line] = [(FORGED, {"task": "alpha", "trace": "t"}), ("x" * 3000, {"attempt": FORGED}), ("last", {})]
    log.configure("info", form, stream)
    logger = logging.getLogger("mailboxd.engine")
    log.several(logger, logging.INFO, said)
    log.several(logger, logging.WARNING, said[2:])
    together = _without_times(stream)
    for message, about in said:
        logger.info("%s", message, extra=about)
    logger.warning("last")
    assert together == _without_times(stream)[4:]
    assert len(together) == 4


def _without_times(stream: io.StringIO) -> list[str]:
    return [re.sub(r"20[0-9T:.-]+Z", "", line) for line in stream.getvalue().splitlines()]


def test_escaping_leaves_ordinary_text_alone() -> None:
    assert for_log("Grüße, 世界 — “ok” 100 %") == "Grüße, 世界 — “ok” 100 %"
    assert for_log("a\tb\x1b[1m\u2028") == "a\\tb\\x1b[1m\\u2028"


def test_a_long_message_is_cut_and_says_so() -> None:
    line = TextFormatter().format(record("x" * 1_000_000))
    assert len(line) < 2_200
    assert "(1000000 characters)" in line


def test_a_traceback_stays_on_the_line(stream: io.StringIO) -> None:
    log.configure("info", "text", stream)
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError:
        logging.getLogger("mailboxd.daemon.loop").exception("the loop failed")
    (line,) = stream.getvalue().splitlines()
    assert "the loop failed" in line
    assert "RuntimeError: first\\nsecond" in line


def test_records_below_the_level_are_dropped_and_other_packages_are_logged(stream: io.StringIO) -> None:
    log.configure("warning", "json", stream)
    logging.getLogger("mailboxd.engine").info("not this")
    logging.getLogger("watchdog").setLevel(logging.NOTSET)  # whoever closed a watcher in this process has silenced it
    logging.getLogger("watchdog.observers").warning("a watch was lost")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["source"] == "watchdog.observers"


def test_configuring_twice_does_not_log_twice(stream: io.StringIO) -> None:
    log.configure("info", "text", stream)
    log.configure("info", "text", stream)
    logging.getLogger("mailboxd").info("once")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize(("level", "form"), [("loud", "text"), ("info", "xml"), ("INFO", "text")])
def test_unknown_words_are_refused(level: str, form: str, stream: io.StringIO) -> None:
    with pytest.raises(ValueError, match=re.escape("level is one of")):
        log.configure(level, form, stream)


# ---------------------------------------------------------------- readers that do not read


class Pipe:
    """A pipe with room for one page, as standard error; `said` is what was read from it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.reading, False)
        self.stream = os.fdopen(self.writing, "w", encoding="utf-8")
        self.said = ""

    def read(self) -> list[str]:
        with suppress(BlockingIOError):
            while raw := os.read(self.reading, 65_536):
                self.said += raw.decode()
        return [line.partition(" mailboxd: ")[2] or line for line in self.said.splitlines()]


@pytest.fixture
def pipe(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr(log, "PATIENCE_MS", 0)  # the reader is the test itself
    monkeypatch.setattr(log, "WAIT_MS", 1)
    made = Pipe()
    log.configure("info", "text", made.stream)
    yield made
    log.configure("info", "text", stream)
    made.stream.close()
    with suppress(OSError):
        os.close(made.reading)


def say(first: int, last: int, text: str = "") -> None:
    for number in range(first, last):
        logging.getLogger("mailboxd").info("line %d%s", number, text)


def lines(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last)]


def test_unread_lines_wait_in_order(pipe: Pipe) -> None:
    say(0, 500)
    assert pipe.read() != lines(0, 500)
    while log.catch_up():
        pipe.read()
    assert pipe.read() == lines(0, 500)
    assert not log.catch_up()


def test_the_pipe_of_others_is_left_as_it_is(pipe: Pipe) -> None:
    """The shell behind a terminal and our children share it: it must still block for them."""
    say(0, 500)
    assert os.get_blocking(pipe.writing)


def test_what_does_not_fit_into_the_queue_is_dropped_counted_and_reported_where_it_is_missing(pipe: Pipe) -> None:
    long = "x" * 2000
    say(0, 700, long)
    while log.catch_up():
        pipe.read()
    say(700, 701)
    found = pipe.read()
    (report,) = [number for number, line in enumerate(found) if "dropped" in line]
    dropped = 700 - report
    assert 100 < dropped < 300
    said = rf"WARNING log: {dropped} log lines were dropped because nobody read standard error for \d+ s$"
    assert re.search(said, found[report])
    assert [line.removesuffix(long) for line in found[:report]] == lines(0, report)
    assert found[report + 1 :] == ["line 700"]


@pytest.mark.slow
def test_lines_that_were_written_together_are_counted_one_by_one(pipe: Pipe) -> None:
    logger = logging.getLogger("mailboxd")
    log.several(logger, logging.INFO, [("x" * 2000, {})] * 1000)  # whatever its size, the first burst is kept
    log.several(logger, logging.INFO, [("y", {})] * 1000)
    while log.catch_up():
        pipe.read()
    assert "1000 log lines were dropped" in pipe.read()[-1]


def test_a_reader_that_reads_loses_nothing_of_several_bursts(
    pipe: Pipe, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PATIENCE_MS", 10_000)

    def read() -> int:
        os.set_blocking(pipe.reading, True)
        return sum(raw.count(b"\n") for raw in iter(lambda: os.read(pipe.reading, 4096), b""))

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read)
        for _ in range(5):
            log.several(logging.getLogger("mailboxd"), logging.INFO, [("x" * 500, {})] * 2000)
        log.configure("info", "text", stream)
        pipe.stream.close()
        assert found.result() == 10_000


def test_without_a_reader_lines_are_dropped_and_nothing_is_raised(pipe: Pipe) -> None:
    os.close(pipe.reading)
    say(0, 100)
    assert log.catch_up(), "it would say so, if anybody were there"


def test_a_disk_that_is_full_for_a_while_costs_the_lines_of_that_while(stream: io.StringIO, tmp_path: Path) -> None:
    with (tmp_path / "log").open("a", encoding="utf-8") as file:
        log.configure("info", "text", file)
        say(0, 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(file.fileno()).st_size + 20, hard))
        try:
            say(1, 4)  # the first of them is cut
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        say(4, 5)
        log.configure("info", "text", stream)
    first, cut, report, last = (tmp_path / "log").read_text().splitlines()
    assert first.endswith("line 0")
    assert len(cut) < 25
    assert report.endswith(
        "3 log lines were dropped because standard error could not be written (File too large) for 0 s"
    )
    assert last.endswith("line 4")


@pytest.mark.parametrize("family", [socket.AF_UNIX])
def test_a_socket_as_the_journal_has_it_is_not_waited_for_either(stream: io.StringIO, family: int) -> None:
    ours, theirs = socket.socketpair(family)
    with ours, theirs, open(os.dup(ours.fileno()), "w", encoding="utf-8") as file:
        log.configure("info", "text", file)
        say(0, 5000, "x" * 100)
        assert log.catch_up()
        raw = b""
        while log.catch_up() or not raw.endswith(b"line 4999" + b"x" * 100 + b"\n"):
            raw += theirs.recv(1 << 20)
        log.configure("info", "text", stream)
    assert raw.count(b"\n") == 5000


def test_closing_waits_at_most_two_seconds_for_queued_lines(pipe: Pipe, stream: io.StringIO) -> None:
    say(0, 500)
    log.configure("info", "text", stream)
    assert len(pipe.read()) < 500


def test_what_can_be_opened_by_its_name_no_more_is_written_when_it_is_ready(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors, without /proc, on the terminal of another user."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("mailboxd.host.log.os.open", refuse)
        log.configure("info", "text", pipe.stream)
    say(0, 500)
    while log.catch_up():
        pipe.read()
    assert pipe.read() == lines(0, 500)


def test_identical_warnings_are_folded_and_counted(stream: io.StringIO) -> None:
    log.configure("info", "text", stream, folds=True)
    logger = logging.getLogger("mailboxd")
    for number in range(9):
        logger.warning("mail waits at %s", "the server")
        logger.info("connected")
        logger.warning("another one: %d", number)
    lines = stream.getvalue().splitlines()
    waits = [line.partition("mailboxd: ")[2] for line in lines if "waits" in line]
    assert waits == [f"mail waits at the server{times}" for times in ("", *(f" ({n} times by now)" for n in (2, 4, 8)))]
    assert sum("connected" in line for line in lines) == sum("another" in line for line in lines) == 9


def test_a_warning_that_did_not_come_for_an_hour_begins_anew() -> None:
    folding = log.Folding()

    def passes(at: float) -> str:
        one = record("mail waits", levelno=logging.WARNING, created=at)
        return one.getMessage() if folding.filter(one) else ""

    assert [passes(at) for at in (0, 1, 2, 3_700, 3_701)] == [
        "mail waits", "mail waits (2 times by now)", "", "mail waits", "mail waits (2 times by now)",
    ]  # fmt: skip
