"""`mailboxd connect`, and its plugin in OpenClaw's gateway and skill of the agent."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mailboxd.cli.groups import Group, LazyGroup
from mailboxd.cli.session import Session
from mailboxd.errors import UnavailableError

if TYPE_CHECKING:
    from mailboxd.operate.integration import OpenClawCommand, PluginState
    from mailboxd.perform.agents.openclaw import OpenClaw

connect_command = LazyGroup(
    "connect",
    {
        "Commands": {
            "plugin": "integration", "skill": "integration", "mcp": "mcp", "gateway": "gateway", "service": "daemon",
            "keys": "keys",
        }
    },
    help="Connect the workspace with OpenClaw, systemd and the keys of its peers.",
)  # fmt: skip


@click.group("plugin", cls=Group)
def plugin_command() -> None:
    """Manage the plugin in OpenClaw's gateway, which delivers messages to mailboxes without a model call.

    One plugin serves all agents. No workspace is needed; in one, its `openclaw.command` selects the OpenClaw.
    `mailboxd doctor` checks it.
    """


@plugin_command.verb("install", "connect plugin install", operator=True)
def _plugin_install(session: Session) -> None:
    """Copy the plugin into OpenClaw's state, allow it to see messages, enable it, and check that it loads.

    Safe to run again. A running gateway loads it without a restart; an OpenClaw without `plugins reload` is asked to
    restart the gateway once it is idle.
    """
    from mailboxd.operate.integration import install_plugin, plugin_state, reload_plugin

    openclaw, environment = _openclaw(session)
    steps, state = install_plugin(openclaw, environment, plugin_state(openclaw, environment))
    if state.problem:
        raise UnavailableError(f"the plugin was installed but does not receive messages: {state.problem}")
    reloaded = reload_plugin(openclaw, environment, session.clock) if steps else ""
    _report(session, state, steps, f"plugin {state.version} is installed ({state.path})", reloaded)


@plugin_command.verb("uninstall", "connect plugin uninstall", operator=True)
def _plugin_uninstall(session: Session) -> None:
    """Have OpenClaw remove the plugin, its files and its settings.

    OpenClaw keeps `plugins.entries.mailboxd.enabled: false` as a record of the removal.
    """
    from mailboxd.operate.integration import NOT_INSTALLED, plugin_state, plugin_uninstall_steps, run_steps

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


def _report(session: Session, state: PluginState, steps: list[OpenClawCommand], *then: str) -> None:
    from mailboxd.operate.integration import steps_json

    lines = [*map(str, steps), *then] if steps else ["nothing to do"]
    session.answer({"steps": steps_json(steps), "state": asdict(state)}, "\n".join(lines))


def _openclaw(session: Session) -> tuple[OpenClaw, dict[str, str]]:
    """The OpenClaw of the workspace's configuration, or the default one without a workspace."""
    from mailboxd.perform.agents.openclaw import OpenClaw, child_environment

    try:
        session.workspace()
    except UnavailableError:
        if session.path is not None:
            raise
        return OpenClaw(("openclaw",)), child_environment(os.environ)
    return session.openclaw()


_force = click.option("--force", is_flag=True, help="Also files that were changed by hand.")


@click.group("skill", cls=Group)
def skill_command() -> None:
    """Manage the skill that teaches the agent to answer, plan and delegate: `skills/mailboxd/` in its workspace.

    `mailboxd doctor` checks it.
    """


@skill_command.verb("install", "connect skill install", "connect skill install --force", operator=True)
@_force
def _skill_install(session: Session, force: bool) -> None:
    """Write missing or outdated skill files. OpenClaw loads them in the agent's next session."""
    from mailboxd.operate.integration import install_skill, skill_state

    ws = session.workspace()
    written, path = install_skill(ws, force=force), skill_state(ws.root).path
    text = f"wrote {', '.join(written)} in {path}" if written else f"{path} is up to date"
    session.answer({"path": path, "written": written}, text)


@skill_command.verb("uninstall", "connect skill uninstall", operator=True)
@_force
def _skill_uninstall(session: Session, force: bool) -> None:
    """Remove the skill's files. Files that you changed or added are kept."""
    from mailboxd.operate.integration import uninstall_skill

    removed, kept = uninstall_skill(session.workspace(), force=force)
    lines = [f"removed {', '.join(removed)}" if removed else "nothing to do"]
    lines += [f"kept, because they were changed: {', '.join(kept)}"] if kept else []
    session.answer({"removed": removed, "kept": kept}, "\n".join(lines))
