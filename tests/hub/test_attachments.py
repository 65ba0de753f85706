"""Large results and files made for a task go along to another host whole, and nothing of them stays under way."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from mailboxd.formats.keys import PrivateKey
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.formats.user.state import UserState
from mailboxd.host.clock import ManualClock
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.files.view import HubView
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local
from mailboxd.hub.wire.mail import MOST_ATTACHED, Refusal
from mailboxd.hub.wire.subjects import FILES, Subject
from mailboxd.perform.hub_mail import AttachedFiles, HubMail
from tests.cli.stage import make
from tests.e2e.support import eventually, task
from tests.hub.conftest import Joined
from tests.hub.farm import count, free_port
from tests.hub.test_pools import serves, until_served
from tests.mcp.test_daemon import call, listens, token_of

LARGE = "".join(f"line {number} of a large result\n" for number in range(60_000))
WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "The outcome."}}
WRITES: dict[str, Any] = {"mailbox": "true", "default": {"reply": LARGE}}
BY_DIGEST = f"mailbox/attachments/{hashlib.sha256(LARGE.strip().encode()).hexdigest()}.md"


@pytest.mark.slow
@pytest.mark.parametrize("agent", [pytest.param("beta.writer", marks=pytest.mark.soak), "pool:reviewer"])
def test_a_large_result_goes_whole_to_another_host_and_back(joined: Joined, agent: str) -> None:
    farm = joined({"alpha": {"main": {"mailbox": "true", "rules": [{"reply": LARGE}]}}, "beta": {"writer": WRITES}})
    alpha, beta = farm["alpha"], farm["beta"]
    serves(beta, "writer")
    farm.start()
    until_served(farm, "beta")
    main, writer = alpha["main"], beta["writer"]
    first = {"agent": "self", "description": "Write much", "expected_output": "Much."}
    then = {"agent": agent, "description": "Write more", "expected_output": "More.", "depends_on": ["first"]}
    main.drop("go.md", task("job", plan={"first": first, "then": then}))
    main.until("job")
    for here in (main, writer):  # what the second was told of the first, and its own result
        assert (here.root / BY_DIGEST).read_text().strip() == LARGE.strip()
    assert f"is in the file {BY_DIGEST}" in main.task("job.then")["result"]
    farm.at_rest()
    assert not beta.spooled("files")
    assert not alpha.spooled("files")
    eventually(lambda: count(alpha, FILES) == 0, 20, farm.last_words)


@pytest.mark.slow
def test_a_file_that_an_agent_makes_and_records_arrives_on_the_other_host(joined: Joined) -> None:
    slow = {"mailbox": "true", "default": {"reply": "The figures of May.", "delay": 8}}
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": slow}})
    main, writer, port = farm["alpha"]["main"], farm["beta"]["writer"], free_port()
    writer.config.write_text(writer.config.read_text() + f"mcp: {{port: {port}}}\n")
    farm.start()
    eventually(lambda: listens(port), 40, farm.last_words)
    made = writer.root / "figures.csv"
    made.write_bytes(random.Random(1).randbytes(3 << 20))
    plan = {"x": {"agent": "beta.writer", "description": "Figures", "expected_output": "A file."}}
    main.drop("go.md", task("job", plan=plan))
    eventually(lambda: writer.phase("job.x") == "executing", 30, farm.last_words)
    said = {"task": "job.x", "kind": "other", "path": "figures.csv", "summary": "The figures"}
    assert call(port, token_of(writer, "executor:writer"), "task_record_artifact", **said)["sha256"] == digest(made)
    main.until("job")
    there = f"mailbox/attachments/{digest(made)}.csv"
    assert f"The figures: {there}" in main.task("job.x")["result"]
    assert (main.root / there).read_bytes() == made.read_bytes()
    farm.at_rest()


def attached(tmp_path: Path) -> AttachedFiles:
    ws = make(tmp_path / "ws").ws
    Spool(ws).create()
    return AttachedFiles(ws, "msg_1", "beta")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_made_for_a_task_goes_along_as_it_was_recorded(tmp_path: Path) -> None:
    files = attached(tmp_path)
    made = files.ws.root / "out" / "Report.PDF"
    made.parent.mkdir()
    made.write_bytes(b"%PDF")
    name = f"{digest(made)}.pdf"
    assert files.add_artifact("out/Report.PDF", digest(made)) == f"mailbox/attachments/{name}"
    assert files.names == (name,)
    with Spool(files.ws).attachment("msg_1", name) as attached_file:
        assert attached_file.read() == b"%PDF"


def test_a_file_that_cannot_go_along_is_named_with_the_reason(tmp_path: Path) -> None:
    files = attached(tmp_path)
    changed, large, link = (files.ws.root / name for name in ("changed", "large", "link"))
    changed.write_bytes(b"after")
    large.touch()
    with large.open("wb") as file:
        file.truncate(MOST_ATTACHED + 1)
    link.symlink_to("/etc/passwd")
    assert "changed on the host beta: it was changed" in files.add_artifact("changed", "0" * 64)
    assert "link on the host beta: it was changed" in files.add_artifact("link", digest(link))
    assert "large on the host beta: 64 MiB" in files.add_artifact("large", "0" * 64)
    assert "missing on the host beta" in files.add_artifact("missing", "0" * 64)
    assert files.names == ()


def test_a_file_that_changes_while_it_is_copied_does_not_go_along(tmp_path: Path) -> None:
    files = attached(tmp_path)
    made = files.ws.root / "made"
    made.write_bytes(b"as recorded")
    assert "it was changed" in files.add_artifact("made", "0" * 64)
    assert Spool(files.ws).attached("msg_1") == {}
    with pytest.raises(ZeroDivisionError):
        Spool(files.ws).attach("msg_1", "a.md", (bytes([1 // number]) for number in (1, 0)))
    assert Spool(files.ws).attached("msg_1") == {}


class Pieces:
    """The server's store of pieces; what is done to it is up to the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.count = folder, 0, ""

    async def publish(self, subject: str, raw: bytes, headers: dict[str, str]) -> None:
        (self.folder / subject.rpartition(".")[2]).write_bytes(raw)
        self.count = headers["Mailboxd-Pieces"]

    async def get_msg(self, stream: str, *, subject: str, direct: bool) -> RawStreamMsg:
        try:
            raw = (self.folder / subject.rpartition(".")[2]).read_bytes()
        except FileNotFoundError:
            raise NotFoundError from None
        return RawStreamMsg(data=raw, headers={"Mailboxd-Pieces": self.count})


