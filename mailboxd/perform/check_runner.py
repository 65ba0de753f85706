"""Runs the checks of a spec in the workspace, without an agent, while the daemon's loop continues.

A command runs without a shell, in a directory inside the workspace, with a minimal environment, in a process group
that is killed when the command has ended or its timeout is over. Files were written by agents, so links are not
followed. A check must be repeatable: one that a crash interrupted is run again.

A check is `failed` if the work is wrong; the work is then done again. It is `impossible` if it cannot run (no such
program, no longer allowed, an invalid schema): a new attempt would not help, so an operator must act.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from mailboxd.core.checks import kind_of, may_not_run
from mailboxd.core.effects import RunCheck
from mailboxd.core.inputs import CheckEnded
from mailboxd.core.model import Check, Task
from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import CheckVerdict, Phase
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Finished, Reports
from mailboxd.errors import require_seen
from mailboxd.formats.mailbox.files import directory
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.system import system
from mailboxd.ledger.store import Order
from mailboxd.perform.actions.gate import named_files, read_regular
from mailboxd.perform.actions.result import plain_environment, summary_of
from mailboxd.perform.agents import schema_check
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.openclaw import mark_inside
from mailboxd.perform.agents.process import NotStarted, State
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

_KEPT = 16_384
"""Bytes of the end of a check's output that are kept as its report."""
_LARGEST = 4 << 20
"""Bytes of a JSON file, or of its schema."""

CheckResult = tuple[CheckVerdict, str, str]
"""Verdict, one line, report."""
Files = dict[str, str]
"""Files of the workspace that a command names, each with its sha256."""
_PASSED, _FAILED, _IMPOSSIBLE = CheckVerdict.PASSED, CheckVerdict.FAILED, CheckVerdict.IMPOSSIBLE


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A report: what a check said."""

    order: Order
    effect: RunCheck
    said: CheckResult


@dataclass(slots=True)
class CheckRunner:
    """One workspace's checks. `environ` is the daemon's own environment."""

    engine: Engine
    calls: ProcessTable
    ws: Workspace
    environ: Mapping[str, str]
    reports: Reports
    _files: dict[str, Files] = field(default_factory=dict)
    """The files that the running checks name, as they were before."""

    def __post_init__(self) -> None:
        self.reports.route(CheckReport, self._record)

    def begin(self, order: Order, effect: RunCheck) -> None:
        """Run a check when there is a slot for it, or wait for one that an earlier daemon started.

        Raises WorldError where the machine refuses to look or to run it, which is not a verdict.
        """
        task = self.engine.store.tasks.get(order.task)
        if task is None or not self._is_wanted(task, effect):
            self.reports.append(Finished(order.id))
            return
        now = self.engine.clock.monotonic()
        name, timeout = f"check:{order.id}", self._timeout(effect.check)
        call = Call(order.id, CallKind.CHECK, "", name, timeout, order, order.task, kill_leftovers=True)
        files = self._named(effect.check)
        if self.calls.state(order.id) is State.RUNNING and self.calls.adopt(call, now):
            return
        if not effect.check.file and not self.calls.capacity.may_begin():
            return
        self.calls.discard(order.id)  # the end of an earlier run was not observed: run it again
        try:
            said = self._start(call, task, effect.check, now)
        except NotStarted as missing:
            missing.require_lasting()
            said = (_IMPOSSIBLE, str(missing), str(missing))
        if said is None:
            self._files[order.id] = files
        else:
            self.reports.append(CheckReport(order, effect, said))

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the result of a check."""
        effect, files = order.effect, self._files.pop(call.id, {})
        if not isinstance(effect, RunCheck) or (exit_.rc is None and not call.stopped):
            return  # adopted: its exit status is lost, so it is run again
        said = _judged(exit_, call.stopped) if effect.check.command else _fits(exit_, call.stopped)
        self.reports.append(CheckReport(order, effect, _bound(said, files, self._named(effect.check))))

    def _named(self, check: Check) -> Files:
        """The files that the command names, for the record: their content decides the verdict."""
        return dict(named_files(check.command, check.cwd, str(self.ws.root)))

    def _is_wanted(self, task: Task, effect: RunCheck) -> bool:
        attempt = self.engine.store.tasks.attempt(task.id, task.attempt)
        return task.phase is Phase.SPEC_GATE and attempt is not None and attempt.id == effect.attempt_id

    def _timeout(self, check: Check) -> float:
        most = self.engine.settings.checks.timeout
        return min(check.timeout or most, most)

    def _start(self, call: Call, task: Task, check: Check, now: float) -> CheckResult | None:
        """Begin a check; returns its result if it is known at once. Raises NotStarted, WorldError."""
        why = may_not_run(self.engine.settings.checks, check)  # the configuration may have changed since the spec came
        if why is not None:
            return _IMPOSSIBLE, why, why
        if check.file:
            return self._file(check)
        if kind_of(check) == "json_schema":
            return self._schema(call, task, check, now)
        try:
            with _within(self.ws, check.cwd) as place:
                here = system.path_of(place)  # whatever becomes of the path meanwhile
                self.calls.start(call, check.command, now, cwd=here, environment=self._environment())
        except OSError as error:
            require_seen(check.cwd, error)
            why = f"{check.cwd} is not a directory of the workspace: {error.strerror}"
            return _FAILED, why, why
        return None

    def _environment(self) -> dict[str, str]:
        return mark_inside(plain_environment(self.environ))

    def _file(self, check: Check) -> CheckResult:
        """Whether the file exists and is large enough. Raises WorldError if that cannot be determined."""
        parent, _, name = check.file.rpartition("/")
        try:
            with _within(self.ws, parent) as place:
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
        except OSError as error:
            require_seen(check.file, error)
            why = f"{check.file}: {error.strerror}"
            return _FAILED, why, why
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            why = f"{check.file} is not a regular file"
        elif size < check.min_bytes:
            why = f"{check.file} has {size} bytes, at least {check.min_bytes} expected"
        else:
            return _PASSED, f"{check.file} has {size} bytes", f"{check.file}: {size} bytes"
        return _FAILED, why, why

    def _schema(self, call: Call, task: Task, check: Check, now: float) -> CheckResult | None:
        """Read the texts without following links; a separate process validates them."""
        schema = check.schema_text or self._text(check.schema_file)
        instance = self._text(check.of) if check.of else task.result
        if schema is None:
            why = f"the schema {check.schema_file} cannot be read"
            return _IMPOSSIBLE, why, why
        if instance is None:
            why = f"{check.of} cannot be read as a text of at most {_LARGEST} bytes"
            return _FAILED, why, why
        request = json.dumps({"schema": schema, "instance": instance}).encode()
        argv = (sys.executable, "-I", "-m", schema_check.__name__, self.calls.file(call.id, PROMPT))
        self.calls.start(call, argv, now, files={PROMPT: request}, environment=self._environment())
        return None

    def _text(self, path: str) -> str | None:
        """A text of the workspace; None if there is none. Raises WorldError if that cannot be determined."""
        parent, _, name = path.rpartition("/")
        try:
            with _within(self.ws, parent) as place:
                raw = read_regular(place, name, _LARGEST)
            return None if raw is None else raw.decode()
        except OSError as error:
            require_seen(path, error)
            return None
        except UnicodeDecodeError:
            return None

    def _record(self, run: CheckReport) -> None:
        self.engine.handle(run.order.task, CheckEnded(run.effect.check.id, run.effect.attempt_id, *run.said))
        self.engine.store.outbox.finish(run.order.id)
        self.calls.discard_when_recorded(run.order.id)


