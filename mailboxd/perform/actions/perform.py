"""Previews an action for the person who approves it, and performs it once.

Everything in a preview was written by others: characters that a terminal would interpret or that change the reading
order are shown as escapes, variables by their names. The caller of `perform` records the start and the result.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from mailboxd.core.approvals import Action, ActionKind, Performed
from mailboxd.core.outcomes import Permanence
from mailboxd.core.sanitize import first_line, for_preview
from mailboxd.errors import WorldError, require_seen
from mailboxd.formats.mailbox.files import directory
from mailboxd.perform.actions import file
from mailboxd.perform.actions.command import (
    command_result,
    message_argv,
    message_problem,
    message_result,
    parts_of,
    run_program,
    working_directory,
)
from mailboxd.perform.actions.file import current_content, names_of, parent_directory
from mailboxd.perform.actions.gate import (
    LARGEST,
    GateDir,
    content_sha256,
    named_files,
    read_regular,
    sha256,
    verify_lines,
    write_verify,
)
from mailboxd.perform.actions.result import (
    ActionContext,
    ActionResult,
    Impossible,
    NotNow,
    raise_if_transient,
    redacted,
)
from mailboxd.perform.agents.openclaw import child_environment
from mailboxd.perform.agents.process import NotStarted

MAX_SHOWN = 65_536
"""Maximum characters of a text in a preview."""
_MAX_DIFF_LINES = 4_000
"""Maximum lines compared; the daemon waits for it."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The text shown, and the hashes that the approval is bound to besides the action."""

    text: str
    content_sha256: str = ""
    target_sha256: str = ""


def preview(action: Action, gate: GateDir, context: ActionContext) -> Preview:
    """Describe what the action would do, and write its payload into its gate, which must be empty.

    Raises Impossible if it cannot be performed as declared, WorldError.
    """
    context.secrets(action)
    target = ""
    match action.kind:
        case ActionKind.COMMAND:
            lines = _command(action, context)
        case ActionKind.MESSAGE:
            lines = _message(action)
        case ActionKind.FILE:
            lines, target = _file(action, gate, context)
        case ActionKind.HTTP:
            lines = _http(action)
        case ActionKind.MANUAL:
            lines = ["a person does this:", *_quoted(action.action)]
    if action.kind is not ActionKind.MANUAL:
        lines += [f"at most: {context.seconds(action)} s"]
    if action.verify:
        lines.append(f"to verify that it happened: {_argv(action.verify)}")
        found = [line.rpartition(" ") for line in verify_lines(action, str(context.root))]
        lines += [f"verify uses the workspace file: {for_preview(name)}, sha256 {sha}" for name, _, sha in found]
        write_verify(action, gate)
    lines += [f"to undo it: {_argv(action.undo)}"] if action.undo else []
    return Preview("\n".join(lines), content_sha256(action, gate), target)


def _quoted(text: str) -> list[str]:
    """Untrusted lines, marked so that none passes for one of mailboxd's; cut if too long."""
    shown = [f"| {for_preview(line)}" for line in text[:MAX_SHOWN].split("\n")]
    cut = len(text) - MAX_SHOWN
    return [*shown, f"(cut: {cut} of {len(text)} characters are not shown)"] if cut > 0 else shown


def _argv(argv: tuple[str, ...]) -> str:
    return for_preview(json.dumps(list(argv), ensure_ascii=False))


def _command(action: Action, context: ActionContext) -> list[str]:
    if not action.argv:
        raise Impossible("it has no command")
    with working_directory(context.root, action.cwd):
        where = action.cwd if action.cwd.startswith("/") else str(context.root.joinpath(action.cwd))
    found = named_files(action.argv, action.cwd, str(context.root))
    files = [f"workspace file: {for_preview(name)}, sha256 {sha}" for name, sha in found]
    files = files or ["no workspace file is bound to your approval: it uses the files as they are at that time"]
    env = [f"environment: {', '.join(action.env)}"] if action.env else []
    return [f"runs, without a shell: {_argv(action.argv)}", f"in: {for_preview(where)}", *env, *files]


def _message(action: Action) -> list[str]:
    if (why := message_problem(action.text)) is not None:
        raise Impossible(why)
    account = [f"account: {for_preview(action.account)}"] if action.account else []
    to = [f"sends a message on: {for_preview(action.channel)}", f"to: {for_preview(action.target)}", *account]
    return [*to, "text:", *_quoted(action.text)]


def _http(action: Action) -> list[str]:
    headers = [f"header: {name}: {for_preview(value)}" for name, value in action.headers]
    env = [f"environment: {', '.join(action.env)}"] if action.env else []
    body = [f"body, {len(action.body.encode())} bytes:", *_quoted(action.body)] if action.body else ["no body"]
    return [f"sends: {action.method} {action.url}", *headers, *env, *body]


