"""The form of a new task: its fields, read one by one, so that each that is wrong is explained beside itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mailboxd.core.operator_orders import OPERATOR, Field, FieldKind
from mailboxd.core.sanitize import first_line, storable_text
from mailboxd.core.vocabulary import Gate, same_agent
from mailboxd.engine import sending
from mailboxd.errors import MailboxdError, MessageError, PlanError, Refused
from mailboxd.formats import config
from mailboxd.formats.config.settings import settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.plan import parse_dag
from mailboxd.formats.protocol.recipe import Recipes
from mailboxd.formats.protocol.repeats import read_repeat
from mailboxd.ledger.reports import opened

Form = Mapping[str, str]
REVIEWER = "reviewer-"
"""Begins the name of the box of each agent that may review."""
MOST_AGENTS = 40
_MOST_LINE = 200
_MOST_TEXT = 100_000
_BUDGET = Field("budget_usd", FieldKind.MONEY, "Budget", "Write dollars, like 2 or 0.5.")
_WHEN = ("deadline", "not_before")
_T = TypeVar("_T")


@dataclass
class WrongFields(Refused):
    """A form with fields that are wrong; `fields` says of each why."""

    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choices:
    """Who can do a new task of a workspace, and who can review it."""

    agents: tuple[str, ...] = ()
    """The other agents to whom its own may give work."""
    reviewers: tuple[str, ...] = ()


def choices(ws: Workspace, own: str) -> Choices:
    """What OpenClaw's latest answer allows; nothing before there is one. Raises nothing."""
    try:
        with opened(ws.database) as report:
            agents, known = sending.receivers(report, own), report.agents()
    except MailboxdError:
        return Choices()
    others = [name for name in known if not same_agent(name, own)]
    return Choices(tuple(agents[:MOST_AGENTS]), (*others[:MOST_AGENTS], OPERATOR))


def plain(text: str) -> str:
    return storable_text(text.replace("\r\n", "\n")).strip()


def text_of(form: Form, name: str, most: int) -> str:
    """The text of a field. Raises Refused."""
    text = plain(form.get(name, ""))
    if len(text) > most:
        raise Refused("bad-form", f"{name} has {len(text)} characters; the maximum is {most}", "Shorten it.")
    return text


def sentence(refusal: Refused | PlanError | MessageError) -> str:
    """Why something was refused, and what to write instead."""
    problem = refusal.problem[:1].upper() + refusal.problem[1:].rstrip(".")
    return f"{problem}. {refusal.hint}".strip()


def read(ws: Workspace, form: Form, calendar: Calendar) -> tuple[sending.Draft, dict[str, Any]]:
    """The task of a form, and its headers. Raises WrongFields for all that is wrong; WorldError, ConfigError."""
    return _Reader(ws, form, calendar).read()


