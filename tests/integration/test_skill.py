"""The skill: every example in it is read by the program, and what a person has changed stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mailboxd.core.events import Role
from mailboxd.core.outcomes import Failure, Planned, Question, Results, Reviewed, Unclear
from mailboxd.core.roles import may
from mailboxd.core.vocabulary import Turn
from mailboxd.errors import ConfigError, WorldError
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.taskmd import parse_task_file
from mailboxd.operate.integration import (
    FileStatus,
    install_skill,
    packaged_skill,
    skill_files,
    skill_state,
    uninstall_skill,
)
from mailboxd.surfaces.mcp.registration import entry_name
from mailboxd.surfaces.mcp.tokens import Caller
from mailboxd.surfaces.mcp.tools import TOOLS
from tests.cli.stage import Stage, make

SOURCE = Path(__file__).parents[2] / "templates" / "openclaw-skill"
TEXTS = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.md"))}
EXAMPLES = [
    pytest.param(kind, text, id=f"{name}-{number}")
    for name, whole in TEXTS.items()
    for number, (kind, text) in enumerate(re.findall(r"^~~~(\w+)\n(.*?)^~~~$", whole, re.MULTILINE | re.DOTALL))
]
MEANT = {"plan": Planned, "question": Question, "review": Reviewed}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


# The text


def test_openclaw_takes_its_front_matter() -> None:
    _, front, _ = TEXTS["SKILL.md"].split("---\n", 2)
    headers = dict(line.split(": ", 1) for line in front.splitlines())
    assert headers["name"] == "mailboxd"
    assert len(headers["description"]) < 160
    assert len(TEXTS["SKILL.md"].splitlines()) < 120


def test_there_are_examples_of_every_form() -> None:
    said = "".join(str(example.values[1]) for example in EXAMPLES)
    assert all(f"type: {kind}\n" in said for kind in (*MEANT, "reply"))
    assert {example.values[0] for example in EXAMPLES} == {"answer", "taskmd"}


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_every_example_in_the_skill_parses_as_intended(kind: str, text: str) -> None:
    text = text.replace("@AGENT@", "alpha")
    if kind == "taskmd":
        assert parse_task_file(text.encode(), "task.md").dag is not None
        return
    (said,) = re.findall(r"^type: (\w+)$", text, re.MULTILINE)
    answer = read_answer(text, Asked({"review": Turn.REVIEW, "ack": Turn.DISPATCH}.get(said, Turn.WORK)))
    assert not isinstance(answer, Unclear), answer
    reply = Failure if "status: failed" in text else Results
    assert isinstance(answer, MEANT.get(said, reply))


@pytest.mark.parametrize("name", TEXTS)
def test_every_reference_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXTS[name]):
        assert (SOURCE / name).parent.joinpath(target).is_file(), target


def test_the_skill_names_the_existing_tools_and_their_ids() -> None:
    entry = entry_name("alpha", Caller(Role.EXECUTOR, "alpha"))
    ids = re.findall(r"^- `(\S+)__(task_\w+)`", TEXTS["SKILL.md"].replace("@AGENT@", "alpha"), re.MULTILINE)
    mine = {name for name, tool in TOOLS.items() if any(may(Role.EXECUTOR, verb) for verb in tool.verbs)}
    assert {prefix for prefix, _ in ids} == {entry}
    assert {name for _, name in ids} == mine
    rows = re.findall(r"^\| (`task_.*?) \| (.*?) \|", TEXTS["references/tools.md"], re.MULTILINE)
    told = {name: who for names, who in rows for name in re.findall(r"`(\w+)`", names)}
    assert told.keys() == TOOLS.keys()
    for name, tool in TOOLS.items():
        assert (any(may(Role.EXECUTOR, verb) for verb in tool.verbs)) is ("executor" in told[name])
        assert (any(may(Role.QUALITY_REVIEWER, verb) for verb in tool.verbs)) is ("reviewer" in told[name])


# Installing


def test_it_is_written_once_and_is_then_up_to_date(stage: Stage) -> None:
    assert "not installed" in skill_state(stage.ws.root).problem
    assert set(install_skill(stage.ws, force=False)) == TEXTS.keys()
    assert install_skill(stage.ws, force=False) == []
    state = skill_state(stage.ws.root)
    assert (state.installed, state.current, state.problem) == (True, True, "")
    assert "`mailboxd-alpha__task_get`" in (Path(state.path) / "SKILL.md").read_text()
    assert "@AGENT@" not in "".join(raw.decode() for raw in packaged_skill(stage.ws).values())


def test_a_changed_skill_file_is_kept_unless_forced(stage: Stage) -> None:
    install_skill(stage.ws, force=False)
    file = stage.ws.root / "skills" / "mailboxd" / "SKILL.md"
    file.write_text("My own.\n")
    file.with_name("references").joinpath("plan.md").unlink()
    assert skill_state(stage.ws.root).problem == "SKILL.md is changed, references/plan.md is missing"
    with pytest.raises(ConfigError, match=r"SKILL\.md was changed by a person"):
        install_skill(stage.ws, force=False)
    assert file.read_text() == "My own.\n"
    assert set(install_skill(stage.ws, force=True)) == {"SKILL.md", "references/plan.md"}
    assert skill_state(stage.ws.root).current


def test_an_outdated_skill_file_is_replaced(stage: Stage) -> None:
    """The name of the agent is part of the text: another one makes another text."""
    install_skill(stage.ws, force=False)
    stage.ws.config.write_text(re.sub(r"(?m)^agent: .*$", "agent: omega", stage.ws.config.read_text()))
    assert skill_files(stage.ws)["SKILL.md"] is FileStatus.OUTDATED
    assert "SKILL.md" in install_skill(stage.ws, force=False)
    assert skill_state(stage.ws.root).current


def test_the_hash_file_is_not_trusted(stage: Stage) -> None:
    install_skill(stage.ws, force=False)
    place = stage.ws.root / "skills" / "mailboxd"
    place.joinpath("SKILL.md").write_text("My own.\n")
    for said in ("[]", "not json", '{"SKILL.md": 1}', '{"SKILL.md": [null]}'):
        place.joinpath(".mailboxd-skill.json").write_text(said)
        assert skill_files(stage.ws)["SKILL.md"] is FileStatus.CHANGED


def test_uninstalling_removes_only_written_files(stage: Stage) -> None:
    install_skill(stage.ws, force=False)
    place = stage.ws.root / "skills" / "mailboxd"
    place.joinpath("references", "tools.md").write_text("My own.\n")
    place.joinpath("note.md").write_text("Mine too.\n")
    removed, kept = uninstall_skill(stage.ws, force=False)
    assert kept == ["references/tools.md"]
    assert set(removed) == TEXTS.keys() - {"references/tools.md"}
    uninstall_skill(stage.ws, force=True)
    assert [path.name for path in place.rglob("*")] == ["note.md"]
    place.joinpath("note.md").unlink()
    assert uninstall_skill(stage.ws, force=False) == ([], [])
    assert not place.exists()


@pytest.mark.parametrize("link", ["skills", "skills/mailboxd", "skills/mailboxd/SKILL.md"])
def test_no_link_is_followed(stage: Stage, link: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path = stage.ws.root / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside / "SKILL.md" if link.endswith(".md") else outside)
    with pytest.raises(WorldError):
        install_skill(stage.ws, force=True)
    assert skill_state(stage.ws.root).problem
    assert list(outside.iterdir()) == []


def test_the_skill_commands_report_what_they_did(stage: Stage) -> None:
    assert set(stage.json("connect", "skill", "install")["written"]) == TEXTS.keys()
    assert "up to date" in stage.run("connect", "skill", "install").stdout
    assert skill_state(stage.ws.root).current
    assert stage.json("connect", "skill", "uninstall")["kept"] == []
    assert not skill_state(stage.ws.root).installed
