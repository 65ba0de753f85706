"""Answers to questions of other hosts, from the workspaces here, as far as hub.yaml allows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mailboxd.core.sanitize import first_line
from mailboxd.errors import UnavailableError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.hub.files.settings import HubSettings
from mailboxd.hub.process.workspaces import Local
from mailboxd.hub.wire import names
from mailboxd.ledger import search_index as search
from mailboxd.ledger import task_queries
from mailboxd.ledger.reports import opened
from mailboxd.ledger.search import SearchQuery

_MOST_HITS, _LONGEST = 50, 400
_QUERY = TypeAdapter(SearchQuery)


def answer(settings: HubSettings, local: Mapping[str, Local], asker: str, question: Mapping[str, Any]) -> object:
    """The answer to another host. Raises MailboxdError with the reason if there is none."""
    match question.get("kind"):
        case "search":
            _require(settings, asker, "show", "search")
            return _found(local, question)
        case "approval":
            _require(settings, asker, "decide", "decide")
            with opened(_workspace(local, question).database) as report:
                row = task_queries.approval_report(report, task_queries.find_approval(report, _text(question, "name")))
                return row | {"policy": None}  # the configuration of this host is not for others
        case "verdict":
            _require(settings, asker, "decide", "decide")
            with opened(_workspace(local, question).database) as report:
                return report.received(_text(question, "message"))
        case _:
            raise UnavailableError(f"the host {settings.host} does not know this question; its mailboxd may be older")


def _require(settings: HubSettings, asker: str, name: str, what: str) -> None:
    if not names.permits(getattr(settings, name), asker):
        raise UnavailableError(f"{name} in hub.yaml of {settings.host} does not let {asker} {what} there")


def _workspace(local: Mapping[str, Local], question: Mapping[str, Any]) -> Workspace:
    agent = _text(question, "agent")
    if (one := local.get(agent.lower())) is None:
        raise UnavailableError(f"there is no agent {agent} there")
    return one.ws


def _text(question: Mapping[str, Any], name: str) -> str:
    return first_line(str(question.get(name, "")))


def _found(local: Mapping[str, Local], question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The best matches of each workspace."""
    try:
        query = _QUERY.validate_python(question.get("query"))
    except ValidationError as error:
        raise UnavailableError("it does not understand this search; its mailboxd may be older") from error
    query = replace(query, tasks=(), limit=min(query.limit, _MOST_HITS))
    hits: list[dict[str, Any]] = []
    for one in list(local.values()):
        with suppress(UnavailableError), search.index(one.ws) as index:  # none before the first start of its daemon
            hits += [{**hit, "agent": one.agent} for hit in index.find(query)]
    return [{**hit, "snippet": hit["snippet"][:_LONGEST], "where": hit["where"][:_LONGEST]} for hit in hits]
