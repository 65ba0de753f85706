"""Find OpenClaw and its agents, plan what to set up for them, carry that out, and undo it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path, PurePath

from mailboxd import config
from mailboxd.agents.openclaw import MINIMUM_VERSION, OpenClaw, Peer, child_environment, parse_config_file
from mailboxd.agents.process import ask
from mailboxd.clock import Clock
from mailboxd.doctor.machine import version_text
from mailboxd.doctor.openclaw import OpenClawProbes
from mailboxd.errors import ConfigError, MailboxdError, UnavailableError
from mailboxd.mailbox.layout import Workspace
from mailboxd.setup.parts import Home, Look, Part, Plugin, Service, Setting, Skill, Standing, Tools, looked
from mailboxd.user_state import UserState

# What `mailboxd setup` has done, for undoing it: `$XDG_STATE_HOME/mailboxd/setup.json`, outside every workspace, so
# that a confined agent cannot forge it.

NAME = "setup.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Done:
    """One step that was done by setup, and not before it by somebody else."""

    kind: str
    agent: str
    workspace: str
    at: str
    openclaw: str
    """The configuration of the OpenClaw that it was done beside."""
    before: str = ""
    """What the undo needs to know of how it was before."""

    def is_for(self, kind: str, workspace: str) -> bool:
        return (self.kind, self.workspace) == (kind, workspace)


@dataclass(frozen=True, slots=True)
class Record:
    """The file, of the user in whose `environ` we run."""

    environ: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self._state.folder / NAME

    def read(self) -> list[Done]:
        """What was done, oldest first. Raises ConfigError for a damaged file or a stranger's, WorldError."""
        raw = self._state.read(NAME)
        if raw is None:
            return []
        try:
            said = json.loads(raw)
            return [Done(**entry) for entry in said["done"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.path} cannot be read ({error}); move it away: then nothing can be taken back by itself"
            ) from error

    def write(self, done: Iterable[Done]) -> None:
        """Replace it. Raises WorldError."""
        raw = json.dumps({"version": _VERSION, "done": [asdict(one) for one in done]}, indent=2)
        with self._state.writing() as folder:
            self._state.write(folder, NAME, f"{raw}\n".encode())

    @property
    def _state(self) -> UserState:
        return UserState.of(self.environ)


# The plan

