"""A question to other hosts, asked by a command or the page through the hub process of this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mailboxd.hub.client.report import spoken
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.presence import Line, Said, Time
from mailboxd.ledger.search import SearchQuery

SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """The answers of the hosts, and the reasons of those that did not answer."""

    answers: Mapping[str, Any]
    silent: Mapping[str, str]


def ask(
    membership: Membership, question: Mapping[str, Any], hosts: Sequence[str] = (), seconds: float = SECONDS
) -> Heard:
    """Ask these hosts, by default all others, for so long. Raises UnavailableError, ConfigError, WorldError."""
    found = spoken(membership, {"question": question, "hosts": list(hosts), "seconds": seconds}, seconds)
    return Heard(found["answers"], found["silent"])


class _Hit(Said):
    """A match on another host."""

    at: Time
    type: Line
    agent: Line
    where: Line
    snippet: Line
    task: Line | None = None
    phase: Line | None = None
    need: Line | None = None
    state: Line | None = None
    status: Line | None = None


_HITS = TypeAdapter(list[_Hit])


def search_hosts(membership: Membership, query: SearchQuery) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The matches on other hosts, and why some did not answer. Raises as `ask`."""
    heard = ask(membership, {"kind": "search", "query": asdict(query)})
    hits: list[dict[str, Any]] = []
    silent = dict(heard.silent)
    for host, answer in sorted(heard.answers.items()):
        try:
            hits += [{**hit.model_dump(), "host": host} for hit in _HITS.validate_python(answer)]
        except ValidationError:
            silent[host] = "its answer cannot be read; its mailboxd may have another version"
    return hits, silent


def probed(membership: Membership) -> dict[str, Any]:
    """The rights of this host at the server: see `process.probe`. Raises UnavailableError, ConfigError, WorldError."""
    return spoken(membership, {"probe": True}, SECONDS)
