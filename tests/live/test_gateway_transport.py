"""`openclaw.transport: gateway` on the real gateway: the same outcomes as `openclaw agent`, and what may go wrong.

Unlike the other live tests these import mailboxd: a turn is started as the daemon starts it, and judged by the code
that judges it there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest

from mailboxd.core.outcomes import Aborted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_OK, EXIT_TRY_AGAIN
from mailboxd.host.clock import SystemClock
from mailboxd.perform.agents import last_tool, process
from mailboxd.perform.agents.alive import has_ended
from mailboxd.perform.agents.ask import finish
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.gateway import pairing
from mailboxd.perform.agents.gateway.transport import GatewayTransport, Mark, pairing_file
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.openclaw_runs import RunStatus, parse_run
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import Child
from tests.e2e.support import BIN, eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import Found, FoundApart, some_of
from tests.live.gateway import Gateway, run_of
from tests.live.install import OLDER, OPENCLAW
from tests.live.model import Exec, Fault, Hang, Model, Step, Text

CLI = OpenClaw(("openclaw",))
GATEWAY = {"openclaw": {"transport": "gateway"}}
OWNERS_TOOLS = {
    "automations", "gateway", "plugins", "sessions", "conversations_list", "conversations_send", "conversations_turn",
    "nodes", "terminal", "screen", "computer", "portal", "mobile_ui", "openclaw",
}  # fmt: skip


class Turns:
    """Turns of alpha, as the daemon would start them; each in a session of its own."""

    def __init__(self, company: LiveCompany) -> None:
        self.company = company
        self.directory = company["alpha"].root / ".mailboxd" / "turns"
        self.pairing = pairing_file(company["alpha"].root.resolve(), company.gateway.env)
        self.gateway = GatewayTransport(CLI, self.pairing, company.gateway.env)
        self._numbers = itertools.count(1)

    def begin(
        self,
        text: str = "Work.",
        *,
        by: OpenClaw | None = None,
        timeout: int = 60,
        call: str = "",
        agent: str = "alpha",
    ) -> Turn:
        call = call or f"trn_{uuid.uuid4().hex}"
        key = f"agent:{agent}:mailboxd:{call.lower()}"
        above = self.directory / f"{next(self._numbers)}"
        above.mkdir(parents=True)
        above.joinpath(call).mkdir()
        argv = (by or self.gateway).turn_argv(agent, key, above / call / PROMPT, timeout)
        prompt = f"[mailboxd] work turn · task {call} · attempt 1\n\n{text}".encode()
        launcher, environment = process if by else self.gateway, self.company.gateway.env
        child = launcher.spawn(above / call, argv, environment, str(above / call), files={PROMPT: prompt})
        return Turn(child, self.company.gateway, call, key)

    def run(self, text: str = "Work.", **how: object) -> Outcome:
        return self.begin(text, **how).outcome()  # type: ignore[arg-type]


class Turn:
    """One turn in flight."""

    def __init__(self, child: Child, gateway: Gateway, call: str, key: str) -> None:
        self.child = child
        self.call = call
        self.key = key
        self.gateway = gateway

    @cached_property
    def ended(self) -> Exit:
        return finish(self.child, 200)

    def outcome(self) -> Outcome:
        return classify(self.ended)

    def ledger(self) -> RunStatus:
        done = self.gateway.openclaw("tasks", "show", self.key, "--json")
        return parse_run(Exit(done.returncode, done.stdout.encode())).status


def paired(company: LiveCompany) -> Turns:
    """Alpha's workspace, paired by the operator's command."""
    alpha = company["alpha"]
    done = alpha.call("connect", "gateway", "pair", env={"OPENCLAW_GATEWAY_TOKEN": company.gateway.token})
    assert done.returncode == EXIT_OK, done.stderr
    return Turns(company)


@pytest.fixture
def turns(found: Found) -> Iterator[Turns]:
    made = paired(found())
    yield made
    made.gateway.close()


def until_asked(model: Model, turn: Turn) -> None:
    eventually(lambda: model.made(task=turn.call) or has_ended(turn.child.pidfd), 60)
    assert model.made(task=turn.call), turn.outcome()


def carrier(place: Path) -> int:
    """The pid of the program that carries turns of the calls below this directory."""
    marks = (Mark.read(call.parent) for call in place.rglob("call"))
    return max((pid for mark in marks for pid in mark.takers), default=0)


# ---------------------------------------------------------------- the same as the CLI

CASES: dict[str, tuple[Step, ...]] = {
    "text": (Text("Forty-two elephants, naïvely: 🐘."),),
    "a tool, then text": (Exec("echo one >> ran"), Text("Ran.")),
    "a tool, then nothing": (Exec("echo one >> ran"), Text("")),
    "cut": (Text("Half a sent", finish="length"),),
    "nothing, twice": (Text(""),),
    "refused by the model": (Fault(400),),
    "REPLY_SKIP": (Text("REPLY_SKIP"),),
}


@pytest.mark.parametrize("case", some_of(CASES, "text", "a tool, then nothing", "cut", "refused by the model"))
def test_the_outcome_is_that_of_the_cli(turns: Turns, case: str) -> None:
    turns.company.model.on(*CASES[case])

    def comparable(outcome: Outcome) -> Outcome:
        if isinstance(outcome, Succeeded | Failed):
            assert outcome.run_id
            assert isinstance(outcome, Failed) or (outcome.model, bool(outcome.session_ref)) == ("scripted/alpha", True)
            return replace(outcome, run_id=None, session_ref=None)
        return outcome

    over_the_gateway, over_the_cli = turns.run(), turns.run(by=CLI)
    assert comparable(over_the_gateway) == comparable(over_the_cli)
    assert not isinstance(over_the_gateway, Unknown)


def test_the_last_tool_is_known_while_the_turn_runs(turns: Turns) -> None:
    turns.company.model.on(Exec("echo one >> ran"), Text("Ran.", seconds=3.0))
    turn = turns.begin()
    directory = Path(str(turn.child.directory))
    used = eventually(lambda: last_tool.used(directory, SystemClock().now()), 10)
    assert used
    assert used[0] == "exec"
    assert used[1] <= SystemClock().now()
    assert isinstance(turn.outcome(), Succeeded)


def test_a_turn_that_times_out_has_failed(turns: Turns) -> None:
    turns.company.model.on(Hang())
    outcome = turns.run(timeout=3)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("the turn timed out")


def test_the_run_id_is_the_call_id_and_a_second_start_executes_nothing(turns: Turns) -> None:
    turns.company.model.on(Text("Once."))
    first = turns.begin()
    assert first.outcome() == turns.begin(call=first.call).outcome()
    outcome = first.outcome()
    assert isinstance(outcome, Succeeded)
    assert outcome.run_id == first.call
    assert len(turns.company.model.made(task=first.call)) == 1


# ---------------------------------------------------------------- large, and byte for byte


def test_a_large_message_arrives(turns: Turns) -> None:
    turns.company.model.on(Text("Read."))
    text = "".join(f"{number:07d}\n" for number in range(4_194_304 // 8 - 100))
    turn = turns.begin(text)
    assert isinstance(turn.outcome(), Succeeded)
    call, *_ = turns.company.model.made(task=turn.call)  # OpenClaw may go on to tidy up so large a session
    assert text.strip() in call.text


def test_a_message_arrives_as_it_is(turns: Turns) -> None:
    text = "tabs\tand  spaces  \r\nquotes \" ' ` \\ \\n\n\n\n{{braces}} <tags> &amp; naïve 🐘 \u2028 e\u0301 \x01 end"
    turn = turns.begin(text)
    assert isinstance(turn.outcome(), Succeeded)
    (call,) = turns.company.model.made(task=turn.call)
    assert text in call.text


def test_a_message_that_no_frame_holds_is_refused(turns: Turns) -> None:
    outcome = turns.run("x" * 26_300_000)
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (False, Permanence.PERMANENT)
    assert "the limit is 26214400" in outcome.error


# ---------------------------------------------------------------- stopping


def test_a_turn_that_is_stopped_is_aborted(turns: Turns) -> None:
    model = turns.company.model
    model.on(Hang())
    turn = turns.begin()
    until_asked(model, turn)
    turn.child.terminate()
    assert turn.ended == Exit(143, b"")
    assert isinstance(turn.outcome(), Aborted)
    assert eventually(lambda: turn.ledger() is RunStatus.ABORTED, 20)


def an_abort_that_nobody_confirms_is_unknown(company: LiveCompany, turns: Turns) -> None:
    company.model.on(Hang())
    turn = turns.begin()
    until_asked(company.model, turn)
    assert company.gateway.process is not None
    os.kill(company.gateway.process.pid, signal.SIGSTOP)
    try:
        turn.child.terminate()
        outcome = turn.outcome()
    finally:
        os.kill(company.gateway.process.pid, signal.SIGCONT)
    assert turn.ended.rc == 143
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == turn.call


# ---------------------------------------------------------------- a gateway that goes, or does not want us


def test_with_a_gateway_that_stands_still_an_abort_is_unknown_and_one_that_is_down_has_started_nothing(
    found_apart: FoundApart,
) -> None:
    company = found_apart(run_of(["alpha"]))
    turns = paired(company)
    an_abort_that_nobody_confirms_is_unknown(company, turns)
    company.model.on(Hang())
    turn = turns.begin()
    until_asked(company.model, turn)
    company.gateway.kill()
    mark = Path(turn.child.directory)
    assert eventually(lambda: Mark.read(mark).stage == "AWAY", 30)
    assert not has_ended(turn.child.pidfd), "it waits for the gateway"

    outcome = turns.run()
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (False, Permanence.TRANSIENT)
    assert outcome.error.startswith("Gateway not reachable at ws://127.0.0.1:")


def _other_token(turns: Turns) -> None:
    known = pairing.read(turns.pairing)
    assert known is not None
    pairing.write(turns.pairing, replace(known, token="not-the-token"))


def _no_pairing(turns: Turns) -> None:
    pairing.remove(turns.pairing)


def _removed(turns: Turns) -> None:
    known = pairing.read(turns.pairing)
    assert known is not None
    done = turns.company.gateway.openclaw("devices", "remove", known.device.id)
    assert done.returncode == 0, done.stderr


def _revoked(turns: Turns) -> None:
    known = pairing.read(turns.pairing)
    assert known is not None
    done = turns.company.gateway.openclaw("devices", "revoke", "--device", known.device.id, "--role", "operator")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("spoil", some_of((_other_token, _no_pairing, _removed, _revoked), _no_pairing, _revoked))
def test_a_device_that_the_gateway_does_not_know_starts_nothing(turns: Turns, spoil: Callable[[Turns], None]) -> None:
    spoil(turns)
    turn = turns.begin()
    outcome = turn.outcome()
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (False, Permanence.PERMANENT)
    assert outcome.error.startswith("unauthorized: ")
    assert "mailboxd connect gateway pair" in outcome.error
    assert turns.company.model.made(task=turn.call) == []
    assert turns.company["alpha"].call("connect", "gateway", "status").returncode == EXIT_NO


def test_an_unknown_agent_is_refused_for_good(turns: Turns) -> None:
    outcome = turns.run(agent="nobody")
    assert isinstance(outcome, Failed)
    assert (outcome.started, outcome.permanence) == (False, Permanence.PERMANENT)


def test_the_device_may_run_turns_and_nothing_more(turns: Turns) -> None:
    stands = turns.company["alpha"].json("connect", "gateway", "status")
    assert stands["scopes"] == ["operator.write"]
    (device,) = [
        found for found in json.loads(turns.company.gateway.openclaw("devices", "list", "--json").stdout)["paired"]
        if found["deviceId"] == stands["device"]
    ]  # fmt: skip
    assert (device["displayName"], device["scopes"]) == (stands["name"], ["operator.write"])


# ---------------------------------------------------------------- pairing


@pytest.mark.parametrize("release", some_of([OPENCLAW, OLDER[-1]], OPENCLAW))
def test_a_gateway_that_wants_a_person_is_paired_by_pasting_what_is_printed(
    found_apart: FoundApart, release: str
) -> None:
    """From a daemon that cannot start to one that works, on the newest and the oldest version."""
    company = found_apart(run_of(["alpha"]), start=False, release=release, openclaw={"transport": "gateway"})
    gateway, alpha = company.gateway, company["alpha"]
    config = json.loads(gateway.config.read_text())
    config["gateway"]["nodes"] = {"pairing": {"autoApproveLocal": False}}
    gateway.config.write_text(json.dumps(config))
    gateway.start()

    def pasted(said: str, command: str) -> subprocess.CompletedProcess[str]:
        """The command of these words that a text prints, in a shell."""
        printed = re.search(rf"{command}[^`,\n]*", said)
        assert printed is not None, said
        env = {
            **gateway.env,
            "PATH": f"{BIN}{os.pathsep}{gateway.env['PATH']}",
            "OPENCLAW_GATEWAY_TOKEN": gateway.token,
        }
        return subprocess.run(
            ["sh", "-c", printed[0].strip()], cwd=alpha.root, env=env, capture_output=True, text=True, timeout=300
        )

    refused = alpha.call("run", "--until-idle")
    assert refused.returncode == EXIT_CONFIG, refused.stderr
    pair, status = (f"mailboxd connect gateway {verb}" for verb in ("pair", "status"))
    told = alpha.call("doctor", "--json", seconds=300)
    fixes = "\n".join(fix for one in json.loads(told.stdout)["findings"] for fix in one["fixes"])
    first = pasted(fixes, pair)
    assert first.returncode == EXIT_TRY_AGAIN, first.stderr
    unpaired = alpha.call("connect", "gateway", "status")
    assert unpaired.returncode == EXIT_NO
    assert pasted(unpaired.stdout, pair).returncode == EXIT_TRY_AGAIN
    shown = pasted("openclaw devices approve --latest", "openclaw devices approve")
    (request,) = re.findall(r"openclaw devices approve (\S+)", first.stdout)
    assert request in shown.stdout + shown.stderr
    approved = pasted(first.stdout, "openclaw devices approve")
    assert approved.returncode == 0, approved.stderr
    again = pasted(first.stdout, pair)
    assert again.returncode == EXIT_OK, again.stderr
    assert pasted(status, status).returncode == EXIT_OK
    alpha.drop("work.md", "Say that it is done.\n")
    assert alpha.call("run", "--until-idle", seconds=300).returncode == EXIT_OK
    assert set(alpha.phases().values()) == {"completed"}


def test_unpairing_removes_the_device_here_and_there(turns: Turns) -> None:
    alpha = turns.company["alpha"]
    device = alpha.json("connect", "gateway", "status")["device"]
    assert turns.pairing.stat().st_mode & 0o777 == 0o600
    assert alpha.call("connect", "gateway", "unpair").returncode == EXIT_OK
    assert not turns.pairing.exists()
    assert device not in turns.company.gateway.openclaw("devices", "list", "--json").stdout


def test_two_workspaces_are_two_devices_and_neither_displaces_the_other(found: Found) -> None:
    company = found(daemons=["alpha", "beta"])
    token = {"OPENCLAW_GATEWAY_TOKEN": company.gateway.token}
    for name in ("alpha", "beta", "alpha"):
        assert company[name].call("connect", "gateway", "pair", env=token).returncode == EXIT_OK
    devices = [company[name].json("connect", "gateway", "status")["device"] for name in ("alpha", "beta")]
    assert len(set(devices)) == 2


# ---------------------------------------------------------------- the daemon


def test_a_daemon_works_over_the_gateway(found: Found) -> None:
    company = found(daemons=["alpha"], **GATEWAY, archive={"prompts": "text"})
    alpha, model = company["alpha"], company.model
    alpha.call("connect", "gateway", "unpair")  # the device of another test: one worker has one gateway, and one state
    refused = alpha.call("run", "--until-idle")
    assert refused.returncode == EXIT_CONFIG
    assert "mailboxd connect gateway pair" in refused.stderr
    paired(company)
    model.on(Text("Forty-two elephants."), agent="beta")
    model.on(Text("Together."), kind="synthesis")
    plan = {"count": {"agent": "beta", "description": "Count"}, "write": {"agent": "self", "description": "Write"}}
    alpha.start()
    alpha.drop("go.md", task("over-the-gateway", plan=plan))
    alpha.until("over-the-gateway")
    assert alpha.task("over-the-gateway")["result"] == "Together."
    assert set(model.per_attempt().values()) == {1}
    runs = [attempt["run_id"] for attempt in alpha.attempts("over-the-gateway.count")]
    assert len(runs) == 1
    assert runs[0].startswith("trn_")
    each_turn_says_what_was_asked_and_by_which_model(company, "over-the-gateway", "alpha")
    each_turn_says_what_was_asked_and_by_which_model(company, "over-the-gateway.count", "beta")
    assert "openclaw" not in "".join(path.name for path in (alpha.root / ".mailboxd" / "turns").iterdir())
    company.at_rest()


def each_turn_says_what_was_asked_and_by_which_model(company: LiveCompany, name: str, agent: str) -> None:
    alpha = company["alpha"]
    turns = json.loads(alpha.call("show", name, "--json").stdout)["turns"]
    assert turns
    asked = [call.text for call in company.model.calls]
    for turn in turns:
        assert (turn["agent"], turn["model"], bool(turn["session"])) == (agent, f"scripted/{agent}", True)
        assert turn["run"].startswith("trn_")
        said = json.loads(alpha.call("show", name, "--prompt", str(turn["number"]), "--json").stdout)["text"]
        assert hashlib.sha256(said.encode()).hexdigest() == turn["prompt"]["sha256"]
        assert any(said.strip() in text for text in asked), "the model has read exactly this"


def test_a_turn_outlives_its_daemon(found: Found) -> None:
    company = found(daemons=["alpha"], **GATEWAY)
    paired(company)
    alpha, model = company["alpha"], company.model
    model.on(Hang("Survived."), task="adopted")
    alpha.start()
    alpha.drop("go.md", task("adopted"))
    eventually(lambda: model.made(task="adopted"), 60, alpha.last_words)
    alpha.kill()
    alpha.start()
    model.release()
    assert alpha.until("adopted")["result"] == "Survived."
    assert len(model.made(task="adopted")) == 1
    company.at_rest()


# ---------------------------------------------------------------- many turns, and what kills them

MANY = 100


def crowd(found_apart: FoundApart, children: int) -> LiveCompany:
    """Alpha with a plan whose children all run at once over a gateway that lets them."""
    company = found_apart(run_of(["alpha", "beta"]), daemons=[], start=False)
    config = json.loads(company.gateway.config.read_text())
    config["agents"]["defaults"]["maxConcurrent"] = 2 * MANY
    company.gateway.config.write_text(json.dumps(config))
    company.gateway.start()
    limits = {"turns": children, "turns_per_agent": children}
    patient = {"transport": "gateway", "turn_timeout_seconds": 1800}  # of the gateway, which has a lot to do
    company.employ("alpha", {"openclaw": patient, "limits": limits, "synthesis": "concat"})
    paired(company)
    return company


def crowded(company: LiveCompany, name: str, children: int) -> None:
    plan = {f"c{number}": {"agent": "beta", "description": f"Part {number}"} for number in range(children)}
    company["alpha"].start()
    company["alpha"].drop("go.md", task(name, plan=plan))


def status_of(pid: int) -> tuple[float, float]:
    """Seconds of CPU and megabytes of memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"), resident / 1024


