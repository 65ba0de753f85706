"""mailboxd's parts inside OpenClaw: the skill in the agent's workspace and the plugin in the gateway.

The skill is in `skills/mailboxd/`, where OpenClaw looks for that agent's skills. A hidden file there keeps the hashes
of all versions written, so that an outdated file is replaced and one edited by a person is kept unless forced. No link
inside the workspace is followed.

The plugin is copied by OpenClaw into its own state, independent of where mailboxd is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mailboxd.errors import ConfigError, MailboxdError, UnavailableError, WorldError
from mailboxd.formats import config
from mailboxd.formats.mailbox.files import directory, lstat, read_file, replace, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.prompts import packaged
from mailboxd.host.clock import Clock
from mailboxd.host.system import system
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import at, brief, complaint, parse_object, text_at
from mailboxd.perform.agents.openclaw import OpenClaw, parse_version
from mailboxd.perform.agents.openclaw_versions import offer
from mailboxd.perform.agents.process import NotStarted

SKILL = "mailboxd"
_SKILL_DIR = ("skills", SKILL)
_HASHES_FILE = ".mailboxd-skill.json"
_LARGEST_FILE = 1 << 20
_AGENT = "@AGENT@"


class FileStatus(StrEnum):
    """A file in the workspace, compared with the packaged digest."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"  # as an earlier mailboxd wrote it
    CHANGED = "changed"  # by a person


@dataclass(frozen=True, slots=True)
class SkillState:
    """The skill in a workspace. `problem` is empty if it is the packaged one."""

    installed: bool
    current: bool
    path: str
    problem: str


def skill_state(workspace_root: Path) -> SkillState:
    """The state of the skill in the workspace at `workspace_root`. Never raises."""
    path = str(workspace_root.joinpath(*_SKILL_DIR))
    try:
        found = skill_files(Workspace(workspace_root))
    except (MailboxdError, OSError) as problem:
        return SkillState(False, False, path, str(problem))
    if found["SKILL.md"] is FileStatus.MISSING:
        return SkillState(False, False, path, "it is not installed")
    others = [f"{name} is {status}" for name, status in found.items() if status is not FileStatus.CURRENT]
    return SkillState(True, not others, path, ", ".join(others))


def skill_files(ws: Workspace) -> dict[str, FileStatus]:
    """The status of each file of the skill, by relative path. Raises ConfigError, WorldError."""
    with world_errors(f"read the skill in {ws.root}"):
        hashes = _known_hashes(ws)
        return {name: _status(_read(ws, name), raw, hashes.get(name, [])) for name, raw in packaged_skill(ws).items()}


def packaged_skill(ws: Workspace) -> dict[str, bytes]:
    """The packaged files for this workspace, with the agent's id. Raises ConfigError."""
    agent = config.load(ws.config).agent
    source = packaged() / "openclaw-skill"
    parts = [source / "SKILL.md", *sorted((source / "references").glob("*.md"))]
    return {str(file.relative_to(source)): file.read_text("utf-8").replace(_AGENT, agent).encode() for file in parts}


def install_skill(ws: Workspace, *, force: bool) -> list[str]:
    """Write missing and outdated files, with `force` also changed ones; returns their names.

    Raises ConfigError for a changed file, before anything is written; WorldError.
    """
    found = skill_files(ws)
    changed = [name for name, status in found.items() if status is FileStatus.CHANGED]
    if changed and not force:
        raise ConfigError(
            f"{ws.root.joinpath(*_SKILL_DIR)}: {', '.join(changed)} was changed by a person and is not replaced; "
            "keep a copy elsewhere and run it again with --force"
        )
    written = [name for name, status in found.items() if status is not FileStatus.CURRENT]
    if not written:
        return written
    packaged_files = packaged_skill(ws)
    with world_errors(f"write the skill into {ws.root}"):
        # the new hashes are added first, so that old and new files are recognised after a crash
        known = {name: {*_known_hashes(ws).get(name, []), _digest(raw)} for name, raw in packaged_files.items()}
        text = json.dumps({name: sorted(hashes) for name, hashes in known.items()}, indent=2, sort_keys=True)
        _write(ws, _HASHES_FILE, f"{text}\n".encode())
        for name in written:
            _write(ws, name, packaged_files[name])
    return written


