"""The addresses of the page, and who may open them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from mailboxd.core.budget import money
from mailboxd.core.sanitize import for_page
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Phase, is_id
from mailboxd.drawing.gantt import duration
from mailboxd.drawing.phase_style import ATTEMPTS, LOOKS, Look, look_of
from mailboxd.drawing.svg import STYLE
from mailboxd.errors import MailboxdError, PlanError, Refused, UnavailableError
from mailboxd.host.loopback import Ending
from mailboxd.store.task_lists import Filter, named
from mailboxd.web import sessions as cookies
from mailboxd.web import stream
from mailboxd.web.actions import Acting, Form
from mailboxd.web.page_models import Desk, search
from mailboxd.web.sessions import Sessions, form_token, is_form_token, session_of
from mailboxd.web.workspaces import Place

# ---------------------------------------------------------------------------------------------------------------------
# Templates: everything that is put into one is foreign, made visible and escaped. Only drawings are markup.

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_DONE = {
    "approved": "Approved, and recorded in your name. The daemon carries it out.",
    "rejected": "Rejected, and recorded in your name.",
    "request_changes": "Changes are requested, in your name. The agent is told your note.",
    "retry": "It runs again as soon as there is room.",
    "cancel": "Cancelled, with everything below it.",
    "answer": "Answered. The agent goes on.",
    "unblock-retry": "Unblocked: it is tried again.",
    "unblock-accept": "The last good result counts: it is completed.",
    "unblock-fail": "Given up: it has failed.",
}
"""What is said after a form: a word in the address chooses one of these, and can say nothing else."""


class Views:
    """The templates of this package."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("mailboxd.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=visible,
        )  # fmt: skip
        self._environment.filters |= {
            "drawn": Markup,
            "json": partial(json.dumps, ensure_ascii=False),
            "money": money,
            "moment": moment,
            "attempt": attempt_look,
        }
        self._environment.globals |= {"look_of": look_of, "LOOKS": LOOKS, "DONE": _DONE, "duration": duration}

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)


