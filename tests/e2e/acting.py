"""Work with planned actions, and a witness outside: each effect that happens appends a line to a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.support import Agent, Company, environment, eventually, message

WORK = {"default": {"reply": "Result of {title}."}}
ALONE: dict[str, Any] = {"lobster": []}
"""`approvals` without Lobster, wherever it may be installed."""
HERE = Path(__file__).parent


def effect(witness: Path, *more: str, **fields: Any) -> dict[str, Any]:
    """A command whose effect is a line in `witness`, after `more` and before nothing."""
    script = "; ".join((*more, f"echo happened >> {witness}"))
    return {"id": "act", "kind": "command", "argv": ["/bin/sh", "-c", script], **fields}


def acting(task_id: str, actions: Sequence[Mapping[str, Any]], **headers: Any) -> str:
    """A `task` message that declares these actions."""
    listed = yaml.safe_dump([dict(action) for action in actions], sort_keys=False)
    body = f"# Task: {task_id}\n\n## Instructions\n\nDo it.\n\n## Expected Output\n\nOne line.\n"
    return message("task", task_id, f"{body}\n## Planned Actions\n\n```yaml\n{listed}```\n", **headers)


def happened(witness: Path) -> int:
    return witness.read_text().count("happened") if witness.exists() else 0


def rows(agent: Agent) -> list[dict[str, Any]]:
    return agent.query("SELECT * FROM v_approvals ORDER BY id")


def row(agent: Agent) -> dict[str, Any]:
    """The one approval there is; empty while there is none."""
    return next(iter(rows(agent)), {})


def asked(agent: Agent, how_many: int = 1) -> list[str]:
    """Wait until that much is asked; the ids."""
    eventually(lambda: len(rows(agent)) >= how_many, 20, agent.last_words)
    return [found["id"] for found in rows(agent)]


def until_state(agent: Agent, *states: str, seconds: float = 30) -> dict[str, Any]:
    """Wait until the approval is in one of these states."""
    eventually(lambda: row(agent).get("state") in states, seconds, lambda: f"{row(agent)}\n{agent.last_words()}")
    return row(agent)


def approve(agent: Agent, *ids: str) -> None:
    done = agent.call("approve", *ids)
    assert done.returncode == 0, done.stderr


def approved(company: Company, actions: Sequence[Mapping[str, Any]], env: Mapping[str, str] | None = None) -> str:
    """Have alpha do the task `job` up to a person's yes, with no daemon there any more; the last approval's id."""
    alpha = company["alpha"]
    alpha.drop("job.md", acting("job", actions))
    alpha.run(env=env)
    ids = [str(found["id"]) for found in rows(alpha)]
    assert len(ids) == len(actions), alpha.last_words()
    approve(alpha, *ids)
    return ids[-1]


def runner(agent: Agent, approval: str, *before: str, **environ: str) -> subprocess.Popen[str]:
    """The runner, as the daemon starts it; `before` are words that start it, by default the program itself."""
    given = {"MAILBOXD_EFFECT_ENVIRONMENT": json.dumps({"PATH": os.environ["PATH"]}), **environ}
    return subprocess.Popen(
        [*(before or (sys.executable, "-m", "mailboxd.cli")), "effect", "run", approval],
        cwd=agent.root, env=environment(given), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def killed_at(point: int | str) -> tuple[str, ...]:
    """The words that start `mailboxd` so that it dies at its n-th change of the world."""
    return (sys.executable, str(HERE / "killed_at.py"), str(point))


def runner_pids(agent: Agent, approval: str) -> list[int]:
    """The runners of this approval that are alive, whoever started them; not the shells or Lobster around them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"effect" in words and approval.encode() in words and str(agent.root).encode() in words:
                found.append(int(entry.name))
    return found
