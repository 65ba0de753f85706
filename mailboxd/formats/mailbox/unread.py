"""What lies in inbox/ and tasks/ and is never read, each with the command that mends it.

The daemon takes what it can; this is the rest, found by looking, so that it is named also while no daemon runs: a name
that is no id, a link or pipe, a file that the daemon's user may not read, `TASK.md`, a task's directory inside another,
a backup. What an agent's workspace had in tasks/ before is no task and named as one thing, without a command that would
make tasks of it.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from mailboxd.core.times import to_text
from mailboxd.core.vocabulary import is_id
from mailboxd.formats.mailbox.files import directory, read_file, world_errors
from mailboxd.formats.mailbox.layout import Workspace, is_temporary, storable_name
from mailboxd.formats.protocol.left_aside import declares_sender, left_aside

_TASK_FILE = "task.md"
_NEARLY = frozenset({_TASK_FILE, "task.markdown", "task.txt", "tasks.md"})
"""Names, in lower case, that are probably meant as that."""
_KEPT = "task.rejected-"
_DEEPEST = 4
"""Directories inside each other that are searched for a task.md."""
_MOST_NAMED = 3
_MOST = 500
"""Entries of a directory that are looked at, and live tasks whose directories are."""
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download")
_PATIENCE = 3_600.0
"""Seconds after which an unfinished file is no longer being written."""


@dataclass(frozen=True, slots=True)
class Unread:
    """`path` is relative to the workspace; `why` completes the sentence that it is not read; `command` mends it, and is
    empty if a person can only put it away. `changed`: the time of its latest change.
    """

    path: str
    why: str
    command: str
    changed: str = ""


class KnownTasks(Protocol):
    """What is asked of the tasks, by local id."""

    def strangers(self, names: Sequence[str]) -> set[str]:
        """Those of these names that no task has."""

    def live(self, names: Sequence[str], most: int) -> set[str]:
        """The first `most` of these names whose tasks have not ended."""


def unread(ws: Workspace, tasks: KnownTasks, now: float) -> list[Unread]:
    """Everything in tasks/ and inbox/ that is not read, by path.

    What lies beside the task.md of a task that has ended is nobody's mail. `now` is seconds since 1970. Raises
    WorldError.
    """
    names = _in_order(ws)
    strangers = sorted(name for name in tasks.strangers(names) if not is_temporary(name))
    foreign, live = [name for name in strangers if _is_foreign(ws.tasks / name)], tasks.live(names, _MOST)
    looked_at, uid = sorted({*live, *strangers}.difference(foreign)), owner_of(ws)
    found = [
        *(item for name in looked_at for item in _in_tasks(ws, uid, name, live)),
        *_others(ws, foreign),
        *unread_mail(ws),
        *_left_aside(ws),
        *_unfinished(ws, now),
    ]
    return [replace(one, changed=one.changed or _changed(ws.root / one.path)) for one in found]


def new_tasks(ws: Workspace, tasks: KnownTasks) -> list[str]:
    """The names in tasks/ with a task.md that no daemon has read yet. Raises WorldError."""
    strangers = tasks.strangers([name for name in _in_order(ws) if is_id(name)])
    return sorted(name for name in strangers if _has_task_file(ws.tasks / name))


def _in_order(ws: Workspace) -> list[str]:
    """All names in tasks/. Raises WorldError."""
    with world_errors(f"read {ws.tasks}"), directory(ws.root, "tasks") as fd, os.scandir(fd) as entries:
        return sorted(entry.name for entry in entries)


def _has_task_file(path: Path) -> bool:
    return not path.is_symlink() and (path / _TASK_FILE).is_file()


def found_before(ws: Workspace) -> str:
    """What tasks/ has before there is a mailbox: what will be taken for tasks, and what left alone."""
    names = _names(ws.tasks)
    taken = [name for name in names if is_id(name) and (ws.tasks / name / _TASK_FILE).is_file()]
    left = [name for name in names if name not in taken]
    return "; ".join(
        f"{_shown(some)} in its tasks/ {what}"
        for some, what in ((taken, "will be carried out as tasks"), (left, "will be left alone"))
        if some
    )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(storable_name(name) for name in names[:_MOST_NAMED]) + more


def _is_foreign(path: Path) -> bool:
    """Whether it is a file, or a directory without a task.md in any spelling: not made for mailboxd."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if not stat.S_ISDIR(mode):
        return stat.S_ISREG(mode)
    entries = _entries(path)
    names = [entry.name for entry in entries]
    is_ours = any(one.lower() in _NEARLY or one.startswith(_KEPT) for one in names)
    has_files = any((path / one).is_file() for one in names)
    return has_files and not is_ours and next(_nested(path, entries, 1), None) is None


