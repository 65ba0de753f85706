"""Moves single files out of the inbox."""

from __future__ import annotations

from collections.abc import Mapping

from mailboxd.formats.mailbox.files import ObstructedError, Stamp
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import IsFiled, MoveRequest, move_out


def archive(ws: Workspace, name: str, stamp: Stamp | None, raw: bytes, day: str, taken: IsFiled) -> str:
    return _only(ws, MoveRequest(name, stamp, raw, f"archive/{day}"), taken)


def reject(
    ws: Workspace, name: str, stamp: Stamp | None, raw: bytes | None, reason: Mapping[str, object], taken: IsFiled
) -> str:
    return _only(ws, MoveRequest(name, stamp, raw, "rejected", reason), taken)


def _only(ws: Workspace, request: MoveRequest, taken: IsFiled) -> str:
    [answer] = move_out(ws, [request], taken)
    if isinstance(answer, ObstructedError):
        raise answer
    return answer
