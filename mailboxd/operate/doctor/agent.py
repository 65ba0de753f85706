"""Checks of the agent: OpenClaw's configuration for it, its skill, its harnesses, and on request a canary.

The canary is a harmless turn of the agent and a message to its mailbox that causes no work: it reports progress of a
task that does not exist, so it is filed in archive/ without effect. The message is sent only if the gateway plugin
handles it, so that no model sees it.
"""

from __future__ import annotations

import json
import secrets
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from mailboxd.core.messaging import Messaging
from mailboxd.core.outcomes import Failed, Outcome, Succeeded
from mailboxd.daemon.placement import misplaced
from mailboxd.errors import ConfigError, MessageError, UnavailableError
from mailboxd.formats.config.model import AcpSection, HarnessSection
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.messages import AckMessage, parse_message
from mailboxd.host.clock import Clock
from mailboxd.host.ids import Ids
from mailboxd.host.pip_extras import to_add
from mailboxd.ledger.reports import opened
from mailboxd.operate.doctor.facts import (
    CheckResult,
    Facts,
    PluginAnswer,
    Tools,
    WorkspaceFacts,
    edit,
    error,
    note,
    ok,
    warning,
)
from mailboxd.operate.integration import SkillState
from mailboxd.perform.agents import process
from mailboxd.perform.agents.acp import transport
from mailboxd.perform.agents.acp.transport import HarnessInfo
from mailboxd.perform.agents.ask import finish
from mailboxd.perform.agents.call_dir import PROMPT, read_capped
from mailboxd.perform.agents.json_output import at, brief
from mailboxd.perform.agents.openclaw import Peer, Rules
from mailboxd.perform.agents.outcome import classify

if TYPE_CHECKING:
    from mailboxd.operate.doctor.target import Target

_SHOWN = 8


def agent(facts: Facts, peers: Sequence[Peer]) -> Iterator[CheckResult]:
    name, peer = facts.settings.agent, _own(facts)
    if not name:
        return
    if peer is not None:
        yield ok("agent", f"OpenClaw has the agent {peer.id}")
        return
    known = _listed([peer.id for peer in peers])
    add = shlex.join(
        ["openclaw", "agents", "add", name, "--workspace", facts.workspace.root if facts.workspace else "DIR"]
    )
    yield error("agent", f"OpenClaw has no agent {name}; it has {known or 'none'}", add)


def workspace(facts: Facts, workspace: WorkspaceFacts) -> Iterator[CheckResult]:
    peer = _own(facts)
    if peer is None:
        return
    homes = {one.id: one.workspace for one in facts.peers or ()}
    if not peer.workspace:
        move = ["openclaw", "config", "set", f"{_entry(facts)}.workspace", workspace.root]
        text = f"OpenClaw names no workspace of {peer.id}, this workspace is {workspace.root}"
        yield error("agent-workspace", text, shlex.join(move))
    elif (wrong := misplaced(Path(workspace.root), peer.id, homes, _entry(facts))) is not None:
        yield error("agent-workspace", wrong.text, wrong.command)
    else:
        yield ok("agent-workspace", f"OpenClaw runs {peer.id} in this workspace")


def shared_workspace(facts: Facts, workspace: WorkspaceFacts) -> Iterator[CheckResult]:
    own, root = facts.settings.agent.lower(), PurePath(workspace.root)
    if not own:
        return
    for peer in facts.peers or ():
        other = PurePath(peer.workspace)
        if peer.id.lower() == own or not peer.workspace:
            continue
        if other == root or root in other.parents or other in root.parents:
            how = "shares this workspace" if other == root else f"has the workspace {other}, nested with this one"
            apart = ["openclaw", "config", "set", f"agents.entries.{peer.id}.workspace", f"{other}-{peer.id}"]
            yield warning(
                "workspace-shared", f"agent {peer.id} {how}: it can change files of mailboxd", shlex.join(apart)
            )


