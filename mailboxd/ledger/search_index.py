"""The search index of a workspace, brought up to date by each search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import read_message
from mailboxd.ledger.search import Index

FILE = "search.db"


@contextmanager
def index(ws: Workspace) -> Iterator[Index]:
    """Raises UnavailableError, StoreError."""
    with Index(ws.state / FILE, ws.database, lambda path: read_message(ws, path)) as found:
        found.catch_up()
        yield found
