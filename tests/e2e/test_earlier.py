"""Workspaces of earlier versions, frozen in the middle of their work, are opened, verified, continued and undone.

One for each version that people may have: `python -m tests.e2e.earlier.make` makes it with the code of that version.
"""

from __future__ import annotations

import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import acting
from tests.e2e.support import SCRIPTED, Agent, Company, eventually

FOLDER = Path(__file__).with_name("earlier")
JUMPING = Path(__file__).with_name("jumping.py")
VERSIONS = sorted(path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz"))


@pytest.fixture(params=VERSIONS)
def company(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Company]:
    """The workspaces in another place, on a clock that goes on where they were left."""
    with tarfile.open(FOLDER / f"{request.param}.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    script = yaml.safe_load((tmp_path / "script.yaml").read_text())
    left = (tmp_path / "ledger.jsonl").stat().st_mtime
    company = Company(tmp_path, script["agents"])
    (tmp_path / "clock").write_text(str(left - time.time()))
    company.program = (sys.executable, str(JUMPING), str(tmp_path / "clock"))
    for agent in company.agents.values():
        settings = yaml.safe_load(agent.config.read_text())
        settings["openclaw"]["command"] = [SCRIPTED, "--script", str(company.script)]
        agent.config.write_text(yaml.safe_dump(settings))
    yield company
    company.close()


def said(agent: Agent, *words: str) -> str:
    done = agent.call(*words)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_it_opens_goes_on_and_undoes(company: Company) -> None:
    alpha, beta = company["alpha"], company["beta"]
    assert {item["kind"] for item in alpha.json("inbox")} >= {"question", "circuit", "approval", "hold", "rejected"}
    alpha.start()
    beta.start()
    for name in ("late", "tree"):
        alpha.until(name)
    said(alpha, "answer", "asks", "2026")
    said(alpha, "approve", next(row["id"] for row in acting.rows(alpha) if row["status"] == "pending"))
    said(alpha, "resume", "paused")
    for name in ("asks", "waits", "paused"):
        alpha.until(name)
    assert (alpha.root / "second.txt").exists()
    said(alpha, "undo", "--action", next(row["id"] for row in acting.rows(alpha) if "done.txt" in row["action"]))
    acting.approve(alpha, *(row["id"] for row in acting.rows(alpha) if row["status"] == "pending"))
    eventually(lambda: not (alpha.root / "done.txt").exists(), 20, alpha.last_words)
    company.rewrite({name: {"mailbox": True, "default": {"reply": "It works now."}} for name in company.agents})
    said(alpha, "retry", "breaks")
    alpha.until("breaks")
    company.at_rest()
    assert len(company.executions(local_id="late")) == 1
    for agent in (alpha, beta):
        assert "matches the record" in said(agent, "db", "verify")
        assert len(agent.events("config.changed")) == 1  # of its first start, and not of the commands


@pytest.mark.slow
def test_its_journal_rebuilds_it(company: Company, tmp_path: Path) -> None:
    alpha = company["alpha"]
    said(alpha, "db", "rebuild", "--replace")
    alpha.run()
    assert "matches the record" in said(alpha, "db", "verify")
