"""The workspaces that the page shows, and what its forms do in them.

A form records the same input as a command, under the system user name. A decision carries the digest of the approval
that was shown.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailboxd.core.approvals import ApprovalDecision
from mailboxd.core.explain.overview_details import HostRow
from mailboxd.core.model import Task
from mailboxd.core.operator_orders import BY_NAME, OPERATOR, OperatorOrder
from mailboxd.core.sanitize import storable_text
from mailboxd.core.standstill import Standstill
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import is_id
from mailboxd.engine import open, operator_commands, sending
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import decisions, held_orders, repetitions, trial
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import ConfigError, MailboxdError, Refused, UnavailableError
from mailboxd.formats import config
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.unread import unread
from mailboxd.formats.protocol.messages import AnswerMessage, AnyMessage, ApprovalMessage, CancelMessage
from mailboxd.formats.protocol.recipe import Recipes
from mailboxd.formats.user import registry, saved_searches, standstills
from mailboxd.host import process, wakeup
from mailboxd.host.clock import Clock
from mailboxd.host.ids import Ids, readable
from mailboxd.hub.client import decisions as deciding
from mailboxd.hub.client.report import hub_report
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.names import Address
from mailboxd.ledger import seen_items
from mailboxd.ledger.attention_queries import failed_at, failure, is_refused, is_untold
from mailboxd.ledger.overview_queries import finished_at
from mailboxd.ledger.reports import opened
from mailboxd.ledger.task_queries import find_exact
from mailboxd.surfaces.web import bulk, new_task
from mailboxd.surfaces.web.new_task import Form, plain, text_of


@dataclass(frozen=True, slots=True)
class WebWorkspace:
    """A workspace on the page. `key` identifies it in addresses and depends only on its directory."""

    ws: Workspace

    @property
    def key(self) -> str:
        return self.ws.key

    @property
    def path(self) -> str:
        """The directory as printable text."""
        return os.fsencode(self.ws.root).decode("utf-8", "replace")


@dataclass(slots=True)
class WebWorkspaces:
    """The workspaces in `named`; if there are none, `own` and those in the user's registry."""

    named: Sequence[Path] = ()
    own: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _agents: dict[Path, tuple[tuple[int, int], str]] = field(default_factory=dict)

    def all(self) -> list[WebWorkspace]:
        """All of them, each once. Raises nothing."""
        roots = list(self.named)
        if not roots:
            roots = [*([self.own] if self.own else []), *(ws.root for ws in self._registered())]
        return [WebWorkspace(Workspace(root)) for root in dict.fromkeys(roots)]

    def find(self, key: str) -> WebWorkspace | None:
        return next((workspace for workspace in self.all() if workspace.key == key), None)

    def agent(self, workspace: WebWorkspace) -> str:
        """The agent in the configuration, cached until the file changes; empty if it cannot be read."""
        try:
            status = workspace.ws.config.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._agents.get(workspace.ws.root)
            if known is None or known[0] != stamp:
                known = self._agents[workspace.ws.root] = (stamp, config.load(workspace.ws.config).agent)
        except (OSError, MailboxdError):
            return ""
        return known[1]

    def hosts(self, now: str) -> list[HostRow]:
        """The other hosts of the hub, if all workspaces of the user are shown. Raises ConfigError, WorldError."""
        membership = self.hub()
        return hub_report(membership).rows(now) if membership else []

    def hub(self) -> Membership | None:
        """This host's part in the hub, if there is one and all workspaces of the user are shown."""
        membership = Membership.of(self.environ)
        return membership if not self.named and membership.exists() else None

    def _registered(self) -> list[Workspace]:
        try:
            return registry.workspaces(self.environ)
        except MailboxdError:
            return []


def require(root: Path) -> Path:
    """The real path of a workspace. Raises UnavailableError."""
    return Workspace.find(root, root).root


def _engine(workspace: WebWorkspace) -> AbstractContextManager[Engine]:
    """Raises MailboxdError."""
    if not workspace.ws.config.exists():
        raise ConfigError(f"{workspace.path}: there is no configuration; `mailboxd init` writes one")
    return open.engine(workspace.ws, config.load(workspace.ws.config), by="page")


def recipes(workspace: WebWorkspace) -> Recipes:
    return Recipes(workspace.ws.templates / "recipes")


STANDSTILLS = ("pause-all", "resume-all")
HELD = "held"
"""What became of an order that ends a task: it is held for some seconds."""
_MAX_NOTE = 4_000
_MAX_TITLE = 200
_MAX_ANSWER = 100_000
MOST_CORRECTED = 64 << 10
"""Bytes of a message that is corrected in a form: sent, each may become three."""
_MESSAGE = re.compile(r"[0-9A-Za-z_]{6,40}")
_DIGEST = re.compile(r"[0-9a-f]{64}|")


