"""What is advised when an extra is missing is what whatever installed mailboxd understands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailboxd.host.pip_extras import to_add

WHEEL = "/home/ann/my wheels/mailboxd-0.1.0-py3-none-any.whl"


def _pipx(source: str) -> dict[str, str]:
    return {"pipx_metadata.json": json.dumps({"main_package": {"package": "mailboxd", "package_or_url": source}})}


def _uv(requirement: str) -> dict[str, str]:
    return {"uv-receipt.toml": f"[tool]\nrequirements = [{requirement}]\n"}


@pytest.mark.parametrize(
    ("notes", "advice"),
    [
        ({}, "pip install 'mailboxd[web]'"),
        (_pipx("mailboxd"), "pipx install --force 'mailboxd[web]'"),
        (_pipx("mailboxd[mcp, web]"), "pipx install --force 'mailboxd[mcp,web]'"),
        (_pipx(f"{WHEEL}[mcp]"), f"pipx install --force '{WHEEL}[mcp,web]'"),
        (_pipx("mailboxd[mcp]==0.1.0"), "pipx install --force 'mailboxd[web]'"),
        (_uv('{ name = "mailboxd" }'), "uv tool install --force 'mailboxd[web]'"),
        (
            _uv(f'{{ name = "rich" }}, {{ name = "mailboxd", extras = ["mcp"], path = "{WHEEL}" }}'),
            f"uv tool install --force '{WHEEL}[mcp,web]'",
        ),
        ({"uv-receipt.toml": "no toml"}, "pip install 'mailboxd[web]'"),
        ({"pipx_metadata.json": "[]"}, "pip install 'mailboxd[web]'"),
    ],
)
def test_an_extra_is_added_by_what_installed_it(notes: dict[str, str], advice: str, tmp_path: Path) -> None:
    for name, text in notes.items():
        (tmp_path / name).write_text(text)
    assert to_add("web", tmp_path) == advice
