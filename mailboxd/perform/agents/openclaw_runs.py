"""Look up a turn whose outcome is unknown: parsers of OpenClaw's answers, and the rules that decide by them.

A turn is looked up by its session key. A new key is used only once the end of the earlier attempt is proven, so the
latest record of a key is always about this work, even if the gateway repeated the turn with a new run id after a crash.

All pure: `resolve` says what to run or how long to wait; the caller does it and passes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from mailboxd.core.outcomes import Aborted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import at, brief, cli_error, count, parse_object, reference, text_at
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.outcome import host_failure, model_failure
from mailboxd.perform.agents.transcript import calls_tool, said_by, said_in_wait

SETTLE_SECONDS = 45.0
"""How long the records may still change after the end of a call: a restarted gateway repeats interrupted turns within
about 25 s, and a killed client's request may still be in the gateway's socket."""
RUNNING_SECONDS = 15.0
RETRY_SECONDS = 30.0

_RESTART = "exited before restart"


class RunStatus(StrEnum):
    """The state of a run in OpenClaw's records."""

    NOT_FOUND = "not_found"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"
    """The gateway died during the turn, and may repeat it."""
    TIMED_OUT = "timed_out"
    LOST = "lost"
    UNAVAILABLE = "unavailable"
    """The records could not be read, or have an unknown state."""


