"""`mailboxd connect keys`: Ed25519 keys for signing messages, and the public keys trusted in this workspace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.key_option import Key
from mailboxd.cli.session import Id, Session
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.vocabulary import OPERATORS, same_agent
from mailboxd.errors import EXIT_NO, UnavailableError
from mailboxd.formats.keys import UNSIGNED, YES, Keyring, PrivateKey, PublicKey, Trust, signed
from mailboxd.formats.mailbox.files import directory, replace, world_errors
from mailboxd.formats.protocol.front_matter import MAX_FILE
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.host import pip_extras

_NOWHERE = Path("/")


@click.group("keys", cls=Group)
def keys_command() -> None:
    """Manage the keys of this workspace's agent and of the operator, and which public keys are trusted here.

    A daemon signs its messages if its agent has a key. Keys are stored in the user's state directory, never in a
    workspace.
    """
    pip_extras.require("signing")


@keys_command.verb("create", "connect keys create", "connect keys create --operator", operator=True)
@click.option("--operator", is_flag=True, help="Create the operator's key, for approvals and commands sent as files.")
def _create(session: Session, operator: bool) -> None:
    """Create a private key, readable only by its owner, and print its public key.

    The operator's key is trusted in this workspace immediately; for other workspaces and peers, use `keys trust`. A
    key can also be created without a workspace, for example on a machine that no agent can reach.
    """
    keyring = _operators_keyring(session) if operator else _keyring(session)
    key = keyring.create(keyring.operator_file if operator else keyring.own_file)
    if operator and keyring.workspace != _NOWHERE:
        keyring.trust("operator", key.public, session.clock.now())
    name = "operator" if operator else session.config().agent
    facts = {"name": name, "fingerprint": key.public.fingerprint, "key": str(key.public)}
    session.answer(facts, f"{name}  {key.public.fingerprint}\n{key.public}")


@keys_command.verb("list", "connect keys list", "connect keys list --json")
def _list(session: Session) -> None:
    """List the keys here and the trusted public keys. Private keys are never shown."""
    keyring = _keyring(session)
    own = {
        "operator": keyring.private(keyring.operator_file),
        session.config().agent: keyring.private(keyring.own_file),
    }
    trusted = keyring.trusted()
    known = {str(row.public) for row in trusted}
    rows = [_row(name, "own", key.public, str(key.public) in known) for name, key in own.items() if key is not None]
    rows += [_row(row.name, "trusted", row.public, True) for row in trusted]
    lines = [for_terminal(f"{row['kind']:8}{row['name']:20}{row['fingerprint']}  {row['key']}") for row in rows]
    session.show(rows, lines, "no keys; `mailboxd connect keys create` creates one")


@keys_command.verb(
    "trust",
    "connect keys trust writer ed25519:pk3_V1qKMvUhHNAoIYaWxP9DVmvThUGA6lJWjUZmNzQ",
    "connect keys trust operator ~/operator.pub",
    operator=True,
)
@click.argument("name", type=Id())
@click.argument("public", metavar="FILE|KEY", type=Key())
def _trust(session: Session, name: str, public: PublicKey) -> None:
    """Trust a public key as that of agent NAME, or of `operator`. A name may have several keys.

    The operator's key can approve side effects here.
    """
    keyring = _keyring(session)
    new = keyring.trust(name, public, session.clock.now())
    facts = {"name": name, "fingerprint": public.fingerprint, "new": new}
    session.answer(facts, f"{public.fingerprint} is {'now' if new else 'already'} trusted as {name}")


@keys_command.verb("untrust", "connect keys untrust writer", operator=True)
@click.argument("name", type=Id())
def _untrust(session: Session, name: str) -> None:
    """Stop trusting all keys of NAME. A running daemon notices immediately."""
    gone = _keyring(session).untrust(name)
    facts = {"name": name, "fingerprints": [row.public.fingerprint for row in gone]}
    session.answer(facts, "\n".join(f"{row.public.fingerprint} is no longer trusted as {row.name}" for row in gone))


@keys_command.verb("sign", "connect keys sign approval.md", "connect keys sign --stdout approval.md", operator=True)
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--stdout", is_flag=True, help="Print the signed message instead of changing the file.")
def _sign(session: Session, file: Path, stdout: bool) -> None:
    """Sign a message file with its sender's key: the operator's or this workspace's agent's."""
    raw = _read(file)
    key = _key_of(session, parse_message(raw, file.name).message.from_)
    done = signed(raw, key)
    if stdout:
        session.write(done.decode())
        return
    _replace(file, done)
    facts = {"file": str(file), "fingerprint": key.public.fingerprint}
    session.answer(facts, f"{file}: signed with {key.public.fingerprint}")


@keys_command.verb(
    "verify",
    "connect keys verify mailbox/archive/2026-11-21/reply.md",
    exits={EXIT_NO: "unsigned, or the signature is not valid here"},
)
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
def _verify(session: Session, file: Path) -> int | None:
    """Check whether this workspace would accept the signature of a message file."""
    keyring = _keyring(session)
    raw = _read(file)
    message = parse_message(raw, file.name).message
    proof = Trust(keyring, session.config().agent).verify(raw, message)
    problem = "not signed" if proof.verified == UNSIGNED else proof.problem
    facts = {"verified": proof.verified, "from": message.from_, "fingerprint": proof.signer, "problem": problem}
    text = f"signed by {message.from_}, with {proof.signer}" if proof.verified == YES else problem
    session.answer(facts, f"{file}: {text}")
    return None if proof.verified == YES else EXIT_NO


def _keyring(session: Session) -> Keyring:
    return Keyring.of(session.workspace().root, os.environ)


def _operators_keyring(session: Session) -> Keyring:
    """The operator's key works without a workspace."""
    try:
        root = session.workspace().root
    except UnavailableError:
        if session.path is not None:
            raise
        root = _NOWHERE
    return Keyring.of(root, os.environ)


def _row(name: str, kind: str, key: PublicKey, trusted: bool) -> dict[str, Any]:
    return {"name": name, "kind": kind, "fingerprint": key.fingerprint, "key": str(key), "trusted": trusted}


def _key_of(session: Session, sender: str) -> PrivateKey:
    if sender.lower() in OPERATORS:
        keyring = _operators_keyring(session)
        file, remedy = keyring.operator_file, "mailboxd connect keys create --operator"
    elif same_agent(sender, session.config().agent):
        keyring = _keyring(session)
        file, remedy = keyring.own_file, "mailboxd connect keys create"
    else:
        raise UnavailableError(f"the message is from {sender}, whose key is not here; sign it where it is")
    key = keyring.private(file)
    if key is None:
        raise UnavailableError(f"there is no key for {sender}; run `{remedy}`")
    return key


def _read(file: Path) -> bytes:
    with world_errors(f"read {file}"), file.open("rb") as opened:
        return opened.read(MAX_FILE + 1)


def _replace(file: Path, raw: bytes) -> None:
    with world_errors(f"write {file}"), directory(file.resolve().parent) as folder:
        replace(folder, file.resolve().name, raw, lambda: True)
