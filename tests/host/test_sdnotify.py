"""systemd's notification protocol, spoken to a real datagram socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailboxd.host.sdnotify import Listener, Notifier


@pytest.fixture(params=["file", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket like systemd's, and the name that stands in $NOTIFY_SOCKET."""
    name = str(tmp_path / "s") if request.param == "file" else f"@mailboxd-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.settimeout(5)
        bound.bind("\0" + name[1:] if name.startswith("@") else name)
        yield bound, name


def test_each_notice_is_one_datagram(listener: tuple[socket.socket, str]) -> None:
    bound, name = listener
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.starting("verifying events")
    notifier.ready("watching the inbox")
    notifier.watchdog()
    notifier.status("3 turns running")
    notifier.stopping("draining")
    assert [bound.recv(4096) for _ in range(5)] == [
        b"EXTEND_TIMEOUT_USEC=60000000\nSTATUS=verifying events",
        b"READY=1\nSTATUS=watching the inbox",
        b"WATCHDOG=1",
        b"STATUS=3 turns running",
        b"STOPPING=1\nSTATUS=draining",
    ]


def test_a_status_cannot_set_another_variable(listener: tuple[socket.socket, str]) -> None:
    bound, name = listener
    Notifier({"NOTIFY_SOCKET": name}).status("task a\nMAINPID=1\x00\ud800")
    assert bound.recv(4096) == b"STATUS=task a MAINPID=1  "


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_a_socket_nothing_happens(environ: dict[str, str]) -> None:
    notifier = Notifier(environ | {"WATCHDOG_USEC": "1000000"})
    notifier.ready("ready")
    assert notifier.watchdog_seconds is None


def test_a_listener_that_is_gone_or_full_does_not_stop_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "s"
    notifier = Notifier({"NOTIFY_SOCKET": str(path)})
    notifier.watchdog()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(path))
        for _ in range(2_000):
            notifier.watchdog()


@pytest.mark.parametrize(
    ("text", "seconds"), [("30000000", 30.0), ("0", None), ("", None), ("-5", None), ("9" * 30, None)]
)
def test_the_watchdog_interval_comes_from_systemd(text: str, seconds: float | None) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": "/run/systemd/notify", "WATCHDOG_USEC": text})
    assert notifier.watchdog_seconds == seconds


def test_what_a_daemon_says_is_heard_by_the_one_that_listens(tmp_path: Path) -> None:
    heard = Listener(tmp_path / "s", 6.0)
    try:
        assert heard.read() == {}
        notifier = Notifier(heard.environ)
        assert notifier.watchdog_seconds == 6.0
        notifier.starting("verifying")
        notifier.ready("agent a=b")
        assert heard.read() == {"EXTEND_TIMEOUT_USEC": "60000000", "READY": "1", "STATUS": "agent a=b"}
        assert heard.read() == {}
    finally:
        heard.close()
    with pytest.raises(OSError, match="too long"):
        Listener(tmp_path / ("x" * 120), 6.0)
