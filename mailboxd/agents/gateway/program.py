"""One turn of an agent over the gateway, with the contract of `openclaw agent --json`.

    exit status 0    the run ended with status "ok"; stdout is the gateway's result
    exit status 1    anything else: the result, or {"ok": false, "error": {"message"}}, with `runId` once accepted
    143, 130         stopped by SIGTERM, SIGINT; stderr says so if the gateway did not confirm the abort

Error messages are OpenClaw's where it has one, since `agents.outcome` reads them. Two more say that the gateway refused
before accepting anything: "Gateway refused the turn" and "Gateway cannot start the turn now".
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
from mailboxd.agents.gateway.client import Client, Closed, NotConnected, Problem, Rejected, Response
from mailboxd.agents.gateway.transport import parse_address
from mailboxd.agents.openclaw import inside_agent
from mailboxd.clock import Clock, SystemClock
from mailboxd.errors import MailboxdError

EXTRA_SECONDS = 30.0
"""Added to the turn's timeout when waiting for the gateway, as OpenClaw's CLI does."""
_ABORT_SECONDS = 2.0
_ABORT_PAUSE = 0.15
_ABORT_TRIES = 5
_PROMPT_ECHO = "finalPromptText"
"""The whole prompt, in `result.meta`: up to 25 MB that are not needed."""
_REFUSALS = ("INVALID_REQUEST", "FORBIDDEN", "UNAVAILABLE")
_PERMANENT = ("invalid agent params", "missing scope")
_LOST = (
    "The request was already sent to the gateway, so the turn may run although no answer arrived; "
    "its outcome is unknown."
)


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The command line."""

    agent: str
    session_key: str
    message_file: Path
    timeout: int
    pairing: Path
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The exit status, the JSON for stdout, and the text for stderr."""

    status: int
    value: Mapping[str, Any] | None = None
    said: str = ""


class Requests(Protocol):
    """The part of `Client` that a turn needs."""

    @property
    def largest_frame(self) -> int: ...

    def request(self, method: str, params: Mapping[str, object]) -> tuple[str, str]: ...

    def send(self, frame: str) -> None: ...

    def receive(self, until: float) -> Response | None: ...


class Interruptible(Protocol):
    """Tells whether the turn has to stop."""

    @property
    def received(self) -> signal.Signals | None: ...


@dataclass(slots=True)
class Turn:
    """One turn; `run_id` is known once the gateway has accepted it."""

    options: TurnOptions
    client: Requests
    signals: Interruptible
    clock: Clock
    run_id: str | None = None
    _aborts: list[str] = field(default_factory=list)
    _next_abort: float = 0.0

    def run(self, message: str) -> TurnResult:
        """Request the turn and wait for its end."""
        params = {
            "message": message,
            "agentId": self.options.agent,
            "sessionKey": self.options.session_key,
            "deliver": False,
            "timeout": self.options.timeout,
            "idempotencyKey": self.options.idempotency_key,
        }
        request_id, frame = self.client.request("agent", params)
        size, most = len(frame.encode()), self.client.largest_frame
        if size > most:
            return failure(f"Gateway refused the turn: its message is a frame of {size} bytes; the limit is {most}")
        if (stopped := self._stopped()) is not None:
            return TurnResult(exit_status(stopped))
        try:
            self.client.send(frame)
            return self._wait(request_id, self.clock.monotonic() + self.options.timeout + EXTRA_SECONDS)
        except Closed as end:
            if (stopped := self._stopped()) is not None:
                return _unconfirmed(stopped, f"failed to abort Gateway run {self._run}: {_closed(end)}")
            return self._lost(_closed(end))

    def _stopped(self) -> signal.Signals | None:
        return self.signals.received

    @property
    def _run(self) -> str:
        """The run's id, by default the idempotency key."""
        return self.run_id or self.options.idempotency_key

    def _wait(self, request_id: str, until: float) -> TurnResult:
        while True:
            stopped = self._stopped()
            now = self.clock.monotonic()
            if now >= until:
                return self._lost(f"gateway timeout after {(self.options.timeout + EXTRA_SECONDS) * 1000:.0f}ms")
            if stopped is not None and now >= self._next_abort:
                if len(self._aborts) == _ABORT_TRIES:
                    return _unconfirmed(stopped, f"Gateway run {self._run} was not confirmed aborted.")
                self._request_abort(now)
            response = self.client.receive(until if stopped is None else min(until, self._next_abort))
            if response is None:
                continue
            if response.id in self._aborts:
                if stopped is not None and self._is_confirmed(response):
                    return TurnResult(exit_status(stopped))
                self._next_abort = self.clock.monotonic() + _ABORT_PAUSE
            elif response.id == request_id and not self._is_acceptance(response):
                ended = self._result(response)
                # a run that succeeded before the abort counts as succeeded
                return ended if stopped is None or ended.status == 0 else TurnResult(exit_status(stopped))

    def _is_acceptance(self, response: Response) -> bool:
        if response.problem is not None or response.payload.get("status") != "accepted":
            return False
        self.run_id = _text(response.payload, "runId")
        return True

    def _result(self, response: Response) -> TurnResult:
        problem, payload = response.problem, response.payload
        if problem is None:
            return TurnResult(0 if payload.get("status") == "ok" else 1, _without_echo(payload))
        run_id = _text(payload, "runId") or self.run_id
        return failure(_refusal(problem) if run_id is None else problem.message, run_id)

    def _lost(self, problem: str) -> TurnResult:
        return failure(f"{problem}\n\n{_LOST}", self.run_id)

    def _request_abort(self, now: float) -> None:
        params = {"sessionKey": self.options.session_key, "runId": self._run, "agentId": self.options.agent}
        request_id, frame = self.client.request("chat.abort", params)
        self._aborts.append(request_id)
        self._next_abort = now + _ABORT_SECONDS
        self.client.send(frame)

    def _is_confirmed(self, response: Response) -> bool:
        runs = response.payload.get("runIds")
        return response.payload.get("aborted") is True and (not isinstance(runs, list) or self._run in runs)


