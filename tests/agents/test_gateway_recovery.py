"""Turns that were under way when their gateway died: what its sessions say of them, and what is done about each.

The answers have the form that both supported versions of OpenClaw gave when gateways with turns in flight were killed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.outcomes import Aborted, Failed, Outcome, Succeeded, Unknown
from mailboxd.perform.agents.alive import has_ended
from mailboxd.perform.agents.ask import finish
from mailboxd.perform.agents.gateway import client, program
from mailboxd.perform.agents.gateway.program import NOBODY
from mailboxd.perform.agents.gateway.recovery import (
    Answered,
    AskRun,
    Ended,
    RecoveryStage,
    SendAgain,
    Session,
    Undecided,
    Wait,
    judge,
    parse_session,
)
from mailboxd.perform.agents.gateway.transport import Mark
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.transcript import Said
from tests.agents.replay import Frame, Replay
from tests.agents.test_gateway import Conversation, carrying
from tests.e2e.support import eventually

KEY = "trn_1"
RUN = "68cfda9d-4958-4988-8b50-6628021eaa60"
RESUME = "[System] Your previous turn was interrupted by a gateway restart while OpenClaw was waiting on model work."


def prompt(run: str, text: str = "[mailboxd] work turn · task t · attempt 1\n\nWork.") -> Frame:
    return {"role": "user", "content": text, "idempotencyKey": f"{run}:user", "__openclaw": {"seq": 1}}


def says(run: str, text: str, **more: Any) -> Frame:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "__openclaw": {"runId": run}} | more


def calls(run: str) -> tuple[Frame, Frame]:
    call = {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "echo x >> ran"}}
    result = {"role": "toolResult", "content": [{"type": "text", "text": "(no output)"}], "__openclaw": {"runId": run}}
    return {"role": "assistant", "content": [call], "stopReason": "toolUse", "__openclaw": {"runId": run}}, result


def history(*messages: Frame, pending: str = "", more: bool = False, **row: Any) -> dict[str, Any]:
    inputs = [{"state": "interrupted", "runId": pending, "message": {"role": "user"}}] if pending else []
    return {
        "messages": list(messages),
        "pendingInputs": {"items": inputs, "total": len(inputs)},
        "hasMore": more,
        "sessionInfo": {"key": "agent:alpha:mailboxd:x", "hasActiveRun": False, "activeRunIds": [], **row},
    }


MARKED: dict[str, Any] = {"status": "running", "abortedLastRun": True}
ENDED: dict[str, Any] = {"status": "done", "abortedLastRun": False}
STRAY = "11111111-2222-3333-4444-555555555555"

TABLE: dict[str, tuple[dict[str, Any], object]] = {
    "accepted, never begun": (history(pending=KEY), SendAgain()),
    "accepted, and the gateway has not even a session of it": ({"messages": []}, SendAgain()),
    "never begun, in a session with earlier turns": (
        history(prompt("trn_0"), *calls("trn_0"), says("trn_0", "Earlier."), pending=KEY, **ENDED, lastRunId="trn_0"),
        SendAgain(),
    ),
    "never begun, and not on record as accepted": (
        history(prompt("trn_0"), says("trn_0", "Earlier."), **ENDED, lastRunId="trn_0"),
        SendAgain(),
    ),
    "the agent was run without the prompt, and did nothing": (
        history(prompt(STRAY, RESUME), says(STRAY, "What?"), pending=KEY, **ENDED, lastRunId=STRAY),
        SendAgain(),
    ),
    "the agent was run without the prompt, and did something": (
        history(prompt(STRAY, RESUME), *calls(STRAY), says(STRAY, "Done."), pending=KEY, **ENDED, lastRunId=STRAY),
        Undecided(
            "the gateway went away during the turn, and its session does not show whether the turn had begun",
            harmless=False,
        ),
    ),
    "marked, waits": (history(prompt(KEY), **MARKED), Wait(RecoveryStage.MARKED)),
    "marked, waits, a tool had run": (history(prompt(KEY), *calls(KEY), **MARKED), Wait(RecoveryStage.MARKED)),
    "marked, and starting": (
        history(prompt(KEY), **MARKED | {"hasActiveRun": True, "activeRunIds": [RUN]}),
        Wait(RecoveryStage.RUNNING),
    ),
    "queued, as 2026.8.1 says it": (
        history(prompt(KEY), status="queued", abortedLastRun=False, hasActiveRun=True),
        Wait(RecoveryStage.RUNNING),
    ),
    "being resumed, by a run that has no name yet": (
        history(prompt(KEY), status="running", abortedLastRun=False, hasActiveRun=True, activeRunIds=None),
        Wait(RecoveryStage.RUNNING),
    ),
    "not marked yet": (history(prompt(KEY), status="running", abortedLastRun=False), Wait(RecoveryStage.UNCLEAR)),
    "had ended before": (
        history(prompt(KEY), says(KEY, "Forty-two."), **ENDED, lastRunId=KEY),
        Answered(KEY, Said("Forty-two.")),
    ),
    "had ended before, and the transcript has its answer cut": (
        history(prompt(KEY), says(KEY, "Half", stopReason="length"), **ENDED, lastRunId=KEY),
        AskRun(KEY, Said("Half", cut=True)),
    ),
    "had failed before": (
        history(prompt(KEY), status="failed", lastRunId=KEY),
        Ended("the turn ended before the gateway died, without an answer. OpenClaw says of it: failed"),
    ),
    "was resumed": (
        history(
            prompt(KEY), *calls(KEY), prompt(RUN, RESUME), says(RUN, "It ran."), **ENDED, lastRunId=RUN
        ),
        Answered(RUN, Said("It ran.")),
    ),
    "was resumed, as 2026.8.1 shows it": (
        history(prompt(KEY), says(RUN, "It ran."), **ENDED, lastRunId=RUN),
        Answered(RUN, Said("It ran.")),
    ),
    "was resumed, and said nothing that the transcript keeps": (
        history(prompt(KEY), prompt(RUN, RESUME), **ENDED, lastRunId=RUN),
        AskRun(RUN, None),
    ),
    "was resumed, and then somebody wrote in its session": (
        history(
            prompt(KEY), prompt(RUN, RESUME), says(RUN, "It ran."), prompt("chat-1", "And now?"), says("chat-1", "Hm."),
            **ENDED, lastRunId="chat-1",
        ),
        Answered(RUN, Said("It ran.")),
    ),
    "was resumed twice, as its gateway died twice": (
        history(prompt(KEY), says(STRAY, "I beg"), prompt(RUN, RESUME), says(RUN, "Done."), **ENDED, lastRunId=RUN),
        Answered(RUN, Said("Done.")),
    ),
    "given up by OpenClaw after three tries": (
        history(prompt(KEY), *calls(KEY), status="failed", abortedLastRun=True, lastRunId=RUN),
        Undecided(
            "the gateway went away during the turn, and OpenClaw could not resume the turn. "
            "OpenClaw says of it: failed",
            harmless=False,
        ),
    ),
    "its beginning is no longer there": (
        history(says(RUN, "Done."), more=True, **ENDED, lastRunId=RUN),
        Undecided(
            "the gateway went away during the turn, and its session does not show whether the turn had begun",
            harmless=False,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_a_session_says(case: str) -> None:
    said, verdict = TABLE[case]
    assert judge(parse_session(said, KEY)) == verdict


SESSIONS = st.builds(
    Session,
    key=st.just(KEY),
    status=st.sampled_from(["", "queued", "running", "done", "failed", "killed", "timeout", "something new"]),
    is_aborted=st.booleans(),
    is_active=st.booleans(),
    last_run=st.sampled_from([None, KEY, RUN, STRAY, "trn_0"]),
    is_complete=st.booleans(),
    has_prompt=st.booleans(),
    is_empty=st.booleans(),
    is_pending=st.booleans(),
    ours=st.sampled_from([frozenset(), frozenset({"trn_0"})]),
    resumed=st.sampled_from([(), (RUN,), (STRAY, RUN)]),
    used_tools=st.booleans(),
    said=st.sampled_from([(), ((KEY, Said("a")),), ((RUN, Said("b", cut=True)), (KEY, Said("a")))]),
)


@given(SESSIONS)
def test_a_turn_is_sent_again_only_if_it_provably_never_began(session: Session) -> None:
    verdict = judge(session)
    if isinstance(verdict, SendAgain):
        assert not session.has_prompt
        assert session.last_run != KEY
        assert not session.is_active
        assert session.status not in ("running", "queued")


@given(SESSIONS)
def test_while_a_run_is_active_or_to_be_resumed_nothing_is_decided(session: Session) -> None:
    if session.is_active or (session.is_aborted and session.status in ("", "queued", "running")):
        assert isinstance(judge(session), Wait)


@given(SESSIONS)
def test_an_answer_is_never_that_of_another_turn(session: Session) -> None:
    verdict = judge(session)
    if isinstance(verdict, Answered | AskRun):
        assert verdict.run_id not in session.ours
        assert verdict.run_id == KEY or verdict.run_id in session.resumed
        assert session.status == "done"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "pendingInputs", "items", "sessionInfo", "role", "content", "status"]), inner
        )
    ),
)


@pytest.mark.slow
@given(JSON)
def test_whatever_the_gateway_says_is_judged(said: Any) -> None:
    judge(parse_session(said, KEY))


# The program: a gateway that accepts a turn, dies, and comes back


class Recovery:
    """The conversation with a restarted gateway: after the welcome it answers what it is asked, in this order."""

    def __init__(self, tmp_path: Path, *, at_once: bool = True) -> None:
        self.talk = Conversation("ok", tmp_path)
        self.frames = self.talk.up_to("connect", answers=1)
        self._number = 0

    def sent(self, method: str, **params: Any) -> Recovery:
        self._number += 1
        request = {"type": "req", "id": str(self._number), "method": method, "params": params}
        self.frames.append({"sent": request})
        return self

    def answers(self, payload: dict[str, Any], *, to: int | None = None) -> Recovery:
        answer = {"type": "res", "id": str(to or self._number), "ok": True, "payload": payload}
        self.frames.append({"received": answer})
        return self

    def does_not_know_it(self) -> Recovery:
        self.sent("agent", message="?", agentId=NOBODY, deliver=False, idempotencyKey=self.talk.key)
        error = {"code": "INVALID_REQUEST", "message": f'invalid agent params: unknown agent id "{NOBODY}"'}
        self.frames.append({"received": {"type": "res", "id": str(self._number), "ok": False, "error": error}})
        return self.sent("sessions.subscribe")

    def looks(self, payload: dict[str, Any]) -> Recovery:
        return self.sent("chat.history", sessionKey=self.talk.asked["sessionKey"], limit=200).answers(payload)

    def changes(self) -> Recovery:
        payload = {"sessionKey": self.talk.asked["sessionKey"], "reason": "agent.run.ended"}
        self.frames.append({"received": {"type": "event", "event": "sessions.changed", "payload": payload}})
        return self

    def replay(self) -> Replay:
        return Replay(self.talk.up_to("agent", answers=1), drops=1, after=[self.frames])

    def outcome(self) -> tuple[Outcome, Replay]:
        with self.replay() as replay:
            outcome = classify(self.talk.run_turn(replay))
        assert replay.complaints == []
        return outcome, replay


def test_a_turn_that_is_resumed_is_waited_for_and_its_answer_taken(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    key = gateway.talk.key
    gateway.does_not_know_it().looks(history(prompt(key), *calls(key), **MARKED)).changes()
    gateway.looks(history(prompt(key), status="running", hasActiveRun=True)).changes()
    gateway.looks(history(prompt(key), says(RUN, "It ran."), **ENDED, lastRunId=RUN))
    outcome, _ = gateway.outcome()
    assert outcome == Succeeded("It ran.", run_id=RUN)


def test_a_turn_that_never_began_is_sent_again_at_once_in_its_session_under_another_key(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    gateway.does_not_know_it().looks(history(pending=talk.key))
    gateway.sent("agent", **talk.sent["agent"] | {"idempotencyKey": f"{talk.key}.2"})
    result = talk.frames[-1]["received"]["payload"] | {"runId": f"{talk.key}.2"}
    gateway.answers({"runId": f"{talk.key}.2", "status": "accepted"}).answers(result)
    outcome, _ = gateway.outcome()
    assert isinstance(outcome, Succeeded)
    assert (outcome.text, outcome.run_id) == ("Forty-two.", f"{talk.key}.2")
    assert Mark.read(talk.directory).requests == 2


def test_an_answer_that_the_transcript_lacks_is_asked_of_its_run(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    key = gateway.talk.key
    gateway.does_not_know_it().looks(history(prompt(key), prompt(RUN, RESUME), **ENDED, lastRunId=RUN))
    gateway.sent("agent.wait", runId=RUN, timeoutMs=0).answers({"status": "ok", "terminalReply": {"text": "It ran."}})
    outcome, _ = gateway.outcome()
    assert outcome == Succeeded("It ran.", run_id=RUN)


def test_a_turn_of_which_the_gateway_cannot_say_what_became_is_unknown_for_good(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    key = gateway.talk.key
    gateway.does_not_know_it().looks(history(prompt(key), *calls(key), status="failed", lastRunId=RUN))
    outcome, _ = gateway.outcome()
    assert isinstance(outcome, Unknown)
    assert (outcome.looked_up, outcome.harmless, outcome.run_id) == (True, False, key)
    assert "no tool" not in outcome.error


def test_a_turn_that_had_failed_has_failed(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    key = gateway.talk.key
    gateway.does_not_know_it().looks(history(prompt(key), status="failed", lastRunId=key))
    outcome, _ = gateway.outcome()
    assert isinstance(outcome, Failed)
    assert outcome.started


def test_while_its_gateway_is_away_a_turn_is_neither_given_up_nor_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark says so; with the gateway back, the turn is asked about, however long that took."""
    monkeypatch.setattr(program, "RECONNECT_PAUSE", 0.05)
    monkeypatch.setattr(client, "HANDSHAKE_SECONDS", 1.0)
    monkeypatch.setattr(program, "EXTRA_SECONDS", -58.0)  # two seconds for the turn
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    gateway.does_not_know_it().looks(history(prompt(talk.key), says(RUN, "Ran."), **ENDED, lastRunId=RUN))
    first = Replay(talk.up_to("agent", answers=1), drops=1)
    with first, Replay(gateway.frames) as second, carrying(talk.path) as transport:
        talk.pair(first.url)
        child = talk.begin(transport)
        eventually(lambda: Mark.read(talk.directory).run_id, 20)
        first.__exit__()
        eventually(lambda: Mark.read(talk.directory).stage == RecoveryStage.AWAY.name, 20)
        talk.pair(second.url)
        ended = finish(child, 20)
    assert classify(ended) == Succeeded("Ran.", run_id=RUN)
    assert second.complaints == []


