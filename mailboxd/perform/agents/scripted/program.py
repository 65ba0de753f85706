"""The stand-in's command line, with the subcommands and errors of `openclaw`, and one turn of a scripted agent.

The JSON is what OpenClaw 2026.9.6 prints, as far as mailboxd reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import yaml

from mailboxd.host.clock import SystemClock
from mailboxd.host.system import system
from mailboxd.perform.agents.scripted import NAME, NOTICE, Stopped
from mailboxd.perform.agents.scripted.script import (
    Agent,
    Entry,
    Ledger,
    Message,
    Run,
    Script,
    ScriptError,
    number,
    runs,
)

# Files that a scripted agent drops into mailboxes, at once or later from another process

_ECHOED = ("attempt", "attempt_id", "reply_token")


def envelope(message: Message, sender: str, headers: dict[str, str], body: str = "") -> str:
    """A protocol message from `sender` that answers `message`, with the headers that a mailboxd peer echoes."""
    lines = {"task_id": message.task_id, "subtask_id": message.subtask_id, "from": sender, **headers}
    lines |= {name: message.headers.get(name, "") for name in _ECHOED}
    lines["in_reply_to"] = message.headers.get("message_id", "")
    front = "".join(f"{name}: {_quoted(text)}\n" for name, text in lines.items() if text)
    return f"---\n{front}---\n\n{body}".rstrip("\n") + "\n"


def deliver(inbox: Path, name: str, text: str) -> None:
    """Write the file `name` into `inbox` atomically."""
    inbox.mkdir(parents=True, exist_ok=True)
    temporary = inbox / f".{name}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        system.sync(file.fileno())
    temporary.rename(inbox / name)


def reply_later(script: Script, agent: Agent, message: Message, late: dict[str, Any]) -> None:
    """Fork a process that writes the reply into the sender's inbox `after` seconds later; returns at once."""
    sender = script.agent(message.headers.get("from", ""))
    if sender is None:
        raise ScriptError("late_reply: the message has no sender that is an agent of the script")
    after, text = number(late, "after", "late_reply"), message.fill(str(late.get("reply", "Done.")))
    if os.fork() > 0:
        return
    # The child must keep nothing of the call: neither its output, lock nor process group.
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        os.closerange(3, 4096)
        select.select([], [], [], after)
        headers = {"type": "reply", "status": "done", "completed_at": SystemClock().now()}
        headers["message_id"] = f"msg_{uuid.uuid4().hex}"
        name = f"{message.local_id or 'message'}-reply-{uuid.uuid4().hex[:8]}.md"
        deliver(sender.inbox, name, envelope(message, agent.id, headers, f"## Results\n\n{text}\n"))
    finally:
        os._exit(0)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# What a turn prints

_TIMED_OUT = "Request timed out before a response was generated. Please try again."
_LOST = (
    "gateway closed (1006 abnormal closure (no close frame)): no close reason\n\nThe request was already sent to the "
    "gateway, so the operation may have been applied even though no response arrived; its outcome is unknown."
)
_NOT_STARTED = "not_started"
_FAILURES = {
    _NOT_STARTED: "Gateway not reachable at ws://127.0.0.1:18789 (ECONNREFUSED).\n{error}",
    "locked_out": "Agent database execution admission is closed",
    "permanent": "⚠️ scripted/stand-in request failed ({error}, HTTP 400).",
    "transient": "⚠️ scripted/stand-in request failed ({error}, HTTP 503). This is usually temporary.",
    "rate_limit": "⚠️ API rate limit reached. Please try again later. ({error})",
}


