"""Exactly what was added to OpenClaw's configuration is removed again, whatever else it contains."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mailboxd.errors import ConfigError
from mailboxd.surfaces.mcp.registration import (
    Change,
    CurrentConfig,
    add_denials,
    entries_of,
    entry_name,
    install,
    uninstall,
    without_tokens,
)
from mailboxd.surfaces.mcp.tokens import Grant, caller_of, fingerprint, parse
from tests.mcp.configurator import apply

URL = "http://127.0.0.1:8765/mcp"
OWN, REVIEWER = "executor:alpha", "quality_reviewer:critic"

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "nothing but agents": {"agents": {"entries": {"alpha": {}, "critic": {}}}},
    "no entries": {"agents": {"defaults": {}}},
    "nothing at all": {},
    "denials of others": {
        "agents": {
            "entries": {"alpha": {"tools": {"deny": ["browser"], "profile": "coding"}}, "critic": {"tools": {}}},
        },
        "mcp": {"servers": {"docs": {"url": "https://docs.example/mcp"}}, "sessionIdleTtlMs": 5},
    },
    "empty places": {
        "agents": {"entries": {"alpha": {"tools": {"deny": []}}, "critic": {"tools": {"allow": ["x"]}}}},
        "mcp": {"servers": {}},
    },
    "other case": {"agents": {"entries": {"Alpha": {}, "CRITIC": {}, "third": {}}}, "mcp": {"sessionIdleTtlMs": 5}},
}


def _said(value: Any) -> Any:
    """The configuration without empty lists and objects, which say nothing; agents stay."""
    if not isinstance(value, dict):
        return value
    inner = {name: _said(item) for name, item in value.items()}
    return {
        name: item
        for name, item in inner.items()
        if item not in ({}, []) or name not in ("mcp", "servers", "tools", "deny")
    }


def _covers(now: Any, before: Any) -> bool:
    """Whether everything that stood there stands there still; a list may have grown at its end."""
    if isinstance(before, dict):
        return all(name in now and _covers(now[name], value) for name, value in before.items())
    return bool(now[: len(before)] == before if isinstance(before, list) else now == before)


class World:
    """A configuration of OpenClaw, and the grants of one workspace of the agent alpha."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self.configuration = dict(configuration)
        self.grants: Sequence[Grant] = ()
        self.given: list[str] = []
        self._numbers = itertools.count()

    def install(self, *who: str, url: str = URL) -> Change:
        callers = [parse(one) for one in who or (OWN, REVIEWER)]
        return self._apply(install(self._current, self.grants, callers, "alpha", url, self._token, "now"))

    def add_denials(self) -> Change:
        return self._apply(add_denials(self._current, self.grants))

    def patterns(self) -> list[str]:
        return [f"{grant.entry}__*" for grant in self.grants]

    def uninstall(self) -> Change:
        return self._apply(uninstall(self._current, self.grants, entries_of(self._current, "alpha", self.grants)))

    def lose_tokens(self) -> None:
        self.grants = ()

    def denied(self, agent: str) -> list[str]:
        return self._current.denied(agent)

    def server(self, entry: str) -> Any:
        return self._current.servers.get(entry)

    @property
    def _current(self) -> CurrentConfig:
        return CurrentConfig(self.configuration.get("agents", {}), self.configuration.get("mcp", {}))

    def _apply(self, change: Change) -> Change:
        self.configuration, self.grants = apply(self.configuration, change.patch), change.grants
        return change

    def _token(self) -> str:
        self.given.append(f"token-{next(self._numbers)}")
        return self.given[-1]


@pytest.fixture(params=CONFIGURATIONS, ids=lambda name: str(name).replace(" ", "-"))
def world(request: pytest.FixtureRequest) -> World:
    return World(copy.deepcopy(CONFIGURATIONS[request.param]))


def test_every_other_agent_is_denied_and_existing_settings_are_kept(world: World) -> None:
    before = copy.deepcopy(world.configuration)
    world.install()
    own, theirs = entry_name("alpha", parse(OWN)), entry_name("alpha", parse(REVIEWER))
    assert world.server(own)["headers"]["Authorization"] == "Bearer token-0"
    assert world.server(theirs)["url"] == URL
    for agent in before.get("agents", {}).get("entries", {}):
        stood = (before["agents"]["entries"][agent].get("tools") or {}).get("deny", [])
        mine = {own: "alpha", theirs: "critic"}
        added = [f"{entry}__*" for entry, whose in mine.items() if agent.lower() != whose]
        assert world.denied(agent) == [*stood, *added]
    assert _covers(world.configuration, before)


def test_a_second_time_changes_nothing(world: World) -> None:
    world.install()
    before, grants = copy.deepcopy(world.configuration), world.grants
    again = world.install()
    assert (again.patch, again.done, world.grants, world.configuration) == ({}, [], grants, before)
    assert len(world.given) == 2


def test_exactly_the_added_settings_are_removed(world: World) -> None:
    before = copy.deepcopy(world.configuration)
    world.install(OWN)
    world.install()
    world.uninstall()
    assert _said(world.configuration) == _said(before)
    assert world.grants == ()
    assert world.uninstall().patch == {}


