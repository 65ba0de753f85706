"""The spec of a task as Markdown sections, with its checks and planned actions (protocol section 2).

Missing sections are derived from the others.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from mailboxd.core.approvals import Action, ActionKind, merged
from mailboxd.core.checks import path_problem
from mailboxd.core.model import Check, Spec
from mailboxd.core.sanitize import excerpt, storable_text
from mailboxd.core.specs import DERIVED_CRITERION, criteria, stated
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import strict_yaml
from mailboxd.formats.protocol.headers import ID_RULE, Source, integer
from mailboxd.formats.protocol.headings import stated_criteria
from mailboxd.formats.protocol.markdown import Section, code_blocks, join_body, sole_block, split_body, texts_by_name
from mailboxd.formats.protocol.strict_yaml import Path, Yaml, flow, scalar

# The section `## Checks`: YAML <-> `core.model.Check`.
#
#     - id: tests
#       command: [pytest, -q]          # words, no shell; optional: timeout (seconds), cwd
#     - id: report
#       file: out/report.md            # optional: min_bytes
#     - id: shape
#       json_schema: schemas/out.json  # or the schema itself, as a mapping
#       of: out/data.json              # or `result`, the default
#
# Bare or in one fenced block. Without a list with an `id:`, the section is prose (clawflow messages may contain one).

MAX_CHECKS = 20
_MAX_SECONDS = 86_400
_MAX_BYTES = 1 << 40
_MAX_SCHEMA = 65_536
_CLAIM = re.compile(r"^[ \t]*(?:-[ \t]+|-[ \t]*\{[ \t]*|\[[ \t]*\{[ \t]*)id[ \t]*:", re.MULTILINE)
_KINDS = {"command": ("timeout", "cwd"), "file": ("min_bytes",), "json_schema": ("of",)}
_RESULT = "result"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS = {"true": True, "false": False, "null": None}
_T = TypeVar("_T", Check, Action)


def claimed(text: str) -> bool:
    """Whether a section called Checks contains a list of checks."""
    return _CLAIM.search(text) is not None


def parse_checks(text: str, *, path: str = "", first_line: int = 1) -> tuple[Check, ...]:
    """The checks in `text`.

    Raises MessageError with line and field: the rules of `strict_yaml`, `bad-check`, `bad-id`, `wrong-type`,
    `field-range`.
    """
    above, listed = sole_block(text) or (0, text)
    first_line += above
    loaded = strict_yaml.load(listed, path=path, first_line=first_line)
    return checks_of(Source(path, first_line, loaded.lines, loaded.plain), loaded.value, ())


def checks_of(source: Source, value: Yaml, where: Path) -> tuple[Check, ...]:
    """The checks in a list of a YAML document. Raises MessageError."""
    return () if value == "" else _list_of("check", MAX_CHECKS, _check, source, value, where)


def _list_of(
    what: str, most: int, read: Callable[[Source, Yaml, Path], _T], source: Source, value: Yaml, where: Path
) -> tuple[_T, ...]:
    """The checks or actions in a list, each with an id of its own. Raises MessageError."""
    if not isinstance(value, list):
        source.fail("wrong-type", f"the {what}s are not a list", where, "Write `- id: ...` for each.")
    if len(value) > most:
        source.fail("field-range", f"there are more than {most} {what}s", where)
    items = tuple(read(source, item, (*where, index)) for index, item in enumerate(value))
    names = [item.id for item in items]
    if twice := next((name for name in names if names.count(name) > 1), None):
        source.fail(f"bad-{what}", f"two {what}s have the id {twice}", where, "Give each its own id.")
    return items


def _id_of(what: str, source: Source, fields: Mapping[str, Yaml], where: Path) -> str:
    name = source.text(fields.get("id", ""), (*where, "id"))
    if not name:
        number = int(where[-1]) + 1
        nth = {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
        source.fail("bad-id", f"the {nth} {what} has no `id:`", (*where, "id"), f"Give each {what} an id of its own.")
    if not is_id(name):
        problem = f"{excerpt(name)} is not a valid id for {'an' if what == 'action' else 'a'} {what}"
        source.fail("bad-id", problem, (*where, "id"), ID_RULE)
    return name


def _check(source: Source, item: Yaml, where: Path) -> Check:
    fields = source.mapping(item, where)
    name = _id_of("check", source, fields, where)
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        source.fail("bad-check", f"the check {name} needs exactly one of {', '.join(_KINDS)}", where)
    if unknown := next((key for key in fields if key not in ("id", *kinds, *_KINDS[kinds[0]])), None):
        hint = f"A {kinds[0]} check may have: {', '.join(_KINDS[kinds[0]])}."
        source.fail("bad-check", f"a {kinds[0]} check has no key {excerpt(unknown)}", (*where, unknown), hint)
    match kinds[0]:
        case "command":
            return _command(source, name, fields, where)
        case "file":
            low = _number(source, fields, "min_bytes", where, 0, _MAX_BYTES)
            return Check(name, file=_path(source, fields, "file", where), min_bytes=low)
        case _:
            return _schema(source, name, fields, where)


def _command(source: Source, name: str, fields: Mapping[str, Yaml], where: Path) -> Check:
    words = source.command(fields["command"], (*where, "command"), "bad-check", "the command", "[make, test]")
    cwd = _path(source, fields, "cwd", where) if fields.get("cwd", "") not in ("", ".") else ""
    return Check(name, words, _number(source, fields, "timeout", where, 1, _MAX_SECONDS), cwd)


def _schema(source: Source, name: str, fields: Mapping[str, Yaml], where: Path) -> Check:
    schema, place = fields["json_schema"], (*where, "json_schema")
    of = "" if fields.get("of", _RESULT) == _RESULT else _path(source, fields, "of", where)
    if isinstance(schema, str):
        return Check(name, schema_file=_path(source, fields, "json_schema", where), of=of)
    text = json.dumps(_typed(schema, place, source.plain), ensure_ascii=False)
    if not isinstance(schema, dict) or len(text) > _MAX_SCHEMA:
        source.fail("bad-check", "the schema is not a mapping, or too large", place, "Name a file instead.")
    return Check(name, schema_text=text, of=of)


def _typed(value: Yaml, where: Path, plain: frozenset[Path]) -> Any:
    """The value as JSON: unquoted numbers, `true`, `false` and `null` are typed, everything else is text."""
    if isinstance(value, dict):
        return {key: _typed(item, (*where, key), plain) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item, (*where, index), plain) for index, item in enumerate(value)]
    if where not in plain:
        return value
    if value in ("", "~"):
        return None
    return json.loads(value) if _NUMBER.fullmatch(value) else _LITERALS.get(value, value)


def _path(source: Source, fields: Mapping[str, Yaml], name: str, where: Path) -> str:
    path = source.text(fields[name], (*where, name))
    if problem := path_problem(path):
        source.fail("bad-check", f"{excerpt(path)}: {problem}", (*where, name))
    return path


def _number(source: Source, fields: Mapping[str, Yaml], name: str, where: Path, low: int, high: int) -> int:
    value = fields.get(name, "")
    return 0 if value == "" else int(source.convert(integer(low, high), value, (*where, name)))


def render_checks(checks: tuple[Check, ...]) -> str:
    """The YAML of `checks` without a fence. `parse_checks(render_checks(checks)) == checks`."""
    lines: list[str] = []
    for check in checks:
        lines.append(f"- id: {scalar(check.id)}")
        if check.command:
            lines.append(f"  command: {json.dumps(list(check.command), ensure_ascii=False)}")
        elif check.file:
            lines.append(f"  file: {flow(check.file)}")
        else:
            lines.append(f"  json_schema: {check.schema_text or flow(check.schema_file)}")
            lines.append(f"  of: {flow(check.of or _RESULT)}")
        lines += [f"  {name}: {flow(text)}" for name in ("cwd",) if (text := getattr(check, name))]
        lines += [f"  {name}: {number}" for name in ("timeout", "min_bytes") if (number := getattr(check, name))]
    return "\n".join(lines)


# The section `## Planned Actions`: YAML <-> `core.approvals.Action`.
#
#     - id: publish
#       kind: command                 # command | message | file | http | manual
#       action: Publish the site      # for the person who decides; optional, like risk and idempotency_key
#       argv: [make, publish]         # words, no shell; optional: cwd, env (names), timeout (seconds)
#       verify: [make, is-published]  # optional; exit code 0 = it happened, 1 = it did not
#       undo: [make, unpublish]       # optional
#     - {id: tell, kind: message, channel: slack, target: "#team", text: It is out}
#     - {id: conf, kind: file, path: /srv/site.conf, source: out/site.conf}     # or content: |
#     - {id: hook, kind: http, method: POST, url: "https://example.org/hook", headers: {X-Key: "${KEY}"}, env: [KEY]}
#
# Bare or in one fenced block. The fields of a kind may also be in a mapping under `action:`. A section without such a
# list is prose: one manual action for a person; `none` and the like mean no action.

MAX_ACTIONS = 20
_MAX_DEPTH = 8
MANUAL_ID = "manual"
_MAX_TEXT = 262_144
_ITEM = re.compile(r"^[ \t]*(?:-[ \t]+[\"']?\w+[\"']?[ \t]*:|-[ \t]*\{|\[[ \t]*\{|\[[ \t]*$)", re.MULTILINE)
_NAMED = re.compile(
    r"(?:^[ \t]*+(?:-[ \t]*+)?|[{,][ \t]*+)"
    r"[\"']?(?:id|kind|type|action|argv|args|command|cmd|run|shell|script|tool|url)[\"']?[ \t]*:",
    re.MULTILINE,
)
"""A key of an action, or a word that models write for one."""
_DATA = re.compile(
    r"^[ \t]*+(?:-[ \t]*\{|\[\s*+\{|-[ \t]+[\"']?\w+[\"']?[ \t]*:[^\n]*\n[ \t]+[\"']?[a-z][a-z0-9_-]*[\"']?[ \t]*:)",
    re.MULTILINE,
)
"""An item in braces or with a second key, which prose does not have."""
_NOTHING = frozenset({"", "none", "no", "nothing", "n/a", "na", "nil"})
_NEEDED: Mapping[ActionKind, tuple[str, ...]] = {
    ActionKind.COMMAND: ("argv",),
    ActionKind.MESSAGE: ("channel", "target", "text"),
    ActionKind.FILE: ("path",),
    ActionKind.HTTP: ("method", "url"),
    ActionKind.MANUAL: ("action",),
}
_OPTIONAL: Mapping[ActionKind, tuple[str, ...]] = {
    ActionKind.COMMAND: ("cwd", "env", "timeout"),
    ActionKind.MESSAGE: ("account",),
    ActionKind.FILE: ("content", "source"),
    ActionKind.HTTP: ("headers", "body", "env", "timeout"),
    ActionKind.MANUAL: (),
}
_ALWAYS = ("id", "kind", "action", "risk", "idempotency_key", "verify", "undo")
_WORDS = frozenset({"argv", "verify", "undo"})
_LISTS = _WORDS | {"env"}
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "idempotency-key"}
)
_URL = re.compile(r"[\x21-\x7e]+")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def read_actions(text: str, *, path: str = "", first_line: int = 1) -> tuple[Action, ...]:
    """The actions in a section.

    Raises MessageError with line and field: the rules of `strict_yaml`, `bad-action`, `bad-id`, `wrong-type`,
    `field-range`.
    """
    stripped = text.strip()  # prose is stored in this form
    if _is_nothing(stripped):
        return ()
    if not claims(text) and not claims(stripped):
        return (_by_hand(stripped, path, first_line),)
    above, listed = next((block for block in code_blocks(text) if claims(block[1])), (0, text))
    first_line += above
    loaded = strict_yaml.load(listed, path=path, first_line=first_line)
    source = Source(path, first_line, loaded.lines, loaded.plain)
    return _list_of("action", MAX_ACTIONS, _action, source, loaded.value, ())


def read_action(fields: Mapping[str, Any]) -> Action:
    """One action from JSON, with the rules of the section. Raises MessageError like `read_actions`."""
    loaded = strict_yaml.load(flow([_untyped(fields)]), path="")
    return actions_of(Source("", 1, loaded.lines, loaded.plain), loaded.value, ())[0]


def _untyped(value: Any, depth: int = 0) -> Yaml:
    """A value of JSON as text, lists and mappings of text. Raises MessageError."""
    if depth > _MAX_DEPTH:
        raise MessageError("too-deep", f"an action is nested more than {_MAX_DEPTH} levels deep", "Flatten it.")
    if isinstance(value, Mapping):
        return {str(name): _untyped(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_untyped(item, depth + 1) for item in value]
    return "" if value is None else str(value)


def _by_hand(text: str, path: str, line: int) -> Action:
    if len(text) > _MAX_TEXT:
        raise MessageError("field-range", "the planned actions are too long", path=path, line=line)
    return Action(MANUAL_ID, ActionKind.MANUAL, action=text)


def actions_of(source: Source, value: Yaml, where: Path) -> tuple[Action, ...]:
    """The actions in a list of a YAML document; text is read as a section. Raises MessageError."""
    if isinstance(value, str):
        return read_actions(value)
    return _list_of("action", MAX_ACTIONS, _action, source, value, where)


def _action(source: Source, item: Yaml, where: Path) -> Action:
    fields = _flat(source, item, where)
    name = _id_of("action", source, fields, where)
    word = source.text(fields.get("kind", ""), (*where, "kind"))
    if word not in tuple(ActionKind):
        hint = f"Expected: {', '.join(ActionKind)}."
        said = f"has the unknown kind {excerpt(word)}" if word else "has no `kind:`"
        source.fail("bad-action", f"the action {name} {said}", (*where, "kind"), hint)
    kind = ActionKind(word)
    known = (*_ALWAYS, *_NEEDED[kind], *_OPTIONAL[kind])
    if unknown := next((key for key in fields if key not in known), None):
        hint = f"A {kind} action may have: {', '.join(dict.fromkeys(known))}."
        source.fail("bad-action", f"a {kind} action has no key {excerpt(unknown)}", (*where, unknown), hint)
    if missing := next((key for key in _NEEDED[kind] if fields.get(key, "") in ("", [])), None):
        source.fail(
            "bad-action",
            f"the action {name} has no {missing}",
            where,
            f"A {kind} action needs {', '.join(_NEEDED[kind])}.",
        )
    values = {key: _value(source, key, value, (*where, key)) for key, value in fields.items() if key != "kind"}
    action = Action(kind=kind, **values)
    if problem := _problem(action):
        source.fail("bad-action", f"the action {name}: {problem}", where)
    return action


def _flat(source: Source, item: Yaml, where: Path) -> dict[str, Yaml]:
    """The fields of an action, including those in a mapping under `action:`."""
    fields = dict(source.mapping(item, where))
    inner = fields.get("action", "")
    if isinstance(inner, list):
        fields["argv"] = inner
    elif isinstance(inner, dict):
        fields |= inner
    if not isinstance(inner, str):
        fields["action"] = inner.get("action", "") if isinstance(inner, dict) else ""
    return fields


def _value(source: Source, key: str, value: Yaml, where: Path) -> Any:
    if key in _WORDS:
        return () if value == "" else source.command(value, where, "bad-action", key, "[make, publish]")
    if key == "env":
        names = value if isinstance(value, list) else [value]
        return tuple(source.text(name, where) for name in names if name != "")
    if key == "headers":
        pairs = source.mapping(value, where)
        return tuple((name, source.text(text, (*where, name))) for name, text in pairs.items())
    if key == "timeout":
        return 0 if value == "" else int(source.convert(integer(1, _MAX_SECONDS), source.text(value, where), where))
    text = source.text(value, where)
    if len(text) > _MAX_TEXT:
        source.fail("field-range", f"it is longer than {_MAX_TEXT} characters", where)
    return text.upper() if key == "method" else text


def _problem(action: Action) -> str | None:
    """The problem of an action that no configuration can allow, or None."""
    one_line = (action.risk, action.cwd, action.channel, action.target, action.account, action.path, action.url)
    if not all(text.isprintable() for text in one_line):
        return "a field contains characters that cannot be displayed"
    if action.idempotency_key and not _KEY.fullmatch(action.idempotency_key):
        return "idempotency_key is not 1 to 200 printable characters without spaces"
    if bad := next((name for name in action.env if not _NAME.fullmatch(name)), None):
        return f"{excerpt(bad)} is not a valid name for an environment variable"
    if action.cwd and not action.cwd.startswith("/") and (why := path_problem(action.cwd)):
        return f"cwd: {why}"
    if action.target.startswith("-") or action.channel.startswith("-") or action.account.startswith("-"):
        return "channel, target and account must not begin with a dash"
    if action.kind is ActionKind.FILE:
        return _file_problem(action)
    return _http_problem(action) if action.kind is ActionKind.HTTP else None


def _file_problem(action: Action) -> str | None:
    parts = PurePosixPath(action.path).parts
    if not action.path.startswith("/") or str(PurePosixPath(action.path)) != action.path or ".." in parts:
        return "path is not absolute, or not in its shortest form"
    if action.content and action.source:
        return "it has both content and source"
    if action.source and (why := path_problem(action.source)):
        return f"source: {why}"
    return None


def _http_problem(action: Action) -> str | None:
    if action.method not in _METHODS:
        return f"method is not one of {', '.join(sorted(_METHODS))}"
    try:
        parts = urlsplit(action.url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "@" in parts.netloc or not _URL.fullmatch(action.url):
        return "url is not an http or https address, or contains a user name"
    for name, text in action.headers:
        if not _HEADER.fullmatch(name) or not text.isprintable() or not text.isascii():
            return f"the header {excerpt(name)} cannot be sent"
        if name.lower() in _RESERVED_HEADERS:
            return f"an action may not set the header {name}"
    return None


def action_header(action: Action) -> dict[str, Any]:
    """The action as a mapping for a header, without empty fields."""
    header: dict[str, Any] = {"id": action.id, "kind": str(action.kind)}
    for field in fields(Action)[2:]:
        value = getattr(action, field.name)
        if value != field.default:
            words = list(value) if field.name in _LISTS else str(value)
            header[field.name] = dict(value) if field.name == "headers" else words
    return header


def render_actions(actions: tuple[Action, ...]) -> str:
    """The text of the section. `read_actions(render_actions(actions)) == actions`."""
    if len(actions) == 1 and _is_prose(actions[0]):
        return actions[0].action
    return f"```yaml\n{action_lines(actions)}\n```" if actions else ""


def _is_prose(action: Action) -> bool:
    """Whether a section with the text of this action is parsed as this action."""
    text = action.action
    prose = text == text.strip() and not _is_nothing(text) and not claims(text)
    return prose and action == Action(MANUAL_ID, ActionKind.MANUAL, action=text)


def claims(text: str) -> bool:
    """Whether the text is meant as a list of actions: items that are mappings, right or not. `- Tell: the team` is
    prose."""
    return _ITEM.search(text) is not None and (_NAMED.search(text) is not None or _DATA.search(text) is not None)


def _is_nothing(text: str) -> bool:
    return text.strip("-.*_() ").casefold() in _NOTHING


def action_lines(actions: tuple[Action, ...]) -> str:
    """The YAML list of the actions, without a fence."""
    lines: list[str] = []
    for action in actions:
        lines.append(f"- id: {scalar(action.id)}")
        lines.append(f"  kind: {action.kind}")
        for field in fields(Action):
            value = getattr(action, field.name)
            if field.name not in ("id", "kind") and value != field.default:
                lines.append(f"  {field.name}: {_rendered(value)}")
    return "\n".join(lines)


def _rendered(value: Any) -> str:
    """A value on one line, so that it can end neither the list nor the fence around it."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple) and isinstance(value[0], tuple):
        return flow(dict(value))
    return flow(value)


