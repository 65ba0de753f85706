"""Whether this shell is the operator's own: OpenClaw marks the shells inside of an agent's turn."""

from __future__ import annotations

import os

from mailboxd.core.vocabulary import OPERATORS
from mailboxd.errors import Refused

OPERATOR = "operator"


def require_operator(sender: str = OPERATOR) -> None:
    """Raise Refused if an agent's shell would act as the operator."""
    from mailboxd.perform.agents.openclaw import inside_agent

    if sender in OPERATORS and inside_agent(os.environ):
        raise Refused(
            "permission-denied",
            "an agent may not act as the operator: this shell runs inside an agent's turn",
            "Use the operator's own shell.",
        )
