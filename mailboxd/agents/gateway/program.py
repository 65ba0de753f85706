"""The program: one turn of an agent, with the contract of `openclaw agent --json`.

    exit status 0    the run ended with status "ok"; stdout is the gateway's result
    exit status 1    anything else: the result, or {"ok": false, "error": {"message"}} with `runId` once it was accepted
    143, 130         stopped by SIGTERM, SIGINT; stderr says so if the gateway did not confirm that the run is aborted

The texts of errors are those of OpenClaw where it has one, since `agents.outcome` reads them. Two of our own say that
the gateway refused before it accepted anything: "Gateway refused the turn" and "Gateway cannot start the turn now".
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO

from mailboxd.agents.gateway import pairing
from mailboxd.agents.gateway.address import parse_address
from mailboxd.agents.gateway.client import Client, Closed, NotAdmitted, NotConnected, Problem, Response
from mailboxd.agents.nesting_guard import inside_agent
from mailboxd.clock import Clock, SystemClock
from mailboxd.errors import MailboxdError

# ---------------------------------------------------------------------------------------------------------------------
# One turn on an open connection: asked for once, waited for, aborted when a signal says so. See `program`.

BEYOND = 30.0
"""Seconds past the turn's own timeout after which the gateway is waited for no longer, as the CLI has it."""
_ABORT_SECONDS = 2.0
_ABORT_PAUSE = 0.15
_ABORT_TRIES = 5
_ECHO = "finalPromptText"
"""The whole prompt, in `result.meta`: up to 25 MB that nobody reads."""
_REFUSALS = ("INVALID_REQUEST", "FORBIDDEN", "UNAVAILABLE")
_FOREVER = ("invalid agent params", "missing scope")
_LOST = (
    "The request was already sent to the gateway, so the turn may run although no answer arrived; "
    "its outcome is unknown."
)


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for."""

    agent: str
    session_key: str
    message_file: Path
    timeout: int
    pairing: Path
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ends: the exit status, what goes to stdout, and what to stderr."""

    status: int
    value: Mapping[str, Any] | None = None
    said: str = ""


class Asking(Protocol):
    """What of a client a turn needs."""

    @property
    def largest_frame(self) -> int: ...

    def request(self, method: str, params: Mapping[str, object]) -> tuple[str, str]: ...

    def send(self, frame: str) -> None: ...

    def receive(self, until: float) -> Response | None: ...


class Interruptible(Protocol):
    """Whether somebody wants the turn to end."""

    @property
    def received(self) -> signal.Signals | None: ...


