"""Which agents exist, and which this agent may reach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.messaging import Messaging
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw import (
    Allowed,
    Peer,
    hides_plugin,
    messaging,
    parse_agents,
    parse_config_file,
    parse_rules,
    parse_section,
    parse_version,
)
from mailboxd.perform.agents.openclaw_versions import OLDEST, Version
from tests.agents.recorded import printed, recorded

NEW, OLD = (2026, 9, 6), (2026, 8, 2)


def parse_messaging(exit_: Exit, version: Version) -> Messaging | None:
    """The rule in a section of its own."""
    section = parse_section(exit_)
    return None if section is None else messaging(section, version)


def test_the_version_is_read_and_compared() -> None:
    version = parse_version(recorded("version"))
    assert version == (2026, 9, 6)
    assert version >= OLDEST > (2026, 7, 35)


@pytest.mark.parametrize("said", [b"", b"OpenClaw", b"openclaw 1.2", b"OpenClaw 2026.9.6.1", b"\xff"])
def test_a_missing_version_is_none(said: bytes) -> None:
    assert parse_version(Exit(0, said)) is None
    assert parse_version(Exit(1, recorded("version").stdout)) is None


def test_agents_have_an_id_a_name_and_a_workspace() -> None:
    assert parse_agents(recorded("agents-list")) == (
        Peer("alpha", "Alpha", "/srv/openclaw/ws/alpha", is_default=True),
        Peer("beta", "beta", "/srv/openclaw/ws/beta", is_default=False),
        Peer("gamma", "gamma", "/srv/openclaw/ws/gamma", is_default=False),
        Peer("delta", "Delta the slow", "/srv/openclaw/ws/delta", is_default=False),
    )


def test_agents_with_unusable_ids_are_left_out() -> None:
    assert parse_agents(printed([{"id": "../x"}, {"id": 7}, None, {"id": "ok"}])) == (
        Peer("ok", "ok", "", is_default=False),
    )


@pytest.mark.parametrize("answer", [recorded("err-gateway-down"), printed({}), printed([], rc=1), Exit(0, b"[")])
def test_a_failed_agents_list_is_none_not_empty(answer: Exit) -> None:
    assert parse_agents(answer) is None


def allowed(answer: Exit, agent: str) -> Allowed | None:
    rules = parse_rules(answer, agent)
    return None if rules is None else rules.allowed


def test_an_agent_with_a_star_reaches_anybody() -> None:
    rule = allowed(recorded("config-get-agents"), "Alpha")
    assert rule is not None
    assert rule.permits("whoever")


def test_a_list_of_names_is_all_that_is_reached() -> None:
    rule = allowed(recorded("config-get-agents"), "beta")
    assert rule == Allowed(anyone=False, agents=frozenset({"alpha", "gamma"}))
    assert rule.permits("GAMMA")
    assert not rule.permits("beta")


def test_an_empty_allow_list_permits_no_agent_and_a_missing_one_only_itself() -> None:
    nobody = allowed(recorded("config-get-agents"), "gamma")
    itself = allowed(recorded("config-get-agents"), "delta")
    assert nobody == Allowed(anyone=False, agents=frozenset())
    assert itself == Allowed(anyone=False, agents=frozenset({"delta"}))


def test_the_rule_of_the_defaults_holds_where_the_agent_has_none() -> None:
    config = {"defaults": {"subagents": {"allowAgents": ["b"]}}, "entries": {"a": {}, "c": {"subagents": {}}}}
    for agent in ("a", "c", "unknown"):
        assert allowed(printed(config), agent) == Allowed(anyone=False, agents=frozenset({"b"}))


def test_the_older_form_is_a_list_of_agents() -> None:
    config = {"list": [{"id": "A", "subagents": {"allowAgents": ["*"]}}, None, {"id": 3}]}
    assert allowed(printed(config), "a") == Allowed(anyone=True, agents=frozenset({"*"}))


@pytest.mark.parametrize(
    ("section", "path", "tools"),
    [
        ({"entries": {"Alpha": {"tools": {"profile": "x"}}}}, "agents.entries.Alpha", {"profile": "x"}),
        ({"list": [{"id": "beta"}, {"id": "alpha"}]}, "agents.list[1]", None),
        ({"entries": {"beta": {}}}, "", None),
        ({"entries": [], "list": {}}, "", None),
    ],
)
def test_where_the_own_agent_stands(section: Any, path: str, tools: Any) -> None:
    found = parse_rules(printed({**section, "defaults": {"maxConcurrent": 8}}), "alpha")
    assert found is not None
    assert (found.entry_path, found.tools, found.lane) == (path, tools, 8)


@pytest.mark.parametrize("names", ["*", {"*": 1}, 7, [7], [["*"]]])
def test_an_invalid_allow_list_permits_no_agent(names: object) -> None:
    rule = allowed(printed({"entries": {"a": {"subagents": {"allowAgents": names}}}}), "a")
    assert rule == Allowed(anyone=False, agents=frozenset())


def test_an_unset_configuration_is_no_error() -> None:
    assert allowed(recorded("config-get-unset"), "a") == Allowed(anyone=False, agents=frozenset({"a"}))
    assert parse_messaging(recorded("config-get-unset"), NEW) == Messaging(enabled=True, patterns=())
    assert parse_messaging(recorded("config-get-unset"), (2026, 9, 2)) == Messaging(enabled=True, patterns=())
    assert parse_messaging(recorded("config-get-unset"), OLD) == Messaging(enabled=False, patterns=())


@pytest.mark.parametrize("answer", [recorded("err-gateway-down"), printed([]), Exit(0, b""), Exit(None, b"{}")])
def test_a_configuration_that_cannot_be_read_is_no_rule(answer: Exit) -> None:
    assert allowed(answer, "a") is None
    assert parse_messaging(answer, NEW) is None


def test_messaging_needs_both_ends_to_match() -> None:
    rule = parse_messaging(recorded("config-get-agentToAgent"), NEW)
    assert rule is not None
    assert rule.permits("alpha", "beta")
    assert not rule.permits("alpha", "epsilon")
    assert not rule.permits("epsilon", "alpha")


@pytest.mark.parametrize(
    ("rule", "permitted"),
    [
        ({"enabled": True}, True),
        ({"allow": []}, True),
        ({"allow": ["*"]}, True),
        ({"allow": ["one", "t*o"]}, True),
        ({"allow": ["one", ""]}, False),
        ({"enabled": False, "allow": ["*"]}, False),
        ({"enabled": "true"}, False),
    ],
)
def test_messaging_patterns(rule: dict[str, object], permitted: bool) -> None:
    found = parse_messaging(printed(rule), NEW)
    assert found is not None
    assert found.permits("one", "two") is permitted
    assert found.permits("self", "Self")


@pytest.mark.parametrize(
    ("tools", "hides"),
    [
        (None, False),
        ({}, False),
        ({"profile": "coding"}, False),
        ({"profile": "house"}, True),
        ({"profile": "house", "alsoAllow": ["mailboxd"]}, False),
        ({"allow": ["read", "exec"]}, True),
        ({"allow": ["read", "mailboxd"]}, False),
        ({"allow": ["*"]}, False),
        ({"deny": ["exec"]}, False),
        ({"deny": ["mailboxd_plan"]}, True),
        ({"deny": ["mailboxd_*"]}, True),
        ({"deny": ["mailboxd_delegate"]}, False),
        ({"deny": ["group:plugins"], "allow": ["*"]}, True),
        ({"byProvider": {}}, True),
        ("all", True),
    ],
)
def test_tools_of_the_plugin_are_hidden_unless_it_is_plain_that_they_are_not(tools: object, hides: bool) -> None:
    assert hides_plugin(tools) is hides
    rules = parse_rules(printed({"entries": {"A": {"tools": tools}, "b": {}}}), "b")
    assert rules is not None
    assert rules.hiding == ({"a"} if hides else set())


def test_the_agents_section_gives_descriptions_and_concurrency() -> None:
    rules = parse_rules(recorded("config-get-agents"), "beta")
    assert rules is not None
    assert rules.allowed.agents == frozenset({"alpha", "gamma"})
    assert rules.lane == 8
    config = {
        "entries": {
            "A": {"description": "finds sources", "identity": {"theme": "a heron"}},
            "b": {"identity": {"theme": "writes"}},
            "c": {"identity": {"theme": 7}, "description": " "},
        }
    }
    found = parse_rules(printed(config), "a")
    assert found is not None
    assert (dict(found.roles), found.lane) == ({"a": "finds sources; a heron", "b": "writes"}, None)
    older = parse_rules(printed({"list": [{"id": "A", "identity": {"theme": "x"}}]}), "a")
    assert older is not None
    assert dict(older.roles) == {"a": "x"}


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (printed({"path": "/srv/openclaw.json"}), "/srv/openclaw.json"),
        (printed({"path": "relative"}), ""),
        (printed({"path": 7}), ""),
        (printed({"path": "/x"}, rc=1), ""),
        (recorded("err-gateway-down"), ""),
    ],
)
def test_where_the_configuration_lies(answer: Exit, path: str) -> None:
    assert parse_config_file(answer) == path


@given(st.sampled_from([0, 1, None]), st.binary(max_size=100))
def test_any_bytes_can_be_read(rc: int | None, raw: bytes) -> None:
    exit_ = Exit(rc, raw)
    assert not parse_agents(exit_)
    assert parse_version(exit_) is None
    for rule in (allowed(exit_, "a"), parse_messaging(exit_, OLD)):
        assert rule is None or rc == 0
