"""`python -m mailboxd.rebuild.witness DATABASE`: proves the log of a rebuild while it grows, a hand of `proving`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from mailboxd.rebuild.hands import Master, serve
from mailboxd.store.db import connect
from mailboxd.store.proof import Proof


def main(master: Master) -> None:
    """Follow the log for as long as there is more, then answer that it is right. Raises WorldError."""
    with closing(connect(Path(sys.argv[1]), read_only=True)) as db, closing(Proof(db)) as proof:
        while master.hear():
            proof.follow()
        proof.complete()
    master.tell(None)


if __name__ == "__main__":
    serve(main)
