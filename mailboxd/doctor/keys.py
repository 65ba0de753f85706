"""Whether messages can be signed and signatures be checked as the configuration wants it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from mailboxd.doctor.facts import Facts, Finding, Keys, error, note, ok, warning
from mailboxd.errors import ConfigError
from mailboxd.keys.keyring import Keyring, Trusted, known_as, require_extra

_OPERATOR = "operator"


def keys(facts: Facts) -> Iterator[Finding]:
    found = facts.keys
    if found is None:
        return
    findings = [*_usable(found), *_missing(found), *_strangers(found, facts)]
    yield from findings
    if not findings and (found.own or found.trusted):
        whose = f"the keys of {', '.join(found.trusted)} are trusted" if found.trusted else "nobody's key is trusted"
        signs = "what this daemon sends is signed" if found.own else "what this daemon sends is not signed"
        yield ok("keys", f"{signs}, {whose}")


def _usable(found: Keys) -> Iterator[Finding]:
    needed = bool(found.required or found.own or found.trusted)
    if needed and not found.extra:
        text = "signatures are wanted, and nothing is installed that makes or checks them"
        yield error("keys-extra", text, "pip install 'mailboxd[signing]'")
    for problem in found.problems:
        yield error("keys-unusable", problem, f"ls -la {shlex.quote(found.folder)}")
    if found.mode & 0o022:
        text = f"{found.folder} can be written by other users (mode {found.mode:04o}): they could exchange keys"
        yield error("keys-folder", text, f"chmod 700 {shlex.quote(found.folder)}")


def _missing(found: Keys) -> Iterator[Finding]:
    for name in found.required:
        if name not in found.trusted:
            text = f"signing.require names {name}, and no key of {name} is trusted here: all its messages are rejected"
            yield error("keys-required", text, f"mailboxd keys trust {name} FILE_OR_KEY")
    if not found.own and found.trusted:
        text = "this agent has no key of its own: what its daemon sends is not signed"
        yield note("keys-own", text, "mailboxd keys create")


def _strangers(found: Keys, facts: Facts) -> Iterator[Finding]:
    """Keys of agents that there are not: left over, or a name that was mistyped."""
    if facts.peers is None:
        return
    there = {peer.id.lower() for peer in facts.peers} | {_OPERATOR}
    for name in sorted(set(found.trusted) - there):
        text = f"a key of {name} is trusted here, and OpenClaw has no agent {name}"
        yield warning("keys-unknown", text, f"mailboxd keys untrust {name}")


# ---------------------------------------------------------------------------------------------------------------------
# Which keys there are, and whether they can be used.

T = TypeVar("T")


def probe_keys(root: Path, required: Iterable[str], environ: Mapping[str, str]) -> Keys:
    """The keys of the workspace at `root`. Raises WorldError if they cannot be looked at."""
    keyring, problems = Keyring.of(root, environ), list[str]()

    def tried(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigError as error:
            problems.append(str(error))
            return None

    extra = tried(_has_extra) is not None
    problems.clear()  # that is no problem of a key
    own = tried(lambda: keyring.private(keyring.own_file)) if extra else None
    operator = tried(lambda: keyring.private(keyring.operator_file)) if extra else None
    trusted: tuple[Trusted, ...] = tried(keyring.trusted) or ()
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
