"""What coordination costs: one plan of ten parts over three agents, three ways, on a real OpenClaw.

    make bench-cost                       # all ways, undisturbed and with the gateway killed; about 25 minutes
    python -m bench.coordination --only native,text --kill no

`native` is OpenClaw's own `sessions_spawn`, whose results are announced; `swarm` the same with results that are
collected by `agents_wait`. `skill` is the loop of the clawflow skill (ClawHub, srikanth235/clawflow 1.0.0,
references/agent-loop.md), which the agents' models play themselves with shell commands. `text`, `tools` and `strict`
are mailboxd: answers as text, answers by tool, and with all reviews of its strict profile.

The model is scripted and makes no mistakes, which real models make most in the longest protocol, the skill's. In every
way a part is the same work: one shell command that leaves a line in a file, and a result a second later. So a call
more than another way's is a call for coordination, a line too many is work done twice, and a result that never
reaches the coordinating model is lost. For `skill`, OpenClaw's refusal of `openclaw agent` inside a turn is lifted,
and dispatches do not wait for the end of the other turn, which would deadlock.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.support import Settings, task
from tests.live.company import LiveCompany
from tests.live.gateway import Gateway, run_of
from tests.live.model import Call, Exec, Model, Several, Step, Text, Tool, plan

PARTS = tuple(f"p{number:02}" for number in range(1, 11))
HANDS = ("beta", "gamma", "delta")
ASSIGNED: Mapping[str, str] = {part: HANDS[number % len(HANDS)] for number, part in enumerate(PARTS)}
SECONDS = 600.0
"""How long a way may take; afterwards what has not arrived is lost."""
AFTER_KILL = 900.0
THINKING = 1.0
KILLED_AFTER = 4
"""Parts that are done when the gateway is killed."""
_PART = re.compile(r"part (p\d\d)")
_RESULT = re.compile(r"RESULT-(p\d\d)")


@dataclass(frozen=True, slots=True)
class Figures:
    way: str
    killed: bool
    calls: int
    prompt_bytes: int
    seconds: float | None
    """None: it did not end in time."""
    lost: int
    twice: int


@dataclass(slots=True)
class Stage:
    """A gateway with its agents, their model, and the file in which work leaves its lines."""

    root: Path
    model: Thinking
    gateway: Gateway

    @property
    def ledger(self) -> Path:
        return self.root / "done"

    def lines(self) -> Counter[str]:
        return Counter(self.ledger.read_text().split() if self.ledger.exists() else ())

    def work(self, call: Call, part: str, begins: int = 0) -> Step:
        """The part itself: a command, then its result."""
        if call.steps == begins:
            return Exec(f"echo {part} >> {self.ledger}")
        return Text(result_of(part), seconds=THINKING)


class Thinking(Model):
    """A model that asks the way for each answer, and remembers which results its coordinator has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.way: Callable[[Call], Step] = lambda _: Text("Nothing.")
        self.seen: set[str] = set()

    def choose(self, call: Call) -> Step:
        if call.agent == "alpha":
            self.seen |= set(_RESULT.findall("\n".join((call.text, *call.results))))
        return self.way(call)


def result_of(part: str) -> str:
    return f"RESULT-{part}: the figures of {part} add up to {int(part[1:]) * 7}."


def final(parts: set[str]) -> Text:
    return Text("FINAL\n" + "\n".join(result_of(part) for part in sorted(parts)))


# ---------------------------------------------------------------- OpenClaw's own sub-agents


@dataclass(slots=True)
class Native:
    """`sessions_spawn` for each part; results are announced to the session that spawned."""

    stage: Stage
    done: bool = False
    _given_up: set[str] = field(default_factory=set)
    """The ends of sub-agents that failed, each answered with another one for its part."""

    def begin(self) -> None:
        ask(self.stage.gateway, PLAN)

    def choose(self, call: Call) -> Step:
        if call.agent != "alpha":
            return _sub_agent(self.stage, call)
        seen = self.stage.model.seen
        if not call.steps and not seen:
            return Several(tuple(_spawn(call, part) for part in PARTS))
        if seen >= set(PARTS):
            self.done = True
            return final(seen)
        ends = [end for end in _ENDED.finditer(call.text) if not end["status"].startswith(("completed", "ok"))]
        failed = {end["session"]: end["part"] for end in ends if end["part"] not in seen}
        again = {session: part for session, part in failed.items() if session not in self._given_up}
        self._given_up |= again.keys()
        if again and not call.steps:
            return Several(tuple(_spawn(call, part) for part in again.values()))
        return Text("Some parts are still under way.")


