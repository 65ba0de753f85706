"""`mailboxd setup`, `init`, `db import` and `config`: mailboxes and daemons for OpenClaw's agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.bars import bars, checking
from mailboxd.cli.session import Dollars, Id, Session, agent_of, verb
from mailboxd.cli.text import folded_list, to_json
from mailboxd.core.vocabulary import NO_SUCH_AGENT
from mailboxd.errors import EXIT_LOCKED, EXIT_NO, EXIT_OK, EXIT_UNAVAILABLE, UnavailableError

if TYPE_CHECKING:
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.operate.setup.plan import Installation, Part, Plan, Result, SetupRecord


_SKIPPABLE = ("plugin", "skill", "tools", "gateway", "questions", "service")
_MARKS = {"done": "✓", "due": "○", "left_out": "–"}


@verb(
    "setup", "setup --dry-run", "setup", "setup --yes --agent main --skip tools", "setup --undo",
    exits={
        EXIT_NO: "not confirmed, or doctor found a problem",
        EXIT_UNAVAILABLE: "no usable OpenClaw, or a step failed",
    }, operator=True,
)  # fmt: skip
@click.option("--agent", "agents", type=Id(), multiple=True, help="Set up only this agent (repeatable; default: all).")
@click.option("--skip", type=click.Choice(_SKIPPABLE), multiple=True, help="Skip this step (repeatable).")
@click.option("--strict", is_flag=True, help="New workspaces get `profile: strict`, reviewed by agents in reach.")
@click.option("--day-usd", type=Dollars(), help="What an agent may cost a day (default 20; 0: no cap).")
@click.option("--host-day-usd", type=Dollars(), help="The same of all agents together (default 50).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--no-canary", is_flag=True, help="Skip the real turn at the end, so the model is not called.")
@click.option("--undo", is_flag=True, help="Revert what setup did. Mail, tasks and databases are kept.")
def setup_command(
    session: Session, agents: tuple[str, ...], skip: tuple[str, ...], strict: bool, day_usd: float | None,
    host_day_usd: float | None, yes: bool, dry_run: bool, no_canary: bool, undo: bool,
) -> int:  # fmt: skip
    """Find OpenClaw and its agents, and give each agent a mailbox and a daemon.

    \b
    workspace  mailbox/, tasks/ and .mailboxd/ in the agent's OpenClaw workspace
    plugin     delivers messages between agents inside the gateway, without a model call
    skill      teaches the agent to answer, plan and delegate
    tools      typed MCP tools for the agent (needs the extra `mcp`)
    gateway    turns over the gateway's WebSocket, far cheaper (extra `gateway`; asks for its token)
    questions  with it, open questions are prompts in OpenClaw's chats (scope operator.questions)
    service    the daemon, under systemd or launchd
    caps       what turns may cost in a day (`mailboxd caps`), asked on a terminal

    Shows the plan and asks before it changes anything. Safe to run again: completed steps are skipped. Ends with
    `mailboxd doctor` and one real turn of each agent (--no-canary skips the turn). --undo reverts only what setup did.
    """
    from mailboxd.operate.setup import plan as planning
    from mailboxd.operate.setup.plan import SetupRecord

    installation, version = planning.find_installation(os.environ, session.clock)
    installation = replace(installation, secret=_secret(session))
    record = SetupRecord(os.environ)
    if undo:
        return _undo(session, installation, record, yes=yes, dry_run=dry_run)
    plan = planning.make_plan(installation, version, agents, skip, checking, strict=strict)
    checking("")
    _show(session, plan)
    if not strict and any(step.part.kind == "workspace" for step in plan.due):
        session.tell("tasks are not reviewed; with --strict the other agents review specification and result of each")
    caps = DayCaps.of(plan, day_usd, host_day_usd)
    caps.show(session)
    if dry_run or ((plan.due or caps.due) and not _agreed(yes, session)):
        return _unapplied(session, plan, dry_run=dry_run)
    if caps.due and not yes:
        caps = caps.asked()
    return _carry_out(session, plan, record, caps, canary=not no_canary, asks=not yes)


@dataclass(frozen=True)
class DayCaps:
    """What setup does about the caps of a day: they are written, and so confirmed, where they are not."""

    roots: tuple[Path, ...]
    """The workspaces whose cap nobody has confirmed, also those that are to be made."""
    host: bool
    """Whether nobody has confirmed the one of all agents of this machine."""
    usd: float | None
    host_usd: float | None

    @classmethod
    def of(cls, plan: Plan, usd: float | None, host_usd: float | None) -> DayCaps:
        from mailboxd.engine import spending
        from mailboxd.formats import config
        from mailboxd.formats.mailbox.layout import Workspace

        found = [Workspace(root) for root in plan.homes.values()]
        open_ = [ws for ws in found if not ws.config.is_file() or not spending.of_agent(config.load(ws.config)).holds]
        roots = [ws.root for ws in (open_ if usd is None else found)]
        host = bool(plan.homes) and (host_usd is not None or not spending.host_file(os.environ).exists())
        return cls(tuple(roots), host, usd, host_usd)

    @property
    def due(self) -> bool:
        return bool(self.roots) or self.host

    def show(self, session: Session) -> None:
        if self.roots:
            count = len(self.roots)
            whose = "the agent" if count == 1 else f"each of {count} agents"
            session.tell(f"  {_MARKS['due']} caps      {whose}: at most {self._agent:g} USD a day")
        if self.host:
            session.tell(f"  {_MARKS['due']} caps      all agents together: at most {self._host:g} USD a day")

    def asked(self) -> DayCaps:
        """With what the person says on the terminal."""
        usd, host_usd, kind = self.usd, self.host_usd, Dollars()
        if self.roots and usd is None:
            usd = click.prompt(
                "What may one agent's turns cost a day, in USD (0: no cap)?", default=self._agent, type=kind
            )
        if self.host and host_usd is None:
            host_usd = click.prompt("And those of all agents together?", default=self._host, type=kind)
        return replace(self, usd=usd, host_usd=host_usd)

    def write(self, session: Session) -> list[str]:
        """Write them; returns where."""
        from mailboxd.engine import spending
        from mailboxd.formats import config
        from mailboxd.formats.mailbox.layout import Workspace

        written = []
        for ws in map(Workspace, self.roots):
            if ws.config.is_file():  # else its workspace could not be made
                now = spending.of_agent(config.load(ws.config))
                caps = spending.with_amounts(now.most, {**_NONE, "usd": self._agent})
                if not now.holds or caps != now.most:  # what was made just now has the defaults
                    written.append(str(spending.write_agent(ws, caps)))
        if self.host:
            caps = spending.with_amounts(spending.of_host(os.environ).most, {**_NONE, "usd": self._host})
            written.append(str(spending.write_host(os.environ, caps)))
        for path in written:
            session.tell(f"  ✓ caps: {path}")
        return written

    @property
    def _agent(self) -> float:
        from mailboxd.formats import config

        return float(config.default_of("limits.day_usd") if self.usd is None else self.usd)

    @property
    def _host(self) -> float:
        from mailboxd.engine import spending

        return spending.UNCONFIRMED.most.usd / 1_000_000 if self.host_usd is None else self.host_usd


_NONE = dict.fromkeys(("usd", "tokens", "turns"))


def _secret(session: Session) -> Callable[[], str] | None:
    """How to get the gateway's token, at most once: from the environment or the person; None if from neither."""
    from mailboxd.cli.commands.gateway import ask_secret, shared_secret

    if secret := shared_secret(os.environ):
        return lambda: secret
    return cache(ask_secret) if sys.stdin.isatty() and not session.as_json else None


