"""The tools' effects and refusals: each call through the protocol, on a real database."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.vocabulary import Gate
from mailboxd.engine.engine import Engine
from mailboxd.ledger import event_log
from mailboxd.ledger.store import Store
from mailboxd.surfaces.mcp.tools import TOOLS, checked
from tests.e2e.support import message
from tests.mcp.stand import EXECUTOR, OPERATOR, ORCHESTRATOR, QUALITY, SPEC, Stand

APPROVED: dict[str, Any] = {"task": "t", "kind": "quality", "verdict": "approved", "summary": "good"}


# Creating and reading


def test_a_person_creates_a_root_task_once(stand: Stand) -> None:
    given = {"task_id": "q3", "title": "Sum up", "instructions": "Read it.", "acceptance_criteria": ["One page."]}
    made = stand.call(OPERATOR, "task_create", **given)
    assert (made["task"], made["created"]) == ("q3", True)
    before = stand.last_event()
    again = stand.call(OPERATOR, "task_create", **given)
    assert (again["task"], again["created"]) == ("q3", False)
    assert stand.last_event() == before
    [row] = stand.rows("SELECT sender, parent, executor FROM v_tasks")
    assert row == {"sender": "operator", "parent": None, "executor": "alpha"}
    assert stand.call(OPERATOR, "task_get", task="q3")["spec"]["acceptance_criteria"] == ["One page."]


def test_a_task_is_created_with_its_whole_spec_and_labels_as_by_its_message(stand: Stand) -> None:
    texts = (
        "goal",
        "instructions",
        "context",
        "expected_output",
        "scope_in",
        "scope_out",
        "inputs",
        "outputs",
        "risks",
    )
    spec: dict[str, Any] = {name: f"the {name}\n\n## DAG\n\nsubtasks: {{a: {{agent: self}}}}" for name in texts}
    publish = {"id": "publish", "kind": "command", "argv": ["make", "publish"]}
    spec |= {"acceptance_criteria": ["One page."], "planned_actions": [publish]}
    made = stand.call(OPERATOR, "task_create", task_id="q3", title="Sum up", labels=["finance", "team:a"], **spec)
    assert made["created"] is True, made
    read = stand.call(OPERATOR, "task_get", task="q3")
    assert read["labels"] == ["finance", "team:a"]
    assert {name: read["spec"][name] for name in texts} == {name: spec[name] for name in texts}
    assert read["spec"]["acceptance_criteria"] == ["One page."]
    assert [action["id"] for action in read["spec"]["planned_actions"]] == ["publish"]
    assert "children" not in read
    assert stand.stage.run("ls", "--label", "team:a", "--json").output.count('"local_id"') == 1
    assert stand.stage.run("ls", "--label", "team:b", "--json").output.strip() == "[]"
    listed = stand.call(OPERATOR, "task_list_ready", label="finance")["tasks"]
    assert [row["task"] for row in listed] == ["q3"]
    assert stand.call(OPERATOR, "task_list_ready", label="other") == {"tasks": []}


def test_a_known_task_is_not_created_again_with_other_content(stand: Stand) -> None:
    given = {"task_id": "q3", "title": "Sum up", "instructions": "Read it."}
    stand.call(OPERATOR, "task_create", **given)
    before = stand.last_event()
    for other in ({"instructions": "Write it."}, {"labels": ["new"]}, {"title": "Sum it"}):
        assert stand.call(OPERATOR, "task_create", **given | other)["error"]["rule"] == "id-conflict", other
    assert stand.last_event() == before
    assert stand.drop(message("task", "q3", "# Task: Sum up\n\n## Instructions\n\nRead it.", sender="operator")) == (
        "duplicate"
    ), "a file says the same"


def test_a_task_is_read_with_its_latest_events(stand: Stand) -> None:
    stand.executing()
    assert "events" not in stand.call(OPERATOR, "task_get", task="t")
    shown = stand.call(OPERATOR, "task_get", task="t", include_events_limit=1)["events"]
    assert [(event["kind"], event["actor"]) for event in shown] == [("attempt.started", "mailboxd")]
    assert len(stand.call(OPERATOR, "task_get", task="t", include_events_limit=50)["events"]) > 1


def test_the_kind_of_its_executor_is_known(stand: Stand) -> None:
    stand.executing()
    assert stand.call(OPERATOR, "task_get", task="t")["executor_kind"] == "builder"


def overtake(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen in another process right before the next transaction of this one."""
    batch = Engine.batch

    @contextmanager
    def overtaken(engine: Engine) -> Iterator[None]:
        monkeypatch.setattr(Engine, "batch", batch)
        happens()
        with batch(engine):
            yield

    monkeypatch.setattr(Engine, "batch", overtaken)