def _within(ws: Workspace, path: str) -> AbstractContextManager[int]:
    """A descriptor of a directory below the workspace; no part of the way is a link. Raises OSError."""
    return directory(ws.root, *filter(None, path.split("/")))


def _judged(exit_: Exit, stopped: str) -> CheckResult:
    text = _output(exit_)
    if not stopped and exit_.rc == 0:
        return _PASSED, "exit status 0", text
    how = stopped or (f"killed by signal {-exit_.rc}" if exit_.rc and exit_.rc < 0 else f"exit status {exit_.rc}")
    return _FAILED, summary_of(how, text), text


def _bound(said: CheckResult, before: Files, now: Files) -> CheckResult:
    """With the files that the command named, and which of them are other ones now than when it was begun."""
    verdict, summary, report = said
    changed = [name for name, sha in before.items() if now.get(name) != sha]
    lines = [f"file of the workspace: {name}, sha256 {sha}" for name, sha in before.items()]
    lines += [f"changed while the check ran: {name}, sha256 {now.get(name, 'none, it is gone')}" for name in changed]
    meanwhile = f" (changed while it ran: {first_line(', '.join(changed), 200)})" if changed else ""
    return verdict, summary + meanwhile, "\n".join([*lines, report])


def _fits(exit_: Exit, stopped: str) -> CheckResult:
    text = _output(exit_)
    if stopped:
        return _IMPOSSIBLE, f"the schema takes too long: {stopped}", text
    if exit_.rc == schema_check.VALID:
        return _PASSED, "it fits the schema", "it fits the schema"
    said = first_line(text) or f"exit status {exit_.rc}"
    return (_FAILED if exit_.rc == schema_check.INVALID else _IMPOSSIBLE), said, text


def _output(exit_: Exit) -> str:
    """The end of what a check printed."""
    said = [raw.rstrip(b"\0") for raw in (exit_.stdout, exit_.stderr)]  # one that was too long ends in a hole
    parts = [raw[-_KEPT:].decode("utf-8", "replace") for raw in said if raw.strip()]
    return "\n".join(parts).replace("\0", "")
