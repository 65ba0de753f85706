"""Three hosts that also serve a pool, three servers, and everything killed or frozen at random.

The witness of what was done is the agents' own record of their turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nats.errors import Error as NatsError

from mailboxd.formats.keys import signed
from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.pools import Claim, JobStage
from mailboxd.hub.wire.receipts import Receipt, ReceiptStage, digest
from mailboxd.hub.wire.sealing import Sealing, seal
from mailboxd.hub.wire.signed_json import signed_json
from mailboxd.hub.wire.subjects import FileSubject, JobSubject
from tests.e2e.support import eventually, reply, task
from tests.hub.farm import Farm, Host, connected
from tests.hub.test_pools import freeze, held, kill, serves, until_served

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}.", "delay": 0.3}}
NAMES = ("alpha", "beta", "gamma")
SLOTS = 2
BEYOND_LEASE = (40.0, 50.0)


def plan(host: str, count: int) -> dict[str, Any]:
    """Work for the agents of the other hosts and for the pool, in turn; then work here that needs all of it."""
    agents = [*(f"{name}.worker" for name in NAMES if name != host), "pool:reviewer"]
    given: dict[str, Any] = {f"x{number}": {"agent": agents[number % 3]} for number in range(count)}
    given["then"] = {"agent": "self", "depends_on": [*given]}
    return {name: {"description": name, "expected_output": "One line.", **one} for name, one in given.items()}


class Chaos:
    """What happens to a farm. A host that falls silent comes back later; all else is over at once."""

    def __init__(self, farm: Farm, seed: int) -> None:
        self.farm, self.chance = farm, random.Random(seed)
        self.silent: dict[str, tuple[float, Callable[[], None]]] = {}
        """Until when a host is silent, and what brings it back."""
        self.silences = 0

    def a_host(self) -> Host:
        return self.farm[self.chance.choice([name for name in NAMES if name not in self.silent])]

    def a_daemon_dies(self) -> None:
        worker = self.a_host()["worker"]
        worker.kill()
        worker.start(wait=False)

    def a_hub_process_dies(self) -> None:
        host = self.a_host()
        host.kill_hub()
        host.start_hub()

    def a_server_dies(self) -> None:
        server = self.chance.choice(self.farm.servers)
        server.kill()
        server.start()

    def a_host_falls_silent(self) -> None:
        if not self.silent:
            self.fall_silent(self.a_host(), frozen=self.chance.random() < 0.5)

    def fall_silent(self, host: Host, *, frozen: bool) -> None:
        """It freezes or dies with what it holds, for longer than a lease."""

        def back() -> None:
            if frozen:
                freeze(host, signal.SIGCONT)
            else:
                host["worker"].start(wait=False)
                host.start_hub()

        (freeze if frozen else kill)(host)
        self.silent[host.name] = (time.monotonic() + self.chance.uniform(*BEYOND_LEASE), back)
        self.silences += 1

    def come_back(self, *, wait: bool = False) -> None:
        for name, (until, back) in [*self.silent.items()]:
            left = until - time.monotonic()
            if wait:
                threading.Event().wait(max(left, 0))
            if wait or left <= 0:
                back()
                del self.silent[name]

    def the_stores_are_lost(self) -> None:
        """Those of all servers at once: an old copy comes back, if there is one, or nothing."""
        places = [(server.folder / "store", server.folder / "copy") for server in self.farm.servers]
        for server in self.farm.servers:
            server.kill()
        is_rewound = all(copy.exists() for _, copy in places)
        for store, copy in places:
            if is_rewound:
                shutil.rmtree(store)
                copy.rename(store)
            else:
                store.rename(copy)
        for server in self.farm.servers:
            server.start()


def survives(farm: Farm, chaos: Chaos, roots: int, children: int, calamities: list[Callable[[], None]]) -> None:
    """Give out work on all hosts meanwhile; everything has to end as if nothing had been."""
    for name in NAMES:
        serves(farm[name], "worker", SLOTS)
    farm.start(*NAMES)
    until_served(farm, *NAMES)
    pause = threading.Event()
    for number in range(max(roots, len(calamities))):
        if number < roots:
            for name in NAMES:
                work = task(f"{name}{number}", plan=plan(name, children))
                farm[name]["worker"].drop(f"{number}.md", work)
        if number < len(calamities):
            calamities[number]()
        pause.wait(chaos.chance.uniform(0.2, 1.0))
        chaos.come_back()
    chaos.come_back(wait=True)
    try:
        for name in NAMES:
            for number in range(roots):
                farm[name]["worker"].until(f"{name}{number}", seconds=240)
    except AssertionError as stuck:
        raise AssertionError(farm.last_words()) from stuck


def every_job_was_done_once(farm: Farm, chaos: Chaos, roots: int, children: int, *, stores_lost: bool) -> None:
    """Each has one result, and only a silent host's were begun more often."""
    farm.at_rest(*NAMES)
    turns = [entry for name in NAMES for entry in farm[name].executions()]
    done = Counter(entry["task_id"] for entry in turns if entry["kind"] in ("task", "work"))
    names = [f"{name}{number}" for name in NAMES for number in range(roots)]
    given = {f"{name}.x{number}": number % 3 == 2 for name in names for number in range(children)}
    assert done.keys() == given.keys() | {f"{name}.then" for name in names}
    again = {name: count for name, count in done.items() if count > 1}
    assert all(given.get(name) for name in again), f"only work of a pool may be begun again: {again}"
    if not stores_lost:
        assert sum(again.values()) - len(again) <= chaos.silences * SLOTS, "only what silent hosts had"
    for name in NAMES:
        worker = farm[name]["worker"]
        verdicts = Counter((row["task"], row["verdict"]) for row in worker.mail() if row["type"] == "reply")
        taken = [task for task, verdict in verdicts if verdict == "accepted"]
        assert sorted(Counter(taken).values()) == [1] * roots * children, verdicts
        assert not worker.mail("duplicate"), "the hub delivered a message twice"
        assert worker.call("db", "verify").returncode == 0


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice_while_everything_is_killed(tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", {name: {"worker": WORK} for name in NAMES}, nodes=3)
    chaos = Chaos(farm, int(os.environ.get("SEED", "1")))

    def a_holder_freezes() -> None:
        holders = eventually(lambda: [farm[name] for name in NAMES if held(farm[name])], 15, farm.last_words)
        chaos.fall_silent(holders[0], frozen=True)

    common = [chaos.a_daemon_dies, chaos.a_hub_process_dies, chaos.a_server_dies]
    try:
        survives(farm, chaos, 3, 6, [a_holder_freezes, *chaos.chance.choices(common, k=20)])
        every_job_was_done_once(farm, chaos, 3, 6, stores_lost=False)
    finally:
        chaos.come_back(wait=True)
        farm.close()


@pytest.mark.soak
@pytest.mark.parametrize("stores_lost", [False, True], ids=["killed", "stores lost"])
@pytest.mark.parametrize("seed", range(2, 7))
def test_nothing_is_lost_or_done_twice_for_long(tmp_path: Path, seed: int, stores_lost: bool) -> None:
    farm = Farm(tmp_path / "farm", {name: {"worker": WORK} for name in NAMES}, nodes=3)
    chaos = Chaos(farm, seed)
    rare = [chaos.a_host_falls_silent, *([chaos.the_stores_are_lost] * stores_lost)]
    common = [chaos.a_daemon_dies, chaos.a_hub_process_dies, chaos.a_server_dies]
    try:
        survives(farm, chaos, 20, 6, chaos.chance.choices([*rare, *common * 5], k=150))
        every_job_was_done_once(farm, chaos, 20, 6, stores_lost=stores_lost)
    finally:
        chaos.come_back(wait=True)
        farm.close()


Said = tuple[str, bytes, dict[str, str]]
"""A subject, what is published on it, and its headers."""


WAYS = ("tasks", "files", "noise", "receipts", "claims", "results", "questions", "again")


class Malicious(threading.Thread):
    """The member mallory, with a valid key: it does all that the server lets it do, as often as it can.

    It knows what is under way on the other hosts, as if it had been told, and nothing of what it sends is ever true.
    """

    def __init__(self, farm: Farm, seed: int) -> None:
        super().__init__()
        self.farm, self.chance, self.over = farm, random.Random(seed), threading.Event()
        self.key = Membership.of(farm["mallory"].env).key()
        self.keys = {name: Membership.of(farm[name].env).key().public for name in NAMES}
        self.sent: list[Said] = []
        self.did: Counter[str] = Counter()

    def run(self) -> None:
        asyncio.run(self.act())

    async def act(self) -> None:
        async def ignore(_: Exception) -> None:
            """It is not permitted, or the server is away."""

        client = await connected(
            self.farm["mallory"], error_cb=ignore, max_reconnect_attempts=-1, reconnect_time_wait=1
        )
        while not self.over.is_set():
            name = self.chance.choice(WAYS)
            way: Callable[[str], Iterator[Said]] = getattr(self, name)
            with suppress(NatsError, OSError):
                for subject, raw, headers in way(self.chance.choice(NAMES)):
                    await client.publish(subject, raw, headers=headers | {"Nats-Msg-Id": secrets.token_hex(8)})
                    self.did[name] += 1
                    if len(self.sent) < 2_000:
                        self.sent.append((subject, raw, headers))
            await asyncio.sleep(0.01)
        await client.close()

    def mail(self, to: str, text: str, message_id: str) -> Said:
        raw = signed(text.encode(), self.key)
        headers = {"Mailboxd-Id": message_id, "Mailboxd-Sha256": digest(raw)}
        return f"mb.v2.{to}.mail.mallory", seal(raw, {to: self.keys[to]}), headers

    def tasks(self, to: str, **more: Any) -> Iterator[Said]:
        """Work that nobody there takes from it; beta takes it."""
        if to == "beta" and not more:
            return
        name = f"msg_{secrets.token_hex(8)}"
        text = task(name, sender="mallory.worker", to=f"{to}.worker", message_id=name, subtask_id="x", **more)
        yield self.mail(to, text, name)

    def files(self, _: str) -> Iterator[Said]:
        """Work that beta takes from it, with files that never come, or of which it sends a part."""
        name = f"{secrets.token_hex(32)}.bin"
        for subject, raw, headers in self.tasks("beta", attachments=name):
            if self.chance.random() < 0.5:
                part = Sealing({"beta": self.keys["beta"]}).piece(secrets.token_bytes(100_000), is_last=False)
                file = FileSubject("beta", "mallory", headers["Mailboxd-Id"], name)
                yield file.piece(0), part, {"Mailboxd-Pieces": "100"}
            yield subject, raw, headers

    def noise(self, to: str) -> Iterator[Said]:
        for kind in ("mail", "receipt", "ask"):
            yield f"mb.v2.{to}.{kind}.mallory", secrets.token_bytes(20_000), {"Mailboxd-Id": "msg_noise"}
        yield "mb.v2.card.mallory", b"[" * 10_000, {}

    def under_way(self, host: str) -> list[tuple[str, bytes]]:
        """The messages without a receipt, and the jobs, of a host."""
        found = []
        for path in self.farm[host].root.glob("ws/*/.mailboxd/hub/sent/*.md"):
            with suppress(OSError):
                found.append((path.stem, path.read_bytes()))
        return found

    def receipts(self, to: str) -> Iterator[Said]:
        for name, raw in self.under_way(to):
            for refused in ("", "no"):
                made = Receipt(name, digest(raw), "mallory", to, "2026-11-29T00:00:00.000Z")
                made = replace(made, stage=ReceiptStage.REFUSED, reason=refused) if refused else made
                yield f"mb.v2.{to}.receipt.mallory", made.signed(self.key.sign).to_bytes(), {}

    def claims(self, sender: str) -> Iterator[Said]:
        for name, _ in self.under_way(sender):
            for stage in JobStage:
                yield JobSubject("reviewer", sender, name).claimed_by("mallory"), Claim("mallory", stage).to_bytes(), {}

    def results(self, to: str) -> Iterator[Said]:
        """Of work that others have."""
        for name, raw in self.under_way(to):
            given = parse_message(raw, name).message
            if isinstance(given, TaskMessage):
                own = f"msg_{secrets.token_hex(8)}"
                said: dict[str, Any] = {"to": f"{to}.worker", "message_id": own, "in_reply_to": name}
                said |= {"attempt_id": given.attempt_id, "reply_token": given.reply_token}
                text = reply(given.task_id, given.subtask_id or "", "mallory.worker", "A lie.", **said)
                yield self.mail(to, text, own)

    def questions(self, to: str) -> Iterator[Said]:
        said = {"kind": "search", "nonce": secrets.token_hex(8), "from": "mallory", "to": to, "query": {"query": "x"}}
        yield f"mb.v2.{to}.ask.mallory", seal(signed_json(self.key, said), {to: self.keys[to]}), {}

    def again(self, _: str) -> Iterator[Said]:
        yield from self.chance.sample(self.sent, min(20, len(self.sent)))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_malicious_member_stops_nobody_and_changes_nothing(tmp_path: Path, seed: int) -> None:
    """The others lose processes meanwhile, too."""
    hosts = {name: {"worker": WORK} for name in (*NAMES, "mallory")}
    farm = Farm(tmp_path / "farm", hosts)
    chaos = Chaos(farm, seed)
    common = [chaos.a_daemon_dies, chaos.a_hub_process_dies, chaos.a_server_dies]
    malicious = None
    try:
        farm["alpha"].start_hub()
        farm["mallory"].let_in()
        farm["alpha"].ordered("pools", "mallory", "--none")
        farm["alpha"].stop_hub()
        for name in ("alpha", "gamma"):
            takes(farm[name], *(f"{other}.*" for other in NAMES))
        malicious = Malicious(farm, seed)
        malicious.start()
        survives(farm, chaos, 4, 6, chaos.chance.choices(common, k=15))
        assert malicious.is_alive()
        assert all(malicious.did[way] for way in WAYS), malicious.did
        malicious.over.set()
        malicious.join()
        farm["alpha"].ordered("revoke", "mallory")
        every_job_was_done_once(farm, chaos, 4, 6, stores_lost=False)
    finally:
        if malicious is not None:
            malicious.over.set()
            malicious.join()
        farm.close()


def takes(host: Host, *accept: str) -> None:
    settings = host.folder / "hub.yaml"
    settings.write_text(settings.read_text().replace('accept: ["*"]', f"accept: {json.dumps(accept)}"))
