"""What became of a turn that the gateway does not know (any more), by the session that it was given to. Pure.

A gateway that died with turns in flight resumes by itself those that had begun: on 2026.9.6 one after the other, which
may take many minutes, on 2026.8.1 about three at once. Its session says from the first connection on where each stands
(measured on both, docs/decisions/0005). `chat.history` has all of it in one answer: the session's row, the transcript,
and the input that no run has taken yet:

    row                                         transcript, input           the turn
    a run is active                                                         runs, or is being resumed: wait
    running, aborted with the gateway                                       waits to be resumed: wait
    never ran, or ended before the turn came    without our prompt          never began: send it again
    done, last run is ours                      our run's text              had ended before the gateway died
    done, last run is another                   our prompt, then its text   was resumed under that run
    ended otherwise, or none of these                                       a person has to look

Nothing is sent again unless the prompt provably never reached the agent; what the transcript cannot show is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailboxd.perform.agents.json_output import at, reference, text_at
from mailboxd.perform.agents.transcript import Said, calls_tool, said_by

HISTORY = 200
"""Messages of a session that are read: more than the turns of one piece of work leave there."""
BY_GATEWAY = "[System] "
"""The beginning of the prompt with which the gateway resumes a turn."""
_LIVE = ("", "queued", "running")
_DONE = "done"


class RecoveryStage(StrEnum):
    """How far the recovery of a turn is, in words. Marks have the names."""

    AWAY = "the gateway went away during the turn; it is asked about the turn once it is back"
    MARKED = "the gateway died during the turn; OpenClaw resumes it by itself, after others"
    RUNNING = "the gateway died during the turn; OpenClaw is resuming it"
    UNCLEAR = "the gateway died during the turn, and has not said yet what becomes of it"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is decided yet; ask again when the session changes."""

    stage: RecoveryStage


@dataclass(frozen=True, slots=True)
class SendAgain:
    """The turn never began: request it again, in the same session."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn ended well, under this run."""

    run_id: str
    said: Said


@dataclass(frozen=True, slots=True)
class AskRun:
    """The turn ended well under this run, whose answer the transcript does not have in full; the run may be asked.

    `said` is what the transcript has.
    """

    run_id: str
    said: Said | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn ended without success: the gateway had seen that end before it died."""

    error: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The gateway cannot say what became of the turn. `harmless`: the transcript has no tool call after its prompt."""

    error: str
    harmless: bool


Verdict = Wait | SendAgain | Answered | AskRun | Ended | Undecided


@dataclass(frozen=True, slots=True)
class Session:
    """What a session says about one of its runs, `key`."""

    key: str
    status: str = ""
    """Of its latest run; empty if it never had one."""
    is_aborted: bool = False
    """Its run was cut off by the end of the gateway, and is to be resumed."""
    is_active: bool = False
    last_run: str | None = None
    """The latest run that has ended."""
    is_complete: bool = True
    """The transcript is there from its beginning."""
    has_prompt: bool = False
    """The prompt of `key` is in the transcript, or something that its run wrote."""
    is_empty: bool = True
    """The transcript has no message."""
    is_pending: bool = False
    """The gateway had accepted the prompt of `key`, and no run has taken it."""
    ours: frozenset[str] = frozenset()
    """Runs in the transcript with a prompt of their own that is not the gateway's: other turns of this session."""
    resumed: tuple[str, ...] = ()
    """Runs after the prompt of `key` that belong to no other prompt, the latest first."""
    used_tools: bool = True
    """A tool may have been called since the prompt of `key`; without that prompt, in any run that is not in `ours`."""
    said: tuple[tuple[str, Said], ...] = ()
    """What the latest runs said last, by run."""

    def answer_of(self, run_id: str) -> Said | None:
        return dict(self.said).get(run_id)


