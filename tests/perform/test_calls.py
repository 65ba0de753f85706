"""The table of running calls with real processes: room by number, lane and memory, and ends that are left for later."""

from __future__ import annotations

import os
import select
import selectors
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mailboxd.errors import WorldError
from mailboxd.perform.agents import process
from mailboxd.perform.agents.call_dir import PROMPT, Exit, cut_output, output_size
from mailboxd.perform.agents.process import Recovery, State, read_exit, remove
from mailboxd.perform.process_table import Call, CallKind, Caps, ProcessTable
from tests.e2e.support import eventually

MIB = 1 << 20


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[ProcessTable]:
    with selectors.DefaultSelector() as selector:
        made = ProcessTable(tmp_path, selector, dict(os.environ), 1 << 20, 1.0, Caps(4, 2, 215 * MIB))
        yield made
        for call in made.running.values():
            call.child.kill()
        eventually(lambda: list(made.ended()) is not None and not made.running)


def start(
    calls: ProcessTable,
    name: str,
    now: float = 0.0,
    agent: str = "alpha",
    seconds: str = "60",
    kind: CallKind = CallKind.TURN,
) -> None:
    calls.start(Call(name, kind, agent, f"key-{name}", 60.0), ("sleep", seconds), now)


def test_the_room_is_the_cap_and_at_most_half_of_the_gateways_lane(calls: ProcessTable) -> None:
    assert calls.measure_capacity(0.0).most == 4
    for lane, most in ((8, 4), (5, 2), (1, 1), (512, 4)):
        calls.lane = lane
        assert calls.measure_capacity(0.0).most == most


def test_an_agent_has_its_own_cap_and_a_question_none(calls: ProcessTable) -> None:
    start(calls, "a")
    start(calls, "b")
    assert not calls.measure_capacity(0.0).has_slot("alpha")
    assert calls.measure_capacity(0.0).has_slot("beta")
    assert calls.measure_capacity(0.0).has_slot()


def test_a_call_that_has_just_begun_is_counted_with_the_memory_it_is_going_to_take(calls: ProcessTable) -> None:
    calls.available = lambda: 500 * MIB
    assert calls.measure_capacity(0.0).left == 2
    start(calls, "a", now=0.0)
    assert calls.measure_capacity(1.0).left == 1
    start(calls, "b", now=1.0)
    assert (calls.measure_capacity(2.0).left, calls.measure_capacity(2.0).is_short) == (0, True)
    assert calls.measure_capacity(5.5).left == 1  # the first has taken what it takes: the kernel says so by now
    assert calls.measure_capacity(100.0).left == 2


def test_the_first_call_may_always_start(calls: ProcessTable) -> None:
    calls.available = lambda: 0
    assert calls.measure_capacity(0.0).has_slot("alpha")
    start(calls, "a")
    assert not calls.measure_capacity(0.0).has_slot("beta")


def test_the_end_of_another_kind_of_call_waits_without_waking_the_loop(calls: ProcessTable) -> None:
    start(calls, "mine", seconds="0", kind=CallKind.DISCOVERY)
    start(calls, "other", seconds="0")

    found = eventually(lambda: [call.id for call, _ in calls.ended(CallKind.DISCOVERY)])
    eventually(lambda: select.select([calls.running["other"].child.pidfd], [], [], 0)[0])
    assert not list(calls.ended(CallKind.DISCOVERY))
    assert not calls.selector.select(0)
    assert (found, list(calls.running)) == (["mine"], ["other"])
    assert [call.id for call, _ in calls.ended()] == ["other"]
    assert not calls.running


def test_an_end_that_cannot_be_read_holds_up_no_other_and_is_read_later(
    calls: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path, rc: int | None, cap: int) -> Exit:
        if Path(directory).name == "first":
            raise WorldError("the disk says no")
        return read_exit(directory, rc, cap)

    for name in ("first", "second"):
        start(calls, name, seconds="0")
        select.select([calls.running[name].child.pidfd], [], [], 20)
    with monkeypatch.context() as patched:
        patched.setattr(process, "read_exit", refuse)
        found: list[str] = []
        with pytest.raises(WorldError, match="the disk says no"):
            found.extend(call.id for call, _ in calls.ended())
        assert list(calls.running) == ["first"]
        calls.enforce_limits(1000.0)
        assert (calls.next_deadline() or 0) > 1000.0, "it has ended: nothing of it is due"
    assert [(call.id, exit_.rc) for call, exit_ in calls.ended()] == [("first", 0)]


