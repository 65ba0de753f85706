"""Runs `mailboxd` with the words after the first, on a wall clock that is off by the seconds in the file it names.

The file is read at every look at the clock, so whoever writes it sets the clock. The steady clock goes on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main() -> None:
    file, honest = Path(sys.argv[1]), time.time
    time.time = lambda: honest() + float(file.read_text() or 0)
    from mailboxd.cli import main as program

    sys.argv = ["mailboxd", *sys.argv[2:]]
    program()


if __name__ == "__main__":
    main()
