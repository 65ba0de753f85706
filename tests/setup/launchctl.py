#!/usr/bin/env python3
"""Stands in for macOS's launchctl: what it does with one user's agents, and how it says so.

As people report it of macOS 26: `bootout` returns before the job has ended, and `bootstrap` fails with 5 until it has.
A job is a real process; what launchd knows lies beside this program.
"""

import json
import os
import plistlib
import re
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(__file__).with_name("launchd")
TARGET = r"gui/\d+/[A-Za-z0-9.-]+"
SHAPES = {
    "print": rf"gui/\d+|{TARGET}", "enable": TARGET, "bootstrap": r"gui/\d+ /\S.*\.plist", "bootout": TARGET,
    "kickstart": TARGET,
}  # fmt: skip
"""What may follow each verb, as in launchctl(1): a domain, a service in it, the path of a property list."""


def main(verb: str, target: str = "", path: str = "") -> int:
    if not re.fullmatch(SHAPES.get(verb, "no such verb"), f"{target} {path}".strip()):
        print(f"Unrecognized subcommand or arguments: {verb} {target} {path}", file=sys.stderr)
        return 64
    STATE.mkdir(exist_ok=True)
    domain = f"gui/{os.getuid()}"
    if verb == "print" and target == domain:
        return 0
    if verb == "enable":
        return 0
    label = (
        plistlib.loads(Path(path).read_bytes())["Label"] if verb == "bootstrap" else target.removeprefix(f"{domain}/")
    )
    job = STATE / label
    known = json.loads(job.read_text()) if job.exists() else None
    if known is not None and known["ending"] and not is_alive(known["pid"]):
        job.unlink()
        known = None
    if verb == "bootstrap":
        if known is not None:
            print("Bootstrap failed: 5: Input/output error", file=sys.stderr)
            return 5
        begin(job, path)
        return 0
    if known is None:
        print(f'Could not find service "{label}" in domain for user {domain}', file=sys.stderr)
        return 113
    if verb == "print":
        state = f"\tstate = running\n\tpid = {known['pid']}" if is_alive(known["pid"]) else "\tstate = not running"
        ended = job.with_suffix(".status")
        status = ended.read_text().strip() if ended.exists() else "(never exited)"
        print(f"{target} = {{\n{state}\n\tlast exit code = {status}\n}}")
    elif verb == "kickstart":
        begin(job, known["path"])
    elif verb == "bootout":
        job.write_text(json.dumps(known | {"ending": True}))
        if is_alive(known["pid"]):
            os.kill(known["pid"], signal.SIGTERM)
    return 0


def begin(job: Path, path: str) -> None:
    agent = plistlib.loads(Path(path).read_bytes())
    status = job.with_suffix(".status")
    status.unlink(missing_ok=True)
    with Path(agent["StandardErrorPath"]).open("ab") as log:
        started = subprocess.Popen(
            # the shell is what launchd is: it learns how the job ended, and passes the signal on
            ["sh", "-c", 'trap "kill -TERM \\$pid" TERM; "$@" & pid=$!; wait $pid; s=$?; wait $pid; echo $s >"$0"',
             str(status), *agent["ProgramArguments"]],
            cwd=agent["WorkingDirectory"], env={"HOME": os.environ["HOME"], **agent["EnvironmentVariables"]},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    job.write_text(json.dumps({"pid": started.pid, "path": path, "ending": False}))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
