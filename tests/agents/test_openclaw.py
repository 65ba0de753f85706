"""Command lines, session keys, messages and environments that OpenClaw is called with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from mailboxd.core.outcomes import Permanence
from mailboxd.core.vocabulary import is_id
from mailboxd.perform.agents.openclaw import (
    MAX_MESSAGE_BYTES,
    OpenClaw,
    child_environment,
    inside_agent,
    mark_inside,
    refuse_message,
)

OPENCLAW = OpenClaw(("openclaw",))
ids = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(is_id)


def test_a_turn_is_this_command_line() -> None:
    argv = OPENCLAW.turn_argv("beta", "agent:beta:mailboxd:t1", Path("/w/prompt.md"), 600)
    assert argv == (
        *("openclaw", "agent", "--agent", "beta", "--session-key", "agent:beta:mailboxd:t1"),
        *("--message-file", "/w/prompt.md", "--json", "--timeout", "600"),
    )


def test_another_model_is_an_option_at_the_end() -> None:
    argv = OpenClaw(("npx", "openclaw")).turn_argv("beta", "k", Path("p"), 60, model="p/m")
    assert argv[:3] == ("npx", "openclaw", "agent")
    assert argv[-2:] == ("--model", "p/m")


@pytest.mark.parametrize(
    ("agent", "timeout", "model"), [("-x", 1, None), ("a/b", 1, None), ("a", 0, None), ("a", 1, "-m")]
)
def test_an_argument_that_could_be_an_option_is_never_passed(agent: str, timeout: int, model: str | None) -> None:
    with pytest.raises(ValueError, match="not a turn"):
        OPENCLAW.turn_argv(agent, "k", Path("p"), timeout, model)


def test_lookups_are_these_command_lines() -> None:
    assert OPENCLAW.tasks_show_argv("k") == ("openclaw", "tasks", "show", "k", "--json")
    assert OPENCLAW.wait_argv("r")[1:5] == ("gateway", "call", "agent.wait", "--params")
    assert json.loads(OPENCLAW.history_argv('a"b')[5])["sessionKey"] == 'a"b'


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"/new task", "command"),
        (b" $skill", "command"),
        (b"x" * (MAX_MESSAGE_BYTES + 1), "prompt-too-large"),
        (b"ab\xff", "byte 2"),
    ],
)
def test_a_message_that_openclaw_would_refuse_or_misread_is_not_sent(raw: bytes, problem: str) -> None:
    refused = refuse_message(raw)
    assert refused is not None
    assert problem in refused.error
    assert (refused.started, refused.permanence) == (False, Permanence.PERMANENT)


def test_a_message_with_our_header_line_is_fine() -> None:
    assert refuse_message("[mailboxd] work turn · task t · attempt 1\n/new".encode()) is None


def test_a_child_sees_an_allow_list_of_the_environment() -> None:
    environ = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "OPENCLAW_STATE_DIR": "/s",
        "NODE_EXTRA_CA_CERTS": "/c",
        "https_proxy": "p",
        "MAILBOXD_SCRIPT": "s",
        "MAILBOXD_OPERATOR_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "NOTIFY_SOCKET": "/run/n",
        "EXTRA": "x",
    }
    seen = child_environment(environ, ["EXTRA", "ABSENT"])
    hidden = {"MAILBOXD_OPERATOR_KEY", "AWS_SECRET_ACCESS_KEY", "NOTIFY_SOCKET"}
    assert set(seen) == set(environ) - hidden | {"OPENCLAW_NO_RESPAWN"}
    assert seen["OPENCLAW_NO_RESPAWN"] == "1"


def test_the_mark_of_an_agents_shell_is_never_stripped() -> None:
    environ = {"OPENCLAW_SHELL": "exec"}
    assert inside_agent(environ)
    assert inside_agent(child_environment(environ))
    assert inside_agent({"OPENCLAW_SUBAGENT_EXEC": "1"})
    assert all(inside_agent({"OPENCLAW_SHELL": shell}) for shell in ("acp", "acp-client", "whatever comes"))
    assert not inside_agent({"OPENCLAW_SHELL": "tui-local"})
    assert inside_agent(mark_inside({}))
    assert not inside_agent({})
