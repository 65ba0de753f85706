"""Where a workspace lies, and directories that are gone, exchanged or read-only while the daemon runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Company, environment, eventually, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
CONFIG = 78
NFS = "6969000000000000"
FUSE = "4655736500000000"
Undo = Callable[[], object]


def on(kind: str, *words: str) -> list[str]:
    """A command that the kernel tells that every file system is of this kind (`f_type`, little endian)."""
    strace = shutil.which("strace")
    inject = f"inject=statfs:poke_exit=@arg2={kind}"
    if strace is None or subprocess.run([strace, "-qq", "-e", inject, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs strace that may trace, of 5.11 or newer")
    return [strace, "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=statfs", "-e", inject, *MAILBOXD, *words]


@pytest.mark.parametrize(("kind", "name"), [(NFS, "NFS"), (FUSE, "FUSE")])
def test_a_network_file_system_is_refused(found: Found, kind: str, name: str) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    done = subprocess.run(
        on(kind, "run"), cwd=alpha.root, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == CONFIG
    assert f"({name})" in done.stderr
    assert "--allow-network-fs" in done.stderr
    assert not (alpha.root / ".mailboxd" / "mailboxd.db").exists()


def test_a_network_file_system_that_is_allowed_is_polled_and_that_is_said(found: Found) -> None:
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    with alpha.log.open("ab") as log:
        words = on(NFS, "run", "--allow-network-fs")
        alpha.process = subprocess.Popen(words, cwd=alpha.root, env=environment(), stdout=log, stderr=log)
    alpha.until_ready()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    said = alpha.json("status")["health"]
    assert said["grade"] == "amber"
    assert "polled" in said["troubles"][0]["why"]
    company.at_rest()


@pytest.fixture
def undone() -> Iterator[list[Undo]]:
    """What has to be undone at the end, whatever happened."""
    undo: list[Undo] = []
    yield undo
    for action in reversed(undo):
        action()


def missing(path: Path) -> Undo:
    away = path.with_name("away")
    path.rename(away)
    return lambda: away.exists() and away.rename(path)


def a_link(path: Path) -> Undo:
    away = path.with_name("away")
    path.rename(away)
    path.symlink_to(away)

    def mend() -> None:
        if path.is_symlink():
            path.unlink()
            away.rename(path)

    return mend


def immutable(path: Path) -> Undo:
    if subprocess.run(["chattr", "+i", str(path)], check=False, capture_output=True).returncode != 0:
        pytest.skip("chattr +i does not work here")
    return lambda: subprocess.run(["chattr", "-i", str(path)], check=True)


def read_only(path: Path) -> Undo:
    """A mount of itself, read-only."""
    words = [["--bind", str(path), str(path)], ["-o", "remount,bind,ro", str(path)]]
    if any(subprocess.run(["mount", *each], check=False, capture_output=True).returncode != 0 for each in words):
        pytest.skip("nothing can be mounted here")
    return lambda: subprocess.run(["umount", "-l", str(path)], check=False)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("archive", missing),
        ("archive", read_only),
        ("rejected", a_link),
        ("inbox", immutable),
    ],
)
@pytest.mark.slow
def test_no_message_is_judged_that_could_not_be_put_away(
    found: Found, undone: list[Undo], name: str, harm: Callable[[Path], Undo]
) -> None:
    """HALT(intake): the inbox stays as it is, red health says why, and it goes on by itself."""
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    eventually(alpha.has_nothing_to_do)
    raw = task("two").encode()
    place = alpha.inbox.parent / name
    mend = harm(place)
    undone.append(mend)
    if name != "inbox":
        alpha.drop("2.md", raw)
    elif harm in (missing, a_link):
        (place.with_name("away") / "2.md").write_bytes(raw)
    eventually(lambda: f"mailbox/{name}" in alpha.last_words(), 20, alpha.last_words)
    status = alpha.call("status", "--json")
    assert (status.returncode, json.loads(status.stdout)["health"]["grade"]) == (1, "red")
    assert f"mailbox/{name}" in status.stdout
    assert len(alpha.mail()) == 1
    mend()
    if not (alpha.inbox / "2.md").exists():
        alpha.drop("2.md", raw)
    alpha.until("two")
    eventually(lambda: alpha.call("status").returncode == 0, 20, alpha.last_words)
    eventually(lambda: not os.listdir(alpha.inbox))
    company.at_rest()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give files to another user")
@pytest.mark.parametrize("mode", [0o733, 0o500], ids=oct)
def test_an_inbox_of_somebody_else_is_said_with_what_to_type(mode: int) -> None:
    """The daemon is no root here, and the inbox is not its own."""
    with tempfile.TemporaryDirectory() as made:  # pytest's own directories are closed to other users
        root = Path(made)
        company = Company(root, {"alpha": WORK})
        alpha = company["alpha"]
        alpha.settle_in({"inbox": {"rescan_seconds": 1}})
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534)
        alpha.inbox.chmod(mode)
        os.chown(alpha.inbox, 0, 0)
        words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *MAILBOXD, "run"]
        with alpha.log.open("ab") as log:
            home = environment({"HOME": made, "XDG_STATE_HOME": f"{made}/state"})
            alpha.process = subprocess.Popen(words, cwd=alpha.root, env=home, stdout=log, stderr=log)
        try:
            alpha.until_ready()
            alpha.drop("1.md", task("one"))
            eventually(lambda: b"chmod u+rwx" in alpha.log.read_bytes(), 20, alpha.last_words)
            assert not alpha.mail()
            assert alpha.call("status").returncode == 1
            os.chown(alpha.inbox / "1.md", 65534, 65534)
            os.chown(alpha.inbox, 65534, 65534)
            alpha.inbox.chmod(0o700)
            eventually(lambda: alpha.mail("accepted"), 20, alpha.last_words)
        finally:
            company.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_file_system_over_the_inbox_is_noticed_when_it_comes_and_when_it_goes(found: Found) -> None:
    """The kernel says nothing of it to who watches the directory; the next scan would be ten minutes away."""
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 600})
    alpha = company["alpha"]
    apart = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*apart, "mount", "-t", "tmpfs", "none", str(alpha.inbox)], capture_output=True).returncode != 0:
        pytest.skip("needs mounts of its own")
    with alpha.log.open("ab") as log:
        alpha.process = subprocess.Popen([*apart, *MAILBOXD, "run"], cwd=alpha.root, env=environment(), stderr=log)
    alpha.until_ready()
    within = ["nsenter", "--mount", "--target", str(alpha.process.pid)]
    subprocess.run([*within, "mount", "-t", "tmpfs", "none", str(alpha.inbox)], check=True)
    eventually(lambda: len(alpha.events("inbox.rearmed")) == 1, 5, alpha.last_words)
    put = f"cat >{alpha.inbox}/.x && mv {alpha.inbox}/.x {alpha.inbox}/over.md"
    subprocess.run([*within, "sh", "-c", put], input=task("over").encode(), check=True)
    alpha.until("over")
    alpha.drop("below.md", task("below"))  # into the directory that is covered
    eventually(alpha.has_nothing_to_do)
    assert alpha.phase("below") == ""
    subprocess.run([*within, "umount", str(alpha.inbox)], check=True)
    alpha.until("below")
    assert len(alpha.events("inbox.rearmed")) == 2
    company.at_rest()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_what_vanishes_with_a_file_system_over_the_archive_is_put_back(found: Found) -> None:
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 600})
    alpha = company["alpha"]
    archive = alpha.inbox.parent / "archive"
    apart = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*apart, "mount", "-t", "tmpfs", "none", str(archive)], capture_output=True).returncode != 0:
        pytest.skip("needs mounts of its own")
    with alpha.log.open("ab") as log:
        alpha.process = subprocess.Popen([*apart, *MAILBOXD, "run"], cwd=alpha.root, env=environment(), stderr=log)
    alpha.until_ready()
    alpha.drop("before.md", task("before"))
    alpha.until("before")
    eventually(alpha.has_nothing_to_do)
    within = ["nsenter", "--mount", "--target", str(alpha.process.pid)]
    subprocess.run([*within, "mount", "-t", "tmpfs", "none", str(archive)], check=True)
    eventually(lambda: "before.md was missing: restored" in alpha.last_words(), 20, alpha.last_words)
    alpha.drop("over.md", task("over"))
    alpha.until("over")
    eventually(alpha.has_nothing_to_do)
    (row,) = (row for row in alpha.mail() if row["name"] == "over.md")
    subprocess.run([*within, "umount", "-l", str(archive)], check=True)  # the journal is open there
    lost = alpha.root / "mailbox" / str(row["path"])
    eventually(lost.exists, 20, alpha.last_words)
    assert lost.read_text() == task("over")
    day = lost.parent
    kept = {path.name: path.read_bytes() for path in day.iterdir()}
    shutil.rmtree(day, ignore_errors=True)  # and a whole day is lost, while the daemon restores what has gone first
    kept.pop("INDEX.md", None)  # a projection: written again with the day's next message, or by the next start

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in day.iterdir() if path.name != "INDEX.md"}

    eventually(lambda: day.exists() and files() == kept, 20, alpha.last_words)
    eventually(lambda: alpha.json("status")["health"]["grade"] == "green", 20, alpha.last_words)
    whys = [event["data"]["why"] for event in alpha.events("alarm")]
    assert sum("restored from the database" in why for why in whys) >= 3
    company.at_rest()


def test_calls_are_not_kept_behind_a_link(found: Found, tmp_path: Path) -> None:
    """Prompts are written there, and what a call printed is read from there."""
    alpha = found({"alpha": WORK})["alpha"]
    turns = alpha.root / ".mailboxd" / "turns"
    turns.rename(tmp_path / "turns")
    turns.symlink_to(tmp_path / "turns")
    alpha.drop("1.md", task("one"))
    done = alpha.call("run", "--until-idle")
    assert done.returncode == 75, done.stderr
    assert f"cannot keep calls in {turns}" in done.stderr
    assert list((tmp_path / "turns").iterdir()) == []


def test_who_should_do_all_there_is_does_not_say_that_it_is_done_while_mail_lies_unread(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "Text."}}})
    alpha = company["alpha"]
    archive = alpha.root / "mailbox" / "archive"
    archive.rename(archive.with_name("away"))
    archive.symlink_to(archive.with_name("away"))  # what is only missing is made
    alpha.drop("1.md", task("one"))
    done = alpha.call("run", "--until-idle")
    assert done.returncode == 75, done.stderr
    assert str(archive) in done.stderr.splitlines()[-1]
    archive.unlink()
    archive.with_name("away").rename(archive)
    alpha.run()
    assert alpha.phase("one") == "completed"
    company.at_rest()
