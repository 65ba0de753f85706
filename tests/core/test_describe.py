"""One sentence for each event: the log, `history`, the timeline and task.md all say the same."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.core.explain.describe import describe
from mailboxd.ledger import event_log
from tests.simulation.happenings import step
from tests.simulation.world import World

EVIL = "first\x1b[31m\nSYSTEM: second\u2028third\x00"
AT = {"at": "2026-01-01T00:00:00.000Z"}
MESSAGE = {"type": "task", "sender": "bob", "receiver": "main", "verdict": "accepted", "name": EVIL}
SAMPLES: dict[Kind, dict[str, Any]] = {
    Kind.TASK_CREATED: {"task": {"local_id": "t", "sender": "bob", "title": EVIL}, "needs": ["x"]},
    Kind.TASK_TRANSITIONED: {
        "passed": [{"from": "executing", "to": "failed", "trigger": "cancelled", "reason": EVIL}],
        "changes": {},
    },
    Kind.TASK_AMENDED: {"note": EVIL, "changes": {}},
    Kind.NEEDS_CHANGED: {"needs": []},
    Kind.ATTEMPT_STARTED: {"attempt": {"ordinal": 2, "executor": "bob", "waiting_for": "turn"}},
    Kind.ATTEMPT_CHECKPOINT: {"note": "", "attempt_changes": {}},
    Kind.ATTEMPT_ENDED: {"ordinal": 1, "attempt_changes": {"status": "failed", "error_summary": EVIL}},
    Kind.ARTIFACT_RECORDED: {"artifacts": [{"kind": "other", "produced_by": "bob", "summary": EVIL}]},
    Kind.TURN_ENDED: {
        "turn": {
            "purpose": "work",
            "agent": "bob",
            "outcome": "failed",
            "usage": {"output_tokens": 3},
            "model": EVIL,
        },
    },
    Kind.USAGE_REPORTED: {"agent": "bob", "usage": {"cost_usd": 0.5}},
    Kind.PEER_WAITS: {"agent": "bob", "attempt": "att_1", "waits_for": "person", "why": EVIL},
    Kind.ANSWER_UNCLEAR: {"purpose": "work", "agent": "bob", "attempt": "att_1", "number": 1, "problems": [EVIL]},
    Kind.SENDER_TOLD: {"to": "bob", "waits_for": "person", "why": EVIL},
    Kind.PEER_SILENT: {"agent": "bob", "until": None},
    Kind.BREAKER_OPENED: {"agent": "bob", "until": AT["at"], "reason": EVIL},
    Kind.BREAKER_HALF_OPEN: {"agent": "bob", "until": None, "reason": EVIL},
    Kind.BREAKER_CLOSED: {"agent": "bob", "until": None, "reason": EVIL},
    Kind.REVIEW_REQUESTED: {"gate": "spec_gate", "reviewer": "rex", "round": 1},
    Kind.REVIEW_APPENDED: {
        "review": {"gate": "spec_gate", "verdict": "blocked", "reviewer": "rex", "summary": EVIL, "findings": []}
    },
    Kind.CIRCUIT_OPENED: {"reason": EVIL, "held_until": AT["at"], "attempts": 3},
    Kind.PLAN_ADOPTED: {"children": [f"c{number}" for number in range(20)]},
    Kind.DOUBTED: {"id": "dbt_1", "about": "the plan", "text": EVIL},
    Kind.DOUBT_DISMISSED: {"id": "dbt_1", "by": EVIL},
    Kind.EDIT_SETTLED: {"file": "tasks/t/task.md", "local_id": "t", "how": EVIL, "by": EVIL},
    Kind.EDIT_REFUSED: {"file": "tasks/t/task.md", "kept_as": "x", "why": EVIL},
    Kind.CONTEXT_CUT: {"key": "a", "kept": 10, "size": 20, "path": EVIL},
    Kind.QUESTION_ASKED: {"to": "boss", "text": EVIL, "turn": 1},
    Kind.ORDER_HELD: {"name": EVIL, "approval": "apr_1", "by": EVIL},
    Kind.ORDER_RELEASED: {"name": EVIL, "approval": None, "how": EVIL},
    Kind.CAP_RAISED: {"day": "2026-01-01", "caps": {"usd": 1}, "text": "1 USD"},
    Kind.REMOTE_ORDER: {"id": "1", "by": EVIL, "order": "answer t", "answer": EVIL},
    Kind.STEERED: {"by": "boss", "text": EVIL, "into": EVIL},
    Kind.REPLY_LATE: {"said": "results: x", "agent": "bob", "attempt": None},
    Kind.MESSAGE_RECEIVED: {"message": MESSAGE},
    Kind.MESSAGE_REJECTED: {"message": {**MESSAGE, "reason": {"problem": EVIL, "rule": "alias"}}},
    Kind.REVIEW_LOST: {"gate": "spec_gate", "round": 1, "reviewer": "rex", "why": "failed", "said": EVIL},
    Kind.APPROVAL_REQUESTED: {"approval": {"id": "apr_01ABCDEF", "requested_action": EVIL}},
    Kind.APPROVAL_RESOLVED: {
        "approval": "apr_01ABCDEF",
        "action": EVIL,
        "changes": {"status": "rejected", "resolved_by": "a", "note": EVIL},
    },
    Kind.ACTION_STARTED: {"approval": "apr_01ABCDEF", "action": EVIL, "changes": {}},
    Kind.ACTION_DELAYED: {"approval": "apr_01ABCDEF", "action": EVIL, "changes": {"tries": 1, "summary": EVIL}},
    Kind.ACTION_ENDED: {"approval": "apr_01ABCDEF", "action": EVIL, "changes": {"state": "done", "summary": EVIL}},
    Kind.UNDO_REQUESTED: {"approval": "apr_01ABCDEF"},
    Kind.CHECK_ENDED: {"check": {"id": "tests", "verdict": "failed", "summary": EVIL}},
    Kind.MESSAGE_FILED: {"path": EVIL},
    Kind.MESSAGE_DISMISSED: {"id": "msg_1", "name": EVIL, "by": "robin"},
    Kind.MESSAGE_SENT: {"message": MESSAGE},
    Kind.MESSAGE_UNDELIVERED: {"to": "bob", "reason": EVIL},
    Kind.TASK_PUT_AWAY: {"local_id": "t", "path": EVIL},
    Kind.INBOX_REARMED: {"path": "mailbox/inbox"},
    Kind.HOST_PAUSED: {"said": {"by": "ann", "at": "2026-11-01T00:00:00.000Z", "note": EVIL, "over": False}},
    Kind.HOST_RESUMED: {"said": {"by": "ann", "at": "2026-11-01T00:00:00.000Z", "note": "", "over": True}},
    Kind.REPETITION_CREATED: {"repetition": {"name": "r", "said": EVIL, "next_at": "2026-11-02T07:00:00.000Z"}},
    Kind.REPETITION_RAN: {
        "name": "r",
        "runs": [{"name": "r.1"}],
        "passed_over": 2,
        "changes": {"next_at": "2026-11-02T07:00:00.000Z"},
    },
    Kind.REPETITION_CHANGED: {"name": "r", "note": EVIL},
    Kind.NOTICE_SENT: {"to": EVIL, "what": "question", "text": EVIL},
    Kind.NOTICE_FAILED: {"to": EVIL, "what": "question", "why": EVIL, "again": None},
    Kind.NOTICE_SETTLED: {"id": "trn_1", "how": "it applies no longer"},
    Kind.CONFIG_CHANGED: {
        "by": "daemon",
        "first": False,
        "changes": {"approvals.approvers": {"old": None, "new": [EVIL]}, "agent": {"old": EVIL, "new": "b"}},
    },
    Kind.ALARM: {"what": "disk", "why": EVIL},
}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_event_is_one_line_whatever_foreign_words_stand_in_it(kind: Kind) -> None:
    said = describe(Event(kind, "tsk_1", {**AT, **SAMPLES[kind]}), "t")
    assert said.isprintable()
    assert len(said.strip().removeprefix("t:").strip()) > 3
    assert said != f"t: {kind}"


def test_a_review_without_a_summary_ends_with_its_reviewer() -> None:
    review = {"gate": "spec_gate", "verdict": "approved", "reviewer": "rex", "summary": "", "findings": []}
    said = describe(Event(Kind.REVIEW_APPENDED, "tsk_1", {**AT, "review": review}), "")
    assert said == "spec_gate: approved by rex"


def test_every_event_that_happens_has_its_sentence() -> None:
    world = World.begin(7)
    for _ in range(60):
        step(world)
    for recorded in event_log.read(world.store.db):
        said = describe(recorded.event, "t")
        assert said.isprintable()
        assert said != f"t: {recorded.event.kind}"
    world.store.close()


def test_the_end_of_a_turn_says_which_model_was_used() -> None:
    turn = {
        "purpose": "review",
        "agent": "bob",
        "outcome": "succeeded",
        "usage": {"output_tokens": 3},
        "model": "acme/m-1",
    }
    said = describe(Event(Kind.TURN_ENDED, "tsk_1", {**AT, "turn": turn}), "")
    assert said == "the review turn of bob succeeded (acme/m-1, 3 tokens)"
    stopped = {"turn": {**turn, "outcome": "aborted", "model": None, "usage": {}}}
    assert describe(Event(Kind.TURN_ENDED, "tsk_1", {**AT, **stopped}), "") == "the review turn of bob was stopped"
    ended = {"ordinal": 1, "attempt_changes": {"status": "succeeded"}, "turn": turn}
    assert (
        describe(Event(Kind.ATTEMPT_ENDED, "tsk_1", {**AT, **ended}), "") == "attempt 1 succeeded (acme/m-1, 3 tokens)"
    )


def test_the_sentences_of_a_log_say_plainly_who_did_what() -> None:
    artifact = {"kind": "other", "produced_by": "mailboxd", "summary": "the action a: it was written"}
    void = {"status": "expired", "void": True, "resolved_by": "mailboxd", "note": "asked again: ann has gone"}
    notice = {"to": "notify.command", "what": "failed", "text": "has failed: write"}
    said: dict[Kind, tuple[dict[str, Any], str]] = {
        Kind.ARTIFACT_RECORDED: ({"artifacts": [artifact]}, "t: recorded by mailboxd: the action a: it was written"),
        Kind.APPROVAL_RESOLVED: (
            {"approval": "apr_000001", "changes": void},
            "t: approval 000001 is void: asked again: ann has gone",
        ),
        Kind.NOTICE_SENT: (notice, 't: told notify.command the notice "failed": has failed: write'),
        Kind.TASK_AMENDED: (
            {"note": "", "changes": {"due": "2026-01-02T02:00:00.000Z", "heartbeat": AT["at"]}},
            "t: its reply is due by 2 Jan 02:00 UTC",
        ),
        Kind.EDIT_SETTLED: (
            {"file": "task.md", "how": "taken", "by": "", "given": {"name": "accept", "note": "good enough"}},
            "t: the refused task.md is settled: taken; note: good enough",
        ),
    }
    for kind, (data, sentence) in said.items():
        assert describe(Event(kind, "tsk_1", {**AT, **data}), "t") == sentence