def test_the_published_names_of_arguments_are_taken_as_well(stand: Stand) -> None:
    stand.call(OPERATOR, "task_create", task_id="t", title="Sum up")
    assert stand.call(OPERATOR, "task_get", task_id="t")["local_id"] == "t"
    phase = stand.call(OPERATOR, "task_get", task="t")["phase"]
    moved = {"task_id": "t", "from_phase": phase, "to_phase": "cancelled", "reason": "no"}
    assert stand.call(OPERATOR, "task_transition", **moved)["phase"] == "cancelled"
    twice = stand.call(OPERATOR, "task_get", task="t", task_id="t")
    assert "task_id and task are the same argument" in twice["error"]["problem"]


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("task_append_review", {"task_id": "t", "review_type": "quality", "verdict": "approved", "summary": "good"}),
        ("task_resolve_approval", {"approval_id": "apr_1", "resolution": "approved"}),
    ],
)
def test_a_published_name_is_as_good_as_ours(tool: str, given: dict[str, Any]) -> None:
    kind = TOOLS[tool].arguments
    ours = {kind.also.get(name, name): value for name, value in given.items()}
    assert checked(kind, given) == checked(kind, ours)


def test_two_calls_at_once_create_one_task(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats a call that it thinks is lost."""
    given = {"task_id": "q3", "title": "Sum up", "instructions": "Read it."}
    overtake(monkeypatch, lambda: stand.call(OPERATOR, "task_create", **given))
    again = stand.call(OPERATOR, "task_create", **given)
    assert (again["task"], again["created"]) == ("q3", False)
    assert stand.rows("SELECT local_id FROM v_tasks") == [{"local_id": "q3"}]


def test_an_order_is_about_the_task_as_it_is_when_it_is_given(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its circuit opens while the call is under way: then the order is what it is for an open circuit."""
    stand.at_gate(Gate.QUALITY_GATE)
    overtake(monkeypatch, lambda: stand.call(ORCHESTRATOR, "task_open_circuit", task="t", reason="it loops"))
    assert stand.call(OPERATOR, "task_transition", **orders("circuit_open", "completed"))["phase"] == "completed"


def test_a_reviewer_can_read_what_it_needs_without_secrets(stand: Stand) -> None:
    attempt = stand.at_gate(Gate.QUALITY_GATE)
    seen = stand.call(QUALITY, "task_get", task="t")
    assert (seen["phase"], seen["results"], seen["attempt_id"]) == ("quality_gate", "the result", attempt)
    [token] = stand.rows("SELECT reply_token FROM v_attempts")
    assert token["reply_token"] not in json.dumps(seen)


def test_a_long_result_is_cut_and_says_so(stand: Stand) -> None:
    stand.stage.create("t")
    stand.stage.start()
    stand.stage.end_turn("t", "x" * 60_000)
    seen = stand.call(EXECUTOR, "task_get", task="t")["results"]
    assert seen.endswith("… (60000 characters; task.md has all of it)")


@pytest.mark.parametrize("name", ["nobody", "tsk_01ARZ3NDEKTSV4RRFFQ69G5FAV"])
def test_an_unknown_task_is_said_to_be_one(stand: Stand, name: str) -> None:
    assert stand.call(EXECUTOR, "task_get", task=name)["error"]["rule"] == "no-such-task"


def test_each_caller_sees_its_pending_work(stand: Stand) -> None:
    stand.at_gate(Gate.QUALITY_GATE, "reviewed")
    stand.executing("running")
    stand.stage.create("ready")

    def names(who: str) -> list[str]:
        return [row["task"] for row in stand.call(who, "task_list_ready")["tasks"]]

    assert names(EXECUTOR) == ["running", "ready"]
    assert names("executor:other") == []
    assert names(QUALITY) == ["reviewed"]
    assert names(SPEC) == names("quality_reviewer:other") == []
    assert names(OPERATOR) == names(ORCHESTRATOR) == names("lobster:x") == ["ready"]
    stand.call(QUALITY, "task_append_review", **APPROVED | {"task": "reviewed"})
    assert names(QUALITY) == []
    assert len(stand.call(EXECUTOR, "task_list_ready", limit=1)["tasks"]) == 1


# Evidence


def test_a_checkpoint_is_of_the_live_attempt(stand: Stand) -> None:
    attempt = stand.executing()
    assert (
        "attempt.checkpoint"
        in stand.call(EXECUTOR, "task_record_checkpoint", task="t", note="half done", attempt_id=attempt)["recorded"]
    )
    refused = stand.call(EXECUTOR, "task_record_checkpoint", task="t", note="x", attempt_id="att_other")
    assert refused["error"]["rule"] == "stale-attempt"


@pytest.mark.parametrize(
    ("who", "state", "rule"),
    [(EXECUTOR, "ready", "no-attempt"), (EXECUTOR, "completed", "ended"), (EXECUTOR, "circuit_open", "no-attempt")],
)
def test_nothing_is_added_where_nothing_runs(stand: Stand, who: str, state: str, rule: str) -> None:
    if state == "circuit_open":
        stand.open_circuit()
    else:
        stand.stage.create("t")
    if state == "completed":
        stand.stage.start()
        stand.stage.end_turn("t", "The outcome.")
    before = stand.last_event()
    assert stand.call(who, "task_record_checkpoint", task="t", note="x")["error"]["rule"] == rule
    assert stand.last_event() == before


def test_a_file_becomes_an_artifact_with_a_hash_that_we_computed(stand: Stand) -> None:
    stand.executing()
    (stand.stage.ws.root / "out").mkdir()
    (stand.stage.ws.root / "out" / "report.txt").write_bytes(b"figures")
    made = stand.call(EXECUTOR, "task_record_artifact", task="t", kind="test_report", path="out/report.txt")
    digest = hashlib.sha256(b"figures").hexdigest()
    assert (made["uri"], made["sha256"]) == ("workspace:out/report.txt", digest)
    [row] = stand.rows("SELECT kind, uri, sha256, produced_by, attempt FROM v_artifacts")
    assert row == {
        "kind": "test_report", "uri": "workspace:out/report.txt", "sha256": digest, "produced_by": "alpha",
        "attempt": stand.attempt(),
    }  # fmt: skip


def test_a_checkpoint_has_a_type_and_a_payload(stand: Stand) -> None:
    stand.executing()
    said = {"note": "tests ran", "checkpoint_type": "tests", "payload": {"passed": 12, "failed": ["a", "b"]}}
    assert stand.call(EXECUTOR, "task_record_checkpoint", task="t", **said)["recorded"] == ["attempt.checkpoint"]
    [row] = stand.rows("SELECT data FROM v_events WHERE kind = 'attempt.checkpoint' AND role = 'executor'")
    data = json.loads(row["data"])
    assert (data["note"], data["type"], data["payload"]) == ("tests ran", "tests", said["payload"])
    before = stand.last_event()
    for payload in ({"x": "y" * 10_000}, {"x": "\ud83d"}):
        refused = stand.call(EXECUTOR, "task_record_checkpoint", task="t", note="x", payload=payload)
        assert refused["error"]["rule"] == "bad-arguments", payload
    assert stand.last_event() == before


@pytest.mark.parametrize("uri", ["https://example.org/acme/app/pull/7?x=1#files", "urn:ticket:OPS-7"])
def test_an_address_outside_the_workspace_is_evidence(stand: Stand, uri: str) -> None:
    stand.executing()
    made = stand.call(EXECUTOR, "task_record_artifact", task="t", kind="diff", uri=uri, summary="the pull request")
    assert (made["uri"], made["sha256"]) == (uri, "")
    [row] = stand.rows("SELECT kind, uri, summary FROM v_artifacts")
    assert row == {"kind": "diff", "uri": uri, "summary": "the pull request"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "named",
    [
        {"uri": uri}
        for uri in (
            "javascript:alert(1)", "file:///etc/passwd", "https://", "https://u:p@example.org/", "urn:", "http://a b",
            "https://[bad", "/etc/passwd", "workspace:notes.txt", "https://example.org/\u202e", "x" * 3_000,
        )
    ] + [{}, {"uri": "https://example.org/7", "path": "notes.txt"}],
)  # fmt: skip
def test_other_addresses_are_refused(stand: Stand, named: dict[str, str]) -> None:
    stand.executing()
    before = stand.last_event()
    answer = stand.call(EXECUTOR, "task_record_artifact", task="t", kind="diff", **named)
    assert answer["error"]["rule"] == "bad-arguments"
    assert stand.last_event() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/etc/passwd", "outside-workspace"),
        ("../alpha/notes.txt", "outside-workspace"),
        ("a/../../x", "outside-workspace"),
        (".mailboxd/config.yaml", "outside-workspace"),
        (".", "outside-workspace"),
        ("./.mailboxd/mcp.json", "outside-workspace"),
        ("missing.txt", "no-such-file"),
        ("missing/file.txt", "no-such-file"),
        ("link.txt", "no-such-file"),
        ("linked/passwd", "no-such-file"),
        ("pipe", "no-such-file"),
        ("tasks", "no-such-file"),
        ("x" * 300, "no-such-file"),
        ("huge", "file-too-large"),
    ],
)
def test_an_artifact_must_be_a_file_in_the_workspace(stand: Stand, path: str, rule: str) -> None:
    stand.executing()
    root = stand.stage.ws.root
    (root / "link.txt").symlink_to("/etc/passwd")
    (root / "linked").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    with (root / "huge").open("wb") as file:
        file.truncate(256 * 1024 * 1024 + 1)
    before = stand.last_event()
    answer = stand.call(EXECUTOR, "task_record_artifact", task="t", kind="other", path=path)
    assert answer["error"]["rule"] == rule
    assert stand.last_event() == before


