"""The page in this process, with the clock of its stage: as `serve`, without a server, for tests of milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mailboxd.formats.user.state import UserState
from mailboxd.surfaces.web.app import WebApp, templates
from mailboxd.surfaces.web.page_models import PageModels
from mailboxd.surfaces.web.sessions import Sessions
from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspaces
from tests.cli.stage import Stage
from tests.web.serve import Answer, Browser


@dataclass(slots=True)
class Inside(Browser):
    """A browser of an application of this process."""

    application: Any = None

    def ask(self, method: str, path: str, body: str = "", headers: Mapping[str, str | None] | None = None) -> Answer:
        said = {"cookie": self.cookie, **(headers or {})}
        return asyncio.run(self._ask(method, path, body.encode(), {k: v for k, v in said.items() if v is not None}))

    async def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        where, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": where, "raw_path": where.encode(), "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 0), "client": ("127.0.0.1", 0),
            "root_path": "",
        }  # fmt: skip
        await self.application(scope, receive, send)
        head = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], head, b"".join(part.get("body", b"") for part in sent[1:]).decode())


_templates = cache(templates)
"""Compiled once: that takes longer than most of these tests."""


def inside(stage: Stage, state: Path) -> Inside:
    """The page of this stage for a user whose state directory is `state`, entered."""
    environ = {"XDG_STATE_HOME": str(state)}
    sessions = Sessions(UserState.of(environ), stage.clock)
    models = PageModels(WebWorkspaces(own=stage.ws.root, environ=environ), stage.clock)
    app = WebApp(models, FormActions(stage.clock, environ), sessions, templates=_templates())
    browser = Inside(0, f"/enter?token={sessions.new_link()}", application=app.application())
    assert browser.enter().status == 303
    return browser
