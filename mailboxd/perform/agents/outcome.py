"""Classify the output of `openclaw agent --json` as one of four outcomes. Tested with OpenClaw 2026.9.6.

The exit code is 1 for nearly every failure, so the JSON decides:

    full result        the gateway saw the run end: succeeded or failed
    error, no runId    never accepted if it is a documented error of that kind, else unknown
    error with runId   accepted; failed if the text says that the model refused, else unknown
    anything else      unknown

The outcome is unknown unless something else is proven: that costs a lookup, a wrong guess costs a second execution.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from mailboxd.core.model import Usage
from mailboxd.core.outcomes import Aborted, Failed, Outage, Outcome, Permanence, Succeeded, Unknown
from mailboxd.core.vocabulary import ANSWER_TOOLS
from mailboxd.perform.agents.call_dir import LOOKED_UP, Exit
from mailboxd.perform.agents.json_output import (
    amount,
    at,
    brief,
    complaint,
    count,
    model_in,
    parse_object,
    reference,
    text,
    text_at,
)

_ABORT_CODES = {143: "SIGTERM", 130: "SIGINT"}
_UNCONFIRMED = re.compile(
    rb"Interrupted by SIG(?:TERM|INT); (?:Gateway run|failed to abort Gateway run|turn of the harness) (\S{1,200}?)[ :]"
)
_COOLDOWN = re.compile(r"Retry after about (\d{1,4}) (second|minute|hour)")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_COOLDOWN_MARGIN = 15.0
_PROVIDER_DISABLED = 60.0
_RATE_LIMITED = 30.0
_CUT_NOTICE = "⚠️ Reply truncated"
_BY_PLUGIN = "mailboxd: the message "
"""The beginning of an error of mailboxd's plugin. OpenClaw up to 2026.9.2 does not mark it as an error."""
_NOT_DELIVERED = f"{_BY_PLUGIN}was not delivered"
"""The beginning of the error for a message that neither the inbox nor the agent has received."""


