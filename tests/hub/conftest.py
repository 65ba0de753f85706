"""Each test gets hosts of its own, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.hub.farm import Farm


class Joined(Protocol):
    def __call__(self, hosts: Mapping[str, Mapping[str, Any]], **settings: Any) -> Farm: ...


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    """Hosts of one hub: `joined({"alpha": {"main": {...rules}}, "beta": {...}})`; settings are config keys."""
    farms: list[Farm] = []

    def make(hosts: Mapping[str, Mapping[str, Any]], **settings: Any) -> Farm:
        farms.append(Farm(tmp_path / f"farm{len(farms)}", hosts, **settings))
        return farms[-1]

    yield make
    for farm in farms:
        farm.close()
