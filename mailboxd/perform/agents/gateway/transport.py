"""The daemon's side of the gateway transport: it hands turns over to the program that carries them. Needs no extra.

A turn over the gateway is a call like any other (`agents.process`): one directory with prompt, mark and output. Instead
of a process of its own, the program holds the lock of the mark; the daemon passes it the locked descriptor over a Unix
socket, so that it is held without a gap. The program writes its pid into the mark when it takes the turn, and
the exit status when the turn has ended. Nothing else counts; the connection is only a bell and a stop button: it
closes when the turn has ended, and the daemon may write STOP and DROP to it.

A mark that nobody holds and that has no exit status is a turn whose program died. It is handed over again, to be asked
about (`program`), but not for ever.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from mailboxd.errors import ConfigError, WorldError
from mailboxd.host.pip_extras import to_add
from mailboxd.host.system import system
from mailboxd.perform.agents import process
from mailboxd.perform.agents.alive import has_ended, is_held
from mailboxd.perform.agents.call_dir import (
    CALL,
    OUTPUT_CAP,
    Exit,
    create,
    open_regular,
    read_capped,
    refusal,
    world,
    write,
)
from mailboxd.perform.agents.gateway.recovery import RecoveryStage
from mailboxd.perform.agents.json_output import at, parse_text, text_at
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.process import NO_FILES, Child, NotStarted, Recovery, State, claim, disclaim, read_exit
from mailboxd.perform.agents.readiness import is_loopback

EXTRA = ("cryptography", "wsproto")
"""The packages of `pip install 'mailboxd[gateway]'`."""
OWNER_TOOLS = (
    "automations, gateway, plugins, sessions, conversations_*, nodes, terminal, screen, computer, portal, mobile_ui"
)
"""Tools that OpenClaw offers only to its owner's clients."""
TURN_BYTES = 1 << 20
"""Memory that one more turn takes."""
PROGRAMS = 4
"""Processes of OpenClaw's CLI at once, for look-ups and turns with a model of their own: more are not faster."""
PROGRAM = "mailboxd-gateway"
"""The first word in the mark of a turn over the gateway; agent, session key and timeout follow, and the run's id if
this only asks about a run that was lost."""
QUESTIONS = "operator.questions"
"""What a device needs besides, to ask open questions in OpenClaw's chats."""
STOP, DROP = b"stop", b"drop"
"""Abort the turn; forget it at once."""
ERRAND = "mailboxd-gateway-request"
"""The first word in the mark of any other request; its method and timeout follow."""
_WAITING = 512
"""Orders that may wait for the program, more than there are turns."""
_ORDERS = 3
"""How often a turn is handed over, because a program that dies at its start must not be restarted forever."""
_WORDS = 4
_ERRAND_WORDS = 3
_LARGEST_MARK = 65_536


