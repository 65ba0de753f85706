"""`mailboxd-scripted-openclaw`: a stand-in for the `openclaw` command whose agents follow a script (YAML).

It keeps the real one's contract (arguments, JSON, exit codes, ledger) so that demos and tests need no model and no
gateway, and it says on stderr and in `--version` that it is a stand-in. The format is in docs/scripted-agent.md.

One call is one short process: `command` reads the arguments, `script` finds the rule, `play` carries it out,
`ledger` keeps the witness's record, `shapes` has the JSON.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

NAME = "mailboxd-scripted-openclaw"
NOTICE = f"{NAME}: a scripted stand-in, not the real OpenClaw"


class Stopped(BaseException):
    """SIGTERM or SIGINT has come; like KeyboardInterrupt it is no Exception, so that nothing swallows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def main() -> None:
    """The console script. Exits like `openclaw`: 0, 1, or 143 and 130 with no output after SIGTERM and SIGINT."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        # Imported here: whoever is stopped while the imports run shall exit like the real one too.
        from mailboxd.agents.scripted.command import run

        status = run(sys.argv[1:])
    except Stopped as stopped:
        status = 128 + stopped.number
    sys.exit(status)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)
