"""One trace from a dropped file through two daemons to the answer, as a receiver of OTLP sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.surfaces.telemetry.traces import Exporter
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task
from tests.telemetry.receiver import Received, Receiver

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"default": {"reply": "Result of {title}."}}
PLAN = {
    "here": {"agent": "self", "description": "Here"},
    "there": {"agent": "beta", "description": "There", "depends_on": ["here"]},
}
SECRET = "canary-2b7e"
INCOMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def shape(spans: Mapping[str, Received]) -> dict[str, str]:
    """Each span by what it is, with what its parent is."""

    def called(span: Received | None) -> str:
        return f"{span.agent} {span.name} {span.attributes['mailboxd.task.local_id']}" if span else ""

    return {called(span): called(spans.get(span.parent)) for span in spans.values()}


def test_one_trace_over_two_daemons(found: Found, receiver: Receiver) -> None:
    company = found(
        {"alpha": {"mailbox": "true", **WORK}, "beta": {"mailbox": "true", **WORK}},
        daemons=("alpha", "beta"), synthesis="concat", metrics={"otlp_endpoint": receiver.url},
        log={"format": "json"},
    )  # fmt: skip
    for agent in company.agents.values():
        agent.start(env={"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{SECRET}"})
    company["alpha"].drop("go.md", task("year", plan=PLAN))
    company["alpha"].until("year")
    ended = {"alpha task year", "alpha task year.here", "alpha task year.there", "beta task year.there"}
    eventually(lambda: ended <= shape(receiver.spans).keys(), 60, lambda: str(shape(receiver.spans)))
    company.at_rest()

    spans = receiver.spans
    assert len({span.trace for span in spans.values()}) == 1
    tree = shape(spans)
    assert tree["alpha task year"] == ""
    assert tree["alpha task year.here"] == "alpha task year"
    assert tree["alpha attempt year.there"] == "alpha task year.there"
    assert tree["beta task year.there"] == "alpha attempt year.there", "the peer's work hangs below our attempt"
    assert tree["beta attempt year.there"] == "beta task year.there"
    assert tree["beta turn work year.there"] == "beta attempt year.there"
    assert tree["beta message reply sent year.there"] == "beta task year.there"
    assert tree["alpha message reply received year.there"] == "alpha task year.there"
    assert tree["alpha message task received year"] == "alpha task year"
    assert [name for name, parent in tree.items() if parent == ""] == ["alpha task year"], "no span hangs in the air"
    for span in spans.values():
        assert 0 < span.began <= span.ended
        assert not span.failed
    secret_header = {header.get("authorization") for header, _ in receiver.requests}
    assert secret_header == {f"Bearer {SECRET}"}
    for header_and_body in receiver.requests:
        assert SECRET.encode() not in header_and_body[1]
    for agent in company.agents.values():
        assert SECRET not in agent.log.read_text()
        tokens = [row["reply_token"] for row in agent.query("SELECT reply_token FROM v_attempts") if row["reply_token"]]
        assert not [token for token in tokens if any(token.encode() in raw for _, raw in receiver.requests)]
        assert "Result of" not in str(receiver.came), "no word of a message is in a span"

    told = [json.loads(line) for line in company["alpha"].log.read_text().splitlines() if line.startswith("{")]
    about = [line for line in told if line.get("task") == "year.there" and "attempt" in line]
    (trace,) = {span.trace for span in spans.values()}
    assert {line["trace"] for line in about} == {trace}
    attempts = {row["id"] for row in company["alpha"].attempts("year.there")}
    assert {line["attempt"] for line in about} == attempts


def test_a_trace_of_the_incoming_message_is_continued(found: Found, receiver: Receiver) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.drop("go.md", task("job", traceparent=INCOMING))
    alpha.run()
    (top,) = [span for span in exported(alpha, receiver) if span.name == "task"]
    assert [top.trace, top.parent] == INCOMING.split("-")[1:3]


def test_spans_that_were_not_accepted_are_sent_again_unchanged(found: Found, receiver: Receiver) -> None:
    receiver.refuses = True
    alpha = found({"alpha": WORK}, metrics={"otlp_endpoint": receiver.url})["alpha"]
    alpha.start()
    alpha.drop("one.md", task("one"))
    alpha.until("one")
    eventually(lambda: receiver.requests, 60, alpha.last_words)
    eventually(lambda: b"will be sent again" in alpha.log.read_bytes(), 30, alpha.last_words)
    assert receiver.came == []
    assert not (alpha.root / ".mailboxd" / "traces.json").exists()
    receiver.refuses = False
    eventually(lambda: "alpha task one" in shape(receiver.spans), 120, alpha.last_words)
    cursor = alpha.root / ".mailboxd" / "traces.json"
    eventually(cursor.exists, 60, alpha.last_words)
    assert alpha.stop() == 0
    before = receiver.spans
    cursor.unlink()
    exported(alpha, receiver)
    assert receiver.spans == before, "another export made other spans"
    assert len(receiver.came) >= 2 * len(before)


@pytest.mark.soak
def test_a_failed_task_is_a_failed_span(found: Found, receiver: Receiver) -> None:
    rules = {"alpha": {"default": {"fail": {"kind": "permanent", "error": "no"}}}}
    alpha = found(rules, retry={"max_attempts": 1}, circuit={"hold_seconds": 1})["alpha"]
    alpha.drop("one.md", task("one", max_attempts=1))
    alpha.start()
    eventually(lambda: alpha.phase("one") in ("failed", "circuit_open"), 60, alpha.last_words)
    alpha.stop()
    assert {span.failed for span in exported(alpha, receiver) if span.name == "attempt"} == {True}


def exported(agent: Agent, receiver: Receiver) -> list[Received]:
    """The spans of a workspace whose daemon does not run."""
    exporter = Exporter(Workspace(agent.root), receiver.url, agent.name)
    while exporter.export_next():
        pass
    return list(receiver.spans.values())
