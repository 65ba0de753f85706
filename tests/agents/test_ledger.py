"""Looking up a turn whose outcome is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.outcomes import Aborted, Failed, Outage, Permanence, Succeeded, Unknown
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.openclaw_runs import (
    CheckAgain,
    FetchedReply,
    FetchReply,
    LostTurn,
    ReplySource,
    RunRecord,
    RunStatus,
    parse_reply,
    parse_run,
    resolve,
)
from tests.agents.recorded import printed, recorded

OPENCLAW = OpenClaw(("openclaw",))
LOST = LostTurn("agent:beta:mailboxd:t1", run_id=None, waited=0, patience=600)
SETTLED = replace(LOST, waited=50)
RUN = "921eb29e-829d-4dfa-a0e0-8bdbcab907aa"
RERUN, UNREAD = "5879331a-7ec8-4e03-b72d-9f76287c70de", "trn_01M8ANV54YNSTK2SYF3YCX8M40"
LONG_RUN = "7faae116-bb57-4c5c-a6fa-576f8c8649c9"


def answer(status: RunStatus, **fields: object) -> RunRecord:
    return replace(RunRecord(status, run_id="r1"), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "status"),
    [
        ("tasks-show-notfound", RunStatus.NOT_FOUND),
        ("tasks-show-running", RunStatus.RUNNING),
        ("tasks-show-succeeded", RunStatus.SUCCEEDED),
        ("tasks-show-full-key", RunStatus.SUCCEEDED),
        ("tasks-show-failed", RunStatus.FAILED),
        ("tasks-show-cancelled", RunStatus.ABORTED),
        ("tasks-show-after-crash", RunStatus.INTERRUPTED),
        ("tasks-show-gateway-down", RunStatus.INTERRUPTED),
        ("tasks-show-timed-out", RunStatus.TIMED_OUT),
        ("err-gateway-down", RunStatus.UNAVAILABLE),
        ("version", RunStatus.UNAVAILABLE),
        ("sigterm", RunStatus.UNAVAILABLE),
    ],
)
def test_the_ledger_is_read_as_recorded(case: str, status: RunStatus) -> None:
    assert parse_run(recorded(case)).status is status


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("queued", RunStatus.RUNNING),
        ("lost", RunStatus.LOST),
        ("blocked", RunStatus.FAILED),
        ("new-word", RunStatus.UNAVAILABLE),
        ("", RunStatus.UNAVAILABLE),
    ],
)
def test_every_documented_status_has_a_meaning_and_no_other(word: str, status: RunStatus) -> None:
    assert parse_run(printed({"status": word})).status is status


def test_the_ledger_names_the_run_and_the_tools_it_used() -> None:
    assert parse_run(recorded("tasks-show-succeeded")) == RunRecord(RunStatus.SUCCEEDED, RUN)
    used = parse_run(printed({"status": "running", "runId": "r", "toolUseCount": 3}))
    assert (used.run_id, used.tool_use_count) == ("r", 3)


def test_a_reply_is_found_in_the_history_by_its_run() -> None:
    found = parse_reply(ReplySource.HISTORY, recorded("chat-history"), RUN)
    assert found == FetchedReply(
        ReplySource.HISTORY, answered=True, text="All done.", used_tools=False, model="stub/stub-1"
    )


def test_the_reply_of_another_run_is_not_taken() -> None:
    for run in ("other", None):
        assert parse_reply(ReplySource.HISTORY, recorded("chat-history"), run).text is None


def test_a_reply_that_the_history_cut_is_marked_as_cut() -> None:
    found = parse_reply(ReplySource.HISTORY, recorded("chat-history-cut"), LONG_RUN)
    assert found.text is not None
    assert found.cut


def test_a_session_that_never_was_is_empty() -> None:
    assert parse_reply(ReplySource.HISTORY, recorded("chat-history-none"), None).empty
    assert not parse_reply(ReplySource.HISTORY, recorded("chat-history"), None).empty


def test_a_reply_is_found_by_waiting_for_an_ended_run() -> None:
    assert parse_reply(ReplySource.WAIT, recorded("agent-wait-ok"), RUN).text == "All done."
    assert parse_reply(ReplySource.WAIT, recorded("agent-wait-unknown"), RUN) == FetchedReply(
        ReplySource.WAIT, answered=True
    )


def test_a_reply_as_long_as_waiting_can_tell_is_taken_for_cut() -> None:
    waited = printed({"status": "ok", "terminalReply": {"text": "x" * 4096}})
    assert parse_reply(ReplySource.WAIT, waited, RUN).cut


@pytest.mark.parametrize("source", list(ReplySource))
def test_no_gateway_is_no_answer(source: ReplySource) -> None:
    assert not parse_reply(source, recorded("err-gateway-down"), RUN).answered


def test_a_success_is_fetched_from_the_history_then_by_waiting() -> None:
    succeeded = answer(RunStatus.SUCCEEDED)
    first = resolve(OPENCLAW, LOST, succeeded)
    assert first == FetchReply(OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r1")
    nothing = FetchedReply(ReplySource.HISTORY, answered=True)
    assert resolve(OPENCLAW, LOST, succeeded, nothing) == FetchReply(OPENCLAW.wait_argv("r1"), ReplySource.WAIT, "r1")
    found = FetchedReply(ReplySource.WAIT, answered=True, text="x", cut=True)
    assert resolve(OPENCLAW, LOST, succeeded, found) == Succeeded("x", run_id="r1", truncated=True)


def test_a_success_whose_reply_is_gone_is_unknown_and_never_repeated_blindly() -> None:
    gone = FetchedReply(ReplySource.WAIT, answered=True)
    outcome = resolve(OPENCLAW, LOST, answer(RunStatus.SUCCEEDED), gone)
    assert isinstance(outcome, Unknown)
    assert (outcome.looked_up, outcome.harmless) == (True, False)
    own = replace(LOST, run_id="r1")
    for tools, harmless in ((0, True), (1, False)):
        outcome = resolve(OPENCLAW, own, answer(RunStatus.SUCCEEDED, tool_use_count=tools), gone)
        assert isinstance(outcome, Unknown)
        assert outcome.harmless is harmless
        assert outcome.error.endswith("; it used no tool") is harmless, "or nobody knows why it runs again"


def test_a_rerun_under_a_new_run_id_is_taken() -> None:
    lost = replace(LOST, run_id="old")
    found = FetchedReply(ReplySource.HISTORY, answered=True, text="x")
    assert resolve(OPENCLAW, lost, answer(RunStatus.SUCCEEDED, run_id="new"), found) == Succeeded("x", run_id="new")


def test_a_rerun_of_a_turn_that_no_agent_has_read_is_no_answer_to_it() -> None:
    """A gateway killed between the two: restarted, it has the agent continue what the agent never saw."""
    rerun, read = answer(RunStatus.SUCCEEDED, run_id=RERUN), RunRecord(RunStatus.SUCCEEDED, UNREAD)
    found = parse_reply(ReplySource.HISTORY, recorded("chat-history-rerun-unread"), RERUN)
    assert (found.text, found.unread, found.used_tools) == ("Done.", frozenset({UNREAD}), False)
    for lost in (replace(LOST, run_id=UNREAD), LOST):
        outcome = resolve(OPENCLAW, lost, rerun, found)
        assert isinstance(outcome, Unknown)
        assert (outcome.run_id, outcome.looked_up, outcome.harmless) == (RERUN, True, True)
        used = resolve(OPENCLAW, lost, rerun, replace(found, used_tools=True))
        assert isinstance(used, Unknown)
        assert not used.harmless
    other = replace(LOST, run_id="a later turn of the session")
    assert resolve(OPENCLAW, other, rerun, found) == Succeeded("Done.", run_id=RERUN, model="scripted/beta")
    assert resolve(OPENCLAW, replace(LOST, run_id=UNREAD), read, found) == Succeeded(
        "Done.", run_id=UNREAD, model="scripted/beta"
    )


def test_a_failure_in_the_ledger_is_judged_like_one_in_an_answer() -> None:
    failed = resolve(OPENCLAW, LOST, parse_run(recorded("tasks-show-failed")))
    assert isinstance(failed, Failed)
    assert failed.permanence is Permanence.TRANSIENT
    denied = resolve(OPENCLAW, LOST, answer(RunStatus.FAILED, error="request failed (HTTP 401)"))
    assert isinstance(denied, Failed)
    assert (denied.permanence, denied.retry_after, denied.run_id) == (Permanence.PERMANENT, 60, "r1")


def test_an_agent_that_was_locked_out_never_started() -> None:
    row = parse_run(recorded("tasks-show-locked-out"))
    outcome = resolve(OPENCLAW, replace(LOST, run_id=row.run_id), row)
    assert outcome == Failed(
        "Agent database execution admission is closed", started=False, run_id=row.run_id, outage=Outage.LOCKED_OUT
    )


def test_a_turn_that_used_tools_before_its_agent_was_locked_out_did_start() -> None:
    """Also where that was another run of the same turn, which OpenClaw had begun before."""
    row = parse_run(recorded("tasks-show-locked-out"))
    used = resolve(OPENCLAW, replace(LOST, run_id=row.run_id), replace(row, tool_use_count=1))
    for outcome in (used, resolve(OPENCLAW, replace(LOST, run_id="earlier"), row), resolve(OPENCLAW, LOST, row)):
        assert isinstance(outcome, Failed)
        assert (outcome.started, outcome.outage) == (True, None)


def test_timed_out_and_cancelled_runs_have_ended() -> None:
    assert isinstance(resolve(OPENCLAW, LOST, parse_run(recorded("tasks-show-timed-out"))), Failed)
    assert isinstance(resolve(OPENCLAW, LOST, parse_run(recorded("tasks-show-cancelled"))), Aborted)


def test_a_running_turn_is_waited_for_as_long_as_patience_lasts() -> None:
    running = answer(RunStatus.RUNNING)
    assert resolve(OPENCLAW, LOST, running) == CheckAgain(15)
    outcome = resolve(OPENCLAW, replace(LOST, waited=590), running)
    assert outcome == Unknown("the ledger says that the turn still runs", "r1", looked_up=True)


@pytest.mark.parametrize("status", [RunStatus.INTERRUPTED, RunStatus.LOST])
def test_after_a_crash_of_the_gateway_its_own_rerun_is_waited_for(status: RunStatus) -> None:
    """45 s from when the gateway answers again: one that is down for an hour runs the turn again after the hour."""
    gone = answer(status, tool_use_count=2)
    assert resolve(OPENCLAW, SETTLED, gone) == FetchReply(
        OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r1"
    )
    assert resolve(OPENCLAW, SETTLED, gone, FetchedReply(ReplySource.HISTORY, answered=False)) == CheckAgain(30)
    back = replace(SETTLED, ready_for=5)
    assert resolve(OPENCLAW, back, gone) == CheckAgain(40)
    assert resolve(OPENCLAW, back, answer(RunStatus.RUNNING)) == CheckAgain(15)  # it does run it again
    outcome = resolve(OPENCLAW, replace(back, ready_for=46), gone)
    assert isinstance(outcome, Unknown)
    assert (outcome.looked_up, outcome.harmless) == (True, False)
    assert "2 tool calls" in outcome.error


@pytest.mark.parametrize(("used_tools", "says"), [(True, "may have tool calls"), (False, "shows no tool call")])
def test_a_lost_turn_is_told_with_what_was_seen_and_nothing_else(used_tools: bool, says: str) -> None:
    """A row that counts no tool proves nothing: the gateway may have died before it had counted one."""
    back, gone = replace(SETTLED, ready_for=46), answer(RunStatus.INTERRUPTED)
    seen = FetchedReply(ReplySource.HISTORY, answered=True, used_tools=used_tools)
    outcome = resolve(OPENCLAW, back, gone, seen)
    assert isinstance(outcome, Unknown)
    assert outcome.error == f"the gateway went away during the turn; its session {says}"


@pytest.mark.parametrize("status", [RunStatus.INTERRUPTED, RunStatus.LOST])
def test_a_lost_turn_is_harmless_if_neither_its_row_nor_its_session_knows_of_a_tool(status: RunStatus) -> None:
    back, gone = replace(SETTLED, ready_for=46), answer(status)
    asked = resolve(OPENCLAW, back, gone)
    assert asked == FetchReply(OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r1")
    for history, harmless in (("chat-history-rerun", True), ("chat-history-tool-killed-gateway", False)):
        outcome = resolve(OPENCLAW, back, gone, parse_reply(ReplySource.HISTORY, recorded(history), "r1"))
        assert isinstance(outcome, Unknown)
        assert (outcome.looked_up, outcome.harmless) == (True, harmless)
    assert resolve(OPENCLAW, back, gone, FetchedReply(ReplySource.HISTORY, answered=False)) == CheckAgain(30)


def test_the_row_of_a_gateway_that_died_with_a_tool_does_not_count_that_tool() -> None:
    """Recorded: the first thing that the tool did was to kill the gateway. The session has its call all the same."""
    row = parse_run(recorded("tasks-show-tool-killed-gateway"))
    assert (row.status, row.tool_use_count) == (RunStatus.INTERRUPTED, 0)
    assert parse_reply(ReplySource.HISTORY, recorded("chat-history-tool-killed-gateway"), None).used_tools
    assert not parse_reply(ReplySource.HISTORY, recorded("chat-history-rerun"), None).used_tools


def test_a_session_that_cannot_be_seen_whole_or_understood_may_have_used_tools() -> None:
    for messages, more in (([], True), ([{"role": "toolResult", "content": "x"}], False), ([{"role": "new"}], False)):
        said = printed({"messages": messages, "hasMore": more})
        assert parse_reply(ReplySource.HISTORY, said, "r1").used_tools


def test_a_session_with_an_input_that_waits_is_not_empty() -> None:
    said = printed({"messages": [], "pendingInputs": {"items": [{"id": "x"}]}, "hasMore": False})
    assert not parse_reply(ReplySource.HISTORY, said, None).empty


def test_a_gateway_that_does_not_come_back_is_given_up_with_the_patience() -> None:
    silent = FetchedReply(ReplySource.HISTORY, answered=False)
    outcome = resolve(OPENCLAW, replace(LOST, waited=580), answer(RunStatus.INTERRUPTED), silent)
    assert outcome == Unknown("the gateway went away during the turn and is not back", "r1", looked_up=True)


def test_the_row_of_a_turn_that_was_heard_before_says_nothing_of_the_lost_one() -> None:
    """A synthesis runs in the session of the plan: if it never arrived, the latest row there is the plan's."""
    lost = replace(SETTLED, earlier_run="r1")
    row = answer(RunStatus.SUCCEEDED)
    asked = resolve(OPENCLAW, lost, row)
    assert isinstance(asked, FetchReply)
    outcome = resolve(OPENCLAW, lost, row, FetchedReply(ReplySource.HISTORY, answered=True, text="the plan"))
    assert isinstance(outcome, Failed)
    assert not outcome.started
    again = resolve(OPENCLAW, lost, answer(RunStatus.SUCCEEDED, run_id="r2"))
    assert again == FetchReply(OPENCLAW.history_argv(LOST.session_key), ReplySource.HISTORY, "r2")
    accepted = resolve(OPENCLAW, replace(lost, run_id="r2"), row)
    assert isinstance(accepted, Unknown)


