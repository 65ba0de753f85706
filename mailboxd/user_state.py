"""Per-user state: small files in `$XDG_STATE_HOME/mailboxd/` (default `~/.local/state/mailboxd/`), 0700 and 0600.

Users of one machine share nothing, and an agent that is confined to its workspace cannot write there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from mailboxd.core.sanitize import first_line
from mailboxd.core.standstill import OVER, Standstill
from mailboxd.core.times import plus, to_epoch, to_text
from mailboxd.errors import ConfigError, MailboxdError, Refused
from mailboxd.mailbox.files import directory, lstat, open_regular, read_up_to, replace, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.attention_queries import Seen, oldest_unseen
from mailboxd.store.reports import Report, opened

if TYPE_CHECKING:
    import logging

_LARGEST = 1 << 20
_DAMAGED = (ValueError, TypeError, RecursionError)
"""What reading JSON raises that is none, not of the expected form, or nested too deeply."""
_NOWHERE = Path("/dev/null")
"""Not even root can create a directory below it."""


@dataclass(frozen=True, slots=True)
class UserState:
    """The directory `names` below the user's state directory `parent`."""

    parent: Path
    names: tuple[str, ...] = ("mailboxd",)

    @classmethod
    def of(cls, environ: Mapping[str, str], *below: str) -> Self:
        """The current user's; for an account without a home, a directory that cannot be created."""
        names = ("mailboxd", *below)
        named = environ.get("XDG_STATE_HOME", "")
        if named.startswith("/"):
            return cls(Path(named), names)
        try:
            home = Path(environ.get("HOME") or Path.home())
        except RuntimeError:
            home = _NOWHERE
        return cls((home if home.is_dir() else _NOWHERE) / ".local" / "state", names)

    @property
    def folder(self) -> Path:
        return self.parent.joinpath(*self.names)

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """A descriptor of the directory; None if it is missing. Raises WorldError."""
        with world_errors(f"read {self.folder}"), ExitStack() as opened:
            try:
                folder = opened.enter_context(directory(self.parent, *self.names))
            except (FileNotFoundError, NotADirectoryError):
                if self.folder.is_symlink() or self.folder.parent.is_symlink():
                    raise
                folder = None
            yield folder

    def read(self, name: str, *, secret: bool = True, largest: int = _LARGEST) -> bytes | None:
        """The file, at most `largest` bytes of it; None without one.

        Raises ConfigError if others could have written it or, if it is `secret`, read it. A file that is not secret may
        belong to root. Raises WorldError if it cannot be read.
        """
        path = self.folder / name
        with self.opened() as folder:
            if folder is None or lstat(folder, name) is None:
                return None
            fd = open_regular(folder, name)
            if fd is None:
                raise ConfigError(f"{path} is not a regular file; remove it")
            try:
                status = os.fstat(fd)
                owners = {os.geteuid()} if secret else {os.geteuid(), 0}
                if stat.S_IMODE(status.st_mode) & (0o077 if secret else 0o022) or status.st_uid not in owners:
                    access = "read or change" if secret else "change"
                    problem = f"other users own {path} or can {access} it"
                    raise ConfigError(f"{problem}; remove it, or run `chmod 600 {path}` as its owner")
                return read_up_to(fd, largest)
            finally:
                os.close(fd)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """A descriptor of the directory, created if missing and locked against other writers. Raises WorldError."""
        with world_errors(f"write to {self.folder}"):
            self.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for depth, name in enumerate(self.names):
                with directory(self.parent, *self.names[:depth]) as above, suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
            with directory(self.parent, *self.names) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield folder

    @staticmethod
    def write(folder: int, name: str, raw: bytes) -> None:
        """Write a file (0600) atomically and durably; `folder` is from `writing`. Raises OSError."""
        replace(folder, name, raw, lambda: True)


# The user's workspaces: `workspaces`, a JSON array of real paths, written by `mailboxd init` and `mailboxd run`. Only a
# convenience: an unlisted workspace works if it is named, and one that no longer exists is skipped and later dropped.

FILE = "workspaces"
MOST = 1_000
"""Maximum number; the oldest are dropped."""


def _log() -> logging.Logger:
    import logging  # `mailboxd status` does without

    return logging.getLogger("mailboxd")


def workspaces(environ: Mapping[str, str]) -> list[Workspace]:
    """The existing workspaces owned by this user, in the order in which they were registered.

    Raises ConfigError if others could have written the file or it is damaged, WorldError if it cannot be read.
    """
    return [Workspace(path) for path in _listed(UserState.of(environ)) if _is_own(path)]


def registered(environ: Mapping[str, str]) -> list[Path]:
    """All registered paths, including those that no longer exist. Raises as `workspaces`."""
    return _listed(UserState.of(environ))


def register(root: Path, environ: Mapping[str, str]) -> bool:
    """Register the workspace at `root`, a real path; False if that failed. Raises nothing.

    Reads one small file if it is already registered.
    """
    state = UserState.of(environ)
    try:
        if root in _listed_or_nothing(state):
            return True
        if not _is_own(root) or not _may_keep(state):
            return False
        with state.writing() as folder:
            kept = [path for path in _listed_or_nothing(state) if path != root and _is_own(path)]
            state.write(folder, FILE, _text([*kept, root][-MOST:]))
    except (MailboxdError, OSError) as problem:
        _log().debug("%s is not noted among the workspaces: %s", root, problem)
        return False
    return True


