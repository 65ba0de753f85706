"""Checks of a spec: run by the daemon after an attempt, before its gates, without a model.

The daemon of the executing agent runs them: for work of a peer they travel with the dispatch and run there, under that
workspace's configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mailboxd.core.decision_builder import DecisionBuilder, record_late
from mailboxd.core.effects import RunCheck
from mailboxd.core.events import Kind
from mailboxd.core.inputs import CheckEnded
from mailboxd.core.model import Check, Finding, Spec, Task
from mailboxd.core.sanitize import first_line
from mailboxd.core.task_view import CheckRun, Context, TaskView
from mailboxd.core.vocabulary import CheckVerdict, Phase, same_agent

PRODUCER = "mailboxd"
STATE = ".mailboxd"
_LONGEST_PATH = 1024


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The limits of the configuration for checks."""

    commands: tuple[tuple[str, ...], ...] = ()
    """Allowed beginnings of commands, word for word; without any, no command runs."""
    timeout: int = 300
    """Maximum seconds of a check."""
    has_schemas: bool = True
    """The library for JSON schemas is installed."""


def may_not_run(rules: CheckRules, check: Check) -> str | None:
    """Why a check may not run here; None = it may."""
    if check.command:
        return command_problem(check.command, rules.commands)
    if check.file or rules.has_schemas:
        return None
    return "it needs a library for JSON schemas, the extra `checks` of mailboxd, which is not installed"


def kind_of(check: Check) -> str:
    """`command`, `file` or `json_schema`."""
    return "command" if check.command else "file" if check.file else "json_schema"


def path_problem(path: str) -> str | None:
    """Why a check may not use this path; None if it may. Links are refused when it is opened."""
    parts = path.split("/")
    if not path or len(path) > _LONGEST_PATH or not path.isprintable():
        return f"a path is 1 to {_LONGEST_PATH} printable characters"
    if path.startswith("/"):
        return "the path is absolute; it is relative to the workspace"
    if any(part in ("", ".", "..") for part in parts):
        return "the path has an empty part, `.` or `..`"
    return f"{STATE}/ is mailboxd's own" if parts[0] == STATE else None


def command_problem(command: Sequence[str], allowed: Sequence[Sequence[str]]) -> str | None:
    """Why a command may not run; None if it begins with one of `allowed`, word for word."""
    if any(tuple(command[: len(words)]) == tuple(words) for words in allowed if words):
        return None
    return f"`{first_line(' '.join(command), 80)}` is not among checks.commands of this workspace's configuration"


def refused(task: Task, spec: Spec, ctx: Context) -> tuple[str, ...]:
    """Why checks and actions of `spec`, as the spec of `task`, may not run here.

    Checks that run at a peer are not judged. Actions always run here, also for work of a peer.
    """
    own = not task.broadcast and same_agent(task.executor, ctx.agent)
    problems = [(f"the check {check.id}", ctx.may_check(check)) for check in spec.checks if own]
    problems += [(f"the action {action.id}", ctx.may_perform(action)) for action in spec.planned_actions]
    return tuple(f"{name} may not run here: {why}" for name, why in problems if why is not None)


def due_here(view: TaskView, ctx: Context) -> tuple[Check, ...]:
    """The checks that the present attempt has to pass here. A broadcast's run for its copies."""
    task, attempt = view.task, view.attempt
    own = attempt is not None and same_agent(attempt.executor, ctx.agent)
    return task.spec.checks if own and task.phase is Phase.SPEC_GATE and not task.broadcast else ()


def order_missing(builder: DecisionBuilder) -> None:
    """Order every due check that is neither ordered nor ended."""
    ended = {run.id for run in builder.view.check_runs}
    for check in builder.view.checks:
        if check.id not in ended and check.id not in builder.view.ordered_checks:
            attempt_id = builder.attempt.id if builder.attempt else ""
            builder.order(RunCheck(builder.ctx.new_id("trn"), attempt_id, check))


def check_ended(builder: DecisionBuilder, ended: CheckEnded) -> None:
    """Record the result of a check with its `test_report`; one of an earlier attempt is late."""
    attempt = builder.attempt
    declared = {check.id for check in builder.task.spec.checks}
    ran = {run.id for run in builder.view.check_runs}
    here = builder.task.phase is Phase.SPEC_GATE and attempt is not None and attempt.id == ended.attempt_id
    if attempt is None or not here or ended.check_id not in declared - ran:
        record_late(
            builder, PRODUCER, ended.attempt_id, f"check {ended.check_id} {ended.verdict}: {first_line(ended.summary)}"
        )
        return
    summary = f"{ended.check_id} {ended.verdict}: {ended.summary}"
    artifact = builder.artifact("test_report", ended.report, summary, PRODUCER)
    run = {"id": ended.check_id, "attempt": attempt.id, "verdict": ended.verdict, "summary": ended.summary}
    builder.record(Kind.CHECK_ENDED, check={**run, "artifact": artifact})


def findings(runs: Sequence[CheckRun]) -> tuple[Finding, ...]:
    """The failed checks as findings."""
    failed = (run for run in runs if run.verdict is CheckVerdict.FAILED)
    return tuple(Finding("major", f"the check {run.id} failed: {run.summary}") for run in failed)
