"""A company that was worked through once, its page, and a Chromium that looks at it. Collected only when named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, sync_playwright

from tests.browser.world import AGENTS, SETTINGS, people
from tests.e2e.support import Company
from tests.web.serve import Browser, served

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


def chromium_path() -> str:
    """Where a Chromium is; `CHROMIUM` says it, else the first of the usual names."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "there is no chromium: apt-get install chromium, or say CHROMIUM=/path/to/it"
    return found


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    root = tmp_path_factory.mktemp("company")
    made = Company(root, AGENTS, {"XDG_STATE_HOME": str(root / "state")})
    for name in ("analyst", "writer"):
        made[name].settle_in(SETTINGS)
    try:
        people(made)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def page_server(company: Company) -> Iterator[Browser]:
    with served(Path(company["analyst"].root), company.env) as browser:
        yield browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        yield browser
        browser.close()


def entered(chromium: Chromium, server: Browser, **settings: object) -> BrowserContext:
    """A window of its own that has the session of `server`."""
    context = chromium.new_context(base_url=server.origin, **settings)  # type: ignore[arg-type]
    name, _, value = server.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": server.origin, "httpOnly": True, "sameSite": "Strict"}])
    return context
