"""What ten kinds of answers cost in text and by tool: calls of the model, and bytes of its requests and of the prompts.

    python -m bench.answers [--openclaw 2026.8.1]

Starts a real gateway with the plugin and a model that follows a script (as the live tests do), and has the same tasks
done with `answers.by: text` and `auto`. Bytes are the sums over all calls of one kind of answer, so that a turn that
asks again counts what it costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.support import task
from tests.live.company import LiveCompany
from tests.live.gateway import Gateway, run_of
from tests.live.install import OPENCLAW, standard
from tests.live.model import Call, Model, Step, Text, Tool, plan

CHILD = {"agent": "self", "description": "One part"}
VOTE = {"agent": "self", "description": "A vote", "answers": ["yes", "no"]}
ACTION = {"id": "publish", "kind": "manual", "action": "Publish it"}
ACTIONS = f"```yaml\n- {json.dumps(ACTION)}\n```"
NOBODY = {"agent": "nobody", "description": "One part"}


def _head(kind: str, body: str, **more: str) -> Text:
    lines = "".join(f"{key}: {value}\n" for key, value in more.items())
    return Text(f"---\ntype: {kind}\n{lines}---\n{body}\n")


def _planned(*children: Mapping[str, Any]) -> Tool:
    return Tool("mailboxd_plan", {"subtasks": [{"id": f"p{n}", **child} for n, child in enumerate(children)]})


def _text_plan(*children: Mapping[str, Any]) -> Text:
    return plan({f"p{number}": child for number, child in enumerate(children)})


FINDING = {"severity": "major", "message": "The sum is off", "file": "sums.md", "line": 3}
FOUND = "## Summary\n\nNearly.\n\n## Findings\n\n```yaml\n- severity: major\n  message: The sum is off\n```"
IN_TEXT: dict[str, Step] = {
    "result": Text("The finished work."),
    "plan": _text_plan(CHILD, VOTE),
    "synthesis": Text("Both parts."),
    "vote": _head("reply", "## Results\n\nIt holds.", status="done", answer="yes"),
    "question": _head("question", "Which one?"),
    "failure": _head("reply", "## Error\n\nThere is no key.", status="failed"),
    "actions": _head("reply", "## Results\n\nReady.\n\n## Planned Actions\n\n" + ACTIONS, status="done"),
    "approval": _head("review", "## Summary\n\nGood.", verdict="approved"),
    "changes": _head("review", FOUND, verdict="changes_requested"),
    "wrong": _text_plan(NOBODY),
}  # fmt: skip
BY_TOOL: dict[str, Step] = {
    "result": Tool("mailboxd_finish", {"result": "The finished work."}),
    "plan": _planned(CHILD, VOTE),
    "synthesis": Tool("mailboxd_finish", {"result": "Both parts."}),
    "vote": Tool("mailboxd_answer", {"answer": "yes", "reason": "It holds."}),
    "question": Tool("mailboxd_ask", {"question": "Which one?"}),
    "failure": Tool("mailboxd_fail", {"error": "There is no key."}),
    "actions": Tool("mailboxd_finish", {"result": "Ready.", "planned_actions": [ACTION]}),
    "approval": Tool("mailboxd_verdict", {"verdict": "approved", "summary": "Good."}),
    "changes": Tool("mailboxd_verdict", {"verdict": "changes_requested", "summary": "Nearly.", "findings": [FINDING]}),
    "wrong": _planned(NOBODY),
}
KINDS = {
    "a result": ("one", "work", "1", "alpha"),
    "a plan of two": ("many", "work", "1", "alpha"),
    "a synthesis": ("many", "synthesis", "1", "alpha"),
    "a vote": ("many.p1", "work", "1", "alpha"),
    "a question": ("asks", "work", "1", "alpha"),
    "a failure": ("fails", "work", "1", "alpha"),
    "a result with actions": ("acts", "work", "1", "alpha"),
    "a review that approves": ("good", "review", "1", "beta"),
    "a review with findings": ("bad", "review", "1", "beta"),
    "a wrong plan, then a right one": ("wrong", "work", "1", "alpha"),
}


def play(company: LiveCompany, by: str) -> dict[str, list[Call]]:
    """Have all tasks done, and return the calls of each kind."""
    said = IN_TEXT if by == "text" else BY_TOOL
    alpha, model = company["alpha"], company.model

    def name(task_id: str) -> str:  # of its own for each way: sessions of OpenClaw outlive a company
        return f"{by}-{task_id}"

    model.on(said["result"])
    model.on(said["approval"], kind="review")
    model.on(said["plan"], task=name("many"), kind="work")
    model.on(said["synthesis"], kind="synthesis")
    model.on(said["vote"], task=".*p1", kind="work")
    for one, answer in (("asks", "question"), ("fails", "failure"), ("acts", "actions")):
        model.on(said[answer], task=name(one), kind="work")
    model.on(said["changes"], task=name("bad"), kind="review", times=1)
    model.on(said["wrong"], said["plan"], task=name("wrong"), kind="work")
    if by == "text":
        model.on(said["plan"], task=name("wrong"), kind="work", text="was not taken")
    alpha.start()
    # the plugin tells a daemon of its tools in the first turn, if the gateway is older than the mailbox
    model.on(Text("The first line."), task=name("first"))
    alpha.drop("first.md", task(name("first")))
    alpha.until(name("first"))
    for one in ("one", "many", "wrong"):
        alpha.drop(f"{one}.md", task(name(one)))
    for one in ("asks", "fails", "acts"):
        alpha.drop(f"{one}.md", task(name(one), max_attempts=1))
    for one in ("good", "bad"):
        alpha.drop(f"{one}.md", task(name(one), gates=["quality_gate"], reviewers=["beta"]))
    for one in ("one", "many", "wrong", "good", "bad"):
        alpha.until(name(one))
    alpha.until(name("fails"), "failed")
    alpha.until(name("acts"), "awaiting_approval")
    calls = list(model.calls)
    return {
        kind: [call for call in calls if (call.task, call.kind, call.attempt, call.agent) == (name(of), *rest)]
        for kind, (of, *rest) in KINDS.items()
    }


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.answers")
    options.add_argument("--openclaw", default=OPENCLAW)
    release = options.parse_args().openclaw
    root = Path(tempfile.mkdtemp(prefix="mailboxd-answers-"))
    found = {}
    with Model() as model:
        gateway = Gateway(root, model.url, run_of(["alpha", "beta"]), installation=standard(release))
        try:
            gateway.install_plugin()
            gateway.start()
            for by in ("text", "auto"):
                model.reset()
                company = LiveCompany(gateway, model, ["alpha", "beta"])
                company.employ("alpha", {"answers": {"by": by}})
                try:
                    found[by] = play(company, by)
                finally:
                    company.close()
        finally:
            gateway.close()
            shutil.rmtree(root, ignore_errors=True)
    print(table(found))


def table(found: Mapping[str, Mapping[str, list[Call]]]) -> str:
    """The rows for people, by what was found for `text` and `auto`."""
    rows = [
        "| answer | calls: text | tool | request bytes: text | tool | prompt bytes: text | tool |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        both = [found[by][kind] for by in ("text", "auto")]
        cells = [str(len(calls)) for calls in both] + [f"{sum(call.size for call in calls):,}" for calls in both]
        cells += [f"{len(calls[-1].text.encode()) if calls else 0:,}" for calls in both]
        rows.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
