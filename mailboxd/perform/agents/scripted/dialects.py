"""Dialects: what models of many families write in place of the form that they were asked for.

A meaning is an answer of `core.outcomes`, a dialect a set of habits, and the text a function of both and of a seed. An
honest text has just that meaning. One that evades has to be asked about, and is followed by the form as asked. The
habits are those of the corpus in tests/dialects/answers/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import yaml

from mailboxd.core.model import Finding
from mailboxd.core.outcomes import Acknowledged, Answer, Failure, Planned, Question, Results, Reviewed
from mailboxd.core.vocabulary import SELF, Turn, Verdict
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.plan import Dag, DagNode, render_dag
from mailboxd.formats.protocol.strict_yaml import load, scalar

ANY = "any"
"""The dialect whose habits are drawn anew for each answer."""
Evasion = Callable[[Answer, Asked], str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Habits of a model. The defaults are the form as asked."""

    form: str = "asked"
    """`asked`, `headers` (also around a plain result), `bare` (without the lines `---`), or `json`."""
    keys: str = "ours"
    """`ours`, `camel` (dependsOn), `title` (Depends-On), or `other`: the words of other tools, for values too."""
    children: str = "mapping"
    """The subtasks of a plan: a `mapping` by name, or a `list` with `id:`."""
    mentions: bool = False
    """Agents are written with `@` and a capital letter."""
    around: str = ""
    """What stands around the answer: `thoughts`, `tokens`, or a `fence` behind a paragraph."""
    judges: str = "form"
    """How verdicts and votes are given: in the `form`, in `prose`, or with the findings in a `table`."""
    evades: str = ""
    """What is said first, of EVASIONS; empty: the answer itself."""


_EVADES = 0.2
"""The share of the answers of `any` that evade first."""


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """What an agent says."""

    text: str
    evades: bool = False
    """It has to be asked about."""


def names() -> list[str]:
    """The names that a script may use."""
    return [*DIALECTS, ANY]


def respelled(text: str, kind: str, answers: Sequence[str], name: str, seed: str) -> ScriptedReply | None:
    """`text`, an answer in the form as asked to a message of this kind, in the dialect `name`.

    None if it has no other spelling, because it has no single meaning or the message wants no answer.
    """
    turn = "dispatch" if kind == "task" else kind
    if turn not in set(Turn):
        return None
    asked = Asked(Turn(turn), answers=tuple(answers))
    return say(read_answer(text, asked), asked, name, seed)


def say(meaning: Answer, asked: Asked, name: str, seed: str) -> ScriptedReply | None:
    """What an agent that speaks the dialect `name` says for `meaning` to what was `asked`.

    None: it has no other spelling. The same arguments give the same text.
    """
    chance = Random(seed)  # noqa: S311 - no secret
    dialect = _drawn(chance) if name == ANY else DIALECTS[name]
    honest = _written(meaning, dialect, chance, asked.answers)
    if honest is None:
        return None
    evasion = EVASIONS[dialect.evades](meaning, asked) if dialect.evades else ""
    return (
        ScriptedReply(evasion, evades=True) if evasion else ScriptedReply(_surrounded(honest, dialect.around, chance))
    )


def _drawn(chance: Random) -> Dialect:
    return Dialect(
        form=chance.choice(("asked", "headers", "bare", "json")),
        keys=chance.choice(("ours", "camel", "title", "other")),
        children=chance.choice(("mapping", "list")),
        mentions=chance.random() < 0.5,
        around=chance.choice(("", "thoughts", "tokens", "fence")),
        judges=chance.choice(("form", "prose", "table")),
        evades=chance.choice(list(EVASIONS)) if chance.random() < _EVADES else "",
    )


# The form, in each spelling

Sections = Mapping[str, object]
"""The parts of an answer below its headers: text, the mapping of a plan, or a list of findings."""


