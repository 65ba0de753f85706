"""What this host answers to another that asks, from the workspaces here, if hub.yaml allows that host to know it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from mailboxd import search
from mailboxd.errors import UnavailableError
from mailboxd.hub import protocol
from mailboxd.hub.membership import HubSettings
from mailboxd.store.search import SearchQuery

if TYPE_CHECKING:
    from mailboxd.hub.process import Local

_MOST_HITS, _LONGEST = 50, 400
_QUERY = TypeAdapter(SearchQuery)


def answer(settings: HubSettings, local: Mapping[str, Local], asker: str, question: Mapping[str, Any]) -> object:
    """The answer to another host. Raises MailboxdError: it is told why there is none."""
    match question.get("kind"):
        case "search":
            _require(settings, asker, "show", "search")
            return _found(local, question)
        case _:
            raise UnavailableError(f"the host {settings.host} does not know what is asked; it may be older")


def _require(settings: HubSettings, asker: str, name: str, what: str) -> None:
    if not protocol.permits(getattr(settings, name), asker):
        raise UnavailableError(f"{name} in hub.yaml of {settings.host} does not let {asker} {what} there")


def _found(local: Mapping[str, Local], question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The best matches of each workspace."""
    try:
        query = _QUERY.validate_python(question.get("query"))
    except ValidationError as error:
        raise UnavailableError("this is no search that it understands; it may be older") from error
    query = replace(query, tasks=(), limit=min(query.limit, _MOST_HITS))
    hits: list[dict[str, Any]] = []
    for one in list(local.values()):
        with suppress(UnavailableError), search.index(one.ws) as index:  # none before the first start of its daemon
            hits += [hit | {"agent": one.agent} for hit in index.find(query)]
    return [{**hit, "snippet": hit["snippet"][:_LONGEST], "where": hit["where"][:_LONGEST]} for hit in hits]
