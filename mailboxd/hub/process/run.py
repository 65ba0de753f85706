"""Running the hub process: alone on its host, connected to the server, with all its work going on at once."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import ServiceUnavailableError

from mailboxd.errors import LockedError, MailboxdError, Refused, WorldError
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.host import wakeup
from mailboxd.host.system import system
from mailboxd.hub.client.report import hub_report
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.view import NOT_RUNNING
from mailboxd.hub.process.here import RETRY, reason_of
from mailboxd.hub.process.hub import Hub
from mailboxd.hub.process.joining import ask_in
from mailboxd.hub.process.probe import NOBODY
from mailboxd.hub.wire import subjects
from mailboxd.hub.wire.members import nkey_seed
from mailboxd.hub.wire.pools import RENEWAL
from mailboxd.hub.wire.presence import CARD_SECONDS

_LOOK = 1.0
"""Seconds between two looks at the spools, if nothing wakes the process."""
_COMMITS = 0.1
"""Seconds between two looks at the databases while receipts are owed."""
_RESENDING = 5.0
_REMEMBERING = 30.0
"""Seconds between two times that the state is written down, for the time after a crash."""
_PINGS = 10
"""Seconds between two pings: a network that drops everything is noticed when two have no answer."""
_log = logging.getLogger("mailboxd")


@contextmanager
def _alone(folder: Path, woken: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of the one process, and listen for the daemons' pokes. Raises LockedError."""
    with world_errors(f"listen in {folder}"), (folder / "lock").open("ab") as lock, ExitStack() as closing:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"another hub process holds {folder}") from None
        poked = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        poked.setblocking(False)
        with suppress(FileNotFoundError):
            (folder / wakeup.NAME).unlink()
        with system.socket_address(folder / wakeup.NAME) as address:
            poked.bind(address)

        def drain() -> None:
            with suppress(BlockingIOError):
                while poked.recv(64):
                    pass
            woken()

        loop = asyncio.get_running_loop()
        loop.add_reader(poked, drain)
        closing.callback(loop.remove_reader, poked)
        yield


async def _prepare(hub: Hub) -> None:
    """See that the server has what is needed, also after its store was deleted. Raises NatsError, MailboxdError."""
    if hub.here.is_founder:
        await hub.founding.prepare()
    found = await hub.here.js.consumer_info(subjects.STREAM, hub.here.settings.host)
    waiting = (found.num_pending or 0) + (found.num_ack_pending or 0)
    await hub.presence.note_held(waiting, found.num_redelivered or 0)


async def serve(membership: Membership, environ: Mapping[str, str]) -> None:
    """Run until a signal asks to stop. Raises UnavailableError, ConfigError, WorldError."""
    hub = Hub.of(membership, environ)
    before = hub_report(membership)
    hub.presence.hosts, hub.presence.remembers = (
        {**before.hosts},
        before.at,
    )  # as they were heard of last, until their next cards
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hub.here.stopping.set)
    with _alone(membership.folder, hub.here.woken.set):
        hub.reporting.look_around()
        commands = await hub.commands.listen()
        try:
            for part in (_let_in, _stay):
                if not await hub.unless_stopped(part(hub)):
                    break
        finally:
            commands.close()
            hub.here.trouble = NOT_RUNNING
            hub.reporting.tell_daemons()
            hub.reporting.write_status()
            with suppress(NatsError, OSError, asyncio.TimeoutError):
                await asyncio.wait_for(hub.here.nc.close(), RETRY)


async def _let_in(hub: Hub) -> None:
    """Until the founder has let this host in, if it has an invitation. Raises ConfigError, WorldError."""
    while (invitation := hub.here.membership.joining()) is not None:
        try:
            why = await ask_in(hub.here.membership, invitation)
        except Refused as refusal:
            why = str(refusal)
        if why:
            hub.reporting.say_trouble(f"this host has not been let into the hub yet: {why}")
            await asyncio.sleep(_LOOK)
            hub.reporting.look_around()


async def _stay(hub: Hub) -> None:
    """Connect and do all work; again when the server has closed the connection for good: it does not know this host."""
    while True:
        closed = asyncio.Event()
        await _connect(hub, closed)
        parts = [asyncio.create_task(_carry(hub)), asyncio.create_task(closed.wait())]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            if parts[0].done():
                parts[0].result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        hub.here.nc = Client()
        hub.only_one.doubt()