@dataclass(slots=True)
class Turn:
    """`run_id` is known once the gateway has accepted the turn."""

    order: Order
    client: Asking
    signals: Interruptible
    clock: Clock
    run_id: str | None = None
    _aborts: list[str] = field(default_factory=list)
    _next_abort: float = 0.0

    def run(self, message: str) -> Ended:
        """Ask for the turn and wait until it has ended."""
        params = {
            "message": message,
            "agentId": self.order.agent,
            "sessionKey": self.order.session_key,
            "deliver": False,
            "timeout": self.order.timeout,
            "idempotencyKey": self.order.idempotency_key,
        }
        request_id, frame = self.client.request("agent", params)
        size, most = len(frame.encode()), self.client.largest_frame
        if size > most:
            return failure(f"Gateway refused the turn: its message is a frame of {size} bytes, {most} are allowed")
        if (stopped := self._stopped()) is not None:
            return Ended(exit_status(stopped))
        try:
            self.client.send(frame)
            return self._wait(request_id, self.clock.monotonic() + self.order.timeout + BEYOND)
        except Closed as end:
            if (stopped := self._stopped()) is not None:
                return _unconfirmed(stopped, f"failed to abort Gateway run {self._run}: {_closed(end)}")
            return self._lost(_closed(end))

    def _stopped(self) -> signal.Signals | None:
        return self.signals.received

    @property
    def _run(self) -> str:
        """The run's id, which is the idempotency key unless the gateway has said otherwise."""
        return self.run_id or self.order.idempotency_key

    def _wait(self, request_id: str, until: float) -> Ended:
        while True:
            stopped = self._stopped()
            now = self.clock.monotonic()
            if now >= until:
                return self._lost(f"gateway timeout after {(self.order.timeout + BEYOND) * 1000:.0f}ms")
            if stopped is not None and now >= self._next_abort:
                if len(self._aborts) == _ABORT_TRIES:
                    return _unconfirmed(stopped, f"Gateway run {self._run} was not confirmed aborted.")
                self._ask_to_abort(now)
            response = self.client.receive(until if stopped is None else min(until, self._next_abort))
            if response is None:
                continue
            if response.id in self._aborts:
                if stopped is not None and self._is_confirmed(response):
                    return Ended(exit_status(stopped))
                self._next_abort = self.clock.monotonic() + _ABORT_PAUSE
            elif response.id == request_id and not self._is_acceptance(response):
                ended = self._ended(response)
                # A run that ended well just before it could be aborted has ended well.
                return ended if stopped is None or ended.status == 0 else Ended(exit_status(stopped))

    def _is_acceptance(self, response: Response) -> bool:
        if response.problem is not None or response.payload.get("status") != "accepted":
            return False
        self.run_id = _text(response.payload, "runId")
        return True

    def _ended(self, response: Response) -> Ended:
        problem, payload = response.problem, response.payload
        if problem is None:
            return Ended(0 if payload.get("status") == "ok" else 1, _without_echo(payload))
        run_id = _text(payload, "runId") or self.run_id
        return failure(_refusal(problem) if run_id is None else problem.message, run_id)

    def _lost(self, problem: str) -> Ended:
        return failure(f"{problem}\n\n{_LOST}", self.run_id)

    def _ask_to_abort(self, now: float) -> None:
        params = {"sessionKey": self.order.session_key, "runId": self._run, "agentId": self.order.agent}
        request_id, frame = self.client.request("chat.abort", params)
        self._aborts.append(request_id)
        self._next_abort = now + _ABORT_SECONDS
        self.client.send(frame)

    def _is_confirmed(self, response: Response) -> bool:
        runs = response.payload.get("runIds")
        return response.payload.get("aborted") is True and (not isinstance(runs, list) or self._run in runs)


def failure(message: str, run_id: str | None = None) -> Ended:
    """The end of a turn that brought no result; with a run's id if the gateway had accepted it."""
    accepted = {} if run_id is None else {"runId": run_id, "origin": "gateway"}
    return Ended(1, {"ok": False, **accepted, "error": {"type": "cli_error", "message": message}})


def exit_status(number: signal.Signals) -> int:
    """Of a program that a signal stopped, as shells have it: 143 for SIGTERM."""
    return 128 + number


def _unconfirmed(stopped: signal.Signals, problem: str) -> Ended:
    return Ended(exit_status(stopped), said=f"Interrupted by {stopped.name}; {problem}")


def _refusal(problem: Problem) -> str:
    """The gateway has answered without accepting: nothing has run, if it is one of the codes that say so."""
    if problem.code not in _REFUSALS:
        return problem.message
    if problem.message.startswith(_FOREVER):
        return f"Gateway refused the turn: {problem.message}"
    return f"Gateway cannot start the turn now: {problem.message}"


def _closed(end: Closed) -> str:
    hint = " abnormal closure (no close frame)" if end.code == 1006 else ""
    return f"gateway closed ({end.code}{hint}): {end.reason or 'no close reason'}"


def _without_echo(payload: dict[str, Any]) -> dict[str, Any]:
    result = payload.get("result")
    meta = result.get("meta") if isinstance(result, dict) else None
    if isinstance(meta, dict):
        meta.pop(_ECHO, None)
    return payload


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found else None


# ---------------------------------------------------------------------------------------------------------------------
# The program: one turn of an agent, with the contract of `openclaw agent --json`.