_LOST = re.compile(r"gateway (?:closed|timeout)\b|.*outcome is unknown", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning of an error message, matched at its beginning."""

    pattern: str
    permanence: Permanence
    retry_after: float = 0.0
    outage: Outage | None = None


_DOWN = Outage.UNREACHABLE
_LOCKED = Outage.LOCKED_OUT
_BY_GATEWAY_PROGRAM = "Gateway cannot start the turn now: "
"""The beginning of a refusal by `agents.gateway`; OpenClaw's message follows."""

HOST_FAILURES = (
    Rule(r"Agent database ", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"Agent native generation is retiring", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"Agent worker l(?:ease|ost) ", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"Agent \S+ database is still open in ", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"OpenClaw (?:agent|state) database ", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"Database maintenance resource ", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"SQLite (?:actor|worker|shared actor|database) ", Permanence.TRANSIENT, outage=_LOCKED),
    Rule(r"another OpenClaw process owns ", Permanence.TRANSIENT),  # for a moment, beside other commands of OpenClaw
)
"""The gateway cannot use this agent's database. That may also happen during a run, so with a run id only OpenClaw's
records can prove that nothing had started."""

NOT_ACCEPTED = (
    *HOST_FAILURES,
    Rule(r"Gateway not reachable at ", Permanence.TRANSIENT, outage=_DOWN),
    Rule(r"[^\n]*\bECONNREFUSED\b", Permanence.TRANSIENT, outage=_DOWN),
    Rule(r"[^\n]*\bHTTP 503\b", Permanence.TRANSIENT, outage=_DOWN),
    Rule(r"\S+ unavailable during gateway ", Permanence.TRANSIENT, outage=_DOWN),
    Rule(r"gateway (?:starting; retry|closing before request dispatch)", Permanence.TRANSIENT, outage=_DOWN),
    Rule(r"[Gg]ateway is draining\b", Permanence.TRANSIENT, outage=_DOWN),
    Rule(r"The server is busy\. ", Permanence.TRANSIENT),
    Rule(r"rate limit exceeded for ", Permanence.TRANSIENT),
    Rule(r"agent run admission failed", Permanence.TRANSIENT),
    Rule(r'Session "[^"]*" (?:changed|was deleted) (?:before|while) ', Permanence.TRANSIENT),
    Rule(r"unauthorized\b", Permanence.PERMANENT),
    Rule(r"missing scope: ", Permanence.PERMANENT),
    Rule(r"gateway remote mode misconfigured: ", Permanence.PERMANENT),
    Rule(r"Unknown agent id ", Permanence.PERMANENT),
    Rule(r"invalid (?:agent params|request frame)\b", Permanence.PERMANENT),
    Rule(r"unknown method: ", Permanence.PERMANENT),
    Rule(r"send blocked by session policy", Permanence.PERMANENT),
    Rule(r"Message file (?:not found|is empty|is a directory|must be valid UTF-8)", Permanence.PERMANENT),
    Rule(r"Unable to read message file ", Permanence.PERMANENT),
    Rule(r"OpenClaw does not recognize option ", Permanence.PERMANENT),
    Rule(r"Invalid --(?:timeout|session-key)\b", Permanence.PERMANENT),
    Rule(r'Agent id "[^"]*" does not match session key agent ', Permanence.PERMANENT),
    Rule(r"No target session selected", Permanence.PERMANENT),
    Rule(r"Gateway agent from agent exec ", Permanence.PERMANENT),
    Rule(r"Gateway refused the turn: ", Permanence.PERMANENT),
    Rule(_BY_GATEWAY_PROGRAM, Permanence.TRANSIENT),
    Rule(r"The harness refused the turn: ", Permanence.PERMANENT),
    Rule(r"The harness cannot start: ", Permanence.TRANSIENT),
)
"""Every error that OpenClaw 2026.9.6 returns before it accepts a run; docs/integrations.md has the table.

The last four are from `agents.gateway` and `agents.acp`. Any other error is unknown.
"""

_MODEL_FAILED = (
    Rule(r".*\bHTTP (?:400|402|403|404)\b", Permanence.PERMANENT),
    Rule(r".*\bHTTP 401\b", Permanence.PERMANENT, _PROVIDER_DISABLED),
    Rule(r".*\breturned a billing error\b", Permanence.PERMANENT, _PROVIDER_DISABLED),
    Rule(r".*\bprovider rejected the request schema\b", Permanence.PERMANENT),
    Rule(r".*\bHTTP 5\d\d\b", Permanence.TRANSIENT),
    Rule(r".*(?:\bHTTP 429\b|\brate limit reached\b)", Permanence.TRANSIENT, _RATE_LIMITED),
    Rule(r".*\bLLM request (?:failed|timed out)\b", Permanence.TRANSIENT),
)
"""Errors of the model's provider, which end an accepted run."""


def classify(exit_: Exit) -> Outcome:
    """The outcome of one turn, from its client's output. Never raises."""
    if exit_.rc in _ABORT_CODES and not exit_.stdout.strip():
        return _aborted(exit_)
    value = parse_object(exit_)
    run_id = None
    if value is not None:
        run_id, outcome, result = reference(value.get("runId")), None, value.get("result")
        payloads, meta = (result.get("payloads"), result.get("meta")) if isinstance(result, dict) else (None, None)
        if isinstance(payloads, list) and isinstance(meta, dict):
            outcome = _from_result(exit_.rc, value.get("status"), payloads, meta, run_id)
        elif exit_.rc == 1 and value.get("ok") is False:
            outcome = _from_error(value, run_id)
        if outcome is not None:
            return outcome
    return Unknown(_describe(exit_), run_id=run_id)


def model_failure(message: str) -> Failed | None:
    """The failure that an error of an accepted run proves, with its permanence and retry time; else None."""
    if _LOST.match(message):
        return None
    cooldown = _COOLDOWN.search(message)
    if cooldown is not None:
        wait = int(cooldown[1]) * _SECONDS[cooldown[2]] + _COOLDOWN_MARGIN
        return Failed(brief(message), permanence=Permanence.TRANSIENT, retry_after=wait)
    return _first(_MODEL_FAILED, message, started=True)


def host_failure(message: str) -> Failed | None:
    """The host's failure in an error of a run that provably had not started; else None."""
    return _first(HOST_FAILURES, message, started=False)


def _never_accepted(message: str) -> Failed | None:
    inner = message.removeprefix(_BY_GATEWAY_PROGRAM)
    found = _first(NOT_ACCEPTED, inner, started=False) if inner != message else None
    if found is None or found.permanence is Permanence.PERMANENT:
        return _first(NOT_ACCEPTED, message, started=False)
    return replace(found, error=brief(message))


def _aborted(exit_: Exit) -> Outcome:
    # on a signal the client makes the gateway abort the run, and prints something only if that was not confirmed
    unconfirmed = _UNCONFIRMED.search(exit_.stderr)
    if unconfirmed is None:
        return Aborted(f"stopped by {_ABORT_CODES[exit_.rc or 0]}")
    run_id = reference(unconfirmed[1].decode("utf-8", "replace"))
    return Unknown("stopped, but it was not confirmed that the turn was aborted", run_id=run_id)


def _from_result(
    rc: int | None, status: object, payloads: list[Any], meta: dict[str, Any], run_id: str | None
) -> Outcome | None:
    by_agent = meta.get("agentMeta")
    if not isinstance(by_agent, dict):
        by_agent = {}
    used = by_agent.get("usage")
    usage, session, model = _usage(used, by_agent), reference(by_agent.get("sessionId")), model_in(by_agent)

    def failed(error: str, permanence: Permanence = Permanence.TRANSIENT) -> Failed:
        return Failed(brief(error), permanence, usage=usage, run_id=run_id, session_ref=session, model=model)

    if rc == 1 and status == "timeout":
        return failed(f"the turn timed out; {_tools(meta)}")
    if rc == 1 and status == "error":
        kind = text_at(meta, "error", "kind")
        permanence = Permanence.PERMANENT if kind == "context_overflow" else Permanence.TRANSIENT
        ended = failed(f"{kind or 'error'}: {text_at(meta, 'error', 'message') or 'no reason given'}", permanence)
        return replace(ended, silent=kind == "incomplete_turn")
    if rc not in (0, None) or status != "ok":
        return None
    stop = text(meta.get("stopReason"))
    if _has_submitted(meta):  # its text is a comment, and may be missing
        comment = _spoken([p for p in payloads if _is_speech(p)], stop)
        return Succeeded(comment, usage=usage, run_id=run_id, session_ref=session, model=model)
    if stop == "toolUse":
        return failed(f"the turn timed out while a tool was running; {_tools(meta)}")
    if meta.get("aborted") is True:
        return failed("the gateway aborted the turn")
    if used is None:
        payloads = [_marked(payload) for payload in payloads]
    said = [p for p in payloads if _is_speech(p)]
    answer = _spoken(said, stop) or text(meta.get("finalAssistantVisibleText"))
    if not said or not answer.strip():
        problem = next(filter(None, map(_error_text, payloads)), "")
        if problem:
            return replace(failed(problem), started=not problem.startswith(_NOT_DELIVERED))
        return replace(failed("the agent gave no answer"), silent=True)
    cut = stop == "length"
    return Succeeded(answer, usage=usage, run_id=run_id, session_ref=session, truncated=cut, model=model)


def _has_submitted(meta: dict[str, Any]) -> bool:
    """Whether the run was ended by a tool of ours, which took an answer."""
    tools = at(meta, "toolSummary", "tools")
    by_ours = isinstance(tools, list) and any(name in tools for name in ANSWER_TOOLS)
    return by_ours and isinstance(meta.get("intentionalTerminalCompletion"), str)


def _marked(payload: object) -> object:
    """The payload of a turn that used no tokens, marked as an error if it is one of mailboxd's plugin, by its text."""
    by_plugin = text_at(payload, "text").startswith(_BY_PLUGIN)
    return {**payload, "isError": True} if by_plugin and isinstance(payload, dict) else payload


def _is_speech(payload: object) -> bool:
    return (
        isinstance(payload, dict) and payload.get("isError") is not True and payload.get("isStatusNotice") is not True
    )


def _error_text(payload: object) -> str:
    return text_at(payload, "text") if at(payload, "isError") is True else ""


def _spoken(payloads: list[dict[str, Any]], stop: str) -> str:
    texts = [text(payload.get("text")) for payload in payloads]
    # OpenClaw's notice about a truncated reply is not marked as a notice
    if stop == "length" and len(texts) > 1 and texts[-1].startswith(_CUT_NOTICE):
        texts.pop()
    return "\n\n".join(filter(None, texts))


def _from_error(value: dict[str, Any], run_id: str | None) -> Outcome | None:
    message = text_at(value, "error", "message")
    if run_id is None:
        sent = "runId" in value or "origin" in value or _LOST.match(message)
        return None if sent else _never_accepted(message)
    if (asked := at(value, LOOKED_UP)) is not None:
        return Unknown(brief(message), run_id, looked_up=True, harmless=at(asked, "harmless") is True)
    failure = model_failure(message)
    if failure is None:
        return Unknown(brief(message) or "accepted by the gateway, then lost", run_id=run_id)
    return Failed(failure.error, failure.permanence, retry_after=failure.retry_after, run_id=run_id)


def _first(rules: tuple[Rule, ...], message: str, *, started: bool) -> Failed | None:
    for rule in rules:
        if re.match(rule.pattern, message):
            said, after = brief(message), rule.retry_after
            return Failed(said, rule.permanence, started=started, retry_after=after, outage=rule.outage)
    return None


def _usage(used: object, by_agent: dict[str, Any]) -> Usage:
    """Input includes tokens read from a cache."""
    usage = used if isinstance(used, dict) else {}
    fresh, cost = count(usage.get("input")), amount(by_agent.get("costUsd"))
    cached = (count(usage.get("cacheRead")) or 0) + (count(usage.get("cacheWrite")) or 0)
    return Usage(
        input_tokens=None if fresh is None else fresh + cached,
        output_tokens=count(usage.get("output")),
        cost_usd=amount(at(usage, "cost", "total")) if cost is None else cost,
    )


def _tools(meta: dict[str, Any]) -> str:
    calls = count(at(meta, "toolSummary", "calls")) or 0
    if not calls:
        return "OpenClaw reports no tool call"
    return f"{calls} tool call{'s' * (calls != 1)} had been made"


def _describe(exit_: Exit) -> str:
    if exit_.truncated:
        return f"the output is longer than {len(exit_.stdout)} bytes and was not judged"
    if exit_.rc is None:
        return "the exit status is lost and the output proves no success"
    ended = f"killed by signal {-exit_.rc}" if exit_.rc < 0 else f"exit status {exit_.rc}"
    if not exit_.stdout.strip() and not exit_.stderr.strip():
        return f"{ended}, no output"
    return f"{ended}, and no answer of OpenClaw: {complaint(exit_)}"
