"""The program that carries the turns of one workspace over one WebSocket: `python -m mailboxd.perform.agents.gateway`.

The daemon starts it with a listening socket. Each connection is for one turn, or one other request, and brings its
order and the locked mark of its directory (see `transport`). What the turn leaves there is what `openclaw agent --json`
leaves:

    exit status 0    the run ended with status "ok"; stdout is the gateway's result
    exit status 1    anything else: the result, or {"ok": false, "error": {"message"}}, with `runId` once accepted
    143              stopped; stderr says so if the gateway did not confirm the abort

Error messages are OpenClaw's where it has one, since `agents.outcome` reads them. Two more say that the gateway refused
before accepting anything: "Gateway refused the turn" and "Gateway cannot start the turn now".

**Nothing is sent twice.** A turn whose connection broke, or that an earlier program carried, is asked about instead: by
its idempotency key, in the name of an agent that does not exist. A gateway that knows the key answers before it looks
at the agent, `in_flight` or (for five minutes) with the stored result. One that does not know it, because it was
restarted or never asked, can only refuse.

**A gateway that died resumes its turns by itself.** Then the session says what becomes of the turn (see `recovery`): it
is waited for without a limit, judged again whenever its session changes, and requested again, under another idempotency
key, if it never began. The mark says how far that is, for the daemon. Only a gateway that no longer lets this program
in leaves the outcome unknown.

**Any other request** (`Errand`) is sent once. Its answer is the payload in stdout and exit status 0, or the gateway's
error and exit status 1. One whose connection broke ends with exit status 1 and is sent again by whoever ordered it,
which must do no harm.

It ends when nothing is in flight and no daemon is connected, or after ten minutes without either. On SIGTERM it aborts
all turns and ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from mailboxd.errors import MailboxdError
from mailboxd.host.clock import Clock, SystemClock
from mailboxd.host.wakeup import pipe
from mailboxd.perform.agents import last_tool
from mailboxd.perform.agents.alive import record
from mailboxd.perform.agents.call_dir import LOOKED_UP, PROMPT, TurnResult, open_regular, put
from mailboxd.perform.agents.gateway import pairing, recovery
from mailboxd.perform.agents.gateway.client import (
    Client,
    Closed,
    NotConnected,
    Problem,
    Rejected,
    Response,
    SessionChanged,
    ToolUsed,
)
from mailboxd.perform.agents.gateway.recovery import RecoveryStage
from mailboxd.perform.agents.gateway.transport import DROP, Mark, note, parse_address, parse_order, socket_path
from mailboxd.perform.agents.json_output import parse_text, text_at
from mailboxd.perform.agents.transcript import Said, said_in_wait

EXTRA_SECONDS = 30.0
"""Added to a turn's timeout when waiting for the gateway, as OpenClaw's CLI does."""
IDLE_SECONDS = 600.0
RECONNECT_SECONDS = 10.0
"""For how long a connection is tried again for turns that have not been requested; those that may run wait for it."""
RECONNECT_PAUSE = 0.5
_LONGEST_PAUSE = 3.0
RECOVERY_PAUSE = 30.0
"""Seconds after which a turn that is being recovered is judged again without a word of its session."""
_SETTLE = 0.2
"""Seconds after a change of a session before it is asked: changes come several at a time."""
_REQUESTS = 5
"""How often a turn is requested at most, by gateways that die before it begins."""
_ABANDONED_SECONDS = 3600.0
"""For how long the resumption of a turn that was stopped before it is awaited, to abort it."""
_ABORT_SECONDS = 2.0
_ABORT_PAUSE = 0.15
_ABORT_TRIES = 5
_ASK_PAUSE = 1.0
"""Before asking again about a run that has ended or waits in the gateway's queue."""
NOBODY = "mailboxd-only-asks"
"""The agent named in questions about a turn. No such agent exists, so nothing can run in its name."""
_PROMPT_ECHO = "finalPromptText"
"""The whole prompt, in `result.meta`: up to 25 MB that are not needed."""
_REFUSALS = ("INVALID_REQUEST", "FORBIDDEN", "UNAVAILABLE")
_PERMANENT = ("invalid agent params", "missing scope")
_LOST = (
    "The request was already sent to the gateway, so the turn may run although no answer arrived; "
    "its outcome is unknown."
)
STOPPED = 128 + signal.SIGTERM
_KILLED = -int(signal.SIGKILL)
_ORDER_BYTES = 65_536
_NEVER = float("inf")


