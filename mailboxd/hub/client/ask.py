"""A question to other hosts, asked by a command or the page through the hub process of this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

from pydantic import Field, TypeAdapter, ValidationError

from mailboxd.hub.client.report import spoken
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.presence import Count, Line, Said, Time
from mailboxd.ledger.search import SearchHit, SearchQuery

SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class HostAnswers:
    """The answers of the hosts, and the reasons of those that did not answer."""

    answers: Mapping[str, Any]
    silent: Mapping[str, str]


def ask(
    membership: Membership, question: Mapping[str, Any], hosts: Sequence[str] = (), seconds: float = SECONDS
) -> HostAnswers:
    """Ask these hosts, by default all others, for so long. Raises UnavailableError, ConfigError, WorldError."""
    found = spoken(membership, {"question": question, "hosts": list(hosts), "seconds": seconds}, seconds)
    return HostAnswers(found["answers"], found["silent"])


class _Hit(Said):
    """A match on another host."""

    seq: Count = 0
    at: Time
    type: Line
    agent: Line
    agents: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    where: Line
    snippet: Line
    task: Line | None = None
    phase: Line | None = None
    need: Line | None = None
    state: Line | None = None
    status: Line | None = None


class HostsSearched(TypedDict):
    """The JSON of `search --hosts`: what was found, and by host why one did not answer."""

    hits: list[SearchHit]
    silent: dict[str, str]


_HITS = TypeAdapter(list[_Hit])


def search_hosts(membership: Membership, query: SearchQuery) -> HostsSearched:
    """The matches on other hosts. Raises as `ask`."""
    heard = ask(membership, {"kind": "search", "query": asdict(query)})
    hits: list[SearchHit] = []
    silent = dict(heard.silent)
    for host, answer in sorted(heard.answers.items()):
        try:
            hits += [_there(host, hit) for hit in _HITS.validate_python(answer)]
        except ValidationError:
            silent[host] = "its answer cannot be read; its mailboxd may have another version"
    return {"hits": hits, "silent": silent}


def _there(host: str, hit: _Hit) -> SearchHit:
    return {
        "seq": hit.seq,
        "at": hit.at,
        "type": hit.type,
        "agent": hit.agent,
        "agents": list(hit.agents),
        "where": hit.where,
        "snippet": hit.snippet,
        "task": hit.task,
        "phase": hit.phase,
        "need": hit.need,
        "state": hit.state,
        "status": hit.status,
        "host": host,
    }


def probed(membership: Membership) -> dict[str, Any]:
    """The rights of this host at the server: see `process.probe`. Raises UnavailableError, ConfigError, WorldError."""
    return spoken(membership, {"probe": True}, SECONDS)
