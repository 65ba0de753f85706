"""Policy of repetition: whether, and after how long. Returns values; acts on nothing (protocol section 4, "Retry")."""

from __future__ import annotations

from mailboxd.core.types import Policy


def backoff(policy: Policy, failures: int, jitter: float, share: float) -> float:
    """Seconds to wait before the next attempt after the `failures`-th failure in a row (counted from 1).

    Doubles from `backoff_base` up to `backoff_max`; `jitter` in [0, 1) moves the result by up to ±`share` of
    itself, so that tasks that failed together do not come back together.
    """
    exponent = min(max(failures, 1) - 1, 30)
    plain = min(policy.backoff_base * 2.0**exponent, policy.backoff_max)
    return plain * (1.0 + share * (2.0 * jitter - 1.0))


def is_exhausted(policy: Policy, failures: int) -> bool:
    return failures >= policy.max_attempts
