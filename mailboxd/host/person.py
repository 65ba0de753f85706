"""Who sits at the keyboard, as the operating system says it: the actor of a person's orders."""

from __future__ import annotations

import os
import pwd


def name() -> str:
    """The user that this process runs as; `uid:<number>` for one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid:{os.getuid()}"
