"""What foreign files say that the past can be made of: moments that can be counted from, names that can be recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mailboxd.core.times import to_epoch, to_text
from mailboxd.errors import MessageError
from mailboxd.messages import headers
from mailboxd.messages.taskfile import TaskFile

EARLIEST = "1970-01-01T00:00:00.000Z"
"""Before it no id can be made."""
_LATEST = "8999-12-31T23:59:59.999Z"
"""What is added to a moment (a timeout, a pause) has to end before the year 10,000."""


def moment(text: str) -> str:
    """The moment that a file names, as times are written here. Raises MessageError for none that can be."""
    found = headers.time(text, lambda _: None)
    _require_possible(found, text)
    return found


def _require_possible(moment: str, said: str) -> None:
    if not EARLIEST <= moment <= _LATEST:
        raise MessageError("bad-time", f"{said!r} is not a possible time")


def of_file(mtime: float) -> str:
    """When a file was written, as its file system has it: whatever its writer wanted it to be."""
    return to_text(min(max(mtime, 0.0), to_epoch(_LATEST)))


@lru_cache(maxsize=16)  # the files of a day are read one after the other
def is_day(folder: str) -> bool:
    """Whether a directory of archive/ is that of a day."""
    try:
        return moment(f"{folder}T00:00:00.000Z")[:10] == folder
    except MessageError:
        return False


def is_text(name: str) -> bool:
    """Whether a name is UTF-8: the database holds no others."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def dated(written: TaskFile, mtime: float) -> TaskFile:
    """With moments that can be. One that somebody has just made says none: it came when it was written.

    Raises MessageError.
    """
    for said in filter(None, (written.created_at, written.updated_at)):
        _require_possible(said, said)
    dag = tuple(
        replace(node, dispatched_at=_said(node.dispatched_at), completed_at=_said(node.completed_at))
        for node in written.dag
    )
    if written.created_at and dag == written.dag:
        return written
    return replace(written, created_at=written.created_at or of_file(mtime), dag=dag)


def _said(text: str) -> str:
    return moment(text) if text else ""
