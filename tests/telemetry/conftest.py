"""Companies as the end-to-end tests found them, and a receiver of traces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import found
from tests.telemetry.receiver import Receiver

__all__ = ["found", "receiver"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    listening = Receiver()
    yield listening
    listening.close()
