"""The time zone of the operator: the one in the configuration, else that of the machine."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache


@lru_cache(maxsize=64)
def named(name: str) -> tzinfo:
    """The zone called `name`, like Europe/Berlin; empty: that of the machine, UTC if it has none that is known.

    Raises ValueError for a name that is unknown here.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most commands need no zone

    if not name:
        import tzlocal

        try:
            return tzlocal.get_localzone()
        except (ZoneInfoNotFoundError, OSError, ValueError):
            return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError("write the name of a time zone, like Europe/Berlin or UTC") from error
