"""`python -m mailboxd.rebuild.read_worker WORKSPACE`: reads batches of files for a rebuild."""

from __future__ import annotations

import sys
from pathlib import Path

from mailboxd.mailbox.layout import Workspace
from mailboxd.rebuild.files import read_batch
from mailboxd.rebuild.workers import ParentProcess, serve


def main(master: ParentProcess) -> None:
    """Answer with the contents of each batch, in order. Raises WorldError."""
    ws = Workspace(Path(sys.argv[1]))
    for batch in master.hear():
        master.tell(read_batch(ws, batch))


if __name__ == "__main__":
    serve(main)
