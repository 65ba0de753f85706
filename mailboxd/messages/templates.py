"""The jinja2 templates of prompts and task files: a workspace's own first, then the packaged ones.

Overrides live in a workspace, and an agent can write there. So they are rendered in jinja2's sandbox (no access to
Python's internals), only regular files under a plain name are read (no link, no pipe, no path), and what is around
them is not theirs to change: the header line of a prompt and the front matter and DAG of a task.md come from code.
The sandbox does not bound the time a template takes: who can write here can stall this agent's own daemon.

DIAGNOSTICS  A broken override is the operator's to mend: ConfigError with file and line. A broken packaged template
is our bug, and its exception is left as it is.
"""

from __future__ import annotations

import os
import stat
import traceback
from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from mailboxd.errors import ConfigError
from mailboxd.messages.actions import render_actions
from mailboxd.messages.checks import render_checks
from mailboxd.messages.quoting import quote_fence
from mailboxd.messages.sections import escape
from mailboxd.messages.text import one_line

if TYPE_CHECKING:
    from mailboxd.messages.sandbox import Sandbox

MAX_OVERRIDE_BYTES = 256 * 1024

_Signature = tuple[int, int, int] | None


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
                f"{place}: this template cannot be used: {one_line(str(error))[:500]}. "
                "Mend it, or delete it to use the packaged one."
            ) from error

    def override(self, name: str) -> Path | None:
        """The workspace's own file for template `name`, or None when the packaged one is in use."""
        path = self._overrides / name if self._overrides is not None else None
        return path if path is not None and _signature(path) is not None else None

    @cached_property
    def _environment(self) -> Sandbox:
        # Imported here: jinja2 costs a `mailboxd status` more than all else that it does.
        from jinja2 import FunctionLoader, StrictUndefined

        from mailboxd.messages.sandbox import Sandbox

        environment = Sandbox(
            loader=FunctionLoader(self._load),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["quoted"] = quote_fence
        environment.filters["one_line"] = one_line
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
