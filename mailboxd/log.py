"""Log lines: one for each thing that is said, readable or JSON, in which nothing foreign can forge another line.

Modules log with `logging.getLogger(__name__)`. What a line is about goes into `extra`: task, attempt, trace. The trace
is written in JSON only, where it is looked for.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TextIO

from mailboxd.core.times import to_text

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

Line = tuple[str, Mapping[str, object]]
"""A message, and what it is about."""
_LINES = "lines"
_FIELDS = ("task", "attempt")
_SEARCHED = (*_FIELDS, "trace")
_LONGEST_MESSAGE = 2_048
_LONGEST_TRACE = 16_384
# C0, DEL and C1 controls; line and paragraph separators; directions that reorder a line on screen; lone surrogates
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str) -> str:
    """`text` on one line, with every character that acts on a terminal or a log reader written as \\n, \\x1b ..."""
    if text.isprintable():  # as nearly all is: then none of these is in it
        return text
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def configure(level: str, form: str, stream: TextIO) -> None:
    """Sends all records from `level` (one of LEVELS) up to `stream`, as `form` (one of FORMATS). Replaces what was set.

    It takes the root logger, because watchdog reports a lost watch nowhere but in a log line of its own.
    Raises ValueError for any other word.
    """
    if level not in LEVELS or form not in FORMATS:
        raise ValueError(f"level is one of {LEVELS}, format one of {FORMATS}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # what no line shows is not looked up for each (the logging module's own advice, "Optimization")
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.setLevel(level.upper())


def several(logger: logging.Logger, level: int, lines: Sequence[Line]) -> None:
    """Says several things in one go: a line for each, but one record and one writing, which cost more than a line."""
    # made by hand: where in the program it was said is of no use, and the search for it a third of the cost
    record = logger.makeRecord(logger.name, level, "", 0, "%d lines", (len(lines),), None, extra={_LINES: lines})
    logger.handle(record)


class TextFormatter(logging.Formatter):
    """`2026-11-21T02:07:53.120Z INFO engine: task accepted [task=alpha attempt=2]`."""

    def format(self, record: logging.LogRecord) -> str:
        begin = f"{to_text(record.created)} {record.levelname} {_source(record)}: "
        trace = _trace(self, record)
        end = f" | {escape(trace)}" if trace else ""
        return "\n".join([f"{begin}{escape(_cut(said) + _in_brackets(about))}{end}" for said, about in _lines(record)])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, source, message; task, attempt, trace, exception where they apply."""

    def format(self, record: logging.LogRecord) -> str:
        begin = {"time": to_text(record.created), "level": record.levelname.lower(), "source": _source(record)}
        trace = _trace(self, record)
        end = {"exception": trace} if trace else {}
        lines = [begin | {"message": _cut(said)} | _about(about) | end for said, about in _lines(record)]
        # ASCII only: JSON's own escapes leave no raw control character, separator or surrogate
        return "\n".join([json.dumps(line, ensure_ascii=True) for line in lines])


def _lines(record: logging.LogRecord) -> Sequence[Line]:
    """What is said, each with what it is about: that of `several`, or the one thing that the record says."""
    lines: Sequence[Line] | None = record.__dict__.get(_LINES)
    return ((record.getMessage(), record.__dict__),) if lines is None else lines


def _source(record: logging.LogRecord) -> str:
    return record.name.removeprefix("mailboxd.")


def _about(about: Mapping[str, object]) -> dict[str, str]:
    return {name: str(about[name]) for name in _SEARCHED if about.get(name) is not None}


def _in_brackets(about: Mapping[str, object]) -> str:
    found = [f"{name}={value}" for name in _FIELDS if (value := about.get(name)) is not None]
    return f" [{' '.join(found)}]" if found else ""


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return _cut(formatter.formatException(record.exc_info), _LONGEST_TRACE)


def _cut(text: str, limit: int = _LONGEST_MESSAGE) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