def test_an_answer_is_still_there_after_the_machine_was_restarted(calls: ProcessTable) -> None:
    words = ("sh", "-c", 'cat "$0"', calls.file("first", PROMPT))
    calls.start(Call("first", CallKind.TURN, "alpha", "key", 60.0), words, 0.0, files={PROMPT: b"The answer.\n"})
    eventually(lambda: list(calls.ended()))
    record = calls.turns / "first" / "call"
    argv, _ = record.read_text().splitlines()
    record.write_text(f'{argv}\n{{"pid": 5, "boot_id": "an earlier one"}}\n')
    assert calls.state("first") is State.ENDED
    assert calls.left_behind("first").stdout == b"The answer.\n"


def prompted(calls: ProcessTable, name: str, prompt: bytes, line: str = 'cat "$0"; ls "${0%/*}" >&2') -> Exit:
    """Run a call that prints its prompt and, as an error, what is in its directory."""
    words = ("sh", "-c", line, calls.file(name, PROMPT))
    calls.start(Call(name, CallKind.TURN, "beta", f"key-{name}", 60.0), words, 0.0, files={PROMPT: prompt})
    [(_, exit_)] = eventually(lambda: list(calls.ended()))
    return exit_


def test_the_directory_of_an_ended_call_is_the_next_ones_with_nothing_of_the_first_in_it(calls: ProcessTable) -> None:
    start(calls, "other")
    places = set()
    for name, prompt in (("first", b"a long prompt\n"), ("second", b"short\n"), ("third", b"and a longer one again\n")):
        said = prompted(calls, name, prompt)
        assert (said.stdout, said.stderr.split()) == (prompt, [b"call", b"prompt.md", b"stderr", b"stdout"])
        places.add((calls.turns / name).stat().st_ino)
        calls.discard(name)
        assert calls.state(name) is State.NEVER_STARTED
    assert len(places) == 1
    assert len(list(calls.turns.iterdir())) == 2


def test_a_directory_that_cannot_be_handed_on_is_removed(calls: ProcessTable, tmp_path: Path) -> None:
    """One in which the call has left something, or put another in its place; or the next call has one already."""
    start(calls, "other")
    prompted(calls, "first", b"1", 'touch "${0%/*}/note"')
    calls.discard("first")
    assert b"note" not in prompted(calls, "second", b"2").stderr
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "call").touch()
    prompted(calls, "third", b"3", f'rm -r "${{0%/*}}"; ln -s {tmp_path}/elsewhere "${{0%/*}}"')
    calls.discard("third")
    assert prompted(calls, "fourth", b"4").stdout == b"4"
    assert (tmp_path / "elsewhere" / "call").exists()
    (calls.turns / "fifth").mkdir()
    (calls.turns / "fifth" / PROMPT).write_bytes(b"of an earlier try")
    calls.discard("fourth")
    assert prompted(calls, "fifth", b"5").stdout == b"5"
    found = {path.name for path in calls.turns.iterdir()} - {"elsewhere"}
    assert found == {"other", "second", "fifth"}


def test_a_call_that_is_made_again_takes_its_own_directory(calls: ProcessTable) -> None:
    """Questions to OpenClaw bear the same name each time."""
    for name in ("other", "one more"):
        start(calls, name)
    for name in ("asked", "turn"):
        prompted(calls, name, b"1")
        calls.discard(name)
    for answer in (b"2", b"3"):
        assert prompted(calls, "asked", answer).stdout == answer
        assert prompted(calls, "next " + answer.decode(), b"x").stdout == b"x"
        calls.discard("asked")
    calls.remove_leftovers(lambda _name: False)
    assert {path.name for path in calls.turns.iterdir()} == {"other", "one more", "next 2", "next 3"}


class Killed(BaseException):
    """The end of the daemon."""


@pytest.mark.parametrize(
    ("where", "step"), [(os, "unlink"), (os, "rename"), (os.path, "lexists"), (process, "overwrite")]
)
def test_a_daemon_that_dies_while_a_directory_is_handed_on_has_started_nothing(
    calls: ProcessTable, monkeypatch: pytest.MonkeyPatch, where: ModuleType, step: str
) -> None:
    """Whatever is left is no answer of the call that was to begin, and in nobody's way."""

    def die(*_: object) -> None:
        raise Killed

    start(calls, "other")
    prompted(calls, "first", b"of the first")
    calls.discard("first")
    with monkeypatch.context() as patched:
        patched.setattr(where, step, die)
        with pytest.raises(Killed):
            prompted(calls, "second", b"of the second")
    later = ProcessTable(calls.turns, calls.selector, dict(os.environ), 1 << 20, 1.0, Caps(4, 2, 215 * MIB))
    assert later.state("second") is State.NEVER_STARTED
    later.remove_leftovers(lambda name: name == "first")
    assert prompted(later, "second", b"of the second").stdout == b"of the second"
    assert {path.name for path in calls.turns.iterdir()} == {"other", "second"}


