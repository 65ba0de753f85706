"""The section `## Planned Actions`: YAML text <-> `core.actions.Action`.

    - id: publish
      kind: command                 # command | message | file | http | manual
      action: Publish the site      # in words, for the person who decides; optional, as are risk, idempotency_key
      argv: [make, publish]         # command: words, no shell; optional: cwd, env (names), timeout (seconds)
      verify: [make, is-published]  # optional: 0 = it happened, 1 = it did not
      undo: [make, unpublish]       # optional
    - {id: tell, kind: message, channel: slack, target: "#team", text: It is out}
    - {id: conf, kind: file, path: /srv/site.conf, source: out/site.conf}     # or content: |
    - {id: hook, kind: http, method: POST, url: "https://example.org/hook", headers: {X-Key: "${KEY}"}, env: [KEY]}

Bare or in one fenced block. What a kind needs may also stand in a mapping under `action:`. A section that holds no such
list is prose: one action that a person does by hand; `none` and the like are no action at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from mailboxd.core.actions import Action, ActionKind
from mailboxd.core.checks import path_problem
from mailboxd.core.terms import is_id
from mailboxd.errors import MessageError
from mailboxd.messages import yaml_events
from mailboxd.messages.fields import ID_RULE, Source
from mailboxd.messages.headers import integer
from mailboxd.messages.quoting import excerpt
from mailboxd.messages.yaml_events import Path, Yaml
from mailboxd.messages.yaml_text import flow, scalar

MOST = 20
MANUAL_ID = "manual"
_MOST_SECONDS = 86_400
_MOST_TEXT = 262_144
_ITEM = re.compile(r"^[ \t]*(?:-[ \t]+[\"']?\w+[\"']?[ \t]*:|-[ \t]*\{|\[[ \t]*\{|\[[ \t]*$)", re.MULTILINE)
_NAMED = re.compile(r"(?:^[ \t]*-?[ \t]*|[{,][ \t]*)[\"']?(?:id|kind)[\"']?[ \t]*:", re.MULTILINE)
_FENCED = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})[^\n]*\n(.*?)\n[ ]{0,3}\1[ \t]*$", re.DOTALL | re.MULTILINE)
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
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def read_actions(text: str, *, path: str = "", first_line: int = 1) -> tuple[Action, ...]:
    """The actions in a section. Raises MessageError with line and field: the rules of `yaml_events`, `bad-action`,
    `bad-id`, `wrong-type`, `field-range`."""
    kept = text.strip()  # how prose is kept, and read again
    if _says_nothing(kept):
        return ()
    if not claims(text) and not claims(kept):
        return (_by_hand(kept, path, first_line),)
    block = next((found for found in _FENCED.finditer(text) if claims(found[2])), None)
    if block is not None:
        first_line += text.count("\n", 0, block.start(2))
    loaded = yaml_events.load(block[2] if block else text, path=path, first_line=first_line)
    source = Source(path, first_line, loaded.lines, loaded.plain)
    if not isinstance(loaded.value, list):  # it looked like a list, and YAML reads one long text: never read it again
        source.fail("wrong-type", "the planned actions are not a list", (), "Write `- id: ...` for each.")
    return actions_of(source, loaded.value, ())


def read_action(said: Mapping[str, Any]) -> Action:
    """One action that came as JSON: read as the section is. Raises MessageError as `read_actions`."""
    text = flow([{name: str(value) if isinstance(value, int) else value for name, value in said.items()}])
    loaded = yaml_events.load(text, path="")
    return actions_of(Source("", 1, loaded.lines, loaded.plain), loaded.value, ())[0]


def _by_hand(text: str, path: str, line: int) -> Action:
    if len(text) > _MOST_TEXT:
        raise MessageError("field-range", "the planned actions are too long", path=path, line=line)
    return Action(MANUAL_ID, ActionKind.MANUAL, action=text)


def actions_of(source: Source, value: Yaml, where: Path) -> tuple[Action, ...]:
    """The actions that a list of a YAML document holds; a text is a section. Raises MessageError."""
    if isinstance(value, str):
        return read_actions(value)
    if not isinstance(value, list):
        source.fail("wrong-type", "the planned actions are not a list", where, "Write `- id: ...` for each.")
    if len(value) > MOST:
        source.fail("field-range", f"there are more than {MOST} actions", where)
    found = tuple(_action(source, item, (*where, place)) for place, item in enumerate(value))
    names = [action.id for action in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        source.fail("bad-action", f"two actions are called {twice}", where, "Give each an id of its own.")
    return found


def _action(source: Source, item: Yaml, where: Path) -> Action:
    said = _flat(source, item, where)
    name = source.text(said.get("id", ""), (*where, "id"))
    if not is_id(name):
        source.fail("bad-id", f"{excerpt(name)} cannot name an action", (*where, "id"), ID_RULE)
    word = source.text(said.get("kind", ""), (*where, "kind"))
    if word not in tuple(ActionKind):
        hint = f"A kind is one of {', '.join(ActionKind)}."
        source.fail("bad-action", f"the action {name} has no kind {excerpt(word)}", (*where, "kind"), hint)
    kind = ActionKind(word)
    known = (*_ALWAYS, *_NEEDED[kind], *_OPTIONAL[kind])
    if unknown := next((key for key in said if key not in known), None):
        hint = f"With {kind} may stand: {', '.join(dict.fromkeys(known))}."
        source.fail("bad-action", f"a {kind} has no {excerpt(unknown)}", (*where, unknown), hint)
    if missing := next((key for key in _NEEDED[kind] if said.get(key, "") in ("", [])), None):
        source.fail(
            "bad-action",
            f"the action {name} does not say its {missing}",
            where,
            f"A {kind} needs {', '.join(_NEEDED[kind])}.",
        )
    values = {key: _value(source, key, value, (*where, key)) for key, value in said.items() if key != "kind"}
    action = Action(kind=kind, **values)
    if problem := _problem(action):
        source.fail("bad-action", f"the action {name}: {problem}", where)
    return action


def _flat(source: Source, item: Yaml, where: Path) -> dict[str, Yaml]:
    """The fields of an action, with those that stand under `action:` beside the others."""
    said = dict(source.mapping(item, where))
    inner = said.get("action", "")
    if isinstance(inner, list):
        said["argv"] = inner
    elif isinstance(inner, dict):
        said |= inner
    if not isinstance(inner, str):
        said["action"] = inner.get("action", "") if isinstance(inner, dict) else ""
    return said


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
        return 0 if value == "" else int(source.convert(integer(1, _MOST_SECONDS), source.text(value, where), where))
    text = source.text(value, where)
    if len(text) > _MOST_TEXT:
        source.fail("field-range", f"it is longer than {_MOST_TEXT} characters", where)
    return text.upper() if key == "method" else text


def _problem(action: Action) -> str | None:
    """What cannot be right of an action whatever the configuration says."""
    one_line = (action.risk, action.cwd, action.channel, action.target, action.account, action.path, action.url)
    if not all(text.isprintable() for text in one_line):
        return "one of its fields holds characters that cannot be shown"
    if action.idempotency_key and not _KEY.fullmatch(action.idempotency_key):
        return "its idempotency_key is not 1 to 200 printable characters without a space"
    if bad := next((name for name in action.env if not _NAME.fullmatch(name)), None):
        return f"{excerpt(bad)} cannot name an environment variable"
    if action.cwd and not action.cwd.startswith("/") and (why := path_problem(action.cwd)):
        return f"its cwd: {why}"
    if action.target.startswith("-") or action.channel.startswith("-") or action.account.startswith("-"):
        return "a channel, target or account does not begin with a dash"
    if action.kind is ActionKind.FILE:
        return _file_problem(action)
    return _http_problem(action) if action.kind is ActionKind.HTTP else None


def _file_problem(action: Action) -> str | None:
    parts = PurePosixPath(action.path).parts
    if not action.path.startswith("/") or str(PurePosixPath(action.path)) != action.path or ".." in parts:
        return "its path is not absolute, or not in its shortest form"
    if action.content and action.source:
        return "it has both content and source"
    if action.source and (why := path_problem(action.source)):
        return f"its source: {why}"
    return None


def _http_problem(action: Action) -> str | None:
    if action.method not in _METHODS:
        return f"its method is not one of {', '.join(sorted(_METHODS))}"
    try:
        parts = urlsplit(action.url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.username or not action.url.isascii() or " " in action.url:
        return "its url is not an http or https address without a user name"
    for name, text in action.headers:
        if not _HEADER.fullmatch(name) or not text.isprintable() or not text.isascii():
            return f"the header {excerpt(name)} cannot be sent"
    return None


def action_header(action: Action) -> dict[str, Any]:
    """The action as a mapping of a header, without what is empty."""
    said: dict[str, Any] = {"id": action.id, "kind": str(action.kind)}
    for field in fields(Action)[2:]:
        value = getattr(action, field.name)
        if value != field.default:
            words = list(value) if field.name in _LISTS else str(value)
            said[field.name] = dict(value) if field.name == "headers" else words
    return said


def render_actions(actions: tuple[Action, ...]) -> str:
    """The text of the section; `read_actions` of it gives the actions again."""
    if len(actions) == 1 and _is_prose(actions[0]):
        return actions[0].action
    return f"```yaml\n{action_lines(actions)}\n```" if actions else ""


def _is_prose(action: Action) -> bool:
    """Whether its words alone, as a section, are read as this action."""
    text = action.action
    said = text == text.strip() and not _says_nothing(text) and not claims(text)
    return said and action == Action(MANUAL_ID, ActionKind.MANUAL, action=text)


def claims(text: str) -> bool:
    """Whether it means to be a list of actions: items that are mappings, and an `id:` or `kind:` somewhere in them."""
    return _ITEM.search(text) is not None and _NAMED.search(text) is not None


def _says_nothing(text: str) -> bool:
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
    """A value on one line: what stands in it can end neither the list nor the fence around it."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple) and isinstance(value[0], tuple):
        return flow(dict(value))
    return flow(value)