def visible(value: object) -> object:
    """Foreign text with every character that cannot be seen, or that turns the direction of writing, as an escape."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return for_page(value)


def moment(at: str | None, now: str) -> str:
    """How long ago, or in how long: `3 min ago`, `in 2 h`."""
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
    return "just now" if seconds >= 0 else "in a moment"


def attempt_look(status: str) -> Look:
    return ATTEMPTS.get(status) or look_of(status)


def static() -> dict[str, tuple[bytes, str]]:
    """The files below /static, by name: these and no others. A name is looked up here and never becomes a path."""
    found = {"drawing.css": (STYLE.encode(), _TYPES[".css"])}
    for entry in (files("mailboxd.web") / "static").iterdir():
        kind = _TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            found[entry.name] = (entry.read_bytes(), kind)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The addresses of the page, and who may open them.

_FIELDS = 20
_UPLOAD_SECONDS = 30.0
_FURTHEST = 10_000
_log = logging.getLogger("mailboxd")

Values = dict[str, Any]
Page = Callable[[Request], Response]


@dataclass(slots=True)
class Site:
    """Everything that the addresses need. Pages run in threads, streams in the event loop."""

    desk: Desk
    acting: Acting
    sessions: Sessions
    ending: Ending = field(default_factory=Ending)
    views: Views = field(default_factory=Views)
    files: dict[str, tuple[bytes, str]] = field(default_factory=static)
    watch: stream.Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = stream.Watch(self.desk.clock)

    def application(self) -> Starlette:
        pages: list[tuple[str, Page]] = [
            ("/", self.overview),
            ("/search", self.search),
            ("/w/{key}", self.workspace),
            ("/w/{key}/messages", self.messages),
            ("/w/{key}/m/{message}", self.message),
            ("/w/{key}/a/{approval}", self.approval),
            ("/w/{key}/t/{task}", self.task),
            ("/w/{key}/t/{task}/children", self.children),
        ]
        forms: list[tuple[str, Callable[[Request, Form], Response]]] = [
            ("/w/{key}/a/{approval}", self.decide),
            ("/w/{key}/t/{task}", self.order),
            ("/leave", self.leave),
        ]
        routes = [Route(path, self._page(page), methods=["GET"]) for path, page in pages]
        routes += [Route(path, self._form(form), methods=["POST"]) for path, form in forms]
        routes += [
            Route("/enter", self.enter, methods=["GET"]),
            Route("/static/{name}", self.static, methods=["GET"]),
            Route("/stream", self.stream, methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={404: self._nothing, 405: self._nothing})

    # ---------------------------------------------------------------- pages

    def overview(self, request: Request) -> Response:
        return self._answer(request, "overview.html", {"places": self.desk.overview()}, live=self.desk.places.all())

    def workspace(self, request: Request) -> Response:
        place, asked = self._place(request), request.query_params
        wanted = Filter(
            phase=asked.get("phase", "") if asked.get("phase", "") in set(Phase) else "",
            agent=asked.get("agent", "") if is_id(asked.get("agent", "")) else "",
            words=asked.get("q", "")[:200],
            children=asked.get("children") == "1",
        )
        return self._list(request, place, wanted)

    def children(self, request: Request) -> Response:
        place, name = self._place(request), request.path_params["task"]
        phase = request.query_params.get("phase", "")
        with self.desk.report(place) as report:
            task_id = named(report, name)
        if task_id is None:
            raise UnavailableError(f"there is no task {ascii(name)[:100]}")
        wanted = Filter(parent=task_id, phase=phase if phase in set(Phase) else "")
        return self._list(request, place, wanted, above=name)

    def _list(self, request: Request, place: Place, wanted: Filter, above: str = "") -> Response:
        found = self.desk.workspace(place, wanted, _number(request.query_params.get("page", "1")))
        asked = {"phase": wanted.phase, "agent": wanted.agent, "q": wanted.words, "children": "1" * wanted.children}
        shown = found | {"filter": wanted, "parent": above, "query": _query(asked)}
        return self._answer(request, "workspace.html", shown, live=[place])

    def task(self, request: Request) -> Response:
        place = self._place(request)
        found = self.desk.task(place, request.path_params["task"])
        return self._answer(request, "task.html", {"place": self._named(place), "task": found}, live=[place])

    def approval(self, request: Request) -> Response:
        place = self._place(request)
        found = self.desk.approval(place, request.path_params["approval"])
        return self._answer(request, "approval.html", {"place": self._named(place), "row": found}, live=[place])

    def messages(self, request: Request) -> Response:
        place, asked = self._place(request), request.query_params
        verdict = "rejected" if asked.get("verdict") == "rejected" else ""
        found = self.desk.messages(place, verdict, _number(asked.get("page", "1")))
        shown = found | {"place": self._named(place), "query": _query({"verdict": verdict})}
        return self._answer(request, "messages.html", shown, live=[place])

    def message(self, request: Request) -> Response:
        place = self._place(request)
        found = self.desk.message(place, request.path_params["message"])
        return self._answer(request, "message.html", {"place": self._named(place), "row": found})

    def search(self, request: Request) -> Response:
        asked = request.query_params
        words, kind, key = asked.get("q", "")[:200], asked.get("type", ""), asked.get("w", "")
        kind = kind if kind in ("message", "result", "event") else ""
        places = [place for place in self.desk.places.all() if key in ("", place.key)]
        found = search(places, words, kind) if words.strip() else {"hits": [], "troubles": []}
        shown = found | {"words": words, "kind": kind, "key": key, "all": [self._named(p) for p in places]}
        return self._answer(request, "search.html", shown)

    # ---------------------------------------------------------------- forms

    def decide(self, request: Request, form: Form) -> Response:
        place, approval = self._place(request), request.path_params["approval"]
        done = self.acting.decide(place, approval, form)
        return _go(f"/w/{place.key}/a/{approval}?done={done}")

    def order(self, request: Request, form: Form) -> Response:
        place, task = self._place(request), request.path_params["task"]
        done = self.acting.order(place, task, form)
        return _go(f"/w/{place.key}/t/{task}?done={done}")

    def leave(self, request: Request, _form: Form) -> Response:
        self.sessions.leave(session_of(request))
        gone = _go("/")
        cookies.take(gone)
        return gone

    # ---------------------------------------------------------------- everything else

    def enter(self, request: Request) -> Response:
        """A link of `mailboxd web`: good once."""
        session = self.sessions.enter(request.query_params.get("token", "")[:200])
        if session is None:
            return self._closed("This link is not good any more: each is good once, and for an hour.")
        inside = _go("/")
        cookies.give(inside, session)
        return inside

    def static(self, request: Request) -> Response:
        found = self.files.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("there is nothing here\n", 404)
        return Response(found[0], media_type=found[1])

    async def stream(self, request: Request) -> Response:
        if not await run_in_threadpool(self.sessions.is_open, session_of(request)):
            return PlainTextResponse("there is nothing here\n", 401)
        if self.watch.streams >= stream.MOST:
            return PlainTextResponse("there are too many streams; look again now and then\n", 503)
        keys = request.query_params.getlist("w")
        places = [place for place in self.desk.places.all() if not keys or place.key in keys]
        return StreamingResponse(self._stream(places), media_type="text/event-stream")

    async def _stream(self, places: list[Place]) -> Any:
        self.watch.streams += 1
        try:
            async for event in stream.changes(self.watch, places, self.ending):
                yield event
        finally:
            self.watch.streams -= 1

    # ---------------------------------------------------------------- inside

    def _page(self, page: Page) -> Page:
        def answer(request: Request) -> Response:
            if not self._is_inside(request):
                return self._closed()
            return self._tried(request, lambda: page(request))

        return answer

    def _form(self, act: Callable[[Request, Form], Response]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if not await run_in_threadpool(self._is_inside, request):
                return self._closed()  # before its body is waited for
            form: Form = {}
            with suppress(TimeoutError, ValueError):
                async with asyncio.timeout(_UPLOAD_SECONDS):
                    body = await request.body()
                form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS))
            return await run_in_threadpool(self._acted, request, form, act)

        return answer

    def _acted(self, request: Request, form: Form, act: Callable[[Request, Form], Response]) -> Response:
        if not is_form_token(session_of(request), form.get("form", "")):
            return self._error(request, 403, "The form is not one of this session. Open the page again.")
        return self._tried(request, lambda: act(request, form))

    def _tried(self, request: Request, act: Callable[[], Response]) -> Response:
        try:
            return act()
        except UnavailableError as error:
            return self._error(request, 404, str(error))
        except (Refused, PlanError) as refusal:
            return self._error(request, 409, str(refusal))
        except MailboxdError as error:
            _log.error("a page could not be shown: %s", error)
            return self._error(request, 503, str(error))
        except Exception:
            _log.exception("a bug of mailboxd: a page could not be made; please report this")
            return self._error(request, 500, "A bug of mailboxd; its log has the details.")

    def _is_inside(self, request: Request) -> bool:
        session = session_of(request)
        try:
            return session != "" and self.sessions.is_open(session)
        except MailboxdError as error:
            _log.error("no session can be checked: %s", error)
            return False

    def _place(self, request: Request) -> Place:
        place = self.desk.places.find(request.path_params["key"])
        if place is None:
            raise UnavailableError("there is no such workspace (any more)")
        return place

    def _named(self, place: Place) -> Values:
        return {
            "key": place.key,
            "name": place.ws.root.name,
            "path": place.path,
            "agent": self.desk.places.agent(place),
        }

    def _answer(
        self, request: Request, template: str, values: Values, *, live: list[Place] | None = None, status: int = 200
    ) -> Response:
        session = session_of(request)
        shared = {
            "now": self.desk.clock.now(),
            "form_token": form_token(session),
            "inside": True,
            "done": request.query_params.get("done", ""),
            "stream": "/stream?" + "&".join(f"w={place.key}" for place in live) if live else "",
        }
        return HTMLResponse(self.views.render(template, shared | values), status)

    def _error(self, request: Request, status: int, text: str) -> Response:
        return self._answer(request, "error.html", {"text": text, "status": status}, status=status)

    def _closed(self, text: str = "") -> Response:
        shown = {"inside": False, "text": text, **dict.fromkeys(("now", "done", "stream", "form_token"), "")}
        return HTMLResponse(self.views.render("closed.html", shown), 401)

    async def _nothing(self, request: Request, _error: Exception) -> Response:
        if not await run_in_threadpool(self._is_inside, request):
            return self._closed()
        return self._error(request, 404, "There is nothing here.")


def _number(text: str) -> int:
    return min(max(int(text), 1), _FURTHEST) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


def _query(asked: Mapping[str, str]) -> str:
    """What is asked, for a link to another page of it."""
    return urlencode({name: value for name, value in asked.items() if value}) + "&" * any(asked.values())


def _go(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303)