class Failed(Exception):
    """The turn cannot be had; the text is the error that is printed."""


@dataclass(slots=True)
class Signals:
    """The first SIGTERM or SIGINT, and a descriptor that becomes readable with it."""

    received: signal.Signals | None = None
    wakeup: int | None = None

    def watch(self) -> None:
        """From now on a signal ends nothing by itself."""
        self.wakeup, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        self.received = self.received or signal.Signals(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one turn; the exit status."""
    signals = Signals()
    signals.watch()
    ended = perform(_order(arguments), os.environ, signals, SystemClock())
    _put(sys.stderr, ended.said)
    if ended.value is not None:
        _put(sys.stdout, json.dumps(ended.value, ensure_ascii=False))
    return ended.status


def perform(order: Order, environ: Mapping[str, str], signals: Signals, clock: Clock) -> Ended:
    """Connect, ask, wait for the end. Never raises for anything that may go wrong."""
    try:
        if inside_agent(environ):
            raise Failed("Gateway agent from agent exec is refused: an agent does not act as the operator.")
        message = _message(order.message_file)
        client = _connect(order, signals, clock)
    except (Failed, MailboxdError) as error:
        return failure(str(error)) if signals.received is None else Ended(exit_status(signals.received))
    with client:
        return Turn(order, client, signals, clock).run(message)


def _connect(order: Order, signals: Signals, clock: Clock) -> Client:
    paired = pairing.read(order.pairing)
    if paired is None or paired.token is None:
        raise Failed(f"unauthorized: {order.pairing} holds no approved device; run `mailboxd gateway pair`")
    try:
        return Client(parse_address(paired.url), paired, paired.token, clock, signals.wakeup)
    except NotConnected as error:
        raise Failed(f"Gateway not reachable at {paired.url} ({error}).") from error
    except NotAdmitted as error:
        raise Failed(_not_admitted(paired.url, error.problem)) from error


def _not_admitted(url: str, problem: Problem) -> str:
    if problem.code == "UNAVAILABLE" or problem.detail == "AUTH_RATE_LIMITED":
        return f"Gateway not reachable at {url} ({problem.message})."
    said = problem.message if problem.message.startswith("unauthorized: ") else f"unauthorized: {problem.message}"
    return f"{said}. Look at `mailboxd gateway status`; `mailboxd gateway pair` pairs again"


def _message(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except FileNotFoundError:
        raise Failed(f"Message file not found: {path}") from None
    except UnicodeDecodeError:
        raise Failed(f"Message file must be valid UTF-8: {path}") from None
    except OSError as error:
        raise Failed(f"Unable to read message file {path}: {error.strerror}") from None
    if not text.strip():
        raise Failed(f"Message file is empty: {path}")
    return text


def _order(arguments: Sequence[str] | None) -> Order:
    parser = _Parser(prog="python -m mailboxd.agents.gateway", allow_abbrev=False, add_help=False)
    parser.add_argument("--pairing", type=Path, required=True)
    parser.add_argument("verb", choices=["agent"])
    parser.add_argument("--agent", required=True)
    parser.add_argument("--session-key", required=True)
    parser.add_argument("--message-file", type=Path, required=True)
    parser.add_argument("--timeout", type=int, required=True)
    parser.add_argument("--idempotency-key", required=True)
    parser.add_argument("--json", action="store_true", required=True)
    words = vars(parser.parse_args(arguments))
    return Order(**{name: words[name] for name in Order.__slots__})


class _Parser(argparse.ArgumentParser):
    """Answers a wrong command line as OpenClaw does."""

    def error(self, message: str) -> NoReturn:
        _put(sys.stdout, json.dumps(failure(f"OpenClaw does not recognize option {message}").value))
        sys.exit(1)


def _put(stream: TextIO, text: str) -> None:
    if text:
        # A half of a surrogate pair becomes the escape that it is in JSON.
        stream.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        stream.flush()
