"""What needs no approval, and which option grants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailboxd.perform.agents.acp.permissions import CANCELLED, paths, reason_to_ask, response, selected

pytestmark = pytest.mark.slow

ALL = ("read", "edit", "execute", "network")


def tool(kind: str = "", *locations: str, **raw: Any) -> dict[str, Any]:
    return {"kind": kind, "locations": [{"path": path} for path in locations], "rawInput": raw}


@pytest.mark.parametrize(
    ("call", "capabilities", "why"),
    [
        (tool("read", "a.txt"), ("read",), ""),
        (tool("search"), ("read",), ""),
        (tool("read", "a.txt"), (), "needs read"),
        (tool("edit", "a.txt"), ("read",), "needs edit"),
        (tool("edit", "a.txt"), ("edit",), ""),
        (tool("edit"), ALL, "does not name the file"),
        (tool("delete", "sub/a"), ("edit",), ""),
        (tool("move", "sub/a", "../b"), ALL, "outside"),
        (tool("edit", "/etc/passwd"), ALL, "outside"),
        (tool("edit", "link/passwd"), ALL, "outside"),
        (tool("read", "~/.ssh/id_rsa"), ALL, "outside"),
        (tool("read", "a.txt", file_path="/etc/shadow"), ALL, "outside"),
        (tool("search", query="/etc/shadow"), ALL, "outside"),
        (tool("edit", "sub/.git/hooks/pre-commit"), ALL, "must not be changed"),
        (tool("edit", ".mailboxd/config.yaml"), ALL, "must not be changed"),
        (tool("read", ".git/config"), ("read",), ""),
        (tool("execute", command="make"), ("execute",), ""),
        (tool("execute", command="make"), ("read", "edit"), "needs execute"),
        (tool("read", "a.txt", command=["rm", "-rf", "."]), ("read",), "needs execute"),
        (tool("fetch", url="https://x"), ("network",), ""),
        (tool("fetch", url="https://x"), ("read",), "needs network"),
        (tool("think"), (), ""),
        (tool("switch_mode"), ALL, "always needs approval"),
        (tool("other"), ALL, "always needs approval"),
        (tool(), ALL, "(none said)"),
        ({}, ALL, "(none said)"),
        ({"kind": ["edit"], "rawInput": "x", "locations": "y", "content": [1]}, ALL, "(none said)"),
    ],
)
def test_requests_beyond_the_capabilities(
    tmp_path: Path, call: dict[str, Any], capabilities: tuple[str, ...], why: str
) -> None:
    (tmp_path / "link").symlink_to("/etc")
    found = reason_to_ask(call, capabilities, str(tmp_path.resolve()))
    assert (why in found) if why else found == ""


def test_a_diff_names_its_file_too() -> None:
    call = {"content": [{"type": "diff", "path": "/x/y", "newText": ""}], "rawInput": {"paths": ["a", "/b"], "n": 1}}
    assert list(paths(call)) == ["/x/y", "a", "/b"]


OPTIONS = [
    {"optionId": "always", "kind": "allow_always"},
    {"optionId": "never", "kind": "reject_always"},
    {"optionId": "yes", "kind": "allow_once"},
    {"optionId": "no", "kind": "reject_once"},
]


@pytest.mark.parametrize(
    ("options", "allowed", "said"),
    [
        (OPTIONS, True, selected("yes")),
        (OPTIONS, False, selected("no")),
        (OPTIONS[:2], False, selected("never")),
        (OPTIONS[:1], True, CANCELLED),  # once asked is once allowed: "always" is never chosen
        (OPTIONS[:2], True, selected("never")),
        ([], True, CANCELLED),
        ("no list", False, CANCELLED),
        ([{"optionId": 5, "kind": "allow_once"}, "x", None], True, CANCELLED),
    ],
)
def test_the_option_that_is_chosen(options: object, allowed: bool, said: object) -> None:
    assert response(options, allowed) == said
