"""Child processes: what is started, what is provable afterwards, and who can be found again after a crash."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.core.outcomes import Permanence, Unknown
from mailboxd.errors import WorldError
from mailboxd.perform.agents import process
from mailboxd.perform.agents.alive import identity
from mailboxd.perform.agents.call_dir import PROMPT, Exit, output_size
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import Child, NotStarted, State, adopt, read_exit, remove, spawn, state

ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def call(tmp_path: Path) -> Path:
    return tmp_path / "att_1"


@pytest.fixture
def start(call: Path, groups: list[int]) -> Callable[[str], Child]:
    """Start a shell line as the call."""

    def started(line: str) -> Child:
        child = spawn(call, ["/bin/sh", "-c", line], ENVIRONMENT)
        groups.append(child.pid)
        return child

    return started


def ended(child: Child) -> Exit:
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    assert poll.poll(20_000), "the process did not end"
    exit_ = child.reap()
    assert exit_ is not None
    return exit_


def wait_for(fifo: Path) -> None:
    """Until somebody writes a line into the FIFO."""
    with fifo.open() as file:
        assert file.readline()


def orphan(call: Path, line: str) -> int:
    """Have another process start the line as the call and die at once with SIGKILL; returns the child's pid."""
    script = (
        "import os, signal, sys; from pathlib import Path; from mailboxd.perform.agents.process import spawn\n"
        "child = spawn(Path(sys.argv[1]), ['/bin/sh', '-c', sys.argv[2]], dict(os.environ))\n"
        "print(child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(call), line],
        env={**ENVIRONMENT, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    return int(done.stdout)


def rerecord(call: Path, record: bytes | None) -> None:
    """Have the file of a call say something else of its process; None: nothing, as if the daemon had died there."""
    argv, *_ = (call / "call").read_bytes().splitlines(keepends=True)
    (call / "call").write_bytes(argv + (record or b""))  # in place: it is the file that the child has locked


def test_a_call_leaves_its_output_and_exit_status(call: Path, start: Callable[[str], Child]) -> None:
    assert ended(start("echo out; echo err >&2; exit 3")) == Exit(3, b"out\n", b"err\n", truncated=False)


def test_reaping_never_blocks(start: Callable[[str], Child], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    child = start(f"read x < {tmp_path}/go")
    assert child.reap() is None
    (tmp_path / "go").write_text("go\n")
    assert ended(child).rc == 0


def test_a_call_is_never_started_then_running_then_ended(
    call: Path, start: Callable[[str], Child], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    assert state(call) is State.NEVER_STARTED
    call.mkdir()  # an earlier try came no further
    (call / PROMPT).write_bytes(b"hello")
    assert state(call) is State.NEVER_STARTED
    child = start(f"read x < {tmp_path}/go")
    assert state(call) is State.RUNNING
    (tmp_path / "go").write_text("go\n")
    ended(child)
    assert state(call) is State.ENDED
    assert adopt(call) is None


def test_a_process_that_has_ended_but_is_not_reaped_has_ended(call: Path, start: Callable[[str], Child]) -> None:
    child = start("exit 0")
    select.select([child.pidfd], [], [], 20)
    assert state(call) is State.ENDED


def test_only_the_owner_can_read_the_call_directory(call: Path, start: Callable[[str], Child]) -> None:
    child = spawn(call, ["/bin/cat", f"{call}/{PROMPT}"], ENVIRONMENT, files={PROMPT: b"secret"})
    assert ended(child).stdout == b"secret"
    assert call.stat().st_mode & 0o777 == 0o700
    for name in ("prompt.md", "stdout", "stderr", "call"):
        assert (call / name).stat().st_mode & 0o777 == 0o600


def test_a_child_has_no_input_its_own_session_and_the_given_environment_only(start: Callable[[str], Child]) -> None:
    child = start("cat; cut -d' ' -f5,6 /proc/$$/stat; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort")
    lines = ended(child).stdout.decode().splitlines()
    assert lines[0] == f"{child.pid} {child.pid}"
    assert lines[1:] == sorted(f"{name}={text}" for name, text in ENVIRONMENT.items())


def test_the_record_names_the_process(call: Path, start: Callable[[str], Child]) -> None:
    child = start("exit 0")
    argv, record = map(json.loads, (call / "call").read_text().splitlines())
    assert argv == ["/bin/sh", "-c", "exit 0"]
    assert record["pid"] == child.pid
    assert record["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ended(child)


def test_one_directory_is_one_call(call: Path, start: Callable[[str], Child]) -> None:
    ended(start("echo first"))
    with pytest.raises(WorldError, match="started before"):
        start("echo second")
    assert read_exit(call, None).stdout == b"first\n"


@pytest.mark.parametrize(
    ("program", "content", "mode", "permanence"),
    [
        ("missing", None, 0, Permanence.PERMANENT),
        ("plain", b"#!/bin/sh\n", 0o600, Permanence.PERMANENT),
        ("other-machine", b"\x7fELF\0\0\0\0", 0o700, Permanence.PERMANENT),
        ("no-interpreter", b"#!/no/such/node\n", 0o700, Permanence.PERMANENT),
    ],
)
def test_a_program_that_cannot_be_run_has_provably_not_started(
    call: Path, tmp_path: Path, program: str, content: bytes | None, mode: int, permanence: Permanence
) -> None:
    path = tmp_path / program
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(NotStarted, match=program) as refused:
        spawn(call, [str(path)], ENVIRONMENT)
    assert refused.value.outcome.started is False
    assert refused.value.outcome.permanence is permanence
    assert state(call) is State.NEVER_STARTED
    assert ended(spawn(call, ["/bin/true"], ENVIRONMENT)).rc == 0


def test_a_machine_without_room_is_a_transient_failure_to_start() -> None:
    assert NotStarted("x", OSError(errno.EAGAIN, "try again")).outcome.permanence is Permanence.TRANSIENT


def test_a_disk_that_refuses_the_prompt_is_the_worlds_fault(tmp_path: Path) -> None:
    with pytest.raises(WorldError):
        spawn(tmp_path / "absent" / "att_1", ["/bin/true"], ENVIRONMENT, files={PROMPT: b"x"})


@pytest.mark.parametrize("name", ["stdout", "stderr", "prompt.md", "call"])
def test_planted_links_and_fifos_are_not_followed(call: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    call.mkdir()
    for kind in ("link", "fifo"):
        (call / name).symlink_to(target) if kind == "link" else os.mkfifo(call / name)
        if name == "call":
            with pytest.raises(WorldError, match="started before"):
                spawn(call, ["/bin/true"], ENVIRONMENT)
        else:
            assert ended(spawn(call, ["/bin/echo", "x"], ENVIRONMENT, files={PROMPT: b"x"})).stdout == b"x\n"
            assert stat.S_ISREG((call / name).lstat().st_mode)
            (call / "call").unlink()
        (call / name).unlink()
    assert target.read_bytes() == b"untouched"


def test_terminating_reaches_the_whole_group(start: Callable[[str], Child], tmp_path: Path) -> None:
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    os.mkfifo(ready)
    os.mkfifo(heard)
    inner = f"trap 'echo heard > {heard}; exit' TERM; echo > {ready}; while :; do sleep 100 & wait; done"
    child = start(f'sh -c "{inner}" & wait')
    wait_for(ready)
    child.terminate()
    wait_for(heard)
    assert ended(child).rc == -signal.SIGTERM


def test_one_that_ignores_sigterm_is_killed(start: Callable[[str], Child], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    child = start(f"trap '' TERM; echo > {ready}; while :; do sleep 100; done")
    wait_for(ready)
    child.terminate()
    assert child.reap() is None
    child.kill()
    exit_ = ended(child)
    assert exit_.rc == -signal.SIGKILL
    assert isinstance(classify(exit_), Unknown)


def test_signals_after_the_end_go_nowhere(start: Callable[[str], Child]) -> None:
    child = start("exit 0")
    ended(child)
    child.terminate()
    child.kill()
    assert child.reap() is not None


def test_no_signal_goes_to_a_number_that_was_given_back_while_its_output_waits_to_be_read(
    start: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_directory: Path, _rc: int | None, _cap: int) -> Exit:
        raise WorldError("the disk says no")

    child, signalled = start("echo out; exit 3"), []
    with monkeypatch.context() as patched:
        patched.setattr(process, "read_exit", refuse)
        patched.setattr(os, "killpg", lambda *given: signalled.append(given))
        with pytest.raises(WorldError):
            ended(child)
        child.kill()
    assert signalled == []
    assert child.reap() == Exit(3, b"out\n", b"")


SPOILT = [
    "rm stdout; ln -s ../target stdout",
    "rm stdout; mkfifo stdout",
    "rm stdout; mkdir stdout",
    "d=$PWD; rm -r $d; ln -s target $d",
    "d=$PWD; rm -r $d; touch $d",
]


@pytest.mark.parametrize("line", SPOILT)
def test_a_replaced_output_file_is_ignored(
    call: Path, start: Callable[[str], Child], tmp_path: Path, line: str
) -> None:
    (tmp_path / "target").write_bytes(b"somebody else's")
    exit_ = ended(start(f"cd {call} && {line}"))
    assert exit_.rc == 0
    assert exit_.stdout == b""
    assert output_size(call) < 1 << 16
    remove(call)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["target"]


@pytest.mark.parametrize("line", ["rm call; ln -s ../target call", "rm call; mkfifo call", SPOILT[-1]])
def test_a_call_with_a_replaced_mark_may_have_run(call: Path, start: Callable[[str], Child], line: str) -> None:
    assert ended(start(f"cd {call} && {line}")).rc == 0
    assert state(call) is State.ENDED
    assert adopt(call) is None


def test_removing_deeply_nested_directories_does_not_fail(call: Path) -> None:
    call.mkdir()
    place = os.open(call, os.O_RDONLY)
    for _ in range(2 * sys.getrecursionlimit()):
        os.mkdir("a", dir_fd=place)
        inner = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    try:
        remove(call)
    finally:  # pytest could not do it either
        subprocess.run(["rm", "-rf", call], check=True)


def test_that_nothing_can_be_asked_where_calls_are_kept_says_nothing_of_any_of_them(call: Path, tmp_path: Path) -> None:
    file = tmp_path / "no directory"
    file.touch()
    for ask in (state, adopt, lambda place: read_exit(place, None)):
        with pytest.raises(WorldError):
            ask(file / call.name)
    assert output_size(file / call.name) == 0, "it is measured twice a second: whoever waits for it needs no error"


def test_a_grandchild_that_holds_output_and_lock_is_not_waited_for(call: Path, start: Callable[[str], Child]) -> None:
    exit_ = ended(start("sleep 100 & echo done"))
    assert (exit_.rc, exit_.stdout) == (0, b"done\n")
    assert state(call) is State.ENDED
    assert adopt(call) is None


def test_output_is_read_up_to_a_cap(start: Callable[[str], Child], call: Path) -> None:
    child = start("head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2")
    select.select([child.pidfd], [], [], 20)
    assert output_size(call) == 200_000
    exit_ = child.reap(cap=1000)
    assert exit_ is not None
    assert (len(exit_.stdout), len(exit_.stderr), exit_.truncated) == (1000, 65_536, True)
    assert isinstance(classify(exit_), Unknown)
    whole = read_exit(call, 0, cap=100_000)
    assert (len(whole.stdout), whole.truncated) == (100_000, False)


def test_a_child_survives_its_daemon_and_is_adopted(call: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    pid = orphan(call, f"read x < {tmp_path}/go; echo late")
    assert state(call) is State.RUNNING
    child = adopt(call)
    assert child is not None
    assert (child.pid, child.adopted) == (pid, True)
    assert child.reap() is None
    (tmp_path / "go").write_text("go\n")
    assert ended(child) == Exit(None, b"late\n", b"")
    assert state(call) is State.ENDED


def test_an_adopted_child_can_be_terminated_and_killed(call: Path) -> None:
    orphan(call, "trap '' TERM; while :; do sleep 100; done")
    child = adopt(call)
    assert child is not None
    child.terminate()
    child.kill()
    assert ended(child).rc is None
    child.kill()


@pytest.mark.parametrize("record", [None, b"", b"{", b'{"pid": "7"}', b'{"pid": 1, "boot_id": "x"}'])
def test_a_child_without_a_readable_record_is_found_by_its_lock(call: Path, record: bytes | None) -> None:
    pid = orphan(call, "while :; do sleep 100; done")
    rerecord(call, record)
    child = adopt(call)
    assert child is not None
    assert child.pid == pid
    child.kill()
    ended(child)


def test_a_recorded_pid_of_another_process_is_not_trusted(call: Path) -> None:
    bystander = subprocess.Popen(["sleep", "100"], start_new_session=True)
    pid = orphan(call, "while :; do sleep 100; done")
    try:
        rerecord(call, json.dumps(identity(bystander.pid)).encode())
        assert adopt(call) is None
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        os.killpg(pid, signal.SIGKILL)


def test_a_record_of_a_recycled_pid_is_not_believed(call: Path) -> None:
    pid = orphan(call, "while :; do sleep 100; done")
    record = json.loads((call / "call").read_text().splitlines()[1])
    try:
        with (call / "call").open() as file, subprocess.Popen(["sleep", "100"], stdin=file) as reader:
            for change in ({"pid": reader.pid}, {"boot_id": "another"}):
                rerecord(call, json.dumps(record | change).encode())
                assert adopt(call) is None
            reader.kill()
    finally:
        os.killpg(pid, signal.SIGKILL)


def test_a_crash_between_the_mark_and_the_spawn_reads_as_may_have_run(call: Path) -> None:
    call.mkdir()
    (call / "call").touch()
    assert state(call) is State.ENDED
    assert isinstance(classify(read_exit(call, None)), Unknown)


def test_a_record_that_cannot_be_written_does_not_lose_the_child(
    start: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_call: int, _pid: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(process, "record", refuse)
    assert ended(start("echo out")).stdout == b"out\n"


def test_a_call_that_cannot_have_its_output_has_provably_not_started(call: Path) -> None:
    (call / "stdout").mkdir(parents=True)
    with pytest.raises(WorldError, match="stdout"):
        spawn(call, ["/bin/true"], ENVIRONMENT)
    assert state(call) is State.NEVER_STARTED


def test_a_second_start_of_a_running_call_touches_nothing(
    call: Path, start: Callable[[str], Child], tmp_path: Path
) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    os.mkfifo(ready)
    os.mkfifo(go)
    child = start(f"echo out; echo > {ready}; read x < {go}")
    wait_for(ready)
    with pytest.raises(WorldError, match="started before"):
        spawn(call, ["/bin/sh", "-c", "echo second"], ENVIRONMENT)
    assert state(call) is State.RUNNING
    go.write_text("go\n")
    assert ended(child) == Exit(0, b"out\n", b"")


def test_the_child_inherits_the_lock_and_nothing_else(start: Callable[[str], Child]) -> None:
    child = start("ls -l /proc/$$/fd | sed -n 's/.*-> //p' | grep -c -v -e null -e stdout -e stderr -e /call$ -e ^pipe")
    assert ended(child).stdout == b"0\n"


def test_the_child_inherits_nothing_that_its_daemon_was_started_with(call: Path, tmp_path: Path) -> None:
    """As a shell or a supervisor leaves it open."""
    (tmp_path / "secret").write_text("secret")
    script = (
        "import os, sys; from pathlib import Path; from mailboxd.perform.agents.process import spawn\n"
        "child = spawn(Path(sys.argv[1]), ['/bin/sh', '-c', 'ls -l /proc/$$/fd'], dict(os.environ))\n"
        "os.waitpid(child.pid, 0)"
    )
    with (tmp_path / "secret").open() as file:
        argv = [sys.executable, "-c", script, str(call)]
        subprocess.run(argv, env={**ENVIRONMENT, "PYTHONPATH": str(REPOSITORY)}, pass_fds=[file.fileno()], check=True)
    inherited = (call / "stdout").read_text()
    assert "/call" in inherited
    assert "secret" not in inherited


def test_a_program_is_looked_for_where_it_would_look_itself(call: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "a-tool-of-the-child"
    tool.write_text("#!/bin/sh\necho found\n")
    with pytest.raises(NotStarted, match=tool.name):
        spawn(call, [tool.name], {"PATH": str(tmp_path / "bin")})
    assert state(call) is State.NEVER_STARTED
    tool.chmod(0o700)
    assert ended(spawn(call, [tool.name], {"PATH": f"{tmp_path / 'bin'}:/bin"})).stdout == b"found\n"


def test_a_child_begins_where_it_is_told_to_and_its_daemon_stays_where_it_was(call: Path, tmp_path: Path) -> None:
    here = Path.cwd()
    with pytest.raises(NotStarted, match="pwd"):
        spawn(call, ["/bin/pwd"], ENVIRONMENT, str(tmp_path / "missing"))
    assert state(call) is State.NEVER_STARTED
    (tmp_path / "there").mkdir()
    assert (
        ended(spawn(call, ["/bin/pwd"], ENVIRONMENT, str(tmp_path / "there"))).stdout == f"{tmp_path}/there\n".encode()
    )
    assert Path.cwd() == here
