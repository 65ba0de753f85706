"""Three daemons whose agents answer each note with a note to the next one: it ends, and a person is asked once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import SCRIPTED, Company, eventually, message

pytestmark = pytest.mark.slow

NEXT = {"alpha": "beta", "beta": "gamma", "gamma": "alpha"}
WORK: dict[str, Any] = {"mailbox": True, "default": {"reply": "It is on its way."}}
SAME, CHANGING = "Please pass it on.", "Please pass it on: number $n."


def passing_on(program: Path, company: Path, words: str, sender: str) -> None:
    """Write an OpenClaw whose agents put a note into the inbox of the next one after each turn of work."""
    headers = f"from: {sender}\n" if sender else ""
    program.write_text(
        f"""#!/bin/bash
before=
for word in "$@"; do
  [ "$before" = --agent ] && agent=$word
  [ "$before" = --message-file ] && text=$(cat "$word")
  before=$word
done
{SCRIPTED} --script {company}/script.yaml "$@"
ended=$?
if [[ "$text" == *"pass it on"* && "$text" == *"work turn"* ]]; then
  case $agent in alpha) next=beta ;; beta) next=gamma ;; *) next=alpha ;; esac
  n=$(date +%s%N)
  inbox={company}/ws/$next/mailbox/inbox
  cat > $inbox/.note-$n <<END
---
type: task
task_id: note-$n
{headers}---

# Task: News

## Instructions

{words}
END
  mv $inbox/.note-$n $inbox/note-$n.md
fi
exit $ended
""",
        encoding="utf-8",
    )
    program.chmod(0o755)


@pytest.fixture
def ring(found: Found, tmp_path: Path) -> Callable[..., Company]:
    """Start a ring: `ring(words, sender="$agent", ...)`, with these limits."""

    def start(words: str, *, sender: str = "$agent", **limits: int) -> Company:
        program = tmp_path / "openclaw.sh"
        settings = {"openclaw": {"discovery": "true", "command": [str(program)]}, "limits": limits}
        company = found(dict.fromkeys(NEXT, WORK), daemons=list(NEXT), **settings)
        passing_on(program, company.root, words, sender)
        for agent in company.agents.values():
            agent.start()
        body = f"# Task: News\n\n## Instructions\n\n{words.replace('$n', '0')}\n"
        company["alpha"].drop("first.md", message("task", "first", body))
        return company

    return start


def held(company: Company) -> list[tuple[str, str]]:
    """The tasks on hold, with their agents."""
    sql = "SELECT local_id FROM v_tasks WHERE held <> '' AND phase <> 'cancelled'"
    return [(name, row["local_id"]) for name, agent in company.agents.items() for row in agent.query(sql)]


def test_a_ring_ends_with_one_question_and_goes_on_if_a_person_lets_it(ring: Callable[..., Company]) -> None:
    company = ring(CHANGING, depth=2)
    ((name, note),) = eventually(lambda: held(company), 30)
    eventually(company.is_quiet)
    assert len(company.executions()) == 3, "the third hand-over is one too many"
    agent = company[name]
    (item,) = agent.json("inbox")
    assert (item["task"], item["kind"]) == (note, "hold")
    assert item["text"].endswith("limits.depth is 2 (alpha -> beta -> gamma -> alpha)")
    assert f"mailboxd retry {note}  # lets it go on; or mailboxd cancel {note}" in agent.call("why", note).stdout
    agent.stop()
    before = agent.query("SELECT * FROM handovers ORDER BY task")
    assert agent.call("db", "rebuild", "--replace").returncode == 0
    assert agent.query("SELECT * FROM handovers ORDER BY task") == before
    agent.start()
    done = agent.call("retry", note)
    assert done.returncode == 0, done.stderr
    ((other, again),) = eventually(lambda: [one for one in held(company) if one[1] != note], 30)
    eventually(company.is_quiet)
    assert len(company.executions()) == 6, "a new chain"
    assert company[other].call("cancel", again, "--now").returncode == 0
    assert held(company) == []


def test_the_same_text_goes_round_three_times(ring: Callable[..., Company]) -> None:
    company = ring(SAME, depth=64)
    ((name, note),) = eventually(lambda: held(company), 60)
    eventually(company.is_quiet)
    assert len(company.executions()) == 10
    assert "has sent the same text 3 times before (alpha -> beta" in company[name].task(note)["held"]


@pytest.mark.soak
@pytest.mark.parametrize("sender", ["", "ghost-$n"])
def test_whoever_forges_where_it_comes_from_meets_the_limit_of_an_hour(
    ring: Callable[..., Company], sender: str
) -> None:
    company = ring(CHANGING, sender=sender, sender_hour_tasks=1)
    ((name, note),) = eventually(lambda: held(company), 30)
    eventually(company.is_quiet)
    assert "limits.sender_hour_tasks allows (1)" in company[name].task(note)["held"]
    assert len(company.executions()) in (3, 4)