def _file(action: Action, gate: GateDir, context: ActionContext) -> tuple[list[str], str]:
    names = names_of(action.path, context.root)
    new = _payload(action, context)
    with parent_directory(names) as fd:
        old = current_content(fd, names[-1])
    gate.write("payload", new)
    source = [f"from: {for_preview(action.source)}, as it is now"] if action.source else []
    head = [f"writes: {for_preview(action.path)}", *source, f"with: {_size(new)}"]
    if old is None:
        return [*head, "it does not exist yet; its content will be:", *_text(new)], ""
    over = f"over: {_size(old)}"
    if old == new:
        return [*head, over, "it already has that content: nothing would change"], sha256(old)
    return [*head, over, *_difference(old, new, action.path)], sha256(old)


def _payload(action: Action, context: ActionContext) -> bytes:
    """The bytes to be written."""
    if not action.source:
        return action.content.encode()
    *names, name = parts_of(action.source) or [""]
    try:
        with directory(context.root, *names) as fd:
            raw = read_regular(fd, name, LARGEST) if name else None
    except OSError as error:
        require_seen(action.source, error)
        raise Impossible(f"{action.source} cannot be read in the workspace: {error.strerror}") from error
    if raw is None:
        raise Impossible(f"{action.source} is not a regular file in the workspace of at most {LARGEST} bytes")
    return raw


def _size(raw: bytes) -> str:
    return f"{len(raw)} bytes, sha256 {sha256(raw)}"


def _text(raw: bytes) -> list[str]:
    text = _decoded(raw)
    return ["(it is binary)"] if text is None else _quoted(text)


def _difference(old: bytes, new: bytes, path: str) -> list[str]:
    before, after = _decoded(old), _decoded(new)
    if before is None or after is None:
        return ["(binary: no diff)"]
    a, b = before.split("\n"), after.split("\n")
    if len(a) + len(b) > _MAX_DIFF_LINES:
        return ["(too long for a diff; the new content:)", *_quoted(after)]
    import difflib

    found = difflib.unified_diff(a, b, f"{path} (now)", f"{path} (new)", lineterm="")
    return ["the diff:", *_quoted("\n".join(found))]


def _decoded(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def perform(action: Action, key: str, target_sha256: str, gate: GateDir, context: ActionContext) -> ActionResult:
    """Perform it. `target_sha256` is of the file that a FILE action replaces, as previewed.

    Raises NotNow if nothing happened for lack of resources, another WorldError if it may have happened.
    """
    secrets: dict[str, str] = {}
    try:
        secrets = context.secrets(action)
        end = _performed(action, key, target_sha256, gate, context)
    except NotStarted as why:
        if why.permanence is Permanence.TRANSIENT:
            raise NotNow(str(why)) from why
        return ActionResult(Performed.FAILED, f"nothing happened: {first_line(str(why))}")
    except Impossible as why:
        return ActionResult(Performed.FAILED, f"nothing happened: {first_line(str(why))}")
    return replace(end, summary=redacted(end.summary, secrets), report=redacted(end.report, secrets))


def _performed(action: Action, key: str, target_sha256: str, gate: GateDir, context: ActionContext) -> ActionResult:
    seconds = context.seconds(action)
    match action.kind:
        case ActionKind.COMMAND:
            env = context.variables(action)
            ran = run_program(context, gate.effect, action.argv, action.cwd, env, seconds)
            return command_result(replace(ran, secrets=context.secrets(action)))
        case ActionKind.MESSAGE:
            if (why := message_problem(action.text)) is not None:
                raise Impossible(why)
            env = child_environment(context.environ, context.openclaw_environment)
            argv = message_argv(context.openclaw, action)
            return message_result(run_program(context, gate.effect, argv, "", env, seconds))
        case ActionKind.FILE:
            content = _read_payload(gate)
            if content is None:
                raise Impossible("its payload no longer exists")
            return file.write(action.path, context.root, content, target_sha256)
        case ActionKind.HTTP:
            send = _http_request()
            with _time_limit(seconds):
                return send(action, key, context.secrets(action), seconds)
        case ActionKind.MANUAL:
            return ActionResult(Performed.DONE, "a person did it")


def _http_request() -> Callable[[Action, str, Mapping[str, str], float], ActionResult]:
    """`http.request`, which brings TLS: 1 MB that a daemon does without. Raises NotNow."""
    try:
        from mailboxd.perform.actions import http
    except OSError as problem:
        raise_if_transient("the HTTP client cannot be loaded", problem)
        raise
    return http.request


def _read_payload(gate: GateDir) -> bytes | None:
    try:
        return gate.read("payload")
    except WorldError as why:
        raise NotNow(str(why)) from why


class _TimedOut(OSError):
    """Timeout; an OSError, so that network code handles it like its own."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Limit the total time: a server that sends one byte a second never exceeds the timeout of a single wait."""

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise _TimedOut(f"it did not end within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
