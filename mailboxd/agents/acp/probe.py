"""Whether a harness starts and speaks ACP, for `mailboxd doctor`: `initialize` and nothing more."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.acp.harness import Harness, Journal, Stop
from mailboxd.agents.acp.permissions import PermissionQueue
from mailboxd.agents.acp.session_updates import SessionUpdates
from mailboxd.agents.acp.transport import require_extra
from mailboxd.agents.acp.turn_files import TurnRequest
from mailboxd.agents.json_output import at, brief, text_at
from mailboxd.errors import ConfigError

_PROBE_SECONDS = 30.0
_PROBE_EXIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HarnessInfo:
    """What a harness reports about itself; `problem` says why it cannot be used."""

    name: str
    """As configured."""
    problem: str = ""
    title: str = ""
    version: str = ""
    loads: bool = False
    """It can load a session, so it can be asked about an interrupted turn."""


def probe(name: str, argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> HarnessInfo:
    """Start a harness, initialize it, end it. Raises nothing for what the harness does."""
    try:
        require_extra()
        return asyncio.run(_probe(name, argv, cwd, environment))
    except OSError as error:
        return HarnessInfo(name, f"{argv[0]} cannot be run: {error.strerror}")
    except ConfigError as error:
        return HarnessInfo(name, str(error))


async def _probe(name: str, argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> HarnessInfo:
    from mailboxd.agents.acp.conversation import Conversation, SetupFailed  # needs the extra

    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        request = TurnRequest(argv, cwd, "", "", "", (), timeout=0, grace=_PROBE_EXIT_SECONDS, patience=_PROBE_SECONDS)
        harness = Harness.start(argv, cwd, folder, environment=environment)
        permissions = PermissionQueue(folder, folder, (), cwd)
        talk = Conversation(
            request, folder, SessionUpdates(), permissions, Stop(_PROBE_SECONDS, lambda: False), harness
        )
        journal = Journal(folder / "frames")
        try:
            await talk.open(journal)
            answer = await talk.initialize()
        except SetupFailed as problem:
            return HarnessInfo(name, str(problem))
        finally:
            await talk.close()
            await harness.end(_PROBE_EXIT_SECONDS)
            journal.close()
    loads = at(answer, "agentCapabilities", "loadSession") is True
    title, release = [brief(text_at(answer, "agentInfo", key))[:100] for key in ("name", "version")]
    return HarnessInfo(name, "", title, release, loads)