# Reviews


def test_an_approval_by_tool_decides_the_gate_and_the_answer_of_the_turn_changes_nothing(stand: Stand) -> None:
    attempt = stand.at_gate(Gate.QUALITY_GATE)
    said = stand.call(QUALITY, "task_append_review", **APPROVED, attempt_id=attempt)
    assert said["phase"] == "completed"
    stand.stage.end_turn("t", "---\ntype: review\nverdict: blocked\n---\n\nI changed my mind.\n")
    assert stand.phase() == "completed"
    assert [row["verdict"] for row in stand.rows("SELECT verdict FROM v_reviews")] == ["approved"]


def test_the_answer_of_the_turn_first_then_the_tool(stand: Stand) -> None:
    stand.at_gate(Gate.QUALITY_GATE, reviewers=("critic", "judge"))
    stand.call(QUALITY, "task_append_review", **APPROVED)
    before = stand.last_event()
    assert stand.call(QUALITY, "task_append_review", **APPROVED)["recorded"] == []
    changed = APPROVED | {"verdict": "blocked"}
    assert stand.call(QUALITY, "task_append_review", **changed)["error"]["rule"] == "already-reviewed"
    assert stand.last_event() == before
    assert stand.phase() == "quality_gate"


def test_findings_reach_the_next_attempt(stand: Stand) -> None:
    stand.at_gate(Gate.SPEC_GATE)
    stand.call(
        SPEC, "task_append_review", task="t", kind="spec", verdict="changes_requested", summary="not yet",
        findings=[{"severity": "major", "message": "the sum is wrong", "file": "report.txt", "line": 3}],
    )  # fmt: skip
    assert stand.phase() == "execution_ready"
    [row] = stand.rows("SELECT findings FROM v_tasks")
    assert "the sum is wrong" in row["findings"]
    [row] = stand.rows("SELECT findings FROM v_reviews")
    assert json.loads(row["findings"])[0]["line"] == 3