def test_a_turn_without_a_row_never_started_once_the_gateway_says_that_its_session_is_empty() -> None:
    missing = RunRecord(RunStatus.NOT_FOUND)
    assert resolve(OPENCLAW, LOST, missing) == CheckAgain(45)
    assert isinstance(resolve(OPENCLAW, SETTLED, missing), FetchReply)
    empty = FetchedReply(ReplySource.HISTORY, answered=True, empty=True)
    outcome = resolve(OPENCLAW, SETTLED, missing, empty)
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (False, Permanence.TRANSIENT)


def test_a_turn_without_a_row_is_unknown_if_it_was_accepted_or_its_session_is_not_empty() -> None:
    missing = RunRecord(RunStatus.NOT_FOUND)
    accepted = replace(SETTLED, run_id="r0")
    assert resolve(OPENCLAW, accepted, missing) == Unknown(
        "the gateway accepted the turn, but the ledger has no row of it", "r0", looked_up=True
    )
    full = FetchedReply(ReplySource.HISTORY, answered=True)
    assert isinstance(resolve(OPENCLAW, SETTLED, missing, full), Unknown)


def test_a_gateway_that_does_not_answer_proves_nothing() -> None:
    silent = FetchedReply(ReplySource.HISTORY, answered=False)
    for status in (RunStatus.NOT_FOUND, RunStatus.SUCCEEDED):
        assert resolve(OPENCLAW, SETTLED, answer(status), silent) == CheckAgain(30)
        outcome = resolve(OPENCLAW, replace(LOST, waited=580), answer(status), silent)
        assert isinstance(outcome, Unknown)
        assert outcome.looked_up


