"""Hand-overs: tasks that agents write into each other's inboxes, and where a chain of them ends.

Nobody plans such a chain, so no plan's limits bound it: agents that answer each note with another one go on for ever.
Each task therefore knows which agents had the work before (`Handover.passed`), and one too many is held for a person
before it gets a turn. A chain that nobody can know, because its agents left out or forged where it comes from, still
meets the limits of an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mailboxd.core.vocabulary import OPERATORS, as_id

if TYPE_CHECKING:
    from mailboxd.core.model import Handover, Origin, Task

MOST_TIMES = 3
"""How often a chain may come back to an agent, and bring it the same text."""
MOST_STEPS = 64
"""Steps that are kept, the latest ones."""
STRANGERS = "*"
"""The source of all senders whom nobody knows: a name that was made up gets no limits of its own."""
PILE = "operator, in piles"
"""The source of what says to come from the operator when much of it comes at once: a person's pile, or a fan-out."""
REPEATED = "operator, repeated"
"""The source of the runs of what repeats and only says to come from the operator: no other work uses up their limit."""
PILE_FACTOR = 10
"""How many times as much may come in piles: a person drops a thousand files, and yet no ring goes on for ever."""
HELD = "handed over too often: "
"""How the reason begins for which such a task is on hold."""
_SHOWN = 12
_CALLED = {
    STRANGERS: "senders that OpenClaw does not know",
    PILE: "operator that came in piles",
    REPEATED: "operator that repeat",
}
_NO_TEXT = "0" * 16


@dataclass(frozen=True, slots=True)
class Earlier:
    """What came here before: tasks of the same chain with the same text (without a chain: of the same source, within an
    hour), and within an hour from the same source the tasks, and the turns that these took.

    Counted as far as `why_held` asks: 0 for what it does not compare with a limit, and no more than that limit.
    """

    same_text: int = 0
    tasks: int = 0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The operator's limits on hand-overs; for the last two 0 = no limit."""

    depth: int = 8
    tasks: int = 500
    turns: int = 1_000


def most_tasks(given: Handover, bounds: Bounds) -> int:
    """How many tasks of its source within an hour make this one wait for a person; 0 = none do."""
    factor = PILE_FACTOR if given.source == PILE else 1
    return bounds.tasks * factor if given.counts else 0


def most_turns(given: Handover, bounds: Bounds) -> int:
    """The same for the turns that those tasks have taken."""
    is_of_agent = given.source not in (*OPERATORS, PILE, REPEATED)
    return bounds.turns if given.counts and is_of_agent else 0


def why_held(given: Handover, receiver: str, earlier: Earlier, bounds: Bounds) -> str:
    """Why this task is put on hold, in a sentence; empty if it is not. `receiver` is the agent whose inbox it is."""
    names = [*agents(given), receiver.lower()]
    times = names.count(receiver.lower()) - 1
    shown = f" ({path(names)})" if len(names) > 1 else ""
    if given.passed and times > MOST_TIMES:
        return f"{HELD}the work would come back to {receiver} for the {_ordinal(times)} time{shown}"
    if len(given.passed) > bounds.depth:
        return f"{HELD}{len(given.passed)} times, and limits.depth is {bounds.depth}{shown}"
    who = _CALLED.get(given.source, given.source)
    if given.text and earlier.same_text >= MOST_TIMES:
        within = "" if given.began else " within an hour"
        return f"{HELD}{who} has sent the same text {MOST_TIMES} times before{within}{shown}"
    if (most := most_tasks(given, bounds)) and earlier.tasks >= most:
        factor = f"{PILE_FACTOR} times " if given.source == PILE else ""
        return f"{HELD}more tasks of {who} within an hour than {factor}limits.sender_hour_tasks allows ({most})"
    if (most := most_turns(given, bounds)) and earlier.turns >= most:
        return (
            f"{HELD}the tasks of {who} within an hour have taken more turns than limits.sender_hour_turns"
            f" allows ({most})"
        )
    return ""


def is_held(held: str) -> bool:
    """Whether a task is on hold because it was handed over too often."""
    return held.startswith(HELD)


def reason_of(held: str) -> str:
    """The reason that many such tasks have in common: without the way of each."""
    return held.partition(" (")[0]


def handed_on(root: Task) -> tuple[str, tuple[str, ...]]:
    """What the chain began with, and its steps, for what the executor of this task without a parent hands over."""
    before = root.origin.handover
    began, passed = (before.began, before.passed) if before is not None else ("", ())
    return began or root.id, (*passed, step(root.executor, root.origin.content))[-MOST_STEPS:]


def step(agent: str, text: str) -> str:
    """A step of a chain: an agent, and a digest of what it had to do."""
    return f"{as_id(agent.lower())}:{text or _NO_TEXT}"


def agents(given: Handover) -> list[str]:
    """The agents that had the work before, from the first one to the sender."""
    return [one.partition(":")[0] for one in given.passed]


def last_text(passed: Sequence[str]) -> str:
    """The digest of what the sender had to do; empty if that is not known."""
    return passed[-1].partition(":")[2].replace(_NO_TEXT, "") if passed else ""


def path(names: Sequence[str]) -> str:
    """The way of the work; of a long one the two ends."""
    if len(names) <= _SHOWN:
        return " -> ".join(names)
    half = _SHOWN // 2
    return " -> ".join([*names[:half], f"{len(names) - _SHOWN} more", *names[-half:]])


def let_go(task: Task, now: str) -> Origin:
    """Where the task comes from once a person has let it go on: a new chain begins with it."""
    from mailboxd.core.model import Handover  # what only reads, as `status`, does without it

    before = task.origin.handover or Handover(task.sender.lower())
    return replace(task.origin, handover=replace(before, began=task.id, passed=(), let_go=now))


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
