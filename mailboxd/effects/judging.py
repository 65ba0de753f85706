"""What the end of a call means: how the turn ended, and what was said in it."""

from __future__ import annotations

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.outcome import classify
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.outcomes import Aborted, Answer, Failed, Made, Outcome, Permanence, Succeeded, Unknown
from mailboxd.core.terms import Turn
from mailboxd.effects.calls import Call
from mailboxd.messages.answer import read_answer, read_draft
from mailboxd.store.store import Order


def of_bug(bug: Exception) -> Failed:
    """A failure of ours, not of the work."""
    # Only its kind: the words of an exception may hold what must not be in messages.
    return Failed(f"a bug of mailboxd ({type(bug).__name__}); its log has the details", Permanence.PERMANENT)


def answer(turn: Turn, how: Outcome) -> Answer | None:
    """What was said in a turn means: a spec after a drafting turn, else one of the forms of an answer."""
    if not isinstance(how, Succeeded):
        return None
    return read_draft(how.text) if turn is Turn.DRAFT else read_answer(how.text)


def outcome(call: Call, exit_: Exit) -> Outcome:
    """How a turn ended, and why it was stopped where we stopped it."""
    found = classify(exit_)
    if call.stopped and isinstance(found, Aborted):
        return Aborted(call.stopped)
    if call.stopped and isinstance(found, Unknown):
        return Unknown(f"{call.stopped}; it had to be killed, and may go on behind it", found.run_id)
    return found


def ended(
    order: Order,
    effect: RunTurn | LookUp,
    how: Outcome,
    said: Answer | None,
    *,
    called: bool = True,
    made: tuple[Made, ...] = (),
) -> TurnEnded:
    """The end of a turn, as the core hears of it."""
    turn = (effect.turn, effect.attempt_id, order.agent)
    asked = effect.note if isinstance(effect, RunTurn) and effect.turn is Turn.ANSWER else ""
    return TurnEnded(*turn, how, said, effect.gate, called=called, made=made, harness=effect.harness, question=asked)
