"""The streams at the server, and the subjects under which everything crosses: what the permissions of a host name.

    mb.v2.<to-host>.mail.<from-host>                                  a message
    mb.v2.<to-host>.receipt.<from-host>                               what became of one
    mb.v2.<to-host>.ask.<from-host>                                   asked directly, stored nowhere
    mb.v2.<host>.copy.<host>                                          whether this host runs elsewhere, too
    mb.v2.card.<host>                                                 who is there, stored nowhere
    mb.v2.join.<host>                                                 said by whoever has an invitation for this name
    mb.pool.v2.<role>.<from-host>.<job>                               a job for whoever serves the role
    mb.claim.v2.<role>.<from-host>.<job>.<host>                       whose turn it is
    mb.file.v2.<to-host>.<from-host>.<message>.<name>.<piece>         a part of a file that goes with a message

The server lets each host publish under its own name only, and the streams take only what is for a host of the hub.
Another version of the wire has other subjects and streams.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mailboxd.hub.wire.names import token, untoken

API = "mb.api"
"""Below it hosts reach what they may of the streams. The founder has the whole API below a name that only it knows."""
STREAM, SUBJECTS = "MAILBOXD2", ("mb.v2.*.mail.*", "mb.v2.*.receipt.*")
CARDS, OLD_CARDS = "mb.v2.card", "mb.v1.card"
"""Where hosts say who they are, and where those of the earlier version of the wire do: all that these may say."""
FILES, FILE_SUBJECTS = "MAILBOXD2_FILES", "mb.file.v2.>"
JOBS, JOB_SUBJECTS = "MAILBOXD2_JOBS", "mb.pool.v2.*.*.*"
CLAIMS, CLAIM_SUBJECTS = "MAILBOXD2_CLAIMS", "mb.claim.v2.*.*.*.*"
POOLS = "pool="
"""The receiver of files for whoever takes a job of a pool; no host has such a name."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Mail or a receipt: where it goes, and which host sent it.

    One subject for all agents of a host: the server's limit per subject is one per sender and receiver.
    """

    to: str
    kind: str
    sender: str

    def __str__(self) -> str:
        return f"mb.v2.{self.to}.{self.kind}.{self.sender}"

    @classmethod
    def parse(cls, text: str) -> Subject | None:
        """None for a subject of an unknown kind or version."""
        match text.split("."):
            case ["mb", "v2", to, "mail" | "receipt" as kind, sender]:
                return cls(to, kind, sender)
            case _:
                return None


def mail_subject(to: str, sender: str) -> Subject:
    return Subject(to, "mail", sender)


def receipt_subject(to: str, sender: str) -> Subject:
    return Subject(to, "receipt", sender)


def incoming(host: str) -> str:
    """The subjects of all that is for this host."""
    return f"mb.v2.{host}.*.*"


def asked(to: str, sender: str) -> str:
    """The subject on which one host asks another, and waits for the answer."""
    return f"mb.v2.{to}.ask.{sender}"


def copy_of(host: str) -> str:
    """The subject on which the hub processes of one host find out that there are two."""
    return f"mb.v2.{host}.copy.{host}"


def joining(host: str = "*") -> str:
    """The subject on which a host asks the founder to be let in."""
    return f"mb.v2.join.{host}"


def guest(host: str) -> str:
    """As whom a host asks to be let in; no host has such a name."""
    return f"join={host}"


def inbox_of(host: str) -> str:
    """What the subjects begin with to which a host wants answers."""
    return f"_INBOX.{host}"


def is_inbox_of(host: str, reply: str) -> bool:
    """Whether an answer may go there. The asker names the subject, and the server would let it pass anywhere."""
    return reply.startswith(f"{inbox_of(host)}.")


def stored_of(hosts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The subjects of mail and of files that the streams take: those for hosts of the hub."""
    names = sorted(hosts)
    mail = [str(kind(host, "*")) for host in names for kind in (mail_subject, receipt_subject)]
    return mail, [files_of(host) for host in (*names, POOLS)]


@dataclass(frozen=True, slots=True)
class FileSubject:
    """A file that goes with a message."""

    to: str
    sender: str
    message: str
    name: str

    def piece(self, number: int) -> str:
        return f"mb.file.v2.{self.to}.{self.sender}.{token(self.message)}.{token(self.name)}.{number}"


def files_of(to: str = "*", sender: str = "*") -> str:
    """The subjects of all files for a host, or of one."""
    return f"mb.file.v2.{to}.{sender}.>"


@dataclass(frozen=True, slots=True)
class JobSubject:
    """A job in the table of jobs."""

    role: str
    sender: str
    job: str

    def __str__(self) -> str:
        return jobs_of(self.role, self.sender, token(self.job))

    def claimed_by(self, host: str) -> str:
        """The subject of a host's claim of this job."""
        return claims_of(self.role, self.sender, token(self.job), host)

    @classmethod
    def parse(cls, text: str) -> JobSubject | None:
        """The job of its own subject, or of that of a claim."""
        match text.split("."):
            case ["mb", "pool", "v2", role, sender, job] | ["mb", "claim", "v2", role, sender, job, _]:
                return cls(untoken(role), sender, untoken(job))
            case _:
                return None


def jobs_of(role: str = "*", sender: str = "*", job: str = "*") -> str:
    """The subjects of jobs."""
    return f"mb.pool.v2.{token(role)}.{sender}.{job}"


def claims_of(role: str = "*", sender: str = "*", job: str = "*", host: str = "*") -> str:
    """The subjects of claims."""
    return f"mb.claim.v2.{token(role)}.{sender}.{job}.{host}"
