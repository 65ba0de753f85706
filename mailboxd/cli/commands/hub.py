"""`mailboxd hub`: agents on other hosts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session
from mailboxd.cli.text import say
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_LOCKED, EXIT_NO, ConfigError, UnavailableError

if TYPE_CHECKING:
    from mailboxd.hub.files.membership import Membership

_PORT = 4222
_ALLOWED = "Repeatable; like beta.writer, beta.* or *. Default: nobody."


@click.group("hub", cls=Group)
def hub_command() -> None:
    """Exchange mail with agents on other hosts, through a NATS server.

    Agents of other hosts are called HOST.AGENT. One host founds the hub and invites the others. Each runs one hub
    process for all workspaces of the user; daemons need no change.
    """


def _lists(function: click.decorators.FC) -> click.decorators.FC:
    for name, what in (
        ("decide", "Hosts from which a person may approve, answer and cancel here. Repeatable; or *. Default: none."),
        ("show", "Hosts that may see what waits for a person here, and search. Repeatable; or *. Default: none."),
        ("accept", f"Agents whose work agents here take. {_ALLOWED}"),
        ("send", f"Agents to which agents here may give work. {_ALLOWED}"),
    ):
        function = click.option(f"--{name}", multiple=True, help=what)(function)
    return function


_service_option = click.option(
    "--service", is_flag=True, help="Also install and start it as a service of this user (systemd)."
)


@hub_command.verb(
    "init",
    "hub init alpha --address alpha.example.org",
    "hub init alpha --address 192.0.2.7:4222 --send 'beta.*' --accept 'beta.*'",
    operator=True,
    extra="signing",
)
@click.argument("host")
@click.option(
    "--address", required=True, multiple=True, help="Where other hosts reach the server; repeat it for a cluster."
)
@click.option("--listen", help="Where the server listens. Default: 0.0.0.0 and that port.")
@_lists
@_service_option
def _init(
    session: Session,
    host: str,
    address: tuple[str, ...],
    listen: str | None,
    service: bool,
    **allowed: tuple[str, ...],
) -> None:
    """Found a hub: this host, called HOST, runs its server and invites other hosts.

    Writes the server's configuration: a certificate, each host's permissions, and every message on disk before it is
    acknowledged.
    """
    from mailboxd.formats.keys import PrivateKey
    from mailboxd.hub.files import server
    from mailboxd.hub.files.settings import HubSettings

    membership = _membership()
    places = [one.rpartition(":") if one.rpartition(":")[2].isdecimal() else (one, ":", str(_PORT)) for one in address]
    key = PrivateKey.new()
    named = {
        "host": host,
        "servers": tuple(f"tls://{name}:{port}" for name, _, port in places),
        "founder": str(key.public),
        "listen": listen or f"0.0.0.0:{places[0][2]}",
    }
    try:
        settings = HubSettings.model_validate({**named, **allowed})
    except ValueError as error:
        raise ConfigError(f"the hub cannot be founded: {error}") from error
    files = server.ServerFiles.of(membership)
    server.write_certificate(
        files, [*(name.strip("[]") for name, _, _ in places), "localhost", "127.0.0.1"], session.clock.now()
    )
    membership.found(settings, key, files.certificate.read_text())
    server.configure(membership)
    command = f"nats-server -c {shlex.quote(str(files.config))}"
    lines = [f"wrote {membership.folder}", *_installed(service, files.config)]
    if not service:
        lines += [f"now run the server:  {command}", "and the hub process: mailboxd hub run"]
    lines.append("then invite a host:  mailboxd hub invite NAME")
    session.answer({"host": host, "folder": str(membership.folder), "server": command}, "\n".join(lines))


@hub_command.verb(
    "invite",
    "hub invite beta > beta.token",
    "hub invite beta | ssh beta mailboxd hub join",
    "hub invite beta --pool reviewer --hours 2",
    operator=True,
    extra="signing",
)
@click.argument("host")
@click.option("--pool", "pools", multiple=True, metavar="ROLE", help="A pool it may serve. Repeatable; * = every one.")
@click.option(
    "--hours", type=click.IntRange(1, 8_760), default=24, show_default=True, help="How long the token is good."
)
def _invite(session: Session, host: str, pools: tuple[str, ...], hours: int) -> None:
    """Let the host HOST join: prints a token for `hub join`, good for one host and once.

    Whoever uses the token first is HOST. It replaces an earlier one for HOST; `hub revoke HOST` withdraws it.
    """
    from mailboxd.core.times import plus
    from mailboxd.errors import Refused
    from mailboxd.formats.keys import PrivateKey
    from mailboxd.hub.files import server
    from mailboxd.hub.wire.members import Invitation, Invited
    from mailboxd.hub.wire.names import is_host

    membership = _membership()
    settings = membership.settings()
    if not is_host(host):
        raise click.UsageError("a host's name is 1 to 63 of a-z 0-9 -, neither first nor last a hyphen")
    if host == settings.host:
        raise click.UsageError(f"{host} is this host; give the other one a name of its own")
    if host in membership.members(settings.founder).hosts:
        raise Refused("host-exists", f"the hub has a host {host}", f"Run `mailboxd hub revoke {host}` first.")
    secret, until = PrivateKey.new(), plus(session.clock.now(), hours * 3_600)
    membership.invite(host, Invited(str(secret.public), until, _roles(pools)))
    is_running = server.configure(membership)
    certificate = membership.certificate()
    invitation = Invitation(host, settings.servers, settings.founder, secret.file_text().strip(), certificate)
    session.answer({"host": host, "token": invitation.token(), "until": until}, invitation.token())
    if not is_running:
        say("the server does not run here: start it, so that it knows the token", err=True)


def _roles(pools: tuple[str, ...]) -> tuple[str, ...]:
    from mailboxd.core.vocabulary import is_id

    if wrong := [role for role in pools if role != "*" and not is_id(role)]:
        raise click.UsageError(f"{for_terminal(wrong[0])} is no role: write the name of a pool without pool:, or *")
    return tuple(sorted({role.lower() for role in pools}))


@hub_command.verb("join", "hub join", "hub join --send '*' --accept 'alpha.*' < beta.token", operator=True, extra="hub")
@_lists
@_service_option
def _join(session: Session, service: bool, **allowed: tuple[str, ...]) -> None:
    """Join a hub with the token of `hub invite`, from standard input: a secret does not belong in a command.

    Makes this host's key and asks the founder to put it onto the list. While the founder's hub process does not run,
    `mailboxd hub run` here asks until it does.
    """
    import asyncio
    import logging

    from mailboxd.cli.operator_actions import read_text
    from mailboxd.errors import Refused
    from mailboxd.hub.process.joining import ask_in
    from mailboxd.hub.wire.members import MOST_TOKEN, Invitation

    membership = _membership()
    is_typed = sys.stdin.isatty()
    token = click.prompt("token", hide_input=True) if is_typed else read_text("-", MOST_TOKEN)
    invitation = Invitation.parse(token)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each TLS connection that ends
    settings = membership.join(invitation, allowed)
    try:
        why = asyncio.run(ask_in(membership, invitation))
    except Refused:
        membership.leave()
        raise
    where = f"{settings.host} in the hub at {', '.join(settings.servers)}"
    lines = [
        f"this host is not let in yet as {where}: {why}" if why else f"this host is {where}",
        f"whom it gives work to and takes it from: {membership.folder / 'hub.yaml'}",
        *(_installed(service) or ["now run the hub process: mailboxd hub run"]),
    ]
    facts = {"host": settings.host, "servers": settings.servers, "folder": str(membership.folder), "waits": why}
    session.answer(facts, "\n".join(lines))


@hub_command.verb(
    "pools", "hub pools", "hub pools beta reviewer translator", "hub pools beta --none", operator=True, extra="signing"
)
@click.argument("host", required=False)
@click.argument("roles", nargs=-1, metavar="[ROLE]...")
@click.option("--none", "no_pool", is_flag=True, help="It may serve no pool.")
def _pools(session: Session, host: str | None, roles: tuple[str, ...], no_pool: bool) -> None:
    """Show which pools each host may serve or, on the host that founded the hub, say it: ROLE or * for every one."""
    from mailboxd.hub.files import server

    membership = _membership()
    settings = membership.settings()
    members = membership.members(settings.founder)
    if host is not None and members.key(host) is None:
        raise UnavailableError(f"the hub has no host {for_terminal(host)}")
    if roles or no_pool:
        if no_pool and roles:
            raise click.UsageError("name roles, or --none")
        members = membership.change(host or "", members.key(host or ""), _roles(roles))
        server.configure(membership)
    found = {name: members.pools(name) for name in ([host] if host else sorted(members.hosts))}
    session.answer(
        {"pools": found}, "\n".join(f"{name}: {', '.join(serves) or 'none'}" for name, serves in found.items())
    )


@hub_command.verb("revoke", "hub revoke beta", "hub revoke beta --export beta-mail", operator=True, extra="signing")
@click.argument("host")
@click.option(
    "--export",
    type=click.Path(path_type=Path, file_okay=False),
    help="A directory to keep what is removed.",
)
def _revoke(session: Session, host: str, export: Path | None) -> None:
    """Remove the host HOST, or withdraw its invitation: its key counts nowhere any more, and it is cut off at once.

    What the server has from it and for it is named and removed; --export keeps it as the server has it, sealed for its
    receivers. Mail for it fails at its senders.
    """
    from mailboxd.formats.mailbox.files import world_errors
    from mailboxd.hub.client.report import revoked
    from mailboxd.hub.files import server

    membership = _membership()
    settings = membership.settings()
    if host not in membership.members(settings.founder).hosts:
        if host not in membership.invited():
            raise UnavailableError(f"the hub has no host {for_terminal(host)}")
        membership.invite(host, None)
        server.configure(membership)
        session.answer({"withdrawn": host}, f"withdrew the invitation of {host}")
        return
    if host == settings.host:
        raise click.UsageError("this host founded the hub and cannot be revoked; `hub leave` ends its part")
    if export:
        with world_errors(f"write to {export}"):
            export.mkdir(mode=0o700, parents=True, exist_ok=True)
    removed: Mapping[str, Mapping[str, int]] | None = None
    try:
        removed = revoked(membership, host, str(export.absolute()) if export else "")
    except UnavailableError:
        if export:
            raise
        server.revoke(membership, host)
    lines = [f"revoked {host}"]
    if removed is None:
        lines.append("what the server has from it and for it is removed once the hub process runs: mailboxd hub run")
    for kind, others in sorted((removed or {}).items()):
        counts = ", ".join(f"{count} {other}".rstrip() for other, count in sorted(others.items()))
        lines.append(f"  removed {kind.replace('-', ' ')} it: {for_terminal(counts)}")
    if export:
        lines.append(f"exported to {export}")
    session.answer({"revoked": host, "removed": removed}, "\n".join(lines))


@hub_command.verb("leave", "hub leave", operator=True, extra="signing")
def _leave(session: Session) -> None:
    """Leave the hub: removes this host's key and settings. Mail that is under way stays in the spools.

    Its hub process ends by itself within seconds. The founder still lists the host until `mailboxd hub revoke` there;
    to come back, it needs a new token.
    """
    from mailboxd.operate.setup.hub_service import HubServices

    membership = _membership()
    membership.settings()
    host = membership.settings().host
    gone = [*HubServices(os.environ).uninstall(), *membership.leave()]
    lines = [f"removed {path}" for path in gone]
    lines.append(f"on the host that founded the hub: mailboxd hub revoke {host}")
    session.answer({"removed": [str(path) for path in gone]}, "\n".join(lines))


@hub_command.verb("status", "hub status", "hub status --json", exits={EXIT_NO: "nothing can be sent or received"})
def _status(session: Session) -> int | None:
    """Show the hub process, the hosts and what waits for them."""
    from mailboxd.hub.client.report import hub_report

    report = hub_report(_membership())
    session.answer(report.facts, "\n".join(report.lines()))
    return EXIT_NO if report.trouble else None


@hub_command.verb(
    "run", "hub run", "hub run --log-format json", exits={EXIT_LOCKED: "another hub process runs"}, extra="hub"
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: text, or JSON with --json.")
@click.option("-v", "--verbose", is_flag=True, help="Also log what happens automatically.")
@click.option("--take-over", is_flag=True, help="Go on as this host although a copy of it did; stop that one first.")
def _run(session: Session, log_format: str | None, verbose: bool, take_over: bool) -> None:
    """Run the hub process: it carries the mail of all workspaces of this user. SIGTERM and SIGINT stop it."""
    import asyncio
    import logging

    from mailboxd.host import log

    membership = _membership()
    if take_over:
        membership.stop(None)
    if membership.settings().listen:
        from mailboxd.hub.files import server

        if server.ServerFiles.of(membership).config.exists():
            server.configure(membership)  # an earlier version wrote other permissions
    form = log_format or ("json" if session.as_json else "text")
    log.configure("debug" if verbose else "info", form, sys.stderr, folds=True)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each TLS connection that ends
    from mailboxd.hub.process.run import serve

    asyncio.run(serve(membership, os.environ))


def _installed(wanted: bool, server: Path | None = None) -> list[str]:
    """Install the services, if that is wanted; which were started."""
    from mailboxd.operate.setup.hub_service import HubServices

    return [f"started {path.name}" for path in HubServices(os.environ, server).install()] if wanted else []


def _membership() -> Membership:
    from mailboxd.hub.files.membership import Membership

    return Membership.of(os.environ)
