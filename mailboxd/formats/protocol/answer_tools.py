"""The tools by which an agent may answer a turn inside OpenClaw, and the meaning of their arguments. Pure.

`tools_for` makes them from the values of the turn's prompt, which the text forms are made from too. A call of one of
them is a form of `protocol.forms` in JSON (`as_form`), and read as one: both ways of answering have one reader.

The schemas say as much as a schema can; what is left (circles, unknown dependencies, a verdict against its findings)
the plugin checks with what `facts_for` gives it, and whatever neither sees is asked about as in a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mailboxd.core.outcomes import Answer, Unclear
from mailboxd.core.sanitize import storable_text
from mailboxd.core.vocabulary import ANSWER_TOOLS, SELF, Turn, Verdict
from mailboxd.formats.protocol.answer import Asked, read_form
from mailboxd.formats.protocol.headers import OVERRIDES
from mailboxd.formats.protocol.plan_values import OWN
from mailboxd.formats.protocol.prompts import AnyPrompt, CorrectionPrompt, ReviewPrompt, SynthesisPrompt, WorkPrompt
from mailboxd.formats.protocol.words import SEVERITIES

FINISH, PLAN, ASK, FAIL, VERDICT, ANSWER = ANSWER_TOOLS
_MANY = 1000
"""From so many subtasks on, neither their number nor their names are told."""
_CHOICES = 10

_Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerTool:
    """A tool as OpenClaw shows it to the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def tools_for(prompt: AnyPrompt) -> tuple[AnswerTool, ...]:
    """The tools of the turn that this prompt begins; none where it is answered in text only."""
    if isinstance(prompt, ReviewPrompt) or (isinstance(prompt, CorrectionPrompt) and prompt.turn is Turn.REVIEW):
        return (_verdict(),)
    if isinstance(prompt, CorrectionPrompt) and prompt.turn not in (Turn.WORK, Turn.SYNTHESIS):
        return ()
    if not isinstance(prompt, WorkPrompt | SynthesisPrompt | CorrectionPrompt):
        return ()
    tools = [_answer(prompt.answers) if prompt.answers else _finish()]
    if prompt.depth_left > 0 and prompt.children_left > 0 and not prompt.answers:
        tools.append(_plan([peer.name for peer in prompt.peers], prompt.children_left))
    if prompt.may_ask:
        tools.append(_ask())
    tools.append(_fail())
    return tuple(tools)


def facts_for(subtasks: Sequence[str]) -> Mapping[str, Any]:
    """What the plugin needs to know for its checks of a plan: the subtasks that there are, and the keys of a child."""
    known = list(subtasks) if len(subtasks) < _MANY else None
    return {"subtasks": known, "keys": sorted({*OWN, *OVERRIDES, "id", "title"})}