# The whole spec.

Sections = tuple[tuple[str, str], ...]
"""Headings with their texts."""
_FIELDS = {
    "Goal": "goal",
    "Context": "context",
    "Instructions": "instructions",
    "Expected Output": "expected_output",
    "Acceptance Criteria": "acceptance_criteria",
    "Checks": "checks",
    "Scope In": "scope_in",
    "Scope Out": "scope_out",
    "Inputs": "inputs",
    "Outputs": "outputs",
    "Risks": "risks",
    "Planned Actions": "planned_actions",
}
"""The sections of a spec in display order, with their fields."""
SPEC_SECTIONS = (*_FIELDS, "DAG")
"""The sections of a task with a meaning. All others are part of the instructions."""
SPEC_NAMES = frozenset(name.casefold() for name in SPEC_SECTIONS)
"""The same as `Section.name` has them."""


def derive_spec(title: str, preamble: str, sections: tuple[Section, ...]) -> Spec:
    """The spec in these parts of a task message.

    Raises MessageError if checks or planned actions are invalid.
    """
    texts = defaultdict(str, texts_by_name(sections))
    declared = next((s for s in sections if s.name == "checks" and claimed(s.text)), None)
    known = SPEC_NAMES if declared else SPEC_NAMES - {"checks"}
    unknown = [f"## {s.heading}\n\n{s.text}" for s in sections if s.name not in known]
    # Unknown sections describe work, too.
    instructions = "\n\n".join(filter(None, [preamble, texts["instructions"], *unknown]))
    goal, expected, context = texts["goal"], texts["expected output"], texts["context"]
    stated = texts["acceptance criteria"] or stated_criteria((instructions, goal))
    return Spec(
        goal=goal or title,
        instructions=instructions,
        context=context,
        expected_output=expected,
        scope_in=texts["scope in"] or instructions,
        scope_out=texts["scope out"],
        inputs=texts["inputs"] or context,
        outputs=texts["outputs"] or expected,
        acceptance_criteria=criteria(stated) or ((expected,) if expected else ()),
        risks=texts["risks"],
        planned_actions=actions_in(sections),
        checks=parse_checks(declared.text, path="Checks", first_line=declared.line) if declared else (),
    )