_ENDED = re.compile(
    r"session_key: (?P<session>\S+?)(?:\\n|\s).{0,200}?task: (?P<part>p\d\d)(?:\\n|\s)+status: (?P<status>\w+)",
    re.DOTALL,
)


@dataclass(slots=True)
class Swarm:
    """`sessions_spawn` for each part; each `agents_wait` brings what is there, and is a reply of the model."""

    stage: Stage
    done: bool = False

    def begin(self) -> None:
        ask(self.stage.gateway, PLAN)

    def choose(self, call: Call) -> Step:
        if call.agent != "alpha":
            return _sub_agent(self.stage, call)
        said = "\n".join(call.results)
        if not call.steps:
            return Several(tuple(_spawn(call, part, collect=True) for part in PARTS))
        if self.stage.model.seen >= set(PARTS):
            self.done = True
            return final(self.stage.model.seen)
        runs = dict.fromkeys(_RUN.findall(said))
        ended = [run for run in runs if re.search(rf'{run}\\*",\s*\\*n?\s*\\*"status\\*": \\*"done', said)]
        return _tool(call, "agents_wait", {"ids": [run for run in runs if run not in ended], "timeoutSeconds": 60})


_RUN = re.compile(r'runId\\*": \\*"([0-9a-f-]{36})')


PLAN = "Do the plan: ten parts over beta, gamma and delta."


def _sub_agent(stage: Stage, call: Call) -> Step:
    part = _PART.search(call.text)
    return stage.work(call, part[1]) if part else Text("NO_REPLY")


def _spawn(call: Call, part: str, **more: object) -> Tool:
    task = {"agentId": ASSIGNED[part], "task": f"Do part {part}. Report its figures.", "label": part}
    return _tool(call, "sessions_spawn", {**task, **more})


def _tool(call: Call, name: str, arguments: Mapping[str, object]) -> Tool:
    """The tool itself, or through OpenClaw's search of tools where that hides it."""
    return Tool(name, arguments) if name in call.tools else Tool("tool_call", {"id": name, "args": dict(arguments)})


# ---------------------------------------------------------------- the skill alone


