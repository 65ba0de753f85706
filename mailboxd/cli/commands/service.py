"""`mailboxd service`: the daemon of a workspace as a service of the user, under systemd."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_NO, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from mailboxd.setup.service_unit import ServiceState, Unit

_EXITS = {
    EXIT_NO: "this is a shell inside an agent's turn, or another daemon holds the workspace",
    EXIT_UNAVAILABLE: "there is no workspace here, or no service manager of this user",
}


@click.group("service")
def service_command() -> None:
    """The daemon as a service of yours, under `systemctl --user`: started at login, again after a failure.

    One service for each workspace. Where there is no systemd, as in most containers, it says so, and what to do
    instead.
    """


@verb("install", "service install", "service install --no-start", exits=_EXITS)
@click.option("--no-start", is_flag=True, help="Only write the unit file and enable it, where that is possible.")
def _install(session: Session, no_start: bool) -> None:
    """Write the unit file of this workspace, enable it, and start it. Running it again changes nothing.

    A drop-in says which mailboxd runs, with the PATH of this shell, and which OpenClaw is meant. After an upgrade, or
    when a program has moved, run it again.
    """
    unit = _ordered(session)
    written = unit.install(start=not no_start)
    _account(session, unit, [f"wrote {path}" for path in written])


@verb("uninstall", "service uninstall", exits=_EXITS)
def _uninstall(session: Session) -> None:
    """Stop the service, disable it and remove its files. Mail, tasks and the database stay; so do drop-ins of yours."""
    unit = _ordered(session)
    _account(session, unit, [f"removed {path}" for path in unit.uninstall()])


@verb("start", "service start", exits=_EXITS)
def _start(session: Session) -> None:
    """Start it, and wait until the daemon is ready."""
    from mailboxd.setup.service_unit import require_manager

    unit = _ordered(session)
    require_manager(unit)
    unit.require_free()
    unit.begin()
    _account(session, unit, [f"started {unit.name}"])


@verb("stop", "service stop", exits=_EXITS)
def _stop(session: Session) -> None:
    """Stop it, and wait for the end of what runs (`shutdown.drain_seconds`)."""
    from mailboxd.setup.service_unit import require_manager

    unit = _ordered(session)
    require_manager(unit)
    unit.manager.order("stop", unit.name)
    _account(session, unit, [f"stopped {unit.name}"])


@verb("status", "service status", "service status --json", exits={**_EXITS, EXIT_NO: "it does not run as it should"})
def _status(session: Session) -> int | None:
    """Whether it is installed, enabled and running, and what the daemon says of itself."""
    unit = _unit(session)
    state = unit.state()
    if session.as_json:
        say(to_json(asdict(state)))
    else:
        _tell(state)
    if not state.manager:
        return EXIT_UNAVAILABLE
    return EXIT_NO if state.problem else None


@verb("logs", "service logs", "service logs -f -n 200", exits=_EXITS)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now; Ctrl-C ends it.")
@click.option("-n", "--lines", type=click.IntRange(0, 1_000_000), default=50, show_default=True, help="How many.")
def _logs(session: Session, follow: bool, lines: int) -> int:
    """What the daemon wrote to the journal. The events of its tasks are in `mailboxd logs`."""
    from mailboxd.setup.service_unit import require_manager

    unit = _unit(session)
    require_manager(unit)
    return unit.manager.show_log(unit.name, lines, follow=follow)


for _command in (_install, _status, _logs, _uninstall, _start, _stop):
    service_command.add_command(_command)


# ------------------------------------------------------------------ inside


def _unit(session: Session) -> Unit:
    from mailboxd.setup.service_unit import Unit

    return Unit(session.workspace(), os.environ)


def _ordered(session: Session) -> Unit:
    from mailboxd.cli.operator_actions import require_person

    require_person("operator")
    return _unit(session)


def _account(session: Session, unit: Unit, done: list[str]) -> None:
    from mailboxd.setup.service_unit import lingers

    state = unit.state()
    if session.as_json:
        say(to_json({"done": done, "state": asdict(state)}))
        return
    for line in done or ["nothing to do"]:
        say(for_terminal(line))
    _tell(state)
    if state.enabled and not lingers(os.environ):
        say("it ends when you log out, unless you say: loginctl enable-linger")


def _tell(state: ServiceState) -> None:
    if not state.problem:
        say(for_terminal(f"{state.unit} runs, pid {state.pid}: {state.said}"))
    elif state.installed and state.manager:
        say(for_terminal(f"{state.unit}: {state.problem}"))
    else:
        where = f" ({state.path})" if state.installed else ""
        say(
            for_terminal(f"{state.unit}: {'installed' if state.installed else 'not installed'}{where}; {state.problem}")
        )