def rewritten(spec: Spec, text: str) -> Spec | None:
    """`spec` with the parts that the sections in `text` replace; None if `text` has no section of a spec.

    An empty section empties its part. A part without a section is unchanged, or derived again if it was derived.
    Raises MessageError if checks or planned actions are invalid.
    """
    found = _own_sections(text)
    if not found:
        return None
    given = {field: next(s for s in found if s.is_called(name)) for name, field in _FIELDS.items() if _has(found, name)}

    def new(field: str) -> str:
        return given[field].text if field in given else str(getattr(spec, field))

    def follows(field: str, base: str) -> str:
        own = new(field) if field in given or getattr(spec, field) != getattr(spec, base) else ""
        return own or new(base)

    expected = new("expected_output")
    return Spec(
        goal=new("goal"),
        instructions=new("instructions"),
        context=new("context"),
        expected_output=expected,
        scope_in=follows("scope_in", "instructions"),
        scope_out=new("scope_out"),
        inputs=follows("inputs", "context"),
        outputs=follows("outputs", "expected_output"),
        acceptance_criteria=_criteria(spec, given.get("acceptance_criteria"), expected),
        risks=new("risks"),
        planned_actions=actions_in(found) if "planned_actions" in given else spec.planned_actions,
        checks=_checks(given["checks"]) if "checks" in given else spec.checks,
    )


