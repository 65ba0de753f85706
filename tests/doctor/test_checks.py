"""Every check, both ways: it says nothing bad of what is well, and names what is not, with the way to fix it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailboxd.core.messaging import Messaging
from mailboxd.host.pip_extras import to_add
from mailboxd.host.systemd_units import ServiceUnit
from mailboxd.operate.doctor import diagnose
from mailboxd.operate.doctor.facts import (
    CheckResult,
    Daemon,
    Facts,
    MailboxFacts,
    PluginAnswer,
    PluginParts,
    ProbeFailure,
    Program,
    Release,
    Settings,
    Tools,
    Transport,
)
from mailboxd.operate.integration import PluginState, SkillState
from mailboxd.perform.agents.acp.transport import HarnessInfo
from mailboxd.perform.agents.openclaw import Allowed, Peer
from tests.doctor.facts import (
    AGENTS,
    ALPHA,
    BETA,
    CHANGED,
    DATABASE,
    FILESYSTEM,
    GATEWAY,
    HEALTHY,
    LOST_DATABASE,
    NO_DATABASE,
    ROOT,
    SETTINGS,
    TOOLS,
    WORKSPACE,
    but,
    directory,
)


def bad(facts: Facts) -> list[CheckResult]:
    return [result for _, result in diagnose.judge(facts) if result.level != "ok"]


def test_healthy_facts_have_no_problems() -> None:
    assert bad(HEALTHY) == []


def test_each_group_reports_passed_checks() -> None:
    assert {group for group, _ in diagnose.judge(HEALTHY)} == set(diagnose.GROUPS)


def test_outside_a_workspace_only_the_machine_and_openclaw_are_checked() -> None:
    facts = but(
        settings=Settings("", 4, 225_000_000), workspace=None, filesystem=None, daemon=None, database=None,
        mailbox=None, skill=None, harnesses=None,
    )  # fmt: skip
    assert [(result.id, result.level) for result in bad(facts)] == [("workspace", "note")]
    assert {group for group, _ in diagnose.judge(facts)} == {"machine", "openclaw", "workspace"}


def test_missing_facts_are_skipped() -> None:
    results = list(diagnose.judge(Facts(settings=SETTINGS, python=(3, 12, 1))))
    assert {result.id for _, result in results} == {"python", "config", "workspace"}


def rotten(**changed: Any) -> dict[str, Any]:
    return {"database": replace(DATABASE, **changed)}


GAMMA = Peer("gamma", "Gamma", "/home/ann/gamma", False)
NO_AGENT = (Peer("gamma", "Gamma", "/home/ann/gamma", True),)

BROKEN = [
    # what is wrong, result, level, in its text, in a fix
    ({"python": (3, 10, 4)}, "python", "error", "3.10.4", "uv python install"),
    ({"inside_agent": True}, "inside-agent", "error", "OPENCLAW_SHELL", "your own shell"),
    ({"memory": 500_000_000}, "memory", "warning", "room for 2 of the 4", "limits.turns: 2"),
    ({"memory": 100_000_000}, "memory", "error", "none starts", "ps "),
    ({"harnesses": (HarnessInfo("x", "codex cannot be run"),)}, "harness", "warning", "cannot be run", "harnesses.x"),
    ({"harnesses": (HarnessInfo("x", f"run `{to_add('acp')}`"),)}, "harness", "warning", "its tasks wait", "[acp]"),
    ({"harnesses": (HarnessInfo("x", "", "odd", "2"),)}, "harness", "note", "(odd 2) works, but cannot load", ""),
    ({"now": "2026-11-20T00:00:00.000Z"}, "clock", "warning", "set back", "timedatectl"),
    ({"program": Program("openclaw", None)}, "openclaw", "error", "openclaw is not in PATH", "npm install -g openclaw"),
    ({"program": Program("x", "/x", scripted=True)}, "openclaw", "note", "stand-in", "openclaw.command"),
    ({"release": Release((2026, 7, 35), ""), "gateway": None}, "openclaw-version", "error", "2026.7.35", "npm install"),
    ({"release": Release(None, "Segmentation fault")}, "openclaw-version", "error", "Segmentation", "npm install"),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="unreachable", answer="ECONNREFUSED")},
        "gateway", "error", "does not answer: ECONNREFUSED", "openclaw gateway start",
    ),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="unreachable", service=False)},
        "gateway", "error", "does not answer", "openclaw gateway run",
    ),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="auth-rejected", answer="token mismatch")},
        "gateway", "error", "openclaw.json: token mismatch", "openclaw gateway restart",
    ),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="pairing-required")},
        "gateway", "error", "approved first", "openclaw devices approve",
    ),
    ({"gateway": replace(GATEWAY, connected=False, failure="?")}, "gateway", "error", "refuses the", "gateway probe"),
    ({"gateway": replace(GATEWAY, config_valid=False)}, "openclaw-config", "error", "is invalid", "doctor --fix"),
    ({"gateway": replace(GATEWAY, version="2026.8.2")}, "gateway-version", "warning", "2026.8.2", "restart"),
    ({"transport": Transport("not paired")}, "transport", "error", "not paired", "mailboxd connect gateway pair"),
    ({"transport": Transport("")}, "prompts", "note", "operator.questions", "connect gateway pair --questions"),
    ({"settings": replace(SETTINGS, turns=5)}, "lane", "warning", "limits.turns is 5", "maxConcurrent 10"),
    ({"peers": NO_AGENT}, "agent", "error", "no agent alpha; it has gamma", f"agents add alpha --workspace {ROOT}"),
    (
        {"peers": (replace(ALPHA, workspace="/srv/a"), BETA)},
        "agent-workspace", "error", "in /srv/a", f"agents.entries.alpha.workspace {ROOT}",
    ),
    (
        {"peers": (ALPHA, replace(BETA, workspace=ROOT))},
        "workspace-shared", "warning", "beta shares", "agents.entries.beta.workspace",
    ),
    (
        {"peers": (ALPHA, replace(BETA, workspace=f"{ROOT}/sub"))},
        "workspace-shared", "warning", "nested with this one", "agents.entries.beta.workspace",
    ),
    (
        {"agents": replace(AGENTS, allowed=Allowed(anyone=False, agents=frozenset({"alpha"})))},
        "peers", "note", "may not give work", """agents.entries.alpha.subagents.allowAgents '["beta"]' --strict-json""",
    ),
    (
        {"agents": replace(AGENTS, allowed=Allowed(anyone=False, agents=frozenset({"beta", "zeta"})))},
        "allow-list", "warning", "does not have: zeta", """allowAgents '["beta"]'""",
    ),
    (
        {"tools": replace(TOOLS, messaging=Messaging(enabled=False, patterns=()))},
        "agent-to-agent", "warning", "send work to beta", '{"enabled": true}',
    ),
    (
        {"tools": replace(TOOLS, messaging=Messaging(enabled=True, patterns=("alpha",)))},
        "agent-to-agent", "warning", "beta", '"allow": ["alpha", "beta"]',
    ),
    (
        {"settings": replace(SETTINGS, gates=("spec_review",))},
        "reviewers", "error", "no other agent than alpha is named as reviewer", "gates.reviewers: [beta]",
    ),
    (
        {"settings": replace(SETTINGS, gates=("spec_review",), reviewers=("ALPHA",))},
        "reviewers", "error", "every task stops there", "gates.reviewers: [beta]",
    ),
    (
        {"settings": replace(SETTINGS, gates=("quality_gate",), reviewers=("beta", "zeta"))},
        "reviewers", "error", "quality_gate waits for zeta, but OpenClaw has no such agent", "[beta]",
    ),
    (
        {"settings": replace(SETTINGS, gates=("quality_gate",), reviewers=("gamma",)), "peers": (ALPHA, BETA, GAMMA)},
        "reviewers", "error", "waits for gamma, whom alpha may not ask", """allowAgents '["beta", "gamma"]'""",
    ),
    (
        {"tools": Tools({"profile": "messaging", "fs": {"workspaceOnly": True}}, TOOLS.messaging)},
        "tools", "warning", "tool profile lacks read", """tools.alsoAllow '["read", "write", "edit"]'""",
    ),
    ({"tools": Tools({}, TOOLS.messaging)}, "file-boundary", "warning", "other agents", "tools.fs.workspaceOnly true"),
    ({"plugin": PluginState(False, False, False, "", "", "")}, "plugin", "warning", "not installed", "plugin install"),
    ({"plugin": PluginState(True, False, True, "1", "/p", "off")}, "plugin", "warning", "off", "plugin install"),
    ({"plugin_answer": PluginAnswer(False, "Done.", True)}, "plugin", "error", "reached the model", "gateway restart"),
    ({"plugin_answer": PluginAnswer(False, "it is full")}, "plugin", "error", "did not answer", "plugin install"),
    ({"plugin_answer": None}, "plugin", "note", "not tested", "mailboxd doctor"),
    ({"plugin_parts": PluginParts({}, "unknown method")}, "plugin-parts", "error", "unknown method", "plugin install"),
    (
        {"plugin_parts": PluginParts({"receive": "", "tab": "no controls"})},
        "plugin-parts", "warning", "part tab: no controls", "openclaw logs",
    ),
    (
        {"plugin_parts": PluginParts({"command": ""}, unlisted={"command": "mailbox in commands.list"})},
        "plugin-parts", "warning", "does not list mailbox in commands.list", "gateway restart",
    ),
    ({"skill": SkillState(False, False, "/s", "")}, "skill", "note", "not installed", "skill install"),
    ({"skill": SkillState(True, False, "/s", "older")}, "skill", "warning", "older", "skill install"),
    ({"workspace": None, "not_a_workspace": "/x"}, "workspace", "error", "/x is not", "mailboxd setup"),
    (
        {"workspace": None, "not_a_workspace": "/home/ann/beta"},
        "workspace", "error", "is not", "mailboxd init /home/ann/beta --agent beta",
    ),
    ({"settings": replace(SETTINGS, problem="config.yaml:3: no")}, "config", "error", "yaml:3", "config.yaml"),
    (
        {"workspace": directory("tasks", kind="missing")},
        "directories", "error", "tasks is missing", f"mailboxd init {ROOT} --agent alpha",
    ),
    (
        {"workspace": directory("tasks", kind="missing"), "settings": replace(SETTINGS, agent="")},
        "directories", "error", "tasks is missing", f"mailboxd init {ROOT} --agent alpha",
    ),
    ({"workspace": directory("tasks", kind="a file")}, "directories", "error", "a file, not a directory", "mv "),
    ({"workspace": directory(".", writable=False)}, "directories", "error", "is not writable", "chmod u+rwx"),
    ({"workspace": directory(".", writable=False, owner=0)}, "directories", "error", "owner 0", "sudo chown -R 1000"),
    ({"workspace": directory("tasks", owner=0)}, "directories", "warning", "belongs to user 0", "chown"),
    ({"workspace": directory("mailbox/inbox", mode=0o777)}, "directories", "warning", "mode 0777", "chmod go-w"),
    ({"workspace": directory(".mailboxd", mode=0o755)}, "directories", "warning", "can read", "chmod 700"),
    ({"filesystem": replace(FILESYSTEM, type="nfs4")}, "filesystem", "error", "nfs4 at /home", "alpha.workspace"),
    ({"filesystem": replace(FILESYSTEM, type="tmpfs")}, "filesystem", "warning", "in memory", "alpha.workspace"),
    ({"filesystem": replace(FILESYSTEM, type="fuse.x")}, "filesystem", "warning", "not be safe", "workspace"),
    ({"filesystem": replace(FILESYSTEM, free_bytes=50_000_000)}, "space", "error", "50 MB", "du "),
    ({"filesystem": replace(FILESYSTEM, free_bytes=500_000_000)}, "space", "warning", "500 MB", "du "),
    ({"filesystem": replace(FILESYSTEM, free_files=9)}, "inodes", "error", "9 more", "--inodes"),
    ({"filesystem": replace(FILESYSTEM, free_files=5000)}, "inodes", "warning", "5000", "--inodes"),
    ({"database": NO_DATABASE}, "database", "note", "no database", "systemctl --user restart"),
    ({"database": LOST_DATABASE}, "database", "error", "was one", "rebuild --replace"),
    (rotten(damage=("row 3 missing",)), "database", "error", "row 3 missing", "db rebuild --replace"),
    (rotten(schema=2), "database", "error", "knows 1", "mailboxd --version"),
    (rotten(schema=0), "database", "note", "upgrades it to 1", "systemctl --user restart"),
    (rotten(broken="event 7 is missing"), "database", "error", "event 7", "db verify"),
    ({"daemon": Daemon(None)}, "daemon", "note", "no daemon", "mailboxd run"),
    ({"daemon": Daemon(None, starts_soon=True)}, "daemon", "note", "`mailboxd run --all` starts one within 15 s", ""),
    ({"daemon": Daemon(None), "mailbox": MailboxFacts(0, 2)}, "daemon", "warning", "inbox: 2", "mailboxd run"),
    (
        {"daemon": Daemon(None, ServiceUnit("mailboxd@a.service"))},
        "daemon", "note", "no daemon", "systemctl --user start mailboxd@a.service",
    ),
    (
        {"daemon": Daemon(None, ServiceUnit("mailboxd.service"))},
        "daemon", "note", "no daemon", "reload-or-restart mailboxd.service",
    ),
    ({"daemon": Daemon(None, gave_up="the disk is full")}, "daemon", "error", "failed: the disk", "mailboxd run"),
    ({"daemon": Daemon(None, gave_up=CHANGED)}, "daemon", "error", "another program changed", "db rebuild --replace"),
    ({"daemon": Daemon(7, inside_agent=True)}, "daemon", "error", "inside an agent", "kill 7"),
    ({"daemon": Daemon(7, stuck="cannot move inbox/x")}, "emptying-the-inbox", "warning", "inbox/x", "ls -la"),
    ({"mailbox": MailboxFacts(3, 0)}, "rejected", "note", "rejected/: 3", "reason.json"),
    ({"failures": (ProbeFailure("node", "no answer", "node -v"),)}, "node-unknown", "warning", "no answer", "node"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "slug", "level", "text", "fix"),
    BROKEN,
    ids=[f"{row[1]}-{number}" for number, row in enumerate(BROKEN)],
)
def test_a_problem_gives_one_result_with_a_fix(
    changed: dict[str, Any], slug: str, level: str, text: str, fix: str
) -> None:
    (result,) = bad(but(**changed))
    assert (result.id, result.level.value) == (slug, level)
    assert text in result.text
    assert fix in "\n".join(result.fixes)
    assert result.fixes or not fix


def test_every_check_has_a_broken_example() -> None:
    spoken = {row[1] for row in BROKEN}
    assert {result.id for _, result in diagnose.judge(HEALTHY)} <= spoken


def test_agent_ids_match_case_insensitively() -> None:
    shouting = (replace(ALPHA, id="Alpha"), BETA)
    assert bad(but(peers=shouting)) == []


def test_many_agents_are_not_all_listed() -> None:
    many = (ALPHA, *(Peer(f"a{n:02}", "", f"/w/{n}", False) for n in range(20)))
    facts = but(peers=many, agents=replace(AGENTS, allowed=Allowed(anyone=True, agents=frozenset({"*"}))))
    (peers,) = [result for _, result in diagnose.judge(facts) if result.id == "peers"]
    assert peers.text.endswith("a07 and 12 more")


def test_a_path_with_spaces_can_be_pasted() -> None:
    workspace = replace(directory("tasks", mode=0o777), root="/home/ann/my agent")
    (result,) = [one for one in bad(but(workspace=workspace)) if one.id == "directories"]
    assert result.fixes == ("chmod go-w '/home/ann/my agent/tasks'",)
    assert WORKSPACE.root == ROOT


def test_fixes_call_openclaw_as_the_configuration_does() -> None:
    called = replace(SETTINGS, command="openclaw --profile 'my work'")
    tools = Tools({}, TOOLS.messaging)
    (result,) = bad(but(settings=called, tools=tools))
    assert result.fixes == ("openclaw --profile 'my work' config set tools.fs.workspaceOnly true --strict-json",)
    scripted = bad(but(settings=called, tools=tools, program=Program("x", "/x", scripted=True)))
    assert scripted[-1].fixes == ("openclaw config set tools.fs.workspaceOnly true --strict-json",)
