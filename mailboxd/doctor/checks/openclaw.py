"""What mailboxd needs of OpenClaw: the program, its Node, the gateway."""

from __future__ import annotations

from collections.abc import Iterator

from mailboxd.agents.discovery import MINIMUM_VERSION
from mailboxd.doctor import versions
from mailboxd.doctor.facts import Facts, Gateway
from mailboxd.doctor.finding import Finding, edit, error, note, ok, warning

DRAINING = "gateway-draining"
_INSTALL = "npm install -g openclaw@latest"


def program(facts: Facts) -> Iterator[Finding]:
    found = facts.program
    if found is None:
        return
    if found.path is None:
        other = (edit(facts.settings.path, "openclaw.command"),) if facts.settings.path else ()
        yield error("openclaw", f"there is no program {found.name} in PATH", _INSTALL, *other)
    elif found.stand_in:
        text = "a scripted stand-in is called, not OpenClaw: of gateway and plugin nothing is asked"
        yield note("openclaw", text, edit(facts.settings.path, "openclaw.command: [openclaw]"))


def node(facts: Facts) -> Iterator[Finding]:
    found = facts.runtime
    if found is None:
        return
    if found.version is None:
        said = f": {found.said}" if found.said else ""
        yield error("node", f"{found.path or 'node'}, which OpenClaw runs on, does not run{said}", "nvm install 26")
        return
    shown = versions.shown(found.version)
    fits = versions.satisfies(found.version, found.wanted) if found.wanted else None
    if fits is None:
        yield note("node", f"Node {shown} ({found.path}); which one OpenClaw needs could not be read")
    elif fits:
        yield ok("node", f"Node {shown}; OpenClaw needs {found.wanted}")
    else:
        major = versions.newest(found.wanted) or "26"
        yield error(
            "node",
            f"Node {shown} ({found.path}) does not fit: OpenClaw needs {found.wanted}",
            f"nvm install {major} && nvm alias default {major}",
        )


def version(facts: Facts) -> Iterator[Finding]:
    found = facts.release
    if found is None or (found.version is None and _node_is_wrong(facts)):
        return
    if found.version is None:
        yield error("openclaw-version", f"the program does not say its version: {found.said or 'no output'}", _INSTALL)
    elif found.version < MINIMUM_VERSION:
        yield error(
            "openclaw-version",
            f"OpenClaw {versions.shown(found.version)} is too old: it may silently run a turn twice; "
            f"{versions.shown(MINIMUM_VERSION)} is needed",
            _INSTALL,
        )
    else:
        yield ok("openclaw-version", f"OpenClaw {versions.shown(found.version)}")


def _node_is_wrong(facts: Facts) -> bool:
    """The program cannot say anything then, and one finding is enough."""
    return any(finding.level == "error" for finding in node(facts))


def gateway(facts: Facts) -> Iterator[Finding]:
    found = facts.gateway
    if found is None:
        return
    if not found.config_valid:
        text = f"OpenClaw says that its configuration is not valid ({found.config_path})"
        yield error("openclaw-config", text, "openclaw config validate", "openclaw doctor --fix")
    if not found.connected:
        yield _unconnected(found)
    elif DRAINING in found.failing:
        text = f"the gateway at {found.url} is draining (it ends, or is suspended) and takes no turns"
        yield warning("gateway", text, _restart(found))
    elif found.failing:
        text = f"the gateway at {found.url} is not ready: {', '.join(found.failing)}"
        yield warning("gateway", text, "openclaw health --verbose")
    else:
        yield ok("gateway", f"the gateway at {found.url} is ready and takes our credentials")


def _unconnected(found: Gateway) -> Finding:
    where = f"the gateway at {found.url or 'its address'}"
    if found.failure == "unreachable":
        start = "openclaw gateway start" if found.service else "openclaw gateway run"
        return error("gateway", f"{where} does not answer: {found.said}", start)
    if found.failure == "auth-rejected":
        text = f"{where} refuses the credentials that {found.config_path or 'the configuration'} has: {found.said}"
        return error("gateway", text, _restart(found))
    if found.failure == "pairing-required":
        text = f"{where} wants this device to be approved first: {found.said}"
        return error("gateway", text, "openclaw devices list", "openclaw devices approve REQUEST")
    return error("gateway", f"{where} refuses us: {found.said}", "openclaw gateway probe")


def _restart(found: Gateway) -> str:
    return "openclaw gateway restart" if found.service else "openclaw gateway run  # when the one that runs has ended"


def gateway_version(facts: Facts) -> Iterator[Finding]:
    found, release = facts.gateway, facts.release
    if found is None or release is None or release.version is None or not found.version:
        return
    shown = versions.shown(release.version)
    if found.version != shown:
        text = f"the gateway is OpenClaw {found.version}, the program {shown}: one of them was updated alone"
        yield warning("gateway-version", text, _restart(found))


def transport(facts: Facts) -> Iterator[Finding]:
    found = facts.transport
    if found is None:
        return
    if found.problem:
        text = f"turns go over the gateway's WebSocket (openclaw.transport), and cannot: {found.problem}"
        yield error("transport", text, "mailboxd gateway pair", edit(facts.settings.path, "openclaw.transport: cli"))
    else:
        yield ok("transport", "turns go over the gateway's WebSocket, and the device may run them")


def lane(facts: Facts) -> Iterator[Finding]:
    lane = facts.agents.lane if facts.agents is not None else None
    turns = facts.settings.turns
    if lane is not None and turns > max(lane // 2, 1):
        yield warning(
            "lane",
            f"limits.turns is {turns}, more than half of the {lane} turns that the gateway runs at once: people wait",
            f"openclaw config set agents.defaults.maxConcurrent {2 * turns} --strict-json",
        )
