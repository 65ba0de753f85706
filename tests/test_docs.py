"""Generated pages are up to date, lists are complete, and links lead somewhere."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = _generator()
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("name", GENERATE.PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == GENERATE.PAGES[name](), "run `make docs`"


def test_every_link_to_a_file_leads_somewhere() -> None:
    links = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    targets = [(page, target) for page in PAGES for target in links.findall(page.read_text(encoding="utf-8"))]
    assert [(page, target) for page, target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_an_index() -> None:
    indexes = [DOCS / folder / "README.md" for folder in (".", "howto", "decisions")]
    linked = {
        (index.parent / target).resolve()
        for index in indexes
        for target in re.findall(r"\]\(([^)#:]+)", index.read_text())
    }
    assert set(DOCS.rglob("*.md")) - linked - {DOCS / "README.md"} == set()