def uninstall_skill(ws: Workspace, *, force: bool) -> tuple[list[str], list[str]]:
    """Remove the files of the skill: those removed, and those kept because a person changed them. Raises WorldError."""
    found = skill_files(ws)
    kept = [] if force else [name for name, status in found.items() if status is FileStatus.CHANGED]
    removed = [name for name, status in found.items() if status is not FileStatus.MISSING and name not in kept]
    with world_errors(f"remove the skill from {ws.root}"):
        _remove(ws, [*removed, *(() if kept else (_HASHES_FILE,))])
    return removed, kept


def _status(found: bytes | None, packaged_bytes: bytes, hashes: list[str]) -> FileStatus:
    if found is None:
        return FileStatus.MISSING
    if found == packaged_bytes:
        return FileStatus.CURRENT
    return FileStatus.OUTDATED if _digest(found) in hashes else FileStatus.CHANGED


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _known_hashes(ws: Workspace) -> Mapping[str, list[str]]:
    """The hashes of all written versions, by file; the agent can write it, so it may contain anything."""
    try:
        value = json.loads(_read(ws, _HASHES_FILE) or b"{}")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {
        name: [digest for digest in hashes if isinstance(digest, str)]
        for name, hashes in value.items()
        if isinstance(hashes, list)
    }


def _read(ws: Workspace, name: str) -> bytes | None:
    """The bytes of a file of the skill; None if it is missing. Raises WorldError if it is not a regular file."""
    *folders, last = name.split("/")
    try:
        with directory(ws.root, *_SKILL_DIR, *folders) as fd:
            raw = read_file(fd, last, _LARGEST_FILE)
            if raw is None and lstat(fd, last) is not None:
                raise WorldError(f"{ws.root.joinpath(*_SKILL_DIR, name)} is not a regular file; move it away")
            return raw
    except FileNotFoundError:
        return None


def _write(ws: Workspace, name: str, raw: bytes) -> None:
    *folders, last = name.split("/")
    with _created(ws.root, (*_SKILL_DIR, *folders)) as fd:
        replace(fd, last, raw, lambda: True)


