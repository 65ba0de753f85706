"""The error boundary, the help, init and config."""

from __future__ import annotations

import errno
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from mailboxd.cli.program import ADMIN, COMMANDS, guarded, program
from mailboxd.cli.session import Session
from mailboxd.cli.text import fit, width
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import (
    EXIT_BUG,
    EXIT_TRY_AGAIN,
    ConfigError,
    LockedError,
    MailboxdError,
    MessageError,
    Refused,
    UnavailableError,
    WorldError,
)
from mailboxd.formats.user import registry
from mailboxd.host import log
from tests.cli.stage import Stage, child


def below(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is not a group, with its words."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from below(command, *path, name)
        else:
            yield (*path, name), command


VERBS = dict(below(program))


# Help


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(program, ["--help"], obj=Session())
    assert result.exit_code == 0
    assert re.findall(r"^(\w+):$", result.stdout, re.MULTILINE) == [
        "Options", "Work", "Look", "Decide", "Repair", "More",
    ]  # fmt: skip
    assert "Exit status:" in result.stdout


def test_the_first_page_describes_some_twenty_commands_and_names_the_others() -> None:
    first = CliRunner().invoke(program, ["--help"], obj=Session()).stdout
    described = [name for found in COMMANDS.values() for name in found]
    others = [name for found in ADMIN.values() for name in found]
    assert all(f"\n  {name} " in first for name in described)
    assert not [name for name in others if f"\n  {name} " in first.replace(f"\n  {others[0]}, ", "")]
    assert set(others) <= set(re.findall(r"[a-z-]+", first.partition("More:")[2].partition(";")[0]))
    assert len(described) <= 23
    everything = CliRunner().invoke(program, ["--help-all"], obj=Session()).stdout
    assert all(f"\n  {path[0]} " in everything for path in VERBS)


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_command_has_help_with_examples_and_explained_options(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(program, [*path, "--help"], obj=Session())
    assert result.exit_code == 0
    assert re.search(rf"Examples:\n    .*mailboxd {' '.join(path)}", result.stdout)
    assert all(option.help for option in VERBS[path].params if isinstance(option, click.Option))


@pytest.mark.parametrize("group", [(), ("db",), ("connect",), ("export",), ("connect", "keys")])
def test_no_list_of_commands_clips_a_description(group: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(program, [*group, "--help"], obj=Session()).stdout
    assert (
        "..." not in shown.partition("\nWork:\n" if not group else "\nCommands:\n")[2].partition("\n  Exit status")[0]
    )


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"mailboxd \d+\.\d+.*\n", CliRunner().invoke(program, ["--version"]).stdout)


def test_an_unknown_command_suggests_the_nearest() -> None:
    result = CliRunner().invoke(program, ["statu"])
    assert result.exit_code == 2
    assert "did you mean status?" in result.stderr


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("stop", "cancel TASK"),
        ("reply", "answer TASK"),
        ("list", "ls"),
        ("tail", "log"),
        ("help", "--help"),
        ("repeat", "send --repeat"),
    ],
)
def test_a_word_of_other_programs_leads_to_the_command(word: str, command: str) -> None:
    result = CliRunner().invoke(program, [word])
    assert result.exit_code == 2
    assert f"there is no command '{word}'; did you mean {command}?" in result.stderr


def test_verbs_options_and_tasks_are_completed(stage: Stage) -> None:
    stage.create("job", child("a"))

    def completed(*words: str, incomplete: str) -> list[str]:
        session = {"obj": Session(path=stage.ws.root)}
        completer = ShellComplete(program, session, "mailboxd", "_MAILBOXD_COMPLETE")
        return [item.value for item in completer.get_completions(list(words), incomplete)]

    assert completed(incomplete="sta") == ["status"]
    assert completed("show", incomplete="jo") == ["job", "job.a"]
    assert completed("show", "-w", "/nowhere", incomplete="jo") == []
    assert completed("show", incomplete="--js") == ["--json"]


# Workspace and form


def test_the_workspace_may_be_named_before_or_after_the_verb(stage: Stage, tmp_path: Path) -> None:
    for arguments in (["-w", str(stage.ws.root), "status"], ["status", "--workspace", str(stage.ws.root)]):
        assert CliRunner().invoke(program, arguments, obj=Session()).exit_code == 0
    refused = CliRunner().invoke(program, ["status", "-w", str(tmp_path)], obj=Session())
    assert refused.exit_code == 69
    assert "mailboxd init" in refused.stderr


def test_the_workspace_is_found_from_below_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.ws.tasks)
    result = CliRunner().invoke(program, ["--json", "status"], obj=Session())
    assert json.loads(result.stdout)["workspace"] == str(stage.ws.root)


def test_outside_a_workspace_those_of_this_user_are_named(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outside := tmp_path / "outside").mkdir()
    monkeypatch.chdir(outside)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "`mailboxd setup` begins" in CliRunner().invoke(program, ["ls"], obj=Session()).stderr
    (tmp_path / "state").mkdir()
    assert registry.register(stage.ws.root, {"XDG_STATE_HOME": str(tmp_path / "state")})
    result = CliRunner().invoke(program, ["ls"], obj=Session())
    assert (result.exit_code, f"; say -w {stage.ws.root} (" in result.stderr) == (69, True)


def test_a_relative_workspace_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert CliRunner().invoke(program, ["init", "../there", "--agent", "alpha"], obj=Session()).exit_code == 0
    assert CliRunner().invoke(program, ["-w", "../there", "status"], obj=Session()).exit_code == 0
    assert (tmp_path / "there" / ".mailboxd" / "config.yaml").is_file()


# Init


