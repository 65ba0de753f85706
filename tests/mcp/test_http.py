"""The loopback listener as a process: who is let in, in which role, and how much of anything."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host import loopback
from mailboxd.host.listening import listen
from mailboxd.surfaces.mcp import tokens
from mailboxd.surfaces.mcp.tokens import parse
from tests.cli.stage import make
from tests.e2e.support import MAILBOXD, environment, eventually
from tests.mcp import configurator
from tests.mcp.stand import EXECUTOR, OPERATOR, QUALITY

pytestmark = pytest.mark.slow

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class HttpServer:
    """`mailboxd connect mcp serve --http` in a workspace of its own."""

    def __init__(self, root: Path, more: str = "", env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.env = environment(env or {})
        stage = make(root, f"mcp:\n  port: {self.port}\n{more}")
        stage.create("t")
        self.ws: Workspace = stage.ws
        self.log = root / "serve.log"
        self.process = self.start()

    def start(self, *more: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*MAILBOXD, "connect", "mcp", "serve", "--http", *more, "-w", str(self.ws.root)],
                env=self.env, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=pass_fds,
            )  # fmt: skip
        eventually(lambda: process.poll() is not None or self.listens(), why=self.log.read_text)
        return process

    def listens(self, host: str = "127.0.0.1") -> bool:
        with socket.socket() as probe:
            probe.settimeout(2)
            return probe.connect_ex((host, self.port)) == 0

    def grant(self, who: str) -> str:
        token = tokens.new_token()
        kept = [grant for grant in tokens.load(self.ws) if str(grant.caller) != who]
        tokens.save(self.ws, [*kept, tokens.Grant(parse(who), tokens.fingerprint(token), "now")])
        return token

    def ask(
        self, token: str | None, body: Any = LIST, *, method: str = "POST", path: str = "/mcp", **more: str
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **more}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body), headers)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode()

    def call(self, token: str, tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        status, answer = self.ask(token, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert status == 200, answer
        found: dict[str, Any] = answer["result"]["structuredContent"]
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    made = HttpServer(tmp_path_factory.mktemp("mcp") / "alpha")
    yield made
    made.process.kill()
    made.process.wait(30)


@pytest.mark.parametrize("token", [None, "", "wrong", "x" * 10_000, "\u00fc"])
def test_a_request_without_a_token_is_refused(server: HttpServer, token: str | None) -> None:
    status, answer = server.ask(token)
    assert (status, sorted(answer)) == (401, ["error"])


def test_the_role_comes_from_the_token_not_from_the_request(server: HttpServer) -> None:
    executor, reviewer = server.grant(EXECUTOR), server.grant(QUALITY)

    def names(token: str, **more: str) -> list[str]:
        status, answer = server.ask(token, **more)
        assert status == 200
        return [tool["name"] for tool in answer["result"]["tools"]]

    assert "task_append_review" not in names(executor, **{"x-role": "operator", "mcp-session-id": "1"})
    assert "task_append_review" in names(reviewer)
    assert server.call(executor, "task_transition", task="t", to="cancelled")["error"]["rule"] == "permission-denied"
    assert server.call(executor, "task_get", task="t")["phase"] == "execution_ready"


def test_a_revoked_token_stops_working_at_once(server: HttpServer) -> None:
    first = server.grant("executor:leaving")
    assert server.ask(first)[0] == 200
    server.grant("executor:leaving")
    assert server.ask(first)[0] == 401


@pytest.mark.parametrize("who", [OPERATOR, "orchestrator:mailboxd", "lobster:gate"])
def test_no_token_makes_its_bearer_a_person(server: HttpServer, who: str) -> None:
    """Even one written into the file by hand."""
    assert server.ask(server.grant(who))[0] == 401


def test_two_authorizations_are_none(server: HttpServer) -> None:
    token = server.grant(EXECUTOR)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        said = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\nContent-Length: 2\r\n"
        said += f"Authorization: Bearer {token}\r\nAuthorization: Bearer x\r\n\r\n{{}}"
        connection.sendall(said.encode())
        assert connection.recv(64).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "rebound.example"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"origin": "https://rebound.example"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 400),
    ],
)
def test_no_web_page_gets_in(server: HttpServer, headers: dict[str, str], status: int) -> None:
    assert server.ask(server.grant(EXECUTOR), **headers)[0] == status


def test_there_is_one_place_and_one_way_to_ask(server: HttpServer) -> None:
    token = server.grant(EXECUTOR)
    assert [server.ask(token, method=method)[0] for method in ("GET", "DELETE", "PUT", "OPTIONS")] == [405] * 4
    assert [server.ask(token, path=path)[0] for path in ("/", "/mcp/", "/sse", "/mcp/../x")] == [404] * 4


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[]", 400), (b"\xff", 400), (b"x" * (1 << 20), 400), (b"x" * (2 << 20), 413)]
)
def test_an_invalid_request_is_refused(server: HttpServer, body: bytes, status: int) -> None:
    assert server.ask(server.grant(EXECUTOR), body)[0] == status
    assert server.process.poll() is None


def test_the_server_waits_while_descriptors_are_exhausted(server: HttpServer) -> None:
    token = server.grant(EXECUTOR)
    assert server.ask(token)[0] == 200
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(list(Path(f"/proc/{pid}/fd").iterdir())) + 2, before[1]))
    try:
        with ExitStack() as held:
            for _ in range(8):
                held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            eventually(lambda: "Too many open files" in server.log.read_text())
            assert server.process.poll() is None
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    eventually(lambda: server.ask(token)[0] == 200)
    said = server.log.read_text()
    assert "Traceback" not in said
    assert said.count("no further connection") <= 2


def test_no_token_is_in_the_log_or_in_the_file(server: HttpServer) -> None:
    token = server.grant(EXECUTOR)
    server.ask(token)
    server.ask(token[:-1])
    assert token[:-1] not in server.log.read_text()
    assert token not in (server.ws.state / tokens.NAME).read_text()
    assert (server.ws.state / tokens.NAME).stat().st_mode & 0o777 == 0o600


def test_a_damaged_token_file_admits_no_caller(server: HttpServer) -> None:
    token = server.grant(EXECUTOR)
    file = server.ws.state / tokens.NAME
    kept = file.read_bytes()
    file.write_text("{")
    assert server.ask(token)[0] == 503
    file.unlink()
    assert server.ask(token)[0] == 401
    file.write_bytes(kept)
    assert server.ask(token)[0] == 200


def test_recorded_calls_survive_a_kill(server: HttpServer) -> None:
    token = server.grant(EXECUTOR)
    status, _ = server.ask(token)
    server.process.kill()
    server.process.wait(30)
    server.process = server.start()
    assert status == server.ask(token)[0] == 200


def test_it_ends_on_sigterm(tmp_path: Path) -> None:
    server = HttpServer(tmp_path / "alpha")
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(30)
    assert not server.listens()


def test_the_server_exits_when_its_parent_is_gone(tmp_path: Path) -> None:
    server = HttpServer(tmp_path / "alpha")
    server.process.kill()
    server.process.wait(30)
    child = server.start("--until-eof")
    assert child.poll() is None
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(30) == 0


@pytest.mark.parametrize("how", [["--as", "executor:alpha"], ["--as", "operator:kim"], ["--http"]])
def test_no_agent_chooses_its_role_in_a_shell_of_its_own(tmp_path: Path, how: list[str]) -> None:
    stage = make(tmp_path / "alpha", "mcp:\n  port: 1\n")
    argv = [*MAILBOXD, "connect", "mcp", "serve", *how, "-w", str(stage.ws.root)]
    env = environment({}) | {"OPENCLAW_SHELL": "exec"}
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "permission-denied" in done.stderr
    assert done.stdout == ""


def test_standard_input_and_output_speak_for_one_role(tmp_path: Path) -> None:
    stage = make(tmp_path / "alpha")
    argv = [*MAILBOXD, "connect", "mcp", "serve", "--as", "executor:alpha", "-w", str(stage.ws.root)]
    hello = {
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        },
    }  # fmt: skip
    said = [hello, {"jsonrpc": "2.0", "method": "notifications/initialized"}, LIST]
    text = "".join(json.dumps(one) + "\n" for one in said)
    process = subprocess.Popen(
        argv, env=environment({}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text)
    process.stdin.flush()
    first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
    process.stdin.close()
    assert process.wait(30) == 0
    assert first["result"]["serverInfo"]["name"] == "mailboxd"
    assert [tool["name"] for tool in second["result"]["tools"]] == [
        "task_get", "task_record_checkpoint", "task_record_artifact", "task_list_ready",
    ]  # fmt: skip


# Agents that come later


class Registered:
    """A server whose tools are registered for alpha in an OpenClaw of agents alpha and beta."""

    def __init__(self, root: Path) -> None:
        self.file = root / "openclaw.json"
        self.configure({"agents": {"entries": {"alpha": {}, "beta": {}}}})
        command = json.dumps([sys.executable, configurator.__file__])
        self.server = HttpServer(
            root / "alpha", f"openclaw:\n  command: {command}\n", {"OPENCLAW_CONFIG_PATH": str(self.file)}
        )
        argv = [*MAILBOXD, "connect", "mcp", "install", "-w", str(self.server.ws.root)]
        assert subprocess.run(argv, env=self.server.env, capture_output=True, timeout=60).returncode == 0
        servers = self.configuration["mcp"]["servers"]
        self.token = str(servers["mailboxd-alpha"]["headers"]["Authorization"]).removeprefix("Bearer ")

    @property
    def configuration(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    def configure(self, configuration: dict[str, Any]) -> None:
        hidden = self.file.with_suffix(".new")
        hidden.write_text(json.dumps(configuration))
        hidden.rename(self.file)

    def add(self, name: str, **more: Any) -> None:
        now = self.configuration
        now["agents"]["entries"][name] = {}
        self.configure(now | more)

    def denied(self, name: str) -> list[str]:
        found: list[str] = self.configuration["agents"]["entries"][name].get("tools", {}).get("deny", [])
        return found

    def status(self) -> int:
        return self.server.ask(self.token)[0]


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[Registered]:
    made = Registered(tmp_path)
    eventually(lambda: made.status() == 200, why=made.server.log.read_text)
    yield made
    made.server.process.kill()
    made.server.process.wait(30)


def test_an_agent_that_is_added_is_denied_the_tools_before_anybody_is_served_again(registered: Registered) -> None:
    for number in range(3):
        name = f"late{number}"
        registered.add(name)
        while registered.status() == 503:
            pass  # until it has been looked at: each answer waits for that
        assert registered.denied(name) == ["mailboxd-alpha__*"]
        assert registered.status() == 200
    assert registered.denied("alpha") == []
    assert "agent late0: denied mailboxd-alpha__*" in registered.server.log.read_text()


def test_an_agent_that_is_added_is_denied_the_tools_without_any_request(registered: Registered) -> None:
    registered.add("late")
    eventually(lambda: registered.denied("late") == ["mailboxd-alpha__*"], why=registered.server.log.read_text)


def test_requests_are_refused_while_a_new_agent_cannot_be_denied(registered: Registered) -> None:
    registered.add("late", refuses=True)
    assert registered.status() == 503
    status, said = registered.server.ask(registered.token)
    assert status == 503
    assert "could not be checked" in said["error"]
    assert registered.denied("late") == []
    registered.configure(registered.configuration | {"refuses": False})
    eventually(lambda: registered.status() == 200, why=registered.server.log.read_text)
    assert registered.denied("late") == ["mailboxd-alpha__*"]


def test_a_server_that_is_started_again_does_not_ask_openclaw_again(registered: Registered, tmp_path: Path) -> None:
    server, calls = registered.server, registered.file.with_suffix(".calls")
    server.process.kill()
    server.process.wait(30)
    with (tmp_path / "left").open("w+b") as left, listen(server.port, "`mcp.port`") as listening:
        for asked in (True, False, True):
            calls.unlink(missing_ok=True)
            handed = (listening.fileno(), left.fileno())
            server.process = server.start("--on-demand", *map(str, handed), pass_fds=handed)
            eventually(lambda: registered.status() == 200, why=server.log.read_text)
            assert calls.exists() is asked
            server.process.kill()
            server.process.wait(30)
            if not asked:
                registered.add("late")  # while nobody serves
    assert registered.denied("late") == ["mailboxd-alpha__*"]


def test_a_server_ends_when_nobody_asks_and_the_next_caller_waits_for_another() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with listen(0, "a port") as listening, ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=30)
            connection.request("GET", "/")  # it stands in the queue before anybody serves
            serving = partial(loopback.serve, application, listening.dup(), until_eof=False, rest_seconds=0.4)
            ended = pool.submit(serving, lifespan="off")
            assert connection.getresponse().status == 204
            connection.close()
            ended.result(30)