@pytest.mark.soak
def test_a_hundred_turns_in_flight_survive_the_daemon_and_the_program(found_apart: FoundApart) -> None:
    company = crowd(found_apart, MANY)
    alpha, model = company["alpha"], company.model
    turns = alpha.root / ".mailboxd" / "turns"
    model.on(Hang("Part done."), agent="beta")
    crowded(company, "crowd", MANY)
    eventually(lambda: model.most_at_once >= MANY, 600, alpha.last_words)
    first = carrier(turns)
    seconds, resident = status_of(first)
    print(f"{MANY} in flight: {resident:.1f} MiB, {seconds / MANY:.4f} s CPU per turn so far")
    assert resident <= 100
    assert seconds <= 0.02 * MANY
    alpha.kill()
    os.kill(first, signal.SIGKILL)
    alpha.start()
    eventually(lambda: carrier_of_all(turns) not in (0, first), 200, alpha.last_words)
    second = carrier_of_all(turns)
    os.kill(second, signal.SIGKILL)
    eventually(lambda: carrier_of_all(turns) not in (0, first, second), 200, alpha.last_words)
    model.release()
    alpha.until("crowd")
    assert set(model.per_attempt().values()) == {1}
    assert len(model.calls) == MANY
    company.at_rest()


def carrier_of_all(turns: Path) -> int:
    """The pid of the one program that carries all turns of beta, or 0."""
    marks = [Mark.read(call.parent) for call in turns.rglob("call")]
    pids = {mark.takers[-1] for mark in marks if mark.is_turn and mark.takers}
    return pids.pop() if len(pids) == 1 and len(marks) >= MANY else 0