KINDS = ("workspace", "plugin", "skill", "tools", "service")
OPTIONAL = KINDS[1:]
_FIRST_PORT = 8765
_PORTS = 1000
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One part, and how it stood when the plan was made."""

    part: Part
    look: Look

    @property
    def is_due(self) -> bool:
        return self.look.standing is Standing.DUE


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a step: what was done, or why it failed or was not tried."""

    step: Step
    done: str = ""
    problem: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps, in the order in which they are done. `passed_over` are agents that get none, with the reason."""

    setting: Setting
    version: str
    homes: Mapping[str, Path]
    passed_over: Mapping[str, str]
    steps: tuple[Step, ...]

    @property
    def due(self) -> list[Step]:
        return [step for step in self.steps if step.is_due]


def setting(environ: Mapping[str, str], clock: Clock) -> tuple[Setting, str]:
    """The OpenClaw that this environment means, and its version. Raises UnavailableError with the remedy."""
    openclaw, environment = OpenClaw(("openclaw",)), child_environment(environ)
    questions = OpenClawProbes(openclaw, environment)
    if questions.program().path is None:
        raise UnavailableError("there is no program openclaw in PATH; npm install -g openclaw@latest")
    release = questions.release()
    if release.version is None:
        raise UnavailableError(f"openclaw does not say its version: {release.said}; try `openclaw --version`")
    version = version_text(release.version)
    if release.version < MINIMUM_VERSION:
        needed = version_text(MINIMUM_VERSION)
        raise UnavailableError(f"OpenClaw {version} is too old, {needed} is needed; npm install -g openclaw@latest")
    path = parse_config_file(ask(openclaw.config_file_argv(), environment, _SECONDS))
    return Setting(openclaw, environ, environment, clock, path), version


def survey(
    found: Setting, version: str, wanted: Collection[str], skip: Collection[str], tell: Callable[[str], None]
) -> Plan:
    """What there is to do for the agents `wanted` (none = all), without the kinds in `skip`.

    Asks OpenClaw and looks at every part, which takes seconds each. Changes nothing. Raises UnavailableError.
    """
    tell("agents")
    peers = OpenClawProbes(found.openclaw, found.environment).peers()
    unknown = sorted(set(wanted) - {peer.id for peer in peers})
    if unknown:
        known = ", ".join(peer.id for peer in peers) or "none"
        raise UnavailableError(f"OpenClaw has no agent {', '.join(unknown)}; it has {known}")
    homes, passed_over = _homes([peer for peer in peers if not wanted or peer.id in wanted], peers)
    # a port that is set where the extra is missing would keep the daemon from starting
    ports = _ports(homes.values()) if find_spec("mcp") and Tools.kind not in skip else repeat(0)
    parts: list[Part] = [Home(found, agent, root, next(ports)) for agent, root in homes.items()]
    parts.append(Plugin(found))
    for kind in (Skill, Tools, Service):
        parts += [kind(found, agent, root) for agent, root in homes.items()]
    steps = []
    for part in parts if homes else ():
        if part.kind not in skip:
            tell(f"{part.kind} {part.agent}".strip())
            steps.append(Step(part, looked(part)))
    return Plan(found, version, homes, passed_over, tuple(steps))


def _homes(chosen: Sequence[Peer], peers: Sequence[Peer]) -> tuple[dict[str, Path], dict[str, str]]:
    """The workspace of each agent that can have a mailbox, and why the others cannot."""
    homes, passed_over = {}, {}
    for peer in chosen:
        root = PurePath(peer.workspace)
        sharing = [other.id for other in peers if other.id != peer.id and _overlap(root, PurePath(other.workspace))]
        if not root.is_absolute():
            passed_over[peer.id] = "OpenClaw names no workspace of it"
        elif sharing:
            passed_over[peer.id] = (
                f"its workspace {root} is shared with, or lies within, that of {', '.join(sharing)}; a mailbox needs "
                f"one of its own: openclaw config set agents.entries.{peer.id}.workspace DIRECTORY"
            )
        else:
            homes[peer.id] = Path(root).resolve()
    return homes, passed_over


def _overlap(one: PurePath, other: PurePath) -> bool:
    return other.is_absolute() and (one == other or one in other.parents or other in one.parents)


def _ports(roots: Collection[Path]) -> Iterator[int]:
    """Ports of this machine that nobody listens at, and that no workspace of these has been given."""
    given = set()
    for root in roots:
        try:
            given.add(config.load(Workspace(root).config).mcp.port)
        except MailboxdError:
            continue  # there is none yet, or its part will say what is wrong with it
    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if port not in given and probe.connect_ex(("127.0.0.1", port)):
                yield port
    while True:
        yield 0


# Carrying it out and undoing it


def carry_out(plan: Plan, record: Record) -> Iterator[Result]:
    """Do what is due, in order; each is on record before it begins. What fails does not keep the others from it,
    but for those of the same agent when its workspace fails.
    """
    failed: set[str] = set()
    for step in plan.due:
        part = step.part
        if part.agent in failed:
            yield Result(step, problem="not tried: its workspace is not there")
            continue
        try:
            noted = _note(record, plan.setting, part)
            done = part.do()
            if (after := part.after(noted.before)) != noted.before:
                record.write([replace(noted, before=after) if one == noted else one for one in record.read()])
            yield Result(step, done)
        except MailboxdError as error:
            if part.kind == Home.kind:
                failed.add(part.agent)
            yield Result(step, problem=str(error), exit_code=error.exit_code)


def _note(record: Record, found: Setting, part: Part) -> Done:
    """On record, with how it was before; what an earlier run noted stays as it noted it."""
    done = record.read()
    where = str(part.workspace or "")
    earlier = [one for one in done if one.is_for(part.kind, where) and one.openclaw == found.config_path]
    if earlier:
        return earlier[0]
    noted = Done(part.kind, part.agent, where, found.clock.now(), found.config_path, part.before())
    record.write([*done, noted])
    return noted


def recorded(found: Setting, record: Record) -> list[tuple[Done, Part]]:
    """What setup has done beside this OpenClaw, the latest first: as it is taken back."""
    return [(one, _part(found, one)) for one in reversed(record.read()) if one.openclaw == found.config_path]


def _part(found: Setting, one: Done) -> Part:
    root = Path(one.workspace)
    match one.kind:
        case Plugin.kind:
            return Plugin(found)
        case Skill.kind:
            return Skill(found, one.agent, root)
        case Tools.kind:
            return Tools(found, one.agent, root)
        case Service.kind:
            return Service(found, one.agent, root)
        case _:
            return Home(found, one.agent, root)


def take_back(steps: Sequence[tuple[Done, Part]], record: Record) -> Iterator[Result]:
    """Take back each; what was taken back is no longer on record, what failed stays there for the next try."""
    for one, part in steps:
        step = Step(part, Look(Standing.DUE, ""))
        try:
            result = Result(step, part.undo(one.before))
            record.write([other for other in record.read() if other != one])
        except MailboxdError as error:
            result = Result(step, problem=str(error), exit_code=error.exit_code)
        yield result
