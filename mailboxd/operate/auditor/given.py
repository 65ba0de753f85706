"""The public keys that an auditor gives, and whose they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mailboxd.core.vocabulary import same_agent
from mailboxd.errors import MailboxdError
from mailboxd.formats.keys import PublicKey, known_as
from mailboxd.ledger.signed_heads import Keys


@dataclass(frozen=True, slots=True)
class GivenKey:
    """A public key as it was given: by whose name, and where it was read."""

    public: PublicKey
    name: str = ""
    """An agent, or `operator`; empty: it was given without a name."""
    source: str = ""
    """The file, or the key itself."""


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """What an auditor has. A key that was given for somebody vouches for nobody else."""

    keys: tuple[GivenKey, ...] = ()
    by_fingerprint: Keys = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_fingerprint", {one.public.fingerprint: one.public for one in self.keys})

    @classmethod
    def of(cls, keys: Iterable[GivenKey]) -> GivenKeys:
        return cls(tuple(keys))

    @property
    def unnamed(self) -> list[GivenKey]:
        return [one for one in self.keys if not one.name]

    def names(self, fingerprint: str) -> frozenset[str]:
        """For whom this key was given; with an empty name, it was given without one."""
        return frozenset(one.name for one in self.keys if one.public.fingerprint == fingerprint)

    def name_for(self, fingerprint: str, agent: str, agents: Sequence[str]) -> str | None:
        """The name by which a key vouches for the archive of `agent`; None: it was given for somebody else.

        `agents` are those of all archives: what is on another host has the host's name before its own, unless an agent
        is called so.
        """
        names = self.names(fingerprint)
        for name in sorted(names, reverse=True):
            if name and agent and _is_same(name, agent, agents):
                return name
        return "" if "" in names else None

    def owner(self, fingerprint: str) -> str:
        """Whose key it is, in words."""
        named = " and ".join(sorted(filter(None, self.names(fingerprint))))
        return (
            f"the key {fingerprint} of {named}" if named else f"the key {fingerprint}, which was given without a name"
        )

    def is_of(self, fingerprint: str, sender: str) -> bool:
        """Whether a key was given for the sender of a message."""
        return any(name and known_as(name) == known_as(sender) for name in self.names(fingerprint))


def _is_same(name: str, agent: str, agents: Sequence[str]) -> bool:
    if same_agent(name, agent):
        return True
    if any(same_agent(name, other) for other in agents):
        return False
    short, own = name.rpartition(".")[2], agent.rpartition(".")[2]
    return same_agent(name, own) or same_agent(short, agent)


@dataclass
class UnnamedKeysError(MailboxdError):
    """Keys were given without a name, and there are archives of several agents: any of them would prove any archive."""

    agents: list[str]
    keys: list[GivenKey]

    def options(self) -> list[str]:
        """The options that say whose each key is, as far as its file's name tells it; `AGENT` stands for the rest."""
        found = []
        for key in self.keys:
            stem = key.source.rpartition("/")[2].partition(".")[0]
            named = key.name or next((one for one in (*self.agents, "operator") if same_agent(one, stem)), "AGENT")
            found.append(f"{named}={key.source or key.public}")
        return found

    def __str__(self) -> str:
        agents = ", ".join(self.agents)
        return f"with archives of several agents ({agents}), each key needs the name of its agent"