def success(
    run_id: str, key: str, prompt: str, text: str, cost: float | None = None, *, by_model: bool = True
) -> dict[str, Any]:
    """A turn that answered `text`. Tokens are a quarter of the characters, at a fictitious price.

    `cost` in dollars replaces the price. `by_model` is false if the gateway's plugin answered, without tokens.
    """
    meta: dict[str, Any] = {"finalAssistantVisibleText": text, "stopReason": "stop", "agentMeta": _session(key)}
    if by_model:
        usage: dict[str, Any] = {"input": len(prompt) // 4, "output": len(text) // 4}
        cost = round((usage["input"] + 4 * usage["output"]) / 1_000_000, 6) if cost is None else cost
        meta["agentMeta"] |= {"usage": {**usage, "cost": {"total": cost}}, "costUsd": cost}
    return {"runId": run_id, "status": "ok", "result": {"payloads": [{"text": text}], "meta": meta}}


def timed_out(run_id: str, key: str) -> dict[str, Any]:
    meta = {"error": {"kind": "incomplete_turn", "message": _TIMED_OUT}, "agentMeta": _session(key)}
    result = {"payloads": [{"text": _TIMED_OUT, "isError": True}], "meta": meta}
    return {"runId": run_id, "status": "timeout", "result": result}


def failure_json(kind: str, error: str, run_id: str) -> dict[str, Any]:
    """The error of a `fail` rule, without a run id if the call was not accepted."""
    return cli_error(_FAILURES[kind].replace("{error}", error), None if kind == _NOT_STARTED else run_id)


def lost(run_id: str) -> dict[str, Any]:
    """A call that lost its gateway before the answer."""
    return cli_error(_LOST, run_id)


def cli_error(message: str, run_id: str | None = None) -> dict[str, Any]:
    accepted = {} if run_id is None else {"runId": run_id, "origin": "gateway"}
    return {"ok": False, **accepted, "error": {"type": "cli_error", "message": message}}


def _session(key: str) -> dict[str, Any]:
    return {"sessionId": str(uuid.uuid5(uuid.NAMESPACE_URL, key))}


# One turn of a scripted agent: wait, write files and answer, as its rule says


_ASKED_AGAIN = -3
"""The number of the rule that answers, in the form, what an evasion was to be."""


class TurnEnd:
    """The end of a turn: its output (text, or a value that is printed as JSON), exit status, and ledger entry."""

    def __init__(self, output: object, rc: int, status: str, reply: str | None = None, error: str = "") -> None:
        self.output = output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)
        self.rc = rc
        self.status = status
        self.reply = reply
        self.error = error


