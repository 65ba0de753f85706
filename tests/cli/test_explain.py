"""`mailboxd doctor`: the runbook's words for every name that the program prints, without network or source."""

from __future__ import annotations

import re

from click.testing import CliRunner

from mailboxd import errors
from mailboxd.cli.commands.explain import entries, runbook
from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.formats.health import Component, Grade, Halt, Trouble
from mailboxd.ledger.attention import Need
from tests.cli.stage import Stage

KNOWN = entries(runbook())
ALARMS = runbook().partition("\n## Alarms\n")[2]
SECTIONS = re.findall(r"^#### (.+)$", ALARMS, re.MULTILINE) + re.findall(r'<a id="([a-z-]+)">', ALARMS)
RULES = re.findall(r"^- `([a-z0-9-]+)`:", ALARMS, re.MULTILINE)
CODES = [str(code) for name, code in vars(errors).items() if name.startswith("EXIT_")]
KINDS = [kind.__name__ for kind in errors.MailboxdError.__subclasses__() if kind.__module__ == errors.__name__]


def explain(*words: str) -> str:
    result = CliRunner().invoke(program, ["doctor", *words], obj=Session(), env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_alarm_rule_exit_code_kind_and_trouble_is_explained() -> None:
    troubles = [Trouble(where, "", Grade.RED, "").slug for where in Component]
    assert [name for name in (*SECTIONS, *RULES, *CODES, *KINDS, *Need, *troubles) if not KNOWN.get(name)] == []


def test_the_text_is_the_runbooks_without_markup() -> None:
    said = explain("circuit")
    assert "Do: read `mailboxd why TASK`" in said
    assert not any(mark in said for mark in ("](", "**", "<a "))
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "wrong configuration" in explain("78") == explain("ConfigError")
    assert explain("(alias)") == explain("alias")
    assert set(Halt) <= set(explain("--names").replace(",", " ").split())


def test_why_explains_a_name_unless_a_task_is_called_so(stage: Stage) -> None:
    assert stage.run("why", "circuit").stdout == explain("circuit")
    stage.create("circuit")
    assert "next: " in stage.run("why", "circuit").stdout
    assert stage.run("why", "zqzqzq").exit_code == 69
    outside = CliRunner().invoke(program, ["why", "78"], obj=Session(), env={"COLUMNS": "80"})
    assert outside.stdout == explain("78"), "it needs no workspace"


def test_an_explanation_is_no_diagnosis() -> None:
    refused = CliRunner().invoke(program, ["doctor", "circuit", "--quick"], obj=Session())
    assert (refused.exit_code, "diagnose nothing" in refused.stderr) == (2, True)


def test_an_unknown_name_suggests_the_nearest() -> None:
    result = CliRunner().invoke(program, ["doctor", "circut"], obj=Session())
    assert (result.exit_code, "did you mean circuit?" in result.stderr) == (69, True)
