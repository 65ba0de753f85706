"""Turns over the gateway: recorded conversations over a real WebSocket, and the outcomes that they lead to."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mailboxd.core.outcomes import Aborted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.errors import ConfigError, WorldError
from mailboxd.host.clock import SystemClock
from mailboxd.host.system import system
from mailboxd.perform.agents import process
from mailboxd.perform.agents.alive import has_ended
from mailboxd.perform.agents.ask import finish
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.gateway import client, pairing, program, transport
from mailboxd.perform.agents.gateway.client import ApprovalPending, pair
from mailboxd.perform.agents.gateway.pairing import Device, Pairing
from mailboxd.perform.agents.gateway.program import NOBODY, Program
from mailboxd.perform.agents.gateway.transport import GatewayTransport, Mark
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import Child, State
from tests.agents.replay import Frame, Replay, conversation
from tests.e2e.support import eventually

CLI = OpenClaw(("openclaw",))
DEVICE = Device(bytes(range(32)))
NAME = "mailboxd alpha fixture"


@contextmanager
def carrying(path: Path) -> Iterator[GatewayTransport]:
    """The program of this pairing in a thread, and the daemon's side of it."""
    made = GatewayTransport(CLI, path, {"TMPDIR": str(path.parent)})
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with system.socket_address(made.socket_path()) as address:
        listener.bind(address)
    listener.listen()
    thread = threading.Thread(target=Program(listener, made.socket_path(), path, SystemClock()).run, daemon=True)
    thread.start()
    made.warm_up()
    yield made
    made.close()
    thread.join(20)
    listener.close()
    assert not thread.is_alive()


class Conversation:
    """A recorded conversation, and the order that leads to it."""

    def __init__(self, case: str, tmp_path: Path) -> None:
        self.frames = conversation(case)
        self.sent = {frame["sent"]["method"]: frame["sent"]["params"] for frame in self.frames if "sent" in frame}
        self.token: str = self.sent["connect"]["auth"]["token"]
        self.path = tmp_path / "gateway.json"
        self.asked = self.sent.get("agent", {"agentId": "alpha", "sessionKey": "agent:alpha:mailboxd:x", "timeout": 60})
        self.key: str = self.asked.get("idempotencyKey", "trn_1")
        self.directory = tmp_path / self.key
        self.files = {PROMPT: self.asked.get("message", "[mailboxd] work").encode()}

    def pair(self, url: str) -> None:
        pairing.write(self.path, Pairing(url, NAME, DEVICE, self.token))

    def up_to(self, method: str, *, answers: int = 0) -> list[Frame]:
        """The frames up to our request `method`, and so many after it."""
        place = next(
            number for number, frame in enumerate(self.frames) if frame.get("sent", {}).get("method") == method
        )
        return self.frames[: place + 1 + answers]

    def question(self, number: str, **answer: Any) -> list[Frame]:
        """The question about the run, and the gateway's answer."""
        params = {"message": "?", "agentId": NOBODY, "deliver": False, "idempotencyKey": self.key}
        asked = {"type": "req", "id": number, "method": "agent", "params": params}
        return [{"sent": asked}, {"received": {"type": "res", "id": number, "ok": True} | answer}]

    def begin(self, transport: GatewayTransport) -> Child:
        agent, key, timeout = (self.asked[name] for name in ("agentId", "sessionKey", "timeout"))
        argv = transport.turn_argv(agent, key, self.directory / PROMPT, timeout)
        return transport.spawn(self.directory, argv, {}, files=self.files)

    def run_turn(self, replay: Replay) -> Exit:
        self.pair(replay.url)
        return self.run()

    def run(self) -> Exit:
        with carrying(self.path) as transport:
            ended = finish(self.begin(transport), 20)
        assert self.token.encode() not in ended.stdout + ended.stderr
        assert Mark.read(self.directory).status == ended.rc
        return ended


