"""Commands and messages: real programs, and what their ends are taken for."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.approvals import Performed
from mailboxd.perform.actions import command
from mailboxd.perform.actions.command import ProgramResult, message_problem, message_result
from mailboxd.perform.actions.result import REPORT, Impossible
from mailboxd.perform.agents.process import Child, spawn
from tests.actions.workspace_with_gate import Workbench, action
from tests.e2e.support import eventually

DONE, FAILED, UNKNOWN = Performed.DONE, Performed.FAILED, Performed.UNKNOWN


def sh(script: str, **more: object):  # type: ignore[no-untyped-def]
    return action("command", argv=("/bin/sh", "-c", script), **more)


@pytest.mark.parametrize(
    ("script", "state", "summary"),
    [
        ("echo hello", DONE, "exit status 0: hello"),
        ("true", DONE, "exit status 0"),
        ("out=$(readlink /proc/$$/fd/1); rm $out; mkfifo $out", DONE, "exit status 0"),
        ("echo no >&2; exit 3", FAILED, "exit status 3: no"),
        ("kill -9 $$", UNKNOWN, "killed by signal 9"),
    ],
)
def test_an_exit_status_proves_the_result_and_a_signal_does_not(
    at: Workbench, script: str, state: Performed, summary: str
) -> None:
    end = at.do(sh(script))
    assert (end.state, end.summary) == (state, summary)


def test_arguments_are_passed_unchanged(at: Workbench) -> None:
    argv = ("/usr/bin/printf", "%s|", "$(touch x)", "a;b", "-n", "ünï")
    end = at.do(action("command", argv=argv))
    assert end.report == "$(touch x)|a;b|-n|ünï|"


def test_its_environment_is_minimal_plus_requested_variables(at: Workbench) -> None:
    plain = at.do(action("command", argv=("/usr/bin/env",)))
    assert {line.partition("=")[0] for line in plain.report.splitlines()} == {"PATH", "HOME", "MAILBOXD_INSIDE"}
    at.gate.create()
    asked = at.do(action("command", argv=("/usr/bin/env",), env=("KEY",)))
    assert "KEY=${KEY}" in asked.report
    assert "hunter2" not in asked.report + asked.summary


@pytest.mark.parametrize("before", ["x" * 60, "x" * 150, "x" * 190])
@pytest.mark.parametrize("after", [0, REPORT - 4])
def test_no_cut_leaves_a_part_of_a_secret(at: Workbench, before: str, after: int) -> None:
    long = {**at.context.environ, "KEY": "s3cr3t" * 20}
    at.given(environ=long)
    end = at.do(sh(f'printf "%s%s%0{after}d" {before} "$KEY" 0', env=("KEY",)))
    assert "s3cr3t" not in end.summary + end.report


@pytest.mark.parametrize(("env", "why"), [(("OTHER",), "does not name OTHER"), (("KEY",), "does not have .* KEY")])
def test_a_disallowed_or_missing_variable_makes_it_impossible(at: Workbench, env: tuple[str, ...], why: str) -> None:
    at.given(environ={name: value for name, value in at.context.environ.items() if name != "KEY"})
    with pytest.raises(Impossible, match=why):
        at.show(sh("true", env=env))
    assert at.perform(sh("touch ran", env=env)).state is FAILED
    assert not (at.root / "ran").exists()


def test_it_runs_in_its_directory(at: Workbench) -> None:
    (at.root / "sub").mkdir()
    assert at.do(sh("pwd", cwd="sub")).report.strip() == str(at.root / "sub")
    at.gate.create()
    assert at.do(sh("pwd", cwd=str(at.outside))).report.strip() == str(at.outside)


@pytest.mark.parametrize("cwd", ["link", "../outside", "nothing", "sub/../link", "file"])
def test_a_directory_that_leads_out_of_the_workspace_is_refused(at: Workbench, cwd: str) -> None:
    (at.root / "sub").mkdir()
    (at.root / "file").touch()
    (at.root / "link").symlink_to(at.outside)
    with pytest.raises(Impossible):
        at.show(sh("true", cwd=cwd))
    assert at.perform(sh("touch ran", cwd=cwd)).state is FAILED
    assert not (at.outside / "ran").exists()


def test_a_program_that_is_missing_has_provably_done_nothing(at: Workbench) -> None:
    end = at.do(action("command", argv=("/no/such/program",)))
    assert end.state is FAILED
    assert "/no/such/program" in end.summary


def test_after_its_timeout_it_is_terminated_and_the_result_is_unknown(at: Workbench) -> None:
    end = at.do(sh("trap 'echo asked; exit 0' TERM; sleep 60 & wait", timeout=1))
    assert end.state is UNKNOWN
    assert "within 1 s" in end.summary
    assert "asked" in end.report


def test_a_program_that_ignores_sigterm_is_killed_with_its_group(
    at: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE", 0.5)
    pid = at.outside / "pid"
    end = at.do(sh(f"trap '' TERM; (trap '' TERM; echo $BASHPID; sleep 60) & echo $! > {pid}; sleep 60", timeout=1))
    assert end.state is UNKNOWN
    child = int(pid.read_text())
    eventually(lambda: not Path(f"/proc/{child}").exists() or "Z" in _state(child), 5)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_endless_output_is_stopped(at: Workbench) -> None:
    at.given(output_cap=100_000)
    end = at.do(action("command", argv=("/bin/sh", "-c", "yes 0123456789 | head -c 300000; sleep 60")))
    assert end.state is UNKNOWN
    assert "wrote more than 100000 bytes" in end.summary
    assert sum(path.stat().st_blocks * 512 for path in at.gate.effect.iterdir()) < 100_000, "the rest was given back"
    assert len(end.report) <= 16_384


def test_endless_output_of_a_process_outside_the_group_is_killed(at: Workbench) -> None:
    at.given(output_cap=100_000)
    pid = at.outside / "pid"
    left = f"setsid sh -c 'echo $$ > {pid}; yes 0123456789 | head -c 300000; sleep 60' & sleep 60"
    end = at.do(action("command", argv=("/bin/sh", "-c", left)))
    assert "wrote more than 100000 bytes" in end.summary
    eventually(lambda: _state(int(pid.read_text())) in "ZX")


def test_the_end_of_a_long_output_is_kept(at: Workbench) -> None:
    end = at.do(sh("yes | head -c 100000; echo; echo last"))
    assert end.report.endswith("last\n")
    assert len(end.report) == 16_384


def test_the_program_is_stopped_with_its_runner(at: Workbench) -> None:
    """An exception out of a signal's handler, as the runner has one."""

    class Stop(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stop

    pid = at.outside / "pid"
    before = signal.signal(signal.SIGUSR1, stop)
    try:

        def interrupt() -> None:
            eventually(pid.exists, 5)
            os.kill(os.getpid(), signal.SIGUSR1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(Stop):
            at.do(sh(f"echo $$ > {pid}.tmp; mv {pid}.tmp {pid}; exec sleep 60"))
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), 20)


