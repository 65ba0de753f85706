"""Lobster as the gate before an effect: the workflow, the command lines, what it answers. All pure.

Lobster starts the effect step at most once for a token, and promises nothing else: its tokens are unsigned, the file
is read again when it is resumed, and a step lives on when Lobster is killed. So the step is our runner, which asks the
database, and nothing is ever concluded from Lobster's word alone.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mailboxd.messages.templates import Templates

_PLAIN = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Lobster's answer: `needs_approval` with the `id` to resume it by, `ok`, `cancelled`, or none with an `error`."""

    status: str
    id: str = ""
    error: str = ""


def workflow(approval: str, preview: Path, effect: Sequence[str]) -> bytes | None:
    """The workflow before one effect; None where a path has what Lobster or YAML would not leave alone.

    From the packaged template only: one in the workspace could be an agent's.
    """
    values = {"approval": approval, "preview": shlex.join(["cat", "--", str(preview)]), "effect": shlex.join(effect)}
    if any("${" in value or not value.isprintable() for value in values.values()):
        return None
    quoted = {name: value.replace("'", "''") for name, value in values.items()}
    text = Templates(None).render("approval-recovery.lobster.yaml", **quoted)
    kept = (line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return "".join(kept).encode()


def run_words(program: Sequence[str], workflow_file: Path) -> tuple[str, ...]:
    return (*program, "run", "--mode", "tool", "--file", str(workflow_file))


def resume_words(program: Sequence[str], gate: str, *, approve: bool) -> tuple[str, ...]:
    """By the id of the gate and not by its token, which everybody would see in the list of processes."""
    return (*program, "resume", "--id", gate, "--approve", "yes" if approve else "no")


def environment(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """All that Lobster and the shells of its steps are given, before what the runner needs."""
    return plain(environ) | {"LOBSTER_STATE_DIR": str(state)}


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """What the runner itself needs of an environment; its effect is given another one."""
    return {name: environ[name] for name in _PLAIN if environ.get(name)}


def read(stdout: bytes) -> Envelope:
    """The one JSON document on its standard output; anything else is an error."""
    try:
        said = json.loads(stdout)
        if said["protocolVersion"] != 1:
            return Envelope("", error=f"its protocol is version {said['protocolVersion']!r}, not 1")
        if said["ok"] is not True:
            return Envelope("", error=str(said["error"]["message"]))
        if said["status"] != "needs_approval":
            return Envelope(str(said["status"]))
        gate = said["requiresApproval"]["approvalId"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Envelope("", error="it gave no answer that can be read")
    if not isinstance(gate, str) or not _ID.fullmatch(gate):
        return Envelope("", error="it gave its gate an id that is none")
    return Envelope("needs_approval", id=gate)
