"""`python -m mailboxd.rebuild.reader WORKSPACE`: reads batches of files for a rebuild, a hand of `reading`."""

from __future__ import annotations

import sys
from pathlib import Path

from mailboxd.errors import WorldError
from mailboxd.rebuild.hands import Master
from mailboxd.rebuild.reading import read_batch
from mailboxd.workspace.layout import Workspace


def main(root: str) -> None:
    """Answer with what each batch holds, in their order; with the error that ends it."""
    master, ws = Master(), Workspace(Path(root))
    for batch in master.hear():
        try:
            found = read_batch(ws, batch)
        except WorldError as error:
            master.tell(error)
            return
        master.tell(found)


if __name__ == "__main__":
    main(sys.argv[1])
