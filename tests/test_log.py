"""One record is one line, whatever is in it."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd import log
from mailboxd.log import JsonFormatter, TextFormatter, escape

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
    assert escape("Grüße, 世界 — “ok” 100 %") == "Grüße, 世界 — “ok” 100 %"
    assert escape("a\tb\x1b[1m\u2028") == "a\\tb\\x1b[1m\\u2028"


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


def test_records_below_the_level_are_dropped_and_other_packages_are_heard(stream: io.StringIO) -> None:
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
