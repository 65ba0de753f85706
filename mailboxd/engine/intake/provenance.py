"""Where a task in the inbox comes from, as far as mailboxd can know it.

What the file says of itself is a claim of whoever wrote it, unless a person's or a host's key has signed it. Known are
the attempts in this database, and those in the database of a sender who is an agent of the same OpenClaw. Whoever
leaves all that out, or lies about it, still counts towards the limits of an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from mailboxd.core.handovers import MOST_STEPS, PILE, STRANGERS, last_text
from mailboxd.core.model import Handover
from mailboxd.core.session_keys import is_chat_of
from mailboxd.core.times import plus, to_text
from mailboxd.core.vocabulary import OPERATORS, same_agent
from mailboxd.engine.engine import Engine
from mailboxd.errors import MessageError
from mailboxd.formats.keys import YES, Proof, known_as
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.headers import handed_on
from mailboxd.formats.protocol.messages import HANDED_ON, TaskMessage
from mailboxd.formats.protocol.strict_yaml import Yaml
from mailboxd.ledger.handovers import Chain, ask_other, dispatched, ran

_PILE = 20
_AT_ONCE_SECONDS = 10.0
"""So many within so long are the beginning of a pile. By the defaults, what goes on slower reaches its limit within the
hour, and what is faster the higher one of piles: there is no pace between at which a forged ring goes on."""
_RUN = "x-asked-run"
"""In which run of a chat the plugin's tool was called."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a file that brings new work says of itself. `content` is a digest of the work."""

    sender: str
    content: str
    task_id: str = ""
    attempt_id: str = ""
    reply_token: str = ""
    reply_to: str = ""
    own: Mapping[str, Yaml] = field(default_factory=dict)
    """Its headers that begin with `x-`."""

    @classmethod
    def of(cls, message: TaskMessage) -> Self:
        ids = (message.task_id, message.attempt_id or "", message.reply_token or "")
        return cls(message.from_, message.content, *ids, message.reply_to or "", message.own_headers())


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who handed a task over; None: a person who has proven it. `is_ours`: a daemon's dispatch, bound by its plan."""

    handover: Handover | None
    is_ours: bool = False


BY_PERSON = Provenance(None)


def of(
    engine: Engine,
    claims: Claims,
    proof: Proof | None = None,
    written_ns: int | None = None,
    host: Callable[[], str] = str,
) -> Provenance:
    """Where this task comes from.

    `written_ns` is when its file was last written, in nanoseconds since 1970; `host` finds this host's name in the
    hub, which most mail does not need.
    """
    proof = proof or Proof()
    sender, name = claims.sender.lower(), claims.sender.rpartition(".")[2].lower()
    if name in OPERATORS and proof.verified == YES:
        return BY_PERSON
    if sender in OPERATORS:
        # a person may ask for the same again and again, so it has no text, and drop a thousand files
        name = known_as(sender)
        since = plus(engine.now, -_AT_ONCE_SECONDS)
        return Provenance(Handover(PILE if engine.store.handovers.has_come((name, PILE), since, _PILE) else name))
    homes, own = _homes(engine), engine.settings.agent
    if (chain := _given_out(engine, claims, homes)) is not None:
        return Provenance(Handover(sender, claims.content, chain.began, chain.passed, counts=False), is_ours=True)
    if proof.verified == YES and "." in sender and sender not in homes:  # its host has written and signed it
        chain, is_ours = _told(claims, host()), bool(claims.attempt_id and claims.reply_token)
        given = Handover(sender, claims.content, chain.began, chain.passed, counts=not is_ours)
        return Provenance(given, is_ours)
    if proof.verified != YES and homes and sender not in homes and not same_agent(sender, own):
        return Provenance(Handover(STRANGERS))
    chain = _known(engine, claims, homes, written_ns) or Chain("", ())
    # where nobody knows the agents, it may be a dispatch: a round of a plan has the text of the one before
    text = "" if not homes and claims.attempt_id and claims.reply_token else claims.content
    return Provenance(Handover(sender, text, chain.began, chain.passed))


def _homes(engine: Engine) -> dict[str, Path]:
    """The workspaces of the agents that OpenClaw has, by id in lower case; empty if nobody knows."""
    found = engine.store.meta.peers().get("known", {})
    return {name.lower(): Path(one[1]) for name, one in found.items() if len(one) > 1 and one[1]}


def _given_out(engine: Engine, claims: Claims, homes: dict[str, Path]) -> Chain | None:
    """The chain of a dispatch by the daemon of the sender; None if these are not its words."""
    home, attempt, token = homes.get(claims.sender.lower()), claims.attempt_id, claims.reply_token
    if home is None or not attempt or not token or same_agent(claims.sender, engine.settings.agent):
        return None
    own, work = engine.settings.agent, claims.task_id
    return ask_other(Workspace(home).database, lambda db: dispatched(db, attempt, token, own, work))


def _known(engine: Engine, claims: Claims, homes: dict[str, Path], written_ns: int | None) -> Chain | None:
    """The chain of the run, or of the work, in which the sender wrote this; None if that cannot be known.

    Of several works that ran then, the one that had the same text, or else that of the shortest chain: nothing else is
    known, and an agent that does much at once must not seem to go round in circles.
    """
    run, own = claims.own.get(_RUN), engine.settings.agent
    if same_agent(claims.sender, own) and isinstance(run, str) and is_chat_of(own, claims.reply_to):
        return Chain(f"run:{run[:200]}", ())
    now = engine.now
    written = now if written_ns is None else min(now, to_text(written_ns / 1e9))
    if same_agent(claims.sender, own):
        found = engine.store.handovers.sent_by(own, written)
    elif (home := homes.get(claims.sender.lower())) is not None:
        found = ask_other(Workspace(home).database, lambda db: ran(db, written)) or []
    else:
        found = []
    return min(found, key=lambda one: (last_text(one.passed) != claims.content, len(one.passed)), default=None)


def _told(claims: Claims, host: str) -> Chain:
    """The chain that a host has written into the message; an empty one if there is none that can be read.

    Agents of this host have their names here, by which they are known when the work comes back.
    """
    try:
        said = handed_on(claims.own.get(HANDED_ON, []))
    except MessageError:
        return Chain("", ())
    if len(said) < 2:
        return Chain("", ())
    return Chain(said[0], tuple(one.removeprefix(f"{host}.") if host else one for one in said[1:][-MOST_STEPS:]))
