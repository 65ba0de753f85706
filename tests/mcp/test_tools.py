"""The list of tools: those of the caller's role, strict schemas, few tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailboxd.core.events import Role
from mailboxd.core.roles import MATRIX
from mailboxd.surfaces.mcp.server import INSTRUCTIONS, descriptions
from mailboxd.surfaces.mcp.tokens import AGENT_ROLES, Caller, parse
from mailboxd.surfaces.mcp.tools import TOOLS
from tests.mcp.stand import EVERYBODY, EXECUTOR, Stand

TWELVE = {
    "task_create", "task_get", "task_transition", "task_order", "task_start_attempt", "task_record_checkpoint",
    "task_record_artifact", "task_append_review", "task_request_approval", "task_resolve_approval",
    "task_open_circuit", "task_list_ready",
}  # fmt: skip

SHOWN = """
orchestrator      create get transition start_attempt record_checkpoint record_artifact request_approval resolve_approval open_circuit list_ready
executor          get record_checkpoint record_artifact list_ready
spec_reviewer     get record_checkpoint record_artifact append_review list_ready
quality_reviewer  get record_checkpoint record_artifact append_review list_ready
lobster           get record_checkpoint record_artifact request_approval resolve_approval list_ready
operator          create get transition order resolve_approval list_ready
"""  # noqa: E501


def _all() -> list[dict[str, Any]]:
    """Every tool as it is listed to whoever sees it."""
    seen = {tool.name: tool for role in Role for tool in descriptions(Caller(role, "x"))}
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in seen.values()]


def test_each_of_the_twelve_tools_is_visible_to_some_role() -> None:
    assert set(TOOLS) == TWELVE == {tool["name"] for tool in _all()}


@pytest.mark.parametrize("line", SHOWN.strip().splitlines(), ids=lambda line: line.split()[0])
def test_a_caller_is_shown_the_tools_of_its_role_only(stand: Stand, line: str) -> None:
    role, *names = line.split()
    assert [tool.name for tool in stand.listed(f"{role}:x")] == [f"task_{name}" for name in names]


@pytest.mark.parametrize(("role", "most"), [(role, 1_000 if role in AGENT_ROLES else 2_000) for role in Role])
def test_a_list_has_less_than_2000_tokens_and_an_agents_1000(role: Role, most: int) -> None:
    # Tokenizers take 3.3 to 4 characters of JSON for a token; 3 is the cautious number.
    shown = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in descriptions(Caller(role, "x"))]
    written = json.dumps(shown, separators=(",", ":")) + INSTRUCTIONS
    assert len(written) / 3 < most


def _objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    own = [schema] if schema["type"] == "object" else []
    return own + [found for one in inner for found in _objects(one)]


@pytest.mark.parametrize("tool", _all(), ids=lambda tool: tool["name"])
def test_a_schema_is_closed_and_typed(tool: dict[str, Any]) -> None:
    objects = _objects(tool["inputSchema"])
    assert objects
    texts = {"type": "string"}
    assert all(one["properties"] for one in objects if one["additionalProperties"] is False)
    open_ = [one for one in objects if one["additionalProperties"] not in (False, texts)]
    assert len(open_) == (tool["name"] in ("task_record_checkpoint", "task_create")), "a payload, and planned actions"
    assert "$ref" not in json.dumps(tool)
    assert tool["annotations"]["openWorldHint"] is False


def test_read_only_tools_are_marked() -> None:
    reading = {tool["name"] for tool in _all() if tool["annotations"].get("readOnlyHint")}
    assert reading == {"task_get", "task_list_ready"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"task": "t"}, "note"),
        ({"task": "t", "note": 7}, "note"),
        ({"task": "t", "note": ""}, "note"),
        ({"task": "t", "note": "x" * 4_001}, "note"),
        ({"task": "../t", "note": "x"}, "task"),
        ({"task": "t", "note": "x", "role": "operator"}, "role"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_happens(stand: Stand, arguments: dict[str, Any], named: str) -> None:
    stand.executing()
    before = stand.last_event()
    error = stand.call(EXECUTOR, "task_record_checkpoint", **arguments)["error"]
    assert error["rule"] == "bad-arguments"
    assert error["problem"].startswith(f"{named}:")
    assert stand.last_event() == before


def test_an_unknown_tool_is_refused_with_the_existing_tools(stand: Stand) -> None:
    error = stand.call(EXECUTOR, "task_delete")["error"]
    assert error["rule"] == "no-such-tool"
    assert "task_record_checkpoint" in error["hint"]


@pytest.mark.parametrize("who", EVERYBODY)
def test_a_tool_that_is_not_shown_is_refused_by_the_rule_all_the_same(stand: Stand, who: str) -> None:
    stand.executing()
    before = stand.last_event()
    for name in TWELVE - {tool.name for tool in stand.listed(who)}:
        assert stand.call(who, name, task="t")["error"]["rule"] == "permission-denied"
    assert stand.last_event() == before


def test_every_role_has_a_line_here() -> None:
    assert {line.split()[0] for line in SHOWN.strip().splitlines()} == set(Role) == set(MATRIX)


@pytest.mark.parametrize("text", ["", "executor", "executor:", "king:x", "executor:../x", "EXECUTOR:x", "executor:a b"])
def test_the_caller_must_be_given_exactly(text: str) -> None:
    from mailboxd.errors import ConfigError

    with pytest.raises(ConfigError, match="ROLE:NAME"):
        parse(text)