LOST_TOOL = "missing tool result in session history"
"""What OpenClaw tells a model of a tool that its death kept from running, or from answering."""


@pytest.mark.parametrize("seed", some_of((1, 2)))
def test_daemon_program_and_gateway_killed_at_random_points(found_apart: FoundApart, seed: int) -> None:
    """What is counted is the side effect that each turn orders: it happens once."""
    chance, children = random.Random(seed), 12
    company = crowd(found_apart, children)
    alpha, beta, model = company["alpha"], company["beta"], company.model
    for number in range(children):
        model.on(
            Exec(f"echo x >> ran{number}"), Text("Part done.", seconds=5.0), agent="beta", text=f"Part {number}\\b"
        )
    crowded(company, f"chaos{seed}", children)
    for victim in chance.sample(["daemon", "program", "gateway", "program"], 4):
        made = len(model.calls) + chance.randrange(children)
        with suppress(AssertionError):  # at the end there are none left
            eventually(lambda made=made: len(model.calls) >= made, 20)  # type: ignore[misc]
        if victim == "daemon":
            alpha.kill()
            alpha.start()
        elif victim == "gateway":
            company.gateway.kill()
            company.gateway.start()
        elif pid := carrier(alpha.root / ".mailboxd" / "turns"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    alpha.until(f"chaos{seed}")
    for number in range(children):
        ran = beta.root / f"ran{number}"
        # a gateway killed between the model's answer and its tool says so to the model; ours does not repeat the tool
        is_told = any(
            LOST_TOOL in result
            for call in model.made(agent="beta")
            if re.search(rf"Part {number}\b", call.text)
            for result in call.results
        )
        assert (ran.read_text() if ran.exists() or not is_told else "x\n") == "x\n", number
    company.at_rest()


def test_only_the_tools_of_openclaws_owner_are_withheld(turns: Turns) -> None:
    """docs/integrations.md lists them."""

    def offered(by: OpenClaw | None = None) -> set[str]:
        turn = turns.begin(by=by)
        assert isinstance(turn.outcome(), Succeeded)
        (call,) = turns.company.model.made(task=turn.call)
        return set(call.tools)

    over_the_gateway, over_the_cli = offered(), offered(CLI)
    assert {"read", "write", "edit", "exec"} <= over_the_gateway <= over_the_cli
    assert over_the_cli - over_the_gateway <= OWNERS_TOOLS
