"""Reading what OpenClaw answers, into facts. Pure, and as distrustful as `agents.jsonout`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.discovery import messaging, parse_allowed
from mailboxd.agents.jsonout import at, brief, cli_error, count_at, parse_object, text_at
from mailboxd.doctor.facts import Agents, ExecPolicy, Gateway, Tools, Version

_UNSET = "Config path is valid but unset"
_FAILURES = (
    ("unauthorized", "auth-rejected"),
    ("pairing", "pairing-required"),
    ("ECONNREFUSED", "unreachable"),
    ("ENOTFOUND", "unreachable"),
    ("ETIMEDOUT", "unreachable"),
    ("timeout", "unreachable"),
)
"""What an OpenClaw says that has no word for it yet (`rpc.connectFailure.kind`), and the word."""


def gateway(exit_: Exit) -> Gateway | None:
    """Of `gateway status --json`; its exit code says nothing."""
    value = parse_object(exit_)
    rpc = at(value, "rpc")
    if not isinstance(rpc, dict):
        return None
    said = brief(text_at(rpc, "error"))[:300]
    connected = rpc.get("ok") is True and text_at(rpc, "capability") != "pairing_pending"
    return Gateway(
        connected=connected,
        failure="" if connected else _failure(rpc, said),
        said=said,
        url=brief(text_at(rpc, "url") or text_at(value, "gateway", "probeUrl")),
        version=text_at(rpc, "server", "version") or text_at(rpc, "version"),
        service=at(value, "service", "loaded") is True,
        config_path=brief(text_at(value, "config", "cli", "path")),
        config_valid=at(value, "config", "cli", "valid") is not False,
    )


def _failure(rpc: dict[str, Any], said: str) -> str:
    kind = text_at(rpc, "connectFailure", "kind")
    if not kind and text_at(rpc, "capability") == "pairing_pending":
        return "pairing-required"
    return kind or next((word for sign, word in _FAILURES if sign in said), "other")


def with_readiness(found: Gateway, said: Any) -> Gateway:
    """The gateway, with what its `/readyz` answered (None: nothing that can be read)."""
    if at(said, "ready") is not False:
        return found
    names = at(said, "failing")
    failing = tuple(brief(name)[:100] for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    return replace(found, failing=failing or ("it does not say why",))


def agents(exit_: Exit, own: str) -> Agents | None:
    """Of `config get agents --json`."""
    allowed = parse_allowed(exit_, own)
    if allowed is None:
        return None
    section = parse_object(exit_) if exit_.rc == 0 else None
    path, entry = _entry(section, own)
    return Agents(allowed, path, at(entry, "tools"), count_at(section, "defaults", "maxConcurrent"))


def _entry(section: object, own: str) -> tuple[str, object]:
    entries, older = at(section, "entries"), at(section, "list")
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if name.lower() == own.lower():
            return f"agents.entries.{name}", entry
    for number, entry in enumerate(older if isinstance(older, list) else ()):
        if text_at(entry, "id").lower() == own.lower():
            return f"agents.list[{number}]", entry
    return "", None


def tools(exit_: Exit, version: Version) -> Tools | None:
    """Of `config get tools --json`; unset is a good answer."""
    unset = (cli_error(exit_) or "").startswith(_UNSET)
    section = {} if unset else parse_object(exit_)
    if section is None or (exit_.rc != 0 and not unset):
        return None
    return Tools(section, messaging(section.get("agentToAgent"), version))


def exec_policy(exit_: Exit, own: str) -> ExecPolicy | None:
    """Of `approvals get --json`: the scope of the own agent, else the general one."""
    scopes = at(parse_object(exit_), "effectivePolicy", "scopes")
    if exit_.rc != 0 or not isinstance(scopes, list):
        return None
    chosen = None
    for scope in scopes:
        if text_at(scope, "agentId").lower() == own.lower() or (chosen is None and at(scope, "agentId") is None):
            chosen = scope
    security, ask = text_at(chosen, "security", "effective"), text_at(chosen, "ask", "effective")
    if not security or not ask:
        return None
    by_host = any(
        text_at(chosen, name, "host") not in ("", text_at(chosen, name, "requested")) for name in ("security", "ask")
    )
    return ExecPolicy(security, ask, brief(text_at(chosen, "configPath")), by_host)
