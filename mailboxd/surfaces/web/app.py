"""The routes of the page, and its templates."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mailboxd.core import entrance
from mailboxd.core.budget import money
from mailboxd.core.explain.overview_details import HostRow
from mailboxd.core.operator_orders import OPERATOR_ORDERS
from mailboxd.core.reviews import place_of
from mailboxd.core.sanitize import for_field, for_page, storable_text
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import State, is_id, state_words
from mailboxd.errors import MailboxdError, MessageError, PlanError, Refused, UnavailableError
from mailboxd.formats import health
from mailboxd.formats.drawing.gantt import Window, duration
from mailboxd.formats.drawing.style import STATE_STYLES, attempt_style
from mailboxd.formats.drawing.svg import STYLE
from mailboxd.formats.mailbox import lock
from mailboxd.host.clock import Clock
from mailboxd.hub.wire.names import Address
from mailboxd.ledger import seen_items
from mailboxd.ledger.reports import opened
from mailboxd.ledger.task_queries import Filter, find_exact
from mailboxd.surfaces.web import bulk
from mailboxd.surfaces.web import sessions as cookies
from mailboxd.surfaces.web.markdown import markdown
from mailboxd.surfaces.web.new_task import Form, WrongFields, choices, sentence
from mailboxd.surfaces.web.overview_page import overview_values
from mailboxd.surfaces.web.page_models import PageModels, recipe_form, search, search_elsewhere
from mailboxd.surfaces.web.sessions import Sessions, form_token, is_form_token, session_of
from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspace, recipes

# Templates

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_DONE = {
    "approved": "Approved and recorded under your name. The daemon will perform it.",
    "rejected": "Rejected and recorded under your name.",
    "held": "Nothing is stopped yet: for ten seconds, Undo takes it back.",
    "undone": "Taken back. Nothing was stopped.",
    "repeat-pause": "Paused: no run begins until you resume it.",
    "repeat-resume": "Resumed.",
    "repeat-run": "A run was made.",
    "repeat-end": "Ended: there are no more runs. One that is open goes on.",
    "cancel": "Cancelled.",
    "sent": "Sent. The task opens as soon as the daemon has read it.",
    "taken": "Sent and read: this is its task.",
    "sent-again": "Sent again. The rejected file stays as it was, and leaves the list when this one is accepted.",
    "left": "Sent. No daemon runs here: the task waits in the inbox until one does.",
    "read": "Marked as read, for you alone.",
    "saved": "Saved: it is in the search, and in the palette (Ctrl-K).",
    "forgotten": "The saved search is deleted.",
    "dismissed": "Dismissed and recorded under your name.",
    "pause-all": "Every agent of this host is paused: running turns end, and nothing begins.",
    "resume-all": "Every agent goes on.",
    "pause-all-unheard": "Every agent of this host is paused, but which daemons run is not known, as the list of"
    " workspaces cannot be read: they hear it at their next look. mailboxd fleet names the problem.",
    "resume-all-unheard": "Every agent goes on, but which daemons run is not known, as the list of workspaces cannot be"
    " read: they hear it at their next look. mailboxd fleet names the problem.",
    "carried": "Signed and on its way. The other host takes it as soon as it can: mailboxd hub status.",
    "request_changes": "Changes requested under your name. The agent gets your note.",
    **{order.name: order.done for order in OPERATOR_ORDERS if order.done},
}
"""The messages shown after a form; the parameter `done` of the address selects one."""


_MARK = re.compile(r"\[([^][]*)\]")


def templates() -> Environment:
    """The templates of this package. All values are untrusted and escaped; only drawings are markup."""
    found = Environment(
        loader=PackageLoader("mailboxd.surfaces.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=for_template,
    )  # fmt: skip
    found.filters |= {
        "drawn": Markup,
        "json": partial(json.dumps, ensure_ascii=False),
        "money": money,
        "moment": relative_time,
        "attempt": attempt_style,
        "markdown": markdown,
        "marked": marked,
        "came": entrance.told,
        "field": field_text,
        "place": lambda found: place_of(found["file"], found["line"], found["artifact_uri"]),
    }
    found.globals |= {
        "STATE_STYLES": STATE_STYLES,
        "NEEDS_YOU": State.NEEDS_YOU,
        "state_words": state_words,
        "DONE": _DONE,
        "duration": duration,
    }
    return found


def for_template(value: object) -> object:
    """A value for a template; invisible characters and those that change the writing direction are escaped."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return for_page(value)


