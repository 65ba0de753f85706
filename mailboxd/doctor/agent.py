"""What OpenClaw's configuration lets this workspace's agent do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath

from mailboxd.agents.json_output import at
from mailboxd.agents.openclaw import Peer
from mailboxd.doctor.facts import Agents, ExecPolicy, Facts, Finding, error, note, ok, warning

# ---------------------------------------------------------------------------------------------------------------------
# Which of OpenClaw's tools an agent has: profile, `alsoAllow`, `allow` and `deny`, of the agent and of all.
#
# As OpenClaw resolves them: the agent's profile and `alsoAllow` replace the general ones, each `allow` list has to let
# a tool through, and `deny` wins. What is set for single providers, senders or sandboxes is not looked at.

FILE_TOOLS = ("read", "write", "edit")
"""What an agent needs to edit its task.md."""
_WITHOUT_FILES = ("minimal", "messaging")
"""The profiles that do not include the file tools."""
_GROUPS = {"group:fs": (*FILE_TOOLS, "apply_patch")}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A list that bars file tools: why, its path in OpenClaw's configuration, and what it should be instead."""

    text: str
    path: str
    value: tuple[str, ...]


def obstacles(general: object, own: object, own_path: str) -> list[Obstacle]:
    """What keeps the agent with the `tools` entry `own` (at `own_path`) from its file tools."""
    found = []
    profile = at(own, "profile") or at(general, "profile")
    also_path = f"{own_path}.alsoAllow" if _names(own, "alsoAllow") is not None else "tools.alsoAllow"
    also = _names(own, "alsoAllow")
    also = also if also is not None else _names(general, "alsoAllow") or ()
    missing = _unmatched(also)
    if profile in _WITHOUT_FILES and missing:
        path = also_path if also else f"{own_path}.alsoAllow"
        found.append(Obstacle(f"its profile {profile} has no {_and(missing)}", path, (*also, *missing)))
    for section, path in ((general, "tools"), (own, own_path)):
        allow, deny = _names(section, "allow") or (), _names(section, "deny") or ()
        if allow and (lacking := _unmatched(allow)):
            found.append(Obstacle(f"{path}.allow lacks {_and(lacking)}", f"{path}.allow", (*allow, *lacking)))
        barring = tuple(name for name in deny if _matched(name))
        if barring:
            kept = tuple(name for name in deny if name not in barring)
            found.append(Obstacle(f"{path}.deny has {_and(barring)}", f"{path}.deny", kept))
    return found


def file_boundary(general: object, own: object) -> bool:
    """Whether the agent's file tools stay within its workspace (`tools.fs.workspaceOnly`)."""
    said = at(own, "fs", "workspaceOnly")
    return (at(general, "fs", "workspaceOnly") if said is None else said) is True


def _names(section: object, key: str) -> tuple[str, ...] | None:
    names = at(section, key)
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else None


def _unmatched(names: tuple[str, ...]) -> tuple[str, ...]:
    covered = {tool for name in names for tool in _matched(name)}
    return tuple(tool for tool in FILE_TOOLS if tool not in covered)


def _matched(name: str) -> tuple[str, ...]:
    """The file tools that an entry of a list means."""
    word = name.strip().lower()
    return tuple(tool for tool in FILE_TOOLS if tool in _GROUPS.get(word, ()) or fnmatchcase(tool, word))


def _and(names: tuple[str, ...]) -> str:
    return ", ".join(names)


# ---------------------------------------------------------------------------------------------------------------------
# What OpenClaw's configuration lets this workspace's agent do.

_SHOWN = 8


def agent(facts: Facts) -> Iterator[Finding]:
    name = facts.settings.agent
    if facts.peers is None or not name:
        return
    peer = _own(facts)
    if peer is not None:
        yield ok("agent", f"agent {peer.id} is known to OpenClaw")
        return
    known = _listed([peer.id for peer in facts.peers])
    add = shlex.join(["openclaw", "agents", "add", name, "--workspace", facts.place.root if facts.place else "DIR"])
    yield error("agent", f"OpenClaw has no agent {name}; it has {known or 'none'}", add)


def workspace(facts: Facts) -> Iterator[Finding]:
    peer, place = _own(facts), facts.place
    if peer is None or place is None:
        return
    if PurePath(peer.workspace) != PurePath(place.root):
        move = ["openclaw", "config", "set", f"{_entry(facts)}.workspace", place.root]
        text = f"OpenClaw runs {peer.id} in {peer.workspace or 'no workspace'}, this workspace is {place.root}"
        yield error("agent-workspace", text, shlex.join(move))
    else:
        yield ok("agent-workspace", f"OpenClaw runs {peer.id} in this workspace")


def shared_workspace(facts: Facts) -> Iterator[Finding]:
    place, own = facts.place, facts.settings.agent.lower()
    if place is None or not own:
        return
    root = PurePath(place.root)
    for peer in facts.peers or ():
        other = PurePath(peer.workspace)
        if peer.id.lower() == own or not peer.workspace:
            continue
        if other == root or root in other.parents or other in root.parents:
            how = "shares this workspace" if other == root else f"has the workspace {other}, one inside the other"
            apart = ["openclaw", "config", "set", f"agents.entries.{peer.id}.workspace", f"{other}-{peer.id}"]
            yield warning("workspace-shared", f"agent {peer.id} {how}: it can write our files", shlex.join(apart))


