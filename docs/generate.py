"""Writes the reference pages from the code that they describe. `make docs` runs it; a test compares.

A further page is one function that returns its text, and one row in PAGES.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from mailboxd import config, errors

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "mailboxd"

_SLUG = re.compile("[a-z][a-z0-9-]*")
_GENERATED = "<!-- Written by `make docs`; changes here are lost. -->\n"


def configuration_page() -> str:
    """Every key of config.yaml."""
    return f"""\
# Configuration

{_GENERATED}
`.mailboxd/config.yaml` in the workspace. `mailboxd init` writes it with every key in a comment. Only `agent` has to be
said. Unknown keys, repeated keys, anchors, tags and numbers out of range are refused: exit {errors.EXIT_CONFIG}, with
the line and what to write instead.

{config.reference()}"""


def errors_page() -> str:
    """Exit codes, kinds of errors, rules."""
    known = tomllib.loads((DOCS / "rules.toml").read_text(encoding="utf-8"))
    exits = [f"| {code} | {known['exits'][name]} |" for name, code in exit_codes().items()]
    kinds = [
        f"| `{kind.__name__}` | {kind.exit_code} | {_sentence(kind)} |"
        for kind in _kinds(errors.MailboxdError)
        if kind is not errors.MailboxdError
    ]
    rules = [
        f"| `{rule}` | {', '.join(sorted(raised))} | {said['meaning']} | {said['remedy']} |"
        for rule, raised in sorted(used_rules().items())
        if (said := known["rules"].get(rule))
    ]
    return f"""\
# Errors

{_GENERATED}
## Exit codes

| code | meaning |
| --- | --- |
{_lines(exits)}

## Kinds

Named by whose fault it is. Anything else that goes wrong is our bug: exit {errors.EXIT_BUG} and a report. An agent that
fails is no error: it is an outcome, and `retry` in the configuration says what happens.

| kind | exit | |
| --- | --- | --- |
{_lines(kinds)}

## Rules

The stable short names: in `rejected/<name>.reason.json`, in events, and in brackets at the end of an error.

| rule | kind | what is wrong | what to do |
| --- | --- | --- | --- |
{_lines(rules)}
"""


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "errors.md": errors_page,
}


def exit_codes() -> dict[str, int]:
    """The constants EXIT_... of `mailboxd.errors` by name, in the order of their codes."""
    found = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def used_rules() -> dict[str, set[str]]:
    """Every rule that the source can raise, with the kinds of error that carry it.

    Found in the syntax tree: a literal that is given to a parameter (or field) called `rule`. A function with such a
    parameter counts as MessageError unless it is one of the errors itself.
    """
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    places = {name: place for tree in trees for name, place in _takers(tree)}
    kinds = {kind.__name__ for kind in _kinds(errors.MailboxdError)}
    rules: dict[str, set[str]] = {}
    for tree in trees:
        for name, literal in _given(tree, places):
            rules.setdefault(literal, set()).add(name if name in kinds else "MessageError")
    return rules


def _takers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Functions and dataclasses that take a `rule`, and at which place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg not in {"self", "cls"}]
        elif isinstance(node, ast.ClassDef):
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            names = [target.id for target in fields if isinstance(target, ast.Name)]
        else:
            continue
        if "rule" in names:
            yield node.name, names.index("rule")


def _given(tree: ast.AST, places: dict[str, int]) -> Iterator[tuple[str, str]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in places:
            continue
        values = [keyword.value for keyword in call.keywords if keyword.arg == "rule"]
        for value in values or call.args[places[name] : places[name] + 1]:
            # also both sides of `"a" if ... else "b"`, but not what is compared in between
            branches = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            for branch in branches:
                if isinstance(branch, ast.Constant) and _SLUG.fullmatch(str(branch.value)):
                    yield name, str(branch.value)


def _kinds(kind: type[errors.MailboxdError]) -> Iterator[type[errors.MailboxdError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _sentence(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def _lines(rows: list[str]) -> str:
    return "\n".join(rows)


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
