"""What a message costs on its way to another daemon: by a file, by PostgreSQL, by NATS JetStream, in one run.

    python -m bench.scale [--messages 300] [--size 1024]

Each way has a sender and a receiver, two processes on one machine. Measured per message: until the sender may forget it
(it is durable where it was sent to), and until the receiver has it in its hands; then how many go through per second
when the sender hands over 32 at a time. The servers are started here, in a directory of their own, with their own
durability: for PostgreSQL a commit that is flushed, for JetStream an acknowledgement, which in the version that Debian
has comes before any fsync.

`pip install 'psycopg[binary]' nats-py`, and the Debian packages postgresql and nats-server: a way that is not there is
left out. Nothing of mailboxd depends on any of them (docs/scale.md).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import selectors
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mailboxd.host.wakeup import Wake
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.watcher import Watcher

BATCH = 32
_STAMP = struct.Struct("!q")
_PROCESSES = get_context("spawn")

Receive = Callable[[bytes], None]
Send = Callable[[Sequence[bytes]], None]


def message(size: int) -> bytes:
    """A message that says when it was sent, on the clock that all processes of a machine share."""
    return _STAMP.pack(time.monotonic_ns()) + b"x" * (size - _STAMP.size)


class Tally:
    """What the receiver does with a message: notes how long it was on its way. Tells the sender when it has all."""

    def __init__(self, count: int, said: Connection) -> None:
        self._left = count
        self._said = said
        self._ages: list[float] = []

    def __call__(self, raw: bytes) -> None:
        self._ages.append((time.monotonic_ns() - _STAMP.unpack(raw[: _STAMP.size])[0]) / 1e6)
        self._left -= 1
        if not self._left:
            self._said.send(self._ages)

    @property
    def is_full(self) -> bool:
        return self._left <= 0


# ---------------------------------------------------------------- by a file


def receive_files(where: str, count: int, said: Connection) -> None:
    """As the daemon does: the watcher says "look", a scan of the inbox finds what there is."""
    ws, tally, selector = Workspace(Path(where)), Tally(count, said), selectors.DefaultSelector()
    wake = Wake(selector, ws.state)
    watcher = Watcher(ws, wake)
    watcher.start(time.monotonic())
    said.send("ready")
    archive = ws.archive
    while not tally.is_full:
        wake.wait(1)
        for path in sorted(ws.inbox.iterdir()):
            if not path.name.startswith("."):
                tally(path.read_bytes())
                path.rename(archive / path.name)
    watcher.close()
    wake.close()


class Files:
    name = "file: write, fsync, rename, fsync"
    receive = staticmethod(receive_files)

    def __init__(self, root: Path) -> None:
        self.where = str(root / "peer")
        Workspace.create(Path(self.where))
        self._number = 0

    def send(self, raws: Sequence[bytes]) -> None:
        inbox = Workspace(Path(self.where)).inbox
        for raw in raws:
            self._number += 1
            hidden = inbox / f".m{self._number:06}"
            hidden.write_bytes(raw)
            hidden.rename(inbox / f"m{self._number:06}.md")

    def close(self) -> None:
        pass


# ---------------------------------------------------------------- by PostgreSQL


def receive_rows(where: str, count: int, said: Connection) -> None:
    """LISTEN wakes it, a query in the order of the rows finds what there is; what was read is committed as read."""
    import psycopg

    tally = Tally(count, said)
    with psycopg.connect(where, autocommit=True) as db:
        db.execute("LISTEN mail")
        said.send("ready")
        while not tally.is_full:
            list(db.notifies(timeout=1, stop_after=1))
            taken = db.execute("UPDATE mail SET taken = true WHERE NOT taken RETURNING id, body").fetchall()
            for _, body in sorted(taken):
                tally(bytes(body))


class Rows:
    name = "PostgreSQL: commit, NOTIFY"
    receive = staticmethod(receive_rows)

    def __init__(self, root: Path) -> None:
        import psycopg

        (bin_,) = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
        self._data, self._bin = root / "pg", bin_
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._data.mkdir()
        if self._as:
            root.chmod(0o755)
            shutil.chown(self._data, "postgres", "postgres")
        options = f"-c listen_addresses= -c unix_socket_directories={self._data}"
        self._call("initdb", "-D", str(self._data), "-A", "trust", "-U", "bench")
        self._call("pg_ctl", "-D", str(self._data), "-o", options, "-w", "-l", str(self._data / "log"), "start")
        self.where = f"host={self._data} user=bench dbname=postgres"
        self._db = psycopg.connect(self.where)
        self._db.execute("CREATE TABLE mail (id bigserial PRIMARY KEY, body bytea, taken boolean DEFAULT false)")
        self._db.execute("CREATE INDEX untaken ON mail (id) WHERE NOT taken")
        self._db.commit()

    def _call(self, program: str, *words: str) -> None:
        argv = [*self._as, str(self._bin / program), *words]
        subprocess.run(argv, check=True, cwd="/", stdout=subprocess.DEVNULL)

    def send(self, raws: Sequence[bytes]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany("INSERT INTO mail (body) VALUES (%s)", [(raw,) for raw in raws])
            cursor.execute("NOTIFY mail")
        self._db.commit()

    def close(self) -> None:
        self._db.close()
        self._call("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")


# ---------------------------------------------------------------- by NATS


def receive_stream(where: str, count: int, said: Connection) -> None:
    """A durable consumer; each message is acknowledged."""
    import nats

    async def receive() -> None:
        tally = Tally(count, said)
        client = await nats.connect(where)
        found = await client.jetstream().subscribe("mail.peer", durable="peer", manual_ack=True)
        said.send("ready")
        while not tally.is_full:
            got = await found.next_msg(timeout=60)
            tally(got.data)
            await got.ack()
        await client.close()

    asyncio.run(receive())


class Stream:
    name = "NATS JetStream: acknowledged"
    receive = staticmethod(receive_stream)

    def __init__(self, root: Path) -> None:
        import nats

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.where = f"nats://127.0.0.1:{port}"
        argv = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(root / "js")]
        self._server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_it_listens(port)
        self._loop = asyncio.new_event_loop()
        self._client: Any = self._loop.run_until_complete(nats.connect(self.where))
        self._stream = self._client.jetstream()
        self._loop.run_until_complete(self._stream.add_stream(name="mail", subjects=["mail.*"]))

    def send(self, raws: Sequence[bytes]) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(self._stream.publish("mail.peer", raw) for raw in raws))

        self._loop.run_until_complete(all_of_them())

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._server.terminate()
        self._server.wait()


def until_it_listens(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        threading.Event().wait(0.05)
    raise OSError("nats-server does not listen")


# ---------------------------------------------------------------- measuring


def measure(way: Any, count: int, size: int) -> None:
    ours, theirs = _PROCESSES.Pipe()
    receiver = _PROCESSES.Process(target=way.receive, args=(way.where, 2 * count, theirs))
    receiver.start()
    assert ours.recv() == "ready"
    sent = []
    for _ in range(count):
        raw = message(size)
        begun = time.monotonic_ns()
        way.send([raw])
        sent.append((time.monotonic_ns() - begun) / 1e6)
        threading.Event().wait(0.005)  # so that each finds the receiver asleep
    since = time.monotonic()
    for first in range(0, count, BATCH):
        way.send([message(size) for _ in range(min(BATCH, count - first))])
    ages = ours.recv()[:count]
    rate = count / (time.monotonic() - since)
    receiver.join()
    shown = (statistics.median(sent), quantile(sent), statistics.median(ages), quantile(ages))
    print(f"{way.name:34} " + " ".join(f"{value:8.2f}" for value in shown) + f" {rate:9.0f}", flush=True)


def quantile(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale")
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--size", type=int, default=1024)
    words = parser.parse_args()
    print(f"{words.messages} messages of {words.size} bytes, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'milliseconds':34} {'sent p50':>8} {'p99':>8} {'there p50':>8} {'p99':>7} {'per second':>9}")
    for kind in (Files, Rows, Stream):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
            try:
                way = kind(Path(directory))
            except (ImportError, OSError, ValueError, subprocess.CalledProcessError) as error:
                print(f"{kind.name:34} left out: {error}", file=sys.stderr)
                continue
            try:
                measure(way, words.messages, words.size)
            finally:
                way.close()


if __name__ == "__main__":
    main()