def reviewed(who: str = "critic", task: str = "t", verdict: str = "approved", **headers: object) -> str:
    return message("review", task, "## Summary\n\nSeen.", sender=who, verdict=verdict, **headers)


@pytest.mark.parametrize("gate", Gate)
def test_a_review_by_file_counts_as_one_by_tool(stand: Stand, gate: Gate) -> None:
    stand.at_gate(gate)
    assert stand.drop(reviewed(verdict="blocked")) == "accepted"
    assert stand.phase() == "circuit_open"
    [event] = stand.rows("SELECT role, actor FROM v_events WHERE kind = 'review.appended'")
    role = "quality_reviewer" if gate is Gate.QUALITY_GATE else "spec_reviewer"
    assert event == {"role": role, "actor": "critic"}


def test_a_review_by_file_needs_a_reviewer_who_was_asked_and_a_result_to_judge(stand: Stand) -> None:
    stand.at_gate(Gate.QUALITY_GATE, reviewers=("critic", "judge"))
    assert stand.drop(reviewed("eve")) == "not-a-reviewer"
    assert stand.drop(reviewed("alpha")) == "own-work"
    assert stand.drop(reviewed(task="nothing")) == "orphan"
    stand.executing("other")
    assert stand.drop(reviewed(task="other")) == "not-a-reviewer"
    assert stand.drop(reviewed()) == "accepted"
    assert stand.drop(reviewed(verdict="blocked")) == "already-reviewed"
    assert stand.phase() == "quality_gate"