class Request(StrEnum):
    """The requests of a turn, by the gateway's method."""

    RUN = "agent"
    ASK = "agent?"
    WAIT = "agent.wait"
    ABORT = "chat.abort"
    JUDGE = "chat.history"
    REPLY = "agent.wait?"


@dataclass(eq=False, slots=True, kw_only=True)
class Carried:
    """What the daemon ordered. Its times are on the monotonic clock."""

    directory: str
    timeout: int
    until: float
    """When the gateway is waited for no longer."""
    mark: int
    """The locked descriptor; it is closed last."""
    connection: socket.socket | None = None
    """The daemon's; None once that has gone."""
    is_requested: bool = False
    """On this connection to the gateway."""


@dataclass(eq=False, slots=True, kw_only=True)
class Errand(Carried):
    """A request in flight that is no turn."""

    method: str


@dataclass(eq=False, slots=True, kw_only=True)
class RunningTurn(Carried):
    """A turn in flight."""

    agent: str
    session_key: str
    may_run: bool
    """It was requested, now or by an earlier program: from then on it is only asked about."""
    run_id: str | None
    """Known once the gateway has accepted it."""
    is_stopping: bool = False
    aborts: int = 0
    due: float = _NEVER
    """When the next abort or question is to be sent."""
    stage: RecoveryStage | None = None
    """How far the gateway's recovery of it is; None if the gateway has it."""
    requests: int = 1
    """How often it was requested, or will have been."""
    asks_about: str = ""
    """The lost run that this only asks about; empty: it is a turn."""
    tool: ToolUsed | None = None
    """The last that it has used, as far as the gateway has said."""
    answers: tuple[str, Said | None] | None = None
    """The run that has ended well, and what the transcript has of its answer, while the run itself is asked."""

    @property
    def key(self) -> str:
        """The idempotency key, which becomes the run's id: the call's. A turn that never began needs another one."""
        return self.asks_about or request_key(self.directory, self.requests)


