"""A disk that is full, small or limited, under a running daemon: nothing is begun that cannot be recorded, nothing is
lost, and it goes on by itself. Needs to mount: as root.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
Mount = Callable[[Path, str], Path]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts a tmpfs with these options; taken off again at the end."""
    mounted: list[Path] = []

    def make(path: Path, options: str) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
        if subprocess.run(words, check=False, capture_output=True).returncode != 0:
            pytest.skip("nothing can be mounted here")
        mounted.append(path)
        return path

    yield make
    for path in reversed(mounted):
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def small(mount: Mount, tmp_path: Path) -> Path:
    """The whole company lives on a disk of 24 MB. To be asked for before `found`."""
    return mount(tmp_path, "size=24m,mode=700")


def fill(place: Path) -> Path:
    """Write until nothing more fits."""
    filler = place / ".filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], check=False, capture_output=True)
    assert os.statvfs(place).f_bavail == 0
    return filler


def health(agent: Agent) -> tuple[str, str]:
    """The grade, and what is wrong."""
    done = agent.call("status", "--json")
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)["health"]["grade"], done.stdout


def begun(found: Found, log: Path) -> Agent:
    """A daemon that has done one task, and writes its log elsewhere."""
    alpha = found({"alpha": WORK})["alpha"]
    alpha.log = log
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    eventually(alpha.has_nothing_to_do)
    return alpha


def test_a_full_disk_halts_everything_and_room_starts_it_again(
    small: Path, found: Found, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alpha = begun(found, tmp_path_factory.mktemp("log") / "daemon.log")
    process = alpha.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)  # or it would be faster than we are
    dropped = alpha.drop("2.md", task("two")).read_bytes()
    filler = fill(small)
    process.send_signal(signal.SIGCONT)
    eventually(lambda: "HALT(disk-full)" in alpha.last_words(), 20, alpha.last_words)
    grade, said = health(alpha)
    assert (grade, process.poll()) == ("red", None)
    assert "disk-full" in said
    assert (alpha.inbox / "2.md").read_bytes() == dropped
    assert len(alpha.company.executions()) == 1
    filler.unlink()
    alpha.until("two")
    eventually(lambda: health(alpha)[0] == "amber")
    assert "MiB are free" in health(alpha)[1]  # less than 512: said before it is too late
    assert alpha.last_words().count("HALT(disk-full)") == 1
    assert [entry["local_id"] for entry in alpha.company.executions()] == ["one", "two"]
    alpha.company.at_rest()


def test_a_turn_that_runs_while_the_disk_is_full_is_taken_once(
    small: Path, found: Found, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rules = [{"match": {"task": "long"}, "hang": 4, "reply": "Worth waiting for."}]
    alpha = found({"alpha": {"rules": rules, **WORK}})["alpha"]
    alpha.log = tmp_path_factory.mktemp("log") / "daemon.log"
    process = alpha.start()
    alpha.drop("1.md", task("long"))
    eventually(alpha.company.executions)
    process.send_signal(signal.SIGSTOP)
    alpha.drop("2.md", task("two"))
    filler = fill(small)
    process.send_signal(signal.SIGCONT)
    eventually(lambda: "HALT(disk-full)" in alpha.last_words(), 20, alpha.last_words)
    filler.unlink()
    assert alpha.until("long")["result"] == "Worth waiting for."
    alpha.until("two")
    assert sorted(entry["local_id"] for entry in alpha.company.executions()) == ["long", "two"]
    alpha.company.at_rest()


def test_a_stop_is_heard_while_everything_stands_still(
    small: Path, found: Found, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alpha = begun(found, tmp_path_factory.mktemp("log") / "daemon.log")
    filler = fill(small)
    assert alpha.call("cancel", "one").returncode != 0
    assert alpha.process is not None
    alpha.process.send_signal(signal.SIGHUP)
    Path(alpha.root / "mailbox" / "inbox" / "2.md").touch()
    alpha.process.terminate()
    assert alpha.ended(20) in (0, 75), alpha.last_words()
    filler.unlink()
    alpha.run()
    alpha.company.at_rest()


def test_a_limit_for_files_is_a_full_disk(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    process = alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    eventually(alpha.has_nothing_to_do)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    alpha.drop("2.md", task("two"))
    eventually(lambda: "HALT(disk-full)" in alpha.last_words(), 20, alpha.last_words)
    assert "limit of 100000 bytes" in alpha.last_words()
    assert health(alpha)[0] == "red"
    assert (alpha.inbox / "2.md").exists()
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    alpha.until("two")
    assert alpha.json("status")["health"]["grade"] == "green"
    company.at_rest()


def test_without_inodes_it_stands_still(mount: Mount, found: Found, tmp_path: Path) -> None:
    mount(tmp_path, "size=64m,nr_inodes=120,mode=700")
    alpha = begun(found, tmp_path / "daemon.log")
    hoard = tmp_path / "hoard"
    hoard.mkdir()
    assert alpha.process is not None
    alpha.process.send_signal(signal.SIGSTOP)
    alpha.drop("2.md", task("two"))
    subprocess.run(["touch", *map(str, range(1000))], cwd=hoard, check=False, capture_output=True)
    assert os.statvfs(hoard).f_ffree == 0
    alpha.process.send_signal(signal.SIGCONT)
    eventually(lambda: health(alpha)[0] == "red", 20, alpha.last_words)
    assert len(alpha.company.executions()) == 1
    for path in hoard.iterdir():
        path.unlink()
    alpha.until("two")
    alpha.company.at_rest()


@pytest.mark.parametrize(
    ("place", "trouble", "begins"),
    [
        (".mailboxd/turns", "sending", False),
        ("mailbox/outbox", "sending", True),
        ("mailbox/archive", "filing mail", True),
    ],
)
def test_what_cannot_be_written_for_want_of_room_is_written_later(
    mount: Mount, found: Found, place: str, trouble: str, begins: bool
) -> None:
    """Only this directory is full, and the database is not: no call is begun that has no message file."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    filler = fill(mount(alpha.root / place, "size=64k,mode=700"))
    alpha.start()
    raw = alpha.drop("1.md", task("one")).read_bytes()
    eventually(lambda: health(alpha)[0] == "red", 20, alpha.last_words)
    assert trouble in health(alpha)[1]
    assert "No space left" in health(alpha)[1]
    assert len(company.executions()) == begins
    # into another file system it is copied; until that is done it lies in the inbox under a name that nobody writes to
    assert place != "mailbox/archive" or [path.read_bytes() for path in alpha.inbox.iterdir()] == [raw]
    filler.unlink()
    alpha.until("one")
    eventually(lambda: health(alpha)[0] == "green", 20, alpha.last_words)
    assert len(company.executions()) == 1
    assert len(alpha.sent("reply")) == 1
    eventually(lambda: not os.listdir(alpha.inbox))
    company.at_rest()
