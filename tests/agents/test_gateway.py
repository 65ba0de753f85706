"""A turn over the gateway: recorded conversations over a real WebSocket, and the outcomes that they lead to."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.gateway import client, pairing, program, transport
from mailboxd.agents.gateway.client import ApprovalPending, pair
from mailboxd.agents.gateway.pairing import Device, Pairing
from mailboxd.agents.gateway.program import Signals, TurnOptions, TurnResult, run_turn
from mailboxd.agents.gateway.transport import GatewayTransport
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.outcome import classify
from mailboxd.clock import SystemClock
from mailboxd.core.outcomes import Aborted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.errors import ConfigError
from tests.agents.replay import Frame, Replay, conversation
from tests.e2e.support import eventually

DEVICE = Device(bytes(range(32)))
NAME = "mailboxd alpha fixture"


class Conversation:
    """A recorded conversation, and the order that leads to it."""

    def __init__(self, case: str, tmp_path: Path) -> None:
        self.frames = conversation(case)
        self.sent = {frame["sent"]["method"]: frame["sent"]["params"] for frame in self.frames if "sent" in frame}
        self.token: str = self.sent["connect"]["auth"]["token"]
        self.path = tmp_path / "gateway.json"
        asked = self.sent.get("agent", {"agentId": "alpha", "sessionKey": "agent:alpha:mailboxd:x", "timeout": 60})
        message = tmp_path / "prompt.md"
        message.write_text(asked.get("message", "[mailboxd] work"), encoding="utf-8", newline="")
        key = asked.get("idempotencyKey", "trn_1")
        self.order = TurnOptions(asked["agentId"], asked["sessionKey"], message, asked["timeout"], self.path, key)

    def pair(self, url: str) -> None:
        pairing.write(self.path, Pairing(url, NAME, DEVICE, self.token))

    def up_to(self, method: str, *, answers: int = 0) -> list[Frame]:
        """The frames up to our request `method`, and so many after it."""
        place = next(
            number for number, frame in enumerate(self.frames) if frame.get("sent", {}).get("method") == method
        )
        return self.frames[: place + 1 + answers]

    def run_turn(self, replay: Replay) -> TurnResult:
        self.pair(replay.url)
        ended = run_turn(self.order, {}, Signals(), SystemClock())
        assert self.token not in json.dumps(ended.value) + ended.said
        return ended

    def argv(self) -> list[str]:
        order = self.order
        words = {
            "--pairing": order.pairing,
            "--agent": order.agent,
            "--session-key": order.session_key,
            "--message-file": order.message_file,
            "--timeout": order.timeout,
            "--idempotency-key": order.idempotency_key,
        }
        options = [str(word) for pair in words.items() for word in pair]
        return [sys.executable, "-P", "-m", "mailboxd.agents.gateway", "agent", "--json", *options]


def of_anybody(frames: list[Frame]) -> list[Frame]:
    """The conversation without what depends on the device."""
    return [{"sent": None} if "sent" in frame else frame for frame in frames]


def judged(ended: TurnResult) -> Outcome:
    return classify(Exit(ended.status, json.dumps(ended.value).encode() if ended.value is not None else b""))


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
    outcome = judged(ended)
    assert isinstance(outcome, Succeeded)
    assert (ended.status, outcome.text, outcome.run_id) == (0, "Forty-two.", talk.order.idempotency_key)
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
    with Replay(talk.frames) as replay:
        outcome = judged(talk.run_turn(replay))
    assert failed(outcome) == (started, permanence)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)
    assert replay.complaints == []


def test_the_echo_of_the_prompt_is_not_printed(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.frames[-1]["received"]["payload"]["result"]["meta"]["finalPromptText"] = "the whole prompt"
    with Replay(talk.frames) as replay:
        assert "the whole prompt" not in json.dumps(talk.run_turn(replay).value)


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
        outcome = judged(talk.run_turn(replay))
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
        assert isinstance(judged(talk.run_turn(replay)), Succeeded)


# Connections that break


@pytest.mark.parametrize(("answers", "run_id"), [(0, False), (1, True)])
def test_a_connection_that_breaks_after_the_request_is_unknown(tmp_path: Path, answers: int, run_id: bool) -> None:
    talk = Conversation("ok", tmp_path)
    with Replay(talk.up_to("agent", answers=answers), drops=True) as replay:
        ended = talk.run_turn(replay)
    outcome = judged(ended)
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == (talk.order.idempotency_key if run_id else None)
    assert "gateway closed (1006 abnormal closure (no close frame))" in json.dumps(ended.value)


def test_a_connection_that_breaks_before_the_request_has_started_nothing(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    for frames in ([], talk.frames[:1], talk.up_to("connect")):
        with Replay(frames, drops=True) as replay:
            assert failed(judged(talk.run_turn(replay))) == (False, Permanence.TRANSIENT)


def test_an_unreachable_or_draining_gateway_has_started_nothing(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.pair("ws://127.0.0.1:1")
    down = judged(run_turn(talk.order, {}, Signals(), SystemClock()))
    assert failed(down) == (False, Permanence.TRANSIENT)
    body = b"Gateway websocket admission closed"
    refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with Replay([], refusal=refusal) as replay:
        drains = judged(talk.run_turn(replay))
    assert failed(drains) == (False, Permanence.TRANSIENT)
    assert isinstance(drains, Failed)
    assert "HTTP 503: Gateway websocket admission closed" in drains.error


def test_a_gateway_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(program, "EXTRA_SECONDS", -59.8)
    talk = Conversation("ok", tmp_path)
    with Replay([]) as replay:
        assert failed(judged(talk.run_turn(replay))) == (False, Permanence.TRANSIENT)
    with Replay(talk.up_to("agent", answers=1)) as replay:
        outcome = judged(talk.run_turn(replay))
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == talk.order.idempotency_key
    assert outcome.error.startswith("gateway timeout after 200ms")


def test_a_gateway_that_hangs_up_while_we_speak_makes_us_tell_no_token(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    for end in ({"closed": [1008, "go away"]}, {"closed": [1012, ""]}):
        with Replay([talk.frames[0], end]) as replay:
            assert failed(judged(talk.run_turn(replay))) == (False, Permanence.TRANSIENT)


def test_another_machine_is_spoken_to_over_tls_and_only_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certified(tmp_path)
    talk = Conversation("ok", tmp_path)
    with Replay(talk.frames, tls=tls) as replay:
        stranger = judged(talk.run_turn(replay))
    assert failed(stranger) == (False, Permanence.TRANSIENT)
    assert isinstance(stranger, Failed)
    assert "certificate verify failed" in stranger.error
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    with Replay(talk.frames, tls=tls) as replay:
        assert isinstance(judged(talk.run_turn(replay)), Succeeded)


def test_a_message_that_no_frame_holds_is_not_sent(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.frames[2]["received"]["payload"]["policy"]["maxPayload"] = 100
    with Replay(talk.up_to("connect", answers=1)) as replay:
        outcome = judged(talk.run_turn(replay))
    assert failed(outcome) == (False, Permanence.PERMANENT)
    assert replay.complaints == []


# The program


def test_the_program_prints_the_result(tmp_path: Path) -> None:
    talk = Conversation("ok", tmp_path)
    talk.frames[-1]["received"]["payload"]["result"]["payloads"][0]["text"] = "half a pair: \ud83d"
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        done = subprocess.run(talk.argv(), capture_output=True, timeout=300)
    outcome = classify(Exit(done.returncode, done.stdout, done.stderr))
    assert isinstance(outcome, Succeeded), done
    assert outcome.text == "half a pair: \N{REPLACEMENT CHARACTER}"
    assert done.stderr == b""


def test_sigterm_aborts_the_run_and_says_143(tmp_path: Path) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.frames) as replay:
        talk.pair(replay.url)
        process = subprocess.Popen(talk.argv(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        accepted = len(talk.up_to("agent", answers=1))
        eventually(lambda: replay.played >= accepted, 20)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (143, b"", b"")
    assert isinstance(classify(Exit(143, out, err)), Aborted)
    assert replay.complaints == []


def test_sigterm_whose_abort_is_not_confirmed_says_so(tmp_path: Path) -> None:
    talk = Conversation("abort", tmp_path)
    with Replay(talk.up_to("chat.abort"), drops=True) as replay:
        talk.pair(replay.url)
        process = subprocess.Popen(talk.argv(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        eventually(lambda: replay.played >= len(talk.up_to("agent", answers=1)), 20)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (143, b"")
    outcome = classify(Exit(143, out, err))
    assert isinstance(outcome, Unknown)
    assert outcome.run_id == talk.order.idempotency_key


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
    talk.order.message_file.unlink() if raw is None else talk.order.message_file.write_bytes(raw)
    outcome = judged(run_turn(talk.order, {}, Signals(), SystemClock()))
    assert failed(outcome) == (False, Permanence.PERMANENT)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)


@pytest.mark.parametrize("environ", [{}, {"OPENCLAW_SHELL": "exec"}])
def test_nothing_is_started_without_a_device_or_from_within_an_agent(tmp_path: Path, environ: dict[str, str]) -> None:
    talk = Conversation("ok", tmp_path)
    assert failed(judged(run_turn(talk.order, environ, Signals(), SystemClock()))) == (False, Permanence.PERMANENT)


def test_a_wrong_command_line_is_an_error_that_is_understood() -> None:
    argv = [sys.executable, "-P", "-m", "mailboxd.agents.gateway", "agent", "--nope"]
    done = subprocess.run(argv, capture_output=True, timeout=300)
    assert failed(classify(Exit(done.returncode, done.stdout, done.stderr))) == (False, Permanence.PERMANENT)


# The daemon's side


def test_the_transport_starts_our_program_with_the_arguments_of_openclaw(tmp_path: Path) -> None:
    cli = OpenClaw(("openclaw",))
    made = GatewayTransport(cli, tmp_path / "gateway.json")
    file = tmp_path / "trn_7" / "prompt.md"
    argv = made.turn_argv("alpha", "agent:alpha:x", file, 60)
    assert argv[:4] == (sys.executable, "-P", "-m", "mailboxd.agents.gateway")
    assert argv[-2:] == ("--idempotency-key", "trn_7")
    assert set(cli.turn_argv("alpha", "agent:alpha:x", file, 60)[1:]) < set(argv)


def test_a_turn_with_a_model_of_its_own_goes_through_the_cli(tmp_path: Path) -> None:
    cli = OpenClaw(("openclaw",))
    argv = GatewayTransport(cli, tmp_path / "gateway.json").turn_argv("alpha", "k", tmp_path / "f", 60, "p/m")
    assert argv == cli.turn_argv("alpha", "k", tmp_path / "f", 60, "p/m")


def test_the_transport_is_ready_only_for_a_workspace_that_is_paired(tmp_path: Path) -> None:
    cli, path = OpenClaw(("openclaw",)), tmp_path / "gateway.json"
    with pytest.raises(ConfigError, match="mailboxd connect gateway pair"):
        transport.ready(cli, path)
    pairing.write(path, Pairing("ws://127.0.0.1:1", NAME, DEVICE))
    with pytest.raises(ConfigError, match="mailboxd connect gateway pair"):
        transport.ready(cli, path)
    pairing.write(path, Pairing("ws://127.0.0.1:1", NAME, DEVICE, "token"))
    assert transport.ready(cli, path) == GatewayTransport(cli, path)


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "EXTRA", ("no_such_module_of_ours",))
    with pytest.raises(ConfigError, match=r"no_such_module_of_ours.*mailboxd\[gateway\]"):
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