def allowed(facts: Facts) -> Iterator[Finding]:
    agents, tools, own = facts.agents, facts.tools, facts.settings.agent
    if agents is None or tools is None or facts.peers is None or _own(facts) is None:
        return
    others = [peer.id for peer in facts.peers if peer.id.lower() != own.lower()]
    named = [name for name in others if agents.allowed.permits(name)]
    reach = [name for name in named if tools.messaging.permits(own, name)]
    barred = [name for name in named if name not in reach]
    missing = agents.allowed.agents - {peer.id.lower() for peer in facts.peers} - {own.lower(), "*"}
    if barred:
        text = f"tools.agentToAgent keeps {own} from sending work to {_listed(barred)}, whom its allowAgents names"
        patterns = [*tools.messaging.patterns, *(name for name in (own, *barred) if tools.messaging.patterns)]
        value = {"enabled": True, **({"allow": list(dict.fromkeys(patterns))} if patterns else {})}
        yield warning("agent-to-agent", text, _set("tools.agentToAgent", value))
    if missing:
        text = f"allowAgents of {own} names {_listed(sorted(missing))}, whom OpenClaw does not have"
        yield warning("allow-list", text, _set(_allow_path(facts), sorted({name.lower() for name in named})))
    if reach:
        yield ok("peers", f"{own} may give work to {_listed(reach)}")
    elif others and not barred:
        text = f"{own} may give work to no other agent (there are {_listed(others)})"
        yield note("peers", text, _set(_allow_path(facts), others[:_SHOWN]))


def tools(facts: Facts) -> Iterator[Finding]:
    agents, found, own = facts.agents, facts.tools, facts.settings.agent
    if agents is None or found is None or not own or not agents.entry_path:
        return
    barring = obstacles(found.section, agents.tools, f"{agents.entry_path}.tools")
    if not barring:
        yield ok("tools", f"{own} has the tools to write its task.md")
    for obstacle in barring:
        text = f"{own} cannot edit its task.md in a turn: {obstacle.text}"
        yield warning("tools", text, _mend(obstacle))
    if not file_boundary(found.section, agents.tools):
        text = f"{own} may write into other agents' workspaces: tools.fs.workspaceOnly is not set"
        yield warning("file-boundary", text, _set("tools.fs.workspaceOnly", True))


def exec_policy(facts: Facts) -> Iterator[Finding]:
    found, own = facts.exec_policy, facts.settings.agent
    if found is None:
        return
    if found.ask == "off" and found.security == "full":
        yield ok("exec-approvals", f"shell commands of {own} need nobody's approval")
        return
    if found.ask == "off":
        allows = "none at all" if found.security == "deny" else "those of its allow list"
        text = f"of the shell commands of {own}, OpenClaw runs {allows}; the others fail"
        yield note("exec-approvals", text, *_permit(found, own))
        return
    text = f"OpenClaw asks a person before a shell command of {own} (ask: {found.ask}); in a turn of mailboxd nobody "
    yield warning(
        "exec-approvals", text + "is there to answer, and the command is denied at once", *_permit(found, own)
    )


def _permit(found: ExecPolicy, own: str) -> tuple[str, str]:
    one = f"openclaw approvals allowlist add --agent {own} PROGRAM"
    all_of_it = "openclaw exec-policy preset yolo" if found.by_host else _set(f"{found.config_path}.mode", "full")
    return one, all_of_it


# ---------------------------------------------------------------- what of mailboxd is in OpenClaw


def plugin(facts: Facts) -> Iterator[Finding]:
    found = facts.plugin
    if found is None:
        return
    if not found.installed:
        why = f" ({found.problem})" if found.problem else ""
        text = f"the gateway plugin is not there{why}: each message to an agent costs a call of its model"
        yield warning("plugin", text, "mailboxd plugin install")
    elif found.problem:
        yield warning("plugin", f"the gateway plugin takes no messages: {found.problem}", "mailboxd plugin install")
    elif (answer := facts.plugin_answer) is None:
        text = "the gateway plugin is installed; whether the gateway uses it was not tried"
        yield note("plugin", text, "mailboxd doctor")
    elif answer.by_model:
        text = f"the gateway does not use its plugin: a message was given to the model, which answered: {answer.said}"
        yield error("plugin", text, "openclaw gateway restart", "mailboxd plugin install")
    elif not answer.refused:
        text = f"the gateway plugin is installed, but did not answer a message: {answer.said}"
        yield error("plugin", text, "openclaw logs", "mailboxd plugin install")
    else:
        yield ok("plugin", f"the gateway plugin {found.version} takes messages, without a model".replace("  ", " "))


def skill(facts: Facts) -> Iterator[Finding]:
    found = facts.skill
    if found is None:
        return
    if not found.installed:
        text = "the skill is not installed: the agent knows of mailboxd what each prompt says, no more"
        yield note("skill", text, "mailboxd skill install")
    elif found.problem or not found.current:
        yield warning("skill", f"the skill is not as it should be: {found.problem}", "mailboxd skill install")
    else:
        yield ok("skill", "the agent has mailboxd's skill")


# ---------------------------------------------------------------- helpers of these checks


def _own(facts: Facts) -> Peer | None:
    own = facts.settings.agent.lower()
    return next((peer for peer in facts.peers or () if peer.id.lower() == own), None)


def _entry(facts: Facts) -> str:
    agents: Agents | None = facts.agents
    return (agents.entry_path if agents else "") or f"agents.entries.{facts.settings.agent}"


def _allow_path(facts: Facts) -> str:
    return f"{_entry(facts)}.subagents.allowAgents"


def _set(path: str, value: object) -> str:
    if isinstance(value, str):
        return shlex.join(["openclaw", "config", "set", path, value])
    return shlex.join(["openclaw", "config", "set", path, json.dumps(value), "--strict-json"])


def _mend(obstacle: Obstacle) -> str:
    return _set(obstacle.path, list(obstacle.value))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
