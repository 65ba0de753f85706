"""Pages are correct: anchors exist, commands and options are known, configurations load."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from mailboxd.cli.program import program
from mailboxd.formats import config

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
FENCE = re.compile(r"^ *(`{3,4}|~{3})(\w*)\n(.*?)^ *\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
SECTIONS = frozenset(config.Config.model_fields)


def blocks(page: Path, *kinds: str) -> Iterator[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    yield from (textwrap.dedent(text) for _, kind, text in found if kind in kinds)


def anchors(page: Path) -> set[str]:
    """The anchors that a forge derives from headings: lower case, no punctuation, a dash for each space."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower().strip() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in shown} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


def commands(page: Path) -> Iterator[list[str]]:
    """Every call of mailboxd in the shell blocks of a page, split into words."""
    for block in blocks(page, "sh", "bash"):
        block = re.sub(r"<<'?(\w+)'?.*?\n.*?^\1$", "", block, flags=re.MULTILINE | re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||[|;]", line):
                words = shlex.split(part.split(" #")[0]) if part.strip().startswith("mailboxd ") else []
                if words:
                    yield words[1:]


def test_every_link_to_a_heading_finds_it() -> None:
    lost = [
        f"{page}: {path}#{anchor}"
        for page in PAGES
        for path, anchor in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        if (target := page.parent / path if path else page).suffix == ".md" and anchor not in anchors(target)
    ]
    assert lost == []


def test_every_command_is_one_and_knows_its_options() -> None:
    for words in (words for page in PAGES for words in commands(page)):
        command: click.Command = program
        options = {option for param in program.params for option in (*param.opts, *param.secondary_opts)}
        rest = list(words)
        while rest and isinstance(command, click.Group):
            word = rest.pop(0)
            if word in ("-w", "--workspace"):
                rest.pop(0)
            elif not word.startswith("-"):
                found = command.get_command(click.Context(command), word)
                assert found is not None, f"mailboxd {shlex.join(words)}"
                command = found
                options |= {option for param in found.params for option in (*param.opts, *param.secondary_opts)}
        given = {word.split("=")[0] for word in rest if re.fullmatch(r"--[a-z-]+(=.*)?", word)}
        assert given - options - {"--help"} == set(), f"mailboxd {shlex.join(words)}"


def test_every_example_of_the_configuration_loads(tmp_path: Path) -> None:
    for text in (text for page in PAGES for text in blocks(page, "yaml")):
        written = yaml.safe_load(text)
        if isinstance(written, dict) and written.keys() <= SECTIONS:
            file = tmp_path / "config.yaml"
            file.write_text(text if "agent" in written else f"agent: alpha\n{text}", encoding="utf-8")
            config.load(file)


def test_the_examples_are_found() -> None:
    assert ["send", "--task-id", "draft"] in [words[:3] for words in commands(DOCS / "howto" / "review-gates.md")]
    assert "gates-that-are-not-there" not in anchors(DOCS / "when-work-counts.md")
    assert {"gates", "broadcasts"} <= anchors(DOCS / "when-work-counts.md")
    assert "approvals" in SECTIONS
