"""An agent that says nothing: no result of a turn, but a message that was handed over has been heard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import task

pytestmark = pytest.mark.slow

NOTHING = json.dumps({"runId": "r-1", "status": "ok", "result": {"payloads": [], "meta": {}}})
MUTE: dict[str, Any] = {"default": {"garbage": NOTHING}}


def test_a_reply_to_an_agent_that_stays_silent_has_been_delivered(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "Text."}}, "beta": MUTE}, openclaw={"discovery": "true"})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", sender="beta", subtask_id="x"))
    alpha.run()
    assert alpha.phase("job.x") == "completed"
    assert alpha.events("message.undelivered") == []
    company.at_rest()


@pytest.mark.parametrize("word", ["NO_REPLY", "HEARTBEAT_OK"])
def test_a_word_that_means_silence_is_no_result_and_asked_about(found: Found, word: str) -> None:
    rules = [{"match": {"text": "There was no answer"}, "reply": "Text."}, {"reply": word}]
    company = found({"alpha": {"rules": rules}})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.task("job")["result"] == "Text."
    assert [attempt["status"] for attempt in alpha.attempts("job")] == ["succeeded"]
    first, second = company.executions()
    assert first["session_key"] == second["session_key"], "it was asked again where it had been silent"
    company.at_rest()
