"""Tasks of which only the names are known."""

from __future__ import annotations

from collections.abc import Sequence


class Known:
    """Open tasks of these names; as `formats.mailbox.unread.KnownTasks`."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def strangers(self, names: Sequence[str]) -> set[str]:
        return {*names} - self.names

    def live(self, names: Sequence[str], most: int) -> set[str]:
        return {*[name for name in names if name in self.names][:most]}
