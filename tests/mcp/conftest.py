"""A stand for every test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import make
from tests.mcp.stand import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(make(tmp_path / "alpha"))
