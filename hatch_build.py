"""Adds the man pages to the wheel. They are derived from the commands, so mailboxd's dependencies are needed here."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface[Any]):
    """Found by hatchling, because it is the only class of this kind here."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages to a temporary directory, and name them among the files of the wheel."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        pages = runpy.run_path(str(Path(self.root, "docs", "manpages.py")))["pages"]()
        self.made = tempfile.TemporaryDirectory()
        for name, text in pages.items():
            path = Path(self.made.name, name)
            path.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(path)] = f"share/man/man1/{name}"