def field_text(text: str) -> Markup:
    """A foreign text in a field, to be sent again as it is."""
    return escape(for_field(text))


def relative_time(at: str | None, now: str) -> str:
    """A time relative to `now`: `3 min ago`, `in 2 h`."""
    if not at:
        return ""
    try:
        seconds = to_epoch(now) - to_epoch(at)
    except ValueError:
        return at
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= size:
            count = f"{int(abs(seconds) // size)} {word}"
            return f"{count} ago" if seconds > 0 else f"in {count}"
    return "just now" if seconds >= 0 else "shortly"


def marked(snippet: str) -> Markup:
    """A snippet of the search with its [words] marked."""
    return Markup(_MARK.sub(r"<mark>\1</mark>", str(escape(for_page(snippet)))))  # noqa: S704 - escaped


def static() -> dict[str, tuple[bytes, str]]:
    """The files of /static by name. A requested name is looked up here and never becomes a path."""
    found = {"drawing.css": (STYLE.encode(), _TYPES[".css"])}
    for entry in (files("mailboxd.surfaces.web") / "static").iterdir():
        kind = _TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            found[entry.name] = (entry.read_bytes(), kind)
    return found


# Routes

HOSTS = "hosts"
"""In place of a workspace's key: the other hosts."""
_OWN_ADDRESS = re.compile(r"/(?:[A-Za-z0-9._~%?=&+-][A-Za-z0-9/._~%?=&+-]*)?")
"""An address of this page: a path, and no host."""
_OUTSIDE = {"inside": False, **dict.fromkeys(("now", "done", "told", "live", "form_token", "problem"), "")}
"""What a page without a session is made of."""
_EXAMPLE = {
    "title": "Introduce yourself",
    "instructions": "Write three lines: who you are, what you can do here, and which of your tools you would use.",
    "expected_output": "Three lines",
}
"""A first task, ready to be sent (`/new?example=1`)."""
_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_MAX_FIELDS = 100
_UPLOAD_SECONDS = 30.0
_MAX_PAGE = 10_000
_LAST_SECOND = 4e9
_log = logging.getLogger("mailboxd")

Values = dict[str, Any]
Page = Callable[[Request], Response]
Hosts = Callable[[str], Sequence[HostRow]]
"""The other hosts at a time."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why what the form of `target` said was not done, and what its fields held."""

    target: str
    text: str
    form: Form
    fields: Mapping[str, str] = field(default_factory=dict)
    """The fields that are wrong, with why."""
    told: str = ""
    """The same, with what was not done, for the top of the page."""