@dataclass(slots=True)
class Skill:
    """The published loop: each agent logs messages, keeps task.md, dispatches and replies by shell commands."""

    stage: Stage
    done: bool = False
    _home: dict[str, Path] = field(default_factory=dict)

    def begin(self) -> None:
        for agent in ("alpha", *HANDS):
            self._home[agent] = home = self.stage.gateway.workspace(agent)
            for folder in ("inbox", "outbox", "archive"):
                (home / "mailbox" / folder).mkdir(parents=True, exist_ok=True)
        ask(self.stage.gateway, _message("task", "all", "operator", "Do the plan: ten parts."))

    def choose(self, call: Call) -> Step:
        if call.kind == "reply":
            return self._take_reply(call, call.task.rpartition(".")[2])
        return self._dispatch(call) if call.agent == "alpha" else self._execute(call, call.task.rpartition(".")[2])

    def _execute(self, call: Call, part: str) -> Step:
        inbox, folder, answer = f"mailbox/inbox/t-{part}.md", f"tasks/t-{part}", f"mailbox/outbox/t-{part}-reply.md"
        match call.steps:
            case 0:
                return _shell(
                    _write(inbox, _message("task", part, "alpha", f"Do part {part}.")),
                    f"cat {folder}/task.md 2>/dev/null; mkdir -p {folder}",
                    _write(f"{folder}/task.md", "status: in-progress"),
                )
            case 1:
                return _shell(PEERS)
            case 2:
                return self.stage.work(call, part, 2)
            case 3:
                return _shell(
                    _write(f"{folder}/task.md", f"status: done\n{result_of(part)}"),
                    _write(answer, _message("reply", part, call.agent, result_of(part))),
                    _send("alpha", answer),
                    f"mv {inbox} mailbox/archive/",
                )
            case _:
                return Text("Replied.", seconds=THINKING)

    def _dispatch(self, call: Call) -> Step:
        match call.steps:
            case 0:
                return _shell(_write("mailbox/inbox/t.md", "Do the plan: ten parts."), "mkdir -p tasks/t; ls tasks/t")
            case 1:
                return _shell(PEERS)
            case 2:
                dag = "\n".join(f"- {part}: {{agent: {agent}, status: dispatched}}" for part, agent in ASSIGNED.items())
                lines = [_write("tasks/t/task.md", dag)]
                for part, agent in ASSIGNED.items():
                    file = f"mailbox/outbox/t-{part}.md"
                    lines += [_write(file, _message("task", part, "alpha", f"Do part {part}.")), _send(agent, file)]
                return _shell(*lines, "mv mailbox/inbox/t.md mailbox/archive/")
            case _:
                return Text("Dispatched.")

    def _take_reply(self, call: Call, part: str) -> Step:
        if call.steps == 0:
            inbox = f"mailbox/inbox/t-{part}-reply.md"
            noted = f"sed -i 's/{part}: .*/{part}: done, {result_of(part)}/' tasks/t/task.md; cat tasks/t/task.md"
            return _shell(_write(inbox, result_of(part)), noted, f"mv {inbox} mailbox/archive/")
        held = set(_RESULT.findall(call.results[0]))
        if held < set(PARTS):
            return Text("Noted.")
        if call.steps == 1:
            return _shell(_write("tasks/t/result.md", final(held).text), "cp tasks/t/result.md mailbox/outbox/")
        self.done = True
        return final(held)


PEERS = "openclaw agents list --json | head -c 2000"


def _shell(*lines: str) -> Tool:
    return Exec("\n".join(lines))


def _message(kind: str, part: str, sender: str, text: str) -> str:
    return f"---\ntype: {kind}\ntask_id: t\nsubtask_id: {part}\nfrom: {sender}\n---\n\n{text}\n"


def _write(path: str, text: str) -> str:
    return f"cat > {path} <<'END'\n{text}\nEND"


def _send(agent: str, path: str) -> str:
    words = f'env -u OPENCLAW_SHELL openclaw agent --agent {agent} --message "$(cat {path})"'
    return f"(setsid nohup {words} >/dev/null 2>&1 &)"


# ---------------------------------------------------------------- mailboxd


@dataclass(slots=True)
class Mailboxd:
    """A plan, its parts and a synthesis, by daemons beside the agents."""

    stage: Stage
    settings: Settings
    done: bool = False
    company: LiveCompany | None = None

    def begin(self) -> None:
        self.company = LiveCompany(self.stage.gateway, self.stage.model, ["alpha", *HANDS])
        for agent in ("alpha", *HANDS):
            self.company.employ(agent, {**self.settings, "openclaw": {"turn_timeout_seconds": 120}})
            self.company[agent].call(
                "connect", "gateway", "pair", env={"OPENCLAW_GATEWAY_TOKEN": self.stage.gateway.token}
            )
            self.company[agent].start()
        self.company["alpha"].drop("t.md", task("t", "The plan", instructions="Do the plan: ten parts."))

    def choose(self, call: Call) -> Step:
        match call.kind:
            case "synthesis":
                self.done = True
                return _finished(call, final(self.stage.model.seen))
            case "review" if "mailboxd_verdict" in call.tools:
                return Tool("mailboxd_verdict", {"verdict": "approved", "summary": "Checked."})
            case "review":
                return Text("---\ntype: review\nverdict: approved\n---\nChecked.\n")
            case _ if call.agent == "alpha":
                children = {
                    part: {
                        "agent": agent,
                        "description": f"Do part {part}. Report its figures.",
                        "expected_output": f"The figures of part {part}",
                    }
                    for part, agent in ASSIGNED.items()
                }
                if "mailboxd_plan" in call.tools:
                    return Tool("mailboxd_plan", {"subtasks": [{"id": part, **one} for part, one in children.items()]})
                return plan(children)
            case _:
                step = self.stage.work(call, _PART.findall(call.text)[-1])
                return _finished(call, step) if isinstance(step, Text) else step

    def close(self) -> None:
        if self.company is not None:
            self.company.close()