def allowed(facts: Facts, agents: Rules, tools: Tools) -> Iterator[CheckResult]:
    own = facts.settings.agent
    if facts.peers is None or _own(facts) is None:
        return
    others = [peer.id for peer in facts.peers if peer.id.lower() != own.lower()]
    named = [name for name in others if agents.allowed.permits(name)]
    reachable = [name for name in named if tools.messaging.permits(own, name)]
    blocked = [name for name in named if name not in reachable]
    missing = agents.allowed.agents - {peer.id.lower() for peer in facts.peers} - {own.lower(), "*"}
    if blocked:
        text = f"allowAgents lets {own} send work to {_listed(blocked)}, but tools.agentToAgent does not"
        yield warning("agent-to-agent", text, *to_reach(own, blocked, agents, tools.messaging))
    if missing:
        text = f"allowAgents of {own} names agents that OpenClaw does not have: {_listed(sorted(missing))}"
        yield warning("allow-list", text, _set(_allow_path(facts), sorted({name.lower() for name in named})))
    if reachable:
        yield ok("peers", f"{own} may give work to {_listed(reachable)}")
    elif others and not blocked:
        text = f"{own} may not give work to any other agent (others: {_listed(others)})"
        yield note("peers", text, _set(_allow_path(facts), others[:_SHOWN]))


def reviewers(facts: Facts, agents: Rules, tools: Tools) -> Iterator[CheckResult]:
    """A gate that is on stops every task if one of its reviewers cannot be asked."""
    own, gates = facts.settings.agent, ", ".join(facts.settings.gates)
    if not gates or facts.peers is None or _own(facts) is None:
        return
    ids = {peer.id.lower(): peer.id for peer in facts.peers}
    named = [name for name in facts.settings.reviewers if name.lower() != own.lower()]
    others = [peer for key, peer in ids.items() if key != own.lower()]
    at_hand = [name for name in others if reaches(own, name, agents, tools.messaging)]
    change = edit(facts.settings.path, f"gates.reviewers: [{', '.join(at_hand or others)}], or no gate")
    if not named:
        text = f"{gates} is on, and no other agent than {own} is named as reviewer: every task stops there"
        yield error("reviewers", text, change, *(() if at_hand else to_reach(own, others, agents, tools.messaging)))
        return
    unknown = [name for name in named if name.lower() not in ids and "." not in name]  # on another host
    if unknown:
        text = f"{gates} waits for {_listed(unknown)}, but OpenClaw has no such agent: every task stops there"
        yield error("reviewers", text, change)
    known = [ids[name.lower()] for name in named if name.lower() in ids]
    if blocked := [name for name in known if not reaches(own, name, agents, tools.messaging)]:
        text = f"{gates} waits for {_listed(blocked)}, whom {own} may not ask: every task stops there"
        yield error("reviewers", text, *to_reach(own, blocked, agents, tools.messaging), change)
    elif not unknown:
        yield ok("reviewers", f"{own} may ask its reviewers: {_listed(named)}")


def reaches(own: str, name: str, rules: Rules, messaging: Messaging) -> bool:
    """Whether OpenClaw lets the agent `own`, whose rules these are, give work to `name`."""
    return rules.allowed.permits(name) and messaging.permits(own, name)


def to_reach(own: str, names: Sequence[str], rules: Rules, messaging: Messaging) -> tuple[str, ...]:
    """The commands that let `own` give work to these agents too; those that it may already reach stay."""
    commands = []
    if any(not rules.allowed.permits(name) for name in names):
        path = f"{rules.entry_path or f'agents.entries.{own}'}.subagents.allowAgents"
        listed = sorted(rules.allowed.agents - {own.lower()} - {name.lower() for name in names})
        commands.append(_set(path, [*listed, *names]))
    if any(not messaging.permits(own, name) for name in names):
        patterns = [*messaging.patterns, *(name for name in (own, *names) if messaging.patterns)]
        value = {"enabled": True, **({"allow": list(dict.fromkeys(patterns))} if patterns else {})}
        commands.append(_set("tools.agentToAgent", value))
    return tuple(commands)


