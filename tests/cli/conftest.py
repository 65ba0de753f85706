"""A stage for every test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import Stage, make


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")
