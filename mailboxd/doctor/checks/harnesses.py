"""Whether the harnesses that may work for the agent can be had."""

from __future__ import annotations

from collections.abc import Iterator

from mailboxd.agents.acp.hello import Hello
from mailboxd.doctor.facts import Facts
from mailboxd.doctor.finding import Finding, edit, note, ok, warning


def harnesses(facts: Facts) -> Iterator[Finding]:
    for found in facts.harnesses or ():
        yield _judged(found, facts.settings.path)


def _judged(found: Hello, config: str) -> Finding:
    what = f"the harness {found.name}"
    if found.problem:
        text = f"{what} cannot be had, and its tasks wait: {found.problem}"
        mends = [edit(config, f"acp.harnesses.{found.name}")]
        if "pip install" in found.problem:
            mends.insert(0, "pip install 'mailboxd[acp]'")
        return warning("harness", text, *mends)
    who = " ".join(filter(None, [found.title, found.version])) or "no name"
    if not found.loads:
        text = f"{what} ({who}) speaks ACP; it cannot load a session again, so a turn that is cut off stays unknown"
        return note("harness", text)
    return ok("harness", f"{what} ({who}) speaks ACP, and can be asked about a turn that was cut off")
