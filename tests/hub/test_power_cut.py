"""Power cuts: what was not flushed to the disk is lost. Needs root, for file systems of their own on loop devices.

The cut is ext4's own (`EXT4_IOC_SHUTDOWN` without a flush of the log): from then on nothing reaches the disk, and what
was only in memory is gone once the file system is mounted again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nats.errors import Error as NatsError

from mailboxd.hub.process.founding import PER_SUBJECT
from mailboxd.hub.wire.subjects import STREAM
from tests.e2e.support import eventually, task
from tests.hub.farm import Farm, Host, count
from tests.hub.test_mail import fill

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists() or not shutil.which("mkfs.ext4"),
        reason="file systems of their own need root, loop devices and mkfs.ext4",
    ),
]
_SHUTDOWN, _NO_FLUSH = 0x8004587D, 2
WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}


def command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=60)


class Disk:
    """A file system of its own below a directory, with what was there."""

    def __init__(self, place: Path, image: Path) -> None:
        self.place, self.image = place, image
        before = image.with_suffix(".before")
        place.rename(before)
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(96 << 20)
        command("mkfs.ext4", "-q", image)
        self.mount()
        shutil.copytree(before, place, dirs_exist_ok=True)
        os.sync()

    def mount(self) -> None:
        command("mount", "-o", "loop", self.image, self.place)

    def mount_again(self) -> None:
        """Mount what is on the disk: a copy, because another mount namespace may still hold the old file system."""
        command("umount", self.place)
        old, self.image = self.image, self.image.with_name(f"{self.image.name}x")
        command("cp", "--sparse=always", old, self.image)
        old.unlink()
        self.mount()

    def cut(self) -> None:
        place = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(place, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
        finally:
            os.close(place)


def cut(disks: list[Disk], dies: Callable[[], None]) -> None:
    """Power is cut, and comes back; `dies` ends all that used the disks."""
    for disk in disks:
        disk.cut()
    dies()
    for disk in disks:
        disk.mount_again()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Callable[[Path], Disk]]:
    disks: list[Disk] = []

    def make(place: Path) -> Disk:
        disks.append(Disk(place, tmp_path / f"disk{len(disks)}"))
        return disks[-1]

    yield make
    for disk in disks:
        subprocess.run(["umount", "--lazy", disk.place], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "kept"), [("always", PER_SUBJECT), ("2m", 0)])
def test_what_the_server_acknowledged_outlives_a_power_cut_only_if_it_syncs_always(
    tmp_path: Path, on_disk: Callable[[Path], Disk], sync: str, kept: int
) -> None:
    farm = Farm(tmp_path / "farm", {"alpha": {"main": WORK}, "beta": {"writer": WORK}})
    alpha, server, config = farm["alpha"], farm.server, farm.server.folder / "nats.conf"
    try:
        farm["alpha"].start_hub()  # it creates the streams
        eventually(lambda: not alpha.status()["trouble"], 30, farm.last_words)
        farm["beta"].start_hub()
        eventually(lambda: not farm["beta"].status()["trouble"], 30, farm.last_words)  # the streams take mail for it
        farm["beta"].kill_hub()
        alpha.kill_hub()
        server.kill()
        disk = on_disk(server.folder / "store")
        config.write_text(config.read_text().replace("sync_interval: always", f"sync_interval: {sync}"))
        server.start()
        eventually(lambda: is_up(alpha), 30, farm.last_words)
        asyncio.run(fill(alpha, "mb.v2.beta.mail.alpha"))
        cut([disk], server.kill)
        server.start()
        eventually(lambda: is_up(alpha), 30, farm.last_words)
        assert count(alpha, STREAM) == kept
    finally:
        farm.close()


def is_up(host: Host) -> bool:
    with suppress(NatsError, OSError, TimeoutError):
        return count(host, STREAM) >= 0
    return False


@pytest.mark.soak
def test_mail_outlives_power_cuts_of_hosts_and_server(tmp_path: Path, on_disk: Callable[[Path], Disk]) -> None:
    """What the daemons, the hub processes and the server had not flushed is lost, and nothing that was given."""
    farm = Farm(tmp_path / "farm", {"alpha": {"main": WORK}, "beta": {"writer": WORK}})
    alpha, beta, chance, pause = farm["alpha"], farm["beta"], random.Random(1), threading.Event()
    farm.server.kill()
    disks = {host.name: [on_disk(host.root / "ws"), on_disk(host.folder)] for host in (alpha, beta)}
    plan = {f"x{n}": {"agent": "beta.writer", "description": "Work", "idempotent": True} for n in range(6)}
    try:
        farm.server.start()
        farm.start()
        for number in range(6):
            alpha["main"].drop(f"{number}.md", task(f"job{number}", plan=plan))
            eventually(lambda name=f"job{number}": alpha["main"].phase(name), 30, farm.last_words)  # type: ignore[misc]
            pause.wait(chance.uniform(0.2, 3))
            host = (alpha, beta)[number % 2]

            def dies(host: Host = host) -> None:
                host.close()
                if host is alpha:  # the server's store is in its folder
                    farm.server.kill()

            cut(disks[host.name], dies)
            if host is alpha:
                farm.server.start()
            for agent in host.agents.values():
                agent.start()
            host.start_hub()
        for number in range(6):
            alpha["main"].until(f"job{number}", seconds=120)
        taken = Counter(row["task"] for row in alpha["main"].mail("accepted") if row["type"] == "reply")
        assert sorted(taken.values()) == [1] * 36
        assert alpha["main"].call("db", "verify").returncode == beta["writer"].call("db", "verify").returncode == 0
    finally:
        farm.close()
