"""Prepares the replayed database for a daemon: running turns are looked up, and sent messages are not sent again.

Only the directories in .mailboxd/turns/ show which calls were running. They are read so that a turn is not run twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mailboxd.agents.call_dir import CALL, PROMPT
from mailboxd.core.effects import Bounce, Resend, RunTurn, Send, StopTurns
from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import Edited, Start, TurnEnded
from mailboxd.core.model import Attempt, Task
from mailboxd.core.outcomes import Failed, Unknown
from mailboxd.core.session_keys import ordinal_of, session_key
from mailboxd.core.vocabulary import TERMINAL, Phase, Turn, Waiting, same_agent, task_status
from mailboxd.errors import PlanError, Refused
from mailboxd.mailbox.files import directory, open_regular, read_up_to
from mailboxd.mailbox.layout import Workspace
from mailboxd.protocol import prompts
from mailboxd.protocol.spec import is_spec_section
from mailboxd.rebuild.files import Outbox, Sent, Shown, Sources, made
from mailboxd.rebuild.replay import UNTOLD, Replay
from mailboxd.rebuild.timeline import ENDED
from mailboxd.store.outbox import CALLS_LEFT
from mailboxd.store.rebuild_store import TaskState
from mailboxd.taskmd.sync import HEADING

_LARGEST_RECORD = 64 << 10
_MOST_ATTEMPTS = 100
_LOST = "the database was made again while this turn was under way"


@dataclass(frozen=True, slots=True)
class Found:
    """A call that left a directory: it is running, or no task.md shows its result yet."""

    name: str
    synthesis: bool


def called(ws: Workspace) -> Mapping[str, Found]:
    """The latest call with a directory, by session."""
    keys: dict[str, Found] = {}
    try:
        with directory(ws.root, ws.state.name, ws.turns.name) as turns, os.scandir(turns) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return {}
    for name in sorted(names):
        try:
            with directory(ws.turns, name) as fd:
                argv = json.loads(_beginning(fd, CALL).partition(b"\n")[0])
                call = Found(name, prompts.is_synthesis(_beginning(fd, PROMPT)))
            keys |= {word: call for word in argv if isinstance(word, str) and word.startswith("agent:")}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return keys


def _beginning(dir_fd: int, name: str) -> bytes:
    """The first bytes of a file; empty if it is missing or not regular."""
    if (file := open_regular(dir_fd, name)) is None:
        return b""
    try:
        return read_up_to(file, _LARGEST_RECORD)
    finally:
        os.close(file)


def finish(replay: Replay, found: Sources, calls: Mapping[str, Found]) -> None:
    """Bring every task into a state from which a daemon can continue; inside the transaction of the replay."""
    store = replay.desk.store
    left: dict[str, str] = {}
    replies = Outbox.of(found.sent).replies
    for shown in found.shown.values():
        _reconcile(replay, shown, replies.get(shown.local_id, ()))
    for sent in list(store.outbox.unmatched.values()):
        replay.sent(sent, _task_of(replay, sent.of))
    store.outbox.unmatched.clear()
    ordinals = sorted({ordinal for key in calls if (ordinal := ordinal_of(key)) and ordinal < _MOST_ATTEMPTS})
    for task_id in store.tasks.open_ids():
        task = store.tasks.get(task_id)
        if task is not None:
            left |= _go_on(replay, task, calls, ordinals)
    if left:
        store.meta.set(CALLS_LEFT, json.dumps(left, sort_keys=True))
    replay.record_sent()
    _close_orders(replay)
    for shown in found.shown.values():
        if shown.archived:
            data = {"at": replay.desk.engine.now, "local_id": shown.local_id, "path": shown.place}
            replay.desk.engine.record(Event(Kind.TASK_PUT_AWAY, None, data))


def _task_of(replay: Replay, local_id: str) -> str:
    task = replay.desk.store.tasks.by_local_id(local_id)
    return task.id if task is not None else ""


def _reconcile(replay: Replay, shown: Shown, replies: Sequence[Sent]) -> None:
    """Apply edits to a task.md, and check that the task is in the state that the file shows."""
    here = replay.desk.store.states.of(shown.local_id)
    if here is None:
        replay.differences.append(f"{shown.local_id}: its task.md could not be taken")
        return
    own = tuple(item for item in shown.written.extra_sections if item[0] != HEADING and not is_spec_section(*item))
    if shown.written.notes != here.notes or own:
        here = _edited(replay, shown, own) or here
    status = task_status(here.phase, here.mode, attempted=here.attempted, has_result=here.has_result)
    if shown.written.status not in ("", status) and not _is_behind(shown, replies):
        said = f"{shown.local_id}: its task.md says {shown.written.status}, here it is {status}"
        replay.differences.append(f"{said} ({here.reason})")


def _is_behind(shown: Shown, replies: Sequence[Sent]) -> bool:
    """Whether the file shows open work that a later reply reports as ended."""
    return shown.written.status not in ENDED and any(made(sent) > shown.written.updated_at for sent in replies)


def _edited(replay: Replay, shown: Shown, sections: tuple[tuple[str, str], ...]) -> TaskState | None:
    """Apply the working notes and the operator's own sections."""
    task, notes = replay.desk.store.tasks.by_local_id(shown.local_id), shown.written.notes
    if task is not None and (task.notes, task.sections) != (notes, sections):
        try:
            replay.hear(task, Edited(notes=notes, sections=sections))
        except (Refused, PlanError) as error:
            replay.differences.append(f"{shown.local_id}: {error}")
    return replay.desk.store.states.of(shown.local_id)


