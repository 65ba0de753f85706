"""One real round trip: a harmless turn of the own agent, and a message to the own mailbox that is no work.

The message reports progress of a task that does not exist: whoever takes it files it in archive/ and does nothing.
It is sent only where the gateway plugin takes it, so that no model sees it.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mailboxd.agents.call_dir import read_capped
from mailboxd.agents.gateway.transport import GatewayTransport
from mailboxd.agents.json_output import brief
from mailboxd.agents.outcome import classify
from mailboxd.agents.run_query import ask
from mailboxd.clock import Clock
from mailboxd.core.outcomes import Failed, Outcome, Succeeded
from mailboxd.doctor.facts import Finding, PluginAnswer, error, note, ok, warning
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.ids import Ids
from mailboxd.mailbox.layout import Workspace
from mailboxd.protocol.codec import parse
from mailboxd.protocol.messages import AckMessage
from mailboxd.store.reports import opened

if TYPE_CHECKING:
    from mailboxd.doctor.examination import Subject

TURN_SECONDS = 120
_GATEWAY_GRACE = 60
FILED_SECONDS = 20.0
_LOOK_EVERY = 0.2
_HEADER = 1024
_TURN = """\
[mailboxd] canary turn

This checks that turns work. Use no tool. Answer with exactly the word below, and with nothing else.

## Word

{word}
"""
_MESSAGE = """\
---
type: progress
message_id: {message}
task_id: canary-{number}
from: {agent}
to: {agent}
---

A canary of `mailboxd doctor`. There is no such task, and nothing is to be done.
"""

_UNDELIVERABLE = """\
---
type: progress
task_id: doctor
from: {agent}
to: {agent}
bytes: 0
---

`mailboxd doctor` asks whether the gateway plugin answers a message. It refuses this one, whose body is not the declared
one. If you, a model, read this: use no tool, do nothing, and answer with the one word: model
"""
_REFUSED = "mailboxd: the message was refused"
"""How the plugin's answer to such a message begins."""
_NOT_USED = ("openclaw gateway restart", "mailboxd plugin install")


def knock(about: Subject, clock: Clock) -> PluginAnswer:
    """Whether the plugin in the running gateway answers a message. It has to refuse this one, so nothing is left of it.

    If the plugin does not answer, the agent's model is asked, once: that is what would become of each message.
    """
    outcome, _ = _turn(about, clock, _UNDELIVERABLE.format(agent=about.settings.agent), "doctor")
    if _called_the_model(outcome):
        return PluginAnswer(refused=False, said=_heard(outcome), by_model=True)
    refused = isinstance(outcome, Failed) and outcome.error.startswith(_REFUSED)
    return PluginAnswer(refused, "" if refused else _heard(outcome))