# What the user has seen of the failed tasks of a workspace, and read of its results: `seen/<digest of its path>`, a
# JSON object. It begins with the first look, from which on a failure stays in the inbox until its task was opened or
# dismissed, and a result is unread until then. Of what ended before, only the last days count, so that a workspace
# that was in use before does not begin with all its history.

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
        if _may_keep(state):
            with state.writing() as folder:  # what another process has noted meanwhile stays
                known = _begun(_seen(state, name), now)
                state.write(folder, name, _seen_text(known, root))
        return _begun(known, now)
    except (MailboxdError, OSError) as problem:
        _log().debug("what was seen in %s is not known: %s", root, problem)
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
        if not _may_keep(state):
            return False
        with state.writing() as folder:
            state.write(folder, name, _seen_text(change(_begun(_seen(state, name), now)), root))
        return True
    except (MailboxdError, OSError) as problem:
        _log().warning("it could not be noted what was seen of %s: %s", root, problem)
        return False


def _begun(known: Seen | None, now: str) -> Seen:
    """What counts as seen at the first look, and in a file of an earlier version, which has no results."""
    found = known or Seen(plus(now, -_DAYS * 86_400))
    return found if found.read_since else with_fields(found, read_since=plus(now, -_DAYS_UNREAD * 86_400))


def _of_seen(root: Path, environ: Mapping[str, str]) -> tuple[UserState, str]:
    return UserState.of(environ, "seen"), hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def _seen(state: UserState, name: str) -> Seen | None:
    """None without a file, and for a damaged one."""
    with suppress(*_DAMAGED, KeyError, AttributeError):
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
    if len(text) > _LARGEST:
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
    from mailboxd.store.overview_queries import oldest_unread  # `mailboxd status` does without

    return oldest_unread(report, seen)


# The standstill: `standstill`, a JSON object with the latest word. It is not removed when it is over, so that each
# daemon learns who ended it. One that cannot be read holds everything: what restrains is never dropped.

STANDSTILL = "standstill"
_MOST_NOTE = 1_000


def standstill(environ: Mapping[str, str]) -> Standstill | None:
    """The standstill of this user's agents; None if there is none. Raises nothing."""
    latest = latest_standstill(environ)
    return None if latest is None or latest.over else latest


def latest_standstill(environ: Mapping[str, str]) -> Standstill | None:
    """The latest word about a standstill, also that it is over; None if there never was one. Raises nothing."""
    state = UserState.of(environ)
    try:
        status = _lstat_standstill(state)
    except OSError as error:
        why = first_line(error.strerror or str(error))
        return Standstill("somebody", _since(state), f"{state.folder / STANDSTILL} cannot be read: {why}")
    if status is None:
        return None
    try:
        said = json.loads(state.read(STANDSTILL, secret=False) or b"")
        found = Standstill(str(said["by"]), str(said["at"]), str(said["note"]), said["over"] is True)
        to_epoch(found.at)
    except (MailboxdError, *_DAMAGED, KeyError) as problem:
        why = first_line(str(problem) if isinstance(problem, MailboxdError) else "it is damaged")
        return Standstill("somebody", to_text(status.st_mtime), f"{state.folder / STANDSTILL} cannot be read: {why}")
    return found


def _lstat_standstill(state: UserState) -> os.stat_result | None:
    """The status of the file; None if there is none. Raises OSError if that cannot be known."""
    try:
        return os.lstat(state.folder / STANDSTILL)
    except FileNotFoundError:
        # a link to what is not there, as to a volume that is not mounted, says nothing of what is on it
        if any(place.is_symlink() and not place.exists() for place in (state.folder, state.parent)):
            raise
        return None
    except NotADirectoryError:
        if _NOWHERE in state.folder.parents:  # an account without a home: nothing can ever have been written there
            return None
        raise


def _since(state: UserState) -> str:
    """Since when the place of the file may be as it is: the same time for everyone who looks."""
    for place in (state.folder, *state.folder.parents):
        with suppress(OSError):
            return to_text(place.lstat().st_mtime)
    return to_text(0)


@dataclass(slots=True)
class StandstillWatch:
    """Returns the latest word, and reads it again only when the file has changed.

    While it cannot be known whether there is a file, a standstill that was heard of goes on, with its own words.
    """

    environ: Mapping[str, str]
    _state: UserState = field(init=False)
    _seen: tuple[int, int, int] | None = None
    _latest: Standstill | None = None

    def __post_init__(self) -> None:
        self._state = UserState.of(self.environ)

    def __call__(self) -> Standstill | None:
        try:
            status = _lstat_standstill(self._state)
        except OSError:
            self._seen = None
            if self._latest is None or self._latest.over:
                self._latest = latest_standstill(self.environ)
            return self._latest
        if status is None:
            self._seen = self._latest = None
            return None
        seen = status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        if seen != self._seen:
            self._seen, self._latest = seen, latest_standstill(self.environ)
        return self._latest


