"""Search over workspaces: messages, results and events, by the full-text index of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mailboxd.errors import MailboxdError
from mailboxd.store.search import Index, Wanted, matching
from mailboxd.web.places import Place
from mailboxd.workspace.mail import read_message

_HITS = 30
_INDEX = "search.db"


def search(places: Sequence[Place], words: str, kind: str) -> dict[str, Any]:
    """What matches, workspace by workspace, the best first; `troubles` where one could not be searched.

    Raises Refused for a query without a word.
    """
    matching(words)
    hits, troubles = [], []
    for place in places:
        try:
            with Index(place.ws.state / _INDEX, place.ws.database, _reader(place)) as index:
                index.catch_up()
                found = index.find(Wanted(words, type=kind, limit=_HITS))
        except MailboxdError as error:
            troubles.append(str(error))
            continue
        hits += [hit | {"place": place} for hit in found]
    return {"hits": hits, "troubles": troubles}


def _reader(place: Place) -> Any:
    return lambda path: read_message(place.ws, path)
