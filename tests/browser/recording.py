"""The recording at the top of the README, docs/images/mailboxd.gif: `make recording`.

A company of scripted agents does the work while it is filmed: real daemons, real files, and the real page in Chromium.
Only the pace is edited. Every frame is a picture of one page that shows a terminal or the page, and a caption.
"""

from __future__ import annotations

import base64
import html
import io
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, chromium_path, entered
from tests.e2e.support import Agent, Company, eventually
from tests.web.serve import served

WIDTH, HEIGHT, CAPTION = 960, 600, 44
ROOM = 100
"""Characters of a line of the terminal."""
COLORS = 96

TASK = """\
---
type: task
task_id: q3
from: operator
---

# Task: How did revenue develop in the third quarter?

## Instructions

Have the figures extracted per region, compare them, and have a report written.

## Expected Output

A report of one page.
"""
PLAN = {
    "emea": {"agent": "extractor", "description": "Revenue of EMEA, per month"},
    "apac": {"agent": "extractor", "description": "Revenue of APAC, per month"},
    "compare": {"agent": "self", "description": "Compare both regions", "depends_on": ["emea", "apac"]},
    "report": {"agent": "writer", "description": "Write the report", "depends_on": ["compare"]},
}
QUESTION = "Which exchange rate counts: that of each month, or that of the end of the quarter?"
ANSWER = "That of the end of the quarter."
RESULT = """\
---
type: reply
status: done
---
## Results

**Revenue grew by 11.7 % to EUR 20.1 million.**

| region | Q2 | Q3 | growth |
| --- | --- | --- | --- |
| EMEA | 11.5 | 12.4 | +7.8 % |
| APAC | 6.5 | 7.7 | +18.5 % |

APAC was the driver, and September the best month of the quarter.

## Planned Actions

- id: send
  kind: command
  action: Send the report to the board
  argv: [cp, report.md, board-report.md]
  risk: the board reads it
"""
AGENTS: dict[str, Any] = {
    "analyst": {
        "rules": [
            {"match": {"kind": "work", "task": "q3"}, "delay": 0.5, "plan": PLAN},
            {"match": {"kind": "work", "task": "q3.compare"}, "times": 1, "delay": 0.5, "question": QUESTION},
            {"match": {"kind": "synthesis", "task": "q3"}, "writes": {"report.md": "# Q3\n"}, "reply": RESULT},
        ],
        "default": {"delay": 1.0, "reply": "EMEA +7.8 %, APAC +18.5 %, together +11.7 %."},
    },
    "extractor": {"default": {"delay": 3.0, "reply": "July 4.1, August 3.8, September 4.4 million."}},
    "writer": {
        "default": {"delay": 1.5, "reply": "Revenue grew by 11.7 % to EUR 20.1 million."},
    },
}
SETTINGS: dict[str, Any] = {"approvals": {"lobster": []}, "limits": {"turns": 8, "turns_per_agent": 4}}

_TERMINAL = """\
<div class="terminal"><div class="dots"><i></i><i></i><i></i></div><pre>{text}</pre></div>"""
_FRAME = """\
<!doctype html><meta charset="utf-8"><style>
body {{
  margin: 0; width: {width}px; height: {height}px; overflow: hidden; background: #f3f4f6;
  font: 16px system-ui, sans-serif;
}}
.shot {{ height: {inner}px; overflow: hidden }} .shot img {{ display: block }}
.terminal {{ height: {inner}px; background: #11151c; color: #d7dde6; box-sizing: border-box; padding: 16px 22px }}
.dots i {{
  display: inline-block; width: 12px; height: 12px; border-radius: 6px; margin-right: 7px; background: #39424f;
}}
pre {{
  font: 15px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; margin: 14px 0; white-space: pre-wrap;
  word-break: break-word;
}}
.caption {{
  height: {caption}px; line-height: {caption}px; padding: 0 22px; background: #1f3a5f; color: #fff; font-size: 17px;
}}
</style><div class="shot">{shown}</div><div class="caption">{said}</div>"""


