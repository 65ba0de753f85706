"""Log lines: one for each thing that is said, readable or JSON, in which nothing foreign can forge another line.

Modules log with `logging.getLogger(__name__)`. What a line is about goes into `extra`: task, attempt, trace. The trace
is written in JSON only, where it is looked for.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TextIO

from mailboxd.core.sanitize import for_log
from mailboxd.core.times import to_text

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

Line = tuple[str, Mapping[str, object]]
"""A message, and what it is about."""
QUEUED = 1 << 20
"""Bytes of queued lines; further lines are dropped."""
PATIENCE_MS = 20
"""How long to wait for a reader that was not stalled before."""
_WAITS, WAIT_MS = 20, 100
"""How often, and how long each time, `close` waits for a reader of the queued lines."""
_LINES = "lines"
_FIELDS = ("task", "attempt")
_SEARCHED = (*_FIELDS, "trace")
_LONGEST_MESSAGE = 2_048
_LONGEST_TRACE = 16_384


def configure(level: str, form: str, stream: TextIO) -> None:
    """Sends all records from `level` (one of LEVELS) up to `stream`, as `form` (one of FORMATS). Replaces what was set.

    It takes the root logger, because watchdog reports a lost watch nowhere but in a log line of its own.
    Raises ValueError for any other word.
    """
    if level not in LEVELS or form not in FORMATS:
        raise ValueError(f"level is one of {LEVELS}, format one of {FORMATS}")
    handler = _handler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for earlier in _patient():
        earlier.close()
    root.handlers[:] = [handler]
    # what no line shows is not looked up for each (the logging module's own advice, "Optimization")
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.setLevel(level.upper())
    logging.getLogger("watchdog").setLevel(max(root.level, logging.INFO))  # its details of each file drown the others


def several(logger: logging.Logger, level: int, lines: Sequence[Line]) -> None:
    """Says several things in one go: a line for each, but one record and one writing, which cost more than a line."""
    # made by hand: where in the program it was said is of no use, and the search for it a third of the cost
    record = logger.makeRecord(logger.name, level, "", 0, "%d lines", (len(lines),), None, extra={_LINES: lines})
    logger.handle(record)


def catch_up() -> bool:
    """Write what is queued, as far as it is taken now; whether anything still waits. Costs next to nothing if not."""
    waits = False
    for handler in _patient():
        with handler.lock or nullcontext():
            waits = handler.drain() or waits
    return waits


def last_words(text: str) -> bool:
    """Write a line as log lines are written; False where nothing writes them, and the caller must do it himself."""
    handlers = _patient()
    for handler in handlers:
        with handler.lock or nullcontext():
            handler.put(text)
    return bool(handlers)


def _patient() -> list[PatientHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, PatientHandler)]


def _handler(stream: TextIO) -> logging.Handler:
    try:
        stream.fileno()
    except (OSError, ValueError):  # text in memory
        return logging.StreamHandler(stream)
    return PatientHandler(stream)


class PatientHandler(logging.Handler):
    """Writes lines to a descriptor, and does not wait for a reader who does not read.

    One that reads is given a moment to keep up with a burst; one that does not costs that moment once. What is not
    taken is queued, and written, in order, before later lines: with the next line, or by `catch_up`. Once `QUEUED`
    bytes wait, and while the descriptor refuses everything (EPIPE, ENOSPC), lines are dropped and counted, and a line
    says so as soon as one can be written again. `close`, also at the exit, waits a moment for what is queued.

    A thread that writes would not do: stuck in `write` it cannot be ended, and each line would cost two switches.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._encoding = stream.encoding or "utf-8"
        self._sink = _Sink(stream.fileno())
        self._queue: deque[_Said] = deque()
        self._queued = 0
        self._dropped = 0
        self._since = 0.0
        self._why = ""
        self._is_stalled = False
        """Its reader was waited for in vain, and has read nothing since."""
        self._begins_within_a_line = False
        """The end of a line could not be written."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            self.put(text)

    def put(self, text: str) -> None:
        """Write one or several lines, or queue them, or drop them. Inside `self.lock`, as `emit` is."""
        said = self._said(text)
        self.drain()
        if self._dropped or (self._queue and self._queued + len(said.rest) > QUEUED):
            self._drop(said.lines, "nobody read standard error")
        else:
            self._append(said)
            self.drain()

    def drain(self) -> bool:
        """Write queued lines without blocking; returns whether any remain. Inside `self.lock`."""
        while self._queue or self._dropped:
            if not self._queue:
                self._append(self._report())
            said = self._queue[0]
            try:
                written = self._sink.write(said.rest)
            except BlockingIOError:
                if self._is_stalled or not self._sink.wait(PATIENCE_MS):
                    self._is_stalled = True
                    return True
                continue
            except OSError as problem:
                self._begins_within_a_line = self._begins_within_a_line or said.is_begun
                lines = sum(lost.lines for lost in self._queue)
                self._drop(lines, f"standard error could not be written ({problem.strerror})")
                self._forget()
                return True
            self._is_stalled = False
            self._queued -= written
            said.rest, said.is_begun = said.rest[written:], True
            if not said.rest:
                self._queue.popleft()
                if said.is_report:
                    self._since, self._begins_within_a_line = 0.0, False
        return False

    def close(self) -> None:
        """Wait at most two seconds for queued lines to be written."""
        with self.lock or nullcontext():
            for _ in range(_WAITS):
                if not self.drain():
                    break
                self._sink.wait(WAIT_MS)
            self._forget()
            self._dropped = 0
            self._sink.close()
        super().close()

    def _said(self, text: str) -> _Said:
        raw = f"{text}\n".encode(self._encoding, "backslashreplace")
        return _Said(memoryview(raw), raw.count(b"\n"))

    def _append(self, said: _Said) -> None:
        self._queue.append(said)
        self._queued += len(said.rest)

    def _forget(self) -> None:
        self._queue.clear()
        self._queued = 0

    def _drop(self, lines: int, why: str) -> None:
        if not self._since:
            self._since, self._why = _now(), why
        self._dropped += lines

    def _report(self) -> _Said:
        """What stands in the log for the lines that were dropped."""
        count = f"{self._dropped} log lines were" if self._dropped > 1 else "1 log line was"
        text = f"{count} dropped because {self._why} for {max(_now() - self._since, 0.0):.0f} s"
        said = self._said(self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, text, (), None)))
        said.rest = memoryview(b"\n" * self._begins_within_a_line + said.rest)
        said.lines, said.is_report, self._dropped = self._dropped, True, 0
        return said


@dataclass(slots=True)
class _Said:
    """What is still to be written of some lines."""

    rest: memoryview
    lines: int
    """How many lines are lost with it: those that a report counts, if it is one."""
    is_report: bool = False
    is_begun: bool = False


class _Sink:
    """Takes what is meant for a descriptor: at once, or not at all.

    O_NONBLOCK would belong to all who share what was opened: the shell behind a terminal, our children. So a pipe or a
    terminal is opened once more, a socket is told with each line, and a file takes everything at once anyway.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._own = -1
        self._socket: socket.socket | None = None
        self._asks = False
        kind = os.fstat(fd).st_mode
        if stat.S_ISSOCK(kind):
            self._socket = socket.socket(fileno=os.dup(fd))
        elif not stat.S_ISREG(kind):
            try:
                self._own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            except OSError:  # no descriptors, no /proc, another user's terminal
                self._asks = True
        if self._own >= 0:
            self._fd = self._own

    def write(self, raw: memoryview) -> int:
        """How many bytes were taken. Raises BlockingIOError instead of waiting, and OSError."""
        if self._socket is not None:
            return self._socket.send(raw, socket.MSG_DONTWAIT)
        if not self._asks:
            return os.write(self._fd, raw)
        if not self.wait(0):
            raise BlockingIOError
        return os.write(self._fd, raw[: select.PIPE_BUF])  # there is room for a page, unless another writer takes it

    def wait(self, milliseconds: int) -> bool:
        """Wait until something can be written, or until it is known that nothing can be."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(milliseconds))

    def close(self) -> None:
        """Give back what was opened here."""
        if self._socket is not None:
            self._socket.close()
        if self._own >= 0:
            os.close(self._own)
        self._fd = self._own = -1  # its number may soon be another file's


def _now() -> float:
    """The moment that a record made now bears."""
    return logging.makeLogRecord({}).created


class TextFormatter(logging.Formatter):
    """`2026-11-21T02:07:53.120Z INFO engine: task accepted [task=alpha attempt=2]`."""

    def format(self, record: logging.LogRecord) -> str:
        begin = f"{to_text(record.created)} {record.levelname} {_source(record)}: "
        trace = _trace(self, record)
        end = f" | {for_log(trace)}" if trace else ""
        return "\n".join([f"{begin}{for_log(_cut(said) + _in_brackets(about))}{end}" for said, about in _lines(record)])


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
