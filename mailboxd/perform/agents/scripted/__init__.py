"""`mailboxd-scripted-openclaw`: a stand-in for the `openclaw` command whose agents follow a script (YAML).

It has the same arguments, JSON and exit statuses, so that demos and tests need no model and no gateway. On stderr and
in `--version` it says that it is a stand-in. The format is in docs/scripted-agent.md.

One call is one short process: `program` reads the arguments and carries out the rule that `script` finds. A ledger
records what was executed, independently of mailboxd.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

NAME = "mailboxd-scripted-openclaw"
NOTICE = f"{NAME}: a scripted stand-in, not the real OpenClaw"


class Stopped(BaseException):
    """SIGTERM or SIGINT was received. Not an Exception, like KeyboardInterrupt, so that nothing swallows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def main() -> None:
    """The console script. Exits like `openclaw`: 0, 1, or 143 and 130 with no output after SIGTERM and SIGINT."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        # imported here so that a signal during the imports has the same exit status
        from mailboxd.perform.agents.scripted.program import run

        status = run(sys.argv[1:])
    except Stopped as stopped:
        status = 128 + stopped.number
    sys.exit(status)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)
