"""Between a daemon and the hub process: directories in a workspace, and what is known of agents on other hosts.

    .mailboxd/hub/new/<message_id>.md          from the daemon, not yet stored by the server
    .mailboxd/hub/sent/<message_id>.md         stored by the server; no receipt yet
    .mailboxd/hub/files/<message_id>/          the files that go with it, each named by its SHA-256
    .mailboxd/hub/receipts/<message_id>.json   the receiver's signed receipt, until the daemon has recorded it
    .mailboxd/hub/keys/<message_id>            the key of the host that it is for, from the first time that it was sent
    .mailboxd/hub/forgotten/<message_id>.json  nothing more will be heard of it from the host that took it, until the
                                               daemon has recorded that
    .mailboxd/hub/holders/<message_id>.json    which host has a job of a pool; the job stays in sent/ until it is over

A message is in `new` or `sent` until its receipt is durable. Everything may be repeated. The hub process writes beside
hub.yaml what the daemons of all workspaces need to know; without peers.json there is no hub:

    peers.json    the agents and pools of all hosts, when they have changed
    heard.json    the problem, and when each host was last heard from, every minute
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import BinaryIO

from mailboxd.formats.mailbox.files import (
    creating,
    directory,
    lstat,
    publish,
    read_file,
    reading,
    replace,
    world_errors,
    write,
)
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.system import system
from mailboxd.hub.wire.receipts import Receipt

NEW, SENT, RECEIPTS, HOLDERS, ATTACHED = "new", "sent", "receipts", "holders", "files"
KEYS, FORGOTTEN = "keys", "forgotten"
_FOLDER = "hub"
_LARGEST = 8 << 20


@dataclass(frozen=True, slots=True)
class Spool:
    """The directories of one workspace. Every method raises WorldError."""

    ws: Workspace

    def create(self) -> None:
        """Create the directories that are missing."""
        with world_errors(f"create {self.ws.state / _FOLDER}"):
            for names in ((), *((place,) for place in (NEW, SENT, RECEIPTS, HOLDERS, ATTACHED, KEYS, FORGOTTEN))):
                path = (self.ws.state.name, _FOLDER, *names)
                with directory(self.ws.root, *path[:-1]) as above, suppress(FileExistsError):
                    os.mkdir(path[-1], 0o700, dir_fd=above)
                    system.sync(above)

    def put(self, message_id: str, raw: bytes) -> None:
        """Have a message sent; nothing if it is under way, or its receipt is there."""
        self.create()  # the hub process may not have seen the workspace yet
        if not any(self._has(place, message_id) for place in (RECEIPTS, SENT)):
            self._publish(NEW, _file(message_id), raw)

    def attach(self, message_id: str, name: str, content: Iterable[bytes]) -> None:
        """Have a file go with a message that will be put; nothing if reading its content raises an error."""
        self.create()
        with world_errors(f"attach a file to {message_id}"):
            with self._open(ATTACHED) as above, suppress(FileExistsError):
                os.mkdir(message_id, 0o700, dir_fd=above)
                system.sync(above)
            with self._open(f"{ATTACHED}/{message_id}") as folder:
                with creating(folder, name) as file:
                    for piece in content:
                        write(file, piece)
                system.sync(folder)

    def attached(self, message_id: str) -> dict[str, int]:
        """The files that go with a message, and their sizes."""
        place = self.ws.state / _FOLDER / ATTACHED / message_id
        with world_errors(f"read {place}"), _if_there(), os.scandir(place) as entries:
            files = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
            return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in files}
        return {}

    def attachment(self, message_id: str, name: str) -> BinaryIO:
        """A file that goes with a message, open for reading."""
        place = f"{ATTACHED}/{message_id}"
        with world_errors(f"read {place}/{name}"), self._open(place) as folder, reading(folder, name) as file:
            return os.fdopen(os.dup(file), "rb")

    def _detach(self, message_id: str) -> None:
        with world_errors(f"remove {ATTACHED}/{message_id}"), _if_there(), self._open(ATTACHED) as above:
            with self._open(f"{ATTACHED}/{message_id}") as folder, os.scandir(folder) as entries:
                for name in [entry.name for entry in entries]:
                    os.unlink(name, dir_fd=folder)
            os.rmdir(message_id, dir_fd=above)

    def stored(self, message_id: str) -> None:
        """The server has stored a message."""
        self._move(message_id, NEW, SENT)

    def again(self, message_id: str) -> None:
        """The server has lost a message: send it again."""
        self._move(message_id, SENT, NEW)

    def settle(self, receipt: Receipt) -> None:
        """Keep the receipt of a message, then give the message up."""
        self._publish(RECEIPTS, f"{receipt.message_id}.json", receipt.to_bytes())
        for place in (NEW, SENT):
            self._remove(place, _file(receipt.message_id))
        self._remove(HOLDERS, f"{receipt.message_id}.json")
        self._remove(KEYS, receipt.message_id)
        self._detach(receipt.message_id)

    def pin(self, message_id: str, key: str) -> str:
        """The key of the host that a message was first sent to; it is this one if it has none yet."""
        if (pinned := self._read(KEYS, message_id)) is not None:
            return pinned.decode(errors="replace")
        with world_errors(f"write to {KEYS}"), self._open(KEYS) as fd, suppress(FileExistsError):
            publish(fd, message_id, key.encode(), durable=False)  # a power cut only has it pinned again
        return key

    def forget(self, message_id: str, forgotten: Forgotten) -> None:
        """Nothing more will be heard of a message from the host that took it."""
        self._publish(FORGOTTEN, f"{message_id}.json", forgotten.to_bytes())

    def forgotten(self) -> dict[str, Forgotten]:
        """What is to be recorded as forgotten, by message id."""
        if not (self.ws.state / _FOLDER / FORGOTTEN).exists():
            return {}  # the hub process is of an earlier version
        found = {name: Forgotten.parse(self._read(FORGOTTEN, f"{name}.json") or b"") for name in self.names(FORGOTTEN)}
        return {name: one for name, one in found.items() if one is not None}

    def recorded_forgotten(self, message_id: str) -> None:
        """The daemon has recorded that."""
        self._remove(FORGOTTEN, f"{message_id}.json")

    def taken(self, receipt: Receipt, attempt: str) -> None:
        """A host has taken a job of a pool; the daemon gets the receipt, and the job stays."""
        holder = Holder(receipt.sender, receipt.at, attempt)
        with world_errors("write to holders"), self._open(HOLDERS) as fd:
            replace(fd, f"{receipt.message_id}.json", holder.to_bytes(), lambda: True)
        self._publish(RECEIPTS, f"{receipt.message_id}.json", receipt.to_bytes())

    def holder(self, message_id: str) -> Holder | None:
        """The host that has a job of a pool; None if unknown."""
        return Holder.parse(self._read(HOLDERS, f"{message_id}.json") or b"")

    def recorded(self, message_id: str) -> None:
        """The daemon has recorded a receipt."""
        self._remove(RECEIPTS, f"{message_id}.json")

    def names(self, place: str) -> list[str]:
        """The ids of the messages in a place, oldest first; none until the spool was created."""
        with (
            world_errors(f"read {self.ws.state / _FOLDER / place}"),
            _if_there(),
            self._open(place) as fd,
            os.scandir(fd) as entries,
        ):
            names = [entry.name for entry in entries]
            return sorted(name.rpartition(".")[0] for name in names if not name.startswith("."))
        return []

    def message(self, message_id: str) -> bytes | None:
        """The bytes of a message without receipt; None if there is none."""
        for place in (SENT, NEW):
            if (raw := self._read(place, _file(message_id))) is not None:
                return raw
        return self._read(SENT, _file(message_id))  # it may have moved in between

    def receipt(self, message_id: str) -> Receipt | None:
        return Receipt.parse(self._read(RECEIPTS, f"{message_id}.json") or b"")

    def waiting_since(self) -> float | None:
        """The time of the oldest message without receipt, in seconds since 1970."""
        oldest: list[float] = []
        for place in (NEW, SENT):
            for name in self.names(place)[:1]:  # ids are ordered by time
                with world_errors(f"read {place}"), self._open(place) as fd:
                    status = lstat(fd, _file(name))
                    oldest += [status.st_mtime] if status is not None else []
        return min(oldest, default=None)

    def _open(self, place: str) -> AbstractContextManager[int]:
        return directory(self.ws.root, self.ws.state.name, _FOLDER, *place.split("/"))

    def _has(self, place: str, message_id: str) -> bool:
        ending = "json" if place == RECEIPTS else "md"
        with world_errors(f"read {place}"), self._open(place) as fd:
            return lstat(fd, f"{message_id}.{ending}") is not None

    def _publish(self, place: str, name: str, raw: bytes) -> None:
        """Create a file, unless it is there."""
        with world_errors(f"write to {self.ws.state / _FOLDER / place}"), self._open(place) as fd:
            with suppress(FileExistsError):
                publish(fd, name, raw)
            system.sync(fd)

    def _move(self, message_id: str, source: str, target: str) -> None:
        # not synced: a power cut only has it sent again
        name = _file(message_id)
        with world_errors(f"move {name}"), self._open(source) as old, self._open(target) as new, _if_there():
            os.rename(name, name, src_dir_fd=old, dst_dir_fd=new)

    def _remove(self, place: str, name: str) -> None:
        with world_errors(f"remove {place}/{name}"), self._open(place) as fd, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)

    def _read(self, place: str, name: str, most: int = _LARGEST) -> bytes | None:
        with world_errors(f"read {place}/{name}"), self._open(place) as fd:
            return read_file(fd, name, most)


_if_there = partial(suppress, FileNotFoundError)


def _file(message_id: str) -> str:
    return f"{message_id}.md"


# Reports of the hub process to the daemon


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Work of an attempt that another host had taken, and of which nothing more will be heard."""

    task: str
    attempt: str
    host: str
    why: str = ""
    """Why; empty = the host knows of it no more, as it was restored."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Forgotten | None:
        try:
            found = json.loads(raw)
            return cls(str(found["task"]), str(found["attempt"]), str(found["host"]), str(found.get("why", "")))
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True, slots=True)
class Holder:
    """The host that has a job of a pool, since when, and for which attempt of the sender."""

    host: str
    at: str
    attempt: str

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Holder | None:
        try:
            found = json.loads(raw)
            return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})
        except (ValueError, TypeError):
            return None