def tools(facts: Facts, agents: Rules, found: Tools) -> Iterator[CheckResult]:
    own = facts.settings.agent
    if not own or not agents.entry_path:
        return
    if missing := missing_file_tools(found.section, agents.tools):
        text = f"{own} cannot edit its task.md during a turn: its tool profile lacks {', '.join(missing)}"
        yield warning("tools", text, _set(f"{agents.entry_path}.tools.alsoAllow", list(FILE_TOOLS)))
    else:
        yield ok("tools", f"{own} has the tools to edit its task.md")
    if not file_boundary(found.section, agents.tools):
        text = f"{own} may write to other agents' workspaces: tools.fs.workspaceOnly is not set"
        yield warning("file-boundary", text, _set("tools.fs.workspaceOnly", True))


def skill(_: Facts, found: SkillState) -> Iterator[CheckResult]:
    if not found.installed:
        text = "the skill is not installed: the agent knows only what each prompt says about mailboxd"
        yield note("skill", text, "mailboxd connect skill install")
    elif found.problem or not found.current:
        yield warning(
            "skill", f"the skill needs to be installed again: {found.problem}", "mailboxd connect skill install"
        )
    else:
        yield ok("skill", "the agent has mailboxd's skill")


def harnesses(facts: Facts, found: Sequence[HarnessInfo]) -> Iterator[CheckResult]:
    yield from (_harness(one, facts.settings.path) for one in found)


def _harness(found: HarnessInfo, config: str) -> CheckResult:
    if found.problem:
        text = f"the harness {found.name} does not work, so its tasks wait: {found.problem}"
        fixes = [edit(config, f"acp.harnesses.{found.name}")]
        if to_add("acp") in found.problem:
            fixes.insert(0, to_add("acp"))
        return warning("harness", text, *fixes)
    name = f"the harness {found.name} ({' '.join(filter(None, [found.title, found.version])) or 'no name'})"
    if not found.loads:
        text = f"{name} works, but cannot load a session: the outcome of an interrupted turn stays unknown"
        return note("harness", text)
    return ok("harness", f"{name} works, and can be asked about an interrupted turn")


def probe_harnesses(root: Path, acp: AcpSection, environ: Mapping[str, str]) -> tuple[HarnessInfo, ...]:
    """Probe the configured harnesses one after another, since each may need much memory."""
    return tuple(_probe_harness(root, name, harness, environ) for name, harness in acp.harnesses.items())


def _probe_harness(root: Path, name: str, harness: HarnessSection, environ: Mapping[str, str]) -> HarnessInfo:
    try:
        cwd = transport.working_directory(root, harness.cwd)
    except OSError as problem:
        return HarnessInfo(name, f"its directory is missing: {problem.strerror} (cwd: {harness.cwd})")
    try:
        transport.require_extra()
        from mailboxd.perform.agents.acp.conversation import probe

        return probe(name, harness.argv, cwd, transport.environment(environ, harness.environment))
    except OSError as problem:
        return HarnessInfo(name, f"{harness.argv[0]} cannot be run: {problem.strerror}")
    except ConfigError as problem:
        return HarnessInfo(name, str(problem))


def _own(facts: Facts) -> Peer | None:
    own = facts.settings.agent.lower()
    return next((peer for peer in facts.peers or () if peer.id.lower() == own), None)


def _entry(facts: Facts) -> str:
    return (facts.agents.entry_path if facts.agents else "") or f"agents.entries.{facts.settings.agent}"


def _allow_path(facts: Facts) -> str:
    return f"{_entry(facts)}.subagents.allowAgents"


def _set(path: str, value: object) -> str:
    if isinstance(value, str):
        return shlex.join(["openclaw", "config", "set", path, value])
    return shlex.join(["openclaw", "config", "set", path, json.dumps(value), "--strict-json"])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# Which of OpenClaw's tools an agent has. As in OpenClaw, its own profile and `alsoAllow` replace the global ones.

