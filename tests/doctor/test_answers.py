"""Answers of the real OpenClaw 2026.9.6 (fixtures/), and possible ones of an older or broken one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.vocabulary import ANSWER_TOOLS
from mailboxd.operate.doctor import openclaw
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw_versions import NEWEST

FIXTURES = Path(__file__).parent / "fixtures"


def recorded(name: str, rc: int = 0) -> Exit:
    return Exit(rc, (FIXTURES / f"{name}.json").read_bytes())


def said(value: Any, rc: int = 0) -> Exit:
    return Exit(rc, json.dumps(value).encode())


def unset(path: str) -> Exit:
    message = f"Config path is valid but unset: {path}. The runtime default applies."
    return said({"ok": False, "error": {"type": "cli_error", "message": message}}, 1)


@pytest.mark.parametrize(
    ("name", "connected", "failure"),
    [
        ("status-ready", True, ""),
        ("status-wrong-token", False, "auth-rejected"),
        ("status-down", False, "unreachable"),
    ],
)
def test_the_state_of_a_gateway(name: str, connected: bool, failure: str) -> None:
    found = openclaw.parse_gateway(recorded(name))
    assert found is not None
    assert (found.connected, found.failure, found.config_valid, found.service) == (connected, failure, True, False)
    assert found.url.startswith("ws://127.0.0.1:")
    assert found.version == ("2026.9.6" if connected else "")
    assert bool(found.answer) is not connected


@pytest.mark.parametrize("value", [None, [], {}, {"rpc": None}, {"rpc": []}, "x"])
def test_an_invalid_gateway_state(value: Any) -> None:
    assert openclaw.parse_gateway(said(value)) is None


def test_tools_unset_set_or_unanswered() -> None:
    nothing = openclaw.parse_tools(unset("tools"), NEWEST)
    assert nothing is not None
    assert nothing.section == {}
    assert nothing.messaging.enabled
    some = openclaw.parse_tools(said({"agentToAgent": {"enabled": False}}), NEWEST)
    assert some is not None
    assert not some.messaging.enabled
    assert openclaw.parse_tools(Exit(1, b"{}"), NEWEST) is None


LISTED = {
    "commands.list": {"commands": [{"name": "help"}, {"name": "mailbox"}]},
    "tools.catalog": {"groups": [{"tools": [{"id": name} for name in (*ANSWER_TOOLS, "mailboxd_delegate")]}]},
    "plugins.uiDescriptors": {"descriptors": [{"id": "mailbox", "surface": "tab"}]},
}
PARTS = {"answers": "", "command": "", "delegate": "", "tab": "", "receive": ""}


@pytest.mark.parametrize(
    ("method", "instead", "missing"),
    [
        ("commands.list", {"commands": [{"name": "help"}, 3]}, {"command": "mailbox in commands.list"}),
        ("plugins.uiDescriptors", {"descriptors": []}, {"tab": "mailbox in plugins.uiDescriptors"}),
        ("commands.list", {"error": "unknown method"}, {}),
        ("tools.catalog", {"groups": [{"tools": None}, {}]}, {"answers": "mailboxd_finish", "delegate": "mailboxd_d"}),
    ],
)
def test_what_openclaw_does_not_list_of_a_part_is_named(method: str, instead: object, missing: dict[str, str]) -> None:
    lists = {name: said(value) for name, value in LISTED.items()}
    assert openclaw.unlisted(PARTS, lists) == {}
    found = openclaw.unlisted(PARTS, lists | {method: said(instead)})
    assert found.keys() == missing.keys()
    assert all(found[part].startswith(begins) for part, begins in missing.items())
    refused = dict.fromkeys(PARTS, "why")
    assert openclaw.unlisted(refused, lists | {method: said(instead)}) == {}
