"""`mailboxd setup`: what it plans, does, does not do twice, and takes back. Beside a stand-in for OpenClaw."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from mailboxd.engine import spending
from mailboxd.formats import config
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.operate.setup import plan
from mailboxd.operate.setup.plan import SetupRecord
from tests.agents.replay import Replay, conversation
from tests.e2e.support import MAILBOXD, PATIENCE, Company, environment, eventually
from tests.setup.usermanager import UserManager

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
LEFT_OUT = ("gateway", "service")
"""Without the gateway's token, and without systemd."""


class Beside:
    """A machine with a scripted OpenClaw and two agents that have no mailbox, without systemd."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.company = Company(root, {"alpha": {"default": {"reply": "Text."}}, "beta": {}})
        for name in ("alpha", "beta"):
            self.workspace(name).mkdir(parents=True)
        self.config = root / "openclaw.json"
        entries = {name: {"workspace": str(self.workspace(name))} for name in ("alpha", "beta")}
        self.config.write_text(json.dumps({"agents": {"entries": entries}}, indent=2, sort_keys=True))
        bin_ = root / "bin"
        bin_.mkdir()
        (bin_ / "openclaw").write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.setup.standin "$@"\n'
        )
        (bin_ / "openclaw").chmod(0o755)
        self.env = {
            "PATH": str(bin_), "HOME": str(root / "home"), "XDG_STATE_HOME": str(root / "state"),
            "OPENCLAW_CONFIG_PATH": str(self.config), "MAILBOXD_SCRIPT": str(self.company.script),
        }  # fmt: skip

    def workspace(self, name: str) -> Path:
        return self.root / "ws" / name

    def setup(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MAILBOXD, "setup", *words], cwd=self.root, env=environment({**self.env, **env}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180 * PATIENCE,
        )  # fmt: skip

    def configure(self, **sections: Any) -> None:
        self.config.write_text(json.dumps(json.loads(self.config.read_text()) | sections, indent=2, sort_keys=True))

    def allow(self, agent: str, names: list[str]) -> None:
        said = json.loads(self.config.read_text())
        said["agents"]["entries"][agent]["subagents"] = {"allowAgents": names}
        self.config.write_text(json.dumps(said, indent=2, sort_keys=True))

    def steps(self, *words: str, status: int = 0, token: str = "") -> dict[tuple[str, str], dict[str, Any]]:
        done = self.setup(*words, "--json", OPENCLAW_GATEWAY_TOKEN=token)
        assert done.returncode == status, done.stdout + done.stderr
        return {(one["kind"], one["agent"] or ""): one for one in json.loads(done.stdout)["steps"]}

    def files(self) -> set[str]:
        skip = {"home", "bin"}
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.parts[-1] not in skip}


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    return Beside(tmp_path)


def test_a_plan_changes_nothing(beside: Beside) -> None:
    before = beside.files(), beside.config.read_text()
    done = beside.setup("--dry-run")
    assert done.returncode == 0, done.stderr
    assert "○ workspace alpha" in done.stdout
    assert "○ plugin    all agents" in done.stdout
    assert "– service   beta: there is no systemctl on this machine; run `mailboxd -w" in done.stdout
    assert (beside.files(), beside.config.read_text()) == before


def test_the_plan_says_what_a_workspace_has_in_tasks_already(beside: Beside) -> None:
    tasks = beside.workspace("alpha") / "tasks"
    (tasks / "old").mkdir(parents=True)
    (tasks / "old" / "task.md").write_text("# Task: Old\n\nDo it.\n")
    for name in ("CONTACTS", "INCIDENTS", "QUEUE", "TICKETS"):
        (tasks / f"{name}.md").write_text(f"# {name}\n")
    said = beside.steps("--dry-run")["workspace", "alpha"]["says"]
    assert said.endswith(
        "; old in its tasks/ will be carried out as tasks; CONTACTS.md, INCIDENTS.md, QUEUE.md and 1 more in its tasks/"
        " will be left alone"
    )


STRICT = ("--yes", "--strict", "--no-canary", "--skip", "plugin", "--skip", "service")


def reviews(beside: Beside, agent: str) -> tuple[str, tuple[str, ...], bool, bool]:
    found = config.load(Workspace(beside.workspace(agent)).config)
    gates = {found.gates.spec_review, found.gates.spec_gate, found.gates.quality_gate}
    assert len(gates) == 1
    return found.profile, found.gates.reviewers, found.gates.same_reviewer, gates.pop()


def test_new_workspaces_get_the_strict_profile_with_reviewers_that_they_may_ask(beside: Beside) -> None:
    assert "--strict" in beside.setup("--dry-run").stdout
    beside.allow("alpha", ["*"])
    beside.configure(tools={"agentToAgent": {"enabled": True}})
    steps = beside.steps(*STRICT)
    assert steps["workspace", "alpha"]["done"]
    assert reviews(beside, "alpha") == ("strict", ("beta",), True, True)
    assert reviews(beside, "beta") == ("strict", (), False, False)


@pytest.mark.parametrize(("reviewers", "same"), [(["b"], True), (["b", "c"], True), (["b", "c", "d"], False)])
def test_a_subtask_of_one_of_the_reviewers_has_reviewers_for_both_gates(
    tmp_path: Path, reviewers: list[str], same: bool
) -> None:
    """Of three agents, each with the others as reviewers, one can review the work of another: it would stand still."""
    plan.create_workspace(
        tmp_path, "a", "2026-11-27T00:00:00.000Z", {"XDG_STATE_HOME": str(tmp_path)}, reviewers=reviewers
    )
    assert config.load(Workspace(tmp_path).config).gates.same_reviewer is same


def test_where_nobody_may_be_asked_setup_says_what_helps_and_the_next_one_names_reviewers(beside: Beside) -> None:
    said = beside.steps(*STRICT)["workspace", "beta"]["says"]
    assert "OpenClaw lets beta ask nobody" in said
    assert reviews(beside, "beta") == ("strict", (), False, False)
    again = beside.steps(*STRICT)["workspace", "beta"]
    assert (again["standing"], "OpenClaw lets beta ask nobody" in again["says"]) == ("done", True)
    commands = [text for text in said.split("`")[1::2] if text.startswith("openclaw ")]
    assert commands
    for one in commands:
        subprocess.run(one, shell=True, env=environment(beside.env), check=True)
    step = beside.steps(*STRICT)["workspace", "beta"]
    assert "reviewers alpha" in step["done"]
    assert "restarted" in step["done"]
    assert reviews(beside, "beta") == ("strict", ("alpha",), True, True)


def test_a_configuration_that_a_person_changed_is_kept(beside: Beside) -> None:
    beside.steps(*STRICT)
    path = Workspace(beside.workspace("beta")).config
    path.write_text(path.read_text() + "\nlog:\n  level: debug\n")
    beside.allow("beta", ["alpha"])
    beside.configure(tools={"agentToAgent": {"enabled": True}})
    beside.steps(*STRICT)
    assert reviews(beside, "beta") == ("strict", (), False, False)


def test_setup_does_not_ask_without_a_terminal(beside: Beside) -> None:
    done = beside.setup()
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert not (beside.workspace("alpha") / ".mailboxd").exists()


def test_a_person_is_asked_and_no_is_the_default(beside: Beside) -> None:
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [*MAILBOXD, "setup"], cwd=beside.root, env=environment(beside.env), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said and select.select([ours], [], [], 60 * PATIENCE)[0]:
        said += os.read(ours, 4096)
    assert b"Do this? [y/N]" in said, said
    os.write(ours, b"\n")
    assert asked.wait(60 * PATIENCE) == 1
    os.close(ours)
    assert not (beside.workspace("alpha") / ".mailboxd").exists()


def test_it_ends_on_the_page_with_a_first_task_ready_to_be_sent(beside: Beside) -> None:
    skipped = [word for part in ("plugin", "service", "tools", "gateway", "questions") for word in ("--skip", part)]
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [*MAILBOXD, "setup", "--agent", "alpha", "--no-canary", *skipped], cwd=beside.root,
        env=environment(beside.env), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    for question, answer in (
        (b"[y/N]", b"y\n"),
        (b"[20.0]", b"\n"),
        (b"[50.0]", b"\n"),
        (b"[Y/n]", b"\n"),
        (b"/new", b""),
    ):
        while question not in said and select.select([ours], [], [], 60 * PATIENCE)[0]:
            said += os.read(ours, 4096)
        assert question in said, said
        os.write(ours, answer)
    link = re.search(rb"http://127[.0-9:]+/enter\S+", said)
    assert link is not None, said
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link[0].decode(), timeout=60) as page:
        assert page.url.endswith("example=1")
        assert "Introduce yourself" in page.read().decode()
    asked.send_signal(signal.SIGINT)
    assert asked.wait(60 * PATIENCE) == 0
    os.close(ours)


def test_init_takes_the_agent_from_openclaw(beside: Beside) -> None:
    def init(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MAILBOXD, "init", *words], cwd=beside.root, env=environment({**beside.env, **env}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180 * PATIENCE,
        )  # fmt: skip

    nobody = init()
    assert nobody.returncode == 69
    assert f"OpenClaw runs no agent in {beside.root}" in nobody.stderr
    offered = f"mailboxd init {beside.workspace('alpha')}"
    assert f"  {offered}  # alpha" in nobody.stderr
    done = init(*offered.split()[2:])
    assert done.returncode == 0, done.stderr
    assert config.load(Workspace(beside.workspace("alpha")).config).agent == "alpha"
    alone = init(str(beside.workspace("beta")), PATH=str(beside.root))
    assert alone.returncode == 69
    assert f"`mailboxd init {beside.workspace('beta')} --agent ID`" in alone.stderr
    again = init(str(beside.workspace("alpha")), PATH=str(beside.root))
    assert again.returncode == 0, "what is configured needs nobody to be asked"


def test_setup_writes_the_caps_of_a_day_where_nobody_has_confirmed_them(beside: Beside) -> None:
    old = Workspace(beside.workspace("alpha"))
    plan.create_workspace(old.root, "alpha", "2026-11-27T00:00:00.000Z", beside.env)
    old.config.write_text("agent: alpha\n")  # as an earlier mailboxd may have left it
    assert "at most 15 USD a day" in beside.setup("--dry-run", "--day-usd", "15").stdout
    assert not spending.of_agent(config.load(old.config)).holds
    words = ("--yes", "--no-canary", "--skip", "plugin", "--skip", "service", "--skip", "tools")
    beside.steps(*words)
    assert {
        (caps.holds, caps.most.usd)
        for agent in ("alpha", "beta")
        for caps in [spending.of_agent(config.load(Workspace(beside.workspace(agent)).config))]
    } == {(True, 20_000_000)}
    assert spending.of_host(beside.env).most.usd == 50_000_000
    beside.steps(*words, "--day-usd", "7", "--host-day-usd", "9")
    assert spending.of_agent(config.load(old.config)).most.usd == 7_000_000
    beside.steps(*words)
    assert spending.of_agent(config.load(old.config)).most.usd == 7_000_000, "what somebody has said is kept"
    assert spending.of_host(beside.env).most.usd == 9_000_000
    assert spending.of_host(beside.env).holds


def test_setup_is_idempotent_and_can_be_undone(beside: Beside) -> None:
    before = json.loads(beside.config.read_text())
    steps = beside.steps("--yes", "--no-canary")
    assert {key: one["standing"] for key, one in steps.items() if key[0] not in LEFT_OUT} == dict.fromkeys(
        [("workspace", "alpha"), ("workspace", "beta"), ("plugin", ""), ("skill", "alpha"), ("skill", "beta"),
         ("tools", "alpha"), ("tools", "beta")], "due",
    )  # fmt: skip
    assert all(one["done"] and not one["problem"] for key, one in steps.items() if key[0] not in LEFT_OUT)
    assert json.loads(beside.config.read_text()) != before
    again = beside.steps("--yes", "--no-canary")
    assert {one["standing"] for key, one in again.items() if key[0] not in LEFT_OUT} == {"done"}

    told = beside.setup("--yes", "--no-canary").stdout
    without_service = any(key[0] == "service" and one["standing"] == "left_out" for key, one in again.items())
    assert ("works while a daemon runs: `mailboxd -w " in told) == without_service

    (beside.workspace("alpha") / "mailbox" / "inbox" / "one.md").write_text("Work.\n")
    undone = beside.setup("--undo", "--yes", "--json")
    assert undone.returncode == 0, undone.stderr
    assert {one["problem"] for one in json.loads(undone.stdout)["steps"]} == {None}
    assert json.loads(beside.config.read_text()) == before
    assert not (beside.workspace("alpha") / "skills" / "mailboxd").exists()
    assert (beside.workspace("alpha") / "mailbox" / "inbox" / "one.md").read_text() == "Work.\n"
    assert (beside.workspace("alpha") / ".mailboxd" / "mailboxd.db").exists()
    second = beside.setup("--undo")
    assert (second.returncode, "nothing to undo" in second.stdout) == (0, True)


def test_a_workspace_is_paired_with_a_gateway_that_approves_by_itself(beside: Beside) -> None:
    token = "the-gateways-own"
    assert "– gateway   alpha: needs the gateway's token in" in beside.setup("--dry-run").stdout
    pair = [{"sent": None} if "sent" in frame else frame for frame in conversation("pair")]
    with Replay(pair, after=[pair, pair]) as replay:  # to pair, and to see twice that it works
        words = ("--yes", "--no-canary", "--agent", "alpha")
        url = replay.url
        beside.configure(gateway={"port": int(url.rpartition(":")[2])})
        plan = beside.setup("--dry-run", OPENCLAW_GATEWAY_TOKEN=token).stdout
        steps = beside.steps(*words, token=token)
    assert "owner-only tools (automations, gateway, plugins" in plan
    assert steps["gateway", "alpha"]["done"].startswith(f"paired with {url} as mailboxd alpha")
    assert {said["params"].get("auth", {}).get("token") for said in replay.heard} >= {token}
    assert "with operator.questions, so that open questions are prompts" in plan
    assert replay.heard[0]["params"]["scopes"] == ["operator.write", "operator.questions"]
    assert beside.steps("--dry-run", *words, token=token)["gateway", "alpha"]["standing"] == "done"


def test_the_device_asks_no_questions_where_the_person_leaves_them_out(beside: Beside) -> None:
    pair = [{"sent": None} if "sent" in frame else frame for frame in conversation("pair")]
    with Replay(pair, after=[pair, pair]) as replay:
        beside.configure(gateway={"port": int(replay.url.rpartition(":")[2])})
        words = ("--no-canary", "--agent", "alpha", "--skip", "questions")
        step = beside.steps("--yes", *words, token="the-gateways-own")["gateway", "alpha"]
    assert "questions" not in step["says"]
    assert [said["params"]["scopes"] for said in replay.heard][:1] == [["operator.write"]]
    again = beside.steps("--dry-run", *words)["gateway", "alpha"]
    assert (again["standing"], again["says"].endswith("connect gateway pair --questions`")) == ("done", True)


def test_a_gateway_that_wants_a_person_or_is_elsewhere_is_left_to_the_person(beside: Beside) -> None:
    for gateway in (
        {"nodes": {"pairing": {"autoApproveLocal": False}}},
        {"mode": "remote", "remote": {"url": "wss://gateway.example"}},
    ):
        beside.configure(gateway=gateway)
        step = beside.steps("--dry-run", token="the-gateways-own")["gateway", "alpha"]
        assert step["standing"] == "left_out"
        assert "wants a person to approve devices; run `mailboxd -w" in step["says"]


def test_undo_keeps_what_existed_before_setup(beside: Beside) -> None:
    env = environment(beside.env)
    words = [*MAILBOXD, "connect", "plugin", "install"]
    assert subprocess.run(words, cwd=beside.root, env=env, capture_output=True, timeout=180 * PATIENCE).returncode == 0
    before = beside.config.read_text()
    assert beside.steps("--yes", "--no-canary", "--skip", "tools")["plugin", ""]["standing"] == "done"
    assert beside.setup("--undo", "--yes").returncode == 0
    assert beside.config.read_text() == before


def test_after_a_failure_setup_reports_what_was_done_and_resumes(beside: Beside) -> None:
    whole = json.loads(beside.config.read_text())
    beside.config.write_text(json.dumps(whole | {"refusesPlugins": True}))
    done = beside.setup("--yes", "--no-canary")
    assert done.returncode == 69, done.stdout
    assert "✓ workspace alpha: created" in done.stdout
    assert "✗ plugin: `" in done.stdout
    assert "the registry is down" in done.stdout
    assert "✓ skill beta" in done.stdout
    assert "run `mailboxd setup` again" in done.stdout
    said = json.loads(beside.config.read_text())
    beside.config.write_text(json.dumps({name: value for name, value in said.items() if name != "refusesPlugins"}))
    steps = beside.steps("--yes", "--no-canary")
    assert (steps["plugin", ""]["standing"], steps["workspace", "alpha"]["standing"]) == ("due", "done")
    assert beside.setup("--undo", "--yes").returncode == 0
    assert json.loads(beside.config.read_text()) == whole


def test_a_shared_workspace_gets_no_mailbox(beside: Beside) -> None:
    inside = str(beside.workspace("alpha") / "inner")
    beside.company.rewrite({"alpha": {}, "beta": {"workspace": inside}, "gamma": {"workspace": "ws/gamma"}})
    done = beside.setup("--dry-run", "--json")
    told = json.loads(done.stdout)
    assert set(told["passed_over"]) == {"alpha", "beta"}
    assert {one["agent"] for one in told["steps"]} == {None, "gamma"}


def test_an_undo_ends_although_a_workspace_is_gone_and_the_tokens_of_another_are_damaged(beside: Beside) -> None:
    before = json.loads(beside.config.read_text())
    beside.steps("--yes", "--no-canary")
    shutil.rmtree(beside.workspace("beta"))
    (Workspace(beside.workspace("alpha")).state / "mcp.json").write_text("{")
    undone = beside.setup("--undo", "--yes")
    assert undone.returncode == 0, undone.stdout
    assert json.loads(beside.config.read_text()) == before
    assert "nothing to undo" in beside.setup("--undo").stdout


def test_an_unknown_agent_and_a_missing_openclaw(beside: Beside) -> None:
    done = beside.setup("--dry-run", "--agent", "nobody")
    assert (done.returncode, "OpenClaw has no agent nobody; it has alpha, beta" in done.stderr) == (69, True)
    nowhere = beside.setup("--dry-run", PATH="/nonexistent")
    assert (nowhere.returncode, "npm install -g openclaw" in nowhere.stderr) == (69, True)


def test_an_agent_cannot_set_up(beside: Beside) -> None:
    assert beside.setup("--yes", OPENCLAW_SHELL="exec").returncode == 1


def test_a_damaged_record_is_named(beside: Beside) -> None:
    record = SetupRecord(beside.env)
    record.path.parent.mkdir(parents=True)
    record.path.write_text('{"done": [1]}')
    record.path.chmod(0o600)
    done = beside.setup("--undo", "--yes")
    assert (done.returncode, f"{record.path} cannot be read" in done.stderr) == (78, True), done.stderr


def test_services_are_set_up_and_undone(beside: Beside, manager: UserManager) -> None:
    env = beside.env | {"HOME": manager.env["HOME"], "PATH": f"{beside.env['PATH']}:{os.environ['PATH']}"}
    done = manager.call(*MAILBOXD, "setup", "--yes", "--no-canary", "--skip", "tools", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ service alpha: mailboxd@" in done.stdout
    units = manager.systemctl("list-units", "--plain", "--no-legend", "--state=active", "mailboxd@*")
    assert len(units.splitlines()) == 2, units
    undone = manager.call(*MAILBOXD, "setup", "--undo", "--yes", env=env)
    assert undone.returncode == 0, undone.stderr
    assert manager.systemctl("list-units", "--plain", "--no-legend", "mailboxd@*") == ""


def test_where_one_service_serves_all_none_is_added(beside: Beside, manager: UserManager) -> None:
    env = beside.env | {"HOME": manager.env["HOME"], "PATH": f"{beside.env['PATH']}:{os.environ['PATH']}"}
    words = ("--yes", "--no-canary", "--skip", "tools")
    done = manager.call(*MAILBOXD, "setup", *words, "--agent", "alpha", "--skip", "service", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    done = manager.call(*MAILBOXD, "connect", "service", "install", "--all", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    done = manager.call(*MAILBOXD, "setup", *words, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its daemon runs beside those of mailboxd.service" in done.stdout
    assert "mailboxd.service starts its daemon" in done.stdout
    assert manager.systemctl("list-units", "--plain", "--no-legend", "mailboxd@*") == ""
    eventually(lambda: "2 of 2 daemons are ready" in manager.systemctl("status", "mailboxd.service"), 30)


# Parts

BROUGHT = {"entries": {"openai": {"config": {"personality": "friendly"}}}}
"""The defaults that OpenClaw shows once the section exists, though they are in no file."""


@pytest.mark.parametrize(
    ("there", "others", "now", "removed"),
    [
        ([], {"entries": {}}, {"entries": {"mailboxd": {"enabled": False}}}, "plugins"),
        ([], BROUGHT, {"entries": {"mailboxd": {"enabled": False}, **BROUGHT["entries"]}}, "plugins"),
        ([], BROUGHT, {"entries": {"mailboxd": {}, "openai": {"config": {}}}}, "plugins.entries.mailboxd"),
        ([], None, {"entries": {"mailboxd": {}}}, "plugins.entries.mailboxd"),
        (["plugins"], {"slots": {}, "entries": {}}, {"slots": {}, "entries": {"mailboxd": {}}}, "plugins.entries"),
        (list(plan.CONFIG_PATHS), {"entries": {}}, {"entries": {"mailboxd": {}}}, ""),
        ([], {"entries": {}}, None, ""),
    ],
)
def test_only_objects_created_by_the_installation_are_removed(
    there: list[str], others: Any, now: Any, removed: str
) -> None:
    assert plan.outermost(now, {"there": there, "others": others}) == removed
