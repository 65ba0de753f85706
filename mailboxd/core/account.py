"""What the end of a turn puts on record whatever it was for: its cost, its outcome, and whose fault it was."""

from __future__ import annotations

from typing import Any

from mailboxd.core.breaker import is_fault
from mailboxd.core.draft import Draft
from mailboxd.core.events import Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.outcomes import Aborted, Failed, Outcome, Succeeded, Unknown
from mailboxd.core.text import first_line
from mailboxd.core.usage import NO_USAGE
from mailboxd.core.wire import to_json


def turn_over(draft: Draft, ended: TurnEnded) -> None:
    """Record that a turn is over, unless nobody was called or its outcome is still to be looked up.

    What a harness did counts as its own: the agent it worked for has not been called.
    """
    who = f"acp:{ended.harness}" if ended.harness else ended.agent
    if ended.called and not (isinstance(ended.outcome, Unknown) and not ended.outcome.looked_up):
        draft.record(Kind.TURN_ENDED, **entry(ended.turn, who, ended.attempt_id, ended.outcome))


def entry(turn: str, agent: str, attempt: str, outcome: Outcome) -> dict[str, Any]:
    """The data of the event. `ran` is False when it provably never reached the agent: that is no turn."""
    usage = outcome.usage if isinstance(outcome, Succeeded | Failed) else NO_USAGE
    return {
        "turn": turn,
        "agent": agent,
        "attempt": attempt,
        "outcome": _WORDS[type(outcome)],
        "ran": not isinstance(outcome, Failed) or outcome.started,
        "fault": is_fault(outcome),
        "said": "" if isinstance(outcome, Succeeded) else first_line(outcome.error),
        "usage": to_json(usage),
    }


_WORDS: dict[type, str] = {Succeeded: "succeeded", Failed: "failed", Aborted: "aborted", Unknown: "unknown"}