def _others(ws: Workspace, names: Sequence[str]) -> Iterator[Unread]:
    """What is in tasks/ and is no task, as one item."""
    if not names:
        return
    place = f"tasks/{storable_name(names[0])}" if len(names) == 1 else "tasks/"
    what = "it is" if len(names) == 1 else f"{_shown(names)} are"
    why = f"{what} no task of mailboxd, which leaves it alone: a task is a file in mailbox/inbox/, or tasks/ID/task.md"
    why = why if len(names) == 1 else why.replace("leaves it", "leaves them")
    yield Unread(place, why, "", max(_changed(ws.tasks / name) for name in names))


def _left_aside(ws: Workspace) -> Iterator[Unread]:
    """Files in the inbox that are no mail by their names."""
    with suppress(OSError), directory(ws.root, "mailbox", "inbox") as inbox:
        for name in _names(ws.inbox):
            with suppress(OSError):
                if (what := left_aside(name)) and not declares_sender(read_file(inbox, name, 4096) or b""):
                    why = f"by its name it is {what}, and it stays where it is"
                    yield Unread(f"mailbox/inbox/{storable_name(name)}", why, "")


def _changed(path: Path) -> str:
    """When the file, or an entry of the directory, was changed last; empty if it is gone."""
    try:
        return to_text(path.lstat().st_ctime)
    except OSError:
        return ""


def unread_mail(ws: Workspace) -> list[Unread]:
    """What the daemon's user may not read in the inbox, or as a directory may not move out of it. Raises WorldError."""
    with world_errors(f"read the inbox {ws.inbox}"), directory(ws.root, "mailbox", "inbox"):
        names = _names(ws.inbox)
    found, uid = [], owner_of(ws)
    for name in names:
        path, shown = ws.inbox / name, f"mailbox/inbox/{storable_name(name)}"
        with suppress(OSError):
            mode = path.lstat().st_mode
            # a link is refused unread; to move a directory needs permission to write to it
            wanted = 7 if stat.S_ISDIR(mode) else 4 if stat.S_ISREG(mode) else 0
            if wanted and (denied := _denied(ws, uid, path, shown, wanted)) is not None:
                found.append(replace(denied, why=f"it is a directory, and {denied.why}") if wanted == 7 else denied)
    return found


def owner_of(ws: Workspace) -> int:
    """The user id of the daemon: it owns .mailboxd/."""
    with suppress(OSError):
        return ws.state.stat().st_uid
    return os.geteuid()


def _made_readable(ws: Workspace, path: Path, status: os.stat_result) -> str:
    """The command after which the daemon's user may read and move this file or directory.

    Only what is wrong is changed: the owner, the mode, or both.
    """
    uid = owner_of(ws)
    wanted, bits = (7, "u+rwx") if stat.S_ISDIR(status.st_mode) else (6, "u+rw")
    as_other, steps = "" if os.geteuid() == 0 else "sudo ", []
    if status.st_uid != uid:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        steps.append(as_other + shlex.join(("chown", "-hR", name, "--", str(path))))
    if status.st_mode >> 6 & wanted != wanted or not steps:
        as_owner = "" if os.geteuid() == uid else as_other
        steps.append(as_owner + shlex.join(("chmod", bits, "--", str(path))))
    return " && ".join(steps)


def sent_again(ws: Workspace, path: Path, name: str) -> str:
    """The command that puts a rejected file, which could not be read, into the inbox as a file of the daemon's user.

    Raises OSError.
    """
    # -P: never what a link names; -p: whoever copies, the copy belongs to the daemon's user
    copy = shlex.join(("cp", "-pP", "--", str(path), str(ws.inbox / name)))
    return f"{_made_readable(ws, path, path.lstat())} && {'' if os.geteuid() in (0, owner_of(ws)) else 'sudo '}{copy}"


def _in_tasks(ws: Workspace, uid: int, name: str, live: Collection[str]) -> Iterator[Unread]:
    path, shown = ws.tasks / name, f"tasks/{storable_name(name)}"
    try:
        status = path.lstat()
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        # never a command that copies what it names: an agent may have made it, to be given what it cannot read
        yield Unread(shown, "links are not followed; put the file itself there", _removed(path))
    elif not stat.S_ISDIR(status.st_mode):
        yield Unread(shown, "it is neither a file nor a directory", _removed(path))
    elif not is_id(name):
        rule = "the name of a task's directory is an id (letters, digits and . _ -)"
        yield Unread(shown, rule, _moved(path, _free(ws, name)))
    else:
        yield from _task_directory(ws, uid, path, shown, is_live=name in live)


