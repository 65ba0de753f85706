"""`python -m mailboxd.rebuild.reader WORKSPACE`: reads batches of files for a rebuild, a hand of `reading`."""

from __future__ import annotations

import sys
from pathlib import Path

from mailboxd.rebuild.hands import Master, serve
from mailboxd.rebuild.reading import read_batch
from mailboxd.workspace.layout import Workspace


def main(master: Master) -> None:
    """Answer with what each batch holds, in their order. Raises WorldError."""
    ws = Workspace(Path(sys.argv[1]))
    for batch in master.hear():
        master.tell(read_batch(ws, batch))


if __name__ == "__main__":
    serve(main)
