"""What another agent says of itself: the beginning of the IDENTITY.md in its workspace, read with distrust."""

from __future__ import annotations

import os
from pathlib import Path

from mailboxd.messages.identity import theme_of
from mailboxd.workspace.files import directory, open_regular, read_up_to

_IDENTITY_BYTES = 8192


def said_identity(workspace: str) -> str:
    """What the beginning of the IDENTITY.md there says; empty when it cannot be read. The agent itself may write it."""
    if not workspace.startswith("/"):
        return ""
    try:
        with directory(Path(workspace)) as folder:
            file = open_regular(folder, "IDENTITY.md")
            if file is None:
                return ""
            try:
                return theme_of(read_up_to(file, _IDENTITY_BYTES).decode("utf-8", "replace"))
            finally:
                os.close(file)
    except OSError:
        return ""
