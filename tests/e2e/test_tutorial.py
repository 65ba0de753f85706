"""The tutorial is true: its commands run as they stand there, and print what it says."""

from pathlib import Path

import pytest

from tests.e2e.pages import DOCS, assert_page

pytestmark = pytest.mark.slow


def test_every_command_of_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    assert_page(DOCS / "tutorial.md", tmp_path)