@contextmanager
def _created(root: Path, names: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of the directory, created if missing."""
    for depth, name in enumerate(names):
        with directory(root, *names[:depth]) as fd, suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
            system.sync(fd)
    with directory(root, *names) as fd:
        yield fd


def _remove(ws: Workspace, names: Iterable[str]) -> None:
    for name in names:
        *folders, last = name.split("/")
        with suppress(FileNotFoundError), directory(ws.root, *_SKILL_DIR, *folders) as fd:
            os.unlink(last, dir_fd=fd)
    for *above, last in ((*_SKILL_DIR, "references"), _SKILL_DIR, _SKILL_DIR[:1]):
        with suppress(OSError), directory(ws.root, *above) as fd:  # not empty: it has other files
            os.rmdir(last, dir_fd=fd)


PLUGIN = "mailboxd"
OPENCLAW_TIMEOUT = 180.0
"""Timeout of one command of OpenClaw; an installation usually takes 15 s on an idle machine."""
_RESTART_SECONDS = 90.0
_HOOK = "before_agent_reply"
_NOT_FOUND = "Plugin not found"
NOT_INSTALLED = "it is not installed"


@dataclass(frozen=True, slots=True)
class PluginState:
    """The plugin as OpenClaw reports it. `problem` is the first thing that keeps it from working, or empty.

    Whether a running gateway uses it is checked by `mailboxd.operate.doctor.agent`.
    """

    installed: bool
    enabled: bool
    may_read: bool
    """It may read messages to agents (`hooks.allowConversationAccess`)."""
    version: str
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class OpenClawCommand:
    """One command of OpenClaw and its purpose."""

    does: str
    argv: tuple[str, ...]
    copies: Path | None = None
    """A directory in `argv` that is replaced by a copy of it."""

    def __str__(self) -> str:
        return f"{self.does}: {shlex.join(self.argv)}"


def plugin_source() -> Path:
    """The plugin packaged with this mailboxd."""
    return packaged() / "openclaw-plugin"


PLUGIN_INSPECT = ("plugins", "inspect", PLUGIN, "--runtime", "--json")


def plugin_state(openclaw: OpenClaw, environment: Mapping[str, str]) -> PluginState:
    """Ask OpenClaw, run with `environment`. Takes 4 to 8 s; works without the gateway. Never raises."""
    try:
        answer = ask(openclaw.argv(*PLUGIN_INSPECT), environment, OPENCLAW_TIMEOUT)
    except NotStarted as problem:
        return PluginState(False, False, False, "", "", str(problem))
    return parse_plugin_state(answer)


def parse_plugin_state(answer: Exit) -> PluginState:
    """Parse `openclaw plugins inspect`."""
    inspected = parse_object(answer)
    if answer.rc != 0 or not isinstance(at(inspected, "plugin"), dict):
        reason = complaint(answer)
        missing = reason.startswith(_NOT_FOUND)
        return PluginState(False, False, False, "", "", NOT_INSTALLED if missing else brief(reason))
    enabled = at(inspected, "plugin", "enabled") is True
    may_read = at(inspected, "policy", "allowConversationAccess") is True
    path = text_at(inspected, "plugin", "rootDir")
    hooks = at(inspected, "typedHooks")
    registered = isinstance(hooks, list) and any(text_at(hook, "name") == _HOOK for hook in hooks)
    if not enabled:
        problem = f"it is disabled ({text_at(inspected, 'plugin', 'activationReason') or 'no reason given'})"
    elif not may_read:
        problem = f"it may not see messages to agents (plugins.entries.{PLUGIN}.hooks.allowConversationAccess)"
    elif not registered:
        problem = f"OpenClaw did not load it: {brief(text_at(inspected, 'plugin', 'error')) or 'no hook is registered'}"
    elif not is_current_plugin(path):
        problem = "it is not this mailboxd's version"
    else:
        problem = ""
    return PluginState(True, enabled, may_read, text_at(inspected, "plugin", "version"), path, problem)


def is_current_plugin(path: str) -> bool:
    """Whether the directory has exactly the files of this mailboxd's plugin."""
    try:
        source = plugin_source()
        names = [file.relative_to(source) for file in source.rglob("*") if file.is_file()]
        return path != "" and all(_bytes_of(Path(path) / name) == (source / name).read_bytes() for name in names)
    except OSError:
        return False


def plugin_install_steps(openclaw: OpenClaw, state: PluginState) -> list[OpenClawCommand]:
    """The next steps of an installation; empty if the plugin works.

    It is enabled only if OpenClaw reports it as disabled, since an installation usually enables it and each command
    takes seconds.
    """
    steps = []
    if not state.installed or not is_current_plugin(state.path) or (state.enabled and state.may_read and state.problem):
        # the options answer OpenClaw's questions: whether the source is trusted, and what it may do
        argv = openclaw.argv("plugins", "install", str(plugin_source()), "--force", "--accept-capabilities")
        steps.append(OpenClawCommand("copy the plugin into OpenClaw's state", argv, copies=plugin_source()))
    if not state.may_read:
        # otherwise OpenClaw blocks hooks like `before_agent_reply`
        path = f"plugins.entries.{PLUGIN}.hooks.allowConversationAccess"
        argv = openclaw.argv("config", "set", path, "true", "--strict-json")
        steps.append(OpenClawCommand("let it see messages to agents", argv))
    if state.installed and not state.enabled:
        steps.append(OpenClawCommand("enable it", openclaw.argv("plugins", "enable", PLUGIN, "--accept-capabilities")))
    return steps


def install_plugin(
    openclaw: OpenClaw, environment: Mapping[str, str], state: PluginState
) -> tuple[list[OpenClawCommand], PluginState]:
    """Perform all steps, none twice; returns them and the new state. Raises UnavailableError."""
    done: list[OpenClawCommand] = []
    while due := [step for step in plugin_install_steps(openclaw, state) if step not in done]:
        run_steps(due, environment)
        done += due
        state = plugin_state(openclaw, environment)
    return done, state


def reload_plugin(openclaw: OpenClaw, environment: Mapping[str, str], clock: Clock) -> str:
    """Make a running gateway load the installed plugin; returns a sentence about the result. Never raises.

    Without `plugins reload` the gateway is restarted once its work is done.
    """
    try:
        version = parse_version(ask(openclaw.argv("--version"), environment, OPENCLAW_TIMEOUT))
        if offer(version).plugins_reload:
            # 2026.9.6 needs it: a plugin enabled after it was allowed to see messages is loaded without hooks
            argv = openclaw.argv("plugins", "reload", PLUGIN, "--accept-capabilities", "--json")
            answer = ask(argv, environment, OPENCLAW_TIMEOUT)
            if answer.rc == 0:
                return "the running gateway has loaded it; no restart is needed"
            return f"no running gateway has loaded it; it is loaded at the next start: {complaint(answer)}"
        answer = ask(openclaw.argv("gateway", "restart", "--safe", "--json"), environment, OPENCLAW_TIMEOUT)
        if answer.rc != 0:
            return f"no running gateway has loaded it; it is loaded at the next start: {complaint(answer)}"
        if text_at(parse_object(answer), "result") == "deferred":
            return "the gateway restarts and loads it once its current work is done"
        return _restarted(openclaw, environment, clock)
    except NotStarted as problem:
        return f"no running gateway has loaded it; it is loaded at the next start: {problem}"


def _restarted(openclaw: OpenClaw, environment: Mapping[str, str], clock: Clock) -> str:
    until = clock.monotonic() + _RESTART_SECONDS
    while clock.monotonic() < until:
        if ask(openclaw.argv("gateway", "call", "health", "--json"), environment, OPENCLAW_TIMEOUT).rc == 0:
            return "the gateway has restarted and loaded it"
    return (
        f"the gateway was asked to restart and does not answer after {_RESTART_SECONDS:.0f} s: openclaw gateway status"
    )


def plugin_uninstall_steps(openclaw: OpenClaw, state: PluginState) -> list[OpenClawCommand]:
    """The steps that undo an installation. OpenClaw keeps of the plugin's settings only `enabled: false`."""
    if not state.installed:
        return []
    argv = openclaw.argv("plugins", "uninstall", PLUGIN, "--force")
    return [OpenClawCommand("remove the plugin, its files and its settings", argv)]


def run_steps(steps: Iterable[OpenClawCommand], environment: Mapping[str, str]) -> None:
    """Run the commands in order. Raises UnavailableError at the first that fails; those before it stay done."""
    for step in steps:
        try:
            with _with_private_copy(step) as argv:
                answer = ask(argv, environment, OPENCLAW_TIMEOUT)
        except NotStarted as problem:
            raise UnavailableError(f"OpenClaw cannot be started: {problem}") from problem
        except OSError as problem:
            raise UnavailableError(f"the plugin cannot be copied for OpenClaw: {problem}") from problem
        if answer.rc != 0:
            raise UnavailableError(f"`{shlex.join(step.argv)}` failed: {complaint(answer)}")


def steps_json(steps: Sequence[OpenClawCommand]) -> list[dict[str, object]]:
    """The steps for `--json`."""
    return [{"does": step.does, "command": list(step.argv)} for step in steps]


@contextmanager
def _with_private_copy(step: OpenClawCommand) -> Iterator[tuple[str, ...]]:
    """The command, with its directory copied: uv and pipx install hard links to their cache, and OpenClaw refuses a
    plugin with hard-linked files ("failed plugin directory boundary checks")."""
    if step.copies is None:
        yield step.argv
        return
    with tempfile.TemporaryDirectory(prefix="mailboxd-") as temporary:
        copy = shutil.copytree(step.copies, Path(temporary) / step.copies.name)
        yield tuple(str(copy) if word == str(step.copies) else word for word in step.argv)


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LARGEST_FILE)