_STATUS = {
    "queued": RunStatus.RUNNING,
    "running": RunStatus.RUNNING,
    "succeeded": RunStatus.SUCCEEDED,
    "failed": RunStatus.FAILED,
    "blocked": RunStatus.FAILED,
    "timed_out": RunStatus.TIMED_OUT,
    "cancelled": RunStatus.ABORTED,
    "lost": RunStatus.LOST,
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    status: RunStatus
    run_id: str | None = None
    tool_use_count: int = 0
    """0 in the record of a run that a living gateway ended: no tool ran, so nothing changed outside its session.

    OpenClaw counts a tool just after it starts: a gateway that dies within those milliseconds has not counted it
    (measured on 2026.9.6: 2 of 5). For such a run the session has to confirm it, which has the call earlier.
    """
    error: str = ""


class ReplySource(StrEnum):
    HISTORY = "history"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class FetchedReply:
    """The result of fetching a run's reply. `answered`: the gateway answered."""

    source: ReplySource
    answered: bool
    text: str | None = None
    cut: bool = False
    empty: bool = False
    """The session has no messages and no pending input."""
    used_tools: bool = True
    """Whether a tool was called in the session; True if unknown."""
    unread: frozenset[str] = frozenset()
    """The runs whose prompt the gateway has accepted, but no agent has read."""
    model: str | None = None
    """The model that gave the reply, as provider/model; None if that is not known."""


@dataclass(frozen=True, slots=True)
class CheckAgain:
    """Run `tasks_show_argv` again after this time."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class FetchReply:
    """Run `argv`, parse its output with `parse_reply`, and call `resolve` again with the result."""

    argv: tuple[str, ...]
    source: ReplySource
    run_id: str | None


@dataclass(frozen=True, slots=True)
class LostTurn:
    """The turn to look up. `waited`: seconds since its client ended; `patience`: the limit.

    `earlier_run` is a run of the same session that ended before the lost turn began. `ready_for`: seconds since the
    gateway first answered during this lookup, None if it has not.
    """

    session_key: str
    run_id: str | None
    waited: float
    patience: float
    earlier_run: str | None = None
    ready_for: float | None = None


def parse_run(exit_: Exit) -> RunRecord:
    """The answer of `tasks show ... --json`. Never raises."""
    error = cli_error(exit_)
    if error is not None and error.startswith("Task not found"):
        return RunRecord(RunStatus.NOT_FOUND)
    value = parse_object(exit_)
    status = _STATUS.get(text_at(value, "status"))
    if exit_.rc != 0 or status is None:
        return RunRecord(RunStatus.UNAVAILABLE, error=brief(error or ""))
    problem = text_at(value, "error")
    if status is RunStatus.ABORTED and _RESTART in problem:
        status = RunStatus.INTERRUPTED
    return RunRecord(status, reference(at(value, "runId")), count(at(value, "toolUseCount")) or 0, brief(problem))


def parse_reply(source: ReplySource, exit_: Exit, run_id: str | None) -> FetchedReply:
    """The answer of a `FetchReply` command: the reply of `run_id`, if it holds one. Never raises."""
    if source is ReplySource.WAIT:
        return _read_wait(exit_)
    return _read_history(exit_, run_id)


def _read_wait(exit_: Exit) -> FetchedReply:
    value = parse_object(exit_)
    if exit_.rc != 0 or value is None:
        return FetchedReply(ReplySource.WAIT, answered=False)
    said = said_in_wait(value)
    return FetchedReply(ReplySource.WAIT, answered=True, text=said.text if said else None, cut=bool(said and said.cut))


def _read_history(exit_: Exit, run_id: str | None) -> FetchedReply:
    value = parse_object(exit_)
    messages = at(value, "messages")
    if exit_.rc != 0 or not isinstance(messages, list):
        return FetchedReply(ReplySource.HISTORY, answered=False)
    inputs = at(value, "pendingInputs", "items")
    unread = frozenset(text_at(one, "runId") for one in inputs) if isinstance(inputs, list) else frozenset()
    used_tools = at(value, "hasMore") is not False or any(map(calls_tool, messages))
    seen = FetchedReply(ReplySource.HISTORY, answered=True, used_tools=used_tools, unread=unread)
    if run_id is not None and (said := said_by(messages, run_id)) is not None:
        return replace(seen, text=said.text, cut=said.cut, model=said.model)
    return replace(seen, empty=not messages and not inputs)


_Step = Outcome | CheckAgain | FetchReply


def resolve(openclaw: OpenClaw, lost: LostTurn, answer: RunRecord, fetched: FetchedReply | None = None) -> _Step:
    """The outcome of a lost turn, or the next step to determine it.

    An Unknown from here is `looked_up`, and final. A further attempt must keep the session key and say "if this was
    already done, report the result only".
    """
    if lost.earlier_run is not None and answer.run_id == lost.earlier_run:
        return _never_accepted(openclaw, lost, fetched, other_runs=True)
    run_id = answer.run_id or lost.run_id
    match answer.status:
        case RunStatus.SUCCEEDED if fetched is not None and _is_unread(lost, answer, fetched):
            problem = "the gateway died before the agent had read the turn, and then ran the agent without it"
            return Unknown(problem, run_id, looked_up=True, harmless=not fetched.used_tools)
        case RunStatus.SUCCEEDED:
            reply = _with_reply(openclaw, lost, run_id, fetched)
            if isinstance(reply, Unknown) and _used_no_tool(lost, answer):
                return replace(reply, error=f"{reply.error}; it used no tool", harmless=True)
            return reply
        case RunStatus.FAILED:
            if _used_no_tool(lost, answer) and (host := host_failure(answer.error)) is not None:
                return replace(host, run_id=run_id)
            known = model_failure(answer.error)
            if known is None:
                return Failed(answer.error or "the turn failed", run_id=run_id)
            return Failed(known.error, known.permanence, retry_after=known.retry_after, run_id=run_id)
        case RunStatus.TIMED_OUT:
            return Failed(f"the turn timed out; {answer.error}".rstrip("; "), run_id=run_id)
        case RunStatus.ABORTED:
            return Aborted(answer.error or "the turn was cancelled")
        case RunStatus.NOT_FOUND:
            return _never_accepted(openclaw, lost, fetched)
        case _:
            return _undecided(openclaw, lost, answer, fetched)


def _used_no_tool(lost: LostTurn, answer: RunRecord) -> bool:
    """Whether the record is that of the lost run, ended by a living gateway, and counts no tool.

    The record of a repetition says nothing about what the lost run did.
    """
    return answer.run_id is not None and answer.run_id == lost.run_id and not answer.tool_use_count


def _is_unread(lost: LostTurn, answer: RunRecord, fetched: FetchedReply) -> bool:
    """Whether the record is that of a repetition, and the lost turn's prompt is not in its session.

    A restarted gateway tells an agent to continue an interrupted turn even if it died before the prompt was in the
    transcript (measured on 2026.9.6): what the agent says then is about nothing.
    """
    if answer.run_id == lost.run_id:
        return False
    return lost.run_id in fetched.unread if lost.run_id is not None else bool(fetched.unread)


def _undecided(openclaw: OpenClaw, lost: LostTurn, answer: RunRecord, fetched: FetchedReply | None) -> _Step:
    run_id = answer.run_id or lost.run_id
    if answer.status is RunStatus.RUNNING:
        return _later(lost, RUNNING_SECONDS, "the ledger says that the turn still runs", run_id)
    if answer.status is RunStatus.UNAVAILABLE:
        return _later(lost, RETRY_SECONDS, f"the ledger cannot be read: {answer.error}", run_id)
    # a gateway that died with the turn may repeat it once it is back: the time counts from then
    if lost.ready_for is None:
        if fetched is None:
            return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, run_id)
        return _later(lost, RETRY_SECONDS, "the gateway went away during the turn and is not back", run_id)
    if lost.ready_for < SETTLE_SECONDS:
        return CheckAgain(SETTLE_SECONDS - lost.ready_for)
    lost_turn = Unknown("the gateway went away during the turn", run_id, looked_up=True)
    if count := answer.tool_use_count:
        return replace(lost_turn, error=f"{lost_turn.error}, after {count} tool call{'s' * (count != 1)}")
    if fetched is None:
        return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, run_id)
    if not fetched.answered:
        return _later(lost, RETRY_SECONDS, "the gateway went away during the turn and does not answer", run_id)
    # a ledger without tool calls says nothing: a gateway that dies may not have counted one
    seen = "its session may have tool calls" if fetched.used_tools else "its session shows no tool call"
    return replace(lost_turn, error=f"{lost_turn.error}; {seen}", harmless=not fetched.used_tools)


def _with_reply(openclaw: OpenClaw, lost: LostTurn, run_id: str | None, fetched: FetchedReply | None) -> _Step:
    if fetched is None:
        return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, run_id)
    if fetched.text is not None:
        return Succeeded(fetched.text, run_id=run_id, truncated=fetched.cut, model=fetched.model)
    if not fetched.answered:
        return _later(lost, RETRY_SECONDS, "the turn succeeded, but the gateway does not give its reply", run_id)
    if fetched.source is ReplySource.HISTORY and run_id is not None:
        return FetchReply(openclaw.wait_argv(run_id), ReplySource.WAIT, run_id)
    return Unknown("the turn succeeded, but its reply is gone", run_id, looked_up=True)


def _never_accepted(
    openclaw: OpenClaw, lost: LostTurn, fetched: FetchedReply | None, *, other_runs: bool = False
) -> _Step:
    if lost.waited < SETTLE_SECONDS:
        return CheckAgain(SETTLE_SECONDS - lost.waited)
    if lost.run_id is not None:
        return Unknown("the gateway accepted the turn, but the ledger has no row of it", lost.run_id, looked_up=True)
    if fetched is None:
        # a stopped gateway has no record yet of a request in its socket; one that answers has read it
        return FetchReply(openclaw.history_argv(lost.session_key), ReplySource.HISTORY, None)
    if not fetched.answered:
        return _later(lost, RETRY_SECONDS, "the ledger has no row of the turn and the gateway does not answer", None)
    if fetched.empty or other_runs:
        return Failed("the turn never reached the gateway", Permanence.TRANSIENT, started=False)
    return Unknown("the session has messages, but the ledger has no row of the turn", looked_up=True)


def _later(lost: LostTurn, seconds: float, problem: str, run_id: str | None) -> CheckAgain | Unknown:
    if lost.waited + seconds <= lost.patience:
        return CheckAgain(seconds)
    return Unknown(problem.rstrip(": "), run_id, looked_up=True)
