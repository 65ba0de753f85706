"""A machine, an OpenClaw and a workspace with which nothing is wrong; each test breaks one thing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mailboxd.core.messaging import Messaging
from mailboxd.host.systemd_units import ServiceUnit
from mailboxd.ledger.integrity import DatabaseCheck, changed
from mailboxd.operate.doctor.facts import (
    Daemon,
    Directory,
    Facts,
    Filesystem,
    Gateway,
    MailboxFacts,
    PluginAnswer,
    PluginParts,
    Program,
    Release,
    Settings,
    Tools,
    Transport,
    WorkspaceFacts,
)
from mailboxd.operate.integration import PluginState, SkillState
from mailboxd.perform.agents.acp.transport import HarnessInfo
from mailboxd.perform.agents.openclaw import Allowed, Peer, Rules

ROOT = "/home/ann/alpha"
PATHS = (
    ".", "mailbox/inbox", "mailbox/outbox", "mailbox/archive", "mailbox/rejected", "tasks", ".mailboxd",
    ".mailboxd/turns",
)  # fmt: skip
GB = 1_000_000_000

SETTINGS = Settings(f"{ROOT}/.mailboxd/config.yaml", turns=4, call_bytes=225_000_000, agent="alpha")
GATEWAY = Gateway(
    connected=True, failure="", answer="", url="ws://127.0.0.1:18789", version="2026.9.6", service=True,
    config_path="/home/ann/.openclaw/openclaw.json", config_valid=True,
)  # fmt: skip
ALPHA, BETA = Peer("alpha", "Alpha", ROOT, True), Peer("beta", "Beta", "/home/ann/beta", False)
AGENTS = Rules(Allowed(anyone=False, agents=frozenset({"beta"})), {}, 8, "agents.entries.alpha")
TOOLS = Tools({"fs": {"workspaceOnly": True}}, Messaging(enabled=True, patterns=()))
PLUGIN = PluginState(True, True, True, "0.1.0", "/p", "")
SKILL = SkillState(True, True, f"{ROOT}/skills/mailboxd", "")
DATABASE = DatabaseCheck(
    f"{ROOT}/.mailboxd/mailboxd.db", exists=True, schema=1, known=1, latest="2026-11-21T11:00:00.000Z"
)
NO_DATABASE = DatabaseCheck("/db", exists=False)
LOST_DATABASE = DatabaseCheck("/db", exists=False, lost="it is missing, but mailboxd.db.id says there was one")
CHANGED = changed(Path(DATABASE.path), "tasks: 1 row differs")
"""Why a daemon gave up."""
DIRECTORIES = tuple(Directory(path, "directory", 1000, 0o700, True) for path in PATHS)
WORKSPACE = WorkspaceFacts(ROOT, 1000, DIRECTORIES)
FILESYSTEM = Filesystem("ext4", "/home", 80 * GB, 5_000_000)

HEALTHY = Facts(
    settings=SETTINGS,
    python=(3, 12, 1),
    now="2026-11-21T12:00:00.000Z",
    memory=16 * GB,
    jobs=(),
    workspace=WORKSPACE,
    filesystem=FILESYSTEM,
    daemon=Daemon(4242, ServiceUnit("mailboxd@home-ann-alpha.service")),
    database=DATABASE,
    mailbox=MailboxFacts(0, 0),
    skill=SKILL,
    harnesses=(HarnessInfo("coder", "", "codex", "1.0", loads=True),),
    program=Program("openclaw", "/usr/bin/openclaw"),
    release=Release((2026, 9, 6), ""),
    gateway=GATEWAY,
    transport=Transport("", asks=True),
    peers=(ALPHA, BETA),
    agents=AGENTS,
    tools=TOOLS,
    plugin=PLUGIN,
    plugin_answer=PluginAnswer(refused=True),
    plugin_parts=PluginParts({"receive": ""}),
)


def but(**changed: Any) -> Facts:
    """The healthy facts, with these."""
    return replace(HEALTHY, **changed)


def directory(path: str, **changed: Any) -> WorkspaceFacts:
    """The healthy workspace, with one directory that is otherwise."""
    return replace(
        WORKSPACE, directories=tuple(replace(one, **changed) if one.path == path else one for one in DIRECTORIES)
    )