def fly(
    about: Subject, clock: Clock, pause: Callable[[float], None], *, plugin: bool, daemon: bool
) -> Iterator[Finding]:
    """The round trips, one finding each. `plugin`: the gateway takes messages; `daemon`: one runs here.

    Raises nothing of OpenClaw's; WorldError when the database cannot be read.
    """
    message = Ids().new("msg", clock.now())
    number = message.rpartition("_")[2].lower()
    word = f"canary-{secrets.token_hex(8)}"  # new each time: no text that was there before can be the answer
    turn, seconds = _turn(about, clock, _TURN.format(word=word), f"canary-{number}")
    if not isinstance(turn, Succeeded):
        yield error("canary-turn", f"a turn failed after {seconds:.1f} s: {_problem(turn)}", "openclaw logs")
    elif turn.text.strip() != word:
        said = f"a turn was asked for the word {word} and answered something else: {_line(turn.text)}"
        yield error("canary-turn", said, "openclaw logs")
    else:
        tokens = (turn.usage.input_tokens or 0) + (turn.usage.output_tokens or 0)
        cost = f"{seconds:.1f} s and {tokens:,} tokens"
        yield ok("canary-turn", f"a turn of {about.settings.agent} took {cost}; it answered the word it was asked for")
    if not plugin or about.ws is None:
        text = "no message was sent: the gateway plugin is not there to take it"
        yield note("canary-message", text, "mailboxd plugin install")
        return
    text = _MESSAGE.format(message=message, number=number, agent=about.settings.agent)
    answer, seconds = _turn(about, clock, text, f"canary-{number}-message")
    if _called_the_model(answer):
        text = f"a message to the own mailbox was given to the model, which answered: {_heard(answer)}"
        yield error("canary-message", text, *_NOT_USED)
        return
    if not isinstance(answer, Succeeded) or not _is_ack(answer.text, f"canary-{number}"):
        text = f"a message to the own mailbox was not acknowledged: {_heard(answer)}"
        yield error("canary-message", text, "mailboxd plugin status", "openclaw logs")
        return
    yield ok("canary-message", f"a message to the own mailbox was acknowledged in {seconds:.1f} s, without a model")
    if daemon:
        yield _filed(about.ws, message, clock, pause)
    elif any(message.encode() in read_capped(path, _HEADER)[0] for path in about.ws.inbox.glob("*.md")):
        text = "it waits in the inbox for the next daemon, which files it and does nothing"
        yield note("canary-filed", text, "mailboxd run")
    else:
        yield error("canary-filed", f"it was acknowledged, but is not in {about.ws.inbox}", "openclaw logs")


def _turn(about: Subject, clock: Clock, text: str, piece: str) -> tuple[Outcome | str, float]:
    """How a turn with this message ended, or why it could not begin; and how long it took."""
    ask_, began = about.questions, clock.monotonic()
    agent = about.settings.agent
    with tempfile.TemporaryDirectory(prefix="mailboxd-canary-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        way = ask_.openclaw if about.pairing is None else GatewayTransport(ask_.openclaw, about.pairing)
        argv = way.turn_argv(agent, f"agent:{agent.lower()}:mailboxd:{piece}", file, TURN_SECONDS)
        try:
            outcome: Outcome | str = classify(ask(argv, ask_.environment, TURN_SECONDS + _GATEWAY_GRACE))
        except UnavailableError as problem:
            outcome = str(problem)
    return outcome, clock.monotonic() - began


def _called_the_model(outcome: Outcome | str) -> bool:
    """Whether tokens were used: OpenClaw reports none for a turn that a plugin answered."""
    return isinstance(outcome, Succeeded | Failed) and bool(outcome.usage.input_tokens or outcome.usage.output_tokens)


def _is_ack(text: str, task_id: str) -> bool:
    """Whether `text` acknowledges the message about this task, and no other one."""
    try:
        message = parse(text.encode(), "answer").message
    except MessageError:
        return False
    return isinstance(message, AckMessage) and message.task_id == task_id


def _filed(ws: Workspace, message: str, clock: Clock, pause: Callable[[float], None]) -> Finding:
    began = clock.monotonic()
    while clock.monotonic() - began < FILED_SECONDS:
        with opened(ws.database) as report:
            if (received := report.received(message)) is not None:
                took = clock.monotonic() - began
                return ok("canary-filed", f"the daemon filed it as {received['verdict']} after {took:.1f} s more")
        pause(_LOOK_EVERY)
    text = f"the daemon has not judged it within {FILED_SECONDS:.0f} s"
    return warning("canary-filed", text, "mailboxd status", "mailboxd logs")


def _problem(outcome: Outcome | str) -> str:
    if isinstance(outcome, str):
        return brief(outcome)
    return "it succeeded" if isinstance(outcome, Succeeded) else brief(outcome.error)[:300]


def _heard(outcome: Outcome | str) -> str:
    return _line(outcome.text) if isinstance(outcome, Succeeded) else _problem(outcome)


def _line(text: str) -> str:
    return brief(" ".join(text.split()))[:60]