def test_entries_whose_tokens_are_lost_are_removed_by_their_names() -> None:
    names = [("alpha", OWN), ("a" * 60, f"spec_reviewer:{'a' * 60}"), ("critic", REVIEWER)]
    before: dict[str, Any] = {"agents": {"entries": {name: {} for name, _ in names}}}
    world = World({**before, "mcp": {"servers": {"mailboxd-other": {"url": "https://other.example/mcp"}}}})
    world.install(*(who for _, who in names))
    world.lose_tokens()
    world.uninstall()
    assert world.configuration == {
        **before,
        "mcp": {"servers": {"mailboxd-other": {"url": "https://other.example/mcp"}}},
    }


def test_settings_added_by_others_meanwhile_are_kept() -> None:
    world = World({"agents": {"entries": {"alpha": {}, "critic": {}}}})
    world.install()
    theirs = {
        "agents": {"entries": {"critic": {"tools": {"profile": "coding"}}, "new": {}}},
        "mcp": {"servers": {"x": {"url": "y"}}},
    }
    world.configuration = apply(world.configuration, theirs)
    world.uninstall()
    assert world.configuration == {
        "agents": {"entries": {"alpha": {}, "critic": {"tools": {"profile": "coding"}}, "new": {}}},
        "mcp": {"servers": {"x": {"url": "y"}}},
    }


def test_a_new_agent_is_denied_when_it_is_run_again() -> None:
    world = World({"agents": {"entries": {"alpha": {}}}})
    world.install(OWN)
    world.configuration = apply(world.configuration, {"agents": {"entries": {"late": {}}}})
    assert world.install(OWN).done == ["agent late: denied mailboxd-alpha__*"]
    assert world.given == ["token-0"]


def test_a_later_agent_is_denied_and_the_denial_is_removed_too(world: World) -> None:
    before = copy.deepcopy(world.configuration)
    world.install()
    late: dict[str, Any] = {"agents": {"entries": {"late": {}, "later": {"tools": {"profile": "coding"}}}}}
    world.configuration = apply(world.configuration, late)
    change = world.add_denials()
    assert change.done == [f"agent {name}: denied {entry}" for name in ("late", "later") for entry in world.patterns()]
    assert world.denied("late") == world.denied("later") == world.patterns()
    assert world.add_denials().patch == {}
    assert len(world.given) == 2
    world.uninstall()
    assert _said(world.configuration) == _said(apply(before, late))


def test_an_entry_that_was_removed_or_points_elsewhere_gets_a_new_token() -> None:
    world = World({"agents": {"entries": {"alpha": {}}}})
    world.install(OWN)
    world.configuration = apply(world.configuration, {"mcp": {"servers": {"mailboxd-alpha": None}}})
    world.install(OWN)
    world.install(OWN, url="http://127.0.0.1:9999/mcp")
    assert len(world.given) == 3
    assert [grant.sha256 for grant in world.grants] == [fingerprint("token-2")]
    assert [caller_of(world.grants, token) for token in world.given] == [None, None, parse(OWN)]


def test_an_entry_of_another_program_is_left_alone() -> None:
    world = World({"agents": {"entries": {"alpha": {}}}, "mcp": {"servers": {"mailboxd-alpha": {"url": "x"}}}})
    with pytest.raises(ConfigError, match="openclaw mcp unset mailboxd-alpha"):
        world.install(OWN)


@pytest.mark.parametrize("who", ["operator:kim", "orchestrator:mailboxd", "lobster:gate"])
def test_no_agent_is_made_a_person(who: str) -> None:
    with pytest.raises(ConfigError, match="cannot have the role"):
        World({"agents": {"entries": {"kim": {}}}}).install(who)


def test_an_agent_that_openclaw_does_not_know_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no agent alpha; it has beta"):
        World({"agents": {"entries": {"beta": {}}}}).install(OWN)


def test_the_old_form_of_the_configuration_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="openclaw doctor --fix"):
        World({"agents": {"list": [{"id": "alpha"}]}}).install(OWN)


def test_a_token_is_never_shown() -> None:
    change = World({"agents": {"entries": {"alpha": {}}}}).install(OWN)
    assert "token-0" in json.dumps(change.patch)
    shown = json.dumps([without_tokens(change.patch), change.done, [str(grant) for grant in change.grants]])
    assert "token-0" not in shown


AGENTS = ["alpha", "a" * 60, "a.b", "a_b", "007", "a-at-b", "A.b"]


@pytest.mark.parametrize("owner", AGENTS)
def test_a_name_is_one_that_openclaw_leaves_as_it_is(owner: str) -> None:
    def safe(name: str) -> bool:
        return name.replace("-", "").replace("_", "").isalnum() and name[0].isalpha() and len(name) <= 30

    roles = ("executor", "spec_reviewer", "quality_reviewer")
    names = {(role, name): entry_name(owner, parse(f"{role}:{name}")) for role in roles for name in AGENTS}
    assert all(safe(name) for name in names.values())
    assert len({name.lower() for name in names.values()}) >= len(names) - len(roles)  # a.b and A.b are one agent
