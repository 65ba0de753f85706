"""What is known of each version of OpenClaw, and what follows for one that is not in the table."""

from __future__ import annotations

from mailboxd.perform.agents.openclaw_versions import NEWEST, OLDEST, TABLE, offer, why_too_old, why_untested
from tests.live.install import OLDER, OPENCLAW


def test_the_table_is_what_the_live_tests_install() -> None:
    tested = sorted(tuple(map(int, release.split("."))) for release in (OPENCLAW, *OLDER))
    assert [row.since for row in TABLE] == tested


def test_a_version_between_two_rows_is_taken_for_the_older() -> None:
    assert offer((2026, 9, 5)) is offer((2026, 9, 2))


def test_a_newer_version_is_used_with_a_warning_and_an_unknown_one_without() -> None:
    newer = (2027, 1, 0)
    assert offer(newer) is offer(None) is TABLE[-1]
    assert "2027.1.0 is newer than 2026.9.6" in why_untested(newer)
    assert why_untested(NEWEST) == why_too_old(OLDEST) == ""


def test_an_older_version_is_refused_with_the_reason() -> None:
    assert "it silently runs the turn again" in why_too_old((2026, 7, 35))


def test_the_lane_where_it_is_not_configured() -> None:
    assert [offer((2026, 9, 2)).lane(cores) for cores in (2, 12, 48)] == [8, 12, 16]
    assert [offer((2026, 9, 6)).lane(cores) for cores in (1, 2, 8, 48)] == [8, 8, 32, 192]
