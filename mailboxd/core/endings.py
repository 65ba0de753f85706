"""Orders that end a task are held for some seconds: what is said of them, and what they forbid meanwhile."""

from __future__ import annotations

from math import ceil

from mailboxd.core.times import to_epoch

REJECT = "reject"
"""The name of the order to reject a request."""
COMMANDS = {"cancel": "cancel", "unblock-fail": "resolve --failed", REJECT: "reject"}
"""The command of each order that ends a task, by the order's name."""
_BECOMES = {"cancel": "is cancelled", "unblock-fail": "fails", REJECT: "is rejected"}


def short(approval: str | None) -> str:
    """The short id of a request; empty for none."""
    return approval[-6:].lower() if approval else ""


def ordered(name: str, approval: str | None) -> str:
    """The order as a person gives it: `cancel`, `reject 3f9k2q`."""
    return f"{COMMANDS.get(name, name)} {short(approval)}".rstrip()


def becomes(name: str, approval: str | None) -> str:
    """What happens to the task when the order is carried out: `is cancelled`, `its request 3f9k2q is rejected`."""
    return f"its request {short(approval)} {_BECOMES[name]}" if approval else _BECOMES[name]


def until(due: str, now: str) -> str:
    """When a held order is carried out: `in 8 s`."""
    left = ceil(to_epoch(due) - to_epoch(now))
    return f"in {left} s" if left > 0 else "as soon as the daemon comes to it"


def goes_on(order: object) -> bool:
    """Whether an order or a decision would let a task go on, so that it contradicts an order to end it."""
    from mailboxd.core.approvals import ApprovalDecision, Resolve  # what only reads, as `status`, does without them
    from mailboxd.core.inputs import Cancel, Remedy, Unblock

    match order:
        case Cancel() | Unblock(remedy=Remedy.FAIL) | Resolve(decision=ApprovalDecision.REJECTED):
            return False
        case _:
            return True
