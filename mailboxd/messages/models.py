"""The types of messages: one frozen model per `type` of the protocol (section 2). `message` has what they share."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from mailboxd.core.actions import Action, merged
from mailboxd.core.terms import Join, Runtime, Synthesis, Verdict
from mailboxd.core.types import Finding, Overrides, Spec
from mailboxd.messages import headers
from mailboxd.messages.fields import NOTHING_SAID, OVERRIDES
from mailboxd.messages.message import MAX_TITLE, Id, Message, Money, Step, distinct, whole
from mailboxd.messages.spec import derive_spec
from mailboxd.messages.text import clean, one_line

_TASK = re.compile(r"\A(?:task:\s*)+", re.IGNORECASE)


def _task_title(value: object) -> object:
    return _TASK.sub("", one_line(value)) if isinstance(value, str) else value


def _answer(value: object) -> object:
    return clean(value) if isinstance(value, str) else value


def _finding(finding: Finding) -> Finding:
    """In the form in which it is read back: every text storable, an empty one absent."""
    if finding.severity not in headers.SEVERITIES:
        raise PydanticCustomError("wrong-type", "the severity of a finding is critical, major or minor")
    if finding.line is not None and not 1 <= finding.line <= headers.MAX_LINE:
        raise PydanticCustomError("field-range", "the line of a finding is out of range")
    file, uri = clean(finding.file or ""), clean(finding.artifact_uri or "")
    return Finding(finding.severity, clean(finding.message), file or None, finding.line, uri or None)


class TaskMessage(Message):
    """A piece of work. A `## DAG` section carries a plan for it."""

    expected = ("sent_at",)

    type: Literal["task"] = "task"
    title: Annotated[str, BeforeValidator(_task_title), Field(max_length=MAX_TITLE)] = ""
    synthesis: Synthesis | None = None
    join: Join | None = None
    runtime: Runtime | None = None
    harness: Id | None = None
    delegation_path: (
        Annotated[tuple[Step, ...], Field(max_length=headers.MAX_NAMES), AfterValidator(distinct)] | None
    ) = None
    """The agents above the receiver, from the first one down to the sender, each with a digest of its goal."""
    planned_actions: tuple[Action, ...] = ()

    def spec(self) -> Spec:
        """What the task must achieve: its spec sections, the missing ones derived."""
        texts = self.texts()
        spec = derive_spec(self.title, self.preamble, self.sections, lambda name: texts.get(name.casefold(), ""))
        actions = merged(self.planned_actions, spec.planned_actions)
        return replace(spec, planned_actions=actions) if actions else spec

    def overrides(self) -> Overrides:
        """What the headers say of the task's own policy."""
        said = {name: value for name in OVERRIDES if (value := getattr(self, name)) is not None}
        if not said:
            return NOTHING_SAID
        if "gates" in said:
            said["gates"] = frozenset(said["gates"])
        return Overrides(**said)


class ReplyMessage(Message):
    """What became of a task. `answer` is the declared answer a majority is counted over, `` if none is."""

    required = ("task_id", "from", "status")
    expected = ("subtask_id", "completed_at")

    type: Literal["reply"] = "reply"
    status: Literal["done", "failed"]
    failure: Literal["permanent", "transient"] | None = None
    """`permanent`: giving the work out again changes nothing. Without it, whoever gave it out decides by itself."""
    answer: Annotated[str, BeforeValidator(_answer), Field(max_length=headers.MAX_ANSWER)] = ""
    usage_tokens: int | None = whole("usage_tokens")
    cost_usd: Money | None = None
    planned_actions: tuple[Action, ...] = ()

    @property
    def results(self) -> str:
        """`## Results` and the unknown sections after it: a model that divides its result must not lose the rest."""
        known = ("Error", "Partial Results", "Planned Actions")
        parts: list[str] = []
        for section in self.sections:
            if section.is_called("Results"):
                parts.append(section.text)
            elif parts and not any(map(section.is_called, known)):
                parts.append(f"## {section.heading}\n\n{section.text}".rstrip())
        return "\n\n".join(filter(None, parts))


class AckMessage(Message):
    """A mailboxd peer has taken a dispatch and will reply later."""

    type: Literal["ack"] = "ack"


class PlanMessage(Message):
    """A plan for a task, as YAML in the section `## DAG`."""

    type: Literal["plan"] = "plan"


class QuestionMessage(Message):
    """Something has to be made clear before the work goes on. A text that is exactly `REPLY_SKIP` ends the exchange."""

    type: Literal["question"] = "question"


class AnswerMessage(Message):
    """The answer to a question."""

    type: Literal["answer"] = "answer"


class ProgressMessage(Message):
    """A heartbeat or checkpoint of running work."""

    type: Literal["progress"] = "progress"


class ReviewMessage(Message):
    """A reviewer's verdict. `findings` come from the header, else from a fenced YAML block in `## Findings`."""

    required = ("task_id", "from", "verdict")

    type: Literal["review"] = "review"
    verdict: Verdict
    findings: tuple[Annotated[Finding, AfterValidator(_finding)], ...] = ()


class SteerMessage(Message):
    """New instructions for running work."""

    type: Literal["steer"] = "steer"


class CancelMessage(Message):
    """The sender does not want the work any more."""

    type: Literal["cancel"] = "cancel"


class ApprovalMessage(Message):
    """A person's decision on a planned action. Whether it is genuine is not for the codec to say."""

    required = ("from", "approval_id", "decision")

    type: Literal["approval"] = "approval"
    approval_id: Id
    decision: Literal["approved", "rejected", "request_changes"]


AnyMessage = (
    TaskMessage
    | ReplyMessage
    | AckMessage
    | PlanMessage
    | QuestionMessage
    | AnswerMessage
    | ProgressMessage
    | ReviewMessage
    | SteerMessage
    | CancelMessage
    | ApprovalMessage
)

MESSAGE_TYPES: dict[str, type[AnyMessage]] = {
    str(kind.model_fields["type"].default): kind for kind in get_args(AnyMessage)
}
"""Every type of message by its word in the header `type`."""
