"""The how-tos are true: their commands run on the stage that try.sh makes, and print what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.pages import DOCS, assert_page

pytestmark = pytest.mark.slow

PAGES = sorted(page.name for page in (DOCS / "howto").glob("*.md") if page.name not in ("README.md", "two-hosts.md"))
STAGE = f". {shlex.quote(str(DOCS / 'howto' / 'try.sh'))}"
HARNESS = Path(__file__).resolve().parents[1] / "agents" / "acp" / "odd_agent.py"


TASK = """---
task_id: {name}
mode: direct
status: {status}
from: boss
---

# Task: {name}

## Instructions

Do it.
{rest}"""


def test_a_workspace_of_clawflow_is_taken_over_as_the_page_says(tmp_path: Path) -> None:
    workspace, programs = tmp_path / ".openclaw" / "workspace-analyst", tmp_path / "bin"
    for name, status, rest in (("audit", "in-progress", ""), ("old", "done", "\n## Results\n\nIt was easy.\n")):
        (workspace / "tasks" / name).mkdir(parents=True)
        (workspace / "tasks" / name / "task.md").write_text(TASK.format(name=name, status=status, rest=rest))
    programs.mkdir()
    openclaw = programs / "openclaw"
    openclaw.write_text('#!/bin/sh\nexec mailboxd-scripted-openclaw "$@"\n')
    openclaw.chmod(0o755)
    script = tmp_path / "script.yaml"
    script.write_text(f"agents:\n  analyst:\n    workspace: {workspace}\n")
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    # the run is told of by name: set in `first`, for what begins with MAILBOXD is not handed on
    first = f"export MAILBOXD_SCRIPT={shlex.quote(str(script))}"
    assert_page(DOCS / "migrating.md", tmp_path, first=first, env={"PATH": path, "HOME": str(tmp_path)})


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_how_to_prints_what_it_says(name: str, tmp_path: Path) -> None:
    if re.search(r"^jq ", (DOCS / "howto" / name).read_text(), re.MULTILINE) and shutil.which("jq") is None:
        pytest.skip("the page uses jq")
    programs, place = tmp_path / "bin", tmp_path / "place"
    programs.mkdir()
    place.mkdir()
    npx = programs / "npx"  # what npx would fetch for codex.md, and nobody else's business
    npx.write_text(f"#!/bin/sh\nODD_LOG={tmp_path}/odd.log exec {sys.executable} {HARNESS}\n")
    npx.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert_page(DOCS / "howto" / name, place, first=STAGE, env={"PATH": path, "HOME": str(tmp_path)})
