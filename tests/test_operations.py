"""docs/runbook.md explains every problem, rule and exit code that the program can report, and nothing else."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from mailboxd import errors
from mailboxd.formats.health import Component, Halt
from mailboxd.ledger.attention import Need
from tests.source import SOURCE, modules, nodes

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
ALARMS = PAGE.partition("\n## Alarms\n")[2].partition("\n## Exit codes\n")[0]

SECTION = re.compile(r"^#### (\S+)\n((?:<a id=[^\n]*\n)?)(.*?)(?=^###|\Z)", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r'<a id="([a-z-]+)"></a>')
NO_ALARM = frozenset(
    re.findall(r"`([a-z]+)`", "".join(re.findall(r"^\| (`.*?) \|", ALARMS.partition("no alarm\n")[2], re.MULTILINE)))
)
EXITS, _, RULES = PAGE.partition("\n## Exit codes\n")[2].partition("\n## Rules\n")
LOG = ALARMS.partition("### Lines of the log\n")[2]

BY_HAND = frozenset({"bug", "unknown"})
"""Sections without a slug in the code: lines of the log, and `<name>-unknown` of a failed probe."""


@cache
def sections() -> dict[str, str]:
    """Each name that can be linked to, with its section."""
    found: dict[str, str] = {}
    for heading, anchors, text in SECTION.findall(ALARMS):
        for name in (heading, *ANCHOR.findall(anchors)):
            assert name not in found, f"{name} is there twice"
            found[name] = text
    return found


@cache
def calls(path: str) -> tuple[ast.Call, ...]:
    files = sorted(SOURCE.rglob(path))
    return tuple(node for file in files for node in nodes(file) if isinstance(node, ast.Call))


def literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def findings() -> set[str]:
    """The ids of doctor's results that are not ok; `result` is a check's choice between two levels."""
    judged = {"note", "warning", "error", "result"}
    called = (call for call in calls("doctor/*.py") if _name(call) in judged and call.args)
    return {literal(call.args[0]) for call in called} - {""}


def causes() -> set[str]:
    """The kinds of `why`: the second argument of each Cause, and what `_no_room` returns in its place."""
    kinds = {literal(call.args[1]) for call in calls("core/explain/why.py") if _name(call) == "Cause"}
    why = nodes(SOURCE / "core" / "explain" / "why.py")
    (chooses,) = (node for node in why if isinstance(node, ast.FunctionDef) and node.name == "_no_room")
    returned = [node.value for node in ast.walk(chooses) if isinstance(node, ast.Return)]
    return (kinds | {literal(pair.elts[0]) for pair in returned if isinstance(pair, ast.Tuple)}) - {""}


def alarms() -> set[str]:
    """`what` of every alarm that is recorded as an event."""
    given: set[str] = set()
    for call in calls("*.py"):
        if any(isinstance(argument, ast.Attribute) and argument.attr == "ALARM" for argument in call.args):
            given |= {literal(keyword.value) for keyword in call.keywords if keyword.arg == "what"}
            data = [node for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Dict)]
            given |= {
                literal(value)
                for one in data
                for key, value in zip(one.keys, one.values, strict=True)
                if key is not None and literal(key) == "what"
            }
    return given


def troubles() -> set[str]:
    return {where.lower().replace(" ", "-") for where in Component} | set(Halt)


@cache
def used_rules() -> set[str]:
    """Every rule that the source can raise: a literal that is passed as a parameter (or field) called `rule`."""
    places = {name: place for path in modules() for name, place in _takers(path)}
    return {rule for call in calls("*.py") for rule in _given(call, places)}


def _takers(path: Path) -> Iterator[tuple[str, int]]:
    """Functions and dataclasses with a parameter `rule`, and its position."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg not in {"self", "cls"}]
        elif isinstance(node, ast.ClassDef):
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            names = [target.id for target in fields if isinstance(target, ast.Name)]
        else:
            continue
        if "rule" in names:
            yield node.name, names.index("rule")


def _given(call: ast.Call, places: dict[str, int]) -> Iterator[str]:
    place = places.get(_name(call))
    if place is None:
        return
    values = [keyword.value for keyword in call.keywords if keyword.arg == "rule"]
    for value in values or call.args[place : place + 1]:
        # also both sides of `"a" if ... else "b"`, but not what is compared in between
        branches = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        for branch in branches:
            if isinstance(branch, ast.Constant) and re.fullmatch("[a-z][a-z0-9-]*", str(branch.value)):
                yield str(branch.value)


def _kinds(kind: type[errors.MailboxdError]) -> Iterator[type[errors.MailboxdError]]:
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield below
            yield from _kinds(below)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_known_names_are_found_in_the_code() -> None:
    assert {"clock", "archive", "impossible-action", "filing-mail", "older-database"} == alarms()
    assert {"gateway", "inodes", "lane", "canary-filed"} <= findings()
    assert {"slot", "memory", "circuit", "pace", "budget"} <= causes()


@pytest.mark.parametrize("named", [troubles, findings, alarms], ids=["status", "doctor", "log"])
def test_everything_that_can_be_wrong_has_its_section(named: object) -> None:
    assert callable(named)
    assert named() - set(sections()) == set()


def test_every_cause_of_why_has_its_section_or_is_no_alarm() -> None:
    assert causes() - set(sections()) - NO_ALARM == set()
    assert causes() >= NO_ALARM
    assert set(sections()) & NO_ALARM == set()


def test_every_section_is_about_something_that_is_reported() -> None:
    reported = troubles() | findings() | causes() | alarms() | {*Need} | BY_HAND
    assert set(sections()) - reported == set()


def test_a_section_says_what_it_affects_and_what_to_do() -> None:
    whole = [name for name, text in sections().items() if "**Effect:**" in text and "**Do:**" in text]
    assert whole == list(sections())
    assert min(len(text.split()) for text in sections().values()) > 15


def test_the_rules_that_are_explained_are_those_that_can_be_broken() -> None:
    explained = re.findall(r"^- `([a-z0-9-]+)`: ", RULES, re.MULTILINE)
    assert explained == sorted(used_rules())


def test_every_exit_code_is_listed_with_its_kinds_of_errors() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    kinds = list(_kinds(errors.MailboxdError))
    listed = {
        int(code): re.findall(r"\w+", last) for code, last in re.findall(r"^\| (\d+) .*\|(.*)\|$", EXITS, re.MULTILINE)
    }
    assert listed == {code: [kind.__name__ for kind in kinds if kind.exit_code == code] for code in codes}


def test_every_warning_of_the_log_is_explained() -> None:
    said = [
        literal(call.args[0])
        for call in calls("*.py")
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in {"warning", "error", "exception", "critical"}
        and ast.unparse(call.func.value) == "_log"
    ]
    texts = [[part.strip(" ,:;()") for part in re.split(r"%(?:\.?\d*)?[a-z]", text)] for text in said]
    wanted = [[part for part in parts if len(part) > 3] for parts in texts]
    quoted = re.findall(r"`([^`]+)`", LOG)
    missing = [parts for parts in wanted if parts and not any(one in part for part in parts for one in quoted)]
    assert missing == []
