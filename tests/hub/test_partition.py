"""Two hosts with a network between them that is cut: packets vanish, and no connection is closed. Needs root."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailboxd.hub.wire.subjects import FILES
from tests.e2e.support import eventually, task
from tests.hub.farm import Farm, count
from tests.hub.test_attachments import LARGE
from tests.hub.test_failures import gives_to

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and ip(8)"),
]
WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}


def ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Cable:
    """Between this network, where the server is, and that of another host."""

    def __init__(self) -> None:
        number = os.getpid() % 10_000
        self.space, self.end, other = f"mb{number}", f"mb{number}a", f"mb{number}b"
        net = f"10.213.{number % 250}"
        self.address = f"{net}.1"
        ip("netns", "add", self.space)
        ip("link", "add", self.end, "type", "veth", "peer", "name", other, "netns", self.space)
        ip("addr", "add", f"{net}.1/30", "dev", self.end)
        ip("-n", self.space, "addr", "add", f"{net}.2/30", "dev", other)
        ip("-n", self.space, "link", "set", other, "up")
        self.plug()

    def plug(self) -> None:
        ip("link", "set", self.end, "up")

    def cut(self) -> None:
        ip("link", "set", self.end, "down")

    def slow(self, rate: str) -> None:
        """From the other host to this one."""
        shaping = ("qdisc", "replace", "dev", f"{self.end[:-1]}b", "root", "tbf", "rate", rate)
        ip("netns", "exec", self.space, "tc", *shaping, "burst", "32kbit", "latency", "400ms")

    def remove(self) -> None:
        ip("link", "del", self.end, check=False)
        ip("netns", "del", self.space, check=False)


@pytest.fixture
def cable() -> Iterator[Cable]:
    cable = Cable()
    yield cable
    cable.remove()


def test_what_is_given_while_the_network_is_cut_is_done_once_when_it_is_back(cable: Cable, tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", {"alpha": {"main": WORK}, "beta": {"writer": WORK}}, address=cable.address)
    try:
        farm["beta"].within = ("ip", "netns", "exec", cable.space)
        farm.start()
        main, writer = farm["alpha"]["main"], farm["beta"]["writer"]
        chance, pause = random.Random(1), threading.Event()
        for number in range(4):
            cable.cut()
            main.drop(f"{number}.md", task(f"job{number}", plan=gives_to("beta.writer", 3)))
            writer.drop(f"{number}.md", task(f"job{number}", plan=gives_to("alpha.main", 3)))
            main.drop(f"local{number}.md", task(f"local{number}"))
            main.until(f"local{number}")
            pause.wait(chance.uniform(1, 15))
            assert main.phase(f"job{number}") != "completed"
            cable.plug()
            pause.wait(chance.uniform(0, 5))
        for agent in (main, writer):
            for number in range(4):
                agent.until(f"job{number}", seconds=240)
        turns = [farm[host].executions(kind=kind) for host in ("alpha", "beta") for kind in ("task", "work")]
        assert sum(map(len, turns)) == 4 * (3 + 3 + 1), "each child, and each local task, once"
        farm.at_rest()
        for agent in (main, writer):
            assert not agent.mail("duplicate")
    finally:
        farm.close()


def test_a_host_that_cannot_be_reached_for_minutes_is_named_and_comes_back(cable: Cable, tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", {"alpha": {"main": WORK}, "beta": {"writer": WORK}}, address=cable.address)
    try:
        farm["beta"].within = ("ip", "netns", "exec", cable.space)
        farm.start()
        cable.cut()
        eventually(lambda: farm["beta"].status()["trouble"], 120, farm.last_words)
        main = farm["alpha"]["main"]
        eventually(lambda: "nothing has been heard from it since" in main.call("fleet").stdout, 60, farm.last_words)
        cable.plug()
        farm.until_connected()
        eventually(lambda: "silent" not in main.call("fleet").stdout, 60, farm.last_words)
    finally:
        farm.close()


def test_a_large_file_whose_way_is_cut_in_the_middle_arrives_whole(cable: Cable, tmp_path: Path) -> None:
    writes = {"mailbox": "true", "default": {"reply": LARGE}}
    farm = Farm(tmp_path / "farm", {"alpha": {"main": WORK}, "beta": {"writer": writes}}, address=cable.address)
    try:
        farm["beta"].within = ("ip", "netns", "exec", cable.space)
        farm.start()
        alpha, main, pause = farm["alpha"], farm["alpha"]["main"], threading.Event()
        cable.slow("2mbit")
        main.drop("go.md", task("job", plan=gives_to("beta.writer", 1)))
        eventually(lambda: 0 < count(alpha, FILES) < 10, 60, farm.last_words)
        cable.cut()
        pause.wait(40)  # longer than it takes to notice
        assert 0 < count(alpha, FILES) < 13
        cable.plug()
        main.until("job", seconds=120)
        (kept,) = (main.root / "mailbox" / "attachments").iterdir()
        assert kept.read_text().strip() == LARGE.strip()
        assert len(farm["beta"].executions(agent="writer")) == 1
        farm.at_rest()
        eventually(lambda: count(alpha, FILES) == 0, 20, farm.last_words)
    finally:
        farm.close()
