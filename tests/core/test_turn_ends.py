"""What the end of a turn means where there are few words: silence, a cut text, an outcome that was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mailboxd.core.attempts import CUT
from mailboxd.core.corrections import MOST
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.events import Event
from mailboxd.core.inputs import Cancel, Clarification, Edited, Remedy, Unblock
from mailboxd.core.model import Plan, Usage
from mailboxd.core.outcomes import Failed, Planned, PromptDigest, Question, Results, Succeeded, Unclear, Unknown
from mailboxd.core.vocabulary import AttemptStatus, Phase, Turn
from mailboxd.formats.protocol.answer import Asked
from mailboxd.perform import turns
from tests.core.desk import DONE, Desk, child, with_policy


def ends(desk: Desk, name: str, outcome: Succeeded, answer: Results) -> None:
    (order,) = desk.pending(RunTurn, name)
    desk.settles(order, desk.end_of(order, outcome, answer))


SILENT = Unclear(("There was no answer.",), "NO_REPLY", is_silence=True)


def test_silence_is_no_result_and_asked_about() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", SILENT)
    assert "There was no answer." in desk.told("t")
    assert (desk.phase(), desk.task("t").failures) == (Phase.EXECUTING, 0)
    for _ in range(MOST):
        desk.ends("t", SILENT)
    assert (desk.phase(), desk.task("t").error) == (Phase.EXECUTION_READY, "main gave no answer: NO_REPLY")


def test_results_in_its_task_md_are_the_result_of_an_agent_that_says_nothing() -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", Edited(results="Written there."))
    desk.ends("t", SILENT)
    assert (desk.phase(), desk.task("t").result) == (Phase.COMPLETED, "Written there.")


def test_a_plan_in_its_task_md_stands_although_the_agent_says_nothing() -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", Edited(added=(child("a"),)))
    desk.ends("t", SILENT)
    assert desk.phase("t") is Phase.EXECUTING
    desk.done("t.a")
    assert [order.turn for order in desk.orders(RunTurn, "t")] == [Turn.SYNTHESIS]


def test_a_text_that_was_cut_says_so_where_it_is_read() -> None:
    desk = Desk()
    desk.give()
    ends(desk, "t", Succeeded("The first half", truncated=True), Results("The first half"))
    assert desk.task("t").result == f"The first half\n\n{CUT}"


def test_run_session_and_cost_of_a_failed_turn_are_recorded() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Failed("overloaded", usage=Usage(10, 5, 0.25), run_id="run_1", session_ref="ses_1"))
    attempt = desk.attempt()
    assert (attempt.run_id, attempt.session_ref, attempt.usage) == ("run_1", "ses_1", Usage(10, 5, 0.25))


def test_the_next_attempt_after_an_unknown_outcome_keeps_the_session_and_is_told_not_to_do_it_twice() -> None:
    desk = Desk(with_policy(idempotent=True))
    desk.give()
    session = desk.attempt().session_key
    desk.ends("t", Unknown("the gateway went away", "run_1"))
    (lookup,) = desk.orders(LookUp)
    assert (lookup.session_key, lookup.run_id, lookup.heard) == (session, "run_1", None)
    desk.ends("t", Unknown("nobody can tell", "run_1", looked_up=True))
    desk.wait(100)
    assert (desk.attempt().ordinal, desk.attempt().session_key) == (2, session)
    assert "report its result only" in desk.task("t").findings
    desk.ends("t", Failed("overloaded"))
    desk.wait(100)
    assert desk.attempt().ordinal == 3
    assert desk.attempt().session_key != session  # the end of the one before is proven


def test_after_unblocking_an_unknown_outcome_the_session_is_kept_too() -> None:
    desk = Desk()
    desk.give()
    session = desk.attempt().session_key
    desk.ends("t", Unknown("lost"))
    desk.ends("t", Unknown("nobody can tell", looked_up=True))
    assert (desk.phase(), desk.attempt().status) == (Phase.CIRCUIT_OPEN, AttemptStatus.UNKNOWN)
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    assert (desk.attempt().ordinal, desk.attempt().session_key) == (2, session)


@pytest.mark.parametrize("first", ["question", "plan"])
def test_a_lost_turn_is_not_mistaken_for_an_earlier_one_of_its_session(first: str) -> None:
    desk = Desk()
    desk.give()
    answer = Question("Which?") if first == "question" else Planned(Plan((child("a"),)))
    (order,) = desk.pending(RunTurn)
    desk.settles(order, desk.end_of(order, Succeeded("said", run_id="run_1"), answer))
    if first == "question":
        desk.handle("t", Clarification("boss", "This one."))
    else:
        desk.start()
        desk.ends("t.a", DONE)
    desk.ends("t", Unknown("killed"))
    (lookup,) = desk.orders(LookUp, "t")
    assert (lookup.run_id, lookup.heard) == (None, "run_1")


def test_an_agent_that_planned_for_somebody_it_may_not_reach_is_told_whom_it_may() -> None:
    desk = Desk(may_reach=lambda agent: "main may give work to bob" if agent == "ghost" else None)
    desk.give()
    desk.plans("t", child("a", "ghost"))
    assert "main may give work to bob" in desk.told("t")
    desk.plans("t", child("a", "bob"))
    assert desk.phase("t.a") is Phase.EXECUTING


def test_an_answer_that_was_cleaned_is_kept_as_it_came() -> None:
    desk = Desk()
    desk.give()
    (order,) = desk.pending(RunTurn)
    for said, kept in (("<think>Sixty?</think>\n64 chairs", True), ("64 chairs\n", False)):
        how = Succeeded(said)
        end = desk.end_of(order, how, turns.answer(Asked(), how))
        assert isinstance(end.answer, Results)
        assert end.answer.text == "64 chairs"
        assert [made.body for made in end.made] == ([said] if kept else [])


PROMPT = PromptDigest("ab" * 32, 1234)


def lost(desk: Desk, name: str = "t") -> list[Event]:
    """The turn of the task is lost, with what it was asked."""
    (order,) = desk.pending(RunTurn, name)
    ended = turns.ended(replace(order, prompt=PROMPT), order.effect, Unknown("gone"), None)  # type: ignore[arg-type]
    return desk.settles(order, ended)


def prompts_in(events: Sequence[Event]) -> list[object]:
    return [event.data["turn"]["prompt"] for event in events if "turn" in event.data]


def test_a_lost_turn_says_what_it_was_asked_once_its_outcome_is_known() -> None:
    desk = Desk()
    desk.give()
    assert prompts_in(lost(desk)) == []
    (order,) = desk.pending(LookUp, "t")
    assert isinstance(order.effect, LookUp)
    assert order.effect.prompt == PROMPT
    found = turns.ended(order, order.effect, Succeeded("Done.", model="acme/m-1"), Results("Done."))
    (prompt,) = prompts_in(desk.settles(order, found))
    assert prompt == {"sha256": "ab" * 32, "size": 1234}


def test_a_turn_that_is_lost_when_nothing_waits_for_it_says_what_it_was_asked() -> None:
    """Nobody asks about it any more, so its end is this."""
    desk = Desk()
    desk.give()
    (order,) = desk.pending(RunTurn, "t")
    desk.handle("t", Cancel("operator"))
    ended = turns.ended(replace(order, prompt=PROMPT), order.effect, Unknown("gone"), None)  # type: ignore[arg-type]
    assert prompts_in(desk.handle("t", ended)) == [{"sha256": "ab" * 32, "size": 1234}]
