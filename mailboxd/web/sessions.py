"""Who may come in: `web.json` in the user's state directory, with hashes and never a token.

A link is good once and for an hour: it makes a session, whose token is in the browser's cookie. Both are 256 random
bits, so a plain SHA-256 is enough. The file is read for every request: what is taken back is void at once, and every
server of this user knows the same sessions, after a restart too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request
from starlette.responses import Response

from mailboxd.clock import Clock
from mailboxd.core.times import plus
from mailboxd.errors import WorldError
from mailboxd.user_state import UserState

FILE = "web.json"
LINK_SECONDS = 3_600
SESSION_SECONDS = 30 * 86_400
_MOST = 100
"""Links, and sessions, that are kept: of more the oldest are void."""


@dataclass(frozen=True, slots=True)
class _Known:
    links: tuple[tuple[str, str], ...] = ()
    """Hash of each, and until when it is good."""
    sessions: tuple[tuple[str, str], ...] = ()

    def at(self, now: str) -> _Known:
        """Without what is past."""
        return _Known(
            tuple(row for row in self.links if row[1] > now)[-_MOST:],
            tuple(row for row in self.sessions if row[1] > now)[-_MOST:],
        )


Change = Callable[[_Known, str], _Known]
"""What becomes of it, at a time."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of the user whose state this is. Every method raises ConfigError if others could have written the
    file, WorldError if it cannot be read or written."""

    state: UserState
    clock: Clock

    def new_link(self) -> str:
        """A token that is good for one entrance."""
        token = secrets.token_urlsafe(32)
        self._change(lambda known, now: replace(known, links=(*known.links, (_hash(token), plus(now, LINK_SECONDS)))))
        return token

    def enter(self, token: str) -> str | None:
        """The token of a new session, for a link that is good; None for any other."""
        session = secrets.token_urlsafe(32)
        used = _hash(token)

        def change(known: _Known, now: str) -> _Known:
            left = tuple(row for row in known.links if not hmac.compare_digest(row[0], used))
            if len(left) == len(known.links):
                return known
            return _Known(left, (*known.sessions, (_hash(session), plus(now, SESSION_SECONDS))))

        before = self._known().at(self.clock.now())
        if not any(hmac.compare_digest(row[0], used) for row in before.links):
            return None  # without taking the lock: anybody may ask
        return session if self._change(change) else None

    def is_open(self, token: str) -> bool:
        """Whether this is the token of a session that is open."""
        presented, found = _hash(token), False
        for digest, _ in self._known().at(self.clock.now()).sessions:
            found |= hmac.compare_digest(digest, presented)
        return found

    def leave(self, token: str) -> None:
        """End a session."""
        gone = _hash(token)
        self._change(lambda known, _: replace(known, sessions=tuple(r for r in known.sessions if r[0] != gone)))

    def revoke(self) -> None:
        """End all sessions, and make all links void."""
        self._change(lambda _known, _now: _Known())

    # -------------------------------------------------------------- inside

    def _known(self) -> _Known:
        raw = self.state.read(FILE)
        if raw is None:
            return _Known()
        try:
            found = json.loads(raw)
            links, sessions = (
                tuple((str(digest), str(until)) for digest, until in found[name]) for name in ("links", "sessions")
            )
        except (ValueError, KeyError, TypeError):
            return _Known()  # nobody is in; a new link writes it anew
        return _Known(links, sessions)

    def _change(self, change: Change) -> bool:
        """Let `change` make what is known from now on; whether that is something else."""
        with self.state.writing() as folder:
            now = self.clock.now()
            known = self._known().at(now)
            then = change(known, now)
            try:
                self.state.write(folder, FILE, json.dumps(asdict(then), indent=1).encode() + b"\n")
            except OSError as error:
                raise WorldError(f"cannot write {self.state.folder / FILE}: {error.strerror}") from error
        return then != known


def form_token(session: str) -> str:
    """What the forms of a session carry; it says nothing of the session's own token."""
    return hmac.digest(session.encode("utf-8", "surrogatepass"), b"mailboxd form", "sha256").hex()


def is_form_token(session: str, token: str) -> bool:
    return hmac.compare_digest(form_token(session).encode(), token.encode("utf-8", "surrogatepass"))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# The cookie that carries a session: for this host alone, out of reach of scripts, sent by no other site's pages.

NAME = "mailboxd"


def session_of(request: Request) -> str:
    """The token in the cookie; with two of them, or none, nothing that could be one."""
    parts = [part.strip() for header in request.headers.getlist("cookie") for part in header.split(";")]
    found = [part for part in parts if part.startswith(f"{NAME}=")]
    if len(found) == 1:
        with suppress(CookieError, KeyError):
            return SimpleCookie(found[0])[NAME].value
    return ""


def give(response: Response, session: str) -> None:
    response.set_cookie(NAME, session, max_age=SESSION_SECONDS, httponly=True, samesite="strict")


def take(response: Response) -> None:
    response.delete_cookie(NAME, httponly=True, samesite="strict")