@dataclass(frozen=True, slots=True)
class FormActions:
    """What forms do: they record an order and leave effects to the daemon."""

    clock: Clock
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def send(self, workspace: WebWorkspace, form: Form) -> tuple[str, str]:
        """Send a task to the agent of this workspace, as `mailboxd send` and `recipe run` do.

        Returns what was done, and the id of the message. Raises MailboxdError.
        """
        now = self.clock.now()
        draft, headers = new_task.read(workspace.ws, form, sending.calendar_of(workspace.ws, now))
        message_id = Ids().new("msg", now)
        task_id = readable(message_id[-6:].lower(), draft.title)
        identity = {"task_id": task_id, "from": OPERATOR, "message_id": message_id, "sent_at": now, **headers}
        raw = sending.signed_by(workspace.ws, OPERATOR, sending.compose(draft, identity))
        sending.put(workspace.ws, task_id, raw, "page")
        return ("sent" if lock.holder(workspace.ws) is not None else "left"), message_id

    def decide(self, workspace: WebWorkspace, approval: str, form: Form) -> str:
        """Approve or request changes, or hold a rejection; returns what was done. Raises MailboxdError."""
        decision, note, digest = _decision(form)
        with _engine(workspace) as engine, engine.batch():
            (row,) = operator_commands.requested(engine, [approval])
            _require_shown(row.short_id, row.digest, digest)
            if decision is ApprovalDecision.REJECTED:
                held_orders.hold_rejection(engine, [row.id], note, process.name())
                done = None
            else:
                (done,) = decisions.decide(engine, [row.id], decision, note, process.name())
        wakeup.poke(workspace.ws.state)
        if done is None:
            return HELD
        if not done.events:
            raise Refused("already-decided", f"{row.short_id} is {row.status} already, by {row.resolved_by}")
        return decision.value

    def dismiss(self, workspace: WebWorkspace, name: str) -> str:
        """Take this message, failed task, refused file or addressee (the `id` of its item) off the inbox.

        Raises MailboxdError.
        """
        with opened(workspace.ws.database) as report:
            ended, is_listed = failed_at(report, name), is_refused(report, name) or is_untold(report, name)
            lying = unread(workspace.ws, report, to_epoch(self.clock.now())) if "/" in name else []
        files = {one.path: one.changed for one in lying if one.path == name and not one.command}
        if files:
            _require_noted(seen_items.see(workspace.ws.root, self.environ, self.clock.now(), {}, files), self.environ)
            return "dismissed"
        if ended is None and not is_listed and _MESSAGE.fullmatch(name) is None:
            raise Refused("bad-form", "the form names nothing that could be dismissed", "Open the page again.")
        if ended is not None:
            noted = seen_items.see(workspace.ws.root, self.environ, self.clock.now(), {name: ended})
            _require_noted(noted, self.environ)
            return "dismissed"
        with _engine(workspace) as engine, engine.batch():
            operator_commands.dismiss(engine, [name], process.name())
        wakeup.poke(workspace.ws.state)
        return "dismissed"

    def correct(self, workspace: WebWorkspace, message: str, form: Form) -> str:
        """Send a rejected message again, as it was corrected, if it would be taken; returns what was done.

        Raises MailboxdError.
        """
        text = storable_text(form.get("text", ""))
        if not text.strip() or len(text.encode()) > MOST_CORRECTED:
            raise Refused("bad-form", f"the text is empty, or longer than {MOST_CORRECTED} bytes", "Write it.")
        with opened(workspace.ws.database) as report:
            file, before = trial.rejected(report, message)
        if text == storable_text(before):
            raise Refused("unchanged", "nothing was changed: it would be rejected again", "Correct it.")
        trial.taken(workspace.ws, config.load(workspace.ws.config), self.clock, file, text.encode())
        trial.send_again(workspace.ws, file, text, "page")
        wakeup.poke(workspace.ws.state)
        return "sent-again"

    def read(self, workspace: WebWorkspace, task: str) -> str:
        """Note that the user has read the result of this task (local id). Raises MailboxdError."""
        with opened(workspace.ws.database) as report:
            found = find_exact(report, task) if is_id(task) else None
            ended = None if found is None else finished_at(report, found)
        if found is None or ended is None:
            raise Refused("bad-form", "the form names no finished task", "Open the page again.")
        noted = seen_items.read(workspace.ws.root, self.environ, self.clock.now(), {found: ended})
        _require_noted(noted, self.environ)
        return "read"

    def read_all(self, workspaces: Sequence[WebWorkspace], until: str) -> str:
        """Note that the user has read every result that had come when the page was made. Raises Refused."""
        try:
            to_epoch(until)
        except ValueError:
            raise Refused("bad-form", "the form says no time", "Open the page again.") from None
        now = self.clock.now()
        noted = [seen_items.read(one.ws.root, self.environ, now, {}, until=until) for one in workspaces]
        _require_noted(all(noted), self.environ)
        return "read"

    def order(self, workspace: WebWorkspace, task: str, form: Form) -> str:
        """Give an order about a task, or about all circuits of a cause; hold one that ends the task.

        Returns what was done. Raises MailboxdError.
        """
        order, values = _order(form)
        with _engine(workspace) as engine, engine.batch():
            of_cause = task.startswith(operator_commands.CAUSE)
            ordered = held_orders.hold if order.ends else operator_commands.give
            for found in operator_commands.tasks_of(engine, task) if of_cause else [_task(engine, task)]:
                ordered(engine, found, order, values, process.name())
        wakeup.poke(workspace.ws.state)
        return HELD if order.ends else order.name

    def stand_still(self, word: str, form: Form) -> str:
        """Pause every agent of this user, or let them go on (`word`); returns what was done. Raises MailboxdError."""
        if word not in STANDSTILLS:
            raise Refused("bad-form", "the form says neither pause nor resume", "Open the page again.")
        said = Standstill(process.name(), self.clock.now(), text_of(form, "note", _MAX_NOTE), word == "resume-all")
        standstills.say_standstill(self.environ, said)
        try:
            places = registry.workspaces(self.environ)
        except MailboxdError:  # what was said holds without the list, which only tells whom to wake
            return f"{word}-unheard"
        for ws in places:
            wakeup.poke(ws.state)
        return word

    def repeat(self, workspace: WebWorkspace, name: str, order: str) -> str:
        """Pause, resume, run or end work that repeats; returns what was done. Raises MailboxdError."""
        user = process.name()
        with _engine(workspace) as engine, engine.batch():
            one = engine.store.repetitions.named(name)
            if one is None:
                raise Refused("bad-form", "there is no such work that repeats", "Open the page again.")
            match order:
                case "pause":
                    repetitions.pause(engine, one, "", user)
                case "resume":
                    repetitions.resume(engine, one, "", user)
                case "run":
                    repetitions.run_now(Intake(engine), engine, one, user)
                case "end":
                    repetitions.end(engine, one, "", user)
                case _:
                    raise Refused("bad-form", "that is no order about work that repeats", "Open the page again.")
        wakeup.poke(workspace.ws.state)
        return f"repeat-{order}"

    def for_all(self, workspace: WebWorkspace, form: Form) -> bulk.Done:
        """Give the order of the form for all tasks that it names and that are as they were listed; or hold it.

        Raises MailboxdError.
        """
        order = bulk.BULK.get(form.get("all", ""))
        if order is None:
            raise Refused("bad-form", "the form has no valid order", "Open the list again.")
        tasks, note = bulk.read_stamps(form.get("tasks", "")), text_of(form, "note", _MAX_NOTE)
        if order.name == "dismiss":
            return self._dismissed(workspace, order, tasks)
        count, left, user = 0, list[tuple[str, str]](), process.name()
        with _engine(workspace) as engine, engine.batch():
            as_listed = {one.id for one in tasks if _is_as_listed(engine.store.tasks.get(one.id), one)}
            for one in tasks:
                try:
                    with engine.store.savepoint():
                        _order_one(engine, one, order.name, note, user)
                except Refused as refusal:
                    if refusal.rule == bulk.CHANGED and one.id in as_listed:
                        count += 1  # this very order has reached it, with a task above or below it
                    else:
                        left.append((one.id, refusal.rule))
                else:
                    count += 1
        wakeup.poke(workspace.ws.state)
        return bulk.Done(order, count, left)

    def _dismissed(self, workspace: WebWorkspace, order: bulk.BulkOrder, tasks: Sequence[bulk.Listed]) -> bulk.Done:
        with opened(workspace.ws.database) as report:
            ended = {
                one.id: at
                for one in tasks
                if (failed := failure(report, one.id)) and bulk.listed(failed) == one and (at := failed["completed_at"])
            }
        if ended:
            noted = seen_items.see(workspace.ws.root, self.environ, self.clock.now(), ended)
            _require_noted(noted, self.environ)
        left = [(one.id, bulk.CHANGED) for one in tasks if one.id not in ended]
        return bulk.Done(order, len(ended), left)

    def save_search(self, name: str, address: str) -> str:
        """Save the search at this address of the page; returns what was done. Raises MailboxdError."""
        saved_searches.save_search(self.environ, plain(name), address)
        return "saved"

    def forget_search(self, name: str) -> str:
        """Forget a saved search; returns what was done. Raises MailboxdError."""
        saved_searches.forget_search(self.environ, name)
        return "forgotten"

    def undo_all(self, workspace: WebWorkspace, together: str) -> str:
        """Take back what was ordered at once (`page_models.held_orders`) and is held. Raises MailboxdError."""
        at, _, rest = together.partition("|")
        name, _, by = rest.partition("|")
        with _engine(workspace) as engine, engine.batch():
            held_orders.take_back_together(engine, at, name, by, process.name())
        wakeup.poke(workspace.ws.state)
        return "undone"

    def undo(self, workspace: WebWorkspace, task: str) -> str:
        """Take back what is held about this task. Raises MailboxdError."""
        with _engine(workspace) as engine, engine.batch():
            held_orders.take_back(engine, _task(engine, task), process.name())
        wakeup.poke(workspace.ws.state)
        return "undone"

    def elsewhere(self, membership: Membership, agent: Address, form: Form) -> str:
        """What a form says about work of an agent on another host; returns what was done. Raises MailboxdError."""
        if "decision" in form:
            decision, note, digest = _decision(form)
            row = deciding.requested(membership, agent, form.get("approval", ""))
            _require_shown(row.short_id, row.digest, digest)
            kind: type[AnyMessage] = ApprovalMessage
            headers = {"task_id": row.task, "approval_id": row.id, "decision": decision.value, "preamble": note}
            done = decision.value
        else:
            order, values = _order(form)
            if order.name not in _ELSEWHERE:
                raise Refused("bad-form", "that order is given on its own host", "Open the overview again.")
            kind, done = _ELSEWHERE[order.name], order.name
            headers = {
                "task_id": form.get("task", ""),
                "preamble": values["text" if order.name == "answer" else order.note] or "",
            }
        receipt = deciding.decide(membership, self.clock, _pause, _PATIENCE, agent, kind, **headers)
        if receipt.outcome == deciding.UNDER_WAY:
            return "carried"
        if receipt.outcome not in deciding.FINE:
            raise Refused("refused-there", f"{agent}: {receipt.outcome}, {receipt.why or 'without a reason'}")
        return done