def _carry_out(
    session: Session, plan: Plan, record: SetupRecord, caps: DayCaps, *, canary: bool, asks: bool
) -> int:  # fmt: skip
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.formats.user.registry import all_are_served
    from mailboxd.operate.setup import plan as planning

    results = [_print_result(session, result) for result in planning.carry_out(plan, record)]
    failed = next((result.exit_code for result in results if result.exit_code), EXIT_OK)
    capped = caps.write(session)
    checked, healthy = ([], True) if failed else _examined(session, plan, canary=canary)
    lines = []
    if failed:
        lines = ["some steps failed; completed steps are kept. Fix the problems above, then run `mailboxd setup` again"]
    elif healthy:
        programs = {agent: session.program(Workspace(root)) for agent, root in plan.homes.items()}
        services = [step for step in plan.steps if step.part.kind == "service"]
        served = {step.part.agent for step in services if step.state.status.value != "left_out"}
        example = f'`{next(iter(programs.values()), "mailboxd")} send "Say hello"`'
        lines = [f"ready: drop a file into an agent's mailbox/inbox/, or {example}; `mailboxd web --open` is the page"]
        idle = [] if all_are_served(os.environ) else [agent for agent in programs if agent not in served]
        lines += [f"{agent} works while a daemon runs: `{programs[agent]} run`" for agent in idle]
    session.show(_facts(plan, results) | {"applied": True, "caps": capped, "doctor": checked}, lines)
    if plan.homes and healthy and not failed and asks:
        _offer_page(session, next(iter(plan.homes.values())))
    return failed or (EXIT_OK if healthy else EXIT_NO)


