"""HTTP requests against a real server that behaves as servers do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mailboxd.core.approvals import Performed
from mailboxd.perform.actions.result import Impossible
from tests.actions.workspace_with_gate import Workbench, action

DONE, FAILED, UNKNOWN = Performed.DONE, Performed.FAILED, Performed.UNKNOWN


class Server:
    """Answers each connection with `answers`, byte for byte, and keeps what it was sent."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytes] = []
        self.answer: bytes | None = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.drip = 0.0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            raw = b""
            while b"\r\n\r\n" not in raw:
                raw += connection.recv(65536)
            head, _, body = raw.partition(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"length:" in line.lower()), 0)
            while len(body) < length:
                body += connection.recv(65536)
            self.heard.append(head + b"\r\n\r\n" + body)
            if self.answer is None:
                connection.recv(1)
            elif self.drip:
                for byte in self.answer:
                    connection.send(bytes([byte]))
                    time.sleep(self.drip)
            else:
                connection.sendall(self.answer)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.socket.close()


def reply(status: str, body: str = "", *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers))
    return f"{lines}\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "state", "summary"),
    [
        (reply("200 OK", "fine"), DONE, "200 OK"),
        (reply("204 No Content"), DONE, "204 No Content"),
        (reply("400 Bad", "nope"), FAILED, "refused: 400 Bad"),
        (reply("404 Not Found"), FAILED, "refused: 404"),
        (reply("500 Oops"), UNKNOWN, "the server failed: 500"),
        (reply("503 Busy"), UNKNOWN, "the server failed: 503"),
        (reply("302 Found", "", "Location: /elsewhere"), UNKNOWN, "which is not followed"),
        (b"", UNKNOWN, "no response came"),
        (b"HTTP/1.1 20", UNKNOWN, "no response came"),
        (b"SSH-2.0-OpenSSH_9\r\n", UNKNOWN, "no response came"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut", DONE, "200 OK"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + reply("201 Created"), DONE, "201 Created"),
    ],
)
def test_only_a_whole_answer_is_a_proof(
    at: Workbench, server: Server, answer: bytes, state: Performed, summary: str
) -> None:
    server.answer = answer
    end = at.do(action("http", method="POST", url=f"{server.url}/hook", body="x"))
    assert end.state is state, end
    assert summary in end.summary
    assert len(server.heard) == 1, "one request, whatever was answered"


def test_the_declared_request_is_sent_with_the_idempotency_key(at: Workbench, server: Server) -> None:
    headers = (("Authorization", "Bearer ${KEY}"), ("Content-Type", "application/json"))
    act = action("http", method="PUT", url=f"{server.url}/a/b?c=d", headers=headers, env=("KEY",), body='{"ü": 1}')
    assert "hunter2" not in at.show(act).text
    server.answer = reply("200 OK", "you said hunter2")
    end = at.perform(act, key="job/act/123")
    head, _, body = server.heard[0].decode().partition("\r\n\r\n")
    lines = head.split("\r\n")
    assert lines[0] == "PUT /a/b?c=d HTTP/1.1"
    assert {"Authorization: Bearer hunter2", "Idempotency-Key: job/act/123", "Content-Length: 9"} < set(lines)
    assert body == '{"ü": 1}'
    assert end.state is DONE
    assert "you said ${KEY}" in end.report


def test_without_a_connection_nothing_was_sent(at: Workbench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert at.do(action("http", method="GET", url=f"http://127.0.0.1:{port}/")).state is FAILED
    end = at.do(action("http", method="GET", url="http://no-such-host.invalid/"))
    assert end.state is FAILED
    assert "nothing was sent" in end.summary


@pytest.mark.slow
def test_a_server_that_speaks_no_tls_got_nothing(at: Workbench, server: Server) -> None:
    end = at.do(action("http", method="POST", url=server.url.replace("http:", "https:"), body="secret", timeout=3))
    assert end.state is FAILED
    assert "nothing was sent" in end.summary


def test_no_proxy_is_asked(at: Workbench, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert at.do(action("http", method="GET", url=server.url)).state is DONE


@pytest.mark.parametrize("drip", [0.0, 0.3])
def test_a_server_that_does_not_end_is_left_and_the_outcome_is_unknown(
    at: Workbench, server: Server, drip: float
) -> None:
    server.answer, server.drip = (reply("200 OK", "x" * 100) if drip else None), drip
    started = time.monotonic()
    end = at.do(action("http", method="POST", url=server.url, body="x", timeout=1))
    assert end.state is UNKNOWN
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("env", "why"), [((), "env does not name"), (("OTHER",), "does not name OTHER")])
def test_a_variable_that_was_not_named_is_not_sent(at: Workbench, env: tuple[str, ...], why: str) -> None:
    name = env[0] if env else "KEY"
    act = action("http", method="POST", url="http://example.org/", headers=(("X", f"${{{name}}}"),), env=env)
    with pytest.raises(Impossible, match=why):
        at.show(act)
    assert at.perform(act).state is FAILED


def test_a_variable_that_would_make_another_header_is_refused(at: Workbench, server: Server) -> None:
    at.given(environ={**at.context.environ, "KEY": "a\r\nX: b"})
    act = action("http", method="GET", url=server.url, headers=(("X", "${KEY}"),), env=("KEY",))
    assert at.do(act).state is FAILED
    assert server.heard == []