class Way:
    """From the spool of beta into a mailbox of alpha, over a store of pieces."""

    def __init__(self, tmp_path: Path, content: Iterable[bytes], name: str) -> None:
        self.sent, self.into = (make(tmp_path / folder).ws for folder in ("from", "to"))
        self.name, self.spool = name, Spool(self.sent)
        self.spool.create()
        self.spool.attach("msg_1", name, content)
        self.store = tmp_path / "store"
        self.store.mkdir()
        self.pieces, key = Pieces(self.store), PrivateKey.new()
        self.receivers = {"alpha": key.public}
        here: Any = SimpleNamespace(
            settings=SimpleNamespace(host="alpha", accept=("*",)),
            key=key,
            nc=SimpleNamespace(jetstream=lambda **_: self.pieces),
            woken=asyncio.Event(),
        )
        self.files = Attachments(here, UnderWay(ManualClock()))
        self.message = parse_message(
            task("job", sender="beta.writer", to="alpha.main", message_id="msg_1", attachments=name).encode(), "m"
        ).message

    async def send(self) -> None:
        """Raises Refusal."""
        self.files.send_again("msg_1")
        route, one = Subject("alpha", "mail", "beta"), Local(self.sent, "writer", self.spool)
        while not self.files.are_sent(one, self.message, route, self.receivers):
            await asyncio.gather(*self.files._tasks.values())

    async def fetch(self) -> str:
        """Why it is not there. Raises Refusal."""
        route, one = Subject("alpha", "mail", "beta"), Local(self.into, "main", Spool(self.into))
        self.files.lacking(one, self.message, route)
        await asyncio.gather(*self.files._tasks.values())
        return self.files.lacking(one, self.message, route)

    @property
    def kept(self) -> list[str]:
        """All that is in the receiver's directory of files."""
        folder = self.into.mailbox / "attachments"
        return sorted(os.listdir(folder)) if folder.exists() else []


