"""`mailboxd web`: workspaces in a browser."""

from __future__ import annotations

import logging
import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from mailboxd.cli.session import Session, verb
from mailboxd.errors import UnavailableError

if TYPE_CHECKING:
    from mailboxd.surfaces.web.app import WebApp
    from mailboxd.surfaces.web.sessions import Sessions
    from mailboxd.surfaces.web.workspaces import WebWorkspaces


@verb(
    "web",
    "web",
    "web ~/agents/analyst ~/agents/writer --port 8770",
    "web --link --port 8770",
    "web --revoke",
    operator=True,
    extra="web",
)
@click.argument("workspaces", metavar="[WORKSPACE]...", nargs=-1, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Default: `web.port` of this workspace; 0 is any free port."
)
@click.option("--bind", default="127.0.0.1", show_default=True, help="127.0.0.1 or ::1.")
@click.option("--open", "in_browser", is_flag=True, help="Open it in your browser.")
@click.option("--link", is_flag=True, help="Print a new link to a page that is already being served.")
@click.option("--revoke", is_flag=True, help="End all sessions, revoke all links, and exit.")
@click.option("--until-eof", is_flag=True, help="Exit at the end of standard input (used by the daemon).")
def web_command(
    session: Session, workspaces: tuple[Path, ...], port: int | None, bind: str, in_browser: bool, link: bool,
    revoke: bool, until_eof: bool,
) -> None:  # fmt: skip
    """Show this user's workspaces in a browser: activity, pending decisions and the full record; decide there.

    Shows WORKSPACE, or all workspaces in which `init` or `run` was used plus the current one. Prints a link with a
    one-time token and serves on loopback only. With `web.port` configured, the daemon serves the page, and --link
    prints a link.
    """
    from mailboxd.formats.user.state import UserState
    from mailboxd.host.listening import is_loopback, listen
    from mailboxd.surfaces.web.sessions import Sessions
    from mailboxd.surfaces.web.workspaces import WebWorkspaces, require

    sessions = Sessions(UserState.of(os.environ), session.clock)
    if revoke:
        sessions.revoke()
        session.answer({"revoked": True}, "all sessions are ended and all links revoked")
        return
    if not is_loopback(bind):
        listen(0, "--port", bind)  # raises the error
    wanted = _port(session) if port is None else port
    if link:
        if not wanted:
            raise click.UsageError("--link: give the port with --port, or set `web.port`")
        host = f"[{bind}]" if ":" in bind else bind
        _print_link(session, f"http://{host}:{wanted}", sessions, in_browser=in_browser)
        return
    shown = WebWorkspaces([require(path) for path in workspaces], _own(session))
    _serve(session, shown, sessions, wanted, bind, in_browser=in_browser, until_eof=until_eof)


def open_page(session: Session, workspaces: Sequence[Path], at: str) -> None:
    """Serve the page of these workspaces on a free port, print its link, and open a browser at the address `at`.

    Ends with Ctrl-C.
    """
    from mailboxd.formats.user.state import UserState
    from mailboxd.surfaces.web.sessions import Sessions
    from mailboxd.surfaces.web.workspaces import WebWorkspaces

    sessions = Sessions(UserState.of(os.environ), session.clock)
    with suppress(KeyboardInterrupt):
        _serve(session, WebWorkspaces(workspaces), sessions, 0, "127.0.0.1", in_browser=True, at=at)


def _serve(
    session: Session, shown: WebWorkspaces, sessions: Sessions, port: int, bind: str, *, in_browser: bool = False,
    until_eof: bool = False, at: str = "/",
) -> None:  # fmt: skip
    from mailboxd.host import log
    from mailboxd.host.listening import listen
    from mailboxd.surfaces.web import server

    log.configure("info" if until_eof else "warning", "text", sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with listen(port, "`web.port` or --port", bind) as listening:
        if not until_eof:
            _print_link(session, server.url(listening), sessions, at, in_browser=in_browser)
        server.serve(_app(session, shown, sessions), listening, until_eof=until_eof)


def _app(session: Session, shown: WebWorkspaces, sessions: Sessions) -> WebApp:
    from mailboxd.surfaces.web.app import WebApp
    from mailboxd.surfaces.web.page_models import PageModels
    from mailboxd.surfaces.web.workspaces import FormActions

    return WebApp(PageModels(shown, session.clock), FormActions(session.clock), sessions)


def _print_link(session: Session, address: str, sessions: Sessions, at: str = "/", *, in_browser: bool) -> None:
    to = "" if at == "/" else f"&to={quote(at)}"
    url = f"{address}/enter?token={sessions.new_link()}{to}"
    session.answer({"url": url, "address": address}, url)
    if in_browser and _has_screen() and _open(f"{address}/enter?token={sessions.new_link()}{to}"):
        session.tell("opened in your browser; the link works once, too, within an hour", err=True)
    else:
        session.tell("open it in a browser on this machine; the link works once, within an hour", err=True)


def _has_screen() -> bool:
    """Whether a browser that is started shows up for this user, and not in the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open(url: str) -> bool:
    """Open a browser by a file of the user that leads to `url`: other users can read what a program was called with."""
    from mailboxd.errors import MailboxdError
    from mailboxd.formats.user.state import UserState

    state, name = UserState.of(os.environ), "open.html"
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(url)}">\n'
    try:
        with state.writing() as folder:
            state.write(folder, name, page.encode())
        return webbrowser.open((state.folder / name).as_uri())
    except (MailboxdError, webbrowser.Error):
        return False


def _own(session: Session) -> Path | None:
    """The current workspace or that of -w, if there is one."""
    if session.path is not None:
        return session.workspace().root
    with suppress(UnavailableError):
        return session.workspace().root
    return None


def _port(session: Session) -> int:
    from mailboxd.formats import config

    own = _own(session)
    path = None if own is None else own / ".mailboxd" / "config.yaml"
    return config.load(path).web.port if path is not None and path.exists() else 0
