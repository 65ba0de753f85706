"""What has begun had a complete spec, which was reviewed where that was asked for: hardly any file tells of either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mailboxd.core.inputs import SpecWritten, TurnEnded
from mailboxd.core.outcomes import Reviewed, Succeeded
from mailboxd.core.reviews import fence
from mailboxd.core.specs import criteria
from mailboxd.core.terms import Gate, Turn, Verdict
from mailboxd.core.types import Spec
from mailboxd.core.view import View
from mailboxd.rebuild.sources import Sent

_UNTOLD_SPEC = "As agreed before the work began; no file tells of it."
_UNTOLD_REVIEW = "It was approved, for the work began; no file tells of it."


def written(spec: Spec, sent: Sent | None) -> SpecWritten:
    """A weak spec becomes complete, by the message that gave the work out as far as that says when it is done."""
    expected = sent.message.section("Expected Output") if sent else ""
    wanted = criteria(sent.message.section("Acceptance Criteria")) if sent else ()
    expected = expected or spec.expected_output or ("" if wanted else _UNTOLD_SPEC)
    return SpecWritten(replace(spec, expected_output=expected, acceptance_criteria=wanted or (expected,)))


def approved(view: View) -> Iterator[TurnEnded]:
    """The review of the spec ends well."""
    for asked in view.asked_reviewers:
        review = Reviewed(Verdict.APPROVED, _UNTOLD_REVIEW)
        about = fence(view.task, view.attempt)
        yield TurnEnded(Turn.REVIEW, about, asked.reviewer, Succeeded(""), review, Gate.SPEC_REVIEW, called=False)
