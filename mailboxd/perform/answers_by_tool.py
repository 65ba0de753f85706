"""Answers by tool: the file that tells the plugin which tools a turn has, and what has come of it.

Both are in `.mailboxd/answers/`, by a hash of the session's key; `templates/openclaw-plugin/turns.js` is the other
side, and says what the files are. The turn's file is durable before the turn is requested, so that a turn that a
gateway resumes has its tools again.

A kept call counts only if the run's own record holds it (`agents.answer_calls`). So the end of a turn that has kept one
is held back, its session is asked for, and then it is reported. A call that cannot be proven is none; the turn's text
is read as ever.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.outcomes import Aborted, Answer, Failed, Made, Outcome, Succeeded, Unclear, Unknown
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Turn
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Postponed, Reports
from mailboxd.errors import WorldError
from mailboxd.formats.mailbox.files import Stamp, directory, lstat, read_file, world_errors
from mailboxd.formats.mailbox.files import replace as replace_file
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.answer import Asked
from mailboxd.formats.protocol.answer_tools import AnswerTool, facts_for, read_call, said_by
from mailboxd.ledger.store import Order
from mailboxd.perform.agents.answer_calls import Claim, RefusedTooOften, Submitted, parse_claim, prove
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import at, parse_object, parse_text, text_at
from mailboxd.perform.agents.process import NotStarted
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

VERSION = 1
"""Of the files; the plugin's has to be the same."""
FOLDER = "answers"
_PLUGIN = "plugin.json"
_MOST_BYTES = 16 * 1024 * 1024
_MOST_MARK = 4096
_HISTORY = {"limit": 200, "maxChars": 500_000}
"""More than the turns of one piece of work leave in a session, and OpenClaw's largest text."""
_SECONDS = 60.0
_LATER = 3.0
"""Before the session is asked for once more."""
_TRIES = 100
"""How often it is asked for: a gateway that died is back within these five minutes, or the turn's text decides."""
_BY_TOOL = frozenset({Turn.WORK, Turn.SYNTHESIS, Turn.REVIEW})


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """A turn that has ended, and what the plugin has kept of it."""

    order: Order
    effect: RunTurn | LookUp
    how: Outcome
    claim: Claim


