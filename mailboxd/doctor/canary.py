"""A real round trip: a harmless turn of this workspace's agent, and a message to its mailbox that causes no work.

The message reports progress of a task that does not exist: it is filed in archive/ and has no effect. It is sent only
if the gateway plugin handles it, so that no model sees it.
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
from mailboxd.doctor.facts import CheckResult, PluginAnswer, error, note, ok, warning
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.ids import Ids
from mailboxd.mailbox.layout import Workspace
from mailboxd.protocol.messages import AckMessage, parse_message
from mailboxd.store.reports import opened

if TYPE_CHECKING:
    from mailboxd.doctor.diagnose import Target

TURN_SECONDS = 120
_GATEWAY_GRACE = 60
FILED_SECONDS = 20.0
_POLL_SECONDS = 0.2
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

A canary of `mailboxd doctor`. There is no such task; nothing needs to be done.
"""

_UNDELIVERABLE = """\
---
type: progress
task_id: doctor
from: {agent}
to: {agent}
bytes: 0
---

`mailboxd doctor` tests whether the gateway plugin handles messages. It refuses this one, whose body differs from its
declared size. If you, a model, read this: use no tool, do nothing, and answer with one word: model
"""
_REFUSED = "mailboxd: the message was refused"
"""The beginning of the plugin's answer to such a message."""
_FIX_PLUGIN = ("openclaw gateway restart", "mailboxd plugin install")


def probe_plugin(target: Target, clock: Clock) -> PluginAnswer:
    """Send the running gateway a message that its plugin has to refuse, so that nothing is delivered.

    If the plugin does not handle it, the message reaches the agent's model, once, as every message would.
    """
    outcome, _ = _turn(target, clock, _UNDELIVERABLE.format(agent=target.settings.agent), "doctor")
    if _called_the_model(outcome):
        return PluginAnswer(refused=False, said=_summary(outcome), by_model=True)
    refused = isinstance(outcome, Failed) and outcome.error.startswith(_REFUSED)
    return PluginAnswer(refused, "" if refused else _summary(outcome))


def run_canary(
    target: Target, clock: Clock, pause: Callable[[float], None], *, plugin: bool, daemon: bool
) -> Iterator[CheckResult]:
    """Run the canary. `plugin`: the gateway accepts messages; `daemon`: one is running in this workspace.

    Raises WorldError if the database cannot be read.
    """
    message = Ids().new("msg", clock.now())
    number = message.rpartition("_")[2].lower()
    word = f"canary-{secrets.token_hex(8)}"  # new each time, so that no earlier text can pass for the answer
    turn, seconds = _turn(target, clock, _TURN.format(word=word), f"canary-{number}")
    if not isinstance(turn, Succeeded):
        yield error("canary-turn", f"a turn failed after {seconds:.1f} s: {_problem(turn)}", "openclaw logs")
    elif turn.text.strip() != word:
        text = f"a turn had to answer {word} and answered something else: {_line(turn.text)}"
        yield error("canary-turn", text, "openclaw logs")
    else:
        tokens = (turn.usage.input_tokens or 0) + (turn.usage.output_tokens or 0)
        cost = f"{seconds:.1f} s and {tokens:,} tokens"
        yield ok("canary-turn", f"a turn of {target.settings.agent} took {cost}, and its answer was right")
    if not plugin or target.ws is None:
        text = "no message was sent: the gateway plugin is not installed or does not work"
        yield note("canary-message", text, "mailboxd plugin install")
        return
    text = _MESSAGE.format(message=message, number=number, agent=target.settings.agent)
    answer, seconds = _turn(target, clock, text, f"canary-{number}-message")
    if _called_the_model(answer):
        text = f"a message to this mailbox reached the model, which answered: {_summary(answer)}"
        yield error("canary-message", text, *_FIX_PLUGIN)
        return
    if not isinstance(answer, Succeeded) or not _is_ack(answer.text, f"canary-{number}"):
        text = f"a message to this mailbox was not acknowledged: {_summary(answer)}"
        yield error("canary-message", text, "mailboxd plugin status", "openclaw logs")
        return
    yield ok("canary-message", f"a message to this mailbox was acknowledged in {seconds:.1f} s without a model")
    if daemon:
        yield _filed(target.ws, message, clock, pause)
    elif any(message.encode() in read_capped(path, _HEADER)[0] for path in target.ws.inbox.glob("*.md")):
        text = "it waits in the inbox for a daemon, which will file it without effect"
        yield note("canary-filed", text, "mailboxd run")
    else:
        yield error("canary-filed", f"it was acknowledged, but is not in {target.ws.inbox}", "openclaw logs")


def _turn(target: Target, clock: Clock, text: str, session: str) -> tuple[Outcome | str, float]:
    """The outcome of a turn with this message, or why it did not start; and its duration in seconds."""
    probes, started = target.openclaw, clock.monotonic()
    agent = target.settings.agent
    with tempfile.TemporaryDirectory(prefix="mailboxd-canary-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        transport = probes.openclaw if target.pairing is None else GatewayTransport(probes.openclaw, target.pairing)
        argv = transport.turn_argv(agent, f"agent:{agent.lower()}:mailboxd:{session}", file, TURN_SECONDS)
        try:
            outcome: Outcome | str = classify(ask(argv, probes.environment, TURN_SECONDS + _GATEWAY_GRACE))
        except UnavailableError as problem:
            outcome = str(problem)
    return outcome, clock.monotonic() - started


def _called_the_model(outcome: Outcome | str) -> bool:
    """Whether OpenClaw reports tokens; it reports none for a turn that a plugin answered."""
    return isinstance(outcome, Succeeded | Failed) and bool(outcome.usage.input_tokens or outcome.usage.output_tokens)


def _is_ack(text: str, task_id: str) -> bool:
    """Whether `text` acknowledges the message about this task."""
    try:
        message = parse_message(text.encode(), "answer").message
    except MessageError:
        return False
    return isinstance(message, AckMessage) and message.task_id == task_id


def _filed(ws: Workspace, message: str, clock: Clock, pause: Callable[[float], None]) -> CheckResult:
    started = clock.monotonic()
    while clock.monotonic() - started < FILED_SECONDS:
        with opened(ws.database) as report:
            if (received := report.received(message)) is not None:
                took = clock.monotonic() - started
                return ok("canary-filed", f"the daemon filed it as {received['verdict']} {took:.1f} s later")
        pause(_POLL_SECONDS)
    text = f"the daemon did not process it within {FILED_SECONDS:.0f} s"
    return warning("canary-filed", text, "mailboxd status", "mailboxd logs")


def _problem(outcome: Outcome | str) -> str:
    if isinstance(outcome, str):
        return brief(outcome)
    return "it succeeded" if isinstance(outcome, Succeeded) else brief(outcome.error)[:300]


def _summary(outcome: Outcome | str) -> str:
    return _line(outcome.text) if isinstance(outcome, Succeeded) else _problem(outcome)


def _line(text: str) -> str:
    return brief(" ".join(text.split()))[:60]