def actions_in(sections: tuple[Section, ...]) -> tuple[Action, ...]:
    """The planned actions in all sections of that name. Raises MessageError if they are invalid."""
    found: tuple[Action, ...] = ()
    for section in sections:
        if section.name == "planned actions":
            found = merged(found, read_actions(section.text, path="Planned Actions", first_line=section.line))
    return found


def _criteria(spec: Spec, section: Section | None, expected: str) -> tuple[str, ...]:
    if section is None and spec.acceptance_criteria not in ((), (DERIVED_CRITERION,), (spec.expected_output,)):
        return spec.acceptance_criteria
    return (criteria(section.text) if section else ()) or ((expected,) if expected else ())


def _checks(section: Section) -> tuple[Check, ...]:
    return parse_checks(section.text, path="Checks", first_line=section.line) if section.text else ()


def _has(found: tuple[Section, ...], name: str) -> bool:
    return any(section.is_called(name) for section in found)


def taken_apart(text: str) -> tuple[str, tuple[Section, ...]]:
    """A person's instructions: the text without the sections of a spec in it, and these sections."""
    if not (own := _own_sections(text)):
        return text, ()
    body = split_body(storable_text(text))
    others = [section for section in body.sections if section not in own]
    return join_body(body.title, body.preamble, others).strip(), own


