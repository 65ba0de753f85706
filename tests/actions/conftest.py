"""Each test has a workspace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actions.workspace_with_gate import Workbench, stand


@pytest.fixture
def at(tmp_path: Path) -> Workbench:
    return stand(tmp_path)