def test_a_turn_that_is_stopped_while_it_waits_to_be_resumed_is_aborted_when_it_is(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    abort = {"sessionKey": talk.asked["sessionKey"], "agentId": "alpha"}
    gateway.does_not_know_it().looks(history(prompt(talk.key), **MARKED))
    gateway.sent("chat.abort", **abort).answers({"ok": True, "aborted": False, "runIds": []})
    gateway.sent("chat.abort", **abort).answers({"ok": True, "aborted": True, "runIds": [RUN]})
    with gateway.replay() as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            child = talk.begin(transport)
            eventually(lambda: Mark.read(talk.directory).stage == RecoveryStage.MARKED.name, 20)
            assert not has_ended(child.pidfd)
            recovery = child.recovery()
            assert recovery is not None
            assert recovery.stage == RecoveryStage.MARKED
            child.terminate()
            assert isinstance(classify(finish(child, 20)), Aborted)
    assert replay.complaints == []


def test_a_turn_that_was_given_up_before_it_is_resumed_is_aborted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon waits a few seconds for an abort; the gateway may come to that turn much later."""
    monkeypatch.setattr(program, "_ABORT_TRIES", 1)
    monkeypatch.setattr(program, "_ABORT_PAUSE", 0.01)
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    abort = {"sessionKey": talk.asked["sessionKey"], "agentId": "alpha"}
    gateway.does_not_know_it().looks(history(prompt(talk.key), **MARKED))
    for _ in ("stopped", "given up"):
        gateway.sent("chat.abort", **abort).answers({"ok": True, "aborted": False, "runIds": []})
    gateway.changes()
    gateway.sent("chat.abort", **abort).answers({"ok": True, "aborted": True, "runIds": [RUN]})
    gateway.sent("sessions.unsubscribe")
    with gateway.replay() as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            child = talk.begin(transport)
            eventually(lambda: Mark.read(talk.directory).stage == RecoveryStage.MARKED.name, 20)
            child.terminate()
            outcome = classify(finish(child, 20))
            eventually(lambda: replay.played == sum(map(len, replay.conversations)), 20)
    assert isinstance(outcome, Unknown)
    assert replay.complaints == []


def test_a_gateway_that_dies_again_and_again_before_the_turn_begins_ends_it_without_a_start(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    lives = []
    for number in range(1, 6):
        key = talk.key if number == 1 else f"{talk.key}.{number}"
        life = Recovery(tmp_path)
        life.talk.key = key
        life.does_not_know_it().looks(history(pending=key))
        if number < 5:
            again = f"{talk.key}.{number + 1}"
            life.sent("agent", **talk.sent["agent"] | {"idempotencyKey": again})
            life.answers({"runId": again, "status": "accepted"})
        lives.append(life.frames)
    with Replay(talk.up_to("agent", answers=1), drops=5, after=lives) as replay:
        outcome = classify(talk.run_turn(replay))
    assert isinstance(outcome, Failed)
    assert not outcome.started
    assert replay.complaints == []


def test_many_turns_of_one_gateway_death_are_judged_one_by_one(tmp_path: Path) -> None:
    """Exhaustive over the table: what the program leaves behind for each verdict is read as that verdict."""
    for case, (said, verdict) in TABLE.items():
        if isinstance(verdict, Wait | SendAgain | AskRun):
            continue
        (place := tmp_path / case.replace(" ", "-").replace(",", "")).mkdir()
        gateway = Recovery(place)
        mine = _renamed(said, gateway.talk.key)
        gateway.does_not_know_it().looks(mine)
        outcome, _ = gateway.outcome()
        match verdict:
            case Answered(_, spoken):
                assert isinstance(outcome, Succeeded), case
                assert outcome.text == spoken.text, case
            case Ended():
                assert isinstance(outcome, Failed), case
            case Undecided(error, harmless):
                assert isinstance(outcome, Unknown), case
                assert (outcome.error, outcome.harmless, outcome.looked_up) == (error, harmless, True), case


def _renamed(said: Any, key: str) -> Any:
    if isinstance(said, dict):
        return {name: _renamed(value, key) for name, value in said.items()}
    if isinstance(said, list):
        return [_renamed(value, key) for value in said]
    return said.replace(KEY, key) if isinstance(said, str) and said.startswith(KEY) else said


def test_the_table_has_every_verdict() -> None:
    verdicts = {type(verdict) for _, verdict in TABLE.values()}
    assert verdicts == {Wait, SendAgain, Answered, AskRun, Ended, Undecided}
    assert {verdict.stage for _, verdict in TABLE.values() if isinstance(verdict, Wait)} == set(RecoveryStage) - {
        RecoveryStage.AWAY
    }


# A lost run that is only asked about: after a power cut, or when its turn had to be killed


@pytest.mark.parametrize("began", [True, False])
def test_a_lost_run_is_asked_about_and_never_requested(tmp_path: Path, began: bool) -> None:
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    answer = history(prompt(talk.key), prompt(RUN, RESUME), says(RUN, "It ran."), **ENDED, lastRunId=RUN)
    gateway.does_not_know_it().looks(answer if began else history(pending=talk.key))
    with Replay(gateway.frames) as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            words = transport.lookup_argv("alpha", talk.asked["sessionKey"], talk.key, 60)
            outcome = classify(finish(transport.spawn(tmp_path / "lookup.asked", words, {}), 20))
    if began:
        assert outcome == Succeeded("It ran.", run_id=RUN)
    else:
        assert isinstance(outcome, Failed)
        assert not outcome.started
    assert replay.complaints == []
    assert [said["params"]["message"] for said in replay.heard if said["method"] == "agent"] == ["?"]


def test_a_question_that_is_given_up_leaves_its_run_alone(tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    talk = gateway.talk
    gateway.does_not_know_it().looks(history(prompt(talk.key), **MARKED))
    with Replay(gateway.frames) as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            place = tmp_path / "lookup.asked"
            words = transport.lookup_argv("alpha", talk.asked["sessionKey"], talk.key, 60)
            child = transport.spawn(place, words, {})
            eventually(lambda: Mark.read(place).stage == RecoveryStage.MARKED.name, 20)
            child.terminate()
            assert isinstance(classify(finish(child, 20)), Aborted)
    assert "chat.abort" not in [said["method"] for said in replay.heard]
    assert replay.complaints == []
