"""Two hosts by the how-to alone: its commands run as they stand there; `ssh beta` is another directory."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.pages import DOCS, assert_page
from tests.e2e.support import SCRIPTED
from tests.hub.farm import free_port

# what the page asks for: a workspace with a daemon on each host
_FIRST = """\
workspace() {{
    mailboxd init $1 --agent $1 >/dev/null
    printf 'agents:\\n  %s: {{workspace: %s, mailbox: "true"}}\\n' $1 $1 >script.yaml
    printf 'openclaw:\\n  command: [{scripted}, --script, %s]\\n  discovery: false\\n' \
        "$PWD/script.yaml" >>$1/.mailboxd/config.yaml
    (cd $1 && exec mailboxd run >daemon.log 2>&1) &
    echo $! >daemon.pid
}}
export XDG_STATE_HOME={place}/alpha/state
mkdir alpha beta
(cd beta && XDG_STATE_HOME={place}/beta/state workspace writer)
cd alpha
workspace main
cd main
"""
_SSH = """#!/bin/sh
shift
cd {place}/beta && XDG_STATE_HOME={place}/beta/state exec sh -c "$*"
"""


@pytest.mark.slow
def test_two_hosts_as_the_page_says(tmp_path: Path) -> None:
    programs, place = tmp_path / "bin", tmp_path / "place"
    programs.mkdir()
    place.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(_SSH.format(place=place))
    ssh.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "ADDRESS": f"127.0.0.1:{free_port()}"}
    first = _FIRST.format(place=place, scripted=SCRIPTED)
    try:
        assert_page(DOCS / "howto" / "two-hosts.md", place, first=first, env=env)
    finally:
        for pid in place.rglob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), 9)
