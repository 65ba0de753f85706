"""The configuration of the hub's server: written by `mailboxd hub init`, and again with every host that comes or goes.

Each host is a user with its NKey, and may publish under its own name only and read what is for it only. What the
server acknowledges is on its disk (`sync_interval: always`).
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from mailboxd.errors import Refused
from mailboxd.host.system import system
from mailboxd.hub.files.membership import SERVER, Membership
from mailboxd.hub.wire.members import Members, nkey
from mailboxd.hub.wire.pools import rights
from mailboxd.hub.wire.subjects import (
    CARDS,
    CLAIMS,
    FILES,
    JOBS,
    POOLS,
    STREAM,
    files_of,
    incoming,
    mail_subject,
    receipt_subject,
    talk,
)
from mailboxd.mailbox.files import directory, replace, world_errors

CONFIG, CLUSTER = "nats.conf", "cluster.conf"
MAX_PAYLOAD = 2 << 20
"""Bytes; the largest message is 1 MiB."""
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


def permissions(host: str, *, founder: bool) -> dict[str, dict[str, list[str]]]:
    """The rights of a host: it may publish and subscribe to these subjects and to no others."""
    api = "$JS.API"
    publish = [
        str(mail_subject("*", host)),
        str(receipt_subject("*", host)),
        f"{CARDS}.{host}",
        talk("*", host),
        f"{api}.STREAM.INFO.{STREAM}",
        f"{api}.CONSUMER.CREATE.{STREAM}.{host}.{incoming(host)}",
        f"{api}.CONSUMER.INFO.{STREAM}.{host}",
        f"{api}.CONSUMER.MSG.NEXT.{STREAM}.{host}",
        f"$JS.ACK.{STREAM}.{host}.>",
        *rights(host, ("*",)),
        files_of(sender=host),
        *(f"{api}.DIRECT.GET.{FILES}.{files_of(to)}" for to in (host, POOLS)),
    ]
    if founder:
        streams = (STREAM, JOBS, CLAIMS, FILES)
        publish += [f"{api}.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE") for stream in streams]
        publish += [f"{api}.STREAM.INFO.{stream}" for stream in (FILES,)]
    heard = [f"_INBOX.{host}.>", f"{CARDS}.*", talk(host, "*")]
    return {"publish": {"allow": publish}, "subscribe": {"allow": heard}}


def server_config(files: ServerFiles, listen: str, members: Members, founder: str) -> str:
    """The whole file: JSON is valid in it. A cluster is described in cluster.conf beside it."""
    users = []
    for host in sorted(members.hosts):
        key = members.key(host)
        if key is not None:
            users.append({"nkey": nkey(key), "permissions": permissions(host, founder=str(key) == founder)})
    lines = [
        "# Written by mailboxd, which replaces it when a host comes or goes.",
        f"listen: {json.dumps(listen)}",
        f"pid_file: {json.dumps(str(files.pid_file))}",
        f"max_payload: {MAX_PAYLOAD}",
        "jetstream {",
        f"  store_dir: {json.dumps(str(files.store))}",
        "  sync_interval: always",
        "}",
        "tls {",
        f"  cert_file: {json.dumps(str(files.certificate))}",
        f"  key_file: {json.dumps(str(files.key))}",
        "}",
        f"authorization {{ users: {json.dumps(users, indent=1)} }}",
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
    text = server_config(files, settings.listen, members, settings.founder)
    with world_errors(f"write {files.config}"), directory(files.folder) as folder:
        replace(folder, CONFIG, text.encode(), lambda: True)
    return files.reload()


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
