"""The configuration of the hub's server: written by `mailboxd hub init`, and again with every host that comes or goes.

Each host is a user with its NKey, and may publish under its own name only and read what is for it only; who has an
invitation may ask to be let in. What the server acknowledges is on its disk (`sync_interval: always`).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from mailboxd.errors import Refused
from mailboxd.formats.keys import PrivateKey, PublicKey
from mailboxd.formats.mailbox.files import directory, replace, world_errors
from mailboxd.host.system import system
from mailboxd.hub.files.membership import SERVER, Membership
from mailboxd.hub.wire.members import Invited, Members, nkey
from mailboxd.hub.wire.pools import rights as pool_rights
from mailboxd.hub.wire.subjects import (
    API,
    CARDS,
    CLAIM_SUBJECTS,
    CLAIMS,
    FILE_SUBJECTS,
    FILES,
    JOB_SUBJECTS,
    JOBS,
    OLD_CARDS,
    POOLS,
    STREAM,
    SUBJECTS,
    asked,
    copy_of,
    files_of,
    guest,
    inbox_of,
    joining,
    mail_subject,
    receipt_subject,
)

CONFIG, CLUSTER = "nats.conf", "cluster.conf"
MAX_PAYLOAD = 2 << 20
"""Bytes; the largest message is 1 MiB."""
_MOST_STORED = 1 << 60
"""Bytes: each stream has a limit of its own. By default the server would refuse them on a small disk."""
_YEARS = 20


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The server's directory."""

    folder: Path

    @classmethod
    def of(cls, membership: Membership) -> ServerFiles:
        return cls(membership.folder / SERVER)

    @property
    def config(self) -> Path:
        return self.folder / CONFIG

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def pid_file(self) -> Path:
        return self.folder / "nats.pid"

    def reload(self) -> bool:
        """Have a running server read its configuration again; returns whether one runs here."""
        with suppress(OSError, ValueError):
            pid = int(self.pid_file.read_text())
            if b"nats-server" in system.command_line(pid):
                os.kill(pid, signal.SIGHUP)
                return True
        return False


# The server checks what a host publishes to, and not where it wants the answer: by that, a host could have the server
# itself purge and delete streams. So the streams are in an account of their own, of which hosts see these parts only.
_STORE, _HOSTS = "STORE", "HOSTS"
_STORED = (*SUBJECTS, FILE_SUBJECTS, JOB_SUBJECTS, CLAIM_SUBJECTS, "$JS.ACK.>")
_ASKED = (
    *(f"STREAM.INFO.{stream}" for stream in (STREAM, JOBS, CLAIMS)),
    *(f"CONSUMER.{verb}.{STREAM}.*" for verb in ("INFO", "MSG.NEXT")),
    f"STREAM.MSG.GET.{CLAIMS}",
    *(f"DIRECT.GET.{stream}.>" for stream in (FILES, JOBS)),
)


def founders_api(founder: PrivateKey) -> str:
    """Below it the whole API of the streams can be reached. Nobody else knows it: the server obeys its own answers."""
    return f"mb.founder.{hashlib.sha256(b'mailboxd streams' + founder.seed).hexdigest()[:32]}"


def permissions(host: str, pools: tuple[str, ...] = (), founders: str = "") -> dict[str, Any]:
    """The rights of a host: it may publish and subscribe to these subjects and to no others.

    `founders` is the founder's `founders_api`; empty for every other host.
    """
    publish = [
        str(mail_subject("*", host)),
        str(receipt_subject("*", host)),
        f"{CARDS}.{host}",
        asked("*", host),
        f"{OLD_CARDS}.{host}",
        copy_of(host),
        f"{API}.STREAM.INFO.{STREAM}",
        f"{API}.CONSUMER.INFO.{STREAM}.{host}",
        f"{API}.CONSUMER.MSG.NEXT.{STREAM}.{host}",
        f"$JS.ACK.{STREAM}.{host}.>",
        *pool_rights(host, pools),
        files_of(sender=host),
        *(f"{API}.DIRECT.GET.{FILES}.{files_of(to)}" for to in (host, POOLS)),
    ]
    heard = [f"{inbox_of(host)}.>", f"{CARDS}.*", f"{OLD_CARDS}.*", asked(host, "*"), copy_of(host)]
    if founders:
        publish.append(f"{founders}.>")
        heard.append(joining())
    return _rights(publish, heard)


