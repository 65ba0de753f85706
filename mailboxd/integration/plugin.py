"""The plugin in OpenClaw's gateway: its state, installation and removal.

OpenClaw copies the plugin into its own state, independent of where mailboxd is installed.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import at, brief, cli_error, parse_object, text_at
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.process import NotStarted
from mailboxd.agents.run_query import ask
from mailboxd.clock import Clock
from mailboxd.errors import UnavailableError
from mailboxd.protocol.prompts import packaged

PLUGIN = "mailboxd"
SECONDS = 180.0
"""Timeout of one command of OpenClaw; an installation usually takes 15 s on an idle machine."""
_RESTART_SECONDS = 90.0
_NO_RELOAD = 'no command "reload"'
_HOOK = "before_agent_reply"
_NOT_FOUND = "Plugin not found"
NOT_INSTALLED = "it is not installed"
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class PluginState:
    """The plugin as OpenClaw reports it. `problem` is the first thing that keeps it from working, or empty.

    Whether a running gateway uses it is checked by `mailboxd.doctor.canary`.
    """

    installed: bool
    enabled: bool
    may_read: bool
    """It may read messages to agents (`hooks.allowConversationAccess`)."""
    version: str
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class Step:
    """One command of OpenClaw and its purpose."""

    does: str
    argv: tuple[str, ...]
    copies: Path | None = None
    """A directory in `argv` that is replaced by a copy of it."""

    def __str__(self) -> str:
        return f"{self.does}: {shlex.join(self.argv)}"


def source() -> Path:
    """The plugin packaged with this mailboxd."""
    return packaged() / "openclaw-plugin"


def plugin_state(openclaw: OpenClaw, environment: Mapping[str, str]) -> PluginState:
    """Ask OpenClaw, run with `environment`. Takes 4 to 8 s; works without the gateway. Never raises."""
    try:
        answer = ask(openclaw.plugin_inspect_argv(PLUGIN), environment, SECONDS)
    except NotStarted as problem:
        return PluginState(False, False, False, "", "", str(problem))
    return read_state(answer)


def read_state(answer: Exit) -> PluginState:
    """Parse `openclaw plugins inspect`."""
    said = parse_object(answer)
    if answer.rc != 0 or not isinstance(at(said, "plugin"), dict):
        reason = cli_error(answer) or brief(answer.stderr.decode("utf-8", "replace")) or f"exit status {answer.rc}"
        missing = reason.startswith(_NOT_FOUND)
        return PluginState(False, False, False, "", "", NOT_INSTALLED if missing else brief(reason))
    enabled = at(said, "plugin", "enabled") is True
    may_read = at(said, "policy", "allowConversationAccess") is True
    path = text_at(said, "plugin", "rootDir")
    hooks = at(said, "typedHooks")
    registered = isinstance(hooks, list) and any(text_at(hook, "name") == _HOOK for hook in hooks)
    if not enabled:
        problem = f"it is disabled ({text_at(said, 'plugin', 'activationReason') or 'no reason given'})"
    elif not may_read:
        problem = f"it may not see what is said (plugins.entries.{PLUGIN}.hooks.allowConversationAccess)"
    elif not registered:
        problem = f"OpenClaw did not load it: {brief(text_at(said, 'plugin', 'error')) or 'no hook is registered'}"
    elif not is_current(path):
        problem = "it is not the one of this mailboxd"
    else:
        problem = ""
    return PluginState(True, enabled, may_read, text_at(said, "plugin", "version"), path, problem)


def is_current(path: str) -> bool:
    """Whether the directory has exactly the files of this mailboxd's plugin."""
    try:
        files = [file for file in source().iterdir() if file.is_file()]
        return path != "" and all(_content(Path(path) / file.name) == file.read_bytes() for file in files)
    except OSError:
        return False


def install_steps(openclaw: OpenClaw, state: PluginState) -> list[Step]:
    """The next steps of an installation; empty if the plugin works.

    It is enabled only if OpenClaw reports it as disabled, since an installation usually enables it and each command
    takes seconds.
    """
    steps = []
    if not state.installed or not is_current(state.path) or (state.enabled and state.may_read and state.problem):
        argv = openclaw.plugin_install_argv(source())
        steps.append(Step("copy the plugin into OpenClaw's state", argv, copies=source()))
    if not state.may_read:
        steps.append(Step("let it see what is said to agents", openclaw.plugin_may_read_argv(PLUGIN)))
    if state.installed and not state.enabled:
        steps.append(Step("enable it", openclaw.plugin_enable_argv(PLUGIN)))
    return steps


