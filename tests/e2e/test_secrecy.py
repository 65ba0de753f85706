"""What a run leaves behind, after everything has been used once: who may read it, and what does not stand in it.

Canaries are put where secrets are (the environment, the keys, tokens), everything that a workspace can do is done, and
then every file, every row and every command line is looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Company, environment, eventually, reply, task

pytestmark = pytest.mark.slow

CANARY = "canary-5d1f0c7e"
SECRETS = {
    "OPENCLAW_GATEWAY_TOKEN": f"{CANARY}-gateway",
    "OPENAI_API_KEY": f"{CANARY}-openai",
    "MY_PASSWORD": f"{CANARY}-password",
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}-aws",
}
PLAN = {
    "here": {"agent": "self", "description": "Here"},
    "there": {"agent": "beta", "description": "There", "depends_on": ["here"]},
}


@contextmanager
def command_lines(seen: set[bytes], root: Path) -> Iterator[None]:
    """Every command line and, of ours, every environment that shows up in /proc meanwhile."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    with suppress(OSError):
                        if os.fsencode(root) in (line := (entry / "cmdline").read_bytes()):
                            seen.add(line)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Company, set[bytes]]]:
    """A company in which everything has happened: mail good and bad, a plan, a failure, keys, commands, a restart."""
    work, root = {"default": {"reply": "Text."}}, tmp_path_factory.mktemp("company")
    company = Company(root, {"alpha": work, "beta": {"mailbox": "true"}})
    company.env |= {"XDG_STATE_HOME": str(root / "state"), "HOME": str(root), **SECRETS}
    alpha, seen = company["alpha"], set[bytes]()
    alpha.settle_in({"synthesis": "concat", "retry": {"max_attempts": 1}})
    before = os.umask(0o022)
    try:
        with command_lines(seen, root):
            settings = alpha.config.read_bytes()
            for made in ("mailbox", "tasks", ".mailboxd"):
                shutil.rmtree(alpha.root / made)
            assert alpha.call("init", ".", "--agent", "alpha").returncode == 0
            alpha.config.write_bytes(settings)
            assert alpha.call("connect", "keys", "create").returncode == 0
            assert alpha.call("connect", "keys", "create", "--operator").returncode == 0
            alpha.start()
            alpha.drop("good.md", task("good"))
            alpha.drop("rubbish.md", b"\xff\xfe")
            alpha.drop("foreign.md", task("foreign", sender="gamma", subtask_id="x"))
            alpha.drop("plan.md", task("plan", plan=PLAN))
            assert alpha.call("send", "--task-id", "sent", "Do it").returncode == 0
            for name in ("good", "foreign.x", "sent", "plan.here"):
                alpha.until(name)
            eventually(lambda: alpha.sent("task"))
            alpha.drop("reply.md", reply("plan", "there", "beta", attempt_id=alpha.attempts("plan.there")[0]["id"]))
            alpha.until("plan")
            for words in (("status",), ("ls",), ("show", "plan"), ("log", "plan"), ("why", "plan"), ("doctor",)):
                alpha.call(*words)
                alpha.call(*words, "--json")
            company.at_rest()
            alpha.run()
    finally:
        os.umask(before)
    yield company, seen
    company.close()


def test_nobody_else_can_read_or_change_anything(used: tuple[Company, set[bytes]]) -> None:
    """Whatever the umask of whoever started it was. What others wrote (the inbox's own files) keeps its mode."""
    company, _ = used
    ours = [company["alpha"].root / ".mailboxd", company["alpha"].root / "mailbox", company.root / "state"]
    ours.append(company["alpha"].root / "tasks")
    theirs = {"good.md", "foreign.md", "plan.md", "reply.md", "rubbish.md"}
    loose = {}
    count = 0
    for top in ours:
        for path in [top, *top.rglob("*")]:
            mode = stat.S_IMODE(path.lstat().st_mode)
            wanted = 0o700 if path.is_dir() else 0o600
            count += 1
            if mode != wanted and path.name not in theirs:
                loose[str(path.relative_to(company.root))] = oct(mode)
    assert loose == {}
    assert count > 35


def test_no_secret_is_in_a_file_a_row_an_argument_or_the_log(used: tuple[Company, set[bytes]]) -> None:
    company, seen = used
    alpha = company["alpha"]
    private = [path.read_text().strip() for path in (company.root / "state").rglob("*.key")]
    assert len(private) == 2
    needles = [CANARY.encode(), *(text.partition(":")[2].encode() for text in private)]
    tokens = {
        row["reply_token"].encode() for row in alpha.query("SELECT reply_token FROM v_attempts") if row["reply_token"]
    }
    assert tokens
    found = []
    for path in company.root.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".key":
            raw = path.read_bytes()
            found += [(str(path), needle) for needle in needles if needle in raw]
    assert found == []
    assert len(seen) > 5
    assert [line for line in seen for needle in (*needles, *tokens) if needle in line] == []
    log = alpha.log.read_bytes()
    assert [needle for needle in (*needles, *tokens) if needle in log] == []
    with closing(sqlite3.connect(alpha.root / ".mailboxd" / "mailboxd.db")) as db:
        dump = "\n".join(db.iterdump()).encode()
    assert [needle for needle in needles if needle in dump] == []


def test_a_turn_is_given_no_variable_that_nobody_allowed(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": {"default": {"hang": 1, "reply": "Text."}}}, openclaw={"environment": ["MY_PASSWORD"]})
    company.env |= {"XDG_STATE_HOME": str(tmp_path / "state"), **SECRETS}
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    (turn,) = eventually(company.executions)
    given = Path(f"/proc/{turn['pid']}/environ").read_bytes()
    assert b"canary-5d1f0c7e-password" in given  # what the configuration names
    assert b"canary-5d1f0c7e-aws" not in given
    alpha.until("job")
    company.at_rest()


def test_nothing_listens_on_the_network(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "Text."}}})
    alpha = company["alpha"]
    daemon = alpha.start()
    sockets = set()
    for fd in Path(f"/proc/{daemon.pid}/fd").iterdir():
        with suppress(OSError):
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd)):
                sockets.add(match[1])
    listening = [
        line
        for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
        for line in Path(f"/proc/{daemon.pid}/net/{table}").read_text().splitlines()[1:]
        if line.split()[9] in sockets
    ]
    assert listening == []
    assert sockets, "the socket in .mailboxd/, by which commands wake it"
    company.at_rest()


def test_the_tools_listen_on_the_loopback_interface_only(found: Found) -> None:
    pytest.importorskip("mcp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    company = found({"alpha": {"default": {"reply": "Text."}}}, mcp={"port": port})
    alpha = company["alpha"]
    alpha.start()

    def listeners() -> list[str]:
        lines = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
        ]
        return [words[1] for words in lines if words[1].endswith(f":{port:04X}") and words[3] == "0A"]

    assert eventually(listeners) == [f"0100007F:{port:04X}"]
    alpha.stop()


def test_the_environment_of_these_tests_is_the_one_that_daemons_have() -> None:
    assert not [name for name in environment() if name.startswith("OPENCLAW_")]
