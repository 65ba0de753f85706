"""What an audit tells: who asked, who did what at which cost, who was told. It judges nothing and survives anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailboxd.core.events import Kind
from mailboxd.ledger import event_log
from mailboxd.operate.auditor import report as reports
from mailboxd.operate.auditor import story as stories
from mailboxd.operate.auditor.place import Place
from mailboxd.operate.auditor.story import Story, facts
from tests.audit.archives import audited
from tests.core.test_describe import SAMPLES
from tests.e2e.support import Agent
from tests.simulation.happenings import step
from tests.simulation.world import World

AT = "2026-01-01T00:00:00.000Z"


def told(*events: tuple[str, str | None, Any]) -> Story:
    story = Story()
    for seq, (kind, task, data) in enumerate(events, 1):
        said = {"seq": seq, "at": AT, "kind": kind, "task": task, "role": "operator", "actor": "ann", "data": data}
        story.take(Place("events/a.jsonl", seq + 1), said)
    return story


def created(name: str, **more: Any) -> tuple[str, str | None, Any]:
    row = {"id": name, "local_id": name, "title": name.upper(), "sender": "boss", "executor": "alpha", "parent": None}
    return "task.created", name, {"v": 2, "task": row | {"root": name, "phase": "spec_draft"} | more}


def turn(usage: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"v": 2, "turn": {"purpose": "work", "agent": "alpha", "outcome": "succeeded", "usage": usage} | more}


def test_a_task_has_its_turns_reviews_artifacts_orders_and_decisions_with_the_policy_that_counted() -> None:
    policy = {"approvals.approvers": {"old": None, "new": ["ann"]}, "limits.usd": {"old": None, "new": 3}}
    later = {"approvals.approvers": {"old": ["ann"], "new": ["eve"]}}
    finding = {"severity": "major", "message": "wrong", "file": "a.py", "line": 3}
    review = {"gate": "quality_gate", "reviewer": "rex", "verdict": "blocked", "summary": "no", "findings": [finding]}
    row = {"id": "msg_1", "type": "task", "sender": "boss", "name": "t.md", "verdict": "accepted"}
    came = {"owner_uid": 1000, "owner": "bob", "came": "renamed", "claimed": "command"}
    decision = {"status": "rejected", "resolved_by": "ann", "note": "not now"}
    said = told(
        ("config.changed", None, {"v": 2, "by": "daemon", "first": True, "changes": policy}),
        created("t"),
        ("message.received", "t", {"v": 2, "message": row | came}),
        ("message.filed", None, {"v": 2, "id": "msg_1", "path": "archive/t.md"}),
        ("turn.ended", "t", turn({"cost_usd": 0.5, "output_tokens": 7}, model="m/1", run="r", prompt={"sha256": "ab"})),
        ("review.appended", "t", {"v": 2, "review": review}),
        ("artifact.recorded", "t", {"v": 2, "artifacts": [{"id": "art_1", "uri": "https://x/y", "sha256": "cd"}]}),
        ("config.changed", None, {"v": 2, "by": "daemon", "first": False, "changes": later}),
        ("approval.resolved", "t", {"v": 2, "approval": "apr_1", "action": "run", "policy": 1, "changes": decision}),
        ("task.amended", "t", {"v": 2, "changes": {}, "given": {"name": "retry", "note": "again"}}),
        ("notice.failed", "t", {"v": 2, "to": "slack:C1", "what": "question", "text": "Which?", "why": "no way"}),
    )
    assert said.unread == 0
    (task,) = said.tasks.values()
    asked = task.asked
    assert asked is not None
    assert (asked.owner_uid, asked.owner, asked.came, asked.claimed) == (1000, "bob", "renamed", "command")
    assert (asked.path, asked.stands.event, str(asked.stands.where)) == ("archive/t.md", 3, "events/a.jsonl line 4")
    (one,) = task.turns
    assert (one.model, one.run, one.prompt, one.cost_usd) == ("m/1", "r", "ab", 0.5)
    (remark,) = task.reviews[0].findings
    assert (remark.severity, remark.message, remark.file, remark.line) == ("major", "wrong", "a.py", 3)
    assert [(art.address, art.sha256) for art in task.artifacts] == [("https://x/y", "cd")]
    (decided,) = task.decisions
    assert decided.policy is not None
    assert (decided.policy.event, decided.policy.fields) == (1, {"approvals.approvers": '["ann"]'})
    assert [(one.order, one.note) for one in task.given] == [("reject", "not now"), ("retry", "again")]
    assert [(one.to, one.sent, one.words, one.why) for one in said.told] == [("slack:C1", False, "Which?", "no way")]
    assert [[(f.path, f.old, f.new) for f in change.fields] for change in said.changes][1] == [
        ("approvals.approvers", '["ann"]', '["eve"]')
    ]
    assert said.owners[1000, "bob"].accepted == 1
    json.dumps(facts(said))


def test_costs_are_summed_by_agent_and_what_a_peer_reports_is_apart() -> None:
    said = told(
        created("t"),
        ("turn.ended", "t", turn({"cost_usd": 0.5})),
        ("turn.ended", None, turn({"cost_usd": 0.25, "input_tokens": 5}, agent="rex")),
        ("turn.ended", "t", turn({})),
        ("usage.reported", "t", {"v": 2, "agent": "beta", "usage": {"cost_usd": 2, "output_tokens": 9}}),
    )
    total = said.total
    assert (total.turns, total.cost_usd, total.unknown, total.reported_usd) == (3, 0.75, 1, 2.0)
    assert (said.costs["alpha"].turns, said.costs["rex"].cost_usd, said.costs["beta"].reported_tokens) == (2, 0.25, 9)
    assert said.tasks["t"].cost.cost_usd == 0.5


def test_turns_without_a_known_cost_are_those_that_the_caps_of_a_day_count() -> None:
    said = told(
        created("t"),
        ("turn.ended", "t", turn({})),
        ("turn.ended", "t", turn({"cost_usd": None, "output_tokens": 9})),
        ("turn.ended", "t", turn({}, ran=False)),
        ("turn.ended", "t", turn({}, delivered=True)),
        ("turn.ended", "t", turn({"cost_usd": 0.0})),
    )
    assert said.total.unknown == 2
    assert reports.spent(said.total).endswith("in 5 turns; 2 turns without a known cost")


def test_votes_are_those_of_the_copies() -> None:
    copies = [
        created(f"t{n}", parent="t", root="t", key=f"c{n}", phase="completed", answer=answer)
        for n, answer in enumerate(("yes", "yes", "no"))
    ]
    answers = [
        ("task.amended", f"t{n}", {"v": 2, "changes": {"answer": answer}})
        for n, answer in enumerate(("yes", "yes", "no"))
    ]
    said = told(created("t", broadcast=True, policy={"join": "majority"}), *copies, *answers)
    votes = facts(said)["tasks"][0]["votes"]
    assert [(vote["key"], vote["said"], vote["counts"]) for vote in votes] == [
        ("c0", "yes", True),
        ("c1", "yes", True),
        ("c2", "no", False),
    ]


def test_of_many_tasks_the_latest_are_kept_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "TASKS", 3)
    children = [created(f"c{n}", parent="t4", root="t4") for n in range(5)]
    said = told(*(created(f"t{n}") for n in range(5)), *children, *[("turn.ended", "t4", turn({}))] * 300)
    assert [[task.id for task in tree] for tree in said.trees()] == [["t4", "c0", "c1"]]
    assert said.left_out["tasks"] == 7
    assert (len(said.tasks["t4"].turns), said.tasks["t4"].left_out, said.total.turns) == (200, 100, 300)


def test_what_one_journal_may_take_is_bounded_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "BUDGET", 50)
    fields = {f"f{n}": {"old": None, "new": "x"} for n in range(30)}
    changed = ("config.changed", None, {"v": 2, "by": "daemon", "first": False, "changes": fields})
    said = told(created("t"), *[changed] * 3, *[("turn.ended", "t", turn({}))] * 40)
    assert (len(said.changes), said.left_out["changes"], said.counts["changes"]) == (1, 2, 3)
    assert said.changes[0].stands.event == 4
    assert (len(said.tasks["t"].turns), said.tasks["t"].left_out, said.total.turns) == (19, 21, 40)


SHAPES: tuple[Any, ...] = (None, [], {}, "x" * 10_000, "\ud800", -1, 10**400, float("nan"), True, [[{}]], {"a": [None]})


def hostile(kind: str) -> list[tuple[str, str | None, Any]]:
    """Events of this kind with each part in each shape."""
    sample = {"v": 2, **SAMPLES[Kind(kind)]}
    events: list[tuple[str, str | None, Any]] = [created("tsk_1"), (kind, "tsk_1", sample)]
    for shape in SHAPES:
        events.append((kind, "tsk_1", shape))
        for name, value in sample.items():
            events.append((kind, "tsk_1", sample | {name: shape}))
            if isinstance(value, dict):
                events += [(kind, "tsk_1", sample | {name: value | {inner: shape}}) for inner in value]
    return events


@pytest.mark.parametrize("kind", Kind)
def test_events_of_any_shape_are_skipped_and_counted(kind: Kind) -> None:
    said = told(*hostile(kind))
    assert said.unread > 0
    assert len(json.dumps(facts(said))) < 2_000_000
    story = Story()
    for shape in SHAPES:
        story.take(Place("a", 1), dict.fromkeys(("seq", "at", "kind", "task", "actor", "data"), shape))
        story.take(Place("a", 1), {})
    assert story.unread == 2 * len(SHAPES)


def test_every_event_that_happens_is_read() -> None:
    world = World.begin(7)
    for _ in range(60):
        step(world)
    story = Story()
    for one in event_log.read(world.store.db):
        event = one.event
        said = {"seq": one.seq, "at": one.at, "kind": event.kind, "task": event.task, "actor": event.actor}
        story.take(Place("a", one.seq), said | {"data": dict(event.data)})
    assert story.unread == 0
    rows = world.store.db.execute("SELECT id, phase FROM tasks").fetchall()
    assert {(task.id, task.phase) for task in story.tasks.values()} == {tuple(row) for row in rows}
    assert sum(len(task.turns) for task in story.tasks.values()) > 0
    world.store.close()


def test_what_daemons_have_left_is_told(alpha: Agent) -> None:
    report = audited(alpha.root)
    said = report.archives[0].story
    assert said.unread == 0
    roots = [tree[0] for tree in said.trees()]
    assert [(task.name, task.state, task.asked is not None) for task in roots] == [
        ("one", "done", True),
        ("two", "done", True),
    ]
    asked = roots[0].asked
    assert asked is not None
    assert (asked.owner_uid is not None, bool(asked.came), len(roots[0].turns[0].prompt)) == (True, True, 64)
    assert [came.name for came in said.rejected] == ["bad.md"]
    assert said.changes[0].first
    assert roots[0].artifacts[0].sha256
    lines = list(reports.lines(report))
    assert lines[0].startswith("consistent")
    assert sum(line.startswith("  costs") for line in lines) == 1
    assert "  files       1 rejected (see --html or --json)" in lines


def test_the_page_tells_everything_and_escapes_it(alpha: Agent) -> None:
    report = audited(alpha.root)
    said = report.archives[0].story
    first = next(iter(said.tasks.values()))
    first.title = "<script>alert(1)</script>\x1b[31m"
    page = reports.page(report, AT)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in page
    assert "<script" not in page
    assert page.index("What it cost") < page.index("Rejected files (1)") < page.index("Tasks (")
    for told in (first.turns[0].prompt, first.artifacts[0].sha256, said.rejected[0].problem.partition(":")[0]):
        assert told in page
    places = [one.stands.where for one in first.turns] + [one.stands.where for one in said.rejected]
    assert all(str(place) in page for place in places)


def test_a_page_is_made_of_whatever_events_say(alpha: Agent) -> None:
    report = audited(alpha.root)
    report.archives[0].story = told(*(event for kind in Kind for event in hostile(kind)))
    assert "<h2>" in reports.page(report, AT)
    assert list(reports.lines(report))
