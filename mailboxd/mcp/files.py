"""A file that a caller names as evidence: found below the workspace without following a link, read and hashed by us."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath

from mailboxd.errors import Refused
from mailboxd.workspace.files import directory, open_regular
from mailboxd.workspace.layout import STATE

MOST_BYTES = 256 * 1024 * 1024
_PART = 1 << 20


def digest(root: Path, path: str) -> tuple[str, str]:
    """The `workspace:` URI of the file and its SHA-256. Raises Refused for anything but a readable regular file."""
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path or path.startswith("/") or ".." in parts or parts[0] == STATE:
        hint = "Write it relative to the workspace, without .. in it."
        raise Refused("outside-workspace", f"{path[:200]!r} does not name a file of the workspace", hint)
    try:
        with directory(root, *parts[:-1]) as fd:
            file = open_regular(fd, parts[-1])
            if file is None:
                raise Refused("no-such-file", f"there is no regular file {path[:200]!r}", "Links do not count.")
            try:
                return f"workspace:{'/'.join(parts)}", _sha256(file, path)
            finally:
                os.close(file)
    except OSError as error:
        raise Refused("no-such-file", f"{path[:200]!r} cannot be read: {error.strerror}") from error


def _sha256(file: int, path: str) -> str:
    if os.fstat(file).st_size > MOST_BYTES:
        raise Refused("file-too-large", f"{path[:200]!r} is larger than {MOST_BYTES} bytes")
    whole, read = hashlib.sha256(), 0
    while read <= MOST_BYTES and (part := os.pread(file, _PART, read)):
        whole.update(part)
        read += len(part)
    return whole.hexdigest()
