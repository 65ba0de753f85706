"""A model that follows a script: an OpenAI-compatible server on a free loopback port, in threads of this process.

OpenClaw asks it as it would ask any model. It answers each request by the first rule that fits and keeps a record of
every call, so that a test can say how many calls one attempt cost. Each agent is given a model of its own name, so the
requests themselves say who asks.

    with Model() as model:
        model.on(Text("The outcome."), agent="alpha", task="report")     # until another rule is put before it
        model.on(Fault(500), agent="alpha", times=1)              # later rules come first
        model.on(Exec("echo x >> ran"), Text("Ran."))             # a turn in two calls: a tool, then words

The rules of a turn are steps: the n-th call of a turn (n tools have answered since it began) gets the n-th step, and
the last step repeats.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import yaml

_TURN = re.compile(r"\[mailboxd\] (\w+) turn · task (\S+) · attempt (\d+)")
_CANARY = re.compile(r"canary-[0-9a-f]{16}\b")
"""The word that `mailboxd doctor --canary` asks for: a model that no rule concerns does as it is told."""
_BESIDE = re.compile(r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\s*Conversation data .*Active exec sessions", re.DOTALL)
"""What OpenClaw puts behind the prompt of each request of a turn."""
_FRONT = re.compile(r"---\ntype: (\w+)\n(.*?)\n---\n", re.DOTALL)


# ---------------------------------------------------------------- what it may answer


@dataclass(frozen=True, slots=True)
class Text:
    """These words; `finish="length"` says that they were cut. An empty text is an empty answer."""

    text: str
    finish: str = "stop"
    seconds: float = 0.0
    """How long it takes to think first."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A call of one of OpenClaw's tools."""

    name: str
    arguments: Mapping[str, Any]
    seconds: float = 0.0
    """How long it takes to think first."""


def Exec(command: str, **more: Any) -> Tool:
    """A shell command in the agent's workspace."""
    return Tool("exec", {"command": command, **more})


def Write(path: str, content: str) -> Tool:
    """A file, written in place."""
    return Tool("write", {"path": path, "content": content})


@dataclass(frozen=True, slots=True)
class Fault:
    """An HTTP error. OpenClaw repeats 429 and 5xx by itself, for 80 to 136 s in all."""

    status: int
    message: str = "scripted failure"


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer before `release()`; then this text. A client that goes away is not waited for."""

    then: str = "Late."


@dataclass(frozen=True, slots=True)
class Several:
    """Several calls of tools in one reply."""

    tools: tuple[Tool, ...]


Step = Text | Tool | Several | Fault | Hang


def plan(children: Mapping[str, Any]) -> Text:
    """An answer that is a plan."""
    return Text(f"---\ntype: plan\n---\n## DAG\n\n```yaml\n{plan_yaml(children)}```\n")


def plan_yaml(children: Mapping[str, Any]) -> str:
    return yaml.safe_dump({"subtasks": dict(children)}, sort_keys=False)


# ---------------------------------------------------------------- what it was asked


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a completion. `kind`, `task` and `attempt` are empty for a turn that mailboxd did not order."""

    number: int
    agent: str
    kind: str
    task: str
    attempt: str
    text: str
    """All messages of the user, joined: OpenClaw may put context of its own behind the prompt."""
    steps: int
    """Tools that have answered since the turn began."""
    results: tuple[str, ...]
    """What those tools said."""
    at: float
    tools: tuple[str, ...] = ()
    """The tools on offer."""
    heard: str = ""
    """What the assistant has said in this session, joined."""
    size: int = 0
    """The bytes of the request."""


def read_call(number: int, request: Mapping[str, Any], size: int = 0) -> Call:
    """What a request says of itself. The turn is the last that mailboxd began in this session."""
    messages: list[Mapping[str, Any]] = list(request.get("messages", ()))
    texts = [_plain(message.get("content")) for message in messages]
    asked = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    begun = [index for index in asked if _identity(texts[index])] or [n for n in asked if not _BESIDE.match(texts[n])]
    start = begun[-1] if begun else 0
    kind, task, attempt = (_identity(texts[start]) if texts else None) or ("", "", "")
    results = [texts[n] for n in range(start, len(messages)) if messages[n].get("role") == "tool"]
    tools = tuple(str(tool.get("function", {}).get("name", "")) for tool in request.get("tools") or ())
    agent = str(request.get("model", "")).rpartition("/")[2]
    text = "\n".join(texts[index] for index in asked)
    heard = "\n".join(texts[n] for n, one in enumerate(messages) if one.get("role") == "assistant")
    return Call(
        number, agent, kind, task, attempt, text, len(results), tuple(results), time.monotonic(), tools, heard, size
    )  # fmt: skip


def _identity(text: str) -> tuple[str, str, str] | None:
    turn = _TURN.search(text)
    if turn:
        return turn[1], turn[2], turn[3]
    front = _FRONT.search(text)
    if front is None:
        return None
    headers = dict(line.partition(": ")[::2] for line in front[2].splitlines())
    names = (headers.get("task_id", ""), headers.get("subtask_id", ""))
    return front[1], ".".join(name.strip("'\"") for name in names if name), headers.get("attempt", "")


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


