"""OpenClaw writes JSON where a person wrote JSON5: what would be lost is said first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mailboxd.operate.setup.plan import comments_warning, has_comments


@pytest.mark.parametrize(
    ("text", "commented"),
    [
        ("{a: 1} // mine", True),
        ("/* mine */ {}", True),
        ('{"url": "http://127.0.0.1/*"}', False),
        ("{'url': 'ws://x', \"a\": 'it\\'s // no'}", False),
        ('{"a": "\\\\"} // mine', True),
        ("", False),
    ],
)
def test_a_comment_is_told_from_text(text: str, commented: bool) -> None:
    assert has_comments(text) is commented


def test_the_warning_has_a_command_that_keeps_a_copy(tmp_path: Path) -> None:
    file = tmp_path / "open claw.json"
    assert comments_warning(str(file)) == comments_warning("") == ""
    file.write_text("{} // mine\n")
    warning = comments_warning(str(file))
    subprocess.run(["sh", "-c", warning.split("`")[1]], check=True)
    assert file.with_name("open claw.json.commented").read_text() == "{} // mine\n"
    file.write_text("{}\n")
    assert comments_warning(str(file)) == ""
