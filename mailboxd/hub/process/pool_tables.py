"""The tables of pools at the server, as one hub process reads and writes them: jobs, and their claims."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from nats.js.api import DiscardPolicy, RawStreamMsg, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from mailboxd.hub.process.here import ThisHost, reason_of
from mailboxd.hub.wire.pools import RENEWAL, Claim, Silence
from mailboxd.hub.wire.subjects import CLAIM_SUBJECTS, CLAIMS, JOB_SUBJECTS, JOBS, JobSubject

_MOST_JOBS = 100_000
_MOST_AGE = 30 * 86_400.0
"""Seconds that the server keeps a job; one that is still wanted then is offered again."""
_CLAIM_AGE, _LARGEST_CLAIM = 3_600.0, 2_048
"""How long, in seconds, and up to how many bytes with its headers it keeps a claim, also of a host that cheats. All are
kept for the same time, so that no earlier one becomes the last again."""
LOOK = RENEWAL / 2
"""Seconds between two looks at the same claim."""
_FORGOTTEN = 60.0
"""Seconds after which a claim that nobody looked at is forgotten here."""
_FULL = (10023, 10047, 10077)
"""Its codes for what it has no room for."""
_KEPT_FULL = 120.0
"""Seconds after which a table counts as full no more if nothing was refused meanwhile."""
_CONFLICT = 10071
"""The server's code for a claim that another one has overtaken."""


def streams(replicas: int) -> tuple[StreamConfig, ...]:
    """What the founder creates at the server."""
    jobs = StreamConfig(
        name=JOBS, subjects=[JOB_SUBJECTS], discard=DiscardPolicy.NEW, max_msgs=_MOST_JOBS, max_age=_MOST_AGE
    )
    last = StreamConfig(name=CLAIMS, subjects=[CLAIM_SUBJECTS], max_age=_CLAIM_AGE, max_msg_size=_LARGEST_CLAIM)
    common = {
        "max_msgs_per_subject": 1, "storage": StorageType.FILE, "num_replicas": replicas,
        "allow_direct": True, "allow_msg_ttl": True,
    }  # fmt: skip
    return tuple(one.evolve(**common) for one in (jobs, last))


@dataclass(slots=True)
class PoolTables:
    """Every method raises NatsError."""

    here: ThisHost
    _seen: dict[JobSubject, tuple[Claim | None, Silence]] = field(default_factory=dict)
    """The last claims of jobs that others may hold, when they were looked at."""
    _full_at: float = 0.0

    async def jobs(self, wanted: str) -> dict[JobSubject, set[str]]:
        """The jobs on these subjects."""
        return await self._subjects(JOBS, wanted)

    async def claims(self, wanted: str) -> dict[JobSubject, set[str]]:
        """The jobs with claims on these subjects, and whose claims those are."""
        return await self._subjects(CLAIMS, wanted)

    async def _subjects(self, stream: str, wanted: str) -> dict[JobSubject, set[str]]:
        found: dict[JobSubject, set[str]] = {}
        for subject in (await self.here.js.stream_info(stream, subjects_filter=wanted)).state.subjects or {}:
            if (job := JobSubject.parse(subject)) is not None:
                found.setdefault(job, set()).add(subject.rpartition(".")[2])
        return found

    async def job(self, job: JobSubject) -> RawStreamMsg | None:
        """The message; None if the server does not have it."""
        with suppress(NotFoundError):
            found = await self.here.js.get_msg(JOBS, subject=str(job), direct=True)
            return found if found.data else None
        return None

    async def remove(self, job: JobSubject) -> None:
        """Remove a job of this host."""
        await self.here.js.publish(str(job), b"", headers={"Nats-TTL": "1s"})

    async def claim(self, job: JobSubject) -> Claim | None:
        """The last claim of a job."""
        with suppress(NotFoundError):
            last = await self.here.js.get_last_msg(CLAIMS, job.claimed_by("*"))
            host = (last.subject or "").rpartition(".")[2]
            return Claim.parse(host, last.data or b"", last.seq or 0)
        return None

    async def write(
        self, job: JobSubject, claim: Claim, known: Claim | None, seconds: float = _CLAIM_AGE
    ) -> Claim | None:
        """Claim a job, for so many seconds at most.

        None if another claim was made after the known one, or the server is full (`here.full`).
        """
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(known.revision if known else 0),
            "Nats-Expected-Last-Subject-Sequence-Subject": job.claimed_by("*"),
            "Nats-TTL": f"{seconds:.0f}s",
        }
        try:
            stored = await self.here.js.publish(job.claimed_by(claim.host), claim.to_bytes(), headers=headers)
        except APIError as error:
            if error.err_code in _FULL:
                self.here.full_of[CLAIMS] = f"{self.here.server} takes no claims of jobs: {reason_of(error)}"
                self._full_at = self.here.clock.monotonic()
            elif error.err_code != _CONFLICT:
                raise
            return None
        self.here.full_of.pop(CLAIMS, None)
        return replace(claim, revision=stored.seq)

    def forget_full(self) -> None:
        """Nothing may be left to be written once there is room again."""
        if self.here.clock.monotonic() - self._full_at > _KEPT_FULL:
            self.here.full_of.pop(CLAIMS, None)

    def is_due(self, job: JobSubject) -> bool:
        """Whether it is time for another look at the claim of a job."""
        return job not in self._seen or self.here.clock.monotonic() - self._seen[job][1].at >= LOOK

    async def watched(self, job: JobSubject) -> tuple[Claim | None, Silence]:
        """The last claim of a job that others may hold, and how long it was seen to be the last."""
        now = self.here.clock.monotonic()
        if self.is_due(job):
            _, silence = self._seen.pop(job, (None, None))
            claim = await self.claim(job)
            self._seen = {each: seen for each, seen in self._seen.items() if now - seen[1].at < _FORGOTTEN}
            self._seen[job] = claim, Silence.after(silence, claim, now)
        return self._seen[job]
