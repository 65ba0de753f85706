"""The review loop for OpenProse: a model carries it out, so what can be checked is that each command in it is one."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from mailboxd.cli.program import program
from mailboxd.core.vocabulary import Phase
from tests.cli.asking import TELL, ask
from tests.cli.stage import Stage, make

FILE = (
    Path(__file__).resolve().parents[2] / "templates" / "openclaw-skill" / "references" / "mailbox-review-loop.prose.md"
)
TEXT = FILE.read_text(encoding="utf-8")
LINES = re.findall(r"^ *# \$ (.+)$", TEXT, re.MULTILINE)
PLACES = {"{task}": "q3-report", "{verdict.findings}": "- the figure in line 3", "{last seq}": "17"}
DECIDES = {"approve", "reject", "ask-changes", "undo", "run", "cancel", "resolve"}


def words(line: str) -> list[str]:
    """The words of a command line, with something in each of its places."""
    found = re.findall(r"\{[^}]*\}|[^\s{]+", line)
    return [PLACES.get(word, word) for word in found]


def verbs() -> list[str]:
    return [words(line)[1] for line in LINES]


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_every_command_parses_with_the_real_program(line: str) -> None:
    called, *arguments = words(line)
    assert called == "mailboxd"
    assert "--json" in arguments
    command: click.Command | None = program
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), verb := arguments.pop(0))
    assert command is not None
    with command.make_context(verb, arguments):
        pass


def test_every_word_that_follows_the_programs_name_is_a_verb_and_none_decides() -> None:
    named = re.findall(r"`mailboxd ([a-z-]+)", TEXT) + verbs()
    assert set(named) <= set(program.list_commands(click.Context(program)))
    assert not DECIDES & {word for line in LINES for word in words(line)}
    assert {"show", "why", "retry"} <= set(verbs())


def test_it_has_the_form_of_a_contract() -> None:
    _, front, body = TEXT.split("---\n", 2)
    assert dict(line.split(": ", 1) for line in front.splitlines()) == {
        "name": FILE.name.split(".")[0],
        "kind": "function",
    }
    sections = re.findall(r"^### (\w+)$", body, re.MULTILINE)
    assert sections[:6] == ["Parameters", "Returns", "Shape", "Errors", "Invariants", "Execution"]
    assert body.count("```prose\n") == 1


def test_it_branches_on_existing_phases() -> None:
    named = set(re.findall(r'"([a-z_]+)"', TEXT.partition("```prose")[2])) - {
        "approved",
        "waits",
        "ended",
        "accepted",
        "given_up",
    }
    assert named == {"failed", "cancelled", "awaiting_approval", "completed"} <= set(Phase)


def test_the_fields_it_reads_exist_in_the_programs_answer(tmp_path: Path) -> None:
    stage: Stage = make(tmp_path / "alpha")
    ask(stage, "q3-report", TELL)
    found = stage.json("show", "q3-report")
    assert {"phase", "reason", "spec", "results", "reviews", "attempts"} <= set(found)
    assert [(one["status"], bool(one["short_id"])) for one in found["approvals"]] == [("pending", True)]
    assert stage.json("why", "q3-report")["because"][0]["text"]
    assert {"seq", "data"} <= set(stage.json("log", "q3-report", "--since", "1")[0])