class _Reader:
    def __init__(self, ws: Workspace, form: Form, calendar: Calendar) -> None:
        self._ws, self._form, self._calendar = ws, form, calendar
        self._wrong: dict[str, str] = {}

    def read(self) -> tuple[sending.Draft, dict[str, Any]]:
        of_recipe = bool(self._form.get("recipe"))
        draft = self._try("recipe" if of_recipe else "instructions", self._of_recipe if of_recipe else self._written)
        headers = self._headers()
        if self._wrong or draft is None:
            names = ", ".join(name.replace("_", " ") for name in self._wrong)
            first = next(iter(self._wrong.values()))
            one = len(self._wrong) == 1
            problem = first.rstrip(".") if one else f"{len(self._wrong)} fields are not right: {names}"
            raise WrongFields("bad-form", problem, "", self._wrong)
        return draft, headers

    def _try(self, name: str, reader: Callable[[], _T]) -> _T | None:
        """What a field says; None, with its problem noted, if that is wrong."""
        try:
            return reader()
        except (Refused, MessageError, PlanError) as refusal:
            of = refusal.field if isinstance(refusal, MessageError) and refusal.field in _WHEN else name
            self._wrong[str(of)] = sentence(refusal)
            return None

    def _written(self) -> sending.Draft | None:
        title = self._try("title", lambda: text_of(self._form, "title", _MOST_LINE)) or ""
        instructions = text_of(self._form, "instructions", _MOST_TEXT)
        if not instructions:
            raise Refused("bad-form", "a task needs instructions", "Write what is to be done.")
        expected = self._try("expected_output", lambda: text_of(self._form, "expected_output", _MOST_TEXT)) or ""
        draft = sending.Draft(title or first_line(instructions), instructions, expected_output=expected)
        plan, agent = self._form.get("plan", ""), self._agent
        if plan.strip():
            return self._try("plan", lambda: self._planned(draft, plan))
        if agent:
            return self._try("workspace", lambda: sending.given_to(draft, agent, self._ws, self._calendar))
        return sending.with_plan(draft, self._ws, self._calendar)

    @property
    def _agent(self) -> str:
        """The agent that was picked to do it, in place of the one of the workspace."""
        return self._form.get("workspace", "").partition(" ")[2]

    def _planned(self, draft: sending.Draft, text: str) -> sending.Draft:
        if self._agent:
            raise Refused("bad-form", "a plan names its agents itself", "Pick the agent of the workspace, or no plan.")
        if sending.with_plan(draft, self._ws, self._calendar) is not draft:
            raise Refused("bad-form", "there are two plans", "Write one, here or in the instructions.")
        dag = parse_dag(text_of({"plan": text}, "plan", _MOST_TEXT), path="plan", calendar=self._calendar)
        return replace(draft, dag=sending.admitted(dag, self._ws))

    def _of_recipe(self) -> sending.Draft | None:
        """A field holds a value; of a list, one on each line. An empty one is the default."""
        recipe = Recipes(self._ws.templates / "recipes").load(self._form["recipe"])
        said = [(one, text_of(self._form, f"with-{one.name}", _MOST_TEXT)) for one in recipe.parameters]
        if missing := [one.name for one, text in said if not text and one.default is None]:
            called = recipe.name[:1].upper() + recipe.name[1:]
            self._wrong |= {f"with-{name}": f"{called} needs {name}. Fill it in." for name in missing}
            return None
        given = [(one.name, line) for one, text in said for line in _values(text, is_list=one.is_list)]
        return sending.filled_in(self._ws, recipe, given, self._calendar)

    def _headers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in _WHEN:
            found |= self._try(name, lambda name=name: self._moment(name)) or {}  # type: ignore[misc]
        if len(found) == len(_WHEN):  # and one against the other
            self._try("deadline", lambda: sending.read_moments(self._said(_WHEN), self._calendar))
        if repeat := self._try("repeat", self._repeat):
            found["repeat"] = repeat
        if (budget := self._try("budget_usd", lambda: _BUDGET.read(self._form.get("budget_usd", "")))) is not None:
            found["budget_usd"] = budget
        return found | (self._try("reviewers", self._reviewers) or {})

    def _said(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: text_of(self._form, name, _MOST_LINE) for name in names}

    def _moment(self, name: str) -> dict[str, str]:
        return sending.read_moments(self._said([name]), self._calendar)

    def _repeat(self) -> str:
        repeat = text_of(self._form, "repeat", _MOST_LINE)
        if repeat:
            read_repeat(repeat)
            if text_of(self._form, "deadline", _MOST_LINE):
                raise MessageError("bad-repeat", "every run would have this one deadline", "Leave one of both empty.")
        return repeat

    def _reviewers(self) -> dict[str, Any]:
        """The reviewers that were ticked; to be asked, they need a gate."""
        names = tuple(name.removeprefix(REVIEWER) for name in self._form if name.startswith(REVIEWER))
        if not names:
            return {}
        loaded = settings(config.load(self._ws.config))
        with opened(self._ws.database) as report:
            known = report.agents()
        for name in names:
            if why := sending.unknown_reviewer(name, [*known, loaded.agent]):
                raise Refused("bad-form", why, "Pick another one.")
            if same_agent(name, self._agent or loaded.agent):
                raise Refused(
                    "bad-form", f"the task is done by {name}, and nobody reviews their own work", "Pick another one."
                )
        return {"reviewers": names, "gates": tuple(sorted({*loaded.policy.gates, Gate.QUALITY_GATE}))}


def _values(text: str, *, is_list: bool) -> list[str]:
    return [line for line in (text.splitlines() if is_list else [text]) if line]