def test_an_unreadable_ledger_is_asked_again_then_given_up() -> None:
    unavailable = RunRecord(RunStatus.UNAVAILABLE, error="no such file")
    assert resolve(OPENCLAW, LOST, unavailable) == CheckAgain(30)
    outcome = resolve(OPENCLAW, replace(LOST, waited=600), unavailable)
    assert outcome == Unknown("the ledger cannot be read: no such file", looked_up=True)


fetches = st.none() | st.builds(
    FetchedReply,
    st.sampled_from(ReplySource),
    answered=st.booleans(),
    text=st.none() | st.just("x"),
    cut=st.booleans(),
    empty=st.booleans(),
)


@given(
    st.sampled_from(RunStatus),
    st.none() | st.just("r1"),
    st.none() | st.just("r0"),
    st.floats(0, 2000),
    st.floats(0, 1000),
    fetches,
    st.none() | st.floats(0, 100),
    st.booleans(),
)
def test_a_lookup_comes_to_an_end_and_invents_nothing(
    status: RunStatus,
    row: str | None,
    run: str | None,
    waited: float,
    patience: float,
    fetched: FetchedReply | None,
    ready: float | None,
    heard: bool,
) -> None:
    lost = LostTurn("k", run, waited, patience, "r1" if heard else None, ready)
    result = resolve(OPENCLAW, lost, RunRecord(status, row), fetched)
    if isinstance(result, CheckAgain):
        assert 0 < result.after_seconds <= 45
        assert waited < max(patience, 45) or (ready is not None and ready < 45)
    elif isinstance(result, FetchReply):
        assert fetched is None or fetched.source is ReplySource.HISTORY
    elif isinstance(result, Unknown):
        assert result.looked_up
        assert not (result.harmless and status is RunStatus.RUNNING)
    elif isinstance(result, Succeeded):
        assert status is RunStatus.SUCCEEDED
    elif isinstance(result, Failed) and not result.started:
        assert status is RunStatus.NOT_FOUND or (heard and row == "r1")
        assert run is None


@given(st.sampled_from([0, 1, None]), st.binary(max_size=100))
def test_any_bytes_can_be_read(rc: int | None, raw: bytes) -> None:
    exit_ = Exit(rc, raw)
    assert parse_run(exit_).status is RunStatus.UNAVAILABLE
    for source in ReplySource:
        assert parse_reply(source, exit_, "r").text is None
