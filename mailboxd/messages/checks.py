"""The section `## Checks` of a spec: YAML text <-> `core.types.Check`.

    - id: tests
      command: [pytest, -q]          # words, no shell; optional: timeout (seconds), cwd
    - id: report
      file: out/report.md            # optional: min_bytes
    - id: shape
      json_schema: schemas/out.json  # or the schema itself, as a mapping
      of: out/data.json              # or `result`, the default

Bare or in one fenced block. A section of that name that does not hold a list with an `id:` is prose, as any clawflow
message may have it, and no checks: `claimed` tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mailboxd.core.checks import path_problem
from mailboxd.core.terms import is_id
from mailboxd.core.types import Check
from mailboxd.messages import yaml_events
from mailboxd.messages.fields import ID_RULE, Source
from mailboxd.messages.headers import integer
from mailboxd.messages.quoting import excerpt
from mailboxd.messages.yaml_events import Path, Yaml
from mailboxd.messages.yaml_text import flow, scalar

MOST = 20
_MOST_SECONDS = 86_400
_MOST_BYTES = 1 << 40
_MOST_SCHEMA = 65_536
_CLAIM = re.compile(r"^[ \t]*(?:-[ \t]+|-[ \t]*\{[ \t]*|\[[ \t]*\{[ \t]*)id[ \t]*:", re.MULTILINE)
_FENCED = re.compile(r"\A\s*(`{3,}|~{3,})[^\n]*\n(.*?)\n[ \t]*\1[ \t]*\s*\Z", re.DOTALL)
_KINDS = {"command": ("timeout", "cwd"), "file": ("min_bytes",), "json_schema": ("of",)}
_RESULT = "result"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "null": None}


def claimed(text: str) -> bool:
    """Whether a section called Checks holds checks of ours."""
    return _CLAIM.search(text) is not None


def parse_checks(text: str, *, path: str = "", first_line: int = 1) -> tuple[Check, ...]:
    """The checks in `text`. Raises MessageError with line and field: the rules of `yaml_events`, `bad-check`, `bad-id`,
    `wrong-type`, `field-range`."""
    fenced = _FENCED.match(text)
    if fenced:
        first_line += text.count("\n", 0, fenced.start(2))
    loaded = yaml_events.load(fenced[2] if fenced else text, path=path, first_line=first_line)
    return checks_of(Source(path, first_line, loaded.lines, loaded.plain), loaded.value, ())


def checks_of(source: Source, value: Yaml, where: Path) -> tuple[Check, ...]:
    """The checks that a list of a YAML document holds. Raises MessageError."""
    if value == "":
        return ()
    if not isinstance(value, list):
        source.fail("wrong-type", "the checks are not a list", where, "Write `- id: ...` for each.")
    if len(value) > MOST:
        source.fail("field-range", f"there are more than {MOST} checks", where)
    found = tuple(_check(source, item, (*where, place)) for place, item in enumerate(value))
    names = [check.id for check in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        source.fail("bad-check", f"two checks are called {twice}", where, "Give each an id of its own.")
    return found


def _check(source: Source, item: Yaml, where: Path) -> Check:
    fields = source.mapping(item, where)
    name = source.text(fields.get("id", ""), (*where, "id"))
    if not is_id(name):
        source.fail("bad-id", f"{excerpt(name)} cannot name a check", (*where, "id"), ID_RULE)
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        source.fail("bad-check", f"the check {name} needs exactly one of {', '.join(_KINDS)}", where)
    if unknown := next((key for key in fields if key not in ("id", *kinds, *_KINDS[kinds[0]])), None):
        hint = f"With {kinds[0]} may stand: {', '.join(_KINDS[kinds[0]])}."
        source.fail("bad-check", f"a {kinds[0]} check has no {excerpt(unknown)}", (*where, unknown), hint)
    match kinds[0]:
        case "command":
            return _command(source, name, fields, where)
        case "file":
            low = _number(source, fields, "min_bytes", where, 0, _MOST_BYTES)
            return Check(name, file=_path(source, fields, "file", where), min_bytes=low)
        case _:
            return _schema(source, name, fields, where)


def _command(source: Source, name: str, fields: Mapping[str, Yaml], where: Path) -> Check:
    words = source.command(fields["command"], (*where, "command"), "bad-check", "the command", "[make, test]")
    cwd = _path(source, fields, "cwd", where) if fields.get("cwd", "") not in ("", ".") else ""
    return Check(name, words, _number(source, fields, "timeout", where, 1, _MOST_SECONDS), cwd)


def _schema(source: Source, name: str, fields: Mapping[str, Yaml], where: Path) -> Check:
    said, place = fields["json_schema"], (*where, "json_schema")
    of = "" if fields.get("of", _RESULT) == _RESULT else _path(source, fields, "of", where)
    if isinstance(said, str):
        return Check(name, schema_file=_path(source, fields, "json_schema", where), of=of)
    text = json.dumps(_typed(said, place, source.plain), ensure_ascii=False)
    if not isinstance(said, dict) or len(text) > _MOST_SCHEMA:
        source.fail("bad-check", "the schema is no mapping, or too large; name a file instead", place)
    return Check(name, schema_text=text, of=of)


def _typed(value: Yaml, where: Path, plain: frozenset[Path]) -> Any:
    """As JSON: what stands there without quotes and is a number or a word of JSON is that, all else is text."""
    if isinstance(value, dict):
        return {key: _typed(item, (*where, key), plain) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item, (*where, place), plain) for place, item in enumerate(value)]
    if where not in plain:
        return value
    if value in ("", "~"):
        return None
    return json.loads(value) if _NUMBER.fullmatch(value) else _WORDS.get(value, value)


def _path(source: Source, fields: Mapping[str, Yaml], name: str, where: Path) -> str:
    said = source.text(fields[name], (*where, name))
    if problem := path_problem(said):
        source.fail("bad-check", f"{excerpt(said)}: {problem}", (*where, name))
    return said


def _number(source: Source, fields: Mapping[str, Yaml], name: str, where: Path, low: int, high: int) -> int:
    said = fields.get(name, "")
    return 0 if said == "" else int(source.convert(integer(low, high), said, (*where, name)))


def render_checks(checks: tuple[Check, ...]) -> str:
    """The YAML of `checks`, without a fence; `parse_checks` of it gives them again."""
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
