"""Check for `mailboxd doctor` whether a harness starts and speaks ACP: `initialize`, and nothing more."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.acp.harness import Harness, Journal, Stop
from mailboxd.agents.acp.permissions import Parking
from mailboxd.agents.acp.session_updates import Hearing
from mailboxd.agents.acp.transport import require_extra
from mailboxd.agents.acp.turn_files import Order
from mailboxd.agents.json_output import at, brief, text_at
from mailboxd.errors import ConfigError

_SECONDS = 30.0
_GOING = 1.0


@dataclass(frozen=True, slots=True)
class HarnessInfo:
    """What a harness says of itself; `problem` where it cannot be had."""

    name: str
    """Of the configuration."""
    problem: str = ""
    title: str = ""
    version: str = ""
    loads: bool = False
    """A session can be loaded again: it can be asked what became of a turn."""


def probe(name: str, argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> HarnessInfo:
    """Start it, greet it, end it. Raises nothing of the harness's."""
    try:
        require_extra()
        return asyncio.run(_probe(name, argv, cwd, environment))
    except OSError as error:
        return HarnessInfo(name, f"{argv[0]} cannot be run: {error.strerror}")
    except ConfigError as error:
        return HarnessInfo(name, str(error))


async def _probe(name: str, argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> HarnessInfo:
    from mailboxd.agents.acp.conversation import Conversation, NotBegun

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        order = Order(argv, cwd, "", "", "", (), timeout=0, grace=_GOING, patience=_SECONDS)
        harness = Harness.start(argv, cwd, folder, environment=environment)
        parking = Parking(folder, folder, (), cwd)
        talk = Conversation(order, folder, Hearing(), parking, Stop(_SECONDS, lambda: False), harness)
        journal = Journal(folder / "frames")
        try:
            await talk.open(journal)
            said = await talk.hello()
        except NotBegun as problem:
            return HarnessInfo(name, str(problem))
        finally:
            await talk.close()
            await harness.end(_GOING)
            journal.close()
    loads = at(said, "agentCapabilities", "loadSession") is True
    who = [brief(text_at(said, "agentInfo", key))[:100] for key in ("name", "version")]
    return HarnessInfo(name, "", who[0], who[1], loads)
