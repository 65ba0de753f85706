"""The overview of one workspace and of all: six sections, the largest first, and what a user has read."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.explain.overview_details import OverviewDetails
from mailboxd.core.model import Policy, Usage
from mailboxd.core.outcomes import Failed, Permanence, Unknown
from mailboxd.core.spending import Account, Spend, Standing
from mailboxd.daemon.health_writer import Health
from mailboxd.formats.mailbox import lock
from mailboxd.host.sdnotify import Notifier
from mailboxd.ledger import overview, overview_queries, seen_items
from mailboxd.ledger.database import connect, transaction
from mailboxd.ledger.overview import Overview
from mailboxd.ledger.reports import opened
from tests.cli.stage import NOW, Stage, child, make
from tests.e2e.test_costs import SCANNED
from tests.ledger.crowd import multiply
from tests.ledger.shapes import require

QUESTION = "---\ntype: question\n---\n\nWhich figures?\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


def look(stage: Stage, environ: dict[str, str], agent: str = "alpha", **options: Any) -> Overview:
    seen = seen_items.seen(stage.ws.root, environ, stage.clock.now())
    with opened(stage.ws.database) as report:
        found = overview.read(stage.ws, report, stage.clock, agent, stage.program, seen, **options)
    require(found.as_json(), OverviewDetails)
    return found


def done(stage: Stage, name: str, said: str = "It is done.\n\nAll of it.", usd: float = 0.0) -> None:
    stage.create(name)
    stage.start()
    stage.end_turn(name, said, Usage(10, 5, usd))


def fails(stage: Stage, name: str) -> None:
    stage.create(name, policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn(name, Failed("not allowed", Permanence.PERMANENT))


def asks(stage: Stage, name: str, usd: float = 0.0) -> None:
    stage.create(name)
    stage.start()
    stage.end_turn(name, QUESTION, Usage(10, 5, usd))


def loses(stage: Stage, name: str) -> None:
    stage.create(name, policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn(name, Unknown("the gateway went away", "run_9", looked_up=True))


def results(found: Overview) -> list[str]:
    return [line.task for line in found.finished.lines if line.unread]


def test_an_empty_workspace_is_quiet_and_has_all_sections(stage: Stage, environ: dict[str, str]) -> None:
    found = look(stage, environ)
    assert found.is_quiet
    shown = json.loads(json.dumps(found.as_json()))
    assert list(shown) == ["at", "decide", "failed", "finished", "running", "later", "spent", "places"]
    assert [shown[name]["total"] for name in ("decide", "failed", "finished", "running", "later")] == [0] * 5
    assert len(shown["spent"]["days"]) == overview.DAYS
    assert shown["spent"]["days"][-1]["day"] == "2026-11-21"


def test_a_result_is_unread_until_it_is_opened_and_then_only_shown_as_the_latest(
    stage: Stage, environ: dict[str, str]
) -> None:
    look(stage, environ)
    stage.clock.advance(60)
    done(stage, "q3", "Revenue grew by 8 %.\n\nIn detail: a lot.")
    found = look(stage, environ)
    (line,) = found.finished.lines
    assert (line.task, line.title, line.answer, line.unread) == ("q3", "Do q3", "Revenue grew by 8 %.", True)
    assert not found.is_quiet
    seen_items.read(stage.ws.root, environ, stage.clock.now(), {line.id: line.at})
    found = look(stage, environ)
    assert found.finished.total == 0
    assert [(line.task, line.unread) for line in found.finished.lines] == [("q3", False)]
    assert found.is_quiet


def test_work_that_runs_again_is_unread_again(stage: Stage, environ: dict[str, str]) -> None:
    done(stage, "q3")
    (line,) = look(stage, environ).finished.lines
    seen_items.read(stage.ws.root, environ, stage.clock.now(), {line.id: line.at})
    stage.clock.advance(60)
    assert stage.run("retry", "q3").exit_code == 0
    stage.start()
    stage.end_turn("q3", "Another answer.")
    assert results(look(stage, environ)) == ["q3"]


def test_all_that_came_up_to_a_time_is_read_and_nothing_later(stage: Stage, environ: dict[str, str]) -> None:
    done(stage, "one")
    shown_at = stage.clock.now()
    stage.clock.advance(5)
    done(stage, "two")
    stage.clock.advance(5)
    seen_items.read(stage.ws.root, environ, stage.clock.now(), {}, until=shown_at)
    assert results(look(stage, environ)) == ["two"]
    seen_items.read(stage.ws.root, environ, stage.clock.now(), {}, until="9999-01-01T00:00:00.000Z")
    stage.clock.advance(5)
    done(stage, "three")
    assert results(look(stage, environ)) == ["three"], "what is yet to come cannot have been read"


def test_show_reads_a_result_and_its_json_does_not(
    stage: Stage, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", environ["XDG_STATE_HOME"])
    done(stage, "q3")
    stage.run("show", "q3", "--json")
    assert results(look(stage, environ)) == ["q3"]
    assert stage.run("show", "q3").exit_code == 0
    assert results(look(stage, environ)) == []


def test_a_first_look_begins_with_the_last_day(stage: Stage, environ: dict[str, str]) -> None:
    done(stage, "old")
    stage.clock.advance(2 * 86_400)
    done(stage, "new")
    assert results(look(stage, environ)) == ["new"]
    stage.clock.advance(30 * 86_400)
    assert results(look(stage, environ)) == ["new"], "from the first look on, it stays until it is read"


def test_the_state_of_an_earlier_version_is_kept_and_begins_with_the_last_day(
    stage: Stage, environ: dict[str, str]
) -> None:
    fails(stage, "broken")
    (failure,) = look(stage, environ).failed.lines
    (file,) = (Path(environ["XDG_STATE_HOME"]) / "mailboxd" / "seen").iterdir()
    file.write_text(json.dumps({"since": "2026-11-01T00:00:00.000Z", "tasks": {failure.item.id: failure.item.since}}))
    done(stage, "old")
    stage.clock.advance(2 * 86_400)
    done(stage, "new")
    found = look(stage, environ)
    assert (results(found), found.failed.total) == (["new"], 0)
    assert json.loads(file.read_text())["read_since"] == "2026-11-22T12:00:00.000Z"


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"since": "2026-11-01T00:00:00.000Z", "read": 7}', '{"since": "x"}']
)
def test_a_damaged_state_hides_nothing_and_is_written_anew(stage: Stage, environ: dict[str, str], damage: str) -> None:
    done(stage, "q3")
    look(stage, environ)
    (file,) = (Path(environ["XDG_STATE_HOME"]) / "mailboxd" / "seen").iterdir()
    file.write_text(damage)
    (line,) = look(stage, environ).finished.lines
    assert line.unread
    seen_items.read(stage.ws.root, environ, stage.clock.now(), {line.id: line.at})
    assert results(look(stage, environ)) == []


@pytest.mark.slow
def test_noting_very_many_makes_nothing_seen_that_nobody_saw(
    stage: Stage, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_items, "_MOST_SEEN", 2)
    root = stage.ws.root
    look(stage, environ)
    for number in range(5):
        stage.clock.advance(60)
        done(stage, f"d{number}")
        fails(stage, f"f{number}")
    found = look(stage, environ)
    failed = {line.item.task: (line.item.id, line.item.since or "") for line in found.failed.lines}
    finished = {line.task: (line.id, line.at) for line in found.finished.lines}
    for left, noted in ((1, (0, 2, 3, 4)), (0, (1,))):
        assert seen_items.see(root, environ, stage.clock.now(), dict(failed[f"f{number}"] for number in noted))
        assert seen_items.read(root, environ, stage.clock.now(), dict(finished[f"d{number}"] for number in noted))
        found = look(stage, environ)
        assert [line.item.task for line in found.failed.lines] == ["f1"] * left
        assert [line.task for line in found.finished.lines if line.unread] == ["d1"] * left
    kept = seen_items.seen(root, environ, stage.clock.now())
    assert [len(kept.tasks), len(kept.read)] == [2, 2], "what ended before is not noted one by one"


def test_more_than_the_file_holds_is_refused_and_loses_nothing(stage: Stage, environ: dict[str, str]) -> None:
    fails(stage, "old")
    look(stage, environ)
    root, now = stage.ws.root, stage.clock.now()
    assert seen_items.see(root, environ, now, {"tsk_1": "9998-01-01T00:00:00.000Z"})
    many = {f"tsk_{number:026}": "9999-01-01T00:00:00.000Z" for number in range(20_000)}
    assert not seen_items.see(root, environ, now, many)
    assert [*seen_items.seen(root, environ, now).tasks] == ["tsk_1"]
    assert look(stage, environ).failed.total == 1


def test_two_processes_that_note_at_once_lose_nothing(stage: Stage, environ: dict[str, str]) -> None:
    names = [f"tsk_{number}" for number in range(20)]
    root, now = stage.ws.root, stage.clock.now()
    later = "2026-11-21T11:00:00.000Z"
    threads = [
        threading.Thread(target=seen_items.read, args=(root, environ, now, {name: later}))
        if number % 2
        else threading.Thread(target=seen_items.see, args=(root, environ, now, {name: later}))
        for number, name in enumerate(names)
    ] + [threading.Thread(target=seen_items.seen, args=(root, environ, now))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = seen_items.seen(root, environ, now)
    assert {*found.read, *found.tasks} == {*names}


def test_parts_of_other_work_are_no_results(stage: Stage, environ: dict[str, str]) -> None:
    stage.create("big", child("a", "alpha"), child("b", "alpha"), child("c", "alpha", ("a", "b")))
    stage.start()
    stage.end_turn("big.a", "A")
    stage.end_turn("big.b", "B")
    found = look(stage, environ)
    assert results(found) == []
    (line,) = found.running.lines
    assert (line.task, line.done, line.planned, line.by, line.since) == ("big", 2, 3, "alpha", NOW)
    assert line.share == pytest.approx(2 / 3)


def test_the_failed_are_apart_until_they_are_seen(stage: Stage, environ: dict[str, str]) -> None:
    fails(stage, "broken")
    asks(stage, "unclear")
    found = look(stage, environ)
    assert [line.item.task for line in found.failed.lines] == ["broken"]
    assert "broken" not in {line.item.task for line in found.decide.lines}
    assert (found.failed.total, found.decide.total) == (1, len(found.decide.lines))
    (failure,) = found.failed.lines
    seen_items.see(stage.ws.root, environ, stage.clock.now(), {failure.item.id: failure.item.since or ""})
    assert look(stage, environ).failed.total == 0


def test_what_most_work_waits_for_is_decided_first_and_then_what_cost_most(
    stage: Stage, environ: dict[str, str]
) -> None:
    asks(stage, "old")
    stage.clock.advance(60)
    asks(stage, "dear", usd=7.0)
    stage.create("big", child("a", "alpha"), child("b", "alpha", ("a",)), child("c", "alpha", ("b",)))
    stage.start()
    stage.end_turn("big.a", QUESTION)
    found = look(stage, environ)
    told = [(line.item.task, line.blocks) for line in found.decide.lines if line.item.task]
    assert told == [("big.a", 3), ("dear", 0), ("old", 0)], "b, c and big wait for a"
    for number in range(5):
        loses(stage, f"lost{number}")
    kinds = [(line.item.kind, line.item.tasks) for line in look(stage, environ).decide.lines]
    assert kinds[:2] == [("daemon", 1), ("circuit", 5)], "nothing goes on without a daemon; five lost one outcome"
    assert next(line.usd for line in found.decide.lines if line.item.task == "dear") == pytest.approx(7.0)


def test_what_is_left_out_is_counted(stage: Stage, environ: dict[str, str]) -> None:
    for number in range(3):
        asks(stage, f"q{number}")
        done(stage, f"r{number}")
    found = look(stage, environ, most=2)
    assert (len(found.finished.lines), found.finished.total, found.finished.more) == (2, 3, 1)
    assert found.decide.total - found.decide.more == len(found.decide.lines)
    assert found.decide.more == 1


def test_it_says_what_days_have_cost(stage: Stage, environ: dict[str, str]) -> None:
    done(stage, "first", usd=2.0)
    stage.clock.advance(3 * 86_400)
    done(stage, "second", usd=0.5)
    spent = look(stage, environ).spent.as_json()
    assert spent["today"]["usd"] == 0.5
    assert [(day["day"], day["usd"]) for day in spent["days"] if day["usd"]] == [
        ("2026-11-21", 2.0),
        ("2026-11-24", 0.5),
    ]


def test_two_workspaces_together(tmp_path: Path, stage: Stage, environ: dict[str, str]) -> None:
    other = make(tmp_path / "beta")
    done(stage, "early", usd=1.0)
    stage.clock.advance(60)
    other.clock.advance(120)
    done(other, "late", usd=3.0)
    asks(other, "unclear")
    now = other.clock.now()
    found = overview.together(now, [look(stage, environ), look(other, environ, "beta")])
    assert [line.task for line in found.finished.lines] == ["late", "early"]
    assert [one.place.agent for one in found.spent.agents] == ["beta", "alpha"]
    assert dict(found.spent.days)["2026-11-21"].usd == 4_000_000
    assert {line.place.agent for line in found.decide.lines if line.item.task} == {"beta"}
    assert [place.place.agent for place in found.places] == ["alpha", "beta"]


def test_a_part_of_the_work_of_an_agent_beside_it_runs_only_once(stage: Stage, environ: dict[str, str]) -> None:
    text = (
        "---\ntype: task\ntask_id: q3\nsubtask_id: eu\nfrom: boss\n---\n\n# Task: Europe\n\n## Instructions\n\nDo it.\n"
    )
    (stage.ws.inbox / "q3.md").write_text(text)
    stage.receive()
    stage.start()
    assert [line.task for line in look(stage, environ).running.lines] == ["q3.eu"]
    assert look(stage, environ, companions=["Boss"]).running.total == 0


def test_of_another_host_is_told_what_its_card_says() -> None:
    item = {
        "kind": "question", "text": "Which?", "command": "ssh mars mailboxd answer", "since": None, "task": "t",
        "id": "", "until": NOW, "details": "", "tasks": 3, "agent": "mars.beta", "may_decide": False, "host": "mars",
    }  # fmt: skip
    row: Any = {
        "host": "mars", "state": "ok", "why": "", "troubles": [], "attention": [item], "attention_count": 3,
        "agents": {"mars.beta": {"health": "green", "open": 4}, "mars.new": {"health": "", "open": 0}},
    }  # fmt: skip
    found = overview.together(NOW, [], [row])
    require(found.as_json(), OverviewDetails)
    (line,) = found.decide.lines
    assert (line.place.host, line.place.agent, line.may_decide, found.decide.total) == ("mars", "mars.beta", False, 3)
    assert (line.item.until, line.item.tasks) == (NOW, 3)
    assert [(place.place.agent, str(place.grade), place.open) for place in found.places] == [
        ("mars.beta", "green", 4),
        ("mars.new", "off", 0),
    ]
    silent = overview.together(NOW, [], [row | {"state": "silent", "why": "nothing has been heard from it"}])
    assert silent.places[0].troubles == ("nothing has been heard from it",)
    assert {str(place.grade) for place in silent.places} == {"red"}
    assert not silent.is_quiet


def test_no_query_of_it_reads_a_table_that_grows_with_finished_work(stage: Stage, environ: dict[str, str]) -> None:
    done(stage, "one")
    asks(stage, "two")
    stage.create("big", child("a", "alpha"), child("b", "alpha", ("a",)))
    stage.start()
    seen = seen_items.seen(stage.ws.root, environ, stage.clock.now())
    with opened(stage.ws.database) as report:
        statements: list[str] = []
        report.db.set_trace_callback(statements.append)
        overview_queries.unread(report, seen, 8)
        overview_queries.latest_results(report, 3)
        overview_queries.running(report, ["tsk_1"], ("beta",), 8)
        overview_queries.sizes(report, ["two", "big.a"])
        overview_queries.finished_at(report, "tsk_1")
        report.db.set_trace_callback(None)
        assert len(statements) == 6
        for sql in statements:
            steps = [row[3] for row in report.db.execute(f"EXPLAIN QUERY PLAN {sql}")]
            scans = [step for step in steps if SCANNED.search(step)]
            assert [step for step in scans if "tasks_finished" not in step] == []


STEPS_PER_OPEN_TASK = 80
"""Of SQLite, for one that is ready: 48 to say whether it waits for a person, 12 to count it, and twice 7 to find that
its directory is that of a task. Asking a second time why tasks wait takes 30 more."""


@pytest.mark.slow
def test_why_the_open_tasks_wait_is_asked_once(stage: Stage, environ: dict[str, str]) -> None:
    stage.create("job")
    seen = seen_items.seen(stage.ws.root, environ, NOW)

    def steps() -> int:
        """Those that SQLite takes for an overview."""
        taken = [0]

        def step() -> int:
            taken[0] += 1
            return 0

        with opened(stage.ws.database) as report:
            report.db.set_progress_handler(step, 1)
            overview.read(stage.ws, report, stage.clock, "alpha", stage.program, seen)
            report.db.set_progress_handler(None, 0)
        return taken[0]

    few = steps()
    with closing(connect(stage.ws.database)) as db, transaction(db):
        multiply(db, "job", 2_000, {"execution_ready": 2_000})
    for number in range(1, 2_001):
        (stage.ws.tasks / f"job-{number}").mkdir()
    many = steps()
    assert (many - few) / 2_000 <= STEPS_PER_OPEN_TASK


def test_a_cap_that_is_reached_comes_before_what_single_tasks_wait_for(stage: Stage, environ: dict[str, str]) -> None:
    with stage.engine() as engine:
        spent = Account("alpha", Spend(usd=20_000_000), Spend(usd=20_000_000))
        standing = Standing("2026-11-21", "2026-11-22T00:00:00.000Z", spent, Account("", Spend(), Spend()))
        engine.store.meta.set_spending(standing, "")
    stage.create("big", child("a", "alpha"), child("b", "alpha", ("a",)), child("c", "alpha", ("b",)))
    stage.start()
    stage.end_turn("big.a", QUESTION)
    found = [(line.item.kind, line.blocks) for line in look(stage, environ).decide.lines if line.item.kind != "daemon"]
    assert found == [("cap", 4), ("question", 3)]


def test_nothing_waits_for_a_configuration_that_a_running_daemon_does_without(
    stage: Stage, environ: dict[str, str]
) -> None:
    def told() -> list[tuple[str, int]]:
        stage.ws.config.write_text("agent: alpha\nopenclw: {}\n")  # newer than what a daemon has read
        return [(line.item.kind, line.blocks) for line in look(stage, environ).decide.lines]

    stage.create("job")
    assert told() == [("config", 1)], "without a daemon, nothing can begin"
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha"):
        assert told() == [("config", 0)]
