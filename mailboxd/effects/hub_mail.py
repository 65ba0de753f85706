"""Mail for agents on other hosts: put into the hub's spool, and settled by the receiver's receipt.

No slot and no timeout: a host that is off for a day holds up nothing else. After a restart everything that is pending
is put again, which changes nothing; a receipt that was not recorded is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mailboxd.core.outcomes import Failed, Outcome, Permanence, Succeeded
from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import as_id
from mailboxd.hub.protocol import MOST_ATTACHED, Address, Receipt, digest, name_of
from mailboxd.hub.spool import HOLDERS, RECEIPTS, HubView, Spool
from mailboxd.mailbox.files import directory, read_file
from mailboxd.mailbox.layout import ATTACHMENTS, Workspace
from mailboxd.protocol.headers import ENDING, MAX_NAMES
from mailboxd.store.store import Order

_ACK = "---\ntype: ack\ntask_id: {}\nfrom: {}\n---\n"


@dataclass(slots=True)
class Attached:
    """The files that go with a message to another host; all that is said of them is for its receiver."""

    ws: Workspace
    message_id: str
    host: str
    names: tuple[str, ...] = ()
    _bytes: int = 0

    def add(self, raw: bytes, ending: str) -> str:
        """Have a file go along; returns where it will be, or empty if that would be too much. Raises WorldError."""
        name = name_of(raw, ending)
        if name not in self.names:
            if self._bytes + len(raw) > MOST_ATTACHED or len(self.names) >= MAX_NAMES:
                return ""
            Spool(self.ws).attach(self.message_id, name, raw)
            self.names, self._bytes = (*self.names, name), self._bytes + len(raw)
        return f"{self.ws.mailbox.name}/{ATTACHMENTS}/{name}"

    def too_much(self, path: str) -> str:
        """What to say of a file that does not go along."""
        return f"{path} on the host {self.host}: {MOST_ATTACHED >> 20} MiB, or {MAX_NAMES} files, go with a message"

    def add_made(self, path: str, sha256: str) -> str:
        """Have a file of the workspace go along that was recorded; returns where it will be, or why it does not."""
        raw, (*folders, name) = None, path.split("/")
        with suppress(OSError), directory(self.ws.root, *folders) as folder:
            raw = read_file(folder, name, MOST_ATTACHED + 1)
        if raw is None or (digest(raw) != sha256 and len(raw) <= MOST_ATTACHED):
            return f"{path} on the host {self.host}: it was changed after it was recorded"
        ending = PurePosixPath(name).suffix.lower()
        return self.add(raw, ending if ENDING.fullmatch(ending) else "") or self.too_much(path)


@dataclass(slots=True)
class HubMail:
    """`sign` signs with this host's key; `is_local`: an id of an agent of this OpenClaw."""

    view: HubView
    sign: Callable[[bytes], bytes] = bytes
    is_local: Callable[[str], bool] = lambda _agent: False
    _waiting: dict[str, Order] = field(default_factory=dict)
    """Orders whose messages have no receipt yet, by message id."""
    has_news: bool = False
    """Other agents than at the last `held_up` are waited for."""
    _read: list[str] = field(default_factory=list)
    """Receipts that the next transaction records."""

    def serves(self, agent: str) -> bool:
        """Whether the hub carries mail for this name. An agent of this OpenClaw that has such an id comes first."""
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

    def attached(self, receiver: str, message_id: str) -> Attached | None:
        """What may go with a message to a receiver; None if the hub does not carry it."""
        info = self.view.info if self.serves(receiver) else None
        return None if info is None else Attached(self.view.ws, message_id, info.host)

    def put(self, order: Order, message_id: str, raw: bytes) -> None:
        """Have a message carried, once. Raises WorldError; repeat it then."""
        Spool(self.view.ws).put(message_id, raw)
        self._waiting[message_id] = order
        self.has_news = True
        self.view.poke()

    def orders(self) -> set[str]:
        """The ids of the orders that wait for a receipt."""
        return {order.id for order in self._waiting.values()}

    def settled(self) -> Iterator[tuple[Order, Outcome]]:
        """The outcomes of messages whose receipts have arrived, each once. Raises WorldError."""
        if self.view.info is None:
            return
        spool = Spool(self.view.ws)
        for message_id in spool.names(RECEIPTS):
            if message_id in self._read:
                continue
            order, receipt = self._waiting.pop(message_id, None), spool.receipt(message_id)
            self._read.append(message_id)  # also without an order: it was recorded before a crash
            self.has_news = True
            if order is not None and receipt is not None:
                yield order, _outcome(order, receipt)

    def recorded(self) -> None:
        """Remove the receipts that were read before the last transaction. Raises WorldError."""
        while self._read:
            Spool(self.view.ws).recorded(self._read[-1])
            self._read.pop()

    def held_up(self) -> dict[str, str]:
        """The agents to which mail waits for a receipt, in lower case, and what holds it up."""
        self.has_news = False
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
        """Why mail that waits cannot be carried now, or arrives nowhere; empty if it can, or none waits."""
        if not self._waiting:
            return ""
        hosts = {address.host for order in self._waiting.values() if (address := self.view.address(order.agent))}
        return self.view.trouble or "; ".join(filter(None, (self.view.silence(host, now) for host in sorted(hosts))))


def _outcome(order: Order, receipt: Receipt) -> Outcome:
    """A refusal is final: the receiver would refuse every repetition."""
    if receipt.refused:
        problem = f"the host {receipt.sender} refused it: {first_line(receipt.refused)}"
        return Failed(problem, Permanence.PERMANENT, started=False)
    return Succeeded(_ACK.format(order.task or "none", as_id(order.agent)))
