"""Mail between hosts, with real daemons, hub processes and a real server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.support import task
from tests.hub.conftest import Joined

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}


def gives_to(agent: str, key: str = "x") -> dict[str, Any]:
    return {key: {"agent": agent, "description": f"Do {key}", "expected_output": "One line."}}


def test_work_goes_to_another_host_and_its_result_comes_back(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": WORK}})
    farm.start()
    main = farm["alpha"]["main"]
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    main.until("job")
    assert "Result of" in main.task("job.x")["result"]
    assert len(farm["beta"].executions(agent="writer")) == 1
    (arrived,) = farm["beta"]["writer"].mail("accepted")
    assert (arrived["sender"], arrived["verified"]) == ("alpha.main", "yes")
    farm.at_rest()
