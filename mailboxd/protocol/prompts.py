"""What each template is given, and the fixed first line of every prompt.

OpenClaw acts on what a message begins with (`/new`, `$skill`), so a prompt begins with a line of ours, made here and
not in a template: `[mailboxd] <kind> turn · task <local-id> · attempt <n>`, and never with foreign text.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import traceback
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailboxd.core.model import Spec
from mailboxd.core.sanitize import storable_line
from mailboxd.core.vocabulary import Gate
from mailboxd.errors import ConfigError
from mailboxd.protocol.markdown import escape, quote_fence
from mailboxd.protocol.spec import render_actions, render_checks

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

# ---------------------------------------------------------------------------------------------------------------------
# The jinja2 templates of prompts and task files: a workspace's own first, then the packaged ones.
#
# Overrides live in a workspace, and an agent can write there. So they are rendered in jinja2's sandbox (no access to
# Python's internals), only regular files under a plain name are read (no link, no pipe, no path), and what is around
# them is not theirs to change: the header line of a prompt and the front matter and DAG of a task.md come from code.
# The sandbox does not bound the time a template takes: who can write here can stall this agent's own daemon.
#
# DIAGNOSTICS  A broken override is the operator's to mend: ConfigError with file and line. A broken packaged template
# is our bug, and its exception is left as it is.

MAX_OVERRIDE_BYTES = 256 * 1024

_Signature = tuple[int, int, int] | None
_SPEC_FIELDS = frozenset(field.name for field in fields(Spec))


class Templates:
    """Renders templates by name; `overrides` is the workspace's directory of templates, if there is one.

    An override that appears, changes or disappears counts from the next `render` on.
    """

    def __init__(self, overrides: Path | None) -> None:
        self._overrides = overrides
        self._packaged = packaged()

    def render(self, name: str, **values: object) -> str:
        """The text of template `name` (`work.md.j2`) with `values`.

        Raises ConfigError naming file and line when an override of it cannot be read, parsed or evaluated.
        """
        try:
            return self._environment.get_template(name).render(values)
        except (ConfigError, MemoryError):
            raise
        except Exception as error:
            path = self.override(name)
            if path is None:
                raise
            line = _line(error, str(path))
            place = f"{path}:{line}" if line else str(path)
            raise ConfigError(
                f"{place}: this template cannot be used: {storable_line(str(error))[:500]}. "
                "Mend it, or delete it to use the packaged one."
            ) from error

    def override(self, name: str) -> Path | None:
        """The workspace's own file for template `name`, or None when the packaged one is in use."""
        path = self._overrides / name if self._overrides is not None else None
        return path if path is not None and _signature(path) is not None else None

    @cached_property
    def _environment(self) -> SandboxedEnvironment:
        # Imported here: jinja2 takes longer to import than all other work of a `mailboxd status`.
        from jinja2 import FunctionLoader, StrictUndefined
        from jinja2.sandbox import SandboxedEnvironment

        class Sandbox(SandboxedEnvironment):
            def getattr(self, obj: Any, attribute: str) -> Any:
                """Read the parts of a spec without the sandbox's checks: they are plain values."""
                if type(obj) is Spec and attribute in _SPEC_FIELDS:
                    return getattr(obj, attribute)
                return super().getattr(obj, attribute)

            def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
                """The globals as a dict, which is cheaper to copy for each rendering than a ChainMap."""
                return {**self.globals, **(d or {})}

        environment = Sandbox(
            loader=FunctionLoader(self._load),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["quoted"] = quote_fence
        environment.filters["one_line"] = storable_line
        environment.filters["section"] = _section
        environment.filters["checks"] = render_checks
        environment.filters["actions"] = render_actions
        return environment

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        if "/" in name or "\\" in name or name.startswith("."):
            return None
        override = self._overrides / name if self._overrides is not None else None
        seen = _signature(override)
        if override is not None and seen is not None:
            path, source = override, _read(override)
        else:
            path = self._packaged / name
            if not path.is_file():
                return None
            source = path.read_text("utf-8")
        return source, str(path), lambda: _signature(override) == seen


def _section(text: str) -> str:
    """`text` with no line that is an H1 or begins a section; reading a message undoes it."""
    return escape(text, title=True)


def packaged() -> Path:
    """The templates of this installation: inside the package in a wheel, beside it in a source checkout."""
    package = Path(str(files("mailboxd")))
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def _signature(path: Path | None) -> _Signature:
    """What changes when an override is written; None when there is nothing there."""
    if path is None:
        return None
    try:
        status = os.lstat(path)  # a message asks for three of them
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path}: this template cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path}: this template is not a regular file")
        raw = file.read(MAX_OVERRIDE_BYTES + 1)
    if len(raw) > MAX_OVERRIDE_BYTES:
        raise ConfigError(f"{path}: this template is larger than {MAX_OVERRIDE_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: this template is not UTF-8 (byte {error.start})") from error


