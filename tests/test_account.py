"""The account that the daemons of one user share: what one of them writes takes nothing from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.spending import Spend
from mailboxd.engine.spending import Ledger, Row
from mailboxd.formats.user.state import UserState

NOW = "2026-11-28T20:00:00.000Z"


@pytest.fixture
def of_berlin(tmp_path: Path) -> Ledger:
    """The account after its workspace has spent, and a person raised the caps, on the 28th."""
    ledger = Ledger(UserState(tmp_path), "/berlin")
    with ledger.changing("2026-11-28", NOW) as book:
        book.rows["/berlin"] = Row("2026-11-28", Spend(5))
    ledger.raise_host("2026-11-28", NOW, Spend(100))
    return ledger


@pytest.mark.parametrize("day", ["2026-11-29", "2026-11-30"])
def test_a_day_that_has_begun_in_another_zone_takes_nothing_from_this_one(of_berlin: Ledger, day: str) -> None:
    with Ledger(of_berlin.state, "/tokyo").changing(day, NOW) as book:
        book.rows["/tokyo"] = Row(day, Spend(1))
    book = of_berlin.book()
    assert book.raised == {"2026-11-28": Spend(100)}
    assert book.rows["/berlin"].of("2026-11-28") == Spend(5)


def test_what_is_over_everywhere_is_dropped(of_berlin: Ledger) -> None:
    with of_berlin.changing("2026-12-01", "2026-12-01T20:00:00.000Z"):
        pass
    book = of_berlin.book()
    assert (len(book.rows), len(book.raised)) == (0, 0)
