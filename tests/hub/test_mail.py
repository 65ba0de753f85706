"""Mail between hosts, with real daemons, hub processes and a real server."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from mailboxd.errors import EXIT_NO
from mailboxd.hub.process.api import streams_of
from mailboxd.hub.process.founding import PER_SUBJECT
from tests.e2e.support import eventually, task
from tests.hub.conftest import Joined
from tests.hub.farm import Host, connected

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}
TWO = {"alpha": {"main": WORK}, "beta": {"writer": WORK}}


def gives_to(agent: str, key: str = "x") -> dict[str, Any]:
    return {key: {"agent": agent, "description": f"Do {key}", "expected_output": "One line."}}


def test_work_goes_to_another_host_and_its_result_comes_back(joined: Joined) -> None:
    farm = joined(TWO)
    (farm["beta"]["writer"].root / "IDENTITY.md").write_text("- **Theme:** Writes poems\n")
    farm.start()
    main = farm["alpha"]["main"]
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    main.until("job")
    assert "Result of" in main.task("job.x")["result"]
    assert len(farm["beta"].executions(agent="writer")) == 1
    (arrived,) = farm["beta"]["writer"].mail("accepted")
    assert (arrived["sender"], arrived["verified"]) == ("alpha.main", "yes")
    known = json.loads((farm["alpha"].folder / "peers.json").read_text())
    assert known["peers"] == {"beta.writer": {"permitted": True, "role": "Writes poems"}}
    (there,) = farm["beta"]["writer"].query("SELECT origin, extra FROM tasks")
    handover = json.loads(there["origin"])["handover"]
    assert handover["began"] == main.task("job")["id"]
    assert [step.partition(":")[0] for step in handover["passed"]] == ["alpha.main"], "the chain goes on there"
    assert "x-handed-on" not in there["extra"]
    farm.at_rest()


def test_more_than_the_server_takes_waits_with_its_sender_and_is_shown(joined: Joined) -> None:
    farm = joined(TWO)
    farm.start()
    alpha, main = farm["alpha"], farm["alpha"]["main"]
    farm["beta"].stop_hub()
    asyncio.run(fill(alpha, "mb.v2.beta.mail.alpha"))
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(lambda: "does not take mail for beta.writer" in alpha.hub("status").stdout, 30, farm.last_words)
    assert len(alpha.spooled("new")) == 1
    said = "the server does not take mail for beta.writer"
    eventually(lambda: said in main.json("why", "job.x")["because"][0]["text"], 60, farm.last_words)
    farm["beta"].start_hub()
    main.until("job", seconds=120)
    assert len(farm["beta"].executions(agent="writer")) == 1


def test_a_server_that_takes_no_mail_is_red_wherever_a_person_looks(joined: Joined) -> None:
    farm = joined(TWO)
    alpha, main = farm["alpha"], farm["alpha"]["main"]
    settings = alpha.folder / "hub.yaml"
    smallest = f"store_bytes: {64 << 20}"
    settings.write_text(re.sub("store_bytes: .*", smallest, settings.read_text()))
    farm.start()
    farm["beta"].stop_hub()
    asyncio.run(fill(alpha, "mb.v2.beta.mail.alpha", 60, 1 << 20))
    for count, size in ((10, 1 << 20), (20, 1 << 16), (100, 1 << 10)):
        asyncio.run(fill(alpha, "mb.v2.beta.receipt.alpha", count, size))
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(lambda: "takes no mail" in alpha.status()["trouble"], 60, farm.last_words)
    eventually(lambda: main.call("status").returncode == EXIT_NO, 60, farm.last_words)
    assert "takes no mail" in main.json("why", "job.x")["because"][0]["text"]
    assert "takes no mail" in main.call("doctor").stdout
    farm["beta"].start_hub()
    eventually(lambda: not alpha.status()["trouble"], 60, farm.last_words)
    main.until("job", seconds=120)


async def fill(host: Host, subject: str, count: int = PER_SUBJECT, size: int = 1) -> None:
    """As much as the server takes of this host for one other, or as many messages of a size as it takes of these."""
    client = await connected(host)
    stream = streams_of(client)
    for start in range(0, count, 64):
        some = range(start, min(start + 64, count))
        await asyncio.gather(
            *(stream.publish(subject, b"?" * size, timeout=60) for _ in some), return_exceptions=size > 1
        )
    await client.close()
