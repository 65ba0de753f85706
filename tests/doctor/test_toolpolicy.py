"""What of OpenClaw's configuration keeps an agent from its own files, and whether it is kept to them."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.operate.doctor.agent import file_boundary, missing_file_tools


@pytest.mark.parametrize(
    ("general", "own", "missing"),
    [
        ({}, None, []),
        ({"profile": "coding"}, {"profile": "minimal"}, ["read", "write", "edit"]),
        ({"profile": "messaging"}, {"profile": "coding"}, []),
        ({"profile": "messaging", "alsoAllow": ["Read", "edit"]}, None, ["write"]),
        (
            {"profile": "minimal", "alsoAllow": ["read", "write", "edit"]},
            {"alsoAllow": ["cron"]},
            ["read", "write", "edit"],
        ),
        ({"profile": "minimal", "alsoAllow": ["group:fs"]}, None, []),
        ({"profile": "minimal"}, {"alsoAllow": ["*"]}, []),
        ("nonsense", ["nonsense"], []),
    ],
)
def test_the_file_tools_that_an_agent_lacks(general: Any, own: Any, missing: list[str]) -> None:
    assert missing_file_tools(general, own) == missing


@pytest.mark.parametrize(
    ("general", "own", "within"),
    [
        ({"fs": {"workspaceOnly": True}}, None, True),
        ({"fs": {"workspaceOnly": True}}, {"fs": {"workspaceOnly": False}}, False),
        ({}, {"fs": {"workspaceOnly": True}}, True),
        ({"fs": "nonsense"}, None, False),
    ],
)
def test_whether_an_agent_stays_in_its_workspace(general: Any, own: Any, within: bool) -> None:
    assert file_boundary(general, own) is within
