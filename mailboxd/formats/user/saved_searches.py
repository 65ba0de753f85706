"""The searches that the user has named: `searches`, a JSON array of pairs of name and address, sorted by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from mailboxd.core.sanitize import first_line
from mailboxd.errors import ConfigError, MailboxdError, Refused
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.user.state import DAMAGED, UserState, log

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
        log().debug("the saved searches are not known: %s", problem)
        return []


def _searches(state: UserState) -> list[tuple[str, str]]:
    """Empty without a file and for a damaged one; addresses that are none of the page's are left out."""
    with suppress(*DAMAGED):
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
    if not state.may_keep():
        raise ConfigError(f"{state.folder} belongs to another user; do it as that user")
    with state.writing() as folder:
        found = sorted(change(_searches(state)), key=lambda one: one[0].casefold())
        if len(found) > MOST_SEARCHES:
            raise Refused("too-many", f"{MOST_SEARCHES} searches are saved already", "Delete one first.")
        with world_errors(f"write {state.folder / SEARCHES}"):
            state.write(folder, SEARCHES, json.dumps(found).encode() + b"\n")