@dataclass(slots=True)
class GatewayTransport:
    """Runs turns over a WebSocket, as a `TurnTransport` and a `Launcher`.

    `pairing` is the file of the paired device, `environment` that of the program.
    """

    cli: OpenClaw
    pairing: Path
    environment: Mapping[str, str]
    _presence: socket.socket | None = field(default=None, init=False)
    """An open connection: the program stays while there is one."""
    _program: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """The turn in the words that `spawn` takes. Raises ValueError for invalid arguments.

        A turn with its own model uses the CLI: the gateway lets only administrators choose one, which the device is
        not.
        """
        argv = self.cli.turn_argv(agent, session_key, message_file, timeout, model)
        return (PROGRAM, agent, session_key, str(timeout)) if model is None else argv

    def lookup_argv(self, agent: str, session_key: str, run_id: str, timeout: int) -> tuple[str, ...]:
        """A question about this run, in the words that `spawn` takes: nothing is requested, only asked and awaited."""
        return (PROGRAM, agent, session_key, str(timeout), run_id)

    def request_argv(self, method: str, timeout: int) -> tuple[str, ...]:
        """A request of this method to the gateway, in the words that `spawn` takes; its parameters are the JSON object
        in the file PROMPT of the call, `timeout` is in seconds.

        It is sent once. Its output is the payload as JSON, with exit status 0, or the error, with 1.
        """
        return (ERRAND, method, str(timeout))

    def warm_up(self) -> None:
        """Start the program unless it runs, and keep it until `close`. Raises NotStarted, WorldError."""
        try:
            connection = self._connect()
        except OSError as problem:
            raise refusal(self.pairing.parent, problem) from problem
        if self._presence is None:
            self._presence = connection
        else:
            connection.close()

    def close(self) -> None:
        """Let the program end, once no turn is in flight."""
        if self._presence is not None:
            self._presence.close()
            self._presence = None

    # the launcher

    def spawn(
        self,
        directory: Path | str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None = None,
        *,
        files: Mapping[str, bytes] = NO_FILES,
        marked: bool = False,
    ) -> Child:
        """Hand a turn over to the program; any other call is a process. Raises as `process.spawn`."""
        if argv[0] not in (PROGRAM, ERRAND):
            return process.spawn(directory, argv, env, cwd, files=files, marked=marked)
        try:
            mark = claim(directory, argv, files, durable=not marked)
            try:
                return self._hand_over(directory, mark, again=argv[0] == PROGRAM and len(argv) > _WORDS)
            except (NotStarted, OSError):
                disclaim(directory)
                raise
            finally:
                os.close(mark)
        except OSError as problem:
            raise refusal(directory, problem) from problem

    def adopt(self, directory: Path | str) -> Child | None:
        """The call that an earlier daemon started, or a turn whose program died; None if it has ended.

        A request that is no turn ends with its program. Raises WorldError.
        """
        mark = Mark.read(directory)
        if not (mark.is_turn or mark.is_errand):
            return process.adopt(directory)
        if mark.status is not None or mark.is_given_up(directory):
            return None
        try:
            lock = open_regular(f"{directory}/{CALL}", os.O_RDWR | os.O_APPEND)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return self._hand_over(directory, None, again=True)
            else:
                note(lock, {"again": True})
                return self._hand_over(directory, lock, again=True)
            finally:
                os.close(lock)
        except OSError as problem:
            raise refusal(directory, problem) from problem
        except NotStarted as missing:
            raise WorldError(str(missing)) from missing

    def state(self, directory: Path | str) -> State:
        """The state that the directory proves. A turn whose program died counts as running: it can be asked about."""
        mark = Mark.read(directory)
        if not (mark.is_turn or mark.is_errand):
            return process.state(directory)
        return State.ENDED if mark.status is not None or mark.is_given_up(directory) else State.RUNNING

    # the program

    def socket_path(self) -> Path:
        """As the function, for this transport's program."""
        return socket_path(self.pairing, self.environment)

    def _hand_over(self, directory: Path | str, mark: int | None, *, again: bool) -> CarriedTurn:
        """Send the order, with the locked mark unless the program has it. Raises NotStarted, OSError.

        A program that dies before it has taken the order leaves what one leaves that dies afterwards.
        """
        connection = self._connect()
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(connection, [order(directory, again=again)], [] if mark is None else [mark])
        except BaseException:
            connection.close()
            raise
        return CarriedTurn(directory, connection)

    def _connect(self) -> socket.socket:
        """A connection to the program, which is started if it does not run. Raises NotStarted, OSError."""
        try:
            return self._reach()
        except (FileNotFoundError, ConnectionRefusedError):
            self.close()
            # listened to from here as well until both are connected: the program may die at its start
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                self._start(listener)
                self._presence = self._reach()
                return self._reach()

    def _reach(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with system.socket_address(self.socket_path()) as address:
                connection.connect(address)
        except BaseException:
            connection.close()
            raise
        return connection

    def _start(self, listener: socket.socket) -> None:
        """Start the program with a listening socket: orders may be sent before it has come up."""
        path = self.socket_path()
        with suppress(FileNotFoundError):
            path.unlink()
        with system.socket_address(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen(_WAITING)
        # -P: nothing must be imported from the working directory
        argv = (
            sys.executable,
            "-P",
            "-m",
            "mailboxd.perform.agents.gateway",
            str(self.pairing),
            str(listener.fileno()),
        )
        log = create(path.with_suffix(".log"), os.O_WRONLY | os.O_APPEND)
        try:
            self._program = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=dict(self.environment),
                cwd="/",
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
        except OSError as problem:
            raise NotStarted(argv[0], problem) from problem
        finally:
            os.close(log)


class CarriedTurn(Child):
    """A turn that the program carries. Its `pidfd` is a connection that the program closes when the turn has ended."""

    is_process = False

    def __init__(self, directory: Path | str, connection: socket.socket) -> None:
        super().__init__(directory, 0, connection.fileno())
        self._connection = connection
        self._is_dropped = False

    def reap(self, cap: int = OUTPUT_CAP) -> Exit | None:
        """As `Child.reap`; None also if the program died and the turn is to be adopted."""
        if not self._reaped and not has_ended(self.pidfd):
            return None
        mark = Mark.read(self.directory)
        exit_ = None
        if mark.status is not None or mark.is_given_up(self.directory):
            exit_ = read_exit(self.directory, mark.status, cap)
        self.leave()
        return exit_

    def recovery(self) -> Recovery | None:
        mark = Mark.read(self.directory)
        stage = RecoveryStage[mark.stage] if mark.stage in RecoveryStage.__members__ else ""
        return Recovery(stage, mark.since) if mark.since else None

    def leave(self) -> None:
        self._connection.close()
        self._reaped = True

    def terminate(self) -> None:
        """Have the program abort the turn."""
        self._tell(STOP)

    def kill(self) -> None:
        """Have the program forget the turn; if it does not, kill it: its other turns are then asked about."""
        if self._is_dropped:
            Mark.read(self.directory).kill_taker(self.directory)
        self._is_dropped = True
        self._tell(DROP)

    def _tell(self, what: bytes) -> None:
        with suppress(OSError):  # it has ended
            self._connection.send(what)


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a turn over the gateway, with what the program has added to it."""

    argv: tuple[str, ...] = ()
    takers: tuple[int, ...] = ()
    """The pids of the programs that have taken it."""
    orders: int = 0
    """How often it was handed over."""
    run_id: str | None = None
    """Its run, once the gateway has accepted it."""
    status: int | None = None
    """Its exit status."""
    requests: int = 1
    """How often it was requested, counting those that never began."""
    stage: str = ""
    """The stage of its recovery by a restarted gateway, the name of a `RecoveryStage`; empty if it needs none."""
    since: float = 0.0
    """When this recovery began or, without one, when the last ended (monotonic clock)."""

    @classmethod
    def read(cls, directory: Path | str) -> Mark:
        """The mark, an empty one if there is none. Agents can write there: anything else in its place is empty too."""
        try:
            raw, _ = read_capped(f"{directory}/{CALL}", _LARGEST_MARK)
        except OSError:
            return cls()
        argv, *records = [parse_text(line) for line in raw.splitlines() or (b"",)]
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            return cls()
        pids = tuple(pid for record in records if type(pid := at(record, "pid")) is int and pid > 1)
        runs = [run for record in records if isinstance(run := at(record, "run_id"), str)]
        statuses = [status for record in records if type(status := at(record, "status")) is int]
        orders = 1 + sum(at(record, "again") is True for record in records)
        requests = [n for record in records if type(n := at(record, "requests")) is int and n > 0]
        stage, since = "", 0.0
        for record in records:
            said, at_ = at(record, "stage"), at(record, "mono")
            if isinstance(said, str) and isinstance(at_, float):
                stage, since = said, since if stage and said else at_
        last = runs[-1] if runs else None, statuses[-1] if statuses else None, requests[-1] if requests else 1
        return cls(tuple(argv), pids, orders, *last, stage, since)

    @property
    def is_turn(self) -> bool:
        """Whether the program carries it, or carried it."""
        return len(self.argv) in (_WORDS, _WORDS + 1) and self.argv[0] == PROGRAM

    @property
    def is_errand(self) -> bool:
        """Whether it is a request that is no turn."""
        return len(self.argv) == _ERRAND_WORDS and self.argv[0] == ERRAND and self.argv[-1].isdecimal()

    def is_given_up(self, directory: Path | str) -> bool:
        """Whether too many attempts to hand it over have failed: one, if it is no turn. Raises WorldError."""
        with world(directory):
            return self.orders >= (1 if self.is_errand else _ORDERS) and not is_held(directory)

    def kill_taker(self, directory: Path | str) -> None:
        """Kill the program that carries it, if it still does."""
        for pid in self.takers[-1:]:
            with suppress(OSError):
                pidfd = system.watch(pid)
                try:
                    if is_held(directory, by=pid):
                        system.kill_watched(pidfd, pid)
                finally:
                    os.close(pidfd)


def pairing_file(workspace: Path, environ: Mapping[str, str]) -> Path:
    """The pairing file of a workspace (its real path), in the user's state directory.

    Not in the workspace, where an agent that is confined to it could read the key and run turns of other agents.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return Path(state) / "mailboxd" / "gateway" / f"{name}.json"


def granted(pairing: Path) -> frozenset[str]:
    """The scopes of a paired device; none if it is not paired. Raises ConfigError, WorldError."""
    from mailboxd.perform.agents.gateway.pairing import read  # needs the extra

    found = read(pairing)
    return frozenset() if found is None or found.token is None else frozenset(found.scopes)


def socket_path(pairing: Path, environment: Mapping[str, str]) -> Path:
    """The program's socket, in a directory that only this user can enter. Raises OSError.

    Not beside the pairing, which a service cannot write to (docs/setup.md), and not in the workspace: an agent that
    is confined to it could order turns of other agents.
    """
    folder = Path(environment.get("TMPDIR") or "/tmp") / f"mailboxd-{os.geteuid()}"  # noqa: S108 - checked
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o077:
        raise PermissionError(errno.EPERM, "not a directory of this user alone", str(folder))
    return folder / f"{pairing.stem}.sock"


def require_extra() -> None:
    """Raises ConfigError if the extra `gateway` is not installed."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the gateway transport needs {' and '.join(missing)}: run `{to_add('gateway')}`, "
            "or set `openclaw.transport: cli`"
        )


def chosen(setting: str, cli: OpenClaw, path: Path, environment: Mapping[str, str]) -> GatewayTransport | None:
    """The transport of `openclaw.transport`; None is the CLI. `auto` is the gateway if the workspace is paired.

    Raises ConfigError if it has to be the gateway and cannot be.
    """
    if setting == "cli":
        return None
    try:
        return ready(cli, path, environment)
    except ConfigError:
        if setting == "gateway":
            raise
        return None


def ready(cli: OpenClaw, path: Path, environment: Mapping[str, str]) -> GatewayTransport:
    """The transport of a paired workspace. Raises ConfigError if it is not paired."""
    require_extra()
    from mailboxd.perform.agents.gateway import pairing

    paired = pairing.read(path)
    if paired is None or paired.token is None:
        raise ConfigError(
            f"openclaw.transport is gateway, but this workspace is not paired (no token in {path}): "
            "run `mailboxd connect gateway pair`, or set `openclaw.transport: cli`"
        )
    return GatewayTransport(cli, path, environment)


# The order that hands a turn over; everything else about it is in its mark


def order(directory: Path | str, *, again: bool) -> bytes:
    """The order to carry a turn, one line. `again`: it may have been requested before: it is only asked about."""
    return json.dumps({"directory": str(directory), "again": again}).encode() + b"\n"


def parse_order(raw: bytes) -> tuple[str, bool]:
    """The directory of an order, and whether the turn is only asked about; an empty directory if it is none."""
    said = parse_text(raw)
    return text_at(said, "directory"), at(said, "again") is not False


def note(mark: int, what: Mapping[str, object]) -> None:
    """Add to a mark what became known of its turn: `run_id`, and `status` last. Raises OSError."""
    write(mark, json.dumps(what).encode() + b"\n")


# A gateway's address: this machine without TLS, any other only with TLS

_PORTS = {"ws": 80, "wss": 443}
_DEFAULT_PORT = 18789


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a gateway's validated URL."""

    url: str
    host: str
    port: int
    target: str
    """Path and query."""
    secure: bool


def parse_address(url: str) -> Address:
    """The parts of a gateway's URL. Raises ConfigError for anything but wss, or ws to a loopback address.

    A password in the URL (`wss://user:secret@host`) is refused as well: URLs are displayed and logged.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a gateway URL: {error}") from None
    if parts.scheme not in _PORTS or not host or not url.isprintable():
        raise ConfigError(f"{url!r} is not a gateway URL: write ws://127.0.0.1:18789 or wss://host")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL of a gateway must not contain a password: URLs are displayed and logged")
    if parts.scheme == "ws" and not is_loopback(host):
        raise ConfigError(
            f"{url} would send the device's token unencrypted over the network: "
            "use wss://, or a tunnel that ends on 127.0.0.1"
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(url, host, port, target, secure=parts.scheme == "wss")


def from_config(section: object, environ: Mapping[str, str]) -> str:
    """The gateway that OpenClaw itself would use: from its variables, then the `gateway` section of its configuration.

    Raises ConfigError for `mode: remote` without a URL.
    """
    if named := environ.get("OPENCLAW_GATEWAY_URL", "").strip():
        return named
    if at(section, "mode") == "remote":
        remote = at(section, "remote", "url")
        if not isinstance(remote, str) or not remote:
            raise ConfigError("OpenClaw's gateway.mode is remote, but gateway.remote.url is not set; use --url")
        return remote
    port = environ.get("OPENCLAW_GATEWAY_PORT", "").strip() or at(section, "port") or _DEFAULT_PORT
    return f"{'wss' if at(section, 'tls', 'enabled') is True else 'ws'}://127.0.0.1:{port}"
