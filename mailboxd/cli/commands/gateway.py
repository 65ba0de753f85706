"""`mailboxd connect gateway pair|status|unpair`: this workspace as a device of OpenClaw's gateway."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session
from mailboxd.errors import EXIT_NO, EXIT_TRY_AGAIN, MailboxdError, UnavailableError
from mailboxd.host import pip_extras

if TYPE_CHECKING:
    from mailboxd.formats.config import Config
    from mailboxd.perform.agents.gateway.client import DeviceStatus

_LARGEST_SECRET = 4_096
_SECRETS = ("OPENCLAW_GATEWAY_TOKEN", "OPENCLAW_GATEWAY_PASSWORD")


@click.group("gateway", cls=Group)
def gateway_command() -> None:
    """Pair this workspace with OpenClaw's gateway.

    One program then carries all turns over a WebSocket, instead of one `openclaw agent` process for each.
    """
    pip_extras.require("gateway")


@gateway_command.verb(
    "pair",
    "connect gateway pair",
    "connect gateway pair --token-file ~/.openclaw/token",
    "connect gateway pair --url wss://gateway.example",
    "connect gateway pair --questions",
    operator=True,
)
@click.option("--url", help="Default: the gateway in OpenClaw's configuration.")
@click.option("--token-file", metavar="FILE", help="The gateway's token or password (- is standard input).")
@click.option("--questions", is_flag=True, help="Also ask open questions in OpenClaw's chats (operator.questions).")
def _pair(session: Session, url: str | None, token_file: str | None, questions: bool) -> int | None:
    """Register this workspace as a device that may run turns (scope operator.write), and store its key and token.

    Needs the gateway's own token once, and does not keep it: from --token-file, OPENCLAW_GATEWAY_TOKEN or a prompt. A
    local gateway approves the device automatically unless configured otherwise.
    """
    from mailboxd.perform.agents.gateway.client import ApprovalPending, configured, pair
    from mailboxd.perform.agents.gateway.transport import QUESTIONS

    path, config = _pairing_file(session), session.config()
    url = url or configured(*session.openclaw())[0]
    more = (QUESTIONS,) if questions else ()
    found = pair(path, url, config.agent, _secret(token_file), session.clock, more)
    name, device = found.pairing.name, found.pairing.device.id
    if isinstance(found, ApprovalPending):
        facts = {"paired": False, "request": found.request, "device": device, "name": name, "url": found.pairing.url}
        remedy = [
            f"{found.pairing.url} requires an operator to approve {name}.",
            "On the gateway's host, within 5 minutes:",
            f"  openclaw devices approve {found.request}",
            session.runnable("then run `mailboxd connect gateway pair` again"),
        ]
        session.answer(facts, "\n".join(remedy))
        return EXIT_TRY_AGAIN
    session.answer(_facts(found, config), f"paired with {found.pairing.url} as {name}")
    change = "remove `openclaw.transport: cli` from .mailboxd/config.yaml and "
    session.tell(f"next: {change if config.openclaw.transport == 'cli' else ''}restart the daemon")
    return None


@gateway_command.verb(
    "status",
    "connect gateway status",
    exits={EXIT_NO: "turns cannot use the gateway"},
)
def _status(session: Session) -> int | None:
    """Connect as a turn would, and report whether this device may run turns."""
    from mailboxd.perform.agents.gateway import pairing
    from mailboxd.perform.agents.gateway.client import device_status

    path, config = _pairing_file(session), session.config()
    paired = pairing.read(path)
    if paired is None or paired.token is None:
        problem = session.runnable("not paired: run `mailboxd connect gateway pair`")
        session.answer({"paired": False, "works": False, "problem": problem}, problem)
        return EXIT_NO
    try:
        found = device_status(paired, session.clock)
    except MailboxdError as error:
        session.answer({"paired": True, "works": False, "problem": str(error)}, str(error))
        return EXIT_NO
    session.answer(_facts(found, config), f"{paired.url} (OpenClaw {found.version}) lets {paired.name} run turns")
    return None


@gateway_command.verb("unpair", "connect gateway unpair", operator=True)
def _unpair(session: Session) -> None:
    """Remove the device from OpenClaw (`openclaw devices remove`), then delete its key and token here."""
    from mailboxd.perform.agents.gateway import pairing
    from mailboxd.perform.agents.gateway.client import unpair

    path = _pairing_file(session)
    paired = pairing.read(path)
    if paired is None:
        raise UnavailableError("this workspace is not paired with a gateway")
    unpair(path, paired, *session.openclaw())
    facts = {"paired": False, "device": paired.device.id, "url": paired.url}
    session.answer(facts, f"{paired.url} no longer knows {paired.name}; its key is deleted")


def _pairing_file(session: Session) -> Path:
    from mailboxd.perform.agents.gateway.transport import pairing_file

    return pairing_file(session.workspace().root, os.environ)


def _secret(token_file: str | None) -> str:
    """The gateway's token or password, which is never an argument; empty if it needs none."""
    if token_file is not None:
        from mailboxd.cli.operator_actions import read_text

        return read_text(token_file, _LARGEST_SECRET).strip()
    return shared_secret(os.environ) or (ask_secret() if sys.stdin.isatty() else "")


def shared_secret(environ: Mapping[str, str]) -> str:
    """The gateway's token or password in the environment; empty if there is none."""
    return next(filter(None, (environ.get(name, "").strip() for name in _SECRETS)), "")


def ask_secret() -> str:
    """Ask the person at the terminal for it."""
    return str(click.prompt("The gateway's token or password", hide_input=True, default="", show_default=False))


def _facts(found: DeviceStatus, config: Config) -> dict[str, Any]:
    return {
        "paired": True,
        "works": True,
        "url": found.pairing.url,
        "openclaw": found.version,
        "device": found.pairing.device.id,
        "name": found.pairing.name,
        "scopes": list(found.scopes),
        "transport": config.openclaw.transport,
    }
