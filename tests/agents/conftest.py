"""Shared by the tests of child processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest


@pytest.fixture
def groups() -> Iterator[list[int]]:
    """Process groups of which whatever is left is killed in the end."""
    started: list[int] = []
    yield started
    for group in started:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
