"""Which lists of OpenClaw's configuration keep an agent from its own files."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.doctor.agent import BlockingRule, blocked_file_tools, file_boundary

OWN = "agents.entries.alpha.tools"
ALL = ("read", "write", "edit")


@pytest.mark.parametrize(
    ("general", "own"),
    [
        ({}, None),
        ({"profile": "coding"}, None),
        ({"profile": "full"}, {}),
        ({"profile": "messaging"}, {"profile": "coding"}),
        ({"profile": "messaging", "alsoAllow": ["read", "write", "edit"]}, None),
        ({"profile": "minimal", "alsoAllow": ["group:fs"]}, None),
        ({"profile": "minimal"}, {"alsoAllow": ["*"]}),
        ({"allow": ["group:fs", "exec"]}, None),
        ({"deny": ["browser", "exec"]}, {"deny": []}),
        ("nonsense", ["nonsense"]),
        ({"deny": "write"}, None),
    ],
)
def test_the_agent_has_its_file_tools(general: Any, own: Any) -> None:
    assert blocked_file_tools(general, own, OWN) == []


@pytest.mark.parametrize(
    ("general", "own", "path", "value"),
    [
        ({"profile": "messaging"}, None, f"{OWN}.alsoAllow", ALL),
        ({"profile": "coding"}, {"profile": "minimal"}, f"{OWN}.alsoAllow", ALL),
        (
            {"profile": "minimal", "alsoAllow": ["Read", "cron"]},
            None,
            "tools.alsoAllow",
            ("Read", "cron", "write", "edit"),
        ),
        ({"profile": "minimal", "alsoAllow": list(ALL)}, {"alsoAllow": ["cron"]}, f"{OWN}.alsoAllow", ("cron", *ALL)),
        ({"allow": ["read", "exec"]}, None, "tools.allow", ("read", "exec", "write", "edit")),
        ({}, {"allow": ["exec"]}, f"{OWN}.allow", ("exec", *ALL)),
        ({"deny": ["exec", "write"]}, None, "tools.deny", ("exec",)),
        ({}, {"deny": ["group:fs", "cron"]}, f"{OWN}.deny", ("cron",)),
        ({}, {"deny": ["*"]}, f"{OWN}.deny", ()),
    ],
)
def test_the_blocking_list_and_its_correct_value_are_named(
    general: Any, own: Any, path: str, value: tuple[str, ...]
) -> None:
    (found,) = blocked_file_tools(general, own, OWN)
    assert isinstance(found, BlockingRule)
    assert (found.path, found.value) == (path, value)


@pytest.mark.parametrize(
    ("general", "own", "holds"),
    [
        ({}, None, False),
        ({"fs": {"workspaceOnly": True}}, None, True),
        ({"fs": {"workspaceOnly": True}}, {"fs": {"workspaceOnly": False}}, False),
        ({}, {"fs": {"workspaceOnly": True}}, True),
        ({"fs": {"workspaceOnly": "yes"}}, None, False),
    ],
)
def test_the_boundary_of_files(general: Any, own: Any, holds: bool) -> None:
    assert file_boundary(general, own) is holds
