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
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

from mailboxd.agents.gateway import pairing
from mailboxd.agents.gateway.address import checked
from mailboxd.agents.gateway.client import Client, NotAdmitted
from mailboxd.agents.gateway.connection import NotConnected
from mailboxd.agents.gateway.frames import Problem
from mailboxd.agents.gateway.turn import Ended, Order, Turn, exit_status, failure
from mailboxd.agents.inside import inside_agent
from mailboxd.clock import Clock, SystemClock
from mailboxd.errors import MailboxdError


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
        return Client(checked(paired.url), paired, paired.token, clock, signals.wakeup)
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
