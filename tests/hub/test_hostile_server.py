"""A server that its operator has turned: it reads all, drops, repeats and reorders, and lets a host do the same."""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.server import founders_api
from mailboxd.hub.wire.subjects import CLAIMS, FILES, JOBS, STREAM
from tests.e2e.support import task
from tests.hub.conftest import Joined
from tests.hub.farm import connected
from tests.hub.test_pools import serves, until_served

pytestmark = pytest.mark.slow
WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}
PLAN = {
    f"x{number}": {"agent": agent, "description": "Work", "expected_output": "One line."}
    for number, agent in enumerate(("beta.writer", "pool:reviewer") * 3)
}


class Turned(threading.Thread):
    """Repeats what it has seen in any order, under any subject it came on, and purges the streams now and then."""

    def __init__(self, host: Any, founder: Any) -> None:
        super().__init__()
        self.api = founders_api(Membership.of(founder.env).key())
        self.host, self.chance, self.over = host, random.Random(1), threading.Event()
        self.seen: list[tuple[str, bytes, dict[str, str]]] = []
        self.said = self.dropped = 0

    def run(self) -> None:
        asyncio.run(self._turn())

    async def _turn(self) -> None:
        client = await connected(self.host)

        async def hear(message: Any) -> None:
            self.seen.append((message.subject, message.data, dict(message.headers or {})))

        await client.subscribe("mb.>", cb=hear)
        while not self.over.is_set():
            await asyncio.sleep(0.05)
            with suppress(NatsError, TimeoutError):
                await self._does(client)
        await client.close()

    async def _does(self, client: Client) -> None:
        if len(self.seen) < 20_000:
            for subject, raw, headers in self.chance.sample(self.seen, min(3, len(self.seen))):
                fresh = {"Nats-Msg-Id": secrets.token_hex(8)}
                kept = {name: text for name, text in headers.items() if not name.startswith("Nats-")}
                await client.publish(subject, raw, headers=kept | fresh)
                self.said += 1
        if self.chance.random() < 0.02:
            stream = self.chance.choice((STREAM, JOBS, CLAIMS, FILES))
            await client.request(f"{self.api}.STREAM.PURGE.{stream}", b"{}")
            self.dropped += 1


def test_a_server_that_drops_repeats_and_reorders_loses_nothing_and_has_nothing_done_twice(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": WORK}, "gamma": {"spy": WORK}})
    alpha, beta, config = farm["alpha"], farm["beta"], farm.server.folder / "nats.conf"
    serves(beta, "writer")
    for host in (alpha, beta):
        for agent in host.agents.values():
            agent.start()
        host.start_hub()
    farm["gamma"].let_in()
    until_served(farm, "beta")
    config.write_text(re.sub(r'"allow": \[[^]]*\]', '"allow": [">"]', config.read_text()))
    os.kill(int((farm.server.folder / "nats.pid").read_text()), signal.SIGHUP)
    turned = Turned(farm["gamma"], alpha)
    turned.start()
    jobs = 0
    try:
        # on a fast machine two jobs are over before the server has done much
        while jobs < 2 or turned.said <= 100 or not turned.dropped:
            assert turned.is_alive()
            for number in (jobs, jobs + 1):
                alpha["main"].drop(f"{number}.md", task(f"job{number}", plan=PLAN))
            for number in (jobs, jobs + 1):
                alpha["main"].until(f"job{number}", seconds=240)
            jobs += 2
    finally:
        turned.over.set()
        turned.join()
    direct = [one["task_id"] for one in beta.executions(agent="writer") if int(one["task_id"][-1]) % 2 == 0]
    assert sorted(direct) == sorted({*direct}), "mail was carried out once"
    taken = [row["task"] for row in alpha["main"].mail("accepted") if row["type"] == "reply"]
    assert len(taken) == len({*taken}) == jobs * len(PLAN)
    assert not beta["writer"].mail("duplicate")
