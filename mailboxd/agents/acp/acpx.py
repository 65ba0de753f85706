"""The same turn through `acpx exec`, which prints the frames of both directions, one per line (tested with 0.19.1).

It cannot ask an operator: whatever exceeds the capabilities is denied and listed. Its exit status is 0 even for a
refusal or a cancelled turn, so the answer to the prompt among the frames decides. A crash of the harness ends the
stream without one.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from mailboxd.agents.acp import session_updates
from mailboxd.agents.acp.harness import FrameTransport, Harness, Journal, Stop, TooLarge
from mailboxd.agents.acp.permissions import describe
from mailboxd.agents.acp.session_updates import SessionUpdates, TurnResult
from mailboxd.agents.acp.turn_files import TurnRequest
from mailboxd.agents.json_output import at, brief, text_at

_KINDS = {
    "read": ("read", "search"),
    "edit": ("edit", "delete", "move"),
    "execute": ("execute",),
    "network": ("fetch",),
}
_NEVER = ("switch_mode", "other")
_EXTRA_SECONDS = 30
"""Seconds added to the timeout of acpx, which would not wait for the harness to confirm a cancellation."""


def argv(request: TurnRequest, prompt: Path) -> tuple[str, ...]:
    """The command of one turn. What is not granted is denied by kind, whatever its title says."""
    given = [kind for name, kinds in _KINDS.items() if name in request.capabilities for kind in kinds]
    denied = [kind for kinds in _KINDS.values() for kind in kinds if kind not in given]
    policy = {"autoApprove": [*given, "think"], "autoDeny": [*denied, *_NEVER], "defaultAction": "deny"}
    options = ("--agent", shlex.join(request.argv), "--format", "json", "--json-strict", "--cwd", request.cwd)
    limits = (
        "--timeout",
        str(request.timeout + _EXTRA_SECONDS),
        "--no-fs",
        "--no-terminal",
        "--permission-policy",
        json.dumps(policy),
    )
    return (*request.acpx, *options, *limits, "exec", "--file", str(prompt))


async def turn(
    acpx: Harness, request: TurnRequest, frames: Frames, stop: Stop, journal: Journal, run_id: str
) -> TurnResult:
    """Read its frames until it ends. Raises nothing, whatever it prints."""
    read = asyncio.ensure_future(_read(acpx, frames, journal))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({read, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if interrupted := not read.done():
        acpx.interrupt()  # it cancels the prompt
        await asyncio.wait({read}, timeout=request.grace / 2)
    with suppress(TooLarge):
        if read.done():
            await read
    return _result(frames, stop, run_id, interrupted)


def _result(frames: Frames, stop: Stop, run_id: str, interrupted: bool) -> TurnResult:
    reason = at(frames.answer, "result", "stopReason")
    if stop.received is not None and reason != "end_turn":
        return session_updates.stopped(stop.received, run_id, confirmed=reason == "cancelled" or not frames.prompted)
    if interrupted and reason == "cancelled":
        return session_updates.timed_out(frames.updates, run_id)
    if reason is not None:
        return session_updates.completed(reason, frames.updates, run_id, at(frames.answer, "result", "usage"))
    if frames.answer is not None:
        code = at(frames.answer, "error", "code")
        error = brief(text_at(frames.answer, "error", "message"))
        return session_updates.failed(code if isinstance(code, int) else 0, error, frames.updates, run_id)
    if not frames.prompted:
        return session_updates.not_started(frames.problem or "acpx ended before it sent the prompt")
    return session_updates.lost(frames.problem or "acpx ended without an answer", run_id)


class Frames:
    """Extracts the prompt, its answer, and what was denied."""

    def __init__(self, updates: SessionUpdates, refused: list[str]) -> None:
        self.updates, self.refused = updates, refused
        self.answer: dict[str, Any] | None = None
        self.problem = ""
        self.prompted = False
        self._prompt: object = None
        self._asked: dict[object, tuple[dict[str, Any], object]] = {}

    def take(self, frame: dict[str, Any]) -> None:
        method, number = frame.get("method"), frame.get("id")
        if method == "session/prompt":
            self._prompt, self.prompted = number, True
            self.updates.session, self.updates.listening = text_at(frame, "params", "sessionId"), True
        elif method == "session/update":
            self.updates.update(frame.get("params"))
        elif method == "session/request_permission":
            tool = at(frame, "params", "toolCall")
            known = self.updates.tool(tool if isinstance(tool, dict) else {})
            self._asked[number] = known, at(frame, "params", "options")
        elif (outcome := at(frame, "result", "outcome")) is not None and number in self._asked:
            self._answered(*self._asked.pop(number), at(outcome, "optionId"))
        elif method is None and self.prompted and number == self._prompt:  # both sides count their requests from 0
            self.answer = frame
        elif "error" in frame:
            self.problem = brief(text_at(frame, "error", "message"))

    def _answered(self, tool: dict[str, Any], options: object, chosen: object) -> None:
        offered = [item for item in options if isinstance(item, dict)] if isinstance(options, list) else []
        kind = next((text_at(item, "kind") for item in offered if item.get("optionId") == chosen), "")
        if not kind.startswith("allow"):
            self.refused.append(f"{describe(tool)} (acpx cannot ask for approval)")


async def _read(acpx: Harness, frames: Frames, journal: Journal) -> None:
    wire = FrameTransport(await acpx.reader(), None, journal)
    while (frame := await wire.receive()) is not None:
        frames.take(frame)
