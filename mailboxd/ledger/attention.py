"""Everything that waits for a person: one list, the same in every view, notice and page.

An `Item` says in a sentence what waits and since when, and has the one command that moves it on. `of` collects them:
tasks that wait for a person, approvals, rejected files, messages and plans that may mean something else than they say,
and what keeps the daemon from working. `of_task`, `of_approval` and `of_troubles` are what notices are about.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from mailboxd.core import spending
from mailboxd.core.handovers import is_held as is_handed_over
from mailboxd.core.sanitize import first_line, one_line
from mailboxd.core.standstill import OVER, Standstill
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import NO_SUCH_AGENT, OPERATORS, STATES, State, WaitsFor, state_words
from mailboxd.errors import EXIT_LOCKED, ConfigError, MailboxdError
from mailboxd.formats import health
from mailboxd.formats.health import Component, Grade, Trouble
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import directory, read_file
from mailboxd.formats.mailbox.unread import Unread, new_tasks, sent_again, unread_mail
from mailboxd.formats.mailbox.unread import unread as unread_files
from mailboxd.formats.user.registry import all_are_served, server_for
from mailboxd.host.systemd_units import unit_running

if TYPE_CHECKING:
    from mailboxd.core.explain.model import Snapshot, TaskSnapshot
    from mailboxd.core.explain.overview_details import ItemDetails
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.host.clock import Clock
    from mailboxd.ledger.attention_queries import Seen, Waiting
    from mailboxd.ledger.open_tasks import OpenTasks
    from mailboxd.ledger.reports import Report, Row


MOST = 50
"""Items of each sort that a view reads."""
MOST_DETAILS = 8_000


class Need(StrEnum):
    """Why a person has to act. The first eight are also the `need` of a task.

    SUBTASKS: its open subtasks all wait, so it is displayed as waiting; the items are theirs.
    """

    QUESTION = "question"
    APPROVAL = "approval"
    CIRCUIT = "circuit"
    HOLD = "hold"
    SPEC = "spec"
    REVIEW = "review"
    AGENT = "agent"
    SUBTASKS = "subtasks"
    REJECTED = "rejected"
    EDIT = "edit"
    WARNING = "warning"
    FILE = "file"
    GATEWAY = "gateway"
    PEER = "peer"
    HUB = "hub"
    DAEMON = "daemon"
    HEALTH = "health"
    CONFIG = "config"
    FAILED = "failed"
    NOTICE = "notice"
    REPETITION = "repetition"
    ENDING = "ending"
    PAUSED = "paused"
    CAP = "cap"


OF_TASKS = frozenset({Need.QUESTION, Need.CIRCUIT, Need.HOLD, Need.SPEC, Need.REVIEW, Need.AGENT})
"""The kinds that an order about the task resolves."""


DISMISSIBLE = frozenset({Need.REJECTED, Need.WARNING, Need.EDIT, Need.FILE, Need.FAILED, Need.NOTICE})
"""The kinds of which a person says that they are seen; others leave when what they wait for has been done."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something that waits for a person."""

    kind: Need
    text: str
    """One sentence."""
    command: str
    """The command that resolves it; runs as printed."""
    since: str | None = None
    task: str = ""
    """Its local id; empty if it is about no task."""
    id: str = ""
    """Of the approval, the message, the peer or what is explained."""
    until: str | None = None
    """When it is decided without a person."""
    details: str = ""
    """All of a question of which `text` has only the first line; at most `MOST_DETAILS` characters."""
    tasks: int = 1
    """How many tasks it stands for, if they wait for one reason."""

    def as_json(self) -> ItemDetails:
        return {
            "kind": self.kind,
            "text": self.text,
            "command": self.command,
            "since": self.since,
            "task": self.task,
            "id": self.id,
            "until": self.until,
            "details": self.details,
            "tasks": self.tasks,
        }