def of_anybody(frames: list[Frame]) -> list[Frame]:
    """The conversation without what depends on the device."""
    return [{"sent": None} if "sent" in frame else frame for frame in frames]


def certified(directory: Path) -> ssl.SSLContext:
    """A server's side of TLS for 127.0.0.1, with a certificate of its own making in `certificate.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2126, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(since).not_valid_after(until).add_extension(here, critical=False)
    signed = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "certificate.pem").write_bytes(signed)
    (directory / "both.pem").write_bytes(secret + signed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "both.pem")
    return context


def failed(outcome: Outcome) -> tuple[bool, Permanence]:
    assert isinstance(outcome, Failed), outcome
    return outcome.started, outcome.permanence


# Recorded conversations


def test_a_turn_that_succeeds(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    with Replay(talk.frames) as replay:
        ended = talk.run_turn(replay)
    outcome = classify(ended)
    assert isinstance(outcome, Succeeded)
    assert (ended.rc, outcome.text, outcome.run_id) == (0, "Forty-two.", talk.key)
    assert replay.complaints == []
    assert replay.pongs > 0


@pytest.mark.parametrize(
    ("case", "started", "permanence", "error"),
    [
        ("model-400", True, Permanence.PERMANENT, "LLM request failed: provider rejected the request schema"),
        ("timeout", True, Permanence.TRANSIENT, "the turn timed out"),
        ("unknown-agent", False, Permanence.PERMANENT, "Gateway refused the turn: invalid agent params"),
        ("reset", False, Permanence.PERMANENT, "Gateway refused the turn: missing scope: operator.admin"),
        ("wrong-token", False, Permanence.PERMANENT, "unauthorized: gateway token mismatch"),
        ("pairing-required", False, Permanence.PERMANENT, "unauthorized: pairing required: device is not approved yet"),
    ],
)
def test_a_turn_that_fails(tmp_path: Path, case: str, started: bool, permanence: Permanence, error: str) -> None:
    talk = Conversation(case, tmp_path)
    if case == "pairing-required":  # recorded with a device of its own
        talk.frames = of_anybody(talk.frames)
    refused = error.startswith("unauthorized")  # at once, and again for the turn
    with Replay(talk.frames, after=[talk.frames] if refused else ()) as replay:
        outcome = classify(talk.run_turn(replay))
    assert failed(outcome) == (started, permanence)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)
    assert replay.complaints == []


def test_the_echo_of_the_prompt_is_not_printed(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.frames[-1]["received"]["payload"]["result"]["meta"]["finalPromptText"] = "the whole prompt"
    with Replay(talk.frames) as replay:
        assert b"the whole prompt" not in talk.run_turn(replay).stdout


@pytest.mark.parametrize(
    ("error", "permanence"),
    [
        ({"code": "UNAVAILABLE", "message": "too many requests are waiting"}, Permanence.TRANSIENT),
        ({"code": "INVALID_REQUEST", "message": "Session changed. Retry."}, Permanence.TRANSIENT),
        ({"code": "FORBIDDEN", "message": "missing scope: operator.write"}, Permanence.PERMANENT),
        ({"code": "SOMETHING_NEW", "message": "who knows"}, None),
        ("not an error as we know it", None),
    ],
)
def test_a_refusal_before_the_acceptance(tmp_path: Path, error: Any, permanence: Permanence | None) -> None:
    talk = Conversation("ok", tmp_path)
    refusal = {"received": {"type": "res", "id": "1", "ok": False, "error": error}}
    with Replay([*talk.up_to("agent"), refusal]) as replay:
        outcome = classify(talk.run_turn(replay))
    if permanence is None:
        assert isinstance(outcome, Unknown)
    else:
        assert failed(outcome) == (False, permanence)


def test_frames_that_are_no_answer_to_us_are_passed_over(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    noise: list[Any] = [
        {"type": "event", "event": "tick", "payload": {}},
        {"type": "res", "id": "99", "ok": True, "payload": {"status": "ok"}},
        {"type": "res", "id": 1, "ok": True},
        ["not", "an", "object"],
        {"type": "res", "id": "1", "ok": "yes"},
    ]
    with Replay([*talk.up_to("agent"), *({"received": frame} for frame in noise), *talk.frames[-2:]]) as replay:
        assert isinstance(classify(talk.run_turn(replay)), Succeeded)


# Connections that break, and turns of a program that died: they are asked about


def accepted_then(talk: Conversation, *answers: list[Frame]) -> Replay:
    """A gateway that accepts the turn and hangs up, and on the next connection answers these questions."""
    welcome = talk.up_to("connect", answers=1)
    return Replay(talk.up_to("agent", answers=1), drops=1, after=[[*welcome, *chain(*answers)]])


def test_a_turn_whose_connection_breaks_is_asked_about_and_its_stored_result_is_taken(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    stored = talk.frames[-1]["received"]["payload"]
    with accepted_then(talk, talk.question("1", payload=stored)) as replay:
        outcome = classify(talk.run_turn(replay))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "Forty-two."
    assert replay.complaints == []


def test_a_turn_that_is_still_in_flight_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_ASK_PAUSE", 0.01)
    talk = Conversation("ok", tmp_path)
    flies = {"status": "in_flight", "runId": talk.key}
    waits: list[Frame] = [
        {"sent": None},
        {"received": {"type": "res", "id": "2", "ok": True, "payload": {"status": "ok"}}},
    ]
    stored = talk.question("3", payload=talk.frames[-1]["received"]["payload"])
    with accepted_then(talk, talk.question("1", payload=flies), waits, stored) as replay:
        outcome = classify(talk.run_turn(replay))
    assert isinstance(outcome, Succeeded)
    (waited,) = [said for said in replay.heard if said["method"] == "agent.wait"]
    assert waited["params"]["runId"] == talk.key
    assert replay.complaints == []


def test_a_connection_that_breaks_before_the_request_has_started_nothing(tmp_path: Path) -> None:
    for number, length in enumerate((0, 1, 2)):
        (tmp_path / str(number)).mkdir()
        talk = Conversation("ok", tmp_path / str(number))
        with Replay(talk.frames[:length], drops=2, after=[talk.frames[:length]]) as replay:
            assert failed(classify(talk.run_turn(replay))) == (False, Permanence.TRANSIENT)


def test_an_unreachable_gateway_has_started_nothing(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.pair("ws://127.0.0.1:1")
    assert failed(classify(talk.run())) == (False, Permanence.TRANSIENT)


def test_a_draining_gateway_has_started_nothing(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    body = b"Gateway websocket admission closed"
    refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with Replay([], after=[[]], refusal=refusal) as replay:
        drains = classify(talk.run_turn(replay))
    assert failed(drains) == (False, Permanence.TRANSIENT)
    assert isinstance(drains, Failed)
    assert "HTTP 503: Gateway websocket admission closed" in drains.error


def test_a_gateway_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HANDSHAKE_SECONDS", 0.2)
    talk = Conversation("ok", tmp_path)
    with Replay([], after=[[]]) as replay:
        assert failed(classify(talk.run_turn(replay))) == (False, Permanence.TRANSIENT)


def test_a_run_that_does_not_end_in_time_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "EXTRA_SECONDS", -59.0)
    talk = Conversation("ok", tmp_path)
    with Replay(talk.up_to("agent", answers=1)) as replay:
        outcome = classify(talk.run_turn(replay))
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == talk.key
    assert outcome.error.startswith("gateway timeout after 1000ms")


def test_a_gateway_that_hangs_up_while_we_speak_makes_us_tell_no_token(tmp_path: Path) -> None:
    for number, end in enumerate(({"closed": [1008, "go away"]}, {"closed": [1012, ""]})):
        (tmp_path / str(number)).mkdir()
        talk = Conversation("ok", tmp_path / str(number))
        with Replay([talk.frames[0], end], after=[[talk.frames[0], end]]) as replay:
            assert failed(classify(talk.run_turn(replay))) == (False, Permanence.TRANSIENT)


def test_another_machine_is_spoken_to_over_tls_and_only_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certified(tmp_path)
    for name in ("stranger", "known"):
        (tmp_path / name).mkdir()
    talk = Conversation("ok", tmp_path / "stranger")
    with Replay(talk.frames, after=[talk.frames], tls=tls) as replay:
        stranger = classify(talk.run_turn(replay))
    assert failed(stranger) == (False, Permanence.TRANSIENT)
    assert isinstance(stranger, Failed)
    assert "certificate verify failed" in stranger.error
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    talk = Conversation("ok", tmp_path / "known")
    with Replay(talk.frames, tls=tls) as replay:
        assert isinstance(classify(talk.run_turn(replay)), Succeeded)


def test_a_message_that_no_frame_holds_is_not_sent(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.frames[2]["received"]["payload"]["policy"]["maxPayload"] = 100
    with Replay(talk.up_to("connect", answers=1)) as replay:
        outcome = classify(talk.run_turn(replay))
    assert failed(outcome) == (False, Permanence.PERMANENT)
    assert replay.complaints == []


# Other requests


class Asked(Conversation):
    """A request that is no turn, with what the gateway answers."""

    def __init__(self, tmp_path: Path, **answer: Any) -> None:
        super().__init__("ok", tmp_path)
        self.params = {"key": "tsk_1:done", "text": "Fertig: 42 €"}
        sent = {"type": "req", "id": "1", "method": "mailboxd.note", "params": self.params}
        answered = [{"received": {"type": "res", "id": "1"} | answer}] if answer else []
        self.frames = [*self.up_to("connect", answers=1), {"sent": sent}, *answered]
        self.files = {PROMPT: json.dumps(self.params).encode()}

    def begin(self, transport: GatewayTransport) -> Child:
        return transport.spawn(self.directory, transport.request_argv("mailboxd.note", 60), {}, files=self.files)


def test_a_request_leaves_its_payload_or_the_gateways_refusal(tmp_path: Path) -> None:
    for number, (answer, rc, said) in enumerate(
        (
            ({"ok": True, "payload": {"appended": True}}, 0, {"appended": True}),
            ({"ok": False, "error": {"code": "INVALID_REQUEST", "message": "unknown method: mailboxd.note"}}, 1, None),
        )
    ):
        (tmp_path / str(number)).mkdir()
        talk = Asked(tmp_path / str(number), **answer)
        with Replay(talk.frames) as replay:
            ended = talk.run_turn(replay)
        assert replay.complaints == []
        assert ended.rc == rc
        assert json.loads(ended.stdout) == said or b"unknown method: mailboxd.note" in ended.stdout


def test_a_request_is_sent_once_whatever_becomes_of_its_connection(tmp_path: Path) -> None:
    talk = Asked(tmp_path)
    with Replay(talk.frames, drops=1, after=[talk.frames]) as replay:
        ended = talk.run_turn(replay)
    assert ended.rc == 1
    assert b"gateway closed" in ended.stdout
    assert [said["method"] for said in replay.heard].count("mailboxd.note") == 1


def test_a_request_that_is_stopped_is_no_longer_waited_for(tmp_path: Path) -> None:
    talk = Asked(tmp_path)
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as gateway:
            child = talk.begin(gateway)
            eventually(lambda: any(said["method"] == "mailboxd.note" for said in replay.heard))
            child.terminate()
            assert finish(child, 20).rc == program.STOPPED


def test_a_request_whose_program_died_has_ended_and_is_not_handed_over_again(tmp_path: Path) -> None:
    talk = Asked(tmp_path)
    gateway = GatewayTransport(CLI, talk.path, {"TMPDIR": str(tmp_path)})
    argv = gateway.request_argv("mailboxd.note", 60)
    os.close(process.claim(talk.directory, argv, talk.files, durable=True))
    assert gateway.state(talk.directory) is State.ENDED
    assert gateway.adopt(talk.directory) is None


# Stopping


def test_a_turn_that_is_stopped_is_aborted(tmp_path: Path) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            child = talk.begin(transport)
            eventually(lambda: Mark.read(talk.directory).run_id, 20)
            child.terminate()
            ended = finish(child, 20)
    assert ended == Exit(143, b"")
    assert isinstance(classify(ended), Aborted)
    assert replay.complaints == []


def test_a_stop_whose_abort_is_not_confirmed_says_so(tmp_path: Path) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.up_to("chat.abort"), drops=1) as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            child = talk.begin(transport)
            eventually(lambda: Mark.read(talk.directory).run_id, 20)
            child.terminate()
            ended = finish(child, 20)
    assert (ended.rc, ended.stdout) == (143, b"")
    outcome = classify(ended)
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == talk.key


def test_a_turn_that_is_killed_is_forgotten_at_once(tmp_path: Path) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.up_to("agent", answers=1)) as replay:
        talk.pair(replay.url)
        with carrying(talk.path) as transport:
            child = talk.begin(transport)
            eventually(lambda: Mark.read(talk.directory).run_id, 20)
            child.kill()
            ended = finish(child, 20)
    assert ended.rc == -signal.SIGKILL
    assert isinstance(classify(ended), Unknown)


# The program as a process, the daemon, and what each leaves when it dies


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[], GatewayTransport]]:
    """Daemons, one after the other, whose programs are processes."""
    made: list[GatewayTransport] = []

    def start() -> GatewayTransport:
        made.append(GatewayTransport(CLI, tmp_path / "gateway.json", {**os.environ, "TMPDIR": str(tmp_path)}))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_turn_outlives_its_daemon_and_the_next_one_finds_it(
    tmp_path: Path, started: Callable[[], GatewayTransport]
) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        first, second = started(), started()
        assert second.state(talk.directory) is State.NEVER_STARTED
        talk.begin(first).leave()
        first.close()
        assert second.state(talk.directory) is State.RUNNING
        eventually(lambda: Mark.read(talk.directory).run_id, 20)
        child = second.adopt(talk.directory)
        assert child is not None
        child.terminate()
        assert finish(child, 20) == Exit(143, b"")
    assert second.state(talk.directory) is State.ENDED
    assert second.adopt(talk.directory) is None
    assert replay.complaints == []


@pytest.mark.slow
def test_a_turn_whose_program_is_killed_is_taken_by_another_that_asks_about_it(
    tmp_path: Path, started: Callable[[], GatewayTransport]
) -> None:
    talk = Conversation("ok", tmp_path)
    with accepted_then(talk, talk.question("1", payload=talk.frames[-1]["received"]["payload"])) as replay:
        replay.hangs_up.clear()  # not before the program is dead
        talk.pair(replay.url)
        transport = started()
        child = talk.begin(transport)
        eventually(lambda: Mark.read(talk.directory).run_id, 20)
        os.kill(Mark.read(talk.directory).takers[-1], signal.SIGKILL)
        replay.hangs_up.set()
        eventually(lambda: has_ended(child.pidfd), 20)
        assert child.reap() is None
        assert transport.state(talk.directory) is State.RUNNING
        again = transport.adopt(talk.directory)
        assert again is not None
        outcome = classify(finish(again, 20))
        transport.close()
    assert isinstance(outcome, Succeeded)
    assert len(set(Mark.read(talk.directory).takers)) == 2
    assert replay.complaints == []


def test_a_turn_is_not_handed_over_for_ever_to_programs_that_do_not_start(
    tmp_path: Path, started: Callable[[], GatewayTransport]
) -> None:
    talk = Conversation("ok", tmp_path)
    transport = started()
    transport.environment = {**transport.environment, "PYTHONHOME": "/nowhere"}
    child: Child | None = talk.begin(transport)
    ended, orders = None, 0
    while ended is None:
        assert child is not None
        eventually(lambda child=child: has_ended(child.pidfd), 20)  # type: ignore[misc]
        ended, orders = child.reap(), orders + 1
        if ended is None:
            assert transport.state(talk.directory) is State.RUNNING
            child = transport.adopt(talk.directory)
    assert orders == 3
    assert isinstance(classify(ended), Unknown)
    assert transport.state(talk.directory) is State.ENDED


@pytest.mark.slow
def test_a_program_that_does_not_obey_is_killed(tmp_path: Path, started: Callable[[], GatewayTransport]) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.up_to("agent", answers=1)) as replay:
        talk.pair(replay.url)
        child = talk.begin(started())
        eventually(lambda: Mark.read(talk.directory).run_id, 20)
        os.kill(Mark.read(talk.directory).takers[-1], signal.SIGSTOP)
        child.kill()
        assert child.reap() is None
        child.kill()
        eventually(lambda: has_ended(child.pidfd), 20)


def test_sigterm_has_the_program_abort_its_turns(tmp_path: Path, started: Callable[[], GatewayTransport]) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        child = talk.begin(started())
        eventually(lambda: Mark.read(talk.directory).run_id, 20)
        os.kill(Mark.read(talk.directory).takers[-1], signal.SIGTERM)
        assert finish(child, 20) == Exit(143, b"")
    assert replay.complaints == []


def test_a_program_without_a_daemon_and_without_turns_ends(
    tmp_path: Path, started: Callable[[], GatewayTransport]
) -> None:
    talk = Conversation("ok", tmp_path)
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        transport = started()
        ended = finish(talk.begin(transport), 20)
        assert isinstance(classify(ended), Succeeded)
        pidfd = os.pidfd_open(Mark.read(talk.directory).takers[-1])
        assert not has_ended(pidfd)
        transport.close()
        eventually(lambda: has_ended(pidfd), 20)
        os.close(pidfd)


@pytest.mark.slow
def test_a_turn_that_is_ordered_while_the_program_ends_is_carried(
    tmp_path: Path, started: Callable[[], GatewayTransport]
) -> None:
    pairing.write(tmp_path / "gateway.json", Pairing("ws://127.0.0.1:9", NAME, DEVICE, "token"))
    for number in range(20):
        directory, transport = tmp_path / f"trn_{number}", started()
        argv = transport.turn_argv("alpha", "agent:alpha:mailboxd:x", directory / PROMPT, 60)
        ended = finish(transport.spawn(directory, argv, {}, files={PROMPT: b"[mailboxd] work"}), 20)
        transport.close()
        assert (ended.rc, b"not reachable" in ended.stdout) == (1, True), number


@pytest.mark.parametrize("spoil", [lambda folder: folder.chmod(0o755), lambda folder: replaced_by_a_link(folder)])
def test_a_directory_that_others_may_enter_is_not_used(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    made = GatewayTransport(CLI, tmp_path / "gateway.json", {"TMPDIR": str(tmp_path)})
    spoil(made.socket_path().parent)
    argv = made.turn_argv("alpha", "agent:alpha:mailboxd:x", "f", 60)
    with pytest.raises(WorldError, match="not a directory of this user alone"):
        made.spawn(tmp_path / "trn_1", argv, {})
    assert made.state(tmp_path / "trn_1") is State.NEVER_STARTED


def replaced_by_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


# What the daemon hands over


def test_a_lone_surrogate_in_a_result_is_written_as_its_escape(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.frames[-1]["received"]["payload"]["result"]["payloads"][0]["text"] = "half a pair: \ud83d"
    with Replay(talk.frames) as replay:
        outcome = classify(talk.run_turn(replay))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "half a pair: \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (None, "Message file not found: "),
        (b" \n", "Message file is empty: "),
        (b"\xff\xfe", "Message file must be valid UTF-8: "),
    ],
)
def test_a_message_that_cannot_be_read_has_started_nothing(tmp_path: Path, raw: bytes | None, error: str) -> None:
    talk = Conversation("ok", tmp_path)
    talk.files = {} if raw is None else {PROMPT: raw}
    with Replay(talk.up_to("connect", answers=1)) as replay:
        outcome = classify(talk.run_turn(replay))
    assert failed(outcome) == (False, Permanence.PERMANENT)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)


def test_nothing_is_started_without_a_device(tmp_path: Path) -> None:
    assert failed(classify(Conversation("ok", tmp_path).run())) == (False, Permanence.PERMANENT)


@pytest.mark.parametrize("mark", [b"", b"not JSON", b'["sh"]', b"[1]", b'{"a": 1}', b'["mailboxd-gateway"]'])
def test_a_mark_that_is_no_turn_of_ours_is_that_of_a_process(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "call").write_bytes(mark)
    made = GatewayTransport(CLI, tmp_path / "gateway.json", {})
    assert made.state(tmp_path) is State.ENDED
    assert made.adopt(tmp_path) is None


def test_a_turn_with_a_model_of_its_own_goes_through_the_cli(tmp_path: Path) -> None:
    made = GatewayTransport(CLI, tmp_path / "gateway.json", {})
    argv = made.turn_argv("alpha", "k", tmp_path / "f", 60, "p/m")
    assert argv == CLI.turn_argv("alpha", "k", tmp_path / "f", 60, "p/m")
    child = made.spawn(tmp_path / "call", ["/bin/echo", "as a process"], {})
    assert made.state(tmp_path / "call") in (State.RUNNING, State.ENDED)
    assert finish(child, 20) == Exit(0, b"as a process\n")


@pytest.mark.parametrize(("setting", "unpaired"), [("cli", None), ("auto", None), ("gateway", ConfigError)])
def test_the_gateway_is_chosen_for_a_workspace_that_is_paired(
    tmp_path: Path, setting: str, unpaired: type[ConfigError] | None
) -> None:
    path = tmp_path / "gateway.json"

    def chosen() -> GatewayTransport | None:
        return transport.chosen(setting, CLI, path, {})

    for before in (None, Pairing("ws://127.0.0.1:1", NAME, DEVICE)):
        if before is not None:
            pairing.write(path, before)
        if unpaired is None:
            assert chosen() is None
        else:
            with pytest.raises(unpaired, match="mailboxd connect gateway pair"):
                chosen()
    pairing.write(path, Pairing("ws://127.0.0.1:1", NAME, DEVICE, "token"))
    assert chosen() == (None if setting == "cli" else GatewayTransport(CLI, path, {}))


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "EXTRA", ("no_such_module_of_ours",))
    with pytest.raises(ConfigError, match=r"no_such_module_of_ours.*\[gateway\]"):
        transport.require_extra()


# Pairing


def test_a_request_that_waits_keeps_the_pairing_that_works(tmp_path: Path) -> None:
    talk = Conversation("pairing-required", tmp_path)
    known = Pairing("ws://127.0.0.1:1", NAME, DEVICE, "works")
    pairing.write(talk.path, known)
    with Replay(of_anybody(talk.frames)) as replay:
        found = pair(talk.path, replay.url, "alpha", "secret", SystemClock())
    assert isinstance(found, ApprovalPending)
    assert found.request == talk.frames[2]["received"]["error"]["details"]["requestId"]
    assert found.pairing.device == DEVICE
    assert pairing.read(talk.path) == known


def test_a_first_request_that_waits_keeps_its_key_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    devices = set()
    for _ in range(2):
        with Replay(of_anybody(conversation("pairing-required"))) as replay:
            devices.add(pair(path, replay.url, "alpha", "secret", SystemClock()).pairing.device)
    assert len(devices) == 1
