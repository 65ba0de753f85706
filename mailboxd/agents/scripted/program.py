"""The stand-in's command line, with the subcommands and errors of `openclaw`, and one turn of a scripted agent."""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
import uuid
from pathlib import Path
from typing import Any

import yaml

from mailboxd.agents.scripted import NAME, NOTICE, Stopped
from mailboxd.agents.scripted.script import Agent, Entry, Ledger, Message, Run, Script, ScriptError, number, runs
from mailboxd.clock import SystemClock
from mailboxd.core.times import to_epoch
from mailboxd.host.system import system

# Files that a scripted agent drops into mailboxes, at once or later from another process

_ECHOED = ("attempt", "attempt_id", "reply_token")


def envelope(message: Message, sender: str, headers: dict[str, str], body: str) -> str:
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
    """Fork a process that writes the reply into the sender's inbox `after` seconds later; returns at once.

    `reply_to` is an agent of the script or a directory; by default the message's sender. Raises ScriptError.
    """
    inbox = _inbox(script, str(late.get("reply_to") or message.headers.get("from", "")))
    after = number(late, "after", "late_reply")
    error = late.get("fail")
    text = message.fill(str(late.get("reply", "Done.") if error is None else error))
    body = f"## Results\n\n{text}\n" if error is None else f"## Error\n\n{text}\n"
    status = "done" if error is None else "failed"
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
        now = SystemClock().now()
        headers = {"type": "reply", "status": status, "completed_at": now, "message_id": f"msg_{uuid.uuid4().hex}"}
        name = f"{message.local_id or 'message'}-reply-{uuid.uuid4().hex[:8]}.md"
        deliver(inbox, name, envelope(message, agent.id, headers, body))
        Ledger(script.ledger).append(
            "late", agent=agent.id, local_id=message.local_id, status=status, file=str(inbox / name)
        )
    finally:
        os._exit(0)


def _inbox(script: Script, target: str) -> Path:
    agent = script.agent(target)
    if agent is not None:
        return agent.inbox
    if not target:
        raise ScriptError("late_reply: no `reply_to`, and the message has no sender")
    return script.base / target


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# The JSON that OpenClaw 2026.9.6 prints, as far as mailboxd reads it

_TIMED_OUT = (
    "Request timed out before a response was generated. Please try again, or increase `agents.defaults.timeoutSeconds` "
    "in your config."
)
_UNREACHABLE = (
    "Gateway not reachable at ws://127.0.0.1:18789 (ECONNREFUSED).\n"
    "Start it with `openclaw gateway run` or check `openclaw gateway status`."
)
_LOST = (
    "gateway closed (1006 abnormal closure (no close frame)): no close reason\n\nThe request was already sent to the "
    "gateway, so the operation may have been applied even though no response arrived; its outcome is unknown."
)
_FAILURES = {
    "not_started": f"{_UNREACHABLE}\n{{error}}",
    "locked_out": "Agent database execution admission is closed",
    "permanent": "⚠️ scripted/stand-in request failed ({error}, HTTP 400).",
    "transient": "⚠️ scripted/stand-in request failed ({error}, HTTP 503). This is usually temporary.",
    "rate_limit": "⚠️ API rate limit reached. Please try again later. ({error})",
}
_LANE = 512
"""Higher than any limit of mailboxd: a stand-in costs little."""
FAILURE_KINDS = tuple(_FAILURES)


