"""One turn of a scripted agent: wait, write, answer, as its rule says, and a line in the ledger for each end."""

from __future__ import annotations

import hashlib
import os
import select
import uuid
from pathlib import Path
from typing import Any

import yaml

from mailboxd.agents.scripted import Stopped, shapes
from mailboxd.agents.scripted.delivery import deliver, envelope, reply_later
from mailboxd.agents.scripted.ledger import Entry, Ledger
from mailboxd.agents.scripted.message import Message
from mailboxd.agents.scripted.script import Agent, Script, ScriptError, number


class Ended:
    """How a turn ends: what is printed, the exit status, and what the ledger says of it."""

    def __init__(self, output: str, rc: int, status: str, reply: str | None = None, error: str = "") -> None:
        self.output = output
        self.rc = rc
        self.status = status
        self.reply = reply
        self.error = error


class Turn:
    """A call of `agent` in session `key` with a message; `timeout` in seconds."""

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

    def play(self) -> Ended:
        """Carry the rule out and record it. Raises ScriptError; Stopped is recorded as cancelled and passed on."""
        self.ledger.begin(self._begin)
        try:
            ended = self._act()
        except Stopped:
            self._end(Ended("", 143, "cancelled", error="This operation was aborted"))
            raise
        except (ScriptError, OSError) as problem:
            self._end(Ended("", 1, "failed", error=str(problem)))
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

    def _end(self, ended: Ended) -> None:
        writes = len(self.rule.get("writes") or {}) if ended.status == "succeeded" else 0
        reply = {} if ended.reply is None else {"reply": ended.reply}
        self.ledger.append(
            "end", run_id=self.run_id, status=ended.status, rc=ended.rc, writes=writes, error=ended.error, **reply
        )

    def _act(self) -> Ended:
        if self.agent.has_mailbox and self.message.envelope:
            deliver(
                self.agent.inbox, f"{self.message.local_id or 'message'}-{self.run_id[:8]}.md", self.message.envelope
            )
            return self._answered(self._structured("ack"), by_model=False)  # as OpenClaw's gateway with our plugin
        wait = number(self.rule, "delay", "rule") + number(self.rule, "hang", "rule")
        _pause(min(wait, self.timeout))
        if wait >= self.timeout:
            return Ended(shapes.dump(shapes.timed_out(self.run_id, self.key)), 1, "timed_out", error="timed out")
        if "fail" in self.rule:
            return self._failed(self.rule["fail"])
        for path, text in (self.rule.get("writes") or {}).items():
            self._write(str(path), self.message.fill(str(text)))
        if "garbage" in self.rule:
            return Ended(str(self.rule["garbage"]), 0, "succeeded", reply=str(self.rule["garbage"]))
        return self._answered(self._reply())

    def _answered(self, text: str, *, by_model: bool = True) -> Ended:
        if self.rule.get("lose_reply") == "true":
            return Ended(shapes.dump(shapes.lost(self.run_id)), 1, "succeeded", reply=text)
        cost = number(self.rule, "cost", "rule") if "cost" in self.rule else None
        answer = shapes.success(self.run_id, self.key, self.message.text, text, cost, by_model=by_model)
        return Ended(shapes.dump(answer), 0, "succeeded", reply=text)

    def _failed(self, failure: object) -> Ended:
        fields: dict[str, Any] = failure if isinstance(failure, dict) else {"error": failure}
        kind, error = str(fields.get("kind", "transient")), str(fields.get("error", "scripted failure"))
        if kind not in shapes.FAILURE_KINDS:
            raise ScriptError(f"fail.kind: {kind} is none of {', '.join(shapes.FAILURE_KINDS)}")
        rc = int(number({"rc": 1, **fields}, "rc", "fail"))
        answer = shapes.failure(kind, error, self.run_id)
        return Ended(shapes.dump(answer), rc, "failed", error=answer["error"]["message"])

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
    # A signal ends it: the handler raises.
    select.select([], [], [], seconds)
