"""Links and sessions of the page, in `web.json` in the user's state directory, which holds hashes and never a token.

A link works once, within an hour, and starts a session, whose token is in the browser's cookie. Tokens are 256 random
bits, so a plain SHA-256 suffices. The file is read for every request, so revocation is immediate and all servers of
this user share their sessions, across restarts.
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

from mailboxd.core.times import plus
from mailboxd.errors import WorldError
from mailboxd.formats.user.state import UserState
from mailboxd.host.clock import Clock

FILE = "web.json"
LINK_SECONDS = 3_600
SESSION_SECONDS = 30 * 86_400
_MAX_KEPT = 100
"""Maximum number of links, and of sessions; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class _Stored:
    links: tuple[tuple[str, str], ...] = ()
    """Pairs of hash and expiry time."""
    sessions: tuple[tuple[str, str], ...] = ()

    def at(self, now: str) -> _Stored:
        """Without expired entries."""
        return _Stored(
            tuple(row for row in self.links if row[1] > now)[-_MAX_KEPT:],
            tuple(row for row in self.sessions if row[1] > now)[-_MAX_KEPT:],
        )


Change = Callable[[_Stored, str], _Stored]
"""Computes the new content from the current one and the time."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The links and sessions of one user. Every method raises ConfigError if the file is writable by other users,
    WorldError if it cannot be read or written."""

    state: UserState
    clock: Clock

    def new_link(self) -> str:
        """Create a link token, valid once."""
        token = secrets.token_urlsafe(32)
        self._change(lambda known, now: replace(known, links=(*known.links, (_hash(token), plus(now, LINK_SECONDS)))))
        return token

    def enter(self, token: str) -> str | None:
        """Start a session and return its token; None if the link token is not valid."""
        session = secrets.token_urlsafe(32)
        used = _hash(token)

        def change(known: _Stored, now: str) -> _Stored:
            left = tuple(row for row in known.links if not hmac.compare_digest(row[0], used))
            if len(left) == len(known.links):
                return known
            return _Stored(left, (*known.sessions, (_hash(session), plus(now, SESSION_SECONDS))))

        before = self._known().at(self.clock.now())
        if not any(hmac.compare_digest(row[0], used) for row in before.links):
            return None  # without taking the lock: unauthenticated clients get here
        return session if self._change(change) else None

    def is_open(self, token: str) -> bool:
        """Whether this is the token of an open session."""
        presented, found = _hash(token), False
        for digest, _ in self._known().at(self.clock.now()).sessions:
            found |= hmac.compare_digest(digest, presented)
        return found

    def leave(self, token: str) -> None:
        """End a session."""
        gone = _hash(token)
        self._change(lambda known, _: replace(known, sessions=tuple(r for r in known.sessions if r[0] != gone)))

    def revoke(self) -> None:
        """End all sessions and revoke all links."""
        self._change(lambda _known, _now: _Stored())

    def _known(self) -> _Stored:
        raw = self.state.read(FILE)
        if raw is None:
            return _Stored()
        try:
            found = json.loads(raw)
            links, sessions = (
                tuple((str(digest), str(until)) for digest, until in found[name]) for name in ("links", "sessions")
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return _Stored()  # no sessions; the next link rewrites the file
        return _Stored(links, sessions)

    def _change(self, change: Change) -> bool:
        """Replace the content by that of `change`; returns whether it differs."""
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
    """The CSRF token of a session's forms; it does not reveal the session token."""
    return hmac.digest(session.encode("utf-8", "surrogatepass"), b"mailboxd form", "sha256").hex()


def is_form_token(session: str, token: str) -> bool:
    return hmac.compare_digest(form_token(session).encode(), token.encode("utf-8", "surrogatepass"))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


# The session cookie: for this host only, not readable by scripts, not sent from other sites

COOKIE = "mailboxd"


def session_of(request: Request) -> str:
    """The token in the cookie; empty unless there is exactly one."""
    parts = [part.strip() for header in request.headers.getlist("cookie") for part in header.split(";")]
    found = [part for part in parts if part.startswith(f"{COOKIE}=")]
    if len(found) == 1:
        with suppress(CookieError, KeyError):
            return SimpleCookie(found[0])[COOKIE].value
    return ""


def set_cookie(response: Response, session: str) -> None:
    response.set_cookie(COOKIE, session, max_age=SESSION_SECONDS, httponly=True, samesite="strict")


def delete_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