def failure(message: str, run_id: str | None = None) -> TurnResult:
    """A turn without a result; `run_id` if the gateway accepted it."""
    accepted = {} if run_id is None else {"runId": run_id, "origin": "gateway"}
    return TurnResult(1, {"ok": False, **accepted, "error": {"type": "cli_error", "message": message}})


def exit_status(number: signal.Signals) -> int:
    """The exit status after a signal, as in shells: 143 for SIGTERM."""
    return 128 + number


def _unconfirmed(stopped: signal.Signals, problem: str) -> TurnResult:
    return TurnResult(exit_status(stopped), said=f"Interrupted by {stopped.name}; {problem}")


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
    result = payload.get("result")
    meta = result.get("meta") if isinstance(result, dict) else None
    if isinstance(meta, dict):
        meta.pop(_PROMPT_ECHO, None)
    return payload


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found else None


# The command line


class Failed(Exception):
    """The turn cannot be requested; the text is printed as the error."""


@dataclass(slots=True)
class Signals:
    """The first SIGTERM or SIGINT, and a descriptor that becomes readable with it."""

    received: signal.Signals | None = None
    wakeup: int | None = None

    def watch(self) -> None:
        """Record SIGTERM and SIGINT instead of ending the program."""
        self.wakeup, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        self.received = self.received or signal.Signals(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one turn; returns the exit status."""
    signals = Signals()
    signals.watch()
    ended = run_turn(_parse(arguments), os.environ, signals, SystemClock())
    _put(sys.stderr, ended.said)
    if ended.value is not None:
        _put(sys.stdout, json.dumps(ended.value, ensure_ascii=False))
    return ended.status


def run_turn(options: TurnOptions, environ: Mapping[str, str], signals: Signals, clock: Clock) -> TurnResult:
    """Connect, request the turn, wait for its end. Failures are part of the result."""
    try:
        if inside_agent(environ):
            raise Failed("Gateway agent from agent exec is refused: an agent does not act as the operator.")
        message = _message(options.message_file)
        client = _connect(options, signals, clock)
    except (Failed, MailboxdError) as error:
        return failure(str(error)) if signals.received is None else TurnResult(exit_status(signals.received))
    with client:
        return Turn(options, client, signals, clock).run(message)


def _connect(options: TurnOptions, signals: Signals, clock: Clock) -> Client:
    paired = pairing.read(options.pairing)
    if paired is None or paired.token is None:
        raise Failed(f"unauthorized: {options.pairing} holds no approved device; run `mailboxd connect gateway pair`")
    try:
        return Client(parse_address(paired.url), paired, paired.token, clock, signals.wakeup)
    except NotConnected as error:
        raise Failed(f"Gateway not reachable at {paired.url} ({error}).") from error
    except Rejected as error:
        raise Failed(_rejected(paired.url, error.problem)) from error


def _rejected(url: str, problem: Problem) -> str:
    if problem.code == "UNAVAILABLE" or problem.detail == "AUTH_RATE_LIMITED":
        return f"Gateway not reachable at {url} ({problem.message})."
    said = problem.message if problem.message.startswith("unauthorized: ") else f"unauthorized: {problem.message}"
    return f"{said}. Look at `mailboxd connect gateway status`; `mailboxd connect gateway pair` pairs again"


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


def _parse(arguments: Sequence[str] | None) -> TurnOptions:
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
    return TurnOptions(**{name: words[name] for name in TurnOptions.__slots__})


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as OpenClaw does."""

    def error(self, message: str) -> NoReturn:
        _put(sys.stdout, json.dumps(failure(f"OpenClaw does not recognize option {message}").value))
        sys.exit(1)


def _put(stream: TextIO, text: str) -> None:
    if text:
        # a lone surrogate becomes its JSON escape
        stream.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        stream.flush()