@dataclass
class Film:
    """The frames so far, and the page of Chromium that draws them."""

    drawn: Page
    frames: list[Image.Image] = field(default_factory=list)
    lasting: list[int] = field(default_factory=list)
    """Milliseconds of each frame."""

    def terminal(self, lines: Sequence[str], said: str, seconds: float) -> None:
        """A terminal with these lines."""
        self._add(_TERMINAL.format(text=html.escape("\n".join(lines))), said, seconds)

    def typed(self, before: Sequence[str], command: str, said: str, seconds: float) -> None:
        """A command that is typed below these lines."""
        for end in range(0, len(command), 4):
            self.terminal([*before, f"$ {command[:end]}▌"], said, 0.08)
        self.terminal([*before, f"$ {command}"], said, seconds)

    def page(self, page: Page, said: str, seconds: float) -> None:
        """The page as it is now."""
        png = base64.b64encode(page.screenshot()).decode()
        self._add(f'<img src="data:image/png;base64,{png}">', said, seconds)

    def save(self, path: Path) -> None:
        """Write the frames as a GIF of at most `COLORS` colors."""
        colored = [frame.quantize(COLORS, dither=Image.Dither.NONE) for frame in self.frames]
        first, *others = colored
        first.save(path, save_all=True, append_images=others, duration=self.lasting, loop=0, optimize=True)

    def _add(self, shown: str, said: str, seconds: float) -> None:
        inner = HEIGHT - CAPTION
        self.drawn.set_content(
            _FRAME.format(width=WIDTH, height=HEIGHT, inner=inner, caption=CAPTION, shown=shown, said=said)
        )
        frame = Image.open(io.BytesIO(self.drawn.screenshot())).convert("RGB")
        self.frames.append(frame)
        self.lasting.append(int(seconds * 1000))


def story(film: Film, analyst: Agent, page: Page, key: str) -> None:
    """Film the whole: a file, the plan, a question, a decision, the answer."""

    def look(path: str) -> None:
        page.goto(path)
        page.wait_for_selector("#live.on")

    task = f"/w/{key}/t/q3"
    film.typed([], "cp q3-analysis.md analyst/mailbox/inbox/", "Drop a file into an agent's inbox.", 0.6)
    analyst.drop("q3-analysis.md", TASK)
    eventually(lambda: analyst.phase("q3.emea") == "executing", 60)
    events = [line[7:].rstrip()[:ROOM] for line in analyst.call("log", "q3", "--tree").stdout.splitlines()][:11]
    lines = ["$ cp q3-analysis.md analyst/mailbox/inbox/", "$ mailboxd log q3 --tree --follow"]
    for count in range(1, len(events) + 1):
        film.terminal([*lines, *events[:count]], "The agent plans. mailboxd runs the plan, without a model.", 0.25)
    film.lasting[-1] = 1600
    look(task)
    film.page(page, "Two parts run at the same time; the others wait for them.", 1.6)
    page.locator(".canvas").first.evaluate("drawn => drawn.scrollIntoView({block: 'center'})")
    film.page(page, "Two parts run at the same time; the others wait for them.", 2.4)

    eventually(lambda: analyst.json("inbox"), 60, analyst.last_words)
    look("/")
    film.page(page, "One of them has a question: it is the first thing you see.", 2.6)
    answer = page.get_by_role("textbox", name="Your answer").first
    answer.scroll_into_view_if_needed()
    for end in range(7, len(ANSWER) + 7, 7):
        answer.fill(ANSWER[:end])
        film.page(page, "Answer it there.", 0.15)
    film.lasting[-1] = 900
    page.get_by_role("button", name="Answer", exact=True).first.click()
    eventually(lambda: not analyst.json("inbox"), 60)
    eventually(lambda: analyst.phase("q3.report") == "executing", 60)
    look(task)
    film.page(page, "The work goes on.", 2.2)

    eventually(lambda: analyst.json("inbox"), 60, analyst.last_words)
    look("/")
    film.page(page, "What has an effect outside waits for you, exactly as it will be done.", 3.4)
    approve = page.get_by_role("button", name="Approve", exact=True).first
    approve.scroll_into_view_if_needed()
    approve.hover()
    film.page(page, "Approve it: it runs once.", 1.4)
    approve.click()
    analyst.until("q3")
    look(task)
    film.page(page, "Done, with the answer and the record of every step.", 3.6)
    (reply,) = analyst.sent("reply")
    _, _, results = reply.partition("## Results\n")
    listed = analyst.call("log", "q3", "--json").stdout.count('"seq"')
    film.typed([], "cat analyst/mailbox/outbox/*/*.reply.operator.q3.*.md", "The answer is a file, too.", 0.3)
    film.terminal(
        ["$ cat analyst/mailbox/outbox/*/*.reply.operator.q3.*.md", *results.strip().splitlines()[:12]],
        f"The answer is a file, too. {listed} events say how it came about, hash-chained.", 4.5,
    )  # fmt: skip


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mailboxd-film-") as folder:
        root = Path(folder)
        company = Company(root, AGENTS, {"XDG_STATE_HOME": str(root / "state")})
        try:
            for name in ("analyst", "writer"):
                company[name].settle_in(SETTINGS)
                company[name].start()
            with served(company["analyst"].root, company.env) as server, sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
                size: dict[str, Any] = {"width": WIDTH, "height": HEIGHT - CAPTION}
                page = entered(chromium, server, viewport=size, color_scheme="light").new_page()
                drawn = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                film = Film(drawn)
                story(film, company["analyst"], page, server.key("analyst"))
                film.save(target)
                chromium.close()
        finally:
            company.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/mailboxd.gif"))
