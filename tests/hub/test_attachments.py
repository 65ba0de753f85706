"""Large results and files made for a task go along to another host whole, and nothing of them stays under way."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from mailboxd.effects.hub_mail import AttachedFiles, HubMail
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.files.view import HubView
from mailboxd.hub.wire.mail import MOST_ATTACHED
from mailboxd.hub.wire.subjects import FILES
from mailboxd.user_state import UserState
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


def test_nothing_goes_along_with_a_message_that_the_hub_does_not_carry(tmp_path: Path) -> None:
    ws = make(tmp_path / "ws").ws
    assert HubMail(HubView(ws, "main", UserState(tmp_path))).attached("writer", "msg_1") is None