def _written(meaning: Answer, dialect: Dialect, chance: Random, answers: Sequence[str]) -> str | None:
    match meaning:
        case Results(text, "", ()):
            if dialect.form == "asked":
                return text
            return _formed({"type": "reply", "status": "done"}, {"Results": text}, dialect, chance)
        case Results(text, answer, ()) if answers:
            if dialect.judges != "form":
                return _voted(text, answer, chance)
            return _formed({"type": "reply", "status": "done", "answer": answer}, {"Results": text}, dialect, chance)
        case Failure(error, partial, permanent):
            headers = {"type": "reply", "status": "failed"} | ({"failure": "permanent"} if permanent else {})
            return _formed(headers, {"Error": error, "Partial Results": partial}, dialect, chance)
        case Question(text):
            return _formed({"type": "question"}, {"Question": text}, dialect, chance)
        case Acknowledged():
            return _formed({"type": "ack"}, {}, dialect, chance)
        case Planned(plan):
            dag = render_dag(Dag(tuple(map(DagNode, plan.children)), plan.synthesis))
            whole = load(dag, path="plan", max_events=1_000_000, max_depth=64).value
            assert isinstance(whole, dict)
            return _formed({"type": "plan"}, {"DAG": _plan(whole, dialect, chance)}, dialect, chance)
        case Reviewed(verdict, summary, findings):
            if dialect.judges == "prose":
                return _judged(verdict.value, summary, findings)
            listed = [_finding(one) for one in findings]
            sections = {"Summary": summary, "Findings": listed}
            return _formed({"type": "review", "verdict": verdict.value}, sections, dialect, chance)
    return None


def _formed(headers: Mapping[str, str], sections: Sections, dialect: Dialect, chance: Random) -> str:
    spelled = {_key(name, dialect, chance): _value(word, dialect, chance) for name, word in headers.items()}
    parts = {name: part for name, part in sections.items() if part}
    if dialect.form == "json":
        return _json(spelled, parts, dialect, chance)
    plan = parts.get("DAG")
    if isinstance(plan, dict) and (dialect.form == "bare" or dialect.around == "fence"):
        return _yaml(spelled | plan if "tasks" in plan else plan)  # `tasks` alone are no plan
    lines = "\n".join(f"{key}: {scalar(value)}" for key, value in spelled.items())
    front = lines if dialect.form == "bare" else f"---\n{lines}\n---"
    return "\n\n".join([front, *(_section(name, part, dialect, chance) for name, part in parts.items())])


def _section(name: str, part: object, dialect: Dialect, chance: Random) -> str:
    if name == "Question":
        return str(part)
    if isinstance(part, str):
        return f"## {name}\n\n{part}"
    if isinstance(part, list) and dialect.judges == "table" and not re.search(r"[|\n]", "".join(map(str, part))):
        columns = ("severity", "message", "file", "line")
        rows = [
            [name.title() for name in columns],
            ["---"] * 4,
            *([one.get(name, "") for name in columns] for one in part),
        ]
        return f"## {name}\n\n" + "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
    if isinstance(part, list):
        part = [_spelled(one, dialect, chance) for one in part]
    return f"## {name}\n\n```yaml\n{_yaml(part)}\n```"


def _json(headers: Mapping[str, str], parts: Sections, dialect: Dialect, chance: Random) -> str:
    whole: dict[str, Any] = dict(headers)
    for name, part in parts.items():
        if isinstance(part, dict):
            whole |= part
        elif isinstance(part, list):
            whole[_key("findings", dialect, chance)] = [_spelled(one, dialect, chance) for one in part]
        else:
            whole[_key(name.lower().replace(" ", "_"), dialect, chance)] = part
    return json.dumps(whole, ensure_ascii=False, indent=chance.choice((None, 2)))


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")


# Plans


def _plan(whole: Mapping[str, Any], dialect: Dialect, chance: Random) -> dict[str, Any]:
    plan = {_key(name, dialect, chance): part for name, part in whole.items() if name != "subtasks"}
    return {_key("subtasks", dialect, chance): _children(whole["subtasks"] or {}, dialect, chance), **plan}


def _children(children: Mapping[str, Any], dialect: Dialect, chance: Random) -> object:
    written = {name: _child(child, dialect, chance) for name, child in children.items()}
    return [{"id": name, **child} for name, child in written.items()] if dialect.children == "list" else written


