"""Several agents that give work to each other: a real daemon each, and between them a post that cannot be relied on.

A message is the prompt of a call to its receiver, as in OpenClaw with the plugin. The town decides how each call
ends: it arrives, arrives twice, arrives much later, is refused before it was sent, or its sender never learns which.
Everything is drawn from one seed. What agents did and what was put into inboxes stands in ledgers of the town's own.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from mailboxd.host.clock import ManualClock
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.scripted import program
from tests.simulation.house import House
from tests.simulation.processes import Process, Processes, said
from tests.simulation.script import Script

NAMES = ("ada", "bob", "eve")
MOST_TASKS = 40
_ACK = "---\ntype: ack\n---\n"
_ID = re.compile(rb"^message_id: \"?([\w.-]+)", re.MULTILINE)
_ATTEMPT = re.compile(rb"^attempt_id: \"?([\w.-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message on its way."""

    to: str
    name: str
    raw: bytes


@dataclass(slots=True)
class Town:
    """`happen` lets one thing happen; `journal` says what."""

    seed: int
    script: Script
    clock: ManualClock
    processes: Processes
    houses: dict[str, House]
    letters: list[Letter] = field(default_factory=list)
    """Under way: handed over, and not in the inbox yet."""
    carried: list[Letter] = field(default_factory=list)
    """Everything that ever arrived."""
    trusted: set[tuple[str, str]] = field(default_factory=set)
    """(receiver, message id) of what a sender was told has arrived."""
    worked: Counter[str] = field(default_factory=Counter)
    """Texts that agents really produced."""
    reached: Counter[str] = field(default_factory=Counter)
    """How often each kind of thing happened."""
    journal: list[str] = field(default_factory=list)
    number: int = 0
    smooth: bool = False
    """No more faults."""

    @classmethod
    @contextmanager
    def founded(cls, seed: int, root: Path) -> Iterator[Town]:
        random = Random(seed)
        clock, processes = ManualClock(), Processes()
        names = NAMES[: random.choice((2, 3, 3))]
        houses = {name: House.build(name, root / name, clock, random, processes) for name in names}
        town = cls(seed, Script(random), clock, processes, houses)
        try:
            yield town
        finally:
            for house in houses.values():
                house.die()
                house.store.close()
            processes.close()

    # -------------------------------------------------------------- letters

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def send(self, letter: Letter) -> None:
        self.letters.append(letter)

    def arrive(self, letter: Letter) -> None:
        """Put a letter into the inbox it is for, under a name of its own."""
        number = self.next_number()
        self.houses[letter.to].drop(f"{number:05}-{letter.name}.md", letter.raw, number)
        self.carried.append(letter)

    # -------------------------------------------------------------- how calls end

    def land(self, process: Process) -> None:
        """A call ends."""
        if process.asked_to_end and process.is_turn and self.script.chance(0.5):
            self._note(process, "stopped")
            process.accepted = False
            self.processes.end(process, Exit(143, b""))
            return
        match process.argv[1]:
            case "tasks":
                self._ledger(process)
            case "gateway":
                self._history(process)
            case _ if process.agent in self.houses and process.agent != process.house:
                self._carry(process)
            case _:
                self._turn(process)

    def _carry(self, process: Process) -> None:
        """A call to another house: its plugin puts the message into the inbox, and says so."""
        found = _ID.search(process.prompt)
        assert found is not None, "what is sent to another agent is a message"
        name = found[1].decode()
        letter = Letter(process.agent, name, process.prompt)
        faults = {} if self.smooth else {"twice": 10, "later": 14, "refused": 7, "lost": 5, "doubted": 8, "killed": 4}
        how = self.script.one_of(fine=60, **faults)
        self._note(process, how)
        if how == "refused":
            process.accepted = False
            self.processes.end(process, said(program.failure_json("not_started", "refused", _run_id(process)), 1))
            return
        arrived = how != "lost" and not (how == "killed" and self.script.chance(0.5))
        process.accepted = arrived
        if arrived:
            process.reply = _ACK
            for _ in range(2 if how == "twice" else 1):
                (self.send if how == "later" or self.letters else self.arrive)(letter)
        if how in ("doubted", "lost"):
            self.processes.end(process, said(program.lost(_run_id(process)), 1))
        elif how == "killed":
            self.processes.end(process, Exit(-9, b""))
        else:
            self.trusted.add((process.agent, name))
            self._answer(process, _ACK)

    def _turn(self, process: Process) -> None:
        """A turn of an agent of its own, or of one without a house."""
        faults = {} if self.smooth else {"failed": 8, "garbled": 3, "killed": 4, "question": 5, "plan": 25}
        how = self.script.one_of(done=60, **faults)
        self._note(process, how)
        text = f"made by {process.agent} in {process.id}"
        if how == "killed":
            process.accepted = self.script.chance(0.5)
            process.reply = text if process.accepted else None
            self.worked[text] += process.accepted
            self.processes.end(process, Exit(-9, b""))
        elif how == "failed":
            self.processes.end(process, said(program.failure_json("transient", "tired", _run_id(process)), 1))
        elif how == "garbled":
            process.reply = text
            self.worked[text] += 1
            self.processes.end(process, Exit(0, b"\x1b[31m{"))
        elif how == "question":
            self._answer(process, "---\ntype: question\n---\n\nWhich colour?\n")
        elif how == "plan":
            self._answer(process, self.plan(process.agent))
        else:
            self.worked[text] += 1
            self._answer(process, text)

    def _answer(self, process: Process, text: str) -> None:
        process.reply = text
        prompt = process.prompt.decode()
        self.processes.end(process, said(program.success(_run_id(process), process.session_key, prompt, text)))

    def _ledger(self, process: Process) -> None:
        """`tasks show`: the latest accepted turn of that session."""
        turns = self._turns(process, process.argv[3])
        if not turns:
            self.processes.end(process, said(program.cli_error(f"Task not found: {process.argv[3]}."), 1))
            return
        turn = turns[-1]
        status = "running" if turn.exit is None else "succeeded" if turn.reply is not None else "failed"
        row = {"runId": _run_id(turn), "status": status, "error": "tired" if status == "failed" else ""}
        self.processes.end(process, said(row))

    def _history(self, process: Process) -> None:
        """`gateway call`: what was said in that session."""
        key = re.search(r'"(?:sessionKey|runId)": "([^"]+)"', " ".join(process.argv))
        assert key is not None
        turns = [turn for turn in self._turns(process, key[1]) if turn.reply is not None]
        messages = [
            {
                "role": "assistant",
                "content": [{"type": "text", "text": turn.reply}],
                "__openclaw": {"runId": _run_id(turn)},
            }
            for turn in turns
        ]
        self.processes.end(process, said({"messages": messages, "hasMore": False}))

    def _turns(self, asking: Process, name: str) -> list[Process]:
        turns = [turn for turn in self.processes.all if turn.is_turn and turn.house == asking.house]
        turns = [turn for turn in turns if name in (turn.session_key, _run_id(turn))]
        return [turn for turn in turns if turn.accepted and not (turn.exit is not None and turn.exit.rc == 1 and
                not turn.reply and b"ECONNREFUSED" in turn.exit.stdout)]  # fmt: skip

    def _note(self, process: Process, how: str) -> None:
        self.reached[how] += 1
        self.journal.append(f"{process.house}: the call {process.id} to {process.agent} ends: {how}")

    # -------------------------------------------------------------- what is said

    def plan(self, who: str) -> str:
        """A few children, here and elsewhere; small enough that the town does not grow for ever."""
        count = "SELECT count(*) FROM v_tasks"
        tasks = sum(house.store.db.execute(count).fetchone()[0] for house in self.houses.values())
        if tasks > MOST_TASKS:
            return f"too much to do, says {who}"
        return f"# Plan\n\n## DAG\n\n```yaml\n{self._dag(who)}```\n"

    def _dag(self, who: str) -> str:
        others = ["self", *(name for name in self.houses if name != who), "carl"]
        lines, keys = ["subtasks:"], "xyz"[: self.script.random.choice((1, 2, 3))]
        for at, key in enumerate(keys):
            needs = f", depends_on: [{keys[at - 1]}]" if at and self.script.chance(0.5) else ""
            idempotent = ", idempotent: true" if self.script.chance(0.3) else ""
            lines.append(
                f"  {key}: {{agent: {self.script.random.choice(others)}, description: part {key}{needs}{idempotent}}}"
            )
        return "\n".join(lines) + "\n"

    def task(self) -> Letter:
        """Work from the operator, for one of the houses."""
        number = self.next_number()
        to = self.script.random.choice(list(self.houses))
        body = f"# Task: Errand {number}\n\n## Instructions\n\nDo it.\n\n## Expected Output\n\nA page.\n"
        if self.script.chance(0.7):
            body += f"\n## DAG\n\n{self._dag(to)}"
        return self.letter(to, f"op-{number}", f"type: task\ntask_id: t{number}", body)

    def letter(self, to: str, name: str, headers: str, body: str) -> Letter:
        """A message of the operator's."""
        return Letter(to, name, f"---\n{headers}\nfrom: operator\nmessage_id: {name}\n---\n\n{body}".encode())

    def break_something(self, house: House) -> None:
        """The next rounds of this house end in a crash, or meet a disk that refuses."""
        if self.script.chance(0.7):
            house.fuse.left = self.script.random.choice((1, 5, 20, 80, 200)) + self.script.random.randrange(60)
        else:
            house.fuse.refusals = self.script.random.randrange(1, 25)
            house.fuse.code = self.script.random.choice((errno.ENOSPC, errno.EIO, errno.EDQUOT))


def _run_id(process: Process) -> str:
    return f"run-{process.house}-{process.number}"


def attempt_of(raw: bytes) -> str:
    """The attempt that a message names; empty if none."""
    found = _ATTEMPT.search(raw)
    return found[1].decode() if found else ""
