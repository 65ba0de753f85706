"""`mailboxd demo`: a small company of scripted agents at work, and the page on what came out."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import fit, room
from mailboxd.errors import EXIT_UNAVAILABLE, ConfigError

if TYPE_CHECKING:
    from mailboxd.operate.demo import Company

_DIRECTORY = Path("mailboxd-demo")


@verb(
    "demo", "demo", "demo /tmp/company --no-page", "demo --kill", "demo --dialect any --seed 3",
    exits={EXIT_UNAVAILABLE: "the directory is not empty, or the demo failed"},
)  # fmt: skip
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--kill", "killing", is_flag=True, help="Kill the daemons (kill -9) at random moments.")
@click.option("--dialect", default="", help="Let the agents answer as models of another family do; `any`: of all.")
@click.option("--seed", type=int, default=1, show_default=True, help="What `--dialect any` draws.")
@click.option("--no-page", is_flag=True, help="End without the page.")
def demo_command(
    session: Session, directory: Path | None, killing: bool, dialect: str, seed: int, no_page: bool
) -> None:
    """Run a company of four scripted agents on one question, and open the page on the answer.

    It needs no model, no OpenClaw and no network, and takes less than half a minute. An analyst plans, two extractions
    run at the same time, and a writer, with a daemon of its own, plans the report and has it checked.

    Everything happens in DIRECTORY (default: mailboxd-demo), which an earlier demo may have made; what mailboxd
    keeps for a user is kept there, too. On a terminal the page stays open, with a request to decide, until Ctrl-C,
    which stops the daemons.
    """
    from mailboxd.operate.demo import Company
    from mailboxd.perform.agents.scripted.dialects import names

    if dialect and dialect not in names():
        raise click.UsageError(f"--dialect: {dialect!r} is none of {', '.join(names())}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    root = (directory or _DIRECTORY).absolute()
    company = Company(root, session.clock, session.pause, lambda line: session.tell(fit(line, room())))
    page = not no_page and not session.as_json and sys.stdout.isatty()
    try:
        answer, kills = _story(session, company, dialect, seed, killing=killing)
        if page:
            _open_page(session, company)
        else:
            company.stop()
            _look_around(session, company)
    finally:
        if company.runs:
            session.tell("stopping the daemons; a turn that runs may end first", err=True)
        company.stop()
    facts = {"directory": str(root), "answer": str(answer), "kills": kills}
    session.show(facts, [f"{kills} kills, and the same answer"] if killing else ())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _story(session: Session, company: Company, dialect: str, seed: int, *, killing: bool) -> tuple[Path, int]:
    from mailboxd.operate import demo

    company.make(dialect, seed)
    _say(session, "four agents, four workspaces, one daemon each")
    session.tell(f"$ cd {shlex.quote(str(company.root))}")
    for agent in demo.AGENTS:
        session.tell(f"$ mailboxd init {agent} --agent {agent}; mailboxd -w {agent} run &")
    company.start_all()
    _say(session, "a task file is dropped")
    session.tell("$ cp q3-analysis.md analyst/mailbox/inbox/")
    company.drop("q3-analysis.md")
    _say(session, "what happens" + (", while daemons are killed" if killing else ""))
    answer, kills = company.watch(killing=killing)
    _say(session, f"the answer: {answer.relative_to(company.root)}")
    for line in demo.body(answer.read_text(encoding="utf-8")):
        session.tell(line)
    _say(session, "the analyst's plan, and the writer's plan for one part of it")
    for agent, task in (("analyst", demo.TASK), ("writer", f"{demo.TASK}.report")):
        session.tell(f"$ mailboxd -w {agent} show {task} --tree")
        session.tell(company.call("show", task, "--tree", agent=agent).rstrip())
    _say(session, "nothing was done twice, and the record proves it")
    session.tell("$ python count_work.py ledger.jsonl")
    session.tell(company.count_work().rstrip())
    for agent in demo.AGENTS:
        session.tell(f"$ mailboxd -w {agent} db verify")
        session.tell(company.call("db", "verify", agent=agent).rstrip())
    return answer, kills


def _say(session: Session, text: str) -> None:
    session.tell(f"\n== {text}")


def _look_around(session: Session, company: Company) -> None:
    _say(session, f"look around in {company.root}")
    for path, what in (
        ("analyst/tasks/q3/task.md", "the plan, progress, every result"),
        ("analyst/mailbox/archive/", "what came in, byte for byte"),
        ("analyst/mailbox/outbox/", "what was sent: one file per message"),
        ("writer/tasks/q3.report/task.md", "the second level"),
        ("logs/", "the log of each daemon"),
    ):
        session.tell(f"{path:<32}{what}")
    _tell_how(session, company)
    session.tell("\nnow kill its daemons at random moments, and see whether it still finishes: mailboxd demo --kill")


def _tell_how(session: Session, company: Company) -> None:
    """How commands in the demo's directory see what its daemons and its page see."""
    from mailboxd.operate import demo

    session.tell(f"$ cd {shlex.quote(str(company.root))}")
    session.tell("$ " + "export " + " ".join(f'{name}="$PWD/{company.state.name}"' for name in demo.OWN))
    session.tell("$ mailboxd -w analyst status")


def _open_page(session: Session, company: Company) -> None:
    """Serve the page on the company's workspaces until Ctrl-C, with one request that waits for a decision."""
    from mailboxd.cli.commands.web import open_page
    from mailboxd.host import pip_extras
    from mailboxd.operate import demo
    from mailboxd.surfaces.web.workspaces import WebWorkspace

    try:
        pip_extras.require("web")
    except ConfigError as error:
        session.tell(f"\n{error}")
        _look_around(session, company)
        return
    os.environ |= company.environment  # the page of the demo, with its own sessions
    company.drop("publish.md")
    company.wait(lambda: "approval" in company.call("--json", "inbox", agent="analyst"))
    _say(session, "to work with it in another terminal")
    _tell_how(session, company)
    _say(session, "the page, with the answer and a request that waits for you; Ctrl-C stops it and the daemons")
    analyst = WebWorkspace(company.workspace("analyst"))
    roots = [company.workspace(agent).root for agent in demo.AGENTS]
    open_page(session, roots, at=f"/w/{analyst.key}/t/{demo.TASK}")