def test_a_call_without_a_prompt_finds_none_and_what_is_the_users_alone_stays_so(calls: ProcessTable) -> None:
    start(calls, "other")
    prompted(calls, "first", b"1", 'chmod 755 "${0%/*}"')
    calls.discard("first")
    start(calls, "second", seconds="0")
    eventually(lambda: list(calls.ended()))
    place = calls.turns / "second"
    assert (sorted(path.name for path in place.iterdir()), place.stat().st_mode & 0o777) == (
        ["call", "stderr", "stdout"], 0o700
    )  # fmt: skip


def test_a_prompt_that_has_a_second_name_is_not_written_over(calls: ProcessTable, tmp_path: Path) -> None:
    start(calls, "other")
    prompted(calls, "first", b"kept", f'ln "$0" {tmp_path}/kept')
    calls.discard("first")
    assert prompted(calls, "second", b"other").stdout == b"other"
    assert (tmp_path / "kept").read_bytes() == b"kept"


def test_no_directory_is_kept_for_a_next_call_when_none_runs_nor_after_the_daemon_has_gone(calls: ProcessTable) -> None:
    prompted(calls, "first", b"1")
    calls.discard("first")
    assert not list(calls.turns.iterdir())
    start(calls, "other")
    prompted(calls, "second", b"2")
    calls.discard("second")
    kept = calls.running["other"]
    calls.leave()
    assert [path.name for path in calls.turns.iterdir()] == ["other"]
    assert calls.adopt(kept, 0.0)


def test_files_that_somebody_has_put_beside_the_calls_are_left_alone(calls: ProcessTable) -> None:
    (calls.turns / ".note").write_text("mine")
    (calls.turns / ".link").symlink_to(".note")
    (calls.turns / ".unused").mkdir()
    calls.remove_leftovers(lambda _id: False)
    assert sorted(path.name for path in calls.turns.iterdir()) == [".link", ".note"]


def test_a_directory_that_cannot_be_removed_is_said_and_holds_up_no_other(
    calls: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".stays", ".goes", "needed"):
        (calls.turns / name).mkdir()
    monkeypatch.setattr(
        "mailboxd.perform.process_table.remove", lambda place: None if place.endswith("/.stays") else remove(place)
    )
    with pytest.raises(WorldError, match=r"/\.stays"):
        calls.remove_leftovers(lambda _id: False)
    assert sorted(path.name for path in calls.turns.iterdir()) == [".stays", "needed"]


def test_what_does_not_die_of_being_killed_is_killed_again_but_not_without_a_pause(calls: ProcessTable) -> None:
    deaf = "trap '' TERM; echo ready; exec sleep 60"  # else it might have ended before it is to be killed
    calls.start(Call("a", CallKind.TURN, "alpha", "key-a", 60.0), ("sh", "-c", deaf), 0.0)
    eventually(lambda: output_size(calls.directory("a")) > 0)
    calls.enforce_limits(60.0)
    kill, killed = calls.running["a"].child.kill, []
    calls.running["a"].child.kill = lambda: killed.append("a")  # type: ignore[method-assign]
    for now in (61.0, 61.0, 61.1, 62.0):
        calls.enforce_limits(now)
    assert killed == ["a", "a"]
    assert (calls.next_deadline() or 0) > 62.0
    calls.running["a"].child.kill = kill  # type: ignore[method-assign]


def test_what_ended_while_nobody_looked_was_in_time_however_late_that_is_seen(calls: ProcessTable) -> None:
    start(calls, "a", seconds="0")
    pidfd = calls.running["a"].child.pidfd
    select.select([pidfd], [], [], 20)
    calls.enforce_limits(1000.0)
    [(call, exit_)] = list(calls.ended())
    assert (call.stopped, exit_.rc) == ("", 0)


def test_no_time_of_a_call_passes_while_its_gateway_recovers_it(calls: ProcessTable) -> None:
    """Then it has all of its time again; a call that is to be stopped gets no more."""
    start(calls, "a", seconds="60")
    call, found = calls.running["a"], [Recovery("the gateway died", 5.0)]
    call.child.recovery = lambda: found[-1]  # type: ignore[method-assign]
    assert calls.recovering() == {"a": found[0]}
    for now in (100.0, 1000.0, 100_000.0):
        calls.enforce_limits(now)
        assert (call.stopped, (calls.next_deadline() or 0) > now) == ("", True)
    found.append(Recovery("", 100_000.0))
    assert calls.recovering() == {}
    calls.enforce_limits(100_000.0 + call.timeout - 1)
    assert call.stopped == ""
    calls.enforce_limits(100_000.0 + call.timeout)
    assert call.stopped == "timed out"
    call.child.kill()


ENDLESS = "trap '' TERM; head -c {size} /dev/zero; head -c {size} /dev/zero >&2; exec sleep 60"


