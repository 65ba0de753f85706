"""Why work has stopped, as people read it: "stopped because ...".

That a task's circuit is open, that it is on hold, or that an agent's breaker is, are the program's own words. A person
decides about the reason, so the reason is all that a message says.
"""

from __future__ import annotations

import re

from mailboxd.core.sanitize import first_line

_CLAUSES = (
    (re.compile(r"outcome unknown: "), "its outcome is unknown: "),
    (re.compile(r"over budget: "), "it is over budget: "),
    (re.compile(r"handed over too often: "), "it was handed over too often: "),
    (re.compile(r"(?=[0-9]+ faults? in a row)"), "it had "),
    (re.compile(r"(spec|quality)_(review|gate): "), r"of its \1 \2: "),
)
"""How a recorded reason that is no clause begins, and how it begins after "because"."""


def stopped(reason: str) -> str:
    """`stopped because 3 attempts failed`: the predicate of what stopped for a recorded `reason`, on one line."""
    said = first_line(reason)
    if not said:
        return "stopped"
    for pattern, clause in _CLAUSES:
        if (found := pattern.match(said)) is not None:
            return f"stopped because {found.expand(clause)}{said[found.end() :]}"
    return f"stopped because {said}"