def _child(child: Mapping[str, Any], dialect: Dialect, chance: Random) -> dict[str, Any]:
    written = {}
    for name, part in child.items():
        if name == "subtasks":
            part = _children(part, dialect, chance)
        elif name == "agent" and dialect.mentions:
            part = [_mention(one) for one in part] if isinstance(part, list) else _mention(part)
        written[_key(name, dialect, chance)] = part
    return written


def _mention(agent: str) -> str:
    return agent if agent == SELF else f"@{agent[:1].upper()}{agent[1:]}"


# Verdicts and votes

_VERDICTS = {"approved": "Approved", "changes_requested": "Changes requested", "blocked": "Blocked"}


def _judged(verdict: str, summary: str, findings: Sequence[Finding]) -> str:
    items = [f"- **{one.severity.title()}:** {one.message}{_place(one)}" for one in findings]
    return "\n\n".join(filter(None, [f"**{_VERDICTS[verdict]}.** {summary}".rstrip(), "\n".join(items)]))


def _place(finding: Finding) -> str:
    line = f":{finding.line}" if finding.line else ""
    return f" ({finding.file}{line})" if finding.file else ""


def _finding(finding: Finding) -> dict[str, str]:
    values = {"severity": finding.severity, "message": finding.message, "file": finding.file}
    values |= {"line": str(finding.line or ""), "artifact_uri": finding.artifact_uri}
    return {name: value for name, value in values.items() if value}


def _voted(text: str, answer: str, chance: Random) -> str:
    said = chance.choice(("bold", "word", "last", "json", "element"))
    match said:
        case "bold":
            return f"**{answer.title()}**\n\n{text}"
        case "word" if "\n" not in text:
            return f"{answer.capitalize()} - {text}"
        case "last":
            return f"{text}\n\nFinal answer: {answer}"
        case "json":
            return json.dumps({"reasoning": text, "answer": answer}, ensure_ascii=False)
    return f"<answer>{answer}</answer>"


# Spelling

_OTHER_KEYS = {
    "agent": ("assignee", "owner", "assigned_to"),
    "description": ("title", "task", "summary"),
    "depends_on": ("dependencies", "blocked_by", "after", "requires"),
    "subtasks": ("tasks",),
    "verdict": ("verdict",),
    "message": ("issue", "problem", "description"),
    "findings": ("issues", "comments"),
    "results": ("result", "output"),
    "error": ("reason",),
}
_OTHER_VALUES = {
    "reply": ("result", "response"),
    "question": ("clarification",),
    "ack": ("acknowledged",),
    "done": ("success", "completed", "ok"),
    "failed": ("error", "failure"),
    "approved": ("approve", "LGTM", "accepted"),
    "changes_requested": ("request changes", "needs work"),
    "critical": ("blocker",),
    "major": ("high",),
    "minor": ("nit", "low"),
}


def _key(name: str, dialect: Dialect, chance: Random) -> str:
    match dialect.keys:
        case "camel":
            first, *rest = name.split("_")
            return first + "".join(word.title() for word in rest)
        case "title":
            return name.title().replace("_", "-")
        case "other":
            return chance.choice(_OTHER_KEYS.get(name, (name,)))
    return name


def _value(word: str, dialect: Dialect, chance: Random) -> str:
    match dialect.keys:
        case "title":
            return word.replace("_", " ").capitalize()
        case "other":
            return chance.choice(_OTHER_VALUES.get(word, (word,)))
    return word


def _spelled(finding: Mapping[str, str], dialect: Dialect, chance: Random) -> dict[str, str]:
    return {
        _key(name, dialect, chance): _value(part, dialect, chance) if name == "severity" else part
        for name, part in finding.items()
    }


# What stands around an answer

_THOUGHTS = (
    "The task is clear. Should I ask first? No, I can answer it now.",
    "Let me think: status: failed would be wrong here, because the work can be done.",
)
_IS_FORM = re.compile(r"---\n|\{|[A-Za-z-]+:(?: \w+)?\n")


