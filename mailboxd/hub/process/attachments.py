"""The files that go with messages to other hosts: in pieces in a stream of their own, so that no mail waits for them.

Each host writes files below its own name, and reads those that are for it and those of pools' jobs. A file is with the
server before its message is sent, in the receiver's mailbox before that is delivered, and removed from the server with
the receipt. What the server has lost is sent again with the message.

Each file is sealed anew whenever it is sent, and nothing holds a whole one in memory. What cannot be opened, perhaps
because two copies of it are mixed, is not there yet.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import POOL
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.formats.keys import PublicKey
from mailboxd.formats.mailbox.files import creating, digest_of, directory, write
from mailboxd.formats.mailbox.layout import ATTACHMENTS, Workspace
from mailboxd.formats.protocol.messages import AnyMessage
from mailboxd.host.system import system
from mailboxd.hub.process.api import streams_of
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local
from mailboxd.hub.wire.mail import MOST_ATTACHED, Refusal, digest_in
from mailboxd.hub.wire.names import permits
from mailboxd.hub.wire.sealing import Damaged, Opening, SealError, Sealing
from mailboxd.hub.wire.subjects import FILE_SUBJECTS, FILES, POOLS, FileSubject, JobSubject, Subject
from mailboxd.ledger.reports import opened

_PIECE = 128 << 10
_MOST_PIECES = MOST_ATTACHED // _PIECE + 1
_AT_ONCE = 2
"""Pieces under way at a time: all that mail has to wait for, a second at 2 Mbit/s."""
_HOSTS_AT_ONCE = 8
"""Hosts from which a file is fetched at a time."""
_PATIENCE = 30.0
"""Seconds for a piece."""
_MOST_AGE = 30 * 86_400.0
"""Seconds that the server keeps a file for which no receipt comes."""
_MOST_KNOWN = 10_000
_COUNT = "Mailboxd-Pieces"
_Message = tuple[str, str]
"""The host that sends it, and its id: another host may use the same."""
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
    _here: dict[_Message, str] = field(default_factory=dict)
    """Messages that are to be delivered, and why their files are not in the mailbox; empty = they are."""
    _wrong: dict[_Message, str] = field(default_factory=dict)
    """Messages with a file that can never be sent or fetched, and why."""
    _tasks: dict[_Message, asyncio.Task[None]] = field(default_factory=dict)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _fetching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_HOSTS_AT_ONCE))
    _from: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """One file of each host is fetched at a time: a host that sends many holds up none of the others."""

    # sending

    def are_sent(
        self, one: Local, message: AnyMessage, route: Subject | JobSubject, receivers: Mapping[str, PublicKey]
    ) -> bool:
        """Whether the server has all files of a message, sealed for these hosts; else they are on their way.

        Raises Refusal, WorldError.
        """
        names, message_id = message.attachments or (), message.message_id or ""
        if why := self._wrong.pop((self.here.settings.host, message_id), ""):
            raise Refusal(why)
        if not names or message_id in self._sent:
            return True
        if missing := set(names) - one.spool.attached(message_id).keys():
            raise Refusal(f"{', '.join(sorted(missing))} is attached to it, and gone from the spool")
        own = self.here.settings.host, message_id
        self._start(own, self._send(one, message_id, names, _to(route), receivers))
        return False

    def send_again(self, message_id: str) -> None:
        """The server may have lost the files of a message."""
        self._sent.discard(message_id)

    async def _send(
        self, one: Local, message_id: str, names: tuple[str, ...], to: str, receivers: Mapping[str, PublicKey]
    ) -> None:
        try:
            for name in names:
                subject = FileSubject(to, self.here.settings.host, message_id, name)
                async with self._sending:
                    with one.spool.attachment(message_id, name) as file:
                        await self._send_file(file, subject, Sealing(receivers))
            self._sent.add(message_id)
        except (Refusal, SealError) as refusal:
            self._wrong[self.here.settings.host, message_id] = str(refusal)
        except (NatsError, WorldError, OSError) as error:
            why = f"a file for {to} is not with the server: {first_line(str(error))}"
            self.under_way.wait(message_id, why, to)
            return
        self.here.woken.set()

    async def _send_file(self, file: BinaryIO, subject: FileSubject, sealing: Sealing) -> None:
        """Raises Refusal, SealError, NatsError, OSError."""
        js, hashed = self._stream, hashlib.sha256()
        count = _pieces(os.fstat(file.fileno()).st_size)

        def sealed(numbers: range) -> Iterator[bytes]:
            for number in numbers:
                content, is_last = file.read(_PIECE), number == count - 1
                hashed.update(content)
                if is_last and hashed.hexdigest() != digest_in(subject.name):
                    raise Refusal(f"{subject.name} is attached to it, and was changed in the spool")
                yield sealing.piece(content, is_last=is_last)

        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, count))
            pieces = await asyncio.to_thread(lambda numbers: [*sealed(numbers)], numbers)
            said = {_COUNT: str(count)}
            sending = (
                js.publish(subject.piece(n), piece, headers=said) for n, piece in zip(numbers, pieces, strict=True)
            )
            await asyncio.gather(*sending)

    def remove(self, one: Local, message_id: str, to: str) -> None:
        """Have the files of a message removed from the server: its receipt has come."""
        self._sent.discard(message_id)
        pieces = [
            FileSubject(to, self.here.settings.host, message_id, name).piece(number)
            for name, size in one.spool.attached(message_id).items()
            for number in range(_pieces(size))
        ]
        if pieces:
            self._start((self.here.settings.host, message_id), self._remove(pieces))

    async def _remove(self, pieces: list[str]) -> None:
        """What fails expires."""
        with suppress(NatsError, asyncio.TimeoutError):
            for piece in pieces:
                await self._stream.publish(piece, b"", headers={"Nats-TTL": "1s"})

    @property
    def _stream(self) -> JetStreamContext:
        return streams_of(self.here.nc, _PATIENCE)

    # fetching

    def lacking(self, one: Local, message: AnyMessage, route: Subject | JobSubject) -> str:
        """Why files of a message that came are not in the mailbox yet; they are on their way then. Empty if all are
        there, or if its sender may not have this host fetch any: then it is delivered without them.

        Raises Refusal.
        """
        names, message_id = message.attachments or (), message.message_id or ""
        if why := self._wrong.pop((route.sender, message_id), ""):
            raise Refusal(why)
        why = self._here.get((route.sender, message_id), "its files are on their way") if names else ""
        if not why or not self._may_send_files(one, message):
            return ""
        files = [FileSubject(_to(route), route.sender, message_id, name) for name in names]
        self._start((route.sender, message_id), self._fetch(one.ws, files))
        return why

    def _may_send_files(self, one: Local, message: AnyMessage) -> bool:
        """Whether its sender is one whose work is taken here, or has an attempt of this agent."""
        if permits(self.here.settings.accept, message.from_):
            return True
        with suppress(UnavailableError), opened(one.ws.database) as report:
            executor = report.executor_of(message.attempt_id or "").lower()
            return executor == message.from_.lower() or executor.startswith(POOL)
        return False

    async def is_fetching(self, sender: str, message_id: str, seconds: float) -> bool:
        """Whether files of a message of that host are still on their way after so long."""
        if (task := self._tasks.get((sender, message_id))) is not None:
            await asyncio.wait([task], timeout=seconds)
        return (sender, message_id) in self._tasks

    def delivered(self, sender: str, message_id: str) -> None:
        """A message is in the inbox."""
        self._here.pop((sender, message_id), None)

    async def _fetch(self, ws: Workspace, files: list[FileSubject]) -> None:
        left, message, why = MOST_ATTACHED, (files[0].sender, files[0].message), ""
        for file in files:
            try:
                async with self._from[file.sender], self._fetching:
                    if not await asyncio.to_thread(_is_here, ws, file.name):
                        left -= await self._fetch_file(ws, file, left)
            except Refusal as refusal:
                self._wrong[message] = str(refusal)
                return
            except NotFoundError:
                why = f"the server does not have its file {file.name}"
            except SealError as error:
                why = f"its file {file.name} cannot be opened: {error}"
            except (NatsError, WorldError, OSError) as error:
                why = f"its file {file.name} cannot be fetched: {first_line(str(error))}"
            if why:
                _log.info("a message waits for its files: %s: %s", file.message, why)
                break
        self._here[message] = why
        while len(self._here) > _MOST_KNOWN:
            del self._here[next(iter(self._here))]

    async def _fetch_file(self, ws: Workspace, subject: FileSubject, most: int) -> int:
        """Put a file into the mailbox; returns its size. Raises Refusal, SealError, NatsError, WorldError, OSError."""
        js, arriving = self._stream, _Arriving(subject.name, Opening(self.here.settings.host, self.here.key), most)

        async def pieces(start: int, count: int) -> list[RawStreamMsg]:
            numbers = range(start, min(start + _AT_ONCE, count))
            return await asyncio.gather(*(js.get_msg(FILES, subject=subject.piece(n), direct=True) for n in numbers))

        found = await pieces(0, 1)
        said = (found[0].headers or {}).get(_COUNT, "")
        count = int(said) if said.isdecimal() and len(said) < 6 else 0
        if not 0 < count <= _MOST_PIECES:
            raise Damaged(f"it has {first_line(said, 20) or 'no'} pieces")
        with _folder(ws) as folder:
            with creating(folder, subject.name) as file:
                await asyncio.to_thread(arriving.take, file, found)
                for start in range(1, count, _AT_ONCE):
                    await asyncio.to_thread(arriving.take, file, await pieces(start, count))
                arriving.end()
                await asyncio.to_thread(system.sync, file)
            system.sync(folder)
        return arriving.size

    def _start(self, message: _Message, work: Coroutine[None, None, None]) -> None:
        if message in self._tasks:
            work.close()
            return
        task = self._tasks[message] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(message, None))


@dataclass(slots=True)
class _Arriving:
    """A file that is written as its pieces come."""

    name: str
    opening: Opening
    most: int
    size: int = 0
    _hashed: hashlib._Hash = field(default_factory=hashlib.sha256)

    def take(self, file: int, pieces: list[RawStreamMsg]) -> None:
        """Raises Refusal, SealError, OSError."""
        for piece in pieces:
            content = self.opening.piece(piece.data or b"")
            self.size += len(content)
            if self.size > self.most:
                raise Refusal(f"more than {MOST_ATTACHED} bytes are attached to it")
            self._hashed.update(content)
            write(file, content)

    def end(self) -> None:
        """Raises Refusal, SealError."""
        if not self.opening.is_over:
            raise Damaged("it was cut on its way")
        if self._hashed.hexdigest() != digest_in(self.name):
            raise Refusal(f"the attached {self.name} has other bytes than its name says")


def _pieces(size: int) -> int:
    return max(-(-size // _PIECE), 1)


def _to(route: Subject | JobSubject) -> str:
    """Who may read the files of what goes there."""
    return POOLS if isinstance(route, JobSubject) else route.to


def _is_here(ws: Workspace, name: str) -> bool:
    with suppress(OSError), directory(ws.mailbox, ATTACHMENTS) as folder:
        found = digest_of(folder, name, MOST_ATTACHED)
        return found is not None and found[0] == digest_in(name)
    return False


@contextmanager
def _folder(ws: Workspace) -> Iterator[int]:
    """The directory of the files that came, which is created if it is missing. Raises OSError."""
    with directory(ws.root, ws.mailbox.name) as mailbox, suppress(FileExistsError):
        os.mkdir(ATTACHMENTS, 0o700, dir_fd=mailbox)
        system.sync(mailbox)
    with directory(ws.root, ws.mailbox.name, ATTACHMENTS) as folder:
        yield folder