def as_form(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The form in which a text would say the same. Raises KeyError for a tool that is none of ours."""
    kinds: dict[str, tuple[_Schema, Mapping[str, str]]] = {
        FINISH: ({"type": "reply", "status": "done"}, {"result": "results"}),
        ANSWER: ({"type": "reply", "status": "done"}, {"reason": "results"}),
        FAIL: ({"type": "reply", "status": "failed"}, {}),
        ASK: ({"type": "question"}, {"choices": "options"}),
        PLAN: ({"type": "plan"}, {}),
        VERDICT: ({"type": "review"}, {}),
    }
    form, renamed = kinds[tool]
    said = {renamed.get(name, name): value for name, value in arguments.items() if name not in form}
    return form | said


def as_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """The text form of a call."""
    return storable_text(json.dumps(as_form(tool, arguments), ensure_ascii=False, indent=1))


def said_by(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a call says, for people: the result itself, else the text form."""
    result = arguments.get({FINISH: "result", ANSWER: "reason"}.get(tool, ""))
    return storable_text(result).strip() if isinstance(result, str) else as_text(tool, arguments)


def read_call(tool: str, arguments: Mapping[str, Any], asked: Asked) -> Answer:
    """The answer that a call gives, as `read_answer` reads its text form. Never raises, but for an unknown tool."""
    answer = read_form(as_text(tool, arguments), asked)
    return replace(answer, text=said_by(tool, arguments)) if isinstance(answer, Unclear) else answer


# The tools


def _text(description: str = "", **more: Any) -> _Schema:
    said = {"description": description} if description else {}
    return {"type": "string", "minLength": 1, **said, **more}


def _object(required: Sequence[str], **properties: _Schema) -> _Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _finish() -> AnswerTool:
    action = {
        "type": "object",
        "required": ["id", "kind", "action"],
        "properties": {
            "id": _text(),
            "kind": {"enum": ["command", "message", "file", "http", "manual"]},
            "action": _text(),
        },
    }
    actions = {
        "type": "array",
        "items": action,
        "description": "Side effects that a person approves before they happen. `action` says what it does. By kind: "
        "command: argv (list), cwd; message: channel, target, text; file: path (absolute), content or source; "
        "http: method, url, headers, body; manual: nothing more. Optional: risk, verify and undo (argv).",
    }
    parameters = _object(["result"], result=_text("The finished work itself"), planned_actions=actions)
    return AnswerTool(FINISH, "Submit the finished work.", parameters)


def _answer(answers: Sequence[str]) -> AnswerTool:
    parameters = _object(["answer", "reason"], answer={"enum": list(answers)}, reason=_text("Why"))
    return AnswerTool(ANSWER, "Submit your answer; what follows depends on it.", parameters)


def _plan(peers: Sequence[str], most: int) -> AnswerTool:
    one = {"enum": [SELF, *peers]}
    texts = {"type": "array", "items": {"type": "string"}}
    child = {
        "type": "object",
        "required": ["id", "agent", "description"],
        "properties": {
            "id": {"type": "string", "pattern": r"^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"},
            "agent": {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]},
            "description": _text("One line"),
            "instructions": _text("All that its agent has to know: it does not see this conversation"),
            "expected_output": {"type": "string"},
            "acceptance_criteria": texts,
            "depends_on": {**texts, "description": "Subtasks whose results it is given"},
        },
    }
    bounds = {"minItems": 1, **({"maxItems": most} if most < _MANY else {})}
    subtasks = {"type": "array", "items": child, **bounds}
    synthesis = {"type": "string", "description": "The subtask whose result is the result of all; default: you"}
    parameters = _object(["subtasks"], subtasks=subtasks, synthesis=synthesis)
    return AnswerTool(PLAN, "Divide the task into subtasks; you are called again with their results.", parameters)


def _ask() -> AnswerTool:
    choices = {"type": "array", "items": _text(), "maxItems": _CHOICES, "description": "Answers to choose from"}
    parameters = _object(["question"], question=_text("Complete in itself"), choices=choices)
    return AnswerTool(ASK, "Ask the sender of the task.", parameters)


def _fail() -> AnswerTool:
    error, partial = _text("Why, and what would be needed"), {"type": "string", "description": "What was achieved"}
    return AnswerTool(FAIL, "Say that it cannot be done.", _object(["error"], error=error, partial_results=partial))


def _verdict() -> AnswerTool:
    finding = {
        "type": "object",
        "additionalProperties": False,
        "required": ["severity", "message"],
        "properties": {
            "severity": {"enum": sorted({*SEVERITIES.values()})},
            "message": _text("What is wrong and how to fix it"),
            "file": {"type": "string"},
            "line": {"type": "integer", "minimum": 1},
        },
    }
    parameters = _object(
        ["verdict", "summary"],
        verdict={"enum": [str(one) for one in Verdict]},
        summary=_text("One or two sentences"),
        findings={"type": "array", "items": finding},
    )
    return AnswerTool(VERDICT, "Submit your verdict.", parameters)