def _offer_page(session: Session, root: Path) -> None:
    """Ask whether to open the page on a first task for the agent at `root`, and serve it until Ctrl-C."""
    from mailboxd.host import pip_extras

    if not _is_asked(session) or not pip_extras.is_installed("web"):
        return
    if click.confirm("\nOpen the page, with a first task ready to be sent?", default=True):
        from mailboxd.cli.commands.web import open_page
        from mailboxd.formats.mailbox.layout import Workspace
        from mailboxd.surfaces.web.workspaces import WebWorkspace

        session.tell("Ctrl-C ends the page; the agents go on, and `mailboxd web --open` opens it again")
        open_page(session, [], at=f"/new?w={WebWorkspace(Workspace(root)).key}&example=1")


def _undo(session: Session, installation: Installation, record: SetupRecord, *, yes: bool, dry_run: bool) -> int:
    from mailboxd.operate.setup import plan as planning

    steps = planning.steps_to_undo(installation, record)
    for one, part in steps:
        where = f"{one.agent}, {one.workspace}" if one.workspace else "for all agents"
        stays = " (is kept)" if part.kind == "workspace" else ""
        session.tell(f"  ○ undo {part.kind}: {where}{stays}")
    if steps:
        _warn(session, installation)
    else:
        session.tell(f"nothing to undo: setup did nothing for this OpenClaw ({installation.config_path})")
    if dry_run or (steps and not _agreed(yes, session)):
        session.show({"steps": [_named(part) for _, part in steps], "applied": False}, ())
        return EXIT_OK if dry_run else EXIT_NO
    results = [_print_result(session, result) for result in planning.undo_steps(steps, record)]
    session.show({"steps": [_named(r.step.part) | _outcome(r) for r in results], "applied": True}, ())
    return next((result.exit_code for result in results if result.exit_code), EXIT_OK)


def _agreed(yes: bool, session: Session) -> bool:
    """Ask for confirmation. Raises UsageError without a terminal."""
    if yes:
        return True
    if not _is_asked(session):
        raise click.UsageError("cannot ask without a terminal: give --yes, or --dry-run to see the plan")
    return click.confirm("Do this?", default=False)


def _is_asked(session: Session) -> bool:
    """Whether a person can be asked."""
    return not session.as_json and sys.stdin.isatty() and sys.stdout.isatty()


def _unapplied(session: Session, plan: Plan, *, dry_run: bool) -> int:
    session.show(_facts(plan, []) | {"applied": False, "doctor": []}, () if dry_run else ["nothing was done"])
    return EXIT_OK if dry_run else EXIT_NO


