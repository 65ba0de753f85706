"""New work from a person, on the command line or the page: a task message, written into an agent's inbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mailboxd.core.sanitize import storable_text
from mailboxd.core.vocabulary import SELF
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.formats.mailbox.layout import Workspace

if TYPE_CHECKING:
    from mailboxd.core.model import Plan
    from mailboxd.formats.protocol.deadlines import Calendar
    from mailboxd.formats.protocol.plan import Dag
    from mailboxd.formats.protocol.recipe import Recipe
    from mailboxd.hub.files.view import HubView
    from mailboxd.ledger.reports import Report


@dataclass(frozen=True, slots=True)
class Draft:
    """The texts of a task."""

    title: str
    instructions: str
    """The instructions. Sections of a spec in them (`## Goal`, `## Scope Out` ...) count as such."""
    context: str = ""
    expected_output: str = ""
    criteria: Sequence[str] = ()
    dag: str = ""


def filled_in(
    ws: Workspace, recipe: Recipe, given: Sequence[tuple[str, str]], calendar: Calendar | None = None
) -> Draft:
    """The draft that a recipe makes of these values; `calendar` says what its dates mean.

    Raises MessageError; as `admitted`.
    """
    from mailboxd.formats.protocol.recipe import expand, values_of

    made = expand(recipe, values_of(recipe, given), calendar)
    texts = {"instructions": made.title, **made.texts}
    return Draft(made.title, **texts, criteria=made.criteria, dag=admitted(made.dag, ws))


def admitted(dag: Dag, ws: Workspace) -> str:
    """The `## DAG` section with this plan, for the agent of this workspace.

    Raises PlanError, also for agents that it cannot give work to, reviewers that do not exist, and harnesses and models
    that it does not have; ConfigError if the receiver's configuration cannot be read.
    """
    from functools import partial

    from mailboxd.core import plans
    from mailboxd.core.specs import unknown_harness
    from mailboxd.core.task_view import Limits
    from mailboxd.formats import config
    from mailboxd.formats.config.settings import settings as settings_of
    from mailboxd.formats.protocol.plan import render_dag

    settings = settings_of(config.load(ws.config)) if ws.config.exists() else None
    plans.admit(dag.plan, Limits() if settings is None else settings.limits, 0)
    if settings is not None:
        for child in plans.walk(dag.plan.children):
            may_use = partial(unknown_harness, settings.harnesses)
            plans.require_worker(child, settings.agent, may_use, settings.models)
        if ws.database.exists():
            _require_known(dag.plan, settings.agent, ws)
    return f"```yaml\n{render_dag(dag)}```"


_GIVEN = "work"
"""The one subtask of a task that another agent is to do."""


def given_to(draft: Draft, agent: str, ws: Workspace, calendar: Calendar) -> Draft:
    """The draft as a plan of one subtask for `agent`, whose result is the answer.

    So a task for an agent of another host, or for a pool, is one here, too: it can be seen, asked about and cancelled.
    Raises Refused if the draft has a plan; as `admitted`.
    """
    from mailboxd.core.model import PlannedChild
    from mailboxd.formats.protocol.plan import Dag, DagNode

    if draft.dag or with_plan(draft, ws, calendar) is not draft:
        raise Refused("bad-form", "the plan names its agents itself", "Leave the agent out, or the plan.")
    child = PlannedChild(
        _GIVEN,
        (agent,),
        draft.title,
        instructions=draft.instructions,
        expected_output=draft.expected_output,
        context=draft.context,
        acceptance_criteria=tuple(draft.criteria),
    )
    return replace(draft, dag=admitted(Dag((DagNode(child),), synthesis=_GIVEN), ws))


def with_plan(draft: Draft, ws: Workspace, calendar: Calendar | None = None) -> Draft:
    """The draft, whose plan is also the one that a person typed into its instructions as `## DAG`; `calendar` says what
    its dates mean.

    Raises MessageError for two plans; as `admitted`.
    """
    from mailboxd.formats.protocol.markdown import join_body, split_body
    from mailboxd.formats.protocol.plan import claimed_plans, parse_dag

    text = storable_text(draft.instructions)
    if not (typed := claimed_plans(text)):
        return draft
    if draft.dag or len(typed) > 1:
        raise MessageError("duplicate-section", "there are two plans", "Write one `## DAG`.")
    (plan,), body = typed, split_body(text)
    rest = [section for section in body.sections if section != plan]
    instructions = join_body(body.title, body.preamble, rest).strip()
    dag = parse_dag(plan.text, path="## DAG", first_line=plan.line, calendar=calendar)
    return replace(draft, instructions=instructions, dag=admitted(dag, ws))


def _require_known(plan: Plan, own: str, ws: Workspace) -> None:
    """Raise PlanError for an agent of the plan of which it is known that `own` cannot give it work, and for a reviewer
    that OpenClaw does not have.

    As the daemon will judge it, by the latest answers of OpenClaw and of the hub.
    """
    from mailboxd.core.plans import walk
    from mailboxd.formats.mailbox import lock
    from mailboxd.hub.files.membership import Membership
    from mailboxd.hub.files.view import HubView
    from mailboxd.ledger.reports import opened

    hub = HubView(ws, own, Membership.of(os.environ).state)
    with opened(ws.database) as report:
        known, reachable = report.agents(), report.reachable(own)
        agents = {agent for child in walk(plan.children) for agent in child.agents}
        refused = {agent: why for agent in agents if (why := _why_not(report, hub, own, agent))}
    for child in walk(plan.children):
        for reviewer in (child.overrides.reviewers or ()) if known else ():
            if "." not in reviewer and (why := unknown_reviewer(reviewer, [*known, own])):
                raise PlanError("unknown-agent", f"{child.key}: {why}")
        for agent in child.agents:
            if (why := refused.get(agent)) is None:
                continue
            from difflib import get_close_matches

            near = get_close_matches(agent, reachable, 1)
            hint = f"Did you mean {near[0]}? " if near and agent not in known else ""
            others = ", ".join(sorted([*reachable, *hub.offered()]))
            hint += f"{own} may give work to {others or 'nobody else'}, and to itself (self)."
            if lock.holder(ws) is None:
                hint += " Is that out of date? `mailboxd run --until-idle` asks again."
            raise PlanError("unknown-agent", f"{child.key}: {why}", hint)


def _why_not(report: Report, hub: HubView, own: str, agent: str) -> str | None:
    """Why the agent cannot be given work; None = it can, or nobody has said yet."""
    from mailboxd.core.messaging import Messaging

    if agent == SELF or agent.lower() == own.lower():
        return None
    known = {name.lower() for name in report.agents()}
    if agent.lower() not in known and hub.carries(agent):
        return hub.refused(agent) if hub.is_informed(agent) or not hub.is_member else None
    if agent.lower() not in known and "." in agent:
        return f"there is no agent {agent}" if known else None
    if (why := report.refused(own, agent)) is not None or not known:
        return why
    may_tell = Messaging(*report.peers().get("messaging", (True, ()))).permits(own, agent)
    return None if may_tell else f"OpenClaw's tools.agentToAgent does not let {own} send work to {agent}"


def receivers(report: Report, own: str) -> list[str]:
    """The other agents of this OpenClaw to whom `own` may give work, as far as is known."""
    from mailboxd.core.messaging import Messaging

    messaging = Messaging(*report.peers().get("messaging", (True, ())))
    return [name for name in report.reachable(own) if messaging.permits(own, name)]


def unknown_reviewer(name: str, known: Sequence[str]) -> str | None:
    """Why nobody of this name can review; None if one of the agents `known` or a person can."""
    from mailboxd.core.vocabulary import OPERATORS

    names = sorted({*known, *OPERATORS})
    if name.lower() in {one.lower() for one in names}:
        return None
    from difflib import get_close_matches

    near = get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(names)}"
    return f"there is no agent {name} to review it; {hint}"


def compose(draft: Draft, headers: Mapping[str, object]) -> bytes:
    """The bytes of a `type: task` message. Raises MessageError if it would be invalid."""
    from pydantic import ValidationError

    from mailboxd.formats.protocol.markdown import Section
    from mailboxd.formats.protocol.messages import TaskMessage, render_message
    from mailboxd.formats.protocol.spec import taken_apart

    instructions, written = taken_apart(draft.instructions)
    said = (
        Section("Context", draft.context),
        Section("Instructions", instructions),
        Section("Expected Output", draft.expected_output),
        Section("Acceptance Criteria", "\n".join(f"- {' '.join(criterion.split())}" for criterion in draft.criteria)),
        *written,
        Section("DAG", draft.dag),
    )
    sections = tuple(section for section in said if section.text.strip())
    try:
        return render_message(TaskMessage.model_validate({**headers, "title": draft.title, "sections": sections}))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = str(first["loc"][0]) if first["loc"] else None
        raise MessageError("field-range", first["msg"], field=field) from error


def signed_by(ws: Workspace, sender: str, raw: bytes) -> bytes:
    """Sign the message if the operator sends it and has a key. Raises ConfigError for an unusable key."""
    from mailboxd.core.vocabulary import OPERATORS
    from mailboxd.formats.keys import Keyring, require_extra, signed

    keyring = Keyring.of(ws.root, os.environ)
    key = keyring.private(keyring.operator_file) if sender.lower() in OPERATORS else None
    if key is None:
        return raw
    require_extra()
    return signed(raw, key)


def calendar_of(ws: Workspace, now: str) -> Calendar:
    """What `tomorrow` means for the operator of this workspace. Raises ConfigError."""
    from mailboxd.formats import config
    from mailboxd.formats.protocol.deadlines import Calendar
    from mailboxd.host import zone

    return Calendar(now, zone.named(config.load(ws.config).zone if ws.config.exists() else ""))


def read_moments(given: Mapping[str, str | None], calendar: Calendar) -> dict[str, str]:
    """The `deadline` and the `not_before` that a person wrote, as times; those that are not given are left out.

    Raises MessageError for one that is unclear, a deadline that is over, and a beginning that is not before it.
    """
    from mailboxd.formats.protocol.deadlines import read_beginning, read_deadline

    found: dict[str, str] = {}
    for name, read in (("deadline", read_deadline), ("not_before", read_beginning)):
        if text := (given.get(name) or "").strip():
            try:
                found[name] = read(text, calendar)
            except MessageError as error:
                error.field = name
                raise
    deadline, begins = found.get("deadline"), found.get("not_before")
    if deadline is not None and deadline <= calendar.now:
        problem = f"the deadline {calendar.told(deadline)} has passed"
        raise MessageError("past-deadline", problem, "Write a later one.", field="deadline")
    if deadline is not None and begins is not None and begins >= deadline:
        problem = f"it is to begin at {calendar.told(begins)}, and its deadline is {calendar.told(deadline)}"
        raise MessageError("past-deadline", problem, "Write a later deadline.", field="not_before")
    return found


def file_name(task_id: str) -> str:
    """The name of the message's file. Its prefix avoids hidden names and those of editors' temporary files."""
    return f"task-{task_id}.md"


def put(ws: Workspace, task_id: str, raw: bytes, program: str) -> str:
    """Put the message into the inbox and wake the daemon; returns the name of the file. Raises WorldError.

    `program` is the one that sends it (`core.entrance.PROGRAMS`).
    """
    from mailboxd.formats.mailbox.maildir import deliver
    from mailboxd.host import wakeup

    name = deliver(ws.inbox, file_name(task_id), raw, below=ws.root, renamed=True, program=program)
    wakeup.poke(ws.state)
    return name
