"""`python -m mailboxd.rebuild.witness DATABASE`: proves the log of a rebuild while it grows, a hand of `proving`."""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from pathlib import Path

from mailboxd.errors import WorldError
from mailboxd.rebuild.hands import Master
from mailboxd.store.db import connect
from mailboxd.store.proof import Proof


def main(database: str) -> None:
    """Follow the log for as long as there is more, then answer with None, or at any time with what is wrong."""
    master = Master()
    try:
        with closing(connect(Path(database), read_only=True)) as db, closing(Proof(db)) as proof:
            while master.hear():
                proof.follow()
            proof.complete()
    except WorldError as error:
        master.tell(error)
    else:
        master.tell(None)


if __name__ == "__main__":
    with suppress(EOFError):  # the rebuild is gone
        main(sys.argv[1])