@dataclass(frozen=True, slots=True)
class Attention:
    """The items, the most urgent first and then the oldest; at most `MOST` of each sort, and `total` in all."""

    items: tuple[Item, ...]
    total: int
    open: OpenTasks
    tasks: Mapping[str, TaskSnapshot]
    """The tasks among the items, by id."""
    failures: int = 0
    """Of `total`, the failed tasks that the user has not seen."""

    @property
    def more(self) -> int:
        return self.total - len(self.items)

    def graded(self, grade: Grade, pid: int | None) -> Grade:
        """The health with this configuration: an invalid one keeps a daemon from running (red), or from running again
        (amber). `pid` is that of the daemon, `grade` its own health.
        """
        if not any(item.kind is Need.CONFIG for item in self.items[:1]):
            return grade
        return Grade.RED if pid is None else Grade.AMBER if grade is Grade.GREEN else grade

    def states(self, phases: Mapping[str, int]) -> dict[str, int]:
        """The number of tasks by `state_words`, made of those by phase."""
        waiting = self.open.waiting_by_phase
        counts = dict.fromkeys(STATES, 0) | {State.NEEDS_YOU: sum(waiting.values())}
        for phase, count in phases.items():
            counts[state_words(phase)] += count - waiting.get(phase, 0)
        return {state: count for state, count in counts.items() if count}

    def as_json(self) -> list[ItemDetails]:
        return [item.as_json() for item in self.items]


def program_for(ws: Workspace) -> str:
    """How a command about this workspace begins, in any directory."""
    return f"mailboxd -w {shlex.quote(str(ws.root))}"


def of(
    ws: Workspace,
    report: Report,
    clock: Clock,
    program: str,
    seen: Seen,
    *,
    most: int | None = MOST,
    paused: Standstill | None = None,
) -> Attention:
    """Everything that waits for a person in this workspace, at most `most` of each sort; None: all.

    `seen` is what that person has seen (`seen_items.seen`). `paused` is the standstill of all agents
    (`standstills.standstill`), where it is to be an item. `program` begins the commands: `mailboxd`, with -w where
    that is needed.
    """
    from mailboxd.ledger.attention_queries import waiting_for_person

    pid, now = lock.holder(ws), clock.now()
    waiting = waiting_for_person(report, now, pid, seen, most)
    broken = of_troubles(ws, report, clock, program, pid)
    if (invalid := of_configuration(ws, pid)) is not None:  # `run` would only say the same
        broken = [invalid, *(item for item in broken if pid is not None or item.kind is not Need.DAEMON)]
    elif pid is None and not broken and not starts_soon(ws) and (work := _work(ws, report, waiting.open.for_daemon)):
        broken.append(Item(Need.DAEMON, f"no daemon is running, and {work} for it", start(ws, program)))
    elif pid is not None and is_change_unread(ws):
        text = "the changed configuration counts after a restart of the daemon"
        broken.append(Item(Need.DAEMON, text, _restart(ws, pid, program)))
    if paused is not None:
        broken.insert(invalid is not None, of_standstill(paused, program))
    found = unread_files(ws, report, to_epoch(now))
    unread = [_of_unread(ws, one, program) for one in found if not seen.has_file(one.path, one.changed)]
    lying = {one.path for one in found}
    # what is rejected but cannot be moved is named once, by what mends it
    rejected = [row for row in waiting.rejected if row["path"] or f"mailbox/inbox/{row['name']}" not in lying]
    tasks: Mapping[str, TaskSnapshot] = {}
    endings: list[Item] = []
    explained: list[Item] = []
    if (snapshot := waiting.snapshot) is not None:
        tasks, endings = snapshot.tasks, [*_endings(snapshot, program)]
        explained = [*_tasks(waiting, snapshot, program)]
    broken += [item for _, item in of_caps(report, now, program)]
    from mailboxd.ledger.later import failing

    broken += [
        Item(
            Need.REPETITION,
            one_line(f"{row['name']}: its latest run could not be made: {row['problem']}"),
            f"{program} retry {row['name']}",
            task="",
            id=row["name"],
            until=row["next_at"],
        )
        for row in failing(report)
    ]
    total = waiting.total - len(waiting.rejected) + len(rejected) + len(unread) + len(broken) + len(endings)
    waiting = replace(waiting, rejected=rejected)
    told = sorted([*explained, *_waiting(ws, waiting, program), *unread[:most]], key=lambda item: item.since or "")
    return Attention((*broken, *endings, *told), total, waiting.open, tasks, waiting.failures)


def _endings(snapshot: Snapshot, program: str) -> Iterator[Item]:
    """The orders that are held."""
    from mailboxd.core.explain import why

    for cause in why.endings(snapshot):
        command = cause.command.replace("mailboxd", program, 1)
        yield Item(Need.ENDING, cause.text, command, None, cause.task, until=cause.at)


