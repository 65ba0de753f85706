"""How an author is asked about an answer that seems to evade the work, and what it seems to be instead.

Apart from what finds evasions (`protocol.evasions`), because the patterns there take long to compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mailboxd.core.sanitize import excerpt
from mailboxd.core.vocabulary import Turn

SURE = "Is this the result itself? Then answer `---`, `status: done`, `---` and nothing else."
FAILED = "`---`, `type: reply`, `status: failed`, `---`, `## Error` and the reason"
_ASK = "`---`, `type: question`, `---` and the question"


class Kind(Enum):
    """What an answer seems to do instead of the work."""

    REFUSAL = "a refusal"
    FAILURE = "a failure"
    QUESTION = "a question"
    PROMISE = "a promise"
    CLAIM = "a report that something was done"
    CALL = "a call of a tool"
    PLAN = "a plan"
    IGNORANCE = "not knowing"
    UNREADABLE = "a text in a language that is not known here"
    NOTHING = "no answer"


@dataclass(frozen=True, slots=True)
class Evasion:
    """What the text seems to be, and the sentence that asks about it."""

    kind: Kind
    problem: str


def failure(text: str) -> Evasion:
    """The suspicion that an answer which is only an error is a failure."""
    return suspected(Kind.FAILURE, text, Turn.WORK)


def suspected(kind: Kind, text: str, turn: Turn) -> Evasion:
    """The suspicion that `text` is of this kind."""
    return Evasion(
        kind, f"{_SAYS[kind].format(said=excerpt(text.strip().partition(chr(10))[0], 140))} {_do(kind, turn)}"
    )


_SAYS = {
    Kind.REFUSAL: "{said} reads like a refusal, and the task is not done.",
    Kind.FAILURE: "{said} says that the work was not possible, or not finished.",
    Kind.QUESTION: "{said} reads like a question to the sender.",
    Kind.PROMISE: "{said} accepts or promises the work, but does not deliver it.",
    Kind.CLAIM: "{said} says that the work is done, but your whole answer is the outcome, and the work is not in it.",
    Kind.CALL: "{said} is a tool call written as text; nothing was carried out.",
    Kind.PLAN: "{said} reads like a plan, but is not in the form of one, so nothing was started.",
    Kind.NOTHING: "{said} is no answer to the task.",
    Kind.UNREADABLE: "{said} is short, and in a language in which nothing here can tell a result from a refusal.",
    Kind.IGNORANCE: "{said} says that you do not know the answer.",
}


def _do(kind: Kind, turn: Turn) -> str:
    if turn is Turn.ANSWER:
        if kind is Kind.CALL:
            return "Answer the question in plain text."
        return (
            f"If only the operator can answer, write {_ASK}. If the work can go on without an answer, write the single "
            f"word `REPLY_SKIP`. If this is your answer, write `---`, `status: done`, `---` and nothing else."
        )
    match kind:
        case Kind.REFUSAL | Kind.FAILURE | Kind.UNREADABLE:
            return f"If it cannot be done, answer {FAILED}; otherwise do it. {SURE}"
        case Kind.QUESTION:
            return f"If you cannot go on without an answer, send {_ASK}; otherwise go on without it. {SURE}"
        case Kind.PROMISE if turn is Turn.DISPATCH:
            return f"If you will reply later by message, answer `---`, `type: ack`, `---`; otherwise do it now. {SURE}"
        case Kind.PROMISE | Kind.CLAIM | Kind.NOTHING:
            return f"Do it now, and send the work itself. {SURE}"
        case Kind.CALL:
            return "Use the tool, and then answer with what was done; or quote it in fenced code under `## Results`."
        case _:
            return (
                "If these are subtasks, send them as `---`, `type: plan`, `---`, `## DAG` and a YAML block with "
                f"`subtasks:`, each with `agent`, `description` and `depends_on`. {SURE}"
            )