@dataclass(slots=True)
class WebApp:
    """The Starlette application. Pages run in threads."""

    models: PageModels
    actions: FormActions
    sessions: Sessions
    templates: Environment = field(default_factory=templates)
    files: dict[str, tuple[bytes, str]] = field(default_factory=static)
    watcher: ChangeWatcher = field(init=False)

    def __post_init__(self) -> None:
        self.watcher = ChangeWatcher(self.models.clock, self.models.workspaces.environ)

    def application(self) -> Starlette:
        deciding: list[tuple[str, Page]] = [
            ("/", self.overview),
            ("/new", self.new_task),
            ("/w/{key}", self.workspace),
            ("/w/{key}/a/{approval}", self.approval),
            ("/h/{agent}/a/{approval}", self.approval_elsewhere),
            ("/w/{key}/t/{task}", self.task),
            ("/w/{key}/m/{message}", self.message),
            ("/w/{key}/all", self.all_of),
            ("/search", self.search),
        ]
        reading: list[tuple[str, Page]] = [
            ("/palette", self.palette),
            ("/changed", self.changed),
            ("/w/{key}/messages", self.messages),
            ("/w/{key}/t/{task}/children", self.children),
            ("/w/{key}/t/{task}/log", self.log),
        ]
        routes = [Route(path, self._page(page), methods=["GET"]) for path, page in deciding + reading]
        routes += [Route(path, self._form(partial(self.decide, page)), methods=["POST"]) for path, page in deciding]
        routes += [
            Route("/leave", self._form(self.leave), methods=["POST"]),
            Route("/enter", self.enter, methods=["GET"]),
            Route("/static/{name}", self.static, methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={404: self._not_found, 405: self._not_found})

    # Pages

    def overview(self, request: Request) -> Response:
        shown, every = overview_values(self.models), self.models.workspaces.all()
        return self._answer(request, "overview.html", shown, live=every, hosts=shown["has_hosts"])

    def workspace(self, request: Request) -> Response:
        return self._list(request, self._workspace(request), _filter(request.query_params))

    def children(self, request: Request) -> Response:
        workspace, name = self._workspace(request), request.path_params["task"]
        wanted = Filter(parent=self._task_id(workspace, name), state=_filter(request.query_params).state)
        return self._list(request, workspace, wanted, above=name)

    def all_of(self, request: Request) -> Response:
        """What an order for all tasks of a list would be about, to be confirmed."""
        workspace, asked = self._workspace(request), request.query_params
        order = bulk.BULK.get(asked.get("order", ""))
        if order is None:
            raise UnavailableError("that is no order for many tasks")
        wanted, parent, words = _filter(asked), asked.get("parent", ""), asked.get("search", "")[:200]
        for name, kept in (("state", wanted.state), ("agent", wanted.agent)):
            if asked.get(name, "") != kept:  # without it the order would be for everything
                raise UnavailableError(f"nothing is found: there is no {name} {ascii(asked[name])[:100]}")
        if parent:
            wanted = replace(wanted, parent=self._task_id(workspace, parent))
        if words:
            wanted = replace(wanted, names=self.models.tasks_found(workspace, words, _kind(asked)))
        found = self.models.for_many(workspace, order, wanted)
        shown = found | {"workspace": self._named(workspace), "back": _back(workspace, asked)}
        return self._answer(request, "bulk.html", shown)

    def _task_id(self, workspace: WebWorkspace, name: str) -> str:
        with self.models.report(workspace) as report:
            task_id = find_exact(report, name)
        if task_id is None:
            raise UnavailableError(f"there is no task {ascii(name)[:100]}")
        return task_id

    def _list(self, request: Request, workspace: WebWorkspace, wanted: Filter, above: str = "") -> Response:
        found = self.models.workspace(workspace, wanted, _number(request.query_params.get("page", "1")))
        asked = _asked(wanted)
        sent = request.query_params.get("sent", "")
        became = self.models.became_of(workspace, sent) if is_id(sent) else None
        if became and became["task"] and not hasattr(request.state, "problem"):
            return _redirect(f"/w/{workspace.key}/t/{became['task']}?done=taken")
        shown = {**found, "sent": became, "filter": wanted, "parent": above, "query": _query(asked)}
        shown["asked"] = asked | {"parent": above}
        shown["saved"], shown["here"] = [] if above else self.models.searches(), _searched(request)
        return self._answer(request, "workspace.html", shown, live=[workspace])

    def task(self, request: Request) -> Response:
        workspace = self._workspace(request)
        found = self.models.task(workspace, request.path_params["task"], _window(request.query_params))
        if "x-refresh" not in request.headers:  # a page that stays open asks by itself: nobody need have seen it
            self.models.opened(workspace, found)
        return self._answer(
            request, "task.html", {"workspace": self._named(workspace), "task": found}, live=[workspace]
        )

    def log(self, request: Request) -> Response:
        workspace, name = self._workspace(request), request.path_params["task"]
        found = self.models.log(workspace, name, _number(request.query_params.get("page", "1")))
        return self._answer(
            request, "log.html", found | {"workspace": self._named(workspace), "name": name}, live=[workspace]
        )

    def approval(self, request: Request) -> Response:
        workspace = self._workspace(request)
        found = self.models.approval(workspace, request.path_params["approval"])
        return self._answer(
            request, "approval.html", {"workspace": self._named(workspace), "row": found}, live=[workspace]
        )

    def approval_elsewhere(self, request: Request) -> Response:
        agent = Address.parse(request.path_params["agent"])
        if agent is None:
            raise UnavailableError("that is no agent of another host")
        found = self.models.approval_elsewhere(agent, request.path_params["approval"])
        named = {"key": "", "name": "", "path": "", "agent": str(agent)}
        return self._answer(request, "approval.html", {"workspace": named, "row": found})

    def messages(self, request: Request) -> Response:
        workspace, asked = self._workspace(request), request.query_params
        verdict = "rejected" if asked.get("verdict") == "rejected" else ""
        found = self.models.messages(workspace, verdict, _number(asked.get("page", "1")))
        shown = found | {"workspace": self._named(workspace), "query": _query({"verdict": verdict})}
        return self._answer(request, "messages.html", shown, live=[workspace])

    def message(self, request: Request) -> Response:
        workspace = self._workspace(request)
        found = self.models.message(workspace, request.path_params["message"])
        shown = {"workspace": self._named(workspace), "row": found}
        return self._answer(request, "message.html", shown, live=[workspace])

    def search(self, request: Request) -> Response:
        asked = request.query_params
        words, kind, key = asked.get("q", "")[:200], _kind(asked), asked.get("w", "")
        workspaces = [workspace for workspace in self.models.workspaces.all() if key in ("", HOSTS, workspace.key)]
        membership, found = self.models.workspaces.hub(), Values(hits=[], troubles=[])
        if words.strip() and membership and key == HOSTS:
            found = search_elsewhere(membership, words, kind)
        elif words.strip():
            found = search(workspaces, words, kind)
        shown = found | {"words": words, "kind": kind, "key": key, "hosts": HOSTS if membership else ""}
        shown["all"] = [self._named(one) for one in workspaces]
        shown["names"] = {one["key"]: one["agent"] or one["name"] for one in shown["all"]}
        shown["saved"], shown["here"] = self.models.searches(), _searched(request)
        return self._answer(request, "search.html", shown)

    def palette(self, request: Request) -> Response:
        """What the palette leads to, as JSON."""
        return JSONResponse(self.models.palette(request.query_params.get("q", "")[:200]))

    def new_task(self, request: Request) -> Response:
        """The form of a task, or of the recipe that the address names, for any workspace."""
        asked, every = request.query_params, self.models.workspaces.all()
        chosen = next((one for one in every if one.key == asked.get("w")), every[0] if every else None)
        shown: Values = {"chosen": chosen.key if chosen else "", "workspaces": []}
        for one in every:
            named = self._named(one)
            shown["workspaces"].append(named | {"choices": choices(one.ws, named["agent"])})
        shown["example"] = _EXAMPLE if asked.get("example") else {}
        if chosen is not None and asked.get("recipe"):
            return self._answer(request, "recipe.html", shown | {"recipe": recipe_form(chosen, asked["recipe"])})
        return self._answer(request, "new.html", shown | {"recipes": list(recipes(chosen).all()) if chosen else []})

    # Forms

    def decide(self, page: Page, request: Request, form: Form) -> Response:
        """Do what a form of `page` says, about what its fields or the address name; refused, it stays as it was."""
        named = {"workspace": request.path_params.get("key", ""), **request.path_params, **form}
        workspace = self.models.workspaces.find(named["workspace"].partition(" ")[0])
        try:
            if "standstill" in form:
                done = self.actions.stand_still(form["standstill"], form)
            elif "read_until" in form:
                done = self.actions.read_all(self.models.workspaces.all(), form["read_until"])
            elif "save" in form:
                address = _searched(request)
                done = self.actions.save_search(form["save"], address)
                return _redirect(_with(address, f"done={done}"))
            elif "forget" in form:
                done = self.actions.forget_search(form["forget"])
                return _redirect(_with(_searched(request), f"done={done}"))
            elif workspace is None:
                done = self._elsewhere(named)
            elif "send" in form:
                done, message = self.actions.send(workspace, form)
                return _redirect(f"/w/{workspace.key}?done={done}&sent={message}")
            elif "correct" in form:
                done = self.actions.correct(workspace, form["correct"], form)
            elif "dismiss" in form:
                done = self.actions.dismiss(workspace, form["dismiss"])
            elif "read" in form:
                done = self.actions.read(workspace, form["read"])
            elif "repeat" in form and "repetition" in form:
                done = self.actions.repeat(workspace, form["repetition"], form["repeat"])
            elif "all" in form:
                what = self.actions.for_all(workspace, form)
                return _redirect(_with(_back(workspace, request.query_params, listed=True), what.query))
            elif "undo-all" in form:
                done = self.actions.undo_all(workspace, form["undo-all"])
            elif "undo" in form:
                done = self.actions.undo(workspace, form["undo"])
            elif "decision" in form:
                done = self.actions.decide(workspace, named.get("approval", ""), form)
            else:
                done = self.actions.order(workspace, named.get("task", ""), form)
        except (Refused, PlanError, MessageError) as refusal:
            fields = refusal.fields if isinstance(refusal, WrongFields) else {}
            own = {name: escape(text) for name, text in form.items()}  # to be sent again as it was written
            shown = Problem(form.get("target", ""), sentence(refusal), own, fields, _not_done(form, refusal))
            request.state.problem = shown
            return page(request)
        return _redirect(f"{request.url.path}?done={done}")

    def _elsewhere(self, named: Form) -> str:
        """Do what a form says about work of an agent on another host: it stands in the place of a workspace."""
        agent, membership = Address.parse(named["workspace"]), self.models.workspaces.hub()
        if agent is None or membership is None:
            raise UnavailableError("there is no such workspace")
        return self.actions.elsewhere(membership, agent, named)

    def leave(self, request: Request, _form: Form) -> Response:
        self.sessions.leave(session_of(request))
        gone = _redirect("/")
        cookies.delete_cookie(gone)
        return gone

    # Sessions, static files, changes

    def enter(self, request: Request) -> Response:
        """Exchange the token of a link, which is valid once, for a session, and go on to the page that it names.

        A browser that follows a link of another site, or of a file, keeps the cookie, but does not send it where that
        link redirects to. It sends it when the page that it gets here goes on.
        """
        session = self.sessions.enter(request.query_params.get("token", "")[:200])
        if session is None:
            return self._closed(request, "This link is no longer valid. A link works once, within an hour.")
        asked = request.query_params.get("to", "/")
        wanted = asked if _OWN_ADDRESS.fullmatch(asked) else "/"
        inside: Response = _redirect(wanted)
        if request.headers.get("sec-fetch-site", "none") != "none":
            shown = self.templates.get_template("entered.html").render(to=wanted, **_OUTSIDE)
            inside = HTMLResponse(shown)
        cookies.set_cookie(inside, session)
        return inside

    def static(self, request: Request) -> Response:
        found = self.files.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("not found\n", 404)
        return Response(found[0], media_type=found[1])

    def changed(self, request: Request) -> Response:
        """A text that changes when the page that asks should be requested again."""
        keys = request.query_params.getlist("w")
        workspaces = [workspace for workspace in self.models.workspaces.all() if workspace.key in keys]
        hosts = self.models.workspaces.hosts if request.query_params.get("hosts") else None
        return PlainTextResponse(self.watcher.signature(workspaces, hosts))

    def _page(self, page: Page) -> Page:
        def answer(request: Request) -> Response:
            if not self._has_session(request):
                return self._closed(request)
            return self._run(request, lambda: page(request))

        return answer

    def _form(self, act: Callable[[Request, Form], Response]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if not await run_in_threadpool(self._has_session, request):
                return self._closed(request)  # without reading the body
            form: Form = {}
            with suppress(TimeoutError, ValueError):
                async with asyncio.timeout(_UPLOAD_SECONDS):
                    body = await request.body()
                said = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
                form = {name: storable_text(text) for name, text in said}  # browsers end lines with CRLF
            return await run_in_threadpool(self._acted, request, form, act)

        return answer

    def _acted(self, request: Request, form: Form, act: Callable[[Request, Form], Response]) -> Response:
        if not is_form_token(session_of(request), form.get("form", "")):
            return self._error(request, 403, "The form belongs to another session. Open the page again.")
        return self._run(request, lambda: act(request, form))

    def _run(self, request: Request, act: Callable[[], Response]) -> Response:
        try:
            return act()
        except UnavailableError as error:
            return self._error(request, 404, str(error))
        except (Refused, PlanError, MessageError) as refusal:
            return self._error(request, 409, str(refusal))
        except MailboxdError as error:
            _log.error("a page could not be shown: %s", error)
            return self._error(request, 503, str(error))
        except Exception:
            _log.exception("a bug in mailboxd: a page failed; please report this")
            return self._error(request, 500, "A bug in mailboxd; see its log.")

    def _has_session(self, request: Request) -> bool:
        session = session_of(request)
        try:
            return session != "" and self.sessions.is_open(session)
        except MailboxdError as error:
            _log.error("sessions cannot be checked: %s", error)
            return False

    def _workspace(self, request: Request) -> WebWorkspace:
        workspace = self.models.workspaces.find(request.path_params["key"])
        if workspace is None:
            raise UnavailableError("there is no such workspace")
        return workspace

    def _named(self, workspace: WebWorkspace) -> Values:
        return {
            "key": workspace.key,
            "name": workspace.ws.root.name,
            "path": workspace.path,
            "agent": self.models.workspaces.agent(workspace),
        }

    def _answer(
        self,
        request: Request,
        template: str,
        values: Values,
        *,
        live: list[WebWorkspace] | None = None,
        hosts: bool = False,
        status: int = 200,
    ) -> Response:
        session, problem = session_of(request), getattr(request.state, "problem", None)
        names = [*(f"w={workspace.key}" for workspace in live or ()), *(["hosts=1"] if hosts else [])]
        shared = {
            "problem": problem,
            "now": self.models.clock.now(),
            "form_token": form_token(session),
            "inside": True,
            "done": request.query_params.get("done", ""),
            "told": _told(request.query_params),
            "live": "/changed?" + "&".join(names) if live and not problem else "",
        }
        return HTMLResponse(self.templates.get_template(template).render(shared | values), 409 if problem else status)

    def _error(self, request: Request, status: int, text: str) -> Response:
        return self._answer(request, "error.html", {"text": text, "status": status}, status=status)

    def _closed(self, request: Request, text: str = "") -> Response:
        host, port = request.scope["server"]
        values = {"text": text, "port": port, "bind": host if ":" in host else ""}
        return HTMLResponse(self.templates.get_template("closed.html").render(values | _OUTSIDE), 401)

    async def _not_found(self, request: Request, _error: Exception) -> Response:
        if not await run_in_threadpool(self._has_session, request):
            return self._closed(request)
        return self._error(request, 404, "Page not found.")


def _not_done(form: Form, refusal: Refused | PlanError | MessageError) -> str:
    """What was not done, and why; of a text that was written, with the line."""
    line = getattr(refusal, "line", None) if "correct" in form else None
    problem = refusal.problem.rstrip(".") + (f" (line {line})" if line else "")
    if form.keys() & {"send", "correct"}:
        return f"Not sent: {problem}. {refusal.hint}".strip()
    return f"Not done: {problem}. {refusal.hint}".strip() + " Nothing was changed."


def _number(text: str) -> int:
    return min(max(int(text), 1), _MAX_PAGE) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


def _window(asked: Mapping[str, str]) -> Window | None:
    """The window of a timeline that an address asks for."""
    try:
        start, end = float(asked["from"]), float(asked["until"])
    except (KeyError, ValueError):
        return None
    return (start, end) if 0 <= start < end <= _LAST_SECOND else None


def _filter(asked: Mapping[str, str]) -> Filter:
    """The tasks that an address asks for; what cannot be is left out."""
    return Filter(
        state=asked.get("state", "") if asked.get("state", "") in STATE_STYLES else "",
        agent=asked.get("agent", "") if is_id(asked.get("agent", "")) else "",
        label=asked.get("label", "")[:64],
        words=asked.get("q", "")[:200],
        children=asked.get("children") == "1",
    )


def _asked(wanted: Filter) -> dict[str, str]:
    """What an address asks for with this filter."""
    asked = {"state": wanted.state, "agent": wanted.agent, "label": wanted.label, "q": wanted.words}
    return asked | {"children": "1" * wanted.children}


def _kind(asked: Mapping[str, str]) -> str:
    """The kind of text that a search is limited to."""
    return kind if (kind := asked.get("type", "")) in ("message", "result", "event") else ""


def _back(workspace: WebWorkspace, asked: Mapping[str, str], *, listed: bool = False) -> str:
    """The address of the list from which an order for many was given; `listed`: of one that shows what is held."""
    here, parent, words = f"/w/{workspace.key}", asked.get("parent", ""), asked.get("search", "")[:200]
    if words:
        return here if listed else "/search?" + urlencode({"q": words, "type": _kind(asked)})
    if parent and is_id(parent):
        here = f"{here}/t/{parent}/children"
    query = _query(_asked(_filter(asked))).removesuffix("&")
    return f"{here}?{query}" if query else here


def _searched(request: Request) -> str:
    """The address of the search that a page shows, with what counts of its query."""
    asked = request.query_params
    if request.url.path == "/search":
        key = asked.get("w", "")
        kept = {"q": asked.get("q", "")[:200], "type": _kind(asked), "w": key if _KEY.fullmatch(key) else ""}
    else:
        kept = _asked(_filter(asked))
    query = _query(kept).removesuffix("&")
    return f"{request.url.path}?{query}" if query else request.url.path


def _with(address: str, query: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}{query}"


def _told(asked: Mapping[str, str]) -> str:
    """What became of an order for many tasks."""
    did, *left = (
        int(text) if (text := asked.get(name, "")).isdecimal() and len(text) < 5 else 0 for name in ("did", *bulk.LEFT)
    )
    return bulk.told(asked.get("done", ""), did, left)


def _query(asked: Mapping[str, str]) -> str:
    """The query of a link to another page of the same list."""
    return urlencode({name: value for name, value in asked.items() if value}) + "&" * any(asked.values())


def _redirect(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303)


# An open page asks every second whether something changed, and then requests itself.


@dataclass(slots=True)
class ChangeWatcher:
    """Looks at each workspace at most every `INTERVAL`, however many pages are open."""

    clock: Clock
    environ: Mapping[str, str]
    _seen: dict[str, tuple[float, str]] = field(default_factory=dict)

    def signature(self, workspaces: Sequence[WebWorkspace], hosts: Hosts | None) -> str:
        """A text that changes with every change of these workspaces' records or daemons' health, of what the user has
        seen there, and of other hosts."""
        found = [self._recent(one.key, INTERVAL, partial(self._of, one)) for one in workspaces]
        if hosts is not None:
            found.append(self._recent("", _HOSTS_INTERVAL, partial(self._of_hosts, hosts)))
        return " ".join(found)

    def _recent(self, name: str, seconds: float, look: Callable[[], str]) -> str:
        now = self.clock.monotonic()
        if name not in self._seen or now - self._seen[name][0] >= seconds:
            self._seen[name] = now, look()
        return self._seen[name][1]

    def _of(self, workspace: WebWorkspace) -> str:
        try:
            with opened(workspace.ws.database) as report:
                last = report.last_event()
            pid = lock.holder(workspace.ws)
            grade = health.read(workspace.ws, pid, self.clock.now(), self.clock.monotonic())[0].value
        except (MailboxdError, OSError):
            return f"{workspace.key}:none"
        noted = seen_items.seen_stamp(workspace.ws.root, self.environ)
        return f"{workspace.key}:{last}:{noted}:{grade}"

    def _of_hosts(self, hosts: Hosts) -> str:
        with suppress(MailboxdError):
            rows = [{**row, "seen": "", "skew": ""} for row in hosts(self.clock.now())]
            return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        return ""


INTERVAL = 0.9
"""Seconds between two looks at a workspace: a page asks once a second."""
_HOSTS_INTERVAL = 3.0
