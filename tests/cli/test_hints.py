"""Every command that a text suggests runs, as it is printed, in the state that prints it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import Failed, Permanence, Unknown
from mailboxd.core.vocabulary import Gate, WeakSpec
from mailboxd.errors import EXIT_NO
from mailboxd.formats.mailbox import lock
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage, child, make

TASK = "---\ntype: task\ntask_id: q3\nfrom: operator\n{}---\n\n# Task: Q3\n\n## Instructions\n\nDo it.\n"
QUOTED = re.compile(r"`(mailboxd [^`]+)`|(?:->|\bor|,) (mailboxd [^#,;(\n]+)")
ELSEWHERE = re.compile(r"mailboxd (-w \S+ )?(run|doctor)\b")
"""Run by tests/doctor/test_hints.py, as a person would, since they are a daemon and 20 seconds."""


def job(stage: Stage, said: str | Failed | Unknown | None = None, **policy: object) -> None:
    stage.create("job", policy=Policy(**policy))  # type: ignore[arg-type]  # fields by name
    stage.start()
    if said is not None:
        stage.end_turn("job", said)


@pytest.mark.parametrize("verb", ["why", "show"])
def test_a_missing_task_is_answered_with_those_that_are_open(stage: Stage, verb: str) -> None:
    assert "none is open" in stage.run(verb).stderr
    for number in range(6):
        stage.create(f"job-{number}")
    said = stage.run(verb)
    assert said.exit_code == 2
    assert "open are job-0, job-1, job-2, job-3, job-4 ...;" in said.stderr
    assert f"`{stage.program} ls --all --children`" in said.stderr


def new(stage: Stage) -> None:
    stage.create("job")


def held(stage: Stage) -> None:
    stage.create("job", policy=Policy(budget_usd=0.0, budget_tokens=0))


def cancelled(stage: Stage) -> None:
    stage.create("job")
    stage.run("cancel", "job")


def weak(stage: Stage) -> None:
    spec, policy = Spec("", "Do it"), Policy(weak=WeakSpec.ASK)
    stage.handle(None, NewTask("job", None, "job", "operator", "job", spec, policy))


def rejected(stage: Stage) -> None:
    stage.create("job")
    (stage.ws.inbox / "bad.md").write_text("# Task\n\n## Goal\n")
    stage.receive()


def doubtful(stage: Stage) -> None:
    stage.create("job")
    (stage.ws.inbox / "q3.md").write_text(TASK.format("prority: 5\n"))
    stage.receive()


def paused(stage: Stage) -> None:
    stage.create("job", child("a"))
    stage.run("pause", "job", "--note", "until Monday")


LOST = Unknown("the gateway went away", "run_9", looked_up=True)
STATES: dict[str, Callable[[Stage], object]] = {
    "new": new,
    "executing": job,
    "completed": lambda stage: job(stage, "Twelve figures"),
    "failed": lambda stage: job(stage, Failed("overloaded"), max_attempts=1),
    "backing off": lambda stage: job(stage, Failed("overloaded"), max_attempts=3),
    "circuit open": lambda stage: job(stage, LOST, max_attempts=1),
    "on hold": held,
    "paused": paused,
    "asking": lambda stage: job(stage, "---\ntype: question\n---\n\nWhich figures?\n"),
    "awaiting approval": lambda stage: ask(stage, "job", PUBLISH),
    "weak spec": weak,
    "rejected": rejected,
    "doubtful": doubtful,
    "cancelled": cancelled,
}
LOOKS = (
    ["status"], ["inbox"], ["why", "job"], ["show", "job"], ["show", "--tree", "job"], ["ls"], ["approve"],
    ["show", "nobody"], ["show", "zzzzzz"],
)  # fmt: skip
ORDERS = (
    ["retry", "job"],
    ["resolve", "--done", "job"],
    ["resolve", "--failed", "job"],
    ["resume", "job"],
    ["answer", "job", "x"],
)
"""Where one is refused, that names a way, too."""


def suggested(stage: Stage, look: list[str]) -> Iterator[str]:
    result = stage.run(*look)
    for quoted, pointed in QUOTED.findall(result.stdout + result.stderr):
        yield (quoted or pointed).partition("  #")[0].strip().rstrip(".")


def run_as_printed(stage: Stage, command: str) -> int:
    """Where a person is who asked with -w: outside the workspace."""
    said, *arguments = shlex.split(command, comments=True)
    assert said == "mailboxd"
    session = Session(clock=stage.clock, pause=stage.pause)
    env = {"EDITOR": "sed -i '$a## Goal\\n\\nTwelve figures.'"}
    return CliRunner().invoke(program, arguments, obj=session, prog_name="mailboxd", env=env).exit_code


def fresh(root: Path, state: str) -> Stage:
    stage = make(root / "alpha")
    STATES[state](stage)
    return stage


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_every_suggested_command_runs_in_the_state_that_suggests_it(tmp_path: Path, state: str) -> None:
    tried = set()
    seen = fresh(tmp_path / "seen", state)
    for number, look in enumerate((*LOOKS, *ORDERS)):
        first = seen if look in LOOKS else fresh(tmp_path / f"{number}", state)
        for other, command in enumerate(suggested(first, look)):
            known = re.sub(r"(?<=-w )\S+|(?<=--dismiss )\w+|(?<=show )\w+", "", command)
            if ELSEWHERE.match(command) or known in tried:
                continue
            tried.add(known)
            stage = fresh(tmp_path / f"{number}-{other}", state)  # ids differ, so what it says is read again
            printed = list(suggested(stage, look))[other]
            assert run_as_printed(stage, printed) == 0, f"after `mailboxd {shlex.join(look)}`: {printed}"
    assert tried or state == "executing"


def failed(error: str) -> Callable[[Stage], object]:
    return lambda stage: job(stage, Failed(error, permanence=Permanence.PERMANENT))


def many_rejected(stage: Stage) -> None:
    for number in range(60):
        (stage.ws.inbox / f"bad{number}.md").write_text(f"---\ntype: nothing\n---\n\n{number}\n")
        stage.receive()


def broad(stage: Stage) -> None:
    stage.create("job", *(child(f"c{number}") for number in range(450)))


def unreviewed(stage: Stage) -> None:
    job(stage, "Twelve figures", gates=(Gate.QUALITY_GATE,), reviewers=())


def misconfigured(stage: Stage) -> None:
    stage.ws.config.write_text("agent: alpha\nzzqqxx: 1\n")


def unsigned(stage: Stage) -> None:
    (stage.ws.root / "order.md").write_text(TASK.format(""))


FURTHER: list[tuple[Callable[[Stage], object], str, str]] = [
    (new, "connect keys list", "connect keys create"),
    (unsigned, "connect keys sign order.md", "connect keys create --operator"),
    (new, "doctor zqzqzq", "doctor --names"),
    (misconfigured, "config", "config --all"),
    (lambda _: None, "ls", "send"),
    (new, "inbox --dismiss zzzzzz", "inbox"),
    (new, "retry cause:zzzzzz", "inbox"),
    (new, "resume --agent beta", "status"),
    (new, "approve job", "approve"),
    (new, "send --to ghost x", "fleet"),
    (failed("context_overflow: too long"), "why job", "show job --spec"),
    (failed("its outcome was to be that of b, which was skipped"), "why job", "show job --tree"),
    (unreviewed, "why job", "retry job --reviewers none"),
    (many_rejected, "inbox", "inbox --all"),
    (broad, "show job --tree", "show job --tree --all"),
]
"""States, what is asked there, and a command that is printed."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "look", "printed"), FURTHER, ids=[f"{number}-{one[1]}" for number, one in enumerate(FURTHER)]
)
def test_what_further_states_print_runs_as_well(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, state: Callable[[Stage], object], look: str, printed: str
) -> None:
    state(stage)
    monkeypatch.chdir(stage.ws.root)
    commands = [found for found in suggested(stage, look.split()) if re.search(rf" {printed}$", found)]
    assert commands, stage.run(*look.split()).output
    for command in commands:
        assert run_as_printed(stage, command) in (0, EXIT_NO if printed == "fleet" else 0), command


