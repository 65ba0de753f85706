"""Log lines, as text or JSON; untrusted text cannot forge a line.

Modules log with `logging.getLogger(__name__)`. Task, attempt and trace of a line go into `extra`. The trace is written
in JSON only.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import stat
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TextIO

from mailboxd.core.sanitize import for_log
from mailboxd.core.times import to_text
from mailboxd.host.system import system

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

Line = tuple[str, Mapping[str, object]]
"""A message and its fields."""
QUEUED = 1 << 20
"""Bytes of queued lines; further lines are dropped."""
PATIENCE_MS = 20
"""How long to wait for a reader that was not stalled before."""
_WAITS, WAIT_MS = 20, 100
"""How often, and how long each time, `close` waits for a reader of the queued lines."""
_FORGOTTEN, _MOST_FOLDED = 3_600.0, 1_000
"""Seconds after which a warning begins anew, and how many different ones are remembered."""
_LINES = "lines"
_FIELDS = ("task", "attempt")
_SEARCHED = (*_FIELDS, "trace")
_LONGEST_MESSAGE = 2_048
_LONGEST_TRACE = 16_384


def configure(level: str, form: str, stream: TextIO, *, folds: bool = False, agent: str = "") -> None:
    """Send records of at least `level` (one of LEVELS) to `stream` as `form` (one of FORMATS), and nowhere else.

    With `folds`, identical warnings are folded (`Folding`). Each line names the `agent`, if several share the stream.
    It sets up the root logger, because watchdog reports a lost watch only in its own log.
    Raises ValueError for any other word.
    """
    if level not in LEVELS or form not in FORMATS:
        raise ValueError(f"level is one of {LEVELS}, format one of {FORMATS}")
    handler = _handler(stream)
    handler.setFormatter(JsonFormatter(agent) if form == "json" else TextFormatter(agent))
    if folds:
        handler.addFilter(Folding())
    root = logging.getLogger()
    for earlier in _patient():
        earlier.close()
    root.handlers[:] = [handler]
    # not looked up, because no line shows them (the logging module's own advice, "Optimization")
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.setLevel(level.upper())
    logging.getLogger("watchdog").setLevel(max(root.level, logging.INFO))  # its details of each file drown the others


class Folding(logging.Filter):
    """Lets an identical warning pass the first, second, fourth, eighth time, and so on, and says how often it came.

    What did not come for an hour begins anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[int, float]] = {}
        """How often each warning came, and when it came last."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        text = record.getMessage()
        times, last = self._seen.pop(text, (0, 0.0))
        times = 1 if record.created - last > _FORGOTTEN else times + 1
        self._seen[text] = times, record.created
        if len(self._seen) > _MOST_FOLDED:
            del self._seen[next(iter(self._seen))]  # the one that did not come for the longest time
        if times & (times - 1):
            return False
        if times > 1:
            record.msg, record.args = f"{text} ({times} times by now)", None
        return True


def several(logger: logging.Logger, level: int, lines: Sequence[Line]) -> None:
    """Log several lines with one record and one write, which cost more than a line."""
    # made directly: finding the caller, which no line shows, is a third of the cost
    record = logger.makeRecord(logger.name, level, "", 0, "%d lines", (len(lines),), None, extra={_LINES: lines})
    logger.handle(record)


def catch_up() -> bool:
    """Write queued lines without blocking; return whether any remain."""
    waits = False
    for handler in _patient():
        with handler.lock or nullcontext():
            waits = handler.drain() or waits
    return waits


def leave_to_parent() -> None:
    """In a process that was forked: drop the queued lines, which its parent writes."""
    for handler in _patient():
        handler.forget()


def last_words(text: str) -> bool:
    """Write a line as log lines are written; False if logging is not set up, so that the caller has to print it."""
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
    """Writes lines to a descriptor without blocking on a stalled reader.

    A reader gets 20 ms to keep up with a burst; a stalled one costs that time once. Other lines are queued and written
    in order, with the next line or by `catch_up`. Lines are dropped and counted when `QUEUED` bytes are queued or the
    descriptor fails (EPIPE, ENOSPC); a later line reports that. `close`, also at exit, waits up to two seconds.

    A writer thread would not do: stuck in `write` it cannot be ended, and each line would cost two context switches.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._encoding = stream.encoding or "utf-8"
        self._sink = _Sink(stream.fileno())
        self._queue = bytearray()
        """Lines that are still to be written; the first may be the rest of one."""
        self._dropped = 0
        self._since = 0.0
        self._why = ""
        self._is_stalled = False
        """Its reader did not read within the time and has read nothing since."""
        self._is_within_a_line = False
        """The last line that was written has no end yet."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            self.put(text)

    def put(self, text: str) -> None:
        """Write one or several lines, or queue them, or drop them. Inside `self.lock`, as `emit` is."""
        raw = self._encoded(text)
        if self._queue or self._dropped:
            self.drain()
        if self._dropped or (self._queue and len(self._queue) + len(raw) > QUEUED):
            self._drop(raw.count(b"\n"), "nobody read standard error")
        else:
            self._queue += raw
            self.drain()

    def drain(self) -> bool:
        """Write queued lines without blocking; returns whether any remain. Inside `self.lock`."""
        while self._queue or self._dropped:
            is_report = not self._queue
            raw: bytes | bytearray = self._report() if is_report else self._queue
            try:
                written = self._sink.write(raw)
            except BlockingIOError:
                if self._is_stalled or not self._sink.wait(PATIENCE_MS):
                    self._is_stalled = True
                    return True
                continue
            except OSError as problem:
                self._drop(self._queue.count(b"\n"), f"standard error could not be written ({problem.strerror})")
                self._queue.clear()
                return True
            self._is_stalled, self._is_within_a_line = False, raw[written - 1 : written] != b"\n"
            if not is_report:
                del self._queue[:written]
            elif written == len(raw):  # else the report is made again
                self._dropped, self._since = 0, 0.0
        return False

    def forget(self) -> None:
        """Drop what is queued."""
        self._queue.clear()
        self._dropped = 0

    def close(self) -> None:
        """Wait at most two seconds for queued lines to be written."""
        with self.lock or nullcontext():
            for _ in range(_WAITS):
                if not self.drain():
                    break
                self._sink.wait(WAIT_MS)
            self.forget()
            self._sink.close()
        super().close()

    def _encoded(self, text: str) -> bytes:
        return f"{text}\n".encode(self._encoding, "backslashreplace")

    def _drop(self, lines: int, why: str) -> None:
        if not self._since:
            self._since, self._why = _now(), why
        self._dropped += lines

    def _report(self) -> bytes:
        """A line that reports the dropped ones."""
        count = f"{self._dropped} log lines were" if self._dropped > 1 else "1 log line was"
        text = f"{count} dropped because {self._why} for {max(_now() - self._since, 0.0):.0f} s"
        line = self._encoded(self.format(logging.LogRecord("mailboxd.log", logging.WARNING, "", 0, text, (), None)))
        return b"\n" * self._is_within_a_line + line


class _Sink:
    """Writes to a descriptor without blocking.

    O_NONBLOCK would affect every process that shares the open file: the shell of a terminal, child processes. So a pipe
    or a terminal is opened again, a socket gets a flag with each line, and a regular file never blocks.
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
                self._own = os.open(system.path_of(fd), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            except OSError:  # no descriptors, no /proc, another user's terminal
                self._asks = True
        if self._own >= 0:
            self._fd = self._own

    def write(self, raw: bytes | bytearray) -> int:
        """Returns the number of bytes written. Raises BlockingIOError instead of blocking, and OSError."""
        if self._socket is not None:
            return self._socket.send(raw, socket.MSG_DONTWAIT)
        if not self._asks:
            return os.write(self._fd, raw)
        if not self.wait(0):
            raise BlockingIOError
        return os.write(self._fd, raw[: select.PIPE_BUF])  # there is room for a page, unless another writer takes it

    def wait(self, milliseconds: int) -> bool:
        """Wait until it is writable or has failed; return whether it is."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(milliseconds))

    def close(self) -> None:
        """Close what was opened here."""
        if self._socket is not None:
            self._socket.close()
        if self._own >= 0:
            os.close(self._own)
        self._fd = self._own = -1  # its number may soon be another file's


def _now() -> float:
    """The time, in seconds since 1970, as log records have it."""
    return logging.makeLogRecord({}).created


class _Formatter(logging.Formatter):
    """`agent`: whose lines they are, where several agents share a log."""

    def __init__(self, agent: str = "") -> None:
        super().__init__()
        self._agent = agent

    def agent_of(self, record: logging.LogRecord) -> str:
        return str(record.__dict__.get("agent", self._agent))


class TextFormatter(_Formatter):
    """`2026-11-21T02:07:53.120Z INFO engine: task accepted [task=alpha attempt=2]`; of an agent: `INFO ann engine:`."""

    def format(self, record: logging.LogRecord) -> str:
        agent, source = self.agent_of(record), _source(record)
        source = f"{for_log(agent)} {source}" if agent else source
        begin = f"{to_text(record.created)} {record.levelname} {source}: "
        trace = _trace(self, record)
        end = f" | {for_log(trace)}" if trace else ""
        return "\n".join([f"{begin}{for_log(_with_fields(entry, about))}{end}" for entry, about in _lines(record)])


class JsonFormatter(_Formatter):
    """One JSON object per line: time, level, source, message; agent, task, attempt, trace, exception if they apply."""

    def format(self, record: logging.LogRecord) -> str:
        begin = {"time": to_text(record.created), "level": record.levelname.lower()}
        begin |= {"agent": agent} if (agent := self.agent_of(record)) else {}
        begin |= {"source": _source(record)}
        trace = _trace(self, record)
        end = {"exception": trace} if trace else {}
        lines = [begin | {"message": _cut(entry)} | _about(about) | end for entry, about in _lines(record)]
        # ASCII only: JSON's own escapes leave no raw control character, separator or surrogate
        return "\n".join([json.dumps(line, ensure_ascii=True) for line in lines])


def _lines(record: logging.LogRecord) -> Sequence[Line]:
    """Each message with its fields: those of `several`, or the one of the record."""
    lines: Sequence[Line] | None = record.__dict__.get(_LINES)
    return ((record.getMessage(), record.__dict__),) if lines is None else lines


def _source(record: logging.LogRecord) -> str:
    return record.name.removeprefix("mailboxd.")


def _about(about: Mapping[str, object]) -> dict[str, str]:
    return {name: str(about[name]) for name in _SEARCHED if about.get(name) is not None}


def _with_fields(entry: str, about: Mapping[str, object]) -> str:
    """A message and, in brackets, its fields."""
    said = ""
    for name in _FIELDS:
        if (value := about.get(name)) is not None:
            said += f" {name}={value}"
    text = entry if len(entry) <= _LONGEST_MESSAGE else _cut(entry)
    return f"{text} [{said[1:]}]" if said else text


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return _cut(formatter.formatException(record.exc_info), _LONGEST_TRACE)


def _cut(text: str, limit: int = _LONGEST_MESSAGE) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
