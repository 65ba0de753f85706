"""Whether the gateway answers: asked of real sockets, on a clock of our own."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mailboxd.core.outcomes import Failed, Outage, Outcome, Succeeded, Unknown
from mailboxd.perform.agents.readiness import DOWN, WELL, Gateway, is_loopback, is_suspicious
from tests.e2e.support import eventually


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/readyz"
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def asked(gateway: Gateway, now: float) -> bool:
    """Look until the question of this moment is answered; whether it has just come back."""
    back = [gateway.poll(now)]

    def is_answered() -> bool:
        if gateway._probe is None:
            return True
        select.select([gateway._probe], [], [], 0.01)
        back.append(gateway.poll(now))
        return gateway._probe is None

    eventually(is_answered)
    return any(back)


def test_an_unconfigured_gateway_is_not_reported() -> None:
    gateway = Gateway()
    gateway.suspect("alpha")
    assert (gateway.poll(0.0), gateway.is_down, gateway.due, gateway.answers_since) == (False, False, None, None)


def test_one_that_answers_is_asked_now_and_then_without_waking_anybody() -> None:
    with answering(200) as port:
        gateway = Gateway(port=port)
        assert not asked(gateway, 10.0)
        assert (gateway.is_down, gateway.answers_since, gateway.due) == (False, 10.0, None)
        gateway.poll(10.0 + WELL - 1)
        assert gateway._probe is None
        assert not asked(gateway, 10.0 + WELL)
        assert gateway.answers_since == 10.0


def test_a_refused_connection_means_down_and_its_return_is_noticed_within_seconds() -> None:
    port = free_port()
    gateway = Gateway(port=port)
    asked(gateway, 10.0)
    assert "refused" in gateway.why
    assert "openclaw gateway start" in gateway.why
    assert (gateway.is_down, gateway.answers_since, gateway.due) == (True, None, 10.0 + DOWN)
    with HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert asked(gateway, 10.0 + DOWN)  # 501: an answer all the same
        thread.join()
    assert (gateway.is_down, gateway.answers_since) == (False, 10.0 + DOWN)


def test_one_that_starts_or_drains_is_down_too() -> None:
    with answering(503) as port:
        gateway = Gateway(port=port)
        asked(gateway, 0.0)
        assert "starting, draining or restarting" in gateway.why


def test_a_suspicion_is_looked_into_at_once() -> None:
    with answering(200) as port:
        gateway = Gateway(port=port)
        asked(gateway, 0.0)
    gateway.suspect("Alpha")
    assert gateway.due is not None
    assert gateway.due <= 1.0
    asked(gateway, 1.0)
    assert gateway.is_down
    assert gateway.unreached == {"alpha"}


def test_only_repeated_silence_counts_and_nothing_waits_for_it() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        gateway = Gateway(port=int(silent.getsockname()[1]))
        now = 0.0
        for is_down in (False, True):
            for second in range(7):
                gateway.poll(now + second)
                assert gateway.due is not None
            assert gateway.is_down is is_down
            now += 9.0
        assert "does not answer" in gateway.why
        gateway.close()


def test_another_address_is_another_gateway() -> None:
    gateway = Gateway(port=free_port())
    asked(gateway, 0.0)
    assert "refused" in gateway.why
    with answering(200) as port:
        gateway.is_at("127.0.0.1", port)
        assert gateway.why == ""
        asked(gateway, 0.1)
        assert gateway.answers_since == 0.1


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("x.org", False)]
)
def test_only_this_machine_is_asked(host: str, here: bool) -> None:
    assert is_loopback(host) is here


@pytest.mark.parametrize(
    ("outcome", "suspicious"),
    [
        (Failed("refused", started=False, outage=Outage.UNREACHABLE), True),
        (Unknown("gateway closed"), True),
        (Unknown("gone", looked_up=True), False),
        (Failed("locked out", started=False, outage=Outage.LOCKED_OUT), False),
        (Failed("overloaded"), False),
        (Succeeded("done"), False),
    ],
)
def test_failures_that_trigger_a_readiness_check(outcome: Outcome, suspicious: bool) -> None:
    assert is_suspicious(outcome) is suspicious