def say_standstill(environ: Mapping[str, str], said: Standstill) -> None:
    """Pause every agent of this user, or (`over`) end that. The daemons have to be woken.

    Raises Refused if it is so already, ConfigError for root in the home of another user, WorldError.
    """
    state = UserState.of(environ)
    if not _may_keep(state):
        raise ConfigError(f"{state.folder} belongs to another user, whose agents these are; do it as that user")
    with state.writing() as folder:
        now = standstill(environ)
        if said.over and now is None:
            hint = "`mailboxd status` says what they wait for."
            raise Refused("not-paused", "the agents are not paused together", hint)
        if not said.over and now is not None:
            raise Refused("held", f"{now.text} already, since {now.at}", f"`{OVER}` ends that.")
        kept = {"by": said.by, "at": said.at, "note": said.note[:_MOST_NOTE], "over": said.over}
        state.write(folder, STANDSTILL, json.dumps(kept).encode() + b"\n")


# The searches that the user has named: `searches`, a JSON array of pairs of name and address, sorted by name.

SEARCHES = "searches"
MOST_SEARCHES = 50
MOST_NAME = 60
_ADDRESS = re.compile(r"/(search|w/[A-Za-z0-9_-]{1,60})(\?[!-~]{1,1000})?")
_LONGEST = 1_000
"""Characters of an address that is certainly short enough to be kept."""


def searches(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names and addresses (of the page) of the searches that this user has saved. Raises nothing."""
    try:
        return _searches(UserState.of(environ))
    except MailboxdError as problem:
        _log().debug("the saved searches are not known: %s", problem)
        return []


def _searches(state: UserState) -> list[tuple[str, str]]:
    """Empty without a file and for a damaged one; addresses that are none of the page's are left out."""
    with suppress(*_DAMAGED):
        found = json.loads(state.read(SEARCHES) or b"[]")
        pairs = [(one, where) for one, where in found if isinstance(one, str) and isinstance(where, str)]
        return [(one[:MOST_NAME], where) for one, where in pairs if _ADDRESS.fullmatch(where)][:MOST_SEARCHES]
    return []


def save_search(environ: Mapping[str, str], name: str, address: str) -> None:
    """Save a search under a name, in place of another of that name.

    Raises Refused without a name and for too many; ConfigError, WorldError.
    """
    name = first_line(name, MOST_NAME)
    if not name:
        raise Refused("bad-form", "the search has no name", "Write one, of a few words.")
    if not _ADDRESS.fullmatch(address):
        what = "is too long" if len(address) > _LONGEST else "is none of this page"
        raise Refused("bad-form", f"the search cannot be saved: its address {what}", "Search for less.")
    _change_searches(environ, lambda kept: [*(one for one in kept if one[0] != name), (name, address)])


def forget_search(environ: Mapping[str, str], name: str) -> None:
    """Forget the saved search of this name, if there is one. Raises ConfigError, WorldError."""
    _change_searches(environ, lambda kept: [one for one in kept if one[0] != name])


def _change_searches(
    environ: Mapping[str, str], change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]
) -> None:
    state = UserState.of(environ)
    if not _may_keep(state):
        raise ConfigError(f"{state.folder} belongs to another user; do it as that user")
    with state.writing() as folder:
        found = sorted(change(_searches(state)), key=lambda one: one[0].casefold())
        if len(found) > MOST_SEARCHES:
            raise Refused("too-many", f"{MOST_SEARCHES} searches are saved already", "Delete one first.")
        with world_errors(f"write {state.folder / SEARCHES}"):
            state.write(folder, SEARCHES, json.dumps(found).encode() + b"\n")


def _listed(state: UserState) -> list[Path]:
    raw = state.read(FILE)
    if raw is None:
        return []
    try:
        found = json.loads(raw)
        paths = [Path(name) for name in found if isinstance(name, str) and name.startswith("/") and "\0" not in name]
    except _DAMAGED:
        _log().warning("%s is damaged and counts as empty; the next `mailboxd run` replaces it", state.folder / FILE)
        return []
    return paths[-MOST:]


def _listed_or_nothing(state: UserState) -> list[Path]:
    """For writing: a list that others could have written is replaced."""
    try:
        return _listed(state)
    except MailboxdError:
        return []


def _text(paths: list[Path]) -> bytes:
    # undecodable names are kept as surrogates, which ASCII JSON can represent
    return json.dumps([str(path) for path in paths], indent=1, ensure_ascii=True).encode() + b"\n"


def _is_own(root: Path) -> bool:
    """Whether there is a workspace that this user owns."""
    state = Workspace(root).state
    try:
        return state.is_dir() and not state.is_symlink() and state.stat().st_uid == os.geteuid()
    except (OSError, ValueError):
        return False


def _may_keep(state: UserState) -> bool:
    """Not as root in another user's home (`sudo`): the owner could not change what root writes there."""
    for folder in (state.folder, state.parent, *state.parent.parents):
        with suppress(OSError):
            return folder.stat().st_uid == os.geteuid() or os.geteuid() != 0
    return False
