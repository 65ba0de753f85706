"""The site is whole, and nothing of it is fetched from the network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FETCHED = re.compile(r'(?:<(?:script|img|iframe)[^>]*\bsrc|<link[^>]*\bhref)="((?:https?:)?//[^"]*)"')


def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    sources = sorted((ROOT / "docs").rglob("*.md"))
    assert len(pages) >= len(sources) + 3  # and the three pages of the root
    assert {url for page in pages for url in FETCHED.findall(page.read_text(encoding="utf-8"))} == set()