def parse_session(payload: object, key: str) -> Session:
    """The session in an answer of `chat.history`, as it concerns the run `key`. Never raises."""
    row, found = at(payload, "sessionInfo"), at(payload, "messages")
    messages = found if isinstance(found, list) else []
    is_complete = isinstance(found, list) and at(payload, "hasMore") is not True
    inputs = at(payload, "pendingInputs", "items")
    place = next((number for number, one in enumerate(messages) if _is_of(one, key)), None)
    after = messages if place is None else messages[place:]
    prompts = dict(_prompts(messages))
    ours = frozenset(run for run, text in prompts.items() if run != key and not text.startswith(BY_GATEWAY))
    runs = dict.fromkeys(run for one in reversed(after) if (run := _run_of(one)) is not None)
    since = [one for one in after if _run_of(one) not in ours]
    return Session(
        key,
        text_at(row, "status"),
        is_aborted=at(row, "abortedLastRun") is True,
        is_active=at(row, "hasActiveRun") is True,
        last_run=reference(at(row, "lastRunId")),
        is_complete=is_complete,
        has_prompt=place is not None,
        is_empty=not messages,
        is_pending=any(text_at(one, "runId") == key for one in inputs) if isinstance(inputs, list) else False,
        ours=ours,
        resumed=tuple(run for run in runs if run != key and run not in ours),
        used_tools=any(map(calls_tool, since)) or (place is None and not is_complete),
        said=tuple((run, said) for run in runs if (said := said_by(messages, run)) is not None),
    )


def judge(session: Session) -> Verdict:
    """What to do about the turn whose run is `session.key`."""
    if session.is_active:
        return Wait(RecoveryStage.RUNNING)
    if session.is_aborted and session.status in _LIVE:
        return Wait(RecoveryStage.MARKED)
    if session.has_prompt or session.last_run == session.key:
        return _begun(session)
    if session.status in ("running", "queued"):
        return Wait(RecoveryStage.UNCLEAR)
    return _not_begun(session)


def _begun(session: Session) -> Verdict:
    """The turn had begun, and nothing runs or is to be resumed."""
    if session.status in _LIVE:
        # between the prompt and the first model call, or between two steps of the gateway
        return (
            Wait(RecoveryStage.UNCLEAR) if session.status else _unknown(session, "and OpenClaw did not resume the turn")
        )
    if session.last_run == session.key:
        run_id: str | None = session.key
    else:
        run_id = session.last_run if session.last_run in session.resumed else next(iter(session.resumed), None)
    if session.status != _DONE:
        how = f"OpenClaw says of it: {session.status}"
        if run_id == session.key:
            return Ended(f"the turn ended before the gateway died, without an answer. {how}")
        return _unknown(session, f"and OpenClaw could not resume the turn. {how}")
    if run_id is None:
        return _unknown(session, "and its session has no answer to it")
    said = session.answer_of(run_id)
    return Answered(run_id, said) if said is not None and not said.cut else AskRun(run_id, said)


def _not_begun(session: Session) -> Verdict:
    """The transcript has no prompt of the turn, and nothing runs or is to be resumed."""
    stray = session.last_run is not None and session.last_run not in session.ours
    if session.is_complete and (session.is_empty or not stray):
        return SendAgain()
    if session.is_complete and not session.used_tools:
        return SendAgain()  # the gateway ran the agent without the prompt, and that did nothing
    if not session.is_complete and session.is_pending and not stray:
        return SendAgain()
    return _unknown(session, "and its session does not show whether the turn had begun")


def _unknown(session: Session, what: str) -> Undecided:
    return Undecided(f"the gateway went away during the turn, {what}", harmless=not session.used_tools)


def _is_of(message: object, key: str) -> bool:
    return _run_of(message) == key or text_at(message, "idempotencyKey") == f"{key}:user"


def _run_of(message: object) -> str | None:
    """The run that wrote a message, or whose prompt it is."""
    run = reference(at(message, "__openclaw", "runId"))
    prompt = text_at(message, "idempotencyKey")
    return run or (prompt.removesuffix(":user") if prompt.endswith(":user") else None)


def _prompts(messages: list[Any]) -> Iterator[tuple[str, str]]:
    """The runs whose prompts are in the transcript, each with the prompt's text."""
    for message in messages:
        run = text_at(message, "idempotencyKey")
        if at(message, "role") == "user" and run.endswith(":user"):
            content = at(message, "content")
            parts = content if isinstance(content, list) else [{"text": content}]
            yield run.removesuffix(":user"), "".join(text_at(part, "text") for part in parts)
