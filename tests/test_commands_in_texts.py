"""Every command that any text names is one, with options that it has: in source, pages, templates, units, examples."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from mailboxd.cli.program import program
from mailboxd.formats.config.file import default_text
from tests.source import documentation, nodes

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = re.compile(r"docs/decisions/|docs/performance|docs/images/|mailboxd/surfaces/web/static/")
QUOTED = re.compile(r"`mailboxd\s([^`]+)`")
BEGINS = re.compile(r"(?:^|-> |\bor |[;:(] ?)mailboxd (.+)", re.MULTILINE)
PROSE = re.compile(r"(?:is|of|was|stopped|watches)\b")
"""How a sentence about the program goes on."""
ANY = "X"
"""Stands for whatever a text puts in its place."""


def texts(path: Path) -> Iterator[str]:
    """The texts of a file; of Python its strings, docstrings too."""
    if path.suffix != ".py":
        yield path.read_text(encoding="utf-8")
        return
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def commands(path: Path) -> Iterator[str]:
    """What follows the program's name wherever a text quotes a command, or is one."""
    for text in texts(path):
        yield from (" ".join(found.split()) for found in QUOTED.findall(text))
        if path.suffix == ".py" and text.startswith("mailboxd "):
            lines = text.replace("  # or mailboxd", "\nmailboxd").replace(", mailboxd", "\nmailboxd")
            yield from (found for found in BEGINS.findall(lines) if not PROSE.match(found))


@cache
def files() -> list[Path]:
    """Those that name a command."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if _may_name_one(name) and any(commands(ROOT / name))]


def _may_name_one(name: str) -> bool:
    suffix, folders = Path(name).suffix, ("mailboxd/", "docs/", "templates/", "systemd/", "workspace-example/")
    known = (".py", ".md", ".toml", ".yaml", ".yml", ".html", ".j2", ".service", ".sh")
    return suffix in known and (name.startswith(folders) or "/" not in name) and not LEFT_OUT.match(name)


def problem_of(said: str) -> str:
    """Why this is no command of the program; empty if it is one."""
    command: click.Command = program
    known = {"--help", "-h"}
    words = [word.strip("[]()\"',.;:") for word in said.partition("  #")[0].partition(" #")[0].split()]
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word in ("-w", "--workspace"):
            at += 1
        elif word.startswith("--"):
            option = word.split("=")[0]
            known |= {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
            if option not in known:
                return f"{command.name} has no {option}"
        elif isinstance(command, click.Group) and word == ANY:
            return ""
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z][a-z-]*", word):
            found = command.get_command(click.Context(command), word)
            if found is None:
                return f"{word} is no command of {command.name}"
            command = found
    return ""


def test_every_command_that_a_text_names_is_one() -> None:
    named = ((path, said) for path in files() for said in commands(path))
    assert [f"{path}: mailboxd {said}: {why}" for path, said in named if (why := problem_of(said))] == []


def test_what_is_no_command_is_found_out() -> None:
    assert problem_of("history X") == "history is no command of mailboxd"
    assert problem_of("retry X --agent y") == "retry has no --agent"
    assert problem_of("-w X connect keys trust X FILE") == ""
    assert len(files()) > 60


def said_by(path: Path) -> Iterator[str]:
    """The strings of a module that are not its documentation."""
    documenting = documentation(path)
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documenting:
            yield node.value


def test_no_text_refers_to_a_page_that_a_wheel_does_not_have() -> None:
    modules = [path for path in files() if path.suffix == ".py" and not path.is_relative_to(ROOT / "docs")]
    assert [(path, text) for path in modules for text in said_by(path) if "docs/" in text] == []


def test_nothing_that_the_wheel_installs_elsewhere_refers_to_a_page() -> None:
    texts = [default_text("alpha"), *(path.read_text() for path in (ROOT / "systemd").rglob("*.*"))]
    assert not [text for text in texts if "docs/" in text]