def test_it_is_stopped_also_by_a_signal_that_comes_while_it_begins(
    at: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(BaseException):
        pass

    begun: list[Child] = []

    def interrupted(*words: Any) -> Child:
        begun.append(spawn(*words))
        raise Stop  # nobody holds it yet

    monkeypatch.setattr(command, "spawn", interrupted)
    with pytest.raises(Stop):
        at.do(sh("exec sleep 60"))
    assert begun[0].reap() is not None, "it runs on"


# Messages


def openclaw(at: Workbench, script: str) -> None:
    """An `openclaw` that keeps its words, and then does `script`."""
    program = at.outside / "openclaw"
    program.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > {at.outside}/words\n{script}\n')
    program.chmod(0o700)
    at.given(openclaw=(str(program), "--profile", "p"))


def answer(**said: object) -> str:
    return f"cat <<'E'\n{json.dumps(said)}\nE\n"


def cli_error(text: str) -> str:
    return answer(ok=False, error={"type": "cli_error", "message": text}) + "exit 1"


REFUSED = "Gateway not reachable at ws://127.0.0.1:1 (ECONNREFUSED).\nStart it with `openclaw gateway run`"


@pytest.mark.parametrize(
    ("script", "state", "summary"),
    [
        (answer(action="send", messageId="77", payload={"ok": True}), DONE, "sent, as message 77"),
        (answer(action="send", payload={}), DONE, "sent"),
        (cli_error(REFUSED), FAILED, "not sent: Gateway not reachable"),
        (cli_error('Unknown channel "nosuch". Run `openclaw channels list`'), FAILED, "not sent: Unknown channel"),
        (cli_error("Channel is unavailable: discord"), FAILED, "not sent: Channel is unavailable"),
        (cli_error('Unknown account "x" for channel telegram.'), FAILED, "not sent: Unknown account"),
        (cli_error("OutboundDeliveryError: chat not found"), UNKNOWN, "it may have been sent: OutboundDeliveryError"),
        (cli_error("gateway timeout after 10000ms"), UNKNOWN, "it may have been sent: gateway timeout"),
        (answer(ok=False, sentBeforeError=True, error={"message": REFUSED}), UNKNOWN, "it may have been sent"),
        ("exit 1", UNKNOWN, "its answer cannot be parsed"),
        ("echo '[1]'", UNKNOWN, "its answer cannot be parsed"),
        (answer(ok=False, error={"message": "suppressed"}), UNKNOWN, "it may have been sent: suppressed"),
        (answer(messageId="1") + "kill -9 $$", UNKNOWN, "exit status -9"),
    ],
)
def test_only_errors_before_sending_count_as_not_sent(
    at: Workbench, script: str, state: Performed, summary: str
) -> None:
    openclaw(at, script)
    end = at.do(action("message", channel="telegram", target="42", text="hello"))
    assert end.state is state
    assert summary in end.summary


def test_the_words_of_a_message_are_no_options(at: Workbench) -> None:
    openclaw(at, answer(messageId="1"))
    at.do(action("message", channel="slack", target="-t", account="work", text='--dry-run\nand "more" $HOME'))
    words = (at.outside / "words").read_text().split("\0")[:-1]
    assert words == [
        "--profile", "p", "message", "send", "--channel=slack", "--target=-t", "--account=work",
        "--message=--dry-run\nand \"more\" $HOME", "--json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("  \n", "no text"),
        ("see\nMEDIA:/etc/passwd", "MEDIA:"),
        ("  `media: ~/x.png`", "MEDIA:"),
        ("one\\ntwo", "line break"),
        ("[[ reply_to: 3 ]] yes", "as a directive"),
        ("[[audio_as_voice]]", "as a directive"),
        ("a\0b", "NUL"),
    ],
)
def test_a_text_that_openclaw_would_change_is_refused(at: Workbench, text: str, why: str) -> None:
    openclaw(at, answer(messageId="1"))
    act = action("message", channel="slack", target="x", text=text)
    with pytest.raises(Impossible, match=why):
        at.show(act)
    assert at.perform(act).state is FAILED
    assert not (at.outside / "words").exists()


@pytest.mark.parametrize("text", ["the media: are fine", "a [[link]]", "C:\\temp", "100%"])
def test_an_ordinary_text_is_sayable(text: str) -> None:
    assert message_problem(text) is None


def test_a_message_whose_program_was_stopped_may_have_been_sent() -> None:
    end = message_result(ProgramResult(0, "it did not end within 3 s", b'{"messageId": "1"}', b""))
    assert end.state is UNKNOWN
