"""What a peer reports by message about an attempt it was given; anybody else is refused."""

from __future__ import annotations

from mailboxd.core.attempts import answered
from mailboxd.core.draft import Draft
from mailboxd.core.events import Kind
from mailboxd.core.inputs import Progress, Reply
from mailboxd.core.late import late, say
from mailboxd.core.outcomes import Results
from mailboxd.core.terms import AttemptStatus, Phase, Turn, same_agent
from mailboxd.core.text import first_line
from mailboxd.core.usage import NO_USAGE
from mailboxd.core.wire import to_json
from mailboxd.errors import Refused


def replied(draft: Draft, reply: Reply) -> None:
    """A message about an attempt that a peer was given. Raises Refused for anybody else's."""
    attempt, task = draft.attempt, draft.task
    if attempt is not None and reply.older_attempt and reply.attempt_id != attempt.id:
        late(draft, reply.sender, reply.attempt_id, say(reply.answer))  # of whoever had that one
        return
    if attempt is None:
        raise Refused("orphan", f"{task.local_id} was never given to anybody")
    if not same_agent(reply.sender, attempt.executor):
        raise Refused("wrong-agent", f"{task.local_id} was given to {attempt.executor}, not to {reply.sender}")
    if same_agent(attempt.executor, draft.ctx.agent) and not isinstance(reply.answer, Progress):
        # The answer of a turn of our own is what the call prints: whoever writes a file in its name is not it.
        raise Refused("not-given-away", f"{task.local_id} is done in turns of {draft.ctx.agent}, not given to anybody")
    if reply.attempt_id is not None and reply.attempt_id != attempt.id:
        raise Refused("stale-attempt", f"{task.local_id} has no attempt {reply.attempt_id}")
    if reply.attempt_id is None and reply.ordinal is not None and reply.ordinal < attempt.ordinal:
        late(draft, reply.sender, None, say(reply.answer))
        return
    if reply.reply_token != attempt.reply_token and (reply.reply_token is not None or attempt.token_echoed):
        raise Refused("stale-attempt", f"the reply token is not the one that {task.local_id} was sent with")
    if attempt.status is not AttemptStatus.RUNNING:
        _after_the_end(draft, reply)
        return
    if reply.reply_token is not None and not attempt.token_echoed:
        # So it has the work, whether its acknowledgement reached us or not: what we say to it are messages from now on.
        draft.checkpoint("the reply token was echoed", token_echoed=True, acknowledged=True)
    if reply.usage != NO_USAGE:
        draft.record(Kind.USAGE_REPORTED, agent=reply.sender, attempt=attempt.id, usage=to_json(reply.usage))
        draft.checkpoint("it says what it cost", usage=attempt.usage.plus(reply.usage))
    answered(draft, reply.answer, Turn.DISPATCH, reply.sender)


def _after_the_end(draft: Draft, reply: Reply) -> None:
    """Late, so nothing moves; but what an open circuit was waiting to know is kept for the operator to accept."""
    late(draft, reply.sender, reply.attempt_id, say(reply.answer))
    judged = draft.attempt is not None and draft.attempt.status is AttemptStatus.SUCCEEDED
    if isinstance(reply.answer, Results) and draft.task.phase is Phase.CIRCUIT_OPEN and not judged:
        text = reply.answer.text
        draft.artifact("primary_output", text, first_line(text), reply.sender)
        draft.amend("a late result is there to accept", result=text, result_summary=first_line(text))