def content(size: int) -> tuple[list[bytes], str]:
    """Random bytes, and the name that they are attached under."""
    raw = random.Random(1).randbytes(size)
    return [raw], f"{hashlib.sha256(raw).hexdigest()}.bin"


@pytest.mark.slow
def test_a_file_of_60_mb_is_in_memory_nowhere(tmp_path: Path) -> None:
    piece, count = bytes(range(256)) * 4096, 60
    name = f"{hashlib.sha256(piece * count).hexdigest()}.bin"
    tracemalloc.start()

    async def goes() -> None:
        way = Way(tmp_path, (piece for _ in range(count)), name)
        await way.send()
        assert not await way.fetch()
        assert way.kept == [name]
        assert (way.into.mailbox / "attachments" / name).stat().st_size == 60 << 20

    try:
        asyncio.run(goes())
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def changed_at(store: Path, number: int) -> None:
    raw = bytearray((store / str(number)).read_bytes())
    raw[-1] ^= 1
    (store / str(number)).write_bytes(raw)


WRONG: dict[str, Callable[[Path], object]] = {
    "missing": lambda store: (store / "0").unlink(),
    "cut": lambda store: (store / "2").unlink(),
    "changed": lambda store: changed_at(store, 1),
    "moved": lambda store: (store / "1").write_bytes((store / "2").read_bytes()),
    "empty": lambda store: (store / "2").write_bytes(b""),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_file_that_is_not_whole_at_the_server_is_waited_for_and_nothing_of_it_is_kept(
    tmp_path: Path, how: str
) -> None:
    raw, name = content(300_000)

    async def goes() -> None:
        way = Way(tmp_path, raw, name)
        await way.send()
        WRONG[how](way.store)
        assert name in await way.fetch()
        assert way.kept == []
        await way.send()
        await way.fetch()
        assert way.kept == [name]

    asyncio.run(goes())


def test_two_copies_of_a_file_are_not_mixed(tmp_path: Path) -> None:
    """It is sent again while it is read, or the server has parts of an older copy."""
    raw, name = content(300_000)

    async def goes() -> None:
        way = Way(tmp_path, raw, name)
        await way.send()
        older = (way.store / "1").read_bytes()
        await way.send()
        (way.store / "1").write_bytes(older)
        assert "cannot be opened" in await way.fetch()
        assert way.kept == []

    asyncio.run(goes())


def test_a_file_that_was_changed_in_the_spool_fails_its_message(tmp_path: Path) -> None:
    raw, name = content(300_000)

    async def goes() -> None:
        way = Way(tmp_path, raw, name)
        (path,) = way.sent.state.glob("hub/files/msg_1/*")
        path.write_bytes(raw[0][:-1] + b"?")
        with pytest.raises(Refusal, match="was changed in the spool"):
            await way.send()

    asyncio.run(goes())


def test_files_are_fetched_only_for_senders_that_may_have_them_fetched(tmp_path: Path) -> None:
    """It is delivered without them: its host is one whose work is not taken, and it has no attempt of this agent."""
    raw, name = content(10)

    async def goes() -> None:
        way = Way(tmp_path, raw, name)
        await way.send()
        way.files.here.settings.accept = ("gamma.*",)
        assert not await way.fetch()
        assert way.kept == []

    asyncio.run(goes())


def test_nothing_goes_along_with_a_message_that_the_hub_does_not_carry(tmp_path: Path) -> None:
    ws = make(tmp_path / "ws").ws
    assert HubMail(HubView(ws, "main", UserState(tmp_path))).attached("writer", "msg_1") is None