async def _connect(hub: Hub, closed: asyncio.Event) -> None:
    """Connect, however long it takes until the server can be reached. It reconnects automatically."""
    context = ssl.create_default_context(cadata=hub.here.membership.certificate())

    async def failed(error: Exception) -> None:
        if "authorization violation" in str(error).lower():
            why = "does not know this host: it was revoked, or the server has yet to hear of it"
            hub.reporting.say_trouble(f"{hub.here.server} {why}")
        elif not hub.here.nc.is_connected:
            hub.reporting.say_trouble(f"{hub.here.server} does not answer: {reason_of(error)}")
        elif NOBODY not in str(error):  # that refusal is wanted
            _log.warning("the hub's server says: %s", reason_of(error))

    async def disconnected() -> None:
        hub.reporting.say_trouble(f"the connection to {hub.here.server} is lost")

    async def over() -> None:
        if not hub.only_one.is_stopped:
            closed.set()

    async def reconnected() -> None:
        hub.only_one.doubt()
        hub.here.woken.set()

    while not hub.here.nc.is_connected:
        try:
            await hub.here.nc.connect(
                list(hub.here.settings.servers),
                name=f"mailboxd {hub.here.settings.host}",
                tls=context,
                nkeys_seed_str=nkey_seed(hub.here.key),
                inbox_prefix=subjects.inbox_of(hub.here.settings.host),
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                connect_timeout=5,
                ping_interval=_PINGS,
                error_cb=failed,
                disconnected_cb=disconnected,
                reconnected_cb=reconnected,
                closed_cb=over,
            )
        except (TimeoutError, NatsError, OSError) as error:
            await failed(error)
            await asyncio.sleep(_LOOK)
            hub.reporting.look_around()


async def _carry(hub: Hub) -> None:
    """Do all work, until one part of it ends with a bug."""
    await hub.only_one.begin()

    async def hear(message: Msg) -> None:
        host = message.subject.rpartition(".")[2]
        if host != hub.here.settings.host and hub.requests.is_read(host, message.data):
            hub.presence.hear(host, message.data)

    await hub.here.nc.subscribe(f"{subjects.CARDS}.*", cb=hear)

    async def hear_older(message: Msg) -> None:
        hub.presence.hear_older(message.subject.rpartition(".")[2])

    await hub.here.nc.subscribe(f"{subjects.OLD_CARDS}.*", cb=hear_older)
    await hub.requests.listen()
    if hub.here.is_founder:
        await hub.here.nc.subscribe(subjects.joining(), cb=hub.founding.hear)

    async def every(seconds: float, work: Callable[[], Awaitable[None]], wake: asyncio.Event | None = None) -> None:
        while True:
            try:
                await hub.here.settled()
                await work()
            except (TimeoutError, NatsError, OSError, WorldError) as error:
                _log.debug("tried again: %s", error)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for((wake or asyncio.Event()).wait(), seconds)
            if wake is not None:
                wake.clear()

    async def prepare() -> None:
        try:
            await _prepare(hub)
        except (TimeoutError, NatsError, MailboxdError) as error:
            if hub.here.nc.is_connected:
                older = hub.here.is_founder and isinstance(error, (TimeoutError, NatsTimeout, ServiceUnavailableError))
                hint = "; if an older mailboxd started it, restart it" if older else ""
                hub.reporting.say_trouble(f"{hub.here.server} is not ready: {reason_of(error)}{hint}")
        else:
            hub.reporting.say_trouble("")
        hub.reporting.look_around()

    async def publish_new() -> None:
        await hub.sending.publish_new()
        hub.reporting.tell_daemons()  # what the server refuses

    async def follow_up() -> None:
        if hub.presence.takes_news():
            hub.reporting.tell_daemons()
            hub.reporting.write_status()  # who is there is known after a crash, too
        await hub.presence.follow_up()

    async def remember() -> None:
        hub.reporting.write_status()

    await prepare()
    await asyncio.gather(
        every(_LOOK, publish_new, hub.here.woken),
        every(_RESENDING, hub.tracking.tend),
        every(_RESENDING, hub.jobs_given.tend),
        every(_LOOK, hub.jobs_held.take, hub.jobs_held.freed),
        every(RENEWAL, hub.jobs_held.renew),
        every(_COMMITS, hub.receipts.send_owed),
        every(CARD_SECONDS, hub.presence.say),
        every(CARD_SECONDS, hub.presence.watch),
        every(CARD_SECONDS, hub.telling.tell),
        every(_LOOK, follow_up),
        every(_RESENDING, prepare),
        every(_REMEMBERING, remember),
        every(_LOOK, hub.receiving.receive),
    )