# ---------------------------------------------------------------- the script


@dataclass(slots=True)
class _Rule:
    steps: tuple[Step, ...]
    fits: dict[str, str]
    times: int | None
    turns: set[tuple[str, ...]] = field(default_factory=set)

    def takes(self, call: Call) -> bool:
        known = {"agent": call.agent, "kind": call.kind, "attempt": call.attempt}
        task, text = self.fits.get("task", ".*"), self.fits.get("text", "")
        if any(known[name] != want for name, want in self.fits.items() if name in known):
            return False
        if not re.fullmatch(task, call.task) or not re.search(text, call.text):
            return False
        if self.times is None:
            return True
        if call.steps > 0:  # the turn goes on under the rule that it began with
            return (call.agent, call.task, call.attempt) in self.turns
        self.times -= 1
        self.turns.add((call.agent, call.task, call.attempt))
        return self.times >= 0


class Model:
    """The server, its rules and its record. Use as a context manager."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.most_at_once = 0
        self._at_once = 0
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def on(self, *steps: Step, times: int | None = None, **fits: str) -> None:
        """Answer so from now on, before all rules that are there: `agent=`, `kind=`, `attempt=` must be equal, `task=`
        is the pattern of the whole id, `text=` is searched in what the user said. `times` turns, then the rules below
        are asked again."""
        unknown = fits.keys() - {"agent", "kind", "task", "attempt", "text"}
        assert not unknown, f"a rule cannot ask for {unknown}"
        with self._lock:
            self._rules.insert(0, _Rule(steps, fits, times))

    def release(self) -> None:
        """Let everything that hangs go on."""
        self._released.set()

    def reset(self) -> None:
        """Forget rules and calls; what hangs is let go."""
        self.release()
        with self._lock:
            self._rules, self.calls, self._released = [], [], threading.Event()
            self.most_at_once = 0

    def made(self, **like: str) -> list[Call]:
        """The calls whose fields are as given."""
        return [call for call in self.calls if all(getattr(call, name) == value for name, value in like.items())]

    def per_attempt(self) -> dict[tuple[str, str, str], int]:
        """How many calls each (agent, task, attempt) has cost."""
        counted: dict[tuple[str, str, str], int] = {}
        for call in self.calls:
            key = (call.agent, call.task, call.attempt)
            counted[key] = counted.get(key, 0) + 1
        return counted

    def take(self, request: Mapping[str, Any], size: int = 0) -> tuple[Step, threading.Event]:
        """Record a request and choose its answer; and what a hang waits for."""
        with self._lock:
            call = read_call(len(self.calls) + 1, request, size)
            self.calls.append(call)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self.choose(call), self._released

    def choose(self, call: Call) -> Step:
        """The answer by the rules; a model that thinks for itself overrides this."""
        rule = next((rule for rule in self._rules if rule.takes(call)), None)
        word = _CANARY.search(call.text)
        steps = rule.steps if rule is not None else (Text(word[0] if word else "The outcome."),)
        return steps[min(call.steps, len(steps) - 1)]

    def answered(self) -> None:
        """A request that was taken has its answer."""
        with self._lock:
            self._at_once -= 1

    def __enter__(self) -> Model:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# ---------------------------------------------------------------- the wire


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    model: Model


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(size))
        assert isinstance(self.server, _Server)
        model = self.server.model
        step, released = model.take(request, size)
        try:
            self._answer(step, released, str(request.get("model", "")))
        finally:
            model.answered()

    def _answer(self, step: Step, released: threading.Event, model: str) -> None:
        if isinstance(step, Hang):
            released.wait()
            step = Text(step.then)
        elif isinstance(step, Text | Tool) and step.seconds:
            released.wait(step.seconds)
        with suppress(BrokenPipeError, ConnectionResetError):
            if isinstance(step, Fault):
                self._send(step.status, "application/json", json.dumps({"error": {"message": step.message}}).encode())
            else:
                self._send(200, "text/event-stream", b"".join(_stream(step, model)))

    def do_GET(self) -> None:
        self._send(200, "application/json", b'{"object": "list", "data": []}')

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The record of calls is `Model.calls`."""


def _stream(step: Text | Tool | Several, model: str) -> Iterator[bytes]:
    if not isinstance(step, Text):
        tools = step.tools if isinstance(step, Several) else (step,)
        now = time.monotonic_ns()
        called = [
            {
                "index": index, "id": f"call_{now}{index}", "type": "function",
                "function": {"name": tool.name, "arguments": json.dumps(dict(tool.arguments))},
            }
            for index, tool in enumerate(tools)
        ]  # fmt: skip
        delta: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": called}
        finish = "tool_calls"
    else:
        delta, finish = {"role": "assistant", "content": step.text}, step.finish
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    for content in (
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ):
        chunk = {"id": "scripted", "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        yield b"data: " + json.dumps({**chunk, **content}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"