def dump(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def success(
    run_id: str, key: str, prompt: str, text: str, cost: float | None = None, *, by_model: bool = True
) -> dict[str, Any]:
    """The envelope of a turn that answered `text`. Tokens are a quarter of the characters, at a fictitious price.

    `cost` in dollars replaces the price. `by_model` is false if the gateway's plugin answered, without tokens.
    """
    usage = {"input": len(prompt) // 4, "output": len(text) // 4, "cacheRead": 0, "cacheWrite": 0}
    cost = round((usage["input"] + 4 * usage["output"]) / 1_000_000, 6) if cost is None else cost
    meta = _meta(run_id, key) | {"finalAssistantVisibleText": text, "stopReason": "stop"}
    if by_model:
        meta["agentMeta"] |= {"usage": {**usage, "total": usage["input"] + usage["output"], "cost": {"total": cost}}}
        meta["agentMeta"] |= {"costUsd": cost, "assistantTurns": 1}
    result = {"payloads": [{"text": text, "mediaUrl": None}], "meta": meta}
    return {"runId": run_id, "status": "ok", "summary": "completed", "result": result}


def timed_out(run_id: str, key: str) -> dict[str, Any]:
    error = {"kind": "incomplete_turn", "message": _TIMED_OUT, "fallbackSafe": False}
    result = {
        "payloads": [{"text": _TIMED_OUT, "isError": True, "mediaUrl": None}],
        "meta": _meta(run_id, key) | {"error": error},
    }
    return {"runId": run_id, "status": "timeout", "summary": "aborted", "result": result}


def failure_json(kind: str, error: str, run_id: str) -> dict[str, Any]:
    """The error envelope of a `fail` rule, without a run id if the call was not accepted."""
    message = _FAILURES[kind].replace("{error}", error)
    return cli_error(message) if kind == "not_started" else cli_error(message, run_id)


def lost(run_id: str) -> dict[str, Any]:
    """The envelope of a call that lost its gateway before the answer."""
    return cli_error(_LOST, run_id)


def cli_error(message: str, run_id: str | None = None) -> dict[str, Any]:
    accepted = {} if run_id is None else {"runId": run_id, "origin": "gateway"}
    return {"ok": False, **accepted, "error": {"type": "cli_error", "message": message}}


def task_row(run: Run) -> dict[str, Any]:
    """The row of `tasks show`."""
    key, begun = run.begin["session_key"], _milliseconds(run.begin["at"])
    row = {"taskId": run.id, "runtime": "cli", "sourceId": run.id, "ownerKey": key, "childSessionKey": key}
    row |= {
        "agentId": run.begin["agent"],
        "runId": run.id,
        "status": run.status,
        "createdAt": begun,
        "startedAt": begun,
    }
    if run.end is None:
        return row
    row |= {"endedAt": _milliseconds(run.end["at"]), "lastEventAt": _milliseconds(run.end["at"])}
    row |= {"toolUseCount": run.end["writes"]} if run.end.get("writes") else {}
    row |= {"error": run.end["error"]} if run.end.get("error") else {}
    return row | {"terminalSummary": run.end.get("error") or "completed"}


def waited(run: Run | None, run_id: str) -> dict[str, Any]:
    """The answer of `agent.wait`."""
    if run is None or run.reply is None:
        return {"runId": run_id, "status": "timeout"}
    reply = {"disposition": "visible", "text": run.reply[:4096]}
    return {"runId": run_id, "status": "ok", "stopReason": "stop", "terminalReply": reply}


def history(key: str, of_session: list[Run]) -> dict[str, Any]:
    """The answer of `chat.history`."""
    messages: list[dict[str, Any]] = []
    for run in of_session:
        messages.append({"role": "user", "content": f"sha256:{run.begin['message_sha256']}"})
        if run.reply is not None:
            content = [{"type": "text", "text": run.reply}]
            messages.append(
                {"role": "assistant", "content": content, "stopReason": "stop", "__openclaw": {"runId": run.id}}
            )
    return {"sessionKey": key, "messages": messages, "hasMore": False, "totalMessages": len(messages)}


def agents_list(agents: list[Agent]) -> list[dict[str, Any]]:
    return [
        {"id": agent.id, "workspace": str(agent.workspace or ""), "bindings": 0, "isDefault": agent.is_default}
        | ({"name": agent.name} if agent.name else {})
        for agent in agents
    ]


def agents_config(agents: list[Agent]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for agent in agents:
        entries[agent.id] = {} if agent.workspace is None else {"workspace": str(agent.workspace)}
        entries[agent.id]["subagents"] = {"allowAgents": ["*"] if agent.allow is None else agent.allow}
    return {"ownership": "explicit", "defaults": {"maxConcurrent": _LANE}, "entries": entries}


def _meta(run_id: str, key: str) -> dict[str, Any]:
    session = str(uuid.uuid5(uuid.NAMESPACE_URL, key))
    agent: dict[str, Any] = {"sessionId": session, "sessionFile": key, "provider": "scripted", "model": "stand-in"}
    agent |= {"terminalReceipt": {"runId": run_id, "sessionId": session, "successfulToolNames": []}}
    return {"durationMs": 0, "aborted": False, "agentMeta": agent}


def _milliseconds(at: str) -> int:
    return round(to_epoch(at) * 1000)


# One turn of a scripted agent: wait, write files and answer, as its rule says


class TurnEnd:
    """The end of a turn: its output, exit status, and ledger entry."""

    def __init__(self, output: str, rc: int, status: str, reply: str | None = None, error: str = "") -> None:
        self.output = output
        self.rc = rc
        self.status = status
        self.reply = reply
        self.error = error


class Turn:
    """A call of `agent` in session `key`; `timeout` in seconds."""

    def __init__(self, script: Script, agent: Agent, key: str, text: str, timeout: float, model: str = "") -> None:
        self.script = script
        self.agent = agent
        self.key = key
        self.message = Message(text)
        self.timeout = timeout
        self.model = model
        self.run_id = str(uuid.uuid4())
        self.rule: dict[str, Any] = {}
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

    def _begin(self) -> Entry:
        delivered = self.agent.has_mailbox and self.message.envelope != ""
        number = -2
        if not delivered:
            earlier = self.ledger.entries() if self.agent.counts else []
            number, self.rule = self.agent.choose(self.message, earlier)
        message, failure = self.message, self.rule.get("fail")
        return {
            "run_id": self.run_id,
            "accepted": not (isinstance(failure, dict) and failure.get("kind") == "not_started"),
            "agent": self.agent.id,
            "session_key": self.key,
            "model": self.model,
            "rule": number,
            "message_sha256": hashlib.sha256(message.text.encode()).hexdigest(),
            "kind": message.kind,
            "from": message.headers.get("from", ""),
            "task_id": message.task_id,
            "subtask_id": message.subtask_id,
            "local_id": message.local_id,
            "attempt": message.attempt,
            "attempt_id": message.headers.get("attempt_id", ""),
            "message_id": message.headers.get("message_id", ""),
        }

    def _end(self, ended: TurnEnd) -> None:
        writes = len(self.rule.get("writes") or {}) if ended.status == "succeeded" else 0
        reply = {} if ended.reply is None else {"reply": ended.reply}
        self.ledger.append(
            "end", run_id=self.run_id, status=ended.status, rc=ended.rc, writes=writes, error=ended.error, **reply
        )

    def _act(self) -> TurnEnd:
        if self.agent.has_mailbox and self.message.envelope:
            deliver(
                self.agent.inbox, f"{self.message.local_id or 'message'}-{self.run_id[:8]}.md", self.message.envelope
            )
            return self._answered(self._structured("ack"), by_model=False)  # as with mailboxd's plugin
        wait = number(self.rule, "delay", "rule") + number(self.rule, "hang", "rule")
        _pause(min(wait, self.timeout))
        if wait >= self.timeout:
            return TurnEnd(dump(timed_out(self.run_id, self.key)), 1, "timed_out", error="timed out")
        if "fail" in self.rule:
            return self._failed(self.rule["fail"])
        for path, text in (self.rule.get("writes") or {}).items():
            self._write(str(path), self.message.fill(str(text)))
        if "garbage" in self.rule:
            return TurnEnd(str(self.rule["garbage"]), 0, "succeeded", reply=str(self.rule["garbage"]))
        return self._answered(self._reply())

    def _answered(self, text: str, *, by_model: bool = True) -> TurnEnd:
        if self.rule.get("lose_reply") == "true":
            return TurnEnd(dump(lost(self.run_id)), 1, "succeeded", reply=text)
        cost = number(self.rule, "cost", "rule") if "cost" in self.rule else None
        answer = success(self.run_id, self.key, self.message.text, text, cost, by_model=by_model)
        return TurnEnd(dump(answer), 0, "succeeded", reply=text)

    def _failed(self, failure: object) -> TurnEnd:
        fields: dict[str, Any] = failure if isinstance(failure, dict) else {"error": failure}
        kind, error = str(fields.get("kind", "transient")), str(fields.get("error", "scripted failure"))
        if kind not in FAILURE_KINDS:
            raise ScriptError(f"fail.kind: {kind} is unknown; known are {', '.join(FAILURE_KINDS)}")
        rc = int(number({"rc": 1, **fields}, "rc", "fail"))
        answer = failure_json(kind, error, self.run_id)
        return TurnEnd(dump(answer), rc, "failed", error=answer["error"]["message"])

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
        if "reply_file" in rule:
            return self.message.fill((self.script.base / str(rule["reply_file"])).read_text(encoding="utf-8"))
        return self.message.fill(str(rule.get("reply", "")))

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


def _pause(seconds: float) -> None:
    # interrupted by a signal, whose handler raises
    select.select([], [], [], seconds)


_VERSION = "2026.9.6"
_MESSAGE_CAP = 4_194_304
_AGENT_OPTIONS = frozenset(
    {"--agent", "--session-key", "--message", "-m", "--message-file", "--timeout", "--model", "--thinking"}
)
_SHELL = (
    "Gateway agent from agent exec would lose inter-session attribution. Use the attributed session-messaging tool "
    "available to this run, or return the result through normal subagent completion. Do not retry through another CLI "
    "route or remove the exec marker."
)


class Refused(Exception):
    """An error of the command line, in OpenClaw's words."""


def run(arguments: list[str]) -> int:
    """Carry out one command line, print its output and return the exit status."""
    path = os.environ.get("MAILBOXD_SCRIPT", "")
    if arguments[:1] == ["--script"]:
        path, arguments = arguments[1] if len(arguments) > 1 else "", arguments[2:]
    if arguments == ["--version"]:
        output, status = f"OpenClaw {_VERSION} ({NAME}: a scripted stand-in, not the real one)", 0
    else:
        output, status = _run(path, [argument for argument in arguments if argument != "--json"])
    sys.stdout.write(output + "\n")
    sys.stdout.flush()
    sys.stderr.write(NOTICE + "\n")
    return status


def _run(path: str, arguments: list[str]) -> tuple[str, int]:
    try:
        if not path:
            raise Refused(f"{NAME}: no script; give --script FILE first or set MAILBOXD_SCRIPT")
        script = Script(Path(path))
        if arguments[:1] == ["agent"]:
            return _agent(script, arguments[1:])
        return dump(_ask(script, arguments)), 0
    except (ScriptError, OSError) as problem:
        return dump(cli_error(f"{NAME}: {problem}")), 1
    except Refused as problem:
        return dump(cli_error(str(problem))), 1


def _ask(script: Script, arguments: list[str]) -> object:
    match arguments:
        case ["agents", "list"]:
            return agents_list(script.agents)
        case ["config", "file"]:
            return {"path": str(script.path)}
        case ["config", "get", "agents"]:
            return agents_config(script.agents)
        case ["config", "get", "gateway"] if isinstance(script.gateway, dict):
            return {"mode": "local", "port": int(number(script.gateway, "port", "gateway"))}
        case ["config", "get", name]:
            raise Refused(f"Config path is valid but unset: {name}. The runtime default applies.")
        case ["tasks", "show", token]:
            return task_row(_row(script, token))
        case ["gateway", "call", method, "--params", parameters]:
            return _call(script, method, parameters)
    raise Refused(f"{NAME}: unsupported command: {' '.join(arguments)[:200]}")


def _row(script: Script, token: str) -> Run:
    for found in reversed(runs(Ledger(script.ledger).entries())):
        if token in (found.id, found.begin["session_key"]):
            return found
    raise Refused(f"Task not found: {token}. Run `openclaw tasks list` to see recent task ids.")


def _call(script: Script, method: str, parameters: str) -> object:
    try:
        values = json.loads(parameters)
        name = values["runId"] if method == "agent.wait" else values["sessionKey"]
    except (ValueError, KeyError, TypeError):
        raise Refused(f"Invalid --params for {method}") from None
    known = runs(Ledger(script.ledger).entries())
    if method == "agent.wait":
        return waited(next((found for found in known if found.id == name), None), str(name))
    if method == "chat.history":
        return history(name, [found for found in known if found.begin["session_key"] == name])
    raise Refused(f"unknown method: {method}")


def _agent(script: Script, arguments: list[str]) -> tuple[str, int]:
    if os.environ.get("OPENCLAW_SHELL") == "exec":
        raise Refused(_SHELL)
    options = _options(arguments)
    name = options.get("--agent", "")
    agent = script.agent(name)
    if agent is None:
        raise Refused(f'Unknown agent id "{name}". Use "openclaw agents list" to see configured agents.')
    text = _message(options)
    limit = options.get("--timeout", "600")
    if not limit.isdecimal():
        raise Refused("Invalid --timeout. Use seconds as a non-negative integer, for example --timeout 600.")
    key = options.get("--session-key", "main").lower()
    if not key.startswith("agent:"):
        key = f"agent:{agent.id.lower()}:{key}"
    elif key.split(":")[1] != agent.id.lower():
        raise Refused(f'Agent id "{name}" does not match session key agent "{key.split(":")[1]}".')
    model = options.get("--model", "")
    ended = Turn(script, agent, key, text, float(limit), model).run()
    return ended.output, ended.rc


def _options(arguments: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = iter(arguments)
    for option in rest:
        if option not in _AGENT_OPTIONS:
            raise Refused(f'OpenClaw does not recognize option "{option}".\nTry: openclaw agent --help')
        options[option] = next(rest, "")
    return options


def _message(options: dict[str, str]) -> str:
    if "--message-file" not in options:
        return options.get("--message", options.get("-m", ""))
    path = Path(options["--message-file"])
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise Refused(f"Message file not found: {path}") from None
    except OSError as problem:
        raise Refused(f"Unable to read message file {path}: {problem}") from problem
    except UnicodeDecodeError:
        raise Refused(f"Message file must be valid UTF-8: {path}") from None
    if len(raw) > _MESSAGE_CAP:
        raise Refused(f"Unable to read message file {path}: File exceeds {_MESSAGE_CAP} bytes: {path}")
    if not text.strip():
        raise Refused(f"Message file is empty: {path}")
    return text
