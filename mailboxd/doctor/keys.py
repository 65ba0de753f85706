"""Checks of the signing keys: can messages be signed and verified as the configuration requires?"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from mailboxd.doctor.facts import CheckResult, Facts, Keys, error, note, ok, warning
from mailboxd.errors import ConfigError
from mailboxd.keys.keyring import Keyring, Trusted, known_as, require_extra

_OPERATOR = "operator"


def keys(facts: Facts) -> Iterator[CheckResult]:
    found = facts.keys
    if found is None:
        return
    results = [*_unusable(found), *_missing(found), *_unknown(found, facts)]
    yield from results
    if not results and (found.own or found.trusted):
        trusted = f"the keys of {', '.join(found.trusted)} are trusted" if found.trusted else "no key is trusted"
        signed = "messages of this daemon are signed" if found.own else "messages of this daemon are not signed"
        yield ok("keys", f"{signed}, {trusted}")


def _unusable(found: Keys) -> Iterator[CheckResult]:
    needed = bool(found.required or found.own or found.trusted)
    if needed and not found.extra:
        text = "signatures are configured, and the packages for them are not installed"
        yield error("keys-extra", text, "pip install 'mailboxd[signing]'")
    for problem in found.problems:
        yield error("keys-unusable", problem, f"ls -la {shlex.quote(found.folder)}")
    if found.mode & 0o022:
        text = f"other users can write to {found.folder} (mode {found.mode:04o}): they could replace keys"
        yield error("keys-folder", text, f"chmod 700 {shlex.quote(found.folder)}")


def _missing(found: Keys) -> Iterator[CheckResult]:
    for name in found.required:
        if name not in found.trusted:
            text = f"signing.require names {name}, but no key of {name} is trusted: all its messages are rejected"
            yield error("keys-required", text, f"mailboxd keys trust {name} FILE_OR_KEY")
    if not found.own and found.trusted:
        text = "this agent has no key: messages of its daemon are not signed"
        yield note("keys-own", text, "mailboxd keys create")


def _unknown(found: Keys, facts: Facts) -> Iterator[CheckResult]:
    """Keys of agents that do not exist: left over, or a typo."""
    if facts.peers is None:
        return
    existing = {peer.id.lower() for peer in facts.peers} | {_OPERATOR}
    for name in sorted(set(found.trusted) - existing):
        text = f"a key of {name} is trusted, but OpenClaw has no agent {name}"
        yield warning("keys-unknown", text, f"mailboxd keys untrust {name}")


# The probe

T = TypeVar("T")


def probe_keys(root: Path, required: Iterable[str], environ: Mapping[str, str]) -> Keys:
    """The keys of the workspace at `root`. Raises WorldError if they cannot be read."""
    keyring, problems = Keyring.of(root, environ), list[str]()

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigError as error:
            problems.append(str(error))
            return None

    extra = attempt(_has_extra) is not None
    problems.clear()  # a missing extra is not a problem of a key
    own = attempt(lambda: keyring.private(keyring.own_file)) if extra else None
    operator = attempt(lambda: keyring.private(keyring.operator_file)) if extra else None
    trusted: tuple[Trusted, ...] = attempt(keyring.trusted) or ()
    mode, owner = 0o700, os.geteuid()
    with suppress(OSError):
        status = keyring.folder.lstat()
        mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    return Keys(
        str(keyring.folder),
        tuple(problems),
        own is not None,
        operator is not None,
        tuple(sorted({row.name for row in trusted})),
        tuple(sorted(map(known_as, required))),
        extra,
        mode,
        owner,
    )


def _has_extra() -> bool:
    require_extra()
    return True
