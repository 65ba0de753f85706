"""The cookie that carries a session: for this host alone, out of reach of scripts, sent by no other site's pages."""

from __future__ import annotations

from contextlib import suppress
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request
from starlette.responses import Response

from mailboxd.web.sessions import SESSION_SECONDS

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