@dataclass(slots=True)
class AnswersByTool:
    """The tools of the turns of one workspace. `hides`: whether OpenClaw's configuration hides them from an agent."""

    engine: Engine
    calls: ProcessTable
    ws: Workspace
    gateway: GatewayCalls
    reports: Reports
    enabled: bool
    hides: Callable[[str], bool]
    report: Callable[[EndedTurn, Submitted | RefusedTooOften | None], object] = field(init=False)
    """What is reported of a turn once it is known what counts."""
    _mark: Stamp | None = None
    """That of the plugin when it was seen last."""
    _without: set[str] = field(default_factory=set)
    """Agents to whom the plugin has not offered the tools of a turn since then."""
    _offered: dict[str, str] = field(default_factory=dict)
    """The keys of the turns that have files, as far as this daemon knows, by turn."""
    _to_prove: list[EndedTurn] = field(default_factory=list)
    _proving: dict[str, EndedTurn] = field(default_factory=dict)
    """By call."""
    _tries: dict[str, int] = field(default_factory=dict)
    """By order."""
    _over: list[str] = field(default_factory=list)
    """The keys of the turns whose end the open transaction records."""

    # before a turn

    def are_for(self, effect: RunTurn) -> bool:
        """Whether a turn gets tools: it can be answered by them, and a plugin is there that offers them."""
        if not self.enabled or effect.turn not in _BY_TOOL or effect.harness or self.hides(effect.agent):
            return False
        mark = self._plugin()
        if mark != self._mark:
            self._mark = mark
            self._without.clear()
        return mark is not None and effect.agent.lower() not in self._without

    def offer(self, effect: RunTurn, local_id: str, tools: Sequence[AnswerTool], subtasks: Sequence[str]) -> None:
        """Tell the plugin which tools the turn has; durable when this returns. Raises WorldError."""
        said = {
            "version": VERSION,
            "token": effect.turn_id,
            "task": local_id,
            "attempt": effect.attempt_id,
            "kind": effect.turn,
            "tools": [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in tools],
            **facts_for(subtasks),
        }
        key = _key(effect.session_key)
        with world_errors(f"write the tools of a turn below {self.ws.state}"), self._folder() as fd:
            replace_file(fd, f"{key}.json", json.dumps(said, ensure_ascii=False).encode(), lambda: True)
        self._offered[effect.turn_id] = key

    def _plugin(self) -> Stamp | None:
        """The stamp of the plugin's mark, if it speaks of these files; None without one."""
        with suppress(OSError), self._folder() as fd:
            status = lstat(fd, _PLUGIN)
            stamp = None if status is None else Stamp.of(status)
            if stamp is None or stamp == self._mark:
                return stamp
            raw = read_file(fd, _PLUGIN, _MOST_MARK)
            return stamp if raw is not None and at(parse_text(raw), "version") == VERSION else None
        return None

    def _folder(self) -> Any:
        return directory(self.ws.root, self.ws.state.name, FOLDER)

    # after it

    def hold(self, order: Order, effect: RunTurn | LookUp, how: Outcome) -> bool:
        """Hold back the end of a turn until its session has been asked for; False if there is nothing to ask about."""
        if effect.turn not in _BY_TOOL or effect.harness or not _may_count(how):
            return False
        claim = self._claim(effect)
        if claim is None:
            return False
        self._offered[effect.turn_id] = _key(effect.session_key)  # an earlier daemon may have asked for it
        self._to_prove.append(EndedTurn(order, effect, how, claim))
        return True

    def _claim(self, effect: RunTurn | LookUp) -> Claim | None:
        with suppress(OSError), self._folder() as fd:
            raw = read_file(fd, f"{_key(effect.session_key)}.said.json", _MOST_BYTES)
            return None if raw is None else parse_claim(raw, effect.turn_id)
        return None

    def busy(self) -> set[str]:
        """The orders whose sessions are asked for."""
        return {one.order.id for one in (*self._to_prove, *self._proving.values())}

    def ask(self) -> None:
        """Ask for the sessions of turns that have ended, outside of any transaction, and remove files not needed."""
        waiting, self._to_prove = self._to_prove, []
        for one in waiting:
            self._ask(one)
        over, self._over = self._over, []
        if over:
            with suppress(OSError), self._folder() as fd:
                for key in over:
                    for name in (f"{key}.said.json", f"{key}.offered", f"{key}.json"):
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=fd)

    def _ask(self, one: EndedTurn) -> None:
        effect = one.effect
        call = Call(f"{one.order.id}.proof", CallKind.PROOF, "", f"proof:{effect.session_key}", _SECONDS, one.order)
        call.task, call.without_slot = one.order.task, True
        self.calls.discard(call.id)
        params = {"sessionKey": effect.session_key, **_HISTORY}
        argv, files = self.gateway.request("chat.history", params, int(_SECONDS))
        try:
            self.calls.start(call, argv, self.engine.clock.monotonic(), files=files)
        except (NotStarted, WorldError):
            self._again(one)
            return
        self._proving[call.id] = one

    def ended(self, call: Call, exit_: Exit) -> None:
        """Take a session, and report the turn; inside a batch."""
        one = self._proving.pop(call.id, None)
        self.calls.discard(call.id)
        if one is None:  # asked for by an earlier daemon; this one asks again
            return
        messages = at(parse_object(exit_), "messages")
        if exit_.rc == 0 and isinstance(messages, list):
            self._tries.pop(one.order.id, None)
            self.report(one, prove(one.claim, messages))
        else:
            self._again(one)

    def _again(self, one: EndedTurn) -> None:
        tries = self._tries[one.order.id] = self._tries.get(one.order.id, 0) + 1
        if tries < _TRIES:
            self.reports.append(Postponed(one.order.id, plus(self.engine.clock.now(), _LATER)))
        else:
            del self._tries[one.order.id]
            self.report(one, None)

    def recorded(self, effect: RunTurn | LookUp, how: Outcome) -> None:
        """The end of a turn is recorded: its files are not needed, and it is known whether its tools were offered."""
        if effect.turn not in _BY_TOOL or effect.harness or (isinstance(how, Unknown) and not how.looked_up):
            return
        key = self._offered.pop(effect.turn_id, None)
        if key is None:
            return
        if isinstance(how, Succeeded) and not self._was_offered(key, effect.turn_id):
            self._without.add(effect.agent.lower())
        self._over.append(key)

    def _was_offered(self, key: str, token: str) -> bool:
        with suppress(OSError), self._folder() as fd:
            return read_file(fd, f"{key}.offered", _MOST_MARK) == token.encode()
        return True  # it cannot be told

    def tidy(self, is_over: Callable[[str], bool]) -> None:
        """Remove the files of turns that are over, which a daemon that died has left."""
        with suppress(OSError), self._folder() as fd:
            names = os.listdir(fd)  # noqa: PTH208
            for name in names:
                key, _, rest = name.partition(".")
                if rest not in ("json", "said.json", "offered") or name == _PLUGIN:
                    continue
                if rest != "json" and f"{key}.json" in names:  # that one says whose they are
                    continue
                raw = read_file(fd, name, _MOST_BYTES) or b""
                token = raw.decode("utf-8", "replace") if rest == "offered" else text_at(parse_text(raw), "token")
                if token not in self._offered and is_over(token):
                    self._over.append(key)


