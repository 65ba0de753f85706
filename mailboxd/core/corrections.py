"""Tracking again: an answer without one single meaning is asked for once more, in the session that gave it.

That costs no attempt. The order carries its `Correction`, and so does the end of its turn, so nothing else has to be
remembered: a correcting turn that is lost, repeated or late is judged as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.effects import RunTurn
from mailboxd.core.events import Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.outcomes import (
    Acknowledged,
    Answer,
    Correction,
    Drafted,
    Failure,
    Planned,
    Question,
    Results,
    Reviewed,
    Silence,
    Succeeded,
    Unclear,
)
from mailboxd.core.sanitize import blockquote, first_line
from mailboxd.core.vocabulary import Phase

MOST = 2
"""How many times one answer is asked for again."""
_STILL_OPEN = frozenset({Phase.EXECUTION_READY, Phase.CIRCUIT_OPEN})


def ask_again(builder: DecisionBuilder, ended: TurnEnded, unclear: Unclear, turn: RunTurn) -> bool:
    """Order `turn`, which asks for another answer than the one that `ended`; False if that was done often enough.

    What was composed here is not asked about: nobody said it.
    """
    if unclear.text:
        said = f"an answer that was not taken: {first_line(unclear.text)}"
        builder.artifact("other", unclear.text, said, ended.agent)
    number = ended.correction.number + 1 if ended.correction else 1
    if number > MOST or not ended.called:
        return False
    about = {"purpose": ended.turn, "agent": ended.agent, "attempt": ended.attempt_id}
    builder.record(Kind.ANSWER_UNCLEAR, **about, number=number, problems=list(unclear.problems))
    claim = unclear.text if unclear.is_claim and not turn.note else ""  # new instructions make it outdated
    builder.order(replace(turn, correction=Correction(unclear.problems, number, claim)))
    return True


def unclear_as(ended: TurnEnded, wanted: str, answer: Answer | None) -> Unclear:
    """`answer` as one that is none to the turn that `ended`, which asked for `wanted`."""
    if isinstance(answer, Unclear):
        return answer
    said = ended.outcome.text if isinstance(ended.outcome, Succeeded) else ""
    return Unclear((f"the answer is {in_words(answer)}, and this turn asks for {wanted}",), said)


def in_words(answer: Answer | None) -> str:
    """What kind of answer it is."""
    return _KINDS[type(answer)]


_KINDS: Mapping[type, str] = {
    type(None): "missing",
    Results: "a text without a verdict or sections",
    Failure: "a failure",
    Planned: "a plan",
    Silence: "empty",
    Question: "a question",
    Acknowledged: "an acknowledgement",
    Reviewed: "a review",
    Drafted: "a draft of a specification",
}


def pass_on(builder: DecisionBuilder, correction: Correction) -> None:
    """Tell the next attempt why the answer was not taken: its session is another one."""
    task = builder.task
    if task.phase in _STILL_OPEN:
        why = blockquote("The answer of the previous attempt was not taken", "\n\n".join(correction.problems))
        findings = "\n\n".join(filter(None, [task.findings, why]))
        builder.amend("the next attempt is told why the answer was not taken", findings=findings)