FILE_TOOLS = ("read", "write", "edit")
"""The tools that an agent needs to edit its task.md."""
_WITHOUT_FILES = ("minimal", "messaging")
"""The profiles that do not include the file tools."""


def missing_file_tools(general: object, own: object) -> list[str]:
    """The file tools that the profile of the agent whose `tools` entry is `own` withholds."""
    also = at(own, "alsoAllow") or at(general, "alsoAllow") or []
    granted = {name.strip().lower() for name in also if isinstance(name, str)} if isinstance(also, list) else set()
    if (at(own, "profile") or at(general, "profile")) not in _WITHOUT_FILES or granted & {"*", "group:fs"}:
        return []
    return [tool for tool in FILE_TOOLS if tool not in granted]


def file_boundary(general: object, own: object) -> bool:
    """Whether the agent's file tools stay within its workspace (`tools.fs.workspaceOnly`)."""
    value = at(own, "fs", "workspaceOnly")
    return (at(general, "fs", "workspaceOnly") if value is None else value) is True


# The canary

TURN_SECONDS = 120
_GATEWAY_GRACE = 60
FILED_SECONDS = 20.0
_POLL_SECONDS = 0.2
_HEADER = 1024
_TURN = """\
[mailboxd] canary turn

This checks that turns work. Use no tool. Answer with exactly the word below, and with nothing else.

## Word

{word}
"""
_MESSAGE = """\
---
type: progress
message_id: {message}
task_id: canary-{number}
from: {agent}
to: {agent}
---

A canary of `mailboxd doctor`. There is no such task; nothing needs to be done.
"""

_UNDELIVERABLE = """\
---
type: progress
task_id: doctor
from: {agent}
to: {agent}
bytes: 0
---

`mailboxd doctor` tests whether the gateway plugin handles messages. It refuses this one, whose body differs from its
declared size. If you, a model, read this: use no tool, do nothing, and answer with one word: model
"""
_REFUSED = "mailboxd: the message was refused"
"""The beginning of the plugin's answer to such a message."""
_FIX_PLUGIN = ("openclaw gateway restart", "mailboxd connect plugin install")


def probe_plugin(target: Target, clock: Clock) -> PluginAnswer:
    """Send the running gateway a message that its plugin has to refuse, so that nothing is delivered.

    If the plugin does not handle it, the message reaches the agent's model, once, as every message would.
    """
    outcome, _ = _turn(target, clock, _UNDELIVERABLE.format(agent=target.settings.agent), "doctor")
    if _called_the_model(outcome):
        return PluginAnswer(refused=False, answer=_summary(outcome), by_model=True)
    refused = isinstance(outcome, Failed) and outcome.error.startswith(_REFUSED)
    return PluginAnswer(refused, "" if refused else _summary(outcome))


