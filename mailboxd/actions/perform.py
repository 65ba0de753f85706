"""Performs one action, now. Whoever calls has recorded that it begins, and records how it ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from mailboxd.actions import channel, command, file, http
from mailboxd.actions.gate import Place
from mailboxd.actions.result import End, Impossible, NotNow, Setting, redacted
from mailboxd.agents.openclaw import child_environment
from mailboxd.agents.process import NotStarted
from mailboxd.core.approvals import Action, ActionKind, Performed
from mailboxd.core.outcomes import Permanence
from mailboxd.core.sanitize import first_line
from mailboxd.errors import WorldError


def perform(action: Action, key: str, target_sha256: str, place: Place, setting: Setting) -> End:
    """Let it happen. `target_sha256` is of what stood at the path of a FILE when a person was asked.

    Raises NotNow when the machine refused before anything happened, another WorldError when nobody can say whether it
    happened.
    """
    secrets: dict[str, str] = {}
    try:
        secrets = setting.secrets(action)
        end = _performed(action, key, target_sha256, place, setting)
    except NotStarted as why:
        if why.permanence is Permanence.TRANSIENT:
            raise NotNow(str(why)) from why
        return End(Performed.FAILED, f"nothing happened: {first_line(str(why))}")
    except Impossible as why:
        return End(Performed.FAILED, f"nothing happened: {first_line(str(why))}")
    return replace(end, summary=redacted(end.summary, secrets), report=redacted(end.report, secrets))


def _performed(action: Action, key: str, target_sha256: str, place: Place, setting: Setting) -> End:
    seconds = setting.seconds(action)
    match action.kind:
        case ActionKind.COMMAND:
            env = setting.variables(action)
            ran = command.run(setting, place.effect, action.argv, action.cwd, env, seconds)
            return command.judged(replace(ran, secrets=setting.secrets(action)))
        case ActionKind.MESSAGE:
            if (why := channel.unsayable(action.text)) is not None:
                raise Impossible(why)
            env = child_environment(setting.environ, setting.openclaw_environment)
            argv = channel.words(setting.openclaw, action)
            return channel.judged(command.run(setting, place.effect, argv, "", env, seconds))
        case ActionKind.FILE:
            content = _payload(place)
            if content is None:
                raise Impossible("what it would write is not there any more")
            return file.write(action.path, setting.root, content, target_sha256)
        case ActionKind.HTTP:
            with _at_most(seconds):
                return http.request(action, key, setting.secrets(action), seconds)
        case ActionKind.MANUAL:
            return End(Performed.DONE, "a person did it")


def _payload(place: Place) -> bytes | None:
    try:
        return place.kept("payload")
    except WorldError as why:
        raise NotNow(str(why)) from why


class _Late(OSError):
    """The time is over; an OSError, so that whatever waits for the network takes it for one of its own."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Bounds all of it together: a server that answers one byte a second keeps every single wait short."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise _Late(f"it did not end within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