def _examined(session: Session, plan: Plan, *, canary: bool) -> tuple[list[dict[str, Any]], bool]:
    """Run doctor for each agent; returns whether it found no error."""
    from mailboxd.cli.commands import doctor
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.operate.doctor.openclaw import Answers
    from mailboxd.operate.doctor.target import target_at

    checked, healthy = [], True
    answers: Answers = {}
    for agent, root in plan.homes.items():
        session.tell(f"\n{agent}: mailboxd -w {root} doctor{' --canary' if canary else ''}")
        about = target_at(Workspace(root), "", os.environ, answers)
        found = doctor.examine(replace(session, path=root), about, canary=canary)
        well = not any(finding.level == "error" for _, finding in found)
        healthy &= well
        checked.append({"agent": agent, "healthy": well, "findings": doctor.as_json(found)})
    return checked, healthy


def _show(session: Session, plan: Plan) -> None:
    session.tell(f"OpenClaw {plan.version}, {plan.installation.config_path or 'unknown configuration'}")
    for agent, why in plan.passed_over.items():
        session.tell(f"  – {agent} gets no mailbox: {why}")
    for step in plan.steps:
        who = step.part.agent or "all agents"
        session.tell(f"  {_MARKS[step.state.status]} {step.part.kind:<9} {who}: {step.state.text}")
    if plan.due:
        _warn(session, plan.installation)
    if not plan.homes:
        session.tell("no agent to set up; `openclaw agents add` adds one")
    elif not plan.due:
        session.tell("everything is already set up")


def _warn(session: Session, installation: Installation) -> None:
    from mailboxd.operate.setup import plan as planning

    if warning := planning.comments_warning(installation.config_path):
        session.tell(f"  ! {warning}")


def _print_result(session: Session, result: Result) -> Result:
    who = f"{result.step.part.kind} {result.step.part.agent}".strip()
    session.tell(f"  ✗ {who}: {result.problem}" if result.problem else f"  ✓ {who}: {result.done}")
    return result


def _facts(plan: Plan, results: Iterable[Result]) -> dict[str, Any]:
    came = {id(result.step): _outcome(result) for result in results}
    steps = [
        _named(step.part)
        | {"standing": step.state.status, "says": step.state.text}
        | came.get(id(step), {"done": None, "problem": None})
        for step in plan.steps
    ]
    openclaw = {"version": plan.version, "config": plan.installation.config_path}
    return {"openclaw": openclaw, "passed_over": dict(plan.passed_over), "steps": steps}


def _named(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "agent": part.agent or None,
        "workspace": part.where or None,
    }


def _outcome(result: Result) -> dict[str, Any]:
    return {"done": result.done or None, "problem": result.problem or None}


@verb("init", "init ~/.openclaw/workspace-analyst", "init", "init ~/scratch --agent analyst")
@click.argument("directory", metavar="[WORKSPACE]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--agent", type=Id(), help="The agent's OpenClaw id. Default: the agent that OpenClaw runs in WORKSPACE.")
def init_command(session: Session, directory: Path | None, agent: str | None) -> None:
    """Create the directories, configuration and database in WORKSPACE (default: the current directory).

    Directories are private to their owner (0700). Existing files are kept, so it is safe to run again. If OpenClaw can
    be asked and has no such agent, it says so, with the command that adds it.
    """
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.formats.user.registry import all_are_served
    from mailboxd.operate.setup.plan import agent_in, create_workspace

    ws = Workspace((directory or session.path or Path.cwd()).resolve())
    agent = agent or agent_of(ws) or agent_in(ws.root, os.environ)
    made = create_workspace(ws.root, agent, session.clock.now(), os.environ)
    lines = [
        f"{ws.root}: the workspace of agent {agent}",
        "made " + ", ".join(made) if made else "everything already exists",
        f"next: check {ws.config}, and drop a file into mailbox/inbox/: the running `run --all` serves it within 15 s"
        if all_are_served(os.environ)
        else f"next: check {ws.config}, start `{session.program(ws)} run`, and drop a file into mailbox/inbox/",
    ]
    missing, add = _unknown_agent(ws, agent)
    if missing:
        lines.append(f"! {missing}: nothing is dispatched until it does\n  -> {add}")
    facts = {"workspace": str(ws.root), "agent": agent, "made": made, "problem": missing or None}
    session.answer(facts, "\n".join(lines))