def _go_on(replay: Replay, task: Task, calls: Mapping[str, Found], ordinals: Sequence[int]) -> Mapping[str, str]:
    """Continue an open task: look up a call that may be running instead of starting it again. `ordinals` are those in
    `calls`.

    The order of such a turn gets the id in the name of the call's directory, so its contents are found as after any
    restart. Returns, by session, the call of a synthesis that is not ordered yet because no file shows the end of the
    last child.
    """
    own = replay.desk.engine.settings.agent
    keys = ((ordinal, session_key(task.executor, task.local_id, own, ordinal)) for ordinal in ordinals)
    begun = {ordinal: key for ordinal, key in keys if key in calls}
    last = max(begun, default=0)
    coordinates = bool(replay.desk.store.tasks.children(task.id))
    for ordinal in range(task.attempt + 1, last + 1):
        if task.phase is not Phase.EXECUTION_READY or coordinates:
            break
        if ordinal == last and same_agent(task.executor, own):
            replay.desk.ids.give("trn", calls[begun[last]].name)
            replay.hear(task, Start(begun=True))
            return {}
        task = replay.hear(task, Start(begun=True))
        live = replay.live(task)
        if live is not None and task.attempt < last:
            task = _ended(replay, task, live, Failed(UNTOLD))
    attempt = replay.live(task)
    if attempt is None or attempt.waiting_for is not Waiting.TURN:
        return {
            key: calls[key].name for ordinal, key in begun.items() if ordinal >= task.attempt and calls[key].synthesis
        }
    was_called = attempt.session_key in calls
    turn = replay.waits_for(task, attempt)
    if turn is Turn.DISPATCH or was_called:
        _ended(replay, task, attempt, Unknown(_LOST))  # OpenClaw's run records are consulted
    elif turn is Turn.WORK and same_agent(attempt.executor, own):
        _ended(replay, task, attempt, Unknown(_LOST, looked_up=True))  # the session is unknown: no lookup
    return {}


def _ended(replay: Replay, task: Task, attempt: Attempt, outcome: Failed | Unknown) -> Task:
    turn = replay.waits_for(task, attempt)
    return replay.hear(task, TurnEnded(turn, attempt.id, attempt.executor, outcome, called=False))


def _close_orders(replay: Replay) -> None:
    """Finish the orders of the replay, except those that an open task waits for."""
    store = replay.desk.store
    for ordered in store.outbox.ordered:
        task = store.tasks.get(ordered.task) if ordered.task else None
        match ordered.effect:
            case StopTurns() | Resend():  # stopped turns have ended, and repeated messages were sent
                store.outbox.finish(ordered.id)
            case RunTurn(turn=turn, attempt_id=attempt_id) if turn is not Turn.REVIEW and turn is not Turn.DRAFT:
                attempt = None if task is None else replay.live(task)
                waits = attempt is not None and attempt.id == attempt_id and attempt.waiting_for is Waiting.TURN
                if not waits:
                    store.outbox.finish(ordered.id)
            case Send() | Bounce():
                pass  # messages in outbox/ are finished; others were never written
            case _:
                if task is None or task.phase in TERMINAL:
                    store.outbox.finish(ordered.id)
