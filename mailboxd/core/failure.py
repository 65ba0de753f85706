"""What a failure leads to: another attempt after a pause, an open circuit, or the end.

`Task.failures` is a budget: rework after a review is not a failure, and neither is a turn that provably never
reached its agent.
"""

from __future__ import annotations

from mailboxd.core.draft import Draft
from mailboxd.core.escalation import escalated
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.retry import backoff, is_exhausted
from mailboxd.core.settle import end, open_circuit
from mailboxd.core.terms import AttemptStatus
from mailboxd.core.text import attributed, first_line
from mailboxd.core.times import plus


def outcome_unknown(draft: Draft, error: str, *, harmless: bool = False) -> None:
    """Nobody can say whether the work was done: repeated only if that does nothing twice (section 7, rule 3).

    That is, if the work is declared idempotent, or the lost turn has provably used no tool (`harmless`).
    """
    if draft.task.policy.idempotent or harmless:
        failed_attempt(draft, f"outcome unknown: {error}", status=AttemptStatus.UNKNOWN)
        return
    draft.finish_attempt(AttemptStatus.UNKNOWN, error)
    open_circuit(
        draft, Trigger.OUTCOME_UNKNOWN, f"outcome unknown: {first_line(error)}", failures=draft.task.failures + 1
    )


def failed_attempt(
    draft: Draft,
    error: str,
    *,
    permanent: bool = False,
    retry_after: float = 0.0,
    status: AttemptStatus = AttemptStatus.FAILED,
) -> None:
    """End the live attempt without success: another one after a pause, an open circuit, or the end."""
    task, now = draft.task, draft.ctx.now
    failures = task.failures + 1
    why = first_line(error)
    draft.finish_attempt(status, error)
    if permanent or task.policy.max_attempts == 1:
        rule = "cannot be mended by retrying" if permanent else "max_attempts is 1"
        end(draft, Trigger.HOPELESS, f"{why} ({rule})", failures=failures, error=error)
    elif is_exhausted(task.policy, failures):
        open_circuit(draft, Trigger.EXHAUSTED, f"{failures} attempts failed; the last: {why}", failures=failures)
    else:
        wait = max(pause(draft, failures), retry_after)
        draft.move(
            Trigger.ATTEMPT_FAILED,
            why,
            failures=failures,
            stalls=0,
            not_before=plus(now, wait),
            error=error,
            findings=_what_failed(status, error),
            **escalated(draft, failures),
        )


def _what_failed(status: AttemptStatus, error: str) -> str:
    if status is AttemptStatus.UNKNOWN:
        again = "Nobody knows how far the attempt before came. If the work was already done, report its result only"
        return attributed(f"{again}. What is known", error)
    return attributed("The previous attempt failed. Its error", error)


def pause(draft: Draft, failures: int) -> float:
    return backoff(draft.task.policy, failures, draft.ctx.jitter, draft.ctx.jitter_share)