def _surrounded(text: str, around: str, chance: Random) -> str:
    match around:
        case "thoughts":
            return f"<think>\n{chance.choice(_THOUGHTS)}\n</think>\n\n{text}"
        case "tokens":
            return f"{text}{chance.choice(('<|im_end|>', '<|eot_id|>', '</s>'))}"
        case "fence" if _IS_FORM.match(text) and "```" not in text:
            language = "json" if text.startswith("{") else chance.choice(("", "yaml"))
            return f"Here is my answer:\n\n```{language}\n{text}\n```"
    return text


# What is said first, and has to be asked about

_AS_HEADERS = Dialect(form="headers")
_NO_CHANCE = Random(0)  # noqa: S311 - never drawn from


def _always(text: str) -> Evasion:
    return lambda _meaning, _asked: text


def _silent(_: Answer, asked: Asked) -> str:
    return "" if asked.turn is Turn.ANSWER else "NO_REPLY"  # a question may be left open


def _partial(meaning: Answer, _: Asked) -> str:
    if not isinstance(meaning, Results):
        return ""
    return f"---\ntype: reply\nstatus: partial\n---\n\n## Results\n\n{meaning.text}"


def _with_unknown_key(meaning: Answer, asked: Asked) -> str:
    return _as_headers(meaning, asked).replace("---\n", "---\nneeds_approval: true\n", 1)


def _twice(meaning: Answer, asked: Asked) -> str:
    return f"{_as_headers(meaning, asked)}\n\n---\ntype: reply\nstatus: failed\n---\n\n## Error\n\nNo time."


def _contradicting(meaning: Answer, asked: Asked) -> str:
    match meaning:
        case Reviewed():
            grave = Finding("major", "The second figure is wrong.")
            return _as_headers(Reviewed(Verdict.APPROVED, meaning.summary, (grave,)), asked)
        case Results() if asked.answers:
            return " and ".join(asked.answers)
        case Results():
            return f"{_as_headers(meaning, asked)}\n\n## Error\n\nThe last part is missing."
    return ""


def _cut(meaning: Answer, asked: Asked) -> str:
    """A plan whose block is not closed, because the answer had reached its limit."""
    return _as_headers(meaning, asked).removesuffix("```") if isinstance(meaning, Planned) else ""


def _with_unknown_edge(meaning: Answer, asked: Asked) -> str:
    if not isinstance(meaning, Planned) or not meaning.plan.children:
        return ""
    *others, last = meaning.plan.children
    lost = replace(last, depends_on=(*last.depends_on, "the-part-that-is-missing"))
    return _as_headers(Planned(replace(meaning.plan, children=(*others, lost))), asked)


def _as_headers(meaning: Answer, asked: Asked) -> str:
    return _written(meaning, _AS_HEADERS, _NO_CHANCE, asked.answers) or ""


EVASIONS: Mapping[str, Evasion] = {
    "refusal": _always("I'm sorry, but I can't help with that."),
    "promise": _always("Sure! I'll start right away and report back when it is ready."),
    "silence": _silent,
    "only-thoughts": _always("<think>\nThe task asks for several things, so first I"),
    "partial": _partial,
    "unknown-key": _with_unknown_key,
    "two-answers": _twice,
    "contradiction": _contradicting,
    "cut": _cut,
    "unknown-edge": _with_unknown_edge,
}
"""What a model says that has to be asked about: the text, or nothing where it does not fit the meaning."""

DIALECTS: Mapping[str, Dialect] = {
    "form": Dialect(),
    "headers": _AS_HEADERS,
    "bare": Dialect(form="bare"),
    "json": Dialect(form="json"),
    "camel-case": Dialect(form="json", keys="camel", children="list"),
    "title-case": Dialect(form="headers", keys="title"),
    "other-words": Dialect(form="bare", keys="other", children="list"),
    "list": Dialect(form="headers", children="list"),
    "mentions": Dialect(form="headers", children="list", mentions=True),
    "thoughts": Dialect(around="thoughts"),
    "tokens": Dialect(around="tokens"),
    "fence": Dialect(form="headers", around="fence"),
    "prose": Dialect(judges="prose"),
    "table": Dialect(judges="table"),
    **{name: Dialect(evades=name) for name in EVASIONS},
}
"""The dialects that a script may name."""
