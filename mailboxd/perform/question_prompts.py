"""Open questions as prompts of OpenClaw: in the chat that asked, or in that of the agent.

A prompt is one more place where a person may answer; the question stays open everywhere else, and is withdrawn here
when it is answered there. OpenClaw keeps prompts in memory. Each has an id of ours, so that asking again does no harm:
after a failure, which a restart of the gateway is, it is asked again.

The answer counts like one of `mailboxd answer`. OpenClaw does not say who gave it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mailboxd.core.events import Event, Kind
from mailboxd.core.model import Task
from mailboxd.core.notices import words_on_record
from mailboxd.core.sanitize import first_line, for_page
from mailboxd.core.vocabulary import SESSION, WAKE
from mailboxd.engine import operator_commands
from mailboxd.engine.engine import Engine
from mailboxd.errors import Refused
from mailboxd.ledger.attention_queries import asked_of_person
from mailboxd.ledger.told import was_told
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import at, complaint, parse_text, text_at
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

BY = "a person at OpenClaw's prompt"
"""Whose word an answer is."""
EVERY = 5.0
"""Seconds between two looks at what is open; it is looked at after each event too."""
MOST = 8
"""Prompts at once; further questions are asked when one of them is answered."""
WAIT = 600
"""Seconds for which one request waits for an answer."""
AGAIN = 15.0
"""Seconds after which a failed request is made again."""
MOST_AGAIN = 900.0
"""Seconds after which OpenClaw is asked again, at most, which prompts it has."""
_LASTS = 7 * 86_400
_SECONDS = 60
_CHARS = 4_000
_ANSWER_CHARS = 100_000
_QUESTION = "answer"
"""The id of the question in its prompt, which has no other."""
_HEADER_CHARS = 12
_LABEL_CHARS = 60
_CHOICE = re.compile(r"(?:[-*+]|\d{1,2}[.)]|[a-d][.)])[ \t]+(\S.*)", re.IGNORECASE)
_IN_USE, _NOT_FOUND = "already exists", "was not found"
_log = logging.getLogger("mailboxd")
_TROUBLE = "OpenClaw does not {}, and is asked again: {}"


@dataclass(frozen=True, slots=True)
class QuestionPrompt:
    """An open question as OpenClaw is to ask it."""

    id: str
    task: str
    """Its id."""
    attempt: int
    number: int
    """Of the question."""
    session: str
    header: str
    text: str

    def request(self) -> Mapping[str, object]:
        """The parameters of `question.request`."""
        question, choices = offered(self.text)
        asked = {
            "questionId": _QUESTION, "header": self.header[:_HEADER_CHARS], "question": question,
            "options": [{"label": choice} for choice in choices], "isOther": True,
        }  # fmt: skip
        agent = self.session.split(":")[1]
        place = {"agentId": agent, "sessionKey": self.session}
        return {"id": self.id, "questions": [asked], **place, "timeoutMs": _LASTS * 1000}


class PromptStage(StrEnum):
    """How far a prompt is."""

    ASK = "question.request"
    WAIT = "question.waitAnswer"
    WITHDRAW = "question.resolve"
    PAUSED = "paused"
    OVER = "over"
    """A person skipped it: it stays open elsewhere."""


@dataclass(slots=True)
class _Open:
    """A prompt that OpenClaw has, or is to have."""

    prompt: QuestionPrompt
    stage: PromptStage = PromptStage.PAUSED
    call: str = ""
    """Of its request that is under way."""
    due: float = 0.0
    """When it is asked again (monotonic clock)."""
    problem: str = ""
    """Why OpenClaw did not ask it; empty if it did."""


@dataclass(slots=True)
class QuestionPrompts:
    """The prompts of one workspace."""

    engine: Engine
    calls: ProcessTable
    gateway: GatewayCalls
    enabled: bool
    """The configuration wants them, and the device has the scope."""
    _open: dict[str, _Open] = field(default_factory=dict)
    """By the prompt's id."""
    _is_listed: bool = False
    """OpenClaw was asked which prompts an earlier daemon has left."""
    _list_problem: str = ""
    """Why it did not answer; empty if it did."""
    _list_at: float = 0.0
    """When it is asked again after a failure (monotonic clock)."""
    _list_pause: float = AGAIN
    """Seconds until then; each failure doubles them."""
    _listing: str = ""
    """The call that asks."""
    _left: set[str] = field(default_factory=set)
    """What it answered."""

    @property
    def trouble(self) -> str:
        """Why OpenClaw does not ask what it was to ask; empty if it does, or nothing is left to ask."""
        if self._list_problem:
            return _TROUBLE.format("list its prompts", self._list_problem)
        unasked = (one for one in self._open.values() if one.problem and one.stage is not PromptStage.WITHDRAW)
        return next((_TROUBLE.format(f"ask a question of {one.prompt.header}", one.problem) for one in unasked), "")

    def perform(self) -> float | None:
        """Ask what is open and withdraw what is not; return when to do so again (monotonic clock)."""
        if not self.enabled:
            return None
        now, wanted = self.engine.clock.monotonic(), {prompt.id: prompt for prompt in self._wanted()}
        if not self._is_listed and self._list_at <= now:
            self._is_listed = True
            self._listing = self._start("question.list", {})
        for id_ in self._left - wanted.keys():
            self._start(PromptStage.WITHDRAW, {"id": id_, "cancel": True})
        self._left = set()
        for one in [
            one for id_, one in self._open.items() if id_ not in wanted and one.stage is not PromptStage.WITHDRAW
        ]:
            self._withdraw(one, now)
        for id_, prompt in wanted.items():
            one = self._open.setdefault(id_, _Open(prompt))
            if one.stage is PromptStage.PAUSED and one.due <= now:
                self._begin(one, PromptStage.ASK, prompt.request(), now)
            elif one.stage is PromptStage.WAIT and not one.call:
                self._begin(one, PromptStage.WAIT, {"id": id_, "timeoutMs": WAIT * 1000}, now)
        return now + EVERY

    def ended(self, call: Call, exit_: Exit) -> None:
        """Take what a request has brought; inside a batch."""
        self.calls.discard_when_recorded(call.id)
        if call.id == self._listing:
            listed = at(parse_text(exit_.stdout), "questions")
            self._is_listed = isinstance(listed, list)  # else it is asked again: what is left there would answer nobody
            self._list_problem = "" if self._is_listed else first_line(complaint(exit_))
            if not self._is_listed:
                self._list_at = self.engine.clock.monotonic() + self._list_pause
                self._list_pause = min(2 * self._list_pause, MOST_AGAIN)
            ids = [text_at(entry, "id") for entry in listed] if isinstance(listed, list) else []
            self._left = {id_ for id_ in ids if id_.startswith(self._prefix)}
            return
        one = next((one for one in self._open.values() if one.call == call.id), None)
        if one is None:
            return  # it was withdrawn
        one.call = ""
        said, now = parse_text(exit_.stdout), self.engine.clock.monotonic()
        problem = "" if exit_.rc == 0 else text_at(said, "error", "message") or complaint(exit_)
        match one.stage:
            case PromptStage.WITHDRAW:
                del self._open[one.prompt.id]
            case PromptStage.ASK if not problem or _IN_USE in problem:
                one.stage, one.problem = PromptStage.WAIT, ""
                self._record(one.prompt)
            case PromptStage.WAIT if not problem:
                self._take(one, said)
            case _:
                if _NOT_FOUND not in problem:
                    one.problem = first_line(problem)
                one.stage, one.due = PromptStage.PAUSED, now + (0.0 if _NOT_FOUND in problem else AGAIN)

    def _record(self, prompt: QuestionPrompt) -> None:
        """Record once that a person is asked there, however often OpenClaw had to be told."""
        to = f"prompt:{prompt.session}"
        if was_told(self.engine.store.report, prompt.task, prompt.id, to):
            return
        data = {"at": self.engine.now, "id": prompt.id, "what": "prompt", "to": to, "text": first_line(prompt.text)}
        self.engine.record(Event(Kind.NOTICE_SENT, prompt.task, data | words_on_record(prompt.text)))

    def _take(self, one: _Open, said: Any) -> None:
        match text_at(said, "status"):
            case "answered":
                one.stage = PromptStage.OVER
                words = at(said, "answers", "answers", _QUESTION)
                given = ", ".join(word for word in words if isinstance(word, str)) if isinstance(words, list) else ""
                if given.strip():
                    self._answer(one.prompt, given.strip()[:_ANSWER_CHARS])
            case "cancelled":
                one.stage = PromptStage.OVER
            case "expired":
                one.stage = PromptStage.PAUSED
            case _:  # pending: it is waited for again
                pass

    def _answer(self, prompt: QuestionPrompt, text: str) -> None:
        """Give the answer, unless the question is no longer open."""
        task = self.engine.store.tasks.get(prompt.task)
        if task is None or (task.attempt, task.mending.questions) != (prompt.attempt, prompt.number):
            return
        try:
            operator_commands.answer(self.engine, task, text, BY)
        except Refused as refused:
            _log.info("%s: an answer at OpenClaw's prompt does not count: %s", task.local_id, refused)

    def _withdraw(self, one: _Open, now: float) -> None:
        if call := self.calls.running.get(one.call):
            call.child.terminate()
        is_asked = one.stage in (PromptStage.ASK, PromptStage.WAIT)
        one.call = ""
        if is_asked:
            self._begin(one, PromptStage.WITHDRAW, {"id": one.prompt.id, "cancel": True}, now)
        else:
            del self._open[one.prompt.id]

    def close(self) -> None:
        """Wait for no more answers: the daemon ends. The prompts stay, for the next one."""
        self.enabled = False
        for call in self.calls.running.values():
            if call.kind is CallKind.PROMPT:
                call.child.terminate()

    def _begin(self, one: _Open, stage: PromptStage, params: Mapping[str, object], now: float) -> None:
        one.call = self._start(stage, params, WAIT + _SECONDS if stage is PromptStage.WAIT else _SECONDS)
        one.stage, one.due = (stage, 0.0) if one.call else (PromptStage.PAUSED, now + AGAIN)

    def _start(self, method: str, params: Mapping[str, object], seconds: int = _SECONDS) -> str:
        return self.gateway.begin(self.engine, self.calls, method, params, seconds)

    @property
    def _prefix(self) -> str:
        """How the ids of this workspace's prompts begin."""
        return f"mailboxd-{hashlib.sha256(str(self.calls.turns).encode()).hexdigest()[:12]}-"

    def _wanted(self) -> list[QuestionPrompt]:
        """The prompts of the questions that are open to a person, the oldest first."""
        store, found = self.engine.store, []
        for task_id in asked_of_person(store.report, MOST):
            task = store.tasks.get(task_id)
            attempt = store.tasks.attempt(task_id, task.attempt) if task is not None else None
            if task is not None and attempt is not None and attempt.question.strip():
                found.append(self._prompt(task, attempt.question))
        return found

    def _prompt(self, task: Task, text: str) -> QuestionPrompt:
        root = self.engine.store.tasks.get(task.root) or task
        kind, _, key = root.origin.reply_to.partition(":")
        own = f"agent:{self.engine.settings.agent}:"
        session = key if kind in (SESSION, WAKE) else "main"
        said = f"{task.id}.{task.attempt}.{task.mending.questions}"
        name = f"{self._prefix}{hashlib.sha256(said.encode()).hexdigest()[:20]}"
        place = session if session.startswith("agent:") else f"{own}{session}"
        body = f"{task.local_id}: {for_page(text).strip()}"[:_CHARS]
        return QuestionPrompt(name, task.id, task.attempt, task.mending.questions, place, task.local_id, body)


def offered(text: str) -> tuple[str, tuple[str, ...]]:
    """A question without the list of answers at its end, and these answers: two to four short ones, else none."""
    lines = text.rstrip().splitlines()
    choices: list[str] = []
    while lines and (found := _CHOICE.fullmatch(lines[-1].strip())):
        choices.insert(0, found[1].strip().strip("*`\"' "))
        lines.pop()
    question = "\n".join(lines).rstrip()
    is_choice = 2 <= len(choices) <= 4 and all(0 < len(one) <= _LABEL_CHARS for one in choices)
    return (question, tuple(choices)) if is_choice and question and len({*choices}) == len(choices) else (text, ())