def _task_directory(ws: Workspace, uid: int, path: Path, shown: str, *, is_live: bool) -> Iterator[Unread]:
    """The directory of a live task, or of none."""
    if (denied := _denied(ws, uid, path, shown, 5)) is not None:
        yield denied
        return
    entries = _entries(path)
    names = [entry.name for entry in entries]
    near = next((one for one in names if one.lower() in _NEARLY and one != _TASK_FILE), None)
    if _TASK_FILE in names:
        if near is not None:
            there_is = f"the file is called {_TASK_FILE}, and there is one"
            yield Unread(f"{shown}/{storable_name(near)}", there_is, shlex.join(("ls", "-la", "--", str(path))))
        if (denied := _denied(ws, uid, path / _TASK_FILE, f"{shown}/{_TASK_FILE}", 4)) is not None:
            yield denied
    elif near is not None:
        command = _moved(path / near, path / _TASK_FILE)
        yield Unread(f"{shown}/{storable_name(near)}", f"the file is called {_TASK_FILE}", command)
    nested = list(_nested(path, entries, 1))
    for inner in nested:
        place = f"tasks/{storable_name(str(inner.relative_to(ws.tasks)))}"
        yield Unread(place, "tasks are not inside each other", _moved(inner, _free(ws, inner.name)))
    if is_live or nested or near is not None or _TASK_FILE in names:
        return
    if any((path / one).is_file() for one in names if not one.startswith(_KEPT)):
        yield Unread(shown, f"it has no {_TASK_FILE}", shlex.join(("ls", "-la", "--", str(path))))


def _nested(path: Path, entries: Sequence[os.DirEntry[str]], depth: int) -> Iterator[Path]:
    """The directories below a task's, which has these entries, that hold a task.md."""
    for inner in [path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]:
        below = _entries(inner)
        if any(one.name.lower() == _TASK_FILE for one in below):
            yield inner
        elif depth < _DEEPEST:
            yield from _nested(inner, below, depth + 1)


def _names(path: Path) -> list[str]:
    return [entry.name for entry in _entries(path)]


def _entries(path: Path) -> list[os.DirEntry[str]]:
    """The first entries of a directory by name, without temporary ones; none if it cannot be read."""
    with suppress(OSError), os.scandir(path) as entries:
        first = [entry for entry, _ in zip(entries, range(_MOST), strict=False)]
        return sorted((entry for entry in first if not is_temporary(entry.name)), key=lambda entry: entry.name)
    return []


def _denied(ws: Workspace, uid: int, path: Path, shown: str, wanted: int) -> Unread | None:
    """What the daemon (its user is `uid`) may not read, or search; `wanted` are permission bits as in a mode."""
    if uid == 0:
        return None
    try:
        status = path.lstat()
    except OSError:
        return None
    if _permits(path, status, uid, wanted):
        return None
    why = f"its user ({uid}) may not read it: it belongs to {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}"
    return Unread(shown, why, _made_readable(ws, path, status))


def _permits(path: Path, status: os.stat_result, uid: int, wanted: int) -> bool:
    if os.geteuid() == uid:
        return os.access(path, wanted, effective_ids=True)
    if status.st_uid == uid:
        return status.st_mode >> 6 & wanted == wanted
    try:
        groups = os.getgrouplist(pwd.getpwuid(uid).pw_name, pwd.getpwuid(uid).pw_gid)
    except KeyError:
        groups = []
    shift = 3 if status.st_gid in groups else 0
    return status.st_mode >> shift & wanted == wanted


def _unfinished(ws: Workspace, now: float) -> Iterator[Unread]:
    """Files in the inbox whose names say that they are being written, for longer than that takes."""
    with world_errors(f"read the inbox {ws.inbox}"), directory(ws.root, "mailbox", "inbox") as fd:
        with os.scandir(fd) as entries:
            names = sorted(one.name for one in entries if one.name.lower().endswith(_UNFINISHED))
        for name in names:
            path = ws.inbox / name
            with suppress(OSError):
                status = path.lstat()
                if not name.startswith(".") and stat.S_ISREG(status.st_mode) and now - status.st_mtime > _PATIENCE:
                    shown = f"mailbox/inbox/{storable_name(name)}"
                    stem = name.rpartition(".")[0]
                    target = ws.inbox / (stem if "." in stem else f"{stem}.md")
                    command = shlex.join(("mv", "-n", "--", str(path), str(target)))
                    yield Unread(shown, "its name is that of a file that is still being written", command)


def _removed(path: Path) -> str:
    return shlex.join(("rm", "--", str(path)))


def _free(ws: Workspace, name: str) -> Path:
    """A place in tasks/ for a directory that is to have this name, or one like it that is an id."""
    if not is_id(name):
        from mailboxd.host.ids import readable  # it loads the alphabets of the world

        name = readable("1", name)
    names = (name, *(f"{name}-{number}" for number in range(2, 100)))
    return next((ws.tasks / one for one in names if not os.path.lexists(ws.tasks / one)), ws.tasks / name)


def _moved(path: Path, target: Path) -> str:
    return shlex.join(("mv", "--", str(path), str(target)))
