"""Looking up a turn whose outcome is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.openclaw_runs import (
    AskAgain,
    Fetched,
    FetchReply,
    LedgerAnswer,
    LedgerStatus,
    Lost,
    ReplySource,
    read_ledger,
    read_reply,
    resolve,
)
from mailboxd.core.outcomes import Aborted, Failed, Outage, Permanence, Succeeded, Unknown
from tests.agents.recorded import printed, recorded

OPENCLAW = OpenClaw(("openclaw",))
LOST = Lost("agent:beta:mailboxd:t1", run_id=None, waited=0, patience=600)
SETTLED = replace(LOST, waited=50)
RUN = "921eb29e-829d-4dfa-a0e0-8bdbcab907aa"
LONG_RUN = "7faae116-bb57-4c5c-a6fa-576f8c8649c9"


def answer(status: LedgerStatus, **fields: object) -> LedgerAnswer:
    return replace(LedgerAnswer(status, run_id="r1"), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "status"),
    [
        ("tasks-show-notfound", LedgerStatus.NOT_FOUND),
        ("tasks-show-running", LedgerStatus.RUNNING),
        ("tasks-show-succeeded", LedgerStatus.SUCCEEDED),
        ("tasks-show-full-key", LedgerStatus.SUCCEEDED),
        ("tasks-show-failed", LedgerStatus.FAILED),
        ("tasks-show-cancelled", LedgerStatus.ABORTED),
        ("tasks-show-after-crash", LedgerStatus.INTERRUPTED),
        ("tasks-show-gateway-down", LedgerStatus.INTERRUPTED),
        ("tasks-show-timed-out", LedgerStatus.TIMED_OUT),
        ("err-gateway-down", LedgerStatus.UNAVAILABLE),
        ("version", LedgerStatus.UNAVAILABLE),
        ("sigterm", LedgerStatus.UNAVAILABLE),
    ],
)
def test_the_ledger_is_read_as_recorded(case: str, status: LedgerStatus) -> None:
    assert read_ledger(recorded(case)).status is status


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("queued", LedgerStatus.RUNNING),
        ("lost", LedgerStatus.LOST),
        ("blocked", LedgerStatus.FAILED),
        ("new-word", LedgerStatus.UNAVAILABLE),
        ("", LedgerStatus.UNAVAILABLE),
    ],
)
def test_every_documented_status_has_a_meaning_and_no_other(word: str, status: LedgerStatus) -> None:
    assert read_ledger(printed({"status": word})).status is status


def test_the_ledger_names_the_run_and_the_tools_it_used() -> None:
    assert read_ledger(recorded("tasks-show-succeeded")) == LedgerAnswer(LedgerStatus.SUCCEEDED, RUN)
    used = read_ledger(printed({"status": "running", "runId": "r", "toolUseCount": 3}))
    assert (used.run_id, used.tool_use_count) == ("r", 3)


def test_a_reply_is_found_in_the_history_by_its_run() -> None:
    found = read_reply(ReplySource.HISTORY, recorded("chat-history"), RUN)
    assert found == Fetched(ReplySource.HISTORY, answered=True, text="All done.")


def test_the_reply_of_another_run_is_not_taken() -> None:
    for run in ("other", None):
        assert read_reply(ReplySource.HISTORY, recorded("chat-history"), run).text is None


def test_a_reply_that_the_history_cut_is_marked_as_cut() -> None:
    found = read_reply(ReplySource.HISTORY, recorded("chat-history-cut"), LONG_RUN)
    assert found.text is not None
    assert found.cut


def test_a_session_that_never_was_is_empty() -> None:
    assert read_reply(ReplySource.HISTORY, recorded("chat-history-none"), None).empty
    assert not read_reply(ReplySource.HISTORY, recorded("chat-history"), None).empty


def test_a_reply_is_found_by_waiting_for_an_ended_run() -> None:
    assert read_reply(ReplySource.WAIT, recorded("agent-wait-ok"), RUN).text == "All done."
    assert read_reply(ReplySource.WAIT, recorded("agent-wait-unknown"), RUN) == Fetched(ReplySource.WAIT, answered=True)


def test_a_reply_as_long_as_waiting_can_tell_is_taken_for_cut() -> None:
    waited = printed({"status": "ok", "terminalReply": {"text": "x" * 4096}})
    assert read_reply(ReplySource.WAIT, waited, RUN).cut


@pytest.mark.parametrize("source", list(ReplySource))
def test_no_gateway_is_no_answer(source: ReplySource) -> None:
    assert not read_reply(source, recorded("err-gateway-down"), RUN).answered


def test_a_success_is_fetched_from_the_history_then_by_waiting() -> None:
    succeeded = answer(LedgerStatus.SUCCEEDED)
    first = resolve(OPENCLAW, LOST, succeeded)
    assert first == FetchReply(OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r1")
    nothing = Fetched(ReplySource.HISTORY, answered=True)
    assert resolve(OPENCLAW, LOST, succeeded, nothing) == FetchReply(OPENCLAW.wait_argv("r1"), ReplySource.WAIT, "r1")
    found = Fetched(ReplySource.WAIT, answered=True, text="x", cut=True)
    assert resolve(OPENCLAW, LOST, succeeded, found) == Succeeded("x", run_id="r1", truncated=True)


def test_a_success_whose_reply_is_gone_is_unknown_and_never_repeated_blindly() -> None:
    gone = Fetched(ReplySource.WAIT, answered=True)
    outcome = resolve(OPENCLAW, LOST, answer(LedgerStatus.SUCCEEDED), gone)
    assert isinstance(outcome, Unknown)
    assert (outcome.looked_up, outcome.harmless) == (True, False)
    own = replace(LOST, run_id="r1")
    for tools, harmless in ((0, True), (1, False)):
        outcome = resolve(OPENCLAW, own, answer(LedgerStatus.SUCCEEDED, tool_use_count=tools), gone)
        assert isinstance(outcome, Unknown)
        assert outcome.harmless is harmless


def test_a_rerun_under_a_new_run_id_is_taken() -> None:
    lost = replace(LOST, run_id="old")
    found = Fetched(ReplySource.HISTORY, answered=True, text="x")
    assert resolve(OPENCLAW, lost, answer(LedgerStatus.SUCCEEDED, run_id="new"), found) == Succeeded("x", run_id="new")


def test_a_failure_in_the_ledger_is_judged_like_one_in_an_answer() -> None:
    failed = resolve(OPENCLAW, LOST, read_ledger(recorded("tasks-show-failed")))
    assert isinstance(failed, Failed)
    assert failed.permanence is Permanence.TRANSIENT
    denied = resolve(OPENCLAW, LOST, answer(LedgerStatus.FAILED, error="request failed (HTTP 401)"))
    assert isinstance(denied, Failed)
    assert (denied.permanence, denied.retry_after, denied.run_id) == (Permanence.PERMANENT, 60, "r1")


def test_an_agent_that_was_locked_out_never_started() -> None:
    row = read_ledger(recorded("tasks-show-locked-out"))
    outcome = resolve(OPENCLAW, replace(LOST, run_id=row.run_id), row)
    assert outcome == Failed(
        "Agent database execution admission is closed", started=False, run_id=row.run_id, outage=Outage.LOCKED_OUT
    )


def test_a_turn_that_used_tools_before_its_agent_was_locked_out_did_start() -> None:
    """Also where that was another run of the same turn, which OpenClaw had begun before."""
    row = read_ledger(recorded("tasks-show-locked-out"))
    used = resolve(OPENCLAW, replace(LOST, run_id=row.run_id), replace(row, tool_use_count=1))
    for outcome in (used, resolve(OPENCLAW, replace(LOST, run_id="earlier"), row), resolve(OPENCLAW, LOST, row)):
        assert isinstance(outcome, Failed)
        assert (outcome.started, outcome.outage) == (True, None)


def test_timed_out_and_cancelled_runs_have_ended() -> None:
    assert isinstance(resolve(OPENCLAW, LOST, read_ledger(recorded("tasks-show-timed-out"))), Failed)
    assert isinstance(resolve(OPENCLAW, LOST, read_ledger(recorded("tasks-show-cancelled"))), Aborted)


def test_a_running_turn_is_waited_for_as_long_as_patience_lasts() -> None:
    running = answer(LedgerStatus.RUNNING)
    assert resolve(OPENCLAW, LOST, running) == AskAgain(15)
    outcome = resolve(OPENCLAW, replace(LOST, waited=590), running)
    assert outcome == Unknown("the ledger says that the turn still runs", "r1", looked_up=True)


@pytest.mark.parametrize("status", [LedgerStatus.INTERRUPTED, LedgerStatus.LOST])
def test_after_a_crash_of_the_gateway_its_own_rerun_is_waited_for(status: LedgerStatus) -> None:
    """45 s from when the gateway answers again: one that is down for an hour runs the turn again after the hour."""
    gone = answer(status, tool_use_count=2)
    assert resolve(OPENCLAW, SETTLED, gone) == FetchReply(
        OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r1"
    )
    assert resolve(OPENCLAW, SETTLED, gone, Fetched(ReplySource.HISTORY, answered=False)) == AskAgain(30)
    back = replace(SETTLED, ready_for=5)
    assert resolve(OPENCLAW, back, gone) == AskAgain(40)
    assert resolve(OPENCLAW, back, answer(LedgerStatus.RUNNING)) == AskAgain(15)  # it does run it again
    outcome = resolve(OPENCLAW, replace(back, ready_for=46), gone)
    assert isinstance(outcome, Unknown)
    assert (outcome.looked_up, outcome.harmless) == (True, False)
    assert "2 tool calls" in outcome.error


@pytest.mark.parametrize("status", [LedgerStatus.INTERRUPTED, LedgerStatus.LOST])
def test_a_lost_turn_is_harmless_if_neither_its_row_nor_its_session_knows_of_a_tool(status: LedgerStatus) -> None:
    back, gone = replace(SETTLED, ready_for=46), answer(status)
    asked = resolve(OPENCLAW, back, gone)
    assert asked == FetchReply(OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r1")
    for history, harmless in (("chat-history-rerun", True), ("chat-history-tool-killed-gateway", False)):
        outcome = resolve(OPENCLAW, back, gone, read_reply(ReplySource.HISTORY, recorded(history), "r1"))
        assert isinstance(outcome, Unknown)
        assert (outcome.looked_up, outcome.harmless) == (True, harmless)
    assert resolve(OPENCLAW, back, gone, Fetched(ReplySource.HISTORY, answered=False)) == AskAgain(30)


def test_the_row_of_a_gateway_that_died_with_a_tool_does_not_count_that_tool() -> None:
    """Recorded: the first thing that the tool did was to kill the gateway. The session has its call all the same."""
    row = read_ledger(recorded("tasks-show-tool-killed-gateway"))
    assert (row.status, row.tool_use_count) == (LedgerStatus.INTERRUPTED, 0)
    assert read_reply(ReplySource.HISTORY, recorded("chat-history-tool-killed-gateway"), None).used_tools
    assert not read_reply(ReplySource.HISTORY, recorded("chat-history-rerun"), None).used_tools


def test_a_session_that_cannot_be_seen_whole_or_understood_may_have_used_tools() -> None:
    for messages, more in (([], True), ([{"role": "toolResult", "content": "x"}], False), ([{"role": "new"}], False)):
        said = printed({"messages": messages, "hasMore": more})
        assert read_reply(ReplySource.HISTORY, said, "r1").used_tools


def test_a_session_with_an_input_that_waits_is_not_empty() -> None:
    said = printed({"messages": [], "pendingInputs": {"items": [{"id": "x"}]}, "hasMore": False})
    assert not read_reply(ReplySource.HISTORY, said, None).empty


def test_a_gateway_that_does_not_come_back_is_given_up_with_the_patience() -> None:
    silent = Fetched(ReplySource.HISTORY, answered=False)
    outcome = resolve(OPENCLAW, replace(LOST, waited=580), answer(LedgerStatus.INTERRUPTED), silent)
    assert outcome == Unknown("the gateway went away during the turn and is not back", "r1", looked_up=True)


def test_the_row_of_a_turn_that_was_heard_before_says_nothing_of_the_lost_one() -> None:
    """A synthesis runs in the session of the plan: if it never arrived, the latest row there is the plan's."""
    lost = replace(SETTLED, heard="r1")
    row = answer(LedgerStatus.SUCCEEDED)
    asked = resolve(OPENCLAW, lost, row)
    assert isinstance(asked, FetchReply)
    outcome = resolve(OPENCLAW, lost, row, Fetched(ReplySource.HISTORY, answered=True, text="the plan"))
    assert isinstance(outcome, Failed)
    assert not outcome.started
    again = resolve(OPENCLAW, lost, answer(LedgerStatus.SUCCEEDED, run_id="r2"))
    assert again == FetchReply(OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r2")
    accepted = resolve(OPENCLAW, replace(lost, run_id="r2"), row)
    assert isinstance(accepted, Unknown)


def test_a_turn_without_a_row_never_started_once_the_gateway_says_that_its_session_is_empty() -> None:
    missing = LedgerAnswer(LedgerStatus.NOT_FOUND)
    assert resolve(OPENCLAW, LOST, missing) == AskAgain(45)
    assert isinstance(resolve(OPENCLAW, SETTLED, missing), FetchReply)
    empty = Fetched(ReplySource.HISTORY, answered=True, empty=True)
    outcome = resolve(OPENCLAW, SETTLED, missing, empty)
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (False, Permanence.TRANSIENT)


def test_a_turn_without_a_row_is_unknown_if_it_was_accepted_or_its_session_is_not_empty() -> None:
    missing = LedgerAnswer(LedgerStatus.NOT_FOUND)
    accepted = replace(SETTLED, run_id="r0")
    assert resolve(OPENCLAW, accepted, missing) == Unknown(
        "the gateway accepted the turn, but the ledger has no row of it", "r0", looked_up=True
    )
    full = Fetched(ReplySource.HISTORY, answered=True)
    assert isinstance(resolve(OPENCLAW, SETTLED, missing, full), Unknown)


def test_a_gateway_that_does_not_answer_proves_nothing() -> None:
    silent = Fetched(ReplySource.HISTORY, answered=False)
    for status in (LedgerStatus.NOT_FOUND, LedgerStatus.SUCCEEDED):
        assert resolve(OPENCLAW, SETTLED, answer(status), silent) == AskAgain(30)
        outcome = resolve(OPENCLAW, replace(LOST, waited=580), answer(status), silent)
        assert isinstance(outcome, Unknown)
        assert outcome.looked_up


def test_an_unreadable_ledger_is_asked_again_then_given_up() -> None:
    unavailable = LedgerAnswer(LedgerStatus.UNAVAILABLE, error="no such file")
    assert resolve(OPENCLAW, LOST, unavailable) == AskAgain(30)
    outcome = resolve(OPENCLAW, replace(LOST, waited=600), unavailable)
    assert outcome == Unknown("the ledger cannot be read: no such file", looked_up=True)


fetches = st.none() | st.builds(
    Fetched,
    st.sampled_from(ReplySource),
    answered=st.booleans(),
    text=st.none() | st.just("x"),
    cut=st.booleans(),
    empty=st.booleans(),
)


@given(
    st.sampled_from(LedgerStatus),
    st.none() | st.just("r1"),
    st.none() | st.just("r0"),
    st.floats(0, 2000),
    st.floats(0, 1000),
    fetches,
    st.none() | st.floats(0, 100),
    st.booleans(),
)
def test_a_lookup_comes_to_an_end_and_invents_nothing(
    status: LedgerStatus,
    row: str | None,
    run: str | None,
    waited: float,
    patience: float,
    fetched: Fetched | None,
    ready: float | None,
    heard: bool,
) -> None:
    lost = Lost("k", run, waited, patience, "r1" if heard else None, ready)
    result = resolve(OPENCLAW, lost, LedgerAnswer(status, row), fetched)
    if isinstance(result, AskAgain):
        assert 0 < result.after_seconds <= 45
        assert waited < max(patience, 45) or (ready is not None and ready < 45)
    elif isinstance(result, FetchReply):
        assert fetched is None or fetched.source is ReplySource.HISTORY
    elif isinstance(result, Unknown):
        assert result.looked_up
        assert not (result.harmless and status is LedgerStatus.RUNNING)
    elif isinstance(result, Succeeded):
        assert status is LedgerStatus.SUCCEEDED
    elif isinstance(result, Failed) and not result.started:
        assert status is LedgerStatus.NOT_FOUND or (heard and row == "r1")
        assert run is None


@given(st.sampled_from([0, 1, None]), st.binary(max_size=100))
def test_any_bytes_can_be_read(rc: int | None, raw: bytes) -> None:
    exit_ = Exit(rc, raw)
    assert read_ledger(exit_).status is LedgerStatus.UNAVAILABLE
    for source in ReplySource:
        assert read_reply(source, exit_, "r").text is None
