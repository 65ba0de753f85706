"""The command line: one verb, one file under `commands/`. A person's entrance to the same engine.

Reading commands open the database read-only, beside a daemon that goes on writing; they need neither the configuration
nor the daemon. Orders (`cancel`, `retry`, `unblock`, `answer`) go through the engine in this process and wake the
daemon, which alone performs effects; so everything but `run` works while it is down. Nothing is imported before a
command needs it: a cold `mailboxd status` costs less than 150 ms more than Python itself.
"""

from __future__ import annotations


def main() -> None:
    """The console script `mailboxd`."""
    try:
        from mailboxd.cli.program import program

        program.main(prog_name="mailboxd")
    except (MemoryError, ImportError) as error:  # before there is a boundary, or when there was no room for that either
        import os

        from mailboxd.errors import EXIT_TRY_AGAIN, shortage

        why = shortage(error)
        if not why:
            raise
        os.write(2, f"mailboxd: {why}\n".encode())
        os._exit(EXIT_TRY_AGAIN)
