"""Temporary entrance; the CLI is being written."""

import sys
from pathlib import Path


def main() -> None:
    from mailboxd import config as c
    from mailboxd import log
    from mailboxd.workspace.layout import Workspace

    ws = Workspace.find(Path.cwd(), None)
    conf = c.load(ws.config)
    log.configure("debug" if "-v" in sys.argv else "info", "text", sys.stderr)
    from mailboxd import assemble
    from mailboxd.daemon import signals

    with assemble.daemon(ws, conf) as d, signals(d):
        d.run(until_idle="--until-idle" in sys.argv)
