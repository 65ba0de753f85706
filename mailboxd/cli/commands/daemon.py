"""`mailboxd run` and `mailboxd connect service`: the daemon in the foreground, and as a service of the user."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.operate.setup.service import Service, ServiceState


@verb(
    "run",
    "run",
    "run --until-idle",
    "run --all",
    "run --log-format json --log-level debug",
    exits={
        EXIT_CONFIG: "a network file system, or the database was modified or is older than the files",
    },
)
@click.option("--all", "everything", is_flag=True, help="Serve all of your workspaces, with half of the memory.")
@click.option("--until-idle", is_flag=True, help="Exit when no work is left.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: `log.format` in the configuration.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Default: `log.level` in the configuration.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also log what happens automatically (--log-level debug).")
@click.option(
    "--allow-network-fs",
    is_flag=True,
    help="Allow NFS, SMB, 9p, FUSE ..., by polling. Safe only if no other machine uses the workspace.",
)
def run_command(
    session: Session, everything: bool, until_idle: bool, log_format: str | None, log_level: str | None, verbose: bool,
    allow_network_fs: bool,
) -> None:  # fmt: skip
    """Run the daemon: accept messages, schedule tasks, call agents and send replies.

    One daemon per workspace. Logs go to standard error (--json means --log-format json): what begins, ends or waits for
    a person; what stops, is rejected or fails as warnings. SIGTERM and SIGINT wait for
    running turns; a second signal stops immediately. Nothing is lost either way.

    While the disk is full or another process locks the database, the daemon pauses, reports it in `mailboxd status`,
    and resumes. It refuses to start on a database that is missing, damaged, modified, or older than archive/ and
    outbox/.

    With --all, one process forks a daemon for each of your workspaces, and starts it again when it fails, as systemd
    would; log lines name the agent. SIGTERM to a daemon's pid (`mailboxd fleet --json`) stops it alone, and to the
    process all. SIGHUP to the process starts what does not run. A new workspace is served within some seconds.
    """
    import sys

    from mailboxd.daemon import supervise
    from mailboxd.formats import config
    from mailboxd.host import log

    form, level = log_format or ("json" if session.as_json else None), "debug" if verbose else log_level
    if everything:
        if until_idle or session.path is not None:
            raise click.UsageError("--all serves every workspace until it is stopped: without --until-idle and -w")
        from mailboxd.daemon import prefork

        log.configure(level or "info", form or "text", sys.stderr)
        ws = prefork.serve_all(os.environ, _name)
        if ws is None:
            return
        session.path, session.agent = ws.root, _name(ws)  # from here on, this is the daemon of one workspace
    else:
        ws = session.workspace()
    settings = config.load(ws.config)
    log.configure(level or settings.log.level, form or settings.log.format, sys.stderr, agent=session.agent)
    supervise.serve(ws, settings, until_idle=until_idle, allow_network=allow_network_fs)


def _name(ws: Workspace) -> str:
    """The agent of a workspace; its path, if the configuration does not say it."""
    return agent_of(ws) or str(ws.root)


@click.group("service", cls=Group)
def service_command() -> None:
    """Run the daemon as a service of yours (systemd, launchd): started at login, restarted after a failure.

    One service per workspace, or with --all one for all of them (systemd), which takes half of the memory but does not
    confine each daemon to its workspace. Without either, as in most containers, it explains what to do instead.
    """


_all = click.option("--all", "everything", is_flag=True, help="The service of all workspaces: `mailboxd run --all`.")


@service_command.verb("install", "connect service install", "connect service install --all", operator=True)
@_all
@click.option("--no-start", is_flag=True, help="Write the service files, but do not start it.")
def _install(session: Session, everything: bool, no_start: bool) -> None:
    """Write the service files, enable the service and start it. Safe to run again.

    They record which mailboxd and OpenClaw to use, and the PATH of this shell. Run it again after an upgrade or
    when a program has moved.
    """
    service = _service(session, everything)
    written = service.install(start=not no_start)
    _account(session, service, [f"wrote {path}" for path in written])


@service_command.verb("uninstall", "connect service uninstall", operator=True)
@_all
def _uninstall(session: Session, everything: bool) -> None:
    """Stop and disable the service and remove its files. Mail, tasks, the database and your own drop-ins are kept."""
    service = _service(session, everything)
    _account(session, service, [f"removed {path}" for path in service.uninstall()])


@service_command.verb("start", "connect service start", operator=True)
@_all
def _start(session: Session, everything: bool) -> None:
    """Start the service and wait until the daemon is ready. With --all, also start daemons that do not run."""
    service = _service(session, everything)
    service.require_manager()
    service.require_free()
    service.start()
    _account(session, service, [f"started {service.name}"])


@service_command.verb("stop", "connect service stop", operator=True)
@_all
def _stop(session: Session, everything: bool) -> None:
    """Stop the service and wait for running turns (`shutdown.drain_seconds`)."""
    service = _service(session, everything)
    service.require_manager()
    service.stop()
    _account(session, service, [f"stopped {service.name}"])


@service_command.verb(
    "status",
    "connect service status",
    "connect service status --json",
    exits={EXIT_NO: "it is not running properly"},
)
@_all
def _status(session: Session, everything: bool) -> int | None:
    """Show whether the service is installed, enabled and running, and the daemon's own report."""
    service = _service(session, everything)
    state = service.state()
    session.answer(asdict(state), _text(state))
    if not state.manager:
        return EXIT_UNAVAILABLE
    return EXIT_NO if state.problem else None


@service_command.verb("logs", "connect service logs", "connect service logs -f -n 200")
@_all
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0, 1_000_000), default=50, show_default=True, help="How many lines.")
def _logs(session: Session, everything: bool, follow: bool, lines: int) -> int:
    """Show what the daemon wrote to its log. `mailboxd log` shows the events of its tasks."""
    service = _service(session, everything)
    service.require_manager()
    return service.show_log(lines, follow=follow)


def _service(session: Session, everything: bool) -> Service:
    from mailboxd.operate.setup.service_managers import service_of, service_of_all

    return service_of_all(os.environ) if everything else service_of(session.workspace(), os.environ)


def _account(session: Session, service: Service, done: list[str]) -> None:
    state = service.state()
    advice = service.advice() if state.enabled else ""
    lines = [*(done or ["nothing to do"]), _text(state), *([advice] if advice else [])]
    session.answer({"done": done, "state": asdict(state)}, "\n".join(lines))


def _text(state: ServiceState) -> str:
    if not state.problem:
        return ": ".join(filter(None, [f"{state.unit} runs, pid {state.pid}", state.status_text]))
    if state.installed and state.manager:
        return f"{state.unit}: {state.problem}"
    where = f"installed ({state.path})" if state.installed else "not installed"
    return f"{state.unit}: {where}; {state.problem}"
