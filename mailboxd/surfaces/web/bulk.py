"""One order for all tasks that a search finds: which tasks it is for, and what became of each.

A person sees the exact tasks before, on a page of their own. What is sent from there names each with the state in which
it was listed, so that nothing is done to a task that has changed since, and doing it twice does nothing twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mailboxd.core.operator_orders import Situation
from mailboxd.core.vocabulary import Phase
from mailboxd.errors import Refused

MOST = 2_000
"""Tasks that one order is for: it is one transaction, for which the daemon waits."""
CHANGED = "changed"
"""The rule that refuses an order about a task that is not as it was listed."""
LEFT = ("left", "held", "refused")
"""The names, in an address, of the numbers of tasks that did not get an order: they had changed, an order that ends
them is held already, or it makes no sense for them.
"""
_KINDS = {CHANGED: "left", "held-already": "held", "being-ended": "held"}
_STAMP = re.compile(r"([0-9A-Za-z_]{1,40}):([0-9]{1,6}):([a-z_]{1,20})")


@dataclass(frozen=True, slots=True)
class BulkOrder:
    """An order that can be given for many tasks. `condition` names which (`store.task_queries.SUITS`)."""

    name: str
    label: str
    asks: str
    """The question on the page that confirms it; `{}` is the number of tasks."""
    done: str
    """What is said afterwards; `{}` is the number of tasks."""
    suits: str
    """What a task must be for it, as `None of these 4 ...` goes on."""
    ends: bool = False


BULK: Mapping[str, BulkOrder] = {
    order.name: order
    for order in (
        BulkOrder("retry", "Run again", "Run {} again?", "{} will run again.", "has failed, is stuck or is on hold"),
        BulkOrder("dismiss", "Dismiss", "Dismiss {}?", "{} dismissed, for you alone.", "has failed unseen"),
        BulkOrder(
            "cancel",
            "Cancel",
            "Cancel {}?",
            "{} will be cancelled in 10 s; until then, Undo takes all of it back.",
            "is open",
            ends=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A task as it was listed."""

    id: str
    attempt: int
    phase: str

    @property
    def stamp(self) -> str:
        return f"{self.id}:{self.attempt}:{self.phase}"


def listed(row: Mapping[str, Any]) -> Listed:
    return Listed(row["id"], row["attempt"], row["phase"])


def stamps(rows: Iterable[Mapping[str, Any]]) -> str:
    """The tasks as a hidden field of a form holds them."""
    return " ".join(listed(row).stamp for row in rows)


def read_stamps(text: str) -> list[Listed]:
    """The tasks that a form was about, each once. Raises Refused."""
    found = dict.fromkeys(text.split())
    tasks = [Listed(made[1], int(made[2]), made[3]) for one in found if (made := _STAMP.fullmatch(one))]
    if not tasks or len(tasks) != len(found) or len(tasks) > MOST:
        raise Refused("bad-form", f"the form does not name from 1 to {MOST} tasks", "Open the list again.")
    return tasks


def order_for(name: str, phase: Phase, held: str) -> str:
    """The operator's order that this is for a task: work that is stuck is released, other work is run again."""
    if name != "retry":
        return name
    return "unblock-retry" if Situation(phase, held).blocked else "retry"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of an order for many tasks: how many got it, and which did not, with the rule that refused it."""

    order: BulkOrder
    count: int
    left: Sequence[tuple[str, str]]

    @property
    def query(self) -> str:
        """What the address of the page says of it."""
        kinds = Counter(_KINDS.get(rule, "refused") for _, rule in self.left)
        counts = "".join(f"&{name}={kinds[name]}" for name in LEFT if kinds[name] or name == "left")
        return f"done=all-{self.order.name}&did={self.count}{counts}"


def told(done: str, did: int, left: Sequence[int]) -> str:
    """The sentences for that; `left` are the numbers of `LEFT`."""
    order = BULK.get(done.removeprefix("all-")) if done.startswith("all-") else None
    if order is None:
        return ""
    said = [order.done.format(tasks(did)) if did or not any(left) else "Nothing was ordered."]
    changed, held, refused = left
    if changed:
        said.append(f"{tasks(changed)} had changed since the list was shown, and {_are(changed)} as before.")
    if held:
        said.append(f"{tasks(held)} {_are(held)} about to be cancelled already, unless you undo it.")
    if refused:
        where = "its page says" if refused == 1 else "their pages say"
        said.append(f"For {tasks(refused)} it makes no sense now: {where} why.")
    return " ".join(said)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def tasks(count: int) -> str:
    return f"{count:,} task{'s' * (count != 1)}"
