"""The parts of the hub process, put together.

One process per user and host. It keeps nothing that it cannot rebuild: mail is in the spools, deliveries are in the
inboxes, what was committed is in the daemons' databases. So it may die anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from mailboxd.hub.files.membership import HostKeys, Membership
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.commands import Commands
from mailboxd.hub.process.founding import Founding
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.jobs_given import JobsGiven
from mailboxd.hub.process.jobs_held import JobsHeld
from mailboxd.hub.process.news import Telling
from mailboxd.hub.process.only_one import OnlyOne
from mailboxd.hub.process.pool_tables import PoolTables
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receipts import Receipts
from mailboxd.hub.process.receiving import Receiving
from mailboxd.hub.process.reporting import Reporting
from mailboxd.hub.process.requests import Requests
from mailboxd.hub.process.sending import Sending
from mailboxd.hub.process.tracking import Tracking
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Workspaces


@dataclass(slots=True)
class Hub:
    """The hub process of one user; each part knows those above it."""

    here: ThisHost
    workspaces: Workspaces
    under_way: UnderWay = field(init=False)
    attachments: Attachments = field(init=False)
    receipts: Receipts = field(init=False)
    requests: Requests = field(init=False)
    presence: Presence = field(init=False)
    jobs_given: JobsGiven = field(init=False)
    receiving: Receiving = field(init=False)
    jobs_held: JobsHeld = field(init=False)
    sending: Sending = field(init=False)
    tracking: Tracking = field(init=False)
    founding: Founding = field(init=False)
    telling: Telling = field(init=False)
    reporting: Reporting = field(init=False)
    commands: Commands = field(init=False)
    only_one: OnlyOne = field(init=False)

    def __post_init__(self) -> None:
        here, workspaces = self.here, self.workspaces
        self.under_way = UnderWay(here.clock)
        self.attachments = Attachments(here, self.under_way)
        self.receipts = Receipts(here, workspaces)
        self.requests = Requests(here)
        self.presence, tables = Presence(here, workspaces, self.requests), PoolTables(here)
        mail = (here, workspaces, self.under_way, self.attachments, self.receipts, self.presence)
        self.jobs_given = JobsGiven(*mail, tables)
        self.receiving = Receiving(*mail, self.jobs_given)
        self.jobs_held = JobsHeld(here, workspaces, self.receiving, self.jobs_given, tables)
        self.sending = Sending(*mail, self.jobs_given, self.jobs_held)
        self.tracking = Tracking(
            here, workspaces, self.under_way, self.receipts, self.presence, self.jobs_given, self.sending, self.requests
        )
        self.founding = Founding(here, self.presence)
        self.telling = Telling(here, workspaces, self.presence, self.requests)
        self.reporting = Reporting(
            here, workspaces, self.under_way, self.receipts, self.presence, self.jobs_given, self.jobs_held
        )
        self.commands = Commands(here, workspaces, self.presence, self.requests, self.founding, self.reporting.status)

        self.only_one = OnlyOne(here, self.reporting.say_trouble)
        here.settled = self.only_one.settled

    @classmethod
    def of(cls, membership: Membership, environ: Mapping[str, str]) -> Hub:
        """Raises UnavailableError, ConfigError, WorldError."""
        here = ThisHost(membership, membership.settings(), membership.key(), HostKeys(membership))
        return cls(here, Workspaces(membership, environ, here.clock))

    async def unless_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Do this until it ends, or until a signal asks to stop; returns whether it has ended."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self.here.stopping.wait())
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        for one in (task, stop):
            one.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return not self.here.stopping.is_set()
