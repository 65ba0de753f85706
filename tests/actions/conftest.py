"""Each test has a workspace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actions.place import Stand, stand


@pytest.fixture
def at(tmp_path: Path) -> Stand:
    return stand(tmp_path)
