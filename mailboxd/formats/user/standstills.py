"""The standstill: `standstill`, a JSON object with the latest word.

It is not removed when it is over, so that each daemon learns who ended it. One that cannot be read holds everything:
what restrains is never dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mailboxd.core.sanitize import first_line
from mailboxd.core.standstill import OVER, Standstill
from mailboxd.core.times import to_epoch, to_text
from mailboxd.errors import ConfigError, MailboxdError, Refused
from mailboxd.formats.user.state import DAMAGED, NOWHERE, UserState

if TYPE_CHECKING:
    pass

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
    except (MailboxdError, *DAMAGED, KeyError) as problem:
        why = first_line(str(problem) if isinstance(problem, MailboxdError) else "it is damaged")
        return Standstill("somebody", to_text(status.st_mtime), f"{state.folder / STANDSTILL} cannot be read: {why}")
    return found


def _lstat_standstill(state: UserState) -> os.stat_result | None:
    """The status of the file; None if there is none. Raises OSError if that cannot be known."""
    try:
        return os.lstat(f"{state.folder}/{STANDSTILL}")  # in each round of a daemon: pathlib costs more than the calls
    except FileNotFoundError:
        if os.path.exists(f"{state.folder}"):  # noqa: PTH110 - as above
            return None
        # a link to what is not there, as to a volume that is not mounted, says nothing of what is on it
        for place in (state.folder, state.parent):
            if os.path.islink(place) and not os.path.exists(place):  # noqa: PTH110, PTH114
                raise
        return None
    except NotADirectoryError:
        if NOWHERE in state.folder.parents:  # an account without a home: nothing can ever have been written there
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
    if not state.may_keep():
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