def install(openclaw: OpenClaw, environment: Mapping[str, str], state: PluginState) -> tuple[list[Step], PluginState]:
    """Perform all steps, none twice; returns them and the new state. Raises UnavailableError."""
    done: list[Step] = []
    while due := [step for step in install_steps(openclaw, state) if step not in done]:
        perform(due, environment)
        done += due
        state = plugin_state(openclaw, environment)
    return done, state


def have_taken(openclaw: OpenClaw, environment: Mapping[str, str], clock: Clock) -> str:
    """Make a running gateway load the installed plugin; returns a sentence about the result. Never raises.

    OpenClaw without `plugins reload` (at least 2026.8.1 to 2026.9.2) loads a plugin reliably only when the gateway
    starts, so the gateway is restarted once its work is done.
    """
    try:
        answer = ask(openclaw.plugin_reload_argv(PLUGIN), environment, SECONDS)
        if answer.rc == 0:
            return "the running gateway has taken it, no restart is needed"
        if _NO_RELOAD not in _said(answer):
            return f"no running gateway has taken it, the next start does: {_said(answer)}"
        answer = ask(openclaw.gateway_restart_argv(), environment, SECONDS)
        if answer.rc != 0:
            return f"no running gateway has taken it, the next start does: {_said(answer)}"
        if text_at(parse_object(answer), "result") == "deferred":
            return "the gateway takes it when it has restarted, which it does when the work that it has now is done"
        return _restarted(openclaw, environment, clock)
    except NotStarted as problem:
        return f"no running gateway has taken it, the next start does: {problem}"


def _restarted(openclaw: OpenClaw, environment: Mapping[str, str], clock: Clock) -> str:
    until = clock.monotonic() + _RESTART_SECONDS
    while clock.monotonic() < until:
        if ask(openclaw.gateway_health_argv(), environment, SECONDS).rc == 0:
            return "the gateway has restarted to take it"
    return (
        f"the gateway was asked to restart and does not answer after {_RESTART_SECONDS:.0f} s: openclaw gateway status"
    )


def uninstall_steps(openclaw: OpenClaw, state: PluginState) -> list[Step]:
    """The steps that undo an installation: OpenClaw removes its copy and the plugin's settings."""
    if not state.installed:
        return []
    return [Step("remove the plugin, its files and its settings", openclaw.plugin_uninstall_argv(PLUGIN))]


def perform(steps: Iterable[Step], environment: Mapping[str, str]) -> None:
    """Run the commands in order. Raises UnavailableError at the first that fails; those before it stay done."""
    for step in steps:
        try:
            with _files_of_its_own(step) as argv:
                answer = ask(argv, environment, SECONDS)
        except NotStarted as problem:
            raise UnavailableError(f"OpenClaw cannot be started: {problem}") from problem
        except OSError as problem:
            raise UnavailableError(f"the plugin cannot be copied for OpenClaw: {problem}") from problem
        if answer.rc != 0:
            raise UnavailableError(f"`{shlex.join(step.argv)}` failed: {_said(answer)}")


def shown(steps: Sequence[Step]) -> list[dict[str, object]]:
    """The steps for `--json`."""
    return [{"does": step.does, "command": list(step.argv)} for step in steps]


@contextmanager
def _files_of_its_own(step: Step) -> Iterator[tuple[str, ...]]:
    """The command, with its directory copied: uv and pipx install hard links to their cache, and OpenClaw refuses a
    plugin with hard-linked files ("failed plugin directory boundary checks")."""
    if step.copies is None:
        yield step.argv
        return
    with tempfile.TemporaryDirectory(prefix="mailboxd-") as place:
        copy = shutil.copytree(step.copies, Path(place) / step.copies.name)
        yield tuple(str(copy) if word == str(step.copies) else word for word in step.argv)


def _said(answer: Exit) -> str:
    both = (answer.stderr.strip() or answer.stdout.strip()).decode("utf-8", "replace")
    return cli_error(answer) or brief(both) or f"exit status {answer.rc}"


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LARGEST_FILE)
