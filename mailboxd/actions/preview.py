"""What a person has to see before saying yes: exactly what would happen, and to what.

All of it was written by others. Characters that a terminal would obey, or that change the order of what is read, are
shown as escapes; variables are shown by their names.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass

from mailboxd.actions import channel, http
from mailboxd.actions.command import parts_of, standing
from mailboxd.actions.content_digest import content_sha256, keep_verify, named_files, verify_lines
from mailboxd.actions.file import folder, names_of, present, sha256
from mailboxd.actions.gate import LARGEST, Place, read_regular
from mailboxd.actions.result import Impossible, Setting
from mailboxd.core.approvals import Action, ActionKind
from mailboxd.core.sanitize import for_preview
from mailboxd.errors import require_seen
from mailboxd.mailbox.files import directory

MOST = 65_536
"""Characters of a text that are shown."""
_MOST_LINES = 4_000
"""Lines that are compared; the daemon waits for it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown, and what the approval will be bound to besides the action itself."""

    text: str
    content_sha256: str = ""
    target_sha256: str = ""


def preview(action: Action, place: Place, setting: Setting) -> Shown:
    """Look at what the action would do, and keep what it would write in its gate, which is there and empty.

    Raises Impossible when it cannot be performed as declared, WorldError.
    """
    setting.secrets(action)
    target = ""
    match action.kind:
        case ActionKind.COMMAND:
            lines = _command(action, setting)
        case ActionKind.MESSAGE:
            lines = _message(action)
        case ActionKind.FILE:
            lines, target = _file(action, place, setting)
        case ActionKind.HTTP:
            lines = _http(action)
        case ActionKind.MANUAL:
            lines = ["a person does this by hand:", *_quoted(action.action)]
    if action.kind is not ActionKind.MANUAL:
        lines += [f"at most: {setting.seconds(action)} s"]
    if action.verify:
        lines.append(f"whether it happened is asked by: {_words(action.verify)}")
        found = [line.rpartition(" ") for line in verify_lines(action, str(setting.root))]
        lines += [f"verify names a file of the workspace: {for_preview(name)}, sha256 {sha}" for name, _, sha in found]
        keep_verify(action, place)
    lines += [f"it can be taken back by: {_words(action.undo)}"] if action.undo else []
    return Shown("\n".join(lines), content_sha256(action, place), target)


def _quoted(text: str) -> list[str]:
    """Somebody's lines, so that none can pass for one of ours; cut where they are too many."""
    shown = [f"| {for_preview(line)}" for line in text[:MOST].split("\n")]
    cut = len(text) - MOST
    return [*shown, f"(cut here: {cut} of {len(text)} characters are not shown)"] if cut > 0 else shown


def _words(argv: tuple[str, ...]) -> str:
    return for_preview(json.dumps(list(argv), ensure_ascii=False))


def _command(action: Action, setting: Setting) -> list[str]:
    if not action.argv:
        raise Impossible("it names no command")
    with standing(setting.root, action.cwd):
        where = action.cwd if action.cwd.startswith("/") else str(setting.root.joinpath(action.cwd))
    found = named_files(action.argv, action.cwd, str(setting.root))
    files = [f"file of the workspace: {for_preview(name)}, sha256 {sha}" for name, sha in found]
    files = files or ["no file of the workspace is bound to your approval: it runs whatever lies there by then"]
    env = [f"environment: {', '.join(action.env)}"] if action.env else []
    return [f"runs, without a shell: {_words(action.argv)}", f"in: {for_preview(where)}", *env, *files]


def _message(action: Action) -> list[str]:
    if (why := channel.unsayable(action.text)) is not None:
        raise Impossible(why)
    account = [f"account: {for_preview(action.account)}"] if action.account else []
    to = [f"sends a message on: {for_preview(action.channel)}", f"to: {for_preview(action.target)}", *account]
    return [*to, "text:", *_quoted(action.text)]


def _http(action: Action) -> list[str]:
    http.checked(action)
    headers = [f"header: {name}: {for_preview(value)}" for name, value in action.headers]
    env = [f"environment: {', '.join(action.env)}"] if action.env else []
    body = [f"body, {len(action.body.encode())} bytes:", *_quoted(action.body)] if action.body else ["no body"]
    return [f"sends: {action.method} {action.url}", *headers, *env, *body]


def _file(action: Action, place: Place, setting: Setting) -> tuple[list[str], str]:
    names = names_of(action.path, setting.root)
    new = _source(action, setting)
    with folder(names) as fd:
        old = present(fd, names[-1])
    place.keep("payload", new)
    source = [f"from: {for_preview(action.source)}, as it is now"] if action.source else []
    head = [f"writes: {for_preview(action.path)}", *source, f"with: {_size(new)}"]
    if old is None:
        return [*head, "there is no such file yet; its content will be:", *_text(new)], ""
    over = f"over: {_size(old)}"
    if old == new:
        return [*head, over, "that is its content already: nothing would change"], sha256(old)
    return [*head, over, *_difference(old, new, action.path)], sha256(old)


def _source(action: Action, setting: Setting) -> bytes:
    """The bytes that would be written."""
    if not action.source:
        return action.content.encode()
    *names, name = parts_of(action.source) or [""]
    try:
        with directory(setting.root, *names) as fd:
            raw = read_regular(fd, name, LARGEST) if name else None
    except OSError as error:
        require_seen(action.source, error)
        raise Impossible(f"{action.source} cannot be read in the workspace: {error.strerror}") from error
    if raw is None:
        raise Impossible(f"{action.source} is no regular file of the workspace of at most {LARGEST} bytes")
    return raw


def _size(raw: bytes) -> str:
    return f"{len(raw)} bytes, sha256 {sha256(raw)}"


def _text(raw: bytes) -> list[str]:
    text = _decoded(raw)
    return ["(it is binary)"] if text is None else _quoted(text)


def _difference(old: bytes, new: bytes, path: str) -> list[str]:
    before, after = _decoded(old), _decoded(new)
    if before is None or after is None:
        return ["(binary: there is no difference to show)"]
    a, b = before.split("\n"), after.split("\n")
    if len(a) + len(b) > _MOST_LINES:
        return ["(too long to be compared; the new content:)", *_quoted(after)]
    found = difflib.unified_diff(a, b, f"{path} (now)", f"{path} (new)", lineterm="")
    return ["the difference:", *_quoted("\n".join(found))]


def _decoded(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
