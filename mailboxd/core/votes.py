"""How the copies of a broadcast voted: the count, and who said something else.

For those who get the result (as a sentence under it, and as the header `x-votes` of the reply) and for those who look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mailboxd.core.lifecycle import count_votes, majority, vote
from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import Phase

SHOWN = 160
"""Characters of a vote, and of a reason, that are shown."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a broadcast, as far as its vote is concerned."""

    key: str
    agent: str
    phase: Phase
    answer: str
    result: str


@dataclass(frozen=True, slots=True)
class Vote:
    """How a copy voted. Without a vote, `said` is empty and `why` says why."""

    key: str
    agent: str
    said: str
    why: str
    """Its reason, unless its vote was a whole result."""
    counts: bool
    """It is for the answer that more than half have given."""


def votes_of(copies: Sequence[Copy]) -> list[Vote]:
    """The vote of each copy, in their order."""
    done = [(copy.answer, copy.result) for copy in copies if copy.phase is Phase.COMPLETED]
    decided = majority(count_votes(done), len(copies))
    return [_vote(copy, decided) for copy in copies]


def _vote(copy: Copy, decided: str | None) -> Vote:
    if copy.phase is not Phase.COMPLETED:
        why = "failed" if copy.phase is Phase.FAILED else "has not voted"
        return Vote(copy.key, copy.agent, "", why, counts=False)
    whole = vote(copy.answer, copy.result)
    why = first_line(copy.result, SHOWN) if copy.answer.strip() else ""
    if why.casefold() == copy.answer.strip().casefold():
        why = ""
    return Vote(copy.key, copy.agent, first_line(whole, SHOWN), why, counts=decided is not None and whole == decided)


def in_words(votes: Sequence[Vote]) -> str:
    """The count and the dissent in a sentence, under the result of a majority."""
    same = [one for one in votes if one.counts]
    count = (
        f"{len(same)} of {len(votes)} said {same[0].said}" if same else f"none of {len(votes)} answers has a majority"
    )
    return f"[mailboxd] {'; '.join([count, *(_other(one) for one in votes if not one.counts)])}."


def _other(one: Vote) -> str:
    if not one.said:
        return f"{one.key} {one.why}"
    return f"{one.key} said {one.said}" + (f": {one.why.rstrip('.')}" if one.why else "")
