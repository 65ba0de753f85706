"""What doctor and setup print is pasted in another directory, in the state that prints it, and mends that state."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.support import BIN, environment, eventually
from tests.setup.test_setup import Beside

pytestmark = pytest.mark.slow
ODD = Path(__file__).resolve().parents[1] / "agents" / "acp" / "odd_agent.py"
"""A program that speaks ACP."""
OBEDIENT = {"match": r"\[mailboxd\] canary turn", "reply": "{word}"}


class Person(Beside):
    """A person in their home, with a scripted OpenClaw whose configuration can be changed, and an editor."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (root / "home").mkdir()
        self.company.rewrite({"alpha": {"default": {"reply": "The outcome."}, "rules": [OBEDIENT]}, "beta": {}})
        self.env["PATH"] = f"{root / 'bin'}:{BIN}:/usr/bin:/bin"
        self.alpha = self.workspace("alpha")

    def types(self, line: str, editor: str = "true") -> subprocess.CompletedProcess[str]:
        """A line, typed into a shell in the home directory. `editor` stands for what the person writes."""
        return subprocess.run(
            ["bash", "-c", line], cwd=self.root / "home", env=environment({**self.env, "EDITOR": editor}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    def found(self, *words: str) -> dict[str, list[str]]:
        """What doctor finds that is not well, and the fixes of each."""
        done = self.types(f"mailboxd -w {self.alpha} doctor {' '.join(words)}")
        fixes: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            if named := re.search(r"\[([a-z-]+)\]$", line):
                slug = named[1]
            elif line.startswith("    -> "):
                fixes.setdefault(slug, []).append(line.removeprefix("    -> "))
        return fixes


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = Person(tmp_path)
    done = person.types(f"mailboxd init {person.alpha} --agent alpha")
    assert done.returncode == 0, done.stderr
    return person


def configured(person: Person, text: str) -> None:
    config = person.alpha / ".mailboxd" / "config.yaml"
    config.write_text(f"{config.read_text()}\n{text}\n")


def trusts(person: Person, name: str) -> None:
    home = person.root / "other"
    key = f"$(mailboxd -w {home} connect keys list --json | grep -o 'ed25519[^\"]*' | head -1)"
    made = person.types(
        f"mailboxd init {home} --agent {name} && mailboxd -w {home} connect keys create && "
        f'mailboxd -w {person.alpha} connect keys trust {name} "{key}"'
    )
    assert made.returncode == 0, made.stderr


def mkdir_elsewhere(person: Person) -> None:
    (person.alpha / "tasks").rmdir()
    (person.alpha / "tasks").write_text("")


def rejected(person: Person) -> None:
    (person.alpha / "mailbox" / "inbox" / "x.md").write_text("---\ntype: nothing\n---\n")
    assert person.types(f"mailboxd -w {person.alpha} run --until-idle").returncode == 0


def reviewed(person: Person) -> None:
    configured(person, "gates: {spec_gate: true, reviewers: [beta]}")


def broken_harness(person: Person) -> None:
    configured(person, "acp: {harnesses: {odd: {argv: [/no/such/agent]}}}")


def lost(person: Person) -> None:
    rejected(person)
    (person.alpha / ".mailboxd" / "mailboxd.db").unlink()


def damaged(person: Person) -> None:
    rejected(person)
    with (person.alpha / ".mailboxd" / "mailboxd.db").open("r+b") as file:
        file.write(b"damage" * 3000)


def fresh(_: Person) -> None:
    pass


MENDED: list[tuple[str, Callable[[Person], object], str]] = [
    ("daemon", fresh, ""),
    ("skill", fresh, ""),
    ("plugin", fresh, ""),
    ("file-boundary", fresh, ""),
    ("peers", fresh, ""),
    ("config", lambda person: configured(person, "limts: {}"), "sed -i /limts/d"),
    ("database", lost, ""),
    ("database", damaged, ""),
    ("directories", lambda person: (person.alpha / "tasks").rmdir(), ""),
    ("directories", lambda person: (person.alpha / "tasks").chmod(0o777), ""),
    ("directories", lambda person: (person.alpha / ".mailboxd").chmod(0o755), ""),
    ("directories", mkdir_elsewhere, ""),
    ("workspace", lambda person: (person.alpha / ".mailboxd").rename(person.root / "away"), ""),
    ("keys-own", lambda person: trusts(person, "beta"), ""),
    ("keys-unknown", lambda person: trusts(person, "nobody"), ""),
    ("reviewers", reviewed, ""),
    ("harness", broken_harness, f"sed -i s:/no/such/agent:{sys.executable},{ODD}:"),
    ("lane", lambda person: configured(person, "limits: {turns: 64}"), ""),
]


def pasted(person: Person, fix: str, editor: str) -> None:
    line = re.sub(r"(mailboxd (?:-w \S+ )?run)(?=$| \|\|)", r"\1 --until-idle", fix)  # a daemon has no end
    done = person.types(line, editor)
    assert done.returncode == 0, f"{fix}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("finding", "state", "editor"), MENDED, ids=[f"{number}-{one[0]}" for number, one in enumerate(MENDED)]
)
def test_the_first_command_mends_what_it_is_printed_for(
    person: Person, finding: str, state: Callable[[Person], object], editor: str
) -> None:
    state(person)
    fixes = person.found()[finding]
    pasted(person, fixes[0], editor)
    if finding != "daemon":  # which has ended again
        assert fixes[0] not in person.found().get(finding, []), fixes


def runs_a_turn(person: Person) -> bool:
    """Asked without a program of its own, which could take longer than the turn."""
    with closing(sqlite3.connect(person.alpha / ".mailboxd" / "mailboxd.db")) as db:
        return bool(db.execute("SELECT 1 FROM v_attempts WHERE status = 'running'").fetchone())


def test_the_restart_that_is_printed_waits_for_the_turns_of_the_daemon(person: Person, tmp_path: Path) -> None:
    person.company.rewrite({"alpha": {"default": {"reply": "The outcome.", "delay": 4}}, "beta": {}})
    daemon = subprocess.Popen(
        ["mailboxd", "-w", str(person.alpha), "run"], env=environment(person.env), stderr=subprocess.DEVNULL,
        executable=str(BIN / "mailboxd"),
    )  # fmt: skip
    try:
        (person.alpha / "mailbox" / "inbox" / "work.md").write_text("Do it.\n")
        eventually(lambda: runs_a_turn(person))
        configured(person, "limits: {turns: 2}")
        (restart,) = person.found("--quick")["daemon"]
        pasted(person, restart, "")
        assert daemon.wait() == 0
        assert "done" in person.types(f"mailboxd -w {person.alpha} ls").stdout
    finally:
        daemon.kill()
        daemon.wait()


def test_with_an_invalid_configuration_nothing_says_to_start_a_daemon(person: Person) -> None:
    (person.alpha / ".mailboxd" / "mailboxd.db").unlink()
    configured(person, "limts: {}")
    found = person.found()
    assert {"config", "database", "daemon"} <= set(found)
    assert not [fix for fixes in found.values() for fix in fixes if fix.endswith(" run")]


def test_commands_that_only_show_run(person: Person) -> None:
    rejected(person)
    temporary = person.alpha / "mailbox" / "inbox" / ".half.md.tmp"
    temporary.write_text("")
    os.utime(temporary, (0, 0))
    found = person.found("--canary")
    for finding in ("rejected", "abandoned", "gateway-unknown"):
        for fix in found.get(finding, []):
            if not fix.startswith("openclaw"):  # the stand-in has no gateway
                pasted(person, fix, "")
    assert {"rejected", "abandoned"} <= set(found)


def test_what_setup_prints_at_its_end_runs(person: Person) -> None:
    done = person.types("mailboxd setup --yes --no-canary --skip tools --skip gateway --skip service --agent alpha")
    printed = re.findall(r"`(mailboxd [^`]+)`|^alpha: (mailboxd .+)$|-> (mailboxd .+)$", done.stdout, re.MULTILINE)
    commands = [next(filter(None, found)).partition("  #")[0] for found in printed]
    assert [command for command in commands if command.endswith(" run")], done.stdout
    assert [command for command in commands if " send " in command], done.stdout
    for command in commands:
        if not re.search(r"doctor NAME|web --open", command):  # that one serves until Ctrl-C
            pasted(person, command, "")
    assert "Say hello" in person.types(f"mailboxd -w {person.alpha} ls --all").stdout
