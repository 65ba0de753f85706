"""System calls beyond POSIX: Linux's (`linux`), or equivalents for all systems (`portable`).

MAILBOXD_PORTABLE=1 in the environment chooses the portable one on Linux too: so it is tested (`make portable`).
"""

from __future__ import annotations

import os
import sys

IS_LINUX = sys.platform == "linux" and os.environ.get("MAILBOXD_PORTABLE") != "1"

if IS_LINUX:
    from mailboxd.host import linux as system
else:
    from mailboxd.host import portable as system  # type: ignore[no-redef]  # the same functions

__all__ = ["IS_LINUX", "system"]
