"""`python -m mailboxd.rebuild.write_worker DATABASE TIME`: writes the database of a rebuild."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from mailboxd.rebuild.workers import ParentProcess, serve
from mailboxd.store.rebuild_store import DatabaseWriter


def main(master: ParentProcess) -> None:
    """Write batches until the last one, then the other tables; confirm, and send the fingerprint. Raises WorldError."""
    with closing(DatabaseWriter(Path(sys.argv[1]), sys.argv[2])) as writer:
        while (told := master.hear()) is not None:
            writer.write(told)
        writer.complete(master.hear())
        master.tell(None)
        master.tell(writer.finish())


if __name__ == "__main__":
    serve(main)