_ELSEWHERE: Mapping[str, type[AnyMessage]] = {"answer": AnswerMessage, "cancel": CancelMessage}
"""The orders that another host takes."""
_PATIENCE = 8.0
"""Seconds to wait for another host's receipt."""


def _require_noted(noted: bool, environ: Mapping[str, str]) -> None:
    if not noted:
        raise seen_items.not_noted(environ, "; the log of the page says more")


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _decision(form: Form) -> tuple[ApprovalDecision, str, str]:
    """The decision of a form, its note, and the digest that was shown. Raises Refused."""
    try:
        decision = ApprovalDecision(form.get("decision", ""))
    except ValueError:
        raise Refused("bad-form", "the form has no valid decision", "Open the request again.") from None
    note, digest = text_of(form, "note", _MAX_NOTE), form.get("digest", "")
    if decision is not ApprovalDecision.APPROVED and not note:
        raise Refused("bad-form", "a note is required unless you approve", "Write a note.")
    if _DIGEST.fullmatch(digest) is None:
        raise Refused("bad-form", "the form has no valid digest", "Open the request again.")
    return decision, note, digest


def _require_shown(name: str, digest: str, shown: str) -> None:
    if digest != shown:
        problem = f"request {name} is not the one shown: its digest is {digest[:12] or 'empty'}"
        raise Refused("digest-mismatch", problem, "Read it again.")


