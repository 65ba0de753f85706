"""`mailboxd connect plugin` and `connect skill`: the plugin in OpenClaw's gateway, and the agent's skill."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_UNAVAILABLE, UnavailableError

if TYPE_CHECKING:
    from mailboxd.agents.openclaw import OpenClaw
    from mailboxd.integration import PluginState, Step

_PLUGIN_EXITS = {EXIT_UNAVAILABLE: "OpenClaw was not found, or refused"}


@click.group("plugin", cls=Group)
def plugin_command() -> None:
    """Manage the plugin in OpenClaw's gateway, which delivers messages to mailboxes without a model call.

    One plugin serves all agents. No workspace is needed; in one, its `openclaw.command` selects the OpenClaw.
    """


@verb("install", "connect plugin install", exits=_PLUGIN_EXITS)
def _plugin_install(session: Session) -> None:
    """Copy the plugin into OpenClaw's state, allow it to see messages, enable it, and check that it loads.

    Safe to run again. A running gateway loads it without a restart; an OpenClaw without `plugins reload` is asked to
    restart the gateway once it is idle.
    """
    from mailboxd.cli.operator_actions import require_operator
    from mailboxd.integration import install_plugin, plugin_state, reload_plugin

    require_operator("operator")
    openclaw, environment = _openclaw(session)
    state = plugin_state(openclaw, environment)
    steps, state = install_plugin(openclaw, environment, state)
    if state.problem:
        raise UnavailableError(f"the plugin was installed but does not receive messages: {state.problem}")
    _report(session, state, steps)
    if not steps:
        return
    reloaded = reload_plugin(openclaw, environment, session.clock)
    if not session.as_json:
        say(for_terminal(f"plugin {state.version} is installed ({state.path})"))
        say(for_terminal(reloaded))


@verb("uninstall", "connect plugin uninstall", exits=_PLUGIN_EXITS)
def _plugin_uninstall(session: Session) -> None:
    """Have OpenClaw remove the plugin, its files and its settings.

    OpenClaw keeps `plugins.entries.mailboxd.enabled: false` as a record of the removal.
    """
    from mailboxd.cli.operator_actions import require_operator
    from mailboxd.integration import NOT_INSTALLED, plugin_state, plugin_uninstall_steps, run_steps

    require_operator("operator")
    openclaw, environment = _openclaw(session)
    state = plugin_state(openclaw, environment)
    if not state.installed and not state.may_read and state.problem != NOT_INSTALLED:
        raise UnavailableError(f"OpenClaw does not report whether the plugin is installed: {state.problem}")
    steps = plugin_uninstall_steps(openclaw, state)
    if steps:
        run_steps(steps, environment)
        state = plugin_state(openclaw, environment)
        if state.installed:
            raise UnavailableError(f"OpenClaw still has the plugin: {state.path}")
    _report(session, state, steps)


@verb(
    "status",
    "connect plugin status",
    "connect plugin status --json",
    exits={EXIT_NO: "the plugin does not receive messages"},
)
def _plugin_status(session: Session) -> int | None:
    """Show whether this version's plugin is installed, enabled and allowed to see messages.

    Loads it in a separate process, so the gateway need not run. `mailboxd doctor` checks a running gateway.
    """
    from mailboxd.integration import plugin_state

    state = plugin_state(*_openclaw(session))
    if session.as_json:
        say(to_json(asdict(state)))
    elif state.problem:
        say(
            for_terminal(
                f"the plugin does not receive messages: {state.problem}; run `mailboxd connect plugin install`"
            )
        )
    else:
        say(for_terminal(f"plugin {state.version} is installed ({state.path})"))
    return EXIT_NO if state.problem else None


for _command in (_plugin_install, _plugin_status, _plugin_uninstall):
    plugin_command.add_command(_command)


def _report(session: Session, state: PluginState, steps: list[Step]) -> None:
    from mailboxd.integration import steps_json

    if session.as_json:
        say(to_json({"steps": steps_json(steps), "state": asdict(state)}))
        return
    for step in steps:
        say(for_terminal(str(step)))
    if not steps:
        say("nothing to do")


def _openclaw(session: Session) -> tuple[OpenClaw, dict[str, str]]:
    """The OpenClaw of the workspace's configuration, or the default one without a workspace."""
    from mailboxd import config
    from mailboxd.agents.openclaw import OpenClaw, child_environment

    try:
        ws = session.workspace()
    except UnavailableError:
        if session.path is not None:
            raise
        return OpenClaw(("openclaw",)), child_environment(os.environ)
    settings = config.load(ws.config).openclaw
    return OpenClaw(settings.command), child_environment(os.environ, settings.environment)


_SKILL_EXITS = {EXIT_CONFIG: "a skill file was changed by hand"}


@click.group("skill", cls=Group)
def skill_command() -> None:
    """Manage the skill that teaches the agent to answer, plan and delegate: `skills/mailboxd/` in its workspace."""


@verb("install", "connect skill install", "connect skill install --force", exits=_SKILL_EXITS)
@click.option("--force", is_flag=True, help="Also replace files that were changed.")
def _skill_install(session: Session, force: bool) -> None:
    """Write missing or outdated skill files. OpenClaw loads them in the agent's next session."""
    from mailboxd.cli.operator_actions import require_operator
    from mailboxd.integration import install_skill, skill_state

    require_operator("operator")
    ws = session.workspace()
    written = install_skill(ws, force=force)
    path = skill_state(ws.root).path
    if session.as_json:
        say(to_json({"path": path, "written": written}))
    elif not written:
        say(for_terminal(f"{path} is up to date"))
    else:
        say(for_terminal(f"wrote {', '.join(written)} in {path}"))


@verb(
    "status",
    "connect skill status",
    "connect skill status --json",
    exits={EXIT_NO: "the skill is missing, outdated or changed"},
)
def _skill_status(session: Session) -> int | None:
    """Show whether the workspace has this version's skill."""
    from mailboxd.integration import skill_state

    state = skill_state(session.workspace().root)
    if session.as_json:
        say(to_json(asdict(state)))
    elif state.problem:
        say(for_terminal(f"{state.path}: {state.problem}; run `mailboxd connect skill install`"))
    else:
        say(for_terminal(f"{state.path} is up to date"))
    return EXIT_NO if state.problem else None


@verb("uninstall", "connect skill uninstall", exits=_SKILL_EXITS)
@click.option("--force", is_flag=True, help="Also remove files that were changed.")
def _skill_uninstall(session: Session, force: bool) -> None:
    """Remove the skill's files. Files that you changed or added are kept."""
    from mailboxd.cli.operator_actions import require_operator
    from mailboxd.integration import uninstall_skill

    require_operator("operator")
    removed, kept = uninstall_skill(session.workspace(), force=force)
    if session.as_json:
        say(to_json({"removed": removed, "kept": kept}))
        return
    say(for_terminal(f"removed {', '.join(removed)}") if removed else "nothing to do")
    if kept:
        say(for_terminal(f"kept, because they were changed: {', '.join(kept)}"))


for _command in (_skill_install, _skill_status, _skill_uninstall):
    skill_command.add_command(_command)