def of_standstill(paused: Standstill, program: str) -> Item:
    """The standstill of all agents of the host."""
    return Item(Need.PAUSED, one_line(paused.text), OVER.replace("mailboxd", program, 1), paused.at)


_PLAIN = re.compile(rb"agent:[ ]+([\"']?)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\1[ ]*")
"""A line that names the agent."""


def of_configuration(ws: Workspace, pid: int | None) -> Item | None:
    """What is wrong with the configuration; None if nothing is. `pid` is that of the daemon."""
    if _is_sound(ws):
        return None
    from mailboxd.formats import config

    try:
        config.load(ws.config)
    except ConfigError as error:
        first, *others = str(error).split("\n")
        more = f"; and {len(others)} more (`mailboxd config` prints all)" if others else ""
        then = ""
        if pid is not None:
            then = "; the daemon goes on with the one that it has read, and could not start again"
        elif all_are_served(os.environ):
            then = "; the running `run --all` starts the daemon within 15 s of a change"
        text = f"the configuration is invalid: {one_line(first)}{more}{then}"
        return Item(Need.CONFIG, text, error.fix or f"${{EDITOR:-vi}} {shlex.quote(str(ws.config))}")
    return None


def is_change_unread(ws: Workspace) -> bool:
    """Whether the configuration is valid and says something else than what the running daemon has read."""
    from mailboxd.formats import config
    from mailboxd.ledger.reports import opened

    with suppress(OSError, MailboxdError):
        if ws.daemon_file.stat().st_mtime_ns <= ws.config.stat().st_ctime_ns:
            with opened(ws.database) as report:
                read = report.configuration()
            return read is not None and config.fingerprint(config.load(ws.config)) != read
    return False


def _restart(ws: Workspace, pid: int, program: str) -> str:
    """The command that starts the daemon anew: of the service that runs it, or else by hand."""
    if (starter := unit_running(pid) or server_for(ws.root, os.environ)) is not None:
        return starter.start(pid)
    return f"{program} doctor  # says how the daemon runs; stop it there, then start it: {program} run"


def cannot_begin(ws: Workspace, pid: int | None, now: str) -> tuple[str, str] | None:
    """Why nothing begins here, and the command that mends it, empty if it mends itself; None if the daemon `pid` works,
    or one could start.
    """
    if pid is None:
        if (item := of_configuration(ws, pid)) is not None:
            return item.text, item.command
        return (STARTS_SOON, "") if starts_soon(ws) else None
    stops = health.stopping(ws, pid, now)
    return (f"the daemon {stops}", start_after(pid, program_for(ws))) if stops else None


STARTS_SOON = "`mailboxd run --all` starts one within 15 s"


def starts_soon(ws: Workspace) -> bool:
    """Whether no daemon was ever started in this workspace, and the running `run --all` is about to."""
    return not health.has_reported(ws) and server_for(ws.root, os.environ) is not None


def start(ws: Workspace, program: str) -> str:
    """The command that starts a daemon where none runs: of the running `run --all`, or else by hand."""
    server = server_for(ws.root, os.environ)
    return f"{program} run" if server is None else server.start(None)


def start_after(pid: int, program: str) -> str:
    """The command that starts a daemon as soon as the one that stops (`pid`) has ended."""
    if (unit := unit_running(pid)) is not None:
        return unit.start(None)
    return f"until {program} run || [ $? != {EXIT_LOCKED} ]; do sleep 1; done"


