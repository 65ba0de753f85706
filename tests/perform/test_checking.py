"""Checks, and what became of an effect, where the machine cannot look: that is no verdict about anything."""

from __future__ import annotations

import os
import resource
import selectors
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mailboxd.core.approvals import Action, ActionKind, ApprovalDecision, Performed, Resolve
from mailboxd.core.effects import RunCheck, Verify
from mailboxd.core.events import Role
from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Check, Policy, Spec
from mailboxd.core.vocabulary import CheckVerdict
from mailboxd.engine.reports import Reports
from mailboxd.errors import WorldError
from mailboxd.formats import config
from mailboxd.perform import action_runner
from mailboxd.perform.action_performer import ActionPerformer
from mailboxd.perform.actions.gate import GateDir, write_verify
from mailboxd.perform.check_runner import CheckReport, CheckRunner
from mailboxd.perform.process_table import ProcessTable
from tests.cli.asking import ask, perform
from tests.cli.stage import make


@contextmanager
def descriptors(free: int) -> Iterator[None]:
    """So many can be had, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(free)]
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def verdicts(reports: Reports) -> set[CheckVerdict]:
    """What would be recorded."""
    found: set[CheckVerdict] = set()
    reports.route(CheckReport, lambda run: found.add(run.said[0]))
    reports.record_all()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("free", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    "check",
    [
        Check("c", file="out/deep/there.json"),
        Check("c", command=("/bin/true",), cwd="out/deep"),
        Check("c", schema_text="{}", of="out/deep/there.json"),
    ],
    ids=["file", "directory", "text"],
)
def test_for_want_of_descriptors_no_check_says_that_the_work_is_bad(tmp_path: Path, check: Check, free: int) -> None:
    stage = make(tmp_path / "alpha")
    with stage.ws.config.open("a") as config:
        config.write('checks: {commands: [["/bin/true"]]}\n')
    (stage.ws.root / "out" / "deep").mkdir(parents=True)
    (stage.ws.root / "out" / "deep" / "there.json").write_text("{}")
    spec = Spec("Do it", "Do it", expected_output="A file", checks=(check,))
    with stage.engine() as engine:
        engine.handle(None, NewTask("job", None, "job", "operator", "Do it", spec, Policy()))
    stage.start()
    stage.end_turn("job", "The result itself.")
    with stage.engine() as engine, selectors.DefaultSelector() as selector:
        (order,) = (
            each for each in engine.store.outbox.pending(stage.clock.now(), 9) if isinstance(each.effect, RunCheck)
        )
        assert isinstance(order.effect, RunCheck)
        calls = ProcessTable(stage.ws.turns, selector, {}, 1 << 20, 1.0)
        reports = Reports(engine)
        checking = CheckRunner(engine, calls, stage.ws, os.environ, reports)
        with descriptors(free), suppress(WorldError):
            checking.begin(order, order.effect)
        assert verdicts(reports) <= {CheckVerdict.PASSED}
        for call in calls.running.values():
            os.waitpid(call.child.pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize("free", range(1, 10))
def test_for_want_of_descriptors_what_became_of_an_effect_is_still_to_be_asked(tmp_path: Path, free: int) -> None:
    stage = make(tmp_path / "alpha")
    (stage.ws.root / "site").mkdir()
    act = Action("act", ActionKind.COMMAND, action="Act", argv=("/bin/true",), cwd="site", verify=("/bin/true",))
    (name,) = ask(stage, "job", act)
    place = GateDir(stage.ws.root, name)
    place.create()
    write_verify(act, place)
    with stage.engine() as engine:
        row = engine.store.approvals.get(name)
        assert row is not None
        engine.handle(row.task, Resolve(name, ApprovalDecision.APPROVED, ""), Role.OPERATOR, "kim")
    perform(stage, name, Performed.UNKNOWN)
    settings = config.load(stage.ws.config)
    with stage.engine() as engine, selectors.DefaultSelector() as selector:
        (order,) = (
            each for each in engine.store.outbox.pending(stage.clock.now(), 9) if isinstance(each.effect, Verify)
        )
        assert isinstance(order.effect, Verify)
        calls = ProcessTable(stage.ws.turns, selector, {}, 1 << 20, 1.0)
        reports = Reports(engine)
        performer = ActionPerformer(engine, calls, action_runner.setting(stage.ws, settings, os.environ), (), reports)
        with descriptors(free), suppress(WorldError):
            performer.verify(order, order.effect)
        assert not reports
        for call in calls.running.values():
            os.waitpid(call.child.pid, 0)
