"""Adapts docs/, whose links are made for the repository, to mkdocs.

Three pages of the root belong to the site; links to anything else outside of docs/ become plain words.
"""

from __future__ import annotations

import posixpath
import re
import runpy
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"README.md": "about.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
"""Pages of the root and their names in the site, where README.md is the index of docs/."""

_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the root, and those that are derived from the code."""
    for name, here in FROM_ROOT.items():
        files.append(File.generated(config, here, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, page in runpy.run_path(str(ROOT / "docs" / "generate.py"))["SITE_PAGES"].items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Redirect links to pages of the site, or remove them."""
    names = {here: name for name, here in FROM_ROOT.items()}
    own = page.file.src_uri
    folder = PurePosixPath(names[own]).parent if own in names else PurePosixPath("docs", own).parent
    up = "../" * (str(own).count("/"))
    return _LINK.sub(lambda found: _turned(found, folder, up), markdown)


def _turned(found: re.Match[str], folder: PurePosixPath, up: str) -> str:
    """A link or image of a page in `folder` of the repository, as the site needs it."""
    image, text, path, anchor = found[1], found[2], found[3], found[4] or ""
    target = posixpath.normpath(folder / path)
    target = f"{target}/README.md" if (ROOT / target / "README.md").is_file() else target
    if target in FROM_ROOT:
        return f"[{text}]({up}{FROM_ROOT[target]}{anchor})"
    return f"{image}[{text}]({up}{target.removeprefix('docs/')}{anchor})" if target.startswith("docs/") else text
