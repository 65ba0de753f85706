"""Each cell of the permission matrix (protocol section 5), tried through every entrance: file, command, tool.

The engine asks the matrix, so no entrance opens a cell that is closed. An entrance may have no way to a cell at all:
then there is nothing that could be sent, and the table of that entrance says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.vocabulary import Gate
from mailboxd.host import process
from tests.cli.asking import TELL, ask
from tests.cli.stage import make
from tests.e2e.support import message, reply
from tests.mcp.stand import EXECUTOR, LOBSTER, OPERATOR, ORCHESTRATOR, QUALITY, SPEC, Stand

VERBS = (
    "read", "start_attempt", "checkpoint", "artifact", "review_spec", "review_quality", "request_approval",
    "resolve_approval", "transition", "open_circuit",
)  # fmt: skip

# As in the protocol: "optional" is y, and so is "through commands" of a person.
MATRIX = f"""
{ORCHESTRATOR}            y y y y - - y y y y
{EXECUTOR}                y - y y - - - - - -
{SPEC}                    y - y y y - - - - -
{QUALITY}                 y - y y - y - - - -
{LOBSTER}                 y - y y - - y y - -
{OPERATOR}                y - - - - - - y y -
"""

# Typed tools

APPROVAL = "{approval}"
"""Stands for the approval that waits."""
REVIEW: dict[str, Any] = {"task": "t", "verdict": "approved", "summary": "good"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("task_get", {"task": "t"}),
    "start_attempt": ("task_start_attempt", {"task": "t"}),
    "checkpoint": ("task_record_checkpoint", {"task": "t", "note": "half done"}),
    "artifact": ("task_record_artifact", {"task": "t", "kind": "other", "path": "notes.txt"}),
    "review_spec": ("task_append_review", {**REVIEW, "kind": "spec"}),
    "review_quality": ("task_append_review", {**REVIEW, "kind": "quality"}),
    "request_approval": (
        "task_request_approval",
        {"task": "t", "action": {"id": "publish", "kind": "command", "argv": ["make", "publish"]}},
    ),
    "resolve_approval": ("task_resolve_approval", {"approval_id": APPROVAL, "decision": "approved"}),
    "transition": (
        "task_transition",
        {"task": "t", "from_phase": "executing", "to": "cancelled", "reason": "enough"},
    ),
    "open_circuit": ("task_open_circuit", {"task": "t", "reason": "stuck"}),
}
EFFECT: dict[str, list[str]] = {
    "start_attempt": ["attempt.started"],
    "checkpoint": ["attempt.checkpoint"],
    "artifact": ["artifact.recorded"],
    "review_spec": ["review.appended"],
    "review_quality": ["review.appended"],
    "request_approval": ["task.amended"],
    "resolve_approval": ["approval.resolved"],
    "transition": ["attempt.ended"],
    "open_circuit": ["circuit.opened"],
}
"""The minimum that an allowed cell records; reading records nothing."""
BY_ITSELF = {(ORCHESTRATOR, "resolve_approval")}
"""Open cells that are no tool's: what expires or is void the engine resolves, and nobody can have it say yes."""


def _cells(table: str, verb: str) -> list[tuple[str, bool]]:
    """Who may and who may not, those first that may not: they leave everything as it was, for all to share a stand."""
    rows = [line.split() for line in table.strip().splitlines()]
    place = 1 + VERBS.index(verb)
    return sorted(((row[0], row[place] == "y") for row in rows), key=lambda cell: cell[1])


def _prepare(stand: Stand, verb: str) -> str:
    """The state in which the verb has something to do; the id of the approval that waits, where there is one."""
    (stand.stage.ws.root / "notes.txt").write_text("evidence")
    match verb:
        case "start_attempt":
            stand.stage.create("t")
        case "review_spec":
            stand.at_gate(Gate.SPEC_GATE)
        case "review_quality":
            stand.at_gate(Gate.QUALITY_GATE)
        case "read" | "checkpoint" | "artifact":
            stand.to_be_reviewed()
        case "resolve_approval":
            (waiting,) = ask(stand.stage, "t", TELL)
            return waiting
        case _:
            stand.executing()
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_column_by_typed_tools(tmp_path: Path, verb: str) -> None:
    shared = Stand(make(tmp_path / "shared"))
    waits = _prepare(shared, verb)
    for number, (who, allowed) in enumerate(_cells(MATRIX, verb)):
        opens = allowed and (who, verb) not in BY_ITSELF
        stand = Stand(make(tmp_path / str(number))) if opens else shared
        waiting = _prepare(stand, verb) if opens else waits
        before, (tool, arguments) = stand.last_event(), CALLS[verb]
        said = {key: waiting if text == APPROVAL else text for key, text in arguments.items()}
        answer = stand.call(who, tool, **said)
        if not opens:
            assert answer["error"]["rule"] == "permission-denied", who
            assert stand.last_event() == before, who
            continue
        assert "error" not in answer, who
        recorded = stand.rows("SELECT kind, role, actor FROM v_events WHERE seq > ? ORDER BY seq", before)
        if verb not in EFFECT:
            assert recorded == [], who
            continue
        assert set(EFFECT[verb]) <= {row["kind"] for row in recorded}, who
        role, _, name = who.partition(":")
        if verb == "resolve_approval":
            name = process.name()  # who decides is whom the operating system says, not what a client is called
        assert (role, name) in [(row["role"], row["actor"]) for row in recorded]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["read", "checkpoint", "artifact"])
