"""`python -m mailboxd.rebuild.write_worker DATABASE MOMENT`: writes the database of a rebuild, a hand of `writing`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from mailboxd.rebuild.workers import Master, serve
from mailboxd.store.rebuild_store import DatabaseWriter


def main(master: Master) -> None:
    """Write what is told for as long as there is more, then the rest; say so, and then its fingerprint.

    Raises WorldError.
    """
    with closing(DatabaseWriter(Path(sys.argv[1]), sys.argv[2])) as scribe:
        while (told := master.hear()) is not None:
            scribe.write(told)
        scribe.complete(master.hear())
        master.tell(None)
        master.tell(scribe.finish())


if __name__ == "__main__":
    serve(main)
