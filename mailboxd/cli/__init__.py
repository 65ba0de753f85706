"""The command line; `commands/` defines the commands.

Reading commands open the database read-only and need neither the configuration nor the daemon. Orders (`cancel`,
`retry`, ...) go through the engine in this process and then wake the daemon, which alone performs effects, so every
command except `run` works while the daemon is down. Imports are deferred until needed: a cold `mailboxd status` takes
less than 150 ms longer than Python itself.
"""

from __future__ import annotations

import gc

_COLLECT_AFTER = 10_000
"""New objects after which Python looks for cycles. Neither imports nor rounds of the daemon leave any worth freeing:
with Python's own 700, looking is 6 % of the CPU of `mailboxd status` and 3 % of a busy daemon's."""


def main() -> None:
    """The console script `mailboxd`."""
    gc.set_threshold(_COLLECT_AFTER)
    try:
        from mailboxd.cli.program import program

        program.main(prog_name="mailboxd")
    except (MemoryError, ImportError) as error:  # outside the error boundary, or not enough memory for it
        import os

        from mailboxd.errors import EXIT_TRY_AGAIN, shortage

        why = shortage(error)
        if not why:
            raise
        os.write(2, f"mailboxd: {why}\n".encode())
        os._exit(EXIT_TRY_AGAIN)
