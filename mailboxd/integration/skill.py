"""The skill in an agent's workspace: `skills/mailboxd/`, where OpenClaw looks for that agent's own skills.

A hidden file beside it keeps the hashes of all written versions, so that an outdated file is replaced and one changed
by a person is kept unless forced. No link inside the workspace is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mailboxd import config
from mailboxd.errors import ConfigError, MailboxdError, WorldError
from mailboxd.mailbox import files
from mailboxd.mailbox.files import directory, open_regular, read_up_to, replace, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.protocol.prompts import packaged

SKILL = "mailboxd"
_WHERE = ("skills", SKILL)
_REMEMBERED = ".mailboxd-skill.json"
_LARGEST = 1 << 20
_AGENT = "@AGENT@"


class Standing(StrEnum):
    """A file in the workspace, compared with the packaged one."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"  # as an earlier mailboxd wrote it
    CHANGED = "changed"  # by a person


@dataclass(frozen=True, slots=True)
class SkillState:
    """The skill in a workspace. `problem` is empty if it is that of this mailboxd."""

    installed: bool
    current: bool
    path: str
    problem: str


def skill_state(workspace_root: Path) -> SkillState:
    """The state of the skill in the workspace at `workspace_root`. Never raises."""
    path = str(workspace_root.joinpath(*_WHERE))
    try:
        found = look(Workspace(workspace_root))
    except (MailboxdError, OSError) as problem:
        return SkillState(False, False, path, str(problem))
    if found["SKILL.md"] is Standing.MISSING:
        return SkillState(False, False, path, "it is not installed")
    others = [f"{name} is {standing}" for name, standing in found.items() if standing is not Standing.CURRENT]
    return SkillState(True, not others, path, ", ".join(others))


def look(ws: Workspace) -> dict[str, Standing]:
    """The status of each file of the skill, by its path in it. Raises ConfigError, WorldError."""
    with world_errors(f"read the skill in {ws.root}"):
        remembered = _remembered(ws)
        return {name: _standing(_read(ws, name), raw, remembered.get(name, [])) for name, raw in content(ws).items()}


def content(ws: Workspace) -> dict[str, bytes]:
    """The packaged files for this workspace, with the agent's id. Raises ConfigError."""
    agent = config.load(ws.config).agent
    source = packaged() / "openclaw-skill"
    parts = [source / "SKILL.md", *sorted((source / "references").glob("*.md"))]
    return {str(file.relative_to(source)): file.read_text("utf-8").replace(_AGENT, agent).encode() for file in parts}


def install(ws: Workspace, *, force: bool, dry_run: bool) -> list[str]:
    """Write missing and outdated files, with `force` also changed ones; returns their names.

    Raises ConfigError for a changed file, before anything is written; WorldError.
    """
    found = look(ws)
    changed = [name for name, standing in found.items() if standing is Standing.CHANGED]
    if changed and not force:
        raise ConfigError(
            f"{ws.root.joinpath(*_WHERE)}: {', '.join(changed)} was changed by a person and is not replaced; "
            "keep a copy elsewhere and run it again with --force"
        )
    written = [name for name, standing in found.items() if standing is not Standing.CURRENT]
    if dry_run or not written:
        return written
    belongs = content(ws)
    with world_errors(f"write the skill into {ws.root}"):
        # the new hashes are added first, so that old and new files are recognised after a crash
        known = {name: {*_remembered(ws).get(name, []), _digest(raw)} for name, raw in belongs.items()}
        text = json.dumps({name: sorted(hashes) for name, hashes in known.items()}, indent=2, sort_keys=True)
        _write(ws, _REMEMBERED, f"{text}\n".encode())
        for name in written:
            _write(ws, name, belongs[name])
    return written


def uninstall(ws: Workspace, *, force: bool, dry_run: bool) -> tuple[list[str], list[str]]:
    """Remove the files of the skill: those removed, and those kept because a person changed them. Raises WorldError."""
    found = look(ws)
    kept = [] if force else [name for name, standing in found.items() if standing is Standing.CHANGED]
    removed = [name for name, standing in found.items() if standing is not Standing.MISSING and name not in kept]
    if not dry_run:
        with world_errors(f"remove the skill from {ws.root}"):
            _remove(ws, [*removed, *(() if kept else (_REMEMBERED,))])
    return removed, kept


def _standing(there: bytes | None, belongs: bytes, remembered: list[str]) -> Standing:
    if there is None:
        return Standing.MISSING
    if there == belongs:
        return Standing.CURRENT
    return Standing.OUTDATED if _digest(there) in remembered else Standing.CHANGED


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _remembered(ws: Workspace) -> Mapping[str, list[str]]:
    """The hashes of all written versions, by file; agents can write there, so it may contain anything."""
    try:
        said = json.loads(_read(ws, _REMEMBERED) or b"{}")
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    return {
        name: [one for one in hashes if isinstance(one, str)]
        for name, hashes in said.items()
        if isinstance(hashes, list)
    }


def _read(ws: Workspace, name: str) -> bytes | None:
    """The bytes of a file of the skill; None if there is none. Raises WorldError for what is no file of ours."""
    *folders, last = name.split("/")
    try:
        with directory(ws.root, *_WHERE, *folders) as fd:
            file = open_regular(fd, last)
            if file is None:
                if files.lstat(fd, last) is not None:
                    raise WorldError(f"{ws.root.joinpath(*_WHERE, name)} is not a regular file; move it away")
                return None
            try:
                return read_up_to(file, _LARGEST)
            finally:
                os.close(file)
    except FileNotFoundError:
        return None


def _write(ws: Workspace, name: str, raw: bytes) -> None:
    *folders, last = name.split("/")
    with _made(ws.root, (*_WHERE, *folders)) as fd:
        replace(fd, last, raw, lambda: True)


@contextmanager
def _made(root: Path, names: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of the directory, made if it is missing."""
    for depth, name in enumerate(names):
        with directory(root, *names[:depth]) as fd, suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
            os.fsync(fd)
    with directory(root, *names) as fd:
        yield fd


def _remove(ws: Workspace, names: Iterable[str]) -> None:
    for name in names:
        *folders, last = name.split("/")
        with suppress(FileNotFoundError), directory(ws.root, *_WHERE, *folders) as fd:
            os.unlink(last, dir_fd=fd)
    for *above, last in ((*_WHERE, "references"), _WHERE):
        with suppress(OSError), directory(ws.root, *above) as fd:  # not empty: somebody else's files are in it
            os.rmdir(last, dir_fd=fd)