def _task(engine: Engine, name: str) -> Task:
    found = engine.store.tasks.by_local_id(name)
    if found is None:
        raise UnavailableError(f"there is no task {ascii(name)[:100]}")
    return found


def _is_as_listed(task: Task | None, one: bulk.Listed) -> bool:
    return task is not None and bulk.Listed(task.id, task.attempt, str(task.phase)) == one


def _order_one(engine: Engine, one: bulk.Listed, name: str, note: str, user: str) -> None:
    """Give or hold an order about one of many tasks. Raises Refused, also if it is not as it was listed."""
    task = engine.store.tasks.get(one.id)
    if task is None or not _is_as_listed(task, one):
        raise Refused("changed", "it has changed since the list was shown")
    order = BY_NAME[bulk.order_for(name, task.phase, task.held)]
    values = order.read({order.note: note})
    (held_orders.hold if order.ends else operator_commands.give)(engine, task, order, values, user)


def _order(form: Form) -> tuple[OperatorOrder, dict[str, Any]]:
    """The order of a form, and the values of its fields. Raises Refused."""
    name = form.get("order", "")
    order = BY_NAME.get(name)
    if order is None or not order.label:
        raise Refused("bad-form", "the form has no valid order", "Open the task again.")
    return order, order.read({name: plain(text) for name, text in form.items()})