@pytest.mark.parametrize("look", [*LOOKS[:4], ["hub", "status"], ["hub", "invite", "beta"]], ids=" ".join)
def test_where_no_daemon_can_start_nothing_says_to_start_one(stage: Stage, look: list[str]) -> None:
    stage.create("job")
    stage.ws.config.write_text("agent: alpha\nlimts: {}\n")
    assert not [said for said in suggested(stage, look) if re.match(r"mailboxd (-w \S+ )?run", said)]


@pytest.mark.parametrize("look", [["hub", "status"], ["hub", "invite", "beta"], ["hub", "leave"]], ids=" ".join)
def test_a_host_without_a_hub_is_told_by_commands_that_run(stage: Stage, look: list[str]) -> None:
    for printed in suggested(stage, look):
        assert run_as_printed(stage, printed) == 0, printed


def test_what_is_held_names_the_command_that_takes_it_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.create("job")
    monkeypatch.setattr(lock, "holder", lambda _ws: 1)
    (printed,) = suggested(stage, ["cancel", "job"])
    assert run_as_printed(stage, printed) == 0
    (refused,) = suggested(stage, ["undo", "job"])
    assert run_as_printed(stage, refused) == 0


def test_openclaw_is_named_by_its_configured_command(stage: Stage) -> None:
    job(stage, LOST, max_attempts=1)
    assert "-> openclaw tasks show agent:alpha:" in stage.run("why", "job").stdout
    stage.knows(command="npx openclaw@2026.9.6")
    assert "-> npx openclaw@2026.9.6 tasks show agent:alpha:" in stage.run("why", "job").stdout


def test_a_budget_that_is_still_used_up_names_an_order_that_raises_it(stage: Stage) -> None:
    held(stage)
    (printed, *_) = suggested(stage, ["retry", "job", "--budget-usd", "0"])
    assert "--budget-usd 0.01 --budget-tokens 1" in printed
    assert run_as_printed(stage, printed) == 0