def test_a_review_by_file_of_an_earlier_attempt_does_not_count_for_the_present_one(stand: Stand) -> None:
    first = stand.at_gate(Gate.SPEC_GATE)
    assert stand.drop(reviewed(verdict="changes_requested", attempt=1)) == "accepted"
    assert stand.drop(reviewed(message_id="again")) == "not-under-review"
    stand.stage.end_turn("t", "the turn of the reviewer comes too late")
    stand.stage.start()
    stand.stage.end_turn("t", "a better result")
    assert stand.phase() == "spec_gate"
    for headers in ({}, {"attempt": 1}, {"attempt_id": first}, {"attempt": 1, "attempt_id": stand.attempt()}):
        assert stand.drop(reviewed(**headers)) == "stale-attempt", headers
    assert stand.drop(reviewed(attempt=2)) == "accepted"
    assert stand.phase() == "completed"


@pytest.mark.parametrize(
    ("gate", "who", "kind", "rule"),
    [
        (Gate.SPEC_GATE, QUALITY, "quality", "not-under-review"),
        (Gate.QUALITY_GATE, SPEC, "spec", "not-under-review"),
        (Gate.QUALITY_GATE, SPEC, "quality", "permission-denied"),
        (Gate.SPEC_GATE, QUALITY, "spec", "permission-denied"),
    ],
)
def test_a_review_is_for_the_gate_that_is_open(stand: Stand, gate: Gate, who: str, kind: str, rule: str) -> None:
    stand.at_gate(gate)
    before = stand.last_event()
    answer = stand.call(who, "task_append_review", **APPROVED | {"kind": kind})
    assert answer["error"]["rule"] == rule
    assert stand.last_event() == before


def test_a_spec_is_reviewed_before_anything_runs(stand: Stand) -> None:
    stand.at_gate(Gate.SPEC_REVIEW)
    said = stand.call(SPEC, "task_append_review", task="t", kind="spec", verdict="approved", summary="clear")
    assert said["phase"] == "execution_ready"


def test_a_review_of_an_older_attempt_is_refused(stand: Stand) -> None:
    stand.at_gate(Gate.QUALITY_GATE)
    answer = stand.call(QUALITY, "task_append_review", **APPROVED, attempt_id="att_before")
    assert answer["error"]["rule"] == "stale-attempt"


def test_only_a_requested_reviewer_may_review(stand: Stand) -> None:
    stand.to_be_reviewed()
    assert stand.call(QUALITY, "task_append_review", **APPROVED)["error"]["rule"] == "not-under-review"


# Moving


def orders(from_phase: str, to: str) -> dict[str, Any]:
    return {"task": "t", "from_phase": from_phase, "to": to, "reason": "my word"}


def test_an_order_about_a_phase_that_the_task_has_left_is_refused(stand: Stand) -> None:
    stand.open_circuit()
    before = stand.last_event()
    refused = stand.call(OPERATOR, "task_transition", **orders("executing", "cancelled"))["error"]
    assert refused["rule"] == "stale-phase"
    assert "t is circuit_open, not executing: " in refused["problem"]
    without = {name: said for name, said in orders("circuit_open", "failed").items() if name != "reason"}
    assert stand.call(OPERATOR, "task_transition", **without)["error"]["rule"] == "bad-arguments"
    assert stand.last_event() == before
    assert "my word" in stand.call(OPERATOR, "task_transition", **orders("circuit_open", "failed"))["reason"]


