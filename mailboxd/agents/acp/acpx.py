"""The same turn through `acpx exec`, which prints the frames of both directions, one a line (measured on 0.19.1).

No outside approver can answer it: what is beyond the capabilities is denied, and named. Its exit status is 0 also for
a refusal and a cancelled turn, so what counts is the answer to the prompt among its frames. A crash of the harness
ends the stream without one.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from mailboxd.agents.acp import session_updates
from mailboxd.agents.acp.harness import Harness, Journal, Stop, TooLarge, Wire
from mailboxd.agents.acp.permissions import wish
from mailboxd.agents.acp.session_updates import Ended, Hearing
from mailboxd.agents.acp.turn_files import Order
from mailboxd.agents.json_output import at, brief, text_at

_KINDS = {
    "read": ("read", "search"),
    "edit": ("edit", "delete", "move"),
    "execute": ("execute",),
    "network": ("fetch",),
}
_NEVER = ("switch_mode", "other")
_LATER = 30
"""Seconds past ours after which its own clock stops it: it would not wait for the harness to confirm that."""


def argv(order: Order, prompt: Path) -> tuple[str, ...]:
    """The command of one turn. What was not given is denied by its kind, whatever its title says."""
    given = [kind for name, kinds in _KINDS.items() if name in order.capabilities for kind in kinds]
    denied = [kind for kinds in _KINDS.values() for kind in kinds if kind not in given]
    policy = {"autoApprove": [*given, "think"], "autoDeny": [*denied, *_NEVER], "defaultAction": "deny"}
    options = ("--agent", shlex.join(order.argv), "--format", "json", "--json-strict", "--cwd", order.cwd)
    limits = (
        "--timeout",
        str(order.timeout + _LATER),
        "--no-fs",
        "--no-terminal",
        "--permission-policy",
        json.dumps(policy),
    )
    return (*order.acpx, *options, *limits, "exec", "--file", str(prompt))


async def turn(acpx: Harness, order: Order, frames: Frames, stop: Stop, journal: Journal, run_id: str) -> Ended:
    """Read what it prints until it has ended. Never raises for anything that it may print."""
    read = asyncio.ensure_future(_read(acpx, frames, journal))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({read, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if late := not read.done():
        acpx.interrupt()  # it cancels the prompt
        await asyncio.wait({read}, timeout=order.grace / 2)
    with suppress(TooLarge):
        if read.done():
            await read
    return _judged(frames, stop, run_id, late)


def _judged(frames: Frames, stop: Stop, run_id: str, late: bool) -> Ended:
    reason = at(frames.answer, "result", "stopReason")
    if stop.received is not None and reason != "end_turn":
        return session_updates.stopped(stop.received, run_id, confirmed=reason == "cancelled" or not frames.prompted)
    if late and reason == "cancelled":
        return session_updates.timed_out(frames.heard, run_id)
    if reason is not None:
        return session_updates.result(reason, frames.heard, run_id, at(frames.answer, "result", "usage"))
    if frames.answer is not None:
        code = at(frames.answer, "error", "code")
        error = brief(text_at(frames.answer, "error", "message"))
        return session_updates.failed(code if isinstance(code, int) else 0, error, frames.heard, run_id)
    if not frames.prompted:
        return session_updates.not_begun(frames.problem or "acpx ended before it had sent the prompt")
    return session_updates.lost(frames.problem or "acpx ended without an answer", run_id)


class Frames:
    """What of the frames matters: which is the prompt, its answer, and what was denied."""

    def __init__(self, heard: Hearing, refused: list[str]) -> None:
        self.heard, self.refused = heard, refused
        self.answer: dict[str, Any] | None = None
        self.problem = ""
        self.prompted = False
        self._prompt: object = None
        self._asked: dict[object, tuple[dict[str, Any], object]] = {}

    def take(self, frame: dict[str, Any]) -> None:
        method, number = frame.get("method"), frame.get("id")
        if method == "session/prompt":
            self._prompt, self.prompted = number, True
            self.heard.session, self.heard.listening = text_at(frame, "params", "sessionId"), True
        elif method == "session/update":
            self.heard.update(frame.get("params"))
        elif method == "session/request_permission":
            tool = at(frame, "params", "toolCall")
            known = self.heard.tool(tool if isinstance(tool, dict) else {})
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
            self.refused.append(f"{wish(tool)} (acpx can ask nobody)")


async def _read(acpx: Harness, frames: Frames, journal: Journal) -> None:
    wire = Wire(await acpx.reader(), None, journal)
    while (frame := await wire.receive()) is not None:
        frames.take(frame)
