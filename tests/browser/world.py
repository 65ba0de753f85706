"""A company with something of everything, for a person to look at: work, a request, a failure, rework, a gate."""

from __future__ import annotations

from typing import Any

from tests.e2e.support import Company, eventually, task

PUBLISH = """\
- id: publish
  kind: command
  argv: [rsync, -a, site/, web.example:/srv/www/]
  risk: everybody can read it
"""
NOTIFY = """\
- id: notify
  kind: command
  argv: ["true"]
  risk: nobody is told
"""
REPORT = "---\ntype: reply\nstatus: done\n---\n## Results\n\n{text}\n\n## Planned Actions\n\n"


def _verdict(word: str, findings: str = "") -> str:
    return f"---\ntype: review\nverdict: {word}\n---\n\nRead against the acceptance criteria.\n{findings}"


AGENTS: dict[str, Any] = {
    "analyst": {
        "rules": [
            {"match": {"task": "publish"}, "reply": REPORT.format(text="The page is written: site/q3.html.") + PUBLISH},
            {"match": {"task": "announce"}, "reply": REPORT.format(text="The letter is written.") + NOTIFY},
            {"match": {"task": "crawl"}, "fail": "the site answers 503"},
            {"match": {"task": "q3.long"}, "delay": 600},
        ],
        "default": {"reply": "Revenue was 4.2 M in July, 4.4 M in August and 4.9 M in September.\n\nTotal: 13.5 M."},
    },
    "extractor": {"default": {"reply": "July 4.2\nAugust 4.4\nSeptember 4.9\n"}},
    "writer": {
        "default": {"reply": "# Third quarter\n\nRevenue grew by 8 % to 13.5 M.\n\nSeptember was the best month.\n"}
    },
}
"""`long` never ends by itself."""
SETTINGS: dict[str, Any] = {"approvals": {"lobster": []}, "limits": {"turns": 8, "turns_per_agent": 4}}
PLAN = {
    "extract-eu": {"agent": "extractor", "description": "Figures of Europe"},
    "extract-us": {"agent": "extractor", "description": "Figures of the Americas"},
    "extract-asia": {"agent": "extractor", "description": "Figures of Asia"},
    "analyse": {
        "agent": "self", "description": "Compare the regions",
        "depends_on": ["extract-eu", "extract-us", "extract-asia"],
    },
    "report": {"agent": "writer", "description": "Write the report", "depends_on": ["analyse"]},
    "long": {"agent": "self", "description": "long: watch the market", "depends_on": ["extract-eu"]},
}  # fmt: skip


def people(company: Company) -> None:
    """Start the daemons, drop the work, and wait until all of it stands still."""
    analyst = company["analyst"]
    for name in ("analyst", "writer"):
        company[name].start()
    analyst.drop("q3.md", task("q3", "Analyse the revenue of the third quarter", plan=PLAN))
    analyst.drop("publish.md", task("publish", "publish the report on the web site"))
    analyst.drop("crawl.md", task("crawl", "crawl the sites of the competitors", max_attempts=2))
    for name in ("notes", "minutes"):
        company["writer"].drop(f"{name}.md", task(name, f"Write the {name} of the meeting"))
        company["writer"].until(name)
    analyst.until("q3.report")
    analyst.until("publish", "awaiting_approval")
    eventually(lambda: analyst.phase("crawl") in ("failed", "circuit_open"), 60, analyst.last_words)
    eventually(lambda: analyst.phase("q3.long") == "executing", 60, analyst.last_words)