@dataclass(slots=True)
class Program:
    """The turns of one workspace; `listener`, at the path `address`, is where the daemon orders them."""

    listener: socket.socket
    address: Path
    pairing: Path
    clock: Clock
    turns: dict[str, RunningTurn] = field(default_factory=dict)
    """By directory."""
    errands: dict[str, Errand] = field(default_factory=dict)
    """By directory."""
    client: Client | None = None
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _requests: dict[str, tuple[Request, RunningTurn]] = field(default_factory=dict)
    """The kind and turn of each request that has no final answer, by its id."""
    _sent: dict[str, Errand] = field(default_factory=dict)
    """The errands that have no answer, by the request's id."""
    _daemons: int = 0
    """Connections that are open."""
    _broken_at: float | None = None
    """When the connection broke, until there is another or it is given up."""
    _connect_at: float = 0.0
    _pause: float = RECONNECT_PAUSE
    """Seconds until the next try to connect, after one that failed."""
    _busy_at: float = 0.0
    _is_stopping: bool = False
    _subscribed: bool = False
    """To changes of sessions, on this connection."""
    _abandoned: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Sessions whose turn was stopped before the gateway resumed it: the agent, and until when that is awaited."""
    _late_aborts: dict[str, str] = field(default_factory=dict)
    """Their sessions, by the request to abort what runs there."""

    def run(self) -> None:
        """Carry turns until there is nothing left to do."""
        self._selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self._busy_at = self.clock.monotonic()
        self._wait(IDLE_SECONDS)  # for the daemon
        self._connect()
        self._carry()
        # Who comes from now on starts another program; the turns of those who had already come are carried.
        self._hide()
        while self._wait(0.0):
            self._carry()
        if self.client is not None:
            self.client.close()

    def _carry(self) -> None:
        while (
            self._carried or self._awaits_resumptions or (self._daemons and not self._is_stopping and not self._is_idle)
        ):
            self._advance()
            self._wait(self._next() - self.clock.monotonic())

    def stop_on(self, number: signal.Signals) -> None:
        """Take no more turns after this signal, abort all, then end."""
        reader, writer = pipe()
        self._selector.register(reader, selectors.EVENT_READ, lambda: os.read(reader, 64))
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(number, lambda *_: self._stop_soon())

    def _stop_soon(self) -> None:
        self._is_stopping = True

    @property
    def _carried(self) -> list[Carried]:
        return [*self.turns.values(), *self.errands.values()]

    @property
    def _is_idle(self) -> bool:
        return self.clock.monotonic() - self._busy_at >= IDLE_SECONDS

    @property
    def _awaits_resumptions(self) -> bool:
        return bool(self._abandoned) and not self._is_stopping

    def _next(self) -> float:
        """When there is something to do, at the latest."""
        if not (carried := self._carried):
            ends = [until for _, until in self._abandoned.values()]
            return min([self._busy_at + IDLE_SECONDS, *ends, *([self._connect_at] if ends and not self.client else [])])
        until = min(one.until for one in carried)
        due = (
            self._connect_at if self.client is None else min((turn.due for turn in self.turns.values()), default=until)
        )
        return min(until, due)

    def _wait(self, seconds: float) -> bool:
        """Do what comes within so many seconds; returns whether anything came."""
        ready = self._selector.select(min(max(seconds, 0.0), IDLE_SECONDS))
        for key, _ in ready:
            key.data()
        return bool(ready)

    def _advance(self) -> None:
        """Do what is due."""
        if self._carried:
            self._busy_at = self.clock.monotonic()
        if self._is_stopping:
            self._hide()
            if self.listener.fileno() >= 0:
                self._selector.unregister(self.listener)
                self.listener.close()
            for one in self._carried:
                self._stop(one)
        now = self.clock.monotonic()
        self._abandoned = {key: told for key, told in self._abandoned.items() if now < told[1]}
        needed = bool(self._carried) or self._awaits_resumptions
        if self.client is None and needed and self.clock.monotonic() >= self._connect_at:
            self._connect()
        self._subscribe()
        now = self.clock.monotonic()
        for errand in list(self.errands.values()):
            if now >= errand.until:
                self._end(errand, TurnResult.failure(_too_late(errand)))
        for turn in list(self.turns.values()):
            if now >= turn.until:
                self._end(turn, lost(_too_late(turn), turn.run_id))
            elif now >= turn.due and self.client is not None:
                turn.due = _NEVER
                if turn.is_stopping:
                    self._abort(turn)
                elif turn.stage is None:
                    self._ask(turn)
                else:
                    self._judge(turn)

    # the daemon's side

    def _hide(self) -> None:
        """Be found by nobody any more, unless a listener that was closed has made room for another program's."""
        if self.listener.fileno() >= 0:
            self.address.unlink(missing_ok=True)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self._daemons += 1
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._take(connection))

    def _take(self, connection: socket.socket) -> None:
        """Take the order that a connection brings."""
        try:
            raw, marks, _, _ = socket.recv_fds(connection, _ORDER_BYTES, 1)
        except OSError:
            raw, marks = b"", []
        if not raw:
            self._leave(connection)
            return
        line, _, more = raw.partition(b"\n")
        directory, again = parse_order(line)
        one: Carried | None = self.turns.get(directory) or self.errands.get(directory)
        if one is None and marks and not self._is_stopping:
            one = self._begin(directory, marks.pop(), again=again)
        for mark in marks:
            os.close(mark)
        if one is None:  # it has ended, or was never here: its directory says which
            self._leave(connection)
            return
        if one.connection is not None:
            self._leave(one.connection)
        one.connection = connection
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._obey(one, connection))
        if more:
            self._carry_out(one, more)
        elif self.client is not None and not one.is_requested:
            self._request(one)

    def _begin(self, directory: str, mark: int, *, again: bool) -> Carried | None:
        known = Mark.read(directory)
        if known.is_errand:
            _, method, patience = known.argv
            until = self.clock.monotonic() + int(patience)
            errand = Errand(directory=directory, timeout=int(patience), until=until, mark=mark, method=method)
            record(mark, os.getpid())
            self.errands[directory] = errand
            return errand
        if not known.is_turn:
            os.close(mark)
            return None
        _, agent, session_key, timeout, *lost = known.argv
        until = self.clock.monotonic() + _patience(int(timeout))
        turn = RunningTurn(
            directory=directory, timeout=int(timeout), until=until, mark=mark,
            agent=agent, session_key=session_key, may_run=again, run_id=known.run_id,
        )  # fmt: skip
        turn.requests = known.requests
        turn.asks_about = next(iter(lost), "")
        self._abandoned.pop(session_key, None)
        record(mark, os.getpid())
        self.turns[directory] = turn
        return turn

    def _obey(self, one: Carried, connection: socket.socket) -> None:
        if one.connection is not connection:
            return  # it was closed by what happened just before
        try:
            said = connection.recv(16)
        except OSError:
            said = b""
        if not said:  # the daemon has gone; the next one connects again
            one.connection = None
            self._leave(connection)
        else:
            self._carry_out(one, said)

    def _carry_out(self, one: Carried, said: bytes) -> None:
        if said.endswith(DROP):  # a `stop` may stand before it
            self._end(one, TurnResult(_KILLED))
        else:
            self._stop(one)

    def _leave(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        self._daemons -= 1

    def _end(self, one: Carried, result: TurnResult) -> None:
        """Leave the result in its directory: the output first, then the status that makes it valid."""
        self.turns.pop(one.directory, None)
        self.errands.pop(one.directory, None)
        try:
            for name, raw in result.files:
                put(f"{one.directory}/{name}", raw)
            note(one.mark, {"status": result.status})
        except OSError as problem:  # without a status the daemon asks about it again
            print(f"{one.directory}: {problem}", file=sys.stderr, flush=True)
        os.close(one.mark)
        if one.connection is not None:
            self._leave(one.connection)
            one.connection = None

    # the gateway's side

    def _connect(self) -> None:
        """Connect, and request what waits; or give that up."""
        now = self.clock.monotonic()
        try:
            self.client = _client(self.pairing, self.clock)
        except Unreachable as problem:
            was_there = self._broken_at is not None and now - self._broken_at < RECONNECT_SECONDS
            for turn in list(self.turns.values()):
                if turn.may_run and not problem.is_final:
                    self._is_recovered(turn, RecoveryStage.AWAY)
                elif turn.may_run:
                    self._end(turn, lost(str(problem), turn.run_id))
                elif problem.is_final or not was_there:
                    self._end(turn, TurnResult.failure(str(problem)))
            for errand in list(self.errands.values()):
                self._end(errand, TurnResult.failure(str(problem)))
            self._connect_at = self.clock.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return
        self._broken_at, self._pause = None, RECONNECT_PAUSE
        self._selector.register(self.client, selectors.EVENT_READ, self._receive)
        for key in self._abandoned:
            self._on_change(key)
        for one in self._carried:
            if self.client is not None:  # else it has just broken again
                self._request(one)

    def _on_closed(self, end: Closed) -> None:
        """The connection broke: turns that may run are asked about on the next one."""
        if self.client is not None:
            self._selector.unregister(self.client)
            self.client.close()
            self.client = None
        self._requests.clear()
        self._sent.clear()
        self._late_aborts.clear()
        self._subscribed = False
        self._broken_at = self._connect_at = self.clock.monotonic()
        for turn in list(self.turns.values()):
            turn.is_requested, turn.due = False, _NEVER
            if turn.is_stopping:
                self._end(turn, _unconfirmed(turn, _closed(end)))
        for errand in list(self.errands.values()):
            if errand.is_requested:
                self._end(errand, TurnResult.failure(_closed(end)))

    def _receive(self) -> None:
        """Take all answers that have arrived."""
        try:
            while self.client is not None and (said := self.client.receive(0.0)) is not None:
                if isinstance(said, SessionChanged):
                    self._on_change(said.key)
                elif isinstance(said, ToolUsed):
                    self._on_tool(said)
                else:
                    self._handle(said)
        except Closed as end:
            self._on_closed(end)

    def _on_tool(self, used: ToolUsed) -> None:
        """Leave the tool where a person looks for it. Nothing depends on it, so it is not made durable."""
        for turn in self.turns.values():
            if used.session_key == turn.session_key and turn.tool != used:
                turn.tool = used
                with suppress(OSError):
                    last_tool.leave(turn.directory, used.name, self.clock.now())

    def _send(self, turn: RunningTurn, kind: Request, params: Mapping[str, object]) -> None:
        if self.client is None:
            return
        request_id, frame = self.client.request(kind.removesuffix("?"), params)
        if size := self._too_large(frame):
            self._end(turn, TurnResult.failure(f"Gateway refused the turn: its message is {size}"))
            return
        self._requests[request_id] = (kind, turn)
        turn.may_run = turn.is_requested = True
        self._transmit(frame)

    def _tell(self, method: str, params: Mapping[str, object]) -> str:
        """Send a request that is about no turn; returns its id, which is empty without a connection."""
        if self.client is None:
            return ""
        request_id, frame = self.client.request(method, params)
        self._transmit(frame)
        return request_id

    def _send_errand(self, errand: Errand) -> None:
        try:
            params = parse_text(_message(errand.directory))
        except Unreadable as problem:
            self._end(errand, TurnResult.failure(str(problem)))
            return
        if self.client is None or not isinstance(params, dict):
            self._end(errand, TurnResult.failure("its parameters are no JSON object"))
            return
        request_id, frame = self.client.request(errand.method, params)
        if size := self._too_large(frame):
            self._end(errand, TurnResult.failure(f"the request is {size}"))
            return
        self._sent[request_id] = errand
        errand.is_requested = True
        self._transmit(frame)

    def _too_large(self, frame: str) -> str:
        """Why the gateway would refuse this frame; empty if it fits."""
        size, most = len(frame.encode()), self.client.largest_frame if self.client is not None else 0
        return f"a frame of {size} bytes; the limit is {most}" if size > most else ""

    def _transmit(self, frame: str) -> None:
        try:
            if self.client is not None:
                self.client.send(frame)
        except Closed as end:
            self._on_closed(end)

    def _request(self, one: Carried) -> None:
        """Request a turn, or ask about one that may run; run an errand."""
        if isinstance(one, Errand):
            self._send_errand(one)
        elif isinstance(one, RunningTurn):
            self._request_turn(one)

    def _request_turn(self, turn: RunningTurn) -> None:
        if turn.may_run:
            self._ask(turn)
            return
        try:
            message = _message(turn.directory)
        except Unreadable as problem:
            self._end(turn, TurnResult.failure(str(problem)))
            return
        params = {"agentId": turn.agent, "sessionKey": turn.session_key, "timeout": turn.timeout}
        self._send(turn, Request.RUN, {"message": message, **params, "deliver": False, "idempotencyKey": turn.key})

    def _ask(self, turn: RunningTurn) -> None:
        params = {"message": "?", "agentId": NOBODY, "deliver": False, "idempotencyKey": turn.key}
        self._send(turn, Request.ASK, params)

    def _stop(self, one: Carried) -> None:
        if not isinstance(one, RunningTurn):
            self._end(one, TurnResult(STOPPED))
            return
        turn = one
        if turn.is_stopping:
            return
        if turn.asks_about:  # the run itself goes on
            self._end(turn, TurnResult(STOPPED))
            return
        turn.is_stopping, turn.due = True, self.clock.monotonic()
        if not turn.may_run:
            self._end(turn, TurnResult(STOPPED))
        elif self.client is None:
            self._end(turn, _unconfirmed(turn, "not connected"))

    def _abort(self, turn: RunningTurn) -> None:
        if turn.aborts == _ABORT_TRIES:
            if turn.stage is not None:
                self._abandoned[turn.session_key] = turn.agent, self.clock.monotonic() + _ABANDONED_SECONDS
                self._on_change(turn.session_key)
            self._end(turn, _unconfirmed(turn))
            return
        turn.aborts += 1
        turn.due = self.clock.monotonic() + _ABORT_SECONDS
        params = {"sessionKey": turn.session_key, "agentId": turn.agent}
        if turn.stage is None:  # else it is resumed under a run of another name
            params["runId"] = turn.run_id or turn.key
        self._send(turn, Request.ABORT, params)

    def _handle(self, response: Response) -> None:
        if (key := self._late_aborts.pop(response.id, None)) is not None and is_aborted(response, None):
            self._abandoned.pop(key, None)
        if (errand := self._sent.pop(response.id, None)) is not None and errand.directory in self.errands:
            self._end(errand, outcome_of(response))
            return
        kind, turn = self._requests.get(response.id, (None, None))
        if kind is None or turn is None:
            return
        if kind is Request.RUN and response.payload.get("status") == "accepted":
            self._accepted(turn, response)
            return  # the result follows
        del self._requests[response.id]
        if self.turns.get(turn.directory) is not turn:
            return  # it was given up
        match kind:
            case Request.RUN | Request.ASK if response.payload.get("status") == "in_flight":
                self._accepted(turn, response)
                self._is_recovered(turn, None)
                seconds = turn.until - self.clock.monotonic()
                self._send(turn, Request.WAIT, {"runId": turn.run_id or turn.key, "timeoutMs": int(seconds * 1000)})
            case Request.RUN:
                self._finish(turn, result(response, turn.run_id))
            case Request.ASK if is_unknown(response):
                self._judge(turn)
            case Request.ASK:
                self._finish(turn, answer(response, turn.run_id))
            case Request.JUDGE if not turn.is_stopping:
                self._take_session(turn, response)
            case Request.REPLY if not turn.is_stopping:
                self._take_reply(turn, response)
            case Request.WAIT if not turn.is_stopping:
                turn.due = self.clock.monotonic() + _ASK_PAUSE
            case Request.ABORT if is_aborted(response, None if turn.stage else turn.run_id or turn.key):
                self._end(turn, TurnResult(STOPPED))
            case Request.ABORT:
                turn.due = self.clock.monotonic() + _ABORT_PAUSE
            case _:
                pass

    def _accepted(self, turn: RunningTurn, response: Response) -> None:
        run_id = text_at(response.payload, "runId") or None
        if run_id is not None and turn.run_id is None and self.turns.get(turn.directory) is turn:
            turn.run_id = run_id
            with suppress(OSError):
                note(turn.mark, {"run_id": run_id})

    # a gateway that has died since

    def _is_recovered(self, turn: RunningTurn, stage: RecoveryStage | None) -> None:
        """Note how far the recovery of a turn is; None: it is over, and its time begins anew."""
        if turn.stage is stage:
            return
        turn.stage = stage
        turn.until = _NEVER if stage is not None else self.clock.monotonic() + _patience(turn.timeout)
        with suppress(OSError):
            note(turn.mark, {"stage": stage.name if stage is not None else "", "mono": self.clock.monotonic()})

    def _judge(self, turn: RunningTurn) -> None:
        """Ask what the turn's session says of it."""
        if turn.stage in (None, RecoveryStage.AWAY):
            self._is_recovered(turn, RecoveryStage.UNCLEAR)
        self._subscribe()
        self._send(turn, Request.JUDGE, {"sessionKey": turn.session_key, "limit": recovery.HISTORY})

    def _subscribe(self) -> None:
        """Hear of changes of sessions while there is a turn that the gateway recovers, and not otherwise."""
        wanted = self._awaits_resumptions or any(turn.stage is not None for turn in self.turns.values())
        if self.client is not None and wanted is not self._subscribed:
            self._subscribed = wanted
            self._tell("sessions.subscribe" if wanted else "sessions.unsubscribe", {})

    def _on_change(self, key: str) -> None:
        soon = self.clock.monotonic() + _SETTLE
        for turn in self.turns.values():
            if turn.session_key == key and turn.stage is not None and not turn.is_stopping:
                turn.due = min(turn.due, soon)
        if self.client is not None and (abandoned := self._abandoned.get(key)) is not None:
            # whatever runs in it: the run that resumes the turn has another name
            request_id = self._tell("chat.abort", {"sessionKey": key, "agentId": abandoned[0]})
            self._late_aborts[request_id] = key

    def _take_session(self, turn: RunningTurn, response: Response) -> None:
        if response.problem is not None:
            self._end(turn, lost(f"the gateway does not show its session: {response.problem.message}", turn.run_id))
            return
        match recovery.judge(recovery.parse_session(response.payload, turn.key)):
            case recovery.Wait(stage):
                self._is_recovered(turn, stage)
                turn.due = min(turn.due, self.clock.monotonic() + RECOVERY_PAUSE)
            case recovery.SendAgain():
                self._request_again(turn)
            case recovery.Answered(run_id, said):
                self._end(turn, answered(run_id, said))
            case recovery.AskRun(run_id, said):
                turn.answers = run_id, said
                self._send(turn, Request.REPLY, {"runId": run_id, "timeoutMs": 0})
            case recovery.Ended(error):
                self._end(turn, failed(turn.key, error))
            case recovery.Undecided(error, harmless):
                self._end(turn, undecided(turn.key, error, harmless=harmless))

    def _request_again(self, turn: RunningTurn) -> None:
        """Request a turn that never began, under another key: the gateway refuses one that it had accepted."""
        if turn.asks_about:
            self._end(turn, TurnResult.failure("Gateway cannot start the turn now: it died before the turn had begun"))
            return
        if turn.requests >= _REQUESTS:
            said = f"the gateway died {turn.requests} times before the turn had begun"
            self._end(turn, TurnResult.failure(f"Gateway cannot start the turn now: {said}"))
            return
        turn.requests, turn.may_run, turn.run_id = turn.requests + 1, False, None
        with suppress(OSError):
            note(turn.mark, {"requests": turn.requests})
        self._is_recovered(turn, None)
        self._request_turn(turn)

    def _take_reply(self, turn: RunningTurn, response: Response) -> None:
        """Take the answer of a run that has ended: what it says itself, else what the transcript has."""
        run_id, known = turn.answers or (turn.key, None)
        said = said_in_wait(response.payload)
        if said is not None and (said.cut and known is not None):
            said = known if len(known.text) > len(said.text) else said
        if said is not None and known is not None:
            said = replace(said, model=known.model)  # only the transcript says it
        if (said or known) is None:
            error = "the gateway died during the turn; OpenClaw resumed it, and its answer is gone"
            self._end(turn, undecided(run_id, error, harmless=False))
        else:
            self._end(turn, answered(run_id, said or known))

    def _finish(self, turn: RunningTurn, ended: TurnResult) -> None:
        # a run that succeeded before the abort counts as succeeded
        self._end(turn, ended if not turn.is_stopping or ended.status == 0 else TurnResult(STOPPED))


# The meaning of the gateway's answers


def outcome_of(response: Response) -> TurnResult:
    """The end of a request that is no turn."""
    problem = response.problem
    return (
        TurnResult(0, response.payload) if problem is None else TurnResult.failure(f"{problem.code}: {problem.message}")
    )


def result(response: Response, run_id: str | None) -> TurnResult:
    """The end of a turn that was requested; `run_id` if the gateway had accepted it."""
    problem, payload = response.problem, response.payload
    if problem is None:
        return TurnResult(0 if payload.get("status") == "ok" else 1, _without_echo(payload))
    run_id = text_at(payload, "runId") or run_id
    return _failure(_refusal(problem) if run_id is None else problem.message, run_id)


def answer(response: Response, run_id: str | None) -> TurnResult:
    """The end of a turn that was asked about."""
    if response.problem is None:
        return result(response, run_id)
    stored = text_at(response.payload, "runId") or run_id
    return lost(response.problem.message, None) if stored is None else _failure(response.problem.message, stored)


def is_unknown(response: Response) -> bool:
    """Whether the gateway does not know the turn it was asked about: it was restarted, or the run ended long ago."""
    return response.problem is not None and NOBODY in response.problem.message


def is_aborted(response: Response, run: str | None) -> bool:
    """Whether the gateway confirms that it aborted this run; None: whatever ran in the session."""
    runs = response.payload.get("runIds")
    is_it = run is None or not isinstance(runs, list) or run in runs
    return response.payload.get("aborted") is True and is_it


def answered(run_id: str, said: Said | None) -> TurnResult:
    """A turn that ended well under this run, as the gateway reports one; its usage is not known."""
    text, stop = (said.text, "length" if said.cut else "stop") if said is not None else ("", "stop")
    meta = {"stopReason": stop, "agentMeta": {"model": None if said is None else said.model}}
    return TurnResult(0, {"runId": run_id, "status": "ok", "result": {"payloads": [{"text": text}], "meta": meta}})


def failed(run_id: str, error: str) -> TurnResult:
    """A turn that ended without success."""
    found = {"payloads": [], "meta": {"error": {"kind": "interrupted", "message": error}}}
    return TurnResult(1, {"runId": run_id, "status": "error", "result": found})


def undecided(run_id: str, error: str, *, harmless: bool) -> TurnResult:
    """A turn of which the gateway cannot say what became: there is nothing left to ask."""
    return TurnResult.failure(error, runId=run_id, origin="gateway", **{LOOKED_UP: {"harmless": harmless}})


def lost(problem: str, run_id: str | None) -> TurnResult:
    """A turn that was requested and whose outcome is unknown."""
    return _failure(f"{problem}\n\n{_LOST}", run_id)


def _failure(message: str, run_id: str | None) -> TurnResult:
    """A turn without a result; `run_id` if the gateway had accepted it."""
    return TurnResult.failure(message, **({} if run_id is None else {"runId": run_id, "origin": "gateway"}))


def _unconfirmed(turn: RunningTurn, problem: str = "") -> TurnResult:
    run = turn.run_id or turn.key
    how = (
        f"failed to abort Gateway run {run}: {problem}" if problem else f"Gateway run {run} was not confirmed aborted."
    )
    return TurnResult(STOPPED, said=f"Interrupted by SIGTERM; {how}")


def _refusal(problem: Problem) -> str:
    """The message of a refusal before acceptance; a known code proves that nothing ran."""
    if problem.code not in _REFUSALS:
        return problem.message
    if problem.message.startswith(_PERMANENT):
        return f"Gateway refused the turn: {problem.message}"
    return f"Gateway cannot start the turn now: {problem.message}"


def _closed(end: Closed) -> str:
    hint = " abnormal closure (no close frame)" if end.code == 1006 else ""
    return f"gateway closed ({end.code}{hint}): {end.reason or 'no close reason'}"


def _without_echo(payload: dict[str, Any]) -> dict[str, Any]:
    found = payload.get("result")
    meta = found.get("meta") if isinstance(found, dict) else None
    if isinstance(meta, dict):
        meta.pop(_PROMPT_ECHO, None)
    return payload


# The gateway and the files


class Unreachable(Exception):
    """There is no connection to the gateway; the text is the turn's error. `is_final`: trying again does not help."""

    def __init__(self, said: str, *, is_final: bool) -> None:
        self.is_final = is_final
        super().__init__(said)


class Unreadable(Exception):
    """The turn's message cannot be sent; the text is its error."""


def _client(path: Path, clock: Clock) -> Client:
    try:
        paired = pairing.read(path)
    except MailboxdError as error:
        raise Unreachable(str(error), is_final=True) from error
    if paired is None or paired.token is None:
        said = f"unauthorized: {path} holds no approved device; run `mailboxd connect gateway pair`"
        raise Unreachable(said, is_final=True)
    try:
        return Client(parse_address(paired.url), paired, paired.token, clock)
    except NotConnected as error:
        raise Unreachable(f"Gateway not reachable at {paired.url} ({error}).", is_final=False) from error
    except Rejected as error:
        problem = error.problem
        if problem.code == "UNAVAILABLE" or problem.detail == "AUTH_RATE_LIMITED":
            raise Unreachable(f"Gateway not reachable at {paired.url} ({problem.message}).", is_final=False) from error
        said = problem.message if problem.message.startswith("unauthorized: ") else f"unauthorized: {problem.message}"
        hint = "Look at `mailboxd connect gateway status`; `mailboxd connect gateway pair` pairs again"
        raise Unreachable(f"{said}. {hint}", is_final=True) from error
    except MailboxdError as error:
        raise Unreachable(str(error), is_final=True) from error


def _message(directory: str) -> str:
    path = f"{directory}/{PROMPT}"
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            text = file.read().decode("utf-8").removeprefix("\ufeff")
    except FileNotFoundError:
        raise Unreadable(f"Message file not found: {path}") from None
    except UnicodeDecodeError:
        raise Unreadable(f"Message file must be valid UTF-8: {path}") from None
    except OSError as error:
        raise Unreadable(f"Unable to read message file {path}: {error.strerror}") from None
    if not text.strip():
        raise Unreadable(f"Message file is empty: {path}")
    return text


def request_key(directory: str, requests: int) -> str:
    """The idempotency key of a turn's latest request: the call's id, then with the number of the request."""
    name = Path(directory).name
    return name if requests == 1 else f"{name}.{requests}"


def _too_late(one: Carried) -> str:
    seconds = _patience(one.timeout) if isinstance(one, RunningTurn) else one.timeout
    return f"gateway timeout after {seconds * 1000:.0f}ms"


def _patience(timeout: int) -> float:
    return timeout + EXTRA_SECONDS


def main(arguments: Sequence[str]) -> None:
    """Carry the turns of the workspace: the file of its pairing, the descriptor of the listening socket."""
    path, listener = arguments
    address = socket_path(Path(path), os.environ)
    program = Program(socket.socket(fileno=int(listener)), address, Path(path), SystemClock())
    program.stop_on(signal.SIGTERM)
    program.run()