class Turn:
    """A call of `agent` in session `key`; `timeout` in seconds."""

    def __init__(self, script: Script, agent: Agent, key: str, text: str, timeout: float, model: str) -> None:
        self.script = script
        self.agent = agent
        self.key = key
        self.message = Message(text)
        self.timeout = timeout
        self.model = model
        self.run_id = str(uuid.uuid4())
        self.rule: dict[str, Any] = {}
        self.meant: str | None = None
        self.ledger = Ledger(script.ledger)

    def run(self) -> TurnEnd:
        """Carry out the rule and record it. Raises ScriptError; records Stopped as cancelled and raises it."""
        self.ledger.begin(self._begin)
        try:
            ended = self._act()
        except Stopped:
            self._end(TurnEnd("", 143, "cancelled", error="This operation was aborted"))
            raise
        except (ScriptError, OSError) as problem:
            self._end(TurnEnd("", 1, "failed", error=str(problem)))
            raise ScriptError(str(problem)) from problem
        self._end(ended)
        return ended

    @property
    def _is_delivery(self) -> bool:
        """Whether the agent's mailbox takes the message, as with mailboxd's plugin."""
        return self.agent.has_mailbox and self.message.envelope != ""

    def _begin(self) -> Entry:
        number = -2
        if not self._is_delivery:
            number, self.rule = self._chosen()
        message, failure = self.message, self.rule.get("fail")
        headers = {name: message.headers.get(name, "") for name in ("from", "attempt_id", "message_id")}
        return {
            "run_id": self.run_id,
            "accepted": not (isinstance(failure, dict) and failure.get("kind") == _NOT_STARTED),
            "agent": self.agent.id,
            "session_key": self.key,
            "model": self.model,
            "rule": number,
            "message_sha256": hashlib.sha256(message.text.encode()).hexdigest(),
            "kind": message.kind,
            "task_id": message.task_id,
            "subtask_id": message.subtask_id,
            "local_id": message.local_id,
            "attempt": message.attempt,
            **headers,
        }

    def _chosen(self) -> tuple[int, dict[str, Any]]:
        """The number of the rule that is carried out, and the rule."""
        earlier = self.ledger.entries() if self.agent.counts or self.message.asks_again else []
        if self.message.asks_again:
            last = next((run for run in reversed(runs(earlier)) if run.begin["session_key"] == self.key), None)
            if last is not None and last.meant is not None:
                return _ASKED_AGAIN, {"reply": last.meant}
        return self.agent.choose(self.message, earlier)

    def _end(self, ended: TurnEnd) -> None:
        writes = len(self.rule.get("writes") or {}) if ended.status == "succeeded" else 0
        said = {"reply": ended.reply, "meant": self.meant}
        said = {name: text for name, text in said.items() if text is not None}
        self.ledger.append(
            "end", run_id=self.run_id, status=ended.status, rc=ended.rc, writes=writes, error=ended.error, **said
        )

    def _act(self) -> TurnEnd:
        if self._is_delivery:
            name = f"{self.message.local_id or 'message'}-{self.run_id[:8]}.md"
            deliver(self.agent.inbox, name, self.message.envelope)
            return self._answered(self._structured("ack"), by_model=False)
        wait = number(self.rule, "delay", "rule") + number(self.rule, "hang", "rule")
        _wait(min(wait, self.timeout))
        if wait >= self.timeout:
            return TurnEnd(timed_out(self.run_id, self.key), 1, "timed_out", error="timed out")
        if "fail" in self.rule:
            return self._failed(self.rule["fail"])
        for path, text in (self.rule.get("writes") or {}).items():
            self._write(str(path), self.message.fill(str(text)))
        if "garbage" in self.rule:
            return TurnEnd(str(self.rule["garbage"]), 0, "succeeded", reply=str(self.rule["garbage"]))
        return self._answered(self._in_dialect(self._reply()))

    def _answered(self, text: str, *, by_model: bool = True) -> TurnEnd:
        if self.rule.get("lose_reply") == "true":
            return TurnEnd(lost(self.run_id), 1, "succeeded", reply=text)
        cost = number(self.rule, "cost", "rule") if "cost" in self.rule else None
        answer = success(self.run_id, self.key, self.message.text, text, cost, by_model=by_model)
        return TurnEnd(answer, 0, "succeeded", reply=text)

    def _failed(self, failure: object) -> TurnEnd:
        fields: dict[str, Any] = failure if isinstance(failure, dict) else {"error": failure}
        kind, error = str(fields.get("kind", "transient")), str(fields.get("error", "scripted failure"))
        if kind not in _FAILURES:
            raise ScriptError(f"fail.kind: {kind} is unknown; known are {', '.join(_FAILURES)}")
        answer, rc = failure_json(kind, error, self.run_id), int(number({"rc": 1, **fields}, "rc", "fail"))
        return TurnEnd(answer, rc, "failed", error=answer["error"]["message"])

    def _reply(self) -> str:
        rule = self.rule
        if "late_reply" in rule:
            reply_later(self.script, self.agent, self.message, dict(rule["late_reply"]))
            return self._structured("ack")
        if "plan" in rule:
            plan = rule["plan"] if "subtasks" in rule["plan"] else {"subtasks": rule["plan"]}
            dag = yaml.safe_dump(plan, sort_keys=False, allow_unicode=True)
            return self._structured("plan", f"# Plan\n\n## DAG\n\n```yaml\n{self.message.fill(dag)}```\n")
        if "question" in rule:
            return self._structured("question", self.message.fill(str(rule["question"])))
        return self.message.fill(str(rule.get("reply", "")))

    def _in_dialect(self, text: str) -> str:
        """`text`, an answer in the form as asked, as this agent writes it."""
        name, message = self.agent.dialect or self.script.dialect, self.message
        if not name or message.asks_again:
            return text
        from mailboxd.perform.agents.scripted.dialects import respelled  # takes longer than the rest of a call

        seed = f"{self.script.seed} {self.agent.id} {message.local_id} {message.kind} {message.attempt}"
        said = respelled(text, message.kind, message.answers, name, seed)
        if said is None:
            return text
        self.meant = text if said.evades else None
        return said.text

    def _structured(self, kind: str, body: str = "") -> str:
        return envelope(self.message, self.agent.id, {"type": kind}, body)

    def _write(self, name: str, text: str) -> None:
        if self.agent.workspace is None:
            raise ScriptError(f"agents.{self.agent.id}: `writes` needs a `workspace`")
        path = Path(os.path.normpath(self.agent.workspace / name))
        if not path.is_relative_to(os.path.normpath(self.agent.workspace)):
            raise ScriptError(f"writes: {name} is outside the workspace")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _wait(seconds: float) -> None:
    """Wait until a signal's handler raises; one that comes just before the wait ends it as well."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    try:
        select.select([read], [], [], seconds)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(read)
        os.close(write)


# The command line

_VERSION = "2026.9.6"
_LANE = 512
"""Higher than any limit of mailboxd: a stand-in costs little."""


class CommandLineError(Exception):
    """An error of the command line, in OpenClaw's words."""


