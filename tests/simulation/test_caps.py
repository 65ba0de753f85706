"""What a day may cost, over the daemons of one host: whole daemons on a simulated clock, killed and started again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.core.spending import Spend, Standing
from mailboxd.engine import spending
from mailboxd.formats.mailbox.watcher import Watcher
from mailboxd.host.clock import ManualClock
from mailboxd.ledger import event_log
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.scripted import program
from tests.simulation.house import House
from tests.simulation.processes import Processes, said
from tests.simulation.test_services import let_pass

USD = 1_000_000
HOUR = 3600.0
Cost = Callable[[int], float | None]


@pytest.fixture(autouse=True)
def _one_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@contextmanager
def town(root: Path, *names: str, at: str = "2026-11-28T12:00:00.000Z", **limits: str) -> Iterator[list[House]]:
    """Daemons of one user on one machine; `limits` are in the configuration of each."""
    processes, clock = Processes(), ManualClock(at)
    with ExitStack() as held:
        held.callback(processes.close)
        houses = [House.build(name, root / name, clock, Random(number), processes) for number, name in enumerate(names)]
        for house in houses:
            house.limits, house.per_agent = dict(limits), 4
            held.callback(house.store.close)
            held.callback(house.die)
        yield houses


def give(house: House, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        head = f"type: task\ntask_id: t{number}\nfrom: operator\nmessage_id: m-{number}"
        raw = f"---\n{head}\n---\n\n# Task: Add {number}\n\nAdd 40 and {number}.\n"
        house.drop(f"t{number}.md", raw.encode(), number)


def end_turns(houses: Sequence[House], cost: float | None, most: int = 1_000) -> int:
    """End the turns that run, each at this cost (None: neither cost nor tokens are reported); returns how many."""
    processes = houses[0].processes
    for notice in [one for one in processes.running() if not one.is_turn]:
        processes.end(notice, Exit(0, b""))
    running = processes.running()[:most]
    for process in running:
        told = process.session_key, "x" * 400, "The result is 42."
        made = program.success(process.id, *told, cost, by_model=cost is not None)
        houses[0].processes.end(process, said(made))
    return len(running)


def run(houses: Sequence[House], cost: float | None = 0.1, seconds: float = 0.0, step: float = 20.0) -> int:
    """Let the daemons work and turns end until nothing happens, for at least so long; returns how many turns ended."""
    ended, until = 0, houses[0].clock.monotonic() + seconds
    while True:
        for house in houses:
            house.work()
        if count := end_turns(houses, cost):
            ended += count
            continue
        if houses[0].clock.monotonic() >= until:
            return ended
        houses[0].clock.advance(step)


def standing(house: House) -> Standing:
    found = house.store.meta.spending(house.clock.now())
    assert found is not None
    return found[0]


@pytest.mark.slow
def test_three_daemons_of_a_host_stop_at_its_cap_together(tmp_path: Path) -> None:
    spending.write_host(os.environ, Spend(USD))
    with town(tmp_path, "ada", "bob", "eve") as houses:
        for house in houses:
            give(house, 10)
        assert run(houses, 0.1, seconds=60.0) == 10
        for house in houses:
            house.work()
            account = standing(house).host
            assert account.spent.usd == USD
            assert not account.reserved
            assert standing(house).reached == account
        spending.write_host(os.environ, Spend(2 * USD))  # for good, without a restart
        assert run(houses, 0.1, seconds=60.0) == 10
        spending.write_host(os.environ, Spend(0))
        assert run(houses, 0.1, seconds=60.0) == 10


@pytest.mark.slow
def test_parallel_turns_of_three_daemons_exceed_the_cap_by_less_than_one(tmp_path: Path) -> None:
    spending.write_host(os.environ, Spend(USD))
    with town(tmp_path, "ada", "bob", "eve") as houses:
        for house in houses:
            give(house, 10)
        ended = run(houses, 0.15, seconds=60.0)
        assert ended == 7  # 1.05: the last one began alone, with 0.90 spent


def test_an_agent_that_has_used_its_day_begins_nothing_and_others_go_on(tmp_path: Path) -> None:
    with town(tmp_path, "ada", "bob") as (ada, bob):
        ada.limits = {"day_usd": "0.2"}
        give(ada, 5)
        give(bob, 5)
        assert run([ada, bob], 0.1, seconds=60.0) == 2 + 5
        assert standing(ada).reached == standing(ada).agent
        assert standing(bob).reached is None


def test_a_turn_that_runs_when_the_cap_is_reached_ends_and_counts(tmp_path: Path) -> None:
    with town(tmp_path, "ada", day_usd="0.8") as (ada,):
        give(ada, 1)
        run([ada], 0.1)
        give(ada, 9, first=2)
        ada.work()
        assert len(ada.processes.running()) == 4
        end_turns([ada], 0.8, most=1)
        ada.work()
        assert len(ada.processes.running()) == 3
        assert run([ada], 0.1, seconds=60.0) == 3
        assert standing(ada).agent.spent.usd == 1_200_000


@pytest.mark.parametrize(
    ("limits", "cost", "turns"),
    [
        ({"day_tokens": "510"}, 0.0, 5),  # 102 each
        ({"day_usd": "1", "day_tokens": "306"}, 0.01, 3),
        ({"day_turns": "3"}, None, 3),
        ({"day_turns": "3"}, 0.01, 8),
        ({"day_usd": "0", "day_tokens": "0", "day_turns": "0"}, 1000.0, 8),
    ],
)
def test_tokens_count_without_a_cost_and_turns_without_either(
    tmp_path: Path, limits: dict[str, str], cost: float | None, turns: int
) -> None:
    with town(tmp_path, "ada", **limits) as (ada,):
        give(ada, 8)
        assert run([ada], cost, seconds=60.0) == turns


def test_an_upgraded_workspace_is_only_told(tmp_path: Path) -> None:
    with town(tmp_path, "ada") as (ada,):
        give(ada, 8)
        assert run([ada], 10.0, seconds=60.0) == 8
        account = standing(ada).agent
        assert account.is_reached
        assert not account.holds
        assert not standing(ada).host.holds
        assert standing(ada).reached is None


@pytest.mark.slow
def test_a_new_day_begins_at_the_midnight_of_the_operator_over_both_changes_of_the_clock(tmp_path: Path) -> None:
    for evening, hours in (("2026-03-28T21:00:00.000Z", 23), ("2026-10-24T20:00:00.000Z", 25)):
        with town(tmp_path / evening[:10], "ada", at=evening, day_turns="2") as (ada,):
            give(ada, 20)
            ada.zone = "Europe/Berlin"
            assert run([ada], None, seconds=HOUR, step=300.0) == 2
            assert (
                run([ada], None, seconds=HOUR + 300.0, step=300.0) == 2
            )  # 22:00 and 23:00 at home; then it is tomorrow
            midnight = ada.clock.monotonic()
            assert run([ada], None, seconds=(hours - 1) * HOUR, step=1800.0) == 0
            assert run([ada], None, seconds=HOUR, step=300.0) == 2
            assert ada.clock.monotonic() - midnight == pytest.approx(hours * HOUR, abs=600.0)


@pytest.mark.slow
def test_what_a_killed_daemon_has_reserved_ends_with_its_turns(tmp_path: Path) -> None:
    spending.write_host(os.environ, Spend(USD))
    with town(tmp_path, "ada", "bob") as (ada, bob):
        for house in (ada, bob):
            give(house, 1)
        assert run([ada, bob], 0.3, seconds=60.0) == 2
        give(ada, 4, first=2)
        ada.work()
        assert len(ada.processes.running()) == 1, "0.60 is spent, and 0.30 of the rest is reserved"
        ada.die()
        give(bob, 4, first=2)
        bob.work()
        assert len(ada.processes.running()) == 1, "its turn may still run"
        assert [order.effect for order in bob.store.outbox.pending("9999", 10) if isinstance(order.effect, RunTurn)]
        for _ in range(60):
            bob.clock.advance(20.0)
            bob.work()
        assert len(ada.processes.running()) == 2, "no reservation is left for ever"


def test_a_cap_that_is_set_while_turns_run_counts_what_they_may_cost(tmp_path: Path) -> None:
    with town(tmp_path, "ada", "bob") as (ada, bob):
        for house in (ada, bob):
            give(house, 1)
        assert run([ada, bob], 0.3, seconds=60.0) == 2
        give(ada, 2, first=2)
        ada.work()
        assert len(ada.processes.running()) == 2
        spending.write_host(os.environ, Spend(1_500_000))
        ada.clock.advance(20.0)
        ada.work()
        assert standing(ada).host.reserved.usd == 600_000
        give(bob, 4, first=2)
        bob.work()
        assert len(ada.processes.running()) == 3, "0.60 is spent, 0.60 reserved, and 0.30 left"


def test_a_daemon_that_is_started_again_settles_what_it_had_reserved(tmp_path: Path) -> None:
    spending.write_host(os.environ, Spend(USD))
    with town(tmp_path, "ada", "bob") as (ada, bob):
        give(ada, 1)
        assert run([ada], 0.1) == 1
        give(ada, 3, first=2)
        give(bob, 1)
        ada.work()
        ada.die()
        bob.work()
        assert standing(bob).host.reserved.usd == 400_000, "three turns of the other daemon, which is dead, and its own"
        assert end_turns([ada], 0.2) == 4
        for house in (ada, bob, bob):
            house.work()
            house.clock.advance(20.0)
        assert standing(bob).host.spent.usd == 900_000
        assert not standing(bob).host.reserved


def test_a_replay_of_the_log_gives_what_was_spent(tmp_path: Path) -> None:
    with town(tmp_path, "ada", day_usd="5") as (ada,):
        give(ada, 6)
        run([ada], 0.1)
        ada.clock.advance(3 * HOUR)
        give(ada, 3, first=7)
        run([ada], None)
        assert not event_log.differences(ada.store.db)
        fresh = event_log.replay(ada.store.db)
        rows = fresh.execute("SELECT sum(usd), sum(turns), count(*) FROM spending").fetchone()
        assert tuple(rows) == (600_000, 3, 2)


def test_the_account_may_be_lost_and_comes_back(tmp_path: Path) -> None:
    spending.write_host(os.environ, Spend(USD))
    with town(tmp_path, "ada", "bob") as houses:
        for house in houses:
            give(house, 3)
        assert run(houses, 0.1, seconds=60.0) == 6
        (tmp_path / "state" / "mailboxd" / "spending.json").write_bytes(b"{damaged")
        run(houses, 0.1, seconds=60.0)
        assert [standing(house).host.spent.usd for house in houses] == [600_000, 600_000]


def test_people_are_told_at_80_percent_and_at_the_cap_once_each(tmp_path: Path) -> None:
    with town(tmp_path, "ada", day_usd="1") as (ada,):
        ada.notify = {"command": ["tell"], "kinds": ["trouble"]}
        give(ada, 7)
        run([ada], 0.1, seconds=60.0)
        assert told(ada) == []
        give(ada, 1, first=8)
        run([ada], 0.1, seconds=60.0)
        assert told(ada) == ["cap 2026-11-28 ada nearly"]
        give(ada, 5, first=9)
        run([ada], 0.1, seconds=120.0)
        assert told(ada) == ["cap 2026-11-28 ada nearly", "cap 2026-11-28 ada reached"]


def told(house: House) -> list[str]:
    """The caps that people were notified of."""
    rows = house.store.db.execute(
        "SELECT json_extract(data, '$.trouble') FROM outbox WHERE kind = 'notify' ORDER BY seq"
    ).fetchall()
    return [name for (name,) in rows if name.startswith("cap ")]


def test_a_capped_daemon_is_idle_and_wakes_up_no_oftener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with town(tmp_path, "ada", day_turns="1") as (ada,):
        give(ada, 3)
        assert run([ada], None, seconds=60.0) == 1
        assert ada.daemon is not None
        assert ada.daemon._is_idle(), "`run --until-idle` ends: nothing happens today without a person"
        monkeypatch.setattr(Watcher, "polls", "")  # else it scans every five seconds
        let_pass(ada, 60.0)
        assert let_pass(ada, 600.0) <= 40


def test_an_account_that_cannot_be_written_is_told_only_where_a_cap_depends_on_it(tmp_path: Path) -> None:
    (tmp_path / "state" / "mailboxd" / "spending.json").mkdir(parents=True)
    with town(tmp_path, "ada", day_usd="0.2") as (ada,):
        give(ada, 5)
        assert run([ada], 0.1, seconds=60.0) == 2, "the cap of the agent holds nevertheless"
        assert "counting what is spent" not in troubles(ada)
        spending.write_host(os.environ, Spend(USD))
        run([ada], 0.1, seconds=60.0)
        assert "counting what is spent" in troubles(ada)


def test_an_invalid_file_of_the_host_is_told_and_the_caps_read_last_count(tmp_path: Path) -> None:
    spending.write_host(os.environ, Spend(200_000))
    with town(tmp_path, "ada") as (ada,):
        give(ada, 1)
        assert run([ada], 0.1, seconds=60.0) == 1
        spending.host_file(os.environ).write_text("day_usd: plenty\n")
        give(ada, 5, first=2)
        assert run([ada], 0.1, seconds=60.0) == 1
        assert "counting what is spent" in troubles(ada)


def troubles(house: House) -> str:
    """What its daemon says that is wrong with it."""
    return (house.ws.state / "health.json").read_text(errors="replace")


@pytest.mark.parametrize(
    "moment",
    [39, 183, 327, *(pytest.param(other, marks=pytest.mark.slow) for other in range(3, 400, 36) if other % 144 != 39)],
)
def test_a_daemon_killed_at_any_moment_neither_loses_nor_doubles_what_was_spent(tmp_path: Path, moment: int) -> None:
    spending.write_host(os.environ, Spend(USD))
    with town(tmp_path, "ada", "bob") as houses:
        for house in houses:
            give(house, 8)
        houses[0].fuse.left = moment
        ended = run(houses, 0.1, seconds=60.0)
        assert houses[0].crashes.total() == 1
        run(houses, 0.1, seconds=900.0, step=60.0)  # what a dead daemon had reserved has ended by then
        assert ended == 10
        assert [standing(house).host.spent.usd for house in houses] == [USD, USD]
        assert not any(standing(house).host.reserved for house in houses)
        assert not event_log.differences(houses[0].store.db)