def run_canary(
    target: Target, clock: Clock, pause: Callable[[float], None], *, plugin: bool, daemon: bool
) -> Iterator[CheckResult]:
    """Run the canary. `plugin`: the gateway accepts messages; `daemon`: one is running in this workspace.

    Raises WorldError if the database cannot be read.
    """
    message = Ids().new("msg", clock.now())
    number = message.rpartition("_")[2].lower()
    word = f"canary-{secrets.token_hex(8)}"  # new each time, so that no earlier text can pass for the answer
    turn, seconds = _turn(target, clock, _TURN.format(word=word), f"canary-{number}")
    if not isinstance(turn, Succeeded):
        yield error("canary-turn", f"a turn failed after {seconds:.1f} s: {_problem(turn)}", "openclaw logs")
    elif turn.text.strip() != word:
        text = f"a turn had to answer {word} and answered something else: {_line(turn.text)}"
        yield error("canary-turn", text, "openclaw logs")
    else:
        tokens = (turn.usage.input_tokens or 0) + (turn.usage.output_tokens or 0)
        cost = f"{seconds:.1f} s and {tokens:,} tokens"
        yield ok("canary-turn", f"a turn of {target.settings.agent} took {cost}, and its answer was right")
    if not plugin or target.ws is None:
        text = "no message was sent: the gateway plugin is not installed or does not work"
        yield note("canary-message", text, "mailboxd connect plugin install")
        return
    text = _MESSAGE.format(message=message, number=number, agent=target.settings.agent)
    answer, seconds = _turn(target, clock, text, f"canary-{number}-message")
    if _called_the_model(answer):
        text = f"a message to this mailbox reached the model, which answered: {_summary(answer)}"
        yield error("canary-message", text, *_FIX_PLUGIN)
        return
    if not isinstance(answer, Succeeded) or not _is_ack(answer.text, f"canary-{number}"):
        text = f"a message to this mailbox was not acknowledged: {_summary(answer)}"
        yield error("canary-message", text, "openclaw plugins inspect mailboxd", "openclaw logs")
        return
    yield ok("canary-message", f"a message to this mailbox was acknowledged in {seconds:.1f} s without a model")
    if daemon:
        yield _filed(target.ws, message, clock, pause)
    elif any(message.encode() in read_capped(path, _HEADER)[0] for path in target.ws.inbox.glob("*.md")):
        text = "it waits in the inbox for a daemon, which will file it without effect"
        yield note("canary-filed", text, "mailboxd run")
    else:
        yield error("canary-filed", f"it was acknowledged, but is not in {target.ws.inbox}", "openclaw logs")


def _turn(target: Target, clock: Clock, text: str, session: str) -> tuple[Outcome | str, float]:
    """The outcome of a turn with this message, or why it did not start; and its duration in seconds."""
    probes, gateway, started = target.openclaw, target.gateway, clock.monotonic()
    agent = target.settings.agent
    with tempfile.TemporaryDirectory(prefix="mailboxd-canary-") as folder:
        key = f"agent:{agent.lower()}:mailboxd:{session}"
        argv = (gateway or probes.openclaw).turn_argv(agent, key, f"{folder}/{PROMPT}", TURN_SECONDS)
        try:
            child = (gateway or process).spawn(folder, argv, probes.environment, files={PROMPT: text.encode()})
            outcome: Outcome | str = classify(finish(child, TURN_SECONDS + _GATEWAY_GRACE))
        except UnavailableError as problem:
            outcome = str(problem)
    return outcome, clock.monotonic() - started


def _called_the_model(outcome: Outcome | str) -> bool:
    """Whether OpenClaw reports tokens; it reports none for a turn that a plugin answered."""
    return isinstance(outcome, Succeeded | Failed) and bool(outcome.usage.input_tokens or outcome.usage.output_tokens)


def _is_ack(text: str, task_id: str) -> bool:
    """Whether `text` acknowledges the message about this task."""
    try:
        message = parse_message(text.encode(), "answer").message
    except MessageError:
        return False
    return isinstance(message, AckMessage) and message.task_id == task_id


def _filed(ws: Workspace, message: str, clock: Clock, pause: Callable[[float], None]) -> CheckResult:
    started = clock.monotonic()
    while clock.monotonic() - started < FILED_SECONDS:
        with opened(ws.database) as report:
            if (received := report.received(message)) is not None:
                took = clock.monotonic() - started
                return ok("canary-filed", f"the daemon filed it as {received['verdict']} {took:.1f} s later")
        pause(_POLL_SECONDS)
    text = f"the daemon did not process it within {FILED_SECONDS:.0f} s"
    return warning("canary-filed", text, "mailboxd status", "mailboxd log")


def _problem(outcome: Outcome | str) -> str:
    if isinstance(outcome, str):
        return brief(outcome)
    return "it succeeded" if isinstance(outcome, Succeeded) else brief(outcome.error)[:300]


def _summary(outcome: Outcome | str) -> str:
    return _line(outcome.text) if isinstance(outcome, Succeeded) else _problem(outcome)


def _line(text: str) -> str:
    return brief(" ".join(text.split()))[:60]
