"""Which workspaces the user who runs this has: `workspaces` in the user's state directory, a JSON array of real paths.

`mailboxd init` and `mailboxd run` put a workspace there. It is a convenience and no authority: a workspace that is not
there works all the same (name it), one that has vanished is passed over, and dropped when the next one comes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mailboxd.errors import MailboxdError
from mailboxd.userstate import UserState
from mailboxd.workspace.layout import Workspace

FILE = "workspaces"
MOST = 1_000
"""Workspaces that are kept: of more the oldest are dropped."""
_log = logging.getLogger("mailboxd")


def workspaces(environ: Mapping[str, str]) -> list[Workspace]:
    """Those that are still there and are this user's own, in the order they came.

    Raises ConfigError if others could have written the file or it is damaged, WorldError if it cannot be read.
    """
    return [Workspace(path) for path in _listed(UserState.of(environ)) if _is_own(path)]


def noted(environ: Mapping[str, str]) -> list[Path]:
    """All that were noted, also those that have vanished since. Raises as `workspaces`."""
    return _listed(UserState.of(environ))


def register(root: Path, environ: Mapping[str, str]) -> bool:
    """Note the workspace at `root`, a real path; False if it could not be noted, which stops nobody. Raises nothing.

    Costs the reading of one small file if it is there already.
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
        _log.debug("%s is not noted among the workspaces: %s", root, problem)
        return False
    return True


def _listed(state: UserState) -> list[Path]:
    raw = state.read(FILE)
    if raw is None:
        return []
    try:
        found = json.loads(raw)
        paths = [Path(name) for name in found if isinstance(name, str) and name.startswith("/") and "\0" not in name]
    except (ValueError, TypeError):
        _log.warning("%s is damaged and counts as empty; the next `mailboxd run` writes it anew", state.folder / FILE)
        return []
    return paths[-MOST:]


def _listed_or_nothing(state: UserState) -> list[Path]:
    """For writing: a list that others could have written is replaced."""
    try:
        return _listed(state)
    except MailboxdError:
        return []


def _text(paths: list[Path]) -> bytes:
    # a name that is no text is kept as its surrogates, which ASCII JSON can say
    return json.dumps([str(path) for path in paths], indent=1, ensure_ascii=True).encode() + b"\n"


def _is_own(root: Path) -> bool:
    """Whether there is a workspace, of this user: what a stranger put in its place is not served."""
    state = Workspace(root).state
    try:
        return state.is_dir() and not state.is_symlink() and state.stat().st_uid == os.geteuid()
    except (OSError, ValueError):
        return False


def _may_keep(state: UserState) -> bool:
    """Not as root in somebody else's home, as under `sudo`: what root writes there its owner could not change."""
    for folder in (state.folder, state.parent, *state.parent.parents):
        with suppress(OSError):
            return folder.stat().st_uid == os.geteuid() or os.geteuid() != 0
    return False
