"""Mail for agents on other hosts: written to the hub's spool, and settled by the receiver's receipt.

It takes no slot and has no timeout, so a host that is down for a day delays nothing else. After a restart all pending
mail is spooled again, which changes nothing, and receipts that were not recorded are read again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mailboxd.core.inputs import WorkForgotten
from mailboxd.core.outcomes import Failed, Outcome, Permanence, Succeeded
from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import as_id
from mailboxd.formats.mailbox.files import directory, pieces, reading
from mailboxd.formats.mailbox.layout import ATTACHMENTS, Workspace
from mailboxd.formats.protocol.headers import ENDING, MAX_NAMES
from mailboxd.hub.files.spool import HOLDERS, RECEIPTS, Spool
from mailboxd.hub.files.view import HubView
from mailboxd.hub.wire.mail import MOST_ATTACHED, name_of
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.receipts import Receipt
from mailboxd.ledger.store import Order

_ACK = "---\ntype: ack\ntask_id: {}\nfrom: {}\n---\n"


@dataclass(slots=True)
class AttachedFiles:
    """The files that go with a message to another host. The texts returned here are for its receiver."""

    ws: Workspace
    message_id: str
    host: str
    names: tuple[str, ...] = ()
    _bytes: int = 0

    def add(self, raw: bytes, ending: str) -> str:
        """Attach a text; returns its path at the receiver, or "" if the message got too large. Raises WorldError."""
        return self._attach(name_of(raw, ending), len(raw), [raw])

    def left_out(self, path: str) -> str:
        """The text about a file that is too large to attach."""
        return f"{path} on the host {self.host}: {MOST_ATTACHED >> 20} MiB, or {MAX_NAMES} files, go with a message"

    def add_artifact(self, path: str, sha256: str) -> str:
        """Attach a recorded artifact; returns its path at the receiver, or a text that says why it is not attached.

        Raises WorldError.
        """
        *folders, name = path.split("/")
        ending = PurePosixPath(name).suffix.lower()
        with suppress(OSError), directory(self.ws.root, *folders) as folder, reading(folder, name) as file:
            size = os.fstat(file).st_size
            attached_as = f"{sha256}{ending if ENDING.fullmatch(ending) else ''}"
            with suppress(_ChangedError):
                return self._attach(attached_as, size, _unchanged(file, size, sha256)) or self.left_out(path)
        return f"{path} on the host {self.host}: it was changed after it was recorded"

    def _attach(self, name: str, size: int, content: Iterable[bytes]) -> str:
        if name not in self.names:
            if self._bytes + size > MOST_ATTACHED or len(self.names) >= MAX_NAMES:
                return ""
            Spool(self.ws).attach(self.message_id, name, content)
            self.names, self._bytes = (*self.names, name), self._bytes + size
        return f"{self.ws.mailbox.name}/{ATTACHMENTS}/{name}"


class _ChangedError(Exception):
    """A file is not what was recorded."""


def _unchanged(file: int, size: int, sha256: str) -> Iterator[bytes]:
    """The pieces of a file. Raises _ChangedError at the end of one that has another size or digest."""
    hashed = hashlib.sha256()
    for piece in pieces(file):
        hashed.update(piece)
        size -= len(piece)
        if size < 0:
            break
        yield piece
    if size != 0 or hashed.hexdigest() != sha256:
        raise _ChangedError


@dataclass(slots=True)
class HubMail:
    """`sign` signs with this host's key; `is_local`: an id of an agent of this OpenClaw."""

    view: HubView
    sign: Callable[[bytes], bytes] = bytes
    is_local: Callable[[str], bool] = lambda _agent: False
    _waiting: dict[str, Order] = field(default_factory=dict)
    """Orders whose messages have no receipt yet, by message id."""
    is_changed: bool = False
    """The agents that mail waits for have changed since the last `held_up`."""
    _read: list[str] = field(default_factory=list)
    """Receipts that the next transaction records."""
    _forgotten: list[str] = field(default_factory=list)
    """Messages of which the next transaction records that they were forgotten."""
    _may_be_left: bool = True
    """There may be receipts for which no order waits: an earlier daemon recorded and did not remove them."""

    def serves(self, agent: str) -> bool:
        """Whether the hub carries mail for this name. A local agent of that name takes precedence."""
        return self.view.carries(agent) and not self.is_local(agent)

    def name_for(self, receiver: str) -> str:
        """This agent's name in a message to that receiver."""
        info = self.view.info if self.serves(receiver) else None
        return self.view.agent if info is None else f"{info.host}.{self.view.agent}"

    def path_for(self, receiver: str, path: tuple[str, ...]) -> tuple[str, ...]:
        """A delegation path in which agents of this host have their full names, for a receiver on another one."""
        info = self.view.info if self.serves(receiver) else None
        if info is None:
            return path
        hosts = {*info.hosts, info.host}
        return tuple(
            step if (name := Address.parse(step.partition(":")[0])) and name.host in hosts else f"{info.host}.{step}"
            for step in path
        )

    def attached(self, receiver: str, message_id: str) -> AttachedFiles | None:
        """The attachments of a message to this receiver; None if the hub does not carry it."""
        info = self.view.info if self.serves(receiver) else None
        return None if info is None else AttachedFiles(self.view.ws, message_id, info.host)

    def put(self, order: Order, message_id: str, raw: bytes) -> None:
        """Have the hub carry a message; repeating this is harmless. Raises WorldError."""
        Spool(self.view.ws).put(message_id, raw)
        self._waiting[message_id] = order
        self.is_changed = True
        self.view.poke()

    def orders(self) -> set[str]:
        """The ids of the orders that wait for a receipt."""
        return {order.id for order in self._waiting.values()}

    def settled(self) -> Iterator[tuple[Order, Outcome]]:
        """The outcomes of messages whose receipts have arrived, each once. Raises WorldError."""
        if not (self._waiting or self._may_be_left):
            return
        if self.view.info is None:
            self._may_be_left = False
            return
        spool = Spool(self.view.ws)
        for message_id in spool.names(RECEIPTS):
            if message_id in self._read:
                continue
            order, receipt = self._waiting.pop(message_id, None), spool.receipt(message_id)
            self._read.append(message_id)  # also without an order: it was recorded before a crash
            self.is_changed = True
            if order is not None and receipt is not None:
                yield order, _outcome(order, receipt)
        self._may_be_left = False

    def forgotten(self) -> Iterator[tuple[str, WorkForgotten]]:
        """The tasks whose work another host had taken, and of which it will say no more. Raises WorldError."""
        if self.view.info is None:
            return
        for message_id, found in Spool(self.view.ws).forgotten().items():
            self._forgotten.append(message_id)
            restored = "no longer knows of this work, which it had taken: it was restored from a backup"
            yield found.task, WorkForgotten(found.attempt, found.why or f"the host {found.host} {restored}")

    def recorded(self) -> None:
        """Remove what was read before the last transaction. Raises WorldError."""
        spool = Spool(self.view.ws)
        while self._read:
            spool.recorded(self._read[-1])
            self._read.pop()
        while self._forgotten:
            spool.recorded_forgotten(self._forgotten[-1])
            self._forgotten.pop()

    def held_up(self) -> dict[str, str]:
        """The agents, in lower case, whose mail waits for a receipt, each with the reason for the delay.

        It is asked whenever the hub may have changed: `settled` then looks for receipts again.
        """
        self.is_changed, self._may_be_left = False, True
        agents = {order.agent.lower() for order in self._waiting.values()}
        return {agent: why for agent in sorted(agents) if (why := self.view.holds_up(agent))}

    def holders(self) -> dict[str, str]:
        """The hosts that have the jobs given to pools, by attempt. Raises WorldError."""
        if self.view.info is None:
            return {}
        spool = Spool(self.view.ws)
        found = [holder for name in spool.names(HOLDERS) if (holder := spool.holder(name)) is not None]
        return {holder.attempt: holder.host for holder in found}

    def trouble(self, now: str) -> str:
        """Why mail cannot be delivered now; empty if it can be. If none waits, only that none could come."""
        if not self._waiting:
            return self.view.absence
        agents = sorted({order.agent for order in self._waiting.values()})
        hosts = sorted({address.host for agent in agents if (address := self.view.address(agent))})
        told = [*(self.view.silence(host, now) for host in hosts), *map(self.view.untaken, agents)]
        return self.view.trouble or "; ".join(filter(None, told))


def _outcome(order: Order, receipt: Receipt) -> Outcome:
    """A refusal is final: the receiver would refuse every repetition."""
    if receipt.refused:
        is_own = receipt.sender == receipt.to
        said = first_line(receipt.refused)
        problem = f"it cannot be sent: {said}" if is_own else f"the host {receipt.sender} refused it: {said}"
        return Failed(problem, Permanence.PERMANENT, started=False)
    return Succeeded(_ACK.format(order.task or "none", as_id(order.agent)))