def _own_sections(text: str) -> tuple[Section, ...]:
    return tuple(s for s in split_body(storable_text(text)).sections if any(map(s.is_called, _FIELDS)))


def is_spec_section(heading: str, text: str) -> bool:
    """Whether a section of a task.md is part of its spec, not counting the instructions."""
    name = heading.rstrip(" #:").casefold()
    return name in SPEC_NAMES and name not in ("instructions", "dag") and (name != "checks" or claimed(text))


def shown_sections(spec: Spec, title: str) -> Sections:
    """The sections of the spec in the task.md of a task called `title`, without the instructions."""
    return tuple(item for item in spec_sections(spec, title) if item[0] != "Instructions")


def spec_sections(spec: Spec, title: str = "") -> Sections:
    """The spec as headings with texts, without derived and empty parts."""
    spec = stated(spec)
    if spec.goal.strip() == title.strip():
        spec = replace(spec, goal="")
    texts = {name: getattr(spec, field) for name, field in _FIELDS.items()} | {
        "Acceptance Criteria": "\n".join(f"- {criterion}" for criterion in spec.acceptance_criteria),
        "Checks": f"```yaml\n{render_checks(spec.checks)}\n```" if spec.checks else "",
        "Planned Actions": render_actions(spec.planned_actions),
    }
    return tuple((name, text) for name, text in texts.items() if text.strip())


def render_spec(spec: Spec) -> str:
    """The spec for a person to edit: a section for each part, including empty ones."""
    texts = dict(spec_sections(spec))
    return join_body("", "", [Section(name, texts.get(name, "")) for name in _FIELDS])
