"""How it stands with this host's part in the hub: status.json, and the JSON of `mailboxd hub status`.

Times are ISO-8601 UTC; texts are empty, and mappings too, where there is nothing to tell. A test compares the types
with what the real hub process says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class SpoolStatus(TypedDict):
    """The mail of one agent here: not yet with the server, and without a receipt, the oldest since then."""

    new: int
    sent: int
    since: str


class ServedPool(TypedDict):
    """A pool that an agent here serves, the jobs that it holds, and those that other hosts took over from it."""

    agent: str
    slots: int
    held: int
    lost: int
    may_serve: bool


class PoolsStatus(TypedDict):
    """Pools by role: those served here, how many jobs given from here each host has (empty: none yet), and why nobody
    does them."""

    served: dict[str, ServedPool]
    given: dict[str, dict[str, int]]
    trouble: dict[str, str]


class HeldMail(TypedDict):
    """Mail for this host with the server: how much, delivered before, and no longer delivered since it was in vain."""

    held: int
    again: int
    stopped: int


class ProcessStatus(TypedDict):
    """What the hub process says of itself."""

    pid: int
    at: str
    host: str
    servers: tuple[str, ...]
    send: tuple[str, ...]
    accept: tuple[str, ...]
    trouble: str
    refused_by_server: list[str]
    hosts: dict[str, dict[str, Any]]
    """`HostSigns` of each other host."""
    foreign: dict[str, str]
    flooding: dict[str, str]
    fork: str
    copies: dict[str, str]
    agents: dict[str, SpoolStatus]
    pools: PoolsStatus
    owed: int
    held: HeldMail
    counts: dict[str, int]


class InvitedHost(TypedDict):
    """`members.Invited`."""

    key: str
    until: str
    pools: tuple[str, ...]
    used_by: str
    refused: str


class HubStatus(TypedDict):
    """The settings of this host, and what its hub process said last: nothing of that, and of a process of an earlier
    version not all, if there is none."""

    host: str
    servers: tuple[str, ...]
    send: tuple[str, ...]
    accept: tuple[str, ...]
    show: tuple[str, ...]
    decide: tuple[str, ...]
    invited: dict[str, InvitedHost]
    trouble: str
    pid: NotRequired[int]
    at: NotRequired[str]
    refused_by_server: NotRequired[list[str]]
    hosts: NotRequired[Mapping[str, Mapping[str, Any]]]
    foreign: NotRequired[dict[str, str]]
    flooding: NotRequired[dict[str, str]]
    fork: NotRequired[str]
    copies: NotRequired[dict[str, str]]
    agents: NotRequired[dict[str, SpoolStatus]]
    pools: NotRequired[PoolsStatus]
    owed: NotRequired[int]
    held: NotRequired[HeldMail]
    counts: NotRequired[dict[str, int]]
