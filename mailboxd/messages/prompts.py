"""What each template is given, and the fixed first line of every prompt.

OpenClaw acts on what a message begins with (`/new`, `$skill`), so a prompt begins with a line of ours, made here and
not in a template: `[mailboxd] <kind> turn · task <local-id> · attempt <n>`, and never with foreign text.
"""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.core.terms import Gate
from mailboxd.core.types import Spec
from mailboxd.messages.templates import Templates


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent that may be given children, and what it does (from OpenClaw's configuration; may be empty)."""

    name: str
    does: str = ""


@dataclass(frozen=True, slots=True)
class WorkPrompt:
    """A turn in which this agent works on a task itself, or decides to plan it or to ask.

    `attempt` counts from 1. `findings` is why the attempt before was not accepted, `previous` its result. `note` are
    words for this turn only (the answer to a question, new instructions). `depth_left` is how many levels of children
    may still hang below this task: 0 = it cannot be planned. `may_ask` = the sender can be asked.
    """

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec
    peers: tuple[Peer, ...] = ()
    findings: str = ""
    note: str = ""
    depth_left: int = 0
    children_left: int = 0
    may_ask: bool = False
    deadline: str | None = None
    previous: str = ""


@dataclass(frozen=True, slots=True)
class DispatchBody:
    """The body of a `type: task` message. Findings of the attempt before, and its result, stand below the rest."""

    title: str
    spec: Spec
    findings: str = ""
    attempt: int = 1
    previous: str = ""


@dataclass(frozen=True, slots=True)
class ReplyBody:
    """The body of a `type: reply`: `results`, or `error` (and `partial`) when it failed."""

    results: str = ""
    error: str = ""
    partial: str = ""


@dataclass(frozen=True, slots=True)
class SynthesisPrompt:
    """A turn that makes one result of the children's. `results` is the text of `context.carry`."""

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec
    results: str
    findings: str = ""
    note: str = ""
    previous: str = ""


@dataclass(frozen=True, slots=True)
class ReviewPrompt:
    """A turn that judges: the spec itself (`gate` spec_review), or `result` against it, for its terms or quality.

    `executor` is the agent whose work it is; `earlier` are the findings of the reviews before, to be checked again.
    """

    local_id: str
    attempt: int
    gate: Gate
    title: str
    spec: Spec
    executor: str
    result: str = ""
    earlier: str = ""
    evidence: str = ""
    """What the checks of the spec said of the result."""


@dataclass(frozen=True, slots=True)
class DraftPrompt:
    """A turn that mends a weak spec. `attempt` counts drafts; `lacks` and `findings` say what is wrong with it."""

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec
    lacks: str = ""
    findings: str = ""


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """A turn that answers the question of whoever has a child. `parent` is the task that the child is a part of."""

    local_id: str
    attempt: int
    agent: str
    executor: str
    title: str
    spec: Spec
    parent_title: str
    parent: Spec
    question: str


_Values = AnswerPrompt | WorkPrompt | DispatchBody | ReplyBody | SynthesisPrompt | ReviewPrompt | DraftPrompt


def render_work(templates: Templates, prompt: WorkPrompt) -> str:
    """The prompt of a work turn, for a task of a sender as for a child given to `self`."""
    return _header("work", prompt.local_id, prompt.attempt) + _render(templates, "work.md.j2", prompt)


def render_synthesis(templates: Templates, prompt: SynthesisPrompt) -> str:
    """The prompt of a synthesis turn."""
    return _header("synthesis", prompt.local_id, prompt.attempt) + _render(templates, "synthesis.md.j2", prompt)


def is_synthesis(prompt: bytes) -> bool:
    """Whether these are the first bytes of the prompt of a synthesis turn."""
    return prompt.startswith(_beginning("synthesis").encode())


def render_review(templates: Templates, prompt: ReviewPrompt) -> str:
    """The prompt of a review turn at one gate."""
    return _header("review", prompt.local_id, prompt.attempt) + _render(templates, "review.md.j2", prompt)


def render_answer(templates: Templates, prompt: AnswerPrompt) -> str:
    """The prompt of a turn that answers a question."""
    return _header("answer", prompt.local_id, prompt.attempt) + _render(templates, "answer.md.j2", prompt)


def render_draft(templates: Templates, prompt: DraftPrompt) -> str:
    """The prompt of a drafting turn; `answer.read_draft` reads what comes back."""
    return _header("draft", prompt.local_id, prompt.attempt) + _render(templates, "draft.md.j2", prompt)


def render_dispatch_body(templates: Templates, body: DispatchBody) -> str:
    """The body of a task message to a peer; its front matter is the codec's."""
    return _render(templates, "dispatch.md.j2", body)


def render_reply_body(templates: Templates, body: ReplyBody) -> str:
    """The body of a reply; its front matter is the codec's."""
    return _render(templates, "reply.md.j2", body)


def _header(kind: str, local_id: str, attempt: int) -> str:
    return f"{_beginning(kind)}task {local_id} · attempt {attempt}\n\n"


def _beginning(kind: str) -> str:
    return f"[mailboxd] {kind} turn · "


def _render(templates: Templates, name: str, values: _Values) -> str:
    text = templates.render(name, **{name: getattr(values, name) for name in values.__slots__})
    return text.rstrip() + "\n"
