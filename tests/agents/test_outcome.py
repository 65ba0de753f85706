"""The outcome of a turn, for each row of OpenClaw's measured contract."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.model import Usage
from mailboxd.core.outcomes import Aborted, Failed, Outage, Permanence, Succeeded, Unknown
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.outcome import classify
from tests.agents.recorded import printed, recorded

OK: dict[str, Any] = json.loads(recorded("ok").stdout)


def envelope(**meta: object) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(OK))
    copy["result"]["meta"] |= meta
    return copy


def with_payloads(*payloads: object, **meta: object) -> Exit:
    copy = envelope(**meta)
    copy["result"]["payloads"] = list(payloads)
    return printed(copy)


def failed(case: str) -> Failed:
    outcome = classify(recorded(case))
    assert isinstance(outcome, Failed)
    return outcome


def test_a_success_has_text_run_session_and_cost() -> None:
    assert classify(recorded("ok")) == Succeeded(
        "All done.",
        usage=Usage(input_tokens=10, output_tokens=5, cost_usd=0.00002),
        run_id="921eb29e-829d-4dfa-a0e0-8bdbcab907aa",
        session_ref="fa9d63f2-b64f-410d-a6e9-510073c2a87c",
        model="stub/stub-1",
    )


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("ok-tool", "written"),
        ("ok-full-key", "Full key done."),
        ("ok-tool-no-summary", "The tool run finished, but no final summary was produced."),
    ],
)
def test_a_text_after_tools_is_a_success(case: str, text: str) -> None:
    outcome = classify(recorded(case))
    assert isinstance(outcome, Succeeded)
    assert outcome.text.startswith(text)
    assert not outcome.truncated


def test_a_cut_reply_is_a_success_that_says_so_without_the_notice() -> None:
    outcome = classify(recorded("ok-truncated"))
    assert isinstance(outcome, Succeeded)
    assert (outcome.text, outcome.truncated) == ("cut off", True)


@pytest.mark.parametrize("word", ["REPLY_SKIP", "ANNOUNCE_SKIP", "HEARTBEAT_OK"])
def test_skip_words_are_literal_text(word: str) -> None:
    outcome = classify(with_payloads({"text": word}))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == word


def test_error_and_status_payloads_are_no_speech() -> None:
    said = with_payloads(
        {"text": "one"}, {"text": "⚠️", "isError": True}, {"text": "…", "isStatusNotice": True}, {"text": "two"}
    )
    outcome = classify(said)
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "one\n\ntwo"


def test_a_payload_without_text_leaves_the_visible_text() -> None:
    outcome = classify(with_payloads({"mediaUrl": "x"}, finalAssistantVisibleText="seen"))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "seen"


def test_a_timeout_while_a_tool_runs_is_a_failure_although_openclaw_says_ok() -> None:
    outcome = failed("ok-but-tool-timeout")
    assert outcome.permanence is Permanence.TRANSIENT
    assert outcome.started
    assert "timed out" in outcome.error


@pytest.mark.parametrize("case", ["err-empty", "ok-no-payloads"])
def test_an_agent_that_gave_no_answer_has_heard_all_the_same(case: str) -> None:
    """Empty or NO_REPLY twice: an error since 2026.9, `payloads: []` with exit status 0 on 2026.8.2."""
    outcome = classify(recorded(case) if case == "err-empty" else with_payloads(finalAssistantVisibleText=""))
    assert isinstance(outcome, Failed)
    assert outcome.silent


def test_a_failure_of_another_kind_is_not_silence() -> None:
    assert not any(
        failed(case).silent for case in ("err-500", "err-timeout", "ok-but-tool-timeout", "err-gateway-down")
    )


@pytest.mark.parametrize("payloads", [[], [{"text": "x", "isError": True}], [{"text": " "}], ["x"], [None]])
def test_no_answer_is_a_failure(payloads: list[object]) -> None:
    outcome = classify(with_payloads(*payloads, finalAssistantVisibleText=""))
    assert isinstance(outcome, Failed)
    assert outcome.permanence is Permanence.TRANSIENT


@pytest.mark.parametrize(
    ("case", "permanence", "retry_after", "says"),
    [
        ("err-400", Permanence.PERMANENT, 0, "rejected the request"),
        ("err-401", Permanence.PERMANENT, 60, "HTTP 401"),
        ("err-402", Permanence.PERMANENT, 60, "billing"),
        ("err-429", Permanence.TRANSIENT, 30, "rate limit"),
        ("err-500", Permanence.TRANSIENT, 0, "HTTP 500"),
        ("err-cooldown", Permanence.TRANSIENT, 75, "Retry after about 1 minute"),
        ("err-connection", Permanence.TRANSIENT, 0, "network connection error"),
        ("err-context-overflow", Permanence.PERMANENT, 0, "context_overflow: 400 This model's maximum"),
        ("err-empty", Permanence.TRANSIENT, 0, "incomplete_turn"),
        ("err-timeout", Permanence.TRANSIENT, 0, "timed out; OpenClaw reports no tool call"),
    ],
)
def test_a_model_that_fails_is_a_failure_of_a_started_turn(
    case: str, permanence: Permanence, retry_after: float, says: str
) -> None:
    outcome = failed(case)
    assert (outcome.permanence, outcome.retry_after, outcome.started) == (permanence, retry_after, True)
    assert says in outcome.error
    assert outcome.run_id == json.loads(recorded(case).stdout)["runId"]


@pytest.mark.parametrize(
    ("case", "permanence"),
    [
        ("err-gateway-down", Permanence.TRANSIENT),
        ("err-gateway-draining", Permanence.TRANSIENT),
        ("err-wrong-token", Permanence.PERMANENT),
        ("err-unknown-agent", Permanence.PERMANENT),
        ("err-message-file-missing", Permanence.PERMANENT),
        ("err-message-file-empty", Permanence.PERMANENT),
        ("err-message-file-too-large", Permanence.PERMANENT),
        ("err-message-file-not-utf8", Permanence.PERMANENT),
        ("err-bad-option", Permanence.PERMANENT),
        ("err-bad-timeout", Permanence.PERMANENT),
        ("err-inside-agent", Permanence.PERMANENT),
        ("err-key-of-other-agent", Permanence.PERMANENT),
    ],
)
def test_a_turn_that_the_gateway_did_not_accept_uses_no_attempt(case: str, permanence: Permanence) -> None:
    outcome = failed(case)
    assert (outcome.started, outcome.permanence, outcome.run_id) == (False, permanence, None)


DOWN, LOCKED = Outage.UNREACHABLE, Outage.LOCKED_OUT


@pytest.mark.parametrize(
    ("message", "permanence", "outage"),
    [
        ("Gateway not reachable at ws://127.0.0.1:18789 (ECONNREFUSED).", Permanence.TRANSIENT, DOWN),
        ("agent unavailable during gateway startup", Permanence.TRANSIENT, DOWN),
        ("agent unavailable during gateway shutdown", Permanence.TRANSIENT, DOWN),
        ("agent unavailable during gateway restart", Permanence.TRANSIENT, DOWN),
        ("connect unavailable during gateway suspension", Permanence.TRANSIENT, DOWN),
        ("gateway starting; retry shortly", Permanence.TRANSIENT, DOWN),
        ("gateway closing before request dispatch", Permanence.TRANSIENT, DOWN),
        ("Gateway is draining; new tasks are not accepted", Permanence.TRANSIENT, DOWN),
        ("Gateway cannot start the turn now: agent unavailable during gateway restart", Permanence.TRANSIENT, DOWN),
        ("The server is busy. Please try again in a moment.", Permanence.TRANSIENT, None),
        ("rate limit exceeded for agent; retry after 3s", Permanence.TRANSIENT, None),
        ("agent run admission failed", Permanence.TRANSIENT, None),
        ("another OpenClaw process owns state-lifecycle", Permanence.TRANSIENT, None),
        ('Session "agent:a:k" changed before expected work could start.', Permanence.TRANSIENT, None),
        ('Session "agent:a:k" was deleted while starting work. Retry.', Permanence.TRANSIENT, None),
        ("Gateway cannot start the turn now: something new", Permanence.TRANSIENT, None),
        ("Agent database execution admission is closed", Permanence.TRANSIENT, LOCKED),
        ("Gateway cannot start the turn now: Agent native generation is retiring", Permanence.TRANSIENT, LOCKED),
        ("Agent database execution lost its native owner", Permanence.TRANSIENT, LOCKED),
        ("Agent native generation is retiring", Permanence.TRANSIENT, LOCKED),
        ("OpenClaw state database native owner is retiring", Permanence.TRANSIENT, LOCKED),
        ("Database maintenance resource admission is closed", Permanence.TRANSIENT, LOCKED),
        ("SQLite worker store is closed", Permanence.TRANSIENT, LOCKED),
        ("unauthorized role: node", Permanence.PERMANENT, None),
        ("missing scope: operator.write", Permanence.PERMANENT, None),
        ("invalid agent params: unknown channel: x", Permanence.PERMANENT, None),
        ("unknown method: agent", Permanence.PERMANENT, None),
        ("send blocked by session policy", Permanence.PERMANENT, None),
        ("Message file is a directory: /x", Permanence.PERMANENT, None),
        ("gateway remote mode misconfigured: gateway.remote.url missing", Permanence.PERMANENT, None),
    ],
)
def test_every_error_before_a_run_says_whether_the_host_is_to_blame(
    message: str, permanence: Permanence, outage: Outage | None
) -> None:
    """The words are those of OpenClaw 2026.9.6; without a run id they come before anything was accepted."""
    outcome = classify(printed({"ok": False, "error": {"type": "cli_error", "message": message}}, rc=1))
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence, outcome.outage) == (False, permanence, outage)
    assert outcome.error == message


def test_an_agent_that_is_locked_out_has_a_run_of_which_only_the_ledger_knows_more() -> None:
    """The same words may end a turn in which tools have run."""
    outcome = classify(recorded("err-agent-locked-out"))
    run = json.loads(recorded("err-agent-locked-out").stdout)["runId"]
    assert outcome == Unknown("Agent database execution admission is closed", run_id=run)


def test_a_gateway_that_went_away_in_the_turn_leaves_it_unknown() -> None:
    outcome = classify(recorded("err-gateway-killed"))
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == "d22e294a-432f-420d-aa35-51f1840c940a"
    assert not outcome.looked_up


@pytest.mark.parametrize(
    "message",
    ["gateway timeout after 90000ms", "gateway closed (1006): HTTP 401", "Something new", "its outcome is unknown"],
)
def test_an_accepted_run_with_any_other_error_is_unknown(message: str) -> None:
    error = {"ok": False, "runId": "r1", "origin": "gateway", "error": {"message": message}}
    assert isinstance(classify(printed(error, rc=1)), Unknown)


@pytest.mark.parametrize(
    "value",
    [
        {"ok": False, "error": {"message": "Something new"}},
        {"ok": False, "error": {"message": "gateway closed (1006): ECONNREFUSED"}},
        {"ok": False, "error": {"message": "x\nECONNREFUSED"}},
        {"ok": False, "origin": "gateway", "error": {"message": "Gateway not reachable at x"}},
        {"ok": False, "runId": 7, "error": {"message": "Gateway not reachable at x"}},
        {"ok": False, "runId": "-x", "error": {"message": "Gateway not reachable at x"}},
        {"ok": "false", "error": {"message": "Gateway not reachable at x"}},
        {"ok": 0, "error": {"message": "Gateway not reachable at x"}},
        {"ok": False},
        {"ok": False, "error": None},
    ],
)
def test_only_the_documented_errors_prove_that_nothing_started(value: dict[str, object]) -> None:
    assert isinstance(classify(printed(value, rc=1)), Unknown)


def test_sigterm_aborts_the_turn() -> None:
    assert isinstance(classify(recorded("sigterm")), Aborted)
    assert isinstance(classify(Exit(130, b"")), Aborted)


def test_an_abort_that_the_gateway_did_not_confirm_is_unknown() -> None:
    outcome = classify(recorded("sigterm-unconfirmed"))
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == "f435eab4-1073-4b3c-b40b-475432f85dd0"


def test_an_unconfirmed_abort_of_the_other_wording_is_unknown_too() -> None:
    outcome = classify(Exit(143, b"", b"Interrupted by SIGTERM; Gateway run r-1 was not confirmed aborted.\n"))
    assert outcome == Unknown("stopped, but it was not confirmed that the turn was aborted", run_id="r-1")


@pytest.mark.parametrize("rc", [-9, -15, 137, 1, 2, 127, 0, None])
def test_without_output_nothing_is_known(rc: int | None) -> None:
    assert isinstance(classify(Exit(rc, b"")), Unknown)


@pytest.mark.parametrize(
    "stdout",
    [
        b"null",
        b"[]",
        b"true",
        b'"ok"',
        b"{}",
        b'{"ok":"false"}',
        b'{"status":"ok"}',
        b'{"status":"ok","result":[]}',
        b'{"status":"ok","result":{"payloads":{},"meta":{}}}',
        b"Welcome!\n" + recorded("ok").stdout,
        b"\x1b[31m" + recorded("ok").stdout,
        recorded("ok").stdout * 2,
        recorded("ok").stdout[:-3],
        recorded("ok").stdout.replace(b"1790", b"NaN"),
        recorded("ok").stdout.replace(b'"summary"', b'"status": "ok", "summary"'),
        b"[" * 100_000,
        b"1" * 10_000,
        b"\xff\xfe",
        recorded("rpc-agent-accepted").stdout,
    ],
)
def test_output_that_is_not_openclaws_is_unknown(stdout: bytes) -> None:
    assert isinstance(classify(Exit(0, stdout)), Unknown)


def test_an_output_over_the_cap_is_unknown() -> None:
    assert isinstance(classify(replace(recorded("ok"), truncated=True)), Unknown)


def test_a_lost_exit_status_needs_a_whole_success_as_evidence() -> None:
    assert isinstance(classify(replace(recorded("ok"), rc=None)), Succeeded)
    for case in ("err-timeout", "err-401", "err-gateway-down", "sigterm"):
        assert isinstance(classify(replace(recorded(case), rc=None)), Unknown)


@pytest.mark.parametrize("rc", [1, -9, -15, 143, 130, 255])
def test_a_success_with_a_bad_exit_status_is_unknown(rc: int) -> None:
    outcome = classify(replace(recorded("ok"), rc=rc))
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == "921eb29e-829d-4dfa-a0e0-8bdbcab907aa"


def test_a_failure_with_a_good_exit_status_is_unknown() -> None:
    for case in ("err-timeout", "err-401", "err-gateway-down"):
        assert isinstance(classify(replace(recorded(case), rc=0)), Unknown)


def test_unstorable_text_is_sanitized_and_unsafe_ids_are_dropped() -> None:
    said = with_payloads({"text": "a\ud800b\0c"})
    outcome = classify(Exit(0, said.stdout.replace(b"921eb29e-829d-4dfa-a0e0-8bdbcab907aa", b"--params")))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert outcome.run_id is None


def test_errors_are_short_and_without_control_characters() -> None:
    error = {"ok": False, "error": {"message": "Unknown agent id \x1b[31m" + "x" * 10_000}}
    outcome = classify(printed(error, rc=1))
    assert isinstance(outcome, Failed)
    assert len(outcome.error) == 2000
    assert outcome.error.isprintable()


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": 1, "cacheRead": 2, "cacheWrite": 3, "output": 4, "cost": {"total": 1}}, Usage(6, 4, 1.0)),
        ({"input": -1, "output": True, "cost": {"total": "1"}}, Usage()),
        ({"input": 10**30, "output": 1.5, "cost": None}, Usage()),
        (None, Usage()),
        ([], Usage()),
    ],
)
def test_usage_is_believed_only_as_far_as_it_can_be(usage: object, expected: Usage) -> None:
    outcome = classify(with_payloads({"text": "x"}, agentMeta={"usage": usage}))
    assert isinstance(outcome, Succeeded)
    assert outcome.usage == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from([0, 1, 143, -9, None]), st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_an_outcome_and_never_a_success(rc: int | None, stdout: bytes, stderr: bytes) -> None:
    assert not isinstance(classify(Exit(rc, stdout, stderr)), Succeeded)


@given(st.data(), st.sampled_from([0, 1, None]))
def test_an_envelope_with_anything_in_it_never_raises(data: st.DataObject, rc: int | None) -> None:
    value = envelope()
    at: dict[str, Any] = value
    for key in data.draw(st.sampled_from([(), ("result",), ("result", "meta"), ("result", "meta", "agentMeta")])):
        at = at[key]
    at[data.draw(st.sampled_from(sorted(at)))] = data.draw(json_values)
    outcome = classify(printed(value, rc))
    if isinstance(outcome, Succeeded):
        assert rc != 1
        assert outcome.text.strip()


@pytest.mark.parametrize("stdout", [True, False])
def test_an_unknown_error_is_told_by_its_message(stdout: bool) -> None:
    raw = json.dumps({"ok": False, "error": {"type": "new", "message": "the moon is\nin the way"}}, indent=2).encode()
    outcome = classify(Exit(3, raw) if stdout else Exit(3, b"", raw))
    assert isinstance(outcome, Unknown)
    assert outcome.error.partition("\n")[0].endswith(": the moon is")
