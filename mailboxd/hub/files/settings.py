"""hub.yaml: this host's name, the server's address, and whom agents may give work to and take it from."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from mailboxd.core.vocabulary import is_id
from mailboxd.formats.config.model import Section, Shown, Whole, number
from mailboxd.formats.keys import PublicKey
from mailboxd.hub.wire.names import Address, is_host, role_of

# hub.yaml


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        fine = parts.scheme == "tls" and parts.hostname is not None and parts.username is None and parts.path == ""
        fine = fine and parts.port is not None
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("write the server's address, like tls://hub.example.org:4222")
    return value


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and 0 < int(port) < 65_536):
        raise ValueError("write an address and a port, like 0.0.0.0:4222")
    return value


def _host(value: str) -> str:
    if not is_host(value):
        raise ValueError("write a host's name: 1 to 63 of a-z 0-9 -, neither first nor last a hyphen")
    return value


def _host_or_all(value: str) -> str:
    return value if value == "*" else _host(value)


def _founder(value: str) -> str:
    PublicKey.parse(value)
    return value


def _pattern(value: str) -> str:
    named = value.replace("*", "x")
    if value != "*" and Address.parse(named) is None and not role_of(named):
        raise ValueError("write an agent of a host, like beta.writer, a pool, like pool:reviewer, or beta.* or *")
    return value


def _id(value: str) -> str:
    if not is_id(value):
        raise ValueError("write an id: 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without ..")
    return value


def _role(value: str) -> str:
    return _id(value).lower()


def _sequence(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Patterns = Annotated[
    tuple[Annotated[str, AfterValidator(_pattern)], ...],
    BeforeValidator(_sequence),
    Field(max_length=1_000),
    Shown.VALUE,
]
Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_host_or_all)], ...],
    BeforeValidator(_sequence),
    Field(max_length=1_000),
    Shown.VALUE,
]
Servers = Annotated[
    tuple[Annotated[str, AfterValidator(_url)], ...],
    BeforeValidator(_sequence),
    Field(min_length=1, max_length=9),
    Shown.HIDDEN,
]


class PoolSettings(Section):
    """This host's part in a pool."""

    agent: Annotated[str, AfterValidator(_id), Shown.VALUE] = Field(description="The agent here that does the work.")
    slots: Whole = number(1, "jobs", 1, 1_000, "Jobs that it takes at a time.")


class HubSettings(Section):
    """This host's part in a hub: hub.yaml."""

    host: Annotated[str, AfterValidator(_host), Shown.VALUE] = Field(description="This host's name in the hub.")
    servers: Servers = Field(description="Addresses of the server, or of the servers of a cluster.")
    founder: Annotated[str, AfterValidator(_founder), Shown.VALUE] = Field(
        description="Public key of the host that founded it."
    )
    send: Patterns = Field((), description="Agents of other hosts to which agents here may give work.")
    accept: Patterns = Field((), description="Agents of other hosts whose work agents here take.")
    pools: Annotated[dict[Annotated[str, AfterValidator(_role)], PoolSettings], Field(max_length=100)] = Field(
        {}, description="Pools that this host serves, by role."
    )
    show: Hosts = Field((), description="Hosts that may see what waits for a person here, and search.")
    decide: Hosts = Field((), description="Hosts from which a person may approve, answer and cancel here.")

    listen: Annotated[str, AfterValidator(_listen), Shown.HIDDEN] = Field(
        "", description="Where this host's server listens, if any."
    )
    replicas: Whole = number(1, "servers", 1, 5, "Servers that hold each message; the founder's counts.")
    store_bytes: Whole = number(
        10 << 30,
        "bytes",
        64 << 20,
        1 << 50,
        "Most that the server keeps of mail, files and jobs each; the founder's counts.",
    )

    def text(self) -> str:
        """The file, with its comments."""
        names = ("servers", "send", "accept", "show", "decide")
        lists = {name: "[" + ", ".join(f'"{one}"' for one in getattr(self, name)) + "]" for name in names}
        pools = {role: pool.model_dump() for role, pool in self.pools.items()}
        server = (
            f"listen: {self.listen}\nreplicas: {self.replicas}\nstore_bytes: {self.store_bytes}\n"
            if self.listen
            else ""
        )
        return (
            "# This host's part in the hub; `mailboxd hub run` reads it again when it has changed.\n"
            f"host: {self.host}\nservers: {lists['servers']}\nfounder: {self.founder}\n{server}\n"
            '# To whom agents here may give work, and whose work they take: [beta.writer], [beta.*], ["*"].\n'
            f"send: {lists['send']}\naccept: {lists['accept']}\n\n"
            "# Pools whose work an agent here does, so many jobs at a time: {reviewer: {agent: rev, slots: 2}}.\n"
            f"pools: {json.dumps(pools)}\n\n"
            "# Hosts that may see what waits for a person here and search, and hosts from which a person may decide.\n"
            f"show: {lists['show']}\ndecide: {lists['decide']}\n"
        )