def _line(error: Exception, path: str) -> int | None:
    """The line of the template at `path` that `error` comes from; jinja2 maps its frames back to the source."""
    own = getattr(error, "lineno", None)
    if isinstance(own, int):
        return own
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return frames[-1] if frames else None


# ---------------------------------------------------------------------------------------------------------------------
# What each template is given, and the fixed first line of every prompt.


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent that may be given children, and what it does (from OpenClaw's configuration; may be empty)."""

    name: str
    does: str = ""


@dataclass(frozen=True, slots=True)
class WorkPrompt:
    """A turn in which this agent works on a task itself, or decides to plan it or to ask.

    `attempt` counts from 1. `findings` is why the attempt before was not accepted, `previous` its result. `note` are
    words for this turn only (the answer to a question, new instructions). `depth_left` is how many levels of children
    may still hang below this task: 0 = it cannot be planned. `may_ask` = the sender can be asked.
    """

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec
    peers: tuple[Peer, ...] = ()
    findings: str = ""
    note: str = ""
    depth_left: int = 0
    children_left: int = 0
    may_ask: bool = False
    deadline: str | None = None
    previous: str = ""


@dataclass(frozen=True, slots=True)
class DispatchBody:
    """The body of a `type: task` message. Findings of the attempt before, and its result, stand below the rest."""

    title: str
    spec: Spec
    findings: str = ""
    attempt: int = 1
    previous: str = ""


@dataclass(frozen=True, slots=True)
class ReplyBody:
    """The body of a `type: reply`: `results`, or `error` (and `partial`) when it failed."""

    results: str = ""
    error: str = ""
    partial: str = ""


@dataclass(frozen=True, slots=True)
class SynthesisPrompt:
    """A turn that makes one result of the children's. `results` is the text of `context.carry`."""

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec
    results: str
    findings: str = ""
    note: str = ""
    previous: str = ""


@dataclass(frozen=True, slots=True)
class ReviewPrompt:
    """A turn that judges: the spec itself (`gate` spec_review), or `result` against it, for its terms or quality.

    `executor` is the agent whose work it is; `earlier` are the findings of the reviews before, to be checked again.
    """

    local_id: str
    attempt: int
    gate: Gate
    title: str
    spec: Spec
    executor: str
    result: str = ""
    earlier: str = ""
    evidence: str = ""
    """What the checks of the spec said of the result."""


@dataclass(frozen=True, slots=True)
class DraftPrompt:
    """A turn that mends a weak spec. `attempt` counts drafts; `lacks` and `findings` say what is wrong with it."""

    local_id: str
    attempt: int
    agent: str
    sender: str
    title: str
    spec: Spec
    lacks: str = ""
    findings: str = ""


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """A turn that answers the question of whoever has a child. `parent` is the task that the child is a part of."""

    local_id: str
    attempt: int
    agent: str
    executor: str
    title: str
    spec: Spec
    parent_title: str
    parent: Spec
    question: str


_Values = AnswerPrompt | WorkPrompt | DispatchBody | ReplyBody | SynthesisPrompt | ReviewPrompt | DraftPrompt


def render_work(templates: Templates, prompt: WorkPrompt) -> str:
    """The prompt of a work turn, for a task of a sender as for a child given to `self`."""
    return _header("work", prompt.local_id, prompt.attempt) + _render(templates, "work.md.j2", prompt)


def render_synthesis(templates: Templates, prompt: SynthesisPrompt) -> str:
    """The prompt of a synthesis turn."""
    return _header("synthesis", prompt.local_id, prompt.attempt) + _render(templates, "synthesis.md.j2", prompt)


def is_synthesis(prompt: bytes) -> bool:
    """Whether these are the first bytes of the prompt of a synthesis turn."""
    return prompt.startswith(_beginning("synthesis").encode())


def render_review(templates: Templates, prompt: ReviewPrompt) -> str:
    """The prompt of a review turn at one gate."""
    return _header("review", prompt.local_id, prompt.attempt) + _render(templates, "review.md.j2", prompt)


def render_answer(templates: Templates, prompt: AnswerPrompt) -> str:
    """The prompt of a turn that answers a question."""
    return _header("answer", prompt.local_id, prompt.attempt) + _render(templates, "answer.md.j2", prompt)


def render_draft(templates: Templates, prompt: DraftPrompt) -> str:
    """The prompt of a drafting turn; `answer.read_draft` reads what comes back."""
    return _header("draft", prompt.local_id, prompt.attempt) + _render(templates, "draft.md.j2", prompt)


def render_dispatch_body(templates: Templates, body: DispatchBody) -> str:
    """The body of a task message to a peer; its front matter is the codec's."""
    return _render(templates, "dispatch.md.j2", body)


def render_reply_body(templates: Templates, body: ReplyBody) -> str:
    """The body of a reply; its front matter is the codec's."""
    return _render(templates, "reply.md.j2", body)


def _header(kind: str, local_id: str, attempt: int) -> str:
    return f"{_beginning(kind)}task {local_id} · attempt {attempt}\n\n"


def _beginning(kind: str) -> str:
    return f"[mailboxd] {kind} turn · "


def _render(templates: Templates, name: str, values: _Values) -> str:
    text = templates.render(name, **{name: getattr(values, name) for name in values.__slots__})
    return text.rstrip() + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# The upstream results that go into a dependant's Context: named, marked as data, and never cut in silence.

_OURS = re.compile(r"^(?=[ \t]*\\*###[^\n]*\(from agent )", re.MULTILINE)
_ESCAPED = r"\\"


@dataclass(frozen=True, slots=True)
class Upstream:
    """The result of a child that another child, or the synthesis, builds on. `key` and `agent` are ids."""

    key: str
    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A result that did not fit whole. Sizes in bytes of UTF-8; `path` holds the whole, `sha256` is of the whole."""

    key: str
    size: int
    kept: int
    sha256: str
    path: str


@dataclass(frozen=True, slots=True)
class Carried:
    """What goes into the Context, and what of it was cut (for an event)."""

    text: str
    cuts: tuple[Cut, ...]


def carry(sources: Sequence[Upstream], budget_bytes: int, keep_path: Callable[[Upstream], str]) -> Carried:
    """The texts of `sources` in order, each under `### <key> (from agent <agent>)` and fenced as data.

    `budget_bytes` (0 or more) bounds the texts together, without headings and markers. Over it, what is short stays
    whole and the longest share the rest equally; each cut ends on a character and is followed by a marker with the
    original size, the sha256 and the file that holds the whole. `keep_path` names that file, and is asked only for
    texts that are cut.
    """
    raws = [source.text.encode("utf-8", "replace") for source in sources]
    parts: list[str] = []
    cuts: list[Cut] = []
    for source, raw, share in zip(sources, raws, _shares([len(raw) for raw in raws], budget_bytes), strict=True):
        origin = f"result of {source.key} from agent {source.agent}"
        text = raw[:share].decode("utf-8", "ignore")
        parts.append(f"### {source.key} (from agent {source.agent})\n\n{quote_fence(text, origin)}")
        if share < len(raw):
            cut = Cut(source.key, len(raw), len(text.encode()), hashlib.sha256(raw).hexdigest(), keep_path(source))
            cuts.append(cut)
            parts.append(_marker(cut))
    return Carried("\n\n".join(parts), tuple(cuts))


def concatenate(sources: Sequence[Upstream]) -> str:
    """The results one below the other, each under a heading that names its source, and none that could forge one.

    For a result that people read: it is not marked as data here, but whoever passes it on marks it as a whole.
    """
    parts = [
        f"### {source.key} (from agent {source.agent})\n\n{_OURS.sub(_ESCAPED, source.text)}" for source in sources
    ]
    return "\n\n".join(parts)


def _shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Bytes for each text: all it needs while that is at most an equal part of what is left, else that part."""
    shares = [0] * len(sizes)
    left = max(budget, 0)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for waiting, index in zip(range(len(sizes), 0, -1), order, strict=True):
        shares[index] = min(sizes[index], left // waiting)
        left -= shares[index]
    return shares


def _marker(cut: Cut) -> str:
    return (
        f"[mailboxd] cut: {cut.kept} of {cut.size} bytes are shown. "
        f"The whole (sha256 {cut.sha256}) is in the file {cut.path}"
    )


def shorten(text: str, budget_bytes: int, keep: Callable[[], str]) -> tuple[str, Cut | None]:
    """`text`, or its beginning with a marker that names its size, hash and the file that `keep` put the whole into."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= budget_bytes:
        return text, None
    kept = raw[:budget_bytes].decode("utf-8", "ignore")
    cut = Cut("result", len(raw), len(kept.encode()), hashlib.sha256(raw).hexdigest(), keep())
    return f"{kept}\n\n{_marker(cut)}", cut