def _rights(publish: list[str], heard: list[str]) -> dict[str, Any]:
    answers = {"max": 1, "expires": "1m"}
    return {"publish": {"allow": publish}, "subscribe": {"allow": heard}, "allow_responses": answers}


def _accounts(members: Members, founder: PrivateKey, invited: Mapping[str, Invited]) -> dict[str, Any]:
    founders, users = founders_api(founder), []
    for host in sorted(members.hosts):
        if (key := members.key(host)) is not None:
            own = founders if key == founder.public else ""
            users.append({"nkey": nkey(key), "permissions": permissions(host, members.pools(host), own)})
    for host, one in sorted(invited.items()):
        rights = _rights([joining(host)], [f"{inbox_of(guest(host))}.>"])
        users.append({"nkey": nkey(PublicKey.parse(one.key)), "permissions": rights})
    seen = {**{subject: subject for subject in _STORED}, **{f"$JS.API.{one}": f"{API}.{one}" for one in _ASKED}}
    seen["$JS.API.>"] = f"{founders}.>"
    exports = [{"service": one, "response_type": "stream", "accounts": [_HOSTS]} for one in seen]
    imports = [{"service": {"account": _STORE, "subject": one}, "to": to} for one, to in seen.items()]
    return {_STORE: {"jetstream": "enabled", "exports": exports}, _HOSTS: {"users": users, "imports": imports}}


def server_config(
    files: ServerFiles, listen: str, members: Members, founder: PrivateKey, invited: Mapping[str, Invited]
) -> str:
    """The whole file: JSON is valid in it. A cluster is described in cluster.conf beside it."""
    lines = [
        "# Written by mailboxd, which replaces it when a host comes or goes.",
        f"listen: {json.dumps(listen)}",
        f"pid_file: {json.dumps(str(files.pid_file))}",
        f"max_payload: {MAX_PAYLOAD}",
        "jetstream {",
        f"  store_dir: {json.dumps(str(files.store))}",
        "  sync_interval: always",
        f"  max_file_store: {_MOST_STORED}",
        "}",
        "tls {",
        f"  cert_file: {json.dumps(str(files.certificate))}",
        f"  key_file: {json.dumps(str(files.key))}",
        "}",
        f"accounts: {json.dumps(_accounts(members, founder, invited), indent=1)}",
        *(["include cluster.conf"] if (files.folder / CLUSTER).exists() else []),
    ]
    return "\n".join(lines) + "\n"


def configure(membership: Membership) -> bool:
    """Write the configuration of the server on this host, and have it read it; whether one runs here.

    Raises Refused if there is none, ConfigError, WorldError.
    """
    settings, files = membership.settings(), ServerFiles.of(membership)
    if not settings.listen:
        raise Refused("no-server", f"no server runs on {settings.host}: its hub.yaml has no `listen`")
    members = membership.members(settings.founder)
    text = server_config(files, settings.listen, members, membership.key(), membership.invited())
    with world_errors(f"write {files.config}"), directory(files.folder) as folder:
        replace(folder, CONFIG, text.encode(), lambda: True)
    return files.reload()


def revoke(membership: Membership, host: str) -> Members:
    """Take a host off the list and, at the server, its rights: that closes its connections. Raises as `configure`."""
    members = membership.change(host, None)
    membership.invite(host, None)
    configure(membership)
    return members


def write_certificate(files: ServerFiles, names: list[str], now: str) -> None:
    """Create a key and a certificate that names the server's addresses, unless they are there. Raises WorldError."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    if files.certificate.exists() and files.key.exists():
        return
    addresses: list[x509.GeneralName] = []
    for name in names:
        try:
            addresses.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            addresses.append(x509.DNSName(name))
    key, at = ec.generate_private_key(ec.SECP256R1()), datetime.fromisoformat(now)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mailboxd hub")])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(days=1))
        .not_valid_after(at + timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with world_errors(f"write to {files.folder}"):
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with directory(files.folder) as folder:
            for path, raw in ((files.key, secret), (files.certificate, made.public_bytes(pem))):
                replace(folder, path.name, raw, lambda: True)
