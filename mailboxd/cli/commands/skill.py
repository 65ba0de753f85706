"""`mailboxd skill install|status|uninstall`: the agent's skill."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_NO

_EXITS = {EXIT_CONFIG: "a skill file was changed by hand"}
_dry = click.option("--dry-run", is_flag=True, help="Show what would be done and do nothing.")


@click.group("skill")
def skill_command() -> None:
    """Manage the skill that teaches the agent to answer, plan and delegate: `skills/mailboxd/` in its workspace."""


@verb("install", "skill install", "skill install --force", exits=_EXITS)
@_dry
@click.option("--force", is_flag=True, help="Also replace files that were changed.")
def _install(session: Session, dry_run: bool, force: bool) -> None:
    """Write missing or outdated skill files. OpenClaw loads them in the agent's next session."""
    from mailboxd.cli.operator_actions import require_operator
    from mailboxd.integration import install_skill, skill_state

    require_operator("operator")
    ws = session.workspace()
    written = install_skill(ws, force=force, dry_run=dry_run)
    path = skill_state(ws.root).path
    if session.as_json:
        say(to_json({"path": path, "written": written, "applied": not dry_run}))
    elif not written:
        say(for_terminal(f"{path} is up to date"))
    else:
        say(for_terminal(f"{'would write' if dry_run else 'wrote'} {', '.join(written)} in {path}"))


@verb("status", "skill status", "skill status --json", exits={EXIT_NO: "the skill is missing, outdated or changed"})
def _status(session: Session) -> int | None:
    """Show whether the workspace has this version's skill."""
    from mailboxd.integration import skill_state

    state = skill_state(session.workspace().root)
    if session.as_json:
        say(to_json(asdict(state)))
    elif state.problem:
        say(for_terminal(f"{state.path}: {state.problem}; run `mailboxd skill install`"))
    else:
        say(for_terminal(f"{state.path} is up to date"))
    return EXIT_NO if state.problem else None


@verb("uninstall", "skill uninstall", "skill uninstall --dry-run", exits=_EXITS)
@_dry
@click.option("--force", is_flag=True, help="Also remove files that were changed.")
def _uninstall(session: Session, dry_run: bool, force: bool) -> None:
    """Remove the skill's files. Files that you changed or added are kept."""
    from mailboxd.cli.operator_actions import require_operator
    from mailboxd.integration import uninstall_skill

    require_operator("operator")
    removed, kept = uninstall_skill(session.workspace(), force=force, dry_run=dry_run)
    if session.as_json:
        facts: dict[str, Any] = {"removed": removed, "kept": kept, "applied": not dry_run}
        say(to_json(facts))
        return
    say(
        for_terminal(f"{'would remove' if dry_run else 'removed'} {', '.join(removed)}") if removed else "nothing to do"
    )
    if kept:
        say(for_terminal(f"kept, because they were changed: {', '.join(kept)}"))


for _command in (_install, _status, _uninstall):
    skill_command.add_command(_command)
