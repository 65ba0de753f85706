"""Where a task in the inbox comes from, as mailboxd can know it: keys, attempts, the databases of other agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.core.handovers import PILE, STRANGERS, step
from mailboxd.core.model import Handover, Origin
from mailboxd.core.times import to_epoch
from mailboxd.engine.intake import provenance
from mailboxd.engine.intake.provenance import Claims, Provenance
from mailboxd.formats.keys import YES, Proof
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.messages import TaskMessage
from tests.core.desk import Desk, child, plan
from tests.surfaces import edited

SIGNED = Proof(YES, "fingerprint")
TEXT, OTHER = "0123456789abcdef", "fedcba9876543210"
CAME = Handover("gamma", TEXT, "tsk_first", (step("gamma", OTHER),))


@pytest.fixture
def neighbour(tmp_path: Path) -> Desk:
    """The workspace of `main`, another agent of this user."""
    ws = Workspace(tmp_path / "main")
    ws.state.mkdir(parents=True)
    desk = Desk(database=ws.database)
    with desk.engine.batch():
        desk.store.meta.report("agent", "main")
    return desk


@pytest.fixture
def desk(neighbour: Desk, tmp_path: Path) -> Desk:
    """The receiver, whose OpenClaw has `main` too."""
    desk = Desk(clock=neighbour.clock).configured(agent="beta")
    desk.knows_agents({"main": ("", str(tmp_path / "main")), "beta": ("", str(tmp_path / "beta"))})
    return desk


def note(sender: str = "main", text: str = "Pass it on.", /, **headers: Any) -> TaskMessage:
    return TaskMessage.model_validate({"task_id": "note", "from": sender, "title": "News", "preamble": text, **headers})


def of(desk: Desk, message: TaskMessage, proof: Proof | None = None, *, at: str = "") -> Provenance:
    written = int(to_epoch(at or desk.clock.now()) * 1e9)
    with desk.engine.batch():
        return provenance.of(desk.engine, Claims.of(message), proof or Proof(), written)


def given(found: Provenance) -> Handover:
    assert found.handover is not None
    return found.handover


def test_what_the_sender_works_on_is_what_it_hands_on(desk: Desk, neighbour: Desk) -> None:
    neighbour.give("t", origin=Origin(content=TEXT, handover=CAME))
    neighbour.clock.advance(1)
    found = of(desk, note())
    assert not found.is_ours
    assert given(found).source == "main"
    assert (given(found).began, given(found).passed) == ("tsk_first", (*CAME.passed, step("main", TEXT)))
    neighbour.done("t")
    neighbour.clock.advance(1)
    assert given(of(desk, note())).began == "", "it was written when nothing ran"
    assert given(of(desk, note(), at=neighbour.attempt("t").finished_at or "")).began == "tsk_first", "read late"


def test_of_several_works_it_is_the_one_with_the_text_or_the_shortest_chain(desk: Desk, neighbour: Desk) -> None:
    neighbour.give("long", origin=Origin(content=TEXT, handover=CAME))
    neighbour.give("short", origin=Origin(content=OTHER))
    assert given(of(desk, note())).began == neighbour.task("short").id
    again = note()
    neighbour.give("same", origin=Origin(content=again.content, handover=replace(CAME, began="tsk_same")))
    assert given(of(desk, again)).began == "tsk_same"


def test_one_that_waits_for_its_subtasks_writes_nothing(desk: Desk, neighbour: Desk) -> None:
    neighbour.give("waits", plan(child("x", "other")))
    neighbour.give("works", origin=Origin(content=TEXT, handover=CAME))
    assert given(of(desk, note())).began == "tsk_first"


def test_a_dispatch_is_proven_by_its_token_and_bound_by_its_plan(desk: Desk, neighbour: Desk, tmp_path: Path) -> None:
    neighbour.give("t", plan(child("x", "beta")), origin=Origin(content=TEXT, handover=CAME))
    neighbour.start()
    (turn,) = neighbour.orders(RunTurn, "t.x")
    raw = neighbour.dispatch(turn, "t.x", tmp_path)
    attempt = neighbour.attempt("t.x")
    headers = {"attempt_id": attempt.id, "reply_token": attempt.reply_token, "task_id": "t", "subtask_id": "x"}
    assert attempt.reply_token.encode() in raw
    assert b"x-handed-on" not in raw, "another agent here reads this database"
    found = of(desk, note(**headers))
    assert found.is_ours
    assert given(found).passed == (*CAME.passed, step("main", TEXT))
    assert not given(found).counts
    for wrong in ({"reply_token": "guessed"}, {"task_id": "other"}, {"attempt_id": "att_none"}):
        assert not of(desk, note(**headers | wrong)).is_ours


def test_claims_exempt_nobody(desk: Desk) -> None:
    told = {"x-handed-on": ["tsk_other", f"gamma:{TEXT}"]}
    claims = {"attempt_id": "att_1", "reply_token": "t", "delegation_path": None, **told}
    assert of(desk, note(**claims)) == of(desk, note())
    assert given(of(desk, note("ghost"))) == Handover(STRANGERS)
    assert given(of(desk, note("other-ghost"))) == Handover(STRANGERS), "a name that was made up gets no limits"
    assert given(of(desk, note("far.ghost", **claims))) == Handover(STRANGERS)
    assert given(of(desk, note("operator"))).counts


def test_where_nobody_knows_the_agents_a_dispatch_may_have_the_same_text_and_counts(desk: Desk) -> None:
    desk.knows_agents({})
    found = of(desk, note(attempt_id="att_1", reply_token="t"))
    assert (given(found).text, given(found).counts, found.is_ours) == ("", True, False)
    assert given(of(desk, note())).text == note().content


def test_a_person_is_exempt_by_a_signature_in_a_pile_and_for_the_same_text(desk: Desk) -> None:
    assert of(desk, note("operator"), SIGNED).handover is None
    assert of(desk, note("far.operator"), SIGNED).handover is None
    assert given(of(desk, note("operator"))).text == "", "who asks for the same again and again is held by no rule"
    for number in range(20):
        assert given(of(desk, note("operator"))).source == "operator"
        desk.receive(f"t{number}.md", f"# T{number}\n\nWrite chapter {number}.\n".encode())
    assert given(of(desk, note("operator"))) == Handover(PILE), "it has a limit of its own"
    desk.clock.advance(11)
    assert given(of(desk, note("operator"))) == Handover("operator")


def test_another_host_tells_the_chain_with_its_signature(desk: Desk) -> None:
    told = {"x-handed-on": ["tsk_far", f"far.gamma:{TEXT}", f"far.main:{OTHER}"]}
    found = of(desk, note("far.main", **told), SIGNED)
    assert (given(found).began, given(found).passed) == ("tsk_far", (f"far.gamma:{TEXT}", f"far.main:{OTHER}"))
    assert not found.is_ours
    back = {"x-handed-on": ["tsk_here", f"here.beta:{TEXT}", f"far.main:{OTHER}"]}
    with desk.engine.batch():
        own = provenance.of(desk.engine, Claims.of(note("far.main", **back)), SIGNED, host=lambda: "here")
    assert given(own).passed == (f"beta:{TEXT}", f"far.main:{OTHER}"), "it comes back to beta"
    assert of(desk, note("far.main", attempt_id="att_1", reply_token="t", **told), SIGNED).is_ours
    for wrong in ("no list", ["tsk_far", "no step"], []):
        assert given(of(desk, note("far.main", **{"x-handed-on": wrong}), SIGNED)).passed == ()


def test_a_delegation_in_a_chat_says_its_run(desk: Desk) -> None:
    asked = {"reply_to": "session:agent:beta:main", "x-asked-run": "run-1"}
    assert given(of(desk, note("beta", **asked))).began == "run:run-1"
    own_turn = {"reply_to": "session:agent:beta:mailboxd:x", "x-asked-run": "run-1"}
    assert given(of(desk, note("beta", **own_turn))).began == ""


@pytest.mark.parametrize("content", [b"", b"no database"])
def test_a_database_that_cannot_be_read_tells_nothing(desk: Desk, tmp_path: Path, content: bytes) -> None:
    ws = Workspace(tmp_path / "broken")
    ws.state.mkdir(parents=True)
    ws.database.write_bytes(content)
    desk.knows_agents({"main": ("", str(ws.root))})
    assert given(of(desk, note())) == Handover("main", note().content)


def test_a_task_md_that_an_agent_wrote_counts_as_its_note_does(tmp_path: Path) -> None:
    desk = edited.Desk(tmp_path)
    text = "---\nfrom: main\n---\n\n# Task\n\n## Instructions\n\nPass it on.\n"
    for number in range(4):
        (desk.ws.tasks / f"n{number}").mkdir()
        (desk.ws.tasks / f"n{number}" / "task.md").write_text(text)
        desk.save(desk.render())
    tasks = [desk.engine.store.tasks.by_local_id(f"n{number}") for number in range(4)]
    assert [bool(task and task.held) for task in tasks] == [False, False, False, True]
