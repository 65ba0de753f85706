"""Prompts and bodies of messages, rendered from the jinja2 templates.

OpenClaw interprets the beginning of a message (`/new`, `$skill`). Every prompt therefore begins with a line that is
written here, not in a template, and contains no foreign text: `[mailboxd] <kind> turn · task <local-id> · attempt <n>`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mailboxd.core.model import Spec
from mailboxd.core.sanitize import storable_line
from mailboxd.core.vocabulary import Gate, Turn
from mailboxd.errors import ConfigError
from mailboxd.formats.protocol.markdown import escape, quote_fence
from mailboxd.formats.protocol.spec import render_actions, render_checks
from mailboxd.host.package_data import package_data

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment

# Templates: the workspace's overrides first, then the packaged ones.
#
# An agent can write to the workspace, so a template of which a part is overridden is rendered in jinja2's sandbox, in
# twice the time, and only regular files with plain names are read (no links, pipes or paths). Code writes the first
# line of a prompt and the front matter and DAG of a task.md. The sandbox does not limit the time that a template takes:
# anyone who can write to the workspace can stall the agent's own daemon.
#
# A broken override is for the operator to correct: ConfigError with file and line. An exception in a packaged template
# is a bug and is raised unchanged.

MAX_OVERRIDE_BYTES = 256 * 1024
_INCLUDE = re.compile(r"{%-? *include \"([^\"]+)\"")

_Signature = tuple[int, int, int] | None


class Templates:
    """Renders templates by name; `overrides` is the workspace's directory of templates, if any.

    New, changed and deleted overrides take effect at the next `render`.
    """

    def __init__(self, overrides: Path | None) -> None:
        self._overrides = overrides
        self._packaged = packaged()
        self._parts: dict[str, list[str]] = {}
        """By template: where the overrides of its parts would be."""

    def render(self, name: str, **values: object) -> str:
        """The text of template `name` (`work.md.j2`) with `values`.

        Raises ConfigError with file and line if an override cannot be read, parsed or evaluated.
        """
        if not self.is_edited(name):
            return self._trusted.get_template(name).render(values)
        try:
            return self._sandbox.get_template(name).render(values)
        except (ConfigError, MemoryError):
            raise
        except Exception as error:
            path = self.override(name)
            if path is None:
                raise
            line = _line(error, str(path))
            location = f"{path}:{line}" if line else str(path)
            raise ConfigError(
                f"{location}: this template cannot be used: {storable_line(str(error))[:500]}. "
                "Correct it, or delete it to use the packaged one."
            ) from error

    def override(self, name: str) -> Path | None:
        """The workspace's override of template `name`, or None."""
        path = self._overrides / name if self._overrides is not None else None
        return path if path is not None and _signature(path) is not None else None

    def is_edited(self, name: str) -> bool:
        """Whether the workspace has an override of template `name`, or of one that it includes."""
        if self._overrides is None:
            return False
        if name not in self._parts:
            self._parts[name] = self._with_included(name)
        return any(map(os.path.lexists, self._parts[name]))

    def _with_included(self, name: str) -> list[str]:
        """Where overrides of the packaged template `name` and of those that it includes would be."""
        included = _INCLUDE.findall((self._packaged / name).read_text("utf-8"))
        return [f"{self._overrides}/{name}", *(path for one in included for path in self._with_included(one))]

    @cached_property
    def _trusted(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader  # imported late, as below

        return _prepared(Environment, FileSystemLoader(self._packaged), auto_reload=False)

    @cached_property
    def _sandbox(self) -> Environment:
        # Imported here: jinja2 takes longer to import than all other work of a `mailboxd status`.
        from jinja2 import FunctionLoader
        from jinja2.sandbox import SandboxedEnvironment

        return _prepared(SandboxedEnvironment, FunctionLoader(self._load), auto_reload=True)

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        if "/" in name or "\\" in name or name.startswith("."):
            return None
        override = self._overrides / name if self._overrides is not None else None
        seen = _signature(override)
        if override is not None and seen is not None:
            path, source = override, read_override(override)
        else:
            path = self._packaged / name
            if not path.is_file():
                return None
            source = path.read_text("utf-8")
        return source, str(path), lambda: _signature(override) == seen


def _prepared(kind: type[Environment], loader: BaseLoader, *, auto_reload: bool) -> Environment:
    from jinja2 import StrictUndefined

    environment = kind(
        loader=loader,
        auto_reload=auto_reload,
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = quote_fence
    environment.filters["one_line"] = storable_line
    environment.filters["section"] = partial(escape, title=True)
    environment.filters["checks"] = render_checks
    environment.filters["actions"] = render_actions
    return environment


def packaged() -> Path:
    """The packaged templates."""
    return package_data("templates")


def _signature(path: Path | None) -> _Signature:
    """A value that changes with the file, or None without one."""
    if path is None:
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_override(path: Path) -> str:
    """The text of a file that an agent may have written: a regular one, not too large. Raises ConfigError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path}: this template cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # before `fdopen`, which fails for a directory
            raise ConfigError(f"{path}: this template is not a regular file; move it away, or put the file there")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(MAX_OVERRIDE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: this template cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(raw) > MAX_OVERRIDE_BYTES:
        raise ConfigError(f"{path}: this template is larger than {MAX_OVERRIDE_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: this template is not UTF-8 (byte {error.start})") from error


def _line(error: Exception, path: str) -> int | None:
    """The line of the template at `path` that raised `error`; jinja2 maps its frames to the source."""
    own = getattr(error, "lineno", None)
    if isinstance(own, int):
        return own
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return frames[-1] if frames else None


# The values of each template; `kind` is its name.


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent that may be given children, and its description in OpenClaw's configuration, which may be empty."""

    name: str
    does: str = ""


@dataclass(frozen=True, slots=True)
class _TaskPrompt:
    """A turn in which `agent` works on its own task, given by `sender`. `attempt` counts from 1."""

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec


@dataclass(frozen=True, slots=True)
class WorkPrompt(_TaskPrompt):
    """A turn in which the agent works on a task, plans it, or asks a question.

    `findings` says why the previous attempt was not accepted, `previous` is its result. `note`
    is for this turn only (the answer to a question, new instructions). `depth_left` is the number of levels of children
    allowed below this task; 0 = it cannot be planned. `may_ask` = the sender can be asked. One of `answers` has to be
    declared.
    """

    kind: ClassVar[str] = "work"
    peers: tuple[Peer, ...] = ()
    findings: str = ""
    note: str = ""
    depth_left: int = 0
    children_left: int = 0
    may_ask: bool = False
    answers: tuple[str, ...] = ()
    deadline: str | None = None
    previous: str = ""
    tools: tuple[str, ...] = ()
    """The tools that it is answered by (`answer_tools`); empty: in text."""


@dataclass(frozen=True, slots=True)
class DispatchBody:
    """The body of a `type: task` message. The findings and the result of the previous attempt come last."""

    kind: ClassVar[str] = "dispatch"
    title: str
    spec: Spec
    findings: str = ""
    attempt: int = 1
    previous: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is a first attempt at a spec that consists of texts, as most are."""
        spec = self.spec
        return (
            self.attempt == 1
            and not (self.findings or spec.checks or spec.planned_actions)
            and spec.acceptance_criteria in ((), (spec.expected_output,))
        )


@dataclass(frozen=True, slots=True)
class ReplyBody:
    """The body of a `type: reply`: `results`, or `error` and `partial` if it failed."""

    kind: ClassVar[str] = "reply"
    results: str = ""
    error: str = ""
    partial: str = ""
    doubts: tuple[str, ...] = ()
    """A line each, above the text of any template. A receiver reads them back (`ReplyMessage.doubts`)."""
    votes: tuple[str, ...] = ()
    """How the votes went of which the result is made, a line each, above the text."""

    @property
    def is_plain(self) -> bool:
        """Whether it is a result."""
        return not self.error


@dataclass(frozen=True, slots=True)
class SynthesisPrompt(_TaskPrompt):
    """A turn that combines the results of the children, or plans further ones. `results` is the text of `carry`."""

    kind: ClassVar[str] = "synthesis"
    results: str
    findings: str = ""
    note: str = ""
    previous: str = ""
    peers: tuple[Peer, ...] = ()
    depth_left: int = 0
    children_left: int = 0
    may_ask: bool = False
    answers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewPrompt:
    """A review turn of the spec (`gate` spec_review), or of `result`: whether it meets the spec, or its quality.

    `executor` is the agent that did the work; `earlier` are findings of earlier reviews, to be checked again.
    """

    kind: ClassVar[str] = "review"
    local_id: str
    attempt: int
    gate: Gate
    title: str
    spec: Spec
    executor: str
    result: str = ""
    earlier: str = ""
    evidence: str = ""
    """The output of the spec's checks of the result."""
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftPrompt(_TaskPrompt):
    """A turn that improves a weak spec. `attempt` counts drafts; `lacks` and `findings` say what is wrong.

    `part_of` says what a child, which this agent planned, is a part of.
    """

    kind: ClassVar[str] = "draft"
    lacks: str = ""
    findings: str = ""
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """A turn that answers the question of a child's executor. `parent` is the spec of the child's parent."""

    kind: ClassVar[str] = "answer"
    local_id: str
    attempt: int
    agent: str
    executor: str
    title: str
    spec: Spec
    parent_title: str
    parent: Spec
    question: str


@dataclass(frozen=True, slots=True)
class CorrectionPrompt:
    """A turn that asks, in the session of a turn of the kind `turn`, for another answer than the one it gave.

    `is_last`: it is not asked for once more. `is_claim`: that answer may be the result. `answers` and `may_plan` as in
    `answer.Asked`; `note` as in WorkPrompt.
    """

    kind: ClassVar[str] = "correction"
    turn: Turn
    local_id: str
    attempt: int
    problems: tuple[str, ...]
    is_last: bool = False
    is_claim: bool = False
    note: str = ""
    answers: tuple[str, ...] = ()
    may_plan: bool = False
    peers: tuple[Peer, ...] = ()
    depth_left: int = 0
    children_left: int = 0
    may_ask: bool = False
    tools: tuple[str, ...] = ()


AnyPrompt = WorkPrompt | SynthesisPrompt | ReviewPrompt | DraftPrompt | AnswerPrompt | CorrectionPrompt


def render_prompt(templates: Templates, prompt: AnyPrompt) -> str:
    """The prompt of a turn. `answer` parses what the agent answers."""
    turn = prompt.turn if isinstance(prompt, CorrectionPrompt) else prompt.kind
    first_line = f"[mailboxd] {turn} turn · task {prompt.local_id} · attempt {prompt.attempt}"
    return f"{first_line}\n\n{_render(templates, prompt.kind, prompt)}"


def render_body(templates: Templates, body: DispatchBody | ReplyBody) -> str:
    """The body of a task message to a peer, or of a reply."""
    plain = body.is_plain and not templates.is_edited(f"{body.kind}.md.j2")
    if isinstance(body, DispatchBody):
        return _plain_dispatch(body) if plain else _render(templates, body.kind, body)
    doubts = "".join(f"[mailboxd] In doubt: {doubt}\n\n" for doubt in body.doubts)
    doubts += "".join(f"{said}\n\n" for said in body.votes)
    return doubts + (_plain_reply(body) if plain else _render(templates, body.kind, replace(body, doubts=(), votes=())))


def _plain_reply(body: ReplyBody) -> str:
    """What `reply.md.j2` makes of a plain body."""
    return f"## Results\n\n{escape(body.results, title=True)}".rstrip() + "\n"


def _plain_dispatch(body: DispatchBody) -> str:
    """What `dispatch.md.j2` makes of a plain body, without jinja: most messages are this one."""
    title, spec = storable_line(body.title), body.spec
    texts = (
        ("Goal", "" if storable_line(spec.goal) == title else spec.goal),
        ("Context", spec.context),
        ("Instructions", spec.instructions),
        ("Expected Output", spec.expected_output),
        ("Scope In", "" if spec.scope_in == spec.instructions else spec.scope_in),
        ("Scope Out", spec.scope_out),
        ("Inputs", "" if spec.inputs == spec.context else spec.inputs),
        ("Outputs", "" if spec.outputs == spec.expected_output else spec.outputs),
        ("Risks", spec.risks),
    )
    parts = [f"## {name}\n\n{escape(text, title=True)}" for name, text in texts if text]
    return "\n\n".join([f"# Task: {title}", *parts]).rstrip() + "\n"


def _render(templates: Templates, kind: str, values: AnyPrompt | DispatchBody | ReplyBody) -> str:
    given = {field.name: getattr(values, field.name) for field in fields(values)}
    if isinstance(values, WorkPrompt | SynthesisPrompt | ReviewPrompt | DraftPrompt):
        given["spec"] = said_once(values.title, values.spec)
    text = templates.render(f"{kind}.md.j2", **given)
    return text.rstrip() + "\n"


def said_once(title: str, spec: Spec) -> Spec:
    """`spec` for a prompt: what stands in its instructions, as in a plain file with headings, is not said again.

    Not for a message, whose receiver reads each section.
    """
    first, _, rest = spec.instructions.strip().partition("\n")
    instructions = rest.strip() if rest.strip() and first.lstrip("#").strip() == title.strip() else spec.instructions
    if not _HEADED.search(spec.instructions):
        return replace(spec, instructions=instructions)

    def stands(text: str) -> bool:
        return f"\n{text.strip()}\n" in f"\n{spec.instructions.strip()}\n"

    names = ("context", "expected_output", "scope_out", "risks")
    again: dict[str, Any] = {name: "" for name in names if stands(getattr(spec, name))}
    scope = "" if spec.scope_in == spec.instructions or stands(spec.scope_in) else spec.scope_in
    lines = {line.strip() for line in spec.instructions.split("\n")}
    if all(not lines.isdisjoint({one, f"- {one}", f"* {one}"}) for one in spec.acceptance_criteria):
        again["acceptance_criteria"] = ()
    derived = {"inputs": spec.context, "outputs": spec.expected_output}
    again |= {name: "" for name, of in derived.items() if getattr(spec, name) == of or stands(getattr(spec, name))}
    return replace(spec, instructions=instructions, scope_in=scope, **again)


_HEADED = re.compile(r"^#{1,6} ", re.MULTILINE)


# Results of dependencies in the Context of a child: named, marked as data, and shortened visibly.

_HEADINGS = re.compile(r"^(?=[ \t]*\\*###[^\n]*\(from agent )", re.MULTILINE)
_ESCAPED = r"\\"
_FENCE = 330
"""Bytes of the heading and the fence of one source, about."""
_FEW = 20
"""Sources that have blocks of their own, however small the budget is."""
_LEAST = 500
"""Bytes of each of very many results that are listed: some in full say more than the beginnings of all."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The result of a dependency for a child or the synthesis. `key` and `agent` are ids."""

    key: str
    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A shortened result. Sizes in bytes of UTF-8; the file `path` has the whole result, `sha256` is its hash."""

    key: str
    size: int
    kept: int
    sha256: str
    path: str


@dataclass(frozen=True, slots=True)
class Carried:
    """The text for the Context, and the shortened results."""

    text: str
    cuts: tuple[Cut, ...]


NOTHING_CARRIED = Carried("", ())


def carry(
    sources: Sequence[Upstream],
    budget_bytes: int,
    keep_path: Callable[[Upstream], str],
    keep_all: Callable[[str], str],
) -> Carried:
    """The texts of `sources` in order, each under `### <key> (from agent <agent>)` and fenced as data.

    `budget_bytes` (0 or more) limits the texts together, without headings and markers. If they exceed it, short texts
    stay whole and the longest share the rest equally. A cut never splits a character and is followed by a marker with
    the original size, the sha256 and the file with the whole text, which `keep_path` returns.

    So many sources that their fences alone would take that much are one block, of at most twice the budget, and
    `keep_all` returns the path of the file with all of their texts.
    """
    raws = [source.text.encode("utf-8", "replace") for source in sources]
    shares = _shares([len(raw) for raw in raws], budget_bytes)
    if len(sources) > max(budget_bytes // _FENCE, _FEW):
        return _carry_many(sources, raws, shares, budget_bytes, keep_all)
    parts: list[str] = []
    cuts: list[Cut] = []
    for source, raw, share in zip(sources, raws, shares, strict=True):
        origin = f"result of {source.key} from agent {source.agent}"
        text = raw[:share].decode("utf-8", "ignore")
        parts.append(f"{_heading(source)}{quote_fence(text, origin)}")
        if share < len(raw):
            cut = Cut(source.key, len(raw), len(text.encode()), hashlib.sha256(raw).hexdigest(), keep_path(source))
            cuts.append(cut)
            parts.append(_marker(cut))
    return Carried("\n\n".join(parts), tuple(cuts))


def _carry_many(
    sources: Sequence[Upstream],
    raws: Sequence[bytes],
    shares: Sequence[int],
    budget_bytes: int,
    keep_all: Callable[[str], str],
) -> Carried:
    name, shown, room, kept = f"{len(sources)} results", list[Upstream](), 2 * budget_bytes, 0
    for source, raw, share in zip(sources, raws, shares, strict=True):
        text = raw[: max(share, _LEAST)].decode("utf-8", "ignore")
        size = len(text.encode())
        left_out = f" [{len(raw) - size} bytes more]" if size < len(raw) else ""
        room -= len(f"{_heading(source)}{text}{left_out}\n\n".encode())
        if room < 0:
            break
        kept += size
        shown.append(replace(source, text=text + left_out))
    block = f"### {name}\n\n{quote_fence(concatenate(shown), name)}"
    size = sum(len(raw) for raw in raws)
    if kept == size and len(shown) == len(sources):
        return Carried(block, ())
    whole = concatenate(sources)
    digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()
    cut = Cut(name, size, kept, digest, keep_all(whole))
    marker = f"[mailboxd] cut: {kept} of {size} bytes, and {len(shown)} of {name}, are shown. {_place(cut)}"
    return Carried(f"{block}\n\n{marker}", (cut,))


def concatenate(sources: Sequence[Upstream]) -> str:
    """The results in order, each under a heading that names its source and that no result can forge.

    The text is not marked as data; the code that passes it to an agent marks the whole.
    """
    return "\n\n".join(f"{_heading(source)}{_HEADINGS.sub(_ESCAPED, source.text)}" for source in sources)


def _heading(source: Upstream) -> str:
    return f"### {source.key} (from agent {source.agent})\n\n"


def _shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Bytes per text, shortest text first: its size, but at most an equal share of the remaining budget."""
    if sum(sizes) <= budget:
        return list(sizes)
    shares = [0] * len(sizes)
    remaining = max(budget, 0)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for waiting, index in zip(range(len(sizes), 0, -1), order, strict=True):
        shares[index] = min(sizes[index], remaining // waiting)
        remaining -= shares[index]
    return shares


def _marker(cut: Cut) -> str:
    return f"[mailboxd] cut: {cut.kept} of {cut.size} bytes are shown. {_place(cut)}"


def _place(cut: Cut) -> str:
    return f"The whole text (sha256 {cut.sha256}) is in the file {cut.path}"


def shorten(text: str, budget_bytes: int, keep: Callable[[], str]) -> tuple[str, Cut | None]:
    """`text`, or its beginning with a marker as in `carry`; `keep` stores the whole text and returns its path."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= budget_bytes:
        return text, None
    kept = raw[:budget_bytes].decode("utf-8", "ignore")
    cut = Cut("result", len(raw), len(kept.encode()), hashlib.sha256(raw).hexdigest(), keep())
    return f"{kept}\n\n{_marker(cut)}", cut
