"""One workspace in which real daemons have worked, and a copy of it for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.progress import silent
from mailboxd.ledger.reports import opened
from mailboxd.operate.verification import Audit, Difference
from tests.e2e.support import Agent, Company, task

WORK = {"default": {"reply": "Result of {title}."}}
PLAN = {
    "figures": {"agent": "beta", "description": "Get the net revenue"},
    "text": {"agent": "self", "description": "Write it", "depends_on": ["figures"]},
}


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Work of one's own, work of a peer, a rejected file: all of it done."""
    root = tmp_path_factory.mktemp("company")
    company = Company(root, {"alpha": WORK, "beta": WORK})
    alpha = company["alpha"]
    alpha.settle_in({"archive": {"prompts": "text"}})
    alpha.drop("one.md", task("one", "Find the figures"))
    alpha.drop("two.md", task("two", plan=PLAN))
    alpha.drop("bad.md", "---\ntype: zonk\ntask_id: q\nfrom: boss\n---\n")
    alpha.run()
    assert set(alpha.phases().values()) == {"completed"}
    yield root
    company.close()


@pytest.fixture
def alpha(worked: Path, tmp_path: Path) -> Agent:
    """The workspace as those daemons left it, for this test alone."""
    root = tmp_path / "company"
    shutil.copytree(worked, root, symlinks=True)
    return Company(root, {"alpha": WORK, "beta": WORK})["alpha"]


def audited(agent: Agent) -> Difference | None:
    """The first problem that `db verify` finds, in this process."""
    with opened(agent.root / ".mailboxd" / "mailboxd.db") as report:
        return Audit(Workspace(agent.root), report, silent).perform().finding
