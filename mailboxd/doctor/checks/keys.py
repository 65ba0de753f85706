"""Whether messages can be signed and signatures be checked as the configuration wants it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from mailboxd.doctor.facts import Facts, Keys
from mailboxd.doctor.finding import Finding, error, note, ok, warning

_OPERATOR = "operator"


def keys(facts: Facts) -> Iterator[Finding]:
    found = facts.keys
    if found is None:
        return
    findings = [*_usable(found), *_missing(found), *_strangers(found, facts)]
    yield from findings
    if not findings and (found.own or found.trusted):
        whose = f"the keys of {', '.join(found.trusted)} are trusted" if found.trusted else "nobody's key is trusted"
        signs = "what this daemon sends is signed" if found.own else "what this daemon sends is not signed"
        yield ok("keys", f"{signs}, {whose}")


def _usable(found: Keys) -> Iterator[Finding]:
    needed = bool(found.required or found.own or found.trusted)
    if needed and not found.extra:
        text = "signatures are wanted, and nothing is installed that makes or checks them"
        yield error("keys-extra", text, "pip install 'mailboxd[signing]'")
    for problem in found.problems:
        yield error("keys-unusable", problem, f"ls -la {shlex.quote(found.folder)}")
    if found.mode & 0o022:
        text = f"{found.folder} can be written by other users (mode {found.mode:04o}): they could exchange keys"
        yield error("keys-folder", text, f"chmod 700 {shlex.quote(found.folder)}")


def _missing(found: Keys) -> Iterator[Finding]:
    for name in found.required:
        if name not in found.trusted:
            text = f"signing.require names {name}, and no key of {name} is trusted here: all its messages are rejected"
            yield error("keys-required", text, f"mailboxd keys trust {name} FILE_OR_KEY")
    if not found.own and found.trusted:
        text = "this agent has no key of its own: what its daemon sends is not signed"
        yield note("keys-own", text, "mailboxd keys create")


def _strangers(found: Keys, facts: Facts) -> Iterator[Finding]:
    """Keys of agents that there are not: left over, or a name that was mistyped."""
    if facts.peers is None:
        return
    there = {peer.id.lower() for peer in facts.peers} | {_OPERATOR}
    for name in sorted(set(found.trusted) - there):
        text = f"a key of {name} is trusted here, and OpenClaw has no agent {name}"
        yield warning("keys-unknown", text, f"mailboxd keys untrust {name}")
