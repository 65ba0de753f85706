"""Every command that the program prints is run, as it is printed, by a test in the state that prints it.

tests/printed.toml lists the commands with those tests. A new hint needs a state that prints it and a line there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click

from mailboxd.cli.program import program
from tests.source import SOURCE, documentation, modules, nodes
from tests.test_reliability import known

TESTS = Path(__file__).parent
LISTED: dict[str, Any] = tomllib.loads((TESTS / "printed.toml").read_text(encoding="utf-8"))
BEGINS = r"(?:^|`|-> |; |&& |\bor |\bthen |\bfirst |\brun )"
OWN = re.compile(rf"{BEGINS}(?:mailboxd|X)(?: -w \S+)? ([a-z][^`\n]*)")
PROGRAMS = (
    "openclaw", "systemctl", "launchctl", "loginctl", "npm", "nvm", "timedatectl", "sqlite3", "kill", "chmod", "chown",
    "mv", "mkdir",
)  # fmt: skip
OTHERS = re.compile(rf"{BEGINS}(?:sudo |X)?((?:{'|'.join(PROGRAMS)}) [^`\n]*)")
"""X stands for what is filled in."""
WITH_SUBCOMMANDS = {"openclaw", "launchctl", "systemctl", "loginctl"}
PROSE = re.compile(r"openclaw (?:is|does|runs|version)\b|.*(?: failed| is not)\b")


@cache
def texts() -> list[tuple[Path, str]]:
    """The strings of each module, with X for what is filled in, apart from documentation and examples of the help."""
    return [(path, text) for path in modules() for text in _texts(path)]


def _texts(path: Path) -> Iterator[str]:
    left_out = documentation(path)
    for function in nodes(path):
        if isinstance(function, ast.FunctionDef):
            left_out |= {id(node) for decorator in function.decorator_list for node in ast.walk(decorator)}
    for node in nodes(path):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            yield "".join(map(said, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def said(part: ast.expr) -> str:
    """A part of a formatted string: itself, the program's name, or X."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    return "mailboxd" if re.search(r"program\b(?!\.)", ast.unparse(part)) else "X"


def own(words: list[str]) -> str:
    """The command of mailboxd that these words are, with the names of its options; empty if they are none."""
    command: click.Command = program
    path, options = ["mailboxd"], set()
    for word in words:
        plain = word.strip("[]()\"',.;:")
        if plain.startswith("--"):
            options.add(plain.partition("=")[0])
        elif isinstance(command, click.Group):
            found = command.get_command(click.Context(command), plain)
            if found is None:
                return ""
            command = found
            path.append(plain)
    return "" if isinstance(command, click.Group) else " ".join([*path, *sorted(options)])


def other(words: list[str]) -> str:
    """The program, its subcommand and flags: what comes before the first argument."""
    path = [words[0]]
    for word in words[1:]:
        if not re.fullmatch(r"-{0,2}[a-z][a-z-]*", word):
            break
        path.append(word)
    return " ".join(path)


def commands(text: str) -> Iterator[str]:
    for said in OWN.findall(text):
        if command := own(said.partition("  #")[0].split()):
            yield command
    for said in OTHERS.findall(text):
        command = other(said.partition("  #")[0].split())
        if PROSE.match(said) is None and command not in WITH_SUBCOMMANDS:
            yield command


def printed() -> set[str]:
    return {command for _, text in texts() for command in commands(text)}


def test_every_command_that_is_printed_is_run_by_a_test_or_says_why_it_cannot_be() -> None:
    listed = {command for one in LISTED["pasted"] for command in one["commands"]}
    assert sorted(printed() - listed - set(LISTED["otherwise"])) == [], "list it in tests/printed.toml with its test"
    assert sorted((listed | set(LISTED["otherwise"])) - printed()) == [], "is not printed any more"
    assert sorted(listed & set(LISTED["otherwise"])) == []


def test_the_tests_that_run_them_exist() -> None:
    assert [one["test"] for one in LISTED["pasted"] if not known(TESTS / one["file"], one["test"])] == []


def test_a_command_is_found_however_it_is_printed() -> None:
    assert [*commands("it is held; run `mailboxd -w X retry X --budget-usd 1`, or mailboxd resolve X --failed")] == [
        "mailboxd retry --budget-usd", "mailboxd resolve --failed",
    ]  # fmt: skip
    assert [*commands("openclaw config set a.b true --strict-json  # and restart")] == ["openclaw config set"]
    assert [*commands("mailboxd is a daemon; openclaw does not answer")] == []


NO_COMMAND = re.compile(
    r"(?:follows|knows|is|of|was|has|does|ran|runs|watches|stopped|would|cannot|ends|takes|keeps|kept|with|for|to)\b"
)
"""How a sentence about the program goes on."""
NAMED = re.compile(rf"{BEGINS}mailboxd(?: -w \S+)? ([a-z][a-z-]*)")


def test_no_command_is_printed_that_does_not_exist() -> None:
    known = set(program.list_commands(click.Context(program))) | {"effect"}
    named = [(str(path.relative_to(SOURCE)), word) for path, text in texts() for word in NAMED.findall(text)]
    assert [one for one in named if one[1] not in known and NO_COMMAND.match(one[1]) is None] == []
    assert NAMED.findall("-> mailboxd -w X explain X") == ["explain"]
