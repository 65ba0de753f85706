"""What the copies of a broadcast say, counted: the one place where two answers are found to be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mailboxd.core.terms import Join
from mailboxd.core.types import Task

Votes = tuple[tuple[str, int], ...]
"""Each answer with its count, most frequent first."""


def vote(answer: str, result: str) -> str:
    """What a copy says: its declared answer, without one its whole result; white space around either does not count."""
    return answer.strip() or result.strip()


def count(copies: Iterable[tuple[str, str]]) -> Votes:
    """The votes of completed copies, each given as its declared answer and its result."""
    votes = Counter(vote(answer, result) for answer, result in copies)
    return tuple(sorted(votes.items(), key=lambda item: (-item[1], item[0])))


def majority(votes: Votes, copies: int) -> str | None:
    """The answer of more than half of all `copies`, those that failed or have not answered included; None = none is."""
    return votes[0][0] if votes and votes[0][1] * 2 > copies else None


def winner(join: Join, done: Sequence[Task]) -> Task:
    """The completed copy whose result is that of the broadcast: the first one, or the first that says what most say."""
    in_order = sorted(done, key=lambda copy: (copy.completed_at or "", copy.id))
    if join is Join.FIRST:
        return in_order[0]
    most = count((copy.answer, copy.result) for copy in done)[0][0]
    return next(copy for copy in in_order if vote(copy.answer, copy.result) == most)
