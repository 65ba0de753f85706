"""Every check, both ways: it says nothing bad of what is well, and names what is not, with the way to mend it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailboxd.agents.acp.probe import HarnessInfo
from mailboxd.agents.openclaw import Allowed, Messaging, Peer
from mailboxd.doctor import examination
from mailboxd.doctor.facts import (
    Daemon,
    ExecPolicy,
    Facts,
    Failure,
    Finding,
    Inotify,
    Leftovers,
    PluginAnswer,
    Program,
    Release,
    Runtime,
    Settings,
    Tools,
    Transport,
)
from mailboxd.integration.plugin import PluginState
from mailboxd.integration.skill import SkillState
from mailboxd.store.integrity import Examination
from tests.doctor.facts import (
    AGENTS,
    ALPHA,
    BETA,
    DATABASE,
    FILESYSTEM,
    GATEWAY,
    HEALTHY,
    PLACE,
    ROOT,
    RUNTIME,
    SETTINGS,
    TOOLS,
    but,
    directory,
)


def bad(facts: Facts) -> list[Finding]:
    return [finding for _, finding in examination.judge(facts) if finding.level != "ok"]


def test_nothing_is_said_against_what_is_well() -> None:
    assert bad(HEALTHY) == []


def test_each_group_says_what_is_well_too() -> None:
    assert {group for group, _ in examination.judge(HEALTHY)} == {group.name for group in examination.GROUPS}


def test_outside_a_workspace_only_the_machine_and_openclaw_are_judged() -> None:
    facts = but(
        settings=Settings("", 4, 225_000_000), place=None, filesystem=None, daemon=None, database=None, leftovers=None,
        skill=None, exec_policy=None, harnesses=None,
    )  # fmt: skip
    assert [(finding.id, finding.level) for finding in bad(facts)] == [("workspace", "note")]
    assert {group for group, _ in examination.judge(facts)} == {"machine", "openclaw", "workspace"}


def test_facts_that_are_missing_are_passed_over() -> None:
    findings = list(examination.judge(Facts(settings=SETTINGS, python=(3, 12, 1))))
    assert {finding.id for _, finding in findings} == {"python", "config", "workspace"}


def rotten(**changed: Any) -> dict[str, Any]:
    return {"database": replace(DATABASE, **changed)}


NODE20 = replace(RUNTIME, version=(20, 20, 2))
NO_AGENT = (Peer("gamma", "Gamma", "/home/ann/gamma", True),)

BROKEN = [
    # what is wrong, finding, level, in its text, in a mend
    ({"python": (3, 10, 4)}, "python", "error", "3.10.4", "uv python install"),
    ({"inside_agent": True}, "inside-agent", "error", "OPENCLAW_SHELL", "your own shell"),
    ({"inotify": Inotify(126, 128, 0, 100_000)}, "inotify-instances", "warning", "126 of 128", "instances=512"),
    ({"inotify": Inotify(1, 128, 8_000, 8_192)}, "inotify-watches", "warning", "8000 of 8192", "watches=524288"),
    ({"memory": 500_000_000}, "memory", "warning", "room for 2 of the 4", "limits.turns: 2"),
    ({"memory": 100_000_000}, "memory", "error", "none starts", "ps "),
    ({"harnesses": (HarnessInfo("x", "codex cannot be run"),)}, "harness", "warning", "cannot be run", "harnesses.x"),
    ({"harnesses": (HarnessInfo("x", "run `pip install"),)}, "harness", "warning", "its tasks wait", "mailboxd[acp]"),
    ({"harnesses": (HarnessInfo("x", "", "odd", "2"),)}, "harness", "note", "(odd 2) speaks ACP; it cannot load", ""),
    ({"open_files": 64}, "open-files", "warning", "64", "ulimit -n 4096"),
    ({"synchronised": False}, "clock", "note", "nothing synchronises", "timedatectl set-ntp true"),
    ({"now": "2026-11-20T00:00:00.000Z"}, "clock", "warning", "set back", "timedatectl"),
    ({"program": Program("openclaw", None)}, "openclaw", "error", "no program openclaw", "npm install -g openclaw"),
    ({"program": Program("x", "/x", stand_in=True)}, "openclaw", "note", "stand-in", "openclaw.command"),
    ({"runtime": NODE20}, "node", "error", "20.20.2 (/usr/bin/node)", "nvm install 26"),
    ({"runtime": replace(RUNTIME, version=None, said="boom")}, "node", "error", "boom", "nvm"),
    ({"runtime": replace(RUNTIME, wanted="")}, "node", "note", "could not be read", ""),
    ({"runtime": replace(RUNTIME, wanted="lts/*")}, "node", "note", "could not be read", ""),
    ({"release": Release((2026, 7, 35), ""), "gateway": None}, "openclaw-version", "error", "2026.7.35", "npm install"),
    ({"release": Release(None, "Segmentation fault")}, "openclaw-version", "error", "Segmentation", "npm install"),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="unreachable", said="ECONNREFUSED")},
        "gateway", "error", "does not answer: ECONNREFUSED", "openclaw gateway start",
    ),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="unreachable", service=False)},
        "gateway", "error", "does not answer", "openclaw gateway run",
    ),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="auth-rejected", said="token mismatch")},
        "gateway", "error", "openclaw.json has: token mismatch", "openclaw gateway restart",
    ),
    (
        {"gateway": replace(GATEWAY, connected=False, failure="pairing-required")},
        "gateway", "error", "approved first", "openclaw devices approve",
    ),
    ({"gateway": replace(GATEWAY, connected=False, failure="?")}, "gateway", "error", "refuses us", "gateway probe"),
    ({"gateway": replace(GATEWAY, failing=("gateway-draining",))}, "gateway", "warning", "draining", "restart"),
    ({"gateway": replace(GATEWAY, failing=("channels",))}, "gateway", "warning", "not ready: channels", "health"),
    ({"gateway": replace(GATEWAY, config_valid=False)}, "openclaw-config", "error", "not valid", "doctor --fix"),
    ({"gateway": replace(GATEWAY, version="2026.8.2")}, "gateway-version", "warning", "2026.8.2", "restart"),
    ({"transport": Transport("not paired")}, "transport", "error", "not paired", "mailboxd gateway pair"),
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
        "workspace-shared", "warning", "inside the other", "agents.entries.beta.workspace",
    ),
    (
        {"agents": replace(AGENTS, allowed=Allowed(anyone=False, agents=frozenset({"alpha"})))},
        "peers", "note", "no other agent", """agents.entries.alpha.subagents.allowAgents '["beta"]' --strict-json""",
    ),
    (
        {"agents": replace(AGENTS, allowed=Allowed(anyone=False, agents=frozenset({"beta", "zeta"})))},
        "allow-list", "warning", "names zeta", """allowAgents '["beta"]'""",
    ),
    (
        {"tools": replace(TOOLS, messaging=Messaging(enabled=False, patterns=()))},
        "agent-to-agent", "warning", "sending work to beta", '{"enabled": true}',
    ),
    (
        {"tools": replace(TOOLS, messaging=Messaging(enabled=True, patterns=("alpha",)))},
        "agent-to-agent", "warning", "beta", '"allow": ["alpha", "beta"]',
    ),
    (
        {"tools": Tools({"profile": "messaging", "fs": {"workspaceOnly": True}}, TOOLS.messaging)},
        "tools", "warning", "profile messaging", """tools.alsoAllow '["read", "write", "edit"]'""",
    ),
    ({"tools": Tools({}, TOOLS.messaging)}, "file-boundary", "warning", "other agents", "tools.fs.workspaceOnly true"),
    (
        {"exec_policy": ExecPolicy("allowlist", "on-miss", "tools.exec", by_host=False)},
        "exec-approvals", "warning", "denied at once", "openclaw config set tools.exec.mode full",
    ),
    (
        {"exec_policy": ExecPolicy("full", "always", "tools.exec", by_host=True)},
        "exec-approvals", "warning", "denied at once", "openclaw exec-policy preset yolo",
    ),
    (
        {"exec_policy": ExecPolicy("allowlist", "off", "tools.exec", by_host=False)},
        "exec-approvals", "note", "allow list", "allowlist add --agent alpha",
    ),
    ({"exec_policy": ExecPolicy("deny", "off", "x", by_host=False)}, "exec-approvals", "note", "none at all", "x.mode"),
    ({"plugin": PluginState(False, False, False, "", "", "")}, "plugin", "warning", "not there", "plugin install"),
    ({"plugin": PluginState(True, False, True, "1", "/p", "off")}, "plugin", "warning", "off", "plugin install"),
    ({"plugin_answer": PluginAnswer(False, "Done.", True)}, "plugin", "error", "given to the model", "gateway restart"),
    ({"plugin_answer": PluginAnswer(False, "it is full")}, "plugin", "error", "did not answer", "plugin install"),
    ({"plugin_answer": None}, "plugin", "note", "not tried", "mailboxd doctor"),
    ({"skill": SkillState(False, False, "/s", "")}, "skill", "note", "not installed", "skill install"),
    ({"skill": SkillState(True, False, "/s", "older")}, "skill", "warning", "older", "skill install"),
    ({"place": None, "named": "/tmp/x"}, "workspace", "error", "/tmp/x is not", "mailboxd init /tmp/x --agent"),
    ({"settings": replace(SETTINGS, problem="config.yaml:3: no")}, "config", "error", "yaml:3", "config.yaml"),
    ({"place": directory("tasks", kind="missing")}, "directories", "error", "tasks is missing", "mailboxd init"),
    ({"place": directory("tasks", kind="a file")}, "directories", "error", "a file, no directory", "mv "),
    ({"place": directory(".", writable=False)}, "directories", "error", "cannot be written", "chmod u+rwx"),
    ({"place": directory(".", writable=False, owner=0)}, "directories", "error", "owner 0", "sudo chown -R 1000"),
    ({"place": directory("tasks", owner=0)}, "directories", "warning", "belongs to user 0", "chown"),
    ({"place": directory("mailbox/inbox", mode=0o777)}, "directories", "warning", "mode 0777", "chmod go-w"),
    ({"place": directory(".mailboxd", mode=0o755)}, "directories", "warning", "can be read", "chmod 700"),
    ({"place": directory("mailbox/archive", device=9)}, "one-filesystem", "error", "mailbox/archive", "findmnt"),
    ({"filesystem": replace(FILESYSTEM, type="nfs4")}, "filesystem", "error", "nfs4 at /home", "alpha.workspace"),
    ({"filesystem": replace(FILESYSTEM, type="tmpfs")}, "filesystem", "warning", "in memory", "alpha.workspace"),
    ({"filesystem": replace(FILESYSTEM, type="fuse.x")}, "filesystem", "warning", "nobody knows", "workspace"),
    ({"filesystem": replace(FILESYSTEM, skew_seconds=-3.5)}, "file-times", "warning", "-3.5 s", "timedatectl"),
    ({"filesystem": replace(FILESYSTEM, free_bytes=50_000_000)}, "space", "error", "50 MB", "du "),
    ({"filesystem": replace(FILESYSTEM, free_bytes=500_000_000)}, "space", "warning", "500 MB", "du "),
    ({"filesystem": replace(FILESYSTEM, free_files=9)}, "inodes", "error", "9 more", "--inodes"),
    ({"filesystem": replace(FILESYSTEM, free_files=5000)}, "inodes", "warning", "5000", "--inodes"),
    ({"database": Examination("/db", exists=False)}, "database", "note", "no database", "mailboxd run"),
    (rotten(damage=("row 3 missing",)), "database", "error", "row 3 missing", ".recover"),
    (rotten(schema=2), "database", "error", "knows 1", "pip install"),
    (rotten(schema=0), "database", "note", "makes it 1", "mailboxd run"),
    (rotten(broken="event 7 is missing"), "database", "error", "event 7", "history --verify"),
    (rotten(open_circuits=("a", "b")), "open-circuits", "note", "a, b", "mailboxd why a"),
    (rotten(held=("a",)), "held", "note", "held until you let them go on: a", "mailboxd why a"),
    (rotten(broken_agents=("beta",)), "breakers", "warning", "beta", "mailboxd status"),
    ({"daemon": Daemon(None)}, "daemon", "note", "no daemon", "mailboxd run"),
    ({"daemon": Daemon(None), "leftovers": Leftovers(0, 2)}, "daemon", "warning", "2 in the inbox", "systemctl"),
    ({"daemon": Daemon(7, "", inside_agent=True)}, "daemon", "error", "inside an agent", "kill 7"),
    ({"leftovers": Leftovers(3, 0)}, "rejected", "note", "3 rejected", "reason.json"),
    ({"failures": (Failure("node", "no answer", "node --version"),)}, "node-unknown", "warning", "no answer", "node"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "slug", "level", "text", "mend"),
    BROKEN,
    ids=[f"{row[1]}-{number}" for number, row in enumerate(BROKEN)],
)
def test_what_is_broken_is_named_alone_with_its_mend(
    changed: dict[str, Any], slug: str, level: str, text: str, mend: str
) -> None:
    (finding,) = bad(but(**changed))
    assert (finding.id, finding.level.value) == (slug, level)
    assert text in finding.text
    assert mend in "\n".join(finding.mends)
    assert finding.mends or not mend


def test_a_node_that_is_too_old_is_told_once_though_openclaw_says_nothing_then() -> None:
    silent = but(runtime=NODE20, release=Release(None, "openclaw: Node 20.20.2: unsupported"), gateway=None)
    assert [finding.id for finding in bad(silent)] == ["node"]


def test_every_check_has_a_broken_example() -> None:
    spoken = {row[1] for row in BROKEN} | {"inotify"}
    assert {finding.id for _, finding in examination.judge(HEALTHY)} <= spoken


def test_ids_of_agents_match_whatever_their_case() -> None:
    shouting = (replace(ALPHA, id="Alpha"), BETA)
    assert bad(but(peers=shouting)) == []


def test_many_agents_are_not_all_listed() -> None:
    many = (ALPHA, *(Peer(f"a{n:02}", "", f"/w/{n}", False) for n in range(20)))
    facts = but(peers=many, agents=replace(AGENTS, allowed=Allowed(anyone=True, agents=frozenset({"*"}))))
    (peers,) = [finding for _, finding in examination.judge(facts) if finding.id == "peers"]
    assert peers.text.endswith("a07 and 12 more")


def test_a_path_with_spaces_can_be_pasted() -> None:
    place = replace(directory("tasks", mode=0o777), root="/home/ann/my agent")
    (finding,) = [one for one in bad(but(place=place)) if one.id == "directories"]
    assert finding.mends == ("chmod go-w '/home/ann/my agent/tasks'",)
    assert PLACE.root == ROOT


def test_a_runtime_that_cannot_be_found_is_an_error() -> None:
    (finding,) = bad(but(runtime=Runtime("", None, "", "there is no program node in PATH")))
    assert "no program node" in finding.text


def test_mends_call_openclaw_as_the_configuration_does() -> None:
    called = replace(SETTINGS, command="openclaw --profile 'my work'")
    tools = Tools({}, TOOLS.messaging)
    (finding,) = bad(but(settings=called, tools=tools))
    assert finding.mends == ("openclaw --profile 'my work' config set tools.fs.workspaceOnly true --strict-json",)
    stand_in = bad(but(settings=called, tools=tools, program=Program("x", "/x", stand_in=True)))
    assert stand_in[-1].mends == ("openclaw config set tools.fs.workspaceOnly true --strict-json",)