def test_what_writes_without_end_is_stopped_and_its_output_is_cut_until_it_has_ended(calls: ProcessTable) -> None:
    calls.output_cap = 200_000
    calls.enforce_limits(10.0)
    calls.start(Call("a", CallKind.TURN, "alpha", "key-a", 60.0), ("sh", "-c", ENDLESS.format(size=5 * MIB)), 10.0)
    eventually(lambda: output_size(calls.directory("a")) == 10 * MIB)
    assert calls.next_output_check() == 10.25
    assert not calls.enforce_limits(10.2)
    assert calls.running["a"].stopped == ""
    assert calls.enforce_limits(10.25)
    assert calls.running["a"].stopped == "wrote more than 200000 bytes"
    assert used(calls, "a") < 300_000
    output = calls.turns / "a" / "stdout"
    with output.open("ab") as still:  # it does not end of SIGTERM
        still.write(b"x" * MIB)
    assert not calls.enforce_limits(10.5)
    assert used(calls, "a") < 300_000
    assert calls.enforce_limits(11.25)
    [(_, exit_)] = eventually(lambda: list(calls.ended()))
    assert exit_.truncated
    assert used(calls, "a") < 300_000
    assert calls.next_output_check() == float("inf"), "nothing runs, and nobody is woken to measure it"


def test_what_ended_with_too_long_an_output_leaves_only_its_beginning(calls: ProcessTable) -> None:
    """Before anybody measured it, or while no daemon ran."""
    calls.output_cap = 200_000
    calls.start(Call("a", CallKind.TURN, "alpha", "key-a", 60.0), ("sh", "-c", "head -c 5000000 /dev/zero >&2"), 0.0)
    eventually(lambda: list(calls.ended()))
    assert used(calls, "a") < 150_000
    (calls.turns / "a" / "stdout").write_bytes(b"x" * 5 * MIB)
    assert calls.left_behind("a").truncated
    assert used(calls, "a") < 150_000
    assert calls.left_behind("a").truncated, "what is left is still known as the beginning of something longer"


LEFT = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); {work}; time.sleep(60)"
"""What a call leaves running, in a session of its own."""


def leaving(calls: ProcessTable, name: str, work: str) -> int:
    """Run a call to its end; the pid of what it has left running, which holds its output."""
    line = f"setsid {sys.executable} -c '{LEFT.format(work=work)}' & echo $!"
    calls.start(Call(name, CallKind.TURN, "alpha", f"key-{name}", 60.0), ("sh", "-c", line), 0.0)
    [(_, exit_)] = eventually(lambda: list(calls.ended()))
    return int(exit_.stdout.split()[0])


def test_what_an_ended_call_left_running_is_killed_when_it_writes_without_end(
    calls: ProcessTable, tmp_path: Path
) -> None:
    calls.output_cap = 200_000
    gate = tmp_path / "gate"  # it writes once the call has been reaped: else its output would be cut by that
    os.mkfifo(gate)
    pid = leaving(calls, "a", f'open("{gate}").read(); sys.stdout.write("x" * 5000000); sys.stdout.flush()')
    gate.write_bytes(b"")
    eventually(lambda: output_size(calls.directory("a")) > 5_000_000)
    with (calls.turns / "a" / "stdout").open("rb"):  # a person looks at it, and is left alone
        calls.enforce_limits(calls.next_output_check())
        assert used(calls, "a") < 200_000
        eventually(lambda: has_gone(pid))
    calls.discard("a")
    calls.enforce_limits(calls.next_output_check())
    assert not (calls.turns / "a").exists()
    assert calls.next_output_check() == float("inf"), "nobody is woken for it any more"


def test_what_an_ended_call_left_running_may_go_on_and_keeps_its_directory_until_it_ends(calls: ProcessTable) -> None:
    pid = leaving(calls, "a", "pass")
    calls.discard("a")
    calls.remove_leftovers(lambda _name: True)
    calls.enforce_limits(calls.next_output_check())
    assert (calls.turns / "a").exists()
    assert not has_gone(pid)
    later = ProcessTable(calls.turns, calls.selector, {}, 1 << 20, 1.0)  # the next daemon
    later.remove_leftovers(lambda _name: True)
    assert later.next_output_check() < float("inf")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: has_gone(pid))
    calls.enforce_limits(calls.next_output_check())
    assert not (calls.turns / "a").exists()


def has_gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


def test_an_output_that_is_a_second_name_of_another_file_is_not_cut(calls: ProcessTable, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = tmp_path / "other"
    other.write_bytes(b"x" * MIB)
    (tmp_path / "b" / "stdout").hardlink_to(other)
    cut_output(tmp_path / "b", 1000)
    assert other.stat().st_size == MIB


def used(calls: ProcessTable, name: str) -> int:
    """Bytes of the disk that a call's directory takes."""
    return sum(path.stat().st_blocks * 512 for path in Path(calls.directory(name)).iterdir())
