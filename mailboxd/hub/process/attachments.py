"""The files that go with messages to other hosts: in pieces in a stream of their own, so that no mail waits for them.

Each host writes files below its own name, and reads those that are for it and those of pools' jobs. A file is with the
server before its message is sent, in the receiver's mailbox before that is delivered, and removed from the server with
the receipt. What the server has lost is sent again with the message.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import NotFoundError

from mailboxd.core.sanitize import first_line
from mailboxd.errors import WorldError
from mailboxd.host.system import system
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local
from mailboxd.hub.wire.mail import MOST_ATTACHED, Refusal, is_named
from mailboxd.hub.wire.subjects import FILE_SUBJECTS, FILES, POOLS, FileSubject, JobSubject, Subject
from mailboxd.mailbox.files import directory, publish, read_file, world_errors
from mailboxd.mailbox.layout import ATTACHMENTS, Workspace
from mailboxd.protocol.messages import AnyMessage

_PIECE = 128 << 10
_MOST_PIECES = MOST_ATTACHED // _PIECE + 1
_AT_ONCE = 2
"""Pieces under way at a time: all that mail has to wait for, a second at 2 Mbit/s."""
_PATIENCE = 30.0
"""Seconds for a piece."""
_MOST_AGE = 30 * 86_400.0
"""Seconds that the server keeps a file for which no receipt comes."""
_COUNT = "Mailboxd-Pieces"
_log = logging.getLogger("mailboxd")


def stream(replicas: int) -> StreamConfig:
    """What the founder creates at the server."""
    return StreamConfig(
        name=FILES, subjects=[FILE_SUBJECTS], storage=StorageType.FILE, num_replicas=replicas, max_age=_MOST_AGE,
        max_msgs_per_subject=1, allow_direct=True, allow_msg_ttl=True,
    )  # fmt: skip


@dataclass(slots=True)
class Attachments:
    """The files of one hub process that are sent and fetched."""

    here: ThisHost
    under_way: UnderWay
    _sent: set[str] = field(default_factory=set)
    """Messages whose files are with the server."""
    _here: set[str] = field(default_factory=set)
    """Messages that are to be delivered, and whose files are in the mailbox."""
    _wrong: dict[str, str] = field(default_factory=dict)
    """Messages with a file that cannot be fetched, ever, and why."""
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """By message id."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One file at a time is in memory."""

    def are_sent(self, one: Local, message: AnyMessage, route: Subject | JobSubject) -> bool:
        """Whether the server has all files of a message; else they are on their way. Raises Refusal, WorldError."""
        names, message_id = message.attachments or (), message.message_id or ""
        if not names or message_id in self._sent:
            return True
        if missing := set(names) - one.spool.attached(message_id).keys():
            raise Refusal(f"{', '.join(sorted(missing))} is attached to it, and gone from the spool")
        self._start(message_id, self._send(one, message_id, names, _to(route)))
        return False

    def send_again(self, message_id: str) -> None:
        """The server may have lost the files of a message."""
        self._sent.discard(message_id)

    async def _send(self, one: Local, message_id: str, names: tuple[str, ...], to: str) -> None:
        js = self._stream
        try:
            for name in names:
                async with self._one:
                    raw = await asyncio.to_thread(one.spool.attachment, message_id, name)
                    subject = FileSubject(to, self.here.settings.host, message_id, name)
                    pieces = [raw[at : at + _PIECE] for at in range(0, len(raw), _PIECE)] or [b""]
                    headers = {_COUNT: str(len(pieces))}
                    for start in range(0, len(pieces), _AT_ONCE):
                        some = enumerate(pieces[start : start + _AT_ONCE], start)
                        await asyncio.gather(*(js.publish(subject.piece(n), part, headers=headers) for n, part in some))
        except (NatsError, WorldError) as error:
            why = f"a file for {to} is not with the server: {first_line(str(error))}"
            self.under_way.wait(message_id, why, str(to))
            return
        self._sent.add(message_id)
        self.here.woken.set()

    def remove(self, one: Local, message_id: str, to: str) -> None:
        """Have the files of a message removed from the server: its receipt has come."""
        self._sent.discard(message_id)
        pieces = [
            FileSubject(to, self.here.settings.host, message_id, name).piece(number)
            for name, size in one.spool.attached(message_id).items()
            for number in range(max(-(-size // _PIECE), 1))
        ]
        if pieces:
            self._start(message_id, self._remove(pieces))

    async def _remove(self, pieces: list[str]) -> None:
        """What fails expires."""
        with suppress(NatsError, asyncio.TimeoutError):
            for piece in pieces:
                await self._stream.publish(piece, b"", headers={"Nats-TTL": "1s"})

    @property
    def _stream(self) -> JetStreamContext:
        return self.here.nc.jetstream(timeout=_PATIENCE)

    def are_here(self, ws: Workspace, message: AnyMessage, route: Subject | JobSubject) -> bool:
        """Whether all files of a message that came are in the mailbox; else they are on their way. Raises Refusal."""
        names, message_id = message.attachments or (), message.message_id or ""
        if why := self._wrong.pop(message_id, ""):
            raise Refusal(why)
        if not names or message_id in self._here:
            return True
        files = [FileSubject(_to(route), route.sender, message_id, name) for name in names]
        self._start(message_id, self._fetch(ws, files))
        return False

    def delivered(self, message_id: str) -> None:
        """A message is in the inbox."""
        self._here.discard(message_id)

    async def _fetch(self, ws: Workspace, subjects: list[FileSubject]) -> None:
        left = MOST_ATTACHED
        for subject in subjects:
            try:
                async with self._one:
                    if await asyncio.to_thread(_is_here, ws, subject.name):
                        continue
                    raw = await self._read(subject, left)
                    await asyncio.to_thread(_keep, ws, subject.name, raw)
                    left -= len(raw)
            except Refusal as refusal:
                self._wrong[subject.message] = str(refusal)
                return
            except NotFoundError:
                _log.info("a file of %s is not with the server", subject.message)
                return
            except (TimeoutError, NatsError, WorldError) as error:
                _log.warning("a file of %s cannot be fetched: %s", subject.message, first_line(str(error)))
                return
        self._here.add(subjects[0].message)

    async def _read(self, subject: FileSubject, most: int) -> bytes:
        js = self._stream
        first = await js.get_msg(FILES, subject=subject.piece(0), direct=True)
        said = (first.headers or {}).get(_COUNT, "")
        count = int(said) if said.isdecimal() and len(said) < 6 else 0
        if not 0 < count <= _MOST_PIECES:
            raise Refusal(f"the attached {subject.name} has {first_line(said, 20) or 'no'} pieces")
        parts = [first.data or b""]
        while len(parts) < count:
            numbers = range(len(parts), min(len(parts) + _AT_ONCE, count))
            found = await asyncio.gather(*(js.get_msg(FILES, subject=subject.piece(n), direct=True) for n in numbers))
            parts += [piece.data or b"" for piece in found]
            if sum(map(len, parts)) > most:
                raise Refusal(f"more than {MOST_ATTACHED} bytes are attached to it")
        raw = b"".join(parts)
        if not await asyncio.to_thread(is_named, raw, subject.name):
            raise Refusal(f"the attached {subject.name} has other bytes than its name says")
        return raw

    def _start(self, message_id: str, work: Coroutine[None, None, None]) -> None:
        if message_id in self._tasks:
            work.close()
            return
        task = self._tasks[message_id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(message_id, None))


def _to(route: Subject | JobSubject) -> str:
    """Who may read the files of what goes there."""
    return POOLS if isinstance(route, JobSubject) else route.to


def _is_here(ws: Workspace, name: str) -> bool:
    with suppress(OSError), directory(ws.mailbox, ATTACHMENTS) as folder:
        return is_named(read_file(folder, name, MOST_ATTACHED + 1) or b"?", name)
    return False


def _keep(ws: Workspace, name: str, raw: bytes) -> None:
    with world_errors(f"write to {ws.mailbox / ATTACHMENTS}"):
        with directory(ws.root, ws.mailbox.name) as mailbox, suppress(FileExistsError):
            os.mkdir(ATTACHMENTS, 0o700, dir_fd=mailbox)
            system.sync(mailbox)
        with directory(ws.root, ws.mailbox.name, ATTACHMENTS) as folder:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)  # it has other bytes
            publish(folder, name, raw)
            system.sync(folder)
