"""Looking up a turn whose outcome is unknown: parsers of OpenClaw's answers, and the rule that decides by them.

A turn is asked about by its session key. The key belongs to the piece of work and a new one is only used once the end
of the earlier attempt is proven, so the latest row of a key is always about this work, also when the gateway ran the
turn again by itself under a new run id after a crash.

All pure: `resolve` says what to run or how long to wait, the caller does it and comes back with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import at, brief, cli_error, count_at, parse_object, reference_at, text_at
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.outcome import host_failure, model_failure
from mailboxd.core.outcomes import Aborted, Failed, Outcome, Permanence, Succeeded, Unknown

SETTLE_SECONDS = 45.0
"""How long after the end of a call the ledger may still change by itself: a restarted gateway runs interrupted turns
again within about 25 s, and a killed client's request may still be in the gateway's socket."""
RUNNING_SECONDS = 15.0
RETRY_SECONDS = 30.0

_RESTART = "exited before restart"
_WAIT_CAP = 4096


class LedgerStatus(StrEnum):
    """What the ledger says of a run."""

    NOT_FOUND = "not_found"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"
    """The gateway died while the turn ran, and may run it again by itself."""
    TIMED_OUT = "timed_out"
    LOST = "lost"
    UNAVAILABLE = "unavailable"
    """The ledger could not be read, or says something that we do not know."""


_STATUS = {
    "queued": LedgerStatus.RUNNING,
    "running": LedgerStatus.RUNNING,
    "succeeded": LedgerStatus.SUCCEEDED,
    "failed": LedgerStatus.FAILED,
    "blocked": LedgerStatus.FAILED,
    "timed_out": LedgerStatus.TIMED_OUT,
    "cancelled": LedgerStatus.ABORTED,
    "lost": LedgerStatus.LOST,
}


@dataclass(frozen=True, slots=True)
class LedgerAnswer:
    status: LedgerStatus
    run_id: str | None = None
    tool_use_count: int = 0
    """0 in the row of a run that a living gateway has ended: no tool ran, it has changed nothing outside its session.

    OpenClaw counts a tool as it starts, but behind it: a gateway that dies within those milliseconds has not counted it
    (measured on 2026.9.6: 2 of 5). Of such a run the session has to say it as well, where the call stands before.
    """
    error: str = ""


class ReplySource(StrEnum):
    HISTORY = "history"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an attempt to fetch a run's reply brought. `answered`: the gateway was there and answered."""

    source: ReplySource
    answered: bool
    text: str | None = None
    cut: bool = False
    empty: bool = False
    """The session has no messages at all, and no input that waits."""
    used_tools: bool = True
    """Whether a tool was called in the session; True also where that cannot be seen."""


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Run `tasks_show_argv` again after so many seconds."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class FetchReply:
    """Run `argv`, read what it prints with `read_reply`, and call `resolve` again with that."""

    argv: tuple[str, ...]
    source: ReplySource
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The turn that is looked up. `waited` counts seconds since its client ended, `patience` how many are allowed.

    `heard` is a run of the same session that ended before the lost turn began. `ready_for` counts seconds since the
    gateway was first seen to answer in this look-up, None while it was not.
    """

    session_key: str
    run_id: str | None
    waited: float
    patience: float
    heard: str | None = None
    ready_for: float | None = None


def read_ledger(exit_: Exit) -> LedgerAnswer:
    """The answer of `tasks show ... --json`. Never raises."""
    error = cli_error(exit_)
    if error is not None and error.startswith("Task not found"):
        return LedgerAnswer(LedgerStatus.NOT_FOUND)
    value = parse_object(exit_)
    status = _STATUS.get(text_at(value, "status"))
    if exit_.rc != 0 or status is None:
        return LedgerAnswer(LedgerStatus.UNAVAILABLE, error=brief(error or ""))
    problem = text_at(value, "error")
    if status is LedgerStatus.ABORTED and _RESTART in problem:
        status = LedgerStatus.INTERRUPTED
    return LedgerAnswer(status, reference_at(value, "runId"), count_at(value, "toolUseCount") or 0, brief(problem))


def read_reply(source: ReplySource, exit_: Exit, run_id: str | None) -> Fetched:
    """The answer of a `FetchReply` command: the reply of `run_id`, if it holds one. Never raises."""
    if source is ReplySource.WAIT:
        return _read_wait(exit_)
    return _read_history(exit_, run_id)


def _read_wait(exit_: Exit) -> Fetched:
    value = parse_object(exit_)
    if exit_.rc != 0 or value is None:
        return Fetched(ReplySource.WAIT, answered=False)
    text = text_at(value, "terminalReply", "text") if value.get("status") == "ok" else ""
    # OpenClaw cuts here without a word; a reply of exactly this length is taken for a cut one.
    return Fetched(ReplySource.WAIT, answered=True, text=text or None, cut=len(text) >= _WAIT_CAP)


def _read_history(exit_: Exit, run_id: str | None) -> Fetched:
    value = parse_object(exit_)
    messages = at(value, "messages")
    if exit_.rc != 0 or not isinstance(messages, list):
        return Fetched(ReplySource.HISTORY, answered=False)
    for message in reversed(messages):
        if at(message, "role") != "assistant" or run_id is None or at(message, "__openclaw", "runId") != run_id:
            continue
        parts = at(message, "content")
        texts = (
            [text_at(part, "text") for part in parts if at(part, "type") == "text"] if isinstance(parts, list) else []
        )
        if any(text.strip() for text in texts):
            cut = at(message, "__openclaw", "truncated") is True or at(message, "stopReason") == "length"
            return Fetched(ReplySource.HISTORY, answered=True, text="\n\n".join(filter(None, texts)), cut=cut)
    empty = not messages and not at(value, "pendingInputs", "items")
    used_tools = at(value, "hasMore") is not False or any(map(_calls_tool, messages))
    return Fetched(ReplySource.HISTORY, answered=True, empty=empty, used_tools=used_tools)


def _calls_tool(message: object) -> bool:
    """Whether a message of a session is a call of a tool, or its result; what is not understood may be one."""
    parts = at(message, "content")
    if at(message, "role") not in ("user", "assistant", "custom"):
        return True
    return isinstance(parts, list) and any(at(part, "type") not in ("text", "thinking") for part in parts)


_Step = Outcome | AskAgain | FetchReply


def resolve(openclaw: OpenClaw, lost: Lost, answer: LedgerAnswer, fetched: Fetched | None = None) -> _Step:
    """What the ledger's answer (and a fetched reply) makes of a lost turn.

    An Unknown that comes out of here is `looked_up`: nobody can tell. The next attempt, if there is one, must keep
    the session key and say "if this was already done, report the result only".
    """
    if lost.heard is not None and answer.run_id == lost.heard:
        return _never_accepted(openclaw, lost, fetched, heard=True)
    run_id = answer.run_id or lost.run_id
    match answer.status:
        case LedgerStatus.SUCCEEDED:
            reply = _with_reply(openclaw, lost, run_id, fetched)
            return replace(reply, harmless=_used_no_tool(lost, answer)) if isinstance(reply, Unknown) else reply
        case LedgerStatus.FAILED:
            if _used_no_tool(lost, answer) and (host := host_failure(answer.error)) is not None:
                return replace(host, run_id=run_id)
            known = model_failure(answer.error)
            if known is None:
                return Failed(answer.error or "the turn failed", run_id=run_id)
            return Failed(known.error, known.permanence, retry_after=known.retry_after, run_id=run_id)
        case LedgerStatus.TIMED_OUT:
            return Failed(f"the turn timed out; {answer.error}".rstrip("; "), run_id=run_id)
        case LedgerStatus.ABORTED:
            return Aborted(answer.error or "the turn was cancelled")
        case LedgerStatus.NOT_FOUND:
            return _never_accepted(openclaw, lost, fetched)
        case _:
            return _undecided(openclaw, lost, answer, fetched)


def _used_no_tool(lost: Lost, answer: LedgerAnswer) -> bool:
    """Whether the row that a living gateway has ended is that of the lost run, and counts no tool.

    The row of another run says nothing of what the lost one did before OpenClaw ran it again.
    """
    return answer.run_id is not None and answer.run_id == lost.run_id and not answer.tool_use_count


def _undecided(openclaw: OpenClaw, lost: Lost, answer: LedgerAnswer, fetched: Fetched | None) -> _Step:
    run_id = answer.run_id or lost.run_id
    if answer.status is LedgerStatus.RUNNING:
        return _later(lost, RUNNING_SECONDS, "the ledger says that the turn still runs", run_id)
    if answer.status is LedgerStatus.UNAVAILABLE:
        return _later(lost, RETRY_SECONDS, f"the ledger cannot be read: {answer.error}", run_id)
    # The gateway that died with the turn runs it again once it is back: only then does the time count.
    if lost.ready_for is None:
        if fetched is None:
            return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, run_id)
        return _later(lost, RETRY_SECONDS, "the gateway went away during the turn and is not back", run_id)
    if lost.ready_for < SETTLE_SECONDS:
        return AskAgain(SETTLE_SECONDS - lost.ready_for)
    tools = f"after {answer.tool_use_count} tool calls" if answer.tool_use_count else "no tool call is on record"
    lost_turn = Unknown(f"the gateway went away during the turn, {tools}", run_id, looked_up=True)
    if answer.tool_use_count:
        return lost_turn
    if fetched is None:
        return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, run_id)
    if not fetched.answered:
        return _later(lost, RETRY_SECONDS, "the gateway went away during the turn and does not answer", run_id)
    return replace(lost_turn, harmless=not fetched.used_tools)


def _with_reply(openclaw: OpenClaw, lost: Lost, run_id: str | None, fetched: Fetched | None) -> _Step:
    if fetched is None:
        return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, run_id)
    if fetched.text is not None:
        return Succeeded(fetched.text, run_id=run_id, truncated=fetched.cut)
    if not fetched.answered:
        return _later(lost, RETRY_SECONDS, "the turn succeeded, but the gateway does not give its reply", run_id)
    if fetched.source is ReplySource.HISTORY and run_id is not None:
        return FetchReply(openclaw.wait_argv(run_id), ReplySource.WAIT, run_id)
    return Unknown("the turn succeeded, but its reply is gone", run_id, looked_up=True)


def _never_accepted(openclaw: OpenClaw, lost: Lost, fetched: Fetched | None, *, heard: bool = False) -> _Step:
    if lost.waited < SETTLE_SECONDS:
        return AskAgain(SETTLE_SECONDS - lost.waited)
    if lost.run_id is not None:
        return Unknown("the gateway accepted the turn, but the ledger has no row of it", lost.run_id, looked_up=True)
    if fetched is None:
        # A stopped gateway has no row yet of a request that waits in its socket; one that answers has read it.
        return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, None)
    if not fetched.answered:
        return _later(lost, RETRY_SECONDS, "the ledger has no row of the turn and the gateway does not answer", None)
    if fetched.empty or heard:
        return Failed("the turn never reached the gateway", Permanence.TRANSIENT, started=False)
    return Unknown("the session has messages, but the ledger has no row of the turn", looked_up=True)


def _later(lost: Lost, seconds: float, problem: str, run_id: str | None) -> AskAgain | Unknown:
    if lost.waited + seconds <= lost.patience:
        return AskAgain(seconds)
    return Unknown(problem.rstrip(": "), run_id, looked_up=True)