@pytest.mark.parametrize("word", ["reason", "note"])
def test_an_order_takes_its_field_by_the_name_of_other_orders_too(stand: Stand, word: str) -> None:
    stand.executing()
    refused = stand.call(OPERATOR, "task_order", task="t", order="cancel", reason="sold", note="lost")["error"]
    assert "Write reason only." in refused["hint"]
    stand.call(OPERATOR, "task_order", task="t", order="cancel", **{word: "sold"})
    assert [row["reason"] for row in stand.rows("SELECT reason FROM v_tasks")] == ["cancelled by operator: sold"]


@pytest.mark.parametrize("who", [OPERATOR, ORCHESTRATOR])
@pytest.mark.parametrize(
    ("to", "result", "phase"),
    [
        ("cancelled", "", "cancelled"),
        ("execution_ready", "", "execution_ready"),
        ("failed", "", "failed"),
        ("completed", "the result", "completed"),
    ],
)
def test_an_open_circuit_is_decided(stand: Stand, who: str, to: str, result: str, phase: str) -> None:
    stand.open_circuit(result=result)
    assert stand.call(who, "task_transition", **orders("circuit_open", to))["phase"] == phase


@pytest.mark.parametrize(("to", "rule"), [("completed", "illegal-transition"), ("failed", "illegal-transition")])
def test_no_order_ends_work_as_if_it_were_done(stand: Stand, to: str, rule: str) -> None:
    stand.executing()
    assert stand.call(OPERATOR, "task_transition", **orders("executing", to))["error"]["rule"] == rule
    assert stand.phase() == "executing"


def test_opening_a_circuit_stops_the_running_turn(stand: Stand) -> None:
    stand.executing()
    assert stand.call(ORCHESTRATOR, "task_open_circuit", task="t", reason="it loops")["phase"] == "circuit_open"
    [attempt] = stand.rows("SELECT status FROM v_attempts")
    assert attempt["status"] == "aborted"
    assert stand.rows("SELECT kind FROM v_outbox WHERE state = 'pending' AND kind = 'stop_turns'")
    again = stand.call(ORCHESTRATOR, "task_open_circuit", task="t", reason="again")
    assert again["error"]["rule"] == "illegal-transition"


def test_the_orchestrator_can_start_only_ready_tasks(stand: Stand) -> None:
    stand.stage.create("t")
    assert stand.call(ORCHESTRATOR, "task_start_attempt", task="t")["phase"] == "executing"
    assert stand.call(ORCHESTRATOR, "task_start_attempt", task="t")["error"]["rule"] == "not-ready"


# What holds


def test_everything_by_tool_is_in_the_log_and_the_log_replays(stand: Stand, tmp_path: Path) -> None:
    (stand.stage.ws.root / "notes.txt").write_text("evidence")
    stand.to_be_reviewed()
    stand.call(EXECUTOR, "task_record_checkpoint", task="t", note="half \u0000 done \ud83d\ude00")
    stand.call(EXECUTOR, "task_record_artifact", task="t", kind="other", path="notes.txt")
    stand.stage.end_turn("t", "the result")
    stand.call(QUALITY, "task_append_review", **APPROVED)
    stand.stage.create("u")
    stand.call(ORCHESTRATOR, "task_start_attempt", task="u")
    stand.call(ORCHESTRATOR, "task_open_circuit", task="u", reason="stuck")
    assert stand.stage.run("db", "verify").exit_code == 0
    store = Store.open(stand.stage.ws.database, stand.stage.clock.now())
    kinds = {recorded.event.kind.value for recorded in event_log.read(store.db)}
    store.close()
    assert {"attempt.started", "attempt.ended", "review.appended", "circuit.opened"} <= kinds


def test_the_list_of_ready_tasks_reads_only(stand: Stand) -> None:
    stand.executing()
    before = stand.last_event()
    stand.call(OPERATOR, "task_list_ready", limit=100)
    stand.call(OPERATOR, "task_get", task="t")
    assert stand.last_event() == before
