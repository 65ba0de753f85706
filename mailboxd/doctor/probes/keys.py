"""Which keys there are, and whether they can be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from mailboxd.doctor.facts import Keys
from mailboxd.errors import ConfigError
from mailboxd.keys.ed25519 import require_extra
from mailboxd.keys.ring import Ring, Trusted, known_as

T = TypeVar("T")


def keys(root: Path, required: Iterable[str], environ: Mapping[str, str]) -> Keys:
    """The keys of the workspace at `root`. Raises WorldError if they cannot be looked at."""
    ring, problems = Ring.of(root, environ), list[str]()

    def tried(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigError as error:
            problems.append(str(error))
            return None

    extra = tried(_has_extra) is not None
    problems.clear()  # that is no problem of a key
    own = tried(lambda: ring.private(ring.own_file)) if extra else None
    operator = tried(lambda: ring.private(ring.operator_file)) if extra else None
    trusted: tuple[Trusted, ...] = tried(ring.trusted) or ()
    mode, owner = 0o700, os.geteuid()
    with suppress(OSError):
        status = ring.folder.lstat()
        mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    return Keys(
        str(ring.folder),
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