@pytest.mark.parametrize(
    ("who", "rule"),
    [
        ("executor:other", "wrong-agent"),
        ("spec_reviewer:other", "not-a-reviewer"),
        ("quality_reviewer:other", "not-a-reviewer"),
        ("quality_reviewer:alpha", "own-work"),
    ],
)
def test_own_and_assigned_mean_that(stand: Stand, who: str, rule: str, verb: str) -> None:
    _prepare(stand, verb)
    before, (tool, arguments) = stand.last_event(), CALLS[verb]
    assert stand.call(who, tool, **arguments)["error"]["rule"] == rule
    assert stand.last_event() == before


@pytest.mark.parametrize(
    ("who", "rule"), [("quality_reviewer:other", "not-a-reviewer"), ("quality_reviewer:alpha", "own-work")]
)
def test_only_an_assigned_reviewer_reviews_and_never_its_own_work(stand: Stand, who: str, rule: str) -> None:
    stand.at_gate(Gate.QUALITY_GATE)
    before = stand.last_event()
    assert stand.call(who, "task_append_review", **REVIEW, kind="quality")["error"]["rule"] == rule
    assert stand.last_event() == before


@pytest.mark.parametrize("role", ["executor", "spec_reviewer", "quality_reviewer", "operator", "orchestrator"])
def test_a_name_does_not_grant_another_role(stand: Stand, role: str) -> None:
    """`operator` as a name is a name; what counts is the role of the connection."""
    stand.executing()
    before = stand.last_event()
    answer = stand.call(f"{role}:operator", "task_open_circuit", task="t", reason="x")
    assert ("error" not in answer) is (role == "orchestrator")
    assert role == "orchestrator" or stand.last_event() == before


# Files


def _about_child(kind: str, body: str = "", **headers: str) -> str:
    return message(kind, "t", body, sender="{who}", subtask_id="c", **headers)


FILES: dict[str, str] = {
    "checkpoint": _about_child("progress", "half done"),
    "artifact": reply("t", "c", "{who}", "the results"),
    "review_spec": _about_child("review", "good", verdict="approved"),
    "review_quality": _about_child("review", "good", verdict="approved"),
    "resolve_approval": message("approval", "t", sender="{who}", approval_id=APPROVAL, decision="approved"),
    "transition": message("cancel", "t", sender="{who}"),
}
NO_MESSAGE = ("read", "start_attempt", "request_approval", "open_circuit")
"""What no message type says."""

# A file has no role, it has a sender: boss gave the work t, worker has its child c, critic is its reviewer.
BY_FILE = """
worker     - - y y - - - - - -
critic     - - - - y y - - - -
alpha      - - - - - - - - - -
mailboxd   - - - - - - - - - -
eve        - - - - - - - - - -
boss       - - - - - - - - y -
operator   - - - - - - - - y -
"""
GATES = {"review_spec": Gate.SPEC_GATE, "review_quality": Gate.QUALITY_GATE}
NOT_TAKEN = {"wrong-agent", "own-work", "not-a-reviewer", "unsigned-approval", "orphan", "late"}


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_column_by_files(tmp_path: Path, verb: str) -> None:
    shared = Stand(make(tmp_path / "shared"))
    if verb in NO_MESSAGE:
        for who, allowed in _cells(BY_FILE, verb):
            assert not allowed
            assert shared.drop(message(verb, "t", sender=who)) == "unknown-type"
        return
    waits = _prepare_files(shared, verb)
    for number, (who, allowed) in enumerate(_cells(BY_FILE, verb)):
        stand = Stand(make(tmp_path / str(number))) if allowed else shared
        waiting = _prepare_files(stand, verb) if allowed else waits
        before = stand.rows("SELECT local_id, phase FROM v_tasks")
        said = stand.drop(FILES[verb].replace("{who}", who).replace(APPROVAL, waiting))
        if allowed:
            assert said == "accepted", who
        else:
            assert said in NOT_TAKEN, who
            assert stand.rows("SELECT local_id, phase FROM v_tasks") == before, who
            assert stand.rows("SELECT id FROM v_reviews") == [], who
        assert stand.rows("SELECT id, status FROM v_approvals") == [{"id": waiting, "status": "pending"}]


def _prepare_files(stand: Stand, verb: str) -> str:
    stand.given_away(GATES.get(verb))
    (waiting,) = ask(stand.stage, "asking", TELL)
    return waiting


# Commands

# A command is a person's, whoever types it: there is one row, and one more for an agent's shell. Where the matrix is
# open and the row here is not, there is no command (yet): nobody comes to that cell this way.
COMMANDS: dict[str, list[str]] = {
    "read": ["show", "t"],
    "transition": ["cancel", "t"],
    "resolve_approval": ["approve", APPROVAL],
    **{verb: [verb.replace("_", "-"), "t"] for verb in VERBS if verb not in ("read", "transition", "resolve_approval")},
}
BY_COMMAND = """
operator   y - - - - - - y y -
agent      y - - - - - - - - -
"""
"""`agent` is an agent's shell."""


@pytest.mark.parametrize("verb", VERBS)
def test_a_column_by_commands(stand: Stand, verb: str) -> None:
    waiting = _prepare(stand, verb)
    for who, allowed in _cells(BY_COMMAND, verb):
        before = stand.last_event()
        env: dict[str, str | None] = {"OPENCLAW_SHELL": "exec" if who == "agent" else None}
        result = stand.stage.run(*(waiting if word == APPROVAL else word for word in COMMANDS[verb]), env=env)
        if allowed:
            assert result.exit_code == 0, result.output
        elif verb in ("transition", "resolve_approval"):
            assert "permission-denied" in result.output
            assert stand.last_event() == before
        else:
            assert f"there is no command '{COMMANDS[verb][0]}'" in result.output
            assert stand.last_event() == before


def test_every_verb_of_the_protocol_is_in_every_table() -> None:
    assert set(CALLS) == set(VERBS) == set(FILES) | set(NO_MESSAGE)
    assert set(COMMANDS) == set(VERBS)