def _finished(call: Call, said: Text) -> Step:
    """A result as the turn asks for it; the model thinks as long by either way."""
    if "mailboxd_finish" not in call.tools:
        return said
    return Tool("mailboxd_finish", {"result": said.text}, said.seconds)


# ---------------------------------------------------------------- one run


def ask(gateway: Gateway, text: str) -> None:
    """Say something to alpha in its main session, and do not wait for its answer."""
    file = gateway.root / "ask.md"
    file.write_text(text)
    subprocess.Popen(
        ["openclaw", "agent", "--agent", "alpha", "--session-key", "agent:alpha:main", "--message-file", str(file)],
        executable=str(gateway.installation.openclaw), env=gateway.env, cwd=gateway.root, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


@contextmanager
def stage(*, plugin: bool) -> Iterator[Stage]:
    """`plugin`: with mailboxd's, which would take the skill's messages."""
    model = Thinking()
    with tempfile.TemporaryDirectory(prefix="mailboxd-cost-") as name, model:
        root = Path(name)
        gateway = Gateway(root, model.url, run_of(["alpha", *HANDS]))
        written = json.loads(gateway.config.read_text())
        written["agents"]["defaults"]["subagents"] = {"maxChildrenPerAgent": 20, "maxConcurrent": 8}
        gateway.config.write_text(json.dumps(written))
        try:
            if plugin:
                gateway.install_plugin()
            gateway.start()
            yield Stage(root, model, gateway)
        finally:
            gateway.close()


STRICT: Settings = {"profile": "strict", "gates": {"reviewers": ["alpha", *HANDS]}}
WAYS: Mapping[str, Callable[[Stage], Any]] = {
    "native": Native,
    "swarm": Swarm,
    "skill": Skill,
    "text": lambda stage: Mailboxd(stage, {"answers": {"by": "text"}}),
    "tools": lambda stage: Mailboxd(stage, {}),
    "strict": lambda stage: Mailboxd(stage, STRICT),
}


def run(name: str, *, killed: bool) -> Figures:
    """One way from its order to its end."""
    with stage(plugin=name not in ("native", "swarm", "skill")) as on:
        way = WAYS[name](on)
        on.model.way = way.choose
        try:
            begun = time.monotonic()
            way.begin()
            if killed:
                wait(lambda: len(on.lines()) >= KILLED_AFTER, SECONDS)
                on.gateway.kill()
                on.gateway.start()
            ended = wait(lambda: way.done, AFTER_KILL if killed else SECONDS)
            seconds = time.monotonic() - begun if ended else None
            calls = list(on.model.calls)
        finally:
            if isinstance(way, Mailboxd):
                way.close()
        return Figures(
            name, killed, len(calls), sum(call.size for call in calls), seconds and round(seconds, 1),
            len(set(PARTS) - on.model.seen), sum(count - 1 for count in on.lines().values()),
        )  # fmt: skip


def wait(condition: Callable[[], object], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.1)
    return False


def table(rows: list[Figures]) -> str:
    lines = [
        "| way | gateway killed | model calls | prompt MB | wall s | results lost | parts done twice |",
        "| --- " * 7 + "|",
    ]
    for row in rows:
        wall = "never" if row.seconds is None else f"{row.seconds:.0f}"
        killed = "yes" if row.killed else "no"
        lines.append(
            f"| {row.way} | {killed} | {row.calls} | {row.prompt_bytes / 1e6:.2f} | {wall} | {row.lost} | {row.twice} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WAYS), help="ways, separated by commas: %(default)s")
    parser.add_argument("--kill", choices=("both", "yes", "no"), default="both", help="kill the gateway in the middle")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    rows = []
    for name in asked.only.split(","):
        for killed in {"both": (False, True), "yes": (True,), "no": (False,)}[asked.kill]:
            rows.append(run(name, killed=killed))
            print(json.dumps(asdict(rows[-1])) if asked.json else table(rows[-1:]).splitlines()[-1], flush=True)
    if not asked.json:
        print("\n" + table(rows))


if __name__ == "__main__":
    main()