def _unknown_agent(ws: Workspace, agent: str) -> tuple[str, str]:
    """That OpenClaw does not have this agent, and the command that adds it; empty if it does or cannot be asked."""
    import shlex
    import shutil

    from mailboxd.formats import config
    from mailboxd.operate.doctor.openclaw import OpenClawProbes
    from mailboxd.perform.agents.openclaw import OpenClaw, child_environment

    section = config.load(ws.config).openclaw
    if shutil.which(section.command[0]) is None:
        return "", ""
    environment = child_environment(os.environ, section.environment)
    try:
        known = [peer.id for peer in OpenClawProbes(OpenClaw(section.command), environment, agent).peers()]
    except UnavailableError:
        return "", ""
    if not known or agent.lower() in {name.lower() for name in known}:
        return "", ""
    add = shlex.join([*section.command, "agents", "add", agent, "--workspace", str(ws.root)])
    return f"{NO_SUCH_AGENT}{agent}, only {', '.join(sorted(known))}", add


@verb(
    "import",
    "db import",
    "db import --workspace ~/.openclaw/workspace-analyst --json",
    exits={
        EXIT_NO: "some items could not be imported (they are listed)",
        EXIT_LOCKED: "a daemon is running (stop it first)",
    },
    operator=True,
)
def import_command(session: Session) -> int:
    """Import a workspace that ran clawflow without mailboxd: its archive and its open tasks.

    Run it once, after `mailboxd init` and before `mailboxd run`. Archived messages count as seen. Each task resumes
    from the state in its task.md: finished work is kept, dispatched work waits for its reply, and work that was in
    progress here starts again. No file is moved. Running it again imports only what is new.
    """
    from mailboxd.daemon import assemble
    from mailboxd.formats import config

    ws = session.workspace()
    with assemble.importer(ws, config.load(ws.config)) as take_over, bars() as progress:
        account = take_over(progress)
    how = f"{session.program(ws)} ls --all"
    lines = [
        f"{account.messages} archived messages and {len(account.tasks)} tasks imported; {account.known} already known",
        *folded_list(account.tasks, lambda some: (f"  {local_id}" for local_id in some), False, how),
        *(f"{path}: {problem}" for path, problem in account.problems),
        session.runnable("next: `mailboxd status`, then `mailboxd run`"),
    ]
    problems = [{"path": path, "problem": problem} for path, problem in account.problems]
    counts = {"messages": account.messages, "tasks": account.tasks, "known": account.known}
    session.answer(counts | {"problems": problems}, "\n".join(lines))
    return EXIT_NO if problems else 0


@verb("config", "config", "config --all")
@click.option("--all", "everything", is_flag=True, help="Include settings at their defaults.")
def config_command(session: Session, everything: bool) -> None:
    """Validate the configuration, .mailboxd/config.yaml, and print the settings that differ from the defaults.

    Where it is invalid, --all lists all keys with their defaults.
    """
    from mailboxd.errors import ConfigError
    from mailboxd.formats import config

    try:
        settings = session.config()
    except ConfigError as error:
        if not everything:
            raise
        session.tell(f"{error}\n\nno setting of that file counts; all keys, at their defaults:", err=True)
        settings = config.Config(agent="ID")
    found = {"agent": settings.agent, **config.by_key(settings, everything=everything)}
    told = {key: value if isinstance(value, str) else to_json(value, indent=None) for key, value in found.items()}
    session.answer(found, "\n".join(f"{key}: {value}" for key, value in told.items()))
