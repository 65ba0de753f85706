"""What the user has seen of the failed tasks of a workspace, and read of its results.

`seen/<digest of its path>`, a JSON object. It begins with the first look, from which on a failure stays in the inbox
until its task was opened or dismissed, and a result is unread until then. Of what ended before, only the last days
count, so that a workspace that was in use before does not begin with all its history.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from types import MappingProxyType

from mailboxd.core.times import plus, to_epoch
from mailboxd.errors import MailboxdError, Refused
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user.state import DAMAGED, LARGEST, UserState, log
from mailboxd.ledger.attention_queries import Seen, oldest_unseen
from mailboxd.ledger.reports import Report, opened

_DAYS = 7
_DAYS_UNREAD = 1
_MOST_SEEN = 2_000


def seen(root: Path, environ: Mapping[str, str], now: str) -> Seen:
    """What this user has seen in the workspace at `root` at the time `now`. Raises nothing."""
    state, name = _of_seen(root, environ)
    try:
        known = _seen(state, name)
        if known is not None and known.read_since:
            return known
        if state.may_keep():
            with state.writing() as folder:  # what another process has noted meanwhile stays
                known = _begun(_seen(state, name), now)
                state.write(folder, name, _seen_text(known, root))
        return _begun(known, now)
    except (MailboxdError, OSError) as problem:
        log().debug("what was seen in %s is not known: %s", root, problem)
        return _begun(None, now)


def see(
    root: Path,
    environ: Mapping[str, str],
    now: str,
    tasks: Mapping[str, str] | None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Note that the user has seen these failures (id of the task -> its end), None: all that there are at `now`; and
    these files (path -> time of the change).

    Returns whether that is noted. Raises nothing: an item that stays is better than a command that fails.
    """

    def with_them(before: Seen) -> Seen:
        since, ended = (now, {}) if tasks is None else (before.since, _new(tasks, before.has))
        known = ended if tasks is None else {**before.tasks, **ended}
        return with_fields(before, since=since, tasks=known, files={**before.files, **_new(files, before.has_file)})

    return _note(root, environ, now, with_them)


def read(root: Path, environ: Mapping[str, str], now: str, tasks: Mapping[str, str], until: str = "") -> bool:
    """Note that the user has read the results of these tasks (id -> its end), and all that came up to `until`.

    Returns whether that is noted. Raises nothing, as `see`.
    """

    def with_them(before: Seen) -> Seen:
        since = min(max(before.read_since, until), now)  # what is yet to come cannot have been read
        return with_fields(before, read_since=since, read={**before.read, **_new(tasks, before.has_read)})

    return _note(root, environ, now, with_them)


def not_noted(environ: Mapping[str, str], more: str = "") -> Refused:
    """What to raise where a person was promised that something is noted as seen, and it is not; `more` is said last."""
    folder = UserState.of(environ, "seen").folder
    hint = f"It and its files must be yours alone, writable and below 1 MiB{more}."
    return Refused("not-noted", f"what you have seen cannot be noted in {folder}", hint)


def seen_stamp(root: Path, environ: Mapping[str, str]) -> int:
    """Another number after each change of what the user has seen. Raises nothing."""
    state, name = _of_seen(root, environ)
    with suppress(OSError):
        return (state.folder / name).stat().st_ctime_ns
    return 0


def _new(tasks: Mapping[str, str], is_known: Callable[[str, str], bool]) -> dict[str, str]:
    return {task: ended for task, ended in tasks.items() if not is_known(task, ended)}


def _note(root: Path, environ: Mapping[str, str], now: str, change: Callable[[Seen], Seen]) -> bool:
    """Write what a change adds to what was seen, under the lock of all writers. Returns whether it is written."""
    state, name = _of_seen(root, environ)
    try:
        before = _seen(state, name)
        if before is not None and before.read_since and change(before) == before:
            return True
        if not state.may_keep():
            return False
        with state.writing() as folder:
            state.write(folder, name, _seen_text(change(_begun(_seen(state, name), now)), root))
        return True
    except (MailboxdError, OSError) as problem:
        log().warning("it could not be noted what was seen of %s: %s", root, problem)
        return False


def _begun(known: Seen | None, now: str) -> Seen:
    """What counts as seen at the first look, and in a file of an earlier version, which has no results."""
    found = known or Seen(plus(now, -_DAYS * 86_400))
    return found if found.read_since else with_fields(found, read_since=plus(now, -_DAYS_UNREAD * 86_400))


def _of_seen(root: Path, environ: Mapping[str, str]) -> tuple[UserState, str]:
    return UserState.of(environ, "seen"), hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def _seen(state: UserState, name: str) -> Seen | None:
    """None without a file, and for a damaged one."""
    with suppress(*DAMAGED, KeyError, AttributeError):
        found = json.loads(state.read(name) or b"")
        parts = [
            {str(name): str(at) for name, at in found.get(what, {}).items()} for what in ("tasks", "files", "read")
        ]
        since, read_since = str(found["since"]), str(found.get("read_since", ""))
        for time in (since, read_since or since):
            to_epoch(time)
        return Seen(since, parts[0], parts[1], read_since, parts[2])
    return None


def _seen_text(seen: Seen, root: Path) -> bytes:
    """Of too many tasks, the oldest are left out: what ended up to them counts as seen, if the user has seen all of it.

    Raises Refused if so many are left that the file could not be read again; UnavailableError, WorldError.
    """
    since, tasks = _latest(seen.since, seen.tasks, lambda: _oldest(root, lambda report: oldest_unseen(report, seen)))
    unread = partial(_oldest, root, lambda report: _oldest_unread(report, seen))
    read_since, read = _latest(seen.read_since, seen.read, unread)
    files = sorted(((at, path) for path, at in seen.files.items()), reverse=True)[:_MOST_SEEN]
    known = {"since": since, "tasks": tasks, "files": {path: at for at, path in files}}
    text = json.dumps({**known, "read_since": read_since, "read": read}).encode() + b"\n"
    if len(text) > LARGEST:
        hint = "Look at the oldest that are left, or dismiss all failures and mark all results as read."
        raise Refused("too-many", f"{len(tasks) + len(read)} failures and results are noted one by one", hint)
    return text


def _latest(since: str, tasks: Mapping[str, str], oldest: Callable[[], str | None]) -> tuple[str, dict[str, str]]:
    """The tasks to note, and since when: of too many those that ended last, with all from the oldest unseen one on."""
    found = sorted(((ended, task) for task, ended in tasks.items() if ended > since), reverse=True)
    if len(found) > _MOST_SEEN:
        left = oldest()
        since = next((ended for ended, _ in found[_MOST_SEEN:] if left is None or ended < left), since)
    return since, {task: ended for ended, task in found if ended > since}


def _oldest(root: Path, look: Callable[[Report], str | None]) -> str | None:
    with opened(Workspace(root).database) as report:
        return look(report)


def _oldest_unread(report: Report, seen: Seen) -> str | None:
    from mailboxd.ledger.overview_queries import oldest_unread  # `mailboxd status` does without

    return oldest_unread(report, seen)
