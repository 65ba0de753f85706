"""`mailboxd why TASK`: what a task waits for, down to the root cause."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import phase, plain, say, to_json
from mailboxd.core.why import explain
from mailboxd.workspace import lock

if TYPE_CHECKING:
    from mailboxd.core.picture import Cause
    from mailboxd.core.why import Explanation

_DEEPEST = 8
_MOST = 40


@verb("why", "why q3-report", "why q3-report.extract --json")
@task_argument()
def command(session: Session, task: str) -> None:
    """Explain what a task waits for, the last sign of life, and what happens next and when.

    The first line is the task's own; indented below it stands what it waits for, as deep as the reason lies.
    """
    pid = lock.holder(session.workspace())
    with session.report() as report, report.snapshot():
        task_id = report.find(task)
        picture = report.picture([task_id], session.clock.now(), pid)
        notices = report.notices(task_id)
    told, standing = explain(picture, task_id), picture.tasks[task_id]
    if not session.as_json:
        _print(told, standing.local_id, standing.phase, pid is not None or standing.phase.is_terminal)
        for notice in notices:
            say(f"look at this: {notice['at']}  {plain(notice['text'])}")
        return
    found = {
        "task": standing.local_id,
        "phase": standing.phase,
        "daemon": {"running": pid is not None, "pid": pid or None},
        "because": [asdict(cause) for cause in told.causes],
        "notices": notices,
        "last_sign": asdict(told.sign) if told.sign else None,
        "next": _coming(told.next),
    }
    say(to_json(found))


def _coming(cause: Cause | None) -> dict[str, Any] | None:
    return None if cause is None else {"at": cause.at, "task": cause.task, "what": cause.then}


def _print(told: Explanation, task: str, word: str, running: bool) -> None:
    say(f"{task}  {phase(word)}")
    shown = [cause for cause in told.causes if cause.depth < _DEEPEST or cause.kind not in ("dependency", "more")]
    for cause in shown[:_MOST]:
        indent = "  " * (min(cause.depth, _DEEPEST) + 1)
        say(f"{indent}{plain(f'{cause.task}: {cause.text}')}")
        if cause.then:
            say(f"{indent}  {f'at {cause.at}' if cause.at else 'next'}: {cause.then}")
        if cause.hint:
            say(f"{indent}  -> {plain(cause.hint)}")
    if len(told.causes) > len(shown[:_MOST]):
        say(f"  ({len(told.causes) - len(shown[:_MOST])} more between and after these: --json shows all)")
    if told.sign is not None:
        say(f"last sign of life: {told.sign.at}  {plain(told.sign.text)}")
    coming = _coming(told.next)
    if coming is None:
        say("next: nothing happens by itself")
    else:
        once = "" if running else "once a daemon runs: "
        say(f"next: {once}{coming['task']}: {coming['what']}" + (f" ({coming['at']})" if coming["at"] else ""))