def counted(how: Outcome, submitted: Submitted | RefusedTooOften | None) -> Outcome:
    """The outcome of a turn, with the answer that was submitted in the place of its text."""
    if isinstance(submitted, RefusedTooOften):
        said = "; ".join(submitted.problems)
        failed = Failed(f"the agent's answers were refused too often, the last one because of: {said}")
        if not isinstance(how, Succeeded | Failed):
            return failed
        return replace(failed, usage=how.usage, run_id=how.run_id, session_ref=how.session_ref, model=how.model)
    if submitted is None:
        return how
    said = said_by(submitted.call.tool, submitted.call.arguments)
    if isinstance(how, Succeeded):
        return replace(how, text=said, truncated=False)
    if isinstance(how, Failed):
        return Succeeded(said, how.usage, how.run_id, how.session_ref, model=how.model)
    return Succeeded(said, run_id=how.run_id if isinstance(how, Unknown) else None)


def read_submitted(submitted: Submitted, asked: Asked) -> Answer:
    """The answer that was submitted. Two different ones in one reply are none."""
    call, other = submitted.call, submitted.other
    if other is not None:
        problem = (
            f"Two different answers were submitted in one reply (`{call.tool}` and `{other.tool}`). Send only one."
        )
        return Unclear((problem,), said_by(call.tool, call.arguments))
    return read_call(call.tool, call.arguments, asked)


def beside(submitted: Submitted | RefusedTooOften | None) -> tuple[Made, ...]:
    """What the agent said beside its answer, as evidence."""
    if not isinstance(submitted, Submitted) or not submitted.beside:
        return ()
    return (Made("other", submitted.beside, "what the agent said beside its answer"),)


def _may_count(how: Outcome) -> bool:
    """Whether the run has ended in a way in which it can have submitted an answer."""
    if isinstance(how, Failed):
        return how.started
    return how.looked_up if isinstance(how, Unknown) else not isinstance(how, Aborted)


def _key(session_key: str) -> str:
    return hashlib.sha256(session_key.lower().encode()).hexdigest()[:32]
