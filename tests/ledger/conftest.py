"""One database, and the two processes that have it open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailboxd.ledger.store import Store

_BEGINNING = "2026-11-21T00:00:00.000Z"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "mailboxd.db", _BEGINNING)
    yield store
    store.close()


@pytest.fixture
def theirs(ours: Store, tmp_path: Path) -> Iterator[Store]:
    """Another process with the same database."""
    store = Store.open(tmp_path / "mailboxd.db", _BEGINNING)
    yield store
    store.close()