def _is_sound(ws: Workspace) -> bool:
    """Whether the configuration is valid for certain, without parsing it, which takes 100 ms.

    It is if a daemon has started with it, or if it only names the agent, as `mailboxd init` writes it.
    """
    with suppress(OSError):
        status = ws.config.stat()
        with suppress(FileNotFoundError):
            if ws.daemon_file.stat().st_mtime_ns > status.st_ctime_ns:
                return True
        with directory(ws.root, ws.state.name) as state:
            raw = read_file(state, ws.config.name, status.st_size) or b""
        lines = [line.rstrip(b"\r") for line in raw.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")]
        plain = [line for line in lines if line != b'caps: "hold"']
        return (
            not status.st_mode & stat.S_IWOTH
            and len(plain) == 1
            and len(lines) <= 2
            and _PLAIN.fullmatch(plain[0]) is not None
        )
    return False


def of_troubles(ws: Workspace, report: Report, clock: Clock, program: str, pid: int | None) -> list[Item]:
    """The troubles that a person must fix before the daemon `pid` (None: there is none, 0: this process) can work."""
    now = clock.now()
    _, troubles = health.read(ws, pid, now, clock.monotonic())
    urgent = [trouble for trouble in troubles if trouble.needs_person(now)]
    away = report.task_snapshot([], now, pid, neighbours=False).away if urgent else {}
    return [*_troubled(urgent, away, program, start(ws, program) if urgent and pid is None else "")]


def of_caps(report: Report, now: str, program: str) -> list[tuple[str, Item]]:
    """The caps of the day of which most is spent, or all, each with a name that is the same as long as that is so."""
    standing = report.spending(now)
    if standing is None:
        return []
    found = [account for account in standing.accounts if account.warns]
    return [
        (
            f"cap {standing.day} {account.whose or 'host'} {'reached' if account.is_reached else 'nearly'}",
            Item(
                Need.CAP,
                f"{spending.sentence(account)}; without --today the command raises it for good".replace(
                    "`mailboxd", f"`{program}"
                ),
                spending.raising(account).replace("mailboxd", program, 1),
                id=account.whose or "host",
                until=standing.until,
            ),
        )
        for account in found
    ]


def of_task(report: Report, task_id: str, now: str, program: str) -> Item | None:
    """The item of this task apart from its approvals; None if it does not wait for a person."""
    from mailboxd.ledger.attention_queries import need_of

    if need_of(report, task_id) in (None, Need.APPROVAL, Need.SUBTASKS):
        return None
    snapshot = report.task_snapshot([task_id], now, 0, neighbours=False)
    return _of_task(snapshot.tasks[task_id], snapshot, program)


def of_approval(report: Report, approval_id: str, program: str) -> Item | None:
    """This approval; None if it is decided."""
    from mailboxd.ledger.attention_queries import pending_approval

    row = pending_approval(report, approval_id)
    return None if row is None else _of_approval(row, program)


def _work(ws: Workspace, report: Report, count: int) -> str:
    """The work that waits for a daemon, in words, `count` open tasks among it; empty if there is none."""
    from mailboxd.ledger.attention_queries import refused
    from mailboxd.ledger.later import count_repeating

    tasks = [f"{count} open task{'s' * (count != 1)}"] if count else []
    mail, new = len(ws.mail()) - len(unread_mail(ws)), len({*new_tasks(ws, report)} - refused(report))
    again = count_repeating(report)
    tasks += [f"work that repeats ({again})"] if again else []
    found = [*tasks, *([f"{mail} file{'s' * (mail != 1)} in the inbox"] if mail else [])]
    found += [f"{new} new task.md" if new == 1 else f"{new} new task.md files"] if new else []
    return f"{' and '.join(found)} wait{'s' * (count + mail + new + again == 1)}" if found else ""


def _troubled(urgent: Sequence[Trouble], away: Mapping[str, str], program: str, starts: str) -> Iterator[Item]:
    """`starts`: the command that starts a daemon; empty if one runs."""
    for trouble in sorted(urgent, key=lambda trouble: trouble.grade is not Grade.RED):
        text, command = f"{trouble.where}: {one_line(trouble.why)}", f"{program} doctor"
        match trouble.where:
            case Component.DAEMON:
                gave_up = trouble.why.startswith(health.GAVE_UP)  # and would do so again
                yield Item(Need.DAEMON, text, command if gave_up or not starts else starts, trouble.since or None)
            case Component.PEERS:
                for agent, known in away.items():
                    yield Item(Need.PEER, f"the peer {agent}: {one_line(known)}", command, trouble.since, id=agent)
            case Component.HUB:
                yield Item(Need.HUB, text, f"{program} hub status", trouble.since)
            case Component.AGENTS if trouble.why.startswith(NO_SUCH_AGENT):
                yield Item(Need.HEALTH, text, command, trouble.since, id=trouble.slug)
            case Component.PLACE:
                yield Item(Need.HEALTH, text, command, trouble.since, id=trouble.slug)
            case Component.GATEWAY:
                yield Item(Need.GATEWAY, text, command, trouble.since)
            case _:
                yield Item(Need.HEALTH, text, f"{program} doctor {trouble.slug}", trouble.since, id=trouble.slug)


_OF_CAUSES = {
    "question": Need.QUESTION,
    "circuit": Need.CIRCUIT,
    "budget": Need.HOLD,
    "paused": Need.HOLD,
    "order": Need.HOLD,
    "spec": Need.SPEC,
    "gone": Need.AGENT,
}
"""By kind of cause; others are reviews without a reviewer."""


def _tasks(found: Waiting, snapshot: Snapshot, program: str) -> Iterator[Item]:
    for task_id in found.tasks:
        if (task := snapshot.tasks.get(task_id)) is not None:
            yield _of_task(task, snapshot, program)
    for task_id, ended in found.failed:
        yield replace(_of_task(snapshot.tasks[task_id], snapshot, program), since=ended, id=task_id)


def _waiting(ws: Workspace, found: Waiting, program: str) -> Iterator[Item]:
    for row in found.agents:
        text = f"{row['count']} tasks wait for an agent: {first_line(row['why'])}"
        command = f"{program} ls --state needs-you --agent {row['agent']}"
        yield Item(Need.AGENT, text, command, row["at"], id=row["agent"], tasks=row["count"])
    for row in found.circuits:
        yield of_circuits(row["why"], row["names"], row["at"], program)
    for row in found.handed_over:
        yield _of_handovers(row, program)
    for row in found.approvals:
        yield _of_approval(row, program)
    for row in found.rejected:
        command = _readable_again(ws, row) or _correction(row, program)
        yield Item(Need.REJECTED, _rejected(row), command, row["at"], id=row["id"])
    for row in found.refused:
        yield _of_edit(ws, row, program)
    for row in found.at_peers:
        yield _of_peer(row, program)
    for row in found.untold:
        yield _of_untold(row, program)
    for row in found.noticed:
        text = f"{one_line(row['name'])}: {one_line(row['notice'])}"
        yield Item(Need.WARNING, text, _dismissal(row, program), row["at"], row["task"], row["id"])


def _of_peer(row: Row, program: str) -> Item:
    """Work that waits at a peer until somebody there acts."""
    from mailboxd.core.explain import why

    text = why.waits_at_peer(row["executor"], WaitsFor(row["waits_for"]), row["why"])
    return Item(Need.PEER, text, f"{program} why {row['task']}", row["at"], row["task"], row["executor"])


def _of_task(task: TaskSnapshot, snapshot: Snapshot, program: str) -> Item:
    from mailboxd.core.explain import why

    cause = why.cause_of(task, snapshot)
    kind, command = (
        Need.FAILED if cause.kind == "ended" else _OF_CAUSES.get(cause.kind, Need.REVIEW),
        cause.command.replace("mailboxd", program, 1),
    )
    if is_handed_over(task.held):  # both ways, since either may be meant
        command = f"{command}  # lets it go on; or {program} cancel {task.local_id}"
    since = task.question.at if task.question else task.since
    mend = cause.hint.partition("  # ")[2] if kind is Need.FAILED else ""
    text = f"{cause.text.rstrip('.')}; {mend.replace('mailboxd', program)}" if mend else cause.text
    return Item(kind, one_line(text), command, since, cause.task, until=cause.at, details=_bounded(cause.details))


def of_circuits(reason: str, names: Sequence[str], since: str, program: str) -> Item:
    """Many tasks whose circuits are open for one reason: one command runs all of them again."""
    from mailboxd.ledger.attention_queries import cause_of

    cause, details = f"cause:{cause_of(reason)}", _bounded(", ".join(names))
    text = one_line(f"{len(names)} tasks stopped for one reason: {first_line(reason)}")
    return Item(Need.CIRCUIT, text, f"{program} retry {cause}", since, id=cause, details=details, tasks=len(names))


def _of_handovers(row: Row, program: str) -> Item:
    """Many hand-overs that are held for one reason: one command lets all of them go on, one rejects them."""
    from mailboxd.ledger.attention_queries import cause_of

    cause, details = f"cause:{cause_of(row['why'])}", _bounded(", ".join(row["names"]))
    text = one_line(f"{row['count']} tasks stopped for one reason: {first_line(row['why'])}")
    command = f"{program} retry {cause}  # lets them go on; or {program} cancel {cause}"
    return Item(Need.HOLD, text, command, row["at"], id=cause, details=details, tasks=row["count"])


def _bounded(text: str) -> str:
    left_out = len(text) - MOST_DETAILS
    return text if left_out <= 0 else f"{text[:MOST_DETAILS]}… and {left_out:,} more characters"


def _of_approval(row: Row, program: str) -> Item:
    text = f"asks for your approval: {first_line(row['text'])}"
    command = f"{program} show {row['short_id']}"
    return Item(Need.APPROVAL, text, command, row["at"], row["task"], row["id"], row["expires_at"])


def _of_untold(row: Row, program: str) -> Item:
    """The notices that have not reached one addressee."""
    what = "a notice has" if row["count"] == 1 else f"{row['count']} notices have"
    text = f"{what} not reached {one_line(row['addressee'])}: {first_line(row['why'])}"
    command = f"{program} doctor notice"
    if row["again"] is None:
        text, command = f"{text}; none is tried again", f"{program} inbox --dismiss {shlex.quote(row['addressee'])}"
    return Item(Need.NOTICE, text, command, row["at"], id=row["addressee"], until=row["again"])


def _of_edit(ws: Workspace, row: Row, program: str) -> Item:
    """A task.md that is not taken, or the refused edit of one."""
    file = f"tasks/{row['local_id']}/task.md"
    place, why = f"{file}:{row['line']}" if row["line"] else file, row["why"]
    why = (why if why.startswith(f"{file}:") else f"{place}: {why}").rstrip(".")
    kept, dismissal = row["kept_as"], f"{program} inbox --dismiss {row['local_id']}"
    path = ws.tasks / row["local_id"] / "task.md"
    if row["task"] is not None:
        text, command = f"an edit was refused: {why}; its text is kept as {kept}", dismissal
    elif path.exists():
        text, command = f"a new task is not taken: {why}", f"${{EDITOR:-vi}} {shlex.quote(str(path))}  # or {dismissal}"
    else:
        text, command = f"a new task is not taken: {why}; it is now {kept}", dismissal
    return Item(Need.EDIT, one_line(text), command, row["at"], row["task"] or "", row["local_id"])


def _of_unread(ws: Workspace, found: Unread, program: str) -> Item:
    command = found.command or f"{program} inbox --dismiss {shlex.quote(found.path)}"
    command = command if command.isprintable() else shlex.join(("ls", "-lab", str(ws.tasks)))
    return Item(Need.FILE, f"{one_line(found.path)} is not read: {found.why}", command, id=found.path)


def _rejected(row: Row) -> str:
    reason = row["reason"]
    sender = f" from {row['sender']}" if row["sender"] else ""
    place = row["name"] + (f", line {reason['line']}" if reason.get("line") else "")
    known = reason.get("field") or ""
    field = f"{known}: " if known and known not in reason.get("problem", "") else ""
    text = f"rejected {place}{sender}: {field}{reason.get('problem', '')} ({reason.get('rule', '')})"
    return one_line(f"{text}. {reason['hint']}" if reason.get("hint") else text)


def _readable_again(ws: Workspace, row: Row) -> str:
    """The command that sends a file again that the daemon's user could not read or move; empty for others."""
    rule, path = row["reason"].get("rule"), row["path"]
    if rule == "unreadable" and path:
        file = ws.mailbox / path
        if file.exists():
            return sent_again(ws, file, row["name"])
    return ""


_NO_TEXT = frozenset(
    {"symlink", "not-regular", "too-large", "not-utf8", "empty", "unreadable", "internal", "late-tail", "bad-name"}
)
"""Rules of files that no editor makes acceptable."""


def is_correctable(rule: str, sender: str | None) -> bool:
    """Whether a person may correct a file that was rejected for this rule: it is a text, and not an agent's."""
    return rule not in _NO_TEXT and sender in (None, *OPERATORS)


def _correction(row: Row, program: str) -> str:
    dismissal = _dismissal(row, program)
    if not is_correctable(row["reason"].get("rule", ""), row["sender"]):
        return dismissal
    return f"{program} inbox --edit {row['id'][-6:].lower()}  # or {dismissal}"


def _dismissal(row: Row, program: str) -> str:
    return f"{program} inbox --dismiss {row['id'][-6:].lower()}"