def run(arguments: list[str]) -> int:
    """Carry out one command line, print its output and return the exit status."""
    path = os.environ.get("MAILBOXD_SCRIPT", "")
    if arguments[:1] == ["--script"]:
        path, arguments = arguments[1] if len(arguments) > 1 else "", arguments[2:]
    if arguments == ["--version"]:
        ended = TurnEnd(f"OpenClaw {_VERSION} ({NAME}: a scripted stand-in, not the real one)", 0, "")
    else:
        ended = _run(path, [argument for argument in arguments if argument != "--json"])
    sys.stdout.write(ended.output + "\n")
    sys.stdout.flush()
    sys.stderr.write(NOTICE + "\n")
    return ended.rc


def _run(path: str, arguments: list[str]) -> TurnEnd:
    try:
        if not path:
            raise CommandLineError(f"{NAME}: no script; give --script FILE first or set MAILBOXD_SCRIPT")
        script = Script(Path(path))
        return _agent(script, arguments[1:]) if arguments[:1] == ["agent"] else TurnEnd(_ask(script, arguments), 0, "")
    except (ScriptError, OSError) as problem:
        return TurnEnd(cli_error(f"{NAME}: {problem}"), 1, "")
    except CommandLineError as problem:
        return TurnEnd(cli_error(str(problem)), 1, "")


def _agent(script: Script, arguments: list[str]) -> TurnEnd:
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    agent = script.agent(options.get("--agent", ""))
    if agent is None:
        raise CommandLineError(f'Unknown agent id "{options.get("--agent", "")}". Use "openclaw agents list".')
    path = Path(options.get("--message-file", ""))
    text = path.read_text(encoding="utf-8")
    if not text.strip():
        raise CommandLineError(f"Message file is empty: {path}")
    timeout, key = float(options.get("--timeout", "600")), options.get("--session-key", f"agent:{agent.id}:main")
    return Turn(script, agent, key.lower(), text, timeout, options.get("--model", "")).run()


def _ask(script: Script, arguments: list[str]) -> object:
    match arguments:
        case ["agents", "list"]:
            return [
                {"id": agent.id, "name": agent.name, "workspace": _workspace(agent), "isDefault": agent.is_default}
                for agent in script.agents
            ]
        case ["config", "file"]:
            return {"path": str(script.path)}
        case ["config", "get", "agents"]:
            return {"defaults": {"maxConcurrent": _LANE}, "entries": {one.id: _entry(one) for one in script.agents}}
        case ["config", "get", "gateway"] if isinstance(script.gateway, dict):
            return {"mode": "local", "port": int(number(script.gateway, "port", "gateway"))}
        case ["config", "get", name]:
            raise CommandLineError(f"Config path is valid but unset: {name}. The runtime default applies.")
        case ["tasks", "show", token]:
            return _row(script, token)
        case ["gateway", "call", "agent.wait", "--params", parameters]:
            return _waited(script, json.loads(parameters)["runId"])
        case ["gateway", "call", "chat.history", "--params", parameters]:
            return _history(script, json.loads(parameters)["sessionKey"])
    raise CommandLineError(f"{NAME}: unsupported command: {' '.join(arguments)[:200]}")


def _workspace(agent: Agent) -> str:
    return str(agent.workspace or "")


def _entry(agent: Agent) -> dict[str, Any]:
    allowed = ["*"] if agent.allow is None else agent.allow
    return {"workspace": _workspace(agent), "subagents": {"allowAgents": allowed}}


def _runs(script: Script) -> list[Run]:
    return runs(Ledger(script.ledger).entries())


def _row(script: Script, token: str) -> dict[str, Any]:
    found = next((run for run in reversed(_runs(script)) if token in (run.id, run.begin["session_key"])), None)
    if found is None:
        raise CommandLineError(f"Task not found: {token}. Run `openclaw tasks list` to see recent task ids.")
    end = found.end or {}
    row = {"runId": found.id, "agentId": found.begin["agent"], "status": found.status}
    return row | {"toolUseCount": end.get("writes", 0), "error": end.get("error", "")}


def _waited(script: Script, run_id: str) -> dict[str, Any]:
    run = next((found for found in _runs(script) if found.id == run_id), None)
    if run is None or run.reply is None:
        return {"runId": run_id, "status": "timeout"}
    return {"runId": run_id, "status": "ok", "terminalReply": {"text": run.reply[:4096]}}


def _history(script: Script, key: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for run in _runs(script):
        if run.begin["session_key"] == key:
            messages.append({"role": "user", "content": "the prompt"})
            if run.reply is not None:
                said = {"role": "assistant", "content": [{"type": "text", "text": run.reply}], "stopReason": "stop"}
                messages.append(said | {"__openclaw": {"runId": run.id}})
    return {"sessionKey": key, "messages": messages, "hasMore": False}