def test_init_makes_everything_for_its_owner_only(stage: Stage) -> None:
    ws = stage.ws
    for path in (ws.inbox, ws.outbox, ws.archive, ws.rejected, ws.tasks, ws.state):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (ws.config, ws.database):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_init_lists_what_it_created_and_is_idempotent(tmp_path: Path) -> None:
    first = CliRunner().invoke(program, ["init", str(tmp_path / "ws"), "--agent", "alpha", "--json"], obj=Session())
    made = json.loads(first.stdout)["made"]
    assert {"mailbox/inbox", ".mailboxd/config.yaml", ".mailboxd/mailboxd.db"} <= set(made)
    config = tmp_path / "ws" / ".mailboxd" / "config.yaml"
    config.write_text("agent: alpha  # mine\n")
    again = CliRunner().invoke(program, ["init", str(tmp_path / "ws"), "--agent", "alpha", "--json"], obj=Session())
    assert json.loads(again.stdout)["made"] == []
    assert config.read_text() == "agent: alpha  # mine\n"


def test_init_leaves_the_workspace_of_another_agent_alone(stage: Stage) -> None:
    before = stage.ws.config.read_bytes()
    result = stage.run("init", str(stage.ws.root), "--agent", "beta")
    assert result.exit_code == 78
    assert "the workspace of agent alpha" in result.stderr
    assert stage.ws.config.read_bytes() == before


@pytest.mark.parametrize("agent", ["../x", "", ".x", "a b", "\udcff"])
def test_init_wants_an_agent_id(tmp_path: Path, agent: str) -> None:
    result = CliRunner().invoke(program, ["init", str(tmp_path / "ws"), "--agent", agent], obj=Session())
    assert result.exit_code == 2
    assert not (tmp_path / "ws").exists()


# Config


def test_config_prints_the_differences_from_the_defaults(stage: Stage) -> None:
    stage.ws.config.write_text("agent: alpha\nlimits:\n  turns: 8\n")
    assert stage.run("config").stdout == "agent: alpha\nlimits.turns: 8\n"
    assert stage.json("config") == {"agent": "alpha", "limits.turns": 8}
    everything = stage.json("config", "--all")
    assert (everything["limits.turns"], everything["limits.depth"], everything["log.format"]) == (8, 8, "text")


def test_config_names_all_that_is_wrong(stage: Stage) -> None:
    stage.ws.config.write_text("agent: alpha\nlimts:\n  turns: 8\nlog:\n  level: loud\n")
    result = stage.run("config")
    assert result.exit_code == 78
    assert result.stderr.count(str(stage.ws.config)) == 2


# The boundary


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("ended", "it is over", "See `why`."), 1),
        (MessageError("alias", "no", path="x.md", line=3), 65),
        (UnavailableError("nothing there"), 69),
        (LockedError("held by 7"), 73),
        (WorldError("disk full"), 75),
        (ConfigError("x.yaml:1: no\nx.yaml:2: no"), 78),
    ],
)
def test_an_expected_error_is_one_sentence_and_an_exit_status(
    error: MailboxdError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert guarded(fail, ["show"], Session()) == status
    assert capsys.readouterr().err == f"mailboxd: {error}\n"
    assert guarded(fail, ["show", "--json"], Session()) == status
    told = json.loads(capsys.readouterr().err)["error"]
    assert (told["kind"], told["exit"], told["message"]) == (type(error).__name__, status, str(error))


def test_an_unexpected_error_is_a_bug_report(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ZeroDivisionError("\x1b[31m")

    assert guarded(fail, ["show", "a b"], Session()) == EXIT_BUG
    said = capsys.readouterr().err
    assert "Please report it" in said
    assert "$ mailboxd show 'a b'" in said
    assert "Traceback" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("_sqlite3.so: failed to map segment from shared object"),
    ],
)
def test_a_shortage_of_memory_is_not_reported_as_a_bug(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    assert guarded(fail, [], Session()) == EXIT_TRY_AGAIN
    (line,) = capsys.readouterr().err.splitlines()
    assert "no more memory, threads or file descriptors" in line


def test_where_even_the_report_gets_no_memory_a_line_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    class Large(WorldError):
        def __str__(self) -> str:
            raise MemoryError

    def fail() -> None:
        raise Large

    assert guarded(fail, [], Session()) == EXIT_TRY_AGAIN
    (line,) = capfd.readouterr().err.splitlines()
    assert "no more memory, threads or file descriptors" in line


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_is_quiet(stop: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise stop

    assert guarded(interrupted, [], Session()) == 130
    assert capsys.readouterr() == ("", "")


def test_json_after_a_double_dash_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise WorldError("no")

    guarded(fail, ["send", "--", "--json"], Session())
    assert capsys.readouterr().err == "mailboxd: no\n"


# Text


def test_run_offers_the_existing_log_formats() -> None:
    run = program.get_command(click.Context(program), "run")
    assert run is not None
    offered = {param.name: tuple(param.type.choices) for param in run.params if isinstance(param.type, click.Choice)}
    assert offered == {"log_format": log.FORMATS, "log_level": log.LEVELS}


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("short", 10, "short"),
        ("exactly ten", 11, "exactly ten"),
        ("one word too many", 10, "one word…"),
        ("日本語日本語", 7, "日本語…"),
        ("e\u0301" * 10, 10, "e\u0301" * 10),
        ("a\x1b[31m\nb", 30, "a\\x1b[31m b"),
    ],
)
def test_a_cell_is_cut_to_the_columns_it_has(text: str, room: int, shown: str) -> None:
    assert fit(text, room) == shown
    assert width(shown) <= room


def test_control_characters_are_shown_as_escapes() -> None:
    assert for_terminal("a\tb\n\x1b[2J\u202eevil\udcff\x9b") == "a\tb\n\\x1b[2J\\u202eevil\\udcff\\x9b"
