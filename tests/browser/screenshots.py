"""Pictures of the page for docs/images: `make screenshots`. A company works first, so it takes a minute."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, chromium_path, entered
from tests.browser.world import AGENTS, SETTINGS, people
from tests.e2e.support import Company
from tests.web.serve import served

WIDE = {"width": 1180, "height": 800}
NARROW = {"width": 320, "height": 640}


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mailboxd-page-") as folder:
        root = Path(folder)
        company = Company(root, AGENTS, {"XDG_STATE_HOME": str(root / "state")})
        try:
            for name in ("analyst", "writer"):
                company[name].settle_in(SETTINGS)
            people(company)
            with served(company["analyst"].root, company.env) as server, sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
                key = server.key("analyst")
                asked = company["analyst"].json("approve")[0]["short_id"]
                pictures = [
                    ("overview", "/", "light", WIDE, True),
                    ("overview-dark", "/", "dark", WIDE, True),
                    ("workspace", f"/w/{key}", "light", WIDE, False),
                    ("task", f"/w/{key}/t/q3", "light", WIDE, True),
                    ("task-dark", f"/w/{key}/t/q3", "dark", WIDE, False),
                    ("request", f"/w/{key}/a/{asked}", "light", WIDE, False),
                    ("task-narrow", f"/w/{key}/t/q3", "light", NARROW, False),
                ]
                for name, path, scheme, size, whole in pictures:
                    context = entered(chromium, server, color_scheme=scheme, viewport=size)
                    page = context.new_page()
                    page.goto(path)
                    page.wait_for_selector("#live.on")
                    page.screenshot(path=str(target / f"web-{name}.png"), full_page=whole)
                    context.close()
                chromium.close()
        finally:
            company.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
